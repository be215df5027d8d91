"""Many keys at once: `rmq_spark.lookup`, the messages of a DataFrame of (topic, key) pairs.

Each task opens the store and asks the index for its share of the keys, as `queryMsgByKey` would one by one. Where the keys
are so many that reading the whole log is cheaper, or the index does not cover the log, it is one scan and a join instead.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from rmq_spark.columns import spark_schema
from rmq_spark.errors import one_sentence
from rmq_spark.stores import expand, open_stores
from store_core import Store, read_task, schema_of
from store_core.errors import OptionError, StoreError
from store_core.estimate import estimate
from store_core.options import ReadOptions, parse_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["lookup"]

MESSAGES_PER_KEY: Final = 25
"""A scan of this many messages takes about as long as looking one key up (benchmarks/sql.py measures it)."""
_FEWEST_PAIRS: Final = 200
"""Pairs that are worth a task of their own."""
_UNCOVERED_MOST: Final = 64 << 20
"""Bytes outside of the index that each task may walk."""
_OWN = ("lookupTopic", "lookupKey")
_NOT_HERE: Final = ("path", "paths", "table", "keys")


def lookup(spark: SparkSession, keys_df: DataFrame, path: str | Sequence[str], **options: object) -> DataFrame:
    """The messages of many keys: `keys_df(topic, key)` -> lookupTopic, lookupKey and the messages table.

    A row for each pair of keys_df (a pair that is there twice counts once) and each message of the topic that has the key
    among the tokens of its KEYS. `path`, `options`: those of format rocketmq-store, without table and keys. keys_df is
    evaluated twice: now, to see how many pairs there are, and with the result.
    Errors: OptionError for options, or for columns that keys_df does not have; StoreNotFoundError.
    """
    given = _checked(options)
    paths = expand([path] if isinstance(path, str) else path)
    read = parse_options(given)
    pairs = _pairs(keys_df)
    most = 0 if read.expand_batches else sum(_worth(store, own) for store, own in open_stores(paths, given))
    count = pairs.limit(most + 1).count() if most else 1
    if count > most:
        return _by_scan(spark, pairs, paths, given)
    return _by_index(spark, pairs, count, paths, given, read)


def _checked(options: dict[str, object]) -> dict[str, Any]:
    for name in options:
        if name.lower() in _NOT_HERE:
            raise OptionError(f"lookup() takes no option {name!r}: the keys are those of keys_df, the table is messages")
    return {name.lower(): value for name, value in options.items()}


def _pairs(keys_df: DataFrame) -> DataFrame:
    missing = [name for name in ("topic", "key") if name not in keys_df.columns]
    if missing:
        raise OptionError(f"lookup() wants keys_df(topic, key); it has the columns {', '.join(keys_df.columns)}")
    return (
        keys_df.selectExpr("CAST(topic AS STRING) AS lookupTopic", "CAST(key AS STRING) AS lookupKey")
        .where("lookupTopic <> '' AND lookupKey <> '' AND NOT contains(lookupKey, ' ')")
        .distinct()
    )


def _worth(store: Store, own: dict[str, Any]) -> int:
    """The most keys that are looked up in the store rather than scanned for; 0 where its index can't be used."""
    if not store.at_one_moment(lambda: _covers(store)):
        return 0
    return max(estimate(store.plan(columns=[], **own)).rows // MESSAGES_PER_KEY, 1)


def _covers(store: Store) -> bool:
    view = store.index_view(store.options)
    return bool(view.files) and sum(store.data_size(start, stop) for start, stop in view.holes) <= _UNCOVERED_MOST


def _by_index(
    spark: SparkSession, pairs: DataFrame, count: int, paths: list[str], options: dict[str, Any], read: ReadOptions
) -> DataFrame:
    from pyspark.sql.functions import arrow_udtf  # mapInArrow, which does the same, wants pandas
    from pyspark.sql.types import StringType, StructField, StructType

    found = spark_schema(schema_of(read))
    schema = StructType([*(StructField(name, StringType()) for name in _OWN), *found.fields])
    finder: Any = arrow_udtf(_finder(paths, options), returnType=schema)
    result: DataFrame = finder(_spread(spark, pairs, count).asTable())
    return result


def _spread(spark: SparkSession, pairs: DataFrame, count: int) -> DataFrame:
    """The pairs in as many partitions as are of use. Keys of one topic are best together, but a topic may have all keys."""
    tasks = max(count // _FEWEST_PAIRS, 1)
    try:
        tasks = min(tasks, 2 * spark.sparkContext.defaultParallelism)
    except Exception:  # Spark Connect has no SparkContext
        tasks = min(tasks, 16)
    return pairs.repartition(tasks)


def _finder(paths: list[str], options: dict[str, Any]) -> type:
    """A table function of batches of pairs. Spark makes one for each task."""

    class Find:
        @one_sentence
        def __init__(self) -> None:
            self.stores = open_stores(paths, options)

        def eval(self, pairs: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
            keys_of: dict[str, list[str]] = {}
            for topic, key in zip(pairs["lookupTopic"].to_pylist(), pairs["lookupKey"].to_pylist(), strict=True):
                keys_of.setdefault(topic, []).append(key)
            try:
                for store, own in self.stores:
                    for topic, keys in keys_of.items():
                        plan = store.plan([("topic", "=", topic)], **own, keys=keys)
                        for task in plan.tasks:
                            for found in read_task(plan.spec, task, store.files):
                                yield _by_token(found, topic, keys)
            except StoreError as e:
                raise e.with_traceback(None) from None

    return Find


def _by_token(found: pa.RecordBatch, topic: str, keys: list[str]) -> pa.RecordBatch:
    """A row for each message and each of its tokens that is among the keys."""
    import pyarrow.compute as pc

    tokens = pc.split_pattern(found["keys"], pattern=" ")
    pairs = pa.table({"row": pc.list_parent_indices(tokens), "key": pc.list_flatten(tokens)})
    pairs = pairs.filter(pc.is_in(pairs["key"], value_set=pa.array(keys, type=pa.string())))
    pairs = pairs.group_by(["row", "key"]).aggregate([])  # a token may stand twice in one KEYS
    rows = found.take(pairs["row"].combine_chunks())
    names = pa.repeat(pa.scalar(topic), len(rows))
    arrays = [names, pairs["key"].combine_chunks(), *rows.columns]
    return pa.RecordBatch.from_arrays(arrays, names=[*_OWN, *rows.schema.names])


def _by_scan(spark: SparkSession, pairs: DataFrame, paths: list[str], options: dict[str, Any]) -> DataFrame:
    from pyspark.sql import functions as F

    reader = spark.read.format("rocketmq-store").options(**{name: _text(value) for name, value in options.items()})
    messages = reader.load(paths[0] if len(paths) == 1 else paths)
    tokens = messages.select(F.explode(F.array_distinct(F.split("keys", " "))).alias("token"), "*")
    same = [tokens["topic"] == pairs["lookupTopic"], tokens["token"] == pairs["lookupKey"]]
    return pairs.join(tokens, reduce(lambda a, b: a & b, same)).drop("token")


def _text(value: object) -> str | None:
    """An option as Spark passes it."""
    if isinstance(value, (bool, list, tuple, dict)):
        return json.dumps(value, default=str)
    return None if value is None else str(value)
