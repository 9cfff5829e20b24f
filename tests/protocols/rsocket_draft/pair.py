"""Two engines of the draft on one link, and what their applications hear."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from afflux.core import events as ev
from afflux.core.errors import Rejected
from afflux.core.limits import Limits
from afflux.protocols.family.sessions import Sessions
from afflux.protocols.rsocket_draft import Engine, payloads
from afflux.protocols.rsocket_draft.entries import Entry
from afflux.protocols.rsocket_draft.frames import Setup, decode
from afflux.protocols.rsocket_draft.payloads import Session, Times

TOKEN = bytes(range(16))
LIMITS = Limits.server()
KEEPALIVE = payloads.keepalive_entry(Times(500, 2500))
RESUME = payloads.resume_entry(Session(TOKEN, None), ignorable=False)


def client(*entries: Entry, ack: bool = False, **options: Any) -> Engine:
    """A client that offers these extensions."""
    return Engine("client", setup=Setup(ack=ack, extensions=entries), **{"limits": LIMITS} | options)


def server(**options: Any) -> Engine:
    return Engine("server", **{"limits": LIMITS} | options)


def frames_of(data: bytes) -> list[Any]:
    """The frames of some bytes."""
    found, at = [], 0
    while at < len(data):
        end = at + 3 + int.from_bytes(data[at : at + 3], "big")
        found.append(decode(data, at + 3, end))
        at = end
    return found


def wired(*frames: Any) -> bytes:
    """Frames as they stand on a byte stream."""
    return b"".join(frame.encode(prefixed=True) for frame in frames)


def said(engine: Engine) -> bytes:
    """Everything that an engine has to say now."""
    data = bytearray()
    while chunk := engine.outgoing():
        data += chunk
    return bytes(data)


def exchange(a: Engine, b: Engine, now: float = 0.0) -> tuple[list[Any], list[Any]]:
    """Pass bytes to and fro until both are silent; return what each application hears, ignored frames left out."""
    heard: tuple[list[Any], list[Any]] = ([], [])
    for _ in range(50):
        to_b, to_a = said(a), said(b)
        if not to_b and not to_a:
            break
        heard[1].extend(b.receive(to_b, now))
        heard[0].extend(a.receive(to_a, now))
    return plain(heard[0]), plain(heard[1])


def plain(events: Iterable[Any]) -> list[Any]:
    return [event for event in ev.singly(events) if not isinstance(event, ev.Ignored)]


def joined(*entries: Entry, **options: Any) -> tuple[Engine, Engine]:
    """A client and a server that are established; ``sessions``, ``lease`` and such are the server's."""
    a, b = client(*entries), server(**options)
    greet(a, b)
    return a, b


def greet(a: Engine, b: Engine) -> None:
    """Establish both ends; without SETUP_OK any frame of the server does it."""
    exchange(a, b)
    b.push(b"")
    exchange(a, b)


def resumed(a: Engine, sessions: Sessions, now: float, **options: Any) -> tuple[Engine, list[Any], list[Any]]:
    """Resume a suspended client on a new transport; return the server's engine, and what both hear."""
    assert a.resumption is not None
    heard_a = list(a.resumption.reconnect(now))
    newcomer = server(sessions=sessions, now=now, **options)
    heard_b = newcomer.receive(said(a), now)
    asked = [event for event in heard_b if isinstance(event, ev.Resuming)]
    b = newcomer
    if asked:
        session = asked[0].session
        assert newcomer.resumption is not None
        try:
            heard_b = session.resumption.resume(asked[0].request, now)
        except Rejected as refusal:
            heard_b = newcomer.refuse(str(refusal), now)
        else:
            rest = newcomer.resumption.hand_over()
            b = session
            heard_b += b.receive(rest, now)
    more_a, more_b = exchange(a, b, now)
    return b, plain(heard_a) + more_a, plain(heard_b) + more_b
