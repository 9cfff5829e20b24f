"""What hostile Jmux peers say, and what it brings an engine to. No tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from afflux.core.limits import Limits
from afflux.protocols.jmux import Engine, frames
from tests.hostile.hoards import SERVER, Hoard, drained
from tests.protocols.jmux.playbook import WELCOME, Reader, abort, data, more, opening, ping

OBJECT = 48
"What Python keeps beside each of many small objects in a queue."


def server(limits: Limits = SERVER, sessions: bool = True, ration: int = 128) -> Engine:
    """A server that a client has greeted; this side may send ``ration`` x 256 bytes on each session."""
    engine = Engine("server", limits=limits, sessions=sessions)
    engine.receive(frames.ClientConnectionHeader(initial_ration=ration).encode(), 0.0)
    drained(engine)
    return engine


def talking() -> Engine:
    """A server with a session."""
    engine = server()
    engine.receive(opening(b"q").encode(), 0.0)
    return engine


def greedy() -> Engine:
    """A server whose client has asked, and lets it send without end."""
    engine = server(ration=0)
    engine.receive(opening(b"q", eof=True).encode(), 0.0)
    return engine


def publish(engine: Any) -> None:
    """The next of an answer without end."""
    engine.byte_sessions.write(1, bytes(4000))


def _hoard(engine: Any) -> Iterator[bytes]:
    """Requests that are never whole, on every id, as far as the server lets them grow."""
    reader = Reader(client=False)
    reader._begun = True
    size = engine.sessions.rations.initial
    for id in range(engine.sessions.most):
        yield opening(bytes(size), id=id).encode()
    while increments := [said for said in reader.read(drained(engine)) if isinstance(said, frames.IncrementRation)]:
        for increment in increments:
            yield data(bytes(increment.size), id=increment.session).encode()


HOARD = Hoard(lambda limits: server(limits, sessions=False), _hoard)
LARGEST = server, frames.NoOperation(data=bytes(0xFFFF)).encode(), 4 + 0xFFFF
"A server, the longest message that it takes, and its length."
BURST = server, opening().encode() + more(1).encode() * 65_535


def every_ration_is_full() -> Iterator[None]:
    """FC-18."""
    engine = server()
    said = [data(bytes(1024), id=id).encode() for id in range(128) for _ in range(31)]
    openings = [opening(bytes(1024), id=id).encode() for id in range(128)]
    heard: list[Any] = []
    yield
    for line in (*openings, *said):
        heard += engine.receive(line, 0.0)
    assert engine.wants_read and not engine.closed
    assert engine.sessions.inboxes.unread == 128 * SERVER.ration_bytes


def stalled() -> Iterator[None]:
    """FC-17: each may be written to as far as its ration goes."""
    engine = server(ration=SERVER.ration_bytes // 256)
    engine.receive(b"".join(opening(id=id, eof=True).encode() for id in range(127)), 0.0)
    yield
    for stream in range(1, 128):
        engine.byte_sessions.write(stream, bytes(SERVER.ration_bytes))
        assert not engine.credit(stream)
    while engine.outgoing():
        pass
    assert not engine.queued


def both_write_before_either_reads() -> Iterator[None]:
    """FC-19."""
    client = Engine("client", limits=SERVER)
    client.receive(WELCOME.encode(), 0.0)
    client.byte_sessions.open_session(b"", finish=False)
    other = server()
    other.receive(opening().encode(), 0.0)
    drained(client)
    yield
    client.byte_sessions.write(1, bytes(SERVER.ration_bytes))
    other.byte_sessions.write(1, bytes(SERVER.ration_bytes))


def unanswered_aborts() -> Iterator[None]:
    """SI-22: every id leaks."""
    engine = Engine("client", limits=SERVER, ping_interval=0)
    engine.receive(WELCOME.encode(), 0.0)
    streams = [engine.byte_sessions.open_session(b"q", finish=True) for _ in range(128)]
    drained(engine)
    yield
    for stream in streams:
        engine.byte_sessions.abort(stream)
    drained(engine)
    engine.tick(29.0)


def pings_that_nobody_reads_about() -> Iterator[None]:
    """KA-08: so many answers wait, then reading stops."""
    engine = server(Limits.trusted(control_replies=1000))
    pings = [ping(cookie).encode() for cookie in range(2000)]
    yield
    for line in pings:
        if not engine.wants_read:
            break
        engine.receive(line, 0.0)
    assert engine.queued == 1000 * 4


def opened_and_aborted() -> Iterator[None]:
    """FL-07: no handler ever returns."""
    engine = server()
    lines = [opening(b"q", id=n % 128).encode() + abort(id=n % 128).encode() for n in range(2000)]
    heard: list[Any] = []
    yield
    for line in lines:
        heard += engine.receive(line, 0.0)
        drained(engine)
        if engine.closed:
            return
    raise AssertionError("it goes on for ever")


def opened_and_left() -> Iterator[None]:
    """FL-08."""
    engine = server()
    lines = [opening(id=id).encode() for id in range(128)]
    heard: list[Any] = []
    yield
    for line in lines:
        heard += engine.receive(line, 0.0)
    assert len(heard) == 128
