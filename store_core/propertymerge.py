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

from store_core.bodies import offsets_of
from store_core.layout import CRC_PROPERTY, CRC_PROPERTY_SIZE, SEPARATOR_NAME, SEPARATOR_PAIR
from store_core.properties import Pairs, Uniform, split
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

Bool = npt.NDArray[np.bool_]
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
    built = None
    if mapped is not None and not from_string.all():
        built, had_crc = _of_maps(mapped, from_string, rows)
        crc |= had_crc
    if stored is None:
        base = built
    elif built is None:
        base = stored.fill_null("") if stored.null_count else stored
    else:
        base = pc.if_else(pa.array(from_string), stored, built)
    found = None if base is None else _split(base)
    if stored is not None and mapped is not None:
        _check_map(stored, mapped, from_string, rows)
    if stored is not None:
        _check_crc(stored, rows, options)
    if found is not None and (not options.preserve or options.renumber):
        _check_places(found, options, rows)
    origin = "propertiesString" if mapped is None else "properties"
    values, pieces = {}, []
    for column, name in _COLUMNS.items():
        said = _filled(given.get(column))
        has = None if found is None else found.values(name)
        values[column], piece = _of_column(column, name, said, has, from_string, origin, rows, count)
        if piece is not None:
            pieces.append(_join(f"{name}{_NAME}", piece, _PAIR, ""))
    if base is None:
        base = pa.repeat(pa.scalar(""), count) if not pieces else pieces.pop(0).fill_null("")
    if pieces:
        base = _join(base, *pieces, "", options=pc.JoinOptions(null_handling="skip"))
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


def _of_column(
    column: str, name: str, said: Any, has: Any, from_string: Bool, origin: str, rows: Rows, count: int
) -> tuple[Any, Any]:
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
        raise rows.refuse(
            row,
            column,
            said[row].as_py(),
            f"{has[row].as_py()!r}, which is {name} in the column {origin!r}",
            "Change both or drop one",
        )
    _check_reserved(said, column, rows)
    missing = true(said.is_valid()) & true(has.is_null())
    if not missing.any():
        return has, None
    return pc.coalesce(has, said), pc.if_else(pa.array(missing), said, pa.scalar(None, pa.string()))


# --- the map -------------------------------------------------------------------------------------------------------------


def _of_maps(mapped: Any, left_out: Bool, rows: Rows) -> tuple[pa.StringArray, Bool]:
    """(the properties strings of the maps, which of them had a CRC property). Rows that are `left_out` give an empty one."""
    count = len(mapped)
    if mapped.null_count or mapped.offset or left_out.any():
        # a null map may hide entries: taken anew, it has none
        mapped = mapped.take(pa.array(np.arange(count), mask=left_out))
    first = _map_offsets(mapped)
    names, items = mapped.keys, mapped.items
    start, end = int(first[0]), int(first[-1])
    names, items, first = names.slice(start, end - start), items.slice(start, end - start), first - start
    had_crc = np.zeros(count, dtype=bool)
    row_of = None
    # RocketMQ leaves out a property that is null; the CRC is made anew
    keep = true(items.is_valid()) if items.null_count else np.ones(len(items), dtype=bool)
    crc = _equal(names, _CRC_NAME)
    if crc.any():
        row_of = np.repeat(np.arange(count), np.diff(first))
        had_crc[row_of[crc]] = True
        keep &= ~crc
    if not keep.all():
        names, items = names.filter(pa.array(keep)), items.filter(pa.array(keep))
        first = np.concatenate([[0], np.cumsum(keep)])[first]
    _check_pairs(names, items, first, rows)
    pairs = _join(names, _NAME, items, _PAIR, "")
    if not len(pairs):
        return pa.repeat(pa.scalar(""), count), had_crc
    ends = offsets_of(pairs)[first].astype(np.int32)
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(ends), pairs.buffers()[2]]), had_crc


def _map_offsets(mapped: Any) -> npt.NDArray[np.int64]:
    if not len(mapped):
        return np.zeros(1, dtype=np.int64)
    return np.frombuffer(mapped.buffers()[1], dtype=np.int32)[mapped.offset : mapped.offset + len(mapped) + 1].astype(np.int64)


def _check_pairs(names: Any, items: Any, first: npt.NDArray[np.int64], rows: Rows) -> None:
    def refuse(pair: int, expected: str) -> None:
        row = int(np.searchsorted(first, pair, side="right")) - 1
        raise rows.refuse(row, "properties", {names[pair].as_py(): items[pair].as_py()}, expected)

    for part, what in ((names, "name"), (items, "value")):
        if (empty := np.flatnonzero(np.diff(offsets_of(part)) == 0)).size:
            refuse(int(empty[0]), f"a {what} that is not empty: RocketMQ drops such properties")
        if (at := _reserved(part)) is not None:
            refuse(at, f"a {what} without the characters 0x01 and 0x02, which separate properties")
    if (at := _repeated(names, first)) is not None:
        refuse(at, f"the name {names[at].as_py()!r} once in a map")


def _repeated(names: Any, first: npt.NDArray[np.int64]) -> int | None:
    """The first pair whose name stands in its row before."""
    count = np.diff(first)
    if not len(names):
        return None
    codes = np.asarray(names.dictionary_encode().indices, dtype=np.int64)
    each = int(count[0])
    if each and (count == each).all() and bool((codes.reshape(-1, each) == codes[:each]).all()):
        # one shape: the first row speaks for all
        codes, count = codes[:each], count[:1]
    row = np.repeat(np.arange(len(count)), count)
    _, seen = np.unique(row * (int(codes.max()) + 1) + codes, return_index=True)
    if len(seen) == len(codes):
        return None
    again = np.ones(len(codes), dtype=bool)
    again[seen] = False
    return int(np.argmax(again))


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


def _check_places(found: Pairs | Uniform, options: WriteOptions, rows: Rows) -> None:
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
        raise rows.refuse(row, column, value, "text without the characters 0x01 and 0x02, which separate properties")


def _reserved(values: Any) -> int | None:
    """The first value with a separator in it."""
    at = offsets_of(values)
    data = np.frombuffer(values.buffers()[2] or b"", dtype=np.uint8)[int(at[0]) : int(at[-1])]
    if not ((data == SEPARATOR_NAME) | (data == SEPARATOR_PAIR)).any():
        return None
    hit = true(pc.match_substring_regex(values, pattern=_PATTERN))
    return int(np.argmax(hit)) if hit.any() else None


def _equal(values: Any, text: str) -> Bool:
    if len(values) == 0:
        return np.zeros(0, dtype=bool)
    return true(pc.equal(values, text))
