"""A store's queues and index anew, from its commitlog: what a broker's own recovery makes, of the whole log.

All is built in a folder of its own inside the root, which brokers pass over, synced, and then swapped in by renames. A process
that dies before leaves the old files, one that dies between two renames leaves a store without its queues or index, which reads
right and slowly; the next `rebuild` or writer puts back what was moved away (`undo_rebuild`).
"""

from __future__ import annotations

import os
import posixpath
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from store_core.checkpoint import abort_exists
from store_core.config import batch_topics, read_topics
from store_core.describe import DELAY_LEVELS, parse_delay_levels
from store_core.described import Described
from store_core.errors import (
    CorruptStoreError,
    OptionError,
    StoreNotFoundError,
    StoreWarning,
    UnsupportedStoreError,
    nearest,
)
from store_core.files import Files, LocalFiles, local_name, local_path
from store_core.indexbuild import DEFAULT_INDEX_SIZES, IndexBuilder, found_index_sizes, found_index_tags
from store_core.listing import Listing, list_store
from store_core.locks import hold
from store_core.options import OPTIONS, Option, ReadOptions
from store_core.queuebuild import DEFAULT_QUEUE_FILE_SIZE, QueueBuilder, found_queue_file_size
from store_core.queues import Queue, list_queues, read_entries, rocksdb_queue
from store_core.reading import Gap
from store_core.recovery import recover_append, recover_swap
from store_core.walklog import walk_log
from store_core.writefiles import LocalWrites, Writes
from store_core.writeoptions import WRITE_OPTIONS

__all__ = ["REBUILD_FOLDER", "WHAT", "Rebuilt", "rebuild", "undo_rebuild"]

WHAT: Final = ("consumequeue", "index")
REBUILD_FOLDER: Final = ".rmq-rebuild"
_OLD: Final = "old-"
_DONE: Final = "-done"
_SYNCS: Final = 8
_LENIENT: Final = "mode=PERMISSIVE goes on as a broker's recovery does, and leaves out what is no record"
_TAKEN: Final = ("mode", "storePathCommitLog", "readOnlyCommitLogStorePaths")
_SIZES: Final = ("mappedFileSizeConsumeQueue", "maxHashSlotNum", "maxIndexNum", "indexTags")
_OPTIONS: Final = {
    option.name.lower(): option
    for option in (
        *(each for each in OPTIONS if each.name in _TAKEN),
        *(each for each in WRITE_OPTIONS if each.name in _SIZES),
        Option(
            "messageDelayLevel", "text", None, (), "The broker's delay levels, as `1s 5s 1m`, if they are not RocketMQ's own."
        ),
    )
}


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What `rebuild` did: `records` in the log, entries of so many `queues` (light ones too), entries in the `index_files`."""

    path: str
    records: int
    queues: int = 0
    queue_entries: int = 0
    index_files: int = 0
    index_entries: int = 0


def rebuild(
    path: str | os.PathLike[str],
    what: Iterable[str] = WHAT,
    *,
    progress: Callable[[int], object] | None = None,
    **options: Any,
) -> Rebuilt:
    """Builds the queue and index files of the store at `path` anew from its commitlog, and replaces the old ones.

    `what`: consumequeue, index, or both. Sizes of files are the old files', else RocketMQ's defaults. Queues of which the log
    holds no record any more keep their last file, and with it their next queueOffset. `progress` is told how many more bytes of
    the log are done.

    Options: `mode` (FAILFAST: damage in the log is an error; PERMISSIVE: what is no record is left out, with a warning),
    `mappedFileSizeConsumeQueue`, `maxHashSlotNum`, `maxIndexNum`, `indexTags` (entries of tags; by default as in the old index,
    else true), `messageDelayLevel`, `storePathCommitLog`, `readOnlyCommitLogStorePaths`.
    Errors: StoreLockedError where a broker or another writer has the store; CorruptStoreError; UnsupportedStoreError for queues
    in a RocksDB; OptionError; WriteError. After an error the store is as it was.
    """
    asked = (what,) if isinstance(what, str) else tuple(what)
    if unknown := [each for each in asked if each not in WHAT] or (not asked and ["nothing"]):
        raise OptionError(f"rebuild can't build {unknown[0]!r}; expected {' or '.join(WHAT)}, or both")
    given = _parse(options)
    files, writes = LocalFiles(), LocalWrites()
    recover_swap(files, writes, local_name(path))
    root = local_path(path)
    if list_store(files, root, _read_options(given)).root is None:
        raise StoreNotFoundError(f"{root} is a commitlog alone. Give the store's root, the folder with commitlog in it")
    with hold(writes, root) as lock:
        recover_append(files, writes, root, lock)
        undo_rebuild(files, writes, root)
        # listed again: nobody else changes it from here on
        rebuilding = _Rebuilding(files, writes, list_store(files, root, _read_options(given)), asked, given)
        try:
            done = rebuilding.build(progress)
            rebuilding.publish()
        finally:
            undo_rebuild(files, writes, root)
            writes.close()
            files.close()
    if abort_exists(LocalFiles(), root):
        warnings.warn(
            f"{root}: `abort` is there, so a broker that starts on the store runs its recovery. That may delete the last index "
            "file and build it anew from the last log files alone, unless the broker is told messageIndexSafe=true",
            StoreWarning,
            stacklevel=2,
        )
    return done


def undo_rebuild(files: Files, writes: Writes, root: str) -> None:
    """Puts back what a rebuild that died had moved away, and removes what it left. The caller holds the store's lock."""
    scratch = posixpath.join(root, REBUILD_FOLDER)
    if files.folder(scratch) is None:
        if files.folder(scratch + _DONE) is not None:
            writes.remove_folder(scratch + _DONE)
        return
    for kind in WHAT:
        old, place = posixpath.join(scratch, _OLD + kind), posixpath.join(root, kind)
        if files.folder(old) is not None and files.folder(place) is None:
            writes.rename(old, place)
    # under another name, so that a folder that is removed in part is never put back
    writes.remove_folder(scratch + _DONE)
    writes.rename(scratch, scratch + _DONE)
    writes.fsync_folder(root)
    writes.remove_folder(scratch + _DONE)


def _parse(options: Mapping[str, Any]) -> dict[str, Any]:
    """The given options' values, by name."""
    found: dict[str, Any] = {}
    for key, value in options.items():
        option = _OPTIONS.get(key.lower())
        names = [each.name for each in _OPTIONS.values()]
        if option is None:
            raise OptionError(f"unknown option {key!r} of rebuild.{nearest(key, names)} Known options: {', '.join(names)}")
        if value is not None:
            found[option.name] = option.parse(value)
    return found


def _read_options(given: Mapping[str, Any]) -> ReadOptions:
    return ReadOptions(
        store_path_commit_log=given.get("storePathCommitLog"),
        read_only_commit_log_store_paths=given.get("readOnlyCommitLogStorePaths"),
    )


class _Rebuilding:
    """One rebuild of a store that is locked."""

    def __init__(
        self, files: Files, writes: Writes, listing: Listing, asked: tuple[str, ...], given: Mapping[str, Any]
    ) -> None:
        assert listing.root is not None
        self.files, self.writes, self.given = files, writes, given
        self.root, self.log = listing.root, listing.log
        self.asked = asked
        self.scratch = posixpath.join(self.root, REBUILD_FOLDER)
        self.lenient = given.get("mode", "FAILFAST") != "FAILFAST"
        self.levels = parse_delay_levels(given["messageDelayLevel"]) if "messageDelayLevel" in given else DELAY_LEVELS
        self.queues = self._queue_builder() if "consumequeue" in asked else None
        self.index: IndexBuilder | None = None
        self.index_tags = False
        if "index" in asked:
            sizes = self._index_sizes()
            self.index = IndexBuilder(files, writes, self.scratch, *sizes)
            self.index_tags = self._index_tags(sizes)

    # --- building

    def build(self, progress: Callable[[int], object] | None = None) -> Rebuilt:
        """Walks the log once and builds all files in the scratch folder, synced."""
        if len(self.log):
            last = self.log.segments[-1].path
            self.writes.take_after(posixpath.dirname(last), last)
        self.writes.make_folder(self.scratch)
        for kind in self.asked:
            self.writes.make_folder(posixpath.join(self.scratch, kind))
        records = 0
        made: list[str] = []
        for described in self._described(progress or (lambda _: None)):
            records += len(described)
            if self.queues is not None:
                try:
                    self.queues.add(described)
                except CorruptStoreError as e:
                    raise CorruptStoreError(e.reason, path=e.path or self.root, offset=e.offset, hint=_LENIENT) from None
            if self.index is not None:
                self.index.add(described)
        if self.queues is not None:
            made += [*self.queues.finish(), *self._keep_ends(self.queues)]
        if self.index is not None:
            made += self.index.finish()
        self._sync(made)
        return Rebuilt(
            self.root,
            records,
            len(self.queues.queues) if self.queues is not None else 0,
            self.queues.entries if self.queues is not None else 0,
            self.index.files if self.index is not None else 0,
            self.index.entries if self.index is not None else 0,
        )

    def _described(self, progress: Callable[[int], object]) -> Iterator[Described]:
        """All records of the log; what is none is an error, or left out with a warning."""
        for found in walk_log(LocalFiles, self.log, index_tags=self.index_tags, delay_levels=self.levels):
            if isinstance(found, Described):
                yield found
                progress(int(found.records["size"].sum()))
                continue
            if isinstance(found, Gap):
                path, base = found.segment.path, found.segment.base_offset
                start, end = found.start - base, found.end - base
                if found.is_tail:
                    text = f"the log ends at byte {start}; the {end - start} bytes behind are no record ({found.reason})"
                    warnings.warn(f"{path}: {text}", StoreWarning, stacklevel=2)
                    continue
                found = CorruptStoreError(f"bytes [{start}, {end}) are no record: {found.reason}", path=path, offset=start)
            if not self.lenient:
                raise CorruptStoreError(found.reason, path=found.path, offset=found.offset, hint=_LENIENT)
            warnings.warn(f"{found}. It was left out", StoreWarning, stacklevel=2)

    # --- queues

    def _queue_builder(self) -> QueueBuilder:
        database = rocksdb_queue(self.files, self.root)
        old = [queue for queue in list_queues(self.files, self.root) if not queue.batch]
        if database is not None and (not old or posixpath.basename(database) == "consumequeue"):
            raise UnsupportedStoreError(
                f"the queues of {self.root} are a RocksDB ({database}), which can't be rebuilt: "
                "rebuild the index alone, with what='index'"
            )
        size = self.given.get("mappedFileSizeConsumeQueue") or found_queue_file_size(self.files, self.root)
        return QueueBuilder(
            self.files,
            self.writes,
            self.scratch,
            size or DEFAULT_QUEUE_FILE_SIZE,
            lenient=self.lenient,
            left_alone=self._batch_topics(),
        )

    def _batch_topics(self) -> set[str]:
        """Topics of batch queues, by their files in batchconsumequeue or by topics.json."""
        found = {queue.topic for queue in list_queues(self.files, self.root) if queue.batch}
        try:
            topics = read_topics(self.files, self.root).value
        except CorruptStoreError:
            topics = {}
        found |= batch_topics(topics)
        if found:
            text = f"queues of batch topics stay as they are in batchconsumequeue: {', '.join(sorted(found))}"
            warnings.warn(f"{self.root}: {text}", StoreWarning, stacklevel=2)
        return found

    def _keep_ends(self, built: QueueBuilder) -> Iterator[str]:
        """Queues whose messages are all gone from the log keep their last file, as retention does: else they would begin at 0
        again, behind what their consumers have read.
        """
        known = set(built.queues)
        for queue in list_queues(self.files, self.root):
            if queue.batch or (queue.topic, queue.queue_id) in known or not (last := self._last_of_expired(queue)):
                continue
            folder = posixpath.join(self.scratch, "consumequeue", queue.topic, str(queue.queue_id))
            self.writes.make_folder(folder)
            path = posixpath.join(folder, posixpath.basename(last))
            self.writes.copy(last, path)
            yield path

    def _last_of_expired(self, queue: Queue) -> str | None:
        """The queue's last file that is in use, if its last entry is of a record before the log's first."""
        last = None
        for file, entries in read_entries(self.files, queue, min_phys=0):
            last = (file.path, int(entries.commit_log_offset[-1]))
        return last[0] if last is not None and last[1] < self.log.min_offset else None

    # --- index

    def _index_sizes(self) -> tuple[int, int]:
        """maxHashSlotNum and maxIndexNum: as told, as the old files have them, or RocketMQ's defaults."""
        slots, capacity = self.given.get("maxHashSlotNum"), self.given.get("maxIndexNum")
        if slots is None or capacity is None:
            found = found_index_sizes(self.files, self.root, slots, capacity) or DEFAULT_INDEX_SIZES
            slots, capacity = slots or found[0], capacity or found[1]
        return slots, capacity

    def _index_tags(self, sizes: tuple[int, int]) -> bool:
        told = self.given.get("indexTags")
        if told is None:
            told = found_index_tags(self.files, self.root, self.log, *sizes)
        return True if told is None else bool(told)

    # --- publishing

    def _sync(self, made: Iterable[str]) -> None:
        paths = list(made)
        folders = {self.scratch, *(posixpath.join(self.scratch, kind) for kind in self.asked)}
        for path in paths:
            while (path := posixpath.dirname(path)) not in folders:
                folders.add(path)
        # a file system waits for many at once about as long as for one
        with ThreadPoolExecutor(_SYNCS) as pool:
            for _ in pool.map(self.writes.fsync_file, paths):
                pass
            for _ in pool.map(self.writes.fsync_folder, folders):
                pass
        self.writes.fsync_folder(self.root)

    def publish(self) -> None:
        """Swaps the new folders in; the old ones go where `undo_rebuild` finds them."""
        for kind in self.asked:
            place = posixpath.join(self.root, kind)
            if self.files.folder(place) is not None:
                self.writes.rename(place, posixpath.join(self.scratch, _OLD + kind))
            self.writes.rename(posixpath.join(self.scratch, kind), place)
        self.writes.fsync_folder(self.scratch)
        self.writes.fsync_folder(self.root)
