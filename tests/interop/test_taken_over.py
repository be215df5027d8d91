"""Stores that brokers wrote, after we wrote to them, or anew: under brokers of the same version."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import store_core
from tests.interop.broker import free_port
from tests.interop.given import messages, table
from tests.interop.served import Boot, send_more, serving
from tests.oracle import Row, read_store

SIZES: dict[str, Any] = {
    "mappedFileSizeCommitLog": 262144,
    "mappedFileSizeConsumeQueue": 2000,
    "maxHashSlotNum": 200,
    "maxIndexNum": 800,
}
GOLDEN = [("4.9.7", "plain-4.9.7"), ("5.3.3", "mixed-5.3.3"), ("5.5.0", "crc-5.5.0")]


def port_of(rows: list[Row]) -> int:
    """The broker's own, which its messages' ids name."""
    return int(rows[0]["storeHost"].rpartition(":")[2])


@pytest.mark.parametrize(("version", "name"), GOLDEN)
def test_appended_to(boot: Boot, fresh_golden: Callable[[str], Path], version: str, name: str) -> None:
    store = fresh_golden(name)
    before = read_store(store)
    port = port_of(before)
    given = messages(400, f"127.0.0.1:{port}", topics=("Orders", "Added"))
    store_core.append(store, table(given))
    after = read_store(store)
    assert after[: len(before)] == before
    assert [(row["topic"], row["body"]) for row in after[len(before) :]] == [(row["topic"], row["body"]) for row in given]
    with serving(boot, version, store, port=port, **SIZES) as broker:
        sent = send_more(broker, [("Orders", 1), ("Added", 0)])
    assert [row["body"] for row in read_store(store)[len(after) :]][: len(sent)] == [row["body"] for row in sent]


@pytest.mark.parametrize("name", ["mixed-5.3.3", "ipv6-5.3.3"])
def test_copied_with_everything_preserved(boot: Boot, golden: Callable[[str], Path], tmp_path: Path, name: str) -> None:
    """With timers off: a copy has no timer wheel, and a broker without one delivers all timed messages again."""
    source, store = golden(name), tmp_path / "store"
    rows = store_core.open_store(source, bodyFormat="raw", extraColumns="propertiesString").scan()
    store_core.create_store(store, rows, preserve=True, systemTopics=True, configFrom=source, **SIZES)
    port = port_of(read_store(store))
    with serving(boot, "5.3.3", store, port=port, timerWheelEnable="false", **SIZES) as broker:
        send_more(broker, [("Orders", 1)])


def test_a_topic_filtered_and_redacted_in_place(boot: Boot, fresh_golden: Callable[[str], Path]) -> None:
    """Overwritten by a part of itself: new places, new queueOffsets, other bodies."""
    store, port = fresh_golden("mixed-5.3.3"), free_port()
    rows = store_core.open_store(store).scan(where=[("topic", "=", "Orders"), ("queueId", "<", 2)]).read_all()
    rows = (
        rows.sort_by("commitLogOffset").select(["topic", "queueId", "body", "tags", "keys", "storeTimestamp"]).combine_chunks()
    )
    redacted = pa.array([b"redacted %d" % number for number in range(len(rows))])
    rows = rows.set_column(2, "body", redacted)
    store_core.create_store(store, rows, mode="overwrite", storeHost=f"127.0.0.1:{port}", **SIZES)
    assert [row["body"] for row in read_store(store)] == rows["body"].to_pylist()
    with serving(boot, "5.3.3", store, port=port, **SIZES) as broker:
        send_more(broker, [("Orders", 1)])
