"""Encode and parse runs of items that have metadata: the short paths of outbound.py and inbound.py for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from afflux.core.alike import MANY, alike
from afflux.core.events import Items
from afflux.core.payload import Payload, PayloadLike, Run, payload_of
from afflux.protocols.family.layout import COPY_BELOW
from afflux.protocols.family.member import Role
from afflux.protocols.family.stream import Stream

if TYPE_CHECKING:
    from afflux.protocols.family.outbound import Outbound
    from afflux.protocols.family.streams import Streams

__all__ = ["any_marked", "run_marked", "take_marked"]

_CHUNK = 0x10000


def any_marked(payloads: Sequence[PayloadLike]) -> bool:
    """Whether the first item has metadata: then others probably have some too."""
    first = payloads[0]
    return type(first) is Payload and first.metadata is not None


def run_marked(outbound: Outbound, stream: int, role: Role, payloads: Sequence[PayloadLike], last: int) -> None:
    """Queue a list of items as ``Outbound.run``: one chunk for a run of small ones with metadata, one header for a run
    of one size."""
    layout, word = outbound.layout, role.item | outbound.layout.metadata
    small = min(COPY_BELOW, outbound.mtu) - layout.marked.size
    pack, own, counts = layout.marked.pack, layout.marked.size - layout.own, layout.metadata_counts
    first, second = (stream, word) if layout.id_first else (word, stream)
    chunks: list[bytes] = []
    size = frames = 0
    marked, length, header = -1, -1, b""
    for index, item in enumerate(payloads):
        metadata = item.metadata if type(item) is Payload and index != last else None
        if type(item) is not Payload or metadata is None or len(metadata) + len(item.data) > small:
            if chunks:
                outbound.put(stream, b"".join(chunks), frames)
                chunks, frames, size = [], 0, 0
            outbound.item(stream, role, payload_of(item), index == last)
            continue
        data = item.data
        if len(metadata) != marked or len(data) != length:
            marked, length = len(metadata), len(data)
            header = pack(0, own + marked + length, first, second, 0, counts + marked)
        chunks += (header, metadata, data)
        frames += 1
        size += marked + length
        if size > _CHUNK:
            outbound.put(stream, b"".join(chunks), frames)
            chunks, frames, size = [], 0, 0
    if chunks:
        outbound.put(stream, b"".join(chunks), frames)


def take_marked(streams: Streams, stream: Stream, block: bytes, position: int, end: int, limit: int) -> int:
    """Deliver a run of items of one stream whose first is whole and has metadata.

    Items without metadata may be among them. ``limit`` is the longest frame of a short path. Returns where the run
    ends, which is where it starts if the first item must go through the tables.
    """
    layout = streams.member.layout
    if stream.columnar or end - position < layout.marked.size:
        return position
    high, low, _, _, more, counted = layout.marked.unpack_from(block, position)
    stride, head = layout.own + (high << 16 | low), layout.marked.size
    marked, owed = (more << 16 | counted) - layout.metadata_counts, stream.to_receive.available
    if (
        owed >= MANY <= (end - position) // stride
        and 0 <= marked <= stride - head
        and (count := alike(block, position, end, stride, owed, head))
    ):
        start, stop = position, int(position + count * stride)
        if (stop - position) * 2 < len(block):
            block, start = block[position:stop], 0  # the waiting run does not keep the rest of the block alive
        streams.took(stream, count, (stride - head) * count)
        streams.current.events.append(Items(stream.id, Run(block, start, head, stride - head - marked, count, marked)))
        return stop
    return _one_by_one(streams, stream, block, position, end, limit)


def _one_by_one(streams: Streams, stream: Stream, block: bytes, position: int, end: int, limit: int) -> int:
    layout, id, owed, word = streams.member.layout, stream.id, stream.to_receive.available, stream.hot
    unpack, head, counts = layout.marked.unpack_from, layout.marked.size, layout.metadata_counts
    _, header_size, own, least, id_first = layout.parsing
    first, second, other = (id, word | layout.metadata, word) if id_first else (word | layout.metadata, id, id)
    payloads: list[Payload] = []
    size = 0
    while owed and end - position >= head:
        high, low, frame_first, frame_second, more, counted = unpack(block, position)
        length = high << 16 | low
        stop = position + own + length
        if stop > end or length > limit or length < least:
            break
        if frame_first == first and frame_second == second:
            data = position + head
            middle = data - counts + (more << 16 | counted)
            if not data <= middle <= stop:
                break
            payloads.append(Payload(block[middle:stop], block[data:middle]))
        elif frame_second == other and frame_first == (id if id_first else word):
            data = position + header_size
            payloads.append(Payload(block[data:stop]))
        else:
            break
        size += stop - data
        owed -= 1
        position = stop
    if payloads:
        streams.took(stream, len(payloads), size)
        streams.current.events.append(Items(id, payloads))
    return position
