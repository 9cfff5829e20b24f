"""Hold what the parts of one end share: its limits, its state, its events, the time, and the price of bad messages."""

from __future__ import annotations

from math import inf
from typing import Any

from afflux.core.bucket import Bucket, spend
from afflux.core.events import Ignored
from afflux.core.limits import Limits
from afflux.protocols.jmux.session import SOON, Session
from afflux.protocols.jmux.states import ConnectionState

__all__ = ["Shared"]


class Shared:
    """What the parts of one end share. Buckets are full at first, so each is made when something is first taken."""

    __slots__ = ("_cancels", "_empty", "_fresh", "_glitches", "alarm", "events", "limits", "now", "state")

    def __init__(self, limits: Limits, state: ConnectionState, now: float) -> None:
        self.limits = limits
        self.state = state
        "The state of the connection."
        self.now = now
        self.events: list[Any] = []  # those of core.events
        self.alarm = inf
        "No session has to be looked at before; it may be too early."
        self._fresh: list[Session] = []
        self._glitches: Bucket | None = None
        self._cancels: Bucket | None = None
        self._empty = 0

    # -- time -----------------------------------------------------------------------------------------------

    def soon(self, session: Session, seconds: float) -> None:
        """A clock of the session was set to SOON: it starts at the next pass, and matters ``seconds`` later."""
        self._fresh.append(session)
        self.alarm = min(self.alarm, self.now + seconds)

    @property
    def fresh(self) -> bool:
        """Whether a clock was set to SOON since the last pass."""
        return bool(self._fresh)

    def at(self, now: float) -> None:
        """Set the time; clocks that were set to SOON start now."""
        self.now = now
        if self._fresh:
            for session in self._fresh:
                session.start_clocks(now)
            self._fresh.clear()

    def late(self, since: float | None, seconds: float | None) -> tuple[bool, float]:
        """Whether ``seconds`` have passed since, and else when they will have."""
        if since is None or seconds is None:
            return False, inf
        if since == SOON:
            since = self.now
        return self.now >= since + seconds, since + seconds

    # -- prices ---------------------------------------------------------------------------------------------

    def charge(self, price: int, stream: int, rule: str, reason: str) -> None:
        """Take the price of something that was dropped.

        Raises:
            Violation: the bucket is empty.
        """
        self.events.append(Ignored(stream, rule, reason, price))
        self._glitches = spend(self._glitches, self.limits, "glitch_bucket", price, self.now)

    def waste(self, size: int) -> None:
        """``size`` bytes meant nothing: each 4 Ki of them cost a token."""
        self._empty += size
        if self._empty >= 0x1000:
            price, self._empty = divmod(self._empty, 0x1000)
            self.charge(price, 0, "R-12", "bytes that say nothing")

    def count_cancel(self) -> None:
        """The client gave a request up, or made this side give it up (FL-07).

        Raises:
            Violation: that happens too often.
        """
        self._cancels = spend(self._cancels, self.limits, "cancel_bucket", 1, self.now)

    def let_go(self) -> None:
        """The connection is over: no clock runs."""
        self._fresh.clear()
        self.alarm = inf
