"""Two engines with a wire between them, every split of the bytes, and garbage."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, Literal

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from afflux.core import events as ev
from afflux.core.errors import ApplicationError, Error
from afflux.core.limits import Limits
from afflux.protocols.rsio import Engine, frames

from .playbook import BOTH, answer, ask, bye, cancel, complete, error, item, packed, part, request

SIZES = {"any": 0, "three": 3}
TINY = Limits.tiny()
ROOMY = TINY.replace(
    glitch_bucket=(100_000, 0), cancel_bucket=(100_000, 0), tombstones=2, streams=1000, object_overhead_bytes=0
)


class Side:
    """One end, and what its application knows."""

    def __init__(self, role: Literal["client", "server"], mtu: int) -> None:
        self.engine = Engine(role, limits=ROOMY, mtu=mtu, extensions=BOTH, sizes=lambda name: SIZES[name[:5].strip()])
        self.wire = b""
        "What it has said and the other end has not read."
        self.asked: dict[int, str] = {}
        "Its subscriptions, each with a name that no other has."
        self.granted: dict[int, int] = {}
        self.got: dict[str, list[bytes]] = defaultdict(list)
        self.ended: dict[str, str] = {}
        self.publishing: dict[int, str] = {}
        self.sent: dict[str, list[bytes]] = defaultdict(list)
        self.done: dict[str, str] = {}
        "How its publications ended."

    def hear(self, events: Iterable[ev.Event]) -> None:
        for event in events:
            match event:
                case ev.Opened(stream=stream, payload=asked):
                    self.publishing[stream] = asked.data.decode()
                    self.engine.consumed(len(asked))
                case ev.Items(stream=stream, payloads=payloads):
                    name = self.asked[stream]
                    assert name not in self.ended, f"an element of {name} behind its end"
                    self.got[name] += [payload.data for payload in payloads]
                    assert len(self.got[name]) <= self.granted[stream]
                    self.engine.consumed(sum(map(len, payloads)), len(payloads))
                case ev.Completed(stream=stream):
                    self._end(stream, "complete")
                case ev.Failed(stream=stream, error=ApplicationError() as why):
                    self._end(stream, str(why))
                case ev.Canceled(stream=stream):
                    self.engine.release(stream)
                    self.done.setdefault(self.publishing.pop(stream), "canceled")
                case ev.Granted() | ev.Established() | ev.Ignored(price=0):
                    pass
                case _:
                    raise AssertionError(event)

    def _end(self, stream: int, how: str) -> None:
        name = self.asked.pop(stream)
        assert name not in self.ended, f"{name} ended twice"
        self.ended[name] = how

    def say(self) -> None:
        while chunk := self.engine.outgoing(200):
            self.wire += chunk


class Pair(RuleBasedStateMachine):
    """Both ends subscribe and publish; two ids at most are remembered, so they are used again all the time (R-36)."""

    @initialize(mtu=st.sampled_from([64, 100, 5000]))
    def start(self, mtu: int) -> None:
        self.sides = (Side("client", mtu), Side("server", mtu))
        self.count = 0
        for side in self.sides:
            side.say()
        self.settle()

    def other(self, side: Side) -> Side:
        return self.sides[1 - self.sides.index(side)]

    @rule(who=st.integers(0, 1), kind=st.sampled_from(list(SIZES)), demand=st.integers(0, 9))
    def subscribes(self, who: int, kind: str, demand: int) -> None:
        side = self.sides[who]
        if len(side.asked) < 6:
            self.count += 1
            name = f"{kind:5} {self.count}"
            stream = side.engine.subscribe(name, demand)
            side.asked[stream] = name
            side.granted[stream] = demand

    @rule(who=st.integers(0, 1), choice=st.integers(0, 9), n=st.integers(1, 9))
    def requests(self, who: int, choice: int, n: int) -> None:
        side = self.sides[who]
        if side.asked:
            stream = list(side.asked)[choice % len(side.asked)]
            side.granted[stream] += n
            side.engine.request(stream, n)

    @rule(who=st.integers(0, 1), choice=st.integers(0, 9))
    def cancels(self, who: int, choice: int) -> None:
        side = self.sides[who]
        if side.asked:
            stream = list(side.asked)[choice % len(side.asked)]
            side.ended[side.asked.pop(stream)] = "given up"
            side.engine.cancel(stream)

    @rule(
        who=st.integers(0, 1),
        choice=st.integers(0, 9),
        sizes=st.lists(st.sampled_from([0, 1, 3, 63, 64, 65, 300]), min_size=1, max_size=12),
    )
    def sends(self, who: int, choice: int, sizes: list[int]) -> None:
        side = self.sides[who]
        if side.publishing:
            stream = list(side.publishing)[choice % len(side.publishing)]
            name = side.publishing[stream]
            sizes = [SIZES[name[:5].strip()] or size for size in sizes][: side.engine.credit(stream)]
            elements = [bytes([len(side.sent[name]) + i & 0xFF]) * size for i, size in enumerate(sizes)]
            side.sent[name] += elements
            side.engine.send(stream, elements)

    @rule(who=st.integers(0, 1), choice=st.integers(0, 9), fails=st.booleans())
    def ends(self, who: int, choice: int, fails: bool) -> None:
        side = self.sides[who]
        if side.publishing:
            stream = list(side.publishing)[choice % len(side.publishing)]
            side.done[side.publishing.pop(stream)] = "broken" if fails else "complete"
            if fails:
                side.engine.fail(stream, ApplicationError(message="broken"))
            else:
                side.engine.complete(stream)
            side.engine.release(stream)

    @rule(who=st.integers(0, 1), limit=st.integers(1, 400))
    def writes(self, who: int, limit: int) -> None:
        side = self.sides[who]
        side.wire += side.engine.outgoing(limit)

    @rule(who=st.integers(0, 1), size=st.integers(1, 300))
    def reads(self, who: int, size: int) -> None:
        side = self.sides[who]
        other = self.other(side)
        data, other.wire = other.wire[:size], other.wire[size:]
        side.hear(side.engine.receive(data, 0.0))

    @rule()
    def settle(self) -> None:
        """Everything arrives; then what was sent is what was got."""
        for _ in range(4):
            for side in self.sides:
                side.say()
                data, side.wire = side.wire, b""
                other = self.other(side)
                other.hear(other.engine.receive(data, 0.0))
        for side in self.sides:
            other = self.other(side)
            for name in side.asked.values():
                assert side.got[name] == other.sent[name]
            for name, how in side.ended.items():
                if how != "given up":
                    assert (side.got[name], how) == (other.sent[name], other.done[name])

    @invariant()
    def what_was_got_was_sent(self) -> None:
        for side in getattr(self, "sides", ()):
            other = self.other(side)
            for name, elements in side.got.items():
                assert other.sent[name][: len(elements)] == elements
            assert len(side.engine._subscriptions.records) <= 8  # six that live, two that are remembered

    def teardown(self) -> None:
        if hasattr(self, "sides"):
            self.settle()
            first, second = self.sides
            events = list(first.engine.close(0.0))
            first.say()
            events += second.engine.receive(first.wire, 0.0)
            first.wire = b""
            events += first.engine.receive(second.engine.outgoing(), 0.0)
            assert sum(isinstance(event, ev.Closed) for event in events) == 2
            assert first.engine.closed and second.engine.closed


TestPair = Pair.TestCase
TestPair.settings = settings(max_examples=40, stateful_step_count=50, deadline=None)


# -- every split ------------------------------------------------------------------------------------------------------

HELLO = frames.ClientHello(extensions=(12, 14, 1000))
TALK: dict[str, list[frames.Message | bytes]] = {
    "publisher": [
        HELLO,
        ask(1, 5),
        ask(2, 0, "q"),
        request(3, 2),
        request(1),
        cancel(2),
        ask(2, 1),
        cancel(9),
        bye("x"),
    ],
    "subscriber": [
        HELLO,
        answer(1, 0),
        item(b"abc"),
        *[item(b"%02d" % i) for i in range(12)],
        part(0, b"p" * 70),
        answer(2, 2),
        packed(b"ab", b"cd", b"ef", id=2),
        part(0, b"P", last=True),
        item(b"zz", 2, size=2),
        complete(2),
        error("wrong", 1),
        b"\x85\x80\x00\x09",  # cancel, its type written long
        frames.GoodbyeAck(message=""),
    ],
    "broken": [HELLO, answer(1), item(b"x"), b"\x0f", item(b"never")],
}


def told(name: str, cuts: list[int]) -> list[Any]:
    """What a server tells of a conversation that is cut so. Elements of one pass are counted singly."""
    engine = Engine("server", extensions=BOTH)
    data = b"".join(part if isinstance(part, bytes) else part.encode() for part in TALK[name])
    assert engine.outgoing()
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    heard: list[Any] = []
    asked = False
    for start, stop in itertools.pairwise(edges):
        heard += engine.receive(data[start:stop], 0.0)
        if not asked and engine.extensions:
            asked = True
            engine.subscribe("a", 99)
            engine.subscribe("b", 9)
    said = b""
    while chunk := engine.outgoing():
        said += chunk
    plain: list[Any] = []
    for event in heard:
        if isinstance(event, ev.Items):
            plain += [(event.stream, payload.data) for payload in event.payloads]
        elif isinstance(event, ev.Failed | ev.Closed):
            plain.append((type(event), getattr(event, "stream", 0), repr(event.error)))
        else:
            plain.append(event)
    return [*plain, said]


FIRST = len(HELLO.encode())


@pytest.mark.parametrize("name", TALK)
def test_every_split_gives_the_same_events(name: str) -> None:
    """FR-08, R-8."""
    data = b"".join(part if isinstance(part, bytes) else part.encode() for part in TALK[name])
    whole = told(name, [FIRST])
    for cut in range(FIRST, len(data)):
        assert told(name, [FIRST, cut]) == whole
    assert told(name, list(range(FIRST, len(data)))) == whole


@given(st.sampled_from(list(TALK)), st.lists(st.integers(FIRST, 10_000), max_size=8))
def test_random_splits_give_the_same_events(name: str, cuts: list[int]) -> None:
    size = sum(len(part if isinstance(part, bytes) else part.encode()) for part in TALK[name])
    assert told(name, [FIRST, *(FIRST + cut % (size - FIRST + 1) for cut in cuts)]) == told(name, [FIRST])


@pytest.mark.parametrize("name", TALK)
def test_every_truncation_ends_in_order(name: str) -> None:
    """FR-06: each live subscription hears one end, and no half element is told."""
    data = b"".join(part if isinstance(part, bytes) else part.encode() for part in TALK[name])
    for size in range(FIRST, len(data)):
        engine = Engine("server", extensions=BOTH)
        heard = engine.receive(data[:FIRST], 0.0)
        engine.subscribe("a", 99)
        engine.subscribe("b", 9)
        heard += engine.receive(data[FIRST:size], 0.0)
        heard += engine.receive_eof(0.0)
        assert isinstance(heard[-1], ev.Closed) and engine.closed
        ends = [event.stream for event in heard if isinstance(event, ev.Failed | ev.Completed)]
        assert sorted(ends) == [1, 3]
    for size in range(FIRST):
        engine = Engine("server")
        assert [type(event) for event in engine.receive(data[:size], 0.0) + engine.receive_eof(0.0)] == [ev.Closed]


@pytest.mark.parametrize("name", TALK)
def test_every_bit_flip_has_a_documented_outcome(name: str) -> None:
    """FR-29: no crash, and nothing that is not an afflux error."""
    data = b"".join(part if isinstance(part, bytes) else part.encode() for part in TALK[name])
    for place in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[place // 8] ^= 1 << place % 8
        survive(bytes(flipped))


def survive(data: bytes, step: int = 1 << 20) -> Engine:
    """Feed an engine with anything; it is over in the end."""
    engine = Engine("server", limits=TINY, extensions=BOTH)
    engine.receive(b"", 0.0)
    heard = []
    for start in range(0, len(data), step):
        heard += engine.receive(data[start : start + step], 0.0)
        if engine.extensions and not engine._subscriptions.records and not engine.closed:
            try:
                engine.subscribe("a", 5)
            except Error:
                pass
        engine.outgoing()
    heard += engine.receive_eof(0.0)
    assert [type(event) for event in heard].count(ev.Closed) == 1 and isinstance(heard[-1], ev.Closed)
    assert engine._in.pending == 0
    return engine


@pytest.mark.parametrize("octet", [0x00, 0x01, 0x07, 0x80, 0xFF])
def test_constant_garbage(octet: int) -> None:
    """FR-09: goodbye at once, and nothing is kept."""
    for before in (b"", HELLO.encode()):
        engine = Engine("server", limits=TINY)
        engine.receive(before, 0.0)
        engine.outgoing()
        engine.receive(bytes([octet]) * 10_000, 0.0)
        engine.tick(1.0)
        assert engine.closed or octet == 0x07
        assert engine._in.pending <= 10_000


@given(st.binary(max_size=300), st.integers(1, 40))
def test_garbage_never_raises(data: bytes, step: int) -> None:
    survive(data, step)
    survive(HELLO.encode() + data, step)


MESSAGES = st.lists(
    st.builds(
        lambda code, fields: bytes([code]) + b"".join(fields),
        st.integers(0, 16),
        st.lists(st.sampled_from([b"\x00", b"\x01", b"\x02", b"\x01x", b"\x03abc", b"\x80\x01", b"\x7f"]), max_size=4),
    ),
    max_size=12,
)


@given(MESSAGES, st.integers(1, 40))
def test_garbage_of_messages_never_raises(parts: list[bytes], step: int) -> None:
    survive(HELLO.encode() + b"".join(parts), step)
