"""Decoding a whole commitlog on one thread: `Store.scan` of all columns against RocketMQ's `MessageDecoder.decode`."""

from __future__ import annotations

from benchmarks import rocketmq
from benchmarks.context import Context
from benchmarks.figures import Figure
from benchmarks.peers import compare
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
        return compare(
            f"decode, one thread, all columns: {name}",
            "x MessageDecoder.decode",
            target,
            # the peer's CPU time is its decoding thread's: the JVM's compiler and collector are not held against it
            {"store_core": lambda: ours.ask("{}"), "MessageDecoder": peer.ask},
            store.messages,
            rounds=context.rounds(7),
            warm_up=3,
            size=context.log_size(path),
        )
