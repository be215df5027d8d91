"""Check: what is no matter of single records. Names and lengths of files, missing files, config, checkpoint, abort."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from store_core.checkpoint import abort_exists, read_checkpoint
from store_core.config import read_consumer_offsets, read_delay_offsets, read_topics
from store_core.errors import CorruptStoreError
from store_core.files import Files
from store_core.findings import ERROR, WARNING, Finding
from store_core.indexfile import Unusable, list_index_files, open_index
from store_core.layout import CHECKPOINT, CHECKPOINT_SIZE, SCHEDULE_TOPIC
from store_core.plan import Spec, StoreFacts
from store_core.queues import bounds, rocksdb_queue
from store_core.reading import Found, read_range
from store_core.records import Head, read_head
from store_core.segments import Log, parse_name

__all__ = ["check_store", "last_record"]

_CHECKPOINT_LAG_MS: Final = 3_000
"""A broker keeps that much of a margin itself (`StoreCheckpoint#getMinTimestamp`)."""

_SYSTEM_TOPICS: Final = ("RMQ_SYS_", "rmq_sys_", SCHEDULE_TOPIC, "OFFSET_MOVED_EVENT", "TRANS_CHECK_MAX_TIME_TOPIC")
"""A broker adds these at every start (`TopicConfigManager`); not all versions write them to topics.json."""


def check_store(spec: Spec, facts: StoreFacts, files: Files) -> Iterator[Finding]:
    """The findings about the store as a whole."""
    yield from _log_files(spec, facts, files)
    if facts.root is None:
        return
    yield from _queue_files(facts, files, facts.root)
    yield from _index_files(spec, facts, files, facts.root)
    if abort_exists(files, facts.root):
        yield Finding("abort", f"{facts.root}/abort", None, None, "no such file, after a clean stop", "it is there", WARNING)
    yield from _checkpoint(spec, facts, files, facts.root)
    yield from _config(spec, facts, files, facts.root)


# --- files ---------------------------------------------------------------------------------------------------------------


def _log_files(spec: Spec, facts: StoreFacts, files: Files) -> Iterator[Finding]:
    for segment, other in facts.overlaps:
        stop = min(segment.length, other.end_offset - segment.base_offset)
        found = f"commitLogOffsets from {segment.base_offset} on, which {other.path} holds too; this file was not checked"
        yield Finding("overlap", segment.path, 0, max(stop, 0), "offsets that no other file holds", found)
    usual = facts.usual_length
    for segment in spec.log:
        if segment.length != usual:
            low, high = sorted((segment.length, usual))
            yield Finding(
                "file-length", segment.path, low, high, f"{usual} bytes, as most commitlog files", _bytes(segment.length)
            )
    for before, after in itertools.pairwise(spec.log):
        start = max(before.end_offset, before.base_offset + usual)  # a file that is too short is a finding of its own
        if start < after.base_offset:
            count = -(-(after.base_offset - start) // max(usual, 1))
            expected = f"{count} file{'s' * (count > 1)} with commitLogOffsets [{start}, {after.base_offset})"
            yield Finding("gap", after.path, None, None, expected, f"{before.path} is the file before")
    folders = {s.path.rpartition("/")[0] for s in spec.log}
    for folder in sorted(folders):
        yield from _strays(files, folder)


def _strays(files: Files, folder: str) -> Iterator[Finding]:
    entries = [e for e in files.list(folder) if not e.is_dir]
    for i, entry in enumerate(entries):
        if parse_name(entry.name) is None:
            found = f"a file of {_bytes(entry.size)} with another name"
            yield Finding("stray-file", entry.path, None, None, "files named by 20 digits only", found)
        elif not entry.size:
            severity = WARNING if i == len(entries) - 1 else ERROR
            yield Finding("empty-file", entry.path, None, None, "a file of the usual length", "0 bytes", severity)


def _queue_files(facts: StoreFacts, files: Files, root: str) -> Iterator[Finding]:
    if (database := rocksdb_queue(files, root)) is not None and not facts.queues:
        yield Finding("queue-unread", database, None, None, "queue files", "a RocksDB", WARNING)
    elif not facts.queues and facts.has_records:
        yield Finding("queue-none", f"{root}/consumequeue", None, None, "a queue for each topic in the log", "no queue files")
    for batch in (False, True):
        queues = [q for q in facts.queues if q.batch == batch]
        lengths = Counter(file.length for queue in queues for file in queue.files)
        usual = max(lengths, key=lambda length: (lengths[length], length), default=0)
        for queue in queues:
            for file in queue.files:
                if file.length != usual:
                    low, high = sorted((file.length, usual))
                    yield Finding(
                        "file-length", file.path, low, high, f"{usual} bytes, as most queue files", _bytes(file.length)
                    )
                if not batch and file.base_offset % queue.unit_size:
                    expected = f"a multiple of {queue.unit_size}, the bytes of a unit"
                    yield Finding("stray-file", file.path, None, None, expected, f"a name that says {file.base_offset}")
            yield from _strays(files, queue.files[0].path.rpartition("/")[0])


def _index_files(spec: Spec, facts: StoreFacts, files: Files, root: str) -> Iterator[Finding]:
    listed = list_index_files(files, root)
    for entry in files.list(f"{root}/index"):
        if not entry.is_dir and not entry.name.isdigit():
            expected = "files named by a time, 17 digits"
            consequence = "None: a broker passes over index files whose names are no numbers."
            yield Finding("stray-file", entry.path, None, None, expected, "another name", WARNING, consequence)
    if not listed and facts.has_records:
        yield Finding("index-none", f"{root}/index", None, None, "index files", "none", WARNING)
    used = {index.path for index in facts.indexes}
    for file in listed:
        opened = open_index(
            files,
            file,
            max_hash_slot_num=spec.options.max_hash_slot_num,
            max_index_num=spec.options.max_index_num,
            max_phys=spec.log.max_offset,
        )
        if isinstance(opened, Unusable):
            yield Finding(
                "index-header", file.path, 0, 40, "counts, times and offsets that fit the file and the log", opened.reason
            )
        elif opened.entries and file.path not in used:
            found = (
                f"commitLogOffsets {opened.begin_phy_offset} to {opened.end_phy_offset}, in front of where another file ends"
            )
            yield Finding("index-unread", file.path, 0, 40, "index files one behind the other", found)


# --- checkpoint ----------------------------------------------------------------------------------------------------------


def last_record(spec: Spec, facts: StoreFacts, files: Files) -> Head | None:
    """The last record of the log. What the index leads to saves a walk of the file's beginning."""
    segment = next((s for s in spec.log if s.base_offset == spec.records_until), None)
    if segment is None:
        return None
    start, aligned = segment.base_offset, True
    for index in facts.indexes:
        if segment.base_offset < index.end_phy_offset < segment.end_offset and read_head(files, spec.log, index.end_phy_offset):
            start = index.end_phy_offset - segment.lead
    last = -1
    for found in read_range(files, Log((segment,)), segment, start, segment.end_offset, aligned=aligned, records_behind=False):
        if isinstance(found, Found):
            last = int(found.parts.heads["commitLogOffset"][-1])
    return read_head(files, spec.log, last) if last >= 0 else None


def _checkpoint(spec: Spec, facts: StoreFacts, files: Files, root: str) -> Iterator[Finding]:
    path = f"{root}/checkpoint"
    size = files.size(path)
    found = read_checkpoint(files, root)
    if found is None or size is None:
        return
    if size != CHECKPOINT_SIZE:
        consequence = "None where it is shorter: a broker maps 4096 bytes and reads zeros for what is missing."
        low, high = sorted((size, CHECKPOINT_SIZE))
        yield Finding("file-length", path, low, high, _bytes(CHECKPOINT_SIZE), _bytes(size), WARNING, consequence)
    last = last_record(spec, facts, files)
    if last is None:
        return
    index_end = max((f.end_timestamp for f in facts.indexes), default=0)
    places: Any = CHECKPOINT.fields
    for name, value, limit, what in (
        ("physicMsgTimestamp", found.physic_msg_timestamp, last.store_timestamp, "the last record's storeTimestamp"),
        ("logicsMsgTimestamp", found.logics_msg_timestamp, last.store_timestamp, "the last record's storeTimestamp"),
        ("indexMsgTimestamp", found.index_msg_timestamp, index_end, "the last index file's endTimestamp"),
        ("confirmPhyOffset", found.confirm_phy_offset, last.offset + last.size, "the log's end"),
        ("logicsPhysicalOffset", found.logics_physical_offset, last.offset, "the last record's commitLogOffset"),
    ):
        at = int(places[name][1])
        if value > limit and not (name == "indexMsgTimestamp" and facts.unread_index):
            yield Finding("checkpoint-ahead", path, at, at + 8, f"at most {limit}, {what}", f"{name} {value}")
        elif name == "physicMsgTimestamp" and value < limit - _CHECKPOINT_LAG_MS:
            expected = f"{limit}, {what}, or up to {_CHECKPOINT_LAG_MS} ms before"
            yield Finding("checkpoint-behind", path, at, at + 8, expected, f"{name} {value}", WARNING)


# --- config --------------------------------------------------------------------------------------------------------------


def _config(spec: Spec, facts: StoreFacts, files: Files, root: str) -> Iterator[Finding]:
    ends: dict[tuple[str, int], tuple[int, int]] = {}
    try:
        topics = read_topics(files, root)
        yield from _notes(topics.notes, f"{root}/config/topics.json")
        if topics.paths:
            for queue in facts.queues:
                if queue.is_lmq:
                    continue
                config = topics.value.get(queue.topic)
                first, stop = bounds(files, queue, spec.log.min_offset)
                if config is None:
                    if first < stop and not queue.topic.startswith(_SYSTEM_TOPICS):
                        found = f"{stop - first} messages in queue {queue.queue_id}, and no such topic"
                        yield Finding("topic-missing", topics.paths[0], None, None, f"the topic {queue.topic}", found)
                elif queue.queue_id >= config.read_queue_nums and first < stop and queue.topic != SCHEDULE_TOPIC:
                    expected = f"readQueueNums of at least {queue.queue_id + 1} for {queue.topic}"
                    yield Finding(
                        "topic-queues",
                        topics.paths[0],
                        None,
                        None,
                        expected,
                        f"readQueueNums {config.read_queue_nums}",
                        WARNING,
                    )
    except CorruptStoreError as e:
        yield _unreadable(e, root)
    try:
        consumers = read_consumer_offsets(files, root)
        yield from _notes(consumers.notes, f"{root}/config/consumerOffset.json")
        by_key = {(q.topic, q.queue_id): q for q in facts.queues}
        for (topic, group), offsets in consumers.value.items() if by_key else ():
            for queue_id, offset in offsets.items():
                key = topic, queue_id
                if key not in by_key:
                    continue  # of a topic without messages, or one that was deleted
                if key not in ends:
                    ends[key] = bounds(files, by_key[key], spec.log.min_offset)
                first, stop = ends[key]
                if not first <= offset <= stop:
                    severity = ERROR if offset > stop and not facts.abort else WARNING
                    expected = f"{first} to {stop} for group {group} in {topic}/{queue_id}"
                    yield Finding("consumer-offset", consumers.paths[-1], None, None, expected, f"offset {offset}", severity)
    except CorruptStoreError as e:
        yield _unreadable(e, root)
    try:
        delays = read_delay_offsets(files, root)
        yield from _notes(delays.notes, f"{root}/config/delayOffset.json")
        for level, offset in delays.value.items():
            queue_of = next((q for q in facts.queues if (q.topic, q.queue_id) == (SCHEDULE_TOPIC, level - 1)), None)
            if queue_of is None:
                continue
            first, stop = bounds(files, queue_of, spec.log.min_offset)
            if not first <= offset <= stop:
                expected = f"{first} to {stop} for delay level {level}"
                yield Finding("delay-offset", delays.paths[0], None, None, expected, f"offset {offset}", WARNING)
    except CorruptStoreError as e:
        yield _unreadable(e, root)


def _unreadable(error: CorruptStoreError, root: str) -> Finding:
    return Finding("config", error.path or f"{root}/config", error.offset, None, "a JSON file of this kind", error.reason)


def _notes(notes: tuple[str, ...], path: str) -> Iterator[Finding]:
    for note in notes:
        if "RocksDB" not in note:
            yield Finding("config", path, None, None, "a file that is whole", note, WARNING)


def _bytes(count: int) -> str:
    return f"{count} bytes"
