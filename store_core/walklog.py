"""A whole log, described: read by a few threads, range by range, and given in order.

Records are described where they are read, so what goes from thread to thread is small; at most a few ranges are under way.
Where a range's first record starts is guessed, and known when the range before it was walked: a wrong guess is read again.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Final, TypeAlias, TypeVar

from store_core.decode import Parts
from store_core.describe import describe_parts
from store_core.described import Described
from store_core.errors import CorruptStoreError
from store_core.files import Files
from store_core.reading import Found, Gap, last_segment_with_records, read_range
from store_core.records import next_record
from store_core.segments import Log, Segment

__all__ = ["Walked", "walk_log"]

Walked: TypeAlias = Described | Gap | CorruptStoreError
"""Records; a range that is none; or what can't be in the log: a message that a broker could not dispatch, a missing file."""

T = TypeVar("T")
R = TypeVar("R")

_RANGE: Final = 32 << 20
_THREADS: Final = 2


@dataclass(frozen=True, slots=True)
class _Range:
    """Bytes [start, stop) of the log, in one file. `records_behind`: whether a later file holds records. `is_known`: a record,
    or a gap, is known to begin at `start`; else the first that looks like one is taken, and its start compared later.
    """

    segment: Segment
    start: int
    stop: int
    records_behind: bool
    is_known: bool = False


@dataclass(frozen=True, slots=True)
class _Read:
    """What was found in a range, where that begins, and where the next one has to begin."""

    part: _Range
    start: int
    end: int
    found: list[Walked]


def walk_log(new_files: Callable[[], Files], log: Log, *, index_tags: bool, delay_levels: tuple[int, ...]) -> Iterator[Walked]:
    """All of a log, in order; a message that can't be dispatched comes before the batch it was in.

    `new_files`: gives each thread its own. The other arguments are those of `describe`.
    """
    own = threading.local()

    def read(part: _Range) -> _Read:
        if not hasattr(own, "files"):
            own.files = new_files()
        segment, start = part.segment, part.start
        if start != segment.base_offset and not part.is_known:
            first = next_record(own.files, log, segment, start + segment.lead, part.stop + segment.lead)
            start = segment.end_offset if first is None else first - segment.lead
        found: list[Walked] = []
        end = start

        def described() -> Generator[Found | Gap, None, None]:
            nonlocal end
            end = yield from read_range(
                own.files, log, segment, start, part.stop, aligned=True, records_behind=part.records_behind
            )

        for each in described():
            found += [each] if isinstance(each, Gap) else _described(each.parts, each.segment, index_tags, delay_levels)
        return _Read(part, start, end, found)

    until = last_segment_with_records(new_files(), log)
    for segment, after in zip(log, [*log.segments[1:], None], strict=True):
        behind = segment.base_offset < until
        starts = range(segment.base_offset, segment.end_offset, _RANGE)
        ranges = (_Range(segment, start, min(start + _RANGE, segment.end_offset), behind) for start in starts)
        at = segment.base_offset
        for done in _in_order(ranges, read):
            if at >= done.part.stop:
                continue  # what the ranges before it read goes on behind this one
            if done.start != at:  # bytes inside of a record look like one: the walk that comes from the file's start is right
                done = read(replace(done.part, start=at, is_known=True))
            at = done.end
            yield from done.found
        if after is not None and segment.end_offset < after.base_offset and behind:
            text = f"no file holds commitLogOffsets [{segment.end_offset}, {after.base_offset})"
            yield CorruptStoreError(
                f"{text}: the next is {after.path}. A file was deleted, cut short or not copied", path=segment.path
            )


def _described(parts: Parts, segment: Segment, index_tags: bool, delay_levels: tuple[int, ...]) -> Iterator[Walked]:
    while len(parts):
        try:
            yield describe_parts(parts, index_tags=index_tags, delay_levels=delay_levels)
            return
        except CorruptStoreError as e:
            assert e.offset is not None
            yield e.at(segment.path, e.offset - segment.base_offset)
            parts = parts.take(parts.heads["commitLogOffset"] != e.offset)


def _in_order(tasks: Iterable[T], work: Callable[[T], R]) -> Iterator[R]:
    """`work` of each task, in the order of the tasks; the threads are never more than a few tasks ahead."""
    pool = ThreadPoolExecutor(_THREADS)
    waiting: deque[Future[R]] = deque()
    try:
        for task in tasks:
            waiting.append(pool.submit(work, task))
            if len(waiting) > _THREADS:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
