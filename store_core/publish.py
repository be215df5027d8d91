"""Makes what was staged the store, all at once: a new store is moved into its place, an append is published by a journal."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from store_core.commit import Filled, Survey, fill, sync
from store_core.config import read_tree, read_whole
from store_core.configwrite import STATE_FILES, merged_topics
from store_core.errors import StoreChangedError, StoreError, WriteError
from store_core.existing import Existing
from store_core.files import Files, LocalFiles, swap_file, swap_folder
from store_core.indexfile import list_index_files
from store_core.journal import ABORT, JOURNAL, LOCK, Journal, encode_journal
from store_core.locks import hold
from store_core.recovery import LOCK_CONTENT, finish, like_the_log, remove_what_is_left, undo
from store_core.staging import StagedBatch
from store_core.steps import reached
from store_core.writefiles import HeldLock, Writes
from store_core.writeoptions import WriteOptions

__all__ = ["publish_append", "publish_new"]

_Tree = Mapping[str, Any]


# --- a new store -----------------------------------------------------------------------------------------------------
def publish_new(
    writes: Writes,
    build: str,
    staging: str,
    batches: Iterable[StagedBatch],
    plan: Survey,
    options: WriteOptions,
    root: str,
    now_ms: int,
    *,
    replaces: bool,
) -> Filled:
    """Makes a store of `batches` in the folder `build`, which is beside `root`, and moves it there.

    replaces: a store is in `root`, whose lock is held; it is moved away first, and removed at last.
    Errors: StoreChangedError where another one was made there meanwhile.
    """
    filled = fill(writes, batches, plan, options, None, build, build)
    writes.make_folder(os.path.join(build, "commitlog"))
    writes.make_folder(os.path.join(build, "config"))
    files = LocalFiles()
    like: _Tree = {}
    if options.config_from is not None:
        like = read_tree(files, options.config_from, "topics.json").value
        for name in STATE_FILES:
            for found in (name, f"{name}.bak"):
                data = read_whole(files, os.path.join(options.config_from, "config", found))
                if data:
                    writes.replace(os.path.join(build, "config", name), data)
                    break
    topics = merged_topics({}, filled.topics, like, now_ms, _new_queues(options))
    writes.replace(os.path.join(build, "config", "topics.json"), topics)
    writes.replace(os.path.join(build, LOCK), LOCK_CONTENT)
    reached("config written")
    sync(writes, build, filled.touched, [os.path.join(build, "commitlog")])
    writes.remove_folder(staging)
    writes.fsync_folder(build)
    reached("staging removed")
    if replaces:
        _swap(files, writes, build, root)
        return filled
    try:
        writes.rename(build, root)  # onto nothing, or an empty folder
    except WriteError as e:
        if e.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        raise StoreChangedError(
            f"{root}: a store was made there since this write began, so nothing was written. Write again"
        ) from None
    writes.fsync_folder(os.path.dirname(root))
    reached("new moved in")
    return filled


def _swap(files: Files, writes: Writes, build: str, root: str) -> None:
    parent, note = os.path.split(swap_file(root))
    id = build.rpartition("-")[2]
    old = swap_folder(root, "old", id)
    writes.replace(swap_file(root), id.encode())
    with hold(writes, parent, note):
        try:
            reached("swap noted")
            writes.rename(root, old)
            reached("old moved away")
            writes.rename(build, root)
        except BaseException:
            if files.folder(build) is not None:
                if files.folder(root) is None:
                    writes.rename(old, root)
                writes.remove(swap_file(root))
            raise
        writes.fsync_folder(parent)
        reached("new moved in")
        remove_what_is_left(writes, old)
        reached("old removed")
        writes.remove(swap_file(root))
        writes.fsync_folder(parent)
        reached("swap forgotten")


# --- an append -------------------------------------------------------------------------------------------------------
def publish_append(
    writes: Writes,
    staging: str,
    batches: Iterable[StagedBatch],
    plan: Survey,
    options: WriteOptions,
    existing: Existing,
    now_ms: int,
    lock: HeldLock,
) -> Filled:
    """Puts `batches` behind the end of a store, whose lock is held."""
    root, files = existing.root, LocalFiles()
    like_the_log(files, writes, root)
    journal = _journal(staging, plan, existing)
    writes.replace(os.path.join(root, JOURNAL), encode_journal(journal))
    try:
        reached("journal written")
        lock.rewrite(b"")
        reached("lock emptied")
        if not existing.unclean:
            writes.create(os.path.join(root, ABORT), 0)
            writes.fsync_file(os.path.join(root, ABORT))
            writes.fsync_folder(root)
            reached("abort made")
        # before the first message: a broker serves no topic that does not stand there, and one without messages harms nobody
        tree = read_tree(files, root, "topics.json").value
        writes.make_folder(os.path.join(root, "config"))
        topics = merged_topics(tree, plan.topics, {}, now_ms, _new_queues(options))
        writes.replace(os.path.join(root, "config", "topics.json"), topics)
        reached("config written")
        if existing.torn:
            for path, (end, _) in journal.ends.items():
                writes.clear(os.path.join(root, path), end)
        build = os.path.join(staging, "store")
        writes.make_folder(os.path.join(build, "index"))
        for last in list_index_files(files, root)[-1:]:
            writes.copy(last.path, os.path.join(build, "index", last.name))
        filled = fill(writes, batches, plan, options, existing, root, build)
        sync(writes, root, filled.touched)
        # the log first, in its order: a broker that starts in between must find no queue entry that leads behind its end
        moved = [*filled.made, *filled.queues, *filled.index, os.path.join(build, "checkpoint")]
        moves = tuple((os.path.relpath(path, root), os.path.relpath(path, build)) for path in moved)
        done = replace(journal, state="published", ends={}, moves=moves)
    except BaseException:
        undo(writes, root, journal, lock)
        raise
    writes.replace(os.path.join(root, JOURNAL), encode_journal(done))
    reached("published")
    try:
        finish(files, writes, root, done, lock)
    except StoreError as e:
        raise WriteError(
            f"{root}: the messages are in the store, and readers see them: do not write them again. But not all files could be "
            f"moved into their places, which the next write does: {e}"
        ) from e
    reached("staging removed")
    return filled


def _journal(staging: str, plan: Survey, existing: Existing) -> Journal:
    """Where each file of the log ends that will be written to in place."""
    ends = {
        os.path.relpath(segment.path, existing.root): (max(plan.start - segment.base_offset, 0), segment.length)
        for segment in existing.log
        if segment.end_offset > plan.start
    }
    return Journal("publishing", os.path.relpath(staging, existing.root), ends, (), existing.unclean)


def _new_queues(options: WriteOptions) -> int:
    """How many queues a new topic has at least: as many as a broker gives a topic that it makes."""
    return 0 if options.preserve else options.default_topic_queue_nums
