"""The queues of a store: their files, their bounds, their entries (`ConsumeQueueStore`, `ConsumeQueue`, `BatchConsumeQueue`).

A file's size is taken as found, and an entry's queueOffset from the place it stands at, so a short or missing file leaves a
hole and never shifts a number. What is odd is appended to `notes`, in words, where a caller passes a list: a queue is only an
index, and what it does not account for is read from the log itself (`coverage`). Which units are in use is the same for every
function here (`used_files`), so that a slice of a queue is a slice of what the whole gives.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from store_core.consumequeue import (
    Entries,
    Unit,
    decode_batch_units,
    decode_ext_units,
    decode_unit,
    decode_units,
    ext_offset,
    is_ext_address,
    valid_prefix,
)
from store_core.errors import StoreChangedError
from store_core.files import Files
from store_core.layout import BATCH_QUEUE_UNIT, EXT_UNIT_HEAD, FILLER_SIZE, QUEUE_UNIT
from store_core.segments import parse_name

__all__ = [
    "Queue",
    "QueueFile",
    "bounds",
    "entry_of",
    "first_at_or_after",
    "has_queue_files",
    "list_queues",
    "read_entries",
    "resolve_ext",
    "rocksdb_queue",
    "topics",
    "used_files",
]

_KINDS: Final = (("consumequeue", False), ("batchconsumequeue", True))
_ROCKSDB_FOLDERS: Final = ("consumequeue", "consumequeue_rocksdb")
_EXT_FOLDER: Final = "consumequeue_ext"
_LMQ_PREFIX: Final = "%LMQ%"
_INT_MAX: Final = (1 << 31) - 1
_BATCH: Final = 50_000
_BLOCK: Final = 512
"""Units: the end of the last file is searched by the first of each block, and then in one block."""
_WINDOW: Final = 16_384
"""Bytes that a search for an entry reads at once: its last steps stay inside one window."""
_EXT_WINDOW: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class QueueFile:
    """One file of a queue: `base_offset` is the number in its name (bytes), `length` its size on disk in bytes."""

    path: str
    base_offset: int
    length: int


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue and its files, by ascending offset. `batch`: it stands in batchconsumequeue, with 46-byte units."""

    topic: str
    queue_id: int
    batch: bool
    files: tuple[QueueFile, ...]

    @property
    def is_lmq(self) -> bool:
        """Whether its entries only repeat those of other queues (light message queue)."""
        return self.topic.startswith(_LMQ_PREFIX)

    @property
    def unit_size(self) -> int:
        """Bytes of a unit."""
        return BATCH_QUEUE_UNIT.itemsize if self.batch else QUEUE_UNIT.itemsize


# --- listing -------------------------------------------------------------------------------------------------------------
def topics(files: Files, root: str) -> tuple[str, ...]:
    """The topics that have a folder of queue files under the store's `root`, sorted."""
    found = {entry.name for kind, _ in _KINDS for entry in files.list(f"{root}/{kind}") if entry.is_dir}
    return tuple(sorted(found))


def list_queues(files: Files, root: str, topics: Collection[str] | None = None) -> tuple[Queue, ...]:
    """The queues that have files, by topic and queueId; only of `topics` where given, and then no other folder is listed.

    Folders whose name is no queueId, stray files and empty files are passed over.
    """
    found: list[Queue] = []
    for kind, batch in _KINDS:
        folder = f"{root}/{kind}"
        if topics is None:
            names = [entry.name for entry in files.list(folder) if entry.is_dir]
        else:
            names = [name for name in set(topics) if _is_folder_name(name)]
        for topic in names:
            found.extend(_queues_of(files, folder, topic, batch))
    found.sort(key=lambda queue: (queue.topic, queue.queue_id, queue.batch))
    return tuple(found)


def _is_folder_name(name: str) -> bool:
    return name not in ("", ".", "..") and "/" not in name and "\0" not in name


def _queues_of(files: Files, folder: str, topic: str, batch: bool) -> Iterator[Queue]:
    for entry in files.list(f"{folder}/{topic}"):
        queue_id = _queue_id(entry.name)
        if entry.is_dir and queue_id is not None:
            found = _number_named(files, entry.path)
            if found:
                yield Queue(topic, queue_id, batch, found)


def _queue_id(name: str) -> int | None:
    if name.isascii() and name.isdigit() and len(name) <= 10 and (name == "0" or name[0] != "0"):
        number = int(name)
        return number if number <= _INT_MAX else None
    return None


def _number_named(files: Files, folder: str) -> tuple[QueueFile, ...]:
    found = []
    for entry in files.list(folder):  # sorted by name, and so by number
        base = parse_name(entry.name)
        if base is not None and entry.size > 0:
            found.append(QueueFile(entry.path, base, entry.size))
    return tuple(found)


def has_queue_files(files: Files, root: str) -> bool:
    """Whether any queue has files; true beside a RocksDB where a broker writes both (`rocksdbCQDoubleWriteEnable`)."""
    return any(
        True
        for kind, batch in _KINDS
        for entry in files.list(f"{root}/{kind}")
        if entry.is_dir
        for _ in _queues_of(files, f"{root}/{kind}", entry.name, batch)
    )


def rocksdb_queue(files: Files, root: str) -> str | None:
    """The folder of the RocksDB that holds the queues, too or instead (`storeType=defaultRocksDB`); None for none."""
    for name in _ROCKSDB_FOLDERS:
        folder = f"{root}/{name}"
        if files.size(f"{folder}/CURRENT") is not None:
            return folder
    return None


# --- which units there are -----------------------------------------------------------------------------------------------
def used_files(files: Files, queue: Queue, notes: list[str] | None = None) -> list[tuple[QueueFile, int]]:
    """(file, number of its units in use), by ascending offset.

    In use are all units of a file with a successor, and in the last file that begins with a valid unit those before its free
    space, which begins at an invalid unit. It is searched by growing steps and then halving: units behind a hole in the file
    are in use if the search lands behind it. Invalid units in use are passed over by the readers.
    """
    say = [] if notes is None else notes
    unit = queue.unit_size
    usable = []
    for file in queue.files:
        if not queue.batch and file.base_offset % unit:
            say.append(f"{file.path}: its name is no multiple of {unit}; the file is passed over")
            continue
        if file.length % unit:
            say.append(f"{file.path}: {file.length} bytes are no multiple of {unit}; the torn last unit is passed over")
        usable.append((file, file.length // unit))
    while usable:
        file, count = usable.pop()
        used = _used_units(files, file, count, queue.batch)
        if used:
            usable.append((file, used))
            break
    if not queue.batch:  # a batch unit states its own number: its files may end anywhere
        for i, ((file, count), (after, _)) in enumerate(itertools.pairwise(usable)):
            end = file.base_offset + count * unit
            if end < after.base_offset:
                say.append(
                    f"{file.path}: ends before the next file, {after.path}: "
                    f"queue offsets {end // unit} to {after.base_offset // unit - 1} have no entries"
                )
            elif end > after.base_offset:
                say.append(f"{file.path}: runs into {after.path}; its units from there on are passed over")
                usable[i] = (file, (after.base_offset - file.base_offset) // unit)
    return usable


def _used_units(files: Files, file: QueueFile, count: int, batch: bool) -> int:
    unit = (BATCH_QUEUE_UNIT if batch else QUEUE_UNIT).itemsize

    def in_use(block: int) -> bool:
        head = _read_all(files, file, block * _BLOCK * unit, unit)
        return decode_unit(head, 0, batch).is_valid

    blocks = -(-count // _BLOCK)
    if not blocks or not in_use(0):
        return 0
    low, step = 0, 1
    while low + step < blocks and in_use(low + step):
        low += step
        step *= 4
    high = min(low + step, blocks)
    while high - low > 1:
        middle = (low + high) // 2
        if in_use(middle):
            low = middle
        else:
            high = middle
    place = low * _BLOCK
    data = _read_all(files, file, place * unit, min(_BLOCK, count - place) * unit)
    return place + valid_prefix(decode_batch_units(data) if batch else decode_units(data, 0))


def _read_all(files: Files, file: QueueFile, position: int, length: int) -> bytes:
    data = files.read(file.path, position, length)
    if len(data) < length:
        raise StoreChangedError(
            f"{file.path}: {position + len(data)} bytes, but {file.length} when it was listed. Open the store again"
        )
    return data


class _Window:
    """Single units of a file by their number, through one window of bytes that is read again only when it is left."""

    def __init__(self, files: Files, file: QueueFile, batch: bool):
        self._files = files
        self._batch = batch
        self._size = (BATCH_QUEUE_UNIT if batch else QUEUE_UNIT).itemsize
        self._units = _WINDOW // self._size
        self._first = -1
        self._data = b""
        self.file = file

    def unit(self, number: int) -> Unit:
        first = number - number % self._units
        if first != self._first:
            end = min((first + self._units) * self._size, self.file.length)
            self._data = _read_all(self._files, self.file, first * self._size, end - first * self._size)
            self._first = first
        return decode_unit(self._data, (number - first) * self._size, self._batch)

    def next_valid(self, number: int, stop: int) -> int:
        """The first valid unit in [number, stop); stop for none."""
        while number < stop and not self.unit(number).is_valid:
            entries = decode_batch_units(self._data) if self._batch else decode_units(self._data, 0)
            valid = entries.is_valid[number - self._first :]
            number += int(valid.argmax()) if valid.any() else max(1, len(valid))
        return min(number, stop)


class _Units:
    """All units in use of a queue as one sequence, for searches."""

    def __init__(self, files: Files, queue: Queue, notes: list[str] | None):
        self.queue = queue
        self.used = used_files(files, queue, notes)
        self._files = files
        self._starts = [0, *itertools.accumulate(count for _, count in self.used)]
        self._window: _Window | None = None

    def __len__(self) -> int:
        return self._starts[-1]

    def _find(self, number: int) -> tuple[_Window, int, int]:
        """The window on the file that holds `number`, the number of the file's first unit, and of the next file's."""
        i = bisect_right(self._starts, number) - 1
        file = self.used[i][0]
        if self._window is None or self._window.file is not file:
            self._window = _Window(self._files, file, self.queue.batch)
        return self._window, self._starts[i], self._starts[i + 1]

    def unit(self, number: int) -> Unit:
        """Unit `number`, with its queue offset filled in."""
        window, base, _ = self._find(number)
        unit = window.unit(number - base)
        if self.queue.batch:
            return unit
        return unit._replace(queue_offset=window.file.base_offset // self.queue.unit_size + number - base)

    def first(self, low: int, test: Callable[[Unit], bool]) -> int:
        """The number of the first valid unit >= `low` that passes `test`, which all behind it must pass too; len for none."""
        high = len(self)
        while low < high:
            middle = (low + high) // 2
            valid = self._next_valid(middle, high)
            if valid == high or test(self.unit(valid)):
                high = middle
            else:
                low = valid + 1
        return self._next_valid(low, len(self))

    def _next_valid(self, number: int, stop: int) -> int:
        while number < stop:
            window, base, end = self._find(number)
            valid = window.next_valid(number - base, min(stop, end) - base) + base
            if valid < min(stop, end):
                return valid
            number = min(stop, end)
        return stop

    def min_number(self, min_phys: int) -> int:
        return self.first(0, lambda unit: not unit.is_filler and unit.commit_log_offset >= min_phys)

    def max_offset(self) -> int:
        if not self.used:
            first = 0 if self.queue.batch or not self.queue.files else self.queue.files[0].base_offset
            return first // self.queue.unit_size
        last = self.unit(len(self) - 1)
        return last.queue_offset + last.batch_size

    def offset_of(self, number: int) -> int:
        return self.unit(number).queue_offset if number < len(self) else self.max_offset()


def bounds(files: Files, queue: Queue, min_phys: int, notes: list[str] | None = None) -> tuple[int, int]:
    """(first, next) queue offset, as a broker shows them, from a few dozen small reads.

    Fillers and entries of records before `min_phys` (the log's first offset) are not in [first, next); the two are equal in a
    queue without messages.
    """
    units = _Units(files, queue, notes)
    return units.offset_of(units.min_number(min_phys)), units.max_offset()


def first_at_or_after(
    files: Files,
    queue: Queue,
    timestamp_ms: int,
    min_phys: int,
    store_timestamp_of: Callable[[int], int | None],
    notes: list[str] | None = None,
) -> int:
    """The queue offset of the first entry whose record was stored at `timestamp_ms` or later; the next offset for none.

    `store_timestamp_of` gives the storeTimestamp of the record at a commitLogOffset, or None where it can't be read: then the
    search goes on below, so the answer may be too low but not too high. It is called about log2(entries) times. The answer is
    exact only where times ascend with queue offsets: a broker's clock may have been set back.
    """
    units = _Units(files, queue, notes)

    def late_enough(unit: Unit) -> bool:
        found = store_timestamp_of(unit.commit_log_offset)
        return found is None or found >= timestamp_ms

    return units.offset_of(units.first(units.min_number(min_phys), late_enough))


def entry_of(files: Files, root: str, topic: str, queue_id: int, queue_offset: int) -> tuple[int, int] | None:
    """(commitLogOffset, size) of one entry of a queue; None where there is none. That queue's folder alone is listed."""
    if not _is_folder_name(topic) or queue_offset < 0:
        return None
    for kind, batch in _KINDS:
        queue = Queue(topic, queue_id, batch, _number_named(files, f"{root}/{kind}/{topic}/{queue_id}"))
        try:
            unit = _unit_of(files, queue, queue_offset) if queue.files else None
        except StoreChangedError:  # retention takes the oldest files of a live broker's queues
            unit = None
        if unit is not None and unit.is_valid and not unit.is_filler:
            return unit.commit_log_offset, unit.size
    return None


def _unit_of(files: Files, queue: Queue, queue_offset: int) -> Unit | None:
    if queue.batch:
        units = _Units(files, queue, None)
        number = units.first(0, lambda unit: unit.queue_offset >= queue_offset)
        unit = units.unit(number) if number < len(units) else None
        return unit if unit is not None and unit.queue_offset == queue_offset else None
    place = queue_offset * queue.unit_size
    file = next((file for file in reversed(queue.files) if file.base_offset <= place), None)
    if file is None or file.base_offset % queue.unit_size or place + queue.unit_size > file.base_offset + file.length:
        return None
    return decode_unit(_read_all(files, file, place - file.base_offset, queue.unit_size), 0, False)


# --- reading -------------------------------------------------------------------------------------------------------------
def read_entries(
    files: Files,
    queue: Queue,
    *,
    min_phys: int,
    first: int | None = None,
    stop: int | None = None,
    batch: int = _BATCH,
    with_tags: bool = True,
    notes: list[str] | None = None,
) -> Iterator[tuple[QueueFile, Entries]]:
    """The entries of queue offsets [first, stop), in the order of the files; at most `batch` at a time, all of the file given.

    Left out: fillers, entries of records before `min_phys`, invalid units (with a note). An entry of a batch queue is given
    when any of its queue offsets is wanted. Without `with_tags` the tags codes of a plain queue are 0, and it takes less time.

    Errors: StoreChangedError where a file is gone, or shorter than it was listed.
    """
    unit = queue.unit_size
    low = 0 if first is None else first
    high = np.iinfo(np.int64).max if stop is None else stop
    for file, count in used_files(files, queue, notes):
        start, end, base = 0, count, 0
        if not queue.batch:
            base = file.base_offset // unit
            start, end = max(0, low - base), min(count, high - base)
        for at in range(start, end, batch):
            data = _read_all(files, file, at * unit, min(batch, end - at) * unit)
            entries = decode_batch_units(data) if queue.batch else decode_units(data, base + at, with_tags)
            entries = _real(entries, file, queue.batch, at * unit, min_phys, notes)
            if queue.batch:
                wanted = (entries.queue_offset < high) & (entries.queue_offset + entries.batch_size > low)
                entries = entries if wanted.all() else entries[wanted]
            if len(entries):
                yield file, entries


def _real(entries: Entries, file: QueueFile, batch: bool, position: int, min_phys: int, notes: list[str] | None) -> Entries:
    size = entries.size
    lowest = max(min_phys, 0)
    if not batch and size.min() > 0 and size.max() < FILLER_SIZE and entries.commit_log_offset.min() >= lowest:
        return entries  # as nearly always
    valid = entries.is_valid
    if notes is not None and not valid.all():
        notes.append(f"{file.path}: {int((~valid).sum())} invalid units in the {len(entries)} from byte {position} on")
    return entries[valid & ~entries.is_filler & (entries.commit_log_offset >= lowest)]


def resolve_ext(
    files: Files, root: str, queue: Queue, tags_code: npt.NDArray[np.int64], notes: list[str] | None = None
) -> npt.NDArray[np.int64]:
    """`tags_code` (int64) with the addresses replaced by the tagsCode that stands in the queue's consumequeue_ext files.

    An address that leads to no unit there stays as it is, with a note.
    """
    address = is_ext_address(tags_code)
    if not address.any():
        return tags_code
    offsets, place = np.unique(ext_offset(tags_code[address]), return_inverse=True)
    found = tags_code[address]
    answer = np.empty(len(offsets), np.int64)
    known = np.zeros(len(offsets), np.bool_)
    head = EXT_UNIT_HEAD.itemsize
    for file in _number_named(files, f"{root}/{_EXT_FOLDER}/{queue.topic}/{queue.queue_id}"):
        at, end = np.searchsorted(offsets, [file.base_offset, file.base_offset + max(0, file.length - head) + 1]).tolist()
        while at < end:
            start = int(offsets[at])
            upto = min(end, int(np.searchsorted(offsets, start + _EXT_WINDOW)))
            wanted = int(offsets[upto - 1]) + head - start
            data = _read_all(files, file, start - file.base_offset, wanted)
            units = decode_ext_units(data, offsets[at:upto] - start)
            answer[at:upto], known[at:upto] = units.tags_code, units.is_valid
            at = upto
    if notes is not None and not known.all():
        notes.append(
            f"{queue.topic}/{queue.queue_id}: {int((~known).sum())} tags codes are addresses of no unit in {_EXT_FOLDER}, "
            f"the first at byte {int(offsets[~known][0])}"
        )
    resolved = tags_code.copy()
    resolved[address] = np.where(known, answer, 0)[place]
    unresolved = ~known[place]
    resolved[np.flatnonzero(address)[unresolved]] = found[unresolved]
    return resolved
