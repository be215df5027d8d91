"""New stores: `create_store` on one thread and `df.write` on two cores, against RocketMQ's own store, put the same messages.

Both sides write into memory (/dev/shm) where there is room: their code is measured, not the disk.
"""

from __future__ import annotations

import os
import shutil
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import store_core
from benchmarks import rocketmq
from benchmarks.cache import cached, root
from benchmarks.context import Context
from benchmarks.drop_rows import DropRowsSource
from benchmarks.figures import Figure, alternate, rate, ratio, timed
from benchmarks.peers import compare
from benchmarks.process import Program, python_program
from benchmarks.stores import GeneratedStore
from benchmarks.through_spark import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["run"]

_COLUMNS = (
    *("topic", "queueId", "tags", "keys", "uniqKey", "body"),
    *("bornTimestamp", "bornHost", "storeTimestamp", "storeHost"),
)
_MEMORY = Path("/dev/shm")
_ROOM = 12 << 30


def run(context: Context) -> list[Figure]:
    figures = []
    with _scratch() as folder:
        for body in (200, 1000):
            figures.append(_core(context, context.store(body), folder))
        figures += _spark(context, context.store(1000), folder)
    return figures


@contextmanager
def _scratch() -> Iterator[Path]:
    roomy = _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > _ROOM
    folder = (_MEMORY if roomy else root()) / "rmq-spark-written.partial"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _core(context: Context, store: GeneratedStore, folder: Path) -> Figure:
    with python_program("write_program", str(_rows(store))) as ours, rocketmq.program("PutStore") as peer:

        def written(program: Program, asked: str) -> dict[str, Any]:
            with _fresh(folder / "store") as target:
                return program.ask(f"{asked}{target}")

        return compare(
            f"a new store, one thread, {store.body:,} B bodies",
            "x DefaultMessageStore.putMessage with its dispatch",
            3,
            # the peer puts, dispatches and flushes in threads of its own, and its CPU time is that of all
            {
                "store_core": lambda: written(ours, ""),
                "DefaultMessageStore": lambda: written(peer, f"{store.messages} {store.body} "),
            },
            store.messages,
            rounds=context.rounds(5),
            warm_up=2,
        )


def _spark(context: Context, store: GeneratedStore, folder: Path) -> list[Figure]:
    shares: list[float] = []
    with spark_session() as spark, rocketmq.program("PutStore") as peer:
        frame = spark.read.format("rocketmq-store").load(store.path()).select(*_COLUMNS).cache()
        if (rows := frame.count()) != store.messages:
            raise RuntimeError(f"{rows} rows are cached, expected {store.messages}")

        def written() -> float:
            group = f"write {len(shares)}"
            spark.sparkContext.setJobGroup(group, group)
            with _fresh(folder / "store") as target:
                seconds = timed(lambda: frame.write.format("rocketmq-store").mode("append").save(str(target)))()
                shares.append(_after_last_task(spark, group) / seconds)
                _check("df.write", store_core.open_store(target).info()["messages"], store)
            return seconds

        def put() -> float:
            with _fresh(folder / "store") as target:
                answer = peer.ask(f"{store.messages} {store.body} {target}")
            _check("DefaultMessageStore", answer["rows"], store)
            return float(answer["seconds"])

        def dropped() -> float:
            return timed(lambda: frame.write.format("drop-rows").mode("append").save())()

        spark.dataSource.register(DropRowsSource)
        rounds = context.rounds(5)
        measures = {"df.write": written, "DefaultMessageStore": put, "rows dropped": dropped}
        seconds = alternate(measures, rounds, warm_up=2)
    return [
        Figure(
            "a new store through df.write on local[2], cached rows, 1,000 B bodies",
            ratio(seconds["DefaultMessageStore"], seconds["df.write"]),
            "x DefaultMessageStore.putMessage with its dispatch",
            target=2,
            at_least=True,
            detail={each: rate(seconds[each], store.messages) for each in ("df.write", "DefaultMessageStore")},
            samples=seconds,
        ),
        Figure(
            "the same against a Python writer that drops the rows that Spark hands over",
            ratio(seconds["df.write"], seconds["rows dropped"]),
            "x its time",
            detail={"rows dropped": rate(seconds["rows dropped"], store.messages)},
        ),
        Figure(
            "the commit's share of that df.write",
            statistics.median(shares[-rounds:]),
            "of its time",
            samples={"share": shares[-rounds:]},
        ),
    ]


def _after_last_task(spark: SparkSession, group: str) -> float:
    """Seconds since the last stage of the group's jobs ended: what the commit takes, and Spark around it."""
    tracker, store = spark.sparkContext.statusTracker(), spark.sparkContext._jsc.sc().statusStore()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
    stages = [store.lastStageAttempt(stage) for job in jobs if job is not None for stage in job.stageIds]
    return time.time() - max(stage.completionTime().get().getTime() for stage in stages) / 1000


def _check(each: str, rows: int, store: GeneratedStore) -> None:
    if rows != store.messages:
        raise RuntimeError(f"{each} wrote {rows} messages, expected {store.messages}")


@contextmanager
def _fresh(target: Path) -> Iterator[Path]:
    """A path where nothing is, before and after."""
    try:
        yield target
    finally:
        shutil.rmtree(target, ignore_errors=True)


def _rows(store: GeneratedStore) -> Path:
    """An Arrow IPC file of the store's rows: the columns that a message is written of."""

    def make(folder: Path) -> None:
        rows = store_core.open_store(store.path()).scan(columns=_COLUMNS)
        with pa.OSFile(os.fspath(folder / "rows.arrow"), "wb") as out, pa.ipc.new_file(out, rows.schema) as writer:
            for batch in rows:
                writer.write_batch(batch)

    return cached(f"rows-{store.name}", make) / "rows.arrow"
