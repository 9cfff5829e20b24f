"""Retain sent frames for resumption, and check the tokens of sessions.

Theory of operation. A *session* outlives its transports. Each direction has an implied position: the bytes of all
REQUEST_*, REQUEST_N, CANCEL, ERROR and PAYLOAD frames of streams so far, without length prefixes (R-44). The sender
retains those frames until the peer has reported its position. On a new transport both sides report theirs, and the
sender repeats the rest, in order, before anything else (R-50). Frames of stream 0 are not counted, because they belong
to a transport, and neither are EXT frames.

Transports, tables and time are elsewhere.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from afflux.core.errors import Violation
from afflux.core.limits import Limits
from afflux.protocols.family.sessions import Sessions
from afflux.protocols.rsocket.codes import Code
from afflux.protocols.rsocket.frames import FRAMES, Ext, StreamFrame

__all__ = ["Retained", "counted", "token_refusal"]

_TRACKED = frozenset(kind.TYPE for kind in FRAMES.values() if issubclass(kind, StreamFrame) and kind is not Ext)
"Frame types that have a position (R-44)."
_REPORTS = 8
"The number of position reports while the peer's store could fill, if it is as large as this side's."
_REPORT_ALWAYS = 0x20000
"Bytes after which a report is always due: a server's store may be 1 MiB where this side's is larger."
_JOIN_BELOW = 0x1000


def counted(block: bytes, start: int, end: int) -> int:
    """The bytes that the whole frames in ``block[start:end]`` add to the position (R-44)."""
    size = 0
    while start < end:
        length = int.from_bytes(block[start : start + 3], "big")
        id = int.from_bytes(block[start + 3 : start + 7], "big") & 0x7FFFFFFF
        if id and block[start + 7] >> 2 in _TRACKED:
            size += length
        start += 3 + length
    return size


class Retained:
    """The frames of streams that this side has sent, from ``first`` to ``sent``.

    They are stored in blocks, as they left. A block is freed as a whole; of the first one, only the bytes from
    ``first`` on count. So a position costs a walk over the frames it frees, however often it is reported.
    """

    __slots__ = ("_blocks", "_lengths", "_offset", "_told", "first", "limit", "received", "reported", "sent")

    def __init__(self, limits: Limits) -> None:
        self.limit = limits.resume_bytes
        "Bytes that may be retained (K)."
        self._blocks: deque[bytes] = deque()
        self._lengths: deque[int] = deque()
        "The bytes of the frames in each block, without their prefixes; of the first from ``first`` on."
        self._offset = 0
        "The offset of ``first`` in the first block."
        self.first = 0
        "The position of the first retained byte."
        self.sent = 0
        "The position after the last sent byte."
        self.received = 0
        "The position of the other direction: the bytes that this side has received."
        self.reported = 0
        "The last position that this side has reported to the peer."
        self._told = 0

    @property
    def size(self) -> int:
        """Bytes retained, without length prefixes."""
        return self.sent - self.first

    @property
    def room(self) -> int:
        """Bytes that may still be sent."""
        return self.limit - self.size

    def count(self, block: bytes, start: int, end: int) -> None:
        """Count the whole frames in ``block[start:end]`` as received (R-44)."""
        self.received += counted(block, start, end)

    @property
    def report_due(self) -> bool:
        """Whether enough has arrived since the last report for a new one."""
        return self.received - self.reported >= max(1, min(self.limit // _REPORTS, _REPORT_ALWAYS))

    def add(self, block: bytes) -> bytes:
        """Retain whole frames of streams, with their prefixes, that are being sent; return them."""
        if not block:
            return block
        length = _length(block)
        self.sent += length
        if self._blocks and len(self._blocks[-1]) < _JOIN_BELOW:
            self._blocks[-1] += block  # many small objects would cost more than their contents
            self._lengths[-1] += length
        else:
            self._blocks.append(block)
            self._lengths.append(length)
        return block

    def acknowledge(self, position: int) -> bool:
        """Apply the position that the peer reports (R-51). False when it goes backwards: then it is ignored. A peer
        that does not count reports 0 (D-5).

        Raises:
            Violation: the position is beyond the sent bytes.
        """
        if position > self.sent:
            raise Violation(f"position {position} of {self.sent}: it was not sent yet", rule="R-51")
        if position < self._told:
            return not position
        self._told = position
        self.trim(position)
        return True

    def trim(self, position: int) -> None:
        """Drop the whole frames below ``position``."""
        while self._blocks and self.first < position:
            if self.first + self._lengths[0] > position:
                self._offset, first = _cut(self._blocks[0], self._offset, self.first, position)
                self._lengths[0] -= first - self.first
                self.first = first
                return
            self.first += self._lengths.popleft()
            self._blocks.popleft()
            self._offset = 0

    def holds(self, position: int) -> bool:
        """Whether everything from ``position`` on is retained, and a frame begins there."""
        if not self.first <= position <= self.sent:
            return False
        at, offset = self.first, self._offset
        for block, length in zip(self._blocks, self._lengths, strict=True):
            if at + length > position:
                return _cut(block, offset, at, position)[1] == position
            at, offset = at + length, 0
        return True

    def after(self, position: int) -> bytes:
        """Return everything retained from ``position`` on, where a frame begins."""
        parts: list[bytes] = []
        at, number = self.sent, len(self._blocks)
        while at > position and number:
            number -= 1
            at -= self._lengths[number]
            start = 0 if number else self._offset
            if at < position:
                start, _ = _cut(self._blocks[number], start, at, position)
            parts.append(self._blocks[number][start:])
        return b"".join(reversed(parts))

    def state(self) -> list[int]:
        """The positions, which ``restore`` reads together with the frames."""
        return [self.first, self.sent, self.received, self.reported, self._told]

    def restore(self, state: list[int], blocks: Iterable[tuple[int, bytes]]) -> None:
        """Continue from a state, with the retained frames: (position, frames), in order. They may begin before the
        first retained one.

        Raises:
            ValueError: the frames do not match the state.
        """
        first, sent, self.received, self.reported, self._told = state
        for position, frames in blocks:
            if not self._blocks:
                self.first = self.sent = position
            if position != self.sent:
                raise ValueError(f"the frames from position {self.sent} are missing")
            self.add(frames)
        if not self._blocks:
            self.first = self.sent = first
        self.trim(first)
        if (self.first, self.sent) != (first, sent):
            raise ValueError(f"the frames {self.first} to {self.sent} are not those from {first} to {sent}")

    def streams(self) -> set[int]:
        """The streams whose frames are retained."""
        found: set[int] = set()
        for block in self.blocks():
            at = 0
            while at < len(block):
                found.add(int.from_bytes(block[at + 3 : at + 7], "big"))
                at += 3 + int.from_bytes(block[at : at + 3], "big")
        return found

    def blocks(self) -> Iterator[bytes]:
        """All retained frames, in order."""
        offset = self._offset
        for block in self._blocks:
            yield block[offset:]
            offset = 0


def _length(block: bytes) -> int:
    """The bytes of the frames in a block, without their prefixes."""
    at = frames = 0
    while at < len(block):
        at += 3 + int.from_bytes(block[at : at + 3], "big")
        frames += 1
    return len(block) - 3 * frames


def _cut(block: bytes, at: int, first: int, position: int) -> tuple[int, int]:
    """Return where in the block the first frame that reaches beyond ``position`` starts, and its position. The search
    starts at the frame at ``at``, whose position is ``first``."""
    while True:
        length = int.from_bytes(block[at : at + 3], "big")
        if first + length > position:
            return at, first
        at += 3 + length
        first += length


def token_refusal(token: bytes, limits: Limits, sessions: Sessions | None) -> Violation | None:
    """Return why no session can be stored under ``token``, or None."""
    reason, rule = "", "R-53"
    if not 0 < len(token) <= limits.resume_token_bytes[1]:
        reason = "bad-token"
    elif sessions is None:
        reason, rule = "resumption is not supported", "R-15"
    elif sessions.find(token) is not None:
        reason, rule = "the token is in use", "R-49"
    elif sessions.full:
        reason, rule = "too many sessions", "resume_sessions"
    return Violation(reason, rule=rule, code=Code.REJECTED_SETUP) if reason else None
