"""Parse runs of items that have metadata, without the tables: a short path of inbound.py."""

from __future__ import annotations

from afflux.core.alike import MANY, alike
from afflux.core.events import Items
from afflux.core.payload import Payload, Run
from afflux.protocols.family.stream import Stream
from afflux.protocols.family.streams import Streams

__all__ = ["take_marked"]


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
