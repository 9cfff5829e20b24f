"""The items of one stream, blocking: who takes them, and when credit is granted again. No sockets here."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from time import monotonic
from types import TracebackType
from typing import Literal

from afflux.core.autocredit import Kept, window_of
from afflux.core.errors import Error, LocalProtocolError
from afflux.core.events import Block, Items
from afflux.core.payload import Payload, Payloads, size_of
from afflux.sync.driver import Driver, Inbox

__all__ = ["ItemStream", "payloads_of"]

_STEP = 64


class ItemStream:
    """The items of one stream. Iterate it; leaving the loop early gives the stream up.

    It opens on first use: with ``for``, ``with``, ``blocks`` or ``request``.
    """

    def __init__(
        self,
        driver: Driver,
        credit: Kept,
        opener: Callable[[Inbox, int, bool], int | None],
        timeout: float | None,
    ) -> None:
        self._driver = driver
        self._window = window_of(credit, driver.engine.limits.connection_bytes // 4)
        self._open: Callable[[Inbox, int, bool], int | None] | None = opener
        self._timeout = timeout
        self._inbox = Inbox()
        self._early = 0
        self._granted = 0
        self._parts: deque[Payloads] = deque()
        self._part: Payloads = []
        self._items: Iterator[Payload] = iter(())
        self.id: int | None = None
        "The stream's id; None while it is not open."

    def __iter__(self) -> Iterator[Payload]:
        """The items, one by one. When none comes within ``timeout`` seconds the stream is canceled, and
        TimeoutError raised."""
        return self._each()

    def __next__(self) -> Payload:
        """One item; for those who do not loop."""
        self._begin()
        for item in self._items:
            return item
        if not self._advance():
            raise StopIteration
        return next(self._items)

    def blocks(self) -> Iterator[Block | Items]:
        """The items as they arrived, many at once: a Block has no object for each item, only where it starts and
        ends in the received bytes. Items come where the bytes do not stand in a row: with metadata, or cut into
        fragments. Credit follows when the next one is asked for."""
        try:
            self._begin(columnar=True)
            while (event := self._next_event()) is not None:
                yield event
                self._settle(*_weight(event))
        finally:
            self.cancel()

    def request(self, n: int) -> None:
        """Grant ``n`` more items by hand, 1 to 2^31-1, or what the protocol has (rsio: 2^63-1); it is on its way when
        this returns.

        Raises:
            LocalProtocolError: ``n`` is out of range.
        """
        most = getattr(self._driver.engine, "most_credit", 0x7FFFFFFF)
        if not 0 < n <= most:
            raise LocalProtocolError(f"a grant is 1 to {most}, not {n}", rule="R-26", stream=self.id)
        if self._window is not None:
            self._window.outstanding += n
        if self._open is not None:
            self._early += n
            if self._window is None:
                self._begin()
        else:
            self._ask(n)
            self._driver.write()

    def cancel(self) -> None:
        """Take no more. What has arrived and was not taken is dropped. Twice does no harm."""
        self._open = None
        self._items = iter(())
        driver = self._driver
        if self.id is None or not driver.mine:
            return
        for part in (self._part, *self._parts):
            driver.engine.consumed(size_of(part), len(part))
        self._part = []
        self._parts.clear()
        while self._inbox.arrived:
            count, size = _weight(self._inbox.arrived.popleft())
            driver.engine.consumed(size, count)
        if driver.inboxes.pop(self.id, None) is not None:
            driver.outboxes.pop(self.id, None)
            self._inbox.finish(None)
            driver.engine.cancel(self.id)
            driver.write()

    def close(self) -> None:
        """Cancel, unless it has ended."""
        self.cancel()

    def limited_by(self) -> Literal["application", "peer", "credit", "ended"]:
        """What the next item waits for: "application" (it has not taken what came, or not enough for more credit),
        "peer" (credit is granted and it sends nothing), "credit" (none is granted by hand) or "ended"."""
        if self._inbox.arrived or self._parts:
            return "application"
        if self._inbox.ended:
            return "ended"
        if self._granted > 0:
            return "peer"
        return "credit" if self._window is None else "application"

    def __enter__(self) -> ItemStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cancel()

    def __del__(self) -> None:
        with suppress(Error, OSError):
            self.cancel()

    # -- inside -----------------------------------------------------------------------------------------------

    def _each(self) -> Iterator[Payload]:
        try:
            self._begin()
            yield from self._items
            while self._advance():
                yield from self._items
        finally:
            self.cancel()

    def _advance(self) -> bool:
        """Take the next items, waiting for them; False at the end. Those before them count as done with."""
        part, self._part = self._part, []
        if part:
            self._settle(len(part), size_of(part))
        if not self._parts:
            event = self._next_event()
            if event is None:
                return False
            payloads, step = payloads_of(event), _STEP if self._window is None else min(_STEP, self._window.step)
            self._parts.extend(payloads[start : start + step] for start in range(0, len(payloads), step))
        self._part = self._parts.popleft()
        self._items = iter(list(self._part))
        return True

    def _begin(self, *, columnar: bool = False) -> None:
        """Open the stream, if that was not done."""
        if self._open is None:
            return
        self._driver.check()
        opener, self._open = self._open, None
        grant, self._early = self._early, 0
        if self._window is not None:
            grant += self._window.initial(monotonic())
        self._granted = grant
        self.id = opener(self._inbox, grant, columnar)
        self._driver.write()

    def _next_event(self) -> Items | Block | None:
        """What arrived next; None at the end."""
        inbox, driver = self._inbox, self._driver
        if inbox.arrived:
            driver.breathe()
        elif not inbox.ended:
            driver.check()
            if not driver.wait(lambda: bool(inbox.arrived) or inbox.ended, self._timeout):
                self.cancel()
                raise TimeoutError(f"no item within {self._timeout:g} s")
        if inbox.arrived:
            event = inbox.arrived.popleft()
            count = _count(event)
            self._granted -= count
            if self._window is not None:
                self._window.arrived(count, monotonic())
            return event
        if inbox.error is not None:
            raise inbox.error
        return None

    def _settle(self, count: int, size: int) -> None:
        """The application is done with some items: free their memory budget and refill the window."""
        driver = self._driver
        driver.engine.consumed(size, count)
        if self._window is not None and (n := self._window.consumed(count, size, monotonic())):
            self._ask(n)
            driver.write()

    def _ask(self, n: int) -> None:
        if self.id is not None and not self._inbox.ended:
            self._driver.check()
            self._granted += n
            self._driver.engine.request(self.id, n)


def payloads_of(event: Items | Block) -> Payloads:
    """The items of an event, an object for each."""
    if isinstance(event, Items):
        return event.payloads
    buffer = event.buffer
    return [Payload(buffer[start:end]) for start, end in zip(event.starts, event.ends, strict=True)]


def _count(event: Items | Block) -> int:
    return len(event.payloads) if isinstance(event, Items) else len(event.starts)


def _weight(event: Items | Block) -> tuple[int, int]:
    """How many items, and how many bytes."""
    if isinstance(event, Items):
        return len(event.payloads), size_of(event.payloads)
    return len(event.starts), sum(event.ends) - sum(event.starts)
