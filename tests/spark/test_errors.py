"""What is wrong reaches the user as one sentence, at `load` where that can be, and names what is near."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameReader, SparkSession

from rmq_spark import lookup
from tests.golden_stores import Golden

NAME = "longtopic-5.3.3"


def last_line(error: pytest.ExceptionInfo[PySparkException]) -> str:
    """The sentence: the last line of what Spark shows, without the error's class and Spark's own suffix."""
    lines = [line for line in str(error.value).splitlines() if line.strip() and "SQLSTATE" not in line]
    assert sum(line.startswith("  File") for line in lines) <= 1, "the way through our own code is left out"
    return lines[-1].split(": ", 1)[1]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"subscibe": "a"}, "unknown option 'subscibe'. Did you mean 'subscribe'"),
        ({"mode": "fast"}, "option 'mode' is 'fast'; expected one of FAILFAST, PERMISSIVE, DROPMALFORMED"),
        ({"subscribe": "a", "assign": '{"a":[0]}'}, "only one of subscribe, subscribePattern and assign can be given"),
        ({"startingTimestamp": "noon"}, "option 'startingTimestamp' is 'noon'; expected milliseconds since 1970"),
        ({"table": "queue"}, "option 'table' is 'queue'; expected one of messages, consumequeue, index"),
        ({"extraColumns": "sourcefile"}, "option 'extraColumns' names 'sourcefile', which is no extra column. Did you"),
        ({"table": "index", "tags": "a"}, "option 'tags' belongs to the table messages"),
        ({"startingOffsets": "latest"}, "option 'startingOffsets' is 'latest'; expected earliest"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else "",
)  # fmt: skip
@pytest.mark.parametrize("schema", [None, "topic string"])
def test_options(spark: SparkSession, golden: Golden, options: dict[str, str], sentence: str, schema: str | None) -> None:
    reader = spark.read.format("rocketmq-store").options(**options)
    with pytest.raises(PySparkException) as error:
        if schema:  # then Spark asks the source for nothing before the first action
            reader.schema(schema).load(str(golden(NAME))).collect()
        else:
            reader.load(str(golden(NAME)))
    assert last_line(error).startswith(sentence)


def test_topics_that_are_not_there(spark: SparkSession, golden: Golden) -> None:
    for option, value in (("subscribe", "Order,Payments"), ("assign", '{"Order":[0]}')):
        with pytest.raises(PySparkException) as error:
            spark.read.format("rocketmq-store").option(option, value).load(str(golden("mixed-5.3.3"))).count()
        assert "'Order'" in last_line(error) and "Did you mean 'Orders'" in last_line(error)


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("nowhere", "nowhere: no such file or folder"),
        ("nowhere*", "nowhere*: nothing matches this pattern"),
        ("", ""),
        (
            "file:/warehouse/store",
            "(A relative path in CREATE TABLE counts from Spark's warehouse folder: give an absolute one)",
        ),
        ("s3://bucket/store", "s3://bucket/store: only local paths can be read or written so far"),
    ],
)
def test_paths(spark: SparkSession, tmp_path: Path, path: str, sentence: str) -> None:
    with pytest.raises(PySparkException) as error:
        spark.read.format("rocketmq-store").load(path if ":" in path else str(tmp_path / path))
    assert sentence in last_line(error)


def test_a_folder_that_is_no_store(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    with pytest.raises(PySparkException) as error:
        spark.read.format("rocketmq-store").load(str(tmp_path / "notes"))
    assert str(tmp_path / "notes") in last_line(error)


def test_no_path(spark: SparkSession) -> None:
    loads: list[Callable[[DataFrameReader], DataFrame]] = [lambda r: r.load(), lambda r: r.load([])]
    for load in loads:
        with pytest.raises(PySparkException) as error:
            load(spark.read.format("rocketmq-store"))
        assert last_line(error).startswith("option 'path' is missing: give the store's folder")


@pytest.mark.usefixtures("without_bridge")
def test_a_catalog_table_says_how_to_read_it(spark: SparkSession, golden: Golden) -> None:
    spark.sql(f"CREATE TABLE no_path USING `rocketmq-store` LOCATION '{golden(NAME)}'")
    try:
        with pytest.raises(PySparkException) as error:
            spark.sql("SELECT * FROM no_path").count()
        assert "SELECT ... FROM the_table WITH (path = 'path/to/store')" in last_line(error)
    finally:
        spark.sql("DROP TABLE no_path")


def test_a_store_given_twice(spark: SparkSession, golden: Golden) -> None:
    path = str(golden(NAME))
    with pytest.raises(PySparkException) as error:
        spark.read.format("rocketmq-store").load([path, f"{path}*"])
    assert "this store is given twice" in last_line(error)


def test_a_format_that_is_one_table(spark: SparkSession, golden: Golden) -> None:
    with pytest.raises(PySparkException) as error:
        spark.read.format("rocketmq-indexfile").option("table", "messages").load(str(golden(NAME)))
    assert last_line(error).startswith("format 'rocketmq-indexfile' is the table index, and option 'table' is 'messages'")


@pytest.mark.parametrize(
    ("schema", "sentence"),
    [
        ("Topic string", "no column 'Topic' in the table messages. Did you mean 'topic'"),
        ("topic string, queueOfset bigint", "no column 'queueOfset' in the table messages. Did you mean 'queueOffset'"),
        ("queueOffset int", "column 'queueOffset' is bigint, and .schema(...) says int. Write `queueOffset bigint`"),
        ("storeTimestamp timestamp_ntz", "column 'storeTimestamp' is timestamp, and .schema(...) says timestamp_ntz"),
        (
            "properties map<string,binary>",
            "column 'properties' is map<string,string>, and .schema(...) says map<string,binary>",
        ),
        ("topic string NOT NULL", "column 'topic' may hold nulls, and .schema(...) says NOT NULL"),
        ("_corrupt_record string", "column '_corrupt_record' is there in mode PERMISSIVE only, and the mode is FAILFAST"),
    ],
    ids=lambda value: value.split()[0],
)
def test_chosen_columns(spark: SparkSession, golden: Golden, schema: str, sentence: str) -> None:
    with pytest.raises(PySparkException) as error:
        spark.read.format("rocketmq-store").schema(schema).load(str(golden(NAME))).collect()
    assert last_line(error).startswith(sentence)


@pytest.mark.usefixtures("without_bridge")
def test_a_worker_that_does_not_see_the_path(spark: SparkSession, fresh_golden: Callable[[str], Path]) -> None:
    store = fresh_golden(NAME)
    df = spark.read.format("rocketmq-store").load(str(store))
    assert df.count() == 64  # the partitions stay with the DataFrame
    shutil.move(store, store.with_name("elsewhere"))
    with pytest.raises(PySparkException) as error:
        df.collect()
    assert last_line(error).startswith(f"{store}: the worker on ")
    assert "Put the store on storage that all workers mount" in last_line(error)


def test_corruption_says_file_and_place(spark: SparkSession, fresh_golden: Callable[[str], Path]) -> None:
    store = fresh_golden(NAME)
    log = next((store / "commitlog").iterdir())
    with log.open("r+b") as out:
        out.seek(4)
        out.write(b"\0\0\0\0")
    with pytest.raises(PySparkException) as error:
        spark.read.format("rocketmq-store").load(str(store)).count()
    assert str(log) in last_line(error) and "mode=PERMISSIVE" in last_line(error)


def test_an_option_of_reads_in_a_write(spark: SparkSession, tmp_path: Path) -> None:
    df = spark.sql("SELECT 'T' AS topic, binary('b') AS body")
    with pytest.raises(PySparkException) as error:
        df.write.format("rocketmq-store").option("verifyCrc", "true").mode("append").save(str(tmp_path / "store"))
    assert last_line(error).startswith("option 'verifyCrc' is one of reads")


def test_streams(spark: SparkSession, golden: Golden, tmp_path: Path) -> None:
    read = spark.readStream.format("rocketmq-store").load(str(golden(NAME))).writeStream.format("noop")
    rate = spark.readStream.format("rate").load().selectExpr("'T' AS topic", "CAST(string(value) AS BINARY) AS body")
    write = rate.writeStream.format("rocketmq-store").option("path", str(tmp_path / "store"))
    for stream, sentence in ((read, "can't be read as a stream. Read it again"), (write, "Write each of its batches")):
        query = stream.option("checkpointLocation", str(tmp_path / sentence)).start()
        with pytest.raises(PySparkException, match=f"OptionError: a st.*{sentence}"):
            query.processAllAvailable()
        assert "UnboundLocalError" not in str(query.exception())


def test_a_lookup_whose_store_went_away(spark: SparkSession, fresh_golden: Callable[[str], Path]) -> None:
    store = fresh_golden("mixed-5.3.3")
    df = lookup(spark, spark.createDataFrame([("Orders", "BB")], "topic string, key string"), str(store))
    shutil.move(store, store.with_name("elsewhere"))
    with pytest.raises(PySparkException) as error:
        df.collect()
    shown = str(error.value)
    assert f"encountered an error in the '__init__' method: {store}: no such file or folder" in shown
    assert shown.count("rmq_spark/") + shown.count("store_core/") == 1, "the way through our own code is left out"
