"""Every error this package raises on purpose, and its one warning.

Wording rule: where, what was found, what was expected, what to do. Pure modules raise with a position inside their buffer;
the module that knows the file adds path and offset (`CorruptStoreError.at`).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = [
    "CorruptStoreError",
    "OptionError",
    "ReadError",
    "StoreChangedError",
    "StoreError",
    "StoreLockedError",
    "StoreNotFoundError",
    "StoreWarning",
    "UnsupportedStoreError",
    "WriteError",
    "nearest",
]


class StoreError(Exception):
    """Base of all errors of `store_core`."""


class StoreNotFoundError(StoreError, FileNotFoundError):
    """The path is not there, or holds no RocketMQ store."""


class OptionError(StoreError, ValueError):
    """An option, column name, filter or value that can't be used as given."""


class UnsupportedStoreError(StoreError):
    """The store is sound, but the asked-for table can't be read from it (a RocksDB queue, a tiered store)."""


class StoreChangedError(StoreError):
    """What a plan relied on is not as it was: a file shrank or vanished (retention on a live store), messages were appended, or
    another store took the place.
    """


class ReadError(StoreError):
    """The system refused to read the store: no permission, a disk that fails."""


class StoreLockedError(StoreError):
    """A broker or another writer has the store, or left it unclean."""


class WriteError(StoreError):
    """The store could not be written: disk full, no permission, a file in the way. `errno` is the system's number, if any."""

    def __init__(self, text: str, errno: int | None = None):
        super().__init__(text, errno)
        self.errno = errno

    def __str__(self) -> str:
        return str(self.args[0])


class CorruptStoreError(StoreError, ValueError):
    """Bytes that can't be what RocketMQ wrote.

    `path` is the file, `offset` the byte in that file (None where unknown), `reason` says what was found and what was
    expected, `hint` what to do. Survives pickling, so it reaches a Spark driver whole.
    """

    def __init__(self, reason: str, *, path: str | None = None, offset: int | None = None, hint: str | None = None):
        super().__init__(reason, path, offset, hint)
        self.reason = reason
        self.path = path
        self.offset = offset
        self.hint = hint

    def __reduce__(self) -> tuple[object, ...]:
        return _corrupt, (self.reason, self.path, self.offset, self.hint)

    def __str__(self) -> str:
        where = "" if self.path is None else self.path
        if self.offset is not None:
            where += f" at byte {self.offset}"
        text = f"{where}: {self.reason}" if where else self.reason
        return f"{text}. {self.hint}" if self.hint else text

    def at(self, path: str, offset: int | None = None) -> CorruptStoreError:
        """The same finding with its place filled in where it was missing."""
        place = self.offset if offset is None else offset
        return CorruptStoreError(self.reason, path=self.path or path, offset=place, hint=self.hint)


def _corrupt(reason: str, path: str | None, offset: int | None, hint: str | None) -> CorruptStoreError:
    return CorruptStoreError(reason, path=path, offset=offset, hint=hint)


class StoreWarning(UserWarning):
    """Something was found that did not stop the read: a torn tail, an index that could not be used."""


def nearest(word: str, known: Iterable[str]) -> str:
    """`" Did you mean 'x'?"` or `""`: the tail of an error about an unknown name."""
    pool = {k.lower(): k for k in known}
    close = difflib.get_close_matches(word.lower(), list(pool), n=3, cutoff=0.6)
    if not close:
        return ""
    return f" Did you mean {' or '.join(repr(pool[c]) for c in close)}?"
