"""Decoding a whole commitlog on one thread: `Store.scan` of all columns against RocketMQ's `MessageDecoder.decode`."""

from __future__ import annotations

from benchmarks import rocketmq
from benchmarks.context import Context
from benchmarks.figures import Figure, alternate, rate, ratio
from benchmarks.process import Program, python_program
from benchmarks.stores import GeneratedStore

__all__ = ["run"]


def run(context: Context) -> list[Figure]:
    return [
        _compare(context, "200 B bodies", context.store(200), target=3),
        _compare(context, "1,000 B bodies", context.store(1000), target=3),
        _compare(context, "about 1,000 B, varied records", context.store(1000, varied=True), target=None),
    ]


def _compare(context: Context, name: str, store: GeneratedStore, target: float | None) -> Figure:
    path = store.path()
    cpu: dict[str, list[float]] = {"store_core": [], "MessageDecoder": []}
    with python_program("scan_program", path) as ours, rocketmq.program("DecodeLog", f"{path}/commitlog") as peer:

        def one_pass(each: str, program: Program, line: str) -> float:
            answer = program.ask(line)
            if answer["rows"] != store.messages:
                raise RuntimeError(f"{each} decodes {answer['rows']} messages of {path}, expected {store.messages}")
            cpu[each].append(answer["cpu"])
            return float(answer["seconds"])

        rounds = context.rounds(7)
        seconds = alternate(
            {
                "store_core": lambda: one_pass("store_core", ours, "{}"),
                "MessageDecoder": lambda: one_pass("MessageDecoder", peer, ""),
            },
            rounds,
            warm_up=3,
        )
    busy = {each: taken[-rounds:] for each, taken in cpu.items()}
    size = context.log_size(path)
    return Figure(
        f"decode, one thread, all columns: {name}",
        ratio(seconds["MessageDecoder"], seconds["store_core"]),
        "x MessageDecoder.decode",
        target=target,
        at_least=True,
        detail={
            **{each: rate(taken, store.messages, size) for each, taken in seconds.items()},
            # the peer's is that of its decoding thread: what the JVM compiles and collects elsewhere is not held against it
            "by CPU time": f"{ratio(busy['MessageDecoder'], busy['store_core']):.2f} x",
        },
        samples=seconds | {f"{each}, CPU": taken for each, taken in busy.items()},
    )
