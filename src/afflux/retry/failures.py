"""Count recent failures of each address: rejected credentials or unknown sessions. Time is an argument."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from math import inf

__all__ = ["GRAIN", "Failures", "address_of"]


class Failures:
    """The recent failures of each address, with the time in monotonic seconds.

    The failures permitted in a minute are restored evenly over a minute. Above ``addresses`` addresses, the address
    with the oldest failure is discarded.
    """

    __slots__ = ("_addresses", "_clear")

    def __init__(self, addresses: int = 10_000) -> None:
        self._addresses = addresses
        self._clear: dict[int, float] = {}
        "When each address has no failures left, oldest failure first. Keys are hashes, so that it takes 1 MiB."

    def __len__(self) -> int:
        return len(self._clear)

    def add(self, address: str, per_minute: int, now: float) -> None:
        """Record a failure of an address."""
        key = hash(address)
        self._clear[key] = max(now, self._clear.pop(key, now)) + 60 / per_minute
        if len(self._clear) > self._addresses:
            del self._clear[next(iter(self._clear))]

    def left(self, address: str, per_minute: int, now: float) -> float:
        """Return how many more times an address may fail now."""
        return per_minute - max(0.0, self._clear.get(hash(address), now) - now) * per_minute / 60

    def wait(self, address: str, per_minute: int, now: float) -> float:
        """Return the seconds until an address may fail again: 0.0 for now, infinity for never."""
        if not per_minute:
            return inf
        wait = self._clear.get(hash(address), now) - now - (60 - 60 / per_minute)
        return wait if wait > GRAIN else 0.0


GRAIN = 1e-9
"Tolerance in seconds: floating-point times are exact at the limit."


@lru_cache(maxsize=1024)
def address_of(host: str) -> str:
    """Return the address to count a host under: for IPv6 its network of 64 bits, because one customer has all of it."""
    try:
        ip = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if not isinstance(ip, IPv6Address):
        return host
    return str(ip.ipv4_mapped or IPv6Address(int(ip) >> 64 << 64))
