"""The byte layouts of a RocketMQ store, each declared once; offsets, sizes and the tables of docs/format.md derive from these.

Every integer on disk is big-endian and signed. Sources: `MessageExtEncoder`, `MessageDecoder`, `MessageSysFlag`,
`ConsumeQueue`,
`ConsumeQueueExt`, `BatchConsumeQueue`, `IndexHeader`, `IndexFile`, `StoreCheckpoint`, `DLedgerEntryCoder`.
"""

from __future__ import annotations

from typing import Final

import numpy as np

__all__ = [
    "BATCH_QUEUE_UNIT",
    "BLANK_MAGIC",
    "CHECKPOINT",
    "CHECKPOINT_SIZE",
    "COMPRESSED_FLAG",
    "COMPRESSION_MASK",
    "COMPRESSION_NAMES",
    "COMPRESSION_SHIFT",
    "CRC_MASK",
    "CRC_PROPERTY",
    "CRC_PROPERTY_SIZE",
    "DLEDGER_BLANK_MAGIC",
    "DLEDGER_HEADER",
    "DLEDGER_MESSAGE_MAGIC",
    "EXT_ADDRESS_MAX",
    "EXT_UNIT_HEAD",
    "FILLER_SIZE",
    "HOST_V6_GROWTH",
    "INDEX_ENTRY",
    "INDEX_HEADER",
    "INNER_BATCH_FLAG",
    "MAGIC_V1",
    "MAGIC_V2",
    "MESSAGE_MAGICS",
    "MIN_RECORD_SIZE",
    "NAME_DIGITS",
    "NEED_UNWRAP_FLAG",
    "QUEUE_UNIT",
    "RECORD_HEADS",
    "RECORD_HEAD_SIZE",
    "SCHEDULE_TOPIC",
    "SEPARATOR_NAME",
    "SEPARATOR_PAIR",
    "SUB_RECORD_HEAD",
    "TRANSACTION_COMMIT",
    "TRANSACTION_MASK",
    "TRANSACTION_NAMES",
    "TRANSACTION_PREPARED",
    "TRANSACTION_ROLLBACK",
    "V6_BORN_FLAG",
    "V6_STORE_FLAG",
]

# --- files ---------------------------------------------------------------------------------------------------------------
NAME_DIGITS: Final = 20
"""A commitlog or queue file is named by the offset of its first byte, zero-padded (`UtilAll#offset2FileName`)."""

# --- commitlog records ---------------------------------------------------------------------------------------------------
MAGIC_V1: Final = 0xDAA320A7 - (1 << 32)
MAGIC_V2: Final = 0xDAA320AB - (1 << 32)
"""V2 has a two-byte topic length (5.1.0 on, topics over 127 characters)."""
BLANK_MAGIC: Final = 0xCBD43194 - (1 << 32)
"""The record that closes a commitlog file: (size of the rest of the file, this magic, anything)."""
MESSAGE_MAGICS: Final = (MAGIC_V1, MAGIC_V2)

V6_BORN_FLAG: Final = 0x10
V6_STORE_FLAG: Final = 0x20
COMPRESSED_FLAG: Final = 0x1
TRANSACTION_MASK: Final = 0xC
TRANSACTION_PREPARED: Final = 0x4
TRANSACTION_COMMIT: Final = 0x8
TRANSACTION_ROLLBACK: Final = 0xC
TRANSACTION_NAMES: Final = {0x0: "none", 0x4: "prepared", 0x8: "commit", 0xC: "rollback"}
NEED_UNWRAP_FLAG: Final = 0x40
INNER_BATCH_FLAG: Final = 0x80
COMPRESSION_MASK: Final = 0x700
COMPRESSION_SHIFT: Final = 8
COMPRESSION_NAMES: Final = {0: "zlib", 1: "lz4", 2: "zstd", 3: "zlib"}
"""By `(sysFlag >> 8) & 7` of a record with COMPRESSED_FLAG; 0 is what brokers before 4.9.4 wrote."""

CRC_MASK: Final = 0x7FFFFFFF
"""Both CRCs are CRC-32 with the top bit cleared (`UtilAll#crc32`)."""
CRC_PROPERTY: Final = b"__CRC32#"
CRC_PROPERTY_SIZE: Final = 20
"""`__CRC32#`, 0x01, ten digits (least significant first), 0x02: the last bytes of a record with enabledAppendPropCRC."""
SEPARATOR_NAME: Final = 0x01
SEPARATOR_PAIR: Final = 0x02

_HOST = {4: np.dtype([("address", "V4"), ("port", ">i4")]), 16: np.dtype([("address", "V16"), ("port", ">i4")])}
HOST_V6_GROWTH: Final = 12
"""Bytes that an IPv6 host adds to a record, for each of its two hosts."""


def _record_head(born: int, store: int) -> np.dtype[np.void]:
    return np.dtype(
        [
            ("storeSize", ">i4"),
            ("magicCode", ">i4"),
            ("bodyCRC", ">i4"),
            ("queueId", ">i4"),
            ("flag", ">i4"),
            ("queueOffset", ">i8"),
            ("commitLogOffset", ">i8"),
            ("sysFlag", ">i4"),
            ("bornTimestamp", ">i8"),
            ("bornHost", _HOST[born]),
            ("storeTimestamp", ">i8"),
            ("storeHost", _HOST[store]),
            ("reconsumeTimes", ">i4"),
            ("preparedTransactionOffset", ">i8"),
            ("bodyLength", ">i4"),
        ]
    )


RECORD_HEADS: Final = {
    0: _record_head(4, 4),
    V6_BORN_FLAG: _record_head(16, 4),
    V6_STORE_FLAG: _record_head(4, 16),
    V6_BORN_FLAG | V6_STORE_FLAG: _record_head(16, 16),
}
"""The fixed part of a record, up to and with the body's length, by its two IPv6 flags."""
RECORD_HEAD_SIZE: Final = RECORD_HEADS[0].itemsize
MIN_RECORD_SIZE: Final = RECORD_HEAD_SIZE + 1 + 2
"""No body, no topic, no properties: head, V1 topic length, properties length."""

SUB_RECORD_HEAD: Final = np.dtype(
    [("storeSize", ">i4"), ("magicCode", ">i4"), ("bodyCRC", ">i4"), ("flag", ">i4"), ("bodyLength", ">i4")]
)
"""One inner message of a batch record's body (`MessageDecoder#decodeMessage`); body, i16 length and properties follow."""

# --- DLedger -------------------------------------------------------------------------------------------------------------
DLEDGER_HEADER: Final = np.dtype(
    [
        ("magic", ">i4"),
        ("size", ">i4"),
        ("index", ">i8"),
        ("term", ">i8"),
        ("pos", ">i8"),
        ("channel", ">i4"),
        ("chainCrc", ">i4"),
        ("bodyCrc", ">i4"),
        ("bodyLength", ">i4"),
    ]
)
"""In front of every record of a DLedger log; the record's own offset is `pos` + 48."""
DLEDGER_MESSAGE_MAGIC: Final = 1
DLEDGER_BLANK_MAGIC: Final = -1

# --- queues --------------------------------------------------------------------------------------------------------------
QUEUE_UNIT: Final = np.dtype([("commitLogOffset", ">i8"), ("size", ">i4"), ("tagsCode", ">i8")])
"""Entry n of a queue stands at byte n * 20 of its files."""
FILLER_SIZE: Final = 0x7FFFFFFF
"""(0, this, 0) pads a queue's first file in front of its first message; it is no message."""
BATCH_QUEUE_UNIT: Final = np.dtype(
    [
        ("commitLogOffset", ">i8"),
        ("size", ">i4"),
        ("tagsCode", ">i8"),
        ("storeTimestamp", ">i8"),
        ("queueOffset", ">i8"),
        ("batchSize", ">i2"),
        ("compactedOffset", ">i4"),
        ("reserved", ">i4"),
    ]
)
"""A `batchconsumequeue` entry: one record, batchSize queue offsets from queueOffset on; not placed by offset."""
EXT_UNIT_HEAD: Final = np.dtype([("size", ">i2"), ("tagsCode", ">i8"), ("storeTimestamp", ">i8"), ("bitMapSize", ">i2")])
"""A `consumequeue_ext` unit; a bit map follows. A size <= 0 closes the file."""
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
"""In its queues the tagsCode is a time of delivery, no hash."""
EXT_ADDRESS_MAX: Final = -(1 << 31) - 1
"""A tagsCode at or below this is an address in consumequeue_ext: byte offset + Long.MIN_VALUE (`ConsumeQueueExt#isExtAddr`)."""

# --- index ---------------------------------------------------------------------------------------------------------------
INDEX_HEADER: Final = np.dtype(
    [
        ("beginTimestamp", ">i8"),
        ("endTimestamp", ">i8"),
        ("beginPhyOffset", ">i8"),
        ("endPhyOffset", ">i8"),
        ("hashSlotCount", ">i4"),
        ("indexCount", ">i4"),
    ]
)
"""Then S slots of i32 and N entries; S = maxHashSlotNum and N = maxIndexNum stand nowhere in the file."""
INDEX_ENTRY: Final = np.dtype([("keyHash", ">i4"), ("commitLogOffset", ">i8"), ("timeDiff", ">i4"), ("prevIndexNo", ">i4")])
"""Entry numbers start at 1: number n stands at 40 + 4 * S + 20 * n, and 0 ends a chain."""

# --- checkpoint ----------------------------------------------------------------------------------------------------------
CHECKPOINT: Final = np.dtype(
    [
        ("physicMsgTimestamp", ">i8"),
        ("logicsMsgTimestamp", ">i8"),
        ("indexMsgTimestamp", ">i8"),
        ("masterFlushedOffset", ">i8"),
        ("confirmPhyOffset", ">i8"),
        ("logicsPhysicalOffset", ">i8"),
    ]
)
CHECKPOINT_SIZE: Final = 4096
