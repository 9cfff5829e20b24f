"""Define the errors of afflux: each has the side to blame, the rule, the stream and the code on the wire.

All derive from :class:`Error`. :class:`Violation` is internal: code in ``core/`` and ``protocols/`` raises it without
blame; the verb that sends converts it to a :class:`LocalProtocolError`, the receive pass to a
:class:`RemoteProtocolError`.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Self

__all__ = [
    "AddressError",
    "ApplicationError",
    "BindFailed",
    "Canceled",
    "ConnectFailed",
    "ConnectionClosed",
    "Consequence",
    "Error",
    "Invalid",
    "LeaseExpired",
    "LimitExceeded",
    "LocalProtocolError",
    "MissingExtra",
    "ProtocolError",
    "Rejected",
    "RemoteProtocolError",
    "SetupRefused",
    "Unsupported",
    "Violation",
]


class Error(Exception):
    """Base class of the errors of afflux."""

    code: int | None
    "The error code on the wire, or None if none was sent."
    stream: int | None
    "The stream; 0 is the connection, None if there is no stream."
    rule: str | None
    "A limit, or a rule such as ``R-27`` or ``FC-02`` (docs/specs, docs/hostile.md)."
    may_have_been_processed: bool = True
    "Whether the peer may have processed part of the request. False: a retry is safe."
    in_handshake: bool = False
    "The peer did not answer in the expected protocol, so the connection ended before the protocol began."
    too_large: bool = False
    "One item that the peer sent is larger than this side's ``frame_bytes`` or ``payload_bytes`` allow."

    def __init__(
        self,
        message: str = "",
        *,
        code: int | None = None,
        stream: int | None = None,
        rule: str | None = None,
        too_large: bool = False,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.stream = stream
        self.rule = rule
        if too_large:
            self.too_large = True

    @classmethod
    def of_handshake(cls, message: str) -> Self:
        """Return the error for a peer that did not answer in the expected protocol."""
        error = cls(message, rule="handshake")
        error.in_handshake = True
        return error

    @property
    def message(self) -> str:
        """The text."""
        return str(self.args[0]) if self.args else ""

    def again(self) -> Self:
        """Return a copy to raise again, because an exception that is raised twice accumulates tracebacks."""
        copy = type(self).__new__(type(self))
        copy.args = self.args
        copy.__dict__.update(self.__dict__)
        copy.__cause__, copy.__suppress_context__ = self.__cause__, self.__suppress_context__
        return copy

    def about(self, stream: int) -> Self:
        """Return a copy of a connection's error for one of its streams."""
        copy = self.again()
        copy.stream = stream
        copy.__cause__ = self
        return copy

    def __repr__(self) -> str:
        parts = [repr(self.message)]
        if self.code is not None:
            parts.append(f"code=0x{self.code:03X}")
        if self.stream is not None:
            parts.append(f"stream={self.stream}")
        if self.rule is not None:
            parts.append(f"rule={self.rule!r}")
        return f"{type(self).__name__}({', '.join(parts)})"


class AddressError(Error, ValueError):
    """An address that does not parse, or that names an unknown protocol, transport or option."""

    may_have_been_processed = False


class ConnectionClosed(Error):
    """The connection is over: the peer closed it, the transport failed, or this side closed it."""

    @classmethod
    def unsent(cls, message: str, *, code: int | None = None, rule: str | None = None) -> Self:
        """Return the error for a request after the end: nothing was sent, so a retry is safe."""
        error = cls(message, code=code, rule=rule)
        error.may_have_been_processed = False
        return error


class BindFailed(Error):
    """A server cannot listen at its address: in use, not of this machine, or not permitted."""


class ConnectFailed(ConnectionClosed):
    """No connection could be made: refused, unreachable, or not in time."""

    may_have_been_processed = False


class SetupRefused(ConnectionClosed):
    """The peer refused the connection during establishment; ``code`` is its reason."""


class ProtocolError(Error):
    """A rule of the protocol was broken, by this side or by the peer (see the subclasses)."""


class LocalProtocolError(ProtocolError):
    """This side requested something that the protocol forbids; nothing was sent."""

    may_have_been_processed = False


class RemoteProtocolError(ProtocolError):
    """The peer broke a rule; ``rule`` names it and the connection or stream is over."""


class Rejected(Error):
    """The peer refused the request before processing it: a retry is safe."""

    may_have_been_processed = False


class Canceled(Error):
    """The peer canceled the request after processing may have begun: a retry may not be safe."""


class Invalid(Error):
    """The peer could not understand the request."""


class ApplicationError(Error):
    """An error of the application at the other end.

    A handler raises it to send ``code`` and ``message`` unchanged. ``code`` is in the application's range (RSocket:
    0x301 to 0xFFFFFFFE, ReactiveSocket: 0x25 to 0x2F); None stands for the protocol's own code (0x201, 0x21).
    A protocol without codes, such as reactive-streams-io, sends only the text.
    """

    def __init__(
        self,
        code: int | None = None,
        message: str = "",
        *,
        stream: int | None = None,
        rule: str | None = None,
    ) -> None:
        if code is not None and not isinstance(code, int):
            raise TypeError(f"the first argument of ApplicationError is a code, not {code!r}: write message=…")
        super().__init__(message, code=code, stream=stream, rule=rule)


class LeaseExpired(Error):
    """No lease permits the request; nothing was sent."""

    may_have_been_processed = False


class LimitExceeded(Error):
    """A limit of :class:`afflux.Limits` was reached; ``rule`` is the limit's reason word."""


class Unsupported(Error):
    """This protocol, transport or build does not support the feature; the message lists what it supports."""

    may_have_been_processed = False


class MissingExtra(Unsupported, ImportError):
    """An optional dependency is not installed; the message names the extra that installs it."""

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(f'{feature} needs the extra "{extra}": pip install "afflux[{extra}]"')
        self.extra = extra


class Consequence(Enum):
    """The consequence of a violation. The rule is a citation and does not affect control flow."""

    IGNORE = auto()
    "Drop the frame and charge its price."
    REJECT_REQUEST = auto()
    "Refuse the payload, because a limit is reached: a retry elsewhere is safe."
    END_STREAM = auto()
    "End the stream with an error."
    REFUSE_SETUP = auto()
    "Refuse the connection during establishment, by this side's decision."
    END_CONNECTION = auto()
    "End the connection with an error."


class Violation(Exception):  # noqa: N818 -- not an error until blame is known
    """A broken rule, before blame is assigned. Engines convert it and never raise it."""

    def __init__(
        self,
        reason: str,
        *,
        rule: str,
        code: int | None = None,
        stream: int = 0,
        consequence: Consequence = Consequence.END_CONNECTION,
        too_large: bool = False,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.rule = rule
        self.code = code
        self.stream = stream
        self.consequence = consequence
        self.too_large = too_large
