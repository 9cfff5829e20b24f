"""How a connection is filled to what it may hold. No tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from random import Random
from typing import Any

from afflux.core.limits import Limits

__all__ = ["SERVER", "TINY", "Hoard", "drained", "poured"]

SERVER = Limits.server()
TINY = Limits.tiny()


@dataclass(frozen=True)
class Hoard:
    """A peer that says what is allowed, and an application that takes nothing."""

    make: Callable[[Limits], Any]
    "An engine that is ready for it."
    source: Callable[[Any], Iterator[bytes]]
    "What the peer says, without end; it may look at what the engine has to say."


def drained(engine: Any) -> bytes:
    """Everything that an engine has to say."""
    data = bytearray()
    while chunk := engine.outgoing():
        data += chunk
    return bytes(data)


def poured(engine: Any, hoard: Hoard, heard: list[Any], *, step: int = 0, dice: Random | None = None) -> int:
    """Tell an engine of a hoard until it takes no more; how many bytes that was. ``heard`` keeps the events."""
    size = 0
    for data in islice(hoard.source(engine), 4000):
        said = data if dice is None else _flipped(data, dice)
        for start in range(0, len(said), step or len(said)):
            if engine.closed or not engine.wants_read:
                return size
            piece = said[start : start + (step or len(said))]
            size += len(piece)
            heard += engine.receive(piece, 0.0)
    return size


def _flipped(data: bytes, dice: Random) -> bytes:
    place = dice.randrange(len(data) * 8)
    said = bytearray(data)
    said[place // 8] ^= 1 << place % 8
    return bytes(said)
