"""Java's `String.hashCode`, and what RocketMQ makes of it: the key hash of the index, the tagsCode of the queues.

`IndexFile#indexKeyHashMethod`, `IndexService#buildKey`, `MessageExtBrokerInner#tagsString2tagsCode`. The hash runs over
UTF-16 units u0, u1, ... as u0 * 31**(n-1) + u1 * 31**(n-2) + ... in 32 bits. 31 has an inverse modulo 2**32, so a column is
hashed by one running sum of u[p] * 31**-p over all its strings: a string's share of the sum, times 31**(end - 1), is its
hash, whatever its length. Strings of about one length, as keys mostly are, make a table instead, which is multiplied by the
powers.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from operator import mul
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from store_core import ragged

__all__ = [
    "KEY_SEPARATOR",
    "Hashes",
    "joined_key_hashes",
    "key_hash",
    "key_hashes",
    "prefix_hashes",
    "span_hashes",
    "string_hash",
    "string_hashes",
    "tags_code",
]

KEY_SEPARATOR: Final = "#"
"""Between topic and key in an indexed key string."""
_INVERSE: Final = pow(31, -1, 1 << 32)
_MIN: Final = -(1 << 31)
_POWERS: Final = tuple(pow(31, n, 1 << 32) for n in range(255, -1, -1))
"""31**255 ... 31**0: the last n of them are the weights of n units."""
_RUN: Final = 1 << 18
"""Bytes of strings that are hashed at once: the tables of powers stay in the cache."""

Hashes = npt.NDArray[np.uint32]
"""As they add up; a Java int is `.view(np.int32)` of them."""


def string_hash(text: str) -> int:
    """`String.hashCode` of one string: a signed 32-bit int. Lone surrogates count as the units they are."""
    units: bytes | memoryview
    try:
        units = text.encode("latin-1")
    except UnicodeEncodeError:
        # native byte order without a byte order mark
        units = np.frombuffer(text.encode("utf-16-le", "surrogatepass"), dtype="<u2").astype(np.uint16).data
    count = len(units)
    if count <= len(_POWERS):
        value = sum(map(mul, units, _POWERS[-count:])) if count else 0
    else:
        value = 0
        for unit in units:
            value = (31 * value + unit) & 0xFFFFFFFF
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def string_hashes(array: pa.StringArray) -> npt.NDArray[np.int32]:
    """`String.hashCode` of each value: int32[n]. A null hashes like the empty string, to 0."""
    return _hash(array)[0].view(np.int32)


def key_hash(topic: str, key: str) -> int:
    """The keyHash of an index entry: |hashCode(topic#key)|, 0 for the one value that has no absolute value; 0 ... 2**31 - 1.

    A tag is indexed (5.4.0 on) under the key `T#` + TAGS.
    """
    value = string_hash(f"{topic}{KEY_SEPARATOR}{key}")
    return 0 if value == _MIN else abs(value)


def key_hashes(topics: pa.StringArray | pa.DictionaryArray, keys: pa.StringArray | pa.DictionaryArray) -> npt.NDArray[np.int32]:
    """`key_hash` of each pair: int32[n]. A null counts as the empty string."""
    # hash(a + b) = hash(a) * 31**len(b) + hash(b): topics are few, and no joined strings are made
    names = topics.dictionary_encode()
    prefixes = np.append(prefix_hashes(names.dictionary), np.uint32(ord(KEY_SEPARATOR)))
    topic = prefixes[names.indices.fill_null(len(prefixes) - 1).to_numpy(zero_copy_only=False)]
    return joined_key_hashes(topic, *_hash(keys))


def prefix_hashes(topics: pa.StringArray, more: str = "") -> Hashes:
    """The hash of `topic#` + more for each topic: what stands in front of a key in an indexed key string."""
    join: Any = pc.binary_join_element_wise
    return _hash(join(topics, "", KEY_SEPARATOR + more))[0]


def joined_key_hashes(prefixes: Hashes, hashes: Hashes, units: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
    """The keyHash of key strings of two parts, by the hashes of both and the UTF-16 units of the second: int32[n]."""
    longest = int(units.max()) if len(units) else 0
    signed = (prefixes * _powers(31, longest + 1)[units] + hashes).view(np.int32)
    return np.where(signed == _MIN, np.int32(0), np.abs(signed))


def span_hashes(
    data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64], *, ascii: bool
) -> tuple[Hashes, npt.NDArray[np.int64]]:
    """(`String.hashCode`, UTF-16 units) of the UTF-8 strings data[start : start + length], which ascend and do not overlap.

    `ascii`: whether all of them surely are.
    """
    longest = int(lengths.max()) if len(lengths) else 0
    if not ascii or not 0 < longest <= len(_POWERS) or longest * len(lengths) > 2 * int(lengths.sum()):
        return _hash(ragged.text(ragged.binary(pa.py_buffer(data), starts, lengths)))
    if int(starts[-1]) + longest > len(data):
        data = np.concatenate([data, np.zeros(longest, dtype=np.uint8)])
    window = np.ndarray((len(data) - longest + 1,), dtype=f"V{longest}", buffer=data, strides=(1,))
    table = window[starts].view(np.uint8).reshape(-1, longest)
    if int(lengths.min()) == longest:
        return _weighed(table, _powers(31, longest)[::-1]), lengths
    table *= np.arange(longest) < lengths[:, None]
    # the strings stand at the left here: what each is short of the longest is divided out of the weights
    return _weighed(table, _powers(_INVERSE, longest)) * _powers(31, longest)[np.maximum(lengths - 1, 0)], lengths


def _weighed(table: npt.NDArray[np.uint8], weights: Hashes) -> Hashes:
    found: Hashes = np.einsum("ij,j->i", table.astype(np.uint32), weights)
    return found


def tags_code(tags: pa.StringArray) -> npt.NDArray[np.int64]:
    """The tagsCode of messages with these TAGS: int64[n], the hash sign-extended; 0 for null and empty."""
    return string_hashes(tags).astype(np.int64)


def _hash(array: Any) -> tuple[Hashes, npt.NDArray[np.int64]]:
    """(hash, UTF-16 units) of each value."""
    if array.null_count:
        array = array.fill_null("")
    count = len(array)
    hashes = np.zeros(count, dtype=np.uint32)
    lengths = np.zeros(count, dtype=np.int64)
    _, offset_buffer, data = array.buffers()
    if not count or data is None:
        return hashes, lengths
    offsets = np.frombuffer(offset_buffer, dtype=np.int32)[array.offset : array.offset + count + 1].astype(np.int64)
    for first, last in _runs(offsets):
        start, end = int(offsets[first]), int(offsets[last])
        text = np.frombuffer(data, dtype=np.uint8, count=end - start, offset=start)
        places = offsets[first : last + 1] - start
        units: npt.NDArray[Any] = text
        if len(text) and int(text.max()) >= 0x80:
            units, places = _utf16(text, places)
        each = lengths[first:last] = np.diff(places)
        longest = int(each.max())
        alike = units is text and 0 < longest <= len(_POWERS) and longest * len(each) <= 2 * len(text)
        hashes[first:last] = _of_table(text, places, each, longest) if alike else _of_runs(units, places)
    return hashes, lengths


def _of_table(text: npt.NDArray[np.uint8], places: npt.NDArray[np.int64], each: npt.NDArray[np.int64], longest: int) -> Hashes:
    """The hashes of strings of about one length: a table with a row for each, its end at the right, times the powers of 31."""
    padded = np.concatenate([np.zeros(longest, dtype=np.uint8), text])
    window = np.ndarray((len(text) + 1,), dtype=f"V{longest}", buffer=padded.data, strides=(1,))
    table = window[places[1:]].view(np.uint8).reshape(-1, longest)
    if int(each.min()) < longest:
        table *= np.arange(longest) >= (longest - each)[:, None]
    return _weighed(table, _powers(31, longest)[::-1])


def _of_runs(units: npt.NDArray[Any], places: npt.NDArray[np.int64]) -> Hashes:
    """The hashes of strings of any lengths: each one's share of a running sum."""
    total = len(units)
    running = np.zeros(total + 1, dtype=np.uint32)
    np.cumsum(units * _powers(_INVERSE, total), dtype=np.uint32, out=running[1:])
    share = running[places[1:]] - running[places[:-1]]
    # an empty string's share is 0, so its weight does not matter
    found: Hashes = share * _powers(31, total + 1)[np.maximum(places[1:] - 1, 0)]
    return found


def _runs(offsets: npt.NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Ranges of values with about _RUN bytes each, at least one value."""
    first, count = 0, len(offsets) - 1
    while first < count:
        last = int(np.searchsorted(offsets, offsets[first] + _RUN, side="right")) - 1
        last = min(max(last, first + 1), count)
        yield first, last
        first = last


def _utf16(text: npt.NDArray[np.uint8], places: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.uint16], npt.NDArray[np.int64]]:
    """UTF-8 bytes and the offsets of strings in them as UTF-16 units and offsets in these."""
    units = np.frombuffer(text.tobytes().decode("utf-8").encode("utf-16-le"), dtype="<u2").astype(np.uint16)
    # a lead byte stands for one unit, that of a four-byte character for two, a continuation byte for none
    before = np.zeros(len(text) + 1, dtype=np.int64)
    np.cumsum((text & 0xC0 != 0x80).astype(np.int8) + (text >= 0xF0), dtype=np.int64, out=before[1:])
    return units, before[places]


def _powers(base: int, count: int) -> Hashes:
    """base**0 ... base**(count - 1) modulo 2**32."""
    size = 1 << max(count - 1, 255).bit_length()
    return (_table(base, size) if size <= 2 * _RUN else _make_table(base, size))[:count]


def _make_table(base: int, size: int) -> Hashes:
    table = np.full(size, base, dtype=np.uint32)
    table[0] = 1
    np.cumprod(table, dtype=np.uint32, out=table)
    table.flags.writeable = False
    return table


_table = lru_cache(maxsize=32)(_make_table)
