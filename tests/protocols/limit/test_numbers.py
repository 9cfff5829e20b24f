"""The numbers of messages: the example of the specification, what is not the next number, and the largest."""

from __future__ import annotations

import pytest

from afflux.core import events as ev
from afflux.core.errors import LimitExceeded, RemoteProtocolError, Violation
from afflux.core.payload import Payload
from afflux.protocols.limit import Choice, Opening, Unchecked, Value
from afflux.protocols.limit.frames import End
from afflux.protocols.limit.ids import LARGEST_CLIENT, LARGEST_SERVER, Numbers

from .playbook import DONE, Mode, choose, client, closed, error, failed, item, number, server, setup, summing


def test_R_14_the_example_at_the_client(mode: Mode) -> None:
    """D-2, R-20, R-27: PAYLOAD 1, 3, CHOOSE 5, PAYLOAD 7, and the server's 10."""
    play = summing("client", mode)
    play.do(lambda engine: engine.send(1, [Value(1), Choice(0), Value(2), Choice(1), Value(None)]))
    play << number(1, 1) << number(3, 2) << choose(5, 1) << item(7, DONE)
    play >> number(10, 3) << ev.Items(1, [Payload(b"\x03")]) << ev.Completed(1)
    play << ev.Canceled(1, False)
    play >> End()
    play.quiet()


def test_R_14_the_example_at_the_server(mode: Mode) -> None:
    """R-15: the server runs the channel as written, the client its dual."""
    play = summing("server", mode)
    play >> number(1, 1) << ev.Items(1, [Payload(b"\x01")])
    play >> number(3, 2) << ev.Items(1, [Payload(b"\x02")])
    play >> choose(5, 1) << ev.Items(1, [Choice(1)])
    play >> item(7, DONE) << ev.Items(1, [Payload(DONE)])
    play.do(lambda engine: engine.send(1, [Value(3)], complete=True))
    play << number(10, 3) << End()
    play.at(0.0) << ev.Completed(1) << ev.Canceled(1, False)


@pytest.mark.parametrize("id", [0, 2, 3, 5, 9])
def test_R_21_SI_24_another_number_than_the_next(mode: Mode, id: int) -> None:
    """R-13: 0 is the connection. Skipped, repeated, of the other side."""
    play = summing("server", mode) >> number(1, 1) << ev.Items
    play >> number(id if id != 3 else 1, 2) << failed(1, RemoteProtocolError, rule="R-21")
    play << closed(RemoteProtocolError, rule="R-21", code=0x101)
    play << error(0, 0x101, b"the next message has id 3, not")


def test_R_23_SETUP_END_and_ERROR_use_no_number(mode: Mode) -> None:
    """R-24: the numbers continue over the sessions of a connection."""
    play = summing("client", mode)
    for stream, first in ((1, 1), (2, 11)):
        play.do(lambda engine, stream=stream: engine.send(stream, [Value(1), Choice(1), Value(None)]))  # type: ignore[misc]  # bound now
        play << number(first, 1) << choose(first + 2, 1) << item(first + 4, DONE)
        play >> (number(first + 7, 3), End()) << ev.Items << ev.Completed << ev.Canceled
        if first == 1:
            play.do(lambda engine: engine.open("channel", Opening("sum"), credit=9)) << setup()


def test_R_23_END_has_no_number(mode: Mode) -> None:
    play = summing("server", mode) >> End(stream=1) << ev.Failed
    play << closed(RemoteProtocolError, rule="R-23") << error(0, 0x101, b"END with id 1")


def test_R_24_a_failed_session_counts_as_well(mode: Mode) -> None:
    """3.3: what is discarded is counted."""
    play = summing("server", mode) >> number(1, 1) << ev.Items
    play.do(lambda engine: engine.fail(1, ValueError("secret"))) << error(2, 0x201, b"application error")
    play >> number(3, 1) << (ev.Ignored, {"price": 0, "rule": "D-14"})
    play >> setup() << ev.Opened
    play.do(lambda engine: engine.request(2, 9))
    play >> number(5, 4) << ev.Items


# -- the largest --------------------------------------------------------------------------------------------------


def near_the_end(client: bool, reuse: bool = False) -> Numbers:
    """The numbers of a side that has two ids left."""
    numbers = Numbers(client, reuse)
    numbers.own = (LARGEST_CLIENT if client else LARGEST_SERVER) - 4
    numbers.peer = numbers.own + 1 if client else numbers.own - 1
    return numbers


def test_R_22_the_largest_ids() -> None:
    """D-3: the number of the dual step fits 31 bits."""
    assert (LARGEST_CLIENT, LARGEST_SERVER) == (2**31 - 3, 2**31 - 2)


def test_R_16_after_the_largest_id_comes_another_connection() -> None:
    play = client(numbers=near_the_end(True), channels=lambda name: Unchecked())
    play.do(lambda engine: engine.open("channel", Opening("x"), credit=9)) << setup(b"x")
    play.do(lambda engine: engine.send(1, [b"a", b"b"])) << item(LARGEST_CLIENT - 2, b"a") << item(LARGEST_CLIENT, b"b")
    with pytest.raises(LimitExceeded, match="open another connection") as caught:
        play.engine.send(1, [b"c"])
    assert caught.value.rule == "R-16"
    play >> item(2, b"") << ev.Failed
    play << closed(RemoteProtocolError, rule="R-21") << error(0, 0x101, b"")


def test_R_16_no_session_begins_without_ids() -> None:
    numbers = near_the_end(True)
    numbers.own = LARGEST_CLIENT
    play = client(numbers=numbers)
    with pytest.raises(LimitExceeded):
        play.engine.open("channel", b"x", credit=1)
    play.quiet()


def test_R_16_a_side_that_flushes_runs_out_of_ids() -> None:
    """D-15: payloads that waited for the turn do not fit any more: the session fails on both sides."""
    play = server(numbers=near_the_end(False)) >> setup() << ev.Established << ev.Opened
    play.do(lambda engine: engine.send(1, [b"a", b"b", b"c"]))
    play >> choose(LARGEST_CLIENT - 2, 1) << ev.Completed << failed(1, LimitExceeded, rule="R-16")
    play << item(LARGEST_SERVER, b"a") << error(LARGEST_CLIENT - 1, 0x201, b"application error")


@pytest.mark.parametrize("side", [True, False])
def test_R_17_ids_begin_again(side: bool) -> None:
    """R-18: only where that is asked for."""
    numbers = near_the_end(side, reuse=True)
    sent = []
    for _ in range(4):
        id = numbers.next()
        numbers.sends(id)
        sent.append(id)
    last, first = (LARGEST_CLIENT, 1) if side else (LARGEST_SERVER, 2)
    assert sent == [last - 2, last, first, first + 2]
    assert numbers.expected == numbers.peer + 2


def test_R_17_ids_in_use_are_skipped() -> None:
    """The session has used all of them: there is none to skip to."""
    numbers = near_the_end(True, reuse=True)
    for id in (LARGEST_CLIENT - 2, LARGEST_CLIENT, 1):
        assert numbers.next() == id
        numbers.sends(id)
    numbers.own = LARGEST_CLIENT - 4
    with pytest.raises(LimitExceeded, match="in use") as caught:
        numbers.next()
    assert caught.value.rule == "R-17"
    numbers.begin()
    assert numbers.next() == LARGEST_CLIENT - 2


def test_R_17_the_peer_begins_again() -> None:
    play = server(numbers=near_the_end(False, reuse=True), channels=lambda name: Unchecked()) >> setup()
    play << ev.Established << ev.Opened
    play.do(lambda engine: engine.request(1, 99))
    for id in (LARGEST_CLIENT - 2, LARGEST_CLIENT, 1, 3):
        play >> item(id, b"x") << ev.Items
    play.do(lambda engine: engine.send(1, [b"y"])) << item(6, b"y")


@pytest.mark.parametrize("id", [LARGEST_CLIENT - 2, LARGEST_CLIENT, 1])
def test_R_19_SI_28_an_id_that_is_in_use(mode: Mode, id: int) -> None:
    """D-6: the message is dropped, and the connection goes on."""
    numbers = near_the_end(False, reuse=True)
    play = server(mode, numbers=numbers, channels=lambda name: Unchecked()) >> setup() << ev.Established << ev.Opened
    play.do(lambda engine: engine.request(1, 99))
    play >> (item(LARGEST_CLIENT - 2, b"x"), item(LARGEST_CLIENT, b"x"), item(1, b"x"))
    play.forget()
    play >> item(id, b"again") << (ev.Ignored, {"stream": id, "rule": "R-19", "price": 10})
    play << error(id + 1, 0x101, b"id ")
    play >> item(3, b"next") << ev.Items


@pytest.mark.parametrize("id", [2, 7, LARGEST_CLIENT - 4])
def test_R_19_an_id_that_is_not(id: int) -> None:
    numbers = near_the_end(False, reuse=True)
    with pytest.raises(Violation) as caught:
        numbers.receives(id)
    assert caught.value.rule == "R-21"
    for used in (LARGEST_CLIENT - 2, LARGEST_CLIENT, 1):
        numbers.receives(used)
    with pytest.raises(Violation) as caught:
        numbers.receives(id)
    assert caught.value.rule == "R-21"


def test_R_19_an_id_that_is_in_use_without_reuse() -> None:
    play = summing("server") >> number(1, 1) << ev.Items
    play >> number(1, 1) << ev.Failed << closed(RemoteProtocolError, rule="R-21") << error(0, 0x101, b"")


def test_R_19_the_sender_of_an_id_that_is_in_use(mode: Mode) -> None:
    """It may retry; afflux ends the session."""
    play = summing("client", mode, reuse_ids=True)
    play.do(lambda engine: engine.send(1, [Value(1)])) << number(1, 1)
    play >> error(2, 0x101, b"in use") << failed(1, RemoteProtocolError, code=0x101)
