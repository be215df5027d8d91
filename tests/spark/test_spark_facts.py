"""What we lean on in Spark's Python data sources, one test a fact, so that an upgrade that changes one fails by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

Seen = Callable[[], dict[str, str]]


class EchoReader(DataSourceReader):
    def __init__(self, options: dict[str, str], schema: StructType) -> None:
        self.options, self.schema, self.planned = options, schema, 0

    def partitions(self) -> list[InputPartition]:
        self.planned += 1
        return []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        text = repr((dict(sorted(self.options.items())), partition.value, self.planned, self.schema.simpleString()))
        if self.options.get("fail") == "true":
            raise ValueError("this sentence") from None
        yield pa.record_batch({"seen": pa.array([text])})


class EchoSource(DataSource):
    """One row that says what reached the reader."""

    @classmethod
    def name(cls) -> str:
        return "echo-for-tests"

    def schema(self) -> str:
        if self.options.get("note"):
            Path(self.options["note"]).write_text(repr(dict(sorted(self.options.items()))))
        return "seen string"

    def reader(self, schema: StructType) -> DataSourceReader:
        return EchoReader(dict(self.options), schema)


@pytest.fixture
def echo(spark: SparkSession) -> Any:
    spark.dataSource.register(EchoSource)
    return spark.read.format("echo-for-tests")


def seen(df: Any) -> Any:
    return eval(df.first()[0])


def test_option_names_come_in_lower_case_and_values_as_text(echo: Any) -> None:
    options, *_ = seen(
        echo.option("startingOffsets", "Earliest").option("verifyCrc", True).option("minPartitions", 3).load("/a,b")
    )
    assert options == {"startingoffsets": "Earliest", "verifycrc": "true", "minpartitions": "3", "path": "/a,b"}


def test_a_list_of_paths_comes_as_json_in_paths(echo: Any) -> None:
    assert seen(echo.load(["/a", "/b,c"]))[0] == {"paths": '["/a","/b,c"]'}
    assert seen(echo.load([]))[0] == {}


def test_spark_refuses_a_path_option_next_to_a_path(echo: Any) -> None:
    with pytest.raises(PySparkException, match="'path' or 'paths' option set"):
        echo.option("path", "/a").load("/b")


def test_an_option_that_is_none_does_not_come(echo: Any) -> None:
    assert seen(echo.options(subscribe=None).load("/a"))[0] == {"path": "/a"}


def test_no_partitions_become_one_without_a_value(echo: Any) -> None:
    assert seen(echo.load("/a"))[1] is None


def test_the_reader_travels_as_it_was_before_partitions_was_asked(echo: Any) -> None:
    assert seen(echo.load("/a"))[2] == 0


def test_a_chosen_schema_comes_unchecked(echo: Any) -> None:
    assert seen(echo.schema("seen string").load("/a"))[3] == "struct<seen:string>"
    with pytest.raises(PySparkException, match="RETURN_SCHEMA_MISMATCH"):
        echo.schema("seen string NOT NULL").load("/a").collect()


def test_a_catalog_table_sends_its_options_when_it_is_made_and_never_again(
    spark: SparkSession, echo: Any, tmp_path: Path
) -> None:
    note = tmp_path / "note"
    spark.sql("DROP TABLE IF EXISTS echo_table")
    spark.sql(
        f"CREATE TABLE echo_table USING `echo-for-tests` OPTIONS (note '{note}', Keys 'k') COMMENT 'c' "
        "TBLPROPERTIES (p = 'q') LOCATION '/a b'"
    )
    try:
        made = eval(note.read_text())
        owner = made.pop("owner")
        assert owner is not None
        assert made == {
            "comment": "c",
            "keys": "k",
            "location": "file:/a b",
            "note": str(note),
            "option.keys": "k",
            "option.note": str(note),
            "p": "q",
            "path": "file:/a b",
            "provider": "echo-for-tests",
        }
        assert seen(spark.sql("SELECT * FROM echo_table"))[0] == {}
        assert seen(spark.sql("SELECT * FROM echo_table WITH (path = '/c', Keys = 'd')"))[0] == {"path": "/c", "keys": "d"}
    finally:
        spark.sql("DROP TABLE echo_table")


def test_an_error_shows_its_sentence_last(echo: Any) -> None:
    with pytest.raises(PySparkException) as error:
        echo.option("fail", "true").load("/a").collect()
    lines = [line for line in str(error.value).splitlines() if "SQLSTATE" not in line]
    assert lines[-1].strip() == "ValueError: this sentence" or lines[-2].strip() == "ValueError: this sentence"
