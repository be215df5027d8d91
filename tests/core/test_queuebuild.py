"""Queue files out of described records: against a plain putMessagePositionInfo, in pieces, continued, and with odd numbers."""

from __future__ import annotations

import random
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store_core import CorruptStoreError, StoreWarning
from store_core.described import DESCRIBED, LIGHT, Described
from store_core.files import LocalFiles
from store_core.queuebuild import QueueBuilder, found_queue_file_size, whole_units
from store_core.writefiles import LocalWrites
from tests.core.building import described_of, expected_queues, files_below, pieces
from tests.synthetic import build_store, random_messages

FILLER = struct.pack(">qiq", 0, 0x7FFFFFFF, 0)


def builder(root: Path, file_size: int = 100, **options: Any) -> QueueBuilder:
    return QueueBuilder(LocalFiles(), LocalWrites(), str(root), file_size, **options)


def plain(numbers: list[int], *, topic: str = "T", queue_id: int = 0, start: int = 1000) -> Described:
    """Records of one queue with these queueOffsets."""
    records = np.zeros(len(numbers), DESCRIBED)
    records["queueOffset"] = numbers
    records["commitLogOffset"] = start + 100 * np.arange(len(numbers))
    records["size"] = 100
    records["tagsCode"] = numbers
    return Described(records, np.zeros(0, np.int32), ((topic, queue_id),), np.zeros(0, LIGHT))


def unit(described: Described, i: int) -> bytes:
    record = described.records[i]
    return struct.pack(">qiq", record["commitLogOffset"], record["size"], record["tagsCode"])


def queue(root: Path, topic: str = "T", queue_id: int = 0) -> bytes:
    """The queue's files, one behind the other, without the zeros at the end."""
    data = b"".join(path.read_bytes() for path in sorted((root / "consumequeue" / topic / str(queue_id)).iterdir()))
    return data.rstrip(b"\0") + bytes(-len(data.rstrip(b"\0")) % 20)


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_any_pieces_make_the_brokers_files(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    root, out = tmp_path_factory.mktemp("store"), tmp_path_factory.mktemp("out")
    rng = random.Random(data.draw(st.integers(0, 2**32)))
    first = data.draw(st.sampled_from((0, 0, 13)))
    file_size = data.draw(st.sampled_from((20, 100, 2000)))
    built = build_store(
        root,
        random_messages(rng, data.draw(st.integers(1, 80)), multi_dispatch=True),
        write_queues=False,
        write_index=False,
        first_offset=16384 if first else 0,
        first_queue_offset=first,
    )
    building = builder(out, file_size)
    for described in described_of(root):
        for piece in pieces(described, data.draw(st.lists(st.integers(0, 80), max_size=4))):
            building.add(piece)
            if data.draw(st.booleans()):  # another writer goes on where this one ended
                building.finish()
                building = builder(out, file_size)
    touched = building.finish()
    assert files_below(out, "consumequeue") == expected_queues(built.records, file_size)
    assert set(touched) <= {str(out / path) for path in files_below(out, "consumequeue")}


def test_a_queue_begins_behind_fillers_in_the_file_of_its_first_number(tmp_path: Path) -> None:
    described = plain([13, 14, 15, 16])
    building = builder(tmp_path, 100)
    building.add(described)
    touched = building.finish()
    names = sorted(path.name for path in (tmp_path / "consumequeue/T/0").iterdir())
    assert names == [f"{200:020d}", f"{300:020d}"]
    assert sorted(touched) == [str(tmp_path / "consumequeue/T/0" / name) for name in names]
    assert queue(tmp_path) == FILLER * 3 + b"".join(unit(described, i) for i in range(4))
    assert all(path.stat().st_size == 100 for path in (tmp_path / "consumequeue/T/0").iterdir())
    assert (building.queues, building.entries) == ([("T", 0)], 4)


def test_prepared_and_rolled_back_messages_get_no_entry(tmp_path: Path) -> None:
    described = plain([0, 0, 1, 0])
    described.records["sysFlag"] = [0x8, 0x4, 0x0, 0xC]
    building = builder(tmp_path)
    building.add(described)
    building.finish()
    assert queue(tmp_path) == unit(described, 0) + unit(described, 2)


def test_many_entries_are_not_held_back(tmp_path: Path) -> None:
    building = builder(tmp_path, 6_000_000)
    for start in range(0, 500_000, 50_000):
        building.add(plain(list(range(start, start + 50_000)), start=start * 100))
    before = len(queue(tmp_path))
    assert 8 << 20 < before < 500_000 * 20
    building.finish()
    assert len(queue(tmp_path)) == 500_000 * 20


def test_stale_entries_behind_the_end_do_not_come_to_life(tmp_path: Path) -> None:
    first = builder(tmp_path, 2000)
    first.add(plain([0, 1]))
    first.finish()
    path = tmp_path / f"consumequeue/T/0/{0:020d}"
    with path.open("r+b") as file:  # a hole in the entries: what stands behind it does not count
        file.seek(60)
        file.write(struct.pack(">qiq", 77, 100, 0))
    second = builder(tmp_path, 2000)
    second.add(plain([2], start=5000))
    second.finish()
    assert len(queue(tmp_path)) == 60


@pytest.mark.parametrize("numbers", [[0, 1, 3], [0, 1, 1], [5, 6, 5], [0, -1], [3, 2]])
def test_numbers_that_do_not_follow_are_an_error(tmp_path: Path, numbers: list[int]) -> None:
    with pytest.raises(
        CorruptStoreError, match=r"queue T/0: the record at commitLogOffset \d+ has queueOffset -?\d; expected \d"
    ):
        builder(tmp_path).add(plain(numbers))
    for number in numbers[:-1]:  # and one by one
        first = builder(tmp_path / "apart")
        first.add(plain([number]))
        first.finish()
    with pytest.raises(CorruptStoreError, match="queue T/0"):
        builder(tmp_path / "apart").add(plain(numbers[-1:]))


@pytest.mark.parametrize(
    ("numbers", "entries", "warning"),
    [
        ([0, 1, 3, 4], [0, 1, 2, 3], "stands at 2"),  # shifted, as a broker does
        ([0, 1, 2, 1, 2, 3], [0, 1, 2, 5], "number is taken"),
        ([0, 1, 2, 0, 1], [3, 4], "made again"),
        ([7, 8, 0, 1], [2, 3], "made again"),
        ([0, -5, 1], [0, 2], "no entry"),
    ],
)
def test_lenient_goes_on_as_a_broker_does(tmp_path: Path, numbers: list[int], entries: list[int], warning: str) -> None:
    described = plain(numbers)
    building = builder(tmp_path, lenient=True)
    with pytest.warns(StoreWarning, match=warning) as caught:
        building.add(described)
    assert len(caught) == 1
    building.finish()
    assert queue(tmp_path) == b"".join(unit(described, i) for i in entries)
    assert building.entries == len(entries)


def test_a_queue_made_again_leaves_no_old_file(tmp_path: Path) -> None:
    building = builder(tmp_path, 40, lenient=True)
    building.add(plain(list(range(9))))
    building.finish()
    building.add(plain([9]))
    again = plain([0, 1], start=9000)
    with pytest.warns(StoreWarning, match="made again"):
        building.add(again)
    touched = building.finish()
    assert touched == (str(tmp_path / f"consumequeue/T/0/{0:020d}"),)
    assert queue(tmp_path) == unit(again, 0) + unit(again, 1)


@pytest.mark.parametrize(("topic", "queue_id"), [("..", 0), ("a/b", 0), ("", 0), ("a\0", 0), ("T", -1)])
def test_a_queue_that_can_have_no_folder(tmp_path: Path, topic: str, queue_id: int) -> None:
    described = plain([0], topic=topic, queue_id=queue_id)
    with pytest.raises(CorruptStoreError, match="can't have a folder"):
        builder(tmp_path / "s").add(described)
    building = builder(tmp_path / "s", lenient=True)
    with pytest.warns(StoreWarning, match="can't have a folder"):
        building.add(described)
    building.add(described)
    building.finish()
    assert not any(tmp_path.rglob("*"))


def test_topics_left_alone(tmp_path: Path) -> None:
    building = builder(tmp_path, left_alone={"T"})
    building.add(plain([5, 9]))
    assert building.finish() == ()
    assert building.queues == []


def test_sizes(tmp_path: Path) -> None:
    assert (whole_units(100), whole_units(101)) == (100, 120)
    assert found_queue_file_size(LocalFiles(), str(tmp_path)) is None
    for topic, size in (("T", 100), ("U", 100), ("V", 200)):
        if topic == "V":
            assert found_queue_file_size(LocalFiles(), str(tmp_path)) == 100
        building = builder(tmp_path, size)
        building.add(plain([0], topic=topic))
        building.finish()
    with pytest.raises(CorruptStoreError, match="2 of 100 bytes, 1 of 200"):
        found_queue_file_size(LocalFiles(), str(tmp_path))
    with pytest.raises(CorruptStoreError, match="200 bytes; expected 100"):
        builder(tmp_path, 100).add(plain([1], topic="V"))
