"""What a store is that is about to be appended to: where its log ends, its queues' next numbers, its sizes, its habits.

Queues and index must account for all of the log, since what is appended goes behind them: a store whose broker was killed may
have to be rebuilt first.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from store_core.checkpoint import abort_exists
from store_core.config import TopicConfig, batch_topics, read_topics
from store_core.coverage import cover
from store_core.describe import describe_parts, has_queue_entry
from store_core.errors import CorruptStoreError, StoreLockedError, UnsupportedStoreError
from store_core.files import Files, on_other_disk
from store_core.indexbuild import found_index_sizes
from store_core.indexfile import IndexDamage, OpenIndex, chain, list_index_files, open_index
from store_core.layout import BLANK_MAGIC, SEPARATOR_PAIR
from store_core.listing import list_store
from store_core.options import parse_options
from store_core.queuebuild import found_queue_file_size
from store_core.queues import Queue, bounds, list_queues, read_entries, rocksdb_queue
from store_core.reading import Found, Gap, last_segment_with_records, read_places, read_range
from store_core.records import record_at
from store_core.segments import Framing, Log
from store_core.writeoptions import WriteOptions

__all__ = ["Existing", "Fingerprint", "fingerprint", "read_existing"]

_REBUILD: Final = "Make them anew with store_core.rebuild(path), then append"
_SAMPLE: Final = 64

Fingerprint = tuple[int, int, int, int]
"""(first commitLogOffset, where the records end, the last one's storeTimestamp, number of files): a store that was written to
has another one.
"""


@dataclass(frozen=True)
class Existing:
    """A store as it is before an append. log_end: where the next record goes (commitLogOffset). last_timestamp: the last
    record's storeTimestamp (ms). next_offsets: of each queue that has files. batch_topics: those of batch queues, with files
    or not yet. habits: what `WriteOptions.settled` takes. torn: behind log_end stands what a broker did not finish. unclean:
    `abort` exists.
    """

    root: str
    log: Log
    log_end: int
    last_timestamp: int
    next_offsets: dict[tuple[str, int], int]
    batch_topics: frozenset[str]
    topics: dict[str, TopicConfig]
    habits: dict[str, int | bool | None]
    torn: bool
    unclean: bool
    fingerprint: Fingerprint


def fingerprint(files: Files, root: str) -> Fingerprint:
    """What tells whether a store was written to in between; of any store that can be read. Walks its last file."""
    return _fingerprint(list_store(files, root, parse_options({})).log, _end_of_log(files, root, None))


def read_existing(files: Files, root: str, options: WriteOptions) -> Existing:
    """The store in `root`, which nobody writes to now.

    Errors: StoreLockedError for one that was not stopped cleanly, unless `allow_unclean`; UnsupportedStoreError for a kind that
    can't be appended to; CorruptStoreError for damage, and for queues or an index that do not reach the log's end.
    """
    unclean = abort_exists(files, root)
    if unclean and not options.allow_unclean:
        raise StoreLockedError(
            f"{root}: the file abort exists, so a broker runs on this store or did not stop cleanly. Stop the broker; if it is "
            "stopped, start and stop it once so that it recovers the store, or set allowUnclean=true"
        )
    if (folder := on_other_disk(root, ("commitlog", "consumequeue", "index", "config"))) is not None:
        raise UnsupportedStoreError(
            f"{folder} stands on another file system than {root}. New files are made in the store's root and moved to their "
            "places at once, which can't be done between file systems: copy the store into one, and append there"
        )
    log = _plain_log(files, root)
    queues = list_queues(files, root)
    last_unit, next_offsets = _queue_ends(files, queues)
    end = _end_of_log(files, root, last_unit)
    if end.undispatched is not None:
        raise CorruptStoreError(
            f"its queues end before the log does: the record at commitLogOffset {end.undispatched} has no queue entry",
            path=root,
            hint=_REBUILD,
        )
    if unclean:
        _check_queues(files, root, log, queues, end.offset)
        _check_index(files, root, log, end.offset)
    topics = read_topics(files, root).value
    habits: dict[str, int | bool | None] = {
        "mapped_file_size_commit_log": log.segments[0].length if len(log) else None,
        "mapped_file_size_consume_queue": found_queue_file_size(files, root),
        **_index_sizes(files, root, options),
        **_habits(files, root, log, queues, next_offsets),
    }
    return Existing(
        root,
        log,
        end.offset,
        end.timestamp,
        next_offsets,
        batch_topics(topics) | {queue.topic for queue in queues if queue.batch},
        topics,
        habits,
        end.torn,
        unclean,
        _fingerprint(log, end),
    )


@dataclass(frozen=True)
class _End:
    offset: int
    timestamp: int
    torn: bool
    undispatched: int | None
    """The first record behind the queues' last one that should have an entry."""


def _fingerprint(log: Log, end: _End) -> Fingerprint:
    return log.min_offset, end.offset, end.timestamp, len(log)


def _plain_log(files: Files, root: str) -> Log:
    listing = list_store(files, root, parse_options({}))
    folder = os.path.join(root, "commitlog")
    if listing.root is None:
        raise UnsupportedStoreError(f"{root} is a commitlog alone. Give the store's root, {os.path.dirname(root)}")
    if (database := rocksdb_queue(files, root)) is not None:
        raise UnsupportedStoreError(
            f"{root}: its queues are a RocksDB ({database}), which can't be written. Read the store, and write a new one"
        )
    if any(segment.framing is Framing.DLEDGER for segment in listing.log):
        raise UnsupportedStoreError(f"{root} is a DLedger store, which can't be appended to. Read it, and write a new one")
    elsewhere = {os.path.dirname(segment.path) for segment in listing.log} - {folder}
    if elsewhere:
        raise UnsupportedStoreError(
            f"{root}: its commitlog stands in {', '.join(sorted(elsewhere))} too, and only one in {folder} can be appended to"
        )
    sizes = {segment.length for segment in listing.log}
    if len(sizes) > 1:
        raise CorruptStoreError(
            f"its files have the sizes {sorted(sizes)}, and a broker wants them all alike",
            path=folder,
            hint="Read the store, and write a new one",
        )
    return listing.log


# --- queues --------------------------------------------------------------------------------------------------------------
def _queue_ends(files: Files, queues: Sequence[Queue]) -> tuple[int, dict[tuple[str, int], int]]:
    """(the commitLogOffset of the last record that has an entry, -1 for none; each queue's next offset)."""
    last = -1
    following: dict[tuple[str, int], int] = {}
    for queue in queues:
        _, end = bounds(files, queue, 0)
        if not queue.batch:
            following[queue.topic, queue.queue_id] = end
        for _, entries in read_entries(files, queue, min_phys=0, first=max(end - 1, 0), stop=end):
            last = max(last, int(entries.commit_log_offset.max()))
    return last, following


def _check_queues(files: Files, root: str, log: Log, queues: Sequence[Queue], end: int) -> None:
    """Errors: CorruptStoreError where a record up to the log's `end` lacks its queue entry. After a power loss that may be one
    of any queue, however far the others reach.
    """

    def stands(start: int, stop: int) -> bool:
        head = record_at(files, log, start)
        return head is not None and start + head.size == stop

    gaps = cover(files, queues, log, check=stands).gaps
    for found in _walk(files, log, [(start, min(stop, end)) for start, stop in gaps]):
        if isinstance(found, Gap):
            if not found.is_tail:
                raise _damaged(found)
            continue
        missing = found.parts.header("commitLogOffset")[has_queue_entry(found.parts.header("sysFlag"))]
        if len(missing):
            raise CorruptStoreError(
                f"a queue lacks entries: the record at commitLogOffset {int(missing[0])} has none", path=root, hint=_REBUILD
            )


# --- the log's end ---------------------------------------------------------------------------------------------------------
def _walk(files: Files, log: Log, ranges: Iterable[tuple[int, int]]) -> Iterator[Found | Gap]:
    """The records of ranges of commitLogOffsets that begin where a record stands or a file begins."""
    until = last_segment_with_records(files, log)
    for start, stop in ranges:
        for segment in log:
            if segment.end_offset > start and segment.base_offset <= until and segment.base_offset < stop:
                first = max(start, segment.base_offset)
                behind = segment.base_offset < until
                yield from read_range(files, log, segment, first, stop, aligned=True, records_behind=behind)


def _damaged(gap: Gap) -> CorruptStoreError:
    return CorruptStoreError(
        f"{gap.reason}; records stand behind it",
        path=gap.segment.path,
        offset=gap.start - gap.segment.base_offset,
        hint="Read the store with mode DROPMALFORMED, and write a new one",
    )


def _end_of_log(files: Files, root: str, last_unit: int | None) -> _End:
    """The end of the records. last_unit: the last record that has a queue entry (-1 for none), where that is to be checked."""
    log = list_store(files, root, parse_options({})).log
    start = max(last_segment_with_records(files, log), log.min_offset)
    if last_unit is not None:
        if last_unit >= 0 and record_at(files, log, last_unit) is None:
            raise CorruptStoreError(
                f"a queue entry leads to commitLogOffset {last_unit}, where no record stands", path=root, hint=_REBUILD
            )
        start = max(last_unit, log.min_offset)
    offset, timestamp, torn, undispatched = start, 0, False, None
    for found in _walk(files, log, [(start, log.max_offset)]):
        if isinstance(found, Gap):
            if not found.is_tail and last_unit is not None:
                raise _damaged(found)
            torn = found.is_tail
            continue
        offsets = found.parts.header("commitLogOffset")
        offset = int(offsets[-1]) + int(found.parts.heads["storeSize"][-1])
        timestamp = max(timestamp, int(found.parts.header("storeTimestamp").max()))
        if last_unit is not None and undispatched is None:
            behind = offsets[has_queue_entry(found.parts.header("sysFlag")) & (offsets > last_unit)]
            undispatched = int(behind[0]) if len(behind) else None
    segment = log.find(offset)
    if segment is not None:
        head = files.read(segment.path, offset - segment.base_offset, 8)
        if int.from_bytes(head[4:8], "big", signed=True) == BLANK_MAGIC:
            offset = segment.end_offset
    return _End(offset, timestamp, torn, undispatched)


# --- index -------------------------------------------------------------------------------------------------------------------
def _opened(files: Files, root: str, max_phys: int) -> list[OpenIndex]:
    found = [open_index(files, listed, max_phys=max_phys) for listed in reversed(list_index_files(files, root))]
    return [index for index in found if isinstance(index, OpenIndex) and index.entries]


def _index_sizes(files: Files, root: str, options: WriteOptions) -> dict[str, int | bool | None]:
    sizes = found_index_sizes(files, root, options.max_hash_slot_num, options.max_index_num)
    return {} if sizes is None else {"max_hash_slot_num": sizes[0], "max_index_num": sizes[1]}


def _check_index(files: Files, root: str, log: Log, end: int) -> None:
    """Errors: CorruptStoreError where a record behind the index's last one has keys."""
    newest = _opened(files, root, end + 1)
    last = newest[0].end_phy_offset if newest else -1
    start = last if last >= 0 and record_at(files, log, last) is not None else log.min_offset
    for found in _walk(files, log, [(start, log.max_offset)]):
        if isinstance(found, Gap):
            continue
        records = describe_parts(found.parts, index_tags=False).records
        missing = records["commitLogOffset"][(records["keyCount"] > 0) & (records["commitLogOffset"] > last)]
        if len(missing):
            raise CorruptStoreError(
                f"its index ends before the log does: the record at commitLogOffset {int(missing[0])} is not in it",
                path=root,
                hint=_REBUILD,
            )


# --- habits ------------------------------------------------------------------------------------------------------------------
def _habits(
    files: Files, root: str, log: Log, queues: Sequence[Queue], ends: Mapping[tuple[str, int], int]
) -> dict[str, int | bool | None]:
    """Whether the broker that wrote last indexed tags, and closed the last property: by a few of the last records."""
    habits: dict[str, int | bool | None] = {"index_tags": None, "last_separator": None}
    places: list[tuple[int, int]] = []
    for queue in queues:
        if not (queue.is_lmq or queue.batch) and len(places) < _SAMPLE * _SAMPLE:
            end = ends[queue.topic, queue.queue_id]
            for _, entries in read_entries(files, queue, min_phys=log.min_offset, first=max(end - _SAMPLE, 0), stop=end):
                places += zip(entries.commit_log_offset.tolist(), entries.size.tolist(), strict=True)
    chosen = np.array(sorted(set(places))[-_SAMPLE:], np.int64).reshape(-1, 2)
    indexes = _opened(files, root, log.max_offset)
    for found in read_places(files, log, chosen[:, 0].copy(), chosen[:, 1].copy()):
        if not isinstance(found, tuple):
            continue
        parts = found[0].parts
        filled = np.flatnonzero(parts.properties_length > 0)
        plain = describe_parts(parts, index_tags=False)
        for i in filled[~plain.records["hasCrc"][filled]].tolist():
            last = parts.properties_start[i] + parts.properties_length[i] - 1
            habits["last_separator"] = bool(parts.data[last] == SEPARATOR_PAIR)
        tagged = describe_parts(parts, index_tags=True)
        habits["index_tags"] = _indexes_tags(files, indexes, plain.records, tagged.records, tagged.key_hashes, habits)
    return habits


def _indexes_tags(
    files: Files,
    indexes: list[OpenIndex],
    plain: npt.NDArray[np.void],
    tagged: npt.NDArray[np.void],
    hashes: npt.NDArray[np.int32],
    habits: dict[str, int | bool | None],
) -> int | bool | None:
    ends = np.cumsum(tagged["keyCount"])
    for i in np.flatnonzero(tagged["keyCount"] > plain["keyCount"])[::-1].tolist():
        offset = int(tagged["commitLogOffset"][i])
        for index in indexes:
            if index.begin_phy_offset <= offset <= index.end_phy_offset:
                try:  # the tag is the last of a message's keys
                    return bool((chain(files, index, int(hashes[ends[i] - 1])).commit_log_offset == offset).any())
                except IndexDamage:
                    continue
    return habits["index_tags"]
