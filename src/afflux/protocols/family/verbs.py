"""Apply the application's calls to the streams of one connection: open, ask, answer, send, grant, end.

core/engine.py defines each call. A call for a stream that has ended is a no-op.
"""

from __future__ import annotations

from collections.abc import Sequence

from afflux.core.credit import SATURATED
from afflux.core.errors import LeaseExpired, LimitExceeded, LocalProtocolError
from afflux.core.payload import Payload, PayloadLike, payload_of
from afflux.protocols.family.states import StreamAction, StreamInput, StreamState
from afflux.protocols.family.stream import Stream
from afflux.protocols.family.streams import ASKS, ASKS_LAST, CLOSED, SERVES_LAST, Streams

__all__ = ["MAX_N", "answer", "ask", "cancel", "complete", "fail", "open_stream", "request", "send"]

MAX_N = 0x7FFFFFFF
"The maximum that one frame can grant."
# Enum members are slow to look up: those of the short paths are looked up once.
_APP_ITEM, _APP_COMPLETE = StreamInput.APP_ITEM, StreamInput.APP_COMPLETE
_SEND, _SEND_COMPLETE_BOTH = StreamAction.SEND, StreamAction.SEND_COMPLETE_BOTH
_RECEIVING = (StreamState.OPEN, StreamState.OUT_DONE)


def open_stream(streams: Streams, verb: str, payload: PayloadLike, credit: int, complete: bool, columnar: bool) -> int:
    """Open a stream and return its id."""
    member, leases = streams.member, streams.leases
    opening = member.openings.get(verb)
    if opening is None:
        text = f"unknown verb {verb!r}: this protocol has {', '.join(member.openings)}"
        raise LocalProtocolError(text, rule=member.rules.verb)
    if opening.credited and not 0 < credit <= MAX_N:
        text = f"the first credit of a {verb} is 1 to {MAX_N}, not {credit}"
        raise LocalProtocolError(text, rule=member.rules.demand)
    value = payload_of(payload)
    if not opening.cut:
        _check_size(streams, value)
    if leases is not None and not leases.held.take(streams.now.now):
        raise LeaseExpired("no valid lease: none granted, used up or expired", rule=member.rules.lease)
    id = streams.allocate()
    channel = opening.verb == "channel"
    extra = credit.to_bytes(4, "big") if opening.credited else b""
    streams.out.request(id, opening, extra, value, complete and channel)
    streams.opened += 1
    if verb == "fire":
        return id
    stream = streams.live[id] = Stream(id, opening.verb, member.requester)
    stream.columnar = columnar
    stream.endless = opening.endless
    stream.state = ASKS_LAST if complete or not channel else ASKS
    stream.owed = credit if opening.credited else 1
    stream.sent = int(channel)
    stream.rate(False)
    return id


def ask(streams: Streams, payloads: Sequence[Payload]) -> list[int]:
    """Open a request for each payload while there are ids."""
    opening, role, live = streams.member.openings["request"], streams.member.requester, streams.live
    if not opening.cut:
        for payload in payloads:
            _check_size(streams, payload)
    ids: list[int] = []
    allocate = streams._ids.allocate
    for _ in payloads:
        try:
            id = allocate(live)
        except LimitExceeded:
            if ids:
                break
            raise
        stream = live[id] = Stream(id, "request", role)
        stream.state = ASKS_LAST
        stream.owed = 1
        stream.answering = True
        ids.append(id)
    if streams._ids.wrapped:
        for id in ids:
            streams.late.forget(id)
    streams.out.requests(ids, opening, payloads[: len(ids)])
    streams.opened += len(ids)
    return ids


def _check_size(streams: Streams, payload: Payload) -> None:
    """Raise LimitExceeded for a request that cannot be split and exceeds a frame."""
    layout = streams.member.layout
    size = layout.size + 4 + len(payload) + (0 if payload.metadata is None else layout.metadata_size)
    if size > streams.limits.frame_bytes:
        raise LimitExceeded(
            f"a request of {size} bytes cannot be split: a peer accepts {streams.limits.frame_bytes}",
            rule="frame-too-large",
        )


def answer(streams: Streams, ids: Sequence[int], payloads: Sequence[Payload]) -> None:
    """Send one answer for each request, and release it: the steps APP_ITEM and APP_COMPLETE in one."""
    live = streams.live
    streams.handlers.difference_update(ids)
    if streams.work.begun:
        streams.work.begun.difference_update(ids)
    sent: list[Payload] = []
    to: list[int] = []
    for id, payload in zip(ids, payloads, strict=True):
        stream = live.get(id)
        if stream is not None and stream.state is SERVES_LAST and stream.verb == "request":
            stream.state = CLOSED
            del live[id]
            to.append(id)
            sent.append(payload)
    streams.out.answers(to, sent)
    streams.items_sent += len(to)
    streams._late.answered(len(to))


def send(streams: Streams, id: int, payloads: Sequence[PayloadLike], last: bool) -> None:
    """Send items; ``last``: the final one completes this half."""
    stream = streams.live.get(id)
    if stream is None or stream.role.steps[stream.state][_APP_ITEM].action is not _SEND:
        return
    count = len(payloads)
    if count > stream.allowed:
        text = f"stream {id} has credit for {stream.allowed} items, not for {count}"
        raise LocalProtocolError(text, stream=id, rule=streams.member.rules.credit)
    if not count:
        if last:
            streams.step(stream, _APP_COMPLETE)
        return
    alone = last and stream.verb != "request" and _completes_alone(streams, stream, payloads[-1])
    ends = (last and not alone) or stream.verb == "request"
    if count == 1:
        streams.out.item(id, stream.role, payload_of(payloads[0]), ends)
    stream.allowed -= count
    stream.sent += count
    streams.items_sent += count
    if count > 1:
        streams.out.run(id, stream.role, payloads, count - 1 if ends else -1)
    if ends:
        step = stream.role.steps[stream.state][_APP_COMPLETE]
        stream.state = step.next
        if step.action is _SEND_COMPLETE_BOTH:
            streams.end_both(stream)
        streams.settle(stream)
    elif alone:
        streams.step(stream, _APP_COMPLETE)


def _completes_alone(streams: Streams, stream: Stream, item: PayloadLike) -> bool:
    """Whether the completion needs a frame of its own after the last item."""
    if stream.endless and not stream.requester:
        return True
    if not streams.member.bare_ends:
        return False
    payload = payload_of(item)  # an item without content, sent with the completion, would be the completion alone
    return not payload.data and payload.metadata is None


def complete(streams: Streams, id: int) -> None:
    """End this half."""
    stream = streams.live.get(id)
    if stream is not None:
        streams.step(stream, _APP_COMPLETE)


def fail(streams: Streams, id: int, error: BaseException) -> None:
    """End a stream with an error."""
    streams.untold.pop(id, None)
    stream = streams.live.get(id)
    if stream is not None:
        streams.step(stream, StreamInput.APP_FAIL, error)


def cancel(streams: Streams, id: int) -> None:
    """Accept no more items from the peer."""
    streams.untold.pop(id, None)
    stream = streams.live.get(id)
    if stream is not None:
        streams.step(stream, StreamInput.APP_CANCEL)


def request(streams: Streams, id: int, n: int) -> None:
    """Grant the peer ``n`` more items."""
    rules = streams.member.rules
    if not 0 < n <= MAX_N:
        raise LocalProtocolError(f"a credit is 1 to {MAX_N} items, not {n}", stream=id, rule=rules.demand)
    stream = streams.live.get(id)
    if stream is None or stream.state not in _RECEIVING:
        return
    if stream.verb == "request":
        raise LocalProtocolError("a request/response has one item and no credit", stream=id, rule=rules.single)
    if not stream.first_paid:
        stream.first_paid = True  # D-8: the first item came with REQUEST_CHANNEL and used one
        stream.received += 1
        n -= 1
    if n:
        stream.owed = min(stream.owed + n, SATURATED)
        stream.rate(id in streams.reassembly.partials)
        streams.out.queue_credit(id, streams.member.frames.RequestN(stream=id, n=n).encode(prefixed=True))
