"""Spark sessions for the tests: one local session with the bridge, or other kinds, each in a process of its own.

A process can have one Spark, and a Spark keeps the bridge that it has. So `test_again.py` runs the other tests again in
processes that these variables are set for:
`RMQ_SPARK_TEST_CLUSTER=1`: on a standalone master with two workers, each a process of its own, from the pip package alone.
`RMQ_SPARK_TEST_BRIDGE=0`: without the bridge, as plain Python.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import rmq_spark

ROOT = Path(__file__).resolve().parents[2]
BRIDGE = os.environ.get("RMQ_SPARK_TEST_BRIDGE") != "0"
CLUSTER = os.environ.get("RMQ_SPARK_TEST_CLUSTER") == "1"
SMALL = {"spark.sql.shuffle.partitions": "2", "spark.default.parallelism": "2"}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session of all tests that do not say otherwise."""
    with ExitStack() as stack:
        folder = tmp_path_factory.mktemp("spark")
        settings = SMALL | {"spark.sql.warehouse.dir": str(folder / "warehouse")}
        master = "local[2]"
        if CLUSTER:
            master = stack.enter_context(cluster(folder))
            settings |= {"spark.driver.host": "127.0.0.1", "spark.ui.enabled": "false", "spark.task.maxFailures": "1"}
        session = rmq_spark.session(master, bridge=BRIDGE, **settings)
        stack.callback(session.stop)
        yield session


@pytest.fixture
def with_bridge(spark: SparkSession) -> None:
    """For tests of what only the bridge does."""
    if not BRIDGE:
        pytest.skip("without the bridge")


@pytest.fixture
def without_bridge(spark: SparkSession) -> None:
    """For tests of what plain Python does, and the bridge does better."""
    if BRIDGE:
        pytest.skip("with the bridge")


@contextmanager
def cluster(folder: Path, hosts: tuple[str, str] = ("127.0.0.1", "127.0.0.1")) -> Iterator[str]:
    """Starts a master and two workers (1 core, 1 GiB each) on loopback; yields the master's address; stops them.

    hosts: of the workers. Spark gives a task's second attempt to another host only.
    """
    import pyspark

    home = Path(pyspark.__file__).parent
    env = os.environ | {
        "SPARK_HOME": str(home),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT),
        "SPARK_NO_DAEMONIZE": "1",
    }
    port, log = free_port(), folder / "cluster.log"
    master = f"spark://127.0.0.1:{port}"
    launch = [str(home / "bin" / "spark-class"), "org.apache.spark.deploy"]
    worker = ["--cores", "1", "--memory", "1g", "--webui-port", "0", "--work-dir", str(folder), master]
    commands = [("master.Master", "127.0.0.1", ["--port", str(port), "--webui-port", "0"])]
    commands += [("worker.Worker", host, worker) for host in hosts]
    processes = []
    with log.open("wb") as out:
        try:
            for kind, host, command in commands:
                started = [launch[0], f"{launch[1]}.{kind}", "--host", host, *command]
                there = env | {"SPARK_LOCAL_IP": host}
                processes.append(subprocess.Popen(started, env=there, stdout=out, stderr=out, cwd=folder))
            wait_for_workers(log, 2)
            yield master
        finally:
            for process in reversed(processes):
                process.terminate()
            for process in processes:
                process.wait(timeout=30)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for_workers(log: Path, count: int, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while log.read_text(errors="replace").count("Registering worker") < count:
        if time.monotonic() > end:
            raise TimeoutError(
                f"no {count} workers within {seconds} s; the log says:\n{log.read_text(errors='replace')[-3000:]}"
            )
        time.sleep(0.2)
