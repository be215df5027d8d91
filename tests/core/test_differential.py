"""Every access path gives exactly what reading everything and then filtering gives, whatever state queues and index are in.

`RMQ_SPARK_CASES=5000 pytest tests/core/test_differential.py` plays more stores, `RMQ_SPARK_SEED` others.
"""

from __future__ import annotations

import os
import random

import pytest

from tests.core.rows import full_rows
from tests.differential import Summary, ask, run
from tests.golden_stores import GOLDEN_NAMES, Golden

CASES = int(os.environ.get("RMQ_SPARK_CASES", "0"))
SEED = int(os.environ.get("RMQ_SPARK_SEED", "0"))


def told(summary: Summary, modes: tuple[str, ...]) -> str:
    found = [str(d) for mode in modes for d in summary.by_mode(mode)]
    return f"{summary}\nRMQ_SPARK_SEED={SEED}\n" + "\n".join(found[:10])


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_stores_of_real_brokers(golden: Golden, name: str) -> None:
    summary = Summary(stores=1)
    ask(random.Random(SEED), golden(name), full_rows(golden(name), "b"), max(CASES // 10, 12), summary, SEED)
    assert not summary.differences, told(summary, ("trust", "verify", "ignore"))


@pytest.mark.parametrize("part", range(4))
def test_sound_queues_and_index(part: int) -> None:
    """Lagging, holed, crashed and missing ones count as sound: a broker leaves them so."""
    count = max(CASES // 4, 12)
    summary = run(count, seed=SEED + 10_000_000 * part)
    print(summary)
    assert not summary.differences, told(summary, ("trust", "verify", "ignore"))


@pytest.mark.parametrize("part", range(4))
def test_damaged_queues_and_index(part: int) -> None:
    """With index=verify and ignore nothing differs. What trust can't know is counted; it may not crash."""
    count = max(CASES // 4, 12)
    summary = run(count, seed=SEED + 10_000_000 * part + 5_000_000, damaged=True)
    print(summary)
    assert not summary.by_mode("verify") + summary.by_mode("ignore"), told(summary, ("verify", "ignore"))
    assert {d.kind for d in summary.by_mode("trust")} <= {"missing"}, told(summary, ("trust",))
