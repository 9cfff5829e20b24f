"""Send and receive frames of extensions (EXT)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from afflux.core.errors import ConnectionClosed, LimitExceeded, LocalProtocolError, Violation
from afflux.core.events import Extended

if TYPE_CHECKING:
    from afflux.protocols.family.connection import Connection

__all__ = ["Extending", "on_extension"]


def on_extension(connection: Connection, frame: Any) -> None:
    """Report an EXT of a known type as an event; ignore any other if its I flag permits it, else raise a violation."""
    rule, stream = connection.member.rules.extension, frame.stream
    known = frame.extended_type in connection.known_extensions
    if frame.extended_type < connection.member.quirks.LEAST_EXTENSION or not (frame.ignore or known):
        raise Violation(f"extended type {frame.extended_type} is not supported", rule=rule)
    if not known:
        connection.current.charge(1, stream, rule, "an unknown extension")
        return
    connection.stream_table.delivered += len(frame.body)
    connection.current.events.append(Extended(stream, frame.extended_type, frame.body))


class Extending:
    """The extensions of a connection, as core.engine.Extensions."""

    __slots__ = ("_engine",)

    def __init__(self, connection: Connection) -> None:
        self._engine = connection

    def extend(self, type: Any, body: bytes, *, stream: int = 0, ignore: bool = True) -> None:
        """Send an extension frame (EXT). A peer that does not support it skips it, or closes if ``ignore`` is False.

        Raises:
            LocalProtocolError: the type or the stream is out of range.
            LimitExceeded: the body is longer than a peer accepts.
            ConnectionClosed: the connection is closed.
        """
        connection = self._engine
        frame = self._frame(type, body, stream, ignore)
        if not connection.may_send:
            raise ConnectionClosed(f"nothing can be sent: the connection is {connection.standing}")
        connection.outbound.control(frame)

    def _frame(self, type: Any, body: bytes, stream: int, ignore: bool) -> bytes:
        if not isinstance(type, int):
            raise LocalProtocolError(f"an extended type is a number, not {type!r}", stream=stream)
        connection = self._engine
        try:
            frame = connection.member.quirks.extension(type, body, stream, ignore)
        except Violation as violation:
            raise LocalProtocolError(violation.reason, rule=violation.rule) from None
        most = connection.limits.frame_bytes - (frame.encoded_size - len(body))
        if len(body) > most:
            text = f"{len(body)} bytes of an extension: a peer accepts {most}"
            raise LimitExceeded(text, stream=stream, rule="frame-too-large")
        encoded: bytes = frame.encode(prefixed=True)
        return encoded
