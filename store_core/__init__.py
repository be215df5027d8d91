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
    StoreLockedError,
    StoreNotFoundError,
    StoreWarning,
    UnsupportedStoreError,
    WriteError,
)
from store_core.execute import read_task
from store_core.plan import Plan, Spec, Task
from store_core.rebuild import Rebuilt, rebuild
from store_core.store import Store, open_store, schema_of
from store_core.writing import Written, append, create_store

__all__ = [
    "CorruptStoreError",
    "OptionError",
    "Plan",
    "Rebuilt",
    "Spec",
    "Store",
    "StoreChangedError",
    "StoreError",
    "StoreLockedError",
    "StoreNotFoundError",
    "StoreWarning",
    "Task",
    "UnsupportedStoreError",
    "WriteError",
    "Written",
    "append",
    "create_store",
    "open_store",
    "read_task",
    "rebuild",
    "schema_of",
]
