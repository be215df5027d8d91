"""Real brokers for tests. RMQ_INTEROP=required makes it an error, not a reason to skip, that they can't be had."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from benchmarks import rocketmq
from tests.interop.broker import Broker, one_at_a_time

FOLDER = Path(__file__).parent
VERSIONS = ("4.9.7", "5.3.3", "5.5.0")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test with an argument `version` runs for each of them, unless it says for which."""
    named = any("version" in str(mark.args[0]) for mark in metafunc.definition.iter_markers("parametrize"))
    if "version" in metafunc.fixturenames and not named:
        metafunc.parametrize("version", VERSIONS)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if FOLDER in item.path.parents:
            item.add_marker(pytest.mark.interop)


@cache
def why_not(version: str) -> str | None:
    """Why there is no broker of this version here; None when there is one."""
    try:
        rocketmq.java()
        rocketmq.java("javac")
        rocketmq.jars(version)
    except SystemExit as missing:
        return str(missing)
    return None


@pytest.fixture
def boot(tmp_path: Path) -> Iterator[Callable[..., Broker]]:
    """`boot(version, store, **settings)` is a running broker, see `Broker`; to be used in a `with`. One runs at a time."""
    started: list[Broker] = []
    homes = (tmp_path / f"home-{number}" for number in itertools.count())

    def start(version: str, store: Path, **settings: Any) -> Broker:
        if (reason := why_not(version)) is not None:
            if os.environ.get("RMQ_INTEROP") == "required":
                pytest.fail(reason)
            pytest.skip(reason)
        started.append(Broker(version, store, next(homes), **settings))
        return started[-1]

    with one_at_a_time():
        yield start
        for broker in started:
            broker.kill()
