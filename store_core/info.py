"""What is in a store, from its listing, queue files and a few heads; or, if asked to be exact, from a walk of the whole log."""

from __future__ import annotations

from collections import Counter
from dataclasses import astuple
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from store_core.checkpoint import abort_exists, read_checkpoint
from store_core.config import read_consumer_offsets, read_topics
from store_core.layout import CHECKPOINT, MAGIC_V2
from store_core.queues import Queue, bounds, read_entries
from store_core.records import read_head
from store_core.segments import Framing

if TYPE_CHECKING:
    from store_core.store import Store

__all__ = ["describe"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
_ROCKSDB_TRANSACTIONS: Final = "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC"


def describe(store: Store, exact: bool) -> dict[str, Any]:
    """See `Store.info`."""
    notes: list[str] = []
    queues, counts = _queues(store, notes)
    opened, faults = store.open_indexes(store.options) if store.root is not None else ([], [])
    notes += [f"index file {fault.path} can't be used: {fault.reason}" for fault in faults]
    checkpoint = read_checkpoint(store.files, store.root) if store.root is not None else None
    abort = store.root is not None and abort_exists(store.files, store.root)
    log = store.log
    found: dict[str, Any] = {
        "path": store.path,
        "layout": _layout(store),
        "brokerName": store.broker_name,
        "versions": {"records": sorted({_version(store, s.base_offset + s.lead) for s in log} - {""}), "signs": _signs(store)},
        "clean": not abort,
        "abort": abort,
        "checkpoint": None if checkpoint is None else dict(zip(CHECKPOINT.names or (), astuple(checkpoint), strict=True)),
        "commitLog": {
            "files": len(log),
            "minOffset": log.min_offset,
            "maxOffset": log.max_offset,
            "bytes": log.total_bytes,
            "dataBytes": store.data_size(log.min_offset, log.max_offset),
        },
        "firstStoreTimestamp": _time(next((t for t in store.first_times if t is not None), None)),
        "lastStoreTimestamp": _last_time(store),
        "messages": sum(counts.values()) if store.has_queues else None,
        "countedFrom": "queue entries" if store.has_queues else "nothing: info(exact=True) walks the log",
        "topics": queues,
        "index": {"files": len(opened) + len(faults), "entries": sum(f.entries for f in opened)},
        "consumers": _consumers(store, notes),
    }
    if not store.has_queues:
        notes.append(store.why_no_queues)
    if exact:
        _walk(store, found)
    found["notes"] = notes
    return found


def _layout(store: Store) -> str:
    folders = {s.path.rpartition("/")[0] for s in store.log}
    framings = {s.framing for s in store.log}
    name = "DLedger" if Framing.DLEDGER in framings else "multi-path" if len(folders) > 1 else "plain"
    return name if store.root is not None else f"{name}, commitlog alone"


def _version(store: Store, offset: int) -> str:
    head = read_head(store.files, store.log, offset)
    segment = store.log.find(offset)
    if head is None or segment is None:
        return ""
    magic = store.files.read(segment.path, offset - segment.base_offset + 4, 4)
    return "V2" if int.from_bytes(magic, "big", signed=True) == MAGIC_V2 else "V1"


def _signs(store: Store) -> list[str]:
    """What tells which brokers opened the store; nothing in a store names its version."""
    signs: list[str] = []
    if store.root is None:
        return signs
    if any(e.is_dir and e.name == "rocksdbstore" for e in store.files.list(store.root)):
        signs.append("5.4.0 or later opened it: rocksdbstore/ is there")
    elif _ROCKSDB_TRANSACTIONS in read_topics(store.files, store.root).value:
        signs.append(f"5.4.0 or later opened it: {_ROCKSDB_TRANSACTIONS} is in topics.json")
    checkpoint = read_checkpoint(store.files, store.root)
    if checkpoint is not None and checkpoint.logics_physical_offset:
        signs.append("5.5.0 or later wrote it: the checkpoint has a logicsPhysicalOffset")
    return signs


def _queues(store: Store, notes: list[str]) -> tuple[dict[str, Any], Counter[str]]:
    topics: dict[str, Any] = {}
    counts: Counter[str] = Counter()
    for queue in store.queues:
        first, stop = bounds(store.files, queue, store.log.min_offset, notes)
        size = stop - first
        if not queue.is_lmq:  # its entries repeat other queues'
            counts[queue.topic] += size
        topic = topics.setdefault(queue.topic, {"messages": 0, "queues": {}})
        topic["messages"] += size
        topic["queues"][queue.queue_id] = {"minOffset": first, "maxOffset": stop}
    return topics, counts


def _last_time(store: Store) -> datetime | None:
    """The time of the record that the furthest queue entry leads to; without queues, of the index's last record."""
    furthest = max((_last_place(store, queue) for queue in store.queues), default=-1)
    if furthest < 0 and store.root is not None:
        furthest = max((f.end_phy_offset for f in store.open_indexes(store.options)[0]), default=-1)
    head = read_head(store.files, store.log, furthest) if furthest >= 0 else None
    return None if head is None else _time(head.store_timestamp)


def _last_place(store: Store, queue: Queue) -> int:
    _, stop = bounds(store.files, queue, store.log.min_offset)
    places = [
        int(entries.commit_log_offset[-1])
        for _, entries in read_entries(store.files, queue, min_phys=store.log.min_offset, first=stop - 1)
    ]
    return max(places, default=-1)


def _time(ms: int | None) -> datetime | None:
    try:
        return None if ms is None else _EPOCH + timedelta(milliseconds=ms)
    except OverflowError:
        return None


def _consumers(store: Store, notes: list[str]) -> dict[str, dict[str, dict[int, int]]]:
    """Committed offsets: group, topic, queueId -> next queueOffset to consume."""
    found: dict[str, dict[str, dict[int, int]]] = {}
    if store.root is not None:
        loaded = read_consumer_offsets(store.files, store.root)
        notes += loaded.notes
        for (topic, group), offsets in loaded.value.items():
            found.setdefault(group, {})[topic] = offsets
    return found


def _walk(store: Store, found: dict[str, Any]) -> None:
    """Counts and times as they stand in the log itself."""
    messages: Counter[str] = Counter()
    size: Counter[str] = Counter()
    queues: set[tuple[str, int]] = set()
    low: int | None = None
    high: int | None = None
    count = 0
    columns = ["topic", "queueId", "storeSize", "storeTimestamp"]
    for batch in store.scan(columns=columns, table="messages", expandBatches=False):
        count += len(batch)
        grouped = pa.table(batch).group_by(["topic", "queueId"]).aggregate([("storeSize", "sum"), ("storeSize", "count")])
        for row in grouped.to_pylist():
            messages[row["topic"]] += row["storeSize_count"]
            size[row["topic"]] += row["storeSize_sum"]
            queues.add((row["topic"], row["queueId"]))
        times = pc.min_max(batch["storeTimestamp"].view(pa.int64())).as_py()
        if times["min"] is not None:
            low = times["min"] // 1000 if low is None else min(low, times["min"] // 1000)
            high = times["max"] // 1000 if high is None else max(high, times["max"] // 1000)
    found |= {
        "messages": count,
        "countedFrom": "a walk of the log",
        "firstStoreTimestamp": _time(low),
        "lastStoreTimestamp": _time(high),
        "topics": {
            topic: {
                "messages": messages[topic],
                "bytes": size[topic],
                "queues": found["topics"].get(topic, {}).get("queues", {})
                or {queue_id: {} for name, queue_id in sorted(queues) if name == topic},
            }
            for topic in sorted({*messages, *found["topics"]})
        },
    }
