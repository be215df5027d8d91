"""Messages for the writer, as rows, and whether a store holds them."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from store_core.schema import MESSAGES
from tests.oracle import Row, read_store

__all__ = ["LONG_TOPIC", "V6_HOSTS", "assert_holds", "messages", "table", "uniq_key"]

LONG_TOPIC = "%RETRY%" + "group-" * 30
"""More than 127 bytes: V2 records. No topic that a user makes may be so long; a group's retry topic may."""
V6_HOSTS = ("[0:0:0:0:0:0:0:1]:40000", "[2001:db8:0:0:0:0:0:7]:40001", "[fe80:0:0:0:0:a:0:b]:1")


def messages(n: int, store_host: str, **parts: Any) -> list[Row]:
    """`n` messages in log order.

    parts: `seed`; `topics`; `queues`, per topic; `body`, its longest; `text`: bodies that compress; `hosts`: bornHosts;
    `ago`: how many ms ago the first was stored. Each takes up to 7 ms.
    """
    rng = random.Random(parts.get("seed", 1))
    topics, queues = parts.get("topics", ("Orders", "Payments")), parts.get("queues", 4)
    longest, hosts = parts.get("body", 300), parts.get("hosts", ("10.0.0.1:40000", "192.168.1.2:50000"))
    now = int(time.time() * 1000) - parts.get("ago", 7 * n)
    rows = []
    for number in range(n):
        now += rng.choice((0, 1, 1, 7))
        keys = [f"order-{number}", f"customer-{number % 50}", "键", "Aa", "BB"][: rng.randrange(6)]
        size = rng.randrange(
            1, longest
        )  # producers refuse an empty body, and a push consumer of 4.9.7 loses what comes with it
        rows.append(
            {
                "topic": rng.choice(topics),
                "queueId": rng.randrange(queues),
                "body": (b"line %d, " % number * size)[:size] if parts.get("text") else rng.randbytes(size),
                "tags": rng.choice(("TagA", "TagB", "标签", None)),
                "keys": " ".join(keys) or None,
                "uniqKey": uniq_key(now, number),
                "properties": {"WAIT": "true", "region": f"eu-{number % 3} 🚀"} if number % 2 else None,
                "flag": rng.choice((0, 0, 7, -1)),
                "bornTimestamp": now - 3,
                "bornHost": rng.choice(hosts),
                "storeTimestamp": now,
                "storeHost": store_host,
                "reconsumeTimes": rng.choice((0, 0, 2)),
            }
        )
    return rows


def uniq_key(ms: int, number: int) -> str:
    """As a client makes it: address, process, class loader, time since the month began, counter (`MessageClientIDSetter`)."""
    then = time.localtime(ms / 1000)
    month = int(time.mktime((then.tm_year, then.tm_mon, 1, 0, 0, 0, 0, 0, -1))) * 1000
    return f"7F00000112345A5A5A5A{ms - month:08X}{number & 0xFFFF:04X}"


def table(rows: Sequence[Row]) -> pa.Table:
    """As the writer takes them; times are timestamps."""
    names = list(rows[0])
    columns = {name: [row[name] for row in rows] for name in names}
    for name in ("bornTimestamp", "storeTimestamp"):
        columns[name] = [ms * 1000 for ms in columns[name]]
    columns["properties"] = [None if pairs is None else list(pairs.items()) for pairs in columns["properties"]]
    schema = pa.schema([MESSAGES.field(name) for name in names])
    return pa.table({name: pa.array(values, schema.field(name).type) for name, values in columns.items()})


def assert_holds(store: Path, given: Sequence[Row]) -> list[Row]:
    """The store's rows, which are those, in their order, with queueOffsets that count each queue from 0."""
    rows = read_store(store)
    assert len(rows) == len(given)
    next_offsets: dict[tuple[str, int], int] = {}
    for row, wanted in zip(rows, given, strict=True):
        properties = wanted.get("properties") or {}
        assert {**wanted, "properties": {**row["properties"], **properties}} == {name: row[name] for name in wanted}
        queue = row["topic"], row["queueId"]
        assert row["queueOffset"] == next_offsets.get(queue, 0)
        next_offsets[queue] = row["queueOffset"] + 1
    return rows
