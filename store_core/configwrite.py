"""`config/topics.json` as a broker needs it of a store that was written for it: it serves no topic that does not stand there.

`TopicConfigManager`, `TopicConfigSerializeWrapper`. What is there already stays, but for queue counts, which only grow. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final

from store_core.config import TopicConfig

__all__ = ["STATE_FILES", "merged_topics"]

STATE_FILES: Final = (
    "consumerOffset.json",
    "lmqConsumerOffset.json",
    "consumerOrderInfo.json",
    "delayOffset.json",
    "subscriptionGroup.json",
)
"""What `configFrom` takes over: consumers' offsets, the delay levels' offsets, the groups."""

_TABLE: Final = "topicConfigTable"
_VERSION: Final = "dataVersion"


def merged_topics(
    old: Mapping[str, Any], queues: Mapping[str, int], like: Mapping[str, Any], now_ms: int, least: int = 0
) -> bytes:
    """The content of topics.json: all of `old`, and every topic of `queues` with at least so many queues.

    `old`, `like`: such files, parsed, {} for none. A topic that is new here is as in `like` where it is there, else as RocketMQ
    makes one, with `least` queues at least (but for those of a broker's own, as retries).
    """
    table = dict(_object(old, _TABLE))
    models = _object(like, _TABLE)
    for topic, count in queues.items():
        known = table.get(topic) or models.get(topic)
        config = dict(known) if isinstance(known, dict) else _new_topic(topic)
        for name in ("readQueueNums", "writeQueueNums"):
            found = config.get(name) if isinstance(known, dict) else 0 if topic.startswith("%") else least
            config[name] = max(found if isinstance(found, int) else 0, count)
        table[topic] = config
    version = _object(old, _VERSION)
    counter, state = (version.get(name) if isinstance(version.get(name), int) else 0 for name in ("counter", "stateVersion"))
    merged = {**old, _TABLE: table, _VERSION: {"counter": (counter or 0) + 1, "stateVersion": state, "timestamp": now_ms}}
    return json.dumps(merged, indent="\t", sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def _object(tree: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = tree.get(name)
    return found if isinstance(found, dict) else {}


def _new_topic(topic: str) -> dict[str, Any]:
    config: dict[str, Any] = {"topicName": topic}
    defaults = TopicConfig()
    for each in fields(defaults):
        head, *rest = each.name.split("_")
        config[head + "".join(part.capitalize() for part in rest)] = getattr(defaults, each.name)
    return config
