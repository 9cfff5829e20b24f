"""One end of a connection: what its frames, its time and its endings do. The contract of an engine is engine.py's.

Rules this module keeps:

1. Good frames before a bad one are delivered first; a broken rule becomes the ERROR frame it asks for and a final
   Closed event.
2. A length is judged as soon as it can be read, before anything is allocated for it.
3. Nothing is kept or served before SETUP is accepted (R-11, HS-16).
4. Ignoring a frame is charged (DR-1): the glitch bucket bounds what it can cost.
5. A session that can be resumed ends with its last word or its time, never with its transport (section 3.1).
"""

# long: one method for each action of the connection tables; what can stand on its own is in establishment.py,
# inbound.py, lease.py, outbound.py, resume.py and streams.py.

from __future__ import annotations

from collections.abc import Callable, Container
from copy import copy
from hashlib import sha256
from typing import Any, ClassVar, Literal, cast

from afflux.core.bucket import Bucket, spend
from afflux.core.errors import (
    ConnectionClosed,
    Consequence,
    Error,
    LocalProtocolError,
    RemoteProtocolError,
    SetupRefused,
    Violation,
)
from afflux.core.events import (
    Closed,
    Draining,
    Established,
    Event,
    Extended,
    Ignored,
    Leased,
    Pushed,
    Resumed,
    Resuming,
    Suspended,
)
from afflux.core.frame import trailing
from afflux.core.limits import Limits, explained
from afflux.protocols.rsocket import codes, frames
from afflux.protocols.rsocket.codes import Code, cut
from afflux.protocols.rsocket.establishment import keepalive_bucket, lifetime_of, proposal, refusal_of
from afflux.protocols.rsocket.frames import ErrorFrame, Keepalive, Resume, ResumeOk, Setup, UnknownFrame
from afflux.protocols.rsocket.inbound import Inbound
from afflux.protocols.rsocket.lease import UNMETERED, Granted, Held, LeasePolicy
from afflux.protocols.rsocket.outbound import HEADER, Outbound
from afflux.protocols.rsocket.resume import Retained, Sessions
from afflux.protocols.rsocket.states import CLIENT, SERVER, ConnectionAction, ConnectionInput, ConnectionState
from afflux.protocols.rsocket.streams import Streams

__all__ = ["ACTIONS", "DEFAULT_MTU", "Connection"]

DEFAULT_MTU = 0x20000
"Bytes a frame may have before its payload is cut: 128 KiB, the quantum of fairness between streams."
_MIN_MTU = 64  # I-2
_PROGRESS = 0x400
"""Bytes that a position has to move on for its keepalive to cost nothing: a peer whose store fills says how far it got
much more often than it says that it is alive (R-51)."""
_STEP_OF_TIME = 1.0
"A look that comes so many seconds after the peer's lifetime was not late because of the peer (TM-03)."

_S, _I = ConnectionState, ConnectionInput
# Members of an enum are slow to look up: those that every pass needs are looked up once.
_DRAINING = ConnectionState.DRAINING
_UNDECIDED = (ConnectionState.WAIT_FIRST, ConnectionState.DECIDING, ConnectionState.RESUMING)
_LOSABLE = (_S.SETUP_SENT, _S.OPEN, _S.DRAINING, _S.RESUME_SENT)
"A session in one of these outlives its transport."

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
class Connection:
    """The state of one end. Its arguments are those of engine.Engine.

    A dialect (protocols/reactivesocket) inherits from it. It has frames and codes of its own, puts other parts in
    (``_build``), and says what it judges in another way.
    """

    _wire: ClassVar[Any] = frames
    "The module of the frames that this side says."
    _codes: ClassVar[Any] = codes
    "The module of the error codes."

    # Slots, here and in what it is made of: a server has 10,000 of them, most of them idle (docs/how-to/many.md).
    __slots__ = (
        "_accepted",
        "_anew",
        "_asked",
        "_away",
        "_born",
        "_client",
        "_decide",
        "_echoes",
        "_events",
        "_extensions",
        "_farewell",
        "_full",
        "_glitches",
        "_heard",
        "_in",
        "_interval",
        "_keepalives",
        "_last_resume",
        "_lease_frames",
        "_lease_policy",
        "_lifetime",
        "_most_queued",
        "_next_keepalive",
        "_now",
        "_out",
        "_peer_draining",
        "_resumes",
        "_retained",
        "_returns",
        "_sessions",
        "_spared",
        "_state",
        "_store_full",
        "_streams",
        "_table",
        "_told",
        "_unasked",
        "begins_anew",
        "limits",
        "setup",
        "weight",
    )

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
        extensions: Container[int] = (),
    ) -> None:
        if mtu < _MIN_MTU:
            raise LocalProtocolError(f"an MTU is {_MIN_MTU} bytes or more, not {mtu}", rule="FG-22")
        self.limits = limits or Limits.server()
        self._client = role == "client"
        self._build(max(_MIN_MTU, min(mtu, self.limits.frame_bytes)))
        self._state = self._table.start
        self._decide = decide
        self._lease_policy = lease
        self._extensions = extensions
        self._born = self._now = self._heard = now
        self._events: list[Event] = []
        # Buckets are full at first, so each can be made when something is first taken from it.
        self._glitches: Bucket | None = None
        self._keepalives: Bucket | None = None
        self._unasked: Bucket | None = None
        "Keepalives that want no answer."
        self._told = 0
        "The last position of the peer's that came alone, in a keepalive without an answer."
        self._lease_frames: Bucket | None = None
        self._spared: float | None = None
        "What ``_heard`` was set to when a silence was this side's own fault (TM-03)."
        self._echoes = 0
        self._full = False
        "At the last look this side could take no more input: the peer's time stands still meanwhile."
        self._most_queued = self.limits.outbound_high_bytes + self.limits.payload_bytes
        self._interval = self._lifetime = 0.0
        self._next_keepalive: float | None = None
        self._accepted = False
        "Established has been said."
        self._farewell: Violation | None = None
        "This side drains, with these words."
        self._peer_draining = False
        self._prepare_resumption(sessions)
        self.setup: Setup | None = None
        "The SETUP of this connection, sent or received; None at a server before it came."
        if self._client:
            self._start(setup, now)

    def _build(self, mtu: int) -> None:
        """Make the parts."""
        self._table = CLIENT if self._client else SERVER
        self._out = Outbound(mtu)
        self._streams = Streams(self._client, self.limits, self._out, self._charge)
        self._in = Inbound(self.limits, self._streams, self._frame, first=not self._client)

    def _prepare_resumption(self, sessions: Sessions | None) -> None:
        self._sessions = sessions
        self._retained: Retained | None = None
        "What was sent and may have to be sent again; None when the session can not be resumed."
        self._store_full: float | None = None
        "Since when nothing more can be retained, by the clock of tick."
        self.weight: int | None = None
        "What the sessions' books say that it holds; None when it is not in them."
        self._away: float | None = None
        "Since when there is no transport, or none that has been resumed."
        self._asked = 0.0
        "When RESUME was sent."
        self.begins_anew = True
        """A client whose server does not know the session, and that has heard nothing from it, begins anew. False for a
        session that is kept in a file."""
        self._anew = False
        "It does so on the next transport."
        self._returns = False
        "It has done so, and nothing was heard of it yet."
        self._resumes: Bucket | None = None
        self._last_resume: float | None = None

    # -- one pass -------------------------------------------------------------------------------------------

    def _run(self, work: Callable[..., None], *arguments: Any) -> list[Event]:
        """Do one piece of work and hand over its events; a violation ends the connection (never raises)."""
        events: list[Event] = []
        self._events = self._streams.events = events
        self._streams.now = self._now
        try:
            work(*arguments)
        except Violation as violation:
            if self._state is _S.RESUME_SENT:
                self._resume_broken(violation)
            else:
                self._break_off(violation)
        if self._state is _DRAINING and not self._streams.live:
            self._step(_I.LAST_STREAM_ENDED, None)
        self._weigh()
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
                if input is _I.ERROR_RESUME and self._state is _S.RESUME_SENT and self._unheard:
                    input = _I.ERROR_UNHEARD
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
        if frame.code == Code.REJECTED_RESUME:
            return _I.ERROR_RESUME
        if Code.INVALID_SETUP <= frame.code < Code.REJECTED_RESUME:
            return _I.ERROR_SETUP  # the reserved codes, 0 and 0xFFFFFFFF, are "another code" (3.1)
        return _I.ERROR_CLOSE if frame.code == Code.CONNECTION_CLOSE else _I.ERROR_OTHER

    def _step(self, input: ConnectionInput, argument: Any) -> None:
        step = self._table.steps[self._state][input]
        before, self._state = self._state, step.next
        ACTIONS[step.action](self, argument)
        if step.action == ConnectionAction.ESTABLISH and before == _S.SETUP_SENT:
            self._step(input, argument)

    def _charge(self, price: int, stream: int, rule: str, reason: str) -> None:
        """Drop a frame and take its price; an empty bucket is a connection error."""
        self._events.append(Ignored(stream, rule, reason, price))
        self._glitches = spend(self._glitches, self.limits, "glitch_bucket", price, self._now)

    # -- establishment --------------------------------------------------------------------------------------

    def _start(self, setup: Setup | None, now: float) -> None:
        setup = self.setup = self._proposal(setup)
        self._state = self._table.step(self._state, _I.APP_START).next  # requests may follow at once
        try:
            self._out.control(self._opening(setup))
        except Violation as violation:
            raise LocalProtocolError(violation.reason, stream=0, rule=violation.rule) from None
        self._interval = setup.keepalive_ms / 1000
        self._lifetime = setup.lifetime_ms / 1000
        self._next_keepalive = now + self._interval
        self._agree(setup)

    def _proposal(self, setup: Setup | None) -> Setup:
        """What a client asks for. Raises LocalProtocolError for what no server accepts."""
        return proposal(setup, self.limits)

    def _opening(self, setup: Setup) -> bytes:
        """The first frame of a client."""
        return setup.encode(prefixed=True)

    def _refusal_of(self, setup: Setup) -> Violation | None:
        """Why a server can not accept it, or None."""
        return refusal_of(setup, self.limits, leases=self._lease_policy is not None, sessions=self._sessions)

    def _agree(self, setup: Setup) -> None:
        """What both sides do from now on: leases (R-13), resumption (R-44)."""
        if setup.lease:
            self._streams.held_lease = Held(self.limits)
            self._streams.granted_lease = Granted(self._lease_policy or UNMETERED)
        if setup.token is not None:
            self._retained = self._out.retained = self._in.retained = Retained(self.limits)

    def _judge_setup(self, setup: Setup) -> None:
        """Accept or refuse a SETUP (section 3.2)."""
        refusal = self._refusal_of(setup)
        if refusal is not None:
            raise refusal
        self.setup = setup
        self._lifetime = lifetime_of(setup, self.limits)
        self._agree(setup)
        if self._retained is not None and self._sessions is not None:
            self._sessions.add(self)
        self._in.first = False
        self._in.held = self._decide
        self._events.append(Established(setup))
        if not self._decide:
            self._step(_I.APP_ACCEPT, None)

    def _accept(self) -> None:
        self._step(_I.APP_ACCEPT, None)
        if not self._in.over:
            self._in.resume(self._now)

    def _check_deciding(self, *states: ConnectionState) -> None:
        states += (_S.DECIDING, _S.CLOSED)
        if self._state not in states:
            raise LocalProtocolError("there is nothing to decide: no SETUP waits for it", rule="3.2")

    def _establish(self, argument: Any) -> None:
        self._accepted = True
        self._in.established = True
        self._streams.accepting = True
        if self._client:
            self._events.append(Established(None))
        if self._returns:
            self._returns = False
            self._events.append(Resumed())
        self._send_lease()

    def _refuse_first(self, frame: Any) -> None:
        raise Violation("the first frame is not a SETUP", rule="R-11", code=Code.INVALID_SETUP)

    def _refuse_setup(self, violation: Violation) -> None:
        refused = violation.consequence is Consequence.REFUSE_SETUP
        code = violation.code if refused else Code.REJECTED_SETUP
        raise Violation(violation.reason, rule="R-14", code=code, consequence=Consequence.REFUSE_SETUP)

    def _setup_failed(self, frame: ErrorFrame) -> None:
        error = self._codes.error_for(frame.code, frame.data, 0, self.limits)
        refused = SetupRefused(error.message, code=frame.code, stream=0, rule="R-14")
        # nothing is served before SETUP is accepted. Another code may end a connection that has been.
        refused.may_have_been_processed = not isinstance(error, SetupRefused)
        self._end(refused)

    # -- connection frames ----------------------------------------------------------------------------------

    def _echo(self, frame: Keepalive) -> None:
        if len(frame.data) > self.limits.connection_metadata_bytes:
            raise Violation("metadata-too-large", rule="connection_metadata_bytes")
        progress = self._in.retained is not None and frame.position >= self._told + _PROGRESS
        if self._retained is None:
            self._streams.rest(self._now, self._lifetime)  # with resumption much may come late
        else:
            if not self._retained.told(frame.position):
                self._charge(10, 0, "KA-07", "a position that goes backwards")
                return
            if self._retained.room > 0:
                self._store_full = None
        if not frame.respond:
            if progress:
                self._told = frame.position
            elif not self._alive_again("_unasked"):
                self._charge(1, 0, "keepalive_rate", "more keepalives than were announced")
            return
        if not self._alive_again("_keepalives"):
            raise Violation("keepalive-flood", rule="keepalive_rate")
        self._echoes += 1
        self._send_keepalive(respond=False, data=frame.data)

    def _alive_again(self, name: Literal["_keepalives", "_unasked"]) -> bool:
        """A keepalive came: whether it is within the rate."""
        bucket: Bucket | None = getattr(self, name)
        if bucket is None:
            bucket = keepalive_bucket(self.setup, self._lifetime, self.limits)
            setattr(self, name, bucket)
        return bucket.take(1, self._now)

    def _send_keepalive(self, *, respond: bool, data: bytes = b"") -> None:
        position, retained = 0, self._in.retained
        if retained is not None:
            position = retained.reported = retained.received
        frame = Keepalive(stream=0, respond=respond, position=position, data=data)
        self._out.control(frame.encode(prefixed=True))

    def _report(self) -> None:
        """Tell the peer how far this side got, when it would have to stop otherwise (R-51)."""
        retained = self._in.retained
        if retained is not None and retained.report_due and self._state in (_S.OPEN, _S.DRAINING):
            self._send_keepalive(respond=False)

    def _pushed(self, frame: frames.MetadataPush) -> None:
        if len(frame.metadata) > self.limits.connection_metadata_bytes:
            self._charge(10, 0, "connection_metadata_bytes", "metadata-too-large")
            return
        self._streams.delivered += len(frame.metadata)
        self._events.append(Pushed(frame.metadata))

    def _extension(self, frame: frames.Ext) -> None:
        if frame.extended_type == 0 or not (frame.ignore or frame.extended_type in self._extensions):
            raise Violation(f"extended type {frame.extended_type} is not understood", rule="R-5")
        if frame.extended_type not in self._extensions:
            self._charge(1, frame.stream, "R-5", "an unknown extension")
            return
        self._streams.delivered += len(frame.body)
        self._events.append(Extended(frame.stream, frame.extended_type, frame.body))

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

    # -- leases ---------------------------------------------------------------------------------------------

    def _leased(self, frame: frames.Lease) -> None:
        held = self._streams.held_lease
        if self._lease_frames is None:
            self._lease_frames = Bucket(self.limits.lease_frames_per_s, self.limits.lease_frames_per_s)
        if held is None:
            self._ignore(frame)  # LE-05
        elif not self._lease_frames.take(1, self._now):
            self._charge(1, 0, "lease_frames_per_s", "more LEASE frames than anyone needs")  # LE-06
        else:
            held.replace(frame.ttl_ms, frame.requests, self._now)
            self._events.append(Leased(frame.requests, frame.ttl_ms / 1000))

    def _send_lease(self) -> None:
        """Grant what the policy says (R-13)."""
        granted = self._streams.granted_lease
        if granted is None:
            return
        try:
            lease = granted.next(self._now)
            frame = self._wire.Lease(stream=0, ttl_ms=lease.ttl_ms, requests=lease.requests).encode(prefixed=True)
        except Exception as error:
            failure = LocalProtocolError(f"the lease policy failed: {error!r}", stream=0, rule="R-13")
            failure.__cause__ = error
            self._end(failure, self._wire.CONNECTION_ERROR, b"closed")
        else:
            self._out.control(frame)

    # -- resumption -----------------------------------------------------------------------------------------

    @property
    def digest(self) -> bytes:
        """What the session is known by: no one learns its token from it."""
        token = None if self.setup is None else self.setup.token
        return sha256(token or b"").digest()

    @property
    def resumable(self) -> bool:
        """Whether the session would outlive its transport."""
        return self._retained is not None and self._state in _LOSABLE

    @property
    def suspended(self) -> bool:
        """Whether the session waits for a transport."""
        return self._state is _S.SUSPENDED

    @property
    def session_bytes(self) -> int:
        """Bytes that the session keeps for its peer, and of its peer's unfinished payloads."""
        kept = 0 if self._retained is None else self._retained.size
        return kept + self._out.size + self._streams.reassembly.size

    def _weigh(self) -> None:
        """The books of the sessions follow what this one holds."""
        if self._sessions is not None:
            self._sessions.weigh(self)

    def _lose_transport(self, otherwise: ConnectionInput) -> None:
        """The transport is gone: the session waits, if it can."""
        self._step(_I.SUSPEND if self.resumable else otherwise, None)

    def _suspend(self, frame: ErrorFrame | None) -> None:
        if self._away is None:
            self._away = self._now
        self._next_keepalive = None
        self._in.established = False
        self._in.close()
        self._out.suspend()
        self._store_full = None
        for lease in (self._streams.held_lease, self._streams.granted_lease):
            if lease is not None:
                lease.end()
        error: Error = ConnectionClosed("the connection was lost", rule="3.1")
        if frame is not None:
            error = self._codes.error_for(frame.code, frame.data, 0, self.limits)
        self._events.append(Suspended(error))

    def _send_resume(self, argument: Any) -> None:
        # Only a client that has sent a token, and still retains what it sends, is ever suspended.
        setup, retained = cast("Setup", self.setup), cast("Retained", self._retained)
        self._asked = self._now
        self._in.reopen()
        self._out.suspend()  # the last words for the old transport, if nobody took them
        frame = Resume(
            stream=0,
            token=setup.token or b"",
            last_received_server_position=retained.received,
            first_available_client_position=retained.first,
        )
        self._out.control(frame.encode(prefixed=True))

    @property
    def _unheard(self) -> bool:
        """Nothing was ever heard from the server, so SETUP may not have arrived; and there is time to begin anew."""
        early = self._now < self._born + self.limits.resume_s
        return self.begins_anew and early and not self._accepted and self._farewell is None

    def _forget_session(self, frame: ErrorFrame) -> None:
        """The server has no such session. It is not known whether it never had one or has forgotten it: what was sent
        fails, because it may have been processed, and is not repeated. What was not sent yet goes to a new session."""
        setup, retained = cast("Setup", self.setup), cast("Retained", self._retained)
        text = "the server does not know the session, and it never answered: it may have processed the request"
        self._streams.fail_sent(retained.streams(), ConnectionClosed(text, code=frame.code, rule="RE-24"))
        setup = self.setup = copy(setup)
        setup.token = sha256(b"anew" + (setup.token or b"")).digest()  # as hard to guess as the one before
        self._agree(setup)
        self._anew = True
        self._suspend(frame)

    def _send_setup(self, argument: Any) -> None:
        """Begin anew: a session that nothing was heard of is over, and this is another one (R-11)."""
        self._away = self._store_full = None
        self._anew, self._returns = False, True
        self._in.reopen()
        self._out.suspend()
        self._out.control(self._opening(cast("Setup", self.setup)))
        self._out.resume()
        self._next_keepalive = self._now + self._interval

    def _resumed(self, frame: ResumeOk) -> None:
        self._go_on(frame.last_received_client_position)

    def _resume_broken(self, cause: Any) -> None:
        """Something else than an answer to RESUME: say so, and try once more."""
        self._state = _S.SUSPENDED
        self._suspend(None)
        text = cause.reason if isinstance(cause, Violation) else "only RESUME_OK may come now"
        self._say_error(Code.CONNECTION_ERROR, text)

    def _judge_resume(self, frame: Resume) -> None:
        """A newcomer's first words; its session's owner decides about the positions (R-46)."""
        if frame.stream:
            raise Violation("RESUME belongs on stream 0", rule="HS-03", code=Code.INVALID_SETUP)
        if self._sessions is None:
            raise Violation("resumption is not supported", rule="RE-01", code=Code.REJECTED_RESUME)
        if (frame.major, frame.minor) != (1, 0):
            raise Violation("a session keeps its version, 1.0", rule="R-52", code=Code.REJECTED_RESUME)
        session = self._sessions.find(frame.token)
        if session is None and not self._sessions.asks:
            raise Violation("there is no such session", rule="RE-02", code=Code.REJECTED_RESUME)
        self._in.held = True
        self._events.append(Resuming(session, frame))

    def _refuse_resume(self, violation: Violation) -> None:
        raise Violation(violation.reason, rule="R-46", code=Code.REJECTED_RESUME)

    def _hand_over(self, argument: Any) -> None:
        """The transport, and what came on it, are the session's from now on."""

    def _resume_refusal(self, request: Resume) -> str:
        """Why the session can not go on from what a newcomer says; "" when it can."""
        retained, now = self._retained, self._now
        if retained is None or self._client or self._state not in (_S.OPEN, _S.DRAINING, _S.SUSPENDED):
            return "there is no such session"
        if not retained.holds(request.last_received_server_position):
            return f"position {request.last_received_server_position} is not retained here"  # RE-05
        if request.first_available_client_position > retained.received:
            return f"only {retained.received} bytes were received here"  # RE-07
        # Last: what is refused for its positions does not make the owner's own attempt one too many.
        most, gap = self.limits.resume_rate
        if self._resumes is None:
            self._resumes = Bucket(most, most / 60)
        early = self._last_resume is not None and now < self._last_resume + gap
        if early or not self._resumes.take(1, now):
            return "resumed too often"  # RE-19
        self._last_resume = now
        return ""

    def _send_resume_ok(self, request: Resume) -> None:
        retained = self._retained
        position = 0 if retained is None else retained.received
        self._out.control(ResumeOk(stream=0, last_received_client_position=position).encode(prefixed=True))
        self._go_on(request.last_received_server_position)

    def _go_on(self, position: int) -> None:
        """The peer has received up to ``position``: repeat the rest (R-50), and go on."""
        retained = self._retained
        if retained is None or not retained.holds(position):
            raise Violation(f"position {position} is not retained here", rule="RE-23")
        retained.told(position)
        retained.reported = retained.received
        self._away = self._store_full = None
        self._returns = False
        # leasing begins anew, so the first LEASE is none too many, however often it has begun
        self._lease_frames = None
        self._hold(self._now)
        self._in.reopen()
        self._in.established = True
        self._out.resume()
        if self._client:
            self._next_keepalive = self._now + self._interval
        if not (self._accepted or self._farewell):  # the answer to SETUP was lost with the first transport
            self._accepted = self._streams.accepting = True
            self._events.append(Established(None))
        self._events.append(Resumed())
        if self._farewell is not None:
            self._step(_I.APP_DRAIN, self._farewell)
        elif self._peer_draining:
            self._state = _DRAINING
        self._send_lease()

    def _watch_store(self, now: float) -> None:
        """A store that stays full for too long is given up: the session can not be resumed any more, the connection
        goes on (RE-17). The peer is still told how far this side gets, or its own store would fill."""
        retained = self._retained
        if retained is None or retained.room > 0:
            self._store_full = None
        elif self._store_full is None:
            self._store_full = now
        elif now >= self._store_full + self.limits.write_stall_s:
            retained.trim(retained.sent)
            self._retained = self._out.retained = self._store_full = None
            if self._sessions is not None:
                self._sessions.remove(self)

    # -- liveness -------------------------------------------------------------------------------------------

    def _hold(self, now: float) -> None:
        """This side did not read: what the peer did not say until ``now`` is not held against it."""
        self._heard = now
        self._in.hold(now)
        self._streams.reassembly.hold(now)

    def _due(self) -> float:
        """When tick is wanted, in a state that is not CLOSED."""
        if self._state in _UNDECIDED:
            return self._born + self.limits.handshake_s
        if self._away is not None:
            over = self._away + self.limits.resume_s
            return over if self._state is _S.SUSPENDED else min(over, self._asked + self.limits.handshake_s)
        times = [self._heard + self._lifetime]
        if self._next_keepalive is not None:
            times.append(self._next_keepalive)
        if self._in.incomplete_since is not None:
            times.append(self._in.incomplete_since + self.limits.frame_s)
        if oldest := self._streams.reassembly.oldest():
            times.append(oldest[1] + self.limits.reassembly_s)
        granted = self._streams.granted_lease
        if granted is not None and granted.until is not None:
            times.append(granted.until)
        if self._retained is not None and self._retained.room <= 0:
            full = self._store_full
            times.append(self._now if full is None else full + self.limits.write_stall_s)
        return min(times)

    def _tick(self, now: float) -> None:
        if self._state in _UNDECIDED:
            self._tick_undecided(now)
        elif self._away is not None:
            self._tick_away(self._away, now)
        elif now > self._heard + self._lifetime + _STEP_OF_TIME and self._heard != self._spared:
            # It was this side that slept: ask once more. But once: a side that is always late must end as well.
            self._heard = self._spared = now + self.limits.flush_s - self._lifetime
            self._tick_open(now)
        elif now >= self._heard + self._lifetime:
            self._lose_transport(_I.SILENT)
        else:
            self._tick_open(now)

    def _tick_undecided(self, now: float) -> None:
        if now < self._born + self.limits.handshake_s:
            return
        if self._state == _S.DECIDING:
            raise Violation("handshake-timeout", rule="handshake_s", code=Code.REJECTED_SETUP)
        self._step(_I.SILENT, None)

    def _tick_away(self, since: float, now: float) -> None:
        if now >= since + self.limits.resume_s:
            self._step(_I.SESSION_OVER, None)
        elif self._state is _S.RESUME_SENT and now >= self._asked + self.limits.handshake_s:
            self._step(_I.SILENT, None)

    def _tick_open(self, now: float) -> None:
        if self._in.incomplete_since is not None and now >= self._in.incomplete_since + self.limits.frame_s:
            if not self.resumable:
                raise Violation("frame-timeout", rule="frame_s")
            self._lose_transport(_I.SILENT)  # a link may fall silent inside a frame
            return
        if self._next_keepalive is not None and now >= self._next_keepalive:
            self._send_keepalive(respond=True)
            self._next_keepalive = now + self._interval
        granted = self._streams.granted_lease
        if granted is not None and granted.until is not None and now >= granted.until:
            self._send_lease()
        self._watch_store(now)
        self._streams.expire(now)

    def _expire(self, argument: Any) -> None:
        text = f"keepalive-timeout: nothing heard for {self._lifetime:g} s"
        self._say_error(self._wire.CONNECTION_ERROR, "keepalive-timeout")
        self._end(ConnectionClosed(text, rule="R-22"))

    # -- endings --------------------------------------------------------------------------------------------

    def _say_error(self, code: int, text: str) -> None:
        data = cut(text, self.limits.error_text_bytes[0]).encode()
        self._out.control(self._error(code, data))

    def _error(self, code: int, text: bytes) -> bytes:
        """The frame that ends the connection."""
        frame: bytes = self._wire.ErrorFrame(stream=0, code=code, data=text).encode(prefixed=True)
        return frame

    def _lose(self, argument: Any) -> None:
        text = "the peer closed the connection"
        if self._away is not None:
            text = f"the session was not resumed within {self.limits.resume_s:g} s"
        self._end(ConnectionClosed(text, rule="3.1"))

    def _fail(self, frame: ErrorFrame) -> None:
        self._end(self._codes.error_for(frame.code, frame.data, 0, self.limits))

    def _abort(self, argument: Any) -> None:
        """This side ends it: by the application's wish, or because RESUME came in an open connection (R-48)."""
        if isinstance(argument, Violation):
            text = cut(argument.reason, self.limits.error_text_bytes[0]).encode()
            self._end(ConnectionClosed("this side closed the connection"), self._wire.CONNECTION_ERROR, text)
            return
        raise Violation("RESUME after the connection was established", rule="R-48")

    def _peer_drains(self, frame: ErrorFrame) -> None:
        self._streams.accepting = False
        self._peer_draining = True
        self._events.append(Draining(self._codes.error_for(frame.code, frame.data, 0, self.limits).message))

    def _drain(self, violation: Violation) -> None:
        self._streams.accepting = False
        violation = self._farewell = self._farewell or violation  # the first words count, here as in DRAINING
        if self._away is None:
            text = cut(violation.reason, self.limits.error_text_bytes[0]).encode()
            self._out.farewell(ErrorFrame(stream=0, code=Code.CONNECTION_CLOSE, data=text).encode(prefixed=True))

    def _finish(self, argument: Any) -> None:
        self._over()
        self._events.append(Closed(None))

    def _break_off(self, violation: Violation) -> None:
        """The peer broke a rule: say which, close."""
        code = violation.code or self._wire.CONNECTION_ERROR
        error: Error = RemoteProtocolError(violation.reason, code=code, stream=0, rule=violation.rule)
        if violation.consequence is Consequence.REFUSE_SETUP:
            error = ConnectionClosed(violation.reason, code=code, rule=violation.rule)
        text = explained(self.limits, violation.reason)
        self._end(error, code, cut(text, self.limits.error_text_bytes[0]).encode())

    def _end(self, error: Error, code: int | None = None, text: bytes = b"") -> None:
        """Fail every stream once, say why if there is something to say, and close."""
        self._state = _S.CLOSED
        self._over()
        self._streams.fail_all(error)
        if code is not None:
            self._out.control(self._error(code, text))
        self._events.append(Closed(error))

    def _over(self) -> None:
        self._next_keepalive = None
        self._in.end()
        self._streams.end()
        self._out.retained = None  # nothing will go again: a full store does not keep the last words back
        if self._sessions is not None:
            self._sessions.remove(self)


_STREAM_FRAMES: dict[type, Callable[[Streams, Any], None]] = {
    frames.PayloadFrame: Streams.on_payload,
    frames.RequestN: Streams.on_request_n,
    frames.Cancel: Streams.on_cancel,
    frames.ErrorFrame: Streams.on_error,
}

_D = ConnectionAction
ACTIONS: dict[ConnectionAction, Callable[[Connection, Any], None]] = {
    _D.IGNORE: Connection._ignore,
    _D.JUDGE_SETUP: Connection._judge_setup,
    _D.ESTABLISH: Connection._establish,
    _D.REFUSE_FIRST: Connection._refuse_first,
    _D.REFUSE_RESUME: Connection._refuse_resume,
    _D.REFUSE_SETUP: Connection._refuse_setup,
    _D.SETUP_FAILED: Connection._setup_failed,
    _D.FAIL: Connection._fail,
    _D.ABORT: Connection._abort,
    _D.ECHO: Connection._echo,
    _D.PUSH: Connection._pushed,
    _D.PEER_DRAINS: Connection._peer_drains,
    _D.DRAIN: Connection._drain,
    _D.FINISH: Connection._finish,
    _D.REQUEST: Connection._request,
    _D.REJECT: Connection._reject,
    _D.STREAM_FRAME: Connection._stream_frame,
    _D.EXTENSION: Connection._extension,
    _D.EXPIRE: Connection._expire,
    _D.LOSE: Connection._lose,
    _D.NOTHING: Connection._nothing,
    _D.LEASE: Connection._leased,
    _D.SUSPEND: Connection._suspend,
    _D.SEND_SETUP: Connection._send_setup,
    _D.FORGET_SESSION: Connection._forget_session,
    _D.SEND_RESUME: Connection._send_resume,
    _D.RESUMED: Connection._resumed,
    _D.RESUME_BROKEN: Connection._resume_broken,
    _D.JUDGE_RESUME: Connection._judge_resume,
    _D.SEND_RESUME_OK: Connection._send_resume_ok,
    _D.HAND_OVER: Connection._hand_over,
}
