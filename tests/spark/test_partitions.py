"""What travels: a partition is small however many files the store has, and a worker needs but the reader and its task."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import InputPartition

from rmq_spark.reader import StorePartition, StoreReader
from rmq_spark.source import StoreSource
from tests.golden_stores import Golden
from tests.spark.rows import offsets, select_offsets
from tests.synthetic import build_store, random_messages

ROOT = Path(__file__).resolve().parents[2]
pickler = CloudPickleSerializer()


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of about 1,000 commitlog files."""
    root = tmp_path_factory.mktemp("large") / "store"
    build_store(root, random_messages(random.Random(1), 9700), mappedFileSizeCommitLog=5000, mappedFileSizeConsumeQueue=20_000)
    assert len(list((root / "commitlog").iterdir())) > 950
    return root


def reader_of(path: Path, **options: str) -> StoreReader:
    source = StoreSource({"path": str(path), **options})
    return source.reader(source.schema())


@pytest.mark.parametrize(
    "options",
    [{"maxPartitionBytes": "20k"}, {"subscribe": "Orders", "maxPartitionBytes": "20k"}, {"table": "consumequeue"}],
    ids=str,
)
def test_partitions_of_a_large_store_are_small(large: Path, options: dict[str, str]) -> None:
    if "subscribe" in options:
        topics = {folder.name for folder in (large / "consumequeue").iterdir()}
        options = options | {"subscribe": min(topics)}
    reader = reader_of(large, **options)
    partitions = reader.partitions()
    sizes = [len(pickler.dumps(partition)) for partition in partitions]
    assert max(sizes) < 5000, f"{len(sizes)} partitions, the largest pickled to {max(sizes)} bytes"
    costs = [partition.task.cost for partition in partitions]
    if "maxPartitionBytes" in options:
        assert len(partitions) > 5 and max(costs) <= 4 * 20 * 1024
    assert len(pickler.dumps(reader)) < 200_000


def test_a_worker_has_no_partition_but_its_own(golden: Golden) -> None:
    reader = reader_of(golden("mixed-5.3.3"), maxPartitionBytes="32k")
    partitions = reader.partitions()
    assert len(partitions) > 5
    copy = pickler.loads(pickler.dumps(reader))
    read = [
        row
        for partition in partitions
        for batch in copy.read(pickler.loads(pickler.dumps(partition)))
        for row in batch["queueId"]
    ]
    assert len(read) == 710
    assert list(copy.read(InputPartition(None))) == []


def test_a_worker_does_not_list_the_store(golden: Golden, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = reader_of(golden("mixed-5.3.3"), subscribe="Orders", keys="BB")
    partitions = reader.partitions()

    def listed(*_: object) -> None:
        raise AssertionError("a worker listed a folder")

    monkeypatch.setattr(os, "scandir", listed)
    monkeypatch.setattr(os, "listdir", listed)
    assert sum(batch.num_rows for partition in partitions for batch in reader.read(partition)) > 0


def test_an_empty_store_has_no_rows(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "store" / "commitlog").mkdir(parents=True)
    assert spark.read.format("rocketmq-store").load(str(tmp_path / "store")).collect() == []
    assert all(isinstance(p, StorePartition) for p in reader_of(tmp_path / "store").partitions())


@pytest.mark.usefixtures("without_bridge")
def test_the_partitions_of_a_dataframe_are_those_of_its_first_plan(spark: SparkSession, golden: Golden, tmp_path: Path) -> None:
    """A snapshot of a live store: files that come later belong to the next DataFrame."""
    first, second, df = part_of_a_store(spark, golden, tmp_path)
    before = offsets(df)
    second()
    assert offsets(df) == before == first
    assert len(offsets(spark.read.format("rocketmq-store").load(str(tmp_path / "store")))) == 710 > len(before)


@pytest.mark.usefixtures("with_bridge")
def test_the_bridge_plans_every_query_anew(spark: SparkSession, golden: Golden, tmp_path: Path) -> None:
    """Of a live store, each query sees what is there when it begins."""
    first, second, df = part_of_a_store(spark, golden, tmp_path)
    assert offsets(df) == first
    second()
    assert len(offsets(df)) == 710 > len(first)


def part_of_a_store(spark: SparkSession, golden: Golden, tmp_path: Path) -> tuple[list[int], Callable[[], object], DataFrame]:
    """The offsets in a store's first file, what adds the second, and a DataFrame of the store that has only the first."""
    log = tmp_path / "store" / "commitlog"
    log.mkdir(parents=True)
    files = sorted((golden("mixed-5.3.3") / "commitlog").iterdir())
    (log / files[0].name).write_bytes(files[0].read_bytes())
    df = spark.read.format("rocketmq-store").schema("commitLogOffset bigint").load(str(tmp_path / "store"))
    end = int(files[1].name)
    first = [offset for offset in select_offsets(golden.messages("mixed-5.3.3"), lambda _: True) if offset < end]
    return first, lambda: (log / files[1].name).write_bytes(files[1].read_bytes()), df


@pytest.mark.parametrize("module", ["rmq_spark.source", "store_core"])
def test_workers_do_not_import_what_is_slow(module: str) -> None:
    code = f"import sys, {module}; print([m for m in ('pandas', 'pyarrow.dataset', 'pyarrow.parquet') if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
