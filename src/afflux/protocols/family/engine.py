"""Implement the application's part of the engine contract: the calls that a driver makes for the application."""

from __future__ import annotations

from collections.abc import Sequence

from afflux.core.credit import Bound, Credit, StreamStatus
from afflux.core.errors import ConnectionClosed, Consequence, Violation
from afflux.core.events import Event, Verb
from afflux.core.payload import Payload, PayloadLike
from afflux.protocols.family import handshake, verbs
from afflux.protocols.family.connection import DEFAULT_MTU, Connection
from afflux.protocols.family.states import ConnectionInput, ConnectionState, StreamAction, StreamInput
from afflux.protocols.family.stream import Stream

__all__ = ["DEFAULT_MTU", "Engine"]

_S, _I = ConnectionState, ConnectionInput
_ASKING = (_S.OPEN, _S.SETUP_SENT, _S.SUSPENDED, _S.RESUME_SENT)
"States in which requests may be queued."


class Engine(Connection):
    """One end of a connection of the RSocket family; see core.engine.Engine for the contract."""

    __slots__ = ()

    # -- the connection ---------------------------------------------------------------------------------------

    def accept(self, now: float) -> list[Event]:
        """Accept the peer, then process what it sent in the meantime."""
        handshake.check_deciding(self)
        self._pass.now = now
        return self.run(handshake.accept, self)

    def refuse(self, reason: str, now: float, code: int | None = None) -> list[Event]:
        """Refuse the peer with ``code``; REJECTED_SETUP if it is None or not valid for a refusal. A peer that wants to
        resume is refused with REJECTED_RESUME, whatever the code (R-47)."""
        handshake.check_deciding(self, _S.RESUMING)
        self._pass.now = now
        codes, rule = self.member.codes.Code, self.member.rules.refused
        fit = code in (codes.INVALID_SETUP, codes.UNSUPPORTED_SETUP, codes.REJECTED_SETUP)
        code = code if fit else codes.REJECTED_SETUP
        violation = Violation(reason, rule=rule, code=code, consequence=Consequence.REFUSE_SETUP)
        return self.run(self.step, _I.APP_REFUSE, violation)

    def push(self, metadata: bytes) -> None:
        """Send metadata about the connection (METADATA_PUSH)."""
        if not self.may_send:
            raise ConnectionClosed(f"nothing can be pushed: the connection is {self.standing}")
        self.check_metadata(metadata)
        self._out.control(self.member.frames.MetadataPush(stream=0, metadata=metadata).encode(prefixed=True))

    def close(self, now: float, *, drain: bool = False, reason: str = "") -> list[Event]:
        """Close immediately with CONNECTION_ERROR, or with ``drain`` when the live streams have ended (R-20)."""
        self._pass.now = now
        violation = Violation(reason or "closed", rule="3.1", code=self.member.codes.Code.CONNECTION_ERROR)
        return self.run(self.step, _I.APP_DRAIN if drain else _I.APP_CLOSE, violation)

    # -- streams ----------------------------------------------------------------------------------------------

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
        self._check_asking()
        if now is not None:
            self._pass.now = now
        stream = verbs.open_stream(self._streams, verb, payload, credit, complete, columnar)
        if self._resuming is not None:
            self._resuming.weigh_away(self)
        return stream

    def ask(self, payloads: Sequence[Payload]) -> list[int]:
        """Open requests, without leases."""
        self._check_asking()
        ids = verbs.ask(self._streams, payloads)
        if self._resuming is not None:
            self._resuming.weigh_away(self)
        return ids

    def answer(self, streams: Sequence[int], payloads: Sequence[Payload]) -> None:
        """Answer requests, and release them."""
        verbs.answer(self._streams, streams, payloads)
        if self._resuming is not None:
            self._resuming.weigh_away(self)

    def send(self, stream: int, payloads: Sequence[PayloadLike], *, complete: bool = False) -> None:
        """Send items."""
        verbs.send(self._streams, stream, payloads, complete)
        if self._resuming is not None:
            self._resuming.weigh_away(self)

    def complete(self, stream: int) -> None:
        """End this half."""
        verbs.complete(self._streams, stream)

    def fail(self, stream: int, error: BaseException) -> None:
        """End the stream with an error."""
        verbs.fail(self._streams, stream, error)

    def request(self, stream: int, n: int) -> None:
        """Grant the peer ``n`` more items, 1 to 2^31-1."""
        verbs.request(self._streams, stream, n)

    def cancel(self, stream: int) -> None:
        """Accept no more items from the peer."""
        verbs.cancel(self._streams, stream)

    def begin(self, stream: int) -> None:
        """Note that the handler of a stream that the peer opened has started."""
        if stream in self._streams.handlers:
            self._streams.work.begun.add(stream)

    def release(self, stream: int) -> None:
        """Note that the handler of a stream that the peer opened has returned, or will never start."""
        self._streams.work.release(stream)

    def consumed(self, size: int, items: int = 0) -> None:
        """Note that the application consumed payloads of ``size`` bytes in all."""
        self._streams.delivered = max(0, self._streams.delivered - size)
        self._streams.objects = max(0, self._streams.objects - items)

    def unsent(self, stream: int) -> bool:
        """Return False: the engine does not record which streams were handed to the transport."""
        return False

    # -- credit -----------------------------------------------------------------------------------------------

    def credit(self, stream: int) -> int:
        """Items that the peer still accepts on a stream."""
        live = self._streams.live.get(stream)
        return 0 if live is None else live.allowed

    def streams(self, *, room: int | None = None, now: float = 0.0) -> list[StreamStatus]:
        """Describe the live streams; credit counts items."""
        left = self.room(0) if room is None else room
        return [self._status(stream, left) for stream in self._streams.live.values()]

    def _status(self, stream: Stream, room: int) -> StreamStatus:
        to_send, to_receive, queued = Credit(stream.allowed), Credit(stream.owed), self._out.queued(stream.id)
        to_send.used, to_receive.used = stream.sent, stream.received
        line = stream.role.steps[stream.state]
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

    def _check_asking(self) -> None:
        if self._state not in _ASKING or self._farewell is not None or self._peer_draining:
            closing = self._state is _S.DRAINING or (self._state is not _S.CLOSED and self._state in _ASKING)
            text = f"no new requests: the connection is {'draining' if closing else self.standing}"
            code = self.member.closing_code if closing else None
            raise ConnectionClosed.unsent(text, code=code, rule=self.member.rules.drain)
