"""Error codes of RSocket 1.0: their names, which error an arriving one becomes, and which one an error sends.

Exit codes belong to the command line, the answer to each broken rule to ``states.py`` and ``engine.py``.
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

__all__ = [
    "FIRST_APPLICATION_CODE",
    "GENERIC_TEXT",
    "LAST_APPLICATION_CODE",
    "Code",
    "clean_text",
    "code_for",
    "cut",
    "error_for",
    "is_application",
    "name_of",
]


class Code(IntEnum):
    """The codes that the specification names (2.4)."""

    INVALID_SETUP = 0x001
    "Stream 0: the SETUP breaks a rule, a version other than 1.0 included (D-2)."
    UNSUPPORTED_SETUP = 0x002
    "Stream 0: the SETUP asks for something that this server does not do."
    REJECTED_SETUP = 0x003
    "Stream 0: the server does not want this client."
    REJECTED_RESUME = 0x004
    "Stream 0: the session cannot be resumed; never try again."
    CONNECTION_ERROR = 0x101
    "Stream 0: the connection is over, now."
    CONNECTION_CLOSE = 0x102
    "Stream 0: the connection ends when its live streams have (R-20)."
    APPLICATION_ERROR = 0x201
    "A stream: the application failed."
    REJECTED = 0x202
    "A stream: refused before it was processed."
    CANCELED = 0x203
    "A stream: given up after processing may have begun."
    INVALID = 0x204
    "A stream: the request could not be understood."


FIRST_APPLICATION_CODE = 0x301
LAST_APPLICATION_CODE = 0xFFFFFFFE

_STREAM_ERRORS: dict[int, type[Error]] = {
    Code.REJECTED: Rejected,
    Code.CANCELED: Canceled,
    Code.INVALID: Invalid,
}


def is_application(code: int) -> bool:
    """True for codes that an application may send on a stream: 0x201 and its own range."""
    return code == Code.APPLICATION_ERROR or FIRST_APPLICATION_CODE <= code <= LAST_APPLICATION_CODE


def name_of(code: int) -> str:
    """The code's name, such as ``APPLICATION_ERROR``, or ``0x00000301`` for one without a name."""
    try:
        return Code(code).name
    except ValueError:
        return f"0x{code:08X}"


def error_for(code: int, data: bytes, stream: int, limits: Limits) -> Error:
    """The error that an arriving ERROR frame becomes: not raised, for the event that carries it.

    ``data`` is cut to ``limits.error_text_bytes`` (what comes in) and may hold anything. A code that has no business
    on a stream, such as 0x101 on stream 5, is the peer's fault: RemoteProtocolError.
    """
    text = clean_text(data, limits.error_text_bytes[1])
    if not stream:
        refused = Code.INVALID_SETUP <= code <= Code.REJECTED_RESUME  # I-1: whichever it is
        connection_error = SetupRefused if refused else ConnectionClosed
        return connection_error(text or name_of(code), code=code, stream=0, rule="2.4")
    if is_application(code):
        return ApplicationError(code, text, stream=stream)
    stream_error = _STREAM_ERRORS.get(code, RemoteProtocolError)
    return stream_error(text or name_of(code), code=code, stream=stream, rule="2.4")


def code_for(error: BaseException, limits: Limits) -> tuple[int, str]:
    """The code and the text to send for an error that ended a handler.

    ApplicationError keeps its code and text, Rejected, Canceled and Invalid their text. The text of anything else
    may hold what the peer must not see: it gets APPLICATION_ERROR and a generic text. The text always encodes as
    UTF-8, to at most ``limits.error_text_bytes`` (what goes out), and ends with a whole character.
    """
    if isinstance(error, ApplicationError):
        # The class does not check its code: one outside the application's range would say something else.
        code = error.code if error.code is not None and is_application(error.code) else Code.APPLICATION_ERROR
    else:
        code = next((code for code, kind in _STREAM_ERRORS.items() if isinstance(error, kind)), 0)
        if not code:
            return Code.APPLICATION_ERROR, GENERIC_TEXT
    return code, cut(str(error), limits.error_text_bytes[0])
