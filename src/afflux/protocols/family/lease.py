"""Define leases: what a policy grants, and what is left of a grant on each side (section 3.3, R-13, R-40 to R-43).

1. The responder grants leases by a policy; it counts requests, and refuses those beyond the lease (R-42). It makes no
   allowance for clocks.
2. The requester stops ``lease_margin_ms`` early, because clocks and transmission are not exact (R-41).
3. A newer lease replaces the older one (R-40); none outlives its transport (R-43).

Time is an argument, in monotonic seconds. leases.py has the frames and events.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Protocol

from afflux.core.limits import Limits

__all__ = ["UNMETERED", "FixedLease", "Granted", "Held", "Lease", "LeaseGranter", "LeasePolicy", "RateLease"]

_GRAIN = 1e-9
"A billionth of a request is tolerated, so that seconds in floating point are exact at the limit."
MOST = 0x7FFFFFFF
"The maximum of requests, and of milliseconds, in a LEASE frame."


@dataclass(frozen=True, slots=True)
class Lease:
    """The permission to send at most N requests within T seconds. If either is zero, the requester must stop (D-5)."""

    requests: int
    "Number of requests, 0 to 2^31-1."
    ttl: float
    "Seconds from now, with millisecond precision; at most 2^31-1 ms."

    def __post_init__(self) -> None:
        if not isinstance(self.requests, int) or not isinstance(self.ttl, int | float):
            raise TypeError(f"a lease is a whole number of requests, and seconds, not {self}")
        if not (0 <= self.requests <= MOST and 0 <= self.ttl * 1000 <= MOST):
            given = f"{self.requests} requests and {self.ttl:g} seconds"
            raise ValueError(f"a lease has 0 to {MOST} requests and 0 to {MOST // 1000} seconds, not {given}")

    @property
    def ttl_ms(self) -> int:
        """The duration in whole milliseconds, as the frame carries it."""
        return round(self.ttl * 1000)


class LeaseGranter(Protocol):
    """Decides the leases of one connection."""

    def grant(self, now: float, used: int) -> Lease:
        """Return the next lease. Called when the connection opens, and whenever the last lease expires.

        ``now`` is in monotonic seconds, ``used`` the number of requests received since the last call. A lease of 0
        requests permits none; the next call is when it expires. After a lease of 0 seconds there is no further call.
        """


class LeasePolicy(Protocol):
    """Creates a granter for each connection. A granter without state may return itself."""

    def start(self) -> LeaseGranter:
        """Return the granter of a new connection."""


@dataclass(frozen=True, slots=True)
class FixedLease:
    """Grants the same lease repeatedly: ``requests`` in every ``ttl`` seconds."""

    requests: int
    ttl: float = 1.0

    def __post_init__(self) -> None:
        Lease(self.requests, self.ttl)
        if self.ttl < 0.001:
            raise ValueError("a lease that is renewed lasts a millisecond or more")

    def start(self) -> FixedLease:
        """Return this policy itself: it has no state."""
        return self

    def grant(self, now: float, used: int) -> Lease:
        """Return the lease."""
        return Lease(self.requests, self.ttl)


@dataclass(frozen=True, slots=True)
class RateLease:
    """Grants ``per_second`` requests on average in bursts of up to ``burst``, leased for ``ttl`` seconds at a time.

    A burst is bounded within one lease: after a burst at its end, the next lease may permit ``per_second * ttl`` more.
    """

    per_second: float
    burst: int
    ttl: float = 1.0

    def __post_init__(self) -> None:
        FixedLease(self.burst, self.ttl)
        if not isinstance(self.per_second, int | float):
            raise TypeError(f"a rate is a number of requests per second, not {self.per_second!r}")
        if not self.burst:
            raise ValueError("a burst of 0 permits no request, ever: give burst=1 or more")
        if not 0 <= self.per_second < inf:
            raise ValueError(f"a rate is 0 or more a second, and finite, not {self.per_second}")

    def start(self) -> LeaseGranter:
        """Return a new token bucket for a connection."""
        return _Rate(self)


class _Rate:
    """The token bucket of one connection."""

    def __init__(self, policy: RateLease) -> None:
        self._policy = policy
        self._left = float(policy.burst)
        self._at: float | None = None

    def grant(self, now: float, used: int) -> Lease:
        """Return a lease of the available tokens. Used requests made room for the tokens that time has added since."""
        policy = self._policy
        brought = 0.0 if self._at is None else max(0.0, now - self._at) * policy.per_second
        self._at = now
        self._left = min(float(policy.burst), max(0.0, self._left - used) + brought)
        return Lease(int(self._left + _GRAIN), policy.ttl)


UNMETERED = FixedLease(MOST, MOST / 1000)
"The largest lease: granted by a side that needs leases itself and limits nothing."


class Held:
    """The lease that the peer has granted to this side."""

    __slots__ = ("_margin", "requests", "until")

    def __init__(self, limits: Limits) -> None:
        self._margin = limits.lease_margin_ms / 1000
        self.requests = 0
        "Requests left."
        self.until = 0.0
        "When the lease expires, minus the safety margin."

    def replace(self, ttl_ms: int, requests: int, now: float) -> None:
        """Apply a LEASE frame (R-40)."""
        self.requests = requests if ttl_ms else 0
        self.until = now + ttl_ms / 1000 - self._margin

    def end(self) -> None:
        """Invalidate the lease: the transport is gone (R-43)."""
        self.requests = 0

    def left(self, now: float) -> int:
        """The number of requests that may be sent now."""
        return self.requests if now < self.until else 0

    def take(self, now: float) -> bool:
        """Use one request (R-41)."""
        if not self.left(now):
            return False
        self.requests -= 1
        return True


class Granted:
    """The lease that this side has granted to the peer."""

    __slots__ = ("_granter", "left", "until", "used")

    def __init__(self, policy: LeasePolicy) -> None:
        self._granter = policy.start()
        self.left = 0
        "Requests that the peer may still send."
        self.until: float | None = None
        "When the lease expires and the next is due; None for never."
        self.used = 0
        "Requests received since the last call of the policy."

    def next(self, now: float) -> Lease:
        """Return the lease to send now."""
        lease = self._granter.grant(now, self.used)
        self.used = 0
        self.replace(lease, now)
        return lease

    def replace(self, lease: Lease, now: float) -> None:
        """Record that ``lease`` is sent."""
        self.left = lease.requests if lease.ttl_ms else 0
        self.until = now + lease.ttl_ms / 1000 if lease.ttl_ms else None

    def end(self) -> None:
        """Invalidate the lease: the transport is gone (R-43)."""
        self.left = 0
        self.until = None

    def take(self, now: float) -> bool:
        """Count a request; False when it exceeds the lease (R-42)."""
        if not self.left or self.until is None or now >= self.until:
            return False
        self.left -= 1
        self.used += 1
        return True
