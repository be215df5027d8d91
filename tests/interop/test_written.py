"""Stores that we wrote, under real brokers: taken as they are, served whole, appended to by both in turn, read."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import store_core
from tests.interop.broker import free_port
from tests.interop.checks import changes, content, end_of_log
from tests.interop.given import LONG_TOPIC, V6_HOSTS, assert_holds, messages, table
from tests.interop.served import Boot, assert_found_by_uniq_key, assert_serves, by_queue, send_more, serving
from tests.oracle import Row, data_end, read_store

SIZES: dict[str, Any] = {
    "mappedFileSizeCommitLog": 65536,
    "mappedFileSizeConsumeQueue": 2000,
    "maxHashSlotNum": 200,
    "maxIndexNum": 800,
}
SMALL: dict[str, Any] = {
    "mappedFileSizeCommitLog": 16384,
    "mappedFileSizeConsumeQueue": 400,
    "maxHashSlotNum": 50,
    "maxIndexNum": 300,
}


@dataclass(frozen=True)
class Scenario:
    """Messages, how they are written, and what the broker is told.

    messages: for `given.messages`. writes: options of one write after the other; the first makes the store. broker: settings.
    """

    messages: dict[str, Any]
    writes: Sequence[dict[str, Any]] = ({},)
    sizes: dict[str, Any] = field(default_factory=lambda: SIZES)
    broker: dict[str, Any] = field(default_factory=dict)
    store_host: str = "127.0.0.1"


SCENARIOS = {
    "plain": Scenario({"n": 400}),
    "compressed": Scenario(
        {"n": 90, "text": True, "body": 20_000}, [{"compression": kind} for kind in ("zlib", "lz4", "zstd")], {**SIZES}
    ),
    "ipv6": Scenario({"n": 200, "hosts": V6_HOSTS}, store_host="[0:0:0:0:0:0:0:1]"),
    "many files": Scenario({"n": 1200, "body": 400}, sizes=SMALL),
}
NEWER = {
    "long topic": Scenario({"n": 200, "topics": ("Orders", LONG_TOPIC)}),
    "crc property": Scenario(
        {"n": 200}, [{"enabledAppendPropCRC": True}], broker={"enabledAppendPropCRC": "true", "forceVerifyPropCRC": "true"}
    ),
}
CASES = [
    ("5.1.4", "long topic"),
    *((version, name) for version in ("4.9.7", "5.3.3", "5.5.0") for name in SCENARIOS),
    *((version, name) for version in ("5.3.3", "5.5.0") for name in NEWER),
]


def write(store: Path, scenario: Scenario, given: Sequence[Row], version: str) -> None:
    share = -(-len(given) // len(scenario.writes))
    for number, options in enumerate(scenario.writes):
        rows = table(given[number * share : (number + 1) * share])
        if number:
            store_core.append(store, rows, **options)
        else:
            store_core.create_store(store, rows, targetVersion=version, **scenario.sizes, **options)


@pytest.mark.parametrize(("version", "name"), CASES)
def test_a_broker_serves_what_we_wrote(boot: Boot, tmp_path: Path, version: str, name: str) -> None:
    scenario = {**SCENARIOS, **NEWER}[name]
    store, port = tmp_path / "store", free_port()
    given = messages(store_host=f"{scenario.store_host}:{port}", **scenario.messages)
    write(store, scenario, given, version)
    rows = assert_holds(store, given)
    if name == "many files":
        assert len(list((store / "commitlog").iterdir())) > 10 and len(list((store / "index").iterdir())) > 3

    with serving(boot, version, store, port=port, **scenario.sizes, **scenario.broker) as broker:
        assert_found_by_uniq_key(broker, rows)
        sent = send_more(broker, [queue for queue in by_queue(rows) if queue[0] != LONG_TOPIC][:5])

    found = store_core.open_store(store).scan(columns=["topic", "queueId", "queueOffset", "body"]).read_all().to_pylist()
    assert found[: len(given)] == [{name: row[name] for name in found[0]} for row in rows]
    assert found[len(given) :] == [{name: row[name] for name in found[0]} for row in sent]


def test_broker_and_writer_append_in_turn(boot: Boot, tmp_path: Path, version: str) -> None:
    """Written twice, appended to by the broker, again by us, and again by the broker."""
    store, port = tmp_path / "store", free_port()
    host = f"127.0.0.1:{port}"
    first, second = (messages(150, host, seed=seed, queues=3, ago=ago) for seed, ago in ((1, 10_000), (2, 5000)))
    store_core.create_store(store, table(first), targetVersion=version, **SMALL)
    store_core.append(store, table(second))
    known = [(row["topic"], row["body"]) for row in assert_holds(store, [*first, *second])]
    for parts in ({"n": 150, "seed": 3}, {"n": 10, "seed": 4, "topics": ("New",)}):
        with serving(boot, version, store, port=port, **SMALL) as broker:
            known += [(row["topic"], row["body"]) for row in send_more(broker, [("Orders", 0), ("Payments", 2), ("Orders", 0)])]
        rows = messages(store_host=host, ago=0, **parts)
        store_core.append(store, table(rows))
        known += [(row["topic"], row["body"]) for row in rows]
        assert [(row["topic"], row["body"]) for row in read_store(store)] == known
    with serving(boot, version, store, port=port, **SMALL) as broker:
        consumed = broker.client.consume("new-readers", "Orders", sum(topic == "Orders" for topic, _ in known))
    written = by_queue(row for row in read_store(store) if row["topic"] == "Orders")
    assert {queue: [row["body"] for row in rows] for queue, rows in by_queue(consumed).items()} == {
        queue: [row["body"] for row in rows] for queue, rows in written.items()
    }


def test_what_we_left_open_a_broker_has_the_same_defaults_for(boot: Boot, tmp_path: Path) -> None:
    """Topic and body alone, and files of RocketMQ's own sizes."""
    store, port = tmp_path / "store", free_port()
    rows = pa.table({"topic": ["Orders", "Payments"] * 50, "body": [b"%d" % number for number in range(100)]})
    store_core.create_store(store, rows, storeHost=f"127.0.0.1:{port}")
    with serving(boot, "5.3.3", store, port=port) as broker:
        sent = send_more(broker, [("Orders", 0), ("Payments", 7)])
    assert [row["body"] for row in read_store(store)] == [*rows["body"].to_pylist(), *(row["body"] for row in sent)]


def test_rebuilt_queues_and_index_are_served(boot: Boot, tmp_path: Path, version: str) -> None:
    store, port = tmp_path / "store", free_port()
    given = messages(400, f"127.0.0.1:{port}")
    store_core.create_store(store, table(given), targetVersion=version, **SMALL)
    shutil.rmtree(store / "consumequeue")
    shutil.rmtree(store / "index")
    sizes = {name: size for name, size in SMALL.items() if name != "mappedFileSizeCommitLog"}
    store_core.rebuild(store, indexTags=version == "5.5.0", **sizes)
    with serving(boot, version, store, port=port, **SMALL) as broker:
        send_more(broker, [("Orders", 0)])


def test_a_brokers_own_recovery_of_our_log_makes_our_queues_and_index(boot: Boot, tmp_path: Path, version: str) -> None:
    """From the log alone, all of it read and every CRC checked: same end, same queues, same index."""
    ours, theirs, port = tmp_path / "ours", tmp_path / "theirs", free_port()
    given = messages(800, f"127.0.0.1:{port}", body=500)
    store_core.create_store(ours, table(given), targetVersion=version, **SMALL)
    shutil.copytree(ours, theirs, ignore=shutil.ignore_patterns("consumequeue", "index", "checkpoint"))
    (theirs / "abort").touch()
    recover = {"checkCRCOnRecover": "true", "commitLogRecoverMaxNum": 1_000_000}
    with boot(version, theirs, port=port, **SMALL, **recover) as broker:
        assert_serves(broker, read_store(theirs))
    assert end_of_log(broker.log()) == data_end(ours)
    assert len(list((ours / "commitlog").iterdir())) > 10
    assert not changes(without_index(ours), without_index(theirs))
    ours_index, theirs_index = (sorted((store / "index").iterdir()) for store in (ours, theirs))
    assert [file.read_bytes() for file in ours_index] == [file.read_bytes() for file in theirs_index]  # names are times


def without_index(store: Path) -> dict[str, bytes]:
    return {name: digest for name, digest in content(store).items() if not name.startswith("index/")}
