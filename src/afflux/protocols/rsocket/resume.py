"""Resumption: what was sent and may have to be sent again, and which sessions wait for their client.

Theory of operation. A *session* outlives its transports. Each direction has an implied position: the bytes of all
REQUEST_*, REQUEST_N, CANCEL, ERROR and PAYLOAD frames of streams so far, without length prefixes (R-44). The sender
retains those frames until the peer has said how far it got; on a new transport both sides say so, and the sender
repeats the rest, in order, before anything else (R-50). Frames of stream 0 are not counted: they belong to a
transport. So do EXT frames.

Nothing here knows a transport, a table or time.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from hashlib import sha256
from hmac import compare_digest
from typing import TYPE_CHECKING

from afflux.core.errors import Violation
from afflux.core.limits import Limits
from afflux.protocols.rsocket.frames import (
    Cancel,
    ErrorFrame,
    PayloadFrame,
    RequestChannel,
    RequestFnf,
    RequestN,
    RequestResponse,
    RequestStream,
)

if TYPE_CHECKING:
    from afflux.protocols.rsocket.connection import Connection

__all__ = ["Retained", "Sessions", "counted"]

_TRACKED = frozenset(
    kind.TYPE
    for kind in (
        RequestResponse,
        RequestFnf,
        RequestStream,
        RequestChannel,
        RequestN,
        Cancel,
        PayloadFrame,
        ErrorFrame,
    )
)
"Frame types that have a position (R-44)."
_REPORTS = 8
"Positions are reported so many times while the peer's store could fill, if it is as large as this side's."
_JOIN_BELOW = 0x1000


def counted(block: bytes, start: int, end: int) -> int:
    """The bytes that the whole frames in ``block[start:end]`` add to the position (R-44)."""
    size = 0
    while start < end:
        length = int.from_bytes(block[start : start + 3], "big")
        if block[start + 7] >> 2 in _TRACKED and any(block[start + 3 : start + 7]):
            size += length
        start += 3 + length
    return size


class Retained:
    """The frames of streams that this side has sent, from ``first`` to ``sent``."""

    __slots__ = ("_blocks", "_told", "first", "limit", "received", "reported", "sent")

    def __init__(self, limits: Limits) -> None:
        self.limit = limits.resume_bytes
        "Bytes that may be retained (K)."
        self._blocks: deque[bytes] = deque()
        self.first = 0
        "The position of the first byte that is retained."
        self.sent = 0
        "The position behind the last byte that was sent."
        self.received = 0
        "The position of the other direction: how far this side has received."
        self.reported = 0
        "The last position that this side has told the peer."
        self._told = 0

    @property
    def size(self) -> int:
        """Bytes retained, length prefixes not counted."""
        return self.sent - self.first

    @property
    def room(self) -> int:
        """Bytes that may still be sent."""
        return self.limit - self.size

    @property
    def report_due(self) -> bool:
        """So much has come since the peer was told that it should be told again."""
        return self.received - self.reported >= self.limit // _REPORTS

    def add(self, block: bytes) -> None:
        """Frames of streams are being sent: whole ones, with their prefixes."""
        if not block:
            return
        self.sent += _length(block)
        if self._blocks and len(self._blocks[-1]) < _JOIN_BELOW:
            self._blocks[-1] += block  # many small objects would cost more than they hold
        else:
            self._blocks.append(block)

    def told(self, position: int) -> None:
        """The peer says how far it got, in a KEEPALIVE (R-51).

        Raises:
            Violation: that is beyond what was sent.
        """
        if position > self.sent:
            raise Violation(f"position {position} of {self.sent}: it was not sent yet", rule="R-51")
        if position > self._told:
            self._told = position
            self.trim(position)

    def trim(self, position: int) -> None:
        """Forget the whole frames below ``position``."""
        while self._blocks and self.first < position:
            block = self._blocks[0]
            length = _length(block)
            if self.first + length > position:
                at, self.first = _cut(block, self.first, position)
                self._blocks[0] = block[at:]
                return
            self.first += length
            self._blocks.popleft()

    def holds(self, position: int) -> bool:
        """Whether everything from ``position`` on is retained, and a frame begins there."""
        if not self.first <= position <= self.sent:
            return False
        at = self.first
        for block in self._blocks:
            length = _length(block)
            if at + length > position:
                return _cut(block, at, position)[1] == position
            at += length
        return True

    def blocks(self) -> Iterator[bytes]:
        """Everything retained, in order."""
        return iter(self._blocks)


def _length(block: bytes) -> int:
    """The bytes of the frames in a block, without their prefixes."""
    at = frames = 0
    while at < len(block):
        at += 3 + int.from_bytes(block[at : at + 3], "big")
        frames += 1
    return len(block) - 3 * frames


def _cut(block: bytes, first: int, position: int) -> tuple[int, int]:
    """Where in the block, which begins at ``first``, the frame stands that reaches beyond ``position``; and that
    frame's position."""
    at = 0
    while True:
        length = int.from_bytes(block[at : at + 3], "big")
        if first + length > position:
            return at, first
        at += 3 + length
        first += length


class Sessions:
    """The resumable sessions of one server, by token. Nothing is kept that could tell a token (RE-13)."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._sessions: OrderedDict[bytes, Connection] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def full(self) -> bool:
        """Whether there is no place for one more: as many as may be, and none of them is away."""
        most = self._limits.resume_sessions
        return len(self._sessions) >= most and not any(session.suspended for session in self._sessions.values())

    def find(self, token: bytes) -> Connection | None:
        """The session of a token. How long it takes tells nothing of the token: digests are compared."""
        wanted = sha256(token).digest()
        session = self._sessions.get(wanted)
        if session is None or not compare_digest(wanted, session.digest):
            return None
        return session

    def add(self, session: Connection) -> None:
        """Keep a session. Call crowd_out soon."""
        self._sessions[session.digest] = session

    def remove(self, session: Connection) -> None:
        """The session is over."""
        if self._sessions.get(session.digest) is session:
            del self._sessions[session.digest]

    def away(self, session: Connection) -> None:
        """The session has lost its transport: of all that are away it will be the last to go. Call crowd_out soon."""
        if session.digest in self._sessions:
            self._sessions.move_to_end(session.digest)

    def crowd_out(self) -> list[Connection]:
        """Take out the disconnected sessions beyond ``resume_sessions`` and ``resume_process_bytes``, those that have
        been away for longest first (RE-18). The caller ends them."""
        limits = self._limits
        count = len(self._sessions)
        size = sum(session.held_bytes for session in self._sessions.values())
        gone: list[Connection] = []
        for session in self._sessions.values():
            if count <= limits.resume_sessions and size <= limits.resume_process_bytes:
                break
            if session.suspended:
                gone.append(session)
                count -= 1
                size -= session.held_bytes
        for session in gone:
            del self._sessions[session.digest]
        return gone
