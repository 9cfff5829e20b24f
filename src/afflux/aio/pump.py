"""Move bytes and timeouts between an engine and its asyncio transport: asyncio's protocol object of one connection.

1. Input goes to ``Input``, output comes from ``Output``; the engine's events go to the driver.
2. A session that can be resumed outlives its transport: ``detach`` and ``part`` release the old one,
   ``connection_made`` and ``adopt`` attach the next.
3. A connection that has ended has ``flush_s`` to send its last frames.
"""

from __future__ import annotations

import asyncio
from typing import cast

from afflux.aio.input import Input
from afflux.aio.memory import MemoryUse
from afflux.aio.output import Output
from afflux.aio.state import State
from afflux.core.errors import Error, RemoteProtocolError
from afflux.core.limits import Limits
from afflux.transports.address import Address
from afflux.transports.reading import Deaf, Receiver
from afflux.transports.strangers import answer_to, stranger_at

__all__ = ["Pump"]


class Pump(Receiver):
    """One engine on one transport, as an asyncio protocol."""

    # Slots: a dictionary for each of 10,000 connections takes 16 MiB (docs/how-to/many.md).
    __slots__ = ("_expects", "_linger", "_view", "answers", "input", "memory", "output", "state")

    def __init__(self, state: State, expects: Address | None) -> None:
        self._view: memoryview | None = None
        self.state = state
        self.input = Input(state)
        self.memory = MemoryUse(state, self.input)
        self.output = Output(state, self.input, self.memory)
        self._expects = expects
        self.answers = False
        "This side is a server: it reports to a peer of another protocol the reason of the refusal."
        self._linger: asyncio.TimerHandle | None = None

    @property
    def limits(self) -> Limits:
        """The bounds of the connection."""
        return self.state.engine.limits

    # -- asyncio.BufferedProtocol -------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Attach the transport, and write what is queued."""
        state = self.state
        state.transport = cast("asyncio.Transport", transport)
        if state.over:
            state.loop.call_soon(state.transport.abort)  # in the next turn: uvloop has yet to prepare the socket
            return
        if state.watch is not None:
            info = transport.get_extra_info
            state.watch.connected(state.now(), info("sockname"), info("peername"))
        low = self.output.low
        state.transport.set_write_buffer_limits(high=low, low=low // 4)
        if state.away:
            state.away = False
            if (resumption := state.engine.resumption) is not None and resumption.suspended:
                state.run(resumption.reconnect, state.now())
        self.output.flush()

    def buffer_updated(self, nbytes: int) -> None:
        """Run one pass over a read, without copying it where possible."""
        input = self.input
        if self.state.over:
            input.discard(nbytes)
        elif self._view is not None and self._expects is None and not input.held and nbytes <= input.piece:
            view = self._view[:nbytes]
            try:
                input.take(view)
            finally:
                view.release()
        else:
            super().buffer_updated(nbytes)

    def data_received(self, data: bytes) -> None:
        """Run one or more passes over the input."""
        if self.state.over:
            self.input.discard(len(data))
            return
        if self._expects is not None:
            expects, self._expects = self._expects, None
            if reason := stranger_at(expects, data, client=self.answers):
                self._refuse_foreign(expects, data, reason)
                return
        self.input.receive(data)

    def held_below(self, size: int) -> None:
        """The transport buffers ``size`` bytes of an incomplete message."""
        if size != self.memory.below:
            self.memory.below = size
            self.memory.report()

    def eof_received(self) -> bool:
        """The peer has ended its half, which ends the connection (SL-03), unless its engine has more to send."""
        state = self.state
        self.output.peer_ended = True
        if state.left:
            return False
        state.run(state.engine.receive_eof, state.now())
        transport = state.transport
        return transport is not None and not state.engine.closed and transport.can_write_eof()

    def connection_lost(self, exc: Exception | None) -> None:
        """The transport is gone. A transport that can name the reason passes an afflux error."""
        state = self.state
        if state.left:  # it was aborted before it had this transport
            return
        if isinstance(exc, Error) and not state.over and not state.resumable:
            state.lost = True
            state.driver.end(exc)
        if not state.engine.closed:
            state.run(state.engine.receive_eof, state.now())
        if state.away:
            return
        if not state.engine.closed:  # the call above ended the peer's half; this half is gone as well
            state.run(state.engine.receive_eof, state.now())
        state.lost = True
        state.driver.end(None)
        self.stop_timers()
        self.memory.report()
        state.driver.parted()

    def pause_writing(self) -> None:
        """The transport has buffered enough: requests wait from now on."""
        self.output.blocked = True
        if not self.state.left:
            self.state.driver.calls.batch_budget = 0
        self.input.check()

    def resume_writing(self) -> None:
        """The transport has room again."""
        self.output.blocked = False
        self.output.flush()

    # -- another transport ----------------------------------------------------------------------------------

    def detach(self) -> None:
        """The transport is over, the session continues: write the last frames, and release the transport."""
        if (transport := self.state.transport) is not None:
            self.output.write_rest(transport)
        self.part()

    def part(self) -> None:
        """Release the transport without sending anything more."""
        state = self.state
        transport, _ = self.release()
        state.away = True
        if transport is not None:
            transport.set_protocol(Deaf())
            transport.close()
            state.loop.call_later(state.engine.limits.flush_s, transport.abort)

    def release(self) -> tuple[asyncio.Transport | None, bytes]:
        """Release the transport. Returns it, and bytes that were read from it and wait for a pass."""
        transport, self.state.transport = self.state.transport, None
        self.stop_timers()
        self.output.reset()
        return transport, self.input.reset()

    def adopt(self, transport: asyncio.Transport, rest: bytes) -> None:
        """Continue on a transport that another pump has released; ``rest`` was read from it already."""
        transport.set_protocol(self)
        if not transport.is_reading():
            transport.resume_reading()
        self.connection_made(transport)
        if rest:
            self.data_received(rest)

    def linger(self) -> None:
        """The connection has ended: allow ``flush_s`` for its last frames."""
        state = self.state
        if state.transport is None:
            state.lost, state.away = True, False
            self.stop_timers()
        elif not state.lost:
            self._linger = state.loop.call_later(state.engine.limits.flush_s, state.transport.abort)

    def stop_timers(self) -> None:
        """Cancel all timers."""
        self.state.stop_timer()
        self.input.stop()
        self.output.stop()
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None

    def _refuse_foreign(self, expects: Address, data: bytes, text: str) -> None:
        """The peer speaks another protocol. A client of a known one is answered in that protocol, any other peer as the
        engine answers an invalid first frame; the application gets the name of the protocol."""
        state = self.state
        error = RemoteProtocolError.of_handshake(text)
        if self.answers and state.transport is not None and not expects.carrier.messages:
            answer = answer_to(data, expects.protocol)[1]
            if answer is not None:
                state.transport.write(answer)
                state.driver.end(error)
                state.run(state.engine.receive_eof, state.now())
                return
        if not (self.answers or state.resumable):
            state.driver.end(error)
        self.input.take(data)
        if state.engine.closed:
            state.error = error
        else:
            state.driver.abort(error)
