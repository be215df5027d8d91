"""Index files out of described records, as a broker's dispatch writes them (`IndexService#buildIndex`, `IndexFile#putKey`).

The last file of a store is continued; a full one is followed by the next, whose header begins with the end of the one before.
In memory are the slots of the file being written, 4 bytes each, and a few megabytes of entries; of the slots only the pages
that changed are written.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from store_core.described import Described
from store_core.errors import CorruptStoreError, OptionError
from store_core.files import Files
from store_core.hashing import key_hash
from store_core.indexfile import (
    DEFAULT_MAX_HASH_SLOT_NUM,
    DEFAULT_MAX_INDEX_NUM,
    OpenIndex,
    Unusable,
    link,
    list_index_files,
    open_index,
    read_index_entries,
)
from store_core.indextable import TAG_PREFIX
from store_core.layout import INDEX_ENTRY, INDEX_HEADER
from store_core.onekey import read_record
from store_core.properties import parse_properties
from store_core.ragged import decode_utf8
from store_core.segments import Log
from store_core.writefiles import Writes

__all__ = ["DEFAULT_INDEX_SIZES", "IndexBuilder", "IndexContent", "found_index_sizes", "found_index_tags", "index_name"]

DEFAULT_INDEX_SIZES: Final = (DEFAULT_MAX_HASH_SLOT_NUM, DEFAULT_MAX_INDEX_NUM)
_HEAD: Final = INDEX_HEADER.itemsize
_SLOT: Final = 4
_ENTRY: Final = INDEX_ENTRY.itemsize
_INT_MAX: Final = (1 << 31) - 1
_PAGE: Final = 1024
"""Slots that are written together: 4 KiB."""
_PIECE: Final = 1 << 20
"""Slots that are read or written at once at most."""
_HELD: Final = 4 << 20
"""Bytes of entries that wait to be written."""
_SAMPLE: Final = 500
"""Entries that are looked at for those of tags."""
_FOREVER: Final = (1 << 63) - 1
_SIZES: Final = "Give the broker's sizes with the options maxHashSlotNum and maxIndexNum"
_REBUILD: Final = "Rebuild the index"

I32 = npt.NDArray[np.int32]
Ints = npt.NDArray[np.integer[Any]]


def found_index_sizes(
    files: Files, root: str, max_hash_slot_num: int | None = None, max_index_num: int | None = None
) -> tuple[int, int] | None:
    """(maxHashSlotNum, maxIndexNum) as the store's index files have them, newest first; None where there are none.

    Errors: CorruptStoreError where there are files, and no sizes fit any of them.
    """
    reasons = []
    for listed in reversed(list_index_files(files, root)):
        opened = open_index(files, listed, max_hash_slot_num=max_hash_slot_num, max_index_num=max_index_num, max_phys=_FOREVER)
        if isinstance(opened, OpenIndex) and opened.slots:
            return opened.slots, opened.capacity
        reasons.append((listed.path, opened.reason if isinstance(opened, Unusable) else "it has no entries to tell them"))
        if listed.length == _length(*DEFAULT_INDEX_SIZES):
            return DEFAULT_INDEX_SIZES
    if reasons:
        path, reason = reasons[0]
        raise CorruptStoreError(f"the sizes of the index can't be told: {reason}", path=path, hint=_SIZES)
    return None


def found_index_tags(files: Files, root: str, log: Log, slots: int, capacity: int) -> bool | None:
    """Whether the store's newest index entries are those of a broker that indexes TAGS (5.4.0 on); None where nothing tells.

    Errors: IndexDamage where the newest file ends before its entries do.
    """
    for listed in reversed(list_index_files(files, root)):
        opened = open_index(files, listed, max_hash_slot_num=slots, max_index_num=capacity, max_phys=_FOREVER)
        if isinstance(opened, Unusable):
            continue
        last = opened.entries + 1
        for entries in read_index_entries(files, opened, max(last - _SAMPLE, 1), last):
            hashes: dict[int, set[int]] = {}
            for offset, value in zip(entries.commit_log_offset.tolist(), entries.key_hash.tolist(), strict=True):
                hashes.setdefault(offset, set()).add(value)
            # of the first and the last one here, entries may stand elsewhere
            for offset in sorted(hashes)[1:-1]:
                record = read_record(files, log, offset)
                tags = parse_properties(record.properties).get("TAGS") if record is not None else None
                if record is not None and tags:
                    return key_hash(decode_utf8(record.topic), TAG_PREFIX + tags) in hashes[offset]
    return None


def index_name(timestamp_ms: int, after: str | None) -> str:
    """The name of an index file that is made at this time, in the local time zone as a broker writes it, or of the first
    millisecond behind the file `after`.
    """
    seconds, ms = divmod(min(max(timestamp_ms, 0), 253_000_000_000_000), 1000)
    made = datetime.fromtimestamp(seconds) + timedelta(milliseconds=ms)
    name = _name(made)
    if after is not None and name <= after:
        try:
            name = _name(datetime.strptime(after[:-3], "%Y%m%d%H%M%S") + timedelta(milliseconds=int(after[-3:]) + 1))
        except ValueError:
            name = str(int(after) + 1).zfill(len(after))  # not a time, but a number
    return name


def _length(slots: int, capacity: int) -> int:
    return _HEAD + _SLOT * slots + _ENTRY * capacity


def _name(made: datetime) -> str:
    return f"{made:%Y%m%d%H%M%S}{made.microsecond // 1000:03d}"


class IndexContent:
    """One index file as it grows: header and slots. Entries leave as bytes at once. No disk.

    `slots`, `capacity`: maxHashSlotNum, maxIndexNum. `previous_end`: endTimestamp and endPhyOffset of the full file before.
    """

    def __init__(self, slots: int, capacity: int, previous_end: tuple[int, int] = (0, 0)) -> None:
        self.slots = slots
        self.capacity = capacity
        self.begin_timestamp = self.end_timestamp = max(previous_end[0], 0)
        self.begin_phy_offset = self.end_phy_offset = max(previous_end[1], 0)
        self.hash_slot_count = 0
        self.index_count = 1
        self._newest: I32 = np.zeros(slots, dtype=np.int32)
        self._changed = np.zeros(-(-slots // _PAGE), dtype=bool)

    @classmethod
    def of(cls, opened: OpenIndex, newest: I32) -> IndexContent:
        """A file that is there, with the newest entry of each slot: int32[maxHashSlotNum]."""
        content = cls(opened.slots, opened.capacity)
        content.begin_timestamp, content.end_timestamp = opened.begin_timestamp, opened.end_timestamp
        content.begin_phy_offset, content.end_phy_offset = opened.begin_phy_offset, opened.end_phy_offset
        content.hash_slot_count = opened.hash_slot_count
        content.index_count = max(opened.index_count, 1)
        content._newest = newest
        return content

    @property
    def is_full(self) -> bool:
        """Whether the next entry goes to a new file."""
        return self.index_count >= self.capacity

    @property
    def entry_position(self) -> int:
        """The byte at which the next entry goes."""
        return _HEAD + _SLOT * self.slots + _ENTRY * self.index_count

    def put(self, key_hash: Ints, commit_log_offset: Ints, store_timestamp: Ints) -> bytes:
        """The bytes of as many entries as there is room for, for `entry_position` as it was; arrays [n], in log order."""
        count = max(min(len(key_hash), self.capacity - self.index_count), 0)
        if not count:
            return b""
        hashes, offsets, times = key_hash[:count], commit_log_offset[:count], store_timestamp[:count]
        entries = np.zeros(count, dtype=INDEX_ENTRY)
        entries["keyHash"] = hashes
        entries["commitLogOffset"] = offsets
        slots = (hashes % self.slots).astype(np.intp)
        entries["prevIndexNo"] = prev = link(slots, self.index_count, self._newest)
        self._changed[slots // _PAGE] = True
        seeded = self.begin_timestamp
        if self.index_count == 1:
            self.begin_timestamp, self.begin_phy_offset = int(times[0]), int(offsets[0])
        if self.begin_timestamp > 0:
            entries["timeDiff"] = np.clip((times - self.begin_timestamp) // 1000, 0, _INT_MAX)
        if self.index_count == 1:
            # taken before beginTimestamp becomes its own: the first entry counts from the end of the file before
            entries["timeDiff"][0] = min(max((int(times[0]) - seeded) // 1000, 0), _INT_MAX) if seeded > 0 else 0
        self.hash_slot_count += int(np.count_nonzero(prev == 0))
        self.index_count += count
        self.end_timestamp, self.end_phy_offset = int(times[-1]), int(offsets[-1])
        return entries.tobytes()

    def header(self) -> bytes:
        """The file's first 40 bytes as they are now."""
        fields = (
            self.begin_timestamp,
            self.end_timestamp,
            self.begin_phy_offset,
            self.end_phy_offset,
            self.hash_slot_count,
            self.index_count,
        )
        return np.array([fields], dtype=INDEX_HEADER).tobytes()

    def changed_slots(self) -> Iterator[tuple[int, bytes]]:
        """(position, bytes) of the pages of slots that changed since they were last asked for."""
        pages = np.flatnonzero(self._changed)
        self._changed[:] = False
        for run in np.split(pages, np.flatnonzero(np.diff(pages) != 1) + 1) if len(pages) else ():
            stop = min((int(run[-1]) + 1) * _PAGE, self.slots)
            for first in range(int(run[0]) * _PAGE, stop, _PIECE):
                part = self._newest[first : min(first + _PIECE, stop)]
                yield _HEAD + _SLOT * first, part.astype(">i4").tobytes()


class IndexBuilder:
    """Writes the index files of a store in `root/index`; `add` takes records with their places, in log order.

    `slots`, `capacity`: maxHashSlotNum, maxIndexNum.
    Errors: CorruptStoreError for a last file that can't be continued.
    """

    def __init__(self, files: Files, writes: Writes, root: str, slots: int, capacity: int) -> None:
        if slots < 1 or capacity < 2:
            raise OptionError(f"maxHashSlotNum is {slots}, maxIndexNum {capacity}; expected at least 1 and 2")
        self._files = files
        self._writes = writes
        self._folder = posixpath.join(root, "index")
        self._slots = slots
        self._capacity = capacity
        self._path: str | None = None
        self._content = IndexContent(1, 1)
        self._waiting: list[bytes] = []
        self._waiting_at = 0
        self._held = 0
        self._touched: dict[str, None] = {}
        self.entries = 0
        """How many entries were added."""
        self.files = 0
        """How many files were made."""
        self.full_until = 0
        """endTimestamp of the last file that was followed by another one here, which is the checkpoint's indexMsgTimestamp."""
        if listed := list_index_files(files, root):
            opened = open_index(files, listed[-1], max_hash_slot_num=slots, max_index_num=capacity, max_phys=_FOREVER)
            if isinstance(opened, Unusable):
                raise CorruptStoreError(f"the index can't be continued: {opened.reason}", path=opened.path, hint=_REBUILD)
            self._continue(opened)

    def add(self, described: Described) -> None:
        """Adds the entries of some records. Errors: CorruptStoreError where the index holds entries of later records."""
        records = described.records
        if not len(records):
            return
        first = int(records["commitLogOffset"][0])
        if self._path is not None and first <= self._content.end_phy_offset and self._content.end_timestamp > 0:
            raise CorruptStoreError(
                f"its last entry is of the record at commitLogOffset {self._content.end_phy_offset}, "
                f"which does not stand before the one at {first} that is added",
                path=self._path,
                hint=_REBUILD,
            )
        row = np.repeat(np.arange(len(records)), records["keyCount"])
        offsets, times = records["commitLogOffset"][row], records["storeTimestamp"][row]
        at = 0
        self._make_room(int(records["storeTimestamp"][0]))
        while at < len(row):
            self._make_room(int(times[at]))
            position = self._content.entry_position
            data = self._content.put(described.key_hashes[at:], offsets[at:], times[at:])
            self._hold(position, data)
            at += len(data) // _ENTRY
        if not len(row) or row[-1] < len(records) - 1:
            self._make_room(int(records["storeTimestamp"][-1]))  # a broker looks at the file for each message, keys or not
        self.entries += len(row)

    def finish(self) -> tuple[str, ...]:
        """Writes what is left; the paths of all files that were made or written to, which are not synced yet."""
        self._write_rest()
        return tuple(self._touched)

    def _continue(self, opened: OpenIndex) -> None:
        newest = np.zeros(opened.slots, dtype=np.int32)
        for first in range(0, opened.slots, _PIECE):
            part = newest[first : first + _PIECE]
            data = self._files.read(opened.path, _HEAD + _SLOT * first, _SLOT * len(part))
            part[: len(data) // _SLOT] = np.frombuffer(data, ">i4", count=len(data) // _SLOT)
        if len(wrong := np.flatnonzero((newest < 0) | (newest >= max(opened.index_count, 1)))):
            # left by a broker that was killed: what the slot led to before is lost
            raise CorruptStoreError(
                f"the index can't be continued: slot {wrong[0]} leads to entry {newest[wrong[0]]}; "
                f"expected 0 to {opened.entries}",
                path=opened.path,
                offset=_HEAD + _SLOT * int(wrong[0]),
                hint=_REBUILD,
            )
        self._path = opened.path
        self._content = IndexContent.of(opened, newest)

    def _make_room(self, timestamp_ms: int) -> None:
        """Goes on to a new file where there is none yet, or where the last one is full."""
        before = self._content
        if self._path is None:
            name = index_name(timestamp_ms, None)
            self._content = IndexContent(self._slots, self._capacity)
        elif before.is_full:
            self._write_rest()
            self.full_until = before.end_timestamp
            name = index_name(timestamp_ms, posixpath.basename(self._path))
            self._content = IndexContent(self._slots, self._capacity, (before.end_timestamp, before.end_phy_offset))
        else:
            return
        self._path = posixpath.join(self._folder, name)
        self._writes.make_folder(self._folder)
        self._writes.create(self._path, _length(self._slots, self._capacity))
        self._touched[self._path] = None
        self.files += 1

    def _hold(self, position: int, data: bytes) -> None:
        if not self._waiting:
            self._waiting_at = position
        self._waiting.append(data)
        self._held += len(data)
        if self._held > _HELD:
            self._write_entries()

    def _write_entries(self) -> None:
        if self._waiting and self._path is not None:
            self._writes.write_at(self._path, self._waiting_at, b"".join(self._waiting))
            self._touched[self._path] = None
        self._waiting.clear()
        self._held = 0

    def _write_rest(self) -> None:
        """Entries first, then the slots that lead to them, then the header that counts them."""
        self._write_entries()
        if self._path is not None and (self._path in self._touched):
            for position, data in self._content.changed_slots():
                self._writes.write_at(self._path, position, data)
            self._writes.write_at(self._path, 0, self._content.header())
