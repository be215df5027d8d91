"""Located records -> rows of the messages table: conditions checked, columns decoded, what is wrong reported as `mode` says."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from store_core import innerbatch
from store_core.checksums import crc_faults
from store_core.decode import Context, Parts, Unreadable, bodies, columns
from store_core.errors import CorruptStoreError, StoreWarning
from store_core.files import Files
from store_core.plan import Spec
from store_core.predicates import Predicate, mask, true_of_corrupt
from store_core.reading import Found, Gap
from store_core.schema import CORRUPT_TYPE
from store_core.selection import Selection

__all__ = ["corrupt_row", "message_rows", "report", "report_gap", "row_batch", "selected", "selection_columns"]

_RAW_LIMIT: Final = 1 << 20
"""Bytes of a corrupt range that its row holds; the reason says so where there are more."""
_INFLATED: Final = 32 << 20
"""Bytes of decompressed bodies in a batch, and of one more body."""
_MOST_ROWS: Final = 1 << 14
_CHEAP: Final = ("queueId", "queueOffset", "commitLogOffset", "storeTimestamp", "sysFlag", "storeSize", "topic")
_FAILFAST_HINT: Final = "mode=PERMISSIVE gives such ranges as rows and reads on, DROPMALFORMED leaves them out"


def message_rows(spec: Spec, found: Found) -> Iterator[pa.RecordBatch]:
    """The rows of one batch of records that pass the conditions; and, as `mode` says, what could not be read of them."""
    context = spec.context(found.segment.path)
    parts = found.parts
    if spec.options.expand_batches and (batches := innerbatch.is_batch(parts)).any():
        whole = parts.take(np.flatnonzero(batches))
        parts = parts.take(np.flatnonzero(~batches))
        if len(parts):
            yield from _Rows(spec, found, parts, context, None).batches()
        while len(whole):
            inner, source, bad, count = innerbatch.expand(whole, context, _INFLATED)
            yield from report(spec, found, whole, bad)
            for at in range(0, len(inner), _MOST_ROWS):
                some = slice(at, at + _MOST_ROWS)
                yield from _Rows(spec, found, inner.take(some), context, whole.take(source[some])).batches()
            whole = whole.take(slice(count, None))
        return
    yield from _Rows(spec, found, parts, context, None).batches()


class _Rows:
    """Records on their way to rows: columns are made when they are asked for, of the records that are still left.

    `outer`: for inner messages, the record that each of them stands in.
    """

    def __init__(self, spec: Spec, found: Found, parts: Parts, context: Context, outer: Parts | None) -> None:
        self._spec = spec
        self._found = found
        self._context = context
        self._outer = outer
        self._all = parts
        self._parts = parts
        self._keep = np.arange(len(parts))  # which of all parts are left
        self._kept: dict[str, pa.Array] = {}
        self._bad: list[Unreadable] = []
        self._told: set[int] = set()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows. Where their bodies are compressed, no batch has many more bytes of them than `_INFLATED`."""
        cheap, of_bodies = _conditions(self._spec)
        self._choose(cheap)
        squeezed = (of_bodies or "body" in self._spec.schema.names) and not self._context.raw_body
        while squeezed and len(self._parts):
            body, failed, count = bodies(self._parts, self._context, _INFLATED)
            rest = None
            if count < len(self._parts):
                rest = self._parts.take(slice(count, None)), self._keep[count:], _cut(self._kept, slice(count, None))
                self._parts, self._keep = self._parts.take(slice(count)), self._keep[:count]
                self._kept = _cut(self._kept, slice(count))
            self._add("body", body, failed)
            del body
            self._choose(of_bodies)
            yield from self._finish()
            if rest is None:
                break
            self._parts, self._keep, self._kept = rest
        if not squeezed:
            self._choose(of_bodies)
            yield from self._finish()
        yield from self._report()

    def _get(self, name: str) -> pa.Array:
        if name == self._spec.options.corrupt_column:
            return pa.nulls(len(self._parts), CORRUPT_TYPE)
        if name not in self._kept:
            outside = self._outer is not None and name in ("storeSize", "rawRecord")
            made, failed = columns(self._source() if outside else self._parts, (name,), self._context)
            self._add(name, made[name], failed)
        return self._kept[name]

    def _add(self, name: str, made: pa.Array, failed: Iterable[Unreadable]) -> None:
        self._kept[name] = made
        self._bad.extend(Unreadable(int(self._keep[f.index]), f.reason, f.hint) for f in failed)

    def _source(self) -> Parts:
        """The records that stand in the log."""
        return self._parts if self._outer is None else self._outer.take(self._keep)

    def _choose(self, conditions: Iterable[Callable[[Get], Mask]]) -> None:
        for condition in conditions:
            if not len(self._parts):
                return
            passes = condition(self._get)
            if passes is None:
                continue
            chosen = np.flatnonzero(passes)
            if len(chosen) < len(self._parts):
                self._parts, self._keep = self._parts.take(chosen), self._keep[chosen]
                self._kept = {name: array.take(pa.array(chosen)) for name, array in self._kept.items()}

    def _finish(self) -> Iterator[pa.RecordBatch]:
        """The rows of the records that are left, and what is known of those that can't be read."""
        names = [name for name in self._spec.schema.names if name != self._spec.options.corrupt_column]
        count = len(self._parts)
        if count:
            for name in names:
                self._get(name)
            if self._spec.options.verify_crc:
                self._bad.extend(Unreadable(int(self._keep[f.index]), f.reason) for f in crc_faults(self._source()))
        kept = self._kept
        if self._bad:
            yield from self._report()
            good = np.flatnonzero(~np.isin(self._keep, [f.index for f in self._bad]))
            kept = {name: kept[name].take(pa.array(good)) for name in names} if count else {}
            count = len(good)
        if count:
            arrays = [kept[f.name] if f.name in kept else pa.nulls(count, f.type) for f in self._spec.schema]
            yield row_batch(arrays, self._spec.schema, count)

    def _report(self) -> Iterator[pa.RecordBatch]:
        fresh = [fault for fault in self._bad if fault.index not in self._told]
        if fresh:
            self._told.update(fault.index for fault in fresh)
            yield from report(self._spec, self._found, self._all if self._outer is None else self._outer, fresh)


def _cut(kept: dict[str, pa.Array], which: slice) -> dict[str, pa.Array]:
    return {name: array[which] for name, array in kept.items()}


def row_batch(arrays: list[pa.Array], schema: pa.Schema, count: int) -> pa.RecordBatch:
    """A batch of `count` rows, also where no column is asked for but only how many rows there are."""
    if arrays:
        return pa.RecordBatch.from_arrays(arrays, schema=schema)
    return pa.RecordBatch.from_struct_array(pa.Array.from_buffers(pa.struct([]), count, [None]))


# --- conditions ----------------------------------------------------------------------------------------------------------

Get = Callable[[str], pa.Array]
Mask = npt.NDArray[np.bool_] | None


def _conditions(spec: Spec) -> tuple[list[Callable[[Get], Mask]], list[Callable[[Get], Mask]]]:
    """(all conditions on a row but those on its body, cheap columns first; those on its body)."""
    ordered = sorted(spec.where, key=lambda p: _CHEAP.index(p.column) if p.column in _CHEAP else len(_CHEAP))
    checks: list[Callable[[Get], Mask]] = [functools.partial(_meets, p) for p in ordered if p.column != "body"]
    if spec.selection != Selection():
        checks.append(lambda get: selected(spec.selection, get))
    return checks, [functools.partial(_meets, p) for p in ordered if p.column == "body"]


def _meets(predicate: Predicate, get: Get) -> Mask:
    return _true(mask(predicate, get(predicate.column)))


def _true(found: pa.BooleanArray) -> npt.NDArray[np.bool_]:
    return np.asarray(found.fill_null(False).to_numpy(zero_copy_only=False), dtype=bool)


def selection_columns(selection: Selection) -> set[str]:
    """The columns that the selection's check looks at."""
    asked: set[str] = set()
    selected(selection, lambda name: asked.add(name) or _EMPTY[name])  # type: ignore[func-returns-value]
    return asked


def selected(selection: Selection, get: Get) -> Mask:
    """Which rows the selection's options let through, by the rows' own values."""
    checks: list[npt.NDArray[np.bool_]] = []
    start, end = selection.starting_timestamp, selection.ending_timestamp
    if start is not None or end is not None:
        ms = np.asarray(get("storeTimestamp").view(pa.int64())) // 1000
        checks += [ms >= start] if start is not None else []
        checks += [ms < end] if end is not None else []
    for column, values in (
        ("uniqKey", selection.uniq_keys),
        ("offsetMsgId", selection.offset_msg_ids),
        ("tags", selection.tags),
    ):
        if values is not None:
            checks.append(_true(pc.is_in(get(column), value_set=pa.array(values, type=pa.string()))))
    if selection.keys is not None:
        checks.append(_has_token(get("keys"), selection.keys))
    by_topic = selection.subscribe is not None or selection.subscribe_pattern is not None or selection.assign is not None
    if by_topic or selection.starting_offsets or selection.ending_offsets:
        checks.append(_in_queues(selection, get("topic"), get("queueId"), get("queueOffset")))
    return np.logical_and.reduce(checks) if checks else None


def _has_token(keys: pa.StringArray, wanted: Iterable[str]) -> npt.NDArray[np.bool_]:
    """Whether any of `wanted` is among the tokens of KEYS, which stand between single spaces."""
    lists = pc.split_pattern(keys, pattern=" ")
    hit = pc.is_in(lists.flatten(), value_set=pa.array(list(wanted), type=pa.string()))
    rows = np.asarray(pc.list_parent_indices(lists))[_true(hit)]
    found = np.zeros(len(keys), dtype=bool)
    found[rows] = True
    return found


def _in_queues(selection: Selection, topic: pa.Array, queue_id: pa.Array, queue_offset: pa.Array) -> npt.NDArray[np.bool_]:
    """A batch has few queues: the options are asked once for each."""
    coded = topic.dictionary_encode()
    topics = coded.dictionary.to_pylist()
    ids, offsets = np.asarray(queue_id), np.asarray(queue_offset)
    both = np.asarray(coded.indices, dtype=np.int64) << 32 | (ids.astype(np.int64) & 0xFFFFFFFF)
    found = np.zeros(len(ids), dtype=bool)
    for each in np.unique(both):
        rows = np.flatnonzero(both == each)
        name, queue = topics[int(each) >> 32], int(ids[rows[0]])
        if not selection.takes(name, queue):
            continue
        start, end = selection.start_of(name, queue), selection.end_of(name, queue)
        inside = np.ones(len(rows), dtype=bool)
        if start is not None:
            inside &= offsets[rows] >= start
        if end is not None:
            inside &= offsets[rows] < end
        found[rows] = inside
    return found


_EMPTY: Final[dict[str, Any]] = {
    "storeTimestamp": pa.array([], type=pa.timestamp("us", "UTC")),
    "queueId": pa.array([], type=pa.int32()),
    "queueOffset": pa.array([], type=pa.int64()),
    **{name: pa.array([], type=pa.string()) for name in ("uniqKey", "offsetMsgId", "tags", "keys", "topic")},
}


# --- what can't be read --------------------------------------------------------------------------------------------------


def report(spec: Spec, found: Found, parts: Parts, bad: Iterable[Unreadable]) -> Iterator[pa.RecordBatch]:
    """The records whose content can't be given, as `mode` says."""
    for fault in sorted({f.index: f for f in bad}.values(), key=lambda f: f.index):
        start = int(parts.heads["commitLogOffset"][fault.index]) - found.segment.base_offset
        raw = parts.record(fault.index)
        yield from _corrupt(spec, found.segment.path, start, start + len(raw), fault.reason, fault.hint, raw)


def report_gap(spec: Spec, files: Files, gap: Gap) -> Iterator[pa.RecordBatch]:
    """A range that holds no record, as `mode` says. A log's end is never an error: a broker's recovery ends there too."""
    start, end = gap.start - gap.segment.base_offset, gap.end - gap.segment.base_offset
    size = end - start
    if gap.is_tail:
        text = (
            f"{gap.segment.path}: the log ends at byte {start} (commitLogOffset {gap.start}); the {size} bytes behind are no "
            f"record ({gap.reason}). A broker's recovery would cut the log here"
        )
        warnings.warn(text, StoreWarning, stacklevel=2)
        if spec.options.mode != "PERMISSIVE" or gap.reason.startswith("stale"):
            return
    raw = files.read(gap.segment.path, start, min(size, _RAW_LIMIT))
    reason = gap.reason if size <= _RAW_LIMIT else f"{gap.reason} (raw holds the first {_RAW_LIMIT} of {size} bytes)"
    if gap.is_tail:
        yield from corrupt_row(spec, gap.segment.path, start, end, reason, raw)
    else:
        yield from _corrupt(spec, gap.segment.path, start, end, reason, None, raw)


def _corrupt(
    spec: Spec, path: str, start: int, end: int, reason: str, hint: str | None, raw: bytes
) -> Iterator[pa.RecordBatch]:
    if spec.options.mode == "FAILFAST":
        full = f"bytes [{start}, {end}) can't be read as messages: {reason}"
        raise CorruptStoreError(full, path=path, offset=start, hint=f"{hint}. {_FAILFAST_HINT}" if hint else _FAILFAST_HINT)
    if spec.options.mode == "PERMISSIVE":
        yield from corrupt_row(spec, path, start, end, reason, raw)
    else:
        warnings.warn(f"{path}: bytes [{start}, {end}) were left out: {reason}", StoreWarning, stacklevel=2)


def corrupt_row(spec: Spec, path: str, start: int, end: int, reason: str, raw: bytes | None) -> Iterator[pa.RecordBatch]:
    """One row: all columns null but the corrupt record's; so it passes only conditions that null passes, and no selection."""
    column = spec.options.corrupt_column
    if not true_of_corrupt(spec.where, column) or spec.selection != Selection():
        warnings.warn(f"{path}: bytes [{start}, {end}) could not be read: {reason}", StoreWarning, stacklevel=2)
        return
    value = {"file": path, "start": start, "end": end, "reason": reason, "raw": raw}
    arrays = [pa.array([value], type=CORRUPT_TYPE) if f.name == column else pa.nulls(1, f.type) for f in spec.schema]
    yield row_batch(arrays, spec.schema, 1)
