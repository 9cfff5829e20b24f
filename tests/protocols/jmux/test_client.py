"""The client's sessions: ids, what the server may say, acknowledgements, and how calls fail (3.3)."""

from __future__ import annotations

import pytest

from afflux.core import events as ev
from afflux.core.errors import LimitExceeded, LocalProtocolError, RemoteProtocolError
from afflux.core.events import Readable
from afflux.core.limits import Limits
from afflux.core.payload import Payload
from afflux.protocols.jmux import Engine
from afflux.protocols.jmux.errors import SessionAborted, SessionLost, SessionRejected
from afflux.protocols.jmux.frames import Abort, Acknowledgment, Data, ErrorMessage

from .playbook import ACK, CLOSE, WELCOME, Playbook, abort, client, closed, data, failed, free_id, more, opening, server

TWO = Limits.tiny(sessions=2, streams=3)


def asking(mode: str = "whole", **options: object) -> Playbook:
    """A request is under way on session 0."""
    return client(mode, **options).do(lambda engine: engine.open("request", b"q")) << opening(b"q", eof=True)  # type: ignore[arg-type] # options of an engine


def talking(mode: str = "whole", **options: object) -> Playbook:
    """Session 0 is open, its request is not finished."""
    return client(mode, **options).on(lambda s: s.open_session(b"q")) << opening(b"q")  # type: ignore[arg-type] # options of an engine


# -- requests -------------------------------------------------------------------------------------------------


def test_a_request_and_its_response(mode: str) -> None:
    play = asking(mode)
    assert play.engine.byte_sessions.session_id(1) == 0
    play >> (data(b"an"), data(b"sw"), data(b"er", eof=True, close=True))
    play << ev.Items(1, [Payload(b"answer")], True)
    assert play.engine.byte_sessions.session_id(1) is None
    play.do(lambda engine: engine.consumed(6)).do(lambda engine: engine.open("request", b"")) << opening(eof=True)
    play >> data(eof=True, close=True) << ev.Items(2, [Payload(b"")], True)


def test_R_24_close_comes_alone(mode: str) -> None:
    play = asking(mode) >> data(b"a", eof=True) << ev.Items(1, [Payload(b"a")], True)
    assert free_id(play) == 1
    play >> CLOSE
    assert free_id(play) == 0


def test_a_response_before_the_request_has_ended(mode: str) -> None:
    """R-27: Abort answers, the response is kept, what is still to be written is dropped."""
    play = client(mode, ration=1).do(lambda engine: engine.open("request", b"x" * 300)) << opening(b"x" * 256)
    play >> data(b"a", eof=True, close=True) << ev.Items(1, [Payload(b"a")], True) << abort()
    assert play.engine.queued == 0
    assert play.engine.held_bytes == len(b"a")
    play.do(lambda engine: engine.cancel(1)).quiet()


@pytest.mark.parametrize("mode", ["whole", pytest.param("bytewise", marks=pytest.mark.repetitive)])
def test_a_response_that_is_too_large(mode: str) -> None:
    """payload_bytes: the session is over here, and nobody knows what the server has done."""
    play = asking(
        mode,
        limits=Limits.tiny(
            payload_bytes=65_536, ration_bytes=65_536, ration_max_bytes=65_536, connection_bytes=2**20, sessions=1
        ),
    )
    body = b"x" * 32_768
    (play >> (data(body), data(body))).forget()
    play >> data(b"x") << failed(1, SessionAborted, rule="payload_bytes", may_have_been_processed=True)
    play << abort(detail="payload-too-large: 65537 bytes or more exceed payload_bytes=65536")
    play >> (data(b"late", eof=True), CLOSE)
    assert free_id(play) == 0


def test_canceling_a_request(mode: str) -> None:
    play = asking(mode).do(lambda engine: engine.cancel(1)) << abort()
    play.do(lambda engine: engine.cancel(1)).quiet() >> (data(b"late"), more(5), abort())
    assert free_id(play) == 0


# -- ids ------------------------------------------------------------------------------------------------------


def test_R_21_the_lowest_free_id(mode: str) -> None:
    play = client(mode).do(lambda engine: [engine.open("request", b"") for _ in range(128)] and None)
    for id in range(128):
        play << opening(id=id, eof=True)
    for id in (77, 5):
        play >> data(id=id, eof=True, close=True) << ev.Items
    play.do(lambda engine: engine.open("request", b"")) << opening(id=5, eof=True)
    play.do(lambda engine: engine.open("request", b"")) << opening(id=77, eof=True)
    with pytest.raises(LimitExceeded, match="128 sessions are open: open another connection"):
        play.engine.open("request", b"")


def test_D_7_waiting_for_an_id() -> None:
    play = client(limits=TWO, max_wait_for_id=9)
    play.do(lambda engine: engine.ask([Payload(b"1"), Payload(b"2"), Payload(b"3")]) and None)
    play << opening(b"1", eof=True) << opening(b"2", id=1, eof=True)
    assert play.engine.byte_sessions.session_id(3) is None
    with pytest.raises(LimitExceeded, match="3 sessions"):
        play.engine.open("request", b"")
    play >> data(id=1, eof=True, close=True) << ev.Items << opening(b"3", id=1, eof=True)
    assert play.engine.byte_sessions.session_id(3) == 1


def test_D_7_no_id_in_time() -> None:
    play = client(limits=TWO, max_wait_for_id=9)
    play.do(lambda engine: engine.ask([Payload(b"1"), Payload(b"2"), Payload(b"3")]) and None).forget()
    play.at(0).at(8.9).quiet().at(9) << failed(3, SessionRejected, rule="R-21", may_have_been_processed=False)
    play >> data(id=1, eof=True, close=True) << ev.Items


def test_giving_up_what_waits() -> None:
    play = client(limits=TWO, max_wait_for_id=9)
    play.do(lambda engine: engine.ask([Payload(b"1"), Payload(b"2"), Payload(b"3")]) and None).forget()
    play.do(lambda engine: engine.cancel(3)) >> data(id=1, eof=True, close=True) << ev.Items


def test_giving_up_what_was_not_written() -> None:
    """Nothing is said of it, and its id is free."""
    play = client()
    play.engine.open("request", b"x")
    play.do(lambda engine: engine.cancel(1)).do(lambda engine: engine.open("request", b"y")) << opening(b"y", eof=True)


def test_waiting_begins_with_the_header() -> None:
    play = Playbook(Engine("client", limits=TWO, max_wait_for_id=9)).forget()
    play.engine.byte_sessions.open_session(now=1.0)
    play.engine.byte_sessions.open_session(b"x", finish=True)
    play.engine.byte_sessions.open_session()
    play >> WELCOME << ev.Established << ev.Granted(1, 32768) << ev.Granted(2, 32768) << ev.Granted(3, 32768)
    play << opening() << opening(b"x", id=1, eof=True)
    assert play.engine.credit(1) == 32768
    play.at(9) << failed(3, SessionRejected)


def test_R_22_when_an_id_is_free() -> None:
    """The server has terminated and the client has finished, or both have terminated."""
    play = talking() >> data(b"a", eof=True) << Readable(1, 1, True)
    assert free_id(play) == 1
    play.on(lambda s: s.finish(1)) << data(eof=True)
    assert free_id(play) == 2
    play >> CLOSE
    assert free_id(play) == 0
    assert play.engine.byte_sessions.read(1) == b"a"


# -- sessions of bytes ----------------------------------------------------------------------------------------


def test_a_conversation(mode: str) -> None:
    play = talking(mode)
    play.on(lambda s: s.write(1, b"uestion")) << data(b"uestion")
    play >> data(b"an")
    play.events.clear()
    assert play.engine.byte_sessions.read(1, 1) == b"a"
    play >> data(b"swer")
    play.events.clear()
    assert play.engine.byte_sessions.read(1) == b"nswer"
    play.on(lambda s: s.finish(1)) << data(eof=True)
    play.on(lambda s: s.finish(1)).quiet()
    play >> data(eof=True, close=True) << Readable(1, 0, True)
    assert play.engine.byte_sessions.read(1) == b""


def test_a_session_that_reads_first() -> None:
    """I-6: an empty Data open, if the application reads first."""
    play = client().on(lambda s: s.open_session()) << opening()
    play >> data(b"hello") << Readable(1, 5)


def test_what_came_together_is_reported_together() -> None:
    play = talking() >> (data(b"a"), data(b"b"), data(b"c", eof=True)) << Readable(1, 3, True)
    assert play.engine.byte_sessions.read(1) == b"abc"


def test_writing_within_the_ration() -> None:
    """R-33: by the caller."""
    play = talking(ration=1)
    assert play.engine.credit(1) == 255
    with pytest.raises(LocalProtocolError, match="credit of 255"):
        play.engine.byte_sessions.write(1, b"x" * 256)
    play.on(lambda s: s.write(1, b"x" * 255)) << data(b"x" * 255)
    play.on(lambda s: s.finish(1)) << data(eof=True)
    assert play.engine.credit(1) == 0
    play.on(lambda s: s.write(1, b"x")).quiet()
    assert play.engine.credit(99) == 0
    play.on(lambda s: s.finish(99)).on(lambda s: s.abort(99)).do(lambda engine: engine.cancel(99))


def test_nothing_follows_finish() -> None:
    engine = talking(ration=1).engine
    engine.send(1, [b"x" * 300], complete=True)
    with pytest.raises(LocalProtocolError, match="finished"):
        engine.byte_sessions.write(1, b"x")
    with pytest.raises(LocalProtocolError, match="only a server"):
        talking().engine.byte_sessions.finish(1, ack=True)


def test_R_27_the_server_does_not_want_the_rest(mode: str) -> None:
    play = talking(mode, ration=1).do(lambda engine: engine.send(1, [b"x" * 999])) << data(b"x" * 255)
    play >> data(b"a", eof=True) << Readable(1, 1, True)
    play >> CLOSE << ev.Canceled(1, False) << abort()
    play.on(lambda s: s.write(1, b"dropped")).on(lambda s: s.finish(1)).quiet()
    assert play.engine.byte_sessions.read(1) == b"a"


def test_R_27_at_once(mode: str) -> None:
    play = talking(mode) >> data(b"a", eof=True, close=True, ack=True)
    play << Readable(1, 1, True) << ev.Canceled(1, False) << abort()
    assert play.engine.byte_sessions.read(1) == b"a"
    play.on(lambda s: s.acknowledge(1)).quiet()


@pytest.mark.parametrize("partial", [True, False])
def test_JA_04_the_server_aborts(partial: bool, mode: str) -> None:
    """JA-04, R-28, 3.5."""
    kind = SessionAborted if partial else SessionRejected
    play = asking(mode) >> abort(partial=partial, detail="no")
    play << failed(1, kind, message="no", may_have_been_processed=partial) << abort()
    play.do(lambda engine: engine.open("request", b"")) << opening(eof=True)


def test_an_abort_without_words() -> None:
    """I-8."""
    asking() >> abort() << failed(1, SessionRejected, message="the server has aborted the session") << abort()


def test_R_28_an_abort_behind_the_response() -> None:
    """A request whose response is there has not failed; a session that still writes has."""
    play = asking() >> data(b"a", eof=True) << ev.Items
    play >> abort() << abort()
    assert free_id(play) == 0
    play = talking() >> data(b"a", eof=True) << Readable
    play >> abort(partial=True) << failed(1, SessionAborted) << abort()


def test_R_29_crossing_aborts(mode: str) -> None:
    """R-29: they answer each other."""
    play = talking(mode).on(lambda s: s.abort(1, "enough")) << abort(detail="enough")
    play >> abort(partial=True)
    assert free_id(play) == 0
    play.on(lambda s: s.abort(1)).quiet()


def test_SI_22_an_abort_is_not_answered() -> None:
    """SI-22, D-3: 30 s, then Error."""
    play = talking(ping_interval=0).on(lambda s: s.abort(1)) << abort()
    play.at(0).quiet()
    assert play.engine.deadline == 30
    play.at(29).quiet().at(30) << closed(RemoteProtocolError, message="abort-unanswered") << ErrorMessage


@pytest.mark.parametrize("mode", ["whole", pytest.param("bytewise", marks=pytest.mark.repetitive)])
def test_D_15_the_ration_counts_after_an_abort(mode: str) -> None:
    """I-13."""
    play = talking(mode).on(lambda s: s.abort(1)) << abort()
    play >> (data(b"x" * 32_767), data())
    play >> data(b"xx") << closed(RemoteProtocolError, rule="R-33") << ErrorMessage


def test_draining_does_not_wait_for_the_answer_to_an_abort() -> None:
    play = talking().on(lambda s: s.abort(1)) << abort()
    play.do(lambda engine: engine.close(0.0, drain=True)) << ev.Closed(None)


# -- acknowledgements -----------------------------------------------------------------------------------------


def test_R_43_a_response_that_was_read_is_acknowledged(mode: str) -> None:
    play = asking(mode) >> data(b"a", eof=True, close=True, ack=True) << ev.Items << ACK
    assert free_id(play) == 0
    play = talking(mode).on(lambda s: s.finish(1)) << data(eof=True)
    play >> data(b"a", eof=True, ack=True) << Readable(1, 1, True)
    assert play.engine.byte_sessions.read(1) == b"a"
    play.do(lambda engine: None) << ACK
    play >> CLOSE
    assert free_id(play) == 0


def test_R_42_acknowledging_by_hand(mode: str) -> None:
    """R-42, R-23: once; the id is not used again before."""
    play = asking(mode, auto_ack=False) >> data(b"a", eof=True, close=True, ack=True) << ev.Items
    play.do(lambda engine: engine.open("request", b"")) << opening(id=1, eof=True)
    play.on(lambda s: s.acknowledge(1)) << ACK
    play.on(lambda s: s.acknowledge(1)).quiet()
    assert free_id(play) == 0


def test_acknowledging_before_the_close(mode: str) -> None:
    play = asking(mode, auto_ack=False) >> data(b"a", eof=True, ack=True) << ev.Items
    play.on(lambda s: s.acknowledge(1)) << ACK
    play >> CLOSE
    assert free_id(play) == 0


def test_a_close_while_an_acknowledgement_is_owed(mode: str) -> None:
    play = asking(mode, auto_ack=False) >> (data(b"a", eof=True, ack=True), CLOSE) << ev.Items
    assert free_id(play) == 1
    play.on(lambda s: s.acknowledge(1)) << ACK
    assert free_id(play) == 0


def test_an_unexpected_response_is_not_acknowledged() -> None:
    play = asking(auto_ack=False) >> data(b"a", eof=True) << ev.Items
    play.on(lambda s: s.acknowledge(1)).quiet()


def test_ack_owed_and_the_application_aborts(mode: str) -> None:
    """I-12: Abort, which is a negative acknowledgement."""
    play = asking(mode, auto_ack=False) >> data(b"a", eof=True, close=True, ack=True) << ev.Items
    play.on(lambda s: s.abort(1)) << abort()
    assert free_id(play) == 0


def test_an_acknowledgement_that_the_application_forgets() -> None:
    """D-3, ack_s: negative."""
    play = asking(auto_ack=False, ping_interval=0) >> data(b"a", eof=True, close=True, ack=True) << ev.Items
    play.at(0).quiet()
    assert play.engine.deadline == 60
    play.at(60) << abort()
    assert free_id(play) == 0


def complete() -> Playbook:
    """A session of bytes whose response was read and wants an acknowledgement: then its id is free."""
    play = client(auto_ack=False, ping_interval=0).on(lambda s: s.open_session(b"q", finish=True))
    play.forget() >> data(b"a", eof=True, close=True, ack=True) << ev.Readable(1, 1, True)
    assert play.engine.byte_sessions.read(1) == b"a"
    return play


def test_leaving_without_an_acknowledgement_frees_the_id() -> None:
    """D-17: not after ``ack_s``; the application says that none will come."""
    play = complete().on(lambda s: s.decline(1)) << abort()
    assert play.engine.byte_sessions.session_id(1) is None
    play.on(lambda s: s.decline(1)).quiet()
    play.on(lambda s: s.open_session(b"r")) << opening(b"r")


def test_leaving_after_an_acknowledgement_sends_nothing() -> None:
    play = complete().on(lambda s: s.acknowledge(1)) << ACK
    play.on(lambda s: s.decline(1)).quiet()
    play = client(auto_ack=False).on(lambda s: s.open_session(b"q")).forget()
    play.on(lambda s: s.decline(1)).quiet()
    server().on(lambda s: s.decline(1)).quiet()


def test_leaving_before_the_request_has_left() -> None:
    """The server answers early: the rest of the request still goes, and then the word that nothing was processed."""
    play = client(auto_ack=False, ration=1).on(lambda s: s.open_session(b"x" * 300, finish=True))
    play.forget() >> data(b"a", eof=True, ack=True) << ev.Readable(1, 1, True)
    assert play.engine.byte_sessions.read(1) == b"a"
    play.on(lambda s: s.decline(1)).quiet()
    play >> more(256) << ev.Granted << data(b"x" * 44, eof=True) << abort()
    play >> abort()
    assert play.engine.byte_sessions.session_id(1) is None


def test_reading_before_the_ration_is_used_up_acknowledges_at_the_end() -> None:
    play = asking(auto_ack=True) >> data(eof=True, close=True, ack=True) << ev.Items << Acknowledgment(session=0)
    play.do(lambda engine: engine.close(0.0, drain=True)) << ev.Closed(None)


# -- what a server must not say -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "rule"),
    [
        (data(b"x", id=9), "R-20"),
        (more(1, id=9), "R-39"),
        (abort(id=9), "3.3"),
        (CLOSE, "R-26"),
        (ACK, "R-42"),
        (opening(), "R-17"),
        (data(close=True), "R-18"),
        (data(ack=True), "R-18"),
    ],
)
def test_violations_of_a_server(said: Data, rule: str, mode: str) -> None:
    play = asking(mode) >> said << ev.Failed << closed(RemoteProtocolError, rule=rule) << ErrorMessage
    assert not isinstance(said, Abort) or rule == "3.3"
    play.quiet()


def test_stalled_by_the_server() -> None:
    """FC-17: the client gives up a session whose ration does not grow."""
    play = talking(ration=1, ping_interval=0).do(lambda engine: engine.send(1, [b"x" * 300])) << data(b"x" * 255)
    play.at(0).quiet()
    assert play.engine.deadline == 60
    play.at(60) << failed(1, SessionAborted, rule="session_stall_s") << abort(detail="session-stall")
    assert play.engine.deadline == 90


def test_a_stall_is_over_with_the_next_increment() -> None:
    play = talking(ration=1, ping_interval=0).do(lambda engine: engine.send(1, [b"x" * 300])) << data(b"x" * 255)
    play.at(0).quiet()
    play.now = 50.0
    play >> more(10) << ev.Granted(1, 10) << data(b"x" * 10)
    play.at(60).quiet()
    assert play.engine.deadline == 120  # it has been seen to wait since 60


def test_own_endings_are_all_of_it() -> None:
    """A session whose response was read and whose request has left is forgotten."""
    play = talking().on(lambda s: s.finish(1)) << data(eof=True)
    play >> data(b"a", eof=True, close=True) << Readable
    assert play.engine.byte_sessions.read(1) == b"a"
    assert not play.engine.streams()
    assert not play.engine.sessions.rations.shared_used


def test_giving_up_a_response_that_is_complete() -> None:
    """Nothing is said of a session that is over on the wire."""
    play = talking().on(lambda s: s.finish(1)) << data(eof=True)
    play >> data(b"a", eof=True, close=True) << Readable
    play.on(lambda s: s.abort(1)).quiet()
    assert play.engine.byte_sessions.read(1) == b""


def test_each_has_its_own_time() -> None:
    play = client(limits=TWO.replace(streams=5), max_wait_for_id=9, ping_interval=0)
    play.do(lambda engine: engine.ask([Payload(b"1"), Payload(b"2"), Payload(b"3")]) and None).forget()
    play.at(0).do(lambda engine: engine.open("request", b"4", now=5.0) and None)
    play.do(lambda engine: engine.cancel(1)) << abort()
    play.at(5).quiet().at(9) << failed(3, SessionRejected)
    play.at(14) << failed(4, SessionRejected)
    play.at(15) << failed(2, SessionLost) << ev.Closed << ErrorMessage
