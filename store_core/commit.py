"""The commit of a write: gives staged records their places, copies them, builds queues and index, and publishes all at once.

Twice over what the tasks say of their records: first to check all of it and to see where it goes, then to write. Nothing is
published before the last byte is written and synced: a new store is made beside its place and moved there, an append is told to
readers by a journal (`store_core.journal`).
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from store_core.checkpoint import Checkpoint, encode_checkpoint, read_checkpoint
from store_core.config import batch_topics, read_topics
from store_core.described import Described
from store_core.errors import OptionError, UnsupportedStoreError
from store_core.existing import Existing
from store_core.files import Files, LocalFiles
from store_core.indexbuild import IndexBuilder
from store_core.layout import TRANSACTION_MASK, TRANSACTION_PREPARED
from store_core.logwrite import LogWriter
from store_core.placing import Density, Placer, Times
from store_core.queuebuild import QueueBuilder
from store_core.staging import Staged, StagedBatch, read_about
from store_core.steps import reached
from store_core.writefiles import Writes
from store_core.writeoptions import WriteOptions

__all__ = ["Filled", "Survey", "fill", "staged_batches", "survey", "sync", "unsurveyed"]

_HALF_TOPICS: Final = ("RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC")
_PROGRESS_SECONDS: Final = 5.0
_log = logging.getLogger("store_core.commit")

_Longs = npt.NDArray[np.int64]
_Queue = tuple[str, int]


@dataclass(frozen=True)
class Survey:
    """What staged records will be in a store. start: the place of the first. keep_places: whether they keep theirs. queues:
    (first, next) queueOffset of each. topics: how many queues each needs.
    """

    start: int
    end: int
    keep_places: bool
    times: Times
    queues: dict[_Queue, tuple[int, int]]
    topics: dict[str, int]
    records: int


def survey(files: Files, staging: str, staged: Sequence[Staged], options: WriteOptions, existing: Existing | None) -> Survey:
    """Checks all that was staged, and sees where it goes.

    Errors: OptionError for what a store can't hold (see `Placer.place`).
    """
    if any(each.given_times for each in staged):
        times = Times.ALLOW if options.allow_unordered_times else Times.REFUSE
    else:
        times = Times.LIFT
    placer = _placer(options, existing, times)
    density = Density(options.log_file_size, existing.log_end if existing else None)
    half: set[int] = set()
    unknown: tuple[Described, int, int] | None = None
    topics: dict[str, int] = {}
    for batch in staged_batches(files, staging, staged):
        described = batch.described
        density.add(described)
        placer.place(described)
        half.update(described.records["commitLogOffset"][_half(described)].tolist())
        for record, offset in batch.prepared.tolist():
            if offset not in half and unknown is None:
                unknown = described, record, offset
        _count_queues(described, topics)
    _check_kinds(topics, _batch_topics(files, options, existing), options, existing)
    keep = options.preserve and density.holds and density.first >= 0
    queues = placer.queues()
    if existing is not None:
        _check_begins(queues, existing)
        start = existing.log_end
    elif keep:
        start = density.first // options.log_file_size * options.log_file_size
    else:
        # a broker shows fillers as messages where the log begins at 0
        start = options.log_file_size if any(first > 0 for first, _ in queues.values()) else 0
    if unknown is not None and not keep:
        raise _no_half(*unknown)
    end = start + placer.log_end - (existing.log_end if existing else 0)
    return Survey(
        start,
        density.end if keep else end,
        keep,
        times,
        queues,
        topics,
        sum(each.records for each in staged),
    )


def _check_begins(queues: Mapping[_Queue, tuple[int, int]], existing: Existing) -> None:
    """Errors: OptionError for a new queue that does not begin at 0 where the log does: a broker shows fillers as messages."""
    for (topic, queue_id), (first, _) in queues.items() if existing.log.min_offset == 0 else ():
        if first > 0 and (topic, queue_id) not in existing.next_offsets:
            raise OptionError(
                f"topic {topic!r}, queue {queue_id}: its first queueOffset is {first}, and expected is 0, as the store has no "
                f"such queue yet. Its log begins at 0, so a broker would show the {first} entries before as messages. Bring "
                "the messages before, set renumber=true, or write the rows to a new store"
            )


def _batch_topics(files: Files, options: WriteOptions, existing: Existing | None) -> frozenset[str]:
    """The topics of batch queues: of the store that is there, or that the new one takes its topics from."""
    if existing is not None:
        return existing.batch_topics
    return frozenset() if options.config_from is None else batch_topics(read_topics(files, options.config_from).value)


def _check_kinds(topics: Collection[str], batched: frozenset[str], options: WriteOptions, existing: Existing | None) -> None:
    """Errors: UnsupportedStoreError for a topic of batch queues: a broker with plain queues of it does not start."""
    if batched.isdisjoint(topics):
        return
    topic = min(batched.intersection(topics))
    source, todo = (
        (options.config_from, "Leave the topic's rows or the option 'configFrom' out")
        if existing is None
        else (existing.root, "Write the topic to another store")
    )
    raise UnsupportedStoreError(
        f"topic {topic!r} has batch queues (queue.type=BatchCQ) in {source}, which can't be written. {todo}"
    )


def _count_queues(described: Described, topics: dict[str, int]) -> None:
    """Brings `topics`, how many queues each needs, up to date."""
    for at in np.unique(described.records["queue"]).tolist():
        topic, queue_id = described.queues[at]
        topics[topic] = max(topics.get(topic, 0), queue_id + 1)


def _no_half(described: Described, record: int, offset: int) -> OptionError:
    topic, queue_id = described.queues[int(described.records["queue"][record])]
    return OptionError(
        f"column 'preparedTransactionOffset', topic {topic!r}, queue {queue_id}: {offset} is the place of a half message "
        "that is not among the rows before it, so its new place is not known. Write the half messages too (with their "
        "commitLogOffset and systemTopics=true), or set the column to 0"
    )


def unsurveyed(options: WriteOptions) -> Survey:
    """Where the records of a new store go that keep no places and offsets: nothing need be known of them beforehand."""
    times = Times.ALLOW if options.allow_unordered_times else Times.REFUSE
    return Survey(0, 0, False, times, {}, {}, 0)


def _placer(options: WriteOptions, existing: Existing | None, times: Times) -> Placer:
    return Placer(
        options.log_file_size,
        existing.log_end if existing else 0,
        existing.last_timestamp if existing else 0,
        existing.next_offsets if existing else {},
        keep_offsets=options.preserve and not options.renumber,
        times=times,
    )


def staged_batches(files: Files, staging: str, staged: Iterable[Staged]) -> Iterator[StagedBatch]:
    """All batches of the tasks, in log order."""
    for each in staged:
        yield from read_about(files, staging, each)


def _half(described: Described) -> npt.NDArray[np.bool_]:
    """Which records may be those that a preparedTransactionOffset leads to, by their own commitLogOffset."""
    records = described.records
    halves = np.array([topic in _HALF_TOPICS for topic, _ in described.queues], np.bool_)
    found: npt.NDArray[np.bool_] = halves[records["queue"]] | (records["sysFlag"] & TRANSACTION_MASK == TRANSACTION_PREPARED)
    return found & (records["commitLogOffset"] >= 0)


@dataclass
class Filled:
    """What was written. made: log files that were not there. queues, index: files in `build`. touched: all files, to be synced.
    checkpoint: of the store then. topics: how many queues each needs.
    """

    records: int
    topics: dict[str, int]
    checkpoint: Checkpoint
    made: tuple[str, ...]
    queues: tuple[str, ...]
    index: tuple[str, ...]
    touched: tuple[str, ...] = field(default=())


def fill(
    writes: Writes,
    batches: Iterable[StagedBatch],
    plan: Survey,
    options: WriteOptions,
    existing: Existing | None,
    root: str,
    build: str,
) -> Filled:
    """Writes log, queues and index. root: where the log's files that are there are continued. build: where all other files are
    made, copies of those that are continued among them; the same for a new store.
    """
    files = LocalFiles()
    size = options.log_file_size
    placer = _placer(options, existing, plan.times)
    placer.log_end, placer.keep_places = plan.start, plan.keep_places
    batched = _batch_topics(files, options, existing)
    present = {} if existing is None else {s.base_offset: s.path for s in existing.log if s.end_offset > plan.start}
    log = LogWriter(writes, present, os.path.join(build, "commitlog"), size)
    queues = QueueBuilder(files, writes, root, options.mapped_file_size_consume_queue or 0, build=build)
    index = IndexBuilder(files, writes, build, options.max_hash_slot_num or 0, options.max_index_num or 0)
    moved: dict[int, int] = {}
    topics: dict[str, int] = {}
    done, began = 0, time.monotonic()
    said = began
    try:
        for batch in batches:
            placed = placer.place(batch.described)
            which = _half(batch.described)
            old = batch.described.records["commitLogOffset"][which].tolist()
            moved.update(zip(old, placed.described.records["commitLogOffset"][which].tolist(), strict=True))
            for record, offset in batch.prepared.tolist():
                if offset not in moved and not plan.keep_places:
                    raise _no_half(batch.described, record, offset)
            where = [moved.get(offset, offset) for offset in batch.prepared["preparedTransactionOffset"].tolist()]
            _count_queues(batch.described, topics)
            _check_kinds(topics, batched, options, existing)
            log.add(batch, placed, (batch.prepared["record"].astype(np.int64), np.array(where, np.int64)))
            queues.add(placed.described)
            index.add(placed.described)
            done += len(placed.described)
            reached("batch written")
            if (now := time.monotonic()) - said > _PROGRESS_SECONDS:
                said = now
                of = f" of {plan.records}" if plan.records else ""
                _log.info("%s: %d%s messages written, %.0f/s", root, done, of, done / (now - began))
        touched = log.finish()
    except BaseException:
        log.cancel()
        raise
    reached("log written")
    of_queues = queues.finish()
    reached("queues written")
    of_index = index.finish()
    reached("index written")
    before = (read_checkpoint(files, existing.root) if existing else None) or Checkpoint()
    checkpoint = Checkpoint(
        physic_msg_timestamp=placer.end_timestamp,
        logics_msg_timestamp=placer.end_timestamp,
        index_msg_timestamp=index.full_until or before.index_msg_timestamp,
        master_flushed_offset=before.master_flushed_offset,
        confirm_phy_offset=placer.log_end,
        logics_physical_offset=before.logics_physical_offset,
    )
    writes.replace(os.path.join(build, "checkpoint"), encode_checkpoint(checkpoint))
    return Filled(done, topics, checkpoint, log.made, of_queues, of_index, (*touched, *of_queues, *of_index))


def sync(writes: Writes, root: str, paths: Iterable[str], folders: Iterable[str] = ()) -> None:
    """Waits until files, the folders that they stand in up to `root`, and further `folders` are on the disk."""
    named = {root, *folders}
    for path in paths:
        writes.fsync_file(path)
        folder = os.path.dirname(path)
        while folder not in named and folder.startswith(root):
            named.add(folder)
            folder = os.path.dirname(folder)
    for folder in sorted(named, key=len, reverse=True):
        writes.fsync_folder(folder)
    reached("synced")
