"""`rmq_spark.lookup`: the messages of many keys, against a join with all messages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import rmq_spark
from rmq_spark import lookups
from store_core import open_store
from store_core.errors import OptionError, StoreNotFoundError
from tests.golden_stores import Golden
from tests.spark.pushed import explained
from tests.spark.rows import keys_of

NAME = "mixed-5.3.3"
Found = list[tuple[str, str, int]]
Pair = tuple[str | None, str | None]


def pairs_of(golden: Golden, name: str = NAME) -> list[Pair]:
    """Pairs that are there, of other topics, that are not there, more than once, and such as no message can have."""
    there = {(row["topic"], key) for row in golden.messages(name) for key in keys_of(row)}
    some = sorted(there, key=lambda pair: (pair[0] != "Orders", pair))[:60]
    crossed = [(one[0], other[1]) for one, other in zip(some, reversed(some), strict=True)]
    return [
        *some,
        *some[:5],
        *crossed,
        ("Orders", "none"),
        ("none", "BB"),
        ("Orders", "A B"),
        ("Orders", ""),
        (None, "BB"),
        ("Orders", None),
    ]


def joined(golden: Golden, pairs: Sequence[Pair], *names: str) -> Found:
    wanted = set(pairs)
    return sorted(
        (row["topic"], key, row["commitLogOffset"])
        for name in names or (NAME,)
        for row in golden.messages(name)
        for key in dict.fromkeys(keys_of(row))
        if (row["topic"], key) in wanted
    )


def found(df: DataFrame) -> Found:
    return sorted(tuple(row) for row in df.select("lookupTopic", "lookupKey", "commitLogOffset").collect())


def keys_df(spark: SparkSession, pairs: list[Any]) -> DataFrame:
    return spark.createDataFrame(pairs, "topic string, key string")


@pytest.fixture(params=["by index", "by scan"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """By the index any number of keys is worth it, by a scan not even two."""
    monkeypatch.setattr(lookups, "MESSAGES_PER_KEY", 1 if request.param == "by index" else 10**9)
    return str(request.param)


def test_it_is_the_join(spark: SparkSession, golden: Golden, way: str) -> None:
    pairs = pairs_of(golden)
    df = rmq_spark.lookup(spark, keys_df(spark, pairs), str(golden(NAME)))
    assert ("ArrowEvalPythonUDTF" in explained(df)) == (way == "by index")
    messages = spark.read.format("rocketmq-store").load(str(golden(NAME)))
    assert df.columns == ["lookupTopic", "lookupKey", *messages.columns]
    assert found(df) == joined(golden, pairs) != []
    tokens = messages.select(F.explode(F.array_distinct(F.split("keys", " "))).alias("lookupKey"), messages["*"])
    naive = keys_df(spark, pairs).distinct().selectExpr("topic AS lookupTopic", "key AS lookupKey")
    naive = naive.join(tokens.withColumn("lookupTopic", F.col("topic")), ["lookupTopic", "lookupKey"]).select(df.columns)
    as_text = [F.to_json(F.struct(*df.columns)).alias("row")]
    assert sorted(df.select(as_text).collect()) == sorted(naive.select(as_text).collect()), "all columns"


def test_spread_over_tasks(spark: SparkSession, golden: Golden, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookups, "MESSAGES_PER_KEY", 1)
    monkeypatch.setattr(lookups, "_FEWEST_PAIRS", 20)
    pairs = pairs_of(golden)
    df = rmq_spark.lookup(spark, keys_df(spark, pairs).repartition(3), str(golden(NAME)))
    assert df.rdd.getNumPartitions() > 1
    assert found(df) == joined(golden, pairs)


def test_options_and_several_stores(spark: SparkSession, golden: Golden, way: str) -> None:
    names = (NAME, "plain-4.9.7", "longtopic-5.3.3")
    pairs = pairs_of(golden) + pairs_of(golden, "plain-4.9.7")
    paths = [str(golden(name)) for name in names]
    df = rmq_spark.lookup(spark, keys_df(spark, pairs), paths, extraColumns=["storePath"], mode="PERMISSIVE")
    assert {"storePath", "_corrupt_record"} <= set(df.columns)
    assert found(df) == joined(golden, pairs, *names)
    orders = rmq_spark.lookup(spark, keys_df(spark, pairs), paths, subscribe="Orders", bodyFormat="raw", verifyCrc=True)
    assert found(orders) == [row for row in joined(golden, pairs, *names) if row[0] == "Orders"] != []
    from_here = {"assign": {"Orders": [1]}, "startingOffsets": {"Orders": {"1": 4}}}
    queue = rmq_spark.lookup(spark, keys_df(spark, pairs), paths[0], **from_here)
    rows = [row for row in golden.messages(NAME) if (row["topic"], row["queueId"]) == ("Orders", 1) and row["queueOffset"] >= 4]
    kept = {row["commitLogOffset"] for row in rows}
    assert found(queue) == [row for row in joined(golden, pairs) if row[2] in kept] != []


def test_a_scan_where_that_is_cheaper_or_the_index_can_not_help(spark: SparkSession, golden: Golden) -> None:
    few, many = [("Orders", "BB")], [("Orders", f"k{i}") for i in range(710 // lookups.MESSAGES_PER_KEY + 30)]
    assert "ArrowEvalPythonUDTF" in explained(rmq_spark.lookup(spark, keys_df(spark, few), str(golden(NAME))))
    for pairs, options in ((many, {}), (few, {"index": "ignore"}), (few, {"expandBatches": True})):
        df = rmq_spark.lookup(spark, keys_df(spark, pairs), str(golden(NAME)), **options)
        assert "ArrowEvalPythonUDTF" not in explained(df)
        assert found(df) == joined(golden, pairs)
    alone = str(golden(NAME) / "commitlog")
    assert found(rmq_spark.lookup(spark, keys_df(spark, few), alone)) == joined(golden, few) != []
    assert open_store(alone).index_view(open_store(alone).options).files == ()


def test_refusals(spark: SparkSession, golden: Golden, tmp_path: Path) -> None:
    pairs = keys_df(spark, [("Orders", "BB")])
    for name in ("keys", "table", "Path"):
        with pytest.raises((OptionError, TypeError), match=name):
            rmq_spark.lookup(spark, pairs, str(golden(NAME)), **{name: "x"})
    with pytest.raises(OptionError, match="Did you mean 'subscribe'"):
        rmq_spark.lookup(spark, pairs, str(golden(NAME)), subscrib="x")
    with pytest.raises(OptionError, match=r"wants keys_df\(topic, key\); it has the columns topic, k"):
        rmq_spark.lookup(spark, pairs.withColumnRenamed("key", "k"), str(golden(NAME)))
    with pytest.raises(StoreNotFoundError):
        rmq_spark.lookup(spark, pairs, str(tmp_path / "nowhere"))
