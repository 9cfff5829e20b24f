"""Serve the clients of one server: decide about each, and track those that are connected, ending or suspended."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from inspect import isawaitable

from afflux.aio.gate import Gate
from afflux.aio.peer import Peer
from afflux.aio.serving import Serving
from afflux.aio.traffic import Traffic
from afflux.core.errors import ConnectionClosed, Error, Rejected
from afflux.core.events import Established, Opened, Resuming, Suspended
from afflux.core.limits import REASONS, Limits
from afflux.core.terms import Terms
from afflux.resume.recovery import plain
from afflux.retry.throttle import ResumeThrottle

__all__ = ["Clients", "OnSetup", "ServerConnection"]

OnSetup = Callable[[object, Peer], Awaitable[None]]
"Called with the setup of a client and the client; raises to refuse it."


class Clients:
    """The clients of one server."""

    def __init__(self, limits: Limits, terms: Terms, on_setup: OnSetup | None, overloaded: Callable[[], bool]) -> None:
        self._limits = limits
        self._sessions = terms.sessions
        self.on_setup = on_setup
        self.gate = Gate(limits, overloaded)
        self._past = Traffic()
        "Of the connections that have ended."
        self.throttle = ResumeThrottle(limits)
        self.closing = False
        "The server accepts no more connections."
        self.connections: dict[object, ServerConnection] = {}
        "The connection of each engine: the transport of a resumed session goes to it."
        self._ending: OrderedDict[ServerConnection, None] = OrderedDict()
        "Clients whose transport is gone and whose handlers still run."

    def add(self, connection: ServerConnection) -> None:
        """A client has connected, or its session was restored."""
        connection.clients = self
        self._past.connections += 1
        self.connections[connection.driver.engine] = connection

    @property
    def peers(self) -> tuple[Peer, ...]:
        """The clients."""
        return tuple(connection.peer for connection in self.connections.values())

    def traffic(self) -> Traffic:
        """Return what all clients have sent and received."""
        sum = replace(self._past)
        for connection in self.connections.values():
            sum.add(connection)
        return sum

    def established(self, connection: ServerConnection) -> None:
        """A client has sent its setup."""
        self.gate.handshakes.pop(connection, None)
        self.crowd_out()

    def parted(self, connection: ServerConnection) -> None:
        """The transport of a client is gone while handlers may still run. Its address may connect again. Handlers of at
        most ``connections`` such clients continue; beyond that, those of the client that parted first are canceled."""
        self.gate.handshakes.pop(connection, None)
        self.gate.uncount(connection)
        self._ending[connection] = None
        if len(self._ending) > self._limits.connections:
            first, _ = self._ending.popitem(last=False)
            first.stop()

    def left(self, connection: ServerConnection) -> None:
        """All tasks of a client have ended."""
        if self.connections.pop(connection.driver.engine, None) is not None:
            self._past.add(connection)
        self.gate.handshakes.pop(connection, None)
        self._ending.pop(connection, None)
        self.gate.uncount(connection)

    def forget_closed(self) -> None:
        """Forget the clients whose connection is over, even if a handler ignores that it was canceled."""
        for connection in [one for one in self.connections.values() if one.driver.state.over]:
            self._past.add(connection)
            del self.connections[connection.driver.engine]

    # -- sessions that outlive their transport ----------------------------------------------------------------

    def suspended(self, connection: ServerConnection) -> None:
        """A session has lost its transport."""
        driver = connection.driver
        self.gate.uncount(connection)
        if self.closing:  # the client cannot reconnect: the server does not listen any more
            driver.state.loop.call_soon(driver.close)
        if self._sessions is not None:
            self._sessions.away(driver.engine)
            self.crowd_out()

    def crowd_out(self) -> None:
        """End the longest-suspended sessions while there are too many, or they use too much memory."""
        for engine in () if self._sessions is None else self._sessions.crowd_out():
            driver = self.connections[engine].driver
            driver.abort(ConnectionClosed("another session took its place", rule="resume_sessions"))

    def bring_back(self, newcomer: ServerConnection, event: Resuming) -> None:
        """Give the transport of a new connection to the session that it asks for. A refusal leaves the session
        unchanged."""
        owner = None if event.session is None else self.connections.get(event.session)
        # RE-10: a token is valid only with the certificate that the session began with
        if owner is None or plain(owner.certificate) != plain(newcomer.peer.certificate):
            self.throttle.add(newcomer.peer.host)
            newcomer.refuse("there is no such session")
            return
        driver = newcomer.driver
        if owner.former and self.on_setup is not None:
            newcomer.deciding = driver.tasks.spawn(owner.decide_again(newcomer, event), newcomer.slots.context.copy())
            return
        try:
            events = event.session.resumption.resume(event.request, driver.state.now())
        except Rejected as error:
            newcomer.refuse(error.message)
            return
        transport, rest = driver.hand_over()
        owner.driver.pump.part()  # RE-14: the session sends nothing more on its older transport
        owner.driver.dispatch(events)
        if transport is not None:
            self.gate.uncount(owner)
            owner.peer.host = newcomer.peer.host
            owner.counted = True
            self.gate.count(owner.peer.host)
            owner.driver.pump.adopt(transport, rest)

    def leave_sessions(self) -> None:
        """Let the sessions stay in their file; their clients cannot reconnect for now."""
        for driver in [connection.driver for connection in self.connections.values()]:
            if (saving := driver.saving) is not None and saving.durable() and saving.record.kept:
                driver.leave()


class ServerConnection(Serving):
    """The connection of one client, and its handlers."""

    clients: Clients
    peer: Peer
    counted: bool = True
    "The gate counts the client's transport."
    deciding: asyncio.Task[None] | None = None
    certificate: object = None
    "The client's certificate when its session began."
    former: bool = False
    "The session began with a former process: ``on_setup`` has not decided about this client yet."
    again: Sequence[tuple[Opened, int]] = ()
    "Requests of a former process whose handlers begin again when the client has reconnected."

    @property
    def host(self) -> str:
        """The host that the client connected from."""
        return self.peer.host

    def crowd_out(self, error: Error) -> None:
        """End the connection, because another one takes its place."""
        self.driver.abort(error)

    def established(self, event: Established) -> None:
        """The client has sent its setup."""
        self.peer.setup = event.setup
        self.certificate = self.peer.certificate
        if self.driver.saving is not None:
            self.driver.saving.record.about = plain(self.certificate)
        self.clients.established(self)
        if self.clients.on_setup is not None:
            self.deciding = self.driver.tasks.spawn(self._decide(event.setup), self.slots.context.copy())

    def suspended(self, event: Suspended) -> None:
        """The client's transport is gone; its session is suspended."""
        self.clients.suspended(self)

    def resuming(self, event: Resuming) -> None:
        """A new connection asks to resume a session: assign its transport to that, if the checks pass."""
        clients = self.clients
        clients.gate.handshakes.pop(self, None)
        if clients.throttle.wait(self.peer.host):
            self.deciding = self.driver.tasks.spawn(self._wait_and_resume(event))
        else:
            clients.bring_back(self, event)

    async def _wait_and_resume(self, event: Resuming) -> None:
        if await self.clients.throttle.turn(self.peer.host):
            self.clients.bring_back(self, event)
        else:
            self.refuse(REASONS["auth_failures"])

    def resumed(self) -> None:
        """The client has reconnected."""
        if (watch := self.driver.state.watch) is not None:
            watch.resumed()
        again, self.again = self.again, ()
        for event, sent in again:
            self.begin_again(event, sent)

    def ended(self) -> None:
        """The connection is over."""
        if self.deciding is not None:
            self.driver.tasks.cancel(self.deciding)
        super().ended()

    def parted(self) -> None:
        """The client's transport is gone: it no longer counts as a connection, even while its handlers run."""
        self.clients.parted(self)

    def left(self) -> None:
        """All tasks of the client have ended."""
        super().left()
        self.clients.left(self)
        del self.peer  # it refers to this object

    def refuse(self, reason: str, code: int | None = None) -> None:
        """Refuse the client."""
        state = self.driver.state
        state.run(state.engine.refuse, reason, state.now(), code)

    async def decide_again(self, newcomer: ServerConnection, event: Resuming) -> None:
        """Let ``on_setup`` decide about a client of a former process that has reconnected."""
        decide, state = self.clients.on_setup, newcomer.driver.state
        newcomer.peer.setup = self.peer.setup
        try:
            if decide is not None:
                await decide(self.peer.setup, newcomer.peer)
        except Exception as error:
            if not isinstance(error, Error):
                state.log_failure(f"afflux: on_setup raised: peer {state.far}", error)
            newcomer.refuse("there is no such session")
        else:
            self.former = False
            self.peer.principal = newcomer.peer.principal
            if not state.over:
                self.clients.bring_back(newcomer, event)

    async def _decide(self, setup: object) -> None:
        decide, state = self.clients.on_setup, self.driver.state
        try:
            if decide is not None:
                deciding = decide(setup, self.peer)
                if not isawaitable(deciding):
                    raise TypeError('on_setup is an async function, and this one is not: write "async def"')
                await deciding
        except Error as error:
            self.refuse(error.message or "refused", error.code)
        except Exception as error:
            state.log_failure(f"afflux: on_setup raised: peer {state.far}", error)
            self.refuse("refused")
        else:
            state.run(state.engine.accept, state.now())
