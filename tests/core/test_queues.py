from __future__ import annotations

import pickle
import struct
from bisect import bisect_left
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.consumequeue import Entries, ExtUnits, encode_ext_units, encode_fillers, ext_address
from store_core.errors import StoreChangedError
from store_core.files import Entry, LocalFiles
from store_core.layout import FILLER_SIZE
from store_core.queues import (
    Queue,
    QueueFile,
    bounds,
    first_at_or_after,
    has_queue_files,
    list_queues,
    read_entries,
    resolve_ext,
    rocksdb_queue,
    topics,
    used_files,
)
from tests import oracle
from tests.golden_stores import ANSWERED_NAMES, Golden

PER_FILE = 10
Unit = tuple[int, int, int]
ZERO = (0, 0, 0)


def unit(offset: int) -> Unit:
    """The unit of the message with this queue offset: its record stands at 1000 * offset."""
    return (1000 * offset, 100, offset * 7)


def write_queue(
    root: Path, files: dict[int, list[Unit]], topic: str = "T", queue_id: int = 0, per_file: int = PER_FILE, tail: bytes = b""
) -> Queue:
    """A queue whose files hold these units from these queue offsets on, each padded with zeros to `per_file` units."""
    folder = root / "consumequeue" / topic / str(queue_id)
    folder.mkdir(parents=True)
    for first, units in files.items():
        data = b"".join(struct.pack(">qiq", *one) for one in units)
        (folder / f"{first * 20:020d}").write_bytes(data.ljust(per_file * 20, b"\0") + tail)
    (queue,) = (queue for queue in list_queues(LocalFiles(), str(root), {topic}) if queue.queue_id == queue_id)
    return queue


def read(queue: Queue, min_phys: int = 0, **slices: Any) -> Entries:
    return Entries.concat([entries for _, entries in read_entries(LocalFiles(), queue, min_phys=min_phys, **slices)])


def offsets(queue: Queue, min_phys: int = 0, **slices: Any) -> list[int]:
    entries = read(queue, min_phys, **slices)
    assert (entries.commit_log_offset == entries.queue_offset * 1000).all(), "an entry under a wrong number"
    numbers: list[int] = entries.queue_offset.tolist()
    return numbers


# --- stores of real brokers ----------------------------------------------------------------------------------------------
def expected(golden: Golden, name: str) -> dict[tuple[str, int], list[Any]]:
    """(queueOffset, commitLogOffset, size, tagsCode or None, batchSize) of each queue, from the log alone."""
    queues = defaultdict(list)
    for row in golden.messages(name):
        if row["sysFlag"] & 0xC in (0x4, 0xC):
            continue
        props = row["properties"]
        place = row["commitLogOffset"], row["storeSize"]
        tags = None if row["topic"] == "SCHEDULE_TOPIC_XXXX" else java_hash(props.get("TAGS", ""))
        count = int(props.get("INNER_NUM", 1))
        queues[row["topic"], row["queueId"]].append((row["queueOffset"], *place, tags, count))
        multi, at = props.get("INNER_MULTI_DISPATCH", ""), props.get("INNER_MULTI_QUEUE_OFFSET", "")
        for lmq, offset in zip(multi.split(","), at.split(","), strict=True) if multi else ():
            queues[lmq, 0].append((int(offset), *place, tags, 1))
    return {key: sorted(entries) for key, entries in queues.items()}


def java_hash(text: str) -> int:
    data = text.encode("utf-16-be")
    code = 0
    for (char,) in struct.iter_unpack(">H", data):
        code = (31 * code + char) & 0xFFFFFFFF
    return code - (1 << 32) if code >> 31 else code


@pytest.mark.parametrize("name", [name for name in ANSWERED_NAMES if not name.startswith("rocksdb")])
def test_entries_are_those_of_the_log(golden: Golden, name: str) -> None:
    wanted = expected(golden, name)
    queues = list_queues(LocalFiles(), str(golden(name)))
    assert {(queue.topic, queue.queue_id) for queue in queues} >= set(wanted)
    for queue in queues:
        entries = read(queue)
        rows = wanted.pop((queue.topic, queue.queue_id), [])
        found = list(
            zip(
                entries.queue_offset.tolist(),
                entries.commit_log_offset.tolist(),
                entries.size.tolist(),
                [None] * len(entries) if queue.topic == "SCHEDULE_TOPIC_XXXX" else entries.tags_code.tolist(),
                entries.batch_size.tolist(),
                strict=True,
            )
        )
        assert found == rows, queue
        begin, end = bounds(LocalFiles(), queue, 0)
        assert (begin, end) == ((rows[0][0], rows[-1][0] + rows[-1][4]) if rows else (0, 0))
        for first in range(begin, end + 1):
            part = read(queue, first=first, stop=first + 3)
            assert part.queue_offset.tolist() == [r[0] for r in rows if r[0] < first + 3 and r[0] + r[4] > first]
    assert not wanted


@pytest.mark.parametrize("name", ["mixed-5.3.3", "batchcq-5.3.3"])
def test_search_by_time_finds_what_a_walk_finds(golden: Golden, name: str) -> None:
    messages = golden.messages(name)
    times = {row["commitLogOffset"]: row["storeTimestamp"] for row in messages}
    for queue in list_queues(LocalFiles(), str(golden(name))):
        entries = read(queue)
        stored = [times[offset] for offset in entries.commit_log_offset.tolist()]
        numbers = [*entries.queue_offset.tolist(), bounds(LocalFiles(), queue, 0)[1]]
        assert stored == sorted(stored)
        for at in {time + step for time in stored for step in (-1, 0, 1)}:
            assert first_at_or_after(LocalFiles(), queue, at, 0, times.get) == numbers[bisect_left(stored, at)]


def test_dledger_entries_point_behind_the_entry_headers(golden: Golden) -> None:
    places = {offset: len(record) for offset, record in oracle.walk(golden("dledger-4.9.7"))}
    queues = list_queues(LocalFiles(), str(golden("dledger-4.9.7")))
    found: dict[int, int] = {}
    for queue in queues:
        entries = read(queue)
        found |= dict(zip(entries.commit_log_offset.tolist(), entries.size.tolist(), strict=True))
    assert found == places


def test_a_rocksdb_queue_is_named(golden: Golden, tmp_path: Path) -> None:
    root = golden("rocksdb-5.3.3")
    assert rocksdb_queue(LocalFiles(), str(root)) == f"{root}/consumequeue"
    assert not has_queue_files(LocalFiles(), str(root))
    assert list_queues(LocalFiles(), str(root)) == ()
    write_queue(tmp_path, {0: [unit(0)]})
    assert rocksdb_queue(LocalFiles(), str(tmp_path)) is None
    assert has_queue_files(LocalFiles(), str(tmp_path))
    (tmp_path / "consumequeue_rocksdb").mkdir()
    (tmp_path / "consumequeue_rocksdb" / "CURRENT").write_text("MANIFEST-000005\n")
    assert rocksdb_queue(LocalFiles(), str(tmp_path)) == f"{tmp_path}/consumequeue_rocksdb"


# --- listing -------------------------------------------------------------------------------------------------------------
def test_listing_passes_over_what_is_no_queue(tmp_path: Path) -> None:
    write_queue(tmp_path, {0: [unit(0)], 10: []}, "B", 10)
    write_queue(tmp_path, {0: [unit(0)]}, "B", 2)
    write_queue(tmp_path, {0: [unit(0)]}, "%LMQ%x", 0)
    queues = tmp_path / "consumequeue"
    for stray in ("B/2/00000000000000000000.bak", "B/2/123", "B/stray", "CURRENT", "archive/000003.log", "B/x1/" + "0" * 20):
        (queues / stray).parent.mkdir(exist_ok=True)
        (queues / stray).write_bytes(b"x" * 40)
    (queues / "B/2/00000000000000000200").touch()
    (queues / "B/3").mkdir()
    (queues / "B/04").mkdir()
    (queues / "B/2/00000000000000000400").mkdir()
    found = list_queues(LocalFiles(), str(tmp_path))
    assert [(queue.topic, queue.queue_id, len(queue.files)) for queue in found] == [("%LMQ%x", 0, 1), ("B", 2, 1), ("B", 10, 2)]
    assert [queue.is_lmq for queue in found] == [True, False, False]
    assert topics(LocalFiles(), str(tmp_path)) == ("%LMQ%x", "B", "archive")
    assert pickle.loads(pickle.dumps(found)) == found


def test_listing_one_topic_lists_no_other(tmp_path: Path) -> None:
    for topic in ("A", "B", "C"):
        write_queue(tmp_path, {0: [unit(0)]}, topic)
    listed = []

    class Watched(LocalFiles):
        def list(self, folder: str) -> list[Entry]:
            listed.append(folder)
            return super().list(folder)

    (queue,) = list_queues(Watched(), str(tmp_path), ["B", "none", "..", "", "A/0", "B"])
    assert queue.topic == "B"
    assert not any(folder.endswith(("/A", "/C", "/consumequeue")) for folder in listed)
    assert list_queues(LocalFiles(), str(tmp_path / "absent")) == ()


# --- whole and damaged files ---------------------------------------------------------------------------------------------
def test_bounds_and_entries_of_a_queue_of_several_files(tmp_path: Path) -> None:
    queue = write_queue(tmp_path, {0: list(map(unit, range(10))), 10: list(map(unit, range(10, 20))), 20: [unit(20), unit(21)]})
    files = LocalFiles()
    assert bounds(files, queue, 0) == (0, 22)
    assert bounds(files, queue, 7001) == (8, 22)
    assert bounds(files, queue, 1 << 40) == (22, 22)
    assert offsets(queue) == list(range(22))
    assert offsets(queue, 7001) == list(range(8, 22))
    assert offsets(queue, first=9, stop=21, batch=4) == list(range(9, 21))
    assert offsets(queue, first=30, stop=40) == offsets(queue, first=5, stop=5) == offsets(queue, first=9, stop=3) == []
    given = list(read_entries(files, queue, min_phys=0, batch=7))
    assert [(file.base_offset, len(entries)) for file, entries in given] == [(0, 7), (0, 3), (200, 7), (200, 3), (400, 2)]


def test_fillers_are_no_entries(tmp_path: Path) -> None:
    filler = (0, FILLER_SIZE, 0)
    assert struct.pack(">qiq", *filler) == encode_fillers(1)
    queue = write_queue(tmp_path, {10: [filler] * 3 + [unit(13), unit(14)]})
    for min_phys in (0, 1):
        assert bounds(LocalFiles(), queue, min_phys) == (13, 15)
        assert offsets(queue, min_phys) == [13, 14]
    only = write_queue(tmp_path, {10: [filler] * 3}, "OnlyFillers")
    assert bounds(LocalFiles(), only, 0) == (13, 13)
    assert offsets(only) == []


def test_a_queue_without_units(tmp_path: Path) -> None:
    queue = write_queue(tmp_path, {30: []})
    assert bounds(LocalFiles(), queue, 0) == (30, 30)
    assert offsets(queue) == []
    assert first_at_or_after(LocalFiles(), queue, 5, 0, lambda _: 9) == 30
    none = Queue("T", 0, False, ())
    assert bounds(LocalFiles(), none, 0) == (0, 0)


def test_an_empty_last_file_does_not_hide_the_one_before(tmp_path: Path) -> None:
    queue = write_queue(tmp_path, {0: list(map(unit, range(7))), 10: []})
    notes: list[str] = []
    assert bounds(LocalFiles(), queue, 0, notes) == (0, 7)
    assert offsets(queue) == list(range(7))
    assert notes == []


@pytest.mark.parametrize("keep", [0, 1, 19, 20, 41, 199])
def test_a_cut_middle_file_is_a_hole_and_shifts_no_number(tmp_path: Path, keep: int) -> None:
    queue = write_queue(tmp_path, {0: list(map(unit, range(10))), 10: list(map(unit, range(10, 20))), 20: [unit(20), unit(21)]})
    middle = Path(queue.files[1].path)
    middle.write_bytes(middle.read_bytes()[:keep])
    (queue,) = list_queues(LocalFiles(), str(tmp_path))
    notes: list[str] = []
    assert bounds(LocalFiles(), queue, 0, notes) == (0, 22)
    assert offsets(queue) == [*range(10), *range(10, 10 + keep // 20), 20, 21]
    assert any("have no entries" in note for note in notes)
    assert any("torn last unit" in note for note in notes) == (keep % 20 > 0)


def test_a_missing_middle_file_is_a_hole(tmp_path: Path) -> None:
    queue = write_queue(tmp_path, {0: list(map(unit, range(10))), 20: [unit(20), unit(21)]})
    notes: list[str] = []
    assert [count for _, count in used_files(LocalFiles(), queue, notes)] == [10, 2]
    assert len(notes) == 1
    assert "queue offsets 10 to 19 have no entries" in notes[0]
    assert bounds(LocalFiles(), queue, 15_000) == (20, 22)
    assert offsets(queue, first=5, stop=21) == [5, 6, 7, 8, 9, 20]


def test_zeros_in_a_middle_file_cost_only_themselves(tmp_path: Path) -> None:
    units = [unit(i) if i not in (3, 4, 9) else ZERO for i in range(10)]
    queue = write_queue(tmp_path, {0: units, 10: [unit(10)]})
    notes: list[str] = []
    found = Entries.concat([entries for _, entries in read_entries(LocalFiles(), queue, min_phys=0, notes=notes)])
    assert found.queue_offset.tolist() == [0, 1, 2, 5, 6, 7, 8, 10]
    assert len(notes) == 1
    assert "3 invalid units" in notes[0]
    assert bounds(LocalFiles(), queue, 2500) == (5, 11)
    assert bounds(LocalFiles(), queue, 8500) == (10, 11)


def test_a_last_file_of_an_odd_length(tmp_path: Path) -> None:
    queue = write_queue(tmp_path, {0: list(map(unit, range(10)))}, tail=b"\x00\x01\x02")
    notes: list[str] = []
    assert bounds(LocalFiles(), queue, 0, notes) == (0, 10)
    assert offsets(queue) == list(range(10))
    assert len(notes) == 1


def test_files_that_overlap_give_a_number_once(tmp_path: Path) -> None:
    queue = write_queue(tmp_path, {0: list(map(unit, range(10))), 8: list(map(unit, range(8, 12)))})
    notes: list[str] = []
    assert bounds(LocalFiles(), queue, 0, notes) == (0, 12)
    assert offsets(queue) == list(range(12))
    assert "runs into" in notes[0]


def test_a_file_between_two_units_is_passed_over(tmp_path: Path) -> None:
    write_queue(tmp_path, {0: list(map(unit, range(10)))})
    (tmp_path / "consumequeue/T/0/00000000000000000207").write_bytes(struct.pack(">qiq", 5, 100, 0))
    (queue,) = list_queues(LocalFiles(), str(tmp_path))
    notes: list[str] = []
    assert bounds(LocalFiles(), queue, 0, notes) == (0, 10)
    assert "no multiple of 20" in notes[0]


def test_a_file_that_shrinks_after_listing_is_told(tmp_path: Path) -> None:
    queue = write_queue(tmp_path, {0: list(map(unit, range(10))), 10: [unit(10)]})
    path = Path(queue.files[0].path)
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(StoreChangedError, match="Open the store again"):
        offsets(queue)
    path.unlink()
    with pytest.raises(StoreChangedError, match="Open the store again"):
        offsets(queue)


@given(
    used=st.integers(0, 3000),
    holes=st.lists(st.tuples(st.integers(0, 3000), st.integers(1, 700)), max_size=3),
    cut=st.tuples(st.integers(0, 4000), st.integers(0, 4000)),
)
def test_a_slice_of_a_damaged_queue_is_a_slice_of_the_whole(
    tmp_path_factory: pytest.TempPathFactory, used: int, holes: list[tuple[int, int]], cut: tuple[int, int]
) -> None:
    units = np.zeros((3000, 20), np.uint8)
    whole = np.frombuffer(b"".join(struct.pack(">qiq", *unit(i)) for i in range(used)), np.uint8).reshape(-1, 20)
    units[:used] = whole
    for start, length in holes:
        units[start : start + length] = 0
    folder = tmp_path_factory.mktemp("queue")
    names = []
    for first in range(0, 3000, 1000):
        path = folder / f"{first * 20:020d}"
        path.write_bytes(units[first : first + 1000].tobytes())
        names.append(QueueFile(str(path), first * 20, 20_000))
    queue = Queue("T", 0, False, tuple(names))
    everything = offsets(queue)
    first, stop = cut
    assert offsets(queue, first=first, stop=stop, batch=300) == [n for n in everything if first <= n < stop]
    begin, end = bounds(LocalFiles(), queue, 0)
    assert (begin, end) == ((everything[0], everything[-1] + 1) if everything else (end, end))
    if not holes:
        assert everything == list(range(used))


def test_a_large_last_file_is_not_read_to_find_its_end(tmp_path: Path) -> None:
    queue = write_queue(tmp_path, {0: list(map(unit, range(100_000)))}, per_file=300_000)
    files = LocalFiles()
    assert bounds(files, queue, 50_000_000) == (50_000, 100_000)
    assert files.bytes_read < 300_000
    assert files.reads < 60


# --- time ----------------------------------------------------------------------------------------------------------------
def test_search_by_time_asks_for_few_records(tmp_path: Path) -> None:
    queue = write_queue(tmp_path, {0: list(map(unit, range(1000))), 1000: list(map(unit, range(1000, 1900)))}, per_file=1000)
    for at in (-5, 0, 1, 777, 999, 1000, 1001, 1899, 1900, 99999):
        asked: list[int] = []

        def time_of(offset: int, asked: list[int] = asked) -> int | None:
            asked.append(offset)
            return offset // 1000 // 3 * 3  # three messages in each ms

        expected = min(max(-(-at // 3) * 3, 0), 1900)
        assert first_at_or_after(LocalFiles(), queue, at, 0, time_of) == expected
        assert len(asked) <= 11
    assert first_at_or_after(LocalFiles(), queue, 0, 500_000, lambda offset: offset) == 500


def test_an_unreadable_record_makes_the_answer_lower(tmp_path: Path) -> None:
    queue = write_queue(tmp_path, {0: list(map(unit, range(100)))}, per_file=100)
    for lost in range(100):

        def time_of(offset: int, lost: int = lost) -> int | None:
            return None if offset == 1000 * lost else offset // 1000

        answer = first_at_or_after(LocalFiles(), queue, 60, 0, time_of)
        assert answer in (60, min(lost, 60))
    assert first_at_or_after(LocalFiles(), queue, 60, 0, lambda _: None) == 0


# --- batch queues, ext ---------------------------------------------------------------------------------------------------
def test_a_batch_queue_is_placed_by_its_units(tmp_path: Path) -> None:
    folder = tmp_path / "batchconsumequeue" / "T" / "1"
    folder.mkdir(parents=True)
    places = [(5, 3), (8, 1), (9, 6), (20, 2)]
    units = [struct.pack(">qiqqqhii", 1000 * base, 100, 0, 77, base, count, -1, 0) for base, count in places]
    (folder / f"{0:020d}").write_bytes(b"".join(units[:3]))
    (folder / f"{46 * 3:020d}").write_bytes(units[3] + bytes(46 * 2))
    (queue,) = list_queues(LocalFiles(), str(tmp_path))
    assert queue.batch
    assert bounds(LocalFiles(), queue, 0) == (5, 22)
    assert bounds(LocalFiles(), queue, 8_500) == (9, 22)
    assert offsets(queue) == [5, 8, 9, 20]
    assert offsets(queue, first=7, stop=10) == [5, 8, 9]
    assert offsets(queue, first=15, stop=20) == []
    assert read(queue).batch_size.tolist() == [3, 1, 6, 2]
    assert first_at_or_after(LocalFiles(), queue, 8_001, 0, lambda offset: offset) == 9


def test_ext_addresses_become_tags_codes(tmp_path: Path) -> None:
    folder = tmp_path / "consumequeue_ext" / "T" / "0"
    folder.mkdir(parents=True)
    size, per_file = 28, 36  # units that fit 1024 bytes, less the four at the end
    tags = np.arange(100, dtype=np.int64) * 31 - 1500
    maps = np.full((100, size - 20), 0xFF, np.uint8)
    places = []
    for number, first in enumerate(range(0, 100, per_file)):
        part = tags[first : first + per_file]
        data = encode_ext_units(ExtUnits(np.zeros(len(part), np.int16), part, part), maps[: len(part)])
        end = struct.pack(">h", -1) if len(part) == per_file else b""
        (folder / f"{number * 1024:020d}").write_bytes((data + end).ljust(1024, b"\0"))
        places += [number * 1024 + i * size for i in range(len(part))]
    queue = Queue("T", 0, False, ())
    addresses = ext_address(np.array(places, np.int64))
    rng = np.random.default_rng(3)
    order = rng.permutation(100)
    assert resolve_ext(LocalFiles(), str(tmp_path), queue, addresses[order]).tolist() == tags[order].tolist()
    lost = ext_address(np.array([36 * 28, 2040, 5000, 1 << 50], np.int64))  # a file's end, over its end, behind it, far away
    mixed = np.concatenate([addresses[:2], lost, np.array([0, -5, 1735901102139], np.int64), addresses[:1]])
    notes: list[str] = []
    found = resolve_ext(LocalFiles(), str(tmp_path), queue, mixed, notes)
    assert found.tolist() == [*tags[:2].tolist(), *lost.tolist(), 0, -5, 1735901102139, int(tags[0])]
    assert len(notes) == 1
    assert notes[0].startswith("T/0: 4 tags codes")
    plain = np.array([1, 2], np.int64)
    assert resolve_ext(LocalFiles(), str(tmp_path), queue, plain) is plain
