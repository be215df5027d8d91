"""The bridge: a small jar (`java/`) in front of our Python source. It pushes down filters and columns, keeps tables' options.

Without it the formats are plain Python: every query is right, but reads all the store. Loading is all that happens here.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["JAR", "SPARK_VERSIONS", "BridgeWarning", "load", "why_not"]

JAR = Path(__file__).parent / "rmq-spark-bridge.jar"
"""For `--jars` and `spark.jars`, where no program of yours calls `rmq_spark.register`."""
SPARK_VERSIONS = ("4.1", "4.2", "4.3")
"""Versions of Spark that the jar was tested with."""


class BridgeWarning(UserWarning):
    """The bridge could not be loaded: what is slower or missing without it, and why."""


def why_not(spark: SparkSession) -> str | None:
    """One sentence about why the bridge can't be loaded into this session; None where it can."""
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        return "this is a Spark Connect session, which takes no such jar from its client: start its server with --jars"
    version = spark.version
    if ".".join(version.split(".")[:2]) not in SPARK_VERSIONS:
        return f"it is made for Spark {', '.join(SPARK_VERSIONS)}, and this is {version}"
    if not JAR.exists():
        return f"{JAR} is not there: build it with `make bridge`"
    return None


def load(spark: SparkSession) -> None:
    """Makes the session take our formats from the jar. Loading it again changes nothing."""
    path = str(JAR).replace("\\", "\\\\").replace("'", "\\'")
    spark.sql(f"ADD JAR '{path}'")
