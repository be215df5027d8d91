"""Scans a store once for each line on standard input, and answers with a line of JSON. Argument: the store.

A line is JSON: `columns` and `where` as `Store.scan` takes them; `reopen`: whether the store is opened for this pass. A pass
keeps no batch. A warning is an error: it would mean that another way than the one measured was taken.
"""

from __future__ import annotations

import json
import sys
import time
import warnings

import pyarrow as pa

import store_core
from store_core.errors import StoreWarning


def main() -> None:
    warnings.simplefilter("error", StoreWarning)
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    path = sys.argv[1]
    store = store_core.open_store(path)
    for line in sys.stdin:
        asked = json.loads(line)
        where = [tuple(condition) for condition in asked.get("where", ())]
        start, busy = time.perf_counter(), time.process_time()
        if asked.get("reopen"):
            store = store_core.open_store(path)
        rows = sum(batch.num_rows for batch in store.scan(where=where, columns=asked.get("columns")))
        seconds, cpu = time.perf_counter() - start, time.process_time() - busy
        print(json.dumps({"rows": rows, "seconds": seconds, "cpu": cpu}), flush=True)


if __name__ == "__main__":
    main()
