"""What is left out must not cost: one queue of 64, or two narrow columns, against a scan of everything; on one thread."""

from __future__ import annotations

import functools
import json

from benchmarks.context import Context
from benchmarks.figures import Figure, alternate, milliseconds, ratio
from benchmarks.process import python_program

__all__ = ["run"]

_QUEUE = [("topic", "=", "topic-3"), ("queueId", "=", 5)]


def run(context: Context) -> list[Figure]:
    store = context.store(1000)
    asked = {
        "everything": {},
        "one queue, store open": {"where": _QUEUE},
        "one queue, opened for it": {"where": _QUEUE, "reopen": True},
        "topic and queueOffset": {"columns": ["topic", "queueOffset"]},
    }
    expected = {name: store.messages // (64 if "queue," in name else 1) for name in asked}
    with python_program("scan_program", store.path()) as program:

        def measure(name: str) -> float:
            answer = program.ask(json.dumps(asked[name]))
            # queues have as many messages as each other, but for one
            if abs(answer["rows"] - expected[name]) > 1:
                raise RuntimeError(f"{name}: {answer['rows']} rows, expected {expected[name]}")
            return float(answer["seconds"])

        seconds = alternate({name: functools.partial(measure, name) for name in asked}, context.rounds(7), warm_up=2)
    return [
        Figure(
            f"core, 1,000 B: {name}, against everything",
            ratio(seconds[name], seconds["everything"]),
            "of the time",
            target=target,
            detail={each: milliseconds(seconds[each]) for each in (name, "everything")},
            samples={each: seconds[each] for each in (name, "everything")},
        )
        for name, target in (
            ("one queue, store open", 1 / 32),
            ("one queue, opened for it", 1 / 32),
            ("topic and queueOffset", 1 / 4),
        )
    ]
