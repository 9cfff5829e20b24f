"""Send and receive runs of items with entries or MIME types: short paths for items that share them.

Theory of operation. The bytes before the content of an item, its *prelude*, are its entries and its MIME types (R-5,
R-6). Most senders repeat them with each item. They are encoded once for items in sequence that have equal ones, and
parsed once where their bytes repeat: what an item has of its own is then only its data. Items with metadata, fragments
and the last item of a stream pass through the tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, pairwise
from operator import attrgetter
from struct import Struct, iter_unpack
from typing import Final

from afflux.core.alike import MANY, alike
from afflux.core.errors import Violation
from afflux.core.events import Items
from afflux.core.payload import Payload, PayloadLike, Payloads, Run, payload_of
from afflux.protocols.family.member import Role
from afflux.protocols.family.outbound import COPY_BELOW, Outbound
from afflux.protocols.family.streams import Streams
from afflux.protocols.rsocket.frames import NEXT
from afflux.protocols.rsocket_draft.extending import understood
from afflux.protocols.rsocket_draft.frames import DATA_MIME, EXTENSIONS, METADATA_MIME, PayloadFrame
from afflux.protocols.rsocket_draft.negotiation import Negotiation
from afflux.protocols.rsocket_draft.payload import (
    MOST_PRELUDE,
    PLAIN,
    ExtendedItems,
    ExtendedPayload,
    ExtendedRun,
    Own,
    SharedPayload,
    prelude,
)
from afflux.protocols.rsocket_draft.strategies import FramesGranted

__all__ = ["Preludes", "SharedRuns"]

_PREFIX: Final = 3
_HEADER: Final = 9
_LENGTH: Final = Struct(">BH")
_CHUNK: Final = 0x10000
_WORDS: Final = frozenset(
    NEXT | extensions | data | metadata
    for extensions in (0, EXTENSIONS)
    for data in (0, DATA_MIME)
    for metadata in (0, METADATA_MIME)
)
"The words of whole items without metadata that do not complete the stream."


_OWN: Final = attrgetter("own")
_DATA: Final = attrgetter("data")
_METADATA: Final = attrgetter("metadata")


# -- sending --------------------------------------------------------------------------------------------------


class Preludes:
    """Encodes payloads with entries or MIME types (family/layout.py)."""

    __slots__ = ()

    def encode(self, payload: Payload, request: bool) -> tuple[int, bytes]:
        """Return the flags and the prelude of any payload. Raises like ``prelude``."""
        return prelude(payload, request)

    def queue(self, outbound: Outbound, stream: int, role: Role, payloads: Sequence[PayloadLike], last: int) -> bool:
        """Queue a list of items. Raises like ``_queue``."""
        return _queue(outbound, stream, role, payloads, last)


def _queue(outbound: Outbound, stream: int, role: Role, payloads: Sequence[PayloadLike], last: int) -> bool:
    """Queue a list of items, ``last`` the index of the one that completes the stream, or -1; return False, and queue
    none, if no item is an ``ExtendedPayload``.

    Raises:
        LocalProtocolError, LimitExceeded: the entries of an item cannot be sent; the items before it are queued.
    """
    shared = _own_of(payloads[0])
    if shared is None and not any(issubclass(kind, ExtendedPayload) for kind in set(map(type, payloads))):
        return False
    begin = 0
    for index in _changes(payloads, shared):
        _queue_alike(outbound, stream, role, payloads[begin:index], last - begin, shared)
        begin, shared = index, _own_of(payloads[index])
    _queue_alike(outbound, stream, role, payloads[begin:], last - begin, shared)
    return True


def _changes(payloads: Sequence[PayloadLike], shared: Own | None) -> list[int]:
    """Return the indexes of the items whose entries or MIME types differ from those of the item before."""
    try:
        owns: list[Own | None] = list(map(_OWN, payloads))
    except AttributeError:
        owns = [_own_of(item) for item in payloads]
    if owns.count(shared) == len(owns):
        return []
    return [index for index, (one, next) in enumerate(pairwise(owns), 1) if one != next]


def _own_of(item: PayloadLike) -> Own | None:
    return item.own if isinstance(item, ExtendedPayload) else None


def _queue_alike(
    outbound: Outbound, stream: int, role: Role, items: Sequence[PayloadLike], last: int, own: Own | None
) -> None:
    """Queue items that share their entries and MIME types; None for items that are not extended."""
    if own is None:
        outbound.run(stream, role, items, last if last < len(items) else -1)
        return
    flags, shared = prelude(SharedPayload(b"", None, own), False)
    small = min(COPY_BELOW, outbound.mtu - _HEADER - len(shared))
    if last < 0 or last >= len(items):
        last = len(items)
    word, ending, items = role.item | flags, items[last:], items[:last]
    if not _put_small(outbound, stream, word, shared, items, small):
        for item in items:
            if not _put_small(outbound, stream, word, shared, (item,), small):
                outbound.item(stream, role, payload_of(item), False)
    for item in ending:
        outbound.item(stream, role, payload_of(item), True)


def _put_small(
    outbound: Outbound, stream: int, word: int, shared: bytes, items: Sequence[PayloadLike], small: int
) -> bool:
    """Queue items in chunks, if all of them are small and have no metadata; else return False."""
    datas = list(map(_DATA, items))
    if not datas or set(map(_METADATA, items)) != {None}:
        return False
    sizes = set(map(len, datas))
    if (largest := max(sizes)) > small:
        return False
    pack, counted = outbound.layout.header.pack, _HEADER - _PREFIX + len(shared)
    heads = {size: pack(0, counted + size, stream, word) + shared for size in sizes}
    together = max(1, _CHUNK // (_HEADER + len(shared) + largest))
    for begin in range(0, len(datas), together):
        part = datas[begin : begin + together]
        if len(sizes) == 1:
            block = heads[largest] + heads[largest].join(part)
        else:
            block = b"".join(chain.from_iterable(zip(map(heads.__getitem__, map(len, part)), part, strict=True)))
        outbound.put(stream, block, len(part))
    return True


# -- receiving ------------------------------------------------------------------------------------------------


class SharedRuns:
    """The short path of a connection for items with entries or MIME types (family/inbound.py)."""

    __slots__ = ("_own", "_part", "_prelude", "_word")

    def __init__(self, part: Negotiation) -> None:
        self._part = part
        self._word = 0
        "The word of the items that were parsed last; 0 for none."
        self._prelude = b""
        "The bytes between the header and the data of those items."
        self._own: Own = PLAIN
        "The meaning of these bytes: the entries that are understood, and the MIME types."

    def take(self, streams: Streams, id: int, word: int, block: bytes, position: int, end: int, limit: int) -> int:
        """Deliver a run of items; see ``family.inbound.Runs``."""
        if word not in _WORDS or (stream := streams.live.get(id)) is None or stream.hot != NEXT or stream.columnar:
            return position
        leases = streams.leases
        if leases is not None and isinstance(leases.issued, FramesGranted):
            return position  # each frame counts
        unpack = streams.member.layout.header.unpack_from
        high, low, _, _ = unpack(block, position)
        stride = _PREFIX + (high << 16 | low)
        if not self._knows(word, block, position, position + stride):
            return position
        head = _HEADER + len(self._prelude)
        most = min(stream.to_receive.available, (end - position) // stride)
        count = 0
        if most >= MANY:
            count = most if _all_alike(block[position : position + most * stride], stride, head) else 0
            count = count or alike(block, position, end, stride, most, head)
        if count:
            after: int = position + count * stride
            size = count * (stride - head)
            found = self._run(block, position, after, stride, count)
        else:
            datas, after = self._loose(block, position, end, limit, stream.to_receive.available)
            count, size = len(datas), sum(map(len, datas))
            found = list(map(Payload, datas)) if self._own == PLAIN else ExtendedItems(datas, self._own)
        streams.took(stream, count, size)
        streams.current.events.append(Items(id, found))
        return after

    def _knows(self, word: int, block: bytes, position: int, stop: int) -> bool:
        """Parse the bytes before the data of the item at ``position``, unless they are those that were parsed last;
        False if the item must go through the tables."""
        if word == self._word and block.startswith(self._prelude, position + _HEADER, stop):
            return True
        try:
            frame = PayloadFrame.decode(block, position + _PREFIX, stop)
            entries = understood(self._part, frame)
        except Violation:
            return False
        begin = position + _HEADER
        size = stop - begin - len(frame.data)
        if size > MOST_PRELUDE:
            return False  # skipped entries are not retained
        self._word, self._prelude = word, block[begin : begin + size]
        self._own = (entries, frame.data_mime, frame.metadata_mime)
        return True

    def _run(self, block: bytes, start: int, stop: int, stride: int, count: int) -> Payloads:
        """Return ``count`` items of one size, without an object for each."""
        head = _HEADER + len(self._prelude)
        if (stop - start) * 2 < len(block):
            block, start = block[start:stop], 0  # the waiting run does not keep the rest of the block alive
        if self._own == PLAIN:
            return Run(block, start, head, stride - head, count)
        return ExtendedRun(block, start, head, stride - head, count, self._own)

    def _loose(self, block: bytes, position: int, end: int, limit: int, owed: int) -> tuple[list[bytes], int]:
        """Return the data of the items at ``position`` with the same bytes before it, at most ``owed``, and where they
        end."""
        found: list[bytes] = []
        head = _HEADER + len(self._prelude)
        alike = block[position + _PREFIX : position + head]
        length_of = _LENGTH.unpack_from
        while owed and end - position >= head:
            high, low = length_of(block, position)
            stop = position + _PREFIX + (high << 16 | low)
            if block[position + _PREFIX : position + head] != alike:
                break
            if not position + head <= stop <= min(end, position + _PREFIX + limit):
                break
            found.append(block[position + head : stop])
            owed -= 1
            position = stop
        return found, position


def _all_alike(span: bytes, stride: int, head: int) -> bool:
    """Whether all items of one size have the same bytes before their data, which are many: one comparison of all is
    faster than a column for each."""
    first = span[:head]
    if stride == head:
        return span == first * (len(span) // head)
    return first + first.join(chain.from_iterable(iter_unpack(f"{head}x{stride - head}s", span))) == span
