"""Decoding a whole commitlog on one thread: `Store.scan` of all columns against RocketMQ's `MessageDecoder.decode`."""

from __future__ import annotations

from benchmarks import rocketmq
from benchmarks.context import Context
from benchmarks.figures import Figure, alternate, rate, ratio
from benchmarks.process import python_program
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
    with python_program("scan_program", path) as ours, rocketmq.program("DecodeLog", f"{path}/commitlog") as peer:
        seconds = alternate(
            {"store_core": lambda: ours.seconds("{}"), "MessageDecoder": peer.seconds}, context.rounds(7), warm_up=3
        )
        if not ours.rows == peer.rows == store.messages:
            raise RuntimeError(f"rows differ: {ours.rows} and {peer.rows}, expected {store.messages}")
    size = context.log_size(path)
    return Figure(
        f"decode, one thread, all columns: {name}",
        ratio(seconds["MessageDecoder"], seconds["store_core"]),
        "x MessageDecoder.decode",
        target=target,
        at_least=True,
        detail={each: rate(taken, store.messages, size) for each, taken in seconds.items()},
        samples=seconds,
    )
