"""Numbers and words of reactive-streams-io: versions, extensions, the largest demand, and errors as text.

The wire has no error codes: onError and goodbye carry text. What answers which broken rule is said in states.py.
"""

from __future__ import annotations

from enum import IntEnum

from afflux.core.credit import SATURATED
from afflux.core.errors import ApplicationError, Error, Rejected
from afflux.core.limits import REASONS, Limits
from afflux.core.texts import GENERIC_TEXT, cut, public_text

__all__ = ["GENERIC_TEXT", "UNBOUNDED", "VERSION", "Extension", "cut", "error_for", "text_for"]

VERSION = 0
"The only version of the protocol that there is."

UNBOUNDED = SATURATED
"The most that can be demanded; demand adds up to it and is then never used up (R-24)."

_REFUSALS = frozenset((REASONS["publisher_bytes"], REASONS["streams"]))


class Extension(IntEnum):
    """What both hellos may list. No draft numbers them: each has the number of its first message."""

    SPLIT_MESSAGES = 12
    "A large element may come in parts: onNextPart and onNextLastPart (I-3)."
    GOODBYE_ACK = 14
    "goodbye is answered by goodbyeAck (I-4)."


def error_for(text: str, stream: int) -> Error:
    """The error that onError becomes: not raised, for the event that carries it.

    Only the two words by which afflux itself refuses are known to mean that nothing was done; any other text may have
    been written by an application that had begun.
    """
    if text in _REFUSALS:
        return Rejected(text, stream=stream, rule=text)
    return ApplicationError(message=text, stream=stream)


def text_for(error: BaseException, limits: Limits) -> str:
    """The text of onError for an error that ended a publisher."""
    return cut(public_text(error), limits.error_text_bytes[0])
