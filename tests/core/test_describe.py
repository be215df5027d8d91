"""What a broker dispatches: against a plain reading of the same rules, from records and from columns."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store_core import CorruptStoreError, OptionError, open_store
from store_core.describe import DELAY_LEVELS, describe, light_places, parse_delay_levels
from store_core.described import NO_PLACE, Described
from tests.core.building import described_of
from tests.synthetic import Built, Message, Placed, build_store, java_hash, random_messages
from tests.synthetic.index import index_keys
from tests.synthetic.queues import tags_code


def rows_of(described: Described) -> list[tuple[Any, ...]]:
    """One plain tuple for each record."""
    ends = np.cumsum(described.records["keyCount"])
    rows = []
    for i, (record, end) in enumerate(zip(described.records, ends.tolist(), strict=True)):
        light = [
            (described.queues[entry["queue"]], int(entry["queueOffset"])) for entry in described.light if entry["record"] == i
        ]
        rows.append(
            (
                *(int(record[name]) for name in ("commitLogOffset", "queueOffset", "storeTimestamp", "tagsCode", "size")),
                described.queues[record["queue"]],
                described.key_hashes[end - record["keyCount"] : end].tolist(),
                bool(record["hasCrc"]),
                light,
            )
        )
    return rows


def expected(placed: Placed, tags: bool) -> tuple[Any, ...]:
    hashes = [java_hash(key) for key in index_keys(placed, tags)]
    names, offsets = (placed.properties.get(name, "") for name in ("INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET"))
    return (
        placed.commitLogOffset,
        placed.queueOffset,
        placed.message.storeTimestamp,
        tags_code(placed),
        len(placed.record),
        (placed.message.topic, placed.message.queueId),
        [0 if value == -(1 << 31) else abs(value) for value in hashes],
        placed.record[-20:-11] == b"__CRC32#\x01",
        [((name, 0), int(offset)) for name, offset in zip(names.split(","), offsets.split(","), strict=True) if name],
    )


def columns_of(root: Path) -> pa.RecordBatch:
    table = open_store(root).scan(extraColumns="propertiesString").read_all().combine_chunks()
    return table.to_batches()[0] if len(table) else pa.RecordBatch.from_pylist([], schema=table.schema)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32), count=st.integers(1, 60), tags=st.booleans(), cut=st.integers(0, 60))
def test_records_are_described_as_brokers_dispatch_them(
    tmp_path_factory: pytest.TempPathFactory, seed: int, count: int, tags: bool, cut: int
) -> None:
    root = tmp_path_factory.mktemp("store")
    built = build_store(root, random_messages(random.Random(seed), count, multi_dispatch=True), write_queues=False)
    truth = [expected(placed, tags) for placed in built.records]
    assert [row for described in described_of(root, index_tags=tags) for row in rows_of(described)] == truth
    batch = columns_of(root)
    for part, rows in ((batch, truth), (batch[cut:], truth[cut:]), (batch[:cut], truth[:cut])):
        assert rows_of(describe(part, index_tags=tags)) == rows
        # the string alone says the same
        alone = part.drop_columns(["tags", "keys", "uniqKey", "properties", "body"])
        assert rows_of(describe(alone, index_tags=tags)) == rows


def one(tmp_path: Path, message: Message) -> Built:
    return build_store(tmp_path / "store", [message], write_queues=False, write_index=False)


def test_a_message_without_a_place_yet(tmp_path: Path) -> None:
    one(tmp_path, Message(topic="T", properties=(("KEYS", "a b"),)))
    batch = columns_of(tmp_path / "store")
    for name in ("commitLogOffset", "queueOffset", "storeSize"):
        field = batch.schema.get_field_index(name)
        batch = batch.set_column(field, batch.schema.field(field), pa.nulls(1, batch.schema.field(field).type))
    record = describe(batch, index_tags=True).records[0]
    assert (record["commitLogOffset"], record["queueOffset"], record["size"]) == (NO_PLACE, NO_PLACE, 0)
    assert record["keyCount"] == 2


@pytest.mark.parametrize(
    ("text", "wait"), [("1", 1000), ("18", 7_200_000), ("99", 7_200_000), ("+3", 10_000), ("0", None), ("-1", None)]
)
def test_the_tags_code_of_a_delayed_message_is_its_delivery(tmp_path: Path, text: str, wait: int | None) -> None:
    message = Message(topic="SCHEDULE_TOPIC_XXXX", properties=(("DELAY", text), ("TAGS", "x")))
    one(tmp_path, message)
    found = described_of(tmp_path / "store")[0].records["tagsCode"][0]
    assert found == (java_hash("x") if wait is None else message.storeTimestamp + wait)


def test_other_delay_levels(tmp_path: Path) -> None:
    one(tmp_path, Message(topic="SCHEDULE_TOPIC_XXXX", properties=(("DELAY", "2"),)))
    batch = columns_of(tmp_path / "store")
    first = describe(batch, index_tags=True, delay_levels=parse_delay_levels("2s 3d")).records
    assert first["tagsCode"][0] - first["storeTimestamp"][0] == 3 * 86_400_000
    assert len(DELAY_LEVELS) == 18
    for wrong in ("", "5", "5x", "s", "1s  x"):
        with pytest.raises(OptionError, match="messageDelayLevel"):
            parse_delay_levels(wrong)


@pytest.mark.parametrize("text", ["x", "1.5", "3000000000"])
def test_a_level_that_brokers_stumble_over(tmp_path: Path, text: str) -> None:
    one(tmp_path, Message(topic="SCHEDULE_TOPIC_XXXX", properties=(("DELAY", text),)))
    with pytest.raises(CorruptStoreError, match=f"commitLogOffset 0 can't be dispatched.*DELAY is '{text}'"):
        described_of(tmp_path / "store")


def test_places_in_light_queues() -> None:
    assert light_places("T", 3, "%LMQ%a,b", "5,6") == [("%LMQ%a", 0, 5), ("b", 3, 6)]
    assert light_places("T", 3, "%LMQ%a,b", "5") == []
    assert light_places("T", 3, "a,,", "5") == [("a", 3, 5)]  # Java's split leaves empty ones at the end out
    assert light_places("T", 3, "a/b,c", "5,6") == [("c", 3, 6)]
    for topic in ("%RETRY%g", "rmq_sys_x", "SCHEDULE_TOPIC_XXXX"):
        assert light_places(topic, 0, "a", "1") == []
    assert light_places("T", 0, None, "1") == light_places("T", 0, "a", None) == []
    with pytest.raises(ValueError):
        light_places("T", 0, "a", "x")


def test_a_light_place_that_is_no_number(tmp_path: Path) -> None:
    properties = (("INNER_MULTI_DISPATCH", "%LMQ%a"), ("INNER_MULTI_QUEUE_OFFSET", "one"))
    one(tmp_path, Message(topic="T", properties=properties))
    with pytest.raises(CorruptStoreError, match="INNER_MULTI_QUEUE_OFFSET is 'one'"):
        described_of(tmp_path / "store")
