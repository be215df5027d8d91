"""Tables of the catalog, their options, and SQL all through."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from rmq_spark.source import BridgeSource
from tests.golden_stores import Golden
from tests.spark.pushed import explained, pushed_filters
from tests.spark.rows import first, offsets, select_offsets

NAME = "mixed-5.3.3"


@contextlib.contextmanager
def table(spark: SparkSession, text: str, name: str = "stored") -> Iterator[str]:
    spark.sql(f"DROP TABLE IF EXISTS {name}")
    spark.sql(f"CREATE TABLE {name} {text}")
    try:
        yield name
    finally:
        spark.sql(f"DROP TABLE {name}")


def count(spark: SparkSession, text: str) -> int:
    return int(first(spark.sql(f"SELECT count(*) FROM {text}"))[0])


def expected(golden: Golden, *topics: str) -> int:
    return len(select_offsets(golden.messages(NAME), lambda row: row["topic"] in topics or not topics))


def test_a_table_keeps_its_options(spark: SparkSession, golden: Golden, with_bridge: None) -> None:
    made = (
        f"USING `rocketmq-store` OPTIONS (path '{golden(NAME)}', SUBSCRIBE 'Orders') COMMENT 'a store' TBLPROPERTIES (p = 'q')"
    )
    with table(spark, made) as name:
        assert count(spark, name) == expected(golden, "Orders")
        assert count(spark, f"{name} WITH (subscribe = 'Payments')") == expected(golden, "Payments")
        assert count(spark, f"{name} WITH (startingTimestamp = '2100-01-01T00:00:00Z')") == 0
        assert count(spark, name) == expected(golden, "Orders"), "for that one statement only"
        assert spark.read.table(name).count() == spark.table(name).count() == expected(golden, "Orders")
        assert spark.read.option("subscribe", "Payments").table(name).count() == expected(golden, "Payments")
        with pytest.raises(PySparkException, match="Did you mean 'subscribe'"):
            count(spark, f"{name} WITH (subscrib = 'Payments')")
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW of_table AS SELECT * FROM {name} WHERE queueId > 1")
        assert count(spark, "of_table WHERE queueId < 2") == 0 < count(spark, "of_table")
        spark.sql(f"CACHE TABLE {name}")
        assert "InMemory" in explained(spark.table(name)) and count(spark, name) == expected(golden, "Orders")
        spark.sql(f"UNCACHE TABLE {name}")


def test_a_table_with_a_location(spark: SparkSession, golden: Golden, with_bridge: None) -> None:
    with table(spark, f"USING `rocketmq-store` LOCATION '{golden(NAME)}'") as name:
        assert count(spark, name) == expected(golden)
        assert count(spark, f"{name} WHERE topic = 'Orders'") == expected(golden, "Orders")
        assert pushed_filters(spark.sql(f"SELECT body FROM {name} WHERE topic = 'Orders'")) == "topic = 'Orders'"
        assert count(spark, f"{name} WITH (subscribe = 'Orders,Payments')") == expected(golden, "Orders", "Payments")


@pytest.mark.parametrize("format_name", ["rocketmq-commitlog", "rocketmq-consumequeue", "rocketmq-indexfile"])
def test_tables_of_the_other_formats(spark: SparkSession, golden: Golden, format_name: str, with_bridge: None) -> None:
    df = spark.read.format(format_name).load(str(golden(NAME)))
    with table(spark, f"USING `{format_name}` LOCATION '{golden(NAME)}'") as name:
        assert spark.table(name).schema == df.schema
        assert count(spark, name) == df.count() > 0
        assert count(spark, f"{name} WHERE topic = 'Orders'") == df.where("topic = 'Orders'").count() > 0


def test_a_table_of_some_columns(spark: SparkSession, golden: Golden, with_bridge: None) -> None:
    columns = "(tags string, queueId int, topic string)"
    with table(spark, f"{columns} USING `rocketmq-store` LOCATION '{golden(NAME)}'") as name:
        assert spark.table(name).columns == ["tags", "queueId", "topic"]
        assert count(spark, f"{name} WHERE topic = 'Orders'") == expected(golden, "Orders")
    wrong = table(spark, f"(topic bigint) USING `rocketmq-store` LOCATION '{golden(NAME)}'")
    with wrong as name, pytest.raises(PySparkException, match="column 'topic' is string"):
        spark.table(name).collect()


@pytest.mark.parametrize("kind", ["CHAR(10)", "VARCHAR(200)"])
def test_char_and_varchar(spark: SparkSession, golden: Golden, kind: str, with_bridge: None) -> None:
    """Spark pads a CHAR when it reads: whether it compares padded or not, the rows are those without a pushed filter."""
    with table(spark, f"(topic {kind}, queueId int) USING `rocketmq-store` LOCATION '{golden(NAME)}'") as name:
        for setting in ("true", "false"):
            spark.conf.set("spark.sql.readSideCharPadding", setting)
            try:
                for sql in (
                    "topic = 'Orders'",
                    "topic IN ('Orders', 'Payments')",
                    "topic <=> 'Orders    '",
                    "'Orders ' <= topic",
                ):
                    pushed = spark.sql(f"SELECT queueId FROM {name} WHERE {sql}").count()
                    evaluated = first(spark.sql(f"SELECT count_if({sql}) FROM {name}"))[0]
                    assert pushed == evaluated, (sql, setting)
                    if setting == "true" and "<=>" not in sql and "<=" not in sql:
                        assert pushed > 0
            finally:
                spark.conf.unset("spark.sql.readSideCharPadding")


def test_without_the_bridge_a_table_says_what_it_lacks(spark: SparkSession, golden: Golden, without_bridge: None) -> None:
    with table(spark, f"USING `rocketmq-store` OPTIONS (path '{golden(NAME)}')") as name:
        with pytest.raises(PySparkException) as error:
            spark.table(name).collect()
        sentence = next(line for line in str(error.value).splitlines() if "OptionError" in line)
        assert "the bridge" in sentence and "SELECT ... FROM the_table WITH (path = 'path/to/store')" in sentence
        assert count(spark, f"{name} WITH (path = '{golden(NAME)}')") == expected(golden)


# --- SQL all through -----------------------------------------------------------------------------------------------------


@pytest.fixture
def messages(spark: SparkSession, golden: Golden) -> DataFrame:
    df = spark.read.format("rocketmq-store").load(str(golden(NAME)))
    df.createOrReplaceTempView("messages")
    spark.read.format("rocketmq-indexfile").load(str(golden(NAME))).createOrReplaceTempView("entries")
    return df


def test_subqueries_in_one_statement(spark: SparkSession, messages: DataFrame, golden: Golden) -> None:
    df = spark.sql(
        "SELECT (SELECT count(*) FROM messages WHERE topic = 'Orders') AS a, "
        "(SELECT count(*) FROM messages WHERE topic = 'Payments') AS b, "
        "(SELECT max(queueId) FROM messages WHERE topic = 'Orders') AS c, (SELECT count(*) FROM messages) AS d"
    )
    most = max(row["queueId"] for row in golden.messages(NAME) if row["topic"] == "Orders")
    assert tuple(first(df)) == (expected(golden, "Orders"), expected(golden, "Payments"), most, expected(golden))


def test_joins_of_a_view_with_itself_and_with_its_index(spark: SparkSession, messages: DataFrame, golden: Golden) -> None:
    rows = [row for row in golden.messages(NAME) if row["topic"] == "Orders"]
    same = spark.sql(
        "SELECT a.commitLogOffset FROM messages a JOIN messages b ON a.uniqKey = b.uniqKey AND a.queueId = b.queueId "
        "WHERE a.topic = 'Orders' AND b.topic = 'Orders' AND a.queueId IN (0, 1) AND b.queueId IN (1, 2)"
    )
    assert set(offsets(same)) == {row["commitLogOffset"] for row in rows if row["queueId"] == 1}
    by_index = spark.sql(
        "SELECT m.commitLogOffset FROM messages m JOIN entries e ON m.commitLogOffset = e.commitLogOffset "
        "WHERE e.topic = 'Orders' AND e.key = 'BB' AND e.indexType = 'key'"
    )
    direct = spark.sql("SELECT commitLogOffset FROM messages WHERE topic = 'Orders' AND array_contains(split(keys, ' '), 'BB')")
    assert offsets(by_index) == offsets(direct) != []


def test_filters_that_spark_makes_while_it_runs(spark: SparkSession, messages: DataFrame, golden: Golden) -> None:
    settings = {
        "spark.sql.optimizer.runtime.bloomFilter.enabled": "true",
        "spark.sql.optimizer.runtime.bloomFilter.applicationSideScanSizeThreshold": "0",
        "spark.sql.autoBroadcastJoinThreshold": "-1",
    }
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        joined = spark.sql(
            "SELECT b.commitLogOffset FROM messages a JOIN messages b ON a.offsetMsgId = b.offsetMsgId "
            "WHERE a.topic = 'Payments'"
        )
        wanted = select_offsets(golden.messages(NAME), lambda row: row["topic"] == "Payments")
        assert offsets(joined) == wanted
    finally:
        for name in settings:
            spark.conf.unset(name)


def test_set_operations_and_windows(spark: SparkSession, messages: DataFrame, golden: Golden) -> None:
    everything = "SELECT commitLogOffset FROM messages"
    assert count(spark, f"({everything} EXCEPT {everything} WHERE topic = 'Orders')") == expected(golden) - expected(
        golden, "Orders"
    )
    assert count(spark, f"({everything} WHERE queueId = 1 INTERSECT {everything} WHERE topic = 'Orders')") == sum(
        row["topic"] == "Orders" and row["queueId"] == 1 for row in golden.messages(NAME)
    )
    newest = spark.sql(
        "SELECT * FROM (SELECT topic, commitLogOffset, row_number() OVER (PARTITION BY topic ORDER BY commitLogOffset DESC) n "
        "FROM messages WHERE topic IN ('Orders', 'Payments')) WHERE n = 1"
    )
    assert newest.count() == 2


# --- writes --------------------------------------------------------------------------------------------------------------


class NotedSource(DataSource):
    """Stands in for the Python source behind the bridge: writes down what reaches it."""

    @classmethod
    def name(cls) -> str:
        return BridgeSource.name()

    def schema(self) -> str:
        return "topic string"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return NotedWriter(dict(self.options), schema.simpleString(), overwrite)


class NotedWriter(DataSourceWriter):
    def __init__(self, options: dict[str, str], schema: str, overwrite: bool) -> None:
        self.noted: dict[str, Any] = {"options": options, "schema": schema, "overwrite": overwrite}

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        rows = [row.topic for row in iterator]
        Path(self.noted["options"]["note"] + f".{'-'.join(rows)}").touch()
        return WriterCommitMessage()

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        Path(self.noted["options"]["note"]).write_text(json.dumps(self.noted))


def test_writes_pass_through(spark: SparkSession, tmp_path: Path, with_bridge: None) -> None:
    note = tmp_path / "note"
    rows = spark.createDataFrame([("a",)], "topic string").coalesce(1)

    def noted(*own: str) -> tuple[dict[str, str], bool]:
        """(the options, whether to overwrite), where the write's own options are these, and others a table's."""
        found = json.loads(note.read_text())
        options = found["options"]
        told = json.loads(options.pop("rmqspark.pushed"))
        assert (told.pop("format"), sorted(told.pop("options")), told) == ("rocketmq-store", [*own], {})
        assert (tmp_path / "note.a").exists() and found["schema"] == "struct<topic:string>"
        note.unlink()
        (tmp_path / "note.a").unlink()
        return {name: value for name, value in options.items() if name != "note"}, found["overwrite"]

    spark.dataSource.register(NotedSource)
    try:
        for mode, overwrite in (("append", False), ("overwrite", True)):
            rows.write.format("rocketmq-store").mode(mode).option("note", str(note)).option("Some", "x").save("/b")
            assert noted("note", "path", "some") == ({"some": "x", "path": "/b"}, overwrite)
        made = f"(topic string) USING `rocketmq-store` OPTIONS (note '{note}', some 'x') LOCATION '/c'"
        with table(spark, made) as name:
            for statement, overwrite in (("INTO", False), ("OVERWRITE", True)):
                spark.sql(f"INSERT {statement} {name} VALUES ('a')")
                assert noted() == ({"some": "x", "path": "file:/c"}, overwrite)
            rows.write.option("some", "y").insertInto(name)
            assert noted()[0]["some"] == "x"
            rows.writeTo(name).option("some", "y").append()
            assert noted("some")[0]["some"] == "y", "what a write says goes over what the table says"
        with table(spark, f"USING `rocketmq-store` OPTIONS (note '{note}') LOCATION '/d' AS SELECT 'a' AS topic"):
            assert noted() == ({"path": "file:/d"}, False)
    finally:
        spark.dataSource.register(BridgeSource)
