"""Split received bytes into frames, and apply each in turn (2.1, 2.2).

Lengths are checked before anything is stored for them. Messages that the application has not asked for stay in the
buffer, with all that follows them: then this side stops reading (D-16).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from afflux.core.buffer import ReceiveBuffer
from afflux.core.errors import Violation
from afflux.core.frame import Malformed
from afflux.core.limits import Limits, oversize
from afflux.protocols.limit import runs
from afflux.protocols.limit.codes import Code
from afflux.protocols.limit.frames import HEADER_SIZE, LimitFrame, Setup, decode

if TYPE_CHECKING:
    from afflux.protocols.limit.connection import Connection

__all__ = ["Inbound"]

_FAR: Final = 1 << 62
_PREFIX: Final = 3


class Inbound:
    """Buffer and split received bytes."""

    __slots__ = ("_limits", "buffer", "held", "incomplete_since")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.buffer = ReceiveBuffer(limits.connection_bytes + limits.frame_bytes + _PREFIX)
        "Bytes that are not yet applied."
        self.held = False
        "The buffer begins with a frame that waits for the application."
        self.incomplete_since: float | None = None
        "When the unfinished frame at the end began to arrive."

    def receive(self, connection: Connection, data: bytes | memoryview, now: float) -> None:
        """Buffer received bytes and apply every frame that is complete.

        Raises:
            Violation: the bytes cannot be read; earlier frames have been applied.
        """
        if (block := self.buffer.feed(data)) is not None:
            self._apply(connection, block, now)

    def resume(self, connection: Connection, now: float) -> None:
        """Apply the buffered frames: the application has decided, or asked for more. Raises as ``receive`` does."""
        self.held = False
        self._apply(connection, self.buffer.take(), now)

    def close(self) -> None:
        """Drop the buffer."""
        self.buffer.clear()
        self.held = False
        self.incomplete_since = None

    def _apply(self, connection: Connection, block: bytes, now: float) -> None:
        at, end, need, done = 0, len(block), 0, False
        while connection.reads:
            session = connection.shared.session
            if session is not None and at + _PREFIX + HEADER_SIZE <= end and session.takes_runs:
                stop = runs.receive(connection.shared, session, block, at, end)
                if stop > at:
                    at, done, session.end_due = stop, True, False
                    continue
            start = at + _PREFIX
            if start > end:
                need = _PREFIX if at < end else 0
                break
            stop = start + int.from_bytes(block[at:start], "big")
            if need := self._check(connection, block, start, stop):
                need -= at
                break
            if stop > end:
                need = stop - at
                break
            if block[start + 4] >> 2 in connection.waiting:
                self.held = True
                break
            at, done = stop, True
            if (frame := self._frame(connection, block, start, stop)) is not None:
                connection.apply(frame)
        if connection.over:
            self.close()
            return
        held = self.held = self.held or not connection.reads
        if at == end or held:
            self.incomplete_since = None
        elif done or self.incomplete_since is None:
            self.incomplete_since = now
        self.buffer.keep(block, at, _FAR if held else need)

    def _check(self, connection: Connection, block: bytes, start: int, stop: int) -> int:
        """Check the length of a frame. Return 0, or the end of the header that has to arrive for that.

        Raises:
            Violation: it is shorter than a header (FR-01), or longer than the limit (FR-02, HS-12).
        """
        size, limits = stop - start, self._limits
        if size < HEADER_SIZE:
            raise Violation(f"a frame of {size} bytes: the header has {HEADER_SIZE}", rule="FR-01")
        if size > limits.frame_bytes:
            raise Violation(oversize(limits, "frame_bytes", size), rule="frame_bytes", too_large=True)
        if size <= limits.first_frame_bytes or not connection.first:
            return 0
        if len(block) < start + HEADER_SIZE:
            return start + HEADER_SIZE
        code = Code.REJECTED_SETUP if block[start + 4] >> 2 == Setup.TYPE else Code.INVALID_SETUP
        raise Violation(oversize(limits, "first_frame_bytes", size), rule="first_frame_bytes", code=code)

    @staticmethod
    def _frame(connection: Connection, block: bytes, start: int, stop: int) -> LimitFrame | None:
        """Return the frame, or None for one that is skipped because I is set (R-8, R-10). Both roles do so (D-11)."""
        try:
            return decode(block, start, stop)
        except Malformed as malformed:
            if not malformed.ignorable:
                raise
            connection.skip(malformed.stream, malformed.rule, malformed.reason)
            return None
