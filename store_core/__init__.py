"""The format of Apache RocketMQ's broker store: reads it, without a broker and without Spark.

import store_core
store = store_core.open_store("path/to/store")
store.scan(where=[("topic", "=", "Orders")], columns=["queueOffset", "body"]).read_all()
store.lookup("Orders", "order-4711")
"""

from __future__ import annotations

from store_core.errors import (
    CorruptStoreError,
    OptionError,
    StoreChangedError,
    StoreError,
    StoreNotFoundError,
    StoreWarning,
    UnsupportedStoreError,
)
from store_core.execute import read_task
from store_core.plan import Plan, Spec, Task
from store_core.rebuild import Rebuilt, rebuild
from store_core.store import Store, open_store, schema_of

__all__ = [
    "CorruptStoreError",
    "OptionError",
    "Plan",
    "Rebuilt",
    "Spec",
    "Store",
    "StoreChangedError",
    "StoreError",
    "StoreNotFoundError",
    "StoreWarning",
    "Task",
    "UnsupportedStoreError",
    "open_store",
    "read_task",
    "rebuild",
    "schema_of",
]
