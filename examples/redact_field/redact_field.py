"""Copies a store with one field of its JSON bodies blacked out; all messages keep their queues, offsets, times, keys and ids.

python examples/redact_field/redact_field.py path/to/store path/to/new/store --topic Orders --field card
"""

from __future__ import annotations

import argparse
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
    p.add_argument("--topic", required=True, help="the topic whose bodies are changed; the others are copied as they are")
    p.add_argument("--field", required=True, help="a field of the body's JSON by its name, wherever it stands")
    p.add_argument("--by", default="***", help="the text that replaces the field's value (default: ***)")
    return p


def redacted(body: Column, field: str, by: str) -> Column:
    """The body with the field's value replaced by a text. A body that is not JSON text of that kind stays as it is."""
    value = r'("(?:[^"\\]|\\.)*"|-?[0-9.eE+-]+|true|false|null)'
    text = body.cast("string")
    pattern = f'("{re.escape(field)}"\\s*:\\s*){value}'
    replacement = '$1"' + by.replace("\\", "\\\\").replace("$", "\\$").replace('"', '\\\\"') + '"'
    changed = F.regexp_replace(text, pattern, replacement)
    return F.when(F.rlike(text, F.lit(pattern)), changed.cast("binary")).otherwise(body)


def main(argv: Sequence[str] | None = None) -> int:
    args = parser().parse_args(argv)
    store_core.open_store(args.source)  # a folder that is no store is told before Spark starts
    spark = rmq_spark.session()
    messages = spark.read.format("rocketmq-store").load(args.source)
    here = messages["topic"] == args.topic
    body = redacted(messages["body"], args.field, args.by)
    # Records change their length, and so their places: all else is kept. Order is that of the log.
    changed = messages.withColumn("body", F.when(here, body).otherwise(messages["body"])).drop("storeSize", "bodyCRC")
    ordered = changed.repartitionByRange("commitLogOffset").sortWithinPartitions("commitLogOffset")
    preserve = {"preserve": "true", "systemTopics": "true", "configFrom": args.source}
    ordered.write.format("rocketmq-store").options(**preserve).mode("append").save(args.target)
    written = spark.read.format("rocketmq-store").option("subscribe", args.topic).load(args.target)
    count = written.where(F.col("body").cast("string").contains(args.by)).count()
    print(f"{count:,} bodies of {args.topic} in {args.target} have {args.by!r} in them now")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (store_core.StoreError, PySparkException) as e:
        sys.exit(f"redact_field: {e}")
