"""Define the payload with extension entries and MIME types of its own: what a program gives and gets.

await peer.request(ExtendedPayload(b"{}", entries=[address_entry(frame)]))
peer.stream(resumable(b"ticks"))
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import repeat
from typing import Any, Final, Protocol, overload

from afflux.core.errors import Error, LimitExceeded, LocalProtocolError, Violation
from afflux.core.payload import Payload, PayloadLike, Plain, Run, payload_of
from afflux.protocols.rsocket_draft.compact import mime_bytes
from afflux.protocols.rsocket_draft.entries import MARK, RESUME, Entry, chain_bytes
from afflux.protocols.rsocket_draft.frames import DATA_MIME, EXTENSIONS, METADATA_MIME

__all__ = [
    "MOST_PRELUDE",
    "PLAIN",
    "WISH",
    "ExtendedItems",
    "ExtendedPayload",
    "Extras",
    "Own",
    "ReceivedPayload",
    "Source",
    "encoded_of",
    "prelude",
    "resumable",
]

Own = tuple[tuple[Entry, ...], str | None, str | None]
"The entries of a payload, and the MIME types of its data and metadata. Payloads of one run share the object."
PLAIN: Final[Own] = ((), None, None)
"What a payload without entries and MIME types would have."

MOST_PRELUDE: Final = 0x1000
"Bytes of entries and MIME types on one payload: they are not split, and leave room in every frame (D-17)."

WISH: Final = Entry(RESUME, flags=MARK)
"The entry by which a requester wants its stream to survive the transport, and by which the responder agrees (3.4)."


class Source(Protocol):
    """What precedes the content of payloads: ``Extras``, or as received (shapes.py). Equal payloads share one."""

    @property
    def own(self) -> Own:
        """The entries that are understood, and the MIME types."""

    @property
    def encoded(self) -> tuple[int, bytes]:
        """The flags and the bytes that send the same entries and MIME types.

        Raises:
            LocalProtocolError: an entry or a MIME type is out of bounds.
            LimitExceeded: the entries are too long.
        """


class Extras:
    """Entries and MIME types of a program. They are encoded once."""

    __slots__ = ("_encoded", "_own")

    def __init__(self, own: Own) -> None:
        self._own = own
        self._encoded: tuple[int, bytes] | None = None

    @property
    def own(self) -> Own:
        """See ``Source``."""
        return self._own

    @property
    def encoded(self) -> tuple[int, bytes]:
        """See ``Source``."""
        encoded = self._encoded
        if encoded is None:
            encoded = self._encoded = encoded_of(self._own)
        return encoded


_newest: list[tuple[Own, Source]] = [(PLAIN, Extras(PLAIN))]
"The entries and MIME types of the newest payload of a program: most programs repeat them."


class ExtendedPayload(Payload):
    """A payload with extension entries, or with MIME types that differ from the connection's.

    The setup, requests and items may be of this class; only items may have MIME types of their own (D-3). A received
    payload is of this class if it has entries that this side understands, or an override.

    Args:
        data: the application's bytes.
        metadata: further bytes, or None.
        entries: the extension entries.
        data_mime: MIME type of the data; None for the connection's.
        metadata_mime: MIME type of the metadata; None for the connection's.
    """

    __slots__ = ("source",)

    def __init__(
        self,
        data: bytes = b"",
        metadata: bytes | None = None,
        *,
        entries: Iterable[Entry] = (),
        data_mime: str | None = None,
        metadata_mime: str | None = None,
    ) -> None:
        self.data = data
        self.metadata = metadata
        own, source = _newest[0]
        if entries is not own[0] or data_mime != own[1] or metadata_mime != own[2]:
            wanted = (tuple(entries), data_mime, metadata_mime)
            if wanted != own:
                source = Extras(wanted)
                _newest[0] = wanted, source
        self.source: Source = source
        "Shared by payloads with equal entries and MIME types."

    @property
    def own(self) -> Own:
        """Entries and MIME types in one value, which is compared faster than each."""
        return self.source.own

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The extension entries."""
        return self.own[0]

    @property
    def data_mime(self) -> str | None:
        """MIME type of the data; None for the connection's."""
        return self.own[1]

    @property
    def metadata_mime(self) -> str | None:
        """MIME type of the metadata; None for the connection's."""
        return self.own[2]

    @property
    def encoded(self) -> tuple[int, bytes]:
        """The flags of the first frame, and the bytes before its content (R-5, R-6).

        Raises:
            LocalProtocolError: an entry or a MIME type is out of bounds.
            LimitExceeded: the entries are too long.
        """
        return self.source.encoded

    @property
    def proper(self) -> bool:
        """Whether the parts are bytes, and entries and MIME types are within bounds."""
        try:
            self.source.encoded  # noqa: B018  # it raises
        except Error:
            return False
        return type(self.data) is bytes and (self.metadata is None or type(self.metadata) is bytes)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ExtendedPayload):
            return False if isinstance(other, Payload) else NotImplemented
        return super().__eq__(other) and self.own == other.own

    def __hash__(self) -> int:
        return hash((super().__hash__(), self.own))

    def __repr__(self) -> str:
        words = [super().__repr__()[8:-1]]
        words += [f"entries={list(self.entries)}"] if self.entries else []
        words += [f"{name}={value!r}" for name in ("data_mime", "metadata_mime") if (value := getattr(self, name))]
        return f"ExtendedPayload({', '.join(words)})"


class ReceivedPayload(ExtendedPayload):
    """A received payload: its entries are parsed when they are accessed."""

    __slots__ = ()

    def __init__(self, data: bytes, source: Source, metadata: bytes | None = None) -> None:
        self.data = data
        self.metadata = metadata
        self.source = source

    def __reduce__(self) -> tuple[Callable[[bytes, bytes | None, Own], ExtendedPayload], tuple[Any, ...]]:
        return _extended, (self.data, self.metadata, self.own)


def _extended(data: bytes, metadata: bytes | None, own: Own) -> ExtendedPayload:
    return ExtendedPayload(data, metadata, entries=own[0], data_mime=own[1], metadata_mime=own[2])


class ExtendedItems(Plain):
    """Received payloads without metadata: an immutable sequence that creates each when it is accessed (core.payload).

    Args:
        datas: their data.
        sources: their entries and MIME types, one for all or one for each.
        size: bytes of each; -1 if they differ.
    """

    __slots__ = ("_sources",)

    def __init__(self, datas: list[bytes], sources: Source | list[Source], size: int = -1) -> None:
        super().__init__(datas, size)
        self._sources = sources

    def __iter__(self) -> Iterator[Payload]:
        sources = self._sources
        return map(ReceivedPayload, self._datas, sources if isinstance(sources, list) else repeat(sources))

    @overload
    def __getitem__(self, index: int) -> Payload: ...
    @overload
    def __getitem__(self, index: slice) -> Run: ...
    def __getitem__(self, index: int | slice) -> Payload | Run:
        """Return one payload, or for a slice a part of the sequence."""
        sources = self._sources
        if isinstance(index, slice):
            some = sources[index] if isinstance(sources, list) else sources
            return ExtendedItems(self._datas[index], some, self._size)
        return ReceivedPayload(self._datas[index], sources[index] if isinstance(sources, list) else sources)


def resumable(payload: PayloadLike) -> ExtendedPayload:
    """Return the payload of a stream or channel that is to survive the transport, if the responder agrees."""
    payload = payload_of(payload)
    if not isinstance(payload, ExtendedPayload):
        return ExtendedPayload(payload.data, payload.metadata, entries=(WISH,))
    own = {"data_mime": payload.data_mime, "metadata_mime": payload.metadata_mime}
    return ExtendedPayload(payload.data, payload.metadata, entries=(*payload.entries, WISH), **own)


def prelude(payload: Payload, request: bool) -> tuple[int, bytes]:
    """Return the flags of a payload's first frame, and the bytes before its content (R-5, R-6).

    Raises:
        LocalProtocolError: an entry or a MIME type is out of bounds, or a request has a MIME type.
        LimitExceeded: the entries are too long.
    """
    if not isinstance(payload, ExtendedPayload):
        return 0, b""
    encoded = payload.encoded
    if request and encoded[0] & (DATA_MIME | METADATA_MIME):
        raise LocalProtocolError("a request has the MIME types of its connection", rule="D-3")
    return encoded


def encoded_of(own: Own) -> tuple[int, bytes]:
    """Encode entries and MIME types. Raises like ``prelude``."""
    flags, parts = 0, []
    try:
        if own[0]:
            flags |= EXTENSIONS
            parts.append(chain_bytes(own[0]))
        for flag, mime in ((DATA_MIME, own[1]), (METADATA_MIME, own[2])):
            if mime is not None:
                flags |= flag
                parts.append(mime_bytes(mime))
    except Violation as violation:
        raise LocalProtocolError(violation.reason, rule=violation.rule) from None
    encoded = flags, b"".join(parts)
    if len(encoded[1]) > MOST_PRELUDE:
        text = f"{len(encoded[1])} bytes of extension entries: a payload has at most {MOST_PRELUDE}"
        raise LimitExceeded(text, rule="D-17")
    return encoded
