"""Units of a queue by their queueOffset, whatever stands there: valid, filler, zeros, or no file at all.

`queues` reads a queue as a broker does, up to its first free unit; a check has to look at a place whatever is in front of it.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
import numpy.typing as npt

from store_core.consumequeue import Entries, decode_batch_units, decode_units
from store_core.files import Files
from store_core.layout import BATCH_QUEUE_UNIT
from store_core.queues import Queue, QueueFile

__all__ = ["Slots", "slot_place", "units_at"]

Int64 = npt.NDArray[np.int64]

_NEAR: Final = 64
"""Units between two that are wanted which are read along with them."""
_BATCH_READ: Final = 1024


@dataclass(frozen=True, slots=True)
class Slots:
    """What stands at some queueOffsets: `valid` bool[n] (no filler), `commit_log_offset` int64[n] (where valid)."""

    valid: npt.NDArray[np.bool_]
    commit_log_offset: Int64


def units_at(files: Files, queue: Queue, numbers: Int64) -> Slots:
    """The units at the queueOffsets `numbers` (ascending). A batch unit counts where its own queueOffset is the number."""
    if queue.batch:
        return _batch_units_at(files, queue, numbers)
    unit = queue.unit_size
    valid = np.zeros(len(numbers), dtype=bool)
    places = np.zeros(len(numbers), dtype=np.int64)
    for file in queue.files:
        base = file.base_offset // unit
        low, high = np.searchsorted(numbers, [base, base + file.length // unit]).tolist()
        if low >= high:
            continue
        inside = numbers[low:high]
        cuts = np.flatnonzero(np.diff(inside) > _NEAR) + 1
        for run in np.split(np.arange(low, high), cuts):
            first, last = int(numbers[run[0]]), int(numbers[run[-1]])
            data = files.read(file.path, (first - base) * unit, (last - first + 1) * unit)
            entries = decode_units(data, first, with_tags=False)
            at = numbers[run] - first
            there = at < len(entries)
            run, at = run[there], at[there]
            valid[run] = (entries.is_valid & ~entries.is_filler)[at]
            places[run] = entries.commit_log_offset[at]
    return Slots(valid, places)


def _batch_units_at(files: Files, queue: Queue, numbers: Int64) -> Slots:
    """By search: a batch queue's units ascend by their queueOffset, and are placed one behind the other."""
    valid = np.zeros(len(numbers), dtype=bool)
    places = np.zeros(len(numbers), dtype=np.int64)
    if not len(numbers):
        return Slots(valid, places)
    first, last = int(numbers[0]), int(numbers[-1])
    for file in queue.files:
        count = file.length // queue.unit_size
        at = max(bisect_left(range(count), first, key=partial(_number, files, file)) - 1, 0)
        while at < count:
            entries = _batch(files, file, at, min(_BATCH_READ, count - at))
            sound = entries[entries.is_valid]
            slot = np.searchsorted(numbers, sound.queue_offset)
            hit = (slot < len(numbers)) & (numbers[np.minimum(slot, len(numbers) - 1)] == sound.queue_offset)
            valid[slot[hit]] = True
            places[slot[hit]] = sound.commit_log_offset[hit]
            if len(sound) < len(entries) or int(sound.queue_offset[-1]) > last:
                break
            at += len(entries)
    return Slots(valid, places)


def _batch(files: Files, file: QueueFile, at: int, count: int) -> Entries:
    unit = BATCH_QUEUE_UNIT.itemsize
    return decode_batch_units(files.read(file.path, at * unit, count * unit))


def _number(files: Files, file: QueueFile, at: int) -> int:
    """The queueOffset of unit `at`; beyond all numbers where none stands."""
    entries = _batch(files, file, at, 1)
    return int(entries.queue_offset[0]) if len(entries) and entries.is_valid[0] else (1 << 63) - 1


def slot_place(queue: Queue, number: int) -> tuple[str, int | None]:
    """(file, byte in it) where the unit of a queueOffset stands or should; the byte is None where no file reaches there."""
    last = queue.files[-1]
    if queue.batch:
        return last.path, None
    position = number * queue.unit_size
    for file in queue.files:
        if file.base_offset <= position < file.base_offset + file.length:
            return file.path, position - file.base_offset
    return last.path, None
