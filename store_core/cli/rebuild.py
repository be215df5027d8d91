"""`rebuild`: the queues and the index anew, from the log. The one command that writes into a store."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import asdict

from store_core.cli.terminal import Terminal
from store_core.rebuilding import WHAT, rebuild
from store_core.store import open_store

__all__ = ["run"]


def run(args: Namespace, terminal: Terminal) -> int:
    """Asks nothing: a store that a broker holds is refused, and the old files stay until the new ones are whole."""
    what = WHAT if args.what is None else (args.what,)
    total = sum(segment.length for segment in open_store(args.store, **args.layout).log)
    with terminal.progress("rebuild", total) as advance:
        done = rebuild(args.store, what, progress=advance, **args.layout, **args.options)
    if terminal.as_json:
        terminal.json(asdict(done))
        return 0
    built = []
    if "consumequeue" in what:
        built.append(f"{done.queue_entries:,} entries in {done.queues:,} queues")
    if "index" in what:
        built.append(f"{done.index_entries:,} entries in {done.index_files:,} index files")
    terminal.line(f"{done.path}: from {done.records:,} records of the log, {' and '.join(built)}")
    return 0
