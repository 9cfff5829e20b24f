"""Offer the five verbs of one connection to a blocking program."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from time import monotonic
from typing import TYPE_CHECKING, Any, NoReturn

from afflux.calls import Cursor, Metadata, byte_sessions_of, payload_for, pushed
from afflux.calls.arguments import SyncOnly, blocks, check_type
from afflux.core.autocredit import Kept, check_kept
from afflux.core.credit import StreamStatus
from afflux.core.entry import ProtocolEntry
from afflux.core.errors import Canceled, Error, Unsupported
from afflux.core.events import Verb
from afflux.core.limits import Limits
from afflux.core.payload import Payload, PayloadLike, check_items, payload_of, size_of
from afflux.sync.driver import Driver
from afflux.sync.flow import ItemStream, Opener, payloads_of
from afflux.sync.inbox import Inbox
from afflux.sync.lateness import late
from afflux.sync.opens import DEFAULT_CREDIT, Opens
from afflux.sync.session import Session
from afflux.sync.sources import Outbox

if TYPE_CHECKING:
    from afflux.protocols.rsocket.lease import Lease
    from afflux.protocols.rsocket_draft.entries import Entry
    from afflux.sessions.chan import SessionType
    from afflux.sessions.machine import Machine

__all__ = ["DEFAULT_CREDIT", "Peer"]


class Peer(SyncOnly, Opens):
    """One connection of one process and one thread. ``afflux.sync.connect`` creates it; ``with`` closes it.

    ``timeout`` is in seconds everywhere. None waits until the connection ends: it ends when the peer is silent for the
    connection's ``lifetime``. A timeout raises ``TimeoutError`` and cancels the request at the peer.

    ``metadata=`` of a verb is bytes, which are sent unchanged, or entries of composite metadata: one, such as
    ``afflux.Bearer("…")``, or a list, in which (MIME type, bytes) are entries too. With ``route=`` or ``cursor=`` it is
    always composite: the route first, then the cursor, then the entries; bytes become an entry of type octet-stream.
    Where ``metadata_mime`` of ``connect`` is another type, one entry of that type is sent without a header.
    """

    def __init__(
        self, driver: Driver, protocol: ProtocolEntry, uri: str, renew: Callable[[], Driver] | None = None
    ) -> None:
        self._last = driver
        self._renew = renew
        self._protocol = protocol
        self.protocol = protocol.name
        "The name of the protocol."
        self.uri = uri
        "The address that was connected to."

    def request(
        self,
        data: PayloadLike = b"",
        *,
        metadata: Metadata = None,
        route: str | None = None,
        cursor: Cursor | None = None,
        timeout: float | None = None,
    ) -> Payload:
        """Request one answer. An answer without an item is returned as an empty payload.

        Raises:
            Rejected, Canceled, Invalid, ApplicationError: the peer's error.
            ConnectionClosed: the connection ended first.
            TimeoutError: no answer in time.
        """
        driver = self._driver
        payload = payload_for(driver.engine, data, metadata, route, cursor)
        with driver.guard:
            self._check("request")
            _check_timeout(timeout)
            begun = 0.0 if timeout is None else monotonic()
            stream = driver.open("request", payload, timeout=timeout)
            inbox = driver.inboxes[stream] = Inbox()
            try:
                left = None if timeout is None else max(0.0, begun + timeout - monotonic())
                if not driver.wait(lambda: inbox.ended, left):
                    raise late(f"no answer within {timeout:g} s")
                if (error := inbox.error) is not None:
                    raise error.again() if isinstance(error, Error) else error
                return payloads_of(inbox.arrived[0])[0] if inbox.arrived else Payload()
            finally:
                if not inbox.ended and driver.forget(stream) and driver.mine:
                    driver.cancel(stream)
                    driver.write()
                for event in inbox.arrived:
                    driver.engine.consumed(size_of(payloads_of(event)))

    def fire(
        self,
        data: PayloadLike = b"",
        *,
        metadata: Metadata = None,
        route: str | None = None,
        cursor: Cursor | None = None,
        timeout: float | None = None,
    ) -> None:
        """Send without an answer. Returns when there is room for the request, which is written now or next."""
        driver = self._driver
        payload = payload_for(driver.engine, data, metadata, route, cursor)
        with driver.guard:
            self._check("fire")
            self._wait_for_room(timeout)
            driver.open("fire", payload)
            driver.write()

    def push(self, metadata: bytes, *, timeout: float | None = None) -> None:
        """Send metadata about the connection."""
        driver = self._driver
        with driver.guard:
            self._check("push")
            self._wait_for_room(timeout)
            driver.engine.push(pushed(metadata))
            driver.write()

    def stream(
        self,
        data: PayloadLike = b"",
        *,
        metadata: Metadata = None,
        route: str | None = None,
        cursor: Cursor | None = None,
        credit: Kept = DEFAULT_CREDIT,
        timeout: float | None = None,
    ) -> ItemStream:
        """Request a stream of items; nothing is sent before the first use.

        Args:
            credit: how many items may be in flight or unconsumed here; 0 means that ``request(n)`` grants by hand,
                "auto" that the window follows the round trip and the consumer. Fewer are granted when items are
                large: unconsumed items have to fit a quarter of ``connection_bytes``.
            timeout: the longest wait for the next item.
        """
        return self._items("stream", payload_for(self._driver.engine, data, metadata, route, cursor), credit, timeout)

    def subscribe(
        self,
        publisher: PayloadLike,
        *,
        metadata: Metadata = None,
        route: str | None = None,
        cursor: Cursor | None = None,
        credit: Kept = DEFAULT_CREDIT,
        timeout: float | None = None,
    ) -> ItemStream:
        """Subscribe to a publisher of the peer; nothing is sent before the first use. In ``rsio`` that is a stream by
        the publisher's name, without metadata; in ``reactivesocket`` a stream that never completes.

        Raises:
            Unsupported: the protocol has no subscriptions.
        """
        self._protocol.require("subscribe")
        payload = payload_for(self._driver.engine, publisher, metadata, route, cursor)
        return self._items(self._protocol.subscribes, payload, credit, timeout)

    subscription = subscribe  # ReactiveSocket's name for it

    def session(
        self, data: bytes | str = b"", *, finish: bool = False, acknowledge: bool = True, timeout: float | None = None
    ) -> Session:
        """Open a session of bytes, in a protocol that has them (``jmux``): ``with peer.session() as session``.

        Args:
            data: the first bytes.
            finish: whether they are also the last.
            acknowledge: acknowledge the response when it was read to its end, if the server asks for that;
                False: call ``Session.acknowledge`` instead.
            timeout: the longest wait of each call of the session.

        Raises:
            Unsupported: the protocol has no sessions.
            LimitExceeded: as many are in flight as the limits allow; nothing was sent.
        """
        self._protocol.require("session")
        driver = self._driver
        with driver.guard:
            driver.check()
            driver.pace(timeout)
            engine = byte_sessions_of(driver.engine)
            session = Session(driver, engine.open_session(auto_ack=acknowledge, now=monotonic()), timeout)
            try:
                session.write(data)
                if finish:
                    session.finish()
                driver.write()
            except BaseException:
                session.close()  # the caller does not get it
                raise
            return session

    def channel(
        self,
        source: Iterable[PayloadLike],
        *,
        metadata: Metadata = None,
        route: str | None = None,
        cursor: Cursor | None = None,
        credit: Kept = DEFAULT_CREDIT,
        timeout: float | None = None,
        session: SessionType[Any, Any] | Machine | None = None,
    ) -> ItemStream:
        """Send the items of ``source`` and receive items. Both happen while the result is iterated.

        The first item of ``source`` is sent with the request; it alone gets ``metadata``, ``route`` and ``cursor``. A
        source without items ends the channel immediately, and nothing is sent. An exception of the source is raised to
        the consumer of the items, and the peer receives an error. When iteration ends, the source is not used any more.

        The source runs while any verb of this connection waits. It may use the connection itself, such as for a
        request for each item; the waiting verb continues when the source has produced its item.

        Args:
            timeout: the longest wait for the next item.
            session: a session type that the items of both sides have to follow, as in ``afflux.Peer.channel``. A source
                whose type expects an answer next has to consume it, by ``next`` of the result, before it continues.

        Raises:
            Unsupported: ``session`` in a protocol that has session types itself.
        """
        driver = self._driver
        check_kept(credit)
        self._check("channel")
        about = (metadata, route, cursor)
        if session is None:
            return ItemStream(driver, credit, self._channel_opener(_First(source, about), timeout), timeout)
        from afflux.sessions.chan import type_of
        from afflux.sessions.notation import Monitored
        from afflux.sync.typed import MonitoredItems, checked

        if driver.engine.typed_sessions is not None:
            raise Unsupported(f"{self._protocol.name} checks session types itself: use open")
        notation = Monitored(type_of(session).client)
        opener = self._channel_opener(_First(checked(source, notation), about), timeout)
        return MonitoredItems(driver, credit, opener, timeout, notation)

    # -- the connection ---------------------------------------------------------------------------------------

    @property
    def suspended(self) -> bool:
        """Whether the session has lost its link; the next verb resumes it."""
        return self._last.pump.away

    def streams(self) -> list[StreamStatus]:
        """List the live streams: state, credit, and the reason why each is stopped."""
        return self._last.statuses()

    @property
    def lease(self) -> Lease | None:
        """The remaining part of the lease that this side sends requests under; None without leases."""
        from afflux.protocols.rsocket.lease import Lease

        leases = self._last.leases
        return None if leases is None else Lease(*leases.lease(monotonic()))

    def extend(
        self,
        type: int | Entry,
        body: bytes = b"",
        *,
        stream: int = 0,
        ignore: bool = True,
        timeout: float | None = None,
    ) -> None:
        """Send a frame of an extension (EXT). A peer without the extension skips it, or closes unless ``ignore``.

        ``type`` is the extended type; in ``rsocket-draft`` it may be an extension entry instead, which has its own
        payload and its own flag for "ignore".

        Raises:
            LocalProtocolError, LimitExceeded: the frame cannot be written.
        """
        self._protocol.require("extensions")
        driver = self._driver
        with driver.guard:
            driver.check()
            self._wait_for_room(timeout)
            if (extensions := driver.engine.extensions) is None:
                raise Unsupported("this protocol has no extensions")
            extensions.extend(type, body, stream=stream, ignore=ignore)
            driver.write()

    @property
    def certificate(self) -> dict[str, Any] | None:
        """The server's verified certificate, in the form of ``ssl.SSLSocket.getpeercert``; None without TLS."""
        return self._last.pump.certificate

    @property
    def limits(self) -> Limits:
        """The bounds of this connection."""
        return self._last.engine.limits

    @property
    def closed(self) -> bool:
        """Whether the connection is over; with ``reconnect`` the next call makes another."""
        return self._last.over

    @property
    def error(self) -> Error | None:
        """Why the connection ended; None for an orderly end."""
        return self._last.error

    def close(self, *, reason: str = "") -> None:
        """Close; waits at most ``limits.flush_s`` until the peer has read the last frames. Idempotent."""
        self._renew = None
        self._last.pump.close(reason)

    if not TYPE_CHECKING:  # a type checker finds the missing method itself

        def __await__(self) -> NoReturn:
            raise blocks(self, 'omit "await"')

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Peer {self.uri}{' closed' if self.closed else ''}>"

    # -- inside -----------------------------------------------------------------------------------------------

    @property
    def _driver(self) -> Driver:
        """The connection for the next call: with ``reconnect`` another one, if the last is over."""
        driver = self._last
        if self._renew is not None and driver.guard.here and driver.guard.idle:
            if not driver.over:
                with driver.guard:
                    driver.pump.turn(monotonic())  # what has arrived since the last call may end it
            if driver.over:
                driver.pump.close("")
                self._last = self._renew()
        return self._last

    def _items(self, verb: Verb, payload: Payload, credit: Kept, timeout: float | None) -> ItemStream:
        """Return the items of a request with ``payload``; the stream opens on first use."""
        driver = self._last
        check_kept(credit)
        _check_timeout(timeout)
        self._check(verb)

        def opener(inbox: Inbox, grant: int, columnar: bool) -> int:
            self._wait_for_room(timeout)
            stream = driver.open(verb, payload, credit=grant, columnar=columnar, timeout=timeout)
            driver.inboxes[stream] = inbox
            return stream

        return ItemStream(driver, credit, opener, timeout)

    def _channel_opener(self, first: _First, timeout: float | None) -> Opener:
        """Return the function that opens a channel with the first item of its source."""
        _check_timeout(timeout)
        driver = self._last

        def opener(inbox: Inbox, grant: int, columnar: bool) -> int | None:
            payload = first.payload(driver, inbox)
            if payload is None:
                return None
            self._wait_for_room(timeout)
            stream = driver.open("channel", payload, credit=grant, columnar=columnar, timeout=timeout)
            driver.inboxes[stream] = inbox
            driver.sources.outboxes[stream] = Outbox(first.items, inbox, first.waits)
            return stream

        return opener

    def _check(self, verb: str) -> None:
        self._protocol.check(verb)
        self._last.check()

    def _wait_for_room(self, timeout: float | None) -> None:
        _check_timeout(timeout)
        driver = self._last
        if driver.pump.room() > 0:
            return
        in_time = driver.wait(lambda: driver.pump.room() > 0, timeout)
        driver.check()
        if not in_time:
            raise TimeoutError(f"the peer reads nothing for {timeout:g} s")


def _check_timeout(timeout: float | None) -> None:
    if timeout is not None:
        check_type("timeout=", timeout, (int, float), "a number of seconds")
        if not timeout >= 0:
            raise ValueError(f"timeout= is a number of seconds, 0 or more, not {timeout!r}")


class _First:
    """The first item of a channel's source, which opens the channel."""

    def __init__(self, source: Iterable[PayloadLike], about: tuple[Metadata, str | None, Cursor | None]) -> None:
        check_items(source)
        if not (hasattr(source, "__iter__") or hasattr(source, "__getitem__")):
            given = type(source).__name__
            raise TypeError(f"items come from a generator or a list, not from {given}: afflux.sync calls nothing async")
        self._source = source
        self._about = about
        self._payload: Payload | None = None
        self.items: Iterator[PayloadLike] = iter(())
        "The items after it."
        self.waits = False
        "The source has used a connection."

    def payload(self, driver: Driver, inbox: Inbox) -> Payload | None:
        """Return the request that opens the channel, the same on each call; None when there is nothing to open.

        Raises:
            BaseException: any exception of the source, which is used only once.
        """
        if self._payload is None:
            try:
                self._payload = self._take(driver)
            except Exception as error:
                inbox.finish(error)
                raise
            except BaseException:
                inbox.finish(Canceled("the channel's source was interrupted"))
                raise
            if self._payload is None:
                inbox.finish(None)
            driver.check()  # the source may have closed the connection
        return None if inbox.ended else self._payload

    def _take(self, driver: Driver) -> Payload | None:
        with driver.guard.source(driver.sources.send_early) as verbs:
            self.items = iter(self._source)
            found = list(islice(self.items, 1))
            self.waits = verbs != driver.guard.verbs
            return payload_for(driver.engine, payload_of(found[0]), *self._about) if found else None
