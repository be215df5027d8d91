"""A damaged commitlog: the exact prefix or rest, or a report; `tests.reliability` has the classes and counts them.

The full counts (`make test-all`, or `python -m tests.reliability`) are in docs/reliability.md; here about every third bit is
flipped.
"""

from __future__ import annotations

import random
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from store_core import CorruptStoreError, StoreWarning, open_store
from tests import damage
from tests.core.rows import full_rows, offsets
from tests.oracle import Row, log_files
from tests.reliability import (
    CUT_COLUMNS,
    DETECTED,
    Flipped,
    Outcome,
    blank_fields,
    body_fields,
    classify,
    cut_everywhere,
    flip_bits,
    header_fields,
    look,
    place,
    sample_store,
    summarize,
)

UNDETECTABLE = {
    "bodyCRC",
    "queueId",
    "flag",
    "queueOffset",
    "sysFlag",
    "bornTimestamp",
    "bornHost",
    "storeTimestamp",
    "storeHost",
    "reconsumeTimes",
    "preparedTransactionOffset",
}
"""Header fields of which the format has no second copy and no CRC (but `__CRC32#`)."""


def small(root: Path, count: int = 16, **options: Any) -> list[Row]:
    sample_store(root, count, **({"mappedFileSizeCommitLog": 2048} | options))
    return full_rows(root)


def every_header(rows: list[Row]) -> dict[int, list[tuple[str, int, int]]]:
    return {row["commitLogOffset"]: header_fields(row["rawRecord"]) for row in rows}


# --- cuts ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", [-1, 1])
def test_a_file_cut_at_any_byte(tmp_path: Path, which: int) -> None:
    sample_store(tmp_path)
    truth = full_rows(tmp_path)
    assert len(truth) == 64
    file = log_files(tmp_path)[which]
    tally = cut_everywhere(tmp_path, file, truth, which == -1, step=13)
    assert not tally.failures, tally.failures


@pytest.mark.parametrize("layout", ["dledger", "multipath"])
def test_a_file_of_another_layout_cut_at_any_byte(tmp_path: Path, layout: str) -> None:
    truth = small(tmp_path, layout=layout)
    tally = cut_everywhere(tmp_path, log_files(tmp_path)[0], truth, last=False, step=23)
    assert not tally.failures, tally.failures


def test_cut_in_mode_failfast_is_an_error_only_where_records_follow(tmp_path: Path) -> None:
    truth = small(tmp_path)
    files = log_files(tmp_path)
    inside = truth[1]["commitLogOffset"] + 50
    whole = files[0].read_bytes()
    damage.truncate(files[0], inside)
    with pytest.raises(CorruptStoreError) as caught:
        open_store(tmp_path).scan().read_all()
    assert str(files[0]) in str(caught.value)
    with pytest.warns(StoreWarning):
        rest = open_store(tmp_path).scan(mode="DROPMALFORMED").read_all()
    base = int(files[1].name)
    assert offsets(rest) == offsets(r for r in truth if r["commitLogOffset"] < inside - 50 or r["commitLogOffset"] >= base)
    files[0].write_bytes(whole)
    last = truth[-1]["commitLogOffset"]
    file, byte = place(tmp_path, last)
    damage.truncate(file, byte + 40)
    with pytest.warns(StoreWarning, match="log ends"):
        assert offsets(open_store(tmp_path).scan().read_all()) == offsets(truth[:-1])


@pytest.mark.parametrize("which", [0, 1, -1])
def test_a_lost_file(tmp_path: Path, which: int) -> None:
    truth = small(tmp_path, 40)
    files = log_files(tmp_path)
    assert len(files) > 2
    damage.delete(files[which])
    start = int(files[which].name)
    left = [row for row in truth if not start <= row["commitLogOffset"] < start + 2048]
    if which == 1:
        with pytest.raises(CorruptStoreError, match="no file holds"):
            open_store(tmp_path).scan().read_all()
        with pytest.warns(StoreWarning, match="no file holds"):
            assert offsets(open_store(tmp_path).scan(failOnDataLoss=False).read_all()) == offsets(left)
    else:  # a log may begin anywhere, and end anywhere
        assert offsets(open_store(tmp_path).scan().read_all()) == offsets(left)


# --- flipped bits --------------------------------------------------------------------------------------------------------


def undetected(tally: Any) -> set[str]:
    return {name for (name, kind), _ in tally.classes.items() if kind not in DETECTED}


@pytest.mark.parametrize("options", [{}, {"verifyCrc": True}], ids=["plain", "verifyCrc"])
def test_bits_of_headers(tmp_path: Path, options: dict[str, Any]) -> None:
    truth = small(tmp_path)
    tally = flip_bits(tmp_path, every_header(truth[:8] + truth[-1:]), truth, step=17, **options)
    assert not tally.failures, tally.failures
    assert undetected(tally) <= UNDETECTABLE
    if options:
        crc = {kind for (name, kind) in tally.classes if name == "bodyCRC"}
        # an empty body's CRC is never looked at
        assert any(kind in DETECTED for kind in crc)


def test_bits_of_blanks(tmp_path: Path) -> None:
    truth = small(tmp_path)
    tally = flip_bits(tmp_path, dict(blank_fields(tmp_path)), truth)
    assert not tally.failures, tally.failures
    assert not undetected(tally)


def test_bits_of_dledger_entries(tmp_path: Path) -> None:
    truth = small(tmp_path, layout="dledger")
    heads = {row["commitLogOffset"]: [("magic", -48, 4), ("size", -44, 4)] for row in truth[2:4] + truth[-1:]}
    tally = flip_bits(tmp_path, heads, truth, step=2)
    assert not tally.failures, tally.failures
    others = {row["commitLogOffset"]: [("others", -40, 40)] for row in truth[2:4]}
    tally = flip_bits(tmp_path, others, truth, step=5)
    assert {kind for _, kind in tally.classes} == {"all rows exact"}


def test_bits_of_bodies_with_verify_crc(tmp_path: Path) -> None:
    truth = small(tmp_path)
    bodies = {row["commitLogOffset"]: body_fields(row, row["rawRecord"])[:1] for row in truth[3:9]}
    tally = flip_bits(tmp_path, bodies, truth, step=7, verifyCrc=True)
    assert not tally.failures, tally.failures
    assert not undetected(tally)


def test_bits_of_bodies_without_it(tmp_path: Path) -> None:
    truth = small(tmp_path)
    bodies = {row["commitLogOffset"]: body_fields(row, row["rawRecord"]) for row in truth[:8]}
    tally = flip_bits(tmp_path, bodies, truth, step=31)
    assert not tally.failures, tally.failures


def test_bits_of_records_with_a_crc_of_their_own(tmp_path: Path) -> None:
    """`enabledAppendPropCRC`: no bit of a record goes unseen, but those of the block's own name."""
    from dataclasses import replace

    from tests.reliability import sample_messages
    from tests.synthetic import build_store

    made = [replace(message, crcProperty=True) for message in sample_messages(random.Random(3), 8)]
    build_store(tmp_path, made, write_queues=False, write_index=False, mappedFileSizeCommitLog=4096)
    truth = full_rows(tmp_path)
    fields = {
        r["commitLogOffset"]: [("record", 0, r["storeSize"] - 20), ("digits", r["storeSize"] - 11, 10)] for r in truth[4:6]
    }
    tally = flip_bits(tmp_path, fields, truth, step=13, verifyCrc=True)
    assert not tally.failures, tally.failures
    assert not undetected(tally)


# --- modes and cuts into tasks -------------------------------------------------------------------------------------------


def damaged_somewhere(rng: random.Random, root: Path) -> str:
    file = rng.choice(log_files(root))
    size = file.stat().st_size
    kind = rng.choice(("flip", "zero", "random", "truncate", "delete"))
    at = rng.randrange(size)
    if kind == "flip":
        return damage.flip_bit(file, at, rng.randrange(8))
    if kind == "zero":
        return damage.zero(file, at, min(rng.choice((1, 8, 100, 3000)), size - at))
    if kind == "random":
        return damage.overwrite(file, at, rng.randbytes(min(rng.choice((1, 50, 500)), size - at)))
    return damage.truncate(file, at) if kind == "truncate" else damage.delete(file)


def facts(seen: Outcome) -> tuple[list[int], list[tuple[str, int, int]]]:
    return offsets(seen.rows), sorted(seen.corrupt)


@pytest.mark.parametrize("seed", range(60))
def test_the_result_does_not_depend_on_the_cut_into_tasks(tmp_path: Path, seed: int) -> None:
    """Each row and each corrupt range exactly once, however the log is cut; the modes agree on the rows."""
    rng = random.Random(seed)
    layout = rng.choice(("plain", "plain", "dledger", "multipath"))
    stale = {} if layout == "dledger" else {"stale_tail": rng.choice((None, "tail", "record"))}
    truth = small(tmp_path / "s", 24, layout=layout, stale_blanks=rng.random() < 0.5, **stale)
    root = tmp_path / "s"
    done = [damaged_somewhere(rng, root) for _ in range(rng.choice((1, 1, 2, 4)))]
    if not log_files(root):
        return
    once = look(root, mode="PERMISSIVE", columns=CUT_COLUMNS)
    for size in (1, 97, 500, 3000):
        again = look(root, by_task=True, mode="PERMISSIVE", columns=CUT_COLUMNS, maxPartitionBytes=size)
        assert facts(again) == facts(once), f"{size}: {done}"
    assert not [place for place, n in Counter(offsets(once.rows)).items() if n > 1], done
    assert set(offsets(once.rows)) <= set(offsets(truth)), done
    lost = set(offsets(truth)) - set(offsets(once.rows))
    assert not lost or once.reported or no_trace(root, lost), (lost, done)

    dropped = look(root, mode="DROPMALFORMED", columns=CUT_COLUMNS[:-1])
    assert offsets(dropped.rows) == offsets(once.rows), done
    strict = look(root, columns=CUT_COLUMNS[:-1])
    if strict.error is None:
        assert offsets(strict.rows) == offsets(once.rows), done
    else:
        assert once.corrupt and strict.error.path and str(strict.error).startswith(strict.error.path), done


def no_trace(root: Path, lost: set[int]) -> bool:
    """Whether nothing is left of these records: a log may begin and end anywhere, and what is zeros is no record."""
    for offset in lost:
        for file in log_files(root):
            if 0 <= (start := offset - int(file.name)) < file.stat().st_size and file.read_bytes()[start:].strip(b"\0"):
                return False
    return True


def test_a_row_with_a_bad_body_is_one_corrupt_row(tmp_path: Path) -> None:
    truth = small(tmp_path)
    target = next(row for row in truth if row["compression"] == "zlib")
    file, start = place(tmp_path, target["commitLogOffset"])
    body_at = body_fields(target, target["rawRecord"])[0][1]
    with Flipped(file, start + body_at, 7):
        seen = look(tmp_path, mode="PERMISSIVE")
        assert classify(seen, truth, target["commitLogOffset"]) == DETECTED[0]
        assert seen.corrupt == [(file.name, start, start + target["storeSize"])]
        with pytest.raises(CorruptStoreError, match="no zlib stream"):
            open_store(tmp_path).scan().read_all()
        # a read that does not need the body does not fail on it
        assert open_store(tmp_path).scan(columns=["topic"]).read_all().num_rows == len(truth)
        assert open_store(tmp_path).scan(bodyFormat="raw").read_all().num_rows == len(truth)


def test_no_warnings_of_a_sound_store(tmp_path: Path) -> None:
    truth = small(tmp_path, preallocated=True, stale_blanks=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert offsets(open_store(tmp_path).scan(mode="PERMISSIVE").read_all()) == offsets(truth)


@pytest.mark.slow
def test_every_cut_and_every_bit() -> None:
    told = summarize()
    print(told)
    assert "FAILED" not in told
