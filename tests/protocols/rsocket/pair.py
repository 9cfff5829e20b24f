"""Two RSocket engines back to back: the applications and the network of sessions that outlive their transports.

Pairs whose transport stays are in tests/protocols/generic; what is here knows RSocket's ids, which the two ends share.
"""

from __future__ import annotations

import random
from collections import defaultdict

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from afflux.core import events as ev
from afflux.core.errors import ApplicationError
from afflux.core.limits import Limits
from afflux.core.payload import Payload
from afflux.protocols.rsocket import Engine

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
            before = side.engine.stream_table.live.get(stream)
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
