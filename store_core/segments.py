"""Commitlog files as a sequence: names <-> offsets, and which file holds an offset. Values only, no disk.

`MappedFileQueue` and `MultiPathMappedFileQueue`: files of all directories are one sequence, ordered by the number in their
name.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum

from store_core.layout import DLEDGER_HEADER, NAME_DIGITS

__all__ = ["Framing", "Log", "Segment", "file_name", "parse_name"]


class Framing(str, Enum):
    """How records stand in a file: one behind the other, or each behind a DLedger entry header."""

    PLAIN = "plain"
    DLEDGER = "dledger"


def file_name(offset: int) -> str:
    """The name of a file whose first byte is `offset` (`UtilAll#offset2FileName`)."""
    return f"{offset:0{NAME_DIGITS}d}"


def parse_name(name: str) -> int | None:
    """The offset in a file's name, or None where it is not the name of such a file (20 ASCII digits)."""
    return int(name) if len(name) == NAME_DIGITS and name.isascii() and name.isdigit() else None


@dataclass(frozen=True, slots=True)
class Segment:
    """One commitlog file: `base_offset` is the commitLogOffset of its first byte, `length` its size on disk in bytes."""

    path: str
    base_offset: int
    length: int
    framing: Framing = Framing.PLAIN

    @property
    def end_offset(self) -> int:
        """The commitLogOffset just behind the file."""
        return self.base_offset + self.length

    @property
    def lead(self) -> int:
        """Bytes that belong to a record and stand in front of it: a DLedger entry's header."""
        return DLEDGER_HEADER.itemsize if self.framing is Framing.DLEDGER else 0


@dataclass(frozen=True)
class Log:
    """All segments of a store, by ascending offset. Pickles to a few numbers: names and sizes of its files follow a rule."""

    segments: tuple[Segment, ...]

    @classmethod
    def of(cls, segments: Iterable[Segment]) -> Log:
        return cls(tuple(sorted(segments, key=lambda s: (s.base_offset, s.path))))

    def __reduce__(self) -> tuple[object, ...]:
        return _unpack, (_runs(self.segments),)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self.segments)

    def __len__(self) -> int:
        return len(self.segments)

    @property
    def min_offset(self) -> int:
        """The first commitLogOffset that is still there; 0 in an empty log."""
        return self.segments[0].base_offset if self.segments else 0

    @property
    def max_offset(self) -> int:
        """The end of the last file; records end before it."""
        return self.segments[-1].end_offset if self.segments else 0

    @property
    def total_bytes(self) -> int:
        return sum(s.length for s in self.segments)

    def index_of(self, offset: int) -> int:
        """Which segment's range holds `offset`; -1 where no file holds it."""
        i = bisect_right(self.segments, offset, key=lambda s: s.base_offset) - 1
        return i if i >= 0 and offset < self.segments[i].end_offset else -1

    def find(self, offset: int) -> Segment | None:
        """The segment that holds `offset`, or None."""
        i = self.index_of(offset)
        return None if i < 0 else self.segments[i]


_Run = tuple[str, int, int, int, int, Framing]
"""(folder, first base offset, step, count, length, framing): files of one folder whose names ascend by one step."""


def _runs(segments: tuple[Segment, ...]) -> tuple[_Run, ...]:
    runs: list[_Run] = []
    growing: dict[tuple[str, int, Framing], int] = {}
    for s in segments:
        folder = os.path.dirname(s.path)
        kind = (folder, s.length, s.framing)
        at = growing.get(kind)
        if at is not None:
            _, first, step, count, length, framing = runs[at]
            if count == 1 or s.base_offset == first + step * count:
                runs[at] = (folder, first, s.base_offset - first if count == 1 else step, count + 1, length, framing)
                continue
        growing[kind] = len(runs)
        runs.append((folder, s.base_offset, 0, 1, s.length, s.framing))
    return tuple(runs)


def _unpack(runs: tuple[_Run, ...]) -> Log:
    return Log.of(
        Segment(os.path.join(folder, file_name(base)), base, length, framing)
        for folder, first, step, count, length, framing in runs
        for base in (first + step * i for i in range(count))
    )
