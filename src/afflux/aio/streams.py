"""Track the live streams of one connection, and pass each event to the stream that it concerns.

Streams are canceled no faster than a peer with the same limits accepts (``cancel_bucket``).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from afflux.aio.input import Input
from afflux.aio.state import State
from afflux.core.bucket import Bucket
from afflux.core.errors import Error, LimitExceeded
from afflux.core.events import Acknowledged, Block, Canceled, Granted, Items, Readable
from afflux.core.payload import Payload, size_of

if TYPE_CHECKING:
    from afflux.aio.flow import Inbound
    from afflux.aio.sender import Sender
    from afflux.aio.session import Session

__all__ = ["Streams"]


class Streams:
    """The halves of streams, by stream id."""

    __slots__ = ("_cancels", "_input", "_state", "inbounds", "received", "senders", "sessions", "unopened")

    def __init__(self, state: State, input: Input) -> None:
        self._state = state
        self._input = input
        self.inbounds: dict[int, Inbound] = {}
        self.received = 0
        "Items that have arrived."
        self.senders: dict[int, Sender] = {}
        self.sessions: dict[int, Session] = {}
        "Sessions of bytes, in a protocol that has them."
        self.unopened: dict[Inbound, asyncio.Task[None] | None] = {}
        "Streams that are awaited and not open yet, with the task that produces their first item."
        self._cancels: Bucket | None = None
        "The cancels that the peer still accepts; None before the first one."

    def items(self, event: Items) -> None:
        """Items have arrived."""
        inbound = self.inbounds.get(event.stream)
        if inbound is None:
            self._input.consumed_bytes += size_of(event.payloads)
            self._input.consumed_items += len(event.payloads)
            return
        self.received += len(event.payloads)
        if event.complete:
            del self.inbounds[event.stream]
        inbound.arrived(event.payloads, event.complete)

    def block(self, event: Block) -> None:
        """Items have arrived, in one buffer."""
        buffer = event.buffer
        payloads = [Payload(buffer[start:end]) for start, end in zip(event.starts, event.ends, strict=True)]
        self.items(Items(event.stream, payloads, event.complete))

    def completed(self, stream: int) -> None:
        """The peer's half is complete."""
        if (inbound := self.inbounds.pop(stream, None)) is not None:
            inbound.finish(None)

    def failed(self, stream: int, error: Error) -> bool:
        """A stream has failed. Returns whether a task waits for the stream, and receives the error."""
        waits = False
        if (session := self.sessions.pop(stream, None)) is not None:
            waits = session.failed(error)
        if (inbound := self.inbounds.pop(stream, None)) is not None:
            waits = inbound.waiter is not None
            inbound.finish(error)
        if (sender := self.senders.pop(stream, None)) is not None:
            sender.stop()
        return waits

    def canceled(self, event: Canceled) -> None:
        """The peer wants no more items, or has canceled the whole stream (``final``)."""
        if (sender := self.senders.pop(event.stream, None)) is not None:
            sender.stop()
        elif (session := self.sessions.get(event.stream)) is not None:
            session.stop()
        if event.final:
            self.completed(event.stream)

    def granted(self, event: Granted) -> None:
        """The peer has granted credit."""
        if (sender := self.senders.get(event.stream)) is not None:
            sender.wake()
        elif (session := self.sessions.get(event.stream)) is not None:
            session.wake()

    def readable(self, event: Readable) -> None:
        """Bytes of a session have arrived."""
        if (session := self.sessions.get(event.stream)) is not None:
            session.readable(event)

    def acknowledged(self, event: Acknowledged) -> None:
        """A session's response was acknowledged, or never will be."""
        if (session := self.sessions.get(event.stream)) is not None:
            session.on_acknowledged(event)

    def wake(self, streams: list[int]) -> None:
        """Wake the senders of streams whose queue has been written."""
        for stream in streams:
            if (sender := self.senders.get(stream)) is not None:
                sender.wake()

    def cancel(self, stream: int) -> None:
        """Cancel a stream whose items are not wanted, if it is live."""
        if self.inbounds.pop(stream, None) is not None:
            self._state.engine.cancel(stream)
            self._state.driver.output.flush_soon()

    def cancel_own(self, stream: int) -> None:
        """Cancel a request or stream that this side has opened, and count the cancel."""
        state = self._state
        if self._cancels is None:
            self._cancels = Bucket(*state.engine.limits.cancel_bucket)
        self._cancels.take(1, state.now())
        state.engine.cancel(stream)
        state.driver.output.flush_soon()

    def pause(self, requests: int) -> float:
        """Return the seconds to wait before one more stream is opened, so that the peer would accept the cancels of all
        open streams, of which ``requests`` are requests."""
        cancels = self._cancels
        if cancels is None:
            return 0.0
        return cancels.wait(min(cancels.burst, requests + len(self.inbounds) + 1), self._state.now()) or 0.0

    @property
    def awaited(self) -> bool:
        """Whether a task waits for input: the next item of a stream, or credit."""
        return any(inbound.waiter is not None for inbound in self.inbounds.values()) or any(
            sender.starved for sender in self.senders.values()
        )

    def drop_largest(self) -> None:
        """End the stream that buffers most: unconsumed items fill the memory of the connection, so that the input for
        other streams cannot be read."""
        stream = max(self.inbounds, key=lambda stream: self.inbounds[stream].buffered, default=0)
        if not stream or not self.inbounds[stream].buffered:
            return
        inbound = self.inbounds[stream]
        text = "buffer-full: unconsumed items of this stream held up the others on its connection"
        inbound.finish(LimitExceeded(text, stream=stream, rule="connection_bytes"))
        inbound.drop()
        self.cancel(stream)

    def drop_all(self) -> None:
        """Free all unconsumed items: the file of the session records them as not consumed."""
        for inbound in self.inbounds.values():
            inbound.drop()

    def end(self) -> None:
        """The connection is over: end every half, once."""
        state = self._state
        reason, reason_of = state.reason(), state.reasons()
        for inbound in self.inbounds.values():
            inbound.finish(reason)
        self.inbounds.clear()
        for sender in self.senders.values():
            sender.stop()
        self.senders.clear()
        for stream, session in self.sessions.items():
            session.failed(reason_of(stream))
        self.sessions.clear()
        unopened, self.unopened = self.unopened, {}
        for inbound, producer in unopened.items():
            if producer is not None:
                producer.cancel()
            inbound.finish(state.unsent())
