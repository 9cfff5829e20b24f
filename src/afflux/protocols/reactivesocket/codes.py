"""Error codes of ReactiveSocket: which error an arriving one becomes, and which one an error sends.

What the numbers are on the wire depends on the dialect: later texts of the 0.1 line have others (``on_wire``).
"""

from __future__ import annotations

from enum import IntEnum

from afflux.core.errors import (
    ApplicationError,
    Canceled,
    ConnectionClosed,
    Error,
    Invalid,
    Rejected,
    RemoteProtocolError,
    SetupRefused,
)
from afflux.core.limits import Limits
from afflux.core.texts import GENERIC_TEXT, clean_text, cut
from afflux.protocols.reactivesocket.frames import ErrorFrame

__all__ = ["LAST_SETUP_CODE", "Code", "code_for", "error_for", "name_of", "of_wire", "on_wire", "text_of"]


class Code(IntEnum):
    """The codes that the specification names (2.4)."""

    INVALID_SETUP = 0x01
    "Stream 0: the SETUP breaks a rule, a version other than 0 included (R-19, D-4)."
    UNSUPPORTED_SETUP = 0x02
    "Stream 0: the SETUP asks for something that this server does not do."
    REJECTED_SETUP = 0x03
    "Stream 0: the server does not want this client."
    CONNECTION_ERROR = 0x11
    "Stream 0: the connection is over, now."
    APPLICATION_ERROR = 0x21
    "A stream: the application failed."
    REJECTED = 0x22
    "A stream: refused before it was processed; the lease is used up (R-47, D-10)."
    CANCELED = 0x23
    "A stream: given up after processing may have begun."
    INVALID = 0x24
    "A stream: the request could not be understood."


LAST_SETUP_CODE = 0x0F
"Codes up to here are answers to SETUP."
_LAST_APPLICATION_CODE = 0x2F

_STREAM_ERRORS: dict[int, type[Error]] = {
    Code.REJECTED: Rejected,
    Code.CANCELED: Canceled,
    Code.INVALID: Invalid,
}
_LATER: dict[int, int] = {
    Code.CONNECTION_ERROR: 0x101,
    Code.APPLICATION_ERROR: 0x201,
    Code.REJECTED: 0x202,
    Code.CANCELED: 0x203,
    Code.INVALID: 0x204,
}
"The numbers of later 0.1 texts."
_EARLIER = {later: code for code, later in _LATER.items()}


def on_wire(code: int, later: bool) -> int:
    """The number to write: that of 2015, or of ``later`` 0.1 texts."""
    return _LATER.get(code, code) if later else int(code)


def of_wire(code: int, later: bool) -> int:
    """The code that a number stands for."""
    return _EARLIER.get(code, code) if later else code


def _is_application(code: int) -> bool:
    return Code.APPLICATION_ERROR <= code <= _LAST_APPLICATION_CODE and code not in _STREAM_ERRORS


def name_of(code: int) -> str:
    """The code's name, such as ``APPLICATION_ERROR``, or ``0x0000002F`` for one without a name."""
    try:
        return Code(code).name
    except ValueError:
        return f"0x{code:08X}"


def text_of(frame: ErrorFrame) -> bytes:
    """The text of an ERROR frame: its data, or else its metadata, without one NUL at the end (R-49, D-11)."""
    return (frame.data or frame.metadata or b"").removesuffix(b"\0")


def error_for(code: int, data: bytes, stream: int, limits: Limits) -> Error:
    """The error that an arriving ERROR frame becomes: not raised, for the event that carries it.

    ``data`` is cut to ``limits.error_text_bytes`` (what comes in) and may hold anything. A code that is not known stays
    a number (R-50).
    """
    text = clean_text(data, limits.error_text_bytes[1])
    if not stream:
        connection_error = SetupRefused if 0 < code <= LAST_SETUP_CODE else ConnectionClosed
        return connection_error(text or name_of(code), code=code, stream=0, rule="2.4")
    if _is_application(code):
        return ApplicationError(code, text, stream=stream)
    stream_error = _STREAM_ERRORS.get(code, RemoteProtocolError)
    return stream_error(text or name_of(code), code=code, stream=stream, rule="2.4")


def code_for(error: BaseException, limits: Limits) -> tuple[int, str]:
    """The code and the text to send for an error that ended a handler.

    ApplicationError keeps its text, and its code if that is one of the application's range; Rejected, Canceled and
    Invalid keep their text. Anything else may hold what the peer must not see: it gets a generic text.
    """
    if isinstance(error, ApplicationError):
        own = error.code is not None and _is_application(error.code)
        code = error.code if own and error.code is not None else int(Code.APPLICATION_ERROR)
    else:
        code = next((code for code, kind in _STREAM_ERRORS.items() if isinstance(error, kind)), 0)
        if not code:
            return Code.APPLICATION_ERROR, GENERIC_TEXT
    return code, cut(str(error).replace("\0", ""), limits.error_text_bytes[0])
