"""Take the steps of session types on the channels of a blocking connection: ``peer.open``. ``MonitoredItems`` checks
the items of a channel that the program writes itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Generic, TypeVar

from afflux.calls import payload_for
from afflux.calls.arguments import SyncOnly
from afflux.core.autocredit import Kept
from afflux.core.errors import Canceled, Error, LimitExceeded, LocalProtocolError
from afflux.core.events import Block, Items
from afflux.core.payload import Payload, PayloadLike, payload_of
from afflux.sessions.blocking import Chan
from afflux.sessions.chan import SessionType
from afflux.sessions.errors import SessionViolation
from afflux.sessions.monitor import Received
from afflux.sessions.notation import Monitored, Notation
from afflux.sync.driver import Driver
from afflux.sync.flow import ItemStream, Opener, payloads_of
from afflux.sync.inbox import Inbox
from afflux.sync.sources import Outbox

__all__ = ["MonitoredItems", "TypedSession", "checked"]

ClientOut = TypeVar("ClientOut", covariant=True)


class SessionSteps:
    """The steps of one session; implements ``afflux.sessions.blocking.BlockingSteps``."""

    __slots__ = ("_driver", "_inbox", "_items", "_notation", "_stream", "_timeout", "_values")

    def __init__(
        self, driver: Driver, items: ItemStream, inbox: Inbox, stream: int, notation: Notation, timeout: float | None
    ) -> None:
        self._driver = driver
        self._items = items
        self._inbox = inbox
        self._stream = stream
        self._notation = notation
        self._timeout = timeout
        self._values: list[Any] = []
        "The value that has implied the branch which ``offer`` returned."

    def send(self, value: Any) -> None:
        """Send a value."""
        with self._driver.guard:
            self._ready()
            self._send(self._notation.value(value))

    def choose(self, branch: int) -> None:
        """Choose a branch, from 1."""
        with self._driver.guard:
            self._ready()
            if (item := self._notation.choice(branch)) is not None:
                self._send(item)

    def recv(self) -> Any:
        """Return the next value of the peer."""
        return self._values.pop() if self._values else self._next().value

    def offer(self) -> int:
        """Return the branch that the peer has chosen, from 1."""
        received = self._next()
        if received.has_value:
            self._values.append(received.value)
        return received.branch or 1

    def end(self) -> None:
        """End the session: complete this half, and wait for the end of the peer's."""
        driver = self._driver
        self._notation.end()
        with driver.guard:
            if driver.sources.stop(self._stream):
                driver.engine.complete(self._stream)
                driver.write()
        for item in self._items:
            self._read(item)

    def close(self) -> None:
        """Leave the session: cancel it if it has not ended."""
        driver, stream = self._driver, self._stream
        ended = stream not in driver.inboxes
        self._items.cancel()
        if ended and driver.mine and driver.forget(stream):
            self._fail(Canceled("the session was left before its end", stream=stream))

    def _ready(self) -> None:
        """Wait for credit and room.

        Raises:
            TimeoutError: they did not come in time.
            Error: the session is over.
        """
        driver, stream = self._driver, self._stream
        driver.check()
        engine, live, room = driver.engine, driver.sources.outboxes, driver.pump.room
        in_time = driver.wait(lambda: stream not in live or engine.credit(stream) > 0 < room(), self._timeout)
        if stream not in live:
            error = self._inbox.error
            if error is None:
                raise Canceled("the session has ended", stream=stream)
            raise error.again() if isinstance(error, Error) else error
        if not in_time:
            driver.check()
            raise TimeoutError(f"the peer takes nothing for {self._timeout:g} s")

    def _send(self, item: PayloadLike) -> None:
        try:
            self._driver.engine.send(self._stream, [item])
        except LimitExceeded as error:  # the step is taken, and its item cannot be sent
            self._fail(error)
            raise
        self._driver.write()

    def _next(self) -> Received:
        """Return what the next item of the peer means.

        Raises:
            Error: the session is over.
        """
        if (item := next(self._items, None)) is not None:
            return self._read(item)
        try:
            self._notation.ended()
        except SessionViolation as violation:
            self._fail(violation)
            raise
        raise Canceled("the session has ended", stream=self._stream)

    def _read(self, item: Payload) -> Received:
        try:
            return self._notation.received(item)
        except SessionViolation as violation:
            self._fail(violation)
            raise

    def _fail(self, error: Error) -> None:
        """End the session with an error."""
        driver, stream = self._driver, self._stream
        with driver.guard:
            driver.forget(stream)
            driver.engine.fail(stream, error)
            driver.write()
        self._items.cancel()


class TypedSession(SyncOnly, Generic[ClientOut]):
    """A session about to be opened by ``peer.open``. ``with`` opens it and returns its first endpoint; leaving it ends
    a session that has not ended, with an error."""

    def __init__(
        self,
        driver: Driver,
        type: SessionType[Any, ClientOut],
        route: str | None,
        credit: Kept,
        timeout: float | None,
    ) -> None:
        self._driver = driver
        self._type = type
        self._route = type.name if route is None else route
        self._credit = credit
        self._timeout = timeout
        self._steps: SessionSteps | None = None

    def __enter__(self) -> Chan[ClientOut]:
        if self._steps is not None:
            raise LocalProtocolError("this session was opened: open another one", rule="SI-27")
        driver, machine = self._driver, self._type.client
        typed = driver.engine.typed_sessions
        notation: Notation
        if typed is not None:
            payload, notation = typed.opening(self._route, machine), typed.notation()
        else:
            payload, notation = payload_for(driver.engine, b"", None, self._route, None), Monitored(machine)
        inboxes: list[Inbox] = []

        def opener(inbox: Inbox, grant: int, columnar: bool) -> int:
            stream = driver.open("channel", payload, credit=grant, timeout=self._timeout)
            driver.inboxes[stream] = inbox
            outbox = driver.sources.outboxes[stream] = Outbox(iter(()), inbox, False)
            outbox.running = True  # no source: the steps send, and the outbox is removed when nothing more is wanted
            inboxes.append(inbox)
            return stream

        items = ItemStream(driver, self._credit, opener, self._timeout)
        stream = items.begin()
        self._steps = SessionSteps(driver, items, inboxes[0], stream, notation, self._timeout)
        return Chan(machine, self._steps)

    def __exit__(self, *_: object) -> None:
        if self._steps is not None:
            self._steps.close()


class MonitoredItems(ItemStream):
    """The items of a channel, checked against a session type when they are consumed."""

    def __init__(
        self, driver: Driver, credit: Kept, opener: Opener, timeout: float | None, notation: Monitored
    ) -> None:
        self._notation = notation
        super().__init__(driver, credit, opener, timeout)

    def cancel(self) -> None:
        """Cancel the stream; items that were not consumed are dropped. Idempotent."""
        super().cancel()
        self._notation.monitor.over = True

    def _advance(self) -> bool:
        if super()._advance():
            self._items = map(self._check, list(self._part))
            return True
        self._at_end()
        return False

    def _next_block(self) -> Items | Block | None:
        block = super()._next_block()
        if block is None:
            self._at_end()
        else:
            for item in payloads_of(block):
                self._check(item)
        return block

    def _at_end(self) -> None:
        """The peer sends no more items."""
        try:
            self._notation.ended()
        except SessionViolation as violation:
            self._violated(violation)
            raise

    def _check(self, item: Payload) -> Payload:
        try:
            self._notation.received(item)
        except SessionViolation as violation:
            self._violated(violation)
            raise
        return item

    def _violated(self, violation: SessionViolation) -> None:
        """End the channel: the peer receives the error."""
        driver = self._driver
        with driver.guard:
            if self.id is not None and driver.forget(self.id):
                driver.engine.fail(self.id, violation)
                driver.write()
        self.cancel()


def checked(source: Iterable[PayloadLike], notation: Monitored) -> Iterator[Payload]:
    """Yield the items of a source, each after its step was taken.

    Raises:
        SessionTypeError: the type expects another step.
    """
    for item in source:
        payload = payload_of(item)
        notation.sent(payload.data)
        yield payload
    notation.completed()
