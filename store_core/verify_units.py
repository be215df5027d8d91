"""Check: has each record its entry in its queue? Records of a batch against the units at the places that they claim.

What stands there and leads elsewhere is `verify_queue`'s finding, so that one damage is found once; here it is what is not
there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from store_core.decode import Context, Parts, columns
from store_core.files import Files
from store_core.findings import ERROR, WARNING, Finding
from store_core.layout import TRANSACTION_MASK, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from store_core.light import dispatches
from store_core.onekey import read_record
from store_core.plan import Spec, StoreFacts
from store_core.queues import Queue, bounds
from store_core.queueslots import slot_place, units_at

__all__ = ["UnitCheck"]

Int64 = npt.NDArray[np.int64]
_Key = tuple[str, int]


@dataclass
class _Run:
    """Records of one queue without entries, whose queueOffsets [first, last] follow each other."""

    first: int
    last: int
    count: int
    place: int
    """commitLogOffset of the first of them."""
    why: str


class UnitCheck:
    """Over the batches of one log range. `findings` gives what is complete, `rest` what was still open at the end."""

    def __init__(self, spec: Spec, facts: StoreFacts, files: Files) -> None:
        self._spec, self._facts, self._files = spec, facts, files
        self._queues = {(q.topic, q.queue_id): q for q in facts.queues}
        self._topics = {q.topic for q in facts.queues}
        self._open: dict[_Key, _Run] = {}

    def findings(self, parts: Parts) -> Iterator[Finding]:
        """What is missing for these records."""
        if not self._queues:
            return
        kind = parts.heads["sysFlag"] & TRANSACTION_MASK
        rows = np.flatnonzero((kind != TRANSACTION_PREPARED) & (kind != TRANSACTION_ROLLBACK))
        if not len(rows):
            return
        some = parts if len(rows) == len(parts) else parts.take(rows)
        places = some.header("commitLogOffset").astype(np.int64)
        numbers = some.header("queueOffset").astype(np.int64)
        ids = some.header("queueId")
        coded = columns(some, ("topic",), Context())[0]["topic"].dictionary_encode()
        topics = coded.dictionary.to_pylist()
        both = np.asarray(coded.indices.fill_null(-1), dtype=np.int64) << 32 | (ids.astype(np.int64) & 0xFFFFFFFF)
        for each in np.unique(both).tolist():
            at = np.flatnonzero(both == each)
            topic = topics[each >> 32]
            yield from self._queue((topic, int(ids[at[0]])), numbers[at], places[at])
        light: dict[_Key, list[tuple[int, int]]] = {}
        for row, queue, number in dispatches(some):
            if queue in self._queues:  # whether a broker keeps these queues at all is its enableMultiDispatch
                light.setdefault(queue, []).append((number, int(places[row])))
        for queue, pairs in light.items():
            found = np.array(pairs, dtype=np.int64)
            yield from self._queue(queue, found[:, 0], found[:, 1])

    def _queue(self, key: _Key, numbers: Int64, places: Int64) -> Iterator[Finding]:
        order = np.argsort(numbers, kind="stable")
        numbers, places = numbers[order], places[order]
        queue = self._queues.get(key)
        missing = np.ones(len(numbers), dtype=bool)
        whys = dict.fromkeys(range(len(numbers)), "")
        if queue is not None:
            slots = units_at(self._files, queue, numbers)
            missing = ~slots.valid
            for i in np.flatnonzero(slots.valid & (slots.commit_log_offset != places)).tolist():
                other = int(slots.commit_log_offset[i])
                if self._claims(other, key, int(numbers[i])):
                    missing[i] = True
                    whys[i] = f"; the entry there leads to {other}, a record that says it has the same queueOffset"
                elif int(numbers[i]) >= self._end(queue):
                    missing[i] = True
        for i in np.flatnonzero(missing).tolist():
            number, run = int(numbers[i]), self._open.get(key)
            if run is not None and number == run.last + 1 and run.why == whys[i]:
                run.last, run.count = number, run.count + 1
                continue
            if run is not None:
                yield self._finding(key, run)
            self._open[key] = _Run(number, number, 1, int(places[i]), whys[i])

    def rest(self) -> Iterator[Finding]:
        """The runs that no batch has ended."""
        for key, run in self._open.items():
            yield self._finding(key, run)
        self._open.clear()

    def _claims(self, offset: int, key: _Key, number: int) -> bool:
        """Whether the record at `offset` says that it is this one of this queue."""
        record = read_record(self._files, self._spec.log, offset)
        if record is None or (record.values["queueId"], record.values["queueOffset"]) != (key[1], number):
            return False
        return record.topic == key[0].encode("utf-8", "surrogatepass")

    def _end(self, queue: Queue) -> int:
        return bounds(self._files, queue, 0)[1]

    def _finding(self, key: _Key, run: _Run) -> Finding:
        topic, queue_id = key
        queue = self._queues.get(key)
        severity, consequence, why = ERROR, None, run.why
        start: int | None = None
        end: int | None = None
        if queue is None:
            path = f"{self._spec.root}/consumequeue/{topic}/{queue_id}"
            why = "; the queue has no files"
            gone = topic not in self._topics and self._facts.topics is not None and topic not in self._facts.topics
            if gone:
                severity = WARNING
                why = "; the topic has no queues and is not in topics.json: it was deleted, or never made"
                consequence = (
                    "None while the log is not dispatched again: a recovery that walks these records, or a rebuild, makes the "
                    "topic's queues anew."
                )
        else:
            path, start = slot_place(queue, run.first)
            end = None if start is None else start + run.count * queue.unit_size
            if run.first >= self._end(queue):
                why += f"; the queue's entries end at queueOffset {self._end(queue)}"
        if self._facts.abort and (queue is None or run.first >= self._end(queue)):
            severity = WARNING
            consequence = "The recovery that abort brings about dispatches the log it walks again, and adds these entries."
        expected = f"entries for queueOffsets {run.first} to {run.last} of {topic}/{queue_id}"
        found = f"none for {run.count} record{'s' * (run.count > 1)}, the first at commitLogOffset {run.place}{why}"
        return Finding("queue-missing", path, start, end, expected, found, severity, consequence)
