"""Resume the streams that a former process of this client opened and did not finish.

``resume/recovery.py`` restarts the handlers of a former process.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from afflux.aio.flow import DEFAULT_CREDIT, Inbound, ItemStream
from afflux.aio.opening import Channel, fail_channel
from afflux.aio.sender import Sender, Source
from afflux.calls import metadata_mime_of, route_in
from afflux.core.errors import LocalProtocolError
from afflux.core.events import Verb
from afflux.core.payload import Payload

if TYPE_CHECKING:
    from afflux.aio.driver import Driver
    from afflux.resume.record import Asked, Record

__all__ = ["Unfinished", "unfinished_of"]


class Unfinished:
    """A stream that a former process has opened and not finished. Claim it once, with the method for its verb.

    Closing the connection cancels the streams that were not claimed.
    """

    def __init__(self, driver: Driver, stream: int, asked: Asked) -> None:
        self._driver = driver
        self.stream = stream
        "The stream's id."
        self.verb: Verb = asked.verb
        "request, stream or channel."
        self.payload: Payload = asked.payload
        "The request; for a channel also its first item. Empty when storing it would have exceeded ``resume_bytes``."
        self.taken = asked.taken
        "Items that the former process has consumed: the next one has this number, counted from 0."
        session = driver.engine.resumption
        sent, _, owed = (None if session is None else session.stream_counters(stream)) or (0, 0, 0)
        self.sent = sent
        "Items of a channel that the former process has sent, the request among them. 0 if no more can be sent."
        self._claimed = False
        self._answer: asyncio.Future[Payload] | None = None
        self._inbound: Inbound | None = None
        if asked.verb == "request":
            self._answer = self._reply(asked)
        else:
            self._inbound = self._arrivals(asked, owed)

    @property
    def route(self) -> str | None:
        """The route of the request; None when it has none.

        Raises:
            Invalid: the metadata cannot be read.
        """
        return route_in(self.payload, metadata_mime_of(self._driver.engine))

    async def answer(self) -> Payload:
        """Return the answer of a request, as ``Peer.request`` would have returned it.

        Raises:
            LocalProtocolError: the stream is not a request, or was claimed before.
            Error: see ``Peer.request``.
        """
        if self._answer is None:
            raise LocalProtocolError(f"stream {self.stream} is a {self.verb}: use items()", stream=self.stream)
        self._claim()
        try:
            return await self._answer
        except asyncio.CancelledError:
            self._cancel()
            raise
        finally:
            self._driver.forget(self.stream)

    def items(self, *, credit: int = DEFAULT_CREDIT, source: Source | None = None) -> ItemStream:
        """Return the unconsumed items, and those that follow, as ``Peer.stream`` and ``Peer.channel`` do.

        Args:
            credit: how many items may be in flight or unconsumed here, including those granted before; 0 to grant by
                hand.
            source: at a channel, the items to send after the ``sent`` items of before; None completes that half.

        Raises:
            LocalProtocolError: the stream is a request, or was claimed before.
        """
        inbound = self._inbound
        if inbound is None:
            raise LocalProtocolError(f"stream {self.stream} is a request: await its answer", stream=self.stream)
        self._claim()
        inbound.reopen(credit)
        if self.verb == "stream":
            return ItemStream(inbound, opener=None, stop=self._stop)
        driver, producer = self._driver, None
        if self.sent and not driver.state.over:
            producer = driver.tasks.spawn(_send_rest(driver, self.stream, () if source is None else source, inbound))
        return Channel(inbound, (), (), self._stop).continue_with(producer)

    async def cancel(self) -> None:
        """Cancel the stream at the peer. No-op for a stream that was claimed, or is over."""
        if not self._claimed:
            self._claimed = True
            self._cancel()

    def _claim(self) -> None:
        if self._claimed:
            raise LocalProtocolError(f"stream {self.stream} was claimed before", stream=self.stream)
        self._claimed = True

    def _cancel(self) -> None:
        driver = self._driver
        if driver.calls.replies.pop(self.stream, None) is not None:
            driver.engine.cancel(self.stream)
            driver.calls.wake()
        self._stop()
        if self._inbound is not None:
            self._inbound.drop()
        driver.forget(self.stream)
        driver.output.flush_soon()

    def _stop(self) -> None:
        self._driver.streams.cancel(self.stream)

    def _reply(self, asked: Asked) -> asyncio.Future[Payload]:
        future: asyncio.Future[Payload] = self._driver.state.loop.create_future()
        future.add_done_callback(lambda done: done.cancelled() or done.exception())  # retrieved, even if never claimed
        if asked.waiting:
            future.set_result(asked.waiting.pop())
        elif asked.error is not None:
            future.set_exception(asked.error)
        elif asked.ended:
            future.set_result(Payload())
        else:
            self._driver.calls.replies[self.stream] = future
        return future

    def _arrivals(self, asked: Asked, owed: int) -> Inbound:
        inbound = Inbound(self._driver, 0)
        inbound.id = self.stream
        inbound.wait_for(owed, asked.waiting)
        if asked.ended:
            inbound.finish(asked.error)
        else:
            self._driver.streams.inbounds[self.stream] = inbound
        asked.waiting = []
        return inbound

    def __repr__(self) -> str:
        return f"<Unfinished {self.verb} {self.stream}, {self.taken} taken>"


def unfinished_of(driver: Driver, record: Record) -> tuple[Unfinished, ...]:
    """Return the unfinished streams of a client, in the order of ids."""
    return tuple(Unfinished(driver, stream, asked) for stream, asked in sorted(record.asked.items()))


async def _send_rest(driver: Driver, stream: int, source: Source, inbound: Inbound) -> None:
    """Send the rest of the requester's half of a channel."""
    sender = driver.streams.senders[stream] = Sender(driver, stream)
    sender.task = asyncio.current_task()
    try:
        await sender.send_all(source)
    except (Exception, asyncio.CancelledError) as error:
        failure = error if isinstance(error, Exception) else sender.failure
        if failure is None:
            raise
        fail_channel(driver, inbound, failure)
    finally:
        driver.streams.senders.pop(stream, None)
        if hasattr(source, "aclose"):
            await source.aclose()
