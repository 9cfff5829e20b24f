"""Implement the actions of the stream tables: one function each, with the table of streams and the stream.

The tables (``states.py`` of each member) select the action for each input.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from afflux.core.errors import Error, LimitExceeded, RemoteProtocolError
from afflux.core.events import Canceled, Completed, Failed, Granted, Ignored, Items
from afflux.core.limits import explained
from afflux.core.payload import Payload
from afflux.protocols.family.states import StreamAction

if TYPE_CHECKING:
    from afflux.protocols.family.stream import Stream
    from afflux.protocols.family.streams import Streams

__all__ = ["ACTIONS"]


def _ignore(streams: Streams, stream: Stream, argument: Any) -> None:
    if stream.late:
        stream.late -= 1
        streams.current.events.append(Ignored(stream.id, "SI-07", "it was in flight when this side canceled", 0))
        return
    rule = streams.member.rules.stray
    streams.current.charge(10, stream.id, rule, f"a frame that makes no sense in {stream.state.name}")


def _race(streams: Streams, stream: Stream, argument: Any) -> None:
    stream.races += argument is None  # CANCEL; credit has its own budget (FC-08)
    if stream.races > streams.limits.cancel_race_frames:
        streams.current.charge(1, stream.id, "cancel_race_frames", "more cancels than can race")
    else:
        rule = streams.member.rules.stray
        streams.current.events.append(Ignored(stream.id, rule, "late, and a legal race", 0))


def _nothing(streams: Streams, stream: Stream, argument: Any) -> None:
    """No-op: the stream's state has changed since."""


def _deliver(streams: Streams, stream: Stream, payload: Payload) -> None:
    _take(streams, stream, payload)
    streams.current.events.append(Items(stream.id, [payload]))


def _complete_in(streams: Streams, stream: Stream, payload: Payload | None) -> None:
    if payload is None:
        streams.current.events.append(Completed(stream.id))
        return
    _take(streams, stream, payload)
    streams.current.events.append(Items(stream.id, [payload], True))


def _complete_both(streams: Streams, stream: Stream, payload: Payload | None) -> None:
    streams.outbound.scheduler.drop(stream.id)  # the peer accepts no more items from this side
    streams.current.events.append(Canceled(stream.id, final=False))
    _complete_in(streams, stream, payload)


def _take(streams: Streams, stream: Stream, payload: Payload) -> None:
    streams.delivered += len(payload)
    if stream.verb != "request":
        stream.to_receive.take()
        streams.objects += 1


def _excess(streams: Streams, stream: Stream, argument: Any) -> None:
    reason, rule = "more items than the credit granted", streams.member.rules.credit
    streams.current.charge(50, stream.id, rule, reason)  # first: if it ends the connection, the stream ends with it
    if stream.requester:
        _abandon(streams, stream)  # FC-04
    else:
        _abandon_with_error(streams, stream, streams.member.codes.Code.CANCELED, reason)  # FC-05
    streams.current.events.append(Failed(stream.id, RemoteProtocolError(reason, stream=stream.id, rule=rule)))


def _grant(streams: Streams, stream: Stream, n: int) -> None:
    stream.to_send.add(n)
    streams.current.events.append(Granted(stream.id, n))


def _zero(streams: Streams, stream: Stream, argument: Any) -> None:
    code = streams.member.codes.Code.INVALID
    _abandon_with_error(streams, stream, code, "request-n-zero")
    error = RemoteProtocolError("a credit of zero", code=code, stream=stream.id, rule="FC-02")
    streams.current.events.append(Failed(stream.id, error))


def _stop_out(streams: Streams, stream: Stream, argument: Any) -> None:
    streams.outbound.scheduler.drop(stream.id, credit=True)
    streams.current.events.append(Canceled(stream.id, final=False))


def _stop_in(streams: Streams, stream: Stream, argument: Any) -> None:
    streams.give_up(stream)


def _end_canceled(streams: Streams, stream: Stream, argument: Any) -> None:
    streams.outbound.scheduler.drop(stream.id)
    stream.ended = True
    stream.late = stream.to_receive.available  # some requesters send the items that they had credit for
    streams.current.events.append(Canceled(stream.id, final=True))


def _end_failed(streams: Streams, stream: Stream, error: Error) -> None:
    streams.outbound.scheduler.drop(stream.id)
    stream.ended = True
    streams.current.events.append(Failed(stream.id, error))


def _refuse_big(streams: Streams, stream: Stream, argument: tuple[str, int, bool]) -> None:
    reason, code, too_large = argument
    _refuse_payload(streams, stream, code, reason)
    text, rule = explained(streams.limits, reason), reason.partition(":")[0]
    error = LimitExceeded(text, stream=stream.id, rule=rule, too_large=too_large)
    streams.current.events.append(Failed(stream.id, error))


def _refuse_malformed(streams: Streams, stream: Stream, argument: tuple[str, int, bool]) -> None:
    reason, code, _ = argument
    _refuse_payload(streams, stream, code, reason)
    rule = streams.member.rules.order
    streams.current.events.append(
        Failed(stream.id, RemoteProtocolError(reason, code=code, stream=stream.id, rule=rule))
    )


def _refuse_payload(streams: Streams, stream: Stream, code: int, reason: str) -> None:
    if stream.requester:
        _abandon(streams, stream)
    else:
        _abandon_with_error(streams, stream, code, reason)


def _send_complete(streams: Streams, stream: Stream, argument: Any) -> None:
    streams.outbound.frame(stream.id, streams.member.quirks.completion(stream))


def _send_complete_both(streams: Streams, stream: Stream, argument: Any) -> None:
    streams.end_both(stream)
    _send_complete(streams, stream, argument)


def _send_failure(streams: Streams, stream: Stream, error: Exception) -> None:
    streams.outbound.scheduler.drop(stream.id)
    streams.give_up(stream)
    code, text = streams.member.codes.code_for(error, streams.limits)
    streams.send_error(stream.id, code, text)


def _send_cancel(streams: Streams, stream: Stream, argument: Any) -> None:
    if stream.requester:
        _abandon(streams, stream)
    else:
        streams.outbound.frame(stream.id, _cancel(streams, stream))
        streams.give_up(stream)


def _cancel(streams: Streams, stream: Stream) -> bytes:
    frame: bytes = streams.member.frames.Cancel(stream=stream.id).encode(prefixed=True)
    return frame


def _abandon(streams: Streams, stream: Stream) -> None:
    """Cancel the stream: drop its queued frames."""
    streams.outbound.scheduler.drop(stream.id)
    streams.outbound.frame(stream.id, _cancel(streams, stream))
    streams.give_up(stream)


def _abandon_with_error(streams: Streams, stream: Stream, code: int, reason: str) -> None:
    """End the stream with an error because of the peer: it counts as one of the peer's cancels (FL-02)."""
    streams.outbound.scheduler.drop(stream.id)
    streams.send_error(stream.id, code, reason)
    streams.give_up(stream)
    streams.current.count_cancel()


ACTIONS: dict[StreamAction, Callable[[Streams, Stream, Any], None]] = {
    StreamAction.IGNORE: _ignore,
    StreamAction.RACE: _race,
    StreamAction.NOTHING: _nothing,
    StreamAction.DELIVER: _deliver,
    StreamAction.COMPLETE_IN: _complete_in,
    StreamAction.COMPLETE_BOTH: _complete_both,
    StreamAction.EXCESS: _excess,
    StreamAction.GRANT: _grant,
    StreamAction.ZERO: _zero,
    StreamAction.STOP_OUT: _stop_out,
    StreamAction.STOP_IN: _stop_in,
    StreamAction.END_CANCELED: _end_canceled,
    StreamAction.END_FAILED: _end_failed,
    StreamAction.REFUSE_BIG: _refuse_big,
    StreamAction.REFUSE_MALFORMED: _refuse_malformed,
    StreamAction.SEND_COMPLETE: _send_complete,
    StreamAction.SEND_COMPLETE_BOTH: _send_complete_both,
    StreamAction.SEND_ERROR: _send_failure,
    StreamAction.SEND_CANCEL: _send_cancel,
}
