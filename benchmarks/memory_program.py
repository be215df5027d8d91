"""Scans a store, and says in JSON what resident memory the process had before, and at most. Argument: the store."""

from __future__ import annotations

import json
import sys

import store_core
from benchmarks.resident import resident_bytes


def main() -> None:
    baseline = resident_bytes("VmRSS")
    rows = 0
    for batch in store_core.open_store(sys.argv[1]).scan():
        rows += batch.num_rows
    print(json.dumps({"rows": rows, "baseline": baseline, "peak": resident_bytes("VmHWM")}))


if __name__ == "__main__":
    main()
