"""Cut runs of onNext whose elements differ in length out of a block, with no step of Python for each."""

from __future__ import annotations

from functools import cache

from afflux.protocols.rsio.kinds import varint

__all__ = ["LARGEST", "cut", "lengths"]

LARGEST = 0x1000
"Elements with more bytes are not cut."

_FURTHEST = 0x7000
"Bytes looked at together: in 30,000 bytes and more CPython (3.11) finds short separators at half the speed."
_SHORT = 0x80
"Lengths below it have one byte, longer ones two."


def cut(block: bytes, position: int, end: int, same: bytes, most: int, ahead: int) -> tuple[list[bytes], int]:
    """Return the elements of consecutive messages in ``block[position:end]``, each ``same``, a length and an element;
    and where they end.

    A message that cannot be cut, because it is large or its element contains ``same``, is left to the caller with those
    behind it. Time is proportional to the bytes of the messages and ``ahead``.

    Args:
        block: received bytes.
        position: where the first message starts.
        end: where the bytes end.
        same: type and id, encoded.
        most: the number of elements to return, at most.
        ahead: bytes to look at in the first step.
    """
    elements: list[bytes] = []
    while True:
        stop = min(end, position + ahead, position + _FURTHEST)
        parts = block[position:stop].split(same, most - len(elements))
        # The first is empty; each of the others is a length and an element, the last with what follows it.
        if len(parts) < 2 or parts[0]:
            return elements, position
        last = _first(parts.pop())
        found = [part[1:] if len(part) <= _SHORT else part[2:] for part in parts[1:]]
        if last is not None:
            found.append(last)
        if not found:
            return elements, position
        position, whole = _confirm(block, position, same, found)
        elements += found
        if not whole or stop == end or len(elements) == most:
            return elements, position
        ahead *= 4


def _first(rest: bytes) -> bytes | None:
    """Return the element at the beginning, after its length; None if it is incomplete or large."""
    size, start = (rest[0], 1) if rest else (0, 1)
    if size >= _SHORT and len(rest) > 1:
        size, start = size - _SHORT + (rest[1] << 7), 2
    element = rest[start : start + size]
    return element if rest and len(element) == size else None


def _confirm(block: bytes, position: int, same: bytes, elements: list[bytes]) -> tuple[int, bool]:
    """Delete from ``elements`` the first that is not the element of the message at its place, and those behind it.
    Return where the others end, and whether that is all."""
    try:
        encoded = list(map(lengths().__getitem__, map(len, elements)))
    except IndexError:
        encoded = []
    pieces = [same] * (3 * len(encoded))
    pieces[1::3] = encoded
    pieces[2::3] = elements[: len(encoded)]
    if encoded and block.startswith(messages := b"".join(pieces), position):
        return position + len(messages), True
    index = 0
    while len(element := elements[index]) <= LARGEST:
        message = b"".join((same, varint(len(element)), element))
        if not block.startswith(message, position):
            break
        position += len(message)
        index += 1
    del elements[index:]
    return position, False


@cache
def lengths() -> list[bytes]:
    """Return the encoded lengths up to ``LARGEST``."""
    return [varint(length) for length in range(LARGEST + 1)]
