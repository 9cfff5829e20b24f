"""Payloads in one frame, as other implementations send them: as large as a payload may be, and one byte more."""

from __future__ import annotations

from typing import Any

import pytest

from afflux.core import events as ev
from afflux.core.errors import LimitExceeded
from afflux.core.limits import Limits
from afflux.core.payload import Payload
from afflux.protocols.rsocket import frames

from .playbook import Mode, error, failed, ignored, requester, responder

LIMITS = Limits.server(payload_bytes=100_000)
MOST = LIMITS.payload_bytes
ASKS: dict[Any, dict[str, int]] = {
    frames.RequestResponse: {},
    frames.RequestFnf: {},
    frames.RequestStream: {"initial_n": 1},
    frames.RequestChannel: {"initial_n": 1},
}
PAYLOADS = [Payload(bytes(MOST)), Payload(bytes(MOST - 9), b"m" * 9), Payload(b"", b"m" * MOST)]


def above(payload: Payload) -> Payload:
    if payload.metadata is None:
        return Payload(payload.data + b"x")
    return Payload(payload.data, payload.metadata + b"x")


@pytest.mark.parametrize("kind", ASKS)
@pytest.mark.parametrize("payload", PAYLOADS)
def test_a_request_in_one_frame(kind: Any, payload: Payload) -> None:
    """At the limit it is served; above it is refused as a payload, and the connection goes on."""
    play = responder(limits=LIMITS)
    more = ASKS[kind]
    play >> kind(stream=1, data=payload.data, metadata=payload.metadata, **more)
    play << (ev.Opened, {"stream": 1, "payload": payload})
    large = above(payload)
    play >> kind(stream=3, data=large.data, metadata=large.metadata, **more)
    if kind is not frames.RequestFnf:
        play << error(3, 0x202, b"payload-too-large")
    play >> kind(stream=5, data=b"next", **more) << (ev.Opened, {"stream": 5})
    play.quiet()


@pytest.mark.parametrize("payload", PAYLOADS)
@pytest.mark.parametrize("complete", [False, True])
@pytest.mark.parametrize("verb", ["request", "stream", "channel"])
def test_an_item_in_one_frame_at_a_requester(verb: Any, payload: Payload, complete: bool) -> None:
    play = requester(limits=LIMITS)
    credit = 0 if verb == "request" else 5
    for large in (False, True):
        stream = play.engine.open(verb, b"", credit=credit)
        play.collect([])
        play.sent.clear()
        item = above(payload) if large else payload
        play >> frames.PayloadFrame(stream=stream, next=True, complete=complete, data=item.data, metadata=item.metadata)
        if large:
            play << frames.Cancel(stream=stream) << failed(stream, LimitExceeded, rule="payload-too-large")
        else:
            play << (ev.Items, {"stream": stream, "payloads": [item]})
    play.quiet()
    assert not play.engine.closed


def test_answers_asked_for_together() -> None:
    play = requester(limits=LIMITS)
    first, second, third = play.engine.ask([Payload(b"")] * 3)
    play.collect([])
    play.sent.clear()
    answers = [(first, bytes(MOST)), (second, bytes(MOST + 1)), (third, b"small")]
    play >> tuple(frames.PayloadFrame(stream=id, next=True, complete=True, data=data) for id, data in answers)
    play << (ev.Items, {"stream": first})
    play << failed(second, LimitExceeded, rule="payload-too-large") << (ev.Items, {"stream": third})
    play << frames.Cancel(stream=second)
    play.quiet()


@pytest.mark.parametrize("columnar", [False, True])
def test_a_run_of_items_with_one_too_large(columnar: bool) -> None:
    """The short ways take what is small, and what is not is looked at."""
    play = requester(limits=LIMITS)
    stream = play.engine.open("stream", b"", credit=9, columnar=columnar)
    play.collect([])
    play.sent.clear()
    sizes = (1, 1, MOST, MOST + 1)
    play >> tuple(frames.PayloadFrame(stream=stream, next=True, data=bytes(size)) for size in sizes)
    came = 0
    while play.events and not isinstance(play.events[0], ev.Failed):
        event: Any = play.events.popleft()
        came += len(event.starts) if isinstance(event, ev.Block) else len(event.payloads)
    assert came == 3
    play << failed(stream, LimitExceeded, rule="payload-too-large") << frames.Cancel(stream=stream)


def test_an_item_in_one_frame_at_a_responder() -> None:
    play = responder(limits=LIMITS) >> frames.RequestChannel(stream=1, initial_n=1) << ev.Opened
    play.do(lambda engine: engine.request(1, 9)) << frames.RequestN
    play >> frames.PayloadFrame(stream=1, next=True, data=bytes(MOST)) << ev.Items
    play >> frames.PayloadFrame(stream=1, next=True, data=bytes(MOST + 1))
    play << error(1, 0x202, b"payload-too-large") << failed(1, LimitExceeded, rule="payload-too-large")
    play >> frames.PayloadFrame(stream=1, next=True, data=b"late") << ignored(0)


def test_an_item_for_a_half_that_is_over_is_no_payload() -> None:
    """It is dropped, whatever its size."""
    play = responder(limits=LIMITS) >> frames.RequestChannel(stream=1, initial_n=1, complete=True) << ev.Opened
    play >> frames.PayloadFrame(stream=1, next=True, data=bytes(MOST + 1)) << ignored(10)


@pytest.mark.parametrize("room", [0, 1])
def test_the_largest_frame(room: int, mode: Mode) -> None:
    """F itself is read, and holds a payload that is too large; F + 1 ends the connection as soon as it is announced."""
    head = (LIMITS.frame_bytes + room).to_bytes(3, "big") + (1).to_bytes(4, "big") + b"\x10\x00"
    play = responder(mode, LIMITS)
    if room:
        play >> head[:3] << ev.Closed << error(0, 0x101, b"frame-too-large")
        return
    play = responder("whole", LIMITS) >> head + bytes(LIMITS.frame_bytes - 6) << error(1, 0x202, b"payload-too-large")
    play >> frames.RequestResponse(stream=3, data=b"next") << ev.Opened
