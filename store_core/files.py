"""The only module that touches a disk to read: listing, ranged reads into buffers, holes of sparse files.

Everything above asks for bytes through `Files`; an object store would be another class with these methods. Reads are counted,
so that a test can prove what a plan touched. No file is ever mapped: mapped pages count as the process's own memory, and a file
that shrinks under a map is a SIGBUS.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections import OrderedDict
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

from store_core.errors import OptionError, ReadError, StoreChangedError, StoreNotFoundError

__all__ = [
    "Entry",
    "Files",
    "LocalFiles",
    "Stamp",
    "local_name",
    "local_path",
    "on_other_disk",
    "real_root",
    "stamp",
    "swap_file",
    "swap_folder",
]

_OPEN_FILES = 64
_NOWHERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
_HINTS = {
    errno.EACCES: "Give this user the right to read it, or run as the user that the broker runs as",
    errno.EPERM: "Give this user the right to read it, or run as the user that the broker runs as",
    errno.EIO: "The disk or its connection fails: copy what can be read elsewhere (ddrescue, say) and read the copy",
    errno.ESTALE: "The file system was mounted anew, or the file is gone from its server: open the store again",
    errno.EMFILE: "Too many open files: raise `ulimit -n`",
}


@dataclass(frozen=True, slots=True)
class Entry:
    """One name in a folder; `size` in bytes (0 for a folder)."""

    name: str
    path: str
    size: int
    is_dir: bool


class Stamp(NamedTuple):
    """What tells a file or folder from another one of its name, and from itself before it was written to. time: of its last
    change, in ms: finer than that not all network mounts give it.
    """

    device: int
    inode: int
    size: int
    time: int

    def is_of(self, other: Stamp) -> bool:
        """Whether both are of one file, as far as can be told: another machine may number devices and inodes in its own way."""
        return self.inode == other.inode or self.device != other.device

    def is_same(self, other: Stamp) -> bool:
        """Whether the file is still the same, and was not written to."""
        return self.time == other.time and self.size == other.size and self.is_of(other)


@runtime_checkable
class Files(Protocol):
    """What the rest of `store_core` asks of storage."""

    bytes_read: int
    reads: int

    def list(self, folder: str) -> list[Entry]:
        """The names in `folder`, sorted; [] where there is no such folder. Anything but files and folders is left out."""

    def folder(self, path: str) -> str | None:
        """The one name of a folder, whatever links lead to it; None where there is no such folder."""

    def size(self, path: str) -> int | None:
        """Bytes of a file, or None where there is no such file."""

    def read(self, path: str, position: int, length: int) -> bytes:
        """Up to `length` bytes from `position`; fewer only at the end of the file."""

    def read_into(self, path: str, position: int, buffer: memoryview) -> int:
        """Fills `buffer` from `position`; returns how many bytes the file had."""

    def read_spans(self, path: str, spans: Iterable[tuple[int, int, int]], buffer: memoryview) -> None:
        """For each (position, begin, end): the file's bytes from `position` on go to buffer[begin:end].

        Errors: StoreChangedError where the file has not that many.
        """

    def next_data(self, path: str, position: int) -> int | None:
        """The first position >= `position` that may hold other than zeros (holes are skipped); None if there is none."""

    def data_size(self, path: str, start: int, stop: int) -> int:
        """How many of the bytes [start, stop) may hold other than zeros: those outside of holes."""


class LocalFiles:
    """`Files` on a local file system, with a few file descriptors kept open. Not for use by several threads at once."""

    def __init__(self) -> None:
        self._open: OrderedDict[str, int] = OrderedDict()
        self.bytes_read = 0
        self.reads = 0

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Gives the open descriptors back; the object can still be used."""
        while self._open:
            os.close(self._open.popitem()[1])

    def list(self, folder: str) -> list[Entry]:
        found = []
        try:
            with os.scandir(folder) as names:
                for name in names:
                    try:
                        info = name.stat()
                    except OSError as e:
                        if e.errno in _NOWHERE:  # deleted while we list, or a link that leads nowhere
                            continue
                        raise
                    if stat.S_ISDIR(info.st_mode):
                        found.append(Entry(name.name, name.path, 0, True))
                    elif stat.S_ISREG(info.st_mode):
                        found.append(Entry(name.name, name.path, info.st_size, False))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as e:
            raise _unreadable(e.filename or folder, e) from e
        found.sort(key=lambda e: e.name)
        return found

    def folder(self, path: str) -> str | None:
        return os.path.realpath(path) if os.path.isdir(path) else None

    def size(self, path: str) -> int | None:
        try:
            info = os.stat(path)
        except OSError as e:
            if e.errno in _NOWHERE:
                return None
            raise _unreadable(path, e) from e
        return info.st_size if stat.S_ISREG(info.st_mode) else None

    def descriptor(self, path: str) -> int:
        """An open descriptor of `path`, valid until other files push it out."""
        fd = self._open.get(path)
        if fd is None:
            try:
                fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a pipe that took the file's place would wait for a writer
            except OSError as e:
                if e.errno not in _NOWHERE:
                    raise _unreadable(path, e) from e
                raise StoreChangedError(
                    f"{path}: the file is gone since the store was listed (a broker's retention deletes old files). "
                    "Open the store again"
                ) from e
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                os.close(fd)
                raise StoreChangedError(f"{path}: no file any more since the store was listed. Open the store again")
            self._open[path] = fd
            if len(self._open) > _OPEN_FILES:
                os.close(self._open.popitem(last=False)[1])
        else:
            self._open.move_to_end(path)
        return fd

    def read(self, path: str, position: int, length: int) -> bytes:
        fd = self.descriptor(path)
        try:
            data = os.pread(fd, length, position)
            if 0 < len(data) < length:  # a signal or a pipe-like file system may cut a read short
                parts = [data]
                got = len(data)
                while got < length and (more := os.pread(fd, length - got, position + got)):
                    parts.append(more)
                    got += len(more)
                data = b"".join(parts)
        except OSError as e:
            raise _unreadable(path, e) from e
        self.reads += 1
        self.bytes_read += len(data)
        return data

    def read_into(self, path: str, position: int, buffer: memoryview) -> int:
        fd = self.descriptor(path)
        got = 0
        try:
            while got < len(buffer) and (n := os.preadv(fd, [buffer[got:]], position + got)):
                got += n
        except OSError as e:
            raise _unreadable(path, e) from e
        self.reads += 1
        self.bytes_read += got
        return got

    def read_spans(self, path: str, spans: Iterable[tuple[int, int, int]], buffer: memoryview) -> None:
        fd = self.descriptor(path)
        read = os.preadv  # tens of thousands of small reads: each microsecond here is half of what a record costs
        count = total = 0
        try:
            for position, begin, end in spans:
                got = read(fd, [buffer[begin:end]], position)
                if got != end - begin and self.read_into(path, position, buffer[begin:end]) != end - begin:
                    raise StoreChangedError(
                        f"{path}: the file ends before byte {position + end - begin}; it shrank since it was listed"
                    )
                count += 1
                total += got
        except OSError as e:
            raise _unreadable(path, e) from e
        self.reads += count
        self.bytes_read += total

    def next_data(self, path: str, position: int) -> int | None:
        try:
            return os.lseek(self.descriptor(path), position, os.SEEK_DATA)
        except OSError as e:
            if e.errno == errno.ENXIO:
                return None
            if e.errno == errno.EINVAL:  # a file system that knows no holes
                return position
            raise _unreadable(path, e) from e

    def data_size(self, path: str, start: int, stop: int) -> int:
        size = 0
        while start < stop and (data := self.next_data(path, start)) is not None and data < stop:
            try:
                start = min(os.lseek(self.descriptor(path), data, os.SEEK_HOLE), stop)
            except OSError:  # a file system that knows no holes
                start = stop
            size += start - data
        return size


def _unreadable(path: str, e: OSError) -> ReadError:
    hint = _HINTS.get(e.errno or 0, "")
    return ReadError(f"{path} can't be read: {e.strerror or e}.{f' {hint}' if hint else ''}")


def local_name(path: str | os.PathLike[str]) -> str:
    """`path` as an absolute local path (`file:` is taken off), whether anything is there or not.

    Errors: OptionError for a URI of another scheme.
    """
    text = os.fspath(path)
    scheme, colon, rest = text.partition(":")
    if colon and len(scheme) > 1 and scheme.isalnum() and rest.startswith("/"):
        if scheme.lower() != "file":
            raise OptionError(
                f"{text}: only local paths can be read or written so far, not '{scheme}:'. "
                "Copy or mount the store and give its local path"
            )
        text = "/" + rest.lstrip("/")
    return os.path.abspath(text)


def local_path(path: str | os.PathLike[str]) -> str:
    """`local_name` of a path where something is; of a store that is just being replaced, the folder where the new one is.

    Errors: OptionError for a URI of another scheme; StoreNotFoundError where nothing is there; ReadError.
    """
    name = local_name(path)
    if os.path.exists(name):
        return name
    root = os.path.realpath(name)  # a link leads nowhere while its store is replaced
    with suppress(OSError), open(swap_file(root), encoding="utf-8") as swap:
        id = swap.read()
        for kind in ("new", "old"):
            if os.path.exists(found := swap_folder(root, kind, id)):
                return found
    if os.path.exists(name):
        return name
    try:
        os.stat(name)
    except PermissionError as e:  # of a folder above
        raise _unreadable(name, e) from e
    except OSError:
        pass
    raise StoreNotFoundError(
        f"{os.fspath(path)}: no such file or folder. Give the broker's storePathRootDir, or its commitlog folder"
    )


def real_root(path: str | os.PathLike[str]) -> str:
    """`local_name`, with links followed: where a store is, or will be."""
    return os.path.realpath(local_name(path))


def on_other_disk(root: str, names: Iterable[str]) -> str | None:
    """The first of these folders in `root`, or of those in them, that files of `root` can't be renamed into; None for none.

    It is behind a link to another file system, or mounted there, if only from another folder of the same disk.
    """
    mounts: list[str] = []
    with suppress(OSError), open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as info:
        mounts = [re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), line.split()[4]) for line in info]

    def where(path: str) -> tuple[int, str]:
        real = os.path.realpath(path)
        above = [mount for mount in mounts if real == mount or real.startswith(mount.rstrip("/") + "/")]
        return os.stat(real).st_dev, max(above, key=len, default="")

    usual = where(root)
    for name in names:
        folder = os.path.join(root, name)
        inside = [entry.path for entry in os.scandir(folder) if entry.is_dir()] if os.path.isdir(folder) else []
        for path in [folder, *inside]:
            if os.path.isdir(path) and where(path) != usual:
                return path
    return None


def stamp(path: str) -> Stamp | None:
    """Of a file or folder as it is now; None where there is none."""
    try:
        info = os.stat(path)
    except OSError as e:
        if e.errno in _NOWHERE:
            return None
        raise _unreadable(path, e) from None
    return Stamp(info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns // 1_000_000)


def swap_file(root: str) -> str:
    """The file that stands beside a store while another one takes its place; it holds the id of the two folders' names."""
    return swap_folder(root, "swap", "")[:-1]


def swap_folder(root: str, kind: str, id: str) -> str:
    """The folder beside a store that holds the `new` one, or the `old` one, while the one takes the other's place."""
    folder, name = os.path.split(root)
    return os.path.join(folder, f".{name}.rmq-{kind}-{id.strip()}")
