"""Runs the tasks of a plan. The store is never listed again: a task says what to read, and `Spec` what to make of it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from store_core.boundaries import first_in, standing
from store_core.consumequeue import Entries
from store_core.coverage import Coverage
from store_core.decode import Context, columns
from store_core.errors import CorruptStoreError, StoreChangedError, StoreError, StoreWarning
from store_core.files import Files, LocalFiles
from store_core.hashing import string_hash
from store_core.journal import published
from store_core.layout import EXT_ADDRESS_MAX, SCHEDULE_TOPIC
from store_core.light import LightSlice, dispatched
from store_core.lookup import subtract
from store_core.plan import (
    EntrySlice,
    IndexRows,
    LogRange,
    MissingRange,
    Piece,
    Places,
    QueueRows,
    QueueSlice,
    Spec,
    Task,
    VerifyIndex,
    VerifyLog,
    VerifyQueue,
    VerifyStore,
)
from store_core.predicates import Predicate, points_of
from store_core.queues import read_entries, resolve_ext
from store_core.reading import Found, Gap, read_places, read_range
from store_core.records import record_at
from store_core.rows import corrupt_row, message_rows, report_gap
from store_core.segments import Log
from store_core.tables import index_rows, passing_rows, queue_rows
from store_core.verify import verify_rows

__all__ = ["read_task"]

I64 = npt.NDArray[np.int64]
_CHECKS = (VerifyStore, VerifyLog, VerifyQueue, VerifyIndex)


def read_task(spec: Spec, task: Task, files: Files | None = None) -> Iterator[pa.RecordBatch]:
    """The rows of one task, in batches of `spec.schema`. Needs the files at the paths that they were planned with.

    Errors: CorruptStoreError in mode FAILFAST; StoreChangedError where a file is gone or shorter than when it was planned,
    unless failOnDataLoss is false, and where what is read is not of the moment of the plan any more.
    """
    disk = files or published(LocalFiles(), spec.unpublished)
    for piece in task.pieces:
        check = _check(spec, piece)
        try:
            for batch in _READERS[type(piece)](spec, piece, disk):
                check()
                yield batch
        except StoreError as e:
            if spec.moment is not None:
                spec.moment.check()  # where the store is another one, no other error counts
            if spec.options.fail_on_data_loss or not isinstance(e, StoreChangedError):
                raise
            warnings.warn(f"{e}; failOnDataLoss=false: what was left was read", StoreWarning, stacklevel=2)
        check()


def _check(spec: Spec, piece: Piece | None) -> Callable[[], None]:
    """What to do once something was read, before it is believed. piece: None for a walk of the log where it grows.

    An append leaves alone what stands before the log's old end, and the entries of queues and index that were there: a piece
    that is bounded by these has only to be of the same store. A check looks at files as they are now.
    """
    if spec.moment is None:
        return lambda: None
    if isinstance(piece, _CHECKS) or (piece is None and not (spec.unpublished is not None and spec.unpublished.is_old)):
        return spec.moment.check
    return spec.moment.check_place


def _log_range(spec: Spec, piece: LogRange, files: Files) -> Iterator[pa.RecordBatch]:
    behind = piece.segment.base_offset < spec.records_until
    log = Log((piece.segment,))
    check = _check(spec, piece if behind else None)
    start = first_in(files, spec.root, piece.segment, piece.origin, piece.start, piece.stop)
    for found in read_range(files, log, piece.segment, start, piece.stop, aligned=True, records_behind=behind):
        check()
        if isinstance(found, Gap):
            yield from report_gap(spec, files, found)
        elif not spec.light:
            yield from message_rows(spec, found)
        elif len(which := dispatched(found.parts, spec.light)):
            yield from message_rows(spec, Found(found.segment, found.parts.take(which)))
    check()


def _missing_range(spec: Spec, piece: MissingRange, files: Files) -> Iterator[pa.RecordBatch]:
    text = f"{piece.reason}. A file was deleted, cut short or not copied"
    if spec.options.mode == "FAILFAST" and spec.options.fail_on_data_loss:
        hint = "Bring it back, or read what is left with failOnDataLoss=false"
        raise CorruptStoreError(text, path=piece.path, hint=hint)
    if spec.options.mode != "PERMISSIVE":
        warnings.warn(text, StoreWarning, stacklevel=2)
        return
    base = next(segment.base_offset for segment in spec.log if segment.path == piece.path)
    yield from corrupt_row(spec, piece.path, piece.start - base, piece.stop - base, text, None)


def _places(spec: Spec, piece: Places, files: Files) -> Iterator[pa.RecordBatch]:
    if piece.named:
        there = standing(files, spec.root, spec.log, piece.offsets)
    else:
        heads = [record_at(files, spec.log, offset) for offset in piece.offsets]
        there = [head for head in heads if head is not None]
    offsets = np.array([head.offset for head in there], dtype=np.int64)
    sizes = np.array([head.size for head in there], dtype=np.int64)
    for found in read_places(files, spec.log, offsets, sizes):
        if isinstance(found, tuple):
            yield from message_rows(spec, found[0])


def _walk_instead(spec: Spec, files: Files, why: str, more: tuple[Predicate, ...]) -> Iterator[pa.RecordBatch]:
    """Walks the log, but for what other tasks walk; `more` conditions hold as well."""
    warnings.warn(f"{spec.root}: {why}; the log is walked instead", StoreWarning, stacklevel=2)
    spec = replace(spec, where=(*spec.where, *more))
    for low, high in subtract([(spec.log.min_offset, spec.log.max_offset)], spec.walked):
        for segment in spec.log:
            first, last = max(low, segment.base_offset), min(high, segment.end_offset)
            if first < last:
                yield from _log_range(spec, LogRange(segment, first, last, segment.base_offset), files)


def _queue_slice(spec: Spec, piece: QueueSlice, files: Files) -> Iterator[pa.RecordBatch]:
    """A queue's messages. What the entries say is checked on each record; if one lies, the log is walked for this slice."""
    queue = piece.queue
    walked = Coverage(0, spec.walked)
    codes = _tag_codes(spec)
    held: list[pa.RecordBatch] = []
    for _, entries in read_entries(files, queue, min_phys=spec.log.min_offset, first=piece.first, stop=piece.stop):
        keep = ~walked.in_gaps(entries.commit_log_offset)
        if codes is not None and not queue.is_lmq and queue.topic != SCHEDULE_TOPIC:
            tags = entries.tags_code
            if (tags <= EXT_ADDRESS_MAX).any():
                tags = resolve_ext(files, spec.root, queue, tags)
            # an address that leads nowhere says nothing about the tag
            keep &= np.isin(tags, codes) | (tags <= EXT_ADDRESS_MAX)
        entries = entries[keep]
        offsets, sizes, numbers = entries.commit_log_offset, entries.size.astype(np.int64), entries.queue_offset
        if len(offsets) > 1 and not (offsets[1:] > offsets[:-1]).all():
            yield from _slice_by_walk(spec, piece, files, "its entries' commitLogOffsets do not ascend", held)
            return
        for found in read_places(files, spec.log, offsets, sizes):
            if not isinstance(found, tuple):
                at = int(found[0])
                why = f"its entry {int(numbers[at])} leads to {int(offsets[at])}, where no record of that size stands"
                yield from _slice_by_walk(spec, piece, files, why, held)
                return
            records, index = found
            if not queue.is_lmq and (fault := _foreign(queue, records, numbers[index])):
                yield from _slice_by_walk(spec, piece, files, fault, held)
                return
            held.extend(message_rows(spec, records))
        # rows are given once their whole batch of entries has been found true
        yield from held
        held.clear()
        if len(entries):
            piece = replace(piece, first=int(numbers[-1]) + int(entries.batch_size[-1]))


def _entry_slice(spec: Spec, piece: EntrySlice, files: Files) -> Iterator[pa.RecordBatch]:
    """A queue's messages by its entries. The first and the last of a batch are checked on their records: where they are not
    this queue's, or where the entries between do not ascend, its messages are read.
    """
    queue = piece.queue
    walked = Coverage(0, spec.walked)
    min_phys = spec.log.min_offset
    for _, entries in read_entries(files, queue, min_phys=min_phys, first=piece.first, stop=piece.stop, with_tags=False):
        keep = ~walked.in_gaps(entries.commit_log_offset)
        entries = entries if keep.all() else entries[keep]
        count = len(entries)
        if not count:
            continue
        if not _ends_stand(spec, queue, entries, files):
            yield from _queue_slice(spec, QueueSlice(queue, int(entries.queue_offset[0]), piece.stop, 0), files)
            return
        values = {
            "topic": pa.repeat(pa.scalar(queue.topic), count),
            "queueId": pa.repeat(pa.scalar(queue.queue_id, type=pa.int32()), count),
            "queueOffset": pa.array(entries.queue_offset),
            "commitLogOffset": pa.array(entries.commit_log_offset),
            "storeSize": pa.array(entries.size),
        }
        yield from passing_rows(spec, values, count)


def _ends_stand(spec: Spec, queue: Any, entries: Entries, files: Files) -> bool:
    """Whether the first and the last entry lead to this queue's messages, and those between ascend from one to the other."""
    offsets = entries.commit_log_offset
    if not (offsets[1:] > offsets[:-1]).all():
        return False
    ends = slice(None, None, max(len(offsets) - 1, 1))
    numbers = entries.queue_offset[ends]
    for found in read_places(files, spec.log, offsets[ends], entries.size[ends].astype(np.int64)):
        if not isinstance(found, tuple) or _foreign(queue, found[0], numbers[found[1]]):
            return False
    return True


def _foreign(queue: Any, found: Found, numbers: I64) -> str | None:
    """Why records are not those of the queue's entries, by their own queueId, queueOffset and topic."""
    parts = found.parts
    right = (parts.heads["queueId"] == queue.queue_id) & (parts.heads["queueOffset"] == numbers)
    if right.all():
        topic, _ = columns(parts, ("topic",), Context())
        distinct = topic["topic"].unique()
        if len(distinct) == 1 and distinct[0].as_py() == queue.topic:
            return None
        return f"its entries lead to records of other topics ({', '.join(map(str, distinct.to_pylist()[:3]))})"
    at = int(np.argmin(right))
    heads = parts.heads
    return (
        f"its entry {int(numbers[at])} leads to {int(heads['commitLogOffset'][at])}, "
        f"a record of queueId {int(heads['queueId'][at])} "
        f"and queueOffset {int(heads['queueOffset'][at])}"
    )


def _slice_by_walk(
    spec: Spec, piece: QueueSlice, files: Files, why: str, held: list[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    held.clear()
    queue = piece.queue
    text = f"queue {queue.topic}/{queue.queue_id} can't be trusted: {why}"
    if queue.is_lmq:
        spec = replace(spec, light=(LightSlice(queue.topic, piece.first, piece.stop),))
        yield from _walk_instead(spec, files, text, ())
        return
    more = (
        Predicate("topic", "=", queue.topic),
        Predicate("queueId", "=", queue.queue_id),
        Predicate("queueOffset", ">=", piece.first),
        Predicate("queueOffset", "<", piece.stop),
    )
    yield from _walk_instead(spec, files, text, more)


def _tag_codes(spec: Spec) -> I64 | None:
    """The tagsCodes of the tags asked for, if entries may be left out by them."""
    if spec.options.index != "trust" or spec.options.expand_batches:
        return None
    sets = [set(values) for values in (points_of(spec.where, "tags"), spec.selection.tags) if values is not None]
    if not sets:
        return None
    return np.array([string_hash(tag) for tag in set.intersection(*sets)], dtype=np.int64)


_READERS: dict[type, Callable[[Spec, Any, Files], Iterator[pa.RecordBatch]]] = {
    LogRange: _log_range,
    MissingRange: _missing_range,
    Places: _places,
    QueueSlice: _queue_slice,
    EntrySlice: _entry_slice,
    QueueRows: queue_rows,
    IndexRows: index_rows,
    VerifyStore: verify_rows,
    VerifyLog: verify_rows,
    VerifyQueue: verify_rows,
    VerifyIndex: verify_rows,
}
