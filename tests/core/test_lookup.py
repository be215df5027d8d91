"""What a lookup touches is checked: an index that leads to the wrong record is not believed."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import pytest

import store_core
from store_core.hashing import key_hash
from store_core.indexfile import chain
from store_core.store import Store
from tests.synthetic import build_store, random_messages


def two_places(store: Store) -> tuple[str, str, int, int, str]:
    """A key with an entry, where that entry stands, the record before, which it could lead to as well, and the file."""
    rows = store.scan(columns=["topic", "keys", "commitLogOffset"]).read_all().to_pylist()
    for index in store.index_view(store.options).files:
        for before, row in list(itertools.pairwise(rows))[100:]:  # the first entries tell the file's sizes
            for key in filter(None, (row["keys"] or "").split(" ")):
                found = chain(store.files, index, key_hash(row["topic"], key))
                known = found.commit_log_offset.tolist() == [row["commitLogOffset"]]
                if known and before["commitLogOffset"] > index.begin_phy_offset and key not in (before["keys"] or ""):
                    return (
                        row["topic"],
                        key,
                        index.entry_position(int(found.index_no[0])),
                        before["commitLogOffset"],
                        index.path,
                    )
    raise AssertionError("no such entry")


@pytest.mark.parametrize("more", [[], ["no-such-key"]], ids=["one", "several"])
def test_an_entry_that_leads_to_another_record(tmp_path: Path, more: list[str]) -> None:
    build_store(tmp_path, random_messages(random.Random(3), 200), maxHashSlotNum=5000, maxIndexNum=20_000)
    store = store_core.open_store(tmp_path)
    topic, key, place, elsewhere, path = two_places(store)
    with open(path, "r+b") as out:
        out.seek(place + 4)
        out.write(elsewhere.to_bytes(8, "big"))
    where = [("topic", "=", topic)]
    asked: dict[str, Any] = {"keys": [key, *more], "columns": ["commitLogOffset", "keys"]}
    truth = store_core.open_store(tmp_path, index="ignore").scan(where, **asked).read_all()
    assert len(truth) >= 1

    plan = store_core.open_store(tmp_path).explain(where, keys=[key, *more])
    assert f"leads to commitLogOffset {elsewhere}, where the record has no key of that hash" in plan
    assert store_core.open_store(tmp_path).scan(where, **asked).read_all().sort_by("commitLogOffset") == truth
    assert store_core.open_store(tmp_path).lookup(topic, key, columns=asked["columns"]) == truth
