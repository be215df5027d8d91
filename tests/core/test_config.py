"""The JSON files of `config/`, as real brokers wrote them and as crashes and editors leave them."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.config import (
    Loaded,
    SubscriptionGroup,
    TopicConfig,
    read_consumer_offsets,
    read_delay_offsets,
    read_subscription_groups,
    read_topics,
)
from store_core.errors import CorruptStoreError
from store_core.fastjson import loads_fastjson
from store_core.files import LocalFiles
from tests.golden_stores import GOLDEN_NAMES, Golden

Reader = Callable[[LocalFiles, str], Loaded[Any]]
READERS: dict[str, Reader] = {
    "topics.json": read_topics,
    "subscriptionGroup.json": read_subscription_groups,
    "delayOffset.json": read_delay_offsets,
    "consumerOffset.json": read_consumer_offsets,
    "lmqConsumerOffset.json": read_consumer_offsets,
}
EACH_READER = pytest.mark.parametrize(("name", "read"), READERS.items(), ids=READERS)


def config(root: Path, **files: str | bytes) -> str:
    """A store in `root` with these files in config/; `_` in a name stands for a dot."""
    folder = root / "config"
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        data = content if isinstance(content, bytes) else content.encode()
        (folder / name.replace("_", ".")).write_bytes(data)
    return str(root)


# --- what brokers wrote


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_every_golden_config_is_read_without_a_complaint(golden: Golden, name: str) -> None:
    root = golden(name)
    for file, read in READERS.items():
        found = read(LocalFiles(), str(root))
        assert (str(root / "config" / file) in found.paths) == (root / "config" / file).exists()
        assert all("RocksDB" in note for note in found.notes)


def test_topics_of_a_5_3_broker(golden: Golden) -> None:
    topics = read_topics(LocalFiles(), str(golden("mixed-5.3.3"))).value
    assert len(topics) == 24
    assert topics["Orders"] == TopicConfig(read_queue_nums=4, write_queue_nums=4)
    assert topics["SCHEDULE_TOPIC_XXXX"].read_queue_nums == 18
    assert topics["TBW102"].perm == 7


@pytest.mark.parametrize("name", ["mixed-5.3.3", "plain-4.9.7", "crc-5.5.0"])
def test_every_topic_with_messages_is_in_topics_json(golden: Golden, name: str) -> None:
    topics = read_topics(LocalFiles(), str(golden(name))).value
    for message in golden.messages(name):
        if not message["topic"].startswith("RMQ_SYS_TRANS_"):  # 4.x keeps these out of the file
            assert message["queueId"] < topics[message["topic"]].write_queue_nums


def test_attributes_tell_a_batch_queue(golden: Golden) -> None:
    assert read_topics(LocalFiles(), str(golden("batchcq-5.3.3"))).value["Batched"].attributes == {"queue.type": "BatchCQ"}


@pytest.mark.parametrize(("name", "group"), [("mixed-5.3.3", "CG_11"), ("plain-4.9.7", "CG_12"), ("crc-5.5.0", "CG_14")])
def test_consumer_offsets_of_three_versions(golden: Golden, name: str, group: str) -> None:
    assert read_consumer_offsets(LocalFiles(), str(golden(name))).value["ToRetry", group] == {0: 1, 1: 1, 2: 1, 3: 1}


@pytest.mark.parametrize("name", ["mixed-5.3.3", "plain-4.9.7", "crc-5.5.0"])
def test_delay_offsets_of_three_versions(golden: Golden, name: str) -> None:
    assert read_delay_offsets(LocalFiles(), str(golden(name))).value == {1: 2, 2: 2, 3: 6}


def test_groups_of_two_versions(golden: Golden) -> None:
    for name, group in (("plain-4.9.7", "CID_ONSAPI_OWNER"), ("crc-5.5.0", "CID_ONSAPI_OWNER")):
        groups = read_subscription_groups(LocalFiles(), str(golden(name))).value
        assert groups[group] == SubscriptionGroup()


def test_a_rocksdb_is_named(golden: Golden) -> None:
    root = str(golden("rocksdb-5.3.3"))
    files = LocalFiles()
    for read, folder in ((read_topics, "topics"), (read_subscription_groups, "subscriptionGroups")):
        found = read(files, root)
        assert found.value == {}
        assert found.notes == (f"{folder} are in a RocksDB ({root}/config/{folder}), which is not read",)
    assert "consumerOffsets are in a RocksDB" in read_consumer_offsets(files, root).notes[0]


@pytest.mark.parametrize("folder", ["rdb", "metadata"])
def test_one_rocksdb_for_all_is_named(tmp_path: Path, folder: str) -> None:
    (tmp_path / "config" / folder).mkdir(parents=True)
    (tmp_path / "config" / folder / "CURRENT").write_text("MANIFEST-000005\n")
    assert f"config/{folder})" in read_topics(LocalFiles(), str(tmp_path)).notes[0]
    assert read_delay_offsets(LocalFiles(), str(tmp_path)).notes == ()


# --- fastjson


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a":{0:5,1:-7\n\t}}', {"a": {"0": 5, "1": -7}}),
        ("{ -1 : 2 , 10: 3}", {"-1": 2, "10": 3}),
        ('{"t":{\n\t0:1,\n\t1:1\n}}', {"t": {"0": 1, "1": 1}}),
        ('{"{1:":"{1:2,3:4}"}', {"{1:": "{1:2,3:4}"}),
        ('{"a\\"{1:":",2:","b":{3:4}}', {'a"{1:': ",2:", "b": {"3": 4}}),
        ('{"a":"\\\\",1:2}', {"a": "\\", "1": 2}),
        ('{"a":[1,2,{3:4}]}', {"a": [1, 2, {"3": 4}]}),
        ('{"0":1,1:2}', {"0": 1, "1": 2}),
        ('{1:2,"1":3}', {"1": 3}),
        ('{"标签":{7:"😀"}}', {"标签": {"7": "😀"}}),
    ],
)
def test_integer_keys_need_no_quotes(text: str, value: object) -> None:
    assert loads_fastjson(text.encode()) == value


TREES = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | st.text('{}[],:"\\ -012a\n标', max_size=12),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text('{},:"\\-012a', max_size=6), inner, max_size=4),
    max_leaves=12,
)


@given(TREES)
def test_standard_json_means_the_same(tree: object) -> None:
    assert loads_fastjson(json.dumps(tree).encode()) == tree
    assert loads_fastjson(json.dumps(tree, indent="\t", ensure_ascii=False).encode()) == tree


@given(st.dictionaries(st.integers(), st.integers(), max_size=5))
def test_bare_integer_keys_mean_what_quoted_ones_mean(table: dict[int, int]) -> None:
    bare = "{" + ",".join(f"{k}:{v}" for k, v in table.items()) + "\n}"
    assert loads_fastjson(bare.encode()) == {str(k): v for k, v in table.items()}


@given(st.binary(max_size=60) | st.text('{}[]":,\\-0129.eNaIfnity \n', max_size=60).map(str.encode))
def test_any_bytes_are_a_value_or_a_named_error(data: bytes) -> None:
    try:
        loads_fastjson(data)
    except CorruptStoreError as e:
        assert "JSON" in e.reason


@pytest.mark.parametrize(
    ("data", "reason", "offset"),
    [
        (b'{"a":', "no JSON: Expecting value in line 1", None),
        (b'{\n"a":"\xff"}', "byte 0xff is not UTF-8", 7),
        (b'{"a":NaN}', "NaN is no number", None),
        (b'{"a":' * 100_000, "nested too deep", None),
        (b'{"a":' + b"9" * 5000 + b"}", "no JSON that a broker writes", None),
        (b"\x00" * 4096, "empty file", None),
        (b"", "empty file", None),
        (b" \n", "empty file", None),
        (b"null", "the file is None", None),
        (b"[]", "the file is []", None),
    ],
)
def test_damage_says_where_and_what(tmp_path: Path, data: bytes, reason: str, offset: int | None) -> None:
    root = config(tmp_path, topics_json=data)
    with pytest.raises(CorruptStoreError) as caught:
        read_topics(LocalFiles(), root)
    error = pickle.loads(pickle.dumps(caught.value))
    assert error.path == f"{root}/config/topics.json"
    assert error.offset == offset
    assert reason in error.reason
    assert "no readable backup topics.json.bak" in error.reason
    assert "Restore the file" in str(error)


# --- backups


@EACH_READER
def test_no_file_holds_nothing(tmp_path: Path, name: str, read: Reader) -> None:
    assert read(LocalFiles(), str(tmp_path)) == Loaded({})


@EACH_READER
def test_the_backup_stands_in_for_a_missing_file(tmp_path: Path, name: str, read: Reader) -> None:
    root = config(tmp_path, **{name + ".bak": "{}"})
    found = read(LocalFiles(), root)
    assert found.paths == (f"{root}/config/{name}.bak",)
    assert found.notes == (f"{root}/config/{name} is missing: its backup was read instead",)


@pytest.mark.parametrize("name", ["mixed-5.3.3", "plain-4.9.7", "crc-5.5.0"])
def test_a_file_cut_at_any_byte_gives_its_backup(golden: Golden, tmp_path: Path, name: str) -> None:
    """Kill the broker in the middle of a write: earlier versions overwrite the file in place."""
    data = (golden(name) / "config" / "consumerOffset.json").read_bytes()
    root = config(tmp_path, consumerOffset_json_bak=data)
    wanted = read_consumer_offsets(LocalFiles(), str(golden(name))).value
    for cut in range(len(data)):
        config(tmp_path, consumerOffset_json=data[:cut])
        found = read_consumer_offsets(LocalFiles(), root)
        assert found.value == wanted
        assert found.notes[0].startswith(f"{root}/config/consumerOffset.json: ")
        assert found.notes[0].endswith(f"the backup {root}/config/consumerOffset.json.bak was read instead")


def test_a_sound_file_beats_its_backup(tmp_path: Path) -> None:
    root = config(tmp_path, delayOffset_json='{"offsetTable":{1:2}}', delayOffset_json_bak='{"offsetTable":{1:1}}')
    assert read_delay_offsets(LocalFiles(), root) == Loaded({1: 2}, (f"{root}/config/delayOffset.json",))


def test_two_damaged_files_name_the_first(tmp_path: Path) -> None:
    root = config(tmp_path, delayOffset_json="{", delayOffset_json_bak="")
    with pytest.raises(CorruptStoreError, match=r"config/delayOffset\.json: no JSON"):
        read_delay_offsets(LocalFiles(), root)


# --- content


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"offsetTable":{3:17}}', {3: 17}),
        ('{"offsetTable":{"3":"17"}}', {3: 17}),
        ('{"offsetTable":{-1:-9223372036854775808}}', {-1: -(1 << 63)}),
        ('{"offsetTable":{3:1,3:2}}', {3: 2}),
        ('{"dataVersion":null}', {}),
    ],
)
def test_delay_offsets(tmp_path: Path, text: str, value: object) -> None:
    assert read_delay_offsets(LocalFiles(), config(tmp_path, delayOffset_json=text)).value == value


@pytest.mark.parametrize(
    "table",
    ["null", "[]", "7", '{"x":1}', "{1:true}", "{1:1.5}", "{1:null}", "{1:9223372036854775808}", '{1:"²"}', '{"$ref":"$"}'],
)
def test_offsets_of_another_type_are_corrupt(tmp_path: Path, table: str) -> None:
    root = config(tmp_path, delayOffset_json=f'{{"offsetTable":{table}}}')
    with pytest.raises(CorruptStoreError, match="was expected"):
        read_delay_offsets(LocalFiles(), root)


def test_a_topic_has_rocketmqs_defaults(tmp_path: Path) -> None:
    root = config(tmp_path, topics_json='{"topicConfigTable":{"T":{"topicName":"T","perm":4,"later":[1]}}}')
    assert read_topics(LocalFiles(), root).value == {"T": TopicConfig(read_queue_nums=16, write_queue_nums=16, perm=4)}


@pytest.mark.parametrize(
    "topic",
    ["null", '{"perm":"rw"}', '{"order":"yes"}', '{"attributes":null}', '{"attributes":{"a":1}}', '{"topicFilterType":3}'],
)
def test_a_topic_of_another_type_is_corrupt(tmp_path: Path, topic: str) -> None:
    root = config(tmp_path, topics_json=f'{{"topicConfigTable":{{"T":{topic}}}}}')
    with pytest.raises(CorruptStoreError, match=r"topicConfigTable\['T'\].* was expected"):
        read_topics(LocalFiles(), root)


def test_lmq_offsets_are_merged(tmp_path: Path) -> None:
    root = config(
        tmp_path,
        consumerOffset_json='{"offsetTable":{"A@g":{0:1},"B@g":{0:2,1:3}}}',
        lmqConsumerOffset_json='{"offsetTable":{"B@g":{0:9}},"lmqOffsetTable":{"%LMQ%a@%LMQ%g":5}}',
    )
    found = read_consumer_offsets(LocalFiles(), root)
    assert found.value == {("A", "g"): {0: 1}, ("B", "g"): {0: 9}, ("%LMQ%a", "%LMQ%g"): {0: 5}}
    assert len(found.paths) == 2
    assert "disagree about 1 of their" in found.notes[0]


@pytest.mark.parametrize("key", ["", "T", "@g", "T@", "T@g@h"])
def test_a_key_that_is_not_topic_at_group_is_noted(tmp_path: Path, key: str) -> None:
    root = config(tmp_path, consumerOffset_json=json.dumps({"offsetTable": {key: {"0": 1}, "T@g": {"0": 2}}}))
    found = read_consumer_offsets(LocalFiles(), root)
    assert found.value == {("T", "g"): {0: 2}}
    assert "is not of the form topic@group" in found.notes[0]
