"""The other Spark tests again, in processes with another Spark: without the bridge, and on a cluster (conftest.py)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
OF_THEIR_OWN = ("test_again.py", "test_bridge_jar.py", "test_session.py", "test_spark_facts.py")
"""These are about sessions that they make themselves, or about Spark."""


def again(**env: str) -> None:
    files = [str(file) for file in sorted(FOLDER.glob("test_*.py")) if file.name not in OF_THEIR_OWN]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *files]
    done = subprocess.run(
        command, env=clean | env, cwd=FOLDER.parents[1], capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert " passed" in done.stdout and "test_again" not in done.stdout


@pytest.mark.slow
def test_without_the_bridge() -> None:
    again(RMQ_SPARK_TEST_BRIDGE="0")


@pytest.mark.slow
@pytest.mark.cluster
def test_on_a_cluster() -> None:
    again(RMQ_SPARK_TEST_CLUSTER="1")
