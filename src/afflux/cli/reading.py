"""Read a stored stream by cursor: ``--cursor FROM[:COUNT]``. Remembers the next offset, to continue from there."""

from __future__ import annotations

import re

from afflux.cli.exits import usage
from afflux.core.errors import Invalid, Violation
from afflux.core.payload import Payload
from afflux.protocols.rsocket.cursor import Read, split_position

__all__ = ["Reading"]


class Reading:
    """A read from the offset ``first`` on, of ``count`` items, or of all that follow if None."""

    def __init__(self, first: int, count: int | None) -> None:
        self.first = first
        self.next = first
        "The offset of the next item."
        self._end = None if count is None else first + count
        self._epoch = 0

    @classmethod
    def parse(cls, text: str) -> Reading:
        """Parse FROM or FROM:COUNT. Exits with a usage error for anything else."""
        match = re.fullmatch(r"(\d{1,18})(?::(\d{1,18}))?", text)
        if match is None or (match[2] is not None and int(match[2]) == 0):
            usage(f"invalid --cursor {text!r}: expected FROM or FROM:COUNT, such as 0 or 1000:50")
        return cls(int(match[1]), None if match[2] is None else int(match[2]))

    @property
    def complete(self) -> bool:
        """Whether all items that were asked for have arrived."""
        return self._end is not None and self.next >= self._end

    def cursor(self) -> Read:
        """Return the cursor that reads the remaining items, in the epoch of the items so far."""
        left = 0 if self._end is None else self._end - self.next
        return Read(epoch=self._epoch, first=self.next, limit=left)

    def own(self, item: Payload) -> Payload:
        """Return an item with its own metadata, without its position, and count it.

        Raises:
            Invalid: the position cannot be read, or a server that stores nothing has sent the first item without one.
        """
        try:
            position, metadata = split_position(item.metadata)
        except Violation as violation:
            raise Invalid(f"the position of an item cannot be read: {violation.reason}", rule=violation.rule) from None
        if position is not None:
            self.next, self._epoch = position.offset, position.epoch
        elif not self._epoch:
            raise Invalid("the answer has no offsets: the server does not store this stream (serve --journal)")
        self.next += 1
        return item if position is None else Payload(item.data, metadata)

    def summary(self) -> str:
        """Describe what was read, and how to continue."""
        return f"read offsets {self.first} to {self.next - 1}; continue with --cursor {self.next}"
