"""The writer: tasks stage their rows, the commit on the driver makes them a store (`pyspark.sql.datasource.DataSourceWriter`).

Spark makes the writer in one process, pickles it, and calls `write` in the tasks' processes and `commit` in another one. A task
may be run more than once (retries, speculation): each attempt stages files of its own, and only those of the attempts whose
messages come to the commit are read.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from rmq_spark.errors import one_sentence
from store_core.staging import Staged
from store_core.writing import WriteJob, abandon, commit, stage_task

__all__ = ["StagedMessage", "StoreWriter"]


@dataclass
class StagedMessage(WriterCommitMessage):
    """What a task tells the commit."""

    staged: Staged


class StoreWriter(DataSourceArrowWriter):
    """One write of a DataFrame."""

    def __init__(self, job: WriteJob) -> None:
        self.job = job

    @one_sentence
    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedMessage:
        task = TaskContext.get()
        assert task is not None
        return StagedMessage(stage_task(self.job, task.partitionId(), str(task.taskAttemptId()), iterator))

    @one_sentence
    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        _show_progress()
        try:
            commit(self.job, [message.staged for message in messages if isinstance(message, StagedMessage)])
        except BaseException:
            abandon(self.job)
            raise

    @one_sentence
    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        abandon(self.job)


def _show_progress() -> None:
    """A commit that takes long says on the driver's stderr how far it is."""
    log = logging.getLogger("store_core.commit")
    if not log.handlers:
        shown = logging.StreamHandler(sys.stderr)
        shown.setFormatter(logging.Formatter("%(message)s"))
        log.addHandler(shown)
        log.setLevel(logging.INFO)
