"""Relations: equality up to unfolding, and subtypes that offer more."""

from __future__ import annotations

from itertools import pairwise

import pytest

pytest.importorskip("lark", reason='the language of session types needs the extra "sessions"')

from hypothesis import given

from afflux import LimitExceeded
from afflux.sessions import Machine, compile_file, is_equal, is_subtype, loads, relations, why_not
from afflux.sessions.types import File
from tests.sessions.trees import files


def machine(text: str) -> Machine:
    types = loads(text)
    return types[next(iter(types))]


@given(files())
def test_a_type_equals_itself(file: File) -> None:
    for each in compile_file(file).values():
        assert is_equal(each, each)
        assert is_equal(each.dual(), each.dual())


def test_unfolding_changes_nothing() -> None:
    once = machine("channel a = recv int -> offer | a | end")
    thrice = machine(
        "channel a = recv int -> offer | b | end channel b = recv int -> offer | recv int -> end | end".replace(
            "recv int -> end | end", "c | end"
        )
        + " channel c = recv int -> offer | a | end"
    )
    assert is_equal(once, thrice)
    assert is_equal(once, machine("channel z = recv int -> offer | y | end channel y = recv int -> offer | y | end"))
    assert not is_equal(once, machine("channel a = recv int -> offer | end | end"))
    assert not is_equal(once, once.dual())


SAFE = [
    ("offer | end | recv int -> end", "offer | end | recv int -> end | end"),
    ("choose | end | end | end", "choose | end | end"),
    ("recv 1 -> end", "recv uint -> end"),
    ("recv 1 -> end", "recv int -> end"),
    ("recv float -> end", "recv double -> end"),
    ("recv +1.5 -> end", "recv float -> end"),
    ("recv +1.5 -> end", "recv double -> end"),
    ('recv "x" -> end', "recv string -> end"),
    ("recv true -> end", "recv bool -> end"),
    ("send string -> end", 'send "x" -> end'),
    ("send double -> end", "send float -> end"),
    ("recv E -> end enum E { a(int) }", "recv F -> end enum F { b(bool), a(int) }"),
    ("recv S -> end struct S { a: 1 }", "recv T -> end struct T { b: uint }"),
    (
        "recv E -> end enum E { no(bool), some(S) } struct S { e: E }",
        "recv F -> end enum F { some(T), no(bool), new(int) } struct T { e: F }",
    ),
    ("recv 5 -> end", "recv +5 -> end"),
]


@pytest.mark.parametrize(("old", "new"), SAFE)
def test_a_server_that_offers_more_is_safe(old: str, new: str) -> None:
    """The clients of the old server follow its dual, of which the new dual is a supertype."""
    before, after = machine(f"channel a = {old}"), machine(f"channel a = {new}")
    assert is_subtype(after, before)
    assert is_subtype(before.dual(), after.dual())


UNSAFE = [
    ("offer | end | end | end", "offer | end | end", "it offers fewer branches"),
    ("choose | end | end", "choose | end | end | end", "it chooses among more branches"),
    ("recv int -> end", "recv uint -> end", "it does not receive all values of the other type"),
    ("recv uint -> end", "recv int -> end", "it does not receive all values of the other type"),
    ("recv double -> end", "recv float -> end", "it does not receive all values of the other type"),
    ("recv -1 -> end", "recv uint -> end", "it does not receive all values of the other type"),
    ("recv 18446744073709551615 -> end", "recv int -> end", "it does not receive all values"),
    ("recv 1 -> end", "recv true -> end", "it does not receive all values of the other type"),
    ("recv bool -> end", "recv true -> end", "it does not receive all values of the other type"),
    ("recv S -> end struct S { a: int }", "recv int -> end", "it does not receive all values of the other type"),
    (
        "recv S -> end struct S { a: int }",
        "recv S -> end struct S { a: int, b: int }",
        "it does not receive all values",
    ),
    ("recv S -> end struct S { a: int }", "recv S -> end struct S { a: bool }", "it does not receive all values"),
    ("recv E -> end enum E { a(int) }", "recv E -> end enum E { b(int) }", "it does not receive all values"),
    ("recv E -> end enum E { a(S) } struct S {}", "recv S -> end struct S {}", "it does not receive all values"),
    ('send "x" -> end', "send string -> end", "it sends values that the other type does not send"),
    ("recv int -> end", "send int -> end", "the steps differ"),
    ("recv int -> end", "end", "the steps differ"),
]


@pytest.mark.parametrize(("old", "new", "reason"), UNSAFE)
def test_other_servers_are_not(old: str, new: str, reason: str) -> None:
    before, after = machine(f"channel a = {old}"), machine(f"channel a = {new}")
    assert reason in (why_not(after, before) or "")
    assert not is_subtype(before.dual(), after.dual())


def test_the_reason_names_both_states() -> None:
    before = machine("channel a = recv int -> send int -> end")
    after = machine("channel a = recv int -> recv bool -> end")
    assert why_not(after, before) == "recv bool (state 1) against send int (state 1): the steps differ"


def test_the_pairs_of_states_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    def ring(size: int) -> Machine:
        names = [*(f"c{n}" for n in range(size)), "c0"]
        return machine(" ".join(f"channel {a} = recv int -> offer | {b} | end" for a, b in pairwise(names)))

    assert is_equal(ring(7), ring(5))
    monkeypatch.setattr(relations, "MOST_PAIRS", 30)
    with pytest.raises(LimitExceeded, match="more than 30 pairs"):
        is_equal(ring(7), ring(5))
