"""What a damaged commitlog does to a read, counted: every cut, every flipped bit. `python -m tests.reliability` prints it.

Each case damages one place of a small store, reads it, mends it again, and puts what came out into one of these classes;
anything else is a failure of the reader.
"""

from __future__ import annotations

import random
import struct
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from store_core import CorruptStoreError, StoreWarning, open_store, read_task
from tests.core.rows import CORRUPT, full_rows, rows_of
from tests.oracle import Row, log_files
from tests.synthetic import Built, Message, build_store

__all__ = [
    "DETECTED",
    "REPORTED",
    "Outcome",
    "Tally",
    "classify",
    "cut_everywhere",
    "flip_bits",
    "header_fields",
    "look",
    "sample_store",
    "summarize",
]

REPORTED = "rest exact, damage reported"
TAIL = "exact prefix, torn tail reported"
PREFIX = "exact prefix, cut at a record's end: nothing to see"
SAME = "all rows exact"
DIFFERS = "undetected, row differs in"
DETECTED = (REPORTED, TAIL, SAME)
EXTRA = ["compression", "transactionType", "rawRecord"]
CUT_COLUMNS = ["commitLogOffset", "queueOffset", "storeSize", "uniqKey", "body", CORRUPT]
FOLLOWING = {
    # what a wrong field makes wrong too
    "sysFlag": {"sysFlag", "compression", "transactionType", "body"},
    "storeHost": {"storeHost", "offsetMsgId"},
    "properties": {"properties", "keys", "tags", "uniqKey"},
}
HEADER = (
    ("storeSize", 4),
    ("magicCode", 4),
    ("bodyCRC", 4),
    ("queueId", 4),
    ("flag", 4),
    ("queueOffset", 8),
    ("commitLogOffset", 8),
    ("sysFlag", 4),
    ("bornTimestamp", 8),
    ("bornHost", 0),
    ("storeTimestamp", 8),
    ("storeHost", 0),
    ("reconsumeTimes", 4),
    ("preparedTransactionOffset", 8),
    ("bodyLength", 4),
)


@dataclass
class Outcome:
    """What one read gave: rows, corrupt ranges (file name, start, end), warnings; or the error that it ended in."""

    rows: list[Row] = field(default_factory=list)
    corrupt: list[tuple[str, int, int]] = field(default_factory=list)
    warned: list[str] = field(default_factory=list)
    error: CorruptStoreError | None = None

    @property
    def reported(self) -> bool:
        return bool(self.corrupt or self.warned or self.error)


@dataclass
class Tally:
    """Classes, and how many cases came to each; by the field that was hit, where there is one."""

    classes: Counter[tuple[str, str]] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def add(self, name: str, kind: str, what: str) -> None:
        self.classes[name, kind] += 1
        if kind.startswith("FAILED") and len(self.failures) < 20:
            self.failures.append(f"{what}: {kind}")

    def __str__(self) -> str:
        total = sum(self.classes.values())
        lines = [f"{total} cases, {sum(n for (_, kind), n in self.classes.items() if kind.startswith('FAILED'))} failures"]
        return "\n".join([*lines, *(f"  {name:28}{kind:70}{n:7}" for (name, kind), n in sorted(self.classes.items()))])


def look(root: Path, by_task: bool = False, **options: Any) -> Outcome:
    """Reads all of a store. Errors other than CorruptStoreError come through: they are never right."""
    seen = Outcome()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        store = open_store(root)
        try:
            if by_task:
                plan = store.plan(extraColumns=EXTRA, **options)
                batches = [batch for task in plan.tasks for batch in read_task(plan.spec, task)]
            else:
                batches = list(store.scan(extraColumns=EXTRA, **options))
        except CorruptStoreError as e:
            seen.error = e
            batches = []
        for batch in batches:
            for row in rows_of(batch):
                damaged = row.pop(CORRUPT, None)
                if damaged is None:
                    seen.rows.append(row)
                else:
                    # of bytes that no file holds there is nothing to show
                    assert damaged["raw"] is None or len(damaged["raw"]) == damaged["end"] - damaged["start"]
                    seen.corrupt.append((Path(damaged["file"]).name, damaged["start"], damaged["end"]))
    assert all(issubclass(w.category, StoreWarning) for w in caught), [str(w.message) for w in caught]
    seen.warned = [str(w.message) for w in caught]
    return seen


def sample_messages(rng: random.Random, count: int) -> list[Message]:
    """Every kind of record: V1 and V2, IPv4 and IPv6, plain and compressed, with and without body and properties."""
    made = []
    for number in range(count):
        kind = number % 8
        made.append(
            Message(
                topic="T" * 130 if kind == 3 else "Orders",
                queueId=number % 2,
                body=b"" if kind == 1 else rng.randbytes(rng.randrange(20, 90)),
                properties=() if kind == 2 else (("UNIQ_KEY", f"U{number:04}"), ("KEYS", f"k{number} x"), ("TAGS", "A")),
                bornHost="[2001:db8::1]:40000" if kind in (4, 5) else "10.0.0.1:40000",
                storeHost="[::1]:10911" if kind in (5, 6) else "192.168.1.2:10911",
                compression={0: None, 6: "zlib", 7: "lz4"}.get(kind),
                storeTimestamp=1_735_901_092_000 + number,
            )
        )
    return made


def sample_store(root: Path, count: int = 64, seed: int = 1, **options: Any) -> Built:
    sizes = {"mappedFileSizeCommitLog": 4096} | options
    return build_store(root, sample_messages(random.Random(seed), count), write_queues=False, write_index=False, **sizes)


# --- what came out -------------------------------------------------------------------------------------------------------


def comparable(row: Row) -> Row:
    return {name: value for name, value in row.items() if name not in ("brokerName", "rawRecord")}


def classify(seen: Outcome, truth: list[Row], hit: int | None, part: str | None = None) -> str:
    """The class of what was seen, where the record at `hit` was damaged in the field `part`."""
    found = {row["commitLogOffset"]: row for row in seen.rows}
    if len(found) < len(seen.rows):
        return "FAILED: a row twice"
    expected = {row["commitLogOffset"]: row for row in truth}
    if set(found) - set(expected):
        return f"FAILED: rows out of nowhere at {sorted(set(found) - set(expected))[:3]}"
    lost = set(expected) - set(found)
    names = [name for name in comparable(next(iter(found.values()), {})) if truth and name in truth[0]]
    wrong = {
        offset: {name for name in names if found[offset][name] != expected[offset][name]}
        for offset in found
        if any(found[offset][name] != expected[offset][name] for name in names)
    }
    if set(wrong) - {hit}:
        return f"FAILED: other rows differ at {sorted(set(wrong) - {hit})[:3]}"
    if lost - {hit}:
        return f"FAILED: other rows are lost at {sorted(lost - {hit})[:3]}"
    if lost:
        return (REPORTED if seen.corrupt else TAIL) if seen.reported else "FAILED: a row lost without a word"
    if wrong and hit is not None:
        allowed = FOLLOWING.get(part or "", {part})
        extra = wrong[hit] - allowed
        return f"FAILED: {part} makes {sorted(extra)} differ" if extra else f"{DIFFERS} {part} alone"
    return REPORTED if seen.corrupt else SAME


# --- damage --------------------------------------------------------------------------------------------------------------


def header_fields(record: bytes) -> list[tuple[str, int, int]]:
    """(name, first byte, size) of all fields of a record but body, topic and properties themselves."""
    (flags,) = struct.unpack_from(">i", record, 36)
    at, fields = 0, []
    for name, size in HEADER:
        size = size or (20 if flags & (0x10 if name == "bornHost" else 0x20) else 8)
        fields.append((name, at, size))
        at += size
    (body,) = struct.unpack_from(">i", record, at - 4)
    width = 2 if record[7] == 0xAB else 1
    topic_at = at + body
    topic = int.from_bytes(record[topic_at : topic_at + width], "big")
    return [*fields, ("topicLength", topic_at, width), ("propertiesLength", topic_at + width + topic, 2)]


class Flipped:
    """A file with one bit flipped while in the `with` block."""

    def __init__(self, file: Path, byte: int, bit: int) -> None:
        self.file, self.byte, self.mask = file, byte, 1 << bit

    def __enter__(self) -> None:
        self.flip()

    def __exit__(self, *_: object) -> None:
        self.flip()

    def flip(self) -> None:
        with self.file.open("r+b") as out:
            out.seek(self.byte)
            (old,) = out.read(1)
            out.seek(self.byte)
            out.write(bytes([old ^ self.mask]))


def place(root: Path, offset: int) -> tuple[Path, int]:
    """The file that holds a commitLogOffset, and the byte in it."""
    file = [file for file in log_files(root) if int(file.name) <= offset][-1]
    return file, offset - int(file.name)


def flip_bits(
    root: Path, fields: dict[int, list[tuple[str, int, int]]], truth: list[Row], step: int = 1, **options: Any
) -> Tally:
    """Flips every `step`-th bit of the named fields of the records at these commitLogOffsets."""
    tally = Tally()
    options = {"mode": "PERMISSIVE"} | options
    for offset, parts in fields.items():
        file, start = place(root, offset)
        for name, first, size in parts:
            for bit in range((first + offset) % step, 8 * size, step):
                with Flipped(file, start + first + bit // 8, bit % 8):
                    kind = classify(look(root, **options), truth, offset, name)
                    tally.add(name, kind, f"record {offset}, bit {bit} of {name}")
    return tally


def cut_everywhere(root: Path, file: Path, truth: list[Row], last: bool, step: int = 1, **options: Any) -> Tally:
    """Cuts a log file at every `step`-th byte."""
    tally = Tally()
    whole = file.read_bytes()
    base = int(file.name)
    name = "last file" if last else "middle file"
    ends = {0, *(row["commitLogOffset"] + row["storeSize"] - base for row in truth)}
    data_end = max(end for end in ends if end <= len(whole))
    for size in range(0, len(whole), step):
        file.write_bytes(whole[:size])
        expected = [
            row
            for row in truth
            if not base <= row["commitLogOffset"] < base + len(whole)
            or row["commitLogOffset"] + row["storeSize"] <= base + size
        ]
        seen = look(root, **({"mode": "PERMISSIVE", "columns": CUT_COLUMNS} | options))
        kind = classify(seen, expected, None)
        if kind in (SAME, REPORTED):
            # the first bytes of a record's size are zeros, as what lies behind a clean log's end
            bare = size in ends or not whole[max(end for end in ends if end <= size) : size].strip(b"\0")
            kind = cut_class(seen, size, bare, data_end, last)
        tally.add(name, kind, f"{name} {file.name} cut to {size}")
    file.write_bytes(whole)
    return tally


def cut_class(seen: Outcome, size: int, bare: bool, data_end: int, last: bool) -> str:
    if last and size >= data_end:
        return f"FAILED: reported {seen.warned}" if seen.reported and size > data_end + 8 else SAME
    if last and bare:
        return PREFIX if not seen.reported else "FAILED: a report of nothing"
    if not seen.reported:
        return "FAILED: rows lost without a word"
    return TAIL if last else REPORTED


def blank_fields(root: Path) -> Iterator[tuple[int, list[tuple[str, int, int]]]]:
    """The blank that closes each file but the last."""
    rows = full_rows(root)
    for file, after in zip(log_files(root), log_files(root)[1:], strict=False):
        ends = [r["commitLogOffset"] + r["storeSize"] for r in rows if r["commitLogOffset"] < int(after.name)]
        yield ends[-1] if file else 0, [("blank size", 0, 4), ("blank magic", 4, 4)]


def body_fields(row: Row, record: bytes) -> list[tuple[str, int, int]]:
    """Body, topic and properties of a record."""
    fields = {name: (at, size) for name, at, size in header_fields(record)}
    body_at = sum(fields["bodyLength"])
    topic_at = fields["topicLength"][0]
    properties_at = sum(fields["propertiesLength"])
    return [
        ("body", body_at, topic_at - body_at),
        ("topic", topic_at + fields["topicLength"][1], fields["propertiesLength"][0] - topic_at - fields["topicLength"][1]),
        ("properties", properties_at, len(record) - properties_at),
    ]


def summarize() -> str:
    """All counts, in words, for `docs/reliability.md`."""
    told = []
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "cuts"
        sample_store(root)
        truth = full_rows(root)
        files = log_files(root)
        told.append(f"cut at every byte, {len(truth)} messages:\n{cut_everywhere(root, files[-1], truth, True)}")
        told.append(str(cut_everywhere(root, files[1], truth, False)))

        root = Path(folder) / "bits"
        sample_store(root, 16, mappedFileSizeCommitLog=2048)
        truth = full_rows(root)
        heads = {row["commitLogOffset"]: header_fields(row["rawRecord"]) for row in truth}
        told.append(f"every bit of every record header, {len(truth)} messages:\n{flip_bits(root, heads, truth)}")
        told.append(f"the same with verifyCrc:\n{flip_bits(root, heads, truth, verifyCrc=True)}")
        told.append(f"every bit of every blank's header:\n{flip_bits(root, dict(blank_fields(root)), truth)}")
        bodies = {row["commitLogOffset"]: body_fields(row, row["rawRecord"]) for row in truth[:8]}
        told.append(f"every bit of bodies, topics, properties of 8 records:\n{flip_bits(root, bodies, truth)}")
        told.append(f"the same with verifyCrc:\n{flip_bits(root, bodies, truth, verifyCrc=True)}")
    return "\n\n".join(told)


if __name__ == "__main__":
    print(summarize())
