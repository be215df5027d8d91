"""A Spark sink that does nothing: what it takes to hand rows to a Python writer. No Python writer can be faster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

__all__ = ["DropRowsSource"]


class DropRowsSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "drop-rows"

    def writer(self, schema: StructType, overwrite: bool) -> DropRowsWriter:
        return DropRowsWriter()


class DropRowsWriter(DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        pass
