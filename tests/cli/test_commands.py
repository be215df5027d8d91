"""`rmq-store` as a user runs it: what it prints, its exit codes, where it stands in for a program or a person."""

from __future__ import annotations

import io
import json
import os
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import store_core
from store_core.cli.main import main
from store_core.cli.parser import COMMANDS, FILTERS, STORE_OPTIONS, make_parser
from store_core.cli.terminal import Terminal, plain
from store_core.options import OPTIONS
from tests import damage
from tests.golden_stores import Golden
from tests.synthetic import Message, build_store

ROOT = Path(__file__).resolve().parents[2]
MIXED = "mixed-5.3.3"


def run(capsys: pytest.CaptureFixture[str], *args: object) -> tuple[int, str, str]:
    code = main([str(arg) for arg in args])
    out, err = capsys.readouterr()
    return code, out, err


def lines(out: str) -> list[Any]:
    return [json.loads(line) for line in out.splitlines()]


def process(*args: object, **more: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "store_core", *map(str, args)]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)


def test_info(golden: Golden, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "info", golden(MIXED))
    assert code == 0 and "shut down cleanly  yes" in out and "2026-11-21 08:43:17.888" in out and "Orders" in out
    code, out, _ = run(capsys, "info", golden(MIXED), "--json")
    (found,) = lines(out)
    assert found["messages"] == store_core.open_store(golden(MIXED)).info()["messages"] and found["clean"] is True
    assert found["firstStoreTimestamp"].endswith("Z")


def test_info_does_not_walk_the_log(
    golden: Golden, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("the log was walked")

    monkeypatch.setattr("store_core.reading.walk", refuse)
    assert run(capsys, "info", golden(MIXED))[0] == 0


def test_topics(golden: Golden, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "topics", golden(MIXED), "--json")
    info = store_core.open_store(golden(MIXED)).info()
    assert sum(row["messages"] for row in lines(out)) == info["messages"]
    _, out, _ = run(capsys, "topics", golden(MIXED))
    assert out.splitlines()[0].split() == ["topic", "queueId", "minOffset", "maxOffset", "messages"]


def test_get(golden: Golden, capsys: pytest.CaptureFixture[str]) -> None:
    root = golden(MIXED)
    _, out, _ = run(capsys, "get", root, "--topic", "Orders", "--key", "BB", "--json")
    found = lines(out)
    assert len(found) == store_core.open_store(root).lookup("Orders", "BB").num_rows > 0
    one = found[0]
    for way in (["--id", one["offsetMsgId"]], ["--offset", one["commitLogOffset"]], ["--uniq-key", one["uniqKey"]]):
        code, out, _ = run(capsys, "get", root, *way, "--json")
        assert code == 0 and lines(out) == [one]
    code, out, err = run(capsys, "get", root, "--offset", "7")
    assert (code, out) == (1, "") and "no message at commitLogOffset 7" in err
    assert run(capsys, "get", root, "--key", "BB")[0] == 2


def test_cat_is_a_scan(golden: Golden, capsys: pytest.CaptureFixture[str]) -> None:
    root = golden(MIXED)
    _, out, _ = run(capsys, "cat", root, "--json", "--subscribe", "Orders", "--tags", "TagA")
    rows = lines(out)
    wanted = store_core.open_store(root).scan(subscribe="Orders", tags="TagA").read_all()
    assert [row["commitLogOffset"] for row in rows] == wanted["commitLogOffset"].to_pylist()
    assert all(("body" in row) != ("bodyBase64" in row) for row in rows)
    _, out, _ = run(capsys, "cat", root, "--limit", "3")
    assert len(out.splitlines()) == 3 and "\033" not in out
    code, _, err = run(capsys, "cat", root, "--subscribe", "Oders")
    assert code == 2 and "Did you mean 'Orders'" in err


def test_what_a_message_holds_does_not_reach_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    built = build_store(tmp_path / "store", [Message(topic="T", body=b"\x1b[2Jgone\r", properties=(("KEYS", "k\x1b]0;x"),))])
    for more in ([], ["--body"]):
        _, out, _ = run(capsys, "cat", built.root, *more)
        assert "\x1b" not in out and "\r" not in out and r"\x1b[2Jgone\r" in out
    assert plain("a\x1bb\u202ec") == r"a\x1bb\u202ec"


def test_tail(golden: Golden, capsys: pytest.CaptureFixture[str]) -> None:
    root = golden(MIXED)
    places = sorted(store_core.open_store(root).scan(columns=["commitLogOffset"]).read_all()["commitLogOffset"].to_pylist())
    _, out, _ = run(capsys, "tail", root, "-n", "300", "--json")
    assert [row["commitLogOffset"] for row in lines(out)] == places[-300:]
    orders = store_core.open_store(root).scan(columns=["commitLogOffset"], subscribe="Orders").read_all()["commitLogOffset"]
    _, out, _ = run(capsys, "tail", root, "-n", "2", "--json", "--subscribe", "Orders")
    assert [row["commitLogOffset"] for row in lines(out)] == sorted(orders.to_pylist())[-2:]


def test_tail_follows_until_it_is_interrupted(tmp_path: Path) -> None:
    many = [Message(topic="T", body=b"%d" % n, storeTimestamp=1_735_901_092_000 + n) for n in range(4)]
    build_store(tmp_path / "other", many)
    built = build_store(tmp_path / "store", many[:2])
    running = process("tail", built.root, "-f", "-n", "1", "--interval", "0.1", "--json")
    try:
        assert running.stdout is not None
        assert json.loads(running.stdout.readline())["body"] == "1"
        name = f"{0:020d}"
        (built.root / "commitlog" / name).write_bytes((tmp_path / "other" / "commitlog" / name).read_bytes())
        assert [json.loads(running.stdout.readline())["body"] for _ in range(2)] == ["2", "3"]
        running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=20)
    finally:
        running.kill()
    assert running.returncode == 130 and "Traceback" not in err


def test_a_reader_that_goes_away(golden: Golden) -> None:
    running = process("cat", golden(MIXED), "--json")
    assert running.stdout is not None and running.stderr is not None
    running.stdout.readline()
    running.stdout.close()
    assert running.wait(timeout=30) == 141
    assert running.stderr.read() == ""
    running.stderr.close()


def test_verify(fresh_golden: Any, capsys: pytest.CaptureFixture[str]) -> None:
    root = fresh_golden(MIXED)
    code, out, _ = run(capsys, "verify", root)
    assert code == 0 and "nothing wrong was found" in out
    damage.flip_bit(root / "commitlog" / f"{0:020d}", 4, 0)
    code, out, _ = run(capsys, "verify", root)
    assert code == 1 and "error: a record's magic is wrong (magic, 1 found)" in out and out.rstrip().endswith("1 error")
    code, out, _ = run(capsys, "verify", root, "--json")
    assert code == 1 and lines(out) == store_core.open_store(root).verify().to_pylist()


def test_verify_of_warnings_only_is_no_failure(golden: Golden, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "verify", golden("crash-5.1.4"))
    assert code == 0 and "1 warning" in out


def test_explain(golden: Golden, capsys: pytest.CaptureFixture[str]) -> None:
    root = golden(MIXED)
    _, out, _ = run(capsys, "explain", root, "--subscribe", "Orders")
    assert out == store_core.open_store(root).explain(subscribe="Orders") + "\n"
    assert "check" in run(capsys, "explain", root, "--table", "verify")[1]


@pytest.mark.parametrize("suffix", ["parquet", "jsonl"])
def test_export(golden: Golden, tmp_path: Path, capsys: pytest.CaptureFixture[str], suffix: str) -> None:
    root, target = golden(MIXED), tmp_path / f"out.{suffix}"
    code, out, _ = run(capsys, "export", root, "--to", target, "--subscribe", "Orders")
    wanted = store_core.open_store(root).scan(subscribe="Orders").read_all()
    assert code == 0 and out == f"{wanted.num_rows} messages in {target}\n"
    if suffix == "parquet":
        assert pq.read_table(target).sort_by("commitLogOffset").equals(wanted.sort_by("commitLogOffset"))
    else:
        found = lines(target.read_text(encoding="utf-8"))
        assert sorted(row["commitLogOffset"] for row in found) == sorted(wanted["commitLogOffset"].to_pylist())
    code, _, err = run(capsys, "export", root, "--to", target)
    assert code == 2 and "--force" in err
    assert run(capsys, "export", root, "--to", target, "--force")[0] == 0
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == [target.name]
    assert run(capsys, "export", root, "--to", tmp_path / "x.csv")[0] == 2


def test_an_export_that_fails_leaves_no_file(fresh_golden: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = fresh_golden(MIXED)
    damage.flip_bit(root / "commitlog" / f"{0:020d}", 4, 0)
    code, _, err = run(capsys, "export", root, "--to", tmp_path / "out.jsonl")
    assert code == 3 and "magic" in err
    assert not list(tmp_path.glob("out*"))


def test_trace(golden: Golden, capsys: pytest.CaptureFixture[str]) -> None:
    root = golden(MIXED)
    commit = store_core.open_store(root).scan(
        where=[("transactionType", "=", "commit")], extraColumns="transactionType"
    ).read_all().to_pylist()[0]  # fmt: skip
    code, out, _ = run(capsys, "trace", root, commit["uniqKey"], "--json")
    hops = lines(out)
    assert code == 0 and hops[0]["topic"] == "RMQ_SYS_TRANS_HALF_TOPIC"
    assert {hop["topic"] for hop in hops} >= {"RMQ_SYS_TRANS_OP_HALF_TOPIC", commit["topic"]}
    assert [hop["storeTimestamp"] for hop in hops] == sorted(hop["storeTimestamp"] for hop in hops)
    retried = store_core.open_store(root).scan(subscribePattern="%DLQ%.*").read_all().to_pylist()[0]
    _, out, _ = run(capsys, "trace", root, retried["uniqKey"])
    for part in ("sent", "waits, delay level", "to be consumed again by", "dead letter of"):
        assert part in out, out
    assert run(capsys, "trace", root, "nothing")[0] == 1


def test_diff(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    many = [Message(topic="T", body=b"%d" % (n // 2), properties=(("KEYS", f"k{n // 2}"),)) for n in range(20)]
    one = build_store(tmp_path / "one", many)
    other = build_store(tmp_path / "other", [*many[:7], *many[8:], many[3]], first_offset=16384)
    code, out, _ = run(capsys, "diff", one.root, other.root, "--json")
    first, *rows = lines(out)
    assert code == 1 and first["both"] == 19
    assert [side["messages"] for side in first["only"]] == [1, 1]
    assert [(row["store"], row["body"]) for row in rows] == [(str(one.root), "3"), (str(other.root), "1")]
    assert run(capsys, "diff", one.root, one.root)[0] == 0


def test_errors_have_codes_and_no_traceback(tmp_path: Path, golden: Golden, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "info", tmp_path / "nowhere")
    assert (code, out) == (3, "") and err.startswith("rmq-store: ") and "Traceback" not in err
    assert run(capsys, "info")[0] == 2
    assert run(capsys, "no-such-command", "x")[0] == 2
    assert run(capsys, "cat", golden(MIXED), "--startingTimestamp", "yesterday")[0] == 2
    assert run(capsys, "verify", golden(MIXED), "--html", tmp_path)[0] == 3


def test_help_has_examples_and_codes(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--help")
    assert code == 0 and "exit codes" in out and all(name in out for name in COMMANDS)
    for name in COMMANDS:
        code, out, _ = run(capsys, name, "--help")
        assert code == 0 and f"rmq-store {name}" in out.partition("examples:")[2]


def test_the_examples_can_be_parsed() -> None:
    for command in COMMANDS.values():
        for example in command.examples.splitlines():
            words = example.partition(" | ")[0].partition(" > ")[0].split()
            make_parser().parse_args(words[1:])


def test_filters_are_the_options_of_the_same_names() -> None:
    known = {option.name for option in OPTIONS}
    assert set(FILTERS) | set(STORE_OPTIONS) <= known
    left_out = known - set(FILTERS) - set(STORE_OPTIONS)
    assert left_out == {"path", "table", "columnNameOfCorruptRecord", "maxPartitionBytes", "minPartitions"}


def test_it_starts_without_numpy_and_arrow() -> None:
    """What takes long is imported by the command that needs it; `rmq-store --help` takes 50 ms of a core."""
    code = (
        "import sys; from store_core.cli.main import main; main(['--help']); "
        "sys.exit(any(name in sys.modules for name in ('numpy', 'pyarrow', 'store_core.store')))"
    )
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    begin = time.process_time()
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, check=False)
    assert done.returncode == 0 and time.process_time() - begin < 1


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_colours_and_progress_are_for_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")

    def used(out: io.StringIO, err: io.StringIO) -> tuple[str, str]:
        terminal = Terminal(out=out, err=err)
        terminal.table(["name", "count"], [["a", 1], ["标签", 1_000]])
        terminal.line(terminal.paint("x", "red"))
        with terminal.progress("work", 10) as advance:
            advance(5)
        return out.getvalue(), err.getvalue()

    plain_out, plain_err = used(io.StringIO(), io.StringIO())
    assert "\033" not in plain_out and plain_err == ""
    assert plain_out.splitlines()[:3] == ["name  count", "a         1", "标签  1,000"]
    out, err = used(Screen(), Screen())
    assert "\033[31mx" in out and "50%" in err and err.endswith("\r\033[K")
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\033" not in used(Screen(), Screen())[0]


def test_the_layout_options_are_heeded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    built = build_store(tmp_path / "store", [Message(topic="T", body=b"x")])
    (built.root / "commitlog").rename(built.root / "elsewhere")
    assert run(capsys, "cat", built.root)[0] == 3
    code, out, _ = run(capsys, "cat", built.root, "--storePathCommitLog", "elsewhere", "--json")
    assert code == 0 and len(lines(out)) == 1
    assert run(capsys, "verify", built.root, "--storePathCommitLog", "elsewhere")[0] in (0, 1)
    assert run(capsys, "tail", built.root, "--storePathCommitLog", "elsewhere")[0] == 0


def test_a_corrupt_range_is_a_line(fresh_golden: Any, capsys: pytest.CaptureFixture[str]) -> None:
    root = fresh_golden(MIXED)
    damage.overwrite(root / "commitlog" / f"{0:020d}", 0, struct.pack(">i", 5))
    _, out, _ = run(capsys, "cat", root, "--mode", "PERMISSIVE", "--limit", "1")
    assert out.startswith("corrupt: ") and "record size 5" in out


def damaged(root: Path, what: str) -> None:
    queue, index = root / "consumequeue" / "T" / "0" / f"{0:020d}", sorted((root / "index").iterdir())[0]
    if what == "nowhere":
        damage.overwrite(queue, 40, struct.pack(">q", 5))
    elif what == "missing":
        damage.zero(queue, 40, 20)
    elif what == "order":
        damage.swap(queue, 40, 60, 20)
    elif what == "no queues":
        damage.delete(queue)
    elif what == "slots":
        damage.zero(index, 40, 4 * 7)
    elif what == "header":
        damage.overwrite(index, 8, bytes(8))
    elif what == "loop":
        damage.overwrite(index, 40 + 4 * 7 + 20 * 9 + 16, struct.pack(">i", 9))
    elif what == "no index":
        damage.delete(index)


@pytest.mark.parametrize("what", ["nowhere", "missing", "order", "no queues", "slots", "header", "loop", "no index"])
def test_rebuild_mends_queues_and_index(tmp_path: Path, capsys: pytest.CaptureFixture[str], what: str) -> None:
    many = [Message(topic="T", body=b"%d" % n, properties=(("KEYS", f"k{n}"),)) for n in range(20)]
    root = build_store(tmp_path / "store", many, maxHashSlotNum=7, maxIndexNum=50).root
    damaged(root, what)
    assert run(capsys, "verify", root)[0] == 1 or what == "no index"
    code, out, _ = run(capsys, "rebuild", root, "--maxHashSlotNum", 7, "--maxIndexNum", 50)
    assert code == 0 and "20 records" in out and "20 entries in 1 queues and 20 entries in 1 index files" in out
    assert run(capsys, "verify", root, "--json")[:2] == (0, "")


def test_rebuild_of_one_kind_and_for_programs(fresh_golden: Any, capsys: pytest.CaptureFixture[str]) -> None:
    root = fresh_golden(MIXED)
    before = {path: path.stat().st_ino for path in (root / "index").iterdir()}
    code, out, _ = run(capsys, "rebuild", root, "--what", "consumequeue", "--json")
    (found,) = lines(out)
    assert code == 0 and found["records"] == store_core.open_store(root).info()["messages"] and not found["index_files"]
    assert {path: path.stat().st_ino for path in (root / "index").iterdir()} == before
    assert run(capsys, "verify", root)[0] == 0


def test_rebuild_refuses_damage_in_the_log_and_goes_on_when_told(fresh_golden: Any, capsys: pytest.CaptureFixture[str]) -> None:
    root = fresh_golden(MIXED)
    records = store_core.open_store(root).scan(columns=["commitLogOffset"]).read_all().num_rows
    damage.flip_bit(root / "commitlog" / f"{0:020d}", 4, 1)
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    code, out, err = run(capsys, "rebuild", root)
    assert (code, out) == (3, "") and "mode=PERMISSIVE" in err
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file() and path in before} == before
    code, out, err = run(capsys, "rebuild", root, "--mode", "PERMISSIVE", "--json")
    assert code == 0 and lines(out)[0]["records"] == records - 1 and "left out" in err
    assert run(capsys, "rebuild", root, "--what", "config")[0] == 2
    assert run(capsys, "rebuild", root / "nothing")[0] == 3
