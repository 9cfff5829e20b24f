"""Two engines back to back, a stateful machine in between that plays both applications and a cruel network.

Checked all the time: items delivered are items sent, in order; never more than the credit; one terminal signal a
stream; nothing after it; the queues stay within their bounds; whatever splits the bytes changes nothing.
"""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from afflux.core import events as ev
from afflux.core.errors import ApplicationError
from afflux.core.limits import Limits
from afflux.core.payload import Payload
from afflux.protocols.rsocket import Engine, frames

from .playbook import requester, responder, setup

payloads = st.builds(
    Payload,
    st.binary(max_size=40) | st.integers(0, 3000).map(lambda size: b"d" * size),
    st.none() | st.binary(max_size=20) | st.integers(0, 500).map(lambda size: b"m" * size),
)


class Side:
    """One engine and what its application remembers."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.out = bytearray()
        self.open: dict[int, str] = {}
        self.sent: dict[int, list[Payload]] = defaultdict(list)
        self.got: dict[int, list[Payload]] = defaultdict(list)
        self.granted: dict[int, int] = defaultdict(int)
        self.ended: dict[int, str] = {}
        self.finished: set[int] = set()
        self.closed = False

    def hear(self, events: list[ev.Event]) -> None:
        for event in ev.singly(events):
            if isinstance(event, ev.Closed):
                self.closed = True
                raise AssertionError(f"the connection ended: {event.error!r}")
            if isinstance(event, ev.Opened):
                self.open[event.stream] = event.verb
                if event.verb in ("channel",):
                    self.got[event.stream].append(event.payload)
                    self.granted[event.stream] = 1
                if event.complete or event.verb != "channel":
                    self._end(event.stream, "complete")
            elif isinstance(event, ev.Items):
                if event.stream in self.ended:
                    raise AssertionError(f"items after the end of {event.stream}: {self.ended[event.stream]}")
                self.got[event.stream] += event.payloads
                if event.complete:
                    self._end(event.stream, "complete")
            elif isinstance(event, ev.Completed):
                self._end(event.stream, "complete")
            elif isinstance(event, ev.Failed):
                self._end(event.stream, "failed", twice=True)
                self.finished.add(event.stream)
            elif isinstance(event, ev.Canceled):
                self.finished.add(event.stream)
                if event.final:
                    self._end(event.stream, "canceled", twice=True)

    def _end(self, stream: int, how: str, twice: bool = False) -> None:
        if stream in self.ended and not twice:
            raise AssertionError(f"stream {stream} ended twice: {self.ended[stream]}, {how}")
        self.ended.setdefault(stream, how)


class Pair(RuleBasedStateMachine):
    """Client and server with small frames, so that fragments are common."""

    @initialize(mtu=st.sampled_from([64, 100, 1000]))
    def start(self, mtu: int) -> None:
        limits = Limits.server().replace(glitch_bucket=(100_000, 0), cancel_bucket=(100_000, 0))
        self.client = Side(Engine("client", limits=limits, mtu=mtu))
        self.server = Side(Engine("server", limits=limits, mtu=mtu))
        self.server.hear(self.server.engine.receive(self.client.engine.outgoing(), 0.0))
        self.sides = (self.client, self.server)
        self.now = 0.0

    def other(self, side: Side) -> Side:
        return self.server if side is self.client else self.client

    @rule(
        who=st.integers(0, 1),
        verb=st.sampled_from(["request", "fire", "stream", "channel"]),
        payload=payloads,
        credit=st.integers(1, 5),
        complete=st.booleans(),
    )
    def opens(self, who: int, verb: ev.Verb, payload: Payload, credit: int, complete: bool) -> None:
        side = self.sides[who]
        if len(side.open) > 20:
            return
        complete = complete and verb == "channel"
        credit = credit if verb in ("stream", "channel") else 0
        stream = side.engine.open(verb, payload, credit=credit, complete=complete)
        side.open[stream] = verb
        side.granted[stream] = credit or 1
        if verb == "channel":
            side.sent[stream].append(payload)
        if verb == "fire":
            side.ended[stream] = "fire"
        if complete or verb != "channel":
            side.finished.add(stream)

    def pick(self, side: Side, choice: int) -> int | None:
        streams = [stream for stream in side.open if side.open[stream] != "fire"]
        return streams[choice % len(streams)] if streams else None

    @rule(
        who=st.integers(0, 1),
        choice=st.integers(0, 50),
        items=st.lists(payloads, min_size=1, max_size=4),
        last=st.booleans(),
    )
    def sends(self, who: int, choice: int, items: list[Payload], last: bool) -> None:
        side = self.sides[who]
        stream = self.pick(side, choice)
        if stream is None or stream in side.finished:
            return
        items = items[: side.engine.credit(stream)]
        if items:
            side.engine.send(stream, items, complete=last)
            side.sent[stream] += items
            if last or side.open[stream] == "request":
                side.finished.add(stream)

    @rule(who=st.integers(0, 1), choice=st.integers(0, 50), n=st.integers(1, 5))
    def grants(self, who: int, choice: int, n: int) -> None:
        side = self.sides[who]
        stream = self.pick(side, choice)
        if stream is not None and side.open[stream] != "request":
            before = side.engine._streams.live.get(stream)
            if before is not None and stream not in side.ended:
                side.granted[stream] += n if before.first_paid else n - 1
                side.engine.request(stream, n)

    @rule(who=st.integers(0, 1), choice=st.integers(0, 50), how=st.sampled_from(["complete", "cancel", "fail"]))
    def ends(self, who: int, choice: int, how: str) -> None:
        side = self.sides[who]
        stream = self.pick(side, choice)
        if stream is None:
            return
        if how == "complete":
            side.engine.complete(stream)
        elif how == "cancel":
            side.engine.cancel(stream)
            side.ended.setdefault(stream, "canceled")
        else:
            side.engine.fail(stream, ApplicationError(0x301, "no"))
            side.ended.setdefault(stream, "failed")
        if how != "cancel" or not self.responds(side, stream):
            side.finished.add(stream)

    def responds(self, side: Side, stream: int) -> bool:
        return stream & 1 == (side is self.server)

    @rule(who=st.integers(0, 1), seed=st.integers(0, 1000), share=st.integers(1, 10))
    def travels(self, who: int, seed: int, share: int) -> None:
        """Some of what one side has said arrives, in pieces."""
        side = self.sides[who]
        while chunk := side.engine.outgoing(1000):
            side.out += chunk
        amount = len(side.out) * share // 10
        dice = random.Random(seed)
        while amount:
            size = min(amount, dice.choice((1, 3, 9, 100, 5000)))
            piece = bytes(side.out[:size])
            del side.out[:size]
            amount -= size
            other = self.other(side)
            other.hear(other.engine.receive(piece, self.now))

    @invariant()
    def items_arrive_in_order(self) -> None:
        for side in getattr(self, "sides", ()):
            other = self.other(side)
            for stream, got in side.got.items():
                assert got == other.sent[stream][: len(got)], stream

    @invariant()
    def credit_is_kept(self) -> None:
        for side in getattr(self, "sides", ()):
            for stream, got in side.got.items():
                if side.open.get(stream) in ("stream", "channel"):
                    assert len(got) <= side.granted[stream], stream

    def teardown(self) -> None:
        """Everything arrives at last: what was sent on streams that ended in order is there."""
        if not hasattr(self, "sides"):
            return
        for _ in range(4):
            for who in (0, 1):
                self.travels(who, 0, 10)
        for side in self.sides:
            other = self.other(side)
            for stream, got in side.got.items():
                if side.ended.get(stream) == "complete" and stream not in other.ended:
                    assert got == other.sent[stream]


TestPair = Pair.TestCase
TestPair.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


# -- splits, cuts, noise --------------------------------------------------------------------------------------


def conversation() -> bytes:
    """What a busy client says to a server."""
    client = Engine("client", mtu=100)
    client.open("request", Payload(b"d" * 250, b"m" * 120))
    client.open("stream", b"s", credit=7)
    client.open("channel", Payload(b"c", b""), credit=1, complete=True)
    client.open("fire", b"f")
    client.request(3, 5)
    client.push(b"push")
    client.cancel(3)
    data = bytearray()
    while chunk := client.outgoing(1000):
        data += chunk
    return bytes(data)


def heard(pieces: list[bytes]) -> list[Any]:
    engine = Engine("server")
    events: list[Any] = []
    for piece in pieces:
        events += engine.receive(piece, 0.0)
    return events


def test_every_split_gives_the_same_events() -> None:
    data = conversation()
    whole = heard([data])
    assert len(whole) >= 7
    for cut in range(len(data) + 1):
        assert heard([data[:cut], data[cut:]]) == whole


@given(st.lists(st.integers(0, 1000), max_size=12))
def test_random_splits_give_the_same_events(cuts: list[int]) -> None:
    data = conversation()
    edges = sorted({0, len(data), *(cut % len(data) for cut in cuts)})
    assert heard([data[a:b] for a, b in itertools.pairwise(edges)]) == heard([data])


def test_every_truncation_ends_in_order() -> None:
    """FR-06."""
    data = conversation()
    for cut in range(len(data)):
        engine = Engine("server")
        events = engine.receive(data[:cut], 0.0) + engine.receive_eof(0.0)
        assert isinstance(events[-1], ev.Closed)
        assert sum(isinstance(event, ev.Closed) for event in events) == 1
        assert engine.closed


def test_every_bit_flip_has_a_documented_outcome() -> None:
    """FR-29."""
    data = conversation()
    for position in range(len(data)):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[position] ^= 1 << bit
            engine = Engine("server")
            events = engine.receive(bytes(flipped), 0.0) + engine.receive_eof(1.0)
            assert isinstance(events[-1], ev.Closed)


@pytest.mark.parametrize("fill", [b"\x00", b"\xff"])
def test_constant_garbage(fill: bytes) -> None:
    """FR-09."""
    for engine in (Engine("server"), responder().engine, requester().engine, Engine("client")):
        engine.receive(fill * 0x10000, 0.0)
        assert engine.closed


@settings(max_examples=300, deadline=None)
@given(st.lists(st.binary(max_size=200), max_size=10), st.booleans())
def test_garbage_never_raises(chunks: list[bytes], established: bool) -> None:
    engine = responder().engine if established else Engine("server")
    for chunk in chunks:
        engine.receive(chunk, 0.0)
    engine.tick(1000.0)
    assert engine.closed


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.integers(0, 63), st.integers(0, 0x3FF), st.binary(max_size=80)), max_size=30
    )
)
def test_framed_garbage_never_raises(said: list[tuple[int, int, int, bytes]]) -> None:
    """Frames whose header is sound and whose rest is not."""
    for play in (responder(), requester()):
        engine = play.engine
        live = engine.open("channel", b"x", credit=3)
        for stream, kind, flags, body in said:
            head = (6 + len(body)).to_bytes(3, "big") + stream.to_bytes(4, "big")
            engine.receive(head + (kind << 10 | flags).to_bytes(2, "big") + body, 0.0)
            engine.credit(live)
        while engine.outgoing(100):
            pass
        engine.tick(1000.0)
        assert engine.closed


def test_bytes_one_by_one_cost_the_same_each() -> None:
    """FR-05: a frame of the largest size, dribbled, is not copied again and again."""
    limit = Limits.server().frame_bytes
    frame = frames.RequestFnf(stream=1, data=bytes(limit - 6)).encode(prefixed=True)
    engine = Engine("server")
    engine.receive(setup().encode(prefixed=True), 0.0)
    assert engine.receive(frame[:3], 0.0) == []
    held = engine._in._buffer
    for position in range(3, 3000):
        engine.receive(frame[position : position + 1], 0.0)
    assert held.pending == 3000
    events = engine.receive(frame[3000:], 0.0)
    assert [type(event) for event in events] == [ev.Opened]
