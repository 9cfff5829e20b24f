"""Session types of afflux.sessions on the wire: the trace of the specification, and mistakes of both sides."""

from __future__ import annotations

from typing import Any

import pytest

from afflux.core import events as ev
from afflux.protocols.limit import Choice, Engine, Opening, Turn, Value
from afflux.protocols.limit.frames import LimitFrame, decode
from afflux.protocols.limit.typed import typed
from afflux.sessions import SessionTypeError, SessionViolation
from afflux.sessions.machine import loaded

SUM = loaded(
    {
        "name": "sum",
        "states": [["recv", "int", 1], ["offer", 0, 2], ["recv", "Done", 3], ["send", "int", 4], ["end"]],
        "types": {"Done": ["struct"]},
    }
)


class Pair:
    """Two engines; ``turn`` moves the bytes of one and returns its frames and the events of the other."""

    def __init__(self) -> None:
        self.client = Engine("client", channels=typed({"sum": SUM}, client=True))
        self.server = Engine("server", channels=typed({"sum": SUM}, client=False))
        self.stream = self.client.open("channel", Opening("sum"), credit=99)

    def turn(self, client: bool) -> tuple[list[str], list[Any]]:
        one, other = (self.client, self.server) if client else (self.server, self.client)
        one.tick(0.0)
        data = bytes(one.outgoing())
        events = other.receive(data, 0.0)
        if client and any(isinstance(event, ev.Opened) for event in events):
            self.server.request(1, 99)
            events += self.server.tick(0.0)
        frames = [decode(bytes(frame)) for frame in LimitFrame.PREFIX.split(data)]
        return [f"{frame.NAME} {frame.stream} {getattr(frame, 'data', b'').hex()}".strip() for frame in frames], events


def values(events: list[Any]) -> list[Any]:
    items = [item for event in events if isinstance(event, ev.Items) for item in event.payloads]
    return [item.value if isinstance(item, Value) else item for item in items]


def test_R_15_the_trace_of_the_specification() -> None:
    """R-14, R-27: the numbers, and the choice that is left out."""
    pair = Pair()
    pair.client.send(pair.stream, [Value(1), Choice(0), Value(2), Choice(1), Value(())])
    frames, events = pair.turn(client=True)
    assert frames == ["SETUP 0", "PAYLOAD 1 01", "PAYLOAD 3 02", "CHOOSE 5 01", "PAYLOAD 7 90"]
    assert values(events) == [1, 2, Choice(1), ()]
    pair.server.send(1, [Value(3)])
    frames, events = pair.turn(client=False)
    assert frames == ["PAYLOAD 10 03", "END 0"]
    assert values(events) == [3]


def test_SI_25_an_own_mistake_is_refused_before_anything_is_sent() -> None:
    pair = Pair()
    for item, text in ((Value("1"), "send int"), (Choice(0), "send int"), (b"\xa0", "send int")):
        with pytest.raises(SessionTypeError, match=f"expects {text} .state 0.") as caught:
            pair.client.send(pair.stream, [item])
        assert (caught.value.expected, caught.value.state) == ("send int", 0)
    assert pair.turn(client=True)[0] == ["SETUP 0"]


@pytest.mark.parametrize(
    ("frame", "text"),
    [
        ("0000000128 00a0", "expected recv int (state 0), received a string"),
        ("0000000140 0000", "expected recv int (state 0), received the choice of branch 1"),
    ],
)
def test_SI_25_a_mistake_of_the_peer_has_state_expected_and_seen(frame: str, text: str) -> None:
    pair = Pair()
    pair.turn(client=True)
    data = bytes.fromhex(frame)
    events = pair.server.receive(len(data).to_bytes(3, "big") + data, 0.0)
    (error,) = [event.error for event in events if isinstance(event, ev.Failed)]
    assert isinstance(error, SessionViolation)
    assert text in error.message


def test_an_unknown_channel_has_no_type() -> None:
    assert typed({"sum": SUM}, client=True)("x") is None


def test_steps_as_items() -> None:
    """What a driver does with the engine's ability."""
    pair = Pair()
    typed_sessions = pair.client.typed_sessions
    assert typed_sessions is not None
    opening, notation = typed_sessions.opening("sum", SUM.dual()), typed_sessions.notation()
    assert (opening.metadata, opening.steps.expects, opening.steps.turn) == (b"sum", "send int", Turn.SEND)
    assert not notation.first(opening)
    pair.client.send(pair.stream, [notation.value(1), notation.choice(1), notation.value(2), notation.choice(2)])
    _, events = pair.turn(client=True)
    items = [item for event in events if isinstance(event, ev.Items) for item in event.payloads]
    assert [notation.received(item) for item in items] == [(None, 1, True), (None, 2, True), (2, None, False)]
    notation.end()
    notation.ended()


@pytest.mark.parametrize("frame", ["00000000400a", "000000002c00"])
def test_SI_25_a_step_that_is_not_expected_names_what_is(frame: str) -> None:
    """A choice that is no number; an end."""
    pair = Pair()
    pair.turn(client=True)
    data = bytes.fromhex(frame)
    events = pair.server.receive(len(data).to_bytes(3, "big") + data, 0.0)
    assert [event for event in events if isinstance(event, ev.Failed)]
