"""Send the items of one stream under asyncio, within credit and room.

1. An item is sent only when the peer has granted it and there is room. A producer runs one item beyond that, to detect
   its end: completing needs no credit. It yields to the loop after ``loop_frames`` items or ``loop_bytes``, even if it
   never waits itself; while it is alone, after three items where those are larger.
2. Items that a producer has produced in one turn of the loop are sent at the end of that turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Generator, Iterable, Iterator
from types import AsyncGeneratorType, coroutine
from typing import TYPE_CHECKING, Any

from afflux.core.payload import Payload, PayloadLike, check_items, not_a_payload

if TYPE_CHECKING:
    from afflux.aio.driver import Driver

__all__ = ["Over", "Sender", "Source"]

Source = AsyncIterable[Any] | Iterable[Any]
"The source of a producer's items; each is a payload or a list of payloads."

_ASYNC = AsyncGeneratorType, AsyncIterable
"Kinds of sources with asynchronous items; the usual one first, which is found fastest."
_ALONE = 3
"Items of up to ``loop_bytes`` that a producer may send in a turn while no other is at work."


class Over(Exception):  # noqa: N818 -- leaves the producer, never seen outside
    """The peer wants no more items."""


class Sender:
    """The outbound half of one stream: a producer's items, within credit and room."""

    __slots__ = (
        "_batch",
        "_burst",
        "_bytes",
        "_called",
        "_driver",
        "_output",
        "_promised",
        "_quota",
        "_room",
        "_size",
        "_small",
        "_turn",
        "_usual",
        "_waiter",
        "completed",
        "failure",
        "id",
        "over",
        "task",
    )

    def __init__(self, driver: Driver, id: int) -> None:
        self._driver = driver
        self._output = driver.output
        self._room = driver.room
        self.id = id
        "The stream's id."
        self.over = False
        "The peer wants no more items, or the stream is over."
        self.task: asyncio.Task[Any] | None = None
        "The task that produces the items, if it is to end with the stream; handlers cancel their own."
        self.completed = False
        "The application has completed this half before its source ends."
        self.failure: Exception | None = None
        "The reason why an item that was produced could not be sent."
        self._batch: list[PayloadLike] = []
        self._size = 0
        self._quota = 0
        self._bytes = 0
        self._small = driver.room.loop_bytes // driver.room.loop_frames
        self._burst = 0
        self._called = False
        self._promised = 0
        self._turn = -1
        self._usual = 0
        self._waiter: asyncio.Future[None] | None = None

    @property
    def starved(self) -> bool:
        """Whether the producer has an item to send and waits for the peer's credit."""
        waiter = self._waiter
        return waiter is not None and not waiter.done() and not self.over and self._driver.engine.credit(self.id) <= 0

    def wake(self) -> None:
        """Continue, because credit may have come. A producer that waits for room keeps its place in the queue."""
        if self not in self._room.waiting_for_room and self not in self._room.waiting_for_large_slot:
            self._continue()

    def call(self) -> None:
        """Continue a producer that waits for room: it is the next in the queue. It stays first until it gets room."""
        self._called = True
        self._continue()

    def stop(self) -> None:
        """No more items are wanted. Cancels a task that belongs to this stream alone, even while its source waits."""
        self.over = True
        self._batch.clear()
        self._continue()
        if self.task is not None:
            self.task.cancel()

    def _continue(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def send_all(self, source: Source) -> None:
        """Send all items of ``source``, then complete this half. Returns early when no more items are wanted.

        Raises:
            Exception: any exception of the source; the caller sends it to the peer.
        """
        if type(source) is not AsyncGeneratorType:
            check_items(source)
        engine, room = self._driver.engine, self._room
        room.producing += 1
        try:
            if isinstance(source, _ASYNC):
                await self._send_async(source)
            else:
                await self._send_plain(iter(source))
            if self.completed:
                self.push()
            batch, self._batch = self._batch, []
            if self.failure is not None:
                raise self.failure
            if not self.over:
                room.sent += len(batch)
                engine.send(self.id, batch, complete=True) if batch else engine.complete(self.id)
        except Over:
            pass
        except BaseException:
            self.flush()  # items produced before go first
            raise
        finally:
            room.producing -= 1
            self._give_back()
            self._output.flush_soon()

    def complete(self) -> None:
        """Send the items produced so far, and complete this half; the source may run on, and produces no more."""
        self.push()
        if not self.over and not self.completed:
            self._driver.engine.complete(self.id)
            self.completed = True
            self._output.flush_soon()

    async def ready(self) -> None:
        """Wait until ``send_one`` may be called: for a stream whose items no source produces.

        Raises:
            Over: no more items are wanted.
        """
        if self._burst >= self._room.loop_frames:
            self._burst = 0
            await _turn()
        if not self._claims():
            await self._ready()

    def send_one(self, item: PayloadLike) -> None:
        """Send one item, after ``ready``. Raises as ``Engine.send`` does."""
        self._batch.append(item)
        self._size = len(item)
        self.push()
        self._output.flush_soon()

    @property
    def most(self) -> int:
        """The number of items that ``send_some`` may send, after ``ready``."""
        return min(self._driver.engine.credit(self.id), self._room.loop_frames)

    def send_some(self, items: list[PayloadLike]) -> None:
        """Send at most ``most`` items, after ``ready``. Raises as ``Engine.send`` does."""
        self._batch += items
        self.push()
        self._output.flush_soon()

    def push(self) -> None:
        """Send the items produced so far."""
        batch = self._batch
        if batch:
            self._quota -= len(batch)
            self._burst += len(batch)
            self._bytes -= self._size
            self._usual = self._size // len(batch)
            self._size = 0
            self._give_back()
            try:
                if self.completed:
                    raise _late()
                if not self.over:
                    self._driver.engine.send(self.id, batch)
                    self._room.sent += len(batch)
            finally:
                batch.clear()

    def flush(self) -> None:
        """Call ``push`` at the end of a turn. An error is raised in the producer, which may be waiting."""
        try:
            self.push()
        except Exception as error:
            self.failure = error
            if self.task is not None:
                self.task.cancel()
            self._driver.owner.failed(self, error)

    async def _send_async(self, source: AsyncIterable[Any]) -> None:
        if not self._claims():
            await self._ready()
        room, batch, small = self._room, self._batch, self._small
        full = False
        async for item in source:
            if full:
                await self._next_quota()
                full = False
            if (kind := type(item)) is bytes:
                size = len(item)
            elif kind is Payload and item.metadata is None:
                size = len(item.data)
            elif kind is list:
                full = await self._send_list(item)
                continue
            else:
                size = _size(item)
            if size > small:
                if size > room.loop_bytes:
                    full = await self._send_large(item, size)
                    continue
                self._size += size
            batch.append(item)
            count = len(batch)
            if count == 1:
                room.dirty.append(self)
                if not self._output.flushing:
                    self._output.flush_soon()
                if room.producing > 1 and self._turn != room.turn:
                    # A promise of another turn is not valid any more.
                    self._claim(self._output.room_beside() - room.promised)
            full = count >= self._quota or self._size >= self._bytes

    async def _send_plain(self, source: Iterator[Any]) -> None:
        if not self._claims():
            await self._ready()
        batch, small = self._batch, self._small
        full = False
        for item in source:
            if full:
                await self._next_quota()
                full = False
            if (kind := type(item)) is bytes:
                size = len(item)
            elif kind is Payload and item.metadata is None:
                size = len(item.data)
            elif kind is list:
                full = await self._send_list(item)
                continue
            else:
                size = _size(item)
            if size > small:
                if size > self._room.loop_bytes:
                    full = await self._send_large(item, size)
                    continue
                self._size += size
            batch.append(item)
            full = len(batch) >= self._quota or self._size >= self._bytes

    async def _send_list(self, items: list[PayloadLike]) -> bool:
        """Send several items together; the batch is empty afterwards. Returns whether the quota is used up."""
        self.push()
        start = 0
        while start < len(items):
            if self._quota <= 0 or self._bytes <= 0 or self.over:
                await self._next_quota()
            stop = start
            end = min(len(items), start + self._quota)
            try:
                while stop < end and self._bytes > 0:
                    self._bytes -= len(items[stop])
                    stop += 1
            except TypeError:
                raise not_a_payload(items[stop]) from None
            self._usual = len(items[stop - 1])
            if self._usual > self._room.loop_bytes:
                await self._until_others_are_sent()
            self._quota -= stop - start
            self._burst += stop - start
            self._give_back()
            self._driver.engine.send(self.id, items[start:stop])
            self._room.sent += stop - start
            self._output.flush_soon()
            start = stop
        return self._quota <= 0 or self._bytes <= 0

    async def _send_large(self, item: PayloadLike, size: int) -> bool:
        """Send an item that may fill the room by itself, and the quota with it: returns True."""
        self.push()
        await self._until_others_are_sent()
        self._batch.append(item)
        self._size = size
        self.push()
        self._output.flush_soon()
        return True

    async def _next_quota(self) -> None:
        self.push()
        self._output.flush_soon()
        if self._burst >= self._room.loop_frames or self._bytes <= 0:
            self._burst = 0
            await _turn()
        if not self._claims():
            await self._ready()

    async def _ready(self) -> None:
        """After ``_claims`` was false: wait until at least one item may be produced, and claim room for some.

        Raises:
            Over: no more items are wanted.
        """
        waiting = self._room.waiting_for_room
        try:
            await self._wait()
            while not self._claims():
                await self._wait()
        finally:
            waiting.pop(self, None)
            if waiting and self._called:
                self._output.flush_soon()  # wakes the next ones, even if this one's source produces nothing for long

    def _claims(self) -> bool:
        """Claim room for some items, and return True, if there is credit and room for one; otherwise join the queue
        for what is missing. Raises as ``_ready`` does, which waits."""
        if self.failure is not None:
            raise self.failure
        if self.over:
            raise Over
        if self.completed:
            raise _late()
        room, scheduler = self._room, self._driver.state.scheduler
        credit = self._driver.engine.credit(self.id)
        if credit <= 0:
            return False
        free = self._output.room_beside() - room.promised
        if free <= 0 or (room.waiting_for_room and not self._called):
            room.waiting_for_room.setdefault(self)
            self._output.flush_soon()  # promises end with the turn
            return False
        if room.producing > 1 and scheduler is not None and scheduler.behind(self.id):
            return False
        self._quota = credit
        self._claim(free)
        return True

    async def _until_others_are_sent(self) -> None:
        """Wait with a large item while another one is being sent: each may exceed the room, but only one at a time.

        Raises:
            Over: no more items are wanted.
        """
        waiting = self._room.waiting_for_large_slot
        try:
            while not self.over and (self._output.room() <= 0 or (waiting and not self._called)):
                waiting.setdefault(self)
                await self._wait()
        finally:
            waiting.pop(self, None)
        if self.over:
            raise Over

    def _wait(self) -> asyncio.Future[None]:
        """Return a future that is done when there may be credit or room, or at the end; the caller awaits it now."""
        self._burst = 0
        self._called = False
        waiter = self._waiter = self._driver.state.loop.create_future()
        return waiter

    def _claim(self, free: int) -> None:
        """Claim a share of the ``free`` room for this turn, at least one item. Small items are not counted by bytes:
        the quota is at most the number that fits. With many producers each gets a large share in its turn instead of a
        small one in every turn, so that 256 items share the cost of waking one. A producer that is alone gets a share
        for three of its items, where they are large: otherwise each item of 64 KiB would cost a turn."""
        room = self._room
        share = room.loop_bytes
        if room.producing == 1:
            share = max(share, _ALONE * min(self._usual, share))
        share = max(0, min(free, share))
        self._quota = min(self._quota, room.loop_frames, max(1, share // self._small))
        self._bytes = max(1, share)
        self._promised = share
        self._turn = room.turn
        room.promised += share

    def _give_back(self) -> None:
        """Return the claimed room: the engine counts the used part from now on."""
        if self._turn == self._room.turn:
            self._room.promised -= self._promised
        self._promised = 0
        self._turn = -1


def _late() -> RuntimeError:
    return RuntimeError("the handler has completed its answers: it may read on, and yields no more")


def _size(item: PayloadLike) -> int:
    """Return the bytes of one item. For a payload, this is faster than its ``__len__``.

    Raises:
        TypeError: the item has no length, so it is no payload.
    """
    if isinstance(item, Payload):
        return len(item.data) if item.metadata is None else len(item.data) + len(item.metadata)
    try:
        return len(item)
    except TypeError:
        raise not_a_payload(item) from None


@coroutine
def _turn() -> Generator[None, None, None]:
    """Let the loop run one turn."""
    yield
