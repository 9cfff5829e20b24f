"""Define what can be wrong with a capture file. A damaged file does not raise: a reader stops and reports a Problem."""

from __future__ import annotations

from dataclasses import dataclass

from afflux.core.errors import Error

__all__ = ["CaptureError", "Damaged", "Problem"]


class CaptureError(Error):
    """The file is not a capture, or its compression or version is unsupported. No packet has been read."""


class NoCapture(CaptureError):
    """The content of the file, decompressed, does not begin as a capture does."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Why reading ended before the end of the file. All packets before it have been read."""

    word: str
    "``truncated``, ``bad-record``, ``too-many-interfaces``, ``bomb`` or ``shrunk``."
    offset: int
    "Where, in bytes of the decompressed file."
    text: str
    "What is wrong, in words."

    def __str__(self) -> str:
        return f"{self.word} at byte {self.offset}: {self.text.removeprefix(f'{self.word}: ')}"


class Damaged(Exception):  # noqa: N818 -- becomes a Problem, never leaves the package
    """A record that cannot be read. Nothing after it can be found."""

    def __init__(self, word: str, offset: int, text: str) -> None:
        super().__init__(text)
        self.word = word
        self.offset = offset
        self.text = text
