"""How the bytes and the time of one connection move under asyncio. Whom an event concerns is driver.py's.

1. One read is one pass, handed over as events in the order of the wire; a read that would take longer than
   ``loop_ms`` is several.
2. One write for each turn of the loop: whoever queues something calls ``flush_soon``.
3. Reading stops while the engine can not take more, or while too much waits to be written.
4. A peer that does not read is given up: ``write_min_rate``, averaged over ``write_stall_s``.
5. A session that can be resumed outlives its transport: ``detach`` lets one go, ``connection_made`` brings the next.
6. At the end this half is closed first, so that the peer can read the last words: a close with unread input would
   reset the connection. ``flush_s`` bounds it.
"""

# long: asyncio's callbacks, writing, reading and time meet in one object for each connection.

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from afflux.aio.holdings import Holdings
from afflux.core.engine import Engine
from afflux.core.errors import ConnectionClosed, Error, RemoteProtocolError
from afflux.core.events import Event
from afflux.transports.base import foreign
from afflux.transports.clock import clock_of
from afflux.transports.reading import DISCARDED_BYTES, Receiver, end_half

__all__ = ["Pump"]

_LARGEST_PIECE = 0x40000
_MUCH = _LARGEST_PIECE // 2
"""Bytes of a read behind which there is probably another: uvloop reads up to 32 times in one turn of the loop, and
others would wait for all of them. Behind the fourth such read, reading waits for the next turn."""
_FIRST_PIECE = 0x2000
"What a stranger gets at first: it is not known yet how long a pass over its input takes."
_SMALLEST_PIECE = 0x1000
_PACE_S = 0.001
_BLOCK = 0x40000
"Bytes of one write, as of one read: with 64 KiB, 64 streams of 1 KiB items were a fifth slower."


class Pump(Receiver):  # long: asyncio's six callbacks and the driver's five hooks are part of it
    """One engine on one transport."""

    # Slots: a dictionary for each of 10,000 connections takes 16 MiB (docs/how-to/many.md).
    __slots__ = (
        "_blocked",
        "_books",
        "_consumed",
        "_discarded",
        "_due",
        "_early",
        "_ending",
        "_expects",
        "_flushing",
        "_freed",
        "_heard_end",
        "_held",
        "_jam",
        "_linger",
        "_loop_s",
        "_low",
        "_much",
        "_pacer",
        "_piece",
        "_plenty",
        "_reading",
        "_rest",
        "_stall",
        "_taken",
        "_taking",
        "_timer",
        "_view",
        "_written",
        "answers",
        "away",
        "below",
        "engine",
        "error",
        "fair",
        "hold_reading",
        "loop",
        "lost",
        "now",
        "number",
        "over",
        "transport",
        "unsent_answers",
        "weight",
    )

    # long: a line for each of its fields
    def __init__(self, engine: Engine, expects: str | None) -> None:
        self._view = None
        self.engine = engine
        self.fair = engine.scheduler
        "Shares the connection among streams; None where the protocol has no scheduler."
        self.loop = asyncio.get_running_loop()
        self.now = clock_of(self.loop)
        "The clock of every deadline."
        self.transport: asyncio.Transport | None = None
        self.error: Error | None = None
        "Why the connection ended, if not in order."
        self.over = False
        "The connection has ended; the transport may still be there."
        self.lost = False
        "The transport is gone, and no other will come."
        self.away = False
        "There is no transport for now."
        self.hold_reading = False
        "The owner wants no more input for now."
        self._books = Holdings.of(self.loop)
        self.number = Holdings.number()
        self.unsent_answers = 0
        "Bytes of answers that handlers have made, and that wait for room."
        self.weight = 0
        "Bytes that it holds, by its last report to the books of the process."
        self.below = 0
        "Bytes of them that the transport has received and not handed over."
        self._low = engine.limits.outbound_low_bytes
        self._plenty = engine.limits.outbound_high_bytes - self._low
        self._loop_s = engine.limits.loop_ms / 1000
        self._piece: int = min(engine.limits.loop_bytes, _FIRST_PIECE)
        self._held = b""
        self._taking = False
        self._much = 0
        self._expects = expects
        self.answers = False
        "This side is a server: it tells a stranger why it is refused."
        self._flushing = False
        self._early = False
        self._blocked = self._ending = self._heard_end = False
        self._reading = True
        self._written = 0
        self._consumed = 0
        self._discarded = 0
        self._taken = 0
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._stall: asyncio.TimerHandle | None = None
        self._jam: asyncio.TimerHandle | None = None
        self._freed = 0
        self._linger: asyncio.TimerHandle | None = None
        self._pacer: asyncio.TimerHandle | None = None
        self._rest: asyncio.TimerHandle | None = None

    # -- what the driver adds -------------------------------------------------------------------------------

    def dispatch(self, events: list[Event]) -> None:
        """Tell everyone concerned, then flush."""
        raise NotImplementedError

    def collect(self) -> None:
        """Before writing: queue what was made in this turn."""

    def durable(self) -> bool:
        """Before bytes are seen: False when they may not be, and the connection is over."""
        return True

    def note(self) -> None:
        """At the end of a turn: what has changed and is not seen by anyone may be written down."""

    def roomy(self, unsent: int) -> None:
        """After writing: there may be room again."""

    def jammed(self) -> None:
        """Reading has waited for ``write_stall_s`` for an application that takes nothing."""

    def end(self, error: Error | None) -> None:
        """The connection is over; the first reason counts."""
        raise NotImplementedError

    def gone(self) -> None:
        """The transport is gone."""

    def joined(self) -> None:
        """There is a transport again."""

    # -- asyncio.Protocol -----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The link is there: say the first words."""
        self.transport = cast("asyncio.Transport", transport)
        if self.over:
            self.loop.call_soon(self.transport.abort)  # not at once: uvloop has yet to see to the socket
            return
        self.transport.set_write_buffer_limits(high=self._low, low=self._low // 4)
        if self.away:
            self.away = False
            self.joined()
        self._flush()

    def buffer_updated(self, nbytes: int) -> None:
        """One pass over a read, without a copy of it where there is nothing else to look after."""
        if self.over:
            self._discard(nbytes)
        elif self._expects is None and not self._held and nbytes <= self._piece:
            with self.buffer(nbytes)[:nbytes] as view:
                self._take(view)
        else:
            super().buffer_updated(nbytes)

    def held_below(self, size: int) -> None:
        """The transport holds a message that is not whole."""
        self.below = size
        self.weigh()

    def data_received(self, data: bytes) -> None:
        """One pass over the input."""
        if self.over:
            self._discard(len(data))
            return
        if self._expects is not None:
            expects, self._expects = self._expects, None
            if strange := foreign(data):
                self._refuse_stranger(data, f"the peer speaks {strange}, not {expects}")
                return
        if self._held or len(data) > self._piece:
            self._held += data
            self.check_reading()
        else:
            self._take(data)

    def eof_received(self) -> bool:
        """The peer has ended its half: that is the end of the connection (SL-03), unless its engine has more to say."""
        self._heard_end = True
        self.dispatch(self.engine.receive_eof(self.now()))
        transport = self.transport
        return transport is not None and not self.engine.closed and transport.can_write_eof()

    @property
    def resumable(self) -> bool:
        """Whether the session would outlive its transport."""
        resumption = self.engine.resumption
        return resumption is not None and resumption.resumable

    def connection_lost(self, exc: Exception | None) -> None:
        """The link is gone. One that knows why says it with an afflux error."""
        if isinstance(exc, Error) and not self.over and not self.resumable:
            self.lost = True
            self.end(exc)
        if not self.engine.closed:
            self.dispatch(self.engine.receive_eof(self.now()))
        if self.away:
            return
        if not self.engine.closed:  # that was the peer's half; this one is gone as well
            self.dispatch(self.engine.receive_eof(self.now()))
        self.lost = True
        self.end(None)
        self._stop_timers()
        self.weigh()
        self.gone()

    def pause_writing(self) -> None:
        """The transport holds enough."""
        self._blocked = True
        self.check_reading()

    def resume_writing(self) -> None:
        """The transport has room again."""
        self._blocked = False
        self._flush()

    # -- another transport ----------------------------------------------------------------------------------

    def detach(self) -> None:
        """The transport is over and the session is not: say the last words, and let it go."""
        if (transport := self.transport) is not None:
            while data := self.engine.outgoing():
                transport.write(data)
        self.part()

    def part(self) -> None:
        """Let the transport go without another word."""
        transport = self.release()
        self.away = True
        if transport is not None:
            transport.set_protocol(asyncio.Protocol())  # what it still has to tell concerns nobody
            transport.close()
            self.loop.call_later(self.engine.limits.flush_s, transport.abort)

    def release(self) -> asyncio.Transport | None:
        """Give the transport away; what is known of it is forgotten."""
        transport, self.transport = self.transport, None
        self._stop_timers()
        self._held = b""
        self._taking = self._blocked = self._ending = self._heard_end = False
        self._reading = True
        self._written = 0
        return transport

    def adopt(self, transport: asyncio.Transport, rest: bytes) -> None:
        """Go on with a transport that another pump has released; ``rest`` was read from it already."""
        transport.set_protocol(self)
        if not transport.is_reading():
            transport.resume_reading()
        self.connection_made(transport)
        if rest:
            self.data_received(rest)

    # -- what peers and handlers call ------------------------------------------------------------------------

    def flush_soon(self) -> None:
        """Write what is queued at the end of this turn of the loop."""
        if not self._flushing:
            self._flushing = True
            self.loop.call_soon(self._flush)

    def flush_early(self) -> None:
        """Write what is queued now, for this side has more to do in this turn, and the peer can do its part meanwhile.
        Once in a turn: a write costs as much as some twenty messages."""
        if not self._early and not self.over:
            self.flush_soon()
            self._flush()
            self._flushing = self._early = True  # until the one that was asked for

    def room(self) -> int:
        """Bytes that may still be queued."""
        transport = self.transport
        return self.engine.room(0 if transport is None else transport.get_write_buffer_size())

    def room_beside(self) -> int:
        """The same for what is no large payload."""
        transport = self.transport
        unsent = 0 if transport is None else transport.get_write_buffer_size()
        return self.engine.room(unsent) if self.fair is None else self.fair.room_beside(unsent)

    @property
    def crowded(self) -> bool:
        """Whether so much waits to be written that a request should wait as well."""
        room = self.engine.room(0) if self.fair is None else self.fair.room_beside(0)
        return self._blocked or room < self._plenty

    def consumed(self, size: int, items: int) -> None:
        """The application took ``items`` items of ``size`` bytes in all."""
        self._consumed += size
        self._taken += items
        self._freed += 1
        if self._consumed >= 0x4000 or self._taken >= 64 or not self._reading:
            self.engine.consumed(self._consumed, self._taken)
            self._consumed = self._taken = 0
            if not self._reading:
                self.check_reading()

    def weigh(self) -> None:
        """Report what this connection holds: in its engine, and on both sides of it."""
        held = self.engine.held_bytes + len(self._held) + self.below + self.unsent_answers - self._consumed
        if self.transport is not None:
            held += self.transport.get_write_buffer_size()
        if self.lost or held < 0:
            held = 0
        if held != self.weight:
            self._books.report(self, held)

    def check_reading(self) -> None:
        """Read, or stop reading, as the engine and the owner want it."""
        transport = self.transport
        if transport is None or self.over or transport.is_closing():
            return
        wants = self.engine.wants_read and not self.hold_reading and self._rest is None
        if wants and self._held and not self._taking:
            self._taking = True
            self.loop.call_soon(self._take_held)
        if wants and not self._held and not self._taking:
            self._resume(transport)
        elif self._reading:
            self._reading = False
            transport.pause_reading()
            if not wants and self._jam is None:
                self._jam = self.loop.call_later(self.engine.limits.write_stall_s, self._check_jam, self._freed)

    def rest(self, seconds: float) -> None:
        """Read nothing for a while: the peer makes this side work faster than it may."""
        if self._rest is None:
            self._rest = self.loop.call_later(seconds, self._go_on_reading)
            self.check_reading()

    def _go_on_reading(self) -> None:
        self._rest = None
        self.check_reading()

    def _check_jam(self, freed: int) -> None:
        """Whether nothing was taken since then."""
        self._jam = None
        if self._reading or self.over or self.transport is None or self.engine.wants_read:
            return
        if self._freed == freed:
            self.jammed()
            self.check_reading()
        if not self._reading:
            self._jam = self.loop.call_later(self.engine.limits.write_stall_s, self._check_jam, self._freed)

    def run(self, verb: Callable[..., list[Event]], *arguments: Any, **keywords: Any) -> None:
        """Do one of the engine's acts that return events: accept, refuse, close."""
        self.dispatch(verb(*arguments, **keywords))

    def close(self, *, drain: bool = False, reason: str = "") -> None:
        """Begin to close. What is queued goes first: the engine forgets the rest."""
        if not self.over:
            self._flush(patient=False)
            self.run(self.engine.close, self.now(), drain=drain, reason=reason)

    def abort(self, error: Error | None = None) -> None:
        """Cut the link without a word."""
        self.fail_hard(error or ConnectionClosed("this side cut the connection"))

    def _refuse_stranger(self, data: bytes, text: str) -> None:
        """Something else came where the protocol should begin. It is answered as the engine answers any first frame
        that can not be; everyone here hears what the peer speaks."""
        error = RemoteProtocolError.of_handshake(text)
        if not (self.answers or self.resumable):
            self.end(error)
        self._take(data)
        if self.engine.closed:
            self.error = error
        else:
            self.fail_hard(error)

    # -- inside: writing, reading, time ---------------------------------------------------------------------

    def _take(self, data: bytes | memoryview) -> None:
        """One pass. How much a pass may take is learnt from how long it takes (FR-28)."""
        start = self.now()
        self.dispatch(self.engine.receive(data, start))
        took = self.now() - start
        if took > self._loop_s:
            self._piece = max(_SMALLEST_PIECE, min(self._piece, len(data)) // 2)
        elif self._piece < _LARGEST_PIECE and len(data) >= self._piece and took * 4 < self._loop_s:
            self._piece *= 2
        if len(data) >= _MUCH:
            self._took_much()

    def _took_much(self) -> None:
        """Leave the rest of the turn to others after the fourth large read in it."""
        self._much += 1
        if self._much == 1:
            self.loop.call_soon(self._new_turn)
        elif self._much >= 4 and not self._taking:
            self._taking = True
            self.loop.call_soon(self._take_held)
            self.check_reading()

    def _new_turn(self) -> None:
        self._much = 0

    def _discard(self, size: int) -> None:
        """Input after the end is thrown away unseen: it is read so that the peer gets to read the last words. After
        DISCARDED_BYTES reading stops until ``flush_s`` is over."""
        self._discarded += size
        if self._discarded > DISCARDED_BYTES and self._reading and self.transport is not None:
            self._reading = False
            self.transport.pause_reading()

    def _take_held(self) -> None:
        """A piece of what came at once, in a turn of its own; reading waits meanwhile."""
        self._taking = False
        if self._held and self.engine.wants_read and not self.over:
            piece, self._held = self._held[: self._piece], self._held[self._piece :]
            self._take(piece)
        self.check_reading()

    def _flush(self, patient: bool = True) -> None:
        """Hand over what is queued, up to what the transport takes; ``patient``: leave some of it for the next turn, if
        others should go before it."""
        self._flushing = self._early = False
        self.collect()
        engine, transport = self.engine, self.transport
        if transport is None or self.lost:
            if self.away:
                self.note()
                self._arm()
            self.weigh()
            return
        fair = self.fair if patient else None
        again = False
        while not self._blocked and not (again := fair is not None and fair.should_yield()):
            if not (data := engine.outgoing(_BLOCK)):
                break
            if not self.durable():
                return
            self._written += len(data)
            transport.write(data)
        self.note()
        if self.over and not engine.queued and not self._blocked:
            self._say_goodbye(transport)
        unsent = transport.get_write_buffer_size()
        if unsent and self._stall is None:
            self._watch_writing(unsent)
        if engine.held_bytes + unsent != self.weight or self._held:
            self.weigh()
        self.roomy(unsent)
        if again and self._pacer is None:
            self._pacer = self.loop.call_later(_PACE_S, self._pace)
        self.check_reading()
        self._arm()

    def _pace(self) -> None:
        """Those who have waited for others have waited long enough to go on a little."""
        self._pacer = None
        if self.fair is not None:
            self.fair.pace()
        self._flush()

    def _say_goodbye(self, transport: asyncio.Transport) -> None:
        """End this half and wait for the peer's end, so that it can read the last words: a close with unread
        input would reset the connection. ``flush_s`` bounds it."""
        if transport.is_closing() or self._ending:
            return
        self._ending = True
        if self._heard_end or not transport.can_write_eof():
            transport.close()
        else:
            end_half(transport)
            self._resume(transport)

    def _resume(self, transport: asyncio.Transport) -> None:
        if not self._reading:
            self._reading = True
            transport.resume_reading()

    def _arm(self) -> None:
        """See to it that tick is called in time. A timer that comes early only looks again."""
        deadline = self.engine.deadline
        if deadline is None or self.lost:
            return
        if self._timer is not None:
            if self._due <= deadline:
                return
            self._timer.cancel()
        self._due = deadline
        self._timer = self.loop.call_later(max(0.0, deadline - self.now()), self._tick)

    def _tick(self) -> None:
        self._timer = None
        now = self.now()
        deadline = self.engine.deadline
        if deadline is not None and deadline <= now:
            self.dispatch(self.engine.tick(now))
        else:
            self._arm()

    def _stop_timers(self) -> None:
        for handle in (self._timer, self._stall, self._jam, self._linger, self._pacer, self._rest):
            if handle is not None:
                handle.cancel()
        self._timer = self._stall = self._jam = self._linger = self._pacer = self._rest = None

    def _watch_writing(self, unsent: int) -> None:
        """What waits now has to be gone after ``write_stall_s``, or as much of it as ``write_min_rate`` makes."""
        limits = self.engine.limits
        enough = self._written - unsent + max(1, min(unsent, int(limits.write_min_rate * limits.write_stall_s)))
        self._stall = self.loop.call_later(limits.write_stall_s, self._check_stall, enough)

    def _check_stall(self, enough: int) -> None:
        self._stall = None
        transport = self.transport
        if transport is None or self.lost or not (unsent := transport.get_write_buffer_size()):
            return
        if self._written - unsent < enough:
            self.lose(ConnectionClosed("write-stall: the peer does not read", rule="write_stall_s"))
        else:
            self._watch_writing(unsent)

    def lose(self, error: Error) -> None:
        """The transport is of no use: that is the end, unless the session can go on without it."""
        if self.resumable:
            self.dispatch(self.engine.receive_eof(self.now()))
        else:
            self.fail_hard(error)

    def fail_hard(self, error: Error) -> None:
        """Give up the link at once."""
        if self.transport is not None and not self.lost:
            self.transport.abort()
        self.end(error)
        if not self.engine.closed:
            # A session that could be resumed, or waits for it, is not to wait for another transport either.
            resumption = self.engine.resumption
            lasting = resumption is not None and (resumption.resumable or resumption.suspended)
            self.dispatch((self.engine.close if lasting else self.engine.receive_eof)(self.now()))
