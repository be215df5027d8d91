"""What a store tells of its own broker: its name, and where it keeps its commitlog (`BrokerConfig`, `BrokerMetadata`)."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass

from store_core.config import Loaded, read_topics, read_whole
from store_core.errors import CorruptStoreError
from store_core.files import Files
from store_core.javaproperties import parse_properties

__all__ = ["BrokerSettings", "read_broker_settings"]

_MEMBER_TOPIC = "rmq_sys_SYNC_BROKER_MEMBER_"


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """What a store tells of its broker. The paths are those of the broker's machine, as written; () where none is given."""

    broker_name: str | None = None
    store_path_commit_log: tuple[str, ...] = ()
    read_only_commit_log_store_paths: tuple[str, ...] = ()


def read_broker_settings(files: Files, root: str) -> Loaded[BrokerSettings]:
    """The broker's name and commitlog paths, as far as files of the store in `root` tell them.

    The paths come from config/broker.properties or config/broker.conf (where an operator put the file of `-c` there; of both,
    broker.properties counts). The name comes from there, else from `brokerIdentity`, else from the system topic that a 5.x
    broker names after itself, if there is exactly one. A damaged file gives a note, never an error.
    """
    notes: list[str] = []
    paths: list[str] = []
    given: dict[str, str] = {}
    for name in ("broker.conf", "broker.properties"):
        path = posixpath.join(root, "config", name)
        data = read_whole(files, path)
        if data is not None:
            paths.append(path)
            try:
                given.update(parse_properties(data))
            except CorruptStoreError as e:
                notes.append(f"{e.at(path)}: the file was not used")
    broker = given.get("brokerName", "").strip() or None
    if broker is None:
        broker = _identity(files, root, paths, notes)
    if broker is None:
        broker = _name_in_topics(files, root, paths, notes)
    settings = BrokerSettings(
        broker, _path_list(given.get("storePathCommitLog", "")), _path_list(given.get("readOnlyCommitLogStorePaths", ""))
    )
    return Loaded(settings, tuple(paths), tuple(notes))


def _identity(files: Files, root: str, paths: list[str], notes: list[str]) -> str | None:
    path = posixpath.join(root, "brokerIdentity")
    data = read_whole(files, path)
    if data is None:
        return None
    parts = data.decode("utf-8", "replace").strip().split("#")
    if len(parts) != 3 or not parts[1]:
        notes.append(f"{path}: not of the form cluster#broker#id; the file was not used")
        return None
    paths.append(path)
    return parts[1]


def _name_in_topics(files: Files, root: str, paths: list[str], notes: list[str]) -> str | None:
    try:
        topics = read_topics(files, root)
    except CorruptStoreError as e:
        notes.append(f"the broker's name could not be looked up in the topics: {e}")
        return None
    notes.extend(topics.notes)
    named = [
        topic[len(_MEMBER_TOPIC) :] for topic in topics.value if topic.startswith(_MEMBER_TOPIC) and topic != _MEMBER_TOPIC
    ]
    if len(named) != 1:
        if named:
            notes.append(
                f"the topics are those of several brokers ({', '.join(sorted(named))}): which one wrote this store is not known"
            )
        return None
    paths.extend(topics.paths)
    return named[0]


def _path_list(value: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in value.split(",") if part.strip())
