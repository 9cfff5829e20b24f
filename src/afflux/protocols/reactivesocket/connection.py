"""One end of a connection: what ReactiveSocket does in another way than RSocket. Sections 3.1 and 3.2.

There is no resumption and no frame that announces an end: who drains says CONNECTION_ERROR when its last stream is
over.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any, ClassVar, cast

from afflux.core.errors import Canceled, LocalProtocolError, Violation
from afflux.core.events import Closed, Event, Extended, Failed, Ignored
from afflux.core.frame import trailing
from afflux.protocols.reactivesocket import codes, frames
from afflux.protocols.reactivesocket.codes import LAST_SETUP_CODE, Code, on_wire
from afflux.protocols.reactivesocket.dialect import RULES, Dialect
from afflux.protocols.reactivesocket.frames import (
    Cancel,
    ErrorFrame,
    Ext,
    Keepalive,
    RequestChannel,
    RequestFnf,
    RequestN,
    RequestResponse,
    RequestStream,
    RequestSub,
    Response,
    Setup,
    UnknownFrame,
)
from afflux.protocols.reactivesocket.inbound import Inbound
from afflux.protocols.reactivesocket.outbound import Outbound
from afflux.protocols.reactivesocket.states import CLIENT, SERVER
from afflux.protocols.reactivesocket.streams import Streams
from afflux.protocols.rsocket.connection import ACTIONS
from afflux.protocols.rsocket.engine import Engine as RSocket
from afflux.protocols.rsocket.establishment import keepalive_refusal
from afflux.protocols.rsocket.states import ConnectionAction, ConnectionInput, ConnectionState

__all__ = ["Connection"]

_S, _I = ConnectionState, ConnectionInput

_INPUTS: dict[type, ConnectionInput] = {
    Ext: _I.EXT,
    RequestResponse: _I.REQUEST,
    RequestFnf: _I.REQUEST,
    RequestStream: _I.REQUEST,
    RequestSub: _I.REQUEST,
    RequestN: _I.STREAM_FRAME,
    Cancel: _I.STREAM_FRAME,
    Response: _I.STREAM_FRAME,
}
_STREAM_ZERO: dict[type, ConnectionInput] = {
    Setup: _I.SETUP,
    frames.Lease: _I.LEASE,
    Keepalive: _I.KEEPALIVE,
    frames.MetadataPush: _I.METADATA_PUSH,
}
"Frames that belong on stream 0; on another they are ignored (R-26, R-36, D-6)."

_UNDERSTOOD = frozenset(
    (
        "message/x.rsocket.composite-metadata.v0",
        "application/octet-stream",
        "application/json",
        "application/cbor",
        "text/plain",
    )
)
"MIME types that a server without an application's decision says it understands (R-20): afflux has codecs for them."


class Connection(RSocket):
    """The state of one end. Its arguments are those of engine.Engine."""

    _wire: ClassVar[Any] = frames
    _codes: ClassVar[Any] = codes

    __slots__ = ("_dialect", "_own")

    _dialect: Dialect

    def _build(self, mtu: int) -> None:
        self._table = CLIENT if self._client else SERVER
        even = self._client == (self._dialect.client_parity == "even")
        self._out = out = Outbound(mtu, 0 if even else 1, self._dialect)
        self._streams = self._own = Streams(self._client, self.limits, out, self._charge, self._dialect)
        self._in = Inbound(self.limits, self._own, self._frame, first=not self._client)

    # -- one pass -------------------------------------------------------------------------------------------

    def _run(self, work: Callable[..., None], *arguments: Any) -> list[Event]:
        events = super()._run(work, *arguments)
        for event in events:
            if isinstance(event, Ignored):
                event.rule = RULES.get(event.rule, event.rule)
            elif isinstance(event, Failed | Closed) and event.error is not None:
                rule = event.error.rule or ""
                event.error.rule = RULES.get(rule, rule) or None
        if self._own.left:
            ended, self._own.left = self._own.left, []
            text = "the channel ended with this side's completion"
            events[:0] = [Failed(id, Canceled(text, stream=id, rule="R-34")) for id in ended]
        return events

    @property
    def deadline(self) -> float | None:
        """When tick is next wanted: at once when a verb has ended the inbound half of a channel."""
        return self._now if self._own.left and not self.closed else super().deadline

    # -- frames ---------------------------------------------------------------------------------------------

    def _frame(self, block: bytes, start: int, end: int) -> None:
        """Decode one frame and treat it."""
        try:
            frame = self._dialect.decode(block, start, end)
        except UnknownFrame as unknown:
            if self._state is _S.WAIT_FIRST:
                raise Violation("the first frame is not a SETUP", rule="R-15", code=Code.INVALID_SETUP) from None
            if not unknown.ignorable:
                raise
            self._charge(1, unknown.stream, "R-9", unknown.reason)
            return
        except Violation as violation:
            if self._state is _S.WAIT_FIRST:
                raise Violation(violation.reason, rule=violation.rule, code=Code.INVALID_SETUP) from None
            self._charge(10, violation.stream, violation.rule, violation.reason)  # R-6, FG-15, FG-16
            return
        stream: int = frame.stream  # type: ignore[attr-defined]  # every frame has one
        if not frame.OPEN_ENDED and trailing(frame, start, end):
            self._charge(1, stream, "FR-21", "bytes after the end of the frame")
        input = _INPUTS.get(type(frame))
        if input is None:
            input = self._input_of(frame)
            if type(frame) in _STREAM_ZERO and stream and self._state is not _S.WAIT_FIRST:
                self._charge(10, stream, "R-26", f"{frame.NAME} on a stream")
                return
        self._step(input, frame)

    def _input_of(self, frame: Any) -> ConnectionInput:
        """What a frame is to the connection whose type alone does not say so."""
        if isinstance(frame, RequestChannel):
            return _I.REQUEST if self._own.opens(frame) else _I.STREAM_FRAME
        if not isinstance(frame, ErrorFrame):
            return _STREAM_ZERO[type(frame)]
        if frame.stream:
            return _I.STREAM_FRAME
        return _I.ERROR_SETUP if 0 < frame.code <= LAST_SETUP_CODE else _I.ERROR_OTHER

    def _step(self, input: ConnectionInput, argument: Any) -> None:
        step = self._table.steps[self._state][input]
        before, self._state = self._state, step.next
        _ACTIONS[step.action](self, argument)
        if step.action is ConnectionAction.ESTABLISH and before is _S.SETUP_SENT:
            self._step(input, argument)

    # -- establishment --------------------------------------------------------------------------------------

    def _proposal(self, setup: Any) -> Any:
        if setup is None:
            return Setup()
        if not setup.keepalive_ms:
            raise LocalProtocolError("keepalive is above 0", rule="R-24")
        if refusal := keepalive_refusal(setup.keepalive_ms):
            raise LocalProtocolError(refusal.reason, rule=refusal.rule)
        return setup

    def _opening(self, setup: Any) -> bytes:
        return self._dialect.encode_setup(setup)

    def _start(self, setup: Any, now: float) -> None:
        super()._start(setup, now)  # without leases, requests may follow at once (R-17, D-14)
        if not self._lifetime:
            self._lifetime = inf

    def _refusal_of(self, setup: Any) -> Violation | None:
        if setup.stream:
            return Violation("SETUP belongs on stream 0", rule="HS-03", code=Code.INVALID_SETUP)
        if setup.version:
            text = f"version {setup.version} is not spoken here, 0 is"
            return Violation(text, rule="R-19", code=Code.INVALID_SETUP)
        if refusal := keepalive_refusal(setup.keepalive_ms):
            return refusal
        if setup.lease and self._lease_policy is None:
            return Violation("leases are not supported", rule="D-15", code=Code.UNSUPPORTED_SETUP)
        if len(setup.metadata or b"") > self.limits.connection_metadata_bytes:
            return Violation("metadata-too-large", rule="connection_metadata_bytes", code=Code.REJECTED_SETUP)
        if setup.strict and not self._decide and not _understood(setup):
            text = "strict: the MIME types or the payload are not understood"
            return Violation(text, rule="HS-18", code=Code.UNSUPPORTED_SETUP)
        return None

    def _judge_setup(self, setup: Any) -> None:
        super()._judge_setup(setup)
        if not setup.lifetime_ms:
            self._lifetime = self.limits.peer_lifetime_s[1]  # as long as the limits have it

    # -- connection frames ----------------------------------------------------------------------------------

    def _send_keepalive(self, *, respond: bool, data: bytes = b"") -> None:
        self._out.control(Keepalive(respond=respond, data=data).encode(prefixed=True))

    def _pushed(self, frame: Any) -> None:
        if frame.metadata is None:
            self._charge(10, 0, "R-51", "METADATA_PUSH without metadata")
        else:
            super()._pushed(frame)

    def _extension(self, frame: Any) -> None:
        if frame.extended_type in self._extensions:
            self._streams.delivered += len(frame.body)
            self._events.append(Extended(0, frame.extended_type, frame.body))
        elif frame.ignore:
            self._charge(1, 0, "R-9", "an unknown extension")
        else:
            raise Violation(f"extended type {frame.extended_type} is not understood", rule="R-9")

    def _stream_frame(self, frame: Any) -> None:
        _STREAM_FRAMES[type(frame)](self._own, frame)

    # -- endings --------------------------------------------------------------------------------------------

    def _error(self, code: int, text: bytes) -> bytes:
        code = on_wire(code, self._dialect.later_codes)
        return ErrorFrame(stream=0, code=code, data=text).encode(prefixed=True)

    def _drain(self, violation: Violation) -> None:
        self._streams.accepting = False
        self._farewell = violation

    def _finish(self, argument: Any) -> None:
        self._say_error(Code.CONNECTION_ERROR, cast("Violation", self._farewell).reason)
        super()._finish(argument)


def _understood(setup: Setup) -> bool:
    """Whether a server on which no application decides understands a SETUP: nobody there reads its payload."""
    bare = not setup.metadata and not setup.data
    return bare and setup.metadata_mime in _UNDERSTOOD and setup.data_mime in _UNDERSTOOD


_STREAM_FRAMES: dict[type, Callable[[Streams, Any], None]] = {
    Response: Streams.on_response,
    RequestChannel: Streams.on_channel,
    RequestN: Streams.on_request_n,
    Cancel: Streams.on_cancel,
    ErrorFrame: Streams.on_error,
}

_A = ConnectionAction
_ACTIONS: dict[ConnectionAction, Callable[[Any, Any], None]] = {
    **ACTIONS,
    _A.JUDGE_SETUP: Connection._judge_setup,
    _A.PUSH: Connection._pushed,
    _A.STREAM_FRAME: Connection._stream_frame,
    _A.EXTENSION: Connection._extension,
    _A.DRAIN: Connection._drain,
    _A.FINISH: Connection._finish,
}
