"""Session types of afflux.sessions on the wire: the trace of the specification, and mistakes of both sides."""

from __future__ import annotations

from typing import Any, Final, Literal

import pytest

from afflux import LimitExceeded, Limits, Payload
from afflux.core import events as ev
from afflux.protocols.limit import Choice, Engine, Opening, Turn, Unchecked, Value
from afflux.protocols.limit.frames import LimitFrame, decode
from afflux.protocols.limit.messages import VariedValues
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
    assert [item.value for item in notation.items([1, 2])] == [1, 2]
    assert notation.values(items) is None
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


# Loops: consecutive values are taken together

ITEMS = loaded(
    {
        "name": "items",
        "states": [["recv", "uint", 1], ["choose", 2, 3], ["send", "string", 1], ["end"]],
        "types": {},
    }
)


ROLES: Final[tuple[Literal["client", "server"], ...]] = ("client", "server")


def answering(limits: Limits | None = None, credit: int = 1000) -> tuple[Engine, Engine]:
    """A client that has asked, and the server that answers."""
    client = Engine("client", channels=typed({"items": ITEMS}, client=True), limits=limits)
    server = Engine("server", channels=typed({"items": ITEMS}, client=False), limits=limits)
    client.open("channel", Opening("items"), credit=credit)
    client.send(1, [Value(3)])
    server.receive(client.outgoing(), 0.0)
    server.request(1, 9)
    server.tick(0.0)
    return client, server


TEXTS = [
    ["a", "b", "c"],
    ["x" * 64] * 300,
    ["", "a", "bb", "ccc", "dd", "e"],
    [str(number) for number in range(400)],
    ["é", "ab", "x" * 3000, "y" * 3000],
]


@pytest.mark.parametrize("texts", TEXTS)
def test_a_run_of_values_is_sent_as_they_are_one_by_one(texts: list[str]) -> None:
    """The numbers, too (R-14)."""
    _, together = answering()
    _, single = answering()
    together.send(1, [Value(text) for text in texts] + [Choice(1)])
    for text in texts:
        single.send(1, [Value(text)])
    single.send(1, [Choice(1)])
    assert together.outgoing(1 << 30) == single.outgoing(1 << 30)


@pytest.mark.parametrize("texts", TEXTS)
@pytest.mark.parametrize("step", [1 << 30, 1000, 7])
def test_a_run_of_values_is_received_in_any_chunks(texts: list[str], step: int) -> None:
    client, server = answering()
    server.send(1, [*(Value(text) for text in texts), Choice(1)])
    data = server.outgoing(1 << 30)
    events = [event for at in range(0, len(data), step) for event in client.receive(data[at : at + step], 0.0)]
    assert values(events) == [*texts, Choice(1)]
    assert [event for event in events if isinstance(event, ev.Completed)]


def test_items_of_a_run() -> None:
    """A sequence of values: each has its bytes, and a slice is a sequence."""
    client, server = answering()
    server.send(1, [Value(text) for text in ("a", "b", "c", "d")])
    (event,) = [event for event in client.receive(server.outgoing(), 0.0) if isinstance(event, ev.Items)]
    items = event.payloads
    assert [(item.value, item.data, item.metadata) for item in items] == [
        (text, b"\xa1" + text.encode(), None) for text in "abcd"
    ]
    assert (items[1].value, items[-1].value, items.size) == ("b", "d", 8)
    assert [item.value for item in items[1:3]] == ["b", "c"]
    assert (len(items[1:3]), items[1:3][1].data, len(items[3:1])) == (2, b"\xa1c", 0)
    with pytest.raises(IndexError):
        items[4]
    notation = client.typed_sessions.notation()
    assert (notation.values(items), notation.values(items[2:])) == (["a", "b", "c", "d"], ["c", "d"])
    client.consumed(items.size, len(items))
    assert client.held_bytes == 0


def test_no_more_than_the_application_has_asked_for() -> None:
    """D-16."""
    client, server = answering(credit=3)
    server.send(1, [Value(text) for text in "abcdef"])
    assert values(client.receive(server.outgoing(), 0.0)) == ["a", "b", "c"]
    client.request(1, 2)
    assert values(client.tick(0.0)) == ["d", "e"]
    assert not client.wants_read


def test_the_values_before_an_own_mistake_are_sent() -> None:
    client, server = answering()
    with pytest.raises(SessionTypeError, match=r"expects send string .state 1.*int 3"):
        server.send(1, [Value("a"), Value("b"), Value(3), Value("d")])
    assert values(client.receive(server.outgoing(), 0.0)) == ["a", "b"]
    server.send(1, [Value("c", metadata=b"m"), Value("", data=b"\xa1d"), b"\xa1e", Value("f")])
    assert values(client.receive(server.outgoing(), 0.0)) == ["c", "d", "e", "f"]


def test_R_30_a_value_of_a_run_that_is_too_large() -> None:
    """The values before it are sent, and the session ends."""
    client, server = answering(Limits.server(frame_bytes=1006, payload_bytes=1000, first_frame_bytes=1006))
    with pytest.raises(LimitExceeded, match="fit a frame"):
        server.send(1, [Value("a"), Value("b"), Value("x" * 1001), Value("d")])
    events = client.receive(server.outgoing(), 0.0)
    assert values(events) == ["a", "b"]
    assert isinstance(events[-1], ev.Failed)


def test_SI_25_the_values_before_a_mistake_of_the_peer_are_delivered() -> None:
    client, server = answering()
    server.send(1, [Value(text) for text in "abcdef"])
    data = server.outgoing().replace(b"\xa1d", b"\xa1\xff")
    events = client.receive(data, 0.0)
    assert values(events) == ["a", "b", "c"]
    (error,) = [event.error for event in events if isinstance(event, ev.Failed)]
    assert isinstance(error, SessionViolation)
    assert (error.state, error.expected, error.seen) == (1, "recv string", "a string that is not UTF-8")


def test_SI_25_a_mistake_among_values_of_several_sizes() -> None:
    client, server = answering()
    server.send(1, [Value(text) for text in ("a", "bb", "ccc", "dddd")])
    events = client.receive(server.outgoing().replace(b"\xa3ccc", b"\xa3c\xffc"), 0.0)
    assert values(events) == ["a", "bb"]
    (error,) = [event.error for event in events if isinstance(event, ev.Failed)]
    assert isinstance(error, SessionViolation)


def test_values_of_a_client() -> None:
    """A loop of the client's, in which the server takes one value at a time."""
    pair = Pair()
    pair.client.send(pair.stream, [Value(number) for number in range(200)])
    _, events = pair.turn(client=True)
    assert values(events) == list(range(98))
    pair.server.request(1, 200)
    assert values(pair.server.tick(0.0)) == list(range(98, 200))


def test_R_17_ids_that_are_used_again_are_checked_one_by_one() -> None:
    engines = [
        Engine(role, channels=typed({"items": ITEMS}, client=role == "client"), reuse_ids=True) for role in ROLES
    ]
    client, server = engines
    client.open("channel", Opening("items"), credit=9)
    client.send(1, [Value(3)])
    server.receive(client.outgoing(), 0.0)
    server.request(1, 9)
    server.tick(0.0)
    server.send(1, [Value("a"), Value("b")])
    assert values(client.receive(server.outgoing(), 0.0)) == ["a", "b"]


def test_D_15_unchecked_payloads_of_a_run() -> None:
    """Payloads without metadata are sent as bytes are."""
    client, other = (Engine("client", channels=lambda name: Unchecked()) for _ in range(2))
    for engine in (client, other):
        engine.open("channel", Opening("raw"))
    client.send(1, [Payload(b"a"), b"b", Payload(b"c", b"m"), b"d"])
    for payload in (b"a", b"b", Payload(b"c", b"m"), b"d"):
        other.send(1, [payload])
    assert client.outgoing() == other.outgoing()


def test_values_of_several_sizes_are_a_sequence() -> None:
    values = VariedValues([b"a", b"bc", b""], [1, 2, None])
    assert [(one.value, one.data) for one in values] == [(1, b"a"), (2, b"bc"), (None, b"")]
    assert (values[1].value, values[1].data, len(values), values.size) == (2, b"bc", 3, 3)
    assert [(one.value, one.data) for one in values[1:]] == [(2, b"bc"), (None, b"")]
