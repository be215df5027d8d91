"""Files of `consumequeue`, `consumequeue_ext`, `batchconsumequeue` (`ConsumeQueue`, `ConsumeQueueExt`, ...)."""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from tests.synthetic.log import Placed
from tests.synthetic.messages import java_hash

__all__ = ["DELAYS", "SCHEDULE_TOPIC", "QueueFile", "build_queues", "tags_code"]

FILLER = struct.pack(">qiq", 0, 0x7FFFFFFF, 0)
UNIT = 20
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
DELAYS = [s * 1000 for s in (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)]
BITMAP = 8


def tags_code(placed: Placed) -> int:
    """The third field of a queue entry: the tags' hash, or the time of delivery of a delayed message."""
    level = int(placed.properties.get("DELAY", "0"))
    if placed.message.topic == SCHEDULE_TOPIC and level > 0:
        return placed.message.storeTimestamp + DELAYS[min(level, len(DELAYS)) - 1]
    return java_hash(placed.properties.get("TAGS", ""))


@dataclass
class QueueFile:
    """One queue's bytes from byte `start` on, to be cut into files of `file_size`."""

    file_size: int
    start: int = 0
    data: bytearray = field(default_factory=bytearray)

    @property
    def end(self) -> int:
        return self.start + len(self.data)

    def files(self) -> dict[int, bytes]:
        """File name's offset -> content, padded with zeros."""
        pieces = range(0, len(self.data), self.file_size)
        return {self.start + at: bytes(self.data[at : at + self.file_size]).ljust(self.file_size, b"\0") for at in pieces}

    def put_unit(self, queue_offset: int, unit: bytes) -> None:
        """`ConsumeQueue#putMessagePositionInfo`: a first entry beyond 0 is led to by fillers, a later gap is closed up."""
        expected = queue_offset * UNIT
        if not self.data and queue_offset:
            self.start = expected // self.file_size * self.file_size
            self.data += FILLER * ((expected - self.start) // UNIT)
        if queue_offset and expected < self.end:
            return
        self.data += unit

    def put_ext(self, code: int, store_timestamp: int) -> int:
        """Appends a `consumequeue_ext` unit; returns the address that stands for it in the queue entry."""
        size = UNIT + BITMAP
        room = self.file_size - self.end % self.file_size
        if size > room - 4:
            self.data += struct.pack(">h", -1).ljust(room, b"\0")
        address = self.end - (1 << 63)
        bitmap = (code & 0xFFFFFFFFFFFFFFFF).to_bytes(BITMAP, "little")
        self.data += struct.pack(">hqqh", size, code, store_timestamp, BITMAP) + bitmap
        return address


def build_queues(
    records: Iterable[Placed], *, file_size: int, batch_file_size: int, ext_file_size: int | None, batch_topics: Collection[str]
) -> dict[PurePosixPath, QueueFile]:
    """All queues, by their folder below the root. `ext_file_size` None is a broker without `enableConsumeQueueExt`."""
    queues: dict[PurePosixPath, QueueFile] = {}

    def queue(kind: str, topic: str, queue_id: int, size: int) -> QueueFile:
        return queues.setdefault(PurePosixPath(kind, topic, str(queue_id)), QueueFile(size))

    for placed in records:
        message = placed.message
        if not message.has_queue_entry:
            continue
        code = tags_code(placed)
        where = struct.pack(">qi", placed.commitLogOffset, len(placed.record))
        if message.topic in batch_topics:
            base = int(placed.properties.get("INNER_BASE", placed.queueOffset))
            count = int(placed.properties.get("INNER_NUM", "1"))
            unit = where + struct.pack(">qqqhii", code, message.storeTimestamp, base, count, -1, 0)
            queue("batchconsumequeue", message.topic, message.queueId, batch_file_size).data += unit
            continue
        third = code
        if ext_file_size is not None:
            ext = queue("consumequeue_ext", message.topic, message.queueId, ext_file_size)
            third = ext.put_ext(code, message.storeTimestamp)
        unit = where + struct.pack(">q", third)
        queue("consumequeue", message.topic, message.queueId, file_size).put_unit(placed.queueOffset, unit)
        names = placed.properties.get("INNER_MULTI_DISPATCH", "")
        offsets = placed.properties.get("INNER_MULTI_QUEUE_OFFSET", "")
        for name, offset in zip(names.split(","), offsets.split(","), strict=True):
            if name:
                unit = where + struct.pack(">q", code)
                queue("consumequeue", name, 0, file_size).put_unit(int(offset), unit)
    return queues
