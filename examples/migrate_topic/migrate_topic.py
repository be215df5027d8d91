"""Writes the messages of some topics into another store, new or there already.

python examples/migrate_topic/migrate_topic.py path/to/store path/to/other/store --topic Orders
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from pyspark.errors import PySparkException
from pyspark.sql import functions as F

import rmq_spark
import store_core

COLUMNS = "topic,queueId,body,properties,flag,sysFlag,bornTimestamp,bornHost,storeHost,reconsumeTimes"
"""What a message is. Its places and its storeTimestamp are the other store's, whose log has to ascend in time."""


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(description="Write topics of one store behind the messages of another store.")
    p.add_argument("source", help="a broker's store folder; it is only read")
    p.add_argument("target", help="the store folder to add to; made if it is not there. No broker may be running on it")
    p.add_argument("--topic", action="append", required=True, help="a topic; may be given more than once")
    p.add_argument("--since", metavar="TIME", help="only messages stored at this time or later, as 2026-11-21T08:00:00Z")
    p.add_argument("--rename", metavar="TOPIC", help="the topic that they have in the target")
    return p


def main(argv: Sequence[str] | None = None) -> int:
    args = parser().parse_args(argv)
    store_core.open_store(args.source)  # a folder that is no store is told before Spark starts
    spark = rmq_spark.session()
    options = {"subscribe": ",".join(args.topic)} | ({"startingTimestamp": args.since} if args.since else {})
    messages = spark.read.format("rocketmq-store").options(**options).load(args.source)
    # A queue's messages stand in one partition, in order: so they do in the target.
    ordered = messages.repartition("topic", "queueId").sortWithinPartitions("topic", "queueId", "queueOffset")
    chosen = ordered.select(*COLUMNS.split(","))
    if args.rename:
        chosen = chosen.withColumn("topic", F.lit(args.rename))
    before = rows_of(args.target)
    # Bodies were read decompressed. Without this, one that a producer compressed itself could pass for one as stored.
    chosen.write.format("rocketmq-store").option("bodyFormat", "decoded").mode("append").save(args.target)
    after = rows_of(args.target)
    for topic in sorted(after):
        if added := after[topic] - before.get(topic, 0):
            print(f"{topic}: {added:,} messages added, {after[topic]:,} now")
    if after == before:
        print("no messages to add")
    return 0


def rows_of(path: str) -> dict[str, int]:
    """Messages by topic, from the queues' bounds; nothing where there is no store yet."""
    try:
        topics = store_core.open_store(path).info()["topics"]
    except store_core.StoreNotFoundError:
        return {}
    return {name: topic["messages"] for name, topic in topics.items()}


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (store_core.StoreError, PySparkException) as e:
        sys.exit(f"migrate_topic: {e}")
