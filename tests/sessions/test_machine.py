"""Machines: their states and steps, plain data. Rule numbers are Limit-Stream's."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("lark", reason='the language of session types needs the extra "sessions"')

from hypothesis import given

from afflux.sessions import Kind, State, compile_file, loads
from afflux.sessions.machine import IllegalStep, loaded, plain
from afflux.sessions.types import Basic, Chain, Channel, End, File, Name, Offer
from tests.sessions.trees import SUM, files

RECV, SEND, OFFER, CHOOSE, END = Kind
ADDER = loads(SUM)["sum"]


def test_the_states_of_the_example() -> None:
    assert ADDER.states == (
        State(RECV, (1,), Basic.INT),
        State(OFFER, (0, 2)),
        State(RECV, (3,), Name("Done")),
        State(SEND, (4,), Basic.INT),
        State(END),
    )
    assert (ADDER.name, list(ADDER.types)) == ("sum", ["Done"])


def test_steps() -> None:
    assert [ADDER.step(0, RECV), ADDER.step(1, OFFER, 1), ADDER.step(1, OFFER, 2), ADDER.step(4, END)] == [1, 0, 2, 4]
    assert ADDER.dual().step(0, SEND) == 1
    assert ADDER.step(1, RECV) == 1, "the first branch is implied by its first message (R-27)"
    assert [ADDER.implies(state) for state in range(5)] == [False, True, False, False, False]


@pytest.mark.parametrize(
    ("state", "kind", "branch", "text"),
    [
        (0, SEND, 0, "expected recv int (state 0), not send"),
        (0, OFFER, 1, "expected recv int (state 0), not offer"),
        (1, OFFER, 3, "expected offer of branches 1 to 2 (state 1), not branch 3"),
        (1, OFFER, 0, "expected offer of branches 1 to 2 (state 1), not branch 0"),
        (1, OFFER, True, "expected offer of branches 1 to 2 (state 1), not branch True"),
        (1, OFFER, 1.0, "expected offer of branches 1 to 2 (state 1), not branch 1.0"),
        (1, OFFER, "1", "expected offer of branches 1 to 2 (state 1), not branch '1'"),
        (1, OFFER, None, "expected offer of branches 1 to 2 (state 1), not branch None"),
        (1, SEND, 0, "expected offer of branches 1 to 2 (state 1), not send"),
        (2, END, 0, "expected recv Done (state 2), not end"),
        (4, RECV, 0, "expected end (state 4), not recv"),
    ],
)
def test_illegal_steps(state: int, kind: Kind, branch: int, text: str) -> None:
    with pytest.raises(IllegalStep) as caught:
        ADDER.step(state, kind, branch)
    assert str(caught.value) == text


def test_every_state_permits_its_step_and_refuses_the_others() -> None:
    for view in (ADDER, ADDER.dual()):
        for number, state in enumerate(view.states):
            for kind in Kind:
                legal = kind is state.kind or (
                    view.implies(number) and kind in (RECV, SEND) and kind is view.states[0].kind
                )
                if legal:
                    assert 0 <= view.step(number, kind, 1) < len(view.states)
                else:
                    with pytest.raises(IllegalStep):
                        view.step(number, kind, 1)


def test_a_branch_that_does_not_begin_with_the_step_is_not_implied() -> None:
    machine = loads("channel a = offer | send int -> end | recv int -> end")["a"]
    assert not machine.implies(0)
    with pytest.raises(IllegalStep):
        machine.step(0, RECV)


def test_channels_share_the_states_of_the_channels_they_name() -> None:
    types = loads("channel a = offer | b | b | a channel b = choose | a | b | send bool -> end")
    assert types["a"].states == (
        State(OFFER, (1, 1, 0)),
        State(CHOOSE, (0, 1, 2)),
        State(SEND, (3,), Basic.BOOL),
        State(END),
    )
    assert len(types["b"].states) == 4
    with pytest.raises(KeyError):
        types["c"]


@pytest.mark.parametrize(
    ("text", "name", "told"),
    [
        ("channel sum = end channel echo = end", "sun", "unknown channel 'sun'; did you mean sum? There are sum, echo"),
        ("channel sum = end channel echo = end", "x", "unknown channel 'x': there are sum, echo"),
        ("struct S {}", "x", "unknown channel 'x': there are none"),
    ],
)
def test_an_unknown_channel(text: str, name: str, told: str) -> None:
    types = loads(text)
    with pytest.raises(KeyError) as refused:
        types[name]
    assert str(refused.value) == told
    assert types.get(name) is None


def test_numbers_after_names_have_no_effect() -> None:
    """R-33."""
    numbered = loads("channel a = recv S -> end struct S { b: int = 2, c: E = 1 } enum E { d(int) = 3 }")
    assert numbered["a"] == loads("channel a = recv S -> end struct S { b: int, c: E } enum E { d(int) }")["a"]


def test_a_shared_chain_is_compiled_once() -> None:
    end = Chain((End(),))
    machine = compile_file(File((Channel("a", Chain((Offer((end, end)),))),)))["a"]
    assert machine.states == (State(OFFER, (1, 1)), State(END))


def test_a_value_has_a_codec() -> None:
    assert ADDER.codec(0).pack(1) == b"\x01"
    assert ADDER.codec(0) is ADDER.codec(0)
    with pytest.raises(IllegalStep):
        ADDER.codec(1)


@given(files())
def test_machines_survive_as_plain_data(file: File) -> None:
    for machine in compile_file(file).values():
        again = loaded(json.loads(json.dumps(plain(machine))))
        assert again == machine
        assert plain(again) == plain(machine)
        assert list(again.types) == list(machine.types)


GOOD: dict[str, Any] = {"name": "a", "states": [["recv", "int", 1], ["end"]], "types": {}}


@pytest.mark.parametrize(
    "changes",
    [
        {"states": []},
        {"states": None},
        {"states": [["recv", "int", 2], ["end"]]},
        {"states": [["recv", "int", -1]]},
        {"states": [["recv", "int"]]},
        {"states": [["recv"]]},
        {"states": [["recv", "int", 1, 1], ["end"]]},
        {"states": [["offer", 0]]},
        {"states": [["offer", *range(11)]]},
        {"states": [["offer", "a", "b"]]},
        {"states": [["end", 0]]},
        {"states": [["wait", 0]]},
        {"states": [["recv", "B", 0]]},
        {"states": [["recv", ["bytes", 1], 0]]},
        {"states": [["recv", 3, 0]]},
        {"states": [[]]},
        {"types": {"A": ["union"]}},
        {"types": {"A": ["struct", 1]}},
        {"types": []},
    ],
)
def test_other_data_is_refused(changes: dict[str, Any]) -> None:
    assert loaded(GOOD)
    with pytest.raises(ValueError, match="not a session type"):
        loaded(GOOD | changes)
    with pytest.raises(ValueError, match="not a session type"):
        loaded({key: value for key, value in GOOD.items() if key != "name"})
