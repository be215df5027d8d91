"""Plans for the queue table and the index table: which entries may meet the conditions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from store_core.errors import OptionError, UnsupportedStoreError
from store_core.hashing import key_hash
from store_core.indexfile import IndexDamage, OpenIndex, chain
from store_core.lookup import CLOCK_TOLERANCE_MS
from store_core.plan import IndexRows, Piece, Plan, QueueRows, Spec, pack
from store_core.planparts import check_topics, piece_size, queue_bounds, queue_steps
from store_core.predicates import Range, points_of, range_of
from store_core.queues import Queue
from store_core.selection import Selection

if TYPE_CHECKING:
    from store_core.store import Store

__all__ = ["plan_index", "plan_queues"]

_ENTRY_COST: Final = 1024
_TAG_PREFIX: Final = "T#"


def plan_queues(store: Store, spec: Spec) -> Plan:
    """The plan for a read of the queue table.

    Errors: UnsupportedStoreError where the queues can't be read (a RocksDB, a commitlog opened alone).
    """
    if not len(store.log) and store.root is not None:
        return Plan(spec, (), ("the log is empty",))
    if not store.has_queues:
        raise UnsupportedStoreError(f"no queue table: {store.why_no_queues}")
    check_topics(store, spec.selection)
    topics, ids = points_of(spec.where, "topic"), points_of(spec.where, "queueId")
    offsets = range_of(spec.where, "queueOffset")
    chosen = [
        q
        for q in store.queues
        if (topics is None or q.topic in topics)
        and (ids is None or q.queue_id in ids)
        and spec.selection.takes(q.topic, q.queue_id)
        and not (spec.selection.subscribe_pattern is not None and q.is_lmq)
    ]
    slices = [(q, *queue_bounds(store, spec, offsets, Range(), q)) for q in chosen]
    slices = [s for s in slices if s[1] < s[2]]
    total = sum((stop - first) * q.unit_size for q, first, stop in slices)
    size = piece_size(spec, total)
    pieces: list[Piece] = []
    for queue, first, stop in slices:
        step = max(size // queue.unit_size, 1)
        for at, end in queue_steps(queue, first, stop, step):
            if queue.batch:  # an entry is a row where any of its offsets is asked for
                at, end = _asked_of(spec.selection, queue, at, end)
            pieces.append(QueueRows(queue, at, end, min(end - at, stop - first) * queue.unit_size))
    note = f"{len(slices)} queues are read, {len(store.queues) - len(slices)} skipped"
    return Plan(spec, pack(pieces, size), (note,))


def _asked_of(selection: Selection, queue: Queue, first: int, stop: int) -> tuple[int, int]:
    """The part of [first, stop) that startingOffsets and endingOffsets leave."""
    start, end = selection.start_of(queue.topic, queue.queue_id), selection.end_of(queue.topic, queue.queue_id)
    return first if start is None else start, stop if end is None else end


def plan_index(store: Store, spec: Spec) -> Plan:
    """The plan for a read of the index table: a hash slot where topic and key are given, else all entries of the files that
    match.

    Errors: UnsupportedStoreError where there is no index to be read; OptionError for a file whose sizes can't be told.
    """
    if store.root is None:
        raise UnsupportedStoreError(
            f"no index table: {store.path} was opened as a commitlog alone. Open the store's root for its index"
        )
    opened, faults = store.open_indexes(spec.options)
    if faults:
        first = faults[0]
        raise OptionError(
            f"{first.path}: {first.reason}. Give maxHashSlotNum as in the broker's configuration, or take the file away"
        )
    notes = []
    micros = range_of(spec.where, "storeTimestamp")
    low = None if micros.low is None else micros.low // 1000 - CLOCK_TOLERANCE_MS
    high = None if micros.high is None else micros.high // 1000 + CLOCK_TOLERANCE_MS
    start, end = spec.selection.starting_timestamp, spec.selection.ending_timestamp
    time = Range(low, high).clip(
        None if start is None else start - CLOCK_TOLERANCE_MS, None if end is None else end + CLOCK_TOLERANCE_MS
    )
    if not time.is_all and not (store.times_ascend and all(f.begin_timestamp <= f.end_timestamp for f in opened)):
        time = Range()
        notes.append("times do not ascend along the log: no index file is left out by them")
    hashes = _hashes(spec)
    pieces: list[Piece] = []
    for i, index in enumerate(opened):
        if (time.low is not None and index.end_timestamp < time.low) or (
            time.high is not None and index.begin_timestamp > time.high
        ):
            notes.append(
                f"index file {index.path} skipped: its times [{index.begin_timestamp}, {index.end_timestamp}] don't match"
            )
            continue
        before = opened[i - 1] if i and opened[i - 1].end_phy_offset == index.begin_phy_offset else None
        pieces += _file_pieces(store, spec, index, before, hashes, notes)
    return Plan(spec, pack(pieces, piece_size(spec, sum(p.cost for p in pieces))), tuple(notes))


def _file_pieces(
    store: Store, spec: Spec, index: OpenIndex, before: OpenIndex | None, hashes: set[int] | None, notes: list[str]
) -> list[Piece]:
    if hashes is not None:
        try:
            numbers = sorted({int(n) for h in hashes for n in chain(store.files, index, h).index_no})
        except IndexDamage as e:
            notes.append(f"all entries are read, since a chain is damaged: {e}")
        else:
            notes.append(f"{len(numbers)} entries of {index.path} by hash slot")
            return [IndexRows(index, n, n + 1, before if n == 1 else None) for n in numbers]
    step = max(piece_size(spec, index.entries * _ENTRY_COST) // _ENTRY_COST, 1)
    return [
        IndexRows(index, at, min(at + step, index.entries + 1), before if at == 1 else None)
        for at in range(1, index.entries + 1, step)
    ]


def _hashes(spec: Spec) -> set[int] | None:
    """The keyHashes that the conditions on topic, key, uniqKey and keyHash leave; None for any."""
    topics, keys = points_of(spec.where, "topic"), points_of(spec.where, "key")
    found = points_of(spec.where, "keyHash")
    hashes = None if found is None else set(found)
    if topics is not None and keys is not None:
        types = points_of(spec.where, "indexType")
        prefixes = (
            {""}
            if types is not None and "tag" not in types
            else {_TAG_PREFIX}
            if types == frozenset({"tag"})
            else {"", _TAG_PREFIX}
        )
        named = {key_hash(topic, prefix + key) for topic in topics for key in keys for prefix in prefixes}
        hashes = named if hashes is None else hashes & named
    return hashes
