"""`where` lists: (column, op, value), ANDed. Checked once, then asked of batches; SQL's rules for null.

A comparison with null is never true; only `is null` and `is not null` see it. Times are milliseconds or aware datetimes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from store_core.errors import OptionError, nearest

__all__ = ["OPS", "Predicate", "Range", "Where", "mask", "parse_where", "points_of", "range_of", "to_ms", "true_of_corrupt"]

OPS: Final = ("=", "!=", "<", "<=", ">", ">=", "in", "is null", "is not null")
Where = Sequence[Sequence[Any]]
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
_I64: Final = 1 << 63
_COMPARE: Final = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


@dataclass(frozen=True)
class Predicate:
    """One condition. `value`: an int (microseconds for a time column), str or bytes; a tuple of them for `in`; None for null
    tests.
    """

    column: str
    op: str
    value: Any = None

    def __str__(self) -> str:
        return f"{self.column} {self.op}" + ("" if self.op.startswith("is") else f" {self.value!r}")


@dataclass(frozen=True)
class Range:
    """All integers from `low` to `high`, both inclusive; None: no bound."""

    low: int | None = None
    high: int | None = None

    @property
    def is_all(self) -> bool:
        return self.low is None and self.high is None

    @property
    def is_empty(self) -> bool:
        return self.low is not None and self.high is not None and self.low > self.high

    def clip(self, low: int | None, high: int | None) -> Range:
        """The part of it between two more bounds."""
        lows = [x for x in (self.low, low) if x is not None]
        highs = [x for x in (self.high, high) if x is not None]
        return Range(max(lows) if lows else None, min(highs) if highs else None)


def to_ms(value: object, *, ceiling: bool = False) -> int:
    """A time as milliseconds since 1970: an int as it is, an aware datetime floored, or with `ceiling` rounded up.

    Errors: OptionError for anything else, a datetime without a zone too.
    """
    return -(-_micros(value) // 1000) if ceiling else _micros(value) // 1000


def _micros(value: object) -> int:
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise OptionError(
                f"{value!r} has no time zone. Give an aware datetime (tzinfo=timezone.utc) or milliseconds since 1970"
            )
        return (value - _EPOCH) // timedelta(microseconds=1)
    if isinstance(value, int) and not isinstance(value, bool):
        return value * 1000
    raise OptionError(f"{value!r} is no time. Give milliseconds since 1970 as an int, or an aware datetime")


def parse_where(where: Where | None, schema: pa.Schema) -> tuple[Predicate, ...]:
    """The conditions, checked against the table's schema.

    Errors: OptionError naming the condition for an unknown column (with near names), op, or a value of the wrong type.
    """
    if where is None:
        return ()
    if isinstance(where, (str, bytes)) or not isinstance(where, Iterable):
        raise OptionError(f"where must be a list of (column, op, value), not {where!r}")
    return tuple(_parse(condition, schema) for condition in where)


def _parse(condition: Any, schema: pa.Schema) -> Predicate:
    if not isinstance(condition, (tuple, list)) or len(condition) not in (2, 3):
        raise OptionError(f"{condition!r} is no condition. Write (column, op, value), as ('topic', '=', 'Orders')")
    column, op, value = (*condition, None)[:3]
    if column not in schema.names:
        raise OptionError(
            f"no column {column!r} to filter on.{nearest(str(column), schema.names)} Columns: {', '.join(schema.names)}"
        )
    op = " ".join(op.lower().split()) if isinstance(op, str) else op
    op = {"==": "=", "<>": "!="}.get(op, op)
    if op not in OPS:
        raise OptionError(f"no op {condition[1]!r} in {condition!r}. Ops: {', '.join(OPS)}")
    if op in ("is null", "is not null"):
        return Predicate(column, op)
    kind = schema.field(column).type
    if op == "in":
        if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
            raise OptionError(f"'in' wants a list of values, not {value!r}, in {condition!r}")
        return Predicate(column, op, tuple(sorted({_value(v, kind, condition) for v in value if v is not None})))
    return Predicate(column, op, _value(value, kind, condition))


def _value(value: Any, kind: pa.DataType, condition: Any) -> Any:
    if value is None:
        raise OptionError(f"a comparison with None is never true: {condition!r}. Use 'is null' or 'is not null'")
    if pa.types.is_timestamp(kind):
        return _micros(value)
    if pa.types.is_integer(kind):
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise OptionError(f"{value!r} is no integer, and column {condition[0]!r} is {kind}: {condition!r}")
        return int(value)
    if pa.types.is_string(kind) and isinstance(value, str):
        return value
    if pa.types.is_binary(kind) and isinstance(value, (bytes, bytearray)):
        return bytes(value)
    raise OptionError(f"{value!r} can't be compared with column {condition[0]!r} of type {kind}: {condition!r}")


def mask(predicate: Predicate, column: pa.Array) -> pa.BooleanArray:
    """Which rows of the column the condition is true for; null where SQL says null."""
    op, value = predicate.op, predicate.value
    if op == "is null":
        return pc.is_null(column)
    if op == "is not null":
        return pc.is_valid(column)
    kind = column.type
    whole = pa.types.is_integer(kind) or pa.types.is_timestamp(kind)
    if whole:
        column = column.view(pa.int64()) if pa.types.is_timestamp(kind) else column.cast(pa.int64())
        kind = pa.int64()
    if op == "in":
        values = [v for v in value if not whole or -_I64 <= v < _I64]
        return pc.is_in(column, value_set=pa.array(values, type=kind))
    if whole and not -_I64 <= value < _I64:
        # no int64 reaches it: the comparison comes out the same for every row
        holds = {"=": False, "!=": True, "<": value > 0, "<=": value > 0, ">": value < 0, ">=": value < 0}[op]
        return pc.if_else(pc.is_valid(column), pa.scalar(holds), pa.scalar(None, type=pa.bool_()))
    return _COMPARE[op](column, pa.scalar(value, type=kind))


def true_of_corrupt(predicates: Iterable[Predicate], corrupt_column: str | None) -> bool:
    """Whether a row passes that is null in every column but the corrupt record's."""
    return all(p.op == ("is not null" if p.column == corrupt_column else "is null") for p in predicates)


def points_of(predicates: Iterable[Predicate], column: str) -> frozenset[Any] | None:
    """The values that `=` and `in` leave for the column; None where they leave all. `is null` is left to the rows' check."""
    points: frozenset[Any] | None = None
    for p in predicates:
        if p.column == column and p.op in ("=", "in"):
            values = frozenset(p.value if p.op == "in" else (p.value,))
            points = values if points is None else points & values
    return points


def range_of(predicates: Iterable[Predicate], column: str) -> Range:
    """The smallest range that holds every value the conditions leave for an integer or time column (microseconds)."""
    found = Range()
    for p in predicates:
        if p.column != column:
            continue
        if p.op in ("=", "in"):
            values = p.value if p.op == "in" else (p.value,)
            found = found.clip(min(values), max(values)) if values else Range(1, 0)
        elif p.op in ("<", "<="):
            found = found.clip(None, p.value - (p.op == "<"))
        elif p.op in (">", ">="):
            found = found.clip(p.value + (p.op == ">"), None)
    return found
