"""The other side of a connection, as the application sees it: the five verbs. No bytes live here."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from contextvars import ContextVar
from types import TracebackType
from typing import Any

from afflux.aio.driver import Driver
from afflux.aio.flow import DEFAULT_CREDIT, Inbound, ItemStream, Sender, Source
from afflux.aio.serving import Serving
from afflux.calls import Cursor, Metadata, call_payload
from afflux.core.errors import Error, LocalProtocolError, Unsupported
from afflux.core.limits import Limits
from afflux.core.payload import Payload, PayloadLike, payload_of
from afflux.registry import ProtocolEntry

__all__ = ["Peer", "current_peer"]

_current: ContextVar[Peer] = ContextVar("afflux_peer")


def current_peer() -> Peer:
    """The peer whose request the running handler answers: a handler may call it back.

    Raises:
        LookupError: called outside of a handler.
    """
    return _current.get()


class Peer:
    """One connection, seen from this side; ``async with`` closes it. ``connect`` and ``serve`` make it."""

    def __init__(self, driver: Driver, serving: Serving, protocol: ProtocolEntry, uri: str) -> None:
        self._driver = driver
        self._serving = serving
        self._protocol = protocol
        self.uri = uri
        "The address that was connected to; at a server the one that it listens on."
        self.setup: Any = None
        "What a client asked for when it connected (the SETUP frame), at a server; None at a client."
        self.host = ""
        "Where a client connected from, at a server."
        serving.context.run(_current.set, self)

    # -- the five verbs -------------------------------------------------------------------------------------

    async def request(
        self,
        data: PayloadLike = b"",
        *,
        metadata: Metadata = None,
        route: str | None = None,
        cursor: Cursor | None = None,
    ) -> Payload:
        """Ask for one answer. An answer without an item comes as an empty payload.

        As many requests are under way at once as ``limits.streams`` says; more wait their turn.
        Cancelling the wait cancels the request at the peer.

        Raises:
            Rejected, Canceled, Invalid, ApplicationError: the peer's error.
            ConnectionClosed: the connection ended first.
        """
        payload = call_payload(data, metadata, route, cursor)
        driver = self._driver
        if driver.crowded:
            await driver.turn_to_ask()
        self._check("request")
        stream = driver.engine.open("request", payload)
        future = driver.replies[stream] = driver.loop.create_future()
        driver.flush_soon()
        try:
            answer: Payload = await future
            return answer
        except asyncio.CancelledError:
            if driver.replies.pop(stream, None) is not None:
                driver.engine.cancel(stream)
                driver.wake_askers()
                driver.flush_soon()
            raise

    async def fire(
        self,
        data: PayloadLike = b"",
        *,
        metadata: Metadata = None,
        route: str | None = None,
        cursor: Cursor | None = None,
    ) -> None:
        """Send without an answer. Returns when it is queued, which waits for the transport's room."""
        payload = call_payload(data, metadata, route, cursor)
        await self._driver.writable()
        self._check("fire")
        self._driver.engine.open("fire", payload)
        self._driver.flush_soon()

    async def push(self, metadata: bytes) -> None:
        """Send metadata about the connection. Returns when it is queued."""
        await self._driver.writable()
        self._check("push")
        self._driver.engine.push(metadata)
        self._driver.flush_soon()

    def stream(
        self,
        data: PayloadLike = b"",
        *,
        metadata: Metadata = None,
        route: str | None = None,
        cursor: Cursor | None = None,
        credit: int = DEFAULT_CREDIT,
    ) -> ItemStream:
        """Ask for many items; nothing is sent before the first use.

        Args:
            credit: how many items may be under way or wait here; 0 means that ``request(n)`` grants by hand. Fewer
                are granted when items are large: all that waits has to fit a quarter of ``connection_bytes``.
        """
        payload = call_payload(data, metadata, route, cursor)
        inbound = self._inbound("stream", credit)
        driver = self._driver

        def opener(n: int) -> None:
            driver.check()
            stream = inbound.id = driver.engine.open("stream", payload, credit=inbound.first_grant(n))
            driver.inbounds[stream] = inbound
            driver.flush_soon()

        return ItemStream(inbound, opener=opener, stop=lambda: self._cancel(inbound))

    def channel(
        self,
        source: Source,
        *,
        metadata: Metadata = None,
        route: str | None = None,
        cursor: Cursor | None = None,
        credit: int = DEFAULT_CREDIT,
    ) -> Channel:
        """Send the items of ``source`` and receive items, at the same time. Use it with ``async with``.

        The request goes out with the first item of ``source``; it alone gets ``metadata``, ``route`` and
        ``cursor``. A source without items ends at once, and nothing is sent. What the source raises is raised to
        whoever takes the items, and the peer gets an error.
        """
        inbound = self._inbound("channel", credit)
        first = (metadata, route, cursor)
        return Channel(self._driver, inbound, source, first, lambda: self._cancel(inbound))

    # -- the connection -------------------------------------------------------------------------------------

    @property
    def limits(self) -> Limits:
        """The bounds of this connection."""
        return self._driver.engine.limits

    @property
    def closed(self) -> bool:
        """Whether the connection is over."""
        return self._driver.closed.done()

    @property
    def error(self) -> Error | None:
        """Why the connection ended, when it did not end in order."""
        return self._driver.error

    async def wait_closed(self) -> None:
        """Wait until the connection is over, and everything that it had started has ended."""
        await asyncio.shield(self._driver.closed)
        await asyncio.shield(self._driver.finished)

    async def close(self, *, drain: bool | float = False, reason: str = "") -> None:
        """Close, and wait for it.

        Args:
            drain: let the live streams end first, and take no new ones: True waits as long as it takes, a number
                at most so many seconds.
            reason: words for the peer.
        """
        driver = self._driver
        driver.close(drain=bool(drain), reason=reason)
        if drain:
            await _within(driver.closed, None if drain is True else drain)
            driver.close(reason=reason)
        try:
            await asyncio.shield(driver.closed)
            self._serving.stop()
            if not await _within(driver.finished, driver.engine.limits.flush_s + driver.engine.limits.stop_s):
                driver.log_failure("afflux: a handler ignores that it was canceled")
        finally:
            driver.abort()

    async def __aenter__(self) -> Peer:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<Peer {self.uri}{' closed' if self.closed else ''}>"

    # -- inside ---------------------------------------------------------------------------------------------

    def _inbound(self, verb: str, credit: int) -> Inbound:
        if not 0 <= credit <= 0x7FFFFFFF:
            raise LocalProtocolError(f"credit is 0 to {0x7FFFFFFF}, not {credit}", rule="R-26")
        self._check(verb)
        return Inbound(self._driver, credit)

    def _check(self, verb: str) -> None:
        if verb not in self._protocol.verbs:
            there = ", ".join(self._protocol.verbs)
            raise Unsupported(f'{self._protocol.name} has no "{verb}"; it offers: {there}')
        self._driver.check()

    def _cancel(self, inbound: Inbound) -> None:
        driver = self._driver
        if inbound.id is not None and driver.inbounds.pop(inbound.id, None) is not None:
            driver.engine.cancel(inbound.id)
            driver.flush_soon()


class Channel(ItemStream):
    """The items that answer a channel. Leaving its ``async with`` also ends the source."""

    __slots__ = ("_driver", "_first", "_producer", "_source")

    def __init__(self, driver: Driver, inbound: Inbound, source: Source, first: tuple[Any, ...], stop: Any) -> None:
        super().__init__(inbound, opener=self._launch, stop=stop)
        self._driver = driver
        self._source = source
        self._first = first
        self._producer: asyncio.Task[None] | None = None

    def cancel(self) -> None:
        """Take no more, and send no more."""
        super().cancel()
        if self._producer is not None:
            self._producer.cancel()

    async def aclose(self) -> None:
        """Cancel, and wait until the source is closed."""
        self.cancel()
        if self._producer is not None:
            await asyncio.wait((self._producer,))

    def _launch(self, n: int) -> None:
        self._driver.check()
        self._producer = self._driver.spawn(_run_channel(self._driver, self._inbound, self._source, self._first, n))


async def _run_channel(driver: Driver, inbound: Inbound, source: Any, first: tuple[Any, ...], n: int) -> None:
    """The requester's half of a channel. It holds no reference to the Channel, so that may die before it."""
    items = source if hasattr(source, "__anext__") else _as_async(source)
    sender = None
    try:
        queued: list[PayloadLike] = []
        async for item in items:
            if queued := item if type(item) is list else [item]:
                break
        else:
            inbound.finish(None)
            return
        await driver.writable()
        payload = payload_of(queued[0])
        payload = call_payload(payload, *first) if any(part is not None for part in first) else payload
        stream = inbound.id = driver.engine.open("channel", payload, credit=inbound.first_grant(n))
        driver.inbounds[stream] = inbound
        sender = driver.senders[stream] = Sender(driver, stream)
        driver.flush_soon()
        await sender.send_all(_chain(queued[1:], items) if len(queued) > 1 else items)
    except Exception as error:
        inbound.finish(error)
        if inbound.id is not None:
            driver.inbounds.pop(inbound.id, None)
            driver.engine.fail(inbound.id, error)
            driver.flush_soon()
    finally:
        if sender is not None:
            driver.senders.pop(sender.id, None)
        if hasattr(items, "aclose"):
            await items.aclose()


async def _chain(first: list[PayloadLike], rest: AsyncIterator[Any]) -> AsyncIterator[Any]:
    yield first
    async for item in rest:
        yield item


async def _as_async(source: Any) -> AsyncIterator[Any]:
    if hasattr(source, "__aiter__"):
        async for item in source:
            yield item
    else:
        for item in source:
            yield item


async def _within(future: asyncio.Future[None], seconds: float | None) -> bool:
    """Whether the future is done within the time."""
    with suppress(TimeoutError):
        await asyncio.wait_for(asyncio.shield(future), seconds)
        return True
    return False
