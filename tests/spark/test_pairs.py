"""Random pairs of queries over one DataFrame, against the full scan filtered with pyarrow: in one plan, and one after another.

`RMQ_SPARK_CASES=2000 pytest tests/spark/test_pairs.py` plays more pairs, `RMQ_SPARK_SEED` others.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame, SparkSession

from store_core import open_store
from tests.golden_stores import Golden
from tests.spark.conftest import BRIDGE, CLUSTER

PAIRS = int(os.environ.get("RMQ_SPARK_CASES", "200" if BRIDGE and not CLUSTER else "20"))
SEED = int(os.environ.get("RMQ_SPARK_SEED", "0"))
AT_ONCE = 20
"""Pairs in one plan: it has twice as many scans of the DataFrame."""
ALONE = max(PAIRS // 8, 1)
"""Pairs whose queries are each a plan of its own, one after the other."""
NAME = "lmq-5.3.3"
NUMBERS = ("queueId", "queueOffset", "commitLogOffset", "storeSize")
TEXTS = ("topic", "keys", "uniqKey", "tags", "offsetMsgId")
COMPARED = {"=": pc.equal, "<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal}
TURNED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


@dataclass(frozen=True)
class Query:
    """The same condition for Spark and for pyarrow, which both know a null."""

    sql: str
    mask: pa.BooleanArray


def literal(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, pa.TimestampScalar):
        return f"timestamp_micros({value.value})"
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'" if isinstance(value, str) else str(value)


def condition(rng: random.Random, rows: pa.Table) -> Query:
    name = rng.choice((*TEXTS, *TEXTS, *NUMBERS, "storeTimestamp"))
    column = rows[name].combine_chunks()

    def value() -> Any:
        found = rng.choice(column)
        if name == "storeTimestamp":
            return pa.scalar(found.value + rng.choice((0, 0, 0, 1, -1, 1000)), type=column.type)
        if isinstance(found.as_py(), int):
            return found.as_py() + rng.choice((0, 0, 1, -1))
        return rng.choice((found.as_py(), found.as_py(), found.as_py(), "none", ""))

    def scalar(of: Any) -> pa.Scalar:
        return of if isinstance(of, pa.Scalar) else pa.scalar(of, type=column.type)

    kind = rng.choice(("compare", "compare", "compare", "turned", "in", "in", "null-safe", "is null", "or", "not", "like"))
    if kind == "in":
        values = [value() for _ in range(rng.randint(1, 14))] + [None] * (rng.random() < 0.3)
        given = [scalar(each).cast(column.type) for each in values if each is not None]
        among = pc.is_in(column, value_set=pa.array([each.as_py() for each in given], type=column.type))
        # in SQL what is not among values with a NULL may be that NULL
        mask = pc.if_else(pc.or_(among, pc.and_(pc.is_valid(column), None not in values)), among, None)
        return Query(f"{name} IN ({', '.join(map(literal, values))})", mask)
    if kind == "is null":
        return rng.choice((Query(f"{name} IS NULL", pc.is_null(column)), Query(f"{name} IS NOT NULL", pc.is_valid(column))))
    if kind == "like" and name in TEXTS:
        start = (value() or "x")[:3].replace("%", "").replace("_", "")
        return Query(f"{name} LIKE '{start}%'", pc.starts_with(column, start))
    if kind == "or":
        one, other = condition(rng, rows), condition(rng, rows)
        return Query(f"({one.sql} OR {other.sql})", pc.or_kleene(one.mask, other.mask))
    if kind == "not":
        one = condition(rng, rows)
        return Query(f"NOT ({one.sql})", pc.invert(one.mask))
    given = value()
    if kind == "null-safe":
        if given is None:
            return Query(f"{name} <=> NULL", pc.is_null(column))
        return Query(f"{name} <=> {literal(given)}", pc.fill_null(pc.equal(column, scalar(given)), False))
    op = rng.choice(("=", "=", *COMPARED))
    mask = COMPARED[op](column, scalar(given))
    return Query(f"{literal(given)} {TURNED[op]} {name}" if kind == "turned" else f"{name} {op} {literal(given)}", mask)


def query(rng: random.Random, rows: pa.Table) -> Query:
    """Up to three conditions; often of a topic, since that is what keys are looked up in."""
    conditions = [condition(rng, rows) for _ in range(rng.choice((1, 1, 2, 3)))]
    if rng.random() < 0.5:
        topic = rng.choice(rows["topic"]).as_py()
        conditions.append(Query(f"topic = {literal(topic)}", pc.equal(rows["topic"].combine_chunks(), topic)))
    masks = [each.mask for each in conditions]
    return Query(" AND ".join(each.sql for each in conditions), reduce(pc.and_kleene, masks))


@pytest.fixture(scope="module")
def rows(golden: Golden) -> pa.Table:
    return open_store(str(golden(NAME))).scan(index="ignore").read_all()


@pytest.fixture(scope="module")
def df(spark: SparkSession, golden: Golden) -> DataFrame:
    return spark.read.format("rocketmq-store").load(str(golden(NAME)))


@pytest.fixture(scope="module")
def pairs(rows: pa.Table) -> list[tuple[Query, Query]]:
    rng = random.Random(SEED)
    return [(query(rng, rows), query(rng, rows)) for _ in range(PAIRS)]


def expected(rows: pa.Table, asked: Query) -> list[int]:
    return sorted(rows["commitLogOffset"].filter(pc.fill_null(asked.mask, False)).to_pylist())


def found(df: DataFrame, asked: list[Query]) -> list[list[int]]:
    """What each query gives, all of them in one plan."""
    tagged = [df.where(each.sql).selectExpr(f"{i} AS n", "commitLogOffset") for i, each in enumerate(asked)]
    offsets: list[list[int]] = [[] for _ in asked]
    for row in reduce(DataFrame.unionAll, tagged).toArrow().to_pylist():
        offsets[row["n"]].append(row["commitLogOffset"])
    return [sorted(each) for each in offsets]


def check(df: DataFrame, rows: pa.Table, asked: list[Query]) -> None:
    for each, offsets in zip(asked, found(df, asked), strict=True):
        assert offsets == expected(rows, each), f"RMQ_SPARK_SEED={SEED}: {each.sql}"


def test_they_are_worth_asking(rows: pa.Table, pairs: list[tuple[Query, Query]]) -> None:
    sizes = [len(expected(rows, each)) for pair in pairs for each in pair]
    assert sum(0 < size < len(rows) for size in sizes) > len(sizes) / 3 and 0 in sizes


def test_in_one_plan(df: DataFrame, rows: pa.Table, pairs: list[tuple[Query, Query]]) -> None:
    """And plan after plan: no scan may see what a scan before it asked for."""
    for at in range(0, PAIRS, AT_ONCE):
        check(df, rows, [each for pair in pairs[at : at + AT_ONCE] for each in pair])


def test_one_after_another(df: DataFrame, rows: pa.Table, pairs: list[tuple[Query, Query]]) -> None:
    for pair in pairs[:ALONE]:
        for each in pair:
            check(df, rows, [each])
    assert df.count() == len(rows)
