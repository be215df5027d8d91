"""The figures of a report: what `verify` found, and one walk of the log for what stands in it."""

from __future__ import annotations

import os
import warnings
from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from store_core.errors import StoreWarning
from store_core.queues import bounds
from store_core.store import Store

__all__ = ["Figures", "LogFile", "QueueFigure", "figures"]

BINS: Final = 80
_STEPS: Final = 50_000
_SAMPLE: Final = 64
"""One record of so many is kept to tell when something at a place of the log happened."""


@dataclass(frozen=True)
class LogFile:
    """A commitlog file: bytes of it that are records, and its findings as (start, end, severity, row of the table)."""

    path: str
    base_offset: int
    length: int
    data: int
    marks: tuple[tuple[int, int, str, int], ...]


@dataclass(frozen=True)
class QueueFigure:
    """A queue: its queueOffsets [first, stop), and its findings as (queueOffset, how many, severity, row of the table)."""

    topic: str
    queue_id: int
    first: int
    stop: int
    marks: tuple[tuple[int, int, str, int], ...]


@dataclass(frozen=True)
class Figures:
    """`findings`: the rows of the table verify. `counts`: messages per time bin, from `start` to `end` (ms). `damage`: findings
    in the log as (ms, severity, row). `bytes_of`, `messages_of`: by topic.
    """

    path: str
    findings: list[dict[str, Any]]
    messages: int
    start: int
    end: int
    counts: list[int]
    damage: list[tuple[int, str, int]]
    bytes_of: dict[str, int]
    messages_of: dict[str, int]
    log: list[LogFile]
    queues: list[QueueFigure]

    @property
    def severities(self) -> Counter[str]:
        """How many findings of each severity."""
        return Counter(row["severity"] for row in self.findings)

    @property
    def kinds(self) -> Counter[str]:
        """How many of each kind."""
        return Counter(row["kind"] for row in self.findings)


def figures(store: Store, table: pa.Table) -> Figures:
    """The figures of a store of which `table` is what `verify` gave. Reads the log once, without bodies."""
    rows = table.to_pylist()
    sizes: Counter[str] = Counter()
    messages: Counter[str] = Counter()
    counted = _Counted()
    data: Counter[int] = Counter()
    bases = np.array([segment.base_offset for segment in store.log], dtype=np.int64)
    places: list[int] = []
    times: list[int] = []
    columns = ["topic", "storeSize", "storeTimestamp", "commitLogOffset"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StoreWarning)  # what can't be read is among the findings
        for batch in store.scan(columns=columns, table="messages", mode="DROPMALFORMED", failOnDataLoss=False):
            grouped = pa.table(batch).group_by("topic").aggregate([("storeSize", "sum"), ("storeSize", "count")])
            for row in grouped.to_pylist():
                sizes[row["topic"]] += row["storeSize_sum"]
                messages[row["topic"]] += row["storeSize_count"]
            ms: npt.NDArray[np.int64] = np.asarray(batch["storeTimestamp"].view(pa.int64())) // 1000
            offsets = np.asarray(batch["commitLogOffset"])
            counted.add(ms)
            owner = np.searchsorted(bases, offsets, side="right") - 1
            for i, total in enumerate(
                np.bincount(owner, weights=np.asarray(batch["storeSize"]), minlength=len(bases)).tolist()
            ):
                data[i] += int(total)
            places += offsets[::_SAMPLE].tolist()
            times += ms[::_SAMPLE].tolist()
    order = np.argsort(places, kind="stable")
    places, times = np.array(places)[order].tolist(), np.array(times)[order].tolist()
    start, end, counts = counted.bins()
    log = _log_files(store, rows, data)
    damage = []
    for file in log:
        for at, _, severity, row in file.marks:
            i = max(bisect_right(places, file.base_offset + at) - 1, 0)
            damage.append((times[i] if times else 0, severity, row))
    return Figures(
        path=store.path,
        findings=rows,
        messages=sum(messages.values()),
        start=start,
        end=end,
        counts=counts,
        damage=damage,
        bytes_of=dict(sizes.most_common()),
        messages_of=dict(messages),
        log=log,
        queues=_queues(store, rows),
    )


class _Counted:
    """Messages by time, in steps that grow as the span does."""

    def __init__(self) -> None:
        self._step = 1
        self._counts: Counter[int] = Counter()

    def add(self, ms: npt.NDArray[np.int64]) -> None:
        for at, count in zip(*np.unique(ms // self._step, return_counts=True), strict=True):
            self._counts[int(at)] += int(count)
        while len(self._counts) > _STEPS:
            self._step *= 10
            coarser: Counter[int] = Counter()
            for at, count in self._counts.items():
                coarser[at // 10] += count
            self._counts = coarser

    def bins(self) -> tuple[int, int, list[int]]:
        """(start, end, messages in each of BINS parts between), times in ms; no bins where nothing was counted."""
        if not self._counts:
            return 0, 0, []
        first, last = min(self._counts), max(self._counts) + 1
        counts = [0] * BINS
        for at, count in self._counts.items():
            counts[min((at - first) * BINS // (last - first), BINS - 1)] += count
        return first * self._step, last * self._step, counts


def _log_files(store: Store, rows: list[dict[str, Any]], data: Counter[int]) -> list[LogFile]:
    marks: dict[str, list[tuple[int, int, str, int]]] = {}
    for i, row in enumerate(rows):
        marks.setdefault(row["file"], []).append((row["start"] or 0, row["end"] or row["start"] or 0, row["severity"], i))
    return [
        LogFile(s.path, s.base_offset, s.length, data[i], tuple(sorted(marks.get(s.path, ())))) for i, s in enumerate(store.log)
    ]


def _queues(store: Store, rows: list[dict[str, Any]]) -> list[QueueFigure]:
    by_folder: dict[str, list[tuple[int, dict[str, Any]]]] = {}
    for i, row in enumerate(rows):
        by_folder.setdefault(os.path.dirname(row["file"]), []).append((i, row))
        by_folder.setdefault(row["file"], []).append((i, row))  # of a queue without files, the folder is named
    found = []
    for queue in store.queues:
        first, stop = bounds(store.files, queue, store.log.min_offset)
        marks = []
        bases = {file.path: file.base_offset for file in queue.files}
        for i, row in by_folder.get(os.path.dirname(queue.files[0].path), ()):
            begin, finish = row["start"] or 0, row["end"] or row["start"] or 0
            number = (bases.get(row["file"], 0) + begin) // queue.unit_size
            marks.append((number, max((finish - begin) // queue.unit_size, 1), row["severity"], i))
        found.append(QueueFigure(queue.topic, queue.queue_id, first, stop, tuple(marks)))
    return found
