"""What Spark is going to read: the tasks of a DataFrame's scans, as Python planned them, and what `explain` says."""

from __future__ import annotations

import contextlib
import io
from typing import Any

from pyspark.serializers import CPickleSerializer
from pyspark.sql import DataFrame

from store_core.plan import Task

__all__ = ["explained", "pushed_filters", "scans", "statistics", "tasks"]


def scans(df: DataFrame) -> list[Any]:
    """The scans of the optimized plan, of the JVM."""
    leaves = df._jdf.queryExecution().optimizedPlan().collectLeaves()
    return [leaves.apply(i).scan() for i in range(leaves.size())]


def tasks(df: DataFrame) -> list[Task]:
    """The tasks of the only scan. It is what the workers are sent, less what only tells sizes."""
    (scan,) = scans(df)
    partitions = [CPickleSerializer().loads(bytes(p.pickedPartition())) for p in scan.toBatch().planInputPartitions()]
    return [partition.task for partition in partitions if partition is not None and partition.task.pieces]


def statistics(df: DataFrame) -> tuple[int, int]:
    """(bytes, rows) that the only scan tells the optimizer to expect."""
    (scan,) = scans(df)
    told = scan.estimateStatistics()
    size = df._jdf.queryExecution().optimizedPlan().collectLeaves().apply(0).stats().sizeInBytes()
    assert str(size) == str(told.sizeInBytes().getAsLong()), "the optimizer takes it"
    return told.sizeInBytes().getAsLong(), told.numRows().getAsLong()


def pushed_filters(df: DataFrame) -> str:
    """As EXPLAIN FORMATTED shows them; it leaves the line out where there are none."""
    line = next((line for line in explained(df).splitlines() if line.startswith("PushedFilters: ")), "PushedFilters: []")
    return line.removeprefix("PushedFilters: [").removesuffix("]").replace("'null'", "NULL")  # as Spark 4.1 writes a null


def explained(df: DataFrame) -> str:
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        df.explain("formatted")
    return said.getvalue()
