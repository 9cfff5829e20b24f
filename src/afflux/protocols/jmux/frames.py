"""Declare the messages of Jmux, once each, in the order of the specification.

``decode`` reads one message and dispatches on its first byte, ``size_at`` returns the length of one; ``data_head`` is
the sender's fast path. ``states.py`` decides which message is legal when.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Annotated, Any, ClassVar

from afflux.core import dissect
from afflux.core.fields import U16, Flag, Sized, TypeWord, UInt
from afflux.core.frame import Frame, Malformed, frame

MAGIC = b"Jmux"
"First four bytes of both sides."
HEADER_BYTES = 8
"Bytes of a connection header."
_TOLERATED = 0x01
"A flag in byte 7 of a client's header that the Java original calls negotiate."
STEPS_256 = 256
"The unit of the initial ration (R-4)."
LARGEST_INCREMENT = 0xFFFF
LARGEST_SHIFT = 7

OPEN, CLOSE, EOF, ACK_REQUIRED = 0x10, 0x08, 0x04, 0x02
"Flags of Data."

UNPACK = Struct(">BBH").unpack_from
"The header of every message: first byte, session or reserved byte, length or value."
_PACK = Struct(">BBH").pack

Reserved8 = Annotated[int, UInt(8, at_most=0, rule="R-10")]
Reserved16 = Annotated[int, UInt(16, at_most=0, rule="R-10")]
SessionId = Annotated[int, UInt(8, column="stream", rule="R-11")]
Detail = Annotated[bytes, Sized(16, column="data", rule="R-15")]
Bytes = Annotated[bytes, Sized(16, column="data")]
Value = Annotated[int, UInt(16, column="n")]


class JmuxFrame(Frame):
    """Common base of all messages and both connection headers."""

    __slots__ = ()

    PROTOCOL = "jmux"
    LARGEST = 0x10003


# -- connection headers ---------------------------------------------------------------------------------------


class ConnectionHeader(JmuxFrame):
    """First bytes of each side, sent once."""

    __slots__ = ()

    magic: ClassVar[Annotated[int, TypeWord(32, shift=0)]]
    version: Annotated[int, UInt(8)] = 1
    "The version; 1."
    initial_ration: U16
    "What the receiver may send on each new session, in steps of 256 bytes; 0 is unlimited (R-4)."
    reserved: Annotated[int, UInt(8)] = 0
    "0; in a client's header bit 0x01 is tolerated (D-1)."


@frame(0x4A6D7578, "ClientConnectionHeader")
class ClientConnectionHeader(ConnectionHeader):
    """Header of the client, and all that it sends before the server has answered (R-1)."""


@frame(0x4A6D7578, "ServerConnectionHeader")
class ServerConnectionHeader(ConnectionHeader):
    """The server's answer (R-2)."""


# -- messages about the connection ----------------------------------------------------------------------------


class ConnectionMessage(JmuxFrame):
    """Common base of the messages about the connection."""

    __slots__ = ()

    kind: ClassVar[Annotated[int, TypeWord(8, shift=0)]]
    reserved: Reserved8 = 0
    "0."


@frame(0x00, "NoOperation")
class NoOperation(ConnectionMessage):
    """Padding that the receiver skips (R-12)."""

    data: Bytes = b""
    "Bytes to skip."


@frame(0x02, "Shutdown")
class Shutdown(ConnectionMessage):
    """Last message of a server: nothing of the unfinished sessions was processed (R-7, R-30)."""

    detail: Detail = b""
    "UTF-8 text for people."


@frame(0x04, "Ping")
class Ping(ConnectionMessage):
    """Request for a PingAck."""

    cookie: Value
    "Value that the answer repeats."


@frame(0x06, "PingAck")
class PingAck(ConnectionMessage):
    """Answer to a Ping (R-13, R-14)."""

    cookie: Value
    "The cookie of the Ping."


@frame(0x08, "Error")
class ErrorMessage(ConnectionMessage):
    """Last message of a sender whose peer has broken a rule (R-7)."""

    detail: Detail = b""
    "UTF-8 text for people."


# -- messages about a session ---------------------------------------------------------------------------------


@frame(0x01, "IncrementRation")
class IncrementRation(JmuxFrame):
    """Grant the receiver more bytes on a session; the text also calls it IncrementMessage (D-13)."""

    kind: ClassVar[Annotated[int, TypeWord(8, shift=4)]]
    shift_4: Annotated[bool, Flag("4", 0x08)] = False
    "Add 4 to the shift."
    shift_2: Annotated[bool, Flag("2", 0x04)] = False
    "Add 2 to the shift."
    shift_1: Annotated[bool, Flag("1", 0x02)] = False
    "Add 1 to the shift."
    session: SessionId
    "The session."
    increment: Value
    "Size of the grant, before it is shifted."

    @property
    def shift(self) -> int:
        """The three bits as a number; each unit shifts by two places (D-14)."""
        return 4 * self.shift_4 + 2 * self.shift_2 + self.shift_1

    @property
    def size(self) -> int:
        """Bytes that are added to the ration."""
        return self.increment << 2 * self.shift


@frame(0x08, "Abort")
class Abort(JmuxFrame):
    """Announce that the sender has ended the session and sends no more about it (R-28, R-29)."""

    kind: ClassVar[Annotated[int, TypeWord(8, shift=2)]]
    partial: Annotated[bool, Flag("p", 0x02)] = False
    "Server only: the request may have been processed (R-30)."
    session: SessionId
    "The session."
    detail: Detail = b""
    "UTF-8 text for people; it may be missing (I-8)."


class SessionMessage(JmuxFrame):
    """Common base of the messages that have only a session."""

    __slots__ = ()

    kind: ClassVar[Annotated[int, TypeWord(8, shift=0)]]
    session: SessionId
    "The session."
    reserved: Reserved16 = 0
    "0."


@frame(0x30, "Close")
class Close(SessionMessage):
    """Announce that the server is done with a session that it has finished (R-26)."""


@frame(0x40, "Acknowledgment")
class Acknowledgment(SessionMessage):
    """Announce that the client has processed the whole response (R-42, R-43)."""


@frame(0x04, "Data")
class Data(JmuxFrame):
    """Carry the next bytes of a request or a response."""

    kind: ClassVar[Annotated[int, TypeWord(8, shift=5)]]
    open: Annotated[bool, Flag("o", OPEN)] = False
    "Client only: a new session (R-17, R-19)."
    close: Annotated[bool, Flag("c", CLOSE)] = False
    "Server only, with eof: means that Close followed (R-18, R-24)."
    eof: Annotated[bool, Flag("e", EOF)] = False
    "The sender has finished."
    ack_required: Annotated[bool, Flag("a", ACK_REQUIRED)] = False
    "Server only, with eof: request an Acknowledgment (R-18)."
    session: SessionId
    "The session."
    data: Bytes = b""
    "The bytes (R-16: may be empty)."


FRAMES: dict[int, type[JmuxFrame]] = {
    kind.TYPE << kind.WORD.shift: kind
    for kind in tuple(globals().values())
    if isinstance(kind, type) and issubclass(kind, JmuxFrame) and kind.LAYOUT and not issubclass(kind, ConnectionHeader)
}
"Every message declared above, by its first byte with all flags clear."

_SIZED = frozenset(kind for kind in FRAMES.values() if any(isinstance(field.kind, Sized) for field in kind.FIELDS))
"Messages whose last two header bytes are a length."


def _by_first_byte() -> list[type[JmuxFrame] | None]:
    """Return the message that each first byte begins: the bit patterns decide, not the ranges (R-9, D-4)."""
    known: list[type[JmuxFrame] | None] = [None] * 256
    for first, kind in FRAMES.items():
        flags = sum(flag.bit for flag, _ in kind.FLAGS)
        for byte in range(256):
            if byte & ~flags == first:
                known[byte] = kind
    return known


_KINDS = _by_first_byte()


def kind_of(first: int) -> type[JmuxFrame] | None:
    """Return the message that a first byte begins, or None."""
    return _KINDS[first]


def size_at(buffer: bytes, start: int = 0) -> int | None:
    """Return the size of the message at ``start``, its header included; None while its header is incomplete.

    Raises Malformed for a first byte that no message has (R-9).
    """
    if len(buffer) - start < 4:
        return None
    first, _, length = UNPACK(buffer, start)
    kind = _KINDS[first]
    if kind is None:
        raise _malformed(f"no message begins with 0x{first:02X}", "R-9")
    return 4 + length if kind in _SIZED else 4


def decode(buffer: bytes, start: int = 0, end: int | None = None) -> JmuxFrame:
    """Read the message at ``buffer[start:end]``, from either sender.

    Raises Malformed for a first byte that no message has (R-9), a reserved byte that is not 0 (R-10), and a length that
    differs from the size of the message.
    """
    if end is None:
        end = len(buffer)
    size = size_at(buffer[: start + 4], start) if end - start >= 4 else None
    if size is None or start + size > end:
        raise _malformed(f"a message of {end - start} bytes is cut short", "truncated")
    kind = _KINDS[buffer[start]]
    decoder: Callable[[bytes, int, int], JmuxFrame] = kind.decode  # type: ignore[union-attr]  # size_at has looked
    decoded = decoder(buffer, start, end)
    if getattr(decoded, "reserved", 0):
        raise _malformed(f"{decoded.NAME}: a reserved byte is not 0", "R-10")
    return decoded


def decode_header(data: bytes, *, client: bool) -> ConnectionHeader:
    """Read a connection header. Only the magic must be right; the engine judges the rest."""
    if len(data) != HEADER_BYTES or data[:4] != MAGIC:
        raise _malformed(f"a connection header is 8 bytes that begin with Jmux, not {data[:8]!r}", "R-3")
    kind: type[ConnectionHeader] = ClientConnectionHeader if client else ServerConnectionHeader
    return kind.decode(data, 0, HEADER_BYTES)


def wrong_header(data: bytes, client: bool) -> str:
    """Return what is wrong with a connection header, or with its first bytes; "" if correct (R-3, D-1, I-1, I-4)."""
    magic = data[:4]
    if magic != MAGIC[: len(magic)]:
        return f"a connection begins with Jmux, not with {magic.hex(' ')}"
    reserved = data[7] if len(data) > 7 else None
    if len(data) > 4 and data[4] != 1:
        newer = client and data[4] > 1
        if not newer or (reserved is not None and reserved != _TOLERATED):
            return f"version {data[4]} is not supported; supported: 1"
    if reserved and not (client and reserved == _TOLERATED):
        return f"byte 7 of the header is 0x{reserved:02X}, not 0"
    return ""


def _malformed(reason: str, rule: str) -> Malformed:
    return Malformed(reason, rule=rule)


def record(source: bytes | JmuxFrame, *, payload: dissect.PayloadForm = "none", **where: Any) -> dict[str, Any]:
    """Return the frame record of a message, or of its bytes.

    ``where`` may give ``ts``, ``conn``, ``dir``, ``offset`` and ``length``. Bytes that are not a message do not raise:
    they give a record with ``error``.
    """
    return dissect.record_of(source, decode, _glimpse, protocol=JmuxFrame.PROTOCOL, payload=payload, **where)


def _glimpse(source: bytes) -> tuple[str | None, int | None]:
    """Return the name of a message that begins with these bytes. Its flags are fields of the message."""
    kind = _KINDS[source[0]] if source else None
    return kind.NAME if kind else f"0x{source[0]:02X}" if source else None, None


# -- the sender's fast path -----------------------------------------------------------------------------------


def data_head(flags: int, session: int, length: int) -> bytes:
    """Return the header of one Data message; its bytes follow."""
    return _PACK(0x80 | flags, session, length)


def increments(session: int, size: int) -> bytes:
    """Return IncrementRation messages that add exactly ``size``: without shift where it fits, else the smallest shift
    that does, and the remainder in another message (D-10)."""
    parts: list[bytes] = []
    while size:
        shift = 0
        while shift < LARGEST_SHIFT and size >> 2 * shift > LARGEST_INCREMENT:
            shift += 1
        value = min(size >> 2 * shift, LARGEST_INCREMENT)
        parts.append(_PACK(0x10 | shift << 1, session, value))
        size -= value << 2 * shift
    return b"".join(parts)
