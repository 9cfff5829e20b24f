"""Rations: how much the peer may still send on each session, when it gets more, and what all of it can cost.

The books. Each id has a reservation, the initial ration. What a session may hold beyond it (a larger target, a payload
that is being put together), what is left of it after its id is free, and payloads that were handed over and not
consumed, is ``spent`` of one purse. The purse is what C leaves beside the reservations, so everything together stays
within ``connection_bytes`` (FC-18). While the purse is overdrawn no session is taken on.
"""

from __future__ import annotations

from afflux.core.limits import Limits
from afflux.protocols.jmux.session import Session

__all__ = ["LARGEST_RATION", "MOST_OFFERED", "Rations"]

LARGEST_RATION = 0x7FFFFFFF
"The most that a ration may come to (R-35)."
MOST_OFFERED = 0xFFFF00
"The most that a header can offer (R-5)."


class Rations:
    """The inbound rations of one connection."""

    __slots__ = ("_largest", "delivered", "initial", "purse", "spent")

    def __init__(self, limits: Limits, sessions: int) -> None:
        self.initial = min(limits.ration_bytes, MOST_OFFERED)
        "What each new session begins with: a multiple of 256, never 0 (R-5, D-2)."
        self._largest = limits.ration_max_bytes
        self.purse = max(0, limits.connection_bytes - sessions * self.initial)
        self.spent = 0
        self.delivered = 0
        "Bytes of payloads that were handed over and not consumed; part of ``spent``."

    @property
    def overdrawn(self) -> bool:
        """Whether no session should be taken on."""
        return self.spent > self.purse

    def refill(self, session: Session) -> int | None:
        """How much to add to the inbound ration now: 0 while more than half of it is left or waits to be read, else
        up to the target (R-37, R-38). None when nothing can be added and the payload will never be whole."""
        have = session.owed if session.whole else session.owed + session.unread
        if 2 * have > session.target:
            return 0
        if not session.unread or session.whole:
            self._grow(session)
        more = session.target - have
        if session.whole:
            beyond = session.unread + session.owed - self.initial - session.extra
            more = min(more, self.purse - self.spent - beyond)
            if more <= 0:
                return 0 if session.owed else None
            self._hold(session, max(session.extra, session.extra + beyond + more))
        session.owed += more
        return more

    def _grow(self, session: Session) -> None:
        """The application keeps up with a ration that is used up: let it be twice as large, while that can be paid."""
        target = min(2 * session.target, max(self._largest, session.target))
        more = target - session.target
        if session.whole:
            session.target = target
        elif self.spent + more <= self.purse:
            self._hold(session, session.extra + more)
            session.target = target

    def _hold(self, session: Session, extra: int) -> None:
        self.spent += extra - session.extra
        session.extra = extra

    def left_over(self, session: Session) -> None:
        """The reservation goes to another: what is still unread is paid for."""
        self._hold(session, session.unread)

    def shrink(self, session: Session) -> None:
        """Some of what is left was read, and nothing more will come."""
        self._hold(session, min(session.extra, session.unread))

    def release(self, session: Session) -> None:
        """Nothing of it is left."""
        self._hold(session, 0)

    def deliver(self, session: Session, size: int) -> None:
        """A whole payload was handed over."""
        self._hold(session, 0)
        self.delivered += size
        self.spent += size

    def consumed(self, size: int) -> None:
        """The application has taken payloads."""
        size = min(size, self.delivered)
        self.delivered -= size
        self.spent -= size
