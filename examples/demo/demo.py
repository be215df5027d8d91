"""What `make demo` runs: a store that a real broker wrote, read with SQL; no broker, nothing to set up.

python examples/demo/demo.py [path/to/a/store/of/your/own]
"""

from __future__ import annotations

import argparse
import os
import sys
import tarfile
import tempfile
import textwrap
import time
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException

import rmq_spark
import store_core

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROOT = Path(__file__).resolve().parents[2]
STORE = "mixed-5.3.3"
WIDTH = 100


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(description="Show what can be asked of a broker's store.")
    p.add_argument("store", nargs="?", help="a store folder of your own; without it a small one is unpacked")
    return p


def title(text: str) -> None:
    print(f"\n{text}\n{'-' * len(text)}\n")


def code(text: str) -> None:
    """Shows what is about to be run."""
    print(textwrap.indent(textwrap.dedent(text).strip(), "    "), end="\n\n")


def table(frame: DataFrame) -> int:
    """Prints all rows as plain text, numbers to the right; returns how many there were."""
    rows = frame.collect()
    names = frame.columns
    lines = [list(names), *([f"{v:,}" if isinstance(v, int) else "" if v is None else v for v in row] for row in rows)]
    widths = [max(map(columns_of, column)) for column in zip(*lines, strict=True)]
    numbers = [bool(rows) and isinstance(value, int) for value in (rows[0] if rows else names)]
    for line in lines:
        padded = []
        for cell, width, is_number in zip(line, widths, numbers, strict=True):
            space = " " * (width - columns_of(cell))
            padded.append(space + cell if is_number else cell + space)
        print(("    " + "  ".join(padded)).rstrip())
    return len(rows)


def columns_of(text: str) -> int:
    """How many columns of a terminal the text takes: Chinese characters take two."""
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


@contextmanager
def quiet_start() -> Iterator[None]:
    """What Spark's Java prints to stderr is kept aside, and shown only if it fails."""
    sys.stderr.flush()
    with tempfile.TemporaryFile() as aside:
        stderr = os.dup(2)
        os.dup2(aside.fileno(), 2)
        try:
            yield
        except BaseException:
            os.dup2(stderr, 2)
            aside.seek(0)
            sys.stderr.write(aside.read().decode("utf-8", "replace"))
            raise
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)


def what_is_in_it(store: store_core.Store) -> None:
    title("What is in the store? From names and sizes of files, bounds of queues, and a few headers")
    code("""
        store = store_core.open_store(path)
        store.info()
    """)
    info = store.info()
    log, index = info["commitLog"], info["index"]
    counted = "not counted" if info["messages"] is None else f"{info['messages']:,} (from {info['countedFrom']})"
    facts = {
        "broker": info["brokerName"] or "not told by its files",
        "layout": info["layout"],
        "shut down cleanly": "yes" if info["clean"] else "no, or a broker has it open now",
        "commitlog": f"{log['files']:,} files, {log['bytes']:,} bytes",
        "messages": counted,
        "topics": f"{len(info['topics']):,}, with {sum(len(t['queues']) for t in info['topics'].values()):,} queues",
        "index": f"{index['files']:,} files, {index['entries']:,} entries",
        "stored": f"{info['firstStoreTimestamp']:%Y-%m-%d %H:%M:%S} to {info['lastStoreTimestamp']:%Y-%m-%d %H:%M:%S} UTC",
        "consumer groups": ", ".join(sorted(info["consumers"])) or "none",
    }
    for name, value in facts.items():
        print(f"    {name:<18} {value}")
    for note in info["notes"]:
        print(f"    note: {note}")


def messages_per_topic(spark: SparkSession, store: str) -> None:
    title("Messages per topic, in SQL")
    code("""
        spark.read.format("rocketmq-store").load(path).createOrReplaceTempView("messages")

        SELECT topic, count(*) AS messages, sum(storeSize) AS bytes, min(storeTimestamp) AS first, max(storeTimestamp) AS last
        FROM messages GROUP BY topic ORDER BY messages DESC, topic
    """)
    spark.read.format("rocketmq-store").load(store).createOrReplaceTempView("messages")
    table(
        spark.sql("""
            SELECT topic, count(*) AS messages, sum(storeSize) AS bytes,
                   date_format(min(storeTimestamp), 'HH:mm:ss.SSS') AS first,
                   date_format(max(storeTimestamp), 'HH:mm:ss.SSS') AS last
            FROM messages GROUP BY topic ORDER BY messages DESC, topic
        """)
    )


def a_key_to_look_for(spark: SparkSession) -> tuple[str, str] | None:
    """(topic, key): a key that a few messages of one topic carry; if there is such a one, beside other keys of theirs."""
    rows = spark.sql("""
        SELECT topic, explode(split(keys, ' ')) AS key, keys FROM messages
        WHERE keys IS NOT NULL AND NOT topic RLIKE '^(%|rmq_sys_|RMQ_SYS_|SCHEDULE_TOPIC_XXXX)' LIMIT 10000
    """).collect()
    counts = Counter((row.topic, row.key) for row in rows if row.key)
    joint = {(row.topic, row.key) for row in rows if row.keys != row.key}
    few = [pair for pair, count in counts.items() if 2 <= count <= 6]
    return min(few or counts, key=lambda pair: (pair not in joint, -counts[pair], pair), default=None)


def lookup(spark: SparkSession, store: store_core.Store, found: tuple[str, str] | None) -> None:
    if found is None:
        title("A lookup by key: no message here has keys")
        return
    topic, key = found
    title(f"Which messages of {topic} have the key {key!r}? By hash slot in the broker's index, not by a scan")
    code(f"""
        spark.read.format("rocketmq-store").option("subscribe", {topic!r}).option("keys", {key!r}).load(path)
    """)
    reader = spark.read.format("rocketmq-store").options(subscribe=topic, keys=key)
    count = table(
        reader.load(store.path).selectExpr(
            "date_format(storeTimestamp, 'HH:mm:ss.SSS') AS stored",
            "concat(topic, '/', queueId, ' @ ', queueOffset) AS queue",
            "keys",
            "tags",
            "right(uniqKey, 12) AS `uniqKey ends`",
            "length(body) AS body",
        )
    )
    print(f"\n    {count} messages. The plan, what is read and what is not:\n")
    code(f"print(store.explain(subscribe={topic!r}, keys={key!r}))")
    plan = store.explain(subscribe=topic, keys=key).replace(f"{store.path}/", "")
    for line in plan.splitlines():
        print(textwrap.fill(line, WIDTH, initial_indent="    ", subsequent_indent="        ", break_long_words=False))


def time_range(spark: SparkSession, store: store_core.Store) -> None:
    first = store.info()["firstStoreTimestamp"]
    if first is None:
        return
    start = first.replace(microsecond=0) + timedelta(seconds=1)
    low, high = (f"{moment:%Y-%m-%dT%H:%M:%SZ}" for moment in (start, start + timedelta(seconds=1)))
    title("A time range: only the files, and the parts of queues, that can hold it are read")
    code(f"""
        reader = spark.read.format("rocketmq-store").option("startingTimestamp", "{low}").option("endingTimestamp", "{high}")
        reader.schema("topic string, storeTimestamp timestamp")  # only these columns are decoded
        reader.load(path).createOrReplaceTempView("a_second")

        SELECT topic, count(*) AS messages, min(storeTimestamp) AS first, max(storeTimestamp) AS last
        FROM a_second GROUP BY topic ORDER BY topic
    """)
    reader = spark.read.format("rocketmq-store").options(startingTimestamp=low, endingTimestamp=high)
    reader.schema("topic string, storeTimestamp timestamp").load(store.path).createOrReplaceTempView("a_second")
    table(
        spark.sql("""
            SELECT topic, count(*) AS messages, date_format(min(storeTimestamp), 'HH:mm:ss.SSS') AS first,
                   date_format(max(storeTimestamp), 'HH:mm:ss.SSS') AS last
            FROM a_second GROUP BY topic ORDER BY topic
        """)
    )


def write(spark: SparkSession, store: store_core.Store, found: tuple[str, str] | None) -> None:
    """Some messages of one topic, changed, as a new store, which is read back."""
    if found is None:
        return
    topic, key = found
    title(f"The other way round: {topic} with its bodies in capitals, as a new store that a stock broker boots on")
    code(f"""
        upper = "SELECT topic, queueId, keys, tags, binary(upper(string(body))) AS body FROM messages WHERE topic = {topic!r}"
        df = spark.sql(upper)
        df.write.format("rocketmq-store").mode("append").save(new)
    """)
    with tempfile.TemporaryDirectory(prefix="rmq-spark-written-") as folder:
        new = str(Path(folder) / "store")
        changed = spark.sql(f"""
            SELECT topic, queueId, keys, tags, binary(upper(string(body))) AS body FROM messages
            WHERE topic = {topic!r} ORDER BY commitLogOffset LIMIT 10000
        """)
        changed.write.format("rocketmq-store").mode("append").save(new)
        for name in sorted(each.relative_to(new).parts[0] for each in Path(new).iterdir()):
            print(f"    {name}{'/' if (Path(new) / name).is_dir() else ''}")
        written = store_core.open_store(new)
        count = spark.read.format("rocketmq-store").load(new).count()
        keyed = len(written.lookup(topic, key))
        print(f"\n    read back: {count:,} messages, {keyed} of them with the key {key!r}")


def your_own() -> None:
    title("Now your own store")
    python = os.path.relpath(sys.executable) if Path(sys.executable).is_relative_to(Path.cwd()) else "python"
    print(
        textwrap.dedent(f"""\
        Copy a broker's storePathRootDir, or take a live broker's folder: it is only read. Then

            {python} examples/demo/demo.py path/to/store

        or, in {python}:

            import rmq_spark
            spark = rmq_spark.session()
            spark.read.format("rocketmq-store").load("path/to/store").createOrReplaceTempView("messages")
            spark.sql("SELECT topic, count(*) FROM messages GROUP BY topic").show()

        README.md has the tables, the options and the limits; examples/ more to start from.""")
    )


def run(folder: str) -> None:
    started = time.monotonic()
    store = store_core.open_store(folder)
    what_is_in_it(store)
    print("\nStarting Spark ...", flush=True)
    with quiet_start():
        settings: dict[str, Any] = {"spark.sql.shuffle.partitions": 4}
        spark = rmq_spark.session(**settings)
    ready = time.monotonic()
    messages_per_topic(spark, store.path)
    found = a_key_to_look_for(spark)
    lookup(spark, store, found)
    time_range(spark, store)
    write(spark, store, found)
    done = time.monotonic()
    your_own()
    print(f"\n(Spark started in {ready - started:.1f} s, and answered in {done - ready:.1f} s.)")


def main(argv: Sequence[str] | None = None) -> int:
    args = parser().parse_args(argv)
    if args.store:
        run(args.store)
        return 0
    with tempfile.TemporaryDirectory(prefix="rmq-spark-demo-") as folder:
        with tarfile.open(ROOT / "tests" / "golden" / f"{STORE}.tar.gz") as archive:
            # Debian 12's Python has no filters yet; the archive is our own
            archive.extraction_filter = getattr(tarfile, "data_filter", None)
            archive.extractall(folder)
        print(f"The store of a RocketMQ 5.3.3 broker, as it left it (tests/golden/{STORE}.tar.gz). No broker is running.")
        run(str(Path(folder) / STORE))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (store_core.StoreError, PySparkException, RuntimeError) as e:
        sys.exit(f"demo: {e}")
