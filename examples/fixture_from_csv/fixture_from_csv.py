"""Makes a small store out of a CSV file, to test consumers with: a stock broker boots on it.

python examples/fixture_from_csv/fixture_from_csv.py messages.csv path/to/new/store
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as csv

import store_core

COLUMNS = {
    "topic": pa.string(),
    "queueId": pa.int32(),
    "keys": pa.string(),
    "tags": pa.string(),
    "body": pa.string(),
    "storeTimestamp": pa.timestamp("us", "UTC"),
}
SMALL: dict[str, Any] = {
    "mappedFileSizeCommitLog": "1m",
    "mappedFileSizeConsumeQueue": 6000,
    "maxHashSlotNum": 5000,
    "maxIndexNum": 20000,
}
"""Sizes for a fixture. The broker that boots on it must be told the same ones."""


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(description="Make a store out of a CSV file, small enough to keep with tests.")
    p.add_argument("csv", type=Path, help=f"a CSV file with a header; columns: {', '.join(COLUMNS)}. topic and body are needed")
    p.add_argument("store", help="a folder that is not there yet")
    p.add_argument("--full-size", action="store_true", help="files of RocketMQ's own sizes (sparse), for a broker as it comes")
    return p


def read(path: Path) -> pa.Table:
    table = csv.read_csv(path, convert_options=csv.ConvertOptions(column_types=COLUMNS, strings_can_be_null=True))
    if unknown := sorted(set(table.column_names) - set(COLUMNS)):
        raise store_core.OptionError(f"{path}: no column {unknown[0]!r} is known. Columns: {', '.join(COLUMNS)}")
    if "body" in table.column_names:
        body = table["body"].cast(pa.binary())
        table = table.set_column(table.column_names.index("body"), "body", body)
    return table


def main(argv: Sequence[str] | None = None) -> int:
    args = parser().parse_args(argv)
    try:
        messages = read(args.csv)
    except (OSError, pa.ArrowInvalid) as e:
        raise store_core.OptionError(f"{args.csv}: {e}") from None
    written = store_core.create_store(args.store, messages, **({} if args.full_size else SMALL))
    topics = store_core.open_store(args.store).info()["topics"]
    print(f"{written.messages:,} messages in {args.store}, log end {written.log_end:,}")
    for name, topic in sorted(topics.items()):
        print(f"  {topic['messages']:>6,}  {name}, queues {', '.join(map(str, topic['queues']))}")
    if not args.full_size:
        print("for the broker's configuration:")
        for name, value in SMALL.items():
            print(f"  {name}={1 << 20 if value == '1m' else value}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except store_core.StoreError as e:
        sys.exit(f"fixture_from_csv: {e}")
