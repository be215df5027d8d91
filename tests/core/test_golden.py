"""Stores that real brokers wrote: what the core reads is what RocketMQ's own decoder read, by every way to ask."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from store_core import OptionError, Store, StoreError, UnsupportedStoreError, open_store
from store_core.layout import BATCH_QUEUE_UNIT, INDEX_ENTRY, QUEUE_UNIT
from tests.core.rows import EXTRA, expanded, full_rows, offsets, read_quietly, rows_of, same_rows, stored_body
from tests.golden_stores import ANSWERED_NAMES, GOLDEN_NAMES, Golden
from tests.oracle import Row, key_tokens
from tests.synthetic import java_hash

COMPRESSED = 0x1
INNER_BATCH = 0xC0
FILE_QUEUES = [name for name in GOLDEN_NAMES if name != "rocksdb-5.3.3"]
MODES = ("trust", "verify", "ignore")
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@pytest.fixture(scope="module")
def stores(golden: Golden) -> Callable[[str], tuple[Store, list[Row]]]:
    """An opened store, and the oracle's rows of it."""
    kept: dict[str, tuple[Store, list[Row]]] = {}

    def get(name: str) -> tuple[Store, list[Row]]:
        if name not in kept:
            store = open_store(golden(name))
            kept[name] = store, full_rows(golden(name), store.broker_name)
        return kept[name]

    return get


Stores = Callable[[str], tuple[Store, list[Row]]]


def messages(golden: Golden, name: str) -> list[Row]:
    """The messages file; newer decoders take the compressed bit out of sysFlag, here it is as stored."""
    return golden.messages(name)


# --- all rows ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ANSWERED_NAMES)
def test_rows_are_what_rocketmq_decodes(stores: Stores, golden: Golden, name: str) -> None:
    import hashlib

    rows = rows_of(stores(name)[0].scan().read_all())
    truth = messages(golden, name)
    assert len(rows) == len(truth)
    for row, expected in zip(rows, truth, strict=True):
        body = row.pop("body")
        row |= {"bodyLength": len(body), "bodySha256": hashlib.sha256(body).hexdigest()}
        row["sysFlag"] &= ~COMPRESSED
        expected["sysFlag"] &= ~COMPRESSED
        assert {column: row[column] for column in expected} == expected


@pytest.mark.parametrize("name", GOLDEN_NAMES)
@pytest.mark.parametrize("size", [None, 4096])
def test_rows_are_what_the_oracle_reads(stores: Stores, name: str, size: int | None) -> None:
    store, rows = stores(name)
    table = read_quietly(store, extraColumns=list(EXTRA), maxPartitionBytes=size, by_task=size is not None)
    assert table["commitLogOffset"].to_pylist() == [row["commitLogOffset"] for row in rows]
    same_rows(rows_of(table), rows)


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_a_commitlog_opened_alone(stores: Stores, golden: Golden, name: str) -> None:
    root = golden(name)
    folder = root / "commitlog" if (root / "commitlog").exists() else root / "dledger-n0" / "data"
    alone = open_store(folder)
    assert offsets(alone.scan().read_all()) == offsets(stores(name)[1])
    for table in ("consumequeue", "index"):
        with pytest.raises(UnsupportedStoreError, match="commitlog alone"):
            alone.scan(table=table)
    topic = stores(name)[1][0]["topic"]
    assert offsets(alone.scan([("topic", "=", topic)]).read_all()) == offsets(
        row for row in stores(name)[1] if row["topic"] == topic
    )
    key = next(token for row in stores(name)[1] for token in key_tokens(row) if row["topic"] == topic)
    assert offsets(alone.lookup(topic, key)) == by_key(stores(name)[1], topic, key)


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_crcs_are_right(stores: Stores, name: str) -> None:
    store, rows = stores(name)
    assert store.scan(columns=["commitLogOffset"], verifyCrc=True).read_all().num_rows == len(rows)


@pytest.mark.parametrize("name", ["mixed-5.3.3", "plain-4.9.7", "ipv6-5.3.3"])
def test_raw_bodies_and_raw_records(stores: Stores, name: str) -> None:
    store, rows = stores(name)
    columns = ["commitLogOffset", "queueOffset", "body", "rawRecord", "compression"]
    found = rows_of(store.scan(columns=columns, extraColumns="rawRecord,compression", bodyFormat="raw").read_all())
    same_rows(found, [row | {"body": stored_body(row)} for row in rows])
    assert len(Counter(row["compression"] for row in found)) > 1


def test_extra_columns_stand_behind_the_others(stores: Stores) -> None:
    store, rows = stores("mixed-5.3.3")
    table = store.scan(extraColumns="transactionType,sourceFile").read_all()
    assert table.column_names[-3:] == ["brokerName", "transactionType", "sourceFile"]
    assert set(table["transactionType"].to_pylist()) == {row["transactionType"] for row in rows} == {"none", "commit"}


def test_inner_batches_are_expanded_on_request(stores: Stores) -> None:
    store, rows = stores("batchcq-5.3.3")
    assert any(row["sysFlag"] & INNER_BATCH for row in rows)
    truth = expanded(rows)
    assert len(truth) > len(rows)
    same_rows(rows_of(store.scan(expandBatches=True).read_all()), truth)
    some = [row for row in truth if row["topic"] == "Batched" and 7 <= row["queueOffset"] < 20]
    where = [("topic", "=", "Batched"), ("queueOffset", ">=", 7), ("queueOffset", "<", 20)]
    same_rows(rows_of(store.scan(where, expandBatches=True).read_all()), some)
    entries = store.scan([("topic", "=", "Batched")], table="consumequeue").read_all()
    assert sum(entries["batchSize"].to_pylist()) == sum(row["topic"] == "Batched" for row in truth)


def test_offsets_choose_the_entries_of_a_batch_queue(stores: Stores, fresh_golden: Callable[[str], Path]) -> None:
    store, _ = stores("batchcq-5.3.3")

    def entries(start: int, end: int, store: Store = store) -> list[tuple[int, int]]:
        options: dict[str, Any] = {"startingOffsets": {"Batched": {"1": start}}, "endingOffsets": {"Batched": {"1": end}}}
        table = store.scan(table="consumequeue", assign={"Batched": [1]}, **options).read_all()
        return sorted(zip(table["queueOffset"].to_pylist(), table["batchSize"].to_pylist(), strict=True))

    assert entries(-2, -1) == [(0, 6), (6, 6), (12, 6)]
    assert entries(11, -1) == [(6, 6), (12, 6)]
    assert entries(12, -1) == [(12, 6)]
    assert entries(-2, 6) == [(0, 6)]
    assert entries(6, 13) == [(6, 6), (12, 6)]
    path = fresh_golden("batchcq-5.3.3")
    (file,) = (path / "batchconsumequeue" / "Batched" / "1").iterdir()
    file.write_bytes(file.read_bytes()[BATCH_QUEUE_UNIT.itemsize :])
    with pytest.raises(OptionError, match=r"startingOffsets 0 of 'Batched' queue 1 is before its first offset"):
        entries(0, -1, open_store(path))


# --- keys ----------------------------------------------------------------------------------------------------------------


def by_key(rows: list[Row], topic: str, key: str) -> list[int]:
    return offsets(row for row in rows if row["topic"] == topic and key in key_tokens(row))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ANSWERED_NAMES)
def test_the_brokers_answers_are_among_ours(stores: Stores, golden: Golden, name: str, mode: str) -> None:
    store = open_store(golden(name), index=mode)
    truth = messages(golden, name)
    complete = 0
    step = 1 if mode == "trust" else 4
    for query in golden.queries(name)[::step]:
        topic, key = query["topic"], query["key"]
        ours = offsets(store.lookup(topic, key))
        assert ours == by_key(truth, topic, key)
        same_hash = sum(java_hash(t) == java_hash(key) for row in truth if row["topic"] == topic for t in key_tokens(row))
        if query["begin"] == 0 and same_hash < 64:
            assert set(query["commitLogOffsets"]) <= set(ours)
            complete += 1
    assert complete >= 2
    if mode == "trust":
        assert "by index" in store.explain([("topic", "=", topic)], keys=[key])


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_lookup_of_every_key_of_every_topic(stores: Stores, name: str) -> None:
    store, rows = stores(name)
    pairs = sorted({(row["topic"], token) for row in rows for token in key_tokens(row)})
    for topic, key in pairs[:: max(len(pairs) // 60, 1)]:
        same_rows(rows_of(store.lookup(topic, key)), [r for r in rows if r["topic"] == topic and key in key_tokens(r)])


def test_lookup_to_the_millisecond(stores: Stores) -> None:
    store, rows = stores("mixed-5.3.3")
    hits = [row for row in rows if row["topic"] == "Payments" and "dup" in key_tokens(row)]
    times = sorted({row["storeTimestamp"] for row in hits})
    for low, high in [*pairwise(times), (times[0], times[0]), (times[-1], times[-1]), (times[3] + 1, times[4] - 1)]:
        for start, end in (
            (low, high),
            (low + 1, high),
            (low, high - 1),
            (low, None),
            (None, high),
            (as_time(low), as_time(high)),
        ):
            begin = 0 if start is None else low + (start == low + 1)
            stop = 1 << 62 if end is None else high - (end == high - 1)
            expected = offsets(row for row in hits if begin <= row["storeTimestamp"] <= stop)
            assert offsets(store.lookup("Payments", "dup", start, end)) == expected


def as_time(ms: int) -> datetime:
    return EPOCH + timedelta(milliseconds=ms)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_unique_keys(stores: Stores, golden: Golden, name: str, mode: str) -> None:
    _, rows = stores(name)
    store = open_store(golden(name))
    named = [row for row in rows if row["uniqKey"]]
    counts = Counter(row["uniqKey"] for row in named)
    for row in named[:: len(named) // 4]:
        key = row["uniqKey"]
        expected = offsets(other for other in rows if other["uniqKey"] == key)
        assert len(expected) == counts[key]
        assert offsets(store.scan([("uniqKey", "=", key)], index=mode).read_all()) == expected
        assert offsets(store.scan(uniqKeys=[key], index=mode).read_all()) == expected
        narrowed = store.scan([("uniqKey", "=", key), ("topic", "=", row["topic"])], index=mode)
        assert row["commitLogOffset"] in offsets(narrowed.read_all())
    keys = list(counts)[:3]
    assert set(offsets(store.scan([("uniqKey", "in", keys)], index=mode).read_all())) == {
        row["commitLogOffset"] for row in named if row["uniqKey"] in keys
    }


def test_the_raw_keys_column_is_not_its_tokens(stores: Stores) -> None:
    store, rows = stores("mixed-5.3.3")
    for text in ("dup dup", "dup", "Aa BB", "nothing"):
        assert offsets(store.scan([("keys", "=", text)]).read_all()) == offsets(r for r in rows if r["keys"] == text)
    for condition in (("keys", "is null"), ("uniqKey", "is null"), ("tags", "is null"), ("tags", "is not null")):
        expected = [row for row in rows if (row[condition[0]] is None) == (condition[1] == "is null")]
        assert offsets(store.scan([condition]).read_all()) == offsets(expected)


# --- places and queues ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_by_id_and_by_place(stores: Stores, name: str) -> None:
    store, rows = stores(name)
    for row in rows[:: max(len(rows) // 20, 1)]:
        place, identity = row["commitLogOffset"], row["offsetMsgId"]
        for where in ([("commitLogOffset", "=", place)], [("offsetMsgId", "=", identity)]):
            same_rows(rows_of(store.scan(where).read_all()), [row])
        assert offsets(store.scan(offsetMsgIds=[identity]).read_all()) == [place]
        for other in (place + 1, place - 1, -1, 1 << 62):
            assert store.scan([("commitLogOffset", "=", other)]).read_all().num_rows == 0
    some = [row["commitLogOffset"] for row in rows[3:40:7]]
    assert offsets(store.scan([("commitLogOffset", "in", some)]).read_all()) == some
    assert offsets(store.scan([("commitLogOffset", ">", some[1]), ("commitLogOffset", "<=", some[3])]).read_all()) == [
        row["commitLogOffset"] for row in rows if some[1] < row["commitLogOffset"] <= some[3]
    ]


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_topics_queues_and_offsets(stores: Stores, name: str) -> None:
    store, rows = stores(name)
    for topic in sorted({row["topic"] for row in rows}):
        here = [row for row in rows if row["topic"] == topic]
        same_rows(rows_of(store.scan(subscribe=[topic]).read_all()), here)
        same_rows(rows_of(store.scan([("topic", "=", topic)]).read_all()), here)
        queue = here[0]["queueId"]
        mine = [row for row in here if row["queueId"] == queue]
        assert offsets(store.scan(assign={topic: [queue]}).read_all()) == offsets(mine)
        low = mine[len(mine) // 3]["queueOffset"]
        high = mine[-1]["queueOffset"]
        where = [("topic", "=", topic), ("queueId", "=", queue), ("queueOffset", ">=", low), ("queueOffset", "<", high)]
        expected = offsets(row for row in mine if low <= row["queueOffset"] < high)
        assert offsets(store.scan(where).read_all()) == expected
        bounds = {"startingOffsets": {topic: {str(queue): low}}, "endingOffsets": {topic: {str(queue): high}}}
        chosen: dict[str, Any] = {"assign": {topic: [queue]}, **bounds}
        assert offsets(store.scan(**chosen).read_all()) == expected


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_time_ranges(stores: Stores, name: str) -> None:
    store, rows = stores(name)
    times = [row["storeTimestamp"] for row in rows]
    for low, high in ((times[5], times[-5]), (times[10], times[10]), (times[20], times[21]), (times[-1], times[-1] + 1)):
        exclusive = offsets(row for row in rows if low <= row["storeTimestamp"] < high)
        assert offsets(store.scan(startingTimestamp=low, endingTimestamp=high).read_all()) == exclusive
        for topic in (None, "Orders"):
            where: list[tuple[str, str, Any]] = [("storeTimestamp", ">", low), ("storeTimestamp", "<=", as_time(high))]
            where += [("topic", "=", topic)] if topic else []
            expected = [row for row in rows if low < row["storeTimestamp"] <= high and topic in (None, row["topic"])]
            assert offsets(store.scan(where).read_all()) == offsets(expected)


@pytest.mark.parametrize("mode", ["trust", "verify"])
@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_tags(stores: Stores, name: str, mode: str) -> None:
    store, rows = stores(name)
    for tag in sorted({row["tags"] for row in rows if row["tags"]})[:4]:
        for topic in sorted({row["topic"] for row in rows if row["tags"] == tag}):
            expected = offsets(row for row in rows if row["tags"] == tag and row["topic"] == topic)
            assert offsets(store.scan(tags=[tag], subscribe=[topic], index=mode).read_all()) == expected
            where = [("tags", "=", tag), ("topic", "=", topic), ("queueId", "<", 2)]
            some = offsets(r for r in rows if r["tags"] == tag and r["topic"] == topic and r["queueId"] < 2)
            assert offsets(store.scan(where, index=mode).read_all()) == some


def test_light_message_queues(stores: Stores) -> None:
    store, rows = stores("lmq-5.3.3")
    for light in ("%LMQ%all", "%LMQ%u0", "%LMQ%u1"):
        expected = [row for row in rows if light in row["properties"].get("INNER_MULTI_DISPATCH", "").split(",")]
        assert expected
        same_rows(rows_of(store.scan(subscribe=[light]).read_all()), expected)
        assert store.scan(subscribe=[light], table="consumequeue").read_all().num_rows == len(expected)


def test_an_absent_topic_is_an_error_with_near_names(stores: Stores) -> None:
    with pytest.raises(StoreError, match=r"no topic 'Order'.*'Orders'"):
        stores("mixed-5.3.3")[0].scan(subscribe=["Order"])


# --- queue and index tables ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FILE_QUEUES)
def test_queue_table(stores: Stores, golden: Golden, name: str) -> None:
    """A row for each entry in the files, and all of them lead to their messages."""
    store, rows = stores(name)
    by_place = {row["commitLogOffset"]: row for row in rows}
    table = store.scan(table="consumequeue").read_all()
    entries = table.to_pylist()
    units = 0
    for file in sorted(golden(name).glob("consumequeue/*/*/*")):
        stored = pa.array([u["size"] for u in unpacked(file, QUEUE_UNIT)])
        units += sum(0 < size < 0x7FFFFFFF for size in stored.to_pylist())
    assert sum(entry["batchSize"] == 1 for entry in entries) >= units > 0
    plain = [entry for entry in entries if not entry["topic"].startswith("%LMQ%")]
    for entry in entries:
        row = by_place[entry["commitLogOffset"]]
        assert entry["size"] == row["storeSize"]
        if entry["topic"].startswith("%LMQ%"):
            assert entry["topic"] in row["properties"]["INNER_MULTI_DISPATCH"].split(",")
            continue
        assert (entry["topic"], entry["queueId"], entry["queueOffset"]) == (row["topic"], row["queueId"], row["queueOffset"])
        assert entry["batchSize"] == int(row["properties"].get("INNER_NUM", "1"))
        if entry["topic"] != "SCHEDULE_TOPIC_XXXX":
            assert entry["tagsCode"] == java_hash(row["tags"] or "")
        assert Path(entry["sourceFile"]).is_file()
    assert sorted(entry["commitLogOffset"] for entry in plain) == offsets(rows)
    one = store.scan([("topic", "=", "Orders"), ("queueId", "=", 1), ("queueOffset", ">", 2)], table="consumequeue").read_all()
    key = ("topic", "queueId", "queueOffset")
    assert one.num_rows == sum((e[key[0]], e[key[1]]) == ("Orders", 1) and e[key[2]] > 2 for e in entries)


def unpacked(file: Path, dtype: Any) -> Any:
    import numpy as np

    data = file.read_bytes()
    return np.frombuffer(data[: len(data) // dtype.itemsize * dtype.itemsize], dtype=dtype)


def test_no_queue_table_of_a_rocksdb(stores: Stores) -> None:
    with pytest.raises(UnsupportedStoreError, match="RocksDB"):
        stores("rocksdb-5.3.3")[0].scan(table="consumequeue")


@pytest.mark.parametrize("size", [None, 10_000])
@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_index_table(stores: Stores, golden: Golden, name: str, size: int | None) -> None:
    """Every entry in the files is a row, and says rightly what it stands for."""
    store, rows = stores(name)
    by_place = {row["commitLogOffset"]: row for row in rows}
    entries = read_quietly(store, table="index", maxPartitionBytes=size, by_task=True).to_pylist()
    stood_for: Counter[tuple[int, str, str]] = Counter()
    for entry in entries:
        row = by_place[entry["commitLogOffset"]]
        kind, key = entry["indexType"], entry["key"]
        prefix = "T#" if kind == "tag" else ""
        value = java_hash(f"{row['topic']}#{prefix}{key}")
        assert entry["keyHash"] == (0 if value == -(1 << 31) else abs(value))
        assert key in {"uniqKey": [row["uniqKey"]], "key": key_tokens(row), "tag": [row["tags"]]}[kind]
        assert entry["topic"] == row["topic"]
        assert entry["storeTimestamp"] == as_time(row["storeTimestamp"])
        assert entry["uniqKey"] == row["uniqKey"]
        stood_for[entry["commitLogOffset"], kind, key] += 1
    tags = name == "crc-5.5.0"
    wanted = Counter((row["commitLogOffset"], kind, key) for row in rows for kind, key in indexed(row, tags))
    assert all(stood_for[one] % count == 0 and stood_for[one] for one, count in wanted.items())
    assert set(stood_for) == set(wanted)
    assert len(entries) == sum(count_of(file) for file in golden(name).glob("index/*"))


def indexed(row: Row, tags: bool) -> list[tuple[str, str]]:
    found = [("uniqKey", row["uniqKey"])] if row["uniqKey"] else []
    found += [("key", token) for token in key_tokens(row)]
    return found + ([("tag", row["tags"])] if tags and row["tags"] else [])


def count_of(file: Path) -> int:
    return int.from_bytes(file.read_bytes()[36:40], "big") - 1


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_index_table_by_key(stores: Stores, name: str) -> None:
    store, _ = stores(name)
    every = store.scan(table="index").read_all().to_pylist()
    for entry in every[:: max(len(every) // 4, 1)]:
        where = [("topic", "=", entry["topic"]), ("key", "=", entry["key"])]
        found = store.scan(where, table="index").read_all().to_pylist()
        assert found == [e for e in every if (e["topic"], e["key"]) == (entry["topic"], entry["key"])]
        one = store.scan([*where, ("indexType", "=", entry["indexType"])], table="index").read_all()
        assert one.num_rows == sum(e["indexType"] == entry["indexType"] for e in found)


def test_entries_of_messages_that_are_gone(fresh_golden: Callable[[str], Path]) -> None:
    root = fresh_golden("mixed-5.3.3")
    first = min((root / "commitlog").iterdir())
    size = first.stat().st_size
    first.unlink()
    entries = open_store(root).scan(table="index").read_all().to_pylist()
    gone = [entry for entry in entries if entry["commitLogOffset"] < size]
    assert gone
    assert all(entry["topic"] is None and entry["key"] is None and entry["indexType"] is None for entry in gone)
    assert all(entry["topic"] is not None for entry in entries if entry["commitLogOffset"] >= size)


# --- several files -------------------------------------------------------------------------------------------------------


def test_sizes_of_index_entries_are_as_declared() -> None:
    assert (INDEX_ENTRY.itemsize, QUEUE_UNIT.itemsize) == (20, 20)


def test_a_log_in_several_folders(golden: Golden, tmp_path: Path, stores: Stores) -> None:
    root = tmp_path / "several"
    shutil.copytree(golden("mixed-5.3.3"), root)
    second = max((root / "commitlog").iterdir())
    (root / "commitlog-2").mkdir()
    second.rename(root / "commitlog-2" / second.name)
    rows = stores("mixed-5.3.3")[1]
    assert offsets(open_store(root).scan().read_all()) == offsets(rows)
    told = open_store(root, storePathCommitLog="commitlog,commitlog-2")
    assert offsets(told.scan(subscribe=["Orders"]).read_all()) == offsets(r for r in rows if r["topic"] == "Orders")
