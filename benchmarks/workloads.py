"""Define the workloads."""

from __future__ import annotations

from typing import Any, Final, Literal, NamedTuple

__all__ = ["LARGE_BYTES", "REQUEST_BYTES", "ROW_SIZES", "UNBOUNDED", "WORKLOADS", "Kind", "Workload"]

Kind = Literal["request", "stream", "credit", "payload", "session"]
"""``request``: request/response. ``stream``: one stream, all credit granted together. ``credit``: one stream with a
window. ``payload``: a stream of items so large that RSocket must fragment them. ``session``: a byte session that is
echoed in full; only Jmux has them."""

UNBOUNDED: Final = 0x7FFFFFFF
"The maximum credit of one frame: effectively unbounded."

REQUEST_BYTES: Final = 64
"Bytes of a request and its answer."

LARGE_BYTES: Final = 0x20000000
"Maximum payload size allowed by both ends, for the workloads that need it."

ROW_SIZES: Final = (60, 270, 180, 90, 300, 210, 120, 330, 240, 150)
"Bytes of the items of a stream of rows, repeated."

_MIB = 0x100000


class Workload(NamedTuple):
    """One kind of work, without its amount."""

    name: str
    kind: Kind
    concurrency: int = 1
    "Concurrent requests."
    size: int = REQUEST_BYTES
    "Bytes per item."
    credit: int = UNBOUNDED
    "The window in items."
    smoke: int = 300
    "Amount that suffices to check that it runs and counts correctly."
    rows: bool = False
    "Items of the sizes in ROW_SIZES; ``size`` is their mean."

    @property
    def title(self) -> str:
        """The title in tables."""
        if self.kind == "request":
            return f"request/response {_size(self.size)}, {self.concurrency} concurrent"
        if self.kind == "payload":
            return f"payload of {_size(self.size)}, fragmented"
        if self.kind == "session":
            return f"session of {_size(self.size)} both ways, one at a time"
        credit = "unbounded credit" if self.credit == UNBOUNDED else f"credit {self.credit}"
        size = f"{min(ROW_SIZES)} to {max(ROW_SIZES)} B" if self.rows else _size(self.size)
        return f"stream {size}, {credit}"

    @property
    def in_bytes(self) -> bool:
        """Large items, reported in MB/s (10^6) instead of items."""
        return self.size >= 0x10000

    @property
    def large(self) -> bool:
        """Payloads that only the limits for trusted links allow."""
        return self.kind == "payload"

    @property
    def least(self) -> int:
        """The amount of work for a first estimate of the rate: a few turns of all requests, or some megabytes."""
        return max(2, min(32, 64 * _MIB // self.size), 2 * self.concurrency)

    def command(self, amount: int) -> dict[str, Any]:
        """Return the command for a client process."""
        if self.kind == "request":
            return {"do": "request", "n": amount, "concurrency": self.concurrency}
        if self.kind == "session":
            return {"do": "session", "n": amount, "size": self.size}
        return {"do": "stream", "items": amount, "size": 0 if self.rows else self.size, "credit": self.credit}

    def bytes_of(self, amount: int) -> int:
        """Return how many bytes an amount of items has."""
        if not self.rows:
            return amount * self.size
        whole, rest = divmod(amount, len(ROW_SIZES))
        return whole * sum(ROW_SIZES) + sum(ROW_SIZES[:rest])


def _size(size: int) -> str:
    for unit, name in ((_MIB, "MiB"), (1024, "KiB")):
        if size >= unit:
            return f"{size // unit} {name}"
    return f"{size} B"


WORKLOADS: Final = (
    Workload("request-1", "request", concurrency=1),
    Workload("request-64", "request", concurrency=64),
    Workload("request-256", "request", concurrency=256, smoke=600),
    Workload("stream-64", "stream", size=64, smoke=1000),
    Workload("stream-64-credit-256", "credit", size=64, credit=256, smoke=1000),
    Workload("stream-1k", "stream", size=1024, smoke=1000),
    Workload("stream-1k-credit-256", "credit", size=1024, credit=256, smoke=1000),
    Workload("stream-rows", "stream", size=sum(ROW_SIZES) // len(ROW_SIZES), smoke=1003, rows=True),
    Workload("stream-64k", "stream", size=0x10000, smoke=40),
    Workload("stream-64k-credit-256", "credit", size=0x10000, credit=256, smoke=300),
    Workload("payload-16m", "payload", size=16 * _MIB, smoke=2),
    Workload("payload-256m", "payload", size=256 * _MIB, smoke=1),
    Workload("session-1m", "session", size=_MIB, smoke=3),
)
"Every workload, in the order of the tables."
