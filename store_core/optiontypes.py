"""What an option's text may look like, by type: a text or a Python value becomes a value, or a sentence about what is expected.

Semantics are Spark's own where Spark has such an option: byte sizes as `JavaUtils.byteStringAs`, comma lists and the JSON of
`assign` and `startingOffsets` as its Kafka source (`KafkaSourceProvider`, `JsonUtils`). Pure: no paths, no clock.
"""

from __future__ import annotations

import ipaddress
import json
import os
import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone
from typing import Any, Final

__all__ = ["EARLIEST", "LATEST", "TYPES", "Assignment", "Offsets", "Parser", "host_bytes", "loads"]

EARLIEST: Final = -2
LATEST: Final = -1

Assignment = tuple[tuple[str, tuple[int, ...]], ...]
"""(topic, queueIds), as given; both ascending."""
Offsets = tuple[tuple[str, int, int], ...]
"""(topic, queueId, queueOffset or EARLIEST or LATEST), ascending."""
Parser = Callable[[object], Any]
"""Takes what the user gave; raises ValueError whose text says what was expected."""

_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_JSON_LIST = re.compile(r'\s*\[\s*"')
_SIZE = re.compile(r"([0-9]{1,19})\s*(b|[kmgtp]b?)?")
_UNITS: Final = "bkmgtp"
_INSTANT = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d)(:\d\d)?(?:\.(\d+))?\s*(Z|z|[+-]\d\d:?\d\d)")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
_INT64: Final = 1 << 63
_UNQUOTED_KEY = re.compile(r'"(?:[^"\\]|\\.)*"|(?<=[{,])\s*-?\d+\s*(?=:)')
_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([0-9.]+)):(-?[0-9]{1,10})")
_VERSION = re.compile(r"([0-9]{1,4})\.([0-9]{1,4})\.([0-9]{1,4})")
_OFFSET_MSG_ID = re.compile(r"[0-9A-Fa-f]{32}|[0-9A-Fa-f]{56}")


def loads(text: str) -> Any:
    """`json.loads` that also takes integer keys without quotes, as RocketMQ's fastjson writes them, and refuses a key twice.

    Errors: ValueError.
    """

    def quoted(match: re.Match[str]) -> str:
        token = match.group()
        return token if token.startswith('"') else f'"{token.strip()}"'

    return json.loads(_UNQUOTED_KEY.sub(quoted, text), object_pairs_hook=_unique)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands twice in one object")
    return found


def _string(value: object) -> str:
    if not isinstance(value, (str, os.PathLike)) or not (text := str(os.fspath(value)).strip()):
        raise ValueError("a text that is not empty")
    return text


def _boolean(value: object) -> bool:
    if isinstance(value, bool):
        return value
    word = value.strip().lower() if isinstance(value, str) else ""
    if word not in ("true", "false"):
        raise ValueError("true or false")
    return word == "true"


def _integer(value: object) -> int | None:
    """An int, or a text of one; None for anything else (a bool, a float, ...)."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and _INTEGER.fullmatch(value.strip()):
        return int(value)
    return None


def _positive(value: object) -> int:
    number = _integer(value)
    if number is None or not 0 < number < 1 << 31:
        raise ValueError("a whole number from 1 to 2147483647")
    return number


def _size(value: object) -> int:
    number = _integer(value)
    if number is None and isinstance(value, str) and (match := _SIZE.fullmatch(value.strip().lower())):
        number = int(match.group(1)) << 10 * _UNITS.index((match.group(2) or "b")[0])
    if number is None or not 0 < number < _INT64:
        raise ValueError("a size above 0 in bytes, or with a unit, as 64k, 128m or 1g")
    return number


def _texts(value: object, example: str, *, empty_item: bool = False) -> tuple[str, ...]:
    """A comma list or a JSON array of texts, without repeats; `empty_item`: the array may hold an empty text."""
    wanted = f'a comma list such as {example}, or a JSON array such as ["{example.split(",")[0]}"] where values hold commas'
    items: object = value
    if isinstance(value, str):
        if value.strip().startswith("["):
            try:
                items = json.loads(value)
            except ValueError:
                raise ValueError(f"{wanted} (it starts like a JSON array, but is none)") from None
        else:
            items = [part.strip() for part in value.split(",") if part.strip()]
    elif _integer(value) is not None:
        items = [value]
    if not isinstance(items, (list, tuple, set, frozenset)) or not items:
        raise ValueError(wanted)
    found: dict[str, None] = {}
    for item in items:
        text = item if isinstance(item, str) else str(item) if _integer(item) is not None else None
        if text is None or (not text and not empty_item):
            raise ValueError(wanted)
        found[text] = None
    return tuple(found)


def _topics(value: object) -> tuple[str, ...]:
    return _texts(value, "Orders,Payments")


def _names(value: object) -> tuple[str, ...]:
    return _texts(value, "propertiesString,compression")


def _keys(value: object) -> tuple[str, ...]:
    keys = _texts(value, "K1,K2")
    if spaced := [key for key in keys if " " in key]:
        raise ValueError(f"keys without spaces: RocketMQ separates a message's keys by spaces, so none can be {spaced[0]!r}")
    return keys


def _uniq_keys(value: object) -> tuple[str, ...]:
    return _texts(value, "7F0000010000,7F0000010001")


def _tags(value: object) -> tuple[str, ...]:
    return _texts(value, "TagA,TagB", empty_item=True)


def _offset_msg_ids(value: object) -> tuple[str, ...]:
    ids = _texts(value, "7F0000010000592C0000000000000245")
    for each in ids:
        if not _OFFSET_MSG_ID.fullmatch(each):
            raise ValueError(
                f"offsetMsgIds: 32 hexadecimal digits, or 56 of an IPv6 broker, and {each!r} has {len(each)} characters"
            )
    return tuple(dict.fromkeys(each.upper() for each in ids))


def _paths(value: object) -> tuple[str, ...]:
    """One path or glob, where a comma is part of the name as in Spark's own `path`; or a list or JSON array of them."""
    if isinstance(value, os.PathLike) or (isinstance(value, str) and not _JSON_LIST.match(value)):
        return (_string(value),)
    items = (
        [os.fspath(item) if isinstance(item, os.PathLike) else item for item in value]
        if isinstance(value, (list, tuple))
        else value
    )
    return _texts(items, "/data/store-a,/data/store-b")


def _folders(value: object) -> tuple[str, ...]:
    return _texts(value, "/disk1/commitlog,/disk2/commitlog")


def _pattern(value: object) -> str:
    text = _string(value)
    try:
        re.compile(text)
    except re.error as e:
        raise ValueError(f"a regular expression that matches the whole topic ({e})") from None
    return text


def _object(value: object, example: str) -> Mapping[str, Any]:
    found = value
    if isinstance(value, str):
        try:
            found = loads(value)
        except ValueError as e:
            raise ValueError(f"JSON such as {example} ({e})") from None
    if not isinstance(found, Mapping) or not found or not all(isinstance(topic, str) and topic for topic in found):
        raise ValueError(f"JSON such as {example}")
    return found


def _queue_id(value: object) -> int | None:
    number = _integer(value)
    return number if number is not None and 0 <= number < 1 << 31 else None


def _assignment(value: object) -> Assignment:
    example = '{"Orders":[0,1],"Payments":[0]}'
    found = []
    for topic, queues in sorted(_object(value, example).items()):
        ids = {_queue_id(queue) for queue in queues} if isinstance(queues, (list, tuple, set, frozenset)) else set()
        if not ids or None in ids:
            raise ValueError(f"JSON such as {example}, and the queues of {topic!r} are {queues!r}")
        found.append((topic, tuple(sorted(i for i in ids if i is not None))))
    return tuple(found)


def _offsets(value: object, whole: int, never: int) -> Offsets:
    """`whole`: which of EARLIEST and LATEST bounds nothing here; `never`: which can't stand here in a batch read."""
    words = {EARLIEST: "earliest", LATEST: "latest"}
    example = f'{{"Orders":{{"0":23,"1":{whole}}}}}'
    wanted = f"{words[whole]}, or JSON such as {example}"
    if isinstance(value, str) and (word := value.strip().lower()) in words.values():
        if word == words[never]:
            raise ValueError(f"{wanted}; {word} can't stand here in a batch read")
        return ()
    found = []
    for topic, queues in sorted(_object(value, f"{example} or {words[whole]}").items()):
        if not isinstance(queues, Mapping) or not queues:
            raise ValueError(f"{wanted}, and {topic!r} has {queues!r}")
        for queue, at in queues.items():
            queue_id, offset = _queue_id(queue), _integer(at)
            if queue_id is None or offset is None or not EARLIEST <= offset < _INT64:
                raise ValueError(f"{wanted}, and {topic!r} has {queue!r}: {at!r}")
            if offset == never:
                raise ValueError(
                    f"{wanted}; {never} ({words[never]}) can't stand here in a batch read, as it does for {topic!r}"
                )
            found.append((topic, queue_id, offset))
    if len({place[:2] for place in found}) != len(found):
        raise ValueError(f"{wanted}, each queue once")
    return tuple(sorted(found))


def _starting_offsets(value: object) -> Offsets:
    return _offsets(value, EARLIEST, LATEST)


def _ending_offsets(value: object) -> Offsets:
    return _offsets(value, LATEST, EARLIEST)


def _instant(value: object) -> int:
    """Milliseconds since 1970, UTC. Finer times are rounded up, which keeps both `>= start` and `< end` exact on whole ms."""
    number = _integer(value)
    if number is not None and -_INT64 <= number < _INT64:
        return number
    wanted = (
        "milliseconds since 1970 (1795250597888), or a time with its zone (2026-11-21T09:00:00Z, 2026-11-21T10:00:00.25+01:00)"
    )
    finer = 0
    if isinstance(value, datetime):
        moment = value
    else:
        match = _INSTANT.fullmatch(value.strip()) if isinstance(value, str) else None
        if match is None:
            raise ValueError(wanted)
        day, minute, second, fraction, zone = match.groups()
        zone = "+00:00" if zone in "Zz" else zone if ":" in zone else f"{zone[:3]}:{zone[3:]}"
        digits = (fraction or "").ljust(6, "0")
        finer = 1 if digits[6:].strip("0") else 0
        try:
            moment = datetime.fromisoformat(f"{day}T{minute}{second or ':00'}.{digits[:6]}{zone}")
        except ValueError as e:
            raise ValueError(f"{wanted} ({e})") from None
    if moment.tzinfo is None:
        raise ValueError(f"{wanted}; this one has no zone")
    microseconds = (moment - _EPOCH) // timedelta(microseconds=1) + finer
    return -(-microseconds // 1000)


def host_bytes(value: object) -> bytes:
    """A host as a record stores it, 4 or 16 bytes of address and an i32 port (`MessageExt#socketAddress2ByteBuffer`), of
    `ip:port` or `[ip]:port`.

    Errors: ValueError that says what was expected.
    """
    match = _HOST.fullmatch(value.strip()) if isinstance(value, str) else None
    try:
        if match is None:
            raise ValueError
        six, four, port = match.groups()
        address = ipaddress.IPv6Address(six).packed if six else ipaddress.IPv4Address(four).packed
        # decode shows whatever stands in a record, so that a record can be written again as it was
        return address + int(port).to_bytes(4, "big", signed=True)
    except (ValueError, OverflowError):
        raise ValueError("an address and a port such as 10.0.0.1:10911 or [2001:db8:0:0:0:0:0:1]:10911, and no name") from None


def _version(value: object) -> tuple[int, int, int]:
    match = _VERSION.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise ValueError("a version of RocketMQ such as 5.3.3")
    major, minor, patch = map(int, match.groups())
    return major, minor, patch


TYPES: Final[Mapping[str, Parser]] = {
    "text": _string,
    "boolean": _boolean,
    "number": _positive,
    "size": _size,
    "paths": _paths,
    "folders": _folders,
    "columns": _names,
    "topics": _topics,
    "pattern": _pattern,
    "assignment": _assignment,
    "startingOffsets": _starting_offsets,
    "endingOffsets": _ending_offsets,
    "time": _instant,
    "keys": _keys,
    "uniqKeys": _uniq_keys,
    "offsetMsgIds": _offset_msg_ids,
    "tags": _tags,
    "host": host_bytes,
    "version": _version,
}
"""A parser by the type's name."""
