"""Columns of byte ranges cut out of one buffer without a Python loop.

A binary array is laid over the buffer itself with the offsets start0, end0, start1, end1, ...; taking its even entries copies
the ranges together in C++. The ranges must ascend and not overlap. Ranges of one length are one strided gather instead.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["binary", "decode_utf8", "offsets_of", "text", "utf8"]

Ints = npt.NDArray[np.integer[Any]]

_UNCHECKED = pc.TakeOptions(boundscheck=False)


def binary(buffer: pa.Buffer, starts: Ints, lengths: Ints) -> pa.BinaryArray:
    """`buffer[start : start + length]` for each range, copied: the result does not refer to `buffer`.

    Positions must be below 2 GiB.
    """
    n = len(starts)
    if n == 0:
        return pa.array([], type=pa.binary())
    length = int(lengths[0])
    if length and bool((lengths == length).all()):
        window = np.ndarray((buffer.size - length + 1,), dtype=f"V{length}", buffer=buffer, strides=(1,))
        ends = np.arange(0, (n + 1) * length, length, dtype=np.int32)
        return pa.Array.from_buffers(pa.binary(), n, [None, pa.py_buffer(ends), pa.py_buffer(window[starts])])
    offsets = np.empty(2 * n + 1, dtype=np.int32)
    offsets[0:-1:2] = starts
    np.add(starts, lengths, out=offsets[1::2], casting="unsafe")
    offsets[-1] = offsets[-2]
    laid = pa.Array.from_buffers(pa.binary(), 2 * n, [None, pa.py_buffer(offsets), buffer])
    even = pa.array(np.arange(0, 2 * n, 2, dtype=np.int32))
    return pc.call_function("array_take", [laid, even], _UNCHECKED)


def offsets_of(values: Any) -> npt.NDArray[np.int64]:
    """Where each value of a string or binary array begins in its data buffer, and where the last one ends: int64[n + 1]."""
    if not len(values):
        return np.zeros(1, dtype=np.int64)
    found = np.frombuffer(values.buffers()[1], dtype=np.int32)[values.offset : values.offset + len(values) + 1]
    return found.astype(np.int64)


def text(values: pa.BinaryArray) -> pa.StringArray:
    """The same bytes as strings; bytes that are no UTF-8 become U+FFFD, as in Java's `new String(bytes, UTF_8)`."""
    strings = utf8(values)
    if strings is None:
        return pa.array([None if v is None else decode_utf8(v) for v in values.to_pylist()], type=pa.string())
    return strings


def utf8(values: pa.BinaryArray) -> pa.StringArray | None:
    """The same bytes as strings; None where one of them is no UTF-8."""
    strings = pa.Array.from_buffers(
        pa.string(), len(values), values.buffers(), null_count=values.null_count, offset=values.offset
    )
    try:
        strings.validate(full=True)
    except pa.ArrowInvalid:
        return None
    return strings


def decode_utf8(value: bytes) -> str:
    """One value by the rule of `text`."""
    return value.decode("utf-8", "replace")
