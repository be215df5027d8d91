"""What is fuzzed. A target takes inputs and returns, or it fails: only declared errors may come out of a decoder.

Where a plain second opinion is cheap, what was decoded must be what that one says: `tests.oracle`, `struct`, `json`.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from store_core import codecs, decode, innerbatch, queues
from store_core.checkpoint import decode_checkpoint
from store_core.checksums import crc_faults
from store_core.config import read_consumer_offsets, read_delay_offsets, read_subscription_groups, read_topics
from store_core.consumequeue import decode_batch_units, decode_ext_units, decode_units, drop_fillers, valid_prefix
from store_core.decode import Context, Parts
from store_core.describe import describe_parts
from store_core.errors import CorruptStoreError, StoreError
from store_core.fastjson import loads_fastjson
from store_core.indexfile import IndexDamage, IndexFile, Unusable, chain, open_index, read_index_entries, verify_index
from store_core.javaproperties import parse_properties as parse_java
from store_core.properties import parse_properties, split
from store_core.reading import Found, read_range
from store_core.schema import EXTRA_COLUMNS, MESSAGES
from store_core.segments import Framing, Log, Segment
from tests.fuzz.memory import MemoryFiles
from tests.oracle import decompress, parse_props, read_parts

__all__ = ["PLACE", "SLOTS", "TARGETS", "Target"]

PLACE = 1 << 20
"""The commitLogOffset that each record of the target `record` is said to stand at."""
SLOTS = 7
"""maxHashSlotNum of the index files that are fuzzed."""
MOST = 1 << 20
SPARE = bytes(8)
COLUMNS = [*MESSAGES.names, *EXTRA_COLUMNS.names]
EVERY = 16
"""One of so many records is compared with the plain decoder field by field."""


@dataclass(frozen=True)
class Target:
    """`check` takes many inputs in one call, `batch` of them at best; `each` is the time (ms) one input may take."""

    name: str
    check: Callable[[Sequence[bytes]], None]
    batch: int = 500
    each: float = 1.0

    def one(self, data: bytes) -> None:
        self.check([data])


def looped(check: Callable[[bytes], object]) -> Callable[[Sequence[bytes]], None]:
    def many(inputs: Sequence[bytes]) -> None:
        for data in inputs:
            check(data)

    return many


# --- records -------------------------------------------------------------------------------------------------------------


def records(inputs: Sequence[bytes]) -> None:
    """One record each."""
    if not inputs:
        return
    lengths = np.array([len(data) for data in inputs], dtype=np.int64)
    starts = np.cumsum(lengths) - lengths
    memory = b"".join(inputs) + SPARE
    parts = Parts.locate(memory, starts, PLACE - starts)
    # in a log a record's neighbours are found by its size, so those that reach into the next one do not come together
    inside = np.flatnonzero(parts.good & (parts.store_size() <= lengths))
    for i, data in enumerate(inputs):
        if i % EVERY == 0:
            agree(data, bool(np.isin(i, inside)))
    parts = parts.take(inside)
    made, bad = decode.columns(parts, COLUMNS, Context("file", "store", "b", max_decompressed_size=MOST))
    assert all(len(column) == len(inside) for column in made.values())
    for column in made.values():
        column.validate(full=True)
    assert all(0 <= each.index < len(inside) and each.reason for each in bad)
    unreadable = {each.index for each in bad}
    for n in range(0, len(inside), EVERY):
        row = read_parts(inputs[inside[n]][: int(lengths[inside[n]])]) if positive(inputs[inside[n]]) else None
        if row is None or n in unreadable:
            continue
        for name in ("topic", "queueId", "queueOffset", "flag", "sysFlag", "bodyCRC", "reconsumeTimes", "storeSize"):
            assert made[name][n].as_py() == row[name], name
        assert dict(made["properties"][n].as_py()) == parse_props(row["propertiesString"])
        if not row["sysFlag"] & 1:
            assert made["body"][n].as_py() == row["storedBody"]
    batch = parts.take(np.flatnonzero(innerbatch.is_batch(parts)))
    expanded, source, _, count = innerbatch.expand(batch, Context(max_decompressed_size=MOST), 1 << 40)
    assert len(expanded) == len(source) and count == len(batch)
    list(crc_faults(parts))


def positive(data: bytes) -> bool:
    """Whether the plain decoder, which refuses negative lengths, takes the record; RocketMQ's takes them for 0."""
    try:
        read_parts(data)
    except struct.error:
        return False
    return True


def agree(data: bytes, good: bool) -> None:
    try:
        row = read_parts(data[: int.from_bytes(data[:4], "big", signed=True)] if len(data) >= 4 else b"")
    except struct.error:
        return
    whole = row["magic"] in (0xDAA320A7, 0xDAA320AB) and row["commitLogOffset"] == PLACE
    whole &= row["partsSize"] == row["storeSize"] <= len(data)
    assert good == whole, f"good is {good}, but the plain decoder says {whole}"


def log(data: bytes) -> None:
    """A whole commitlog file, plain or DLedger's, read at once and in pieces."""
    framing = Framing.DLEDGER if data[:4] == b"\0\0\0\1" else Framing.PLAIN
    path = "/s/commitlog/" + "0" * 20
    files, segment = MemoryFiles({path: data}), Segment(path, 0, len(data), framing)
    whole = Log.of([segment])

    def read(cuts: Sequence[int]) -> tuple[list[int], list[tuple[int, int]]]:
        places: list[int] = []
        gaps: list[tuple[int, int]] = []
        for start, stop in pairwise(cuts):
            for found in read_range(files, whole, segment, start, stop, aligned=start == 0, records_behind=False):
                if isinstance(found, Found):
                    places += found.parts.heads["commitLogOffset"].tolist()
                    if start == 0:
                        with suppress(CorruptStoreError):
                            describe_parts(found.parts, index_tags=True)
                else:
                    gaps.append((found.start, found.end))
        return places, gaps

    places, gaps = read((0, len(data)))
    assert places == sorted(set(places))
    assert read([*range(0, len(data), max(len(data) // 3, 1)), len(data)]) == (places, gaps)
    for place in places[::EVERY]:
        size = int.from_bytes(data[place : place + 4], "big")
        if positive(data[place : place + size]):
            assert read_parts(data[place : place + size])["partsSize"] == size
    assert not any(start <= place < end for place in places for start, end in gaps)


def properties(inputs: Sequence[bytes]) -> None:
    """One properties string each."""
    if not inputs:
        return
    lengths = np.array([len(data) for data in inputs], dtype=np.int64)
    starts = np.cumsum(lengths + 1) - lengths - 1
    pairs = split(pa.py_buffer(b"\0".join(inputs) + SPARE), starts, lengths)
    maps = pairs.to_map()
    maps.validate(full=True)
    tags, keys, long = (pairs.values(name) for name in ("TAGS", "KEYS", "TRANSACTION_CHECK_TIMES"))
    for i, (data, found) in enumerate(zip(inputs, maps.to_pylist(), strict=True)):
        plain = parse_props(data)
        assert len(found) == len(plain) and dict(found) == plain
        assert tags[i].as_py() == plain.get("TAGS") and keys[i].as_py() == plain.get("KEYS")
        assert long[i].as_py() == plain.get("TRANSACTION_CHECK_TIMES")
        if i % EVERY == 0:
            assert parse_properties(data) == plain


# --- queues and index ----------------------------------------------------------------------------------------------------

FILE = 400


def queue_units(inputs: Sequence[bytes]) -> None:
    """Units of queue files, all in one array."""
    joined = b"".join(data[: len(data) // 20 * 20] for data in inputs)
    entries = decode_units(joined, 5)
    assert len(entries) == len(joined) // 20 and 0 <= valid_prefix(entries) <= len(entries)
    for i in range(0, len(entries), EVERY * EVERY):
        offset, size, tags = struct.unpack_from(">qiq", joined, 20 * i)
        found = entries.commit_log_offset[i], entries.size[i], entries.tags_code[i], entries.queue_offset[i]
        assert found == (offset, size, tags, 5 + i)
        assert bool(entries.is_valid[i]) == (offset >= 0 and size > 0)
    assert len(drop_fillers(entries)) <= len(entries)
    batches = decode_batch_units(joined)
    assert len(batches) == len(joined) // 46 and 0 <= valid_prefix(batches) <= len(batches)
    if len(joined) >= 20:
        decode_ext_units(joined, np.arange(0, len(joined) - 19, 67, dtype=np.int64))


def queue(data: bytes) -> None:
    """Files of a queue; in the shape of a batch queue's when the length is no multiple of 20."""
    batch = len(data) % 20 != 0
    size = 460 if batch else FILE
    folder = "/s/batchconsumequeue/T/0" if batch else "/s/consumequeue/T/0"
    files = MemoryFiles({f"{folder}/{at:020d}": data[at : at + size] for at in range(0, len(data), size)})
    for each in queues.list_queues(files, "/s"):
        notes: list[str] = []
        with suppress(StoreError):
            first, stop = queues.bounds(files, each, 0, notes)
            assert batch or first <= stop
        with suppress(StoreError):
            for _, entries in queues.read_entries(files, each, min_phys=0, notes=notes):
                assert (entries.commit_log_offset >= 0).all() and entries.is_valid.all()
                if not batch:
                    for n, offset in zip(entries.queue_offset.tolist(), entries.commit_log_offset.tolist(), strict=True):
                        assert struct.unpack_from(">q", data, 20 * n)[0] == offset
        with suppress(StoreError):
            queues.first_at_or_after(files, each, 1_000, 0, lambda offset: offset, notes)


def index(data: bytes) -> None:
    """A whole index file."""
    path = "/s/index/20261121000000000"
    files, file = MemoryFiles({path: data}), IndexFile(path, path[-17:], len(data))
    for slots in (SLOTS, None):
        opened = open_index(files, file, max_hash_slot_num=slots, max_phys=1 << 30)
        if isinstance(opened, Unusable):
            assert opened.reason
            continue
        hashes: list[int] = []
        with suppress(IndexDamage):
            for entries in read_index_entries(files, opened):
                hashes += entries.key_hash.tolist()
        sound = verify_index(files, opened) is None
        for key_hash in dict.fromkeys([*hashes[:: max(len(hashes) // 4, 1)], 0, 7, 0x7FFFFFFF]):
            if key_hash < 0 or not opened.slots:
                continue
            try:
                found = chain(files, opened, key_hash).index_no.tolist()
            except IndexDamage:
                assert not sound
                continue
            assert found == sorted(set(found), reverse=True) and all(1 <= n <= opened.entries for n in found)
            assert all(hashes[n - 1] == key_hash for n in found)
            if sound:
                assert found == [n for n in range(len(hashes), 0, -1) if hashes[n - 1] == key_hash]


# --- small files ---------------------------------------------------------------------------------------------------------


def checkpoint(data: bytes) -> None:
    found = decode_checkpoint(data)
    assert tuple(getattr(found, name) for name in found.__slots__) == struct.unpack(">6q", data[:48].ljust(48, b"\0"))


def fastjson(data: bytes) -> None:
    try:
        plain: Any = json.loads(data.decode(), parse_constant=lambda _: 1 / 0)
        is_plain = True
    except (ValueError, RecursionError, ZeroDivisionError):
        is_plain = False
    try:
        found = loads_fastjson(data)
    except CorruptStoreError as e:
        assert not is_plain, f"a plain JSON value was refused: {e}"
        return
    assert not is_plain or repr(found) == repr(plain)


def config(data: bytes) -> None:
    names = ("topics", "subscriptionGroup", "delayOffset", "consumerOffset", "lmqConsumerOffset")
    files = MemoryFiles({f"/s/config/{name}.json": data for name in names})
    for read in (read_topics, read_subscription_groups, read_delay_offsets, read_consumer_offsets):
        with suppress(CorruptStoreError):
            read(files, "/s")


def javaproperties(data: bytes) -> None:
    try:
        found = parse_java(data)
    except CorruptStoreError:
        assert b"\\u" in data
        return
    for name, value in found.items():
        (name + value).encode()
    if not set(data) & set(b"\\#!"):
        assert len(found) <= len(data.replace(b"\r", b"\n").split(b"\n"))


def body(data: bytes) -> None:
    """The first byte says which codec, the rest is its stream."""
    if not data:
        return
    kind, stored = data[0] & 7, data[1:]
    try:
        found = codecs.decompress(stored, 1 | kind << 8, MOST)
    except CorruptStoreError:
        return
    assert kind <= 3 and len(found) <= MOST
    if len(found) < 4096 and kind in (0, 3):
        assert found == zlib.decompressobj().decompress(stored)
    elif len(found) < 4096:
        assert found == decompress(stored, kind)


TARGETS = {
    target.name: target
    for target in (
        Target("record", records, 2000),
        Target("log", looped(log), 50, 20.0),
        Target("properties", properties, 2000),
        Target("queueunits", queue_units, 1000),
        Target("queue", looped(queue), 100, 10.0),
        Target("index", looped(index), 100, 10.0),
        Target("checkpoint", looped(checkpoint), 2000),
        Target("fastjson", looped(fastjson), 500),
        Target("config", looped(config), 200, 2.0),
        Target("javaproperties", looped(javaproperties), 500),
        Target("body", looped(body), 500, 2.0),
    )
}
