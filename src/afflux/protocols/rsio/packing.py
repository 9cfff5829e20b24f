"""Queue the elements of a publication as messages: small ones together, large ones in parts if both sides list that."""

from __future__ import annotations

from afflux.protocols.rsio.frames import OnNext
from afflux.protocols.rsio.kinds import varint
from afflux.protocols.rsio.outbound import Outbound
from afflux.protocols.rsio.varied import LARGEST, lengths

__all__ = ["queue_varying"]

_NEXT = bytes((OnNext.TYPE,))
_RUN = 0x10000
"Bytes of small messages that are queued as one object."


def queue_varying(out: Outbound, id: int, head: bytes, elements: list[bytes], split: int, parts: int) -> int:
    """Queue elements that have a length each; ``head`` is the encoded id. Elements larger than ``split`` are sent in
    parts; ``parts`` is the number of elements split earlier. Return that number after this call."""
    small = min(LARGEST, split)
    sizes = list(map(len, elements))
    largest = max(sizes)
    if largest <= small and len(set(sizes)) == 1:
        start_of_each = b"".join((_NEXT, head, varint(largest)))
        step = _RUN // (largest + len(start_of_each)) + 1
        for start in range(0, len(elements), step):
            # a head before each: one join in C instead of a loop over the elements
            out.put(id, start_of_each.join((b"", *elements[start : start + step])))
        return parts
    if largest <= small:
        pieces = [_NEXT + head] * (3 * len(elements))
        pieces[1::3] = map(lengths().__getitem__, sizes)
        pieces[2::3] = elements
        step = 3 * (_RUN // (largest + len(head) + 3) + 1)
        for start in range(0, len(pieces), step):
            out.put(id, b"".join(pieces[start : start + step]))
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
