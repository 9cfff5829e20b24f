"""Sessions of Limit-Stream: steps of both sides, choices, ends, aborts, what crosses them, credit."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from afflux.core import events as ev
from afflux.core.errors import (
    ApplicationError,
    ConnectionClosed,
    Error,
    LimitExceeded,
    LocalProtocolError,
    RemoteProtocolError,
)
from afflux.core.limits import Limits
from afflux.core.payload import Payload
from afflux.protocols.limit import Choice, Opening, Plain, Turn, Unchecked, Value
from afflux.protocols.limit.frames import Choose, End, LimitFrame
from tests.examples import share

from .playbook import (
    DONE,
    Mode,
    Sum,
    choose,
    client,
    closed,
    error,
    failed,
    ignored,
    item,
    number,
    server,
    setup,
    summing,
)

TINY = Limits.tiny()


def free(role: str, mode: Mode = "whole", credit: int = 99, **options: Any) -> Any:
    """An end of a session without checks."""
    unchecked = lambda name: Unchecked()  # noqa: E731
    if role == "client":
        play = client(mode, channels=unchecked, **options)
        return play.do(lambda engine: engine.open("channel", Opening("x"), credit=credit)) << setup(b"x")
    play = server(mode, channels=unchecked, **options) >> setup(b"x") << ev.Established << ev.Opened
    return play.do(lambda engine: engine.request(1, credit))


# -- steps of the application -------------------------------------------------------------------------------------


def test_R_27_the_first_choice_is_left_out_where_it_is_implied(mode: Mode) -> None:
    play = summing("client", mode)
    play.do(lambda engine: engine.send(1, [Value(1), Choice(0)])) << number(1, 1)
    play.quiet()
    play.do(lambda engine: engine.send(1, [Value(2), Choice(1, b"m")])) << number(3, 2) << choose(5, 1, b"m")


def test_R_27_the_first_choice_may_be_sent(mode: Mode) -> None:
    """D-5."""
    play = summing("client", mode, explicit_first_choice=True)
    play.do(lambda engine: engine.send(1, [Value(1), Choice(0), Value(2)]))
    play << number(1, 1) << choose(3, 0) << number(5, 2)


@pytest.mark.parametrize(
    "steps",
    [[Choice(0)], [Value(1), Value(2)], [Value(1), Choice(2)], [Value(1), Choice(1), Value(1)], [DONE], [Value("x")]],
)
def test_SI_25_a_step_that_is_not_legal_is_not_sent(steps: list[Any]) -> None:
    """R-31: and neither is a value of another type. The session goes on."""
    play = summing("client")
    with pytest.raises((Error, TypeError)):
        play.engine.send(1, steps)
    legal = len(steps) - 1
    play.collect([])
    assert len(play.sent) == legal
    play.forget()
    play.do(lambda engine: engine.fail(1, ApplicationError(message="enough"))) << error(1, 0x201, b"enough")


def test_SI_25_it_is_not_this_sides_turn() -> None:
    play = summing("server")
    for payload in (Value(3), b"\x03", Choice(0)):
        with pytest.raises(LocalProtocolError, match="expects number") as caught:
            play.engine.send(1, [payload])
        assert (caught.value.rule, caught.value.stream) == ("SI-25", 1)
    play.quiet()
    play >> number(1, 1) << ev.Items


def test_metadata_goes_with_a_message(mode: Mode) -> None:
    play = summing("client", mode)
    play.do(lambda engine: engine.send(1, [Value(1, b"m"), Choice(1), Payload(DONE, b"n")]))
    play << item(1, b"\x01", b"m") << choose(3, 1) << item(5, DONE, b"n")
    play = summing("server", mode) >> item(1, b"\x01", b"m") << ev.Items(1, [Payload(b"\x01", b"m")])
    play >> choose(3, 1, b"n") << ev.Items(1, [Choice(1, b"n")])


def test_a_value_has_its_bytes_and_what_they_mean(mode: Mode) -> None:
    play = summing("server", mode) >> number(1, 300)
    (event,) = play.events
    (value,) = event.payloads
    assert (value.data, value.value, value.metadata) == (b"\xcd\x01\x2c", 300, None)


def test_complete_states_that_nothing_of_this_side_is_missing() -> None:
    play = summing("client")
    with pytest.raises(LocalProtocolError, match="expects number"):
        play.engine.complete(1)
    play.do(lambda engine: engine.send(1, [Value(1), Choice(1), Value(None)], complete=True)).forget()
    play.do(lambda engine: engine.complete(1)).quiet()
    with pytest.raises(LocalProtocolError, match="complete"):
        play.engine.send(1, [Value(4)])
    play >> number(8, 3) << ev.Items << ev.Completed(1)
    play.quiet()


def test_R_30_a_value_fits_one_frame() -> None:
    """D-8."""
    most = TINY.frame_bytes - 6
    play = free("client", limits=TINY)
    play.do(lambda engine: engine.send(1, [bytes(most)])) << item(1, bytes(most))
    with pytest.raises(LimitExceeded, match="at most 65536 fit") as caught:
        play.engine.send(1, [bytes(most + 1)])
    assert caught.value.rule == "frame_bytes"
    with pytest.raises(LimitExceeded):
        play.engine.send(1, [Payload(b"x", bytes(most - 3))])
    play.do(lambda engine: engine.send(1, [Payload(b"", bytes(most - 3))])) << item(3, b"", bytes(most - 3))
    play.do(lambda engine: engine.send(1, [b"on"])) << item(5, b"on")


def test_R_30_a_value_whose_size_is_known_too_late() -> None:
    """The type has taken the step: the session can not go on."""
    play = free("client", limits=TINY)
    with pytest.raises(LimitExceeded):
        play.engine.send(1, [Value(bytes(TINY.frame_bytes))])
    play.collect([])
    play << error(1, 0x201, b"application error")
    assert play.engine.streams() == []


def test_calls_about_a_session_that_is_over_do_nothing() -> None:
    play = summing("client")
    play.do(lambda engine: engine.fail(1, ValueError())) << error(1, 0x201)
    for call in (
        lambda engine: engine.send(1, [Value(1)], complete=True),
        lambda engine: engine.complete(1),
        lambda engine: engine.fail(1, ValueError()),
        lambda engine: engine.request(1, 5),
        lambda engine: engine.cancel(1),
    ):
        play.do(call).quiet()
    assert play.engine.credit(1) == 0


# -- steps of the peer --------------------------------------------------------------------------------------------


def test_R_28_an_explicit_first_choice_is_accepted(mode: Mode) -> None:
    play = summing("server", mode)
    play >> (number(1, 1), choose(3, 0), number(5, 2))
    play.events.clear() if mode == "bytewise" else play << ev.Items(1, [Payload(b"\1"), Choice(0), Payload(b"\2")])
    play >> (number(7, 3), choose(9, 1), item(11, DONE))
    play.forget()
    play.do(lambda engine: engine.send(1, [Value(6)])) << number(14, 6) << End()


@pytest.mark.parametrize(
    "frame",
    [
        item(1, DONE),
        item(1, b""),
        item(1, b"\x01\x01"),
        choose(1, 0),
        Choose(stream=1, data=b""),
        Choose(stream=1, data=b"\xff"),
        Choose(stream=1, data=b"\x90"),
        End(),
    ],
)
def test_R_32_SI_25_a_step_of_the_peer_that_is_not_legal(mode: Mode, frame: LimitFrame) -> None:
    play = summing("server", mode) >> frame
    (gone, over) = play.events
    assert isinstance(gone.error, RemoteProtocolError)
    assert over.error.rule in ("R-32", "SI-25")
    play.events.clear()
    play << error(0, 0x101)


def test_SI_25_a_branch_that_there_is_not(mode: Mode) -> None:
    play = summing("server", mode) >> number(1, 1) << ev.Items
    play >> choose(3, 2) << ev.Failed << closed(RemoteProtocolError, rule="SI-25") << error(0, 0x101)


@pytest.mark.parametrize("frame", [number(2, 1), choose(2, 0), End()], ids=lambda frame: frame.NAME)
def test_SI_25_a_step_of_the_peer_in_this_sides_turn(mode: Mode, frame: LimitFrame) -> None:
    play = summing("client", mode) >> frame << ev.Failed << closed(RemoteProtocolError, rule="SI-25")
    play << error(0, 0x101, b"the session type expects number")


@pytest.mark.parametrize("frame", [number(3, 1), End()], ids=lambda frame: frame.NAME)
def test_SI_25_after_the_end(mode: Mode, frame: LimitFrame) -> None:
    """The server has sent the last message, and END: nothing but SETUP may follow."""
    play = summing("server", mode) >> (number(1, 1), choose(3, 1), item(5, DONE))
    play.forget()
    play.do(lambda engine: engine.send(1, [Value(6)], complete=True)).forget().at(0.0).forget()
    play >> frame << closed(RemoteProtocolError, rule="SI-25") << error(0, 0x101, f"{frame.NAME} is".encode())


class Detailed(Sum):
    """A type whose errors say more."""

    def read(self, data: bytes) -> Any:
        raise RemoteProtocolError("expected an int, not that", rule="SI-25")


def test_an_error_of_the_type_reaches_the_application(mode: Mode) -> None:
    play = server(mode, channels=lambda name: Detailed(False)) >> setup() << ev.Established << ev.Opened
    play.do(lambda engine: engine.request(1, 2))
    play >> number(1, 1) << failed(1, RemoteProtocolError, message="expected an int, not that")
    play << closed(RemoteProtocolError) << error(0, 0x101, b"expected an int, not that")


# -- the end ------------------------------------------------------------------------------------------------------


class Nothing(Sum):
    """The type ``end``."""

    def __init__(self, client: bool) -> None:
        super().__init__(client)
        self.at = "end"


class Once(Sum):
    """The type ``recv int -> end``."""

    def _value(self, value: Any, wrong: Any) -> None:
        super()._value(value, wrong)
        self.at = "end"


def test_R_29_the_sender_of_the_last_message_sends_END(mode: Mode) -> None:
    """The client, if there was none."""
    play = client(mode, channels=lambda name: Nothing(True))
    play.do(lambda engine: engine.open("channel", Opening("x"), complete=True)) << setup(b"x") << End()
    play.at(0.0) << ev.Completed(1) << ev.Canceled(1, False)
    play = server(mode, channels=lambda name: Nothing(False)) >> (setup(), End()) << ev.Established << ev.Opened
    play << ev.Completed(1) << ev.Canceled(1, False)
    play.quiet()


def test_R_29_END_may_be_missing(mode: Mode) -> None:
    """The next SETUP ends the session as well, or the end of the transport."""
    play = server(mode, channels=lambda name: Nothing(False))
    play >> setup() << ev.Established << ev.Opened << ev.Completed << ev.Canceled
    play >> setup() << ev.Opened << ev.Completed << ev.Canceled
    play.eof() << ev.Closed(None)


def test_R_29_a_late_END_belongs_to_the_former_session(mode: Mode) -> None:
    play = summing("client", mode)
    play.do(lambda engine: engine.send(1, [Value(1), Choice(1), Value(None)], complete=True)).forget()
    play >> number(8, 1) << ev.Items << ev.Completed
    play.do(lambda engine: engine.open("channel", Opening("sum"), credit=9)) << setup()
    play.do(lambda engine: engine.send(2, [Value(1), Choice(1), Value(None)], complete=True)).forget()
    play >> (End(), number(18, 2)) << ev.Items(2, [Payload(b"\2")]) << ev.Completed(2)
    play >> End()
    play.quiet()


def test_R_29_only_one_END_is_late(mode: Mode) -> None:
    play = summing("client", mode)
    play.do(lambda engine: engine.send(1, [Value(1), Choice(1), Value(None)], complete=True)).forget()
    play >> number(8, 1) << ev.Items << ev.Completed
    play.do(lambda engine: engine.open("channel", Opening("sum"), credit=9)) << setup()
    play >> End()
    play >> End() << ev.Failed << closed(RemoteProtocolError, rule="SI-25") << error(0, 0x101)


# -- aborts -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("role", "first"), [("client", 1), ("server", 2)])
def test_an_application_gives_up_before_the_first_message(mode: Mode, role: str, first: int) -> None:
    play = summing(role, mode)
    play.do(lambda engine: engine.fail(1, ApplicationError(message="enough"))) << error(first, 0x201, b"enough")


def test_an_application_gives_up_after_a_message(mode: Mode) -> None:
    play = summing("server", mode) >> (number(1, 1), number(3, 2))
    play.forget()
    play.do(lambda engine: engine.fail(1, ApplicationError(message="stopped"))) << error(4, 0x201, b"stopped")


@pytest.mark.parametrize("role", ["client", "server"])
def test_the_peer_gives_up(mode: Mode, role: str) -> None:
    play = summing(role, mode) >> error(2 if role == "server" else 1, 0x201, b"stopped")
    play << failed(1, ApplicationError, code=0x201, message="stopped")
    play.quiet()


def test_3_1_what_was_in_flight_is_discarded(mode: Mode) -> None:
    """D-14: and counted; the next session begins behind it."""
    play = summing("server", mode) >> number(1, 1) << ev.Items
    play.do(lambda engine: engine.fail(1, ApplicationError())) << error(2, 0x201)
    for frame in (number(3, 2), choose(5, 1), End(), error(2, 0x201)):
        play >> frame << ignored(0, "D-14")
    play >> setup() << ev.Opened
    play.do(lambda engine: engine.request(2, 9))
    play >> number(7, 1) << ev.Items
    play >> number(11, 1) << ev.Failed << closed(RemoteProtocolError, rule="R-21") << error(0, 0x101)


def test_D_14_a_client_that_gave_up_needs_another_connection(mode: Mode) -> None:
    play = summing("client", mode)
    play.do(lambda engine: engine.cancel(1)) << error(1, 0x201, b"canceled")
    with pytest.raises(LimitExceeded, match="open another connection") as caught:
        play.engine.open("channel", Opening("sum"), credit=1)
    assert caught.value.rule == "D-14"
    play >> number(2, 1) << ignored(0, "D-14")
    play >> number(6, 1) << closed(RemoteProtocolError, rule="R-21") << error(0, 0x101)


def test_D_14_a_client_whose_server_gave_up_goes_on(mode: Mode) -> None:
    play = summing("client", mode).do(lambda engine: engine.send(1, [Value(1)])) << number(1, 1)
    play >> error(2, 0x201, b"no") << failed(1, ApplicationError)
    play.do(lambda engine: engine.open("channel", Opening("sum"), credit=1)) << setup()
    play.do(lambda engine: engine.send(2, [Value(1)])) << number(3, 1)


def test_D_14_an_error_of_a_former_session(mode: Mode) -> None:
    """The client has sent the last message; the server gave up before it had it."""
    play = client(mode, channels=lambda name: Once(True))
    play.do(lambda engine: engine.open("channel", Opening("x"), credit=1)) << setup(b"x")
    play.do(lambda engine: engine.send(1, [Value(1)], complete=True)) << number(1, 1) << End()
    play.at(0.0) << ev.Completed << ev.Canceled
    play.do(lambda engine: engine.open("channel", Opening("x"), credit=1)) << setup(b"x")
    play >> error(1, 0x201, b"late") << ignored(0, "D-14")
    play >> error(2, 0x201, b"now") << failed(2, ApplicationError)


def test_D_14_an_error_between_sessions(mode: Mode) -> None:
    play = client(mode, channels=lambda name: Once(True))
    play.do(lambda engine: engine.open("channel", Opening("x"), credit=1))
    play.forget().do(lambda engine: engine.send(1, [Value(1)], complete=True))
    play.forget().at(0.0).forget()
    play >> error(2, 0x201, b"late") << ignored(0, "D-14")


def test_D_14_more_than_can_be_in_flight_is_charged() -> None:
    play = summing("server", limits=TINY)
    play.do(lambda engine: engine.fail(1, ApplicationError())) << error(2, 0x201)
    for n in range(TINY.cancel_race_frames):
        play >> number(2 * n + 1, 1) << ignored(0)
    play >> number(2 * n + 3, 1) << ignored(1)
    play >> setup() << ev.Opened
    play.do(lambda engine: engine.fail(2, ApplicationError())) << error(2 * n + 4, 0x201)
    play >> number(2 * n + 5, 1) << ignored(0)


# -- sessions without checks --------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ["client", "server"])
def test_D_15_a_session_without_checks(mode: Mode, role: str) -> None:
    play = free(role, mode)
    theirs = 2 if role == "client" else 1
    play >> item(theirs, b"x") << ev.Items
    own = theirs + 3
    play.do(lambda engine: engine.send(1, [Choice(0), b"y", Value(b"z")]))
    play << choose(own, 0) << item(own + 2, b"y") << item(own + 4, b"z")
    play >> choose(own + 7, 5) << ev.Items(1, [Choice(5)])
    play >> End() << ev.Completed << ev.Canceled(1, False)
    play.quiet()


def test_D_15_completing_ends_it_at_the_server(mode: Mode) -> None:
    play = free("server", mode).do(lambda engine: engine.complete(1)) << End()
    play.at(0.0) << ev.Completed(1)
    play.quiet()
    play = free("client", mode).do(lambda engine: engine.complete(1)).quiet()
    play >> item(2, b"x") << ev.Items
    play >> End() << ev.Completed(1)
    play.quiet()


# -- plain channels -----------------------------------------------------------------------------------------------


def test_D_15_a_plain_channel(mode: Mode) -> None:
    """The client's payloads, then the server's; its choices are not seen."""
    play = client(mode).do(lambda engine: engine.open("channel", b"q", credit=9)) << setup(b"plain", b"q")
    play.do(lambda engine: engine.send(1, [b"a"], complete=True)) << item(1, b"a") << choose(3, 1)
    play >> item(6, b"b") << ev.Items(1, [Payload(b"b")])
    play >> (choose(8, 0), item(10, b"c")) << ev.Items
    play >> choose(12, 1) << ev.Completed
    play >> End()
    play.quiet()


def test_D_15_a_payload_without_a_name(mode: Mode) -> None:
    play = server(mode) >> setup(b"plain", b"q") << ev.Established << (ev.Opened, {"payload": Payload(b"q")})
    play.quiet()


def test_D_15_a_server_answers_when_it_is_its_turn(mode: Mode) -> None:
    play = server(mode) >> setup(b"plain") << ev.Established << ev.Opened
    play.do(lambda engine: engine.request(1, 9))
    play.do(lambda engine: engine.send(1, [b"early", b"also"])).quiet()
    (status,) = play.engine.streams()
    assert (status.queued, status.state, status.sent) == (9 + 1024, "RECEIVING", 0)
    assert play.engine.held_bytes >= 9
    play >> item(1, b"a") << ev.Items
    play >> choose(3, 1) << ev.Completed << item(6, b"early") << item(8, b"also")
    play.do(lambda engine: engine.send(1, [b"late"], complete=True)) << item(10, b"late") << choose(12, 1) << End()
    play.at(0.0).quiet()
    play >> setup() << ev.Opened


def test_D_15_a_server_completes_before_its_turn(mode: Mode) -> None:
    play = server(mode) >> setup(b"plain") << ev.Established << ev.Opened
    play.do(lambda engine: engine.send(1, [b"early"], complete=True)).quiet()
    assert play.engine.credit(1) == 0
    play >> choose(1, 1) << ev.Completed << item(4, b"early") << choose(6, 1) << End()
    play.at(0.0).quiet()


def test_D_15_what_waits_for_the_turn_is_bounded() -> None:
    play = server(limits=TINY) >> setup(b"plain") << ev.Established << ev.Opened
    size = TINY.outbound_high_bytes - TINY.object_overhead_bytes
    play.do(lambda engine: engine.send(1, [bytes(size)]))
    with pytest.raises(LimitExceeded, match="until the client has completed") as caught:
        play.engine.send(1, [b""])
    assert caught.value.rule == "outbound_high_bytes"
    with pytest.raises(LimitExceeded, match="fit a frame"):
        play.engine.send(1, [bytes(TINY.frame_bytes)])


@pytest.mark.parametrize("frames", [(choose(1, 2),), (choose(1, 0), choose(3, 0)), (choose(1, 0), choose(3, 1))])
def test_D_15_choices_that_a_plain_channel_does_not_have(mode: Mode, frames: tuple[LimitFrame, ...]) -> None:
    play = server(mode) >> setup(b"plain") << ev.Established << ev.Opened
    play >> frames << ev.Failed << closed(RemoteProtocolError, rule="SI-25")
    play << error(0, 0x101, b"branch ")


def test_D_15_an_application_may_choose_by_itself() -> None:
    play = client().do(lambda engine: engine.open("channel", b"q", credit=9)) << setup(b"plain", b"q")
    play.do(lambda engine: engine.send(1, [Choice(0), b"a"])) << item(1, b"a")
    for choices in ([Choice(2)], [Choice(0), Choice(0)]):
        with pytest.raises(LocalProtocolError, match="the channel expects a payload of this side"):
            play.engine.send(1, choices)
    play.do(lambda engine: engine.send(1, [Value(b"b"), Choice(1)])) << item(3, b"b") << choose(5, 1)
    with pytest.raises(LocalProtocolError):
        play.engine.send(1, [Choice(1)])


def test_D_15_what_a_plain_channel_expects() -> None:
    steps = Plain(True)
    assert steps.expects == "a payload of this side, or the end of its half"
    assert steps.choose(1)
    assert (steps.turn, steps.expects) == (Turn.RECEIVE, "a payload of the peer, or the end of its half")
    with pytest.raises(LocalProtocolError):
        steps.check(b"x")
    steps.chosen(1)
    assert (steps.turn, steps.expects) == (Turn.END, "the end")


def test_D_15_a_server_that_wants_no_more(mode: Mode) -> None:
    """It takes part in the session, and drops what comes."""
    play = server(mode) >> setup(b"plain") << ev.Established << ev.Opened
    play.do(lambda engine: engine.cancel(1))
    play >> (item(1, b"a"), item(3, b"b")) >> choose(5, 1)
    play.quiet()
    play.do(lambda engine: engine.send(1, [b"x"], complete=True)) << item(8, b"x") << choose(10, 1) << End()
    play.at(0.0).quiet()


def test_a_server_that_wants_no_more_of_a_type(mode: Mode) -> None:
    play = summing("server", mode).do(lambda engine: engine.cancel(1))
    play >> (number(1, 1), choose(3, 1), item(5, DONE))
    play.quiet()
    play.do(lambda engine: engine.send(1, [Value(1)])) << number(8, 1) << End()
    play.at(0.0) << ev.Canceled(1, False)


# -- credit -------------------------------------------------------------------------------------------------------


def test_D_16_items_wait_until_they_are_asked_for(mode: Mode) -> None:
    play = summing("server", mode, credit=2)
    play >> (number(1, 1), number(3, 2), choose(5, 1), item(7, DONE)) << ev.Items(1, [Payload(b"\1")])
    play.quiet()
    assert not play.engine.wants_read
    assert play.engine.deadline is None
    play.do(lambda engine: engine.request(1, 2))
    assert play.engine.deadline == 0.0
    play.at(0.0) << ev.Items(1, [Payload(b"\2"), Choice(1)])
    play.do(lambda engine: engine.request(1, 1)).at(0.0) << ev.Items
    assert play.engine.wants_read


def test_D_16_the_end_of_a_plain_half_needs_no_credit(mode: Mode) -> None:
    play = client(mode).do(lambda engine: engine.open("channel", b"q", credit=1, complete=True))
    play << setup(b"plain", b"q") << choose(1, 1)
    play >> (item(4, b"a"), choose(6, 1), End()) << ev.Items << ev.Completed
    play.quiet()


def test_D_16_frames_behind_an_item_wait_with_it(mode: Mode) -> None:
    play = summing("server", mode, credit=1) >> (number(1, 1), error(2, 0x201, b"no"))
    play.quiet()
    play.do(lambda engine: engine.cancel(1)).at(0.0) << failed(1, ApplicationError)


def test_D_16_the_end_of_the_transport_waits_as_well(mode: Mode) -> None:
    play = client(mode).do(lambda engine: engine.open("channel", b"q", credit=1, complete=True)).forget()
    play >> (item(4, b"a"), item(6, b"b"), choose(8, 1), End()) << ev.Items
    play.eof().quiet()
    assert not play.engine.closed
    play.do(lambda engine: engine.request(1, 1)).at(0.0) << ev.Items << ev.Completed << ev.Closed(None)


def test_D_16_the_end_in_both_directions_does_not_wait(mode: Mode) -> None:
    play = client(mode).do(lambda engine: engine.open("channel", b"q", credit=1, complete=True)).forget()
    play >> (item(4, b"a"), item(6, b"b")) << ev.Items
    play.eof().quiet()
    play.eof() << failed(1, ConnectionClosed) << closed(ConnectionClosed)


def test_D_16_what_a_session_waits_for() -> None:
    play = summing("client", credit=1)
    (status,) = play.engine.streams()
    assert (status.state, status.reason, status.requester, status.granted) == ("SENDING", "producer", True, 1)
    (status,) = play.engine.streams(room=0)
    assert status.reason == "transport"
    play.do(lambda engine: engine.send(1, [Value(1), Choice(1), Value(None)])).forget()
    (status,) = play.engine.streams()
    assert (status.state, status.reason, status.sent) == ("RECEIVING", "producer", 3)
    play = summing("server", credit=1)
    assert play.engine.streams()[0].reason == "application"
    assert [status.reason for status in free("client").engine.streams()] == ["producer"]


def test_D_16_a_grant_of_nothing() -> None:
    play = server() >> setup() << ev.Established << ev.Opened
    play.do(lambda engine: engine.request(1, 0))
    play >> item(1, b"x")
    play.quiet()
    play.do(lambda engine: engine.request(1, 1)).at(0.0).quiet()
    play.do(lambda engine: engine.request(1, 1)).at(0.0) << ev.Items


# -- many at a time -----------------------------------------------------------------------------------------------


@settings(max_examples=share(0.6), deadline=None)
@given(draw=st.data())
def test_many_values_are_what_they_are_one_by_one(draw: st.DataObject) -> None:
    """FR-08: values of one size, and others between them; the last octet of their numbers overflows."""
    sizes = draw.draw(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 200)), min_size=1, max_size=5))
    payloads = [Payload(b"%04d" % n + b"x" * size) for size, count in sizes for n in range(count)]
    payloads[-1] = Payload(b"", b"metadata")
    sender = free("client").engine
    sender.send(1, payloads[: len(payloads) // 3])
    sender.send(1, payloads[len(payloads) // 3 :], complete=True)
    data = b"".join(iter(lambda: sender.outgoing(1000), b"")) + End().encode(prefixed=True)
    cuts = sorted(draw.draw(st.lists(st.integers(0, len(data)), max_size=6)))
    receiver = free("server", credit=draw.draw(st.integers(0, len(payloads)))).engine
    got: list[Any] = []
    for start, stop in pairwise([0, *cuts, len(data)]):
        got += receiver.receive(data[start:stop], 0.0)
        receiver.request(1, draw.draw(st.integers(0, 99)))
        got += receiver.tick(0.0)
    receiver.request(1, len(payloads) + 1)
    got += receiver.tick(0.0)
    assert [payload for event in got if isinstance(event, ev.Items) for payload in event.payloads] == payloads
    assert [type(event) for event in got[-2:]] == [ev.Completed, ev.Canceled]
    assert not receiver.closed


def test_many_large_values_leave_in_pieces() -> None:
    play = free("client")
    play.engine.send(1, [bytes(9000)] * 4)
    assert [len(chunk) for chunk in iter(lambda: play.engine.outgoing(1), b"")] == [18018, 18018]


def test_values_that_are_not_bytes_are_converted() -> None:
    play = free("client").do(lambda engine: engine.send(1, [b"a", "b", bytearray(b"c"), Payload(b"d")]))
    play << item(1, b"a") << item(3, b"b") << item(5, b"c") << item(7, b"d")
    with pytest.raises(TypeError):
        play.engine.send(1, [7])
