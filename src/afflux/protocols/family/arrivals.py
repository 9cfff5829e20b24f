"""Apply the peer's stream frames: admit requests, reassemble fragments, and classify the rest for the tables.

Five short paths of inbound.py bypass these functions. late.py prices frames for streams that have ended.
"""

from __future__ import annotations

from typing import Any

from afflux.core.errors import Consequence, Violation
from afflux.core.events import Ignored, Opened
from afflux.core.limits import explained, oversize, reached
from afflux.core.payload import Payload
from afflux.protocols.family.late import LateFrame
from afflux.protocols.family.states import StreamInput, StreamState
from afflux.protocols.family.stream import Stream
from afflux.protocols.family.streams import Streams

__all__ = ["expire", "on_cancel", "on_error", "on_item", "on_request", "on_request_n"]

_CHEAP = 100
"Rejected requests per glitch token."
_IN_DONE = StreamState.IN_DONE


# -- requests -------------------------------------------------------------------------------------------------


def on_request(streams: Streams, frame: Any, refusal: str = "") -> None:
    """Apply a request frame on an open connection; ``refusal`` is the reason to reject every request, if any."""
    id: int = frame.stream
    work, rules = streams.work, streams.member.rules
    if streams.member.quirks.continues(streams, frame):
        return
    if id & 1 != streams.peer_parity or id == 0:
        streams.current.charge(10, id, rules.parity, "a request with this side's own parity or on stream 0")
    elif id in streams.live or id in streams.reassembly.partials or id in work.running or id in work.fires:
        # SI-16: an id whose handler still runs is in use; otherwise one id could start any number of handlers
        streams.current.charge(10, id, rules.stray, "a request on an id in use")
    else:
        if id > streams.newest:
            streams.newest = id
        else:
            streams.late.forget(id)
        _admit(streams, frame, refusal)


def _admit(streams: Streams, frame: Any, refusal: str) -> None:
    id: int = frame.stream
    opening, leases, codes = streams.member.verbs[type(frame)], streams.leases, streams.member.codes
    if refusal:
        _reject(streams, frame, refusal)
    elif _is_full(streams, opening.verb == "fire"):
        _turn_away(streams, frame)
    elif leases is not None and not leases.issued.take(streams.current.now):
        _reject(streams, frame, "lease: none is left")  # R-42; a fragmented request counts once
    elif opening.credited and frame.initial_n == 0:
        _refuse(streams, id, codes.Code.INVALID, "request-n-zero", frame.follows)
    elif frame.follows:
        fragment(streams, frame, last=False)
    else:
        payload = Payload(frame.data, frame.metadata)
        if len(payload) > streams.limits.payload_bytes:
            reason = oversize(streams.limits, "payload_bytes", len(payload))
            _refuse(streams, id, codes.Code.REJECTED, reason, False, opening.verb == "fire")
        else:
            _accept(streams, frame, payload, opening.verb == "channel" and frame.complete)


def _is_full(streams: Streams, fire: bool) -> bool:
    """Whether the number of running or waiting requests is at its bound. Only memory bounds fire requests."""
    if streams.limits.streams and fire:
        return False
    return len(streams.handlers) >= streams.work.most


def _accept(streams: Streams, frame: Any, payload: Payload, complete: bool) -> None:
    id: int = frame.stream
    opening = streams.member.verbs[type(frame)]
    verb = opening.verb
    streams.opened += 1
    credit = frame.initial_n if opening.credited else int(verb == "request")
    streams.objects += 1
    if verb == "fire":
        streams.work.fires.add(id)
    else:
        streams.handlers.add(id)
        stream = streams.live[id] = Stream(id, verb, streams.member.responder, to_send=credit)
        stream.endless = opening.endless
        stream.state = _IN_DONE if verb != "channel" or complete else StreamState.OPEN
    streams.delivered += len(payload)
    streams.current.events.append(Opened(id, verb, payload, credit, complete))


def _turn_away(streams: Streams, frame: Any) -> None:
    """Reject a request because too many wait; one in ``_CHEAP`` is charged."""
    work = streams.work
    _reject(streams, frame, reached(streams.limits, "pending_streams"), int(work.turned_away % _CHEAP == 0))
    work.turned_away += 1


def _reject(streams: Streams, frame: Any, reason: str, price: int = 1) -> None:
    """Reject a request that no handler has seen: the peer may safely retry it."""
    id: int = frame.stream
    streams.current.charge(price, id, "REJECTED", reason)
    _leave(streams, id, frame.follows)
    if streams.member.verbs[type(frame)].verb != "fire":  # D-11: a refused REQUEST_FNF is dropped silently
        streams.send_error(id, streams.member.codes.Code.REJECTED, reason)


def _refuse(streams: Streams, id: int, code: int, reason: str, more: bool, silent: bool = False) -> None:
    """Refuse a request that breaks a rule; it counts as one of the peer's cancels (FL-02)."""
    if not silent:
        streams.send_error(id, code, explained(streams.limits, reason))
    _leave(streams, id, more)
    streams.current.count_cancel()


def _leave(streams: Streams, id: int, more: bool) -> None:
    """Remember a refused request; ``more``: further fragments of it will arrive."""
    if more:
        streams.late.cut_off(id)
    streams.late.given_up(id, streams.limits.fragments if more else streams.limits.cancel_race_frames)


# -- items ----------------------------------------------------------------------------------------------------


def on_item(streams: Streams, frame: Any, is_item: bool, fits: bool = True) -> None:
    """Apply a frame with an item or the end of a half that did not take the short path. ``is_item`` is whether the
    whole frame has an item; ``fits`` is whether its sender may send such a frame on this stream."""
    id: int = frame.stream
    stream = streams.live.get(id)
    # F is ignored when C is set too
    last = not frame.follows or frame.complete
    if stream is not None and not fits:
        text = f"{frame.NAME} on a stream of its own sender"
        streams.current.charge(10, id, streams.member.rules.stray, text)
    elif id in streams.reassembly.partials and fits:
        fragment(streams, frame, last)
    elif stream is None:
        if not swallow(streams, frame, last):
            unknown(streams, id, frame.NAME, not last)
    elif last:
        item = is_item or (stream.verb == "request" and streams.member.bare_ends)
        _item(streams, stream, item, frame.complete, Payload(frame.data, frame.metadata))
    elif stream.to_receive.available or stream.state == _IN_DONE:
        fragment(streams, frame, last)
    else:
        streams.step(stream, StreamInput.ITEM_EXCESS)


def _item(streams: Streams, stream: Stream, is_item: bool, complete: bool, payload: Payload) -> None:
    if not is_item:
        streams.step(stream, StreamInput.COMPLETE if complete else StreamInput.EMPTY)
    elif not stream.to_receive.available and stream.state != _IN_DONE:
        streams.step(stream, StreamInput.ITEM_EXCESS)
    elif len(payload) > streams.limits.payload_bytes and stream.state != _IN_DONE:
        stream.late = 0
        reason = oversize(streams.limits, "payload_bytes", len(payload))
        streams.step(stream, StreamInput.TOO_BIG, (reason, streams.member.codes.Code.REJECTED, True))
    elif complete or stream.verb == "request":
        # the answer of a request completes it, with or without C
        streams.step(stream, StreamInput.ITEM_LAST, payload)
    else:
        streams.step(stream, StreamInput.ITEM, payload)


# -- fragments ------------------------------------------------------------------------------------------------


def fragment(streams: Streams, frame: Any, last: bool) -> None:
    """Apply a fragment of a request or an item."""
    id: int = frame.stream
    reassembly = streams.reassembly
    stream = streams.live.get(id)
    if stream is not None and stream.state == _IN_DONE:
        _unwanted(streams, stream, last)
        return
    begun = id in reassembly.partials
    request = reassembly.request(id) if begun or stream is not None else frame
    # Bytes queued beyond O belong to one payload of the application: they are not the peer's fault and not a copy.
    queued = min(streams.outbound.scheduler.size, streams.limits.outbound_high_bytes)
    room = streams.limits.connection_bytes - streams.delivered - reassembly.size - queued
    try:
        if not begun:
            reassembly.begin(id, request, streams.current.now)
            if stream is not None:
                stream.rate(True)
        whole = reassembly.add(id, frame, last, room)
    except Violation as violation:
        malformed = violation.consequence is Consequence.END_STREAM
        input = StreamInput.MALFORMED if malformed else StreamInput.TOO_BIG
        code = streams.member.codes.Code.INVALID if malformed else streams.member.codes.Code.REJECTED
        _refused(streams, id, request, not last, input, (violation.reason, code, violation.too_large))
        return
    if whole is None:
        if reassembly.small(id, streams.member.layout.prefix + frame.encoded_size):
            streams.current.charge(20, id, "fragment_min_bytes", "fragment-too-small")
    elif stream is not None:
        _item(streams, stream, True, frame.complete, whole.payload())
    else:
        opening = streams.member.verbs[type(request)]
        if _is_full(streams, opening.verb == "fire"):
            _turn_away(streams, request)
        else:
            channel = opening.verb == "channel"
            _accept(streams, request, whole.payload(), channel and (frame.complete or request.complete))


def _refused(
    streams: Streams, id: int, request: Any, more: bool, input: StreamInput, argument: tuple[str, int, bool]
) -> None:
    """Apply the refusal of a payload. ``more``: further fragments will arrive and are dropped (FG-01)."""
    stream = streams.live.get(id)
    if more:
        streams.late.cut_off(id)
    if stream is not None:
        stream.late = streams.limits.fragments if more else 0
        streams.step(stream, input, argument)
    else:
        reason, code, _ = argument
        silent = request is not None and streams.member.verbs[type(request)].verb == "fire"
        _refuse(streams, id, code, reason, more, silent)


def expire(streams: Streams) -> None:
    """Fail the reassemblies that have reached their time limit (FG-04)."""
    reassembly, now = streams.reassembly, streams.current.now
    while (oldest := reassembly.oldest()) and oldest[1] + streams.limits.reassembly_s <= now:
        request = reassembly.request(oldest[0])
        reassembly.drop(oldest[0])
        argument = ("reassembly-timeout", streams.member.codes.Code.CANCELED, False)
        _refused(streams, oldest[0], request, True, StreamInput.TOO_BIG, argument)


def _unwanted(streams: Streams, stream: Stream, last: bool) -> None:
    """Apply a fragment for an inbound half that has ended."""
    if not last and stream.late and streams.late.take_part():
        streams.current.events.append(Ignored(stream.id, "SI-07", "it was in flight when this side canceled", 0))
    else:
        streams.step(stream, StreamInput.ITEM)


def swallow(streams: Streams, frame: Any, last: bool) -> bool:
    """Drop a fragment that belongs to a refused payload, free of charge, and return True; else return False (FG-01).
    Fragments without progress are charged (FG-02)."""
    if not last and streams.member.layout.prefix + frame.encoded_size < streams.limits.fragment_min_bytes:
        return False
    if not streams.late.swallow(frame.stream, last):
        return False
    streams.current.events.append(Ignored(frame.stream, "FG-01", "the rest of a payload that was refused", 0))
    return True


# -- credit and endings ---------------------------------------------------------------------------------------


def on_request_n(streams: Streams, frame: Any) -> None:
    """Apply REQUEST_N."""
    id: int = frame.stream
    stream = streams.live.get(id)
    streams.credit_frames += 1
    if streams.credit_frames > streams.most_credit_frames:
        # FC-08: credit costs its sender nothing, so REQUEST_N frames beyond what the items could need are charged
        streams.current.charge(1, id, "credit_frames", "more REQUEST_N frames than items need")
    if stream is None:
        unknown(streams, id, "REQUEST_N")
    elif stream.verb == "request":
        streams.current.charge(1, id, streams.member.rules.stray, "REQUEST_N for a request/response")
    else:
        streams.step(stream, StreamInput.REQUEST_N if frame.n else StreamInput.REQUEST_N_ZERO, frame.n)


def on_cancel(streams: Streams, frame: Any) -> None:
    """Apply CANCEL."""
    stream = streams.live.get(frame.stream)
    if stream is None:
        _end_unborn(streams, frame.stream, "CANCEL")
        return
    if frame.stream in streams.work.begun:
        streams.current.count_cancel()
    streams.step(stream, StreamInput.CANCEL)


def on_error(streams: Streams, frame: Any) -> None:
    """Apply ERROR on a stream."""
    stream = streams.live.get(frame.stream)
    if stream is None:
        _end_unborn(streams, frame.stream, "ERROR")
        return
    if frame.stream in streams.work.begun:
        streams.current.count_cancel()  # FL-01: for a handler, an error of its requester is a cancel
    error = streams.member.codes.error_for(frame.code, frame.data, frame.stream, streams.limits)
    streams.step(stream, StreamInput.ERROR, error)


def _end_unborn(streams: Streams, id: int, name: LateFrame) -> None:
    """Apply CANCEL or ERROR without a live stream: for a request whose last fragment is missing, or late."""
    if id in streams.reassembly.partials:
        streams.reassembly.drop(id)
        streams.current.count_cancel()
        return
    streams.late.swallow(id, True)
    streams.outbound.scheduler.drop(id)  # the peer no longer wants a payload that is still being written
    unknown(streams, id, name)


def unknown(streams: Streams, id: int, name: LateFrame, part: bool = False) -> None:
    """Charge a frame for a stream that is not live. ``part``: it is a fragment that others follow."""
    price = streams.late.price(id, name, part)
    if not price:
        streams.current.events.append(Ignored(id, "SI-07", f"{name} for a stream that has just ended", 0))
    elif price == 1:
        streams.current.charge(1, id, streams.member.rules.stray, f"{name} for an unknown stream")
    else:
        streams.current.charge(price, id, "SI-10", f"{name} for a stream that the peer has ended")
