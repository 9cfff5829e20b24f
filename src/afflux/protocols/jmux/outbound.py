"""Queue outgoing bytes, and choose which session sends next.

client.py and server.py decide what a session may send.

1. Connection messages, Abort, Close, Acknowledgment and IncrementRation go first, in their order.
2. Sessions with something to send form a ring. The quantum is 16 KiB; output is cut into Data of at most ``fragment``
   bytes, so that no session waits long for another (R-41, D-11).
3. A Data message is built when it leaves, and its session makes the step of its table then, so the order on the wire is
   the order in the tables. Control goes first and in full, so no step is overtaken.
4. A session that has used up its ration leaves the ring without effect on others (R-33, R-40).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any

from afflux.core.credit import SATURATED
from afflux.protocols.jmux.frames import data_head
from afflux.protocols.jmux.halves import FINISHED, UNWRITTEN, OutboundState
from afflux.protocols.jmux.session import Session

__all__ = ["INFINITE", "SHARE", "Outbound"]

SHARE = 0x4000
"Quantum: bytes per turn."
INFINITE = SATURATED
"Unlimited outbound ration: it is never used up, and increments are ignored (R-36)."

_HUNGRY = (OutboundState.HUNGRY, OutboundState.NEW_HUNGRY)

Stuck = Callable[[Session], None]
"Called for a session that has bytes, or a waiting application, and no ration."
Flags = Callable[[Session, bool], int]
"Makes the step of a session's next Data (True: the last) and returns the flags of the message."


def _nothing(*arguments: Any) -> Any:
    """Replace the callbacks after the end."""


class Outbound:
    """Queue and schedule the output of one connection."""

    __slots__ = ("_control", "_ring", "_stuck", "flags", "fragment", "pending", "ready")

    def __init__(self, fragment: int, flags: Flags, stuck: Stuck) -> None:
        self.fragment = fragment
        "Most bytes of one Data."
        self.flags = flags
        self._stuck = stuck
        self._control = bytearray()  # many small messages: as objects they would need ten times the memory
        self._ring: OrderedDict[Session, None] = OrderedDict()
        self.ready = 0
        "Bytes of sessions that may leave now."
        self.pending = 0
        "Bytes of all sessions, those that wait for ration included."

    @property
    def replies(self) -> int:
        """Number of short messages that are not Data; a long one counts for several."""
        return len(self._control) // 4

    @property
    def control_size(self) -> int:
        """Bytes of messages that are not Data."""
        return len(self._control)

    @property
    def size(self) -> int:
        """Number of bytes that take would return now."""
        return len(self._control) + self.ready + 4 * len(self._ring)

    def control(self, message: bytes) -> None:
        """Queue a message, or several, before all Data."""
        self._control += message

    def put(self, session: Session, data: bytes) -> None:
        """Queue bytes of a session, at least one. Call ``look`` then."""
        if session.chunks is None:
            session.chunks = deque((data,))
        else:
            session.chunks.append(data)
        session.waiting += len(data)
        self.pending += len(data)

    def look(self, session: Session) -> None:
        """Put a session into the ring if it can send something."""
        ration = session.to_send.available
        sendable = min(session.waiting, ration)
        self.ready += sendable - session.ready
        session.ready = sendable
        state = session.outbound
        if sendable or state in UNWRITTEN or (not session.waiting and state in FINISHED):
            self._ring.setdefault(session)
        elif session.waiting or state in _HUNGRY:
            self._starve(session)

    def _starve(self, session: Session) -> None:
        if session.waiting or (not session.to_send.available and session.outbound in _HUNGRY):
            self._stuck(session)

    def drop(self, session: Session) -> None:
        """Forget everything that a session has queued."""
        self.ready -= session.ready
        self.pending -= session.waiting
        session.ready = 0
        session.clear()
        self._ring.pop(session, None)

    def let_go(self) -> None:
        """Drop the output of all sessions; messages about the connection can still leave."""
        self.flags = self._stuck = _nothing

    def take(self, limit: int) -> bytes:
        """Return bytes to write now, about ``limit`` at most: one message more, if there is any. They may end in the
        middle of one that is not Data; the rest of it goes before everything else."""
        chunks: list[bytes | memoryview] = []
        left, control, ring = limit, self._control, self._ring
        if control:
            chunks.append(bytes(control[:limit]))
            del control[:limit]
            left -= len(chunks[0])
        while ring and left > 0:
            session = next(iter(ring))
            left -= self._turn(session, min(left, SHARE), chunks)
            if session in ring:
                ring.move_to_end(session)
        return b"".join(chunks)

    def _turn(self, session: Session, share: int, chunks: list[bytes | memoryview]) -> int:
        """Send one turn of a session: Data of about ``share`` bytes. It leaves the ring when nothing more can be
        sent."""
        credit, fragment = session.to_send, self.fragment
        taken = self._run(session, share, chunks) if session.ready > 2 * fragment else 0
        while True:
            size = min(session.waiting, credit.available, fragment)
            last = size == session.waiting and session.outbound in FINISHED
            at = len(chunks)
            chunks.append(b"")
            session.take(size, chunks)
            self.ready -= size
            self.pending -= size
            id = session.id
            # The step may end the session, and give its id to another.
            chunks[at] = data_head(self.flags(session, last), id, size)
            taken += size + 4
            if last or not session.ready:
                self._ring.pop(session, None)
                if not last:
                    self._starve(session)
                return taken
            if taken >= share:
                return taken

    def _run(self, session: Session, share: int, chunks: list[bytes | memoryview]) -> int:
        """Send consecutive Data of one size, none of them the first or the last: a head before each, no step (measured:
        a third of the cost of one at a time)."""
        fragment = self.fragment
        count = min(session.ready - 1, share - fragment) // fragment
        if count < 2 or session.outbound in UNWRITTEN:
            return 0
        size = count * fragment
        parts: list[bytes | memoryview] = []
        session.take(size, parts)
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        head = data_head(0, session.id, fragment)
        chunks.append(head.join([b"", *[data[at : at + fragment] for at in range(0, size, fragment)]]))
        self.ready -= size
        self.pending -= size
        return size + 4 * count
