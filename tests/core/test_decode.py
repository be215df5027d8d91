"""Records of every shape, mixed in one buffer, are decoded as the oracle decodes them one by one."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from store_core import CorruptStoreError, open_store
from store_core.decode import Parts
from store_core.segments import Framing, Log, Segment, parse_name
from tests.core.rows import EXTRA, full_rows, offsets, read_quietly, rows_of, same_rows
from tests.oracle import read_store
from tests.synthetic import Message, build_store, random_messages
from tests.synthetic.messages import encode_record

V6, V4 = "[2001:db8::1]:40000", "10.0.0.1:40000"


def read(root: Path, messages: list[Message], **options: Any) -> None:
    size = options.pop("mappedFileSizeCommitLog", 16384)
    build_store(root, messages, mappedFileSizeCommitLog=size, write_queues=False, write_index=False)
    rows = full_rows(root)
    assert len(rows) == len(messages)
    same_rows(rows_of(read_quietly(open_store(root), extraColumns=list(EXTRA), **options)), rows)


@pytest.mark.parametrize("born", [V4, V6])
@pytest.mark.parametrize("store", [V4, V6])
@pytest.mark.parametrize("version2", [False, True])
def test_all_alike(tmp_path: Path, born: str, store: str, version2: bool) -> None:
    read(tmp_path, [Message(topic="T", body=b"b" * n, bornHost=born, storeHost=store, version2=version2) for n in range(30)])


@pytest.mark.parametrize("seed", range(10))
def test_mixed(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    read(tmp_path, random_messages(rng, 150, inner_batches=True, multi_dispatch=True))


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("most", [1, 2000])
@pytest.mark.parametrize("expand", [False, True])
def test_batches_of_few_decompressed_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, most: int, expand: bool
) -> None:
    """The same rows, conditions and corrupt records, in more batches."""
    rng = random.Random(seed)
    messages = [*random_messages(rng, 120, inner_batches=True), Message(topic="T", body=b"no stream", sysFlag=1 | 3 << 8)]
    rng.shuffle(messages)
    build_store(tmp_path, messages, mappedFileSizeCommitLog=65536)
    asked: list[Any] = [None, [("body", "!=", b"x")], [("topic", "!=", "A"), ("body", ">", b"a")], [("queueId", "<", 1)]]
    how: list[dict[str, Any]] = [
        {"mode": "PERMISSIVE"},
        {"mode": "PERMISSIVE", "verifyCrc": True},
        {"mode": "DROPMALFORMED", "tags": "a"},
    ]
    cases = [(where, {**options, "expandBatches": expand}) for where in asked for options in how]

    def rows() -> list[list[Any]]:
        found = [read_quietly(open_store(tmp_path), where, None, **options).to_pylist() for where, options in cases]
        # a corrupt record's row stands in front of its batch
        return [sorted(map(repr, each)) for each in found]

    whole = rows()
    assert any("no zlib stream" in row for row in whole[0])
    monkeypatch.setattr("store_core.rows._INFLATED", most)
    monkeypatch.setattr("store_core.rows._MOST_ROWS", 3)
    assert rows() == whole


@pytest.mark.parametrize("host", ["0.0.0.0:0", "255.255.255.255:65535", "[::]:1", "[ffff::ffff:1.2.3.4]:2", "[1:0:0:2::]:3"])
def test_hosts(tmp_path: Path, host: str) -> None:
    read(tmp_path, [Message(topic="T", bornHost=host, storeHost=host), Message(topic="T")])


@pytest.mark.parametrize("value", [0, -1, 1, 253_402_300_800_000, -62_135_596_800_001, 9_223_372_036_854_774])
def test_times(tmp_path: Path, value: int) -> None:
    read(tmp_path, [Message(topic="T", bornTimestamp=value, storeTimestamp=value)])


@pytest.mark.parametrize("value", [(1 << 63) - 1, -(1 << 63), 9_223_372_036_854_776])
def test_a_time_beyond_all_times_is_corrupt(tmp_path: Path, value: int) -> None:
    build_store(tmp_path, [Message(topic="T"), Message(topic="T", bornTimestamp=value)])
    with pytest.raises(CorruptStoreError, match="no time that can be told"):
        open_store(tmp_path).scan().read_all()
    assert open_store(tmp_path).scan(columns=["topic"]).read_all().num_rows == 2


@pytest.mark.parametrize("topic", ["T", "T" * 127, "T" * 128, "é" * 60, "%RETRY%" + "g" * 240])
def test_topics(tmp_path: Path, topic: str) -> None:
    read(tmp_path, [Message(topic=topic, body=b"1"), Message(topic="Other"), Message(topic=topic)])


def test_records_larger_than_any_buffer(tmp_path: Path) -> None:
    rng = random.Random(1)
    sizes = [10, 4_194_304, 4_194_304 + 65_000, 9_000_000, 5, 4_194_200, 20_000_000, 3]
    messages = [Message(topic="T", body=rng.randbytes(8) * (size // 8), properties=(("KEYS", f"k{size}"),)) for size in sizes]
    build_store(tmp_path, messages, mappedFileSizeCommitLog=32 << 20)
    rows = read_store(tmp_path)
    for options in ({}, {"maxPartitionBytes": 5_000_000}, {"maxPartitionBytes": 1_000_000}):
        columns = ["commitLogOffset", "queueOffset", "storeSize", "body"]
        same_rows(rows_of(read_quietly(open_store(tmp_path), None, columns, by_task=True, **options)), rows)
    store = open_store(tmp_path)
    assert offsets(store.lookup("T", "k20000000")) == [rows[6]["commitLogOffset"]]
    assert offsets(store.scan([("topic", "=", "T"), ("queueOffset", "in", [3, 6])]).read_all()) == [
        rows[3]["commitLogOffset"],
        rows[6]["commitLogOffset"],
    ]


def test_a_body_that_grows_too_large_follows_the_mode(tmp_path: Path) -> None:
    messages = [Message(topic="T", body=bytes(n), compression="zstd") for n in (10, 100_000, 20)]
    build_store(tmp_path, messages)
    with pytest.raises(CorruptStoreError, match="Raise maxDecompressedSize"):
        open_store(tmp_path).scan(maxDecompressedSize="64k").read_all()
    kept = read_quietly(open_store(tmp_path), mode="DROPMALFORMED", maxDecompressedSize="64k")
    assert [len(body) for body in kept["body"].to_pylist()] == [10, 20]
    assert open_store(tmp_path).scan(maxDecompressedSize=100_000).read_all().num_rows == 3


def test_what_does_not_hold_together_is_not_good() -> None:
    good = encode_record(Message(topic="T", body=b"body", properties=(("a", "b"),)), 0, 0)

    def located(record: bytes, base: int = 0) -> bool:
        memory = record + bytes(8)
        return bool(Parts.locate(memory, np.array([0]), base).good[0])

    assert located(good)
    assert not located(good, base=1)
    assert not located(good[:-1])
    for at in (0, 3, 7, 35, 86, 87, 92, 94, len(good) - 4):
        for bit in range(8):
            bad = bytearray(good)
            bad[at] ^= 1 << bit
            if at != len(good) - 4:
                assert not located(bytes(bad)), (at, bit)


def test_no_bytes_at_all() -> None:
    parts = Parts.locate(bytes(8), np.array([], dtype=np.int64), 0)
    assert len(parts) == 0
    assert not Parts.locate(bytes(50), np.array([0]), 0).good[0]


# --- segments ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "offset"),
    [("0" * 20, 0), ("00000000001073741824", 1 << 30), ("0" * 19, None), ("0" * 21, None), ("0000000000000000000x", None)],
)
def test_file_names(name: str, offset: int | None) -> None:
    assert parse_name(name) == offset


def test_names_of_other_digits_are_none() -> None:
    assert parse_name("٠" * 20) is None


@pytest.mark.parametrize("bases", [[0], [0, 100, 200], [300, 400, 600], [0, 100, 250]])
def test_a_log_pickles_to_what_it_was(bases: list[int]) -> None:
    import pickle

    log = Log.of(Segment(f"/s/c{b // 100 % 2}/{b:020d}", b, 100, Framing.PLAIN) for b in bases)
    assert pickle.loads(pickle.dumps(log)) == log
    for offset in range(-1, 720, 7):
        inside = [s for s in log if s.base_offset <= offset < s.end_offset]
        assert log.find(offset) == (inside[0] if inside else None)
