"""What the plans of all tables share: topics that are there, sizes of pieces, the part of a queue that is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from store_core.asked import selected_topics
from store_core.errors import OptionError, nearest
from store_core.lookup import CLOCK_TOLERANCE_MS, ascends
from store_core.plan import Spec
from store_core.predicates import Range
from store_core.queues import Queue, bounds, first_at_or_after, read_entries
from store_core.records import read_head
from store_core.selection import Selection

if TYPE_CHECKING:
    from store_core.store import Store

__all__ = ["check_topics", "piece_size", "queue_bounds", "queue_steps"]

_I64_MAX: Final = (1 << 63) - 1


def check_topics(store: Store, selection: Selection) -> None:
    """An absent topic is an error, if the store can tell which topics there are."""
    named = selected_topics(selection)
    absent = named - set(store.topics) if named else None
    if not absent or not store.knows_topics:
        return
    for topic in sorted(absent):
        raise OptionError(
            f"no topic {topic!r} in {store.path}.{nearest(topic, store.topics)} It has {len(store.topics)} topics"
        )


def piece_size(spec: Spec, total: int) -> int:
    """The most bytes of a piece, where `total` are read: maxPartitionBytes, or less for minPartitions."""
    most = spec.options.max_partition_bytes
    if spec.options.min_partitions:
        most = min(most, -(-total // spec.options.min_partitions))
    return max(most, 1)


def queue_steps(queue: Queue, first: int, stop: int, step: int) -> Iterator[tuple[int, int]]:
    """[first, stop) in ranges of `step` queue offsets. A batch queue is read whole: its units state their own numbers."""
    if queue.batch:
        yield 0, _I64_MAX
        return
    for at in range(first, stop, step):
        yield at, min(at + step, stop)


def queue_bounds(store: Store, spec: Spec, offsets: Range, time: Range, queue: Queue) -> tuple[int, int]:
    """The queue offsets [first, stop) of a queue that may be asked for by `offsets`, storeTimestamp in `time` (ms) and the
    selection.

    Errors: OptionError where startingOffsets is before the first offset that is left, unless failOnDataLoss is false.
    """
    first, stop = bounds(store.files, queue, store.log.min_offset)
    start, end = spec.selection.start_of(queue.topic, queue.queue_id), spec.selection.end_of(queue.topic, queue.queue_id)
    if start is not None and start < first and spec.options.fail_on_data_loss and stop > first:
        raise OptionError(
            f"startingOffsets {start} of {queue.topic!r} queue {queue.queue_id} is before its first offset {first}: "
            "those messages are gone. Set failOnDataLoss=false to read what is left"
        )
    if queue.batch:
        # read whole: an entry's rows go on behind its own offset, and a damaged one may have led the search astray
        return 0, max(stop, sum(file.length for file in queue.files) // queue.unit_size)
    if spec.options.index != "trust":
        first = (
            queue.files[0].base_offset // queue.unit_size
        )  # a damaged entry may have led the search for the first one astray: readers pass over what is gone
    first = max(x for x in (first, offsets.low, start) if x is not None)
    stop = min(x for x in (stop, None if offsets.high is None else offsets.high + 1, end) if x is not None)
    if first < stop and not time.is_all:
        first, stop = _time_bounds(store, time, queue, first, stop)
    return first, stop


def _time_bounds(store: Store, time: Range, queue: Queue, first: int, stop: int) -> tuple[int, int]:
    """[first, stop) narrowed by binary search, where the entry at the new bound proves it: a damaged one may have misled it.

    Nothing is narrowed where the times that the search came by do not ascend.
    """
    seen: dict[int, int] = {}
    whole = first, stop

    def stored(offset: int) -> int | None:
        head = read_head(store.files, store.log, offset)
        if head is None:
            return None
        seen[offset] = head.store_timestamp
        return head.store_timestamp

    if time.low is not None:
        earliest = time.low - CLOCK_TOLERANCE_MS
        at = first_at_or_after(store.files, queue, earliest, store.log.min_offset, stored)
        if at > first and (found := _time_of(store, queue, at - 1)) is not None and found < earliest:
            first = at
    if time.high is not None:
        latest = time.high + CLOCK_TOLERANCE_MS
        at = first_at_or_after(store.files, queue, latest + 1, store.log.min_offset, stored)
        if at < stop and (found := _time_of(store, queue, at)) is not None and found > latest:
            stop = max(at, first)
    return (first, stop) if ascends(seen[offset] for offset in sorted(seen)) else whole


def _time_of(store: Store, queue: Queue, number: int) -> int | None:
    """The storeTimestamp of the record at a queue offset; None where the entry, or the record it leads to, is another one."""
    min_phys = store.log.min_offset
    for _, entries in read_entries(store.files, queue, min_phys=min_phys, first=number, stop=number + 1, with_tags=False):
        head = read_head(store.files, store.log, int(entries.commit_log_offset[0]))
        if head is not None and (queue.is_lmq or (head.queue_id, head.queue_offset) == (queue.queue_id, number)):
            return head.store_timestamp
    return None
