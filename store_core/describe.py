"""What a broker makes of messages when it dispatches them: queue entries and index entries (`DispatchRequest`).

The one home of these rules: which messages get a queue entry and which are indexed, under which key strings and in what order;
what the tagsCode is, in the delay topic too; in which light queues a message stands besides.
`CommitLog#checkMessageAndReturnSize`, `CommitLogDispatcherBuildConsumeQueue`, `ConsumeQueue#multiDispatchLmqQueue`,
`IndexService#buildIndex`, `ScheduleMessageService#computeDeliverTimestamp`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from store_core.decode import Context, Parts, columns
from store_core.described import DESCRIBED, LIGHT, NO_PLACE, Described
from store_core.errors import CorruptStoreError, OptionError
from store_core.hashing import key_hashes, tags_code
from store_core.indextable import KEYS_SEPARATOR, TAG_PREFIX
from store_core.layout import (
    CRC_PROPERTY,
    CRC_PROPERTY_SIZE,
    SCHEDULE_TOPIC,
    SEPARATOR_NAME,
    TRANSACTION_MASK,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
)
from store_core.properties import Pairs, Uniform, split

__all__ = [
    "DELAY_LEVELS",
    "LIGHT_NAMES",
    "LIGHT_OFFSETS",
    "describe",
    "describe_parts",
    "has_queue_entry",
    "light_places",
    "parse_delay_levels",
]

LIGHT_NAMES: Final = "INNER_MULTI_DISPATCH"
LIGHT_OFFSETS: Final = "INNER_MULTI_QUEUE_OFFSET"
_DELAY: Final = "DELAY"
_LIGHT_PREFIX: Final = "%LMQ%"
_NO_LIGHT_QUEUES: Final = ("%RETRY%", "rmq_sys_")
"""Topics whose messages are dispatched to no light queue begin so; the delay topic's are not either."""
_LEVEL: Final = re.compile(r"[+-]?\d{1,10}")
_LONG: Final = re.compile(r"\d{1,18}")
_LEVEL_UNITS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_UNKNOWN_LEVEL_MS: Final = 1_000
_CRC_WORD: Final = np.uint64(int.from_bytes(CRC_PROPERTY, "little"))

Bool = npt.NDArray[np.bool_]
I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]


def parse_delay_levels(text: str) -> tuple[int, ...]:
    """The broker's option `messageDelayLevel`, as `1s 5s 1m 2h 1d`: milliseconds of level 1, 2, ...

    Errors: OptionError.
    """
    levels = text.split()
    if not levels or not all(len(each) > 1 and each[:-1].isdecimal() and each[-1] in _LEVEL_UNITS for each in levels):
        raise OptionError(f"messageDelayLevel is {text!r}; expected times with a unit of s, m, h or d, as '1s 5s 1m 2h'")
    return tuple(int(each[:-1]) * _LEVEL_UNITS[each[-1]] for each in levels)


DELAY_LEVELS: Final = parse_delay_levels("1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h")
"""RocketMQ's default messageDelayLevel, in ms."""


def has_queue_entry(sys_flag: npt.NDArray[np.integer[Any]]) -> Bool:
    """Which messages stand in their queue: prepared and rolled back ones don't, and use up no queueOffset."""
    kind = sys_flag & TRANSACTION_MASK
    found: Bool = (kind != TRANSACTION_PREPARED) & (kind != TRANSACTION_ROLLBACK)
    return found


def light_places(topic: str, queue_id: int, names: str | None, offsets: str | None) -> list[tuple[str, int, int]]:
    """(name, queueId, queueOffset) of the light queues that a message of `topic` stands in, by its properties
    INNER_MULTI_DISPATCH and INNER_MULTI_QUEUE_OFFSET; none where their lengths differ.

    Errors: ValueError for an offset that is no number.
    """
    if not names or not offsets or topic.startswith(_NO_LIGHT_QUEUES) or topic == SCHEDULE_TOPIC:
        return []
    queues, places = names.rstrip(",").split(","), offsets.rstrip(",").split(",")
    if len(queues) != len(places):
        return []
    if not all(map(_LONG.fullmatch, places)):
        raise ValueError("numbers")
    return [
        (queue, 0 if queue.startswith(_LIGHT_PREFIX) else queue_id, int(place))
        for queue, place in zip(queues, places, strict=True)
        if "/" not in queue
    ]


def describe(batch: pa.RecordBatch, *, index_tags: bool, delay_levels: tuple[int, ...] = DELAY_LEVELS) -> Described:
    """Messages given as columns of the messages table and `propertiesString`, as a broker would dispatch them.

    Columns tags, keys and uniqKey are believed where they are there: they have to be what propertiesString says. A null
    commitLogOffset or queueOffset becomes NO_PLACE, a null storeSize 0. `index_tags`: an index entry for TAGS too (5.4.0 on).
    Errors: CorruptStoreError for properties that a broker stumbles over: a level of a delayed message, a place in a light
    queue.
    """
    stored = batch.column("propertiesString").fill_null("")
    names = batch.schema.names

    def prop(name: str, rows: I64 | None = None) -> pa.StringArray:
        column = {"TAGS": "tags", "KEYS": "keys", "UNIQ_KEY": "uniqKey"}.get(name)
        if column in names:
            return batch.column(column)
        if rows is None and not _mentions(stored, name):
            return pa.nulls(len(stored), pa.string())
        return _split(stored if rows is None else stored.take(pa.array(rows))).values(name)

    records = np.zeros(batch.num_rows, DESCRIBED)
    records["commitLogOffset"] = _ints(batch.column("commitLogOffset"), NO_PLACE)
    records["queueOffset"] = _ints(batch.column("queueOffset"), NO_PLACE)
    records["storeTimestamp"] = _ints(batch.column("storeTimestamp").view(pa.int64()), 0) // 1000
    records["size"] = _ints(batch.column("storeSize"), 0)
    records["sysFlag"] = _ints(batch.column("sysFlag"), 0)
    data, starts, lengths = _buffer(stored)
    records["hasCrc"] = _ends_in_crc(np.frombuffer(data, np.uint8), starts + lengths, lengths)
    source = _Source(batch.column("topic").dictionary_encode(), _ints(batch.column("queueId"), 0), prop)
    return _describe(source, records, index_tags, delay_levels)


def describe_parts(parts: Parts, *, index_tags: bool, delay_levels: tuple[int, ...] = DELAY_LEVELS) -> Described:
    """The same of records that were located in a log, by what they hold themselves."""

    def prop(name: str, rows: I64 | None = None) -> pa.StringArray:
        values = parts.pairs().values(name)
        return values if rows is None else values.take(pa.array(rows))

    records = np.zeros(len(parts), DESCRIBED)
    for name in ("commitLogOffset", "queueOffset", "storeTimestamp", "sysFlag"):
        records[name] = parts.header(name)
    records["size"] = parts.heads["storeSize"]
    ends = parts.properties_start + parts.properties_length
    records["hasCrc"] = _ends_in_crc(parts.data, ends, parts.properties_length)
    topic = columns(parts, ("topic",), Context())[0]["topic"]
    source = _Source(topic.dictionary_encode(), parts.header("queueId"), prop)
    return _describe(source, records, index_tags, delay_levels)


@dataclass(frozen=True, slots=True)
class _Source:
    """Where the properties of messages come from: `prop(name, rows)` gives one value per message (of `rows`), null for none."""

    topic: pa.DictionaryArray
    queue_id: npt.NDArray[np.integer[Any]]
    prop: Callable[..., pa.StringArray]


def _describe(source: _Source, records: npt.NDArray[np.void], index_tags: bool, levels: tuple[int, ...]) -> Described:
    topics = source.topic.dictionary.to_pylist()
    tags = source.prop("TAGS").dictionary_encode()
    indexed = records["sysFlag"] & TRANSACTION_MASK != TRANSACTION_ROLLBACK
    records["tagsCode"] = _by_index(tags, tags_code(tags.dictionary), 0)
    if SCHEDULE_TOPIC in topics:
        _put_delivery_times(source, records, topics.index(SCHEDULE_TOPIC), levels)
    hashes = _index_hashes(source, tags if index_tags else None, indexed, records)
    queues = _put_queues(source, records, topics)
    light = _light(source, records, queues)
    return Described(records, hashes, tuple(queues), light)


# --- queues --------------------------------------------------------------------------------------------------------------


def _put_queues(source: _Source, records: npt.NDArray[np.void], topics: list[str]) -> list[tuple[str, int]]:
    topic = np.asarray(source.topic.indices, dtype=np.int64)
    coded = pa.array(topic << 32 | (source.queue_id.astype(np.int64) & 0xFFFFFFFF)).dictionary_encode()
    records["queue"] = np.asarray(coded.indices)
    both = np.asarray(coded.dictionary, dtype=np.int64)
    # the low half is a signed int again
    return [(topics[t], q) for t, q in zip((both >> 32).tolist(), both.astype(np.int32).tolist(), strict=True)]


def _put_delivery_times(source: _Source, records: npt.NDArray[np.void], topic: int, levels: tuple[int, ...]) -> None:
    """In the delay topic the tagsCode of a message with a level is when it will be delivered."""
    rows = np.flatnonzero(np.asarray(source.topic.indices) == topic).astype(np.int64)
    told = source.prop(_DELAY, rows).dictionary_encode()
    waits = np.array([_wait(text, levels) for text in told.dictionary.to_pylist()], dtype=np.int64)
    wait = _by_index(told, waits, 0)
    if (wrong := np.flatnonzero(wait == _NO_NUMBER)).size:
        row = int(wrong[0])
        raise _stumbles(records, int(rows[row]), f"{_DELAY} is {told[row].as_py()!r}, expected a delay level, a number")
    delayed = rows[wait > 0]
    records["tagsCode"][delayed] = records["storeTimestamp"][delayed] + wait[wait > 0]


_NO_NUMBER: Final = -1


def _wait(text: str, levels: tuple[int, ...]) -> int:
    """Milliseconds of a level; 0 for levels that do not count."""
    if _LEVEL.fullmatch(text) is None or not -(1 << 31) <= (level := int(text)) < 1 << 31:
        return _NO_NUMBER
    if level <= 0 or not levels:
        return 0
    return levels[min(level, len(levels)) - 1] or _UNKNOWN_LEVEL_MS


def _light(source: _Source, records: npt.NDArray[np.void], queues: list[tuple[str, int]]) -> npt.NDArray[np.void]:
    """The entries of light queues; these are added to `queues`."""
    names = source.prop(LIGHT_NAMES)
    if names.null_count == len(names):
        return np.zeros(0, LIGHT)
    rows = np.flatnonzero(_true(names.is_valid()) & has_queue_entry(records["sysFlag"]))
    offsets = source.prop(LIGHT_OFFSETS)
    known = {queue: number for number, queue in enumerate(queues)}
    found: list[tuple[int, int, int]] = []
    for row in rows.tolist():
        topic, queue_id = queues[records["queue"][row]]
        try:
            places = light_places(topic, queue_id, names[row].as_py(), offsets[row].as_py())
        except ValueError:
            text = f"{LIGHT_OFFSETS} is {offsets[row].as_py()!r}, expected numbers with commas between"
            raise _stumbles(records, row, text) from None
        found += [(row, known.setdefault((name, queue), len(known)), offset) for name, queue, offset in places]
    queues += list(known)[len(queues) :]
    return np.array(found, dtype=LIGHT)


def _stumbles(records: npt.NDArray[np.void], row: int, what: str) -> CorruptStoreError:
    place = int(records["commitLogOffset"][row])
    where = f"the message at commitLogOffset {place}" if place != NO_PLACE else f"message {row}"
    return CorruptStoreError(f"{where} can't be dispatched: its property {what}", offset=place if place != NO_PLACE else None)


# --- index ---------------------------------------------------------------------------------------------------------------


def _index_hashes(source: _Source, tags: pa.DictionaryArray | None, indexed: Bool, records: npt.NDArray[np.void]) -> I32:
    """The key hashes of all messages, message by message: UNIQ_KEY, each token of KEYS, TAGS. Sets keyCount."""
    uniq_rows, uniq = _some(source.prop("UNIQ_KEY"), indexed)
    token_rows, tokens = _tokens(*_some(source.prop("KEYS"), indexed))
    kinds = [(uniq_rows, uniq), (token_rows, tokens)]
    if tags is not None:
        join: Any = pc.binary_join_element_wise
        prefixed = join(TAG_PREFIX, tags.dictionary, "")
        rows, some = _some(tags, indexed)
        kinds.append((rows, pa.DictionaryArray.from_arrays(some.indices, prefixed)))
    each = np.arange(len(records))
    whole = [np.array_equal(rows, each) for rows, _ in kinds]
    hashes = [
        key_hashes(source.topic if all_rows else source.topic.take(pa.array(rows)), keys)
        for all_rows, (rows, keys) in zip(whole, kinds, strict=True)
    ]
    if all(whole):  # one of each kind in every message, as one producer's often have
        records["keyCount"] = len(kinds)
        return np.stack(hashes, axis=1).reshape(-1)
    counts = [np.bincount(rows, minlength=len(records)) for rows, _ in kinds]
    every = np.sum(counts, axis=0)
    records["keyCount"] = every
    first = np.cumsum(every) - every
    out = np.empty(int(every.sum()), dtype=np.int32)
    for (rows, _), found, count in zip(kinds, hashes, counts, strict=True):
        # an entry's place: its message's first, and how many of this kind its message has before it
        before = np.arange(len(rows)) - (np.cumsum(count) - count)[rows]
        out[first[rows] + before] = found
        first += count
    return out


def _some(values: Any, indexed: Bool) -> tuple[I64, Any]:
    """The rows that are indexed and have a value that is not empty, and their values."""
    length = pc.binary_length(values.dictionary if isinstance(values, pa.DictionaryArray) else values)
    if isinstance(values, pa.DictionaryArray):
        filled = _by_index(values, np.asarray(length) > 0, False) if len(length) else np.zeros(len(values), dtype=bool)
    else:
        filled = _true(pc.greater(length, pa.scalar(0)))
    filled &= indexed
    rows = np.flatnonzero(filled).astype(np.int64)
    return rows, values if len(rows) == len(values) else values.take(pa.array(rows))


def _tokens(rows: I64, keys: pa.StringArray) -> tuple[I64, pa.StringArray]:
    """The tokens of KEYS, and the row of each. Java's `split` and ours differ in empty tokens alone, and these are skipped."""
    if _buffer(keys)[0].find(KEYS_SEPARATOR.encode()) < 0:
        return rows, keys
    lists = pc.split_pattern(keys, KEYS_SEPARATOR)
    found: Any = pc.list_flatten(lists)
    keep = np.flatnonzero(np.asarray(pc.binary_length(found)) > 0)
    return rows[np.asarray(pc.list_parent_indices(lists))[keep]], found.take(pa.array(keep))


# --- arrays --------------------------------------------------------------------------------------------------------------


def _by_index(coded: pa.DictionaryArray, values: npt.NDArray[Any], null: Any) -> npt.NDArray[Any]:
    """`values`, one for each word of the dictionary, spread over the rows."""
    spread = np.append(values, np.array([null], dtype=values.dtype))
    return spread[coded.indices.fill_null(len(values)).to_numpy(zero_copy_only=False)]


def _ints(values: Any, null: int) -> I64:
    filled = values.fill_null(null) if values.null_count else values
    return np.asarray(filled).astype(np.int64)


def _true(mask: Any) -> Bool:
    return np.array(mask.fill_null(False).to_numpy(zero_copy_only=False), dtype=bool)


def _buffer(strings: pa.StringArray) -> tuple[bytes, I64, I64]:
    """(a copy of the strings' bytes and some more behind them, where each begins, its length)."""
    _, offsets, data = strings.buffers()
    if data is None or not len(strings):
        return bytes(8), np.zeros(len(strings), np.int64), np.zeros(len(strings), np.int64)
    ends = np.frombuffer(offsets, np.int32)[strings.offset : strings.offset + len(strings) + 1].astype(np.int64)
    copied = memoryview(data)[int(ends[0]) : int(ends[-1])].tobytes() + bytes(8)
    return copied, ends[:-1] - ends[0], np.diff(ends)


def _mentions(strings: pa.StringArray, name: str) -> bool:
    """Whether a property of this name may stand in any of the properties strings."""
    return _buffer(strings)[0].find(name.encode() + bytes([SEPARATOR_NAME])) >= 0


def _split(strings: pa.StringArray) -> Pairs | Uniform:
    data, starts, lengths = _buffer(strings)
    return split(pa.py_buffer(data), starts, lengths)


def _ends_in_crc(data: npt.NDArray[np.uint8], ends: I64, lengths: I64) -> Bool:
    """Which properties strings, data[end - length : end], close with a `__CRC32#` block."""
    found = lengths >= CRC_PROPERTY_SIZE
    at = ends[found] - CRC_PROPERTY_SIZE
    if len(at):
        words = np.ndarray((len(data) - 7,), dtype="<u8", buffer=data, strides=(1,))
        found[found] = (words[at] == _CRC_WORD) & (data[at + len(CRC_PROPERTY)] == SEPARATOR_NAME)
    return found
