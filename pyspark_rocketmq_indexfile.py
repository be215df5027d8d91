"""Makes `rocketmq-indexfile` known: Spark registers the `DefaultSource` of every installed module named `pyspark_*`."""

from __future__ import annotations

from rmq_spark.source import IndexFileSource as DefaultSource

__all__ = ["DefaultSource"]
