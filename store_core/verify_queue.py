"""Check: does each entry of a queue lead to the record that it stands for?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from store_core.consumequeue import Entries
from store_core.decode import Context, Parts, columns
from store_core.files import Files
from store_core.findings import Finding
from store_core.hashing import tags_code
from store_core.layout import BLANK_MAGIC, EXT_ADDRESS_MAX, SCHEDULE_TOPIC
from store_core.light import dispatches
from store_core.plan import Spec, VerifyQueue
from store_core.queues import Queue, QueueFile, read_entries, resolve_ext
from store_core.reading import read_places
from store_core.records import diagnose, next_record, read_head, record_at
from store_core.segments import Log, Segment

__all__ = ["check_queue"]

Int64 = npt.NDArray[np.int64]

_BATCH: Final = 10_000
_OK, _NOWHERE, _SIZE, _OTHER, _NUMBER, _TAGS = range(6)
_KINDS: Final = {
    _NOWHERE: "queue-nowhere",
    _SIZE: "queue-size",
    _OTHER: "queue-other",
    _NUMBER: "queue-shifted",
    _TAGS: "queue-tags",
}


@dataclass
class _Run:
    """Entries of one kind of fault that follow each other in a file."""

    kind: str
    file: QueueFile
    start: int
    end: int
    count: int
    expected: str
    found: str
    number: int


def check_queue(spec: Spec, piece: VerifyQueue, files: Files) -> Iterator[Finding]:
    """The findings of a slice of a queue; each record that its entries lead to is read."""
    run: _Run | None = None
    before = -1
    entries_of = read_entries(
        files, piece.queue, min_phys=spec.log.min_offset, first=piece.first, stop=piece.stop, batch=_BATCH
    )
    for file, entries in entries_of:
        judged = _Judged(spec, piece.queue, files, entries)
        kinds = judged.kinds(before)
        sound = np.flatnonzero(judged.sound)
        before = int(entries.commit_log_offset[sound].max()) if len(sound) else before
        for i, kind in kinds:
            place = _place(piece.queue, file, entries, i, files)
            number = int(entries.queue_offset[i])
            if run is not None and run.file == file and run.end == place and _same(run.kind, kind):
                run.kind = min(run.kind, kind, key=_SHIFTS.index) if run.kind != kind else kind
                run.end, run.count = place + piece.queue.unit_size, run.count + 1
                continue
            if run is not None:
                yield _finding(run)
            expected, found = judged.words(i)
            run = _Run(kind, file, place, place + piece.queue.unit_size, 1, expected, found, number)
    if run is not None:
        yield _finding(run)


_SHIFTS: Final = ("queue-doubled", "queue-order", "queue-shifted")
"""One damage shows as several of these on neighbours; the first that is among them names it."""


def _same(one: str, other: str) -> bool:
    return one == other or (one in _SHIFTS and other in _SHIFTS)


def _finding(run: _Run) -> Finding:
    found = run.found + (f"; {run.count} entries like that in a row" if run.count > 1 else "")
    return Finding(run.kind, run.file.path, run.start, run.end, run.expected, found)


def _place(queue: Queue, file: QueueFile, entries: Entries, i: int, files: Files) -> int:
    if not queue.batch:
        return int(entries.queue_offset[i]) * queue.unit_size - file.base_offset
    # a batch unit's place is where its bytes are: its number does not say
    wanted = int(entries.commit_log_offset[i]).to_bytes(8, "big")
    data = files.read(file.path, 0, file.length)
    at = data.find(wanted)
    while at >= 0 and at % queue.unit_size:
        at = data.find(wanted, at + 1)
    return max(at, 0)


class _Judged:
    """A batch of entries against their records. `sound`: those that lead to a record of this queue."""

    def __init__(self, spec: Spec, queue: Queue, files: Files, entries: Entries) -> None:
        self._spec, self._queue, self._files, self._entries = spec, queue, files, entries
        self._state = np.zeros(len(entries), dtype=np.int8)
        self._number = np.full(len(entries), -1, dtype=np.int64)
        self._topic: dict[int, str] = {}
        self._tags = np.zeros(len(entries), dtype=np.int64)
        self._judge()
        self.sound = np.isin(self._state, (_OK, _NUMBER, _TAGS))

    def _judge(self) -> None:
        entries = self._entries
        offsets, first = np.unique(entries.commit_log_offset, return_index=True)
        _, inverse = np.unique(entries.commit_log_offset, return_inverse=True)
        sizes = entries.size[first].astype(np.int64)
        state = np.full(len(offsets), _OK, dtype=np.int8)
        for found in read_places(self._files, self._spec.log, offsets, sizes):
            if isinstance(found, tuple):
                self._compare(found[0].parts, found[1], inverse)
            else:
                state[found] = [self._nothing(int(offsets[i]), int(sizes[i])) for i in found.tolist()]
        bad = state[inverse]
        self._state = np.where(bad != _OK, np.where(bad < 0, _OK, bad), self._state).astype(np.int8)
        # of entries that lead to one record, each has its own size
        differs = (self._state == _OK) & (bad == _OK) & (entries.size != sizes[inverse])
        self._state[differs] = _SIZE

    def _nothing(self, offset: int, size: int) -> int:
        """What is wrong where no record of that size stands; -1 where that is the log's fault and not the queue's."""
        log = self._spec.log
        segment = log.find(offset)
        if segment is None:
            return -1 if log.min_offset <= offset < log.max_offset else _NOWHERE
        if record_at(self._files, log, offset) is not None:
            return _SIZE
        return -1 if _is_damaged(self._files, segment, offset, size, self._spec.records_until) else _NOWHERE

    def _compare(self, parts: Parts, index: Int64, inverse: npt.NDArray[np.intp]) -> None:
        """Fills in the state of all entries that lead to these records (`index`: numbers among the distinct places)."""
        queue, entries = self._queue, self._entries
        made, _ = columns(parts, ("topic", "tags"), Context())
        named = np.asarray(_equal(made["topic"], queue.topic)) & (parts.header("queueId") == queue.queue_id)
        numbers = parts.header("queueOffset").astype(np.int64)
        for row, name, number in dispatches(parts):
            if name == (queue.topic, queue.queue_id):
                named[row], numbers[row] = True, number
        order = np.argsort(index)
        at = np.searchsorted(index, inverse, sorter=order)
        at = order[np.minimum(at, len(index) - 1)]
        mine = np.flatnonzero(index[at] == inverse)
        rows = at[mine]
        self._number[mine] = numbers[rows]
        codes = tags_code(made["tags"])
        self._tags[mine] = codes[rows]
        stored = entries.tags_code[mine]
        if (stored <= EXT_ADDRESS_MAX).any() and not queue.batch:
            stored = resolve_ext(self._files, self._spec.root, queue, stored)
        tags_right = (stored == codes[rows]) | (stored <= EXT_ADDRESS_MAX) | (queue.topic == SCHEDULE_TOPIC)
        self._state[mine] = np.where(
            ~named[rows],
            _OTHER,
            np.where(numbers[rows] != entries.queue_offset[mine], _NUMBER, np.where(tags_right, _OK, _TAGS)),
        )
        for i in mine[~named[rows]].tolist()[:1_000]:
            r = int(at[i])
            self._topic[i] = f"{made['topic'][r].as_py()}/{int(parts.header('queueId')[r])}"

    def kinds(self, before: int) -> list[tuple[int, str]]:
        """(entry, kind of finding) in order; `before`: the furthest place of the entries in front."""
        entries, state = self._entries, self._state
        places = np.where(self.sound, entries.commit_log_offset, -1)
        furthest = np.maximum.accumulate(np.concatenate([[before], places]))[:-1]
        late = self.sound & (places <= furthest)
        if not late.any() and (state == _OK).all():
            return []
        seen: set[int] = {before}
        found: list[tuple[int, str]] = []
        for i in np.flatnonzero(self.sound).tolist():
            place = int(places[i])
            if late[i]:
                found.append((i, "queue-doubled" if place in seen else "queue-order"))
            elif state[i] != _OK:
                found.append((i, _KINDS[int(state[i])]))
            seen.add(place)
        found += [(i, _KINDS[int(state[i])]) for i in np.flatnonzero(~self.sound).tolist() if state[i] != _OK]
        return sorted(found)

    def words(self, i: int) -> tuple[str, str]:
        """(expected, found) of one entry."""
        entries, queue = self._entries, self._queue
        number, place, size = int(entries.queue_offset[i]), int(entries.commit_log_offset[i]), int(entries.size[i])
        state = int(self._state[i])
        whole = f"the record of {queue.topic}/{queue.queue_id} with queueOffset {number}"
        entry = f"entry {number} leads to commitLogOffset {place}"
        if state == _NOWHERE:
            outside = self._spec.log.find(place) is None
            return whole, f"{entry}, {'outside of the log' if outside else 'where no record stands'}"
        if state == _SIZE:
            head = read_head(self._files, self._spec.log, place)
            return f"size {head.size if head else '?'}, the record's", f"size {size} in entry {number}"
        if state == _OTHER:
            return whole, f"{entry}, a record of {self._topic.get(i, 'another queue')}"
        if state == _TAGS:
            return f"tagsCode {int(self._tags[i])} in entry {number}", f"tagsCode {int(entries.tags_code[i])}"
        return whole, f"{entry}, the record with queueOffset {int(self._number[i])}"


def _equal(topics: Any, topic: str) -> npt.NDArray[np.bool_]:
    coded = topics.dictionary_encode()
    same = np.array([name == topic for name in coded.dictionary.to_pylist()] + [False])
    return same[np.asarray(coded.indices.fill_null(len(same) - 1))]


def _is_damaged(files: Files, segment: Segment, offset: int, size: int, records_until: int) -> bool:
    """Whether the record that an entry leads to was there, and is what `verify_log` reports as damaged: the next record, a
    file's end or free space begins just where it would end."""
    fault = diagnose(files, segment, offset)
    end = offset + size
    if end > segment.end_offset:
        return fault.was_record
    following = next_record(files, Log((segment,)), segment, offset + 1, end + 1)
    if following is not None:
        return following == end + segment.lead or following == end
    head = files.read(segment.path, end - segment.base_offset, 8)
    closes = int.from_bytes(head[4:8], "big", signed=True) == BLANK_MAGIC
    behind = segment.base_offset < records_until
    return closes or fault.was_record or (behind and fault.what == "zeros")
