"""Rows of the queue table and of the index table.

The index table joins each entry with the message that it points to: its topic, the key string that was indexed, and the
message's own columns. An entry whose message is gone has nulls there.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from store_core.consumequeue import Entries
from store_core.decode import columns
from store_core.files import Files
from store_core.indexfile import IndexEntries, OpenIndex, read_index_entries
from store_core.indextable import key_strings, resolve_entries
from store_core.plan import IndexRows, QueueRows, Spec
from store_core.predicates import mask
from store_core.queues import read_entries, resolve_ext
from store_core.reading import read_places
from store_core.records import record_at
from store_core.rows import report, row_batch, selected, selection_columns
from store_core.schema import INDEX, MESSAGES

__all__ = ["index_rows", "passing_rows", "queue_rows"]

_TAIL: Final = 64


def queue_rows(spec: Spec, piece: QueueRows, files: Files) -> Iterator[pa.RecordBatch]:
    """A row per entry of the queue, as read from its files; entries of records before the log's start are left out."""
    queue = piece.queue
    for file, entries in read_entries(
        files, queue, min_phys=spec.log.min_offset, first=piece.first, stop=piece.stop, batch=10_000
    ):
        count = len(entries)
        values: dict[str, Any] = {
            "topic": pa.repeat(pa.scalar(queue.topic), count),
            "queueId": pa.repeat(pa.scalar(queue.queue_id, type=pa.int32()), count),
            "queueOffset": pa.array(entries.queue_offset),
            "commitLogOffset": pa.array(entries.commit_log_offset),
            "size": pa.array(entries.size),
            "tagsCode": pa.array(_tags(spec, files, queue, entries)),
            "sourceFile": pa.repeat(pa.scalar(file.path), count),
            "batchSize": pa.array(entries.batch_size),
        }
        yield from passing_rows(spec, values, count)


def _tags(spec: Spec, files: Files, queue: Any, entries: Entries) -> npt.NDArray[np.int64]:
    return entries.tags_code if queue.batch else resolve_ext(files, spec.root, queue, entries.tags_code)


def passing_rows(spec: Spec, values: dict[str, pa.Array], count: int) -> Iterator[pa.RecordBatch]:
    """One batch of the rows that pass the conditions."""
    keep = np.ones(count, dtype=bool)
    for predicate in spec.where:
        keep &= np.asarray(
            mask(predicate, values[predicate.column]).fill_null(False).to_numpy(zero_copy_only=False), dtype=bool
        )
    if spec.table != "consumequeue" and (passing := selected(spec.selection, values.__getitem__)) is not None:
        keep &= passing
    chosen = np.flatnonzero(keep)
    if not len(chosen):
        return
    arrays = [values[f.name] if f.name in values else pa.nulls(count, f.type) for f in spec.schema]
    if len(chosen) < count:
        arrays = [array.take(pa.array(chosen)) for array in arrays]
    yield row_batch(arrays, spec.schema, len(chosen))


def index_rows(spec: Spec, piece: IndexRows, files: Files) -> Iterator[pa.RecordBatch]:
    """A row per entry of the piece, in number order."""
    carried = _carried(piece, files)
    for entries in read_index_entries(files, piece.index, piece.first, piece.stop):
        joined = _joined(carried, entries)
        yield from _index_batch(spec, piece, files, joined, len(carried))
        carried = _of_last_message(joined)


def _carried(piece: IndexRows, files: Files) -> IndexEntries:
    """The entries before the piece that belong to its first message: a cut must not change what an entry stands for."""
    first = next(iter(read_index_entries(files, piece.index, piece.first, piece.first + 1)))
    before = [_none()]
    if piece.before is not None:
        before.append(_tail(files, piece.before, piece.before.entries + 1))
    before.append(_tail(files, piece.index, piece.first))
    joined = functools.reduce(_joined, before)
    return _some(joined, joined.commit_log_offset == first.commit_log_offset[:1])


def _tail(files: Files, index: OpenIndex, stop: int) -> IndexEntries:
    """The entries before number `stop` that share the last one's message: a few, read backwards."""
    count = _TAIL
    while stop > 1:
        start = max(stop - count, 1)
        entries = next(iter(read_index_entries(files, index, start, stop, batch=count)))
        last = _of_last_message(entries)
        if start == 1 or len(last) < len(entries):
            return last
        count *= 2
    return _none()


def _none() -> IndexEntries:
    numbers = np.empty(0, dtype=np.int32)
    return IndexEntries(numbers, numbers, np.empty(0, dtype=np.int64), numbers, numbers)


def _of_last_message(entries: IndexEntries) -> IndexEntries:
    """The entries at the end that point to the last entry's message."""
    other = np.flatnonzero(entries.commit_log_offset != entries.commit_log_offset[-1:])
    return _some(entries, slice(int(other[-1]) + 1 if len(other) else 0, None))


def _some(entries: IndexEntries, which: npt.NDArray[np.bool_] | slice) -> IndexEntries:
    return IndexEntries(
        entries.index_no[which],
        entries.key_hash[which],
        entries.commit_log_offset[which],
        entries.time_diff[which],
        entries.prev_index_no[which],
    )


def _joined(before: IndexEntries, after: IndexEntries) -> IndexEntries:
    return IndexEntries(
        np.concatenate([before.index_no, after.index_no]),
        np.concatenate([before.key_hash, after.key_hash]),
        np.concatenate([before.commit_log_offset, after.commit_log_offset]),
        np.concatenate([before.time_diff, after.time_diff]),
        np.concatenate([before.prev_index_no, after.prev_index_no]),
    )


def _index_batch(spec: Spec, piece: IndexRows, files: Files, entries: IndexEntries, carried: int) -> Iterator[pa.RecordBatch]:
    wanted = {*spec.schema.names, *(p.column for p in spec.where), *selection_columns(spec.selection)}
    message_columns = [f.name for f in MESSAGES if f.name in wanted and f.name not in ("topic", "commitLogOffset")]
    needed = {*message_columns, "topic", "keys", "uniqKey", "tags"}
    offsets = np.unique(entries.commit_log_offset)
    places, tables = _messages(spec, files, offsets, sorted(needed))
    own = slice(carried, None)
    count = len(entries) - carried
    slots = max(piece.index.slots, 1)
    values: dict[str, Any] = {
        "sourceFile": pa.repeat(pa.scalar(piece.index.path), count),
        "indexNo": pa.array(entries.index_no[own]),
        "slot": pa.array((entries.key_hash[own] % slots).astype(np.int32)),
        "keyHash": pa.array(entries.key_hash[own]),
        "commitLogOffset": pa.array(entries.commit_log_offset[own]),
        "timeDiff": pa.array(entries.time_diff[own]),
        "prevIndexNo": pa.array(entries.prev_index_no[own]),
    }
    if len(places):
        messages = tables
        strings = key_strings(messages["topic"], messages["uniqKey"], messages["keys"], messages["tags"])
        resolved = resolve_entries(entries.key_hash, entries.commit_log_offset, places, strings, carried=carried)
        at = np.searchsorted(places, entries.commit_log_offset[own])
        at = np.minimum(at, len(places) - 1)
        row = pa.array(at, mask=places[at] != entries.commit_log_offset[own])
        values |= {name: messages[name].take(row) for name in ("topic", *message_columns)}
        values |= {"indexType": resolved.index_type, "key": resolved.key}
    else:
        values |= {f.name: pa.nulls(count, f.type) for f in INDEX if f.name not in values}
    yield from passing_rows(spec, values, count)


def _messages(
    spec: Spec, files: Files, offsets: npt.NDArray[np.int64], names: list[str]
) -> tuple[npt.NDArray[np.int64], dict[str, pa.Array]]:
    """(the offsets that hold a record, ascending; the columns of those records)."""
    heads = [head for offset in offsets.tolist() if (head := record_at(files, spec.log, offset)) is not None]
    there = np.array([head.offset for head in heads], dtype=np.int64)
    sizes = np.array([head.size for head in heads], dtype=np.int64)
    batches: list[dict[str, pa.Array]] = []
    kept = []
    for found in read_places(files, spec.log, there, sizes):
        if not isinstance(found, tuple):
            continue
        records, index = found
        made, bad = columns(records.parts, names, spec.context(records.segment.path))
        for _ in report(spec, records, records.parts, bad):
            pass  # the entry stays, with null for what could not be read
        batches.append(made)
        kept.append(there[index])
    if not batches:
        return np.empty(0, dtype=np.int64), {}
    order = np.argsort(places := np.concatenate(kept), kind="stable")
    merged = {name: pa.concat_arrays([b[name] for b in batches]).take(pa.array(order)) for name in names}
    return places[order], merged
