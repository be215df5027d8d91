"""Rows that are to be written: which columns there may be, what they may hold, and what RocketMQ puts where nothing is given.

`normalise` takes any batch with topic and body and gives one with the columns of `NORMALISED`, checked against the limits of
the format (`Validators`, `MessageExtEncoder`). What a record's place or bytes decide (storeSize, bodyCRC,
offsetMsgId, and without `preserve` queueOffset and commitLogOffset) is taken and made anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from store_core.bodies import stored_bodies
from store_core.errors import OptionError, nearest
from store_core.layout import INNER_BATCH_FLAG, NEED_UNWRAP_FLAG, QUEUE_UNIT, V6_BORN_FLAG, V6_STORE_FLAG
from store_core.optiontypes import host_bytes
from store_core.propertymerge import merge_properties
from store_core.ragged import offsets_of
from store_core.refusal import Rows, true
from store_core.schema import EXTRA_COLUMNS, MESSAGES, TIMESTAMP
from store_core.topicrules import check_topics
from store_core.writeoptions import WriteOptions

__all__ = ["NORMALISED", "check_columns", "normalise"]

_COUNTED: Final = pa.dictionary(pa.int32(), pa.binary())
NORMALISED: Final = pa.schema(
    [
        ("topic", pa.dictionary(pa.int32(), pa.string())),
        ("queueId", pa.int32()),
        ("queueOffset", pa.int64()),
        ("commitLogOffset", pa.int64()),
        ("tags", pa.string()),
        ("keys", pa.string()),
        ("uniqKey", pa.string()),
        ("body", pa.binary()),
        ("flag", pa.int32()),
        ("sysFlag", pa.int32()),
        ("bornTimestamp", TIMESTAMP),
        ("bornHost", _COUNTED),
        ("storeTimestamp", TIMESTAMP),
        ("storeHost", _COUNTED),
        ("reconsumeTimes", pa.int32()),
        ("preparedTransactionOffset", pa.int64()),
        ("propertiesString", pa.string()),
    ]
)
"""What `normalise` gives. Nulls stand only in tags, keys, uniqKey, and in queueOffset and commitLogOffset where these are open;
bodies are as stored, with the sysFlag that says so; hosts are the bytes that a record has; times are whole milliseconds."""

_TAKEN: Final = {"propertiesString", *MESSAGES.names}
_TEXT: Final = ("topic", "tags", "keys", "uniqKey", "bornHost", "storeHost", "propertiesString")
_INT32: Final = (-(1 << 31), (1 << 31) - 1)
_INT64: Final = (-(1 << 63), (1 << 63) - 1)
_MAX_QUEUE_ID: Final = 65535
_MAX_QUEUE_OFFSET: Final = _INT64[1] // QUEUE_UNIT.itemsize - 1
"""Its entry ends where an i64 still counts the queue's bytes."""
_RANGES: Final = {
    "queueId": (0, _MAX_QUEUE_ID),
    "flag": _INT32,
    "sysFlag": _INT32,
    "reconsumeTimes": (0, _INT32[1]),
    "bodyCRC": _INT32,
    "queueOffset": (0, _INT64[1]),
    "commitLogOffset": (0, _INT64[1]),
    "preparedTransactionOffset": _INT64,
}
_WHY: Final = {"queueId": "A topic has all queues up to its highest, and its clients go through them"}
_MAX_MS: Final = (1 << 62) // 1000
"""Times are held as microseconds."""
_TIMES: Final = {"s": (1000, 1), "ms": (1, 1), "us": (1, 1000), "ns": (1, 1000000)}
"""By an Arrow unit: what makes it milliseconds, times and over."""
_MAX_PORT: Final = 65535

I64 = npt.NDArray[np.int64]


def check_columns(schema: pa.Schema, options: WriteOptions) -> None:
    """OptionError for a column that can't be written, is missing, or is of a wrong type; no row is needed for it."""
    for name in schema.names:
        if schema.names.count(name) > 1:
            raise OptionError(f"column {name!r} stands twice")
        if name in _TAKEN:
            continue
        if name in EXTRA_COLUMNS.names:
            raise OptionError(f"column {name!r} only tells of a store that was read, and can't be written: drop it")
        raise OptionError(
            f"no column {name!r} in a message.{nearest(name, sorted(_TAKEN))} Columns that can be written: "
            f"{', '.join([*MESSAGES.names, 'propertiesString'])}"
        )
    needed = ("topic", "body", "queueOffset") if options.preserve else ("topic", "body")
    for name in needed:
        if name not in schema.names:
            why = ", and preserve keeps its values" if name == "queueOffset" else ""
            raise OptionError(f"no column {name!r} among {', '.join(schema.names)}; a message needs it{why}")
    for field in schema:
        wanted, accepts = _KINDS[field.name]
        if not pa.types.is_null(field.type) and not accepts(_plain(field.type)):
            raise OptionError(f"column {field.name!r} is of type {field.type}; expected {wanted}")


def normalise(
    batch: pa.RecordBatch,
    options: WriteOptions,
    *,
    now_ms: int,
    first_row: int = 0,
    first_queue: int = 0,
    seen: Mapping[str, int] | None = None,
    queue_nums: Mapping[str, int] | None = None,
) -> pa.RecordBatch:
    """The rows of `batch` with the columns of `NORMALISED`, in the same order.

    now_ms: the storeTimestamp of rows without one. first_row: how many rows the task had before (errors name rows by it).
    Rows without a queueId go round a topic's queues: from queue `first_queue` on, past the `seen` messages of the topic before;
    `queue_nums`: topics that have another number of queues than `defaultTopicQueueNums`.
    Errors: OptionError that names column, topic, value and what is expected.
    """
    options = options.settled()
    check_columns(batch.schema, options)
    topic = _text(batch, "topic")
    rows = Rows(topic, first_row)
    rows.check(true(topic.is_valid()), "topic", topic, "a topic")
    topics = topic.dictionary_encode()
    check_topics(topics, options, rows)
    numbers = {name: _integers(batch, name, rows) for name in _RANGES}
    queue_id = _queue_ids(numbers["queueId"], topics, options, first_queue, seen or {}, queue_nums or {})
    sys_flag = _or_zero(numbers["sysFlag"], np.int32)
    batched = sys_flag & (INNER_BATCH_FLAG | NEED_UNWRAP_FLAG) == 0
    rows.check(
        batched, "sysFlag", sys_flag, "no inner batch", "Read with expandBatches=true, and clear the bits 0xC0 of sysFlag"
    )
    body, sys_flag = stored_bodies(_bodies(batch, rows), sys_flag, numbers["bodyCRC"], options, rows)
    lengths = np.diff(offsets_of(body))
    rows.check(
        lengths <= options.max_message_size,
        "body",
        lengths,
        f"at most {options.max_message_size} bytes (maxMessageSize) as stored",
    )
    given = {name: _text(batch, name) for name in ("propertiesString", "keys", "tags", "uniqKey") if name in batch.schema.names}
    if "properties" in batch.schema.names:
        given["properties"] = _maps(batch)
    merged = merge_properties(given, len(batch), options, rows)
    store_ms = _milliseconds(batch, "storeTimestamp", rows)
    store_ms = np.where(store_ms == _NO_TIME, now_ms, store_ms)
    rows.check(store_ms > 0, "storeTimestamp", store_ms, "a time after 1970-01-01T00:00:00Z", "A broker takes 0 for no record")
    born_ms = _milliseconds(batch, "bornTimestamp", rows)
    # a producer's clock: without one, the broker's
    born_ms = np.where(born_ms == _NO_TIME, store_ms, born_ms)
    born_host, born_v6 = _hosts(batch, "bornHost", options.born_host, options, rows)
    store_host, store_v6 = _hosts(batch, "storeHost", options.store_host, options, rows)
    sys_flag = (
        sys_flag & ~np.int32(V6_BORN_FLAG | V6_STORE_FLAG)
        | born_v6 * np.int32(V6_BORN_FLAG)
        | store_v6 * np.int32(V6_STORE_FLAG)
    )
    queue_offset, log_offset = _places(numbers, options, rows)
    prepared = _or_zero(numbers["preparedTransactionOffset"], np.int64)
    if not options.preserve:
        rows.check(
            prepared == 0,
            "preparedTransactionOffset",
            prepared,
            "0 where places are new: it is the place of a half message",
            "Drop the column (a message that was committed does not need it), or write with preserve=true",
        )
    columns = {
        "topic": topics,
        "queueId": queue_id,
        "queueOffset": queue_offset,
        "commitLogOffset": log_offset,
        "tags": merged.tags,
        "keys": merged.keys,
        "uniqKey": merged.uniq_key,
        "body": body,
        "flag": _or_zero(numbers["flag"], np.int32),
        "sysFlag": sys_flag.astype(np.int32),
        "bornTimestamp": pa.array(born_ms * 1000).view(TIMESTAMP),
        "bornHost": born_host,
        "storeTimestamp": pa.array(store_ms * 1000).view(TIMESTAMP),
        "storeHost": store_host,
        "reconsumeTimes": _or_zero(numbers["reconsumeTimes"], np.int32),
        "preparedTransactionOffset": prepared,
        "propertiesString": merged.properties_string,
    }
    return pa.RecordBatch.from_arrays(
        [pa.array(columns[f.name]) if isinstance(columns[f.name], np.ndarray) else columns[f.name] for f in NORMALISED],
        schema=NORMALISED,
    )


# --- types ---------------------------------------------------------------------------------------------------------------


def _plain(kind: Any) -> Any:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _is_text(kind: Any) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def _is_bytes(kind: Any) -> bool:
    return (
        _is_text(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
        or pa.types.is_binary_view(kind)
    )


def _is_map(kind: Any) -> bool:
    return pa.types.is_map(kind) and _is_text(kind.key_type) and (_is_text(kind.item_type) or pa.types.is_null(kind.item_type))


def _is_time(kind: Any) -> bool:
    return pa.types.is_timestamp(kind) and kind.tz is not None


_KINDS: Final[dict[str, tuple[str, Callable[[Any], bool]]]] = {
    **dict.fromkeys((*_TEXT, "offsetMsgId", "brokerName"), ("a string", _is_text)),
    **dict.fromkeys((*_RANGES, "storeSize"), ("a whole number", pa.types.is_integer)),
    "body": ("binary, or a string (its UTF-8 bytes)", _is_bytes),
    "properties": ("a map of strings to strings", _is_map),
    "bornTimestamp": ("a timestamp with a time zone (in Spark a timestamp, no timestamp_ntz)", _is_time),
    "storeTimestamp": ("a timestamp with a time zone (in Spark a timestamp, no timestamp_ntz)", _is_time),
}


def _cast(batch: pa.RecordBatch, name: str, kind: Any) -> Any:
    column = batch.column(name)
    if column.type.equals(kind):
        return column
    try:
        return column.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as e:
        raise OptionError(f"column {name!r} of type {column.type} can't be taken as {kind}: {e}") from e


def _text(batch: pa.RecordBatch, name: str) -> Any:
    return _cast(batch, name, pa.string())


def _maps(batch: pa.RecordBatch) -> Any:
    return _cast(batch, "properties", MESSAGES.field("properties").type)


def _bodies(batch: pa.RecordBatch, rows: Rows) -> Any:
    column = _cast(batch, "body", pa.binary())
    rows.check(true(column.is_valid()), "body", column, "a body, which may be empty")
    return column


def _integers(batch: pa.RecordBatch, name: str, rows: Rows) -> Any:
    """An int64 array of values in range, all null where there is no such column."""
    if name not in batch.schema.names or pa.types.is_null(batch.schema.field(name).type):
        return pa.nulls(len(batch), pa.int64())
    column = batch.column(name)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    low, high = _RANGES[name]
    if pa.types.is_unsigned_integer(column.type):
        within = true(pc.less_equal(column, pa.scalar(min(high, (1 << column.type.bit_width) - 1), column.type)))
    elif column.type.bit_width <= 32 and low < 0:
        return column.cast(pa.int64())
    else:
        column = column.cast(pa.int64())
        values = np.asarray(column.fill_null(max(low, 0)) if column.null_count else column)
        within = (values >= low) & (values <= high)
        if within.all():
            return column
    within |= true(column.is_null())
    rows.check(within, name, column, f"{low} to {high}", _WHY.get(name))
    return column.cast(pa.int64())


_NO_TIME: Final = -(1 << 63)


def _milliseconds(batch: pa.RecordBatch, name: str, rows: Rows) -> I64:
    """int64[n], _NO_TIME for null. A finer time is cut to the millisecond that it lies in."""
    if name not in batch.schema.names or pa.types.is_null(batch.schema.field(name).type):
        return np.full(len(batch), _NO_TIME)
    column = batch.column(name)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    times, over = _TIMES[column.type.unit]
    raw = column.view(pa.int64())
    values = np.asarray(raw.fill_null(0) if raw.null_count else raw)
    most = min(_MAX_MS * over // times, _INT64[1])
    rows.check((values >= -most) & (values <= most), name, values, f"{column.type.unit} since 1970, {-most} to {most}")
    ms: I64 = values // over if over > 1 else values * times
    return ms if not raw.null_count else np.where(true(raw.is_null()), _NO_TIME, ms)


def _or_zero(values: Any, kind: Any) -> npt.NDArray[Any]:
    return np.asarray(values.fill_null(0) if values.null_count else values).astype(kind)


# --- values --------------------------------------------------------------------------------------------------------------


def _queue_ids(
    given: Any,
    topics: pa.DictionaryArray,
    options: WriteOptions,
    first_queue: int,
    seen: Mapping[str, int],
    queue_nums: Mapping[str, int],
) -> npt.NDArray[np.int32]:
    """int32[n]: as given, and else each topic's messages in turn over its queues."""
    if not given.null_count:
        return np.asarray(given).astype(np.int32)
    names = topics.dictionary.to_pylist()
    codes = np.asarray(topics.indices)
    order = np.argsort(codes, kind="stable")
    counts = np.bincount(codes, minlength=len(names))
    rank = np.empty(len(codes), dtype=np.int64)
    rank[order] = np.arange(len(codes)) - np.repeat(np.cumsum(counts) - counts, counts)
    start = np.array([first_queue + seen.get(name, 0) for name in names], dtype=np.int64)
    size = np.array([max(1, queue_nums.get(name, options.default_topic_queue_nums)) for name in names], dtype=np.int64)
    spread = (rank + start[codes]) % size[codes] if len(codes) else rank
    open_ = true(given.is_null())
    return np.where(open_, spread, np.asarray(given.fill_null(0))).astype(np.int32)


def _places(numbers: dict[str, Any], options: WriteOptions, rows: Rows) -> tuple[Any, Any]:
    """queueOffset and commitLogOffset: as given where they are to be preserved, else null."""
    if not options.preserve:
        nothing = pa.nulls(len(rows.topic), pa.int64())
        return nothing, nothing
    offsets = numbers["queueOffset"]
    rows.check(true(offsets.is_valid()), "queueOffset", offsets, "a queueOffset: preserve keeps it")
    if not options.renumber:
        low = true(pc.less_equal(offsets, _MAX_QUEUE_OFFSET))
        rows.check(low, "queueOffset", offsets, f"0 to {_MAX_QUEUE_OFFSET}", "Set renumber=true to number the messages anew")
    return offsets, numbers["commitLogOffset"]


def _hosts(
    batch: pa.RecordBatch, name: str, default: bytes, options: WriteOptions, rows: Rows
) -> tuple[Any, npt.NDArray[np.int32]]:
    """(the hosts as a record stores them, which are IPv6: 0 or 1). A batch has few hosts: each is parsed once."""
    count = len(batch)
    column = _text(batch, name) if name in batch.schema.names else None
    if column is None or column.null_count == count:
        indices, hosts = np.zeros(count, dtype=np.int32), [default]
    else:
        coded = _coded(column)
        hosts = []
        for code, text in enumerate(coded.dictionary.to_pylist()):
            try:
                hosts.append(host_bytes(text))
                if not 0 <= int.from_bytes(hosts[-1][-4:], "big", signed=True) <= _MAX_PORT and not options.preserve:
                    raise ValueError(f"a port of 0 to {_MAX_PORT}")
            except ValueError as e:
                row = int(np.argmax(true(pc.equal(coded.indices, code))))
                raise rows.refuse(row, name, text, str(e)) from None
        indices = np.asarray(coded.indices.fill_null(len(hosts)) if coded.null_count else coded.indices).astype(np.int32)
        hosts.append(default)
    wide = np.array([len(host) > 8 for host in hosts], dtype=np.int32)
    return pa.DictionaryArray.from_arrays(pa.array(indices), pa.array(hosts, type=pa.binary())), wide[indices]


def _coded(column: Any) -> pa.DictionaryArray:
    """As `dictionary_encode`; faster where all rows have one value."""
    if not column.null_count and pc.all(pc.equal(column, column[0])).as_py():
        return pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(column), dtype=np.int32)), column[:1])
    return column.dictionary_encode()
