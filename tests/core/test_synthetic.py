"""The synthetic writer writes what brokers write: their files byte for byte, and what the oracle reads back."""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from tests.golden_stores import GOLDEN_NAMES, Golden
from tests.oracle import Row, data_end, log_files, read_parts, read_store
from tests.strategies import StoreCase, stores
from tests.synthetic import BATCH_TOPIC, Built, Message, build_store, random_messages
from tests.synthetic.messages import encode_record

GOLDEN_SIZES: dict[str, int] = {
    "mappedFileSizeCommitLog": 262144,
    "mappedFileSizeConsumeQueue": 2000,
    "mapperFileSizeBatchConsumeQueue": 13_800_000,
    "maxHashSlotNum": 200,
    "maxIndexNum": 800,
}
GOLDEN_OPTIONS: dict[str, dict[str, Any]] = {
    "batchcq-5.3.3": {"batch_topics": ("Batched",)},
    "crash-5.1.4": {"preallocated": True},
    "crc-5.5.0": {"index_tags": True},
    "dledger-4.9.7": {"layout": "dledger"},
    "rocksdb-5.3.3": {"write_queues": False},
}


def as_message(row: Row) -> Message:
    """The message a broker must have been sent to store this row; places and queue offsets are left to the writer."""
    properties = row["propertiesString"]
    crc = properties[-20:].startswith(b"__CRC32#\x01")
    columns = (
        "topic queueId flag sysFlag bornTimestamp bornHost storeTimestamp storeHost reconsumeTimes preparedTransactionOffset"
    )
    return Message(
        body=read_parts(row["rawRecord"])["storedBody"],
        properties=properties[:-20] if crc else properties,
        crcProperty=crc,
        **{column: row[column] for column in columns.split()},
    )


def contents(root: Path, *folders: str) -> dict[str, bytes]:
    files = [file for folder in folders for file in root.glob(f"{folder}/**/*") if file.is_file()]
    return {str(file.relative_to(root)): file.read_bytes() for file in files}


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_a_brokers_store_is_rebuilt_byte_for_byte(golden: Golden, tmp_path: Path, name: str) -> None:
    options = {"batch_topics": ()} | GOLDEN_OPTIONS.get(name, {}) | GOLDEN_SIZES
    build_store(tmp_path, [as_message(row) for row in read_store(golden(name))], **options)
    folders = ["commitlog", "dledger-n0/data", "batchconsumequeue"]
    if options.get("write_queues", True):
        folders.append("consumequeue")
    ours, theirs = contents(tmp_path, *folders), contents(golden(name), *folders)
    assert sorted(ours) == sorted(theirs)
    assert [file for file in ours if ours[file] != theirs[file]] == []
    # Index files are named after the clock at their creation, which nothing else tells: their order is what counts.
    ours, theirs = contents(tmp_path, "index"), contents(golden(name), "index")
    assert [ours[file] for file in sorted(ours)] == [theirs[file] for file in sorted(theirs)]


def check_against_oracle(built: Built) -> None:
    rows = read_store(built.root)
    assert len(rows) == len(built.records)
    for row, placed in zip(rows, built.records, strict=True):
        message = placed.message
        assert row["rawRecord"] == placed.record
        assert (row["commitLogOffset"], row["queueOffset"]) == (placed.commitLogOffset, placed.queueOffset)
        assert (row["topic"], row["queueId"], row["flag"]) == (message.topic, message.queueId, message.flag)
        assert (row["bornTimestamp"], row["storeTimestamp"]) == (message.bornTimestamp, message.storeTimestamp)
        assert row["properties"].items() >= placed.properties.items()
        assert row["properties"].keys() - placed.properties.keys() <= {"__CRC32#"}
        assert message.inner or row["body"] == message.body
    if built.records:
        assert data_end(built.root) == built.end
    assert len({len(file.read_bytes()) for file in log_files(built.root)}) <= 1


@settings(max_examples=40, deadline=None)
@given(case=stores())
def test_the_oracle_reads_what_was_written(tmp_path_factory: pytest.TempPathFactory, case: StoreCase) -> None:
    check_against_oracle(case.build(tmp_path_factory.mktemp("store")))


def test_random_messages_reach_every_corner() -> None:
    messages = random_messages(random.Random(1), 1500, clock_steps_back=True, inner_batches=True, multi_dispatch=True)
    assert messages == random_messages(random.Random(1), 1500, clock_steps_back=True, inner_batches=True, multi_dispatch=True)
    records = [encode_record(message, 0, 0) for message in messages]
    flags = [struct.unpack_from(">i", record, 36)[0] for record in records]
    assert {flag & 0xC for flag in flags} == {0, 4, 8, 12}
    assert {flag & 0x30 for flag in flags} == {0, 0x10, 0x20, 0x30}
    assert {flag & 0x701 for flag in flags} == {0, 0x1, 0x101, 0x201, 0x301}
    assert {record[4:8].hex() for record in records} == {"daa320a7", "daa320ab"}
    assert any(len(message.topic) > 127 for message in messages)
    assert any(message.inner for message in messages)
    assert any(message.multiDispatch for message in messages)
    assert any(not message.body for message in messages)
    assert any(not message.properties for message in messages)
    times = [message.storeTimestamp for message in messages]
    assert times != sorted(times)
    assert len(set(times)) < len(times)
    named = [[name for name, _ in message.properties] for message in messages if not isinstance(message.properties, bytes)]
    for name in ("KEYS", "TAGS", "UNIQ_KEY"):
        assert any(names.count(name) > 1 for names in named)


def test_the_worked_example_of_the_format(tmp_path: Path) -> None:
    """Two messages whose bytes were checked with RocketMQ's own classes."""
    names = ("0A000001303918B4AAC20C9B1D230000", "0A000001303918B4AAC20C9B31A50001")
    first, second = (
        Message(
            topic="TopicTest",
            queueId=3,
            body=b"Hello RocketMQ",
            properties=(
                ("KEYS", "OrderID188"),
                ("UNIQ_KEY", name),
                ("CLUSTER", "DefaultCluster"),
                ("WAIT", "true"),
                ("TAGS", "TagA"),
            ),
            bornTimestamp=1_735_901_092_131 + later,
            storeTimestamp=1_735_901_092_139 + later,
        )
        for name, later in zip(names, (0, 5250), strict=True)
    )
    build_store(tmp_path, [first, second], mappedFileSizeConsumeQueue=2000, maxHashSlotNum=5000, maxIndexNum=100)
    log = (tmp_path / "commitlog" / f"{0:020d}").read_bytes()
    assert log[:20].hex() == "000000d7daa320a769c865ed0000000300000000"
    assert log[215 : 215 + 36].hex() == "000000d7daa320a769c865ed000000030000000000000000000000" + "0100000000000000d7"
    queue = (tmp_path / "consumequeue" / "TopicTest" / "3" / f"{0:020d}").read_bytes()
    assert queue[:40].hex() == "0000000000000000000000d7000000000027a807" + "00000000000000d7000000d7000000000027a807"
    (index,) = (tmp_path / "index").iterdir()
    content = index.read_bytes()
    assert index.name == "20250103104452139"
    assert content[:40].hex() == ("000001942bc4992b000001942bc4adad000000000000000000000000000000d70000000300000005")
    assert content[20060 : 20060 + 80].hex() == (
        "79f2240f00000000000000000000000000000000"
        "4963b6f600000000000000000000000000000000"
        "7652f84e00000000000000d70000000500000000"
        "4963b6f600000000000000d70000000500000002"
    )


def test_crc_property_of_the_worked_example() -> None:
    properties = (
        ("KEYS", "OrderID188"),
        ("UNIQ_KEY", "0A000001303918B4AAC20C9B1D230000"),
        ("CLUSTER", "DefaultCluster"),
        ("WAIT", "true"),
        ("TAGS", "TagA"),
    )
    message = Message(topic="TopicTest", queueId=3, body=b"Hello RocketMQ", properties=properties, crcProperty=True)
    record = encode_record(message, 0, 0)
    assert len(record) == 235
    assert record[-20:] == b"__CRC32#\x014479706370\x02"


def test_fillers_lead_to_the_first_entry_of_a_queue(tmp_path: Path) -> None:
    message = Message(topic="T", properties=(("KEYS", "k"),))
    build_store(tmp_path, [message], first_offset=32768, first_queue_offset=13, mappedFileSizeConsumeQueue=200)
    (file,) = (tmp_path / "consumequeue" / "T" / "0").iterdir()
    units = list(struct.iter_unpack(">qiq", file.read_bytes()))
    assert int(file.name) == 200
    assert units[:3] == [(0, 0x7FFFFFFF, 0)] * 3
    assert units[3][0] == 32768
    assert units[4:] == [(0, 0, 0)] * 6


def test_retention_deletes_what_points_below_the_log(tmp_path: Path) -> None:
    messages = random_messages(random.Random(2), 400)
    whole = build_store(tmp_path / "whole", messages, mappedFileSizeConsumeQueue=100, maxIndexNum=40)
    built = build_store(tmp_path / "cut", messages, expired_files=3, mappedFileSizeConsumeQueue=100, maxIndexNum=40)
    check_against_oracle(built)
    start = int(log_files(built.root)[0].name)
    assert start == 3 * 16384
    assert 0 < len(built.index) < len(whole.index)
    kept, all_files = contents(built.root, "consumequeue"), contents(whole.root, "consumequeue")
    assert kept.items() < all_files.items()
    assert all(struct.unpack_from(">q", content, 80)[0] < start for file, content in all_files.items() if file not in kept)


def test_ext_addresses_lead_to_the_tags_code(tmp_path: Path) -> None:
    messages = [Message(topic="T", properties=(("TAGS", f"tag-{n}"),), storeTimestamp=1000 + n) for n in range(40)]
    plain = build_store(tmp_path / "plain", messages)
    ext = build_store(tmp_path / "ext", messages, queue_ext=True)
    ext_files = {int(f.name): f.read_bytes() for f in (ext.root / "consumequeue_ext" / "T" / "0").iterdir()}
    assert len(ext_files) == 3
    for file in sorted((plain.root / "consumequeue" / "T" / "0").iterdir()):
        pointing = (ext.root / "consumequeue" / "T" / "0" / file.name).read_bytes()
        pairs = zip(struct.iter_unpack(">qiq", file.read_bytes()), struct.iter_unpack(">qiq", pointing), strict=True)
        for number, (direct, through) in enumerate(pairs):
            assert direct[:2] == through[:2]
            assert through[2] <= -(1 << 31) - 1
            base, position = divmod(through[2] + (1 << 63), 500)
            unit = struct.unpack_from(">hqqh", ext_files[base * 500], position)
            assert unit == (28, direct[2], 1000 + int(file.name) // 20 + number, 8)


def test_inner_batches_and_light_queues(tmp_path: Path) -> None:
    messages = random_messages(random.Random(3), 200, inner_batches=True, multi_dispatch=True)
    built = build_store(tmp_path, messages)
    units = [
        unit
        for file in sorted((tmp_path / "batchconsumequeue" / BATCH_TOPIC / "0").iterdir())
        for unit in struct.iter_unpack(">qiqqqhii", file.read_bytes())
        if unit[1]
    ]
    batches = [placed for placed in built.records if placed.message.inner]
    assert [unit[0] for unit in units] == [placed.commitLogOffset for placed in batches]
    assert [unit[4] for unit in units] == [sum(len(b.message.inner) for b in batches[:n]) for n in range(len(batches))]
    assert all(placed.properties["INNER_BASE"] == str(placed.queueOffset) for placed in batches)
    light = contents(tmp_path, "consumequeue/%LMQ%all")
    offsets = [unit[0] for file in sorted(light) for unit in struct.iter_unpack(">qiq", light[file]) if unit[1]]
    assert offsets == [placed.commitLogOffset for placed in built.records if "%LMQ%all" in placed.message.multiDispatch]


@pytest.mark.parametrize("kind", ["tail", "record"])
def test_a_stale_tail_is_there_and_is_no_record(tmp_path: Path, kind: str) -> None:
    clean = build_store(tmp_path / "clean", random_messages(random.Random(4), 60))
    stale = build_store(tmp_path / "stale", random_messages(random.Random(4), 60), stale_tail=kind, stale_blanks=True)
    check_against_oracle(stale)
    assert read_store(clean.root) == read_store(stale.root)
    last = log_files(stale.root)[-1].read_bytes()[stale.end % 16384 :]
    assert any(last)
    assert (last[4:8] == b"\xda\xa3\x20\xa7") == (kind == "record")


def test_a_crash_leaves_a_hole_between_index_files(tmp_path: Path) -> None:
    messages = random_messages(random.Random(5), 300)
    whole = build_store(tmp_path / "whole", messages)
    built = build_store(tmp_path / "crashed", messages, index_crashes=(150,))
    before, after = next(
        (one, two)
        for one, two in zip(built.index, built.index[1:], strict=False)
        if built.records[150].commitLogOffset // 16384 * 16384 <= two.beginPhyOffset
    )
    assert any(before.endPhyOffset < placed.commitLogOffset < after.beginPhyOffset for placed in built.records)
    assert sum(len(file.entries) for file in built.index) < sum(len(file.entries) for file in whole.index)


def test_lag_and_holes(tmp_path: Path) -> None:
    messages = [Message(topic="T", properties=(("KEYS", f"k{n}"),)) for n in range(50)]
    built = build_store(tmp_path, messages, queue_lag=7, index_lag=3, index_holes=(1,), maxIndexNum=11)
    units = [u for c in contents(tmp_path, "consumequeue").values() for u in struct.iter_unpack(">qiq", c) if u[1]]
    assert len(units) == 43
    assert [len(file.entries) for file in built.index] == [10, 10, 10, 7]
    assert len(list((tmp_path / "index").iterdir())) == 4


def test_multipath_deals_files_out_in_turn(tmp_path: Path) -> None:
    built = build_store(tmp_path, random_messages(random.Random(6), 150), layout="multipath", paths=2)
    check_against_oracle(built)
    for file in log_files(tmp_path):
        assert file.parent.name == f"commitlog-{int(file.name) // 16384 % 2}"


def test_config_has_bare_integer_keys(tmp_path: Path) -> None:
    build_store(tmp_path, random_messages(random.Random(7), 80, inner_batches=True), abort=True)
    topics = json.loads((tmp_path / "config" / "topics.json").read_text("utf-8"))["topicConfigTable"]
    assert topics[BATCH_TOPIC]["attributes"] == {"queue.type": "BatchCQ"}
    assert topics["SCHEDULE_TOPIC_XXXX"]["readQueueNums"] == 18
    assert "\t\t\t0:" in (tmp_path / "config" / "consumerOffset.json").read_text("utf-8")
    assert (tmp_path / "abort").exists()
    assert (tmp_path / "checkpoint").stat().st_size == 4096


@pytest.mark.parametrize(
    "options",
    [
        {"layout": "raid"},
        {"stale_tail": "all"},
        {"layout": "dledger", "stale_tail": "tail"},
        {"first_offset": 1},
        {"mappedFileSizeConsumeQueue": 30},
        {"mappedFileSizeCommitLog": 90},
    ],
)
def test_options_that_no_broker_could_have(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"layout|stale|multiple|fit"):
        build_store(tmp_path, [Message(topic="T")], **options)
