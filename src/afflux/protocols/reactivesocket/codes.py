"""Map the error codes of ReactiveSocket: the error that a received code becomes, and the code that an error sends.

The numbers on the wire depend on the dialect: later texts of the 0.1 line have others (``on_wire``).
"""

from __future__ import annotations

from enum import IntEnum

from afflux.core.codes import Codes
from afflux.core.limits import Limits
from afflux.protocols.reactivesocket.frames import ErrorFrame

__all__ = ["LAST_SETUP_CODE", "Code", "code_for", "error_for", "name_of", "of_wire", "on_wire", "text_of"]


class Code(IntEnum):
    """The codes of the specification (2.4)."""

    INVALID_SETUP = 0x01
    "Stream 0: the SETUP breaks a rule, a version other than 0 included (R-19, D-4)."
    UNSUPPORTED_SETUP = 0x02
    "Stream 0: the SETUP requests a feature that this server does not support."
    REJECTED_SETUP = 0x03
    "Stream 0: the server refuses this client."
    CONNECTION_ERROR = 0x11
    "Stream 0: the connection ends immediately."
    APPLICATION_ERROR = 0x21
    "A stream: the application failed."
    REJECTED = 0x22
    "A stream: refused before it was processed; the lease is used up (R-47, D-10)."
    CANCELED = 0x23
    "A stream: canceled after processing may have begun."
    INVALID = 0x24
    "A stream: the request is invalid."


LAST_SETUP_CODE = 0x0F
"Codes up to here are answers to SETUP."
_LAST_APPLICATION_CODE = 0x2F
_ITS_OWN = (Code.REJECTED, Code.CANCELED, Code.INVALID)
"Codes within the application's range that have a meaning of their own."

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
    """Return the number to write: that of 2015, or of ``later`` 0.1 texts."""
    return _LATER.get(code, code) if later else int(code)


def of_wire(code: int, later: bool) -> int:
    """Return the code for a number."""
    return _EARLIER.get(code, code) if later else code


def _is_application(code: int) -> bool:
    return Code.APPLICATION_ERROR <= code <= _LAST_APPLICATION_CODE and code not in _ITS_OWN


def text_of(frame: ErrorFrame) -> bytes:
    """Return the text of an ERROR frame: its data, or else its metadata, without one NUL at the end (R-49, D-11)."""
    return (frame.data or frame.metadata or b"").removesuffix(b"\0")


_CODES = Codes(Code, range(1, LAST_SETUP_CODE + 1), _is_application)

name_of = _CODES.name_of
error_for = _CODES.error_for  # an unknown code stays a number


def code_for(error: BaseException, limits: Limits) -> tuple[int, str]:
    """Call core.codes.Codes; the text contains no NUL (R-49)."""
    code, text = _CODES.code_for(error, limits)
    return code, text.replace("\0", "")
