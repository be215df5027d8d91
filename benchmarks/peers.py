"""One of our programs against one of RocketMQ's, both answering with what a pass took (`benchmarks.process`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.figures import Figure, alternate, rate, ratio

__all__ = ["compare"]


def compare(
    name: str,
    unit: str,
    target: float | None,
    passes: Mapping[str, Callable[[], Mapping[str, Any]]],
    messages: int,
    *,
    rounds: int,
    warm_up: int,
    size: int | None = None,
) -> Figure:
    """How many times the peer's rate ours is.

    passes: ours, then the peer's, by name; an answer has `seconds`, `cpu` and `rows`, which must be `messages`. size: bytes of
    the log, where the rate in bytes says something.
    """
    cpu: dict[str, list[float]] = {each: [] for each in passes}

    def one_pass(each: str) -> float:
        answer = passes[each]()
        if answer["rows"] != messages:
            raise RuntimeError(f"{each}: {answer['rows']} messages, expected {messages}")
        cpu[each].append(answer["cpu"])
        return float(answer["seconds"])

    ours, peer = passes
    seconds = alternate({ours: lambda: one_pass(ours), peer: lambda: one_pass(peer)}, rounds, warm_up)
    busy = {each: taken[-rounds:] for each, taken in cpu.items()}
    return Figure(
        name,
        ratio(seconds[peer], seconds[ours]),
        unit,
        target=target,
        at_least=True,
        detail={
            **{each: rate(taken, messages, size) for each, taken in seconds.items()},
            # where other programs want the CPUs too, that says more than the seconds
            "by CPU time": f"{ratio(busy[peer], busy[ours]):.2f} x",
        },
        samples=seconds | {f"{each}, CPU": taken for each, taken in busy.items()},
    )
