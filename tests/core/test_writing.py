"""`create_store` and `append`: what they take, what they refuse, and that nothing is half done."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import store_core
from store_core import OptionError, StoreLockedError, WriteError, writing
from store_core.checkpoint import read_checkpoint
from store_core.config import read_topics
from store_core.files import LocalFiles
from store_core.staging import Staged
from store_core.writefiles import LocalWrites
from store_core.writeoptions import parse_write_options
from tests.core.killing import NEW, OLD, ROOT, SIZES, Nursery, rows
from tests.core.test_crash import MORE, data, look
from tests.core.test_preserve import RAW, USUAL
from tests.golden_stores import Golden


def read(path: Path, *columns: str, **options: Any) -> list[dict[str, Any]]:
    table = store_core.open_store(path, **options).scan(columns=list(columns) or None).read_all()
    return table.sort_by("commitLogOffset").to_pylist() if "commitLogOffset" in table.column_names else table.to_pylist()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    store_core.create_store(tmp_path / "s", OLD, **SIZES)
    return tmp_path / "s"


def nothing_left(path: Path) -> bool:
    """No staging, no journal, no half-made store, in the folder or beside it."""
    inside = list(path.iterdir()) if path.exists() else []
    return not [p for p in (*inside, *path.parent.iterdir()) if p.name.startswith(".") or p.name == "abort"]


# --- what is written -----------------------------------------------------------------------------------------------------
def test_topic_and_body_are_enough(tmp_path: Path) -> None:
    written = store_core.create_store(tmp_path / "s", pa.table({"topic": ["T"] * 20, "body": [b"x"] * 20}))
    assert (written.messages, written.path) == (20, str(tmp_path / "s"))
    found = read(tmp_path / "s", "queueId", "queueOffset", "storeTimestamp", "bornTimestamp", "properties", "commitLogOffset")
    assert {row["queueId"] for row in found} == set(range(8))
    assert max(row["queueOffset"] for row in found) == 2
    assert len({row["storeTimestamp"] for row in found}) == 1
    sizes = {name: (tmp_path / "s" / name).stat().st_size for name in ("checkpoint", "lock")}
    assert sizes == {"checkpoint": 4096, "lock": 4}
    log = next((tmp_path / "s" / "commitlog").iterdir())
    assert log.stat().st_size == 1 << 30 and log.stat().st_blocks * 512 < 1 << 20, "a sparse file of the broker's size"


def test_batches_of_any_kind(tmp_path: Path) -> None:
    table = pa.table({"topic": ["T"] * 3, "body": [b"x"] * 3})
    kinds = {
        "table": table,
        "batch": table.to_batches()[0],
        "reader": table.to_reader(),
        "generator": (batch for batch in table.to_batches()),
        "nothing": [],
    }
    for name, batches in kinds.items():
        path = tmp_path / name
        assert store_core.create_store(path, batches).messages == (0 if name == "nothing" else 3)
        assert len(read(path)) == (0 if name == "nothing" else 3)


def test_the_same_rows_and_options_give_the_same_bytes(tmp_path: Path) -> None:
    for name in "ab":
        store_core.create_store(tmp_path / name, OLD, **SIZES)
        store_core.append(tmp_path / name, NEW)
    assert data(tmp_path / "a") == data(tmp_path / "b")
    assert (tmp_path / "a" / "checkpoint").read_bytes() == (tmp_path / "b" / "checkpoint").read_bytes()


def test_written_at_once_or_appended_is_the_same_store(store: Path, tmp_path: Path) -> None:
    """Half-full log, queue and index files are continued as if there had been no end."""
    store_core.append(store, NEW)
    store_core.create_store(tmp_path / "once", pa.concat_tables([OLD, NEW]), **SIZES)
    assert data(store) == data(tmp_path / "once")
    assert nothing_left(store)


def test_partitions_are_put_one_behind_the_other(tmp_path: Path) -> None:
    job = writing.start(tmp_path / "parts", "append", parse_write_options(SIZES))
    staged = [writing.stage_task(job, n, "0", rows(n * 40, 40, ("A", "B")).to_batches()) for n in (2, 0, 1)]
    assert writing.commit(job, staged).messages == 120
    store_core.create_store(tmp_path / "once", rows(0, 120, ("A", "B")), **SIZES)
    assert data(tmp_path / "parts") == data(tmp_path / "once")


def test_only_the_attempts_that_come_to_the_commit_count(tmp_path: Path) -> None:
    job = writing.start(tmp_path / "s", "append", parse_write_options(SIZES))
    attempts = [writing.stage_task(job, 0, str(n), OLD.to_batches()) for n in range(3)]
    with pytest.raises(store_core.StoreError, match="two results of the same partitions"):
        writing.commit(job, attempts)
    assert writing.commit(job, attempts[1:2]).messages == 53
    assert len(read(tmp_path / "s")) == 53 and nothing_left(tmp_path / "s")


def test_the_checkpoint(store: Path) -> None:
    found = read_checkpoint(LocalFiles(), str(store))
    last = read(store, "storeTimestamp", "commitLogOffset", "storeSize")[-1]
    assert found is not None
    ms = int(last["storeTimestamp"].timestamp() * 1000)
    assert found.physic_msg_timestamp == found.logics_msg_timestamp == ms
    assert found.confirm_phy_offset == last["commitLogOffset"] + last["storeSize"]
    assert 0 < found.index_msg_timestamp < ms, "the end of the last full index file"
    assert found.master_flushed_offset == found.logics_physical_offset == 0


# --- append --------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", USUAL)
def test_append_to_what_a_broker_wrote(name: str, fresh_golden: Callable[[str], Path], golden: Golden) -> None:
    path = fresh_golden(name)
    before = read(path, **RAW)
    numbers = {(row["topic"], row["queueId"]): row["queueOffset"] + 1 for row in before}
    old = data(path)
    end = before[-1]["commitLogOffset"] + before[-1]["storeSize"]
    new = pa.table(
        {
            "topic": ["TopicTest", "New"] * 400,
            "queueId": pa.array([0, 1] * 400, pa.int32()),
            "body": [b"%d" % n * 40 for n in range(800)],
            "keys": [f"new{n}" for n in range(800)],
            "tags": ["fresh"] * 800,
        }
    )
    store_core.append(path, new, allowUnclean=True)
    after = read(path, **RAW)
    assert after[: len(before)] == before
    added = after[len(before) :]
    assert [row["body"] for row in added] == new["body"].to_pylist()
    first = numbers.get(("TopicTest", 0), 0)
    assert [row["queueOffset"] for row in added if row["topic"] == "TopicTest"] == list(range(first, first + 400))
    assert added[0]["commitLogOffset"] >= end
    for file, content in data(path).items():
        kept = old.get(file, b"")
        if file.startswith(("commitlog", "consumequeue")):
            assert content.startswith(kept.rstrip(b"\0")), file
    found = store_core.open_store(path)
    assert found.lookup("New", "new777").num_rows == 1 and nothing_left(path)
    assert found.coverage.end == added[-1]["commitLogOffset"] + added[-1]["storeSize"], "the queues account for all of the log"
    tagged = store_core.open_store(path).scan(table="index", where=[("indexType", "=", "tag")]).read_all().num_rows
    assert (tagged > 0) == (name == "crc-5.5.0"), "tags are indexed where the broker that wrote before does it"


def test_appended_twice_and_rebuilt_is_the_same(store: Path) -> None:
    store_core.append(store, NEW)
    store_core.append(store, rows(173, 70, ("A", "E")))
    before = data(store)
    store_core.rebuild(store)
    after = data(store)
    assert {name: after[name] for name in after if not name.startswith("index")} == {
        name: before[name] for name in before if not name.startswith("index")
    }
    assert sorted(after[name] for name in after if name.startswith("index")) == sorted(
        before[name] for name in before if name.startswith("index")
    )


def test_append_makes_a_store_where_there_is_none(tmp_path: Path) -> None:
    store_core.append(tmp_path / "a" / "b", OLD, **SIZES)
    assert len(read(tmp_path / "a" / "b")) == 53


def test_nothing_is_appended(store: Path) -> None:
    before = data(store)
    assert store_core.append(store, OLD.slice(0, 0)).messages == 0
    assert data(store) == before and nothing_left(store)


def test_sizes_are_the_stores_own(store: Path) -> None:
    with pytest.raises(OptionError, match=r"'mappedFileSizeCommitLog' is 8192, and the store's files have 4096"):
        store_core.append(store, NEW, mappedFileSizeCommitLog=8192)
    assert nothing_left(store)


def test_times_that_nobody_gave_never_go_back(store: Path) -> None:
    ahead = pa.table(
        {"topic": ["A"], "body": [b""], "storeTimestamp": pa.array([4_000_000_000_000_000], pa.timestamp("us", "UTC"))}
    )
    store_core.append(store, ahead)
    store_core.append(store, pa.table({"topic": ["A"], "body": [b"x"]}))
    times = [row["storeTimestamp"] for row in read(store, "storeTimestamp", "commitLogOffset")]
    assert times[-1] == times[-2]


def test_a_store_that_grew_in_between(store: Path) -> None:
    """append goes on behind the new end; preserve and overwrite refuse."""
    options = parse_write_options({})
    jobs = {
        "append": writing.start(store, "append", options),
        "preserve": writing.start(store, "append", parse_write_options({"preserve": True})),
        "overwrite": writing.start(store, "overwrite", options),
    }
    tail = rows(53, 5, ("A",)).append_column("queueOffset", pa.array([27, 27, 28, 28, 29], pa.int64()))
    staged = {name: [writing.stage_task(job, 0, "0", tail.to_batches())] for name, job in jobs.items() if name != "preserve"}
    store_core.append(store, pa.table({"topic": ["A"], "body": [b"between"]}))
    with pytest.raises(store_core.StoreChangedError, match="was written to since this write began"):
        writing.commit(jobs["preserve"], [])
    with pytest.raises(store_core.StoreChangedError, match="not overwritten"):
        writing.commit(jobs["overwrite"], staged["overwrite"])
    with pytest.raises(OptionError, match="storeTimestamp"):
        writing.commit(jobs["append"], staged["append"])  # its times are older than those of the message between
    for job in jobs.values():
        writing.abandon(job)
    job = writing.start(store, "append", options)
    staged_later = writing.stage_task(job, 0, "0", pa.table({"topic": ["A"], "body": [b"last"]}).to_batches())
    store_core.append(store, pa.table({"topic": ["A"], "body": [b"between too"]}))
    writing.commit(job, [staged_later])
    assert [row["body"] for row in read(store, "body", "commitLogOffset")][-3:] == [b"between", b"between too", b"last"]
    assert nothing_left(store)


# --- preserve ------------------------------------------------------------------------------------------------------------
def test_a_slice_is_packed_anew_and_keeps_its_queue_offsets(golden: Golden, tmp_path: Path) -> None:
    """Where a queue does not begin at 0 the log must not either, or a broker shows fillers as messages."""
    where = [("topic", "=", "TopicTest"), ("queueOffset", ">=", 5)]
    wanted = store_core.open_store(golden("mixed-5.3.3"), **RAW).scan(where).read_all().sort_by("commitLogOffset")
    store_core.create_store(tmp_path / "s", wanted, preserve=True, mappedFileSizeCommitLog=65536)
    found = store_core.open_store(tmp_path / "s", **RAW).scan().read_all().sort_by("commitLogOffset")
    moved = ["commitLogOffset", "offsetMsgId", "brokerName"]
    assert found.drop_columns(moved).equals(wanted.drop_columns(moved))
    assert found["commitLogOffset"][0].as_py() == 65536
    topics = store_core.open_store(tmp_path / "s").info()["topics"]
    assert topics


def test_a_gap_inside_a_queue(golden: Golden, tmp_path: Path) -> None:
    rows = store_core.open_store(golden("mixed-5.3.3"), **RAW).scan([("topic", "=", "TopicTest")]).read_all()
    rows = rows.sort_by("commitLogOffset")
    kept = rows.filter(pa.compute.not_equal(rows["queueOffset"], 7))
    with pytest.raises(OptionError, match=r"topic 'TopicTest', queue \d: queueOffset 8 follows where 7 is expected"):
        store_core.create_store(tmp_path / "s", kept, preserve=True)
    assert nothing_left(tmp_path / "s") and not (tmp_path / "s").exists()
    store_core.create_store(tmp_path / "s", kept, preserve=True, renumber=True)
    found = read(tmp_path / "s", "topic", "queueId", "queueOffset", "commitLogOffset")
    for queue in {row["queueId"] for row in found}:
        numbers = [row["queueOffset"] for row in found if row["queueId"] == queue]
        assert numbers == list(range(len(numbers)))


def test_a_new_queue_that_does_not_begin_at_0(store: Path) -> None:
    """Not where the log does: a broker shows the fillers before it as messages."""
    late = pa.table({"topic": ["Late"], "body": [b""], "queueOffset": [7]})
    with pytest.raises(OptionError, match=r"topic 'Late', queue 0: its first queueOffset is 7, and expected is 0.*renumber"):
        store_core.append(store, late, preserve=True)
    assert nothing_left(store)
    store_core.append(store, late, preserve=True, renumber=True)
    assert [row["queueOffset"] for row in read(store, "topic", "queueOffset") if row["topic"] == "Late"] == [0]


def test_a_commit_is_told_the_new_place_of_its_half_message(golden: Golden, tmp_path: Path) -> None:
    source = store_core.open_store(golden("mixed-5.3.3"), **RAW).scan().read_all().sort_by("commitLogOffset")
    shifted = source.slice(1)  # nothing stands where it stood
    first = source.slice(0, 1).to_pylist()[0]
    shifted = shifted.filter(
        pa.compute.or_(
            pa.compute.not_equal(shifted["topic"], first["topic"]), pa.compute.not_equal(shifted["queueId"], first["queueId"])
        )
    )
    store_core.create_store(tmp_path / "s", shifted, preserve=True, systemTopics=True)
    found = {row["commitLogOffset"]: row for row in read(tmp_path / "s")}
    commits = [row for row in found.values() if row["preparedTransactionOffset"]]
    assert commits
    for row in commits:
        assert found[row["preparedTransactionOffset"]]["topic"] == "RMQ_SYS_TRANS_HALF_TOPIC"
        assert found[row["preparedTransactionOffset"]]["uniqKey"] == row["uniqKey"]
    alone = shifted.filter(pa.compute.equal(shifted["topic"], commits[0]["topic"]))
    with pytest.raises(OptionError, match=r"column 'preparedTransactionOffset', topic .* half message"):
        store_core.create_store(tmp_path / "t", alone, preserve=True)


# --- overwrite -----------------------------------------------------------------------------------------------------------
def test_overwrite_reads_the_store_that_it_replaces(store: Path) -> None:
    (store / "config" / "consumerOffset.json").write_text('{"offsetTable":{"A@g":{"0":3}}}')
    rows = store_core.open_store(store, **RAW).scan([("topic", "=", "A")])
    store_core.create_store(store, rows, mode="overwrite", **SIZES)
    assert {row["topic"] for row in read(store)} == {"A"}
    assert not (store / "config" / "consumerOffset.json").exists() and nothing_left(store)


def test_config_from_keeps_the_consumers_state(store: Path) -> None:
    (store / "config" / "consumerOffset.json").write_text('{"offsetTable":{"A@g":{0:3}}}')
    (store / "config" / "subscriptionGroup.json.bak").write_text('{"subscriptionGroupTable":{}}')
    topics = json.loads((store / "config" / "topics.json").read_text())
    topics["topicConfigTable"]["A"] |= {"perm": 4, "readQueueNums": 16}
    (store / "config" / "topics.json").write_text(json.dumps(topics))
    rows = store_core.open_store(store, **RAW).scan()
    store_core.create_store(store, rows, mode="overwrite", configFrom=store, **SIZES)
    assert (store / "config" / "consumerOffset.json").read_text() == '{"offsetTable":{"A@g":{0:3}}}'
    assert (store / "config" / "subscriptionGroup.json").exists()
    found = read_topics(LocalFiles(), str(store)).value["A"]
    assert (found.perm, found.read_queue_nums, found.write_queue_nums) == (4, 16, 8)
    with pytest.raises(OptionError, match="'configFrom' belongs to a new store"):
        store_core.append(store, OLD, configFrom=store)
    with pytest.raises(OptionError, match=r"'configFrom' is '.*nowhere', which has no folder config"):
        store_core.create_store(store, OLD, mode="overwrite", configFrom=store / "nowhere")


def test_rows_without_queue_id_go_round_the_queues_that_config_from_says(store: Path, tmp_path: Path) -> None:
    rows = pa.table({"topic": ["A"] * 20, "body": [b"x"] * 20})
    two = pa.table({"topic": ["A"] * 2, "body": [b"x"] * 2})
    store_core.create_store(tmp_path / "two", two, defaultTopicQueueNums=2)
    store_core.create_store(store, rows, mode="overwrite", configFrom=tmp_path / "two")
    assert {row["queueId"] for row in read(store, "queueId")} == {0, 1}
    assert read_topics(LocalFiles(), str(store)).value["A"].write_queue_nums == 2


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_store_that_is_overwritten_stays_its_brokers(store: Path) -> None:
    for path in (store, *store.rglob("*")):
        os.chown(path, 1000, 1001)
    store_core.create_store(store, NEW, mode="overwrite")
    assert {(path.stat().st_uid, path.stat().st_gid) for path in (store, *store.rglob("*"))} == {(1000, 1001)}


def test_topics_keep_what_a_broker_says_of_them(fresh_golden: Callable[[str], Path]) -> None:
    path = fresh_golden("mixed-5.3.3")
    before = read_topics(LocalFiles(), str(path)).value
    store_core.append(path, pa.table({"topic": ["Orders", "New"], "queueId": pa.array([9, 0], pa.int32()), "body": [b"", b""]}))
    after = read_topics(LocalFiles(), str(path)).value
    assert {name: config for name, config in after.items() if name not in ("Orders", "New")} == {
        name: config for name, config in before.items() if name != "Orders"
    }
    assert after["Orders"].read_queue_nums == after["Orders"].write_queue_nums == 10
    assert after["Orders"].attributes == before["Orders"].attributes
    assert after["New"].read_queue_nums == 8
    text = (path / "config" / "topics.json").read_text()
    assert json.loads(text)["dataVersion"]["counter"] == 12


def test_topics_that_are_there_keep_their_number_of_queues(tmp_path: Path) -> None:
    one = pa.table({"topic": ["A"], "queueId": pa.array([1], pa.int32()), "body": [b""], "keys": ["k"]})
    store_core.create_store(tmp_path / "s", one, defaultTopicQueueNums=2, **SIZES)
    store_core.append(tmp_path / "s", one)
    store_core.create_store(tmp_path / "like", one, configFrom=tmp_path / "s", **SIZES)
    for name in ("s", "like"):
        assert read_topics(LocalFiles(), str(tmp_path / name)).value["A"].write_queue_nums == 2


def test_what_else_stands_in_the_index_folder(store: Path, tmp_path: Path) -> None:
    (store / "index" / "tmp.swp").write_text("x")
    (store / "index" / "lost+found").mkdir()
    store_core.append(store, NEW)
    store_core.create_store(tmp_path / "once", pa.concat_tables([OLD, NEW]), **SIZES)
    found = data(store)
    assert found.pop("index/tmp.swp") == b"x" and found == data(tmp_path / "once")


@pytest.mark.parametrize("write", ["append", "rebuild"])
def test_files_stay_the_brokers(write: str, store: Path) -> None:
    """Owner (where the system lets it) and mode: a broker under another user has to open what was written."""
    for path in (store, *store.rglob("*")):
        path.chmod(0o750 if path.is_dir() else 0o640)
        if os.geteuid() == 0:
            os.chown(path, 1000, 1001)
    (store / "checkpoint").chmod(0o600)
    shutil.rmtree(store / "config")
    if write == "append":
        store_core.append(store, NEW)
    else:
        store_core.rebuild(store)
    owner = (1000, 1001) if os.geteuid() == 0 else (os.geteuid(), store.stat().st_gid)
    for path in store.rglob("*"):
        found = path.stat()
        assert (found.st_uid, found.st_gid) == owner, path
        assert found.st_mode & 0o777 == (0o750 if path.is_dir() else 0o600 if path.name == "checkpoint" else 0o640), path


@pytest.mark.parametrize("mode", ["create", "append", "overwrite"])
def test_a_folder_that_is_no_store(mode: str, tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "thesis.tex").write_text("all of it")
    write: Any = store_core.append if mode == "append" else store_core.create_store
    with pytest.raises(OptionError, match="is not empty"):
        write(tmp_path / "s", OLD, **({} if mode == "append" else {"mode": mode}))
    assert [p.name for p in tmp_path.rglob("*")] == ["s", "thesis.tex"]


def test_places_that_can_not_be_written(store: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OptionError, match="is a file, and a store is a folder"):
        store_core.create_store(tmp_path / "file", OLD)
    with pytest.raises(OptionError, match=r"is not empty\. Append to it, set mode='overwrite'"):
        store_core.create_store(store, OLD)
    with pytest.raises(OptionError, match=r"commitlog alone\. Give the store's root"):
        store_core.append(store / "commitlog", OLD)
    with pytest.raises(OptionError, match="s3://bucket/x: only local paths"):
        store_core.create_store("s3://bucket/x", OLD)
    with pytest.raises(OptionError, match="mode is 'ignore'"):
        store_core.create_store(tmp_path / "x", OLD, mode="ignore")


def test_stores_that_can_not_be_appended_to(golden: Golden) -> None:
    for name, what in (("dledger-4.9.7", "DLedger"), ("rocksdb-5.3.3", "RocksDB")):
        with pytest.raises(store_core.UnsupportedStoreError, match=what):
            store_core.append(golden(name), OLD, allowUnclean=True)


def test_a_topic_with_batch_queues(fresh_golden: Callable[[str], Path]) -> None:
    path = fresh_golden("batchcq-5.3.3")
    with pytest.raises(store_core.UnsupportedStoreError, match="'Batched' has batch queues"):
        store_core.append(path, pa.table({"topic": ["Batched"], "body": [b""]}))
    count = len(read(path))
    store_core.append(path, pa.table({"topic": ["Orders"], "body": [b""]}))
    assert len(read(path)) == count + 1


def test_a_topic_of_batch_queues_that_has_none_yet(store: Path) -> None:
    """A broker does not start on a store that has plain queues of it."""
    config = store / "config" / "topics.json"
    topics = json.loads(config.read_text())
    topics["topicConfigTable"]["Batched"] = {"topicName": "Batched", "attributes": {"queue.type": "BatchCQ"}}
    config.write_text(json.dumps(topics))
    rows = pa.table({"topic": ["Batched"], "body": [b""], "queueOffset": [0]})
    with pytest.raises(store_core.UnsupportedStoreError, match=r"'Batched' has batch queues .* to another store"):
        store_core.append(store, rows)
    for preserve in (False, True):
        with pytest.raises(store_core.UnsupportedStoreError, match=r"'Batched' has batch queues .* option 'configFrom' out"):
            store_core.create_store(store.parent / "new", rows, configFrom=store, preserve=preserve)
    assert nothing_left(store) and not (store.parent / "new").exists()


OPENED = "import fcntl,sys\nf=open(sys.argv[1],'r+')\n"


# --- locks ---------------------------------------------------------------------------------------------------------------
@pytest.fixture
def held(store: Path) -> Iterator[None]:
    """Another process has the store's lock, as a running broker has."""
    code = f"{OPENED}fcntl.lockf(f,fcntl.LOCK_EX,1,0)\nprint('held',flush=True)\nsys.stdin.read()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(store / "lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdin is not None and process.stdout.readline() == "held\n"
    yield
    process.stdin.close()
    process.wait()


def test_a_store_that_somebody_has(store: Path, held: None) -> None:
    before = data(store)
    writes: list[Callable[[], object]] = [
        lambda: store_core.append(store, NEW),
        lambda: store_core.create_store(store, NEW, mode="overwrite"),
    ]
    for write in writes:
        with pytest.raises(StoreLockedError, match="a running broker or another writer has the store"):
            write()
    assert data(store) == before and nothing_left(store)


def test_the_lock_is_held_in_the_commit(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = f"{OPENED}try:\n fcntl.lockf(f,fcntl.LOCK_EX|fcntl.LOCK_NB,1,0)\nexcept OSError: print('refused')"
    said = []

    def at(step: str) -> None:
        if step in ("index written", "moved", "swap noted"):
            look = [sys.executable, "-c", code, str(store / "lock")]
            said.append(subprocess.run(look, capture_output=True, text=True, check=True).stdout)
            store_core.open_store(store).scan().read_all()  # a reader in the same process must not end the lock
            said.append(subprocess.run(look, capture_output=True, text=True, check=True).stdout)
            with pytest.raises(StoreLockedError):
                store_core.append(store, NEW)

    monkeypatch.setattr("store_core.steps.hook", [at])
    store_core.append(store, NEW)
    store_core.create_store(store, NEW, mode="overwrite", **SIZES)
    assert len(said) >= 6 and set(said) == {"refused\n"}


def test_a_store_that_was_not_stopped_cleanly(store: Path) -> None:
    (store / "abort").write_text("1234")
    with pytest.raises(StoreLockedError, match=r"the file abort exists.*allowUnclean=true"):
        store_core.append(store, NEW)
    store_core.append(store, NEW, allowUnclean=True)
    assert len(read(store)) == 173 and nothing_left(store)


def test_an_unclean_store_whose_queues_lag_is_rebuilt_first(store: Path) -> None:
    (store / "abort").write_text("1234")
    queue = next(iter(sorted((store / "consumequeue" / "A" / "0").iterdir(), reverse=True)))
    queue.write_bytes(bytes(400))
    with pytest.raises(store_core.CorruptStoreError, match=r"no queue entry.*store_core.rebuild"):
        store_core.append(store, NEW, allowUnclean=True)
    with pytest.warns(store_core.StoreWarning):
        store_core.rebuild(store)
    store_core.append(store, NEW, allowUnclean=True)
    assert len(read(store)) == 173


@pytest.mark.parametrize("lost", [slice(0, 400), slice(100, 120)])
def test_an_unclean_store_with_one_queue_that_lags(lost: slice, store: Path) -> None:
    """A power loss takes pages of any file; here the log's last record is in another queue."""
    (store / "abort").write_text("1234")
    queue = max((store / "consumequeue" / "B" / "1").iterdir())
    content = bytearray(queue.read_bytes())
    content[lost] = bytes(lost.stop - lost.start)
    queue.write_bytes(content)
    with pytest.raises(store_core.CorruptStoreError, match=r"lacks entries.*has none.*store_core.rebuild"):
        store_core.append(store, NEW, allowUnclean=True)
    with pytest.warns(store_core.StoreWarning):
        store_core.rebuild(store)
    store_core.append(store, NEW, allowUnclean=True)
    found = read(store, "topic", "queueId", "queueOffset")
    numbers = [row["queueOffset"] for row in found if (row["topic"], row["queueId"]) == ("B", 1)]
    assert numbers == list(range(len(numbers)))


def test_a_broker_that_recovered_a_cut_off_append_is_believed(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It writes `lock`; from then on the journal counts no more."""

    class Stopped(BaseException):
        pass

    def at(step: str) -> None:
        if step == "index written":
            raise Stopped

    monkeypatch.setattr("store_core.steps.hook", [at])
    monkeypatch.setattr("store_core.publish.undo", lambda *args: None)
    with pytest.raises(Stopped):
        store_core.append(store, NEW)
    monkeypatch.undo()
    assert len(read(store)) == 53 and (store / "lock").stat().st_size == 0
    before = data(store)
    (store / "lock").write_bytes(b"lock")
    (store / "abort").unlink()
    assert len(read(store)) > 53, "what the broker kept is read"
    with pytest.raises(store_core.CorruptStoreError, match="rebuild"):
        store_core.append(store, NEW)  # here nobody has cut the log back
    assert data(store) == before
    assert nothing_left(store)


# --- failures ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO])
@pytest.mark.parametrize("write", ["append", "create", "overwrite"])
def test_a_disk_that_fails(write: str, number: int, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = store if write != "create" else store.parent / "fresh"
    before = data(store)
    seen = look(store)
    real = os.pwrite
    for after in (0, 1, 3, 9, 12):
        left = [after]

        def pwrite(fd: int, piece: Any, position: int, left: list[int] = left) -> int:
            left[0] -= 1
            if left[0] < 0:
                if left[0] < -1 and write == "append":
                    return real(fd, piece, position)  # so that the old store can be brought back
                raise OSError(number, os.strerror(number))
            return real(fd, piece, position)

        monkeypatch.setattr(os, "pwrite", pwrite)
        with pytest.raises(WriteError, match=r"could not (write|copy) ") as error:
            if write == "append":
                store_core.append(path, NEW)
            else:
                store_core.create_store(path, NEW, **({} if write == "create" else {"mode": "overwrite"}), **SIZES)
        monkeypatch.setattr(os, "pwrite", real)
        assert error.value.errno == number
        if number == errno.ENOSPC:
            assert "The disk is full: free some space" in str(error.value)
        assert data(store) == before and look(store).same_rows(seen)
        assert nothing_left(store) and (path == store or not path.exists())


def test_files_that_may_not_grow(store: Path) -> None:
    """`ulimit -f`: the process gets EFBIG."""
    before = data(store)
    child = os.fork()
    if not child:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))
        try:
            store_core.append(store, NEW)
            os._exit(1)
        except WriteError as e:
            os._exit(0 if e.errno == errno.EFBIG and "ulimit -f" in str(e) else 2)
        except BaseException:
            os._exit(3)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert data(store) == before and nothing_left(store)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written(store: Path) -> None:
    os.chmod(store, 0o555)
    try:
        with pytest.raises(WriteError, match="Give this user the right to write there"):
            store_core.append(store, NEW)
    finally:
        os.chmod(store, 0o755)


def test_no_permission(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(os, "makedirs", refuse)
    with pytest.raises(WriteError, match=r"could not make the folder .*: Permission denied. Give this user the right"):
        store_core.append(store, NEW)
    assert nothing_left(store)


def test_rows_that_fail_to_come(store: Path) -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield from NEW.to_batches()
        raise RuntimeError("the source went away")

    before = data(store)
    writes: list[Callable[[], object]] = [
        lambda: store_core.append(store, broken()),
        lambda: store_core.create_store(store, broken(), mode="overwrite"),
    ]
    for write in writes:
        with pytest.raises(RuntimeError, match="went away"):
            write()
    assert data(store) == before and nothing_left(store)


def test_two_writers_make_a_store_at_once(tmp_path: Path) -> None:
    """The second one to be done finds a store that it knows nothing of."""

    def slow() -> Iterator[pa.RecordBatch]:
        yield OLD.to_batches()[0]
        store_core.append(tmp_path / "s", NEW, **SIZES)
        yield NEW.to_batches()[0]

    for write in (store_core.append, store_core.create_store):
        with pytest.raises(store_core.StoreChangedError, match="a store was made there since"):
            write(tmp_path / "s", slow(), **SIZES)
        assert len(read(tmp_path / "s", "topic")) == NEW.num_rows and nothing_left(tmp_path / "s")
        shutil.rmtree(tmp_path / "s")


def test_a_published_append_is_not_swept(store: Path) -> None:
    """Its writer was killed, and the next one comes after a day."""
    nursery = Nursery()
    assert nursery.kill(store, "append", 1, "published")
    nursery.close()
    for path in [*store.glob(".rmq-staging-*"), *store.glob(".rmq-staging-*/**/*")]:
        os.utime(path, (1, 1))
    store_core.append(store, MORE)
    assert len(read(store, "topic")) == OLD.num_rows + NEW.num_rows + 3 and nothing_left(store)


def test_a_published_file_that_is_gone_is_told(store: Path) -> None:
    nursery = Nursery()
    assert nursery.kill(store, "append", 1, "published")
    nursery.close()
    shutil.rmtree(next(store.glob(".rmq-staging-*")))
    with pytest.raises(store_core.CorruptStoreError, match="published is gone"):
        store_core.append(store, MORE)


def test_staging_that_can_not_be_removed_fails_no_write(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = LocalWrites.remove_folder

    def refuse(self: LocalWrites, path: str) -> None:
        if ".rmq-" in path:
            raise WriteError(f"could not remove {path}: Directory not empty.", errno.ENOTEMPTY)
        real(self, path)

    monkeypatch.setattr(LocalWrites, "remove_folder", refuse)
    with pytest.warns(store_core.StoreWarning, match="The write is done"):
        assert store_core.append(store, NEW).messages == NEW.num_rows
    assert len(read(store, "topic")) == OLD.num_rows + NEW.num_rows


def test_files_that_can_not_be_moved_are_told_with_what_to_do(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = LocalWrites.rename

    def refuse(self: LocalWrites, old: str, new: str) -> None:
        if "/index/" in new and "/.rmq-staging-" not in new:
            raise WriteError(f"could not rename {old}: Input/output error.", errno.EIO)
        real(self, old, new)

    with monkeypatch.context() as patched:
        patched.setattr(LocalWrites, "rename", refuse)
        with pytest.raises(WriteError, match="do not write them again"):
            store_core.append(store, NEW)
    assert len(read(store, "topic")) == OLD.num_rows + NEW.num_rows
    store_core.append(store, MORE)
    assert len(read(store, "topic")) == OLD.num_rows + NEW.num_rows + 3 and nothing_left(store)


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="needs root, to mount")
def test_folders_that_are_mounted_are_refused(store: Path, tmp_path: Path) -> None:
    """Of the same disk, too, as a container's volumes often are: files can't be renamed between mounts."""
    (tmp_path / "elsewhere").mkdir()
    shutil.copytree(store / "consumequeue", tmp_path / "elsewhere", dirs_exist_ok=True)
    code = (
        "import sys, store_core\nfrom tests.core.killing import NEW\n"
        "try:\n    store_core.append(sys.argv[1], NEW)\nexcept store_core.UnsupportedStoreError as e:\n    print(e)"
    )
    mount = f"mount --bind {tmp_path}/elsewhere {store}/consumequeue && exec {sys.executable} -c '{code}' {store}"
    done = subprocess.run(["unshare", "-m", "sh", "-c", mount], cwd=ROOT, capture_output=True, text=True)
    if "ermi" in done.stderr and not done.stdout:
        pytest.skip(done.stderr.strip())
    assert "consumequeue stands on another file system" in done.stdout, done.stderr


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="no other file system")
def test_folders_on_several_file_systems_are_refused(store: Path) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as elsewhere:
        shutil.move(store / "index", elsewhere)
        (store / "index").symlink_to(Path(elsewhere) / "index")
        before = sorted(store.rglob("*"))
        with pytest.raises(store_core.UnsupportedStoreError, match="index stands on another file system"):
            store_core.append(store, NEW)
        assert sorted(store.rglob("*")) == before


def test_rows_that_are_refused_in_the_commit(store: Path) -> None:
    before = data(store)
    with pytest.raises(OptionError, match="storeTimestamp"):
        store_core.append(store, rows(0, 3, ("A",)))
    assert data(store) == before and nothing_left(store)
    store_core.append(store, rows(0, 3, ("A",)), allowUnorderedTimes=True)
    assert len(read(store)) == 56


def test_a_record_that_no_file_holds(store: Path) -> None:
    with pytest.raises(OptionError, match=r"mappedFileSizeCommitLog|4096"):
        store_core.append(store, pa.table({"topic": ["A"], "body": [bytes(4096)]}))
    assert nothing_left(store)


def test_staged_files_that_the_driver_does_not_see(tmp_path: Path) -> None:
    job = writing.start(tmp_path / "s", "append", parse_write_options({}))
    with pytest.raises(store_core.CorruptStoreError, match="no such file where a task wrote 10 bytes"):
        writing.commit(job, [Staged(0, "000000-0", 1, 10, 10, False)])
    writing.abandon(job)
    with pytest.raises(store_core.StoreError, match="the driver made this folder, and it is not there for this task"):
        writing.stage_task(job, 0, "0", OLD.to_batches())


def test_system_topics(tmp_path: Path, golden: Golden) -> None:
    rows = store_core.open_store(golden("mixed-5.3.3"), **RAW).scan().read_all()
    with pytest.raises(OptionError, match="systemTopics"):
        store_core.create_store(tmp_path / "s", rows, preserve=True)
    assert nothing_left(tmp_path / "s")


# --- fsync ---------------------------------------------------------------------------------------------------------------
class Recording(LocalWrites):
    """Which paths were written to, and which of them were not synced behind that."""

    def __init__(self) -> None:
        super().__init__()
        self.files: set[str] = set()
        self.folders: set[str] = set()
        self.events: list[tuple[str, frozenset[str], frozenset[str]]] = []

    def create(self, path: str, size: int) -> None:
        super().create(path, size)
        self.files.add(path)
        self.folders.add(os.path.dirname(path))

    def make_folder(self, path: str) -> None:
        missing = path
        while not os.path.isdir(missing):
            self.folders |= {missing, os.path.dirname(missing)}
            missing = os.path.dirname(missing)
        super().make_folder(path)

    def write_at(self, path: str, position: int, data: Any) -> None:
        super().write_at(path, position, data)
        self.files.add(path)

    def copy(self, source: str, target: str) -> None:
        super().copy(source, target)
        self.files.add(target)

    def fsync_file(self, path: str) -> None:
        super().fsync_file(path)
        self.files.discard(path)

    def fsync_folder(self, path: str) -> None:
        super().fsync_folder(path)
        self.folders.discard(path)

    def rename(self, old: str, new: str) -> None:
        self.events.append((new, frozenset(self.files), frozenset(self.folders)))
        super().rename(old, new)
        self.folders.add(os.path.dirname(new))


@pytest.mark.parametrize("write", ["create", "overwrite", "append"])
def test_all_is_on_the_disk_before_it_is_published(write: str, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Recording] = []

    def recording() -> Recording:
        made.append(Recording())
        return made[-1]

    path = store if write != "create" else store.parent / "fresh"
    job = writing.start(path, "append" if write == "create" else write, parse_write_options({} if write == "append" else SIZES))
    staged = writing.stage_task(job, 0, "0", NEW.to_batches())
    monkeypatch.setattr(writing, "LocalWrites", recording)
    writing.commit(job, [staged])
    writes = made[0]
    published = str(path) if write != "append" else str(path / ".rmq-journal.json")
    at = [event for event in writes.events if event[0] == published][-1]
    parent = {str(path.parent), str(path)}
    assert not at[1], "a file was not synced"
    assert not {folder for folder in at[2] if os.path.isdir(folder)} - parent - {os.path.dirname(job.staging)}
    assert not {folder for folder in writes.folders if os.path.isdir(folder)}, "a folder was not synced at the end"
    assert data(path)


def test_the_lock_is_the_brokers(store: Path) -> None:
    """POSIX, on the first byte: what Java's tryLock(0, 1, false) takes."""
    lock = LocalWrites().lock(str(store / "lock"))
    assert lock is not None
    child = os.fork()
    if not child:
        with open(store / "lock", "r+") as file:
            results = []
            for start in (0, 1):
                try:
                    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, start)
                    results.append(True)
                except OSError:
                    results.append(False)
        os._exit(0 if results == [False, True] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    lock.release()


# --- what others left ----------------------------------------------------------------------------------------------------
def test_staging_that_nobody_writes_to_is_removed_after_a_day(store: Path) -> None:
    beside, inside = store.parent / f".{store.name}.rmq-new-0a", store / ".rmq-staging-0b"
    young = store / ".rmq-staging-0c"
    for folder in (beside, inside, young):
        folder.mkdir()
        (folder / "000000-0.data").write_bytes(b"x")
    for path in (beside, beside / "000000-0.data", inside, inside / "000000-0.data"):
        os.utime(path, (0, 0))
    os.utime(young, (0, 0))
    store_core.append(store, NEW)
    assert young.exists() and not beside.exists() and not inside.exists()


def test_a_torn_tail_is_written_over(store: Path) -> None:
    """What a broker did not finish stands behind the log's end; none of it may come to life behind shorter records."""
    last = read(store, "commitLogOffset", "storeSize")[-1]
    end = last["commitLogOffset"] + last["storeSize"]
    path = store / "commitlog" / f"{end // 4096 * 4096:020d}"
    with path.open("r+b") as file:
        file.seek(end % 4096)
        file.write(b"\x00\x00\x01\x00" + b"\xda\xa3\x20\xa7" + b"\xff" * 600)
    (store / "abort").write_text("1")
    store_core.append(store, pa.table({"topic": ["A"], "body": [b"x"]}), allowUnclean=True)
    found = path.read_bytes()[end % 4096 :]
    assert not found.rstrip(b"\0").endswith(b"\xff") and len(found.rstrip(b"\0")) < 200
    assert len(read(store)) == 54


@pytest.mark.parametrize("kind", ["dictionary", "view"])
def test_a_body_that_rows_share_counts_for_each(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch is encoded in parts whose bodies fit into memory, though the batch itself is small."""
    body = pa.array([bytes(1 << 20)])
    if kind == "dictionary":
        shared = pa.DictionaryArray.from_arrays(pa.array([0] * 60 + [None] * 2 + [0] * 2, pa.int8()), body).slice(0, 60)
    else:
        views = body.cast(pa.binary_view()).buffers()
        shared = pa.Array.from_buffers(pa.binary_view(), 60, [None, pa.py_buffer(views[1].to_pybytes() * 60), *views[2:]])
    parts: list[int] = []

    def encode(batch: pa.RecordBatch, *args: Any, **options: Any) -> Any:
        parts.append(batch.num_rows)
        return real(batch, *args, **options)

    real = vars(writing)["encode"]
    monkeypatch.setattr(writing, "encode", encode)
    rows = pa.record_batch({"topic": pa.array(["T"] * 60), "body": shared})
    store_core.create_store(tmp_path / "s", rows)
    assert sum(parts) == 60 and max(parts) <= 16


MEASURED = """
import resource, sys
import pyarrow as pa
import store_core
def batches(count):
    for n in range(count):
        yield pa.record_batch({"topic": pa.array(["T"] * 5000), "body": pa.array([b"x" * 1000] * 5000)})
store_core.append(sys.argv[1], batches(2))
store_core.append(sys.argv[1], batches(8))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
store_core.append(sys.argv[1], batches(60))
store_core.create_store(sys.argv[1], batches(60), mode="overwrite")
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_memory_is_bounded_by_batches(tmp_path: Path) -> None:
    """330 MB of records cost no more memory than 40 MB."""
    done = subprocess.run([sys.executable, "-c", MEASURED, str(tmp_path / "s")], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 120 << 10, f"{int(done.stdout) >> 10} MiB more"
