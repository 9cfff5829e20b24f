"""Parse received bytes into messages, field by field (section 3.4).

Messages carry no length, so they are parsed field by field, and parsed fields are retained when the bytes end (R-8): a
message that arrives byte by byte costs one attempt at its last field for each byte. The length of a field is checked
before anything is stored for it (R-7), and unwanted bytes are skipped without being stored. Plain elements bypass the
parser: ``run`` takes them from the block.

Bytes that cannot be parsed end the reading permanently (R-17): the start of the next message cannot be found.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any

from afflux.core.buffer import ReceiveBuffer
from afflux.core.errors import Violation
from afflux.core.limits import Limits
from afflux.protocols.rsio.frames import (
    FRAMES,
    ClientHello,
    Goodbye,
    GoodbyeAck,
    Message,
    OnNext,
    OnNextLastPart,
    OnNextPacked,
    OnNextPart,
    ServerHello,
)
from afflux.protocols.rsio.kinds import Cursor, NotYet

__all__ = ["Inbound", "Reading"]

_FAR = 1 << 62
_EXTENDED = frozenset((OnNextPart.TYPE, OnNextLastPart.TYPE, GoodbyeAck.TYPE))
_FIRST = frozenset((ClientHello.TYPE, ServerHello.TYPE, Goodbye.TYPE))
_PLAIN = frozenset((OnNext.TYPE, OnNextPacked.TYPE))


def _dropped(message: Any) -> None:
    """Replace the engine's callback after the end of reading."""


class Reading(IntEnum):
    """State of the reader: which messages may arrive."""

    FIRST = 0
    "A hello, or goodbye (R-9)."
    ALL = 1
    HELD = 2
    "The application is deciding: input is buffered."
    OVER = 3
    "Nothing more is read."


_FIRST_ONLY, _HELD, _OVER = Reading.FIRST, Reading.HELD, Reading.OVER


class Inbound:
    """Buffer and parse received bytes.

    Args:
        limits: the bounds.
        sizes: bytes of the elements of an id, 0 when each has its length, None for an unknown id.
        run: applies plain elements from the cursor on and advances it past them; returns the block size needed for the
            next one, 0 when that is not an element to wait for.
        treat: applies one message. It never raises.
    """

    __slots__ = (
        "_cursor",
        "_field",
        "_kind",
        "_now",
        "_run",
        "_treat",
        "_values",
        "buffer",
        "incomplete_since",
        "known",
        "reading",
    )

    def __init__(
        self,
        limits: Limits,
        sizes: Callable[[int], int | None],
        run: Callable[[Cursor], int],
        treat: Callable[[Any], None],
    ) -> None:
        self.buffer = ReceiveBuffer(limits.connection_bytes + limits.frame_bytes)
        "Bytes that are not yet a whole message."
        self._cursor = Cursor(limits, sizes)
        self._run = run
        self._treat = treat
        self._now = 0.0
        self._kind: type[Message] | None = None
        "Type of the unfinished message."
        self._values: dict[str, Any] = {}
        self._field = 0
        self.known: frozenset[int] = frozenset(FRAMES) - _EXTENDED
        "Legal types: those of extensions only when both sides list them (R-14)."
        self.reading = _FIRST_ONLY
        self.incomplete_since: float | None = None
        "When the unfinished message at the end began to arrive."

    @property
    def pending(self) -> int:
        """Number of buffered bytes."""
        return self.buffer.pending

    def receive(self, data: bytes | memoryview, now: float) -> None:
        """Buffer received bytes and apply every message that is complete.

        Raises:
            Violation: the bytes cannot be parsed; earlier messages have been applied.
        """
        self._now = now
        if self.reading is not _OVER and (block := self.buffer.feed(data)) is not None:
            self._parse(block)

    def resume(self, now: float) -> None:
        """Apply the buffered input: the application has decided."""
        self._now = now
        self._parse(self.buffer.take())

    def hold(self, now: float) -> None:
        """Exclude the time until ``now`` from the timeout of an unfinished message: this side did not read."""
        if self.incomplete_since is not None:
            self.incomplete_since = now

    def close(self) -> None:
        """Stop reading."""
        self.reading = _OVER
        self.incomplete_since = None
        self._values = {}
        self._treat = _dropped  # the engine's own method: keeping it would be a reference cycle
        self.buffer.clear()

    def _parse(self, block: bytes) -> None:
        cursor = self._cursor
        cursor.block, cursor.at, cursor.end = block, 0, len(block)
        need, done = 0, False
        try:
            while cursor.at < cursor.end and self.reading < _HELD:
                if self._kind is None and not cursor.skip and block[cursor.at] in _PLAIN:
                    at = cursor.at
                    whole = self._run(cursor)
                    done = done or cursor.at > at
                    if whole:
                        need = whole - cursor.at
                        break
                    if cursor.at > at:
                        continue
                done = self._read() or done
        except NotYet as rest:
            need = rest.need - cursor.at
        cursor.block = b""
        if self.reading is _OVER:
            self.buffer.clear()
            return
        partial = self._kind is not None or cursor.skip or cursor.at < cursor.end
        held = self.reading is _HELD
        if not partial or held:
            self.incomplete_since = None
        elif done or self.incomplete_since is None:
            self.incomplete_since = self._now
        self.buffer.keep(block, cursor.at, _FAR if held else need)

    def _read(self) -> bool:
        """Continue a message; return whether it is complete, and was applied."""
        cursor = self._cursor
        if cursor.skip and self._pass_over(cursor):
            return False
        kind = self._kind
        if kind is None:
            kind = self._kind = self._kind_of(cursor.varint())
            self._values = {}
            self._field = 0
        fields = kind.KINDS
        while self._field < len(fields):
            name, field = fields[self._field]
            start = cursor.at
            try:
                self._values[name] = field.read(cursor, self._values)
            except NotYet:
                cursor.at = start
                raise
            self._field += 1
            if cursor.skip and self._field < len(fields) and self._pass_over(cursor):
                return False
        values, self._kind, self._values = self._values, None, {}
        self._treat(kind.received(values))
        return True

    def _kind_of(self, code: int) -> type[Message]:
        """Return the message type for a number.

        Raises:
            Violation: the type is unknown, or not legal now.
        """
        if code not in self.known:
            raise Violation(f"a message of the unknown type {code}", rule="R-17")
        if self.reading is _FIRST_ONLY and code not in _FIRST:
            raise Violation(f"the first message is {FRAMES[code].NAME}, not a hello", rule="R-9")
        return FRAMES[code]

    @staticmethod
    def _pass_over(cursor: Cursor) -> bool:
        """Skip unwanted bytes; return whether more of them are still to come."""
        size = min(cursor.skip, cursor.end - cursor.at)
        cursor.at += size
        cursor.skip -= size
        return cursor.skip > 0
