"""Map the error codes of RSocket 1.0: the error that a received code becomes, and the code that an error sends.

The command line defines exit codes; ``states.py`` and the engine select the reaction to each violation.
"""

from __future__ import annotations

from enum import IntEnum

from afflux.core.codes import Codes

__all__ = [
    "FIRST_APPLICATION_CODE",
    "LAST_APPLICATION_CODE",
    "Code",
    "code_for",
    "error_for",
    "is_application",
    "name_of",
]


class Code(IntEnum):
    """The codes of the specification (2.4)."""

    INVALID_SETUP = 0x001
    "Stream 0: the SETUP breaks a rule, a version other than 1.0 included (D-2)."
    UNSUPPORTED_SETUP = 0x002
    "Stream 0: the SETUP requests a feature that this server does not support."
    REJECTED_SETUP = 0x003
    "Stream 0: the server refuses this client."
    REJECTED_RESUME = 0x004
    "Stream 0: the session cannot be resumed; retries are useless."
    CONNECTION_ERROR = 0x101
    "Stream 0: the connection ends immediately."
    CONNECTION_CLOSE = 0x102
    "Stream 0: the connection ends after its live streams (R-20)."
    APPLICATION_ERROR = 0x201
    "A stream: the application failed."
    REJECTED = 0x202
    "A stream: refused before it was processed."
    CANCELED = 0x203
    "A stream: canceled after processing may have begun."
    INVALID = 0x204
    "A stream: the request is invalid."


FIRST_APPLICATION_CODE = 0x301
LAST_APPLICATION_CODE = 0xFFFFFFFE


def is_application(code: int) -> bool:
    """Whether an application may send the code on a stream: 0x201 and its own range."""
    return code == Code.APPLICATION_ERROR or FIRST_APPLICATION_CODE <= code <= LAST_APPLICATION_CODE


_CODES = Codes(Code, range(Code.INVALID_SETUP, Code.REJECTED_RESUME + 1), is_application)
"A setup may be refused for any reason (I-1)."

name_of = _CODES.name_of
error_for = _CODES.error_for
code_for = _CODES.code_for
