"""Described records for tests, out of made-up stores, and what a plain writer makes of the same messages."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from store_core import open_store
from store_core.describe import describe_parts
from store_core.described import Described
from store_core.files import LocalFiles
from store_core.reading import Found, read_range
from tests.synthetic import Built, Placed
from tests.synthetic.index import build_index
from tests.synthetic.queues import build_queues

__all__ = ["described_of", "expected_index", "expected_queues", "files_below", "pieces"]


def described_of(root: Path, *, index_tags: bool = True) -> list[Described]:
    """All records of a store's log, in the batches in which they are read."""
    log = open_store(root).log
    return [
        describe_parts(found.parts, index_tags=index_tags)
        for segment in log
        for found in read_range(
            LocalFiles(), log, segment, segment.base_offset, segment.end_offset, aligned=True, records_behind=False
        )
        if isinstance(found, Found)
    ]


def pieces(described: Described, cuts: Sequence[int]) -> list[Described]:
    """The same records as several Described, cut in front of these records."""
    bounds = [0, *sorted({min(cut, len(described)) for cut in cuts}), len(described)]
    ends = np.concatenate([[0], np.cumsum(described.records["keyCount"])])
    parts = []
    for start, stop in itertools.pairwise(bounds):
        light = described.light[(described.light["record"] >= start) & (described.light["record"] < stop)].copy()
        light["record"] -= start
        hashes = described.key_hashes[ends[start] : ends[stop]]
        parts.append(Described(described.records[start:stop], hashes, described.queues, light))
    return parts


def expected_queues(records: Sequence[Placed], file_size: int, batch_topics: Sequence[str] = ()) -> dict[str, bytes]:
    """Path below the root -> bytes of each file in consumequeue."""
    queues = build_queues(
        records, file_size=file_size, batch_file_size=4600, ext_file_size=None, batch_topics=tuple(batch_topics)
    )
    return {
        f"{folder}/{base:020d}": bytes(content)
        for folder, queue in queues.items()
        if folder.parts[0] == "consumequeue"
        for base, content in queue.files().items()
    }


def expected_index(built: Built, *, tags: bool, slots: int, capacity: int) -> list[bytes]:
    """The bytes of the index files of all records that are in the log, oldest first."""
    made = build_index(built.records, slots=slots, capacity=capacity, tags=tags, crashes=(), commitlog_size=1)
    return [file.content() for file in made]


def files_below(root: Path, folder: str) -> dict[str, bytes]:
    """Path below `root` -> bytes of each file in one of its folders."""
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted((root / folder).rglob("*")) if path.is_file()}
