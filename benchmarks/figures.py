"""What a benchmark gives: measured samples, and figures that compare two of them, or one with a limit."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

__all__ = ["Figure", "Measure", "alternate", "milliseconds", "rate", "ratio", "timed"]

Measure = Callable[[], float]
"""Runs something once and gives the seconds it took."""


@dataclass(frozen=True)
class Figure:
    """One line of the report. `value` is compared with `target` as `at_least` says; without a target it is for information."""

    name: str
    value: float
    unit: str
    target: float | None = None
    at_least: bool = False
    detail: Mapping[str, str] = field(default_factory=dict)
    """What `value` was made from, by name: the absolute numbers."""
    samples: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """All measured seconds, by name."""

    @property
    def met(self) -> bool | None:
        if self.target is None:
            return None
        return self.value >= self.target if self.at_least else self.value <= self.target


def alternate(measures: Mapping[str, Measure], rounds: int, warm_up: int = 1) -> dict[str, list[float]]:
    """Seconds of each measure, `rounds` times, taken in turns: what else the machine does then hits all of them alike.

    The order turns around from round to round. The `warm_up` rounds before are not counted.
    """
    seconds: dict[str, list[float]] = {name: [] for name in measures}
    for number in range(warm_up + rounds):
        names = list(measures) if number % 2 == 0 else list(list(measures)[::-1])
        for name in names:
            taken = measures[name]()
            if number >= warm_up:
                seconds[name].append(taken)
    return seconds


def rate(seconds: Sequence[float], rows: int, size: int | None = None) -> str:
    """Median and best time as rows (and bytes) a second, for reading."""
    median, best = statistics.median(seconds), min(seconds)
    text = f"{rows / median / 1e6:.3f} M msg/s (median {median:.3f} s, best {best:.3f} s)"
    return text if size is None else f"{text}, {size / median / 1e9:.2f} GB/s"


def milliseconds(seconds: Sequence[float]) -> str:
    return f"{statistics.median(seconds) * 1e3:.2f} ms (best {min(seconds) * 1e3:.2f} ms)"


def ratio(over: Sequence[float], under: Sequence[float]) -> float:
    """The median of the rounds' ratios: each pair was measured side by side."""
    return statistics.median(a / b for a, b in zip(over, under, strict=True))


def timed(work: Callable[[], object]) -> Measure:
    """A measure of what `work` takes."""

    def measure() -> float:
        start = time.perf_counter()
        work()
        return time.perf_counter() - start

    return measure
