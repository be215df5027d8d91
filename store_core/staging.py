"""Packed records on their way into a store: what a task writes, and the commit reads.

A task writes two files into the staging folder. `<name>.data` is its records, one behind the other, without places.
`<name>.about` says what they are, a block per batch: a head (`_HEAD`), the arrays of `Described` as they are in memory, and its
queues as JSON. Both are read by the same version of this module, on the same storage, and then removed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from store_core.described import DESCRIBED, LIGHT, Described
from store_core.errors import CorruptStoreError
from store_core.files import Files
from store_core.layout import TRANSACTION_COMMIT, TRANSACTION_MASK
from store_core.patching import field_position
from store_core.writefiles import Buffer, Writes

__all__ = ["PREPARED", "Runs", "Staged", "StagedBatch", "read_about", "stage", "unstaged"]

PREPARED: Final = np.dtype([("record", "<i4"), ("preparedTransactionOffset", "<i8")])
"""A committed message (by its index) that says where its half message stands."""

_PARTS: Final = (
    ("records", DESCRIBED),
    ("keys", np.dtype("<i4")),
    ("light", LIGHT),
    ("prepared", PREPARED),
    ("queues", np.dtype("u1")),
)
_HEAD: Final = np.dtype([("bytes", "<i8"), *((name, "<i8") for name, _ in _PARTS)])
_PIECE: Final = 4 << 20
"""Bytes of records in a block, unless one record is larger: what the commit holds at once."""


@dataclass(frozen=True)
class Staged:
    """What one attempt of a task has staged: the name of its files, and how much is in them. partition: its place in the order
    of the log. given_times: whether the rows had a storeTimestamp.
    """

    partition: int
    name: str
    records: int
    data_bytes: int
    about_bytes: int
    given_times: bool


@dataclass(frozen=True)
class StagedBatch:
    """Records that stand at [position, position + size) of the file `path`, and what they are. prepared: PREPARED[k]. data: the
    records themselves, where they were never staged.
    """

    path: str
    position: int
    size: int
    described: Described
    prepared: npt.NDArray[np.void]
    data: memoryview | None = None


class Runs(Protocol):
    """A task's rows as packed records. given_times: see `Staged`; asked at the end."""

    given_times: bool

    def __iter__(self) -> Iterator[tuple[Buffer, Described]]: ...


def stage(writes: Writes, folder: str, partition: int, attempt: str, runs: Runs) -> Staged:
    """Writes the runs (packed records, what they are) to two files of their own in `folder`, which is there."""
    name = f"{partition:06d}-{attempt}"
    data_path, about_path = _paths(folder, name)
    writes.create(data_path, 0)
    writes.create(about_path, 0)
    records = data_bytes = about_bytes = 0
    for batch in unstaged(runs):
        assert batch.data is not None
        writes.write_at(data_path, data_bytes, batch.data)
        about = _encode(batch)
        writes.write_at(about_path, about_bytes, about)
        records += len(batch.described)
        data_bytes += batch.size
        about_bytes += len(about)
    writes.close()
    return Staged(partition, name, records, data_bytes, about_bytes, runs.given_times)


def unstaged(runs: Runs) -> Iterator[StagedBatch]:
    """The batches of a task that need not be staged, since the same process commits them."""
    for run, whole in runs:
        for data, described in _pieces(memoryview(run), whole):
            yield StagedBatch("", 0, len(data), described, _prepared(data, described.records), data)


def read_about(files: Files, folder: str, staged: Staged) -> Iterator[StagedBatch]:
    """The batches of a task, in order. Errors: CorruptStoreError where a file is not as the task said."""
    data_path, path = _paths(folder, staged.name)
    for each, size in ((data_path, staged.data_bytes), (path, staged.about_bytes)):
        if (found := files.size(each)) != size:
            raise CorruptStoreError(
                f"{'no such file' if found is None else f'{found} bytes'} where a task wrote {size} bytes",
                path=each,
                hint="Driver and workers must see the same folder; then write again",
            )
    at = position = 0
    while at < staged.about_bytes:
        head = np.frombuffer(files.read(path, at, _HEAD.itemsize), _HEAD)[0]
        at += _HEAD.itemsize
        parts: list[Any] = []
        for count, dtype in _PARTS:
            length = int(head[count]) * dtype.itemsize
            parts.append(np.frombuffer(files.read(path, at, length), dtype))
            at += length
        records, keys, light, prepared, queues = parts
        named = tuple((topic, queue_id) for topic, queue_id in json.loads(queues.tobytes()))
        yield StagedBatch(data_path, position, int(head["bytes"]), Described(records, keys, named, light), prepared)
        position += int(head["bytes"])


def _paths(folder: str, name: str) -> tuple[str, str]:
    return f"{folder}/{name}.data", f"{folder}/{name}.about"


def _pieces(data: memoryview, described: Described) -> Iterator[tuple[memoryview, Described]]:
    """The run in parts of about `_PIECE` bytes, of one record at least."""
    records, light = described.records, described.light
    ends = np.cumsum(records["size"], dtype=np.int64)
    keys = np.concatenate([[0], np.cumsum(records["keyCount"], dtype=np.int64)])
    first, at = 0, 0
    while first < len(records):
        last = max(int(np.searchsorted(ends, at + _PIECE, side="right")), first + 1)
        some = light[(light["record"] >= first) & (light["record"] < last)]
        some["record"] -= first
        hashes = described.key_hashes[keys[first] : keys[last]]
        end = int(ends[last - 1])
        yield data[at:end], Described(records[first:last], hashes, described.queues, some)
        first, at = last, end


def _encode(batch: StagedBatch) -> bytes:
    described = batch.described
    queues = json.dumps(described.queues).encode()
    arrays: list[npt.NDArray[Any]] = [
        described.records,
        described.key_hashes.astype("<i4", copy=False),
        described.light,
        batch.prepared,
        np.frombuffer(queues, "u1"),
    ]
    head = np.array([(batch.size, *map(len, arrays))], _HEAD)
    return b"".join(array.tobytes() for array in (head, *arrays))


def _prepared(data: memoryview, records: npt.NDArray[np.void]) -> npt.NDArray[np.void]:
    which = np.flatnonzero(records["sysFlag"] & TRANSACTION_MASK == TRANSACTION_COMMIT)
    if not len(which):
        return np.zeros(0, PREPARED)
    starts = np.cumsum(records["size"], dtype=np.int64) - records["size"]
    at = starts[which] + field_position("preparedTransactionOffset", records["sysFlag"][which])
    found = np.zeros(len(which), PREPARED)
    found["record"] = which
    found["preparedTransactionOffset"] = np.ndarray((len(data) - 7,), ">i8", data, strides=(1,))[at]
    return found[found["preparedTransactionOffset"] != 0]
