"""What a broker's log and files say about a store it was started on: whether it took it as it is.

A broker never says "I repaired this store". What it does say was found by starting the versions on stores of their own, sound
and damaged (test_harness.py does it again), and differs between them; so every warning and error that is not known to mean
nothing counts.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.interop.broker import LogRecord

__all__ = ["changes", "content", "end_of_log", "findings"]

_STOPPING = "Shutdown hook was invoked"
_STORE_LOGGERS = ("RocketmqStore", "RocketmqStoreError")
_HARMLESS = re.compile(
    "|".join(
        [
            r"^Load default ",
            r"^found a illegal magic code 0x0$",  # the zeros behind the last record
            r"^AllocateMappedFileService interrupted, possibly by shutdown",
            r"^take flush disk commit request, but interrupted, this may caused by shutdown",
            # asked for the end of a queue that fills its last file
            r"^Offset not matched\. Request offset: (\d+), firstOffset: \d+, lastOffset: \1,",
        ]
    )
)
_SUSPICIOUS = re.compile(
    r"\[BUG\]|maybe wrong|truncat|rebuild|repeatedly|destroy|discard|delete(?! OK)|abnormal", re.IGNORECASE
)
"""Of INFO records of the store: what it does to a store that it does not take as it is."""
_DIRTY_QUEUES = re.compile(r"^maxPhyOffsetOfConsumeQueue\((\d+)\) >= processOffset\((\d+)\), truncate dirty logic files")
_RECOVERED = re.compile(r"^load over, and the max phy offset = (\d+)")
_DISPATCHED_FROM = re.compile(r"^\[SetReputOffset\] maxPhysicalPosInLogicQueue=(\d+) clMinOffset=\d+ clMaxOffset=(\d+)")


def end_of_log(log: Iterable[LogRecord]) -> int:
    """Where the broker found the commitlog's end when it started; AssertionError where it does not say."""
    ends = [int(found[1]) for record in log if (found := _RECOVERED.match(record.text))]
    assert len(ends) == 1, f"the broker's log tells {len(ends)} ends of the commitlog: {ends}"
    return ends[0]


def findings(log: Sequence[LogRecord], end: int) -> list[str]:
    """What the broker did not like or changed on a store that was stopped cleanly and whose commitlog ends at `end`."""
    found = []
    texts = [record.text for record in log]
    if not any(text.startswith("last shutdown normally") for text in texts):
        found.append("the log does not say 'last shutdown normally'")
    if (recovered := end_of_log(log)) != end:
        found.append(f"the broker ends the commitlog at {recovered}; it ends at {end}")
    stopping = False
    for record in log:
        stopping |= record.text.startswith(_STOPPING)
        of_the_store = record.logger in _STORE_LOGGERS
        if dirty := _DIRTY_QUEUES.match(record.text):
            # Said of sound stores too, as the first is the end of the last message that has a queue entry
            bad = int(dirty[1]) != int(dirty[2])
        elif behind := _DISPATCHED_FROM.match(record.text):
            bad = int(behind[1]) != int(behind[2])
        elif record.level == "ERROR" or (record.level == "WARN" and of_the_store):
            bad = not _HARMLESS.match(record.text)
            # A broker shuts down out of order: its services ask the store when that is closed
            bad = bad and not (stopping and (not of_the_store or "has shutdown, so" in record.text))
        else:
            bad = of_the_store and not stopping and _SUSPICIOUS.search(record.text) is not None
        if bad:
            found.append(str(record))
    return found


def content(store: Path) -> dict[str, bytes]:
    """A digest of each file of the commitlog, the queues and the index: by its path in the store.

    Files that are all zeros (made in advance) are left out.
    """
    digests = {}
    for folder in ("commitlog", "consumequeue", "index"):
        for file in sorted((store / folder).rglob("*")):
            if file.is_file() and any(data := file.read_bytes()):
                digests[file.relative_to(store).as_posix()] = hashlib.sha256(data).digest()
    return digests


def changes(before: dict[str, bytes], after: dict[str, bytes]) -> list[str]:
    """Which files came, went or changed, of two answers of `content`."""
    return [
        *(f"{name} is gone" for name in before.keys() - after.keys()),
        *(f"{name} is new" for name in after.keys() - before.keys()),
        *(f"{name} has changed" for name in before.keys() & after.keys() if before[name] != after[name]),
    ]
