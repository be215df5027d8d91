"""Where records start in a buffer: walk from one to the next, check what was walked, find the next one after damage.

`CommitLog#checkMessageAndReturnSize` and `DLedgerEntryCoder`, as arrays. All functions are pure: a buffer, a position in it,
and the commitLogOffset `base` of the buffer's first byte. A record counts only if it carries its own place in its header: a log
may hold stale bytes of old records behind its end and inside blanks (`writeWithoutMmap`).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from store_core.layout import (
    BLANK_MAGIC,
    DLEDGER_BLANK_MAGIC,
    DLEDGER_HEADER,
    DLEDGER_MESSAGE_MAGIC,
    MAGIC_V1,
    MAGIC_V2,
    MESSAGE_MAGICS,
    MIN_RECORD_SIZE,
    RECORD_HEADS,
)
from store_core.segments import Framing

__all__ = ["HEAD_PEEK", "Stop", "Walk", "find_record", "peek", "walk"]

_PLACES: Final[Any] = RECORD_HEADS[0].fields
_SIZE = struct.Struct(">i").unpack_from
_SIZE_MAGIC = struct.Struct(">ii").unpack_from
_OWN_OFFSET = struct.Struct(">q").unpack_from
_OWN_OFFSET_AT: Final[int] = _PLACES["commitLogOffset"][1]
_MAGIC_AT: Final = 4
_SIZE_AND_MAGIC: Final = 8
_LEDGER: Final = DLEDGER_HEADER.itemsize
HEAD_PEEK: Final = _OWN_OFFSET_AT + 8
"""Bytes of a record that show its size, magic and own offset."""
_RUN: Final = 32
"""How many records of one size are tried in one step."""


class Stop(Enum):
    """Why a walk ended."""

    LIMIT = "limit"
    """As many records as asked for, or the next one starts at or behind the stop."""
    MORE = "more"
    """The next record does not end inside this buffer: read on from there."""
    BLANK = "blank"
    """A blank record: the file's data ends here."""
    INVALID = "invalid"
    """What stands here is no record: zeros, stale bytes or damage."""


@dataclass(frozen=True, slots=True)
class Walk:
    """`starts`: int64 positions of records in the buffer, ascending. `position`: where the walk stands, and `stop` why.

    In a DLedger buffer `position` is that of an entry header, 48 bytes before its record. `need`: bytes from `position` on that
    the next step wants (for Stop.MORE).
    """

    starts: npt.NDArray[np.int64]
    position: int
    stop: Stop
    need: int = 0


def walk(buffer: bytearray | bytes, length: int, position: int, stop: int, framing: Framing, limit: int) -> Walk:
    """Records whose first byte is in [position, stop), at most `limit` of them, in the first `length` bytes of `buffer`.

    Only sizes are followed here; `decode.Parts` checks the rest of all walked records at once.
    """
    if framing is Framing.DLEDGER:
        return _walk_ledger(buffer, length, position, stop, limit)
    starts: list[int] = []
    runs: list[npt.NDArray[np.int64]] = []
    add = starts.append
    last = 0
    count = 0
    end = min(stop, length - _SIZE_AND_MAGIC + 1)
    why, need = Stop.LIMIT, 0
    while position < end and count < limit:
        before = len(starts)
        for _ in range(limit - count):  # all the Python that there is for one record of many sizes
            size = _SIZE(buffer, position)[0]
            if size == last or size < MIN_RECORD_SIZE:
                break
            add(position)
            last = size
            position += size
            if position >= end:
                break
        count += len(starts) - before
        if position > length:  # the last one goes on behind the buffer
            position = starts.pop()
            count -= 1
            last = 0
        elif position >= end or count >= limit:
            continue
        size = _SIZE(buffer, position)[0]
        if size == last:
            # records of one size come in runs: step over many with one strided look
            run = _same_size_run(buffer, length, position, end, size, min(limit - count, _RUN * 32))
            if run > 1:
                runs.append(np.array(starts, dtype=np.int64))
                starts.clear()
                runs.append(np.arange(position, position + run * size, size, dtype=np.int64))
                count += run
                position += run * size
                continue
        if size < MIN_RECORD_SIZE or position + size > length:
            size_magic = _SIZE_MAGIC(buffer, position)
            if size_magic[1] not in MESSAGE_MAGICS or size < MIN_RECORD_SIZE:
                why = Stop.BLANK if size_magic[1] == BLANK_MAGIC else Stop.INVALID
            else:
                why, need = Stop.MORE, size
            break
        add(position)
        count += 1
        last = size
        position += size
    else:
        if count < limit and position < stop:
            why, need = Stop.MORE, _SIZE_AND_MAGIC
    found = np.array(starts, dtype=np.int64)
    if runs:
        found = np.concatenate([*runs, found])
    found, position, why = _cut_at_foreign_magic(buffer, found, position, why)
    return Walk(found, position, why, need)


def _same_size_run(buffer: bytearray | bytes, length: int, position: int, end: int, size: int, most: int) -> int:
    """How many records of `size` bytes follow each other from `position` on, all inside the buffer."""
    if size < MIN_RECORD_SIZE:
        return 0
    room = min((length - position) // size, (end - 1 - position) // size + 1, most)
    step = _RUN
    done = 0
    while done < room:
        count = min(step, room - done)
        sizes = np.ndarray((count,), dtype=">i4", buffer=buffer, offset=position + done * size, strides=(size,))
        differs = sizes != size
        if differs.any():
            return done + int(differs.argmax())
        done += count
        step *= 4
    return done


def _cut_at_foreign_magic(
    buffer: bytearray | bytes, starts: npt.NDArray[np.int64], position: int, why: Stop
) -> tuple[npt.NDArray[np.int64], int, Stop]:
    """The walk up to the first start that has no message magic (a blank's size leads nowhere good)."""
    if len(starts):
        words = np.ndarray((len(buffer) - 3,), dtype=">i4", buffer=buffer, strides=(1,))
        magic = words[starts + _MAGIC_AT]
        wrong = (magic != MAGIC_V1) & (magic != MAGIC_V2)
        if wrong.any():
            at = int(wrong.argmax())
            stop = Stop.BLANK if magic[at] == BLANK_MAGIC else Stop.INVALID
            return starts[:at], int(starts[at]), stop
    return starts, position, why


def _walk_ledger(buffer: bytearray | bytes, length: int, position: int, stop: int, limit: int) -> Walk:
    starts: list[int] = []
    why, need = Stop.LIMIT, 0
    while position < stop and len(starts) < limit:
        if position + _SIZE_AND_MAGIC > length:
            why, need = Stop.MORE, _SIZE_AND_MAGIC  # a blank may be no longer
            break
        magic, size = _SIZE_MAGIC(buffer, position)
        if magic == DLEDGER_BLANK_MAGIC:
            why = Stop.BLANK
            break
        # 2 and 3 are DLedger's own entries (no-op, configuration): stepped over
        if magic not in (DLEDGER_MESSAGE_MAGIC, 2, 3) or size < _LEDGER:
            why = Stop.INVALID
            break
        if position + max(size, _LEDGER) > length:
            why, need = Stop.MORE, size
            break
        body_size, body_magic = _SIZE_MAGIC(buffer, position + _LEDGER) if size >= _LEDGER + 8 else (0, 0)
        if body_size == size - _LEDGER and body_magic in MESSAGE_MAGICS:
            starts.append(position + _LEDGER)  # also with 2 or 3 in front: then that is a flipped bit
        elif magic == DLEDGER_MESSAGE_MAGIC and size > _LEDGER:
            why = Stop.INVALID
            break
        position += size
    return Walk(np.array(starts, dtype=np.int64), position, why, need)


def peek(head: bytes | bytearray | memoryview, offset: int, position: int = 0) -> int:
    """The size of the record at `position`, if its magic and own offset (`offset`) are right; else 0.

    `head` must hold HEAD_PEEK bytes from `position` on; with fewer the answer is 0.
    """
    if len(head) < position + HEAD_PEEK:
        return 0
    size, magic = _SIZE_MAGIC(head, position)
    if magic not in MESSAGE_MAGICS or size < MIN_RECORD_SIZE or _OWN_OFFSET(head, position + _OWN_OFFSET_AT)[0] != offset:
        return 0
    return int(size)


_MAGIC_BYTES: Final = [struct.pack(">i", magic) for magic in MESSAGE_MAGICS]


def find_record(buffer: bytearray | bytes, length: int, position: int, base: int, room: int) -> int:
    """The first position >= `position` where a record's magic and own offset stand and its size is not over the file's end.

    `room`: bytes from the buffer's first byte to the end of the file. -1 where none is found; a record whose first HEAD_PEEK
    bytes are not whole in the buffer is not found, so buffers of one file must overlap by HEAD_PEEK - 1 bytes. The caller still
    has to check the record as a whole.
    """
    best = -1
    for magic in _MAGIC_BYTES:
        at = position + _MAGIC_AT
        limit = length if best < 0 else best + HEAD_PEEK
        while (hit := buffer.find(magic, at, limit)) >= 0:
            start = hit - _MAGIC_AT
            if start + HEAD_PEEK > length:
                break
            size = peek(buffer, base + start, start)
            if size and start + size <= room:
                best = start
                break
            at = hit + 1
    return best
