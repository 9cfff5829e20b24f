"""The peer of a connection, as the application uses it: the five verbs and the state of the connection."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

from afflux.aio.driver import Driver
from afflux.aio.flow import DEFAULT_CREDIT, ItemStream, elsewhere, may_run_in
from afflux.aio.keeper import Keeper
from afflux.aio.opening import Channel, cancel_stream, new_inbound, new_items
from afflux.aio.opens import Opens
from afflux.aio.sender import Source
from afflux.aio.serving import Serving
from afflux.aio.session import Session
from afflux.calls import Cursor, Metadata, byte_sessions_of, payload_for, pushed
from afflux.calls.arguments import AsyncOnly, check_type
from afflux.core.autocredit import Kept
from afflux.core.credit import StreamStatus
from afflux.core.entry import ProtocolEntry
from afflux.core.errors import Error, LocalProtocolError, Unsupported
from afflux.core.limits import Limits
from afflux.core.payload import Payload, PayloadLike, check_items, payload_of

if TYPE_CHECKING:
    from afflux.aio.unfinished import Unfinished
    from afflux.protocols.rsocket.lease import Lease
    from afflux.protocols.rsocket_draft.entries import Entry
    from afflux.resume.store import Store
    from afflux.sessions.chan import SessionType
    from afflux.sessions.machine import Machine

__all__ = ["Peer", "current_peer", "running_peer"]

_current: ContextVar[Peer] = ContextVar("afflux_peer")

running_peer: Final = _current.get
"As ``current_peer``, without a step of Python; ``running_peer(None)`` is None outside of a handler."


def current_peer() -> Peer:
    """Return the peer whose request the running handler answers: a handler may send requests to it.

    Raises:
        LookupError: called outside of a handler.
    """
    try:
        return _current.get()
    except LookupError:
        raise LookupError("no handler runs here: current_peer() is the peer whose request a handler answers") from None


class Peer(AsyncOnly, Opens):
    """One connection, seen from this side; ``async with`` closes it. ``connect`` and ``serve`` create it.

    ``metadata=`` of a verb is bytes, which are sent unchanged, or entries of composite metadata: one, such as
    ``afflux.Bearer("…")``, or a list, in which (MIME type, bytes) are entries too. With ``route=`` or ``cursor=`` it is
    always composite: the route first, then the cursor, then the entries; bytes become an entry of type octet-stream.
    Where ``metadata_mime`` of ``connect`` is another type, one entry of that type is sent without a header.
    """

    def __init__(self, driver: Driver, serving: Serving, protocol: ProtocolEntry, uri: str) -> None:
        self._driver = driver
        self._serving = serving
        self._protocol = protocol
        self.protocol = protocol.name
        "The name of the protocol; at a server of an address ``auto+…`` the one that was recognized."
        self.uri = uri
        "The address that was connected to; at a server the address that it listens on."
        self.setup: Any = None
        "At a server, the SETUP frame of the client; None at a client."
        self.host = ""
        "At a server, the host that the client connected from."
        self.principal: Any = None
        "At a server with ``afflux.auth.at_setup``, the client's identity as the check returned it; else None."
        self.keeper: Keeper | None = None
        "Restores a client's connection; None without ``resume`` and ``reconnect``."
        self.unfinished: tuple[Unfinished, ...] = ()
        "At a client with ``store``, the streams that a former process opened and did not finish; by stream id."
        self.store: Store | None = None
        "At a client, the file that the session is stored in; it is closed with the connection."
        serving.slots.context.run(_current.set, self)

    def renewed(self, driver: Driver, serving: Serving) -> None:
        """The keeper has opened a new connection."""
        self._driver = driver
        self._serving = serving
        serving.slots.context.run(_current.set, self)

    # -- the five verbs -------------------------------------------------------------------------------------

    async def request(
        self,
        data: PayloadLike = b"",
        *,
        metadata: Metadata = None,
        route: str | None = None,
        cursor: Cursor | None = None,
    ) -> Payload:
        """Request one answer. An answer without an item is returned as an empty payload.

        Up to ``limits.streams`` requests are in flight concurrently; further ones wait in order.
        Cancelling the wait cancels the request at the peer.

        Raises:
            Rejected, Canceled, Invalid, ApplicationError: the peer's error.
            ConnectionClosed: the connection ended first.
            LocalProtocolError: the request cannot be sent, or the connection belongs to another event loop.
        """
        payload = payload_for(self._driver.engine, data, metadata, route, cursor)
        size = len(payload.data) if payload.metadata is None else len(payload.data) + len(payload.metadata)
        calls = self._driver.calls
        if calls.batch_budget <= 0 or size > calls.loop_bytes:
            self._protocol.check("request")
            calls = (await self._driver.current()).calls
            await calls.ready(size)
            if not calls.may_batch():
                return await calls.ask_alone(payload)
        try:
            call = calls.ask(payload, size)
        except RuntimeError as error:  # such as of a loop that is closed
            raise _elsewhere(error, self._driver) from None
        try:
            answer: Payload = await call[1]
            return answer
        except RuntimeError as error:  # asyncio does not await the future of another loop
            call[1].cancel()
            raise _elsewhere(error, self._driver) from None
        except asyncio.CancelledError:
            calls.withdraw(call)
            raise
        finally:
            del call  # its error refers to this frame: the payload is to be freed without a garbage collector

    async def fire(
        self,
        data: PayloadLike = b"",
        *,
        metadata: Metadata = None,
        route: str | None = None,
        cursor: Cursor | None = None,
    ) -> None:
        """Send without an answer. Returns when the request is queued, which waits for room in the transport."""
        payload = payload_for(self._driver.engine, data, metadata, route, cursor)
        self._protocol.check("fire")
        driver = await self._driver.writable("fire", len(payload))
        driver.open("fire", payload)
        driver.output.flush_soon()

    async def push(self, metadata: bytes) -> None:
        """Send metadata about the connection. Returns when it is queued."""
        self._protocol.check("push")
        driver = await self._driver.writable("push")
        driver.engine.push(pushed(metadata))
        driver.output.flush_soon()

    def stream(
        self,
        data: PayloadLike = b"",
        *,
        metadata: Metadata = None,
        route: str | None = None,
        cursor: Cursor | None = None,
        credit: Kept = DEFAULT_CREDIT,
    ) -> ItemStream:
        """Request a stream of items; nothing is sent before the first use.

        Args:
            credit: how many items may be in flight or unconsumed here; 0 means that ``request(n)`` grants by hand,
                "auto" that the window follows the round trip and the consumer. Fewer are granted when items are
                large: unconsumed items have to fit a quarter of ``connection_bytes``.
        """
        payload = payload_for(self._driver.engine, data, metadata, route, cursor)
        return new_items(self._driver, self._protocol, "stream", payload, credit)

    def subscribe(
        self,
        publisher: PayloadLike,
        *,
        metadata: Metadata = None,
        route: str | None = None,
        cursor: Cursor | None = None,
        credit: Kept = DEFAULT_CREDIT,
    ) -> ItemStream:
        """Subscribe to a publisher of the peer; nothing is sent before the first use. In ``rsio`` that is a stream by
        the publisher's name, without metadata; in ``reactivesocket`` a stream that never completes.

        Raises Unsupported where the protocol has no subscriptions.
        """
        self._protocol.require("subscribe")
        payload = payload_for(self._driver.engine, publisher, metadata, route, cursor)
        return new_items(self._driver, self._protocol, self._protocol.subscribes, payload, credit)

    subscription = subscribe  # ReactiveSocket's name for it

    async def session(self, data: bytes | str = b"", *, finish: bool = False, acknowledge: bool = True) -> Session:
        """Open a session of bytes, in a protocol that has them (``jmux``): ``async with await peer.session() as s``.

        Args:
            data: the first bytes.
            finish: whether they are also the last.
            acknowledge: acknowledge the response when it was read to its end, if the server asks for that;
                False: call ``Session.acknowledge`` instead.

        Raises:
            Unsupported: the protocol has no sessions.
            LimitExceeded: as many are in flight as the limits allow; nothing was sent.
            ConnectionClosed: there is no connection; nothing was sent.
        """
        self._protocol.require("session")
        first = payload_of(data).data
        driver = await self._driver.writable("session", len(first))
        engine = byte_sessions_of(driver.engine)
        session = Session(driver, engine.open_session(auto_ack=acknowledge, now=driver.state.now()))
        driver.output.flush_soon()
        await session.begin(first, finish)
        return session

    def channel(
        self,
        source: Source,
        *,
        metadata: Metadata = None,
        route: str | None = None,
        cursor: Cursor | None = None,
        credit: Kept = DEFAULT_CREDIT,
        session: SessionType[Any, Any] | Machine | None = None,
    ) -> Channel:
        """Send the items of ``source`` and receive items, at the same time. Use it with ``async with``.

        The first item of ``source`` is sent with the request; it alone gets ``metadata``, ``route`` and ``cursor``. A
        source without items ends the channel immediately, and nothing is sent. An exception of the source is raised to
        the consumer of the items, and the peer receives an error.

        Args:
            session: a session type that the items of both sides have to follow, each a value in MessagePack or a
                choice; ``open`` converts them. An illegal item of ``source`` raises SessionTypeError before it is sent,
                one of the peer SessionViolation.

        Raises:
            TypeError: ``source`` has no items: it is text, bytes or one payload.
            Unsupported: ``session`` in a protocol that has session types itself.
        """
        check_items(source)
        inbound = new_inbound(self._driver, self._protocol, "channel", credit)
        first = (metadata, route, cursor)
        if session is None:
            return Channel(inbound, source, first, lambda: cancel_stream(inbound))
        from afflux.aio.typed import MonitoredChannel
        from afflux.sessions.chan import type_of

        if self._driver.engine.typed_sessions is not None:
            raise Unsupported(f"{self._protocol.name} checks session types itself: use open")
        return MonitoredChannel(inbound, source, first, lambda: cancel_stream(inbound), type_of(session).client)

    # -- the connection -------------------------------------------------------------------------------------

    @property
    def certificate(self) -> dict[str, Any] | None:
        """The peer's verified certificate, in the form of ``ssl.SSLSocket.getpeercert``; None where it showed none, or
        while there is no connection."""
        transport = self._driver.state.transport
        return None if transport is None else transport.get_extra_info("peercert")

    @property
    def limits(self) -> Limits:
        """The bounds of this connection."""
        return self._driver.engine.limits

    @property
    def closed(self) -> bool:
        """Whether the connection is over. With ``reconnect``, it is closed until the next connection is open."""
        return self._driver.state.over

    @property
    def suspended(self) -> bool:
        """Whether the session waits for a transport; the verbs work, and queued requests are sent once there is one."""
        return self._driver.state.away

    def cut(self) -> None:
        """Abort the transport without notifying the peer, as a lost network would: for tests of resumption."""
        if (transport := self._driver.state.transport) is not None:
            transport.abort()

    def streams(self) -> list[StreamStatus]:
        """List the live streams of both sides: state, credit, and the reason why each is stopped. Requests that wait
        for a lease have the number 0."""
        return self._serving.statuses()

    @property
    def lease(self) -> Lease | None:
        """The remaining part of the lease that this side sends requests under; None without leases."""
        leases = self._driver.engine.leases
        return None if leases is None else _lease(*leases.lease(self._driver.state.now()))

    @property
    def granted(self) -> Lease | None:
        """The remaining part of the lease that this side has granted; None without leases."""
        leases = self._driver.engine.leases
        return None if leases is None else _lease(*leases.granted(self._driver.state.now()))

    def grant(self, requests: int, ttl: float, *, metadata: bytes = b"") -> None:
        """Grant a lease by hand: ``requests`` within ``ttl`` seconds. It replaces the previous one.

        Raises:
            ValueError: a number is too large for a lease.
            LocalProtocolError: leases were not agreed on, or the connection belongs to another event loop.
            ConnectionClosed: there is no connection.
        """
        from afflux.protocols.rsocket.lease import Lease

        self._protocol.require("lease")
        lease, leases = Lease(requests, ttl), self._driver.engine.leases
        if leases is None:
            raise LocalProtocolError("leases were not agreed on in SETUP", stream=0, rule="RSocket R-13")
        if not may_run_in(self._driver.state.loop):
            raise elsewhere("connection", "it")
        leases.grant(lease, self._driver.state.now(), metadata)
        self._driver.output.flush_soon()

    async def extend(self, type: int | Entry, body: bytes = b"", *, stream: int = 0, ignore: bool = True) -> None:
        """Send a frame of an extension (EXT). A peer without the extension skips it, or closes unless ``ignore``.

        ``type`` is the extended type; in ``rsocket-draft`` it may be an extension entry instead, which has its own
        payload and its own flag for "ignore".

        Raises:
            LocalProtocolError, LimitExceeded: the frame cannot be written.
            ConnectionClosed: there is no connection.
        """
        self._protocol.require("extensions")
        driver = await self._driver.writable("extend")
        if (extensions := driver.engine.extensions) is None:
            raise Unsupported("this protocol has no extensions")
        extensions.extend(type, body, stream=stream, ignore=ignore)
        driver.output.flush_soon()

    @property
    def error(self) -> Error | None:
        """Why the connection ended; None for an orderly end."""
        return self._driver.state.error

    async def wait_closed(self) -> None:
        """Wait until the connection is over, and all its tasks have ended.

        Raises:
            LocalProtocolError: the connection belongs to another event loop.
        """
        if not self.closed and not may_run_in(self._driver.state.loop):
            raise elsewhere("connection", "it")
        await asyncio.shield(self._driver.closed)
        await asyncio.shield(self._driver.finished)

    async def close(self, *, drain: bool | float = False, reason: str = "") -> None:
        """Close, and wait until the connection is over.

        Args:
            drain: let the live streams end first, and accept no new ones: True waits without a bound, a number waits
                at most that many seconds.
            reason: a text for the peer.

        Raises:
            LocalProtocolError: the connection belongs to another event loop.
        """
        check_type("drain=", drain, (bool, int, float), "True, False or a number of seconds")
        if asyncio.get_running_loop() is not self._driver.state.loop:
            if self.closed and self.keeper is None:
                return
            raise elsewhere("connection", "it")
        keeper = self.keeper
        if keeper is not None:
            await (keeper.settle() if drain else keeper.stop())
        for left in self.unfinished:
            await left.cancel()
        driver = self._driver
        driver.close(drain=bool(drain), reason=reason)
        if drain:
            until = None if drain is True else driver.state.loop.time() + drain
            with suppress(TimeoutError):
                async with asyncio.timeout_at(until):
                    await asyncio.shield(driver.closed)
                    await self._serving.fired()
            if keeper is not None:
                await keeper.stop()
            driver.close(reason=reason)
        try:
            await asyncio.shield(driver.closed)
            self._serving.stop()
            if not await _within(driver.finished, driver.engine.limits.flush_s + driver.engine.limits.stop_s):
                driver.state.log_failure("afflux: a handler ignores that it was canceled")
        finally:
            driver.abort()
            if self.store is not None:
                self.store.close()

    async def __aenter__(self) -> Peer:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<Peer {self.uri}{' closed' if self.closed else ''}>"


def _elsewhere(error: RuntimeError, driver: Driver) -> Exception:
    """Return the error of a request that was made in another event loop than the connection's, else ``error``."""
    if asyncio.get_running_loop() is driver.state.loop:
        return error
    return elsewhere("connection", "it")


async def _within(future: asyncio.Future[None], seconds: float | None) -> bool:
    """Wait for the future; return whether it is done within the time."""
    with suppress(TimeoutError):
        await asyncio.wait_for(asyncio.shield(future), seconds)
        return True
    return False


def _lease(requests: int, seconds: float) -> Lease:
    from afflux.protocols.rsocket.lease import Lease

    return Lease(requests, seconds)
