"""Receive the items of one stream in a blocking program, and grant credit again as they are consumed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from operator import length_hint
from time import monotonic
from typing import TYPE_CHECKING, Literal, NoReturn

from afflux.calls.arguments import SyncOnly, blocks, check_type
from afflux.core.autocredit import Kept, window_of
from afflux.core.errors import Error, LocalProtocolError
from afflux.core.events import Block, Items
from afflux.core.payload import Payload, Payloads, size_of
from afflux.sync.driver import Driver
from afflux.sync.inbox import Inbox
from afflux.sync.lateness import late

__all__ = ["ItemStream", "Opener", "payloads_of"]

_STEP = 64
_SHARE = 0x4000
"Bytes that each of many streams may buffer: with all windows full nothing would be read any more."

Opener = Callable[[Inbox, int, bool], int | None]
"""Opens a stream, given the inbox for its items, the first credit, and whether blocks are wanted. Returns its id, or
None when there is nothing to open. It may be called again after an exception, unless that has ended the inbox."""


class ItemStream(SyncOnly):
    """The items of one stream. Iterate over it; leaving the loop early cancels the stream.

    It opens on first use: with ``for``, ``blocks``, ``next`` or ``request``. When that fails, as it does without a
    lease, nothing was sent, and the next use tries again; on a closed connection every use fails. An exception while
    waiting for an item, such as that of Ctrl-C, cancels the stream.
    """

    id: int | None = None
    "The stream's id; None while it is not open."

    def __init__(self, driver: Driver, credit: Kept, opener: Opener, timeout: float | None) -> None:
        self._driver = driver
        self._over = False
        "The stream was canceled, or has ended and was consumed."
        share, others = driver.engine.limits.connection_bytes // 4, len(driver.inboxes)
        self._window = window_of(credit, max(min(_SHARE, share), share // (1 + 2 * others)))
        self._open: Opener | None = opener
        self._opening = False
        self._timeout = timeout
        self._inbox = Inbox()
        self._early = 0
        self._primed = False
        "The window is part of the first grant."
        self._granted = 0
        self._block: Block | Items | None = None
        "The block that ``blocks`` returned last."
        self._parts: deque[Payloads] = deque()
        self._part: Payloads = []
        self._items: Iterator[Payload] = iter(())

    def __iter__(self) -> Iterator[Payload]:
        """Iterate over the items, one by one. When none arrives within ``timeout`` seconds the stream is canceled, and
        TimeoutError raised."""
        return self._each()

    if not TYPE_CHECKING:  # a type checker finds the missing method itself

        def __aiter__(self) -> NoReturn:
            raise blocks(self, 'write "for"')

    def __next__(self) -> Payload:
        """Return one item, without a loop."""
        self._begin()
        for item in self._items:
            return item
        if not self._advance():
            raise StopIteration
        return next(self._items)

    def blocks(self) -> Iterator[Block | Items]:
        """Iterate over the items as they arrived, many in one event: a Block has no object for each item, only its
        start and end in the received bytes. Items arrive instead where the bytes are not contiguous: with metadata, or
        in fragments. Requesting the next event refills the credit."""
        self._begin(columnar=True)
        try:
            while (event := self._next_block()) is not None:
                yield event
        finally:
            self._leave()

    def request(self, n: int) -> None:
        """Grant ``n`` more items by hand: 1 to 2^31-1, or the protocol's maximum (rsio: 2^63-1). The grant is written
        before this returns.

        Raises:
            LocalProtocolError: ``n`` is out of range.
            TypeError: it is not a whole number.
        """
        most = self._most
        if type(n) is not int:
            check_type("the grant of request()", n, int, "a whole number of items")
        if not 0 < n <= most:
            raise LocalProtocolError(f"a grant is 1 to {most}, not {n}", rule="FC-24", stream=self.id)
        with self._driver.guard:
            if self._window is not None:
                self._window.outstanding += n
            if self._open is not None:
                self._early += n
                if self._window is None:
                    self._begin()
            else:
                self._ask(n)
                self._driver.write()

    def begin(self) -> int:
        """Open the stream now and return its id; for streams whose opener always opens one."""
        self._begin()
        return self.id or 0

    def cancel(self) -> None:
        """Cancel the stream; items that were not consumed are dropped. Idempotent."""
        driver = self._driver
        if not driver.mine:
            self._open = None
            self._items = iter(())
            return
        with driver.guard:
            self._open = None
            self._items = iter(())
            self._drop()
            if self.id is not None and driver.forget(self.id):
                driver.cancel(self.id)
                driver.write()
            self._inbox.finish(None)
            self._over = True

    def close(self) -> None:
        """Cancel, unless it has ended."""
        self.cancel()

    def limited_by(self) -> Literal["application", "peer", "credit", "ended"]:
        """Return the reason why there is no next item: "application" (it has not consumed enough), "peer" (it has
        credit and sends nothing), "credit" (none is granted by hand) or "ended"."""
        if self._inbox.arrived or self._parts:
            return "application"
        if self._inbox.ended:
            return "ended"
        if self._granted > 0:
            return "peer"
        return "credit" if self._window is None else "application"

    def __repr__(self) -> str:
        arrived = sum(map(_count, self._inbox.arrived))
        unread = length_hint(self._items) + sum(map(len, self._parts)) + arrived
        place = "not open" if self.id is None else f"stream {self.id}, {max(0, self._granted - arrived)} granted"
        limit = self.limited_by()
        return f"<ItemStream: {place}, {unread} unread, {'' if limit == 'ended' else 'limited by '}{limit}>"

    def __enter__(self) -> ItemStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.cancel()

    def __del__(self) -> None:
        self._leave()

    # -- inside -----------------------------------------------------------------------------------------------

    @property
    def _most(self) -> int:
        return self._driver.engine.most_credit

    def _each(self) -> Iterator[Payload]:
        self._begin()
        try:
            yield from self._items
            while self._advance():
                yield from self._items
        finally:
            self._leave()

    def _leave(self) -> None:
        """Cancel the stream, from any place and thread: the garbage collector may call it."""
        if self.id is None or self._over or not (driver := self._driver).mine:
            return
        try:
            if driver.guard.idle:
                self.cancel()
                return
        except Error:  # another thread was faster
            pass
        driver.dropped.append(self)

    def _advance(self) -> bool:
        """Wait for the next items; return False at the end. The items before them count as consumed."""
        with self._driver.guard:
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

    def _next_block(self) -> Items | Block | None:
        """Return the next event. The one before it counts as consumed."""
        with self._driver.guard:
            block, self._block = self._block, None
            if block is not None:
                self._settle(*_weight(block))
            self._block = self._next_event()
            return self._block

    def _begin(self, *, columnar: bool = False) -> None:
        """Open the stream, if it is not open. No effect if that fails."""
        if self._open is None:
            return
        with self._driver.guard:
            self._driver.check()
            if self._opening:
                raise LocalProtocolError("the first item of a channel's source opens it, and cannot be made from it")
            if self._window is not None and not self._primed:
                self._primed = True
                self._early += self._window.initial(monotonic())
                if (excess := self._early - self._most) > 0:  # the maximum of one frame
                    self._window.outstanding -= excess
                    self._early = self._most
            if self._window is None and not self._early:
                raise LocalProtocolError("credit=0 grants nothing by itself: call request(n) before the first item")
            self._opening = True
            try:
                self.id = self._open(self._inbox, self._early, columnar)
            finally:
                self._opening = False
            if self._over:  # a source or a handler of a signal has canceled it meanwhile
                self.cancel()
            self._open = None
            self._granted, self._early = self._early, 0
            self._or_cancel(self._driver.write)

    def _next_event(self) -> Items | Block | None:
        """Return the next event; None at the end."""
        inbox, driver = self._inbox, self._driver
        if inbox.arrived:
            self._or_cancel(driver.pump.breathe)
        elif not inbox.ended:
            driver.check()
            self._or_cancel(self._wait)
        if inbox.arrived:
            event = inbox.arrived.popleft()
            count = _count(event)
            self._granted -= count
            if self._window is not None:
                self._window.arrived(count, monotonic())
            return event
        if (error := inbox.error) is not None:
            raise error.again() if isinstance(error, Error) else error
        return None

    def _wait(self) -> None:
        inbox = self._inbox
        if not self._driver.wait(lambda: bool(inbox.arrived) or inbox.ended, self._timeout, stream=self.id):
            raise late(f"no item within {self._timeout:g} s")

    def _or_cancel(self, work: Callable[[], None]) -> None:
        """Call ``work``, which may move bytes; cancel the stream if it raises."""
        try:
            work()
        except BaseException:
            self.cancel()
            raise

    def _settle(self, count: int, size: int) -> None:
        """The application has consumed items: free their memory budget and refill the window."""
        driver = self._driver
        driver.engine.consumed(size, count)
        if self._window is not None and (n := self._window.consumed(count, size, monotonic())):
            self._ask(n)
            self._or_cancel(driver.write)

    def _drop(self) -> None:
        """Free the budget of unconsumed items."""
        engine, block, part = self._driver.engine, self._block, self._part
        self._block, self._part = None, []
        for items in (part, *self._parts):
            engine.consumed(size_of(items), len(items))
        self._parts.clear()
        events = [] if block is None else [block]
        for event in (*events, *self._inbox.arrived):
            count, size = _weight(event)
            engine.consumed(size, count)
        self._inbox.arrived.clear()

    def _ask(self, n: int) -> None:
        if self.id is not None and not self._inbox.ended:
            self._driver.check()
            self._granted += n
            self._driver.engine.request(self.id, n)


def payloads_of(event: Items | Block) -> Payloads:
    """Return the items of an event as payloads."""
    if isinstance(event, Items):
        return event.payloads
    buffer = event.buffer
    return [Payload(buffer[start:end]) for start, end in zip(event.starts, event.ends, strict=True)]


def _count(event: Items | Block) -> int:
    return len(event.payloads) if isinstance(event, Items) else len(event.starts)


def _weight(event: Items | Block) -> tuple[int, int]:
    """Return the number of items, and of bytes."""
    if isinstance(event, Items):
        return len(event.payloads), size_of(event.payloads)
    return len(event.starts), sum(event.ends) - sum(event.starts)
