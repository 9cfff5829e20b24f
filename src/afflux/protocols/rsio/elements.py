"""Convert elements within the demand directly from a block of received bytes into events.

Elements are most of all traffic, so they bypass the table of states.py (where the same step is ACTIVE/NEXT): a run of
equal messages is one event without an object for each element, as core.payload.Run. Other cases, an id above 16,383 or
no demand left, are left to the parser in inbound.py; for an incomplete element the parser gets its end, so that it is
parsed only once more, when it is whole.
"""

from __future__ import annotations

from array import array
from itertools import accumulate
from operator import sub

from afflux.core.alike import MANY, alike
from afflux.core.events import Block, Items
from afflux.core.payload import Payload, Plain, Run
from afflux.protocols.rsio.codes import UNBOUNDED
from afflux.protocols.rsio.frames import OnNext, OnNextPacked
from afflux.protocols.rsio.kinds import Cursor
from afflux.protocols.rsio.shared import Shared
from afflux.protocols.rsio.states import SubscriberState
from afflux.protocols.rsio.subscription import Subscription
from afflux.protocols.rsio.varied import LARGEST, cut

__all__ = ["Elements"]

_NEXT, _PACKED = OnNext.TYPE, OnNextPacked.TYPE
_ACTIVE = SubscriberState.ACTIVE
_LONG = 24
"Messages that are taken one by one before the others of a run are cut together."
_AHEAD = 4
"How many times the bytes of those messages are looked at first."


class Elements:
    """Receive the elements for the ids of one side."""

    __slots__ = ("_need", "_records", "_shared")

    def __init__(self, shared: Shared, records: dict[int, Subscription]) -> None:
        self._shared = shared
        self._records = records
        self._need = 0

    def take(self, cursor: Cursor) -> int:
        """Apply plain elements from the cursor on, and advance it past them. The caller has checked that onNext or
        onNextPacked begins there. Return the block size needed for the next one, 0 if unknown."""
        block, position, end = cursor.block, cursor.at, cursor.end
        singles, begin = 0, position
        self._need = 0
        while end - position >= 3:
            code, low, at = block[position], block[position + 1], position + 2
            if low > 0x7F:
                high = block[at]
                if high > 0x7F:
                    break
                low += (high << 7) - 0x80
                at += 1
            subscription = self._records.get(low)
            if subscription is None or subscription.state is not _ACTIVE or not subscription.to_receive.available:
                break
            if code == _NEXT:
                after = self._take_next(subscription, block, position, at, end)
                singles += 1
                if singles == _LONG and after and not subscription.size:
                    ahead = _AHEAD * (after - begin)
                    after = self._take_varied(subscription, block, block[position:at], after, end, ahead)
                    singles, begin = 0, after
            elif code == _PACKED and subscription.size:
                after = self._take_packed(subscription, block, at, end)
            else:
                break
            if not after:
                break
            position = after
        cursor.at = position
        return self._need

    def _take_next(self, subscription: Subscription, block: bytes, position: int, at: int, end: int) -> int:
        """Apply a run of onNext with elements of one size; return where it ends, or 0."""
        size = subscription.size
        if not size:
            size, at = _number(block, at, end)
        stop = at + size
        if not at or size > self._shared.limits.payload_bytes:
            return 0
        if stop > end:
            self._need = stop
            return 0
        head, stride, count, credit = at - position, stop - position, 1, subscription.to_receive
        most = min(credit.available, (end - position) // stride)
        if most >= MANY:
            count = alike(block, position, end, stride, most, head) or 1
        if credit.available != UNBOUNDED:
            credit.available -= count
        credit.used += count
        self.emit(subscription, block, position, head, size, count)
        return position + count * stride

    def _take_varied(
        self, subscription: Subscription, block: bytes, same: bytes, position: int, end: int, ahead: int
    ) -> int:
        """Apply a run of onNext with elements that differ in length; return where it ends. ``same`` is their type and
        id; ``ahead`` bytes are looked at first."""
        credit, shared = subscription.to_receive, self._shared
        if not credit.available or shared.limits.payload_bytes < LARGEST:
            return position
        elements, stop = cut(block, position, end, same, credit.available, ahead)
        if elements:
            size = sum(map(len, elements))
            credit.spend(len(elements))
            shared.delivered += size
            shared.objects += len(elements)
            if subscription.columnar:
                shared.events.append(_block(subscription.stream, block[position:stop], len(same), elements))
            else:
                shared.events.append(Items(subscription.stream, Plain(elements)))
        return stop

    def _take_packed(self, subscription: Subscription, block: bytes, at: int, end: int) -> int:
        """Apply one onNextPacked; return where it ends, or 0."""
        count, at = _number(block, at, end)
        size = count * subscription.size
        stop = at + size
        if not at or size > self._shared.limits.payload_bytes or not 0 < count <= subscription.to_receive.available:
            return 0
        if stop > end:
            self._need = stop
            return 0
        subscription.to_receive.spend(count)
        self.emit(subscription, block, at, 0, subscription.size, count)
        return stop

    def emit(self, subscription: Subscription, block: bytes, start: int, head: int, size: int, count: int) -> None:
        """Deliver ``count`` elements: each has ``head`` bytes to skip and ``size`` of its own."""
        shared = self._shared
        shared.delivered += size * count
        shared.objects += count
        stride = head + size
        stop = start + stride * count
        if count > 1 and (stop - start) * 2 < len(block):
            block, start, stop = block[start:stop], 0, stop - start  # retain only the bytes of waiting elements
        if subscription.columnar:
            starts = array("q", range(start + head, stop + head, stride)) if stride else array("q", [start] * count)
            ends = array("q", range(start + stride, stop + stride, stride)) if stride else starts
            shared.events.append(Block(subscription.stream, block, starts[:count], ends[:count]))
        elif count > 1 and size:
            shared.events.append(Items(subscription.stream, Run(block, start, head, size, count)))
        else:
            self._append(subscription.stream, [Payload(block[start + head : start + stride])] * count)

    def _append(self, stream: int, payloads: list[Payload]) -> None:
        """Deliver elements individually: those of one pass are one event."""
        events = self._shared.events
        last = events[-1] if events else None
        if isinstance(last, Items) and last.stream == stream and isinstance(last.payloads, list):
            last.payloads += payloads
        else:
            events.append(Items(stream, payloads))


def _block(stream: int, block: bytes, same: int, elements: list[bytes]) -> Block:
    """Return the elements of messages that fill ``block``, each after ``same`` bytes and its length."""
    sizes = list(map(len, elements))
    ends = array("q", accumulate(same + (1 if size < 0x80 else 2) + size for size in sizes))
    return Block(stream, block, array("q", map(sub, ends, sizes)), ends)


def _number(block: bytes, at: int, end: int) -> tuple[int, int]:
    """Return a number of at most four bytes and where it ends; (0, 0) when it is incomplete, or longer."""
    value = shift = 0
    for place in range(at, min(end, at + 4)):
        octet = block[place]
        value |= (octet & 0x7F) << shift
        if octet < 0x80:
            return value, place + 1
        shift += 7
    return 0, 0
