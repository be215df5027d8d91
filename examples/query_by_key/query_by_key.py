"""Finds messages by key, unique key or offset message id, and prints them in the order of their storing.

python examples/query_by_key/query_by_key.py path/to/store order-4711 --topic Orders
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

import rmq_spark
import store_core

OPTION = {"key": "keys", "uniqKey": "uniqKeys", "offsetMsgId": "offsetMsgIds"}
COLUMNS = (
    "topic",
    "queueId",
    "queueOffset",
    "tags",
    "keys",
    "uniqKey",
    "offsetMsgId",
    "commitLogOffset",
    "storeSize",
    "brokerName",
)


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(description="Find messages of one or more stores by key or id.")
    p.add_argument("store", nargs="+", help="a broker's store folder (several: all are searched)")
    p.add_argument("id", help="the key or id to look for")
    p.add_argument(
        "--by",
        choices=OPTION,
        default="key",
        help="what the id is: any of a message's keys (default), its uniqKey, its offsetMsgId",
    )
    p.add_argument("--topic", help="only this topic; without it all topics are looked at")
    p.add_argument("--start", help="stored at or after: milliseconds, or ISO-8601 with a zone (2026-11-21T08:43:18Z)")
    p.add_argument("--end", help="stored before")
    p.add_argument("--limit", type=int, default=100, help="most messages to print, 0 for all (default %(default)s)")
    p.add_argument(
        "--body", type=int, default=120, metavar="BYTES", help="how much of each body to print (default %(default)s)"
    )
    p.add_argument("--plan", action="store_true", help="print first what is read and what is skipped")
    return p


def options(args: argparse.Namespace) -> dict[str, str]:
    """The data source's options for what was asked."""
    given = {
        OPTION[args.by]: json.dumps([args.id]),  # as JSON: a key may hold a comma
        "subscribe": args.topic,
        "startingTimestamp": args.start,
        "endingTimestamp": args.end,
    }
    return {name: value for name, value in given.items() if value is not None}


def found(args: argparse.Namespace) -> DataFrame:
    spark = rmq_spark.session()
    messages = spark.read.format("rocketmq-store").options(**options(args)).load(args.store)
    return messages.orderBy("storeTimestamp", "commitLogOffset").select(
        F.date_format("storeTimestamp", "yyyy-MM-dd HH:mm:ss.SSS").alias("stored"),
        *COLUMNS,
        F.length("body").alias("bodyLength"),
        F.substring("body", 1, args.body).alias("bodyStart"),
    )


def lines(row: Row) -> Iterator[str]:
    broker = f"{row.brokerName} " if row.brokerName else ""
    yield f"{row.stored}  {broker}{row.topic}/{row.queueId} @ {row.queueOffset}"
    yield f"  keys {row.keys!r}  tags {row.tags!r}  uniqKey {row.uniqKey}"
    yield f"  offsetMsgId {row.offsetMsgId}  ({row.storeSize} bytes at commitLogOffset {row.commitLogOffset})"
    text = bytes(row.bodyStart).decode("utf-8", "replace")
    shown = "".join(c if c.isprintable() and c != "\ufffd" else "." for c in text)
    yield f"  body, {row.bodyLength} bytes: {shown}{'...' if row.bodyLength > len(row.bodyStart) else ''}"


def main(argv: Sequence[str] | None = None) -> int:
    args = parser().parse_args(argv)
    for path in args.store:
        store = store_core.open_store(path)
        if args.plan:
            elsewhere = args.topic and store.knows_topics and args.topic not in store.topics
            print(f"{path}: no topic {args.topic!r}\n" if elsewhere else f"{store.explain(**options(args))}\n")
    messages = found(args)
    rows = messages.limit(args.limit + 1).collect() if args.limit else messages.collect()
    shown = rows[: args.limit] if args.limit else rows
    for row in shown:
        print(*lines(row), sep="\n")
    if len(rows) > len(shown):
        print(f"... there are more than {args.limit}: --limit 0 shows all")
    else:
        where = f" in {args.topic}" if args.topic else ""
        print(f"{len(rows)} message{'' if len(rows) == 1 else 's'} with {args.by} {args.id!r}{where}")
    return 0 if rows else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (store_core.StoreError, PySparkException) as e:
        sys.exit(f"query_by_key: {e}")
