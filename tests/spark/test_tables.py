"""The queue and index tables, against what a plain second reading of the same files says."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import store_core
from tests.golden_stores import Golden
from tests.spark.rows import Row, keys_of, ms

FILLER = (0, 0x7FFFFFFF, 0)


def queue_entries(store: Path) -> Iterator[dict[str, Any]]:
    """Every written entry of every queue."""
    for file in sorted((store / "consumequeue").glob("*/*/*")):
        data = file.read_bytes()
        for at in range(0, len(data) - 19, 20):
            entry = struct.unpack_from(">qiq", data, at)
            if entry not in ((0, 0, 0), FILLER):
                yield {
                    "topic": file.parts[-3],
                    "queueId": int(file.parts[-2]),
                    "queueOffset": (int(file.name) + at) // 20,
                    "commitLogOffset": entry[0],
                    "size": entry[1],
                    "tagsCode": entry[2],
                    "sourceFile": str(file),
                    "batchSize": 1,
                }


def in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (row["topic"], row["queueId"], row["queueOffset"]))


def queue_table(spark: SparkSession, path: Path, **options: str) -> DataFrame:
    return spark.read.format("rocketmq-consumequeue").options(**options).load(str(path))


@pytest.mark.parametrize("name", ["mixed-5.3.3", "lmq-5.3.3", "plain-4.9.7"])
def test_queue_table(spark: SparkSession, golden: Golden, name: str) -> None:
    expected = in_order(list(queue_entries(golden(name))))
    assert in_order(queue_table(spark, golden(name)).toArrow().to_pylist()) == expected != []
    by_option = spark.read.format("rocketmq-store").option("table", "consumequeue").load(str(golden(name)))
    assert by_option.count() == len(expected)


def test_queue_table_options(spark: SparkSession, golden: Golden) -> None:
    store = golden("mixed-5.3.3")
    expected = in_order(list(queue_entries(store)))
    cases: list[tuple[dict[str, str], Callable[[Row], bool]]] = [
        ({"subscribe": "Orders"}, lambda r: r["topic"] == "Orders"),
        ({"assign": '{"Orders":[1]}', "startingOffsets": '{"Orders":{"1":4}}', "endingOffsets": '{"Orders":{"1":6}}'},
         lambda r: (r["topic"], r["queueId"]) == ("Orders", 1) and 4 <= r["queueOffset"] < 6),
    ]  # fmt: skip
    for options, keep in cases:
        found = in_order(queue_table(spark, store, **options).toArrow().to_pylist())
        assert found == [row for row in expected if keep(row)] != []


def test_queue_table_of_the_batched_topic(spark: SparkSession, golden: Golden) -> None:
    store = golden("batchcq-5.3.3")
    batched = queue_table(spark, store, subscribe="Batched").toArrow().to_pylist()
    messages = [row for row in golden.messages("batchcq-5.3.3") if row["topic"] == "Batched"]
    assert sorted(row["commitLogOffset"] for row in batched) == sorted(row["commitLogOffset"] for row in messages)
    sizes = {row["commitLogOffset"]: int(row["properties"].get("INNER_NUM", 1)) for row in messages}
    assert {row["commitLogOffset"]: row["batchSize"] for row in batched} == sizes


@pytest.mark.parametrize("table", ["consumequeue", "index"])
def test_what_a_commitlog_alone_or_a_rocksdb_does_not_have(spark: SparkSession, golden: Golden, table: str) -> None:
    for path, word in ((golden("mixed-5.3.3") / "commitlog", "commitlog"), (golden("rocksdb-5.3.3"), "RocksDB")):
        if (table, word) == ("index", "RocksDB"):
            continue
        with pytest.raises(PySparkException, match=word):
            spark.read.format("rocketmq-store").option("table", table).load(str(path)).count()


def index_entries(store: Path, slots: int, entries: int) -> Iterator[dict[str, Any]]:
    for file in sorted((store / "index").iterdir()):
        data = file.read_bytes()
        assert len(data) == 40 + 4 * slots + 20 * entries
        (count,) = struct.unpack_from(">i", data, 36)
        for number in range(1, count):
            at = 40 + 4 * slots + 20 * number
            hashed, offset, seconds, before = struct.unpack_from(">iqii", data, at)
            yield {
                "sourceFile": str(file),
                "indexNo": number,
                "slot": abs(hashed) % slots,
                "keyHash": hashed,
                "commitLogOffset": offset,
                "timeDiff": seconds,
                "prevIndexNo": before,
            }


@pytest.mark.parametrize("options", [{}, {"maxHashSlotNum": "200", "maxIndexNum": "800"}], ids=["inferred", "told"])
def test_index_table(spark: SparkSession, golden: Golden, options: dict[str, str]) -> None:
    store, name = golden("mixed-5.3.3"), "mixed-5.3.3"
    df = spark.read.format("rocketmq-indexfile").options(**options).load(str(store))
    rows = sorted(df.drop("body").toArrow().to_pylist(), key=lambda row: (row["sourceFile"], row["indexNo"]))
    expected = list(index_entries(store, 200, 800))
    assert [{key: row[key] for key in wanted} for row, wanted in zip(rows, expected, strict=True)] == expected
    messages = {row["commitLogOffset"]: row for row in golden.messages(name)}
    for row in rows:
        message = messages[row["commitLogOffset"]]
        assert row["topic"] == message["topic"] and row["queueId"] == message["queueId"]
        assert ms(row["storeTimestamp"]) == message["storeTimestamp"]
        kinds = {"uniqKey": [message["uniqKey"]], "key": keys_of(message), "tag": [message["tags"]]}
        assert row["key"] in kinds[row["indexType"]]


def test_a_key_query_in_sql(spark: SparkSession, golden: Golden) -> None:
    messages: list[Row] = golden.messages("mixed-5.3.3")
    spark.read.format("rocketmq-indexfile").load(str(golden("mixed-5.3.3"))).createOrReplaceTempView("index_entries")
    found = spark.sql(
        "SELECT DISTINCT commitLogOffset o FROM index_entries WHERE topic = 'Orders' AND key = 'BB' AND indexType = 'key'"
    )
    expected = {row["commitLogOffset"] for row in messages if row["topic"] == "Orders" and "BB" in keys_of(row)}
    assert {row.o for row in found.collect()} == expected != set()


def test_index_table_names_entries_of_lost_records(spark: SparkSession, fresh_golden: Callable[[str], Path]) -> None:
    store = fresh_golden("mixed-5.3.3")
    first = min((store / "commitlog").iterdir())
    size = first.stat().st_size
    first.unlink()
    df = spark.read.format("rocketmq-indexfile").load(str(store))
    assert df.where(f"commitLogOffset < {size} AND (topic IS NOT NULL OR key IS NOT NULL)").count() == 0
    assert df.where(f"commitLogOffset >= {size} AND (topic IS NULL OR key IS NULL)").count() == 0
    assert df.where("topic IS NULL").count() > 0


def test_verify_table(spark: SparkSession, fresh_golden: Callable[[str], Path]) -> None:
    store = fresh_golden("mixed-5.3.3")

    def found(**options: str) -> list[Row]:
        frame = spark.read.format("rocketmq-store").options(table="verify", **options).load(str(store))
        return [row.asDict() for row in frame.orderBy("kind").collect()]

    assert found() == []
    file = store / "consumequeue" / "Orders" / "0" / f"{0:020d}"
    data = file.read_bytes()
    file.write_bytes(data[:200] + bytes(20) + data[220:])  # an entry is lost
    log = store / "commitlog" / f"{0:020d}"
    log.write_bytes(log.read_bytes()[:4] + b"\0" + log.read_bytes()[5:])  # a magic is damaged
    (store / "abort").write_bytes(b"")
    rows = found(minPartitions="8")
    assert [row["kind"] for row in rows] == ["abort", "magic", "queue-missing"]
    assert rows == sorted(store_core.open_store(store).verify().to_pylist(), key=lambda row: row["kind"])
    frame = spark.read.format("rocketmq-store").option("table", "verify").load(str(store))
    assert frame.where("severity = 'error'").select("kind").toArrow().to_pylist() == [{"kind": "magic"}]
