"""One simulated day of a client and a server: what they do is drawn from a seed, what must be true is checked.

A client and a server run unchanged over a network with faults, in virtual time. Each operation has a number, and both
ends write down what they see of it. The checks compare these ledgers; they look at no engine and at no driver.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

import afflux
from afflux import Backoff, Limits
from afflux.aio.memory import Memory
from afflux.protocols.jmux.errors import SessionAborted
from afflux.protocols.rsocket_draft import resumable
from afflux.testing import Faults, Link, Network, VirtualLoop
from tests.testing.conversations import answers, talk

__all__ = ["KINDS", "Simulation", "Story"]

KINDS = {
    "rsocket": ("calm", "resume", "resume", "resume", "forgotten", "reconnect", "severed"),
    "rsocket-draft": ("calm", "each", "each", "each", "reconnect", "severed"),
    "reactivesocket": ("calm", "reconnect", "severed"),
    "jmux": ("calm", "reconnect", "severed"),
    "rsio": ("calm", "reconnect", "severed"),
    "limit": ("calm", "reconnect", "severed"),
}
"""What may happen to the connection, by protocol.

calm: nothing breaks. resume: links break, and the session goes on. each: the same, and the streams that did not opt in
end. forgotten: it is away for longer than the server
remembers it. reconnect: links break, and another connection is made. severed: the link breaks, and that is the end."""

_VERBS = {
    "rsocket": ("request", "request", "stream", "stream", "channel", "fire", "push"),
    "rsocket-draft": ("request", "request", "stream", "stream", "channel", "fire", "push"),
    "reactivesocket": ("request", "request", "stream", "stream", "channel", "fire", "push", "subscribe"),
    "jmux": ("request", "session"),
    "rsio": ("stream", "subscribe"),
    "limit": ("talk", "talk", "channel"),
}
_QUIET = ("rsio", "limit")
"Protocols without keepalives."
_EXPECTED = (afflux.ConnectionClosed, afflux.Rejected, afflux.Canceled)
"""What an operation may fail with when its connection is lost: docs/errors.md. Half a frame, and nothing behind it, is
"frame-timeout"; a half open link before SETUP_OK is "handshake-timeout"."""
_TROUBLES = ("cut", "cut", "restart", "unreachable", "client", "server")
"""What breaks: a link; the server, and another starts; a link, and none can be made for a while; a link for one end
only, of which the other end would never learn without keepalives."""
_LONGEST_S = 7200.0
_MOST_OPERATIONS = 14
"How many operations of one side are in flight together."
_SLOTS: tuple[dict[str, int], ...] = (
    {"streams": 4},
    {"streams": 256},
    {"streams": _MOST_OPERATIONS + 1, "pending_streams": 0},
    {"streams": _MOST_OPERATIONS + 1, "pending_streams": 0},
)
"""Limits of handlers. Without ``pending_streams`` an engine refuses the first request above ``streams``: then the last
operations find a single slot that is not free."""
_RESUME_OK_BYTES = 17
_IDLE_BYTES = 40_000
"What was consumed is reported to the engine by 64 items or 16 KiB, so an idle connection may owe one such report."


@dataclass
class Ledger:
    """What both ends have seen of one operation."""

    number: int
    verb: str
    items: int = 0
    "How many items the responder sends."
    size: int = 0
    fails: bool = False
    "Whether the responder fails behind its last item."
    stuck: bool = False
    "Whether the responder never answers: the requester gives up, or the connection ends."
    slow: float = 0.0
    "The longest pause of the responder between two items."
    credit: int = 0
    "The window; 0 for one that adapts."
    began: int = 0
    "How often a handler has begun with it."
    made: int = 0
    "Items that the responder has been asked for."
    taken: int = 0
    "Items that the requester has received."
    sent: int = 0
    "Items that the requester of a channel has been asked for."
    seen: int = 0
    "Items of those that the responder has received."
    stays: bool = False
    "The requester takes every item."
    kept: bool = False
    "The stream has opted in to survive its link."
    meets: asyncio.Barrier | None = None
    "Where its handler waits for the handlers of other operations."
    outcome: str = ""

    @property
    def before_failing(self) -> int:
        """Items that the requester receives before the failure."""
        if self.verb == "talk":
            return self.items - 1
        return 0 if self.verb in ("request", "session") else self.items

    def text(self, item: int) -> bytes:
        """One item: no two are alike."""
        head = b"%d.%d " % (self.number, item)
        return head + b"x" * (self.size - len(head))


@dataclass
class Story:
    """What a run has come to."""

    protocol: str
    seed: int
    kind: str
    seconds: float = 0.0
    "Virtual."
    turns: int = 0
    happened: Counter[str] = field(default_factory=Counter)
    lines: list[str] = field(default_factory=list)
    "Everything that was seen, with its time."
    wrong: list[str] = field(default_factory=list)
    "What must not be."


class Simulation:
    """A run: ``await`` its ``play`` in a virtual loop."""

    def __init__(self, protocol: str, seed: int) -> None:
        self.random = random = Random(f"{protocol} {seed}")
        self.story = Story(protocol, seed, random.choice(KINDS[protocol]))
        self.protocol = protocol
        self.kind = self.story.kind
        self.late = random.choice((0.0, 0.0, 0.01, 0.5))
        "Seconds that timers may be late."
        self.small = random.random() < 0.3
        "All items are small; then links may cut bytes finely."
        self.ledgers: dict[int, Ledger] = {}
        self.working = 0
        "Handlers and sources at work."
        self.pushed: Counter[bytes] = Counter()
        self.known = asyncio.Event()
        "Links may break from now on."
        self.last: asyncio.Task[None] | None = None
        "An operation that is in flight when the client closes."
        self.loop: VirtualLoop
        self.server: afflux.Server
        self.start: Callable[[], afflux.Server]
        "Makes a server."
        self.network: Network
        self.peer: afflux.Peer
        self.mtu = None if protocol in ("jmux", "limit") else random.choice((None, None, 64, 300))
        "The largest frame of both ends."
        self.fragments = self.mtu is not None
        "A failure drops the items that have not left: those behind one in fragments."
        self.cuts = random.randint(1, 5) if self.kind in ("resume", "each", "reconnect") else 0
        "How many links break by themselves."
        self.leased = protocol == "rsocket" and self.kind in ("calm", "resume") and random.random() < 0.2
        self.alone = asyncio.Lock() if protocol == "limit" else None
        "A connection has one session at a time."
        self.asks_both_ways = (
            protocol in ("rsocket", "rsocket-draft", "reactivesocket")
            and self.kind in ("calm", "resume")
            and not self.leased
        )

    # -- the world --------------------------------------------------------------------------------------------

    def plan(self, number: int) -> tuple[Faults, Faults]:
        """The faults of a connection: those that come later break soon, while they are being resumed."""
        random = self.random
        if number > 1000:
            raise AssertionError("1000 connections are enough")
        ways = [
            {
                "delay": random.choice((0.0, 0.001, 0.05, 0.3)),
                "jitter": random.choice((0.0, 0.0, 0.2)),
                "rate": random.choice((None, None, 20_000.0)),
                "slices": random.choice((0, 0, 15 if self.small else 200, 500)),
            }
            for _ in range(2)
        ]
        if 0 < number < self.cuts and random.random() < 0.8:
            fault = random.choice(
                ("cut_after", "cut_after", "cut_after", "lose_after")[: 3 + (self.protocol not in _QUIET)]
            )
            ways[random.randrange(2)][fault] = random.choice((random.randint(1, 60), random.randint(60, 600)))
        to_server, to_client = (Faults(**way) for way in ways)
        return to_server, to_client

    def limits(self) -> Limits:
        """Small ones, so that they matter; generous where many connections are no offence."""
        base = Limits.tiny() if self.random.random() < 0.5 else Limits.server()
        return base.replace(
            **self.random.choice(_SLOTS),
            pending_s=_LONGEST_S,
            idle_s=_LONGEST_S,
            frame_s=8.0,
            resume_s=600.0,
            resume_rate=(1000, 0.0),
            accepts_per_s=10_000,
            cancel_bucket=(10_000, 100),
        )

    def arguments(self, limits: Limits) -> tuple[dict[str, Any], dict[str, Any]]:
        """What the server and the client are made with."""
        serve: dict[str, Any] = {"limits": limits, "credit": self.random.choice((1, 8, 256))}
        connect: dict[str, Any] = {"limits": limits}
        if self.protocol not in _QUIET:
            connect["keepalive"] = 5.0
        if self.protocol in ("rsocket", "rsocket-draft", "reactivesocket"):
            connect["lifetime"] = 40.0 if self.kind == "calm" else 16.0
        connect["mtu"] = self.mtu
        if self.protocol not in _QUIET:
            connect["handler"] = None if self.protocol == "jmux" else Handlers(self)
        if self.kind in ("resume", "each", "forgotten"):
            serve["resume"] = True
            connect["resume"] = Backoff(first=self.random.choice((0.05, 0.5)), most=3.0)
        if self.kind == "reconnect":
            connect["reconnect"] = Backoff(first=0.1, most=3.0, patience=60.0)
        if self.leased:
            serve["lease"] = afflux.RateLease(3.0, 5)
            connect |= {"lease": True, "lease_wait": 600.0}
        return serve, connect

    async def play(self) -> Story:
        """Run it."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        self.loop = loop
        serve, connect = self.arguments(self.limits())
        options = [f"mtu={self.mtu}"] if self.mtu else []
        options += ["ack=yes"] if self.protocol == "rsocket-draft" else []  # its keepalives count from the beginning
        uri = f"{self.protocol}+mem://simulated" + ("?" + "&".join(options) if options else "")
        window = self.random.choice((2_000, 0x10000))
        with Network(plan=self.plan, window=window, seed=self.random.randrange(1 << 30)) as self.network:
            try:
                async with asyncio.timeout(_LONGEST_S):
                    self.start = lambda: afflux.serve(uri, self.handlers(), **serve)
                    self.server = await self.start()
                    async with afflux.connect(uri, **connect) as self.peer:
                        await self.live()
                    self.note("the client has closed")
                    await self.server.close()
                    self.note("the server has closed")
            except TimeoutError:
                self.story.wrong.append(f"not ended after {_LONGEST_S:g} s")
            await asyncio.sleep(1000.0)  # longer than anything may linger
            self.count()
            self.check_the_end()
        return self.story

    def handlers(self) -> object:
        """The server's responder."""
        handlers = Handlers(self)
        return answers(self, handlers) if self.protocol == "limit" else handlers

    async def live(self) -> None:
        """The day: operations of both sides, and what breaks meanwhile."""
        random = self.random
        anchor: asyncio.Task[None] | None = None
        async with asyncio.TaskGroup() as group:
            group.create_task(self.trouble())
            if self.kind in ("resume", "each", "forgotten"):
                await self.operate(99, lambda: self.peer, "request")  # the server has answered: it knows the session
                if self.kind == "each":
                    anchor = await self.anchored()
                self.known.set()
            for number in range(random.randint(6, _MOST_OPERATIONS)):
                group.create_task(self.operate(number, lambda: self.peer))
            if self.asks_both_ways:
                while not any(one.setup for one in self.server.connections):
                    await asyncio.sleep(0.1)
                for number in range(100, 100 + random.randint(0, 4)):
                    group.create_task(self.operate(number, self.guest))
                    self.story.happened["asked by the server"] += 1
        if anchor is not None:
            anchor.cancel()
        await self.quiet()
        if self.working:
            self.wrong(f"{self.working} handlers or sources run, and nobody waits for them")
        for peer in (self.peer, *self.server.connections):
            if left := peer.streams():
                self.wrong(f"streams are still live: {left}")
        memory = Memory.of(self.loop)
        if memory.exceeds(_IDLE_BYTES):
            self.wrong(f"{memory.size} bytes are accounted for on connections that are idle")
        if self.kind in ("calm", "resume") or (self.kind == "reconnect" and random.random() < 0.5):
            await self.all_slots(self.peer, 200)
            if self.asks_both_ways:
                await self.all_slots(self.guest(), 300)
        if random.random() < 0.3:
            self.story.happened["drained"] += 1
            await self.peer.close(drain=True)
        elif not self.peer.closed:
            self.story.happened["closed with work in flight"] += 1
            ledger = self.begin(98, self.verb_of_one())
            ledger.items, ledger.stuck = 1, True
            self.last = asyncio.get_running_loop().create_task(self.hang(ledger))
            await asyncio.sleep(50.0)

    def guest(self) -> afflux.Peer:
        """The client, as the server has it; a connection that is still being resumed is not it."""
        return next(one for one in self.server.connections if one.setup is not None)

    async def trouble(self) -> None:
        """Break links, stop readers, refuse connections."""
        random, network = self.random, self.network
        if self.kind in ("resume", "each", "forgotten"):
            await self.known.wait()
        for _ in range(self.cuts or (0 if self.kind == "calm" else 1)):
            await asyncio.sleep(random.choice((random.random(), random.random() * 30)))
            link = network.links[-1]
            if self.kind == "severed":
                link.cut()
            elif self.kind == "forgotten":
                network.reachable = False
                network.cut()
                await asyncio.sleep(700.0)
                network.reachable = True
            else:
                how = random.choice(_TROUBLES if self.protocol not in _QUIET else _TROUBLES[:-2])
                if how == "restart" and self.kind in ("resume", "each"):
                    how = "cut"  # the server would have forgotten the session
                self.note(f"trouble: {how}")
                await self.make(how, link)
        if self.kind == "calm":
            for _ in range(random.randint(0, 3)):
                await asyncio.sleep(random.random() * 10)
                way = random.choice((network.links[-1].to_client, network.links[-1].to_server))
                way.hold()
                await asyncio.sleep(random.random() * 4)
                way.release()

    async def make(self, how: str, link: Link) -> None:
        """One trouble of _TROUBLES."""
        random, network = self.random, self.network
        if how == "restart":
            self.story.happened[how] += 1
            await self.server.close(drain=random.choice((False, 5.0)))
            await asyncio.sleep(random.random() * 10)
            self.server = await self.start()
        elif how == "unreachable":
            network.reachable = False
            link.cut()
            await asyncio.sleep(random.random() * 20)
            network.reachable = True
        else:
            link.cut() if how == "cut" else link.cut("client" if how == "client" else "server")

    async def quiet(self) -> None:
        """Long after the last operation: sessions are back, keepalives go to and fro."""
        await asyncio.sleep(300.0)
        if self.kind == "resume" and (self.peer.suspended or self.peer.closed):
            self.wrong(f"not back: {self.peer.error!r}")

    async def all_slots(self, peer: afflux.Peer, first: int) -> None:
        """As many operations as a connection has slots are in flight together: none of the slots has leaked."""
        count = 1 if self.protocol == "limit" else min(peer.limits.streams, peer.limits.sessions, 20)
        started = [self.begin(first + n, self.verb_of_one()) for n in range(count)]
        meets = asyncio.Barrier(count)
        for ledger in started:
            ledger.items, ledger.fails, ledger.slow, ledger.stuck, ledger.stays = 1, False, 0.0, False, True
            ledger.meets = meets
        try:
            async with asyncio.timeout(600.0):
                await asyncio.gather(*(self.perform(peer, ledger) for ledger in started))
        except TimeoutError:
            self.wrong(f"slots have leaked: {[ledger.outcome for ledger in started]}")
        except afflux.Error as error:
            # A lease may end while a request travels under it; a half open link is found by the first that uses it.
            if not (self.leased or self.kind == "reconnect"):
                self.wrong(f"slots have leaked, or the connection cannot be used: {error!r}")
            await meets.abort()

    async def anchored(self) -> asyncio.Task[None]:
        """A stream that opted in and never ends: a session without one ends with its link."""
        ledger = self.begin(97, "stream")
        ledger.items, ledger.stuck, ledger.kept = 1, True, True
        anchor = asyncio.get_running_loop().create_task(self.hang(ledger, lost=self.wrong))
        while not ledger.began:
            await asyncio.sleep(0.1)
        return anchor

    async def hang(self, ledger: Ledger, lost: Callable[[str], None] | None = None) -> None:
        """An operation that the end of the connection ends; ``lost`` is told if none may end it."""
        try:
            await self.perform(self.peer, ledger)
        except afflux.Error as error:
            ledger.outcome = type(error).__name__
            if lost is not None:
                lost(f"{ledger} failed with {error!r}")
        else:
            self.wrong(f"{ledger} has ended")

    def verb_of_one(self) -> str:
        """A verb with one answer."""
        return {"rsio": "stream", "limit": "talk"}.get(self.protocol, "request")

    # -- operations -------------------------------------------------------------------------------------------

    def begin(self, number: int, verb: str) -> Ledger:
        """A new operation."""
        random = self.random
        ledger = self.ledgers[number] = Ledger(
            number,
            verb,
            items=1 if verb in ("request", "session") else random.choice((0, 1, 5, 30)),
            size=random.choice((12, 30) if self.small else (12, 30, 300, 2000)),
            fails=verb not in ("fire", "push") and random.random() < 0.2,
            slow=random.choice((0.0, 0.0, 0.2, 8.0)),
            credit=random.choice((1, 2, 16, 256, 0)),
            stuck=verb in ("request", "stream", "session") and random.random() < 0.15,
            stays=self.protocol == "limit",  # a connection has no other session after one that was left
        )
        if self.kind == "each" and verb in ("stream", "channel"):
            ledger.kept = random.random() < 0.6
        if verb == "talk":
            ledger.fails = ledger.fails and ledger.items > 0
        return ledger

    async def operate(self, number: int, peer_of: Callable[[], afflux.Peer], verb: str = "") -> None:
        """One operation, given up after a while by chance."""
        random = self.random
        ledger = self.begin(number, verb or random.choice(_VERBS[self.protocol]))
        patience = random.choice((None, None, None, random.random(), random.random() * 20)) if not verb else None
        if verb:
            ledger.stuck = False
        if ledger.stays:
            patience = None
        if ledger.stuck:
            ledger.items = ledger.items or 1
            patience = random.random() * 100
        await asyncio.sleep(random.choice((0.0, random.random(), random.random() * 20)))
        try:
            async with asyncio.timeout(patience) as limit, self.alone or nullcontext():
                await self.perform(peer_of(), ledger)
        except _Left:
            ledger.outcome = "left early"
        except TimeoutError:
            assert limit.expired()
            ledger.outcome = "given up"
        except (afflux.ApplicationError, SessionAborted) as error:
            ledger.outcome = "failed"
            if error.message.endswith(("closed", "the connection is closing")):
                ledger.outcome = "refused by a server that closes"  # a text, where a wire has no codes
            elif not ledger.fails or (ledger.taken != ledger.before_failing and not self.fragments):
                self.wrong(f"{ledger} failed with {error!r}")
        except afflux.Error as error:
            ledger.outcome = type(error).__name__
            refused = isinstance(error, afflux.Rejected) and (self.leased or self.protocol == "jmux")
            away = ledger.verb == "push" and self.kind == "resume"  # sessions do not keep pushes
            kept = ledger.kept and ledger.began > 0  # a request that was lost with its link is unknown to the server
            steady = (self.kind in ("calm", "resume") or kept) and not (refused or away)
            if steady or not (
                isinstance(error, _EXPECTED) or error.message.startswith(("frame-timeout", "handshake-timeout"))
            ):
                self.wrong(f"{ledger} failed with {error!r}, which is {error.__cause__!r}")
            if ledger.began and not error.may_have_been_processed:
                self.wrong(f"{ledger} was begun, though {error!r} says that it was not")
        self.story.happened[f"{ledger.verb}: {ledger.outcome}"] += 1
        if ledger.kept and len(self.network.links) > 1:
            self.story.happened[f"{ledger.verb} that opted in: {ledger.outcome}"] += 1
        self.note(f"{number} {ledger.verb} {ledger.outcome}, {ledger.taken} of {ledger.items}")

    async def perform(self, peer: afflux.Peer, ledger: Ledger) -> None:
        """Do what the verb says, to its end."""
        name = b"%d" % ledger.number
        work: Callable[[afflux.Peer, Ledger, bytes], Awaitable[None]] = getattr(self, f"_{ledger.verb}")
        await work(peer, ledger, name)
        if ledger.fails:
            self.wrong(f"{ledger} ended in order, and should have failed")
        ledger.outcome = "completed"

    async def _request(self, peer: afflux.Peer, ledger: Ledger, name: bytes) -> None:
        answer = await peer.request(name)
        self.take(ledger, answer.data)

    async def _session(self, peer: afflux.Peer, ledger: Ledger, name: bytes) -> None:
        async with await peer.session(name, finish=True) as session:
            self.take(ledger, await session.read_all())

    async def _fire(self, peer: afflux.Peer, ledger: Ledger, name: bytes) -> None:
        await peer.fire(name)

    async def _push(self, peer: afflux.Peer, ledger: Ledger, name: bytes) -> None:
        await peer.push(name)

    async def _subscribe(self, peer: afflux.Peer, ledger: Ledger, name: bytes) -> None:
        if self.protocol == "reactivesocket":
            ledger.fails = True  # a subscription that completes there fails
        await self.consume(peer.subscribe(name, credit=ledger.credit or "auto"), ledger, ledger.credit)

    async def _stream(self, peer: afflux.Peer, ledger: Ledger, name: bytes) -> None:
        by_hand = self.random.random() < 0.3 and ledger.credit
        asked = resumable(name) if ledger.kept else name
        if by_hand and not self.leased:  # a grant by hand does not wait for a lease
            items = peer.stream(asked, credit=0)
            items.request(ledger.credit)
            await self.consume(items, ledger, ledger.credit, by_hand=items.request)
        else:
            await self.consume(peer.stream(asked, credit=ledger.credit or "auto"), ledger, ledger.credit)

    async def _talk(self, peer: afflux.Peer, ledger: Ledger, name: bytes) -> None:
        await talk(self, peer, ledger, name)

    async def _channel(self, peer: afflux.Peer, ledger: Ledger, name: bytes) -> None:
        async def source() -> AsyncIterator[afflux.Payload | bytes]:
            self.working += 1
            try:
                yield resumable(name) if ledger.kept else name
                for item in range(ledger.items):
                    if item % 8 == 7:
                        await asyncio.sleep(self.random.random() * ledger.slow)
                    ledger.sent += 1
                    yield ledger.text(item)
            finally:
                self.working -= 1

        await self.consume(peer.channel(source(), credit=ledger.credit or "auto"), ledger, ledger.credit)

    async def consume(
        self, stream: Any, ledger: Ledger, window: int, by_hand: Callable[[int], None] | None = None
    ) -> None:
        """Take items, now and then slowly, and leave early by chance."""
        random = self.random
        leaves = random.randint(1, 20) if random.random() < 0.2 and not ledger.stays else None
        pause = random.choice((0.0, 0.0, 2.0))
        adapts = ledger.credit == 0 or self.protocol in _QUIET[1:]
        granted = window
        async with stream as items:
            while ledger.taken != leaves:
                try:
                    item = await anext(items)
                except StopAsyncIteration:
                    if ledger.taken < ledger.items:
                        self.wrong(f"{ledger} ended early")
                    return
                self.take(ledger, item.data)
                if ledger.made > ledger.taken + window + 1 and not adapts:
                    self.wrong(f"{ledger} exceeds its credit of {window}")
                if by_hand is not None:
                    if ledger.taken > granted:
                        self.wrong(f"{ledger} exceeds what was granted: {granted}")
                    if ledger.taken == granted:
                        by_hand(window)
                        granted += window
                if pause and ledger.taken % 8 == 7:
                    await asyncio.sleep(random.random() * pause)
            raise _Left

    def take(self, ledger: Ledger, data: bytes) -> None:
        """The requester has received an item: it must be the next one."""
        if data != ledger.text(ledger.taken):
            self.wrong(f"{ledger} received {data[:20]!r}, not item {ledger.taken}")
        ledger.taken += 1

    # -- checks -------------------------------------------------------------------------------------------------

    def wrong(self, text: str) -> None:
        """Something that must not be."""
        self.story.wrong.append(f"at {self.loop.time():.3f} s: {text}")

    def note(self, text: str) -> None:
        """Write a line."""
        self.story.lines.append(f"{self.loop.time():.6f} {text}")

    def count(self) -> None:
        """What the network did, and when in the life of a session."""
        happened = self.story.happened
        happened.update(self.network.happened)
        happened.update({f"kind: {self.kind}": 1, "late timers": self.late > 0, "leased": self.leased})
        happened["fragments"] += self.fragments
        if self.kind == "each":
            happened["resumed"] += len(self.network.links) > 1
        if self.kind == "resume":
            for link in self.network.links[1:]:
                arrived = link.to_client.passed
                if arrived >= _RESUME_OK_BYTES:
                    happened["resumed"] += 1
                if arrived < 300 and link is not self.network.links[-1]:
                    happened["cut while resuming" if arrived < _RESUME_OK_BYTES else "cut while replaying"] += 1
        self.story.seconds, self.story.turns = self.loop.time(), self.loop.turns

    def check_the_end(self) -> None:
        """Nothing is left of it."""
        if self.working:
            self.wrong(f"{self.working} handlers or sources still run")
        for ledger in self.ledgers.values():
            if ledger.began > 1:
                self.wrong(f"{ledger} was begun twice")
            # Sessions do not keep pushes; a lease may end while a fire travels under it.
            kept = not self.leased and (self.kind == "calm" or (self.kind == "resume" and ledger.verb == "fire"))
            if ledger.verb in ("fire", "push") and ledger.outcome == "completed" and not ledger.began and kept:
                self.wrong(f"{ledger} has not arrived")
        if held := Memory.of(self.loop).size:
            self.wrong(f"{held} bytes are still accounted for")
        if left := asyncio.all_tasks(self.loop) - {asyncio.current_task(self.loop)}:
            self.wrong(f"tasks are left: {left}")
        for link in self.network.links:
            if not link.over:
                self.wrong(f"link {link.number} is still open")


class _Left(Exception):
    """The requester has left a stream early."""


class Handlers:
    """The responder of either side."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        if simulation.protocol == "jmux":
            self.session = self._session

    async def begin(self, name: bytes) -> Ledger:
        """An operation has arrived."""
        ledger = self._simulation.ledgers[int(name)]
        ledger.began += 1
        self._simulation.note(f"{ledger.number} began")
        if ledger.meets is not None:
            with suppress(asyncio.BrokenBarrierError):
                await ledger.meets.wait()
        return ledger

    async def _pause(self, ledger: Ledger) -> None:
        if ledger.stuck:
            await asyncio.Event().wait()
        if ledger.slow:
            await asyncio.sleep(self._simulation.random.random() * ledger.slow)

    async def request(self, payload: Any) -> bytes | afflux.Payload:
        """One item, as bytes or as a payload: answers that are payloads are sent together."""
        ledger = await self.begin(payload.data)
        self._simulation.working += 1
        try:
            await self._pause(ledger)
            if ledger.fails:
                raise afflux.ApplicationError(message="as it was told")
            ledger.made += 1
            return afflux.Payload(ledger.text(0)) if ledger.number & 1 else ledger.text(0)
        finally:
            self._simulation.working -= 1

    async def fire(self, payload: Any) -> None:
        """Notes it."""
        await self.begin(payload.data)

    async def push(self, metadata: bytes) -> None:
        """Notes it."""
        await self.begin(metadata)

    async def stream(self, payload: Any) -> AsyncIterator[bytes]:
        """The items."""
        ledger = await self.begin(payload.data)
        self._simulation.working += 1
        try:
            for item in range(ledger.items):
                if item % 8 == 7 or ledger.stuck:
                    await self._pause(ledger)
                ledger.made += 1
                yield ledger.text(item)
            if ledger.fails:
                raise afflux.ApplicationError(message="as it was told")
        finally:
            self._simulation.working -= 1

    async def channel(self, items: Any) -> AsyncIterator[bytes]:
        """An item for each."""
        async for item in self.echo(items):
            yield item.data

    async def echo(self, items: Any) -> AsyncIterator[Any]:
        """The items; they have to come in order."""
        ledger = await self.begin((await anext(items)).data)
        self._simulation.working += 1
        try:
            async for item in items:
                if item.data != ledger.text(ledger.seen):
                    self._simulation.wrong(f"{ledger}: the responder received {item.data[:20]!r}, not {ledger.seen}")
                ledger.made += 1
                ledger.seen += 1
                yield item
            if ledger.fails:
                raise afflux.ApplicationError(message="as it was told")
        finally:
            self._simulation.working -= 1

    async def _session(self, session: Any) -> None:
        """One item, as a request."""
        ledger = await self.begin(await session.read_all())
        self._simulation.working += 1
        try:
            await self._pause(ledger)
            if ledger.fails:
                session.abort("as it was told")
            else:
                await session.write(ledger.text(0))
                session.finish()
        finally:
            self._simulation.working -= 1
