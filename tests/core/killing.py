"""Runs a write in a process that is killed at a given moment: `python -m tests.core.killing` is a nursery of such processes.

It reads one case a line (JSON: path, write, step or operation, count) from stdin, forks, lets the child write until it kills
itself with SIGKILL, and answers with a line: `killed`, `done`, or the error.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa

import store_core
from store_core import writing
from store_core.steps import hook
from store_core.writefiles import Buffer, LocalWrites, unfinished
from store_core.writeoptions import parse_write_options

ROOT = Path(__file__).resolve().parents[2]
SIZES: dict[str, Any] = {
    "mappedFileSizeCommitLog": 4096,
    "mappedFileSizeConsumeQueue": 400,
    "maxHashSlotNum": 40,
    "maxIndexNum": 60,
}
START_MS = 1_700_000_000_000


def rows(first: int, count: int, topics: tuple[str, ...]) -> pa.Table:
    """Messages whose every byte is told by their number, so that the same write gives the same store."""
    numbers = range(first, first + count)
    return pa.table(
        {
            "topic": [topics[n % len(topics)] for n in numbers],
            "queueId": pa.array([n % 2 for n in numbers], pa.int32()),
            "body": [bytes([n % 251]) * (50 + n % 37) for n in numbers],
            "keys": [f"k{n}" for n in numbers],
            "tags": [("A", "B", None)[n % 3] for n in numbers],
            "storeTimestamp": pa.array([(START_MS + n * 700) * 1000 for n in numbers], pa.timestamp("us", "UTC")),
            "bornTimestamp": pa.array([START_MS * 1000] * count, pa.timestamp("us", "UTC")),
        }
    )


OLD = rows(0, 53, ("A", "B"))
"""Ends in the middle of a log file, of queue files and of the second index file."""
NEW = rows(53, 120, ("A", "B", "C"))


def begin(path: Path) -> None:
    """The store before."""
    store_core.create_store(path, OLD, **SIZES)


WRITES: dict[str, Any] = {
    "create": lambda path: store_core.create_store(path, NEW, **SIZES),
    "overwrite": lambda path: store_core.create_store(path, NEW, mode="overwrite", **SIZES),
    "append": lambda path: store_core.append(path, NEW),
}


def recover(path: Path) -> None:
    """Only what a writer does before it writes anything of its own."""
    writing.abandon(writing.start(path, "append", parse_write_options({})))


class Killing(LocalWrites):
    """Stops the process at one of its operations, in the middle of it where that can be."""

    left = 0

    def _count(self) -> bool:
        type(self).left -= 1
        return type(self).left == 0

    def write_at(self, path: str, position: int, data: Buffer) -> None:
        if self._count():
            super().write_at(path, position, bytes(data)[: len(data) // 2])
            kill()
        super().write_at(path, position, data)

    def replace(self, path: str, data: Buffer) -> None:
        if self._count():
            Path(unfinished(path)).write_bytes(bytes(data)[:10])
            kill()
        super().replace(path, data)


def _counted(name: str) -> Any:
    def operation(self: Killing, *args: Any) -> Any:
        done = getattr(LocalWrites, name)(self, *args)
        if self._count():
            kill()
        return done

    return operation


for _name in ("make_folder", "create", "clear", "copy", "rename", "remove", "remove_folder", "fsync_file", "fsync_folder"):
    setattr(Killing, _name, _counted(_name))


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def run(case: dict[str, Any]) -> str:
    """What the child does: writes until it is killed. Returns what to print if it is not."""
    left = [case["count"]]

    def at(step: str) -> None:
        if step == case.get("step"):
            left[0] -= 1
            if not left[0]:
                kill()

    if "step" in case:
        hook.append(at)
    else:
        Killing.left = case["count"]
        vars(writing)["LocalWrites"] = Killing  # the name by which it makes one
    try:
        (WRITES | {"recover": recover})[case["write"]](Path(case["path"]))
    except Exception as e:
        return f"{type(e).__name__}: {e}"
    return "done"


def serve() -> None:
    for line in sys.stdin:
        child = os.fork()
        if not child:
            print(run(json.loads(line)), flush=True)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            print("killed", flush=True)


class Nursery:
    """The nursery's process, from outside."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.core.killing"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
        )

    def kill(self, path: Path, write: str, count: int, step: str | None = None) -> bool:
        """Whether the write was killed; False where it was done before it came to that."""
        assert self._process.stdin is not None and self._process.stdout is not None
        case = {"path": str(path), "write": write, "count": count} | ({"step": step} if step else {})
        print(json.dumps(case), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline().strip()
        assert answer in ("killed", "done"), answer
        return answer == "killed"

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=30)


if __name__ == "__main__":
    serve()
