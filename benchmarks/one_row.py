"""A Spark source that does nothing: one row. What a query through any Python source takes at least, its processes included."""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

__all__ = ["COLUMNS", "OneRowSource"]

COLUMNS = "topic string, keys string, body binary"


class OneRowSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "one-row"

    def schema(self) -> str:
        return COLUMNS

    def reader(self, schema: StructType) -> OneRowReader:
        return OneRowReader()


class OneRowReader(DataSourceReader):
    def partitions(self) -> list[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[tuple[str, str, bytes]]:
        yield "topic", "key", b"body"
