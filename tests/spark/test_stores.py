"""Several stores in one DataFrame: option `path` as a list or a glob."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from rmq_spark.stores import expand
from store_core.errors import OptionError, StoreNotFoundError
from tests.golden_stores import Golden

NAMES = ("longtopic-5.3.3", "lmq-5.3.3")


@pytest.fixture
def folder(golden: Golden, tmp_path: Path) -> Path:
    """A folder of two stores, and of something else."""
    for name in NAMES:
        (tmp_path / name).symlink_to(golden(name))
    (tmp_path / "notes.txt").write_text("no store")
    return tmp_path


def test_a_list_and_a_glob(spark: SparkSession, golden: Golden, folder: Path) -> None:
    reader = spark.read.format("rocketmq-store").option("extraColumns", "storePath")
    for path in ([str(folder / name) for name in NAMES], str(folder / "l*.3")):
        rows = reader.load(path).select("storePath", "topic", "queueId", "queueOffset", "commitLogOffset").collect()
        for name in NAMES:
            found = sorted(tuple(row)[1:] for row in rows if row.storePath == str(folder / name))
            wanted = [
                tuple(row[c] for c in ("topic", "queueId", "queueOffset", "commitLogOffset")) for row in golden.messages(name)
            ]
            assert found == sorted(wanted)
        assert len(rows) == sum(len(golden.messages(name)) for name in NAMES)


@pytest.mark.parametrize("table", ["consumequeue", "index"])
def test_other_tables_of_several_stores(spark: SparkSession, golden: Golden, table: str) -> None:
    reader = spark.read.format("rocketmq-store").option("table", table)
    each = [reader.load(str(golden(name))).count() for name in NAMES]
    assert reader.load([str(golden(name)) for name in NAMES]).count() == sum(each) > max(each)


def test_topics_of_several_stores(spark: SparkSession, golden: Golden) -> None:
    """A topic may be on one broker only; it is absent where no store has it."""
    paths = [str(golden(name)) for name in NAMES]
    only = next(
        row["topic"] for row in golden.messages(NAMES[0]) if row["topic"] not in {r["topic"] for r in golden.messages(NAMES[1])}
    )
    reader: Any = spark.read.format("rocketmq-store").schema("topic string")
    found = reader.option("subscribe", only).load(paths)
    assert found.count() == sum(row["topic"] == only for row in golden.messages(NAMES[0])) > 0
    with pytest.raises(PySparkException, match="Did you mean"):
        reader.option("subscribe", f"{only},{only}x").load(paths).count()


def test_partitions_of_several_stores(spark: SparkSession, golden: Golden) -> None:
    paths = [str(golden(name)) for name in ("mixed-5.3.3", "plain-4.9.7")]
    df = spark.read.format("rocketmq-store").schema("topic string").option("minPartitions", 6).load(paths)
    assert 6 <= df.rdd.getNumPartitions() <= 12
    assert df.count() == 710 + 700


def test_expand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b", "c[1]", "d,e"):
        (tmp_path / name).mkdir()
    assert expand([str(tmp_path / "[ab]")]) == [str(tmp_path / "a"), str(tmp_path / "b")]
    assert expand([f"file://{tmp_path}/?"]) == [str(tmp_path / "a"), str(tmp_path / "b")]
    assert expand([str(tmp_path / "c[1]"), str(tmp_path / "d,e")]) == [str(tmp_path / "c[1]"), str(tmp_path / "d,e")]
    monkeypatch.chdir(tmp_path)
    assert expand(["a"]) == [str(tmp_path / "a")]
    for paths, error in (
        (["x"], StoreNotFoundError),
        (["x*"], StoreNotFoundError),
        (["a", "./a"], OptionError),
        ([], OptionError),
    ):
        with pytest.raises(error):
            expand(paths)


def test_a_pattern_that_also_matches_something_else(spark: SparkSession, folder: Callable[[str], Path]) -> None:
    with pytest.raises(PySparkException, match=r"notes\.txt"):
        spark.read.format("rocketmq-store").load(f"{folder}/*").count()
