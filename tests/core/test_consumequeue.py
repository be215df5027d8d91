from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.consumequeue import (
    Entries,
    ExtUnits,
    decode_batch_units,
    decode_ext_units,
    decode_unit,
    decode_units,
    drop_fillers,
    encode_batch_units,
    encode_ext_units,
    encode_fillers,
    encode_units,
    ext_address,
    ext_offset,
    is_ext_address,
    valid_prefix,
)

I64 = st.integers(-(1 << 63), (1 << 63) - 1)
I32 = st.integers(-(1 << 31), (1 << 31) - 1)
I16 = st.integers(-(1 << 15), (1 << 15) - 1)


def rows(entries: Entries) -> list[tuple[int, ...]]:
    columns = (entries.queue_offset, entries.commit_log_offset, entries.size, entries.tags_code, entries.batch_size)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def test_decodes_the_worked_example_of_the_format() -> None:
    data = bytes.fromhex("0000000000000000 000000d7 000000000027a807 00000000000000d7 000000d7 000000000027a807")
    assert rows(decode_units(data, 7)) == [(7, 0, 215, 2598919, 1), (8, 215, 215, 2598919, 1)]
    assert encode_units(decode_units(data, 7)) == data
    assert decode_unit(data, 20, False) == (215, 215, 2598919, 0, 1)


def test_columns_are_native_and_of_the_stated_types() -> None:
    for entries in (decode_units(bytes(40), 0), decode_units(bytes(40), 0, with_tags=False), decode_batch_units(bytes(92))):
        assert entries.queue_offset.dtype == entries.commit_log_offset.dtype == entries.tags_code.dtype == np.int64
        assert entries.size.dtype == entries.batch_size.dtype == np.int32


@given(st.lists(st.tuples(I64, I32, I64)), st.integers(0, 1 << 40), st.binary(max_size=19))
def test_plain_units_against_struct(units: list[tuple[int, int, int]], first: int, torn: bytes) -> None:
    data = b"".join(struct.pack(">qiq", *unit) for unit in units)
    entries = decode_units(data + torn, first)
    assert rows(entries) == [(first + i, *unit, 1) for i, unit in enumerate(units)]
    assert encode_units(entries) == data
    assert [decode_unit(data, 20 * i, False)[:3] for i in range(len(units))] == units


@given(st.lists(st.tuples(I64, I32, I64, I64, I64, I16)), st.binary(max_size=45))
def test_batch_units_against_struct(units: list[tuple[int, int, int, int, int, int]], torn: bytes) -> None:
    data = b"".join(struct.pack(">qiqqqhii", *unit, -1, 0) for unit in units)
    entries = decode_batch_units(data + torn)
    assert rows(entries) == [(base, offset, size, tags, n) for offset, size, tags, _, base, n in units]
    assert encode_batch_units(entries, np.array([unit[3] for unit in units], np.int64)) == data
    for i, (offset, size, tags, _, base, n) in enumerate(units):
        assert decode_unit(data, 46 * i, True) == (offset, size, tags, base, n)


@pytest.mark.parametrize(
    ("unit", "valid", "filler"),
    [
        ((0, 1, 0), True, False),
        ((0, 0x7FFFFFFF, 0), True, True),
        ((5, 0x7FFFFFFF, 0), True, False),
        ((0, 0, 0), False, False),
        ((-1, 10, 0), False, False),
        ((10, -1, 0), False, False),
    ],
)
def test_what_is_valid_and_what_is_a_filler(unit: tuple[int, int, int], valid: bool, filler: bool) -> None:
    data = struct.pack(">qiq", *unit)
    entries = decode_units(data, 0)
    assert (entries.is_valid.tolist(), entries.is_filler.tolist()) == ([valid], [filler])
    assert (decode_unit(data, 0, False).is_valid, decode_unit(data, 0, False).is_filler) == (valid, filler)


@pytest.mark.parametrize(("base", "count", "valid"), [(0, 1, True), (-1, 1, False), (0, 0, False), (3, -6, False)])
def test_a_batch_unit_is_valid_only_with_a_base_and_a_count(base: int, count: int, valid: bool) -> None:
    data = struct.pack(">qiqqqhii", 0, 91, 0, 0, base, count, -1, 0)
    assert decode_batch_units(data).is_valid.tolist() == [valid]
    assert decode_unit(data, 0, True).is_valid == valid


def test_prefix_fillers_slices_and_concat() -> None:
    data = encode_fillers(2) + struct.pack(">qiq", 300, 100, 1) + bytes(20) + struct.pack(">qiq", 400, 100, 2)
    entries = decode_units(data, 10)
    assert valid_prefix(entries) == 3
    assert valid_prefix(entries[:2]) == 2
    assert valid_prefix(entries[:0]) == 0
    assert drop_fillers(entries).queue_offset.tolist() == [12, 13, 14]
    assert drop_fillers(entries[2:]).queue_offset.tolist() == [12, 13, 14]
    assert rows(Entries.concat([entries[:1], entries[1:]])) == rows(entries)
    assert rows(entries[entries.is_valid]) == rows(Entries.concat([entries[:3], entries[4:]]))
    assert len(Entries.concat([])) == 0


def test_ext_addresses_are_what_no_hash_and_no_time_can_be() -> None:
    codes = np.array([-(1 << 63), -(1 << 31) - 1, -(1 << 31), -1, 0, 1735901102139], np.int64)
    assert is_ext_address(codes).tolist() == [True, True, False, False, False, False]
    offsets = np.array([0, 28, 50331648 * 7 + 20], np.int64)
    assert ext_address(offsets).tolist() == [offset - (1 << 63) for offset in offsets.tolist()]
    assert ext_offset(ext_address(offsets)).tolist() == offsets.tolist()


@given(st.lists(st.tuples(I64, I64)), st.integers(0, 12))
def test_ext_units_round_trip(units: list[tuple[int, int]], width: int) -> None:
    tags, times = (np.array([unit[i] for unit in units], np.int64) for i in (0, 1))
    maps = np.full((len(units), width), 0xA5, np.uint8)
    data = encode_ext_units(ExtUnits(np.zeros(len(units), np.int16), tags, times), maps)
    assert data == b"".join(struct.pack(">hqqh", 20 + width, *unit, width) + b"\xa5" * width for unit in units)
    decoded = decode_ext_units(data, np.arange(len(units), dtype=np.int64) * (20 + width))
    assert decoded.size.tolist() == [20 + width] * len(units)
    assert (decoded.tags_code.tolist(), decoded.store_timestamp.tolist()) == (tags.tolist(), times.tolist())
    assert decoded.is_valid.all()


def test_the_end_of_an_ext_file_is_no_unit() -> None:
    assert decode_ext_units(struct.pack(">h", -1) + bytes(20), np.array([0, 2], np.int64)).is_valid.tolist() == [False, False]
