"""Where a walk may begin: cuts at any byte give every record once, and bytes that look like a record are none."""

from __future__ import annotations

import random
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store_core import Store, boundaries, open_store, read_task, walklog
from store_core.describe import DELAY_LEVELS
from store_core.described import Described
from store_core.files import LocalFiles
from store_core.walklog import walk_log
from tests import damage
from tests.core.rows import offsets, read_quietly
from tests.strategies import StoreCase, stores
from tests.synthetic import Built, Message, build_store
from tests.synthetic.messages import encode_record

LENGTH, AT = 3000, 1700
LEDGER = 48
COLUMNS = ["topic", "queueOffset", "commitLogOffset", "storeSize"]


def message(n: int, body: bytes) -> Message:
    # a prepared message has no entry, so that a walk can't begin there
    prepared = 0x4 if n % 5 == 3 else 0
    return Message(topic=f"T{n % 3}", queueId=n % 2, body=body, properties=(("KEYS", f"k{n}"),), sysFlag=prepared)


def with_forged(root: Path, **options: Any) -> tuple[Built, list[int]]:
    """A sound store, some of whose bodies hold a record of the very place where it stands; and these places.

    Each ends where its message does: its properties go on over the message's own topic and properties.
    """

    def build(bodies: list[bytes]) -> Built:
        shutil.rmtree(root, ignore_errors=True)
        sizes = {"mappedFileSizeCommitLog": 1 << 16, "maxHashSlotNum": 50, "maxIndexNum": 1000, **options}
        return build_store(root, [message(n, body) for n, body in enumerate(bodies)], **sizes)

    bodies = [b"b" * (LENGTH if n % 4 == 2 else 100 + n) for n in range(40)]
    places = []
    for n, placed in enumerate(build(bodies).records):
        if len(bodies[n]) == LENGTH:
            place = placed.commitLogOffset + 88 + AT
            size = len(placed.record) - 88 - AT
            named = Message(topic="Payments", body=b"FORGED", properties=b"KEYS\1forged\2")
            bare = len(encode_record(named, place, 7))
            filled = Message(topic="Payments", body=b"FORGED", properties=b"KEYS\1forged\2PAD\1" + b"p" * (size - bare - 4))
            forged = encode_record(filled, place, 7)
            assert len(forged) == size
            entry = struct.pack(">ii", 1, LEDGER + size).ljust(LEDGER, b"\0")
            bodies[n] = b"b" * (AT - LEDGER) + entry + forged[: LENGTH - AT]
            places.append(place)
    built = build(bodies)
    assert [len(body) for body in bodies].count(LENGTH) == len(places) == 10
    return built, places


def apart(store: Store, **how: Any) -> list[int]:
    """The commitLogOffsets of a read whose tasks know nothing of each other."""
    plan = store.plan(columns=COLUMNS, **how)
    return [
        offset
        for task in plan.tasks
        for batch in read_task(plan.spec, task)
        for offset in batch.column("commitLogOffset").to_pylist()
    ]


@pytest.fixture(params=["plain", "dledger"])
def layout(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["queues", "lagging", "damaged", "none", "alone"])
def forged(
    request: pytest.FixtureRequest, layout: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Path, list[int], list[int]]:
    """(what to open, where records stand, where none does) of stores whose queues tell all, some or nothing."""
    monkeypatch.setattr(boundaries, "_BACK", (300, 3500))
    kind = request.param
    options: dict[str, dict[str, Any]] = {"lagging": {"queue_lag": 20}, "none": {"write_queues": False}}
    built, places = with_forged(tmp_path / "s", layout=layout, **options.get(kind, {}))
    if kind == "damaged":
        rng = random.Random(1)
        for file in sorted((built.root / "consumequeue").rglob("0*")):
            if file.is_file():
                for _ in range(3):
                    damage.flip_bit(file, rng.randrange(100), rng.randrange(8))
    root = built.root
    if kind == "alone":
        root = next(p.parent for p in built.root.rglob("0" * 20) if p.parent.name in ("commitlog", "data"))
    return root, [record.commitLogOffset for record in built.records], places


@pytest.mark.parametrize("size", [250, 1000, 1601, 2999])
def test_a_body_is_no_record_wherever_the_log_is_cut(forged: tuple[Path, list[int], list[int]], size: int) -> None:
    root, there, _ = forged
    store = open_store(root)
    assert apart(store, maxPartitionBytes=size) == there
    assert offsets(store.scan(columns=COLUMNS, maxPartitionBytes=size).read_all()) == there


def test_a_place_that_a_user_names_is_proven(forged: tuple[Path, list[int], list[int]]) -> None:
    root, there, places = forged
    store = open_store(root)
    for place in places:
        assert apart(store, where=[("commitLogOffset", "=", place)]) == []
        for bound in (place, place - 1, place - LEDGER, place - AT, place + 1):
            assert apart(store, where=[("commitLogOffset", ">=", bound)]) == [o for o in there if o >= bound]
    assert apart(store, where=[("commitLogOffset", "in", sorted([*there, *places]))]) == there
    for n, offset in enumerate(there):
        assert apart(store, where=[("commitLogOffset", "=", offset)]) == [offset], n
    ids = store.scan(columns=["offsetMsgId"]).read_all()["offsetMsgId"].to_pylist()
    assert apart(store, offsetMsgIds=ids) == there
    assert apart(store, offsetMsgIds=[ids[0][:-16] + f"{place:016X}" for place in places]) == []


def test_the_check_of_a_sound_store_finds_nothing(layout: str, tmp_path: Path) -> None:
    built, _ = with_forged(tmp_path / "s", layout=layout)
    whole = open_store(built.root).verify().to_pylist()
    assert not [row for row in whole if row["severity"] == "error"]
    for size in (1000, 1601, 2999):
        assert open_store(built.root).verify(maxPartitionBytes=size).to_pylist() == whole


@pytest.mark.parametrize("size", [500, 1000, 1601, 2999])
def test_what_is_built_anew_holds_no_such_record(
    layout: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    built, _ = with_forged(tmp_path / "s", layout=layout)
    monkeypatch.setattr(walklog, "_RANGE", size)
    found = list(walk_log(LocalFiles, open_store(built.root).log, index_tags=False, delay_levels=DELAY_LEVELS))
    places = [o for each in found if isinstance(each, Described) for o in each.records["commitLogOffset"].tolist()]
    assert places == [record.commitLogOffset for record in built.records]
    assert all(isinstance(each, Described) for each in found)


def test_queues_save_the_walk_from_the_files_start(tmp_path: Path) -> None:
    body = bytes(1000)
    built = build_store(
        tmp_path / "s",
        [Message(topic="T", body=body) for _ in range(4000)],
        mappedFileSizeCommitLog=8 << 20,
        mappedFileSizeConsumeQueue=100_000,
    )
    read = {}
    for name in ("queues", "none"):
        store = open_store(built.root)
        plan = store.plan(columns=COLUMNS, maxPartitionBytes=256 << 10)
        files = LocalFiles()
        count = sum(batch.num_rows for task in plan.tasks for batch in read_task(plan.spec, task, files))
        assert count == 4000 and len(plan.tasks) == 32
        read[name] = files.bytes_read
        shutil.rmtree(built.root / "consumequeue", ignore_errors=True)
    assert read["queues"] * 2 < read["none"]


@settings(max_examples=60, deadline=None)
@given(
    case=stores(max_messages=80),
    size=st.integers(100, 6000),
    back=st.lists(st.integers(1, 5000), max_size=2),
    hits=st.lists(st.integers(0, 30_000), max_size=3),
)
def test_ranges_side_by_side_are_the_whole(
    tmp_path_factory: pytest.TempPathFactory, case: StoreCase, size: int, back: list[int], hits: list[int]
) -> None:
    """Also where bytes of the log are damaged."""
    built = case.build(tmp_path_factory.mktemp("store") / "s")
    if not built.records:
        return
    segments = open_store(built.root).log.segments
    for place in hits:
        path = Path(segments[place % len(segments)].path)
        damage.overwrite(path, place % path.stat().st_size, b"\xff")
    store = open_store(built.root, mode="PERMISSIVE")
    whole = read_quietly(store, None, None, by_task=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(boundaries, "_BACK", tuple(sorted(back)))
        assert read_quietly(store, None, None, by_task=True, maxPartitionBytes=size).equals(whole)
