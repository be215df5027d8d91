"""Random stores and random questions: does every access path give exactly what "read everything, then filter" gives?

`run` plays seeded cases and returns what differed, so that a test can fail on it, and `python -m tests.differential` (or a
benchmark) can count it. The truth is `tests.oracle`, which shares no code with `store_core`.

Two differences are no faults, and documented: a lookup by key with index=trust does not find records of transaction type
rollback (no broker indexes them), and a clock that was set back by more than a minute can hide rows from a time range.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from store_core import Store, StoreError, open_store
from store_core.schema import EXTRA_COLUMNS, MESSAGES
from tests import damage
from tests.core.rows import EXTRA, expanded, full_rows, multiset, read_quietly, rows_of, same_rows
from tests.oracle import Row, key_tokens, matches
from tests.strategies import StoreCase
from tests.synthetic import KEYS, TAGS, TOPICS

__all__ = ["INDEX_MODES", "Difference", "Question", "Summary", "ask", "random_question", "random_store", "run", "summarize"]

INDEX_MODES = ("trust", "verify", "ignore")
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
ROLLBACK = 0xC
INTEGERS = [f.name for f in [*MESSAGES, *EXTRA_COLUMNS] if str(f.type).startswith("int")]
TIMES = ["storeTimestamp", "bornTimestamp"]
TEXTS = [f.name for f in [*MESSAGES, *EXTRA_COLUMNS] if str(f.type) == "string" and f.name != "propertiesString"]
COMPARISONS = ("=", "!=", "<", "<=", ">", ">=")
BY_KEY = ("keys", "uniqKeys")


@dataclass(frozen=True)
class Question:
    """One read: `lookup` (topic, key, start, end), or `where` and options of a scan."""

    where: list[tuple[str, str, Any]] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    columns: list[str] | None = None
    lookup: tuple[str, str, Any, Any] | None = None
    by_task: bool = False

    @property
    def by_key(self) -> bool:
        """Whether an index may answer it."""
        points = any(column in ("keys", "uniqKey") and op in ("=", "in") for column, op, _ in self.where)
        return self.lookup is not None or points or any(name in self.options for name in BY_KEY)


@dataclass(frozen=True)
class Difference:
    """One answer that is not the truth. `kind`: missing, extra, content, error, or crash (not a StoreError)."""

    seed: int
    kind: str
    question: Question
    done: tuple[str, ...]
    detail: str

    def __str__(self) -> str:
        return f"seed {self.seed}: {self.kind}: {self.detail}\n  {self.question}\n  damage: {'; '.join(self.done) or 'none'}"


@dataclass
class Summary:
    """What `run` played: questions and differences by index mode, in total and by kind."""

    stores: int = 0
    questions: Counter[str] = field(default_factory=Counter)
    rows: int = 0
    differences: list[Difference] = field(default_factory=list)
    seconds: float = 0.0

    def by_mode(self, mode: str) -> list[Difference]:
        return [d for d in self.differences if d.question.options.get("index", "trust") == mode]

    def __str__(self) -> str:
        lines = [f"{self.stores} stores, {sum(self.questions.values())} questions, {self.rows} rows, {self.seconds:.0f} s"]
        for mode in INDEX_MODES:
            kinds = Counter(d.kind for d in self.by_mode(mode))
            told = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())) or "none"
            lines.append(f"index={mode}: {self.questions[mode]} questions, differences: {told}")
        return "\n".join(lines)


# --- stores --------------------------------------------------------------------------------------------------------------


def random_store(rng: random.Random) -> StoreCase:
    """Every option of `build_store` and of `random_messages`, more often as brokers leave them than not."""
    layout = rng.choice(("plain", "plain", "plain", "dledger", "multipath"))
    count = rng.choice((1, 5, 40, 80, 120, 200))
    size = rng.choice((8192, 16384, 6000))
    start = rng.choice((0, 0, 0, 3))
    ends = [rng.randrange(max(count, 1)) for _ in range(rng.choice((0, 0, 0, 1, 2)))]
    options: dict[str, Any] = {
        "layout": layout,
        "mappedFileSizeCommitLog": size,
        "mappedFileSizeConsumeQueue": rng.choice((2000, 400, 100)),
        "maxHashSlotNum": rng.choice((50, 50, 7, 1)),
        "maxIndexNum": rng.choice((1000, 100, 40, 9)),
        "first_offset": start * size,
        "first_queue_offset": start * 7,
        "expired_files": rng.choice((0, 0, 0, 1, 2)),
        "queue_lag": rng.choice((0, 0, 0, 1, 7)),
        "index_lag": rng.choice((0, 0, 0, 1, 7)),
        "index_crashes": tuple(ends),
        "index_holes": tuple(rng.randrange(6) for _ in range(rng.choice((0, 0, 0, 1, 2)))),
        "stale_tail": None if layout == "dledger" else rng.choice((None, None, "tail", "record")),
        "write_queues": rng.random() < 0.9,
        "write_index": rng.random() < 0.9,
        "config": rng.random() < 0.8,
        "checkpoint": rng.random() < 0.8,
        **{switch: rng.random() < 0.3 for switch in ("queue_ext", "index_tags", "stale_blanks", "preallocated", "abort")},
    }
    generator = {switch: rng.random() < 0.3 for switch in ("clock_steps_back", "inner_batches", "multi_dispatch")}
    return StoreCase(rng.randrange(1 << 32), count, generator, options)


# --- questions -----------------------------------------------------------------------------------------------------------


def random_question(rng: random.Random, rows: list[Row], mode: str) -> Question:
    """A lookup by key, or a scan with up to four conditions and up to three options that select rows."""
    options: dict[str, Any] = {"index": mode}
    by_task = rng.random() < 0.3
    if rng.random() < 0.7:
        options["maxPartitionBytes"] = rng.choice((97, 500, 5000, 1 << 20))
    if rng.random() < 0.25:
        topic, key = rng.choice(TOPICS), rng.choice([key for key in KEYS if " " not in key])
        carriers = [row for row in rows if row["keys"]]
        if carriers and rng.random() < 0.7:
            row = rng.choice(carriers)
            topic, key = row["topic"], rng.choice(key_tokens(row) or [key])
        start, end = (random_time(rng, rows) if rng.random() < 0.4 else None for _ in range(2))
        return Question(lookup=(topic, key, start, end), options=options | {"brokerName": "b"})
    where = [random_condition(rng, rows) for _ in range(rng.choice((0, 0, 1, 1, 1, 2, 2, 3, 4)))]
    for add in rng.sample(SELECTIONS, rng.choice((0, 0, 1, 1, 2, 3))):
        add(rng, rows, options)
    columns = None
    if rng.random() < 0.4:
        names = rng.sample([*MESSAGES.names, *EXTRA], rng.randint(0, 5))
        columns = list(dict.fromkeys(["commitLogOffset", "queueOffset", *names]))
    if rng.random() < 0.2:
        options["bodyFormat"] = "raw"
    if rng.random() < 0.2 and "bodyFormat" not in options:
        options["expandBatches"] = True
    options |= {"verifyCrc": True} if rng.random() < 0.2 else {}
    options |= {"mode": "PERMISSIVE"} if rng.random() < 0.2 else {}
    return Question(where, {"extraColumns": list(EXTRA), "brokerName": "b"} | options, columns, None, by_task)


def random_row(rng: random.Random, rows: list[Row]) -> Row | None:
    return rng.choice(rows) if rows else None


def random_time(rng: random.Random, rows: list[Row]) -> int | datetime:
    row = random_row(rng, rows)
    ms = (1_735_901_092_000 if row is None else row["storeTimestamp"]) + rng.choice(
        (0, 0, 0, 1, -1, 999, -1000, 60_000, 61_001)
    )
    return ms if rng.random() < 0.7 else EPOCH + timedelta(milliseconds=ms, microseconds=rng.choice((0, 0, 1, 999)))


def random_condition(rng: random.Random, rows: list[Row]) -> tuple[str, str, Any]:
    kind = rng.random()
    names = {
        0: ["topic", "topic", "tags", "keys", "uniqKey", "offsetMsgId", *TEXTS],
        1: INTEGERS,
        2: ["storeTimestamp", *TIMES],
    }
    if kind < 0.08:
        column = rng.choice([*MESSAGES.names, *EXTRA])
        return (column, rng.choice(("is null", "is not null")), None)
    if kind < 0.12:
        return ("body", rng.choice(COMPARISONS), value_of(rng, rows, "body") or b"")
    group = names[rng.choice((0, 0, 1, 1, 2))]
    column = rng.choice([*group, "commitLogOffset", "queueOffset", "queueId"] if group is INTEGERS else group)

    def value() -> Any:
        if column in TIMES:
            return random_time(rng, rows)
        found = value_of(rng, rows, column)
        if column in INTEGERS:
            odd = (0, -1, 1 << 31, -(1 << 31), (1 << 63) - 1, -(1 << 63), 1 << 70, -(1 << 70))
            return rng.choice(odd) if found is None or rng.random() < 0.1 else found + rng.choice((0, 0, 0, 1, -1))
        return rng.choice(("", "nothing", "Aa", "😀")) if found is None or rng.random() < 0.05 else found

    if rng.random() < 0.25:
        values = [value() for _ in range(rng.randrange(4))]
        return (column, "in", [*values, None] if rng.random() < 0.2 else values)
    return (column, rng.choice(("=", "=", "=", *COMPARISONS)), value())


def value_of(rng: random.Random, rows: list[Row], column: str) -> Any:
    row = random_row(rng, rows)
    return None if row is None else row[column]


def by_topics(rng: random.Random, rows: list[Row], options: dict[str, Any]) -> None:
    topics = sorted({row["topic"] for row in rows})
    if topics:
        options["subscribe"] = rng.sample(topics, rng.randint(1, min(2, len(topics))))


def by_pattern(rng: random.Random, rows: list[Row], options: dict[str, Any]) -> None:
    options["subscribePattern"] = rng.choice((".*", "Or.*", "%RETRY%.*", "(Payments|TopicTest)", "none"))


def by_queues(rng: random.Random, rows: list[Row], options: dict[str, Any]) -> None:
    queues = sorted({(row["topic"], row["queueId"]) for row in rows})
    chosen: dict[str, list[int]] = {}
    bounds: list[dict[str, dict[str, int]]] = [{}, {}]
    for topic, queue in rng.sample(queues, min(len(queues), rng.randint(1, 3))):
        chosen.setdefault(topic, []).append(queue)
        low, high = sorted(rng.randrange(60) for _ in range(2))
        for where, offset, special in ((bounds[0], low, -2), (bounds[1], high, -1)):
            if rng.random() < 0.5:
                where.setdefault(topic, {})[str(queue)] = special if rng.random() < 0.2 else offset
    if chosen:
        options |= {"assign": chosen, "failOnDataLoss": False}
        options |= {name: found for name, found in zip(("startingOffsets", "endingOffsets"), bounds, strict=True) if found}


def by_time(rng: random.Random, rows: list[Row], options: dict[str, Any]) -> None:
    row = random_row(rng, rows)
    if row is not None:
        start = row["storeTimestamp"] + rng.choice((0, 0, 1, -1, -70_000))
        options |= {"startingTimestamp": start} if rng.random() < 0.7 else {}
        options |= {"endingTimestamp": start + rng.choice((0, 1, 1000, 90_000, 10**7))} if rng.random() < 0.7 else {}


def by_keys(rng: random.Random, rows: list[Row], options: dict[str, Any]) -> None:
    options["keys"] = rng.sample([key for key in KEYS if " " not in key], rng.randint(1, 2))


def by_values(name: str, column: str) -> Callable[[random.Random, list[Row], dict[str, Any]], None]:
    def add(rng: random.Random, rows: list[Row], options: dict[str, Any]) -> None:
        values = [value for _ in range(rng.randint(1, 3)) if (value := value_of(rng, rows, column))]
        if values:
            options[name] = values

    return add


def by_tags(rng: random.Random, rows: list[Row], options: dict[str, Any]) -> None:
    options["tags"] = rng.sample(TAGS, rng.randint(1, 2))


SELECTIONS = (
    by_time,
    by_keys,
    by_tags,
    by_values("uniqKeys", "uniqKey"),
    by_values("offsetMsgIds", "offsetMsgId"),
)
TOPIC_SELECTIONS = (by_topics, by_pattern, by_queues)


# --- the truth -----------------------------------------------------------------------------------------------------------


def expected_rows(rows: list[Row], question: Question) -> list[Row]:
    """Read everything, then filter."""
    options = question.options
    if question.lookup is not None:
        topic, key, start, end = question.lookup
        where: list[tuple[str, str, Any]] = [("topic", "=", topic)]
        where += [("storeTimestamp", ">=", start)] if start is not None else []
        where += [("storeTimestamp", "<=", end)] if end is not None else []
        return [row for row in rows if matches(row, where) and key in key_tokens(row)]
    if options.get("expandBatches"):
        rows = expanded(rows)
    if options.get("bodyFormat") == "raw":
        from tests.core.rows import stored_body

        rows = [row | {"body": stored_body(row)} for row in rows]
    return [row for row in rows if matches(row, question.where) and is_selected(row, options)]


def is_selected(row: Row, options: dict[str, Any]) -> bool:
    import re

    checks = [
        row["storeTimestamp"] >= options.get("startingTimestamp", -(1 << 63)),
        row["storeTimestamp"] < options.get("endingTimestamp", 1 << 63),
        "keys" not in options or bool(set(key_tokens(row)) & set(options["keys"])),
        "subscribe" not in options or row["topic"] in options["subscribe"],
        "subscribePattern" not in options or re.fullmatch(options["subscribePattern"], row["topic"]) is not None,
        "assign" not in options or row["queueId"] in options["assign"].get(row["topic"], ()),
        *(
            name not in options or row[column] in options[name]
            for name, column in (("tags", "tags"), ("uniqKeys", "uniqKey"), ("offsetMsgIds", "offsetMsgId"))
        ),
    ]
    queue = row["topic"], str(row["queueId"])
    for name, lowest in (("startingOffsets", True), ("endingOffsets", False)):
        bound = options.get(name, {}).get(queue[0], {}).get(queue[1], -1)
        if bound >= 0:
            checks.append(row["queueOffset"] >= bound if lowest else row["queueOffset"] < bound)
    return all(checks)


# --- playing -------------------------------------------------------------------------------------------------------------


def answer(store: Store, question: Question) -> list[Row]:
    if question.lookup is not None:
        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            topic, key, start, end = question.lookup
            return rows_of(store.lookup(topic, key, start, end, **question.options))
    table = read_quietly(store, question.where, question.columns, by_task=question.by_task, **question.options)
    return [row for row in rows_of(table) if row.pop("_corrupt_record", None) is None]


def judge(seed: int, store: Store, rows: list[Row], question: Question, done: tuple[str, ...]) -> Iterator[Difference]:
    """At most one difference."""
    truth = expected_rows(rows, question)
    try:
        found = answer(store, question)
    except StoreError as e:
        yield Difference(seed, "error", question, done, f"{type(e).__name__}: {e}")
        return
    except Exception as e:
        yield Difference(seed, "crash", question, done, f"{type(e).__name__}: {e}")
        return
    ours, theirs = multiset(found), multiset(truth)
    missing, extra = theirs - ours, ours - theirs
    if missing and question.by_key and question.options["index"] == "trust":
        # documented: no index knows a rollback record
        known = multiset(row for row in truth if row["sysFlag"] & ROLLBACK == ROLLBACK)
        missing -= known
        truth = [row for row in truth if (row["commitLogOffset"], row["queueOffset"]) in ours]
    if extra or missing:
        kind = "missing" if missing else "extra"
        count = f"{sum(missing.values())} rows missing, {sum(extra.values())} too many, of {len(truth)}"
        detail = f"{count}: {sorted(missing | extra)[:3]}"
        yield Difference(seed, kind, question, done, detail)
        return
    try:
        same_rows(found, truth)
    except AssertionError as e:
        yield Difference(seed, "content", question, done, str(e))


def run(
    cases: int | None = None,
    seconds: float = float("inf"),
    *,
    seed: int = 0,
    questions: int = 12,
    damaged: bool = False,
) -> Summary:
    """Plays stores `seed`, `seed` + 1, ... until there were `cases` of them, or `seconds` are over.

    `damaged`: files of queues and index (never of the log) are damaged, differently for each few questions.
    """
    began = time.monotonic()
    summary = Summary()
    while (cases is None or summary.stores < cases) and time.monotonic() - began < seconds:
        play(seed + summary.stores, questions, damaged, summary)
        summary.stores += 1
    summary.seconds = time.monotonic() - began
    return summary


def play(seed: int, questions: int, damaged: bool, summary: Summary) -> None:
    """One random store, and questions about it."""
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "store"
        case = random_store(rng)
        case.build(root)
        rows = full_rows(root, "b")
        rounds = 3 if damaged else 1
        for _ in range(rounds):
            done = tuple(damage_one(rng, root) for _ in range(rng.choice((1, 1, 2, 5)))) if damaged else ()
            ask(rng, root, rows, questions // rounds, summary, seed, done)


def ask(
    rng: random.Random, root: Path, rows: list[Row], count: int, summary: Summary, seed: int, done: tuple[str, ...] = ()
) -> None:
    """`count` random questions about the store in `root`, whose rows are `rows`; now and then it is opened anew."""
    store: Store | None = None
    for _ in range(count):
        mode = rng.choice(INDEX_MODES)
        question = random_question(rng, rows, mode)
        for add in rng.sample(TOPIC_SELECTIONS, rng.choice((0, 0, 1))):
            if question.lookup is None:
                add(rng, rows, question.options)
        if store is None or rng.random() < 0.5:
            store = open_store(root)
        summary.questions[mode] += 1
        summary.rows += len(rows)
        summary.differences.extend(judge(seed, store, rows, question, done))


def damage_one(rng: random.Random, root: Path) -> str:
    """Damages one file of a queue or of the index; what was done, in words."""
    folders = ("consumequeue", "index", "index", "batchconsumequeue", "consumequeue_ext")
    files = sorted(file for kind in folders for file in (root / kind).glob("**/*") if file.is_file())
    files = [file for file in files if file.stat().st_size]
    if not files:
        return "nothing to damage"
    file = rng.choice(files)
    size = file.stat().st_size
    filled = len(file.read_bytes().rstrip(b"\0")) or 1
    kind = rng.choice(("flip", "flip", "flip", "zero", "truncate", "delete", "stretch", "swap", "random"))
    if kind == "delete":
        return damage.delete(file)
    if kind == "truncate":
        return damage.truncate(file, rng.randrange(size))
    if kind == "stretch":
        return damage.append(file, rng.randbytes(rng.choice((1, 20, 40, 46, 200))))
    at = rng.randrange(filled)
    if kind == "zero":
        return damage.zero(file, at, min(rng.choice((1, 8, 20, 40, size)), size - at))
    if kind == "random":
        length = min(rng.choice((1, 8, 20, 60)), size - at)
        return damage.overwrite(file, at, rng.randbytes(length))
    if kind == "swap":
        unit = {"index": 4, "batchconsumequeue": 46}.get(file.relative_to(root).parts[0], 20)
        places = sorted(rng.sample(range(max(size // unit, 2)), 2))
        if (places[1] + 1) * unit <= size:
            return damage.swap(file, places[0] * unit, places[1] * unit, unit)
    return damage.flip_bit(file, at, rng.randrange(8))


def summarize(cases: int, seed: int = 0) -> str:
    """Both kinds of cases, in words, for `docs/reliability.md`."""
    sound, damaged = run(cases, seed=seed), run(cases, seed=seed, damaged=True)
    return f"sound queues and index:\n{sound}\ndamaged queues and index:\n{damaged}"


if __name__ == "__main__":
    print(summarize(int(os.environ.get("RMQ_SPARK_CASES", "200")), int(sys.argv[1]) if len(sys.argv) > 1 else 0))
