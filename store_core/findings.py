"""What a check of a store may find: the kinds, and what a broker makes of each at its next start (`CommitLog#recoverNormally`,
`#recoverAbnormally`, `ConsumeQueue#recover`, `IndexService#load`).

An `error` is what no broker leaves behind, stopped or killed; a `warning` is what one does, or what it mends by itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from store_core.schema import VERIFY

__all__ = ["ERROR", "KINDS", "WARNING", "Finding", "Kind", "as_batch"]

ERROR: Final = "error"
WARNING: Final = "warning"

_CUT: Final = (
    "A recovery that walks this file cuts the log here: all that is stored behind is lost, later commitlog files are deleted, "
    "and queue entries that lead there are cut off. Where the walk begins behind it (a clean start of 5.3.2 or later walks the "
    "newest file only), nobody notices until the message is asked for."
)
_NOT_FOUND: Final = "Queries by key miss the message; consumers still get it."
_WRONG_PLACE: Final = (
    "The queue is used as it is, for a clean start does not compare it with the log: consumers of this offset get an error, "
    "the wrong message, or none."
)


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of finding: what it is, in a few words, and its usual consequence."""

    meaning: str
    consequence: str


KINDS: Final[dict[str, Kind]] = {
    # --- the log
    "magic": Kind("a record's magic is wrong", _CUT),
    "size": Kind("a record's size can't be", _CUT),
    "lengths": Kind("a record's lengths do not add up to its size", _CUT),
    "physical-offset": Kind(
        "a record says that it stands elsewhere",
        "Recovery does not check it: the wrong place is copied into queues and index that are rebuilt, and 5.3.2 and later "
        "decide by it what is dispatched. Only 5.5.0 with checkCommitLogOffsetOnRecover=true cuts the log here.",
    ),
    "body-crc": Kind(
        "a body's CRC is wrong",
        "A recovery that checks CRCs (checkCRCOnRecover, the default) and walks this file cuts the log here: all behind it is "
        "lost, later commitlog files are deleted. Else the message is delivered, and the client's own check fails.",
    ),
    "properties-crc": Kind(
        "a record's own CRC is wrong",
        "Only a broker with forceVerifyPropCRC=true looks at it: its recovery cuts the log here. Others deliver the message "
        "with whatever its topic, properties or header say now.",
    ),
    "blank": Kind(
        "a file's closing record is damaged",
        "A recovery that walks this file takes this for the end of the log: every later commitlog file is deleted, with the "
        "queue entries that lead there.",
    ),
    "zeros": Kind("zeros between records", _CUT),
    "recycled": Kind(
        "bytes of an older record",
        "Behind the last record they are harmless where they fail a broker's checks. A whole old record passes them (its "
        "place is not checked) and is dispatched once more, under its old place.",
    ),
    "gap": Kind(
        "commitlog files are missing",
        "The broker starts, and its log ends in front of the gap for all that walks it: a recovery that does deletes every "
        "later file. Messages in the missing files are lost; their queue entries answer MESSAGE_WAS_REMOVING or nothing.",
    ),
    "overlap": Kind(
        "two files hold the same offsets",
        "A broker with several commitlog paths maps both and reads whichever its search meets; it may write on in the wrong "
        "one.",
    ),
    "file-length": Kind(
        "a file's length is not that of the others",
        "The load fails and the broker does not start: every file must have exactly the configured size (but 4.4.0 and older, "
        "and 4.9.2, which silently leave out this file and all later ones).",
    ),
    "stray-file": Kind(
        "a file that does not belong into a data folder",
        "The load fails and the broker does not start, for its length is not the configured one or its name is no number.",
    ),
    "empty-file": Kind(
        "a file of no bytes",
        "5.1.3 and later delete it if it is the folder's last; earlier ones do not start.",
    ),
    # --- queues
    "queue-nowhere": Kind("a queue entry leads to no record", _WRONG_PLACE),
    "queue-size": Kind(
        "a queue entry has another size than its record",
        "The queue is used as it is: a pull reads this many bytes and gets a cut or a glued message, which the client can't "
        "decode.",
    ),
    "queue-other": Kind("a queue entry leads to a record of another queue", _WRONG_PLACE),
    "queue-shifted": Kind(
        "queue entries stand at other offsets than their records say",
        "The queue is used as it is: messages are delivered under other offsets than they carry, so offsets that consumers "
        "committed mean other messages. A broker appends at the queue's end, so it stays shifted for good.",
    ),
    "queue-doubled": Kind(
        "two queue entries lead to one record",
        "The message is delivered twice, and another one of the queue perhaps never.",
    ),
    "queue-order": Kind(
        "queue entries are out of order",
        "Searches by time and by place in this queue bisect it and may answer wrong: consumers may start at a wrong offset, "
        "and the queue's first valid offset may be set wrong.",
    ),
    "queue-tags": Kind(
        "a queue entry's tagsCode is not that of its record",
        "Consumers that subscribe by tag do not get the message, since the broker filters by this number; those of all tags "
        "do.",
    ),
    "queue-missing": Kind(
        "records have no queue entry",
        "Consumers never get these messages. A recovery stops at the first invalid entry of a queue and cuts off what is "
        "behind; at a queue's end 5.3.2 and later add what is missing, but for the message right at the queues' end, and "
        "5.0.0 to 5.3.1 nothing, unless abort is there.",
    ),
    "queue-none": Kind(
        "the store has no queues",
        "With abort a broker builds them anew from the log, 5.4.0 and later from its last 10 files only "
        "(commitLogRecoverMaxNum); without abort 5.0.0 to 5.3.1 leave all queues empty.",
    ),
    "queue-unread": Kind(
        "queues that this program does not read",
        "None: they are in a RocksDB, so they were not checked.",
    ),
    # --- index
    "index-header": Kind(
        "an index file's counts or times are wrong",
        "The file is used as it is, its header is never checked: new entries go to the wrong number, or queries pass over the "
        "file by its times. Delete it for a broker to be right about what it does not find.",
    ),
    "index-chain": Kind(
        "a chain of an index file is broken or runs in a loop",
        "Queries walk it as it is: keys behind the break are not found, and a loop costs a query up to its number of hits "
        "again and again.",
    ),
    "index-nowhere": Kind(
        "an index entry leads to no record",
        "Queries that meet it find nothing there and may give fewer messages than there are.",
    ),
    "index-key": Kind("an index entry is of no key of its record", f"The client drops what it leads to. {_NOT_FOUND}"),
    "index-time": Kind(
        "an index entry's time is not that of its record",
        "Queries with a time range miss the message, and end the walk of its chain there.",
    ),
    "index-doubled": Kind(
        "a key of a record is indexed twice",
        "Queries count the message twice against their 64 hits. A broker leaves this behind when it dispatches its last "
        "message again after a crash.",
    ),
    "index-missing": Kind(
        "keys are not in the index",
        f"{_NOT_FOUND} A broker never adds what is missing: after abort it indexes only from the file on where its recovery "
        "began.",
    ),
    "index-none": Kind(
        "the store has no index",
        "No message is found by key, unless the index is in a RocksDB. A broker builds it from where its recovery begins, "
        "which is the whole log only with abort and (5.4.0 and later) at most 10 commitlog files.",
    ),
    "index-unread": Kind("index files that can't be told apart", "Their keys were not checked."),
    # --- what stands beside
    "abort": Kind(
        "the broker runs, or was killed",
        "The next start recovers: it walks the log from the newest file that the checkpoint vouches for, cuts it at the first "
        "bad record, and deletes and rebuilds the last index file; keys of messages before that file are lost from it.",
    ),
    "checkpoint-ahead": Kind(
        "the checkpoint is ahead of the store",
        "A recovery after a crash trusts it and begins too late: damage before that is not seen, and queue and index entries "
        "that are missing there stay missing.",
    ),
    "checkpoint-behind": Kind(
        "the checkpoint is behind the store",
        "A recovery after a crash begins earlier than it had to: it takes longer, and index files that are whole may be "
        "deleted and built anew.",
    ),
    "topic-missing": Kind(
        "a topic with messages is not in topics.json",
        "Pulls are answered with TOPIC_NOT_EXIST until the topic is made again; its messages are there, and nobody gets them. "
        "System topics are added at every start.",
    ),
    "topic-queues": Kind(
        "a queue is beyond its topic's readQueueNums",
        "Pulls of this queue are refused, so its messages are not consumed until readQueueNums is raised.",
    ),
    "consumer-offset": Kind(
        "a consumer's offset is outside of its queue",
        "Above the queue's end a pull is answered with PULL_OFFSET_MOVED and the consumer goes on at the end: what it was to "
        "get in between it never gets. Below its first offset it goes on at the first.",
    ),
    "delay-offset": Kind(
        "a delay level's offset is outside of its queue",
        "It is corrected into the queue at load: below its first offset nothing is delivered twice, above its end messages "
        "that come later wait for nothing.",
    ),
    "config": Kind(
        "a file of config/ can't be read",
        "A broker reads the .bak beside it; where that can't be read either it does not start or (topics, offsets) starts with "
        "none, and consumers begin anew.",
    ),
}
"""What a check may find. The consequences are those of real brokers: docs/format.md names the versions."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One row of the verify table. `start`, `end`: bytes of `file`; None where it is no matter of bytes."""

    kind: str
    file: str
    start: int | None
    end: int | None
    expected: str
    found: str
    severity: str = ERROR
    consequence: str | None = None
    """None: the kind's own."""


def as_batch(findings: Iterable[Finding]) -> dict[str, pa.Array]:
    """The columns of the verify table, by name."""
    rows = [
        (f.kind, f.severity, f.file, f.start, f.end, f.expected, f.found, f.consequence or KINDS[f.kind].consequence)
        for f in findings
    ]
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(VERIFY)
    return {field.name: pa.array(values, type=field.type) for field, values in zip(VERIFY, columns, strict=True)}
