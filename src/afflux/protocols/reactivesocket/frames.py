"""Declare the frames of ReactiveSocket of 2015, in the order of the specification.

``decode`` reads one frame and dispatches on its type. Frames that RSocket has too have the same names there, because
both protocols share one engine. ``states.py`` defines which frame is legal when, ``codes.py`` the error codes.
"""

from __future__ import annotations

from struct import Struct
from typing import Annotated, Any, ClassVar, Final

from afflux.core import dissect
from afflux.core.fields import U32, Data, Flag, Flagged, Sized, Text8, TypeWord, UInt
from afflux.core.frame import Frame, Malformed, UnknownFrame, frame
from afflux.core.framing import LengthPrefix

PREFIX: Final = LengthPrefix(4, inclusive=True, reserved=0x80000000)
"The length of a frame counts its own four bytes (R-2). Transports that delimit messages omit it (R-3)."
HEADER_SIZE: Final = 8
"Bytes of the header without the length: type, flags, stream id (2.1)."
LARGEST_FRAME: Final = 0x7FFFFFFF - 4
"The maximum bytes of a frame, without its length."
CONNECTION_ERROR: Final = 0x11
"The code sent to a peer whose frame ends the connection (R-9, R-10)."

FLAG_IGNORE: Final = 0x8000
FLAG_METADATA: Final = 0x4000
FLAG_FOLLOWS: Final = 0x2000
FLAG_COMPLETE: Final = 0x1000
FLAG_INITIAL_N: Final = 0x0800

_M = Flag("M", FLAG_METADATA)

Ignore = Annotated[bool, Flag("I", FLAG_IGNORE)]
Follows = Annotated[bool, Flag("F", FLAG_FOLLOWS)]
Complete = Annotated[bool, Flag("C", FLAG_COMPLETE)]
Respond = Annotated[bool, Flag("R", 0x2000)]
WantsLease = Annotated[bool, Flag("L", 0x2000)]
Strict = Annotated[bool, Flag("S", 0x1000)]

Demand = Annotated[int, UInt(31, at_least=1, column="n", rule="R-37")]
InitialN = Annotated[int | None, Flagged(flag=Flag("N", FLAG_INITIAL_N), column="n", rule="R-31")]
ErrorCode = Annotated[int, UInt(32, at_least=1, at_most=0xFFFFFFFE, column="code", rule="2.4")]
Metadata = Annotated[bytes | None, Sized(32, flag=_M, inclusive=True, column="metadata", rule="R-5")]


class ReactiveSocketFrame(Frame):
    """The header (2.1): type and flags in one word, then the stream id, except in EXT (R-8)."""

    __slots__ = ()

    PROTOCOL = "reactivesocket"
    LARGEST = LARGEST_FRAME
    PREFIX = PREFIX
    SIZE_RULE = "R-2"

    type_and_flags: ClassVar[Annotated[int, TypeWord(32, shift=16)]]

    @classmethod
    def malformed(cls, reason: str, buffer: bytes, start: int, end: int) -> Malformed:
        """Return the error of a malformed frame: it is ignored whole, whatever its I flag (R-6, D-3)."""
        return Malformed(reason, rule="R-6", stream=_stream_of(buffer, start, end), ignorable=True)


class ConnectionFrame(ReactiveSocketFrame):
    """A frame that belongs on stream 0. On another stream it is decoded and ignored."""

    __slots__ = ()

    stream: U32 = 0
    "0, the connection."


class StreamFrame(ReactiveSocketFrame):
    """A frame that belongs to a stream, whose id its sender must give."""

    __slots__ = ()

    stream: U32
    "The stream id; 0 is the connection."


@frame(0x0001)
class Setup(ConnectionFrame):
    """The client's first frame: the terms of the connection (R-14)."""

    token = None  # this protocol has no resumption

    version: U32 = 0
    "Version of the protocol; only 0 exists (R-19)."
    keepalive_ms: U32 = 500
    "Milliseconds between the client's KEEPALIVE frames (R-24)."
    lifetime_ms: U32 = 90_000
    "Milliseconds of silence after which the client closes; 0: it never does (R-27)."
    metadata_mime: Text8 = "application/octet-stream"
    "MIME type of all metadata; it is not interpreted (R-21)."
    data_mime: Text8 = "application/octet-stream"
    "MIME type of all data; it is not interpreted (R-21)."
    lease: WantsLease = False
    "Both requesters wait for leases (R-16)."
    strict: Strict = False
    "The server must support the MIME types and the payload, or refuse (R-20)."
    metadata: Metadata = None
    "Metadata for the server, such as credentials; None without any."
    data: Data = b""
    "Data for the server."


@frame(0x0002)
class Lease(ConnectionFrame):
    """The sender permits the receiver some requests for some time. A newer lease replaces it."""

    ttl_ms: U32
    "Milliseconds that the lease is valid; 0 stops the receiver (R-48)."
    requests: U32
    "Number of requests; 0 stops the receiver (R-48)."
    metadata: Metadata = None
    "Metadata of the lease; None without any."


@frame(0x0003)
class Keepalive(ConnectionFrame):
    """A sign of life, or the answer to one (R-24, R-25)."""

    respond: Respond = False
    "An answer is requested."
    data: Data = b""
    "Bytes that the answer repeats."


@frame(0x0004)
class RequestResponse(StreamFrame):
    """Request one item."""

    follows: Follows = False
    "More fragments follow; only later 0.1 texts have it (I-6)."
    metadata: Metadata = None
    "Metadata of the request; None without any."
    data: Data = b""
    "Data of the request."


@frame(0x0005)
class RequestFnf(StreamFrame):
    """Request without an answer (fire and forget)."""

    follows: Follows = False
    "More fragments follow; only later 0.1 texts have it (I-6)."
    metadata: Metadata = None
    "Metadata of the request; None without any."
    data: Data = b""
    "Data of the request."


@frame(0x0006)
class RequestStream(StreamFrame):
    """Request a stream of items."""

    initial_n: Demand
    "First credit, in a field without a flag (I-2); 0 is refused (FC-12)."
    follows: Follows = False
    "More fragments follow; only later 0.1 texts have it (I-6)."
    metadata: Metadata = None
    "Metadata of the request; None without any."
    data: Data = b""
    "Data of the request."


@frame(0x0007)
class RequestSub(StreamFrame):
    """Request a stream that never completes (R-35, D-9)."""

    initial_n: Demand
    "First credit; 0 is refused (FC-12)."
    follows: Follows = False
    "More fragments follow; only later 0.1 texts have it (I-6)."
    metadata: Metadata = None
    "Metadata of the request; None without any."
    data: Data = b""
    "Data of the request."


@frame(0x0008)
class RequestChannel(StreamFrame):
    """Open a stream of items in both directions, and every further item of the requester (R-31)."""

    initial_n: InitialN = None
    "First credit, in the frame that opens the channel; None in a later frame."
    follows: Follows = False
    "More fragments follow."
    complete: Complete = False
    "The requester sends no further items."
    metadata: Metadata = None
    "Metadata of the item; None without any."
    data: Data = b""
    "Data of the item."


@frame(0x0009)
class RequestN(StreamFrame):
    """Grant the peer more items on one stream (R-38)."""

    n: Demand
    "Additional items; 0 is ignored (R-37, I-7)."


@frame(0x000A)
class Cancel(StreamFrame):
    """End a stream: its items are no longer wanted."""

    metadata: Metadata = None
    "Metadata of the cancel; None without any."


@frame(0x000B)
class Response(StreamFrame):
    """An item of the responder, the end of a stream, both, or a fragment (R-28 to R-30)."""

    follows: Follows = False
    "More fragments follow."
    complete: Complete = False
    "The responder sends no further items."
    metadata: Metadata = None
    "Metadata of the item; None without any."
    data: Data = b""
    "Data of the item."


@frame(0x000C, "ERROR")
class ErrorFrame(StreamFrame):
    """The stream, or on stream 0 the connection, has failed."""

    code: ErrorCode
    "The error code (``codes.py``); 0 and 0xFFFFFFFF are reserved."
    metadata: Metadata = None
    "Metadata of the error; it has the text if there is no data (R-49)."
    data: Data = b""
    "UTF-8 text for people."


@frame(0x000D)
class MetadataPush(ConnectionFrame):
    """Metadata about the connection (R-51)."""

    metadata: Metadata
    "The metadata; None in a frame that lacks it."


@frame(0xFFFF)
class Ext(ReactiveSocketFrame):
    """A frame of an extension. Its type is at the offset of the stream id in other frames (R-8)."""

    stream = 0

    ignore: Ignore = False
    "A receiver that does not support this frame may skip it (R-9)."
    extended_type: U32
    "The extension's type."
    metadata: Metadata = None
    "Metadata of the extension; None without any."
    body: Data = b""
    "The extension's own bytes."


FRAMES: dict[int, type[ReactiveSocketFrame]] = {
    kind.TYPE: kind
    for kind in tuple(globals().values())
    if isinstance(kind, type) and issubclass(kind, ReactiveSocketFrame) and kind.LAYOUT
}
"Every frame declared above, by its type."

_HEADER = Struct(">HHI")
"Numbers are big endian (R-1, D-1)."


def decode(buffer: bytes, start: int = 0, end: int | None = None) -> ReactiveSocketFrame:
    """Decode the frame at ``buffer[start:end]``, its length not included.

    Raises UnknownFrame for an undeclared type (R-9) and Malformed for an invalid frame (R-6); both have ``ignorable``,
    which is whether the frame may be ignored. Readable but forbidden values, such as an N of 0, are returned.
    """
    if end is None:
        end = len(buffer)
    if end - start < HEADER_SIZE:
        raise Malformed(f"a frame of {end - start} bytes: the header has {HEADER_SIZE}", rule="R-2")
    kind, flags, stream = _HEADER.unpack_from(buffer, start)
    declared = FRAMES.get(kind)
    if declared is None:
        reason = f"frame type 0x{kind:04X} is unknown"
        ignorable = flags & FLAG_IGNORE != 0
        raise UnknownFrame(reason, rule="R-9", code=CONNECTION_ERROR, stream=stream, ignorable=ignorable)
    return declared.decode(buffer, start, end)


def record(
    source: bytes | ReactiveSocketFrame, *, payload: dissect.PayloadForm = "none", **where: Any
) -> dict[str, Any]:
    """Return the frame record of a frame, or of its bytes without the length.

    ``where`` may give ``ts``, ``conn``, ``dir``, ``offset`` and ``length``. Bytes that are not a frame do not raise:
    their record has ``error``.
    """
    return dissect.record_of(source, decode, _glimpse, protocol=ReactiveSocketFrame.PROTOCOL, payload=payload, **where)


def _glimpse(source: bytes) -> tuple[str | None, int | None]:
    """Return the name of the frame that begins with these bytes, and its flags."""
    if len(source) < HEADER_SIZE:
        return None, None
    kind, flags, _ = _HEADER.unpack_from(source)
    return FRAMES[kind].NAME if kind in FRAMES else f"0x{kind:04X}", flags


def _stream_of(buffer: bytes, start: int, end: int) -> int:
    """Return the stream id of a frame that has a header; 0 for EXT, which has none (R-8)."""
    kind, _, stream = _HEADER.unpack_from(buffer, start)
    return 0 if kind == Ext.TYPE else stream
