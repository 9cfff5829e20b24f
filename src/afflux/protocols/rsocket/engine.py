"""One end of an RSocket 1.0 connection: establishment, liveness, closing, and the pass over what was received.

Rules this module keeps:

1. Good frames before a bad one are delivered first; a broken rule becomes the ERROR frame it asks for and a final
   Closed event. ``receive`` never raises for what the peer does.
2. A length is judged as soon as it can be read, before anything is allocated for it.
3. Nothing is kept or served before SETUP is accepted (R-11, HS-16).
4. Ignoring a frame is charged (robustness.md, rule 1): the glitch bucket bounds what it can cost.
5. Time is what the caller says: every method that needs it takes ``now`` in monotonic seconds.
"""

# long: the contract alone is twenty methods, and each connection action is one more; what can stand on its own is in
# establishment.py, inbound.py, outbound.py and streams.py.

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from afflux.core.bucket import Bucket
from afflux.core.credit import SATURATED, Ledger, Unit
from afflux.core.errors import (
    ConnectionClosed,
    Error,
    LimitExceeded,
    LocalProtocolError,
    RemoteProtocolError,
    SetupRefused,
    Violation,
)
from afflux.core.events import Closed, Draining, Established, Event, Ignored, Pushed, Verb
from afflux.core.frame import trailing
from afflux.core.limits import Limits
from afflux.core.payload import PayloadLike
from afflux.protocols.rsocket import frames
from afflux.protocols.rsocket.codes import Code, cut, error_for
from afflux.protocols.rsocket.establishment import lifetime_of, proposal, refusal_of
from afflux.protocols.rsocket.frames import ErrorFrame, Keepalive, MetadataPush, Setup, UnknownFrame
from afflux.protocols.rsocket.inbound import Inbound
from afflux.protocols.rsocket.outbound import HEADER, Outbound
from afflux.protocols.rsocket.states import CLIENT, SERVER, ConnectionAction, ConnectionInput, ConnectionState
from afflux.protocols.rsocket.streams import Streams

__all__ = ["DEFAULT_MTU", "Engine"]

DEFAULT_MTU = 0x20000
"Bytes a frame may have before its payload is cut: 128 KiB, the quantum of fairness between streams."
_MIN_MTU = 64

_S, _I = ConnectionState, ConnectionInput
# Members of an enum are slow to look up: those that every pass needs are looked up once.
_SETUP_SENT, _OPEN = ConnectionState.SETUP_SENT, ConnectionState.OPEN
_DRAINING, _CLOSED = ConnectionState.DRAINING, ConnectionState.CLOSED
_UNDECIDED = (ConnectionState.WAIT_FIRST, ConnectionState.DECIDING)

_INPUTS: dict[type, ConnectionInput] = {
    frames.Ext: _I.EXT,
    frames.RequestResponse: _I.REQUEST,
    frames.RequestFnf: _I.REQUEST,
    frames.RequestStream: _I.REQUEST,
    frames.RequestChannel: _I.REQUEST,
    frames.RequestN: _I.STREAM_FRAME,
    frames.Cancel: _I.STREAM_FRAME,
    frames.PayloadFrame: _I.STREAM_FRAME,
}
_STREAM_ZERO: dict[type, ConnectionInput] = {
    frames.Setup: _I.SETUP,
    frames.Resume: _I.RESUME,
    frames.ResumeOk: _I.RESUME_OK,
    frames.Lease: _I.LEASE,
    frames.Keepalive: _I.KEEPALIVE,
    frames.MetadataPush: _I.METADATA_PUSH,
}
"Frames that belong on stream 0 (R-32)."


# long: see the top of the file
class Engine:
    """See core.engine.Engine for the contract.

    Args:
        role: "client" (it speaks first, with SETUP) or "server".
        setup: what a client asks for; the default is 20 s between keepalives, a lifetime of 90 s, composite metadata
            and octet-stream data.
        limits: the bounds; ``Limits.server()`` if None.
        decide: a server waits for ``accept`` or ``refuse`` after Established instead of accepting at once.
        now: the time at birth, in monotonic seconds: the handshake's time starts here.
        mtu: bytes a frame may have, with its prefix, before its payload is cut; 64 or more.
    """

    def __init__(
        self,
        role: Literal["client", "server"],
        *,
        setup: Setup | None = None,
        limits: Limits | None = None,
        decide: bool = False,
        now: float = 0.0,
        mtu: int = DEFAULT_MTU,
    ) -> None:
        if mtu < _MIN_MTU:
            raise LocalProtocolError(f"an MTU is {_MIN_MTU} bytes or more, not {mtu}", rule="FG-22")
        self.limits = limits or Limits.server()
        self._client = role == "client"
        self._table = CLIENT if self._client else SERVER
        self._state = self._table.start
        self._decide = decide
        self._born = self._now = self._heard = now
        self._out = Outbound(max(_MIN_MTU, min(mtu, self.limits.frame_bytes)))
        self._streams = Streams(self._client, self.limits, self._out, self._charge)
        self._in = Inbound(self.limits, self._streams, self._frame, first=not self._client)
        self._events: list[Event] = []
        self._glitches = Bucket(*self.limits.glitch_bucket)
        self._keepalives = Bucket(self.limits.keepalive_rate[1], self.limits.keepalive_rate[0])
        self._echoes = 0
        self._full = False
        "At the last look this side could take no more input: the peer's time stands still meanwhile."
        self._most_queued = self.limits.outbound_high_bytes + self.limits.payload_bytes
        self._interval = self._lifetime = 0.0
        self._next_keepalive: float | None = None
        self.setup: Setup | None = None
        "The SETUP of this connection, sent or received; None at a server before it came."
        if self._client:
            self._start(setup, now)

    # -- the driver's side ----------------------------------------------------------------------------------

    def receive(self, data: bytes, now: float) -> list[Event]:
        """Take bytes that arrived at ``now``; return what they mean."""
        if self._state is _CLOSED:
            return []
        if self._full:
            self._hold(now)
        self._now = self._heard = now
        events = self._run(self._in.receive, data, now)
        self._full = not self.wants_read
        return events

    def receive_eof(self, now: float) -> list[Event]:
        """The transport ended."""
        self._now = now
        over = self._state is _DRAINING and not self._streams.live
        return self._run(self._step, _I.LAST_STREAM_ENDED if over else _I.LOST, None)

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
        if self._state in _UNDECIDED:
            return self._born + self.limits.handshake_s
        due = self._heard + self._lifetime
        if self._next_keepalive is not None:
            due = min(due, self._next_keepalive)
        if self._in.incomplete_since is not None:
            due = min(due, self._in.incomplete_since + self.limits.frame_s)
        if oldest := self._streams.reassembly.oldest():
            due = min(due, oldest[1] + self.limits.reassembly_s)
        return due

    def outgoing(self, limit: int = 0x10000) -> bytes:
        """Bytes to write now."""
        self._echoes = 0  # frames of stream 0 leave first, all of them
        return self._out.take(limit)

    @property
    def queued(self) -> int:
        """Bytes waiting for outgoing."""
        return self._out.size

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
        """Refuse the peer with ``code``; REJECTED_SETUP if it is None or not a code for this (R-14)."""
        self._check_deciding()
        self._now = now
        fit = code in (Code.INVALID_SETUP, Code.UNSUPPORTED_SETUP, Code.REJECTED_SETUP)
        violation = Violation(reason, rule="R-14", code=code if fit else Code.REJECTED_SETUP)
        return self._run(self._step, _I.APP_REFUSE, violation)

    def open(
        self, verb: Verb, payload: PayloadLike, *, credit: int = 0, complete: bool = False, columnar: bool = False
    ) -> int:
        """Open a stream and return its id."""
        if self._state is not _OPEN and self._state is not _SETUP_SENT:
            code = Code.CONNECTION_CLOSE if self._state is _DRAINING else None
            text = f"no new requests: the connection is {self._state.name.lower()}"
            raise ConnectionClosed(text, code=code, rule="R-20")
        return self._streams.open(verb, payload, credit=credit, complete=complete, columnar=columnar)

    def send(self, stream: int, payloads: Sequence[PayloadLike], *, complete: bool = False) -> None:
        """Send items."""
        self._streams.send(stream, payloads, complete=complete)

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
        if len(metadata) > self.limits.connection_metadata_bytes:
            raise LimitExceeded(
                f"{len(metadata)} bytes of metadata: a peer takes {self.limits.connection_metadata_bytes}",
                stream=0,
                rule="metadata-too-large",
            )
        self._out.control(MetadataPush(stream=0, metadata=metadata).encode(prefixed=True))

    def close(self, now: float, *, drain: bool = False, reason: str = "") -> list[Event]:
        """Close at once with CONNECTION_ERROR, or with CONNECTION_CLOSE when the live streams have ended (R-20)."""
        self._now = now
        violation = Violation(reason or "closed", rule="3.1", code=Code.CONNECTION_ERROR)
        return self._run(self._step, _I.APP_DRAIN if drain else _I.APP_CLOSE, violation)

    def release(self, stream: int) -> None:
        """The handler of a stream that the peer opened has really returned."""
        self._streams.handlers.discard(stream)

    def credit(self, stream: int) -> int:
        """How many items the peer will still take."""
        live = self._streams.live.get(stream)
        return 0 if live is None else live.allowed

    def ledger(self, stream: int, unsent: int = 0) -> Ledger:
        """What may be sent on ``stream`` now, and which bound is the smallest; ``unsent`` as for ``room``.

        A stream that is over has no application demand left.
        """
        ledger = Ledger(Unit.ITEMS)
        ledger.application.add(SATURATED if stream in self._streams.live else 0)
        ledger.peer.add(self.credit(stream))
        ledger.transport = self.room(unsent)
        ledger.budget = max(0, self.limits.connection_bytes - self._out.size - unsent)
        return ledger

    # -- one pass -------------------------------------------------------------------------------------------

    def _run(self, work: Callable[..., None], *arguments: Any) -> list[Event]:
        """Do one piece of work and hand over its events; a violation ends the connection (never raises)."""
        events: list[Event] = []
        self._events = self._streams.events = events
        self._streams.now = self._now
        try:
            work(*arguments)
        except Violation as violation:
            self._break_off(violation)
        if self._state is _DRAINING and not self._streams.live:
            self._step(_I.LAST_STREAM_ENDED, None)
        self._events = self._streams.events = []  # what was delivered is not kept alive
        return events

    # -- frames ---------------------------------------------------------------------------------------------

    def _frame(self, block: bytes, start: int, end: int) -> None:
        """Decode one frame and treat it."""
        try:
            frame = frames.decode(block, start, end)
        except UnknownFrame as unknown:
            if self._state == _S.WAIT_FIRST:
                raise Violation("the first frame is not a SETUP", rule="R-11", code=Code.INVALID_SETUP) from None
            if not unknown.ignorable:
                raise
            self._charge(1, unknown.stream, "R-5", unknown.reason)
            return
        except Violation as violation:
            self._malformed(block, start, violation)
            return
        if not frame.OPEN_ENDED and trailing(frame, start, end):
            self._charge(1, frame.stream, "FR-21", "bytes after the end of the frame")
        input = _INPUTS.get(type(frame))
        if input is None:
            if isinstance(frame, ErrorFrame):
                input = self._classify_error(frame)
            else:
                input = _STREAM_ZERO[type(frame)]
                if frame.stream and self._state != _S.WAIT_FIRST:
                    self._charge(10, frame.stream, "R-32", f"{type(frame).__name__} on a stream")
                    return
        self._step(input, frame)

    def _malformed(self, block: bytes, start: int, violation: Violation) -> None:
        """A frame that is cut short or lies about a length (R-7, FG-14)."""
        _, _, _, word = HEADER.unpack_from(block, start - 3)
        if self._state == _S.WAIT_FIRST:
            resume = word >> 10 == frames.Resume.TYPE
            code = Code.REJECTED_RESUME if resume else Code.INVALID_SETUP
            raise Violation(violation.reason, rule=violation.rule, code=code)
        if word & 0x200:
            self._charge(1, violation.stream, violation.rule, violation.reason)
            return
        raise violation

    @staticmethod
    def _classify_error(frame: ErrorFrame) -> ConnectionInput:
        if frame.stream:
            return _I.STREAM_FRAME
        if frame.code <= 0x004:
            return _I.ERROR_SETUP
        return _I.ERROR_CLOSE if frame.code == Code.CONNECTION_CLOSE else _I.ERROR_OTHER

    def _step(self, input: ConnectionInput, argument: Any) -> None:
        step = self._table.steps[self._state][input]
        before, self._state = self._state, step.next
        _ACTIONS[step.action](self, argument)
        if step.action == ConnectionAction.ESTABLISH and before == _S.SETUP_SENT:
            self._step(input, argument)

    def _charge(self, price: int, stream: int, rule: str, reason: str) -> None:
        """Drop a frame and take its price; an empty bucket is a connection error."""
        self._events.append(Ignored(stream, rule, reason, price))
        if not self._glitches.take(price, self._now):
            raise Violation("protocol-abuse", rule="glitch_bucket")

    # -- establishment --------------------------------------------------------------------------------------

    def _start(self, setup: Setup | None, now: float) -> None:
        setup = self.setup = proposal(setup, self.limits)
        self._state = self._table.step(self._state, _I.APP_START).next
        try:
            self._out.control(setup.encode(prefixed=True))
        except Violation as violation:
            raise LocalProtocolError(violation.reason, stream=0, rule=violation.rule) from None
        self._interval = setup.keepalive_ms / 1000
        self._lifetime = setup.lifetime_ms / 1000
        self._next_keepalive = now + self._interval

    def _judge_setup(self, setup: Setup) -> None:
        """Accept or refuse a SETUP (section 3.2)."""
        refusal = refusal_of(setup, self.limits)
        if refusal is not None:
            raise refusal
        self.setup = setup
        self._lifetime = lifetime_of(setup, self.limits)
        self._in.first = False
        self._in.held = self._decide
        self._events.append(Established(setup))
        if not self._decide:
            self._step(_I.APP_ACCEPT, None)

    def _accept(self) -> None:
        self._step(_I.APP_ACCEPT, None)
        if not self._in.over:
            self._in.resume(self._now)

    def _check_deciding(self) -> None:
        if self._state not in (_S.DECIDING, _CLOSED):
            raise LocalProtocolError("there is nothing to decide: no SETUP waits for it", rule="3.2")

    def _establish(self, argument: Any) -> None:
        self._in.established = True
        self._streams.accepting = True
        if self._client:
            self._events.append(Established(None))

    def _refuse_first(self, frame: Any) -> None:
        raise Violation("the first frame is not a SETUP", rule="R-11", code=Code.INVALID_SETUP)

    def _refuse_resume(self, frame: Any) -> None:
        raise Violation("resumption is not supported", rule="RE-01", code=Code.REJECTED_RESUME)

    def _refuse_setup(self, violation: Violation) -> None:
        code = violation.code if violation.rule == "R-14" else Code.REJECTED_SETUP
        raise Violation(violation.reason, rule="R-14", code=code)

    def _setup_failed(self, frame: ErrorFrame) -> None:
        error = error_for(frame.code, frame.data, 0, self.limits)
        self._end(SetupRefused(error.message, code=frame.code, stream=0, rule="R-14"))

    # -- connection frames ----------------------------------------------------------------------------------

    def _echo(self, frame: Keepalive) -> None:
        if len(frame.data) > self.limits.connection_metadata_bytes:
            raise Violation("metadata-too-large", rule="connection_metadata_bytes")
        if not frame.respond:
            return
        if not self._keepalives.take(1, self._now):
            raise Violation("keepalive-flood", rule="keepalive_rate")
        self._echoes += 1
        self._out.control(Keepalive(stream=0, respond=False, position=0, data=frame.data).encode(prefixed=True))

    def _pushed(self, frame: MetadataPush) -> None:
        if len(frame.metadata) > self.limits.connection_metadata_bytes:
            self._charge(10, 0, "connection_metadata_bytes", "metadata-too-large")
            return
        self._streams.delivered += len(frame.metadata)
        self._events.append(Pushed(frame.metadata))

    def _extension(self, frame: frames.Ext) -> None:
        if frame.extended_type == 0 or not frame.ignore:
            raise Violation(f"extended type {frame.extended_type} is not understood", rule="R-5")
        self._charge(1, frame.stream, "R-5", "an unknown extension")

    def _request(self, frame: Any) -> None:
        self._streams.on_request(frame)

    def _reject(self, frame: Any) -> None:
        self._streams.on_request(frame, "the connection is closing")

    def _stream_frame(self, frame: Any) -> None:
        _STREAM_FRAMES[type(frame)](self._streams, frame)

    def _ignore(self, frame: Any) -> None:
        self._charge(10, getattr(frame, "stream", 0), "R-32", f"a frame that makes no sense in {self._state.name}")

    def _nothing(self, argument: Any) -> None:
        """It is so already."""

    # -- liveness -------------------------------------------------------------------------------------------

    def _hold(self, now: float) -> None:
        """This side did not read: what the peer did not say until ``now`` is not held against it."""
        self._heard = now
        self._in.hold(now)
        self._streams.reassembly.hold(now)

    def _tick(self, now: float) -> None:
        if self._state in _UNDECIDED:
            if now >= self._born + self.limits.handshake_s:
                if self._state == _S.DECIDING:
                    raise Violation("handshake-timeout", rule="handshake_s", code=Code.REJECTED_SETUP)
                self._step(_I.SILENT, None)
            return
        if now >= self._heard + self._lifetime:
            self._step(_I.SILENT, None)
            return
        if self._in.incomplete_since is not None and now >= self._in.incomplete_since + self.limits.frame_s:
            raise Violation("frame-timeout", rule="frame_s")
        if self._next_keepalive is not None and now >= self._next_keepalive:
            self._out.control(Keepalive(stream=0, respond=True, position=0, data=b"").encode(prefixed=True))
            self._next_keepalive = max(self._next_keepalive + self._interval, now)
        self._streams.expire(now)

    def _expire(self, argument: Any) -> None:
        text = f"keepalive-timeout: nothing heard for {self._lifetime:g} s"
        self._out.control(
            ErrorFrame(stream=0, code=Code.CONNECTION_ERROR, data=b"keepalive-timeout").encode(prefixed=True)
        )
        self._end(ConnectionClosed(text, rule="R-22"))

    # -- endings --------------------------------------------------------------------------------------------

    def _lose(self, argument: Any) -> None:
        self._end(ConnectionClosed("the peer closed the connection", rule="3.1"))

    def _fail(self, frame: ErrorFrame) -> None:
        self._end(error_for(frame.code, frame.data, 0, self.limits))

    def _abort(self, argument: Any) -> None:
        """This side ends it: by the application's wish, or because RESUME came in an open connection (R-48)."""
        if isinstance(argument, Violation):
            text = cut(argument.reason, self.limits.error_text_bytes[0]).encode()
            self._end(ConnectionClosed("this side closed the connection"), Code.CONNECTION_ERROR, text)
            return
        raise Violation("RESUME after the connection was established", rule="R-48")

    def _peer_drains(self, frame: ErrorFrame) -> None:
        self._streams.accepting = False
        self._events.append(Draining(error_for(frame.code, frame.data, 0, self.limits).message))

    def _drain(self, violation: Violation) -> None:
        self._streams.accepting = False
        text = cut(violation.reason, self.limits.error_text_bytes[0]).encode()
        self._out.farewell(ErrorFrame(stream=0, code=Code.CONNECTION_CLOSE, data=text).encode(prefixed=True))

    def _finish(self, argument: Any) -> None:
        self._in.close()
        self._events.append(Closed(None))

    def _break_off(self, violation: Violation) -> None:
        """The peer broke a rule: say which, close."""
        code = violation.code or Code.CONNECTION_ERROR
        self._state = _S.CLOSED
        error: Error = RemoteProtocolError(violation.reason, code=code, stream=0, rule=violation.rule)
        if violation.rule == "R-14":
            error = ConnectionClosed(violation.reason, code=code, rule="R-14")
        self._end(error, code, cut(violation.reason, self.limits.error_text_bytes[0]).encode())

    def _end(self, error: Error, code: int | None = None, text: bytes = b"") -> None:
        """Fail every stream once, say why if there is something to say, and close."""
        self._state = _S.CLOSED
        self._next_keepalive = None
        self._in.close()
        self._streams.fail_all(error)
        if code is not None:
            self._out.control(ErrorFrame(stream=0, code=code, data=text).encode(prefixed=True))
        self._events.append(Closed(error))


_STREAM_FRAMES: dict[type, Callable[[Streams, Any], None]] = {
    frames.PayloadFrame: Streams.on_payload,
    frames.RequestN: Streams.on_request_n,
    frames.Cancel: Streams.on_cancel,
    frames.ErrorFrame: Streams.on_error,
}

_D = ConnectionAction
_ACTIONS: dict[ConnectionAction, Callable[[Engine, Any], None]] = {
    _D.IGNORE: Engine._ignore,
    _D.JUDGE_SETUP: Engine._judge_setup,
    _D.ESTABLISH: Engine._establish,
    _D.REFUSE_FIRST: Engine._refuse_first,
    _D.REFUSE_RESUME: Engine._refuse_resume,
    _D.REFUSE_SETUP: Engine._refuse_setup,
    _D.SETUP_FAILED: Engine._setup_failed,
    _D.FAIL: Engine._fail,
    _D.ABORT: Engine._abort,
    _D.ECHO: Engine._echo,
    _D.PUSH: Engine._pushed,
    _D.PEER_DRAINS: Engine._peer_drains,
    _D.DRAIN: Engine._drain,
    _D.FINISH: Engine._finish,
    _D.REQUEST: Engine._request,
    _D.REJECT: Engine._reject,
    _D.STREAM_FRAME: Engine._stream_frame,
    _D.EXTENSION: Engine._extension,
    _D.EXPIRE: Engine._expire,
    _D.LOSE: Engine._lose,
    _D.NOTHING: Engine._nothing,
}
