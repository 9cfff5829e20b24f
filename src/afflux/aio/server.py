"""Listen for clients, admit them and serve them: ``afflux.serve``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Any

from afflux.aio.clients import Clients, OnSetup, ServerConnection
from afflux.aio.driver import Driver
from afflux.aio.flow import DEFAULT_CREDIT
from afflux.aio.listing import listed
from afflux.aio.memory import Memory
from afflux.aio.peer import Peer
from afflux.aio.recognizing import Recognizing, Wires
from afflux.aio.verbs import Extension, verbs_of
from afflux.calls.arguments import AsyncOnly, check_arguments, check_type, wrong
from afflux.core.autocredit import Kept, check_kept
from afflux.core.entry import NO_STORE
from afflux.core.errors import ConnectionClosed, LimitExceeded, LocalProtocolError
from afflux.core.limits import Limits, reached
from afflux.core.terms import Terms
from afflux.resume.recovery import replays_of, restart
from afflux.transports import clock
from afflux.transports.address import Address, parse
from afflux.transports.base import Listener
from afflux.transports.pages import ask_for_large_pages
from afflux.transports.reading import Receiver
from afflux.transports.security import Tls, settled
from afflux.transports.ws_origins import ORIGIN, origins_of, refusal_of
from afflux.watching import watch_of

if TYPE_CHECKING:
    from afflux.core.engine import Engine
    from afflux.core.entry import ProtocolEntry
    from afflux.protocols.rsocket.lease import LeasePolicy
    from afflux.resume.record import Record
    from afflux.resume.store import Store

__all__ = ["OnSetup", "Server", "serve"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Extras:
    """The optional features of a server."""

    lease: LeasePolicy | None
    resume: bool
    extensions: Mapping[int | str, Extension]
    store: Path | None
    origins: frozenset[str] | None
    reuse_port: bool

    def terms(self, limits: Limits) -> Terms:
        """Return the terms of every connection."""
        sessions = None
        if self.resume:
            from afflux.protocols.family.sessions import Sessions

            sessions = Sessions(limits, asks=True)
        return Terms(lease=self.lease, sessions=sessions, extensions=tuple(self.extensions), place=ask_for_large_pages)


class Server(AsyncOnly):
    """A listening server. ``async with`` closes it, and with it every connection."""

    def __init__(
        self,
        address: Address,
        handler: object,
        limits: Limits,
        on_setup: OnSetup | None,
        credit: Kept,
        tls: Tls | None,
        extras: _Extras,
    ) -> None:
        self._address = address
        self._tls = settled(tls, address)
        self._transport = address.carrier.load()
        check_kept(credit)
        self._verbs = verbs_of(handler)
        self.limits = limits
        "The bounds of the listener and of each connection."
        self._credit = credit
        self._extras = extras
        self._terms = replace(
            extras.terms(limits),
            sizes=getattr(handler, "element_size", None),
            channels=getattr(handler, "session_steps", None),
            handled=tuple(self._verbs),
            **{"keepalive": limits.keepalive_s, "lifetime": limits.lifetime_s, **address.terms},
        )
        self._store: Store | None = None
        self._replays = replays_of(handler)
        self._listener: Listener | None = None
        self._clients = Clients(limits, self._terms, on_setup, _overloaded(limits))
        self.traffic = self._clients.traffic
        "Returns what the server has served since it was made: connections, requests, items, bytes and failures."
        self._wires = Wires(address, self._clients, self._terms, limits, self._begin)
        self._stopped: asyncio.Future[None] | None = None

    @property
    def uri(self) -> str:
        """The address that the server listens on, with the actual port."""
        return str(self._address if self._listener is None else self._listener.address)

    @property
    def connections(self) -> tuple[Peer, ...]:
        """The connected clients."""
        return self._clients.peers

    @property
    def refused(self) -> dict[str, int]:
        """The number of connections refused because of a limit, by its name, such as ``{"connections": 3}``. Those
        whose protocol was not recognized are under "unrecognized", and those of pages that may not connect under
        "origin"."""
        return dict(self._clients.gate.refused)

    @property
    def protocols(self) -> tuple[str, ...]:
        """The names of the protocols that are served: with an address ``auto+…`` those that it recognizes."""
        return self._wires.served

    async def start(self) -> Server:
        """Listen.

        Raises:
            AddressError: a certificate or a key cannot be used.
            BindFailed: the address cannot be bound.
            LocalProtocolError: the server is closed.
            StoreError: the file of sessions cannot be used.
        """
        if self._listener is not None and self._stopped is not None and self._stopped.done():
            raise LocalProtocolError("this server is closed: afflux.serve makes another one")
        if self._listener is None:
            self._clients.closing = False
            self._load()
            # Once before listening: the engine's modules are imported now and not while the first client waits.
            self._wires.check()
            self._stopped = asyncio.get_running_loop().create_future()
            try:
                self._listener = await self._transport.listen(self._address, self, self._welcome, self._tls)
            except BaseException:
                await self.close(keep=True)
                raise
            self._wires.bind(self._listener.address)
            for peer in self._clients.peers:
                peer.uri = self._wires.uri(peer.protocol)
        return self

    async def close(self, *, drain: bool | float = False, keep: bool = False) -> None:
        """Accept no more connections, close every connection, wait for all handlers.

        Args:
            drain: let the live streams end first: True waits without a bound, a number waits that many seconds.
            keep: with ``store``, let the sessions stay in the file: their clients reconnect to the next server.

        Raises:
            LocalProtocolError: the server belongs to another event loop.
        """
        check_type("drain=", drain, (bool, int, float), "True, False or a number of seconds")
        _check_loop(self._stopped)
        self._clients.closing = True
        if self._listener is not None:
            self._listener.close()
        self._wires.close()
        self._clients.gate.close(self._wires.address)
        if keep:
            self._clients.leave_sessions()
        while self._clients.connections:
            # A suspended client cannot reconnect, because this server does not listen any more.
            await asyncio.gather(*(peer.close(drain=not peer.suspended and drain) for peer in self._clients.peers))
            self._clients.forget_closed()
        if self._store is not None:
            self._store.close()
        if self._stopped is not None and not self._stopped.done():
            self._stopped.set_result(None)

    async def wait_closed(self) -> None:
        """Wait until the server is closed."""
        _check_loop(self._stopped)
        if self._stopped is not None:
            await asyncio.shield(self._stopped)

    def __await__(self) -> Generator[None, None, Server]:
        return self.start().__await__()

    async def __aenter__(self) -> Server:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        if self._stopped is None:
            return f'<Server {self.uri}: not started; await it, or use "async with">'
        if self._stopped.done():
            return f"<Server {self.uri}: closed>"
        count = len(self._clients.connections)
        return f"<Server {self.uri}, {count} connection{'' if count == 1 else 's'}>"

    # -- transports.base.Admission --------------------------------------------------------------------------

    def exhausted(self, error: OSError) -> float:
        """Log that no connection can be accepted now, and return the seconds to wait."""
        self._clients.gate.exhausted(error, clock.now(), self._wires.address)
        return self.limits.accept_backoff_s

    @property
    def flush(self) -> float:
        """Seconds that sending the last frames may take."""
        return self.limits.flush_s

    @property
    def reuse_port(self) -> bool:
        """Whether other processes may listen on the same port."""
        return self._extras.reuse_port

    def admit(self, host: str) -> str | None:
        """Admit one more connection from ``host`` and return None, or return the reason of its refusal."""
        if self._clients.closing:
            return "the server is closing"
        return self._clients.gate.admit(host, clock.now(), self._wires.address)

    def refuse_page(self, origins: list[str], hosts: list[str]) -> str | None:
        """Return None if a request with these Origin and Host headers may open a WebSocket; otherwise count and log the
        refusal, and return its sentence."""
        refused = refusal_of(self._extras.origins, origins, hosts)
        if refused is not None:
            self._clients.gate.turn_away(ORIGIN, refused, self._wires.address)
        return refused

    def last_words(self, reason: str) -> bytes:
        """Return the bytes that report the reason to a refused connection."""
        return self._transport.refusal(self._address, reason)

    def delay(self) -> float:
        """Return the seconds until the next accept."""
        return self._clients.gate.delay(clock.now())

    def attach(self, host: str, uri: str) -> Receiver:
        """Serve a connection that did not come through the listener.

        The caller connects the returned object to a transport, as asyncio does, and reports its end. The peer shows
        ``uri`` as its address.

        Raises:
            LimitExceeded: the connection is refused; the text names the limit.
        """
        if (reason := self.admit(host)) is not None:
            raise LimitExceeded(reason)
        return self._welcome(host, uri)

    # -- inside ---------------------------------------------------------------------------------------------

    def _welcome(self, host: str, uri: str | None = None) -> Receiver:
        """Create the protocol object of a connection that was admitted."""
        now, gate = clock.now(), self._clients.gate
        admitted: ServerConnection | Recognizing
        receiver: Receiver
        if self._wires.recognizes:
            admitted = receiver = Recognizing(self._wires, host, now)
        else:
            admitted = self._begin(self._address.entry, host, now, uri)
            receiver = admitted.driver.pump
        if (oldest := gate.begin(admitted, now)) is not None:
            oldest.crowd_out(ConnectionClosed(reached(self.limits, "half_handshakes"), rule="half_handshakes"))
        if self._clients.closing:  # it was accepted just before
            admitted.crowd_out(ConnectionClosed("the server is closing"))
        return receiver

    def _begin(self, entry: ProtocolEntry, host: str, now: float, uri: str | None = None) -> ServerConnection:
        """Create the connection of a client that was admitted at ``now``."""
        engine = self._wires.make(entry, now)
        connection = self._connection(entry, engine, uri or self._wires.uri(entry.name))
        if self._store is not None:
            from afflux.resume.record import Record

            resumable: Any = engine
            record = Record(self._store, resumable, kind="server", asks=False, replays=self._replays)
            connection.driver.keep(record)
        connection.peer.host = host
        return connection

    def _connection(self, entry: ProtocolEntry, engine: Engine, uri: str) -> ServerConnection:
        """Create the connection of an engine."""
        connection = ServerConnection(self._verbs, credit=self._credit, extensions=self._extras.extensions)
        expects = None if self._wires.recognizes else self._address
        connection.slots.driver = driver = Driver(
            engine, connection, expects=expects, watch=watch_of(entry, uri, client=False)
        )
        driver.pump.answers = True
        connection.peer = Peer(driver, connection, entry, uri)
        self._clients.add(connection)
        return connection

    # -- sessions that a former process has left ----------------------------------------------------------------

    def _load(self) -> None:
        """Restore the sessions that a former process has left.

        Raises:
            StoreError: the file cannot be used.
        """
        if self._extras.store is None:
            return
        from afflux.resume.errors import StoreError
        from afflux.resume.record import Record
        from afflux.resume.store import Store

        self._store = store = Store(self._extras.store)
        try:
            for saved in store.sessions():
                if saved.kind != "server":
                    raise StoreError(store.path, f"it stores a client's session with {saved.address}; choose another")
                if time() - saved.seen > self.limits.resume_s:
                    store.remove(saved.key)
                    continue
                terms, replays = self._terms, self._replays
                record = Record.load(store, saved, limits=self.limits, terms=terms, asks=False, replays=replays)
                self._restore(record)
        except BaseException:
            store.close()
            raise
        self._clients.crowd_out()

    def _restore(self, record: Record) -> None:
        """Restore a session of a former process; it waits for its client."""
        engine: Any = record.engine
        connection = self._connection(self._address.entry, engine, self.uri)
        driver = connection.driver
        driver.keep(record)
        driver.state.away = True
        connection.peer.setup, connection.counted = engine.setup, False
        connection.certificate, connection.former = record.about, True
        connection.again = restart(record, "server")
        driver.output.flush_soon()


def _overloaded(limits: Limits) -> Callable[[], bool]:
    """Return a function that reports whether the connections of this process buffer more than their limit."""
    return lambda: Memory.of(asyncio.get_running_loop()).exceeds(limits.process_bytes)


def serve(
    uri: str | Address,
    handler: object,
    *,
    limits: Limits | None = None,
    on_setup: OnSetup | None = None,
    credit: Kept = DEFAULT_CREDIT,
    tls: Tls | None = None,
    lease: LeasePolicy | None = None,
    resume: bool = False,
    extensions: Mapping[int | str, Extension] | None = None,
    store: str | Path | None = None,
    origins: Iterable[str] | None = None,
    reuse_port: bool = False,
    list_routes: bool = False,
) -> Server:
    """Serve ``handler`` at an address: ``async with afflux.serve(uri, handler) as server``.

    The first use of ``afflux.serve`` in a running loop imports it in a thread, so that the loop does not stop; errors
    of its arguments are then raised when it is entered. ``from afflux import serve`` outside of a loop imports it.

    Args:
        uri: the address to listen on; port 0 takes a free one, see ``server.uri``. With the protocol ``auto``, as in
            "auto+tcp://…", each client's protocol is recognized from its first bytes; see ``server.protocols``.
        handler: an object with some of the methods request, fire, stream, channel and push, or a Router.
        limits: the bounds of the listener and of each connection; ``Limits.server()`` if None.
        on_setup: called with the setup of each client and the peer, and decides about the client. An ``afflux.Error``
            that it raises refuses the client with that text (and code, if it has one); requests are served only after
            it returns.
        credit: items that a channel's handler lets the client send ahead, or "auto".
        lease: the leases granted to each client that asks for leases: FixedLease, RateLease, or a policy of your own.
            If None, such a client is refused.
        resume: retain the session of a client that asks for it when its transport is lost, for ``limits.resume_s`` and
            within the other limits of resumption.
        extensions: functions to call with ``(stream, body)`` of an EXT frame, by extended type or by name.
        store: a file to store the sessions in (SQLite, mode 0600), with ``resume``: when this process dies, the next
            one that serves with the same file resumes them. A handler of request or stream whose function has a true
            attribute ``replays`` is called again with the same request, and the items that were sent are skipped; the
            streams of other handlers end with ``Canceled``. ``on_setup`` decides again about each client that
            reconnects.
        origins: for ws:// and wss://, the origins whose pages may connect, such as ["https://app.example"]; a page of
            another origin gets 403. None admits pages whose host is the Host of the request, with any scheme and port;
            ["*"] admits every page, and [] none. A client that sends no Origin is not a browser, and is not checked.
        reuse_port: let other processes with this option listen on the same port (SO_REUSEPORT); the system distributes
            new connections. For tcp, tls, ws and wss. Only the process that has a session can resume it.
        list_routes: answer requests with the route ``afflux.routes`` with the routes of the handler: a Router, or an
            object with an attribute ``routes``, (verb, route) pairs. Any client that may connect may ask.
        tls: the certificate to show, and whether clients have to show one, for tls:// and wss://; options of the
            address (cert, key, client_ca) take precedence.

    Raises:
        AddressError: immediately, for an invalid address; when entered, for a certificate that cannot be used.
        BindFailed: when entered: the address cannot be bound.
        TypeError: immediately: an argument is of a wrong type, or the handler has no verbs.
        Unsupported: the protocol lacks a requested feature, such as ``store``; ``reuse_port`` where the system has no
            SO_REUSEPORT.
        afflux.resume.StoreError: when entered: the file cannot be used.
    """
    check_type("resume=", resume, bool, "True or False at a server")
    check_arguments(locals())
    if isinstance(lease, bool):
        raise wrong("lease=", lease, "a policy such as afflux.FixedLease(100, ttl=1)")
    if handler is None:
        raise TypeError(
            "a server needs a handler: an object with methods such as request or stream, or an afflux.Router"
        )
    if store is not None and not resume:
        raise ValueError("store= stores sessions that can be resumed: it needs resume=True")
    address = parse(uri, serving=True)
    for wanted, feature in ((lease, "lease"), (resume, "resume"), (extensions, "extensions")):
        if wanted:
            address.entry.require(feature)
    if store is not None:
        address.entry.require("store", NO_STORE)
    if origins is not None and address.transport not in ("ws", "wss", "mem"):
        raise ValueError(f"origins= is for ws:// and wss://, not for {address.transport}://")
    if reuse_port:
        _check_sharing(address)
    extras = _Extras(
        lease=lease,
        resume=resume,
        extensions=extensions or {},
        store=None if store is None else Path(store),
        origins=origins_of(origins),
        reuse_port=reuse_port,
    )
    if list_routes:
        handler = listed(handler)
    return Server(address, handler, limits or Limits.server(), on_setup, credit, tls, extras)


def _check_sharing(address: Address) -> None:
    """Raise unless several processes can listen at the address.

    Raises:
        ValueError: its transport has no ports.
        Unsupported: the system does not support it.
    """
    from afflux.transports.tcp import require_sharing

    if address.carrier.authority != "host":
        raise ValueError(f"reuse_port= is for tcp://, tls://, ws:// and wss://, not for {address.transport}://")
    require_sharing()


def _check_loop(stopped: asyncio.Future[None] | None) -> None:
    """Raise an error if a server that has not ``stopped`` runs in another event loop."""
    if stopped is not None and not stopped.done() and stopped.get_loop() is not asyncio.get_running_loop():
        raise LocalProtocolError(
            "this server belongs to another event loop: use it in the loop that started it, such as in one call of "
            "asyncio.run"
        )
