"""Which bytes of a store answer a question: conditions and selection -> tasks. One planner for all access paths.

The paths, best first: the bytes at a commitLogOffset; the index's places for keys; the queues' entries for topics; and the log
itself, narrowed by offsets and by the times of its files' first records. Each path is completed by a walk of what it can't
account for.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from store_core.asked import Asked, asked_for, selected_topics
from store_core.errors import OptionError
from store_core.hashing import key_hash
from store_core.indexfile import IndexDamage
from store_core.light import LightSlice
from store_core.lookup import CLOCK_TOLERANCE_MS, check_records, index_keys, union
from store_core.plan import EntrySlice, LogRange, MissingRange, Piece, Places, Plan, QueueSlice, Spec, Task, pack
from store_core.planparts import check_topics, piece_size, queue_bounds, queue_steps
from store_core.predicates import Range
from store_core.queues import Queue

if TYPE_CHECKING:
    from store_core.store import Store

__all__ = ["plan_messages"]

_PLACES_PER_PIECE: Final = 5_000
_WALK_NOW: Final = 64 << 20
"""Holes of the index up to this size in all are walked while planning; larger ones become tasks."""
_MOST_GAPS: Final = 1_000
"""With more ranges than this that no queue accounts for, the log is walked as a whole."""
_QUEUE_SHARE: Final = 0.25
"""Queues that hold more than this part of all entries are read faster by walking the log."""
_IN_ENTRIES: Final = frozenset({"topic", "queueId", "queueOffset", "commitLogOffset", "storeSize"})
"""Columns that a queue's entries tell without their messages."""


def plan_messages(store: Store, spec: Spec) -> Plan:
    """The plan for a read of the messages table."""
    asked = asked_for(spec)
    spec = replace(spec, records_until=store.records_until)
    lmq = _lmq_queues(store, spec)
    if not asked.impossible or lmq:
        check_topics(store, spec.selection)
    if asked.impossible and not lmq:
        return Plan(spec, (), ("the conditions exclude each other: nothing is read",))
    notes: list[str] = []
    if not asked.time.is_all and not store.times_ascend:
        asked = replace(asked, time=Range())
        notes.append("times do not ascend along the log: nothing is left out by them")
    if lmq:
        return _plan_lmq(store, spec, asked, lmq, notes)
    if asked.places is not None:
        return _plan_places(store, spec, asked, notes)
    if asked.keys is not None and not spec.options.expand_batches:
        plan = _plan_keys(store, spec, asked, notes)
        if plan is not None:
            return plan
    if asked.topics is not None or spec.selection.subscribe_pattern is not None:
        plan = _plan_queues(store, spec, asked, notes)
        if plan is not None:
            return plan
    pieces = _log_pieces(store, spec, asked, notes, [(store.log.min_offset, store.log.max_offset)])
    return Plan(spec, _packed(spec, pieces), tuple(notes))


def _packed(spec: Spec, pieces: list[Piece]) -> tuple[Task, ...]:
    return pack(pieces, piece_size(spec, sum(p.cost for p in pieces)))


# --- places --------------------------------------------------------------------------------------------------------------


def _plan_places(store: Store, spec: Spec, asked: Asked, notes: list[str]) -> Plan:
    places = sorted(p for p in asked.places or () if _within(asked.log_offset, p))
    inside = [p for p in places if store.log.find(p) is not None]
    notes.append(f"by commitLogOffset: {len(inside)} records of {store.log.total_bytes:,} bytes of log are read")
    if len(inside) < len(places):
        notes.append(
            f"{len(places) - len(inside)} commitLogOffsets are outside of the log, "
            f"[{store.log.min_offset}, {store.log.max_offset})"
        )
    return Plan(spec, _packed(spec, _place_pieces(inside, named=True)), tuple(notes))


def _within(bounds_: Range, value: int) -> bool:
    return (bounds_.low is None or value >= bounds_.low) and (bounds_.high is None or value <= bounds_.high)


def _place_pieces(offsets: list[int], *, named: bool = False) -> list[Piece]:
    return [Places(tuple(offsets[at : at + _PLACES_PER_PIECE]), named) for at in range(0, len(offsets), _PLACES_PER_PIECE)]


# --- keys ----------------------------------------------------------------------------------------------------------------


def _plan_keys(store: Store, spec: Spec, asked: Asked, notes: list[str]) -> Plan | None:
    keys = asked.keys or frozenset()
    topics = asked.topics
    view = store.index_view(spec.options)
    notes += view.notes
    if not view.files:
        return None
    extra: list[tuple[int, int]] = []
    if spec.options.index == "verify":
        # rollback records (0xC) are in no index: only what the queues account for is surely none
        extra = list(store.coverage.gaps)
    if topics is None:
        # the index knows no keys without a topic. All topics have queues, where the queues account for the whole log
        if not store.has_queues:
            notes.append("keys without a topic: no queues tell which topics there are, the log is walked")
            return None
        topics = frozenset(store.topics)
        extra = list(store.coverage.gaps)
    if len(extra) > _MOST_GAPS:
        notes.append(f"{len(extra)} ranges of the log are in no queue: it is walked as a whole")
        return None
    hashes = sorted({key_hash(topic, key) for topic in topics for key in keys})
    try:
        led, skipped = index_keys(store.files, view, hashes, asked.time)
        check_records(store.files, store.log, led)
    except IndexDamage as e:
        store.distrust_index(e)
        notes.append(f"index file {e.path} is damaged, its part of the log is walked: {e}")
        return _plan_keys(store, spec, asked, notes)
    notes += skipped
    found = {offset for each in led for offset in each.chain.commit_log_offset.tolist()}
    holes = union([*view.holes, *extra])
    walked = tuple(holes)
    hidden = sum(store.data_size(start, stop) for start, stop in holes)
    pieces: list[Piece] = []
    if hidden <= _WALK_NOW and not extra and (kept := store.hole_keys(spec)) is not None:
        found |= kept.find(hashes)
        walked = ()
    else:
        found = {o for o in found if not any(start <= o < stop for start, stop in holes)}
        pieces = _log_pieces(store, spec, asked, notes, holes)
    places = sorted(o for o in found if _within(asked.log_offset, o) and o >= store.log.min_offset)
    notes.append(
        f"by index: {len(keys)} key{'s' * (len(keys) > 1)} in {len(topics)} topic{'s' * (len(topics) > 1)} "
        f"lead{'s' * (len(keys) == 1)} to {len(places)} records in {len(view.files) - len(skipped)} index files"
    )
    if hidden:
        how = "was walked and is kept" if not walked else "is walked"
        notes.append(f"not covered by the index, {how}: {_ranges(holes)}")
    pieces = [*_place_pieces(places), *pieces]
    return Plan(replace(spec, walked=walked), _packed(spec, pieces), tuple(notes))


def _ranges(ranges: list[tuple[int, int]]) -> str:
    shown = ", ".join(f"[{start}, {stop})" for start, stop in ranges[:4])
    return shown + (f" and {len(ranges) - 4} more ranges" if len(ranges) > 4 else "")


# --- queues --------------------------------------------------------------------------------------------------------------


def _plan_queues(store: Store, spec: Spec, asked: Asked, notes: list[str]) -> Plan | None:
    """By the entries of the topics' queues; None where walking the log is better."""
    if not store.has_queues:
        notes.append(store.why_no_queues)
        return None
    wanted = [q for q in store.queues if not q.is_lmq and _wants(spec, asked, q)]
    total = sum(_entries(q) for q in store.queues if not q.is_lmq)
    slices = [(q, *queue_bounds(store, spec, asked.queue_offset, asked.time, q)) for q in wanted]
    slices = [s for s in slices if s[1] < s[2]]
    count = sum(stop - first for _, first, stop in slices)
    by_entries = _entries_tell(spec, asked)
    if total and count > _QUEUE_SHARE * total and not by_entries:
        notes.append(
            f"the queues asked for hold {count:,} of about {total:,} entries: walking the log is faster than gathering"
        )
        return None
    coverage = store.coverage
    if len(coverage.gaps) > _MOST_GAPS:
        notes.append(f"{len(coverage.gaps)} ranges of the log are in no queue: it is walked as a whole")
        return None
    notes += store.coverage_notes
    average = max((coverage.end - store.log.min_offset) // max(total, 1), 100)
    pieces: list[Piece] = []
    for queue, first, stop in slices:
        if by_entries and not queue.batch:
            step = max(piece_size(spec, count * queue.unit_size) // queue.unit_size, 1)
            pieces += [EntrySlice(queue, at, end) for at, end in queue_steps(queue, first, stop, step)]
            continue
        size = piece_size(spec, count * average)
        step = max(size // average, 1)
        for at, end in queue_steps(queue, first, stop, step):
            pieces.append(QueueSlice(queue, at, end, min(end - at, stop - first) * average))
    notes.append(f"by queue: {count:,} entries of {len(slices)} queues; {len(store.queues) - len(slices)} queues are skipped")
    gaps = list(coverage.gaps)
    walked = _log_pieces(store, spec, asked, notes, gaps)
    if walked:
        notes.append(f"in no queue, walked: {_ranges([(p.start, p.stop) for p in walked if isinstance(p, LogRange)])}")
    return Plan(replace(spec, walked=tuple(gaps)), _packed(spec, [*pieces, *walked]), tuple(notes))


def _entries_tell(spec: Spec, asked: Asked) -> bool:
    """Whether all that is asked for of some topics stands in their queues' entries: counts, above all.

    Without a topic the log is read, that no damage in it stays unseen.
    """
    options, selection = spec.options, spec.selection
    times = (selection.starting_timestamp, selection.ending_timestamp)
    of_messages = (selection.keys, selection.uniq_keys, selection.offset_msg_ids, selection.tags, *times)
    return (
        options.index == "trust"
        and options.mode == "FAILFAST"  # a corrupt record's row, or lack of one, is known when it has been read
        and not (options.verify_crc or options.expand_batches)
        and _IN_ENTRIES.issuperset({*spec.schema.names, *(p.column for p in spec.where)})
        and all(value is None for value in of_messages)
        and asked.time.is_all
    )


def _wants(spec: Spec, asked: Asked, queue: Queue) -> bool:
    return (
        (asked.topics is None or queue.topic in asked.topics)
        and (asked.queue_ids is None or queue.queue_id in asked.queue_ids)
        and spec.selection.takes(queue.topic, queue.queue_id)
    )


def _entries(queue: Queue) -> int:
    return sum(f.length for f in queue.files) // queue.unit_size


def _lmq_queues(store: Store, spec: Spec) -> list[Queue]:
    """The light message queues that `subscribe` or `assign` names: their entries stand for other topics' messages."""
    named = selected_topics(spec.selection)
    if named is None or not any(topic.startswith("%LMQ%") for topic in named):
        return []
    return [q for q in store.queues if q.is_lmq and spec.selection.takes(q.topic, q.queue_id)]


def _plan_lmq(store: Store, spec: Spec, asked: Asked, queues: list[Queue], notes: list[str]) -> Plan:
    """By the queues' entries; where the log is in no queue, by what its records say of light message queues."""
    named = selected_topics(spec.selection) or frozenset()
    if plain := sorted(t for t in named if not t.startswith("%LMQ%")):
        raise OptionError(
            f"light message queues and topics ({', '.join(plain)}) can't be read in one go. Read them one after the other"
        )
    pieces: list[Piece] = []
    light = []
    for queue in queues:
        first, stop = queue_bounds(store, spec, Range(), asked.time, queue)
        if first < stop:
            pieces.append(QueueSlice(queue, first, stop, (stop - first) * 1024))
        start, end = spec.selection.start_of(queue.topic, queue.queue_id), spec.selection.end_of(queue.topic, queue.queue_id)
        light.append(LightSlice(queue.topic, start or 0, end))
    notes.append(f"by queue: {len(queues)} light message queues")
    gaps = list(store.coverage.gaps)
    pieces += _log_pieces(store, spec, asked, notes, gaps)
    selection = replace(spec.selection, subscribe=None, assign=None, starting_offsets=(), ending_offsets=())
    spec = replace(spec, selection=selection, walked=tuple(gaps), light=tuple(light))
    return Plan(spec, _packed(spec, pieces), tuple(notes))


# --- the log -------------------------------------------------------------------------------------------------------------


def _log_pieces(store: Store, spec: Spec, asked: Asked, notes: list[str], ranges: list[tuple[int, int]]) -> list[Piece]:
    """Walks of `ranges` of the log, narrowed by offset and time. A range must begin where a record or a gap does."""
    low = store.log.min_offset if asked.log_offset.low is None else asked.log_offset.low
    high = store.log.max_offset if asked.log_offset.high is None else asked.log_offset.high + 1
    segments = store.log.segments
    skipped = _skipped_by_time(store, asked.time)
    if skipped:
        notes.append(f"{len(skipped)} of {len(segments)} commitlog files skipped by the times of their first records")
    total = sum(stop - start for start, stop in ranges)
    size = piece_size(spec, total)
    pieces: list[Piece] = []
    for i, segment in enumerate(segments):
        for start, stop in ranges:
            # a DLedger record begins with its entry's header, in front of its offset
            first, last = max(start, segment.base_offset, low - segment.lead), min(stop, segment.end_offset, high)
            if first >= last or i in skipped:
                continue
            # a range, or a file, begins with a record; a bound that a user gave, or a cut, need not
            origin = max(start, segment.base_offset)
            for at in range(first, last, size):
                pieces.append(LogRange(segment, at, min(at + size, last), at if at == origin else origin))
        if i + 1 < len(segments) and segment.end_offset < (after := segments[i + 1]).base_offset:
            lost = (segment.end_offset, after.base_offset)
            if lost[0] < high and low < lost[1] and any(start < lost[1] and lost[0] < stop for start, stop in ranges):
                reason = (
                    f"no file holds commitLogOffsets [{lost[0]}, {lost[1]}): {segment.path} ends before {after.path} begins"
                )
                pieces.append(MissingRange(segment.path, *lost, reason))
    return pieces


def _skipped_by_time(store: Store, time: Range) -> set[int]:
    """Which segments hold no record of such a time: times ascend in a log, but for the clock's tolerance."""
    if time.is_all:
        return set()
    firsts = store.first_times
    skipped = set()
    for i, first in enumerate(firsts):
        after = next((t for t in firsts[i + 1 :] if t is not None), None)
        too_late = time.high is not None and first is not None and first - CLOCK_TOLERANCE_MS > time.high
        too_early = time.low is not None and after is not None and after + CLOCK_TOLERANCE_MS < time.low
        if too_late or too_early:
            skipped.add(i)
    return skipped
