"""`verify`: a store checked against itself, for a person, a program, or as a page."""

from __future__ import annotations

from argparse import Namespace
from collections import Counter
from typing import Any, Final

import pyarrow as pa

from store_core.cli.targets import refuse_existing, written
from store_core.cli.terminal import Terminal, plain
from store_core.execute import read_task
from store_core.findings import ERROR, KINDS, WARNING
from store_core.store import Store, open_store

__all__ = ["check", "run"]

_SHOWN: Final = 50
_STEP: Final = "16m"


def run(args: Namespace, terminal: Terminal) -> int:
    """Exit code 1 where there are findings of severity error."""
    if args.html is not None:
        refuse_existing(args.html, args.force)
    store = open_store(args.store, **{**args.layout, "table": "verify"})
    table = check(store, terminal)
    rows = sorted(table.to_pylist(), key=lambda row: (row["severity"] != ERROR, row["kind"], row["file"], row["start"] or 0))
    if args.html is not None:
        from store_core.cli.report import report

        page = report(store, table)
        with written(args.html) as out:
            out.write(page.encode())
    if terminal.as_json:
        for row in rows:
            terminal.json(row)
    else:
        _show(store, rows, terminal)
        if args.html is not None:
            terminal.line(f"report: {args.html}")
    return 1 if any(row["severity"] == ERROR for row in rows) else 0


def check(store: Store, terminal: Terminal) -> pa.Table:
    """The table verify, with progress."""
    plan = store.plan(table="verify", maxPartitionBytes=_STEP)
    batches: list[pa.RecordBatch] = []
    with terminal.progress("verify", sum(task.cost for task in plan.tasks)) as advance:
        for task in plan.tasks:
            batches += read_task(plan.spec, task, store.files)
            advance(task.cost)
    return pa.Table.from_batches(batches, plan.schema)


def _show(store: Store, rows: list[dict[str, Any]], terminal: Terminal) -> None:
    counts = Counter(row["severity"] for row in rows)
    if not rows:
        terminal.line(f"{store.path}: {terminal.paint('nothing wrong was found', 'green')}")
        return
    colours = {ERROR: ("red",), WARNING: ("yellow",)}
    for kind in dict.fromkeys(row["kind"] for row in rows):
        those = [row for row in rows if row["kind"] == kind]
        severities = sorted({row["severity"] for row in those})
        name = ", ".join(terminal.paint(severity, *colours[severity]) for severity in severities)
        terminal.line(f"{name}: {terminal.paint(KINDS[kind].meaning, 'bold')} ({kind}, {len(those):,} found)")
        for row in those[:_SHOWN]:
            place = row["file"].removeprefix(store.path).lstrip("/") or row["file"]
            bytes_ = (
                "" if row["start"] is None else f" [{row['start']:,}, {'' if row['end'] is None else format(row['end'], ',')})"
            )
            terminal.line(f"  {plain(place)}{bytes_}")
            terminal.line(f"    found     {plain(row['found'])}")
            terminal.line(f"    expected  {plain(row['expected'])}")
        if len(those) > _SHOWN:
            terminal.line(f"  and {len(those) - _SHOWN:,} more; --json gives all")
        for consequence in dict.fromkeys(row["consequence"] for row in those):
            terminal.line(f"  what a broker does: {consequence}")
        terminal.line()
    total = [f"{counts[s]:,} {s}{'' if counts[s] == 1 else 's'}" for s in (ERROR, WARNING) if counts[s]]
    terminal.line(f"{store.path}: {', '.join(total)}")
