"""What a writer notes of an append before it touches a store, so that a reader, and the next writer, know what counts.

An append writes behind the end of the log's and the queues' files in place, and all other new files in its staging folder.
First it writes `.rmq-journal.json` (state `publishing`: where the old store ends), empties the file `lock`, and makes `abort`.
When all is written and synced, the journal says `published`, and what files have still to be moved from the staging folder into
their places. Then they are moved, `abort` goes, `lock` is as before, the journal goes.

While the journal is in force a reader looks through `PublishedFiles`: in state `publishing` at the old store, in state
`published` at the new one. A broker that starts on the store writes `lock` again, and its own recovery cuts off what is
incomplete: so the journal is in force only while `lock` is empty and `abort` is there. Paths in the journal are relative to the
store's root.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Final

from store_core.errors import CorruptStoreError
from store_core.files import Entry, Files

__all__ = [
    "ABORT",
    "JOURNAL",
    "LOCK",
    "Journal",
    "PublishedFiles",
    "Unpublished",
    "decode_journal",
    "encode_journal",
    "in_force",
    "published",
    "read_journal",
    "unpublished",
]

JOURNAL: Final = ".rmq-journal.json"
LOCK: Final = "lock"
ABORT: Final = "abort"
_FORMAT: Final = 1
_MOST: Final = 64 << 20
_STATES: Final = ("publishing", "published")


@dataclass(frozen=True)
class Journal:
    """state: `publishing` or `published`. staging: the append's folder. ends: file -> (byte at which its old content ends, its
    size). fresh: files and folders that were not there. moves: (from, to), to be done once published. unclean: `abort` was
    there before.
    """

    state: str
    staging: str
    ends: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    fresh: tuple[str, ...] = ()
    moves: tuple[tuple[str, str], ...] = ()
    unclean: bool = False


def encode_journal(journal: Journal) -> bytes:
    """The content of the file."""
    return json.dumps({"format": _FORMAT, **asdict(journal)}, indent=1).encode()


def decode_journal(data: bytes) -> Journal:
    """A journal from its file. Errors: CorruptStoreError."""
    try:
        found = json.loads(data)
        if found.pop("format") != _FORMAT or found["state"] not in _STATES:
            raise ValueError("its format or state is not known")
        found["ends"] = {path: (int(end), int(size)) for path, (end, size) in found["ends"].items()}
        found["moves"] = tuple((str(old), str(new)) for old, new in found["moves"])
        return Journal(**{**found, "fresh": tuple(found["fresh"])})
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        raise CorruptStoreError(
            f"the journal of an append can't be read: {e}", hint="Append with the version of rmq-spark that wrote it"
        ) from e


def read_journal(files: Files, root: str) -> Journal | None:
    """The store's journal, in force or not. None where there is none."""
    path = os.path.join(root, JOURNAL)
    if files.size(path) is None:
        return None
    try:
        return decode_journal(files.read(path, 0, _MOST))
    except CorruptStoreError as e:
        raise e.at(path) from None


def in_force(files: Files, root: str) -> bool:
    """Whether the store is still as the journal's writer left it, and no broker was started on it since."""
    return files.size(os.path.join(root, LOCK)) == 0 and files.size(os.path.join(root, ABORT)) is not None


@dataclass(frozen=True)
class Unpublished:
    """What a reader must not take as it stands, by absolute paths. ends: files whose bytes from there on count as zeros.
    hidden: files and folders that are not there yet. instead: files that stand elsewhere still.
    """

    ends: Mapping[str, int]
    hidden: frozenset[str]
    instead: Mapping[str, str]


def unpublished(files: Files, path: str) -> Unpublished | None:
    """What a reader of the store at `path`, its root or its commitlog alone, must not take as it stands; None for nothing: no
    append is under way, and none was cut off.
    """
    root = path if files.size(os.path.join(path, JOURNAL)) is not None else os.path.dirname(path)
    journal = read_journal(files, root)
    if journal is None or not in_force(files, root):
        return None

    def at(path: str) -> str:
        return os.path.join(root, path)

    if journal.state == "publishing":
        return Unpublished({at(p): end for p, (end, _) in journal.ends.items()}, frozenset(map(at, journal.fresh)), {})
    return Unpublished({}, frozenset(), {at(new): at(old) for old, new in journal.moves})


def published(files: Files, unpublished: Unpublished | None) -> Files:
    """`files` as a reader has to see them."""
    return files if unpublished is None else PublishedFiles(files, unpublished)


class PublishedFiles:
    """`Files` that shows a store without what is not published yet."""

    def __init__(self, files: Files, unpublished: Unpublished) -> None:
        self._files = files
        self._ends = unpublished.ends
        self._hidden = unpublished.hidden
        self._instead = unpublished.instead

    @property
    def bytes_read(self) -> int:
        return self._files.bytes_read

    @bytes_read.setter
    def bytes_read(self, value: int) -> None:
        self._files.bytes_read = value

    @property
    def reads(self) -> int:
        return self._files.reads

    @reads.setter
    def reads(self, value: int) -> None:
        self._files.reads = value

    def list(self, folder: str) -> list[Entry]:
        found = {e.name: e for e in self._files.list(folder) if os.path.join(folder, e.name) not in self._hidden}
        for new in self._instead:
            if os.path.dirname(new) == folder and (size := self.size(new)) is not None:
                name = os.path.basename(new)
                found[name] = Entry(name, new, size, False)
        return sorted(found.values(), key=lambda e: e.name)

    def folder(self, path: str) -> str | None:
        return None if path in self._hidden else self._files.folder(path)

    def size(self, path: str) -> int | None:
        return None if path in self._hidden else self._files.size(self._place(path))

    def read(self, path: str, position: int, length: int) -> bytes:
        data = self._files.read(self._place(path), position, length)
        end = self._ends.get(path)
        if end is None or position + len(data) <= end:
            return data
        return data[: max(end - position, 0)].ljust(len(data), b"\0")

    def read_into(self, path: str, position: int, buffer: memoryview) -> int:
        got = self._files.read_into(self._place(path), position, buffer)
        self._blank(path, position, buffer[:got])
        return got

    def read_spans(self, path: str, spans: Iterable[tuple[int, int, int]], buffer: memoryview) -> None:
        wanted = list(spans)
        self._files.read_spans(self._place(path), wanted, buffer)
        for position, begin, end in wanted:
            self._blank(path, position, buffer[begin:end])

    def next_data(self, path: str, position: int) -> int | None:
        found = self._files.next_data(self._place(path), position)
        end = self._ends.get(path)
        return found if end is None or found is None or found < end else None

    def data_size(self, path: str, start: int, stop: int) -> int:
        end = self._ends.get(path)
        return self._files.data_size(self._place(path), start, stop if end is None else max(min(stop, end), start))

    def _place(self, path: str) -> str:
        elsewhere = self._instead.get(path)
        return elsewhere if elsewhere is not None and self._files.size(elsewhere) is not None else path

    def _blank(self, path: str, position: int, read: memoryview) -> None:
        end = self._ends.get(path)
        if end is not None and position + len(read) > end:
            first = max(end - position, 0)
            read[first:] = bytes(len(read) - first)
