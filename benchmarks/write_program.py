"""Writes stores of the rows in an Arrow IPC file: one for each line on standard input, its folder. Answers with a line of JSON.

Argument: the file. The rows are mapped, so that what is counted begins with them in memory. `sync`: seconds of `seconds` in
which files and folders were waited for to be on the disk.
"""

from __future__ import annotations

import json
import os
import sys
import time
import warnings
from typing import Any

import pyarrow as pa

import store_core
from store_core.errors import StoreWarning

_fsync = os.fsync
_waited = 0.0


def _timed_fsync(fd: Any) -> None:
    global _waited
    start = time.perf_counter()
    _fsync(fd)
    _waited += time.perf_counter() - start


def main() -> None:
    global _waited
    warnings.simplefilter("error", StoreWarning)
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    os.fsync = _timed_fsync
    rows = pa.ipc.open_file(pa.memory_map(sys.argv[1]))
    batches = [rows.get_batch(i) for i in range(rows.num_record_batches)]
    for line in sys.stdin:
        _waited = 0.0
        start, busy = time.perf_counter(), time.process_time()
        done = store_core.create_store(line.rstrip("\n"), batches)
        seconds, cpu = time.perf_counter() - start, time.process_time() - busy
        print(json.dumps({"rows": done.messages, "seconds": seconds, "cpu": cpu, "sync": _waited}), flush=True)


if __name__ == "__main__":
    main()
