"""Programs that measure themselves: a line in on standard input is one pass, a line of JSON out is what it took.

So a JVM stays warm, and a pinned Python stays pinned, while others are measured in between.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from types import TracebackType
from typing import Any

__all__ = ["ONE_THREAD", "Program", "python_program"]

ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "ARROW_IO_THREADS": "1"}


class Program:
    """A child process that answers lines."""

    def __init__(self, command: Sequence[str], env: dict[str, str] | None = None) -> None:
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the program
        self._name = " ".join(command[:2])
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env={**os.environ, **(env or {})},
        )

    def __enter__(self) -> Program:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._errors.close()

    def ask(self, line: str = "") -> dict[str, Any]:
        """The answer to one line. What else the program prints (RocketMQ's loggers do) is passed over."""
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._died() from None
        for answer in self._process.stdout:
            if answer.startswith("{"):
                found: dict[str, Any] = json.loads(answer)
                return found
        raise self._died()

    def _died(self) -> RuntimeError:
        self._process.wait()
        self._errors.seek(0)
        return RuntimeError(f"{self._name} ended with {self._process.returncode}:\n{self._errors.read()[-4000:]}")


def python_program(module: str, *arguments: str) -> Program:
    """`benchmarks.<module>` in a Python of its own, on one thread: pinned to the last CPU, where taskset is there."""
    pin = ["taskset", "-c", str(max(os.sched_getaffinity(0)))] if shutil.which("taskset") else []
    return Program([*pin, sys.executable, "-m", f"benchmarks.{module}", *arguments], ONE_THREAD)
