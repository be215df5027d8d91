"""`rebuild`: the files of real brokers, of a plain writer, after damage, and killed at every step."""

from __future__ import annotations

import fcntl
import importlib
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

import store_core
from store_core import (
    CorruptStoreError,
    OptionError,
    StoreLockedError,
    StoreNotFoundError,
    StoreWarning,
    UnsupportedStoreError,
    open_store,
)
from store_core.files import LocalFiles
from store_core.indexfile import list_index_files
from store_core.rebuilding import REBUILD_FOLDER, undo_rebuild
from store_core.writefiles import LocalWrites
from tests.core.building import expected_index, expected_queues, files_below
from tests.strategies import StoreCase, stores
from tests.synthetic import BATCH_TOPIC, Built, Message, build_store

MODULE = importlib.import_module("store_core.rebuilding")
USUAL = (
    "plain-4.9.7",
    "mixed-5.3.3",
    "crc-5.5.0",
    "ipv6-5.3.3",
    "lmq-5.3.3",
    "longtopic-5.3.3",
    "crash-5.1.4",
    "dledger-4.9.7",
)
SIZES: dict[str, Any] = {"mappedFileSizeConsumeQueue": 2000, "maxHashSlotNum": 200, "maxIndexNum": 800}
SMALL: dict[str, Any] = {"mappedFileSizeConsumeQueue": 400, "maxHashSlotNum": 50, "maxIndexNum": 100}

Fresh = Callable[[str], Path]


def index_of(root: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted((root / "index").iterdir())]


def whole(root: Path) -> dict[str, bytes]:
    """Everything in a store; index files by their order, since their names are times."""
    found = files_below(root, ".")
    names = [name for name in sorted(found) if name.startswith("index/")]
    for number, name in enumerate(names):
        found[f"index {number}"] = found.pop(name)
    return found


def nothing_left(root: Path) -> bool:
    return not [path for path in root.iterdir() if path.name.startswith(".rmq")]


# --- real brokers --------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.*`abort` is there")
@pytest.mark.parametrize("deleted", [True, False])
@pytest.mark.parametrize("name", USUAL)
def test_the_brokers_own_files(fresh_golden: Fresh, name: str, deleted: bool) -> None:
    root = fresh_golden(name)
    before = whole(root)
    options: dict[str, Any] = {}
    if deleted:
        shutil.rmtree(root / "consumequeue")
        shutil.rmtree(root / "index")
        options = SIZES | {"indexTags": name == "crc-5.5.0"}
    done = store_core.rebuild(root, **options)
    assert whole(root) == before
    assert nothing_left(root)
    rows = open_store(root).scan(columns=["commitLogOffset"]).read_all().num_rows
    assert (done.path, done.records, done.index_files) == (str(root), rows, len(list((root / "index").iterdir())))
    assert done.queue_entries == open_store(root, table="consumequeue").scan(columns=["size"]).read_all().num_rows


@pytest.mark.parametrize("what", ["consumequeue", "index"])
def test_one_of_the_two(fresh_golden: Fresh, what: str) -> None:
    root = fresh_golden("mixed-5.3.3")
    before = whole(root)
    other = {"consumequeue": "index", "index": "consumequeue"}[what]
    shutil.rmtree(root / what)
    shutil.rmtree(root / other)
    store_core.rebuild(root, what=what, **(SIZES | {"indexTags": False}))
    assert not (root / other).exists()
    assert {n: d for n, d in whole(root).items() if n.startswith(what)} == {
        n: d for n, d in before.items() if n.startswith(what)
    }
    store_core.rebuild(root, (other,), **(SIZES | {"indexTags": False}))
    assert whole(root) == before


def test_batch_queues_stay_as_they_are(fresh_golden: Fresh) -> None:
    root = fresh_golden("batchcq-5.3.3")
    before = whole(root)
    with pytest.warns(StoreWarning, match="batch topics stay as they are.*Batched"):
        store_core.rebuild(root)
    assert whole(root) == before


def test_queues_in_a_rocksdb_are_not_rebuilt(fresh_golden: Fresh) -> None:
    root = fresh_golden("rocksdb-5.3.3")
    before = whole(root)
    with pytest.raises(UnsupportedStoreError, match="rebuild the index alone"):
        store_core.rebuild(root)
    assert store_core.rebuild(root, what="index").queues == 0
    assert whole(root) == before
    assert nothing_left(root)


# --- made-up stores ------------------------------------------------------------------------------------------------------


def check_rebuilt(built: Built, **options: Any) -> None:
    chosen = built.options
    sizes = {name: getattr(chosen, name) for name in SMALL}
    store_core.rebuild(built.root, indexTags=chosen.index_tags, **sizes, **options)
    assert nothing_left(built.root)
    found = files_below(built.root, "consumequeue")
    # queues whose records are all gone keep their last file
    truth = expected_queues(built.records, chosen.mappedFileSizeConsumeQueue, chosen.batch_topics)
    assert {name: found[name] for name in truth} == truth
    queues = {name.rsplit("/", 1)[0] for name in truth}
    assert all(name in truth for name in found if name.rsplit("/", 1)[0] in queues)
    assert index_of(built.root) == expected_index(
        built, tags=chosen.index_tags, slots=chosen.maxHashSlotNum, capacity=chosen.maxIndexNum
    )


@pytest.mark.filterwarnings("ignore::store_core.errors.StoreWarning")
@settings(max_examples=30, deadline=None)
@given(case=stores(max_messages=80))
def test_any_store(tmp_path_factory: pytest.TempPathFactory, case: StoreCase) -> None:
    case.options["config"] = True  # which tells batch topics
    built = case.build(tmp_path_factory.mktemp("store") / "s")
    if built.records:
        check_rebuilt(built)


def test_whats_there_is_not_needed_to_find_the_sizes(tmp_path: Path) -> None:
    built = build_store(
        tmp_path / "s", [Message(topic="T", properties=(("KEYS", "k"),))], write_queues=False, write_index=False
    )
    store_core.rebuild(built.root)
    assert {len(data) for data in files_below(built.root, "consumequeue").values()} == {6_000_000}
    [index] = list_index_files(LocalFiles(), str(built.root))
    assert index.length == 420_000_040
    assert open_store(built.root).lookup("T", "k").num_rows == 1


def test_expired_queues_keep_their_next_number(tmp_path: Path) -> None:
    """Retention took all messages of a queue: its next one must not get number 0 again."""
    messages = [Message(topic="Old", body=bytes(50)) for _ in range(7)] + [
        Message(topic="New", body=bytes(900)) for _ in range(30)
    ]
    built = build_store(
        tmp_path / "s",
        messages,
        mappedFileSizeCommitLog=5000,
        mappedFileSizeConsumeQueue=100,
        expired_files=1,
        write_index=False,
    )
    assert {placed.message.topic for placed in built.records} == {"New"}
    before = files_below(built.root, "consumequeue/Old")
    assert before
    store_core.rebuild(built.root)
    assert files_below(built.root, "consumequeue/Old") == before


def test_holes_in_the_index_are_closed(tmp_path: Path) -> None:
    messages = [Message(topic="T", properties=(("KEYS", f"k{i}"),), body=bytes(300)) for i in range(200)]
    built = build_store(tmp_path / "s", messages, index_crashes=(150,), index_holes=(0,), index_lag=5)
    store_core.rebuild(built.root)
    sound = build_store(tmp_path / "sound", messages)
    views = [(store := open_store(root)).index_view(store.options) for root in (built.root, sound.root)]
    assert views[0].holes == views[1].holes


# --- damage --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def damaged(tmp_path: Path) -> Iterator[Built]:
    """One record in the middle has lost its magic; in its queue the number 10 is missing."""
    messages = [Message(topic=f"T{i % 2}", properties=(("KEYS", f"k{i}"),), body=bytes(300)) for i in range(60)]
    built = build_store(tmp_path / "s", messages)
    lost = built.records[20].commitLogOffset
    with (built.root / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(lost + 4)
        file.write(b"\0")
    yield built


def test_damage_in_the_log_is_an_error_and_changes_nothing(damaged: Built) -> None:
    before = whole(damaged.root)
    lost = damaged.records[20].commitLogOffset
    with pytest.raises(CorruptStoreError, match=rf"at byte {lost}: bytes \[{lost}, .* magic .*mode=PERMISSIVE"):
        store_core.rebuild(damaged.root)
    assert whole(damaged.root) == before


def test_permissive_leaves_damage_out(damaged: Built) -> None:
    with pytest.warns(StoreWarning) as caught:
        done = store_core.rebuild(damaged.root, mode="PERMISSIVE")
    said = [str(warning.message) for warning in caught]
    assert len(said) == 2
    assert "left out" in said[0]
    assert "queue T0/0" in said[1] and "expected 10" in said[1]
    assert (done.records, done.queue_entries, done.index_entries) == (59, 59, 59)
    kept = [placed for i, placed in enumerate(damaged.records) if i != 20]
    assert files_below(damaged.root, "consumequeue") == expected_queues(kept, 400)  # closed up, as a broker does
    for i in (19, 21, 59):
        assert open_store(damaged.root, mode="DROPMALFORMED").lookup(f"T{i % 2}", f"k{i}").num_rows == 1


def test_a_missing_log_file(tmp_path: Path) -> None:
    messages = [Message(topic="T", body=bytes(900)) for _ in range(30)]
    built = build_store(tmp_path / "s", messages, mappedFileSizeCommitLog=5000, write_index=False)
    (built.root / "commitlog" / f"{5000:020d}").unlink()
    with pytest.raises(CorruptStoreError, match=r"no file holds commitLogOffsets \[5000, 10000\)"):
        store_core.rebuild(built.root)
    with pytest.warns(StoreWarning, match="no file holds|queue T/0"):
        assert 20 < store_core.rebuild(built.root, mode="DROPMALFORMED").records < 30


def test_a_torn_end_is_where_recovery_ends_too(tmp_path: Path) -> None:
    built = build_store(tmp_path / "s", [Message(topic="T", body=bytes(300)) for _ in range(5)], write_index=False)
    with (built.root / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(built.records[-1].commitLogOffset + 4)
        file.write(bytes(4))
    with pytest.warns(StoreWarning, match="the log ends at byte"):
        assert store_core.rebuild(built.root).records == 4


def test_a_message_that_can_not_be_dispatched(tmp_path: Path) -> None:
    messages = [Message(topic="SCHEDULE_TOPIC_XXXX", properties=(("DELAY", level),)) for level in ("1", "x")]
    built = build_store(tmp_path / "s", messages, write_queues=False)
    with pytest.raises(CorruptStoreError, match="DELAY is 'x'"):
        store_core.rebuild(built.root, **SMALL)
    with pytest.warns(StoreWarning, match="DELAY is 'x'"):
        assert store_core.rebuild(built.root, mode="PERMISSIVE", **SMALL).records == 1


def test_a_damaged_index_is_no_obstacle(tmp_path: Path) -> None:
    messages = [Message(topic="T", properties=(("KEYS", f"k{i}"),), body=bytes(300)) for i in range(200)]
    built = build_store(tmp_path / "s", messages)
    paths = sorted((built.root / "index").iterdir())
    truth = index_of(built.root)
    paths[-1].write_bytes(b"\xff" * len(truth[-1]))
    store_core.rebuild(built.root, "index", indexTags=False)
    assert index_of(built.root) == truth
    for path in (built.root / "index").iterdir():
        path.write_bytes(b"\xff" * len(truth[0]))
    with pytest.raises(CorruptStoreError, match=r"sizes of the index can't be told.*maxHashSlotNum"):
        store_core.rebuild(built.root, "index")
    store_core.rebuild(built.root, "index", indexTags=False, maxHashSlotNum=50, maxIndexNum=100)
    assert index_of(built.root) == truth


# --- options, locks --------------------------------------------------------------------------------------------------------


def test_options_are_checked(fresh_golden: Fresh) -> None:
    root = fresh_golden("ipv6-5.3.3")
    before = whole(root)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"what": "queues"}, "can't build 'queues'; expected consumequeue or index"),
        ({"what": ()}, "expected consumequeue or index"),
        ({"maxHashSlotsNum": 5}, "Did you mean 'maxHashSlotNum'"),
        ({"mode": "LOUD"}, "expected one of FAILFAST"),
        ({"maxIndexNum": 0}, "'maxIndexNum' is 0"),
        ({"messageDelayLevel": "1x"}, "messageDelayLevel"),
    ]
    for options, text in wrong:
        with pytest.raises(OptionError, match=text):
            store_core.rebuild(root, **options)
    with pytest.raises(StoreNotFoundError, match="commitlog alone"):
        store_core.rebuild(root / "commitlog")
    with pytest.raises(StoreNotFoundError):
        store_core.rebuild(root / "nothing")
    assert whole(root) == before


def test_other_delay_levels(fresh_golden: Fresh) -> None:
    root = fresh_golden("mixed-5.3.3")
    before = files_below(root, "consumequeue")
    store_core.rebuild(root, "consumequeue", messageDelayLevel="7s 7s 7s")
    after = files_below(root, "consumequeue")
    assert {name.split("/")[1] for name in before if before[name] != after[name]} == {"SCHEDULE_TOPIC_XXXX"}


def test_a_store_that_is_held_is_refused(fresh_golden: Fresh) -> None:
    root = fresh_golden("ipv6-5.3.3")
    program = (
        "import fcntl, sys\n"
        "f = open(sys.argv[1], 'r+b')\n"
        "fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)\n"
        "print(flush=True)\n"
        "sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", program, str(root / "lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdout is not None
    try:
        holder.stdout.readline()
        before = whole(root)
        with pytest.raises(StoreLockedError, match="Stop"):
            store_core.rebuild(root)
        assert whole(root) == before
    finally:
        holder.communicate()
    store_core.rebuild(root)
    with (root / "lock").open("r+b") as lock:  # and it has been given back
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)


# --- killed ----------------------------------------------------------------------------------------------------------------


class Killed(BaseException):
    pass


CHANGES = ("make_folder", "create", "write_at", "copy", "rename", "remove", "remove_folder", "fsync_file", "fsync_folder")


def dying(after: int) -> tuple[type[LocalWrites], list[str]]:
    """`LocalWrites` that do nothing any more after so many changes, and what they were asked for."""
    asked: list[str] = []

    def change(name: str) -> Callable[..., Any]:
        def call(self: LocalWrites, *given: Any) -> Any:
            if len(asked) >= after:
                raise Killed
            asked.append(name)
            return getattr(LocalWrites, name)(self, *given)

        return call

    return type("Dying", (LocalWrites,), {name: change(name) for name in CHANGES}), asked


def test_killed_at_any_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    messages = [Message(topic=f"T{i % 2}", properties=(("KEYS", f"k{i}"),), body=bytes(300)) for i in range(60)]
    first = build_store(tmp_path / "first", messages, index_holes=(0,), queue_lag=3, maxIndexNum=40)
    store = tmp_path / "s"
    rows = open_store(first.root).scan().read_all()
    old = whole(first.root)
    shutil.copytree(first.root, store)
    store_core.rebuild(store)
    new = whole(store)
    after, total = 0, None
    while total is None or after < total:
        shutil.rmtree(store)
        shutil.copytree(first.root, store)
        kind, asked = dying(after)
        monkeypatch.setattr(MODULE, "LocalWrites", kind)
        try:
            store_core.rebuild(store)
            total = len(asked)
        except Killed:
            pass
        monkeypatch.undo()
        # a reader sees every message, whatever is there
        left = open_store(store)
        assert left.scan().read_all().equals(rows)
        assert left.lookup("T1", "k31").num_rows == 1
        # the next writer finds a store that is whole: each of the two folders is the old one or the new one
        undo_rebuild(LocalFiles(), LocalWrites(), str(store))
        assert nothing_left(store)
        found = whole(store)
        for part in ("consumequeue", "index"):
            here, there, then = ({n: d for n, d in files.items() if n.startswith(part)} for files in (found, old, new))
            assert here in (there, then)
        assert {n: d for n, d in found.items() if n.startswith("commitlog")} == {
            n: d for n, d in old.items() if n.startswith("commitlog")
        }
        store_core.rebuild(store)
        assert whole(store) == new
        after += 1
    assert total > 20


def test_all_is_synced_before_it_is_swapped_in(fresh_golden: Fresh, monkeypatch: pytest.MonkeyPatch) -> None:
    root = fresh_golden("ipv6-5.3.3")
    synced: set[str] = set()
    written: set[str] = set()

    class Recording(LocalWrites):
        def write_at(self, path: str, position: int, data: Any) -> None:
            written.add(path)
            super().write_at(path, position, data)

        def fsync_file(self, path: str) -> None:
            synced.add(path)
            super().fsync_file(path)

        def fsync_folder(self, path: str) -> None:
            synced.add(path)
            super().fsync_folder(path)

        def rename(self, old: str, new: str) -> None:
            if old.startswith(f"{root}/{REBUILD_FOLDER}/") and "old-" not in old:
                folders = {
                    str(folder) for path in written for folder in Path(path).parents if str(folder).startswith(f"{root}/")
                }
                assert written | folders <= synced
                synced.discard(str(root))
            super().rename(old, new)

    monkeypatch.setattr(MODULE, "LocalWrites", Recording)
    store_core.rebuild(root)
    assert len(written) == 24
    assert str(root) in synced


def test_a_folder_removed_in_part_is_not_put_back(tmp_path: Path) -> None:
    built = build_store(tmp_path / "s", [Message(topic="T")])
    (built.root / (REBUILD_FOLDER + "-done") / "old-consumequeue" / "T").mkdir(parents=True)
    shutil.rmtree(built.root / "consumequeue")
    undo_rebuild(LocalFiles(), LocalWrites(), str(built.root))
    assert nothing_left(built.root)
    assert not (built.root / "consumequeue").exists()


def test_batch_topics_are_told_by_the_config(tmp_path: Path) -> None:
    inner = ((b"a", ()), (b"b", ()))
    built = build_store(tmp_path / "s", [Message(topic=BATCH_TOPIC, inner=inner) for _ in range(3)], write_queues=False)
    with pytest.warns(StoreWarning, match="batch topics"):
        assert store_core.rebuild(built.root, **SMALL).queue_entries == 0
    assert files_below(built.root, "consumequeue") == {}
