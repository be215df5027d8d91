"""Saves what can be read of a dead broker's store to Parquet, and reports what can't.

python examples/recover_to_parquet/recover_to_parquet.py path/to/store path/to/new/folder
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

import rmq_spark
import store_core

EXTRA = "propertiesString,compression,transactionType,sourceFile,storePath"


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(description="Recover a store's messages to Parquet, with a report of what is damaged.")
    p.add_argument("store", nargs="+", help="a broker's store folder, or its commitlog alone")
    p.add_argument("out", type=Path, help="a new folder: messages/, corrupt/ and report.txt are written into it")
    p.add_argument("--no-crc", action="store_true", help="do not check the CRCs of bodies and records")
    p.add_argument("--raw-bodies", action="store_true", help="leave compressed bodies as they are stored")
    return p


def report(messages: DataFrame, corrupt: DataFrame, stores: Sequence[str]) -> Iterator[str]:
    """The report's lines, from the Parquet that was written."""
    yield f"Recovered from {', '.join(stores)}"
    total = messages.agg(
        F.count("*").alias("count"),
        F.date_format(F.min("storeTimestamp"), "yyyy-MM-dd HH:mm:ss.SSS").alias("first"),
        F.date_format(F.max("storeTimestamp"), "yyyy-MM-dd HH:mm:ss.SSS").alias("last"),
    ).collect()[0]
    yield f"{total['count']:,} messages, stored from {total['first']} to {total['last']} UTC"
    for row in messages.groupBy("topic").count().orderBy(F.desc("count"), "topic").collect():
        yield f"  {row['count']:>12,}  {row['topic']}"
    found = corrupt.select("file", "start", "end", "reason").orderBy("file", "start").collect()
    lost = sum(row["end"] - row["start"] for row in found)
    yield f"{len(found)} corrupt range{'' if len(found) == 1 else 's'}, {lost:,} bytes" + (":" if found else "")
    for row in found:
        yield f"  {row['file']} bytes [{row['start']}, {row['end']}): {row['reason']}"


def main(argv: Sequence[str] | None = None) -> int:
    args = parser().parse_args(argv)
    for path in args.store:
        store_core.open_store(path)  # a folder that is no store is told before Spark starts
    if args.out.exists():
        raise store_core.OptionError(f"{args.out} is there already. Name a folder that is not, so that nothing is overwritten")
    spark = rmq_spark.session()
    options = {
        "mode": "PERMISSIVE",
        "verifyCrc": str(not args.no_crc).lower(),
        "bodyFormat": "raw" if args.raw_bodies else "decoded",
        "failOnDataLoss": "false",
        "extraColumns": EXTRA,
    }
    # Kept on disk while both parts are written: the store is read once, and both are of the same moment.
    everything = spark.read.format("rocketmq-store").options(**options).load(args.store).persist(StorageLevel.DISK_ONLY)
    messages, corrupt = args.out / "messages", args.out / "corrupt"
    everything.where("_corrupt_record is null").drop("_corrupt_record").write.parquet(str(messages))
    everything.where("_corrupt_record is not null").select("_corrupt_record.*").write.parquet(str(corrupt))
    everything.unpersist()
    lines = list(report(spark.read.parquet(str(messages)), spark.read.parquet(str(corrupt)), args.store))
    (args.out / "report.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(*lines, sep="\n")
    print(f"written: {messages}, {corrupt}, {args.out / 'report.txt'}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (store_core.StoreError, PySparkException) as e:
        sys.exit(f"recover_to_parquet: {e}")
