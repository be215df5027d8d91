"""Every write option, once: `WRITE_OPTIONS` is the table that parsing, error messages and the README's table derive from.

Names and defaults are RocketMQ's own where it has the option (`MessageStoreConfig`, `BrokerConfig`, `DefaultMQProducer`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from store_core.errors import OptionError, nearest
from store_core.layout import QUEUE_UNIT
from store_core.options import Option
from store_core.optiontypes import host_bytes

__all__ = ["COMPRESSIONS", "WRITE_OPTIONS", "Version", "WriteOptions", "parse_write_options", "write_markdown_table"]

Version = tuple[int, int, int]

COMPRESSIONS: Final = ("none", "zlib", "lz4", "zstd")
_TYPED_COMPRESSION: Final = (4, 9, 4)
"""The first version that knows lz4 and zstd, and the bits that tell the compression."""
_TAG_ENTRIES: Final = (5, 4, 0)
_NO_LAST_SEPARATOR: Final = ((4, 9, 1), (5, 1, 4))
_LONG_TOPICS: Final = (5, 1, 0)
_INT32: Final = (1 << 31) - 1
_MESSAGES = ("messages",)


def _option(name: str, type: str, default: str | None, doc: str, choices: tuple[str, ...] = ()) -> Option:
    return Option(name, type, default, _MESSAGES, doc, choices)


WRITE_OPTIONS: Final = (
    _option("path", "text", None, "The root folder of the store to write, a broker's `storePathRootDir`."),
    _option(
        "preserve",
        "boolean",
        "false",
        "Keep queueOffset and, where commitLogOffset is given and nothing is missing, the places in the log; bodies as stored.",
    ),
    _option(
        "renumber",
        "boolean",
        "false",
        "With `preserve`: close gaps inside a queue by new queueOffsets, instead of refusing them.",
    ),
    _option(
        "systemTopics",
        "boolean",
        "false",
        "Take messages of delay, timer, half, op and revive topics, which a broker delivers or checks back again.",
    ),
    _option("configFrom", "text", None, "Copy the consumer, delay and subscription state of the store at this path."),
    _option("targetVersion", "version", None, "The oldest broker that must serve the store; else the newest is assumed."),
    _option(
        "indexTags",
        "boolean",
        None,
        "Index entries of tags, as 5.4.0 and later write; else as the store that is appended to, or the target version.",
    ),
    _option(
        "lastSeparator",
        "boolean",
        None,
        "A separator behind the last property, which 4.9.1 to 5.1.4 leave out; else likewise.",
    ),
    _option("enabledAppendPropCRC", "boolean", "false", "Close every record with a CRC property (`__CRC32#`)."),
    _option(
        "compression",
        "text",
        None,
        "How bodies that are not compressed yet are stored; else as each row's sysFlag says.",
        COMPRESSIONS,
    ),
    _option("compressMsgBodyOverHowmuch", "size", "4096", "Shorter bodies stay uncompressed."),
    _option(
        "bodyFormat",
        "text",
        None,
        "What the body of a row whose sysFlag says compressed is: `raw` as stored, `decoded` not compressed yet; "
        "else its bodyCRC tells. Without one, a body that could be either is refused.",
        ("decoded", "raw"),
    ),
    _option("bornHost", "host", "127.0.0.1:0", "The bornHost of rows without one."),
    _option("storeHost", "host", "127.0.0.1:10911", "The storeHost of rows without one: where the broker will be reached."),
    _option("defaultTopicQueueNums", "number", "8", "Rows without queueId are spread over so many queues of a new topic."),
    _option("maxMessageSize", "size", "4194304", "The longest body, as stored."),
    _option("mappedFileSizeCommitLog", "size", None, "Size of a commitlog file: 1g, or the appended store's own."),
    _option("mappedFileSizeConsumeQueue", "size", None, "Size of a queue file: 6000000, or the appended store's own."),
    _option("maxHashSlotNum", "number", None, "Slots of an index file: 5000000, or the appended store's own."),
    _option("maxIndexNum", "number", None, "Entries of an index file: 20000000, or the appended store's own."),
    _option("allowUnclean", "boolean", "false", "Append to a store whose broker was not stopped cleanly."),
    _option(
        "allowUnorderedTimes",
        "boolean",
        "false",
        "Let storeTimestamp go back from one record to the next. A broker's queries by time may then miss messages.",
    ),
)

_NAMES: Final = tuple(option.name for option in WRITE_OPTIONS)
_BY_NAME: Final = {option.name.lower(): option for option in WRITE_OPTIONS}
_SIZES: Final = {
    "mapped_file_size_commit_log": 1 << 30,
    "mapped_file_size_consume_queue": 300_000 * QUEUE_UNIT.itemsize,
    "max_hash_slot_num": 5_000_000,
    "max_index_num": 20_000_000,
}
"""RocketMQ's defaults of what can't be changed once a store has files."""


@dataclass(frozen=True)
class WriteOptions:
    """All options of one write, parsed; fields are named as in `Option.attribute`. Sizes are in bytes, hosts as records store
    them. None is what was not given: `settled` fills it in, and what encodes or builds takes settled options.
    """

    path: str | None = None
    preserve: bool = False
    renumber: bool = False
    system_topics: bool = False
    config_from: str | None = None
    target_version: Version | None = None
    index_tags: bool | None = None
    last_separator: bool | None = None
    enabled_append_prop_crc: bool = False
    compression: str | None = None
    compress_msg_body_over_howmuch: int = 4096
    body_format: str | None = None
    born_host: bytes = host_bytes("127.0.0.1:0")
    store_host: bytes = host_bytes("127.0.0.1:10911")
    default_topic_queue_nums: int = 8
    max_message_size: int = 4 << 20
    mapped_file_size_commit_log: int | None = None
    mapped_file_size_consume_queue: int | None = None
    max_hash_slot_num: int | None = None
    max_index_num: int | None = None
    allow_unclean: bool = False
    allow_unordered_times: bool = False

    @property
    def long_topics(self) -> bool:
        """Whether topics of more than 127 bytes can be written (V2 records)."""
        return self.target_version is None or self.target_version >= _LONG_TOPICS

    @property
    def typed_compression(self) -> bool:
        """Whether sysFlag tells the kind of compression; where it does not, it is zlib."""
        return self.target_version is None or self.target_version >= _TYPED_COMPRESSION

    @property
    def log_file_size(self) -> int:
        """Size of a commitlog file, settled or not."""
        return self.mapped_file_size_commit_log or _SIZES["mapped_file_size_commit_log"]

    def settled(self, existing: Mapping[str, int | bool | None] | None = None) -> WriteOptions:
        """The options with nothing left open: what was not given is as in `existing`, by the names of fields (those that an
        existing store's files tell), else as the target version has it.

        Errors: OptionError for a size that is not the existing store's.
        """
        own = {name: value for name, value in (existing or {}).items() if value is not None}
        filled: dict[str, Any] = {}
        for name, default in _SIZES.items():
            given = getattr(self, name)
            if given is not None and name in own and given != own[name]:
                option = next(option.name for option in WRITE_OPTIONS if option.attribute == name)
                raise OptionError(f"option {option!r} is {given}, and the store's files have {own[name]}; leave the option out")
            filled[name] = own.get(name, default) if given is None else given
        version = self.target_version
        if self.index_tags is None:
            filled["index_tags"] = own.get("index_tags", version is None or version >= _TAG_ENTRIES)
        if self.last_separator is None:
            first, last = _NO_LAST_SEPARATOR
            filled["last_separator"] = own.get("last_separator", version is None or not first <= version <= last)
        return replace(self, **filled)


def parse_write_options(given: Mapping[str, object], *, ignore: Iterable[str] = ()) -> WriteOptions:
    """The options in `given`: keys in any case, values as text or as Python values; None counts as not given.

    `ignore`: further keys to pass over, in any case.
    Errors: OptionError for an unknown option (with near names), a value that can't be read, or options that don't go together.
    """
    passed_over = {name.lower() for name in ignore} - set(_BY_NAME)
    values: dict[str, Any] = {}
    named: dict[str, str] = {}
    for key, value in given.items():
        if value is None or key.lower() in passed_over:
            continue
        option = _BY_NAME.get(key.lower())
        if option is None:
            raise OptionError(
                f"unknown write option {key!r}.{nearest(key, _NAMES)} Known options of a write: {', '.join(_NAMES)}"
            )
        if option.name in named:
            raise OptionError(f"option {option.name!r} is given twice, as {named[option.name]!r} and as {key!r}; give one")
        named[option.name] = key
        values[option.attribute] = option.parse(value)
    options = WriteOptions(**values)
    _check_together(options)
    _check_sizes(options)
    unit = QUEUE_UNIT.itemsize
    if (size := options.mapped_file_size_consume_queue) is not None and size % unit:
        # as `MessageStoreConfig#getMappedFileSizeConsumeQueue`
        options = replace(options, mapped_file_size_consume_queue=-(-size // unit) * unit)
    return options


def _check_together(options: WriteOptions) -> None:
    if options.renumber and not options.preserve:
        raise OptionError("option 'renumber' belongs to 'preserve'; without it, all queueOffsets are new anyway")
    if options.preserve and options.compression is not None:
        raise OptionError("options 'preserve' and 'compression' exclude each other: preserved bodies stay as they are")
    if options.compression in ("lz4", "zstd") and not options.typed_compression:
        raise OptionError(
            f"option 'compression' is {options.compression!r}, which RocketMQ has from 4.9.4 on, and 'targetVersion' is older; "
            "take zlib"
        )


def _check_sizes(options: WriteOptions) -> None:
    for name in (*_SIZES, "max_message_size"):
        value = getattr(options, name)
        least = 2 if name == "max_index_num" else 1
        if value is not None and not least <= value <= _INT32 - QUEUE_UNIT.itemsize:
            option = next(option.name for option in WRITE_OPTIONS if option.attribute == name)
            raise OptionError(f"option {option!r} is {value}; expected {least} to {_INT32 - QUEUE_UNIT.itemsize}")


def write_markdown_table() -> str:
    """The options as a Markdown table: name, default, meaning."""
    lines = ["| option | default | meaning |", "|---|---|---|"]
    for option in WRITE_OPTIONS:
        default = "" if option.default is None else f"`{option.default}`"
        doc = option.doc.replace("|", "\\|")
        if option.choices:
            doc += f" One of {', '.join(f'`{choice}`' for choice in option.choices)}."
        lines.append(f"| `{option.name}` | {default} | {doc} |")
    return "\n".join(lines) + "\n"
