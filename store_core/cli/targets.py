"""Files that the command line writes: exports and reports. The only module that opens a file to write.

A file appears under its name when it is whole; what is interrupted leaves nothing behind.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

__all__ = ["refuse_existing", "written"]


def refuse_existing(path: str, force: bool) -> None:
    """Errors: FileExistsError where `path` is there and must not be written over; IsADirectoryError for a folder."""
    if os.path.isdir(path):
        raise IsADirectoryError(f"{path} is a folder. Give the name of a file")
    if os.path.exists(path) and not force:
        raise FileExistsError(f"{path} is there already. Give another name, or --force to write over it")


@contextmanager
def written(path: str) -> Iterator[BinaryIO]:
    """A stream whose bytes become the file `path` when the block ends well."""
    part = f"{path}.part-{os.getpid()}"
    try:
        with open(part, "xb") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        os.replace(part, path)
    except BaseException:
        if os.path.exists(part):
            os.unlink(part)
        raise
