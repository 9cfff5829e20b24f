"""The streams of one connection: what ReactiveSocket does in another way than RSocket.

1. Items of a channel's requester are REQUEST_CHANNEL frames, those of a responder RESPONSE; neither has a flag that
   says "item": a completion with content is both, one without is only the end (R-28 to R-30).
2. By the text of 2015 the responder's end is the end of a channel, in both directions (R-34, D-16).
3. A subscription is a stream that does not complete (R-35).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final, cast

from afflux.core.errors import Consequence, LeaseExpired, LimitExceeded, LocalProtocolError, Violation
from afflux.core.events import Canceled, Ignored, Opened, Verb
from afflux.core.ids import StreamIds
from afflux.core.limits import Limits
from afflux.core.payload import Payload, PayloadLike, payload_of
from afflux.protocols.reactivesocket import codes, frames
from afflux.protocols.reactivesocket.codes import Code, on_wire
from afflux.protocols.reactivesocket.dialect import Dialect
from afflux.protocols.reactivesocket.frames import (
    FLAG_COMPLETE,
    FLAG_INITIAL_N,
    ErrorFrame,
    RequestChannel,
    RequestFnf,
    RequestResponse,
    RequestStream,
    RequestSub,
    Response,
)
from afflux.protocols.reactivesocket.outbound import HEADER, HEADER_SIZE, RESPONSE, Outbound
from afflux.protocols.reactivesocket.states import HALF_REQUESTER, HALF_RESPONDER, REQUESTER, RESPONDER
from afflux.protocols.rsocket.states import StreamAction, StreamInput, StreamState
from afflux.protocols.rsocket.stream import Stream as RSocketStream
from afflux.protocols.rsocket.streams import ACTIONS, MAX_N
from afflux.protocols.rsocket.streams import Streams as RSocketStreams

__all__ = ["Request", "Stream", "Streams"]

Request = RequestResponse | RequestFnf | RequestStream | RequestSub | RequestChannel

_REQUESTS: dict[str, type[Request]] = {
    "request": RequestResponse,
    "fire": RequestFnf,
    "stream": RequestStream,
    "subscribe": RequestSub,
    "channel": RequestChannel,
}
_VERBS: dict[type, Verb] = {
    RequestResponse: "request",
    RequestFnf: "fire",
    RequestStream: "stream",
    RequestSub: "stream",
    RequestChannel: "channel",
}
_ASK: Final = RequestResponse.TYPE << 16
_OPEN, _OUT_DONE, _IN_DONE, _CLOSED = StreamState.OPEN, StreamState.OUT_DONE, StreamState.IN_DONE, StreamState.CLOSED


class Stream(RSocketStream):
    """What is known of one live stream."""

    __slots__ = ("sub",)

    def __init__(self, id: int, verb: Verb, requester: bool, half_close: bool) -> None:
        super().__init__(id, verb, requester)
        if half_close:
            self.table = HALF_REQUESTER if requester else HALF_RESPONDER
        else:
            self.table = REQUESTER if requester else RESPONDER
        self.sub = False
        "A subscription: it does not complete (R-35)."


class Streams(RSocketStreams):  # long: what each frame and verb does in another way
    """All streams of one connection."""

    _wire: ClassVar[Any] = frames
    _codes: ClassVar[Any] = codes

    __slots__ = ("_dialect", "_half", "left", "outbound")

    def __init__(
        self,
        client: bool,
        limits: Limits,
        out: Outbound,
        charge: Callable[[int, int, str, str], None],
        dialect: Dialect,
    ) -> None:
        super().__init__(client, limits, out, charge)
        self.outbound = out
        self._dialect = dialect
        self._half = dialect.channel_half_close
        even = client == (dialect.client_parity == "even")  # R-11, D-2
        self._ids = StreamIds(2 if even else 1)
        self.peer_parity = 1 if even else 0
        self.left: list[int] = []
        "Streams whose inbound half ended because this side has completed its own; not told yet."

    # -- what the peer's frames do --------------------------------------------------------------------------

    def charge(self, price: int, stream: int, rule: str, reason: str) -> None:
        """Take glitch tokens. Raises Violation when there are none left."""
        self._charge(price, stream, rule, reason)

    def opens(self, frame: RequestChannel) -> bool:
        """Whether a REQUEST_CHANNEL asks for a channel: it has an N (R-31), which Java's later ones have too, also
        those that cross the end of their channel."""
        id = frame.stream
        if frame.initial_n is None or not self._dialect.java_compat:
            return frame.initial_n is not None
        past = self._late.knows(id) or (id <= self.newest and not frame.initial_n)
        return not (past or id in self.live or id in self._partials)

    def on_request(self, frame: Any, refusal: str = "") -> None:
        """A request frame in an open connection; ``refusal`` is why no request is taken any more."""
        partial = self._partials.get(frame.stream)
        goes_on = partial is not None and type(partial.request) is type(frame)
        if self._dialect.fragment_requests and goes_on:
            self._fragment(frame.stream, frame, not frame.follows)
        elif self._dialect.fragment_requests and self._late.swallow(frame.stream, not frame.follows):
            # FG-01: the rest of a request that was refused; each of its frames would be a request of its own
            if frame.follows and 4 + frame.encoded_size < self.limits.fragment_min_bytes:
                self._unknown(frame.stream, frame.NAME, True)
            else:
                self.events.append(Ignored(frame.stream, "FG-01", "the rest of a request that was refused", 0))
        else:
            super().on_request(frame, refusal)

    def on_response(self, frame: Response) -> None:
        """RESPONSE: an item or the end of what this side asked for."""
        self._on_item(frame, "RESPONSE", frame.stream & 1 != self.peer_parity)

    def on_channel(self, frame: RequestChannel) -> None:
        """A REQUEST_CHANNEL that does not open a channel: an item or the end of what the peer sends."""
        self._on_item(frame, "REQUEST_CHANNEL", frame.stream & 1 == self.peer_parity)

    def _on_item(self, frame: Response | RequestChannel, name: Any, fits: bool) -> None:
        id = frame.stream
        stream = self.live.get(id)
        last = not frame.follows or frame.complete
        if stream is not None and not fits:
            self._charge(10, id, "R-36", f"{name} on a stream of its own sender")
        elif id in self._partials and fits:
            self._fragment(id, frame, last)
        elif stream is None:
            if not self._swallow(id, 4 + frame.encoded_size, last):
                self._unknown(id, name, not last)
        elif last:
            content = bool(frame.data) or frame.metadata is not None
            is_item = content or not frame.complete or stream.verb == "request"  # D-8
            self._item(stream, is_item, frame.complete, Payload(frame.data, frame.metadata))
        elif stream.owed or stream.state == _IN_DONE:
            self._fragment(id, frame, last)
        else:
            self._step(stream, StreamInput.ITEM_EXCESS)

    def serve(self, id: int) -> Stream:
        """The stream of a request that the peer has just sent."""
        stream = Stream(id, "request", False, self._half)
        stream.allowed = 1
        stream.state = _IN_DONE
        return stream

    def _fragment(self, id: int, frame: Any, last: bool) -> None:
        reassembly = self.reassembly
        stream = self.live.get(id)
        if stream is not None and stream.state == _IN_DONE:
            self._unwanted(stream, last)
            return
        begun = id in self._partials
        request: Any = reassembly.request(id) if begun or stream is not None else frame
        queued = min(self.out.size, self.limits.outbound_high_bytes)
        room = self.limits.connection_bytes - self.delivered - reassembly.size - queued
        try:
            if not begun:
                reassembly.begin(id, request, self.now)
                if stream is not None:
                    stream.rate(True)
            whole = reassembly.add(id, frame, last, room)
        except Violation as violation:
            malformed = violation.consequence is Consequence.END_STREAM  # metadata after data (D-5)
            input, code = (StreamInput.MALFORMED, Code.INVALID) if malformed else (StreamInput.TOO_BIG, Code.REJECTED)
            self._fragment_refused(id, request, not last, input, violation.reason, cast("Any", code))
            return
        if whole is None:
            if reassembly.small(id, 4 + frame.encoded_size):
                self._charge(20, id, "fragment_min_bytes", "fragment-too-small")
        elif stream is not None:
            self._item(stream, True, frame.complete, whole.payload())
        elif self._is_full(request):
            self._turn_away(request)
        else:
            self._accept(request, whole.payload(), getattr(frame, "complete", False))

    def _accept(self, frame: Any, payload: Payload, complete: bool) -> None:
        id = frame.stream
        verb = _VERBS[type(frame)]
        self._opened += 1
        credit = 1 if verb == "request" else 0
        if verb in ("stream", "channel"):
            credit = frame.initial_n
        self.objects += 1
        if verb == "fire":
            self.fires.add(id)
        else:
            self.handlers.add(id)
            stream = self.live[id] = Stream(id, verb, False, self._half)
            stream.allowed = credit
            stream.sub = type(frame) is RequestSub
            stream.state = _IN_DONE if verb != "channel" or complete else _OPEN
        self._hold(payload)
        self.events.append(Opened(id, verb, payload, credit, complete))

    # -- what the application's verbs do --------------------------------------------------------------------

    def open(
        self, verb: Any, payload: PayloadLike, *, credit: int = 0, complete: bool = False, columnar: bool = False
    ) -> int:
        """See core.engine.Engine.open. The verb "subscribe" asks for a stream that does not complete (REQUEST_SUB)."""
        frame = _REQUESTS.get(verb)
        if frame is None:
            there = ", ".join(_REQUESTS)
            raise LocalProtocolError(f"unknown verb {verb!r}: there is {there}", rule="3.3")
        counted = verb not in ("request", "fire")
        if counted and not 0 < credit <= MAX_N:
            raise LocalProtocolError(f"the first credit of a {verb} is 1 to {MAX_N}, not {credit}", rule="D-7")
        value = payload_of(payload)
        cut = frame is RequestChannel or self._dialect.fragment_requests
        if not cut:
            self._check_size(value)
        if self.held_lease is not None and not self.held_lease.take(self.now):
            raise LeaseExpired("no lease is left to send a request under", rule="R-46")
        id = self._allocate()
        word = frame.TYPE << 16
        if frame is RequestChannel:
            word |= FLAG_INITIAL_N | (FLAG_COMPLETE if complete else 0)
        self.outbound.ask(id, word, credit.to_bytes(4, "big") if counted else b"", value, cut)
        self._opened += 1
        if verb == "fire":
            return id
        stream = self.live[id] = Stream(id, _VERBS[frame], True, self._half)
        stream.columnar = columnar
        stream.sub = frame is RequestSub
        stream.state = _OUT_DONE if verb != "channel" or complete else _OPEN
        stream.owed = credit if counted else 1
        stream.sent = int(verb == "channel")
        stream.rate(False)
        return id

    def ask(self, payloads: Sequence[Payload]) -> list[int]:
        """See core.engine.Engine.ask."""
        if not self._dialect.fragment_requests:
            for payload in payloads:
                self._check_size(payload)
        ids: list[int] = []
        for _ in payloads:
            try:
                id = self._allocate()
            except LimitExceeded:
                if ids:
                    break
                raise
            stream = self.live[id] = Stream(id, "request", True, self._half)
            stream.state = _OUT_DONE
            stream.owed = 1
            stream.answering = True
            ids.append(id)
        self.outbound.batch(ids, _ASK, payloads[: len(ids)], self._dialect.fragment_requests)
        self._opened += len(ids)
        return ids

    def send(self, id: int, payloads: Sequence[PayloadLike], *, complete: bool = False) -> None:
        """See core.engine.Engine.send."""
        stream = self.live.get(id)
        if not complete or stream is None or not payloads:
            super().send(id, payloads, complete=complete)
            return
        if (isinstance(stream, Stream) and stream.sub and not stream.requester) or _is_bare(stream, payloads[-1]):
            super().send(id, payloads)
            self.complete(id)
            return
        both = self._ends_both(stream)
        if both:
            self._give_up(stream)
        super().send(id, payloads, complete=True)
        if both:
            self.left.append(id)

    def fail(self, id: int, error: BaseException) -> None:
        """See core.engine.Engine.fail."""
        self._leave(id)
        super().fail(id, error)

    def cancel(self, id: int) -> None:
        """See core.engine.Engine.cancel. The text has no frame by which a responder could say it (D-16)."""
        self._leave(id)
        stream = self.live.get(id)
        if stream is not None and self._ends_both(stream):
            self._give_up(stream)
        super().cancel(id)

    def _leave(self, id: int) -> None:
        """The application wants nothing more of a stream: it does not hear how its inbound half ended."""
        if id in self.left:
            self.left.remove(id)

    def _ends_both(self, stream: RSocketStream) -> bool:
        """Whether a responder's end would end an inbound half that is still open (R-34)."""
        return not self._half and not stream.requester and stream.state is _OPEN

    def _allocate(self) -> int:
        id = self._ids.allocate(self.live)
        if self._ids.wrapped:
            self._late.forget(id)
        return id

    def _check_size(self, payload: Payload) -> None:
        """A request that can not be cut has to fit what a peer takes (R-42)."""
        size = HEADER_SIZE + 4 + len(payload) + (0 if payload.metadata is None else 4)
        if size > self.limits.frame_bytes:
            raise LimitExceeded(
                f"a request of {size} bytes can not be cut: a peer takes {self.limits.frame_bytes}",
                rule="frame-too-large",
            )

    # -- steps ----------------------------------------------------------------------------------------------

    def _step(self, stream: RSocketStream, input: StreamInput, argument: Any = None) -> None:
        step = stream.table.steps[stream.state][input]
        both = stream.state is _OPEN and step.next is _CLOSED and not self._half
        stream.state = step.next
        if both and step.action is StreamAction.COMPLETE_IN:
            self.out.drop(stream.id)  # nobody takes what this side still wanted to send
            self.events.append(Canceled(stream.id, final=False))
        elif both and step.action is StreamAction.SEND_COMPLETE:
            self._give_up(stream)
            self.left.append(stream.id)
        _ACTIONS[step.action](self, stream, argument)
        self._settle(stream)

    def _send_complete(self, stream: RSocketStream, argument: Any) -> None:
        if stream.requester:
            self.out.put(stream.id, self._dialect.complete_channel(stream.id), 1)
        elif isinstance(stream, Stream) and stream.sub and self._dialect.sub_complete == "error":
            self._send_error(stream.id, Code.APPLICATION_ERROR, "a subscription does not complete")  # R-35, D-9
        else:
            self.out.put(stream.id, HEADER.pack(HEADER_SIZE, RESPONSE | FLAG_COMPLETE, stream.id), 1)

    def _send_error(self, id: int, code: int, text: str) -> None:
        code = on_wire(code, self._dialect.later_codes)
        self.out.frame(id, ErrorFrame(stream=id, code=code, data=text.encode()).encode(prefixed=True))


def _is_bare(stream: RSocketStream, item: PayloadLike) -> bool:
    """Whether an item together with the end would be the end alone: an answer is an item in any case (R-29, R-30)."""
    payload = payload_of(item)
    return stream.verb != "request" and not payload.data and payload.metadata is None


_ACTIONS: dict[StreamAction, Callable[[Any, Any, Any], None]] = {
    **ACTIONS,
    StreamAction.SEND_COMPLETE: Streams._send_complete,
}
