"""End a connection: drain, close, abort, lose the transport. Each live stream receives exactly one error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from afflux.core.errors import ConnectionClosed, Consequence, Error, RemoteProtocolError, Violation
from afflux.core.events import Closed, Draining
from afflux.core.limits import explained
from afflux.core.texts import cut
from afflux.protocols.family.states import ConnectionInput, ConnectionState

if TYPE_CHECKING:
    from afflux.protocols.family.connection import Connection

__all__ = [
    "abort",
    "break_off",
    "drain",
    "end",
    "expire",
    "fail",
    "finish",
    "lose",
    "lose_transport",
    "not_setup",
    "nothing",
    "peer_drains",
    "send_error",
    "words",
]

_CLOSED = ConnectionState.CLOSED


def not_setup(connection: Connection) -> Violation:
    """Return the violation of a first frame that is not SETUP."""
    member = connection.member
    return Violation("the first frame is not a SETUP", rule=member.rules.first, code=member.codes.Code.INVALID_SETUP)


def words(connection: Connection, text: str) -> bytes:
    """Encode a text for the peer."""
    return cut(text, connection.limits.error_text_bytes[0]).encode()


def send_error(connection: Connection, code: int, text: str) -> None:
    """Queue ERROR on stream 0."""
    connection.outbound.control(connection.member.quirks.error(0, code, words(connection, text)))


def end(connection: Connection, error: Error, code: int | None = None, text: bytes = b"") -> None:
    """Fail every stream once, report the reason to the peer if it has a code, and close."""
    connection.state = _CLOSED
    _over(connection)
    connection.stream_table.fail_all(error)
    if code is not None:
        connection.outbound.control(connection.member.quirks.error(0, code, text))
    connection.current.events.append(Closed(error))


def _over(connection: Connection) -> None:
    connection.liveness.next_keepalive = None
    connection.inbound.close()
    connection.outbound.retained = None  # nothing will be repeated: a full store does not delay the last frames
    if connection.resuming is not None:
        connection.resuming.over(connection)


def break_off(connection: Connection, violation: Violation) -> None:
    """Report the rule that the peer broke, and close."""
    code = violation.code or connection.member.codes.Code.CONNECTION_ERROR
    error: Error = RemoteProtocolError(
        violation.reason, code=code, stream=0, rule=violation.rule, too_large=violation.too_large
    )
    if violation.consequence is Consequence.REFUSE_SETUP:
        error = ConnectionClosed(violation.reason, code=code, rule=violation.rule)
    end(connection, error, code, words(connection, explained(connection.limits, violation.reason)))


def lose_transport(connection: Connection, otherwise: ConnectionInput) -> None:
    """Suspend the session when its transport is lost, if it can be resumed; otherwise apply ``otherwise``."""
    resuming = connection.resuming
    resumable = resuming is not None and resuming.resumable(connection)
    connection.step(ConnectionInput.SUSPEND if resumable else otherwise, None)


# -- actions of the connection tables -------------------------------------------------------------------------


def nothing(connection: Connection, argument: Any) -> None:
    """No-op: already in this state, or nothing is left to do."""


def expire(connection: Connection, argument: Any) -> None:
    """End the connection of a peer that was silent for too long."""
    text = f"keepalive-timeout: no frame received for {connection.liveness.lifetime:g} s"
    send_error(connection, connection.member.codes.Code.CONNECTION_ERROR, "keepalive-timeout")
    end(connection, ConnectionClosed(text, rule=connection.member.rules.silence))


def lose(connection: Connection, argument: Any) -> None:
    """End the connection after the final loss of its transport."""
    text = "the peer closed the connection"
    if connection.resuming is not None and connection.resuming.away is not None:
        text = f"the session was not resumed within {connection.limits.resume_s:g} s"
    end(connection, ConnectionClosed(text, rule="3.1"))


def fail(connection: Connection, frame: Any) -> None:
    """End the connection after the peer's connection error."""
    end(connection, connection.member.codes.error_for(frame.code, frame.data, 0, connection.limits))


def abort(connection: Connection, argument: Any) -> None:
    """End the connection from this side: the application requests it, or RESUME came in an open connection (R-48)."""
    if isinstance(argument, Violation):
        code = connection.member.codes.Code.CONNECTION_ERROR
        error = ConnectionClosed("this side closed the connection")
        end(connection, error, code, words(connection, argument.reason))
        return
    raise Violation("RESUME after the connection was established", rule="R-48")


def peer_drains(connection: Connection, frame: Any) -> None:
    """Note that the peer will close when the live streams have ended."""
    connection.stream_table.accepting = False
    connection.peer_draining = True
    error = connection.member.codes.error_for(frame.code, frame.data, 0, connection.limits)
    connection.current.events.append(Draining(error.message))


def drain(connection: Connection, violation: Violation) -> None:
    """Prepare to close when the live streams have ended."""
    connection.stream_table.accepting = False
    violation = connection.farewell = connection.farewell or violation  # the first reason counts, as in DRAINING
    away = connection.resuming is not None and connection.resuming.away is not None
    code = connection.member.closing_code
    if code is not None and not away:
        connection.outbound.farewell(connection.member.quirks.error(0, code, words(connection, violation.reason)))


def finish(connection: Connection, argument: Any) -> None:
    """Close: every stream has ended."""
    member = connection.member
    if member.closing_code is None and connection.farewell is not None:
        send_error(connection, member.codes.Code.CONNECTION_ERROR, connection.farewell.reason)
    _over(connection)
    connection.current.events.append(Closed(None))
