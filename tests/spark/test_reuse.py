"""One relation used more than once: the uses that give wrong rows where a Python source takes filters (SPARK-58551).

With Spark's own evaluation of every filter each must be right, in one plan and one after the other.
"""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.golden_stores import Golden
from tests.spark.rows import offsets, select_offsets

NAME = "longtopic-5.3.3"


@pytest.fixture
def ids(golden: Golden) -> list[int]:
    return select_offsets(golden.messages(NAME), lambda _: True)


@pytest.fixture
def df(spark: SparkSession, golden: Golden) -> DataFrame:
    return spark.read.format("rocketmq-store").option("minPartitions", 2).load(str(golden(NAME)))


def is_(offset: int) -> str:
    return f"commitLogOffset = {offset}"


def test_union_of_two_filters(df: DataFrame, ids: list[int]) -> None:
    assert offsets(df.where(is_(ids[1])).union(df.where(is_(ids[2])))) == ids[1:3]


def test_filtered_then_all(df: DataFrame, ids: list[int]) -> None:
    assert offsets(df.where(is_(ids[1]))) == [ids[1]]
    assert offsets(df) == ids
    assert df.where(is_(ids[1])).count() == 1
    assert df.count() == len(ids)
    assert offsets(df.where(f"{is_(ids[2])} OR {is_(ids[3])}")) == ids[2:4]


def test_cross_join_of_two_filters(df: DataFrame, ids: list[int]) -> None:
    assert df.where(is_(ids[1])).crossJoin(df.where(is_(ids[2]))).count() == 1


def test_explain_of_one_then_of_another_then_the_first(
    df: DataFrame, ids: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = df.where(is_(ids[1])), df.where(is_(ids[2]))
    first.explain()
    second.explain()
    assert offsets(first) == [ids[1]]
    capsys.readouterr()


@pytest.mark.parametrize("kind", ["TEMPORARY", "GLOBAL TEMPORARY"])
def test_views(spark: SparkSession, df: DataFrame, ids: list[int], kind: str) -> None:
    if kind == "TEMPORARY":
        df.createOrReplaceTempView("reused")
        name = "reused"
    else:
        df.createOrReplaceGlobalTempView("reused")
        name = "global_temp.reused"
    assert spark.sql(f"SELECT count(*) FROM {name} WHERE {is_(ids[1])}").first()[0] == 1
    assert spark.sql(f"SELECT count(*) FROM {name}").first()[0] == len(ids)


def test_catalog_table(spark: SparkSession, golden: Golden, ids: list[int]) -> None:
    path = golden(NAME)
    spark.sql("DROP TABLE IF EXISTS reused_table")
    spark.sql(f"CREATE TABLE reused_table USING `rocketmq-store` OPTIONS (path '{path}', minPartitions '2') COMMENT 'a store'")
    try:
        table = f"reused_table WITH (path = '{path}')"
        assert spark.sql(f"SELECT * FROM {table} WHERE {is_(ids[1])}").count() == 1
        assert spark.sql(f"SELECT * FROM {table}").count() == len(ids)
        both = spark.sql(
            f"SELECT (SELECT count(*) FROM {table} WHERE {is_(ids[1])}) AS one, (SELECT count(*) FROM {table}) AS all_of_it"
        ).first()
        assert tuple(both) == (1, len(ids))
    finally:
        spark.sql("DROP TABLE reused_table")
