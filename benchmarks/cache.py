"""Where jars, compiled peers and stores are kept: outside of the project, made on first use, and used again."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

__all__ = ["cached", "root"]


def root() -> Path:
    """RMQ_SPARK_CACHE, else rmq-spark in XDG_CACHE_HOME or ~/.cache."""
    given = os.environ.get("RMQ_SPARK_CACHE")
    return Path(given) if given else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rmq-spark"


def cached(name: str, make: Callable[[Path], None]) -> Path:
    """The folder `name` of the cache; `make(folder)` fills it if it is not there, all of it or nothing."""
    folder = root() / name
    if not folder.exists():
        partial = folder.with_name(folder.name + ".partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        make(partial)
        partial.rename(folder)
    return folder
