"""Check: an index file by itself. Counts and times of its header, every chain link, every slot (`IndexFile#putKey`).

Whether its entries are keys of the records that they lead to is `verify_keys`' part.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from itertools import islice
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from store_core.files import Files
from store_core.findings import ERROR, WARNING, Finding
from store_core.indexfile import IndexDamage, OpenIndex, link, read_index_entries
from store_core.layout import INDEX_ENTRY, INDEX_HEADER
from store_core.plan import Spec, StoreFacts, VerifyIndex
from store_core.records import read_head

__all__ = ["check_index"]

_SLOT: Final = 4
_SLOTS_READ: Final = 50_000
_MOST_COUNTED: Final = 1_000
_HEAD: Final = INDEX_HEADER.itemsize
_ENTRY: Final = INDEX_ENTRY.itemsize


def check_index(spec: Spec, facts: StoreFacts, piece: VerifyIndex, files: Files) -> Iterator[Finding]:
    """The findings of one index file. Takes 4 bytes of memory per slot, and a batch."""
    index = piece.index
    yield from _times(spec, index, files)
    try:
        newest = np.zeros(index.slots, dtype=np.int32)
        used = yield from _chains(index, files, newest)
        yield from _slots(index, files, newest)
        yield from _counts(facts, index, files, used)
    except IndexDamage as e:
        yield Finding("file-length", index.path, None, None, f"{index.length} bytes, as listed", e.reason)


def _field(name: str) -> tuple[int, int]:
    fields: Any = INDEX_HEADER.fields
    kind, place = fields[name]
    return int(place), int(place) + int(kind.itemsize)


def _times(spec: Spec, index: OpenIndex, files: Files) -> Iterator[Finding]:
    for name, offset, time in (
        ("beginTimestamp", index.begin_phy_offset, index.begin_timestamp),
        ("endTimestamp", index.end_phy_offset, index.end_timestamp),
    ):
        head = read_head(files, spec.log, offset)
        if head is not None and head.store_timestamp != time:
            expected = f"{name} {head.store_timestamp}, the storeTimestamp of the record at {offset}"
            yield Finding("index-header", index.path, *_field(name), expected, f"{name} {time}")


def _chains(index: OpenIndex, files: Files, newest: npt.NDArray[np.int32]) -> Generator[Finding, None, int]:
    """Every link against what the hashes in front of it make it; returns how many slots are used."""
    used = 0
    run: Finding | None = None
    count = 0
    for entries in read_index_entries(files, index):
        hashes = np.maximum(entries.key_hash, 0)
        right = link(hashes % index.slots, int(entries.index_no[0]), newest)
        used += int(np.count_nonzero(right == 0))
        wrong = (entries.prev_index_no != right) | (entries.key_hash < 0) | (entries.time_diff < 0)
        for i in np.flatnonzero(wrong).tolist():
            number, prev = int(entries.index_no[i]), int(entries.prev_index_no[i])
            start = index.entry_position(number)
            if run is not None and run.end == start:
                run, count = Finding(run.kind, run.file, run.start, start + _ENTRY, run.expected, run.found), count + 1
                continue
            if run is not None:
                yield _counted(run, count)
            loops = "; the chain runs in a loop" if prev >= number else ""
            expected = f"prevIndexNo {int(right[i])} in entry {number}"
            found = f"prevIndexNo {prev}{loops}"
            if entries.key_hash[i] < 0 or entries.time_diff[i] < 0:
                expected = f"no negative keyHash or timeDiff in entry {number}"
                found = f"keyHash {int(entries.key_hash[i])}, timeDiff {int(entries.time_diff[i])}"
            run, count = Finding("index-chain", index.path, start, start + _ENTRY, expected, found), 1
    if run is not None:
        yield _counted(run, count)
    return used


def _counted(run: Finding, count: int) -> Finding:
    more = f"; {count} entries like that in a row" if count > 1 else ""
    return Finding(run.kind, run.file, run.start, run.end, run.expected, run.found + more)


def _slots(index: OpenIndex, files: Files, newest: npt.NDArray[np.int32]) -> Iterator[Finding]:
    for first in range(0, index.slots, _SLOTS_READ):
        expected = newest[first : first + _SLOTS_READ]
        place = _HEAD + _SLOT * first
        data = files.read(index.path, place, _SLOT * len(expected))
        stored = np.frombuffer(data.ljust(_SLOT * len(expected), b"\0"), dtype=">i4")
        # a broker takes a number that it has not counted for no entry; one that is too small cuts the newest ones off
        wrong = np.flatnonzero(stored != expected)
        for run in np.split(wrong, np.flatnonzero(np.diff(wrong) > 1) + 1) if len(wrong) else []:
            i, n = int(run[0]), len(run)
            start = place + _SLOT * i
            more = f"; {n} slots like that in a row" if n > 1 else ""
            yield Finding(
                "index-chain",
                index.path,
                start,
                start + _SLOT * n,
                f"entry {int(expected[i])} in slot {first + i}, the newest of its chain",
                f"entry {int(stored[i])}{more}",
            )


def _counts(facts: StoreFacts, index: OpenIndex, files: Files, used: int) -> Iterator[Finding]:
    if index.hash_slot_count not in (used, index.entries):
        expected = f"hashSlotCount {used}, the used slots (or {index.entries}, before 4.7.1)"
        found = f"hashSlotCount {index.hash_slot_count}"
        consequence = "None: a broker counts it up and never reads it."
        yield Finding("index-header", index.path, *_field("hashSlotCount"), expected, found, WARNING, consequence)
    if index.index_count < index.capacity:
        behind = files.read(index.path, index.entry_position(index.index_count), _ENTRY)
        if behind.strip(b"\0"):
            more = sum(1 for _ in islice(_uncounted(index, files), _MOST_COUNTED))
            severity = WARNING if facts.abort else ERROR
            yield Finding(
                "index-header",
                index.path,
                *_field("indexCount"),
                f"indexCount {index.index_count + more} or more: entries stand there up to {index.entries + more} at least",
                f"indexCount {index.index_count}",
                severity,
            )


def _uncounted(index: OpenIndex, files: Files) -> Iterator[int]:
    number = index.index_count
    while number < index.capacity and files.read(index.path, index.entry_position(number), _ENTRY).strip(b"\0"):
        yield number
        number += 1
