"""What a broker keeps beside its messages in `config/*.json`: topics, consumers' offsets, delay offsets, groups.

`ConfigManager`, `TopicConfigManager`, `ConsumerOffsetManager`, `LmqConsumerOffsetManager`, `ScheduleMessageService`,
`SubscriptionGroupManager`. As in the broker, `x.json.bak` stands in for an `x.json` that is missing, empty or damaged; a note
says so. Where neither can be read there is a CorruptStoreError; no other error comes out of a file's content. A file that is
not there holds nothing.
"""

from __future__ import annotations

import dataclasses
import posixpath
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from store_core.errors import CorruptStoreError, StoreChangedError
from store_core.fastjson import loads_fastjson
from store_core.files import Files

__all__ = [
    "ConsumerOffsets",
    "Loaded",
    "SubscriptionGroup",
    "TopicConfig",
    "batch_topics",
    "read_consumer_offsets",
    "read_delay_offsets",
    "read_subscription_groups",
    "read_topics",
    "read_tree",
    "read_whole",
]

ConsumerOffsets = dict[tuple[str, str], dict[int, int]]
T = TypeVar("T")
R = TypeVar("R", bound="TopicConfig | SubscriptionGroup")

_PIECE = 1 << 20
_I64 = 1 << 63
_HINT = "Restore the file from a backup, or remove it: a broker writes it anew"
_ROCKSDB_FOR_ALL = ("rdb", "metadata")


@dataclass(frozen=True, slots=True)
class Loaded(Generic[T]):
    """What was read: the value, the files it came from, and what a user should know about it."""

    value: T
    paths: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """One topic, as in topics.json (`TopicConfig`); the defaults are RocketMQ's. perm bits: 4 read, 2 write, 1 inherit."""

    read_queue_nums: int = 16
    write_queue_nums: int = 16
    perm: int = 6
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: int = 0
    order: bool = False
    attributes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SubscriptionGroup:
    """One consumer group, as in subscriptionGroup.json (`SubscriptionGroupConfig`); the defaults are RocketMQ's."""

    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queue_nums: int = 1
    retry_max_times: int = 16
    broker_id: int = 0
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True
    group_sys_flag: int = 0
    consume_timeout_minute: int = 15
    attributes: Mapping[str, str] = field(default_factory=dict)


def read_topics(files: Files, root: str) -> Loaded[dict[str, TopicConfig]]:
    """The topics of the store in `root`, by name, from config/topics.json."""
    return _read_json(files, root, "topics.json", "topics", _topics, {})


def batch_topics(topics: Mapping[str, TopicConfig]) -> frozenset[str]:
    """Those of batch queues (`QueueTypeUtils#isBatchCq`): a broker does not start where they have queues in consumequeue."""
    return frozenset(name for name, topic in topics.items() if topic.attributes.get("queue.type") == "BatchCQ")


def read_subscription_groups(files: Files, root: str) -> Loaded[dict[str, SubscriptionGroup]]:
    """The consumer groups of the store in `root`, by name, from config/subscriptionGroup.json."""
    return _read_json(files, root, "subscriptionGroup.json", "subscriptionGroups", _groups, {})


def read_delay_offsets(files: Files, root: str) -> Loaded[dict[int, int]]:
    """Delay level (from 1) -> next queueOffset in queue level - 1 of SCHEDULE_TOPIC_XXXX, from config/delayOffset.json."""
    return _read_json(
        files, root, "delayOffset.json", None, lambda tree: _offsets(tree.get("offsetTable", {}), "offsetTable"), {}
    )


def read_consumer_offsets(files: Files, root: str) -> Loaded[ConsumerOffsets]:
    """(topic, group) -> {queueId: next queueOffset to consume}, from config/consumerOffset.json and lmqConsumerOffset.json.

    A broker with `enableLmq` uses the second file only, for all its topics. Where both files are there and disagree, the second
    one's offsets are taken and a note counts them. `pullOffsetTable` holds no committed offsets, and is not read.
    """
    nothing: tuple[ConsumerOffsets, tuple[str, ...]] = ({}, ())
    plain = _read_json(files, root, "consumerOffset.json", "consumerOffsets", _consumer_offsets, nothing)
    lmq = _read_json(files, root, "lmqConsumerOffset.json", None, _consumer_offsets, nothing)
    table, plain_notes = plain.value
    other, lmq_notes = lmq.value
    differ = sum(1 for key, offsets in other.items() if key in table and table[key] != offsets)
    notes = [*plain.notes, *plain_notes, *lmq.notes, *lmq_notes]
    if differ:
        notes.append(
            f"consumerOffset.json and lmqConsumerOffset.json disagree about {differ} of their topic@group keys; the offsets of "
            "lmqConsumerOffset.json were taken (a broker with enableLmq uses those)"
        )
    return Loaded({**table, **other}, plain.paths + lmq.paths, tuple(notes))


def read_tree(files: Files, root: str, name: str) -> Loaded[dict[str, Any]]:
    """All that `config/<name>` holds, as parsed JSON with text keys."""
    return _read_json(files, root, name, None, lambda tree: tree, {})


def read_whole(files: Files, path: str) -> bytes | None:
    """All bytes of a small file, to its end whatever its size was: a broker replaces these files. None where there is none."""
    if files.size(path) is None:
        return None
    data = bytearray()
    try:
        while piece := files.read(path, len(data), _PIECE):
            data += piece
    except StoreChangedError:
        return None
    return bytes(data)


def _read_json(
    files: Files, root: str, name: str, rocksdb: str | None, parse: Callable[[dict[str, Any]], T], nothing: T
) -> Loaded[T]:
    """`config/<name>` or its backup through `parse`; `rocksdb` is the folder of a RocksDB that a broker may use instead."""
    folder = posixpath.join(root, "config")
    notes = []
    for each in (rocksdb, *_ROCKSDB_FOR_ALL) if rocksdb else ():
        if files.size(posixpath.join(folder, each, "CURRENT")) is not None:
            notes.append(f"{rocksdb} are in a RocksDB ({posixpath.join(folder, each)}), which is not read")
    first: CorruptStoreError | None = None
    for path in (posixpath.join(folder, name), posixpath.join(folder, name + ".bak")):
        data = read_whole(files, path)
        if data is None:
            continue
        try:
            value = parse(_tree(data))
        except CorruptStoreError as e:
            first = first or e.at(path)
            continue
        if first is not None:
            notes.append(f"{first}: the backup {path} was read instead")
        elif path.endswith(".bak"):
            notes.append(f"{posixpath.join(folder, name)} is missing: its backup was read instead")
        return Loaded(value, (path,), tuple(notes))
    if first is not None:
        raise CorruptStoreError(
            f"{first.reason}, and there is no readable backup {name}.bak", path=first.path, offset=first.offset, hint=_HINT
        )
    return Loaded(nothing, (), tuple(notes))


def _tree(data: bytes) -> dict[str, Any]:
    if not data.strip(b" \t\r\n\0"):
        raise CorruptStoreError("an empty file (or only blanks and zeros) where a JSON object was expected")
    tree = loads_fastjson(data)
    return _object(tree, "the file")


def _object(value: object, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise CorruptStoreError(f"{what} is {_shown(value)}, and an object was expected")
    return value


def _integer(value: object, what: str) -> int:
    """An i64; also from a string of digits, which fastjson takes as well (and JSON must write as the key of an object)."""
    number = value
    if isinstance(value, str) and len(value) <= 20 and value.isascii() and value.removeprefix("-").isdigit():
        number = int(value)
    if not isinstance(number, int) or isinstance(number, bool) or not -_I64 <= number < _I64:
        raise CorruptStoreError(f"{what} is {_shown(value)}, and a 64-bit integer was expected")
    return number


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _offsets(value: object, what: str) -> dict[int, int]:
    table = _object(value, what)
    return {_integer(k, f"a key of {what}"): _integer(v, f"{what}[{_shown(k)}]") for k, v in table.items()}


def _consumer_offsets(tree: dict[str, Any]) -> tuple[ConsumerOffsets, tuple[str, ...]]:
    found: ConsumerOffsets = {}
    notes = []
    tables = [(name, _object(tree.get(name, {}), name)) for name in ("offsetTable", "lmqOffsetTable")]
    for name, table in tables:
        for key, value in table.items():
            what = f"{name}[{_shown(key)}]"
            offsets = _offsets(value, what) if name == "offsetTable" else {0: _integer(value, what)}  # an LMQ has one queue
            topic, at, group = key.partition("@")
            if not (topic and at and group) or "@" in group:
                notes.append(f"{what} is not of the form topic@group and was left out, as a broker does")
                continue
            found[topic, group] = offsets
    return found, tuple(notes)


def _topics(tree: dict[str, Any]) -> dict[str, TopicConfig]:
    return _table(TopicConfig, tree, "topicConfigTable")


def _groups(tree: dict[str, Any]) -> dict[str, SubscriptionGroup]:
    return _table(SubscriptionGroup, tree, "subscriptionGroupTable")


def _table(kind: type[R], tree: dict[str, Any], name: str) -> dict[str, R]:
    return {key: _record(kind, value, f"{name}[{_shown(key)}]") for key, value in _object(tree.get(name, {}), name).items()}


def _record(kind: type[R], value: object, what: str) -> R:
    """A `kind` from its JSON object: the Java name of each field, the default where it is not there, a check of its type."""
    given = _object(value, what)
    found: dict[str, Any] = {}
    for each in dataclasses.fields(kind):
        head, *rest = each.name.split("_")
        name = head + "".join(part.capitalize() for part in rest)
        if name in given:
            found[each.name] = _field(each, given[name], f"{what}.{name}")
    return kind(**found)


def _field(spec: dataclasses.Field[Any], value: object, what: str) -> object:
    if spec.default is dataclasses.MISSING:
        texts = _object(value, what)
        if not all(isinstance(text, str) for text in texts.values()):
            raise CorruptStoreError(f"{what} is {_shown(value)}, and an object of strings was expected")
        return texts
    wanted = type(spec.default)
    if wanted is int:
        return _integer(value, what)
    if not isinstance(value, wanted):
        raise CorruptStoreError(f"{what} is {_shown(value)}, and a {wanted.__name__} was expected")
    return value
