"""What a hostile peer says to an engine, for the cases of this package."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from afflux.core import events as ev
from afflux.core.limits import Limits
from afflux.protocols.rsocket import Engine, frames
from tests.protocols.rsocket.playbook import Playbook, requester, responder

P = frames.PayloadFrame
N = frames.RequestN
TINY = Limits.tiny()
SERVER = Limits.server()


def item(stream: int, data: bytes = b"x", complete: bool = False) -> P:
    return P(stream=stream, next=True, complete=complete, data=data)


def part(stream: int, size: int = 60) -> P:
    return P(stream=stream, next=True, follows=True, data=bytes(size))


def asked(verb: str, id: int = 1, n: int = 5, **fields: Any) -> frames.StreamFrame:
    """A request frame."""
    kinds = {"request": frames.RequestResponse, "fire": frames.RequestFnf}
    if verb in kinds:
        return kinds[verb](stream=id, data=b"", **fields)
    kind = frames.RequestStream if verb == "stream" else frames.RequestChannel
    return kind(stream=id, initial_n=n, data=b"", **fields)


def streaming(credit: int, limits: Limits | None = None, verb: ev.Verb = "stream") -> Playbook:
    play = requester(limits=limits).do(lambda engine: engine.open(verb, b"", credit=credit))
    return play << frames.StreamFrame


def serving(verb: str = "stream", limits: Limits | None = None, n: int = 5) -> Playbook:
    return responder(limits=limits) >> asked(verb, n=n) << ev.Opened


def raw(hex: str) -> bytes:
    """A frame in hexadecimal, without its prefix."""
    data = bytes.fromhex(hex)
    return len(data).to_bytes(3, "big") + data


def carried(sender: Engine, receiver: Engine) -> list[ev.Event]:
    events: list[ev.Event] = []
    while chunk := sender.outgoing():
        events += receiver.receive(chunk, 0.0)
    return events


def cut(data: bytes) -> Iterator[bytes]:
    while data:
        end = 3 + int.from_bytes(data[:3], "big")
        yield data[:end]
        data = data[end:]
