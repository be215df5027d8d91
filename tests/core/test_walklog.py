"""A log described range by range: the same records and the same damage, however it is cut."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store_core import CorruptStoreError, open_store, walklog
from store_core.describe import DELAY_LEVELS
from store_core.described import Described
from store_core.files import LocalFiles
from store_core.reading import Gap
from store_core.walklog import Walked, walk_log
from tests.strategies import StoreCase, stores
from tests.synthetic import Message, build_store, random_messages


def walked(root: Path, size: int, new_files: Callable[[], LocalFiles] = LocalFiles) -> list[Walked]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(walklog, "_RANGE", size)
        return list(walk_log(new_files, open_store(root).log, index_tags=True, delay_levels=DELAY_LEVELS))


def plain(found: list[Walked]) -> list[Any]:
    """Records one by one, and what else there is."""
    rows: list[Any] = []
    for each in found:
        if isinstance(each, Described):
            ends = each.records["keyCount"].cumsum().tolist()
            for i, record in enumerate(each.records.tolist()):
                light = [
                    (each.queues[entry["queue"]], int(entry["queueOffset"])) for entry in each.light if entry["record"] == i
                ]
                hashes = each.key_hashes[ends[i] - each.records["keyCount"][i] : ends[i]].tolist()
                # the number of a queue is one of its batch
                rows.append((*record[:5], each.queues[record[5]], *record[6:], hashes, light))
        else:
            rows.append(each if isinstance(each, Gap) else str(each))
    return rows


@settings(max_examples=30, deadline=None)
@given(case=stores(max_messages=80), size=st.integers(1, 3000), damage=st.lists(st.integers(0, 30_000), max_size=3))
def test_ranges_side_by_side_are_the_whole(
    tmp_path_factory: pytest.TempPathFactory, case: StoreCase, size: int, damage: list[int]
) -> None:
    built = case.build(tmp_path_factory.mktemp("store") / "s")
    if not built.records:
        return
    segments = open_store(built.root).log.segments
    for place in damage:
        path = Path(segments[place % len(segments)].path)
        with path.open("r+b") as file:
            file.seek(place % path.stat().st_size)
            file.write(b"\xff")
    assert plain(walked(built.root, max(size, 100))) == plain(walked(built.root, 1 << 30))


def test_what_can_not_be_dispatched_comes_before_its_batch(tmp_path: Path) -> None:
    messages = [Message(topic="SCHEDULE_TOPIC_XXXX", properties=(("DELAY", level),)) for level in ("1", "x", "2")]
    built = build_store(tmp_path / "s", messages, write_queues=False)
    fault, first, last = plain(walked(built.root, 1 << 20))
    assert f"at byte {built.records[1].commitLogOffset}: " in fault and "DELAY is 'x'" in fault
    assert (first[0], last[0]) == (0, built.records[2].commitLogOffset)


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    built = build_store(tmp_path / "s", [Message(topic="T", body=bytes(900))] * 20, mappedFileSizeCommitLog=5000)
    (built.root / "commitlog" / f"{5000:020d}").unlink()
    [fault] = [each for each in walked(built.root, 1 << 20) if isinstance(each, CorruptStoreError)]
    assert fault.reason.startswith("no file holds commitLogOffsets [5000, 10000)")
    assert fault.path == str(built.root / "commitlog" / f"{0:020d}")


def test_a_walk_that_is_given_up_reads_no_further(tmp_path: Path) -> None:
    messages = random_messages(random.Random(1), 400)
    built = build_store(tmp_path / "s", messages, mappedFileSizeCommitLog=1 << 20)
    opened: list[LocalFiles] = []

    def new_files() -> LocalFiles:
        opened.append(LocalFiles())
        return opened[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(walklog, "_RANGE", 1000)
        walk = walk_log(new_files, open_store(built.root).log, index_tags=True, delay_levels=DELAY_LEVELS)
        next(walk)
        assert isinstance(walk, Generator)
        walk.close()
    assert len(opened) <= 3
    assert sum(files.reads for files in opened) < 50 < built.end // 1000


def test_an_error_of_a_thread_comes_out(tmp_path: Path) -> None:
    built = build_store(tmp_path / "s", [Message(topic="T")])
    calls = []

    def new_files() -> LocalFiles:
        calls.append(1)
        if len(calls) > 1:
            raise OSError("no more")
        return LocalFiles()

    with pytest.raises(OSError, match="no more"):
        walked(built.root, 1 << 20, new_files)
