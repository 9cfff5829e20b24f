"""Export the lease policies and values of RSocket. family/lease.py defines them."""

from afflux.protocols.family.lease import (
    UNMETERED,
    FixedLease,
    Granted,
    Held,
    Lease,
    LeaseGranter,
    LeasePolicy,
    RateLease,
)

__all__ = ["UNMETERED", "FixedLease", "Granted", "Held", "Lease", "LeaseGranter", "LeasePolicy", "RateLease"]
