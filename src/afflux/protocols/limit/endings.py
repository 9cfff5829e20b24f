"""End a connection: one function for each ending of the tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from afflux.core.errors import ConnectionClosed, Error, RemoteProtocolError, Violation
from afflux.core.events import Closed
from afflux.core.limits import REASONS, explained
from afflux.core.texts import cut
from afflux.protocols.limit.codes import Code, error_for
from afflux.protocols.limit.frames import ErrorFrame, LimitFrame, Setup
from afflux.protocols.limit.states import SessionInput

if TYPE_CHECKING:
    from afflux.protocols.limit.connection import Connection

__all__ = ["close", "give_up", "invalid", "lose", "peer_failed", "reject", "violate"]


def violate(connection: Connection, cause: Violation | RemoteProtocolError | LimitFrame) -> None:
    """Answer a broken rule with ERROR on 0 (R-8): CONNECTION_ERROR, and INVALID_SETUP before the first session."""
    if isinstance(cause, LimitFrame):
        rule = "R-25" if isinstance(cause, Setup) else "SI-25"
        cause = Violation(f"{cause.NAME} is not legal here", rule=rule)
    code = Code.INVALID_SETUP if not connection.setups.established else Code.CONNECTION_ERROR
    if isinstance(cause, Violation):
        code = Code(cause.code or code)
        error: Error = RemoteProtocolError(
            cause.reason, code=code, stream=0, rule=cause.rule, too_large=cause.too_large
        )
    else:
        error = cause
    _refuse_with(connection, code, error.message, error)


def invalid(connection: Connection, frame: LimitFrame) -> None:
    """Refuse a first frame that is not a SETUP with a name."""
    text = "SETUP needs the name of a channel" if isinstance(frame, Setup) else f"{frame.NAME} before SETUP"
    _refuse_with(connection, Code.INVALID_SETUP, text, RemoteProtocolError(text, stream=0, rule="HS-02"))


def reject(connection: Connection, cause: Violation | LimitFrame) -> None:
    """Refuse a channel or a client."""
    text, rule = (cause.reason, cause.rule) if isinstance(cause, Violation) else (connection.setups.refusal, "3.1")
    _refuse_with(connection, Code.REJECTED_SETUP, text, ConnectionClosed(text, stream=0, rule=rule))


def _refuse_with(connection: Connection, code: Code, text: str, error: Error) -> None:
    limits = connection.shared.limits
    data = cut(explained(limits, text), limits.error_text_bytes[0]).encode()
    connection.shared.put(ErrorFrame(code=code, data=data))
    _end(connection, error, error)


def peer_failed(connection: Connection, frame: ErrorFrame) -> None:
    """Report the peer's error about the connection."""
    error = error_for(frame.code, frame.data, 0, connection.shared.limits)
    _end(connection, error, error)


def close(connection: Connection, argument: Any) -> None:
    """Close for the application."""
    _end(connection, ConnectionClosed("this side closed the connection"), None)


def give_up(connection: Connection, argument: Any) -> None:
    """Close without a frame: the peer was silent."""
    error = ConnectionClosed(REASONS["handshake_s"], rule="handshake_s")
    _end(connection, error, error)


def lose(connection: Connection, argument: Any) -> None:
    """Report the end of the transport."""
    error = ConnectionClosed("the peer closed the connection", rule="3.1")
    _end(connection, error, error if connection.shared.session is not None else None)


def _end(connection: Connection, cause: Error, error: Error | None) -> None:
    """Fail the session, and report the end of the connection."""
    session = connection.shared.session
    if session is not None:
        connection.sessions.moves.step(session, SessionInput.LOST, cause)
    connection.shared.ended = None
    connection.inbound.close()
    connection.shared.events.append(Closed(error))
