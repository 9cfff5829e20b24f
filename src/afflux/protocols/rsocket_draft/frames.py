"""Declare the frames of the extensible draft, in the order of the specification (2.1, 2.2).

``decode`` reads one frame and dispatches on its type. Frames that the draft does not change have RSocket's
declarations. See ``states.py`` for when a frame is legal, and ``entries.py`` for chains of extension entries.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Final

from afflux.core import dissect
from afflux.core.fields import U16, U31, Data, Flag, Sized, TypeWord, UInt
from afflux.core.frame import Frame, Malformed, UnknownFrame, frame
from afflux.protocols.rsocket import frames as v1
from afflux.protocols.rsocket.frames import (
    CONNECTION_ERROR,
    FLAG_METADATA,
    HEADER_SIZE,
    LARGEST_FRAME,
)
from afflux.protocols.rsocket_draft.compact import CompactType
from afflux.protocols.rsocket_draft.entries import KEEPALIVE, LEASE, RESUME, Entry, NotUnderstood, Point
from afflux.protocols.rsocket_draft.fields import Chain, Mime
from afflux.protocols.rsocket_draft.payloads import session_of, shown, times_of

EXTENSIONS: Final = 0x200
"X of most frames: a chain of extension entries is present."
FLAG_CHAIN: Final = 0x080
"X of EXT (D-8)."
DATA_MIME: Final = 0x010
METADATA_MIME: Final = 0x008
_INVALID_SETUP: Final = 0x001
_UNSUPPORTED_SETUP: Final = 0x002
_INVALID: Final = 0x204
_EXT: Final = 0x3F

_X = Flag("X", EXTENSIONS)
_M = Flag("M", FLAG_METADATA)

Extensions = Annotated[tuple[Entry, ...], Chain(_X)]  # D-5: data has no length, so the chain comes first
ChainOnly = Annotated[tuple[Entry, ...], Chain(Flag("X", FLAG_CHAIN))]
MimeType = Annotated[str, Mime()]
DataMime = Annotated[str | None, Mime(Flag("D", DATA_MIME))]
MetadataMime = Annotated[str | None, Mime(Flag("MM", METADATA_MIME))]
Acknowledge = Annotated[bool, Flag("A", 0x080)]
Metadata = Annotated[bytes | None, Sized(24, flag=_M, column="metadata", rule="RSocket R-3")]
Demand = Annotated[int, UInt(31, at_least=1, column="n", rule="RSocket D-5")]
ErrorCode = Annotated[int, UInt(32, at_least=1, at_most=0xFFFFFFFE, column="code", rule="RSocket 2.4")]
ExtendedType = Annotated[int, UInt(31, at_least=1, rule="R-10")]


class DraftFrame(Frame):
    """The header, as in RSocket (2.2): stream id, then type and flags in one word."""

    __slots__ = ()

    PROTOCOL = "rsocket-draft"
    LARGEST = LARGEST_FRAME
    SIZE_RULE = "RSocket R-3"
    POINT: ClassVar[Point] = Point.STREAM
    "The place of the frame's chain."

    stream: U31
    "The stream id; 0 is the connection."
    type_and_flags: ClassVar[Annotated[int, TypeWord(16, shift=10)]]

    @classmethod
    def malformed(cls, reason: str, buffer: bytes, start: int, end: int, rule: str = "RSocket R-7") -> Malformed:
        """A connection error: 0x200 is no ignore flag on these frames (R-4)."""
        return Malformed(reason, rule=rule, code=CONNECTION_ERROR, stream=_stream(buffer, start, end))

    @classmethod
    def not_understood(cls, reason: str, buffer: bytes, start: int, end: int) -> Malformed:
        """The code depends on the point (R-18, D-7)."""
        return NotUnderstood(reason, rule="R-18", code=_REFUSALS[cls.POINT], stream=_stream(buffer, start, end))


_REFUSALS: Final = {
    Point.SETUP: _UNSUPPORTED_SETUP,
    Point.SETUP_OK: CONNECTION_ERROR,
    Point.EXT: CONNECTION_ERROR,
    Point.STREAM: _INVALID,
}


class ConnectionFrame(DraftFrame):
    """A frame that belongs on stream 0."""

    __slots__ = ()

    stream: U31 = 0
    "0, the connection."


@frame(0x01)
class Setup(ConnectionFrame):
    """The client's first frame. Data and metadata have MIME types; extensions have the rest of the terms."""

    POINT = Point.SETUP

    data_mime: MimeType = "application/octet-stream"
    "MIME type of all data without an override (R-2)."
    metadata_mime: MimeType = "message/x.rsocket.composite-metadata.v0"
    "MIME type of all metadata without an override."
    major: U16 = 2
    "Major version (R-3, D-1)."
    minor: U16 = 0
    "Minor version."
    ack: Acknowledge = False
    "The client wants SETUP_OK (R-21)."
    extensions: Extensions = ()
    "The extensions that the client offers."
    metadata: Metadata = None
    "Metadata for the server, such as credentials; None if there is none."
    data: Data = b""
    "Data for the server."

    # What the family reads of a setup, from the entries.

    def entry(self, number: CompactType) -> Entry | None:
        """Return the entry of an extension, or None."""
        return next((entry for entry in self.extensions if entry.number == number), None)

    @property
    def keepalive_ms(self) -> int:
        """Milliseconds between keepalives; 0 without the extension."""
        entry = self.entry(KEEPALIVE)
        return times_of(entry).interval_ms if entry else 0

    @property
    def lifetime_ms(self) -> int:
        """Milliseconds of silence; 0 without the extension."""
        entry = self.entry(KEEPALIVE)
        return times_of(entry).lifetime_ms if entry else 0

    @property
    def lease(self) -> bool:
        """Whether the client offers leases."""
        return self.entry(LEASE) is not None

    @property
    def token(self) -> bytes | None:
        """The token of the session; None without resumption."""
        entry = self.entry(RESUME)
        return session_of(entry).token if entry else None


@frame(0x04)
class RequestResponse(DraftFrame):
    """Ask for one item."""

    follows: v1.Follows = False
    "More fragments follow."
    extensions: Extensions = ()
    "Extension entries."
    metadata: Metadata = None
    "Metadata of the request; None if there is none."
    data: Data = b""
    "Data of the request."


@frame(0x05)
class RequestFnf(DraftFrame):
    """Fire and forget: no answer."""

    follows: v1.Follows = False
    "More fragments follow."
    extensions: Extensions = ()
    "Extension entries."
    metadata: Metadata = None
    "Metadata of the request; None if there is none."
    data: Data = b""
    "Data of the request."


@frame(0x06)
class RequestStream(DraftFrame):
    """Ask for a stream of items."""

    initial_n: Demand
    "Items granted with the request; 0 is refused."
    follows: v1.Follows = False
    "More fragments follow."
    extensions: Extensions = ()
    "Extension entries."
    metadata: Metadata = None
    "Metadata of the request; None if there is none."
    data: Data = b""
    "Data of the request."


@frame(0x07)
class RequestChannel(DraftFrame):
    """Open a stream of items in both directions; this frame carries the first of them."""

    initial_n: Demand
    "Items granted with the request; 0 is refused."
    follows: v1.Follows = False
    "More fragments follow."
    complete: v1.Complete = False
    "The requester sends no further items."
    extensions: Extensions = ()
    "Extension entries."
    metadata: Metadata = None
    "Metadata of the request; None if there is none."
    data: Data = b""
    "Data of the request."


@frame(0x08)
class RequestN(DraftFrame):
    """Grant the peer more items on one stream."""

    n: Demand
    "How many more; 0 is refused."
    extensions: Extensions = ()
    "Extension entries."


@frame(0x09)
class Cancel(DraftFrame):
    """Take nothing more from the stream."""

    extensions: Extensions = ()
    "Extension entries."


@frame(0x0A, "PAYLOAD")
class PayloadFrame(DraftFrame):
    """An item, the end of a stream, both, or a fragment. Without X, D and MM it is RSocket's (R-7)."""

    follows: v1.Follows = False
    "More fragments follow."
    complete: v1.Complete = False
    "The sender's half is over."
    next: v1.Next = False
    "There is an item."
    extensions: Extensions = ()
    "Extension entries, before the MIME types (R-5)."
    data_mime: DataMime = None
    "MIME type of this item's data; None for the connection's (R-6, R-8, D-3)."
    metadata_mime: MetadataMime = None
    "MIME type of this item's metadata; None for the connection's."
    metadata: Metadata = None
    "Metadata of the item; None if there is none."
    data: Data = b""
    "Data of the item."


@frame(0x0B, "ERROR")
class ErrorFrame(DraftFrame):
    """The stream, or on stream 0 the connection, has failed. It has no chain (D-4)."""

    code: ErrorCode
    "The error code; 0 and 0xFFFFFFFF are reserved."
    data: Data = b""
    "UTF-8 text for people."


@frame(0x0F)
class SetupOk(ConnectionFrame):
    """The server's acceptance of SETUP, if the client wants one (R-21, D-9)."""

    POINT = Point.SETUP_OK

    extensions: Extensions = ()
    "The accepted extensions that wanted an acknowledgement, or whose answer has content (R-22)."
    metadata: Metadata = None
    "Metadata for the client; None if there is none."
    data: Data = b""
    "Data for the client."


@frame(_EXT, "EXT")
class ExtChain(ConnectionFrame):
    """Extension entries that belong to no other frame (R-9)."""

    POINT = Point.EXT

    extensions: ChainOnly
    "The entries, one or more. There is no Extended Type."


# -- frames that the draft does not change (D-10) -------------------------------------------------------------


class Lease(v1.Lease):
    """RSocket's LEASE; ignored once the lease extension is negotiated (R-34)."""

    __slots__ = ()
    PROTOCOL = DraftFrame.PROTOCOL


class Keepalive(v1.Keepalive):
    """RSocket's KEEPALIVE; ignored once the keepalive extension is negotiated (R-29)."""

    __slots__ = ()
    PROTOCOL = DraftFrame.PROTOCOL


class MetadataPush(v1.MetadataPush):
    """Metadata about the connection."""

    __slots__ = ()
    PROTOCOL = DraftFrame.PROTOCOL


class Resume(v1.Resume):
    """RSocket's RESUME, which is refused."""

    __slots__ = ()
    PROTOCOL = DraftFrame.PROTOCOL


class ResumeOk(v1.ResumeOk):
    """RSocket's RESUME_OK."""

    __slots__ = ()
    PROTOCOL = DraftFrame.PROTOCOL


class Ext(v1.Ext):
    """RSocket's EXT: X is clear, and the Extended Type is above 0 (R-10)."""

    __slots__ = ()
    PROTOCOL = DraftFrame.PROTOCOL


FRAMES: dict[int, Any] = {
    kind.TYPE: kind
    for kind in tuple(globals().values())
    if isinstance(kind, type) and issubclass(kind, Frame) and kind.LAYOUT and kind is not ExtChain
}
"Every frame by its type; EXT with X is ``ExtChain``."

AnyFrame = DraftFrame | v1.RSocketFrame


def _ext(buffer: bytes, start: int, end: int) -> AnyFrame:
    """Read an EXT of either form. With X it ends with its chain, and M is clear (R-9)."""
    if not buffer[start + 5] & FLAG_CHAIN:
        return Ext.decode(buffer, start, end)
    found = ExtChain.decode(buffer, start, end)
    if buffer[start + 4] << 8 & FLAG_METADATA:
        raise ExtChain.malformed("EXT with a chain has no metadata", buffer, start, end, "R-9")
    if left := end - start - found.encoded_size:
        raise ExtChain.malformed(f"EXT has {left} bytes after its chain", buffer, start, end, "R-9")
    return found


_DECODERS: list[Callable[[bytes, int, int], AnyFrame] | None] = [
    _ext if code == _EXT else FRAMES[code].decode if code in FRAMES else None for code in range(0x40)
]


def decode(buffer: bytes, start: int = 0, end: int | None = None) -> AnyFrame:
    """Read the frame at ``buffer[start:end]``, the length prefix not included.

    Raises UnknownFrame for a type that is not declared, NotUnderstood for an extension that may not be ignored
    (R-18), and Malformed for what cannot be read; all have ``ignorable``. Values that are readable but forbidden, such
    as an N of 0, are returned.
    """
    if end is None:
        end = len(buffer)
    if end - start < HEADER_SIZE:
        raise DraftFrame.malformed(f"a frame of {end - start} bytes: the header has 6", buffer, start, end)
    decoder = _DECODERS[buffer[start + 4] >> 2]
    if decoder is None:
        ignorable = buffer[start + 4] & 0x02 != 0
        reason = f"frame type 0x{buffer[start + 4] >> 2:02X} is unknown"
        stream = _stream(buffer, start, end)
        raise UnknownFrame(reason, rule="RSocket R-5", code=CONNECTION_ERROR, stream=stream, ignorable=ignorable)
    return decoder(buffer, start, end)


def record(source: bytes | AnyFrame, *, payload: dissect.PayloadForm = "none", **where: Any) -> dict[str, Any]:
    """Return the frame record of a frame, or of its bytes without the length prefix; see core.dissect.

    Each extension entry is an object with its name, its flags and the content of its payload.
    """
    row = dissect.record_of(source, decode, _glimpse, protocol=DraftFrame.PROTOCOL, payload=payload, **where)
    point = _POINTS.get(row["type"], Point.STREAM)
    if "extensions" in row["fields"]:
        row["fields"]["extensions"] = [shown(entry, point, payload) for entry in row["fields"]["extensions"]]
    return row


_POINTS: Final = {kind.NAME: kind.POINT for kind in (Setup, SetupOk, ExtChain)}


def _glimpse(source: bytes) -> tuple[str | None, int | None]:
    """Return the name of the frame that begins with these bytes, and its flags."""
    if len(source) < HEADER_SIZE:
        return None, None
    code = source[4] >> 2
    return FRAMES[code].NAME if code in FRAMES else f"0x{code:02X}", source[4] << 8 | source[5]


def _stream(buffer: bytes, start: int, end: int) -> int:
    """Return the stream id, as far as there are bytes."""
    return int.from_bytes(buffer[start : start + 4], "big") & 0x7FFFFFFF if end - start >= HEADER_SIZE else 0
