"""Send payloads with entries or MIME types: several in one chunk, and equal bytes encoded once.

The bytes before the content of a payload, its *prelude*, are its entries and its MIME types (R-5, R-6). Most senders
repeat them with each payload.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import chain, repeat
from operator import attrgetter
from typing import Final

from afflux.core.payload import Payload, PayloadLike, payload_of
from afflux.protocols.family.member import Opening, Role
from afflux.protocols.family.outbound import COPY_BELOW, Outbound
from afflux.protocols.rsocket_draft.payload import ExtendedPayload, ReceivedPayload, Source, prelude

__all__ = ["Preludes"]

_PREFIX: Final = 3
_HEADER: Final = 9
_CHUNK: Final = 0x10000
_SOURCE: Final = attrgetter("source")
_DATA: Final = attrgetter("data")
_METADATA: Final = attrgetter("metadata")
_EXTENDED: Final = frozenset((ExtendedPayload, ReceivedPayload))


class Preludes:
    """Encodes payloads with entries or MIME types (family/layout.py)."""

    __slots__ = ()

    def encode(self, payload: Payload, request: bool) -> tuple[int, bytes]:
        """Return the flags and the prelude of any payload. Raises like ``prelude``."""
        return prelude(payload, request)

    def queue(self, outbound: Outbound, stream: int, role: Role, payloads: Sequence[PayloadLike], last: int) -> bool:
        """Queue a list of items, ``last`` the index of the one that completes the stream, or -1; return False, and
        queue none, if no item is an ``ExtendedPayload``.

        Raises:
            LocalProtocolError, LimitExceeded: the entries of an item cannot be sent; the items before it are queued.
        """
        kinds = set(map(type, payloads))
        if not any(issubclass(kind, ExtendedPayload) for kind in kinds):
            return False
        whole = payloads if last < 0 else payloads[:last]
        if not kinds <= _EXTENDED or not _queue_alike(outbound, stream, role, whole):
            _queue_each(outbound, stream, role, whole)
        for item in payloads[len(whole) :]:
            outbound.item(stream, role, payload_of(item), True)
        return True

    def batch(
        self,
        outbound: Outbound,
        streams: Sequence[int],
        word: int,
        payloads: Sequence[Payload],
        opening: Opening | None,
    ) -> bool:
        """Queue one payload for each of several streams; return False, and queue none, if none is an
        ``ExtendedPayload``. Raises like ``prelude``."""
        if set(map(type, payloads)) == {Payload}:
            return False
        _queue_batch(outbound, streams, word, payloads, opening)
        return True


@cache
def _prefix(length: int) -> bytes:
    """Encode the length of a small frame."""
    return length.to_bytes(_PREFIX, "big")


def _queue_alike(outbound: Outbound, stream: int, role: Role, items: Sequence[PayloadLike]) -> bool:
    """Queue small items that share their entries and MIME types; return False, and queue none, if they are others."""
    sources = list(map(_SOURCE, items))
    count = len(items)
    if not count or sources.count(sources[0]) < count or list(map(_METADATA, items)).count(None) < count:
        return False
    flags, shared = prelude(payload_of(items[0]), False)
    datas = list(map(_DATA, items))
    lengths = list(map(len, datas))
    sizes = set(lengths)
    if (largest := max(sizes)) > min(COPY_BELOW, outbound.mtu - _HEADER - len(shared)):
        return False
    counted = _HEADER - _PREFIX + len(shared)
    tail = outbound.layout.header.pack(0, 0, stream, role.item | flags)[_PREFIX:] + shared
    together = 1 + _CHUNK // (_HEADER + len(shared) + largest)  # just above a write, which then needs no copy
    for begin in range(0, len(datas), together):
        part = datas[begin : begin + together]
        if len(sizes) == 1:
            head = _prefix(counted + largest) + tail
            block = head.join([b"", *part])
        else:
            prefixes = map(_prefix, map(counted.__add__, lengths[begin : begin + together]))
            block = b"".join(chain.from_iterable(zip(prefixes, repeat(tail), part)))
        outbound.put(stream, block, len(part))
    return True


def _queue_each(outbound: Outbound, stream: int, role: Role, items: Sequence[PayloadLike]) -> None:
    """Queue items with entries of their own, and others."""
    chunks: list[bytes] = []
    size = frames = 0
    small, pack = min(COPY_BELOW, outbound.mtu), outbound.layout.header.pack
    try:
        for item in items:
            payload = payload_of(item)
            flags, extra = payload.encoded if isinstance(payload, ExtendedPayload) else (0, b"")
            data = payload.data
            whole = _HEADER + len(extra) + len(data)
            if whole > small or payload.metadata is not None:
                _put(outbound, stream, chunks, frames)
                chunks, size, frames = [], 0, 0
                outbound.item(stream, role, payload, False)
                continue
            chunks += (pack(0, whole - _PREFIX, stream, role.item | flags), extra, data)
            frames += 1
            size += whole
            if size > _CHUNK:
                _put(outbound, stream, chunks, frames)
                chunks, size, frames = [], 0, 0
    finally:
        _put(outbound, stream, chunks, frames)


def _put(outbound: Outbound, stream: int, chunks: list[bytes], frames: int) -> None:
    if frames:
        outbound.put(stream, b"".join(chunks), frames)


def _queue_batch(
    outbound: Outbound, streams: Sequence[int], word: int, payloads: Sequence[Payload], opening: Opening | None
) -> None:
    chunks: list[bytes] = []
    size = frames = 0
    layout, small = outbound.layout, min(COPY_BELOW, outbound.mtu)
    pack = layout.header.pack
    last: Source | None = None
    flags, extra = 0, b""
    for stream, payload in zip(streams, payloads, strict=True):
        source = payload.source if isinstance(payload, ExtendedPayload) else None
        if source is not last:
            flags, extra = (0, b"") if source is None else source.encoded
            last = source
        data, metadata = payload.data, payload.metadata
        whole = _HEADER + len(extra) + len(data)
        if metadata is not None:
            whole += layout.metadata_size + len(metadata)
        if whole > small:
            outbound.chunk(chunks, frames)
            chunks, size, frames = [], 0, 0
            outbound.alone(stream, word, payload, opening)
            continue
        if metadata is None:
            chunks += (pack(0, whole - _PREFIX, stream, word | flags), extra, data)
        else:
            chunks += (layout.head(stream, word | flags, extra, metadata, whole), data)
        size += whole
        frames += 1
        if size > _CHUNK:
            outbound.chunk(chunks, frames)
            chunks, size, frames = [], 0, 0
    outbound.chunk(chunks, frames)
