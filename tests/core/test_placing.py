"""`store_core.placing`: where records go, against a plain model of what a broker does, one record after the other."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.described import DESCRIBED, LIGHT, NO_PLACE, Described
from store_core.errors import OptionError
from store_core.layout import SCHEDULE_TOPIC
from store_core.placing import Blank, Density, Placer, Times

QUEUES = (("A", 0), ("A", 1), ("B", 0))


def described(
    sizes: Sequence[int],
    queues: Sequence[int] | None = None,
    offsets: Sequence[int] | None = None,
    times: Sequence[int] | None = None,
    flags: Sequence[int] | None = None,
    places: Sequence[int] | None = None,
    light: Sequence[tuple[int, int, int]] = (),
    names: tuple[tuple[str, int], ...] = QUEUES,
) -> Described:
    records = np.zeros(len(sizes), DESCRIBED)
    records["size"] = sizes
    records["queue"] = 0 if queues is None else queues
    records["queueOffset"] = NO_PLACE if offsets is None else offsets
    records["commitLogOffset"] = NO_PLACE if places is None else places
    records["storeTimestamp"] = 1 if times is None else times
    records["sysFlag"] = 0 if flags is None else flags
    return Described(records, np.empty(0, np.int32), names, np.array(list(light), LIGHT))


def model(sizes: list[int], file_size: int, log_end: int) -> tuple[list[int], list[Blank], int]:
    """`DefaultAppendMessageCallback#doAppend`, a record at a time."""
    offsets: list[int] = []
    blanks: list[Blank] = []
    for size in sizes:
        room = file_size - log_end % file_size
        if size + 8 > room:
            blanks.append(Blank(log_end, room))
            log_end += room
        offsets.append(log_end)
        log_end += size
    return offsets, blanks, log_end


@given(st.lists(st.integers(91, 300), max_size=40), st.integers(0, 4), st.lists(st.integers(0, 40), max_size=3))
def test_records_are_packed_as_a_broker_does(sizes: list[int], used: int, cuts: list[int]) -> None:
    start = 1024 * 3 + used * 91
    placer = Placer(1024, start)
    offsets: list[int] = []
    blanks: list[Blank] = []
    edges = [0, *sorted(min(c, len(sizes)) for c in cuts), len(sizes)]
    for low, high in itertools.pairwise(edges):
        placed = placer.place(described(sizes[low:high]))
        offsets += placed.described.records["commitLogOffset"].tolist()
        blanks += placed.blanks
    assert (offsets, blanks, placer.log_end) == model(sizes, 1024, start)


def test_the_rule_of_eight_bytes() -> None:
    assert Placer(200).place(described([192])).blanks == ()
    placer = Placer(200)
    placed = placer.place(described([100, 93]))
    assert placed.blanks == (Blank(100, 100),)
    assert placed.described.records["commitLogOffset"].tolist() == [0, 200]


def test_a_record_that_no_file_holds() -> None:
    with pytest.raises(
        OptionError, match=r"topic 'A', queue 0.*193 bytes.*200 bytes holds at most 192.*mappedFileSizeCommitLog"
    ):
        Placer(200).place(described([193]))


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from([0, 4, 8, 12])), max_size=60), st.integers(0, 60))
def test_queues_are_numbered_in_log_order(rows: list[tuple[int, int]], cut: int) -> None:
    placer = Placer(1 << 20, next_offsets={("A", 1): 7})
    following = {0: 0, 1: 7, 2: 0}
    expected: list[int] = []
    found: list[int] = []
    for queue, flag in rows:
        counts = flag in (0, 8)
        expected.append(following[queue] if counts else 0)
        following[queue] += counts
    for part in (rows[:cut], rows[cut:]):
        placed = placer.place(described([91] * len(part), [q for q, _ in part], flags=[f for _, f in part]))
        found += placed.described.records["queueOffset"].tolist()
    assert found == expected
    start = {0: 0, 1: 7, 2: 0}
    assert placer.queues() == {QUEUES[i]: (start[i], n) for i, n in following.items() if n > start[i]}


def test_kept_queue_offsets_begin_anywhere_and_have_no_holes() -> None:
    placer = Placer(1 << 20, keep_offsets=True)
    placer.place(described([91, 91, 91], [0, 1, 0], [5, 0, 6]))
    assert placer.queues() == {("A", 0): (5, 7), ("A", 1): (0, 1)}
    with pytest.raises(
        OptionError, match=r"topic 'A', queue 0: queueOffset 9 follows where 7 is expected; the 2 messages.*renumber"
    ):
        placer.place(described([91], [0], [9]))
    with pytest.raises(OptionError, match=r"queueOffset 0 follows where 1 is expected.*Sort the rows by commitLogOffset"):
        placer.place(described([91], [1], [0]))


def test_kept_queue_offsets_continue_those_of_the_store() -> None:
    with pytest.raises(OptionError, match="queueOffset 9 follows where 8"):
        Placer(1 << 20, next_offsets={("A", 0): 8}, keep_offsets=True).place(described([91], [0], [9]))


def test_records_that_do_not_count_keep_what_they_say() -> None:
    placed = Placer(1 << 20, keep_offsets=True).place(described([91, 91], [0, 0], [3, 0], flags=[0, 4]))
    assert placed.described.records["queueOffset"].tolist() == [3, 0]


def test_a_store_timestamp_that_goes_back() -> None:
    batch = described([91, 91, 91], times=[10, 5, 12])
    with pytest.raises(OptionError, match=r"storeTimestamp 5 ms is 5 ms before.*allowUnorderedTimes"):
        Placer(1 << 20).place(batch)
    with pytest.raises(OptionError, match="10 ms is 1 ms before"):
        Placer(1 << 20, last_timestamp=11).place(described([91], times=[10]))
    allowed = Placer(1 << 20, times=Times.ALLOW).place(batch)
    assert allowed.described.records["storeTimestamp"].tolist() == [10, 5, 12] and not len(allowed.lifted)
    lifted = Placer(1 << 20, last_timestamp=11, times=Times.LIFT).place(batch)
    assert lifted.described.records["storeTimestamp"].tolist() == [11, 11, 12] and lifted.lifted.tolist() == [0, 1]


def test_a_delivery_time_is_raised_with_its_store_timestamp() -> None:
    batch = described([91, 91], [0, 1], times=[5, 5], names=((SCHEDULE_TOPIC, 0), ("A", 0)))
    batch.records["tagsCode"] = [1005, 77]
    placed = Placer(1 << 20, last_timestamp=8, times=Times.LIFT).place(batch)
    assert placed.described.records["tagsCode"].tolist() == [1008, 77]


def test_places_that_hold_are_kept_with_blanks_where_a_broker_left_room() -> None:
    batch = described([100, 50, 91], places=[1000, 1100, 2000])
    density = Density(1000)
    density.add(batch)
    assert density.holds and (density.first, density.end) == (1000, 2091)
    placed = Placer(1000, 1000, keep_places=True).place(batch)
    assert placed.blanks == (Blank(1150, 850),)
    assert placed.described.records["commitLogOffset"].tolist() == [1000, 1100, 2000]


@pytest.mark.parametrize(
    "places",
    [[50, 150], [0, 101], [0, 2000], [0, NO_PLACE], [NO_PLACE, NO_PLACE], [100, 0]],
    ids=["not from a file's start", "a hole", "a file left out", "one without", "all without", "backwards"],
)
def test_places_that_do_not_hold(places: list[int]) -> None:
    density = Density(1000)
    density.add(described([100, 100], places=places))
    assert not density.holds


def test_places_behind_a_store_hold_where_they_continue_it() -> None:
    for first, holds in ((300, True), (1000, True), (400, False), (2000, False)):
        density = Density(1000, expected=300)
        density.add(described([100], places=[first]))
        assert density.holds == holds


def test_light_queues_are_numbered_by_their_messages() -> None:
    names = (("A", 0), ("%LMQ%x", 0))
    placer = Placer(1 << 20)
    placer.place(described([91, 91], light=[(0, 1, 4), (1, 1, 5)], names=names))
    assert placer.queues() == {("A", 0): (0, 2), ("%LMQ%x", 0): (4, 6)}
    with pytest.raises(OptionError, match=r"light message queue '%LMQ%x', queue 0: INNER_MULTI_QUEUE_OFFSET says 9 where 6"):
        placer.place(described([91], light=[(0, 1, 9)], names=names))
