"""A broker: clients offer services, and others reach them through it. Rule numbers are RSocket's.

Routes are ``protocols.rsocket.routes``', entries ``protocols.rsocket.metadata.broker``'s. What is forwarded is asked of
the clients as any request is, so limits, credit and cancels hold on both sides: nothing is asked of a client that the
requester has not asked for, but for the window of ``credit`` items.
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
"An item on its way, why there are no more, or None for the end in order."


class Broker:
    """What a broker answers: ``afflux.serve(uri, broker, on_setup=broker.on_setup)``.

    A client offers a service with a :class:`~afflux.broker.RouteSetup` in ``connect(setup=…)``, and answers with
    ``handler=``. Anyone reaches it with an :class:`~afflux.broker.Address` in a request's metadata. Whoever may connect
    may offer what it likes, also under the route id of another: decide in ``on_setup`` who may come in.

    Args:
        on_setup: decides about each client before its routes count, as that of ``afflux.serve``.
        routes: how many there may be, of 64 tags each; one client has one.
        receivers: how many a multicast request may reach; one that would reach more is rejected.
        credit: items of a forwarded stream or channel that may wait here, for each client.
        unwrap: hand the receiver the metadata that is wrapped in the ADDRESS, if any, instead of the request's. The
            published text has the receiver do it.
        address_metadata: ADDRESS has a list of metadata before its tags, as in the published text (D-9).
        pick: chooses among the routes of a unicast request; the one that waited longest if None.
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
        if credit < 1:
            raise ValueError(f"credit is the window of a forwarded stream: 1 or more, not {credit}")
        self.id = token_bytes(16)
        "The broker's id."
        self.table: RouteTable[Peer] = RouteTable(routes=routes, pick=pick)
        "Who offers what."
        self._decide = on_setup
        self._most = receivers
        self._credit = credit
        self._unwrap = unwrap
        self._address_metadata = address_metadata
        self._now = 0
        self._tasks: set[asyncio.Task[None]] = set()

    # -- who is there ---------------------------------------------------------------------------------------

    async def on_setup(self, setup: Any, peer: Peer) -> None:
        """For ``afflux.serve``: let a client in, and note what it offers. One that offers nothing may only ask.

        Raises:
            Invalid: it offers something that can not be read.
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
        """A client that leaves is out of the table."""
        await asyncio.shield(peer._driver.closed)  # its handlers may be ending still: they need no route
        member = self.table.find(route_id)
        if member is not None and member.target is peer:
            self.table.remove(RouteRemove(self.id, route_id, self._time()))

    # -- the verbs ------------------------------------------------------------------------------------------

    async def fire(self, payload: Payload) -> None:
        """Forward a fire, to all that match if it is multicast (R-64). One that is gone harms no other."""
        sent = self._forwarded(payload)
        await asyncio.gather(*(peer.fire(sent) for peer in self._receivers(payload)), return_exceptions=True)

    async def request(self, payload: Payload) -> Payload:
        """Forward a request. The first result answers, be it an error; the others are cancelled (R-65)."""
        sent = self._forwarded(payload)
        peers = self._receivers(payload)
        if len(peers) == 1:
            with _leaving():
                return await peers[0].request(sent)
        asked = [asyncio.ensure_future(peer.request(sent)) for peer in peers]
        try:
            done, _ = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
            with _leaving():
                return next(one for one in asked if one in done).result()
        finally:
            await _end(asked)

    def stream(self, payload: Payload) -> AsyncIterator[Payload]:
        """Forward a stream. The items of all that match come as one; an error of one cancels all (R-66)."""
        sent = self._forwarded(payload)
        return _merged([peer.stream(sent, credit=self._credit) for peer in self._receivers(payload)])

    async def channel(self, items: ItemStream) -> AsyncIterator[Payload]:
        """Forward a channel: each item goes to all that match, as fast as the slowest takes them; the answers come as
        those of a stream do (R-66)."""
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
        """Whom a request is for: one at least.

        Raises:
            Invalid: its ADDRESS can not be read, or contradicts itself (R-60, R-68).
            Rejected: it has none, or nobody has what it asks for.
        """
        address = self._address(payload)
        if address is None:
            raise Rejected("the request has no ADDRESS: a broker forwards, and answers nothing itself")
        try:
            found = self.table.choose(address)
        except Violation as violation:
            raise Invalid(violation.reason, rule=violation.rule) from None
        peers = [member.target for member in found if not member.target.closed]
        if not peers:
            wanted = ", ".join(f"{key}={value}" for key, value in address.tags)
            raise Rejected(f"no route has the tags {wanted[:200] or '(none)'}")
        if len(peers) > self._most:
            raise Rejected(f"too-many-receivers: {len(peers)} routes match, and {self._most} may be asked at once")
        return peers

    def _address(self, payload: Payload) -> Address | None:
        peer = current_peer()
        found = self._frame(payload.metadata, peer.setup.metadata_mime, peer, Address)
        return found if isinstance(found, Address) else None

    def _frame(self, metadata: bytes | None, mime: str, peer: Peer, kind: type[BrokerFrame]) -> BrokerFrame | None:
        """The first broker frame of a kind."""
        try:
            for name, value in entries(metadata, mime, limit=peer.limits.composite_entries):
                if name in BROKER_MIMES:
                    frame = decode_broker(value, address_metadata=self._address_metadata)
                    if isinstance(frame, kind):
                        return frame
        except Violation as violation:
            raise Invalid(f"the broker frame can not be read: {violation.reason}", rule=violation.rule) from None
        return None

    def _forwarded(self, payload: Payload) -> Payload:
        """What the receiver gets. Neither the data nor what is wrapped changes (R-69)."""
        address = self._address(payload) if self._unwrap else None
        return payload if address is None or not address.wrapped else Payload(payload.data, address.wrapped)

    async def _unwrapped(self, items: ItemStream) -> AsyncIterator[Payload]:
        """The items of a channel; the first one alone has an ADDRESS."""
        first = True
        async for item in items:
            yield self._forwarded(item) if first else item
            first = False

    def _time(self) -> int:
        """Milliseconds since 1970, never the same twice: what is later here is newer (R-62)."""
        self._now = max(self._now + 1, time_ns() // 1_000_000)
        return self._now

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


@contextmanager
def _leaving() -> Iterator[None]:
    """A client that leaves in the middle: its requester hears that processing may have begun."""
    try:
        yield
    except ConnectionClosed as error:
        raise Canceled("the client that was asked has left: processing may have begun") from error


class _Port:
    """One receiver's copy of what a channel sends: an item waits until the receiver takes it."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[_Item] = asyncio.Queue(1)
        self._over = False

    async def put(self, item: _Item) -> None:
        """One more item, why there are no more, or None for the end."""
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
        """The receiver takes no more; whoever waits to put something goes on."""
        self._over = True
        while not self._queue.empty():
            self._queue.get_nowait()


async def _merged(streams: Sequence[ItemStream]) -> AsyncGenerator[Payload, None]:
    """The items of all streams, as they come; an error ends all (R-66)."""
    queue: asyncio.Queue[_Item] = asyncio.Queue(1)
    tasks: list[asyncio.Future[None]] = []
    try:
        if len(streams) == 1:
            with _leaving():
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
                with _leaving():
                    raise found
    finally:
        for stream in streams:  # first, in case that what follows is canceled
            with suppress(Error):
                stream.cancel()
        await _end(tasks)
        for stream in streams:
            await stream.aclose()


async def _pour(source: AsyncIterator[Payload], *sinks: Callable[[_Item], Awaitable[None]]) -> None:
    """Hand each item to all sinks, then why there are no more, or None for the end in order."""
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
    """Cancel what is not done, and wait for it; what it says now concerns nobody."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
