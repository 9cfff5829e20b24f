"""Define the numbers and texts of reactive-streams-io: versions, extensions, the greatest demand, errors as text.

The wire has no error codes: onError and goodbye carry text. states.py defines the answer to each violation.
"""

from __future__ import annotations

from enum import IntEnum

from afflux.core.credit import SATURATED
from afflux.core.errors import ApplicationError, Error, Rejected
from afflux.core.limits import REASONS, Limits
from afflux.core.texts import GENERIC_TEXT, cut, public_text

__all__ = ["GENERIC_TEXT", "UNBOUNDED", "VERSION", "Extension", "cut", "error_for", "text_for"]

VERSION = 0
"The only version of the protocol."

UNBOUNDED = SATURATED
"Greatest demand; demand adds up to it and is then never used up (R-24)."

_REFUSALS = frozenset((REASONS["publisher_bytes"], REASONS["streams"]))


class Extension(IntEnum):
    """Extensions that both hellos may list. The drafts do not number them: each has the number of its first message."""

    SPLIT_MESSAGES = 12
    "A large element may arrive in parts: onNextPart and onNextLastPart (I-3)."
    GOODBYE_ACK = 14
    "goodbye is answered by goodbyeAck (I-4)."


def error_for(text: str, stream: int) -> Error:
    """Return the error of an onError: not raised, for the event that carries it.

    Only the two texts with which afflux itself refuses imply that nothing was done; any other text may come from an
    application that had begun.
    """
    if text in _REFUSALS:
        return Rejected(text, stream=stream, rule=text)
    return ApplicationError(message=text, stream=stream)


def text_for(error: BaseException, limits: Limits) -> str:
    """Return the text of onError for an error that ended a publisher."""
    return cut(public_text(error), limits.error_text_bytes[0])
