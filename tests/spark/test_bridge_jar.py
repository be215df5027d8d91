"""The jar: that it is what its source says, that it is shipped, and the ways into a Spark."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import warnings
import zipfile
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

import rmq_spark
from rmq_spark import bridge
from rmq_spark.bridge import JAR, SPARK_VERSIONS, BridgeWarning, build, why_not
from rmq_spark.source import SOURCES, BridgeSource
from tests.golden_stores import Golden
from tests.spark.conftest import ROOT, cluster
from tests.spark.pushed import pushed_filters

SERVICES = "META-INF/services/org.apache.spark.sql.sources.DataSourceRegister"


def manifest() -> dict[str, str]:
    with zipfile.ZipFile(JAR) as jar:
        lines = jar.read("META-INF/MANIFEST.MF").decode().split("\r\n")
    return dict(line.split(": ", 1) for line in lines if line)


def test_it_is_made_of_these_sources() -> None:
    assert manifest()["Sources-SHA-256"] == build.sources_digest(), "run `make bridge`"
    assert manifest()["Spark-Versions"].split() == list(SPARK_VERSIONS)


@pytest.mark.skipif(build.javac() is None, reason="no JDK")
def test_the_classes_are_those_that_the_sources_give(tmp_path: Path) -> None:
    compiler = build.javac()
    assert compiler is not None
    made = build.compile_classes(compiler)
    with zipfile.ZipFile(JAR) as jar:
        shipped = {name: jar.read(name) for name in jar.namelist() if name.endswith(".class")}
    assert made.keys() == shipped.keys()
    if build.javac_version(compiler) == manifest()["Built-By-Javac"]:
        assert made == shipped
        build.build(tmp_path / "again.jar")
        assert (tmp_path / "again.jar").read_bytes() == JAR.read_bytes()


def test_it_names_a_class_for_each_format() -> None:
    with zipfile.ZipFile(JAR) as jar:
        named = jar.read(SERVICES).decode().split()
        assert {f"{name.replace('.', '/')}.class" for name in named} <= set(jar.namelist())
        for source in SOURCES:
            assert any(source.format.encode() in jar.read(f"{name.replace('.', '/')}.class") for name in named), source.format
        assert any(BridgeSource.name().encode() in jar.read(name) for name in jar.namelist() if name.endswith(".class"))


# --- register --------------------------------------------------------------------------------------------------------------


def test_register_says_what_reads(spark: SparkSession, with_bridge: None, monkeypatch: pytest.MonkeyPatch) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert rmq_spark.register(spark) == f"bridge: {JAR}"
    assert rmq_spark.register(spark, bridge=False) == "plain Python: the bridge was not asked for"
    monkeypatch.setattr(bridge, "SPARK_VERSIONS", ("9.8", "9.9"))
    with pytest.warns(BridgeWarning, match=rf"it is made for Spark 9.8, 9.9, and this is {spark.version}\. Queries are right"):
        said = rmq_spark.register(spark)
    assert said == f"plain Python: it is made for Spark 9.8, 9.9, and this is {spark.version}"


def test_what_keeps_the_bridge_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def session(version: str, module: str = "pyspark.sql.session") -> Any:
        return type("SparkSession", (SimpleNamespace,), {"__module__": module})(version=version)

    for version in SPARK_VERSIONS:
        assert why_not(session(f"{version}.1")) is None
    for version in ("4.0.1", "5.0.0-SNAPSHOT", "4.10.0"):
        assert version in (why_not(session(version)) or "")
    assert "Spark Connect" in (why_not(session("4.3.0", "pyspark.sql.connect.session")) or "")
    monkeypatch.setattr(bridge, "JAR", tmp_path / "none.jar")
    assert "make bridge" in (why_not(session("4.3.0")) or "")


def test_a_path_of_odd_characters(
    spark: SparkSession, with_bridge: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    odd = tmp_path / "it's a folder" / "bridge copy.jar"
    odd.parent.mkdir()
    shutil.copy(JAR, odd)
    monkeypatch.setattr(bridge, "JAR", odd)
    bridge.load(spark)


def test_another_session_of_the_same_spark(spark: SparkSession, golden: Golden, with_bridge: None) -> None:
    other = spark.newSession()
    rmq_spark.register(other)
    df = other.read.format("rocketmq-store").load(str(golden("longtopic-5.3.3")))
    assert pushed_filters(df.where("queueId = 1")) == "queueId = 1"
    assert df.where("queueId < 0").count() == 0 < df.count()


# --- loaded by Spark itself ------------------------------------------------------------------------------------------------

BY_JARS = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.config("spark.ui.enabled", "false").config("spark.driver.host", "127.0.0.1").getOrCreate()
df = spark.read.format("rocketmq-store").load(sys.argv[1])
plan = df.where("topic = 'Orders'")._jdf.queryExecution().toString()
assert "rocketmq-store (bridge) PushedFilters: [topic = 'Orders']" in plan, plan
assert "rmq_spark" not in sys.modules
both = df.where("topic = 'Orders'").union(df.where("topic = 'Payments'"))
print("rows:", both.count(), df.count(), df.where("topic = 'Orders' AND queueId = 1").select("body").count())
"""


@pytest.mark.parametrize("master", ["local[1]", pytest.param("cluster", marks=[pytest.mark.slow, pytest.mark.cluster])])
def test_by_jars_without_a_call(golden: Golden, tmp_path: Path, master: str) -> None:
    """As on a cluster, or in a notebook: `--jars`, and the package where Python finds it."""
    messages = golden.messages("mixed-5.3.3")
    orders = [row for row in messages if row["topic"] == "Orders"]
    both = len(orders) + sum(row["topic"] == "Payments" for row in messages)
    with cluster(tmp_path) if master == "cluster" else nullcontext(master) as address:
        env = os.environ | {
            "PYTHONPATH": str(ROOT),
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_SUBMIT_ARGS": f"--master {address} --jars {JAR} pyspark-shell",
        }
        command = [sys.executable, "-c", BY_JARS, str(golden("mixed-5.3.3"))]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False, cwd=tmp_path)
    expected = f"rows: {both} {len(messages)} {sum(row['queueId'] == 1 for row in orders)}"
    assert expected in done.stdout, done.stdout + done.stderr[-4000:]


CONNECT = """
import sys, warnings
import rmq_spark
from pyspark.sql import SparkSession
spark = SparkSession.builder.remote("local[1]").getOrCreate()
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    print("said:", rmq_spark.register(spark))
print("warned:", [str(w.message) for w in caught if w.category.__name__ == "BridgeWarning"])
df = spark.read.format("rocketmq-store").load(sys.argv[1])
print("rows:", df.where("topic = 'Orders'").union(df.where("topic = 'Payments'")).count(), df.count())
keys = spark.createDataFrame([("Orders", "BB"), ("Orders", "none")], "topic string, key string")
print("found:", rmq_spark.lookup(spark, keys, sys.argv[1]).count())
"""


@pytest.mark.skipif(
    importlib.util.find_spec("grpc") is None or importlib.util.find_spec("pandas") is None, reason="no Spark Connect"
)
def test_spark_connect(golden: Golden, tmp_path: Path) -> None:
    messages = golden.messages("mixed-5.3.3")
    env = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "PYSPARK_PYTHON": sys.executable,
    }
    command = [sys.executable, "-c", CONNECT, str(golden("mixed-5.3.3"))]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False, cwd=tmp_path)
    both = sum(row["topic"] in ("Orders", "Payments") for row in messages)
    assert f"rows: {both} {len(messages)}" in done.stdout, done.stdout + done.stderr[-4000:]
    assert "said: plain Python: this is a Spark Connect session" in done.stdout
    assert 'warned: ["reading as plain Python' in done.stdout
    keyed = sum(row["topic"] == "Orders" and "BB" in (row["keys"] or "").split(" ") for row in messages)
    assert f"found: {keyed}" in done.stdout
