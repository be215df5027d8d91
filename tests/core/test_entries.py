"""Messages told from their queues' entries alone (`EntrySlice`): what a cheap `count(*)` of a topic leans on."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import Any

import pytest

from store_core import Plan, open_store
from store_core.plan import EntrySlice, Task
from tests.core.rows import full_rows, read_quietly, rows_of, same_rows
from tests.differential import damage_one, random_store
from tests.golden_stores import GOLDEN_NAMES, Golden
from tests.oracle import Row

TOLD = ["topic", "queueId", "queueOffset", "commitLogOffset", "storeSize"]
STORES = 25


def by_entries(plan: Plan) -> bool:
    return any(isinstance(piece, EntrySlice) for task in plan.tasks for piece in task.pieces)


def check(root: Path, rows: list[Row], **options: Any) -> int:
    """Reads every topic, some of its queues and some offsets of those; gives how many reads went by entries."""
    told = 0
    for topic in sorted({row["topic"] for row in rows}):
        store = open_store(root, **options)
        of_topic = [row for row in rows if row["topic"] == topic]
        one = of_topic[len(of_topic) // 2]
        queue, offset = one["queueId"], one["queueOffset"]
        in_queue = [row for row in of_topic if row["queueId"] == queue]
        for more, expected in (
            ([], of_topic),
            ([("queueId", "=", queue)], in_queue),
            (
                [("queueId", "=", queue), ("queueOffset", ">=", offset)],
                [row for row in in_queue if row["queueOffset"] >= offset],
            ),
        ):
            where = [("topic", "=", topic), *more]
            told += by_entries(store.plan(where, TOLD))
            same_rows(rows_of(read_quietly(store, where, TOLD)), expected)
            assert read_quietly(store, where, []).num_rows == len(expected)
    return told


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_stores_of_real_brokers(golden: Golden, name: str) -> None:
    told = check(golden(name), full_rows(golden(name)))
    assert (told > 0) == (not name.startswith("rocksdb")), name


def test_random_stores() -> None:
    """Queues that lag, that lost files, that are not there: what they do not account for is read."""
    told = 0
    for seed in range(STORES):
        told += play(seed, damaged=False)
    assert told > STORES


def test_damaged_queues() -> None:
    told = 0
    for seed in range(STORES):
        told += play(seed, damaged=True)
    assert told > STORES / 2


def play(seed: int, *, damaged: bool) -> int:
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "store"
        random_store(rng).build(root)
        rows = full_rows(root)
        for _ in range(rng.choice((1, 1, 2)) if damaged else 0):
            damage_one(rng, root)
        return check(root, rows, maxPartitionBytes=rng.choice((97, 500, 1 << 20)))


@pytest.mark.parametrize(
    "option", [{"index": "verify"}, {"index": "ignore"}, {"mode": "PERMISSIVE"}, {"mode": "DROPMALFORMED"}, {"verifyCrc": True}]
)
def test_what_only_the_messages_can_tell(golden: Golden, option: dict[str, Any]) -> None:
    """With these, the records themselves are looked at."""
    root = golden("mixed-5.3.3")
    assert check(root, full_rows(root), **option) == 0


def test_it_reads_the_entries_and_hardly_a_message(golden: Golden) -> None:
    store = open_store(golden("mixed-5.3.3"))
    plan = store.plan([("topic", "=", "Orders")], [])
    told = Task(tuple(piece for task in plan.tasks for piece in task.pieces if isinstance(piece, EntrySlice)))
    before = store.files.bytes_read
    assert sum(batch.num_rows for batch in plan.read(told, store.files)) == 186
    assert store.files.bytes_read - before < 40_000 < sum(row["storeSize"] for row in orders(golden)) / 2


def orders(golden: Golden) -> list[Row]:
    return [row for row in full_rows(golden("mixed-5.3.3")) if row["topic"] == "Orders"]
