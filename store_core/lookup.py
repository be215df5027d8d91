"""Key lookups: which commitLogOffsets may hold a key, by the index files and by what they do not cover
(`IndexService#queryOffset`).

Covered is the union of what lies between each usable file's beginPhyOffset and endPhyOffset. The records at these two ends are
covered only where the file before ends with the record that the next one begins with: a full file, or a crash, may have cut a
message's keys apart. A crash leaves holes between files, a running broker a lagging tail; a damaged file is as good as missing.
What is not covered is walked, once per open store, and what was found there is kept as an index of our own.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from store_core.decode import Context, columns
from store_core.files import Files
from store_core.indexfile import Chain, IndexDamage, OpenIndex, Unusable, chain, list_index_files, open_index, verify_index
from store_core.indextable import key_strings
from store_core.options import ReadOptions
from store_core.predicates import Range
from store_core.reading import Found, Gap, read_places, read_range
from store_core.records import read_head, record_at
from store_core.segments import Log

__all__ = [
    "CLOCK_TOLERANCE_MS",
    "HoleKeys",
    "IndexView",
    "Led",
    "ascends",
    "check_records",
    "index_keys",
    "subtract",
    "union",
    "view_index",
]

CLOCK_TOLERANCE_MS: Final = 60_000
"""How far a broker's clock may step back without rows being missed by a time range: times in a log are taken to ascend but for
this.
"""
_KEPT_MOST: Final = 4_000_000
"""Key strings of walked holes that are kept in memory (12 bytes each)."""


@dataclass(frozen=True)
class IndexView:
    """The index of a store as it can be used: `covered` and `holes` are ranges [start, stop) of the log, ascending."""

    files: tuple[OpenIndex, ...]
    covered: tuple[tuple[int, int], ...]
    holes: tuple[tuple[int, int], ...]
    notes: tuple[str, ...]

    inner: tuple[int, ...]
    """For each file, where the record at its beginPhyOffset ends (its last one starts at endPhyOffset)."""

    def without(self, path: str, log: Log, note: str) -> IndexView:
        """The view after a file turned out to be damaged."""
        left = [(f, end) for f, end in zip(self.files, self.inner, strict=True) if f.path != path]
        return _view(left, log, (*self.notes, note))


def view_index(files: Files, root: str | None, log: Log, options: ReadOptions) -> IndexView:
    """Opens the index files, as `index` = trust, verify or ignore says."""
    if root is None or options.index == "ignore" or not len(log):
        why = {"ignore": "index=ignore"}.get(options.index, "no index stands beside a commitlog that was opened alone")
        return _view([], log, (f"index not used: {why}",))
    usable: list[tuple[OpenIndex, int]] = []
    notes: list[str] = []
    for listed in list_index_files(files, root):
        opened = open_index(
            files,
            listed,
            max_hash_slot_num=options.max_hash_slot_num,
            max_index_num=options.max_index_num,
            max_phys=log.max_offset,
        )
        if isinstance(opened, Unusable):
            notes.append(f"index file {opened.path} can't be used, its part of the log is walked: {opened.reason}")
            continue
        if not opened.entries:
            continue
        end = _checked(files, log, opened)
        if isinstance(end, int) and options.index == "verify" and (reason := verify_index(files, opened)):
            end = reason
        if isinstance(end, str):
            notes.append(f"index file {opened.path} can't be used, its part of the log is walked: {end}")
            continue
        usable.append((opened, end))
    if not usable and not notes:
        notes.append("the store has no index files with entries: the log is walked")
    return _view(usable, log, tuple(notes))


def _checked(files: Files, log: Log, opened: OpenIndex) -> int | str:
    """The end of the first indexed record, if the records at both ends are what the header says; else why not."""
    first_end = log.min_offset
    for name, offset, time in (
        ("begin", opened.begin_phy_offset, opened.begin_timestamp),
        ("end", opened.end_phy_offset, opened.end_timestamp),
    ):
        if offset < log.min_offset:  # retention has deleted that part of the log
            continue
        head = read_head(files, log, offset)
        if head is None or head.store_timestamp != time:
            found = "no record" if head is None else f"a record of time {head.store_timestamp}"
            return f"{found} at {name}PhyOffset {offset}, expected one of {name}Timestamp {time}"
        if name == "begin":
            first_end = head.offset + head.size
    return first_end


def _view(usable: list[tuple[OpenIndex, int]], log: Log, notes: tuple[str, ...]) -> IndexView:
    ordered = sorted(usable, key=lambda pair: (pair[0].begin_phy_offset, pair[0].path))
    ranges = [(first_end, _entry_start(log, f.end_phy_offset)) for f, first_end in ordered]
    for (before, _), (after, first_end) in itertools.pairwise(ordered):
        if before.end_phy_offset == after.begin_phy_offset:
            ranges.append((_entry_start(log, after.begin_phy_offset), first_end))
    covered = union(ranges)
    holes = subtract([(log.min_offset, log.max_offset)], covered) if len(log) else []
    files = tuple(f for f, _ in ordered)
    return IndexView(files, tuple(covered), tuple(holes), notes, tuple(first_end for _, first_end in ordered))


def _entry_start(log: Log, offset: int) -> int:
    """Where what belongs to the record at `offset` begins."""
    segment = log.find(offset)
    return offset if segment is None else offset - segment.lead


def ascends(times: Iterable[int]) -> bool:
    """Whether times (ms) of records in log order ascend, but for the clock's tolerance: nothing can be told by them if not.

    A live broker's clock may step back by so much at any time; what was written with allowUnorderedTimes, by any amount.
    """
    highest = None
    for time in times:
        if highest is not None and time < highest - CLOCK_TOLERANCE_MS:
            return False
        highest = time if highest is None else max(highest, time)
    return True


def union(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same bytes as ranges [start, stop) that ascend and do not touch."""
    merged: list[tuple[int, int]] = []
    for start, stop in sorted(r for r in ranges if r[0] < r[1]):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(stop, merged[-1][1]))
        else:
            merged.append((start, stop))
    return merged


def subtract(ranges: Iterable[tuple[int, int]], taken: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """What is left of `ranges` without `taken`; both [start, stop), ascending."""
    left: list[tuple[int, int]] = []
    gone = list(taken)
    for start, stop in ranges:
        for low, high in gone:
            if high <= start or low >= stop:
                continue
            if low > start:
                left.append((start, low))
            start = max(start, high)
        if start < stop:
            left.append((start, stop))
    return left


@dataclass(frozen=True, slots=True)
class Led:
    """What one index file says of one key hash."""

    index: OpenIndex
    key_hash: int
    chain: Chain


def index_keys(files: Files, view: IndexView, hashes: Iterable[int], time: Range) -> tuple[list[Led], list[str]]:
    """Where the index says that any of the key hashes is, and which files were skipped.

    `time`: storeTimestamp in ms. Files without such times, widened by the clock's tolerance, are skipped; no range may be
    asked for where the log's times do not ascend. A hash is not a key: rows have to be checked. Errors: IndexDamage.
    """
    low = None if time.low is None else time.low - CLOCK_TOLERANCE_MS
    high = None if time.high is None else time.high + CLOCK_TOLERANCE_MS
    led: list[Led] = []
    skipped = []
    for opened in view.files:
        if (low is not None and opened.end_timestamp < low) or (high is not None and opened.begin_timestamp > high):
            times = f"[{opened.begin_timestamp}, {opened.end_timestamp}]"
            skipped.append(f"index file {opened.path} skipped: its times {times} don't match")
            continue
        for wanted in hashes:
            found = chain(files, opened, wanted)
            if len(found.commit_log_offset):
                led.append(Led(opened, wanted, found))
    return led, skipped


def check_records(files: Files, log: Log, led: Iterable[Led]) -> None:
    """Reads the records that the index leads to, where the log still has them: each must have a key string of that hash.

    Errors: IndexDamage for an entry that leads to no record, or to one that a broker would not have indexed so.
    """
    entries = [
        (offset, each.key_hash, each.index, number)
        for each in led
        for offset, number in zip(each.chain.commit_log_offset.tolist(), each.chain.index_no.tolist(), strict=True)
        if offset >= log.min_offset
    ]
    heads = {offset: record_at(files, log, offset) for offset in sorted({entry[0] for entry in entries})}
    offsets = np.array([offset for offset, head in heads.items() if head is not None], dtype=np.int64)
    sizes = np.array([head.size for head in heads.values() if head is not None], dtype=np.int64)
    right: set[tuple[int, int]] = set()
    for found in read_places(files, log, offsets, sizes):
        if isinstance(found, tuple):
            made, _ = columns(found[0].parts, ("commitLogOffset", "topic", "uniqKey", "keys", "tags"), Context())
            strings = key_strings(made["topic"], made["uniqKey"], made["keys"], made["tags"])
            places = np.asarray(made["commitLogOffset"])[strings.row]
            right.update(zip(places.tolist(), strings.key_hash.tolist(), strict=True))
    for offset, key_hash, index, number in entries:
        if (offset, key_hash) not in right:
            where = "no record stands" if heads[offset] is None else "the record has no key of that hash"
            reason = f"entry {number}, of keyHash {key_hash}, leads to commitLogOffset {offset}, where {where}"
            raise IndexDamage(reason, index.path, index.entry_position(number))


@dataclass(frozen=True)
class HoleKeys:
    """An index of what no index file covers: key hashes, ascending (int32[n]), and their records' places (int64[n])."""

    hashes: npt.NDArray[np.int32]
    offsets: npt.NDArray[np.int64]

    def find(self, hashes: Iterable[int]) -> set[int]:
        """The commitLogOffsets of any of the key hashes."""
        found: set[int] = set()
        if len(self.hashes):
            for wanted in hashes:
                first, stop = np.searchsorted(self.hashes, (wanted, wanted + 1))
                found.update(self.offsets[first:stop].tolist())
        return found

    @classmethod
    def walk(
        cls, files: Files, log: Log, holes: Iterable[tuple[int, int]], records_until: int, gaps: list[Gap]
    ) -> HoleKeys | None:
        """Walks the holes; gaps that are no records are added to `gaps`. None if there are too many keys to keep."""
        hashes: list[npt.NDArray[np.int32]] = []
        offsets: list[npt.NDArray[np.int64]] = []
        count = 0
        for found in _walk(files, log, holes, records_until):
            if isinstance(found, Gap):
                gaps.append(found)
                continue
            made, _ = columns(found.parts, ("topic", "uniqKey", "keys"), Context())
            strings = key_strings(made["topic"], made["uniqKey"], made["keys"])
            hashes.append(strings.key_hash)
            offsets.append(found.parts.heads["commitLogOffset"].astype(np.int64)[strings.row])
            count += len(strings.row)
            if count > _KEPT_MOST:
                return None
        if not hashes:
            return cls(np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int64))
        all_hashes = np.concatenate(hashes)
        order = np.argsort(all_hashes, kind="stable")
        return cls(all_hashes[order], np.concatenate(offsets)[order])


def _walk(files: Files, log: Log, holes: Iterable[tuple[int, int]], records_until: int) -> Iterator[Found | Gap]:
    for start, stop in holes:
        for segment in log:
            low, high = max(start, segment.base_offset), min(stop, segment.end_offset)
            if low < high:
                behind = segment.base_offset < records_until
                yield from read_range(files, log, segment, low, high, aligned=True, records_behind=behind)
