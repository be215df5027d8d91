"""Single records in a log, read in place: is one there, how long is it, when was it stored, what is wrong with these bytes.

A few bytes are read, never the whole record: a damaged size must not make us read or hold a gigabyte.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, Final

from store_core.files import Files
from store_core.framing import HEAD_PEEK, find_record, peek
from store_core.layout import (
    DLEDGER_HEADER,
    HOST_V6_GROWTH,
    MAGIC_V2,
    MESSAGE_MAGICS,
    MIN_RECORD_SIZE,
    RECORD_HEAD_SIZE,
    RECORD_HEADS,
    V6_BORN_FLAG,
    V6_STORE_FLAG,
)
from store_core.segments import Framing, Log, Segment

__all__ = ["Fault", "Head", "diagnose", "first_record", "next_record", "read_head", "record_at"]

_LEDGER: Final = DLEDGER_HEADER.itemsize
_SEARCH: Final = 1 << 20
_ZEROS: Final = bytes(_SEARCH)
_FIELDS = struct.Struct(">iiiiiqqiq").unpack_from
_I64 = struct.Struct(">q").unpack_from
_I32 = struct.Struct(">i").unpack_from
_I16 = struct.Struct(">h").unpack_from
_PLACES: Final[Any] = RECORD_HEADS[0].fields
_BORN_HOST_AT: Final[int] = _PLACES["bornHost"][1]


@dataclass(frozen=True, slots=True)
class Head:
    """The start of a record that stands where it says: `size` in bytes, `store_timestamp` in ms."""

    offset: int
    size: int
    queue_id: int
    queue_offset: int
    sys_flag: int
    store_timestamp: int
    body_at: int
    """Position of the body in the record."""
    body_length: int


def read_head(files: Files, log: Log, offset: int) -> Head | None:
    """The head of the record at commitLogOffset `offset`, or None where no record with that own offset starts there.

    Reads 112 bytes. The lengths behind the head are not looked at: `record_at` does that.
    """
    segment = log.find(offset)
    if segment is None:
        return None
    position = offset - segment.base_offset
    data = files.read(segment.path, position, RECORD_HEAD_SIZE + 2 * HOST_V6_GROWTH)
    size = peek(data, offset)
    if not size or position + size > segment.length:
        return None
    _, _, _, queue_id, _, queue_offset, _, sys_flag, _ = _FIELDS(data)
    born = HOST_V6_GROWTH if sys_flag & V6_BORN_FLAG else 0
    grown = born + (HOST_V6_GROWTH if sys_flag & V6_STORE_FLAG else 0)
    if len(data) < RECORD_HEAD_SIZE + grown or size < MIN_RECORD_SIZE + grown:
        return None
    stored = _I64(data, _BORN_HOST_AT + 8 + born)[0]
    body_at = RECORD_HEAD_SIZE + grown
    return Head(offset, size, queue_id, queue_offset, sys_flag, stored, body_at, max(_I32(data, body_at - 4)[0], 0))


def record_at(files: Files, log: Log, offset: int) -> Head | None:
    """`read_head`, and the lengths of topic and properties add up to the record's size as well."""
    head = read_head(files, log, offset)
    segment = log.find(offset)
    if head is None or segment is None:
        return None
    position = offset - segment.base_offset
    magic = _I32(files.read(segment.path, position + 4, 4))[0]
    topic_at = head.body_at + head.body_length
    width = 2 if magic == MAGIC_V2 else 1
    if topic_at + width + 2 > head.size:
        return None
    raw = files.read(segment.path, position + topic_at, width)
    topic_length = int.from_bytes(raw, "big", signed=True)
    properties_at = topic_at + width + topic_length
    if topic_length < 0 or properties_at + 2 > head.size:
        return None
    properties_length = max(_I16(files.read(segment.path, position + properties_at, 2))[0], 0)
    return head if properties_at + 2 + properties_length == head.size else None


def next_record(files: Files, log: Log, segment: Segment, offset: int, before: int | None = None) -> int | None:
    """The first commitLogOffset >= `offset` in `segment` where a whole record stands; None up to the file's end.

    With `before`, the search may end there: records behind it need not be found.

    Holes of a sparse file are skipped without reading them.
    """
    position: int | None = max(offset - segment.base_offset, 0)
    end = segment.length if before is None else min(before - segment.base_offset, segment.length)
    while position is not None and position < end:
        position = files.next_data(segment.path, position)
        if position is None or position >= segment.length:
            return None
        wanted = max(end - position, 0) + MIN_RECORD_SIZE  # up to the head of a record that starts before `before`
        data = files.read(segment.path, position, min(_SEARCH, segment.length - position, wanted))
        if len(data) < MIN_RECORD_SIZE:
            return None
        at = len(data) if data == _ZEROS[: len(data)] else 0
        while at < len(data):
            at = find_record(data, len(data), at, segment.base_offset + position, segment.length - position)
            if at < 0:
                break
            head = record_at(files, log, segment.base_offset + position + at)
            if head is not None and _has_entry(files, segment, position + at, head.size):
                return head.offset
            at += 1
        position += max(len(data) - HEAD_PEEK + 1, 1)
    return None


def _has_entry(files: Files, segment: Segment, position: int, size: int) -> bool:
    """Whether a walk would come by the record: DLedger's entry header in front of it is sound, as `framing.walk` has it."""
    if segment.framing is not Framing.DLEDGER:
        return True
    if position < _LEDGER:
        return False
    head = files.read(segment.path, position - _LEDGER, 8)
    return len(head) == 8 and _I32(head)[0] in (1, 2, 3) and _I32(head, 4)[0] == _LEDGER + size


def first_record(files: Files, log: Log, start: int, stop: int) -> int | None:
    """The first commitLogOffset in [start, stop) where a whole record stands, over all files; None if there is none."""
    for segment in log:
        if segment.end_offset <= start or segment.base_offset >= stop:
            continue
        found = next_record(files, log, segment, max(start, segment.base_offset))
        if found is not None:
            return found if found < stop else None
    return None


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with bytes where a record was expected.

    `what`: zeros, magic, place, size or lengths. `was_record`: it is the torn or damaged record of this place, not an older
    one. `size`: what the bytes say is the record's size; 0 where they say nothing.
    """

    what: str
    found: str
    expected: str
    was_record: bool
    size: int = 0

    @property
    def sentence(self) -> str:
        """For a tail, its first word says the class: `zeros`, `torn` or `stale` (see `reading`)."""
        if self.what == "zeros":
            return self.found
        says = f"{self.found}, expected {self.expected}" if self.expected else self.found
        return f"{'torn' if self.was_record else 'stale'}: {says}"


def diagnose(files: Files, segment: Segment, offset: int) -> Fault:
    """What is wrong with the bytes at `offset`, where a record was expected: what was found, what was expected."""
    position = offset - segment.base_offset
    data = files.read(segment.path, position, RECORD_HEAD_SIZE + _LEDGER)
    if not data.strip(b"\0"):
        return Fault("zeros", "zeros where a record was expected", "a record", False)
    if segment.framing is Framing.DLEDGER:
        if len(data) < _LEDGER + HEAD_PEEK:
            return Fault("size", f"{len(data)} bytes, too few for a DLedger entry", "", True)
        magic = _I32(data)[0]
        if magic != 1:
            return Fault("magic", f"DLedger magic {magic}", "1", False)
        data, offset = data[_LEDGER:], offset + _LEDGER
    if len(data) < 8:
        return Fault("size", f"{len(data)} bytes, too few for a record", "", True)
    size, magic = _I32(data)[0], _I32(data, 4)[0]
    own = _I64(data, HEAD_PEEK - 8)[0] if len(data) >= HEAD_PEEK else None
    if magic not in MESSAGE_MAGICS:
        # one flipped bit, or a head that is right otherwise: that was a record of this place, not an older one
        was_record = own == offset or any((magic ^ known).bit_count() == 1 for known in MESSAGE_MAGICS)
        return Fault("magic", f"magic {magic & 0xFFFFFFFF:#010x}", "0xdaa320a7 or 0xdaa320ab", was_record, size)
    if own is None:
        return Fault("size", f"{len(data)} bytes of a record's head", "", True, size)
    if own != offset:
        one_bit = (own ^ offset).bit_count() == 1
        return Fault("place", f"the record says it stands at {own}, it stands at {offset}", "", one_bit, size)
    if size < MIN_RECORD_SIZE:
        return Fault("size", f"record size {size}", f"at least {MIN_RECORD_SIZE}", True, size)
    if offset + size > segment.end_offset:
        left = segment.end_offset - offset
        return Fault("size", f"record size {size}, but only {left} bytes are left in the file", "", True, size)
    return Fault(
        "lengths", f"the lengths of body, topic and properties do not add up to the record's size {size}", "", True, size
    )
