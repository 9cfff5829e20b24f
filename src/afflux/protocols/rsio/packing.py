"""Queue the elements of a publication as messages: small ones together, large ones in parts if both sides list that."""

from __future__ import annotations

from afflux.protocols.rsio.frames import OnNext
from afflux.protocols.rsio.kinds import varint
from afflux.protocols.rsio.outbound import Outbound

__all__ = ["queue_varying"]

_NEXT = bytes((OnNext.TYPE,))
_RUN = 0x10000
"Bytes of small messages that are queued as one object."
_SMALL = 0x1000


def queue_varying(out: Outbound, id: int, head: bytes, elements: list[bytes], split: int, parts: int) -> int:
    """Queue elements that have a length each; ``head`` is the encoded id. Elements larger than ``split`` are sent in
    parts; ``parts`` is the number of elements split earlier. Return that number after this call."""
    small = min(_SMALL, split)
    length = len(elements[0])
    if length <= small and len(set(map(len, elements))) == 1:
        start_of_each = b"".join((_NEXT, head, varint(length)))
        step = _RUN // (length + len(start_of_each)) + 1
        for start in range(0, len(elements), step):
            # a head before each: one join in C instead of a loop over the elements
            out.put(id, start_of_each.join((b"", *elements[start : start + step])))
        return parts
    chunks: list[bytes] = []
    size, length, start_of_each = 0, -1, b""
    for data in elements:
        if len(data) != length:
            length = len(data)
            start_of_each = b"".join((_NEXT, head, varint(length)))
        if length > small or size > _RUN:
            if chunks:
                out.put(id, b"".join(chunks))
                chunks, size = [], 0
            if length > split:
                out.parts(id, head, parts, data)
                parts += 1
                continue
        chunks += (start_of_each, data)
        size += length + len(start_of_each)
    if chunks:
        out.put(id, b"".join(chunks))
    return parts
