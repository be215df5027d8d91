"""Hypothesis strategies: stores as values that print as the call that builds them again."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from tests.synthetic import Built, build_store, random_messages

__all__ = ["StoreCase", "stores"]


@dataclass(frozen=True)
class StoreCase:
    """`build` makes the same store every time: `count` random messages from `seed`, and `build_store`'s `options`."""

    seed: int
    count: int
    generator: dict[str, bool]
    options: dict[str, Any]

    def build(self, root: Path) -> Built:
        return build_store(root, random_messages(random.Random(self.seed), self.count, **self.generator), **self.options)


@st.composite
def stores(draw: st.DrawFn, max_messages: int = 120, layouts: tuple[str, ...] = ("plain", "dledger", "multipath")) -> StoreCase:
    """Small stores with every option of `build_store` in play. Shrinks towards few messages and a plain, clean store."""
    count = draw(st.integers(0, max_messages))
    layout = draw(st.sampled_from(layouts))
    log_size = draw(st.sampled_from((8192, 16384, 5000)))
    start = draw(st.sampled_from((0, 0, 3)))
    options: dict[str, Any] = {
        "layout": layout,
        "mappedFileSizeCommitLog": log_size,
        "mappedFileSizeConsumeQueue": draw(st.sampled_from((2000, 100))),
        "maxHashSlotNum": draw(st.sampled_from((50, 3, 1))),
        "maxIndexNum": draw(st.sampled_from((1000, 40, 7))),
        "first_offset": start * log_size,
        "first_queue_offset": start * 7,
        "expired_files": draw(st.integers(0, 2)),
        "queue_lag": draw(st.sampled_from((0, 0, 5))),
        "index_lag": draw(st.sampled_from((0, 0, 5))),
        "index_crashes": tuple(draw(st.lists(st.integers(0, max(0, count - 1)), max_size=2))),
        "index_holes": tuple(draw(st.lists(st.integers(0, 5), max_size=2))),
        "stale_tail": None if layout == "dledger" else draw(st.sampled_from((None, "tail", "record"))),
    }
    for switch in ("write_queues", "write_index", "checkpoint", "config"):
        options[switch] = not draw(st.booleans())
    for switch in ("queue_ext", "index_tags", "stale_blanks", "preallocated", "abort"):
        options[switch] = draw(st.booleans())
    generator = {switch: draw(st.booleans()) for switch in ("clock_steps_back", "inner_batches", "multi_dispatch")}
    return StoreCase(draw(st.integers(0, 2**32 - 1)), count, generator, options)
