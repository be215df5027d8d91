"""The only module that touches a disk to write: files of a given length, writes at positions, fsync, renames, locks.

Everything above writes through `Writes`, so that a test can record what was written and synced, or stop the process in between.
Every failure is a `WriteError` that says what was being done, to which path, why it failed and what to do.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final, Protocol, runtime_checkable

from store_core.errors import WriteError

__all__ = ["Buffer", "HeldLock", "LocalWrites", "Writes", "unfinished"]

Buffer = bytes | bytearray | memoryview

_OPEN_FILES: Final = 128
_PIECE: Final = 8 << 20
_HINTS: Final = {
    errno.ENOSPC: "The disk is full: free some space and write again",
    errno.EDQUOT: "The disk quota is used up: free some space and write again",
    errno.EFBIG: "The file is larger than the system allows (see `ulimit -f`): raise the limit, or choose smaller files",
    errno.EROFS: "The file system is read-only: write to another folder, or mount it for writing",
    errno.EACCES: "Give this user the right to write there, or write to another folder",
    errno.EPERM: "Give this user the right to write there, or write to another folder",
    errno.EBUSY: "It is in use, or a mount point: give a folder inside of it",
    errno.EXDEV: "The folder and what stands beside it are on two file systems (a mount point?): give a folder inside of it",
    errno.EMFILE: "Too many open files: raise `ulimit -n`",
}


class HeldLock(Protocol):
    """A lock that is held until `release`."""

    def rewrite(self, data: Buffer) -> None:
        """Makes `data` the content of the locked file, and syncs it: to open the file again here would end the lock."""

    def release(self) -> None:
        """Gives the lock back; a second call does nothing."""


@runtime_checkable
class Writes(Protocol):
    """What the rest of `store_core` asks of storage when it writes. May be used by several threads at once."""

    def make_folder(self, path: str) -> None:
        """Makes a folder and those above it; nothing where it is there."""

    def create(self, path: str, size: int) -> None:
        """Makes a file of `size` bytes, all holes. Errors: WriteError where it is there already."""

    def write_at(self, path: str, position: int, data: Buffer) -> None:
        """Writes all of `data` from `position` on into a file that is there; the file grows where it ends before."""

    def clear(self, path: str, start: int) -> None:
        """Makes zeros of all bytes from `start` on. The file keeps its length: a broker does not start on a shorter one."""

    def replace(self, path: str, data: Buffer) -> None:
        """Makes or replaces a small file as a whole, safely: new file, fsync, rename, fsync of the folder."""

    def copy(self, source: str, target: str) -> None:
        """A new file with the same bytes, and owner and mode where the system lets it; holes stay holes."""

    def take_after(self, folder: str, file: str) -> None:
        """From now on, folders and files that are made get owner and mode of these, where the system lets them."""

    def rename(self, old: str, new: str) -> None:
        """Renames a file or folder, replacing a file or an empty folder of that name. What takes a file's place gets its owner
        and mode, where the system lets it.
        """

    def remove(self, path: str) -> None:
        """Removes a file; nothing where there is none."""

    def remove_folder(self, path: str) -> None:
        """Removes a folder and all in it, or a file; nothing where there is none."""

    def fsync_file(self, path: str) -> None:
        """Waits until a file's bytes and length are on the disk."""

    def fsync_folder(self, path: str) -> None:
        """Waits until the names in a folder are on the disk."""

    def last_change(self, path: str) -> float:
        """When anything in a folder was last written to, in seconds since 1970."""

    def lock(self, path: str) -> HeldLock | None:
        """Takes the lock that a broker takes on its file `lock` (made if missing); None where another process holds it."""

    def close(self) -> None:
        """Gives open descriptors back; the object can still be used."""


def unfinished(path: str) -> str:
    """What `replace` writes first: it is left where the process ends before the rename."""
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name.lstrip('.')}.rmq-tmp")


class LocalWrites:
    """`Writes` on a local file system, with some file descriptors kept open."""

    def __init__(self) -> None:
        self._open: OrderedDict[str, _Descriptor] = OrderedDict()
        self._guard = threading.Lock()
        self._folder_like: os.stat_result | None = None
        self._file_like: os.stat_result | None = None

    def __del__(self) -> None:
        with suppress(OSError):
            self.close()

    def close(self) -> None:
        with self._guard:
            while self._open:
                self._open.popitem()[1].retire()

    def make_folder(self, path: str) -> None:
        with _clear("make the folder", path):
            missing, above = [], path
            while self._folder_like is not None and not os.path.isdir(above):
                missing.append(above)
                above = os.path.dirname(above)
            os.makedirs(path, exist_ok=True)
            for folder in missing:
                _give(folder, self._folder_like)

    def create(self, path: str, size: int) -> None:
        with _clear(f"make a file of {size} bytes", path):
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
            try:
                _give(fd, self._file_like)
                os.ftruncate(fd, size)
            finally:
                os.close(fd)

    def write_at(self, path: str, position: int, data: Buffer) -> None:
        with _clear(f"write {len(data)} bytes at {position} of", path), self._descriptor(path) as fd:
            left = memoryview(data).cast("B")
            while left:
                done = os.pwrite(fd, left, position)
                position += done
                left = left[done:]

    def clear(self, path: str, start: int) -> None:
        with _clear(f"clear the bytes from {start} on of", path), self._descriptor(path) as fd:
            for first, stop in _data(fd, os.fstat(fd).st_size):
                for at in range(max(first, start), stop, _PIECE):
                    os.pwrite(fd, bytes(min(_PIECE, stop - at)), at)

    def replace(self, path: str, data: Buffer) -> None:
        fresh = unfinished(path)
        with _clear("write", path):
            fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
            try:
                _give(fd, self._file_like)
                left = memoryview(data).cast("B")
                while left:
                    left = left[os.write(fd, left) :]
                os.fsync(fd)
            finally:
                os.close(fd)
        self.rename(fresh, path)
        self.fsync_folder(os.path.dirname(path))

    def copy(self, source: str, target: str) -> None:
        with _clear("copy", f"{source} to {target}"), open(source, "rb") as old, open(target, "xb") as new:
            found = os.fstat(old.fileno())
            _give(new.fileno(), found)
            size = found.st_size
            os.ftruncate(new.fileno(), size)
            for start, stop in _data(old.fileno(), size):
                while start < stop:
                    piece = os.pread(old.fileno(), min(_PIECE, stop - start), start)
                    if not piece:  # it shrank
                        raise OSError(errno.EIO, "the file became shorter while it was copied")
                    start += os.pwrite(new.fileno(), piece, start)

    def take_after(self, folder: str, file: str) -> None:
        with _clear("look at", folder):
            self._folder_like = os.stat(folder)
        with _clear("look at", file):
            self._file_like = os.stat(file)

    def rename(self, old: str, new: str) -> None:
        self._forget(old)
        self._forget(new)
        with _clear("rename", f"{old} to {new}"):
            if os.path.isfile(new):
                _give(old, os.stat(new))
            os.rename(old, new)

    def remove(self, path: str) -> None:
        self._forget(path)
        with _clear("remove", path), suppress(FileNotFoundError):
            os.unlink(path)

    def remove_folder(self, path: str) -> None:
        self._forget(path)
        with _clear("remove", path), suppress(FileNotFoundError):
            if os.path.isdir(path):
                shutil.rmtree(path)
            else:
                os.unlink(path)

    def fsync_file(self, path: str) -> None:
        with _clear("sync", path), self._descriptor(path) as fd:
            os.fsync(fd)

    def fsync_folder(self, path: str) -> None:
        with _clear("sync the folder", path):
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

    def last_change(self, path: str) -> float:
        latest = 0.0
        with _clear("look at", path), suppress(FileNotFoundError):
            latest = os.stat(path).st_mtime
            for folder, _, names in os.walk(path):
                for name in ("", *names):
                    with suppress(FileNotFoundError):
                        latest = max(latest, os.stat(os.path.join(folder, name)).st_mtime)
        return latest

    def lock(self, path: str) -> HeldLock | None:
        with _clear("lock", path):
            fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
            try:
                fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
            except OSError as e:
                os.close(fd)
                if e.errno in (errno.EACCES, errno.EAGAIN):
                    return None
                raise
        return _Held(fd, path)

    @contextmanager
    def _descriptor(self, path: str) -> Iterator[int]:
        """An open descriptor of `path`; it is not closed while it is used here."""
        with self._guard:
            held = self._open.get(path)
            if held is None:
                held = self._open[path] = _Descriptor(os.open(path, os.O_RDWR))
                if len(self._open) > _OPEN_FILES:
                    self._open.popitem(last=False)[1].retire()
            else:
                self._open.move_to_end(path)
            held.users += 1
        try:
            yield held.fd
        finally:
            with self._guard:
                held.users -= 1
                if held.retired:
                    held.retire()

    def _forget(self, path: str) -> None:
        """Closes what is open of `path` or, for a folder, below it: that name will mean another file, or none."""
        with self._guard:
            for name in [name for name in self._open if name == path or name.startswith(path + os.sep)]:
                self._open.pop(name).retire()


class _Descriptor:
    """An open file that is closed once nobody uses it any more."""

    __slots__ = ("fd", "retired", "users")

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.users = 0
        self.retired = False

    def retire(self) -> None:
        self.retired = True
        if not self.users and self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class _Held:
    """The lock ends when any descriptor of the file is closed in this process, so nobody else opens it."""

    def __init__(self, fd: int, path: str) -> None:
        self._fd = fd
        self._path = path

    def rewrite(self, data: Buffer) -> None:
        with _clear("write", self._path):
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, data, 0)
            os.fsync(self._fd)

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


@contextmanager
def _clear(doing: str, path: str) -> Iterator[None]:
    try:
        yield
    except OSError as e:
        hint = _HINTS.get(e.errno or 0, "")
        raise WriteError(f"could not {doing} {path}: {e.strerror or e}.{f' {hint}.' if hint else ''}", e.errno) from e


def _give(target: int | str, like: os.stat_result | None) -> None:
    """Gives a file or folder the owner and mode of another one, as far as this user may: a broker must be able to open it."""
    if like is None:
        return
    for owner in (like.st_uid, -1):  # who may not give it away may still give it to one of their groups
        with suppress(OSError):
            os.chown(target, owner, like.st_gid)
            break
    with suppress(OSError):
        os.chmod(target, stat.S_IMODE(like.st_mode))


def _data(fd: int, size: int) -> Iterator[tuple[int, int]]:
    """The ranges of a file that are no holes."""
    at = 0
    while at < size:
        try:
            start = os.lseek(fd, at, os.SEEK_DATA)
            at = os.lseek(fd, start, os.SEEK_HOLE)
        except OSError as e:
            if e.errno == errno.ENXIO:
                return
            if e.errno != errno.EINVAL:
                raise
            start, at = at, size  # a file system that knows no holes
        yield start, at
