"""The tables' schemas in Spark, and the choice of columns by `.schema(...)`."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StringType, StructField, StructType

from rmq_spark.columns import choose, spark_schema
from store_core import schema_of
from store_core.errors import OptionError
from store_core.options import ReadOptions, parse_options
from store_core.schema import CORRUPT_TYPE, EXTRA_COLUMNS, MESSAGES
from tests.golden_stores import Golden
from tests.spark.rows import rows_of

EVERYTHING = {"extraColumns": ",".join(EXTRA_COLUMNS.names), "mode": "PERMISSIVE"}


@pytest.mark.parametrize(
    "options", [{}, EVERYTHING, {"table": "consumequeue"}, {"table": "index", "mode": "PERMISSIVE"}], ids=lambda o: str(len(o))
)
def test_spark_and_arrow_schemas_are_each_other(options: dict[str, str]) -> None:
    """What Spark compares a batch with is made from the Spark schema again: it must come out as it went in."""
    schema = schema_of(parse_options(options))
    assert to_arrow_schema(spark_schema(schema), timezone="UTC").equals(schema)
    assert all(field.nullable for field in spark_schema(schema))


def test_the_schema_in_spark(spark: SparkSession, golden: Golden) -> None:
    df = spark.read.format("rocketmq-store").load(str(golden("longtopic-5.3.3")))
    assert df.schema.simpleString() == (
        "struct<topic:string,queueId:int,queueOffset:bigint,commitLogOffset:bigint,storeSize:int,tags:string,keys:string,"
        "uniqKey:string,body:binary,bodyCRC:int,properties:map<string,string>,flag:int,sysFlag:int,bornTimestamp:timestamp,"
        "bornHost:string,storeTimestamp:timestamp,storeHost:string,reconsumeTimes:int,preparedTransactionOffset:bigint,"
        "offsetMsgId:string,brokerName:string>"
    )


def test_any_order_of_any_columns(spark: SparkSession, golden: Golden) -> None:
    store = str(golden("longtopic-5.3.3"))
    whole = spark.read.format("rocketmq-store").load(store)
    backwards = StructType(list(reversed(whole.schema.fields)))
    turned = spark.read.format("rocketmq-store").schema(backwards).load(store)
    assert turned.columns == whole.columns[::-1]
    assert rows_of(turned) == rows_of(whole)


def test_extra_columns_need_no_option_when_they_are_chosen(spark: SparkSession, golden: Golden) -> None:
    store = str(golden("longtopic-5.3.3"))
    df = spark.read.format("rocketmq-store").schema("storePath string, queueId int").load(store)
    assert {row.storePath for row in df.collect()} == {store}


def test_only_the_chosen_columns_are_asked_of_the_core() -> None:
    requested = StructType(
        [StructField("rawRecord", spark_schema(EXTRA_COLUMNS)["rawRecord"].dataType), StructField("topic", StringType())]
    )
    assert choose(requested, ReadOptions(extra_columns=("compression",))) == ["rawRecord", "topic"]


def test_the_corrupt_record_by_any_name() -> None:
    options = parse_options({"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "bad"})
    requested = spark_schema(pa.schema([("bad", CORRUPT_TYPE), MESSAGES.field("topic")]))
    assert choose(requested, options) == ["bad", "topic"]


def test_refusals_of_schemas_that_ddl_can_not_write() -> None:
    for fields, sentence in (
        ([], "names no column"),
        ([StructField("topic", StringType()), StructField("topic", StringType())], "twice"),
        ([StructField("topic", LongType(), False)], "column 'topic' is string"),
    ):
        with pytest.raises(OptionError, match=sentence):
            choose(StructType(fields), ReadOptions())
    nested = spark_schema(pa.schema([("_corrupt_record", CORRUPT_TYPE)]))
    inner = nested["_corrupt_record"].dataType
    assert isinstance(inner, StructType)
    inner.fields[0].nullable = False
    with pytest.raises(OptionError, match="with nullable parts"):
        choose(nested, parse_options({"mode": "PERMISSIVE"}))
