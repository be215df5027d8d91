"""How a row that can't be written is refused: one sentence with column, topic, row, value, limit, and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from store_core.errors import OptionError

__all__ = ["Rows", "true"]

_SHOWN: Final = 120

Bool = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a batch, as errors name them. `topic`: one per row; `first`: how many rows of the task came before."""

    topic: Any
    first: int = 0

    def refuse(self, row: int, column: str, value: object, expected: str, todo: str | None = None) -> OptionError:
        """The error about one row's value."""
        topic = self.topic[row].as_py()
        shown = repr(value)
        if len(shown) > _SHOWN:
            shown = f"{shown[:_SHOWN]}... ({len(shown)} characters)"
        where = f"row {self.first + row}, topic {topic!r}"
        return OptionError(f"column {column!r} is {shown} in {where}; expected {expected}" + (f". {todo}" if todo else ""))

    def check(self, good: Bool, column: str, values: Any, expected: str, todo: str | None = None) -> None:
        """OptionError about the first row that is not `good` (bool[n]); `values` is an array, of Arrow or numpy."""
        if not good.all():
            row = int(np.argmin(good))
            value = values[row]
            raise self.refuse(row, column, value.as_py() if isinstance(value, pa.Scalar) else value.item(), expected, todo)


def true(mask: Any) -> Bool:
    """An Arrow mask as bool[n]; null counts as false."""
    filled = pc.fill_null(mask, False) if mask.null_count else mask
    return np.asarray(filled.to_numpy(zero_copy_only=False), dtype=bool)
