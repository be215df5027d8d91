"""`diff`: the messages that only one of two stores has, by their content.

Content is what producers gave and consumers get: topic, body, properties, flag, times consumed, born when and where. Where a
message stands, in which queue, and when it was stored are not part of it: a copy made by another broker is the same.
"""

from __future__ import annotations

import hashlib
from argparse import Namespace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from store_core.cli.rows import print_messages
from store_core.cli.terminal import Terminal
from store_core.execute import read_task
from store_core.store import Store, open_store

__all__ = ["run"]

_CONTENT: Final = ("topic", "body", "properties", "flag", "reconsumeTimes", "bornTimestamp", "bornHost")
_DIGEST: Final = 16
_BROKERS_OWN: Final = ("__CRC32#", "CLUSTER", "WAIT", "INNER_MULTI_QUEUE_OFFSET", "INNER_BASE")
"""Properties that the broker which stores a message adds or drops."""

Digests = npt.NDArray[np.void]


def run(args: Namespace, terminal: Terminal) -> int:
    """Counts, and the first few messages of each side; 24 bytes of memory per message."""
    stores = [open_store(path, **args.layout) for path in (args.store, args.other)]
    sides = [_digests(store, args.options, terminal) for store in stores]
    lonely = [_only(sides[0], sides[1]), _only(sides[1], sides[0])]
    both = len(sides[0][0]) - len(lonely[0])
    differs = bool(len(lonely[0]) or len(lonely[1]))
    names = (args.store, args.other)
    if terminal.as_json:
        terminal.json({"both": both, "only": [{"store": n, "messages": len(o)} for n, o in zip(names, lonely, strict=True)]})
    else:
        terminal.table(
            ("messages", "in"), [(both, "both")] + [(len(o), f"{n} only") for n, o in zip(names, lonely, strict=True)]
        )
    for store, name, offsets in zip(stores, names, lonely, strict=True):
        if len(offsets) and not terminal.as_json:
            terminal.line(f"\n{terminal.paint(f'only in {name}', 'bold')}")
        for offset in np.sort(offsets)[: max(args.limit, 0)].tolist():
            rows = store.scan(where=[("commitLogOffset", "=", offset)]).read_all().to_pylist()
            if terminal.as_json:
                rows = [{"store": name, **row} for row in rows]
            print_messages(rows, terminal, False)
        if not terminal.as_json and len(offsets) > args.limit:
            terminal.line(f"and {len(offsets) - args.limit:,} more; --limit shows more")
    return 1 if differs else 0


def _digests(store: Store, options: dict[str, Any], terminal: Terminal) -> tuple[Digests, npt.NDArray[np.int64]]:
    """(a digest of each message's content, its commitLogOffset)."""
    columns = [*_CONTENT, "commitLogOffset"]
    plan = store.plan(columns=columns, **{**options, "maxPartitionBytes": "4m"})
    digests: list[bytes] = []
    places: list[npt.NDArray[np.int64]] = []
    with terminal.progress(f"read {store.path}", sum(task.cost for task in plan.tasks)) as advance:
        for task in plan.tasks:
            for batch in read_task(plan.spec, task):
                digests.append(b"".join(_digest(row) for row in batch.select(list(_CONTENT)).to_pylist()))
                places.append(np.asarray(batch["commitLogOffset"].fill_null(-1), dtype=np.int64))
            advance(task.cost)
    joined = np.frombuffer(b"".join(digests), dtype=f"V{_DIGEST}")
    return joined, np.concatenate(places) if places else np.empty(0, dtype=np.int64)


def _digest(row: dict[str, Any]) -> bytes:
    made = hashlib.blake2b(digest_size=_DIGEST)
    properties = sorted((name, value) for name, value in row["properties"] or () if name not in _BROKERS_OWN)
    rest = (row["topic"], row["flag"], row["reconsumeTimes"], row["bornTimestamp"], row["bornHost"], properties)
    made.update(repr(rest).encode("utf-8", "surrogatepass"))
    made.update(row["body"] or b"")
    return made.digest()


def _only(one: tuple[Digests, npt.NDArray[np.int64]], other: tuple[Digests, npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
    """The places of messages that `one` has more often than `other`; of equal ones the last."""
    values, ids = np.unique(np.concatenate([one[0], other[0]]), return_inverse=True)
    mine, theirs = ids[: len(one[0])], ids[len(one[0]) :]
    counts = np.bincount(theirs, minlength=len(values))
    order = np.argsort(mine, kind="stable")
    ordered = mine[order]
    turn = np.empty(len(order), dtype=np.int64)
    turn[order] = np.arange(len(order)) - np.searchsorted(ordered, ordered)
    lonely: npt.NDArray[np.int64] = one[1][turn >= counts[mine]]
    return lonely
