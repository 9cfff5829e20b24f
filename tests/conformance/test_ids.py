"""Stream ids. Rule numbers are RSocket's. R-8 to R-10."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from afflux.core.errors import Rejected
from afflux.protocols.rsocket import Engine, frames
from tests.protocols.rsocket.playbook import Playbook, requester, responder

SIDES: list[tuple[Callable[[], Playbook], int]] = [(requester, 1), (responder, 2)]


@pytest.mark.parametrize(("side", "first"), SIDES, ids=["client", "server"])
def test_R_8_ids_have_the_sides_parity_and_come_in_order(side: Callable[[], Playbook], first: int) -> None:
    engine = side().engine
    opened = [
        engine.open("request", b""),
        engine.open("fire", b""),
        engine.open("stream", b"", credit=1),
        engine.open("channel", b"", credit=1),
        engine.open("request", bytes(1_000_000)),
    ]
    assert opened == [first, first + 2, first + 4, first + 6, first + 8]


def test_R_8_the_frames_carry_them() -> None:
    play = responder()
    play.do(lambda engine: engine.open("fire", b"a")) << frames.RequestFnf(stream=2, data=b"a")
    play.do(lambda engine: engine.open("request", b"b")) << frames.RequestResponse(stream=4, data=b"b")
    play.quiet()


@pytest.mark.parametrize(("side", "first", "last"), [(requester, 1, 0x7FFFFFFF), (responder, 2, 0x7FFFFFFE)])
def test_R_9_after_the_last_id_they_wrap_and_skip_those_in_use(
    side: Callable[[], Playbook], first: int, last: int
) -> None:
    engine = side().engine
    assert engine.open("fire", b"") == first
    assert engine.open("stream", b"", credit=1) == first + 2
    assert engine.open("stream", b"", credit=1) == first + 4
    engine.stream_table.ids.restore([last, 0])
    assert [engine.open("fire", b"") for _ in range(4)] == [last, first, first + 6, first + 8]


ENDS: dict[str, Callable[[Engine], object]] = {
    "canceled": lambda engine: engine.cancel(1),
    "failed": lambda engine: engine.fail(1, Rejected("no")),
    "answered": lambda engine: engine.receive(
        frames.PayloadFrame(stream=1, next=True, complete=True).encode(prefixed=True), 0.0
    ),
    "refused": lambda engine: engine.receive(frames.ErrorFrame(stream=1, code=0x202).encode(prefixed=True), 0.0),
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("verb", ["request", "stream"])
def test_R_10_an_id_is_not_used_again(verb: str, end: str) -> None:
    engine = requester().engine
    assert engine.open(verb, b"", credit=verb == "stream") == 1  # type: ignore[arg-type]  # a verb
    ENDS[end](engine)
    assert engine.streams() == []
    assert [engine.open("fire", b"") for _ in range(100)] == [3 + 2 * n for n in range(100)]
