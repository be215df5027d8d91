"""What a writer notes of an append before it touches a store, so that a reader, and the next writer, know what counts.

An append writes behind the end of the log's last file in place, and all other files in its staging folder, copies of queue
and index files that are continued among them: what leads to a record must not be there before the record is. First it writes
`.rmq-journal.json` (state `publishing`: where the old log ends), empties the file `lock`, and makes `abort`. When all is
written and synced, the journal says `published`, and what files have still to be moved from the staging folder into their
places. Then they are moved, `abort` goes, `lock` is as before, the journal goes.

While the journal is in force a reader looks through `PublishedFiles`: in state `publishing` at the old store, in state
`published` at the new one. A broker that starts on the store writes `lock` again, and its own recovery cuts off what is
incomplete: so the journal is in force only while `lock` is empty and `abort` is there. Paths in the journal are relative to the
store's root.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Final, TypeVar

from store_core.errors import CorruptStoreError, StoreError
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
_T = TypeVar("_T")
_STATES: Final = ("publishing", "published")


@dataclass(frozen=True)
class Journal:
    """state: `publishing` or `published`. staging: the append's folder. ends: file -> (byte at which its old content ends, its
    size). moves: (from, to), to be done in this order once published. unclean: `abort` was there before.
    """

    state: str
    staging: str
    ends: Mapping[str, tuple[int, int]] = field(default_factory=dict)
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
        return Journal(**found)
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
    instead: files that stand elsewhere still.
    """

    ends: Mapping[str, int]
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
        return Unpublished({at(p): end for p, (end, _) in journal.ends.items()}, {})
    return Unpublished({}, {at(new): at(old) for old, new in journal.moves})


def published(files: Files, unpublished: Unpublished | None) -> Files:
    """`files` as a reader has to see them."""
    return files if unpublished is None else PublishedFiles(files, unpublished)


class PublishedFiles:
    """`Files` that shows a store without what is not published yet."""

    def __init__(self, files: Files, unpublished: Unpublished) -> None:
        self._files = files
        self._ends = unpublished.ends
        self._instead = unpublished.instead
        self._names: dict[str, dict[str, bool]] = {}
        """By folder: what is to be in it, and whether that is a folder."""
        for path in self._instead:
            below, is_folder = path, False
            while (folder := os.path.dirname(below)) != below:
                known = self._names.setdefault(folder, {})
                if os.path.basename(below) in known:
                    break
                known[os.path.basename(below)] = is_folder
                below, is_folder = folder, True

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
        found = {e.name: e for e in self._files.list(folder)}
        for name, is_folder in self._names.get(folder, {}).items():
            path = os.path.join(folder, name)
            if is_folder:
                found.setdefault(name, Entry(name, path, 0, True))
            elif (size := self.size(path)) is not None:
                found[name] = Entry(name, path, size, False)
        return sorted(found.values(), key=lambda e: e.name)

    def folder(self, path: str) -> str | None:
        found = self._files.folder(path)
        return path if found is None and path in self._names else found

    def size(self, path: str) -> int | None:
        elsewhere = self._instead.get(path)
        found = None if elsewhere is None else self._files.size(elsewhere)
        return self._files.size(path) if found is None else found

    def read(self, path: str, position: int, length: int) -> bytes:
        data = self._at(path, lambda place: self._files.read(place, position, length))
        end = self._ends.get(path)
        if end is None or position + len(data) <= end:
            return data
        return data[: max(end - position, 0)].ljust(len(data), b"\0")

    def read_into(self, path: str, position: int, buffer: memoryview) -> int:
        got = self._at(path, lambda place: self._files.read_into(place, position, buffer))
        self._blank(path, position, buffer[:got])
        return got

    def read_spans(self, path: str, spans: Iterable[tuple[int, int, int]], buffer: memoryview) -> None:
        wanted = list(spans)
        self._at(path, lambda place: self._files.read_spans(place, wanted, buffer))
        for position, begin, end in wanted:
            self._blank(path, position, buffer[begin:end])

    def next_data(self, path: str, position: int) -> int | None:
        found = self._at(path, lambda place: self._files.next_data(place, position))
        end = self._ends.get(path)
        return found if end is None or found is None or found < end else None

    def data_size(self, path: str, start: int, stop: int) -> int:
        end = self._ends.get(path)
        until = stop if end is None else max(min(stop, end), start)
        return self._at(path, lambda place: self._files.data_size(place, start, until))

    def _at(self, path: str, read: Callable[[str], _T]) -> _T:
        """What `read` makes of a file where it stands: elsewhere, or in its place, where it may be moved at this moment."""
        elsewhere = self._instead.get(path)
        if elsewhere is not None and self._files.size(elsewhere) is not None:
            try:
                return read(elsewhere)
            except StoreError:
                if self._files.size(elsewhere) is not None:
                    raise
        return read(path)

    def _blank(self, path: str, position: int, read: memoryview) -> None:
        end = self._ends.get(path)
        if end is not None and position + len(read) > end:
            first = max(end - position, 0)
            read[first:] = bytes(len(read) - first)
