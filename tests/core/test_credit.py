"""Credit, its bounds and windows: the invariants at the head of credit.py."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afflux.core.credit import SATURATED, Bound, Credit, StreamStatus, Unit, Window, smallest


def test_credit_adds_up_and_is_used() -> None:
    credit = Credit()
    credit.add(3)
    credit.add(2)
    credit.take()
    credit.take(3)
    assert (credit.granted, credit.used, credit.available) == (5, 4, 1)
    assert repr(credit) == "<Credit 1 available, 4 used>"


@pytest.mark.parametrize(("n", "allowed"), [(0, True), (4, True), (5, True), (6, False), (-1, False)])
def test_at_the_credit_is_allowed(n: int, allowed: bool) -> None:
    credit = Credit(5)
    if allowed:
        credit.take(n)
        assert (credit.available, credit.used) == (5 - n, n)
        return
    with pytest.raises(ValueError, match="of a credit of 5"):
        credit.take(n)
    assert (credit.available, credit.used) == (5, 0)


def test_credit_saturates() -> None:
    credit = Credit()
    for _ in range(3):
        credit.add(2**62)
    assert credit.available == SATURATED == 0x7FFFFFFFFFFFFFFF
    credit.take(5)
    assert credit.available == SATURATED - 5
    credit.add(100)
    assert credit.available == SATURATED


def test_credit_is_never_revoked() -> None:
    credit = Credit()
    credit.add(0)
    with pytest.raises(ValueError, match="cannot be revoked"):
        credit.add(-1)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 2**63)), max_size=40))
def test_credit_invariant(steps: list[tuple[bool, int]]) -> None:
    credit = Credit()
    for add, n in steps:
        if add:
            credit.add(n)
        elif n <= credit.available:
            credit.take(n)
        assert credit.granted == credit.used + credit.available
        assert min(credit.used, credit.available) >= 0
        assert credit.available <= SATURATED


def test_credit_without_bound_is_never_used_up() -> None:
    credit = Credit(SATURATED)
    credit.spend(5)
    assert (credit.available, credit.used) == (SATURATED, 5)
    credit = Credit(9)
    credit.spend(5)
    assert (credit.available, credit.used) == (4, 5)


@pytest.mark.parametrize(
    ("available", "queued", "room", "bound"),
    [
        (1, 0, 1, "producer"),
        (0, 0, 1, "credit"),
        (0, 0, 0, "credit"),  # room for nothing is no reason while nothing may be sent
        (1, 0, 0, "transport"),
        (0, 1, 0, "transport"),
        (0, 1, 1, None),  # what is queued has been paid for
        (1, 1, -1, "transport"),
    ],
)
def test_what_holds_back_what_this_side_sends(available: int, queued: int, room: int, bound: Bound | None) -> None:
    assert Credit(available).sending(queued=queued, room=room) == bound


def test_what_holds_back_what_the_peer_sends() -> None:
    assert Credit(0).receiving() == "application"
    assert Credit(1).receiving() == "producer"
    assert Credit(1).receiving(memory=False) == "memory"


@pytest.mark.parametrize(
    ("bounds", "reason"),
    [
        ([], "application"),
        ([None], None),
        (["producer", None], None),
        (["producer", "credit"], "credit"),
        (["application", "credit"], "credit"),
        (["producer", "application"], "application"),
        (["transport", "lease", "memory"], "lease"),
    ],
)
def test_a_stream_stands_still_when_no_direction_flows(bounds: list[Bound | None], reason: Bound | None) -> None:
    assert smallest(bounds) == reason


def test_a_status_shows_both_directions() -> None:
    to_send, to_receive = Credit(5), Credit(3)
    to_send.take(2)
    to_receive.spend(1)
    status = StreamStatus.of(
        7,
        "channel",
        "OPEN",
        requester=True,
        to_send=to_send,
        to_receive=to_receive,
        queued=10,
        bounds=["credit"],
    )
    assert (status.stream, status.verb, status.requester, status.state) == (7, "channel", True, "OPEN")
    assert (status.credit, status.sent, status.queued) == (3, 2, 10)
    assert (status.granted, status.outstanding, status.received) == (3, 2, 1)
    assert (status.unit, status.reason) == (Unit.ITEMS, "credit")


def test_a_window_is_refilled_when_half_of_it_is_consumed() -> None:
    window = Window(256)
    assert window.initial() == 256
    assert window.consumed(119, 0) == 0
    assert window.consumed(9, 0) == 128
    assert window.outstanding == 256
    assert window.consumed(0, 0) == 0
    assert window.consumed(256, 0) == 256
    assert repr(window) == "<Window 256 of 256 outstanding, size 256>"


@pytest.mark.parametrize(("size", "least"), [(256, 120), (64, 30), (32, 15), (16, 8), (8, 4), (7, 4)])
def test_a_group_with_a_few_items_less_than_half_of_a_large_window_is_refilled(size: int, least: int) -> None:
    """A channel's first item needs no credit: the groups of an echo have 127 and 129 items."""
    window = Window(size)
    window.initial()
    assert window.consumed(least - 1, 0) == 0
    assert window.consumed(1, 0) == least


def test_the_first_grant_is_made_once() -> None:
    window = Window(8)
    assert [window.initial(), window.initial()] == [8, 0]


@pytest.mark.parametrize(("size", "grants"), [(1, [1, 1, 1, 1]), (2, [1, 1, 1, 1]), (3, [0, 2, 0, 2])])
def test_small_windows(size: int, grants: list[int]) -> None:
    window = Window(size)
    window.initial()
    assert [window.consumed(1, 10) for _ in grants] == grants


@pytest.mark.parametrize(("item", "target"), [(99, 10), (100, 10), (101, 9), (500, 2), (1000, 1), (1001, 1), (9999, 1)])
def test_a_window_shrinks_to_fit_its_bytes(item: int, target: int) -> None:
    window = Window(10, byte_limit=1000)
    window.initial()
    window.consumed(1, item)
    assert window.target == target


def test_a_window_shrinks_at_once_and_grows_again_slowly() -> None:
    window = Window(100, byte_limit=10_000)
    window.initial()
    assert window.consumed(10, 10 * 10) == 0
    assert window.target == 100
    assert window.consumed(1, 5_000) == 0  # one heavy item: room for two
    assert window.target == 2
    assert window.consumed(1, 10) == 0
    assert window.target == 23  # twelve items of 5,110 bytes
    granted, items = 100, 12
    while window.target < 100:
        granted += window.consumed(1, 10)
        items += 1
    assert 40 < items < 60
    assert window.outstanding == granted - items


def test_nothing_but_what_is_outstanding_can_be_consumed() -> None:
    window = Window(4)
    window.initial()
    for items, nbytes in ((5, 0), (-1, 0), (1, -1)):
        with pytest.raises(ValueError, match="4 outstanding"):
            window.consumed(items, nbytes)
    assert window.consumed(4, 0) == 4


@pytest.mark.parametrize(("size", "byte_limit"), [(0, 1), (1, 0)])
def test_a_window_is_not_empty(size: int, byte_limit: int) -> None:
    with pytest.raises(ValueError, match="1 or more"):
        Window(size, byte_limit)


@given(
    size=st.integers(1, 300),
    byte_limit=st.integers(1, 5_000),
    steps=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 2_000)), max_size=60),
)
def test_a_window_never_stalls_and_never_overflows(size: int, byte_limit: int, steps: list[tuple[float, int]]) -> None:
    window = Window(size, byte_limit)
    granted = window.initial()
    consumed = 0
    for part, item in steps:
        items = round(part * window.outstanding)
        grant = window.consumed(items, items * item)
        granted += grant
        consumed += items
        assert grant == 0 or grant * 2 >= window.target
        assert window.outstanding == granted - consumed
        assert 1 <= window.outstanding <= size
        if grant and items:
            assert window.outstanding == 1 or window.outstanding * item <= byte_limit
