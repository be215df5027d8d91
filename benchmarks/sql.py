"""Plain SQL through the bridge: what a key lookup costs above Spark's own way to a Python source, and what is not read."""

from __future__ import annotations

import random
import statistics
import tempfile
from collections.abc import Callable
from typing import TYPE_CHECKING
from unittest import mock

import rmq_spark
import store_core
from benchmarks.context import Context
from benchmarks.figures import Figure, Measure, alternate, milliseconds, rate, ratio, timed
from benchmarks.one_row import COLUMNS, OneRowSource
from benchmarks.stores import TOPICS, GeneratedStore
from benchmarks.through_spark import spark_session
from rmq_spark import lookups
from rmq_spark.source import StoreSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["PlainSource", "run"]

_ALL_TOPICS = [f"topic-{i}" for i in range(TOPICS)]


class PlainSource(StoreSource):
    """Our source by a name that the bridge does not have, so that one session can read with the bridge and without it."""

    @classmethod
    def name(cls) -> str:
        return "rocketmq-store-plain"


def run(context: Context) -> list[Figure]:
    large = context.store(1000)
    small = GeneratedStore(large.messages // 10, 1000)
    with tempfile.TemporaryDirectory() as warehouse, spark_session(**{"spark.sql.warehouse.dir": warehouse}) as spark:
        spark.dataSource.register(OneRowSource)
        spark.dataSource.register(PlainSource)
        return [
            *_lookup(context, spark, large, small),
            *_scans(context, spark, large),
            *_counts(context, spark, large),
            *_many_keys(context, spark, large),
        ]


def _lookup(context: Context, spark: SparkSession, large: GeneratedStore, small: GeneratedStore) -> list[Figure]:
    """Catalog tables on all sides: each statement then plans anew, in as many Python processes."""
    spark.sql(f"CREATE TABLE one_row ({COLUMNS}) USING `one-row`")
    for name, store in (("large", large), ("small", small)):
        spark.sql(f"CREATE TABLE {name} USING `rocketmq-store` LOCATION '{store.path()}'")
    chosen = random.Random(5)

    def lookup(table: str, store: GeneratedStore, rows: int) -> Measure:
        def one() -> None:
            topic, key = store.lookup(chosen.randrange(store.messages // 2))
            found = spark.sql(f"SELECT body FROM {table} WHERE topic = '{topic}' AND keys = '{key}'").collect()
            if len(found) != rows:
                raise RuntimeError(f"{key} of {topic} has {len(found)} messages in {table}, expected {rows}")

        return timed(one)

    measures = {
        "a one-row Python source": lookup("one_row", large, 0),
        f"{small.messages:,} messages": lookup("small", small, 2),
        f"{large.messages:,} messages": lookup("large", large, 2),
    }
    seconds = alternate(measures, 10 if context.quick else 60, warm_up=8)
    peer, *ours = measures
    return [
        Figure(
            f"SQL, topic and key in a store of {name}, warm session: against {peer}",
            ratio(seconds[name], seconds[peer]),
            "of its time",
            target=1.15,
            detail={each: milliseconds(seconds[each]) for each in (name, peer)},
            samples={each: seconds[each] for each in (name, peer)},
        )
        for name in ours
    ]


def _noop(frame: Callable[[], DataFrame]) -> Measure:
    """Plans anew, reads all rows and drops them."""
    return timed(lambda: frame().write.format("noop").mode("overwrite").save())


def _scans(context: Context, spark: SparkSession, store: GeneratedStore) -> list[Figure]:
    def load(name: str) -> DataFrame:
        return spark.read.format(name).load(store.path())

    measures = {
        "with the bridge": _noop(lambda: load("rocketmq-store")),
        "without": _noop(lambda: load(PlainSource.name())),
        "two columns": _noop(lambda: load("rocketmq-store").select("queueOffset", "storeTimestamp")),
    }
    seconds = alternate(measures, context.rounds(7), warm_up=2)
    return [
        Figure(
            "SQL, all columns, 1,000 B: with the bridge against without",
            ratio(seconds["without"], seconds["with the bridge"]),
            "x its rate",
            target=0.98,
            at_least=True,
            detail={name: rate(seconds[name], store.messages) for name in ("with the bridge", "without")},
            samples={name: seconds[name] for name in ("with the bridge", "without")},
        ),
        Figure(
            "SQL, two narrow columns against all, 1,000 B",
            ratio(seconds["two columns"], seconds["with the bridge"]),
            "of the time",
            target=1 / 4,
            detail={name: milliseconds(seconds[name]) for name in ("two columns", "with the bridge")},
            samples={name: seconds[name] for name in ("two columns", "with the bridge")},
        ),
    ]


def _counts(context: Context, spark: SparkSession, store: GeneratedStore) -> list[Figure]:
    """Through Spark, where its own fraction of a second is in both sides; and in the core, opened for each."""
    where: list[tuple[str, str, object]] = [("topic", "in", _ALL_TOPICS)]
    listed = ", ".join(f"'{topic}'" for topic in _ALL_TOPICS)
    of_topics = spark.read.format("rocketmq-store").load(store.path()).where(f"topic IN ({listed})")

    def core(columns: list[str] | None) -> Measure:
        def read() -> None:
            rows = sum(batch.num_rows for batch in store_core.open_store(store.path()).scan(where, columns))
            if rows != store.messages:
                raise RuntimeError(f"{rows} rows, expected {store.messages}")

        return timed(read)

    figures = []
    for name, counted, read in (
        ("SQL", timed(of_topics.count), _noop(lambda: of_topics)),
        ("core", core([]), core(None)),
    ):
        seconds = alternate({"count": counted, "read": read}, context.rounds(5), warm_up=1)
        figures.append(
            Figure(
                f"{name}, count(*) of topics with {store.messages:,} messages: against reading them",
                ratio(seconds["read"], seconds["count"]),
                "x its rate",
                target=20,
                at_least=True,
                detail={each: milliseconds(seconds[each]) for each in seconds},
                samples=seconds,
            )
        )
    return figures


def _many_keys(context: Context, spark: SparkSession, store: GeneratedStore) -> list[Figure]:
    """`rmq_spark.lookup`: from how many messages per key on the index is the better way."""
    counts = [store.messages // 500, store.messages // 50]
    numbers = random.Random(13).sample(range(store.messages // 2), counts[-1])
    frames = {}
    for count in counts:
        frame = spark.createDataFrame([store.lookup(number) for number in numbers[:count]], "topic string, key string").cache()
        frame.count()
        frames[count] = frame

    def measure(count: int, messages_per_key: int) -> Measure:
        def look_up() -> None:
            with mock.patch.object(lookups, "MESSAGES_PER_KEY", messages_per_key):
                found = rmq_spark.lookup(spark, frames[count], store.path()).select("lookupKey", "body").count()
            if found != 2 * count:
                raise RuntimeError(f"{count} keys have {found} messages, expected {2 * count}")

        return timed(look_up)

    few, many = counts
    measures = {
        f"{few:,} keys by index": measure(few, 1),
        f"{many:,} keys by index": measure(many, 1),
        f"{many:,} keys by scan": measure(many, store.messages),
    }
    seconds = alternate(measures, context.rounds(5), warm_up=1)
    first, second, scan = (statistics.median(seconds[name]) for name in measures)
    per_key, per_message = (second - first) / (many - few), scan / store.messages
    return [
        Figure(
            "lookup(): messages that a scan reads in the time of one key by index",
            per_key / per_message,
            f"messages (used: {lookups.MESSAGES_PER_KEY})",
            detail={
                "a key by index": f"{per_key * 1e6:.0f} us",
                "a message by scan": f"{per_message * 1e6:.2f} us",
                **{name: milliseconds(seconds[name]) for name in measures},
            },
            samples=seconds,
        )
    ]
