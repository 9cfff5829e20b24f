"""What frames for streams that are over cost: which races are legal, and how many of them."""

from __future__ import annotations

from typing import Any

import pytest

from afflux.core import events as ev
from afflux.core.errors import ApplicationError, LimitExceeded
from afflux.core.limits import Limits
from afflux.protocols.family.late import LateFrame, LateFrames
from afflux.protocols.rsocket import frames

from .playbook import Mode, Playbook, error, failed, ignored, requester, responder

LIMITS = Limits.tiny(tombstones=4, fragments=3)
FRAMES: tuple[LateFrame, ...] = ("PAYLOAD", "REQUEST_N", "CANCEL", "ERROR")


def part(stream: int, follows: bool = True, complete: bool = False, data: bytes = b"x" * 60) -> frames.PayloadFrame:
    return frames.PayloadFrame(stream=stream, next=True, follows=follows, complete=complete, data=data)


@pytest.fixture
def late() -> LateFrames:
    return LateFrames(LIMITS)


# -- prices -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("frame", FRAMES)
def test_a_stream_that_never_was(late: LateFrames, frame: LateFrame) -> None:
    assert [late.price(1, frame) for _ in range(3)] == [1, 1, 1]


def test_what_this_side_gave_up_has_a_number_of_frames_free(late: LateFrames) -> None:
    """SI-07."""
    late.given_up(1, 2)
    assert [late.price(1, "REQUEST_N") for _ in range(9)] == [0] * 9
    assert [late.price(1, frame) for frame in ("PAYLOAD", "ERROR", "PAYLOAD", "CANCEL")] == [0, 0, 1, 1]


def test_what_the_peer_ended_has_no_items(late: LateFrames) -> None:
    """SI-10: a cancel may cross the end, an item may not."""
    late.ended(1, may_fail=False)
    assert [late.price(1, frame) for frame in FRAMES] == [10, 0, 0, 10]
    assert [late.price(1, "CANCEL") for _ in range(16)] == [0] * 15 + [1]


def test_one_error_may_cross_the_end_of_a_channel(late: LateFrames) -> None:
    late.ended(1, may_fail=True)
    assert [late.price(1, "ERROR") for _ in range(3)] == [0, 10, 10]
    late.ended(3, may_fail=True)
    assert [late.price(3, "CANCEL") for _ in range(18)] == [0] * 17 + [1]
    assert late.price(3, "ERROR") == 10


def test_cancels_may_cross_as_many_answers_as_there_were(late: LateFrames) -> None:
    late.answered()
    late.answered(2)
    assert [late.price(1, "CANCEL") for _ in range(4)] == [0, 0, 0, 1]
    late.answered(100)
    assert [late.price(1, "CANCEL") for _ in range(5)] == [0, 0, 0, 0, 1]


# -- fragments ----------------------------------------------------------------------------------------------


def test_the_fragments_of_an_item_count_as_its_last(late: LateFrames) -> None:
    late.expect_parts()
    late.given_up(1, 2)
    assert [late.price(1, "PAYLOAD", part=True) for _ in range(3)] == [0, 0, 0]
    assert [late.price(1, "PAYLOAD") for _ in range(3)] == [0, 0, 1]


def test_fragments_beyond_those_of_one_payload_count_each(late: LateFrames) -> None:
    late.expect_parts()
    late.given_up(1, 2)
    assert [late.price(1, "PAYLOAD", part=True) for _ in range(6)] == [0, 0, 0, 0, 0, 1]


def test_fragments_for_what_is_forgotten_count_as_their_last() -> None:
    late = LateFrames(Limits.tiny(tombstones=1, fragments=3))
    late.expect_parts()
    late.given_up(1, 2)
    late.given_up(3, 0)
    assert [late.price(1, "PAYLOAD", part=True) for _ in range(3)] == [0, 0, 0]
    assert [late.price(1, "PAYLOAD") for _ in range(3)] == [0, 0, 1]


def test_fragments_are_free_only_where_this_side_gave_up(late: LateFrames) -> None:
    late.expect_parts()
    late.ended(1, may_fail=True)
    assert [late.price(id, "PAYLOAD", part=True) for id in (1, 3)] == [10, 1]
    assert [late.take_part() for _ in range(4)] == [True, True, True, False]


def test_all_streams_share_what_fragments_may_be_under_way(late: LateFrames) -> None:
    assert not late.take_part()
    late.expect_parts()
    late.expect_parts()
    assert [late.take_part() for _ in range(4)] == [True, True, True, False]
    late.expect_parts()
    assert late.take_part()


# -- what is forgotten, and what is not ---------------------------------------------------------------------


def test_an_id_that_is_used_again_has_no_past(late: LateFrames) -> None:
    late.given_up(1, 9)
    late.ended(3, may_fail=True)
    assert [late.remembers(id) for id in (1, 3, 5)] == [True, True, False]
    for id in (1, 3, 5):
        late.forget(id)
    assert [late.remembers(id) for id in (1, 3, 5)] == [False, False, False]
    assert [late.price(id, frame) for id in (1, 3) for frame in FRAMES] == [1] * 8


def test_a_lifetime_without_endings_forgets_them(late: LateFrames) -> None:
    late.given_up(1, 9)
    late.ended(3, may_fail=False)
    late.forget_ended(10.0, 60)
    late.forget_ended(69.9, 60)
    assert [late.price(1, "PAYLOAD"), late.price(3, "CANCEL")] == [0, 0]
    late.forget_ended(70.0, 60)
    assert [late.price(1, "PAYLOAD"), late.price(3, "CANCEL")] == [1, 1]


def test_a_state() -> None:
    late, other = LateFrames(LIMITS), LateFrames(LIMITS)
    late.given_up(1, 1)
    late.ended(3, may_fail=True)
    late.answered()
    other.restore(late.state())
    assert [other.price(1, "PAYLOAD") for _ in range(2)] == [0, 1]
    assert [other.price(3, "ERROR") for _ in range(2)] == [0, 10]
    assert [other.price(5, "CANCEL") for _ in range(2)] == [0, 1]
    assert [other.take_part() for _ in range(4)] == [True, True, True, False]  # not known: the most there may be


# -- many at once -------------------------------------------------------------------------------------------

FEW = Limits.server(tombstones=2)


def test_what_was_under_way_when_many_were_given_up() -> None:
    late = LateFrames(FEW)
    for id in range(1, 11, 2):
        late.given_up(id, 3)
    assert [late.price(id, "PAYLOAD") for id in range(1, 11, 2) for _ in range(3)] == [0] * 15
    assert late.price(1, "PAYLOAD") == late.price(9, "PAYLOAD") == 1


def test_what_crosses_when_many_end() -> None:
    late = LateFrames(FEW)
    for id in range(1, 11, 2):
        late.ended(id, may_fail=False)
    assert late.price(9, "PAYLOAD") == 10
    assert [late.price(id, frame) for id in range(1, 11, 2) for frame in ("REQUEST_N", "CANCEL")] == [0] * 10
    assert late.price(1, "CANCEL") == late.price(1, "REQUEST_N") == 1
    assert late.price(9, "CANCEL") == 0


def test_what_is_forgotten_is_bounded() -> None:
    late = LateFrames(FEW)
    for id in range(1, 2001, 2):
        late.given_up(id, FEW.cancel_race_frames)
    free = FEW.tombstones * FEW.cancel_race_frames
    assert [late.price(1, "PAYLOAD") for _ in range(free + 1)] == [0] * free + [1]


def test_time_forgets_what_was_forgotten() -> None:
    late = LateFrames(FEW)
    for id in range(1, 11, 2):
        late.given_up(id, 3)
    late.forget_ended(0.0, 30.0)
    late.forget_ended(30.0, 30.0)
    assert late.price(1, "PAYLOAD") == late.price(9, "PAYLOAD") == 1


def test_a_session_goes_on_with_what_was_forgotten() -> None:
    late, resumed = LateFrames(FEW), LateFrames(FEW)
    for id in range(1, 7, 2):
        late.given_up(id, 1)
    resumed.restore(late.state())
    assert [resumed.price(id, "PAYLOAD") for id in range(1, 7, 2)] == [0, 0, 0]
    assert resumed.price(1, "PAYLOAD") == 1


# -- in conversations ---------------------------------------------------------------------------------------


def channel(mode: Mode, limits: Limits | None = None) -> Playbook:
    """A server whose client has opened a channel, and may send three more items."""
    play = responder(mode, limits) >> frames.RequestChannel(stream=1, initial_n=3, data=b"go") << ev.Opened
    return play.do(lambda engine: engine.request(1, 4)) << frames.RequestN


def test_a_fragment_for_a_half_that_is_not_wanted(mode: Mode) -> None:
    """SI-07: three items of two fragments each, and then nothing is free; the other half goes on."""
    limits = Limits.server().replace(fragments=3, cancel_race_frames=3)
    play = channel(mode, limits).do(lambda engine: engine.cancel(1)) << frames.Cancel(stream=1)
    for _ in range(3):
        play >> part(1) << ignored(0, "SI-07")
        play >> part(1, follows=False) << ignored(0, "SI-07")
    play >> part(1) << ignored(10, "R-31")
    play >> part(1, follows=False) << ignored(10, "R-31")
    play.do(lambda engine: engine.send(1, [b"a"])) << frames.PayloadFrame(stream=1, next=True, data=b"a")


def test_more_fragments_than_one_payload_has_count_each(mode: Mode) -> None:
    limits = Limits.server().replace(fragments=3, cancel_race_frames=3)
    play = channel(mode, limits).do(lambda engine: engine.cancel(1)) << frames.Cancel(stream=1)
    for _ in range(6):
        play >> part(1) << ignored(0, "SI-07")
    play >> part(1) << ignored(10, "R-31")


def test_a_fragment_after_the_peers_own_end(mode: Mode) -> None:
    play = channel(mode) >> frames.PayloadFrame(stream=1, complete=True, data=b"") << ev.Completed(1)
    play >> part(1) << ignored(10, "R-31")


def test_fragments_of_a_stream_that_was_given_up(mode: Mode) -> None:
    play = requester(mode).do(lambda engine: engine.open("stream", b"", credit=1)) << frames.RequestStream
    play.do(lambda engine: engine.cancel(1)) << frames.Cancel(stream=1)
    for _ in range(20):
        play >> part(1) << ignored(0, "SI-07")
    play >> part(1, follows=False) << ignored(0, "SI-07")


def test_an_error_crosses_the_end_of_a_channel(mode: Mode) -> None:
    """The responder has completed its half, and fails; meanwhile the requester completes as well."""
    play = requester(mode).do(lambda engine: engine.open("channel", b"", credit=1)) << frames.RequestChannel
    play >> frames.PayloadFrame(stream=1, complete=True, data=b"") << ev.Completed(1)
    play.do(lambda engine: engine.complete(1)) << frames.PayloadFrame(stream=1, complete=True, data=b"")
    failure = frames.ErrorFrame(stream=1, code=0x201, data=b"")
    play >> failure << ignored(0, "SI-07")
    play >> failure << ignored(10, "SI-10")


@pytest.mark.parametrize("verb", ["stream", "channel"])
def test_no_error_follows_one(mode: Mode, verb: str) -> None:
    play = requester(mode).do(lambda engine: engine.open(verb, b"", credit=1))  # type: ignore[arg-type]
    play.sent.clear()
    failure = frames.ErrorFrame(stream=1, code=0x201, data=b"")
    play >> failure << (ev.Failed, {"error.type": ApplicationError})
    play >> failure << ignored(10, "SI-10")


def test_no_error_follows_the_end_of_a_stream(mode: Mode) -> None:
    play = requester(mode).do(lambda engine: engine.open("stream", b"", credit=1)) << frames.RequestStream
    play >> frames.PayloadFrame(stream=1, complete=True, data=b"") << ev.Completed(1)
    play >> frames.ErrorFrame(stream=1, code=0x201, data=b"") << ignored(10, "SI-10")


def test_no_error_follows_the_end_of_what_was_served(mode: Mode) -> None:
    """A requester that has completed its half has nothing to fail."""
    play = channel(mode) >> frames.PayloadFrame(stream=1, complete=True, data=b"") << ev.Completed(1)
    play.do(lambda engine: engine.complete(1)) << frames.PayloadFrame(stream=1, complete=True, data=b"")
    play >> frames.ErrorFrame(stream=1, code=0x201, data=b"") << ignored(10, "SI-10")


def test_a_failure_of_this_side_is_the_last_word(mode: Mode) -> None:
    play = channel(mode).do(lambda engine: engine.fail(1, ApplicationError(message="no"))) << error(1, 0x201, b"no")
    play >> part(1) << ignored(0, "SI-07")
    play >> frames.ErrorFrame(stream=1, code=0x201, data=b"") << ignored(0, "SI-07")


@pytest.mark.parametrize(
    "kind", [frames.RequestResponse, frames.RequestFnf, frames.RequestStream, frames.RequestChannel]
)
def test_the_tail_of_a_refused_request_is_swallowed_to_its_end(kind: Any) -> None:
    """FG-01: it costs nothing however many fragments it has, and opens nothing. Without progress they cost (FG-02)."""
    limits = Limits.tiny().replace(fragments=4)
    play = responder(limits=limits)
    more = {"initial_n": 3} if kind in (frames.RequestStream, frames.RequestChannel) else {}
    play >> kind(stream=1, follows=True, data=bytes(64), **more)
    play >> (part(1),) * 4
    if kind is not frames.RequestFnf:
        play << error(1, 0x202, b"too-many-fragments")
    for _ in range(1000):
        play >> part(1) << ignored(0)
    for _ in range(4):
        play >> part(1, data=b"s") << ignored(0)
    play >> part(1, data=b"s") << ignored(1)
    play >> part(1, follows=False) << ignored(0) >> part(1, follows=False) << ignored(1)
    play >> frames.RequestResponse(stream=3) << ev.Opened


@pytest.mark.parametrize("end", [frames.Cancel(stream=1), frames.ErrorFrame(stream=1, code=0x203, data=b"")])
def test_the_tail_of_a_refused_request_ends_with_a_cancel(end: Any) -> None:
    """FG-01."""
    play = responder(limits=Limits.tiny().replace(fragments=2))
    play >> frames.RequestResponse(stream=1, follows=True, data=bytes(64)) >> (part(1),) * 2 << error(1, 0x202)
    play >> end << ignored(0) >> part(1) << ignored(0) >> part(1) << ignored(1)


def test_the_tail_of_a_refused_answer_is_swallowed_to_its_end() -> None:
    """FG-01 at a requester: CANCEL, and one error."""
    play = requester(limits=Limits.tiny().replace(fragments=4))
    play.do(lambda engine: engine.open("stream", b"", credit=1)) << frames.RequestStream
    play >> (part(1),) * 5 << frames.Cancel(stream=1) << failed(1, LimitExceeded, rule="too-many-fragments")
    for _ in range(1000):
        play >> part(1) << ignored(0)
    play >> part(1, follows=False) << ignored(0)
