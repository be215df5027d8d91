"""Reads records out of log files: a byte range by walking it, or many single places. Yields batches of located records and
gaps.

A range's records are those that *start* in it. Ranges of one file, put side by side, give every record once and every gap once,
however they are cut: a gap belongs to the range that the record before it belongs to, or to the one that begins at the file's
start.

Only a walk says where a record starts: bytes inside of a body may look like a record of their very place. So a range that
begins anywhere is walked from a place before it where a record is known to start (`boundaries`), or from the file's start.

What a gap means is told by what stands behind it. With records behind it, in this file or a later one, it is corruption. With
none it is the log's end: zeros (a clean end), the torn head of a record that was never finished, or stale bytes of older
records (`writeWithoutMmap`); a broker's recovery ends there too.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from store_core.decode import Parts
from store_core.errors import StoreChangedError
from store_core.files import Files
from store_core.framing import HEAD_PEEK, Stop, walk
from store_core.records import diagnose, next_record, record_at
from store_core.segments import Framing, Log, Segment

__all__ = ["Found", "Gap", "last_segment_with_records", "reach", "read_places", "read_range"]

_CHUNK: Final = 4 << 20
"""Bytes read at once: small enough for the caches, large enough for batches of thousands of records."""
_LEAST: Final = 64 << 10
"""A buffer's size for short ranges: to make one costs as much as to read into it."""
_MOST_RECORDS: Final = 1 << 14
_SPARE: Final = 8
_NEAR: Final = 8 << 10
"""Two places nearer than this are read in one go: the bytes between cost less than a second read."""


@dataclass(frozen=True, slots=True)
class Found:
    """Located records, all `good`, of one segment. Their buffer is used again for the next batch."""

    segment: Segment
    parts: Parts


@dataclass(frozen=True, slots=True)
class Gap:
    """Bytes [start, end) of the log (absolute) that are no record. `is_tail`: no record stands behind them."""

    segment: Segment
    start: int
    end: int
    reason: str
    is_tail: bool


def last_segment_with_records(files: Files, log: Log) -> int:
    """The base offset of the last segment that holds a record; -1 if none does. Reads one head where the file's first record is
    whole.
    """
    for segment in reversed(log.segments):
        if record_at(files, log, segment.base_offset + segment.lead) is not None:
            return segment.base_offset
        if next_record(files, log, segment, segment.base_offset) is not None:
            return segment.base_offset
    return -1


def reach(files: Files, log: Log, segment: Segment, origin: int, start: int) -> int:
    """Where a walk from `origin`, where a record or a gap is known to begin, is when it gets to `start` or first beyond it."""
    if origin >= start:
        return origin
    walk = read_range(files, log, segment, origin, start, aligned=True, records_behind=True)
    while True:
        try:
            next(walk)
        except StopIteration as e:
            return int(e.value)


def read_range(
    files: Files,
    log: Log,
    segment: Segment,
    start: int,
    stop: int,
    *,
    aligned: bool,
    records_behind: bool,
    origin: int | None = None,
) -> Generator[Found | Gap, None, int]:
    """The records of `segment` that start in [start, stop), and the gaps that begin there.

    `aligned`: a record (or gap) begins at `start`, as at a file's beginning; else the walk begins at `origin`, where one does
    begin (the file's start, if None), and what starts before `start` is passed over.
    `records_behind`: whether a later segment holds records.
    The generator's own value: where the next range begins, at `stop` or behind it.
    """
    base, lead = segment.base_offset, segment.lead
    stop = min(stop, segment.end_offset)
    if not aligned:
        start = reach(files, log, segment, base if origin is None else origin, start)
    position = start - base
    owed = False  # whether a record of this range ends here, so that a gap here is the range's as well
    again = -1  # where a record was that was being written when it was read first
    buffer = bytearray(min(_CHUNK, segment.length, max(stop - base - position, _LEAST)) + _SPARE)
    need = 0
    while position < stop - base or owed:
        peeking = position >= stop - base
        if peeking and not lead and record_at(files, log, base + position) is not None:
            return base + position
        # a range may be one record long: no more is read than it and the head behind it
        ahead = min(len(buffer) - _SPARE, max(stop - base - position, need, lead + HEAD_PEEK), segment.length - position)
        got = files.read_into(segment.path, position, memoryview(buffer)[:ahead])
        need = 0
        walked = walk(buffer, got, 0, max(stop - base - position, 1), segment.framing, _MOST_RECORDS)
        at, why = walked.position, walked.stop
        if len(walked.starts):
            parts = Parts.locate(buffer, walked.starts, base + position, got)
            if not parts.good.all():
                bad = int(np.argmin(parts.good))
                at, why = int(walked.starts[bad]) - lead, Stop.INVALID
                parts = parts.take(slice(0, bad))
            if len(parts):
                if peeking:
                    return base + position
                yield Found(segment, parts)
        position += at
        owed = position < segment.length
        if why is Stop.LIMIT:
            continue
        if why is Stop.MORE and position + walked.need <= segment.length:
            capacity = len(buffer) - _SPARE
            if got == ahead and walked.need <= capacity and (at > 0 or walked.need > got):
                need = walked.need
                continue
            if walked.need <= capacity:
                raise StoreChangedError(
                    f"{segment.path}: {got} bytes at {position}, {segment.length - position} were listed: the file shrank. "
                    "Open the store again"
                )
            if record_at(files, log, base + position + lead) is not None:
                buffer = bytearray(walked.need + _SPARE)  # one record larger than the buffer, and sound
                need = walked.need
                continue
        if why is Stop.BLANK and _closes(files, log, segment, base + position):
            return segment.end_offset
        behind = next_record(files, log, segment, base + position + lead + 1)
        # a broker that runs writes one record behind the other: with one behind it, or not, this one may be whole by now
        if again != position and record_at(files, log, base + position + lead) is not None:
            again = position
            continue
        gap, position = _gap(files, segment, position, behind, records_behind)
        owed = False
        if gap is not None:
            yield gap
    return base + position


def _closes(files: Files, log: Log, segment: Segment, offset: int) -> bool:
    """Whether the blank at `offset` is the file's end: its size fits, or at least no record stands behind it."""
    position = offset - segment.base_offset
    head = files.read(segment.path, position, 8)
    size = int.from_bytes(head[4:8] if segment.framing is Framing.DLEDGER else head[:4], "big", signed=True)
    return size == segment.length - position or next_record(files, log, segment, offset + 8) is None


def _gap(files: Files, segment: Segment, position: int, behind: int | None, records_behind: bool) -> tuple[Gap | None, int]:
    """The gap that begins at `position`, and where to read on. behind: the next record of the file, if there is one."""
    base = segment.base_offset
    start = base + position
    if behind is not None:
        end = behind - segment.lead
        return Gap(segment, start, end, diagnose(files, segment, start).sentence, False), end - base
    if start >= segment.end_offset and not records_behind:
        return None, segment.length
    reason = diagnose(files, segment, start).sentence
    if not records_behind and reason.startswith("zeros"):
        return None, segment.length
    return Gap(segment, start, segment.end_offset, reason, not records_behind), segment.length


def read_places(
    files: Files, log: Log, offsets: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]
) -> Iterator[tuple[Found, npt.NDArray[np.int64]] | npt.NDArray[np.int64]]:
    """The records at the commitLogOffsets `offsets` (ascending, no two alike), `sizes` bytes each.

    Yields (records, their indexes in `offsets`) and, as a bare array, the indexes of places where no such record stands:
    outside of the log, no magic or own offset there, or another size.
    """
    bases = np.array([s.base_offset for s in log], dtype=np.int64)
    ends = np.array([s.end_offset for s in log], dtype=np.int64)
    which = np.searchsorted(bases, offsets, side="right") - 1
    inside = (which >= 0) & (sizes > 0)
    if len(bases):
        inside &= offsets + sizes <= ends[np.maximum(which, 0)]
    if not inside.all():
        yield np.flatnonzero(~inside)
    index = np.flatnonzero(inside)
    buffer = bytearray()
    while len(index):
        segment = log.segments[int(which[index[0]])]
        here = index[: int(np.searchsorted(which[index], which[index[0]], side="right"))][:_MOST_RECORDS]
        starts, spans = _layout(offsets[here], sizes[here])
        count = max(int(np.searchsorted(starts + sizes[here], _CHUNK, side="right")), 1)
        here, starts = here[:count], starts[:count]
        length = int(starts[-1] + sizes[here[-1]])
        if length > len(buffer) - _SPARE:
            buffer = bytearray((length if here[-1] == index[-1] else max(length, _CHUNK)) + _SPARE)
        begins = spans[: int(np.searchsorted(spans, count))]
        ends = np.append(starts[begins[1:] - 1] + sizes[here[begins[1:] - 1]], length)
        places = offsets[here[begins]] - segment.base_offset
        reads = zip(places.tolist(), starts[begins].tolist(), ends.tolist(), strict=True)
        files.read_spans(segment.path, reads, memoryview(buffer))
        parts = Parts.locate(buffer, starts, offsets[here] - starts, length)
        right = parts.good & (parts.heads["storeSize"] == sizes[here])
        if not right.all():
            yield here[~right]
            parts = parts.take(right)
        if len(parts):
            yield Found(segment, parts), here[right]
        index = index[len(here) :]


def _layout(
    offsets: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """(where each record goes in a buffer, which records begin a read). A small gap is read along with its neighbours."""
    between = offsets[1:] - (offsets[:-1] + sizes[:-1])
    near = (between >= 0) & (between < _NEAR)
    starts = np.concatenate([[0], np.cumsum(sizes[:-1] + np.where(near, between, 0))])
    return starts, np.concatenate([[0], np.flatnonzero(~near) + 1])
