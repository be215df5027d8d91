"""Given rows: what is taken, what is put where nothing is given, and what is refused with column, topic, value and limit."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import store_core
from store_core.errors import OptionError
from store_core.incoming import NORMALISED, check_columns, normalise
from store_core.schema import EXTRA_COLUMNS, MESSAGES, TIMESTAMP
from store_core.topicrules import SYSTEM_TOPICS
from store_core.writeoptions import WriteOptions, parse_write_options
from tests.golden_stores import Golden

NOW = 1_795_250_597_888
KNOWN = {**{f.name: f.type for f in MESSAGES}, "propertiesString": pa.string()}


def normal(
    rows: list[dict[str, Any]], types: dict[str, Any] | None = None, first_row: int = 0, **options: object
) -> pa.RecordBatch:
    names = dict.fromkeys(name for row in rows for name in row)
    schema = pa.schema([(name, (types or {}).get(name) or KNOWN[name]) for name in names])
    batch = pa.RecordBatch.from_pylist(rows, schema=schema)
    return normalise(batch, parse_write_options(options), now_ms=NOW, first_row=first_row)


def one(types: dict[str, Any] | None = None, given: dict[str, Any] | None = None, **row: Any) -> dict[str, Any]:
    return normal([{"topic": "T", "body": b"b", **row}], types, **(given or {})).to_pylist()[0]


def at(ms: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=ms)


def test_topic_and_body_are_enough() -> None:
    batch = normal([{"topic": "T", "body": b"b"}])
    assert batch.schema.equals(NORMALISED)
    assert batch.to_pylist() == [
        {
            "topic": "T",
            "queueId": 0,
            "queueOffset": None,
            "commitLogOffset": None,
            "tags": None,
            "keys": None,
            "uniqKey": None,
            "body": b"b",
            "flag": 0,
            "sysFlag": 0,
            "bornTimestamp": at(NOW),
            "bornHost": b"\x7f\0\0\x01\0\0\0\0",
            "storeTimestamp": at(NOW),
            "storeHost": b"\x7f\0\0\x01\0\0\x2a\x9f",
            "reconsumeTimes": 0,
            "preparedTransactionOffset": 0,
            "propertiesString": "",
        }
    ]


def test_null_is_what_is_not_given() -> None:
    nulls = {name: None for name in KNOWN if name not in ("topic", "body")}
    assert one(**nulls) == one()
    of_no_type = {name: pa.null() for name in nulls if name != "properties"}
    assert one(of_no_type, **dict.fromkeys(of_no_type)) == one()


@pytest.mark.parametrize("name", ["plain-4.9.7", "mixed-5.3.3"])
def test_all_columns_of_a_reader_are_taken(golden: Golden, name: str) -> None:
    batch = next(iter(store_core.open_store(golden(name)).scan(where=[("topic", "=", "Orders")])))
    made = normalise(batch, WriteOptions(), now_ms=1)
    for column in ("topic", "queueId", "tags", "keys", "uniqKey", "body", "flag", "bornTimestamp", "storeTimestamp"):
        assert made.column(column).to_pylist() == batch.column(column).to_pylist()
    assert made.column("queueOffset").null_count == made.column("commitLogOffset").null_count == len(batch)


def test_times() -> None:
    assert one(storeTimestamp=at(5))["bornTimestamp"] == at(5)
    row = one(bornTimestamp=at(-7))
    assert (row["bornTimestamp"], row["storeTimestamp"]) == (at(-7), at(NOW))
    cut = one(storeTimestamp=datetime(2026, 11, 21, 9, 23, 17, 888_999, timezone.utc))
    assert cut["storeTimestamp"] == datetime(2026, 11, 21, 9, 23, 17, 888_000, timezone.utc)
    for unit, value in (("s", 1_700_000_000), ("ms", 1_700_000_000_000), ("ns", 1_700_000_000_000_000_999)):
        kind = {"storeTimestamp": pa.timestamp(unit, "Europe/Berlin")}
        assert one(kind, storeTimestamp=value)["storeTimestamp"] == at(1_700_000_000_000)


@pytest.mark.parametrize(
    ("column", "kind", "value", "made"),
    [
        ("queueId", pa.int64(), 7, 7),
        ("queueId", pa.uint64(), 7, 7),
        ("flag", pa.int8(), -3, -3),
        ("keys", pa.large_string(), "k", "k"),
        ("tags", pa.dictionary(pa.int8(), pa.string()), "t", "t"),
        ("body", pa.large_binary(), b"x", b"x"),
        ("body", pa.binary(3), b"xyz", b"xyz"),
        ("body", pa.string(), "ä", "ä".encode()),
        ("topic", pa.dictionary(pa.int32(), pa.string()), "Orders", "Orders"),
    ],
)
def test_types_that_hold_the_same(column: str, kind: Any, value: Any, made: object) -> None:
    assert one({column: kind}, **{column: value})[column] == made


@pytest.mark.parametrize(
    ("column", "kind", "expected"),
    [
        ("queueId", pa.float64(), "of type double; expected a whole number"),
        ("queueId", pa.string(), "of type string; expected a whole number"),
        ("keys", pa.binary(), "of type binary; expected a string"),
        ("keys", pa.list_(pa.string()), "expected a string"),
        ("body", pa.int32(), "of type int32; expected binary, or a string"),
        ("storeTimestamp", pa.int64(), "expected a timestamp with a time zone"),
        ("bornTimestamp", pa.timestamp("us"), "of type timestamp.us.; expected a timestamp with a time zone"),
        ("properties", pa.map_(pa.string(), pa.int32()), "expected a map of strings to strings"),
    ],
)
def test_types_that_do_not(column: str, kind: Any, expected: str) -> None:
    schema = pa.schema([("topic", pa.string()), ("body", pa.binary())])
    schema = pa.schema([f for f in schema if f.name != column]).append(pa.field(column, kind))
    with pytest.raises(OptionError, match=f"column {column!r} is .*{expected}"):
        check_columns(schema, WriteOptions())


def test_columns_that_are_none() -> None:
    base = [("topic", pa.string()), ("body", pa.binary())]
    for name in EXTRA_COLUMNS.names:
        if name != "propertiesString":
            with pytest.raises(OptionError, match=f"column '{name}' only tells of a store that was read.*drop it"):
                check_columns(pa.schema([*base, (name, pa.string())]), WriteOptions())
    with pytest.raises(OptionError, match=r"no column 'queueID' in a message\. Did you mean 'queueId'.*propertiesString"):
        check_columns(pa.schema([*base, ("queueID", pa.int32())]), WriteOptions())
    with pytest.raises(OptionError, match="no column 'body' among topic; a message needs it"):
        check_columns(pa.schema(base[:1]), WriteOptions())
    with pytest.raises(OptionError, match="'topic' stands twice"):
        check_columns(pa.schema([*base, base[0]]), WriteOptions())
    with pytest.raises(OptionError, match="no column 'queueOffset' among topic, body; a message needs it, and preserve"):
        check_columns(pa.schema(base), WriteOptions(preserve=True))


@pytest.mark.parametrize(
    ("column", "kind", "value", "expected"),
    [
        ("queueId", pa.int32(), 65536, "0 to 65535. A topic has all queues up to its highest"),
        ("queueId", None, -1, "0 to 65535"),
        ("queueId", pa.uint64(), 1 << 63, "0 to 65535"),
        ("flag", pa.int64(), 1 << 31, "-2147483648 to 2147483647"),
        ("reconsumeTimes", None, -1, "0 to 2147483647"),
        ("queueOffset", None, -1, "0 to 9223372036854775807"),
        ("topic", None, None, "a topic"),
        ("topic", None, "a b", "a topic of the characters"),
        ("topic", None, "", "a topic of the characters"),
        ("topic", None, "../x", "a topic of the characters"),
        ("topic", None, "a+b", "a topic of the characters"),
        ("topic", None, "%LMQ%q", "queues of other topics' messages"),
        ("topic", None, "x" * 256, "at most 255 bytes, and this one has 256"),
        ("body", None, None, "a body, which may be empty"),
        ("sysFlag", None, 0xC0, "no inner batch. Read with expandBatches=true"),
        ("bornHost", None, "localhost:1", "an address and a port"),
        ("storeHost", None, "1.2.3.4:65536", "a port of 0 to 65535"),
        ("storeTimestamp", None, at(0), "a time after 1970"),
        *(
            ("bornTimestamp", pa.timestamp(unit, "UTC"), value, f"{unit} since 1970, -")
            for unit, value in (("us", -(1 << 63)), ("ms", -(1 << 63)), ("s", 1 << 62))
        ),
        ("preparedTransactionOffset", None, 5, "0 where places are new.*Drop the column.*preserve=true"),
    ],
)
def test_values_that_are_refused(column: str, kind: Any, value: object, expected: str) -> None:
    row = {"topic": "T", "body": b"b", column: value}
    good = {"topic": "T", "body": b"b", column: {"topic": "T", "body": b"b"}.get(column)}
    with pytest.raises(OptionError) as e:
        normal([good, row], {column: kind} if kind else None, first_row=40)
    topic = repr(value) if column == "topic" else "'T'"
    assert str(e.value).startswith(f"column {column!r} is ")
    assert f" in row 41, topic {topic}; expected " in str(e.value)
    assert re.search(expected, str(e.value))


def test_topics_that_a_broker_acts_on() -> None:
    for topic in [*SYSTEM_TOPICS, "rmq_sys_REVIVE_LOG_c"]:
        with pytest.raises(OptionError, match=f"'{topic}'; expected no topic whose messages.*systemTopics=true"):
            one(topic=topic)
        if "_OP_" not in topic:
            assert one(given={"systemTopics": "true"}, topic=topic)["topic"] == topic
        else:
            with pytest.raises(OptionError, match=r"its bodies hold those of half messages.*preserve=true"):
                one(given={"systemTopics": "true"}, topic=topic)
            with pytest.raises(OptionError, match="its bodies hold"):
                one(given={"systemTopics": "true", "preserve": "true", "renumber": "true"}, topic=topic, queueOffset=0)
            assert one(given={"systemTopics": "true", "preserve": "true"}, topic=topic, queueOffset=0)["topic"] == topic


def test_long_topics_need_a_broker_that_knows_them() -> None:
    assert one(topic="x" * 128, given={"targetVersion": "5.1.0"})["topic"] == "x" * 128
    with pytest.raises(OptionError, match=r"at most 127 bytes, and this one has 128; brokers before 5\.1\.0"):
        one(topic="x" * 128, given={"targetVersion": "4.9.7"})
    assert one(topic="%RETRY%group+Topic")["topic"] == "%RETRY%group+Topic"


def test_preserve_keeps_places() -> None:
    row = one(given={"preserve": "true"}, queueOffset=5, commitLogOffset=4096, preparedTransactionOffset=77)
    assert (row["queueOffset"], row["commitLogOffset"], row["preparedTransactionOffset"]) == (5, 4096, 77)
    assert one(given={"preserve": "true"}, queueOffset=5)["commitLogOffset"] is None
    with pytest.raises(OptionError, match=r"column 'queueOffset' is None in row 0, topic 'T'; expected .* preserve keeps it"):
        one(given={"preserve": "true"}, queueOffset=None)
    with pytest.raises(OptionError, match=r"column 'queueOffset' is .* expected 0 to 461168601842738789. Set renumber=true"):
        one(given={"preserve": "true"}, queueOffset=1 << 62)
    assert one(given={"preserve": "true", "renumber": "true"}, queueOffset=1 << 62)
    with pytest.raises(OptionError, match="can name a folder"):
        one(given={"preserve": "true"}, queueOffset=1, topic="..")


def test_hosts() -> None:
    rows = [{"topic": "T", "body": b"", "bornHost": h} for h in ("1.2.3.4:5", None, "[0:0:0:0:0:0:0:1]:6", "[::1]:6")]
    batch = normal(rows, storeHost="[::2]:10911", bornHost="9.9.9.9:9")
    v6 = bytes(15) + b"\x01\0\0\0\x06"
    assert batch.column("bornHost").to_pylist() == [b"\1\2\3\4\0\0\0\5", b"\t\t\t\t\0\0\0\t", v6, v6]
    assert batch.column("sysFlag").to_pylist() == [0x20, 0x20, 0x30, 0x30]
    # what the flag said of hosts is said anew
    assert one(sysFlag=0x32)["sysFlag"] == 2


def test_queues_in_turn() -> None:
    rows = [{"topic": "AB"[i % 2], "body": b"", "queueId": 9 if i == 4 else None} for i in range(10)]
    batch = pa.RecordBatch.from_pylist(rows, schema=pa.schema([(n, KNOWN[n]) for n in ("topic", "body", "queueId")]))
    options = parse_write_options({"defaultTopicQueueNums": 3})
    made = normalise(batch, options, now_ms=NOW, first_queue=1, seen={"B": 4}, queue_nums={"A": 2})
    assert made.column("queueId").to_pylist()[0::2] == [1, 0, 9, 0, 1]
    assert made.column("queueId").to_pylist()[1::2] == [2, 0, 1, 2, 0]


def test_a_slice_is_what_it_shows() -> None:
    rows = [
        {"topic": f"T{i}", "body": b"b" * i, "queueId": i, "keys": f"k{i}" if i % 2 else None, "properties": [("a", str(i))],
         "bornHost": f"1.2.3.{i}:1", "storeTimestamp": at(1000 + i)}
        for i in range(6)
    ]  # fmt: skip
    schema = pa.schema([(name, KNOWN[name]) for name in rows[0]])
    whole = pa.RecordBatch.from_pylist(rows, schema=schema)
    cut = normalise(whole.slice(2, 3), WriteOptions(), now_ms=NOW)
    assert cut.to_pylist() == normalise(whole, WriteOptions(), now_ms=NOW).slice(2, 3).to_pylist()


def test_numbers_of_a_batch_are_whole_columns() -> None:
    batch = normal([{"topic": "T", "body": b"", "storeTimestamp": at(i + 1)} for i in range(3)])
    assert batch.column("storeTimestamp").type == TIMESTAMP
    assert np.asarray(batch.column("storeTimestamp").view(pa.int64())).tolist() == [1000, 2000, 3000]
