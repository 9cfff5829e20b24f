"""Frames for streams that are over: what may be under way costs nothing, however many streams end at once."""

from __future__ import annotations

from afflux.core.limits import Limits
from afflux.protocols.rsocket.late import LateFrames

LIMITS = Limits.server(tombstones=2)


def test_what_was_under_way_when_many_were_given_up() -> None:
    late = LateFrames(LIMITS)
    for id in range(1, 11, 2):
        late.given_up(id, 3)
    prices = [late.price(id, "PAYLOAD") for id in range(1, 11, 2) for _ in range(3)]
    assert prices == [0] * 15
    assert late.price(1, "PAYLOAD") == late.price(9, "PAYLOAD") == 1


def test_what_crosses_when_many_end() -> None:
    late = LateFrames(LIMITS)
    for id in range(1, 11, 2):
        late.ended(id, may_fail=False)
    assert late.price(9, "PAYLOAD") == 10
    assert [late.price(id, frame) for id in range(1, 11, 2) for frame in ("REQUEST_N", "CANCEL")] == [0] * 10
    assert late.price(1, "CANCEL") == late.price(1, "REQUEST_N") == 1
    assert late.price(9, "CANCEL") == 0


def test_cancels_without_end() -> None:
    late = LateFrames(LIMITS)
    for id in (1, 3):
        late.ended(id, may_fail=False)
    assert [late.price(3, "CANCEL") for _ in range(17)] == [0] * 16 + [1]


def test_what_is_forgotten_is_bounded() -> None:
    late = LateFrames(LIMITS)
    for id in range(1, 2001, 2):
        late.given_up(id, LIMITS.cancel_race_frames)
    free = LIMITS.tombstones * LIMITS.cancel_race_frames
    assert [late.price(1, "PAYLOAD") for _ in range(free + 1)] == [0] * free + [1]


def test_time_forgets() -> None:
    late = LateFrames(LIMITS)
    for id in range(1, 11, 2):
        late.given_up(id, 3)
    late.look(0.0, 30.0)
    late.look(15.0, 30.0)
    assert late.price(1, "PAYLOAD") == late.price(9, "PAYLOAD") == 0
    late.look(30.0, 30.0)
    assert late.price(1, "PAYLOAD") == late.price(9, "PAYLOAD") == 1


def test_a_session_goes_on() -> None:
    late, resumed = LateFrames(LIMITS), LateFrames(LIMITS)
    for id in range(1, 7, 2):
        late.given_up(id, 1)
    resumed.restore(late.state())
    assert [resumed.price(id, "PAYLOAD") for id in range(1, 7, 2)] == [0, 0, 0]
    assert resumed.price(1, "PAYLOAD") == 1
