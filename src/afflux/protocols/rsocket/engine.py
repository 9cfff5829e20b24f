"""One end of an RSocket 1.0 connection, by the contract of core.engine: what a driver calls.

``receive`` never raises for what the peer does. Time is what the caller says: every method that needs it takes
``now`` in monotonic seconds. What happens on the connection is in connection.py, on its streams in streams.py.
"""

# long: the contract alone is twenty methods; leases, resumption and extensions come on top.

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import inf
from typing import Any, ClassVar

from afflux.core.credit import SATURATED, Bound, Credit, StreamStatus
from afflux.core.engine import Extensions, Leases, Resumption, Scheduler
from afflux.core.errors import ConnectionClosed, Consequence, LimitExceeded, LocalProtocolError, Rejected, Violation
from afflux.core.events import Event, Verb
from afflux.core.payload import Payload, PayloadLike
from afflux.protocols.rsocket.codes import Code
from afflux.protocols.rsocket.connection import DEFAULT_MTU, Connection
from afflux.protocols.rsocket.frames import Ext
from afflux.protocols.rsocket.lease import Lease
from afflux.protocols.rsocket.states import ConnectionInput, ConnectionState, StreamAction, StreamInput
from afflux.protocols.rsocket.stream import Stream
from afflux.protocols.rsocket.streams import MAX_N

__all__ = ["DEFAULT_MTU", "Engine"]

_S, _I = ConnectionState, ConnectionInput
# Members of an enum are slow to look up: those that every pass needs are looked up once.
_SETUP_SENT, _OPEN = ConnectionState.SETUP_SENT, ConnectionState.OPEN
_DRAINING, _CLOSED = ConnectionState.DRAINING, ConnectionState.CLOSED
_SUSPENDED = ConnectionState.SUSPENDED
_ASKING = (_OPEN, _SETUP_SENT, ConnectionState.SUSPENDED, ConnectionState.RESUME_SENT)
"Where requests may be queued."
EXT_HEADER = 10


# long: see the top of the file
class Engine(Connection):
    """See core.engine.Engine for the contract.

    Args:
        role: "client" (it speaks first, with SETUP) or "server".
        setup: what a client asks for; the default is 20 s between keepalives, a lifetime of 90 s, composite metadata
            and octet-stream data. Its ``lease`` and ``token`` ask for leases and for resumption.
        limits: the bounds; ``Limits.server()`` if None.
        decide: a server waits for ``accept`` or ``refuse`` after Established instead of accepting at once.
        now: the time at birth, in monotonic seconds: the handshake's time starts here.
        mtu: bytes a frame may have, with its prefix, before its payload is cut; 64 or more.
        lease: what this side grants. A server without it refuses leases; a client that asks for leases grants as many
            requests as the server likes.
        sessions: where a server keeps what can be resumed; without it resumption is refused.
        extensions: the extended types of EXT that the application knows: they become events.
    """

    __slots__ = ()

    byte_sessions: ClassVar[None] = None
    most_credit: ClassVar[int] = MAX_N

    @property
    def scheduler(self) -> Scheduler:
        """Shares the connection among streams."""
        return self

    @property
    def resumption(self) -> Resumption | None:
        """The session that can outlive its transport."""
        return self

    @property
    def leases(self) -> Leases | None:
        """The leases that both sides honour; None when they have not agreed on any."""
        return None if self._streams.held_lease is None else self

    @property
    def extensions(self) -> Extensions:
        """Sends EXT."""
        return self

    # -- the driver's side ----------------------------------------------------------------------------------

    def receive(self, data: bytes | memoryview, now: float) -> list[Event]:
        """Take bytes that arrived at ``now``; return what they mean."""
        if self._state is _CLOSED or self._state is _SUSPENDED:
            return []
        if self._full:
            self._hold(now)
        self._now = self._heard = now
        events = self._run(self._receive, data, now)
        self._full = not self.wants_read
        return events

    def receive_eof(self, now: float) -> list[Event]:
        """The transport ended."""
        self._now = now
        if self._state is _DRAINING and not self._streams.live:
            return self._run(self._step, _I.LAST_STREAM_ENDED, None)
        return self._run(self._lose_transport, _I.LOST)

    def tick(self, now: float) -> list[Event]:
        """Time passed: send a keepalive, give up a silent peer or a frame that never ends."""
        if self._state is _CLOSED:
            return []
        self._now = now
        full = not self.wants_read
        if full or self._full:
            self._hold(now)
        self._full = full
        return self._run(self._tick, now)

    @property
    def deadline(self) -> float | None:
        """When tick is next wanted."""
        if self._state is _CLOSED:
            return None
        if self._state is _DRAINING and not self._streams.live:
            return self._now  # a verb has ended the last stream: tick says Closed
        return self._due()

    def outgoing(self, limit: int = 0x10000) -> bytes:
        """Bytes to write now."""
        self._echoes = 0  # frames of stream 0 leave first, all of them
        data = self._out.take(limit)
        self._weigh()
        return data

    @property
    def queued(self) -> int:
        """Bytes waiting for outgoing."""
        return self._out.waiting

    @property
    def held_bytes(self) -> int:
        """Bytes that this end holds."""
        streams, retained = self._streams, self._retained
        held = self._out.size + len(self._in.buffer.held) + streams.reassembly.size + streams.delivered
        if streams.objects:
            held += streams.objects * self.limits.object_overhead_bytes
        return held if retained is None else held + retained.size

    @property
    def wants_read(self) -> bool:
        """False while more input could not be taken within the limits.

        ``room`` ends at O, and one payload may pass it; reading ends a payload later. So a peer that keeps to its
        room always reads, and two ends that are full of large payloads do not wait for each other for ever.
        """
        limits = self.limits
        if self._in.held and self._in.pending >= limits.first_frame_bytes:
            return False
        streams = self._streams
        if len(streams.handlers) > streams.many:
            return False
        delivered = streams.delivered + streams.objects * limits.object_overhead_bytes
        if delivered and delivered + streams.reassembly.size > limits.connection_bytes:
            return False
        return (
            self._out.size <= self._most_queued
            and self._out.frames < limits.outbound_high_frames + limits.control_replies
            and self._echoes < limits.keepalive_echoes
        )

    @property
    def closed(self) -> bool:
        """True once Closed was returned."""
        return self._state is _CLOSED

    def room(self, unsent: int) -> int:
        """Bytes that may still be queued, 0 when there are too many frames."""
        if self._out.frames >= self.limits.outbound_high_frames:
            return 0
        return max(0, self.limits.outbound_high_bytes - self._out.size - unsent)

    def consumed(self, size: int, items: int = 0) -> None:
        """The application took payloads of ``size`` bytes in all."""
        self._streams.delivered = max(0, self._streams.delivered - size)
        self._streams.objects = max(0, self._streams.objects - items)

    # -- the application's side -----------------------------------------------------------------------------

    def accept(self, now: float) -> list[Event]:
        """Accept the peer; what it sent meanwhile is treated now."""
        self._check_deciding()
        self._now = now
        return self._run(self._accept)

    def refuse(self, reason: str, now: float, code: int | None = None) -> list[Event]:
        """Refuse the peer with ``code``; REJECTED_SETUP if it is None or not a code for this (R-14). One that wants to
        resume is refused with REJECTED_RESUME, whatever the code (R-47)."""
        self._check_deciding(_S.RESUMING)
        self._now = now
        fit = code in (Code.INVALID_SETUP, Code.UNSUPPORTED_SETUP, Code.REJECTED_SETUP)
        violation = Violation(
            reason,
            rule="R-14",
            code=code if fit else Code.REJECTED_SETUP,
            consequence=Consequence.REFUSE_SETUP,
        )
        return self._run(self._step, _I.APP_REFUSE, violation)

    def resume(self, request: Any, now: float) -> list[Event]:
        """A server's session gets a new transport: ``request`` is the RESUME that came on it.

        Raises:
            Rejected: the positions do not fit, or it comes too often; the session is as it was (RE-05, RE-07).
        """
        self._now = now
        refusal = self._resume_refusal(request)
        if refusal:
            raise Rejected(refusal, code=Code.REJECTED_RESUME, stream=0, rule="R-46")
        # RE-14: the newer transport wins, and the older one is dropped
        events = [] if self.suspended else self._run(self._step, _I.SUSPEND, None)
        return events + self._run(self._step, _I.APP_RESUME, request)

    def reconnect(self, now: float) -> list[Event]:
        """A suspended client has a new transport: the next ``outgoing`` is RESUME, and nothing else (R-45); or SETUP,
        when its server does not know the session and this client has never heard from it.

        Raises:
            LocalProtocolError: it is not suspended.
        """
        if not (self.suspended and self._client):
            raise LocalProtocolError("only a client that is suspended can ask to go on", rule="3.1")
        self._now = self._heard = now
        return self._run(self._step, _I.APP_ANEW if self._anew else _I.APP_RESUME, None)

    def hand_over(self) -> bytes:
        """A newcomer's transport goes to the session that it asked for: what came after RESUME. This engine is over.

        Raises:
            LocalProtocolError: it did not ask for one.
        """
        if self._state is not _S.RESUMING:
            raise LocalProtocolError("no session waits for this transport", rule="3.2")
        self._run(self._step, _I.APP_HAND_OVER, None)
        return self._in.hand_over()

    def open(
        self,
        verb: Verb,
        payload: PayloadLike,
        *,
        credit: int = 0,
        complete: bool = False,
        columnar: bool = False,
        now: float | None = None,
    ) -> int:
        """Open a stream and return its id; ``now`` counts where there are leases."""
        self._check_asking()
        if now is not None:
            self._streams.now = now
        stream = self._streams.open(verb, payload, credit=credit, complete=complete, columnar=columnar)
        if self._away is not None:
            self._weigh()
        return stream

    def ask(self, payloads: Sequence[Payload]) -> list[int]:
        """Open requests, without leases."""
        self._check_asking()
        ids = self._streams.ask(payloads)
        if self._away is not None:
            self._weigh()
        return ids

    def answer(self, streams: Sequence[int], payloads: Sequence[Payload]) -> None:
        """Answer requests, and release them."""
        self._streams.answer(streams, payloads)
        if self._away is not None:
            self._weigh()

    def send(self, stream: int, payloads: Sequence[PayloadLike], *, complete: bool = False) -> None:
        """Send items."""
        self._streams.send(stream, payloads, complete=complete)
        if self._away is not None:
            self._weigh()

    def complete(self, stream: int) -> None:
        """End this half."""
        self._streams.complete(stream)

    def fail(self, stream: int, error: BaseException) -> None:
        """End the stream with an error."""
        self._streams.fail(stream, error)

    def request(self, stream: int, n: int) -> None:
        """Grant the peer ``n`` more items, 1 to 2^31-1."""
        self._streams.request(stream, n)

    def cancel(self, stream: int) -> None:
        """Take no more from the peer."""
        self._streams.cancel(stream)

    def push(self, metadata: bytes) -> None:
        """Send metadata about the connection (METADATA_PUSH)."""
        if self._state not in (_S.SETUP_SENT, _S.OPEN, _S.DRAINING):
            raise ConnectionClosed(f"nothing can be pushed: the connection is {self._state.name.lower()}")
        self._check_metadata(metadata)
        self._out.control(self._wire.MetadataPush(stream=0, metadata=metadata).encode(prefixed=True))

    def close(self, now: float, *, drain: bool = False, reason: str = "") -> list[Event]:
        """Close at once with CONNECTION_ERROR, or with CONNECTION_CLOSE when the live streams have ended (R-20)."""
        self._now = now
        violation = Violation(reason or "closed", rule="3.1", code=self._wire.CONNECTION_ERROR)
        return self._run(self._step, _I.APP_DRAIN if drain else _I.APP_CLOSE, violation)

    def begin(self, stream: int) -> None:
        """The handler of a stream that the peer opened is at work."""
        if stream in self._streams.handlers:
            self._streams.begun.add(stream)

    def release(self, stream: int) -> None:
        """The handler of a stream that the peer opened has really returned, or will never begin."""
        self._streams.release(stream)

    @property
    def handlers(self) -> Collection[int]:
        """The streams that the peer opened and whose handler has not returned, or not begun."""
        return self._streams.handlers | self._streams.fires

    @property
    def away(self) -> float | None:
        """Since when there has been no transport, or none that was resumed."""
        return self._away

    @property
    def asking(self) -> list[int]:
        """The live streams that this side has opened."""
        return [stream.id for stream in self._streams.live.values() if stream.requester]

    def standing(self, stream: int) -> tuple[int, int, int] | None:
        """How many items this side has sent on a stream, 0 where it can send no more; how many it may send now; how
        many may still come. None for a stream that is over."""
        live = self._streams.live.get(stream)
        if live is None:
            return None
        sends = live.table.steps[live.state][StreamInput.APP_ITEM].action is StreamAction.SEND
        return live.sent if sends else 0, live.allowed, live.owed

    def credit(self, stream: int) -> int:
        """How many items the peer will still take."""
        live = self._streams.live.get(stream)
        return 0 if live is None else live.allowed

    def unsent(self, stream: int) -> bool:
        """It is not known what was handed over of a stream."""
        return False

    def streams(self, *, room: int | None = None, now: float = 0.0) -> list[StreamStatus]:
        """The live streams, in items."""
        left = self.room(0) if room is None else room
        return [self._status(stream, left) for stream in self._streams.live.values()]

    def _status(self, stream: Stream, room: int) -> StreamStatus:
        to_send, to_receive, queued = Credit(stream.allowed), Credit(stream.owed), self._out.queued(stream.id)
        to_send.used = stream.sent
        line = stream.table.steps[stream.state]
        bounds: list[Bound | None] = []
        if queued or line[StreamInput.APP_ITEM].action is StreamAction.SEND:
            bounds.append(to_send.sending(queued=queued, room=room))
        if line[StreamInput.ITEM].action is StreamAction.DELIVER:
            bounds.append(to_receive.receiving(memory=self.wants_read))
        return StreamStatus.of(
            stream.id,
            stream.verb,
            stream.state.name,
            requester=stream.requester,
            to_send=to_send,
            to_receive=to_receive,
            queued=queued,
            bounds=bounds,
        )

    # -- streams that take turns ----------------------------------------------------------------------------

    def room_beside(self, unsent: int) -> int:
        """The room for what is no large payload. One of these may pass O; what it still has to send takes no room from
        others, or they would stand still until it is gone. All together stays within O and a payload."""
        limits, out = self.limits, self._out
        if out.frames >= limits.outbound_high_frames:
            return 0
        return max(0, limits.outbound_high_bytes - out.size + min(out.large, limits.payload_bytes) - unsent)

    def crowd(self, waiting: int) -> None:
        """So many streams wait for room."""
        self._out.crowd(waiting)

    def should_yield(self) -> bool:
        """Whether more should be left for now."""
        return self._out.should_yield()

    def pace(self) -> None:
        """A millisecond is over for those who wait."""
        self._out.pace()

    def behind(self, stream: int) -> bool:
        """Whether a stream still has something queued."""
        return self._out.behind(stream)

    def caught_up(self) -> list[int]:
        """The streams that were behind, and are not any more."""
        return self._out.caught_up()

    # -- leases and extensions ------------------------------------------------------------------------------

    @property
    def leased(self) -> bool:
        """Whether both sides honour leases."""
        return self._streams.held_lease is not None

    def lease(self, now: float) -> tuple[int, float]:
        """How many requests this side may send now, and for how many seconds more; many and long without leases."""
        held = self._streams.held_lease
        if held is None:
            return SATURATED, inf
        left = held.left(now)
        return left, max(0.0, held.until - now) if left else 0.0

    def granted(self, now: float) -> tuple[int, float]:
        """The same of the peer: what this side has granted and not seen used."""
        granted = self._streams.granted_lease
        if granted is None:
            return SATURATED, inf
        if granted.until is None or now >= granted.until:
            return 0, 0.0
        return granted.left, granted.until - now

    def grant(self, lease: Lease, now: float, metadata: bytes = b"") -> None:
        """Grant a lease by hand; it replaces the last one, and the policy goes on when its time is over (R-40).

        Raises:
            LocalProtocolError: leases were not agreed on.
            ConnectionClosed: there is no connection.
            LimitExceeded: more metadata than a peer takes.
        """
        granted = self._streams.granted_lease
        if granted is None:
            raise LocalProtocolError("leases were not agreed on in SETUP", stream=0, rule="R-13")
        if self._state not in (_OPEN, _DRAINING):
            raise ConnectionClosed(f"no lease can be granted: the connection is {self._state.name.lower()}")
        self._check_metadata(metadata)
        granted.replace(lease, now)
        frame = self._wire.Lease(stream=0, ttl_ms=lease.ttl_ms, requests=lease.requests, metadata=metadata)
        self._out.control(frame.encode(prefixed=True))

    def extend(self, type: int, body: bytes, *, stream: int = 0, ignore: bool = True) -> None:
        """Send a frame of an extension (EXT); a peer that does not know it skips it, or breaks off unless ``ignore``.

        Raises:
            LocalProtocolError: ``type`` is not 1 to 2^31-1, or ``stream`` not 0 to 2^31-1.
            LimitExceeded: the body is longer than a peer takes.
            ConnectionClosed: there is no connection.
        """
        if self._state not in (_SETUP_SENT, _OPEN, _DRAINING):
            raise ConnectionClosed(f"nothing can be sent: the connection is {self._state.name.lower()}")
        if not 0 < type <= 0x7FFFFFFF:
            raise LocalProtocolError(f"an extended type is 1 to {0x7FFFFFFF}, not {type}", stream=stream, rule="D-13")
        if len(body) > self.limits.frame_bytes - EXT_HEADER:
            raise LimitExceeded(
                f"{len(body)} bytes of an extension: a peer takes {self.limits.frame_bytes - EXT_HEADER}",
                stream=stream,
                rule="frame-too-large",
            )
        try:
            frame = Ext(stream=stream, ignore=ignore, extended_type=type, body=body)
        except Violation as violation:
            raise LocalProtocolError(violation.reason, rule=violation.rule) from None
        self._out.control(frame.encode(prefixed=True))

    def _check_asking(self) -> None:
        if self._state not in _ASKING or self._farewell is not None or self._peer_draining:
            closing = self._state is _DRAINING or (self._state is not _CLOSED and self._state in _ASKING)
            text = f"no new requests: the connection is {'draining' if closing else self._state.name.lower()}"
            raise ConnectionClosed.unsent(text, code=Code.CONNECTION_CLOSE if closing else None, rule="R-20")

    def _check_metadata(self, metadata: bytes) -> None:
        """This side obeys the bounds it sets (rule 9 of docs/limits)."""
        if len(metadata) > self.limits.connection_metadata_bytes:
            raise LimitExceeded(
                f"{len(metadata)} bytes of metadata: a peer takes {self.limits.connection_metadata_bytes}",
                stream=0,
                rule="metadata-too-large",
            )

    def _receive(self, data: bytes | memoryview, now: float) -> None:
        self._in.receive(data, now)
        self._report()
