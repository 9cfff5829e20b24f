"""Items in and items out of one stream under asyncio: who waits for what. No bytes and no frames live here.

1. Taking an item costs no task and no queue operation: a pass over the input arrives as one list, and
   ``__anext__`` suspends only when there is nothing.
2. Credit is granted again in batches: when half of the window has been taken.
3. An item is sent only when the peer has granted it and the transport has room. A producer is asked for one item more
   than that, because only so its end is known: completing needs no credit. It yields to the loop after
   ``loop_frames`` items or ``loop_bytes``, even if it never waits itself.
4. What a producer has made in one turn of the loop is sent at the end of that turn.
"""

# long: both halves of a stream, and each half is two classes that share their words.

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Callable, Generator, Iterable, Iterator
from contextlib import suppress
from operator import length_hint
from types import TracebackType, coroutine
from typing import TYPE_CHECKING, Any, Literal

from afflux.core.autocredit import AutoWindow, Kept, window_of
from afflux.core.credit import Window
from afflux.core.errors import Error, LocalProtocolError
from afflux.core.payload import Payload, PayloadLike, Payloads, size_of

if TYPE_CHECKING:
    from afflux.aio.driver import Driver

__all__ = ["DEFAULT_CREDIT", "Inbound", "ItemStream", "Sender", "Source"]

DEFAULT_CREDIT = 256
"Items of credit that are kept open on a stream unless the caller says otherwise."

Source = AsyncIterable[Any] | Iterable[Any]
"What a producer takes items from; each is a payload or a list of payloads."

_CHUNK = 64
"At most so many items are handed over between two looks at the credit."
_MOST = 0x7FFFFFFF
"What one grant may carry."
_SHARE = 0x4000
"Bytes that a stream's window may hold, however many others there are."


class Inbound:  # long: what the driver calls, and what the application's side calls
    """The inbound half of one stream: what has arrived and was not taken yet."""

    __slots__ = (
        "_adaptive",
        "_driver",
        "_early",
        "_granted",
        "_step",
        "asked",
        "chunks",
        "ended",
        "error",
        "id",
        "waiter",
        "window",
    )

    def __init__(self, driver: Driver, credit: Kept) -> None:
        self._driver = driver
        self.id: int | None = None
        "The stream's id; None while it is not open."
        self.asked = 0
        "Bytes of the request that will open it."
        limits, others = driver.engine.limits, len(driver.inbounds)
        share = limits.connection_bytes // 4
        window = self.window = window_of(
            credit,
            # What all windows hold has to fit the connection: with full windows nothing would be read any more.
            max(min(_SHARE, share), share // (1 + 2 * others)),
            limits.object_overhead_bytes if others else 0,
        )
        "Credit to keep open; None when all grants are by hand."
        self._adaptive = window if isinstance(window, AutoWindow) else None
        self._granted = 0
        self._early = 0
        self._step = 1 if driver.record is not None else _CHUNK if window is None else min(_CHUNK, window.step)
        self.chunks: deque[Payloads] = deque()
        self.ended = False
        "Nothing more will arrive."
        self.error: BaseException | None = None
        "Why it ended, if not in order."
        self.waiter: asyncio.Future[None] | None = None

    # What the driver calls.

    def arrived(self, payloads: Payloads, complete: bool) -> None:
        """Items of one pass."""
        self._granted -= len(payloads)
        if self._adaptive is not None:
            self._adaptive.arrived(len(payloads), self._driver.now())
        step = self._step
        if len(payloads) <= step:
            self.chunks.append(payloads)
        else:
            self.chunks.extend(payloads[i : i + step] for i in range(0, len(payloads), step))
        if complete:
            self.ended = True
        self.wake()

    def finish(self, error: BaseException | None) -> None:
        """Nothing more will arrive. The first reason counts."""
        if not self.ended:
            self.ended = True
            self.error = error
        self.wake()

    def wake(self) -> None:
        """Let the one who waits look again."""
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)

    # What the application's side calls.

    def first_grant(self, n: int) -> int:
        """The credit to open the stream with: the window and ``n`` by hand."""
        n += self._early
        self._early = 0
        if self.window is not None:
            grant = self.window.initial(self._driver.now())
            n = min(n, _MOST - grant)  # one frame carries no more
            self.window.outstanding += n
            n += grant
        n = min(n, _MOST)
        self._granted += n
        return n

    def take_back(self, credit: int, *, by_hand: bool = False) -> None:
        """The stream could not be opened with this credit: the next opening grants it again. ``by_hand``: also what the
        application has asked for itself, because nobody told it that this came to nothing."""
        self._granted -= credit
        if self.window is not None:
            self.window.outstanding -= credit
            credit -= min(credit, max(0, self.window.target - self.window.outstanding))
        if by_hand:
            self._early += credit

    def ask_early(self, n: int) -> None:
        """Ask for ``n`` by hand before the stream is open: they go with the first grant."""
        self._early += n

    def start_over(self) -> None:
        """The stream could not be opened, and whoever takes the items has heard it: it may be opened once more."""
        self.ended = False
        self.error = None

    def grant(self, n: int) -> None:
        """Ask the peer for ``n`` more by hand."""
        if self.window is not None:
            self.window.outstanding += n
        self._ask(n)

    def wait_for(self, granted: int, payloads: list[Payload]) -> None:
        """At the start: what a former process was granted, and what it was sent and has not taken."""
        self._granted = granted
        self.chunks.extend([payload] for payload in payloads)

    def reopen(self, credit: int) -> None:
        """Go on with what a former process had opened, with a window of this many items; 0 to grant by hand."""
        waiting = sum(map(len, self.chunks))
        if not credit:
            return
        self.window = Window(credit, self._driver.engine.limits.connection_bytes // 4)
        self.window.outstanding = max(0, self._granted) + waiting
        if n := self.window.initial():
            self._ask(n)

    def settle(self, chunk: Payloads) -> None:
        """The application is done with ``chunk``: free its memory budget and refill the window."""
        size = size_of(chunk)
        self._driver.consumed(size, len(chunk))
        if self.ended:
            pass  # no credit is asked for any more
        elif self.window is not None and (n := self.window.consumed(len(chunk), size, self._driver.now())):
            self._ask(n)
            if self._adaptive is not None and self._driver.record is None:
                self._step = min(_CHUNK, self._adaptive.step)
        if self.id is not None:
            self._driver.settled(self.id, len(chunk))

    def told_end(self) -> None:
        """The application hears the end."""
        if self.id is not None:
            self._driver.forget(self.id)

    async def arrival(self) -> None:
        """Wait until something arrives, or the end does."""
        if self.waiter is not None:
            raise RuntimeError("another task waits for this stream's next item")
        driver = self._driver
        self.waiter = driver.loop.create_future()
        if self.id is None:
            driver.unopened.setdefault(self)
        try:
            await self.waiter
        finally:
            self.waiter = None
            if driver.unopened.get(self, self) is None:
                del driver.unopened[self]

    async def writable(self) -> None:
        """Wait until a request may be queued, on the next connection if this one is over."""
        if self._driver.over and self._driver.renew is not None:
            self._driver = await self._driver.renew()
        await self._driver.writable(self.asked)

    @property
    def driver(self) -> Driver:
        """The connection that the stream belongs to."""
        return self._driver

    def later(self, work: Callable[[], None]) -> None:
        """Do ``work`` on the loop's thread; nothing when the loop is closed, and the connection with it."""
        with suppress(RuntimeError):
            self._driver.loop.call_soon_threadsafe(work)

    def drop(self) -> None:
        """Give up what has arrived and was not taken: its budget is free; no more is asked for."""
        while self.chunks:
            chunk = self.chunks.popleft()
            self._driver.consumed(size_of(chunk), len(chunk))
        self.told_end()

    @property
    def held(self) -> int:
        """Bytes that have arrived and were not taken."""
        return sum(map(size_of, self.chunks))

    @property
    def granted(self) -> int:
        """Items granted and not arrived."""
        return self._granted

    def _ask(self, n: int) -> None:
        if self.id is None:
            self._early += n  # a channel is opened by its source's first item: it goes with the first grant
        elif not self.ended:
            self._granted += n
            self._driver.engine.request(self.id, n)
            if self.chunks:
                # The peer makes more while the application takes the rest; otherwise the two would work in turn.
                # 64 B items with a window of 256: 0.80 → 1.15 M/s, with the same CPU.
                self._driver.flush_early()
            else:
                self._driver.flush_soon()


class ItemStream(AsyncIterator[Payload]):
    """The items of one stream.

    ``async for`` takes them; leaving the loop early gives the stream up, at once where objects die when their last
    reference goes (CPython), and certainly with ``async with``. The stream opens on first use: with ``async for``,
    ``async with`` or ``request``. One task at a time may iterate.
    """

    __slots__ = ("_chunk", "_inbound", "_items", "_loop_thread", "_open", "_stop", "first")

    def __init__(
        self,
        inbound: Inbound,
        *,
        opener: Callable[[int], None] | None,
        stop: Callable[[], None],
        first: Payload | None = None,
    ) -> None:
        self.first = first
        "At a channel's handler: the first item, which is also taken as the first; its metadata has the route."
        self._inbound = inbound
        self._open = opener
        self._stop = stop
        self._chunk: Payloads = []
        self._items: Iterator[Payload] = iter(())
        self._loop_thread = threading.get_ident()

    @property
    def id(self) -> int | None:
        """The stream's id; None while it is not open."""
        return self._inbound.id

    def __aiter__(self) -> ItemStream:
        return self

    async def __anext__(self) -> Payload:
        for item in self._items:
            return item
        if await self._advance():
            return next(self._items)
        raise StopAsyncIteration

    async def batches(self) -> AsyncIterator[list[Payload]]:
        """The items as they arrived together: the fast way through a busy stream. Credit follows by batch."""
        rest = list(self._items)
        if rest:
            yield rest
        while await self._advance():
            self._items = iter(())
            yield list(self._chunk)

    def request(self, n: int) -> None:
        """Grant ``n`` more items by hand, 1 to 2^31-1, or what the protocol has (rsio: 2^63-1).

        Raises:
            LocalProtocolError: ``n`` is out of range.
        """
        most = self._inbound.driver.engine.most_credit
        if not 0 < n <= most:
            raise LocalProtocolError(f"a grant is 1 to {most}, not {n}", rule="FC-24", stream=self.id)
        self._start(n)

    def cancel(self) -> None:
        """Take no more. Iterating ends; what has arrived and was not taken is dropped. Twice does no harm."""
        self._items = iter(())
        self._chunk, chunk = [], self._chunk
        self._open = None
        if chunk:
            self._inbound.settle(chunk)
        self._stop()
        self._inbound.finish(None)
        self._inbound.error = None
        self._inbound.drop()

    async def aclose(self) -> None:
        """Cancel, unless it has ended."""
        self.cancel()

    def limited_by(self) -> Literal["application", "peer", "credit", "ended"]:
        """What the next item waits for: "application" (it has not taken what came, or not enough for more credit),
        "peer" (credit is granted and it sends nothing), "credit" (none is granted by hand) or "ended"."""
        if self._inbound.chunks or length_hint(self._items):
            return "application"
        if self._inbound.ended:
            return "ended"
        if self._inbound.granted > 0:
            return "peer"
        return "credit" if self._inbound.window is None else "application"

    async def __aenter__(self) -> ItemStream:
        if self._inbound.window is not None:
            await self._begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __del__(self) -> None:
        inbound = self._inbound
        if inbound.ended and not inbound.chunks and not self._chunk:
            return
        if threading.get_ident() == self._loop_thread:
            self._give_up()
            return
        inbound.later(self._stop)

    def _give_up(self) -> None:
        with suppress(Error):  # the connection is over: nothing to cancel
            self.cancel()

    def _start(self, n: int) -> None:
        if self._open is not None:
            self._open(n)
            self._open = None  # not before: if opening fails nothing was sent, and the next use tries again
        elif n:
            self._inbound.grant(n)

    async def _begin(self) -> None:
        """Open the stream, when there is room for the request."""
        if self._open is not None:
            await self._inbound.writable()
            self._start(0)

    async def _advance(self) -> bool:
        """Take the next chunk, waiting for it; False at the end."""
        inbound = self._inbound
        if self._chunk:
            chunk, self._chunk = self._chunk, []
            inbound.settle(chunk)
        elif self._open is not None and inbound.window is not None and not inbound.ended:
            await self._begin()
        while not inbound.chunks:
            if inbound.ended:
                inbound.told_end()
                if (error := inbound.error) is not None:
                    # A copy: with the traceback of this one, the stream and the error would hold each other.
                    raise error.again() if isinstance(error, Error) else error
                return False
            await inbound.arrival()
        self._chunk = inbound.chunks.popleft()
        self._items = iter(list(self._chunk))
        return True


class Over(Exception):  # noqa: N818 -- a way out of the producer, never seen outside
    """The peer wants nothing more."""


class Sender:
    """The outbound half of one stream: a producer's items, within credit and room."""

    __slots__ = (
        "_batch",
        "_burst",
        "_bytes",
        "_called",
        "_driver",
        "_promised",
        "_quota",
        "_size",
        "_small",
        "_turn",
        "_waiter",
        "failure",
        "id",
        "over",
        "task",
    )

    def __init__(self, driver: Driver, id: int) -> None:
        self._driver = driver
        self.id = id
        "The stream's id."
        self.over = False
        "The peer wants nothing more, or the stream is over."
        self.task: asyncio.Task[Any] | None = None
        "What makes the items, if it is to end with the stream; a handler's is canceled by serving.py."
        self.failure: Exception | None = None
        "Why an item that was made could not be sent."
        self._batch: list[PayloadLike] = []
        self._size = 0
        self._quota = 0
        self._bytes = 0
        self._small = driver.loop_bytes // driver.loop_frames
        self._burst = 0
        self._called = False
        self._promised = 0
        self._turn = -1
        self._waiter: asyncio.Future[None] | None = None

    @property
    def starved(self) -> bool:
        """Whether it has something to send and waits for the peer's credit."""
        return self._waiter is not None and not self.over and self._driver.engine.credit(self.id) <= 0

    def wake(self) -> None:
        """What it waits for may have come. Who waits in order, for room, keeps its place, whatever else comes."""
        if self not in self._driver.parked and self not in self._driver.piled:
            self._go_on()

    def call(self) -> None:
        """It is the turn of who waits for room. It keeps its place until it has got some."""
        self._called = True
        self._go_on()

    def stop(self) -> None:
        """Nothing more is wanted. A task that belongs to this stream alone ends, whatever its source waits for."""
        self.over = True
        self._batch.clear()
        self._go_on()
        if self.task is not None:
            self.task.cancel()

    def _go_on(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def send_all(self, source: Source) -> None:
        """Send all items of ``source``, then complete this half. Returns early when nothing more is wanted.

        Raises:
            Exception: whatever the source raises; the caller tells the peer.
        """
        driver = self._driver
        driver.producing += 1
        try:
            if isinstance(source, AsyncIterable):
                await self._send_async(source)
            else:
                await self._send_plain(iter(source))
            batch, self._batch = self._batch, []
            if self.failure is not None:
                raise self.failure
            if not self.over:
                driver.engine.send(self.id, batch, complete=True) if batch else driver.engine.complete(self.id)
        except Over:
            pass
        except BaseException:
            self.flush()  # what was made before goes first
            raise
        finally:
            driver.producing -= 1
            driver.flush_soon()

    def push(self) -> None:
        """Send what the producer has made so far."""
        batch = self._batch
        if batch:
            self._quota -= len(batch)
            self._burst += len(batch)
            self._bytes -= self._size
            self._size = 0
            self._give_back()
            try:
                if not self.over:
                    self._driver.engine.send(self.id, batch)
            finally:
                batch.clear()

    def flush(self) -> None:
        """The same at the end of a turn; what goes wrong is the producer's to hear, though it may wait for ever."""
        try:
            self.push()
        except Exception as error:
            self.failure = error
            if self.task is not None:
                self.task.cancel()
            self._driver.owner.failed(self, error)

    async def _send_async(self, source: AsyncIterable[Any]) -> None:
        await self._ready()
        driver, batch, small = self._driver, self._batch, self._small
        full = False
        async for item in source:
            if full:
                await self._next_quota()
                full = False
            if type(item) is list:
                await self._send_list(item)
                full = self._quota <= 0 or self._bytes <= 0
                continue
            if (size := len(item)) > small:
                if size > driver.loop_bytes:
                    await self._send_large(item, size)
                    full = True
                    continue
                self._size += size
            batch.append(item)
            count = len(batch)
            if count == 1:
                driver.dirty.append(self)
                driver.flush_soon()
                if driver.producing > 1 and self._turn != driver.turn:
                    self._claim()  # what was promised in another turn is not there any more
            full = count >= self._quota or self._size >= self._bytes

    async def _send_plain(self, source: Iterator[Any]) -> None:
        await self._ready()
        batch, small = self._batch, self._small
        full = False
        for item in source:
            if full:
                await self._next_quota()
                full = False
            if type(item) is list:
                await self._send_list(item)
                full = self._quota <= 0 or self._bytes <= 0
                continue
            if (size := len(item)) > small:
                if size > self._driver.loop_bytes:
                    await self._send_large(item, size)
                    full = True
                    continue
                self._size += size
            batch.append(item)
            full = len(batch) >= self._quota or self._size >= self._bytes

    async def _send_list(self, items: list[PayloadLike]) -> None:
        """Several items at once; nothing waits in the batch afterwards."""
        self.push()
        start = 0
        while start < len(items):
            if self._quota <= 0 or self._bytes <= 0 or self.over:
                await self._next_quota()
            stop = start
            end = min(len(items), start + self._quota)
            while stop < end and self._bytes > 0:
                self._bytes -= len(items[stop])
                stop += 1
            if len(items[stop - 1]) > self._driver.loop_bytes:
                await self._until_others_are_sent()
            self._quota -= stop - start
            self._burst += stop - start
            self._give_back()
            self._driver.engine.send(self.id, items[start:stop])
            self._driver.flush_soon()
            start = stop

    async def _send_large(self, item: PayloadLike, size: int) -> None:
        """Send an item that may fill the room alone."""
        self.push()
        await self._until_others_are_sent()
        self._batch.append(item)
        self._size = size
        self.push()
        self._driver.flush_soon()

    async def _next_quota(self) -> None:
        self.push()
        self._driver.flush_soon()
        if self._burst >= self._driver.loop_frames or self._bytes <= 0:
            self._burst = 0
            await _turn()
        await self._ready()

    async def _ready(self) -> None:
        """Wait until one item at least may be made, and say how many.

        Raises:
            Over: nothing more is wanted.
        """
        driver = self._driver
        parked = driver.parked
        try:
            while True:
                if self.failure is not None:
                    raise self.failure
                if self.over:
                    raise Over
                credit = driver.engine.credit(self.id)
                if credit > 0:
                    if driver.room_beside() <= driver.promised or (parked and not self._called):
                        parked.setdefault(self)
                        driver.flush_soon()  # promises end with the turn
                    elif driver.producing == 1 or driver.fair is None or not driver.fair.behind(self.id):
                        self._quota = credit
                        self._claim()
                        return
                await self._wait()
        finally:
            parked.pop(self, None)
            if parked and self._called:
                driver.flush_soon()  # the next ones are looked at, though this one's source may have nothing for long

    async def _until_others_are_sent(self) -> None:
        """Wait with a large item while another one is being sent: each may pass the room, and only one does.

        Raises:
            Over: nothing more is wanted.
        """
        driver = self._driver
        piled = driver.piled
        try:
            while not self.over and (driver.room() <= 0 or (piled and not self._called)):
                piled.setdefault(self)
                await self._wait()
        finally:
            piled.pop(self, None)
        if self.over:
            raise Over

    async def _wait(self) -> None:
        """Wait for credit or room, or the end."""
        self._burst = 0
        self._called = False
        self._waiter = self._driver.loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _claim(self) -> None:
        """Take a share of the room for this turn, at least one item. Small items are not weighed one by one: there are
        never more of them than fit. With many producers each gets a good share in its turn, not a small one at once:
        what it costs to wake one is for 256 items then."""
        driver = self._driver
        share = max(0, min(driver.room_beside() - driver.promised, driver.loop_bytes))
        self._quota = min(self._quota, max(1, share // self._small))
        self._bytes = max(1, share)
        self._promised = share
        self._turn = driver.turn
        driver.promised += share

    def _give_back(self) -> None:
        """What was promised is used: the engine counts it from now on."""
        if self._turn == self._driver.turn:
            self._driver.promised -= self._promised
        self._promised = 0
        self._turn = -1


@coroutine
def _turn() -> Generator[None, None, None]:
    """Let the loop do one turn."""
    yield
