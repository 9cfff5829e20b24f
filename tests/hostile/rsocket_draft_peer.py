"""What hostile peers of the extensible draft say, and what it brings an engine to. No tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from afflux.core.limits import Limits
from afflux.core.payload import Payload
from afflux.protocols.rsocket_draft import Engine, Entry, ExtendedPayload, frames, payloads
from tests.hostile.hoards import SERVER, Hoard, drained
from tests.protocols.rsocket_draft.wire import SETUP

H, F = SERVER.first_frame_bytes, SERVER.frame_bytes
HELLO = SETUP.encode(prefixed=True)
TOO_LONG = (F + 1).to_bytes(3, "big")
GRANT = frames.RequestN(stream=1, n=1).encode(prefixed=True)
KNOWN = ("own",)
"What the application understands."


def wired(*said: Any) -> bytes:
    """Frames as they stand on a byte stream."""
    return b"".join(frame.encode(prefixed=True) for frame in said)


def stranger() -> Engine:
    """A server that nobody has spoken to."""
    return Engine("server", limits=SERVER)


def server(limits: Limits = SERVER) -> Engine:
    """A server that has accepted its client."""
    engine = Engine("server", limits=limits, extensions=KNOWN)
    engine.receive(HELLO, 0.0)
    return engine


def serving(n: int = 1) -> Engine:
    """A server with a stream."""
    engine = server()
    engine.receive(wired(frames.RequestStream(stream=1, initial_n=n)), 0.0)
    return engine


def greedy() -> Engine:
    """A server whose client has asked for all that a number can say."""
    return serving(0x7FFFFFFF)


def publish(engine: Any) -> None:
    """The next of many items."""
    engine.send(1, [ExtendedPayload(bytes(3000), entries=(Entry("own", bytes(1000), True),))])


def busy() -> Engine:
    """A server whose handlers all run."""
    engine = server()
    for line in more_requests(SERVER.streams):
        engine.receive(line, 0.0)
    return engine


def more_requests(count: int) -> list[bytes]:
    """As many requests, with ids of their own."""
    last = 2 * SERVER.streams if count != SERVER.streams else 0
    return [wired(frames.RequestStream(stream=last + 2 * n + 1, initial_n=1)) for n in range(count)]


def fires() -> list[bytes]:
    """More than a connection may hold."""
    return [wired(frames.RequestFnf(stream=2 * n + 1)) for n in range(20_000)]


def large_setup(**fields: Any) -> bytes:
    """A SETUP as long as a first frame may be."""
    bare = frames.Setup(data=b"x", **fields).encoded_size - 1
    return wired(frames.Setup(data=bytes(H - bare), **fields))


def raw(type: int, flags: int, stream: int, body: bytes) -> bytes:
    """Any frame."""
    return (
        (6 + len(body)).to_bytes(3, "big") + stream.to_bytes(4, "big") + (type << 10 | flags).to_bytes(2, "big") + body
    )


FIRST_FRAMES = {
    "HS-02": wired(frames.Keepalive(respond=True, data=bytes(H - 14))),
    "HS-03": large_setup(stream=5),
}
"Row to what a stranger says."
FRAMES = {
    "FR-11": raw(0x30, 0x200, 0, bytes(F - 6)),
    "FR-12": raw(0x30, 0, 0, bytes(F - 6)),
    "EX-01": raw(0x04, 0x200, 1, b"\x02own\x40\xff\xff\xff" + bytes(F - 20)),
    "EX-02": wired(frames.RequestResponse(stream=1, extensions=(Entry("must"),), data=bytes(F - 20))),
    "EX-03": wired(frames.RequestResponse(stream=1, extensions=(Entry("own", bytes(F - 30), True),))),
    "KA-01": wired(frames.ExtChain(extensions=(payloads.ping_entry(bytes(1000), respond=True),))),
    "KA-03": wired(frames.ExtChain(extensions=(payloads.ping_entry(bytes(F - 20), respond=True),))),
}
"Row to what a client says."


def _client(limits: Limits) -> Engine:
    engine = Engine("client", limits=limits, extensions=KNOWN)
    engine.open("stream", b"", credit=1 << 30)
    engine.receive(wired(frames.MetadataPush(stream=0)), 0.0)
    drained(engine)
    return engine


def _items(engine: Any) -> Iterator[bytes]:
    """Items whose entries are much longer than their data, alike and not."""
    number = 0
    while True:
        number += 1
        own = Entry("own", b"%02000d" % (number // 3), True)
        yield wired(frames.PayloadFrame(stream=1, next=True, extensions=(own,), data=bytes(number % 5)))


HOARD = Hoard(_client, _items)
LARGEST = server, wired(frames.RequestFnf(stream=1, data=bytes(F - 6))), F
"A server, the longest frame that it takes, and its length."
BURST = server, frames.MetadataPush(metadata=b"", stream=0).encode(prefixed=True) * (0x40000 // 9)


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
    ids = range(1, 2 * SERVER.most_cancels + 3, 2)
    lines = [wired(frames.RequestStream(stream=id, initial_n=1)) for id in ids]
    cancels = [wired(frames.Cancel(stream=id)) for id in ids]
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
    lines = [wired(frames.RequestResponse(stream=id)) for id in range(1, 4000, 2)]
    yield
    for place, line in enumerate(lines):
        if not engine.wants_read:
            return
        engine.receive(line, 0.0)
        engine.answer([2 * place + 1], [Payload(bytes(10_000))])
    raise AssertionError("it reads on for ever")


def echoes_that_nobody_reads() -> Iterator[None]:
    """KA-02: so many wait, then reading stops."""
    engine = server()
    line = wired(frames.ExtChain(extensions=(payloads.ping_entry(bytes(1000), respond=True),)))
    yield
    while engine.wants_read:
        engine.receive(line, 0.0)


def skipped_entries() -> Iterator[None]:
    """EX-04: the application keeps nothing of them."""
    engine = server()
    line = wired(frames.ExtChain(extensions=(Entry("x", bytes(1000), True),)))
    heard: list[Any] = []
    yield
    while not engine.closed:
        heard += engine.receive(line, 0.0)


SCRIPTS: dict[str, tuple[int, Callable[[], Iterator[None]]]] = {
    "SI-07": (SERVER.tombstones * 256, canceled_by_us),
    "EX-04": (SERVER.connection_bytes, skipped_entries),
    "FL-01": (SERVER.most_cancels * 512, request_and_cancel),
    "FL-06": (SERVER.connection_bytes, answers_that_nobody_reads),
    "KA-02": (SERVER.outbound_high_bytes, echoes_that_nobody_reads),
}
"Row to what it may cost, and how to get there."
