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

from store_core import ragged
from store_core.decode import Context, Parts, columns
from store_core.described import DESCRIBED, LIGHT, NO_PLACE, Described
from store_core.errors import CorruptStoreError, OptionError
from store_core.hashing import Hashes, joined_key_hashes, prefix_hashes, span_hashes
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
from store_core.properties import Pairs, Spans, Uniform, split

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
    # a rollback's bits are those of a prepared message and of a commit
    found: Bool = sys_flag & TRANSACTION_PREPARED == 0
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
    stored = _spans(batch.column("propertiesString"))
    names = batch.schema.names
    pairs: list[Pairs | Uniform] = []

    def spans(name: str) -> Spans:
        column = {"TAGS": "tags", "KEYS": "keys", "UNIQ_KEY": "uniqKey"}.get(name)
        if column in names:
            return _spans(batch.column(column))
        if stored.data.tobytes().find(name.encode() + bytes([SEPARATOR_NAME])) < 0:
            return Spans(stored.data, stored.starts, np.zeros_like(stored.lengths))
        if not pairs:
            spare = pa.py_buffer(stored.data.tobytes() + b"\0")
            pairs.append(split(spare, stored.starts, stored.lengths))
        return pairs[0].spans(name)

    records = np.zeros(batch.num_rows, DESCRIBED)
    records["commitLogOffset"] = _ints(batch.column("commitLogOffset"), NO_PLACE)
    records["queueOffset"] = _ints(batch.column("queueOffset"), NO_PLACE)
    records["storeTimestamp"] = _ints(batch.column("storeTimestamp").view(pa.int64()), 0) // 1000
    records["size"] = _ints(batch.column("storeSize"), 0)
    records["sysFlag"] = _ints(batch.column("sysFlag"), 0)
    records["hasCrc"] = _ends_in_crc(stored.data, stored.starts + stored.lengths, stored.lengths)
    source = _Source(batch.column("topic").dictionary_encode(), _ints(batch.column("queueId"), 0), spans)
    return _describe(source, records, index_tags, delay_levels)


def describe_parts(parts: Parts, *, index_tags: bool, delay_levels: tuple[int, ...] = DELAY_LEVELS) -> Described:
    """The same of records that were located in a log, by what they hold themselves."""
    records = np.zeros(len(parts), DESCRIBED)
    for name in ("commitLogOffset", "queueOffset", "storeTimestamp", "sysFlag"):
        records[name] = parts.header(name)
    records["size"] = parts.heads["storeSize"]
    ends = parts.properties_start + parts.properties_length
    records["hasCrc"] = _ends_in_crc(parts.data, ends, parts.properties_length)
    topic = columns(parts, ("topic",), Context())[0]["topic"]
    source = _Source(topic.dictionary_encode(), parts.header("queueId"), lambda name: parts.pairs().spans(name))
    return _describe(source, records, index_tags, delay_levels)


@dataclass(frozen=True, slots=True)
class _Source:
    """Where the properties of messages come from: `spans(name)` gives one value per message."""

    topic: pa.DictionaryArray
    queue_id: npt.NDArray[np.integer[Any]]
    spans: Callable[[str], Spans]


def _describe(source: _Source, records: npt.NDArray[np.void], index_tags: bool, levels: tuple[int, ...]) -> Described:
    topics = source.topic.dictionary.to_pylist()
    indexed = records["sysFlag"] & TRANSACTION_MASK != TRANSACTION_ROLLBACK
    tags = _hashed(source.spans("TAGS"))
    records["tagsCode"][tags.rows] = tags.hashes.view(np.int32)
    if SCHEDULE_TOPIC in topics:
        _put_delivery_times(source, records, topics.index(SCHEDULE_TOPIC), levels)
    kinds = [_hashed(source.spans("UNIQ_KEY")), _hashed(source.spans("KEYS"), separator=ord(KEYS_SEPARATOR))]
    prefixes = ["", ""]
    if index_tags:
        kinds.append(tags)
        prefixes.append(TAG_PREFIX)
    hashes = _index_hashes(source.topic, kinds, prefixes, indexed, records)
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
    told = source.spans(_DELAY)
    rows = np.flatnonzero((np.asarray(source.topic.indices) == topic) & (told.lengths > 0))
    text = _text(told, rows).dictionary_encode()
    waits = np.array([_wait(each, levels) for each in text.dictionary.to_pylist()], dtype=np.int64)
    wait = waits[np.asarray(text.indices)]
    if (wrong := np.flatnonzero(wait == _NO_NUMBER)).size:
        row = int(wrong[0])
        raise _stumbles(records, int(rows[row]), f"{_DELAY} is {text[row].as_py()!r}, expected a delay level, a number")
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
    names = source.spans(LIGHT_NAMES)
    rows = np.flatnonzero((names.lengths > 0) & has_queue_entry(records["sysFlag"]))
    if not len(rows):
        return np.zeros(0, LIGHT)
    told = _text(names, rows).to_pylist()
    offsets = _text(source.spans(LIGHT_OFFSETS), rows).to_pylist()
    known = {queue: number for number, queue in enumerate(queues)}
    found: list[tuple[int, int, int]] = []
    for row, name, offset in zip(rows.tolist(), told, offsets, strict=True):
        topic, queue_id = queues[records["queue"][row]]
        try:
            places = light_places(topic, queue_id, name, offset)
        except ValueError:
            text = f"{LIGHT_OFFSETS} is {offset!r}, expected numbers with commas between"
            raise _stumbles(records, row, text) from None
        found += [(row, known.setdefault((queue, id), len(known)), number) for queue, id, number in places]
    queues += list(known)[len(queues) :]
    return np.array(found, dtype=LIGHT)


def _stumbles(records: npt.NDArray[np.void], row: int, what: str) -> CorruptStoreError:
    place = int(records["commitLogOffset"][row])
    where = f"the message at commitLogOffset {place}" if place != NO_PLACE else f"message {row}"
    return CorruptStoreError(f"{where} can't be dispatched: its property {what}", offset=place if place != NO_PLACE else None)


# --- index ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Hashed:
    """m strings by their hashes and UTF-16 units; `rows`: int64[m], which message each is of, ascending."""

    rows: I64
    hashes: Hashes
    units: I64


def _hashed(spans: Spans, separator: int | None = None) -> _Hashed:
    """The values that are not empty, cut at each `separator`; empty pieces are left out, as `IndexService#buildIndex` does."""
    starts, lengths = spans.starts, spans.lengths
    rows = np.arange(len(starts))
    if not lengths.all():
        rows = np.flatnonzero(lengths)
        starts, lengths = starts[rows], lengths[rows]
    if separator is not None and (cuts := _cuts(spans.data, starts, lengths, separator)).size:
        ends = np.sort(np.append(cuts, starts + lengths))
        firsts = np.sort(np.append(starts, cuts + 1))
        keep = ends > firsts
        rows = rows[np.searchsorted(starts, firsts[keep], side="right") - 1]
        starts, lengths = firsts[keep], (ends - firsts)[keep]
    ascii = not len(spans.data) or int(spans.data.max()) < 0x80
    return _Hashed(rows, *span_hashes(spans.data, starts, lengths, ascii=ascii))


def _cuts(data: npt.NDArray[np.uint8], starts: I64, lengths: I64, separator: int) -> I64:
    """Where the separator stands inside of these ranges; in UTF-8 it can't be a part of another character."""
    if data.tobytes().find(separator) < 0 or not len(starts):
        return np.zeros(0, dtype=np.int64)
    found = np.flatnonzero(data == separator)
    at = np.searchsorted(starts, found, side="right") - 1
    inside: I64 = found[(at >= 0) & (found < (starts + lengths)[at])]
    return inside


def _index_hashes(
    topic: pa.DictionaryArray, kinds: list[_Hashed], prefixes: list[str], indexed: Bool, records: npt.NDArray[np.void]
) -> I32:
    """The key hashes of all messages that are indexed, message by message and kind by kind. Sets keyCount."""
    which = np.asarray(topic.indices)
    each = np.arange(len(records))
    every = indexed.all()
    placed = []
    for kind, prefix in zip(kinds, prefixes, strict=True):
        rows, hashes, units = kind.rows, kind.hashes, kind.units
        if not every:
            keep = indexed[rows]
            rows, hashes, units = rows[keep], hashes[keep], units[keep]
        before = prefix_hashes(topic.dictionary, prefix)[which]
        placed.append((rows, joined_key_hashes(before[rows], hashes, units)))
    if all(np.array_equal(rows, each) for rows, _ in placed):  # one of each kind in every message, as often with one producer
        records["keyCount"] = len(placed)
        return np.stack([found for _, found in placed], axis=1).reshape(-1)
    counts = [np.bincount(rows, minlength=len(records)) for rows, _ in placed]
    total = np.sum(counts, axis=0)
    records["keyCount"] = total
    first = np.cumsum(total) - total
    out = np.empty(int(total.sum()), dtype=np.int32)
    for (rows, found), count in zip(placed, counts, strict=True):
        # an entry's place: its message's first, and how many of this kind its message has before it
        out[first[rows] + np.arange(len(rows)) - (np.cumsum(count) - count)[rows]] = found
        first += count
    return out


# --- arrays --------------------------------------------------------------------------------------------------------------


def _ints(values: Any, null: int) -> I64:
    filled = values.fill_null(null) if values.null_count else values
    return np.asarray(filled).astype(np.int64)


def _spans(strings: pa.StringArray) -> Spans:
    """The values of a column where they stand; nulls are empty."""
    _, offsets, data = strings.buffers()
    count = len(strings)
    if data is None or not count:
        nothing = np.zeros(count, dtype=np.int64)
        return Spans(np.zeros(8, dtype=np.uint8), nothing, nothing)
    ends = np.frombuffer(offsets, np.int32)[strings.offset : strings.offset + count + 1].astype(np.int64)
    lengths = np.diff(ends)
    if strings.null_count:  # a null may have bytes
        lengths *= strings.is_valid().to_numpy(zero_copy_only=False)
    size = int(ends[-1] - ends[0])
    return Spans(np.frombuffer(data, np.uint8, count=size, offset=int(ends[0])), ends[:-1] - ends[0], lengths)


def _text(spans: Spans, rows: I64) -> pa.StringArray:
    """The values of some rows, ascending."""
    return ragged.text(ragged.binary(pa.py_buffer(spans.data), spans.starts[rows], spans.lengths[rows]))


def _ends_in_crc(data: npt.NDArray[np.uint8], ends: I64, lengths: I64) -> Bool:
    """Which properties strings, data[end - length : end], close with a `__CRC32#` block."""
    found = lengths >= CRC_PROPERTY_SIZE
    at = ends[found] - CRC_PROPERTY_SIZE
    if len(at):
        words = np.ndarray((len(data) - 7,), dtype="<u8", buffer=data, strides=(1,))
        found[found] = (words[at] == _CRC_WORD) & (data[at + len(CRC_PROPERTY)] == SEPARATOR_NAME)
    return found
