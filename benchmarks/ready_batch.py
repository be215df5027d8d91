"""A Spark source that decodes nothing: one ready batch again and again. No Python source can be faster.

Options: `file`, an Arrow IPC file with the batch; `batches`, how often each partition yields it; `partitions`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

__all__ = ["ReadyBatchSource", "read_batch"]


def read_batch(file: str) -> pa.RecordBatch:
    with pa.OSFile(file, "rb") as opened, pa.ipc.open_file(opened) as batches:
        return batches.get_batch(0)


class ReadyBatchSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "ready-batch"

    def schema(self) -> StructType:
        return from_arrow_schema(read_batch(self.options["file"]).schema)

    def reader(self, schema: StructType) -> ReadyBatchReader:
        return ReadyBatchReader(self.options["file"], int(self.options["batches"]), int(self.options["partitions"]))


class ReadyBatchReader(DataSourceReader):
    def __init__(self, file: str, batches: int, partitions: int) -> None:
        self.file = file
        self.batches = batches
        self.count = partitions

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(i) for i in range(self.count)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        batch = read_batch(self.file)
        for _ in range(self.batches):
            yield batch
