"""A writer that is killed, at every named step and at any operation: readers see the old store or the new one, whole."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import store_core
from store_core.steps import STEPS, hook
from store_core.writeoptions import parse_write_options
from store_core.writing import WriteJob, abandon
from tests.core.killing import NEW, SIZES, WRITES, Nursery, begin, rows
from tests.oracle import dangling_entries

STEPS_OF = {
    "create": ("batch written", "log written", "queues written", "index written", "config written",
               "synced", "staging removed", "new moved in"),
    "overwrite": ("batch written", "log written", "queues written", "index written", "config written",
                  "synced", "staging removed", "swap noted", "old moved away", "new moved in", "old removed", "swap forgotten"),
    "append": ("staged", "surveyed", "journal written", "lock emptied", "abort made", "config written", "batch written",
               "log written", "queues written", "index written", "synced", "published", "moved", "abort removed",
               "lock restored", "journal removed", "staging removed"),
}  # fmt: skip
"""In the order in which they are reached. `undoing` is a step of the next writer."""
CASES = [(write, step) for write, steps in STEPS_OF.items() for step in steps]
MORE = rows(500, 3, ("A", "D"))


@dataclass(frozen=True)
class Seen:
    """All rows of the three tables of a store, and the bytes of its data files; None for no store."""

    tables: tuple[pa.Table, ...] | None
    files: dict[str, bytes] | None = None

    def same_rows(self, other: Seen) -> bool:
        if self.tables is None or other.tables is None:
            return self.tables is other.tables
        return all(a.equals(b) for a, b in zip(self.tables, other.tables, strict=True))


def look(path: Path) -> Seen:
    try:
        store = store_core.open_store(path)
    except store_core.StoreNotFoundError:
        return Seen(None)
    orders = {"messages": "commitLogOffset", "consumequeue": "commitLogOffset", "index": "indexNo"}
    tables = []
    for table, order in orders.items():
        found = store.scan(table=table).read_all()
        found = found.drop_columns([name for name in ("sourceFile", "properties") if name in found.column_names])
        tables.append(found.sort_by([(order, "ascending"), ("commitLogOffset", "ascending")]))
    key = store.lookup("A", "k52")
    return Seen((*tables, key.drop_columns(["properties"])), None)


def data(path: Path) -> dict[str, bytes]:
    """The content of all files that a broker reads messages by. Index files are named by times, here those of messages."""
    return {
        str(file.relative_to(path)): file.read_bytes()
        for folder in ("commitlog", "consumequeue", "index")
        for file in sorted((path / folder).rglob("*"))
        if file.is_file()
    }


@dataclass(frozen=True)
class World:
    """What the store is before and after each write, and after the write behind it (`MORE` appended)."""

    old: Path
    before: dict[str, Seen]
    after: dict[str, Seen]
    bytes_before: dict[str, dict[str, bytes]]
    bytes_after: dict[str, dict[str, bytes]]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    folder = tmp_path_factory.mktemp("crash")
    old = folder / "old"
    begin(old)
    before: dict[str, Any] = {}
    after: dict[str, Any] = {}
    bytes_before: dict[str, Any] = {}
    bytes_after: dict[str, Any] = {}
    for write, do in WRITES.items():
        path = folder / write
        if write != "create":
            shutil.copytree(old, path)
        for seen, kept in ((before, bytes_before), (after, bytes_after)):
            if seen is after:
                do(path)
            seen[write] = look(path)
            again = folder / f"{write}-more"
            if path.exists():
                shutil.copytree(path, again)
            store_core.append(again, MORE, **({} if path.exists() else SIZES))
            kept[write] = data(again)
            shutil.rmtree(again)
    return World(old, before, after, bytes_before, bytes_after)


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    made = Nursery()
    yield made
    made.close()


def check(world: World, write: str, path: Path) -> str:
    """What a reader sees, and what the next writer makes of it: `old` or `new`."""
    if path.exists():
        assert not dangling_entries(path), "a broker that is started now would keep these"
    seen = look(path)
    assert look(path).same_rows(seen), "a reader changed what it read"
    which = "old" if seen.same_rows(world.before[write]) else "new"
    expected = (world.before if which == "old" else world.after)[write]
    assert seen.same_rows(expected)
    options = {} if path.exists() else SIZES
    store_core.append(path, MORE, **options)
    assert data(path) == (world.bytes_before if which == "old" else world.bytes_after)[write]
    left = [p.name for p in path.iterdir() if p.name.startswith(".") or p.name == "abort"]
    assert not [name for name in left if not name.startswith(".rmq-staging-")]
    beside = [p.name for p in path.parent.iterdir() if p != path]
    assert not [name for name in beside if not name.startswith(f".{path.name}.rmq-new-")]
    assert (path / "lock").read_bytes() == b"lock"
    return which


def start(world: World, write: str, folder: Path) -> Path:
    path = folder / "store"
    if write != "create":
        shutil.copytree(world.old, path)
    return path


@pytest.mark.parametrize(("write", "step"), CASES, ids=[f"{write}, {step}" for write, step in CASES])
def test_killed_at_a_step(write: str, step: str, world: World, nursery: Nursery, tmp_path: Path) -> None:
    path = start(world, write, tmp_path)
    assert nursery.kill(path, write, 1, step), "the step was not reached"
    which = check(world, write, path)
    published = {"create": "new moved in", "overwrite": "old moved away", "append": "published"}[write]
    steps = STEPS_OF[write]
    assert which == ("new" if steps.index(step) >= steps.index(published) else "old")


@pytest.mark.parametrize(("write", "step"), CASES, ids=[f"{write}, {step}" for write, step in CASES])
def test_interrupted_at_a_step(write: str, step: str, world: World, tmp_path: Path) -> None:
    """As by Ctrl-C: the writer itself has the time to clean up, and must not clean up what is published."""
    path = start(world, write, tmp_path)

    def interrupt(at: str) -> None:
        if at == step:
            hook.remove(interrupt)
            raise KeyboardInterrupt

    hook.append(interrupt)
    with pytest.raises(KeyboardInterrupt):
        WRITES[write](path)
    which = check(world, write, path)
    published = {"create": "new moved in", "overwrite": "new moved in", "append": "published"}[write]
    steps = STEPS_OF[write]
    assert which == ("new" if steps.index(step) >= steps.index(published) else "old")
    assert [p.name for p in tmp_path.iterdir()] == ["store"]


@pytest.mark.parametrize(("write", "step"), CASES, ids=[f"{write}, {step}" for write, step in CASES])
def test_killed_at_a_step_and_abandoned_by_another(
    write: str, step: str, world: World, nursery: Nursery, tmp_path: Path
) -> None:
    """Spark calls `commit` in one process and, where that dies, `abort` in another."""
    path = start(world, write, tmp_path)
    assert nursery.kill(path, write, 1, step)
    found = [*path.parent.glob(f".{path.name}.rmq-new-*"), *path.glob(".rmq-staging-*")]
    for folder in found:
        build, staging = (str(folder), "") if folder.parent == tmp_path else (None, str(folder))
        abandon(WriteJob(str(path), write, parse_write_options({}), build, staging, 0, {}, None))
    check(world, write, path)


def test_all_steps_are_tried() -> None:
    assert {step for steps in STEPS_OF.values() for step in steps} | {"undoing"} == set(STEPS)


RECOVERIES = [("index written", step) for step in ("undoing", "abort removed", "lock restored", "journal removed")] + [
    ("published", step) for step in ("moved", "abort removed", "lock restored", "journal removed")
]


@pytest.mark.parametrize(("first", "second"), RECOVERIES)
def test_the_next_writer_is_killed_while_it_recovers(
    first: str, second: str, world: World, nursery: Nursery, tmp_path: Path
) -> None:
    for count in (1, 2):
        path = start(world, "append", tmp_path / str(count))
        assert nursery.kill(path, "append", 1, first)
        killed = nursery.kill(path, "recover", count, second)
        assert killed or count == 2
        assert check(world, "append", path) == ("new" if first == "published" else "old")


def test_a_store_behind_a_link(world: World, nursery: Nursery, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    path = start(world, "overwrite", tmp_path / "disk")
    link = tmp_path / "link"
    link.symlink_to(path)
    assert nursery.kill(link, "overwrite", 1, "old moved away") and not path.exists()
    assert look(link).same_rows(world.after["overwrite"])
    store_core.append(link, MORE)
    assert link.is_symlink() and data(path) == world.bytes_after["overwrite"]
    assert [p.name for p in (tmp_path / "disk").iterdir()] == ["store"]


def any_operation(world: World, nursery: Nursery, folder: Path, seed: int, tries: int) -> None:
    chance = random.Random(seed)
    for number in range(tries):
        write = chance.choice(list(WRITES))
        path = start(world, write, folder / str(number))
        if nursery.kill(path, write, chance.randrange(1, 150)) or path.exists():
            check(world, write, path)
        shutil.rmtree(folder / str(number), ignore_errors=True)


def test_killed_at_any_operation(world: World, nursery: Nursery, tmp_path: Path) -> None:
    any_operation(world, nursery, tmp_path, 1, 12)


@pytest.mark.slow
def test_killed_at_any_operation_many_times(world: World, nursery: Nursery, tmp_path: Path) -> None:
    any_operation(world, nursery, tmp_path, 2, 200)


def test_new_rows_are_what_was_written(world: World) -> None:
    after = world.after["append"].tables
    assert after is not None and after[0].num_rows == 53 + NEW.num_rows
