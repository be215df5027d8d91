"""What all benchmarks are given: how long to measure, and the stores."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import store_core
from benchmarks.stores import GeneratedStore

__all__ = ["Context"]


@dataclass(frozen=True)
class Context:
    """`quick`: a tenth of the messages and fewer rounds; such figures show that all works, and are not to be published."""

    quick: bool = False

    @property
    def messages(self) -> int:
        return 100_000 if self.quick else 1_000_000

    def store(self, body: int, *, varied: bool = False) -> GeneratedStore:
        return GeneratedStore(self.messages, body, varied=varied)

    def rounds(self, full: int) -> int:
        return min(full, 3) if self.quick else full

    @staticmethod
    def log_size(path: str) -> int:
        """Bytes of records in the store's log."""
        sizes = store_core.open_store(path).scan(columns=["storeSize"])
        return sum(int(np.asarray(batch.column(0)).sum()) for batch in sizes)
