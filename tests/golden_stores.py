"""The golden stores: what real brokers wrote (`golden/PROVENANCE.md`), unpacked when a test asks for them."""

from __future__ import annotations

import gzip
import json
import tarfile
from pathlib import Path
from typing import Any

__all__ = ["ANSWERED_NAMES", "GOLDEN_NAMES", "Golden"]

FOLDER = Path(__file__).parent / "golden"
GOLDEN_NAMES = tuple(sorted(file.name.removesuffix(".tar.gz") for file in FOLDER.glob("*.tar.gz")))
ANSWERED_NAMES = tuple(name for name in GOLDEN_NAMES if (FOLDER / f"{name}.messages.jsonl.gz").exists())
"""Those with a messages and a queries file: all but DLedger's."""


class Golden:
    """Call it with a name to get the path of that store. Read only: all tests of a session share it."""

    names = GOLDEN_NAMES

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(self, name: str) -> Path:
        store = self._folder / name
        if not store.exists():
            self.unpack(name, self._folder)
        return store

    def unpack(self, name: str, folder: Path) -> Path:
        """A copy of one's own below `folder`."""
        with tarfile.open(FOLDER / f"{name}.tar.gz") as archive:
            # Debian 12's Python has no filters yet; the archive is our own
            archive.extraction_filter = getattr(tarfile, "data_filter", None)
            archive.extractall(folder)
        return folder / name

    def messages(self, name: str) -> list[dict[str, Any]]:
        """Every record in log order, as RocketMQ's `MessageDecoder` decodes it; KeyError where none were kept."""
        return self._lines(name, "messages")

    def queries(self, name: str) -> list[dict[str, Any]]:
        """The live broker's answers: topic, key, begin, end (ms), commitLogOffsets; KeyError where none were kept."""
        return self._lines(name, "queries")

    def _lines(self, name: str, kind: str) -> list[dict[str, Any]]:
        file = FOLDER / f"{name}.{kind}.jsonl.gz"
        if not file.exists():
            raise KeyError(f"no {kind} were kept for {name}; ANSWERED_NAMES lists the stores that have them")
        with gzip.open(file, "rt", encoding="utf-8") as lines:
            return [json.loads(line) for line in lines]
