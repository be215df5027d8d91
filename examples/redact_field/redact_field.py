"""Copies a store with one field of its JSON bodies blacked out; all messages keep their queues, offsets, times, keys and ids.

python examples/redact_field/redact_field.py path/to/store path/to/new/store --field card
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence

from pyspark.errors import PySparkException
from pyspark.sql import Column
from pyspark.sql import functions as F

import rmq_spark
import store_core


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(description="Copy a store, with a field of its JSON bodies replaced.")
    p.add_argument("source", help="a broker's store folder; it is only read")
    p.add_argument("target", help="a folder that is not there yet, for the new store")
    p.add_argument("--field", required=True, help="a field of the body's JSON by its name, wherever it stands")
    p.add_argument("--topic", help="only this topic, and its messages in delay, retry and such topics; without it all topics")
    p.add_argument("--by", default="***", help="the text that replaces the field's value (default: ***)")
    return p


def redacted(body: Column, field: str, by: str) -> Column:
    """The body with the field's value, of whatever kind, replaced by a text. A body that is no JSON stays as it is."""

    def redact(body: bytes | None) -> bytes | None:
        try:
            text = bytes(body or b"").decode()
            json.loads(text, strict=False)
            parts, done = [], 0
            for name in re.finditer(
                r'("(?:[^"\\]|\\.)*")(\s*:\s*)?', text
            ):  # each string; a field's name has a colon behind it
                if name.start() >= done and name[2] and json.loads(name[1], strict=False) == field:
                    parts += [text[done : name.end()], json.dumps(by)]
                    _, done = json.JSONDecoder(strict=False).raw_decode(text, name.end())
            return "".join([*parts, text[done:]]).encode() if parts else body
        except (ValueError, RecursionError):
            return body

    return F.udf(redact, "binary", useArrow=False)(body)


def still_there(body: Column, field: str, by: str) -> Column:
    """Whether the field's name and a colon stand in the body, and then something else: in JSON in a text, in broken JSON."""
    return F.rlike(body.cast("string"), F.lit(rf'"{re.escape(field)}\\*"\s*:(?!\s*{re.escape(json.dumps(by))})'))


def of_topic(topic: str) -> Column:
    """Whether a message is one of the topic's, there or where a broker put it: delayed, prepared, retried, dead."""
    named = [F.col("properties")[name] for name in ("REAL_TOPIC", "RETRY_TOPIC", "DLQ_ORIGIN_TOPIC")]
    popped = F.rlike(F.col("topic"), F.lit(rf"^%RETRY%.*[_+]{re.escape(topic)}$"))
    return F.array_contains(F.array("topic", *named), topic) | popped


def main(argv: Sequence[str] | None = None) -> int:
    args = parser().parse_args(argv)
    store_core.open_store(args.source)  # a folder that is no store is told before Spark starts
    spark = rmq_spark.session()
    messages = spark.read.format("rocketmq-store").load(args.source)
    here = F.coalesce(of_topic(args.topic), F.lit(False)) if args.topic else F.lit(True)
    body = F.when(here, redacted(F.col("body"), args.field, args.by)).otherwise(F.col("body"))
    # Records change their length, and so their places: all else is kept. Order is that of the log.
    changed = messages.withColumn("body", body).drop("storeSize", "bodyCRC")
    ordered = changed.repartitionByRange("commitLogOffset").sortWithinPartitions("commitLogOffset")
    kept = {"preserve": "true", "systemTopics": "true", "configFrom": args.source, "bodyFormat": "decoded"}
    ordered.write.format("rocketmq-store").options(**kept).mode("append").save(args.target)
    written = spark.read.format("rocketmq-store").load(args.target).where(here)
    count = written.where(F.col("body").cast("string").contains(json.dumps(args.by))).count()
    print(f"{count:,} bodies in {args.target} have {args.by!r} in them now")
    left = written.where(still_there(F.col("body"), args.field, args.by)).groupBy("topic").count().orderBy("topic").collect()
    for row in left:
        print(f"{row['count']:,} bodies of {row.topic} have {args.field!r} in them still: broken JSON, or JSON in a text")
    return 1 if left else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (store_core.StoreError, PySparkException) as e:
        sys.exit(f"redact_field: {e}")
