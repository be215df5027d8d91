"""Plans as values: what a read touches, cut into tasks. Frozen, picklable, printable; nothing here reads a byte.

A plan may touch too much, never too little: every row is checked again against the conditions (`Spec.where`, `Spec.selection`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from store_core.decode import Context
from store_core.indexfile import OpenIndex
from store_core.journal import Moment, Unpublished
from store_core.light import LightSlice
from store_core.options import ReadOptions
from store_core.predicates import Predicate
from store_core.queues import Queue
from store_core.segments import Log, Segment
from store_core.selection import Selection

if TYPE_CHECKING:
    from store_core.files import Files

__all__ = [
    "EntrySlice",
    "IndexRows",
    "LogRange",
    "MissingRange",
    "Piece",
    "Places",
    "Plan",
    "QueueRows",
    "QueueSlice",
    "Spec",
    "StoreFacts",
    "Task",
    "VerifyIndex",
    "VerifyLog",
    "VerifyQueue",
    "VerifyStore",
    "joined",
    "pack",
]


@dataclass(frozen=True)
class LogRange:
    """Walk: the records of `segment` that start in [start, stop). `origin`: a place not behind `start` where a record, or a
    gap, begins; whether one begins at `start` too is known only where both are the same.
    """

    segment: Segment
    start: int
    stop: int
    origin: int

    @property
    def cost(self) -> int:
        return self.stop - self.start

    def __str__(self) -> str:
        return f"walk {self.segment.path} [{self.start}, {self.stop})"


@dataclass(frozen=True)
class MissingRange:
    """Log bytes [start, stop) that no file holds, though files before and behind them are there."""

    path: str
    start: int
    stop: int
    reason: str

    @property
    def cost(self) -> int:
        return 0

    def __str__(self) -> str:
        return f"report [{self.start}, {self.stop}): {self.reason}"


@dataclass(frozen=True)
class QueueSlice:
    """Gather: the records of a queue's entries with queueOffset in [first, stop)."""

    queue: Queue
    first: int
    stop: int
    cost: int

    def __str__(self) -> str:
        return f"gather queue {self.queue.topic}/{self.queue.queue_id} [{self.first}, {self.stop})"


@dataclass(frozen=True)
class EntrySlice:
    """Messages told from a queue's entries with queueOffset in [first, stop) alone: where, how large, of which queue."""

    queue: Queue
    first: int
    stop: int

    @property
    def cost(self) -> int:
        return (self.stop - self.first) * self.queue.unit_size

    def __str__(self) -> str:
        return f"tell by the entries of queue {self.queue.topic}/{self.queue.queue_id} [{self.first}, {self.stop})"


@dataclass(frozen=True)
class Places:
    """Gather: the records at these commitLogOffsets, ascending. Where no record stands there is none to give.

    `named`: nothing but the question says that records start there, so that it has to be found out.
    """

    offsets: tuple[int, ...]
    named: bool = False

    @property
    def cost(self) -> int:
        return 4096 * len(self.offsets)

    def __str__(self) -> str:
        shown = ", ".join(map(str, self.offsets[:5])) + (", ..." if len(self.offsets) > 5 else "")
        return f"read {len(self.offsets)} records at {shown}"


@dataclass(frozen=True)
class QueueRows:
    """The entries of a queue with queueOffset in [first, stop), as rows of the queue table."""

    queue: Queue
    first: int
    stop: int
    cost: int

    def __str__(self) -> str:
        return f"entries of {self.queue.topic}/{self.queue.queue_id} [{self.first}, {self.stop})"


@dataclass(frozen=True)
class IndexRows:
    """The entries numbered [first, stop) of an index file, as rows of the index table.

    `before`: the file in front of it, if that one's last message goes on in this one.
    """

    index: OpenIndex
    first: int
    stop: int
    before: OpenIndex | None = None

    @property
    def cost(self) -> int:
        return 1024 * (self.stop - self.first)

    def __str__(self) -> str:
        return f"entries [{self.first}, {self.stop}) of {self.index.path}"


@dataclass(frozen=True)
class VerifyStore:
    """Check: names and lengths of files, what stands in `config/`, the checkpoint."""

    cost: int = 1 << 20

    def __str__(self) -> str:
        return "check the store's files, config and checkpoint"


@dataclass(frozen=True)
class VerifyLog:
    """Check: the records of `segment` that start in [start, stop), and their entries in queues and index."""

    segment: Segment
    start: int
    stop: int

    @property
    def cost(self) -> int:
        return self.stop - self.start

    def __str__(self) -> str:
        return f"check {self.segment.path} [{self.start}, {self.stop})"


@dataclass(frozen=True)
class VerifyQueue:
    """Check: whether the entries of a queue with queueOffset in [first, stop) lead to its records."""

    queue: Queue
    first: int
    stop: int
    cost: int

    def __str__(self) -> str:
        return f"check entries of {self.queue.topic}/{self.queue.queue_id} [{self.first}, {self.stop})"


@dataclass(frozen=True)
class VerifyIndex:
    """Check: the header, slots and chains of an index file."""

    index: OpenIndex

    @property
    def cost(self) -> int:
        return 4 * self.index.slots + 20 * self.index.entries

    def __str__(self) -> str:
        return f"check {self.index.path}"


Piece = (
    LogRange
    | MissingRange
    | QueueSlice
    | EntrySlice
    | Places
    | QueueRows
    | IndexRows
    | VerifyStore
    | VerifyLog
    | VerifyQueue
    | VerifyIndex
)


@dataclass(frozen=True)
class StoreFacts:
    """What the tasks of a check share. `root`: None for a commitlog alone. `indexes`: those that can be read, oldest first,
    whose ranges ascend.

    `unread_index`: whether there are others. `topics`: those of topics.json, None where it can't tell. `usual_length`: bytes of
    most commitlog files. `overlaps`: commitlog files left out of the log, each with the file that holds its offsets too.
    """

    root: str | None
    queues: tuple[Queue, ...]
    indexes: tuple[OpenIndex, ...]
    unread_index: bool
    topics: frozenset[str] | None
    abort: bool
    usual_length: int
    has_records: bool
    overlaps: tuple[tuple[Segment, Segment], ...] = ()


@dataclass(frozen=True)
class Task:
    """Pieces that one worker reads, in order. `cost`: about how many bytes of the store that touches."""

    pieces: tuple[Piece, ...]

    @property
    def cost(self) -> int:
        return sum(piece.cost for piece in self.pieces)


@dataclass(frozen=True)
class Spec:
    """What all tasks of a plan share.

    `columns`: the result's, in order. `where` and `selection`: conditions on each row. `records_until`: the base offset of the
    last segment that holds records. `walked`: log ranges that other tasks walk, so that a task that falls back to walking
    leaves them out.
    """

    root: str
    table: str
    log: Log
    options: ReadOptions
    schema: pa.Schema
    where: tuple[Predicate, ...] = ()
    selection: Selection = field(default_factory=Selection)
    broker_name: str | None = None
    records_until: int = -1
    walked: tuple[tuple[int, int], ...] = ()
    facts: StoreFacts | None = None
    """Of the table verify."""
    light: tuple[LightSlice, ...] = ()
    """Where not empty: of a walk's records only those that were dispatched to one of these light message queues count."""
    moment: Moment | None = None
    """Of what moment the plan is."""

    @property
    def unpublished(self) -> Unpublished | None:
        """What a writer had not published yet, though it stands in the files."""
        return None if self.moment is None else self.moment.unpublished

    def with_facts(self, facts: StoreFacts, records_until: int) -> Spec:
        """The spec of a check."""
        return replace(self, facts=facts, records_until=records_until)

    def context(self, source_file: str | None) -> Context:
        """What decoding a batch of this read has to know."""
        return Context(
            source_file=source_file,
            store_path=self.root,
            broker_name=self.broker_name,
            raw_body=self.options.body_format == "raw",
            max_decompressed_size=self.options.max_decompressed_size,
        )


@dataclass(frozen=True)
class Plan:
    """A read, ready to be run task by task, here or on other machines that see the same paths."""

    spec: Spec
    tasks: tuple[Task, ...]
    notes: tuple[str, ...] = ()

    @property
    def schema(self) -> pa.Schema:
        return self.spec.schema

    def read(self, task: Task, files: Files | None = None) -> Iterator[pa.RecordBatch]:
        """The rows of one task. See `execute.read_task`."""
        from store_core.execute import read_task

        return read_task(self.spec, task, files)

    def explain(self) -> str:
        """What is read, what is skipped, and why; one fact a line."""
        lines = [f"table {self.spec.table} of {self.spec.root}", f"columns: {', '.join(self.schema.names)}"]
        if self.spec.where:
            lines.append("where: " + " and ".join(map(str, self.spec.where)))
        lines += self.notes
        cost = sum(task.cost for task in self.tasks)
        lines.append(f"{len(self.tasks)} task{'' if len(self.tasks) == 1 else 's'}, about {cost:,} bytes")
        pieces = [piece for task in self.tasks for piece in task.pieces]
        lines += [f"  {piece}" for piece in pieces[:_SHOWN]]
        if len(pieces) > _SHOWN:
            lines.append(f"  ... and {len(pieces) - _SHOWN} more")
        return "\n".join(lines)


_SHOWN = 20


def joined(tasks: Iterable[Task]) -> Iterator[Piece]:
    """The pieces of all tasks, in order, for one that reads them all: ranges of the log that were cut are one again."""
    held: LogRange | None = None
    for task in tasks:
        for piece in task.pieces:
            if held is not None:
                if isinstance(piece, LogRange) and (piece.segment, piece.start) == (held.segment, held.stop):
                    held = replace(held, stop=piece.stop)
                    continue
                yield held
            held = piece if isinstance(piece, LogRange) else None
            if held is None:
                yield piece
    if held is not None:
        yield held


def pack(pieces: list[Piece], most: int) -> tuple[Task, ...]:
    """Neighbouring pieces put together to tasks of at most `most` bytes each, or one piece where that is larger."""
    tasks: list[Task] = []
    held: list[Piece] = []
    size = 0
    for piece in pieces:
        if held and size + piece.cost > most:
            tasks.append(Task(tuple(held)))
            held, size = [], 0
        held.append(piece)
        size += piece.cost
    if held:
        tasks.append(Task(tuple(held)))
    return tuple(tasks)
