"""Whether a broker serves a store: all that is in it, in order, by queue, by key and by id.

What is in it comes from `tests.oracle`, which shares no code with the project; what was meant to be in it the tests compare
themselves.
"""

from __future__ import annotations

import contextlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from tests.interop.broker import Broker
from tests.interop.checks import changes, content, findings
from tests.oracle import Row, data_end, key_tokens, read_store
from tests.synthetic.messages import java_hash

__all__ = ["Boot", "assert_found_by_uniq_key", "assert_pulled", "assert_serves", "by_queue", "send_more", "serving"]

T = TypeVar("T")
Boot = Callable[..., Broker]

COMPRESSED = 0x1
OF_A_MESSAGE = (
    *("topic", "queueId", "queueOffset", "commitLogOffset", "storeSize", "flag", "bodyCRC"),
    *("bornTimestamp", "bornHost", "storeTimestamp", "storeHost", "reconsumeTimes", "preparedTransactionOffset"),
    *("body", "properties"),
)
OF_THE_BROKER = ("RMQ_SYS_", "rmq_sys_", "SCHEDULE_TOPIC_XXXX")
"""Prefixes of topics that clients are not given."""
MOST_HITS = 64
"""A broker looks no further, collisions of hashes counted."""


def by_queue(rows: Iterable[Row]) -> dict[tuple[str, int], list[Row]]:
    """Rows of messages that stand in a queue, by (topic, queueId), in log order."""
    queues = defaultdict(list)
    for row in rows:
        if row["sysFlag"] & 0xC not in (0x4, 0xC):  # prepared, rolled back
            queues[row["topic"], row["queueId"]].append(row)
    return dict(queues)


def comparable(row: Row) -> Row:
    """What a client has of a message. 5.x takes the compressed bit out of sysFlag when it decompresses, 4.x leaves it."""
    return {name: row[name] for name in OF_A_MESSAGE} | {"sysFlag": row["sysFlag"] & ~COMPRESSED}


def assert_pulled(broker: Broker, rows: Sequence[Row]) -> None:
    """Each queue gives exactly its messages, in order."""
    for (topic, queue_id), expected in by_queue(rows).items():
        first, end = broker.client.ends(topic, queue_id)
        assert (first, end) == (expected[0]["queueOffset"], expected[-1]["queueOffset"] + 1), (topic, queue_id)
        pulled = broker.client.pull(topic, queue_id)
        assert list(map(comparable, pulled)) == list(map(comparable, expected)), (topic, queue_id)


def assert_found_by_key(broker: Broker, rows: Sequence[Row], most: int = 150) -> None:
    """Up to `most` keys, from all over the log, find all their messages."""
    expected = defaultdict(set)
    entries: Counter[int] = Counter()
    for row in rows:
        keys = key_tokens(row)
        entries.update(java_hash(f"{row['topic']}#{key}") for key in [*keys, row["uniqKey"]])
        for key in keys:
            expected[row["topic"], key].add(row["commitLogOffset"])
    for (topic, key), places in spread(list(expected.items()), most):
        found = {row["commitLogOffset"] for row in broker.client.query(topic, key)}
        whole = entries[java_hash(f"{topic}#{key}")] < MOST_HITS
        assert found == places if whole else found and found <= places, (topic, key, places ^ found)


def assert_found_by_uniq_key(broker: Broker, rows: Sequence[Row], most: int = 50) -> None:
    """Likewise by UNIQ_KEY. It holds a time of the month, and clients look no further back: none of another month."""
    for row in spread([row for row in rows if row["uniqKey"]], most):
        assert comparable(broker.client.unique(row["topic"], row["uniqKey"])) == comparable(row)


def assert_found_by_id(broker: Broker, rows: Sequence[Row], most: int = 100) -> None:
    """Up to `most` offsetMsgIds, from all over the log, find their messages."""
    for row in spread(rows, most):
        assert comparable(broker.client.view(row["topic"], row["offsetMsgId"])) == comparable(row)


def assert_serves(broker: Broker, rows: Sequence[Row]) -> None:
    """As a client sees it: what the broker keeps in topics of its own is left out."""
    visible = [row for row in rows if not row["topic"].startswith(OF_THE_BROKER) and row["sysFlag"] & 0xC != 0xC]
    assert_pulled(broker, visible)
    assert_found_by_key(broker, visible)
    assert_found_by_id(broker, visible)


def spread(items: Sequence[T], most: int) -> Sequence[T]:
    """At most so many of them, the first and the last among them."""
    if len(items) <= most:
        return items
    return [items[number * (len(items) - 1) // (most - 1)] for number in range(most)]


@contextlib.contextmanager
def serving(boot: Boot, version: str, store: Path, **settings: object) -> Iterator[Broker]:
    """A broker that has taken `store` as it is and serves all of it, to be used further; it stops at the end.

    The store was stopped cleanly. AssertionError where the broker changed a file of log, queues or index before anything was
    sent to it, where messages are not pulled, not found, in another order or not equal, and, at the end, for what its log tells
    of anything but a clean start.
    """
    rows, end, before = read_store(store), data_end(store), content(store)
    with boot(version, store, **settings) as broker:
        assert_serves(broker, rows)
        assert not changes(before, content(store))
        yield broker
    assert not findings(broker.log(), end)


def send_more(broker: Broker, queues: Iterable[tuple[str, int]], each: int = 3) -> list[Row]:
    """Sends to each queue; what was sent, as far as the sender knows it."""
    sent = []
    for topic, queue_id in queues:
        for number in range(each):
            body = f"sent to {topic} {queue_id}, {number}".encode()
            key = f"sent-{queue_id}-{number}"
            answer = broker.client.send(topic, queue_id, body, tags="Sent", keys=key)
            sent.append(
                {"topic": topic, "queueId": queue_id, "body": body, "tags": "Sent", "keys": key}
                | {"queueOffset": answer["queueOffset"], "uniqKey": answer["msgId"], "offsetMsgId": answer["offsetMsgId"]}
            )
    return sent
