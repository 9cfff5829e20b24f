"""One end of a connection: what its messages, its time and its endings do. The contract of an engine is engine.py's.

1. Good messages before a bad one are delivered first; a broken rule becomes Error with a detail, and a final Closed.
2. Nothing follows Shutdown or Error from their sender (R-7): what was queued goes before them, or not at all.
3. The peer's time stands still while this side does not read.
"""

# long: one method for each action of the connection tables.

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any, Literal

from afflux.core.bucket import Bucket, spend
from afflux.core.errors import ConnectionClosed, Error, LocalProtocolError, RemoteProtocolError, Violation
from afflux.core.events import Closed, Draining, Established, Event, Ignored
from afflux.core.limits import Limits, explained
from afflux.protocols.jmux import frames
from afflux.protocols.jmux.client import ClientSessions
from afflux.protocols.jmux.errors import detail_of, encoded, violation
from afflux.protocols.jmux.inbound import Inbound
from afflux.protocols.jmux.outbound import INFINITE
from afflux.protocols.jmux.server import ServerSessions
from afflux.protocols.jmux.states import CLIENT, SERVER, ConnectionAction, ConnectionInput, ConnectionState

__all__ = ["DEFAULT_FRAGMENT", "Connection"]

DEFAULT_FRAGMENT = 1024
"The most bytes of one Data message that this side sends (R-41)."
_LARGEST_FRAGMENT = 0xFFFF

_S, _I = ConnectionState, ConnectionInput
_OPEN, _DRAINING, _HALF_CLOSED, _CLOSED = _S.OPEN, _S.DRAINING, _S.HALF_CLOSED, _S.CLOSED
_ENDING = (_DRAINING, _HALF_CLOSED)
_SPEAKING = (_OPEN, _DRAINING)
_STEP_OF_TIME = 1.0
"A look that comes so many seconds late was not late because of the peer (TM-03)."


# long: see the top of the file
class Connection:
    """The state of one end. Its arguments are those of engine.Engine."""

    __slots__ = (
        "_born",
        "_client",
        "_cookie",
        "_events",
        "_full",
        "_glitches",
        "_heard",
        "_idle_since",
        "_in",
        "_interval",
        "_leaving",
        "_noop_data",
        "_now",
        "_out",
        "_pinged",
        "_pings",
        "_reason",
        "_sessions",
        "_spared",
        "_state",
        "_table",
        "header",
        "limits",
    )

    _sessions: ClientSessions | ServerSessions

    def __init__(
        self,
        role: Literal["client", "server"],
        *,
        limits: Limits | None = None,
        now: float = 0.0,
        sessions: bool = False,
        fragment: int = DEFAULT_FRAGMENT,
        max_wait_for_id: float = 0.0,
        auto_ack: bool = True,
        ping_interval: float | None = None,
        noop_data: bool = False,
        lenient_partial: bool = False,
        max_session_id: Literal[127, 255] = 127,
    ) -> None:
        if not 0 < fragment <= _LARGEST_FRAGMENT:
            raise LocalProtocolError(f"a fragment is 1 to {_LARGEST_FRAGMENT} bytes, not {fragment}", rule="R-41")
        self.limits = limits or Limits.server()
        self._client = role == "client"
        self._table = CLIENT if self._client else SERVER
        self._state = self._table.start
        largest = 255 if max_session_id == 255 else 127
        if self._client:
            self._sessions = ClientSessions(self.limits, largest, fragment, self._charge, max_wait_for_id, auto_ack)
        else:
            self._sessions = ServerSessions(self.limits, largest, fragment, self._charge, not sessions)
        self._out = self._sessions.out
        self._in = Inbound(not self._client, self._sessions, self._message, largest, lenient_partial)
        self._born = self._now = self._heard = self._idle_since = now
        self._sessions.now = now
        self._events: list[Any] = []  # those of core.events, and of events.py here
        self._glitches: Bucket | None = None
        self._pings: Bucket | None = None
        self._interval = self.limits.keepalive_s if ping_interval is None else ping_interval
        self._cookie = 0
        self._pinged: float | None = None
        self._spared: float | None = None
        "What ``_pinged`` was set to when a silence was this side's own fault (TM-03)."
        "When the Ping was sent that has not been answered."
        self._noop_data = noop_data
        self._full = False
        "At the last look this side could take no more input: the peer's time stands still meanwhile."
        self._reason = ""
        self._leaving = False
        "A client that drains, and has not heard the server's header."
        self.header: frames.ConnectionHeader | None = None
        "The peer's header, or None before it came."
        if self._client:
            self._step(_I.APP_START, 0, b"")

    # -- one pass -------------------------------------------------------------------------------------------

    def _run(self, work: Callable[..., None], *arguments: Any) -> list[Event]:
        """Do one piece of work and hand over its events; a violation ends the connection (never raises)."""
        events: list[Any] = []
        sessions = self._sessions
        self._events = sessions.events = events
        sessions.at(self._now)
        busy = sessions.live
        try:
            work(*arguments)
        except Violation as broken:
            self._break_off(broken)
        if self._state in _ENDING and sessions.idle:
            self._step(_I.SESSIONS_ENDED, 0, b"")
        sessions.at(self._now)  # what has begun in this pass has begun now
        if busy or sessions.live:
            self._idle_since = self._now
        self._events = sessions.events = []  # what was delivered is not kept alive
        return events

    def _message(self, input: ConnectionInput, value: int, data: bytes) -> None:
        """The header, or a message that is not about a session."""
        if input is _I.PING_ACK and (self._pinged is None or value != self._cookie):
            raise violation(f"PingAck {value} without a Ping", "R-14")
        self._step(input, value, data)

    def _step(self, input: ConnectionInput, value: int, data: bytes) -> None:
        step = self._table.steps[self._state][input]
        self._state = step.next
        _ACTIONS[step.action](self, value, data)

    def _charge(self, price: int, stream: int, rule: str, reason: str) -> None:
        """Take the price of something that was dropped; an empty bucket ends the connection."""
        self._events.append(Ignored(stream, rule, reason, price))
        self._glitches = spend(self._glitches, self.limits, "glitch_bucket", price, self._now)

    # -- establishment --------------------------------------------------------------------------------------

    def _send_header(self, value: int, data: bytes) -> None:
        """R-1, R-2: the first words, with the ration (R-5)."""
        kind = frames.ClientConnectionHeader if self._client else frames.ServerConnectionHeader
        ration = self._sessions.rations.initial // frames.STEPS_256
        self._out.control(kind(initial_ration=ration).encode())

    def _establish(self, value: int, data: bytes) -> None:
        """The peer's header has come, with the ration of this side; 0 is without end (R-4, HS-22)."""
        self.header = frames.decode_header(data, client=not self._client)
        self._idle_since = self._now
        self._events.append(Established(self.header))
        self._sessions.establish(value or INFINITE)
        if self._leaving:
            self._step(_I.APP_DRAIN, 0, b"")

    def _answer_header(self, value: int, data: bytes) -> None:
        self._send_header(0, b"")
        self._establish(value, data)

    def _bad_header(self, value: int, data: bytes) -> None:
        """Say why; a server says its own header first (R-3, HS-19, HS-20)."""
        if not self._client:
            self._send_header(0, b"")
        raise violation(data.decode(), "R-3")

    # -- messages -------------------------------------------------------------------------------------------

    def _skip(self, value: int, data: bytes) -> None:
        self._sessions.waste(4 + len(data))

    def _answer_ping(self, value: int, data: bytes) -> None:
        """One answer for each, in order (R-13, KA-08)."""
        if self._pings is None:
            self._pings = Bucket(self.limits.keepalive_rate[1], self.limits.keepalive_rate[0])
        if not self._pings.take(1, self._now):
            raise violation("keepalive-flood", "keepalive_rate")
        self._out.control(frames.PingAck(cookie=value).encode())

    def _peer_alive(self, value: int, data: bytes) -> None:
        self._pinged = None

    def _peer_shut_down(self, value: int, data: bytes) -> None:
        """Nothing of what is unfinished was processed (3.5, JA-01)."""
        text = detail_of(data, self.limits) or "the server has shut down"
        self._events.append(Draining(text))
        self._end(ConnectionClosed(text, stream=0, rule="3.5"), safe=True)

    def _peer_failed(self, value: int, data: bytes) -> None:
        """The peer says that this side has broken a rule (3.5, JA-02)."""
        text = detail_of(data, self.limits) or "the peer has found a protocol violation"
        self._end(ConnectionClosed(text, stream=0, rule="R-7"))

    def _violation(self, value: int, data: bytes) -> None:
        raise violation("Shutdown from a client", "R-31")

    def _nothing(self, value: int, data: bytes) -> None:
        """It is so already, or too late."""

    # -- endings --------------------------------------------------------------------------------------------

    def _drain(self, value: int, data: bytes) -> None:
        if isinstance(self._sessions, ServerSessions):
            self._sessions.closing = True
        elif self._state is _S.WAIT_HEADER:
            self._leaving = True
            if self._sessions.idle:
                self._step(_I.APP_CLOSE, 0, b"")

    def _shut_down(self, value: int, data: bytes) -> None:
        """The application closes, or nobody needs the connection. Shutdown is only said when it is true (JA-07)."""
        error = ConnectionClosed(self._reason, stream=0, rule="3.1")
        sessions = self._sessions
        if isinstance(sessions, ServerSessions) and self.header is not None:
            if sessions.processed:
                sessions.end_all(self._reason)
            else:
                self._say_shutdown()
        self._end(error)

    def _finish(self, value: int, data: bytes) -> None:
        """All sessions have ended in order: Closed, and nothing was lost."""
        if not self._client and not self._sessions.half_closed:  # type: ignore[union-attr]  # it is a server
            self._say_shutdown()
        self._end(None)

    def _say_shutdown(self) -> None:
        text = encoded(self._reason, self.limits.error_text_bytes[0])
        self._out.control(frames.Shutdown(detail=text).encode())

    def _half_close(self, value: int, data: bytes) -> None:
        """The client says nothing more: finish the responses (SL-03)."""
        self._in.close()
        self._pinged = None
        self._sessions.half_close()  # type: ignore[union-attr]  # it is a server

    def _lose(self, value: int, data: bytes) -> None:
        """It is over without a word, which is no fault (I-3)."""
        self._end(ConnectionClosed(data.decode(), stream=0, rule="3.5"))

    def _break_off(self, broken: Violation) -> None:
        """The peer broke a rule: say which, close."""
        self._state = _CLOSED
        self._end(RemoteProtocolError(broken.reason, stream=0, rule=broken.rule))
        text = encoded(explained(self.limits, broken.reason), self.limits.error_text_bytes[0])
        self._out.control(frames.ErrorMessage(detail=text).encode())

    def _end(self, error: Error | None, *, safe: bool = False) -> None:
        """Fail what is unfinished, once (3.5), and close."""
        self._in.close()
        self._pinged = None
        closed = error or ConnectionClosed("closed", stream=0, rule="3.1")
        self._sessions.fail_all(closed, safe=safe)
        self._sessions.let_go()
        self._events.append(Closed(error))

    # -- time -----------------------------------------------------------------------------------------------

    def _tick(self, late: float) -> None:
        now, limits = self._now, self.limits
        if self._state is _S.WAIT_HEADER:
            if now >= self._born + limits.handshake_s:
                self._step(_I.SILENT, 0, b"handshake-timeout")
            return
        if broken := self._in.late(now, limits.frame_s):
            raise broken
        if self._pinged is not None and now >= self._pinged + limits.ping_s:
            if late > _STEP_OF_TIME and self._pinged != self._spared:
                # TM-03: it was this side that slept. But once: a side that is always late must end as well.
                self._pinged = self._spared = now + limits.flush_s - limits.ping_s
            else:
                self._step(_I.SILENT, 0, b"ping-timeout")
                return
        self._sessions.tick()
        if self._pinged is None and self._pings_at() <= now:
            self._ping()
        if self._idle_at() <= now:
            self._reason = "idle"
            self._step(_I.IDLE, 0, b"")

    def _ping(self) -> None:
        """The peer has been silent: is it there?"""
        self._cookie = (self._cookie + 1) & 0xFFFF
        self._pinged = self._now
        self._out.control(frames.Ping(cookie=self._cookie).encode())

    def _pings_at(self) -> float:
        return self._heard + self._interval if self._interval and self._state in _SPEAKING else inf

    def _idle_at(self) -> float:
        """When a server gives up a connection without sessions."""
        unused = not (self._client or self._sessions.live) and self._state is _OPEN
        return self._idle_since + self.limits.idle_s if unused and self.limits.idle_s is not None else inf

    def _due(self) -> float:
        limits = self.limits
        if self._state is _S.WAIT_HEADER:
            return self._born + limits.handshake_s
        since = self._in.incomplete_since
        frame = inf if since is None else since + limits.frame_s
        ping = self._pings_at() if self._pinged is None else self._pinged + limits.ping_s
        return min(frame, ping, self._sessions.due_at, self._idle_at())


_D = ConnectionAction
_ACTIONS: dict[ConnectionAction, Callable[[Connection, int, bytes], None]] = {
    _D.VIOLATION: Connection._violation,
    _D.NOTHING: Connection._nothing,
    _D.SEND_HEADER: Connection._send_header,
    _D.ESTABLISH: Connection._establish,
    _D.ANSWER_HEADER: Connection._answer_header,
    _D.BREAK_OFF: Connection._bad_header,
    _D.SKIP: Connection._skip,
    _D.ANSWER_PING: Connection._answer_ping,
    _D.PEER_ALIVE: Connection._peer_alive,
    _D.PEER_SHUT_DOWN: Connection._peer_shut_down,
    _D.PEER_FAILED: Connection._peer_failed,
    _D.DRAIN: Connection._drain,
    _D.SHUT_DOWN: Connection._shut_down,
    _D.FINISH: Connection._finish,
    _D.HALF_CLOSE: Connection._half_close,
    _D.LOSE: Connection._lose,
}
