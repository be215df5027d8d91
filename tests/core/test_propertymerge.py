"""Properties out of several columns: merged as a producer does, contradictions and what can't be stored refused."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from store_core.errors import OptionError
from store_core.incoming import normalise
from store_core.writeoptions import WriteOptions
from tests.core.test_incoming import normal, one


def text(given: dict[str, Any] | None = None, **row: Any) -> str:
    return one(None, given, **row)["propertiesString"].replace("\x01", "=").replace("\x02", ";")


def stored(string: str) -> str:
    return string.replace("=", "\x01").replace(";", "\x02")


def pairs(string: str) -> list[tuple[str, ...]]:
    return [tuple(pair.split("=")) for pair in string.split(";") if pair]


CRC = "__CRC32#=0000000000;"


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({}, ""),
        ({"keys": "k1 k2", "tags": "t", "uniqKey": "u"}, "KEYS=k1 k2;TAGS=t;UNIQ_KEY=u;"),
        ({"keys": "", "tags": "t", "uniqKey": ""}, "TAGS=t;"),
        ({"properties": pairs("b=2;a=1")}, "b=2;a=1;"),
        ({"properties": pairs("b=2;KEYS=k"), "keys": "k", "tags": "t"}, "b=2;KEYS=k;TAGS=t;"),
        ({"properties": [("a", None), ("b", "2")]}, "b=2;"),
        ({"properties": []}, ""),
        ({"propertiesString": stored("a=1;TAGS=t")}, "a=1;TAGS=t"),
        ({"propertiesString": stored("a=1;a=2;TAGS=t;"), "tags": "t", "properties": pairs("a=2;TAGS=t")}, "a=1;a=2;TAGS=t;"),
        ({"propertiesString": stored("a=1;b=;"), "properties": pairs("a=1")}, "a=1;b=;"),
        ({"propertiesString": ""}, ""),
        ({"properties": pairs("KEYS=k;😀=é")}, "KEYS=k;😀=é;"),
    ],
)
def test_merged(row: dict[str, Any], expected: str) -> None:
    assert text(**row) == expected
    assert text({"lastSeparator": "false"}, **row) == (expected if "propertiesString" in row else expected.rstrip(";"))


def test_what_the_string_says_stands_in_the_columns() -> None:
    row = one(propertiesString=stored("KEYS=a b;TAGS=t;UNIQ_KEY=u;"))
    assert (row["keys"], row["tags"], row["uniqKey"]) == ("a b", "t", "u")
    row = one(properties=pairs("KEYS=a b;UNIQ_KEY=u"), tags="t")
    assert (row["keys"], row["tags"], row["uniqKey"]) == ("a b", "t", "u")


def test_a_map_that_begins_behind_other_pairs() -> None:
    """An Arrow array may hold more than it shows."""
    names, values = pa.array(["KEYS", "a", "b"]), pa.array(["hidden", "1", "2"])
    maps = pa.MapArray.from_arrays(pa.array([1, 2, 3], pa.int32()), names, values)
    batch = pa.record_batch({"topic": pa.array(["T", "T"]), "body": pa.array([b"", b""]), "properties": maps})
    made = normalise(batch, WriteOptions(), now_ms=1)
    assert made.column("propertiesString").to_pylist() == [stored("a=1;"), stored("b=2;")]
    assert made.column("keys").null_count == 2


def test_rows_of_every_kind_in_one_batch() -> None:
    rows = [
        {"topic": "T", "body": b"", **row}
        for row in (
            {"propertiesString": stored("x=1;TAGS=s"), "tags": "s"},
            {"properties": pairs("y=2"), "keys": "k", "tags": None},
            {"properties": pairs("y=2;KEYS=k;z=3"), "keys": "k"},
            {"properties": None, "tags": "only"},
            {},
        )
    ]
    batch = normal(rows)
    assert [p.replace("\x01", "=").replace("\x02", ";") for p in batch.column("propertiesString").to_pylist()] == [
        "x=1;TAGS=s", "y=2;KEYS=k;", "y=2;KEYS=k;z=3;", "TAGS=only;", "",
    ]  # fmt: skip
    assert batch.column("keys").to_pylist() == [None, "k", "k", None, None]
    assert batch.column("tags").to_pylist() == ["s", None, None, "only", None]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"keys": "a", "properties": pairs("KEYS=b")}, "'keys' is 'a' .* 'b', which is KEYS in the column 'properties'"),
        ({"tags": "a", "propertiesString": stored("TAGS=b")}, "'tags' is 'a' .* 'b', which is TAGS in .* 'propertiesString'"),
        ({"uniqKey": "a", "propertiesString": ""}, "'uniqKey' is 'a' .*; expected null, as there is no UNIQ_KEY in"),
        ({"properties": pairs("a=1"), "propertiesString": stored("a=2")}, "'properties' is {'a': '1'} .* what .* 'propert"),
        ({"properties": [], "propertiesString": stored("a=2")}, "'properties' is {} .* what .* 'propertiesString' says"),
        ({"keys": "a\x01b"}, "'keys' is .* expected text without the characters 0x01 and 0x02"),
        ({"properties": [("a", "1\x02")]}, "'properties' is .* expected a value without the characters"),
        ({"properties": [("a\x01", "1")]}, "'properties' is .* expected a name that is not empty, without the characters"),
        ({"properties": [("", "1")]}, "'properties' is .* expected a name that is not empty"),
        ({"properties": [("a", "")]}, "'properties' is {'a': ''} .* expected a value that is not empty"),
        ({"properties": [("a", "1"), ("a", "2")]}, "'properties' is {'a': '2'} .* expected a name once"),
        ({"properties": [("a", "x" * 40000)]}, "'propertiesString' is 40003 .* at most 32767 bytes"),
        ({"propertiesString": stored("INNER_MULTI_QUEUE_OFFSET=5;")}, "no INNER_MULTI_QUEUE_OFFSET where .*preserve=true"),
        ({"properties": pairs("INNER_BASE=5")}, "no INNER_BASE where queueOffsets are new"),
        ({"propertiesString": stored("__CRC32#=1234567890;a=1;")}, "expected __CRC32# once, as the last property"),
    ],
)  # fmt: skip
def test_refused(row: dict[str, Any], message: str) -> None:
    fillers = [{"topic": "T", "body": b""}, {"topic": "T", "body": b"", "properties": pairs("a=1;b=2")}]
    for rows in ([row], [*fillers, row]):
        with pytest.raises(OptionError, match=message) as e:
            normal([{"topic": "T", "body": b"", **each} for each in rows])
        assert f"row {len(rows) - 1}, topic 'T'" in str(e.value)


def test_places_in_properties_stay_where_places_do() -> None:
    kept = stored("INNER_MULTI_DISPATCH=%LMQ%a;INNER_MULTI_QUEUE_OFFSET=5;")
    assert one(given={"preserve": "true"}, queueOffset=0, propertiesString=kept)["propertiesString"] == kept
    with pytest.raises(OptionError, match=r"no INNER_MULTI_QUEUE_OFFSET .*Leave the property out$"):
        one(given={"preserve": "true", "renumber": "true"}, queueOffset=0, propertiesString=kept)


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({}, CRC),
        ({"tags": "t"}, f"TAGS=t;{CRC}"),
        ({"propertiesString": stored("a=1")}, f"a=1;{CRC}"),
        ({"propertiesString": stored("a=1;")}, f"a=1;{CRC}"),
        ({"propertiesString": stored("a=1;__CRC32#=1234567890;")}, "a=1;__CRC32#=1234567890;"),
        ({"properties": pairs("__CRC32#=1234567890;a=1")}, f"a=1;{CRC}"),
        ({"properties": pairs("__CRC32#=1234567890")}, CRC),
    ],
)
def test_a_crc_property_comes_last(row: dict[str, Any], expected: str) -> None:
    for separator in ("true", "false"):
        assert text({"enabledAppendPropCRC": "true", "lastSeparator": separator}, **row) == expected
    if "__CRC32#" in str(row):
        assert text(**row) == expected


def test_the_longest_properties() -> None:
    assert len(one(properties=[("a", "x" * 32764)])["propertiesString"]) == 32767
    with pytest.raises(OptionError, match="is 32787 in"):
        one(given={"enabledAppendPropCRC": "true"}, properties=[("a", "x" * 32764)])
