"""Define the payload with extension entries and MIME types of its own: what a program gives and gets.

await peer.request(ExtendedPayload(b"{}", entries=[address_entry(frame)]))
peer.stream(resumable(b"ticks"))
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, repeat
from struct import iter_unpack
from typing import Final, overload

from afflux.core.errors import LimitExceeded, LocalProtocolError, Violation
from afflux.core.payload import Payload, PayloadLike, Run, payload_of
from afflux.protocols.rsocket_draft.compact import mime_bytes
from afflux.protocols.rsocket_draft.entries import MARK, RESUME, Entry, chain_bytes
from afflux.protocols.rsocket_draft.frames import DATA_MIME, EXTENSIONS, METADATA_MIME

__all__ = [
    "MOST_PRELUDE",
    "PLAIN",
    "WISH",
    "ExtendedItems",
    "ExtendedPayload",
    "ExtendedRun",
    "Own",
    "SharedPayload",
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

    __slots__ = ("own",)

    own: Own
    "Entries and MIME types in one value, which is compared faster than each."

    def __init__(
        self,
        data: bytes = b"",
        metadata: bytes | None = None,
        *,
        entries: Iterable[Entry] = (),
        data_mime: str | None = None,
        metadata_mime: str | None = None,
    ) -> None:
        super().__init__(data, metadata)
        self.own = (tuple(entries), data_mime, metadata_mime)

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


class SharedPayload(ExtendedPayload):
    """A payload whose entries and MIME types are one value, which others share."""

    __slots__ = ()

    def __init__(self, data: bytes, metadata: bytes | None, own: Own) -> None:
        self.data = data
        self.metadata = metadata
        self.own = own


class ExtendedRun(Run):
    """Consecutive payloads of one size without metadata, which share their entries and MIME types; see core.payload.

    Entries are objects once for the run, and a payload becomes one when it is accessed.
    """

    __slots__ = ("_own",)

    def __init__(self, block: bytes, start: int, head: int, size: int, count: int, own: Own) -> None:
        super().__init__(block, start, head, size, count)
        self._own = own

    def __iter__(self) -> Iterator[Payload]:
        span = memoryview(self._block)[self._start : self._start + (self._head + self._size) * self._count]
        datas = chain.from_iterable(iter_unpack(f"{self._head}x{self._size}s", span))
        return map(SharedPayload, datas, repeat(None), repeat(self._own))

    @overload
    def __getitem__(self, index: int) -> Payload: ...
    @overload
    def __getitem__(self, index: slice) -> Run: ...
    def __getitem__(self, index: int | slice) -> Payload | Run:
        """Return one payload, or for a slice, whose step is ignored, a part of the sequence."""
        found = super().__getitem__(index)
        if isinstance(found, Payload):
            return SharedPayload(found.data, None, self._own)
        return ExtendedRun(found._block, found._start, found._head, found._size, found._count, self._own)


class ExtendedItems(Run):
    """The same for payloads of any size."""

    __slots__ = ("_datas", "_own")

    def __init__(self, datas: list[bytes], own: Own) -> None:
        super().__init__(b"", 0, 0, 0, len(datas))
        self._datas = datas
        self._own = own

    @property
    def size(self) -> int:
        """Bytes of all payloads."""
        return sum(map(len, self._datas))

    def __iter__(self) -> Iterator[Payload]:
        return map(SharedPayload, self._datas, repeat(None), repeat(self._own))

    @overload
    def __getitem__(self, index: int) -> Payload: ...
    @overload
    def __getitem__(self, index: slice) -> Run: ...
    def __getitem__(self, index: int | slice) -> Payload | Run:
        """Return one payload, or for a slice a part of the sequence."""
        if isinstance(index, slice):
            return ExtendedItems(self._datas[index], self._own)
        return SharedPayload(self._datas[index], None, self._own)


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
    flags, parts = 0, []
    try:
        if payload.entries:
            flags |= EXTENSIONS
            parts.append(chain_bytes(payload.entries))
        for flag, mime in ((DATA_MIME, payload.data_mime), (METADATA_MIME, payload.metadata_mime)):
            if mime is not None:
                flags |= flag
                parts.append(mime_bytes(mime))
    except Violation as violation:
        raise LocalProtocolError(violation.reason, rule=violation.rule) from None
    if request and flags & (DATA_MIME | METADATA_MIME):
        raise LocalProtocolError("a request has the MIME types of its connection", rule="D-3")
    encoded = b"".join(parts)
    if len(encoded) > MOST_PRELUDE:
        text = f"{len(encoded)} bytes of extension entries: a payload has at most {MOST_PRELUDE}"
        raise LimitExceeded(text, rule="D-17")
    return flags, encoded
