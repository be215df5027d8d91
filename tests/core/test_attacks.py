"""Files made to do harm: lengths that lie, loops, names and links that lead elsewhere, files that are no files or go away.

What comes out is right rows, a declared error or a warning; never a wrong row, another error, or memory by the size that a
field claims. What the fuzzers mutate at random is in `tests/fuzz`; bombs are in `test_codecs.py` too.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import struct
import tempfile
import time
import tracemalloc
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from store_core import CorruptStoreError, ReadError, Store, StoreError, StoreNotFoundError, StoreWarning, open_store
from store_core.fastjson import loads_fastjson
from tests import damage
from tests.synthetic import Built, Message, build_store
from tests.synthetic.messages import compress, encode_record

SLOTS = 3
ENTRIES = 40 + 4 * SLOTS


def message(n: int, **more: Any) -> Message:
    return Message(**{"topic": "T", "body": b"%d" % n, "properties": (("KEYS", f"k{n % 5}"),), **more})


@pytest.fixture
def built(tmp_path: Path) -> Built:
    sizes = {"mappedFileSizeCommitLog": 2048, "mappedFileSizeConsumeQueue": 200, "maxHashSlotNum": SLOTS, "maxIndexNum": 100}
    return build_store(tmp_path / "store", [message(n) for n in range(60)], **sizes)


def look_everywhere(root: Path) -> list[int]:
    """Every way to read a store; gives the queueOffsets of one key's messages where no declared error came."""
    found: list[int] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StoreWarning)
        try:
            store = open_store(root)
            for index in ("trust", "verify", "ignore"):
                rows = store.scan(keys="k1", index=index, mode="DROPMALFORMED").read_all().to_pylist()
                assert all(row["keys"] == "k1" for row in rows)
                found = [row["queueOffset"] for row in rows]
        except StoreError:
            pass
        for look in (
            lambda: open_store(root).lookup("T", "k1"),
            lambda: open_store(root).info(),
            lambda: open_store(root).verify(),
            lambda: open_store(root).scan(subscribe="T", failOnDataLoss=False).read_all(),
            lambda: open_store(root, table="consumequeue").scan().read_all(),
            lambda: open_store(root, table="index").scan().read_all(),
        ):
            try:
                look()
            except StoreError as e:
                assert str(e)
    return found


# --- index ---------------------------------------------------------------------------------------------------------------


def index_file(built: Built) -> Path:
    return built.root / "index" / built.index[0].name


def truth(root: Path) -> list[int]:
    return open_store(root).scan(keys="k1", index="ignore").read_all()["queueOffset"].to_pylist()


@pytest.mark.parametrize("prev", [20, 21, 39, 41, -1, 0x7FFFFFFF, -0x80000000])
def test_index_chains_that_loop_or_lead_out(built: Built, prev: int) -> None:
    for entry in range(1, 61):
        damage.overwrite(index_file(built), ENTRIES + 20 * entry + 16, struct.pack(">i", prev))
    before = time.process_time()
    assert look_everywhere(built.root) == truth(built.root)
    assert time.process_time() - before < 5
    assert open_store(built.root).lookup("T", "k1").num_rows == 12


@pytest.mark.parametrize(
    ("at", "value"),
    [(0, -1), (0, 1 << 62), (8, -1), (8, 0), (16, 1 << 62), (16, -1), (24, -1), (24, 1 << 62), (32, -1), (36, 0x7FFFFFFF)],
)
def test_index_headers_that_lie(built: Built, at: int, value: int) -> None:
    """Times reversed or negative, offsets beyond the log, counts beyond the file."""
    damage.overwrite(index_file(built), at, struct.pack(">q" if at < 32 else ">i", value))
    assert look_everywhere(built.root) == truth(built.root)
    assert open_store(built.root).lookup("T", "k1").num_rows == 12


# --- lengths -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["plain", "dledger"])
@pytest.mark.parametrize("field", ["size", "body", "topic", "properties", "entry"])
@pytest.mark.parametrize("value", [0x7FFFFFFF, -1, -0x80000000, 0])
def test_length_bombs(tmp_path: Path, layout: str, field: str, value: int) -> None:
    root = build_store(tmp_path / "s", [message(n) for n in range(20)], layout=layout, mappedFileSizeCommitLog=4096).root
    offsets = open_store(root).scan(columns=["commitLogOffset"]).read_all()["commitLogOffset"].to_pylist()
    start = offsets[7]
    file = next(path for path in root.rglob("0" * 20) if path.parent.name in ("commitlog", "data"))
    body = int.from_bytes(damage.read(file, start + 84, 4), "big")
    at, kind = {
        "size": (0, ">i"),
        "body": (84, ">i"),
        "topic": (88 + body, ">b"),
        "properties": (88 + body + 2, ">h"),
        "entry": (-44 if layout == "dledger" else 0, ">i"),
    }[field]
    low = -(1 << 8 * struct.calcsize(kind) - 1)
    damage.overwrite(file, start + at, struct.pack(kind, min(max(value, low), -low - 1)))
    tracemalloc.start()
    before = pa.total_allocated_bytes()
    with pytest.raises(CorruptStoreError):
        open_store(root).scan().read_all()
    with pytest.warns(StoreWarning):
        rest = open_store(root).scan(mode="DROPMALFORMED").read_all()["commitLogOffset"].to_pylist()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert rest == [offset for offset in offsets if offset != start]
    assert peak < 32 << 20 and pa.total_allocated_bytes() - before < 32 << 20
    look_everywhere(root)


@pytest.mark.parametrize("name", ["zlib", "lz4", "zstd"])
def test_a_store_of_bombs(tmp_path: Path, name: str) -> None:
    """Bodies that grow by some hundred to a thousand times and more: an error, or what the option allows, one at a time."""
    flags = 1 | {"zlib": 3, "lz4": 1, "zstd": 2}[name] << 8
    stored = compress(bytes(32 << 20), name)
    assert (32 << 20) / len(stored) > 200
    root = build_store(
        tmp_path / "s", [message(n, body=stored, sysFlag=flags) for n in range(8)], mappedFileSizeCommitLog=4 << 20
    ).root
    before = pa.default_memory_pool().bytes_allocated()
    tracemalloc.start()
    with pytest.raises(CorruptStoreError, match="maxDecompressedSize"):
        open_store(root).scan(maxDecompressedSize="1m").read_all()
    with pytest.warns(StoreWarning):
        assert open_store(root).scan(maxDecompressedSize="1m", mode="DROPMALFORMED").read_all().num_rows == 0
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 24 << 20 and pa.default_memory_pool().bytes_allocated() - before < 8 << 20


@pytest.mark.parametrize(("count", "size"), [(40, 8), (6, 60)])
@pytest.mark.parametrize("expand", [False, True])
def test_memory_is_bounded_though_bodies_are_compressed(tmp_path: Path, count: int, size: int, expand: bool) -> None:
    """With default options: all bodies of one buffer together are many times as large as a batch may be."""
    stored = zlib.compress(bytes(size << 20), 9)
    flags = 1 | 3 << 8
    root = build_store(
        tmp_path / "s",
        [message(n, body=stored, sysFlag=flags) for n in range(count)],
        mappedFileSizeCommitLog=4 << 20,
    ).root
    rows = []
    before = pa.default_memory_pool().bytes_allocated()
    for batch in open_store(root).scan(columns=["queueOffset", "body"], expandBatches=expand):
        assert batch.nbytes < (32 + size + 1) << 20
        assert pa.default_memory_pool().bytes_allocated() - before < 3 * (32 + size) << 20
        assert all(len(body.as_buffer()) == size << 20 for body in batch.column("body"))
        rows += batch.column("queueOffset").to_pylist()
        del batch
    assert rows == list(range(count))


def test_quotes_without_end_take_linear_time() -> None:
    before = time.process_time()
    with pytest.raises(CorruptStoreError):
        loads_fastjson(b'"' + b'\\"' * 500_000)
    assert time.process_time() - before < 5


# --- names and links -----------------------------------------------------------------------------------------------------

NAMES = ["../../outside", "a/b", "..", ".", "", "/etc", "\0", "\ud800", "x" * 5000, "%s%n", "a b", "T\n", "消息", "-", "~", "@"]


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_names_in_config(built: Built, name: str) -> None:
    config = built.root / "config"
    topics = {"topicConfigTable": {name: {"topicName": name, "attributes": {"+queue.type": "BatchCQ"}}}}
    (config / "topics.json").write_text(json.dumps(topics))
    (config / "consumerOffset.json").write_text(json.dumps({"offsetTable": {f"{name}@g": {"0": 3}, f"T@{name}": {"0": 1}}}))
    outside = built.root.parent / "outside" / "0"
    outside.mkdir(parents=True)
    (outside / ("0" * 20)).write_bytes(struct.pack(">qiq", 0, 100, 0) * 10)
    assert look_everywhere(built.root) == truth(built.root)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StoreWarning)
        try:
            assert open_store(built.root).scan(where=[("topic", "=", name)]).read_all().num_rows == 0
        except StoreError as e:
            assert str(e)


@pytest.mark.parametrize("name", ["a b", "%RETRY%g", "消息 🚀", "-rf", "~", "$(x)", "x" * 120, "'\"", "*", "a.b", "\x7f"])
def test_topics_of_odd_characters(tmp_path: Path, name: str) -> None:
    root = build_store(tmp_path / "s", [message(n, topic=name) for n in range(6)]).root
    store = open_store(root)
    assert (root / "consumequeue" / name / "0").is_dir()
    assert store.scan().read_all()["topic"].to_pylist() == [name] * 6
    assert store.scan(where=[("topic", "=", name)]).read_all().num_rows == 6
    assert store.lookup(name, "k0").num_rows == 2
    assert store.info()["topics"][name]["messages"] == 6
    assert "error" not in store.verify()["severity"].to_pylist()


def test_a_record_whose_topic_is_a_path(tmp_path: Path) -> None:
    root = build_store(tmp_path / "s", [message(n, topic="../../x") for n in range(3)], write_queues=False).root
    assert open_store(root).scan(subscribe="../../x").read_all().num_rows == 3
    look_everywhere(root)


def test_links(built: Built) -> None:
    expected = truth(built.root)
    for folder in ("commitlog", "consumequeue", "index", "config", "consumequeue/T"):
        (built.root / folder / "loop").symlink_to("loop")
        (built.root / folder / "up").symlink_to(built.root)
        (built.root / folder / "gone").symlink_to("nowhere")
    (built.root / "commitlog" / f"{1 << 40:020d}").symlink_to(f"{1 << 40:020d}")
    (built.root / "consumequeue" / "T" / "0" / f"{1 << 40:020d}").symlink_to(f"{1 << 40:020d}")
    (built.root / "index" / "20991231235959999").symlink_to("20991231235959999")
    for name in ("abort", "checkpoint"):
        (built.root / name).unlink(missing_ok=True)
        (built.root / name).symlink_to(name)
    (built.root / "config" / "topics.json").unlink()
    (built.root / "config" / "topics.json").symlink_to("topics.json")
    assert look_everywhere(built.root) == expected


def test_a_store_that_is_a_link(built: Built, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(built.root)
    assert look_everywhere(tmp_path / "link") == truth(built.root)
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(StoreNotFoundError):
        open_store(tmp_path / "loop")


FILES: list[tuple[str, Callable[[Path], list[Path]]]] = [
    ("commitlog", lambda root: sorted((root / "commitlog").iterdir())[1:2]),
    ("last", lambda root: sorted((root / "commitlog").iterdir())[-1:]),
    ("queue", lambda root: sorted((root / "consumequeue" / "T" / "0").iterdir())[:1]),
    ("index", lambda root: sorted((root / "index").iterdir())[:1]),
    ("small", lambda root: [root / "checkpoint", root / "abort", root / "lock", *(root / "config").iterdir()]),
]


@pytest.mark.parametrize(("name", "those"), FILES, ids=[name for name, _ in FILES])
@pytest.mark.parametrize("kind", ["folder", "pipe"])
def test_what_is_no_file(built: Built, name: str, those: Callable[[Path], list[Path]], kind: str) -> None:
    expected = truth(built.root)
    for path in those(built.root):
        path.unlink(missing_ok=True)
        path.mkdir() if kind == "folder" else os.mkfifo(path)
    found = look_everywhere(built.root)
    assert found == expected if name not in ("commitlog", "last") else set(found) <= set(expected)
    if name == "commitlog":
        with pytest.raises(CorruptStoreError, match="no file holds"):
            open_store(built.root).scan().read_all()


# --- files that go away --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "those"), FILES[:4], ids=[name for name, _ in FILES[:4]])
@pytest.mark.parametrize("how", ["gone", "empty", "short", "folder"])
def test_files_that_change_after_the_store_was_opened(
    built: Built, name: str, those: Callable[[Path], list[Path]], how: str
) -> None:
    """Between open and read, and between plan and read."""
    whole = open_store(built.root).scan().read_all().to_pylist()
    reads: list[Callable[[Store], Any]] = [
        lambda store: store.scan().read_all().to_pylist(),
        lambda store: store.scan(keys="k1").read_all().to_pylist(),
        lambda store: store.lookup("T", "k1").to_pylist(),
        lambda store: store.scan(subscribe="T", startingOffsets='{"T":{"0":2}}').read_all().to_pylist(),
        lambda store: [],
    ]
    stores = [(open_store(built.root), read) for read in reads]
    planned = open_store(built.root)
    batches = planned.scan(subscribe="T")
    for path in those(built.root):
        if how in ("gone", "folder"):
            path.unlink()
        if how == "folder":
            path.mkdir()
        if how in ("empty", "short"):
            os.truncate(path, 0 if how == "empty" else path.stat().st_size // 2 + 3)
    for store, read in [*stores, (planned, lambda _: batches.read_all().to_pylist())]:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            try:
                rows = read(store)
            except StoreError as e:
                assert str(e)
                continue
        assert all(row in whole for row in rows)
        if name == "commitlog" and read is stores[0][1]:
            assert said, "a file in the middle is gone, and nothing was said"


def test_a_store_that_vanishes(built: Built) -> None:
    store = open_store(built.root)
    shutil.rmtree(built.root)
    with pytest.raises(StoreError):
        store.scan().read_all()
    with pytest.raises(StoreNotFoundError):
        open_store(built.root)


def test_what_the_system_refuses_to_read_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """No permission, at each step of the way in; then a disk that fails."""
    with tempfile.TemporaryDirectory() as folder:  # pytest's own folders are closed to others
        above = Path(folder)
        root = build_store(above / "store", [message(n) for n in range(20)], mappedFileSizeCommitLog=4096).root
        log = next((root / "commitlog").iterdir())
        for closed in (above, root, root / "commitlog", log):
            above.chmod(0o755)
            open_to_all = closed.stat().st_mode
            closed.chmod(0)
            user = os.geteuid()
            os.seteuid(user or 65534)
            try:
                with pytest.raises(ReadError, match=r"can't be read: Permission denied\. Give this user the right to read it"):
                    open_store(root).scan().read_all()
            finally:
                os.seteuid(user)
                closed.chmod(open_to_all)

        def fails(*_: object) -> int:
            raise OSError(errno.EIO, "Input/output error")

        store = open_store(root)
        for call in ("pread", "preadv"):
            monkeypatch.setattr(os, call, fails)
        with pytest.raises(ReadError, match=rf"{log} can't be read: Input/output error\. The disk"):
            store.scan().read_all()


# --- bodies that look like records ---------------------------------------------------------------------------------------


def test_a_body_that_forges_a_record_at_a_cut(tmp_path: Path) -> None:
    """A producer sees where its messages come to stand, and can aim at a cut of the log. More: `test_boundaries`."""
    length, at = 5000, 3000

    def build(body: bytes) -> Built:
        shutil.rmtree(tmp_path / "s", ignore_errors=True)
        bodies = [b"x" * 500, body, b"y" * 300]
        return build_store(tmp_path / "s", [message(0, body=each) for each in bodies], mappedFileSizeCommitLog=8192)

    real = build(bytes(length)).records[1]
    place = real.commitLogOffset + 88 + at
    size = len(real.record) - 88 - at
    bare = len(encode_record(Message(topic="Payments", body=b"FORGED", properties=b"PAD\1"), place, 7))
    forged = encode_record(Message(topic="Payments", body=b"FORGED", properties=b"PAD\1" + b"p" * (size - bare)), place, 7)
    built = build(b"b" * at + forged[: length - at])  # the message's own topic and properties end the forged one's properties
    there = [record.commitLogOffset for record in built.records]
    for cut in (place - 1, place, place - at, 1000):
        plan = open_store(built.root).plan(maxPartitionBytes=cut)
        rows = [row for task in plan.tasks for batch in plan.read(task) for row in batch.to_pylist()]
        assert [(row["topic"], row["commitLogOffset"]) for row in rows] == [("T", offset) for offset in there]
        assert "error" not in open_store(built.root).verify(maxPartitionBytes=cut)["severity"].to_pylist()
    assert open_store(built.root).scan(where=[("commitLogOffset", "=", place)]).read_all().num_rows == 0
    later = open_store(built.root).scan(where=[("commitLogOffset", ">=", place)]).read_all()
    assert later["commitLogOffset"].to_pylist() == there[2:]
