"""Decide which connections a server accepts, count them, and report those that it refuses.

1. ``connections`` bounds all connections and ``connections_per_address`` those of one address: a fixed count, or a
   share of ``connections`` that applies once three quarters of them are in use.
2. New connections wait while ``accepts_per_s`` is used up, and while ``half_handshakes`` connections have not finished
   their handshake and the oldest of them is young. One that has had a quarter of ``handshake_s`` makes room instead.
3. A refusal is counted by the name of its limit, and logged: immediately, then once a second with the number since.
   Connections whose protocol was not recognized are counted and logged in the same way.
4. While the process has no descriptor for another connection, clients wait. That is logged once a minute.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections import Counter, OrderedDict
from collections.abc import Callable
from itertools import islice
from typing import Final, Protocol

from afflux.core.bucket import Bucket
from afflux.core.errors import Error
from afflux.core.limits import Limits, reached
from afflux.watching import SERVERS

__all__ = ["Gate"]

_SCARCE: Final = 0.75
"The part of ``connections`` that may be in use before a share bounds an address."
_YOUNG: Final = 0.25
"The part of ``handshake_s`` that a handshake may take before it makes room for others."
_LOOK_AGAIN_S: Final = 0.01
_LOG_EVERY_S: Final = 1.0
_LOG_EXHAUSTED_EVERY_S: Final = 60.0


class Admitted(Protocol):
    """A connection that was admitted."""

    counted: bool
    "The gate counts it."

    @property
    def host(self) -> str:
        """The host that it came from."""

    def crowd_out(self, error: Error) -> None:
        """End it, because another one takes its place."""


class Gate:
    """The admission of one server. ``now`` is the time of the loop."""

    def __init__(self, limits: Limits, overloaded: Callable[[], bool]) -> None:
        self._limits = limits
        self._overloaded = overloaded
        self._rate = Bucket(limits.accepts_per_s, limits.accepts_per_s)
        self.admitted = 0
        "Connections that are in use."
        self.hosts: Counter[str] = Counter()
        "Connections in use by address; those without an address are under the empty name."
        self.handshakes: OrderedDict[Admitted, float] = OrderedDict()
        "Connections that have not finished their handshake, and the start of each."
        self.refused: Counter[str] = Counter()
        "Refused connections, by the name of the limit."
        self._arriving = 0
        self._unlogged: dict[str, tuple[int, str]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._exhausted_until = 0.0

    # -- new connections --------------------------------------------------------------------------------------

    def delay(self, now: float) -> float:
        """Seconds until the next connection should be accepted."""
        wait = self._rate.wait(1, now) or 0.0
        surplus = len(self.handshakes) + self._arriving + 1 - max(1, self._limits.half_handshakes)
        if surplus > 0:
            begun = next(islice(self.handshakes.values(), surplus - 1, None), now)
            young = begun + self._limits.handshake_s * _YOUNG - now
            if young > 0:
                wait = max(wait, min(young, _LOOK_AGAIN_S))
        return wait

    def admit(self, host: str, now: float, uri: str) -> str | None:
        """Count one more connection from ``host``, or return the reason of its refusal; ``uri`` is for the log."""
        self._rate.take(1, now)
        name = self._limit_reached(host)
        if name is not None:
            reason = reached(self._limits, name)
            self.turn_away(name, reason, uri)
            return reason
        self.count(host)
        self._arriving += 1
        return None

    def begin(self, connection: Admitted, now: float) -> Admitted | None:
        """Begin the handshake of an admitted connection. Returns the one that has to make room for it, if any."""
        self._arriving -= 1
        self.handshakes[connection] = now
        if len(self.handshakes) > max(1, self._limits.half_handshakes):
            return self.handshakes.popitem(last=False)[0]
        return None

    def _limit_reached(self, host: str) -> str | None:
        """Return the name of the limit that refuses a connection from ``host``, or None."""
        limits = self._limits
        if self.admitted >= limits.connections:
            return "connections"
        most = limits.connections_per_address
        if isinstance(most, float):
            most = int(most * limits.connections) if self.admitted >= _SCARCE * limits.connections else None
        if host and most is not None and self.hosts[host] >= most:
            return "connections_per_address"
        return "process_bytes" if self._overloaded() else None

    # -- connections that are in use ----------------------------------------------------------------------------

    def count(self, host: str) -> None:
        """Count a connection from ``host`` that is in use."""
        self.admitted += 1
        self.hosts[host] += 1

    def uncount(self, connection: Admitted) -> None:
        """Count a connection no longer. No-op when it was not counted."""
        if not connection.counted:
            return
        connection.counted = False
        host = connection.host
        self.admitted -= 1
        self.hosts[host] -= 1
        if not self.hosts[host]:
            del self.hosts[host]

    # -- the log ------------------------------------------------------------------------------------------------

    def close(self, uri: str) -> None:
        """Log what has not been logged yet."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._log(uri)

    def exhausted(self, error: OSError, now: float, uri: str) -> None:
        """Log that no connection can be accepted, unless that was logged within the last minute."""
        if now < self._exhausted_until:
            return
        self._exhausted_until = now + _LOG_EXHAUSTED_EVERY_S
        more = "; raise the limit of open files (ulimit -n)" if error.errno == errno.EMFILE else ""
        why = os.strerror(error.errno or 0)
        SERVERS.warning("afflux: %s cannot accept connections: %s; new clients wait%s", uri, why, more)

    def turn_away(self, name: str, reason: str, uri: str) -> None:
        """Count a refused connection by ``name``, and log it with ``reason``."""
        self.refused[name] += 1
        self._unlogged[name] = self._unlogged.get(name, (0, ""))[0] + 1, reason
        if self._timer is None:
            self._log_later(uri)

    def _log_later(self, uri: str) -> None:
        self._timer = None
        if self._unlogged:
            self._log(uri)
            self._timer = asyncio.get_running_loop().call_later(_LOG_EVERY_S, self._log_later, uri)

    def _log(self, uri: str) -> None:
        if self._unlogged:
            words = ", ".join(f"{count} ({reason})" for count, reason in self._unlogged.values())
            SERVERS.warning("afflux: connections to %s refused: %s", uri, words)
            self._unlogged.clear()
