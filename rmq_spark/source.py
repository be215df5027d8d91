"""The data sources: a format's name, options, schema, reader, writer (`pyspark.sql.datasource.DataSource`).

Spark makes one in a Python process of its own, pickles it, and asks it for its schema there and for a reader in another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from rmq_spark.columns import choose, spark_schema
from rmq_spark.errors import one_sentence
from rmq_spark.pushed import Pushed, take_pushed
from rmq_spark.reader import StoreReader
from rmq_spark.stores import expand, plan_stores
from rmq_spark.writer import StoreWriter
from store_core import open_store, schema_of
from store_core.errors import OptionError
from store_core.options import OPTIONS, ReadOptions, parse_options
from store_core.schema import EXTRA_COLUMNS
from store_core.writeoptions import WRITE_OPTIONS, parse_write_options
from store_core.writing import start

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["SOURCES", "BridgeSource", "CommitLogSource", "ConsumeQueueSource", "IndexFileSource", "NoStream", "StoreSource"]


class NoStream(DataSourceStreamReader):
    """Says why there is none when it is asked for its start: an error before that is lost in Spark's own."""

    @one_sentence
    def initialOffset(self) -> NoReturn:
        raise OptionError(
            "a store can't be read as a stream. Read it again and again, each time from where the last read ended, with "
            "startingOffsets or startingTimestamp; or follow it with rmq-store tail -f"
        )

    def read(self, partition: InputPartition) -> NoReturn:
        raise NotImplementedError


class StoreSource(DataSource):
    """A broker's store: its messages, or with `option("table", ...)` its queue or index entries."""

    format = "rocketmq-store"
    table: str | None = None

    @one_sentence
    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        self._all = _read_options(options, self.format)

    @classmethod
    def name(cls) -> str:
        return cls.format

    @property
    def _own_names(self) -> set[str]:
        """The options that were given here, and not with a catalog table."""
        return set(self._all)

    @cached_property
    def _table_options(self) -> dict[str, Any]:
        """The options of a read. A catalog table may have those of writes besides."""
        only_writes = {option.name.lower() for option in WRITE_OPTIONS} - {option.name.lower() for option in OPTIONS}
        return self._own_table({name: value for name, value in self._all.items() if name not in only_writes})

    @cached_property
    def _read(self) -> ReadOptions:
        return parse_options(self._table_options)

    @cached_property
    def _given(self) -> dict[str, Any]:
        return {name: value for name, value in self._table_options.items() if name not in ("path", "paths")}

    @one_sentence
    def schema(self) -> StructType:
        for path in expand(self._read.path):
            open_store(path, **self._given)  # a folder that is no store is an error of `load`, not of the first query
        return spark_schema(schema_of(self._read))

    @one_sentence
    def reader(self, schema: StructType) -> StoreReader:
        return StoreReader(plan_stores(self._read.path, *self._asked(choose(schema, self._read))))

    @one_sentence
    def writer(self, schema: StructType, overwrite: bool) -> StoreWriter:
        options = dict(self._all)
        table = self.table or options.pop("table", "messages").strip().lower()
        if table != "messages":
            raise OptionError(
                f"the table {table} can't be written: it is made of the messages. Write with the format {StoreSource.format!r}"
            )
        only_reads = {option.name.lower() for option in OPTIONS} - {option.name.lower() for option in WRITE_OPTIONS}
        for option in OPTIONS:  # those of a catalog table are for its reads
            if option.name.lower() in self._own_names & only_reads - {"table"}:
                raise OptionError(f"option {option.name!r} is one of reads, and does nothing in a write. Leave it out")
        given = parse_write_options({name: value for name, value in options.items() if name not in only_reads})
        if given.path is None:
            raise OptionError(
                "option 'path' is missing: give the store's folder, as in .save(\"path/to/store\"). "
                "(Without the bridge, a catalog table has no options in INSERT INTO.)"
            )
        return StoreWriter(start(given.path, "overwrite" if overwrite else "append", given))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return NoStream()

    @one_sentence
    def streamWriter(self, schema: StructType, overwrite: bool) -> NoReturn:
        raise OptionError("a stream can't be written as a store. Write each of its batches: writeStream.foreachBatch")

    def _asked(self, columns: Sequence[str]) -> tuple[dict[str, Any], Sequence[str]]:
        """The options and the columns of a plan: the core has extra columns where an option names them."""
        if self._read.table != "messages":
            return self._given, columns
        return self._given | {"extracolumns": [name for name in columns if name in EXTRA_COLUMNS.names] or None}, columns

    def _own_table(self, options: dict[str, Any]) -> dict[str, Any]:
        """The options with the table that the format stands for."""
        if self.table is None:
            return options
        asked = options.get("table", self.table)
        if asked.strip().lower() != self.table:
            raise OptionError(
                f"format {self.format!r} is the table {self.table}, and option 'table' is {asked!r}. "
                f"Leave the option out, or use the format {StoreSource.format!r}"
            )
        return {**options, "table": self.table}


class CommitLogSource(StoreSource):
    """The messages, by the name of the file they are in."""

    format = "rocketmq-commitlog"
    table = "messages"


class ConsumeQueueSource(StoreSource):
    """A row per queue entry."""

    format = "rocketmq-consumequeue"
    table = "consumequeue"


class IndexFileSource(StoreSource):
    """A row per index entry."""

    format = "rocketmq-indexfile"
    table = "index"


class BridgeSource(StoreSource):
    """What the bridge reads through, for all formats: each scan comes with its filters and columns in an option.

    Nobody else uses it: Spark gives the bridge every scan by the formats' own names.
    """

    @one_sentence
    def __init__(self, options: Mapping[str, str]) -> None:
        self._pushed, others = take_pushed(options)
        source = next(source for source in SOURCES if source.format == self._pushed.format)
        self.format, self.table = source.format, source.table
        super().__init__(others)

    @classmethod
    def name(cls) -> str:
        return "rocketmq-bridge"

    @property
    def _own_names(self) -> set[str]:
        return set(self._pushed.options)

    @one_sentence
    def reader(self, schema: StructType) -> StoreReader:
        pushed: Pushed = self._pushed
        columns = list(pushed.columns or ())
        if columns:
            choose(schema, self._read)  # what a .schema(...) or CREATE TABLE says of them has to be true
        planned: Sequence[str] = columns
        if self._read.mode != "FAILFAST" and pushed.relation is not None:
            # which records are corrupt depends on what is decoded, and a row of one on its column: so all of it is
            planned = pushed.relation
        plans = plan_stores(self._read.path, *self._asked(planned), pushed.where)
        return StoreReader(plans, columns=None if planned is columns else columns, limit=pushed.limit, tell_size=True)


SOURCES = (StoreSource, CommitLogSource, ConsumeQueueSource, IndexFileSource)


def _read_options(options: Mapping[str, str], format_name: str) -> dict[str, Any]:
    """The options, with names in lower case; at CREATE TABLE without what Spark adds then (owner, provider, ...).

    What was an option stands there twice, as NAME and as option.NAME; a path always is one.
    """
    given = {key.lower(): value for key, value in options.items()}
    if given.get("provider", "").lower() != format_name or "owner" not in given:
        return given
    return {key: value for key, value in given.items() if key == "path" or f"option.{key}" in given}
