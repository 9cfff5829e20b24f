"""List the contenders: one module per peer with the interface of base.py, js/ for Node.js, jeri/ for Java.

A contender is a peer on an event loop. ``why_not`` returns why a peer cannot run here, and ``Entry.lacks`` why it does
not support a workload.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Final, NamedTuple, Protocol, cast

from benchmarks.peers import compiled, java, node, rsocket_java
from benchmarks.peers.base import Peer
from benchmarks.workloads import Workload

__all__ = [
    "CONTENDERS",
    "ELSEWHERE",
    "JAVA",
    "LOOPS",
    "NODE",
    "PEERS",
    "Contender",
    "Entry",
    "Program",
    "chosen",
    "load",
]

LOOPS: Final = ("asyncio", "uvloop")
"Event loops of Python. For a blocking client it is the server's loop."

NODE: Final = "node"
"The event loop of JavaScript."

JAVA: Final = "java"
"The selectors and threads of Java."


class Entry(NamedTuple):
    """What is known of a peer without importing it."""

    module: str
    "Its module inside this package; empty for peers not in Python."
    imports: str
    "The module that it requires."
    about: str
    "One line for the report."
    loops: tuple[str, ...] = LOOPS
    "The event loops on which it runs."
    extra: str = "make setup"
    "What installs the module."
    warm_s: float = 0.0
    "Seconds of warm-up, for just-in-time compilers."
    lacks: Mapping[str, str] = {}
    "Reasons for unsupported workloads, by name or by kind of workload."
    further: frozenset[str] = frozenset()
    "The kinds of further work that it has (base.FurtherWork)."
    only: frozenset[str] = frozenset()
    "The only workloads that it is measured in, by name; empty for all."
    absent: Callable[[], str | None] | None = None
    "Returns why it is not here although its module is, and the remedy."

    def why_not(self, workload: Workload) -> str | None:
        """Return why it does not support a workload; None if it does."""
        if self.only and workload.name not in self.only:
            return f"measured in {len(self.only)} workloads only"
        if workload.kind in _FURTHER and workload.kind not in self.further:
            return _FURTHER[workload.kind]
        return self.lacks.get(workload.name) or self.lacks.get(workload.kind)


_NO_ITEMS: Final = dict.fromkeys(("stream", "credit", "payload"), "Jmux has bytes, not items")
_NO_ROOM: Final = {"request-256": "a connection has 128 sessions"}
_ONCE: Final = {"payload": "large payloads are measured with RSocket only"}
_OVER_TCP: Final = "measured with RSocket over TCP only"
_FURTHER: Final = {
    "session": "only Jmux has byte sessions",
    "metadata": _OVER_TCP,
    "routed": _OVER_TCP,
    "short": _OVER_TCP,
    "channel": "channels are measured with afflux only",
    "many": _OVER_TCP,
}
"Kinds of further work, and the reason why most peers are not measured in them."
_REAL: Final = frozenset({"metadata", "routed", "short", "many"})
_TRANSPORT: Final = frozenset({"request-256", "stream-64", "stream-1k", "stream-rows"})

PEERS: Final = {
    "skeleton": Entry(
        "skeleton",
        "asyncio",
        "the least Python that moves the frames; no credit, no states",
        lacks={"credit": "it has no credit"},
    ),
    "rsocket": Entry("rsocket_py", "rsocket", "rsocket on PyPI, client and server", further=_REAL),
    "rsocket-js": Entry(
        "",
        "",
        "rsocket-js on Node.js, client and server",
        loops=(NODE,),
        warm_s=1.5,
        lacks={"payload": "it does not send fragments"},
        further=_REAL,
    ),
    "rsocket-java": Entry(
        "",
        "",
        "rsocket-java, client and server",
        loops=(JAVA,),
        warm_s=3.0,
        only=frozenset(
            f"{name}{credit}" for name in ("stream-64", "stream-near", "stream-1k") for credit in ("", "-credit-256")
        )
        | {"request-1", "request-256"},
    ),
    "grpc": Entry(
        "grpc_aio",
        "grpc.aio",
        "grpcio (its asyncio side) with plain bytes, client and server",
        loops=("asyncio",),
        extra="make bench",
        lacks={"credit": "its flow control is HTTP/2's byte windows, which an application cannot request"},
    ),
    "afflux": Entry(
        "afflux_aio", "afflux.aio.client", "item by item: async for, yield", further=_REAL | frozenset({"channel"})
    ),
    "afflux-batches": Entry(
        "afflux_batches",
        "afflux.aio.client",
        "lists of items: yield [...], stream.batches()",
        lacks={"request": "a request has one answer, never a list", "payload": "each item would be a list of its own"},
    ),
    "afflux-sync": Entry(
        "afflux_sync",
        "afflux.sync.client",
        "the blocking client, item by item",
        lacks=dict.fromkeys(("request-64", "request-256"), "a blocking call makes one request at a time"),
    ),
    "afflux-reactivesocket": Entry(
        "afflux_reactivesocket", "afflux.aio.client", "ReactiveSocket of 2015, item by item", lacks=_ONCE
    ),
    "afflux-rsio": Entry(
        "afflux_rsio",
        "afflux.aio.client",
        "reactive-streams-io, item by item",
        lacks={**_ONCE, "request": "it has subscriptions, not requests"},
    ),
    "afflux-rsocket-draft": Entry(
        "afflux_draft", "afflux.aio.client", "RSocket's extensible draft without entries, item by item", lacks=_ONCE
    ),
    "afflux-rsocket-draft-entries": Entry(
        "afflux_draft_entries", "afflux.aio.client", "the same with three entries on each payload", lacks=_ONCE
    ),
    "afflux-limit": Entry(
        "afflux_limit",
        "afflux.aio.client",
        "Limit-Stream: texts, checked by a session type at both ends, item by item",
        lacks={**_ONCE, "request": "it has channels, not requests"},
    ),
    "afflux-limit-unchecked": Entry(
        "afflux_limit_unchecked",
        "afflux.aio.client",
        "Limit-Stream: bytes, unchecked, item by item",
        lacks={**_ONCE, "request": "it has channels, not requests"},
    ),
    "afflux-tls": Entry("afflux_tls", "trustme", "over TLS, item by item", only=_TRANSPORT),
    "afflux-ws": Entry("afflux_ws", "websockets", "over WebSockets, item by item", only=_TRANSPORT),
    "afflux-uvicorn": Entry(
        "afflux_uvicorn", "uvicorn", "an ASGI application under Uvicorn, item by item", only=_TRANSPORT
    ),
    "afflux-compiled": Entry(
        "afflux_compiled",
        "afflux",
        "compiled by mypyc, item by item",
        only=frozenset({"request-1", "request-256"}),
        absent=compiled.why_not,
    ),
    "afflux-jmux": Entry(
        "afflux_jmux",
        "afflux.aio.client",
        "Jmux: requests and sessions",
        lacks=_NO_ITEMS | _NO_ROOM,
        further=frozenset({"session"}),
    ),
    "jeri": Entry(
        "",
        "",
        "Jmux by its Java original, Apache River, client and server",
        loops=(JAVA,),
        warm_s=3.0,
        lacks=_NO_ITEMS | _NO_ROOM,
        further=frozenset({"session"}),
    ),
}
"Every peer, in the order of the tables."


class Program(Protocol):
    """A module for a peer in another language."""

    def why_not(self) -> str | None:
        """Return why it cannot run here, and the remedy; None if it can. May build or install it."""

    def command(self, role: str, *arguments: str) -> list[str]:
        """Return the command of one end, a program that does what benchmarks/child.py does."""

    def versions(self) -> dict[str, str]:
        """Return versions by name, for the report."""


ELSEWHERE: Final[Mapping[str, Program]] = {
    "rsocket-js": cast("Program", node),
    "rsocket-java": cast("Program", rsocket_java),
    "jeri": cast("Program", java),
}
"Peers in other languages."


class Contender(NamedTuple):
    """A peer on a loop."""

    peer: str
    loop: str

    def __str__(self) -> str:
        return f"{self.peer}/{self.loop}"

    def why_not(self) -> str | None:
        """Return why it cannot run on this machine, and the remedy; None if it can. May install from npm."""
        if self.peer in ELSEWHERE:
            return ELSEWHERE[self.peer].why_not()
        entry = PEERS[self.peer]
        for module, extra in ((entry.imports, entry.extra), (self.loop, "make setup")):
            try:
                missing = find_spec(module) is None
            except ModuleNotFoundError:
                missing = True
            if missing:
                return f"no module {module} here ({extra} installs it)"
        return None if entry.absent is None else entry.absent()

    def command(self, role: str, *arguments: str) -> list[str]:
        """Return the command of one end: ``role`` is server or client."""
        if self.peer in ELSEWHERE:
            return ELSEWHERE[self.peer].command(role, *arguments)
        return [sys.executable, "-m", "benchmarks.child", role, *self, *arguments]


CONTENDERS: Final = tuple(
    Contender(peer, loop) for loop in (*LOOPS, NODE, JAVA) for peer in PEERS if loop in PEERS[peer].loops
)


def chosen(peers: Iterable[str], loops: Iterable[str]) -> list[Contender]:
    """Return the contenders of these peers on these loops; peers with other loops run on their own."""
    wanted = set(loops)
    return [
        one for one in CONTENDERS if one.peer in peers and (one.loop in wanted or not wanted & {*PEERS[one.peer].loops})
    ]


def load(name: str) -> Peer:
    """Import a peer.

    Raises:
        KeyError: the name is unknown.
        ImportError: the peer is not installed.
    """
    return cast("Peer", import_module(f"benchmarks.peers.{PEERS[name].module}"))
