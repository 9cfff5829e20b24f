"""Declare the frames of Limit-Stream, in the order of section 2.3 of the specification.

``decode`` reads one frame and dispatches on its type. See ``states.py`` for when a frame is legal, and ``ids.py`` for
the numbers of messages.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Final

from afflux.core import dissect
from afflux.core.fields import U31, Data, Flag, Sized, TypeWord, UInt
from afflux.core.frame import Frame, Malformed, UnknownFrame, frame, trailing

__all__ = [
    "FLAG_IGNORE",
    "FLAG_METADATA",
    "FRAMES",
    "HEADER_SIZE",
    "LARGEST_FRAME",
    "Choose",
    "End",
    "ErrorFrame",
    "Ext",
    "LimitFrame",
    "PayloadFrame",
    "Setup",
    "decode",
    "record",
]

HEADER_SIZE: Final = 6
"Bytes of the header (R-4)."
LARGEST_FRAME: Final = 0xFFFFFF
"The most bytes of a frame, without its length prefix (R-3)."

FLAG_IGNORE: Final = 0x200
FLAG_METADATA: Final = 0x100

Ignore = Annotated[bool, Flag("I", FLAG_IGNORE)]
# data runs to the end, so empty data takes no bytes. R-12, D-4: no frame has metadata alone.
Metadata = Annotated[bytes | None, Sized(24, flag=Flag("M", FLAG_METADATA), column="metadata", rule="R-9")]
ErrorCode = Annotated[int, UInt(32, column="code")]


class LimitFrame(Frame):
    """The header (2.2): a message's number, then type and flags in one word (R-4, R-5). I and M have room on every
    frame (R-7); unassigned flags are 0 when sent and ignored when received (R-6)."""

    __slots__ = ()

    PROTOCOL = "limit"
    LARGEST = LARGEST_FRAME
    SIZE_RULE = "R-3"

    stream: U31
    "The number of this message; 0 is the connection."
    type_and_flags: ClassVar[Annotated[int, TypeWord(16, shift=10)]]
    ignore: Ignore = False
    "A receiver that does not understand this frame may skip it."

    @classmethod
    def malformed(cls, reason: str, buffer: bytes, start: int, end: int) -> Malformed:
        """R-10: a connection error, unless I is set (D-4)."""
        id, ignorable = _blame(buffer, start, end)
        return Malformed(reason, rule="R-10", stream=id, ignorable=ignorable)


class ConnectionFrame(LimitFrame):
    """A frame about the connection or its session, which has no number (R-23)."""

    __slots__ = ()

    stream: U31 = 0
    "0, the connection."


@frame(0x01)
class Setup(ConnectionFrame):
    """Open a session of a channel."""

    metadata: Metadata = None
    "The channel's name in UTF-8; M is always set."
    data: Data = b""
    "Data for the channel's application."


@frame(0x0A, "PAYLOAD")
class PayloadFrame(LimitFrame):
    """Send one value (R-32)."""

    metadata: Metadata = None
    "Metadata of the message; None if there is none."
    data: Data = b""
    "One value in MessagePack (2.4)."


@frame(0x0B, "ERROR")
class ErrorFrame(ConnectionFrame):
    """End the connection (on 0), or the session after message N (on N+1)."""

    code: ErrorCode
    "The error code (codes.py)."
    data: Data = b""
    "UTF-8 text for people."


@frame(0x10)
class Choose(LimitFrame):
    """Pick a branch of the session type."""

    metadata: Metadata = None
    "Metadata of the message; None if there is none."
    data: Data = b""
    "The branch, counted from 0, as an unsigned MessagePack integer."


@frame(0x11)
class End(ConnectionFrame):
    """End the session in order, after its last message (R-29)."""


@frame(0x3F)
class Ext(LimitFrame):
    """A frame of an extension. None is defined: it is skipped if I is set."""

    extended_type: U31
    "The type of the extension."
    body: Data = b""
    "The extension's own bytes."


# D-1: RSocket's types where a frame has the same name.
FRAMES: dict[int, type[LimitFrame]] = {kind.TYPE: kind for kind in (Setup, PayloadFrame, ErrorFrame, Choose, End, Ext)}
"Every frame by its type."

_DECODERS: list[Callable[[bytes, int, int], LimitFrame] | None] = [
    FRAMES[code].decode if code in FRAMES else None for code in range(0x40)
]


def decode(buffer: bytes, start: int = 0, end: int | None = None) -> LimitFrame:
    """Read the frame at ``buffer[start:end]``, the length prefix not included.

    Raises:
        UnknownFrame: the type is not declared (R-8).
        Malformed: it cannot be read, or bytes follow its end (R-8, R-10). Both have ``ignorable``.
    """
    if end is None:
        end = len(buffer)
    if end - start < HEADER_SIZE:
        raise LimitFrame.malformed(f"a frame of {end - start} bytes: the header has 6", buffer, start, end)
    decoder = _DECODERS[buffer[start + 4] >> 2]
    if decoder is None:
        id, ignorable = _blame(buffer, start, end)
        reason = f"frame type 0x{buffer[start + 4] >> 2:02X} is unknown"
        raise UnknownFrame(reason, rule="R-8", stream=id, ignorable=ignorable)
    found = decoder(buffer, start, end)
    if rest := trailing(found, start, end):
        raise found.malformed(f"{found.NAME} is followed by {rest} bytes", buffer, start, end)
    return found


def record(source: bytes | LimitFrame, *, payload: dissect.PayloadForm = "none", **where: Any) -> dict[str, Any]:
    """Return the frame record of a frame, or of its bytes without the length prefix. Bytes that are not a frame do not
    raise: their record has ``error``. See core.dissect for ``where``."""
    return dissect.record_of(source, decode, _glimpse, protocol=LimitFrame.PROTOCOL, payload=payload, **where)


def _glimpse(source: bytes) -> tuple[str | None, int | None]:
    """Return the name and the flags of the frame that begins with these bytes."""
    if len(source) < HEADER_SIZE:
        return None, None
    code = source[4] >> 2
    return FRAMES[code].NAME if code in FRAMES else f"0x{code:02X}", source[4] << 8 | source[5]


def _blame(buffer: bytes, start: int, end: int) -> tuple[int, bool]:
    """Return the id and the I flag, as far as there are bytes."""
    if end - start < HEADER_SIZE:
        return 0, False
    id = int.from_bytes(buffer[start : start + 4], "big") & 0x7FFFFFFF
    return id, buffer[start + 4] & 0x02 != 0
