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
from afflux.core.payload import Payload, PayloadLike, Run
from afflux.protocols.limit.frames import HEADER_SIZE, PayloadFrame
from afflux.protocols.limit.messages import Value, Values
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
_LOW: Final = bytes(range(0x100))
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
    if count > 1 and not _is_run(block, at, step, count, low):
        count = 1
    if session.steps.runs is not None:
        return _checked(shared, session, session.steps.runs, block, at, step, count)
    session.steps.read(b"")
    _count(shared, session, id, count, size - HEADER_SIZE)
    stop = at + step * count
    if count > 1:
        shared.events.append(Items(session.stream, Run(block, at, _HEAD, size - HEADER_SIZE, count)))
    else:
        session.add(shared.events, [Payload(block[at + _HEAD : stop])])
    return stop


def _checked(shared: Shared, session: Session, runs: Runs, block: bytes, at: int, step: int, count: int) -> int:
    """Deliver the first of ``count`` values that the type permits; return where they end."""
    size = step - _HEAD
    values = runs.unpacked(Messages(block, at, _HEAD, size, count))
    if not values:
        return at
    count = len(values)
    runs.took_received(count)
    _count(shared, session, shared.numbers.expected, count, size)
    items = Values(block, at, _HEAD, size, values)
    if count > 1:
        shared.events.append(Items(session.stream, items))
    else:
        session.add(shared.events, [*items])
    return at + step * count


def _count(shared: Shared, session: Session, id: int, count: int, size: int) -> None:
    """Account for values of ``size`` bytes each, of which ``id`` is the first message."""
    credit = session.to_receive
    shared.numbers.received(id, count)
    credit.available -= count
    credit.used += count
    shared.delivered += size * count
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
