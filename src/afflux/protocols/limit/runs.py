"""Send and receive consecutive values of a session without a frame object for each.

Such values differ in their bytes and their numbers only: the session does not check them, or a loop of its type permits
any number of them, which ``Runs`` checks together. The two functions take what they recognize and leave the rest to the
tables; what they do is what the tables do.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Any, Final

from afflux.core.events import Items
from afflux.core.payload import Payload, PayloadLike, Plain, Run
from afflux.protocols.limit.frames import HEADER_SIZE, PayloadFrame
from afflux.protocols.limit.messages import Value, Values, VariedValues
from afflux.protocols.limit.session import Session
from afflux.protocols.limit.shared import Shared
from afflux.protocols.limit.steps import Runs
from afflux.sessions.many import Messages

__all__ = ["receive", "send"]

_HEAD: Final = 9
"Bytes of the length and the header."
_WORD: Final = PayloadFrame.TYPE << 10
_TAIL: Final = _WORD.to_bytes(2, "big")
_pack: Final = Struct(">BHIH").pack
_unpack: Final = Struct(">BHIH").unpack_from
_LOW: Final = bytes(range(0x100))
_FEW: Final = 3
"Values of one event that become objects immediately; an object for each of more is created when it is consumed."
_CHUNK: Final = 0x4000
"Bytes that are queued as one object."


def receive(shared: Shared, session: Session, block: bytes, at: int, end: int) -> int:
    """Deliver values that begin at ``at``, within the credit; return where they end, ``at`` if there are none. The
    block has at least a length and a header there."""
    numbers = shared.numbers
    id, credit = numbers.expected, session.to_receive
    size = block[at] << 16 | block[at + 1] << 8 | block[at + 2]
    step = size + 3
    whole = at + step <= end and HEADER_SIZE <= size <= shared.limits.frame_bytes
    if numbers.reuse or credit.available <= 0 or not whole:
        return at
    if block[at + 3 : at + _HEAD] != id.to_bytes(4, "big") + _TAIL:
        return at
    low = id & 0xFF
    count = min((end - at) // step, credit.available, (0x101 - low) // 2)
    if count == 1 or not _is_run(block, at, step, count, low):
        return _receive_each(shared, session, block, at, end)
    size -= HEADER_SIZE
    items: Run
    if (runs := session.steps.runs) is None:
        session.steps.read(b"")
        items = Run(block, at, _HEAD, size, count)
    else:
        values = runs.unpacked(Messages(block, at, _HEAD, size, count))
        if not values:
            return at
        runs.took_received(len(values))
        items = Values(block, at, _HEAD, size, values)
    _count(shared, session, len(items), items.size)
    shared.events.append(Items(session.stream, items))
    return at + step * len(items)


def _receive_each(shared: Shared, session: Session, block: bytes, at: int, end: int) -> int:
    """Deliver values of any sizes, at least one if the type permits it; return where they end."""
    numbers, most = shared.numbers, shared.limits.frame_bytes
    id, left = numbers.expected, min(session.to_receive.available, numbers.left)
    datas: list[bytes] = []
    place = at
    while left and end - place >= _HEAD:
        high, low, number, word = _unpack(block, place)
        size = high << 16 | low
        stop = place + 3 + size
        if number != id or word != _WORD or stop > end or not HEADER_SIZE <= size <= most:
            break
        datas.append(block[place + _HEAD : stop])
        place = stop
        id += 2
        left -= 1
    items: Plain
    if (runs := session.steps.runs) is None:
        session.steps.read(b"")
        items = Plain(datas)
    else:
        values = runs.unpacked(datas)
        if not values:
            return at
        runs.took_received(len(values))
        items = VariedValues(datas[: len(values)], values)
        place = at + items.size + _HEAD * len(items)
    _count(shared, session, len(items), place - at - _HEAD * len(items))
    if len(items) > _FEW:
        shared.events.append(Items(session.stream, items))
    else:
        session.add(shared.events, list(items))
    return place


def _count(shared: Shared, session: Session, count: int, size: int) -> None:
    """Account for the next values of the peer, of ``size`` bytes in all."""
    numbers, credit = shared.numbers, session.to_receive
    numbers.received(numbers.expected, count)
    credit.available -= count
    credit.used += count
    shared.delivered += size
    shared.objects += count


def _is_run(block: bytes, at: int, step: int, count: int, low: int) -> bool:
    """Whether all heads are alike but for the last octet of the number, which grows by 2."""
    stop = at + step * count
    for place in range(_HEAD):
        octets = block[at + place : stop : step]
        expected = _LOW[low : low + 2 * count : 2] if place == 6 else octets[:1] * count
        if octets != expected:
            return False
    return True


def _packed(runs: Runs, payloads: Sequence[PayloadLike]) -> Sequence[bytes]:
    """Encode the first payloads that are values without metadata."""
    values: list[Any] = []
    for payload in payloads:
        if type(payload) is not Value or payload.data or payload.metadata is not None:
            break
        values.append(payload.value)
    return runs.packed(values) if values else ()


def send(shared: Shared, session: Session, payloads: Sequence[PayloadLike]) -> int:
    """Queue the first payloads that are plain bytes, or values that ``Runs`` encodes, and return how many they are."""
    numbers, out, most = shared.numbers, shared.out, shared.limits.frame_bytes - HEADER_SIZE
    if numbers.reuse:
        return 0
    runs = session.steps.runs
    if runs is not None:
        payloads = _packed(runs, payloads)
    first = id = numbers.next()
    count = min(len(payloads), (numbers.last - id) // 2 + 1)
    parts: list[bytes] = []
    add, size = parts.append, 0
    for payload in payloads[:count]:
        data = payload
        if type(payload) is Payload and payload.metadata is None:
            data = payload.data
        if type(data) is not bytes or len(data) > most:
            break
        length = len(data) + HEADER_SIZE
        add(_pack(length >> 16, length & 0xFFFF, id, _WORD))
        add(data)
        id += 2
        size += length
        if size > _CHUNK:
            out.put(b"".join(parts))
            parts.clear()
            size = 0
    if parts:
        out.put(b"".join(parts))
    sent = (id - first) // 2
    if sent:
        if runs is None:
            session.steps.check(b"")
        else:
            runs.took_sent(sent)
        numbers.sent_to(first, id - 2)
        session.to_send.used += sent
    return sent
