"""What df.write wrote from several partitions, under a real broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.broker import free_port
from tests.interop.given import assert_holds, messages, table
from tests.interop.served import Boot, send_more, serving
from tests.oracle import read_store

SIZES = {"mappedFileSizeCommitLog": 65536, "mappedFileSizeConsumeQueue": 2000, "maxHashSlotNum": 200, "maxIndexNum": 800}


def test_a_broker_serves_what_spark_wrote(boot: Boot, tmp_path: Path) -> None:
    rmq_spark = pytest.importorskip("rmq_spark")
    store, port = tmp_path / "store", free_port()
    given = messages(600, f"127.0.0.1:{port}")
    spark = rmq_spark.session("local[2]", **{"spark.ui.enabled": "false"})
    try:
        order = ("storeTimestamp", "uniqKey")
        frame = spark.createDataFrame(table(given)).repartitionByRange(3, *order).sortWithinPartitions(*order)
        assert frame.rdd.getNumPartitions() == 3
        frame.write.format("rocketmq-store").mode("append").options(**{k: str(v) for k, v in SIZES.items()}).save(str(store))
    finally:
        spark.stop()
    assert_holds(store, given)
    with serving(boot, "5.3.3", store, port=port, **SIZES) as broker:
        sent = send_more(broker, [("Orders", 0)])
    assert [row["body"] for row in read_store(store)[600:]] == [row["body"] for row in sent]
