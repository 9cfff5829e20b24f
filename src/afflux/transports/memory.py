"""Engines joined without I/O, in simulated time: for tests. No asyncio, no socket, no real clock.

::

    world = World(seed=7)
    link = world.join(client_engine, server_engine, latency=0.02, slice=3)
    stream = link.client.engine.open("stream", b"", credit=4)
    world.run()
    assert link.server.events == [...]

A :class:`World` owns the time. A :class:`Link` joins two engines: what one has to write arrives at the other after
``latency``, in the order it was written, cut into pieces. Nothing happens but in ``World.run``. The same seed gives
the same run, to the byte.

A session may outlive its link::

    link.cut_after(95)                              # the client gets 95 bytes more, then the link breaks
    world.run()
    link = world.rejoin(link, newcomer_engine)      # the client asks the newcomer's server to go on
    world.run()
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from random import Random
from typing import cast

from afflux.core.engine import Engine, Resumption
from afflux.core.errors import Rejected
from afflux.core.events import Event, Resuming

__all__ = ["End", "Link", "World"]

React = Callable[["End", Event], None]
"Called with each event: what the application of that end does."


class World:
    """Simulated time and everything that waits for it."""

    def __init__(self, seed: int = 0) -> None:
        self.now = 0.0
        "Seconds since the world began."
        self.random = Random(seed)
        "For cuts and jitter; a test may use it too."
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._links: list[Link] = []

    def at(self, time: float, work: Callable[[], None]) -> None:
        """Do ``work`` at ``time``; what is due at the same time keeps its order."""
        self._count += 1
        heapq.heappush(self._queue, (max(time, self.now), self._count, work))

    def join(
        self,
        client: Engine,
        server: Engine,
        *,
        latency: float = 0.0,
        jitter: float = 0.0,
        slice: int | None = None,
        on_client: React | None = None,
        on_server: React | None = None,
    ) -> Link:
        """Join two engines.

        Args:
            latency: seconds that bytes are under way.
            jitter: up to so many seconds more, by chance; the order stays.
            slice: bytes come in pieces of at most so many: 1 is byte by byte, 0 a chance size each time, None as
                they were written.
            on_client, on_server: what happens on an event, besides its being noted in ``events``.
        """
        link = Link(self, latency, jitter, slice)
        link.client = End(link, client, on_client)
        link.server = End(link, server, on_server)
        self._links.append(link)
        return link

    def rejoin(self, link: Link, newcomer: Engine) -> Link:
        """A new link, as good as ``link``: its client, suspended, asks a newcomer to go on with the session.

        The newcomer's Resuming event gives the new link to the end that has the session, with its events and its
        application; a refusal is told to the client. What the ends have sent and heard before stays theirs.

        Raises:
            LocalProtocolError: the client is not suspended.
        """
        engine = link.client.engine
        events = cast("Resumption", engine.resumption).reconnect(self.now)
        new = Link(self, link.latency, link.jitter, link.slice)
        new.client = End(new, engine, None)
        new.client.take_over(link.client)
        new.server = End(new, newcomer, None)
        self._links.append(new)
        new.client.tell(events)
        return new

    def resume(self, newcomer: End, event: Resuming) -> None:
        """Give a newcomer's link to the session that it asks for; it is refused if that cannot go on."""
        engine = newcomer.engine
        try:
            events = event.session.resumption.resume(event.request, self.now)
        except Rejected as refusal:
            newcomer.tell(engine.refuse(refusal.message, self.now))
            return
        rest = cast("Resumption", engine.resumption).hand_over()
        newcomer.take_over(next(end for link in self._links for end in link.ends if end.engine is event.session))
        newcomer.tell(events)
        if rest:
            newcomer.arrive(rest)

    def run(self, until: float | None = None, *, steps: int = 1_000_000) -> None:
        """Let things happen, up to and with the time ``until``; without it, until nothing is under way.

        Engines' deadlines are kept only up to ``until``: without it time stands still when all bytes have arrived,
        so that keepalives do not go on for ever.

        Raises:
            RuntimeError: it goes on for more than ``steps`` steps.
        """
        for _ in range(steps):
            for link in self._links:
                link.pump()
            due = self._queue[0][0] if self._queue else None
            deadline = None if until is None else self._deadline()
            if until is not None and deadline is not None and (due is None or deadline <= due) and deadline <= until:
                self.now = max(self.now, deadline)
                for link in self._links:
                    link.tick()
            elif due is not None and (until is None or due <= until):
                self.now = due
                heapq.heappop(self._queue)[2]()
            else:
                self.now = self.now if until is None else max(self.now, until)
                return
        raise RuntimeError(f"not at rest after {steps} steps")

    def _deadline(self) -> float | None:
        found = [time for link in self._links for time in link.deadlines()]
        return min(found, default=None)


class End:
    """One end of a link: an engine, and what has happened to it."""

    def __init__(self, link: Link, engine: Engine, react: React | None) -> None:
        self.link = link
        self.engine = engine
        self.events: list[Event] = []
        "Every event so far."
        self.sent = bytearray()
        "Every byte that it has written."
        self.reading = True
        "Set it to False for a reader that has stopped: what arrives waits, as in a socket's buffer."
        self.over = False
        "It was told that the transport ended."
        self.gone = False
        "Its engine has another link now."
        self._react = react
        self._waiting: list[bytes] = []
        self._ended = False
        self._last = 0.0
        self._left: int | None = None
        self._breaks = False

    def tell(self, events: list[Event]) -> None:
        """Note events and let the application react. Call it with what the engine's verbs return."""
        for event in events:
            self.events.append(event)
            if isinstance(event, Resuming):
                self.link.world.resume(self, event)
            elif self._react is not None:
                self._react(self, event)

    def take_over(self, older: End) -> None:
        """Go on with the engine, the events and the application of an end whose link is over."""
        self.engine, self.events, self.sent, self._react = older.engine, older.events, older.sent, older._react
        older.gone = older.over = True
        older._waiting.clear()

    def lose_after(self, size: int | None, *, breaks: bool = False) -> None:
        """What comes behind the next ``size`` bytes is lost without a word; with ``breaks`` the link breaks there.
        None: nothing is lost from now on."""
        self._left, self._breaks = size, breaks

    def arrive(self, data: bytes) -> None:
        """Bytes are here."""
        if self.over:
            return
        if self._left is not None:
            data = data[: self._left]
            self._left -= len(data)
        if data:
            self._waiting.append(data)
            self.read()
        if self._left == 0 and self._breaks:
            self.link.cut()

    def end(self) -> None:
        """The transport ends, behind what has arrived."""
        self._ended = True
        self.read()

    def read(self) -> None:
        """Take what waits, if the engine wants it."""
        while self.reading and self._waiting and self.engine.wants_read:
            self.tell(self.engine.receive(self._waiting.pop(0), self.link.world.now))
        if self._ended and not self._waiting and not self.over:
            self.over = True
            self.tell(self.engine.receive_eof(self.link.world.now))

    @property
    def unread(self) -> int:
        """Bytes that have arrived and wait to be read."""
        return sum(map(len, self._waiting))


class Link:
    """Two engines and the way between them."""

    client: End
    server: End

    def __init__(self, world: World, latency: float, jitter: float, slice: int | None) -> None:
        self.world = world
        self.latency = latency
        self.jitter = jitter
        self.slice = slice
        self.dark = False
        "A black hole: nothing arrives, and nobody is told (SL-05)."
        self._cut = False

    @property
    def ends(self) -> tuple[End, ...]:
        """The ends whose engines have no other link."""
        return tuple(end for end in (self.client, self.server) if not end.gone)

    def pump(self) -> None:
        """Put under way what the engines have to write, and read what waits."""
        for end in self.ends:
            other = self.server if end is self.client else self.client
            end.read()
            while data := end.engine.outgoing():
                end.sent += data
                if not self._cut and not self.dark:
                    self._send(end, other, data)
            resumption = end.engine.resumption
            left = end.engine.closed or (resumption is not None and resumption.suspended)
            if left and not end.over and not self._cut:
                end.over = True
                self.world.at(self._when(end), other.end)

    def cut(self) -> None:
        """The link breaks: what is under way is lost, both ends are told."""
        self._cut = True
        for end in self.ends:
            end._waiting.clear()
            end.end()

    def cut_after(self, size: int, end: End | None = None) -> None:
        """The link breaks when ``end``, the client if None, has received ``size`` bytes from now on: in the middle
        of a frame, say."""
        (end or self.client).lose_after(size, breaks=True)

    def tick(self) -> None:
        """Tell the engines the time, if it is theirs."""
        for end in self.ends:
            deadline = end.engine.deadline
            if deadline is not None and deadline <= self.world.now:
                end.tell(end.engine.tick(self.world.now))

    def deadlines(self) -> list[float]:
        """When the engines want to be told the time."""
        found = (end.engine.deadline for end in self.ends)
        return [deadline for deadline in found if deadline is not None]

    def _send(self, end: End, other: End, data: bytes) -> None:
        for piece in self._pieces(data):
            self.world.at(self._when(end), lambda piece=piece: None if self._cut else other.arrive(piece))  # type: ignore[misc]

    def _when(self, end: End) -> float:
        """When what is sent now arrives: never before what was sent earlier."""
        chance = self.world.random.random() * self.jitter if self.jitter else 0.0
        end._last = max(end._last, self.world.now + self.latency + chance)
        return end._last

    def _pieces(self, data: bytes) -> list[bytes]:
        if self.slice is None:
            return [data]
        pieces, start = [], 0
        while start < len(data):
            size = self.slice or self.world.random.randint(1, 64)
            pieces.append(data[start : start + size])
            start += size
        return pieces
