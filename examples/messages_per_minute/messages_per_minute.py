"""How many messages were stored in each minute, as a chart: bars of text, or a PNG by topic.

python examples/messages_per_minute/messages_per_minute.py path/to/store --png rate.png
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import functions as F

import rmq_spark
import store_core

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
WIDTH = 60
MOST_TOPICS = 8
OTHERS = "other topics"

Counts = Mapping[tuple[int, str], int]
"""(start of the interval in seconds since 1970, topic) -> messages."""


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(description="Chart how many messages a store took in each minute.")
    p.add_argument("store", nargs="+", help="a broker's store folder (several are added up)")
    p.add_argument("--topic", help="only these topics: a comma list")
    p.add_argument("--start", help="stored at or after: milliseconds, or ISO-8601 with a zone (2026-11-21T08:43:18Z)")
    p.add_argument("--end", help="stored before")
    p.add_argument("--every", type=interval, default="1m", metavar="N[smhd]", help="the bars' width (default 1m)")
    p.add_argument("--png", type=Path, metavar="FILE", help="draw a chart by topic into this file (needs matplotlib)")
    return p


def interval(text: str) -> int:
    """`30s`, `1m`, `6h`, `1d` in seconds."""
    if not text[:-1].isdigit() or text[-1] not in UNITS or int(text[:-1]) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no interval: give a number and one of s, m, h, d, as in 5m")
    return int(text[:-1]) * UNITS[text[-1]]


def count(stores: Sequence[str], options: Mapping[str, str], every: int) -> dict[tuple[int, str], int]:
    # only these two columns are decoded
    reader = rmq_spark.session().read.format("rocketmq-store").schema("topic string, storeTimestamp timestamp")
    start = (F.floor(F.unix_seconds("storeTimestamp") / every) * every).alias("start")
    rows = reader.options(**options).load(list(stores)).groupBy(start, "topic").count().collect()
    return {(row["start"], row["topic"]): row["count"] for row in rows}


def text_chart(counts: Counts, every: int) -> Iterator[str]:
    """A line for each interval; a run of empty ones is told in one line."""
    totals: Counter[int] = Counter()
    for (start, _), messages in counts.items():
        totals[start] += messages
    most = max(totals.values())
    digits = len(f"{most:,}")
    before: int | None = None
    for start in sorted(totals):
        if before is not None and (empty := (start - before) // every - 1):
            yield f"{'':19}  {'':>{digits}}  ({empty} interval{'' if empty == 1 else 's'} without messages)"
        bar = "#" * max(round(WIDTH * totals[start] / most), 1)
        yield f"{moment(start):%Y-%m-%d %H:%M:%S}  {totals[start]:>{digits},}  {bar}"
        before = start


def moment(seconds: int) -> datetime:
    return EPOCH + timedelta(seconds=seconds)


def draw(counts: Counts, every: int, file: Path) -> None:
    """Stacked bars, a colour for each of the largest topics. Errors: ImportError without matplotlib."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.dates import date2num
    from matplotlib.figure import Figure

    sizes: Counter[str] = Counter()
    for (_, topic), messages in counts.items():
        sizes[topic] += messages
    named = [topic for topic, _ in sizes.most_common(MOST_TOPICS)]
    starts = sorted({start for start, _ in counts})
    heights: Counter[tuple[int, str]] = Counter()
    for (start, topic), messages in counts.items():
        heights[start, topic if topic in named else OTHERS] += messages
    figure = Figure(figsize=(12, 5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    places = date2num([moment(start) for start in starts])
    floor = [0] * len(starts)
    for topic in [*named, OTHERS]:
        own = [heights[start, topic] for start in starts]
        if any(own):
            label = topic.replace("$", r"\$")  # else mathematics begins there
            axes.bar(places, own, width=every / UNITS["d"], align="edge", bottom=floor, label=label)
            floor = [low + height for low, height in zip(floor, own, strict=True)]
    axes.set_ylim(0, 1.05 * max(floor))
    axes.xaxis_date()
    axes.set_ylabel(f"messages in {name_of(every)}")
    axes.set_xlabel("storeTimestamp, UTC")
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.autofmt_xdate()
    figure.savefig(file, dpi=120)


def name_of(every: int) -> str:
    return {1: "a second", 60: "a minute", 3600: "an hour", 86400: "a day"}.get(every, f"{every} seconds")


def main(argv: Sequence[str] | None = None) -> int:
    args = parser().parse_args(argv)
    for path in args.store:
        store_core.open_store(path)  # a folder that is no store is told before Spark starts
    given = {"subscribe": args.topic, "startingTimestamp": args.start, "endingTimestamp": args.end}
    counts = count(args.store, {name: value for name, value in given.items() if value}, args.every)
    if not counts:
        print("no messages")
        return 1
    if args.png:
        try:
            draw(counts, args.every, args.png)
        except ImportError:
            print("matplotlib is not installed (pip install '.[charts]'): here is the chart as text", file=sys.stderr)
        else:
            print(f"{sum(counts.values()):,} messages drawn into {args.png}")
            return 0
    print(*text_chart(counts, args.every), sep="\n")
    print(f"{sum(counts.values()):,} messages; a bar is {name_of(args.every)} wide, from the time (UTC) beside it")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (store_core.StoreError, PySparkException) as e:
        sys.exit(f"messages_per_minute: {e}")
