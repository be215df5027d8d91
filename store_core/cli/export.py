"""`export`: messages into Parquet or JSON lines."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from store_core.cli.rows import json_row
from store_core.cli.targets import refuse_existing, written
from store_core.cli.terminal import Terminal, as_json_value
from store_core.errors import OptionError
from store_core.execute import read_task
from store_core.plan import Plan
from store_core.store import open_store

__all__ = ["run"]

_STEP = "4m"
"""maxPartitionBytes, so that the progress moves."""
_AT_ONCE = 500


def run(args: Namespace, terminal: Terminal) -> int:
    """Writes the file; says how many messages it holds."""
    target: str = args.to
    suffix = target.rpartition(".")[2].lower()
    if suffix not in ("parquet", "jsonl", "json"):
        raise OptionError(f"--to {target}: expected a name that ends in .parquet, or .jsonl or .json for JSON lines")
    refuse_existing(target, args.force)
    plan = open_store(args.store, **args.layout).plan(maxPartitionBytes=_STEP, **args.options)
    rows = 0
    with written(target) as out, terminal.progress("export", sum(task.cost for task in plan.tasks)) as advance:
        batches = _batches(plan, advance)
        if suffix == "parquet":
            import pyarrow.parquet as pq

            with pq.ParquetWriter(out, plan.schema, compression="zstd") as writer:
                for batch in batches:
                    writer.write_batch(batch)
                    rows += len(batch)
        else:
            for batch in batches:
                for start in range(0, len(batch), _AT_ONCE):
                    for row in batch.slice(start, _AT_ONCE).to_pylist():
                        out.write((json.dumps(json_row(row), ensure_ascii=False, default=as_json_value) + "\n").encode())
                rows += len(batch)
    if terminal.as_json:
        terminal.json({"file": target, "messages": rows})
    else:
        terminal.line(f"{rows:,} messages in {target}")
    return 0


def _batches(plan: Plan, advance: Any) -> Iterator[pa.RecordBatch]:
    for task in plan.tasks:
        yield from read_task(plan.spec, task)
        advance(task.cost)
