"""Appends that were killed, under real brokers: they serve the old store and a part of the new rows, and go on from there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import store_core
from tests.core.killing import NEW, OLD, SIZES, Nursery, begin, rows
from tests.interop.checks import end_of_log
from tests.interop.served import Boot, send_more
from tests.oracle import dangling_entries, data_end, read_store

MORE = rows(500, 3, ("A", "D")).drop_columns(["storeTimestamp", "bornTimestamp"])


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    made = Nursery()
    yield made
    made.close()


def expected(topic: str, queue_id: int) -> list[bytes]:
    """The bodies of a queue, old and new, in order."""
    found = []
    for part in (OLD, NEW):
        for row in part.select(["topic", "queueId", "body"]).to_pylist():
            if (row["topic"], row["queueId"]) == (topic, queue_id):
                found.append(row["body"])
    return found


@pytest.mark.parametrize(
    ("version", "step"),
    [
        *(
            ("5.5.0", step)
            for step in ("abort made", "batch written", "log written", "index written", "published", "abort removed")
        ),
        *(("4.9.7", step) for step in ("log written", "published")),
    ],
)
def test_a_broker_takes_over_an_append_that_was_killed(
    boot: Boot, nursery: Nursery, tmp_path: Path, version: str, step: str
) -> None:
    store = tmp_path / "store"
    begin(store)
    assert nursery.kill(store, "append", 1, step), "the step was not reached"
    with boot(version, store, **SIZES) as broker:
        # C is new: before the first message goes into the log, the broker is told of it
        topics = ("A", "B") if step == "abort made" else ("A", "B", "C")
        queues = {(topic, queue): broker.client.pull(topic, queue) for topic in topics for queue in (0, 1)}
        sent = send_more(broker, [("A", 1), ("B", 0)])
    for (topic, queue), pulled in queues.items():
        wanted = expected(topic, queue)
        old = sum(row == (topic, queue) for row in zip(OLD["topic"].to_pylist(), OLD["queueId"].to_pylist(), strict=True))
        assert old <= len(pulled) <= len(wanted)
        assert [row["body"] for row in pulled] == wanted[: len(pulled)]

    on_disk = read_store(store)
    for place, pulled in queues.items():
        stored = [row["body"] for row in on_disk if (row["topic"], row["queueId"]) == place]
        assert [row["body"] for row in pulled] == [body for body in stored if not body.startswith(b"sent to")]
    assert not dangling_entries(store)
    assert end_of_log(broker.log()) <= data_end(store)
    assert [row["body"] for row in on_disk[-len(sent) :]] == [row["body"] for row in sent]
    assert bodies(store) == [row["body"] for row in on_disk]
    store_core.append(store, MORE)
    assert bodies(store) == [*(row["body"] for row in on_disk), *MORE["body"].to_pylist()]


def bodies(store: Path) -> list[bytes]:
    found: list[bytes] = store_core.open_store(store).scan(columns=["body"]).read_all()["body"].to_pylist()
    return found
