"""The properties string of messages that are to be written, merged from all columns that tell of properties as a producer does.

`Message#putProperty`, `MessageDecoder#messageProperties2String`.

A propertiesString is stored as it is, and the other columns must not contradict it. Else the map's pairs stand in its order,
then what it lacks of the columns keys, tags and uniqKey. A CRC property always comes last; its digits are right only when the
record has its place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from store_core.layout import CRC_PROPERTY, CRC_PROPERTY_SIZE, SEPARATOR_NAME, SEPARATOR_PAIR
from store_core.properties import Pairs, Uniform, split
from store_core.ragged import offsets_of
from store_core.refusal import Rows, true
from store_core.writeoptions import WriteOptions

__all__ = ["MAX_PROPERTIES", "Merged", "merge_properties"]

MAX_PROPERTIES: Final = 32767
"""The longest properties string, with the CRC property: its length is an i16."""

_COLUMNS: Final = {"keys": "KEYS", "tags": "TAGS", "uniqKey": "UNIQ_KEY"}
_NAME: Final = chr(SEPARATOR_NAME)
_PAIR: Final = chr(SEPARATOR_PAIR)
_CRC_NAME: Final = CRC_PROPERTY.decode()
_CRC_BLOCK: Final = f"{_CRC_NAME}{_NAME}{'0' * 10}{_PAIR}"
_PLACES: Final = ("INNER_MULTI_QUEUE_OFFSET", "INNER_BASE")
"""Properties that hold queueOffsets which the store's own queues are built by."""
_PATTERN: Final = f"[{_NAME}{_PAIR}]"

_WITHOUT: Final = "without the characters 0x01 and 0x02, which separate properties"

Bool = npt.NDArray[np.bool_]
I64 = npt.NDArray[np.int64]
_join: Final[Any] = pc.binary_join_element_wise


@dataclass(frozen=True, slots=True)
class Merged:
    """One value per row: the string (never null), and what it says of KEYS, TAGS and UNIQ_KEY (null where it has none)."""

    properties_string: pa.StringArray
    keys: pa.StringArray
    tags: pa.StringArray
    uniq_key: pa.StringArray


def merge_properties(given: dict[str, Any], count: int, options: WriteOptions, rows: Rows) -> Merged:
    """`given`: by column name, string arrays (`properties`: a map array) of `count` rows; a missing one counts as all null.

    Errors: OptionError for columns that contradict each other, reserved characters, an empty name or value, a name that stands
    twice, a property that depends on a place that will be another.
    """
    stored, mapped = _unless_null(given.get("propertiesString")), _unless_null(given.get("properties"))
    from_string = np.zeros(count, dtype=bool) if stored is None else true(stored.is_valid())
    crc = np.full(count, options.enabled_append_prop_crc)
    built = maps = None
    if mapped is not None and not from_string.all():
        maps = _Maps.of(mapped, from_string, rows)
        built, had_crc = maps.strings()
        crc |= had_crc
    if stored is None:
        base = built
    elif built is None:
        base = stored.fill_null("") if stored.null_count else stored
    else:
        base = pc.if_else(pa.array(from_string), stored, built)
    found = maps if stored is None else _split(base)
    if stored is not None and mapped is not None:
        _check_map(stored, mapped, from_string, rows)
    if stored is not None:
        _check_crc(stored, rows, options)
    if found is not None and (not options.preserve or options.renumber):
        _check_places(found, options, rows)
    values: dict[str, Any] = {}
    pieces: list[Any] = []
    for column, name in _COLUMNS.items():
        said = _filled(given.get(column))
        has = None if found is None else found.values(name)
        values[column], piece = _of_column(column, name, said, has, from_string, rows, count)
        if piece is not None:
            pair = (f"{name}{_NAME}", piece, _PAIR)
            pieces += [_join(*pair, "")] if piece.null_count else pair
    if pieces:
        # a first piece that is never null: Arrow gives no value at all for a row of which all is skipped
        base = _join("" if base is None else base, *pieces, "", options=pc.JoinOptions(null_handling="skip"))
    elif base is None:
        base = pa.repeat(pa.scalar(""), count)
    if not options.last_separator and not from_string.all():
        base = pc.if_else(pa.array(from_string), base, pc.utf8_rtrim(base, characters=_PAIR))
    if crc.any():
        base = _with_crc(base, crc)
    lengths = np.diff(offsets_of(base))
    rows.check(
        lengths <= MAX_PROPERTIES,
        "propertiesString",
        lengths,
        f"at most {MAX_PROPERTIES} bytes of properties, keys, tags and uniqKey together",
    )
    return Merged(base, values["keys"], values["tags"], values["uniqKey"])


def _of_column(column: str, name: str, said: Any, has: Any, from_string: Bool, rows: Rows, count: int) -> tuple[Any, Any]:
    """(the property's value in each row, what of the column has to be added to the string or None)."""
    if said is None:
        return (pa.nulls(count, pa.string()) if has is None else has), None
    if has is not None and said.equals(has):
        return has, None
    if has is None:
        _check_reserved(said, column, rows)
        return said, said
    differs = true(pc.not_equal(said, has)) | (true(said.is_valid()) & true(has.is_null()) & from_string)
    if differs.any():
        row = int(np.argmax(differs))
        origin = "propertiesString" if from_string[row] else "properties"
        other = has[row].as_py()
        expected = f"null, as there is no {name}" if other is None else f"{other!r}, which is {name}"
        raise rows.refuse(row, column, said[row].as_py(), f"{expected} in the column {origin!r}", "Change both or drop one")
    _check_reserved(said, column, rows)
    missing = true(said.is_valid()) & true(has.is_null())
    if not missing.any():
        return has, None
    return pc.coalesce(has, said), pc.if_else(pa.array(missing), said, pa.scalar(None, pa.string()))


# --- the map -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Maps:
    """The pairs of map arrays: `codes` says of each which of the dictionary `names` it has, `row` in which row it stands.

    `each`: how many pairs every row has, if all have the same names in the same order; else 0.
    """

    count: int
    names: list[str]
    codes: I64
    items: Any
    first: I64
    each: int

    @classmethod
    def of(cls, mapped: Any, left_out: Bool, rows: Rows) -> _Maps:
        """The pairs of the rows that are not `left_out`. RocketMQ leaves out a property that is null.

        Errors: OptionError for an empty name or value, a separator in one, or a name that stands twice in a row.
        """
        count = len(mapped)
        if mapped.null_count or mapped.offset or left_out.any() or (count and offsets_of(mapped)[0]):
            # a null map, and what stands before the first one, may hide entries: taken anew, there are none
            mapped = mapped.take(pa.array(np.arange(count), mask=left_out))
        first = np.frombuffer(mapped.buffers()[1], dtype=np.int32)[: count + 1].astype(np.int64)
        names, items = mapped.keys[: first[-1]], mapped.items[: first[-1]]
        if items.null_count:
            keep = true(items.is_valid())
            names, items = names.filter(pa.array(keep)), items.filter(pa.array(keep))
            first = np.concatenate([[0], np.cumsum(keep)])[first]
        each = int(first[1]) if bool((np.diff(first) == first[1]).all()) else 0
        if each and _repeats(names, each):
            own = names[:each].dictionary_encode()
            codes = np.tile(np.asarray(own.indices, dtype=np.int64), count)
            found = cls(count, own.dictionary.to_pylist(), codes, items, first, each)
        else:
            coded = names.dictionary_encode()
            found = cls(count, coded.dictionary.to_pylist(), np.asarray(coded.indices, dtype=np.int64), items, first, 0)
        found._check(rows)
        return found

    def _check(self, rows: Rows) -> None:
        def refuse(pair: int, expected: str) -> None:
            row = int(self.row_of(np.array([pair]))[0])
            raise rows.refuse(row, "properties", {self.names[self.codes[pair]]: self.items[pair].as_py()}, expected)

        for code, name in enumerate(self.names):
            if not name or _NAME in name or _PAIR in name:
                refuse(int(np.argmax(self.codes == code)), f"a name that is not empty, {_WITHOUT}")
        if (empty := np.flatnonzero(np.diff(offsets_of(self.items)) == 0)).size:
            refuse(int(empty[0]), "a value that is not empty: RocketMQ drops such properties")
        if (at := _reserved(self.items)) is not None:
            refuse(at, f"a value {_WITHOUT}")
        # where all rows have one shape, the first speaks for all
        codes = self.codes[: self.each] if self.each else self.codes
        row = np.zeros(len(codes), dtype=np.int64) if self.each else self.row_of(np.arange(len(codes)))
        _, kept = np.unique(row * len(self.names) + codes, return_index=True)
        if len(kept) < len(codes):
            again = np.ones(len(codes), dtype=bool)
            again[kept] = False
            refuse(int(np.argmax(again)), "a name once in a map")

    def row_of(self, pairs: I64) -> I64:
        """The row in which each of these pairs stands."""
        found: I64 = np.searchsorted(self.first, pairs, side="right") - 1
        return found

    def values(self, name: str) -> pa.StringArray:
        """The values of one property, null where a row has it not."""
        if name not in self.names:
            return pa.nulls(self.count, pa.string())
        code = self.names.index(name)
        if self.each:
            at = int(np.argmax(self.codes[: self.each] == code))
            return self.items.take(pa.array(np.arange(at, len(self.codes), self.each)))
        pairs = np.flatnonzero(self.codes == code)
        place = np.full(self.count, -1, dtype=np.int64)
        place[self.row_of(pairs)] = pairs
        return self.items.take(pa.array(place, mask=place < 0))

    def strings(self) -> tuple[pa.StringArray, Bool]:
        """(the properties strings, which of them had a CRC property). That is left out: it is made anew."""
        had_crc = np.zeros(self.count, dtype=bool)
        codes, items, first = self.codes, self.items, self.first
        if _CRC_NAME in self.names:
            crc = codes == self.names.index(_CRC_NAME)
            had_crc[self.row_of(np.flatnonzero(crc))] = True
            codes, items = codes[~crc], items.filter(pa.array(~crc))
            first = np.concatenate([[0], np.cumsum(~crc)])[first]
        if not len(codes):
            return pa.repeat(pa.scalar(""), self.count), had_crc
        names = pa.array([name + _NAME for name in self.names]).take(pa.array(codes))
        pairs = _join(names, items, _PAIR, "")
        ends = offsets_of(pairs)[first].astype(np.int32)
        return pa.Array.from_buffers(pa.string(), self.count, [None, pa.py_buffer(ends), pairs.buffers()[2]]), had_crc


# --- the string ----------------------------------------------------------------------------------------------------------


def _split(strings: Any) -> Pairs | Uniform:
    at = offsets_of(strings)
    start, end = int(at[0]), int(at[-1])
    data = strings.buffers()[2]
    # `split` wants a byte behind the last string
    memory = bytes(1) if data is None else memoryview(data)[start:end].tobytes() + bytes(1)
    return split(pa.py_buffer(memory), at[:-1] - start, np.diff(at))


def _check_map(stored: Any, mapped: Any, from_string: Bool, rows: Rows) -> None:
    """Where both columns say something, they have to say the same."""
    both = from_string & true(mapped.is_valid())
    if not both.any():
        return
    if not both.all():
        which = pa.array(np.flatnonzero(both))
        stored, mapped = stored.take(which), mapped.take(which)
    told = _split(stored).to_map()
    if told.equals(mapped.cast(told.type)):
        return
    for row, string, given, own in zip(
        np.flatnonzero(both).tolist(), stored.to_pylist(), mapped.to_pylist(), told.to_pylist(), strict=True
    ):
        if dict(given) != dict(own):
            raise rows.refuse(
                row,
                "properties",
                dict(given),
                f"what the column 'propertiesString' says, {string!r}",
                "Change both or drop one",
            )


def _check_crc(stored: Any, rows: Rows, options: WriteOptions) -> None:
    """A CRC property that is not the last thing in a string could not be made right."""
    mark = f"{_CRC_NAME}{_NAME}"
    if options.preserve or memoryview(stored.buffers()[2] or b"").tobytes().find(mark.encode()) < 0:
        return
    many = pc.count_substring(stored, pattern=mark).fill_null(0).to_numpy(zero_copy_only=False)
    rows.check(many <= _ends_in_crc(stored), "propertiesString", stored, f"{_CRC_NAME} once, as the last property")


def _ends_in_crc(strings: Any) -> Bool:
    at = offsets_of(strings)
    data = np.frombuffer(strings.buffers()[2] or b"", dtype=np.uint8)
    found: Bool = np.diff(at) >= CRC_PROPERTY_SIZE
    begin = at[1:][found] - CRC_PROPERTY_SIZE
    if len(begin):
        mark = np.frombuffer(CRC_PROPERTY + bytes([SEPARATOR_NAME]), dtype=np.uint8)
        found[found] = (data[begin[:, None] + np.arange(len(mark))] == mark).all(axis=1)
    return found


def _with_crc(base: Any, wanted: Bool) -> Any:
    """The strings, those that are `wanted` with a CRC property at their end. A separator stands before it (`doAppend`)."""
    missing = wanted & ~_ends_in_crc(base)
    at = offsets_of(base)
    data = np.frombuffer(base.buffers()[2] or b"\0", dtype=np.uint8)
    is_open = (np.diff(at) > 0) & (data[np.maximum(at[1:], 1) - 1] != SEPARATOR_PAIR)
    tails = np.where(missing, np.where(is_open, 2, 1), 0)
    return _join(base, pa.array(["", _CRC_BLOCK, _PAIR + _CRC_BLOCK]).take(pa.array(tails)), "")


def _check_places(found: Pairs | Uniform | _Maps, options: WriteOptions, rows: Rows) -> None:
    for name in _PLACES:
        values = found.values(name)
        if values.null_count < len(values):
            row = int(np.argmax(true(values.is_valid())))
            raise rows.refuse(
                row,
                "properties",
                {name: values[row].as_py()},
                f"no {name} where queueOffsets are new: it holds such",
                "Leave the property out" + ("" if options.preserve else ", or write with preserve=true"),
            )


# --- columns -------------------------------------------------------------------------------------------------------------


def _unless_null(values: Any) -> Any:
    return None if values is None or values.null_count == len(values) else values


def _filled(values: Any) -> Any:
    """The column with null for an empty string, as `Message`'s constructor takes it; None for nothing at all."""
    if _unless_null(values) is None:
        return None
    if (np.diff(offsets_of(values))[true(values.is_valid())] == 0).any():
        values = pc.if_else(pc.equal(values, ""), pa.scalar(None, pa.string()), values)
    return _unless_null(values)


def _check_reserved(values: Any, column: str, rows: Rows) -> None:
    if (row := _reserved(values)) is not None:
        value = values[row].as_py()
        raise rows.refuse(row, column, value, f"text {_WITHOUT}")


def _repeats(names: Any, each: int) -> bool:
    """Whether the first `each` strings come again and again."""
    lengths = np.diff(at := offsets_of(names))
    data = np.frombuffer(names.buffers()[2] or b"", dtype=np.uint8)[int(at[0]) : int(at[-1])]
    width = int(at[each] - at[0])
    if not width or not bool((lengths.reshape(-1, each) == lengths[:each]).all()):
        return False
    return bool((data.reshape(-1, width) == data[:width]).all())


def _reserved(values: Any) -> int | None:
    """The first value with a separator in it."""
    at = offsets_of(values)
    data = memoryview(values.buffers()[2] or b"")[int(at[0]) : int(at[-1])].tobytes()
    if data.find(SEPARATOR_NAME) < 0 and data.find(SEPARATOR_PAIR) < 0:
        return None
    hit = true(pc.match_substring_regex(values, pattern=_PATTERN))
    return int(np.argmax(hit)) if hit.any() else None
