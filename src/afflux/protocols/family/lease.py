"""Define leases: what a policy grants, and what is left of a grant on each side (section 3.3, R-13, R-40 to R-43).

1. The responder grants, by a policy; it counts, and refuses what is beyond (R-42). It allows nothing for clocks.
2. The requester stops ``lease_margin_ms`` early, because clocks and wires are not exact (R-41).
3. A newer lease replaces the older one (R-40); none outlives its transport (R-43).

Time is an argument, in monotonic seconds. Frames and events are the engine's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from afflux.core.limits import Limits

__all__ = ["UNMETERED", "FixedLease", "Granted", "Held", "Lease", "LeaseGranter", "LeasePolicy", "RateLease"]

_GRAIN = 1e-9
"A billionth of a request is forgiven, so that seconds in floating point are exact at the limit."
MOST = 0x7FFFFFFF
"The most requests, and the most milliseconds, that a LEASE frame can say."


@dataclass(frozen=True, slots=True)
class Lease:
    """What a responder allows: so many requests within so many seconds. Zero of either means "stop" (D-5)."""

    requests: int
    "How many requests, 0 to 2^31-1."
    ttl: float
    "Seconds from now, to the millisecond; at most 2^31-1 ms."

    def __post_init__(self) -> None:
        if not (0 <= self.requests <= MOST and 0 <= self.ttl * 1000 <= MOST):
            raise ValueError(f"a lease has 0 to {MOST} requests and 0 to {MOST // 1000} seconds, not {self}")

    @property
    def ttl_ms(self) -> int:
        """The time as the frame says it, in whole milliseconds."""
        return round(self.ttl * 1000)


class LeaseGranter(Protocol):
    """What decides about the leases of one connection."""

    def grant(self, now: float, used: int) -> Lease:
        """The next lease. Asked when the connection opens, and whenever the last lease's time is over.

        ``now`` is in monotonic seconds, ``used`` how many requests came since it was last asked. A lease of 0
        requests says "none now": it is asked again when its time is over. One of 0 seconds is the last.
        """


class LeasePolicy(Protocol):
    """What makes a granter for each connection. A granter without state of its own may return itself."""

    def start(self) -> LeaseGranter:
        """The granter of a new connection."""


@dataclass(frozen=True, slots=True)
class FixedLease:
    """The same lease again and again: ``requests`` in every ``ttl`` seconds."""

    requests: int
    ttl: float = 1.0

    def __post_init__(self) -> None:
        Lease(self.requests, self.ttl)
        if self.ttl < 0.001:
            raise ValueError("a lease that is renewed lasts a millisecond or more")

    def start(self) -> FixedLease:
        """It has no state."""
        return self

    def grant(self, now: float, used: int) -> Lease:
        """The lease."""
        return Lease(self.requests, self.ttl)


@dataclass(frozen=True, slots=True)
class RateLease:
    """``per_second`` requests on average, ``burst`` of them at once at most, leased for ``ttl`` seconds at a time.

    At once is within one lease: a burst at its end may be followed by what its time has brought, ``per_second * ttl``.
    """

    per_second: float
    burst: int
    ttl: float = 1.0

    def __post_init__(self) -> None:
        FixedLease(self.burst, self.ttl)
        if not self.per_second >= 0:
            raise ValueError(f"a rate is 0 or more a second, not {self.per_second}")

    def start(self) -> LeaseGranter:
        """A bucket of its own for each connection."""
        return _Rate(self)


class _Rate:
    """What is left of a rate on one connection."""

    def __init__(self, policy: RateLease) -> None:
        self._policy = policy
        self._left = float(policy.burst)
        self._at: float | None = None

    def grant(self, now: float, used: int) -> Lease:
        """What is there now. What was used made room for what time has brought since."""
        policy = self._policy
        brought = 0.0 if self._at is None else max(0.0, now - self._at) * policy.per_second
        self._at = now
        self._left = min(float(policy.burst), max(0.0, self._left - used) + brought)
        return Lease(int(self._left + _GRAIN), policy.ttl)


UNMETERED = FixedLease(MOST, MOST / 1000)
"As many requests as the peer likes: what a side grants that only wants to be granted."


class Held:
    """What the peer has granted to this side."""

    __slots__ = ("_margin", "requests", "until")

    def __init__(self, limits: Limits) -> None:
        self._margin = limits.lease_margin_ms / 1000
        self.requests = 0
        "How many requests are left."
        self.until = 0.0
        "When the time is over, the margin already taken off."

    def replace(self, ttl_ms: int, requests: int, now: float) -> None:
        """A LEASE came (R-40)."""
        self.requests = requests if ttl_ms else 0
        self.until = now + ttl_ms / 1000 - self._margin

    def end(self) -> None:
        """It is good no longer: the transport is gone (R-43)."""
        self.requests = 0

    def left(self, now: float) -> int:
        """How many requests may be sent now."""
        return self.requests if now < self.until else 0

    def take(self, now: float) -> bool:
        """Use one request (R-41)."""
        if not self.left(now):
            return False
        self.requests -= 1
        return True


class Granted:
    """What this side has granted to the peer."""

    __slots__ = ("_granter", "left", "until", "used")

    def __init__(self, policy: LeasePolicy) -> None:
        self._granter = policy.start()
        self.left = 0
        "How many requests the peer may still send."
        self.until: float | None = None
        "When the lease is over and the next is due; None for never."
        self.used = 0
        "How many requests came since the policy was asked."

    def next(self, now: float) -> Lease:
        """The lease to send now."""
        lease = self._granter.grant(now, self.used)
        self.used = 0
        self.replace(lease, now)
        return lease

    def replace(self, lease: Lease, now: float) -> None:
        """``lease`` is sent."""
        self.left = lease.requests if lease.ttl_ms else 0
        self.until = now + lease.ttl_ms / 1000 if lease.ttl_ms else None

    def end(self) -> None:
        """It is good no longer: the transport is gone (R-43)."""
        self.left = 0
        self.until = None

    def take(self, now: float) -> bool:
        """A request came; False when it is beyond the lease (R-42)."""
        if not self.left or self.until is None or now >= self.until:
            return False
        self.left -= 1
        self.used += 1
        return True
