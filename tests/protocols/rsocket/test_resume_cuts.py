"""Issue 3, resumption: the connection is cut at every byte of long conversations of each interaction, in both
directions, and of the resumption itself. Each item is delivered exactly once and in order at both applications, each
stream ends once, both sides agree on their positions, and nothing is left.

The conversations are deterministic: whatever is cut, both applications hear what they hear without a cut. They have
about 15,000 bytes, which AFFLUX_EXHAUSTIVE=1 cuts one by one; without it every seventh, in each run the same ones.
"""

from __future__ import annotations

import os
import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.stateful import initialize, invariant, rule

from afflux.core import events as ev
from afflux.core.errors import ApplicationError, ConnectionClosed
from afflux.core.limits import Limits
from afflux.core.payload import Payload
from afflux.protocols.family.sessions import Sessions
from afflux.protocols.rsocket import Engine
from afflux.testing.world import End, Link, World

from .pair import Pair, Side
from .playbook import TOKEN, setup

pytestmark = pytest.mark.repetitive

EXHAUSTIVE = bool(os.environ.get("AFFLUX_EXHAUSTIVE"))
STRIDE = 1 if EXHAUSTIVE else 7
"A prime: the cuts fall on all parts of frames of any length."
LIMITS = Limits.server().replace(resume_rate=(10**6, 0.0), resume_bytes=1600)
"A small store: positions are reported, and frames forgotten, every 200 bytes."
MTU = 64
SETUP_BYTES = len(setup(token=TOKEN).encode(prefixed=True))


# -- two applications -----------------------------------------------------------------------------------------


def some(name: str, count: int) -> list[Payload]:
    """Items with and without metadata, an empty one, and ones of several fragments; small ones where one end gives
    up, because what is not cut into fragments by then is dropped (R-38)."""
    small = "fail" in name or "cancel" in name
    items = []
    for number in range(count):
        data = b"%s-%d" % (name.encode(), number) + bytes([65 + number]) * (0 if small else number % 4 * 45)
        metadata = None if number % 3 else b"m" * (3 if small else number % 5 * 22)
        items.append(Payload(b"" if number == 5 else data, metadata))
    return items


class App:
    """What the application of one end does, and what it has heard: by the names of the conversations, not by ids.

    What it does depends on what it has heard of that conversation alone, so that cuts change nothing.
    """

    def __init__(self) -> None:
        self.names: dict[int, str] = {}
        self.asked: dict[str, int] = {}
        "What this end has asked, by name."
        self.left: dict[int, list[Payload]] = {}
        "What a stream still has to say, as credit allows."
        self.log: dict[str, list[Any]] = defaultdict(list)
        "Everything that was heard of a conversation, in order."
        self.over: set[str] = set()
        self.suspended = self.resumed = self.established = 0
        self.closed: list[ev.Closed] = []

    def open(self, end: End, verb: ev.Verb, name: str, size: int = 0, items: int = 0, **how: Any) -> None:
        """Ask, in a payload that begins with the name; then send ``items``."""
        payload = Payload(name.encode() + b"|" + b"r" * size, b"M" * (size // 2) if size else None)
        stream = end.engine.open(verb, payload, now=end.link.world.now, **how)
        self.names[stream] = name
        self.asked[name] = stream
        if items:
            self.left[stream] = some(name, items)

    def __call__(self, end: End, event: ev.Event) -> None:
        if isinstance(event, ev.Suspended):
            self.suspended += 1
        elif isinstance(event, ev.Resumed):
            self.resumed += 1
        elif isinstance(event, ev.Established):
            self.established += 1
        elif isinstance(event, ev.Closed):
            self.closed.append(event)
        elif isinstance(event, ev.Ignored):
            assert event.price == 0, event
        else:
            assert not self.closed, f"after Closed: {event}"
            if isinstance(event, ev.Opened):
                self.opened(end, event)
            elif isinstance(event, ev.Granted):
                self.send(end, event.stream)
            else:
                self.hear(end, self.names[event.stream], event)  # type: ignore[union-attr] # an event of a stream

    def hear(self, end: End, name: str, event: Any) -> None:
        """The inbound half of a conversation."""
        log, stream = self.log[name], event.stream
        if isinstance(event, ev.Canceled) and name in self.asked:
            log.append("stopped")
            assert event.final == (name in self.over)
            del self.left[stream]
            return
        assert name not in self.over, f"{event} after the end of {name}"
        if isinstance(event, ev.Items | ev.Block):
            self.items(end, name, event)
        elif isinstance(event, ev.Completed):
            log.append("completed")
        elif isinstance(event, ev.Failed):
            log.append((type(event.error), event.error.code, event.error.message))
        else:
            assert isinstance(event, ev.Canceled)
            log.append("canceled")
        if not isinstance(event, ev.Items | ev.Block) or event.complete:
            self.over.add(name)
        if isinstance(event, ev.Canceled | ev.Failed):
            self.left.pop(stream, None)
            end.engine.release(stream)
        if name == "request0" and "never-request" in self.asked:
            end.engine.cancel(self.asked["never-request"])

    def items(self, end: End, name: str, event: ev.Items | ev.Block) -> None:
        if isinstance(event, ev.Block):
            spans = zip(event.starts, event.ends, strict=True)
            payloads = [Payload(event.buffer[start:stop]) for start, stop in spans]
        else:
            payloads = event.payloads
        log, stream = self.log[name], event.stream
        log += payloads
        mine = name in self.asked
        heard = sum(isinstance(item, Payload) for item in log)
        if event.complete:
            log.append("completed")
        elif ("cancel" in name and mine and heard == 3) or ("stop" in name and not mine and heard == 2):
            end.engine.cancel(stream)
            log.append("we canceled")
            self.over.add(name)
            if mine:
                self.left.pop(stream, None)
        elif "slow" in name:
            end.engine.request(stream, len(payloads))

    def opened(self, end: End, event: ev.Opened) -> None:
        """Serve it: what is wanted is in its name."""
        engine, stream = end.engine, event.stream
        name = self.names[stream] = event.payload.data.partition(b"|")[0].decode()
        assert name not in self.log, f"{name} was opened twice"
        self.log[name].append(("opened", event.verb, event.payload, event.credit, event.complete))
        if event.verb == "fire":
            engine.release(stream)
            if name == "fire-ask":
                self.open(end, "request", "back-request", 100)
                self.open(end, "stream", "back-slow-stream", credit=2)
                self.open(end, "channel", "back-slow-channel", 70, 6, credit=2)
                self.open(end, "channel", "back-stop-channel", 0, 6, credit=20)
            return
        if event.verb == "channel":
            engine.request(stream, 3)
        if "never" in name or "fail-out" in name:
            return
        if event.verb == "request":
            self.left[stream] = [] if name == "fail-request" else some(name, 4)[3:]
        else:
            self.left[stream] = some(name, 9)
        self.send(end, stream)

    def send(self, end: End, stream: int) -> None:
        """As much as credit allows; the last item completes the half, or an error ends it behind the second."""
        engine, name, left = end.engine, self.names[stream], self.left.get(stream)
        if left is None:
            return
        failing = "fail-out" in name if name in self.asked else "fail" in name
        while left and (credit := engine.credit(stream)):
            count = 1 if failing or len(left) % 2 else min(2, credit)
            out, left[:count] = left[:count], []
            engine.send(stream, out, complete=not left)
            if failing and len(left) == 7:
                left.clear()
        if not left:
            del self.left[stream]
            if failing:
                engine.fail(stream, ApplicationError(0x333, "as asked"))
                self.over.add(name)
            engine.release(stream)


Conversation = Callable[[App, End], None]


def requests(app: App, end: End) -> None:
    for number in range(4):
        app.open(end, "request", f"request{number}", number * 50)
    app.open(end, "request", "fail-request")
    app.open(end, "request", "never-request", 30)


def fires(app: App, end: End) -> None:
    """And what the server asks back."""
    for number in range(4):
        app.open(end, "fire", f"fire{number}", number * 40)
    app.open(end, "fire", "fire-ask", 90)


def streams(app: App, end: End) -> None:
    app.open(end, "stream", "stream", 70, credit=20)
    app.open(end, "stream", "slow-stream", credit=2)
    app.open(end, "stream", "cancel-stream", credit=3)
    app.open(end, "stream", "fail-stream", 120, credit=9)
    app.open(end, "stream", "slow-columns", credit=3, columnar=True)


def channels(app: App, end: End) -> None:
    app.open(end, "channel", "slow-channel", 80, 7, credit=3)
    app.open(end, "channel", "half-channel", credit=20, complete=True)
    app.open(end, "channel", "cancel-channel", 10, 8, credit=3)
    app.open(end, "channel", "stop-channel", 0, 8, credit=20)
    app.open(end, "channel", "fail-in-channel", 0, 3, credit=9)
    app.open(end, "channel", "fail-out-channel", 0, 9, credit=9)


def everything(app: App, end: End) -> None:
    for some_of_it in (requests, fires, streams, channels):
        some_of_it(app, end)


CONVERSATIONS: dict[str, Conversation] = {
    "requests": requests,
    "fires": fires,
    "streams": streams,
    "channels": channels,
}


# -- two ends and their links ---------------------------------------------------------------------------------


class Session:
    """A client, a server, and the links that they have one after another."""

    def __init__(self, start: Conversation, *, seed: int = 0, slice: int | None = None, latency: float = 0.0) -> None:
        self.world = World(seed)
        self.sessions = Sessions(LIMITS)
        self.client, self.server = App(), App()
        self.asked = Engine("client", setup=setup(token=TOKEN), limits=LIMITS, mtu=MTU)
        self.link = self.world.join(
            self.asked, self.newcomer(), latency=latency, slice=slice, on_client=self.client, on_server=self.server
        )
        self.answers = self.link.server.engine
        start(self.client, self.link.client)

    def newcomer(self) -> Engine:
        return Engine("server", limits=LIMITS, mtu=MTU, sessions=self.sessions, now=self.world.now)

    @property
    def engines(self) -> tuple[Any, Any]:
        return self.asked, self.answers

    def run(self) -> None:
        self.world.run()

    def rejoin(self) -> Link:
        self.link = self.world.rejoin(self.link, self.newcomer())
        return self.link

    def heard(self) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
        return {**self.client.log}, {**self.server.log}

    def sent(self) -> tuple[int, int]:
        """Bytes that were written, by the client and by the server."""
        return len(self.link.client.sent), len(self.link.server.sent)

    def settle(self) -> None:
        """Resume until it stays, then one keepalive; check that nothing is left."""
        self.run()
        while self.asked.resumption.suspended:
            self.rejoin()
            self.run()
        for end in self.link.ends:
            end.lose_after(None)
        asked, answers = self.engines
        assert asked.resuming.retained.sent == answers.resuming.retained.received
        assert answers.resuming.retained.sent == asked.resuming.retained.received
        self.world.run(until=asked.deadline + 1)
        for engine in self.engines:
            assert not engine.closed
            assert engine.resuming.retained.size == 0
            assert list(engine.resuming.retained.blocks()) == []
            assert engine.streams() == []
            assert not engine.stream_table.handlers
            assert not engine.stream_table.reassembly.partials
            assert engine.stream_table.reassembly.size == 0
            assert (engine.queued, engine.outbound.scheduler.size, engine.outbound.scheduler.frames) == (0, 0, 0)
            assert engine.resuming.away is None
        assert self.server.suspended == self.server.resumed >= self.client.resumed <= self.client.suspended
        assert self.client.established == self.server.established == 1
        assert len(self.sessions) == 1


@cache
def whole(name: str, slice: int | None = None) -> tuple[Any, tuple[int, int]]:
    """What both applications hear when nothing is cut, and how many bytes are written."""
    session = Session(CONVERSATIONS[name], slice=slice)
    session.run()
    sizes = session.sent()
    session.settle()
    assert session.client.suspended == 0
    return session.heard(), sizes


def test_events_without_a_cut() -> None:
    """By hand: the comparisons below rest on it."""
    failure = (ApplicationError, 0x333, "as asked")
    (client, server), _ = whole("requests")
    assert client["request0"] == [Payload(b"request0-3" + b"D" * 135, b"m" * 66), "completed"]
    assert server["request2"] == [("opened", "request", Payload(b"request2|" + b"r" * 100, b"M" * 50), 1, False)]
    assert client["fail-request"] == [failure]
    assert server["never-request"][1:] == ["canceled"]
    assert "never-request" not in client
    (client, server), _ = whole("streams")
    nine = some("stream", 9)
    assert client["stream"] == [*nine, "completed"]
    assert [len(item) for item in nine] == [8, 53, 98, 209, 8, 0, 120, 143, 8]
    assert client["slow-stream"] == [*some("slow-stream", 9), "completed"]
    assert client["slow-columns"] == [*some("slow-columns", 9), "completed"]
    assert client["cancel-stream"] == [*some("cancel-stream", 3), "we canceled"]
    assert server["cancel-stream"][1:] == ["canceled"]
    assert client["fail-stream"] == [*some("fail-stream", 2), failure]
    (client, server), _ = whole("channels")
    assert client["slow-channel"] == [*some("slow-channel", 9), "completed"]
    assert server["slow-channel"][1:] == [*some("slow-channel", 7), "completed"]
    assert client["half-channel"] == [*some("half-channel", 9), "completed"]
    assert client["cancel-channel"] == [*some("cancel-channel", 3), "we canceled"]
    assert server["cancel-channel"][1:] == [*some("cancel-channel", 2), "canceled"]
    assert client["stop-channel"] == [*some("stop-channel", 9), "completed", "stopped"]
    assert server["stop-channel"][1:] == [*some("stop-channel", 2), "we canceled"]
    assert client["fail-in-channel"] == [*some("fail-in-channel", 2), failure]
    assert server["fail-out-channel"][1:] == [*some("fail-out-channel", 2), failure]
    (client, server), _ = whole("fires")
    assert len(server) == 5 + 4
    assert client["back-request"] == [
        ("opened", "request", Payload(b"back-request|" + b"r" * 100, b"M" * 50), 1, False)
    ]
    assert server["back-slow-stream"] == [*some("back-slow-stream", 9), "completed"]
    assert client["back-slow-channel"][1:] == [*some("back-slow-channel", 6), "completed"]
    assert client["back-stop-channel"][1:] == [*some("back-stop-channel", 2), "we canceled"]


# -- the cuts -------------------------------------------------------------------------------------------------


def places(size: int, stride: int = STRIDE) -> Iterator[int]:
    """Where to cut ``size`` bytes: the ends, and every stride-th byte between."""
    yield from range(0, size, stride)
    yield size


@pytest.mark.slow
@pytest.mark.parametrize("to", ["client", "server"])
@pytest.mark.parametrize("name", CONVERSATIONS)
def test_cut_at_every_byte(name: str, to: str) -> None:
    """The link breaks when byte n has arrived at one end; what is under way is lost, in both directions."""
    heard, (to_server, to_client) = whole(name)
    for n in places(to_client if to == "client" else to_server):
        session = Session(CONVERSATIONS[name])
        link = session.link
        link.cut_after(n, link.client if to == "client" else link.server)
        session.run()
        if to == "server" and n < SETUP_BYTES:
            never_heard_of(session)
            continue
        session.settle()
        assert session.heard() == heard, f"cut after {n} bytes to the {to}"


def never_heard_of(session: Session) -> None:
    """The server has not got SETUP: REJECTED_RESUME. Every stream fails once, and the client begins anew."""
    streams = list(session.client.names.values())
    fires = [name for name in streams if name.startswith("fire")]
    assert session.asked.resumption.suspended
    session.rejoin()
    session.run()
    assert not session.client.closed
    assert session.asked.resumption.suspended
    text = "the server has no such session, and it never answered: it may have processed the request"
    assert {name: log for name, log in session.client.log.items() if log} == {
        name: [(ConnectionClosed, 0x004, text)] for name in streams if name not in fires
    }
    assert not session.server.log
    assert session.asked.streams() == []
    assert len(session.sessions) == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", CONVERSATIONS)
def test_different_numbers_are_lost_in_each_direction(name: str) -> None:
    """The one direction has been dark for a while when the other breaks."""
    heard, (to_server, to_client) = whole(name, 7)
    dice = random.Random(name)
    for n in places(to_client, 1 if EXHAUSTIVE else 53):
        session = Session(CONVERSATIONS[name], slice=7, latency=0.01)
        link = session.link
        link.server.lose_after(SETUP_BYTES + dice.randrange(to_server))
        link.cut_after(n)
        session.run()
        if not session.asked.resumption.suspended:
            link.cut()  # the dark direction has stopped the conversation before byte n
        session.settle()
        assert session.heard() == heard, f"cut after {n} bytes"


@cache
def resumption(name: str, first: int) -> tuple[int, int]:
    """Bytes that the second link carries when the first broke after ``first`` bytes to the client."""
    session = Session(CONVERSATIONS[name])
    session.link.cut_after(first)
    session.run()
    before = session.sent()
    session.rejoin()
    session.run()
    after = session.sent()
    return after[0] - before[0], after[1] - before[1]


@pytest.mark.slow
@pytest.mark.parametrize("to", ["client", "server"])
@pytest.mark.parametrize(("name", "share"), [("requests", 0.3), ("streams", 0.5), ("channels", 0.1), ("fires", 0.0)])
def test_the_resumption_is_cut_at_every_byte(name: str, share: float, to: str) -> None:
    """RESUME, RESUME_OK and what is repeated, up to the end; then the third link is cut as well."""
    heard, (_, to_client) = whole(name)
    first = int(to_client * share)
    sizes = resumption(name, first)
    for n in places(sizes[1] if to == "client" else sizes[0], 1 if EXHAUSTIVE else 13):
        session = Session(CONVERSATIONS[name])
        session.link.cut_after(first)
        session.run()
        for _ in range(2):
            if not session.asked.resumption.suspended:
                break
            link = session.rejoin()
            link.cut_after(n, link.client if to == "client" else link.server)
            session.run()
        session.settle()
        assert session.heard() == heard, f"the resumption was cut after {n} bytes to the {to}"


@pytest.mark.slow
@pytest.mark.parametrize("slice", [None, 0, 1])
def test_cut_again_and_again(slice: int | None) -> None:
    """Everything at once, a cut every few hundred bytes until it is through; some cuts only one end notices."""
    calm = Session(everything)
    calm.settle()
    for seed in range(100 if EXHAUSTIVE else 3 if slice == 1 else 8):
        dice = random.Random(seed)
        session = Session(everything, seed=seed, slice=slice, latency=dice.choice((0.0, 0.01)))
        session.link.cut_after(dice.randrange(1, 700))
        session.run()
        while session.client.suspended < 40:
            if not session.asked.resumption.suspended:
                lose_at_the_client(session)
            link = session.rejoin()
            link.cut_after(dice.randrange(60, 500), dice.choice((link.client, link.server)))
            session.run()
        session.settle()
        assert session.heard() == calm.heard(), seed
        assert session.client.suspended == 40


def lose_at_the_client(session: Session) -> None:
    """RE-14: the server goes on believing in the old transport."""
    session.link.dark = True
    session.link.client.end()
    assert session.asked.resumption.suspended
    assert not session.answers.resumption.suspended


# -- by chance ------------------------------------------------------------------------------------------------


class Cut(Pair):
    """The applications and the network of pair.py, and a session that outlives its transports."""

    @initialize(mtu=st.sampled_from([64, 100, 1000]), store=st.sampled_from([1000, 1 << 20]))
    def start(self, mtu: int, store: int) -> None:
        limits = LIMITS.replace(glitch_bucket=(100_000, 0), cancel_bucket=(100_000, 0), resume_bytes=store)
        self.sessions = Sessions(limits)
        self.mtu, self.now = mtu, 0.0
        self.client = Side(Engine("client", limits=limits, mtu=mtu, setup=setup(token=TOKEN)))
        self.server = Side(Engine("server", limits=limits, mtu=mtu, sessions=self.sessions))
        self.sides = (self.client, self.server)
        self.server.hear(self.server.engine.receive(self.client.engine.outgoing(), self.now))

    @rule(lost=st.tuples(st.integers(0, 3), st.integers(0, 3)), knows=st.booleans())
    def breaks(self, lost: tuple[int, int], knows: bool) -> None:
        """What is under way is lost, and some more that was being written; the server may not notice (RE-14)."""
        for side, more in zip(self.sides, lost, strict=True):
            for _ in range(more):
                side.engine.outgoing(100)
            side.out.clear()
            if side is self.client or knows:
                side.hear(side.engine.receive_eof(self.now))
        assert self.client.engine.resumption.suspended

    @rule(arrives=st.integers(0, 60))
    def comes_back(self, arrives: int) -> None:
        """As much of RESUME arrives; the answer is under way then."""
        client, server = self.client.engine, self.server.engine
        if not client.resumption.suspended:
            return
        client.resumption.reconnect(self.now)
        said = client.outgoing()
        assert client.outgoing() == b""
        newcomer = Engine("server", limits=server.limits, sessions=self.sessions)
        events = newcomer.receive(said[:arrives], self.now)
        if arrives < len(said):
            assert events == []
            self.client.hear(client.receive_eof(self.now))
            return
        (resuming,) = events
        assert isinstance(resuming, ev.Resuming)
        assert resuming.session is server
        self.server.hear(server.resumption.resume(resuming.request, self.now))
        assert newcomer.resumption.hand_over() == b""
        self.server.out.clear()

    @invariant()
    def the_store_is_bounded(self) -> None:
        for side in getattr(self, "sides", ()):
            retained = side.engine.resuming.retained
            assert retained is not None
            assert retained.size < retained.limit + 0x11000 + self.mtu
            assert len(b"".join(retained.blocks())) >= retained.size

    @invariant()
    def nobody_has_more_than_was_sent(self) -> None:
        for side in getattr(self, "sides", ()):
            ours, theirs = side.engine.resuming.retained, self.other(side).engine.resuming.retained
            assert theirs.first <= ours.received <= theirs.sent

    def teardown(self) -> None:
        """It comes back, everything arrives, and nothing is left."""
        if not hasattr(self, "sides"):
            return
        if self.client.engine.resumption.suspended:
            self.comes_back(1000)
        super().teardown()
        for _ in range(50):
            self.now += 20.0
            self.client.hear(self.client.engine.tick(self.now))
            super().teardown()
        for side in self.sides:
            ours, theirs = side.engine.resuming.retained, self.other(side).engine.resuming.retained
            assert ours.sent == theirs.received
            assert ours.size == 0
            assert side.engine.queued == 0


TestCut = Cut.TestCase
TestCut.settings = settings(
    max_examples=500 if EXHAUSTIVE else 40,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)


@settings(max_examples=500 if EXHAUSTIVE else 30, deadline=None)
@given(
    name=st.sampled_from(sorted(CONVERSATIONS)),
    seed=st.integers(0, 1000),
    slice=st.sampled_from([None, 0, 1, 7]),
    latency=st.sampled_from([0.0, 0.01]),
    cuts=st.lists(st.tuples(st.booleans(), st.integers(0, 900), st.none() | st.integers(0, 900)), max_size=6),
)
def test_cut_anywhere(
    name: str, seed: int, slice: int | None, latency: float, cuts: list[tuple[bool, int, int | None]]
) -> None:
    """Several cuts, each at either end; the other direction may go dark before. However the bytes are sliced."""
    session = Session(CONVERSATIONS[name], seed=seed, slice=slice, latency=latency)
    session.link.cut_after(300)
    session.run()
    for at_client, size, dark in cuts:
        if not session.asked.resumption.suspended:
            session.link.cut()
        link = session.rejoin()
        near, far = (link.client, link.server) if at_client else (link.server, link.client)
        far.lose_after(dark)
        link.cut_after(size, near)
        session.run()
    if any(dark is not None for _, _, dark in cuts) and not session.asked.resumption.suspended:
        session.link.cut()
    session.settle()
    assert session.heard() == whole(name)[0]
