"""Declare the frames of RSocket 1.0, in the order of the specification.

``decode`` reads one frame and dispatches on its type. See ``states.py``
for when a frame is legal, ``codes.py`` for error codes and ``metadata/`` for metadata.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Final

from afflux.core import dissect
from afflux.core.fields import U16, U31, U63, Data, Flag, Rest, Sized, Text8, TypeWord, UInt
from afflux.core.frame import Frame, Malformed, UnknownFrame, frame

# Final: a compiled build (mypyc) has the numbers in its code, 4 to 12 % of an item's cost.
HEADER_SIZE: Final = 6
"Bytes of the header (2.2)."
LARGEST_FRAME: Final = 0xFFFFFF
"The most bytes of a frame, without its length prefix (R-3)."
CONNECTION_ERROR = 0x101
"The answer to an unreadable frame (R-5, R-7)."

FLAG_IGNORE: Final = 0x200
FLAG_METADATA: Final = 0x100
FLAG_FOLLOWS: Final = 0x080
FLAG_COMPLETE: Final = 0x040
FLAG_NEXT: Final = 0x020

_M = Flag("M", FLAG_METADATA)

Ignore = Annotated[bool, Flag("I", FLAG_IGNORE)]
Follows = Annotated[bool, Flag("F", FLAG_FOLLOWS)]
Complete = Annotated[bool, Flag("C", FLAG_COMPLETE)]
Next = Annotated[bool, Flag("N", FLAG_NEXT)]
Respond = Annotated[bool, Flag("R", 0x080)]
WantsLease = Annotated[bool, Flag("L", 0x040)]

Demand = Annotated[int, UInt(31, at_least=1, column="n", rule="D-5")]
Interval = Annotated[int, UInt(31, at_least=1, rule="R-17")]
ErrorCode = Annotated[int, UInt(32, at_least=1, at_most=0xFFFFFFFE, column="code", rule="2.4")]  # D-3: unsigned
ExtendedType = Annotated[int, UInt(31, at_least=1, rule="D-13")]
Token = Annotated[bytes, Sized(16, at_least=1, secret=True, rule="R-53")]
SetupToken = Annotated[bytes | None, Sized(16, flag=Flag("R", 0x080), at_least=1, secret=True, rule="R-53")]
Metadata = Annotated[bytes | None, Sized(24, flag=_M, column="metadata", rule="R-3")]
LeaseMetadata = Annotated[bytes, Rest(flag=_M, column="metadata")]  # I-4, I-11: to the end, with or without M
PushedMetadata = Annotated[bytes, Rest(flag=_M, always=True, column="metadata")]


class RSocketFrame(Frame):
    """The header (2.2): stream id, then type and flags in one word. Unassigned flags are ignored (R-4)."""

    __slots__ = ()

    PROTOCOL = "rsocket"
    LARGEST = LARGEST_FRAME
    SIZE_RULE = "R-3"

    stream: U31
    "The stream id; 0 is the connection."
    type_and_flags: ClassVar[Annotated[int, TypeWord(16, shift=10)]]
    ignore: Ignore = False
    "Whoever does not understand this frame may skip it."

    @classmethod
    def malformed(cls, reason: str, buffer: bytes, start: int, end: int) -> Malformed:
        """R-7: a connection error unless I is set, which takes a whole header to know."""
        stream, ignorable = _blame(buffer, start, end)
        return Malformed(reason, rule="R-7", code=CONNECTION_ERROR, stream=stream, ignorable=ignorable)


class ConnectionFrame(RSocketFrame):
    """A frame that belongs on stream 0. One on another stream still decodes: R-32 wants it ignored."""

    __slots__ = ()

    stream: U31 = 0
    "0, the connection."


class StreamFrame(RSocketFrame):
    """A frame that belongs to a stream: its sender names it."""

    __slots__ = ()


@frame(0x01)
class Setup(ConnectionFrame):
    """The client's first frame: how the connection is to be."""

    major: U16 = 1
    "Major version; R-16: this is 1.0."
    minor: U16 = 0
    "Minor version."
    keepalive_ms: Interval = 20_000
    "Milliseconds between the client's KEEPALIVE frames (R-18)."
    lifetime_ms: Interval = 90_000
    "Milliseconds of silence after which either side may close (R-22)."
    token: SetupToken = None
    "The resume token, 1 to 65,535 bytes; None: no resumption (flag R)."
    metadata_mime: Text8 = "message/x.rsocket.composite-metadata.v0"
    "MIME type of all metadata on this connection."
    data_mime: Text8 = "application/octet-stream"
    "MIME type of all data on this connection."
    lease: WantsLease = False
    "The client honours leases, and wants the server to (R-13)."
    metadata: Metadata = None  # I-5: composite metadata too
    "Metadata for the server, such as credentials; None if there is none."
    data: Data = b""
    "Data for the server."


@frame(0x02)
class Lease(ConnectionFrame):
    """The sender allows the receiver some requests for some time. A newer one replaces it (R-40)."""

    ttl_ms: U31
    "Milliseconds that the lease is good for; 0 stops the receiver (D-5)."
    requests: U31
    "How many requests; 0 stops the receiver (D-5)."
    metadata: LeaseMetadata = b""
    "Metadata to the end of the frame; no length before it (R-6)."


@frame(0x03)
class Keepalive(ConnectionFrame):
    """A sign of life, or the answer to one (R-18, R-19)."""

    respond: Respond = False
    "An answer is wanted."
    position: U63 = 0
    "The last received position (R-51); 0 without resumption."
    data: Data = b""
    "Bytes that the answer repeats."


@frame(0x04)
class RequestResponse(StreamFrame):
    """Ask for one item."""

    follows: Follows = False
    "More fragments follow."
    metadata: Metadata = None
    "Metadata of the request; None if there is none."
    data: Data = b""
    "Data of the request."


@frame(0x05)
class RequestFnf(StreamFrame):
    """Fire and forget: no answer (R-42, D-11)."""

    follows: Follows = False
    "More fragments follow."
    metadata: Metadata = None
    "Metadata of the request; None if there is none."
    data: Data = b""
    "Data of the request."


@frame(0x06)
class RequestStream(StreamFrame):
    """Ask for a stream of items."""

    initial_n: Demand
    "Items granted with the request; 0 is refused (D-5)."
    follows: Follows = False
    "More fragments follow."
    metadata: Metadata = None
    "Metadata of the request; None if there is none."
    data: Data = b""
    "Data of the request."


@frame(0x07)
class RequestChannel(StreamFrame):
    """Open a stream of items in both directions; this frame carries the first of them (D-8)."""

    initial_n: Demand
    "Items granted with the request; 0 is refused (D-5)."
    follows: Follows = False
    "More fragments follow."
    complete: Complete = False
    "The requester sends no further items."
    metadata: Metadata = None
    "Metadata of the request; None if there is none."
    data: Data = b""
    "Data of the request."


@frame(0x08)
class RequestN(StreamFrame):
    """Grant the peer more items on one stream (R-26)."""

    n: Demand
    "How many more; 0 is refused (D-5)."


@frame(0x09)
class Cancel(StreamFrame):
    """Take nothing more from the stream."""


@frame(0x0A, "PAYLOAD")
class PayloadFrame(StreamFrame):
    """An item, the end of a stream, both, or a fragment (R-30)."""

    follows: Follows = False
    "More fragments follow."
    complete: Complete = False
    "The sender's half is over."
    next: Next = False
    "There is an item."
    metadata: Metadata = None
    "Metadata of the item; None if there is none."
    data: Data = b""
    "Data of the item."


@frame(0x0B, "ERROR")
class ErrorFrame(StreamFrame):
    """The stream, or on stream 0 the connection, has failed."""

    code: ErrorCode
    "The error code (``codes.py``); 0 and 0xFFFFFFFF are reserved."
    data: Data = b""
    "UTF-8 text for people."


@frame(0x0C)
class MetadataPush(ConnectionFrame):
    """Metadata about the connection."""

    metadata: PushedMetadata = b""
    "Metadata to the end of the frame; M is always set, and no length stands before it (R-6)."


@frame(0x0D)
class Resume(ConnectionFrame):
    """The client's first frame on a new transport, which resumes the session of the lost one."""

    major: U16 = 1
    "Major version, as in SETUP (R-52)."
    minor: U16 = 0
    "Minor version, as in SETUP (R-52)."
    token: Token
    "The token of that SETUP."
    last_received_server_position: U63
    "How far the client has received (R-44)."
    first_available_client_position: U63
    "How far back the client can repeat (R-44)."


@frame(0x0E)
class ResumeOk(ConnectionFrame):
    """The server's acceptance of RESUME."""

    last_received_client_position: U63
    "How far the server has received (R-44)."


@frame(0x3F)  # I-11: no SETUP, as a dissector calls it
class Ext(StreamFrame):
    """A frame of an extension."""

    extended_type: ExtendedType
    "Which extension; 0 is malformed (D-13)."
    body: Data = b""
    "The extension's own bytes."


FRAMES: dict[int, type[RSocketFrame]] = {
    kind.TYPE: kind
    for kind in tuple(globals().values())
    if isinstance(kind, type) and issubclass(kind, RSocketFrame) and kind.LAYOUT
}
"Every frame declared above, by its type."

_DECODERS: list[Callable[[bytes, int, int], RSocketFrame] | None] = [
    FRAMES[code].decode if code in FRAMES else None for code in range(0x40)
]


def decode(buffer: bytes, start: int = 0, end: int | None = None) -> RSocketFrame:
    """Read the frame at ``buffer[start:end]``, the length prefix not included.

    Raises UnknownFrame for a type that is not declared (R-5) and Malformed for what cannot be read (R-7); both have
    ``ignorable``. Values that are readable but forbidden, such as an N of 0, are returned.
    """
    if end is None:
        end = len(buffer)
    if end - start < HEADER_SIZE:
        raise RSocketFrame.malformed(f"a frame of {end - start} bytes: the header has 6", buffer, start, end)
    decoder = _DECODERS[buffer[start + 4] >> 2]
    if decoder is None:
        stream, ignorable = _blame(buffer, start, end)
        reason = f"frame type 0x{buffer[start + 4] >> 2:02X} is unknown"
        raise UnknownFrame(reason, rule="R-5", code=CONNECTION_ERROR, stream=stream, ignorable=ignorable)
    return decoder(buffer, start, end)


def record(source: bytes | RSocketFrame, *, payload: dissect.PayloadForm = "none", **where: Any) -> dict[str, Any]:
    """The frame record of a frame, or of its bytes without the length prefix.

    ``where`` may give ``ts``, ``conn``, ``dir``, ``offset`` and ``length``. Bytes that are not a frame do not raise:
    they give a record with ``error``.
    """
    return dissect.record_of(source, decode, _glimpse, protocol=RSocketFrame.PROTOCOL, payload=payload, **where)


def _glimpse(source: bytes) -> tuple[str | None, int | None]:
    """The name of the frame that begins with these bytes, and its flags."""
    if len(source) < HEADER_SIZE:
        return None, None
    code = source[4] >> 2
    return FRAMES[code].NAME if code in FRAMES else f"0x{code:02X}", source[4] << 8 | source[5]


def _blame(buffer: bytes, start: int, end: int) -> tuple[int, bool]:
    """The stream id and the I flag, as far as there are bytes."""
    if end - start < HEADER_SIZE:
        return 0, False
    stream = int.from_bytes(buffer[start : start + 4], "big") & 0x7FFFFFFF
    return stream, buffer[start + 4] & 0x02 != 0


# Header words of PAYLOAD for senders: the type and the flags.

_PAYLOAD: Final = 0x0A << 10
NEXT: Final = _PAYLOAD | FLAG_NEXT
NEXT_COMPLETE: Final = NEXT | FLAG_COMPLETE
COMPLETE: Final = _PAYLOAD | FLAG_COMPLETE
