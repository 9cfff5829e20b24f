"""Define the error codes of Limit-Stream (2.3): the error that a received code becomes, and the text that is sent."""

from __future__ import annotations

from enum import IntEnum

from afflux.core.errors import ApplicationError, ConnectionClosed, Error, RemoteProtocolError, SetupRefused
from afflux.core.limits import Limits
from afflux.core.texts import clean_text

__all__ = ["Code", "error_for", "name_of"]


class Code(IntEnum):
    """The codes of the specification (2.3), with the numbers of RSocket (D-1)."""

    INVALID_SETUP = 0x001
    "Stream 0: the first frame is not a SETUP with a channel's name."
    REJECTED_SETUP = 0x003
    "Stream 0: the channel is unknown, or the server refuses the client."
    CONNECTION_ERROR = 0x101
    "Stream 0: a rule was broken, and the connection ends. On a message: its id is in use (R-19)."
    APPLICATION_ERROR = 0x201
    "A message: the application ends the session."


_REFUSALS = (Code.INVALID_SETUP, Code.REJECTED_SETUP)


def name_of(code: int) -> str:
    """Return the code's name, or ``0x00000301`` for a code without a name."""
    try:
        return Code(code).name
    except ValueError:
        return f"0x{code:08X}"


def error_for(code: int, data: bytes, stream: int, limits: Limits) -> Error:
    """Return the error for a received ERROR frame, to put into an event: about the connection if ``stream`` is 0, else
    the end of that session. ``data`` may be any bytes; an unknown code stays a number."""
    text = clean_text(data, limits.error_text_bytes[1]) or name_of(code)
    if stream:
        if code == Code.APPLICATION_ERROR:
            return ApplicationError(code, text, stream=stream)
        return RemoteProtocolError(text, code=code, stream=stream, rule="2.3")
    if code in _REFUSALS:
        refused = SetupRefused(text, code=code, stream=0, rule="3.1")
        refused.may_have_been_processed = False
        return refused
    return ConnectionClosed(text, code=code, stream=0, rule="3.1")
