"""Records in a buffer -> columns of the messages table (`MessageDecoder#decode`), a whole batch at a time.

`Parts.locate` finds where each field of each record stands and which records hold together; `columns` cuts out what is asked
for. Pure: a buffer, positions, and what can't be known from them (`Context`).
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from store_core import codecs, ragged
from store_core.errors import CorruptStoreError
from store_core.layout import (
    COMPRESSED_FLAG,
    HOST_V6_GROWTH,
    MAGIC_V1,
    MAGIC_V2,
    RECORD_HEAD_SIZE,
    RECORD_HEADS,
    TRANSACTION_MASK,
    TRANSACTION_NAMES,
    V6_BORN_FLAG,
    V6_STORE_FLAG,
)
from store_core.properties import Pairs, Uniform, split
from store_core.schema import EXTRA_COLUMNS, MESSAGES, TIMESTAMP

__all__ = ["TIME_LIMIT_MS", "Context", "Parts", "Unreadable", "bodies", "columns", "host_text"]

Bool = npt.NDArray[np.bool_]
I64 = npt.NDArray[np.int64]

_PLACES: Final[Any] = RECORD_HEADS[0].fields
_V6: Final = V6_BORN_FLAG | V6_STORE_FLAG
TIME_LIMIT_MS: Final = (1 << 63) // 1000 - 1
"""Beyond this a time in ms is no timestamp('us'); about the year 294,000."""


_LONGEST_ARRAY: Final = (1 << 31) - 1
"""Bytes of all values of a binary array."""


@dataclass(frozen=True, slots=True)
class Context:
    """What a batch's bytes don't say."""

    source_file: str | None = None
    store_path: str | None = None
    broker_name: str | None = None
    raw_body: bool = False
    """Leave bodies as stored."""
    max_decompressed_size: int = 64 << 20


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A record that stands where it should, but whose content can't be given: `index` in the batch, and why."""

    index: int
    reason: str
    hint: str | None = None


@dataclass(frozen=True)
class Parts:
    """n records taken apart. `buffer`: the bytes they stand in; all positions (int64[n]) are in it.

    `head`: structured array of the fixed part for records without IPv6 hosts; `fields` gives each header column as a native
    array whatever the hosts.
    """

    buffer: pa.Buffer
    data: npt.NDArray[np.uint8]
    starts: I64
    heads: npt.NDArray[np.void]
    v6: npt.NDArray[np.int32] | None
    body_length: I64
    topic_start: I64
    topic_length: I64
    properties_start: I64
    properties_length: I64
    good: Bool
    """Which records hold together: message magic, own offset where it stands, lengths that add up to storeSize."""
    cache: dict[str, Any] = field(default_factory=dict, compare=False)

    @property
    def body_start(self) -> I64:
        return self.starts + RECORD_HEAD_SIZE if self.v6 is None else self.starts + RECORD_HEAD_SIZE + _growth(self.v6)

    @classmethod
    def locate(cls, memory: bytearray | bytes, starts: I64, base: int | I64, length: int | None = None) -> Parts:
        """The parts of the records at `starts` in the first `length` bytes of `memory`, whose first byte is commitLogOffset
        `base` (or, for records that were read one by one, what makes each start a commitLogOffset: int64[n]).

        `memory` must reach 8 bytes beyond `length`. Positions of records that are not `good` are clipped into the buffer and
        mean nothing.
        """
        length = len(memory) - 8 if length is None else length
        buffer = pa.py_buffer(memory)
        data = np.frombuffer(memory, dtype=np.uint8)
        heads = _gather(memory, starts, RECORD_HEADS[0], length)
        size = heads["storeSize"].astype(np.int64)
        sys_flag = heads["sysFlag"]
        v6_bits = sys_flag & _V6
        v6 = v6_bits.astype(np.int32) if v6_bits.any() else None
        if v6 is None:
            body_at = starts + RECORD_HEAD_SIZE
            body_length = heads["bodyLength"].astype(np.int64)
        else:
            body_at = starts + RECORD_HEAD_SIZE + _growth(v6)
            body_length = _words(memory, ">i4", body_at - 4, length).astype(np.int64)
        np.maximum(body_length, 0, out=body_length)
        topic_at = body_at + body_length
        magic = heads["magicCode"]
        is_v2 = magic == MAGIC_V2
        width: I64 | int = 1
        topic_length = _words(memory, ">i1", topic_at, length).astype(np.int64)
        if is_v2.any():
            width = np.where(is_v2, 2, 1)
            topic_length = np.where(is_v2, _words(memory, ">i2", topic_at, length), topic_length)
        topic_start = topic_at + width
        properties_at = topic_start + np.maximum(topic_length, 0)
        properties_length = np.maximum(_words(memory, ">i2", properties_at, length).astype(np.int64), 0)
        properties_start = properties_at + 2
        good = (
            ((magic == MAGIC_V1) | is_v2)
            & (heads["commitLogOffset"] == starts + base)
            & (topic_length >= 0)
            & (properties_start + properties_length == starts + size)
            & (starts + size <= length)
        )
        return cls(
            buffer, data, starts, heads, v6, body_length, topic_start, topic_length, properties_start, properties_length, good
        )

    def __len__(self) -> int:
        return len(self.starts)

    def take(self, which: npt.NDArray[np.intp] | npt.NDArray[np.bool_] | slice) -> Parts:
        """The parts of some of the records."""
        return Parts(
            self.buffer,
            self.data,
            self.starts[which],
            self.heads[which],
            None if self.v6 is None else self.v6[which],
            self.body_length[which],
            self.topic_start[which],
            self.topic_length[which],
            self.properties_start[which],
            self.properties_length[which],
            self.good[which],
        )

    def header(self, name: str) -> npt.NDArray[Any]:
        """One header field of every record as a native array (int32 or int64)."""
        if self.v6 is not None and _PLACES[name][1] > _PLACES["bornHost"][1]:
            out: npt.NDArray[Any] | None = None
            for _, where, heads in self._by_family():
                values = heads[name]
                out = np.empty(len(self), dtype=values.dtype.newbyteorder("=")) if out is None else out
                out[where] = values
            return np.empty(0, dtype=np.int64) if out is None else out
        values = self.heads[name]
        return values.astype(values.dtype.newbyteorder("="))

    def _by_family(self) -> Iterable[tuple[int, npt.NDArray[np.intp], npt.NDArray[np.void]]]:
        """(IPv6 flags, which records, their heads) for each combination of host families."""
        if self.v6 is None:
            yield 0, np.arange(len(self)), self.heads
            return
        if "family" not in self.cache:
            self.cache["family"] = [
                (bits, where, _gather(self.buffer, self.starts[where], dtype, len(self.data) - 8))
                for bits, dtype in RECORD_HEADS.items()
                if len(where := np.flatnonzero(self.v6 == bits))
            ]
        yield from self.cache["family"]

    def address(self, name: str) -> list[tuple[npt.NDArray[np.intp], npt.NDArray[np.void]]]:
        """(which records, address and port of `bornHost` or `storeHost` as raw bytes) by address family."""
        return [(where, np.ascontiguousarray(heads[name])) for _, where, heads in self._by_family()]

    def store_size(self) -> I64:
        return self.heads["storeSize"].astype(np.int64)

    def pairs(self) -> Pairs | Uniform:
        """The records' properties, split once."""
        if "pairs" not in self.cache:
            self.cache["pairs"] = split(self.buffer, self.properties_start, self.properties_length)
        pairs: Pairs | Uniform = self.cache["pairs"]
        return pairs

    def record(self, index: int) -> bytes:
        """One record's bytes, as stored."""
        start = int(self.starts[index])
        return bytes(memoryview(self.buffer)[start : start + int(self.heads["storeSize"][index])])


def _growth(v6: npt.NDArray[np.int32]) -> I64:
    return ((v6 & V6_BORN_FLAG != 0).astype(np.int64) + (v6 & V6_STORE_FLAG != 0)) * HOST_V6_GROWTH


def _gather(memory: Any, starts: I64, dtype: np.dtype[np.void], length: int) -> npt.NDArray[np.void]:
    """`dtype.itemsize` bytes at each start, as that dtype, copied; a start too near the end reads from the last place."""
    last = length - dtype.itemsize
    if last < 0:
        return np.zeros(len(starts), dtype=dtype)
    window = np.ndarray((last + 1,), dtype=f"V{dtype.itemsize}", buffer=memory, strides=(1,))
    return window[np.minimum(starts, last)].view(dtype)


def _words(memory: Any, kind: str, at: I64, length: int) -> npt.NDArray[Any]:
    """Integers of `kind` at the positions `at`, read from `length` where they lie behind it (8 spare bytes stand there)."""
    window = np.ndarray((length + 1,), dtype=kind, buffer=memory, strides=(1,))
    return window[np.minimum(at, length)]


def columns(parts: Parts, names: Iterable[str], context: Context) -> tuple[dict[str, pa.Array], list[Unreadable]]:
    """The columns `names` of the messages table (extra columns too), and the records whose content can't be given.

    Rows of unreadable records hold null in the column that failed; the caller leaves them out or reports them, as `mode` says.
    """
    bad: list[Unreadable] = []
    out = {}
    for name in names:
        made = _MAKERS[name](parts, context)
        if isinstance(made, tuple):
            made, failed = made
            bad.extend(failed)
        out[name] = made
    return out, bad


# --- one maker per column ------------------------------------------------------------------------------------------------

Made: TypeAlias = "pa.Array | tuple[pa.Array, list[Unreadable]]"


def _header(name: str) -> Callable[[Parts, Context], Made]:
    def make(parts: Parts, context: Context) -> Made:
        return pa.array(parts.header(name))

    return make


def _time(name: str) -> Callable[[Parts, Context], Made]:
    def make(parts: Parts, context: Context) -> Made:
        ms = parts.header(name)
        beyond = np.flatnonzero((ms > TIME_LIMIT_MS) | (ms < -TIME_LIMIT_MS))
        bad = [Unreadable(int(i), f"{name} is {int(ms[i])} ms, which is no time that can be told") for i in beyond]
        if bad:
            ms[beyond] = 0
        return pa.array(ms * 1000).view(TIMESTAMP), bad

    return make


def _host(name: str) -> Callable[[Parts, Context], Made]:
    def make(parts: Parts, context: Context) -> Made:
        return _merge([(where, _each_host(raw, host_text)) for where, raw in parts.address(name)])

    return make


def _each_host(raw: npt.NDArray[np.void], write: Callable[[bytes], str]) -> pa.StringArray:
    """`write(address and port)` for each host. A batch has few hosts: each one is written out once."""
    width = raw.dtype.itemsize
    if width == 8:
        words = raw.view(np.int64)
        if len(words) and bool((words == words[0]).all()):
            return pa.repeat(pa.scalar(write(raw[0].tobytes()), type=pa.string()), len(raw))
        coded = pa.array(words).dictionary_encode()
        hosts = [word.to_bytes(8, sys.byteorder, signed=True) for word in coded.dictionary.to_pylist()]
    else:
        coded = pa.Array.from_buffers(pa.binary(width), len(raw), [None, pa.py_buffer(raw)]).dictionary_encode()
        hosts = coded.dictionary.to_pylist()
    return pa.array([write(host) for host in hosts], type=pa.string()).take(coded.indices)


def host_text(host: bytes) -> str:
    """`ip:port`; an IPv6 address as `Inet6Address#getHostAddress` writes it (eight groups, none left out), in brackets."""
    port = int.from_bytes(host[-4:], "big", signed=True)
    address = host[:-4]
    if len(address) == 4:
        return f"{'.'.join(map(str, address))}:{port}"
    return f"[{':'.join(f'{address[i] << 8 | address[i + 1]:x}' for i in range(0, 16, 2))}]:{port}"


def _merge(pieces: list[tuple[npt.NDArray[np.intp], pa.Array]]) -> pa.Array:
    """One array out of pieces and the places of their rows."""
    if len(pieces) == 1:
        return pieces[0][1]
    if not pieces:
        return pa.array([], type=pa.string())
    order = np.argsort(np.concatenate([where for where, _ in pieces]), kind="stable")
    return pa.concat_arrays([made for _, made in pieces]).take(pa.array(order))


@functools.cache
def _hex_of_two() -> npt.NDArray[np.uint32]:
    """By two bytes as a native uint16: their four upper-case hexadecimal digits as a native uint32."""
    digits = np.frombuffer(b"0123456789ABCDEF", dtype=np.uint8)
    pairs = np.arange(65536, dtype=np.uint16).view(np.uint8)
    return np.stack([digits[pairs >> 4], digits[pairs & 15]], axis=1).reshape(-1).view(np.uint32)


def _offset_msg_id(parts: Parts, context: Context) -> Made:
    """hex(storeHost address, port, commitLogOffset), `MessageDecoder#createMessageId`."""
    offsets = parts.heads["commitLogOffset"]
    pieces = []
    for where, raw in parts.address("storeHost"):
        host_width = 2 * raw.dtype.itemsize
        hosts = _each_host(raw, lambda host: host.hex().upper())
        host_letters = np.ndarray((len(where), host_width), dtype=np.uint8, buffer=hosts.buffers()[2])
        letters = np.empty((len(where), host_width + 16), dtype=np.uint8)
        letters[:, :host_width] = host_letters
        words = np.ascontiguousarray(offsets if len(where) == len(parts) else offsets[where]).view(np.uint16)
        letters[:, host_width:] = _hex_of_two()[words].view(np.uint8).reshape(-1, 16)
        ends = np.arange(0, (len(where) + 1) * letters.shape[1], letters.shape[1], dtype=np.int32)
        pieces.append(
            (where, pa.Array.from_buffers(pa.string(), len(where), [None, pa.py_buffer(ends), pa.py_buffer(letters)]))
        )
    return _merge(pieces)


def _topic(parts: Parts, context: Context) -> Made:
    return ragged.text(ragged.binary(parts.buffer, parts.topic_start, parts.topic_length))


def bodies(parts: Parts, context: Context, most: int | None = None) -> tuple[pa.Array, list[Unreadable], int]:
    """(the bodies of the first records, those that can't be given, of how many records): all, or as many as make `most` bytes
    when decompressed; the last of them may go beyond it.
    """
    stored = ragged.binary(parts.buffer, parts.body_start, parts.body_length)
    sys_flag = parts.heads["sysFlag"]
    squeezed = np.flatnonzero((sys_flag & COMPRESSED_FLAG != 0) & (parts.body_length > 0))
    if context.raw_body or not len(squeezed):
        return stored, [], len(parts)
    bad: list[Unreadable] = []
    plain: list[bytes | None] = []
    count, made = len(parts), 0
    room = _LONGEST_ARRAY - int(parts.body_length.sum())
    for i in squeezed.tolist():
        if most is not None and made >= most:
            count = i
            break
        try:
            limit = min(context.max_decompressed_size, max(room - made, 0))
            body = codecs.decompress(stored[i].as_py(), int(sys_flag[i]), limit)
            plain.append(body)
            made += len(body)
        except CorruptStoreError as e:
            plain.append(None)
            bad.append(Unreadable(i, e.reason, e.hint))
    inflated = pa.array(plain, type=pa.binary())
    if len(inflated) == count:
        return inflated, bad, count
    source = np.arange(count)
    source[squeezed[: len(plain)]] = count + np.arange(len(plain))
    plain.clear()  # memory
    return pa.concat_arrays([stored.slice(0, count), inflated]).take(pa.array(source)), bad, count


def _body(parts: Parts, context: Context) -> Made:
    made, bad, _ = bodies(parts, context)
    return made, bad


def _property(name: str) -> Callable[[Parts, Context], Made]:
    def make(parts: Parts, context: Context) -> Made:
        return parts.pairs().values(name)

    return make


def _properties(parts: Parts, context: Context) -> Made:
    return parts.pairs().to_map()


def _properties_string(parts: Parts, context: Context) -> Made:
    return ragged.text(ragged.binary(parts.buffer, parts.properties_start, parts.properties_length))


def _raw_record(parts: Parts, context: Context) -> Made:
    return ragged.binary(parts.buffer, parts.starts, parts.store_size())


def _coded(codes: npt.NDArray[Any], names: list[str | None]) -> pa.StringArray:
    return pa.array(names, type=pa.string()).take(pa.array(codes))


def _compression(parts: Parts, context: Context) -> Made:
    sys_flag = parts.header("sysFlag")
    names: list[str | None] = ["none", *[codecs.compression_name(kind << 8) for kind in range(8)]]
    return _coded(np.where(sys_flag & COMPRESSED_FLAG != 0, (sys_flag >> 8 & 7) + 1, 0), names)


def _transaction_type(parts: Parts, context: Context) -> Made:
    names: list[str | None] = [TRANSACTION_NAMES[bits] for bits in sorted(TRANSACTION_NAMES)]
    return _coded((parts.header("sysFlag") & TRANSACTION_MASK) >> 2, names)


def _constant(value: Callable[[Context], str | None]) -> Callable[[Parts, Context], Made]:
    def make(parts: Parts, context: Context) -> Made:
        return pa.repeat(pa.scalar(value(context), type=pa.string()), len(parts))

    return make


_MAKERS: Final[dict[str, Callable[[Parts, Context], Made]]] = {
    "topic": _topic,
    "tags": _property("TAGS"),
    "keys": _property("KEYS"),
    "uniqKey": _property("UNIQ_KEY"),
    "body": _body,
    "properties": _properties,
    "bornTimestamp": _time("bornTimestamp"),
    "storeTimestamp": _time("storeTimestamp"),
    "bornHost": _host("bornHost"),
    "storeHost": _host("storeHost"),
    "offsetMsgId": _offset_msg_id,
    "brokerName": _constant(lambda context: context.broker_name),
    "propertiesString": _properties_string,
    "compression": _compression,
    "transactionType": _transaction_type,
    "sourceFile": _constant(lambda context: context.source_file),
    "storePath": _constant(lambda context: context.store_path),
    "rawRecord": _raw_record,
}
_MAKERS.update({f.name: _header(f.name) for f in [*MESSAGES, *EXTRA_COLUMNS] if f.name not in _MAKERS})
