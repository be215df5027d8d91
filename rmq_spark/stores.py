"""The stores behind the option `path`: a glob or a list gives several, whose plans are read as one table."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from store_core import Plan, Store, open_store
from store_core.errors import OptionError, StoreNotFoundError, nearest
from store_core.files import local_path
from store_core.optiontypes import Offsets
from store_core.predicates import Where
from store_core.selection import Selection

__all__ = ["expand", "open_stores", "plan_stores"]


def expand(paths: Iterable[str]) -> list[str]:
    """Absolute local paths, each once. A path that exists is taken as it stands, with whatever characters its name has.

    Errors: OptionError for no path, one store twice, or a URI that is not local; StoreNotFoundError for what matches nothing.
    """
    found: dict[str, str] = {}
    for path in paths:
        for store in _matches(path):
            real = os.path.realpath(store)
            if real in found:
                raise OptionError(
                    f"{store}: this store is given twice (as {found[real]} too), so its rows would be there twice. Give it once"
                )
            found[real] = store
    if not found:
        raise OptionError(
            "option 'path' is missing: give the store's folder, as in .load(\"path/to/store\"); or for a catalog table, whose "
            "options come to us through the bridge only, load that with rmq_spark.register(spark) or write "
            "SELECT ... FROM the_table WITH (path = 'path/to/store')"
        )
    return list(found.values())


def _matches(path: str) -> list[str]:
    try:
        return [local_path(path)]
    except StoreNotFoundError as e:
        if not glob.has_magic(path):
            if path.startswith("file:"):  # so Spark writes what it has made absolute
                hint = "(A relative path in CREATE TABLE counts from Spark's warehouse folder: give an absolute one)"
                raise StoreNotFoundError(f"{e}. {hint}") from e
            raise
    pattern = path.removeprefix("file:")
    matched = sorted(glob.glob(pattern))
    if not matched:
        raise StoreNotFoundError(
            f"{path}: nothing matches this pattern. Give a folder that holds a store, or a pattern of such folders"
        )
    return [local_path(store) for store in matched]


def plan_stores(
    paths: Iterable[str], options: Mapping[str, Any], columns: Sequence[str], where: Where | None = None
) -> list[Plan]:
    """One plan per store, all with the same schema. `options`: as given, with names in lower case.

    With several stores, each topic need be in one of them only, and `minPartitions` is for all together.
    """
    own = open_stores(expand(paths), options)
    if len(own) == 1:
        return [own[0][0].plan(where, columns, **own[0][1])]
    plans = [store.plan(where, columns, **narrowed | {"minpartitions": None}) for store, narrowed in own]
    fewest = own[0][0].options.min_partitions or 0
    if sum(len(plan.tasks) for plan in plans) < fewest:
        costs = [sum(task.cost for task in plan.tasks) for plan in plans]
        shares = [max(-(-fewest * cost // max(sum(costs), 1)), 1) for cost in costs]
        plans = [
            store.plan(where, columns, **narrowed | {"minpartitions": share})
            for (store, narrowed), share in zip(own, shares, strict=True)
        ]
    return plans


def open_stores(paths: Sequence[str], options: Mapping[str, Any]) -> list[tuple[Store, dict[str, Any]]]:
    """Stores, each with what it wants in place of the options that name topics; less those that have none of these topics.

    Errors: OptionError for a topic that is in none of them.
    """
    stores = [open_store(path, **options) for path in paths]
    if len(stores) == 1:
        return [(stores[0], {})]
    _check_topics(stores)
    return [(store, narrowed) for store in stores if (narrowed := _topics_of(store)) is not None]


def _named(selection: Selection) -> tuple[str, ...]:
    return selection.subscribe or tuple(topic for topic, _ in selection.assign or ())


def _known_topics(store: Store) -> tuple[bool, tuple[str, ...]]:
    """Whether the store can tell which topics it has, and those that have queues."""
    return store.at_one_moment(lambda: (store.knows_topics, store.topics))


def _check_topics(stores: Sequence[Store]) -> None:
    """A topic that none of the stores has is an error, if all of them can tell."""
    named = _named(stores[0].options.selection)
    if not named:
        return
    found = [_known_topics(store) for store in stores]
    if not all(knows for knows, _ in found):
        return
    known = sorted({topic for _, topics in found for topic in topics})
    for topic in named:
        if topic not in known:
            raise OptionError(f"no topic {topic!r} in any of the {len(stores)} stores.{nearest(topic, known)}")


def _topics_of(store: Store) -> dict[str, Any] | None:
    """The options that name topics, less those that this store does not have; None where none is left."""
    selection = store.options.selection
    named = _named(selection)
    if not named:
        return {}
    knows, topics = _known_topics(store)
    if not knows:
        return {}
    here = set(named) & set(topics)
    if not here:
        return None
    narrowed: dict[str, Any] = {
        "startingoffsets": _offsets_of(selection.starting_offsets, here),
        "endingoffsets": _offsets_of(selection.ending_offsets, here),
    }
    if selection.subscribe is not None:
        return narrowed | {"subscribe": [topic for topic in named if topic in here]}
    return narrowed | {"assign": {topic: queues for topic, queues in selection.assign or () if topic in here}}


def _offsets_of(offsets: Offsets, topics: set[str]) -> dict[str, dict[int, int]] | None:
    found: dict[str, dict[int, int]] = {}
    for topic, queue, offset in offsets:
        if topic in topics:
            found.setdefault(topic, {})[queue] = offset
    return found or None
