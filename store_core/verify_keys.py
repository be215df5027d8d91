"""Check: are each record's keys in the index, and is each index entry one of a record's keys? Records of a batch against the
entries that lead into its part of the log.

Index entries ascend by commitLogOffset over all files, so the entries of a log range are a slice of them, found by search.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from store_core.decode import Context, Parts, columns
from store_core.files import Files
from store_core.findings import ERROR, WARNING, Finding
from store_core.indexfile import IndexDamage, IndexEntries, OpenIndex, read_index_entries
from store_core.indextable import KeyStrings, key_strings
from store_core.layout import INDEX_ENTRY, TRANSACTION_MASK, TRANSACTION_ROLLBACK
from store_core.plan import Spec, StoreFacts
from store_core.records import read_head
from store_core.segments import Segment

__all__ = ["KeyCheck"]

Int64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_ENTRY: Final = INDEX_ENTRY.itemsize
_AROUND: Final = 4
"""A search looks at the middle one of so many entries on each side: a damaged entry must not lead it astray."""
_INT_MAX: Final = (1 << 31) - 1
_TAG: Final = 2
_MOST_PAIRED: Final = 1_000
"""With more wrong entries than this in a batch, they are not told from keys that are missing."""


@dataclass
class _Run:
    """Keys that are not indexed, of records [start, end) of a segment, all `covered` by an index file or none."""

    segment: Segment
    start: int
    end: int
    keys: int
    messages: int
    first: str
    covered: bool


@dataclass(frozen=True, slots=True)
class _Entries:
    """Entries of one file: as stored, and what the file says of their times."""

    index: OpenIndex
    entries: IndexEntries
    times: bool
    """Whether beginTimestamp is that of the first record, so that timeDiffs can be checked."""


class KeyCheck:
    """Over the batches of one log range [start, stop). Ranges side by side look at every entry once."""

    def __init__(self, spec: Spec, facts: StoreFacts, files: Files, start: int) -> None:
        self._spec, self._facts, self._files = spec, facts, files
        self._at = start
        self._open: _Run | None = None
        self._times = {f.path: self._begins(f) for f in facts.indexes}

    def _begins(self, index: OpenIndex) -> bool:
        head = read_head(self._files, self._spec.log, index.begin_phy_offset)
        return head is not None and head.store_timestamp == index.begin_timestamp

    # --- which entries

    def _first(self, index: OpenIndex, offset: int) -> int:
        """The number of the first entry of a file that leads to `offset` or behind it."""
        if offset <= index.begin_phy_offset:
            return 1
        if offset > index.end_phy_offset:
            return index.entries + 1

        def place(number: int) -> int:
            low, high = max(number - _AROUND, 1), min(number + _AROUND, index.entries)
            found = next(iter(read_index_entries(self._files, index, low, high + 1))).commit_log_offset
            if (found[1:] >= found[:-1]).all():
                return int(found[number - low])
            return int(np.sort(found)[number - low])

        return bisect_left(range(1, index.entries + 1), offset, key=place) + 1

    def _slice(self, start: int, stop: int) -> Iterator[_Entries]:
        for index in self._facts.indexes:
            if index.end_phy_offset < start or index.begin_phy_offset >= stop:
                continue
            try:
                for part in read_index_entries(self._files, index, self._first(index, start), self._first(index, stop)):
                    yield _Entries(index, part, self._times[index.path])
            except IndexDamage:
                return  # `verify_index` reports it

    # --- the check

    def findings(self, segment: Segment, parts: Parts, stop: int, gaps: Sequence[tuple[int, int]]) -> Iterator[Finding]:
        """What is wrong with the keys of these records; entries are looked at up to commitLogOffset `stop`. `gaps`: parts of
        the log that are reported as damaged, so that entries that lead there need not be.
        """
        if not self._facts.indexes:
            return
        start, self._at = self._at, stop
        keep = np.flatnonzero(parts.heads["sysFlag"] & TRANSACTION_MASK != TRANSACTION_ROLLBACK)
        some = parts if len(keep) == len(parts) else parts.take(keep)
        places = some.header("commitLogOffset").astype(np.int64)
        made, _ = columns(some, ("topic", "uniqKey", "keys", "tags"), Context())
        strings = key_strings(made["topic"], made["uniqKey"], made["keys"], made["tags"])
        found = list(self._slice(start, stop))
        used = np.zeros(len(strings.row), dtype=bool)
        faults: list[tuple[_Entries, int]] = []
        if found:
            offsets = np.concatenate([f.entries.commit_log_offset for f in found])
            hashes = np.concatenate([f.entries.key_hash for f in found])
            matched, used = _matched(places, strings, offsets, hashes)
            ends = np.cumsum([len(f.entries) for f in found])
            times = some.header("storeTimestamp").astype(np.int64)
            for n, part in enumerate(found):
                own = slice(int(ends[n]) - len(part.entries), int(ends[n]))
                yield from self._time_faults(part, matched[own], places, times)
                faults += [(part, i) for i in np.flatnonzero(~matched[own]).tolist()]
        missing = np.flatnonzero(~used & (strings.kind != _TAG))
        left = dict.fromkeys(missing.tolist())
        yield from self._entry_faults(faults, places, strings, left, made["topic"], gaps)
        if left:
            yield from self._missing(segment, some, places, strings, list(left), made["topic"])

    def end(self, stop: int, gaps: Sequence[tuple[int, int]]) -> Iterator[Finding]:
        """The entries that lead behind the range's last record, and what was still open."""
        if self._open is not None:
            yield self._missing_finding(self._open)
            self._open = None
        if self._facts.indexes and self._at < stop:
            empty: Any = np.empty(0, dtype=np.int64)
            faults = [(part, i) for part in self._slice(self._at, stop) for i in range(len(part.entries))]
            yield from self._entry_faults(faults, empty, None, {}, None, gaps)

    def _time_faults(self, part: _Entries, matched: Mask, places: Int64, times: Int64) -> Iterator[Finding]:
        entries, index = part.entries, part.index
        if not part.times or not matched.any():
            return
        row = np.minimum(np.searchsorted(places, entries.commit_log_offset), len(places) - 1)
        elapsed = times[row] - index.begin_timestamp
        right = np.clip(np.where(elapsed < 0, 0, elapsed // 1000), 0, _INT_MAX)
        wrong = matched & (entries.time_diff != right) & (entries.index_no > 1)
        for run in _runs(np.flatnonzero(wrong)):
            first, count = int(run[0]), len(run)
            start = index.entry_position(int(entries.index_no[first]))
            yield Finding(
                "index-time",
                index.path,
                start,
                start + _ENTRY * count,
                f"timeDiff {int(right[first])} s in entry {int(entries.index_no[first])}",
                f"timeDiff {int(entries.time_diff[first])} s{_more(count)}",
            )

    def _entry_faults(
        self,
        faults: list[tuple[_Entries, int]],
        places: Int64,
        strings: KeyStrings | None,
        left: dict[int, None],
        topics: Any,
        gaps: Sequence[tuple[int, int]],
    ) -> Iterator[Finding]:
        """Entries that are none of their record's keys. A key in whose place such an entry stands is taken out of `left`."""
        held: list[Finding] = []
        for part, i in faults:
            entries, index = part.entries, part.index
            offset, wanted = int(entries.commit_log_offset[i]), int(entries.key_hash[i])
            if any(start <= offset < stop for start, stop in gaps):
                continue
            number = int(entries.index_no[i])
            start = index.entry_position(number)
            there = bool(len(places)) and offset in places
            expected, found = "a key of that record", f"entry {number}: keyHash {wanted}, commitLogOffset {offset}"
            kind, severity = "index-key", ERROR
            if not there:
                kind, found = "index-nowhere", f"entry {number} leads to commitLogOffset {offset}, where no record stands"
                expected = "a record"
            if strings is not None:
                pair = places[strings.row] == offset
                if there and (pair & (strings.key_hash == wanted)).any():
                    kind, severity, expected = "index-doubled", WARNING, "each key of a record once"
                elif len(faults) <= _MOST_PAIRED and (key := self._in_place_of(part, i, places, strings, left)) is not None:
                    del left[key]
                    name = f"{topics[int(strings.row[key])].as_py()}#{strings.key[key].as_py()}"
                    expected = f"the key {name!r} of the record at {int(places[strings.row[key]])}"
            before = held[-1] if held else None
            if before is not None and (before.kind, before.file, before.end) == (kind, index.path, start):
                held[-1] = Finding(kind, index.path, before.start, start + _ENTRY, before.expected, before.found, severity)
                continue
            held.append(Finding(kind, index.path, start, start + _ENTRY, expected, found, severity))
        for finding in held:
            count = ((finding.end or 0) - (finding.start or 0)) // _ENTRY
            text = finding.found + _more(count)
            yield Finding(finding.kind, finding.file, finding.start, finding.end, finding.expected, text, finding.severity)

    def _in_place_of(self, part: _Entries, i: int, places: Int64, strings: KeyStrings, left: dict[int, None]) -> int | None:
        """The first key that is left of a record between those of the entries around."""
        around = part.entries.commit_log_offset
        sound = np.isin(around, places)
        sound[i] = False
        before, after = np.flatnonzero(sound[:i]), np.flatnonzero(sound[i + 1 :])
        low = int(around[before[-1]]) if len(before) else -1
        high = int(around[i + 1 + after[0]]) if len(after) else 1 << 62
        return next((key for key in left if low <= int(places[strings.row[key]]) <= high), None)

    def _missing(
        self, segment: Segment, some: Parts, places: Int64, strings: KeyStrings, left: list[int], topics: Any
    ) -> Iterator[Finding]:
        rows = strings.row[left]
        sizes = some.store_size()
        covered = np.zeros(len(left), dtype=bool)
        for index in self._facts.indexes:
            covered |= (places[rows] > index.begin_phy_offset) & (places[rows] < index.end_phy_offset)
        for key, row, inside in zip(left, rows.tolist(), covered.tolist(), strict=True):
            if not inside and self._facts.unread_index:
                continue
            start, end = int(places[row]), int(places[row] + sizes[row])
            run = self._open
            if (
                run is not None
                and run.covered == inside
                and run.segment.path == segment.path
                and not self._between(run.end, start)
            ):
                run.messages += start >= run.end
                run.keys, run.end = run.keys + 1, end
                continue
            if run is not None:
                yield self._missing_finding(run)
            name = f"{topics[row].as_py()}#{strings.key[key].as_py()}"
            self._open = _Run(segment, start, end, 1, 1, name, inside)

    def _between(self, start: int, stop: int) -> bool:
        """Whether an index entry leads to [start, stop): then keys on both sides are two findings."""
        return start < stop and any(len(part.entries) for part in self._slice(start, stop))

    def _missing_finding(self, run: _Run) -> Finding:
        base = run.segment.base_offset
        found = (
            f"{run.keys} key{'s' * (run.keys > 1)} of {run.messages} message{'s' * (run.messages > 1)} are in no index file, "
            f"the first {run.first!r} of the record at {run.start}"
        )
        if run.covered:
            expected = "an entry for each key, as index files before and behind are there"
            return Finding("index-missing", run.segment.path, run.start - base, run.end - base, expected, found)
        last = max((f.end_phy_offset for f in self._facts.indexes), default=-1)
        where = "behind the last index file" if run.start >= last else "between index files, or in front of the first"
        expected = f"an entry for each key; the messages are {where}"
        return Finding("index-missing", run.segment.path, run.start - base, run.end - base, expected, found, WARNING)


def _matched(places: Int64, strings: KeyStrings, offsets: Int64, hashes: npt.NDArray[np.int32]) -> tuple[Mask, Mask]:
    """(which entries are a key of their record, which keys have an entry); equal pairs are counted off against each other."""
    at = np.searchsorted(places, offsets)
    at = np.minimum(at, max(len(places) - 1, 0))
    row = np.where(places[at] == offsets, at, -1) if len(places) else np.full(len(offsets), -1)
    entry = row << 32 | hashes.astype(np.int64)
    key = strings.row << 32 | strings.key_hash.astype(np.int64)
    _, ids = np.unique(np.concatenate([entry, key]), return_inverse=True)
    entry_turn, key_turn = _turns(ids[: len(entry)]), _turns(ids[len(entry) :])
    most = int(max(entry_turn.max(initial=0), key_turn.max(initial=0))) + 1
    entries = ids[: len(entry)] * most + entry_turn
    keys = ids[len(entry) :] * most + key_turn
    return np.isin(entries, keys) & (row >= 0), np.isin(keys, entries)


def _turns(ids: Int64) -> Int64:
    """For each one, how many equal ones stand before it."""
    order = np.argsort(ids, kind="stable")
    ordered = ids[order]
    turn = np.empty_like(order)
    turn[order] = np.arange(len(order)) - np.searchsorted(ordered, ordered)
    return turn


def _runs(numbers: npt.NDArray[np.intp]) -> list[npt.NDArray[np.intp]]:
    """Numbers that follow each other, together."""
    return np.split(numbers, np.flatnonzero(np.diff(numbers) > 1) + 1) if len(numbers) else []


def _more(count: int) -> str:
    return f"; {count} entries like that in a row" if count > 1 else ""
