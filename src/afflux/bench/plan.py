"""What a load is to be: every choice in one value, checked. No connection lives here."""

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
"Streams at once, over all connections of one process."

MOST_WORKERS = 256

_PATTERN = b"0123456789abcdefghijklmnopqrstuv"
_OPEN_STREAMS = 256
"Streams at once on each connection under open load, unless the caller says otherwise."


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A load to put on a server.

    Without ``rate`` the load is closed: each stream that has ended is followed by another. With ``rate`` it is open: so
    many requests begin in every second, however the server keeps up.

    Raises:
        ValueError: a choice that can not be, or two that contradict each other.
        AddressError: an address that can not be.
    """

    uri: str
    "The server."
    verb: Verb = "request"
    "What is asked."
    requests: int | None = None
    "End after so many, warming up not counted."
    duration: float | None = None
    "End after so many seconds; 10 when ``requests`` is None as well."
    connections: int = 1
    concurrency: int | None = None
    "Streams at once on each connection; None for 1, and for 256 with ``rate``."
    rate: float | None = None
    "Requests a second, over all connections; None for closed load."
    warmup: float = 0.0
    "Seconds of the same load before anything is counted."
    timeout: float = 10.0
    """Seconds after which a request without an answer is given up; a stream, after its last item. With ``rate``, also
    how long after its moment a request may begin at all."""
    data: bytes = b""
    "Data of each request."
    metadata: bytes | None = None
    route: str | None = None
    items: int = 1
    "Items that a channel sends."
    take: int | None = None
    "A stream or a channel is canceled after so many items; None takes all."
    ends: bool = False
    "Streams are known to end by themselves: those that live at the end of the time are waited for, not cut."
    credit: Kept = 256
    "The window of a stream, in items, or ``auto``."
    metadata_mime: str | None = None
    data_mime: str | None = None
    setup: Any = field(default=None, repr=False)
    "What the server gets when a connection is made, such as ``afflux.Bearer(token)``."
    limits: Limits = field(default_factory=Limits.trusted)
    workers: int = 1
    "Processes that share the load."
    turn: tuple[int, int] = (0, 1)
    "Which arrivals of open load are this process's: the first one, and every so manieth from there on."

    def __post_init__(self) -> None:
        address = parse(self.uri)
        for name, wrong, right in _RULES:
            if wrong(self):
                raise ValueError(f"{name} is {right}, not {getattr(self, name)!r}")
        if self.streams * self.connections > MOST_STREAMS * self.workers:
            at_once = f"{self.connections:,} connections with {self.streams:,} streams each"
            raise ValueError(
                f"{at_once} are more than {MOST_STREAMS:,} at once in a process: use fewer, or more workers"
            )
        if self.connections < self.workers:
            raise ValueError(f"{self.workers} workers need as many connections, not {self.connections}")
        if self.requests is not None and self.requests < self.workers:
            raise ValueError(f"{self.workers} workers need as many requests, not {self.requests}")
        if self.workers > 1 and address.transport == "mem":
            raise ValueError("mem:// is within one process: it has no workers")

    @property
    def address(self) -> Address:
        """The server's address, read."""
        return parse(self.uri)

    @property
    def streams(self) -> int:
        """Streams at once on each connection."""
        if self.concurrency is not None:
            return self.concurrency
        return 1 if self.rate is None else _OPEN_STREAMS

    @property
    def seconds(self) -> float | None:
        """How long the load lasts; None for as long as its requests take."""
        return 10.0 if self.duration is None and self.requests is None else self.duration

    @property
    def flows(self) -> bool:
        """Whether many items come for a request."""
        return self.verb in ("stream", "channel")

    @property
    def cuts(self) -> bool:
        """Whether streams that live at the end of the time are cut."""
        return self.verb == "stream" and not self.ends and self.take is None

    @property
    def bounded(self) -> bool:
        """Whether the credit has a bound."""
        return self.credit == "auto" or self.credit < UNBOUNDED

    def payload(self) -> Payload:
        """What each request is made of.

        Raises:
            LocalProtocolError: the route can not be written.
        """
        return call_payload(self.data, self.metadata, self.route, metadata_mime=self.metadata_mime)

    def replace(self, **changes: Any) -> Plan:
        """The same but for ``changes``. Raises as the constructor does."""
        return replace(self, **changes)

    def warm(self) -> Plan:
        """The load that warms up for this one."""
        return replace(self, duration=self.warmup, requests=None, warmup=0.0)

    def shares(self) -> list[Plan]:
        """What each worker does. The rate stays that of all: they take turns."""
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
    """``size`` bytes, the same ones every time."""
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
    _above("rate", 0.001, 10_000_000, " a second"),
    _above("warmup", 0, _DAY, " seconds"),
    _above("timeout", 0.001, _DAY, " seconds"),
    _above("items", 1, 1 << 62, ""),
    _above("take", 1, 1 << 62, ""),
    ("credit", lambda plan: not _is_window(plan.credit), f'1 to {UNBOUNDED:,} items, or "auto"'),
    _above("workers", 1, MOST_WORKERS, ""),
)
