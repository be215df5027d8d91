"""A slow, plain second opinion on what a store holds, written from the format alone.

Shares no code with `store_core`: `struct`, one record at a time, no buffers, no vectors. Its rows have the keys of the golden
`*.messages.jsonl` files (what RocketMQ's own `MessageDecoder` makes of a record; times in ms), and three more: `body` (bytes,
decompressed), `propertiesString` (bytes, as stored) and `rawRecord` (bytes).
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa

__all__ = [
    "Row",
    "Where",
    "dangling_entries",
    "data_end",
    "key_tokens",
    "log_files",
    "matches",
    "parse_props",
    "read_parts",
    "read_record",
    "read_store",
]

Row = dict[str, Any]
Where = Iterable[tuple[str, str, Any]]

MAGIC_V1, MAGIC_V2, MAGIC_BLANK = 0xDAA320A7, 0xDAA320AB, 0xCBD43194
SMALLEST_RECORD = 91
DLEDGER_HEADER = 48
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def log_files(root: Path) -> list[Path]:
    """The log's files in log order: of `commitlog`, of the `commitlog-*` of a multi-path store, of DLedger's `data`."""
    folders = [root / "commitlog", *root.glob("commitlog-*"), *root.glob("dledger-*/data")]
    files = [file for folder in folders if folder.is_dir() for file in folder.iterdir()]
    return sorted((file for file in files if len(file.name) == 20 and file.name.isdigit()), key=lambda file: int(file.name))


def read_store(root: Path) -> list[Row]:
    """Every record of the log in log order, up to where the data ends."""
    return [read_record(record) for _, record in walk(root)]


def data_end(root: Path) -> int:
    """The commitLogOffset just behind the last record; the start of the log (or 0) where there is none."""
    files = log_files(root)
    end = int(files[0].name) if files else 0
    for offset, record in walk(root):
        end = offset + len(record)
    return end


def dangling_entries(root: Path) -> list[tuple[str, int]]:
    """(file, commitLogOffset) of the queue entries that lead behind the log's end.

    A broker whose log is shorter than its queues cuts these in memory only: it takes such entries for its own once the log is
    long enough.
    """
    end = data_end(root)
    found = []
    for file in sorted((root / "consumequeue").rglob("*")):
        if file.is_file():
            entries = struct.iter_unpack(">qiq", file.read_bytes())
            found += [(file.relative_to(root).as_posix(), offset) for offset, size, _ in entries if size and offset >= end]
    return found


def walk(root: Path) -> Iterator[tuple[int, bytes]]:
    """(commitLogOffset, record) for each record.

    The data ends where a broker's recovery ends it: at the first thing that is neither a record nor the blank that closes a
    file. A record that does not state its own place is a leftover of an old buffer (`writeWithoutMmap`), and ends it too.
    """
    next_file = None
    for file in log_files(root):
        data = file.read_bytes()
        base = int(file.name)
        if next_file not in (None, base):
            return
        dledger = file.parent.name == "data"
        position = 0
        while True:
            found = read_dledger_entry(data, position) if dledger else read_frame(data, position)
            if found is None:
                return
            start, size = found
            if size == 0:
                break
            record = data[start : start + size]
            if struct.unpack_from(">q", record, 28)[0] != base + start or not is_whole(record):
                return
            yield base + start, record
            position = start + size
        next_file = base + len(data)


def read_frame(data: bytes, position: int) -> tuple[int, int] | None:
    """(start, size) of the record at `position`; size 0 for the blank at a file's end; None where the data ends."""
    if len(data) - position < 8:
        return None
    size, magic = struct.unpack_from(">iI", data, position)
    if magic == MAGIC_BLANK:
        return position, 0
    if magic not in (MAGIC_V1, MAGIC_V2) or size < SMALLEST_RECORD or size > len(data) - position:
        return None
    return position, size


def read_dledger_entry(data: bytes, position: int) -> tuple[int, int] | None:
    """As `read_frame`, for a record behind a DLedger header."""
    if len(data) - position < 8:
        return None
    magic, size = struct.unpack_from(">ii", data, position)
    if magic == -1:
        return position, 0
    if magic != 1 or size < DLEDGER_HEADER or size > len(data) - position:
        return None
    return read_frame(data[: position + size], position + DLEDGER_HEADER)


def is_whole(record: bytes) -> bool:
    """Whether the parts of a record fit its total size, and its body its CRC (`CommitLog#checkMessageAndReturnSize`)."""
    try:
        row = read_parts(record)
    except struct.error:
        return False
    stored = row["storedBody"]
    return row["partsSize"] == len(record) and (not stored or zlib.crc32(stored) & 0x7FFFFFFF == row["bodyCRC"])


def read_parts(record: bytes) -> Row:
    """The fields of a record as they are stored, one after the other."""
    position = 0

    def take(fmt: str) -> int:
        nonlocal position
        (value,) = struct.unpack_from(">" + fmt, record, position)
        position += struct.calcsize(">" + fmt)
        return int(value)

    def take_bytes(length: int) -> bytes:
        nonlocal position
        if length < 0 or position + length > len(record):
            raise struct.error("a length that leads out of the record")
        position += length
        return record[position - length : position]

    row: Row = {"storeSize": take("i"), "magic": take("I"), "bodyCRC": take("i"), "queueId": take("i"), "flag": take("i")}
    row |= {"queueOffset": take("q"), "commitLogOffset": take("q")}
    row["sysFlag"] = flags = take("i")
    row["bornTimestamp"] = take("q")
    row["bornAddress"], row["bornPort"] = take_bytes(16 if flags & 0x10 else 4), take("i")
    row["storeTimestamp"] = take("q")
    row["storeAddress"], row["storePort"] = take_bytes(16 if flags & 0x20 else 4), take("i")
    row |= {"reconsumeTimes": take("i"), "preparedTransactionOffset": take("q")}
    row["storedBody"] = take_bytes(take("i"))
    row["topic"] = take_bytes(take("h" if row["magic"] == MAGIC_V2 else "b")).decode("utf-8", "replace")
    row["propertiesString"] = take_bytes(take("h"))
    row["partsSize"] = position
    return row


def read_record(record: bytes) -> Row:
    """One record as a row."""
    parts = read_parts(record)
    properties = parse_props(parts["propertiesString"])
    body = parts["storedBody"]
    if parts["sysFlag"] & 1:
        body = decompress(body, (parts["sysFlag"] >> 8) & 7)
    id_bytes = parts["storeAddress"] + struct.pack(">iq", parts["storePort"], parts["commitLogOffset"])
    plain = (
        "topic queueId queueOffset commitLogOffset storeSize flag sysFlag bodyCRC bornTimestamp storeTimestamp "
        "reconsumeTimes preparedTransactionOffset propertiesString"
    )
    return {name: parts[name] for name in plain.split()} | {
        "bornHost": host_text(parts["bornAddress"], parts["bornPort"]),
        "storeHost": host_text(parts["storeAddress"], parts["storePort"]),
        "tags": properties.get("TAGS"),
        "keys": properties.get("KEYS"),
        "uniqKey": properties.get("UNIQ_KEY"),
        "offsetMsgId": id_bytes.hex().upper(),
        "body": body,
        "bodyLength": len(body),
        "bodySha256": hashlib.sha256(body).hexdigest(),
        "properties": properties,
        "rawRecord": record,
    }


def host_text(address: bytes, port: int) -> str:
    """As Java prints it: an IPv6 address has all its eight groups, without leading zeros."""
    if len(address) == 4:
        return ".".join(str(b) for b in address) + f":{port}"
    groups = struct.unpack(">8H", address)
    return "[" + ":".join(f"{group:x}" for group in groups) + f"]:{port}"


def decompress(body: bytes, kind: int) -> bytes:
    """By the three compression bits of sysFlag: 1 is LZ4, 2 is ZSTD, 3 and the old 0 are ZLIB."""
    if kind in (0, 3):
        return zlib.decompress(body)
    if kind not in (1, 2):
        raise ValueError(f"sysFlag names compression type {kind}, which no broker writes")
    with pa.CompressedInputStream(pa.BufferReader(body), "lz4" if kind == 1 else "zstd") as stream:
        return bytes(stream.read())


def parse_props(stored: bytes) -> dict[str, str]:
    """`MessageDecoder#string2messageProperties`: a later name wins, a pair without name or value is dropped."""
    properties = {}
    for pair in stored.decode("utf-8", "replace").split("\x02"):
        name, separator, value = pair.partition("\x01")
        if name and separator and value:
            properties[name] = value
    return properties


def key_tokens(row: Row) -> list[str]:
    """The keys of a message as the index sees them: KEYS cut at each space, empty pieces dropped, repeats kept."""
    return [token for token in (row["keys"] or "").split(" ") if token]


COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda a, b: bool(a == b),
    "!=": lambda a, b: bool(a != b),
    "<": lambda a, b: bool(a < b),
    "<=": lambda a, b: bool(a <= b),
    ">": lambda a, b: bool(a > b),
    ">=": lambda a, b: bool(a >= b),
}


def matches(row: Row, where: Where) -> bool:
    """Whether a row passes all of `where`: (column, op, value), ANDed, as SQL's WHERE would.

    Ops: = != < <= > >= in, "is null", "is not null". A null on either side of a comparison never passes. Times compare in ms; a
    datetime (with a zone) is taken as the ms it stands for.
    """
    return all(passes(row[column], op, value) for column, op, value in where)


def passes(found: Any, op: str, value: Any) -> bool:
    if op == "is null":
        return found is None
    if op == "is not null":
        return found is not None
    if op == "in":
        return any(passes(found, "=", one) for one in value)
    if isinstance(value, datetime):
        value = (value - EPOCH) / timedelta(milliseconds=1)
    return found is not None and value is not None and COMPARISONS[op](found, value)
