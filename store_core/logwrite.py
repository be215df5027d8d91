"""Copies staged records into commitlog files, by several threads: read, put in what depends on the place, write.

What goes into files that are there already is written by the caller's thread in the order of the log, so that whoever reads the
store meanwhile sees a prefix, and never a hole with records behind it. New files stand elsewhere until they are published, so
the threads write them as they come.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

import numpy as np
import numpy.typing as npt

from store_core.errors import CorruptStoreError
from store_core.files import LocalFiles
from store_core.layout import BLANK_MAGIC
from store_core.patching import patch
from store_core.placing import Blank, Placed
from store_core.segments import file_name
from store_core.staging import StagedBatch
from store_core.writefiles import Buffer, Writes

__all__ = ["LogWriter"]

_THREADS: Final = 4
_AHEAD: Final = 2 * _THREADS
"""Batches that wait for their turn at most: with those in work, what is in memory."""

_Longs = npt.NDArray[np.int64]
_Part = tuple[str, int, Buffer]
"""(file, position, bytes)."""


class LogWriter:
    """Writes batches into the log files of a store; `add` takes them in log order.

    present: files that are there already, by base offset; others are made in `folder`, of `file_size` bytes each.
    """

    def __init__(self, writes: Writes, present: Mapping[int, str], folder: str, file_size: int) -> None:
        self._writes = writes
        self._present = present
        self._folder = folder
        self._file_size = file_size
        self._made: dict[int, str] = {}
        self._touched: dict[str, None] = {}
        self._own = threading.local()
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="rmq-commit")
        self._waiting: deque[Future[list[_Part]]] = deque()

    @property
    def made(self) -> tuple[str, ...]:
        """The files that were made, in log order."""
        return tuple(self._made[base] for base in sorted(self._made))

    def add(self, batch: StagedBatch, placed: Placed, prepared: tuple[_Longs, _Longs]) -> None:
        """Takes a batch over. prepared: which of its records get another preparedTransactionOffset, and which."""
        records = placed.described.records
        parts: list[tuple[int, int, int, Blank | None]] = [(b.commit_log_offset, 0, 0, b) for b in placed.blanks]
        offsets = records["commitLogOffset"]
        ends = np.cumsum(records["size"], dtype=np.int64)
        bases = offsets // self._file_size
        cuts = [0, *(np.flatnonzero(bases[1:] != bases[:-1]) + 1).tolist(), len(records)]
        for first, last in itertools.pairwise(cuts):
            start = int(ends[first] - records["size"][first])
            parts.append((int(offsets[first]), start, int(ends[last - 1]), None))
        parts.sort(key=lambda part: part[0])
        places = [(self._file(offset), offset % self._file_size) for offset, *_ in parts]
        self._waiting.append(self._pool.submit(self._copy, batch, records, placed.lifted, prepared, parts, places))
        while len(self._waiting) > _AHEAD:
            self._take()

    def finish(self) -> tuple[str, ...]:
        """Waits for all that was added; the files that were written to."""
        while self._waiting:
            self._take()
        self._pool.shutdown()
        return tuple(self._touched)

    def cancel(self) -> None:
        """Stops as soon as the threads have done what they are at."""
        self._pool.shutdown(cancel_futures=True)

    def _file(self, offset: int) -> str:
        base = offset // self._file_size * self._file_size
        path = self._present.get(base) or self._made.get(base)
        if path is None:
            path = self._made[base] = os.path.join(self._folder, file_name(base))
            self._writes.make_folder(self._folder)
            self._writes.create(path, self._file_size)
        self._touched[path] = None
        return path

    def _take(self) -> None:
        for path, position, data in self._waiting.popleft().result():
            self._writes.write_at(path, position, data)

    def _copy(
        self,
        batch: StagedBatch,
        records: npt.NDArray[np.void],
        lifted: _Longs,
        prepared: tuple[_Longs, _Longs],
        parts: list[tuple[int, int, int, Blank | None]],
        places: list[tuple[str, int]],
    ) -> list[_Part]:
        """Writes what goes into new files, and gives back what goes into files that were there."""
        view = self._data(batch)
        patch(view, records, lifted, prepared)
        later: list[_Part] = []
        for (_, start, stop, blank), (path, position) in zip(parts, places, strict=True):
            found: Buffer = view[start:stop]
            if blank is not None:
                found = blank.size.to_bytes(4, "big") + BLANK_MAGIC.to_bytes(4, "big", signed=True)
            if path in self._present.values():
                later.append((path, position, found))
            else:
                self._writes.write_at(path, position, found)
        return later

    def _data(self, batch: StagedBatch) -> memoryview:
        if batch.data is not None:
            return memoryview(bytearray(batch.data)) if batch.data.readonly else batch.data
        if not hasattr(self._own, "files"):
            self._own.files = LocalFiles()
        data = memoryview(bytearray(batch.size))
        if self._own.files.read_into(batch.path, batch.position, data) != batch.size:
            raise CorruptStoreError("ends before what a task wrote", path=batch.path, hint="Write again")
        return data
