"""Every write option: what it takes, what it refuses, what goes together, and what an existing store or a version settles."""

from __future__ import annotations

import dataclasses
import pickle

import pytest

from store_core.errors import OptionError
from store_core.options import Option
from store_core.writeoptions import WRITE_OPTIONS, WriteOptions, parse_write_options, write_markdown_table

EXAMPLES: dict[str, tuple[object, object]] = {
    "path": ("/data/store", "/data/store"),
    "preserve": ("True", True),
    "renumber": ("true", True),
    "systemTopics": (True, True),
    "configFrom": ("/data/other", "/data/other"),
    "targetVersion": ("5.1.4", (5, 1, 4)),
    "indexTags": ("false", False),
    "lastSeparator": ("false", False),
    "enabledAppendPropCRC": ("true", True),
    "compression": ("ZSTD", "zstd"),
    "compressMsgBodyOverHowmuch": ("1k", 1024),
    "bodyFormat": ("RAW", "raw"),
    "bornHost": ("10.0.0.1:5", b"\x0a\x00\x00\x01\x00\x00\x00\x05"),
    "storeHost": ("[2001:db8::1]:10911", bytes.fromhex("20010db8000000000000000000000001 00002a9f")),
    "defaultTopicQueueNums": ("4", 4),
    "maxMessageSize": ("8m", 8 << 20),
    "mappedFileSizeCommitLog": ("256k", 1 << 18),
    "mappedFileSizeConsumeQueue": (2000, 2000),
    "maxHashSlotNum": ("200", 200),
    "maxIndexNum": (800, 800),
    "allowUnclean": ("true", True),
    "allowUnorderedTimes": ("true", True),
}
NEEDS = {"renumber": {"preserve": "true"}}


def test_table_and_value_agree() -> None:
    assert [o.attribute for o in WRITE_OPTIONS] == [f.name for f in dataclasses.fields(WriteOptions)]
    assert set(EXAMPLES) == {o.name for o in WRITE_OPTIONS}
    for option in WRITE_OPTIONS:
        default = getattr(WriteOptions(), option.attribute)
        assert default == (None if option.default is None else option.parse(option.default))
        assert option.doc.endswith(".")


@pytest.mark.parametrize("option", WRITE_OPTIONS, ids=lambda o: o.name)
def test_every_option_in_any_case_and_through_pickle(option: Option) -> None:
    given, expected = EXAMPLES[option.name]
    for name in (option.name, option.name.lower(), option.name.upper()):
        options = parse_write_options({**NEEDS.get(option.name, {}), name: given})
        assert getattr(options, option.attribute) == expected
        assert pickle.loads(pickle.dumps(options)) == options
    assert parse_write_options({option.name: None}) == WriteOptions()


@pytest.mark.parametrize("option", WRITE_OPTIONS, ids=lambda o: o.name)
@pytest.mark.parametrize("bad", ["", "  ", b"bytes", 1.5, [], {}], ids=repr)
def test_every_option_refuses_by_name(option: Option, bad: object) -> None:
    with pytest.raises(OptionError, match=f"^option {option.name!r} is .*; expected .+"):
        parse_write_options({option.name: bad})


@pytest.mark.parametrize(
    "host", ["localhost:1", "1.2.3:4", "1.2.3.4", "::1:5", "[1.2.3.4]:5", "1.2.3.4:9999999999", "[::1%lo]:1"]
)
def test_hosts_that_are_none(host: str) -> None:
    with pytest.raises(OptionError, match="an address and a port"):
        parse_write_options({"storeHost": host})


def test_unknown_options() -> None:
    with pytest.raises(OptionError, match=r"unknown write option 'preserved'\. Did you mean 'preserve'"):
        parse_write_options({"preserved": "true"})
    assert parse_write_options({"spark.x": "1"}, ignore=["SPARK.X"]) == WriteOptions()
    with pytest.raises(OptionError, match="given twice"):
        parse_write_options({"preserve": "true", "PRESERVE": "true"})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"renumber": "true"}, "belongs to 'preserve'"),
        ({"preserve": "true", "compression": "zstd"}, "exclude each other"),
        ({"compression": "lz4", "targetVersion": "4.9.3"}, "from 4.9.4 on"),
        ({"mappedFileSizeCommitLog": "4g"}, "'mappedFileSizeCommitLog' is 4294967296; expected 1 to"),
        ({"maxIndexNum": 1}, "'maxIndexNum' is 1; expected 2 to"),
    ],
)
def test_what_does_not_go_together(given: dict[str, object], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse_write_options(given)


def test_a_queue_files_size_is_rounded_up_as_rocketmq_does() -> None:
    assert parse_write_options({"mappedFileSizeConsumeQueue": 2001}).mapped_file_size_consume_queue == 2020


def test_what_is_left_open_is_settled_by_the_store_or_the_version() -> None:
    plain = parse_write_options({}).settled()
    assert (plain.mapped_file_size_commit_log, plain.mapped_file_size_consume_queue) == (1 << 30, 6_000_000)
    assert (plain.max_hash_slot_num, plain.max_index_num) == (5_000_000, 20_000_000)
    assert plain.index_tags is True and plain.last_separator is True
    existing = {"mapped_file_size_commit_log": 4096, "max_index_num": None, "index_tags": False, "last_separator": False}
    appended = parse_write_options({}).settled(existing)
    assert appended.mapped_file_size_commit_log == appended.log_file_size == 4096
    assert (appended.max_index_num, appended.index_tags, appended.last_separator) == (20_000_000, False, False)
    assert parse_write_options({"indexTags": "true"}).settled(existing).index_tags is True
    assert parse_write_options({"mappedFileSizeCommitLog": 4096}).settled(existing).log_file_size == 4096
    with pytest.raises(OptionError, match="'mappedFileSizeCommitLog' is 8192, and the store's files have 4096"):
        parse_write_options({"mappedFileSizeCommitLog": 8192}).settled(existing)


@pytest.mark.parametrize(
    ("version", "tags", "separator", "long_topics"),
    [("4.9.0", False, True, False), ("4.9.7", False, False, False), ("5.1.4", False, False, True), ("5.2.0", False, True, True),
     ("5.4.0", True, True, True)],
)  # fmt: skip
def test_what_a_version_writes(version: str, tags: bool, separator: bool, long_topics: bool) -> None:
    options = parse_write_options({"targetVersion": version}).settled()
    assert (options.index_tags, options.last_separator, options.long_topics) == (tags, separator, long_topics)


def test_the_table_shows_every_option() -> None:
    table = write_markdown_table()
    assert all(f"| `{option.name}` |" in table for option in WRITE_OPTIONS)
    assert "One of `none`, `zlib`, `lz4`, `zstd`." in table
