"""Light message queues (LMQ): which records of the log stand in them, by the records' own properties (`MultiDispatchUtils`).

A queue's entries say it faster. The properties serve where entries are missing: behind a crash, or in a damaged queue.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from store_core.decode import Context, Parts, columns

__all__ = ["LightSlice", "dispatched", "dispatches"]

_NAMES: Final = "INNER_MULTI_DISPATCH"
_OFFSETS: Final = "INNER_MULTI_QUEUE_OFFSET"
_LIGHT: Final = "%LMQ%"
_NEVER: Final = ("%RETRY%", "rmq_sys_", "SCHEDULE_TOPIC_XXXX")
"""Topics whose messages a broker dispatches to no light queue."""


@dataclass(frozen=True)
class LightSlice:
    """The queue offsets [first, stop) of a light message queue; `stop` None: to the end."""

    name: str
    first: int
    stop: int | None


def dispatches(parts: Parts) -> Iterator[tuple[int, tuple[str, int], int]]:
    """(which record, (queue, queueId), queueOffset) for each further queue that a record says it stands in."""
    pairs = parts.pairs()
    names, offsets = pairs.values(_NAMES), pairs.values(_OFFSETS)
    some = np.flatnonzero(np.asarray(names.is_valid().to_numpy(zero_copy_only=False), dtype=bool))
    if not len(some):
        return
    topics = columns(parts, ("topic",), Context())[0]["topic"]
    ids = parts.header("queueId")
    for i in some.tolist():
        if topics[i].as_py().startswith(_NEVER):
            continue
        queues, places = names[i].as_py().split(","), (offsets[i].as_py() or "").split(",")
        if len(queues) != len(places):  # then a broker dispatches nothing
            continue
        for queue, place in zip(queues, places, strict=True):
            if place.isascii() and place.isdigit():
                yield i, (queue, 0 if queue.startswith(_LIGHT) else int(ids[i])), int(place)


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
