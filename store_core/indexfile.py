"""IndexFiles: a hash table from keys to places in the commitlog (`IndexService`, `IndexFile`, `IndexHeader`).

A file is a header of 40 bytes, S = maxHashSlotNum slots of 4 bytes, and room for N = maxIndexNum entries of 20 bytes. Slot s
holds the number of the newest entry whose keyHash % S is s, an entry holds the number of the one before it, 0 ends the chain.
Entries are numbered from 1, so there are at most N - 1. Neither S nor N stands in the file: `open_index` finds and proves
them.

Nothing here trusts a file. What can't be what RocketMQ wrote is an `Unusable` or an `IndexDamage`, and the caller reads the
commitlog instead. A file's entries are those of messages from beginPhyOffset to endPhyOffset; of its first message the older
file may hold some, of its last message the newer file, or none: a broker that was killed may have stopped between two keys.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from store_core.errors import StoreError
from store_core.files import Files
from store_core.layout import INDEX_ENTRY, INDEX_HEADER

__all__ = [
    "DEFAULT_MAX_HASH_SLOT_NUM",
    "DEFAULT_MAX_INDEX_NUM",
    "Chain",
    "IndexDamage",
    "IndexEntries",
    "IndexFile",
    "OpenIndex",
    "Unusable",
    "chain",
    "link",
    "list_index_files",
    "open_index",
    "read_index_entries",
    "verify_index",
]

DEFAULT_MAX_HASH_SLOT_NUM: Final = 5_000_000
DEFAULT_MAX_INDEX_NUM: Final = 20_000_000

_HEAD: Final = INDEX_HEADER.itemsize
_SLOT: Final = 4
_ENTRY: Final = INDEX_ENTRY.itemsize
_LENGTH: Final = f"{_HEAD} + {_SLOT} * maxHashSlotNum + {_ENTRY} * maxIndexNum"


def _struct(layout: np.dtype[np.void]) -> struct.Struct:
    return struct.Struct(">" + "".join({4: "i", 8: "q"}[layout[name].itemsize] for name in layout.names or ()))


_unpack_header = _struct(INDEX_HEADER).unpack
_unpack_entry = _struct(INDEX_ENTRY).unpack
_BATCH: Final = 10_000
_SEARCH: Final = 50_000
"""Entries per read in the search for S: 1 MB."""
_PROBE: Final = 16
"""How many of the first entries, with their slots, must fit before S and N are believed."""
_INT_MAX: Final = (1 << 31) - 1

_Numbers = npt.NDArray[np.int32]
_Offsets = npt.NDArray[np.int64]


class IndexDamage(StoreError):
    """An index file that can't be what RocketMQ wrote. `path`, `offset` (byte in the file), `reason`: found and expected."""

    def __init__(self, reason: str, path: str, offset: int):
        super().__init__(reason, path, offset)
        self.reason = reason
        self.path = path
        self.offset = offset

    def __str__(self) -> str:
        return f"{self.path} at byte {self.offset}: {self.reason}"


@dataclass(frozen=True, slots=True)
class IndexFile:
    """One file of `index/`, its size in bytes as listed."""

    path: str
    name: str
    length: int


@dataclass(frozen=True, slots=True)
class OpenIndex:
    """An index file whose S (`slots`) and N (`capacity`) are known, and its header as it was when opened.

    Times in ms; phy offsets are commitLogOffsets. Without entries S and N may be unknown: then both are 0.
    """

    path: str
    length: int
    slots: int
    capacity: int
    begin_timestamp: int
    end_timestamp: int
    begin_phy_offset: int
    end_phy_offset: int
    hash_slot_count: int
    index_count: int

    @property
    def entries(self) -> int:
        """How many entries there are; their numbers are 1 ... entries."""
        return max(self.index_count - 1, 0)

    def entry_position(self, number: int) -> int:
        """The byte at which entry `number` starts."""
        return _HEAD + _SLOT * self.slots + _ENTRY * number


@dataclass(frozen=True, slots=True)
class Unusable:
    """An index file that can't be used, and why; the messages it indexes must be found by reading the commitlog."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class IndexEntries:
    """Entries in the order of their numbers, all arrays [n]: int32, but commit_log_offset int64; time_diff in seconds."""

    index_no: _Numbers
    key_hash: _Numbers
    commit_log_offset: _Offsets
    time_diff: _Numbers
    prev_index_no: _Numbers

    def __len__(self) -> int:
        return len(self.index_no)


@dataclass(frozen=True, slots=True)
class Chain:
    """The entries of one keyHash, newest first: int32[n], int64[n], int32[n] (seconds)."""

    index_no: _Numbers
    commit_log_offset: _Offsets
    time_diff: _Numbers


def list_index_files(files: Files, root: str) -> tuple[IndexFile, ...]:
    """The files of the store's `index` folder in name order, oldest first; names that are no integers are skipped."""
    names = files.list(f"{root}/index")
    return tuple(IndexFile(e.path, e.name, e.size) for e in names if not e.is_dir and e.name.isascii() and e.name.isdigit())


# --- opening: which S, which N -------------------------------------------------------------------------------------------


def open_index(
    files: Files,
    index_file: IndexFile,
    *,
    max_hash_slot_num: int | None = None,
    max_index_num: int | None = None,
    max_phys: int,
) -> OpenIndex | Unusable:
    """The header of a file, with S and N: as told, RocketMQ's defaults where the length is theirs, or searched and proven.

    `max_phys`: where the commitlog ends; no entry may point there or beyond. (There is no lower bound: retention deletes log
    files first.) About 1 KB is read; only where a file has neither told nor default sizes, its data is read once to find S.
    """
    path, length = index_file.path, index_file.length
    room = length - _HEAD
    if room < _SLOT + _ENTRY or room % _SLOT:
        return Unusable(
            path, f"{length} bytes are no index file: expected {_HEAD} + {_SLOT} * maxHashSlotNum + {_ENTRY} * maxIndexNum"
        )
    try:
        opened = OpenIndex(path, length, 0, 0, *_unpack_header(_read(files, path, 0, _HEAD)))
        if reason := _header_fault(opened, max_phys):
            return Unusable(path, reason)
        if max_hash_slot_num is not None or max_index_num is not None:
            return _told(files, opened, max_hash_slot_num, max_index_num)
        usual = dict.fromkeys((DEFAULT_MAX_HASH_SLOT_NUM, room // _SLOT - 5 * DEFAULT_MAX_INDEX_NUM))
        likely = [slots for slots in usual if _capacity(length, slots)]
        if not opened.entries:
            return _sized(opened, likely[0]) if likely else opened
        for slots in likely:
            if _misfit(files, sized := _sized(opened, slots)) is None:
                return sized
        return _searched(files, opened)
    except IndexDamage as e:
        return Unusable(path, f"at byte {e.offset}: {e.reason}")


def _header_fault(index: OpenIndex, max_phys: int) -> str | None:
    if index.index_count < 0 or index.hash_slot_count < 0:
        return f"indexCount is {index.index_count}, hashSlotCount {index.hash_slot_count}: expected none below 0"
    if not index.entries:
        if index.hash_slot_count or (index.begin_timestamp, index.begin_phy_offset) != (
            index.end_timestamp,
            index.end_phy_offset,
        ):
            return f"the header counts no entries, but {index.hash_slot_count} used slots, or a range of times or offsets"
        return None
    if not 1 <= index.hash_slot_count <= index.entries:
        return (
            f"the header counts {index.hash_slot_count} used slots for {index.entries} entries: expected 1 to {index.entries}"
        )
    # begin may be behind end: the times of the first message and of the last one, whatever the broker's clock did between
    if index.begin_timestamp <= 0 or index.end_timestamp <= 0:
        return f"the header's times run from {index.begin_timestamp} to {index.end_timestamp}: expected both above 0"
    if not 0 <= index.begin_phy_offset <= index.end_phy_offset < max_phys:
        return (
            f"the header's offsets run from {index.begin_phy_offset} to {index.end_phy_offset}: "
            f"expected 0 <= begin <= end < {max_phys}, the end of the commitlog"
        )
    return None


def _capacity(length: int, slots: int) -> int:
    """N where a file of `length` bytes has S = `slots`, 0 where it can't."""
    rest = length - _HEAD - _SLOT * slots
    return rest // _ENTRY if slots > 0 and rest > 0 and rest % _ENTRY == 0 else 0


def _sized(opened: OpenIndex, slots: int) -> OpenIndex:
    return replace(opened, slots=slots, capacity=_capacity(opened.length, slots))


def _told(files: Files, opened: OpenIndex, slots: int | None, capacity: int | None) -> OpenIndex | Unusable:
    told = (("maxHashSlotNum", slots), ("maxIndexNum", capacity))
    said = " and ".join(f"{name} = {value}" for name, value in told if value is not None)
    if slots is None:
        slots = (opened.length - _HEAD) // _SLOT - 5 * (capacity or 0)
    found = _capacity(opened.length, slots)
    if not found or capacity not in (None, found):
        return Unusable(
            opened.path,
            f"{opened.length} bytes don't fit the option {said}: expected {_LENGTH}. "
            "Leave the option out to have the sizes found",
        )
    sized = _sized(opened, slots)
    if opened.entries and (reason := _misfit(files, sized)):
        return Unusable(opened.path, f"the file does not fit the option {said}: {reason}")
    return sized


def _searched(files: Files, opened: OpenIndex) -> OpenIndex | Unusable:
    """S from the content alone. All candidates differ by 5 slots = 20 bytes = one entry, so the last part of the file, cut into
    entries, holds each candidate's last entry as one row; those that end at endPhyOffset are tried."""
    length, last = opened.length, opened.entries
    phase = (length - _HEAD) // _SLOT % 5
    start = _HEAD + _SLOT * phase  # candidate i: S = phase + 5 * i, its entry k is row i + k
    rows = (length - start) // _ENTRY
    row = last
    found: list[OpenIndex] = []
    while row < rows:
        data = files.next_data(opened.path, start + _ENTRY * row)
        if data is None:
            break
        row = max(row, (data - start) // _ENTRY)
        batch = _entries(_read(files, opened.path, start + _ENTRY * row, _ENTRY * min(_SEARCH, rows - row)), 0)
        fits = (batch.commit_log_offset == opened.end_phy_offset) & (batch.key_hash > 0) & (batch.time_diff >= 0)
        fits &= (batch.prev_index_no >= 0) & (batch.prev_index_no < last)
        for i in (row - last + np.flatnonzero(fits)).tolist():
            sized = _sized(opened, phase + 5 * i)
            if sized.slots and _misfit(files, sized) is None:
                found.append(sized)
        row += len(batch)
    if len(found) == 1:
        return found[0]
    what = (
        "no maxHashSlotNum fits the file's entries"
        if not found
        else f"maxHashSlotNum could be any of {[f.slots for f in found]}"
    )
    return Unusable(opened.path, f"{what}. If the file is sound, give the broker's value with the option maxHashSlotNum")


def _misfit(files: Files, index: OpenIndex) -> str | None:
    """Why S and N can't be right, judged by the first entries, their slots, and the last entry; None where all fits."""
    if index.index_count > index.capacity:
        return f"indexCount is {index.index_count}: expected at most maxIndexNum, {index.capacity}"
    count = min(index.entries, _PROBE)
    first = _entries(_read(files, index.path, index.entry_position(1), _ENTRY * count), 1)
    last = _entries(_read(files, index.path, index.entry_position(index.entries), _ENTRY), index.entries)
    if reason := _entry_fault(index, first) or _entry_fault(index, last):
        return reason
    slots, of_entry = np.unique(first.key_hash % index.slots, return_inverse=True)
    numbers = np.zeros(len(slots), dtype=np.int32)
    if bool((link(of_entry, 1, numbers) != first.prev_index_no).any()):
        return "the chains of the first entries don't fit their slots"
    for slot, number in zip(slots.tolist(), numbers.tolist(), strict=True):
        newest = _newest(files, index, slot)
        if newest < number:
            return f"slot {slot} is {newest}: expected an entry from {number} on"
        entry = _entries(_read(files, index.path, index.entry_position(newest), _ENTRY), newest)
        if int(entry.key_hash[0]) % index.slots != slot:
            return f"slot {slot} leads to entry {newest}, whose keyHash {entry.key_hash[0]} does not belong there"
    return None


# --- lookup --------------------------------------------------------------------------------------------------------------


def chain(files: Files, index: OpenIndex, key_hash: int) -> Chain:
    """The entries of `key_hash`, newest first, as they were when `index` was opened; one read for the slot, one for each entry.

    A hash is not a key: the caller compares topic and key in the messages.
    Errors: IndexDamage for a slot or an entry that can't be.
    """
    numbers: list[int] = []
    offsets: list[int] = []
    diffs: list[int] = []
    if index.index_count > 1:
        path, slots, low, high = index.path, index.slots, index.begin_phy_offset, index.end_phy_offset
        slot = key_hash % slots
        base = _HEAD + _SLOT * slots
        number = _newest(files, index, slot)
        while number:
            place = base + _ENTRY * number
            data = files.read(path, place, _ENTRY)
            if len(data) != _ENTRY:
                raise _cut_short(path, place, len(data), _ENTRY)
            found, offset, diff, prev = _unpack_entry(data)
            # numbers and offsets only ever go down, so a walk ends whatever is in the file
            if found < 0 or found % slots != slot or not 0 <= prev < number or not low <= offset <= high or diff < 0:
                raise IndexDamage(
                    f"entry {number} is keyHash {found}, commitLogOffset {offset}, timeDiff {diff}, prevIndexNo {prev}: "
                    f"expected a hash of slot {slot} of {slots}, an offset from {low} to {high}, no negative timeDiff, and a "
                    f"prevIndexNo from 0 to {number - 1}",
                    path,
                    place,
                )
            if found == key_hash:
                numbers.append(number)
                offsets.append(offset)
                diffs.append(diff)
            high = offset
            number = prev
    return Chain(np.array(numbers, np.int32), np.array(offsets, np.int64), np.array(diffs, np.int32))


def _newest(files: Files, index: OpenIndex, slot: int) -> int:
    """The newest entry of a slot that the header counted when the file was opened; 0 if there is none."""
    place = _HEAD + _SLOT * slot
    data = files.read(index.path, place, _SLOT)
    number = int.from_bytes(data, "big", signed=True)
    if len(data) == _SLOT and 0 <= number < index.index_count:
        return number
    if len(data) != _SLOT:
        raise _cut_short(index.path, place, len(data), _SLOT)
    # a live broker may have added entries since: go down to those we know
    now = _count_now(files, index) if number > 0 else 0
    while index.index_count <= number < now:
        entry = _entries(_read(files, index.path, index.entry_position(number), _ENTRY), number)
        prev = int(entry.prev_index_no[0])
        if int(entry.key_hash[0]) % index.slots != slot or prev >= number or entry.commit_log_offset[0] < index.end_phy_offset:
            break
        number = prev
    if not 0 <= number < index.index_count:
        raise IndexDamage(f"slot {slot} leads to entry {number}: expected 0 to {index.entries}", index.path, place)
    return number


def _count_now(files: Files, index: OpenIndex) -> int:
    return int(_unpack_header(_read(files, index.path, 0, _HEAD))[-1])


def _read(files: Files, path: str, position: int, length: int) -> bytes:
    data = files.read(path, position, length)
    if len(data) != length:
        raise _cut_short(path, position, len(data), length)
    return data


def _cut_short(path: str, position: int, got: int, wanted: int) -> IndexDamage:
    return IndexDamage(f"the file ends here: {got} of {wanted} bytes could be read", path, position)


# --- all entries ---------------------------------------------------------------------------------------------------------


def read_index_entries(
    files: Files, index: OpenIndex, first: int = 1, stop: int | None = None, batch: int = _BATCH
) -> Iterator[IndexEntries]:
    """Entries [first, stop) in number order, at most `batch` at a time; `stop` None is the end as the header counted it.

    The entries are as stored, unchecked. Errors: IndexDamage where the file is too short for them.
    """
    stop = index.entries + 1 if stop is None else min(stop, index.entries + 1)
    for number in range(first, stop, batch):
        count = min(batch, stop - number)
        yield _entries(_read(files, index.path, index.entry_position(number), _ENTRY * count), number)


def _entries(data: bytes, first: int) -> IndexEntries:
    stored = np.frombuffer(data, dtype=INDEX_ENTRY)
    return IndexEntries(
        np.arange(first, first + len(stored), dtype=np.int32),
        stored["keyHash"].astype(np.int32),
        stored["commitLogOffset"].astype(np.int64),
        stored["timeDiff"].astype(np.int32),
        stored["prevIndexNo"].astype(np.int32),
    )


def verify_index(files: Files, index: OpenIndex) -> str | None:
    """Reads the whole file and recomputes what follows from the entries' hashes; the first reason not to trust it, or None.

    Every chain link and slot is checked, hashSlotCount (used slots from 4.7.1 on, entries before), the order of offsets, and
    times as far as they are fixed. Not to be seen from here: an offset or a time changed to another one between its
    neighbours', a keyHash changed to another one of its slot. Takes 4 bytes of memory per slot, and a batch.
    """
    try:
        return _entries_fault(files, index) if index.entries else None
    except IndexDamage as e:
        return f"at byte {e.offset}: {e.reason}"


def _entries_fault(files: Files, index: OpenIndex) -> str | None:
    newest = np.zeros(index.slots, dtype=np.int32)
    used = 0
    offset, diff, highest = index.begin_phy_offset, 0, 0
    for entries in read_index_entries(files, index):
        if reason := _entry_fault(index, entries):
            return reason
        prev = link(entries.key_hash % index.slots, int(entries.index_no[0]), newest)
        if reason := _first(entries, prev != entries.prev_index_no, "prevIndexNo", entries.prev_index_no, "exactly", prev):
            return reason
        used += int(np.count_nonzero(prev == 0))
        diffs = entries.time_diff.copy()
        if entries.index_no[0] == 1:
            diffs[0] = 0  # in a file that follows a full one it counts from that one's end: any value may be right
        offsets_before = np.append(np.int64(offset), entries.commit_log_offset[:-1])
        diffs_before = np.append(np.int32(diff), diffs[:-1])
        same = entries.commit_log_offset == offsets_before
        if reason := _first(
            entries, same & (diffs != diffs_before), "timeDiff", diffs, "that of the same message before,", diffs_before
        ):
            return reason
        peaks = np.maximum.accumulate(np.append(np.int32(highest), diffs))[1:]
        # brokers that take the time before they queue for the log swap neighbours: that is less than a second
        if reason := _first(entries, diffs < peaks - 1, "timeDiff", diffs, "at least", peaks - 1):
            return f"{reason}, as times ascend (unless the broker's clock was set back)"
        offset, diff, highest = int(entries.commit_log_offset[-1]), int(diffs[-1]), int(peaks[-1])
    span = min((index.end_timestamp - index.begin_timestamp) // 1000, _INT_MAX)
    if diff != span:
        return f"entry {index.entries}: timeDiff is {diff}: expected {span} seconds, from beginTimestamp to endTimestamp"
    for first in range(0, index.slots, _SEARCH):
        expected = newest[first : first + _SEARCH]
        stored = np.frombuffer(_read(files, index.path, _HEAD + _SLOT * first, _SLOT * len(expected)), dtype=">i4")
        if len(wrong := np.flatnonzero(stored != expected)):
            i = int(wrong[0])
            if (now := _count_now(files, index)) != index.index_count:
                return f"indexCount went from {index.index_count} to {now}: a broker is writing to the file"
            return f"slot {first + i} is {stored[i]}: expected {expected[i]}"
    if not used <= index.hash_slot_count <= index.entries:
        return f"hashSlotCount is {index.hash_slot_count}: expected {used}, the used slots (or {index.entries}, before 4.7.1)"
    return None


def _entry_fault(index: OpenIndex, entries: IndexEntries) -> str | None:
    """What entries in number order can't be, whatever their hashes."""
    numbers, offsets = entries.index_no, entries.commit_log_offset
    low, high = index.begin_phy_offset, index.end_phy_offset
    prev, diffs = entries.prev_index_no, entries.time_diff
    floor = np.append(np.int64(low), offsets[:-1])
    floor = np.where(numbers == index.entries, high, floor)
    roof = np.where(numbers == 1, low, high)
    return (
        _first(entries, entries.key_hash < 0, "keyHash", entries.key_hash, "at least", 0)
        or _first(entries, prev < 0, "prevIndexNo", prev, "at least", 0)
        or _first(entries, prev >= numbers, "prevIndexNo", prev, "less than", numbers)
        or _first(entries, diffs < 0, "timeDiff", diffs, "at least", 0)
        or _first(entries, offsets < floor, "commitLogOffset", offsets, "at least", floor)
        or _first(entries, offsets > roof, "commitLogOffset", offsets, "at most", roof)
    )


def _first(
    entries: IndexEntries,
    wrong: npt.NDArray[np.bool_],
    name: str,
    found: npt.NDArray[Any],
    relation: str,
    bounds: npt.NDArray[Any] | int,
) -> str | None:
    """The first entry that is wrong, in words."""
    if not wrong.any():
        return None
    i = int(np.argmax(wrong))
    bound = bounds if isinstance(bounds, int) else bounds[i]
    return f"entry {entries.index_no[i]}: {name} is {found[i]}: expected {relation} {bound}"


def link(slots: npt.NDArray[np.integer[Any]], first: int, newest: _Numbers) -> _Numbers:
    """prevIndexNo of entries `first`, first + 1, ... that go to these slots, int32[n]; `newest`, the newest entry of each slot,
    is brought up to date.
    """
    number = np.arange(first, first + len(slots), dtype=np.int32)
    prev = newest[slots]
    newest[slots] = number
    # of entries of one slot any may have stayed; few slots get several in a batch, and only these are sorted
    several = slots[newest[slots] != number]
    if len(several):
        newest[several] = -1
        again = np.flatnonzero(newest[slots] < 0)
        again = again[np.argsort(slots[again], kind="stable")]
        same = slots[again[1:]] == slots[again[:-1]]
        prev[again[1:][same]] = number[again[:-1][same]]
        last = again[np.append(~same, True)]
        newest[slots[last]] = number[last]
    return prev
