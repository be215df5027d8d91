"""A slice of the fuzzing for every run of the tests: all seeds, all that was ever found, and some thousand mutations."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.fuzz.__main__ import FINDS, failure, keep, mutate, smallest
from tests.fuzz.mutate import batches, grown, mutant
from tests.fuzz.seeds import seeds
from tests.fuzz.targets import TARGETS, Target, looped
from tests.golden_stores import Golden

COUNTS = {"log": 50, "queue": 300, "index": 200, "config": 1000}
"""Mutations of the targets that read whole files; 4,000 of each other one."""


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory, golden: Golden) -> dict[str, list[bytes]]:
    return seeds(tmp_path_factory.mktemp("seeds"), golden)


def test_every_target_has_seeds_and_every_find_a_target(start: dict[str, list[bytes]]) -> None:
    assert set(start) == set(TARGETS) and all(start.values())
    assert {path.name for path in FINDS.iterdir()} <= set(TARGETS)


@pytest.mark.parametrize("name", TARGETS)
def test_seeds(name: str, start: dict[str, list[bytes]]) -> None:
    TARGETS[name].check(start[name])
    for data in start[name]:
        TARGETS[name].one(data)


@pytest.mark.parametrize("place", sorted(FINDS.glob("*/*")), ids=lambda path: f"{path.parent.name}-{path.name}")
def test_what_was_found(place: Path) -> None:
    files = sorted(place.iterdir()) if place.is_dir() else [place]
    assert sum(file.stat().st_size for file in files) < 64 << 10, "a find is kept small"
    assert failure(TARGETS[place.parent.name], [file.read_bytes() for file in files]) is None


@pytest.mark.parametrize("name", TARGETS)
def test_mutations(name: str, start: dict[str, list[bytes]]) -> None:
    count = COUNTS.get(name, 4000)
    played = 0
    for inputs in batches(name, start[name], min(count, TARGETS[name].batch), seed=1):
        assert failure(TARGETS[name], inputs) is None
        played += len(inputs)
        if played >= count:
            break


def test_the_same_seed_gives_the_same_mutations(start: dict[str, list[bytes]]) -> None:
    one, other = (next(batches("queue", start["queue"], 200, seed=5)) for _ in range(2))
    assert one == other != next(batches("queue", start["queue"], 200, seed=6))
    changed = sum(data not in start["queue"] for data in one)
    assert changed > 190


def test_a_find_is_made_small_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That the runner notices: an error that is not declared, two inputs that fail together only, and too much time."""
    monkeypatch.setattr("tests.fuzz.__main__.FINDS", tmp_path)

    def check(data: bytes) -> None:
        assert b"x" not in data

    def together(inputs: Sequence[bytes]) -> None:
        assert not {b"a", b"b"} <= set(inputs)

    target = Target("one", looped(check))
    assert "AssertionError" in str(failure(target, [b"a", b"x"]))
    assert keep(target, smallest(target, [b"a", b"bx", b"c"])).read_bytes() == b"x"
    target = Target("two", together)
    found = keep(target, smallest(target, [b"0", b"a", b"1", b"2", b"b", b"3"]))
    assert [file.read_bytes() for file in sorted(found.iterdir())] == [b"a", b"b"]

    def burn(data: bytes) -> None:
        until = time.process_time() + 0.7
        while time.process_time() < until:
            pass

    slow = Target("slow", looped(burn))
    assert "TooSlowError" in str(failure(slow, [b"a"]))
    assert mutate(Target("one", looped(lambda data: None)), [b"seed"], 60, 500, 0)[::2] == (501, 0)


def test_mutants_of_nothing() -> None:
    import random

    rng = random.Random(1)
    assert all(isinstance(mutant(rng, [b""]), bytes) for _ in range(200))
    assert all(100_000 < len(grown(rng, [b"", b"ab"])) < 600_000 for _ in range(20))
