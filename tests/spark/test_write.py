"""`df.write`: append and overwrite, tables, partitions, failures; with the bridge and without."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession

import store_core
from tests.core.test_preserve import RAW, SIZES, data_files, index_contents
from tests.golden_stores import Golden
from tests.spark.test_errors import last_line


def read(spark: SparkSession, path: Path, **options: str) -> DataFrame:
    return spark.read.format("rocketmq-store").options(**options).load(str(path))


def write(df: DataFrame, path: Path, mode: str = "append", **options: str | int) -> None:
    df.write.format("rocketmq-store").mode(mode).options(**options).save(str(path))


def some(spark: SparkSession, first: int, count: int, partitions: int = 3) -> DataFrame:
    return spark.range(first, first + count, numPartitions=partitions).selectExpr(
        "concat('T', id % 3) topic", "cast(id % 2 as int) queueId", "cast(concat('body ', id) as binary) body",
        "concat('k', id) keys", "map('a', 'b', 'id', cast(id as string)) properties",
    )  # fmt: skip


def bodies(path: Path, topic: str, queue_id: int) -> list[int]:
    where = [("topic", "=", topic), ("queueId", "=", queue_id)]
    rows = store_core.open_store(path).scan(where, ["queueOffset", "body"]).read_all().sort_by("queueOffset").to_pylist()
    assert [row["queueOffset"] for row in rows] == list(range(len(rows)))
    return [int(row["body"].split()[1]) for row in rows]


def clean(path: Path) -> bool:
    return not [p for p in (*path.parent.iterdir(), *(path.iterdir() if path.exists() else ())) if p.name.startswith(".")]


def test_append_and_read_back(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "s"
    write(some(spark, 0, 3000), path)
    write(some(spark, 3000, 600), path)
    found = read(spark, path)
    assert found.count() == 3600
    assert found.selectExpr("sum(int(properties['id']))").collect()[0][0] == sum(range(3600))
    for topic in range(3):
        for queue_id in range(2):
            expected = [n for n in range(3600) if n % 3 == topic and n % 2 == queue_id]
            assert bodies(path, f"T{topic}", queue_id) == expected, "the order of partitions and rows"
    assert read(spark, path, keys="k1234").count() == 1
    assert clean(path)


def test_overwrite_what_is_read(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "s"
    write(some(spark, 0, 300), path, mappedFileSizeCommitLog="64k")
    kept = read(spark, path, **RAW).where("topic != 'T1'").orderBy("commitLogOffset")
    write(kept, path, "overwrite", preserve="true", mappedFileSizeCommitLog="64k")
    assert sorted(row[0] for row in read(spark, path).select("topic").distinct().collect()) == ["T0", "T2"]
    assert read(spark, path).count() == 200 and clean(path)


@pytest.mark.parametrize("name", ["mixed-5.3.3", "crc-5.5.0"])
def test_a_golden_store_through_spark_is_the_same_bytes(name: str, spark: SparkSession, golden: Golden, tmp_path: Path) -> None:
    source, path = golden(name), tmp_path / "again"
    df = read(spark, source, **RAW, minPartitions="4")
    write(df, path, preserve="true", systemTopics="true", indexTags=str(name == "crc-5.5.0"), **SIZES)
    assert data_files(path, "commitlog", "consumequeue") == data_files(source, "commitlog", "consumequeue")
    assert index_contents(path) == index_contents(source)


def test_tables(spark: SparkSession, with_bridge: None, tmp_path: Path) -> None:
    path = tmp_path / "t"
    options = f"OPTIONS (path '{path}', mappedFileSizeCommitLog '1m', defaultTopicQueueNums '2', subscribe 'T')"
    spark.sql("DROP TABLE IF EXISTS written")
    spark.sql(f"CREATE TABLE written USING `rocketmq-store` {options} AS SELECT 'T' topic, binary('one') body, 'k1' keys")
    try:
        spark.sql("EXPLAIN INSERT INTO written SELECT 'T' topic, binary('x') body, 'x' keys").collect()
        spark.sql("INSERT INTO written SELECT 'T' topic, binary('two') body, 'k2' keys")
        assert sorted(bytes(row.body) for row in spark.sql("SELECT body FROM written").collect()) == [b"one", b"two"]
        assert [bytes(row.body) for row in spark.sql("SELECT body FROM written WHERE keys = 'k2'").collect()] == [b"two"]
        assert next((path / "commitlog").iterdir()).stat().st_size == 1 << 20
        spark.sql("INSERT OVERWRITE written SELECT 'T' topic, binary('three') body, 'k3' keys")
        assert [bytes(row.body) for row in spark.sql("SELECT body FROM written").collect()] == [b"three"]
        assert clean(path)
    finally:
        spark.sql("DROP TABLE IF EXISTS written")


def test_a_task_that_fails(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "s"
    write(some(spark, 0, 30), path)
    before = data_files(path, "commitlog", "consumequeue", "index")
    late = some(spark, 30, 300).withColumn("topic", _if_last())
    for mode in ("append", "overwrite"):
        with pytest.raises(PySparkException) as error:
            write(late, path, mode)
        assert "'not a topic!'" in str(error.value) and "topic" in last_line(error)
        assert data_files(path, "commitlog", "consumequeue", "index") == before
        assert clean(path), "what the other tasks had staged is removed"


def _if_last() -> Column:
    from pyspark.sql import functions

    return functions.expr("if(cast(properties['id'] as int) = 329, 'not a topic!', topic)")


def test_rows_that_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "s"
    with pytest.raises(PySparkException) as error:
        write(spark.sql("SELECT 'T' topic, 5 body"), path)
    assert last_line(error).startswith("column 'body' is")
    with pytest.raises(PySparkException) as error:
        write(spark.sql("SELECT 'T' topic, binary('x') body, 1L queueOffset"), path, preserve="true", renumber="maybe")
    assert last_line(error).startswith("option 'renumber' is 'maybe'")
    with pytest.raises(PySparkException) as error:
        write(some(spark, 0, 3), path, mapedFileSizeCommitLog="1g")
    assert "unknown write option 'mapedfilesizecommitlog'. Did you mean 'mappedFileSizeCommitLog'" in last_line(error)
    assert clean(path) and not path.exists()


def test_modes_and_formats(spark: SparkSession, tmp_path: Path) -> None:
    df = some(spark, 0, 3)
    for mode in ("error", "ignore"):
        with pytest.raises(PySparkException, match=r"Append.*Overwrite"):
            write(df, tmp_path / "s", mode)
    with pytest.raises(PySparkException) as error:
        df.write.format("rocketmq-consumequeue").mode("append").save(str(tmp_path / "s"))
    assert last_line(error).startswith("the table consumequeue can't be written")
    with pytest.raises(PySparkException) as error:
        df.write.format("rocketmq-store").mode("append").save("s3://bucket/store")
    assert last_line(error).startswith("s3://bucket/store: only local paths can be read or written so far")
    df.write.format("rocketmq-commitlog").mode("append").save(str(tmp_path / "log"))
    assert read(spark, tmp_path / "log").count() == 3


def test_a_store_that_is_locked(spark: SparkSession, tmp_path: Path) -> None:
    from store_core.locks import hold
    from store_core.writefiles import LocalWrites

    path = tmp_path / "s"
    write(some(spark, 0, 3), path)
    with hold(LocalWrites(), str(path)), pytest.raises(PySparkException) as error:
        write(some(spark, 3, 3), path)
    assert "a running broker or another writer has the store" in last_line(error)
    assert read(spark, path).count() == 3 and clean(path)


def test_an_empty_dataframe(spark: SparkSession, tmp_path: Path) -> None:
    write(some(spark, 0, 30).where("topic = 'none'"), tmp_path / "s")
    assert read(spark, tmp_path / "s").count() == 0
    write(some(spark, 0, 30), tmp_path / "s")
    write(some(spark, 0, 30).where("topic = 'none'"), tmp_path / "s")
    assert read(spark, tmp_path / "s").count() == 30


def test_all_columns_of_a_store_can_be_written(spark: SparkSession, golden: Golden, tmp_path: Path) -> None:
    """Without preserve: new places and numbers, the same messages."""
    rows = read(spark, golden("plain-4.9.7")).where("topic in ('Orders', 'Payments')")
    write(rows.drop("queueOffset", "commitLogOffset"), tmp_path / "s", allowUnorderedTimes="true")
    same = ["topic", "queueId", "tags", "keys", "uniqKey", "body", "flag", "bornTimestamp", "bornHost", "storeTimestamp"]
    old, new = (df.select(*same).collect() for df in (rows, read(spark, tmp_path / "s")))
    assert sorted(map(str, old)) == sorted(map(str, new))


TRIED_AGAIN = """
import os, sys
from pyspark import TaskContext
import rmq_spark, store_core
from tests.spark.test_write import some, write

def fails_once(rows):
    task = TaskContext.get()
    yield from rows
    if task.attemptNumber() == 0:
        raise RuntimeError("the first attempt fails, with all its rows staged")

spark = rmq_spark.session("local[2,3]", **{"spark.sql.shuffle.partitions": "2"})
df = some(spark, 0, 90)
write(df.rdd.mapPartitions(fails_once).toDF(df.schema), sys.argv[1])
print(store_core.open_store(sys.argv[1]).scan().read_all().num_rows, sorted(os.listdir(os.path.dirname(sys.argv[1]))))
"""


@pytest.mark.slow
def test_tasks_that_are_tried_again_leave_one_copy(tmp_path: Path) -> None:
    """In a Spark of its own: a local one tries no task twice unless told so."""
    root = Path(__file__).resolve().parents[2]
    command = [sys.executable, "-c", TRIED_AGAIN, str(tmp_path / "s")]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout.strip().endswith("90 ['s']"), done.stdout + done.stderr[-3000:]


SPECULATED = """
import os, sys, time
from pathlib import Path
from pyspark import TaskContext
import rmq_spark, store_core
from tests.spark.conftest import cluster
from tests.spark.test_write import some, write

def hangs_once(rows):
    task = TaskContext.get()
    yield from rows
    if task.attemptNumber() == 0 and task.partitionId() == 3:
        time.sleep(120)

settings = {"interval": "100ms", "multiplier": "1.5", "quantile": "0.5", "minTaskRuntime": "100ms"}
settings = {"spark.speculation": "true", **{f"spark.speculation.{name}": value for name, value in settings.items()}}
with cluster(Path(sys.argv[2]), ("127.0.0.1", "127.0.0.2")) as master:
    spark = rmq_spark.session(master, **settings, **{"spark.driver.host": "127.0.0.1", "spark.ui.enabled": "false"})
    df = some(spark, 0, 90).repartition(4)
    start = time.monotonic()
    write(df.rdd.mapPartitions(hangs_once).toDF(df.schema), sys.argv[1], allowUnorderedTimes="true")
    print("speculated" if time.monotonic() - start < 100 else "waited", end=" ")
    spark.stop()
print(store_core.open_store(sys.argv[1]).scan().read_all().num_rows, sorted(os.listdir(os.path.dirname(sys.argv[1]))))
"""


@pytest.mark.slow
@pytest.mark.cluster
def test_speculation_leaves_one_copy(tmp_path: Path) -> None:
    """A task hangs with all its rows staged; another attempt of it comes to the commit. A local Spark does not speculate."""
    root = Path(__file__).resolve().parents[2]
    (tmp_path / "cluster").mkdir()
    (tmp_path / "store").mkdir()
    command = [sys.executable, "-c", SPECULATED, str(tmp_path / "store" / "s"), str(tmp_path / "cluster")]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout.strip().endswith("speculated 90 ['s']"), done.stdout + done.stderr[-3000:]
