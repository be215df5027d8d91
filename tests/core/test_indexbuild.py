"""Index files out of described records: against a plain putKey, in pieces, continued, rolled."""

from __future__ import annotations

import random
import re
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store_core import CorruptStoreError, OptionError, open_store
from store_core.described import DESCRIBED, LIGHT, Described
from store_core.files import LocalFiles
from store_core.indexbuild import (
    DEFAULT_INDEX_SIZES,
    IndexBuilder,
    found_index_sizes,
    found_index_tags,
    index_name,
)
from store_core.indexfile import link
from store_core.layout import INDEX_ENTRY
from store_core.writefiles import LocalWrites
from tests.core.building import described_of, expected_index, pieces
from tests.golden_stores import Golden
from tests.synthetic import Message, build_store, random_messages

TIME = 1_735_901_092_000


def builder(root: Path, slots: int = 10, capacity: int = 20) -> IndexBuilder:
    return IndexBuilder(LocalFiles(), LocalWrites(), str(root), slots, capacity)


def plain(keys: list[int], *, start: int = 0, time: int = TIME) -> Described:
    """Records with so many keys each, 100 bytes apart."""
    records = np.zeros(len(keys), DESCRIBED)
    records["commitLogOffset"] = start + 100 * np.arange(len(keys))
    records["storeTimestamp"] = time + np.arange(len(keys))
    records["keyCount"] = keys
    hashes = np.arange(sum(keys), dtype=np.int32) * 7919
    return Described(records, hashes, (("T", 0),), np.zeros(0, LIGHT))


def contents(root: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted((root / "index").iterdir())] if (root / "index").exists() else []


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_any_pieces_make_the_brokers_files(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    root, out = tmp_path_factory.mktemp("store"), tmp_path_factory.mktemp("out")
    rng = random.Random(data.draw(st.integers(0, 2**32)))
    slots, capacity, tags = (
        data.draw(st.sampled_from((1, 3, 50))),
        data.draw(st.sampled_from((2, 7, 40, 1000))),
        data.draw(st.booleans()),
    )
    built = build_store(root, random_messages(rng, data.draw(st.integers(1, 80))), write_queues=False, write_index=False)
    building = builder(out, slots, capacity)
    made: set[str] = set()
    for described in described_of(root, index_tags=tags):
        for piece in pieces(described, data.draw(st.lists(st.integers(0, 80), max_size=4))):
            building.add(piece)
            if data.draw(st.booleans()):  # another writer goes on where this one ended
                made |= set(building.finish())
                building = builder(out, slots, capacity)
    made |= set(building.finish())
    assert contents(out) == expected_index(built, tags=tags, slots=slots, capacity=capacity)
    assert made == {str(path) for path in out.glob("index/*")}


def test_files_follow_each_other(tmp_path: Path) -> None:
    building = builder(tmp_path, 3, 4)
    building.add(plain([2, 2, 0, 3]))
    building.finish()
    assert (building.files, building.entries, building.full_until) == (3, 7, TIME + 3)
    assert len(contents(tmp_path)) == 3
    assert not any(contents(tmp_path)[2][40 + 12 + 40 :])


def test_a_full_file_is_followed_at_the_next_message_keys_or_not(tmp_path: Path) -> None:
    building = builder(tmp_path, 3, 3)
    building.add(plain([2]))
    building.finish()
    assert len(contents(tmp_path)) == 1
    building = builder(tmp_path, 3, 3)
    building.add(plain([0], start=100, time=TIME + 5))
    building.finish()
    # seeded with the end of the one before, and no entry
    assert contents(tmp_path)[1][:40] == np.array([TIME, TIME, 0, 0], ">i8").tobytes() + np.array([0, 1], ">i4").tobytes()


def test_messages_without_keys_make_an_empty_file(tmp_path: Path) -> None:
    building = builder(tmp_path)
    building.add(plain([]))
    assert building.finish() == ()
    building.add(plain([0, 0]))
    building.finish()
    assert contents(tmp_path) == [bytes(39) + b"\1" + bytes(40 + 400)]


def test_only_what_changed_is_written(tmp_path: Path) -> None:
    building = IndexBuilder(LocalFiles(), LocalWrites(), str(tmp_path), 5_000_000, 20_000_000)
    building.add(plain([1]))
    building.finish()
    [path] = (tmp_path / "index").iterdir()
    assert path.stat().st_size == 420_000_040
    assert path.stat().st_blocks * 512 < 1 << 20


def test_an_index_that_is_ahead_is_not_continued(tmp_path: Path) -> None:
    first = builder(tmp_path)
    first.add(plain([1, 1]))
    first.finish()
    for start in (0, 100):
        with pytest.raises(CorruptStoreError, match="commitLogOffset 100, which does not stand before"):
            builder(tmp_path).add(plain([1], start=start))
    builder(tmp_path).add(plain([1], start=200))


def test_an_index_of_other_sizes_is_not_continued(tmp_path: Path) -> None:
    first = builder(tmp_path)
    first.add(plain([1, 1]))
    first.finish()
    with pytest.raises(CorruptStoreError, match="can't be continued"):
        builder(tmp_path, 10, 30)
    for slots, capacity in ((0, 20), (10, 1)):
        with pytest.raises(OptionError, match="maxHashSlotNum"):
            builder(tmp_path, slots, capacity)


def test_slots_that_a_killed_broker_did_not_count(tmp_path: Path) -> None:
    """It had written a slot of an entry that its header does not count: what the slot led to is lost."""
    first = builder(tmp_path, 1000, 200)
    first.add(plain([100]))
    first.finish()
    [path] = (tmp_path / "index").iterdir()
    slot = int(described_slots(path)[50])
    with path.open("r+b") as file:
        file.seek(40 + 4 * slot)
        file.write((150).to_bytes(4, "big"))
    with pytest.raises(CorruptStoreError, match=f"byte {40 + 4 * slot}: .*slot {slot} leads to entry 150; expected 0 to 100"):
        builder(tmp_path, 1000, 200)


def described_slots(path: Path) -> npt.NDArray[np.int32]:
    """The slot of each entry of a file with 1000 of them."""
    return np.frombuffer(path.read_bytes(), INDEX_ENTRY, offset=40 + 4000)[1:]["keyHash"] % 1000


def test_sizes_are_found(tmp_path: Path, golden: Golden) -> None:
    files = LocalFiles()
    assert found_index_sizes(files, str(tmp_path)) is None
    assert found_index_sizes(files, str(golden("crc-5.5.0"))) == (200, 800)
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "20250103104452139").write_bytes(bytes(1001))
    with pytest.raises(CorruptStoreError, match="sizes of the index can't be told"):
        found_index_sizes(files, str(tmp_path))
    with (tmp_path / "index" / "20250103104452139").open("wb") as file:
        file.truncate(420_000_040)
        file.write(b"\xff" * 40)
    assert found_index_sizes(files, str(tmp_path)) == DEFAULT_INDEX_SIZES


@pytest.mark.parametrize(("name", "tags"), [("mixed-5.3.3", False), ("crc-5.5.0", True), ("lmq-5.3.3", False)])
def test_whether_tags_are_indexed_is_found(golden: Golden, name: str, tags: bool) -> None:
    assert found_index_tags(LocalFiles(), str(golden(name)), open_store(golden(name)).log, 200, 800) is tags


def test_nothing_tells_of_tags(tmp_path: Path) -> None:
    build_store(tmp_path / "store", [Message(topic="T")], write_queues=False)
    assert found_index_tags(LocalFiles(), str(tmp_path / "store"), open_store(tmp_path / "store").log, 50, 100) is None


def test_names_are_local_times_and_ascend() -> None:
    name = index_name(TIME, None)
    assert re.fullmatch(r"\d{14}000", name)
    assert index_name(TIME + 7, None) == name[:-3] + "007"
    assert index_name(TIME, name) == name[:-3] + "001"
    assert index_name(TIME + 5, name[:-3] + "999") > name[:-3] + "999"
    assert index_name(TIME, "20251231235959999") == "20260101000000000"
    assert index_name(TIME, "30001399999999999") == "30001400000000000"  # no time
    for odd in (-5, 0, 1 << 62):
        assert re.fullmatch(r"\d{17}", index_name(odd, None))


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(0, 9), max_size=12), max_size=6))
def test_links_are_those_of_one_entry_after_the_other(batches: list[list[int]]) -> None:
    newest, plainly, number = np.zeros(10, np.int32), [0] * 10, 1
    for slots in batches:
        prev = link(np.array(slots, np.int64), number, newest)
        for slot, found in zip(slots, prev.tolist(), strict=True):
            assert found == plainly[slot]
            plainly[slot], number = number, number + 1
        assert newest.tolist() == plainly
