"""Assign ids to a client's sessions: the lowest that is free, in the order in which the sessions were opened (R-21).

An id is assigned when a session begins to wait for its first turn to send. Before that a session may wait for an id;
before the server's header all of them do (R-1).
"""

from __future__ import annotations

from collections import deque

from afflux.core.events import Granted
from afflux.protocols.jmux.errors import NoSession
from afflux.protocols.jmux.session import SOON, Session
from afflux.protocols.jmux.sessions import Sessions
from afflux.protocols.jmux.states import ConnectionState

__all__ = ["Ids"]

_BEFORE = (ConnectionState.START, ConnectionState.WAIT_HEADER, ConnectionState.LEAVING)


class Ids:
    """Assign the ids of one client, and queue the sessions that wait for one."""

    __slots__ = ("_free", "_most", "_sessions", "max_wait", "waiting")

    def __init__(self, sessions: Sessions, max_wait: float) -> None:
        self._sessions = sessions
        self._free = (1 << len(sessions.by_id)) - 1
        "One bit for each free id."
        self.max_wait = max_wait
        "Seconds that a session may wait for an id; 0 for none."
        self._most = max(sessions.most, sessions.limits.streams) if max_wait else sessions.most
        self.waiting: deque[Session] = deque()

    def check(self) -> None:
        """Check whether another session can be opened.

        Raises:
            NoSession: no id is free, and it may not wait (R-21), or too much is unread here.
        """
        if self._sessions.live + len(self.waiting) >= self._most:
            raise NoSession(f"{self._most} sessions are open: open another connection", rule="sessions")
        if self._sessions.rations.overdrawn:
            raise NoSession("too much of earlier responses was not read", rule="buffer-full")

    def admit(self, session: Session) -> None:
        """Give a new session an id, or queue it for one."""
        sessions = self._sessions
        established = sessions.shared.state not in _BEFORE
        if established and sessions.live < sessions.most and not self.waiting:
            self._allot(session)
            return
        self.waiting.append(session)
        if established:
            self._await(session)

    def establish(self, ration: int) -> None:
        """Start the sessions: the server's header has arrived."""
        for session in self.waiting:
            session.to_send.available = ration
            if not session.whole:
                self._sessions.shared.events.append(Granted(session.stream, ration))
        self._allot_waiting()
        for session in self.waiting:
            self._await(session)

    def free(self, session: Session) -> None:
        """Free an id that both ends are done with (R-22)."""
        sessions = self._sessions
        sessions.by_id[session.id] = None
        self._free |= 1 << session.id
        sessions.live -= 1
        session.since = session.ack_since = None
        sessions.rations.left_over(session)
        self._allot_waiting()

    def _await(self, session: Session) -> None:
        session.since = SOON
        self._sessions.shared.soon(session, self.max_wait)

    def _allot(self, session: Session) -> None:
        """Assign the lowest free id (R-21)."""
        sessions = self._sessions
        id = (self._free & -self._free).bit_length() - 1
        self._free &= ~(1 << id)
        session.id = id
        session.since = None
        sessions.by_id[id] = session
        sessions.live += 1
        sessions.out.look(session)

    def _allot_waiting(self) -> None:
        while self.waiting and self._sessions.live < self._sessions.most:
            self._allot(self.waiting.popleft())
