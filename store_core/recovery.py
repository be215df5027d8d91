"""What a writer that was cut off left behind: finished or undone by the next one, before it does anything of its own.

An append is undone up to the moment its journal says `published`, and finished from then on. A store that takes another's
place is put there if the old one is already out of the way, and dropped if not. Staging folders of jobs that never came to
their commit can't be told from those of jobs that still run: they are removed once nobody has written to them for a day.
"""

from __future__ import annotations

import os
import time
import warnings
from contextlib import ExitStack
from typing import Final

from store_core.errors import CorruptStoreError, StoreWarning, WriteError
from store_core.files import Files, swap_file, swap_folder
from store_core.journal import ABORT, JOURNAL, LOCK, Journal, in_force, read_journal
from store_core.locks import hold
from store_core.steps import reached
from store_core.writefiles import HeldLock, Writes, unfinished

__all__ = [
    "LOCK_CONTENT",
    "STAGING",
    "finish",
    "in_use",
    "like_the_log",
    "recover_append",
    "recover_swap",
    "remove_what_is_left",
    "sweep",
    "undo",
]

LOCK_CONTENT: Final = b"lock"
"""What a broker writes into its lock file."""
STAGING: Final = ".rmq-staging-"
_ABANDONED: Final = 24 * 3600


def recover_append(files: Files, writes: Writes, root: str, lock: HeldLock) -> None:
    """Finishes or undoes an append that was cut off. The store's lock is held."""
    for path in (os.path.join(root, JOURNAL), swap_file(root)):  # nobody else is writing these
        writes.remove(unfinished(path))
    journal = read_journal(files, root)
    if journal is None:
        return
    if not in_force(files, root) and files.size(os.path.join(root, LOCK)) != 0:
        # nothing was done yet, all is done, or a broker made the store its own since
        _forget(writes, root, journal)
    elif journal.state == "publishing":
        undo(writes, root, journal, lock)
    else:
        finish(files, writes, root, journal, lock)


def undo(writes: Writes, root: str, journal: Journal, lock: HeldLock) -> None:
    """Brings the old store back. May be cut off and done again."""
    for path, (end, _) in journal.ends.items():
        whole = os.path.join(root, path)
        writes.clear(whole, end)
        writes.fsync_file(whole)
        reached("undoing")
    _done(writes, root, journal, lock, keep_abort=journal.unclean)


def finish(files: Files, writes: Writes, root: str, journal: Journal, lock: HeldLock) -> None:
    """Moves what was published into its places. May be cut off and done again.

    Errors: CorruptStoreError for a file that is neither where it was made nor in its place.
    """
    like_the_log(files, writes, root)
    folders = {root}
    for old, new in journal.moves:
        source, target = os.path.join(root, old), os.path.join(root, new)
        folder = os.path.dirname(target)
        if files.size(source) is not None:
            if folder not in folders:
                writes.make_folder(folder)
            writes.rename(source, target)
            reached("moved")
        elif files.size(target) is None:
            raise CorruptStoreError(
                f"this file of an append that was published is gone, and {source}, where it was made, too",
                path=target,
                hint="Write to a copy from before the append, or make queues and index anew with store_core.rebuild",
            )
        while folder not in folders:
            folders.add(folder)
            folder = os.path.dirname(folder)
    for folder in sorted(folders):
        if files.folder(folder) is not None:
            writes.fsync_folder(folder)
    _done(writes, root, journal, lock, keep_abort=False)


def like_the_log(files: Files, writes: Writes, root: str) -> None:
    """Lets folders and files that are made have the owner and mode of the store's log: its broker must be able to open them."""
    folder = os.path.join(root, "commitlog")
    logs = [entry for entry in files.list(folder) if not entry.is_dir]
    if logs:
        writes.take_after(folder, logs[-1].path)


def _done(writes: Writes, root: str, journal: Journal, lock: HeldLock, keep_abort: bool) -> None:
    if not keep_abort:
        writes.remove(os.path.join(root, ABORT))
        writes.fsync_folder(root)
        reached("abort removed")
    lock.rewrite(LOCK_CONTENT)
    reached("lock restored")
    _forget(writes, root, journal)


def _forget(writes: Writes, root: str, journal: Journal) -> None:
    writes.remove(os.path.join(root, JOURNAL))
    writes.fsync_folder(root)
    reached("journal removed")
    remove_what_is_left(writes, os.path.join(root, journal.staging))


def remove_what_is_left(writes: Writes, folder: str) -> None:
    """Removes a folder that nobody needs any more, as the last thing of a write that is done: to fail then would be a lie."""
    try:
        writes.remove_folder(folder)
    except WriteError as e:
        warnings.warn(f"{e} The write is done, and this folder can be removed", StoreWarning, stacklevel=2)


def in_use(files: Files, root: str, folder: str) -> bool:
    """Whether the staging or the build folder of a write still has what is published of the store in `root`, or may be."""
    swap = swap_file(root)
    if files.size(swap) is not None and folder == swap_folder(root, "new", files.read(swap, 0, 100).decode()):
        return True
    journal = read_journal(files, root)
    return journal is not None and journal.state == "published" and folder == os.path.join(root, journal.staging)


def recover_swap(files: Files, writes: Writes, root: str) -> None:
    """Finishes or drops a store that was about to take the place of `root`.

    Errors: StoreLockedError where its writer is at it now.
    """
    path = swap_file(root)
    if files.size(path) is None:
        return
    folder, name = os.path.split(path)
    id = files.read(path, 0, 100).decode()  # before it is locked: to close the file would end the lock
    with ExitStack() as held:
        if files.folder(root) is not None:
            held.enter_context(hold(writes, root))
        held.enter_context(hold(writes, folder, name))
        new, old = swap_folder(root, "new", id), swap_folder(root, "old", id)
        if files.folder(root) is None:
            writes.rename(new if files.folder(new) is not None else old, root)
            writes.fsync_folder(folder)
        writes.remove_folder(new)
        writes.remove_folder(old)
        writes.remove(path)


def sweep(files: Files, writes: Writes, root: str) -> None:
    """Removes staging folders in `root`, and unfinished stores beside it, that nobody has written to for a day.

    What was cut off has been finished or undone before: no journal needs one of them.
    """
    parent, name = os.path.split(root)
    beside = f".{name}.rmq-new-"
    found = [e.path for e in files.list(root) if e.is_dir and e.name.startswith(STAGING)]
    found += [e.path for e in files.list(parent) if e.is_dir and e.name.startswith(beside)]
    for path in found:
        if time.time() - writes.last_change(path) > _ABANDONED:
            writes.remove_folder(path)
