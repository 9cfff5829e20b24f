"""Track the clients of one server: those that are connected, that are ending, and whose session is suspended."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable

from afflux.aio.gate import Gate
from afflux.aio.peer import Peer
from afflux.aio.server_connection import ServerConnection
from afflux.core.errors import ConnectionClosed, Rejected
from afflux.core.events import Resuming
from afflux.core.limits import Limits
from afflux.core.terms import Terms
from afflux.resume.recovery import plain
from afflux.retry.throttle import ResumeThrottle

__all__ = ["Clients", "OnSetup"]

OnSetup = Callable[[object, Peer], Awaitable[None]]
"Called with the setup of a client and the client; raises to refuse it."


class Clients:
    """The clients of one server."""

    def __init__(self, limits: Limits, terms: Terms, on_setup: OnSetup | None, overloaded: Callable[[], bool]) -> None:
        self._limits = limits
        self._sessions = terms.sessions
        self.on_setup = on_setup
        self.gate = Gate(limits, overloaded)
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
        self.connections[connection.driver.engine] = connection

    @property
    def peers(self) -> tuple[Peer, ...]:
        """The clients."""
        return tuple(connection.peer for connection in self.connections.values())

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
        self.connections.pop(connection.driver.engine, None)
        self.gate.handshakes.pop(connection, None)
        self._ending.pop(connection, None)
        self.gate.uncount(connection)

    def forget_closed(self) -> None:
        """Forget the clients whose connection is over, even if a handler ignores that it was canceled."""
        self.connections = {engine: one for engine, one in self.connections.items() if not one.driver.state.over}

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
