"""Map the error codes of a protocol to errors, and errors to codes.

Each protocol defines its numbers; ``core.texts`` prepares the texts.
"""

from __future__ import annotations

from collections.abc import Callable
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
from afflux.core.texts import clean_text, cut, public_text

__all__ = ["Codes"]


class Codes:
    """The codes of one protocol.

    Args:
        names: the codes, APPLICATION_ERROR, REJECTED, CANCELED and INVALID among them.
        refusals: the codes that refuse a setup.
        application: returns whether an application may send a code on a stream.
    """

    def __init__(self, names: type[IntEnum], refusals: range, application: Callable[[int], bool]) -> None:
        self._names = names
        self._refusals = refusals
        self._application = application
        self._failed = int(names["APPLICATION_ERROR"])
        self._kinds: dict[int, type[Error]] = {
            int(names["REJECTED"]): Rejected,
            int(names["CANCELED"]): Canceled,
            int(names["INVALID"]): Invalid,
        }

    def name_of(self, code: int) -> str:
        """Return the code's name, such as ``APPLICATION_ERROR``, or ``0x00000301`` for a code without a name."""
        try:
            return self._names(code).name
        except ValueError:
            return f"0x{code:08X}"

    def error_for(self, code: int, data: bytes, stream: int, limits: Limits) -> Error:
        """Return the error for a received ERROR frame, to put into an event.

        ``data`` may be any bytes and is cut to ``limits.error_text_bytes`` (inbound). A code that is not allowed on a
        stream becomes RemoteProtocolError; an unknown code stays a number.
        """
        text = clean_text(data, limits.error_text_bytes[1])
        if not stream:
            connection_error = SetupRefused if code in self._refusals else ConnectionClosed
            return connection_error(text or self.name_of(code), code=code, stream=0, rule="2.4")
        if self._application(code):
            return ApplicationError(code, text, stream=stream)
        stream_error = self._kinds.get(code, RemoteProtocolError)
        return stream_error(text or self.name_of(code), code=code, stream=stream, rule="2.4")

    def code_for(self, error: BaseException, limits: Limits) -> tuple[int, str]:
        """Return the code and the text to send for an error that ended a handler.

        ApplicationError keeps its code and text; Rejected, Canceled and Invalid keep their text; any other error gets
        a generic text. The text takes at most ``limits.error_text_bytes`` (outbound) in UTF-8.
        """
        code = next((code for code, kind in self._kinds.items() if isinstance(error, kind)), self._failed)
        # ApplicationError does not check its code; outside the application's range it would have another meaning.
        if isinstance(error, ApplicationError) and error.code is not None and self._application(error.code):
            code = error.code
        return code, cut(public_text(error), limits.error_text_bytes[0])
