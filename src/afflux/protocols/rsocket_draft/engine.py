"""Build an engine of the draft: the family's engine with the draft's member, and the negotiation of extensions."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Literal

from afflux.core.errors import ConnectionClosed, LimitExceeded, LocalProtocolError, Violation
from afflux.core.events import Verb
from afflux.core.limits import Limits
from afflux.core.payload import Payload, PayloadLike
from afflux.core.terms import Place
from afflux.protocols.family.engine import DEFAULT_MTU
from afflux.protocols.family.engine import Engine as FamilyEngine
from afflux.protocols.family.lease import LeasePolicy
from afflux.protocols.family.sessions import Sessions
from afflux.protocols.family.states import ConnectionState
from afflux.protocols.rsocket_draft import frames, negotiation
from afflux.protocols.rsocket_draft.compact import CompactType
from afflux.protocols.rsocket_draft.dialect import Dialect
from afflux.protocols.rsocket_draft.entries import RESUME, Entry
from afflux.protocols.rsocket_draft.frames import Setup
from afflux.protocols.rsocket_draft.member import LAYOUT, member_of
from afflux.protocols.rsocket_draft.negotiation import Negotiation
from afflux.protocols.rsocket_draft.payload import ExtendedPayload, prelude
from afflux.protocols.rsocket_draft.resumption import Resumption, records_of
from afflux.protocols.rsocket_draft.runs import SharedRuns
from afflux.protocols.rsocket_draft.sending import ExtendingEntries
from afflux.protocols.rsocket_draft.strategies import FramesHeld

__all__ = ["DEFAULT_MTU", "Engine"]


class Engine(FamilyEngine):
    """One end of a connection of the draft; see core.engine.Engine for the contract.

    Args:
        role: "client" (it sends the first frame, SETUP) or "server".
        setup: the client's proposal, with the extensions that it offers; the default offers keepalive.
        limits: the bounds; ``Limits.server()`` if None.
        decide: a server waits for ``accept`` or ``refuse`` after Established instead of accepting immediately.
        now: the time at which the connection begins, in monotonic seconds.
        mtu: bytes a frame may have, with its prefix, before its payload is split; 64 or more.
        lease: the policy of this side. A server without one does not have the lease extension.
        sessions: the table of a server's resumable sessions; a server without it does not have the resume extension.
        extensions: the extensions that the application understands: names or numbers of entries ("broker" included),
            and extended types of EXT.
        place: places the buffer of a large payload in memory (``Terms.place``).
        dialect: the differences of the peer from the specification; None if there are none.
    """

    __slots__ = ("_dialect", "_held_back", "negotiation")

    def __init__(
        self,
        role: Literal["client", "server"],
        *,
        setup: Setup | None = None,
        limits: Limits | None = None,
        decide: bool = False,
        now: float = 0.0,
        mtu: int = DEFAULT_MTU,
        lease: LeasePolicy | None = None,
        sessions: Sessions | None = None,
        extensions: Container[CompactType] = (),
        place: Place | None = None,
        dialect: Dialect | None = None,
    ) -> None:
        self._dialect = dialect
        self.negotiation = Negotiation(extensions)
        self._held_back = b""
        "Frames of streams that wait for permits of Frames Count."
        super().__init__(
            member_of(dialect),
            role,
            setup=setup,
            limits=limits,
            decide=decide,
            now=now,
            mtu=mtu,
            lease=lease,
            extensions=extensions,  # type: ignore[arg-type]  # names are no extended types: none is found
            resuming=Resumption(sessions) if sessions is not None or (setup and setup.entry(RESUME)) else None,
            place=place,
        )
        if dialect is None:
            self.inbound.runs = SharedRuns(self.negotiation)
        if self.client:
            negotiation.start(self)

    @property
    def deadline(self) -> float | None:
        """The time at which tick is next due."""
        due = super().deadline
        return None if due == float("inf") else due

    # -- calls of the application -----------------------------------------------------------------------------

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
        """Open a stream and return its id; ``now`` matters only with leases."""
        wishes = isinstance(payload, ExtendedPayload) and _wishes(payload, verb)
        id = super().open(verb, payload, credit=credit, complete=complete, columnar=columnar, now=now)
        if wishes and (records := records_of(self)) is not None:
            records.ask(id)
        return id

    def ask(self, payloads: Sequence[Payload]) -> list[int]:
        """Open a request for each payload while there are ids, without leases."""
        if set(map(type, payloads)) != {Payload}:
            checked = None
            for payload in payloads:
                if isinstance(payload, ExtendedPayload) and payload.encoded is not checked:
                    _wishes(payload, "request")
                    checked = payload.encoded
        return super().ask(payloads)

    def push(self, metadata: bytes) -> None:
        """Send metadata about the connection, after SETUP_OK if this client waits for it."""
        if self.state is not ConnectionState.AWAIT_OK:
            super().push(metadata)
            return
        self.check_metadata(metadata)
        self.send_control(frames.MetadataPush(metadata=metadata).encode(prefixed=True))

    @property
    def extensions(self) -> ExtendingEntries:
        """The part that sends EXT."""
        return ExtendingEntries(self)

    def send_entries(self, *entries: Entry) -> None:
        """Send extension entries on EXT, after SETUP_OK if this client waits for it (R-9).

        Raises:
            LocalProtocolError: an entry is out of bounds.
            LimitExceeded: the entries are longer than a peer accepts.
            ConnectionClosed: the connection is closed.
        """
        try:
            frame = frames.ExtChain(extensions=entries).encode(prefixed=True)
        except Violation as violation:
            raise LocalProtocolError(violation.reason, stream=0, rule=violation.rule) from None
        if len(frame) - LAYOUT.prefix > self.limits.frame_bytes:
            text = f"a frame of {len(frame)} bytes: a peer accepts {self.limits.frame_bytes}"
            raise LimitExceeded(text, stream=0, rule="frame-too-large")
        self.send_control(frame)

    def send_control(self, frame: bytes) -> None:
        """Send a frame of an extension or of stream 0, after SETUP_OK if this client waits for it.

        Raises:
            ConnectionClosed: the connection is closed.
        """
        if self.state is ConnectionState.AWAIT_OK:
            self.negotiation.waiting.append(frame)
        elif self.may_send:
            self.outbound.control(frame)
        else:
            raise ConnectionClosed(f"nothing can be sent: the connection is {self.standing}")

    def consumed(self, size: int, items: int = 0) -> None:
        """Note that the application consumed payloads of ``size`` bytes in all, their entries not included."""
        if self.negotiation.entry_bytes:
            size += self.negotiation.consume(self.stream_table, items)
        super().consumed(size, items)

    # -- output -----------------------------------------------------------------------------------------

    def outgoing(self, limit: int = 0x10000) -> bytes:
        """Bytes to write now; with Frames Count as many stream frames as the lease permits (R-32)."""
        data = self._permitted_frames(limit)
        return data if self._dialect is None else self._dialect.outward(data)

    def _permitted_frames(self, limit: int) -> bytes:
        leases = self.stream_table.leases
        if leases is None or not isinstance(leases.held, FramesHeld) or not self.is_open:
            return super().outgoing(limit)
        left = leases.held.left(self.current.now)
        if not left or self._held_back:
            paused, self.outbound.paused = self.outbound.paused, True
            data = super().outgoing(limit)
            self.outbound.paused = paused
            waiting, self._held_back = self._held_back, b""
        else:
            data, waiting = b"", super().outgoing(limit)
        sent, self._held_back, frames_sent = _permitted(waiting, left)
        leases.held.requests -= frames_sent
        return data + sent

    @property
    def queued(self) -> int:
        """Bytes waiting for ``outgoing``."""
        return super().queued + len(self._held_back)


def _wishes(payload: ExtendedPayload, verb: Verb) -> bool:
    """Whether the stream of a request is to survive the transport. What cannot be sent opens no stream.

    Raises:
        LocalProtocolError, LimitExceeded: the request cannot be sent.
    """
    flags, encoded = prelude(payload, True)
    if not flags or (b"\x81" not in encoded and b"resume" not in encoded):  # its number, or its name
        return False
    wishes = any(entry.number == RESUME and entry.marked for entry in payload.entries)
    if wishes and verb not in ("stream", "channel"):
        raise LocalProtocolError(f"a {verb} does not survive the transport", rule="R-36")
    return wishes


def _permitted(block: bytes, permits: int) -> tuple[bytes, bytes, int]:
    """Split whole frames after the last one that ``permits`` frames of streams allow; return also their number."""
    at = sent = 0
    while at < len(block):
        if block[at + 3 : at + 7] != b"\0\0\0\0":
            if sent == permits:
                break
            sent += 1
        at += 3 + int.from_bytes(block[at : at + 3], "big")
    return block[:at], block[at:], sent
