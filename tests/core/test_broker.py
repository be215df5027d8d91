"""A broker's own name and paths, from whichever file tells them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.broker import BrokerSettings, read_broker_settings
from store_core.errors import CorruptStoreError
from store_core.files import LocalFiles
from store_core.javaproperties import parse_properties
from tests.golden_stores import GOLDEN_NAMES, Golden

MEMBER = "rmq_sys_SYNC_BROKER_MEMBER_"


def store(root: Path, **files: str) -> str:
    """A store in `root` with these files; `__` in a name stands for a folder, `_` for a dot."""
    for name, text in files.items():
        path = root / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return str(root)


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_a_5_x_broker_names_itself_in_its_topics(golden: Golden, name: str) -> None:
    known = None if name in ("plain-4.9.7", "dledger-4.9.7", "rocksdb-5.3.3") else "broker-a"
    assert read_broker_settings(LocalFiles(), str(golden(name))).value == BrokerSettings(known)


def test_nothing_is_known_of_an_empty_store(tmp_path: Path) -> None:
    found = read_broker_settings(LocalFiles(), str(tmp_path))
    assert (found.value, found.paths, found.notes) == (BrokerSettings(), (), ())


def test_the_operators_file_comes_first(tmp_path: Path) -> None:
    root = store(
        tmp_path,
        config__broker_properties="brokerName = b-1 \nstorePathCommitLog=/d1/log, /d2/log\nreadOnlyCommitLogStorePaths=/old\n",
        config__broker_conf="brokerName=b-0\n",
        brokerIdentity="c#b-2#0",
        config__topics_json=f'{{"topicConfigTable":{{"{MEMBER}b-3":{{}}}}}}',
    )
    found = read_broker_settings(LocalFiles(), root)
    assert found.value == BrokerSettings("b-1", ("/d1/log", "/d2/log"), ("/old",))
    assert found.paths == (f"{root}/config/broker.conf", f"{root}/config/broker.properties")


def test_the_identity_comes_before_the_topics(tmp_path: Path) -> None:
    root = store(tmp_path, brokerIdentity="c#b-2#0\n", config__topics_json=f'{{"topicConfigTable":{{"{MEMBER}b-3":{{}}}}}}')
    found = read_broker_settings(LocalFiles(), root)
    assert (found.value.broker_name, found.paths) == ("b-2", (f"{root}/brokerIdentity",))


def test_two_names_in_the_topics_are_no_name(tmp_path: Path) -> None:
    root = store(tmp_path, config__topics_json=f'{{"topicConfigTable":{{"{MEMBER}b":{{}},"{MEMBER}a":{{}},"{MEMBER}":{{}}}}}}')
    found = read_broker_settings(LocalFiles(), root)
    assert found.value.broker_name is None
    assert "several brokers (a, b)" in found.notes[0]


@pytest.mark.parametrize(
    ("files", "note"),
    [
        ({"brokerIdentity": "b-2"}, "not of the form cluster#broker#id"),
        ({"brokerIdentity": "c##0"}, "not of the form cluster#broker#id"),
        ({"config__topics_json": "{"}, "could not be looked up in the topics"),
        ({"config__broker_conf": "brokerName=\\u12"}, "line 1: \\u without four hexadecimal digits"),
        ({"config__topics__CURRENT": "", "config__topics_json": "{}"}, "topics are in a RocksDB"),
    ],
)
def test_what_can_not_be_used_is_noted(tmp_path: Path, files: dict[str, str], note: str) -> None:
    (tmp_path / "config").mkdir()
    found = read_broker_settings(LocalFiles(), store(tmp_path, **files))
    assert found.value == BrokerSettings()
    assert note in found.notes[0]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a=1\nb:2\nc 3\nd\t=\t4 \n", {"a": "1", "b": "2", "c": "3", "d": "4 "}),
        ("# a=1\n  ! b=2\n\n   c=3", {"c": "3"}),
        ("a = 1,\\\n    2,\\\r\n  3\nb=4", {"a": "1,2,3", "b": "4"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        ("a=\\\n# not a comment", {"a": "# not a comment"}),
        ("a\\=b\\:c\\ d=e=f", {"a=b:c d": "e=f"}),
        ("a=\\u6807\\u7B7E \\ud83d\\ude00", {"a": "标签 😀"}),
        ("a=\\t\\n\\q\\\\", {"a": "\t\nq\\"}),
        ("a\nb=\n=c", {"a": "", "b": "", "": "c"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=1\\", {"a": "1"}),
        ("\\\n# a comment, as the line so far is empty\na=1", {"a": "1"}),
        ("", {}),
    ],
)
def test_properties_are_read_as_java_reads_them(text: str, value: dict[str, str]) -> None:
    assert parse_properties(text.encode()) == value


def test_properties_are_latin_1() -> None:
    assert parse_properties(b"a=\xe9") == {"a": "é"}


@given(st.binary(max_size=80) | st.text("ab=: \\\n\r\tu0#!", max_size=80).map(str.encode))
def test_any_bytes_are_properties_or_a_named_error(data: bytes) -> None:
    try:
        found = parse_properties(data)
    except CorruptStoreError as e:
        assert "hexadecimal" in e.reason
    else:
        for name, value in found.items():
            (name + value).encode()
