"""How often each address has failed lately: at a check of credentials, or asking for a session that is not there.

Nothing here waits or knows what failed; time is an argument.
"""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from math import inf

__all__ = ["GRAIN", "Failures", "address_of"]


class Failures:
    """How many checks of each address have failed lately. Time is an argument, in monotonic seconds.

    What a minute allows comes back evenly over a minute. Of more than ``addresses`` addresses the one that failed
    longest ago is forgotten.
    """

    __slots__ = ("_addresses", "_clear")

    def __init__(self, addresses: int = 10_000) -> None:
        self._addresses = addresses
        self._clear: dict[int, float] = {}
        "When each would be clear again; the one that failed longest ago is first. Hashes instead of texts: 1 MiB."

    def __len__(self) -> int:
        return len(self._clear)

    def add(self, address: str, per_minute: int, now: float) -> None:
        """One more check of an address has failed."""
        key = hash(address)
        self._clear[key] = max(now, self._clear.pop(key, now)) + 60 / per_minute
        if len(self._clear) > self._addresses:
            del self._clear[next(iter(self._clear))]

    def left(self, address: str, per_minute: int, now: float) -> float:
        """How many more of an address may fail now."""
        return per_minute - max(0.0, self._clear.get(hash(address), now) - now) * per_minute / 60

    def wait(self, address: str, per_minute: int, now: float) -> float:
        """Seconds until one more of an address may fail: 0.0 for now, infinity where none ever may."""
        if not per_minute:
            return inf
        wait = self._clear.get(hash(address), now) - now - (60 - 60 / per_minute)
        return wait if wait > GRAIN else 0.0


GRAIN = 1e-9
"A billionth of a failure is forgiven, so that seconds in floating point are exact at the limit."


@lru_cache(maxsize=1024)
def address_of(host: str) -> str:
    """What counts as one address: of IPv6 the network of 64 bits, all of which one customer has."""
    try:
        ip = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if not isinstance(ip, IPv6Address):
        return host
    return str(ip.ipv4_mapped or IPv6Address(int(ip) >> 64 << 64))
