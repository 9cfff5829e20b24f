"""Monitors: the example's messages, own mistakes, the peer's mistakes. Rule numbers are Limit-Stream's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("lark", reason='the language of session types needs the extra "sessions"')

from hypothesis import given
from hypothesis import strategies as st

from afflux import LocalProtocolError, RemoteProtocolError
from afflux.sessions import (
    Kind,
    Machine,
    Monitor,
    Received,
    SessionTypeError,
    SessionViolation,
    compile_file,
    loads,
)
from afflux.sessions.monitor import CHOICE
from afflux.sessions.types import File
from tests.sessions.trees import SUM, files, values_of

ADDER = loads(SUM)["sum"]


def test_the_messages_of_the_example() -> None:
    """The client adds 1 and 2; the trace of the specification, R-27."""
    server, client = Monitor(ADDER), Monitor(ADDER.dual())
    assert client.expected == "send int"
    assert server.received(client.send(1)) == Received(None, 1, True)
    assert client.choose(1) is None, "the first branch is implied"
    assert server.received(client.send(2)) == Received(1, 2, True)
    assert client.choose(2) == 1
    assert server.chosen(1) == Received(2)
    assert server.received(client.send(())) == Received(None, (), True)
    assert client.received(server.send(3)) == Received(None, 3, True)
    assert (server.sent_last, client.sent_last, server.messages, client.messages) == (True, False, 5, 5)
    server.end()
    client.ended()
    assert server.over and client.over
    assert server.expected == "nothing, because the session is over"


def test_a_first_choice_may_be_explicit() -> None:
    server, client = Monitor(ADDER), Monitor(ADDER.dual())
    server.received(client.send(1))
    assert client.choose(1, explicit=True) == 0
    assert server.chosen(0) == Received(1)
    assert server.received(client.send(2)) == Received(None, 2, True)


def test_a_value_in_a_choice_chooses_the_first_branch() -> None:
    server, client = Monitor(ADDER), Monitor(ADDER.dual())
    server.received(client.send(1))
    assert server.received(client.send(2)) == Received(1, 2, True)
    client.sent(b"\x03")
    assert server.received(b"\x03") == Received(1, 3, True)
    assert (client.state, server.state) == (1, 1)


def own(monitor: Monitor, step: Callable[[], Any]) -> str:
    """The error of an own step, which changes nothing."""
    before = (monitor.state, monitor.messages, monitor.over)
    with pytest.raises(SessionTypeError) as caught:
        step()
    assert (monitor.state, monitor.messages, monitor.over) == before
    assert isinstance(caught.value, LocalProtocolError)
    assert not caught.value.may_have_been_processed
    assert caught.value.state == before[0]
    return f"{caught.value.expected} / {caught.value.seen} / {caught.value.rule}"


def test_own_mistakes_are_refused_and_change_nothing() -> None:
    client = Monitor(ADDER.dual())
    assert own(client, lambda: client.choose(1)) == "send int / choose / SI-25"
    assert own(client, lambda: client.end()) == "send int / end / SI-25"
    assert own(client, lambda: client.send("1")) == "send int / str '1' / R-31"
    assert own(client, lambda: client.sent(b"\xa0")) == "send int / a string / R-32"
    client.sent(b"\x01")
    assert own(client, lambda: client.send(())) == "send int / tuple / R-31", "the first branch is implied"
    assert own(client, lambda: client.choose(3)) == "choose of branches 1 to 2 / branch 3 / SI-25"
    client.choose(2)
    client.send([])
    assert own(client, lambda: client.send(1)) == "recv int / send / SI-25"
    client.received(b"\x01")
    client.end()
    for step in (lambda: client.send(1), lambda: client.choose(1), client.end):
        assert own(client, step).startswith("nothing, because the session is over")


def theirs(monitor: Monitor, step: Callable[[], Any]) -> str:
    """The error of the peer's step, which ends the session."""
    with pytest.raises(SessionViolation) as caught:
        step()
    assert monitor.over
    assert isinstance(caught.value, RemoteProtocolError)
    assert caught.value.state == monitor.state
    with pytest.raises(SessionTypeError):
        monitor.send(1)
    with pytest.raises(SessionViolation):
        monitor.received(b"\x01")
    return caught.value.message


def test_the_peers_mistakes_have_state_expected_and_seen() -> None:
    server = Monitor(ADDER)
    broke = "the peer broke the session type: "
    assert (
        theirs(server, lambda: server.chosen(0))
        == f"{broke}expected recv int (state 0), received the choice of branch 1"
    )
    server = Monitor(ADDER)
    assert theirs(server, server.ended) == f"{broke}expected recv int (state 0), received the end"
    server = Monitor(ADDER)
    assert theirs(server, lambda: server.received(b"\xa0")) == f"{broke}expected recv int (state 0), received a string"
    server = Monitor(ADDER)
    server.received(b"\x01")
    text = theirs(server, lambda: server.chosen(2))
    assert text == f"{broke}expected offer of branches 1 to 2 (state 1), received branch 3"
    client = Monitor(ADDER.dual())
    assert theirs(client, lambda: client.received(b"\x01")).endswith("expected send int (state 0), received a value")
    done = Monitor(loads("channel a = end")["a"])
    assert theirs(done, lambda: done.received(b"\x01")).endswith("expected end (state 0), received a value")


def test_a_wrong_value_inside_a_struct_has_a_path() -> None:
    machine = loads("struct S { a: int, b: T } struct T { c: bool } channel x = recv S -> end")["x"]
    monitor = Monitor(machine)
    text = theirs(monitor, lambda: monitor.received(bytes.fromhex("92019101")))
    assert "expected recv bool in S.b.T.c (state 0), received an integer" in text


def test_choices_as_items_of_a_channel() -> None:
    server, client = Monitor(ADDER), Monitor(ADDER.dual())
    assert server.item(client.send(1)).value == 1
    assert client.choice_item(2) == CHOICE + b"\x01"
    assert server.item(CHOICE + b"\x01") == Received(2)
    assert client.send(()) == b"\x90"
    assert server.item(b"\x90").value == ()


def walk(machine: Machine, data: st.DataObject, most: int = 30) -> None:
    """Let both sides take random legal steps: each message of one side is legal for the other."""
    sides = (Monitor(machine), Monitor(machine.dual()))
    while sides[0].kind is not Kind.END and sides[0].messages < most:
        active, passive = sides if sides[0].kind in (Kind.SEND, Kind.CHOOSE) else sides[::-1]
        here = active.machine.states[active.state]
        if here.type is not None:
            value = data.draw(values_of(here.type, dict(machine.types)))
            received = passive.received(active.send(value))
            assert received.value == value
        else:
            index = active.choose(data.draw(st.integers(1, len(here.next))))
            if index is not None:
                assert passive.chosen(index).branch == index + 1
            else:
                value = data.draw(values_of(active.machine.states[active.state].type, dict(machine.types)))  # type: ignore[arg-type]
                assert passive.received(active.send(value)).branch == 1
        assert sides[0].state == sides[1].state
    if sides[0].kind is Kind.END:
        sides[0].end()
        sides[1].ended()


@given(files(), st.data())
def test_both_sides_always_agree(file: File, data: st.DataObject) -> None:
    types = compile_file(file)
    walk(types[data.draw(st.sampled_from(sorted(types)))], data)


@given(files(), st.lists(st.binary(max_size=6) | st.integers(0, 9), max_size=8))
def test_any_messages_are_steps_or_violations(file: File, messages: list[bytes | int]) -> None:
    for machine in compile_file(file).values():
        monitor = Monitor(machine)
        try:
            for message in messages:
                monitor.chosen(message) if isinstance(message, int) else monitor.item(message)
        except SessionViolation:
            assert monitor.over
