"""The streams of one connection: what their frames and the application's verbs do to them.

Theory of operation. A frame or a verb is first classified as one input of the tables in states.py; the table says
the next state and the action; the action is a method of the same name here. Only three paths go round the tables,
all in inbound.py and marked there: an item within credit, a whole request, and its one answer.

Credit. ``owed`` is what the peer may still send, ``allowed`` what this side may; both are exact (R-26, R-27).
"""

# long: one method for each action of the stream tables; apart from them only the verbs and the classification.

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from afflux.core.bucket import Bucket, spend
from afflux.core.credit import SATURATED
from afflux.core.errors import (
    Consequence,
    Error,
    LeaseExpired,
    LimitExceeded,
    LocalProtocolError,
    RemoteProtocolError,
    Violation,
)
from afflux.core.events import Answers, Completed, Event, Failed, Granted, Ignored, Items, Opened, Requests, Verb
from afflux.core.events import Canceled as CanceledEvent
from afflux.core.ids import StreamIds
from afflux.core.limits import Limits, explained, reached
from afflux.core.payload import Payload, PayloadLike, payload_of
from afflux.protocols.rsocket import codes, frames
from afflux.protocols.rsocket.codes import Code
from afflux.protocols.rsocket.frames import (
    COMPLETE,
    FLAG_COMPLETE,
    NEXT,
    Cancel,
    ErrorFrame,
    PayloadFrame,
    RequestChannel,
    RequestFnf,
    RequestN,
    RequestResponse,
    RequestStream,
)
from afflux.protocols.rsocket.late import LateFrame, LateFrames
from afflux.protocols.rsocket.lease import Granted as GrantedLease
from afflux.protocols.rsocket.lease import Held as HeldLease
from afflux.protocols.rsocket.outbound import HEADER, Outbound
from afflux.protocols.rsocket.reassembly import Reassembly, RequestFrame
from afflux.protocols.rsocket.states import REQUESTER, RESPONDER, StreamAction, StreamInput, StreamState
from afflux.protocols.rsocket.stream import Stream

__all__ = ["ACTIONS", "CLOSED", "MAX_N", "SERVES_LAST", "Streams"]

MAX_N = 0x7FFFFFFF
"The most that one frame can grant."

_VERBS: dict[type, Verb] = {
    RequestResponse: "request",
    RequestFnf: "fire",
    RequestStream: "stream",
    RequestChannel: "channel",
}
_CHEAP = 100
"Requests that may be turned away for one glitch."
_COUNTS = ("newest", "_credit_frames", "_opened", "items_sent", "delivered", "objects")
"What a state keeps of the numbers."
_REQUESTS: dict[str, type[RequestFrame]] = {verb: frame for frame, verb in _VERBS.items()}
# Members of an enum are slow to look up: those of the short ways are looked up once.
_OPEN, _OUT_DONE, _IN_DONE, CLOSED = StreamState.OPEN, StreamState.OUT_DONE, StreamState.IN_DONE, StreamState.CLOSED
_APP_ITEM, _APP_COMPLETE, _SEND = StreamInput.APP_ITEM, StreamInput.APP_COMPLETE, StreamAction.SEND
_ASKS, _ASKS_LAST, _SERVES, SERVES_LAST = (
    table.step(StreamState.IDLE, input).next
    for table in (REQUESTER, RESPONDER)
    for input in (StreamInput.APP_OPEN, StreamInput.APP_OPEN_LAST)
)
"The first states: this side asks or serves, and has more to send or receive or not."


# long: see the top of the file
class Streams:
    """All streams of one connection. A dialect has frames and codes of its own (see Connection).

    ``charge(price, stream, rule, reason)`` is the connection's: it takes glitch tokens and raises Violation when
    there are none left.
    """

    _wire: ClassVar[Any] = frames
    _codes: ClassVar[Any] = codes

    __slots__ = (
        "_cancels",
        "_charge",
        "_credit_frames",
        "_ids",
        "_late",
        "_most",
        "_opened",
        "_partials",
        "_turned_away",
        "accepting",
        "begun",
        "delivered",
        "events",
        "fires",
        "granted_lease",
        "handlers",
        "held_lease",
        "items_sent",
        "limits",
        "live",
        "many",
        "newest",
        "now",
        "objects",
        "out",
        "peer_parity",
        "reassembly",
    )

    def __init__(
        self, client: bool, limits: Limits, out: Outbound, charge: Callable[[int, int, str, str], None]
    ) -> None:
        self.limits = limits
        self.out = out
        self.live: dict[int, Stream] = {}
        self.fires: set[int] = set()
        "Those of fire: they need not have begun. What they hold, not their number, bounds them (FL-03)."
        self.handlers: set[int] = set()
        "Streams the peer opened whose handler has not returned, or not begun (DR-2)."
        self.begun: set[int] = set()
        "Those of them whose handler is at work."
        self._most = limits.streams and limits.streams + limits.pending_streams
        self.many = self._most - limits.pending_streams * 3 // 8 if limits.pending_streams else SATURATED
        "With so many ``handlers`` no more is read; the rest of those that may wait is for what one read may bring."
        self._turned_away = 0
        self.reassembly = Reassembly(limits)
        self.events: list[Event] = []
        self.now = 0.0
        self.delivered = 0
        self.objects = 0
        "Bytes of payloads handed over and not yet consumed."
        self.accepting = False
        "The connection is open: requests are served."
        self.held_lease: HeldLease | None = None
        "With leases: what this side may ask."
        self.granted_lease: GrantedLease | None = None
        "With leases: what the peer may ask."
        self._charge = charge
        self._ids = StreamIds(1 if client else 2)
        self.peer_parity = 0 if client else 1
        "Whether the peer's ids are odd."
        self.newest = 0
        "The highest id of the peer's streams so far: one above it can have no past."
        self._partials = self.reassembly.partials
        self._late = LateFrames(limits)
        self._cancels: Bucket | None = None
        self._credit_frames = 0
        self._opened = 0
        self.items_sent = 0

    # -- what the peer's frames do --------------------------------------------------------------------------

    def on_request(self, frame: RequestFrame, refusal: str = "") -> None:
        """A request frame in an open connection; ``refusal`` is why no request is taken any more."""
        id = frame.stream
        if id & 1 != self.peer_parity or id == 0:
            self._charge(10, id, "D-12", "a request with this side's own parity or on stream 0")
        elif id in self.live or id in self._partials or id in self.handlers or id in self.fires:
            # SI-16: an id whose handler still runs is in use, or one id could start any number of them
            self._charge(10, id, "R-31", "a request on an id in use")
        else:
            if id > self.newest:
                self.newest = id
            else:
                self._late.forget(id)
            self._admit(frame, refusal)

    def _admit(self, frame: RequestFrame, refusal: str) -> None:
        id = frame.stream
        if refusal:
            self._reject(frame, refusal)
        elif self._is_full(frame):
            self._turn_away(frame)
        elif self.granted_lease is not None and not self.granted_lease.take(self.now):
            self._reject(frame, "lease: none is left")  # R-42; a fragmented request counts once
        elif getattr(frame, "initial_n", 1) == 0:
            self._refuse(id, self._codes.Code.INVALID, "request-n-zero", frame.follows)
        elif frame.follows:
            self._fragment(id, frame, last=False)
        else:
            complete = isinstance(frame, self._wire.RequestChannel) and frame.complete
            payload = Payload(frame.data, frame.metadata)
            if len(payload) > self.limits.payload_bytes:
                silent = isinstance(frame, self._wire.RequestFnf)
                self._refuse(id, self._codes.Code.REJECTED, "payload-too-large", False, silent)
            else:
                self._accept(frame, payload, complete)

    def _is_full(self, request: Any) -> bool:
        """Whether as many requests are served, or wait for it, as may. Memory alone bounds those of fire."""
        if self.limits.streams and isinstance(request, self._wire.RequestFnf):
            return False
        return len(self.handlers) >= self._most

    def startable(self) -> int:
        """How many whole requests may be taken by the short path now."""
        if not self.accepting or self.granted_lease is not None:
            return 0
        return self._most - len(self.handlers)

    def asked(self, ids: list[int], payloads: list[Payload], size: int) -> None:
        """Whole REQUEST_RESPONSE frames went round the tables, by the step IDLE/APP_OPEN_LAST: count and tell them."""
        self.newest = ids[-1]
        self.handlers.update(ids)
        self._opened += len(ids)
        self.delivered += size
        self.objects += len(ids)
        if len(ids) == 1:
            self.events.append(Opened(ids[0], "request", payloads[0], 1, False))
        else:
            self.events.append(Requests(ids, payloads, size))

    def on_payload(self, frame: PayloadFrame) -> None:
        """A PAYLOAD frame that is not on the short path."""
        stream = self.live.get(frame.stream)
        # F is ignored when C is set too
        last = not frame.follows or frame.complete
        if frame.stream in self._partials:
            self._fragment(frame.stream, frame, last)
        elif stream is None:
            if not self._swallow(frame.stream, 3 + frame.encoded_size, last):
                self._unknown(frame.stream, "PAYLOAD", not last)
        elif not last:
            if stream.owed or stream.state == _IN_DONE:
                self._fragment(frame.stream, frame, last)
            else:
                self._step(stream, StreamInput.ITEM_EXCESS)
        else:
            self._item(stream, frame.next, frame.complete, Payload(frame.data, frame.metadata))

    def on_request_n(self, frame: RequestN) -> None:
        """REQUEST_N."""
        stream = self.live.get(frame.stream)
        self._credit_frames += 1
        if self._credit_frames > 5 + 2 * (self._opened + 10 * self.items_sent):
            # FC-08: credit costs its sender nothing, so more frames than the items could need are charged
            self._charge(1, frame.stream, "credit_frames", "more REQUEST_N frames than items need")
        if stream is None:
            self._unknown(frame.stream, "REQUEST_N")
        elif stream.verb == "request":
            self._charge(1, frame.stream, "R-31", "REQUEST_N for a request/response")
        else:
            self._step(stream, StreamInput.REQUEST_N if frame.n else StreamInput.REQUEST_N_ZERO, frame.n)

    def on_cancel(self, frame: Cancel) -> None:
        """CANCEL."""
        stream = self.live.get(frame.stream)
        if stream is None:
            self._end_unborn(frame.stream, "CANCEL")
            return
        if frame.stream in self.begun:
            self._count_cancel()
        self._step(stream, StreamInput.CANCEL)

    def on_error(self, frame: ErrorFrame) -> None:
        """ERROR on a stream."""
        stream = self.live.get(frame.stream)
        if stream is None:
            self._end_unborn(frame.stream, "ERROR")
            return
        if frame.stream in self.begun:
            self._count_cancel()  # FL-01: to a handler an error of its requester is a cancel
        self._step(stream, StreamInput.ERROR, self._codes.error_for(frame.code, frame.data, frame.stream, self.limits))

    def _end_unborn(self, id: int, name: LateFrame) -> None:
        """CANCEL or ERROR without a live stream: a request whose last fragment has not come, or late."""
        if id in self._partials:
            self.reassembly.drop(id)
            self._count_cancel()
            return
        self._late.swallow(id, True)
        self.out.drop(id)  # a payload that is still being written is not wanted any more
        self._unknown(id, name)

    def took(self, stream: Stream, items: int, size: int) -> None:
        """Items went round the tables: count them (R-27)."""
        stream.owed -= items
        stream.hot = stream.owed > 0
        self.delivered += size
        self.objects += items

    def answered(self, ids: list[int], payloads: list[Payload], size: int) -> None:
        """Whole answers of requests went round the tables, by the step ITEM_LAST/COMPLETE_IN: count and tell them."""
        self.delivered += size
        if len(ids) == 1:
            self.events.append(Items(ids[0], payloads, True))
        else:
            self.events.append(Answers(ids, payloads, size))

    def expire(self, now: float) -> None:
        """End the reassemblies that have waited too long (FG-04)."""
        self.now = now
        while (oldest := self.reassembly.oldest()) and oldest[1] + self.limits.reassembly_s <= now:
            request = self.reassembly.request(oldest[0])
            self.reassembly.drop(oldest[0])
            self._fragment_refused(
                oldest[0], request, True, StreamInput.TOO_BIG, "reassembly-timeout", self._codes.Code.CANCELED
            )

    # -- what the application's verbs do --------------------------------------------------------------------

    def open(
        self, verb: Verb, payload: PayloadLike, *, credit: int = 0, complete: bool = False, columnar: bool = False
    ) -> int:
        """See core.engine.Engine.open."""
        frame = _REQUESTS.get(verb)
        if frame is None:
            raise LocalProtocolError(f"unknown verb {verb!r}: request, fire, stream or channel", rule="R-24")
        if verb in ("stream", "channel") and not 0 < credit <= MAX_N:
            raise LocalProtocolError(f"the first credit of a {verb} is 1 to {MAX_N}, not {credit}", rule="D-5")
        value = payload_of(payload)
        if self.held_lease is not None and not self.held_lease.take(self.now):
            raise LeaseExpired("no lease is left to send a request under", rule="R-41")
        id = self._ids.allocate(self.live)
        if self._ids.wrapped:
            self._late.forget(id)
        extra = credit.to_bytes(4, "big") if verb in ("stream", "channel") else b""
        self.out.payload(id, frame.TYPE << 10, extra, value, complete and verb == "channel")
        self._opened += 1
        if verb == "fire":
            return id
        stream = self.live[id] = Stream(id, verb, True)
        stream.columnar = columnar
        stream.state = _ASKS_LAST if verb != "channel" or complete else _ASKS
        stream.owed = credit if extra else 1
        stream.sent = int(verb == "channel")
        stream.rate(False)
        return id

    def ask(self, payloads: Sequence[Payload]) -> list[int]:
        """See core.engine.Engine.ask."""
        ids: list[int] = []
        allocate, live, wrapped = self._ids.allocate, self.live, self._ids.wrapped
        for _ in payloads:
            try:
                id = allocate(live)
            except LimitExceeded:
                if ids:
                    break
                raise
            stream = live[id] = Stream(id, "request", True)
            stream.state = _ASKS_LAST
            stream.owed = 1
            stream.answering = True
            ids.append(id)
        if wrapped or self._ids.wrapped:
            for id in ids:
                self._late.forget(id)
        self.out.payloads(ids, RequestResponse.TYPE << 10, payloads[: len(ids)])
        self._opened += len(ids)
        return ids

    def answer(self, ids: Sequence[int], payloads: Sequence[Payload]) -> None:
        """See core.engine.Engine.answer. It is the step APP_ITEM and the last one at once."""
        live = self.live
        self.handlers.difference_update(ids)
        if self.begun:
            self.begun.difference_update(ids)
        sent: list[Payload] = []
        to: list[int] = []
        for id, payload in zip(ids, payloads, strict=True):
            stream = live.get(id)
            if stream is not None and stream.state is SERVES_LAST and stream.verb == "request":
                stream.state = CLOSED
                del live[id]
                to.append(id)
                sent.append(payload)
        self.out.payloads(to, NEXT | FLAG_COMPLETE, sent)
        self.items_sent += len(to)
        self._late.answered(len(to))

    def send(self, id: int, payloads: Sequence[PayloadLike], *, complete: bool = False) -> None:
        """See core.engine.Engine.send."""
        stream = self.live.get(id)
        if stream is None or stream.table.steps[stream.state][_APP_ITEM].action is not _SEND:
            return
        count = len(payloads)
        if count > stream.allowed:
            raise LocalProtocolError(
                f"stream {id} has credit for {stream.allowed} items, not for {count}", stream=id, rule="R-27"
            )
        if not count:
            if complete:
                self._step(stream, _APP_COMPLETE)
            return
        complete = complete or stream.verb == "request"
        if count == 1:
            self.out.payload(id, NEXT, b"", payload_of(payloads[0]), complete)
        stream.allowed -= count
        stream.sent += count
        self.items_sent += count
        if count > 1:
            self.out.run(id, payloads, count - 1 if complete else -1)
        if complete:
            stream.state = stream.table.steps[stream.state][_APP_COMPLETE].next
            self._settle(stream)

    def release(self, id: int) -> None:
        """See core.engine.Engine.release."""
        self.handlers.discard(id)
        self.begun.discard(id)
        self.fires.discard(id)

    def complete(self, id: int) -> None:
        """See core.engine.Engine.complete."""
        stream = self.live.get(id)
        if stream is not None:
            self._step(stream, StreamInput.APP_COMPLETE)

    def fail(self, id: int, error: BaseException) -> None:
        """See core.engine.Engine.fail."""
        stream = self.live.get(id)
        if stream is not None:
            self._step(stream, StreamInput.APP_FAIL, error)

    def request(self, id: int, n: int) -> None:
        """See core.engine.Engine.request."""
        if not 0 < n <= MAX_N:
            raise LocalProtocolError(f"a credit is 1 to {MAX_N} items, not {n}", stream=id, rule="D-5")
        stream = self.live.get(id)
        if stream is None or stream.state not in (_OPEN, _OUT_DONE):
            return
        if stream.verb == "request":
            raise LocalProtocolError("a request/response has one item and no credit", stream=id, rule="R-23")
        if not stream.first_paid:
            stream.first_paid = True  # D-8: the first item came with REQUEST_CHANNEL and used one
            n -= 1
        if n:
            stream.owed = min(stream.owed + n, SATURATED)
            stream.rate(id in self._partials)
            self.out.queue_credit(id, self._wire.RequestN(stream=id, n=n).encode(prefixed=True))

    def cancel(self, id: int) -> None:
        """See core.engine.Engine.cancel."""
        stream = self.live.get(id)
        if stream is not None:
            self._step(stream, StreamInput.APP_CANCEL)

    def state(self) -> dict[str, Any]:
        """What ``restore`` takes: the live streams and every count. What is queued and what has come in part have
        states of their own."""
        return {
            "live": [stream.state_of() for stream in self.live.values()],
            "handlers": sorted(self.handlers),
            "fires": sorted(self.fires),
            "ids": self._ids.state(),
            "late": self._late.state(),
            "counts": [getattr(self, name) for name in _COUNTS],
            "accepting": self.accepting,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a state. The unfinished payloads have been restored."""
        self.live.update({stream.id: stream for stream in map(Stream.of_state, state["live"])})
        for stream in self.live.values():
            stream.rate(stream.id in self._partials)
        self.handlers.update(state["handlers"])
        self.fires.update(state.get("fires", ()))
        self._ids.restore(state["ids"])
        self._late.restore(state["late"])
        for name, value in zip(_COUNTS, state["counts"], strict=True):
            setattr(self, name, value)
        self.accepting = state["accepting"]

    def fail_all(self, error: Error) -> None:
        """The connection is over: each live stream gets its one error."""
        for id in list(self.live):
            self.events.append(Failed(id, error.about(id)))
        self.live.clear()
        self.reassembly.clear()
        self.out.clear()

    def fail_sent(self, ids: set[int], error: Error) -> None:
        """The session is over and another begins: fail the streams of which something was sent, and forget what they
        have queued. What nothing was sent of goes to the new session."""
        for id in sorted(ids):
            self.out.discard(id)
            if self.live.pop(id, None) is not None:
                self.events.append(Failed(id, error.about(id)))

    def rest(self, now: float, seconds: float) -> None:
        """Forget what is known of ended streams when none has ended for so long; call it now and then."""
        self._late.look(now, seconds)

    def end(self) -> None:
        """The connection is over for good: let go of the one that holds this object (see Inbound.end)."""
        self._charge = _nothing

    # -- classification -------------------------------------------------------------------------------------

    def _item(self, stream: Stream, next: bool, complete: bool, payload: Payload) -> None:
        if not next:
            self._step(stream, StreamInput.COMPLETE if complete else StreamInput.EMPTY)
        elif not stream.owed and stream.state != _IN_DONE:
            self._step(stream, StreamInput.ITEM_EXCESS)
        elif len(payload) > self.limits.payload_bytes and stream.state != _IN_DONE:
            stream.late = 0
            self._step(stream, StreamInput.TOO_BIG, ("payload-too-large", self._codes.Code.REJECTED))
        elif complete or stream.verb == "request":
            # the answer of a request completes it, with or without C
            self._step(stream, StreamInput.ITEM_LAST, payload)
        else:
            self._step(stream, StreamInput.ITEM, payload)

    def _fragment(self, id: int, frame: RequestFrame | PayloadFrame, last: bool) -> None:
        reassembly = self.reassembly
        stream = self.live.get(id)
        if stream is not None and stream.state == _IN_DONE:
            self._unwanted(stream, last)
            return
        request = reassembly.request(id) if isinstance(frame, PayloadFrame) else frame
        # What is queued beyond O is one payload of the application's own: no fault of the peer, and no copy.
        queued = min(self.out.size, self.limits.outbound_high_bytes)
        room = self.limits.connection_bytes - self.delivered - reassembly.size - queued
        try:
            if id not in self._partials:
                reassembly.begin(id, request, self.now)
                if stream is not None:
                    stream.rate(True)
            whole = reassembly.add(id, frame, last, room)
        except Violation as violation:
            if violation.consequence is Consequence.END_STREAM:
                self._fragment_refused(
                    id, request, not last, StreamInput.MALFORMED, violation.reason, self._codes.Code.INVALID
                )
            else:
                self._fragment_refused(
                    id, request, not last, StreamInput.TOO_BIG, violation.reason, self._codes.Code.REJECTED
                )
            return
        if whole is None:
            if reassembly.small(id, 3 + frame.encoded_size):
                self._charge(20, id, "fragment_min_bytes", "fragment-too-small")
            return
        complete = isinstance(frame, PayloadFrame) and frame.complete
        if request is None:
            self._item(self.live[id], True, complete, whole.payload())
        elif self._is_full(request):
            self._turn_away(request)
        else:
            first = isinstance(request, RequestChannel) and request.complete
            self._accept(request, whole.payload(), complete or first)

    def _fragment_refused(
        self, id: int, request: RequestFrame | None, more: bool, input: StreamInput, reason: str, code: Code
    ) -> None:
        """``more``: fragments are still to come; they are swallowed (FG-01)."""
        stream = self.live.get(id)
        if more:
            self._late.cut_off(id)
        if stream is not None:
            stream.late = self.limits.fragments if more else 0
            self._step(stream, input, (reason, code))
        else:
            self._refuse(id, code, reason, more, silent=isinstance(request, self._wire.RequestFnf))

    def _accept(self, frame: RequestFrame, payload: Payload, complete: bool) -> None:
        id = frame.stream
        verb = _VERBS[type(frame)]
        self._opened += 1
        credit = 1 if verb == "request" else 0
        if isinstance(frame, RequestStream | RequestChannel):
            credit = frame.initial_n
        self.objects += 1
        if verb == "fire":
            self.fires.add(id)
        else:
            self.handlers.add(id)
            stream = self.live[id] = Stream(id, verb, requester=False)
            stream.allowed = credit
            stream.state = SERVES_LAST if verb != "channel" or complete else _SERVES
        self._hold(payload)
        self.events.append(Opened(id, verb, payload, credit, complete))

    def _unwanted(self, stream: Stream, last: bool) -> None:
        """A fragment for an inbound half that is over."""
        if not last and stream.late and self._late.take_part():
            self.events.append(Ignored(stream.id, "SI-07", "it was under way when this side canceled", 0))
        else:
            self._step(stream, StreamInput.ITEM)

    def _swallow(self, id: int, size: int, last: bool) -> bool:
        """Whether a fragment of ``size`` bytes, prefix included, is the rest of a refused payload: it is dropped and
        costs nothing, however many there are (FG-01). Fragments without progress have a price (FG-02)."""
        if not (last or size >= self.limits.fragment_min_bytes) or not self._late.swallow(id, last):
            return False
        self.events.append(Ignored(id, "FG-01", "the rest of a payload that was refused", 0))
        return True

    def _unknown(self, id: int, name: LateFrame, part: bool = False) -> None:
        price = self._late.price(id, name, part)
        if not price:
            self.events.append(Ignored(id, "SI-07", f"{name} for a stream that has just ended", 0))
        elif price == 1:
            self._charge(1, id, "R-31", f"{name} for an unknown stream")
        else:
            self._charge(price, id, "SI-10", f"{name} for a stream that the peer has ended")

    # -- steps ----------------------------------------------------------------------------------------------

    def _step(self, stream: Stream, input: StreamInput, argument: Any = None) -> None:
        step = stream.table.steps[stream.state][input]
        stream.state = step.next
        ACTIONS[step.action](self, stream, argument)
        self._settle(stream)

    def _settle(self, stream: Stream) -> None:
        """Forget a stream that is over, and keep ``hot`` true to the state."""
        id = stream.id
        if stream.state is not CLOSED:
            if stream.state is _IN_DONE and id in self._partials:
                self.reassembly.drop(id)  # this side canceled the inbound half: the rest will not come
            stream.rate(id in self._partials)
            return
        stream.hot = stream.answering = False
        del self.live[id]
        if self._partials:
            self.reassembly.drop(id)
        if stream.late:
            self._late.given_up(id, stream.late)
        elif stream.verb != "request":
            self._late.ended(id, stream.requester and stream.verb == "channel" and not stream.ended)
        elif not stream.requester:
            self._late.answered(1)

    def _ignore(self, stream: Stream, argument: Any) -> None:
        if stream.late:
            stream.late -= 1
            self.events.append(Ignored(stream.id, "SI-07", "it was under way when this side canceled", 0))
            return
        self._charge(10, stream.id, "R-31", f"a frame that makes no sense in {stream.state.name}")

    def _race(self, stream: Stream, argument: Any) -> None:
        stream.races += argument is None  # CANCEL; credit has its own budget (FC-08)
        if stream.races > self.limits.cancel_race_frames:
            self._charge(1, stream.id, "cancel_race_frames", "more cancels than can race")
        else:
            self.events.append(Ignored(stream.id, "R-31", "late, and a legal race", 0))

    def _nothing(self, stream: Stream, argument: Any) -> None:
        """The stream has moved on."""

    def _deliver(self, stream: Stream, payload: Payload) -> None:
        stream.owed -= 1
        self._hold(payload)
        self.objects += stream.verb != "request"
        self.events.append(Items(stream.id, [payload]))

    def _complete_in(self, stream: Stream, payload: Payload | None) -> None:
        if payload is None:
            self.events.append(Completed(stream.id))
            return
        stream.owed -= 1
        self._hold(payload)
        self.objects += stream.verb != "request"
        self.events.append(Items(stream.id, [payload], True))

    def _excess(self, stream: Stream, argument: Any) -> None:
        reason = "more items than the credit granted"
        self._charge(50, stream.id, "R-27", reason)  # first of all: when it ends the connection, that is the one end
        if stream.requester:
            self._abandon(stream, self._wire.Cancel(stream=stream.id).encode(prefixed=True))  # FC-04
        else:
            self._abandon_with_error(stream, self._codes.Code.CANCELED, reason)  # FC-05
        self.events.append(Failed(stream.id, RemoteProtocolError(reason, stream=stream.id, rule="R-27")))

    def _grant(self, stream: Stream, n: int) -> None:
        stream.allowed = min(stream.allowed + n, SATURATED)
        self.events.append(Granted(stream.id, n))

    def _zero(self, stream: Stream, argument: Any) -> None:
        self._abandon_with_error(stream, self._codes.Code.INVALID, "request-n-zero")
        error = RemoteProtocolError("a credit of zero", code=self._codes.Code.INVALID, stream=stream.id, rule="FC-02")
        self.events.append(Failed(stream.id, error))

    def _stop_out(self, stream: Stream, argument: Any) -> None:
        self.out.drop(stream.id, credit=True)
        self.events.append(CanceledEvent(stream.id, final=False))

    def _end_canceled(self, stream: Stream, argument: Any) -> None:
        self.out.drop(stream.id)
        stream.ended = True
        stream.late = stream.owed  # some requesters go on sending what they had credit for
        self.events.append(CanceledEvent(stream.id, final=True))

    def _end_failed(self, stream: Stream, error: Error) -> None:
        self.out.drop(stream.id)
        stream.ended = True
        self.events.append(Failed(stream.id, error))

    def _refuse_fragment(self, stream: Stream, argument: tuple[str, Code]) -> None:
        reason, code = argument
        if stream.requester:
            self._abandon(stream, self._wire.Cancel(stream=stream.id).encode(prefixed=True))
        else:
            self._abandon_with_error(stream, code, reason)
        error: Error
        if code == self._codes.Code.INVALID:
            error = RemoteProtocolError(reason, code=code, stream=stream.id, rule="R-34")
        else:
            error = LimitExceeded(f"{reason}: the payload is dropped", stream=stream.id, rule=reason)
        self.events.append(Failed(stream.id, error))

    def _send_complete(self, stream: Stream, argument: Any) -> None:
        self.out.put(stream.id, HEADER.pack(0, 6, stream.id, COMPLETE), 1)

    def _send_failure(self, stream: Stream, error: Exception) -> None:
        self.out.drop(stream.id)
        self._give_up(stream)
        code, text = self._codes.code_for(error, self.limits)
        self._send_error(stream.id, code, text)

    def _send_cancel(self, stream: Stream, argument: Any) -> None:
        if stream.requester:
            self._abandon(stream, self._wire.Cancel(stream=stream.id).encode(prefixed=True))
        else:
            self.out.frame(stream.id, self._wire.Cancel(stream=stream.id).encode(prefixed=True))
            self._give_up(stream)

    # -- sending --------------------------------------------------------------------------------------------

    def _turn_away(self, frame: RequestFrame) -> None:
        """Reject a request because too many wait; one in a hundred is charged."""
        self._reject(frame, reached(self.limits, "pending_streams"), int(self._turned_away % _CHEAP == 0))
        self._turned_away += 1

    def _reject(self, frame: RequestFrame, reason: str, price: int = 1) -> None:
        """Refuse a request that nothing has been done for: safe to try again."""
        id = frame.stream
        self._charge(price, id, "REJECTED", reason)
        if frame.follows:
            self._late.cut_off(id)
        self._late.given_up(id, self.limits.fragments if frame.follows else self.limits.cancel_race_frames)
        if not isinstance(frame, self._wire.RequestFnf):  # D-11: a refused REQUEST_FNF is dropped silently
            self._send_error(id, self._codes.Code.REJECTED, reason)

    def _refuse(self, id: int, code: Code, reason: str, more: bool, silent: bool = False) -> None:
        """Refuse a request that breaks a rule: it counts as a cancel of the peer (FL-02)."""
        if not silent:
            self._send_error(id, code, explained(self.limits, reason))
        if more:
            self._late.cut_off(id)
        self._late.given_up(id, self.limits.fragments if more else self.limits.cancel_race_frames)
        self._count_cancel()

    def _give_up(self, stream: Stream) -> None:
        """This side ends the stream, or its inbound half: what the peer had credit for may be under way."""
        under_way = self.limits.fragments if stream.id in self._partials else self.limits.cancel_race_frames
        stream.late = max(stream.late, stream.owed, under_way)
        self._late.expect_parts()

    def _abandon(self, stream: Stream, frame: bytes) -> None:
        """This side ends the stream: drop what it still wanted to send, and say so."""
        self.out.drop(stream.id)
        self.out.frame(stream.id, frame)
        self._give_up(stream)

    def _abandon_with_error(self, stream: Stream, code: Code, reason: str) -> None:
        """The peer made us end the stream with an error: it counts as a cancel of the peer (FL-02)."""
        self.out.drop(stream.id)
        self._send_error(stream.id, code, reason)
        self._give_up(stream)
        self._count_cancel()

    def _send_error(self, id: int, code: int, text: str) -> None:
        self.out.frame(id, self._wire.ErrorFrame(stream=id, code=code, data=text.encode()).encode(prefixed=True))

    def _count_cancel(self) -> None:
        self._cancels = spend(self._cancels, self.limits, "cancel_bucket", 1, self.now)

    def _hold(self, payload: Payload) -> None:
        self.delivered += len(payload)


ACTIONS: dict[StreamAction, Callable[[Streams, Stream, Any], None]] = {
    StreamAction.IGNORE: Streams._ignore,
    StreamAction.RACE: Streams._race,
    StreamAction.NOTHING: Streams._nothing,
    StreamAction.DELIVER: Streams._deliver,
    StreamAction.COMPLETE_IN: Streams._complete_in,
    StreamAction.EXCESS: Streams._excess,
    StreamAction.GRANT: Streams._grant,
    StreamAction.ZERO: Streams._zero,
    StreamAction.STOP_OUT: Streams._stop_out,
    StreamAction.END_CANCELED: Streams._end_canceled,
    StreamAction.END_FAILED: Streams._end_failed,
    StreamAction.REFUSE_BIG: Streams._refuse_fragment,
    StreamAction.REFUSE_MALFORMED: Streams._refuse_fragment,
    StreamAction.SEND_COMPLETE: Streams._send_complete,
    StreamAction.SEND_ERROR: Streams._send_failure,
    StreamAction.SEND_CANCEL: Streams._send_cancel,
}


def _nothing(price: int, stream: int, rule: str, reason: str) -> None:
    """What a frame costs on a connection that is over."""
