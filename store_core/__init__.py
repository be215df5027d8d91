"""The format of Apache RocketMQ's broker store: reads it, without a broker and without Spark.

import store_core
store = store_core.open_store("path/to/store")
store.scan(where=[("topic", "=", "Orders")], columns=["queueOffset", "body"]).read_all()
store.lookup("Orders", "order-4711")

Names are imported when they are asked for: the command line's help needs no numpy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from store_core.errors import (
        CorruptStoreError,
        OptionError,
        ReadError,
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
    from store_core.rebuilding import Rebuilt, rebuild
    from store_core.store import Store, open_store, schema_of
    from store_core.writing import Written, append, create_store

__all__ = [
    "CorruptStoreError",
    "OptionError",
    "Plan",
    "ReadError",
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

_HOMES = {"read_task": "execute", "Store": "store", "open_store": "store", "schema_of": "store"}
_HOMES |= dict.fromkeys(("Plan", "Spec", "Task"), "plan")
_HOMES |= dict.fromkeys(("Rebuilt", "rebuild"), "rebuilding") | dict.fromkeys(("Written", "append", "create_store"), "writing")


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{_HOMES.get(name, 'errors')}"), name)
    globals()[name] = value
    return value
