"""`checkpoint` (`StoreCheckpoint`): how far a store was flushed and dispatched. `abort`: whether it was shut down cleanly."""

from __future__ import annotations

import posixpath
from dataclasses import astuple, dataclass

import numpy as np

from store_core.errors import StoreChangedError
from store_core.files import Files
from store_core.layout import CHECKPOINT, CHECKPOINT_SIZE

__all__ = ["Checkpoint", "abort_exists", "decode_checkpoint", "encode_checkpoint", "read_checkpoint"]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The fields of `layout.CHECKPOINT`, in its order. Times in ms since 1970, offsets are commitLogOffsets; 0: not known."""

    physic_msg_timestamp: int = 0
    """storeTimestamp of the newest message that was flushed to the commitlog."""
    logics_msg_timestamp: int = 0
    """storeTimestamp of the newest message that was dispatched to a queue."""
    index_msg_timestamp: int = 0
    """endTimestamp of the last full index file."""
    master_flushed_offset: int = 0
    confirm_phy_offset: int = 0
    logics_physical_offset: int = 0
    """Start of the last message dispatched to a queue; brokers before 5.5.0 leave it 0."""


def decode_checkpoint(data: bytes) -> Checkpoint:
    """The checkpoint in the bytes of a `checkpoint` file.

    Like the broker's own mapping of 4096 bytes, a shorter file is read as if zeros followed; any content is valid.
    """
    fields = np.frombuffer(data[: CHECKPOINT.itemsize].ljust(CHECKPOINT.itemsize, b"\0"), dtype=CHECKPOINT)
    return Checkpoint(*fields[0].item())


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    """The 4096 bytes of a `checkpoint` file. Errors: OverflowError for a field that is no i64."""
    return np.array([astuple(checkpoint)], dtype=CHECKPOINT).tobytes().ljust(CHECKPOINT_SIZE, b"\0")


def read_checkpoint(files: Files, root: str) -> Checkpoint | None:
    """The checkpoint of the store in `root`; None where it has none, which a broker takes for all zeros: `Checkpoint()`."""
    path = posixpath.join(root, "checkpoint")
    if files.size(path) is None:
        return None
    try:
        return decode_checkpoint(files.read(path, 0, CHECKPOINT_SIZE))
    except StoreChangedError:
        return None


def abort_exists(files: Files, root: str) -> bool:
    """True where a broker has the store open now, or did not shut it down cleanly. What the file holds does not count."""
    return files.size(posixpath.join(root, "abort")) is not None
