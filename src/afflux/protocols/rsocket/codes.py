"""Error codes of RSocket 1.0: their names, which error an arriving one becomes, and which one an error sends.

Exit codes belong to the command line, the answer to each broken rule to ``states.py`` and ``engine.py``.
"""

from __future__ import annotations

from enum import IntEnum

from afflux.core.codes import Codes
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
    "A stream: canceled after processing may have begun."
    INVALID = 0x204
    "A stream: the request could not be understood."


FIRST_APPLICATION_CODE = 0x301
LAST_APPLICATION_CODE = 0xFFFFFFFE


def is_application(code: int) -> bool:
    """True for codes that an application may send on a stream: 0x201 and its own range."""
    return code == Code.APPLICATION_ERROR or FIRST_APPLICATION_CODE <= code <= LAST_APPLICATION_CODE


_CODES = Codes(Code, range(Code.INVALID_SETUP, Code.REJECTED_RESUME + 1), is_application)
"A setup may be refused for whichever reason (I-1)."

name_of = _CODES.name_of
error_for = _CODES.error_for
code_for = _CODES.code_for
