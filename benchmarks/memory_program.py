"""Scans a store, and says in JSON what resident memory the process had before, and at most. Argument: the store."""

from __future__ import annotations

import json
import sys

from benchmarks.resident import resident_bytes
from store_core import open_store, read_task

_IMPORTED = open_store, read_task  # all that a scan needs: names of store_core are imported when they are asked for


def main() -> None:
    baseline = resident_bytes("VmRSS")
    rows = 0
    for batch in open_store(sys.argv[1]).scan():
        rows += batch.num_rows
    print(json.dumps({"rows": rows, "baseline": baseline, "peak": resident_bytes("VmHWM")}))


if __name__ == "__main__":
    main()
