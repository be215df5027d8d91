"""The Arrow schemas of the tables: one name for a column from the record's header to Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from store_core.errors import OptionError, nearest

__all__ = [
    "CORRUPT_COLUMN",
    "CORRUPT_TYPE",
    "EXTRA_COLUMNS",
    "INDEX",
    "MESSAGES",
    "QUEUE",
    "TIMESTAMP",
    "VERIFY",
    "select",
]

TIMESTAMP: Final = pa.timestamp("us", "UTC")
_PROPERTIES: Final = pa.map_(pa.string(), pa.string())

MESSAGES: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("queueId", pa.int32()),
        ("queueOffset", pa.int64()),
        ("commitLogOffset", pa.int64()),
        ("storeSize", pa.int32()),
        ("tags", pa.string()),
        ("keys", pa.string()),
        ("uniqKey", pa.string()),
        ("body", pa.binary()),
        ("bodyCRC", pa.int32()),
        ("properties", _PROPERTIES),
        ("flag", pa.int32()),
        ("sysFlag", pa.int32()),
        ("bornTimestamp", TIMESTAMP),
        ("bornHost", pa.string()),
        ("storeTimestamp", TIMESTAMP),
        ("storeHost", pa.string()),
        ("reconsumeTimes", pa.int32()),
        ("preparedTransactionOffset", pa.int64()),
        ("offsetMsgId", pa.string()),
        ("brokerName", pa.string()),
    ]
)

EXTRA_COLUMNS: Final = pa.schema(
    [
        ("propertiesString", pa.string()),
        ("compression", pa.string()),
        ("transactionType", pa.string()),
        ("sourceFile", pa.string()),
        ("storePath", pa.string()),
        ("rawRecord", pa.binary()),
    ]
)
"""Columns of the messages table that stand in it only when asked for."""

CORRUPT_COLUMN: Final = "_corrupt_record"
CORRUPT_TYPE: Final = pa.struct(
    [("file", pa.string()), ("start", pa.int64()), ("end", pa.int64()), ("reason", pa.string()), ("raw", pa.binary())]
)
"""A range of a file that is no record: bytes [start, end) of `file`; `raw` holds them."""

QUEUE: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("queueId", pa.int32()),
        ("queueOffset", pa.int64()),
        ("commitLogOffset", pa.int64()),
        ("size", pa.int32()),
        ("tagsCode", pa.int64()),
        ("sourceFile", pa.string()),
        ("batchSize", pa.int32()),
    ]
)
"""batchSize: how many queue offsets the entry stands for: 1, or more in a batchconsumequeue."""

INDEX: Final = pa.schema(
    [
        ("indexType", pa.string()),
        ("sourceFile", pa.string()),
        ("indexNo", pa.int32()),
        ("slot", pa.int32()),
        ("keyHash", pa.int32()),
        ("commitLogOffset", pa.int64()),
        ("timeDiff", pa.int32()),
        ("prevIndexNo", pa.int32()),
        ("topic", pa.string()),
        ("key", pa.string()),
        *[f for f in MESSAGES if f.name not in ("topic", "commitLogOffset")],
    ]
)

VERIFY: Final = pa.schema(
    [
        ("kind", pa.string()),
        ("severity", pa.string()),
        ("file", pa.string()),
        ("start", pa.int64()),
        ("end", pa.int64()),
        ("expected", pa.string()),
        ("found", pa.string()),
        ("consequence", pa.string()),
    ]
)
"""A row per finding: bytes [start, end) of `file` (null where it is no matter of bytes), and what a broker makes of it."""


def select(schema: pa.Schema, columns: Sequence[str] | None) -> pa.Schema:
    """The fields of `schema` named in `columns`, in that order; all of them for None.

    Errors: OptionError for a name that is not there, with near names.
    """
    if columns is None:
        return schema
    if isinstance(columns, str):
        raise OptionError(f"columns must be a list of names, not the string {columns!r}. Write [{columns!r}]")
    for name in columns:
        if name not in schema.names:
            raise OptionError(
                f"no column {name!r} in this table.{nearest(name, schema.names)} Its columns: {', '.join(schema.names)}"
            )
    if len(set(columns)) != len(columns):
        raise OptionError(f"a column stands twice in {list(columns)}")
    return pa.schema([schema.field(name) for name in columns])
