"""Run one end of a connection: pass bytes, time and calls to the parts, and return their events.

Rules of this module:

1. Valid frames before an invalid one are delivered first; a violation becomes its ERROR frame and a final Closed event.
2. A length is checked as soon as it can be read, before anything is allocated for it.
3. Nothing is buffered or served before SETUP is accepted (R-11, HS-16).
4. Ignoring a frame is charged (DR-1): the glitch bucket bounds the cost.
5. A resumable session ends with its last frame or its time limit, never with its transport (section 3.1).

The parts: the handshake negotiates the connection (handshake.py); liveness sends keepalives and ends the connection of
a silent peer (liveness.py); the stream table contains the live streams (streams.py, with arrivals.py and steps.py);
the outbound queue encodes frames (outbound.py), and its scheduler shares the connection among streams (scheduler.py);
inbound parses (inbound.py), with reassembly. Resumption and leases are optional parts: each is an object or None.

Parts do not refer to the connection: their functions receive it as an argument. So an engine has no reference cycles,
and is freed as soon as its driver drops it.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any, ClassVar, Literal

from afflux.core import engine as contract
from afflux.core.errors import LimitExceeded, LocalProtocolError, Violation
from afflux.core.events import Event
from afflux.core.frame import UnknownFrame, trailing
from afflux.core.limits import Limits
from afflux.core.passes import Pass
from afflux.core.terms import Place
from afflux.protocols.family import endings, liveness
from afflux.protocols.family.extensions import Extending
from afflux.protocols.family.handshake import Handshake, start
from afflux.protocols.family.inbound import Inbound
from afflux.protocols.family.lease import LeasePolicy
from afflux.protocols.family.leases import Leasing
from afflux.protocols.family.liveness import Liveness
from afflux.protocols.family.member import Member
from afflux.protocols.family.outbound import Outbound
from afflux.protocols.family.resuming import Resuming
from afflux.protocols.family.states import ConnectionAction, ConnectionInput, ConnectionState
from afflux.protocols.family.streams import Streams

__all__ = ["DEFAULT_MTU", "MAX_N", "Connection"]

DEFAULT_MTU = 0x20000
"Bytes a frame may have before its payload is split: 128 KiB, the quantum of fairness between streams."
_MIN_MTU = 64  # I-2
MAX_N = 0x7FFFFFFF
"The maximum that one frame can grant."

_I = ConnectionInput
# Enum members are slow to look up: those that every pass needs are looked up once.
_SETUP_SENT, _OPEN = ConnectionState.SETUP_SENT, ConnectionState.OPEN
_DRAINING, _CLOSED = ConnectionState.DRAINING, ConnectionState.CLOSED
_SUSPENDED, _WAIT_FIRST = ConnectionState.SUSPENDED, ConnectionState.WAIT_FIRST
_ESTABLISH = ConnectionAction.ESTABLISH


class Connection:
    """One end of a connection: its parts, and the calls of a driver. engine.py adds the calls of the application."""

    # Slots, here and in the parts: a server may have 10,000 connections, most of them idle (docs/how-to/many.md).
    __slots__ = (
        "_full",
        "_most_queued",
        "client",
        "current",
        "farewell",
        "handshake",
        "inbound",
        "known_extensions",
        "limits",
        "liveness",
        "member",
        "outbound",
        "peer_draining",
        "resuming",
        "scheduler",
        "setup",
        "state",
        "stream_table",
        "transitions",
    )

    byte_sessions: ClassVar[None] = None
    typed_sessions: ClassVar[None] = None
    most_credit: ClassVar[int] = MAX_N

    def __init__(
        self,
        member: Member,
        role: Literal["client", "server"],
        *,
        setup: Any,
        limits: Limits | None,
        decide: bool,
        now: float,
        mtu: int,
        lease: LeasePolicy | None,
        extensions: Container[int],
        resuming: Resuming | None = None,
        place: Place | None = None,
    ) -> None:
        if mtu < _MIN_MTU:
            raise LocalProtocolError(f"an MTU is {_MIN_MTU} bytes or more, not {mtu}", rule="FG-22")
        self.limits = limits = limits or Limits.server()
        self.member = member
        self.client = role == "client"
        self.transitions = member.client if self.client else member.server
        self.state = self.transitions.start
        self.current = Pass(limits, now)
        self.outbound = Outbound(member.layout, limits, max(_MIN_MTU, min(mtu, limits.frame_bytes)))
        self.scheduler = self.outbound.scheduler
        "Shares the connection among streams."
        self.stream_table = Streams(member, self.client, self.current, self.outbound, place)
        self.inbound = Inbound(self.stream_table, first=not self.client)
        self.handshake = Handshake(decide, lease, now)
        self.liveness = Liveness(now)
        self.resuming = resuming
        self.known_extensions = extensions
        "The extended types that the application supports."
        self._full = False
        "The last ``receive`` or ``tick`` found no room for input: the peer's silence does not count until the next."
        self._most_queued = limits.outbound_high_bytes + limits.payload_bytes
        self.farewell: Violation | None = None
        "The reason for which this side drains; None if it does not."
        self.peer_draining = False
        self.setup: Any = None
        "The SETUP of this connection, sent or received; None at a server before it arrives."
        if self.client:
            start(self, setup)

    # -- abilities --------------------------------------------------------------------------------------------

    @property
    def resumption(self) -> contract.Resumption | None:
        """The session that can outlive its transport, or None."""
        return None if self.resuming is None else self.resuming.ability(self)

    @property
    def leases(self) -> contract.Leases | None:
        """The leases that both sides obey; None unless both have agreed on leases."""
        leases = self.stream_table.leases
        return None if leases is None else Leasing(self, leases)

    @property
    def extensions(self) -> contract.Extensions:
        """The part that sends EXT."""
        return Extending(self)

    # -- calls of the driver ----------------------------------------------------------------------------------

    def receive(self, data: bytes | memoryview, now: float) -> list[Event]:
        """Process bytes that arrived at ``now``; return their events."""
        if self.state is _CLOSED or self.state is _SUSPENDED:
            return []
        if self._full:
            liveness.hold(self, now)
        self.current.now = self.liveness.heard = now
        if self.resuming is None:
            events = self.run(self.inbound.receive, data, self.frame)
        else:
            events = self.run(self._receive_to_resume, data, self.resuming)
        self._full = not self.wants_read
        return events

    def _receive_to_resume(self, data: bytes | memoryview, resuming: Resuming) -> None:
        self.inbound.receive(data, self.frame)
        resuming.report(self)

    def receive_eof(self, now: float) -> list[Event]:
        """Process the end of the transport."""
        self.current.now = now
        if self.state is _DRAINING and not self.stream_table.live:
            return self.run(self.step, _I.LAST_STREAM_ENDED, None)
        return self.run(endings.lose_transport, self, _I.LOST)

    def tick(self, now: float) -> list[Event]:
        """Act on elapsed time: send a keepalive; end a silent peer's connection or a frame that never completes."""
        if self.state is _CLOSED:
            return []
        self.current.now = now
        full = not self.wants_read
        if full or self._full:
            liveness.hold(self, now)
        self._full = full
        return self.run(liveness.tick, self, now)

    @property
    def deadline(self) -> float | None:
        """The time at which tick is next due."""
        if self.state is _CLOSED:
            return None
        if self.stream_table.untold or (self.state is _DRAINING and not self.stream_table.live):
            return self.current.now  # a call has ended a stream, perhaps the last one: tick reports it
        return liveness.due(self)

    def outgoing(self, limit: int = 0x10000) -> bytes:
        """Bytes to write now."""
        self.liveness.echoes = 0  # frames of stream 0 leave first, all of them
        data = self.outbound.take(limit)
        if self.resuming is not None:
            self.resuming.weigh(self)
        return data

    @property
    def queued(self) -> int:
        """Bytes waiting for ``outgoing``."""
        size, repeat = self.scheduler.size, self.outbound.repeat
        return size + sum(map(len, repeat)) if repeat else size

    @property
    def held_bytes(self) -> int:
        """Bytes of received and sent data in memory."""
        streams = self.stream_table
        held = self.scheduler.size + len(self.inbound.buffer.held) + streams.reassembly.size + streams.delivered
        if streams.objects:
            held += streams.objects * self.limits.object_overhead_bytes
        return held if self.resuming is None else held + self.resuming.size

    @property
    def wants_read(self) -> bool:
        """False while the limits leave no room for more input.

        ``room`` ends at the high-water mark, and one payload may exceed it; reading ends a payload later. So a peer
        that obeys its room always reads, and two ends full of large payloads do not wait for each other forever.
        """
        limits, streams, scheduler = self.limits, self.stream_table, self.scheduler
        if self.inbound.held and self.inbound.pending >= limits.first_frame_bytes:
            return False
        if len(streams.handlers) > streams.work.many:
            return False
        if streams.delivered or streams.objects:
            delivered = streams.delivered + streams.objects * limits.object_overhead_bytes
            if delivered + streams.reassembly.size > limits.connection_bytes:
                return False
        return not scheduler.frames or (
            scheduler.size <= self._most_queued
            and scheduler.frames < limits.outbound_high_frames + limits.control_replies
            and self.liveness.echoes < limits.keepalive_echoes
        )

    @property
    def closed(self) -> bool:
        """True once Closed was returned."""
        return self.state is _CLOSED

    def room(self, unsent: int) -> int:
        """Bytes that may still be queued; 0 when too many frames are queued."""
        if self.scheduler.frames >= self.limits.outbound_high_frames:
            return 0
        return max(0, self.limits.outbound_high_bytes - self.scheduler.size - unsent)

    # -- one pass ---------------------------------------------------------------------------------------------

    def run(self, work: Callable[..., None], *arguments: Any) -> list[Event]:
        """Run one piece of work and return its events; a violation ends the connection (never raises)."""
        events: list[Event] = []
        self.current.events = events
        try:
            work(*arguments)
        except Violation as violation:
            if self.resuming is None or not self.resuming.broken(self, violation):
                endings.break_off(self, violation)
        if self.state is _DRAINING and not self.stream_table.live:
            self.step(_I.LAST_STREAM_ENDED, None)
        if self.resuming is not None:
            self.resuming.weigh(self)
        self.current.events = []  # do not keep delivered events alive
        if untold := self.stream_table.untold:
            events[:0] = untold.values()
            untold.clear()
        return events

    def step(self, input: ConnectionInput, argument: Any) -> None:
        """Apply one input to the connection."""
        step = self.transitions.steps[self.state][input]
        before, self.state = self.state, step.next
        self.member.actions[step.action](self, argument)
        if step.action is _ESTABLISH and before is _SETUP_SENT:
            self.step(input, argument)

    def frame(self, block: bytes, start: int, end: int) -> None:
        """Decode and apply one frame."""
        member = self.member
        try:
            frame = member.quirks.decode(block, start, end)
        except UnknownFrame as unknown:
            if self.state is _WAIT_FIRST:
                raise endings.not_setup(self) from None
            if not unknown.ignorable:
                raise
            self.current.charge(1, unknown.stream, member.rules.extension, unknown.reason)
            return
        except Violation as violation:
            member.quirks.malformed(self, block, start, violation)
            return
        if not frame.OPEN_ENDED and trailing(frame, start, end):
            self.current.charge(1, frame.stream, "FR-21", "bytes after the end of the frame")
        input = member.inputs.get(type(frame))
        if input is None:
            input = member.on_zero.get(type(frame))
            if input is None:
                input = member.quirks.classify(self, frame)
            elif frame.stream and self.state is not _WAIT_FIRST:
                self.current.charge(10, frame.stream, member.rules.zero, f"{type(frame).__name__} on a stream")
                return
        self.step(input, frame)

    def ignore(self, frame: Any) -> None:
        """Charge a frame that the connection's state does not allow."""
        reason = f"a frame that makes no sense in {self.state.name}"
        self.current.charge(10, frame.stream, self.member.rules.senseless, reason)

    @property
    def is_open(self) -> bool:
        """Whether the connection is established and has a transport."""
        return self.state is _OPEN or self.state is _DRAINING

    @property
    def may_send(self) -> bool:
        """Whether frames of stream 0 may be queued."""
        return self.is_open or self.state is _SETUP_SENT

    @property
    def standing(self) -> str:
        """The connection's state, as words."""
        return self.state.name.lower()

    def check_metadata(self, metadata: bytes) -> None:
        """Raise LimitExceeded for more metadata than a peer accepts: the same limits apply to both sides."""
        most = self.limits.connection_metadata_bytes
        if len(metadata) > most:
            text = f"{len(metadata)} bytes of metadata: a peer accepts {most}"
            raise LimitExceeded(text, stream=0, rule="metadata-too-large")
