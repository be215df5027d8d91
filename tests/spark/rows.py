"""What a DataFrame of messages holds, in the words of the golden `*.messages.jsonl` files."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta, timezone
from typing import Any

from pyspark.sql import DataFrame

__all__ = ["SMALL_COLUMNS", "Row", "first", "keys_of", "ms", "offsets", "rows_of", "select_offsets"]

Row = dict[str, Any]
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
SMALL_COLUMNS = "topic string, queueId int, queueOffset bigint, commitLogOffset bigint"


def ms(time: datetime) -> int:
    """Milliseconds since 1970; fails where the time has a fraction of one."""
    whole, rest = divmod(time - EPOCH, timedelta(milliseconds=1))
    assert not rest, f"{time} is no whole millisecond"
    return whole


def rows_of(df: DataFrame) -> list[Row]:
    """All rows by ascending commitLogOffset; times in ms, the body as its length and SHA-256, the properties as a dict."""
    rows = []
    for row in df.toArrow().to_pylist():
        body = row.pop("body")
        row |= {"bodyLength": len(body), "bodySha256": hashlib.sha256(body).hexdigest()}
        row["properties"] = dict(row["properties"])
        row["bornTimestamp"], row["storeTimestamp"] = ms(row["bornTimestamp"]), ms(row["storeTimestamp"])
        rows.append(row)
    return sorted(rows, key=lambda row: row["commitLogOffset"])


def offsets(df: DataFrame) -> list[int]:
    """The commitLogOffsets of all rows, ascending, repeats kept."""
    return sorted(df.select("commitLogOffset").toArrow()["commitLogOffset"].to_pylist())


def first(df: DataFrame) -> tuple[Any, ...]:
    """The first row of a DataFrame that has one."""
    row = df.first()
    assert row is not None
    return row


def select_offsets(messages: Iterable[Row], keep: Callable[[Row], bool]) -> list[int]:
    """The commitLogOffsets of those messages, ascending."""
    return sorted(row["commitLogOffset"] for row in messages if keep(row))


def keys_of(row: Row) -> list[str]:
    """The tokens of KEYS."""
    return [token for token in (row["keys"] or "").split(" ") if token]
