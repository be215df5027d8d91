"""A Spark session that is ready to read stores, and the registration of the formats in a session that is already there.

What `session` sets up is what makes PySpark fail in strange ways when missing: a Java, workers of the same Python that can
import this package, an address that resolves (`SparkContext`, `PythonWorkerFactory`).
"""

from __future__ import annotations

import os
import shutil
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from rmq_spark.bridge import JAR, BridgeWarning, load, why_not
from store_core.errors import OptionError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register", "session"]

_LOCAL = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


def register(spark: SparkSession, *, bridge: bool = True) -> str:
    """Makes the four formats known to `spark`, and loads the bridge, so that filters and columns are pushed down.

    Returns what reads from now on, in a sentence that begins with "bridge" or "plain Python". After a pip install the formats
    are known without this call, as plain Python: all queries are right, but each reads the whole store, and a catalog table
    has no options. `bridge`: False for plain Python; it does not take back a bridge that this session has.
    Warns: BridgeWarning where the bridge can't be loaded, with the reason.
    """
    from rmq_spark.source import SOURCES, BridgeSource

    for source in (*SOURCES, BridgeSource):
        spark.dataSource.register(source)
    if not bridge:
        return "plain Python: the bridge was not asked for"
    why = why_not(spark)
    if why is None:
        load(spark)
        return f"bridge: {JAR}"
    warnings.warn(
        f"reading as plain Python, without the bridge: {why}. Queries are right, but read more; catalog tables need "
        "SELECT ... WITH (path = '...')",
        BridgeWarning,
        stacklevel=2,
    )
    return f"plain Python: {why}"


def session(master: str = "local[*]", *, bridge: bool = True, **conf: object) -> SparkSession:
    """A Spark session with the formats registered; local by default, without a UI, with times shown in UTC.

    `conf`: Spark settings by their full names, `session(**{"spark.sql.shuffle.partitions": 8})`; they win over those set here.
    `bridge`: as in `register`. A session that is already running is taken, and given those settings that can still change.
    Errors: OptionError for a name that is no Spark setting; RuntimeError where there is no Java to run Spark.
    """
    for name in conf:
        if not name.startswith("spark."):
            raise OptionError(
                f"{name!r} is no Spark setting: their names begin with 'spark.'; write session(**{{\"spark.{name}\": ...}})"
            )
    _need_java()
    local = master.startswith("local")
    _use_this_python(local)
    from pyspark.sql import SparkSession

    settings: dict[str, object] = {
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "FATAL",  # a failed task reaches the caller as an exception; its Java stack says nothing more
    }
    if local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        settings |= _LOCAL
    builder = SparkSession.builder.master(master).appName("rmq-spark")
    for name, value in (settings | conf).items():
        builder = builder.config(name, str(value).lower() if isinstance(value, bool) else str(value))
    spark = builder.getOrCreate()
    register(spark, bridge=bridge)
    return spark


def _need_java() -> None:
    home = os.environ.get("JAVA_HOME")
    if home and not (Path(home) / "bin" / "java").exists():
        raise RuntimeError(
            f"JAVA_HOME is {home}, and there is no bin/java in it. Set it to a JDK or JRE of version 17 or later, or unset it"
        )
    if not home and shutil.which("java") is None:
        raise RuntimeError(
            "Spark needs Java, and none was found. Install a JDK or JRE of version 17 or later, or set JAVA_HOME to one"
        )


def _use_this_python(local: bool) -> None:
    """Workers of this machine run this very Python, and find this package where it is on `sys.path` but not installed."""
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        if local:
            os.environ[name] = sys.executable
        else:
            os.environ.setdefault(name, sys.executable)
    root = str(Path(__file__).resolve().parent.parent)
    known = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if root not in known and Path(root).name not in ("site-packages", "dist-packages"):
        os.environ["PYTHONPATH"] = os.pathsep.join([root, *filter(None, known)])
