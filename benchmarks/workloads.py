"""What is done: the workloads, and how much of each. Who does it, and how it is measured, is elsewhere."""

from __future__ import annotations

from typing import Any, Final, Literal, NamedTuple

__all__ = ["REQUEST_BYTES", "UNBOUNDED", "WORKLOADS", "Kind", "Workload"]

Kind = Literal["request", "stream"]

UNBOUNDED: Final = 0x7FFFFFFF
"The most credit that one frame grants: as good as no limit."

REQUEST_BYTES: Final = 64
"Bytes in a request, and in its answer."


class Workload(NamedTuple):
    """One kind of work, without its amount."""

    name: str
    kind: Kind
    concurrency: int = 1
    "Requests at once."
    size: int = REQUEST_BYTES
    "Bytes in each item."
    credit: int = UNBOUNDED
    "Items kept granted."
    smoke: int = 300
    "How much is enough to see that it runs, and is counted right."

    @property
    def title(self) -> str:
        """For people."""
        size = f"{self.size} B" if self.size < 1024 else f"{self.size // 1024} KiB"
        if self.kind == "request":
            return f"request/response {size}, {self.concurrency} at once"
        credit = "unbounded credit" if self.credit == UNBOUNDED else f"credit {self.credit}"
        return f"stream {size}, {credit}"

    @property
    def in_bytes(self) -> bool:
        """Large items: told in MB/s (10^6), not in items."""
        return self.size >= 0x10000

    def command(self, amount: int) -> dict[str, Any]:
        """What a client process is told to do."""
        if self.kind == "request":
            return {"do": "request", "n": amount, "concurrency": self.concurrency}
        return {"do": "stream", "items": amount, "size": self.size, "credit": self.credit}


WORKLOADS: Final = (
    Workload("request-1", "request", concurrency=1),
    Workload("request-64", "request", concurrency=64),
    Workload("request-256", "request", concurrency=256, smoke=600),
    Workload("stream-64", "stream", size=64, smoke=1000),
    Workload("stream-64-credit-256", "stream", size=64, credit=256, smoke=1000),
    Workload("stream-1k", "stream", size=1024, smoke=1000),
    Workload("stream-1k-credit-256", "stream", size=1024, credit=256, smoke=1000),
    Workload("stream-64k", "stream", size=0x10000, smoke=40),
    Workload("stream-64k-credit-256", "stream", size=0x10000, credit=256, smoke=300),
)
"Every workload, in the order of the tables."
