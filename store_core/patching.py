"""The fields of packed records that depend on where they go, put into them in one pass over a buffer. Pure."""

from __future__ import annotations

import zlib
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from store_core.layout import CRC_MASK, CRC_PROPERTY, CRC_PROPERTY_SIZE, RECORD_HEADS, V6_BORN_FLAG, V6_STORE_FLAG

__all__ = ["field_position", "patch"]

_V6: Final = V6_BORN_FLAG | V6_STORE_FLAG
_STEP: Final = V6_BORN_FLAG
_PLACE: Final = np.dtype([("queueOffset", ">i8"), ("commitLogOffset", ">i8")])
_PLACES: Final[Any] = RECORD_HEADS[0].fields
_PLACE_AT: Final[int] = _PLACES["queueOffset"][1]
_DIGITS: Final = 10
_DIGITS_AT: Final = CRC_PROPERTY_SIZE - len(CRC_PROPERTY) - 1
"""The CRC's digits begin so many bytes before a record's end."""
_POWERS: Final = 10 ** np.arange(_DIGITS, dtype=np.int64)

_Longs = npt.NDArray[np.int64]


def _positions(name: str) -> _Longs:
    heads: list[Any] = [RECORD_HEADS[flags * _STEP].fields for flags in range(4)]
    return np.array([fields[name][1] for fields in heads], np.int64)


_POSITIONS: Final = {name: _positions(name) for name in ("storeTimestamp", "preparedTransactionOffset")}


def field_position(name: str, sys_flag: npt.NDArray[np.int32]) -> _Longs:
    """Where the field `name` (storeTimestamp, preparedTransactionOffset) stands in records with these flags."""
    return _POSITIONS[name][(sys_flag & _V6) // _STEP]


def patch(
    data: memoryview,
    records: npt.NDArray[np.void],
    lifted: _Longs,
    prepared: tuple[_Longs, _Longs],
) -> None:
    """Puts queueOffset and commitLogOffset into each record of `data`, which are described (DESCRIBED) by `records`, one behind
    the other; storeTimestamp into those of the indexes `lifted`; preparedTransactionOffset into those of prepared[0], from
    prepared[1]. At last `__CRC32#` where it is.
    """
    sizes = records["size"].astype(np.int64)
    ends = np.cumsum(sizes)
    starts = ends - sizes
    places = np.empty(len(records), _PLACE)
    places["queueOffset"] = records["queueOffset"]
    places["commitLogOffset"] = records["commitLogOffset"]
    _scatter(data, starts + _PLACE_AT, places)
    flags = records["sysFlag"]
    for name, which, values in (
        ("storeTimestamp", lifted, records["storeTimestamp"][lifted]),
        ("preparedTransactionOffset", *prepared),
    ):
        if len(which):
            _scatter(data, starts[which] + field_position(name, flags[which]), values.astype(">i8"))
    with_crc = np.flatnonzero(records["hasCrc"])
    if len(with_crc):
        stops = ends[with_crc] - CRC_PROPERTY_SIZE
        spans = zip(starts[with_crc].tolist(), stops.tolist(), strict=True)
        crcs = np.array([zlib.crc32(data[start:stop]) & CRC_MASK for start, stop in spans], np.int64)
        digits = (crcs[:, None] // _POWERS % 10 + ord("0")).astype(np.uint8)  # the least significant first
        _scatter(data, ends[with_crc] - _DIGITS_AT, digits.view(f"V{_DIGITS}")[:, 0])


def _scatter(data: memoryview, positions: _Longs, values: npt.NDArray[Any]) -> None:
    """data[position : position + itemsize] = value, for each."""
    width = values.dtype.itemsize
    np.ndarray((len(data) - width + 1,), f"V{width}", data, strides=(1,))[positions] = values.view(f"V{width}")
