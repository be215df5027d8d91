"""What index entries stand for, against real brokers' files and a plain loop over a message's keys."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store_core.files import LocalFiles
from store_core.indexfile import OpenIndex, list_index_files, open_index, read_index_entries
from store_core.indextable import INDEX_TYPES, KeyStrings, Resolved, key_strings, resolve_entries
from tests.golden_stores import GOLDEN_NAMES, Golden
from tests.oracle import Row, data_end, key_tokens, read_store
from tests.synthetic import java_hash

Named = tuple[str, str]


def plain_keys(row: Row, tags: bool = True) -> list[tuple[int, str, str]]:
    """(keyHash, indexType, key) of a message, in the order of its entries."""
    if row["topic"] is None:
        return []
    found = [("uniqKey", row["uniqKey"], "")] if row["uniqKey"] else []
    found += [("key", token, "") for token in key_tokens(row)]
    found += [("tag", row["tags"], "T#")] if tags and row["tags"] else []
    values = [java_hash(f"{row['topic']}#{prefix}{key}") for _, key, prefix in found]
    return [(0 if v == -(1 << 31) else abs(v), kind, key) for v, (kind, key, _) in zip(values, found, strict=True)]


def strings_of(rows: list[Row], tags: bool = True) -> KeyStrings:
    topic, uniq_key, keys, tag = (
        pa.array([row[name] for row in rows], pa.string()) for name in ("topic", "uniqKey", "keys", "tags")
    )
    return key_strings(topic, uniq_key, keys, tag if tags else None)


def pairs(resolved: Resolved) -> list[Any]:
    return [
        None if kind is None else (kind, key)
        for kind, key in zip(resolved.index_type.to_pylist(), resolved.key.to_pylist(), strict=True)
    ]


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_every_entry_of_a_broker_finds_its_key(golden: Golden, name: str) -> None:
    rows = read_store(golden(name))
    offsets = np.array([row["commitLogOffset"] for row in rows], dtype=np.int64)
    strings = strings_of(rows)
    files = LocalFiles()
    found: list[Any] = []
    left: tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]] = (np.zeros(0, np.int32), np.zeros(0, np.int64))
    for file in list_index_files(files, str(golden(name))):
        index = open_index(files, file, max_phys=data_end(golden(name)))
        assert isinstance(index, OpenIndex)
        for entries in read_index_entries(files, index, batch=97):
            carried = len(left[0])
            hashes = np.concatenate([left[0], entries.key_hash])
            places = np.concatenate([left[1], entries.commit_log_offset])
            resolved = resolve_entries(hashes, places, offsets, strings, carried=carried)
            assert len(resolved.key) == len(entries)
            found += [
                (place, *pair) for place, pair in zip(entries.commit_log_offset.tolist(), pairs(resolved), strict=True) if pair
            ]
            assert resolved.key.null_count == resolved.index_type.null_count == 0
            last = places == places[-1]
            left = hashes[last], places[last]
    has_tags = name == "crc-5.5.0"
    expected = [(row["commitLogOffset"], kind, key) for row in rows for _, kind, key in plain_keys(row, has_tags)]
    assert found == expected
    assert ("tag" in {kind for _, kind, _ in found}) == has_tags


def test_key_strings_stand_in_the_order_of_their_entries() -> None:
    columns = {
        "topic": ["T", "T", None, "主题", "T", "T"],
        "uniqKey": ["U0", None, "U2", "U3", "", "U5"],
        "keys": ["b a b", "  x  y ", "z", None, "", " "],
        "tags": ["tag one", None, "t", "标签", "", "t"],
    }
    topic, uniq_key, keys, tags = (pa.array(column, pa.string()) for column in columns.values())
    strings = key_strings(topic, uniq_key, keys, tags)
    kinds = [INDEX_TYPES[kind] for kind in strings.kind]
    assert list(zip(strings.row.tolist(), kinds, strings.key.to_pylist(), strict=True)) == [
        (0, "uniqKey", "U0"),
        (0, "key", "b"),
        (0, "key", "a"),
        (0, "key", "b"),
        (0, "tag", "tag one"),
        (1, "key", "x"),
        (1, "key", "y"),
        (3, "uniqKey", "U3"),
        (3, "tag", "标签"),
        (5, "uniqKey", "U5"),
        (5, "tag", "t"),
    ]
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    assert strings.key_hash.tolist() == [value for row in rows for value, _, _ in plain_keys(row)]
    without = key_strings(topic, uniq_key, keys)
    assert without.key.to_pylist() == [key for row in rows for _, _, key in plain_keys(row, tags=False)]


def test_nothing_to_resolve() -> None:
    none = pa.array([], pa.string())
    strings = key_strings(none, none, none, none)
    assert len(strings.row) == len(strings.key) == len(strings.key_hash) == 0
    empty = resolve_entries(np.zeros(0, np.int32), np.zeros(0, np.int64), np.zeros(0, np.int64), strings)
    assert pairs(empty) == [] and empty.key.type == empty.index_type.type == pa.string()
    gone = resolve_entries(np.array([5], np.int32), np.array([7], np.int64), np.zeros(0, np.int64), strings)
    assert pairs(gone) == [None]


def test_a_message_dispatched_twice_has_its_keys_twice() -> None:
    row = {"topic": "T", "uniqKey": "U", "keys": "Aa BB Aa", "tags": "x"}
    own = plain_keys(row)
    hashes = np.array([value for value, _, _ in own] * 2, dtype=np.int32)
    offsets = np.full(len(hashes), 300, dtype=np.int64)
    resolved = resolve_entries(hashes, offsets, np.array([300]), strings_of([row]))
    assert pairs(resolved) == [(kind, key) for _, kind, key in own] * 2
    for cut in range(len(hashes)):
        rest = resolve_entries(hashes, offsets, np.array([300]), strings_of([row]), carried=cut)
        assert pairs(rest) == pairs(resolved)[cut:]


def test_an_entry_of_another_message_at_that_place_stands_for_nothing() -> None:
    row = {"topic": "T", "uniqKey": "U", "keys": None, "tags": None}
    (own,) = plain_keys(row)
    hashes = np.array([own[0] ^ 1, own[0], own[0], -1], dtype=np.int32)
    offsets = np.array([10, 10, 20, 10], dtype=np.int64)
    assert pairs(resolve_entries(hashes, offsets, np.array([10]), strings_of([row]))) == [None, ("uniqKey", "U"), None, None]


TOKENS = st.sampled_from(["Aa", "BB", "T#Aa", "T#BB", "k", "", "键"])  # Aa and BB have one hash, T#Aa and the tag Aa too
ROWS = st.fixed_dictionaries(
    {
        "topic": st.sampled_from(["T", "Orders", None]),
        "uniqKey": st.sampled_from([None, "U", "k", "AaAa"]),
        "keys": st.none() | st.lists(TOKENS, max_size=5).map(" ".join),
        "tags": st.sampled_from([None, "Aa", "BB", "t"]),
    }
)


@given(st.lists(st.tuples(ROWS, st.integers(0, 2), st.booleans()), max_size=12), st.data())
@settings(deadline=None)
def test_entries_are_resolved_as_they_were_made(cases: list[tuple[Row, int, bool]], data: st.DataObject) -> None:
    """Messages indexed 0 to 2 times, some gone from the log since; cut anywhere."""
    entries: list[tuple[int, int]] = []
    expected: list[Named | None] = []
    kept: list[tuple[int, Row]] = []
    for number, (row, times, gone) in enumerate(cases):
        own = plain_keys(row)
        entries += [(value, 1000 * number) for value, _, _ in own] * times
        expected += [None if gone else (kind, key) for _, kind, key in own] * times
        if not gone:
            kept.append((1000 * number, row))
    hashes = np.array([value for value, _ in entries], dtype=np.int32)
    places = np.array([place for _, place in entries], dtype=np.int64)
    offsets = np.array([place for place, _ in kept], dtype=np.int64)
    strings = strings_of([row for _, row in kept])
    assert pairs(resolve_entries(hashes, places, offsets, strings)) == expected
    cut = data.draw(st.integers(0, len(entries)))
    start = int(np.searchsorted(places, places[cut - 1])) if cut else 0
    rest = resolve_entries(hashes[start:], places[start:], offsets, strings, carried=cut - start)
    assert pairs(rest) == expected[cut:]
