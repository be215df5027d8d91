"""The table verify: a store checked against itself, in pieces that workers check apart from each other.

Every record is read once for itself (CRCs, order), for its queue entry and for its keys; every queue entry once for the record
that it leads to; every index file once for its chains.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from store_core.checkpoint import abort_exists
from store_core.config import read_topics
from store_core.errors import CorruptStoreError, UnsupportedStoreError
from store_core.files import Files
from store_core.findings import Finding, as_batch
from store_core.indexfile import OpenIndex
from store_core.plan import Piece, Plan, Spec, StoreFacts, VerifyIndex, VerifyLog, VerifyQueue, VerifyStore, pack
from store_core.planparts import piece_size, queue_steps
from store_core.queues import bounds
from store_core.tables import passing_rows
from store_core.verify_index import check_index
from store_core.verify_log import check_log
from store_core.verify_queue import check_queue
from store_core.verify_store import check_store

if TYPE_CHECKING:
    from store_core.store import Store

__all__ = ["plan_verify", "verify_rows"]

_BATCH: Final = 1_000
_RECORD_COST: Final = 1_024
"""About what an entry's record takes to be read."""


def plan_verify(store: Store, spec: Spec) -> Plan:
    """The plan for a check of the whole store."""
    opened, faults = store.open_indexes(spec.options) if store.root is not None else ([], [])
    indexes = _in_order(opened)
    topics = None
    if store.root is not None:
        try:
            loaded = read_topics(store.files, store.root)
            topics = frozenset(loaded.value) if loaded.paths else None
        except CorruptStoreError:
            pass  # a finding of `verify_store`
    lengths = Counter(segment.length for segment in store.log)
    facts = StoreFacts(
        root=store.root,
        queues=store.queues if store.root is not None else (),
        indexes=indexes,
        unread_index=bool(faults) or len(indexes) < len(opened),
        topics=topics,
        abort=store.root is not None and abort_exists(store.files, store.root),
        usual_length=max(lengths, key=lambda length: (lengths[length], length), default=0),
        has_records=store.records_until >= 0,
        overlaps=store.overlaps,
    )
    pieces: list[Piece] = [VerifyStore()]
    log_size = store.log.total_bytes
    size = piece_size(spec, 2 * log_size)
    for segment in store.log:
        for at in range(segment.base_offset, segment.end_offset, size):
            pieces.append(VerifyLog(segment, at, min(at + size, segment.end_offset)))
    for queue in facts.queues:
        first, stop = bounds(store.files, queue, store.log.min_offset)
        step = max(size // _RECORD_COST, 1)
        for low, high in queue_steps(queue, first, stop, step) if first < stop else ():
            pieces.append(VerifyQueue(queue, low, high, (min(high, stop) - max(low, first)) * _RECORD_COST))
    pieces += [VerifyIndex(index) for index in facts.indexes]
    notes = (
        f"{len(store.log)} commitlog files, {len(facts.queues)} queues and {len(indexes)} index files are checked",
        *(f"index file {fault.path} can't be read: {fault.reason}" for fault in faults),
    )
    spec = spec.with_facts(facts, store.records_until)
    return Plan(spec, pack(pieces, size), notes)


def _in_order(opened: list[OpenIndex]) -> tuple[OpenIndex, ...]:
    """The index files whose ranges of the log ascend, as those of a broker do; a copy among them is left out."""
    kept: list[OpenIndex] = []
    for index in sorted(opened, key=lambda f: (f.begin_phy_offset, f.end_phy_offset, f.path)):
        if not kept or index.begin_phy_offset >= kept[-1].end_phy_offset:
            kept.append(index)
    return tuple(kept)


_CHECKS: Final[dict[type, Callable[[Spec, StoreFacts, Any, Files], Iterator[Finding]]]] = {
    VerifyStore: lambda spec, facts, piece, files: check_store(spec, facts, files),
    VerifyLog: check_log,
    VerifyQueue: lambda spec, facts, piece, files: check_queue(spec, piece, files),
    VerifyIndex: check_index,
}


def verify_rows(spec: Spec, piece: Any, files: Files) -> Iterator[pa.RecordBatch]:
    """A row per finding of the piece. Errors: UnsupportedStoreError for a plan that is none of a check."""
    if spec.facts is None:
        raise UnsupportedStoreError("this plan is of another table than verify")
    for findings in _batched(_CHECKS[type(piece)](spec, spec.facts, piece, files)):
        yield from passing_rows(spec, as_batch(findings), len(findings))


def _batched(findings: Iterable[Finding]) -> Iterator[list[Finding]]:
    rest = iter(findings)
    while batch := list(islice(rest, _BATCH)):
        yield batch
