"""Compares the messages of two stores, a master's and a slave's, say: what only one has, what differs.

python examples/compare_stores/compare_stores.py master/store slave/store
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

import rmq_spark
import store_core

IDENTITY = {"uniqKey": ("topic", "uniqKey"), "place": ("topic", "commitLogOffset")}


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(description="Compare the messages of two stores.")
    p.add_argument("a", help="a store folder, the master's, say")
    p.add_argument("b", help="another one, the slave's or a backup, say")
    p.add_argument(
        "--by",
        choices=IDENTITY,
        default="uniqKey",
        help="a message is the same by topic and uniqKey (default), or by topic and commitLogOffset, as on a slave",
    )
    p.add_argument("--topic", help="only these topics: a comma list")
    p.add_argument("--start", help="stored at or after: milliseconds, or ISO-8601 with a zone (2026-11-21T08:43:18Z)")
    p.add_argument("--end", help="stored before; leave the newest minutes out where a store lags behind")
    p.add_argument("--limit", type=int, default=20, help="most differences to list (default %(default)s)")
    return p


def compare(a: DataFrame, b: DataFrame, identity: Sequence[str]) -> DataFrame:
    """A row per identity: `inA`, `inB` (how many messages), `bodyDiffers`, `stored` (the first time).

    A message has several records of one uniqKey in a topic when it was put back there, and all messages of a batch share one,
    so counts are compared; where they are equal, bodies too, by the CRC that is stored in each record.
    """
    both = a.withColumn("inA", F.lit(1)).withColumn("inB", F.lit(0)).unionByName(
        b.withColumn("inA", F.lit(0)).withColumn("inB", F.lit(1))
    )  # fmt: skip

    def bodies(side: str) -> Column:
        return F.sort_array(F.collect_set(F.when(F.col(side) == 1, F.col("bodyCRC"))))

    found = both.groupBy(*identity).agg(
        F.sum("inA").alias("inA"),
        F.sum("inB").alias("inB"),
        (bodies("inA") != bodies("inB")).alias("bodyDiffers"),
        F.date_format(F.min("storeTimestamp"), "yyyy-MM-dd HH:mm:ss.SSS").alias("stored"),
    )
    return found.withColumn("bodyDiffers", F.col("bodyDiffers") & (F.col("inA") == F.col("inB")))


def main(argv: Sequence[str] | None = None) -> int:
    args = parser().parse_args(argv)
    stores = [store_core.open_store(path) for path in (args.a, args.b)]  # what is no store is told before Spark starts
    topics = [name.strip() for name in (args.topic or "").split(",") if name.strip()]
    for topic in topics:
        if all(store.knows_topics and topic not in store.topics for store in stores):
            raise store_core.OptionError(f"no topic {topic!r} in {args.a} or {args.b}")
    given = {"startingTimestamp": args.start, "endingTimestamp": args.end}
    given["subscribePattern"] = "|".join(map(re.escape, topics))  # `subscribe` wants a topic that is in both
    identity = IDENTITY[args.by]
    kinds = {"uniqKey": "string", "commitLogOffset": "bigint"}
    columns = f"topic string, {identity[1]} {kinds[identity[1]]}, bodyCRC int, storeTimestamp timestamp"
    reader = rmq_spark.session().read.format("rocketmq-store").schema(columns)
    reader = reader.options(**{name: value for name, value in given.items() if value})
    found = compare(reader.load(args.a), reader.load(args.b), identity).cache()

    same = F.least("inA", "inB")
    totals = found.groupBy("topic").agg(
        F.sum(same).alias("both"),
        F.sum(F.col("inA") - same).alias("onlyA"),
        F.sum(F.col("inB") - same).alias("onlyB"),
        F.count_if("bodyDiffers").alias("otherBody"),
    )
    rows = totals.orderBy("topic").collect()
    width = max([len("topic"), *(len(row.topic) for row in rows)])
    print(f"{'topic':<{width}}  {'in both':>10}  {'only in A':>10}  {'only in B':>10}  {'other body':>10}")
    for row in rows:
        print(f"{row.topic:<{width}}  {row.both:>10,}  {row.onlyA:>10,}  {row.onlyB:>10,}  {row.otherBody:>10,}")
    unlike = found.where("inA != inB or bodyDiffers").orderBy("stored", *identity)
    differences = sum(row.onlyA + row.onlyB + row.otherBody for row in rows)
    for row in unlike.limit(args.limit).collect():
        what = "other body" if row.inA == row.inB else f"{row.inA} in A, {row.inB} in B"
        print(f"{row.stored}  {row.topic}  {identity[1]} {row[identity[1]]}: {what}")
    if (more := unlike.count() - args.limit) > 0:
        print(f"... and {more:,} more: --limit {args.limit + more} lists all")
    found.unpersist()
    print("no difference" if not differences else f"{differences:,} record{'s differ' if differences > 1 else ' differs'}")
    return 1 if differences else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (store_core.StoreError, PySparkException) as e:
        print(f"compare_stores: {e}", file=sys.stderr)
        sys.exit(2)
