"""The harness itself: it passes stores that brokers wrote, and sees what a broker does to damaged ones."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.interop.checks import changes, content, findings
from tests.interop.served import Boot, assert_pulled, send_more, serving
from tests.oracle import Row, data_end, read_store

SIZES = {"mappedFileSizeCommitLog": 262144, "mappedFileSizeConsumeQueue": 2000, "maxHashSlotNum": 200, "maxIndexNum": 800}


@pytest.mark.parametrize(("version", "name"), [("4.9.7", "plain-4.9.7"), ("5.3.3", "mixed-5.3.3"), ("5.5.0", "crc-5.5.0")])
def test_what_a_broker_wrote_is_sound(boot: Boot, fresh_golden: Callable[[str], Path], version: str, name: str) -> None:
    store = fresh_golden(name)
    port = int(read_store(store)[0]["storeHost"].rpartition(":")[2])
    with serving(boot, version, store, port=port, **SIZES) as broker:
        sent = send_more(broker, [("Orders", 1)])
        assert broker.client.pull("Orders", 1)[-1]["body"] == sent[-1]["body"]
        assert broker.client.query("Orders", sent[0]["keys"])[0]["properties"]["UNIQ_KEY"] == sent[0]["uniqKey"]


def log_file(store: Path, row: Row) -> tuple[Path, int]:
    size = SIZES["mappedFileSizeCommitLog"]
    return store / "commitlog" / f"{row['commitLogOffset'] // size * size:020d}", row["commitLogOffset"] % size


def flip(file: Path, position: int) -> None:
    data = bytearray(file.read_bytes())
    data[position] ^= 1
    file.write_bytes(data)


def body(store: Path, rows: list[Row]) -> None:
    row = next(row for row in reversed(rows[:-3]) if row["bodyLength"] > 20)
    file, position = log_file(store, row)
    flip(file, position + 90)


def magic(store: Path, rows: list[Row]) -> None:
    file, position = log_file(store, rows[-4])
    flip(file, position + 5)


def unclean(store: Path, rows: list[Row]) -> None:
    (store / "abort").touch()


def no_queues(store: Path, rows: list[Row]) -> None:
    shutil.rmtree(store / "consumequeue")


def queue_too_long(store: Path, rows: list[Row]) -> None:
    """An entry that points behind the log."""
    row = rows[-1]
    count = max(each["queueOffset"] for each in rows if (each["topic"], each["queueId"]) == ("Orders", 0)) + 1
    file = store / "consumequeue" / "Orders" / "0" / f"{0:020d}"
    data = bytearray(file.read_bytes())
    data[count * 20 : count * 20 + 20] = struct.pack(">qiq", row["commitLogOffset"] + row["storeSize"], 100, 0)
    file.write_bytes(data)


@pytest.mark.parametrize("damage", [body, magic, unclean, no_queues, queue_too_long])
@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_what_a_broker_repairs_is_found(
    boot: Boot, fresh_golden: Callable[[str], Path], version: str, damage: Callable[[Path, list[Row]], None]
) -> None:
    store = fresh_golden("plain-4.9.7")
    damage(store, read_store(store))
    end, before = data_end(store), content(store)
    with boot(version, store, **SIZES) as broker:
        changed = changes(before, content(store))
        broker.kill()  # what it did, it did at its start
    assert findings(broker.log(), end) or changed


@pytest.mark.parametrize("damage", ["shifted", "wrong place"])
def test_what_a_broker_serves_wrong_is_found(boot: Boot, fresh_golden: Callable[[str], Path], damage: str) -> None:
    store = fresh_golden("mixed-5.3.3")
    rows = read_store(store)
    if damage == "shifted":
        file = store / "consumequeue" / "Orders" / "0" / f"{0:020d}"
        file.write_bytes(file.read_bytes()[20:] + bytes(20))
    else:
        file, position = log_file(store, rows[-4])
        flip(file, position + 28 + 7)  # its physicalOffset
    with boot("5.3.3", store, **SIZES) as broker, pytest.raises(AssertionError):
        try:
            assert_pulled(broker, rows)
        finally:
            broker.kill()
