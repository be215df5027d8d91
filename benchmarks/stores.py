"""The stores that are measured, written by RocketMQ's own DefaultMessageStore (java/GenerateStore.java), kept in the cache."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from benchmarks import rocketmq
from benchmarks.cache import cached

__all__ = ["FIRST_TIME", "QUEUES", "STEP_MS", "TOPICS", "GeneratedStore"]

# what GenerateStore.java makes of message i
TOPICS, QUEUES = 8, 8
FIRST_TIME, STEP_MS = 1_700_000_000_000, 100


@dataclass(frozen=True)
class GeneratedStore:
    """A store of `messages` messages with bodies of `body` bytes; None for sizes of files is RocketMQ's default.

    `varied`: bodies and properties differ from message to message, in length and number.
    """

    messages: int
    body: int
    file_size: int | None = None
    index: tuple[int, int] | None = None
    """maxHashSlotNum and maxIndexNum."""
    varied: bool = False

    @property
    def name(self) -> str:
        shape = [option.replace("=", "") for option in self._options()]
        return "-".join(["store", str(self.messages), str(self.body), *shape, rocketmq.source_digest("GenerateStore")])

    def _options(self) -> list[str]:
        options = [f"fileSize={self.file_size}"] if self.file_size else []
        if self.index:
            options += [f"slots={self.index[0]}", f"entries={self.index[1]}"]
        return options + (["shape=varied"] if self.varied else [])

    def path(self) -> str:
        """The store's folder; written now if it is not there."""

        def make(folder: Path) -> None:
            print(f"writing a store of {self.messages:,} messages of {self.body} bytes {' '.join(self._options())}", flush=True)
            arguments = (str(folder), str(self.messages), str(self.body), *self._options())
            done = subprocess.run(rocketmq.command("GenerateStore", *arguments), capture_output=True, text=True)
            if done.returncode:
                raise SystemExit(f"GenerateStore failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
            for left_over in ("lock", "abort.bak"):
                (folder / left_over).unlink(missing_ok=True)
            shutil.rmtree(folder / "compaction", ignore_errors=True)

        return str(cached(self.name, make))

    def lookup(self, number: int) -> tuple[str, str]:
        """Topic and key of an order; there are `messages` / 2, each with two messages."""
        order = number % (self.messages // 2)
        return f"topic-{order % TOPICS}", f"order-{order}"
