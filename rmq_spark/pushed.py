"""What the bridge says in its own option: a JSON object, the counterpart of `rmqspark.Format.told`.

    {"format": "rocketmq-store", "columns": ["topic"], "relation": ["topic", "body"],
     "where": [["topic", "=", "Orders"]], "limit": 5}

    {"format": "rocketmq-store", "options": ["path"]}

The first is a scan; the second a write, with the names of the options that are its own and not a catalog table's. Times are
microseconds since 1970.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any, Final

from store_core.errors import OptionError

__all__ = ["OPTION", "Pushed", "take_pushed"]

OPTION: Final = "rmqspark.pushed"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
_TIME: Final = "storeTimestamp"


@dataclass(frozen=True)
class Pushed:
    """What a scan wants.

    format: the name that the user gave. columns: those that Spark needs, in the relation's order; may be none. relation: the
    columns that the DataFrame or table has. where: conditions as `Store.scan` takes them; Spark checks all of them again.
    limit: rows that one partition need give at most. These four are None or () where it is no scan. options: of a write, the
    names of its own.
    """

    format: str
    columns: tuple[str, ...] | None = None
    relation: tuple[str, ...] | None = None
    where: tuple[tuple[str, str, Any], ...] = ()
    limit: int | None = None
    options: tuple[str, ...] = ()


def take_pushed(options: Mapping[str, str]) -> tuple[Pushed, dict[str, str]]:
    """What the bridge says, and the other options.

    Errors: OptionError where the bridge said nothing: its Python side was used by name.
    """
    others = {name: value for name, value in options.items() if name.lower() != OPTION}
    text = next((value for name, value in options.items() if name.lower() == OPTION), None)
    if text is None:
        raise OptionError("this format is the bridge's own; read with rocketmq-store and its like")
    said = json.loads(text)
    pushed = Pushed(
        said["format"],
        None if "columns" not in said else tuple(said["columns"]),
        None if "relation" not in said else tuple(said["relation"]),
        tuple(condition for each in said.get("where", ()) if (condition := _condition(*each)) is not None),
        said.get("limit"),
        tuple(said.get("options", ())),
    )
    return pushed, others


def _condition(column: str, op: str, value: Any) -> tuple[str, str, Any] | None:
    """None for a time that no datetime holds: such a condition is left to Spark."""
    if column != _TIME:
        return column, op, value
    try:
        if op == "in":
            return column, op, [_time(each) for each in value]
        return column, op, _time(value)
    except OverflowError:
        return None


def _time(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)
