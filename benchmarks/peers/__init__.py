"""The contenders: a file for each peer, all with the interface of base.py. Nothing is measured here.

A contender is a peer on an event loop. A peer that can not run here says why (``why_not``).
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Final, NamedTuple, cast

from benchmarks.peers.base import Peer
from benchmarks.workloads import Kind

__all__ = ["CONTENDERS", "LOOPS", "PEERS", "Contender", "Entry", "load"]


class Entry(NamedTuple):
    """What is known of a peer without importing it."""

    module: str
    "Where it is, inside this package."
    needs: str
    "The distribution that it measures; empty for the standard library alone."
    imports: str
    "The module that must be there."
    kinds: tuple[Kind, ...]
    "The workloads it has."
    about: str
    "One line for the report."


PEERS: Final = {
    "skeleton": Entry(
        "skeleton", "", "asyncio", ("request", "stream"), "the least Python that moves the frames; no credit, no states"
    ),
    "rsocket": Entry("rsocket_py", "rsocket", "rsocket", ("request", "stream"), "rsocket on PyPI, client and server"),
    "afflux": Entry(
        "afflux_aio", "afflux", "afflux.aio.client", ("request", "stream"), "item by item: async for, yield"
    ),
    "afflux-batches": Entry(
        "afflux_batches", "afflux", "afflux.aio.client", ("stream",), "lists of items: yield [...], stream.batches()"
    ),
    "afflux-sync": Entry(
        "afflux_sync", "afflux", "afflux.sync.client", ("stream",), "the blocking client, item by item"
    ),
}
"Every peer, in the order of the tables."

LOOPS: Final = ("asyncio", "uvloop")
"Event loops. A blocking client has none; there it is the server's."


class Contender(NamedTuple):
    """A peer on a loop."""

    peer: str
    loop: str

    def __str__(self) -> str:
        return f"{self.peer}/{self.loop}"

    def why_not(self) -> str | None:
        """Why it can not run on this machine; None if it can."""
        entry = PEERS[self.peer]
        for module in (entry.imports, self.loop):
            try:
                missing = find_spec(module) is None
            except ModuleNotFoundError:
                missing = True
            if missing:
                return f"no module {module} here (make setup installs it)"
        return None


CONTENDERS: Final = tuple(Contender(peer, loop) for loop in LOOPS for peer in PEERS)


def load(name: str) -> Peer:
    """Import a peer.

    Raises:
        KeyError: there is none of this name.
        ImportError: what it measures is not installed.
    """
    return cast("Peer", import_module(f"benchmarks.peers.{PEERS[name].module}"))
