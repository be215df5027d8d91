"""Columns of the messages table -> records packed one behind the other (`MessageExtEncoder#encode`), a whole batch at a time.

What depends on a record's place is left open: queueOffset and commitLogOffset, 16 bytes at +20 of each record, are zeros, and
the digits of a CRC property are not right yet. Pure: rows and options, no paths, no clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from store_core.bodies import body_crcs
from store_core.describe import describe
from store_core.described import Described
from store_core.incoming import normalise
from store_core.layout import HOST_V6_GROWTH, MAGIC_V1, MAGIC_V2, RECORD_HEAD_SIZE, RECORD_HEADS, V6_BORN_FLAG, V6_STORE_FLAG
from store_core.ragged import offsets_of
from store_core.refusal import Rows
from store_core.topicrules import V1_TOPIC_LENGTH
from store_core.writeoptions import WriteOptions

__all__ = ["Run", "encode", "pack"]

_BLANK_SIZE: Final = 8
"""Room that every file keeps behind its last record, for the blank that closes it."""
_HEADROOM: Final = 65536
"""What a record may have more than its body, at most (`CommitLog`: maxMessageSize + 64 KiB)."""
_INT32_MAX: Final = (1 << 31) - 1
_V6: Final = V6_BORN_FLAG | V6_STORE_FLAG
_join: Final[Any] = pc.binary_join_element_wise

I64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Run:
    """Packed records. `data`: their bytes; `described`: one entry per record in the same order, commitLogOffset and queueOffset
    NO_PLACE, or those to preserve; `seen`: how many messages of each topic the task has had, for its next batch.
    """

    data: memoryview
    described: Described
    seen: Mapping[str, int]

    def __len__(self) -> int:
        return len(self.described)


def encode(
    batch: pa.RecordBatch,
    options: WriteOptions,
    *,
    now_ms: int,
    first_row: int = 0,
    first_queue: int = 0,
    seen: Mapping[str, int] | None = None,
    queue_nums: Mapping[str, int] | None = None,
) -> Run:
    """The rows of `batch`, any columns of the messages table with topic and body among them, as packed records.

    For the arguments see `incoming.normalise`; `seen` is the `Run.seen` of the task's batch before.
    Errors: OptionError that names column, topic, value and limit; CorruptStoreError for properties that no broker can dispatch.
    """
    options = options.settled()
    rows = normalise(
        batch, options, now_ms=now_ms, first_row=first_row, first_queue=first_queue, seen=seen, queue_nums=queue_nums
    )
    data, sizes = pack(rows, options, first_row=first_row)
    described = describe(rows.append_column("storeSize", pa.array(sizes.astype(np.int32))), index_tags=bool(options.index_tags))
    topics = rows.column("topic")
    counts = np.bincount(np.asarray(topics.indices), minlength=len(topics.dictionary))
    total = dict(seen or {})
    for topic, count in zip(topics.dictionary.to_pylist(), counts.tolist(), strict=True):
        total[topic] = total.get(topic, 0) + count
    return Run(data, described, total)


def pack(rows: pa.RecordBatch, options: WriteOptions, *, first_row: int = 0) -> tuple[memoryview, I64]:
    """(the records' bytes, int64[n] their sizes) of a normalised batch.

    Errors: OptionError for a record that is too large for a file of the log, or for RocketMQ.
    """
    count = len(rows)
    body, topics = rows.column("body"), rows.column("topic")
    properties = rows.column("propertiesString").view(pa.binary())
    names = [topic.encode() for topic in topics.dictionary.to_pylist()]
    codes = np.asarray(topics.indices)
    long_ = np.array([len(name) > V1_TOPIC_LENGTH for name in names], dtype=bool)
    fields = [len(name).to_bytes(2 if v2 else 1, "big") + name for name, v2 in zip(names, long_.tolist(), strict=True)]
    field_lengths = np.array([len(field) for field in fields], dtype=np.int64)
    body_lengths, properties_lengths = np.diff(offsets_of(body)), np.diff(offsets_of(properties))
    v6 = np.asarray(rows.column("sysFlag")) & np.int32(_V6)
    growth = ((v6 & V6_BORN_FLAG != 0).astype(np.int64) + (v6 & V6_STORE_FLAG != 0)) * HOST_V6_GROWTH
    if not count:
        return memoryview(b""), np.zeros(0, dtype=np.int64)
    sizes = RECORD_HEAD_SIZE + growth + body_lengths + field_lengths[codes] + 2 + properties_lengths
    _check_sizes(sizes, options, Rows(topics, first_row))
    head = {
        "storeSize": sizes,
        "magicCode": np.where(long_, MAGIC_V2, MAGIC_V1)[codes],
        "bodyCRC": body_crcs(body),
        "bornTimestamp": np.asarray(rows.column("bornTimestamp").view(pa.int64())) // 1000,
        "storeTimestamp": np.asarray(rows.column("storeTimestamp").view(pa.int64())) // 1000,
        "bodyLength": body_lengths,
    }
    for name in ("queueId", "flag", "sysFlag", "reconsumeTimes", "preparedTransactionOffset"):
        head[name] = np.asarray(rows.column(name))
    heads = _heads(head, rows, v6)
    lengths = _binary(properties_lengths.astype(">i2").view("V2"))
    parts = [heads, body, pa.array(fields, type=pa.binary()).take(topics.indices), lengths, properties]
    total = int(sizes.sum())
    if total > _INT32_MAX:
        parts = [part.cast(pa.large_binary()) for part in parts]
    joined = _join(*parts, b"")
    return memoryview(joined.buffers()[2])[:total], sizes


def _heads(head: dict[str, npt.NDArray[Any]], rows: pa.RecordBatch, v6: npt.NDArray[np.int32]) -> pa.BinaryArray:
    """The fixed part of each record. Its size depends on its hosts: one array for each combination of host families."""
    pieces, places = [], []
    for bits, dtype in RECORD_HEADS.items():
        where = np.flatnonzero(v6 == bits)
        if not len(where):
            continue
        own = {name: values if len(where) == len(rows) else values[where] for name, values in head.items()}
        for name in ("bornHost", "storeHost"):
            column = rows.column(name)
            kind = dtype[name]
            # a host of the other family stands in no row of these
            hosts = [host if len(host) == kind.itemsize else bytes(kind.itemsize) for host in column.dictionary.to_pylist()]
            own[name] = np.frombuffer(b"".join(hosts), dtype=f"V{kind.itemsize}")[np.asarray(column.indices)[where]]
        # most fields of a batch have one value: these are copied as a whole
        common = np.zeros(1, dtype=dtype)
        varying = [name for name, values in own.items() if not bool((values == values[0]).all())]
        for name, values in own.items():
            common[name] = values[:1].view(dtype[name]) if values.dtype.kind == "V" else values[0]
        heads = np.repeat(common.view(f"V{dtype.itemsize}"), len(where)).view(dtype)
        for name in varying:
            heads[name] = own[name].view(dtype[name]) if own[name].dtype.kind == "V" else own[name]
        pieces.append(_binary(heads.view(f"V{dtype.itemsize}")))
        places.append(where)
    if len(pieces) == 1:
        return pieces[0]
    order = np.argsort(np.concatenate(places), kind="stable")
    return pa.concat_arrays(pieces).take(pa.array(order))


def _binary(values: npt.NDArray[np.void]) -> pa.BinaryArray:
    """Values of one width as a binary array, without a copy."""
    ends = np.arange(0, (len(values) + 1) * values.dtype.itemsize, values.dtype.itemsize, dtype=np.int32)
    return pa.Array.from_buffers(pa.binary(), len(values), [None, pa.py_buffer(ends), pa.py_buffer(values)])


def _check_sizes(sizes: I64, options: WriteOptions, rows: Rows) -> None:
    room = options.log_file_size - _BLANK_SIZE
    what = "a record whose parts (body, topic, properties, head) make"
    rows.check(sizes <= room, "body", sizes, f"{what} at most {room} bytes, which a file of mappedFileSizeCommitLog holds")
    most = options.max_message_size + _HEADROOM
    rows.check(sizes <= most, "body", sizes, f"{what} at most {most} bytes (maxMessageSize and 64 KiB)")
