"""What a test wants stored, and its bytes: one record at a time, with `struct` (`MessageExtEncoder`)."""

from __future__ import annotations

import ipaddress
import struct
import zlib
from dataclasses import dataclass

import pyarrow as pa

__all__ = ["COMPRESSIONS", "PREPARED", "ROLLBACK", "TRANSACTION", "Message", "Properties", "encode_record", "java_hash"]

Properties = tuple[tuple[str, str], ...]

TRANSACTION, PREPARED, ROLLBACK = 0xC, 0x4, 0xC
COMPRESSED, BORN_V6, STORE_V6, INNER_BATCH = 0x1, 0x10, 0x20, 0x40 | 0x80
COMPRESSIONS = {"zlib": 3, "zlib-old": 0, "lz4": 1, "zstd": 2}
"""The three compression bits of sysFlag. "zlib-old" is what brokers before 4.9.4 wrote: the compressed flag and no bits."""


@dataclass(frozen=True, kw_only=True)
class Message:
    """A message as a producer and a broker would have it; fields have RocketMQ's names.

    body: plain, or the stored bytes when `compression` is None.
    properties: pairs in the order they shall stand, repeats and empty values included; or the stored string itself.
    lastSeparator: whether 0x02 stands behind the last pair (5.2.0 on) or not (4.9.1 to 5.1.4).
    crcProperty: ends the record in `__CRC32#` (`enabledAppendPropCRC`).
    version2: a two-byte topic length; None leaves it to the topic's length, as a broker does.
    queueOffset: None takes the queue's next one.
    inner: (body, properties) of the messages of an inner batch; body is then made of them, and INNER_NUM, INNER_BASE are added.
    multiDispatch: light queues that shall hold the message too; INNER_MULTI_DISPATCH, INNER_MULTI_QUEUE_OFFSET are added.
    """

    topic: str
    queueId: int = 0
    body: bytes = b""
    properties: Properties | bytes = ()
    lastSeparator: bool = True
    crcProperty: bool = False
    flag: int = 0
    sysFlag: int = 0
    bornTimestamp: int = 1_735_901_092_131
    bornHost: str = "10.0.0.1:40000"
    storeTimestamp: int = 1_735_901_092_139
    storeHost: str = "192.168.1.2:10911"
    reconsumeTimes: int = 0
    preparedTransactionOffset: int = 0
    compression: str | None = None
    version2: bool | None = None
    queueOffset: int | None = None
    inner: tuple[tuple[bytes, Properties], ...] = ()
    multiDispatch: tuple[str, ...] = ()

    @property
    def has_queue_entry(self) -> bool:
        """Prepared and rolled back messages stand in no queue and use up no queue offset."""
        return self.sysFlag & TRANSACTION not in (PREPARED, ROLLBACK)

    @property
    def has_index_entries(self) -> bool:
        return self.sysFlag & TRANSACTION != ROLLBACK


def encode_record(message: Message, offset: int, queue_offset: int, added: Properties = ()) -> bytes:
    """The record of `message` at commitLogOffset `offset`; `added` are the properties that the broker adds."""
    born, store = packed_host(message.bornHost), packed_host(message.storeHost)
    flags = message.sysFlag | (BORN_V6 if len(born) > 8 else 0) | (STORE_V6 if len(store) > 8 else 0)
    body = message.body
    if message.inner:
        flags |= INNER_BATCH
        body = b"".join(encode_sub_record(*one) for one in message.inner)
    if message.compression is not None:
        flags |= COMPRESSED | COMPRESSIONS[message.compression] << 8
        body = compress(body, message.compression)
    topic = message.topic.encode()
    version2 = len(message.topic) > 127 if message.version2 is None else message.version2
    properties = stored_properties(message, added)
    if message.crcProperty and properties and not properties.endswith(b"\x02"):
        properties += b"\x02"
    size_of_crc = 20 if message.crcProperty else 0

    record = struct.pack(">I", 0xDAA320AB if version2 else 0xDAA320A7)
    record += struct.pack(">iii", zlib.crc32(body) & 0x7FFFFFFF, message.queueId, message.flag)
    record += struct.pack(">qqi", queue_offset, offset, flags)
    record += struct.pack(">q", message.bornTimestamp) + born
    record += struct.pack(">q", message.storeTimestamp) + store
    record += struct.pack(">iq", message.reconsumeTimes, message.preparedTransactionOffset)
    record += struct.pack(">i", len(body)) + body
    record += struct.pack(">h" if version2 else ">b", len(topic)) + topic
    record += struct.pack(">h", len(properties) + size_of_crc) + properties
    record = struct.pack(">i", 4 + len(record) + size_of_crc) + record
    if message.crcProperty:
        digits = f"{zlib.crc32(record) & 0x7FFFFFFF:010d}"[::-1]
        record += b"__CRC32#\x01" + digits.encode() + b"\x02"
    return record


def stored_properties(message: Message, added: Properties) -> bytes:
    if isinstance(message.properties, bytes):
        if added:
            raise ValueError("a message with a stored property string can't be given inner or multiDispatch")
        return message.properties
    text = "".join(f"{name}\x01{value}\x02" for name, value in (*message.properties, *added)).encode()
    return text if message.lastSeparator else text[:-1]


def encode_sub_record(body: bytes, properties: Properties) -> bytes:
    """One message inside an inner batch's body (`MessageDecoder#encodeMessage`); magic and CRC are 0 there."""
    text = "".join(f"{name}\x01{value}\x02" for name, value in properties).encode()
    rest = struct.pack(">iiii", 0, 0, 0, len(body)) + body + struct.pack(">h", len(text)) + text
    return struct.pack(">i", 4 + len(rest)) + rest


def packed_host(text: str) -> bytes:
    """`10.0.0.1:40000` or `[::1]:40000` as address and port."""
    address, _, port = text.rpartition(":")
    return ipaddress.ip_address(address.strip("[]")).packed + struct.pack(">i", int(port))


def compress(body: bytes, kind: str) -> bytes:
    """As a producer does: zlib with its header, LZ4 and ZSTD as frames."""
    if kind.startswith("zlib"):
        return zlib.compress(body)
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "lz4" if kind == "lz4" else "zstd") as stream:
        stream.write(body)
    return bytes(sink.getvalue())


def java_hash(text: str) -> int:
    """Java's `String.hashCode`: over UTF-16 units, as a signed int."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value
