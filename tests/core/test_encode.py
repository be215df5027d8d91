"""Encoding: golden records byte for byte, random messages there and back, and what a record's bytes must be."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import store_core
from store_core.decode import Context, Parts, columns
from store_core.described import NO_PLACE
from store_core.encode import Run, encode
from store_core.errors import OptionError
from store_core.layout import CRC_PROPERTY_SIZE, MAGIC_V1, MAGIC_V2
from store_core.schema import EXTRA_COLUMNS, MESSAGES
from store_core.writeoptions import parse_write_options
from tests.golden_stores import Golden

NOW = 1_795_250_597_888
USUAL = ("plain-4.9.7", "crash-5.1.4", "mixed-5.3.3", "crc-5.5.0", "ipv6-5.3.3", "lmq-5.3.3", "longtopic-5.3.3")
MAP = MESSAGES.field("properties").type


def run_of(rows: list[dict[str, Any]] | pa.RecordBatch, now_ms: int = NOW, **options: object) -> Run:
    return encode(batch_of(rows), parse_write_options(options), now_ms=now_ms)


def batch_of(rows: list[dict[str, Any]] | pa.RecordBatch) -> pa.RecordBatch:
    if isinstance(rows, pa.RecordBatch):
        return rows
    schema = pa.schema([f for f in [*MESSAGES, EXTRA_COLUMNS.field("propertiesString")] if any(f.name in row for row in rows)])
    return pa.RecordBatch.from_pylist(rows, schema=schema)


def records(run: Run) -> list[bytes]:
    sizes = run.described.records["size"].tolist()
    ends = np.cumsum(sizes).tolist()
    assert len(run.data) == (ends[-1] if ends else 0)
    return [bytes(run.data[end - size : end]) for size, end in zip(sizes, ends, strict=True)]


def decoded(run: Run, base: int = 4096) -> dict[str, list[Any]]:
    """The run's records with places, as the reader gives them."""
    names = [*MESSAGES.names, "propertiesString"]
    if not len(run):
        return {name: [] for name in names}
    memory = bytearray(run.data) + bytes(8)
    sizes = run.described.records["size"].astype(np.int64)
    starts = np.cumsum(sizes) - sizes
    for number, start in enumerate(starts.tolist()):
        assert memory[start + 20 : start + 36] == bytes(16)
        struct.pack_into(">qq", memory, start + 20, number, base + start)
    parts = Parts.locate(memory, starts, base)
    assert parts.good.all()
    found, bad = columns(parts, names, Context())
    assert not bad
    assert (parts.header("bodyCRC") == [zlib.crc32(b) & 0x7FFFFFFF for b in raw_bodies(parts)]).all()
    return {name: found[name].to_pylist() for name in names}


def raw_bodies(parts: Parts) -> list[bytes]:
    return columns(parts, ["body"], Context(raw_body=True))[0]["body"].to_pylist()


@pytest.mark.parametrize("name", USUAL)
@pytest.mark.parametrize("with_properties_string", [True, False])
def test_golden_records_byte_for_byte(golden: Golden, name: str, with_properties_string: bool) -> None:
    store = store_core.open_store(golden(name), bodyFormat="raw", extraColumns="propertiesString,rawRecord")
    options = parse_write_options({"preserve": "true", "systemTopics": "true", **version_of(name)})
    count = 0
    for batch in store.scan():
        given = batch.drop_columns(["rawRecord"])
        if not with_properties_string:
            # a map has no repeated names; what is left must give the same bytes where there were none
            given = given.drop_columns(["propertiesString"])
        run = encode(given, options, now_ms=NOW)
        rows = run.described.records
        assert rows["commitLogOffset"].tolist() == batch.column("commitLogOffset").to_pylist()
        assert rows["queueOffset"].tolist() == batch.column("queueOffset").to_pylist()
        for made, stored, has_crc, text in zip(
            records(run),
            batch.column("rawRecord").to_pylist(),
            rows["hasCrc"],
            batch.column("propertiesString").to_pylist(),
            strict=True,
        ):
            expected = bytearray(stored)
            expected[20:36] = bytes(16)
            assert has_crc == ("crc" in name)
            if has_crc:
                digits = slice(len(stored) - CRC_PROPERTY_SIZE + 9, len(stored) - 1)
                expected[digits] = made[digits]
            if with_properties_string or not repeats(text):
                assert made == expected
                count += 1
    assert count > 60


def repeats(text: str) -> bool:
    names = [pair.partition("\x01")[0] for pair in text.split("\x02") if pair]
    return len(set(names)) < len(names)


def version_of(name: str) -> dict[str, str]:
    version = name.rpartition("-")[2]
    return {"targetVersion": version}


@pytest.mark.parametrize("name", ["mixed-5.3.3", "plain-4.9.7"])
def test_decompressed_bodies_are_compressed_again(golden: Golden, name: str) -> None:
    batch = pa.Table.from_batches(store_core.open_store(golden(name)).scan()).combine_chunks().to_batches()[0]
    run = run_of(batch, preserve="true", systemTopics="true")
    again = decoded(run)
    assert again["body"] == batch.column("body").to_pylist()
    assert again["sysFlag"] == batch.column("sysFlag").to_pylist()
    assert any(flag & 1 for flag in again["sysFlag"])


# --- there and back ------------------------------------------------------------------------------------------------------

_text = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), min_size=1, max_size=12)
_names = _text.filter(lambda name: name not in ("KEYS", "TAGS", "UNIQ_KEY", "__CRC32#", "INNER_BASE", "DELAY"))
_int32 = st.integers(-(1 << 31), (1 << 31) - 1)
_hosts = st.one_of(
    st.builds(lambda a, p: f"{'.'.join(map(str, a))}:{p}", st.binary(min_size=4, max_size=4), st.integers(0, 65535)),
    st.builds(
        lambda a, p: f"[{':'.join(f'{a[i] << 8 | a[i + 1]:x}' for i in range(0, 16, 2))}]:{p}",
        st.binary(min_size=16, max_size=16),
        st.integers(0, 65535),
    ),
)
_topics = st.one_of(st.sampled_from(["T", "Orders", "%RETRY%g", "x" * 127, "%RETRY%" + "y" * 200]))
_times = st.integers(1, 4102444800000)
_rows = st.fixed_dictionaries(
    {"topic": _topics, "body": st.binary(max_size=40)},
    optional={
        "queueId": st.integers(0, 65535),
        "properties": st.dictionaries(_names, _text, max_size=4).map(lambda d: list(d.items())),
        "keys": _text,
        "tags": _text,
        "uniqKey": _text,
        "flag": _int32,
        "sysFlag": st.sampled_from([0, 2, 4, 8, 12, 1]),
        "bornTimestamp": st.integers(-10_000, 4102444800000),
        "bornHost": _hosts,
        "storeTimestamp": _times,
        "storeHost": _hosts,
        "reconsumeTimes": st.integers(0, (1 << 31) - 1),
    },
)


@settings(max_examples=150, deadline=None)
@given(
    rows=st.lists(_rows, max_size=12),
    crc=st.booleans(),
    separator=st.booleans(),
    compression=st.sampled_from([None, "none", "zlib", "lz4", "zstd"]),
    cut=st.integers(0, 3),
)
def test_any_messages_read_back_equal(
    rows: list[dict[str, Any]], crc: bool, separator: bool, compression: str | None, cut: int
) -> None:
    as_columns = [{name: value * 1000 if name.endswith("Timestamp") else value for name, value in row.items()} for row in rows]
    schema = pa.schema([f if not pa.types.is_timestamp(f.type) else pa.field(f.name, pa.int64()) for f in MESSAGES])
    whole = pa.RecordBatch.from_pylist(as_columns, schema=schema)
    whole = pa.RecordBatch.from_arrays([c.cast(f.type) for c, f in zip(whole.columns, MESSAGES, strict=True)], schema=MESSAGES)
    batch, rows = whole.slice(cut), rows[cut:]
    run = run_of(
        batch, enabledAppendPropCRC=crc, lastSeparator=separator, compression=compression, compressMsgBodyOverHowmuch=20
    )
    found = decoded(run)
    assert run.described.records["hasCrc"].all() if crc else not run.described.records["hasCrc"].any()
    for number, row in enumerate(rows):
        got = {name: values[number] for name, values in found.items()}
        store_ms = row.get("storeTimestamp", NOW)
        expected = {
            "topic": row["topic"],
            "body": row["body"],
            "keys": row.get("keys"),
            "tags": row.get("tags"),
            "uniqKey": row.get("uniqKey"),
            "flag": row.get("flag", 0),
            "bornHost": row.get("bornHost", "127.0.0.1:0"),
            "storeHost": row.get("storeHost", "127.0.0.1:10911"),
            "reconsumeTimes": row.get("reconsumeTimes", 0),
            "preparedTransactionOffset": 0,
            "queueOffset": number,
        }
        assert {name: got[name] for name in expected} == expected
        assert round(got["storeTimestamp"].timestamp() * 1000) == store_ms
        assert round(got["bornTimestamp"].timestamp() * 1000) == row.get("bornTimestamp", store_ms)
        if "queueId" in row:
            assert got["queueId"] == row["queueId"]
        else:
            assert 0 <= got["queueId"] < 8
        pairs = dict(row.get("properties", ()))
        pairs |= {n: row[c] for c, n in (("keys", "KEYS"), ("tags", "TAGS"), ("uniqKey", "UNIQ_KEY")) if c in row}
        read = dict(got["properties"])
        assert (read.pop("__CRC32#", None) is not None) == crc
        assert read == pairs
        if got["propertiesString"]:
            assert got["propertiesString"].endswith("\x02") == (separator or crc)
        given_flag = row.get("sysFlag", 0)
        assert got["sysFlag"] & 0xE == given_flag & 0xE
        assert bool(got["sysFlag"] & 0x10) == got["bornHost"].startswith("[")
        assert bool(got["sysFlag"] & 0x20) == got["storeHost"].startswith("[")


def test_the_same_rows_give_the_same_bytes_however_they_are_cut() -> None:
    rows = [{"topic": f"T{i % 3}", "body": b"x" * i, "storeTimestamp": None} for i in range(40)]
    batch = pa.RecordBatch.from_pylist(rows, schema=pa.schema([MESSAGES.field("topic"), MESSAGES.field("body")]))
    options = parse_write_options({})
    whole = encode(batch, options, now_ms=NOW, first_queue=5)
    first = encode(batch.slice(0, 17), options, now_ms=NOW, first_queue=5)
    second = encode(batch.slice(17), options, now_ms=NOW, first_queue=5, first_row=17, seen=first.seen)
    assert bytes(whole.data) == bytes(first.data) + bytes(second.data)
    assert whole.seen == second.seen == {"T0": 14, "T1": 13, "T2": 13}


# --- the bytes -----------------------------------------------------------------------------------------------------------


def test_the_worked_example_of_a_long_topic() -> None:
    topic = "%RETRY%" + 125 * "g"
    (record,) = records(run_of([{"topic": topic, "body": b"x"}]))
    assert record[:8] == bytes.fromhex("000000e1 daa320ab")
    assert record[84:95] == bytes.fromhex("00000001 78 0084 25524554")
    assert record[-2:] == bytes(2)


def test_the_worked_example_of_ipv6_hosts() -> None:
    row = {"topic": "TopicTest", "body": b"x", "tags": "a", "bornHost": "[2001:db8::1]:1", "storeHost": "[2001:db8::1]:1"}
    (record,) = records(run_of([row]))
    assert len(record) == 132 and record[36:40] == bytes.fromhex("00000030")
    assert record[108:113] == b"\0\0\0\1x"


def test_magic_by_the_topics_length() -> None:
    run = run_of([{"topic": "x" * 127, "body": b""}, {"topic": "x" * 128, "body": b""}])
    assert [struct.unpack_from(">i", r, 4)[0] for r in records(run)] == [MAGIC_V1, MAGIC_V2]


def test_described_says_sizes_queues_and_no_places() -> None:
    run = run_of(
        [{"topic": "A", "body": b"1", "queueId": 3, "keys": "a b", "tags": "t"}, {"topic": "B", "body": b"", "queueId": 0}]
    )
    assert run.described.queues == (("A", 3), ("B", 0))
    assert run.described.records["keyCount"].tolist() == [3, 0]
    assert (
        set(run.described.records["queueOffset"].tolist())
        == set(run.described.records["commitLogOffset"].tolist())
        == {NO_PLACE}
    )
    assert run_of([{"topic": "A", "body": b"1", "keys": "a", "tags": "t"}], indexTags="false").described.records[
        "keyCount"
    ] == [1]


def test_no_rows() -> None:
    run = run_of(pa.RecordBatch.from_pylist([], schema=MESSAGES))
    assert len(run) == 0 and bytes(run.data) == b"" and run.seen == {}


def test_a_record_larger_than_a_file() -> None:
    row = {"topic": "T", "body": b"x" * 900}
    assert len(run_of([row], mappedFileSizeCommitLog=91 + 1 + 900 + 8)) == 1
    with pytest.raises(
        OptionError, match=r"row 0, topic 'T'; expected .* at most 991 bytes, which a file of mappedFileSizeComm"
    ):
        run_of([row], mappedFileSizeCommitLog=91 + 1 + 900 + 7)
