"""The properties string of a record: `name 0x01 value 0x02`, repeated, the last 0x02 optional
(`MessageDecoder#string2messageProperties`).

Whole batches are split by the positions of their separators. RocketMQ's rules hold: an empty name or value is dropped, a second
0x01 belongs to the value, and where a name stands twice the last one wins.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from store_core import ragged
from store_core.layout import SEPARATOR_NAME, SEPARATOR_PAIR

__all__ = ["Pairs", "Spans", "Uniform", "encode_properties", "parse_properties", "split"]

_PREFIX: Final = 8
_MASKS: Final = np.array([(1 << (8 * n)) - 1 for n in range(_PREFIX + 1)], dtype=np.uint64)
"""By name length: which of a little-endian word's bytes belong to the name."""
_TILE: Final = 1024
_TILED: Final = 4096
"""Names of more bytes are not kept 1,024 times: a record's only name may have 32 KiB."""


@dataclass(frozen=True, slots=True)
class Spans:
    """One value for each row where it stands: the bytes data[start : start + length], ascending; length 0 for no value."""

    data: npt.NDArray[np.uint8]
    starts: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Pairs:
    """All properties of `rows` records: m pairs, record by record.

    `first`: int64[rows + 1], which pair each record's begin with; `name_start`, `name_end`, `value_end`: int64[m] positions in
    `data` (a value starts behind the 0x01 at name_end); `code`: uint64[m], the first eight bytes of each name.
    `template`: how many pairs each record has, if all records have the same names in the same order; else 0.
    """

    rows: int
    data: npt.NDArray[np.uint8]
    first: npt.NDArray[np.int64]
    name_start: npt.NDArray[np.int64]
    name_end: npt.NDArray[np.int64]
    value_end: npt.NDArray[np.int64]
    code: npt.NDArray[np.uint64]
    template: int

    def values(self, name: str) -> pa.StringArray:
        """The values of one property, one per record, null where a record has it not."""
        row, hit = self._last(name)
        if not len(hit):
            return pa.nulls(self.rows, pa.string())
        found = ragged.text(self._cut(self.name_end[hit] + 1, self.value_end[hit]))
        if len(hit) == self.rows:
            return found
        place = np.full(self.rows, -1, dtype=np.int64)
        place[row] = np.arange(len(hit))
        return found.take(pa.array(place, mask=place < 0))

    def spans(self, name: str) -> Spans:
        """The values of one property where they stand, one per record."""
        row, hit = self._last(name)
        if len(hit) == self.rows:
            starts = self.name_end[hit] + 1
            return Spans(self.data, starts, self.value_end[hit] - starts)
        # where there is none, a start between those of its neighbours: they ascend
        starts = np.append(self.name_start, len(self.data))[self.first[:-1]]
        lengths = np.zeros(self.rows, dtype=np.int64)
        starts[row] = self.name_end[hit] + 1
        lengths[row] = self.value_end[hit] - starts[row]
        return Spans(self.data, starts, lengths)

    def _last(self, name: str) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """(row, pair) of each record that has the property; of several pairs of one record the last."""
        raw = name.encode()
        # in a template the first record speaks for all
        scope = slice(0, self.template or len(self.code))
        prefix = np.uint64(int.from_bytes(raw[:_PREFIX], "little"))
        hit = np.flatnonzero((self.code[scope] == prefix) & (self.name_end[scope] - self.name_start[scope] == len(raw)))
        if len(raw) > _PREFIX and len(hit):
            names = self._cut(self.name_start[hit], self.name_end[hit]).to_pylist()
            hit = hit[[stored == raw for stored in names]]
        if self.template and len(hit):
            every = np.arange(self.rows, dtype=np.int64)
            return every, every * self.template + int(hit[-1])
        row = np.searchsorted(self.first, hit, side="right") - 1
        if not (row[1:] > row[:-1]).all():
            last = np.append(row[1:] != row[:-1], True)
            row, hit = row[last], hit[last]
        return row, hit

    def to_map(self) -> pa.MapArray:
        """map<string, string> per record, empty where a record has no properties."""
        first, name_end, value_end = self.first, self.name_end, self.value_end
        # in a template the first record's names are all records'
        scope = slice(0, self.template or len(self.code))
        stored = self._cut(self.name_start[scope], name_end[scope])
        names = ragged.utf8(stored)
        # names that differ may become one name when what is no UTF-8 in them becomes U+FFFD
        twice = names is None or self._has_equal_names()
        if names is None:
            names = ragged.text(stored)
        if self.template:
            names = _repeated(tuple(stored.to_pylist()), self.rows)
        if twice:
            keep = self._last_of_each(names)
            first = np.concatenate([[0], np.cumsum(keep)])[first]
            names, name_end, value_end = names.filter(pa.array(keep)), name_end[keep], value_end[keep]
        values = ragged.text(self._cut(name_end + 1, value_end))
        return pa.MapArray.from_arrays(pa.array(first.astype(np.int32)), names, values)

    def _cut(self, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> pa.BinaryArray:
        return ragged.binary(pa.py_buffer(self.data), starts, ends - starts)

    def _last_of_each(self, names: pa.StringArray) -> npt.NDArray[np.bool_]:
        """Which pairs stay once earlier ones of the same name, of `names` (one for each pair), are gone from each record."""
        ids = np.asarray(names.dictionary_encode().indices, dtype=np.int64)
        by_name = np.repeat(np.arange(self.rows), np.diff(self.first)) * (int(ids.max()) + 1) + ids
        keep = np.zeros(len(ids), dtype=bool)
        # np.unique keeps the first of each: look from the end
        _, last = np.unique(by_name[::-1], return_index=True)
        keep[len(ids) - 1 - last] = True
        return keep

    def _has_equal_names(self) -> bool:
        """Whether a record has one name, as stored, twice."""
        rows, scope = (1, slice(0, self.template)) if self.template else (self.rows, slice(None))
        code, start, end = self.code[scope], self.name_start[scope], self.name_end[scope]
        length = end - start
        each = np.diff(self.first[: rows + 1])
        row = np.repeat(np.arange(rows), each)
        # pairs of one record are at most so many places apart
        for apart in range(1, int(each.max(initial=0))):
            same = (code[apart:] == code[:-apart]) & (row[apart:] == row[:-apart])
            later = np.flatnonzero(same) + apart
            later = later[length[later] == length[later - apart]]
            if not len(later):
                continue
            longer = later[length[later] > _PREFIX]  # of these the code is but the beginning
            if len(longer) < len(later):
                return True
            names, before = (self._cut(start[at], end[at]) for at in (longer, longer - apart))
            if pc.any(pc.equal(names, before)).as_py():
                return True
        return False


def _repeated(names: tuple[bytes, ...], rows: int) -> pa.StringArray:
    """`names`, once for each of the rows."""
    if sum(map(len, names)) > _TILED:
        return ragged.text(pa.array(names * rows, type=pa.binary()))
    return _tile(names, -(-rows // _TILE) * _TILE)[: rows * len(names)]


@functools.lru_cache(maxsize=16)
def _tile(names: tuple[bytes, ...], rows: int) -> pa.StringArray:
    """`names`, `rows` times over; kept, since the batches of a scan have few different templates."""
    return ragged.text(pa.array(names * rows, type=pa.binary()))


@dataclass(frozen=True, slots=True)
class Uniform:
    """The properties of records that all have one shape: the same names at the same places. One producer's messages often do.

    `data`: uint8[rows, length], the strings; `values_at`: by name (as stored), where its value stands in each row.
    """

    rows: int
    data: npt.NDArray[np.uint8]
    values_at: dict[bytes, tuple[int, int]]

    @classmethod
    def of(cls, data: npt.NDArray[np.uint8]) -> Uniform | None:
        """The strings data[row] (uint8[rows, length], rows > 0) if they have one shape, else None."""
        first = data[0].tobytes()
        values_at: dict[bytes, tuple[int, int]] = {}
        fixed = np.full(len(first), 0xFF, dtype=np.uint8)
        position = 0
        for pair in first.split(bytes([SEPARATOR_PAIR])):
            name, mark, value = pair.partition(bytes([SEPARATOR_NAME]))
            if mark and name and value:
                span = (position + len(name) + 1, position + len(pair))
                fixed[slice(*span)] = 0
                values_at.pop(name, None)  # the last one wins, and stands where it stands
                values_at[name] = span
            position += len(pair) + 1
        if len({ragged.decode_utf8(name) for name in values_at}) < len(values_at):
            return None  # names that differ in what is no UTF-8 only: one name, once they are text
        marks = int(np.count_nonzero(data[0] <= SEPARATOR_PAIR))
        if np.count_nonzero(data <= SEPARATOR_PAIR) != marks * len(data):
            return None
        differs = data ^ data[0]
        differs &= fixed
        return None if differs.any() else cls(len(data), data, values_at)

    def values(self, name: str) -> pa.StringArray:
        """See `Pairs.values`."""
        span = self.values_at.get(name.encode())
        if span is None:
            return pa.nulls(self.rows, pa.string())
        return _strings(np.ascontiguousarray(self.data[:, slice(*span)]), np.array([span[1] - span[0]]))

    def spans(self, name: str) -> Spans:
        """See `Pairs.spans`."""
        start, stop = self.values_at.get(name.encode(), (0, 0))
        starts = np.arange(start, self.data.size, self.data.shape[1])[: self.rows]
        return Spans(self.data.reshape(-1), starts, np.full(self.rows, stop - start))

    def to_map(self) -> pa.MapArray:
        """See `Pairs.to_map`."""
        count = len(self.values_at)
        widths = np.array([stop - start for start, stop in self.values_at.values()], dtype=np.int64)
        stored = np.empty((self.rows, int(widths.sum())), dtype=np.uint8)
        at = 0
        for start, stop in self.values_at.values():
            stored[:, at : at + stop - start] = self.data[:, start:stop]
            at += stop - start
        names = _repeated(tuple(self.values_at), self.rows)
        first = np.arange(self.rows + 1, dtype=np.int32) * np.int32(count)
        return pa.MapArray.from_arrays(pa.array(first), names, _strings(stored, widths))


def _strings(stored: npt.NDArray[np.uint8], widths: npt.NDArray[np.int64]) -> pa.StringArray:
    """Each row of `stored` (uint8[rows, sum of widths]) cut into strings of these widths."""
    rows, width = stored.shape
    ends = np.zeros(rows * len(widths) + 1, dtype=np.int32)
    ends[1:].reshape(rows, len(widths))[:] = np.arange(rows)[:, None] * width + np.cumsum(widths)
    return ragged.text(pa.Array.from_buffers(pa.binary(), len(ends) - 1, [None, pa.py_buffer(ends), pa.py_buffer(stored)]))


def split(buffer: pa.Buffer, starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> Pairs | Uniform:
    """Each record's properties, `buffer[start : start + length]`, taken apart; `buffer` has a byte behind the last range."""
    rows = len(starts)
    if rows and (length := int(lengths[0])) and bool((lengths == length).all()):
        window = np.ndarray((buffer.size - length + 1,), dtype=f"V{length}", buffer=buffer, strides=(1,))
        uniform = Uniform.of(window[starts].view(np.uint8).reshape(rows, length))
        if uniform is not None:
            return uniform
    stored = np.ndarray((buffer.size,), dtype=np.uint8, buffer=buffer)
    closed = stored[starts + np.maximum(lengths - 1, 0)] == SEPARATOR_PAIR
    # where a string lacks its last 0x02, one byte more is copied and made one; where it has one, that only adds an empty pair
    extra = 0 if closed.all() else 1
    strings = ragged.binary(buffer, starts, lengths + extra)
    _, offset_buffer, data_buffer = strings.buffers()
    ends = np.ndarray((rows + 1,), dtype=np.int32, buffer=offset_buffer)[1:].astype(np.int64)
    size = int(ends[-1]) if rows else 0
    data = np.empty(size + _PREFIX, dtype=np.uint8)
    if size:
        data[:size] = np.ndarray((size,), dtype=np.uint8, buffer=data_buffer)
    data[size:] = 0
    if extra:
        data[ends - 1] = SEPARATOR_PAIR

    marks = np.flatnonzero(data[:size] <= SEPARATOR_PAIR)
    kinds = data[marks]
    half = len(marks) // 2
    name_end, value_end = marks[0::2], marks[1::2]
    regular = (
        len(marks) == 2 * half and bool((kinds[0::2] == SEPARATOR_NAME).all()) and bool((kinds[1::2] == SEPARATOR_PAIR).all())
    )
    if regular:
        name_end, value_end = np.ascontiguousarray(name_end), np.ascontiguousarray(value_end)
        name_start = np.empty_like(value_end)
        name_start[:1] = 0
        np.add(value_end[:-1], 1, out=name_start[1:])
    else:
        name_start, name_end, value_end = _irregular(marks[kinds > 0], kinds[kinds > 0])
    if not (bool((name_end > name_start).all()) and bool((value_end > name_end + 1).all())):
        good = (name_end > name_start) & (value_end > name_end + 1)
        name_start, name_end, value_end = name_start[good], name_end[good], value_end[good]

    words = np.ndarray((size + 1,), dtype="<u8", buffer=data, strides=(1,))
    name_length = name_end - name_start
    code = words[name_start] & _MASKS[np.minimum(name_length, _PREFIX)]
    each, rest = divmod(len(name_end), rows) if rows else (0, 0)
    if each and not rest and bool((value_end[each - 1 :: each] == ends - 1).all()):
        first = np.arange(0, (rows + 1) * each, each)
        same = bool((code.reshape(rows, each) == code[:each]).all()) and bool(
            (name_length.reshape(rows, each) == name_length[:each]).all()
        )
        # a longer name shows only its first eight bytes in its code
        template = each if same and int(name_length[:each].max()) <= _PREFIX else 0
    else:
        first = np.searchsorted(name_start, np.concatenate([[0], ends]))
        template = 0
    return Pairs(rows, data, first, name_start, name_end, value_end, code, template)


def _irregular(
    marks: npt.NDArray[np.int64], kinds: npt.NDArray[np.uint8]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """(name_start, name_end, value_end) of pairs whose separators do not just alternate; pairs without a 0x01 are left out."""
    ends_at = np.flatnonzero(kinds == SEPARATOR_PAIR)
    before = np.concatenate([[-1], ends_at[:-1]]) if len(ends_at) else ends_at
    value_end = marks[ends_at]
    name_start = np.concatenate([[0], value_end[:-1] + 1]) if len(ends_at) else value_end
    # a pair's first 0x01 is the first mark behind the pair before it, if that mark is one
    has_name = ends_at > before + 1
    return name_start[has_name], marks[before[has_name] + 1], value_end[has_name]


def parse_properties(stored: bytes) -> dict[str, str]:
    """One record's properties as a dict; the plain form of the rules above."""
    found: dict[str, str] = {}
    for pair in stored.split(bytes([SEPARATOR_PAIR])):
        name, mark, value = pair.partition(bytes([SEPARATOR_NAME]))
        if mark and name and value:
            key = ragged.decode_utf8(name)
            found.pop(key, None)  # the last one counts, and stands where it stands
            found[key] = ragged.decode_utf8(value)
    return found


def encode_properties(pairs: dict[str, str], *, last_separator: bool = True) -> bytes:
    """The properties string of one record; `last_separator` as 5.2.0 and later write it, False as 4.9.1 to 5.1.4 do."""
    stored = "".join(f"{name}\x01{value}\x02" for name, value in pairs.items()).encode()
    return stored if last_separator else stored[:-1]
