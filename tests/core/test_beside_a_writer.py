"""Readers beside a writer: whenever a store is opened, a read planned, and its tasks run, what comes out is the store before
the write, or the one after it, or StoreChangedError.
"""

from __future__ import annotations

import pickle
import shutil
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count, islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import store_core
from store_core import Plan, Store, StoreChangedError, journal
from store_core.files import LocalFiles, Stamp, stamp
from store_core.journal import Journal, encode_journal
from tests.core.killing import NEW, OLD, SIZES, WRITES, begin, rows

READS: dict[str, dict[str, Any]] = {
    "messages": {},
    "small tasks": {"maxPartitionBytes": 1000},
    "one queue": {"where": [("topic", "=", "A"), ("queueId", "=", 0)]},
    "new topic": {"where": [("topic", "=", "C")]},
    "told by entries": {"columns": ["topic", "queueOffset", "commitLogOffset"], "subscribe": "A"},
    "old key": {"keys": ["k52"]},
    "new key": {"keys": ["k55"]},
    "times": {"where": [("storeTimestamp", ">=", 1_700_000_000_000 + 700 * 40)]},
    "consumequeue": {"table": "consumequeue"},
    "index": {"table": "index"},
    "verify": {"table": "verify"},
}


class Writer:
    """A write in a thread of its own, which stops at each step until it is told to go on; of the moves, at three."""

    def __init__(self, path: Path, do: Callable[[Path], Any], monkeypatch: pytest.MonkeyPatch) -> None:
        self.steps = 0
        self.done = False
        self._go, self._stopped = threading.Semaphore(0), threading.Semaphore(0)
        self._error: BaseException | None = None

        moved = count()

        def at(step: str) -> None:
            if threading.current_thread() is self._thread and (step != "moved" or next(moved) in (0, 6, 15)):
                self.steps += 1
                self._stopped.release()
                self._go.acquire()

        def run() -> None:
            self._go.acquire()
            try:
                do(path)
            except BaseException as e:
                self._error = e
            self.done = True
            self._stopped.release()

        monkeypatch.setattr("store_core.steps.hook", [at])
        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()

    def step(self) -> None:
        """Lets the write come to its next step, or to its end."""
        if not self.done:
            self._go.release()
            self._stopped.acquire()
        if self._error is not None:
            raise self._error

    def finish(self) -> None:
        while not self.done:
            self.step()


def comparable(table: pa.Table) -> pa.Table:
    """Without what tells in which folder a store stands, and in an order of its own."""
    table = table.drop_columns([n for n in ("sourceFile", "properties", "detail", "path") if n in table.column_names])
    return table.sort_by([(name, "ascending") for name in table.column_names])


def read_all(plan: Plan) -> pa.Table:
    batches = [batch for task in plan.tasks for batch in plan.read(task)]
    return comparable(pa.Table.from_batches(batches, plan.schema))


def open_and_read(path: Path, options: dict[str, Any]) -> pa.Table:
    return read_all(store_core.open_store(path).plan(**options))


def read_rest(plan: Plan, batches: list[pa.RecordBatch], rest: Iterator[pa.RecordBatch]) -> pa.Table:
    return comparable(pa.Table.from_batches([*batches, *rest], plan.schema))


def batches_of(plan: Plan) -> Iterator[pa.RecordBatch]:
    for task in plan.tasks:
        yield from plan.read(task)


def found_by_key(store: Store, topic: str, key: str) -> pa.Table:
    return comparable(store.lookup(topic, key))


def checked(store: Store) -> pa.Table:
    return comparable(store.verify())


def told(info: dict[str, Any]) -> dict[str, Any]:
    files = {name: value for name, value in info["commitLog"].items() if name != "dataBytes"}  # as the disk gave room
    return {"files": files} | {name: info[name] for name in ("clean", "messages", "topics", "index", "lastStoreTimestamp")}


class Stores:
    """The store before and after a write, as all reads see them."""

    def __init__(self, before: Path, after: Path) -> None:
        self.tables: list[dict[str, pa.Table]] = []
        self.infos = []
        for path in (before, after):
            store = store_core.open_store(path)
            self.tables.append({name: read_all(store.plan(**options)) for name, options in READS.items()})
            self.infos.append(told(store.info()))

    def which(self, name: str, read: Callable[..., pa.Table], *given: Any) -> str:
        """`old`, `new`, `either` or `changed`: what `read`, one of READS by name, gives."""
        try:
            found = read(*given)
        except StoreChangedError as e:
            assert "pen it again" in str(e) or "pen the store again" in str(e)
            return "changed"
        return self._name([found.equals(tables[name]) for tables in self.tables], name)

    def which_info(self, store: Store) -> str:
        try:
            found = told(store.info())
        except StoreChangedError:
            return "changed"
        return self._name([found == expected for expected in self.infos], "info")

    def _name(self, same: list[bool], name: str) -> str:
        assert any(same), f"{name}: neither the old store nor the new one"
        return "either" if all(same) else "old" if same[0] else "new"


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("beside") / "old"
    begin(path)
    return path


@pytest.fixture(scope="module", params=["append", "overwrite"])
def write(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def stores(old: Path, write: str, tmp_path_factory: pytest.TempPathFactory) -> Stores:
    after = tmp_path_factory.mktemp("beside") / "store"
    shutil.copytree(old, after)
    WRITES[write](after)
    return Stores(old, after)


@pytest.fixture(autouse=True)
def without_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody pulls the plug here."""
    monkeypatch.setattr("os.fsync", lambda fd: None)


@pytest.fixture
def store(old: Path, tmp_path: Path) -> Path:
    shutil.copytree(old, tmp_path / "store")
    return tmp_path / "store"


def test_opened_planned_and_read_at_any_steps(store: Path, write: str, stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = Writer(store, WRITES[write], monkeypatch)
    opened: list[list[Any]] = [[] for _ in READS]
    plans: dict[bytes, tuple[str, Plan]] = {}
    begun: list[tuple[str, Plan, list[pa.RecordBatch], Iterator[pa.RecordBatch]]] = []
    seen: Counter[tuple[str, str]] = Counter()
    at_once = ["old"]
    while True:
        # what was begun at the step before is read to its end
        for name, plan, batches, rest in begun:
            seen["begun", stores.which(name, read_rest, plan, batches, rest)] += 1
        begun = []
        # opened now, planned now, read now
        now = {stores.which(name, open_and_read, store, options) for name, options in READS.items()}
        now.add(stores.which_info(store_core.open_store(store)))
        now.discard("either")
        assert len(now) == 1
        at_once += now
        # opened now and before, planned now
        for (name, options), held in zip(READS.items(), opened, strict=True):
            held.append(store_core.open_store(store))
            for number, each in enumerate(held):
                try:
                    plan = each.plan(**options)
                except StoreChangedError:
                    seen["planned", "changed"] += 1
                    held[number] = store_core.open_store(store)
                    continue
                plans[pickle.dumps(plan)] = name, plan
        # planned now and before, read now
        for name, plan in plans.values():
            seen["read", stores.which(name, read_all, plan)] += 1
            rest = batches_of(plan)
            try:
                begun.append((name, plan, list(islice(rest, 1)), rest))
            except StoreChangedError:
                seen["begun", "changed"] += 1
        if writer.done:
            break
        writer.step()
    assert "changed" not in at_once
    assert at_once == sorted(at_once, key=["old", "new"].index), "it never goes back"
    assert at_once[-1] == "new"
    assert all(seen[how, which] for how in ("read", "begun") for which in ("old", "new", "changed"))


def test_an_opened_store_is_asked_at_any_step(store: Path, write: str, stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lookups, `info` and `verify` of a store that was opened at a step before, and has all that it keeps."""
    writer = Writer(store, WRITES[write], monkeypatch)
    held: list[Any] = []
    while True:
        held.append(store_core.open_store(store))
        for number, each in enumerate(held):
            found = [
                stores.which("old key", found_by_key, each, "A", "k52"),
                stores.which("new key", found_by_key, each, "B", "k55"),
            ]
            if number % 4 == 0:
                found += [stores.which_info(each), stores.which("verify", checked, each)]
            assert len(set(found) - {"either"}) <= 1
            if "changed" in found:
                assert write == "overwrite"
                held[number] = store_core.open_store(store)
        if writer.done:
            break
        writer.step()
    assert found[1] == "new"


class Listing:
    """In place of `LocalFiles.list`: lets a writer go on by some steps at one of the reader's listings."""

    def __init__(self, writer: Writer, call: int, far: int, monkeypatch: pytest.MonkeyPatch) -> None:
        listed = LocalFiles.list
        calls = count()

        def listing(files: LocalFiles, folder: str) -> Any:
            if threading.current_thread() is threading.main_thread() and next(calls) == call:
                for _ in range(far):
                    writer.step()
            return listed(files, folder)

        monkeypatch.setattr(LocalFiles, "list", listing)


INTERRUPTED = [("messages", 1), ("consumequeue", 3), ("consumequeue", 6), ("consumequeue", 9), ("index", 2), ("one queue", 5)]


@pytest.mark.parametrize("far", [1, 4, 100])
def test_a_writer_goes_on_while_a_reader_lists(
    far: int, old: Path, tmp_path: Path, write: str, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    for first in (3, 7, 11, 12, 13) if write == "append" else (9, 10):
        for name, call in INTERRUPTED:
            path = tmp_path / f"{first}-{name}-{call}" / "store"
            path.parent.mkdir()
            shutil.copytree(old, path)
            with monkeypatch.context() as patch:
                writer = Writer(path, WRITES[write], patch)
                for _ in range(first):
                    writer.step()
                Listing(writer, call, far, patch)
                with warnings.catch_warnings():
                    warnings.simplefilter("error")
                    stores.which(name, open_and_read, path, READS[name])
                writer.finish()
            shutil.rmtree(path.parent)


def test_a_read_of_a_store_that_was_overwritten_since(store: Path) -> None:
    opened = store_core.open_store(store)
    plans = [opened.plan(**options) for options in READS.values()]
    store_core.create_store(store, rows(1000, 400, ("X", "Y")), mode="overwrite", **SIZES)
    for plan in plans:
        for task in plan.tasks:
            with pytest.raises(StoreChangedError, match=r"another store has taken this one's place.*Open it again"):
                list(plan.read(task))
    asks: list[Callable[[], Any]] = [
        opened.plan,
        opened.info,
        opened.verify,
        lambda: opened.lookup("A", "k5"),
        lambda: opened.scan(failOnDataLoss=False),
    ]
    for ask in asks:
        with pytest.raises(StoreChangedError, match="another store has taken this one's place"):
            ask()


def test_a_plan_made_while_an_append_is_written_holds_for_good(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = Writer(store, WRITES["append"], monkeypatch)
    while not list(store.glob(".rmq-staging-*/store/commitlog/*")):
        writer.step()
    names = [name for name in READS if name != "verify"]
    plans = {name: store_core.open_store(store).plan(**READS[name]) for name in names}
    expected = {name: read_all(plan) for name, plan in plans.items()}
    assert len(expected["messages"]) == 53
    writer.finish()
    monkeypatch.undo()
    store_core.append(store, rows(173, 200, ("A", "B", "C")))
    assert all(read_all(plan).equals(expected[name]) for name, plan in plans.items())


def test_a_plan_made_while_an_append_is_moved(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds until the lock is written again: then another append may have been made behind its log's end."""
    writer = Writer(store, WRITES["append"], monkeypatch)
    journal = store / ".rmq-journal.json"
    while not (journal.exists() and b'"published"' in journal.read_bytes()):
        writer.step()
    plans = {name: store_core.open_store(store).plan(**READS[name]) for name in ("messages", "consumequeue", "index")}
    writer.step()
    expected = {name: read_all(plan) for name, plan in plans.items()}
    assert len(expected["messages"]) == 173
    writer.finish()
    monkeypatch.undo()
    store_core.append(store, rows(173, 200, ("A", "B", "C")))
    with pytest.raises(StoreChangedError, match="messages were appended"):
        read_all(plans["messages"])
    assert all(read_all(plans[name]).equals(expected[name]) for name in ("consumequeue", "index"))


def test_a_journal_that_goes_while_it_is_read(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = store / ".rmq-journal.json"
    journal.write_bytes(encode_journal(Journal("publishing", ".rmq-staging-x", {"commitlog/00000000000000000000": (0, 4096)})))
    (store / "lock").write_bytes(b"")
    read = LocalFiles.read

    def gone(files: LocalFiles, path: str, position: int, length: int) -> bytes:
        if path == str(journal) and journal.exists():
            (store / "lock").write_bytes(b"lock")
            journal.unlink()
        return read(files, path, position, length)

    monkeypatch.setattr(LocalFiles, "read", gone)
    assert len(store_core.open_store(store).scan().read_all()) == 53


@pytest.mark.parametrize("gone", ["lock", "abort"])
def test_a_store_without_a_lock(gone: str, store: Path) -> None:
    """As a backup may leave it: an append makes the file."""
    (store / gone).unlink(missing_ok=True)
    opened = store_core.open_store(store)
    plan = opened.plan()
    assert len(read_all(plan)) == 53
    store_core.append(store, NEW)
    with pytest.raises(StoreChangedError, match="messages were appended"):
        read_all(plan)
    assert len(opened.scan().read_all()) == 173


def test_a_commitlog_alone(store: Path) -> None:
    opened = store_core.open_store(store / "commitlog")
    plan = opened.plan()
    store_core.append(store, NEW)
    with pytest.raises(StoreChangedError, match="messages were appended"):
        read_all(plan)
    assert len(opened.scan().read_all()) == 173
    store_core.create_store(store, OLD, mode="overwrite", **SIZES)
    with pytest.raises(StoreChangedError, match="another store"):
        opened.plan()


def test_a_reader_looks_at_one_file_more(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a store costs that nobody appends to: one look at `lock` for a plan, one for a lookup."""
    opened = store_core.open_store(store)
    opened.lookup("A", "k52")
    looked: list[str] = []

    def looking(path: str) -> Stamp | None:
        looked.append(path)
        return stamp(path)

    monkeypatch.setattr(journal, "stamp", looking)
    opened.lookup("A", "k50")
    opened.plan()
    assert looked == [str(store / "lock")] * 2
    store_core.open_store(store)
    assert looked == [str(store / "lock")] * 4


def test_a_reader_beside_appends(store: Path) -> None:
    """For some seconds, without steps."""
    stop = threading.Event()
    failed: list[BaseException] = []
    appended = [53]

    def append() -> None:
        try:
            while not stop.is_set():
                store_core.append(store, rows(appended[0], 40, ("A", "B", "C")))
                appended[0] += 40
        except BaseException as e:
            failed.append(e)

    thread = threading.Thread(target=append)
    thread.start()
    changed = reads = 0
    until = time.monotonic() + 3
    held = store_core.open_store(store)
    asks: dict[str, Callable[[Any], int]] = {
        "messages": lambda opened: len(opened.scan(columns=["topic", "body"]).read_all()),
        "entries": lambda opened: len(opened.scan(table="consumequeue").read_all()),
        "subscribe": lambda opened: len(opened.scan(subscribe=["A", "B"]).read_all()),
        "key": lambda opened: len(opened.lookup("A", "k52")),
        "info": lambda opened: int(opened.info()["messages"]),
        "index": lambda opened: len(opened.scan(table="index").read_all()),
    }
    try:
        while time.monotonic() < until:
            for name, ask in asks.items():
                for opened in (held, None):
                    reads += 1
                    least = appended[0]
                    try:
                        with warnings.catch_warnings():
                            warnings.simplefilter("error")
                            found = ask(opened or store_core.open_store(store))
                    except StoreChangedError:
                        changed += 1
                        continue
                    if name == "key":
                        assert found == 1
                    elif name in ("messages", "entries", "info"):
                        assert (found - 53) % 40 == 0 and least <= found <= appended[0] + 40
    finally:
        stop.set()
        thread.join()
    assert not failed and appended[0] > 53 and reads > 2 * changed
