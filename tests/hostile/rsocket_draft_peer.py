"""What hostile peers of the extensible draft say, and what it brings an engine to. No tests."""

from __future__ import annotations

from afflux.protocols.rsocket_draft import Engine, frames
from tests.hostile.hoards import SERVER
from tests.protocols.rsocket_draft.wire import SETUP

F = SERVER.frame_bytes


def server() -> Engine:
    """A server that has accepted its client."""
    engine = Engine("server", limits=SERVER)
    engine.receive(SETUP.encode(prefixed=True), 0.0)
    return engine


LARGEST = server, frames.RequestFnf(stream=1, data=bytes(F - 6)).encode(prefixed=True), F
"A server, the longest frame that it takes, and its length."
BURST = server, frames.MetadataPush(metadata=b"", stream=0).encode(prefixed=True) * (0x40000 // 9)
