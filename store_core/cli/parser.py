"""What `rmq-store` takes: commands, arguments, help. Imports nothing but the standard library."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Final

__all__ = ["COMMANDS", "FILTERS", "STORE_OPTIONS", "Command", "make_parser"]

_EPILOG: Final = """\
exit codes:
  0  done; nothing wrong was found
  1  findings of severity error (verify), nothing found (get, trace), or differences (diff)
  2  the arguments can't be used as given
  3  the store can't be read, or not be rebuilt
  130  interrupted    141  the reader of the output went away

rmq-store COMMAND --help has examples. Only rebuild writes into a store.
"""


@dataclass(frozen=True)
class Command:
    """One command: the module of `store_core.cli` whose function `run` does it, a line of help, examples."""

    module: str
    help: str
    examples: str
    filters: bool = False
    """Whether it takes the options that choose messages."""


COMMANDS: Final[dict[str, Command]] = {
    "info": Command(
        "about",
        "what is in a store: times, sizes, topics, whether it was shut down cleanly; does not walk the log",
        "rmq-store info /data/store\nrmq-store info /data/store --json | jq .checkpoint",
    ),
    "topics": Command(
        "about",
        "each queue of each topic: first and next offset, messages",
        "rmq-store topics /data/store\nrmq-store topics /data/store --exact",
    ),
    "get": Command(
        "messages",
        "messages by key, id, place or unique key",
        "rmq-store get /data/store --topic Orders --key order-4711\n"
        "rmq-store get /data/store --id C0A8000100002A9F0000000000012AB4\n"
        "rmq-store get /data/store --offset 76468 --json\n"
        "rmq-store get /data/store --uniq-key 7F0000010001...",
    ),
    "cat": Command(
        "messages",
        "messages, all or chosen",
        "rmq-store cat /data/store --subscribe Orders --limit 20\n"
        "rmq-store cat /data/store --startingTimestamp 2026-11-21T08:00:00Z --json > messages.jsonl",
        filters=True,
    ),
    "tail": Command(
        "messages",
        "the last messages of the log; -f goes on as they come",
        "rmq-store tail /data/store -n 20\nrmq-store tail /data/store -f --subscribe Orders --json",
        filters=True,
    ),
    "verify": Command(
        "check",
        "check a store against itself: log, queues, index, checkpoint, config",
        "rmq-store verify /data/store\nrmq-store verify /data/store --html report.html\nrmq-store verify /data/store --json",
    ),
    "explain": Command(
        "about",
        "what a read would touch, and why",
        "rmq-store explain /data/store --subscribe Orders --keys order-4711\nrmq-store explain /data/store --table index",
        filters=True,
    ),
    "export": Command(
        "export",
        "messages into a Parquet file, or a file of JSON lines",
        "rmq-store export /data/store --to orders.parquet --subscribe Orders\nrmq-store export /data/store --to all.jsonl",
        filters=True,
    ),
    "trace": Command(
        "trace",
        "all records of one message in all topics, by time: half, committed, delayed, retried, dead",
        "rmq-store trace /data/store 7F0000010001...",
    ),
    "diff": Command(
        "diff",
        "messages that only one of two stores has, by content, wherever they stand",
        "rmq-store diff /data/master /data/slave\nrmq-store diff /backup/store /data/store --limit 100",
        filters=True,
    ),
    "rebuild": Command(
        "rebuild",
        "build the queue and index files anew from the commitlog; asks nothing, refuses a store that a broker holds",
        "rmq-store rebuild /data/store\nrmq-store rebuild /data/store --what index\n"
        "rmq-store rebuild /data/store --mode PERMISSIVE",
    ),
}

FILTERS: Final[dict[str, str]] = {
    "subscribe": "Only these topics: a comma list.",
    "subscribePattern": "Only topics that this regular expression matches as a whole.",
    "assign": 'Only these queues: `{"Orders":[0,1]}`.',
    "startingOffsets": "First queueOffset of each queue, as JSON, or `earliest`.",
    "endingOffsets": "queueOffset to stop before, as JSON, or `latest`.",
    "startingTimestamp": "Only messages stored at or after this: milliseconds since 1970, or ISO-8601 with its zone.",
    "endingTimestamp": "Only messages stored before this.",
    "keys": "Only messages that carry any of these keys: a comma list, or a JSON array.",
    "uniqKeys": "Only messages with one of these unique keys.",
    "offsetMsgIds": "Only the messages with these offset message ids.",
    "tags": "Only messages with exactly one of these tags.",
    "index": "How index files are used: trust, verify or ignore.",
    "mode": "What a corrupt range does: FAILFAST (default), PERMISSIVE (a row), DROPMALFORMED (left out).",
    "verifyCrc": "true: check the CRCs of what is read.",
    "bodyFormat": "decoded (default), or raw: as stored.",
    "maxDecompressedSize": "A body that would be larger is corrupt (64m).",
    "expandBatches": "true: the messages inside of batch records.",
    "extraColumns": "More columns, for --json and export.",
    "brokerName": "The column brokerName.",
    "failOnDataLoss": "false: read what is left where a file is gone.",
}
"""The read options of the same names (`store_core.options`)."""
STORE_OPTIONS: Final[dict[str, str]] = {
    "storePathCommitLog": "The commitlog's folders, if not in the store's root.",
    "readOnlyCommitLogStorePaths": "More folders of commitlog files.",
    "maxHashSlotNum": "Slots of an index file, where the file does not tell.",
    "maxIndexNum": "Entries of an index file, likewise.",
}


def make_parser() -> argparse.ArgumentParser:
    """The parser; a read option NAME is the attribute `option:NAME` of what it returns."""
    parser = argparse.ArgumentParser(
        prog="rmq-store",
        description="Ask the files of an Apache RocketMQ broker; no broker needed.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, command in COMMANDS.items():
        own = commands.add_parser(
            name,
            help=command.help,
            description=f"{command.help[0].upper()}{command.help[1:]}.",
            epilog="examples:\n" + "".join(f"  {line}\n" for line in command.examples.splitlines()),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        own.add_argument("store", metavar="STORE", help="the broker's storePathRootDir, or its commitlog folder alone")
        _ARGUMENTS.get(name, _nothing)(own)
        own.add_argument("--json", action="store_true", help="for programs: JSON, one object a line where there are several")
        group = own.add_argument_group("how the store is laid out")
        for option, text in STORE_OPTIONS.items():
            group.add_argument(f"--{option}", dest=f"option:{option}", metavar="VALUE", help=text)
        if command.filters:
            group = own.add_argument_group("which messages", "Options of the same names as those of Spark and store_core.")
            for option, text in FILTERS.items():
                group.add_argument(f"--{option}", dest=f"option:{option}", metavar="VALUE", help=text)
    return parser


def _nothing(own: argparse.ArgumentParser) -> None:
    """A command without arguments of its own."""


def _exact(own: argparse.ArgumentParser) -> None:
    own.add_argument("--exact", action="store_true", help="walk the whole log and count what is there")


def _body(own: argparse.ArgumentParser) -> None:
    own.add_argument("--body", action="store_true", help="show whole bodies")


def _get(own: argparse.ArgumentParser) -> None:
    which = own.add_mutually_exclusive_group(required=True)
    which.add_argument("--key", help="one of the message's KEYS; with --topic")
    which.add_argument("--id", help="the offset message id (broker address and place)")
    which.add_argument("--offset", type=int, help="the commitLogOffset")
    which.add_argument("--uniq-key", help="the unique key, which the dashboard calls Message ID")
    own.add_argument("--topic", help="the topic of --key")
    _body(own)


def _cat(own: argparse.ArgumentParser) -> None:
    own.add_argument("--limit", type=int, metavar="N", help="stop after N messages")
    _body(own)


def _tail(own: argparse.ArgumentParser) -> None:
    own.add_argument("-n", "--lines", type=int, default=10, metavar="N", help="how many (10)")
    own.add_argument("-f", "--follow", action="store_true", help="go on: show what is stored from now on")
    own.add_argument("--interval", type=float, default=1.0, metavar="SECONDS", help="how often -f looks (1)")
    _body(own)


def _verify(own: argparse.ArgumentParser) -> None:
    own.add_argument("--html", metavar="FILE", help="write a report with pictures: one page that needs nothing else")
    own.add_argument("--force", action="store_true", help="write over an existing report")


def _explain(own: argparse.ArgumentParser) -> None:
    own.add_argument("--table", default="messages", help="messages (default), consumequeue, index or verify")


def _export(own: argparse.ArgumentParser) -> None:
    own.add_argument("--to", required=True, metavar="FILE", help="where to: .parquet, or .jsonl or .json for JSON lines")
    own.add_argument("--force", action="store_true", help="write over an existing file")


def _trace(own: argparse.ArgumentParser) -> None:
    own.add_argument("uniq_key", metavar="UNIQ_KEY", help="the unique key, which the dashboard calls Message ID")


def _diff(own: argparse.ArgumentParser) -> None:
    own.add_argument("other", metavar="STORE", help="the other store")
    own.add_argument("--limit", type=int, default=20, metavar="N", help="show so many messages of each side (20)")


def _rebuild(own: argparse.ArgumentParser) -> None:
    own.add_argument("--what", choices=("consumequeue", "index"), help="only these files (both)")
    group = own.add_argument_group("what is built", "Sizes of files are the old files', else RocketMQ's defaults.")
    for option, text in _REBUILD.items():
        group.add_argument(f"--{option}", dest=f"option:{option}", metavar="VALUE", help=text)


_REBUILD: Final[dict[str, str]] = {
    "mode": "What damage in the log does: FAILFAST (default) changes nothing, PERMISSIVE leaves out what is no record.",
    "mappedFileSizeConsumeQueue": "Bytes of a queue file.",
    "indexTags": "true or false: whether tags get index entries (as in the old index, else true).",
    "messageDelayLevel": "The broker's delay levels, if they are not RocketMQ's own.",
}
"""Options of `store_core.rebuild`."""
_ARGUMENTS: Final = {
    "info": _exact,
    "topics": _exact,
    "get": _get,
    "cat": _cat,
    "tail": _tail,
    "verify": _verify,
    "explain": _explain,
    "export": _export,
    "trace": _trace,
    "diff": _diff,
    "rebuild": _rebuild,
}
