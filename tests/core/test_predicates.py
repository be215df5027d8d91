"""Conditions: checked when they are given, and true where SQL says so."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pyarrow as pa
import pytest

from store_core.errors import OptionError
from store_core.predicates import mask, parse_where, points_of, range_of, to_ms
from store_core.schema import MESSAGES
from tests.oracle import matches

VALUES: dict[str, list[Any]] = {
    "queueId": [0, 1, -1, 2**31 - 1, -(2**31), None],
    "queueOffset": [0, 1, -1, 2**63 - 1, -(2**63), None],
    "topic": ["", "a", "b", "é", "🚀", "a\0", None],
    "body": [b"", b"a", b"\xff", b"a\0", None],
    "storeTimestamp": [0, 1, -1, 1_735_901_092_139, None],
}
NUMBERS = [0, 1, -1, 2**31, 2**63 - 1, -(2**63), 2**63, 2**70, -(2**70)]


def operands(column: str) -> list[Any]:
    if column == "storeTimestamp":
        return [0, 1, 1_735_901_092_139, datetime(2025, 1, 3, 10, 44, 52, 139_001, timezone.utc)]
    return NUMBERS if isinstance(VALUES[column][0], int) else [v for v in VALUES[column] if v is not None]


@pytest.mark.parametrize("column", VALUES)
@pytest.mark.parametrize("op", ["=", "!=", "<", "<=", ">", ">=", "in", "is null", "is not null"])
def test_the_rules_of_sql(column: str, op: str) -> None:
    kind = MESSAGES.field(column).type
    values = VALUES[column]
    scaled = [None if v is None else v * 1000 for v in values] if column == "storeTimestamp" else values
    array = pa.array(scaled, type=pa.int64()).view(kind) if column == "storeTimestamp" else pa.array(values, type=kind)
    cases: list[Any] = operands(column)
    if op == "in":
        cases = [[], cases, [*cases[:2], None], [None], (one for one in cases[:1])]
    if op.startswith("is"):
        cases = [None]
    for value in cases:
        value = list(value) if op == "in" else value
        (predicate,) = parse_where([(column, op, value)], MESSAGES)
        found = [bool(v) for v in mask(predicate, array).to_pylist()]
        assert found == [matches({column: v}, [(column, op, value)]) for v in values], (op, value)


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        (("topik", "=", "x"), "Did you mean 'topic'"),
        (("topic", "~", "x"), "no op '~'"),
        (("topic", "=", 1), "can't be compared"),
        (("topic", "=", None), "never true"),
        (("queueId", "=", "1"), "no integer"),
        (("queueId", "=", 1.0), "no integer"),
        (("queueId", "=", True), "no integer"),
        (("queueId", "in", 1), "wants a list"),
        (("topic", "in", "abc"), "wants a list"),
        (("storeTimestamp", "=", "2025-01-01"), "is no time"),
        (("storeTimestamp", "=", datetime(2025, 1, 1)), "has no time zone"),
        (("properties", "=", {}), "can't be compared"),
        (("topic",), "no condition"),
        ("topic = 'x'", "no condition"),
    ],
)
def test_what_is_no_condition(condition: Any, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse_where([condition], MESSAGES)


def test_a_condition_alone_is_no_list() -> None:
    with pytest.raises(OptionError, match="must be a list"):
        parse_where("topic", MESSAGES)


def test_points_and_ranges() -> None:
    def parsed(*where: Any) -> Any:
        return parse_where(where, MESSAGES)

    assert points_of(parsed(("topic", "in", ["a", "b"]), ("topic", "=", "a")), "topic") == frozenset({"a"})
    assert points_of(parsed(("topic", "=", "a"), ("topic", "=", "b")), "topic") == frozenset()
    assert points_of(parsed(("topic", "!=", "a"), ("keys", "is null")), "topic") is None
    # rows without the column are rows too: a plan must not take this for an empty answer
    assert points_of(parsed(("keys", "is null")), "keys") is None
    found = range_of(parsed(("queueOffset", ">", 3), ("queueOffset", "<", 9), ("queueOffset", "in", [5, 8, 20])), "queueOffset")
    assert (found.low, found.high) == (5, 8)
    assert range_of(parsed(("queueOffset", "in", [])), "queueOffset").is_empty
    assert range_of(parsed(("queueOffset", "!=", 3)), "queueOffset").is_all


def test_times_in_ms() -> None:
    odd = datetime(2025, 1, 3, 10, 44, 52, 139_001, timezone.utc)
    assert (to_ms(odd), to_ms(odd, ceiling=True)) == (1_735_901_092_139, 1_735_901_092_140)
    assert to_ms(-5) == -5
