"""The session, and the formats in sessions that are not ours."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import rmq_spark
from rmq_spark.source import SOURCES
from store_core.errors import OptionError
from tests.golden_stores import Golden

ROOT = Path(__file__).resolve().parents[2]
FORMATS = ("rocketmq-store", "rocketmq-commitlog", "rocketmq-consumequeue", "rocketmq-indexfile")


def run(code: str, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "PYTHONPATH", "SPARK_"))}
    return subprocess.run(
        [sys.executable, "-c", code, *args], env=clean | env, capture_output=True, text=True, timeout=120, check=False, cwd="/"
    )


def test_formats() -> None:
    assert tuple(source.name() for source in SOURCES) == FORMATS


def test_known_without_a_call(golden: Golden) -> None:
    """A plain session finds the formats by the `pyspark_*` modules next to the package, as after a pip install."""
    code = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
for name in sys.argv[2:]:
    assert spark.read.format(name).load(sys.argv[1]).limit(1).count() == 1, name
print("all found")
"""
    env = {
        "PYTHONPATH": str(ROOT),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    done = run(code, str(golden("mixed-5.3.3")), *FORMATS, **env)
    assert "all found" in done.stdout, done.stderr[-3000:]


def test_a_session_from_another_folder_with_a_wrong_python_in_the_environment(golden: Golden) -> None:
    code = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
import rmq_spark
spark = rmq_spark.session("local[1]", **{{"spark.sql.shuffle.partitions": 3}})
assert spark.conf.get("spark.sql.shuffle.partitions") == "3"
assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
assert spark.sparkContext.uiWebUrl is None
print(spark.read.format("rocketmq-store").load(sys.argv[1]).count(), "rows")
try:
    spark.read.format("rocketmq-store").option("keys", "a b").load(sys.argv[1])
except Exception:
    print("refused")
"""
    done = run(code, str(golden("longtopic-5.3.3")), PYSPARK_PYTHON="/nowhere/python3")
    assert done.stdout.split("\n")[:2] == ["64 rows", "refused"], done.stderr[-3000:]
    assert "Exception" not in done.stderr, "quiet"


def test_a_running_session_is_taken(spark: SparkSession) -> None:
    conf: dict[str, Any] = {"spark.sql.shuffle.partitions": "2"}
    again = rmq_spark.session(**conf)
    assert again.sparkContext is spark.sparkContext


def test_settings_need_their_full_names() -> None:
    with pytest.raises(OptionError, match=r"'ui' is no Spark setting.*spark\.ui"):
        rmq_spark.session(ui="false")


def test_no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RuntimeError, match=r"Spark needs Java, and none was found\. Install"):
        rmq_spark.session()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(RuntimeError, match=r"JAVA_HOME is .*no bin/java in it"):
        rmq_spark.session()
