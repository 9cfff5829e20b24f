"""Read a stored stream by cursor: ``--cursor FROM[:COUNT]``. Remembers the next offset, to continue from there."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from typing import Final

from afflux.cli.exits import usage
from afflux.core.errors import ApplicationError, Error, Invalid, Rejected, Violation
from afflux.core.payload import Payload
from afflux.protocols.rsocket.cursor import (
    EPOCH_CHANGED,
    JOURNAL_FAILED,
    OFFSET_AHEAD,
    OFFSET_GONE,
    READER_CONFLICT,
    UNKNOWN_SHARD,
    Head,
    Read,
    split_position,
)

__all__ = ["Reading"]

_CODES: Final = frozenset((EPOCH_CHANGED, OFFSET_GONE, OFFSET_AHEAD, UNKNOWN_SHARD, JOURNAL_FAILED, READER_CONFLICT))
"The codes of servers with journals."
_NO_SHARD: Final = 0xFFFF
"The highest shard, which no server is expected to have."
_NO_JOURNAL: Final = (
    "this server keeps no journal of the stream: omit --cursor, or start the server with afflux serve --journal DIR"
)


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
            raise Invalid(f"the answer has no offsets: {_NO_JOURNAL}")
        self.next += 1
        return item if position is None else Payload(item.data, metadata)

    async def explained(self, error: Error, probe: Callable[[Head], AsyncIterator[Payload]]) -> Error:
        """Return the error of a read, or, where the server keeps no journals, one that says so.

        Such a server passes the request to its handler, whose error may be about anything. A server with journals
        refuses a shard that does not exist before it asks a handler.

        Args:
            error: what the server has answered.
            probe: requests the same stream with another cursor.
        """
        if self._epoch or error.code in (None, *_CODES) or not isinstance(error, (ApplicationError, Invalid, Rejected)):
            return error
        try:
            async for _ in probe(Head(shard=_NO_SHARD)):
                break
        except ApplicationError as answer:
            if answer.code == UNKNOWN_SHARD:
                return error
        except Error:
            pass
        return Invalid(f"{_NO_JOURNAL}; it answers {error.message!r}", stream=error.stream)

    def summary(self) -> str:
        """Describe what was read, and how to continue."""
        if self.next == self.first:
            return f"no items from offset {self.first} on: the stream has ended"
        return f"read offsets {self.first} to {self.next - 1}; continue with --cursor {self.next}"
