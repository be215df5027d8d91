"""The examples on golden stores: what they print, what they write, and that their READMEs show what they print."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import rmq_spark
import store_core
from store_core.errors import OptionError, StoreNotFoundError
from tests.golden_stores import Golden

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"
NAMES = sorted(path.name for path in EXAMPLES.iterdir() if path.is_dir())
FIRST_SEGMENT, SECOND_SEGMENT = "00000000000000000000", "00000000000000262144"


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One session for all of them: an example's own `rmq_spark.session()` finds it running."""
    warehouse = str(tmp_path_factory.mktemp("warehouse"))
    settings: dict[str, Any] = {"spark.sql.shuffle.partitions": 2, "spark.sql.warehouse.dir": warehouse}
    running = SparkSession.getActiveSession()
    session = rmq_spark.session("local[2]", **settings)
    yield session
    if running is None:
        session.stop()


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / name / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> Run:
    """`run(name, *arguments)` is (exit code, what was printed)."""

    def run(name: str, *arguments: object) -> tuple[int, str]:
        capsys.readouterr()
        code = example(name).main([str(a) for a in arguments])
        return code, capsys.readouterr().out

    return run


@pytest.mark.parametrize("language", ["sql", "python"])
def test_the_readme_of_the_project_says_what_works(spark: SparkSession, golden: Golden, language: str) -> None:
    """The blocks marked `<!-- run -->`, on a golden store."""
    readme = re.sub("/?path/to/store", str(golden("mixed-5.3.3")), (ROOT / "README.md").read_text(encoding="utf-8"))
    blocks = re.findall(rf"<!-- run -->\n```{language}\n(.*?)```\n", readme, flags=re.DOTALL)
    assert blocks
    names = {"spark": spark}
    for block in blocks:
        if language == "python":
            exec(compile(block, "README.md", "exec"), names)
            continue
        for statement in re.sub(r"^--.*\n", "", block, flags=re.MULTILINE).split(";"):
            if statement.strip():
                spark.sql(statement).collect()
        for name in ("messages", "orders"):
            if not spark.catalog.dropTempView(name):
                spark.sql(f"DROP TABLE {name}")


def shown_in_readme(name: str) -> str:
    """The block behind the README's mark `<!-- output: ... -->`."""
    text = (EXAMPLES / name / "README.md").read_text(encoding="utf-8")
    found = re.search(r"<!-- output: [^>]*-->\n```\n(.*?)```\n", text, flags=re.DOTALL)
    assert found is not None
    return found[1]


@pytest.mark.parametrize("name", NAMES)
def test_an_example_has_a_readme_that_names_it_and_a_help_text(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    readme = (EXAMPLES / name / "README.md").read_text(encoding="utf-8")
    assert f"examples/{name}/{name}.py" in readme
    assert f"[{name}]({name}/)" in (EXAMPLES / "README.md").read_text(encoding="utf-8")
    with pytest.raises(SystemExit) as left:
        example(name).main(["--help"])
    assert left.value.code == 0
    assert "store" in capsys.readouterr().out


def test_query_by_key(run: Run, golden: Golden) -> None:
    code, out = run("query_by_key", golden("mixed-5.3.3"), "order-24", "--topic", "Orders", "--plan")
    assert code == 0
    assert "by index: 1 key in 1 topic leads to" in out
    assert "2026-11-21 08:43:18.811  broker-a Orders/1 @ 19" in out
    assert "keys 'order-24 user-18'  tags '标签'" in out
    assert out.endswith("1 message with key 'order-24' in Orders\n")


def test_query_by_key_in_all_topics_and_by_the_other_ids(run: Run, golden: Golden) -> None:
    store = golden("mixed-5.3.3")
    assert run("query_by_key", store, "order-24")[1].endswith("4 messages with key 'order-24'\n")
    _, out = run("query_by_key", store, "FD0000000000000000000000000000020F0D1DBD16A668DE4B9B0120", "--by", "uniqKey")
    assert "Orders/1 @ 19" in out
    _, out = run("query_by_key", store, "7F0000010000592C000000000001F876", "--by", "offsetMsgId")
    assert "Orders/1 @ 19" in out and out.endswith("1 message with offsetMsgId '7F0000010000592C000000000001F876'\n")


def test_query_by_key_tells_where_it_stopped_and_when_nothing_is_there(run: Run, golden: Golden) -> None:
    store = golden("mixed-5.3.3")
    assert run("query_by_key", store, "Aa", "--limit", 2)[1].endswith("... there are more than 2: --limit 0 shows all\n")
    assert run("query_by_key", store, "nobody") == (1, "0 messages with key 'nobody'\n")


def test_query_by_key_plans_for_several_stores(run: Run, golden: Golden) -> None:
    stores = [golden("mixed-5.3.3"), golden("batchcq-5.3.3")]
    code, out = run("query_by_key", *stores, "delay-4", "--topic", "Delayed", "--plan")
    assert code == 0
    assert "by index: 1 key in 1 topic" in out and f"{stores[1]}: no topic 'Delayed'\n" in out


def test_query_by_key_in_a_time_range(run: Run, golden: Golden) -> None:
    stored = ["--start", "2026-11-21T08:43:18.811Z", "--end", "2026-11-21T08:43:18.995Z"]
    assert run("query_by_key", golden("mixed-5.3.3"), "order-24", *stored)[1].endswith("1 message with key 'order-24'\n")


def test_trace_order_shows_what_its_readme_shows(run: Run, golden: Golden) -> None:
    code, out = run("trace_order", golden("mixed-5.3.3"), "retry-0")
    assert code == 0
    assert out == shown_in_readme("trace_order")


@pytest.mark.parametrize(
    ("store", "key", "meanings"),
    [
        ("mixed-5.3.3", "delay-4", ["waits, delay level 2, for Delayed/0", "delivered after delay level 2"]),
        ("mixed-5.3.3", "timer-1", ["waits until 2026-11-21 08:43:21.000 for Timed/2", "delivered by the timer"]),
        ("mixed-5.3.3", "tx-0", ["for TxOrders/3: committed later", "committed: the half message at commitLogOffset 329759"]),
        ("mixed-5.3.3", "tx-1", ["half message for TxOrders/0: rolled back"]),
        ("mixed-5.3.3", "tx-2", ["for TxOrders/1: checked, and put back", "for TxOrders/1: still waiting to be committed"]),
        ("plain-4.9.7", "tx-1", ["half message for TxOrders/1: rolled back"]),
        ("plain-4.9.7", "tx-2", ["half message for TxOrders/2: still waiting to be committed"]),
    ],
)
def test_trace_order_by_delay_timer_transaction(run: Run, golden: Golden, store: str, key: str, meanings: list[str]) -> None:
    code, out = run("trace_order", golden(store), key)
    lines = out.splitlines()
    assert code == 0
    assert len(lines) == len(meanings) + 1
    for line, meaning in zip(lines, meanings, strict=False):
        assert line.endswith(meaning)


def test_trace_order_of_nothing(run: Run, golden: Golden) -> None:
    assert run("trace_order", golden("plain-4.9.7"), "nobody") == (1, "no message with key 'nobody'\n")


def test_messages_per_minute_shows_what_its_readme_shows(run: Run, golden: Golden) -> None:
    code, out = run("messages_per_minute", golden("mixed-5.3.3"), "--every", "5s")
    assert code == 0
    assert out == shown_in_readme("messages_per_minute")


def test_messages_per_minute_of_a_topic(run: Run, golden: Golden) -> None:
    _, out = run("messages_per_minute", golden("mixed-5.3.3"), "--topic", "Orders,Delayed")
    assert out.startswith("2026-11-21 08:43:00  192  ###")
    assert out.endswith("192 messages; a bar is a minute wide, from the time (UTC) beside it\n")


def test_messages_per_minute_draws_a_chart(run: Run, golden: Golden, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the extra 'charts' is not installed")
    chart = tmp_path / "rate.png"
    code, out = run("messages_per_minute", golden("mixed-5.3.3"), "--every", "1s", "--png", chart)
    assert (code, out) == (0, f"710 messages drawn into {chart}\n")
    assert chart.read_bytes().startswith(b"\x89PNG")


def test_no_matplotlib_no_png(run: Run, golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setitem(sys.modules, "matplotlib.backends.backend_agg", None)
    code, out = run("messages_per_minute", golden("mixed-5.3.3"), "--png", tmp_path / "rate.png")
    assert code == 0
    assert out.startswith("2026-11-21 08:43:00  710  ###")
    assert not (tmp_path / "rate.png").exists()


def test_recover_to_parquet(run: Run, spark: SparkSession, fresh_golden: Callable[[str], Path], tmp_path: Path) -> None:
    """A broker that was killed, with a byte of one body flipped: all but that record, and a report of it."""
    store = fresh_golden("crash-5.1.4")
    segment = store / "commitlog" / FIRST_SEGMENT
    data = bytearray(segment.read_bytes())
    data[20004] ^= 4
    segment.write_bytes(data)
    out = tmp_path / "recovered"
    code, printed = run("recover_to_parquet", store, out)
    assert code == 0
    assert printed.replace(str(store), "path/to/store").replace(str(out), "recovered") == shown_in_readme("recover_to_parquet")
    assert printed.startswith((out / "report.txt").read_text(encoding="utf-8"))
    messages = spark.read.parquet(str(out / "messages"))
    corrupt = spark.read.parquet(str(out / "corrupt")).collect()
    assert messages.count() == 688
    assert messages.where("propertiesString is null").count() == 0
    assert [(row.start, row.end, bytes(row.raw)) for row in corrupt] == [(19771, 20310, bytes(data[19771:20310]))]


def test_recover_to_parquet_tells_of_a_missing_file(run: Run, fresh_golden: Callable[[str], Path], tmp_path: Path) -> None:
    store = fresh_golden("crash-5.1.4")
    (store / "commitlog" / SECOND_SEGMENT).unlink()
    _, printed = run("recover_to_parquet", store, tmp_path / "recovered")
    assert "1 corrupt range, 262,144 bytes:\n" in printed
    assert "no file holds commitLogOffsets [262144, 524288)" in printed


def test_recover_to_parquet_overwrites_nothing(spark: SparkSession, golden: Golden, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="is there already"):
        example("recover_to_parquet").main([str(golden("crash-5.1.4")), str(tmp_path)])


def test_compare_stores_that_are_the_same(run: Run, golden: Golden, fresh_golden: Callable[[str], Path]) -> None:
    code, out = run("compare_stores", golden("lmq-5.3.3"), fresh_golden("lmq-5.3.3"))
    assert code == 0
    assert out.endswith("no difference\n")


def test_compare_stores_by_place(run: Run, golden: Golden, fresh_golden: Callable[[str], Path]) -> None:
    """The copy lacks its last file, and has another body in one record."""
    copy = fresh_golden("mixed-5.3.3")
    (copy / "commitlog" / SECOND_SEGMENT).unlink()
    segment = copy / "commitlog" / FIRST_SEGMENT
    data = bytearray(segment.read_bytes())
    data[8:12] = (7).to_bytes(4, "big")  # BODYCRC of the first record
    segment.write_bytes(data)
    code, out = run("compare_stores", golden("mixed-5.3.3"), copy, "--by", "place", "--limit", 1)
    assert code == 1
    assert re.search(r"^Orders +180 +6 +0 +1$", out, flags=re.MULTILINE)
    assert "2026-11-21 08:43:17.888  Orders  commitLogOffset 0: other body\n... and " in out
    assert out.endswith(" records differ\n")


def test_compare_stores_by_uniq_key_and_topic(run: Run, golden: Golden) -> None:
    code, out = run("compare_stores", golden("mixed-5.3.3"), golden("plain-4.9.7"), "--topic", "Delayed, Timed", "--limit", 0)
    assert code == 1
    assert [line.split() for line in out.splitlines()[1:3]] == [["Delayed", "0", "6", "6", "0"], ["Timed", "0", "6", "0", "0"]]


def test_compare_stores_by_a_topic_that_neither_has(run: Run, golden: Golden) -> None:
    for topic in ("Ordres", "Order.", "Orders,Ordres"):
        with pytest.raises(OptionError, match=r"no topic 'Ord(res|er\.)' in "):
            run("compare_stores", golden("mixed-5.3.3"), golden("plain-4.9.7"), "--topic", topic)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("demo", "fixture_from_csv")])
def test_a_folder_that_is_no_store_is_one_sentence(name: str, tmp_path: Path) -> None:
    """Before Spark starts: none is running here."""
    nowhere = str(tmp_path / "nowhere")
    more = {"compare_stores": [nowhere], "messages_per_minute": [], "recover_to_parquet": [str(tmp_path / "out")]}
    new = str(tmp_path / "new")
    more |= {"migrate_topic": [new, "--topic", "Orders"], "redact_field": [new, "--field", "card"]}
    with pytest.raises(StoreNotFoundError, match="no such file or folder"):
        example(name).main([nowhere, *more.get(name, ["key"])])


def script(name: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """As a user runs it, but with this Python and this checkout; no terminal."""
    path = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.run(
        [sys.executable, str(EXAMPLES / name / f"{name}.py"), *map(str, arguments)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=300,
        check=False,
        cwd=ROOT,
    )


def test_an_example_as_a_script_says_what_is_wrong_without_a_traceback(tmp_path: Path) -> None:
    ran = script("query_by_key", tmp_path, "key")
    assert ran.returncode == 1
    assert ran.stderr.startswith(f"query_by_key: {tmp_path} holds no RocketMQ store")
    assert "Traceback" not in ran.stderr


def test_the_demo_as_a_script() -> None:
    ran = script("demo")
    assert ran.returncode == 0, ran.stderr
    assert "Traceback" not in ran.stdout + ran.stderr
    assert not ran.stderr.strip(), "Spark's own chatter is kept aside"
    for part in (
        "messages           710 (from queue entries)",
        "TopicTest                         216  98,030",
        "by index: 1 key in 1 topic leads to 6 records in 2 index files",
        "Payments        128  08:43:18.001  08:43:18.974",
        "examples/demo/demo.py path/to/store",
    ):
        assert part in ran.stdout


CSV = """topic,queueId,keys,tags,body
Orders,0,order-1,paid,"{""id"":1,""card"":""4111""}"
Orders,1,order-2 user-7,,"{""id"":2,""card"":null}"
Payments,,order-1,,card 4111
"""


def test_fixture_from_csv(run: Run, tmp_path: Path) -> None:
    assert CSV in (EXAMPLES / "fixture_from_csv" / "README.md").read_text(encoding="utf-8")
    (tmp_path / "messages.csv").write_text(CSV, encoding="utf-8")
    code, out = run("fixture_from_csv", tmp_path / "messages.csv", tmp_path / "store")
    assert code == 0
    assert out.replace(str(tmp_path / "store"), "path/to/new/store") == shown_in_readme("fixture_from_csv")
    store = store_core.open_store(tmp_path / "store")
    assert store.lookup("Orders", "user-7", columns=["body", "tags"]).to_pylist() == [
        {"body": b'{"id":2,"card":null}', "tags": None}
    ]
    with pytest.raises(OptionError, match="not empty"):
        run("fixture_from_csv", tmp_path / "messages.csv", tmp_path / "store")


def test_redact_field(run: Run, tmp_path: Path) -> None:
    (tmp_path / "messages.csv").write_text(CSV, encoding="utf-8")
    run("fixture_from_csv", tmp_path / "messages.csv", tmp_path / "store")
    code, out = run("redact_field", tmp_path / "store", tmp_path / "redacted", "--field", "card")
    assert code == 0
    assert out.replace(str(tmp_path / "redacted"), "path/to/new/store") == shown_in_readme("redact_field")
    same = ["topic", "queueId", "queueOffset", "keys", "storeTimestamp", "uniqKey"]
    before, after = (
        store_core.open_store(tmp_path / name).scan(columns=[*same, "body"]).read_all() for name in ("store", "redacted")
    )
    assert after.select(same) == before.select(same)
    assert after["body"].to_pylist() == [b'{"id":1,"card":"***"}', b'{"id":2,"card":"***"}', b"card 4111"]


SMALL: dict[str, Any] = {
    "mappedFileSizeCommitLog": "1m",
    "mappedFileSizeConsumeQueue": 6000,
    "maxHashSlotNum": 100,
    "maxIndexNum": 400,
}


def bodies(path: Path) -> list[tuple[str, bytes]]:
    rows = store_core.open_store(path).scan(columns=["topic", "body"]).read_all().to_pylist()
    return [(row["topic"], row["body"]) for row in rows]


def test_redact_field_wherever_a_broker_put_the_message_and_whatever_the_value_is(run: Run, tmp_path: Path) -> None:
    body = rb'{"card": {"no": "}4111", "card": [1]}, "c\u0061rd":null, "note": "my \"card\"", "n": 1.50}'
    done = rb'{"card": "***", "c\u0061rd":"***", "note": "my \"card\"", "n": 1.50}'
    where: list[tuple[str, dict[str, str]]] = [
        ("Orders", {}),
        ("SCHEDULE_TOPIC_XXXX", {"REAL_TOPIC": "Orders"}),
        ("SCHEDULE_TOPIC_XXXX", {"REAL_TOPIC": "%RETRY%G", "RETRY_TOPIC": "Orders"}),
        ("%RETRY%G_Orders", {}),
        ("Payments", {}),
    ]
    names = [topic for topic, _ in where]
    rows = [{"topic": topic, "body": body, "properties": list(given.items())} for topic, given in where]
    schema = pa.schema([("topic", pa.string()), ("body", pa.binary()), ("properties", pa.map_(pa.string(), pa.string()))])
    store_core.create_store(tmp_path / "s", pa.Table.from_pylist(rows, schema), systemTopics=True, **SMALL)
    assert run("redact_field", tmp_path / "s", tmp_path / "one", "--field", "card", "--topic", "Orders")[0] == 0
    assert bodies(tmp_path / "one") == list(zip(names, [done] * 4 + [body], strict=True))
    assert run("redact_field", tmp_path / "s", tmp_path / "all", "--field", "card")[0] == 0
    assert bodies(tmp_path / "all") == [(name, done) for name in names]


def test_redact_field_fails_where_it_left_the_field(run: Run, tmp_path: Path) -> None:
    kept = [b'{"card": 4111, ', b'{"text": "{\\"card\\": 4111}"}']
    store_core.create_store(tmp_path / "s", pa.table({"topic": ["T"] * 2, "body": pa.array(kept, pa.binary())}), **SMALL)
    code, out = run("redact_field", tmp_path / "s", tmp_path / "copy", "--field", "card")
    assert code == 1
    assert out.endswith("2 bodies of T have 'card' in them still: broken JSON, or JSON in a text\n")


def test_a_payload_that_is_a_stream_itself_is_not_taken_for_a_stored_body(run: Run, tmp_path: Path) -> None:
    payload = zlib.compress(b"what a producer compressed, before its client did so again")
    stored = pa.array([zlib.compress(payload)], pa.binary())
    given = pa.table({"topic": ["Orders"], "body": stored, "sysFlag": pa.array([0x301], pa.int32())})
    store_core.create_store(tmp_path / "s", given, bodyFormat="raw", **SMALL)
    assert run("migrate_topic", tmp_path / "s", tmp_path / "moved", "--topic", "Orders")[0] == 0
    assert run("redact_field", tmp_path / "s", tmp_path / "redacted", "--field", "card")[0] == 0
    assert bodies(tmp_path / "moved") == bodies(tmp_path / "redacted") == [("Orders", payload)]


def test_redact_field_keeps_what_it_does_not_touch(run: Run, golden: Golden, tmp_path: Path) -> None:
    code, _ = run("redact_field", golden("mixed-5.3.3"), tmp_path / "copy", "--field", "no-such-field")
    assert code == 0
    columns = ["topic", "queueId", "queueOffset", "keys", "body", "storeTimestamp", "bornHost", "properties"]
    before, after = (
        store_core.open_store(path).scan(columns=columns).read_all().to_pylist()
        for path in (golden("mixed-5.3.3"), tmp_path / "copy")
    )
    assert after == before


def test_migrate_topic(run: Run, golden: Golden, tmp_path: Path) -> None:
    source, target = golden("mixed-5.3.3"), tmp_path / "target"
    code, out = run("migrate_topic", source, target, "--topic", "Orders", "--topic", "Payments")
    assert code == 0
    assert out == shown_in_readme("migrate_topic")
    code, out = run("migrate_topic", source, target, "--topic", "Payments", "--rename", "Paid")
    assert (code, out) == (0, "Paid: 198 messages added, 198 now\n")
    columns = ["topic", "queueId", "queueOffset", "keys", "body"]
    wanted, found = (
        store_core.open_store(path).scan([("topic", "=", "Orders")], columns).read_all().to_pylist()
        for path in (source, target)
    )
    by_place = lambda row: (row["queueId"], row["queueOffset"])  # noqa: E731
    assert sorted(found, key=by_place) == sorted(wanted, key=by_place)
