"""Join engines in simulated time, without I/O: bytes that one writes arrive at the other.

::

    world = World(seed=7)
    link = world.join(client_engine, server_engine, latency=0.02, slice=3)
    stream = link.client.engine.open("stream", b"", credit=4)
    world.run()
    assert link.server.events == [...]

A :class:`World` has the time. A :class:`Link` joins two engines: bytes arrive after ``latency``, in order, cut into
pieces. All effects happen inside ``World.run``, and the same seed gives the same run, to the byte.

A session may outlive its link::

    link.cut_after(95)                              # after 95 more bytes for the client the link breaks
    world.run()
    link = world.rejoin(link, newcomer_engine)      # the client asks the newcomer's server to resume the session
    world.run()

Drivers and handlers run on :class:`afflux.testing.Network` instead.
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
"The application of an end: called with the end and each event."


class World:
    """Simulated time, and the calls that are due in it."""

    def __init__(self, seed: int = 0) -> None:
        self.now = 0.0
        "Seconds since the beginning."
        self.random = Random(seed)
        "Decides cuts and jitter; a test may use it as well."
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._links: list[Link] = []

    def at(self, time: float, work: Callable[[], None]) -> None:
        """Call ``work`` at ``time``. Calls that are due at the same time run in the order of their scheduling."""
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
            latency: seconds until bytes arrive.
            jitter: up to this many seconds more, by chance; bytes stay in order.
            slice: bytes arrive in pieces of at most this many; 0: a random size for each; None: as they were written.
            on_client, on_server: called with each event, after it was added to ``events``.
        """
        link = Link(self, latency, jitter, slice)
        link.client = End(link, client, on_client)
        link.server = End(link, server, on_server)
        self._links.append(link)
        return link

    def rejoin(self, link: Link, newcomer: Engine) -> Link:
        """Make another link with the delays of ``link``: its client, suspended, asks a newcomer to resume the session.

        The newcomer's Resuming event assigns the new link to the end that has the session, with its events and its
        application; a refusal goes to the client. The ends retain the events and bytes so far.

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
        new.client.dispatch(events)
        return new

    def resume(self, newcomer: End, event: Resuming) -> None:
        """Assign a newcomer's link to the session that it asks for; refuse it if the session cannot be resumed."""
        engine = newcomer.engine
        try:
            events = event.session.resumption.resume(event.request, self.now)
        except Rejected as refusal:
            newcomer.dispatch(engine.refuse(refusal.message, self.now))
            return
        rest = cast("Resumption", engine.resumption).hand_over()
        newcomer.take_over(next(end for link in self._links for end in link.ends if end.engine is event.session))
        newcomer.dispatch(events)
        if rest:
            newcomer.arrive(rest)

    def run(self, until: float | None = None, *, steps: int = 1_000_000) -> None:
        """Run up to and including the time ``until``; without it, until no bytes are in flight.

        Engines' deadlines count only up to ``until``: without it time stands still when all bytes have arrived, so that
        keepalives do not continue forever.

        Raises:
            RuntimeError: the run takes more than ``steps`` steps.
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
    """One end of a link: an engine, its events and its output."""

    def __init__(self, link: Link, engine: Engine, react: React | None) -> None:
        self.link = link
        self.engine = engine
        self.events: list[Event] = []
        "Every event so far."
        self.sent = bytearray()
        "All bytes that the engine has written."
        self.reading = True
        "Set it to False to stop the reader: bytes that arrive wait, as in a socket's buffer."
        self.over = False
        "The engine was notified that the transport has ended."
        self.gone = False
        "The engine has another link now."
        self.react = react
        "The application."
        self._waiting: list[bytes] = []
        self._ended = False
        self._last = 0.0
        self._left: int | None = None
        self._breaks = False

    def dispatch(self, events: list[Event]) -> None:
        """Add events to ``events`` and call the application. Call it with the events that the engine's verbs return."""
        for event in events:
            self.events.append(event)
            if isinstance(event, Resuming):
                self.link.world.resume(self, event)
            elif self.react is not None:
                self.react(self, event)

    def take_over(self, older: End) -> None:
        """Take over the engine, the events and the application of an end whose link is over."""
        self.engine, self.events, self.sent, self.react = older.engine, older.events, older.sent, older.react
        older.gone = older.over = True
        older.drop()

    def lose_after(self, size: int | None, *, breaks: bool = False) -> None:
        """Lose bytes that arrive after ``size`` more; with ``breaks`` the link breaks there. None: lose nothing."""
        self._left, self._breaks = size, breaks

    def arrive(self, data: bytes) -> None:
        """Receive bytes."""
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

    def arrival(self, due: float) -> float:
        """Return the time when bytes arrive that are due at ``due``: not before those that this end sent earlier."""
        self._last = max(self._last, due)
        return self._last

    def drop(self) -> None:
        """Lose the bytes that have arrived and were not read."""
        self._waiting.clear()

    def end(self) -> None:
        """End the transport, after the bytes that have arrived."""
        self._ended = True
        self.read()

    def read(self) -> None:
        """Pass waiting bytes to the engine, if it wants to read."""
        while self.reading and self._waiting and self.engine.wants_read:
            self.dispatch(self.engine.receive(self._waiting.pop(0), self.link.world.now))
        if self._ended and not self._waiting and not self.over:
            self.over = True
            self.dispatch(self.engine.receive_eof(self.link.world.now))

    @property
    def unread(self) -> int:
        """Bytes that have arrived and were not read."""
        return sum(map(len, self._waiting))


class Link:
    """Two engines and the delays between them."""

    client: End
    server: End

    def __init__(self, world: World, latency: float, jitter: float, slice: int | None) -> None:
        self.world = world
        self.latency = latency
        self.jitter = jitter
        self.slice = slice
        self.dark = False
        "A black hole: nothing arrives, and neither end is notified (SL-05)."
        self._cut = False

    @property
    def ends(self) -> tuple[End, ...]:
        """The ends whose engines have no other link."""
        return tuple(end for end in (self.client, self.server) if not end.gone)

    def pump(self) -> None:
        """Send the output of the engines, and read bytes that have arrived."""
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
        """Break the link: bytes in flight are lost, and both ends are notified."""
        self._cut = True
        for end in self.ends:
            end.drop()
            end.end()

    def cut_after(self, size: int, end: End | None = None) -> None:
        """Break the link when ``end``, the client if None, has received ``size`` more bytes."""
        (end or self.client).lose_after(size, breaks=True)

    def tick(self) -> None:
        """Call ``tick`` of the engines whose deadline has come."""
        for end in self.ends:
            deadline = end.engine.deadline
            if deadline is not None and deadline <= self.world.now:
                end.dispatch(end.engine.tick(self.world.now))

    def deadlines(self) -> list[float]:
        """The deadlines of the engines."""
        found = (end.engine.deadline for end in self.ends)
        return [deadline for deadline in found if deadline is not None]

    def _send(self, end: End, other: End, data: bytes) -> None:
        for piece in self._pieces(data):
            self.world.at(self._when(end), lambda piece=piece: None if self._cut else other.arrive(piece))  # type: ignore[misc]

    def _when(self, end: End) -> float:
        """Return the time when bytes sent now arrive."""
        chance = self.world.random.random() * self.jitter if self.jitter else 0.0
        return end.arrival(self.world.now + self.latency + chance)

    def _pieces(self, data: bytes) -> list[bytes]:
        if self.slice is None:
            return [data]
        pieces, start = [], 0
        while start < len(data):
            size = self.slice or self.world.random.randint(1, 64)
            pieces.append(data[start : start + size])
            start += size
        return pieces
