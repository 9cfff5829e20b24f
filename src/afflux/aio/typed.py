"""Take the steps of session types on the channels of a connection, under asyncio.

``TypedSession`` opens a channel, ``serve_session`` serves one, and ``MonitoredChannel`` checks the items of a channel
that the program writes itself. Steps are sent within credit and room, as the items of every channel.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Iterator
from itertools import islice
from operator import length_hint
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from afflux.aio.flow import Inbound, ItemStream
from afflux.aio.opening import Channel, cancel_stream, fail_channel
from afflux.aio.sender import Over, Sender, Source
from afflux.calls import payload_for
from afflux.calls.arguments import AsyncOnly
from afflux.core.autocredit import Kept
from afflux.core.errors import Canceled, Error, Invalid, LimitExceeded, LocalProtocolError
from afflux.core.payload import Payload, PayloadLike, Payloads, payload_of
from afflux.sessions.chan import Chan, SessionType
from afflux.sessions.errors import SessionTypeError, SessionViolation
from afflux.sessions.machine import Machine
from afflux.sessions.monitor import Received
from afflux.sessions.notation import Monitored, Notation

if TYPE_CHECKING:
    from afflux.aio.driver import Driver

__all__ = ["MonitoredChannel", "TypedSession", "serve_session"]

ClientOut = TypeVar("ClientOut", covariant=True)


class SessionSteps:
    """The steps of one session; implements ``afflux.sessions.Steps``."""

    __slots__ = (
        "_branch",
        "_chunk",
        "_driver",
        "_items",
        "_rest",
        "_sender",
        "_values",
        "finished",
        "notation",
        "run",
    )

    def __init__(self, driver: Driver, items: ItemStream, sender: Sender, notation: Notation) -> None:
        self._driver = driver
        self._items = items
        self._sender = sender
        self.notation = notation
        "Writes steps as items."
        self._values: list[Any] = []
        "The value that has implied the branch which ``offer`` returned."
        self._branch: int | None = None
        "The branch that has ended ``recv_each``."
        self._chunk: Payloads = []
        self.run: Iterator[Any] = iter(())
        "The last values of ``_chunk``, which ``recv_each`` returns next."
        self._rest: Iterator[Payload] = iter(())
        "Items that have arrived together with those of ``recv_each``."
        self.finished = False
        "This side has taken its last step."

    async def send(self, value: Any) -> None:
        """Send a value."""
        await self._ready()
        self._send(self.notation.value(value))

    async def choose(self, branch: int) -> None:
        """Choose a branch, from 1."""
        await self._ready()
        if (item := self.notation.choice(branch)) is not None:
            self._send(item)

    async def send_each(self, values: Iterable[Any] | AsyncIterable[Any]) -> None:
        """Send the values of a loop."""
        if isinstance(values, AsyncIterable):
            async for value in values:
                await self.send(value)
            return
        source, more = iter(values), True
        while more:
            await self._ready()
            items: list[Any] = []
            try:
                items += self.notation.items(islice(source, self._sender.most))
            finally:
                more = bool(items)
                if items:
                    self._send(items)

    async def recv(self) -> Any:
        """Return the next value of the peer."""
        if self._values:
            return self._values.pop()
        if (item := await self._next()) is not None:
            return self._read(item).value
        raise self._end_of_peer()

    async def recv_in_loop(self) -> Any:
        """Return the next value of a loop. Raises StopAsyncIteration at another branch."""
        while self._branch is None:
            for item in self._rest:
                received = self._read(item)
                if received.has_value:
                    return received.value
                if received.branch != 1:
                    self._branch = received.branch
                    raise StopAsyncIteration
            if (chunk := await self._items.next_chunk()) is None:
                raise self._end_of_peer()
            if (values := self.notation.values(chunk)) is None:
                self._rest = iter(list(chunk))
                continue
            self._chunk, self.run = chunk, iter(values)
            for value in self.run:
                return value
        raise StopAsyncIteration

    async def offer(self) -> int:
        """Return the branch that the peer has chosen, from 1."""
        branch, self._branch = self._branch, None
        if branch is not None:
            return branch
        if (item := await self._next()) is None:
            raise self._end_of_peer()
        received = self._read(item)
        if received.has_value:
            self._values.append(received.value)
        return received.branch or 1

    async def _next(self) -> Payload | None:
        """Return the next item, None at the end."""
        if left := length_hint(self.run):
            self._rest, self.run = iter(list(self._chunk[len(self._chunk) - left :])), iter(())
        for item in self._rest:
            return item
        return await anext(self._items, None)

    async def end(self) -> None:
        """End the session: complete this half, and wait for the end of the peer's."""
        self.notation.end()
        self.finished = True
        if not self._sender.over:
            self._driver.engine.complete(self._sender.id)
            self._sender.over = True
            self._driver.output.flush_soon()
        while (item := await self._next()) is not None:
            self._read(item)

    def close(self) -> None:
        """Leave a session at the client: cancel it if it has not ended."""
        driver, stream = self._driver, self._sender.id
        ended = stream not in driver.streams.inbounds
        self._items.cancel()
        driver.streams.senders.pop(stream, None)
        if ended and not (self.finished or self._sender.over or driver.state.over):
            driver.engine.fail(stream, Canceled("the session was left before its end", stream=stream))
            driver.output.flush_soon()
        self._sender.over = True

    async def _ready(self) -> None:
        """Wait for credit and room.

        Raises:
            Error: the session is over.
        """
        try:
            await self._sender.ready()
        except Over:
            raise await self._over() from None

    async def _over(self) -> Error:
        """Return the error of a session that the peer has ended; raise the peer's reason if there is one."""
        async for _ in self._items:  # the reason comes after the items that have arrived
            pass
        return Canceled("the peer has ended the session", stream=self._sender.id)

    def _send(self, item: PayloadLike | list[PayloadLike]) -> None:
        try:
            self._sender.send_some(item) if isinstance(item, list) else self._sender.send_one(item)
        except LimitExceeded as error:  # the step is taken, and its item cannot be sent
            self._fail(error)
            raise

    def _read(self, item: Payload) -> Received:
        try:
            return self.notation.received(item)
        except SessionViolation as violation:
            self._fail(violation)
            raise

    def _end_of_peer(self) -> Error:
        """Return the error of a session that the peer has ended between two steps."""
        try:
            self.notation.ended()
        except SessionViolation as violation:
            self._fail(violation)
            return violation
        return Canceled("the session has ended", stream=self._sender.id)

    def _fail(self, error: Error) -> None:
        """End the session with an error."""
        driver, stream = self._driver, self._sender.id
        driver.streams.inbounds.pop(stream, None)
        driver.engine.fail(stream, _for_peer(error))
        driver.output.flush_soon()
        self._items.cancel()
        self._sender.over = True


class TypedSession(AsyncOnly, Generic[ClientOut]):
    """A session about to be opened by ``peer.open``. ``async with`` opens it and returns its first endpoint; leaving it
    ends a session that has not ended, with an error."""

    __slots__ = ("_credit", "_driver", "_route", "_steps", "_type")

    def __init__(self, driver: Driver, type: SessionType[Any, ClientOut], route: str | None, credit: Kept) -> None:
        self._driver = driver
        self._type = type
        self._route = type.name if route is None else route
        self._credit = credit
        self._steps: SessionSteps | None = None

    async def __aenter__(self) -> Chan[ClientOut]:
        if self._steps is not None:
            raise LocalProtocolError("this session was opened: open another one", rule="SI-27")
        driver = await self._driver.writable("channel")
        typed, machine = driver.engine.typed_sessions, self._type.client
        notation: Notation
        if typed is not None:
            payload, notation = typed.opening(self._route, machine), typed.notation()
        else:
            payload, notation = payload_for(driver.engine, b"", None, self._route, None), Monitored(machine)
        inbound = Inbound(driver, self._credit)
        stream = inbound.id = driver.open("channel", payload, inbound.first_grant(0))
        driver.streams.inbounds[stream] = inbound
        sender = driver.streams.senders[stream] = Sender(driver, stream)
        driver.output.flush_soon()
        items = ItemStream(inbound, opener=None, stop=lambda: cancel_stream(inbound))
        self._steps = SessionSteps(driver, items, sender, notation)
        return self._type.at_client(self._steps)

    async def __aexit__(self, *_: object) -> None:
        if self._steps is not None:
            self._steps.close()


async def serve_session(
    type: SessionType[Any, Any], function: Callable[[Chan[Any]], Awaitable[None]], items: ItemStream
) -> None:
    """Serve a channel by a function that takes the first endpoint of the server.

    Raises:
        SessionTypeError: the function has returned before the end of the type.
    """
    driver, stream = items.driver, items.id
    typed = driver.engine.typed_sessions
    notation: Notation = Monitored(type.server) if typed is None else typed.notation()
    sender = None if stream is None else driver.streams.senders.get(stream)
    if sender is None:
        raise Canceled("the session has ended", stream=stream)
    steps = SessionSteps(driver, items, sender, notation)
    first = items.first
    if first is None or not notation.first(first):
        await anext(items, None)  # the opening is not a step
    await function(type.at_server(steps))
    if not steps.finished:
        raise SessionTypeError(0, "steps until its end", f"the return of {function!r}", stream=stream)


def _for_peer(error: Error) -> Error:
    """Return the error that the peer receives: for a step that is not of the type, one with the text."""
    if isinstance(error, SessionViolation):
        return Invalid(f"the session type expects {error.expected}, not {error.seen}", rule=error.rule)
    return error


class MonitoredChannel(Channel):
    """A channel whose items are checked against a session type: those of the source before they are sent, those of the
    peer when they are consumed."""

    __slots__ = ("_notation",)

    def __init__(self, inbound: Inbound, source: Source, call: tuple[Any, ...], stop: Any, machine: Machine) -> None:
        self._notation = notation = Monitored(machine)
        super().__init__(inbound, _checked(source, notation), call, stop)

    def cancel(self) -> None:
        """Stop receiving and sending."""
        super().cancel()
        self._notation.monitor.over = True

    async def batches(self) -> AsyncIterator[list[Payload]]:
        """Iterate over lists of items that arrived together."""
        if rest := list(self._items):
            yield rest
        while await self._advance():
            yield list(self._items)

    async def _advance(self) -> bool:
        if await super()._advance():
            self._items = map(self._check, list(self._chunk))
            return True
        try:
            self._notation.ended()
        except SessionViolation as violation:
            self._fail(violation)
            raise
        return False

    def _check(self, item: Payload) -> Payload:
        try:
            self._notation.received(item)
        except SessionViolation as violation:
            self._fail(violation)
            raise
        return item

    def _fail(self, violation: SessionViolation) -> None:
        fail_channel(self._inbound.driver, self._inbound, violation)
        self.cancel()


async def _checked(source: Source, notation: Monitored) -> AsyncIterator[list[Payload]]:
    """Yield the items of a source, each after its step was taken."""
    async for items in _lists(source):
        payloads = [payload_of(item) for item in items]
        for payload in payloads:
            notation.sent(payload.data)
        yield payloads
    notation.completed()


async def _lists(source: Any) -> AsyncIterator[Payloads]:
    """Yield the items of a source as lists."""
    if hasattr(source, "__aiter__"):
        async for item in source:
            yield item if type(item) is list else [item]
    else:
        for item in source:
            yield item if type(item) is list else [item]
