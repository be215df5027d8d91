"""Random messages that reach every corner of the format, with few topics and keys, so that queries hit."""

from __future__ import annotations

import random
from dataclasses import replace

from tests.synthetic.messages import Message
from tests.synthetic.queues import SCHEDULE_TOPIC
from tests.synthetic.store import BATCH_TOPIC

__all__ = ["GROUP_TOPIC", "KEYS", "TAGS", "TOPICS", "random_messages"]

START = 1_735_901_092_000
GROUP_TOPIC = "%RETRY%" + "group-" * 21
"""Over 127 bytes: a V2 record."""
TOPICS = ("Orders", "Payments", "TopicTest", "%RETRY%readers", SCHEDULE_TOPIC, GROUP_TOPIC)
TAGS = ("TagA", "TagB", "a || b", "标签", "🚀", "")
KEYS = ("Aa", "BB", "AaAa", "BBBB", "order-1", "order-2", "order-3", "键", "🔑", "cskijqs", "T#TagA", "x y")
"""Aa and BB have one hash, and so have AaAa and BBBB; `Orders#cskijqs` hashes to Integer.MIN_VALUE; "T#TagA" is what tag TagA
looks like in an index; "x y" is two keys."""
HOSTS = ("10.0.0.1:40000", "192.168.1.2:10911", "[2001:db8::1]:10911", "[::1]:65535", "[fe80::a:0:b]:1")
PROPERTIES = (
    ("WAIT", "true"),
    ("CLUSTER", "DefaultCluster"),
    ("区域", "eu 🚀"),
    ("empty", ""),
    ("odd", "a\x01b"),
    ("DELAY", "3"),
)


def random_messages(
    rng: random.Random, n: int, *, clock_steps_back: bool = False, inner_batches: bool = False, multi_dispatch: bool = False
) -> list[Message]:
    """`n` messages in log order, their storeTimestamp ascending with many equal ones.

    clock_steps_back: now and then the broker's clock is set back, by up to 1.5 s.
    inner_batches: some messages are inner batches in `BATCH_TOPIC`. multi_dispatch: some stand in `%LMQ%` queues too.
    """
    now = START
    crc = rng.random() < 0.3
    messages = []
    for number in range(n):
        now += rng.choice((0, 0, 0, 1, 7, 300, 1000, 2500, 60_000))
        if clock_steps_back and rng.random() < 0.05:
            now -= rng.randint(1, 1500)
        message = random_message(rng, number, now, crc)
        if inner_batches and rng.random() < 0.1:
            message = inner_batch(rng, message)
        elif multi_dispatch and message.topic in TOPICS[:3] and message.has_queue_entry and rng.random() < 0.15:
            message = replace(message, multiDispatch=tuple(rng.sample(("%LMQ%u0", "%LMQ%u1", "%LMQ%all"), rng.randint(1, 3))))
        messages.append(message)
    return messages


def random_message(rng: random.Random, number: int, now: int, crc: bool) -> Message:
    topic = rng.choices(TOPICS, (8, 5, 5, 2, 2, 1))[0]
    properties = random_properties(rng, number)
    queue_id = rng.randrange(3)
    if topic == SCHEDULE_TOPIC:
        level = rng.choice((1, 2, 3, 18, 99))
        queue_id = min(level, 18) - 1
        properties = [("DELAY", str(level)), ("REAL_TOPIC", "Orders"), *[p for p in properties if p[0] != "DELAY"]]
    transaction = rng.choices((0x0, 0x4, 0x8, 0xC), (17, 1, 1, 1))[0]
    compression = rng.choices((None, "zlib", "zlib-old", "lz4", "zstd"), (12, 1, 1, 1, 1))[0]
    body = random_body(rng)
    return Message(
        topic=topic,
        queueId=queue_id,
        body=body,
        properties=tuple(properties),
        lastSeparator=rng.random() < 0.7,
        crcProperty=crc,
        flag=rng.choice((0, 0, 1, -1, 2**31 - 1)),
        sysFlag=transaction,
        bornTimestamp=now - rng.choice((0, 3, 86_400_000)),
        bornHost=rng.choice(HOSTS),
        storeTimestamp=now,
        storeHost=rng.choice(HOSTS[1:3]),
        reconsumeTimes=rng.choice((0, 0, 0, 1, 16)),
        preparedTransactionOffset=rng.randrange(1 << 40) if transaction == 0x8 else 0,
        compression=compression if body else None,
        version2=True if rng.random() < 0.02 else None,
    )


def random_body(rng: random.Random) -> bytes:
    kind = rng.randrange(6)
    if kind == 0:
        return b""
    if kind == 1:
        return rng.randbytes(rng.randrange(600))
    if kind == 2:
        return b"\xda\xa3\x20\xa7" * rng.randrange(1, 40)  # a body full of magics
    return ("消息 🚀 hello " * rng.randrange(1, 60)).encode()


def random_properties(rng: random.Random, number: int) -> list[tuple[str, str]]:
    if rng.random() < 0.04:
        return []
    pairs = rng.sample(PROPERTIES, rng.randrange(len(PROPERTIES)))
    if rng.random() < 0.9:
        pairs.append(
            ("UNIQ_KEY", f"0A0000013039{rng.randrange(40):04X}" if rng.random() < 0.05 else f"0A000001FFFF{number:04X}")
        )
    if rng.random() < 0.7:
        keys = rng.choices(KEYS, k=rng.choice((1, 1, 1, 2, 3)))
        text = rng.choice((" ", " ", "  ")).join(keys)
        pairs.append(("KEYS", rng.choice((text, text, text, " " + text, text + " ", " "))))
    if rng.random() < 0.7:
        pairs.append(("TAGS", rng.choice(TAGS)))
    rng.shuffle(pairs)
    if rng.random() < 0.1:  # a name that stands twice, as in messages sent as a batch: the last one counts
        name = rng.choice(("UNIQ_KEY", "KEYS", "TAGS", "WAIT"))
        pairs += [(name, rng.choice(("first", "Aa"))), (name, rng.choice(("second", "BB", "")))]
    return pairs


def inner_batch(rng: random.Random, message: Message) -> Message:
    parts = tuple((random_body(rng)[:200], (("KEYS", rng.choice(KEYS)),)) for _ in range(rng.randint(2, 6)))
    return replace(message, topic=BATCH_TOPIC, queueId=0, sysFlag=0, compression=None, inner=parts)
