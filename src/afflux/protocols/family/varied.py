"""Parse long runs of plain items of changing length, without the tables: a short path of inbound.py."""

from __future__ import annotations

from afflux.core.cut import SMALL, cut
from afflux.protocols.family.stream import Stream
from afflux.protocols.family.streams import Streams

__all__ = ["AHEAD", "LONG", "add_more"]

LONG = 24
"Items that are parsed one by one before the others of a run are cut together."

AHEAD = 4
"How many times the bytes of those items are looked at first."


def add_more(
    streams: Streams, stream: Stream, datas: list[bytes], block: bytes, start: int, position: int, end: int, limit: int
) -> int:
    """Add the data of the plain items at ``position`` that can be cut; return where they end.

    ``datas`` is the data of those of the same stream before, the first of which is at ``start``. ``limit`` is the
    longest frame of a short path.
    """
    layout, owed = streams.member.layout, stream.to_receive.available - len(datas)
    if not owed or limit < SMALL:
        return position
    same = block[start + layout.prefix : start + layout.size]
    ahead = AHEAD * (position - start)
    more, position = cut(block, position, end, layout.prefix, same, layout.least, owed, ahead)
    datas += more
    return position
