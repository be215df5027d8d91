"""A whole store on disk, as a broker leaves it: log, queues, index, checkpoint, config."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.synthetic.index import IndexFile, build_index
from tests.synthetic.log import LogWriter, Placed
from tests.synthetic.messages import Message
from tests.synthetic.queues import build_queues

__all__ = ["BATCH_TOPIC", "Built", "Options", "build_store"]

BATCH_TOPIC = "Batched"
LAYOUTS = ("plain", "dledger", "multipath")
STALE_TAILS = (None, "tail", "record")


@dataclass(frozen=True, kw_only=True)
class Options:
    """How to build a store. The broker's own options have their own names; sizes are small, so that files roll.

    layout: "plain", "dledger" (`dledger-n0/data`) or "multipath" (`paths` folders `commitlog-0`, `commitlog-1`, ...).
    first_offset: the commitLogOffset the log starts at, a multiple of the file size; first_queue_offset: where queues start.
        Both above 0 are a store whose queues were led to their first entry by fillers.
    expired_files: that many oldest log files are deleted at the end, with the queue and index files a broker would delete too.
    batch_topics: topics with `queue.type=BatchCQ`.
    queue_ext: `enableConsumeQueueExt`.
    index_tags: an index entry for TAGS too (5.4.0 on).
    queue_lag, index_lag: the last records that the queues, the index do not know yet.
    index_crashes: numbers of records behind which the broker was killed (see `build_index`).
    index_holes: numbers of index files that are deleted at the end, taken modulo how many there are; -1 is the last.
    stale_tail: what an old buffer left behind the last record: None, "tail" (of a longer record) or "record" (a whole one).
    stale_blanks: blanks are filled with old records, not with zeros.
    preallocated: there is a next log file, all zeros.
    """

    mappedFileSizeCommitLog: int = 16384
    mappedFileSizeConsumeQueue: int = 400
    mapperFileSizeBatchConsumeQueue: int = 460
    mappedFileSizeConsumeQueueExt: int = 500
    maxHashSlotNum: int = 50
    maxIndexNum: int = 100
    layout: str = "plain"
    paths: int = 3
    first_offset: int = 0
    first_queue_offset: int = 0
    expired_files: int = 0
    batch_topics: tuple[str, ...] = (BATCH_TOPIC,)
    write_queues: bool = True
    write_index: bool = True
    queue_ext: bool = False
    index_tags: bool = False
    queue_lag: int = 0
    index_lag: int = 0
    index_crashes: tuple[int, ...] = ()
    index_holes: tuple[int, ...] = ()
    stale_tail: str | None = None
    stale_blanks: bool = False
    preallocated: bool = False
    checkpoint: bool = True
    abort: bool = False
    config: bool = True

    def __post_init__(self) -> None:
        if self.layout not in LAYOUTS or self.stale_tail not in STALE_TAILS:
            raise ValueError(
                f"layout is one of {LAYOUTS}, stale_tail one of {STALE_TAILS}; got {self.layout}, {self.stale_tail}"
            )
        if self.layout == "dledger" and self.stale_tail:
            raise ValueError("writeWithoutMmap, which leaves a stale tail, does not exist with DLedger")
        if self.first_offset % self.mappedFileSizeCommitLog:
            raise ValueError(f"first_offset {self.first_offset} is no multiple of the file size {self.mappedFileSizeCommitLog}")
        if self.mappedFileSizeConsumeQueue % 20 or self.mapperFileSizeBatchConsumeQueue % 46:
            raise ValueError("a queue file's size is a multiple of 20, a batch queue file's of 46")


@dataclass(frozen=True)
class Built:
    """What `build_store` wrote: the writer's own account, for tests that want one without a reader.

    records: those still in the log. end: the commitLogOffset just behind the last. index: the files that were written.
    """

    root: Path
    options: Options
    records: tuple[Placed, ...]
    end: int
    index: tuple[IndexFile, ...]


def build_store(root: Path, messages: Iterable[Message], **options: Any) -> Built:
    """Writes a store of `messages` into the folder `root`, which is made. Options: the fields of `Options`."""
    chosen = Options(**options)
    log = LogWriter(
        chosen.mappedFileSizeCommitLog,
        chosen.first_offset,
        chosen.layout == "dledger",
        chosen.stale_blanks,
        chosen.first_queue_offset,
    )
    records = log.write(messages)
    if chosen.stale_tail:
        log.leave_tail(chosen.stale_tail)
    if chosen.preallocated:
        log.preallocate()

    expired = sorted(log.files)[: min(chosen.expired_files, len(log.files) - 1)]
    for base in expired:
        del log.files[base]
    start = min(log.files, default=chosen.first_offset)
    for base, content in log.files.items():
        write_file(log_folder(root, chosen, base) / file_name(base), content)

    if chosen.write_queues:
        write_queues(root, records[: max(0, len(records) - chosen.queue_lag)], chosen, start)
    index: list[IndexFile] = []
    if chosen.write_index:
        index = build_index(
            records[: max(0, len(records) - chosen.index_lag)],
            slots=chosen.maxHashSlotNum,
            capacity=chosen.maxIndexNum,
            tags=chosen.index_tags,
            crashes=chosen.index_crashes,
            commitlog_size=chosen.mappedFileSizeCommitLog,
        )
        holes = [number % len(index) for number in chosen.index_holes if index]
        index = [file for number, file in enumerate(index) if number not in holes]
        index = [file for file in index[:-1] if file.endPhyOffset >= start] + index[-1:]
        for file in index:
            write_file(root / "index" / file.name, file.content())

    write_file(root / "lock", b"lock")
    if chosen.abort:
        write_file(root / "abort", b"12345")
    if chosen.checkpoint:
        write_file(root / "checkpoint", checkpoint(records, index, log.end))
    if chosen.config:
        write_config(root / "config", records, chosen)
    kept = tuple(placed for placed in records if placed.commitLogOffset >= start)
    return Built(root, chosen, kept, log.end, tuple(index))


def log_folder(root: Path, options: Options, base: int) -> Path:
    """Where a log file goes (`MultiPathMappedFileQueue` deals them out in turn)."""
    if options.layout == "dledger":
        return root / "dledger-n0" / "data"
    if options.layout == "multipath":
        return root / f"commitlog-{base // options.mappedFileSizeCommitLog % options.paths}"
    return root / "commitlog"


def write_queues(root: Path, records: Sequence[Placed], options: Options, start: int) -> None:
    queues = build_queues(
        records,
        file_size=options.mappedFileSizeConsumeQueue,
        batch_file_size=options.mapperFileSizeBatchConsumeQueue,
        ext_file_size=options.mappedFileSizeConsumeQueueExt if options.queue_ext else None,
        batch_topics=options.batch_topics,
    )
    for folder, queue in queues.items():
        unit = 46 if folder.parts[0] == "batchconsumequeue" else 20
        files = queue.files()
        last = max(files)
        for base, content in files.items():
            # Retention deletes a queue's file when the last entry in it points below the log's start, but never the last file.
            expires = folder.parts[0] != "consumequeue_ext" and base != last
            if not expires or struct.unpack_from(">q", content, len(content) - unit)[0] >= start:
                write_file(root.joinpath(*folder.parts) / file_name(base), content)


def checkpoint(records: Sequence[Placed], index: Sequence[IndexFile], end: int) -> bytes:
    last = records[-1].message.storeTimestamp if records else 0
    full = [file.endTimestamp for file in index if file.full]
    return struct.pack(">qqqqqq", last, last, full[-1] if full else 0, 0, end, 0).ljust(4096, b"\0")


def write_config(folder: Path, records: Sequence[Placed], options: Options) -> None:
    queues: dict[str, int] = {}
    ends: dict[str, dict[int, int]] = {}
    for placed in records:
        topic, queue_id = placed.message.topic, placed.message.queueId
        queues[topic] = max(queues.get(topic, 4), queue_id + 1)
        if placed.message.has_queue_entry:
            ends.setdefault(f"{topic}@readers", {})[queue_id] = placed.queueOffset
    version = {"counter": len(queues), "stateVersion": 0, "timestamp": 1_735_901_092_000}
    topics = {
        topic: {
            "attributes": {"queue.type": "BatchCQ"} if topic in options.batch_topics else {},
            "order": False,
            "perm": 6,
            "readQueueNums": count,
            "topicFilterType": "SINGLE_TAG",
            "topicName": topic,
            "topicSysFlag": 0,
            "writeQueueNums": count,
        }
        for topic, count in queues.items()
    }
    write_file(folder / "topics.json", fastjson({"dataVersion": version, "topicConfigTable": topics}).encode())
    write_file(folder / "consumerOffset.json", fastjson({"dataVersion": version, "offsetTable": ends}).encode())


def fastjson(value: object, indent: str = "") -> str:
    """As brokers write it: indented by tabs, and integer keys not quoted, which is no JSON."""
    if isinstance(value, dict):
        if not value:
            return "{}"
        inner = indent + "\t"
        pairs = (f"{inner}{key if isinstance(key, int) else quoted(key)}:{fastjson(v, inner)}" for key, v in value.items())
        return "{\n" + ",\n".join(pairs) + f"\n{indent}}}"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int) else quoted(str(value))


def quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def file_name(offset: int) -> str:
    return f"{offset:020d}"


def write_file(path: Path, content: bytes | bytearray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
