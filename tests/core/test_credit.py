"""Credit, ledgers, windows and budgets: the invariants at the head of credit.py."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afflux.core.credit import SATURATED, Bound, Budget, Credit, Ledger, Unit, Window
from afflux.core.errors import Violation


def test_credit_adds_up_and_is_used() -> None:
    credit = Credit()
    credit.add(3)
    credit.add(2)
    credit.take()
    credit.take(3)
    assert (credit.granted, credit.used, credit.available) == (5, 4, 1)
    assert repr(credit) == "<Credit 1 items, 4 used>"


@pytest.mark.parametrize(("n", "allowed"), [(4, True), (5, True), (6, False)])
def test_at_the_credit_is_allowed(n: int, allowed: bool) -> None:
    credit = Credit(Unit.BYTES)
    credit.add(5)
    if allowed:
        credit.take(n)
        assert credit.available == 5 - n
        return
    with pytest.raises(Violation, match="6 bytes with a credit of 5") as caught:
        credit.take(n)
    assert caught.value.rule == "R-27"
    assert (credit.available, credit.used) == (5, 0)


def test_credit_saturates() -> None:
    credit = Credit()
    for _ in range(3):
        credit.add(2**62)
    assert credit.available == credit.granted == SATURATED == 0x7FFFFFFFFFFFFFFF
    credit.take(5)
    credit.add(100)
    assert (credit.granted, credit.available) == (SATURATED, SATURATED - 5)


def test_credit_is_never_revoked() -> None:
    credit = Credit()
    credit.add(0)
    for change in (credit.add, credit.take):
        with pytest.raises(ValueError, match="never revoked"):
            change(-1)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 2**63)), max_size=40))
def test_credit_invariant(steps: list[tuple[bool, int]]) -> None:
    credit = Credit()
    for add, n in steps:
        if add:
            credit.add(n)
        elif n <= credit.available:
            credit.take(n)
        assert credit.granted == credit.used + credit.available
        assert min(credit.granted, credit.used, credit.available) >= 0
        assert max(credit.granted, credit.used, credit.available) <= SATURATED


def ledger_of(application: int, peer: int, transport: int, budget: int) -> Ledger:
    ledger = Ledger()
    ledger.application.add(application)
    ledger.peer.add(peer)
    ledger.transport = transport
    ledger.budget = budget
    return ledger


@pytest.mark.parametrize(
    ("bounds", "effective", "limited_by"),
    [
        ((1, 2, 3, 4), 1, "application"),
        ((4, 1, 2, 3), 1, "peer"),
        ((3, 4, 1, 2), 1, "transport"),
        ((2, 3, 4, 1), 1, "budget"),
        ((1, 1, 1, 1), 1, "application"),
        ((2, 1, 1, 1), 1, "peer"),
        ((2, 2, 1, 1), 1, "transport"),
        ((0, 0, 0, 0), 0, "application"),
        ((5, 5, -7, 5), 0, "transport"),
        ((5, 5, 5, -7), 0, "budget"),
    ],
)
def test_the_smallest_bound_decides(bounds: tuple[int, int, int, int], effective: int, limited_by: Bound) -> None:
    ledger = ledger_of(*bounds)
    assert ledger.effective() == effective
    assert ledger.limited_by() == limited_by


def test_a_new_ledger_waits_for_the_application() -> None:
    ledger = Ledger()
    assert repr(ledger) == "<Ledger 0 items, limited by application>"


def test_rooms_are_converted_by_what_items_weigh() -> None:
    ledger = ledger_of(1000, 1000, 10_000, 5_000)
    ledger.observe(100)
    assert ledger.item_bytes == 100
    assert (ledger.effective(), ledger.limited_by()) == (50, "budget")
    ledger.observe(1000)  # a heavier item counts at once
    assert ledger.effective() == 5
    ledger.observe(10)  # a lighter one bit by bit
    assert 10 < ledger.item_bytes < 1000


def test_an_item_greater_than_the_room_passes_alone() -> None:
    ledger = ledger_of(9, 9, 1, 1)
    ledger.observe(1 << 20)
    assert ledger.effective() == 1


def test_empty_items_weigh_one_byte() -> None:
    ledger = Ledger()
    ledger.observe(0)
    ledger.observe(0)
    assert ledger.item_bytes == 1


def test_bytes_are_not_converted() -> None:
    ledger = Ledger(Unit.BYTES)
    ledger.application.add(500)
    ledger.peer.add(400)
    ledger.transport = 300
    ledger.observe(100)
    assert ledger.unit is Unit.BYTES
    assert (ledger.effective(), ledger.limited_by()) == (300, "transport")


@given(st.tuples(*[st.integers(0, 9)] * 4), st.lists(st.integers(0, 1 << 24), max_size=5))
def test_demand_is_there_exactly_when_all_bounds_are(bounds: tuple[int, int, int, int], sizes: list[int]) -> None:
    ledger = ledger_of(*bounds)
    for size in sizes:
        ledger.observe(size)
    assert (ledger.effective() > 0) == all(bounds)


def test_a_window_is_refilled_when_half_of_it_is_consumed() -> None:
    window = Window(256)
    assert window.initial() == 256
    assert window.consumed(127, 0) == 0
    assert window.consumed(1, 0) == 128
    assert window.outstanding == 256
    assert window.consumed(0, 0) == 0
    assert window.consumed(256, 0) == 256
    assert repr(window) == "<Window 256 of 256 outstanding, size 256>"


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


@pytest.mark.parametrize(("size", "fits"), [(899, True), (900, True), (901, False)])
def test_a_budget_counts_the_overhead(size: int, fits: bool) -> None:
    budget = Budget(1000, 100)
    assert budget.hold(size) is fits
    assert budget.used == (size + 100 if fits else 0)
    assert budget.used + budget.room == 1000


def test_empty_objects_are_not_free() -> None:
    budget = Budget(1024, 512)
    assert budget.hold(0, objects=2)
    assert not budget.hold(0)
    assert repr(budget) == "<Budget 1024 of 1024 bytes>"
    budget.release(0, objects=2)
    assert budget.room == 1024


def test_a_budget_does_not_go_below_zero() -> None:
    budget = Budget(100, 10)
    assert budget.hold(50)
    with pytest.raises(ValueError, match="60 bytes held"):
        budget.release(51)
    assert budget.used == 60
    budget.release(50)
    assert budget.used == 0


@pytest.mark.parametrize(("size", "objects"), [(-1, 1), (1, -1)])
def test_a_budget_counts_no_negative_numbers(size: int, objects: int) -> None:
    budget = Budget(100)
    for change in (budget.hold, budget.release):
        with pytest.raises(ValueError, match="0 or more"):
            change(size, objects)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 60), st.integers(0, 3)), max_size=40))
def test_budget_invariant(steps: list[tuple[bool, int, int]]) -> None:
    budget = Budget(100, 7)
    held: list[tuple[int, int]] = []
    for hold, size, objects in steps:
        if hold and budget.hold(size, objects):
            held.append((size, objects))
        elif not hold and held:
            budget.release(*held.pop())
        assert budget.used == sum(size + objects * 7 for size, objects in held)
        assert 0 <= budget.used <= 100
        assert budget.used + budget.room == 100
