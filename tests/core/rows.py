"""What the core returns, in the words of `tests.oracle`, so that the two can be compared with `==`."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from store_core import Store, StoreWarning, read_task
from tests.oracle import Row, log_files, read_parts, read_store

__all__ = ["CORRUPT", "EXTRA", "expanded", "full_rows", "multiset", "offsets", "read_quietly", "rows_of", "same_rows"]

CORRUPT = "_corrupt_record"
EXTRA = ("propertiesString", "compression", "transactionType", "sourceFile", "storePath", "rawRecord")
TRANSACTIONS = {0x0: "none", 0x4: "prepared", 0x8: "commit", 0xC: "rollback"}
COMPRESSIONS = {0: "zlib", 1: "lz4", 2: "zstd", 3: "zlib"}
INNER_BATCH = 0xC0


def rows_of(table: pa.Table | pa.RecordBatch) -> list[Row]:
    """The table's rows as the oracle has them: times in ms, properties as a dict, the stored string as bytes."""
    columns: dict[str, list[Any]] = {}
    for name in table.schema.names:
        column = table[name]
        if pa.types.is_timestamp(column.type):
            micros = column.cast(pa.int64()).to_pylist()
            assert all(value is None or value % 1000 == 0 for value in micros), f"{name} is no whole millisecond"
            columns[name] = [None if value is None else value // 1000 for value in micros]
        elif name == "properties":
            columns[name] = [None if pairs is None else without_repeats(pairs) for pairs in column.to_pylist()]
        elif name == "propertiesString":
            columns[name] = [None if text is None else text.encode() for text in column.to_pylist()]
        else:
            columns[name] = column.to_pylist()
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def without_repeats(pairs: list[tuple[str, str]]) -> dict[str, str]:
    """A map column may hold a key once only; Arrow does not check that."""
    found = dict(pairs)
    assert len(found) == len(pairs), f"a key stands twice in {pairs}"
    return found


def full_rows(root: Path, broker_name: str | None = None) -> list[Row]:
    """The oracle's rows with the columns that it can't know from a record."""
    files = log_files(root)
    bases = [int(file.name) for file in files]
    rows = []
    for row in read_store(root):
        file = files[sum(base <= row["commitLogOffset"] for base in bases) - 1]
        rows.append(
            row
            | {
                "brokerName": broker_name,
                "sourceFile": str(file),
                "storePath": str(root),
                "compression": COMPRESSIONS[row["sysFlag"] >> 8 & 7] if row["sysFlag"] & 1 else "none",
                "transactionType": TRANSACTIONS[row["sysFlag"] & 0xC],
            }
        )
    return rows


def expanded(rows: Iterable[Row]) -> list[Row]:
    """The rows as `expandBatches` gives them (`MessageDecoder#decodeMessage`, `MessageClientExt`)."""
    out = []
    for row in rows:
        if not row["sysFlag"] & INNER_BATCH:
            out.append(row)
            continue
        body, at, number = row["body"], 0, 0
        while at < len(body):
            inner, size = inner_message(body, at)
            out.append(row | inner | {"queueOffset": row["queueOffset"] + number, "sysFlag": row["sysFlag"] & ~0x1})
            at += size
            number += 1
    return out


def inner_message(body: bytes, at: int) -> tuple[Row, int]:
    """The fields of the inner message at byte `at`, and its size."""
    import struct

    from tests.oracle import parse_props

    size, _, crc, flag, length = struct.unpack_from(">iiiii", body, at)
    properties_at = at + 20 + length
    (count,) = struct.unpack_from(">h", body, properties_at)
    stored = body[properties_at + 2 : properties_at + 2 + count]
    properties = parse_props(stored)
    fields = {
        "flag": flag,
        "bodyCRC": crc,
        "body": body[at + 20 : properties_at],
        "propertiesString": stored,
        "properties": properties,
        "tags": properties.get("TAGS"),
        "keys": properties.get("KEYS"),
        "uniqKey": properties.get("UNIQ_KEY"),
        "compression": "none",
    }
    return fields, size


def offsets(found: pa.Table | Iterable[Row]) -> list[int]:
    """The commitLogOffsets, ascending, repeats kept; corrupt rows have none."""
    if isinstance(found, pa.Table):
        return sorted(value for value in found["commitLogOffset"].to_pylist() if value is not None)
    return sorted(row["commitLogOffset"] for row in found)


def multiset(rows: Iterable[Row]) -> Counter[tuple[int, int]]:
    """How often each message is there; inner messages of a batch share their commitLogOffset."""
    return Counter((row["commitLogOffset"], row["queueOffset"]) for row in rows)


def same_rows(found: Sequence[Row], expected: Sequence[Row]) -> None:
    """Fails, and says where, unless both hold the same rows in any order; compares the columns that `found` has."""
    assert multiset(found) == multiset(expected)
    if not found:
        return
    key = ("commitLogOffset", "queueOffset")
    ours = sorted(found, key=lambda row: [row[name] for name in key])
    theirs = sorted(expected, key=lambda row: [row[name] for name in key])
    for one, other in zip(ours, theirs, strict=True):
        differs = {name: (value, other[name]) for name, value in one.items() if value != other[name]}
        assert not differs, f"at {one['commitLogOffset']}: (found, expected) by column: {differs}"


def read_quietly(store: Store, *args: Any, by_task: bool = False, **options: Any) -> pa.Table:
    """`store.scan(...)` as a table, its warnings left out; `by_task` reads each task on its own, as Spark's workers do."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StoreWarning)
        if not by_task:
            return store.scan(*args, **options).read_all()
        plan = store.plan(*args, **options)
        batches = [batch for task in plan.tasks for batch in read_task(plan.spec, task)]
        return pa.Table.from_batches(batches, plan.schema)


def stored_body(row: Row) -> bytes:
    """The body as it stands in the record."""
    body: bytes = read_parts(row["rawRecord"])["storedBody"]
    return body
