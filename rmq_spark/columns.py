"""A table's columns for Spark, and which of them a `.schema(...)` chose.

Spark hands a chosen schema over unchecked, and wants batches of exactly that schema, down to types and nullability
(`plan_data_source_read.records_to_arrow_batches`): whatever does not fit is refused here, by name.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from store_core import schema_of
from store_core.errors import OptionError, nearest
from store_core.options import ReadOptions
from store_core.schema import EXTRA_COLUMNS

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["choose", "spark_schema"]


def spark_schema(schema: pa.Schema) -> StructType:
    """The Spark schema whose Arrow form is exactly `schema`."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema)


def choose(requested: StructType, options: ReadOptions) -> list[str]:
    """The columns that `requested` names, in its order; extra columns may be among them, whatever `options` says of those.

    Errors: OptionError for a name or type that the table does not have, or a column said to be NOT NULL.
    """
    everything = options
    if options.table == "messages":
        everything = replace(options, extra_columns=tuple(EXTRA_COLUMNS.names))
    known = spark_schema(schema_of(everything))
    names: list[str] = []
    for field in requested.fields:
        if field.name not in known.names:
            raise OptionError(_no_column(field.name, known.names, options))
        if field.name in names:
            raise OptionError(f".schema(...) names the column {field.name!r} twice")
        names.append(field.name)
        has = known[field.name].dataType
        if field.dataType != has:
            given = field.dataType.simpleString()
            wanted = has.simpleString()
            also = " with nullable parts" if given == wanted else ""
            raise OptionError(
                f"column {field.name!r} is {wanted}{also}, and .schema(...) says {given}. Write `{field.name} {wanted}`"
            )
        if not field.nullable:
            raise OptionError(f"column {field.name!r} may hold nulls, and .schema(...) says NOT NULL. Leave that out")
    if not names:
        raise OptionError(f".schema(...) names no column. The table's columns: {', '.join(known.names)}")
    return names


def _no_column(name: str, known: list[str], options: ReadOptions) -> str:
    if name == options.column_name_of_corrupt_record:
        return (
            f"column {name!r} is there in mode PERMISSIVE only, and the mode is {options.mode}. Set it, or leave the column out"
        )
    return f"no column {name!r} in the table {options.table}.{nearest(name, known)} Its columns: {', '.join(known)}"
