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
from store_core.estimate import estimate

__all__ = ["StorePartition", "StoreReader"]


@dataclass
class StorePartition(InputPartition):
    """A task of the plan of one store: `store` is the place of its spec in the reader.

    estimate: in a scan's first partition, what the bridge looks for in its pickle (`rmqspark.StoreScan`).
    """

    store: int
    task: Task
    estimate: str = ""


class StoreReader(DataSourceReader):
    """Reads the tasks of several plans, one per store, that have the same schema.

    columns: those that are given, if not all that were planned; may be none. limit: rows of a partition that are enough.
    tell_size: whether the first partition tells how much all of them hold.
    """

    def __init__(
        self, plans: list[Plan], *, columns: list[str] | None = None, limit: int | None = None, tell_size: bool = False
    ) -> None:
        self.specs: list[Spec] = [plan.spec for plan in plans]
        self.columns = columns
        self.limit = limit
        self._partitions = [StorePartition(store, task) for store, plan in enumerate(plans) for task in plan.tasks]
        if tell_size:
            self._tell_size(plans)

    def _tell_size(self, plans: list[Plan]) -> None:
        rows = bytes_ = 0
        for plan in plans:
            found = estimate(plan)
            rows, bytes_ = rows + found.rows, bytes_ + found.bytes
        if not self._partitions:
            self._partitions = [StorePartition(0, Task(()))]
        self._partitions[0].estimate = f"rmqspark.estimate rows={rows} bytes={bytes_};"

    def __getstate__(self) -> dict[str, object]:
        # a worker is given the one partition that it reads
        return {"specs": self.specs, "columns": self.columns, "limit": self.limit}

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
        left = self.limit
        try:
            for batch in read_task(spec, partition.task):
                if self.columns is not None:
                    batch = batch.select(self.columns)
                if left is not None:
                    batch = batch.slice(0, left)
                    left -= len(batch)
                yield batch
                if left == 0:
                    return
        except StoreError as e:
            raise e.with_traceback(None) from None
