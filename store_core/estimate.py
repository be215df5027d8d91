"""About how much a plan gives: rows, and bytes of them in memory. For a query optimizer's choices, not for an account.

Places and entries are counted; a walk's rows are its bytes by the size of the log's first few records. What conditions leave of
them is not guessed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from store_core.files import Files, LocalFiles
from store_core.journal import published
from store_core.plan import EntrySlice, IndexRows, LogRange, Piece, Places, Plan, QueueRows, QueueSlice
from store_core.records import read_head
from store_core.segments import Log

__all__ = ["Estimate", "estimate"]

_SAMPLED: Final = 32
_RECORD: Final = 400
"""Bytes of a record where none can be read."""
_BESIDE_BODY: Final = 300
"""Of a record's bytes, about those that are not its body."""
_TEXT: Final = 24
_NESTED: Final = 200


@dataclass(frozen=True)
class Estimate:
    """rows: about how many. bytes: about what they take in memory with the plan's columns."""

    rows: int
    bytes: int


def estimate(plan: Plan, files: Files | None = None) -> Estimate:
    """Reads the heads of a few records at most."""
    disk = files or published(LocalFiles(), plan.spec.unpublished)
    pieces = [piece for task in plan.tasks for piece in task.pieces]
    few = all(isinstance(piece, Places) for piece in pieces)  # a lookup: not worth another read
    size = _RECORD if few else _record_size(disk, plan.spec.log)
    rows = sum(_rows(disk, piece, size) for piece in pieces)
    return Estimate(rows, rows * _width(plan.schema, size))


def _rows(files: Files, piece: Piece, record: int) -> int:
    if isinstance(piece, (EntrySlice, IndexRows)):
        return piece.stop - piece.first
    if isinstance(piece, QueueRows):
        return piece.cost // piece.queue.unit_size
    if isinstance(piece, QueueSlice):
        return piece.cost // record if piece.queue.batch else piece.stop - piece.first
    if isinstance(piece, Places):
        return len(piece.offsets)
    if isinstance(piece, LogRange):  # a file is as long as its place in the log from the start on; the rest of it is a hole
        base = piece.segment.base_offset
        return -(-files.data_size(piece.segment.path, piece.start - base, piece.stop - base) // record)
    return 0


def _record_size(files: Files, log: Log) -> int:
    """The average size of the first records of a middle segment: they are less far from the others than the log's first."""
    if not len(log):
        return _RECORD
    sizes: list[int] = []
    for i in reversed(range(len(log) // 2 + 1)):
        segment = log.segments[i]
        offset = segment.base_offset + segment.lead
        while len(sizes) < _SAMPLED and (head := read_head(files, log, offset)) is not None:
            sizes.append(head.size)
            offset += head.size + segment.lead
        if sizes:
            break
    return max(sum(sizes) // len(sizes), 1) if sizes else _RECORD


def _width(schema: pa.Schema, record: int) -> int:
    return sum(_field_width(field.type, record) for field in schema)


def _field_width(kind: pa.DataType, record: int) -> int:
    if pa.types.is_binary(kind):
        return max(record - _BESIDE_BODY, _TEXT)
    if pa.types.is_string(kind):
        return _TEXT
    return _NESTED if pa.types.is_nested(kind) else kind.bit_width // 8
