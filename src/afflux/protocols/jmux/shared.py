"""Share limits, state, events, time and the prices of wasteful messages among the parts of one end."""

from __future__ import annotations

from math import inf

from afflux.core.limits import Limits
from afflux.core.passes import Pass
from afflux.protocols.jmux.session import SOON, Session
from afflux.protocols.jmux.states import ConnectionState

__all__ = ["Shared"]


class Shared(Pass):
    """State shared by the parts of one end."""

    __slots__ = ("_empty", "alarm", "fresh", "state")

    def __init__(self, limits: Limits, state: ConnectionState, now: float) -> None:
        super().__init__(limits, now)
        self.state = state
        "The state of the connection."
        self.alarm = inf
        "Earliest time at which a session has to be checked; it may be too early."
        self.fresh: list[Session] = []
        "Sessions with a timer that was set to SOON since the last pass."
        self._empty = 0

    # -- time -----------------------------------------------------------------------------------------------

    def soon(self, session: Session, seconds: float) -> None:
        """Start a timer that was set to SOON: it starts at the next pass, and is due ``seconds`` later."""
        self.fresh.append(session)
        self.alarm = min(self.alarm, self.now + seconds)

    def at(self, now: float) -> None:
        """Set the time; timers that were set to SOON start now."""
        self.now = now
        for session in self.fresh:
            session.start_clocks(now)
        self.fresh.clear()

    def late(self, since: float | None, seconds: float | None) -> tuple[bool, float]:
        """Return whether ``seconds`` have passed since ``since``, and otherwise when they will have."""
        if since is None or seconds is None:
            return False, inf
        if since == SOON:
            since = self.now
        return self.now >= since + seconds, since + seconds

    def waste(self, size: int) -> None:
        """Charge ``size`` bytes without effect: each 4 Ki of them cost a token."""
        self._empty += size
        if self._empty >= 0x1000:
            price, self._empty = divmod(self._empty, 0x1000)
            self.charge(price, 0, "R-12", "bytes without effect")

    def let_go(self) -> None:
        """Stop all timers: the connection is over."""
        self.fresh.clear()
        self.alarm = inf
