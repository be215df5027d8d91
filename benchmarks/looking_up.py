"""Key lookups in a store that is open: how long one takes, what it reads, and what makes it slower."""

from __future__ import annotations

import random
import statistics
import time
from collections import Counter
from collections.abc import Sequence

import numpy as np

import store_core
from benchmarks.context import Context
from benchmarks.figures import Figure, Measure, alternate
from benchmarks.stores import TOPICS, GeneratedStore
from store_core.files import LocalFiles
from store_core.lookup import CLOCK_TOLERANCE_MS

__all__ = ["run"]

_WARM_UP = 200


class ReadsByKind(LocalFiles):
    """Counts reads and bytes by what kind of file they are from: the folder in the store."""

    def __init__(self) -> None:
        super().__init__()
        self.by_kind: Counter[str] = Counter()
        self.bytes_by_kind: Counter[str] = Counter()

    def _count(self, path: str, size: int) -> None:
        kind = next(name for name in ("commitlog", "consumequeue", "index", "other") if f"/{name}/" in path or name == "other")
        self.by_kind[kind] += 1
        self.bytes_by_kind[kind] += size

    def read(self, path: str, position: int, length: int) -> bytes:
        data = super().read(path, position, length)
        self._count(path, len(data))
        return data

    def read_into(self, path: str, position: int, buffer: memoryview) -> int:
        got = super().read_into(path, position, buffer)
        self._count(path, got)
        return got


def run(context: Context) -> list[Figure]:
    large = context.store(1000)
    small = GeneratedStore(large.messages // 10, 1000)
    # as many entries in many small files: each message has two
    per_file = large.messages // 8
    many = GeneratedStore(large.messages, 200, index=(per_file // 2, per_file + 1))
    return [*_latency(context, large, small), *_reads(large, small), *_by_files(context, many)]


def _lookups(store: GeneratedStore, count: int, columns: Sequence[str] | None) -> Measure:
    """The median seconds of `count` lookups of keys that were not asked for before."""
    opened = store_core.open_store(store.path())
    chosen = random.Random(7)

    def one() -> float:
        topic, key = store.lookup(chosen.randrange(store.messages // 2))
        start = time.perf_counter()
        found = opened.lookup(topic, key, columns=columns)
        seconds = time.perf_counter() - start
        if found.num_rows != 2:
            raise RuntimeError(f"{key} of {topic} has {found.num_rows} messages, expected 2")
        return seconds

    for _ in range(_WARM_UP):
        one()
    return lambda: statistics.median(one() for _ in range(count))


def _latency(context: Context, large: GeneratedStore, small: GeneratedStore) -> list[Figure]:
    count = 200 if context.quick else 1000
    narrow = ["commitLogOffset"]
    seconds = alternate(
        {
            "all columns": _lookups(large, count, None),
            "all columns, a tenth of the store": _lookups(small, count, None),
            "commitLogOffset": _lookups(large, count, narrow),
            "commitLogOffset, a tenth of the store": _lookups(small, count, narrow),
        },
        context.rounds(5),
    )
    figures = []
    for name, target in (("all columns", 300), ("commitLogOffset", 60)):
        median = statistics.median(seconds[name]) * 1e6
        figures.append(
            Figure(
                f"lookup of one key (2 messages), {name}",
                median,
                "us",
                target=target,
                detail={"best median": f"{min(seconds[name]) * 1e6:.0f} us", "rounds": f"{len(seconds[name])} of {count} keys"},
                samples={name: seconds[name]},
            )
        )
        other = f"{name}, a tenth of the store"
        figures.append(
            Figure(
                f"the same, {large.messages:,} messages against {small.messages:,}, one index file each, {name}",
                statistics.median(a / b for a, b in zip(seconds[name], seconds[other], strict=True)),
                "x",
                target=1.3,
                detail={each: f"{statistics.median(seconds[each]) * 1e6:.0f} us" for each in (name, other)},
                samples={each: seconds[each] for each in (name, other)},
            )
        )
    return figures


def _reads(large: GeneratedStore, small: GeneratedStore) -> list[Figure]:
    """What a lookup reads, on average, once the store is warm."""
    figures = []
    count = 500
    for store in (large, small):
        for columns in (None, ["commitLogOffset"]):
            opened = store_core.open_store(store.path())
            opened.files = files = ReadsByKind()
            opened.lookup(*store.lookup(0), columns=columns)
            first = files.bytes_read
            files.by_kind.clear()
            files.bytes_by_kind.clear()
            record_bytes = 0
            for number in range(1, count + 1):
                opened.lookup(*store.lookup(number * 7919), columns=columns)
            read, reads = files.bytes_by_kind.copy(), files.by_kind.copy()
            for number in range(1, count + 1):
                sizes = opened.lookup(*store.lookup(number * 7919), columns=["storeSize"])
                record_bytes += int(np.asarray(sizes["storeSize"]).sum())
            figures.append(
                Figure(
                    f"bytes read by a lookup, {store.messages:,} messages, {'all columns' if columns is None else columns[0]}",
                    sum(read.values()) / count,
                    "bytes",
                    detail={
                        "the records' own bytes": f"{record_bytes / count:.0f}",
                        **{
                            kind: f"{read[kind] / count:.0f} bytes in {times / count:.1f} reads"
                            for kind, times in sorted(reads.items())
                        },
                        "the first lookup after opening": f"{first:,} bytes",
                    },
                )
            )
    return figures


def _by_files(context: Context, store: GeneratedStore) -> list[Figure]:
    """Lookups of keys that are not there, with time ranges that 1, 2, 4, ... of the index files match."""
    opened = store_core.open_store(store.path())
    files = opened.index_view(opened.options).files
    count = 100 if context.quick else 300
    measures: dict[int, Measure] = {}
    for matching in (1, 2, 4, 8, len(files)):
        first, last = files[0], files[matching - 1]
        # a lookup widens the range by what a clock may step back: this one still matches no other file
        low, high = first.begin_timestamp + 2 * CLOCK_TOLERANCE_MS, last.end_timestamp - 2 * CLOCK_TOLERANCE_MS
        measures[matching] = _of_absent_keys(opened, count, low, high)
    seconds = alternate({str(n): measure for n, measure in measures.items()}, context.rounds(5))
    medians = {n: statistics.median(seconds[str(n)]) * 1e6 for n in measures}
    slope, start = statistics.linear_regression(list(medians), list(medians.values()))
    off = max(abs(median - (start + slope * n)) / median for n, median in medians.items())
    return [
        Figure(
            f"lookup of an absent key, by index files whose times match (of {len(files)}), commitLogOffset",
            off * 100,
            "% off a straight line",
            target=20,
            detail={
                "line": f"{start:.0f} us + {slope:.1f} us a file",
                **{f"{n} file{'s' * (n > 1)}": f"{median:.0f} us" for n, median in medians.items()},
            },
            samples=seconds,
        )
    ]


def _of_absent_keys(opened: store_core.Store, count: int, low: int, high: int) -> Measure:
    chosen = random.Random(11)

    def one() -> float:
        number = chosen.randrange(1 << 40)
        start = time.perf_counter()
        found = opened.lookup(f"topic-{number % TOPICS}", f"absent-{number}", low, high, columns=["commitLogOffset"])
        seconds = time.perf_counter() - start
        if found.num_rows:
            raise RuntimeError(f"absent-{number} has {found.num_rows} messages")
        return seconds

    return lambda: statistics.median(one() for _ in range(count))
