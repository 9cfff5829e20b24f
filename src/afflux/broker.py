"""Forward requests between clients that offer services and clients that use them. Rule numbers are RSocket's.

``protocols.rsocket.routes`` selects routes, ``protocols.rsocket.metadata.broker`` encodes the entries. Forwarded
requests are ordinary requests, so limits, credit and cancels apply on both sides: beyond the demand of the requester,
only the window of ``credit`` items is requested.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import aclosing, contextmanager, suppress
from secrets import token_bytes
from time import time_ns
from typing import Any

from afflux.aio.flow import ItemStream
from afflux.aio.peer import Peer, current_peer
from afflux.aio.server import OnSetup
from afflux.calls import entries
from afflux.calls.arguments import check_type
from afflux.core.errors import Canceled, ConnectionClosed, Error, Invalid, Rejected, Violation
from afflux.core.payload import Payload
from afflux.protocols.rsocket.metadata.broker import (
    BROKER_MIMES,
    Address,
    BrokerFrame,
    RouteJoin,
    RouteRemove,
    RouteSetup,
    decode_broker,
)
from afflux.protocols.rsocket.routes import Member, RouteTable

__all__ = ["Address", "Broker", "Member", "RouteSetup", "RouteTable"]

_Item = Payload | Exception | None
"An item, the error that ends the items, or None for their normal end."


class Broker:
    """The handler of a broker: ``afflux.serve(uri, broker, on_setup=broker.on_setup)``.

    A client offers a service with a :class:`~afflux.broker.RouteSetup` in ``connect(setup=…)``, and answers with
    ``handler=``. Other clients reach it with an :class:`~afflux.broker.Address` in a request's metadata. Every client
    may offer any service, even under the route id of another: restrict clients in ``on_setup``.

    Args:
        on_setup: accepts or refuses each client before its routes are registered, as for ``afflux.serve``.
        routes: the most routes, of 64 tags each; a client has one route.
        receivers: the most receivers of a multicast request; a request with more is rejected.
        credit: items of a forwarded stream or channel that may be buffered for each client.
        unwrap: send the receiver the metadata wrapped in the ADDRESS, if any, instead of the request's. In the
            published text the receiver does it.
        address_metadata: ADDRESS has a list of metadata before its tags, as in the published text (D-9).
        pick: selects a route of a unicast request; by default the least recently used.

    Raises:
        TypeError, ValueError: ``routes``, ``receivers`` or ``credit`` is not a whole number, 1 or more.
    """

    def __init__(
        self,
        *,
        on_setup: OnSetup | None = None,
        routes: int = 10_000,
        receivers: int = 256,
        credit: int = 32,
        unwrap: bool = False,
        address_metadata: bool = False,
        pick: Callable[[Sequence[Member[Peer]]], Member[Peer]] | None = None,
    ) -> None:
        for name, number in (("routes", routes), ("receivers", receivers), ("credit", credit)):
            check_type(name, number, int, "a whole number, 1 or more")
            if number < 1:
                raise ValueError(f"{name} must be 1 or more, not {number}")
        self.id = token_bytes(16)
        "The broker's id."
        self.table: RouteTable[Peer] = RouteTable(routes=routes, pick=pick)
        "The services and their clients."
        self._decide = on_setup
        self._most = receivers
        self._credit = credit
        self._unwrap = unwrap
        self._address_metadata = address_metadata
        self._now = 0
        self._tasks: set[asyncio.Task[None]] = set()

    # -- clients --------------------------------------------------------------------------------------------

    async def on_setup(self, setup: Any, peer: Peer) -> None:
        """Accept a client and register its service, if it offers one. Pass it to ``afflux.serve``.

        Raises:
            Invalid: the offer cannot be read.
            LimitExceeded: there are too many routes.
        """
        if self._decide is not None:
            await self._decide(setup, peer)
        found = self._frame(setup.metadata, setup.metadata_mime, peer, RouteSetup)
        if not isinstance(found, RouteSetup):
            return
        older = self.table.find(found.route_id)
        self.table.join(RouteJoin(self.id, found.route_id, self._time(), found.name, found.tags), peer)
        self._spawn(self._watch(found.route_id, peer))
        if older is not None:  # one connection for each route
            self._spawn(older.target.close(reason="another connection has its route"))

    async def _watch(self, route_id: bytes, peer: Peer) -> None:
        """Remove the route of a client when its connection closes."""
        await asyncio.shield(peer._driver.closed)  # its handlers may still run: they need no route
        member = self.table.find(route_id)
        if member is not None and member.target is peer:
            self.table.remove(RouteRemove(self.id, route_id, self._time()))

    # -- the verbs ------------------------------------------------------------------------------------------

    async def fire(self, payload: Payload) -> None:
        """Forward a fire, to all receivers if it is multicast (R-64). A lost receiver does not affect the others."""
        sent = self._forwarded(payload)
        await asyncio.gather(*(peer.fire(sent) for peer in self._receivers(payload)), return_exceptions=True)

    async def request(self, payload: Payload) -> Payload:
        """Forward a request. The first result, even an error, is the answer; the others are canceled (R-65)."""
        sent = self._forwarded(payload)
        peers = self._receivers(payload)
        if len(peers) == 1:
            with _disconnects_cancel():
                return await peers[0].request(sent)
        asked = [asyncio.ensure_future(peer.request(sent)) for peer in peers]
        try:
            done, _ = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
            with _disconnects_cancel():
                return next(one for one in asked if one in done).result()
        finally:
            await _end(asked)

    def stream(self, payload: Payload) -> AsyncIterator[Payload]:
        """Forward a stream. The items of all receivers are merged; an error of one cancels all (R-66)."""
        sent = self._forwarded(payload)
        return _merged([peer.stream(sent, credit=self._credit) for peer in self._receivers(payload)])

    async def channel(self, items: ItemStream) -> AsyncIterator[Payload]:
        """Forward a channel: each item goes to all receivers, at the speed of the slowest; the answers are merged as
        those of a stream (R-66)."""
        peers = self._receivers(items.first or Payload())
        ports = [_Port() for _ in peers]
        streams = [peer.channel(port, credit=self._credit) for peer, port in zip(peers, ports, strict=True)]
        feeder = asyncio.ensure_future(_pour(self._unwrapped(items), *(port.put for port in ports)))
        try:
            async with aclosing(_merged(streams)) as answers:
                async for answer in answers:
                    yield answer
        finally:
            await _end([feeder])

    # -- inside ---------------------------------------------------------------------------------------------

    def _receivers(self, payload: Payload) -> list[Peer]:
        """Return the receivers of a request, at least one.

        Raises:
            Invalid: its ADDRESS cannot be read, or contradicts itself (R-60, R-68).
            Rejected: it has no ADDRESS, or no route matches.
        """
        address = self._address(payload)
        if address is None:
            raise Rejected("the request has no ADDRESS; a broker only forwards requests")
        try:
            found = self.table.choose(address)
        except Violation as violation:
            raise Invalid(violation.reason, rule=violation.rule) from None
        peers = [member.target for member in found if not member.target.closed]
        if not peers:
            wanted = ", ".join(f"{key}={value}" for key, value in address.tags)
            raise Rejected(f"no route has the tags {wanted[:200] or '(none)'}")
        if len(peers) > self._most:
            raise Rejected(f"too-many-receivers: {len(peers)} routes match, at most {self._most} are allowed")
        return peers

    def _address(self, payload: Payload) -> Address | None:
        peer = current_peer()
        found = self._frame(payload.metadata, peer.setup.metadata_mime, peer, Address)
        return found if isinstance(found, Address) else None

    def _frame(self, metadata: bytes | None, mime: str, peer: Peer, kind: type[BrokerFrame]) -> BrokerFrame | None:
        """Return the first broker frame of a kind; None if there is none."""
        try:
            for name, value in entries(metadata, mime, limit=peer.limits.composite_entries):
                if name in BROKER_MIMES:
                    frame = decode_broker(value, address_metadata=self._address_metadata)
                    if isinstance(frame, kind):
                        return frame
        except Violation as violation:
            raise Invalid(f"the broker frame cannot be read: {violation.reason}", rule=violation.rule) from None
        return None

    def _forwarded(self, payload: Payload) -> Payload:
        """Return the payload for the receiver. Data and wrapped metadata are not changed (R-69)."""
        address = self._address(payload) if self._unwrap else None
        return payload if address is None or not address.wrapped else Payload(payload.data, address.wrapped)

    async def _unwrapped(self, items: ItemStream) -> AsyncIterator[Payload]:
        """Yield the items of a channel, of which only the first has an ADDRESS."""
        first = True
        async for item in items:
            yield self._forwarded(item) if first else item
            first = False

    def _time(self) -> int:
        """Return milliseconds since 1970, strictly increasing: a later route is newer (R-62)."""
        self._now = max(self._now + 1, time_ns() // 1_000_000)
        return self._now

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


@contextmanager
def _disconnects_cancel() -> Iterator[None]:
    """Convert the disconnection of a receiver to Canceled, because processing may have begun."""
    try:
        yield
    except ConnectionClosed as error:
        raise Canceled("the receiver has disconnected: processing may have begun") from error


class _Port:
    """The copy of a channel's items for one receiver, with a buffer of one item."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[_Item] = asyncio.Queue(1)
        self._over = False

    async def put(self, item: _Item) -> None:
        """Add an item, the error that ends the items, or None for their normal end."""
        if not self._over:
            await self._queue.put(item)

    def __aiter__(self) -> _Port:
        return self

    async def __anext__(self) -> Payload:
        item = None if self._over else await self._queue.get()
        if isinstance(item, Payload):
            return item
        self._over = True
        if item is None:
            raise StopAsyncIteration
        raise item

    async def aclose(self) -> None:
        """Discard further items, so that ``put`` does not block."""
        self._over = True
        while not self._queue.empty():
            self._queue.get_nowait()


async def _merged(streams: Sequence[ItemStream]) -> AsyncGenerator[Payload, None]:
    """Yield the items of all streams as they arrive; an error ends all (R-66)."""
    queue: asyncio.Queue[_Item] = asyncio.Queue(1)
    tasks: list[asyncio.Future[None]] = []
    try:
        if len(streams) == 1:
            with _disconnects_cancel():
                async for item in streams[0]:
                    yield item
            return
        tasks += [asyncio.ensure_future(_pour(stream, queue.put)) for stream in streams]
        left = len(tasks)
        while left:
            found = await queue.get()
            if isinstance(found, Payload):
                yield found
            elif found is None:
                left -= 1
            else:
                with _disconnects_cancel():
                    raise found
    finally:
        for stream in streams:  # before the first await, which may be canceled
            with suppress(Error):
                stream.cancel()
        await _end(tasks)
        for stream in streams:
            await stream.aclose()


async def _pour(source: AsyncIterator[Payload], *sinks: Callable[[_Item], Awaitable[None]]) -> None:
    """Pass each item to all sinks, then the error that ends the items, or None for their normal end."""
    last: Exception | None = None
    try:
        async for item in source:
            for sink in sinks:
                await sink(item)
    except Exception as error:
        last = error
    for sink in sinks:
        await sink(last)


async def _end(tasks: Sequence[asyncio.Future[Any]]) -> None:
    """Cancel tasks and wait for their ends; their results are ignored."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
