"""What a store's queues and index are made of: a few numbers per record, with or without its place in the log.

`DispatchRequest` in columns: writing gets these of the rows that it encodes, `rebuild` of the records that are in the log, and
both build queue and index files from them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

__all__ = ["DESCRIBED", "LIGHT", "NO_PLACE", "Described"]

NO_PLACE: Final = -1
"""A commitLogOffset or queueOffset that is not known yet."""

DESCRIBED: Final = np.dtype(
    [
        ("commitLogOffset", "<i8"),
        ("queueOffset", "<i8"),
        ("storeTimestamp", "<i8"),
        ("tagsCode", "<i8"),
        ("size", "<i4"),
        ("queue", "<i4"),
        ("sysFlag", "<i4"),
        ("keyCount", "<i4"),
        ("hasCrc", "?"),
    ]
)
"""One record. `queue`: its place in `Described.queues`; `keyCount`: how many of `Described.key_hashes` are its own; `tagsCode`:
as a queue entry has it (for a delay topic the time of delivery); `hasCrc`: its properties end with `__CRC32#`."""

LIGHT: Final = np.dtype([("record", "<i4"), ("queue", "<i4"), ("queueOffset", "<i8")])
"""An entry of a light message queue (INNER_MULTI_DISPATCH): which record, in which queue, with which offset."""


@dataclass(frozen=True)
class Described:
    """Records in log order.

    records: DESCRIBED[n]. key_hashes: int32[sum of keyCount], of `topic#key` in the order in which a broker indexes them
    (UNIQ_KEY, KEYS, tag); none for records that a broker does not index. queues: (topic, queueId) of `records["queue"]` and
    `light["queue"]`. light: LIGHT[m], by record.
    """

    records: npt.NDArray[np.void]
    key_hashes: npt.NDArray[np.int32]
    queues: tuple[tuple[str, int], ...]
    light: npt.NDArray[np.void]

    def __len__(self) -> int:
        return len(self.records)
