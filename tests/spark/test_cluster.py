"""The other Spark tests again, on a standalone master with two workers in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
NOT_THERE = ("test_cluster.py", "test_session.py", "test_spark_facts.py")
"""These are about sessions that they make themselves, or about Spark."""


@pytest.mark.cluster
def test_all_on_a_cluster() -> None:
    files = [str(file) for file in sorted(FOLDER.glob("test_*.py")) if file.name not in NOT_THERE]
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")} | {
        "RMQ_SPARK_TEST_CLUSTER": "1"
    }
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *files]
    done = subprocess.run(command, env=env, cwd=FOLDER.parents[1], capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert " passed" in done.stdout and "test_all" not in done.stdout
