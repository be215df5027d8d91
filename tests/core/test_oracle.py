"""The oracle agrees with RocketMQ itself: with its decoder, its queue files and its answers to key queries."""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from tests.damage import append, delete, flip_bit, truncate, zero
from tests.golden_stores import ANSWERED_NAMES, GOLDEN_NAMES, Golden
from tests.oracle import Row, data_end, key_tokens, log_files, matches, parse_props, read_store
from tests.synthetic import java_hash

FILE_QUEUES = [name for name in GOLDEN_NAMES if name != "rocksdb-5.3.3"]
COMPRESSED = 0x1


@pytest.mark.parametrize("name", ANSWERED_NAMES)
def test_rows_are_what_rocketmq_decodes(golden: Golden, name: str) -> None:
    rows, truth = read_store(golden(name)), golden.messages(name)
    assert len(rows) == len(truth)
    for row, expected in zip(rows, truth, strict=True):
        found = {column: row[column] for column in expected}
        # The decoder of 5.3.3 and 5.5.0 takes the compressed bit out of sysFlag once it has decompressed; on disk it is there.
        if expected["sysFlag"] != row["sysFlag"]:
            assert name.split("-")[1] >= "5.3"
            found["sysFlag"] &= ~COMPRESSED
        assert found == expected


@pytest.mark.parametrize("name", FILE_QUEUES)
def test_queue_entries_of_the_broker_point_at_the_rows(golden: Golden, name: str) -> None:
    rows = {row["commitLogOffset"]: row for row in read_store(golden(name))}
    seen = set()
    for file in golden(name).glob("consumequeue/*/*/*"):
        topic, queue_id, base = file.parts[-3], int(file.parts[-2]), int(file.name) // 20
        for number, (offset, size, code) in enumerate(struct.iter_unpack(">qiq", file.read_bytes())):
            if size == 0:
                break
            row = rows[offset]
            assert size == row["storeSize"]
            if not topic.startswith("%LMQ%"):
                assert (topic, queue_id, base + number) == (row["topic"], row["queueId"], row["queueOffset"])
                seen.add(offset)
            if row["topic"] != "SCHEDULE_TOPIC_XXXX":
                assert code == java_hash(row["tags"] or "")
    inner = {offset for offset, row in rows.items() if "INNER_NUM" in row["properties"]}
    assert seen == set(rows) - inner


@pytest.mark.parametrize("name", ANSWERED_NAMES)
def test_answers_of_the_broker_are_among_the_rows_with_that_key(golden: Golden, name: str) -> None:
    rows = read_store(golden(name))
    complete = 0
    for query in golden.queries(name):
        if query["begin"] > 0:  # the broker compares times in seconds: no truth to be had
            continue
        topic, key = query["topic"], query["key"]
        exact = [row["commitLogOffset"] for row in rows if row["topic"] == topic and key in key_tokens(row)]
        same_hash = [t for row in rows if row["topic"] == topic for t in key_tokens(row) if java_hash(t) == java_hash(key)]
        assert set(query["commitLogOffsets"]) <= set(exact)
        # It stops at 64 hashes, and its answers about system topics miss some: those are only a part of the truth.
        if len(same_hash) < 64 and not topic.upper().startswith("RMQ_SYS_"):
            assert query["commitLogOffsets"] == exact
            complete += 1
    assert complete > 3


def test_a_log_cut_at_any_byte_is_read_up_to_there(fresh_golden: Callable[[str], Path]) -> None:
    store = fresh_golden("longtopic-5.3.3")
    (file,) = log_files(store)
    rows = read_store(store)
    end = data_end(store)
    assert end == rows[-1]["commitLogOffset"] + rows[-1]["storeSize"]
    for size in (end, end - 1, 20_000, rows[5]["commitLogOffset"] + 8, rows[5]["commitLogOffset"] + 4, 7, 0):
        truncate(file, size)
        assert read_store(store) == [row for row in rows if row["commitLogOffset"] + row["storeSize"] <= size]


def test_data_ends_where_a_broker_would_end_it(fresh_golden: Callable[[str], Path]) -> None:
    store = fresh_golden("mixed-5.3.3")
    first, second = log_files(store)
    rows = read_store(store)
    in_first = [row for row in rows if row["commitLogOffset"] < int(second.name)]
    append(second, b"anything")
    assert read_store(store) == rows
    flip_bit(second, 88, 0)  # in the first body: its CRC fails
    assert read_store(store) == in_first
    blank = in_first[-1]["commitLogOffset"] + in_first[-1]["storeSize"]
    zero(first, blank, 8)
    assert read_store(store) == in_first
    delete(first)
    assert read_store(store) == []


def test_crash_leaves_an_empty_next_file(golden: Golden) -> None:
    store = golden("crash-5.1.4")
    assert len(log_files(store)) == 3
    assert data_end(store) < int(log_files(store)[-1].name)


@pytest.mark.parametrize(
    ("stored", "properties"),
    [
        (b"", {}),
        (b"a\x01b", {"a": "b"}),
        (b"a\x01b\x02", {"a": "b"}),
        (b"a\x01b\x02a\x01c\x02", {"a": "c"}),
        (b"a\x01\x02\x01b\x02ab\x02x\x01y", {"x": "y"}),
        (b"a\x01b\x01c\x02", {"a": "b\x01c"}),
        ("键\x01🔑\x02".encode(), {"键": "🔑"}),
        (b"\xff\x01b\x02", {"�": "b"}),
    ],
)
def test_properties(stored: bytes, properties: dict[str, str]) -> None:
    assert parse_props(stored) == properties


@pytest.mark.parametrize(
    ("keys", "tokens"), [(None, []), ("", []), (" ", []), ("a", ["a"]), (" a  b ", ["a", "b"]), ("a a\tb", ["a", "a\tb"])]
)
def test_key_tokens(keys: str | None, tokens: list[str]) -> None:
    assert key_tokens({"keys": keys}) == tokens


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ([], True),
        ([("queueId", "=", 3)], True),
        ([("queueId", "!=", 3)], False),
        ([("queueId", "<", 4), ("queueId", "<=", 3), ("queueId", ">", 2), ("queueId", ">=", 3)], True),
        ([("queueId", "<", 3)], False),
        ([("queueId", ">", 3)], False),
        ([("topic", "in", ["x", "T"])], True),
        ([("topic", "in", [])], False),
        ([("topic", "in", ["x", None])], False),
        ([("topic", "=", None)], False),
        ([("topic", "!=", None)], False),
        ([("keys", "=", "a")], False),
        ([("keys", "!=", "a")], False),
        ([("keys", "in", [None])], False),
        ([("keys", "is null", None)], True),
        ([("keys", "is not null", None)], False),
        ([("topic", "is not null", None), ("queueId", "=", 9)], False),
        ([("storeTimestamp", "=", 1_735_901_092_139)], True),
        ([("storeTimestamp", "=", datetime(2025, 1, 3, 10, 44, 52, 139_000, timezone.utc))], True),
        ([("storeTimestamp", "<", datetime(2025, 1, 3, 10, 44, 52, 139_001, timezone.utc))], True),
    ],
)
def test_filters_have_sql_semantics(where: list[tuple[str, str, Any]], expected: bool) -> None:
    row: Row = {"topic": "T", "queueId": 3, "keys": None, "storeTimestamp": 1_735_901_092_139}
    assert matches(row, where) is expected
