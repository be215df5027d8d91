"""Each option changes what a read gives, in the way its words say."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from store_core.options import OPTIONS
from tests.golden_stores import Golden
from tests.oracle import read_store
from tests.spark.rows import SMALL_COLUMNS, Row, keys_of, offsets, select_offsets

NAME = "mixed-5.3.3"
Load = Callable[..., DataFrame]


@pytest.fixture
def messages(golden: Golden) -> list[Row]:
    return golden.messages(NAME)


@pytest.fixture
def load(spark: SparkSession, golden: Golden) -> Load:
    """`load(option=value, ...)`: a few columns of the golden store."""

    def load(path: Path | None = None, schema: str = SMALL_COLUMNS, **options: Any) -> DataFrame:
        return spark.read.format("rocketmq-store").options(**options).schema(schema).load(str(path or golden(NAME)))

    return load


def test_every_option_has_a_test_here() -> None:
    text = Path(__file__).read_text(encoding="utf-8")
    elsewhere = {
        "path": "test_stores.py",
        "table": "test_tables.py",
        "maxHashSlotNum": "test_tables.py",
        "maxIndexNum": "test_tables.py",
    }
    for option in OPTIONS:
        source = text if option.name not in elsewhere else Path(__file__).with_name(elsewhere[option.name]).read_text("utf-8")
        assert option.name in source, option.name


# --- which rows ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("options", "keep"),
    [
        ({"subscribe": "Orders, Payments"}, lambda r: r["topic"] in ("Orders", "Payments")),
        ({"subscribe": "%RETRY%CG_11"}, lambda r: r["topic"] == "%RETRY%CG_11"),
        ({"subscribePattern": "T.*|Big"}, lambda r: r["topic"].startswith("T") or r["topic"] == "Big"),
        ({"subscribePattern": "Order"}, lambda r: False),
        ({"assign": '{"Orders":[0,2],"Big":[3]}'}, lambda r: f"{r['topic']}{r['queueId']}" in ("Orders0", "Orders2", "Big3")),
        ({"startingOffsets": "earliest", "endingOffsets": "latest"}, lambda r: True),
        (
            {"subscribe": "Orders", "startingOffsets": '{"Orders":{"0":5,"1":-2}}',
             "endingOffsets": '{"Orders":{"0":9,"1":-1,"2":3}}'},
            lambda r: r["topic"] == "Orders"
            and not (r["queueId"] == 0 and not 5 <= r["queueOffset"] < 9)
            and not (r["queueId"] == 2 and r["queueOffset"] >= 3),
        ),
        ({"endingOffsets": '{"Orders":{0:1}}'}, lambda r: f"{r['topic']} {r['queueId']}" != "Orders 0" or r["queueOffset"] < 1),
        ({"keys": "Aa"}, lambda r: "Aa" in keys_of(r)),
        ({"keys": "BB,dup"}, lambda r: {"BB", "dup"} & set(keys_of(r))),
        ({"keys": '["键-3"]', "subscribe": "Orders"}, lambda r: r["topic"] == "Orders" and "键-3" in keys_of(r)),
        ({"keys": "no-such-key"}, lambda r: False),
        ({"tags": "标签"}, lambda r: r["tags"] == "标签"),
        ({"tags": '["TagA","标签"]', "subscribePattern": "Orders|TopicTest"},
         lambda r: r["tags"] in ("TagA", "标签") and r["topic"] in ("Orders", "TopicTest")),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)  # fmt: skip
def test_selections(load: Load, messages: list[Row], options: dict[str, str], keep: Callable[[Row], bool]) -> None:
    expected = select_offsets(messages, lambda r: bool(keep(r)))
    assert offsets(load(**options)) == expected
    if "keys" in options:
        assert offsets(load(index="ignore", **options)) == expected


def test_ids(load: Load, messages: list[Row]) -> None:
    some = messages[3:400:57]
    uniq = {row["uniqKey"] for row in some if row["uniqKey"]}
    ids = [row["offsetMsgId"].lower() for row in some]
    for index in ("trust", "verify", "ignore"):
        assert offsets(load(uniqKeys=json.dumps(sorted(uniq)), index=index)) == select_offsets(
            messages, lambda r: r["uniqKey"] in uniq
        )
    assert offsets(load(offsetMsgIds=",".join(ids))) == select_offsets(some, lambda r: True)
    one = some[1]
    assert offsets(load(offsetMsgIds=one["offsetMsgId"], subscribe="Big")) == select_offsets(
        [one], lambda r: r["topic"] == "Big"
    )


@pytest.mark.parametrize("options", [{}, {"subscribe": "Orders"}, {"keys": "BB"}], ids=str)
def test_times(load: Load, messages: list[Row], options: dict[str, str]) -> None:
    times = sorted({row["storeTimestamp"] for row in messages})
    start, stop = times[len(times) // 3], times[2 * len(times) // 3]

    def keep(row: Row) -> bool:
        topic, key = options.get("subscribe"), options.get("keys")
        return start <= row["storeTimestamp"] < stop and topic in (None, row["topic"]) and (key is None or key in keys_of(row))

    assert offsets(load(startingTimestamp=start, endingTimestamp=stop, **options)) == select_offsets(messages, keep)
    assert offsets(load(startingTimestamp=start, endingTimestamp=start, **options)) == []


def test_a_light_queue_has_messages_of_other_topics(load: Load, golden: Golden) -> None:
    store = golden("lmq-5.3.3")
    queue = next(folder.name for folder in sorted((store / "consumequeue").iterdir()) if folder.name.startswith("%LMQ%"))
    expected = select_offsets(
        golden.messages("lmq-5.3.3"), lambda r: queue in r["properties"].get("INNER_MULTI_DISPATCH", "").split(",")
    )
    found = load(store, subscribe=queue)
    assert offsets(found) == expected != []
    assert queue not in {row.topic for row in found.collect()}


def test_data_that_is_gone(load: Load, messages: list[Row], fresh_golden: Callable[[str], Path]) -> None:
    store = fresh_golden(NAME)
    first = min((store / "commitlog").iterdir())
    left = select_offsets(messages, lambda r: r["commitLogOffset"] >= first.stat().st_size)
    first.unlink()
    assert offsets(load(store)) == left
    wanted = {"subscribe": "Orders", "startingOffsets": '{"Orders":{"0":0}}'}
    with pytest.raises(PySparkException, match="failOnDataLoss"):
        load(store, **wanted).count()
    orders = select_offsets(messages, lambda r: r["commitLogOffset"] in set(left) and r["topic"] == "Orders")
    assert offsets(load(store, failOnDataLoss="false", **wanted)) == orders


# --- corruption ----------------------------------------------------------------------------------------------------------
@pytest.fixture
def damaged(fresh_golden: Callable[[str], Path], messages: list[Row]) -> tuple[Path, Row]:
    """A store whose record number 40 has no magic, and that record."""
    store, row = fresh_golden(NAME), messages[40]
    with min((store / "commitlog").iterdir()).open("r+b") as log:
        log.seek(row["commitLogOffset"] + 4)
        log.write(b"\0\0\0\0")
    return store, row


@pytest.mark.parametrize("name", ["_corrupt_record", "broken"])
def test_modes(spark: SparkSession, load: Load, messages: list[Row], damaged: tuple[Path, Row], name: str) -> None:
    store, row = damaged
    with pytest.raises(PySparkException, match="mode=PERMISSIVE"):
        load(store, mode="failfast").count()
    rest = select_offsets(messages, lambda r: r["commitLogOffset"] != row["commitLogOffset"])
    assert offsets(load(store, mode="DropMalformed")) == rest
    permissive = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": name}
    whole = spark.read.format("rocketmq-store").options(**permissive).load(str(store))
    assert whole.schema[name].dataType.simpleString() == "struct<file:string,start:bigint,end:bigint,reason:string,raw:binary>"
    found = whole.where(f"{name} IS NOT NULL").toArrow().to_pylist()
    assert len(found) == 1
    corrupt = found[0].pop(name)
    assert set(found[0].values()) == {None}
    start, end = row["commitLogOffset"], row["commitLogOffset"] + row["storeSize"]
    assert (corrupt["file"], corrupt["start"], corrupt["end"]) == (str(min((store / "commitlog").iterdir())), start, end)
    assert corrupt["reason"] and len(corrupt["raw"]) == row["storeSize"]
    chosen = load(
        store,
        f"commitLogOffset bigint, {name} struct<file:string,start:bigint,end:bigint,reason:string,raw:binary>",
        **permissive,
    )
    assert offsets(chosen.where(f"{name} IS NULL")) == rest
    assert chosen.where(f"{name}.start = {start}").count() == 1
    without = load(store, **permissive)
    assert without.count() == len(rest) + 1, "a corrupt range is a row whatever columns are chosen"
    assert without.where("topic IS NULL AND commitLogOffset IS NULL").count() == 1


def test_verify_crc(load: Load, messages: list[Row], fresh_golden: Callable[[str], Path]) -> None:
    store, row = fresh_golden(NAME), next(r for r in messages[20:] if not r["sysFlag"] & 0x700 and r["bodyLength"] > 10)
    with min((store / "commitlog").iterdir()).open("r+b") as log:
        log.seek(row["commitLogOffset"] + 88)
        byte = log.read(1)[0]
        log.seek(-1, 1)
        log.write(bytes([byte ^ 1]))
    everything = select_offsets(messages, lambda r: True)
    assert offsets(load(store)) == offsets(load(store, verifyCrc="false")) == everything
    with pytest.raises(PySparkException, match="CRC"):
        load(store, verifyCrc="true").count()
    rest = [offset for offset in everything if offset != row["commitLogOffset"]]
    assert offsets(load(store, verifyCrc=True, mode="DROPMALFORMED")) == rest


# --- columns -------------------------------------------------------------------------------------------------------------
def test_bodies(load: Load, messages: list[Row], golden: Golden) -> None:
    stored = {row["commitLogOffset"]: row for row in read_store(golden(NAME))}
    columns = "commitLogOffset bigint, body binary, compression string"
    for kind in ("decoded", "raw"):
        rows = {row.commitLogOffset: row for row in load(schema=columns, bodyFormat=kind).collect()}
        for row in messages:
            body = bytes(rows[row["commitLogOffset"]].body)
            compressed = stored[row["commitLogOffset"]]["sysFlag"] & 1
            if kind == "decoded" or not compressed:
                assert body == stored[row["commitLogOffset"]]["body"]
            else:
                assert body != stored[row["commitLogOffset"]]["body"] and body in stored[row["commitLogOffset"]]["rawRecord"]
    assert {row.compression for row in rows.values()} == {"none", "zlib", "lz4", "zstd"}
    largest = max(row["bodyLength"] for row in messages if row["sysFlag"] & 0x700)
    load(schema=columns, maxDecompressedSize=largest).collect()
    with pytest.raises(PySparkException, match="maxDecompressedSize"):
        load(schema=columns, maxDecompressedSize=largest - 1).collect()


def test_extra_columns(spark: SparkSession, golden: Golden) -> None:
    extra = "propertiesString,compression,transactionType,sourceFile,storePath,rawRecord"
    store = golden(NAME)
    df = spark.read.format("rocketmq-store").option("extraColumns", extra).load(str(store))
    plain = spark.read.format("rocketmq-store").load(str(store))
    assert df.columns == [*plain.columns, *extra.split(",")]
    stored = {row["commitLogOffset"]: row for row in read_store(store)}
    kinds = {0: "none", 4: "prepared", 8: "commit", 12: "rollback"}
    for row in df.select("commitLogOffset", *extra.split(",")).toArrow().to_pylist():
        wanted = stored[row["commitLogOffset"]]
        assert row["propertiesString"].encode() == wanted["propertiesString"]
        assert row["rawRecord"] == wanted["rawRecord"]
        assert row["transactionType"] == kinds[wanted["sysFlag"] & 12]
        assert Path(row["sourceFile"]).parent == store / "commitlog"
        assert row["storePath"] == str(store)


def test_broker_name(load: Load) -> None:
    assert {row.brokerName for row in load(schema="brokerName string", brokerName="b-1").collect()} == {"b-1"}


def test_inner_messages(load: Load, golden: Golden) -> None:
    store, stored = golden("batchcq-5.3.3"), golden.messages("batchcq-5.3.3")
    assert offsets(load(store)) == offsets(load(store, expandBatches="false")) == select_offsets(stored, lambda r: True)
    inner = load(store, expandBatches="true")
    counts = [int(row["properties"].get("INNER_NUM", 1)) for row in stored]
    assert inner.count() == sum(counts) > len(stored)


# --- where and how -------------------------------------------------------------------------------------------------------
def test_commitlog_folders_elsewhere(
    load: Load, messages: list[Row], fresh_golden: Callable[[str], Path], tmp_path: Path
) -> None:
    store = fresh_golden(NAME)
    older, newer = tmp_path / "older", tmp_path / "newer"
    older.mkdir()
    first = min((store / "commitlog").iterdir())
    shutil.move(first, older / first.name)
    shutil.move(store / "commitlog", newer)
    everything = select_offsets(messages, lambda r: True)
    assert offsets(load(store, storePathCommitLog=f"{newer},{older}")) == everything
    assert offsets(load(store, storePathCommitLog=newer, readOnlyCommitLogStorePaths=older)) == everything
    assert offsets(load(store, storePathCommitLog=newer, readOnlyCommitLogStorePaths=older, keys="BB")) == select_offsets(
        messages, lambda r: "BB" in keys_of(r)
    )


def test_partition_sizes(load: Load, messages: list[Row]) -> None:
    everything = select_offsets(messages, lambda r: True)
    assert load().rdd.getNumPartitions() == 1
    for options, fewest in (
        ({"maxPartitionBytes": "64k"}, 5),
        ({"minPartitions": "6"}, 6),
        ({"minPartitions": 3, "subscribe": "Orders"}, 3),
    ):
        df = load(**options)
        assert fewest <= df.rdd.getNumPartitions() <= 4 * fewest
        assert offsets(df) == (
            select_offsets(messages, lambda r: r["topic"] == "Orders") if "subscribe" in options else everything
        )
