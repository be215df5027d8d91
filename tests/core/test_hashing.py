"""Hashes, against the loop of Java's `String.hashCode`."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.hashing import key_hash, key_hashes, string_hash, string_hashes, tags_code
from tests.synthetic import java_hash

KNOWN = {
    "": 0,
    "TagA": 2598919,
    "a || b": -1484572639,
    "polygenelubricants": -(1 << 31),
    "标签": 857175,
    "TopicTest#0A000001303918B4AAC20C9B1D230000": 2045912079,
    "TopicTest#OrderID188": -1231271670,
}
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
COLUMNS = st.lists(st.none() | TEXTS | st.text("abcxyz#- 019", max_size=40), max_size=30)


def java_key_hash(topic: str, key: str) -> int:
    value = java_hash(f"{topic}#{key}")
    return 0 if value == -(1 << 31) else abs(value)


def test_known_values() -> None:
    assert {text: string_hash(text) for text in KNOWN} == KNOWN
    assert string_hashes(pa.array(KNOWN)).tolist() == list(KNOWN.values())


@given(st.text(st.characters(), max_size=600))
def test_one_string(text: str) -> None:
    assert string_hash(text) == java_hash(text)


@pytest.mark.parametrize("length", [1, 255, 256, 257, 5000])
@pytest.mark.parametrize("unit", ["z", "ÿ", "签", "😀", "\ud800"])
def test_long_strings(length: int, unit: str) -> None:
    assert string_hash(unit * length) == java_hash(unit * length)


@given(COLUMNS, st.integers(0, 5), st.integers(0, 5))
def test_columns_and_their_slices(values: list[str | None], head: int, tail: int) -> None:
    part = slice(head, max(head, len(values) - tail))
    column = pa.array(values, pa.string())[part]
    assert string_hashes(column).tolist() == [java_hash(v or "") for v in values[part]]
    assert tags_code(column).tolist() == [java_hash(v or "") for v in values[part]]


@given(st.lists(st.tuples(st.none() | st.sampled_from(["TopicTest", "主题", ""]), st.none() | TEXTS), max_size=30))
def test_key_columns(pairs: list[tuple[str | None, str | None]]) -> None:
    topics, keys = (pa.array([p[i] for p in pairs], pa.string()) for i in (0, 1))
    assert key_hashes(topics, keys).tolist() == [java_key_hash(t or "", k or "") for t, k in pairs]
    assert [key_hash(t or "", k or "") for t, k in pairs] == [java_key_hash(t or "", k or "") for t, k in pairs]


def test_strings_that_are_hashed_in_several_runs() -> None:
    values = ["k" * (n % 900) + ("é" if n % 7 == 0 else "") for n in range(3000)] + ["", "长" * 300_000, "", "end"]
    assert string_hashes(pa.array(values)).tolist() == [java_hash(v) for v in values]


def test_the_one_hash_without_an_absolute_value() -> None:
    assert java_hash("T#0jdpfbq") == -(1 << 31)
    assert key_hash("T", "0jdpfbq") == 0
    assert key_hashes(pa.array(["T"]), pa.array(["0jdpfbq"])).tolist() == [0]
