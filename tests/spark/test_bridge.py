"""What the bridge pushes down, and that it changes no row: filters, columns, limits, counts, sizes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from rmq_spark.columns import spark_schema
from rmq_spark.pushed import OPTION, Pushed, take_pushed
from rmq_spark.source import BridgeSource
from store_core import open_store
from store_core.errors import OptionError
from store_core.files import LocalFiles
from store_core.plan import EntrySlice, LogRange, Places, QueueSlice
from store_core.schema import MESSAGES
from tests import damage
from tests.golden_stores import Golden
from tests.spark.conftest import BRIDGE
from tests.spark.pushed import explained, pushed_filters, scans, statistics, tasks
from tests.spark.rows import first, keys_of, offsets, select_offsets

NAME = "mixed-5.3.3"


@pytest.fixture
def df(spark: SparkSession, golden: Golden) -> DataFrame:
    return spark.read.format("rocketmq-store").load(str(golden(NAME)))


def pieces(df: DataFrame) -> list[Any]:
    return [piece for task in tasks(df) for piece in task.pieces]


# --- explain -------------------------------------------------------------------------------------------------------------


def test_explain_says_who_reads(df: DataFrame) -> None:
    said = df._jdf.queryExecution().executedPlan().toString()
    assert ("rocketmq-store (bridge)" in said) == BRIDGE
    assert ("(Python)" in said) == (not BRIDGE)
    assert ("Source: rocketmq-store (bridge)" in explained(df)) == BRIDGE


def test_explain_shows_filters_and_columns(df: DataFrame, with_bridge: None) -> None:
    said = explained(df.where("topic = 'Orders' AND 2 < queueId AND length(body) > 3").select("storeSize"))
    assert "PushedFilters: [topic = 'Orders', queueId > 2]" in said
    assert "ReadSchema: struct<topic:string,queueId:int,storeSize:int,body:binary>" in said
    condition = next(line for line in said.splitlines() if line.startswith("Condition"))
    assert "topic" in condition and "queueId" in condition and "length(body" in condition, "Spark evaluates all of them again"
    assert "ReadSchema: struct<>" in explained(df.groupBy().count())
    assert "ReadSchema: struct<properties:map<string,string>>" in explained(df.selectExpr("properties['KEYS']"))


@pytest.mark.parametrize(
    ("sql", "pushed"),
    [
        # Spark's words for keys <=> 'a'
        ("keys <=> 'a'", "((keys IS NOT NULL AND 'a' IS NOT NULL AND keys = 'a') OR (keys IS NULL AND 'a' IS NULL))"),
        ("'b' >= keys", "keys <= 'b'"),
        ("keys IN ('a', NULL)", "keys IN ('a', NULL)"),
        ("keys = 'a' OR keys IN ('b', NULL) OR 'c' = keys", "((keys = 'a') OR (keys IN ('b', NULL))) OR (keys = 'c')"),
        ("keys = 'a' OR keys > 'b'", ""),
        ("keys = 'a' OR tags = 'b'", ""),
        ("date(storeTimestamp) = DATE '2026-11-21'", "storeTimestamp >= 1795219200000000, storeTimestamp < 1795305600000000"),
        ("queueOffset BETWEEN 2 AND 3", "queueOffset >= 2, queueOffset <= 3"),
        ("queueId = 2L", "queueId = 2"),
        ("storeTimestamp < TIMESTAMP '2026-11-21 08:43:18.000001Z'", "storeTimestamp < 1795250598000001"),
        ("storeTimestamp >= TIMESTAMP_NTZ '2026-11-21 08:43:18'", "storeTimestamp >= 1795250598000000"),
        ("tags IS NULL", ""),
        ("NOT (queueId = 2)", ""),
        ("queueId <> 2", ""),
        ("upper(topic) = 'ORDERS'", ""),
        ("topic COLLATE UTF8_LCASE = 'orders'", ""),
        ("topic LIKE 'Ord%'", ""),
        ("topic = keys", ""),
        ("topic = 'Orders' OR queueId = 1", ""),
        ("properties['KEYS'] = 'a'", ""),
        ("storeSize = 100", ""),
    ],
)
def test_which_filters_are_pushed(df: DataFrame, with_bridge: None, sql: str, pushed: str) -> None:
    assert pushed_filters(df.where(sql)) == pushed


# --- what is read --------------------------------------------------------------------------------------------------------


def test_spark_reads_the_tasks_that_the_core_plans(df: DataFrame, golden: Golden, with_bridge: None) -> None:
    """And what those read is counted by the core: the text of EXPLAIN is not all there is."""
    store = open_store(str(golden(NAME)))
    orders = [row for row in golden.messages(NAME) if row["topic"] == "Orders"]
    keyed = next(row for row in orders if keys_of(row) == ["BB"] or row["keys"])
    whole = cost(store.path, tasks(df.select("body")), ["body"])
    for sql, names, least in (
        ("uniqKey = '{uniqKey}' AND topic = 'Orders'", ["uniqKey", "topic"], 40),
        ("commitLogOffset = {commitLogOffset}", ["commitLogOffset"], 100),
        ("offsetMsgId = '{offsetMsgId}'", ["offsetMsgId"], 100),
        ("keys = '{keys}' AND topic = 'Orders'", ["keys", "topic"], 10),
        ("topic = 'Orders' AND queueId = {queueId} AND queueOffset = {queueOffset}", ["topic", "queueId", "queueOffset"], 1.2),
    ):
        sql, where = sql.format(**keyed), [(name, "=", keyed[name]) for name in names]
        asked = df.where(sql).select("body")
        assert tasks(asked) == list(store.plan(where, ["body", *names]).tasks), sql
        assert cost(store.path, tasks(asked), ["body", *names], where) * least < whole, sql
        assert offsets(df.where(sql)) == offsets_of(store, where) != [], sql


def cost(path: str, asked: list[Any], columns: list[str], where: list[Any] | None = None) -> int:
    plan = open_store(path).plan(where, columns)
    files = LocalFiles()
    for task in asked:
        for _ in plan.read(task, files):
            pass
    return files.bytes_read


def offsets_of(store: Any, where: list[Any]) -> list[int]:
    return sorted(store.scan(where, ["commitLogOffset"]).read_all()["commitLogOffset"].to_pylist())


@pytest.mark.parametrize(
    "sql",
    [
        "queueId > 3 AND queueId < 2",
        "topic = 'Orders' AND topic = 'Payments'",
        "keys IN (CAST(NULL AS STRING)) AND topic = 'Orders'",
        "commitLogOffset = 5 AND commitLogOffset > 7",
        "offsetMsgId = 'nonsense'",
        "topic IN ('Orders', 'Payments') AND topic IN ('ToRetry', 'none')",
    ],
)
def test_an_impossible_filter_reads_nothing(df: DataFrame, with_bridge: None, sql: str) -> None:
    asked = df.where(sql)
    leaves = asked._jdf.queryExecution().optimizedPlan().collectLeaves()
    assert "LocalRelation" in leaves.apply(0).toString() or not tasks(asked)
    assert asked.count() == 0


def test_the_raw_string_of_keys_goes_by_its_tokens(df: DataFrame, golden: Golden, with_bridge: None) -> None:
    """The index has tokens; a row counts only where its whole KEYS is the string."""
    messages = golden.messages(NAME)
    several = next(row for row in messages if len(keys_of(row)) > 1)
    for keys in (several["keys"], keys_of(several)[0]):
        asked = df.where(f"keys = '{keys}'")
        assert all(isinstance(piece, (Places, LogRange)) for piece in pieces(asked)) and len(pieces(asked)) < 6
        assert offsets(asked) == sorted(row["commitLogOffset"] for row in messages if row["keys"] == keys)
    many = [row["keys"] for row in messages if row["keys"]][:30]
    listed = ", ".join(f"'{keys}'" for keys in many)
    asked = df.where(f"keys IN ({listed}, NULL)")
    assert any(isinstance(piece, Places) for piece in pieces(asked))
    assert offsets(asked) == select_offsets(messages, lambda row: row["keys"] in many)


def test_times_to_the_microsecond(df: DataFrame, golden: Golden) -> None:
    messages = golden.messages(NAME)
    times = sorted(row["storeTimestamp"] for row in messages)
    time = times[len(times) // 2]
    for op, micros, keep in (
        ("=", 0, lambda t: t == time),
        ("=", 1, lambda t: False),
        (">", -1, lambda t: t >= time),
        (">", 1, lambda t: t > time),
        ("<=", -1, lambda t: t < time),
        ("<", 1, lambda t: t <= time),
        ("<=>", 0, lambda t: t == time),
    ):
        found = offsets(df.where(f"storeTimestamp {op} timestamp_micros({time * 1000 + micros})"))
        assert found == sorted(row["commitLogOffset"] for row in messages if keep(row["storeTimestamp"])), (op, micros)
    for never in ("timestamp_micros(9223372036854775807)", "TIMESTAMP '0001-01-01 00:00:00Z'"):
        assert df.where(f"storeTimestamp = {never}").count() == 0
    assert df.where("storeTimestamp < timestamp_micros(9223372036854775807)").count() == len(messages)


def test_other_tables(spark: SparkSession, golden: Golden, with_bridge: None) -> None:
    index = spark.read.format("rocketmq-indexfile").load(str(golden(NAME)))
    whole = sum(piece.stop - piece.first for piece in pieces(index))
    some = index.where("topic = 'Orders' AND key = 'BB' AND indexType = 'key'")
    assert sum(piece.stop - piece.first for piece in pieces(some)) < whole / 20
    queues = spark.read.format("rocketmq-consumequeue").load(str(golden(NAME)))
    (piece,) = pieces(queues.where("topic = 'Orders' AND queueId = 1 AND queueOffset >= 4 AND queueOffset < 6"))
    assert (piece.queue.topic, piece.queue.queue_id, piece.first, piece.stop) == ("Orders", 1, 4, 6)
    code = next(row.tagsCode for row in queues.where("topic = 'Orders'").collect() if row.tagsCode)
    assert f"PushedFilters: [tagsCode = {code}]" in explained(queues.where(f"tagsCode = {code}"))


# --- columns, limits, counts ---------------------------------------------------------------------------------------------


def test_columns_in_any_order_and_none_at_all(df: DataFrame, golden: Golden) -> None:
    messages = golden.messages(NAME)
    both = df.select("properties", "topic", F.col("properties")["KEYS"].alias("k"))
    assert sorted((row.topic, row.k or "", len(row.properties)) for row in both.collect()) == sorted(
        (row["topic"], row["keys"] or "", len(row["properties"])) for row in messages
    )
    assert first(df.selectExpr("1 AS one").agg({"one": "sum"}))[0] == len(messages)
    assert df.select("queueId", "topic", "queueId").columns == ["queueId", "topic", "queueId"]


def test_a_limit_goes_down_where_no_filter_is_above(df: DataFrame, with_bridge: None) -> None:
    assert "PushedLimit: 3" in explained(df.limit(3)) and len(df.limit(3).collect()) == 3
    assert "PushedLimit: 5" in explained(df.limit(3).offset(2)) or df.offset(2).limit(3).count() == 3
    filtered = df.where("topic = 'Orders'").limit(3)
    assert "PushedLimit" not in explained(filtered) and {row.topic for row in filtered.collect()} == {"Orders"}
    assert df.limit(10**6).count() == df.count()
    assert df.limit(0).collect() == []
    both = df.limit(2).union(df.where("topic = 'Orders'").limit(4))
    assert both.count() == 6


@pytest.mark.parametrize(
    "option", [{}, {"mode": "PERMISSIVE"}, {"mode": "DROPMALFORMED"}, {"verifyCrc": "true"}, {"index": "verify"}]
)
def test_counts(spark: SparkSession, golden: Golden, option: dict[str, str]) -> None:
    messages = golden.messages(NAME)
    df = spark.read.format("rocketmq-store").options(**option).load(str(golden(NAME)))
    orders = df.where("topic = 'Orders'")
    expected = len(select_offsets(messages, lambda row: row["topic"] == "Orders"))
    assert orders.count() == orders.where("body IS NOT NULL").count() == expected
    assert orders.where("queueId IN (1, 2)").count() == sum(r["topic"] == "Orders" and r["queueId"] in (1, 2) for r in messages)
    assert df.count() >= len(messages)
    if BRIDGE:
        told = [piece for piece in pieces(orders.groupBy().count()) if isinstance(piece, EntrySlice)]
        assert bool(told) == (option == {})


def test_a_count_where_queues_do_not_cover_the_log(
    spark: SparkSession, fresh_golden: Callable[[str], Path], golden: Golden
) -> None:
    expected = len(select_offsets(golden.messages(NAME), lambda row: row["topic"] == "Orders"))
    for hurt in ("last entries", "one queue", "all queues"):
        store = fresh_golden(NAME)
        for number, file in enumerate(sorted((store / "consumequeue" / "Orders").glob("*/*"))):
            if hurt == "last entries":
                damage.zero(file, 20, 60)
            elif number == 0 or hurt == "all queues":
                file.unlink()
        df = spark.read.format("rocketmq-store").load(str(store))
        assert df.where("topic = 'Orders'").count() == expected, hurt
        assert df.where("topic = 'Orders' AND storeSize > 0").select("body").count() == expected, hurt
        shutil.rmtree(store)


def test_corrupt_records_are_rows_whatever_is_asked_for(spark: SparkSession, fresh_golden: Callable[[str], Path]) -> None:
    """In PERMISSIVE a record is corrupt or not, whichever columns a query needs."""
    store = fresh_golden(NAME)
    rows = open_store(str(store)).scan(columns=["commitLogOffset", "topic", "sysFlag", "storeSize"]).read_all().to_pylist()
    broken = next(row for row in rows if row["sysFlag"] & 1)
    segments = sorted((store / "commitlog").iterdir())
    segment = max((file for file in segments if int(file.name) <= broken["commitLogOffset"]), key=lambda file: int(file.name))
    at = broken["commitLogOffset"] - int(segment.name)
    damage.overwrite(segment, at + 88 + 2, b"\xff" * 12)  # behind the header and the body's length: the compressed body
    df = spark.read.format("rocketmq-store").option("mode", "PERMISSIVE").load(str(store))
    whole = df.collect()
    corrupt = [row for row in whole if row._corrupt_record is not None]
    assert broken["commitLogOffset"] in {int(segment.name) + row._corrupt_record.start for row in corrupt}
    for columns in (["_corrupt_record"], ["queueId", "_corrupt_record"], ["_corrupt_record", "topic"]):
        found = df.select(*columns).where("_corrupt_record IS NOT NULL")
        assert sorted(r._corrupt_record.start for r in found.collect()) == sorted(r._corrupt_record.start for r in corrupt)
    assert df.count() == df.select("queueId").count() == len(whole)
    assert df.where("topic = 'Big'").count() == sum(row.topic == "Big" for row in whole) == 23
    assert df.where("topic IS NULL").count() == len(corrupt)
    assert df.selectExpr("_corrupt_record.reason").where("reason IS NOT NULL").count() == len(corrupt)


# --- sizes ---------------------------------------------------------------------------------------------------------------


def test_sizes_for_the_optimizer(spark: SparkSession, df: DataFrame, golden: Golden, with_bridge: None) -> None:
    messages = golden.messages(NAME)
    size, rows = statistics(df)
    assert len(messages) / 3 < rows < len(messages) * 3
    assert sum(row["storeSize"] for row in messages) / 4 < size < sum(row["storeSize"] for row in messages) * 10
    assert statistics(df.select("queueId"))[0] < size / 10
    assert statistics(df.where("commitLogOffset = 0").select("topic", "body"))[0] < size / 50
    large = spark.range(10**9).withColumn("queueOffset", F.col("id"))
    joined = large.join(df.select("queueOffset", "topic"), "queueOffset")
    assert "BroadcastHashJoin" in explained(joined), "a small store is sent to the large side"


def test_every_scan_has_its_own_source(df: DataFrame, with_bridge: None) -> None:
    one, other = scans(df.where("topic = 'Orders'").union(df.where("topic = 'Payments'")))
    assert not one.equals(other)
    assert [scan.description().count("topic = 'Orders'") for scan in (one, other)] == [1, 0]


# --- the option that says it -------------------------------------------------------------------------------------------------


def test_what_the_bridge_says_is_json() -> None:
    where = [["topic", "=", "Orders"], ["storeTimestamp", "in", [1, 2]], ["storeTimestamp", "<", 1 << 62]]
    said = {"format": "rocketmq-store", "columns": ["topic"], "relation": ["topic", "body"], "limit": 5, "where": where}
    pushed, others = take_pushed({OPTION.upper(): json.dumps(said), "path": "/a"})
    assert others == {"path": "/a"}
    assert (pushed.format, pushed.columns, pushed.relation, pushed.limit) == (
        "rocketmq-store",
        ("topic",),
        ("topic", "body"),
        5,
    )
    topic, times = pushed.where
    assert topic == ("topic", "=", "Orders")
    assert [time.microsecond for time in times[2]] == [1, 2], "and a time that no datetime holds is left to Spark"
    assert take_pushed({OPTION: '{"format": "rocketmq-store"}'})[0] == Pushed("rocketmq-store")
    with pytest.raises(OptionError, match="bridge's own"):
        take_pushed({"path": "/a"})


def test_only_the_columns_asked_for_are_decoded(golden: Golden) -> None:
    said = {"format": "rocketmq-store", "columns": ["queueId"], "relation": MESSAGES.names}
    for mode, planned in (("FAILFAST", ["queueId"]), ("DROPMALFORMED", MESSAGES.names)):
        source = BridgeSource({"path": str(golden(NAME)), "mode": mode, OPTION: json.dumps(said)})
        reader = source.reader(StructType([spark_schema(MESSAGES)["queueId"]]))
        assert reader.specs[0].schema.names == planned
        (batch, *_) = reader.read(reader.partitions()[0])
        assert batch.schema.names == ["queueId"]
    none = BridgeSource({"path": str(golden(NAME)), OPTION: json.dumps(said | {"columns": []})}).reader(StructType([]))
    assert sum(batch.num_rows for part in none.partitions() for batch in none.read(part)) == 710
    assert all(not isinstance(piece, QueueSlice) for part in none.partitions() for piece in part.task.pieces)
