"""Errors with blame: who broke which rule, on which stream, and which code went over the wire.

One tree under :class:`Error`. :class:`Violation` is the inner form: code in ``core/`` and ``protocols/``
raises it without knowing who is to blame; the verb that sends turns it into a
:class:`LocalProtocolError`, the receive pass into a :class:`RemoteProtocolError`.
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
    """The root of everything afflux raises on purpose."""

    code: int | None
    "The error code on the wire, or None when nothing was said on the wire."
    stream: int | None
    "The stream it concerns: 0 is the connection, None when there is no stream."
    rule: str | None
    "The rule it rests on, such as ``R-27`` (docs/conformance), or the limit's reason word."
    may_have_been_processed: bool = True
    "Whether the peer may have done something of what was asked. False: it is safe to try again."
    in_handshake: bool = False
    "The peer did not answer in the expected protocol, so the connection ended before the protocol began."

    def __init__(
        self, message: str = "", *, code: int | None = None, stream: int | None = None, rule: str | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.stream = stream
        self.rule = rule

    @classmethod
    def of_handshake(cls, message: str) -> Self:
        """The error for a peer that did not answer in the expected protocol."""
        error = cls(message, rule="handshake")
        error.in_handshake = True
        return error

    @property
    def message(self) -> str:
        """The text alone."""
        return str(self.args[0]) if self.args else ""

    def again(self) -> Self:
        """The same error to raise once more: one exception raised twice would gather every traceback."""
        copy = type(self).__new__(type(self))
        copy.args = self.args
        copy.__dict__.update(self.__dict__)
        copy.__cause__, copy.__suppress_context__ = self.__cause__, self.__suppress_context__
        return copy

    def about(self, stream: int) -> Self:
        """The connection's error as one of its streams sees it."""
        copy = self.again()
        copy.stream = stream
        copy.__cause__ = self
        return copy

    def __repr__(self) -> str:
        parts = [repr(self.message)]
        if self.code is not None:
            parts.append(f"code=0x{self.code:X}")
        if self.stream is not None:
            parts.append(f"stream={self.stream}")
        if self.rule is not None:
            parts.append(f"rule={self.rule!r}")
        return f"{type(self).__name__}({', '.join(parts)})"


class AddressError(Error, ValueError):
    """An address that does not parse, or that names an unknown protocol, transport or option."""

    may_have_been_processed = False


class ConnectionClosed(Error):
    """The connection is over: the peer left, the link broke, or this side closed it."""

    @classmethod
    def unsent(cls, message: str, *, code: int | None = None, rule: str | None = None) -> Self:
        """The error for what was asked too late: nothing was sent, and it is safe to try again."""
        error = cls(message, code=code, rule=rule)
        error.may_have_been_processed = False
        return error


class BindFailed(Error):
    """A server cannot listen at its address: in use, not of this machine, or not permitted."""


class ConnectFailed(ConnectionClosed):
    """No connection could be made: refused, unreachable, or not in time."""

    may_have_been_processed = False


class SetupRefused(ConnectionClosed):
    """The peer refused the connection during establishment; ``code`` says why."""


class ProtocolError(Error):
    """A rule of the protocol was broken; the subclass says by whom."""


class LocalProtocolError(ProtocolError):
    """This side asked for something that the protocol forbids; nothing was sent."""

    may_have_been_processed = False


class RemoteProtocolError(ProtocolError):
    """The peer broke a rule; ``rule`` names it and the connection or stream is over."""


class Rejected(Error):
    """The peer refused the request before processing it: it is safe to try again."""

    may_have_been_processed = False


class Canceled(Error):
    """The peer gave up after processing may have begun: it is not known to be safe to try again."""


class Invalid(Error):
    """The peer could not understand the request."""


class ApplicationError(Error):
    """An error of the application at the other end.

    A handler raises it to send ``code`` and ``message`` as they are. ``code`` is in the application's own range (of
    RSocket 0x301 to 0xFFFFFFFE, of ReactiveSocket 0x25 to 0x2F); None is the protocol's own code for it (0x201, 0x21).
    Where a protocol has no codes, as reactive-streams-io, only the text goes.
    """

    def __init__(
        self,
        code: int | None = None,
        message: str = "",
        *,
        stream: int | None = None,
        rule: str | None = None,
    ) -> None:
        super().__init__(message, code=code, stream=stream, rule=rule)


class LeaseExpired(Error):
    """There is no lease to send the request under; nothing was sent."""

    may_have_been_processed = False


class LimitExceeded(Error):
    """A limit of :class:`afflux.Limits` was reached; ``rule`` is the limit's reason word."""


class Unsupported(Error):
    """This protocol, transport or build does not offer what was asked; the message says what it offers."""

    may_have_been_processed = False


class MissingExtra(Unsupported, ImportError):
    """An optional dependency is not installed; the message names the extra that brings it."""

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(f'{feature} needs the extra "{extra}": pip install "afflux[{extra}]"')
        self.extra = extra


class Consequence(Enum):
    """What follows from a violation. It alone steers the code; a rule is a citation for people."""

    IGNORE = auto()
    "Drop the frame and charge its price."
    REJECT_REQUEST = auto()
    "Refuse the payload, because a limit is reached: no rule was broken, and it is safe to try again elsewhere."
    END_STREAM = auto()
    "End the stream with an error."
    REFUSE_SETUP = auto()
    "Refuse the connection during establishment: this side's decision, no rule was broken."
    END_CONNECTION = auto()
    "End the connection with an error."


class Violation(Exception):  # noqa: N818 -- not an error until blame is known
    """A broken rule, before blame is known. It never leaves an engine."""

    def __init__(
        self,
        reason: str,
        *,
        rule: str,
        code: int | None = None,
        stream: int = 0,
        consequence: Consequence = Consequence.END_CONNECTION,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.rule = rule
        self.code = code
        self.stream = stream
        self.consequence = consequence
