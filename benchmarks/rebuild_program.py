"""Rebuilds queues and index of a store for each line on standard input, its folder, and answers with a line of JSON.

Tags are not indexed, as RocketMQ before 5.4.0 does. A warning is an error: it would mean that not all was rebuilt.
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
    for line in sys.stdin:
        start, busy = time.perf_counter(), time.process_time()
        done = store_core.rebuild(line.rstrip("\n"), indexTags=False)
        seconds, cpu = time.perf_counter() - start, time.process_time() - busy
        print(json.dumps({"rows": done.queue_entries, "seconds": seconds, "cpu": cpu}), flush=True)


if __name__ == "__main__":
    main()
