"""Cut a stream of bytes into items: lines, or items with a length before each."""

from __future__ import annotations

from typing import Final

from afflux.core.errors import Error, LimitExceeded

__all__ = ["FRAMINGS", "Cutter"]

FRAMINGS: Final = {"lines": 0, "u8": 1, "u16": 2, "u24": 3, "u32": 4}
"The framings, each with the bytes of its length prefix, which is big endian and does not count itself."


class Cutter:
    """The items of one stream of bytes.

    Args:
        framing: a name of ``FRAMINGS``.
        most: the largest item, in bytes.
    """

    def __init__(self, framing: str, most: int) -> None:
        self._prefix = FRAMINGS[framing]
        self._most = most
        self._rest = b""

    def cut(self, data: bytes) -> list[bytes]:
        """Return the items that ``data`` completes. A line loses its end: LF or CR LF.

        Raises:
            LimitExceeded: an item is larger than ``most``.
        """
        return self._lines(data) if not self._prefix else self._prefixed(data)

    def end(self) -> list[bytes]:
        """Return the last line, if it has no end.

        Raises:
            Error: the bytes end inside of an item with a length.
        """
        rest, self._rest = self._rest, b""
        if rest and self._prefix:
            raise Error(f"the stream ends inside of an item: {len(rest)} bytes of it have arrived")
        return [rest.removesuffix(b"\r")] if rest else []

    def _lines(self, data: bytes) -> list[bytes]:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._check(len(line))
        self._check(len(self._rest))
        return [line.removesuffix(b"\r") for line in lines]

    def _prefixed(self, data: bytes) -> list[bytes]:
        buffer, prefix, items, start = self._rest + data, self._prefix, [], 0
        while len(buffer) - start >= prefix:
            size = int.from_bytes(buffer[start : start + prefix], "big")
            self._check(size)
            end = start + prefix + size
            if end > len(buffer):
                break
            items.append(buffer[start + prefix : end])
            start = end
        self._rest = buffer[start:]
        return items

    def _check(self, size: int) -> None:
        if size > self._most:
            text = f"an item has {size} bytes, and at most {self._most} are allowed"
            raise LimitExceeded(text, rule="payload_bytes", too_large=True)
