"""Define the workloads."""

from __future__ import annotations

from typing import Any, Final, Literal, NamedTuple

__all__ = [
    "LARGE_BYTES",
    "METADATA_BYTES",
    "REQUEST_BYTES",
    "ROUTE",
    "ROW_SIZES",
    "SHORT",
    "UNBOUNDED",
    "VARIED",
    "WORKLOADS",
    "Kind",
    "Workload",
]

Kind = Literal["request", "stream", "credit", "payload", "session", "metadata", "routed", "short", "channel", "many"]
"""``request``: request/response. ``stream``: one stream, all credit granted together. ``credit``: one stream with a
window. ``payload``: a stream of items so large that RSocket must fragment them. ``session``: a byte session that is
echoed in full; only Jmux has them. ``metadata``: a stream whose items have metadata. ``routed``: requests with a route
in composite metadata. ``short``: streams of ``SHORT`` rows; one of them counts as an item. ``channel``: a channel whose
items are echoed. ``many``: requests on several connections at once."""

UNBOUNDED: Final = 0x7FFFFFFF
"The maximum credit of one frame: effectively unbounded."

REQUEST_BYTES: Final = 64
"Bytes of a request and its answer."

LARGE_BYTES: Final = 0x20000000
"Maximum payload size allowed by both ends, for the workloads that need it."

ROW_SIZES: Final = (60, 270, 180, 90, 300, 210, 120, 330, 240, 150)
"Bytes of the items of a stream of rows, repeated."

NEAR_SIZES: Final = (48, 76, 60, 68, 52, 80, 64, 72, 56, 64)
"Bytes of items that differ little, repeated."

VARIED: Final = {0: ROW_SIZES, 1: NEAR_SIZES}
"Sizes of items that vary, by the number that stands for them where a size is asked for."

SHORT: Final = 20
"Items of a short stream."

METADATA_BYTES: Final = 10
"Bytes of metadata of an item that has some."

ROUTE: Final = "bench.echo.bytes"
"The route of requests with a route."

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
    varied: int | None = None
    "A key of VARIED: items of these sizes; ``size`` is their mean."
    connections: int = 1
    "Connections that the requests are sent on, each with ``concurrency`` of them at once."

    @property
    def title(self) -> str:
        """The title in tables."""
        if self.kind in ("request", "routed"):
            what = "routed request" if self.kind == "routed" else "request/response"
            return f"{what} {_size(self.size)}, {self.concurrency} concurrent"
        if self.kind == "many":
            return f"request/response {_size(self.size)}, {self.connections} connections × {self.concurrency}"
        if self.kind == "short":
            return f"streams of {SHORT} rows, {self.concurrency} concurrent, credit {self.credit}"
        if self.kind == "payload":
            return f"payload of {_size(self.size)}, fragmented"
        if self.kind == "session":
            return f"session of {_size(self.size)} both ways, one at a time"
        credit = "unbounded credit" if self.credit == UNBOUNDED else f"credit {self.credit}"
        sizes = (self.size,) if self.varied is None else VARIED[self.varied]
        size = _size(self.size) if len(sizes) == 1 else f"{min(sizes)} to {max(sizes)} B"
        if self.kind == "metadata":
            size += f" with {METADATA_BYTES} B of metadata"
        return f"{'channel echo' if self.kind == 'channel' else 'stream'} {size}, {credit}"

    @property
    def in_bytes(self) -> bool:
        """Large items, reported in MB/s (10^6) instead of items."""
        return self.size >= 0x10000

    @property
    def large(self) -> bool:
        """Payloads that only the limits for trusted links allow."""
        return self.kind == "payload"

    @property
    def settings(self) -> Literal["default", "large", "routed"]:
        """The settings of both processes: ``large`` payloads are allowed, or the server has a table of routes."""
        return "large" if self.large else "routed" if self.kind == "routed" else "default"

    @property
    def in_turn(self) -> bool:
        """One request at a time: each end always waits for the other."""
        return self.kind == "request" and self.concurrency == 1

    @property
    def least(self) -> int:
        """The amount of work for a first estimate of the rate: a few turns of all requests, or some megabytes."""
        return max(2, min(32, 64 * _MIB // self.size), 2 * self.concurrency * self.connections)

    def command(self, amount: int) -> dict[str, Any]:
        """Return the command for a client process."""
        if self.kind in ("request", "routed"):
            return {"do": self.kind, "n": amount, "concurrency": self.concurrency}
        if self.kind == "many":
            return {"do": "many", "n": amount, "concurrency": self.concurrency, "connections": self.connections}
        if self.kind == "short":
            return {"do": "short", "n": amount, "concurrency": self.concurrency, "credit": self.credit}
        if self.kind == "session":
            return {"do": "session", "n": amount, "size": self.size}
        do = self.kind if self.kind in ("channel", "metadata") else "stream"
        size = self.size if self.varied is None else self.varied
        return {"do": do, "items": amount, "size": size, "credit": self.credit}

    def bytes_of(self, amount: int) -> int:
        """Return how many bytes of data an amount of items has."""
        if self.varied is None:
            return amount * self.size
        sizes = VARIED[self.varied]
        whole, rest = divmod(amount, len(sizes))
        return whole * sum(sizes) + sum(sizes[:rest])


_ROW, _NEAR = (sum(sizes) // len(sizes) for sizes in VARIED.values())


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
    Workload("stream-rows", "stream", size=_ROW, smoke=1003, varied=0),
    Workload("stream-rows-credit-256", "credit", size=_ROW, credit=256, smoke=1003, varied=0),
    Workload("stream-rows-metadata", "metadata", size=_ROW, smoke=1003, varied=0),
    Workload("stream-near", "stream", size=_NEAR, smoke=1003, varied=1),
    Workload("stream-near-credit-256", "credit", size=_NEAR, credit=256, smoke=1003, varied=1),
    Workload("channel-rows", "channel", size=_ROW, credit=256, smoke=1003, varied=0),
    Workload("streams-20", "short", concurrency=64, size=SHORT * _ROW, credit=32, smoke=130),
    Workload("routed-16", "routed", concurrency=16),
    Workload("routed-256", "routed", concurrency=256, smoke=600),
    Workload("connections-100", "many", concurrency=8, connections=100, smoke=1700),
    Workload("stream-64k", "stream", size=0x10000, smoke=40),
    Workload("stream-64k-credit-256", "credit", size=0x10000, credit=256, smoke=300),
    Workload("payload-16m", "payload", size=16 * _MIB, smoke=2),
    Workload("payload-256m", "payload", size=256 * _MIB, smoke=1),
    Workload("session-1m", "session", size=_MIB, smoke=3),
)
"Every workload, in the order of the tables."
