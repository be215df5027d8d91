"""Index files, entry by entry (`IndexService#buildIndex`, `IndexFile#putKey`)."""

from __future__ import annotations

import struct
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from tests.synthetic.log import Placed
from tests.synthetic.messages import java_hash

__all__ = ["IndexFile", "build_index"]


@dataclass
class IndexFile:
    """One file in memory; the fields of its header have RocketMQ's names."""

    name: str
    slots: list[int]
    entries: list[tuple[int, int, int, int]]
    capacity: int
    beginTimestamp: int = 0
    endTimestamp: int = 0
    beginPhyOffset: int = 0
    endPhyOffset: int = 0
    hashSlotCount: int = 0

    @property
    def indexCount(self) -> int:
        return len(self.entries) + 1

    @property
    def full(self) -> bool:
        return self.indexCount >= self.capacity

    def put(self, key: str, placed: Placed) -> None:
        value = java_hash(key)
        value = 0 if value == -(1 << 31) else abs(value)
        slot = value % len(self.slots)
        before = self.slots[slot]
        elapsed = placed.message.storeTimestamp - self.beginTimestamp
        seconds = max(elapsed, 0) // 1000 if self.beginTimestamp > 0 else 0
        if not self.entries:  # only now: the first entry of a rolled file counts its seconds from the file before
            self.beginPhyOffset, self.beginTimestamp = placed.commitLogOffset, placed.message.storeTimestamp
        self.slots[slot] = self.indexCount
        self.entries.append((value, placed.commitLogOffset, seconds, before))
        self.hashSlotCount += before == 0
        self.endPhyOffset, self.endTimestamp = placed.commitLogOffset, placed.message.storeTimestamp

    def content(self) -> bytes:
        header = struct.pack(
            ">qqqqii",
            self.beginTimestamp,
            self.endTimestamp,
            self.beginPhyOffset,
            self.endPhyOffset,
            self.hashSlotCount,
            self.indexCount,
        )
        slots = struct.pack(f">{len(self.slots)}i", *self.slots)
        entries = bytes(20) + b"".join(struct.pack(">iqii", *entry) for entry in self.entries)
        return header + slots + entries.ljust(20 * self.capacity, b"\0")


def build_index(
    records: Sequence[Placed], *, slots: int, capacity: int, tags: bool, crashes: Collection[int], commitlog_size: int
) -> list[IndexFile]:
    """The index files of `records`.

    tags: one more entry for each message with TAGS (5.4.0 on).
    crashes: numbers of records behind which the broker was killed. Its next start deletes the file being written, and indexes
    again only from the first record of the commitlog file it was in: what stands between is lost from the index.
    """
    files: list[IndexFile] = []
    for number, placed in enumerate(records):
        dispatch(files, placed, slots, capacity, tags)
        if number in crashes:
            files.pop()
            start = placed.commitLogOffset // commitlog_size * commitlog_size
            for again in records[: number + 1]:
                if again.commitLogOffset >= start:
                    dispatch(files, again, slots, capacity, tags)
    return files


def dispatch(files: list[IndexFile], placed: Placed, slots: int, capacity: int, tags: bool) -> None:
    for key in (None, *index_keys(placed, tags)):
        if not files or files[-1].full:
            files.append(new_file(files, placed, slots, capacity))
        if key is None:  # the file is looked at once per message, keys or not
            if placed.commitLogOffset < files[-1].endPhyOffset:
                return
        else:
            files[-1].put(key, placed)


def index_keys(placed: Placed, tags: bool) -> list[str]:
    if not placed.message.has_index_entries:
        return []
    keys = [placed.properties.get("UNIQ_KEY", ""), *placed.properties.get("KEYS", "").split(" ")]
    topic = placed.message.topic
    found = [f"{topic}#{key}" for key in keys if key]
    if tags and "TAGS" in placed.properties:
        found.append(f"{topic}#T#{placed.properties['TAGS']}")
    return found


def new_file(files: list[IndexFile], placed: Placed, slots: int, capacity: int) -> IndexFile:
    """An empty file, its header seeded with the end of the one before."""
    made = datetime.fromtimestamp(0, timezone.utc) + timedelta(milliseconds=placed.message.storeTimestamp)
    while files and index_name(made) <= files[-1].name:
        made += timedelta(milliseconds=1)
    if not files:
        return IndexFile(index_name(made), [0] * slots, [], capacity)
    last = files[-1]
    seeds = (last.endTimestamp, last.endTimestamp, last.endPhyOffset, last.endPhyOffset)
    return IndexFile(index_name(made), [0] * slots, [], capacity, *seeds)


def index_name(made: datetime) -> str:
    return made.strftime("%Y%m%d%H%M%S") + f"{made.microsecond // 1000:03d}"
