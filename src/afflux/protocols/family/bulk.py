"""Encode many items of one stream: small ones of a kind without a step of Python for each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import add, attrgetter
from typing import TYPE_CHECKING, Any

from afflux.core.cut import numbers
from afflux.core.payload import Payload, PayloadLike, payload_of
from afflux.protocols.family.layout import COPY_BELOW, Layout
from afflux.protocols.family.member import Role

if TYPE_CHECKING:
    from afflux.protocols.family.outbound import Outbound

__all__ = ["CHUNK", "frames_of", "queue_each"]

CHUNK = 0x10000
"Bytes of the frames that form one chunk, but for the last of them."

_BYTES, _PAYLOADS = {bytes}, {Payload}
_DATA, _METADATA = attrgetter("data"), attrgetter("metadata")


def frames_of(
    layout: Layout, mtu: int, stream: int, role: Role, items: Sequence[PayloadLike], *, ends: bool = False
) -> Iterator[tuple[bytes, int]] | None:
    """Return the frames of items: chunks, each with its number of frames. With ``ends`` the last item completes.

    None unless all items are small, all of them are bytes or all payloads, and all have metadata or none has.
    """
    kinds = set(map(type, items))
    datas: list[Any] = list(items)
    marks: list[Any] = []
    if kinds == _PAYLOADS:
        datas, marks = list(map(_DATA, items)), list(map(_METADATA, items))
        if without := marks.count(None):
            if without < len(marks):
                return None
            marks = []
    elif kinds != _BYTES:
        return None
    sizes, counts = list(map(len, datas)), list(map(len, marks))
    if marks:
        sizes = list(map(add, sizes, counts))
    own = layout.size + len(role.extra) + (layout.metadata_size if marks else 0)
    equal = not marks and sizes.count(sizes[0]) == len(sizes)
    largest = own + (sizes[0] if equal else max(sizes))
    if largest > min(COPY_BELOW, mtu):
        return None
    word = role.item | layout.metadata if marks else role.item
    tail = _tail(layout, stream, word, role.extra)
    last = _tail(layout, stream, word | layout.complete, role.extra) if ends else tail
    together = 1 + CHUNK // largest
    if equal:
        length = numbers(layout.prefix, own - layout.own)[sizes[0]]
        return _alike(datas, length + tail, length + last, together)
    lengths = list(map(numbers(layout.prefix, own - layout.own).__getitem__, sizes))
    parts: list[Any] = [lengths, datas]
    if marks:
        parts[1:1] = list(map(numbers(layout.metadata_size, layout.metadata_counts).__getitem__, counts)), marks
    return _chunks(parts, tail, last, together)


def _tail(layout: Layout, stream: int, word: int, extra: bytes) -> bytes:
    """Return the header of a frame without its length."""
    first, second = (stream, word) if layout.id_first else (word, stream)
    header: bytes = layout.header.pack(0, 0, first, second)
    return header[layout.prefix :] + extra


def queue_each(outbound: Outbound, stream: int, role: Role, payloads: Sequence[PayloadLike], last: int) -> None:
    """Queue items that differ in kind, or are not all small, as ``Outbound.run``."""
    chunks: list[bytes] = []
    size = frames = 0
    length, header = -1, b""
    layout, extra = outbound.layout, role.extra
    own = layout.size + len(extra)
    small, counted, pack = min(COPY_BELOW, outbound.mtu - own), own - layout.own, layout.header.pack
    first, second = (stream, role.item) if layout.id_first else (role.item, stream)
    for index, item in enumerate(payloads):
        if isinstance(item, bytes):
            data = item
        elif type(item) is Payload and item.metadata is None:
            data = item.data
        else:
            data = None
        if data is None or index == last or len(data) > small:
            if chunks:
                outbound.put(stream, b"".join(chunks), frames)
                chunks, frames, size = [], 0, 0
            outbound.item(stream, role, payload_of(item), index == last)
            continue
        if len(data) != length:
            length = len(data)
            header = pack(0, counted + length, first, second) + extra
        chunks += (header, data)
        frames += 1
        size += length
        if size > CHUNK:
            outbound.put(stream, b"".join(chunks), frames)
            chunks, frames, size = [], 0, 0
    if chunks:
        outbound.put(stream, b"".join(chunks), frames)


def _alike(datas: list[bytes], header: bytes, last: bytes, together: int) -> Iterator[tuple[bytes, int]]:
    """Join frames that have the same header, ``together`` at a time; ``last`` is the header of the last one."""
    whole = len(datas)
    for begin in range(0, whole, together):
        part = datas[begin : begin + together]
        count = len(part)
        end = [last, part.pop()] if last != header and begin + count == whole else []
        yield b"".join((header.join([b"", *part]), *end)), count


def _chunks(parts: list[list[bytes]], tail: bytes, last: bytes, together: int) -> Iterator[tuple[bytes, int]]:
    """Join the parts of frames, ``together`` frames at a time. ``tail`` follows the first part of each frame; ``last``
    that of the last frame."""
    step, whole = len(parts) + 1, len(parts[0])
    for begin in range(0, whole, together):
        count = min(together, whole - begin)
        pieces = [tail] * (step * count)
        if begin + count == whole:
            pieces[1 - step] = last
        for place, part in enumerate(parts):
            pieces[place + (place > 0) :: step] = part if count == whole else part[begin : begin + count]
        yield b"".join(pieces), count
