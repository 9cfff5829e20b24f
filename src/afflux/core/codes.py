"""Error codes of a protocol that numbers them: which error an arriving one becomes, and which one an error sends.

What the numbers are belongs to the protocols; the text of an error without a number is for ``core.texts``.
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
from afflux.core.texts import clean_text, cut, told

__all__ = ["Codes"]


class Codes:
    """The codes of one protocol.

    Args:
        names: its codes; APPLICATION_ERROR, REJECTED, CANCELED and INVALID are among them.
        refusals: those by which a setup is refused.
        application: whether an application may send a code on a stream.
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
        """The code's name, such as ``APPLICATION_ERROR``, or ``0x00000301`` for one without a name."""
        try:
            return self._names(code).name
        except ValueError:
            return f"0x{code:08X}"

    def error_for(self, code: int, data: bytes, stream: int, limits: Limits) -> Error:
        """The error that an arriving ERROR frame becomes: not raised, for the event that carries it.

        ``data`` is cut to ``limits.error_text_bytes`` (what comes in) and may hold anything. A code that has no
        business on a stream is the peer's fault, RemoteProtocolError; one that is not known stays a number.
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
        """The code and the text to send for an error that ended a handler.

        ApplicationError keeps its code and text, Rejected, Canceled and Invalid their text; of anything else the peer
        hears a generic text. The text encodes as UTF-8, to at most ``limits.error_text_bytes`` (what goes out).
        """
        code = next((code for code, kind in self._kinds.items() if isinstance(error, kind)), self._failed)
        # ApplicationError does not check its code: one outside the application's range would say something else.
        if isinstance(error, ApplicationError) and error.code is not None and self._application(error.code):
            code = error.code
        return code, cut(told(error), limits.error_text_bytes[0])
