"""Which rows a read's options ask for, as one value: topics, queues, offsets, times, keys, ids, tags.

Terms and limits are those of Spark's Kafka source (`ConsumerStrategy`, `KafkaOffsetRangeLimit`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from store_core.errors import OptionError
from store_core.optiontypes import EARLIEST, LATEST, Assignment, Offsets

__all__ = ["Selection"]


@dataclass(frozen=True)
class Selection:
    """Which rows an option asks for; None or () where it asks for none in particular. All are ANDed.

    subscribe, subscribe_pattern and assign exclude each other. Timestamps are in ms; start inclusive, end exclusive.
    """

    subscribe: tuple[str, ...] | None = None
    subscribe_pattern: str | None = None
    assign: Assignment | None = None
    starting_offsets: Offsets = ()
    ending_offsets: Offsets = ()
    starting_timestamp: int | None = None
    ending_timestamp: int | None = None
    keys: tuple[str, ...] | None = None
    uniq_keys: tuple[str, ...] | None = None
    offset_msg_ids: tuple[str, ...] | None = None
    tags: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        ways = [
            name
            for name, value in (
                ("subscribe", self.subscribe),
                ("subscribePattern", self.subscribe_pattern),
                ("assign", self.assign),
            )
            if value is not None
        ]
        if len(ways) > 1:
            raise OptionError(f"only one of subscribe, subscribePattern and assign can be given; here are {' and '.join(ways)}")
        start, end = self.starting_timestamp, self.ending_timestamp
        if start is not None and end is not None and start > end:
            raise OptionError(f"startingTimestamp {start} is after endingTimestamp {end} (in ms); swap them")
        for name, offsets in (("startingOffsets", self.starting_offsets), ("endingOffsets", self.ending_offsets)):
            for topic, queue, _ in offsets:
                if not self.takes(topic, queue):
                    raise OptionError(
                        f"{name} names {topic!r} queue {queue}, which {ways[0]} leaves out; name it there too, or not here"
                    )
        for topic, queue, offset in self.starting_offsets:
            stop = self.end_of(topic, queue)
            if stop is not None and offset > stop:
                raise OptionError(
                    f"startingOffsets {offset} of {topic!r} queue {queue} is after its endingOffsets {stop}; swap them"
                )

    def start_of(self, topic: str, queue_id: int) -> int | None:
        """The first queueOffset asked for, or None: from the earliest."""
        return _bound(self.starting_offsets, topic, queue_id)

    def end_of(self, topic: str, queue_id: int) -> int | None:
        """The queueOffset to stop before, or None: to the latest."""
        return _bound(self.ending_offsets, topic, queue_id)

    def takes(self, topic: str, queue_id: int | None = None) -> bool:
        """Whether subscribe, subscribePattern or assign let this topic, or this queue of it, through."""
        if self.subscribe is not None:
            return topic in self.subscribe
        if self.subscribe_pattern is not None:
            return re.fullmatch(self.subscribe_pattern, topic) is not None
        if self.assign is not None:
            return any(topic == name and (queue_id is None or queue_id in queues) for name, queues in self.assign)
        return True


def _bound(offsets: Offsets, topic: str, queue_id: int) -> int | None:
    for name, queue, offset in offsets:
        if name == topic and queue == queue_id:
            return None if offset in (EARLIEST, LATEST) else offset
    return None
