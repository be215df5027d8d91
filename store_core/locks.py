"""A store's lock: the one that a broker takes on the file `lock` (`DefaultMessageStore#start`), for as long as a commit lasts.

Tasks and commit of a job are different processes, so no lock can span the job: it is taken when the job starts, to see whether
anybody has the store, and again in the commit.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from store_core.errors import StoreLockedError
from store_core.journal import LOCK
from store_core.writefiles import HeldLock, Writes

__all__ = ["hold"]

_held: set[str] = set()
_guard = threading.Lock()
"""The lock keeps other processes out, not other threads of this one: these are kept out here."""


@contextmanager
def hold(writes: Writes, root: str, name: str = LOCK) -> Iterator[HeldLock]:
    """Holds the lock of the store in `root`, which is there. Errors: StoreLockedError where somebody else has it."""
    path = os.path.join(root, name)
    with _guard:
        if path in _held:
            raise StoreLockedError(f"{root} is being written by another thread of this process. Wait for it, then write again")
        lock = writes.lock(path)
        if lock is None:
            raise StoreLockedError(
                f"{root}: a running broker or another writer has the store (its file {name} is locked). Stop the broker, or "
                "wait for the other writer, then write again"
            )
        _held.add(path)
    try:
        yield lock
    finally:
        with _guard:
            lock.release()
            _held.discard(path)
