"""`Store.verify`: clean stores are clean, and each kind of damage, made on purpose, gives its finding and no other."""

from __future__ import annotations

import pickle
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import store_core
from store_core.findings import ERROR, KINDS, WARNING
from store_core.schema import VERIFY
from tests import damage
from tests.golden_stores import GOLDEN_NAMES, Golden
from tests.synthetic import Built, Message, build_store

SLOTS = 50
LOG, QUEUE = 4096, 400


def message(n: int, topic: str | None = None, **more: Any) -> Message:
    name = topic or ("Orders", "Payments")[n % 2]
    properties = (("UNIQ_KEY", f"0A{n:030X}"), ("KEYS", f"order-{n}"), ("TAGS", f"Tag{n % 3}"))
    return Message(
        topic=name,
        body=f"the body of message {n}".encode(),
        properties=properties,
        storeTimestamp=1_735_901_092_000 + 1_000 * n,
        **more,
    )


@pytest.fixture
def built(tmp_path: Path) -> Built:
    return make(tmp_path)


def make(folder: Path, count: int = 60, **options: Any) -> Built:
    """60 messages of two topics with one queue each, in three log files; two of the three index files are full."""
    sizes = {"mappedFileSizeCommitLog": LOG, "mappedFileSizeConsumeQueue": QUEUE, "maxHashSlotNum": SLOTS, "maxIndexNum": 50}
    return build_store(folder / "store", [message(n) for n in range(count)], **(sizes | options))


def findings(root: Path, **options: Any) -> list[dict[str, Any]]:
    return store_core.open_store(root, table="verify", **options).verify().to_pylist()


def the_one(root: Path, kind: str, severity: str = ERROR) -> dict[str, Any]:
    """The only finding there is, of that kind."""
    rows = findings(root)
    assert [(row["kind"], row["severity"]) for row in rows] == [(kind, severity)], rows
    assert rows[0]["expected"] and rows[0]["found"] and rows[0]["consequence"].endswith(".")
    return rows[0]


def log_file(built: Built, offset: int) -> tuple[Path, int]:
    base = offset // LOG * LOG
    return built.root / "commitlog" / f"{base:020d}", offset - base


def queue_file(built: Built, topic: str, number: int) -> tuple[Path, int]:
    position = number * 20
    return built.root / "consumequeue" / topic / "0" / f"{position // QUEUE * QUEUE:020d}", position % QUEUE


def index_file(built: Built, n: int = 0) -> Path:
    return built.root / "index" / built.index[n].name


def entry_at(number: int) -> int:
    return 40 + 4 * SLOTS + 20 * number


# --- clean stores --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_a_store_that_a_broker_wrote_has_no_errors(golden: Golden, name: str) -> None:
    table = store_core.open_store(golden(name)).verify()
    assert table.schema == VERIFY
    kinds = {row["kind"] for row in table.to_pylist()}
    assert table["severity"].to_pylist().count(ERROR) == 0, table.to_pylist()
    expected = {"abort"} if name in ("crash-5.1.4", "dledger-4.9.7") else {"queue-unread"} if name == "rocksdb-5.3.3" else set()
    assert kinds == expected


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"layout": "dledger"},
        {"layout": "multipath"},
        {"first_offset": 4 * LOG, "first_queue_offset": 30},
        {"expired_files": 2},
        {"queue_ext": True},
        {"index_tags": True},
        {"stale_blanks": True, "preallocated": True},
    ],
    ids=str,
)
def test_a_store_of_any_shape_is_clean(tmp_path: Path, options: dict[str, Any]) -> None:
    assert findings(make(tmp_path, **options).root) == []


def test_batches_light_queues_and_transactions_are_clean(tmp_path: Path) -> None:
    many = [message(n) for n in range(20)]
    many += [message(20 + n, "Batched", inner=((b"a", ()), (b"b", (("KEYS", "k"),)))) for n in range(5)]
    many += [message(30 + n, multiDispatch=("%LMQ%a", "%LMQ%b")) for n in range(5)]
    many += [message(40 + n, sysFlag=flag) for n, flag in enumerate((0x4, 0x8, 0xC))]
    assert findings(build_store(tmp_path / "store", many).root) == []


def test_small_tasks_find_what_large_ones_find(built: Built) -> None:
    file, at = log_file(built, built.records[7].commitLogOffset)
    damage.flip_bit(file, at + 4, 0)
    damage.zero(*queue_file(built, "Orders", 12), 20)
    damage.overwrite(index_file(built), entry_at(30) + 4, struct.pack(">q", 5))
    whole = findings(built.root)
    small = findings(built.root, maxPartitionBytes=700)
    assert len(whole) == 3
    key = lambda row: (row["kind"], row["file"], row["start"])  # noqa: E731
    assert sorted(small, key=key) == sorted(whole, key=key)


def test_a_plan_is_a_value_and_conditions_hold(built: Built) -> None:
    damage.flip_bit(*log_file(built, built.records[7].commitLogOffset + 4), 0)
    (built.root / "abort").write_bytes(b"")
    store = store_core.open_store(built.root)
    plan = store.plan(where=[("severity", "=", "error")], columns=["kind", "start"], table="verify", maxPartitionBytes=2000)
    assert len(plan.tasks) > 5 and "check" in plan.explain()
    plan = pickle.loads(pickle.dumps(plan))
    rows = pa.Table.from_batches([b for task in plan.tasks for b in plan.read(task)], plan.schema).to_pylist()
    assert [row["kind"] for row in rows] == ["magic"]
    assert store.scan(table="verify").read_all().num_rows == 2
    with pytest.raises(store_core.OptionError, match="keys"):
        store.plan(table="verify", keys=["a"])


def test_a_commitlog_alone_is_checked(built: Built) -> None:
    damage.flip_bit(*log_file(built, built.records[7].commitLogOffset + 4), 0)
    assert [row["kind"] for row in findings(built.root / "commitlog")] == ["magic"]


# --- the log -------------------------------------------------------------------------------------------------------------


def test_magic(built: Built) -> None:
    record = built.records[7]
    file, at = log_file(built, record.commitLogOffset)
    damage.flip_bit(file, at + 4, 0)
    row = the_one(built.root, "magic")
    assert (row["file"], row["start"], row["end"]) == (str(file), at, at + len(record.record))
    assert "0xdbb" not in row["found"] and "0xdba320a7" in row["found"] and "0xdaa320a7" in row["expected"]


def test_size(built: Built) -> None:
    file, at = log_file(built, built.records[7].commitLogOffset)
    damage.overwrite(file, at, struct.pack(">i", 1 << 30))
    assert "1073741824" in the_one(built.root, "size")["found"]


def test_lengths(built: Built) -> None:
    file, at = log_file(built, built.records[7].commitLogOffset)
    damage.flip_bit(file, at + 87, 1)  # the body's length
    the_one(built.root, "lengths")


def test_physical_offset(built: Built) -> None:
    offset = built.records[7].commitLogOffset
    file, at = log_file(built, offset)
    damage.overwrite(file, at + 28, struct.pack(">q", 77))
    assert the_one(built.root, "physical-offset")["found"] == f"the record says it stands at 77, it stands at {offset}"


def test_body_crc(built: Built) -> None:
    file, at = log_file(built, built.records[7].commitLogOffset)
    damage.flip_bit(file, at + 92, 3)
    row = the_one(built.root, "body-crc")
    assert row["start"] == at and row["end"] == at + len(built.records[7].record)


def test_properties_crc(tmp_path: Path) -> None:
    built = build_store(tmp_path / "store", [message(n, crcProperty=True) for n in range(9)])
    damage.flip_bit(built.root / "commitlog" / f"{0:020d}", built.records[3].commitLogOffset + 18, 0)  # its flag
    the_one(built.root, "properties-crc")


def test_blank(built: Built) -> None:
    last = max(p.commitLogOffset + len(p.record) for p in built.records if p.commitLogOffset < LOG)
    damage.zero(built.root / "commitlog" / f"{0:020d}", last, 8)
    row = the_one(built.root, "blank")
    assert row["start"] == last and f"size {LOG - last}" in row["expected"]


def test_a_blank_of_another_size(built: Built) -> None:
    last = max(p.commitLogOffset + len(p.record) for p in built.records if p.commitLogOffset < LOG)
    damage.overwrite(built.root / "commitlog" / f"{0:020d}", last, struct.pack(">i", LOG - last + 4))
    the_one(built.root, "blank", WARNING)


def test_zeros(built: Built) -> None:
    record = built.records[7]
    damage.zero(*log_file(built, record.commitLogOffset), len(record.record))
    the_one(built.root, "zeros")


def test_the_last_record_torn(built: Built) -> None:
    (built.root / "checkpoint").unlink()  # it would be ahead now
    file, at = log_file(built, built.records[-1].commitLogOffset)
    damage.overwrite(file, at, struct.pack(">i", 1 << 30))
    assert "cuts the log here" in the_one(built.root, "size")["consequence"]
    (built.root / "abort").write_bytes(b"")
    assert {(row["kind"], row["severity"]) for row in findings(built.root)} == {("abort", WARNING), ("size", WARNING)}


@pytest.mark.parametrize("kind", ["tail", "record"])
def test_recycled_bytes(tmp_path: Path, kind: str) -> None:
    the_one(make(tmp_path, 57, stale_tail=kind).root, "recycled", WARNING)


def test_a_missing_file(built: Built) -> None:
    (built.root / "commitlog" / f"{LOG:020d}").unlink()
    row = the_one(built.root, "gap")
    assert row["expected"] == f"1 file with commitLogOffsets [{LOG}, {2 * LOG})"


def test_a_short_file(built: Built) -> None:
    file = built.root / "commitlog" / f"{LOG:020d}"
    damage.truncate(file, LOG - 8)
    row = the_one(built.root, "file-length")
    assert (row["file"], row["start"], row["end"]) == (str(file), LOG - 8, LOG)


def test_a_stray_file(built: Built) -> None:
    (built.root / "commitlog" / "00000000000000004096.bak").write_bytes(b"x")
    the_one(built.root, "stray-file")


def test_an_empty_file(built: Built) -> None:
    (built.root / "consumequeue" / "Orders" / "0" / f"{100 * QUEUE:020d}").write_bytes(b"")
    the_one(built.root, "empty-file", WARNING)


def test_two_files_of_the_same_offsets(built: Built) -> None:
    other = built.root / "commitlog-2"
    other.mkdir()
    shutil.copy(built.root / "commitlog" / f"{LOG:020d}", other)
    row = the_one(built.root, "overlap")
    assert {Path(row["file"]).parent.name, row["found"].split("which ")[1].split("/")[-2]} == {"commitlog", "commitlog-2"}
    with pytest.raises(store_core.CorruptStoreError):
        store_core.open_store(built.root)


# --- queues --------------------------------------------------------------------------------------------------------------


def unit(built: Built, topic: str, number: int) -> bytes:
    file, at = queue_file(built, topic, number)
    return damage.read(file, at, 20)


def put(built: Built, topic: str, number: int, data: bytes) -> None:
    damage.overwrite(*queue_file(built, topic, number), data)


@pytest.mark.parametrize("place", [5, 1 << 40])
def test_an_entry_that_leads_nowhere(built: Built, place: int) -> None:
    put(built, "Orders", 8, struct.pack(">q", place))
    row = the_one(built.root, "queue-nowhere")
    file, at = queue_file(built, "Orders", 8)
    assert (row["file"], row["start"], row["end"]) == (str(file), at, at + 20)
    assert row["expected"] == "the record of Orders/0 with queueOffset 8" and str(place) in row["found"]


def test_an_entry_of_another_topic(built: Built) -> None:
    put(built, "Orders", 8, unit(built, "Payments", 8))
    assert the_one(built.root, "queue-other")["found"].endswith("a record of Payments/0")


def test_an_entry_of_another_size(built: Built) -> None:
    size = struct.unpack(">qiq", unit(built, "Orders", 8))[1]
    damage.overwrite(queue_file(built, "Orders", 8)[0], queue_file(built, "Orders", 8)[1] + 8, struct.pack(">i", size - 3))
    assert the_one(built.root, "queue-size")["expected"] == f"size {size}, the record's"


def test_a_missing_entry(built: Built) -> None:
    put(built, "Orders", 8, bytes(20))
    row = the_one(built.root, "queue-missing")
    assert row["start"] == 160 and row["end"] == 180 and "queueOffsets 8 to 8 of Orders/0" in row["expected"]


def test_missing_entries_in_a_row_are_one_finding(built: Built) -> None:
    put(built, "Orders", 8, bytes(60))
    assert "none for 3 records" in the_one(built.root, "queue-missing")["found"]


def test_a_queue_that_lags(tmp_path: Path) -> None:
    built = make(tmp_path, queue_lag=4)
    (built.root / "config" / "consumerOffset.json").unlink()
    rows = findings(built.root)
    assert [(row["kind"], row["severity"]) for row in rows] == [("queue-missing", ERROR)] * 2
    (built.root / "abort").write_bytes(b"")
    assert {(row["kind"], row["severity"]) for row in findings(built.root)} == {("queue-missing", WARNING), ("abort", WARNING)}


def test_a_queue_without_files(built: Built) -> None:
    shutil.rmtree(built.root / "consumequeue" / "Orders")
    rows = findings(built.root)  # one for each commitlog file
    assert {row["kind"] for row in rows} == {"queue-missing"} and len(rows) == 3
    assert sum(int(row["found"].split()[2]) for row in rows) == 30
    assert all(row["file"].endswith("consumequeue/Orders/0") and "no files" in row["found"] for row in rows)


def test_a_deleted_topic(built: Built) -> None:
    shutil.rmtree(built.root / "consumequeue" / "Orders")
    config = built.root / "config" / "topics.json"
    config.write_text(config.read_text().replace("Orders", "Ordres"))
    (built.root / "config" / "consumerOffset.json").unlink()
    rows = findings(built.root)
    assert {(row["kind"], row["severity"]) for row in rows} == {("queue-missing", WARNING)}
    assert all("was deleted" in row["found"] for row in rows)


def test_no_queues(built: Built) -> None:
    shutil.rmtree(built.root / "consumequeue")
    the_one(built.root, "queue-none")


def test_a_doubled_entry(built: Built) -> None:
    put(built, "Orders", 9, unit(built, "Orders", 8))
    the_one(built.root, "queue-doubled")


def test_entries_out_of_order(built: Built) -> None:
    file, at = queue_file(built, "Orders", 8)
    damage.swap(file, at, at + 20, 20)
    row = the_one(built.root, "queue-order")
    assert (row["start"], row["end"]) == (at, at + 40)


def test_a_shifted_queue(built: Built) -> None:
    file, at = queue_file(built, "Orders", 20)
    units = file.read_bytes()
    damage.overwrite(file, 0, units[20:200] + bytes(20))  # offsets 20 to 29: the first one's entry was lost
    assert at == 0
    rows = {row["kind"]: row for row in findings(built.root)}
    assert set(rows) == {"queue-shifted", "queue-missing"}  # and the last record has none
    assert "9 entries like that in a row" in rows["queue-shifted"]["found"]


def test_a_tags_code(built: Built) -> None:
    file, at = queue_file(built, "Orders", 8)
    damage.flip_bit(file, at + 19, 0)
    the_one(built.root, "queue-tags")


def test_two_records_of_one_queue_offset(tmp_path: Path) -> None:
    many = [message(n, "Orders") for n in range(10)]
    many[6] = message(6, "Orders", queueOffset=5)
    many += [message(n, "Orders") for n in range(10, 12)]
    rows = findings(build_store(tmp_path / "store", many).root)
    assert "says it has the same queueOffset" in next(row for row in rows if row["kind"] == "queue-missing")["found"]


def test_a_queue_file_of_another_length(built: Built) -> None:
    damage.append(queue_file(built, "Orders", 20)[0], bytes(20))
    the_one(built.root, "file-length")


def test_a_batch_queue(tmp_path: Path) -> None:
    many = [message(n, "Batched", inner=((b"a", ()), (b"b", ()))) for n in range(8)]
    built = build_store(tmp_path / "store", many)
    file = built.root / "batchconsumequeue" / "Batched" / "0" / f"{0:020d}"
    damage.overwrite(file, 46 * 3, struct.pack(">q", 5))
    row = the_one(built.root, "queue-nowhere")
    assert (row["start"], row["end"]) == (46 * 3, 46 * 4)
    damage.overwrite(file, 46 * 3, struct.pack(">q", built.records[3].commitLogOffset))
    damage.zero(file, 46 * 7, 46)
    the_one(built.root, "queue-missing")


# --- index ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", [5, 4000])
def test_an_index_entry_that_leads_nowhere(built: Built, place: int) -> None:
    damage.overwrite(index_file(built), entry_at(30) + 4, struct.pack(">q", place))
    row = the_one(built.root, "index-nowhere")
    assert (row["start"], row["end"]) == (entry_at(30), entry_at(31)) and "order-4" not in row["found"]
    assert "the record at" in row["expected"]


def test_an_index_entry_of_no_key(built: Built) -> None:
    value = struct.unpack(">i", damage.read(index_file(built), entry_at(30), 4))[0]
    other = value + SLOTS if value + SLOTS < 1 << 31 else value - SLOTS  # the same chain
    damage.overwrite(index_file(built), entry_at(30), struct.pack(">i", other))
    the_one(built.root, "index-key")


def test_an_index_entry_of_another_time(built: Built) -> None:
    damage.overwrite(index_file(built), entry_at(30) + 12, struct.pack(">i", 999))
    assert "timeDiff 999" in the_one(built.root, "index-time")["found"]


def test_a_broken_chain(built: Built) -> None:
    file, at = index_file(built), entry_at(40) + 16
    damage.overwrite(file, at, struct.pack(">i", 0))
    the_one(built.root, "index-chain")


def test_a_chain_in_a_loop(built: Built) -> None:
    damage.overwrite(index_file(built), entry_at(40) + 16, struct.pack(">i", 40))
    assert "loop" in the_one(built.root, "index-chain")["found"]


def test_a_slot(built: Built) -> None:
    slots = struct.unpack(f">{SLOTS}i", damage.read(index_file(built), 40, 4 * SLOTS))
    entries = built.index[0].entries
    late = next(s for s in range(SLOTS) if slots[s] and not any(e[0] % SLOTS == s for e in entries[:16]))
    damage.overwrite(index_file(built), 40 + 4 * late, struct.pack(">i", 0))
    row = the_one(built.root, "index-chain")
    assert (row["start"], row["end"]) == (40 + 4 * late, 44 + 4 * late)


def test_a_used_slot_count(built: Built) -> None:
    damage.overwrite(index_file(built), 32, struct.pack(">i", 7))
    the_one(built.root, "index-header", WARNING)


def test_an_index_count_that_is_too_small(built: Built) -> None:
    last = built.index[-1]
    end = last.entries[-3][1]  # two entries are not counted
    damage.overwrite(index_file(built, -1), 24, struct.pack(">q", end))
    damage.overwrite(index_file(built, -1), 36, struct.pack(">i", last.indexCount - 2))
    kinds = {row["kind"] for row in findings(built.root)}
    assert "index-header" in kinds


def test_header_times(built: Built) -> None:
    damage.overwrite(index_file(built), 0, struct.pack(">q", built.index[0].beginTimestamp - 5_000))
    assert the_one(built.root, "index-header")["found"].startswith("beginTimestamp")


def test_header_offsets(built: Built) -> None:
    damage.overwrite(index_file(built), 16, struct.pack(">q", -4))
    the_one(built.root, "index-header")


def test_keys_of_a_lost_index_file(built: Built) -> None:
    index_file(built, 1).unlink()
    rows = findings(built.root)  # one for each commitlog file
    assert {(row["kind"], row["severity"]) for row in rows} == {("index-missing", WARNING)}
    assert all("between index files" in row["expected"] for row in rows)
    assert sum(int(row["found"].split()[0]) for row in rows) == len(built.index[1].entries)


def test_an_index_that_lags(tmp_path: Path) -> None:
    built = make(tmp_path, index_lag=3)
    row = the_one(built.root, "index-missing", WARNING)
    assert row["found"].startswith("6 keys of 3 messages") and "behind the last index file" in row["expected"]


def test_keys_that_a_crash_lost(tmp_path: Path) -> None:
    built = make(tmp_path, index_crashes=(40,))
    kinds = {(row["kind"], row["severity"]) for row in findings(built.root)}
    assert kinds <= {("index-missing", WARNING), ("index-doubled", WARNING)} and kinds


def test_a_key_missing_amid_an_index(built: Built, tmp_path: Path) -> None:
    other = build_store(
        tmp_path / "other",
        [message(n) if n != 11 else message(n, sysFlag=0xC) for n in range(60)],  # an index does not take rolled back ones
        mappedFileSizeCommitLog=LOG,
        mappedFileSizeConsumeQueue=QUEUE,
        maxHashSlotNum=SLOTS,
        maxIndexNum=50,
    )
    shutil.rmtree(built.root / "index")
    shutil.copytree(other.root / "index", built.root / "index")
    row = the_one(built.root, "index-missing")
    assert row["found"].startswith("2 keys of 1 message are") and f"at {built.records[11].commitLogOffset}" in row["found"]


def test_no_index(built: Built) -> None:
    shutil.rmtree(built.root / "index")
    rows = {row["kind"]: row["severity"] for row in findings(built.root)}
    assert rows == {"index-none": WARNING, "checkpoint-ahead": ERROR}


# --- what stands beside --------------------------------------------------------------------------------------------------


def test_abort(built: Built) -> None:
    (built.root / "abort").write_bytes(b"")
    the_one(built.root, "abort", WARNING)


def test_the_checkpoint(built: Built) -> None:
    last = built.records[-1]
    time = last.message.storeTimestamp
    file = built.root / "checkpoint"
    damage.overwrite(file, 0, struct.pack(">q", time - 60_000))
    the_one(built.root, "checkpoint-behind", WARNING)
    for at, value in ((0, time + 1), (8, time + 1), (16, time + 1), (32, built.end + 1), (40, last.commitLogOffset + 1)):
        good = damage.read(file, at, 8) if at else struct.pack(">q", time)
        damage.overwrite(file, 0, struct.pack(">q", time))
        damage.overwrite(file, at, struct.pack(">q", value))
        row = the_one(built.root, "checkpoint-ahead")
        assert (row["start"], row["end"]) == (at, at + 8) and row["found"].endswith(str(value))
        damage.overwrite(file, at, good)
    damage.truncate(file, 48)
    the_one(built.root, "file-length", WARNING)


def test_topics(built: Built) -> None:
    config = built.root / "config" / "topics.json"
    text = config.read_text()
    config.write_text(text.replace("Orders", "Ordres"))
    assert the_one(built.root, "topic-missing")["expected"] == "the topic Orders"
    config.write_text(text.replace('"readQueueNums":4', '"readQueueNums":0', 1))
    the_one(built.root, "topic-queues", WARNING)
    config.write_text("{")
    the_one(built.root, "config")
    config.with_name("topics.json.bak").write_text(text)
    the_one(built.root, "config", WARNING)


def test_consumer_offsets(built: Built) -> None:
    config = built.root / "config" / "consumerOffset.json"
    config.write_text('{"offsetTable":{"Orders@readers":{0:31}}}')
    row = the_one(built.root, "consumer-offset")
    assert row["expected"] == "0 to 30 for group readers in Orders/0" and row["found"] == "offset 31"
    config.write_text('{"offsetTable":{"Orders@readers":{0:-1}}}')
    the_one(built.root, "consumer-offset", WARNING)


def test_delay_offsets(tmp_path: Path) -> None:
    many = [message(n, "SCHEDULE_TOPIC_XXXX") for n in range(4)]
    built = build_store(tmp_path / "store", many)
    (built.root / "config" / "delayOffset.json").write_text('{"offsetTable":{1:9}}')
    the_one(built.root, "delay-offset", WARNING)


def test_every_kind_is_shown_here() -> None:
    """Each kind is named by a test of this file (`index-unread`: by the one below)."""
    text = Path(__file__).read_text(encoding="utf-8")
    assert [kind for kind in KINDS if f'"{kind}"' not in text] == []


def test_two_copies_of_an_index_file(built: Built) -> None:
    shutil.copy(index_file(built, 1), built.root / "index" / "20991231235959999")
    the_one(built.root, "index-unread")


def test_findings_are_what_spark_pickles(fresh_golden: Callable[[str], Path]) -> None:
    root = fresh_golden("mixed-5.3.3")
    damage.flip_bit(root / "commitlog" / f"{0:020d}", 4, 1)
    rows = findings(root)
    assert [row["kind"] for row in rows] == ["magic"]
