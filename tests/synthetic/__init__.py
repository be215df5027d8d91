"""Stores made up for tests: a slow, plain writer of everything a broker writes, that shares no code with `store_core`."""

from tests.synthetic.generate import GROUP_TOPIC, KEYS, TAGS, TOPICS, random_messages
from tests.synthetic.index import IndexFile
from tests.synthetic.log import Placed
from tests.synthetic.messages import Message, Properties, java_hash
from tests.synthetic.store import BATCH_TOPIC, Built, Options, build_store

__all__ = [
    "BATCH_TOPIC",
    "GROUP_TOPIC",
    "KEYS",
    "TAGS",
    "TOPICS",
    "Built",
    "IndexFile",
    "Message",
    "Options",
    "Placed",
    "Properties",
    "build_store",
    "java_hash",
    "random_messages",
]
