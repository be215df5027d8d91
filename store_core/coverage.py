"""Which bytes of the log the queues account for, so that what they do not (lagging, lost or damaged queues) can be scanned.

The broker has no such check: it trusts its queues, and rebuilds what it finds missing at start (`CommitLog#recoverAbnormally`).
Records with no queue entry at all, prepared and rollback messages of old brokers, come out as gaps too.

Strategy: entries [p, p + s) tile [a, b) exactly once if and only if the multisets {p} + {b} and {p + s} + {a} are equal: every
start but the first is an end. Equal multisets have equal sums of a hash, so a segment is checked by one 64-bit sum over its
entries, in any order, without holding or sorting them. Only segments whose sums differ are read again, sorted and judged entry
by entry.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from store_core.files import Files
from store_core.layout import BLANK_MAGIC, DLEDGER_BLANK_MAGIC, DLEDGER_HEADER
from store_core.queues import Queue, read_entries
from store_core.segments import Framing, Log

__all__ = ["Coverage", "cover"]

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]
UInt64 = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.intp]

_BATCH: Final = 16_384
_SMALL: Final = 1_024
"""Batches below this are pooled: a store may have 100,000 queues with a few entries each."""
_EXACT_ENTRIES: Final = 1_000_000
"""About how many entries the exact judgement holds at once; one segment's at least."""
_MOST_CHECKED: Final = 10_000
"""With more gaps than this in a segment, which no reader follows one by one, entries are not checked."""
_BLANK_HEAD: Final = 8
_MIX: Final = np.uint64(0x9E3779B97F4A7C15)
_HALF: Final = np.uint64(32)


@dataclass(frozen=True, slots=True)
class Coverage:
    """`end`: the largest commitLogOffset + size of all entries (the log's first offset where there are none).

    `gaps`: ranges [start, stop) of the log, ascending and not adjacent, that no entry accounts for; bytes of a missing segment
    are in no gap. All behind `end` is a gap, free space included: only a scan can tell it from records. A gap starts at a
    segment's first byte or where a sound entry ends, so a walk can start there. Each entry that counts is either sound and in
    no gap, or lies in a gap with all its bytes: who reads queues and gaps takes from a queue only what is not `in_gaps`. Only
    the log is not read here: that a sound entry's record is there, and of that queue and offset, is for the reader to check.
    """

    end: int
    gaps: tuple[tuple[int, int], ...]

    def in_gaps(self, offsets: Int64) -> npt.NDArray[np.bool_]:
        """Which of these commitLogOffsets (int64) lie in a gap."""
        edges = np.array(self.gaps, dtype=np.int64).reshape(-1)
        inside: npt.NDArray[np.bool_] = np.searchsorted(edges, offsets, side="right") % 2 == 1
        return inside


@dataclass(frozen=True, slots=True)
class _Segments:
    """The log's segments as arrays; where two files claim the same bytes, the later one has them (`Log.index_of`)."""

    base: Int64
    end: Int64
    head: Int64
    """Bytes in front of each record: its DLedger entry header, or none."""
    edges: Int64
    """The bases, and the log's end."""

    @classmethod
    def of(cls, log: Log) -> _Segments:
        base = np.array([segment.base_offset for segment in log], dtype=np.int64)
        end = np.array([segment.end_offset for segment in log], dtype=np.int64)
        end[:-1] = np.minimum(end[:-1], base[1:])
        head = np.array([DLEDGER_HEADER.itemsize if s.framing is Framing.DLEDGER else 0 for s in log], dtype=np.int64)
        return cls(base, end, head, np.append(base, end[-1:]))


@dataclass(frozen=True, slots=True)
class _Part:
    """A batch of one queue's entries, to be found again: its queue offsets and the range of its commitLogOffsets."""

    queue: Queue
    first: int | None
    stop: int | None
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class _Tally:
    """What the first pass keeps of each segment."""

    sums: UInt64
    """Hashes of starts less hashes of ends."""
    ends: Int64
    """The largest end; the segment's base where there is no entry."""
    counts: Int64
    lasts: Int64
    """The start of the entry with the largest end, where entries do not overlap."""


Check = Callable[[int, int], bool]
"""Whether a record stands at [start, end) of the log, the bytes in front of it included."""


def cover(
    files: Files, queues: Sequence[Queue], log: Log, notes: list[str] | None = None, check: Check | None = None
) -> Coverage:
    """What `queues` account for in `log`; for the whole truth pass all queues of the store. LMQ queues are passed over.

    An entry counts if it lies inside one segment. Entries that are equal count once; entries that overlap without being equal
    do not count at all, and their bytes are gaps. In a queue whose entries do not ascend, as they do in every sound one, none
    counts: a reader finds the first entry whose record is left by their order. Memory: a batch, and a few numbers for each
    segment and each batch; where segments fail the sums, about a million entries, or one segment's if it has more, and the
    gaps.

    `check` is asked of each entry that a gap follows: one that lies of its size would hide a record in front of the gap. An
    entry that fails does not count.
    """
    if not len(log):
        return Coverage(0, ())
    where = _Segments.of(log)
    sound = [queue for queue in queues if not queue.is_lmq]
    while True:
        tally = _Tally(np.zeros(len(log), np.uint64), where.base.copy(), np.zeros(len(log), np.int64), where.base.copy())
        parts, disordered = _sum_up(files, sound, where, tally, notes)
        if not disordered:
            break
        if notes is not None:
            notes += [
                f"queue {q.topic}/{q.queue_id}: its entries' commitLogOffsets do not ascend, none counts" for q in disordered
            ]
        notes = None  # the others' are said
        sound = [queue for queue in sound if queue not in disordered]
    taken = np.flatnonzero(tally.counts)
    used = int(taken[-1]) if len(taken) else -1
    end = int(tally.ends[used]) if len(taken) else log.min_offset
    tiled = tally.sums == _hash(where.base) - _hash(tally.ends)
    if check is not None:
        for i in np.flatnonzero(tiled & (tally.counts > 0) & (tally.ends < where.end)).tolist():
            rest = int(tally.ends[i])
            tiled[i] = (i < used and _is_blank(files, log, i, rest, [])) or check(int(tally.lasts[i]), rest)
    exact = _judge(files, parts, where, tally, np.flatnonzero(~tiled), check)
    gaps: list[tuple[int, int]] = []
    for i in range(len(log)):
        inner = [] if tiled[i] else next(exact)
        rest, stop = int(tally.ends[i]), int(where.end[i])
        if rest < stop and (i >= used or not _is_blank(files, log, i, rest, inner)):
            inner.append((rest, stop))
        gaps.extend(inner)
    return Coverage(end, tuple(_joined(gaps)))


def _is_blank(files: Files, log: Log, i: int, offset: int, gaps: list[tuple[int, int]]) -> bool:
    """Whether a blank closes the segment at `offset`, behind its last entry, if that entry is to be trusted."""
    if gaps and gaps[-1][1] == offset:
        return False
    segment = log.segments[i]
    head = files.read(segment.path, offset - segment.base_offset, _BLANK_HEAD)
    if len(head) < _BLANK_HEAD:
        return False
    words = np.frombuffer(head, ">i4")
    return bool(words[0] == DLEDGER_BLANK_MAGIC if segment.framing is Framing.DLEDGER else words[1] == BLANK_MAGIC)


def _joined(gaps: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    held: tuple[int, int] | None = None
    for gap in gaps:
        if held is not None and held[1] == gap[0]:
            held = (held[0], gap[1])
            continue
        if held is not None:
            yield held
        held = gap
    if held is not None:
        yield held


# --- the sums ------------------------------------------------------------------------------------------------------------
def _hash(offsets: Int64) -> UInt64:
    """Each offset, well mixed: sums of plain offsets, or of their squares, agree for some tilings with a hole."""
    mixed = offsets.view(np.uint64) * _MIX
    mixed *= mixed >> _HALF
    return mixed


def _sum_up(
    files: Files, queues: list[Queue], where: _Segments, tally: _Tally, notes: list[str] | None
) -> tuple[list[_Part], list[Queue]]:
    """Adds all entries to `tally`; returns the batches they came in, and queues whose entries do not ascend."""
    parts: list[_Part] = []
    disordered: list[Queue] = []
    pool: list[tuple[Int64, Int32]] = []
    pooled = 0
    first = int(where.base[0])
    for queue in queues:
        before = -1
        # entries of records that are gone belong to the order
        lowest = first if queue.batch else 0
        for _, entries in read_entries(files, queue, min_phys=lowest, batch=_BATCH, with_tags=False, notes=notes):
            if not queue.batch:
                places = entries.commit_log_offset
                if places[0] <= before or not (places[1:] > places[:-1]).all():
                    disordered.append(queue)
                    break
                before = int(places[-1])
                if places[0] < first:
                    entries = entries[places >= first]
                    if not len(entries):
                        continue
            offset, size = _ordered(entries.commit_log_offset, entries.size)
            low, high = int(offset[0]), int(offset[-1])
            if not queue.batch:
                parts.append(_Part(queue, int(entries.queue_offset[0]), int(entries.queue_offset[-1]) + 1, low, high))
            elif parts and parts[-1].queue is queue:  # not placed by queue offset: found again only by reading all of it
                parts[-1] = replace(parts[-1], low=min(low, parts[-1].low), high=max(high, parts[-1].high))
            else:
                parts.append(_Part(queue, None, None, low, high))
            if len(offset) >= _SMALL:
                _add(offset, size, where, tally)
                continue
            pool.append((offset, size))
            pooled += len(offset)
            if pooled >= _BATCH:
                _add(*_emptied(pool), where, tally)
                pooled = 0
    if pool:
        _add(*_emptied(pool), where, tally)
    return parts, disordered


def _emptied(pool: list[tuple[Int64, Int32]]) -> tuple[Int64, Int32]:
    offset = np.concatenate([one[0] for one in pool])
    size = np.concatenate([one[1] for one in pool])
    pool.clear()
    return _ordered(offset, size)


def _add(offset: Int64, size: Int32, where: _Segments, tally: _Tally) -> None:
    segment, counts, cuts, start, end = _placed(offset, size, where)
    if len(segment):
        tally.sums[segment] += np.add.reduceat(_hash(start), cuts) - np.add.reduceat(_hash(end), cuts)
        ends = np.maximum.reduceat(end, cuts)
        last = np.append(cuts[1:], len(start)) - 1
        tally.lasts[segment] = np.where(ends > tally.ends[segment], start[last], tally.lasts[segment])
        tally.ends[segment] = np.maximum(tally.ends[segment], ends)
        tally.counts[segment] += counts


def _ordered(offset: Int64, size: Int32) -> tuple[Int64, Int32]:
    """Both by ascending offset, as they are in a sound queue."""
    if (offset[1:] >= offset[:-1]).all():
        return offset, size
    order = np.argsort(offset, kind="stable")
    return offset[order], size[order]


def _placed(offset: Int64, size: Int32, where: _Segments) -> tuple[Numbers, Numbers, Numbers, Int64, Int64]:
    """Ordered entries by segment: (segment numbers, how many entries each has, where its first stands, starts, ends).

    A start is that of the bytes the entry accounts for. Entries that are not inside one segment are left out.
    """
    edges = np.searchsorted(offset, where.edges)
    counts = edges[1:] - edges[:-1]
    segment: Numbers = np.flatnonzero(counts)
    counts = counts[segment]
    cuts: Numbers = edges[segment] - edges[0]
    offset, size = offset[edges[0] : edges[-1]], size[edges[0] : edges[-1]]
    if not len(segment):
        return segment, counts, cuts, offset, offset
    head = where.head[segment]
    start = offset - np.repeat(head, counts) if head.any() else offset
    end = offset + size
    first, limit = where.base[segment], where.end[segment]
    if (np.maximum.reduceat(end, cuts) > limit).any() or (start[cuts] < first).any():
        room = np.repeat(limit, counts) - offset
        inside = (room > 0) & (size <= room) & (start >= np.repeat(first, counts))
        return _placed(offset[inside], size[inside], where)
    return segment, counts, cuts, start, end


# --- entry by entry ------------------------------------------------------------------------------------------------------
def _judge(
    files: Files, parts: list[_Part], where: _Segments, tally: _Tally, failed: Numbers, check: Check | None
) -> Iterator[list[tuple[int, int]]]:
    """For each of the `failed` segments, in order: the gaps before its largest end."""
    lows = np.array([part.low for part in parts], dtype=np.int64)
    highs = np.array([part.high for part in parts], dtype=np.int64)
    rounds = np.cumsum(tally.counts[failed]) // _EXACT_ENTRIES
    for number in np.unique(rounds):
        group = failed[rounds == number]
        first, stop = where.base[group[0]], where.end[group[-1]]
        near = [parts[i] for i in np.flatnonzero((highs >= first) & (lows < stop))]
        segment, _, cuts, start, end = _placed(*_read_again(files, near, where, group), where)
        runs = dict(zip(segment.tolist(), itertools.pairwise([*cuts.tolist(), len(start)]), strict=True))
        for i in group.tolist():
            run = slice(*runs[i])
            yield _holes(start[run], end[run], int(where.base[i]), int(tally.ends[i]), check)


def _read_again(files: Files, parts: list[_Part], where: _Segments, wanted: Numbers) -> tuple[Int64, Int32]:
    """(commitLogOffset, size) of the entries of `parts` in the `wanted` segments, by ascending offset."""
    offsets, sizes = [], []
    first = int(where.base[wanted[0]])
    for part in parts:
        for _, entries in read_entries(
            files, part.queue, min_phys=first, first=part.first, stop=part.stop, batch=_BATCH, with_tags=False
        ):
            segment = np.searchsorted(where.base, entries.commit_log_offset, side="right") - 1
            inside = np.isin(segment, wanted)
            offsets.append(entries.commit_log_offset[inside])
            sizes.append(entries.size[inside])
    return _ordered(np.concatenate(offsets), np.concatenate(sizes))


def _holes(start: Int64, end: Int64, first: int, last: int, check: Check | None) -> list[tuple[int, int]]:
    """What of [first, last) is not tiled exactly once by the [start, end), which ascend by start."""
    # Among entries of one start the equal ones need not be neighbours; but then there are unequal ones, and all overlap.
    repeated = np.zeros(len(start), np.bool_)
    repeated[1:] = (start[1:] == start[:-1]) & (end[1:] == end[:-1])
    start, end = start[~repeated], end[~repeated]
    fresh = np.ones(len(start), np.bool_)
    fresh[1:] = start[1:] >= np.maximum.accumulate(end)[:-1]
    begins = np.flatnonzero(fresh)
    alone = np.diff(begins, append=len(start)) == 1  # the others are chains of overlapping entries
    sound = begins[alone]
    asked: set[int] = set()
    while True:
        starts = np.concatenate([[first], end[sound]])
        stops = np.concatenate([start[sound], [last]])
        holes = starts < stops
        if check is None or np.count_nonzero(holes) > _MOST_CHECKED:
            break
        borders = [i for i in {*(np.flatnonzero(holes) - 1).tolist(), len(sound) - 1} if i >= 0 and int(sound[i]) not in asked]
        asked.update(sound[borders].tolist())
        lies = [i for i in borders if not check(int(start[sound[i]]), int(end[sound[i]]))]
        if not lies:
            break
        sound = np.delete(sound, lies)
    return list(zip(starts[holes].tolist(), stops[holes].tolist(), strict=True))
