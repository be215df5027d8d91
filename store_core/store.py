"""An opened store: plans, scans, lookups. What is read once per open (queue coverage, index headers, walked holes) is kept
here.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, TypeVar

import pyarrow as pa

from store_core.coverage import Coverage, cover
from store_core.decode import Context
from store_core.errors import CorruptStoreError, OptionError
from store_core.execute import read_task
from store_core.files import LocalFiles, local_name, local_path
from store_core.hashing import key_hash
from store_core.indexfile import IndexDamage, OpenIndex, Unusable, list_index_files, open_index
from store_core.info import describe
from store_core.journal import at_one_moment, look, published
from store_core.listing import list_store
from store_core.lookup import HoleKeys, IndexView, ascends, index_keys, view_index
from store_core.onekey import as_table, read_record
from store_core.options import OPTIONS, ReadOptions, parse_options
from store_core.plan import Plan, Spec, Task, joined
from store_core.planner import plan_messages
from store_core.predicates import Range, Where, parse_where, to_ms
from store_core.queues import Queue, has_queue_files, list_queues, rocksdb_queue
from store_core.reading import Gap, last_segment_with_records
from store_core.records import first_record, read_head, record_at
from store_core.rows import report_gap
from store_core.schema import CORRUPT_TYPE, EXTRA_COLUMNS, INDEX, MESSAGES, QUEUE, VERIFY, select
from store_core.selection import Selection
from store_core.tableplans import plan_index, plan_queues
from store_core.verify import plan_verify

__all__ = ["Store", "open_store", "schema_of"]

_FEW: Final = 100
_T = TypeVar("_T")


def schema_of(options: ReadOptions) -> pa.Schema:
    """The columns of a table under the options: its own, the extra ones, and in mode PERMISSIVE the corrupt record's."""
    table = {"messages": MESSAGES, "consumequeue": QUEUE, "index": INDEX, "verify": VERIFY}[options.table]
    fields = [*table, *(EXTRA_COLUMNS.field(name) for name in options.extra_columns)]
    if options.corrupt_column is not None:
        fields.append(pa.field(options.corrupt_column, CORRUPT_TYPE))
    return pa.schema(fields)


@functools.lru_cache(maxsize=256)
def _selected(columns: tuple[str, ...] | None) -> pa.Schema:
    return select(MESSAGES, columns)


def open_store(path: str | os.PathLike[str], **options: Any) -> Store:
    """Opens the store at `path`: a broker's storePathRootDir, or its commitlog folder alone (then no queue or index is used).

    Lists the commitlog's files and reads no message. `options`: those of `store_core.options.OPTIONS`; they are the defaults of
    all calls on the store.
    Errors: StoreNotFoundError, OptionError, UnsupportedStoreError, CorruptStoreError (two files for the same offsets).
    """
    return Store(os.fspath(path), options)


class Store:
    """One opened store. Not for several threads at once. What it says of its files is what they were when it was opened; what
    was appended since is seen from the next plan, lookup, check or `info` on.
    """

    def __init__(self, path: str, options: Mapping[str, Any]) -> None:
        self._name = local_name(path)
        self._given = dict(options)
        self.options = parse_options(self._given)
        self._open()

    def _open(self) -> None:
        self._look()
        at_one_moment(self._list, lambda: self.moment, self._look)

    def _open_again(self) -> None:
        self.moment.check_place()
        self._open()

    def _look(self) -> None:
        self.path = local_path(self._name)
        self.moment = look(self.path)

    def _list(self) -> None:
        for name in [name for name, value in vars(Store).items() if isinstance(value, functools.cached_property)]:
            self.__dict__.pop(name, None)
        self.files = published(LocalFiles(), self.moment.unpublished)
        listing = list_store(self.files, self.path, self.options)
        self.root = listing.root
        self.log = listing.log
        self.broker_name = listing.broker_name
        self.overlaps = listing.overlaps
        self._index: dict[tuple[Any, ...], IndexView] = {}
        self._holes: dict[tuple[tuple[int, int], ...], HoleKeys | None] = {}

    def at_one_moment(self, make: Callable[[], _T]) -> _T:
        """What `make` gives of the store where no append comes in between; with the files listed anew if one has come.

        Errors: StoreChangedError where another store has taken this one's place, or appends come in again and again.
        """
        return at_one_moment(make, lambda: self.moment, self._open_again)

    # --- what is read once per open

    @functools.cached_property
    def records_until(self) -> int:
        """The base offset of the last segment that holds a record; -1 for none."""
        return last_segment_with_records(self.files, self.log)

    @functools.cached_property
    def first_times(self) -> list[int | None]:
        """The storeTimestamp (ms) of each segment's first record; None where no record stands at its start."""
        heads = [read_head(self.files, self.log, s.base_offset + s.lead) for s in self.log]
        return [None if head is None else head.store_timestamp for head in heads]

    @functools.cached_property
    def times_ascend(self) -> bool:
        """Whether times can narrow a read: those of the records at the ends of log files and index files ascend, but for the
        clock's tolerance.
        """
        times = dict(zip((s.base_offset for s in self.log), self.first_times, strict=True))
        for index in self.open_indexes(self.options)[0] if self.root is not None else ():
            for offset in (index.begin_phy_offset, index.end_phy_offset):
                head = read_head(self.files, self.log, offset)
                times[offset] = None if head is None else head.store_timestamp
        return ascends(time for _, time in sorted(times.items()) if time is not None)

    @functools.cached_property
    def has_queues(self) -> bool:
        """Whether queues can be read from files."""
        return self.root is not None and has_queue_files(self.files, self.root)

    @functools.cached_property
    def why_no_queues(self) -> str:
        """One sentence about why `has_queues` is false."""
        if self.root is None:
            return f"{self.path} was opened as a commitlog alone, without its queues and index. Open the store's root for them"
        if (database := rocksdb_queue(self.files, self.root)) is not None:
            return f"the queues of {self.path} are a RocksDB ({database}), which is not read: read the commitlog instead"
        return f"{self.path} has no consumequeue files"

    @functools.cached_property
    def queues(self) -> tuple[Queue, ...]:
        return list_queues(self.files, self.root) if self.root is not None else ()

    @functools.cached_property
    def topics(self) -> tuple[str, ...]:
        """The topics that have queues, sorted."""
        return tuple(sorted({queue.topic for queue in self.queues}))

    @functools.cached_property
    def knows_topics(self) -> bool:
        """Whether a topic without queues is surely absent: the queues account for the whole log."""
        if not self.has_queues or any(start < self.coverage.end for start, _ in self.coverage.gaps):
            return False
        return first_record(self.files, self.log, self.coverage.end, self.log.max_offset) is None

    @functools.cached_property
    def coverage(self) -> Coverage:
        """What part of the log the queues account for. Reads every queue entry once."""

        def stands(start: int, end: int) -> bool:
            segment = self.log.find(start)
            offset = start + (0 if segment is None else segment.lead)
            head = record_at(self.files, self.log, offset)
            return head is not None and offset + head.size == end

        return cover(self.files, self.queues, self.log, self.coverage_notes, stands)

    @functools.cached_property
    def coverage_notes(self) -> list[str]:
        return []

    def data_size(self, start: int, stop: int) -> int:
        """Bytes of the log range that are not holes of sparse files."""
        return sum(
            self.files.data_size(s.path, max(start - s.base_offset, 0), min(stop - s.base_offset, s.length))
            for s in self.log
            if s.base_offset < stop and start < s.end_offset
        )

    def index_view(self, options: ReadOptions) -> IndexView:
        """The index files as they can be used under these options; checked once."""
        key = (options.index, options.max_hash_slot_num, options.max_index_num)
        if key not in self._index:
            self._index[key] = view_index(self.files, self.root, self.log, options)
        return self._index[key]

    def open_indexes(self, options: ReadOptions) -> tuple[list[OpenIndex], list[Unusable]]:
        """The index files with entries, oldest first, and those whose sizes can't be told or whose header is damaged."""
        found = [
            open_index(
                self.files,
                listed,
                max_hash_slot_num=options.max_hash_slot_num,
                max_index_num=options.max_index_num,
                max_phys=self.log.max_offset,
            )
            for listed in list_index_files(self.files, self.root or self.path)
        ]
        return [f for f in found if isinstance(f, OpenIndex) and f.entries], [f for f in found if isinstance(f, Unusable)]

    def distrust_index(self, damage: IndexDamage) -> None:
        """Leaves an index file out from now on."""
        note = f"index file {damage.path} is damaged, its part of the log is walked: {damage}"
        self._index = {key: view.without(damage.path, self.log, note) for key, view in self._index.items()}

    def hole_keys(self, spec: Spec) -> HoleKeys | None:
        """The keys of what the index does not cover; walked once. None if they are too many to keep."""
        holes = self.index_view(spec.options).holes
        if holes not in self._holes:
            gaps: list[Gap] = []
            self._holes[holes] = HoleKeys.walk(self.files, self.log, holes, self.records_until, gaps)
            for gap in gaps:
                for _ in report_gap(spec, self.files, gap):
                    pass
        return self._holes[holes]

    # --- reading

    def plan(
        self, where: Where | None = None, columns: Sequence[str] | None = None, table: str | None = None, **options: Any
    ) -> Plan:
        """How a read would be done; see `scan` for the arguments. Nothing is decoded yet."""
        return self.at_one_moment(lambda: self._plan(where, columns, table, options))

    def _plan(self, where: Where | None, columns: Sequence[str] | None, table: str | None, options: Mapping[str, Any]) -> Plan:
        spec = self._spec(where, columns, table, options)
        return _PLANNERS[spec.table](self, spec)

    def _rows(self, plan: Plan) -> pa.Table:
        batches = [batch for task in plan.tasks for batch in read_task(plan.spec, task, self.files)]
        return pa.Table.from_batches(batches, plan.schema)

    def scan(
        self, where: Where | None = None, columns: Sequence[str] | None = None, table: str | None = None, **options: Any
    ) -> pa.RecordBatchReader:
        """The rows of a table that meet all conditions, as a reader of batches of some thousand rows.

        `where`: (column, op, value) conditions, ANDed; ops =, !=, <, <=, >, >=, in, is null, is not null; times as aware
        datetimes or ms. `columns`: the result's columns, in that order; None for all. `table`: messages, consumequeue or index.
        `options`: more options for this read, over those of `open_store`.
        Errors: OptionError; while reading CorruptStoreError, in mode FAILFAST, or StoreChangedError for an append in between.
        """
        plan = self.plan(where, columns, table, **options)
        files = self.files
        batches = (batch for piece in joined(plan.tasks) for batch in read_task(plan.spec, Task((piece,)), files))
        return pa.RecordBatchReader.from_batches(plan.schema, batches)

    def explain(
        self, where: Where | None = None, columns: Sequence[str] | None = None, table: str | None = None, **options: Any
    ) -> str:
        """What `scan` would read, what it would skip, and why."""
        return self.plan(where, columns, table, **options).explain()

    def info(self, exact: bool = False) -> dict[str, Any]:
        """What is in the store: layout, versions seen, first and last time, topics and queues with their offsets, bytes, clean
        or not.

        Counts come from queue entries and file sizes (`countedFrom` says so); `exact` walks the whole log instead.
        """
        return self.at_one_moment(lambda: describe(self, exact))

    def verify(self, **options: Any) -> pa.Table:
        """The store checked against itself: a row per finding, with what a broker would make of it; see `findings.KINDS`.

        Options of `open_store` that only say what is read, such as `keys` or `mode`, are of no account here. A store that
        can't be opened because two files hold the same offsets is checked with open_store(path, table="verify").
        """
        taken = {option.name.lower() for option in OPTIONS if "verify" in option.tables}
        given = {name: value for name, value in self._given.items() if name.lower() in taken}
        read = parse_options({**given, **options, "table": "verify"})
        return self.at_one_moment(lambda: self._rows(plan_verify(self, self._spec_of(read, None, None))))

    def lookup(
        self,
        topic: str,
        key: str,
        start: int | datetime | None = None,
        end: int | datetime | None = None,
        columns: Sequence[str] | None = None,
        **options: Any,
    ) -> pa.Table:
        """All messages of `topic` that have `key` among the space-separated tokens of their KEYS, by commitLogOffset.

        `start`, `end`: storeTimestamp, ms or aware datetimes, both inclusive. No cap, no default window.
        """
        if not isinstance(topic, str) or not isinstance(key, str) or not topic or not key:
            raise OptionError(f"lookup wants a topic and a key as text, not {topic!r} and {key!r}")
        low = None if start is None else to_ms(start, ceiling=True)
        high = None if end is None else to_ms(end)

        def find() -> pa.Table:
            if not options and (found := self._lookup_one(topic, key, low, high, columns)) is not None:
                return found
            where: list[tuple[str, str, Any]] = [("topic", "=", topic)]
            if low is not None:
                where.append(("storeTimestamp", ">=", low))
            if high is not None:
                where.append(("storeTimestamp", "<=", high))
            table = self._rows(self._plan(where, columns, "messages", {**options, "keys": [key]}))
            # index and walks come one after the other
            return table.sort_by("commitLogOffset") if "commitLogOffset" in table.column_names else table

        return self.at_one_moment(find)

    def _lookup_one(
        self, topic: str, key: str, low: int | None, high: int | None, columns: Sequence[str] | None
    ) -> pa.Table | None:
        """`lookup` by the index alone; None where that can't answer and a plan has to."""
        options = self.options
        if not self._is_plain or " " in key:
            return None
        view = self.index_view(options)
        if not view.files or (kept := self.hole_keys(self._lookup_spec)) is None:
            return None
        try:
            wanted = key_hash(topic, key)
            span = Range() if (low is None and high is None) or not self.times_ascend else Range(low, high)
            led, _ = index_keys(self.files, view, (wanted,), span)
        except IndexDamage as e:
            self.distrust_index(e)
            return None
        found = {offset for each in led for offset in each.chain.commit_log_offset.tolist()}
        offsets = sorted(found | kept.find((wanted,)))
        if len(offsets) > _FEW:
            return None  # many are faster as arrays
        name = topic.encode("utf-8", "surrogatepass")
        hits = []
        for offset in offsets:
            if offset < self.log.min_offset:
                continue
            record = read_record(self.files, self.log, offset)
            if record is None:
                return None  # the index leads astray: the plan walks
            if record.topic != name or not record.has_key(key):
                if wanted not in record.key_hashes():
                    return None  # not even the hash is right: no collision, but damage
            else:
                time = record.store_timestamp
                if (low is None or time >= low) and (high is None or time <= high):
                    hits.append(record)
        schema = _selected(None if columns is None else tuple(columns))
        try:
            return as_table(hits, schema, self._context)
        except CorruptStoreError:
            return None  # the plan says which record, as `mode` wants it

    @functools.cached_property
    def _is_plain(self) -> bool:
        """Whether the store's options say nothing of which messages or columns, so that `_lookup_one` can answer."""
        options = self.options
        return (
            options.selection == Selection()
            and options.index == "trust"
            and options.table == "messages"
            and options.corrupt_column is None
            and not (options.extra_columns or options.expand_batches or options.verify_crc)
        )

    @functools.cached_property
    def _lookup_spec(self) -> Spec:
        return self._spec(None, None, None, {})

    @functools.cached_property
    def _context(self) -> Context:
        return self._lookup_spec.context(None)

    def _spec(self, where: Where | None, columns: Sequence[str] | None, table: str | None, options: Mapping[str, Any]) -> Spec:
        read = self.options
        if options or table is not None:
            given = {**self._given, **options} | ({"table": table} if table is not None else {})
            read = parse_options(given)
        return self._spec_of(read, where, columns)

    def _spec_of(self, read: ReadOptions, where: Where | None, columns: Sequence[str] | None) -> Spec:
        schema = schema_of(read)
        return Spec(
            root=self.path,
            table=read.table,
            log=self.log,
            options=read,
            schema=select(schema, columns),
            where=parse_where(where, schema),
            selection=read.selection,
            broker_name=read.broker_name or self.broker_name,
            moment=self.moment,
        )


_PLANNERS: Final[dict[str, Callable[[Store, Spec], Plan]]] = {
    "messages": plan_messages,
    "consumequeue": plan_queues,
    "index": plan_index,
    "verify": plan_verify,
}
