"""Records into log files: places, blanks, leftovers of old buffers, DLedger headers (`CommitLog`, `DLedgerMmapFileStore`)."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from tests.oracle import parse_props
from tests.synthetic.messages import Message, Properties, encode_record, stored_properties

__all__ = ["LogWriter", "Placed"]

BLANK = 0xCBD43194
BLANK_SIZE = 8
PAGE = 4096
DLEDGER_HEADER = 48


@dataclass(frozen=True)
class Placed:
    """A message with the place it got. `properties` are as RocketMQ reads them back."""

    message: Message
    commitLogOffset: int
    queueOffset: int
    record: bytes
    properties: dict[str, str]


class LogWriter:
    """The log's files in memory: `files` is base offset -> content, each of `file_size` bytes."""

    def __init__(self, file_size: int, first_offset: int, dledger: bool, stale_blanks: bool, first_queue_offset: int) -> None:
        self.file_size = file_size
        self.files: dict[int, bytearray] = {}
        self.end = first_offset
        self.dledger = dledger
        self.entries = 0
        self.stale_blanks = stale_blanks
        self.records: list[Placed] = []
        self.first_queue_offset = first_queue_offset
        self.queue_ends: Counter[tuple[str, int]] = Counter()

    def write(self, messages: Iterable[Message]) -> list[Placed]:
        for message in messages:
            self.records.append(self.put(message))
        return self.records

    def put(self, message: Message) -> Placed:
        queue_offset, added = self.number(message)
        header = DLEDGER_HEADER if self.dledger else 0
        size = header + len(encode_record(message, 0, queue_offset, added))
        if size + BLANK_SIZE > self.file_size:
            raise ValueError(f"a record of {size} bytes does not fit a file of {self.file_size}")
        if size + BLANK_SIZE > self.room:
            self.close_file()
        start = self.end
        record = encode_record(message, start + header, queue_offset, added)
        if self.dledger:
            self.append(struct.pack(">iiqqqiiii", 1, size, self.entries, 0, start, 0, 0, 0, len(record)))
            self.entries += 1
        self.append(record)
        properties = parse_props(stored_properties(message, added))
        return Placed(message, start + header, queue_offset, record, properties)

    def number(self, message: Message) -> tuple[int, Properties]:
        """The message's queue offset, and what the broker adds to its properties for the sake of queues."""
        if not message.has_queue_entry:
            return 0, ()
        added: list[tuple[str, str]] = []
        queue = message.topic, message.queueId
        if queue not in self.queue_ends:
            self.queue_ends[queue] = self.first_queue_offset
        offset = self.queue_ends[queue] if message.queueOffset is None else message.queueOffset
        count = len(message.inner) or 1
        if isinstance(message.properties, bytes):
            count = int(parse_props(message.properties).get("INNER_NUM", "1"))
        self.queue_ends[queue] = offset + count
        if message.inner:
            added += [("INNER_NUM", str(count)), ("INNER_BASE", str(offset))]
        if message.multiDispatch:
            offsets = [self.queue_ends[name, 0] for name in message.multiDispatch]
            for name in message.multiDispatch:
                self.queue_ends[name, 0] += 1
            added.append(("INNER_MULTI_DISPATCH", ",".join(message.multiDispatch)))
            added.append(("INNER_MULTI_QUEUE_OFFSET", ",".join(map(str, offsets))))
        return offset, tuple(added)

    @property
    def room(self) -> int:
        return self.file_size - self.end % self.file_size

    def append(self, data: bytes) -> None:
        position = self.end % self.file_size
        file = self.files.setdefault(self.end - position, bytearray(self.file_size))
        file[position : position + len(data)] = data
        self.end += len(data)

    def close_file(self) -> None:
        room = self.room
        blank = struct.pack(">iI", room, BLANK) if not self.dledger else struct.pack(">ii", -1, room)
        if self.stale_blanks and self.records:
            # A reused buffer shows through: what follows the blank's head looks like a record.
            blank += (self.records[-1].record * (room // len(self.records[-1].record) + 1))[: room - len(blank)]
        self.append(blank.ljust(room, b"\0"))

    def leave_tail(self, kind: str) -> None:
        """What `writeWithoutMmap` leaves behind the last record: the tail of a longer old one, or a whole old one.

        Only bytes up to the next page, or of one old record, and never beyond the file; `end` stays where it is.
        """
        if not self.records:
            return
        last, end = self.records[-1], self.end
        older = max(self.records, key=lambda placed: len(placed.record))
        if kind == "record":
            data = self.records[0].record
        else:
            data = older.record[len(last.record) :][: -end % PAGE] or older.record[-40:]
        self.append(data[: self.room])
        self.end = end

    def preallocate(self) -> None:
        """The next file, all zeros, as `AllocateMappedFileService` makes it ahead of need."""
        self.files[-(-self.end // self.file_size) * self.file_size] = bytearray(self.file_size)
