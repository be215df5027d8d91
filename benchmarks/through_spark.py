"""A whole store through Spark on two cores: against the most that a Python source can do, Parquet, and a client that pulls."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import rmq_spark
import store_core
from benchmarks import rocketmq
from benchmarks.broker import live_broker, topics
from benchmarks.cache import cached
from benchmarks.context import Context
from benchmarks.figures import Figure, Measure, alternate, milliseconds, rate, ratio, timed
from benchmarks.ready_batch import ReadyBatchSource, read_batch
from benchmarks.stores import GeneratedStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["ready_batch", "run", "spark_session"]

_PULL_THREADS = 4


@contextmanager
def spark_session(**conf: object) -> Iterator[SparkSession]:
    settings: dict[str, Any] = {"spark.driver.memory": "4g", "spark.ui.enabled": "false", **conf}
    spark = rmq_spark.session("local[2]", **settings)
    try:
        yield spark
    finally:
        spark.stop()


def run(context: Context) -> list[Figure]:
    store = context.store(1000)
    path = store.path()
    batch_file = ready_batch(store)
    batch = read_batch(str(batch_file))
    tasks = len(store_core.open_store(path).plan().tasks)
    parts = 2 * max(tasks // 2, 1)
    repeats = round(store.messages / batch.num_rows / parts)
    with spark_session() as spark:
        spark.dataSource.register(ReadyBatchSource)
        parquet = cached(f"parquet-{store.name}", lambda folder: _write_parquet(spark, path, folder)) / "rows"
        ours = spark.read.format("rocketmq-store").load(path)
        ready = (
            spark.read.format("ready-batch").options(file=str(batch_file), batches=str(repeats), partitions=str(parts)).load()
        )
        from_parquet = spark.read.parquet(str(parquet))
        for name, frame in (("rocketmq-store", ours), ("Parquet", from_parquet)):
            if (rows := frame.count()) != store.messages:
                raise RuntimeError(f"{name} gives {rows} rows, expected {store.messages}")
        ready_rows = batch.num_rows * repeats * parts
        measures = {
            "rocketmq-store": _noop(ours),
            # as many rows as the store has, but for rounding to whole batches: seconds are scaled to the same number
            "one ready batch": lambda: _noop(ready)() * store.messages / ready_rows,
            "uncompressed Parquet": _noop(from_parquet),
        }
        seconds = alternate(measures, context.rounds(7), warm_up=3)
        with (
            live_broker(store) as name_server,
            rocketmq.program("PullAll", name_server, str(_PULL_THREADS), *topics()) as client,
        ):

            def pull() -> float:
                answer = client.ask()
                if answer["rows"] != store.messages:
                    raise RuntimeError(f"the client pulled {answer['rows']} messages, expected {store.messages}")
                return float(answer["seconds"])

            pulls = alternate({"rocketmq-store": measures["rocketmq-store"], "pulling client": pull}, context.rounds(3))
        narrow = spark.read.format("rocketmq-store").schema("topic string, queueOffset bigint").load(path)
        queue = spark.read.format("rocketmq-store").option("assign", '{"topic-3": [5]}').load(path)
        pruned = alternate(
            {"all": measures["rocketmq-store"], "two columns": _noop(narrow), "one queue": _noop(queue)}, context.rounds(5), 2
        )
    size = context.log_size(path)
    return [
        _figure("one ready batch", seconds, store, size, target=0.75),
        _figure("uncompressed Parquet", seconds, store, size, target=0.5),
        Figure(
            f"Spark local[2], all columns, 1,000 B: against a Java client that pulls ({_PULL_THREADS} threads)",
            ratio(pulls["pulling client"], pulls["rocketmq-store"]),
            "x its rate",
            target=6,
            at_least=True,
            detail={name: rate(taken, store.messages, size) for name, taken in pulls.items()},
            samples=pulls,
        ),
        *(
            Figure(
                f"Spark local[2]: {name} against all columns and queues",
                ratio(pruned[name], pruned["all"]),
                "of its time",
                detail={each: milliseconds(pruned[each]) for each in (name, "all")},
                samples=pruned,
            )
            for name in ("two columns", "one queue")
        ),
    ]


def _figure(peer: str, seconds: dict[str, list[float]], store: GeneratedStore, size: int, target: float) -> Figure:
    return Figure(
        f"Spark local[2], all columns, 1,000 B: against {peer}",
        ratio(seconds[peer], seconds["rocketmq-store"]),
        "x its rate",
        target=target,
        at_least=True,
        detail={name: rate(seconds[name], store.messages, size) for name in ("rocketmq-store", peer)},
        samples={name: seconds[name] for name in ("rocketmq-store", peer)},
    )


def _noop(frame: DataFrame) -> Measure:
    """Reads all rows and drops them."""
    return timed(lambda: frame.write.format("noop").mode("overwrite").save())


def ready_batch(store: GeneratedStore, rows: int | None = None) -> Path:
    """A file with the first `rows` rows of the store's second batch, which is a full one."""

    batches = store_core.open_store(store.path()).scan()
    batches.read_next_batch()
    batch = batches.read_next_batch().slice(0, rows)
    # not cached: how large a batch is may change with store_core
    folder = Path(tempfile.mkdtemp(prefix="ready-batch-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    with pa.OSFile(os.fspath(folder / "batch.arrow"), "wb") as out, pa.ipc.new_file(out, batch.schema) as writer:
        writer.write_batch(batch)
    return folder / "batch.arrow"


def _write_parquet(spark: SparkSession, path: str, folder: Path) -> None:
    rows = spark.read.format("rocketmq-store").load(path)
    rows.write.option("compression", "uncompressed").parquet(os.fspath(folder / "rows"))
