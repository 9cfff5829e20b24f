"""Describe a load as one validated value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from afflux.bench.meter import UNBOUNDED
from afflux.calls import call_payload
from afflux.core.autocredit import Kept
from afflux.core.limits import Limits
from afflux.core.payload import Payload
from afflux.transports.address import Address, parse

__all__ = ["MOST_CONNECTIONS", "MOST_STREAMS", "MOST_WORKERS", "Plan", "Verb", "filler"]

Verb = Literal["request", "fire", "stream", "channel"]

MOST_CONNECTIONS = 10_000
MOST_STREAMS = 100_000
"Concurrent streams over all connections of one process."

MOST_WORKERS = 256

_PATTERN = b"0123456789abcdefghijklmnopqrstuv"
_OPEN_STREAMS = 256
"Default streams per connection of open load."


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A load to run against a server.

    Without ``rate`` the load is closed: each stream that ends is followed by another. With ``rate`` it is open: that
    many requests start per second, whether the server keeps up or not.

    Raises:
        ValueError: a value is invalid, or two values contradict each other.
        AddressError: the address is invalid.
    """

    uri: str
    "Address of the server."
    verb: Verb = "request"
    "The interaction to measure."
    requests: int | None = None
    "Stop after this number, not counting the warm-up."
    duration: float | None = None
    "Stop after this number of seconds; 10 if ``requests`` is None as well."
    connections: int = 1
    concurrency: int | None = None
    "Concurrent streams per connection; None for 1, or for 256 with ``rate``."
    rate: float | None = None
    "Requests per second, over all connections; None for closed load."
    warmup: float = 0.0
    "Seconds of the same load before measuring."
    timeout: float = 10.0
    """Seconds after which a request without an answer fails; for a stream, after its last item. With ``rate``, also the
    maximum delay of a request after its scheduled start."""
    connect_timeout: float = 10.0
    """Seconds until a connection has to be made; also the seconds without any progress after which the connections that
    remain count as refused."""
    data: bytes = b""
    "Data of each request."
    metadata: bytes | None = None
    route: str | None = None
    items: int = 1
    "Items that a channel sends."
    take: int | None = None
    "Cancel each stream or channel after this number of items; None consumes all."
    ends: bool = False
    "Streams end by themselves: those alive at the end of the duration are awaited, not canceled."
    credit: Kept = 256
    "The window of a stream, in items, or ``auto``."
    metadata_mime: str | None = None
    data_mime: str | None = None
    setup: Any = field(default=None, repr=False)
    "Sent to the server at setup, such as ``afflux.Bearer(token)``."
    limits: Limits = field(default_factory=Limits.trusted)
    workers: int = 1
    "Processes that share the load."
    turn: tuple[int, int] = (0, 1)
    "Arrivals of open load that belong to this process: the index of the first, and the step to the next."

    def __post_init__(self) -> None:
        address = parse(self.uri)
        address.check_port()
        for name, wrong, right in _RULES:
            if wrong(self):
                raise ValueError(f"invalid {name} {getattr(self, name)!r}: expected {right}")
        if self.streams * self.connections > MOST_STREAMS * self.workers:
            asked = f"{self.connections:,} connections with {self.streams:,} streams each"
            raise ValueError(f"{asked} exceed {MOST_STREAMS:,} streams per process: use fewer, or more workers")
        if self.connections < self.workers:
            raise ValueError(f"{self.workers} workers require at least as many connections, not {self.connections}")
        if self.requests is not None and self.requests < self.workers:
            raise ValueError(f"{self.workers} workers require at least as many requests, not {self.requests}")
        if self.workers > 1 and address.transport == "mem":
            raise ValueError("mem:// connects within one process: workers are not supported")

    @property
    def address(self) -> Address:
        """The parsed address of the server."""
        return parse(self.uri)

    @property
    def streams(self) -> int:
        """Concurrent streams per connection."""
        if self.concurrency is not None:
            return self.concurrency
        return 1 if self.rate is None else _OPEN_STREAMS

    @property
    def seconds(self) -> float | None:
        """Duration of the load; None if only ``requests`` limits it."""
        return 10.0 if self.duration is None and self.requests is None else self.duration

    @property
    def flows(self) -> bool:
        """Whether a request has many items as answer."""
        return self.verb in ("stream", "channel")

    @property
    def cuts(self) -> bool:
        """Whether streams alive at the end of the duration are canceled."""
        return self.verb == "stream" and not self.ends and self.take is None

    @property
    def bounded(self) -> bool:
        """Whether the credit is bounded."""
        return self.credit == "auto" or self.credit < UNBOUNDED

    def payload(self) -> Payload:
        """Return the payload of each request.

        Raises:
            LocalProtocolError: the route cannot be encoded.
        """
        return call_payload(self.data, self.metadata, self.route, metadata_mime=self.metadata_mime)

    def replace(self, **changes: Any) -> Plan:
        """Return a copy with ``changes``. Raises like the constructor."""
        return replace(self, **changes)

    def warm(self) -> Plan:
        """Return the load of the warm-up."""
        return replace(self, duration=self.warmup, requests=None, warmup=0.0)

    def shares(self) -> list[Plan]:
        """Return the plan of each worker. The rate stays the total, because workers alternate."""
        return [
            replace(
                self,
                workers=1,
                turn=(share, self.workers),
                connections=_part(self.connections, share, self.workers),
                requests=None if self.requests is None else _part(self.requests, share, self.workers),
            )
            for share in range(self.workers)
        ]


def filler(size: int) -> bytes:
    """Return ``size`` deterministic bytes."""
    return (_PATTERN * (size // len(_PATTERN) + 1))[:size]


def _part(total: int, share: int, workers: int) -> int:
    return total // workers + (share < total % workers)


def _above(name: str, least: float, most: float, unit: str) -> tuple[str, Callable[[Plan], bool], str]:
    def wrong(plan: Plan) -> bool:
        value = getattr(plan, name)
        return value is not None and not least <= value <= most

    return name, wrong, f"{least:,} to {most:,}{unit}"


def _is_window(credit: Kept) -> bool:
    return credit == "auto" or (isinstance(credit, int) and 1 <= credit <= UNBOUNDED)


_DAY = 86_400
_VERBS = get_args(Verb)

_RULES: tuple[tuple[str, Callable[[Plan], bool], str], ...] = (
    ("verb", lambda plan: plan.verb not in _VERBS, f"one of {', '.join(_VERBS)}"),
    _above("requests", 1, 1 << 62, ""),
    _above("duration", 0.001, 365 * _DAY, " seconds"),
    _above("connections", 1, MOST_CONNECTIONS * MOST_WORKERS, ""),
    _above("concurrency", 1, MOST_STREAMS, ""),
    _above("rate", 0.001, 10_000_000, " per second"),
    _above("warmup", 0, _DAY, " seconds"),
    _above("timeout", 0.001, _DAY, " seconds"),
    _above("connect_timeout", 0.001, _DAY, " seconds"),
    _above("items", 1, 1 << 62, ""),
    _above("take", 1, 1 << 62, ""),
    ("credit", lambda plan: not _is_window(plan.credit), f'1 to {UNBOUNDED:,} items, or "auto"'),
    _above("workers", 1, MOST_WORKERS, ""),
)
