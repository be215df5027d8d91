"""Queue files out of described records, as a broker's dispatch writes them (`ConsumeQueue#putMessagePositionInfo`).

A queue that has files is continued where its entries end; one that has none begins in the file that holds its first
queueOffset, behind fillers. Entries are held back until some megabytes are together, so that a batch does not cost a write for
each of its queues; no more is kept.
"""

from __future__ import annotations

import posixpath
import warnings
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from store_core.consumequeue import Entries, encode_fillers, encode_units
from store_core.describe import has_queue_entry
from store_core.described import Described
from store_core.errors import CorruptStoreError, StoreWarning
from store_core.files import Files
from store_core.layout import QUEUE_UNIT
from store_core.queues import Queue, QueueFile, bounds, list_queues
from store_core.segments import file_name
from store_core.writefiles import Writes

__all__ = ["DEFAULT_QUEUE_FILE_SIZE", "QueueBuilder", "found_queue_file_size", "whole_units"]

DEFAULT_QUEUE_FILE_SIZE: Final = 6_000_000
_UNIT: Final = QUEUE_UNIT.itemsize
_HELD: Final = 8 << 20
"""Bytes of entries that wait to be written."""
_ZEROS: Final = 1 << 20
_LAST: Final = (1 << 63) // _UNIT - 1

I64 = npt.NDArray[np.int64]


def whole_units(size: int) -> int:
    """The size of a queue file as a broker makes of its option: rounded up to whole units."""
    return -(-size // _UNIT) * _UNIT


def found_queue_file_size(files: Files, root: str) -> int | None:
    """mappedFileSizeConsumeQueue as the store's queue files have it; None where there are none.

    Errors: CorruptStoreError where they differ.
    """
    sizes = Counter(file.length for queue in list_queues(files, root) if not queue.batch for file in queue.files)
    if len(sizes) > 1:
        found = ", ".join(f"{count} of {size} bytes" for size, count in sizes.most_common(5))
        raise CorruptStoreError(
            f"the queue files differ in size: {found}; expected one size",
            path=posixpath.join(root, "consumequeue"),
            hint="Give the broker's size with the option mappedFileSizeConsumeQueue",
        )
    return next(iter(sizes), None)


@dataclass(slots=True)
class _Growing:
    """One queue. `end`: the queueOffset behind its last entry; `written`: the byte up to which files hold its entries."""

    topic: str
    queue_id: int
    folder: str
    end: int = 0
    written: int = 0
    files_until: int = 0
    """Files are there up to this byte."""
    first_file: int = 0
    there: Mapping[int, str] = field(default_factory=dict)
    """Its files as they were found, by their first byte."""
    waiting: list[bytes | memoryview] = field(default_factory=list)
    added: int = 0
    empty: bool = True
    warned: bool = False


class QueueBuilder:
    """Writes the queue files of a store in `root/consumequeue`; `add` takes records with their places, in log order.

    `file_size`: bytes of a queue file. `build`: where files are made instead, and copies of those that are continued: nothing
    in `root` is touched then. `lenient`: an entry whose queueOffset does not follow its queue's last one is treated as a
    broker's recovery does, with a warning, instead of being an error. `left_alone`: topics whose records are passed over.
    """

    def __init__(
        self,
        files: Files,
        writes: Writes,
        root: str,
        file_size: int,
        *,
        build: str | None = None,
        lenient: bool = False,
        left_alone: Collection[str] = (),
    ) -> None:
        self._files = files
        self._writes = writes
        self._root = root
        self._build = posixpath.join(root if build is None else build, "consumequeue")
        self._in_place = build is None or build == root
        self._size = whole_units(file_size)
        self._lenient = lenient
        self._left_alone = frozenset(left_alone)
        self._queues: dict[tuple[str, int], _Growing | None] = {}
        self._listed: dict[str, dict[int, Queue]] = {}
        """By topic: the queues that had files when the topic was met first."""
        self._held = 0
        self._touched: dict[str, None] = {}

    @property
    def queues(self) -> list[tuple[str, int]]:
        """(topic, queueId) of all queues that were added to."""
        return [key for key, queue in self._queues.items() if queue is not None]

    @property
    def entries(self) -> int:
        """How many entries were added."""
        return sum(queue.added for queue in self._queues.values() if queue is not None)

    def add(self, described: Described) -> None:
        """Adds the entries of some records.

        Errors: CorruptStoreError, unless lenient, for a queueOffset that leaves a gap or repeats one, and for a queue that
        can't have a folder.
        """
        records, light = described.records, described.light
        record = np.flatnonzero(has_queue_entry(records["sysFlag"]))
        queue = records["queue"][record]
        number = records["queueOffset"][record].astype(np.int64)
        if len(light):
            record = np.concatenate([record, light["record"]])
            queue = np.concatenate([queue, light["queue"]])
            number = np.concatenate([number, light["queueOffset"]])
            order = np.lexsort((record, queue))
        else:
            # numpy sorts two-byte integers much faster
            order = np.argsort(queue.astype(np.uint16) if len(described.queues) < 1 << 16 else queue, kind="stable")
        if not len(order):
            return
        record, queue, number = record[order], queue[order], number[order]
        chosen = records[record]
        offsets = chosen["commitLogOffset"]
        units = memoryview(
            encode_units(
                Entries(number, offsets, chosen["size"], chosen["tagsCode"], np.broadcast_to(np.int32(1), len(number)))
            )
        )
        follows = (number[1:] == number[:-1] + 1) & (queue[1:] == queue[:-1])
        starts = np.concatenate([[0], np.flatnonzero(~follows) + 1])
        stops = np.append(starts[1:], len(number))
        which, first = queue[starts].tolist(), number[starts].tolist()
        for at, (start, stop) in enumerate(zip(starts.tolist(), stops.tolist(), strict=True)):
            growing = self._queue(*described.queues[which[at]])
            if growing is not None:
                self._add_run(growing, first[at], units[start * _UNIT : stop * _UNIT], int(offsets[start]))
        if self._held > _HELD:
            self._flush()

    def finish(self) -> tuple[str, ...]:
        """Writes what is left; the paths of all files that were made or written to, which are not synced yet."""
        self._flush()
        return tuple(self._touched)

    # --- one queue

    def _queue(self, topic: str, queue_id: int) -> _Growing | None:
        """The queue, opened when it is met first; None if it is left alone."""
        key = topic, queue_id
        if key not in self._queues:
            self._queues[key] = None if topic in self._left_alone else self._open(topic, queue_id)
        return self._queues[key]

    def _open(self, topic: str, queue_id: int) -> _Growing | None:
        if topic in ("", ".", "..") or "/" in topic or "\0" in topic or queue_id < 0:
            text = f"queue {queue_id} of topic {topic!r} can't have a folder; expected a topic's name and no negative number"
            self._say(text, "Its records get no entries")
            return None
        growing = _Growing(topic, queue_id, posixpath.join(self._build, topic, str(queue_id)))
        if topic not in self._listed:
            listed = list_queues(self._files, self._root, (topic,))
            self._listed[topic] = {queue.queue_id: queue for queue in listed if not queue.batch}
        if (there := self._listed[topic].get(queue_id)) is not None:
            self._continue(growing, there)
        return growing

    def _continue(self, growing: _Growing, queue: Queue) -> None:
        odd = next((file for file in queue.files if file.length != self._size or file.base_offset % self._size), None)
        if odd is not None:
            raise CorruptStoreError(
                f"{odd.length} bytes; expected {self._size}, and a name that is a multiple of it",
                path=odd.path,
                hint="Give the broker's size with the option mappedFileSizeConsumeQueue, or rebuild the queues",
            )
        _, growing.end = bounds(self._files, queue, 0)
        growing.written = growing.end * _UNIT
        growing.first_file = queue.files[0].base_offset
        growing.files_until = queue.files[-1].base_offset + self._size
        growing.empty = False
        growing.there = {file.base_offset: file.path for file in queue.files}
        for file in queue.files:
            # stale units behind the end would come to life once the entries reach them
            self._clear(growing, file, max(growing.written - file.base_offset, 0))

    def _clear(self, queue: _Growing, file: QueueFile, position: int) -> None:
        data = self._files.next_data(file.path, position) if position < self._size else None
        while data is not None and data < self._size:
            stored = self._files.read(file.path, data, min(_ZEROS, self._size - data))
            if stored.strip(b"\0"):
                self._writes.write_at(self._own(queue, file.base_offset), data, bytes(len(stored)))
            data = self._files.next_data(file.path, data + len(stored)) if data + len(stored) < self._size else None

    def _add_run(self, queue: _Growing, first: int, units: memoryview, commit_log_offset: int) -> None:
        """Adds entries of consecutive queueOffsets from `first` on."""
        if queue.empty and 0 <= first <= _LAST:
            self._begin(queue, first)
        elif first != queue.end:
            text = (
                f"queue {queue.topic}/{queue.queue_id}: the record at commitLogOffset {commit_log_offset} "
                f"has queueOffset {first}; expected {queue.end}, the one behind the record before"
            )
            units = self._irregular(queue, first, units, text)
        if len(units):
            queue.waiting.append(units)
            queue.end += len(units) // _UNIT
            queue.added += len(units) // _UNIT
            self._held += len(units)

    def _begin(self, queue: _Growing, first: int) -> None:
        queue.empty = False
        queue.end = first
        queue.written = queue.files_until = queue.first_file = first * _UNIT // self._size * self._size
        if fillers := first - queue.written // _UNIT:
            queue.waiting.append(encode_fillers(fillers))
            self._held += fillers * _UNIT

    def _irregular(self, queue: _Growing, first: int, units: memoryview, text: str) -> memoryview:
        """What to add of entries that do not follow the last one, where that is no error."""
        if not 0 <= first <= _LAST:
            self._say(text, "It gets no entry")
            return units[:0]
        if first == 0:
            self._once(queue, text, "Its topic was deleted and made again: its older entries are dropped")
            self._drop(queue)
            self._begin(queue, 0)
            return units
        if first > queue.end:
            self._once(queue, text, f"Its entry stands at {queue.end}, as a broker's recovery would put it")
            return units
        self._once(queue, text, "That number is taken, so it gets no entry, as in a broker's recovery")
        return units[(queue.end - first) * _UNIT :]

    def _once(self, queue: _Growing, text: str, instead: str) -> None:
        """Warns, but not again for the same queue: one gap shifts all that follow."""
        if not (self._lenient and queue.warned):
            self._say(text, instead)
        queue.warned = True

    def _say(self, text: str, instead: str) -> None:
        if not self._lenient:
            raise CorruptStoreError(text)
        warnings.warn(f"{text}. {instead}", StoreWarning, stacklevel=2)

    def _drop(self, queue: _Growing) -> None:
        for path in (self._path(queue, base) for base in range(queue.first_file, queue.files_until, self._size)):
            self._writes.remove(path)
            self._touched.pop(path, None)
        self._held -= sum(map(len, queue.waiting))
        queue.waiting.clear()
        queue.added = 0

    # --- files

    def _path(self, queue: _Growing, base: int) -> str:
        return posixpath.join(queue.folder, file_name(base))

    def _flush(self) -> None:
        for queue in self._queues.values():
            if queue is not None and queue.waiting:
                data = memoryview(b"".join(queue.waiting))
                queue.waiting.clear()
                for path, position, part in self._cut(queue, data):
                    self._writes.write_at(path, position, part)
                queue.written += len(data)
        self._held = 0

    def _cut(self, queue: _Growing, data: memoryview) -> Iterator[tuple[str, int, memoryview]]:
        """(file, position, bytes) for entries from `queue.written` on."""
        at = queue.written
        while data:
            base = at // self._size * self._size
            part = data[: base + self._size - at]
            yield self._own(queue, base), at - base, part
            at += len(part)
            data = data[len(part) :]

    def _own(self, queue: _Growing, base: int) -> str:
        """The path of a queue's file that is written to: made where there is none, copied where it stands elsewhere."""
        path = self._path(queue, base)
        if path not in self._touched:
            if base >= queue.files_until:
                self._writes.make_folder(queue.folder)
                self._writes.create(path, self._size)
                queue.files_until = base + self._size
            elif not self._in_place:
                self._writes.make_folder(queue.folder)
                self._writes.copy(queue.there[base], path)
            self._touched[path] = None
        return path
