"""Resident memory of this process, or of Spark's Python workers, as Linux counts it."""

from __future__ import annotations

import os
import re
from pathlib import Path

__all__ = ["resident_bytes", "worker_ids"]


def resident_bytes(field: str, process: int | str = "self") -> int:
    """`field`: VmRSS (now) or VmHWM (the highest so far). 0 for a process that is gone."""
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    found = re.search(rf"^{field}:\s+(\d+) kB", status, re.MULTILINE)
    return int(found.group(1)) << 10 if found else 0


def worker_ids() -> set[int]:
    """The workers of this process's Spark: children of `pyspark.daemon`, which its JVM started."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue
    children: dict[int, list[int]] = {}
    for child, parent in parents.items():
        children.setdefault(parent, []).append(child)
    mine, found = [os.getpid()], set()
    while mine:
        for child in children.get(mine.pop(), ()):
            mine.append(child)
            parent = parents[child]
            if _is_daemon(parent):
                found.add(child)
    return found


def _is_daemon(process: int) -> bool:
    try:
        return b"pyspark.daemon" in Path(f"/proc/{process}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False
