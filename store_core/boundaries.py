"""Where a record of the log is known to start: places that a walk can begin at, and places that a user names.

Bytes inside of a body can look like a record of their very place: who sends messages sees where they come to stand. So a place
counts only if a walk from a known boundary arrives at it. Known are a file's start, and each record that the entry of its own
topic, queueId and queueOffset leads to: a broker makes entries for records that it walked to. An entry is taken only together
with its record, so that damage to a queue can't make a boundary.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from store_core.files import Files
from store_core.layout import MAGIC_V2
from store_core.queues import entry_of
from store_core.reading import reach
from store_core.records import Head, next_record, record_at
from store_core.segments import Log, Segment

__all__ = ["first_in", "standing"]

_BACK: Final = (64 << 10, 1 << 20, 16 << 20)
"""Bytes in front of a place in which an entry's record is looked for: small ones leave less to walk."""
_TRIES: Final = 32
"""Records that may have no entry, in each of these: forged ones, prepared ones, those that a queue does not have yet."""
_LONGEST_NAME: Final = 255
"""Bytes of a folder's name."""


def first_in(files: Files, root: str | None, segment: Segment, origin: int, start: int, stop: int) -> int:
    """Where a walk of [start, stop) begins: at the first record there; behind `stop` if none starts there.

    `origin`: a known boundary not behind `start`. `root`: the store's; None where a commitlog was opened alone.
    """
    if origin >= start:
        return origin
    log, lead = Log((segment,)), segment.lead
    if next_record(files, log, segment, start + lead, stop + lead) is None:
        return segment.end_offset  # a file's free space, above all: not worth a walk
    return reach(files, log, segment, _nearest(files, root, segment, start, origin), start)


def standing(files: Files, root: str, log: Log, offsets: Iterable[int]) -> list[Head]:
    """The records at those of `offsets` (ascending) where one starts."""
    found: list[Head] = []
    at, walked = 0, None
    for offset in offsets:
        segment, head = log.find(offset), record_at(files, log, offset)
        if segment is None or head is None:
            continue
        if not _has_entry(files, root, segment, head):
            start = offset - segment.lead
            origin = _nearest(files, root, segment, start, at if walked is segment else segment.base_offset)
            at, walked = reach(files, Log((segment,)), segment, origin, start), segment
            if at != start:
                continue
        found.append(head)
    return found


def _nearest(files: Files, root: str | None, segment: Segment, start: int, origin: int) -> int:
    """A known boundary in [origin, start], near `start` if queues tell of one; `origin`, which is one itself, if not."""
    folders = () if root is None else (f"{root}/consumequeue", f"{root}/batchconsumequeue")
    if root is None or start <= origin or not any(files.folder(folder) for folder in folders):
        return origin
    log, lead = Log((segment,)), segment.lead
    for back in _BACK:
        if start - back <= origin:
            break
        at: int | None = start - back + lead
        for _ in range(_TRIES):
            at = None if at is None else next_record(files, log, segment, at, start + lead)
            if at is None or at > start + lead:
                break
            head = record_at(files, log, at)
            if head is not None and _has_entry(files, root, segment, head):
                return at - lead
            at += 1
    return origin


def _has_entry(files: Files, root: str, segment: Segment, head: Head) -> bool:
    """Whether the record's own place in a queue leads to it."""
    position = head.offset - segment.base_offset
    magic = int.from_bytes(files.read(segment.path, position + 4, 4), "big", signed=True)
    width = 2 if magic == MAGIC_V2 else 1
    raw = files.read(segment.path, position + head.body_at + head.body_length, width + _LONGEST_NAME)
    length = int.from_bytes(raw[:width], "big", signed=True)
    topic = raw[width : width + max(length, 0)]
    if not 0 < length <= min(_LONGEST_NAME, len(topic)):
        return False
    try:
        entry = entry_of(files, root, topic.decode(), head.queue_id, head.queue_offset)
    except UnicodeDecodeError:
        return False
    return entry == (head.offset, head.size)
