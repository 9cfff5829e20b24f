"""Convert the bytes of one direction of a connection to frame records: directly, or out of WebSocket messages.

Each record comes with the position after its frame, from which the caller finds the packet that completed it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeGuard

from afflux.capture.websocket import Message, Messages
from afflux.core.dissector import Dissector, Prefixed, Record
from afflux.core.limits import Limits, reached

__all__ = ["Placed", "PlainSide", "Side", "WebSocketSide", "prefixed"]

Placed = tuple[int, Record]
"The position after a frame in its direction, and its record."


def prefixed(dissector: object) -> TypeGuard[Prefixed]:
    """Return whether the frames that a dissector finds can be found together."""
    return isinstance(dissector, Prefixed) and bool(dissector.declared)


class Side(Protocol):
    """The consumer of one direction."""

    @property
    def buffered(self) -> int:
        """Bytes that are buffered."""

    def feed(self, data: bytes) -> Iterable[Placed]:
        """Take the next bytes; return the frames that are complete now."""

    def lose(self, size: int) -> Iterable[Placed]:
        """The next ``size`` bytes are missing."""

    def end(self) -> Iterable[Placed]:
        """The direction has ended."""

    def stop(self, reason: str, rule: str = "limit") -> Iterable[Placed]:
        """Give up, for a reason that the last record contains."""


class PlainSide:
    """A direction that contains nothing but frames.

    Args:
        dissector: finds the frames.
        limits: see ``frame_bytes``.
    """

    def __init__(self, dissector: Dissector, limits: Limits) -> None:
        self.dissector = dissector
        "Finds the frames."
        self.prefixed = dissector if prefixed(dissector) else None
        "The dissector, if the frames that it finds can be found together with those of others."
        self._most = limits.frame_bytes
        self._limits = limits
        dissector.largest = min(dissector.largest, limits.frame_bytes)

    @property
    def buffered(self) -> int:
        """See Side."""
        return self.dissector.buffered

    def feed(self, data: bytes) -> Iterable[Placed]:
        """See Side."""
        found = [_placed(made) for made in self.dissector.feed(data)]
        if self.dissector.buffered > self._most + 64:
            found += self.stop(reached(self._limits, "frame_bytes"))
        return found

    def lose(self, size: int) -> Iterable[Placed]:
        """See Side."""
        return [_placed(made) for made in self.dissector.lose(size)]

    def end(self) -> Iterable[Placed]:
        """See Side."""
        return [_placed(made) for made in self.dissector.end()]

    def stop(self, reason: str, rule: str = "limit") -> Iterable[Placed]:
        """See Side."""
        return _stopped(self.dissector, reason, rule)


class WebSocketSide:
    """A direction of a WebSocket after the upgrade.

    Args:
        dissector: reads frames.
        messages: takes the messages out.
        whole: each message is one frame; otherwise the messages together are a stream of bytes.
        position: the position of the next byte in the direction.
    """

    def __init__(self, dissector: Dissector, messages: Messages, whole: bool, position: int) -> None:
        self._dissector = dissector
        self._messages = messages
        self._whole = whole
        self._position = position

    @property
    def buffered(self) -> int:
        """See Side."""
        return self._messages.buffered + self._dissector.buffered

    def feed(self, data: bytes) -> Iterable[Placed]:
        """See Side."""
        self._position += len(data)
        return self.read(self._messages.feed(data))

    def read(self, messages: Iterable[Message]) -> Iterable[Placed]:
        """Convert messages that were taken out before."""
        found: list[Placed] = []
        for message in messages:
            if self._whole:
                self._dissector.offset = message.start
                found.append((message.end, self._dissector.bare(message.data)))
            else:
                found += [(message.end, made) for made in self._dissector.feed(message.data)]
        if self._messages.over not in ("", "closed") and not self._dissector.over:
            found += self.stop(self._messages.over)
        return found

    def lose(self, size: int) -> Iterable[Placed]:
        """See Side."""
        if self._messages.over or self._dissector.over:
            return []
        return self.stop(f"{size} bytes are missing, and the next message cannot be found", "lost")

    def end(self) -> Iterable[Placed]:
        """See Side."""
        return []

    def stop(self, reason: str, rule: str = "limit") -> Iterable[Placed]:
        """See Side."""
        self._messages.over = self._messages.over or reason
        self._dissector.offset = self._position
        return _stopped(self._dissector, reason, rule)


def _placed(made: Record) -> Placed:
    return (made["offset"] or 0) + (made["length"] or 0), made


def _stopped(dissector: Dissector, reason: str, rule: str) -> list[Placed]:
    return [_placed(made) for made in dissector.stop(reason, rule)]
