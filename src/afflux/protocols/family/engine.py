"""Implement the application's part of the engine contract: the calls that a driver makes for the application.

core/engine.py defines each call. A call for a stream that has ended is a no-op.
"""

from __future__ import annotations

from collections.abc import Sequence

from afflux.core.credit import Bound, StreamStatus
from afflux.core.errors import (
    ConnectionClosed,
    Consequence,
    LeaseExpired,
    LimitExceeded,
    LocalProtocolError,
    Violation,
)
from afflux.core.events import Event, Verb
from afflux.core.payload import Payload, PayloadLike, payload_of
from afflux.protocols.family import handshake
from afflux.protocols.family.connection import DEFAULT_MTU, MAX_N, Connection
from afflux.protocols.family.states import ConnectionInput, ConnectionState, StreamAction, StreamInput, StreamState
from afflux.protocols.family.stream import Stream

__all__ = ["DEFAULT_MTU", "Engine"]

_S, _I = ConnectionState, ConnectionInput
_ASKING = (_S.OPEN, _S.SETUP_SENT, _S.SUSPENDED, _S.RESUME_SENT, _S.AWAIT_OK)
"States in which requests may be queued."
# Enum members are slow to look up: those of the short paths are looked up once.
_APP_ITEM, _APP_COMPLETE = StreamInput.APP_ITEM, StreamInput.APP_COMPLETE
_SEND, _SEND_COMPLETE_BOTH = StreamAction.SEND, StreamAction.SEND_COMPLETE_BOTH
_S_OPEN = ConnectionState.OPEN
_OPEN, _OUT_DONE, _IN_DONE, _CLOSED = StreamState.OPEN, StreamState.OUT_DONE, StreamState.IN_DONE, StreamState.CLOSED


class Engine(Connection):
    """One end of a connection of the RSocket family; see core.engine.Engine for the contract.

    It extends Connection, which has the calls of a driver: one class would have more than 40 methods, an engine
    that contained a connection would only pass on half of its calls, and a server's table of sessions stores engines.
    """

    __slots__ = ()

    # -- the connection ---------------------------------------------------------------------------------------

    def accept(self, now: float) -> list[Event]:
        """Accept the peer, then process what it sent in the meantime."""
        handshake.check_deciding(self)
        self.current.now = now
        return self.run(handshake.accept, self)

    def refuse(self, reason: str, now: float, code: int | None = None) -> list[Event]:
        """Refuse the peer with ``code``; REJECTED_SETUP if it is None or not valid for a refusal. A peer that wants to
        resume is refused with REJECTED_RESUME, whatever the code (R-47)."""
        handshake.check_deciding(self, _S.RESUMING)
        self.current.now = now
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
        self.outbound.control(self.member.frames.MetadataPush(stream=0, metadata=metadata).encode(prefixed=True))

    def close(self, now: float, *, drain: bool = False, reason: str = "") -> list[Event]:
        """Close immediately with CONNECTION_ERROR, or with ``drain`` when the live streams have ended (R-20)."""
        self.current.now = now
        violation = Violation(reason or "closed", rule="3.1", code=self.member.codes.Code.CONNECTION_ERROR)
        return self.run(self.step, _I.APP_DRAIN if drain else _I.APP_CLOSE, violation)

    # -- requests ---------------------------------------------------------------------------------------------

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
            self.current.now = now
        member, streams = self.member, self.stream_table
        opening = member.openings.get(verb)
        if opening is None:
            text = f"unknown verb {verb!r}: this protocol has {', '.join(member.openings)}"
            raise LocalProtocolError(text, rule=member.rules.verb)
        if opening.credited and not 0 < credit <= MAX_N:
            text = f"the first credit of a {verb} is 1 to {MAX_N}, not {credit}"
            raise LocalProtocolError(text, rule=member.rules.demand)
        value = payload_of(payload)
        if not opening.cut:
            self._check_size(value)
        if streams.leases is not None and not streams.leases.held.take(self.current.now):
            raise LeaseExpired("no valid lease: none granted, used up or expired", rule=member.rules.lease)
        id = streams.allocate()
        channel = opening.verb == "channel"
        extra = credit.to_bytes(4, "big") if opening.credited else b""
        self.outbound.request(id, opening, extra, value, complete and channel)
        streams.opened += 1
        if verb != "fire":
            stream = streams.live[id] = Stream(id, opening.verb, member.requester, credit)
            if channel:
                stream.to_send.used = 1
            stream.columnar = columnar
            stream.endless = opening.endless
            stream.state = _OUT_DONE if complete or not channel else _OPEN
            stream.rate(False)
        if self.resuming is not None:
            self.resuming.weigh_away(self)
        return id

    def ask(self, payloads: Sequence[Payload]) -> list[int]:
        """Open a request for each payload while there are ids, without leases."""
        if self.state is not _S_OPEN or self.farewell is not None or self.peer_draining:
            self._check_asking()
        streams = self.stream_table
        opening, role, live = self.member.openings["request"], self.member.requester, streams.live
        if not opening.cut:
            for payload in payloads:
                self._check_size(payload)
        asked = len(payloads)
        ids = streams.ids.allocate_some(asked, live)
        count = len(ids)
        for id in ids:
            stream = live[id] = Stream(id, "request", role)
            stream.state = _OUT_DONE
            stream.answering = True
        if streams.ids.wrapped:
            for id in ids:
                streams.late.forget(id)
        self.outbound.batch(ids, opening.word, payloads if count == asked else payloads[:count], opening)
        streams.opened += count
        if self.resuming is not None:
            self.resuming.weigh_away(self)
        return ids

    def answer(self, streams: Sequence[int], payloads: Sequence[Payload]) -> None:
        """Send one answer for each request, and release it: the steps APP_ITEM and APP_COMPLETE in one."""
        table = self.stream_table
        live = table.live
        table.handlers.difference_update(streams)
        if table.work.begun:
            table.work.begun.difference_update(streams)
        over: set[int] = set()
        for place, id in enumerate(streams):
            stream = live.get(id)
            if stream is not None and stream.state is _IN_DONE and stream.verb == "request":
                stream.state = _CLOSED
                del live[id]
            else:
                over.add(place)
        if over:
            streams = [id for place, id in enumerate(streams) if place not in over]
            payloads = [payload for place, payload in enumerate(payloads) if place not in over]
        self.outbound.batch(streams, self.member.layout.answers[0], payloads, None)
        count = len(streams)
        table.items_sent += count
        table.late.answered(count)
        if self.resuming is not None:
            self.resuming.weigh_away(self)

    def begin(self, stream: int) -> None:
        """Note that the handler of a stream that the peer opened has started."""
        if stream in self.stream_table.handlers:
            self.stream_table.work.begun.add(stream)

    def release(self, stream: int) -> None:
        """Note that the handler of a stream that the peer opened has returned, or will never start."""
        self.stream_table.work.release(stream)

    # -- items and endings ------------------------------------------------------------------------------------

    def send(self, stream: int, payloads: Sequence[PayloadLike], *, complete: bool = False) -> None:
        """Send items; with ``complete`` the last of them ends this half."""
        table = self.stream_table
        live = table.live.get(stream)
        if live is None or live.role.steps[live.state][_APP_ITEM].action is not _SEND:
            return
        count = len(payloads)
        credit = live.to_send
        if count > credit.available:
            text = f"stream {stream} has credit for {credit.available} items, not for {count}"
            raise LocalProtocolError(text, stream=stream, rule=self.member.rules.credit)
        if not count:
            if complete:
                table.step(live, _APP_COMPLETE)
            return
        alone = complete and live.verb != "request" and self._completes_alone(live, payloads[-1])
        ends = (complete and not alone) or live.verb == "request"
        if count == 1:
            self.outbound.item(stream, live.role, payload_of(payloads[0]), ends)
        if live.verb != "request":
            credit.available -= count
            credit.used += count
        table.items_sent += count
        if count > 1:
            self.outbound.run(stream, live.role, payloads, count - 1 if ends else -1)
        if ends:
            step = live.role.steps[live.state][_APP_COMPLETE]
            live.state = step.next
            if step.action is _SEND_COMPLETE_BOTH:
                table.end_both(live)
            table.settle(live)
        elif alone:
            table.step(live, _APP_COMPLETE)
        if self.resuming is not None:
            self.resuming.weigh_away(self)

    def complete(self, stream: int) -> None:
        """End this half."""
        live = self.stream_table.live.get(stream)
        if live is not None:
            self.stream_table.step(live, _APP_COMPLETE)

    def fail(self, stream: int, error: BaseException) -> None:
        """End the stream with an error."""
        self.stream_table.leave(stream, StreamInput.APP_FAIL, error)

    def cancel(self, stream: int) -> None:
        """Accept no more items from the peer."""
        self.stream_table.leave(stream, StreamInput.APP_CANCEL)

    # -- credit -----------------------------------------------------------------------------------------------

    def request(self, stream: int, n: int) -> None:
        """Grant the peer ``n`` more items, 1 to 2^31-1."""
        rules, table = self.member.rules, self.stream_table
        if not 0 < n <= MAX_N:
            raise LocalProtocolError(f"a credit is 1 to {MAX_N} items, not {n}", stream=stream, rule=rules.demand)
        live = table.live.get(stream)
        if live is None or live.state not in (_OPEN, _OUT_DONE):
            return
        if live.verb == "request":
            raise LocalProtocolError("a request/response has one item and no credit", stream=stream, rule=rules.single)
        if not live.first_paid:
            live.first_paid = True  # D-8: the first item came with REQUEST_CHANNEL and used one
            live.to_receive.used += 1
            n -= 1
        if n:
            live.to_receive.add(n)
            live.rate(stream in table.reassembly.partials)
            self.scheduler.queue_credit(stream, self.member.layout.credit(stream, n))

    def consumed(self, size: int, items: int = 0) -> None:
        """Note that the application consumed payloads of ``size`` bytes in all."""
        streams = self.stream_table
        size, items = streams.delivered - size, streams.objects - items
        streams.delivered = size if size > 0 else 0
        streams.objects = items if items > 0 else 0

    def unsent(self, stream: int) -> bool:
        """Return False: the engine does not record which streams were handed to the transport."""
        return False

    def credit(self, stream: int) -> int:
        """Items that the peer still accepts on a stream."""
        live = self.stream_table.live.get(stream)
        return 0 if live is None else live.to_send.available

    def streams(self, *, room: int | None = None, now: float = 0.0) -> list[StreamStatus]:
        """Describe the live streams; credit counts items."""
        left = self.room(0) if room is None else room
        return [self._status(stream, left) for stream in self.stream_table.live.values()]

    def _status(self, stream: Stream, room: int) -> StreamStatus:
        queued = self.scheduler.queued(stream.id)
        to_send, to_receive = stream.to_send, stream.to_receive
        line = stream.role.steps[stream.state]
        bounds: list[Bound | None] = []
        if queued or line[_APP_ITEM].action is _SEND:
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
        if self.state not in _ASKING or self.farewell is not None or self.peer_draining:
            closing = self.state is _S.DRAINING or self.state in _ASKING
            text = f"no new requests: the connection is {'draining' if closing else self.standing}"
            code = self.member.closing_code if closing else None
            raise ConnectionClosed.unsent(text, code=code, rule=self.member.rules.drain)

    def _check_size(self, payload: Payload) -> None:
        """Raise LimitExceeded for a request that cannot be split and exceeds a frame."""
        layout, most = self.member.layout, self.limits.frame_bytes
        size = layout.size + 4 + len(payload) + (0 if payload.metadata is None else layout.metadata_size)
        if size > most:
            text = f"a request of {size} bytes cannot be split and exceeds frame_bytes={most}"
            raise LimitExceeded(text, rule="frame-too-large")

    def _completes_alone(self, stream: Stream, item: PayloadLike) -> bool:
        """Whether the completion needs a frame of its own after the last item."""
        if stream.endless and not stream.requester:
            return True
        if not self.member.bare_ends:
            return False
        payload = payload_of(item)  # an item without content, sent with the completion, would be the completion alone
        return not payload.data and payload.metadata is None
