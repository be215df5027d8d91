"""What the conditions and the selection of a read leave, column by column: what the planner chooses a way by."""

from __future__ import annotations

from dataclasses import dataclass

from store_core.plan import Spec
from store_core.predicates import Range, points_of, range_of
from store_core.selection import Selection

__all__ = ["Asked", "asked_for", "selected_topics"]


@dataclass(frozen=True)
class Asked:
    """What the conditions leave, column by column: sets of values (None: any) and ranges."""

    topics: frozenset[str] | None
    queue_ids: frozenset[int] | None
    queue_offset: Range
    log_offset: Range
    places: frozenset[int] | None
    time: Range
    keys: frozenset[str] | None
    """Key strings of which each row must have been indexed under at least one."""
    impossible: bool


def asked_for(spec: Spec) -> Asked:
    """The least that `spec.where` and `spec.selection` leave together."""
    where, selection = spec.where, spec.selection
    topics = points_of(where, "topic")
    chosen = selected_topics(selection)
    if chosen is not None:
        topics = chosen if topics is None else topics & chosen
    micros = range_of(where, "storeTimestamp")
    time = Range(None if micros.low is None else -(-micros.low // 1000), None if micros.high is None else micros.high // 1000)
    end = selection.ending_timestamp
    time = time.clip(selection.starting_timestamp, None if end is None else end - 1)
    places = points_of(where, "commitLogOffset")
    for ids in (points_of(where, "offsetMsgId"), selection.offset_msg_ids):
        if ids is not None:
            found = frozenset(_offset_in(text) for text in ids) - {-1}
            places = found if places is None else places & found
    log_offset = range_of(where, "commitLogOffset")
    queue_offset = range_of(where, "queueOffset")
    queue_ids = points_of(where, "queueId")
    keys = _keys(spec)
    sets = (topics, queue_ids, places, keys)
    impossible = any(s is not None and not s for s in sets) or any(
        r.is_empty for r in (queue_offset, log_offset, time, range_of(where, "queueId"), range_of(where, "storeSize"))
    )
    return Asked(topics, queue_ids, queue_offset, log_offset, places, time, keys, impossible)


def selected_topics(selection: Selection) -> frozenset[str] | None:
    """The topics that `subscribe` or `assign` names; None for any."""
    if selection.subscribe is not None:
        return frozenset(selection.subscribe)
    if selection.assign is not None:
        return frozenset(topic for topic, _ in selection.assign)
    return None


def _offset_in(offset_msg_id: str) -> int:
    """The commitLogOffset at the end of an offset message id; -1 where that is none."""
    try:
        raw = bytes.fromhex(offset_msg_id)
    except ValueError:
        return -1
    return int.from_bytes(raw[-8:], "big", signed=True) if len(raw) in (16, 28) else -1


def _keys(spec: Spec) -> frozenset[str] | None:
    """The smallest set of key strings to look up; None where no condition on keys can use the index."""
    sets: list[frozenset[str]] = []
    for values in (points_of(spec.where, "uniqKey"), spec.selection.uniq_keys):
        if values is not None:
            sets.append(frozenset(values) - {""})
    if spec.selection.keys is not None:
        sets.append(frozenset(k for k in spec.selection.keys if k and " " not in k))
    raw = points_of(spec.where, "keys")
    if raw is not None:
        tokens = [next((t for t in text.split(" ") if t), None) for text in raw]
        if all(t is not None for t in tokens):
            sets.append(frozenset(t for t in tokens if t is not None))
    return min(sets, key=len) if sets else None
