"""Follows one key (an order id, say) through all topics: sent, delayed, half, committed, retried, dead; by time.

python examples/trace_order/trace_order.py path/to/store order-4711
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import functions as F

import rmq_spark
import store_core

HALF, OP = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
SCHEDULE, TIMER = "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer"
RETRY, DEAD = "%RETRY%", "%DLQ%"
COLUMNS = (
    "storePath",
    "topic",
    "queueId",
    "queueOffset",
    "commitLogOffset",
    "uniqKey",
    "properties",
    "reconsumeTimes",
    "preparedTransactionOffset",
    "transactionType",
)

Message = Mapping[str, Any]


@dataclass(frozen=True)
class Hop:
    """One record of the trace: when it was stored (ms), which message it is of, where it stands, what it means."""

    time: int
    message: str
    place: str
    meaning: str


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(description="Follow one key through all topics of one or more stores.")
    p.add_argument("store", nargs="+", help="a broker's store folder; give those of all brokers for the whole story")
    p.add_argument("id", help="a key, as the producer gave it")
    p.add_argument("--uniq-key", action="store_true", help="the id is a message's uniqKey")
    return p


def read(stores: Sequence[str], selection: Mapping[str, str], columns: Sequence[str]) -> list[dict[str, Any]]:
    """The messages that the options select, by time."""
    reader = rmq_spark.session().read.format("rocketmq-store").options(extraColumns="storePath,transactionType", **selection)
    time = F.unix_millis("storeTimestamp").alias("time")
    rows = reader.load(list(stores)).select(time, *columns).orderBy("time", "commitLogOffset").collect()
    return [row.asDict() for row in rows]


def settled(operations: Iterable[Message]) -> set[tuple[str, int]]:
    """(store, queueOffset) of the half messages that op messages name: committed or rolled back, no longer waiting."""
    done = set()
    for op in operations:
        for number in bytes(op["body"]).decode("ascii", "replace").split(","):
            if number.strip().isdigit():
                done.add((op["storePath"], int(number)))
    return done


def hops(messages: Sequence[Message], done: set[tuple[str, int]]) -> Iterator[Hop]:
    """What each record of a trace means. `messages` by time; `done`: see `settled`."""
    committed = {(m["storePath"], m["preparedTransactionOffset"]) for m in messages if m["transactionType"] == "commit"}
    numbers: dict[str | None, int] = {}
    for i, m in enumerate(messages):
        number = numbers.setdefault(m["uniqKey"], len(numbers) + 1)
        meaning = _meaning(m)
        if m["topic"] == HALF:
            again = any(other["topic"] == HALF and other["uniqKey"] == m["uniqKey"] for other in messages[i + 1 :])
            if (m["storePath"], m["commitLogOffset"]) in committed:
                meaning += ": committed later"
            elif (m["storePath"], m["queueOffset"]) in done:
                meaning += ": rolled back"
            else:
                meaning += ": checked, and put back" if again else ": still waiting to be committed"
        yield Hop(m["time"], f"#{number}", f"{m['topic']}/{m['queueId']} @ {m['queueOffset']}", meaning)


def _meaning(m: Message) -> str:
    topic, properties = m["topic"], m["properties"] or {}
    times, origin = m["reconsumeTimes"], properties.get("RETRY_TOPIC")
    real = f"{properties.get('REAL_TOPIC')}/{properties.get('REAL_QID')}"
    if topic == HALF:
        return f"half message for {real}"
    if topic == SCHEDULE:
        again = f", to be consumed again ({times})" if origin else ""
        return f"waits, delay level {properties.get('DELAY')}, for {real}{again}"
    if topic == TIMER:
        return f"waits until {_clock(properties.get('TIMER_OUT_MS'))} for {real}"
    if topic.startswith(RETRY):
        return f"consumed again by {topic.removeprefix(RETRY)} ({times}), from {origin}"
    if topic.startswith(DEAD):
        return f"dead letter of {topic.removeprefix(DEAD)} after {times} times, from {origin}"
    if m["transactionType"] == "commit":
        return f"committed: the half message at commitLogOffset {m['preparedTransactionOffset']}"
    if "TIMER_OUT_MS" in properties:
        return "delivered by the timer"
    if "DELAY" in properties and "REAL_TOPIC" in properties:
        return f"delivered after delay level {properties['DELAY']}"
    return "sent"


def _clock(ms: str | None) -> str:
    return "?" if ms is None or not ms.isdigit() else _text(int(ms))


def _text(ms: int) -> str:
    moment = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=ms)
    return moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{ms % 1000:03d}"


def main(argv: Sequence[str] | None = None) -> int:
    args = parser().parse_args(argv)
    for path in args.store:
        store_core.open_store(path)  # a folder that is no store is told before Spark starts
    by = "uniqKeys" if args.uniq_key else "keys"
    messages = read(args.store, {by: json.dumps([args.id])}, COLUMNS)
    if not messages:
        print(f"no message with {'uniqKey' if args.uniq_key else 'key'} {args.id!r}")
        return 1
    done: set[tuple[str, int]] = set()
    if any(m["topic"] == HALF for m in messages):
        # a pattern, since the topic need not be there
        done = settled(read(args.store, {"subscribePattern": OP}, ["storePath", "commitLogOffset", "body"]))
    trace = list(hops(messages, done))
    first = trace[0].time
    width = max(len(hop.place) for hop in trace)
    for hop in trace:
        after = f"+{(hop.time - first) / 1000:.3f} s"
        print(f"{_text(hop.time)}  {after:>12}  {hop.message:<3} {hop.place:<{width}}  {hop.meaning}")
    count = len({hop.message for hop in trace})
    print(f"{len(trace)} record{'s' * (len(trace) > 1)} of {count} message{'s' * (count > 1)} with {args.id!r}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (store_core.StoreError, PySparkException) as e:
        sys.exit(f"trace_order: {e}")
