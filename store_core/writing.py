"""Writing stores: `create_store`, `append`, and the three parts of a write that Spark runs in processes of their own.

`start` on the driver sees whether the store can be written; `stage_task` in each task encodes rows into a staging folder;
`commit` on the driver makes them the store, or `abandon` removes them.
"""

from __future__ import annotations

import itertools
import os
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from store_core.commit import Survey, staged_batches, survey, unsurveyed
from store_core.config import TopicConfig, read_topics
from store_core.described import Described
from store_core.encode import encode
from store_core.errors import OptionError, StoreChangedError, StoreError, StoreNotFoundError
from store_core.existing import Fingerprint, fingerprint, read_existing
from store_core.files import LocalFiles, local_name, real_root, swap_folder
from store_core.listing import list_store
from store_core.locks import hold
from store_core.options import parse_options
from store_core.publish import publish_append, publish_new
from store_core.rebuilding import undo_rebuild
from store_core.recovery import STAGING, in_use, like_the_log, recover_append, recover_swap, sweep
from store_core.staging import Staged, StagedBatch, stage, unstaged
from store_core.steps import reached
from store_core.writefiles import Buffer, HeldLock, LocalWrites, Writes
from store_core.writeoptions import WriteOptions, parse_write_options

__all__ = ["MODES", "Batches", "WriteJob", "Written", "abandon", "append", "commit", "create_store", "stage_task", "start"]

MODES: Final = ("create", "append", "overwrite")
_ROWS: Final = 10_000
_BYTES: Final = 16 << 20

Batches: TypeAlias = pa.Table | pa.RecordBatch | pa.RecordBatchReader | Iterable[pa.RecordBatch]


@dataclass(frozen=True)
class WriteJob:
    """One write, from its start to its commit. Picklable.

    root: the store's folder. build: where a new store is made; None where one is appended to. staging: where tasks write.
    now_ms: the storeTimestamp of rows without one. queue_nums: queues of the topics that are there, or in `configFrom`. before:
    the store as it was at the start, None where there was none.
    """

    root: str
    mode: str
    options: WriteOptions
    build: str | None
    staging: str
    now_ms: int
    queue_nums: Mapping[str, int]
    before: Fingerprint | None


@dataclass(frozen=True)
class Written:
    """What a write made: the store's folder, how many messages were added, and where its log ends now (commitLogOffset)."""

    path: str
    messages: int
    log_end: int


def create_store(path: str | os.PathLike[str], batches: Batches, *, mode: str = "create", **options: Any) -> Written:
    """Makes a new store at `path` of rows: any columns of the messages table, `topic` and `body` at least.

    mode: `create` wants nothing there, or an empty folder; `overwrite` replaces a store, which `batches` may be read from. The
    whole folder is replaced, with its config and consumers' offsets: `configFrom` keeps these. `options`: those of
    `store_core.writeoptions.WRITE_OPTIONS`.
    Errors: OptionError for rows or options that can't be taken; StoreLockedError; WriteError. Whatever happens, a reader sees
    either what was there or the whole new store.
    """
    if mode not in ("create", "overwrite"):
        raise OptionError(f"mode is {mode!r}; expected create or overwrite. To add to a store use store_core.append")
    return _write(path, batches, mode, options)


def append(path: str | os.PathLike[str], batches: Batches, **options: Any) -> Written:
    """Adds rows to the store at `path`, behind its log and queues; makes a store where there is none.

    Errors: as `create_store`, and StoreLockedError for a store that was not stopped cleanly.
    """
    return _write(path, batches, "append", options)


def _write(path: str | os.PathLike[str], batches: Batches, mode: str, options: Mapping[str, Any]) -> Written:
    job = start(path, mode, parse_write_options(options))
    try:
        if job.build is not None and not job.options.preserve:
            return _write_through(job, _batches(batches))
        return commit(job, [stage_task(job, 0, "0", _batches(batches))])
    except BaseException:
        abandon(job)
        raise


def _write_through(job: WriteJob, batches: Iterable[pa.RecordBatch]) -> Written:
    """A new store whose places are known as the rows come: they need not be staged."""
    writes = LocalWrites()
    with ExitStack() as held:
        return _publish_new(job, unstaged(_Runs(job, 0, batches)), unsurveyed(job.options), writes, held)


# --- the parts of a write ------------------------------------------------------------------------------------------------
def start(path: str | os.PathLike[str], mode: str, options: WriteOptions) -> WriteJob:
    """Sees whether the store can be written, finishes or undoes what another writer left, and makes the staging folder.

    mode: create, append, overwrite.
    Errors: as `create_store` and `append`.
    """
    files, writes = LocalFiles(), LocalWrites()
    root = real_root(path)
    if options.config_from is not None:
        options = replace(options, config_from=_source(files, options.config_from))
    recover_swap(files, writes, root)
    _check_place(files, root, mode)
    id = uuid.uuid4().hex[:12]
    now_ms = time.time_ns() // 1_000_000
    if mode == "append" and files.list(root):
        if options.config_from is not None:
            raise OptionError(
                f"option 'configFrom' belongs to a new store, and {root} is there: its own config/ stays. Leave the option out"
            )
        with hold(writes, root) as lock:
            _recover(files, writes, root, lock)
            sweep(files, writes, root)
            existing = read_existing(LocalFiles(), root, options)
        staging = os.path.join(root, STAGING + id)
        nums = _queue_nums(existing.topics)
        settled = options.settled(existing.habits)
        now_ms = max(now_ms, existing.last_timestamp)
        writes.make_folder(staging)
        return WriteJob(root, mode, settled, None, staging, now_ms, nums, existing.fingerprint)
    before = None
    if files.list(root):
        with hold(writes, root) as lock:
            _recover(files, writes, root, lock)
            sweep(files, writes, root)
            before = fingerprint(LocalFiles(), root)
        like_the_log(files, writes, root)
    else:
        sweep(files, writes, root)
    build = swap_folder(root, "new", id)
    nums = {} if options.config_from is None else _queue_nums(read_topics(files, options.config_from).value)
    job = WriteJob(root, mode, options.settled(), build, os.path.join(build, STAGING + id), now_ms, nums, before)
    writes.make_folder(job.staging)
    return job


def _queue_nums(topics: Mapping[str, TopicConfig]) -> dict[str, int]:
    return {topic: config.write_queue_nums for topic, config in topics.items() if config.write_queue_nums > 0}


def stage_task(job: WriteJob, partition: int, attempt: str, batches: Iterable[pa.RecordBatch]) -> Staged:
    """Encodes the rows of one task into the staging folder. attempt: tells attempts of the same partition apart.

    Errors: OptionError for rows that can't be taken; StoreError where this machine does not see the staging folder.
    """
    files = LocalFiles()
    if files.folder(job.staging) is None:
        raise StoreError(
            f"{job.staging}: the driver made this folder, and it is not there for this task. Write to storage that driver and "
            "workers mount under the same path; if it was removed in the meantime, write again"
        )
    return stage(LocalWrites(), job.staging, partition, attempt, _Runs(job, partition, batches))


def commit(job: WriteJob, staged: Sequence[Staged]) -> Written:
    """Makes what tasks have staged, one attempt of each partition, the store or a part of it.

    Errors: as `create_store` and `append`; StoreChangedError where an overwritten store was written to since the start, or one
    that is appended to with `preserve`. Then the store is as it was.
    """
    writes = LocalWrites()
    parts = sorted(staged, key=lambda each: each.partition)
    twice = {a.partition for a, b in itertools.pairwise(parts) if a.partition == b.partition}
    if twice:
        raise StoreError(f"{job.root}: two results of the same partitions, {sorted(twice)}, came to the commit")
    reached("staged")
    with ExitStack() as held:
        if job.build is None:
            return _commit_append(job, parts, writes, held)
        plan = survey(LocalFiles(), job.staging, parts, job.options, None)
        reached("surveyed")
        return _publish_new(job, staged_batches(LocalFiles(), job.staging, parts), plan, writes, held)


def abandon(job: WriteJob) -> None:
    """Removes what a write has staged. What was published stays, or is there for the next writer to finish."""
    folder = job.staging if job.build is None else job.build
    if not in_use(LocalFiles(), job.root, folder):
        LocalWrites().remove_folder(folder)


def _publish_new(job: WriteJob, batches: Iterable[StagedBatch], plan: Survey, writes: Writes, held: ExitStack) -> Written:
    assert job.build is not None
    files = LocalFiles()
    there = bool(files.list(job.root))
    if there and job.before is not None:
        lock = held.enter_context(hold(writes, job.root))
        _recover(files, writes, job.root, lock)
        if fingerprint(LocalFiles(), job.root) != job.before:
            raise _changed(job, "so it is not overwritten")
        like_the_log(files, writes, job.root)
    elif there:
        raise _changed(job, "and there was nothing before; so nothing was written")
    done = publish_new(
        writes,
        job.build,
        job.staging,
        batches,
        plan,
        job.options,
        job.root,
        job.now_ms,
        replaces=there and job.before is not None,
    )
    return Written(job.root, done.records, done.checkpoint.confirm_phy_offset)


def _commit_append(job: WriteJob, staged: Sequence[Staged], writes: Writes, held: ExitStack) -> Written:
    files = LocalFiles()
    if files.folder(job.root) is None:
        raise _changed(job, "and is gone")
    lock = held.enter_context(hold(writes, job.root))
    _recover(files, writes, job.root, lock)
    existing = read_existing(LocalFiles(), job.root, job.options)
    if job.options.preserve and existing.fingerprint != job.before:
        raise _changed(job, "and messages whose offsets are preserved can't go behind others")
    plan = survey(files, job.staging, staged, job.options, existing)
    reached("surveyed")
    if not plan.records:
        writes.remove_folder(job.staging)
        return Written(job.root, 0, existing.log_end)
    batches = staged_batches(files, job.staging, staged)
    done = publish_append(writes, job.staging, batches, plan, job.options, existing, job.now_ms, lock)
    return Written(job.root, done.records, done.checkpoint.confirm_phy_offset)


def _changed(job: WriteJob, what: str) -> StoreChangedError:
    return StoreChangedError(f"{job.root}: the store was written to since this write began, {what}. Write again")


def _recover(files: LocalFiles, writes: Writes, root: str, lock: HeldLock) -> None:
    """Finishes or undoes what an append or a rebuild of the store in `root`, which is held, has left."""
    recover_append(files, writes, root, lock)
    undo_rebuild(files, writes, root)


# --- before a write ------------------------------------------------------------------------------------------------------
def _check_place(files: LocalFiles, root: str, mode: str) -> None:
    if files.size(root) is not None:
        raise OptionError(f"{root} is a file, and a store is a folder. Give another path")
    entries = files.list(root)
    if not entries:
        return
    if mode == "create":
        raise OptionError(f"{root} is not empty. Append to it, set mode='overwrite' to replace it, or give another path")
    try:
        listing = list_store(files, root, parse_options({}))
    except StoreNotFoundError as e:
        raise OptionError(f"{root} is not empty, and no store either, so nothing is written there: {e}") from None
    if listing.root is None:
        raise OptionError(f"{root} is a commitlog alone. Give the store's root, {os.path.dirname(root)}")


def _source(files: LocalFiles, path: str) -> str:
    source = local_name(path)
    if files.folder(os.path.join(source, "config")) is None:
        raise OptionError(f"option 'configFrom' is {path!r}, which has no folder config. Give a store's root folder")
    return source


# --- rows ------------------------------------------------------------------------------------------------------------------
class _Runs:
    """A task's rows, encoded batch by batch."""

    def __init__(self, job: WriteJob, partition: int, batches: Iterable[pa.RecordBatch]) -> None:
        self._job = job
        self._partition = partition
        self._batches = batches
        self.given_times = False

    def __iter__(self) -> Iterator[tuple[Buffer, Described]]:
        row, seen = 0, None
        for whole in self._batches:
            self.given_times |= "storeTimestamp" in whole.schema.names
            for batch in _slices(whole):
                run = encode(
                    batch,
                    self._job.options,
                    now_ms=self._job.now_ms,
                    first_row=row,
                    first_queue=self._partition,
                    seen=seen,
                    queue_nums=self._job.queue_nums,
                )
                row, seen = row + batch.num_rows, run.seen
                yield run.data, run.described


def _batches(given: Batches) -> Iterable[pa.RecordBatch]:
    if isinstance(given, pa.Table):
        return given.to_batches()
    return [given] if isinstance(given, pa.RecordBatch) else given


def _slices(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The batch in parts of about `_ROWS` rows or `_BYTES` bytes; a value that many rows share counts for each of them."""
    ends = np.cumsum(sum((_sizes(column) for column in batch.columns), np.zeros(batch.num_rows, np.int64)))
    first = 0
    while first < batch.num_rows:
        taken = int(ends[first - 1]) if first else 0
        stop = int(np.searchsorted(ends, taken + _BYTES, side="right"))
        stop = min(max(stop, first + 1), first + _ROWS)
        yield batch.slice(first, stop - first)
        first = stop


def _sizes(column: Any) -> npt.NDArray[np.int64]:
    """About how many bytes each value takes by itself: int64[n]."""
    kind = column.type
    if not len(column) or pa.types.is_null(kind):
        return np.zeros(len(column), np.int64)
    if pa.types.is_dictionary(kind):
        own = np.append(_sizes(column.dictionary), 0)  # the last one for null
        return own[np.asarray(column.indices.cast(pa.int64()).fill_null(len(own) - 1))]
    if pa.types.is_binary_view(kind) or pa.types.is_string_view(kind):
        lengths = np.frombuffer(column.buffers()[1], np.int32)[::4][column.offset : column.offset + len(column)]
        return np.maximum(lengths, 0).astype(np.int64)
    if any(of(kind) for of in (pa.types.is_binary, pa.types.is_string, pa.types.is_large_binary, pa.types.is_large_string)):
        return np.asarray(pc.binary_length(column).fill_null(0)).astype(np.int64)
    return np.full(len(column), column.nbytes // len(column), np.int64)
