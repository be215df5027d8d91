"""Memory that a scan adds to a process, in the core and in Spark's workers, by size of store; opening a log of many files."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import store_core
from benchmarks.context import Context
from benchmarks.figures import Figure, alternate, milliseconds, timed
from benchmarks.ready_batch import ReadyBatchSource
from benchmarks.resident import resident_bytes, worker_ids
from benchmarks.stores import GeneratedStore
from benchmarks.through_spark import ready_batch, spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["run"]

_LIMIT_MB = 300
_SAMPLE_SECONDS = 0.02


def run(context: Context) -> list[Figure]:
    large = context.store(1000)
    stores = [GeneratedStore(large.messages // 10, 1000), large, context.store(200), context.store(1000, varied=True)]
    return [*map(_core, stores), _workers(large), *_opening(context)]


def _core(store: GeneratedStore) -> Figure:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.memory_program", store.path()], capture_output=True, text=True, check=True
    )
    found = json.loads(done.stdout)
    if found["rows"] != store.messages:
        raise RuntimeError(f"{store.name}: {found['rows']} rows")
    return Figure(
        f"peak memory of a scan above its baseline: {store.name}",
        (found["peak"] - found["baseline"]) / 1e6,
        "MB",
        target=_LIMIT_MB,
        detail={"baseline": f"{found['baseline'] / 1e6:.0f} MB", "peak": f"{found['peak'] / 1e6:.0f} MB"},
    )


def _workers(store: GeneratedStore) -> Figure:
    """Spark's Python workers: the baseline is that of workers that give a batch of few rows again and again."""
    with spark_session(**{"spark.python.worker.reuse": "false"}) as spark:
        spark.dataSource.register(ReadyBatchSource)
        options = {"file": str(ready_batch(store, rows=10)), "batches": "5000", "partitions": "2"}
        baseline = _peak_while(_noop(spark.read.format("ready-batch").options(**options).load()))
        peak = _peak_while(_noop(spark.read.format("rocketmq-store").load(store.path())))
    return Figure(
        f"peak memory of a Spark worker above its baseline: {store.name}",
        (peak - baseline) / 1e6,
        "MB",
        target=_LIMIT_MB,
        detail={"baseline": f"{baseline / 1e6:.0f} MB", "peak": f"{peak / 1e6:.0f} MB"},
    )


def _noop(frame: DataFrame) -> Callable[[], None]:
    return lambda: frame.write.format("noop").mode("overwrite").save()


def _peak_while(work: Callable[[], None]) -> int:
    """The highest VmHWM of any of Spark's Python workers while `work` runs."""
    peak = 0
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(work)
        while not running.done():
            peak = max([peak, *(resident_bytes("VmHWM", process) for process in worker_ids())])
            time.sleep(_SAMPLE_SECONDS)
        running.result()
    return peak


def _opening(context: Context) -> list[Figure]:
    store = GeneratedStore(112_000, 1000, file_size=1 << 17)
    path = store.path()
    files = len(store_core.open_store(path).log)
    if files < 1000:
        raise RuntimeError(f"{store.name} has {files} commitlog files, expected 1,000 or more")

    def planned() -> None:
        store_core.open_store(path).plan()

    def first_row() -> None:
        store_core.open_store(path).scan(where=[("commitLogOffset", "=", 0)]).read_all()

    seconds = alternate(
        {
            "open": timed(lambda: store_core.open_store(path)),
            "open and plan a scan": timed(planned),
            "open and read one message": timed(first_row),
        },
        context.rounds(25),
        warm_up=2,
    )
    return [
        Figure(
            f"opening a store of {files:,} commitlog files",
            statistics.median(seconds["open"]) * 1e3,
            "ms",
            target=50,
            detail={name: milliseconds(taken) for name, taken in seconds.items()},
            samples=seconds,
        )
    ]
