"""What hostile ReactiveSocket peers say, and what it brings an engine to. No tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from afflux.core.events import Payload
from afflux.core.limits import Limits
from afflux.protocols.reactivesocket import Engine, frames
from tests.hostile.hoards import SERVER, Hoard, drained
from tests.protocols.reactivesocket.playbook import raw, setup

H, F = SERVER.first_frame_bytes, SERVER.frame_bytes
GRANT = frames.RequestN(stream=2, n=1).encode(prefixed=True)


def stranger() -> Engine:
    """A server that nobody has spoken to."""
    return Engine("server", limits=SERVER)


def server(limits: Limits = SERVER) -> Engine:
    """A server that has accepted its client."""
    engine = Engine("server", limits=limits)
    engine.receive(setup().encode(prefixed=True), 0.0)
    return engine


def serving(n: int = 1) -> Engine:
    """A server with a stream."""
    engine = server()
    engine.receive(frames.RequestStream(stream=2, initial_n=n).encode(prefixed=True), 0.0)
    return engine


def greedy() -> Engine:
    """A server whose client has asked for all that a number can say."""
    return serving(0x7FFFFFFF)


def publish(engine: Any) -> None:
    """The next of many items."""
    engine.send(2, [bytes(4000)])


def busy() -> Engine:
    """A server whose handlers all run."""
    engine = server()
    for line in more_requests(SERVER.streams):
        engine.receive(line, 0.0)
    return engine


def more_requests(count: int) -> list[bytes]:
    """As many requests, with ids of their own."""
    last = 2 * SERVER.streams if count != SERVER.streams else 0
    return [frames.RequestStream(stream=last + 2 * n, initial_n=1).encode(prefixed=True) for n in range(1, count + 1)]


def fires() -> list[bytes]:
    """More than a connection may hold."""
    return [frames.RequestFnf(stream=2 * n).encode(prefixed=True) for n in range(1, 20_000)]


def large_setup(**fields: Any) -> bytes:
    """A SETUP as long as a first frame may be."""
    bare = setup(data=b"x", **fields).encoded_size - 1
    return setup(data=bytes(H - 4 - bare), **fields).encode(prefixed=True)


def lying(length: int) -> bytes:
    """A frame of the greatest length whose metadata length is not true."""
    return raw(4, 0x4000, 2, length.to_bytes(4, "big") + bytes(F - 12))


FIRST_FRAMES = {
    "HS-02": frames.Keepalive(respond=True, data=bytes(H - 8)).encode(prefixed=True),
    "HS-03": large_setup(stream=2),
    "HS-18": large_setup(strict=True),
}
"Row to what a stranger says."
FRAMES = {
    "FG-15": lying(F),
    "FG-16": lying(3),
    "KA-01": frames.Keepalive(respond=True, data=bytes(SERVER.connection_metadata_bytes)).encode(prefixed=True),
    "KA-03": frames.Keepalive(respond=True, data=bytes(F - 8)).encode(prefixed=True),
}
"Row to what a client says."
EXTENSION = frames.Ext(extended_type=7, ignore=True, body=bytes(F - 8)).encode(prefixed=True)


def _client(limits: Limits) -> Engine:
    engine = Engine("client", limits=limits)
    engine.open("stream", b"", credit=1 << 30)
    engine.receive(frames.Keepalive().encode(prefixed=True), 0.0)
    drained(engine)
    return engine


def _items(engine: Any) -> Iterator[bytes]:
    line = frames.Response(stream=2, data=bytes(50)).encode(prefixed=True)
    while True:
        yield line


HOARD = Hoard(_client, _items)
LARGEST = server, frames.RequestFnf(stream=2, data=bytes(F - 12)).encode(prefixed=True), F
"A server, the longest frame that it takes, and its length."
BURST = server, frames.MetadataPush(metadata=b"").encode(prefixed=True) * (0x40000 // 16)


def canceled_by_us() -> Iterator[None]:
    """SI-07."""
    engine = Engine("client", limits=SERVER)
    drained(engine)
    yield
    for _ in range(3 * SERVER.tombstones):
        engine.cancel(engine.open("request", b""))
        drained(engine)
    assert len(engine.stream_table.late.state()[0]) == SERVER.tombstones


def request_and_cancel() -> Iterator[None]:
    """FL-01: no handler ever returns."""
    engine = server()
    ids = range(2, 2 * SERVER.most_cancels + 4, 2)
    lines = [frames.RequestStream(stream=id, initial_n=1).encode(prefixed=True) for id in ids]
    cancels = [frames.Cancel(stream=id).encode(prefixed=True) for id in ids]
    heard: list[Any] = []
    yield
    for id, line, cancel in zip(ids, lines, cancels, strict=True):
        heard += engine.receive(line, 0.0)
        engine.begin(id)
        engine.consumed(0, 1)
        heard += engine.receive(cancel, 0.0)
    assert engine.closed


def answers_that_nobody_reads() -> Iterator[None]:
    """FL-06."""
    engine = server()
    lines = [frames.RequestResponse(stream=id).encode(prefixed=True) for id in range(2, 4000, 2)]
    yield
    for place, line in enumerate(lines):
        if not engine.wants_read:
            return
        engine.receive(line, 0.0)
        engine.answer([2 * place + 2], [Payload(bytes(10_000))])
    raise AssertionError("it reads on for ever")


def echoes_that_nobody_reads() -> Iterator[None]:
    """KA-02: so many wait, then reading stops."""
    engine = server()
    line = frames.Keepalive(respond=True, data=bytes(SERVER.connection_metadata_bytes)).encode(prefixed=True)
    count = 0
    yield
    while engine.wants_read:
        engine.receive(line, 0.0)
        count += 1
    assert count == SERVER.keepalive_echoes


SCRIPTS: dict[str, tuple[int, Callable[[], Iterator[None]]]] = {
    "SI-07": (SERVER.tombstones * 256, canceled_by_us),
    "FL-01": (SERVER.most_cancels * 512, request_and_cancel),
    "FL-06": (SERVER.connection_bytes, answers_that_nobody_reads),
    "KA-02": (SERVER.outbound_high_bytes, echoes_that_nobody_reads),
}
"Row to what it may cost, and how to get there."
