"""Apply the last item of a stream, and grants of credit, without the tables: short paths of inbound.py.

A short stream is then one event: a run of items and the end. The step is the one that the tables have for it
(ITEM_LAST/COMPLETE_IN). Items with metadata, fragments and ends without an item pass through the tables.

A stream with a window has a grant for each half of it (REQUEST_N/GRANT).
"""

from __future__ import annotations

from afflux.core.events import Granted, Items
from afflux.core.payload import Payload
from afflux.protocols.family.states import StreamAction, StreamInput
from afflux.protocols.family.stream import Stream
from afflux.protocols.family.streams import Streams

__all__ = ["end_of_last", "end_with", "take_grant", "take_last"]

# Enum members are slow to look up.
_ITEM_LAST, _COMPLETE_IN = StreamInput.ITEM_LAST, StreamAction.COMPLETE_IN
_REQUEST_N, _GRANT = StreamInput.REQUEST_N, StreamAction.GRANT
_CREDIT_SIZE, _MOST = 4, 0x7FFFFFFF


def end_of_last(streams: Streams, stream: Stream, owed: int, block: bytes, position: int, end: int, limit: int) -> int:
    """Return where the frame at ``position`` ends if it is whole, has the last item of the stream, and may take the
    short path; otherwise 0.

    ``owed`` is the credit of the peer before it. ``limit`` is the longest frame of a short path.
    """
    member = streams.member
    layout = member.layout
    unpack, header_size, own, least, id_first = layout.parsing
    if owed <= 0 or end - position < header_size or not member.plain_ends:
        return 0
    high, low, id, word = unpack(block, position)
    if not id_first:
        id, word = word, id
    if id != stream.id or word != stream.role.takes | layout.complete:
        return 0
    length = high << 16 | low
    stop: int = position + own + length
    if stop > end or length > limit or length < least or (member.bare_ends and length == least):
        return 0
    return stop if stream.role.steps[stream.state][_ITEM_LAST].action is _COMPLETE_IN else 0


def end_with(streams: Streams, stream: Stream) -> None:
    """Apply ITEM_LAST to a stream whose last item is counted already."""
    stream.state = stream.role.steps[stream.state][_ITEM_LAST].next
    streams.settle(stream)


def take_last(streams: Streams, stream: Stream, block: bytes, position: int, end: int, limit: int) -> int:
    """Deliver the last item of a stream; return where it ends, which is where it starts if it must go through the
    tables."""
    stop = end_of_last(streams, stream, stream.to_receive.available, block, position, end, limit)
    if not stop:
        return position
    data = block[position + streams.member.layout.size : stop]
    streams.took(stream, 1, len(data))
    streams.current.events.append(Items(stream.id, [Payload(data)], True))
    end_with(streams, stream)
    return stop


def take_grant(streams: Streams, stream: Stream, block: bytes, start: int, stop: int) -> bool:
    """Apply a REQUEST_N frame with the body ``block[start:stop]``; return False if it must go through the tables."""
    if stop - start != _CREDIT_SIZE or streams.credit_frames >= streams.most_credit_frames:
        return False
    if streams.leases is not None:  # a lease of the draft may count each frame
        return False
    n = int.from_bytes(block[start:stop], "big")
    if not 0 < n <= _MOST or stream.verb == "request":
        return False
    if stream.role.steps[stream.state][_REQUEST_N].action is not _GRANT:
        return False
    streams.credit_frames += 1
    stream.to_send.add(n)
    streams.current.events.append(Granted(stream.id, n))
    return True
