"""RocketMQ's store files as Spark tables.

    spark = rmq_spark.session()                                       # or rmq_spark.register(a_session_of_yours)
    spark.read.format("rocketmq-store").load("path/to/store")

    rmq_spark.lookup(spark, keys_df, "path/to/store")                 # the messages of many keys at once

Formats: rocketmq-store, rocketmq-commitlog, rocketmq-consumequeue, rocketmq-indexfile.
"""

from __future__ import annotations

from rmq_spark.lookups import lookup
from rmq_spark.session import register, session

__all__ = ["lookup", "register", "session"]
