"""A store is read while its broker runs, writes and is killed: what a client was told is stored is there, each time."""

from __future__ import annotations

import threading
from pathlib import Path

import store_core
from tests.interop.served import Boot, send_more
from tests.oracle import Row

# small files, so that new ones begin under way
SIZES = {"mappedFileSizeCommitLog": 65536, "mappedFileSizeConsumeQueue": 400, "maxHashSlotNum": 50, "maxIndexNum": 200}
QUEUES = [("Orders", 0), ("Orders", 1), ("Payments", 0)]


def test_a_live_store_has_what_was_sent(boot: Boot, tmp_path: Path, version: str) -> None:
    store = tmp_path / "store"
    sent: list[Row] = []
    with boot(version, store, **SIZES) as broker:
        send_more(broker, QUEUES, each=1)  # the broker makes the topics
        sent = [row for row in rows_of(store) if row["topic"] in ("Orders", "Payments")]
        for _ in range(8):
            sent += send_more(broker, QUEUES, each=10)
            check(store, sent)
        reader = Reader(store)
        reader.start()
        sent += send_more(broker, QUEUES, each=100)
        reader.stop = True
        reader.join()
        assert not reader.wrong, reader.wrong[0]
        assert len(reader.counts) > 3 and reader.counts == sorted(reader.counts)
        broker.kill()
    check(store, sent)


def check(store: Path, sent: list[Row]) -> None:
    """By a scan, by queue, and by key of the newest messages, which the index may not have yet."""
    opened = store_core.open_store(store)
    ours = [row for row in rows_of(store) if row["topic"] in ("Orders", "Payments")]
    assert [row["body"] for row in ours] == [row["body"] for row in sent]
    for topic, queue_id in QUEUES:
        found = opened.scan(subscribe=topic, where=[("queueId", "=", queue_id)], columns=["body", "queueOffset"]).read_all()
        found = found.sort_by("queueOffset")
        assert found["body"].to_pylist() == [r["body"] for r in sent if (r["topic"], r["queueId"]) == (topic, queue_id)]
    for row in sent[-3:]:
        keyed = opened.lookup(row["topic"], row["keys"], columns=["body"])["body"].to_pylist()
        assert keyed == [r["body"] for r in sent if (r["topic"], r["keys"]) == (row["topic"], row["keys"])]
        unique = opened.scan(uniqKeys=row["uniqKey"], columns=["body"]).read_all()["body"].to_pylist()
        assert unique == [row["body"]]


def rows_of(store: Path) -> list[Row]:
    rows: list[Row] = store_core.open_store(store).scan().read_all().sort_by("commitLogOffset").to_pylist()
    return rows


class Reader(threading.Thread):
    """Reads all, again and again, while messages come."""

    def __init__(self, store: Path) -> None:
        super().__init__()
        self.store = store
        self.stop = False
        self.wrong: list[str] = []
        self.counts: list[int] = []

    def run(self) -> None:
        while not self.stop:
            try:
                found = store_core.open_store(self.store).scan(columns=["topic", "queueId", "queueOffset"])
                rows = found.read_all().to_pylist()
            except Exception as e:
                self.wrong.append(f"{type(e).__name__}: {e}")
                return
            self.counts.append(len(rows))
            for queue in QUEUES:
                numbers = sorted(row["queueOffset"] for row in rows if (row["topic"], row["queueId"]) == queue)
                if numbers != list(range(len(numbers))):
                    self.wrong.append(f"{queue}: {numbers}")
