"""The reader: plans once on the driver, then reads a task at a time on the workers (`pyspark.sql.datasource.DataSourceReader`).

Spark pickles the reader once for a whole scan, and each partition by itself: so what all tasks share (`Spec`, which knows every
file of the log) is in the reader, and a partition is one small task. Filters are all left to Spark: where a Python source takes
them, Spark mixes up the scans of one relation (SPARK-58551).
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from store_core import Plan, Spec, Task, read_task
from store_core.errors import StoreError, StoreNotFoundError

__all__ = ["StorePartition", "StoreReader"]


@dataclass
class StorePartition(InputPartition):
    """A task of the plan of one store: `store` is the place of its spec in the reader."""

    store: int
    task: Task


class StoreReader(DataSourceReader):
    """Reads the tasks of several plans, one per store, that have the same schema."""

    def __init__(self, plans: list[Plan]) -> None:
        self.specs: list[Spec] = [plan.spec for plan in plans]
        self._partitions = [StorePartition(store, task) for store, plan in enumerate(plans) for task in plan.tasks]

    def __getstate__(self) -> dict[str, object]:
        return {"specs": self.specs}  # a worker is given the one partition that it reads

    def partitions(self) -> list[StorePartition]:
        return self._partitions

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, StorePartition):  # Spark's own, where there are none
            return
        spec = self.specs[partition.store]
        if not os.path.exists(spec.root):
            raise StoreNotFoundError(
                f"{spec.root}: the worker on {socket.gethostname()} does not see this path, which the driver read. "
                "Put the store on storage that all workers mount under the same path"
            )
        try:
            yield from read_task(spec, partition.task)
        except StoreError as e:
            raise e.with_traceback(None) from None
