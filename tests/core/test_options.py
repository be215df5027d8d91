"""Every option: what it takes, what it refuses, and that the table, the values and the docs agree."""

from __future__ import annotations

import dataclasses
import pickle
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from store_core.errors import OptionError
from store_core.options import OPTIONS, TABLES, Option, ReadOptions, markdown_table, parse_options
from store_core.optiontypes import TYPES, loads
from store_core.selection import Selection
from store_core.writeoptions import WRITE_OPTIONS

EXAMPLES: dict[str, tuple[object, object]] = {
    "path": ("/data/store", ("/data/store",)),
    "table": ("MESSAGES", "messages"),
    "subscribe": ("Orders, Payments ,,Orders", ("Orders", "Payments")),
    "subscribePattern": ("Ord.*", "Ord.*"),
    "assign": ('{"Orders":[1,0,1],"A":["2"]}', (("A", (2,)), ("Orders", (0, 1)))),
    "startingOffsets": ('{"Orders":{"1":-2,"0":23}}', (("Orders", 0, 23), ("Orders", 1, -2))),
    "endingOffsets": ('{"Orders":{"0":23,"1":-1}}', (("Orders", 0, 23), ("Orders", 1, -1))),
    "startingTimestamp": ("1795250597888", 1795250597888),
    "endingTimestamp": ("2026-11-21T09:23:17.888Z", 1795252997888),
    "keys": ("K1,K2", ("K1", "K2")),
    "uniqKeys": ("U1", ("U1",)),
    "offsetMsgIds": ("7f0000010000592c0000000000000245", ("7F0000010000592C0000000000000245",)),
    "tags": ('["a,b",""]', ("a,b", "")),
    "index": ("Verify", "verify"),
    "mode": ("permissive", "PERMISSIVE"),
    "columnNameOfCorruptRecord": ("bad", "bad"),
    "verifyCrc": ("TRUE", True),
    "bodyFormat": ("raw", "raw"),
    "maxDecompressedSize": ("1g", 1 << 30),
    "expandBatches": ("true", True),
    "extraColumns": ("compression,storePath", ("compression", "storePath")),
    "brokerName": ("broker-a", "broker-a"),
    "maxHashSlotNum": ("5000000", 5_000_000),
    "maxIndexNum": (800, 800),
    "storePathCommitLog": ("/d1,/d2", ("/d1", "/d2")),
    "readOnlyCommitLogStorePaths": ("/d3", ("/d3",)),
    "failOnDataLoss": ("false", False),
    "maxPartitionBytes": ("64m", 64 << 20),
    "minPartitions": ("8", 8),
}


def value_of(name: str, options: ReadOptions) -> object:
    attribute = next(o.attribute for o in OPTIONS if o.name == name)
    return getattr(options.selection if hasattr(options.selection, attribute) else options, attribute)


def test_table_values_and_dataclasses_agree() -> None:
    names = {f.name for cls in (Selection, ReadOptions) for f in dataclasses.fields(cls)} - {"selection"}
    assert {o.attribute for o in OPTIONS} == names
    assert set(EXAMPLES) == {o.name for o in OPTIONS}
    assert {o.type for o in (*OPTIONS, *WRITE_OPTIONS)} == set(TYPES)
    for option in OPTIONS:
        assert option.tables and set(option.tables) <= set(TABLES)
        default = value_of(option.name, ReadOptions())
        assert default == (option.parse(option.default) if option.default is not None else default or default)


@pytest.mark.parametrize("option", OPTIONS, ids=lambda o: o.name)
def test_every_option_in_any_case_and_through_pickle(option: Option) -> None:
    given, expected = EXAMPLES[option.name]
    for name in (option.name, option.name.lower(), option.name.upper()):
        options = parse_options({name: given})
        assert value_of(option.name, options) == expected
        again = pickle.loads(pickle.dumps(options))
        assert again == options and hash(again) == hash(options)
    assert value_of(option.name, parse_options({option.name: None})) == value_of(option.name, ReadOptions())


_BAD = ["", "  ", ",", "[]", b"bytes", 1.5, [], {}, [""]]
_SOUND = {("text", "','"), ("text", "'[]'"), ("paths", "','"), ("paths", "'[]'"), ("pattern", "','"), ("tags", "['']")}


@pytest.mark.parametrize(
    ("option", "bad"),
    [(o, b) for o in OPTIONS for b in _BAD if o.choices or (o.type, repr(b)) not in _SOUND],
    ids=lambda value: value.name if isinstance(value, Option) else repr(value),
)
def test_every_option_refuses_by_name(option: Option, bad: object) -> None:
    with pytest.raises(OptionError, match=f"^option {option.name!r} is .*; expected .+"):
        parse_options({option.name: bad})


@pytest.mark.parametrize("key", ["subscribeTopic", "startingOffset", "KEY", "maxPartitionByte", "startTimestamp"])
def test_unknown_option_names_what_is_near(key: str) -> None:
    near = {
        "key": "keys",
        "subscribetopic": "subscribe",
        "startingoffset": "startingOffsets",
        "starttimestamp": "startingTimestamp",
    }
    with pytest.raises(
        OptionError, match=rf"unknown option '{key}'\. Did you mean .*'{near.get(key.lower(), 'maxPartitionBytes')}'"
    ):
        parse_options({key: "x"})


def test_unknown_option_without_a_neighbour_lists_all() -> None:
    with pytest.raises(OptionError, match=r"unknown option 'zzz'\. Known options: path, table, .*minPartitions"):
        parse_options({"zzz": "x"})


def test_ignored_keys() -> None:
    assert parse_options({"Mergeschema": "x", "keys": "a"}, ignore=["mergeSchema", "keys"]).selection.keys == ("a",)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("/a,b", ("/a,b",)),
        (Path("/a"), ("/a",)),
        ('["/a","/b,c"]', ("/a", "/b,c")),
        (' [ "/a" ]', ("/a",)),
        ("[ab]*", ("[ab]*",)),
        ([Path("/a"), "/b"], ("/a", "/b")),
    ],
)
def test_path(given: object, expected: tuple[str, ...]) -> None:
    assert parse_options({"path": given}).path == expected
    assert parse_options({"paths": given}).path == expected


def test_path_and_paths() -> None:
    with pytest.raises(OptionError, match=r"'path' is given twice, as 'path' and as 'paths'"):
        parse_options({"path": "/a", "paths": '["/b"]'})


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("1024", 1024),
        (4096, 4096),
        ("7b", 7),
        ("2k", 2048),
        ("3KB", 3072),
        (" 64m ", 64 << 20),
        ("1gb", 1 << 30),
        ("2t", 2 << 40),
        ("1p", 1 << 50),
    ],
)
def test_sizes_as_spark_writes_them(given: object, expected: int) -> None:
    assert parse_options({"maxPartitionBytes": given}).max_partition_bytes == expected


@pytest.mark.parametrize("bad", ["0", "-1m", "1.5g", "64mib", "m", "1 x", True, "99999999p"])
def test_sizes_refused(bad: object) -> None:
    with pytest.raises(OptionError, match="a size above 0"):
        parse_options({"maxPartitionBytes": bad})


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (0, 0),
        ("-5", -5),
        ("2026-11-21T09:23:17Z", 1795252997000),
        ("2026-11-21 09:23Z", 1795252980000),
        ("2026-11-21T10:23:17.888+01:00", 1795252997888),
        ("2026-11-21T10:23:17.8+0100", 1795252997800),
        ("2026-11-21T09:23:17.888000001Z", 1795252997889),
        ("1969-12-31T23:59:59.9995Z", 0),
        (datetime(2026, 11, 21, 9, 23, 17, 888001, tzinfo=timezone.utc), 1795252997889),
        (datetime(2026, 11, 21, 10, 23, 17, tzinfo=timezone(timedelta(hours=1))), 1795252997000),
    ],
)
def test_times(given: object, expected: int) -> None:
    assert parse_options({"startingTimestamp": given}).selection.starting_timestamp == expected


@pytest.mark.parametrize(
    "bad",
    ["2026-11-21T09:23:17", "2026-11-21", "2026-13-21T09:23:17Z", "yesterday", datetime(2026, 1, 1), True, "0000-01-01T00:00Z"],
)
def test_times_refused(bad: object) -> None:
    with pytest.raises(OptionError, match=r"expected milliseconds since 1970 .* or a time with its zone"):
        parse_options({"startingTimestamp": bad})


@pytest.mark.parametrize(
    "given", ['{"T":{0:23}}', '{"T": { 0 : 23 } }', '{"T":{"0":"23"}}', {"T": {0: 23}}, {"T": {"0": 23}}], ids=repr
)
def test_offsets_in_all_spellings(given: object) -> None:
    options = parse_options({"startingOffsets": given, "endingOffsets": given})
    assert options.selection.starting_offsets == options.selection.ending_offsets == (("T", 0, 23),)
    assert (options.selection.start_of("T", 0), options.selection.end_of("T", 0)) == (23, 23)
    assert (options.selection.start_of("T", 1), options.selection.end_of("t", 0)) == (None, None)


@pytest.mark.parametrize("name", ["startingOffsets", "endingOffsets"])
@pytest.mark.parametrize(
    "bad",
    ["23", "x", "[1]", '{"T":23}', '{"T":{}}', '{"T":{"0":-3}}', '{"T":{"a":1}}', '{"T":{"-1":1}}', '{"T":{"0":1.5}}',
     '{"T":{"0":1,"0":2}}',
     '{"T":{"0":1', {"T": {0: 1, "0": 2}}, {"": {0: 1}}],
    ids=repr,
)  # fmt: skip
def test_offsets_refused(name: str, bad: object) -> None:
    with pytest.raises(OptionError, match=rf"option '{name}' is .*; expected .*JSON such as"):
        parse_options({name: bad})


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("startingOffsets", "Latest"),
        ("startingOffsets", {"T": {0: -1}}),
        ("endingOffsets", "earliest"),
        ("endingOffsets", {"T": {0: -2}}),
    ],
)
def test_bounds_that_spark_refuses_in_a_batch_read(name: str, bad: object) -> None:
    with pytest.raises(OptionError, match="can't stand here in a batch read"):
        parse_options({name: bad})


def test_whole_bounds() -> None:
    assert parse_options({"startingOffsets": "earliest", "endingOffsets": " LATEST "}).selection == Selection()
    selection = parse_options({"startingOffsets": '{"T":{"0":-2}}', "endingOffsets": '{"T":{"0":-1}}'}).selection
    assert (selection.start_of("T", 0), selection.end_of("T", 0)) == (None, None)


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ({"subscribe": "a", "assign": {"a": [0]}}, "only one of .* here are subscribe and assign"),
        ({"startingTimestamp": 2, "endingTimestamp": 1}, "startingTimestamp 2 is after endingTimestamp 1"),
        ({"startingOffsets": {"T": {0: 2}}, "endingOffsets": {"T": {0: 1}}}, "startingOffsets 2 of 'T' queue 0 is after .* 1"),
        ({"subscribe": "T", "startingOffsets": {"U": {0: 2}}}, "startingOffsets names 'U' queue 0, which subscribe leaves out"),
        ({"assign": {"T": [0]}, "endingOffsets": {"T": {1: 2}}}, "endingOffsets names 'T' queue 1, which assign leaves out"),
        ({"table": "consumequeue", "keys": "a"}, "option 'keys' belongs to .* messages, and the table here is consumequeue"),
        ({"extraColumns": "compresion"}, r"'compresion', which is no extra column\. Did you mean 'compression'"),
        ({"columnNameOfCorruptRecord": "Topic"}, "is 'Topic', which is another column"),
        ({"table": "queue"}, "expected one of messages, consumequeue, index"),
        ({"keys": "a b"}, "RocketMQ separates a message's keys by spaces"),
        ({"keys": "[a"}, "starts like a JSON array"),
        ({"offsetMsgIds": "FD00"}, "32 hexadecimal digits"),
        ({"assign": '{"T":[]}'}, r"the queues of 'T' are \[\]"),
        ({"assign": '{"T":["x"]}'}, "the queues of 'T' are"),
        ({"path": "/a", "Path": "/b"}, "given twice"),
        ({"minPartitions": 0}, "whole number from 1"),
    ],
)  # fmt: skip
def test_combinations_refused(mapping: dict[str, object], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse_options(mapping)


def test_equal_bounds_are_an_empty_range_not_an_error() -> None:
    parse_options(
        {"startingTimestamp": 1, "endingTimestamp": 1, "startingOffsets": {"T": {0: 1}}, "endingOffsets": {"T": {0: 1}}}
    )


def test_lists_from_python() -> None:
    assert parse_options({"keys": ["a,b", 12]}).selection.keys == ("a,b", "12")
    assert parse_options({"keys": 12}).selection.keys == ("12",)
    assert parse_options({"keys": '["a,b","c"]'}).selection.keys == ("a,b", "c")


def test_takes() -> None:
    assert Selection().takes("any")
    assert Selection(subscribe=("T",)).takes("T", 3) and not Selection(subscribe=("T",)).takes("t")
    assert Selection(subscribe_pattern="T.").takes("T1") and not Selection(subscribe_pattern="T.").takes("T12")
    assigned = Selection(assign=(("T", (0, 2)),))
    assert assigned.takes("T") and assigned.takes("T", 2) and not assigned.takes("T", 1) and not assigned.takes("U", 0)


def test_loads_leaves_strings_alone() -> None:
    assert loads('{"a{1:\\"{2:":{-3 :4}}') == {'a{1:"{2:': {"-3": 4}}


def test_corrupt_column() -> None:
    assert parse_options({}).corrupt_column is None
    assert parse_options({"mode": "PERMISSIVE"}).corrupt_column == "_corrupt_record"


def test_markdown_table_has_every_option() -> None:
    lines = markdown_table().splitlines()
    assert len(lines) == len(OPTIONS) + 2
    for option, line in zip(OPTIONS, lines[2:], strict=True):
        assert line.startswith(f"| `{option.name}` |") and line.replace("\\|", "").count("|") == 5
