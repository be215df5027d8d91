"""Fixtures for all tests. None of them needs Spark; those that do are in `tests/spark`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.golden_stores import Golden


@pytest.fixture(scope="session")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Golden:
    """`golden(name)` is the path of a store that a real broker wrote, unpacked once per session (and xdist worker)."""
    return Golden(tmp_path_factory.mktemp("golden"))


@pytest.fixture
def fresh_golden(golden: Golden, tmp_path: Path) -> Callable[[str], Path]:
    """`fresh_golden(name)` is a private copy of a golden store, to be damaged or written to."""
    return lambda name: golden.unpack(name, tmp_path)
