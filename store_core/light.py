"""Light message queues (LMQ): which records of the log stand in them, by the records' own properties (`MultiDispatchUtils`).

A queue's entries say it faster. The properties serve where entries are missing: behind a crash, or in a damaged queue.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from store_core.decode import Context, Parts, columns
from store_core.describe import LIGHT_NAMES, LIGHT_OFFSETS, light_places

__all__ = ["LightSlice", "dispatched", "dispatches"]


@dataclass(frozen=True)
class LightSlice:
    """The queue offsets [first, stop) of a light message queue; `stop` None: to the end."""

    name: str
    first: int
    stop: int | None


def dispatches(parts: Parts) -> Iterator[tuple[int, tuple[str, int], int]]:
    """(which record, (queue, queueId), queueOffset) for each further queue that a record says it stands in."""
    pairs = parts.pairs()
    names, offsets = pairs.values(LIGHT_NAMES), pairs.values(LIGHT_OFFSETS)
    some = np.flatnonzero(np.asarray(names.is_valid().to_numpy(zero_copy_only=False), dtype=bool))
    if not len(some):
        return
    topics = columns(parts, ("topic",), Context())[0]["topic"]
    ids = parts.header("queueId")
    for i in some.tolist():
        try:
            places = light_places(topics[i].as_py(), int(ids[i]), names[i].as_py(), offsets[i].as_py())
        except ValueError:  # a broker can't dispatch it either
            continue
        for queue, queue_id, place in places:
            yield i, (queue, queue_id), place


def dispatched(parts: Parts, slices: Iterable[LightSlice]) -> npt.NDArray[np.intp]:
    """Which records stand in these slices, as indexes: one for each slice that a record stands in."""
    wanted = tuple(slices)
    found = [
        i
        for i, (queue, _), place in dispatches(parts)
        for each in wanted
        if queue == each.name and each.first <= place and (each.stop is None or place < each.stop)
    ]
    return np.array(found, dtype=np.intp)
