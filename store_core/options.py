"""Every read option, once: `OPTIONS` is the table that parsing, error messages and the README's table derive from.

Names and meanings are those of Spark's Kafka and file sources where these have the option (`KafkaSourceProvider`,
`FileSourceOptions`), and RocketMQ's own where it has one (`MessageStoreConfig`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

from store_core.errors import OptionError, nearest
from store_core.optiontypes import TYPES
from store_core.schema import CORRUPT_COLUMN, EXTRA_COLUMNS, INDEX, MESSAGES, QUEUE, VERIFY
from store_core.selection import Selection

__all__ = ["OPTIONS", "TABLES", "Option", "ReadOptions", "markdown_table", "parse_options"]

TABLES: Final = ("messages", "consumequeue", "index", "verify")
_ALL = TABLES
_ROWS = ("messages", "consumequeue", "index")
_MESSAGES = ("messages",)
_WITH_MESSAGES = ("messages", "index")
_INDEXES = ("messages", "index", "verify")
_QUEUES = ("messages", "consumequeue")


@dataclass(frozen=True)
class Option:
    """One option: `default` is what a user would write (None: not set), `type` a name in `optiontypes.TYPES`."""

    name: str
    type: str
    default: str | None
    tables: tuple[str, ...]
    doc: str
    choices: tuple[str, ...] = ()

    @property
    def attribute(self) -> str:
        """The name of the field of `ReadOptions` or `Selection`."""
        return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", self.name).lower()

    def parse(self, value: object) -> Any:
        """The value; OptionError says which option, what was given and what is expected."""
        try:
            if not self.choices:
                return TYPES[self.type](value)
            for choice in self.choices:
                if isinstance(value, str) and value.strip().lower() == choice.lower():
                    return choice
            raise ValueError(f"one of {', '.join(self.choices)}")
        except ValueError as e:
            shown = repr(value) if len(repr(value)) <= 200 else f"{repr(value)[:200]}..."
            raise OptionError(f"option {self.name!r} is {shown}; expected {e}") from None


OPTIONS: Final = (
    Option("path", "paths", None, _ALL, "The store's root folder or its `commitlog` alone; in Spark also a glob, or a list."),
    Option("table", "text", "messages", _ALL, "Which of the store's tables to read.", TABLES),
    Option("subscribe", "topics", None, _ROWS, "Only these topics: a comma list."),
    Option("subscribePattern", "pattern", None, _ROWS, "Only topics that this regular expression matches as a whole."),
    Option("assign", "assignment", None, _QUEUES, 'Only these queues: `{"Orders":[0,1]}`.'),
    Option(
        "startingOffsets",
        "startingOffsets",
        "earliest",
        _QUEUES,
        'First queueOffset of each queue: `earliest`, or `{"Orders":{"0":23,"1":-2}}`, where -2 is the earliest. '
        "Queues that are not named start at the earliest.",
    ),
    Option(
        "endingOffsets",
        "endingOffsets",
        "latest",
        _QUEUES,
        'queueOffset to stop before: `latest`, or `{"Orders":{"0":99,"1":-1}}`, where -1 is the latest. '
        "Queues that are not named end at the latest.",
    ),
    Option(
        "startingTimestamp",
        "time",
        None,
        _WITH_MESSAGES,
        "Only rows whose storeTimestamp is at or after this: milliseconds since 1970, or ISO-8601 with its zone.",
    ),
    Option("endingTimestamp", "time", None, _WITH_MESSAGES, "Only rows whose storeTimestamp is before this."),
    Option("keys", "keys", None, _MESSAGES, "Only messages that carry any of these keys: a comma list, or a JSON array."),
    Option("uniqKeys", "uniqKeys", None, _MESSAGES, "Only messages with one of these unique keys."),
    Option("offsetMsgIds", "offsetMsgIds", None, _MESSAGES, "Only the messages with these offset message ids."),
    Option("tags", "tags", None, _MESSAGES, "Only messages with exactly one of these tags."),
    Option(
        "index",
        "text",
        "trust",
        _MESSAGES,
        "How index files serve `keys` and `uniqKeys`: as they are (what is touched is checked), checked whole first, or not.",
        ("trust", "verify", "ignore"),
    ),
    Option(
        "mode",
        "text",
        "FAILFAST",
        _ROWS,
        "What a corrupt range does: fail, become one row with the corrupt record's column, or be left out.",
        ("FAILFAST", "PERMISSIVE", "DROPMALFORMED"),
    ),
    Option("columnNameOfCorruptRecord", "text", CORRUPT_COLUMN, _ROWS, "That column's name in mode PERMISSIVE."),
    Option(
        "verifyCrc",
        "boolean",
        "false",
        _MESSAGES,
        "Check the CRC of bodies and of records that have one; a mismatch follows `mode`.",
    ),
    Option(
        "bodyFormat",
        "text",
        "decoded",
        _WITH_MESSAGES,
        "`decoded`: bodies are decompressed; `raw`: as stored.",
        ("decoded", "raw"),
    ),
    Option("maxDecompressedSize", "size", "64m", _WITH_MESSAGES, "A body that would be larger when decompressed is corrupt."),
    Option("expandBatches", "boolean", "false", _MESSAGES, "Make a batch record's inner messages (BatchCQ) rows."),
    Option(
        "extraColumns",
        "columns",
        None,
        _MESSAGES,
        f"More columns, any of {', '.join(EXTRA_COLUMNS.names)}.",
    ),
    Option(
        "brokerName",
        "text",
        None,
        _WITH_MESSAGES,
        "The column brokerName; else what the store's files say.",
    ),
    Option("maxHashSlotNum", "number", None, _INDEXES, "Slots of an index file, where the file does not tell."),
    Option("maxIndexNum", "number", None, _INDEXES, "Entries of an index file, likewise."),
    Option(
        "storePathCommitLog",
        "folders",
        None,
        _ALL,
        "The commitlog's folders, if not in the store's root.",
    ),
    Option("readOnlyCommitLogStorePaths", "folders", None, _ALL, "More folders of commitlog files."),
    Option(
        "failOnDataLoss",
        "boolean",
        "true",
        _ALL,
        "Fail where an asked-for offset or file is gone; `false`: read what is left.",
    ),
    Option("maxPartitionBytes", "size", "128m", _ALL, "Most bytes of the store that one partition reads."),
    Option("minPartitions", "number", None, _ALL, "Fewest partitions, where the store can be split so far."),
)

_NAMES: Final = tuple(option.name for option in OPTIONS)
_BY_NAME: Final = {option.name.lower(): option for option in OPTIONS}
_PATHS: Final = "paths"
"""Spark's name for `path` when `load` was given a list: a JSON array."""


@dataclass(frozen=True)
class ReadOptions:
    """All options of one read, parsed; fields are named as in `Option.attribute`. Sizes are in bytes."""

    path: tuple[str, ...] = ()
    table: str = "messages"
    selection: Selection = field(default_factory=Selection)
    index: str = "trust"
    mode: str = "FAILFAST"
    column_name_of_corrupt_record: str = CORRUPT_COLUMN
    verify_crc: bool = False
    body_format: str = "decoded"
    max_decompressed_size: int = 64 << 20
    expand_batches: bool = False
    extra_columns: tuple[str, ...] = ()
    broker_name: str | None = None
    max_hash_slot_num: int | None = None
    max_index_num: int | None = None
    store_path_commit_log: tuple[str, ...] | None = None
    read_only_commit_log_store_paths: tuple[str, ...] | None = None
    fail_on_data_loss: bool = True
    max_partition_bytes: int = 128 << 20
    min_partitions: int | None = None

    @property
    def corrupt_column(self) -> str | None:
        """The name of the corrupt record's column where the table has one (mode PERMISSIVE), else None."""
        return self.column_name_of_corrupt_record if self.mode == "PERMISSIVE" else None


_SELECTION_FIELDS: Final = frozenset(f.name for f in fields(Selection))


def parse_options(mapping: Mapping[str, object], *, ignore: Iterable[str] = ()) -> ReadOptions:
    """The options in `mapping`: keys in any case, values as text or as Python values; None counts as not given.

    `ignore`: further keys to pass over, in any case.
    Errors: OptionError for an unknown option (with near names), a value that can't be read, options that exclude each other,
    or an option that the chosen table does not have.
    """
    passed_over = {name.lower() for name in ignore}
    given: dict[str, Any] = {}
    named: dict[str, str] = {}
    for key, value in mapping.items():
        lower = key.lower()
        if value is None or (lower in passed_over and lower not in _BY_NAME):
            continue
        option = _BY_NAME.get("path" if lower == _PATHS else lower)
        if option is None:
            raise OptionError(f"unknown option {key!r}.{nearest(key, _NAMES)} Known options: {', '.join(_NAMES)}")
        if option.name in named:
            raise OptionError(f"option {option.name!r} is given twice, as {named[option.name]!r} and as {key!r}; give one")
        named[option.name] = key
        given[option.name] = option.parse(value)
    table = given.get("table", "messages")
    for name in given:
        if table not in (tables := _BY_NAME[name.lower()].tables):
            raise OptionError(
                f"option {name!r} belongs to the table {' and '.join(tables)}, and the table here is {table}; leave it out"
            )
    values = {_BY_NAME[name.lower()].attribute: value for name, value in given.items()}
    selected = {name: values.pop(name) for name in list(values) if name in _SELECTION_FIELDS}
    options = ReadOptions(selection=Selection(**selected), **values)
    _check_columns(options)
    return options


def _check_columns(options: ReadOptions) -> None:
    for name in options.extra_columns:
        if name not in EXTRA_COLUMNS.names:
            raise OptionError(
                f"option 'extraColumns' names {name!r}, which is no extra column.{nearest(name, EXTRA_COLUMNS.names)} "
                f"Extra columns: {', '.join(EXTRA_COLUMNS.names)}"
            )
    taken = {
        "messages": MESSAGES.names + EXTRA_COLUMNS.names,
        "consumequeue": QUEUE.names,
        "index": INDEX.names,
        "verify": VERIFY.names,
    }[options.table]
    corrupt = options.column_name_of_corrupt_record
    if corrupt.lower() in (name.lower() for name in taken):
        raise OptionError(
            f"option 'columnNameOfCorruptRecord' is {corrupt!r}, which is another column of the table; choose a name of its own"
        )


def markdown_table() -> str:
    """The options as a Markdown table: name, default, tables, meaning."""
    lines = ["| option | default | tables | meaning |", "|---|---|---|---|"]
    for option in OPTIONS:
        default = "" if option.default is None else f"`{option.default}`"
        tables = "all" if option.tables == _ALL else ", ".join(option.tables)
        doc = option.doc.replace("|", "\\|")
        if option.choices:
            doc += f" One of {', '.join(f'`{choice}`' for choice in option.choices)}."
        lines.append(f"| `{option.name}` | {default} | {tables} | {doc} |")
    return "\n".join(lines) + "\n"
