"""Bodies: every compression, cut short, garbled, and bombs; CRCs against the records of real brokers."""

from __future__ import annotations

import random
import tracemalloc
import zlib

import pytest

from store_core.codecs import body_crc, compress, compression_name, crc_property, decompress, stored_crc_property
from store_core.errors import CorruptStoreError
from tests.golden_stores import Golden
from tests.oracle import read_parts, read_store
from tests.synthetic.messages import COMPRESSIONS
from tests.synthetic.messages import compress as plain_compress

FLAGS = {name: 1 | bits << 8 for name, bits in COMPRESSIONS.items()}
BODY = "消息 🚀 hello ".encode() * 50


@pytest.mark.parametrize("name", FLAGS)
@pytest.mark.parametrize("body", [b"", b"x", BODY, bytes(1 << 20)])
def test_round_trip(name: str, body: bytes) -> None:
    assert decompress(plain_compress(body, name), FLAGS[name], 1 << 20) == body
    assert decompress(compress(body, name.removesuffix("-old")), FLAGS[name], 1 << 20) == body


@pytest.mark.parametrize("name", FLAGS)
def test_exactly_the_most_is_allowed(name: str) -> None:
    stored = plain_compress(bytes(1000), name)
    assert decompress(stored, FLAGS[name], 1000) == bytes(1000)
    with pytest.raises(CorruptStoreError, match="grows over 999"):
        decompress(stored, FLAGS[name], 999)


@pytest.mark.parametrize("name", FLAGS)
def test_a_bomb_costs_no_memory(name: str) -> None:
    stored = plain_compress(bytes(100 << 20), name)
    tracemalloc.start()
    with pytest.raises(CorruptStoreError, match="maxDecompressedSize"):
        decompress(stored, FLAGS[name], 1 << 20)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 << 20


@pytest.mark.parametrize("name", FLAGS)
def test_a_body_cut_short_is_corrupt(name: str) -> None:
    stored = plain_compress(BODY, name)
    for size in range(1, len(stored)):
        with pytest.raises(CorruptStoreError):
            decompress(stored[:size], FLAGS[name], 1 << 20)


@pytest.mark.parametrize("name", FLAGS)
def test_garbage_is_corrupt(name: str) -> None:
    for stored in (b"garbage", BODY, b"\0" * 40):
        with pytest.raises(CorruptStoreError):
            decompress(stored, FLAGS[name], 1 << 20)


@pytest.mark.parametrize("kind", [4, 5, 6, 7])
def test_types_that_rocketmq_does_not_have(kind: int) -> None:
    assert compression_name(1 | kind << 8) is None
    with pytest.raises(CorruptStoreError, match=f"compression type {kind}"):
        decompress(zlib.compress(b"x"), 1 | kind << 8, 100)


def test_crcs_of_real_records(golden: Golden) -> None:
    for row in read_store(golden("crc-5.5.0")):
        record = row["rawRecord"]
        assert body_crc(read_parts(record)["storedBody"]) == row["bodyCRC"]
        assert stored_crc_property(record) == crc_property(record[:-20])
    assert stored_crc_property(read_store(golden("mixed-5.3.3"))[0]["rawRecord"]) is None


@pytest.mark.parametrize("size", [1, 5000, (4 << 20) - 1, 4 << 20, (9 << 20) + 5])
@pytest.mark.parametrize("kind", ["random", "text"])
def test_lz4_frames_have_independent_blocks(size: int, kind: str) -> None:
    """lz4-java, which RocketMQ reads them with, refuses linked blocks."""
    body = random.Random(size).randbytes(size) if kind == "random" else (b"order " * (size // 6 + 1))[:size]
    frame = compress(body, "lz4")
    assert frame[:4] == b"\x04\x22\x4d\x18" and frame[4] & 0x20, "the bit that says so"
    assert decompress(frame, 0x101, size) == body
