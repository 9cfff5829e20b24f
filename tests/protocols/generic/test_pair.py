"""Two engines of one protocol back to back; a stateful machine plays both applications and a cruel network.

Checked all the time: items delivered are items sent, in order; never more than the credit; one terminal signal a
stream and nothing after it; two good ends never charge each other. In the end: nothing sent within credit is lost, who
completed is heard, and both ends close once.
"""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from afflux.core import events as ev
from afflux.core.errors import ApplicationError, LimitExceeded
from afflux.core.limits import Limits
from afflux.core.payload import Payload

from .every import WIRES
from .wires import ROLES, Role, Wire, id_of, said

LIMITS = Limits.server().replace(cancel_bucket=(100_000, 0), object_overhead_bytes=0)
MOST = 12
"Streams that a side has open at a time."
KINDS = ("request", "fire")
"What has one answer at most, and no credit."

PAYLOADS = st.builds(
    Payload,
    st.binary(max_size=40) | st.integers(0, 3000).map(lambda size: b"d" * size),
    st.none() | st.binary(max_size=20) | st.integers(0, 500).map(lambda size: b"m" * size),
)


def drawn(dice: random.Random) -> Payload:
    """A payload as dice fall."""
    size = dice.choice((0, 1, 5, 40, 300, 3000))
    return Payload(dice.randbytes(size), None if dice.random() < 0.5 else b"m" * dice.choice((0, 3, 200)))


class Side:
    """One engine and what its application remembers. A stream has a number of the machine's own, since the two sides
    may call it differently."""

    def __init__(self, wire: Wire, role: Role, mtu: int) -> None:
        self.engine = wire.make(role, limits=LIMITS, mtu=mtu)
        self.wire = wire
        self.role = role
        self.out = bytearray()
        self.other: Side
        self.streams: dict[int, int] = {}
        "The machine's number to the engine's."
        self.numbers: dict[int, int] = {}
        "And back."
        self.asked: dict[int, Payload] = {}
        "What this side opened, and with what."
        self.verbs: dict[int, str] = {}
        self.sent: dict[int, list[Payload]] = defaultdict(list)
        self.got: dict[int, list[Payload]] = defaultdict(list)
        self.granted: dict[int, int] = defaultdict(int)
        self.over: dict[int, str] = {}
        "How the inbound half ended."
        self.done: dict[int, str] = {}
        "How the outbound half ended."
        self.gone: set[int] = set()
        "What this side has left: nothing is heard of it any more."
        self.closed = 0

    def knows(self, number: int, stream: int, verb: str) -> None:
        self.streams[number] = stream
        self.numbers[stream] = number
        self.verbs[number] = verb

    def hear(self, events: list[Any]) -> None:
        event: Any
        for event in ev.singly(events):
            if isinstance(event, ev.Closed):
                self.closed += 1
            elif isinstance(event, ev.Opened):
                self.opened(event)
            elif isinstance(event, ev.Ignored):
                assert event.price == 0, event
            elif not isinstance(event, ev.Established):
                number = self.numbers[event.stream]
                assert number not in self.gone, f"{event!r} of a stream that this side has left"
                self.of_stream(number, event)

    def opened(self, event: ev.Opened) -> None:
        number = int(event.payload.data[:6])
        asked = self.other.asked[number]
        assert event.payload == asked
        self.knows(number, event.stream, event.verb)
        self.engine.consumed(len(event.payload))
        if event.verb == "channel":
            self.got[number].append(event.payload)
            if event.complete:
                self.over[number] = "complete"
        else:
            self.over[number] = "nothing comes"
        if event.verb == "fire":
            self.finish(number, "nothing goes")

    def of_stream(self, number: int, event: Any) -> None:
        if isinstance(event, ev.Items):
            assert number not in self.over, f"items after the end: {self.over[number]}"
            self.got[number] += event.payloads
            self.engine.consumed(sum(map(len, event.payloads)), len(event.payloads))
            if event.complete:
                self.completed(number)
        elif isinstance(event, ev.Completed):
            self.completed(number)
        elif isinstance(event, ev.Failed):
            assert not (self.over.get(number) == self.done.get(number) == "failed"), "it failed twice"
            self.over.setdefault(number, "failed")
            self.finish(number, "failed")
        elif isinstance(event, ev.Canceled):
            self.finish(number, "canceled")
            if event.final:
                self.over.setdefault(number, "canceled")
        else:
            assert isinstance(event, ev.Granted), event

    def completed(self, number: int) -> None:
        assert number not in self.over, f"it ended twice: {self.over[number]}, complete"
        self.over[number] = "complete"
        assert self.got[number] == self.other.sent[number]

    def finish(self, number: int, how: str) -> None:
        """Nothing more goes out; the handler returns."""
        self.done.setdefault(number, how)
        if number not in self.asked:
            self.engine.release(self.streams[number])

    def leave(self, number: int, how: str) -> None:
        self.gone.add(number)
        self.over.setdefault(number, how)
        self.finish(number, how)

    @property
    def live(self) -> list[int]:
        return [n for n in self.streams if n not in self.gone and not (n in self.over and n in self.done)]

    @property
    def sending(self) -> list[int]:
        return [n for n in self.streams if n not in self.done and n not in self.gone]

    def move(self, share: int = 10, seed: int = 0) -> None:
        """Some of what this side has said arrives at the other, in pieces."""
        self.out += said(self.engine)
        amount = len(self.out) * share // 10
        dice = random.Random(seed)
        while amount:
            size = min(amount, dice.choice((1, 3, 9, 100, 5000)))
            piece = bytes(self.out[:size])
            del self.out[:size]
            amount -= size
            self.other.hear(self.other.engine.receive(piece, 0.0))
        for side in (self, self.other):
            if side.engine.deadline is not None and side.engine.deadline <= 0:
                side.hear(side.engine.tick(0.0))


class Pair(RuleBasedStateMachine):
    """Client and server with small frames, so that fragments are common."""

    def __init__(self, wire: Wire) -> None:
        super().__init__()
        self.wire = wire
        self.sides: tuple[Side, ...] = ()
        self.count = 0

    @initialize(draw=st.data())
    def start(self, draw: st.DataObject) -> None:
        mtu = draw.draw(st.sampled_from(self.wire.mtus))
        client, server = (Side(self.wire, role, mtu) for role in ROLES)
        client.other, server.other = server, client
        self.sides = (client, server)
        self.settle()

    @rule(who=st.integers(0, 1), kind=st.integers(0, 4), payload=PAYLOADS, credit=st.integers(1, 5), last=st.booleans())
    def opens(self, who: int, kind: int, payload: Payload, credit: int, last: bool) -> None:
        side = self.sides[who]
        verbs = self.wire.verbs[side.role]
        if not verbs or len(side.live) >= MOST:
            return
        verb = verbs[kind % len(verbs)]
        last = last and verb == "channel"
        self.count += 1
        number, payload = self.count, self.wire.opening(self.count, payload)
        side.asked[number] = payload
        try:
            stream = side.engine.open(verb, payload, credit=0 if verb in KINDS else credit, complete=last)
        except LimitExceeded:
            return  # no id is free
        side.knows(number, stream, verb)
        side.granted[number] = credit
        if verb == "channel":
            side.sent[number].append(payload)
        if last or verb != "channel":
            side.done[number] = "complete"
        if verb == "fire":
            side.over[number] = "nothing comes"

    @rule(
        who=st.integers(0, 1),
        choice=st.integers(0, 50),
        items=st.lists(PAYLOADS, min_size=1, max_size=4),
        last=st.booleans(),
    )
    def sends(self, who: int, choice: int, items: list[Payload], last: bool) -> None:
        side = self.sides[who]
        if not side.sending:
            return
        number = side.sending[choice % len(side.sending)]
        stream, verb = side.streams[number], side.verbs[number]
        if verb == "request":
            items, last = items[:1], True
        asked = side.asked.get(number) or side.other.asked[number]
        items = [self.wire.item(asked, item) for item in items[: side.engine.credit(stream)]]
        if not items:
            return
        side.sent[number] += items
        side.engine.send(stream, items, complete=last)
        if last:
            side.finish(number, "complete")

    @precondition(lambda self: self.wire.grants)
    @rule(who=st.integers(0, 1), choice=st.integers(0, 50), n=st.integers(1, 5))
    def grants(self, who: int, choice: int, n: int) -> None:
        side = self.sides[who]
        open = [number for number in side.live if number not in side.over and side.verbs[number] not in KINDS]
        if open:
            number = open[choice % len(open)]
            side.granted[number] += n
            side.engine.request(side.streams[number], n)

    @rule(who=st.integers(0, 1), choice=st.integers(0, 50))
    def completes(self, who: int, choice: int) -> None:
        side = self.sides[who]
        open = [number for number in side.sending if side.verbs[number] not in KINDS]
        if open:
            number = open[choice % len(open)]
            side.engine.complete(side.streams[number])
            side.finish(number, "complete")

    @rule(who=st.integers(0, 1), choice=st.integers(0, 50), fails=st.booleans())
    def leaves(self, who: int, choice: int, fails: bool) -> None:
        """A side fails a stream, a requester cancels one, a responder takes no more of a channel."""
        side = self.sides[who]
        if not side.live:
            return
        number = side.live[choice % len(side.live)]
        stream = side.streams[number]
        if fails:
            side.engine.fail(stream, ApplicationError(message="no"))
            side.leave(number, "left")
        elif number in side.asked:
            side.engine.cancel(stream)
            side.leave(number, "left")
        elif side.verbs[number] == "channel":
            side.engine.cancel(stream)
            side.over.setdefault(number, "left")

    @rule(who=st.integers(0, 1), seed=st.integers(0, 1000), share=st.integers(1, 10))
    def travels(self, who: int, seed: int, share: int) -> None:
        self.sides[who].move(share, seed)

    @rule(seed=st.integers(0, 1 << 32))
    def works(self, seed: int) -> None:
        """Many small things, so that much is under way."""
        dice = random.Random(seed)
        for _ in range(60):
            who, choice, what = dice.randrange(2), dice.randrange(50), dice.randrange(24)
            if what < 4:
                self.opens(who, choice, drawn(dice), dice.randint(1, 5), not choice % 4)
            elif what < 10:
                self.sends(who, choice, [drawn(dice) for _ in range(dice.randint(1, 4))], not choice % 5)
            elif what < 14:
                if self.wire.grants:
                    self.grants(who, choice, dice.randint(1, 5))
            elif what == 14:
                self.completes(who, choice)
            elif what == 15:
                self.leaves(who, choice, choice > 25)
            else:
                self.travels(who, seed, dice.choice((1, 5, 10)))
            self.items_arrive_in_order()
            self.credit_is_kept()

    @invariant()
    def items_arrive_in_order(self) -> None:
        for side in self.sides:
            for number, got in side.got.items():
                assert got == side.other.sent[number][: len(got)], number

    @invariant()
    def credit_is_kept(self) -> None:
        for side in self.sides:
            for number, got in side.got.items():
                assert len(got) <= max(1, side.granted[number]), number

    @invariant()
    def nobody_closes(self) -> None:
        assert not any(side.closed or side.engine.closed for side in self.sides)

    def settle(self) -> None:
        for _ in range(40):
            for side in self.sides:
                side.move()

    def teardown(self) -> None:
        """Everything arrives at last; then one side closes, and both have."""
        if not self.sides:
            return
        self.settle()
        for side in self.sides if self.wire.waits else ():
            for number in side.live:
                side.granted[number] += 10_000
                side.engine.request(side.streams[number], 10_000)
            for number in side.sending:
                side.engine.complete(side.streams[number])
                side.finish(number, "complete")
        self.settle()
        for side in self.sides:
            for number in side.streams:
                sender = side.other
                if number in side.over:
                    continue
                assert side.got[number] == sender.sent[number], "something is lost"
                assert sender.done.get(number) != "complete" or number not in sender.streams, "nobody heard the end"
        first, second = self.sides
        first.hear(first.engine.close(0.0))
        for side in (first, second, first):
            side.move()
        for side in self.sides:
            if not side.engine.closed:
                side.hear(side.engine.receive_eof(0.0))
            if not side.engine.closed:
                side.hear(side.engine.receive_eof(0.0))
            assert (side.closed, side.engine.closed, side.engine.deadline) == (1, True, None)
            assert [number for number in side.streams if number not in side.over or number not in side.done] == []


@pytest.mark.repetitive
@pytest.mark.parametrize("wire", WIRES, ids=id_of)
def test_two_ends(wire: Wire) -> None:
    run_state_machine_as_test(
        lambda: Pair(wire),  # type: ignore[arg-type]  # anything that makes a machine
        settings=settings(
            max_examples=12, stateful_step_count=8, deadline=None, suppress_health_check=[HealthCheck.too_slow]
        ),
    )
