"""Which topics can be written (`TopicValidator`, `Validators`), and which are a broker's own."""

from __future__ import annotations

import re
from typing import Final

import numpy as np
import pyarrow as pa

from store_core.layout import SCHEDULE_TOPIC
from store_core.refusal import Rows
from store_core.writeoptions import WriteOptions

__all__ = ["SYSTEM_TOPICS", "V1_TOPIC_LENGTH", "check_topics", "is_system_topic"]

SYSTEM_TOPICS: Final = (
    SCHEDULE_TOPIC,
    "rmq_sys_wheel_timer",
    "RMQ_SYS_TRANS_HALF_TOPIC",
    "RMQ_SYS_TRANS_OP_HALF_TOPIC",
    "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC",
    "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC",
)
"""Topics whose messages a broker delivers, or checks back, once more when it finds them; pop's revive log is another."""
_REVIVE: Final = "rmq_sys_REVIVE_LOG_"
_OPS: Final = ("RMQ_SYS_TRANS_OP_HALF_TOPIC", "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC")
_LIGHT: Final = "%LMQ%"
_TOPIC: Final = re.compile(r"[%|a-zA-Z0-9_-]+")
_RETRY_TOPIC: Final = re.compile(r"%RETRY%[%|a-zA-Z0-9_+-]+")
"""Pop's retry topics have a plus sign between group and topic (5.2.0 on)."""
_FOLDER: Final = re.compile(r"[^/\x00-\x1f]+")
V1_TOPIC_LENGTH: Final = 127
_LONGEST: Final = 255


def is_system_topic(topic: str) -> bool:
    """Whether a broker acts on the messages of this topic."""
    return topic in SYSTEM_TOPICS or topic.startswith(_REVIVE)


def check_topics(topics: pa.DictionaryArray, options: WriteOptions, rows: Rows) -> None:
    """OptionError about the first topic that can't be written."""
    for code, topic in enumerate(topics.dictionary.to_pylist()):
        if (wrong := _wrong(topic, options)) is not None:
            row = int(np.argmax(np.asarray(topics.indices) == code))
            raise rows.refuse(row, "topic", topic, *wrong)


def _wrong(topic: str, options: WriteOptions) -> tuple[str, str | None] | None:
    """(what is expected, what to do) for a topic that can't be written."""
    size = len(topic.encode())
    if topic.startswith(_LIGHT):
        return "a topic; names that begin with %LMQ% are queues of other topics' messages", None
    if options.preserve:
        # a broker took it; here it has to name a folder
        if not _FOLDER.fullmatch(topic) or topic in (".", ".."):
            return "a topic that can name a folder", None
    elif not _TOPIC.fullmatch(topic) and not _RETRY_TOPIC.fullmatch(topic):
        return "a topic of the characters a-z A-Z 0-9 _ - % |", None
    if size > V1_TOPIC_LENGTH and not options.long_topics:
        return f"at most {V1_TOPIC_LENGTH} bytes, and this one has {size}; brokers before 5.1.0 can't read more", None
    if size > _LONGEST:
        return f"at most {_LONGEST} bytes, and this one has {size}", None
    if is_system_topic(topic) and not options.system_topics:
        return (
            "no topic whose messages a broker would deliver or check back once more",
            "Leave its messages out, or write with systemTopics=true and, with configFrom, what tells how far the broker was",
        )
    if topic in _OPS and (not options.preserve or options.renumber):
        return (
            "no such topic where queueOffsets are new: its bodies hold those of half messages",
            "Leave its messages out, or write with preserve=true",
        )
    return None
