"""Inner batches (`queue.type=BatchCQ`): one record whose body is a row of messages, made into one row each.

`MessageDecoder#decodeMessage`: an inner message has its own flag, body and properties, queueOffset counts up from the record's,
and all else is the record's. Each one is written out as a record of its own, so that one decoder serves both.
"""

from __future__ import annotations

import struct
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from store_core import codecs
from store_core.decode import Context, Parts, Unreadable
from store_core.errors import CorruptStoreError
from store_core.layout import COMPRESSED_FLAG, INNER_BATCH_FLAG, RECORD_HEADS, SUB_RECORD_HEAD

__all__ = ["expand", "is_batch"]

_SUB = struct.Struct(">iiiii")
_I16 = struct.Struct(">h")
_SPARE: Final = 8
_FIELDS: Final[Any] = RECORD_HEADS[0].fields


def is_batch(parts: Parts) -> npt.NDArray[np.bool_]:
    """Which records hold inner messages."""
    flagged: npt.NDArray[np.bool_] = parts.heads["sysFlag"] & INNER_BATCH_FLAG != 0
    return flagged


def expand(parts: Parts, context: Context, most: int) -> tuple[Parts, npt.NDArray[np.intp], list[Unreadable], int]:
    """(inner messages as records, which record of `parts` each came from, records whose body is no row of messages, how many
    records these are): the first ones, as many as make `most` bytes when decompressed; the last may go beyond it.
    """
    records: list[bytes] = []
    source: list[int] = []
    bad: list[Unreadable] = []
    starts = parts.starts
    made = count = 0
    for i in range(len(parts)):
        if made >= most:
            break
        count += 1
        record = parts.record(i)
        head = bytearray(record[: int(parts.body_start[i] - starts[i])])
        body = record[len(head) : len(head) + int(parts.body_length[i])]
        topic = record[len(head) + len(body) : int(parts.properties_start[i] - starts[i]) - 2]
        try:
            sys_flag = int(parts.heads["sysFlag"][i])
            if sys_flag & COMPRESSED_FLAG:
                body = codecs.decompress(body, sys_flag, context.max_decompressed_size)
                struct.pack_into(">i", head, _FIELDS["sysFlag"][1], sys_flag & ~COMPRESSED_FLAG)
            made += len(body)
            inner = _messages(body)
        except CorruptStoreError as e:
            bad.append(Unreadable(i, e.reason, e.hint))
            continue
        first = int(parts.heads["queueOffset"][i])
        for n, (flag, crc, own_body, properties) in enumerate(inner):
            tail = own_body + topic + _I16.pack(len(properties)) + properties
            struct.pack_into(">i", head, 0, len(head) + len(tail))
            struct.pack_into(">i", head, _FIELDS["bodyCRC"][1], crc)
            struct.pack_into(">i", head, _FIELDS["flag"][1], flag)
            struct.pack_into(">q", head, _FIELDS["queueOffset"][1], first + n)
            struct.pack_into(">i", head, len(head) - 4, len(own_body))
            records.append(bytes(head) + tail)
            source.append(i)
    memory = b"".join(records) + bytes(_SPARE)
    lengths = np.array([len(r) for r in records], dtype=np.int64)
    at = np.cumsum(lengths) - lengths
    which = np.array(source, dtype=np.intp)
    offsets = parts.heads["commitLogOffset"].astype(np.int64)[which]
    return Parts.locate(memory, at, offsets - at), which, bad, count


def _messages(body: bytes) -> list[tuple[int, int, bytes, bytes]]:
    """(flag, bodyCRC, body, properties) of each inner message."""
    found = []
    at = 0
    head_size = SUB_RECORD_HEAD.itemsize
    while at < len(body):
        if at + head_size > len(body):
            raise CorruptStoreError(f"an inner message's head is cut off at byte {at} of the body's {len(body)}")
        size, _, crc, flag, length = _SUB.unpack_from(body, at)
        properties_at = at + head_size + max(length, 0)
        if length < 0 or properties_at + 2 > len(body):
            raise CorruptStoreError(f"inner message at byte {at}: body length {length} goes over the end of {len(body)} bytes")
        properties_length = max(_I16.unpack_from(body, properties_at)[0], 0)
        end = properties_at + 2 + properties_length
        if end > len(body) or size != end - at:
            raise CorruptStoreError(f"inner message at byte {at}: size {size}, but its parts make {end - at}")
        found.append((flag, crc, body[at + head_size : properties_at], body[properties_at + 2 : end]))
        at = end
    return found
