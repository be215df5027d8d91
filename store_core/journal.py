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

What a reader sees must be of one moment: `look` says what counts now, `Moment` whether that changed since. Every append empties
`lock` before it writes anything else, and writes it again when all is done; a store that takes another's place has a `lock` of
its own. So the size and time of `lock` tell a reader that what it listed, or read, is of one store. Only while `lock` is empty
those of the journal are compared too.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Final, TypeVar

from store_core.errors import CorruptStoreError, StoreChangedError, StoreError
from store_core.files import Entry, Files, LocalFiles, Stamp, stamp

__all__ = [
    "ABORT",
    "JOURNAL",
    "LOCK",
    "Journal",
    "Moment",
    "PublishedFiles",
    "Unpublished",
    "at_one_moment",
    "decode_journal",
    "encode_journal",
    "in_force",
    "look",
    "published",
    "read_journal",
]

JOURNAL: Final = ".rmq-journal.json"
LOCK: Final = "lock"
ABORT: Final = "abort"
_FORMAT: Final = 1
_MOST: Final = 64 << 20
_TRIES: Final = 10
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
    except StoreChangedError:  # its writer has just removed it
        return None
    except CorruptStoreError as e:
        raise e.at(path) from None


def in_force(files: Files, root: str) -> bool:
    """Whether the store is still as the journal's writer left it, and no broker was started on it since."""
    return files.size(os.path.join(root, LOCK)) == 0 and files.size(os.path.join(root, ABORT)) is not None


@dataclass(frozen=True)
class Unpublished:
    """What a reader must not take as it stands, by absolute paths. ends: files whose bytes from there on count as zeros.
    instead: files that stand elsewhere still. gone: files that do not count. is_old: the store before the append is seen, and
    for good: whatever is written later stands behind `ends`, or in files that were not there.
    """

    ends: Mapping[str, int]
    instead: Mapping[str, str]
    gone: frozenset[str] = frozenset()
    is_old: bool = False


@dataclass(frozen=True)
class Moment:
    """What a reader found of the writers of the store at `path`. root: where lock and journal are. lock, journal: as they were;
    None where there was none, or, for the journal, where it does not count. folder: `path` itself, if there was no lock.
    unpublished: None for nothing: no append was under way, and none was cut off.
    """

    path: str
    root: str
    lock: Stamp | None
    folder: Stamp | None
    journal: Stamp | None
    unpublished: Unpublished | None

    def lasts(self) -> bool:
        """Whether nobody has begun, published or finished an append since, or put another store into the place."""
        lock = stamp(os.path.join(self.root, LOCK))
        if lock is None or self.lock is None:
            return lock is self.lock and not self._is_replaced(lock)
        if not lock.is_same(self.lock):
            return False
        return lock.size > 0 or _same(stamp(os.path.join(self.root, JOURNAL)), self.journal)

    def check_place(self) -> None:
        """Errors: StoreChangedError where another store has taken the place."""
        if self._is_replaced(stamp(os.path.join(self.root, LOCK))):
            raise StoreChangedError(f"{self.path}: another store has taken this one's place since it was listed. Open it again")

    def check(self) -> None:
        """Errors: StoreChangedError unless the moment lasts."""
        if not self.lasts():
            self.check_place()
            raise StoreChangedError(
                f"{self.path}: messages were appended, or a broker was started, since the store was listed. Open it again"
            )

    def _is_replaced(self, lock: Stamp | None) -> bool:
        if self.lock is not None:
            return lock is None or (lock.inode != self.lock.inode and not lock.is_same(self.lock))
        folder = stamp(self.path)
        return folder is None or self.folder is None or not folder.is_of(self.folder)


def _same(found: Stamp | None, before: Stamp | None) -> bool:
    return found is before if found is None or before is None else found.is_same(before)


def look(path: str) -> Moment:
    """What counts now of the store at `path`, its root or its commitlog alone."""
    root, lock, folder = path, stamp(os.path.join(path, LOCK)), None
    if lock is None and stamp(os.path.join(path, "commitlog")) is None:
        root = os.path.dirname(path)
        lock = stamp(os.path.join(root, LOCK))
    if lock is None:
        root, folder = path, stamp(path)
    if lock is None or lock.size > 0:
        return Moment(path, root, lock, folder, None, None)
    before = stamp(os.path.join(root, JOURNAL))
    journal = read_journal(LocalFiles(), root)  # with no file open yet: another journal may have taken its place
    return Moment(path, root, lock, folder, before, None if journal is None else _unpublished(journal, root))


def at_one_moment(make: Callable[[], _T], moment: Callable[[], Moment], again: Callable[[], None]) -> _T:
    """What `make` gives if the moment that it was made in lasts to its end; else that is done once more, after `again`.

    Errors: StoreChangedError where no moment lasts as long.
    """
    for _ in range(_TRIES):
        try:
            made = make()
        except Exception:
            if moment().lasts():
                raise
        else:
            if moment().lasts():
                return made
        again()
    raise StoreChangedError(f"{moment().path}: {_TRIES} times an append came in between. Try again when it is done")


def _unpublished(journal: Journal, root: str) -> Unpublished:
    def at(path: str) -> str:
        return os.path.join(root, path)

    if journal.state == "publishing":
        gone = frozenset[str]() if journal.unclean else frozenset({at(ABORT)})
        return Unpublished({at(p): end for p, (end, _) in journal.ends.items()}, {}, gone, is_old=True)
    return Unpublished({}, {at(new): at(old) for old, new in journal.moves}, frozenset({at(ABORT)}))


def published(files: Files, unpublished: Unpublished | None) -> Files:
    """`files` as a reader has to see them."""
    return files if unpublished is None else PublishedFiles(files, unpublished)


class PublishedFiles:
    """`Files` that shows a store without what is not published yet."""

    def __init__(self, files: Files, unpublished: Unpublished) -> None:
        self._files = files
        self._ends = unpublished.ends
        self._instead = unpublished.instead
        self._gone = unpublished.gone
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
        found = {e.name: e for e in self._files.list(folder) if e.path not in self._gone}
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
        if path in self._gone:
            return None
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
