"""Retain sent frames for resumption, and list the sessions that wait for their client.

Theory of operation. A *session* outlives its transports. Each direction has an implied position: the bytes of all
REQUEST_*, REQUEST_N, CANCEL, ERROR and PAYLOAD frames of streams so far, without length prefixes (R-44). The sender
retains those frames until the peer has reported its position. On a new transport both sides report theirs, and the
sender repeats the rest, in order, before anything else (R-50). Frames of stream 0 are not counted, because they belong
to a transport, and neither are EXT frames.

Transports, tables and time are elsewhere.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from hashlib import sha256
from hmac import compare_digest
from typing import TYPE_CHECKING, Any

from afflux.core.errors import Violation
from afflux.core.limits import Limits
from afflux.protocols.family.states import ConnectionState
from afflux.protocols.rsocket.codes import Code
from afflux.protocols.rsocket.frames import FRAMES, Ext, StreamFrame

if TYPE_CHECKING:
    from afflux.protocols.family.connection import Connection

__all__ = ["Retained", "Sessions", "counted", "part_of", "token_refusal"]

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


class Sessions:
    """The resumable sessions of one server, by token. Nothing stored reveals a token (RE-13).

    No method iterates over all sessions: a thousand simultaneous losses of transports cost a thousand steps.
    """

    def __init__(self, limits: Limits, *, asks: bool = False) -> None:
        self._limits = limits
        self.asks = asks
        """A request for a missing session is an event as well: Resuming without a session, for the driver to refuse it
        after a delay of its own (RE-13)."""
        self._sessions: dict[bytes, Connection] = {}
        self._away: OrderedDict[bytes, Connection] = OrderedDict()
        "Sessions that have lost their transport, the longest away first; some may have been resumed since."
        self.size = 0
        "The total size of all sessions when they were last weighed."

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def full(self) -> bool:
        """Whether the number of sessions is at its limit, and none of them is away."""
        return len(self._sessions) >= self._limits.resume_sessions and self._longest_away() is None

    def find(self, token: bytes) -> Connection | None:
        """Return the session of a token. The duration reveals nothing of the token: digests are compared."""
        wanted = sha256(token).digest()
        session = self._sessions.get(wanted)
        if session is None or not compare_digest(wanted, _digest(session)):
            return None
        return session

    def add(self, session: Connection) -> None:
        """Add a session. Call ``crowd_out`` soon after."""
        self._sessions[_digest(session)] = session
        part_of(session).weight = 0

    def remove(self, session: Connection) -> None:
        """Remove a session that has ended."""
        part = part_of(session)
        if part.weight is not None:
            self.size -= part.weight
            part.weight = None
            del self._sessions[_digest(session)]
            self._away.pop(_digest(session), None)

    def away(self, session: Connection) -> None:
        """Record that the session has lost its transport, now the last of all that are away. Call ``crowd_out``
        soon."""
        if part_of(session).weight is not None:
            self._away[_digest(session)] = session
            self._away.move_to_end(_digest(session))

    def weigh(self, session: Connection) -> None:
        """Update the total after the size of a session has changed."""
        part = part_of(session)
        if part.weight is not None:
            size = part.size + session.scheduler.size + session.stream_table.reassembly.size
            self.size += size - part.weight
            part.weight = size

    def crowd_out(self) -> list[Connection]:
        """Remove the disconnected sessions beyond ``resume_sessions`` and ``resume_process_bytes``, the longest away
        first (RE-18). The caller ends them."""
        limits = self._limits
        gone: list[Connection] = []
        while len(self._sessions) > limits.resume_sessions or self.size > limits.resume_process_bytes:
            session = self._longest_away()
            if session is None:
                break
            self.remove(session)
            gone.append(session)
        return gone

    def _longest_away(self) -> Connection | None:
        while self._away:
            session = next(iter(self._away.values()))
            if session.state is ConnectionState.SUSPENDED:
                return session
            del self._away[_digest(session)]
        return None


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


def part_of(session: Connection) -> Any:
    """Return the resumption part of a connection that has one: of RSocket, or of a protocol that shares the table."""
    return session.resuming


def _digest(session: Connection) -> bytes:
    """Return the key of a session, which does not reveal its token."""
    return sha256(session.setup.token or b"").digest()
