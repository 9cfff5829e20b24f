"""Keep the first bytes of both sides of a connection until they decide what it carries, within the budget of all."""

from __future__ import annotations

from afflux.capture.settings import Settings

__all__ = ["FirstBytes"]

Piece = tuple[bool, bytes, int, int]
"The direction, its bytes, the packet that completed them, and the number of its batch."


class FirstBytes:
    """The first bytes of a connection. All connections together keep ``capture_bytes``: see ``Settings.buffered``."""

    __slots__ = ("_held", "_settings", "pieces", "size", "starts", "strange")

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._held = 0
        self.pieces: list[Piece] = []
        "What has come, in order."
        self.starts: dict[bool, bytes] = {}
        "The same of each direction."
        self.size = 0
        "Bytes that have come."
        self.strange = False
        "Nothing is decoded: only the beginnings of ``starts`` are kept, to be described."

    @property
    def full(self) -> bool:
        """Whether no more may be kept."""
        settings = self._settings
        limits = settings.limits
        return self.size > limits.first_frame_bytes or settings.buffered > limits.capture_bytes

    def add(self, rising: bool, data: bytes, packet: int) -> None:
        """Keep bytes, in two copies."""
        self.pieces.append((rising, data, packet, self._settings.batch))
        self.starts[rising] = self.starts.get(rising, b"") + data
        self.size += len(data)
        self._held += 2 * len(data)
        self._settings.buffered += 2 * len(data)

    def shorten(self, size: int) -> None:
        """Keep only so many bytes of each direction; see ``strange``."""
        starts = {rising: data[:size] for rising, data in self.starts.items()}
        self.taken()
        self.strange, self.starts = True, starts

    def glimpse(self, rising: bool, data: bytes, size: int) -> None:
        """Note so many first bytes of a direction, if it had none, and count all."""
        self.starts.setdefault(rising, data[:size])
        self.size += len(data)

    def taken(self) -> list[Piece]:
        """Return what has come; it is not kept any more."""
        pieces, self.pieces, self.starts, self.size = self.pieces, [], {}, 0
        self._settings.buffered -= self._held
        self._held = 0
        return pieces
