"""Which files make up a store: the commitlog's folders, plain, multi-path or DLedger, and what stands beside them."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Final

from store_core.broker import read_broker_settings
from store_core.errors import CorruptStoreError, StoreNotFoundError, UnsupportedStoreError
from store_core.files import Entry, Files
from store_core.framing import HEAD_PEEK
from store_core.layout import BLANK_MAGIC, DLEDGER_HEADER, MESSAGE_MAGICS
from store_core.options import ReadOptions
from store_core.segments import Framing, Log, Segment, parse_name

__all__ = ["Listing", "list_store"]

_COMMITLOG = re.compile(r"commitlog([-_.]?\d+)?$", re.IGNORECASE)
_DLEDGER: Final = "dledger-"
_TIERED: Final = ("tiered_index_file", "COMMIT_LOG", "CONSUME_QUEUE")


@dataclass(frozen=True)
class Listing:
    """A store as found: `path` as given, `root` the folder with its queues, index and config (None for a commitlog alone).

    `overlaps`: for a check, commitlog files that were left out of `log`, each with the file that holds its first offset too.
    """

    path: str
    root: str | None
    log: Log
    broker_name: str | None
    overlaps: tuple[tuple[Segment, Segment], ...] = ()


def list_store(files: Files, path: str, options: ReadOptions) -> Listing:
    """The store at `path` (an existing local path).

    Errors: StoreNotFoundError where no store is; UnsupportedStoreError for a tiered store; CorruptStoreError where two files
    claim the same bytes of the log (for the table verify, which tells them, that is none).
    """
    entries = files.list(path)
    told = options.store_path_commit_log
    settings = read_broker_settings(files, path).value
    folders: list[tuple[str, Framing]] = []
    if told is not None or options.read_only_commit_log_store_paths is not None:
        for name in (*(told or ()), *(options.read_only_commit_log_store_paths or ())):
            folder = os.path.join(path, name)
            if files.folder(folder) is None:
                raise StoreNotFoundError(
                    f"{folder}: no such folder, though storePathCommitLog or readOnlyCommitLogStorePaths names it"
                )
            folders.append((folder, Framing.PLAIN))
    else:
        folders = [(e.path, Framing.PLAIN) for e in entries if e.is_dir and _COMMITLOG.match(e.name)]
        for name in (*settings.store_path_commit_log, *settings.read_only_commit_log_store_paths):
            folder = os.path.join(path, name)
            found = files.folder(folder)
            if found is not None and found not in (files.folder(known) for known, _ in folders):
                folders.append((folder, Framing.PLAIN))
    folders += [(os.path.join(e.path, "data"), Framing.DLEDGER) for e in entries if e.is_dir and e.name.startswith(_DLEDGER)]
    if folders:
        segments = [segment for folder, framing in folders for segment in _segments(files.list(folder), framing)]
        broker = options.broker_name or settings.broker_name
        if options.table == "verify":
            return Listing(path, path, *_without_overlaps(segments, broker))
        return Listing(path, path, _log(segments), broker)
    alone = _segments(entries, Framing.PLAIN)
    if alone and (framing := _framing_of(files, alone)) is not None:
        return Listing(path, None, _log(_segments(entries, framing)), options.broker_name)
    raise _no_store(files, path, entries)


def _segments(entries: list[Entry], framing: Framing) -> list[Segment]:
    """Stray files are passed over: a reader must not stumble where a broker refuses to start."""
    return [
        Segment(e.path, base, e.size, framing) for e in entries if not e.is_dir and (base := parse_name(e.name)) is not None
    ]


def _log(segments: list[Segment]) -> Log:
    log = Log.of(segments)
    for before, after in zip(log.segments, log.segments[1:], strict=False):
        if after.base_offset < before.end_offset:
            raise CorruptStoreError(
                f"holds commitLogOffsets from {after.base_offset} on, which {before.path} ({before.length} bytes) holds too",
                path=after.path,
                hint="Leave one of the two out, by storePathCommitLog if they stand in different folders",
            )
    return log


def _without_overlaps(
    segments: list[Segment], broker_name: str | None
) -> tuple[Log, str | None, tuple[tuple[Segment, Segment], ...]]:
    kept: list[Segment] = []
    overlaps = []
    for segment in Log.of(segments):
        if kept and segment.base_offset < kept[-1].end_offset:
            overlaps.append((segment, kept[-1]))
        else:
            kept.append(segment)
    return Log.of(kept), broker_name, tuple(overlaps)


def _framing_of(files: Files, segments: list[Segment]) -> Framing | None:
    """How the files of a folder are framed, by what stands at the start of the first ones; None if that is no commitlog."""
    for segment in segments[:2]:
        head = files.read(segment.path, 0, DLEDGER_HEADER.itemsize + HEAD_PEEK)
        first, second = (int.from_bytes(head[at : at + 4], "big", signed=True) for at in (0, 4))
        if second in (*MESSAGE_MAGICS, BLANK_MAGIC):
            return Framing.PLAIN
        if first == 1 and int.from_bytes(head[52:56], "big", signed=True) in MESSAGE_MAGICS:
            return Framing.DLEDGER
    # a damaged or empty log is still one, if its folder says so
    return Framing.PLAIN if _COMMITLOG.match(os.path.basename(os.path.dirname(segments[0].path))) else None


def _no_store(files: Files, path: str, entries: list[Entry]) -> Exception:
    names = {e.name for e in entries}
    if files.folder(path) is None:
        return StoreNotFoundError(f"{path} is a file. Give the folder: the broker's storePathRootDir, or its commitlog")
    if names & set(_TIERED):
        return UnsupportedStoreError(
            f"{path} belongs to a tiered store, which can't be read yet. Give the broker's own storePathRootDir"
        )
    if path.rstrip("/").endswith(("consumequeue", "index", "config")) and files.list(os.path.join(path, "..", "commitlog")):
        return StoreNotFoundError(f"{path} is a part of a store. Give the store's root, {os.path.dirname(path)}")
    near = [e.path for e in entries if e.is_dir and any(_COMMITLOG.match(inner.name) for inner in files.list(e.path))]
    hint = f" Did you mean {near[0]}?" if near else " Give the broker's storePathRootDir, or its commitlog folder"
    return StoreNotFoundError(
        f"{path} holds no RocketMQ store: no commitlog folder with files of 20 digits, no dledger-*/data.{hint}"
    )
