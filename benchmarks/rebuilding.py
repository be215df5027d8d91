"""Queues and index anew from the commitlog: `store_core.rebuild` against the recovery of RocketMQ's own store."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

from benchmarks import rocketmq
from benchmarks.cache import root
from benchmarks.context import Context
from benchmarks.figures import Figure
from benchmarks.peers import compare
from benchmarks.process import ONE_THREAD, Program
from benchmarks.stores import GeneratedStore

__all__ = ["run"]

_BUILT = ("consumequeue", "index")


def run(context: Context) -> list[Figure]:
    return [
        _compare(context, "200 B bodies", context.store(200)),
        _compare(context, "1,000 B bodies", context.store(1000)),
    ]


def _compare(context: Context, name: str, store: GeneratedStore) -> Figure:
    scratch = root() / "rebuilt.partial"
    try:
        folders = {each: _bare_copy(Path(store.path()), scratch / each) for each in ("store_core", "DefaultMessageStore")}
        with (
            Program([sys.executable, "-m", "benchmarks.rebuild_program"], ONE_THREAD) as ours,
            rocketmq.program("RebuildStore") as peer,
        ):

            def rebuilt(each: str, program: Program) -> dict[str, Any]:
                folder = folders[each]
                for left in _BUILT:
                    shutil.rmtree(folder / left, ignore_errors=True)
                for left in ("checkpoint", "abort", "abort.bak"):
                    (folder / left).unlink(missing_ok=True)
                return program.ask(str(folder))

            figure = compare(
                f"rebuild of queues and index, synced: {name}",
                "x DefaultMessageStore's recovery",
                3,
                # CPU times are of all threads on both sides
                {
                    "store_core": lambda: rebuilt("store_core", ours),
                    "DefaultMessageStore": lambda: rebuilt("DefaultMessageStore", peer),
                },
                store.messages,
                rounds=context.rounds(5),
                warm_up=1,
                size=context.log_size(store.path()),
            )
        _same(*folders.values())
        return figure
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _bare_copy(source: Path, folder: Path) -> Path:
    """A store of the same commitlog files and nothing else; the files are links, which neither side writes to."""
    (folder / "commitlog").mkdir(parents=True)
    for file in (source / "commitlog").iterdir():
        os.link(file, folder / "commitlog" / file.name)
    return folder


def _same(ours: Path, theirs: Path) -> None:
    """Both sides did the same work: the queues' files are equal, and the index files by their order."""
    for kind in _BUILT:
        files = [sorted(path for path in (folder / kind).rglob("*") if path.is_file()) for folder in (ours, theirs)]
        if len(files[0]) != len(files[1]):
            raise RuntimeError(f"{len(files[0])} files in {kind}, expected {len(files[1])}")
        for mine, wanted in zip(*files, strict=True):
            with mine.open("rb") as left, wanted.open("rb") as right:
                while (part := left.read(1 << 20)) == right.read(1 << 20):
                    if not part:
                        break
                else:
                    raise RuntimeError(f"{mine} is not as RocketMQ's own {wanted}")
