"""Every row of every golden store through Spark, field by field, and Spark's own work on top of it."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.golden_stores import ANSWERED_NAMES, Golden
from tests.oracle import read_store
from tests.spark.rows import first, offsets, rows_of, select_offsets

COMPRESSED, COMPRESSION_TYPE = 0x1, 0x700


@pytest.mark.parametrize("name", ANSWERED_NAMES)
def test_every_row_of_a_golden_store(spark: SparkSession, golden: Golden, name: str) -> None:
    rows = rows_of(spark.read.format("rocketmq-store").load(str(golden(name))))
    assert {row.pop("brokerName") for row in rows} <= {None, "broker-a"}
    expected = golden.messages(name)
    assert [row["commitLogOffset"] for row in rows] == [row["commitLogOffset"] for row in expected]
    for row, wanted in zip(rows, expected, strict=True):
        if wanted["sysFlag"] & COMPRESSION_TYPE:  # what RocketMQ 5.3.3 and later take out once they have decompressed a body
            wanted["sysFlag"] |= COMPRESSED
        assert row == wanted


def test_every_row_of_a_dledger_store(spark: SparkSession, golden: Golden) -> None:
    rows = rows_of(spark.read.format("rocketmq-store").load(str(golden("dledger-4.9.7"))))
    expected = read_store(golden("dledger-4.9.7"))
    assert len(rows) == len(expected) > 0
    for row, wanted in zip(rows, expected, strict=True):
        del row["brokerName"]
        assert row == {name: wanted[name] for name in row}


def test_the_commitlog_folder_alone_and_by_its_format(spark: SparkSession, golden: Golden) -> None:
    expected = select_offsets(golden.messages("mixed-5.3.3"), lambda _: True)
    log = str(golden("mixed-5.3.3") / "commitlog")
    assert offsets(spark.read.format("rocketmq-commitlog").load(log)) == expected
    assert offsets(spark.read.format("ROCKETMQ-Store").load(f"file:{log}")) == expected


def test_sql_filters_groups_views_and_joins(spark: SparkSession, golden: Golden) -> None:
    messages = golden.messages("mixed-5.3.3")
    df = spark.read.format("rocketmq-store").load(str(golden("mixed-5.3.3")))
    df.createOrReplaceTempView("messages")
    path = golden("mixed-5.3.3")
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW orders USING `rocketmq-store` OPTIONS (path '{path}', subscribe 'Orders')")
    assert offsets(df.where("properties['KEYS'] LIKE 'dup%' AND queueId > 1")) == select_offsets(
        messages, lambda r: (r["keys"] or "").startswith("dup") and r["queueId"] > 1
    )
    counts = {row["topic"]: row["n"] for row in spark.sql("SELECT topic, count(*) n FROM messages GROUP BY topic").collect()}
    assert counts == {t: sum(r["topic"] == t for r in messages) for t in {r["topic"] for r in messages}}
    joined = spark.sql(
        "SELECT o.commitLogOffset FROM orders o JOIN messages m ON o.offsetMsgId = m.offsetMsgId AND o.body = m.body"
    )
    assert offsets(joined) == select_offsets(messages, lambda r: r["topic"] == "Orders")
    by_second = df.groupBy(F.date_trunc("second", "storeTimestamp")).count()
    assert first(by_second.agg(F.sum("count")))[0] == len(messages)
    earliest = min(r["storeTimestamp"] for r in messages)
    assert first(df.agg(F.unix_millis(F.min("storeTimestamp"))))[0] == earliest
