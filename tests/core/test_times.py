"""Time ranges where storeTimestamps do not ascend along the log: every row, whatever could be left out if they did."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import store_core.checkpoint
from store_core import Store, open_store

HOUR = 3_600_000
BASE = 1_790_000_000_000
COUNT = 400
DESCENDING = [BASE + (COUNT - n) * HOUR for n in range(COUNT)]
ONE_STEP = [BASE + (n - (300 if n > 250 else 0)) * HOUR for n in range(COUNT)]
WITHIN = [BASE + n * 1000 - (59_000 if n % 150 > 120 else 0) for n in range(COUNT)]


def written(root: Path, times: list[int], log_size: str = "64k", **options: Any) -> Store:
    rows = pa.table(
        {
            "topic": [f"T{n % 20}" for n in range(COUNT)],
            "queueId": pa.array([0] * COUNT, pa.int32()),
            "keys": [f"k{n}" for n in range(COUNT)],
            "body": pa.array([bytes(500)] * COUNT, pa.binary()),
            "storeTimestamp": pa.array([time * 1000 for time in times], pa.timestamp("us", "UTC")),
        }
    )
    sizes = {
        "mappedFileSizeCommitLog": log_size,
        "mappedFileSizeConsumeQueue": 6000,
        "maxHashSlotNum": 100,
        "maxIndexNum": 150,
    }
    store_core.create_store(root, rows, **{**sizes, "allowUnorderedTimes": True, **options})
    return open_store(root)


def keys(store: Store, *args: Any, **options: Any) -> list[str]:
    return sorted(store.scan(*args, **{"columns": ["keys"], **options}).read_all()["keys"].to_pylist())


@pytest.mark.parametrize("times", [DESCENDING, ONE_STEP, WITHIN], ids=["descending", "one step", "within the tolerance"])
@pytest.mark.parametrize("log_size", ["64k", "4m"])
def test_every_row_of_a_time_range(tmp_path: Path, times: list[int], log_size: str) -> None:
    store = written(tmp_path / "s", times, log_size)
    for bound in (times[0], times[130], times[260], times[399], BASE + 1500):
        after = sorted(f"k{n}" for n, time in enumerate(times) if time >= bound)
        before = sorted(f"k{n}" for n, time in enumerate(times) if time < bound)
        assert keys(store, [("storeTimestamp", ">=", bound)]) == after
        assert keys(store, [("storeTimestamp", "<", bound)]) == before
        assert keys(store, startingTimestamp=bound) == after
        assert keys(store, endingTimestamp=bound) == before
        counted = store.scan(columns=["queueOffset"], subscribe="T3", startingTimestamp=bound).read_all().num_rows
        assert counted == len([key for key in after if int(key[1:]) % 20 == 3])
        for topic in ("T0", "T7"):
            mine = [key for key in after if int(key[1:]) % 20 == int(topic[1:])]
            assert keys(store, [("storeTimestamp", ">=", bound)], subscribe=topic) == mine
        index = store.scan([("storeTimestamp", ">=", bound)], table="index", columns=["key"]).read_all()
        assert {key for key in index["key"].to_pylist() if key and key.startswith("k")} >= set(after)
    for n in range(0, COUNT, 13):
        for start, end in ((times[n], None), (None, times[n]), (times[n], times[n])):
            assert store.lookup(f"T{n % 20}", f"k{n}", start, end).num_rows == 1
        where = [("topic", "=", f"T{n % 20}"), ("storeTimestamp", ">=", times[n])]
        assert keys(store, where, keys=f"k{n}") == [f"k{n}"]


def test_the_plan_says_why_nothing_is_left_out(tmp_path: Path) -> None:
    where = [("storeTimestamp", ">=", BASE + 200 * HOUR)]
    told = written(tmp_path / "a", DESCENDING).explain(where)
    assert "times do not ascend" in told and "skipped" not in told
    rising = [BASE + n * HOUR for n in range(COUNT)]
    told = written(tmp_path / "b", rising).explain(where)
    assert "times do not ascend" not in told and "commitlog files skipped by the times" in told


@pytest.mark.parametrize("times", [DESCENDING, ONE_STEP], ids=["descending", "one step"])
def test_a_store_of_unordered_times_is_sound(tmp_path: Path, times: list[int]) -> None:
    store = written(tmp_path / "s", times)
    assert "error" not in store.verify()["severity"].to_pylist()
    checkpoint = store_core.checkpoint.read_checkpoint(store.files, str(tmp_path / "s"))
    assert checkpoint is not None and checkpoint.physic_msg_timestamp == times[-1]
