"""Check that the peer is alive (Ping and PingAck), and measure how long a connection was unused.

The peer's timeouts are suspended while this side does not read.
"""

from __future__ import annotations

from math import inf

from afflux.core.bucket import Bucket
from afflux.protocols.jmux.errors import violation
from afflux.protocols.jmux.frames import Ping, PingAck
from afflux.protocols.jmux.shared import Shared
from afflux.protocols.jmux.states import ConnectionState

__all__ = ["Liveness"]

_SPEAKING = (ConnectionState.OPEN, ConnectionState.DRAINING)
_LATE = 1.0
"Seconds of lateness from which a check does not blame the peer (TM-03)."


class Liveness:
    """Track the peer's signs of life at one end."""

    __slots__ = ("_cookie", "_interval", "_pings", "_shared", "_spared", "heard", "idle_since", "pinged")

    def __init__(self, shared: Shared, interval: float | None) -> None:
        self._shared = shared
        self._interval = shared.limits.keepalive_s if interval is None else interval
        self._pings: Bucket | None = None
        self._cookie = 0
        self.heard = shared.now
        "When the last bytes arrived."
        self.pinged: float | None = None
        "When the Ping was sent that has not been answered."
        self._spared: float | None = None
        "Value of ``pinged`` when a silence was this side's own fault (TM-03)."
        self.idle_since = shared.now
        "Time since which there has been no session."

    def hold(self, now: float) -> None:
        """Restart the timeout: this side did not read until ``now``."""
        self.heard = now
        if self.pinged is not None:
            self.pinged = now

    def answer(self, cookie: int) -> bytes:
        """Return the answer to a Ping: one for each, in order (R-13, KA-08).

        Raises:
            Violation: Pings come too often.
        """
        if self._pings is None:
            rate, burst = self._shared.limits.keepalive_rate
            self._pings = Bucket(burst, rate)
        if not self._pings.take(1, self._shared.now):
            raise violation("keepalive-flood", "keepalive_rate")
        return PingAck(cookie=cookie).encode()

    def answered(self, cookie: int) -> None:
        """Apply a PingAck.

        Raises:
            Violation: no Ping with this cookie is outstanding (R-14).
        """
        if self.pinged is None or cookie != self._cookie:
            raise violation(f"PingAck {cookie} without a Ping", "R-14")
        self.pinged = None

    def silent(self, late: float) -> bool:
        """Whether the peer has not answered in time; ``late`` is the delay of this check in seconds."""
        now, limits = self._shared.now, self._shared.limits
        if self.pinged is None or now < self.pinged + limits.ping_s:
            return False
        if late > _LATE and self.pinged != self._spared:
            # TM-03: this side was suspended. Excused once only: a side that is always late must end as well.
            self.pinged = self._spared = now + limits.flush_s - limits.ping_s
            return False
        return True

    def ping(self) -> bytes:
        """Return a Ping if one is due: the peer has been silent."""
        if self.pinged is not None or self._pings_at() > self._shared.now:
            return b""
        self._cookie = (self._cookie + 1) & 0xFFFF
        self.pinged = self._shared.now
        return Ping(cookie=self._cookie).encode()

    def _pings_at(self) -> float:
        speaking = self._interval and self._shared.state in _SPEAKING
        return self.heard + self._interval if speaking else inf

    @property
    def due_at(self) -> float:
        """When the next Ping leaves, or its answer is overdue."""
        return self._pings_at() if self.pinged is None else self.pinged + self._shared.limits.ping_s
