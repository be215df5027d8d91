"""Reading a broker's store and writing it again with `preserve` gives the broker's own bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import store_core
from store_core.files import LocalFiles
from store_core.indexfile import list_index_files, open_index
from tests.golden_stores import Golden

USUAL = ("plain-4.9.7", "mixed-5.3.3", "crc-5.5.0", "ipv6-5.3.3", "lmq-5.3.3", "longtopic-5.3.3", "crash-5.1.4")
SIZES: dict[str, Any] = {
    "mappedFileSizeCommitLog": 262144,
    "mappedFileSizeConsumeQueue": 2000,
    "maxHashSlotNum": 200,
    "maxIndexNum": 800,
}
RAW = {"bodyFormat": "raw", "extraColumns": "propertiesString"}


def data_files(root: Path, *folders: str) -> dict[str, bytes]:
    """The files below these folders that are not all zeros (a broker makes the next file before it needs it)."""
    found = {}
    for folder in folders:
        for path in sorted((root / folder).rglob("*")):
            if path.is_file() and any(data := path.read_bytes()):
                found[str(path.relative_to(root))] = data
    return found


def index_contents(root: Path) -> list[bytes]:
    """What is in the index files, whose names are times."""
    found = []
    for listed in list_index_files(LocalFiles(), str(root)):
        opened = open_index(LocalFiles(), listed, max_phys=1 << 62)
        if getattr(opened, "entries", 0):
            found.append(Path(listed.path).read_bytes())
    return found


@pytest.mark.parametrize("name", USUAL)
def test_a_golden_store_written_again_is_the_same_bytes(name: str, golden: Golden, tmp_path: Path) -> None:
    source = golden(name)
    rows = store_core.open_store(source, **RAW).scan()
    tags = name == "crc-5.5.0"
    written = store_core.create_store(tmp_path / "again", rows, preserve=True, systemTopics=True, indexTags=tags, **SIZES)
    again = Path(written.path)
    assert data_files(again, "commitlog") == data_files(Path(source), "commitlog")
    assert data_files(again, "consumequeue") == data_files(Path(source), "consumequeue")
    assert index_contents(again) == index_contents(Path(source))
    assert not [path for path in again.iterdir() if path.name.startswith(".")]
