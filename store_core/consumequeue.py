"""Units of queue files, as arrays: bytes in, values out, and back (`ConsumeQueue`, `BatchConsumeQueue`, `ConsumeQueueExt`).

A plain unit stands at byte queueOffset * 20 and says where the record is. A batch unit carries its own queueOffset. An ext
unit is what a plain unit's tagsCode points to when it is an address. Which file holds what is the business of `queues`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from store_core.layout import BATCH_QUEUE_UNIT, EXT_ADDRESS_MAX, EXT_UNIT_HEAD, FILLER_SIZE, QUEUE_UNIT

__all__ = [
    "Entries",
    "ExtUnits",
    "Unit",
    "decode_batch_units",
    "decode_ext_units",
    "decode_unit",
    "decode_units",
    "drop_fillers",
    "encode_batch_units",
    "encode_ext_units",
    "encode_fillers",
    "encode_units",
    "ext_address",
    "ext_offset",
    "is_ext_address",
    "valid_prefix",
]

Bytes = bytes | bytearray | memoryview
Int16 = npt.NDArray[np.int16]
Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_ONE: Final = np.int32(1)
_NO_TAGS: Final = np.int64(0)
_EXT_BASE: Final = 1 << 63
"""An ext address is the unit's byte offset + Long.MIN_VALUE: the same bits with the top one flipped."""


def _is_valid(commit_log_offset: Any, size: Any, queue_offset: Any, batch_size: Any) -> Any:
    """The broker's test in `recover`, on arrays or on single values; zeros fail it by their size."""
    return (commit_log_offset >= 0) & (size > 0) & (queue_offset >= 0) & (batch_size > 0)


def _is_filler(commit_log_offset: Any, size: Any) -> Any:
    return (commit_log_offset == 0) & (size == FILLER_SIZE)


class Unit(NamedTuple):
    """One unit; `queue_offset` is 0 in a plain one, whose place says it."""

    commit_log_offset: int
    size: int
    tags_code: int
    queue_offset: int
    batch_size: int

    @property
    def is_valid(self) -> bool:
        """Whether a broker takes it for a unit. Fillers are valid."""
        return bool(_is_valid(self.commit_log_offset, self.size, self.queue_offset, self.batch_size))

    @property
    def is_filler(self) -> bool:
        return bool(_is_filler(self.commit_log_offset, self.size))


@dataclass(frozen=True, slots=True)
class Entries:
    """Queue entries as native arrays of one length: int64, int64, int32, int64, int32.

    An entry stands for the queue offsets [queue_offset, queue_offset + batch_size); batch_size is 1 in a plain queue. To be
    read, not written: a column of equal values may be one value without strides.
    """

    queue_offset: Int64
    commit_log_offset: Int64
    size: Int32
    tags_code: Int64
    batch_size: Int32

    def __len__(self) -> int:
        return len(self.commit_log_offset)

    def __getitem__(self, which: slice | Mask | Int64) -> Entries:
        """The entries of a slice (views), or of a mask or positions (copies)."""
        return Entries(
            self.queue_offset[which],
            self.commit_log_offset[which],
            self.size[which],
            self.tags_code[which],
            self.batch_size[which],
        )

    @classmethod
    def concat(cls, parts: Sequence[Entries]) -> Entries:
        """All parts, one behind the other; no entries for no parts."""
        if not parts:
            return decode_units(b"", 0)
        return cls(*(np.concatenate(columns) for columns in zip(*map(_columns, parts), strict=True)))

    @property
    def is_valid(self) -> Mask:
        """Which ones a broker takes for units. Fillers are valid."""
        mask: Mask = _is_valid(self.commit_log_offset, self.size, self.queue_offset, self.batch_size)
        return mask

    @property
    def is_filler(self) -> Mask:
        """Which ones only pad a queue's first file."""
        mask: Mask = _is_filler(self.commit_log_offset, self.size)
        return mask


def _columns(entries: Entries) -> tuple[Any, ...]:
    return entries.queue_offset, entries.commit_log_offset, entries.size, entries.tags_code, entries.batch_size


def valid_prefix(entries: Entries) -> int:
    """How many entries stand before the first invalid one."""
    invalid = ~entries.is_valid
    return int(invalid.argmax()) if invalid.any() else len(entries)


def drop_fillers(entries: Entries) -> Entries:
    """The entries that are no fillers; the same object where there are none."""
    filler = entries.is_filler
    return entries[~filler] if filler.any() else entries


def _units(data: Bytes, unit: np.dtype[np.void]) -> npt.NDArray[np.void]:
    return np.frombuffer(data, unit, count=len(data) // unit.itemsize)


def decode_units(data: Bytes, first_queue_offset: int, with_tags: bool = True) -> Entries:
    """Plain 20-byte units; the first has `first_queue_offset`. Bytes behind the last whole unit are left out.

    `with_tags` False leaves tags_code 0, for callers that only want places.
    """
    units = _units(data, QUEUE_UNIT)
    count = len(units)
    return Entries(
        np.arange(first_queue_offset, first_queue_offset + count, dtype=np.int64),
        units["commitLogOffset"].astype(np.int64),
        units["size"].astype(np.int32),
        units["tagsCode"].astype(np.int64) if with_tags else np.broadcast_to(_NO_TAGS, count),
        np.broadcast_to(_ONE, count),
    )


def encode_units(entries: Entries) -> bytes:
    """Plain units, in the order of the entries: their queue offsets must be consecutive, since only their place states them."""
    units = np.empty(len(entries), QUEUE_UNIT)
    units["commitLogOffset"] = entries.commit_log_offset
    units["size"] = entries.size
    units["tagsCode"] = entries.tags_code
    return units.tobytes()


def encode_fillers(count: int) -> bytes:
    """`count` plain units in front of the first message of a queue that does not start at a file's start."""
    units = np.zeros(count, QUEUE_UNIT)
    units["size"] = FILLER_SIZE
    return units.tobytes()


def decode_batch_units(data: Bytes) -> Entries:
    """46-byte units of a batchconsumequeue. Bytes behind the last whole unit are left out."""
    units = _units(data, BATCH_QUEUE_UNIT)
    return Entries(
        units["queueOffset"].astype(np.int64),
        units["commitLogOffset"].astype(np.int64),
        units["size"].astype(np.int32),
        units["tagsCode"].astype(np.int64),
        units["batchSize"].astype(np.int32),
    )


def encode_batch_units(entries: Entries, store_timestamp: Int64, compacted_offset: int = -1) -> bytes:
    """Batch units; `store_timestamp` in ms, one for each entry. -1 is what a broker writes as compactedOffset."""
    units = np.zeros(len(entries), BATCH_QUEUE_UNIT)
    units["commitLogOffset"] = entries.commit_log_offset
    units["size"] = entries.size
    units["tagsCode"] = entries.tags_code
    units["storeTimestamp"] = store_timestamp
    units["queueOffset"] = entries.queue_offset
    units["batchSize"] = entries.batch_size
    units["compactedOffset"] = compacted_offset
    return units.tobytes()


def _reader_of_one(unit: np.dtype[np.void]) -> Callable[[Bytes, int], tuple[Any, ...]]:
    """A `struct` reader of the same layout: for one unit it takes a tenth of numpy's time."""
    codes = {2: "h", 4: "i", 8: "q"}
    return struct.Struct(">" + "".join(codes[unit[name].itemsize] for name in unit.names or ())).unpack_from


_ONE_UNIT: Final = _reader_of_one(QUEUE_UNIT)
_ONE_BATCH_UNIT: Final = _reader_of_one(BATCH_QUEUE_UNIT)


def decode_unit(data: Bytes, position: int, batch: bool) -> Unit:
    """The one unit at `position`, for searches that look at a few."""
    if batch:
        offset, size, tags, _, queue_offset, count, *_ = _ONE_BATCH_UNIT(data, position)
        return Unit(offset, size, tags, queue_offset, count)
    offset, size, tags = _ONE_UNIT(data, position)
    return Unit(offset, size, tags, 0, 1)


# --- ext -----------------------------------------------------------------------------------------------------------------
def is_ext_address(tags_code: Int64) -> Mask:
    """Which tags codes are addresses in consumequeue_ext (`ConsumeQueueExt#isExtAddr`): no hash and no time is that low."""
    mask: Mask = tags_code <= EXT_ADDRESS_MAX
    return mask


def ext_offset(tags_code: Int64) -> Int64:
    """int64 byte offsets in the ext files, for tags codes that are addresses."""
    return (tags_code.view(np.uint64) ^ np.uint64(_EXT_BASE)).view(np.int64)


def ext_address(offset: Int64) -> Int64:
    """int64 tags codes that stand for these byte offsets in the ext files."""
    return ext_offset(offset)


@dataclass(frozen=True, slots=True)
class ExtUnits:
    """Ext units as native arrays of one length: int16 (bytes of the unit; <= 0 is no unit), int64, int64 (ms)."""

    size: Int16
    tags_code: Int64
    store_timestamp: Int64

    @property
    def is_valid(self) -> Mask:
        """Which ones are units: a closed file's end or free space is not."""
        mask: Mask = self.size >= EXT_UNIT_HEAD.itemsize
        return mask


def decode_ext_units(data: Bytes, positions: Int64) -> ExtUnits:
    """The ext units at `positions` in `data`; each must have its 20-byte head inside. The filter bit maps are left alone."""
    head = EXT_UNIT_HEAD.itemsize
    if len(positions) == 0:
        units = np.zeros(0, EXT_UNIT_HEAD)
    else:
        windows = np.lib.stride_tricks.sliding_window_view(np.frombuffer(data, np.uint8), head)
        units = np.ascontiguousarray(windows[positions]).view(EXT_UNIT_HEAD)[:, 0]
    return ExtUnits(
        units["size"].astype(np.int16), units["tagsCode"].astype(np.int64), units["storeTimestamp"].astype(np.int64)
    )


def encode_ext_units(units: ExtUnits, bit_maps: npt.NDArray[np.uint8]) -> bytes:
    """Ext units one behind the other; `bit_maps` is (n, m) uint8, and each unit takes 20 + m bytes.

    Where a unit does not fit its file is the caller's to know: it closes the file with an i16 of -1.
    """
    count, width = bit_maps.shape
    rows = np.zeros(count, np.dtype([("head", EXT_UNIT_HEAD), ("map", np.uint8, (width,))]))
    rows["head"]["size"] = EXT_UNIT_HEAD.itemsize + width
    rows["head"]["tagsCode"] = units.tags_code
    rows["head"]["storeTimestamp"] = units.store_timestamp
    rows["head"]["bitMapSize"] = width
    rows["map"] = bit_maps
    return rows.tobytes()
