"""One relation used more than once: the uses that give wrong rows where a Python source takes filters (SPARK-58551).

Each must be right for every format, in one plan and one after the other: with the bridge, which pushes these filters, and
without it, where Spark evaluates all of them itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from pyspark.sql import DataFrame, SparkSession

from store_core import open_store
from tests.golden_stores import Golden
from tests.spark.conftest import BRIDGE
from tests.spark.pushed import explained
from tests.spark.rows import first

NAME = "longtopic-5.3.3"
TABLES = {"rocketmq-indexfile": "index", "rocketmq-consumequeue": "consumequeue"}


@dataclass(frozen=True)
class Table:
    """`rows`: what says which row it is, of all rows. `alike`: for each of four of them a condition that only it meets."""

    format: str
    path: str
    identity: tuple[str, ...]
    rows: list[tuple[object, ...]]
    picked: list[tuple[object, ...]]
    alike: list[str]

    def found(self, df: DataFrame) -> list[tuple[object, ...]]:
        return sorted(tuple(row) for row in df.select(*self.identity).collect())


@pytest.fixture(scope="module", params=["rocketmq-store", "rocketmq-commitlog", "rocketmq-consumequeue", "rocketmq-indexfile"])
def table(request: pytest.FixtureRequest, golden: Golden) -> Table:
    path = str(golden(NAME))
    rows = open_store(path).scan(table=TABLES.get(request.param, "messages")).read_all().to_pylist()
    picked = [row for row in rows if row.get("indexType", "uniqKey") == "uniqKey"][:40:10]
    if request.param == "rocketmq-indexfile":
        identity: tuple[str, ...] = ("sourceFile", "indexNo")
        alike = [f"topic = '{row['topic']}' AND key = '{row['key']}' AND indexType = 'uniqKey'" for row in picked]
    else:
        identity = ("commitLogOffset",)
        alike = [f"commitLogOffset = {row['commitLogOffset']}" for row in picked]
    all_of, some = ([tuple(row[name] for name in identity) for row in each] for each in (rows, picked))
    return Table(request.param, path, identity, sorted(all_of), some, alike)


@pytest.fixture
def df(spark: SparkSession, table: Table) -> DataFrame:
    return spark.read.format(table.format).option("minPartitions", 2).load(table.path)


def test_the_filters_are_pushed(df: DataFrame, table: Table, with_bridge: None) -> None:
    assert f"PushedFilters: [{table.alike[0].split(' AND ')[0]}" in explained(df.where(table.alike[0]))


def test_union_of_two_filters(df: DataFrame, table: Table) -> None:
    both = df.where(table.alike[1]).union(df.where(table.alike[2]))
    assert table.found(both) == sorted(table.picked[1:3])
    assert table.found(both.union(df)) == sorted(table.rows + table.picked[1:3])


def test_filtered_then_all(df: DataFrame, table: Table) -> None:
    assert table.found(df.where(table.alike[1])) == [table.picked[1]]
    assert table.found(df) == table.rows
    assert df.where(table.alike[1]).count() == 1
    assert df.count() == len(table.rows)
    assert table.found(df.where(f"({table.alike[2]}) OR ({table.alike[3]})")) == sorted(table.picked[2:4])


def test_cross_join_of_two_filters(df: DataFrame, table: Table) -> None:
    assert df.where(table.alike[1]).crossJoin(df.where(table.alike[2])).count() == 1


def test_self_join(df: DataFrame, table: Table) -> None:
    one, other = df.where(table.alike[1]).alias("a"), df.alias("b")
    on = " AND ".join(f"a.{name} = b.{name}" for name in table.identity)
    assert one.selectExpr("*").crossJoin(other).where(on).count() == 1
    assert df.join(df.where(table.alike[2]), list(table.identity)).count() == 1


def test_explain_of_one_then_of_another_then_the_first(df: DataFrame, table: Table) -> None:
    first, second = df.where(table.alike[1]), df.where(table.alike[2])
    explained(first)
    explained(second)
    assert table.found(first) == [table.picked[1]]


def test_cached(df: DataFrame, table: Table) -> None:
    kept = df.where(table.alike[1]).cache()
    try:
        assert kept.count() == 1
        assert table.found(df) == table.rows
        assert table.found(df.where(table.alike[2])) == [table.picked[2]]
        assert table.found(kept.union(df.where(table.alike[3]))) == sorted([table.picked[1], table.picked[3]])
    finally:
        kept.unpersist()
    whole = df.cache()
    try:
        assert whole.count() == len(table.rows)
        assert table.found(df.where(table.alike[1])) == [table.picked[1]]
    finally:
        whole.unpersist()


@pytest.mark.parametrize("kind", ["TEMPORARY", "GLOBAL TEMPORARY", "SQL"])
def test_views(spark: SparkSession, df: DataFrame, table: Table, kind: str) -> None:
    name = "global_temp.reused" if kind == "GLOBAL TEMPORARY" else "reused"
    if kind == "TEMPORARY":
        df.createOrReplaceTempView("reused")
    elif kind == "SQL":
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW reused USING `{table.format}` OPTIONS (path '{table.path}')")
    else:
        df.createOrReplaceGlobalTempView("reused")
    check_sql(spark, name, table)


@pytest.fixture
def name(spark: SparkSession, table: Table) -> Iterator[str]:
    """A catalog table, as FROM takes it: without the bridge the path has to be said again."""
    spark.sql("DROP TABLE IF EXISTS reused_table")
    spark.sql(f"CREATE TABLE reused_table USING `{table.format}` OPTIONS (path '{table.path}', minPartitions '2')")
    yield "reused_table" if BRIDGE else f"reused_table WITH (path = '{table.path}')"
    spark.sql("DROP TABLE reused_table")


def test_catalog_table(spark: SparkSession, name: str, table: Table) -> None:
    check_sql(spark, name, table)


def check_sql(spark: SparkSession, name: str, table: Table) -> None:
    """Separate statements, then several uses in one."""

    def one(statement: str) -> tuple[object, ...]:
        return tuple(first(spark.sql(statement)))

    assert one(f"SELECT count(*) FROM {name} WHERE {table.alike[1]}") == (1,)
    assert one(f"SELECT count(*) FROM {name}") == (len(table.rows),)
    assert table.found(spark.sql(f"SELECT * FROM {name} WHERE {table.alike[2]}")) == [table.picked[2]]
    twice = f"SELECT (SELECT count(*) FROM {name} WHERE {table.alike[1]}), (SELECT count(*) FROM {name})"
    assert one(twice) == (1, len(table.rows))
    union = f"SELECT * FROM {name} WHERE {table.alike[1]} UNION ALL SELECT * FROM {name} WHERE {table.alike[3]}"
    assert table.found(spark.sql(union)) == sorted([table.picked[1], table.picked[3]])
    shared = f"WITH t AS (SELECT * FROM {name}) SELECT * FROM t WHERE {table.alike[0]} UNION ALL SELECT * FROM t"
    assert table.found(spark.sql(shared)) == sorted([*table.rows, table.picked[0]])
    subquery = f"SELECT * FROM {name} WHERE commitLogOffset IN (SELECT commitLogOffset FROM {name} WHERE {table.alike[2]})"
    assert table.picked[2] in table.found(spark.sql(subquery))
