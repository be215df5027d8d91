"""`trace`: all records of one message, in all topics, by time."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from typing import Any, Final

from store_core.cli.terminal import Terminal, plain, shown_time
from store_core.layout import SCHEDULE_TOPIC
from store_core.store import Store, open_store

__all__ = ["meaning", "run", "trace"]

HALF: Final = ("RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC")
OPERATIONS: Final = "RMQ_SYS(_ROCKSDB)?_TRANS_OP_HALF_TOPIC"
TIMER: Final = "rmq_sys_wheel_timer"
COLUMNS: Final = (
    "storeTimestamp",
    "topic",
    "queueId",
    "queueOffset",
    "commitLogOffset",
    "uniqKey",
    "tags",
    "properties",
    "reconsumeTimes",
    "preparedTransactionOffset",
    "transactionType",
    "offsetMsgId",
)


def run(args: Namespace, terminal: Terminal) -> int:
    """Prints a line per record."""
    hops = trace(open_store(args.store, **args.layout), args.uniq_key)
    if not hops:
        terminal.complain(f"no message with the unique key {args.uniq_key!r} in {args.store}")
        return 1
    if terminal.as_json:
        for hop in hops:
            terminal.json(hop)
        return 0
    first = hops[0]["storeTimestamp"]
    rows = [
        (
            shown_time(hop["storeTimestamp"]),
            f"+{(hop['storeTimestamp'] - first).total_seconds():.3f} s",
            f"{hop['topic']}/{hop['queueId']}@{hop['queueOffset']}",
            hop["commitLogOffset"],
            hop["meaning"],
        )
        for hop in hops
    ]
    terminal.table(("stored", "after", "place", "commitLogOffset", "what it is"), rows)
    return 0


def trace(store: Store, uniq_key: str) -> list[dict[str, Any]]:
    """The records with this UNIQ_KEY, and the operations that settled its half messages, by storeTimestamp and place; each with
    its `meaning`."""
    columns = list(COLUMNS)
    found = store.scan(columns=columns, uniqKeys=[uniq_key], extraColumns=["transactionType"]).read_all().to_pylist()
    hops = [{**row, "properties": dict(row["properties"]), "meaning": meaning(row)} for row in found]
    halves = {row["queueOffset"]: row for row in found if row["topic"] in HALF}
    if halves:
        hops += _settled(store, halves, columns)
    return sorted(hops, key=lambda hop: (hop["storeTimestamp"], hop["commitLogOffset"]))


def _settled(store: Store, halves: dict[int, Any], columns: Sequence[str]) -> list[dict[str, Any]]:
    """The op messages whose body names one of the half messages by its queueOffset."""
    hops = []
    wanted = [*columns, "body"]
    for batch in store.scan(columns=wanted, subscribePattern=OPERATIONS, extraColumns=["transactionType"]):
        for row in batch.to_pylist():
            body = row.pop("body") or b""
            named = {int(part) for part in body.decode("ascii", "replace").split(",") if part.strip().isdigit()}
            for offset in sorted(named & set(halves)):
                text = f"operation: the half message {offset} is settled (committed, rolled back or put back)"
                hops.append({**row, "properties": dict(row["properties"]), "meaning": text})
    return hops


def meaning(row: dict[str, Any]) -> str:
    """What a record is in the life of its message, by its topic and properties."""
    topic, properties = row["topic"], dict(row["properties"] or ())
    times, origin = row["reconsumeTimes"], properties.get("RETRY_TOPIC")
    real = f"{properties.get('REAL_TOPIC')}/{properties.get('REAL_QID')}"
    if topic in HALF:
        return f"half message for {real}"
    if topic == SCHEDULE_TOPIC:
        again = f", to be consumed again ({times})" if origin else ""
        return f"waits, delay level {properties.get('DELAY')}, for {real}{again}"
    if topic == TIMER:
        return f"waits until {_clock(properties.get('TIMER_OUT_MS'))} for {real}"
    if topic.startswith("%RETRY%"):
        return f"to be consumed again by {topic.removeprefix('%RETRY%')} ({times}), from {origin}"
    if topic.startswith("%DLQ%"):
        return f"dead letter of {topic.removeprefix('%DLQ%')} after {times} times, from {origin}"
    if row["transactionType"] == "commit":
        return f"committed: the half message at commitLogOffset {row['preparedTransactionOffset']}"
    if "TIMER_OUT_MS" in properties:
        return "delivered by the timer"
    if "DELAY" in properties and "REAL_TOPIC" in properties:
        return f"delivered after delay level {properties['DELAY']}"
    return "sent"


def _clock(ms: str | None) -> str:
    from datetime import datetime, timedelta, timezone

    if ms is None or not ms.isdigit() or len(ms) > 14:
        return "?" if ms is None else plain(ms)
    return shown_time(datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=int(ms)))
