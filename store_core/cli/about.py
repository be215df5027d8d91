"""`info`, `topics`, `explain`."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from store_core.cli.terminal import Terminal, shown_size, shown_time
from store_core.store import open_store

__all__ = ["run"]


def run(args: Namespace, terminal: Terminal) -> int:
    """Runs one of the three."""
    store = open_store(args.store, **args.layout)
    if args.command == "explain":
        text = store.explain(table=args.table, **args.options)
        terminal.json({"plan": text.splitlines()}) if terminal.as_json else terminal.line(text)
        return 0
    found = store.info(exact=args.exact)
    if args.command == "info":
        terminal.json(found) if terminal.as_json else _info(found, terminal)
    elif terminal.as_json:
        for row in _queues(found):
            terminal.json(dict(zip(_COLUMNS, row, strict=True)))
    else:
        terminal.table(_COLUMNS, _queues(found))
    for note in () if terminal.as_json else found["notes"]:
        terminal.note(note)
    return 0


_COLUMNS = ("topic", "queueId", "minOffset", "maxOffset", "messages")


def _queues(found: dict[str, Any]) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    for topic, about in found["topics"].items():
        for queue_id, queue in about["queues"].items():
            first, stop = queue.get("minOffset"), queue.get("maxOffset")
            rows.append((topic, queue_id, first, stop, None if first is None else stop - first))
    return rows


def _info(found: dict[str, Any], terminal: Terminal) -> None:
    log, index = found["commitLog"], found["index"]
    state = terminal.paint("yes", "green") if found["clean"] else terminal.paint("no: abort is there", "yellow")
    facts = [
        ("store", found["path"]),
        ("layout", found["layout"]),
        ("broker", found["brokerName"] or "not told"),
        ("shut down cleanly", state),
        ("first message", shown_time(found["firstStoreTimestamp"])),
        ("last message", shown_time(found["lastStoreTimestamp"])),
        ("messages", "not counted" if found["messages"] is None else f"{found['messages']:,}"),
        ("counted from", found["countedFrom"]),
        ("commitlog", f"{log['files']:,} files, offsets {log['minOffset']:,} to {log['maxOffset']:,}"),
        ("", f"{shown_size(log['bytes'])}, on disk {shown_size(log['dataBytes'])}"),
        ("index", f"{index['files']:,} files, {index['entries']:,} entries"),
        ("topics", f"{len(found['topics']):,}"),
        ("consumer groups", f"{len(found['consumers']):,}"),
        *(("written by", sign) for sign in found["versions"]["signs"]),
    ]
    for name, value in facts:
        terminal.line(f"{terminal.paint(f'{name:<18}', 'bold')} {value}")
    if found["topics"]:
        terminal.line()
        rows = [(topic, len(about["queues"]), about["messages"]) for topic, about in found["topics"].items()]
        terminal.table(("topic", "queues", "messages"), rows)
