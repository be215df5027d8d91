"""Where new records go: packed into commitlog files, numbered in their queues. Pure: sizes and numbers in, places out.

`DefaultAppendMessageCallback#doAppend`, `ConsumeQueueStore#assignQueueOffset`. A record of L bytes goes into a file only where
L + 8 bytes are left; else a blank record closes the file, and it goes to the start of the next one. Records of transaction type
none and commit count in their queue; prepared and rollback ones have no number there.

Places are given batch by batch, in log order: what comes before is all that a place depends on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

import numpy as np
import numpy.typing as npt

from store_core.describe import has_queue_entry
from store_core.described import NO_PLACE, Described
from store_core.errors import OptionError
from store_core.layout import SCHEDULE_TOPIC

__all__ = ["BLANK_HEAD", "Blank", "Density", "Placed", "Placer", "Times"]

BLANK_HEAD: Final = 8
"""The least a blank record takes (`END_FILE_MIN_BLANK_LENGTH`)."""

_Longs = npt.NDArray[np.int64]
_Queue = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Blank:
    """The record that closes a file: where it stands, and all that is left of the file."""

    commit_log_offset: int
    size: int


@dataclass(frozen=True)
class Placed:
    """A batch with its places. described: with final offsets, times and tags codes. blanks: those that stand before or between
    its records. lifted: indexes of the records whose storeTimestamp was raised.
    """

    described: Described
    blanks: tuple[Blank, ...]
    lifted: _Longs


class Times(Enum):
    """What to do with a storeTimestamp that goes back from one record to the next: a broker expects them to ascend."""

    REFUSE = "refuse"
    ALLOW = "allow"
    LIFT = "lift"
    """Raise it to the one before: for times that nobody gave."""


@dataclass
class Density:
    """Whether records that carry commitLogOffsets stand as in a log: one behind the other, each file from its start on.

    `holds`: so far. `first`: the first record's place. `end`: just behind the last one.
    """

    file_size: int
    expected: int | None = None
    holds: bool = True
    first: int = NO_PLACE
    end: int = NO_PLACE

    def add(self, described: Described) -> None:
        if not self.holds or not len(described):
            return
        offsets = described.records["commitLogOffset"]
        sizes = described.records["size"].astype(np.int64)
        if self.first == NO_PLACE:
            self.first = int(offsets[0])
            self.end = self.expected if self.expected is not None else self.first // self.file_size * self.file_size
        ends = np.concatenate([[self.end], (offsets + sizes)[:-1]])
        next_file = (ends + self.file_size - 1) // self.file_size * self.file_size
        fits = offsets % self.file_size + sizes + BLANK_HEAD <= self.file_size
        self.holds = bool((((offsets == ends) | (offsets == next_file)) & (offsets >= 0) & fits).all())
        self.end = int(offsets[-1] + sizes[-1])


@dataclass
class Placer:
    """Gives places to batches of records, in log order.

    file_size: of a commitlog file. log_end: where the next record goes. last_timestamp: the highest storeTimestamp (ms) of a
    record. end_timestamp: the last record's.
    next_offsets: of the queues that are there already. keep_places, keep_offsets: take the commitLogOffsets (then `Density` has
    said that they hold) and queueOffsets that the records have.
    """

    file_size: int
    log_end: int = 0
    last_timestamp: int = 0
    next_offsets: Mapping[_Queue, int] = field(default_factory=dict)
    keep_places: bool = False
    keep_offsets: bool = False
    times: Times = Times.REFUSE

    def __post_init__(self) -> None:
        self.end_timestamp = self.last_timestamp
        self._known = dict(self.next_offsets)
        self._numbers: dict[_Queue, int] = {}
        self._next = np.empty(0, np.int64)
        self._first = np.empty(0, np.int64)

    def place(self, described: Described) -> Placed:
        """The batch with its places.

        Errors: OptionError for a record that no file holds, a storeTimestamp that goes back, a gap inside a queue.
        """
        records = described.records.copy()
        lifted = self._times(records, described)
        offsets, blanks = self._pack(records, described)
        records["commitLogOffset"] = offsets
        records["queueOffset"] = self._number(records, described)
        self._check_light(described)
        return Placed(replace(described, records=records), blanks, lifted)

    def queues(self) -> dict[_Queue, tuple[int, int]]:
        """(first, next) queueOffset of every queue that records were placed in; first is that of the first placed one."""
        firsts, nexts = self._first.tolist(), self._next.tolist()
        return {queue: (firsts[i], nexts[i]) for queue, i in self._numbers.items() if firsts[i] >= 0}

    # --- time

    def _times(self, records: npt.NDArray[np.void], described: Described) -> _Longs:
        times = records["storeTimestamp"]
        if not len(times):
            return np.empty(0, np.int64)
        highest = np.maximum(np.maximum.accumulate(times), self.last_timestamp)
        late = np.flatnonzero(times < highest) if self.times is not Times.ALLOW else np.empty(0, np.int64)
        if len(late) and self.times is Times.REFUSE:
            i = int(late[0])
            before = max(self.last_timestamp, int(times[:i].max()) if i else 0)
            raise OptionError(
                f"{_of(described, i)}: storeTimestamp {int(times[i])} ms is {before - int(times[i])} ms before the one of the "
                "message in front of it, and a broker expects them to ascend along the log. Sort the rows by commitLogOffset "
                "or storeTimestamp, or set allowUnorderedTimes=true"
            )
        if len(late):
            raised = highest[late] - times[late]
            # a delayed message's tagsCode is its time of delivery, counted from its storeTimestamp
            parked = np.array([topic == SCHEDULE_TOPIC for topic, _ in described.queues], np.bool_)
            code = records["tagsCode"]
            moves = parked[records["queue"][late]] & (code[late] >= times[late])
            code[late] += np.where(moves, raised, 0)
            times[late] = highest[late]
        self.last_timestamp, self.end_timestamp = int(highest[-1]), int(times[-1])
        return late

    # --- commitLogOffset

    def _pack(self, records: npt.NDArray[np.void], described: Described) -> tuple[_Longs, tuple[Blank, ...]]:
        sizes = records["size"].astype(np.int64)
        room = self.file_size - BLANK_HEAD
        if len(sizes) and int(sizes.max()) > room:
            i = int(sizes.argmax())
            raise OptionError(
                f"{_of(described, i)}: the record takes {int(sizes[i])} bytes, and a commitlog file of {self.file_size} bytes "
                f"holds at most {room}. Choose a larger mappedFileSizeCommitLog"
            )
        if self.keep_places:
            return self._kept(records["commitLogOffset"], sizes)
        offsets = np.empty(len(sizes), np.int64)
        blanks = []
        ends = np.cumsum(sizes)
        at = placed = 0
        while placed < len(sizes):
            left = self.file_size - self.log_end % self.file_size
            fit = int(np.searchsorted(ends, at + left - BLANK_HEAD, side="right"))
            if fit == placed:
                blanks.append(Blank(self.log_end, left))
                self.log_end += left
                continue
            offsets[placed:fit] = self.log_end - at + ends[placed:fit] - sizes[placed:fit]
            self.log_end += int(ends[fit - 1]) - at
            at, placed = int(ends[fit - 1]), fit
        return offsets, tuple(blanks)

    def _kept(self, offsets: _Longs, sizes: _Longs) -> tuple[_Longs, tuple[Blank, ...]]:
        if not len(offsets):
            return offsets, ()
        ends = np.concatenate([[self.log_end], (offsets + sizes)[:-1]])
        closed = np.flatnonzero(offsets != ends)
        self.log_end = int(offsets[-1] + sizes[-1])
        blanks = zip(ends[closed].tolist(), (offsets - ends)[closed].tolist(), strict=True)
        return offsets, tuple(Blank(at, size) for at, size in blanks)

    # --- queueOffset

    def _number(self, records: npt.NDArray[np.void], described: Described) -> _Longs:
        given = records["queueOffset"]
        counted = np.flatnonzero(has_queue_entry(records["sysFlag"]))
        numbers: _Longs = np.where(given == NO_PLACE, 0, given)  # of those that do not count
        if not len(counted):
            return numbers
        queues = self._register(described.queues)[records["queue"][counted]]
        numbered = self._count(queues, given[counted], self.keep_offsets)
        if self.keep_offsets and len(wrong := np.flatnonzero(given[counted] != numbered)):
            i = int(counted[wrong[0]])
            _refuse(_of(described, i), int(given[i]), int(numbered[wrong[0]]))
        numbers[counted] = numbered
        return numbers

    def _count(self, queues: _Longs, given: _Longs, keep: bool) -> _Longs:
        """The next numbers of `queues`, one for each. A queue that has none yet begins at its first of `given`, else at 0."""
        order = np.argsort(queues, kind="stable")
        grouped = queues[order]
        starts = np.flatnonzero(np.concatenate([[True], grouped[1:] != grouped[:-1]]))
        lengths = np.diff(np.append(starts, len(grouped)))
        which = grouped[starts]
        begin = self._next[which]
        begin = np.where(begin == NO_PLACE, given[order[starts]] if keep else 0, begin)
        self._next[which] = begin + lengths
        self._first[which] = np.where(self._first[which] == NO_PLACE, begin, self._first[which])
        numbers = np.empty(len(queues), np.int64)
        numbers[order] = np.repeat(begin, lengths) + np.arange(len(grouped)) - np.repeat(starts, lengths)
        return numbers

    def _register(self, queues: tuple[_Queue, ...]) -> npt.NDArray[np.int64]:
        """The number in `_next` of each of `queues`."""
        fresh = [queue for queue in queues if queue not in self._numbers]
        if fresh:
            for queue in fresh:
                self._numbers[queue] = len(self._numbers)
            self._next = np.append(self._next, [self._known.get(queue, NO_PLACE) for queue in fresh]).astype(np.int64)
            self._first = np.append(self._first, [NO_PLACE] * len(fresh)).astype(np.int64)
        return np.array([self._numbers[queue] for queue in queues], np.int64)

    def _check_light(self, described: Described) -> None:
        """Light message queues (LMQ): their numbers stand in the messages, so they can only be kept."""
        light = described.light
        if not len(light):
            return
        given = light["queueOffset"]
        numbered = self._count(self._register(described.queues)[light["queue"]], given, keep=True)
        if len(wrong := np.flatnonzero(given != numbered)):
            i = int(wrong[0])
            name, queue_id = described.queues[int(light["queue"][i])]
            raise OptionError(
                f"light message queue {name!r}, queue {queue_id}: INNER_MULTI_QUEUE_OFFSET says {int(given[i])} where "
                f"{int(numbered[i])} is expected. Its numbers stand in the messages, so they can't be given anew: write all of "
                "its messages, or leave INNER_MULTI_DISPATCH out of them"
            )


def _refuse(where: str, found: int, expected: int) -> None:
    if found > expected:
        raise OptionError(
            f"{where}: queueOffset {found} follows where {expected} is expected; the {found - expected} messages between are "
            "missing, and a queue has no holes. Bring them, or set renumber=true to number the messages anew"
        )
    raise OptionError(
        f"{where}: queueOffset {found} follows where {expected} is expected; a queue's messages have to come in the order of "
        "their queueOffsets, each once, behind those that the store has. Sort the rows by commitLogOffset, or set "
        "renumber=true to number the messages anew"
    )


def _of(described: Described, i: int) -> str:
    topic, queue_id = described.queues[int(described.records["queue"][i])]
    return f"topic {topic!r}, queue {queue_id}"
