"""Stream ids in order, around the wrap, and the tombstones of those that ended."""

from __future__ import annotations

from collections.abc import Container, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afflux.core.errors import LimitExceeded
from afflux.core.ids import StreamIds, Tombstones


class Busy:
    """A set that counts how often it is asked."""

    def __init__(self, ids: set[int]) -> None:
        self.ids = ids
        self.asked = 0

    def __contains__(self, id: object) -> bool:
        self.asked += 1
        return id in self.ids

    def __iter__(self) -> Iterator[int]:
        raise TypeError("looked at every id")

    def __len__(self) -> int:
        return len(self.ids)


@pytest.mark.parametrize(("first", "ids"), [(1, [1, 3, 5, 7]), (2, [2, 4, 6, 8])])
def test_in_order_and_of_one_parity(first: int, ids: list[int]) -> None:
    stream_ids = StreamIds(first)
    assert [stream_ids.allocate(()) for _ in range(4)] == ids
    assert not stream_ids.wrapped


@pytest.mark.parametrize(("first", "last"), [(1, 0x7FFFFFFF), (2, 0x7FFFFFFE)])
def test_the_last_id_is_of_the_same_parity(first: int, last: int) -> None:
    assert StreamIds(first).last == last


def test_after_the_last_id_it_starts_again() -> None:
    ids = StreamIds(1, 6)
    seen = [(ids.allocate(()), ids.wrapped) for _ in range(5)]
    assert seen == [(1, False), (3, False), (5, True), (1, True), (3, True)]


def test_busy_ids_are_skipped_after_the_wrap() -> None:
    ids = StreamIds(2, 8)
    live: dict[int, str] = {}
    for _ in range(4):
        live[ids.allocate(live)] = "stream"
    del live[6]
    assert ids.allocate(live) == 6


def test_all_busy_is_a_local_error_and_nothing_changes_for_later() -> None:
    ids = StreamIds(1, 5)
    live = {ids.allocate(()) for _ in range(3)}
    with pytest.raises(LimitExceeded) as caught:
        ids.allocate(live)
    assert caught.value.rule == "ids-exhausted"
    live.discard(3)
    assert ids.allocate(live) == 3


def test_the_peers_ids_do_not_make_ours_look_busy() -> None:
    ids = StreamIds(1, 5)
    live = {2, 4, 6, 8, 1, 3}
    assert ids.allocate(live) == 5
    with pytest.raises(LimitExceeded):
        ids.allocate(live | {5})


def test_the_work_is_bounded_by_the_busy_ones() -> None:
    ids = StreamIds(1)
    busy = Busy(set(range(1, 2000, 2)))
    assert ids.allocate(busy) == 2001
    assert busy.asked == 1001


@pytest.mark.parametrize(("first", "last"), [(0, 9), (3, 9), (2, 1)])
def test_ids_start_at_one_or_two(first: int, last: int) -> None:
    with pytest.raises(ValueError, match="invalid ids"):
        StreamIds(first, last)


@pytest.mark.repetitive
@given(first=st.sampled_from([1, 2]), last=st.integers(2, 12), data=st.data())
def test_an_id_is_found_exactly_when_one_is_free(first: int, last: int, data: st.DataObject) -> None:
    ids = StreamIds(first, last)
    every = set(range(first, last + 1, 2))
    for _ in range(8):
        busy = data.draw(st.sets(st.integers(0, 14)))
        if every <= busy:
            with pytest.raises(LimitExceeded):
                ids.allocate(busy)
        else:
            assert ids.allocate(busy) in every - busy


def test_some_ids_before_the_wrap_need_no_look_at_the_busy_ones() -> None:
    ids, live = StreamIds(1), Busy(set())
    assert ids.allocate_some(3, live) == [1, 3, 5]
    assert ids.allocate(live) == 7
    live.asked = 0
    assert ids.allocate_some(2, live) == [9, 11]
    assert live.asked == 0


@given(st.integers(1, 2), st.integers(2, 20), st.data())
def test_some_ids_are_those_that_would_be_allocated_one_by_one(first: int, last: int, data: st.DataObject) -> None:
    together, singly = StreamIds(first, last), StreamIds(first, last)
    live: set[int] = set()
    for _ in range(data.draw(st.integers(1, 5))):
        wanted: list[int] = []
        count = data.draw(st.integers(1, 12))
        while len(wanted) < count and len({*live, *wanted}) <= (last - first) // 2:
            wanted.append(singly.allocate({*live, *wanted}))
        if wanted:
            assert together.allocate_some(count, live) == wanted
        else:
            with pytest.raises(LimitExceeded):
                together.allocate_some(count, live)
        live |= set(wanted)
        live -= data.draw(st.sets(st.sampled_from(sorted(live)))) if live else set()
        singly.restore(together.state())  # which of the busy ids it looked at last may differ


def test_no_id_twice_before_the_wrap() -> None:
    ids = StreamIds(1, 199)
    assert [ids.allocate(()) for _ in range(100)] == list(range(1, 200, 2))


def test_late_frames_are_free_up_to_their_number() -> None:
    tombstones = Tombstones(4)
    tombstones.add(7, 2)
    assert tombstones.spend(7)
    assert tombstones.spend(7)
    assert not tombstones.spend(7)
    assert 7 in tombstones
    assert not tombstones.spend(9)
    assert 9 not in tombstones


def test_how_many_late_frames_are_left() -> None:
    tombstones = Tombstones(4)
    assert tombstones.free(7) == 0
    tombstones.add(7, 2)
    tombstones.add(9)
    assert [tombstones.free(id) for id in (7, 9, 11)] == [2, 0, 0]
    tombstones.spend(7)
    assert tombstones.free(7) == 1
    tombstones.spend(7)
    tombstones.spend(7)
    assert tombstones.free(7) == 0
    tombstones.add(7, 5)
    tombstones.discard(7)
    assert tombstones.free(7) == 0


def test_without_free_frames_an_id_is_only_remembered() -> None:
    tombstones = Tombstones(4)
    tombstones.add(7)
    assert 7 in tombstones
    assert not tombstones.spend(7)


@pytest.mark.parametrize(("ids", "kept"), [([1], [1]), ([1, 3], [1, 3]), ([1, 3, 5], [3, 5])])
def test_the_oldest_are_forgotten(ids: list[int], kept: list[int]) -> None:
    tombstones = Tombstones(2)
    for id in ids:
        tombstones.add(id, 1)
    known: Container[int] = tombstones
    assert [id for id in ids if id in known] == kept
    assert len(tombstones) == len(kept)


def test_added_again_it_is_the_newest_with_new_free_frames() -> None:
    tombstones = Tombstones(2)
    tombstones.add(1, 1)
    tombstones.add(3, 1)
    tombstones.add(1, 2)
    tombstones.add(5, 1)
    assert 3 not in tombstones
    assert [tombstones.spend(1) for _ in range(3)] == [True, True, False]


def test_all_can_be_forgotten() -> None:
    tombstones = Tombstones(4)
    tombstones.discard(1)
    tombstones.add(1, 1)
    tombstones.clear()
    assert 1 not in tombstones
    assert not tombstones.spend(1)
    assert (len(tombstones), tombstones.state()) == (0, [])


def test_a_limit_of_zero_remembers_nothing() -> None:
    tombstones = Tombstones(0)
    tombstones.add(1, 5)
    assert 1 not in tombstones
    assert not tombstones.spend(1)


def test_discard() -> None:
    tombstones = Tombstones(2)
    tombstones.add(1, 5)
    tombstones.discard(1)
    tombstones.discard(3)
    assert len(tombstones) == 0
