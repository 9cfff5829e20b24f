"""The five verbs, blocking, on one connection. Moving bytes is driver.py's."""

from __future__ import annotations

from collections.abc import Iterable
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast

from afflux.calls import Cursor, Metadata, payload_for
from afflux.core.autocredit import Kept, check_kept
from afflux.core.errors import Error
from afflux.core.events import Verb
from afflux.core.limits import Limits
from afflux.core.payload import Payload, PayloadLike, payload_of
from afflux.registry import ProtocolEntry
from afflux.sync.driver import Driver, Inbox, Outbox
from afflux.sync.flow import ItemStream, payloads_of
from afflux.sync.session import Session

if TYPE_CHECKING:
    from afflux.core.engine import Carrying, Leasing
    from afflux.protocols.rsocket.lease import Lease

__all__ = ["DEFAULT_CREDIT", "Peer"]

DEFAULT_CREDIT = 256
"Items of credit that are kept open on a stream unless the caller says otherwise."


class Peer:  # long: the verbs of every protocol, and the life of the connection
    """One connection of one process and one thread. ``afflux.sync.connect`` makes it; ``with`` closes it.

    ``timeout`` is in seconds everywhere. None waits as long as the connection lives: a peer that is silent for the
    connection's ``lifetime`` is dead. What times out raises ``TimeoutError`` and is canceled at the peer.

    ``metadata=`` of a verb is bytes, which go as they are, or entries of composite metadata: one, such as
    ``afflux.Bearer("…")``, or a list, in which (MIME type, bytes) are entries too. With ``route=`` or ``cursor=`` it is
    composite in any case: the route first, then the cursor, then the entries; bytes are an octet-stream among them.
    Where ``metadata_mime`` of ``connect`` is another type, one entry of that type goes without a header.
    """

    def __init__(self, driver: Driver, protocol: ProtocolEntry, uri: str) -> None:
        self._driver = driver
        self._protocol = protocol
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
        """Ask for one answer. An answer without an item comes as an empty payload.

        Raises:
            Rejected, Canceled, Invalid, ApplicationError: the peer's error.
            ConnectionClosed: the connection ended first.
            TimeoutError: no answer in time.
        """
        payload = payload_for(self._driver.engine, data, metadata, route, cursor)
        driver = self._driver
        self._check("request")
        stream = driver.open("request", payload)
        inbox = driver.inboxes[stream] = Inbox()
        if not driver.wait(lambda: inbox.ended, timeout):
            driver.inboxes.pop(stream, None)
            driver.engine.cancel(stream)
            driver.write()
            raise TimeoutError(f"no answer within {timeout:g} s")
        if inbox.error is not None:
            raise inbox.error
        if not inbox.arrived:
            return Payload()
        event = inbox.arrived[0]
        answer = payloads_of(event)[0]
        driver.engine.consumed(len(answer))
        return answer

    def fire(
        self,
        data: PayloadLike = b"",
        *,
        metadata: Metadata = None,
        route: str | None = None,
        cursor: Cursor | None = None,
        timeout: float | None = None,
    ) -> None:
        """Send without an answer. Returns when there was room for it; the bytes are with the socket, or go next."""
        payload = payload_for(self._driver.engine, data, metadata, route, cursor)
        self._check("fire")
        self._wait_for_room(timeout)
        self._driver.open("fire", payload)
        self._driver.write()

    def push(self, metadata: bytes, *, timeout: float | None = None) -> None:
        """Send metadata about the connection."""
        self._check("push")
        self._wait_for_room(timeout)
        self._driver.engine.push(metadata)
        self._driver.write()

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
        """Ask for many items; nothing is sent before the first use.

        Args:
            credit: how many items may be under way or wait here; 0 means that ``request(n)`` grants by hand, "auto"
                that it follows the round trip and the consumer. Fewer are granted when items are large: all that waits
                has to fit a quarter of ``connection_bytes``.
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

    subscription = subscribe  # what ReactiveSocket calls it

    def session(
        self, data: bytes | str = b"", *, finish: bool = False, acknowledge: bool = True, timeout: float | None = None
    ) -> Session:
        """Open a session of bytes, in a protocol that has them (``jmux``): ``with peer.session() as session``.

        Args:
            data: the first bytes.
            finish: they are all.
            acknowledge: tell a server that asks for it that the response was processed, when it was read to its end;
                False: ``Session.acknowledge`` does.
            timeout: the longest wait of each of its calls.

        Raises:
            Unsupported: the protocol has no sessions.
            LimitExceeded: as many are under way as may be; nothing was sent.
        """
        self._protocol.require("session")
        self._driver.check()
        engine = cast("Carrying", self._driver.engine)
        session = Session(self._driver, engine.open_session(auto_ack=acknowledge, now=monotonic()), timeout)
        try:
            session.write(data)
        except BaseException:
            session.close()  # nobody has it
            raise
        if finish:
            session.finish()
        self._driver.write()
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
    ) -> ItemStream:
        """Send the items of ``source`` and receive items. Both happen while the result is iterated.

        The request goes out with the first item; it alone gets ``metadata``, ``route`` and ``cursor``. A source
        without items ends at once, and nothing is sent. What the source raises is raised to who iterates, and the
        peer gets an error.
        """
        driver = self._driver
        self._check_credit("channel", credit)

        def opener(inbox: Inbox, grant: int, columnar: bool) -> int | None:
            items = iter(source)
            for item in items:
                payload = payload_of(item)
                payload = payload_for(self._driver.engine, payload, metadata, route, cursor)
                self._wait_for_room(timeout)
                stream = driver.open("channel", payload, credit=grant, columnar=columnar)
                driver.inboxes[stream] = inbox
                driver.outboxes[stream] = Outbox(items, inbox)
                return stream
            inbox.finish(None)
            return None

        return ItemStream(driver, credit, opener, timeout)

    # -- the connection ---------------------------------------------------------------------------------------

    @property
    def suspended(self) -> bool:
        """Whether the session has lost its link; the next verb brings it back."""
        return self._driver.away

    @property
    def lease(self) -> Lease | None:
        """What is left of the lease that this side sends requests under; None without leases."""
        from afflux.protocols.rsocket.lease import Lease

        if not self._driver.leased:
            return None
        return Lease(*cast("Leasing", self._driver.engine).lease(monotonic()))

    @property
    def certificate(self) -> dict[str, Any] | None:
        """The server's certificate as ``ssl.SSLSocket.getpeercert`` gives it, verified; None without TLS."""
        return self._driver.certificate

    @property
    def limits(self) -> Limits:
        """The bounds of this connection."""
        return self._driver.engine.limits

    @property
    def closed(self) -> bool:
        """Whether the connection is over."""
        return self._driver.over

    @property
    def error(self) -> Error | None:
        """Why the connection ended, when it did not end in order."""
        return self._driver.error

    def close(self, *, reason: str = "") -> None:
        """Close; waits at most ``limits.flush_s`` for the peer to have read the last words. Twice does no harm."""
        self._driver.close(reason)

    def __enter__(self) -> Peer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Peer {self.uri}{' closed' if self.closed else ''}>"

    # -- inside -----------------------------------------------------------------------------------------------

    def _items(self, verb: Verb, payload: Payload, credit: Kept, timeout: float | None) -> ItemStream:
        """The items of what is asked with ``payload``; it opens on first use."""
        driver = self._driver
        self._check_credit(verb, credit)

        def opener(inbox: Inbox, grant: int, columnar: bool) -> int:
            self._wait_for_room(timeout)
            stream = driver.open(verb, payload, credit=grant, columnar=columnar)
            driver.inboxes[stream] = inbox
            return stream

        return ItemStream(driver, credit, opener, timeout)

    def _check(self, verb: str) -> None:
        self._protocol.check(verb)
        self._driver.check()

    def _check_credit(self, verb: str, credit: Kept) -> None:
        check_kept(credit)
        self._check(verb)

    def _wait_for_room(self, timeout: float | None) -> None:
        driver = self._driver
        if driver.room() > 0:
            return
        in_time = driver.wait(lambda: driver.room() > 0, timeout)
        driver.check()
        if not in_time:
            raise TimeoutError(f"the peer reads nothing for {timeout:g} s")
