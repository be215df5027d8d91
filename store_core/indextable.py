"""Which of a message's key strings each index entry stands for (`IndexService#buildIndex`, `#buildKey`).

An entry holds a hash and the place of a message. The message holds the truth: its UNIQ_KEY, each token of its KEYS (split at
single spaces, empty ones skipped, repeats kept), and from 5.4.0 on its TAGS are indexed, in this order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from store_core.hashing import key_hashes

__all__ = ["INDEX_TYPES", "KEYS_SEPARATOR", "TAG_PREFIX", "KeyStrings", "Resolved", "key_strings", "resolve_entries"]

INDEX_TYPES: Final = ("uniqKey", "key", "tag")
_TAG: Final = 2
TAG_PREFIX: Final = "T#"
KEYS_SEPARATOR: Final = " "


@dataclass(frozen=True, slots=True)
class KeyStrings:
    """The m key strings of some messages, message by message, in the order in which a broker indexes them.

    `row`: int64[m], which message, ascending. `kind`: int8[m], a place in INDEX_TYPES. `key`: string[m], the unique key,
    token or TAGS string itself. `key_hash`: int32[m].
    """

    row: npt.NDArray[np.int64]
    kind: npt.NDArray[np.int8]
    key: pa.StringArray
    key_hash: npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Resolved:
    """What entries stand for: `index_type` (of INDEX_TYPES) and `key`, string[n]; both null where no key string fits."""

    index_type: pa.StringArray
    key: pa.StringArray


def key_strings(
    topic: pa.StringArray, uniq_key: pa.StringArray, keys: pa.StringArray, tags: pa.StringArray | None = None
) -> KeyStrings:
    """The key strings of messages, one row each in all four columns (KEYS and TAGS as stored; null where there is none).

    `tags` None: without tag entries, as brokers before 5.4.0 index. A message without a topic has no key strings.
    """
    known: Any = topic.is_valid()
    uniq_row = _rows(pc.and_(known, _filled(uniq_key)))
    split = pc.split_pattern(keys, KEYS_SEPARATOR)
    tokens: Any = pc.list_flatten(split)
    token_row = np.asarray(pc.list_parent_indices(split), dtype=np.int64)
    keep = _rows(pc.and_(_filled(tokens), known.take(_indices(token_row))))
    rows = [uniq_row, token_row[keep]]
    parts: list[Any] = [uniq_key.take(_indices(uniq_row)), tokens.take(_indices(keep))]
    hashed = list(parts)
    if tags is not None:
        tag_row = _rows(pc.and_(known, _filled(tags)))
        rows.append(tag_row)
        parts.append(tags.take(_indices(tag_row)))
        join: Any = pc.binary_join_element_wise
        hashed.append(join(TAG_PREFIX, parts[_TAG], ""))
    row = np.concatenate(rows)
    kind = np.repeat(np.arange(len(rows), dtype=np.int8), [len(r) for r in rows])
    key_hash = np.concatenate([key_hashes(topic.take(_indices(r)), strings) for r, strings in zip(rows, hashed, strict=True)])
    order = np.lexsort((kind, row))  # stable: tokens keep their order
    key: Any = pa.concat_arrays(parts).take(_indices(order))
    return KeyStrings(row[order], kind[order], key, key_hash[order])


def resolve_entries(
    key_hash: npt.NDArray[np.int32],
    commit_log_offset: npt.NDArray[np.int64],
    message_offset: npt.NDArray[np.int64],
    strings: KeyStrings,
    *,
    carried: int = 0,
) -> Resolved:
    """What each entry stands for, by the hashes of its message's key strings.

    `key_hash`, `commit_log_offset`: the entries, in number order. `message_offset`: int64[rows], ascending, the places of the
    messages whose key strings are `strings` (its row i is the message at message_offset[i]). Entries of one message with
    equal hashes stand for its key strings of that hash in turn, and from the first again: a broker that dispatched a message
    twice has indexed it twice.

    `carried`: the first so many entries only count, and are not in the result. A message's entries may be cut apart, by a
    batch or by the end of a file: put those of the last message before the cut in front of the rest.
    """
    at = np.searchsorted(message_offset, commit_log_offset)
    at = np.where(at < len(message_offset), at, -1)
    row = np.where((message_offset[at] == commit_log_offset) & (at >= 0), at, -1) if len(message_offset) else at
    wanted = _pair(row, key_hash)
    order = np.argsort(wanted, kind="stable")
    ordered = wanted[order]
    turn = np.empty_like(order)
    turn[order] = np.arange(len(order)) - np.searchsorted(ordered, ordered)

    offered = _pair(strings.row, strings.key_hash)
    by_pair = np.argsort(offered, kind="stable")
    offered = offered[by_pair]
    first = np.searchsorted(offered, wanted)
    choices = np.searchsorted(offered, wanted, side="right") - first
    found = choices > 0
    pick = first + turn % np.maximum(choices, 1)
    chosen = by_pair[np.where(found, pick, 0)] if len(by_pair) else np.zeros_like(pick)
    chosen, found = chosen[carried:], found[carried:]
    places: Any = pa.array(chosen, mask=~found)
    kinds: Any = pa.array(INDEX_TYPES).take(_indices(strings.kind))
    return Resolved(kinds.take(places), strings.key.take(places))


def _rows(mask: Any) -> npt.NDArray[np.int64]:
    """Where a boolean array is true."""
    return np.flatnonzero(mask.to_numpy(zero_copy_only=False)).astype(np.int64)


def _indices(rows: npt.NDArray[np.integer[Any]]) -> Any:
    return pa.array(rows)


def _filled(values: Any) -> Any:
    """Neither null nor empty."""
    return pc.greater(pc.binary_length(values), pa.scalar(0)).fill_null(False)


def _pair(row: npt.NDArray[np.int64], key_hash: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
    """Message and hash as one number; a hash has 31 bits."""
    return row << 32 | key_hash.astype(np.int64)
