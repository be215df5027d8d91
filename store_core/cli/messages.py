"""`get`, `cat`, `tail`."""

from __future__ import annotations

import time
from argparse import Namespace
from typing import Any

import pyarrow as pa

from store_core.cli.rows import print_messages
from store_core.cli.terminal import Terminal
from store_core.errors import OptionError
from store_core.predicates import Where
from store_core.store import Store, open_store

__all__ = ["run"]


def run(args: Namespace, terminal: Terminal) -> int:
    """Runs one of the three."""
    return {"get": _get, "cat": _cat, "tail": _tail}[args.command](args, terminal)


def _get(args: Namespace, terminal: Terminal) -> int:
    if (args.key is not None) != (args.topic is not None):
        raise OptionError("--key and --topic go together: give both, or another way to name the message")
    store = open_store(args.store, **args.layout)
    found: pa.Table
    if args.key is not None:
        found = store.lookup(args.topic, args.key)
        asked = f"message with key {args.key!r} in topic {args.topic!r}"
    elif args.id is not None:
        found, asked = _scan(store, [("offsetMsgId", "=", args.id.upper())]), f"message with the id {args.id!r}"
    elif args.offset is not None:
        found, asked = _scan(store, [("commitLogOffset", "=", args.offset)]), f"message at commitLogOffset {args.offset}"
    else:
        found = store.scan(uniqKeys=[args.uniq_key]).read_all().sort_by("commitLogOffset")
        asked = f"message with the unique key {args.uniq_key!r}"
    print_messages(found.to_pylist(), terminal, args.body)
    if not found.num_rows:
        terminal.complain(f"no {asked} in {args.store}")
        return 1
    return 0


def _scan(store: Store, where: Where) -> pa.Table:
    return store.scan(where=where).read_all()


def _cat(args: Namespace, terminal: Terminal) -> int:
    left = args.limit
    if left is not None and left < 0:
        raise OptionError(f"--limit {left}: expected no negative number")
    for batch in open_store(args.store, **args.layout).scan(**args.options):
        rows = batch if left is None else batch.slice(0, left)
        for start in range(0, len(rows), _AT_ONCE):
            print_messages(rows.slice(start, _AT_ONCE).to_pylist(), terminal, args.body)
        if left is not None:
            left -= len(rows)
            if left <= 0:
                break
    return 0


_AT_ONCE = 500
"""Rows that are Python objects at a time."""


def _tail(args: Namespace, terminal: Terminal) -> int:
    if args.lines < 0 or args.interval <= 0:
        raise OptionError("-n wants no negative number, --interval one above 0")
    store = open_store(args.store, **args.layout)
    first, end = _last(store, args.lines, args.options)
    if first is not None:
        _from(store, first, args, terminal)
    while args.follow:
        terminal.flush()
        time.sleep(args.interval)
        end = _from(open_store(args.store, **args.layout), end, args, terminal)
    return 0


def _last(store: Store, count: int, options: dict[str, Any]) -> tuple[int | None, int]:
    """(commitLogOffset of the last `count`th message that is chosen; where the next message will stand or behind that)."""
    options = options | {"extraColumns": None}
    offsets: list[int] = []
    end = store.log.min_offset
    upper = store.log.max_offset
    for segment in reversed(store.log.segments):
        where = [("commitLogOffset", ">=", segment.base_offset), ("commitLogOffset", "<", upper)]
        found = store.scan(where=where, columns=["commitLogOffset", "storeSize"], **options).read_all()
        places = sorted(place for place in found["commitLogOffset"].to_pylist() if place is not None)
        if places and not offsets:
            end = places[-1] + 1
        offsets = places[-(count - len(offsets)) :] + offsets if count > len(offsets) else offsets
        upper = segment.base_offset
        if len(offsets) >= count:
            break
    return (offsets[0] if offsets else None), end


def _from(store: Store, start: int, args: Namespace, terminal: Terminal) -> int:
    """Prints what is stored at `start` and behind, in log order; returns where to go on."""
    found = store.scan(where=[("commitLogOffset", ">=", start)], **args.options).read_all()
    if not found.num_rows:
        return start
    found = found.sort_by("commitLogOffset")
    print_messages(found.to_pylist(), terminal, args.body)
    last = max((place for place in found["commitLogOffset"].to_pylist() if place is not None), default=start - 1)
    return int(last) + 1
