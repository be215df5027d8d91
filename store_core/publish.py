"""Makes what was staged the store, all at once: a new store is moved into its place, an append is published by a journal."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from store_core.commit import Filled, Survey, fill, sync
from store_core.config import read_tree, read_whole
from store_core.configwrite import STATE_FILES, merged_topics
from store_core.existing import Existing
from store_core.files import LocalFiles, swap_file, swap_folder
from store_core.journal import ABORT, JOURNAL, LOCK, Journal, encode_journal
from store_core.locks import hold
from store_core.recovery import LOCK_CONTENT, finish, undo
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
) -> Filled:
    """Makes a store of `batches` in the folder `build`, which is beside `root`, and moves it there.

    A store that is in `root` is moved away first, and removed at last; its lock is held.
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
    topics = merged_topics({}, _queue_counts(filled, options), like, now_ms)
    writes.replace(os.path.join(build, "config", "topics.json"), topics)
    writes.replace(os.path.join(build, LOCK), LOCK_CONTENT)
    reached("config written")
    sync(writes, build, filled.touched, [os.path.join(build, "commitlog")])
    writes.remove_folder(staging)
    writes.fsync_folder(build)
    reached("staging removed")
    parent = os.path.dirname(root)
    if not files.list(root):  # nothing, or an empty folder
        writes.rename(build, root)
        writes.fsync_folder(parent)
        reached("new moved in")
        return filled
    _swap(writes, build, root)
    return filled


def _swap(writes: Writes, build: str, root: str) -> None:
    parent, note = os.path.split(swap_file(root))
    id = build.rpartition("-")[2]
    old = swap_folder(root, "old", id)
    writes.replace(swap_file(root), id.encode())
    with hold(writes, parent, note):
        reached("swap noted")
        writes.rename(root, old)
        reached("old moved away")
        writes.rename(build, root)
        writes.fsync_folder(parent)
        reached("new moved in")
        writes.remove_folder(old)
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
    root = existing.root
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
        if existing.torn:
            for path, (end, size) in journal.ends.items():
                writes.resize(os.path.join(root, path), end)
                writes.resize(os.path.join(root, path), size)
        build = os.path.join(staging, "store")
        writes.make_folder(os.path.join(build, "index"))
        files = LocalFiles()
        for entry in files.list(os.path.join(root, "index"))[-1:]:
            writes.copy(entry.path, os.path.join(build, "index", entry.name))
        filled = fill(writes, batches, plan, options, existing, root, build)
        writes.make_folder(os.path.join(build, "config"))
        tree = read_tree(files, root, "topics.json").value
        topics = merged_topics(tree, _queue_counts(filled, options), {}, now_ms)
        writes.replace(os.path.join(build, "config", "topics.json"), topics)
        reached("config written")
        sync(writes, root, filled.touched)
        # the log first, in its order: a broker that starts in between must find no queue entry that leads behind its end
        moved = [*filled.made, *filled.queues, *filled.index]
        moved += [os.path.join(build, "checkpoint"), os.path.join(build, "config", "topics.json")]
        moves = tuple((os.path.relpath(path, root), os.path.relpath(path, build)) for path in moved)
        done = replace(journal, state="published", ends={}, moves=moves)
    except BaseException:
        undo(writes, root, journal, lock)
        raise
    writes.replace(os.path.join(root, JOURNAL), encode_journal(done))
    reached("published")
    finish(LocalFiles(), writes, root, done, lock)
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


def _queue_counts(filled: Filled, options: WriteOptions) -> dict[str, int]:
    """How many queues each topic is to have: those that are used, and as many as a broker gives a topic that it makes."""
    least = 0 if options.preserve else options.default_topic_queue_nums
    return {topic: count if topic.startswith("%") else max(count, least) for topic, count in filled.topics.items()}
