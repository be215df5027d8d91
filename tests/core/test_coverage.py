from __future__ import annotations

import itertools
import random
import struct
from pathlib import Path

import numpy as np
import pytest

from store_core import coverage
from store_core.coverage import Coverage, cover
from store_core.files import LocalFiles
from store_core.layout import BLANK_MAGIC, DLEDGER_BLANK_MAGIC
from store_core.queues import Queue, list_queues
from store_core.segments import Framing, Log, Segment, file_name, parse_name
from tests import oracle
from tests.golden_stores import GOLDEN_NAMES, Golden

Place = tuple[int, int]
"""(commitLogOffset, size)"""


def log_of(root: Path) -> Log:
    return Log.of(
        Segment(
            str(file), int(file.name), file.stat().st_size, Framing.DLEDGER if file.parent.name == "data" else Framing.PLAIN
        )
        for file in oracle.log_files(root)
    )


def write_queues(root: Path, queues: list[list[Place]], topic: str = "T", per_file: int = 100) -> tuple[Queue, ...]:
    for number, places in enumerate(queues):
        folder = root / "consumequeue" / topic / str(number)
        folder.mkdir(parents=True)
        for first in range(0, len(places), per_file):
            units = b"".join(struct.pack(">qiq", *place, 0) for place in places[first : first + per_file])
            (folder / file_name(first * 20)).write_bytes(units.ljust(per_file * 20, b"\0"))
    return list_queues(LocalFiles(), str(root))


def write_log(root: Path, segments: list[tuple[int, int, int, Framing]]) -> Log:
    """Segments of (base, length, position of the blank or -1, framing), zeros but for the blanks."""
    made = []
    for base, length, blank, framing in segments:
        data = bytearray(length)
        if blank >= 0:
            words = (length - blank, BLANK_MAGIC) if framing is Framing.PLAIN else (DLEDGER_BLANK_MAGIC, length - blank)
            data[blank : blank + 8] = struct.pack(">ii", *words)
        path = root / file_name(base)
        path.write_bytes(data)
        made.append(Segment(str(path), base, length, framing))
    return Log.of(made)


# --- stores of real brokers ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", [name for name in GOLDEN_NAMES if not name.startswith("rocksdb")])
def test_a_brokers_queues_account_for_all_but_the_tail(golden: Golden, name: str) -> None:
    root, log = golden(name), log_of(golden(name))
    notes: list[str] = []
    found = cover(LocalFiles(), list_queues(LocalFiles(), str(root)), log, notes)
    end = oracle.data_end(root)
    assert found == Coverage(end, ((end, log.max_offset),))
    assert notes == []


@pytest.mark.parametrize("name", ["mixed-5.3.3", "dledger-4.9.7", "lmq-5.3.3", "batchcq-5.3.3"])
def test_without_one_queue_its_records_are_the_gaps(golden: Golden, name: str) -> None:
    root, log = golden(name), log_of(golden(name))
    head = 48 if name.startswith("dledger") else 0
    records = [(offset, record, oracle.read_record(record)) for offset, record in oracle.walk(root)]
    every = {byte for offset, record, _ in records for byte in range(offset - head, offset + len(record))}
    queues = list_queues(LocalFiles(), str(root))
    for lost in queues[::4]:
        found = cover(LocalFiles(), [queue for queue in queues if queue is not lost], log)
        mine = [
            (offset, len(record))
            for offset, record, row in records
            if (row["topic"], row["queueId"]) == (lost.topic, lost.queue_id)
        ]
        assert found.in_gaps(np.array([offset for offset, *_ in records], np.int64)).sum() == len(mine)
        wanted = {byte for offset, size in mine for byte in range(offset - head, offset + size)}
        assert {byte for start, stop in found.gaps for byte in range(start, stop)} & every == wanted
        assert found.end == max(offset + len(record) for offset, record, _ in records if (offset, len(record)) not in mine)


def test_a_store_without_queues_is_one_gap(golden: Golden) -> None:
    root = golden("rocksdb-5.3.3")
    log = log_of(root)
    assert cover(LocalFiles(), list_queues(LocalFiles(), str(root)), log) == Coverage(0, ((0, log.max_offset),))
    assert cover(LocalFiles(), (), Log(())) == Coverage(0, ())


# --- the rules, one by one -----------------------------------------------------------------------------------------------
PLAIN, LEDGER = Framing.PLAIN, Framing.DLEDGER


@pytest.mark.parametrize(
    ("queues", "expected"),
    [
        ([[(100, 50), (150, 30)], [(180, 10), (200, 40)]], Coverage(240, ((240, 300),))),
        ([[(100, 50)], [(180, 10), (200, 40)]], Coverage(240, ((150, 180), (240, 300)))),
        ([[(100, 50), (150, 30)], [(200, 40)]], Coverage(240, ((180, 200), (240, 300)))),
        ([[(100, 50), (150, 30)], [(180, 10)]], Coverage(190, ((190, 300),))),
        ([], Coverage(100, ((100, 300),))),
        # equal entries count once
        ([[(100, 50), (150, 30)], [(150, 30), (180, 10), (200, 40)]], Coverage(240, ((240, 300),))),
        # overlapping ones not at all, and a gap they make may meet the one behind the end
        ([[(100, 50), (150, 30), (160, 5)], [(180, 10), (200, 40)]], Coverage(240, ((150, 180), (240, 300)))),
        ([[(100, 50), (150, 30)], [(180, 10), (200, 40), (210, 35)]], Coverage(245, ((200, 300),))),
        # what lies over a segment's end, before the log or behind it is no entry of it
        ([[(100, 50), (150, 30), (195, 10)], [(180, 10), (200, 40)]], Coverage(240, ((240, 300),))),
        ([[(20, 90), (100, 50), (150, 30)], [(180, 10), (200, 40), (300, 9), (1 << 62, 9)]], Coverage(240, ((240, 300),))),
        ([[(100, 50), (150, 30)], [(180, 10), (200, 40), ((1 << 63) - 1, (1 << 31) - 1)]], Coverage(240, ((240, 300),))),
    ],
)
def test_rules(tmp_path: Path, queues: list[list[Place]], expected: Coverage) -> None:
    log = write_log(tmp_path, [(100, 100, 90, PLAIN), (200, 100, -1, PLAIN)])
    assert cover(LocalFiles(), write_queues(tmp_path, queues), log) == expected


def test_a_tiling_that_fools_plain_sums_is_seen(tmp_path: Path) -> None:
    """The starts that are no ends, and the ends that are no starts, have equal sums, and equal sums of squares."""
    starts, ends = (10, 14, 15), (11, 12, 16)
    assert sum(starts) == sum(ends) and sum(s**2 for s in starts) == sum(e**2 for e in ends)
    for step in (1, 7, 91, 1024, 4096, 65536):
        root = tmp_path / str(step)
        root.mkdir()
        log = write_log(root, [(0, 20 * step, -1, PLAIN)])
        places = [(start * step, (end - start) * step) for start, end in [(0, 12), (10, 11), (14, 20), (15, 16)]]
        assert cover(LocalFiles(), write_queues(root, [places]), log) == Coverage(20 * step, ((0, 20 * step),))


def test_lmq_queues_do_not_hide_a_lost_entry(tmp_path: Path) -> None:
    log = write_log(tmp_path, [(0, 100, -1, PLAIN)])
    write_queues(tmp_path, [[(0, 10), (30, 10)]])
    queues = write_queues(tmp_path, [[(0, 10), (10, 20)]], "%LMQ%q")
    assert len(queues) == 2
    assert cover(LocalFiles(), queues, log) == Coverage(40, ((10, 30), (40, 100)))


def test_a_missing_segment_is_in_no_gap(tmp_path: Path) -> None:
    log = write_log(tmp_path, [(0, 100, 90, PLAIN), (300, 100, -1, PLAIN)])
    queues = write_queues(tmp_path, [[(0, 90), (100, 50), (250, 60), (300, 50)]])
    assert cover(LocalFiles(), queues, log) == Coverage(350, ((350, 400),))
    assert cover(LocalFiles(), [], log) == Coverage(0, ((0, 100), (300, 400)))


def test_in_gaps() -> None:
    found = Coverage(90, ((10, 20), (25, 26), (90, 100)))
    offsets = np.arange(0, 110, dtype=np.int64)
    inside = [any(start <= offset < stop for start, stop in found.gaps) for offset in range(110)]
    assert found.in_gaps(offsets).tolist() == inside
    assert not Coverage(5, ()).in_gaps(offsets).any()


# --- any damage, against a map of bytes ----------------------------------------------------------------------------------
def ascends(queue: list[Place]) -> bool:
    """Whether the entries that are valid and no fillers stand in the order of the log."""
    places = [offset for offset, size in queue if 0 < size < 0x7FFFFFFF]
    return all(a < b for a, b in itertools.pairwise(places))


def byte_map(log: Log, queues: list[list[Place]], blanks: dict[int, int]) -> Coverage:
    """The contract, byte by byte. `blanks`: by a segment's base the commitLogOffset of its blank."""
    heads = [48 if segment.framing is Framing.DLEDGER else 0 for segment in log]
    found: set[tuple[int, int, int]] = set()
    for offset, size in itertools.chain.from_iterable(queue for queue in queues if ascends(queue)):
        i = log.index_of(offset)
        if i < 0 or size <= 0 or size == 0x7FFFFFFF:
            continue
        segment = log.segments[i]
        if offset + size <= segment.end_offset and offset - heads[i] >= segment.base_offset:
            found.add((i, offset - heads[i], offset + size))
    sound = {a for a in found if not any(a[1] < b[2] and b[1] < a[2] for b in found if b != a)}
    end = max((stop for *_, stop in found), default=log.min_offset)
    last_used = max((i for i, *_ in found), default=-1)
    loose: set[int] = set()
    for i, segment in enumerate(log):
        mine = set(range(segment.base_offset, segment.end_offset))
        for _, start, stop in (one for one in sound if one[0] == i):
            mine -= set(range(start, stop))
        ends = [one for one in found if one[0] == i]
        last = max((stop for *_, stop in ends), default=segment.base_offset)
        if i < last_used and blanks.get(segment.base_offset) == last and all(one in sound for one in ends if one[2] == last):
            mine -= set(range(last, segment.end_offset))
        loose |= mine
    gaps: list[list[int]] = []
    for byte in sorted(loose):
        if gaps and gaps[-1][1] == byte:
            gaps[-1][1] += 1
        else:
            gaps.append([byte, byte + 1])
    return Coverage(end, tuple((start, stop) for start, stop in gaps))


def random_store(rng: random.Random, root: Path) -> tuple[Log, list[list[Place]], dict[int, int]]:
    """A sound store of a few segments of a few hundred bytes."""
    framing = rng.choice([PLAIN, PLAIN, LEDGER])
    head = 48 if framing is LEDGER else 0
    length = rng.choice([60, 200, 400])
    base = rng.choice([0, length * 3])
    queues: list[list[Place]] = [[] for _ in range(rng.randint(1, 4))]
    segments, blanks = [], {}
    count = rng.randint(1, 4)
    for number in range(count):
        position = 0
        while (size := rng.randint(1, 30)) + head + position + 8 <= length:
            rng.choice(queues).append((base + position + head, size))
            position += head + size
            if number == count - 1 and rng.random() < 0.1:
                break
        closed = number < count - 1
        segments.append((base, length, position if closed else -1, framing))
        if closed:
            blanks[base] = base + position
        base += length
    if rng.random() < 0.3:
        segments.append((base, length, -1, framing))
    if len(segments) > 2 and rng.random() < 0.2:
        del segments[1]
    return write_log(root, segments), queues, blanks


def damage(rng: random.Random, log: Log, queues: list[list[Place]]) -> None:
    def any_place() -> Place:
        return rng.randint(max(0, log.min_offset - 50), log.max_offset + 50), rng.choice([1, 3, 20, 100, 1000])

    for _ in range(rng.choice([0, 1, 1, 2, 5])):
        queue = rng.choice(queues)
        at = rng.randrange(len(queue)) if queue else None
        what = rng.choice(["drop", "tail", "size", "move", "repeat", "stray", "mix", "head"])
        if what == "stray" or at is None:
            queue.insert(rng.randint(0, len(queue)), any_place())
        elif what == "drop":
            del queue[at]
        elif what == "tail":
            del queue[at:]
        elif what == "head":
            del queue[:at]
        elif what == "size":
            queue[at] = (queue[at][0], max(1, queue[at][1] + rng.randint(-3, 3)))
        elif what == "move":
            queue[at] = (max(0, queue[at][0] + rng.randint(-3, 3)), queue[at][1])
        elif what == "repeat":
            rng.choice(queues).append(queue[at])
        else:
            rng.shuffle(queue)


@pytest.mark.parametrize("small", [0, 3, 1024])
def test_any_damage_against_a_map_of_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small: int) -> None:
    # small limits bring batches, pools and rounds of the exact judgement to stores of a few hundred bytes
    monkeypatch.setattr(coverage, "_SMALL", small)
    monkeypatch.setattr(coverage, "_BATCH", 5 if small < 1000 else 16_384)
    monkeypatch.setattr(coverage, "_EXACT_ENTRIES", 4 if small < 1000 else 1_000_000)
    rng = random.Random(small)
    for number in range(250):
        root = tmp_path / str(number)
        root.mkdir()
        log, queues, blanks = random_store(rng, root)
        damage(rng, log, queues)
        found = cover(LocalFiles(), write_queues(root, queues, per_file=8), log)
        assert found == byte_map(log, queues, blanks), (number, queues, log)


def test_gaps_of_damaged_queue_files_begin_and_end_with_records(golden: Golden, tmp_path: Path) -> None:
    source = golden("mixed-5.3.3")
    log = log_of(source)
    records = {offset: len(record) for offset, record in oracle.walk(source)}
    rng = random.Random(5)
    for number in range(25):
        root = golden.unpack("mixed-5.3.3", tmp_path / str(number))
        paths = [path for path in (root / "consumequeue").rglob("*") if path.is_file() and parse_name(path.name) is not None]
        for path in rng.sample(paths, 3):
            data = bytearray(path.read_bytes())
            kind = rng.choice(["cut", "zero", "page", "gone"])
            if kind == "cut":
                path.write_bytes(data[: rng.randint(0, len(data))])
            elif kind == "gone":
                path.unlink()
            else:
                start = rng.randrange(len(data)) if kind == "zero" else 0
                stop = start + rng.randint(1, 300)
                data[start:stop] = bytes(len(data[start:stop]))
                path.write_bytes(data)
        found = cover(LocalFiles(), list_queues(LocalFiles(), str(root)), log)
        edges = set(records) | {offset + size for offset, size in records.items()} | {segment.end_offset for segment in log}
        assert {edge for gap in found.gaps for edge in gap} <= edges | {log.min_offset}
