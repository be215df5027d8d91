"""Runs the benchmarks: `python -m benchmarks [--quick] [NAME ...]`."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks import cache, decoding, looking_up, memory, pruning, rebuilding, report, sql, through_spark, writing
from benchmarks.context import Context
from benchmarks.figures import Figure

BENCHMARKS: dict[str, Callable[[Context], list[Figure]]] = {
    "decode": decoding.run,
    "prune": pruning.run,
    "lookup": looking_up.run,
    "spark": through_spark.run,
    "sql": sql.run,
    "memory": memory.run,
    "write": writing.run,
    "rebuild": rebuilding.run,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__, allow_abbrev=False)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which: {', '.join(BENCHMARKS)}; all by default")
    parser.add_argument("--quick", action="store_true", help="a tenth of the messages, fewer rounds: shows that all works")
    parser.add_argument("--output", type=Path, help="folder for figures.json and figures.md; in the cache by default")
    asked = parser.parse_args()
    if unknown := sorted(set(asked.names) - set(BENCHMARKS)):
        parser.error(f"no benchmark {unknown[0]!r}. There are: {', '.join(BENCHMARKS)}")
    output = asked.output or cache.root() / "figures"
    output.mkdir(parents=True, exist_ok=True)
    about = report.environment(quick=asked.quick)
    figures: list[Figure] = []
    for name in asked.names or BENCHMARKS:
        start = time.monotonic()
        print(f"{name} ...", flush=True)
        figures += BENCHMARKS[name](Context(quick=asked.quick))
        print(f"{name}: {time.monotonic() - start:.0f} s", flush=True)
        # after each one: a long run that fails late has not been for nothing
        (output / "figures.json").write_text(report.to_json(about, figures))
        (output / "figures.md").write_text(report.to_markdown(about, figures))
    print(f"\n{report.to_markdown(about, figures)}\nwritten to {output}")


if __name__ == "__main__":
    main()
