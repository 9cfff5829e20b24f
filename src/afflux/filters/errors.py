"""Define the error of a filter that cannot be used."""

from __future__ import annotations

from afflux.core.errors import Error
from afflux.sessions.errors import caret
from afflux.sessions.types import Place

__all__ = ["FilterError"]


class FilterError(Error, ValueError):
    """The text of a filter does not parse, has an unknown name, or compares values of different types.

    The message has the reason, the line of the text, and a caret under the place.

    Attributes:
        reason: what is wrong, and what would be right.
        line, column: the place, from 1.
    """

    may_have_been_processed = False

    def __init__(self, reason: str, source: str, line: int = 1, column: int = 1) -> None:
        self.reason, self.line, self.column = reason, line, column
        under = caret(source, Place(line, column))
        super().__init__(f"{line}:{column}: {reason}" + (f"\n{under}" if under else ""))
