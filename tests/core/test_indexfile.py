"""Index files: of real brokers, of a plain putKey one entry at a time, and damaged in every bit."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store_core.files import LocalFiles
from store_core.hashing import key_hash
from store_core.indexbuild import DEFAULT_INDEX_SIZES, IndexContent
from store_core.indexfile import (
    Chain,
    IndexDamage,
    IndexFile,
    OpenIndex,
    Unusable,
    chain,
    list_index_files,
    open_index,
    read_index_entries,
    verify_index,
)
from tests.golden_stores import GOLDEN_NAMES, Golden
from tests.oracle import Row, data_end, key_tokens, read_store
from tests.synthetic import java_hash
from tests.synthetic.index import IndexFile as PlainFile

ROLLBACK = 0xC
BEGIN = 1_700_000_000_000
LOG_END = 1 << 40


def encode_index(
    key_hash: Any,
    commit_log_offset: Any,
    store_timestamp: Any,
    *,
    max_hash_slot_num: int = DEFAULT_INDEX_SIZES[0],
    max_index_num: int = DEFAULT_INDEX_SIZES[1],
    previous_end: tuple[int, int] = (0, 0),
) -> tuple[bytearray, int]:
    """(a whole index file, how many of the entries it took)."""
    content = IndexContent(max_hash_slot_num, max_index_num, previous_end)
    file = bytearray(40 + 4 * max_hash_slot_num + 20 * max_index_num)
    at = 0
    while at < len(key_hash):
        position, part = content.entry_position, slice(at, at + 10_000)
        data = content.put(key_hash[part], commit_log_offset[part], store_timestamp[part])
        file[position : position + len(data)] = data
        at += len(data) // 20
        if content.is_full:
            break
    for position, data in content.changed_slots():
        file[position : position + len(data)] = data
    file[:40] = content.header()
    return file, at


class MemoryFiles(LocalFiles):
    """`Files` with one file, whatever its path."""

    def __init__(self, data: bytes | bytearray) -> None:
        super().__init__()
        self.data = data

    def read(self, path: str, position: int, length: int) -> bytes:
        return bytes(self.data[position : position + length])

    def next_data(self, path: str, position: int) -> int | None:
        """Holes of 64 bytes."""
        while position < len(self.data):
            end = position // 64 * 64 + 64
            if any(self.data[position:end]):
                return position
            position = end
        return None


def opened(data: bytes | bytearray, slots: int | None = None, *, max_phys: int = LOG_END) -> tuple[MemoryFiles, OpenIndex]:
    files = MemoryFiles(data)
    index = open_index(files, IndexFile("index/1", "1", len(data)), max_hash_slot_num=slots, max_phys=max_phys)
    assert isinstance(index, OpenIndex), index
    return files, index


def refused(data: bytes | bytearray, **options: Any) -> str:
    files = MemoryFiles(data)
    index = open_index(files, IndexFile("index/1", "1", len(data)), **{"max_phys": LOG_END} | options)
    assert isinstance(index, Unusable), index
    assert index.path == "index/1"
    return index.reason


def key_list(row: Row, tags: bool) -> list[tuple[str, str, str]]:
    """(indexType, key, key string) of a message, in the order of its entries."""
    if row["sysFlag"] & 0xC == ROLLBACK:
        return []
    topic = row["topic"]
    found = [("uniqKey", row["uniqKey"], f"{topic}#{row['uniqKey']}")] if row["uniqKey"] else []
    found += [("key", token, f"{topic}#{token}") for token in key_tokens(row)]
    return found + ([("tag", row["tags"], f"{topic}#T#{row['tags']}")] if tags and row["tags"] else [])


def hash_of(text: str) -> int:
    value = java_hash(text)
    return 0 if value == -(1 << 31) else abs(value)


def same(one: Chain, other: Chain) -> bool:
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in Chain.__slots__)


# --- stores of real brokers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_a_brokers_files_open_without_being_told_their_sizes(golden: Golden, name: str) -> None:
    files = LocalFiles()
    found = list_index_files(files, str(golden(name)))
    assert found
    for file in found:
        index = open_index(files, file, max_phys=data_end(golden(name)))
        assert isinstance(index, OpenIndex)
        assert (index.slots, index.capacity) == (200, 800)
        assert verify_index(files, index) is None
        assert index == open_index(files, file, max_hash_slot_num=200, max_phys=data_end(golden(name)))
        assert index == open_index(files, file, max_index_num=800, max_phys=data_end(golden(name)))
        assert pickle.loads(pickle.dumps(index)) == index
        wrong = open_index(files, file, max_hash_slot_num=205, max_phys=data_end(golden(name)))
        assert isinstance(wrong, Unusable) and "maxHashSlotNum = 205" in wrong.reason


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_every_key_leads_to_every_message_that_has_it(golden: Golden, name: str) -> None:
    store = golden(name)
    files = LocalFiles()
    indexes = []
    for file in list_index_files(files, str(store)):
        index = open_index(files, file, max_phys=data_end(store))
        assert isinstance(index, OpenIndex)
        indexes.append(index)
    wanted: dict[str, list[int]] = {}
    for row in read_store(store):
        for _, _, text in key_list(row, tags=name == "crc-5.5.0"):
            wanted.setdefault(text, []).append(row["commitLogOffset"])
    collisions = Counter(hash_of(text) for text in wanted)
    for text, offsets in wanted.items():
        found: list[int] = []
        for index in reversed(indexes):
            found += chain(files, index, hash_of(text)).commit_log_offset.tolist()
        found.reverse()
        if collisions[hash_of(text)] == 1:
            assert found == offsets
        else:
            assert not Counter(offsets) - Counter(found)
        topic, _, key = text.partition("#")
        assert key_hash(topic, key) == hash_of(text)
        if "#" not in key:
            assert not len(chain(files, indexes[0], key_hash(topic, key + "?")).index_no)


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_the_encoder_writes_the_brokers_files(golden: Golden, name: str) -> None:
    entries = [
        (hash_of(text), row["commitLogOffset"], row["storeTimestamp"])
        for row in read_store(golden(name))
        for _, _, text in key_list(row, tags=name == "crc-5.5.0")
    ]
    hashes, offsets, times = (np.array(column, dtype=np.int64) for column in zip(*entries, strict=True))
    previous = (0, 0)
    for file in list_index_files(LocalFiles(), str(golden(name))):
        stored = Path(file.path).read_bytes()
        data, taken = encode_index(hashes, offsets, times, max_hash_slot_num=200, max_index_num=800, previous_end=previous)
        assert data == stored
        previous = (int(times[taken - 1]), int(offsets[taken - 1]))
        hashes, offsets, times = hashes[taken:], offsets[taken:], times[taken:]
    assert len(hashes) == 0


# --- the encoder against putKey, one entry at a time ---------------------------------------------------------------------


def plain_file(name: str, slots: int, capacity: int, *seed: int) -> PlainFile:
    return PlainFile(name, [0] * slots, [], capacity, *seed)


def put(file: PlainFile, text: str, offset: int, timestamp: int) -> None:
    placed = SimpleNamespace(commitLogOffset=offset, message=SimpleNamespace(storeTimestamp=timestamp))
    file.put(text, cast(Any, placed))


def plain_files(entries: Iterable[tuple[str, int, int]], slots: int, capacity: int) -> list[bytes]:
    files: list[PlainFile] = []
    for text, offset, timestamp in entries:
        if not files or files[-1].full:
            last = files[-1] if files else None
            seed = (last.endTimestamp, last.endTimestamp, last.endPhyOffset, last.endPhyOffset) if last else ()
            files.append(plain_file("1", slots, capacity, *seed))
        put(files[-1], text, offset, timestamp)
    return [file.content() for file in files]


TOKENS = st.lists(st.integers(0, 12), min_size=1, max_size=4)


@st.composite
def index_cases(draw: st.DrawFn) -> tuple[list[tuple[str, int, int]], int, int]:
    """(key string, offset, time) of entries, several of a message, and S and N."""
    entries: list[tuple[str, int, int]] = []
    offset, timestamp = draw(st.sampled_from([0, 48, 1 << 33])), BEGIN
    for tokens, size, wait in draw(
        st.lists(
            st.tuples(st.lists(st.integers(0, 12), min_size=1, max_size=4), st.integers(91, 900), st.integers(0, 2500)),
            max_size=40,
        )
    ):
        entries += [(f"T#k{token}", offset, timestamp) for token in tokens]
        offset, timestamp = offset + size, timestamp + wait
    return entries, draw(st.integers(1, 60)), draw(st.integers(2, 50))


@given(index_cases())
@settings(deadline=None)
def test_encoding_is_what_putkey_does_and_reads_back(case: tuple[list[tuple[str, int, int]], int, int]) -> None:
    entries, slots, capacity = case
    hashes = np.array([hash_of(text) for text, _, _ in entries], dtype=np.int32)
    offsets = np.array([offset for _, offset, _ in entries], dtype=np.int64)
    times = np.array([timestamp for _, _, timestamp in entries], dtype=np.int64)
    previous, at = (0, 0), 0
    for expected in plain_files(entries, slots, capacity):
        part = slice(at, None)
        data, taken = encode_index(
            hashes[part], offsets[part], times[part], max_hash_slot_num=slots, max_index_num=capacity, previous_end=previous
        )
        assert data == expected
        files, index = opened(data, slots)
        assert (index.slots, index.capacity, index.entries) == (slots, capacity, taken)
        assert verify_index(files, index) is None
        for value in np.unique(hashes[part][:taken]).tolist():
            numbers = np.flatnonzero(hashes[part][:taken] == value)[::-1] + 1
            found = chain(files, index, value)
            assert found.index_no.tolist() == numbers.tolist()
            assert found.commit_log_offset.tolist() == offsets[part][numbers - 1].tolist()
        read = list(read_index_entries(files, index, batch=7))
        assert sum(len(batch) for batch in read) == taken
        assert np.array_equal(np.concatenate([batch.key_hash for batch in read]), hashes[part][:taken])
        guessed = open_index(files, IndexFile("index/1", "1", len(data)), max_phys=LOG_END)
        assert isinstance(guessed, Unusable) or guessed == index  # so few entries may not prove S: never a wrong one
        at += taken
        previous = (int(times[at - 1]), int(offsets[at - 1]))
    assert at == len(entries)


def test_a_file_without_entries() -> None:
    none = np.zeros(0, dtype=np.int64)
    for previous in (0, 0), (BEGIN, 77):
        data, taken = encode_index(none, none, none, max_hash_slot_num=5, max_index_num=9, previous_end=previous)
        assert taken == 0
        for count in 0, 1:  # a broker writes the 1 at its first flush
            data[36:40] = count.to_bytes(4, "big")
            for told in 5, None:
                files, index = opened(data, told)
                assert (index.entries, index.slots) == (0, told or 0)
                assert len(chain(files, index, 12).index_no) == 0
                assert verify_index(files, index) is None
                assert list(read_index_entries(files, index)) == []


def test_hash_slot_count_of_old_brokers() -> None:
    data = bytearray(plain_files([("T#a", 0, BEGIN), ("T#a", 100, BEGIN), ("T#b", 200, BEGIN)], 10, 20)[0])
    assert data[35] == 2
    for count, good in (1, False), (2, True), (3, True), (4, False):
        data[35] = count
        index = open_index(files := MemoryFiles(data), IndexFile("1", "1", len(data)), max_hash_slot_num=10, max_phys=LOG_END)
        assert good == (isinstance(index, OpenIndex) and verify_index(files, index) is None)


# --- RocketMQ's default sizes --------------------------------------------------------------------------------------------

WORKED = [
    ("TopicTest#0A000001303918B4AAC20C9B1D230000", 0, 1735901092139),
    ("TopicTest#OrderID188", 0, 1735901092139),
    ("TopicTest#0A000001303918B4AAC20C9B31A50001", 215, 1735901097389),
    ("TopicTest#OrderID188", 215, 1735901097389),
]
WORKED_BYTES = {
    0: "000001942bc4992b 000001942bc4adad 0000000000000000 00000000000000d7 00000003 00000005",
    3648356: "00000001",
    5086720: "00000004",
    596064: "00000003",
    20000060: "79f2240f 0000000000000000 00000000 00000000",
    20000080: "4963b6f6 0000000000000000 00000000 00000000",
    20000100: "7652f84e 00000000000000d7 00000005 00000000",
    20000120: "4963b6f6 00000000000000d7 00000005 00000002",
}


@pytest.fixture
def default_file(tmp_path: Path) -> IndexFile:
    """A file of 420 MB, a few KB on disk."""
    path = tmp_path / "index" / "20250103104452139"
    path.parent.mkdir()
    with path.open("wb") as out:
        out.truncate(420_000_040)
        for position, text in WORKED_BYTES.items():
            out.seek(position)
            out.write(bytes.fromhex(text))
    return IndexFile(str(path), path.name, 420_000_040)


def test_default_sizes_are_read_with_little_effort(default_file: IndexFile, tmp_path: Path) -> None:
    files = LocalFiles()
    assert list_index_files(files, str(tmp_path)) == (default_file,)
    index = open_index(files, default_file, max_phys=430)
    assert isinstance(index, OpenIndex)
    assert (index.slots, index.capacity, index.entries, index.hash_slot_count) == (5_000_000, 20_000_000, 4, 3)
    assert files.bytes_read < 1000
    files.bytes_read = files.reads = 0
    found = chain(files, index, key_hash("TopicTest", "OrderID188"))
    assert (files.reads, files.bytes_read) == (3, 4 + 2 * 20)
    assert found.index_no.tolist() == [4, 2]
    assert found.commit_log_offset.tolist() == [215, 0]
    assert found.time_diff.tolist() == [5, 0]
    assert [column.dtype.name for column in (found.index_no, found.commit_log_offset, found.time_diff)] == [
        "int32",
        "int64",
        "int32",
    ]
    assert verify_index(files, index) is None


def test_default_sizes_are_written(default_file: IndexFile) -> None:
    hashes, offsets, times = (np.array(c) for c in zip(*[(hash_of(t), o, s) for t, o, s in WORKED], strict=True))
    data, taken = encode_index(hashes, offsets, times)
    assert (len(data), taken) == (420_000_040, 4)
    for position, text in WORKED_BYTES.items():
        assert data[position : position + len(bytes.fromhex(text))] == bytes.fromhex(text)
    assert not any(data[20_000_040:20_000_060])


@pytest.mark.parametrize(
    ("slots", "capacity"), [(5_000_000, 40), (7, 20_000_000), (123_457, 9_001), (1, 5_000), (4_096, 2_048)]
)
def test_other_sizes_are_found(tmp_path: Path, slots: int, capacity: int) -> None:
    rng = np.random.default_rng(slots)
    offsets = np.repeat(np.arange(0, 100_000, 250), 3)[: capacity - 1]
    data, _ = encode_index(
        rng.integers(0, 1 << 31, len(offsets)), offsets, BEGIN + offsets, max_hash_slot_num=slots, max_index_num=capacity
    )
    path = tmp_path / "20250103104452139"
    with path.open("wb") as out:  # without the zeros: 400 MB otherwise
        out.truncate(len(data))
        zeros = bytes(1 << 20)
        for start in range(0, len(data), 1 << 20):
            if not zeros.startswith(part := data[start : start + (1 << 20)]):
                out.seek(start)
                out.write(part)
    index = open_index(LocalFiles(), IndexFile(str(path), path.name, len(data)), max_phys=LOG_END)
    assert isinstance(index, OpenIndex), index
    assert (index.slots, index.capacity) == (slots, capacity)


# --- files that can't be ---------------------------------------------------------------------------------------------------


@pytest.fixture
def small() -> bytearray:
    """16 messages of two entries in 7 slots: longer than what `open_index` looks at."""
    return bytearray(plain_files([(f"T#k{i % 6}", 1000 + i // 2 * 300, BEGIN + i // 2 * 1400) for i in range(32)], 7, 40)[0])


def test_a_wrong_length_is_refused(small: bytearray) -> None:
    for length in 0, 10, 40, 62, 63, len(small) - 1, len(small) - 2:
        assert "no index file" in refused(small[:length])
    assert "don't fit the option maxHashSlotNum = 8" in refused(small, max_hash_slot_num=8)
    assert "maxHashSlotNum = 7 and maxIndexNum = 39" in refused(small, max_index_num=39, max_hash_slot_num=7)
    assert "don't fit" in refused(small, max_hash_slot_num=0)
    assert "don't fit" in refused(small, max_index_num=-1)
    assert "does not fit the option maxHashSlotNum = 12" in refused(small, max_hash_slot_num=12)
    index = open_index(MemoryFiles(small[:100]), IndexFile("1", "1", len(small)), max_phys=LOG_END)
    assert isinstance(index, Unusable)  # cut since it was listed


@pytest.mark.parametrize(
    ("position", "value", "words"),
    [
        (0, -1, "times run"),
        (0, 0, "times run"),
        (8, 0, "times run"),
        (16, -1, "offsets run"),
        (16, 5800, "offsets run"),
        (24, LOG_END, "end of the commitlog"),
        (24, 999, "offsets run"),
        (32, 0, "used slots"),
        (32, 40 << 32 | 33, "used slots"),
        (32, 7 << 32 | 41, "at most maxIndexNum"),
        (32, 7 << 32, "counts no entries"),
        (32, 7 << 32 | 0xFFFFFFFF, "none below 0"),
    ],
)
def test_a_damaged_header_is_refused(small: bytearray, position: int, value: int, words: str) -> None:
    small[position : position + 8] = (value % (1 << 64)).to_bytes(8, "big")
    assert words in refused(small, max_hash_slot_num=7)


def test_an_index_beyond_the_log_is_refused(small: bytearray) -> None:
    last = 1000 + 15 * 300
    assert f"expected 0 <= begin <= end < {last}" in refused(small, max_phys=last)
    opened(small, max_phys=last + 1)


def test_sizes_that_nothing_proves_are_asked_for(small: bytearray) -> None:
    small[40 : 40 + 28] = bytes(28)
    assert refused(small).endswith("give the broker's value with the option maxHashSlotNum")


def set_prev(data: bytearray, slots: int, number: int, prev: int) -> None:
    place = 40 + 4 * slots + 20 * number + 16
    data[place : place + 4] = prev.to_bytes(4, "big", signed=True)


@pytest.mark.parametrize("prev", ["self", "next", "later", "huge", "negative"])
def test_a_chain_that_does_not_go_down_is_damage(small: bytearray, prev: str) -> None:
    files, index = opened(small, 7)
    value = hash_of("T#k3")
    number = int(chain(files, index, value).index_no[1])
    target = {"self": number, "next": number + 1, "later": number + 7, "huge": (1 << 31) - 1, "negative": -1}[prev]
    set_prev(small, 7, number, target)
    with pytest.raises(IndexDamage, match=f"prevIndexNo {target}: expected a hash of slot {value % 7} of 7") as caught:
        chain(files, index, value)
    assert caught.value.offset == index.entry_position(number)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    assert f"entry {number}: prevIndexNo is {target}" in str(verify_index(files, index))


@pytest.mark.parametrize("number", [33, 39, 40, 1 << 30, -1])
def test_a_slot_that_leads_nowhere_is_damage(small: bytearray, number: int) -> None:
    files, index = opened(small, 7)
    value = hash_of("T#k3")
    place = 40 + 4 * (value % 7)
    small[place : place + 4] = number.to_bytes(4, "big", signed=True)
    with pytest.raises(IndexDamage, match=f"leads to entry {number}: expected 0 to 32"):
        chain(files, index, value)
    assert f"slot {value % 7} is {number}" in str(verify_index(files, index))


def test_a_lost_slot_is_seen_by_verify(small: bytearray) -> None:
    files, index = opened(small, 7)
    value = hash_of("T#k3")
    place = 40 + 4 * (value % 7)
    small[place : place + 4] = bytes(4)
    assert len(chain(files, index, value).index_no) == 0
    assert f"slot {value % 7} is 0: expected" in str(verify_index(files, index))


def test_a_cut_file_is_damage(small: bytearray) -> None:
    files, index = opened(small, 7)
    for length in range(0, index.entry_position(33), 9):
        files.data = small[:length]
        assert "could be read" in str(verify_index(files, index))
        for key in range(6):
            try:
                found = chain(files, index, hash_of(f"T#k{key}"))
            except IndexDamage as e:
                assert "could be read" in str(e)
            else:
                files.data = small
                assert same(found, chain(files, index, hash_of(f"T#k{key}")))
                files.data = small[:length]


def test_any_bit_may_flip(small: bytearray) -> None:
    """Nothing but the declared errors; and what passes `verify_index` answers right, but for what it says it can't see."""
    files, index = opened(small, 7)
    answers = {value: chain(files, index, value) for value in {hash_of(f"T#k{i}") for i in range(6)}}
    unseen: Counter[str] = Counter()
    for bit in range(len(small) * 8):
        position = bit // 8
        small[position] ^= 1 << bit % 8
        entry, within = divmod(position - index.entry_position(0), 20)
        part = (
            "header" if position < 40 else "slot" if entry < 0 else "keyHash" if within < 4 else "prev" if within >= 16 else ""
        )
        part = part or ("commitLogOffset" if within < 12 else "timeDiff")
        now = open_index(files, IndexFile("1", "1", len(small)), max_hash_slot_num=7, max_phys=LOG_END)
        if isinstance(now, OpenIndex):
            trusted = verify_index(files, now) is None
            for value, answer in answers.items():
                try:
                    right = same(chain(files, now, value), answer)
                except IndexDamage:
                    assert not trusted
                else:
                    if not right and trusted:
                        unseen[part] += 1
                        # the offset and the time stay between their neighbours'
                        assert part in ("commitLogOffset", "timeDiff")
        small[position] ^= 1 << bit % 8
    assert 0 < unseen["commitLogOffset"] < 8 * 32 and unseen["timeDiff"] < 2 * 32


@given(st.binary(min_size=0, max_size=600), st.sampled_from([None, 1, 5, 7]))
@settings(deadline=None)
def test_any_bytes_may_come(data: bytes, slots: int | None) -> None:
    files = MemoryFiles(data)
    index = open_index(files, IndexFile("1", "1", len(data)), max_hash_slot_num=slots, max_phys=LOG_END)
    if isinstance(index, OpenIndex):
        verify_index(files, index)


# --- a broker that writes meanwhile --------------------------------------------------------------------------------------


def test_entries_that_came_after_opening_are_passed_over() -> None:
    entries = [(f"T#k{i % 3}", 1000 + i * 300, BEGIN + i * 700) for i in range(40)]
    before, after = (bytearray(plain_files(part, 7, 60)[0]) for part in (entries[:25], entries))
    files, index = opened(before)
    answers = {key: chain(files, index, hash_of(key)) for key in ("T#k0", "T#k1", "T#k2")}
    for sizes in 7, None:
        live, grown = opened(after, sizes)
        assert grown.entries == 40
        for key, answer in answers.items():
            assert same(chain(live, index, hash_of(key)), answer)
    assert "a broker is writing to the file" in str(verify_index(live, index))
    # the same slots without the header that says so are damage
    after[:40] = before[:40]
    with pytest.raises(IndexDamage):
        chain(live, index, hash_of("T#k0"))
    assert verify_index(live, replace(index, index_count=2)) is not None


def test_names_that_are_no_integers_are_skipped(tmp_path: Path) -> None:
    (tmp_path / "index").mkdir()
    for name in "20250103104452139", "20240103104452139", "20250103104452139.bak", "x", "²":
        (tmp_path / "index" / name).write_bytes(b"..")
    (tmp_path / "index" / "123").mkdir()
    found = list_index_files(LocalFiles(), str(tmp_path))
    assert [(file.name, file.length) for file in found] == [("20240103104452139", 2), ("20250103104452139", 2)]
    assert list_index_files(LocalFiles(), str(tmp_path / "index")) == ()
