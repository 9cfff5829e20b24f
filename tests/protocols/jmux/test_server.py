"""The server's sessions: what it takes on, what it answers, what it remembers (3.4)."""

from __future__ import annotations

import pytest

from afflux.core import events as ev
from afflux.core.errors import ApplicationError, Canceled, RemoteProtocolError
from afflux.core.events import Acknowledged, Readable, SessionOpened
from afflux.core.limits import Limits
from afflux.core.payload import Payload
from afflux.protocols.jmux.dialect import Dialect
from afflux.protocols.jmux.errors import SessionAborted
from afflux.protocols.jmux.frames import Abort, ErrorMessage
from afflux.protocols.jmux.server import ServerSessions

from .playbook import ACK, CLOSE, Playbook, abort, client, closed, data, error, failed, ignored, more, opening, server


def asked(mode: str = "whole", **options: object) -> Playbook:
    """A request has come on session 0, and nothing was answered."""
    play = server(mode, sessions=False, **options) >> opening(b"q", eof=True)  # type: ignore[arg-type] # options of an engine
    return play << ev.Opened(1, "request", Payload(b"q"), 1, True)


def talking(mode: str = "whole", eof: bool = False, **options: object) -> Playbook:
    """Session 0 is open."""
    play = server(mode, **options) >> opening(b"q", eof=eof) << SessionOpened(1)  # type: ignore[arg-type] # options of an engine
    return play << Readable(1, 1, eof)


def handlers(play: Playbook) -> set[int]:
    """The sessions whose handler has not returned."""
    role = play.engine.role
    assert isinstance(role, ServerSessions)
    return role.handlers


# -- requests -------------------------------------------------------------------------------------------------


def test_a_request_and_its_response(mode: str) -> None:
    """R-25: the close goes with the last Data."""
    play = server(mode, sessions=False) >> (opening(b"que"), data(b"st"), data(b"ion", eof=True))
    play << ev.Opened(1, "request", Payload(b"question"), 1, True)
    play.do(lambda engine: engine.send(1, [b"answer"], complete=True)) << data(b"answer", eof=True, close=True)
    play.do(lambda engine: engine.release(1)).do(lambda engine: engine.consumed(8))
    assert not play.engine.streams()
    assert not handlers(play)
    assert not play.engine.sessions.rations.shared_used
    play >> opening(b"again", eof=True) << ev.Opened(2, "request", Payload(b"again"), 1, True)


def test_a_response_without_anything() -> None:
    asked().do(lambda engine: engine.complete(1)) << data(eof=True, close=True)


def test_JA_06_a_handler_that_fails(mode: str) -> None:
    """JA-06, R-30: it may have processed something, whatever it raises."""
    asked(mode).do(lambda engine: engine.fail(1, ApplicationError(0x301, "no"))) << abort(partial=True, detail="no")
    play = asked(mode).do(lambda engine: engine.fail(1, KeyError("x")))
    play << abort(partial=True, detail="application error")
    play.do(lambda engine: engine.fail(1, KeyError("x"))).quiet()


def test_R_30_a_request_that_was_never_sent(mode: str) -> None:
    """R-30, I-9: p=0 only when nothing was processed."""
    play = talking(mode).on(lambda s: s.abort(1, "no", untouched=True)) << abort(detail="no")
    play >> data(b"late", eof=True)
    play.on(lambda s: s.abort(1)).quiet()


@pytest.mark.parametrize("mode", ["whole", pytest.param("bytewise", marks=pytest.mark.repetitive)])
def test_a_request_that_is_too_large(mode: str) -> None:
    limits = Limits.tiny(
        payload_bytes=65_536, ration_bytes=65_536, ration_max_bytes=65_536, connection_bytes=2**20, sessions=1
    )
    play = server(mode, limits, sessions=False) >> (opening(b"x" * 32_768), data(b"x" * 32_768))
    play.forget() >> data(b"x")
    play << abort(detail="payload-too-large: 65537 bytes or more exceed payload_bytes=65536")
    assert not handlers(play)


def test_too_many_streams() -> None:
    """streams, JABT(false): before any handler."""
    play = server(limits=Limits.tiny(streams=1)) >> opening(eof=True) << SessionOpened(1) << Readable(1, 0, True)
    play >> opening(id=1, eof=True) << ignored(1, "REJECTED") << abort(1, False, "too-many-streams")
    play >> opening(id=1, eof=True) << ignored(1, "REJECTED") << abort(1, False, "too-many-streams")
    play.on(lambda s: s.finish(1)) << data(eof=True, close=True)
    play.do(lambda engine: engine.release(1)) >> opening(id=2, eof=True) << SessionOpened << Readable


def test_too_many_sessions() -> None:
    """sessions, JABT(false): fewer than ids may be live."""
    play = server(limits=Limits.tiny(sessions=1)) >> opening(eof=True)
    play.forget() >> opening(id=1, eof=True) << ignored(1, "REJECTED") << abort(1, False, "too-many-sessions")


def test_a_flood_of_refused_sessions() -> None:
    limits = Limits.tiny(streams=1, glitch_bucket=(5, 0))
    play = server(limits=limits) >> opening(eof=True)
    play.forget() >> tuple(opening(id=id, eof=True) for id in range(1, 6))
    play.forget() >> opening(id=6, eof=True) << ignored(1, "REJECTED") << ev.Failed
    play << closed(RemoteProtocolError, message="protocol-abuse") << abort(6, False, "too-many-streams") << ErrorMessage


def test_FL_07_opening_and_aborting() -> None:
    """FL-07: bounded by the cancel bucket."""
    play = server(limits=Limits.tiny())
    for round in range(Limits.tiny().most_cancels):
        play >> opening(id=round % 128)
        play.forget()
        play >> abort(round % 128)
        play.forget()
        play.do(lambda engine: engine.release(round + 1))  # noqa: B023 -- called at once
    play >> opening()
    play.forget()
    play >> abort()
    assert play.events.pop() is not None
    assert [event.error.message for event in play.events if isinstance(event, ev.Failed)] == [
        "the client has aborted the session"
    ]
    assert play.engine.closed
    assert play.sent.pop() == error("cancel-flood")


# -- sessions of bytes ----------------------------------------------------------------------------------------


def test_a_conversation(mode: str) -> None:
    play = talking(mode)
    assert play.engine.byte_sessions.read(1) == b"q"
    play.on(lambda s: s.write(1, b"a")) << data(b"a")
    play >> data(b"r", eof=True) << Readable(1, 1, True)
    play.on(lambda s: s.write(1, b"b")) << data(b"b")
    play.on(lambda s: s.finish(1)) << data(eof=True, close=True)
    assert play.engine.byte_sessions.read(1) == b"r"
    assert not play.engine.streams()


def test_the_server_finishes_first(mode: str) -> None:
    """3.4: OUT_FIN, then Close answers the client's eof."""
    play = talking(mode).on(lambda s: s.finish(1)) << data(eof=True)
    play >> data(b"x", eof=True) << Readable(1, 1, True) << CLOSE
    assert play.engine.byte_sessions.read(1) == b"qx"


def test_the_rest_of_the_request_is_dropped(mode: str) -> None:
    """CLOSED_EARLY: with close at once, or later."""
    play = talking(mode).on(lambda s: s.finish(1, drop=True)) << data(eof=True, close=True)
    play >> (data(b"late"), more(9), data(eof=True))
    play >> opening(id=0) << SessionOpened(2)
    play = talking(mode).on(lambda s: s.finish(1)) << data(eof=True)
    play.do(lambda engine: engine.release(1)) << CLOSE
    play >> (data(b"late"), abort())
    assert not play.engine.streams()


def test_dropping_while_answering(mode: str) -> None:
    """cancel: the inbound half alone."""
    play = talking(mode).do(lambda engine: engine.cancel(1)).quiet()
    play >> data(b"more")
    play.on(lambda s: s.write(1, b"a")) << data(b"a")
    play.on(lambda s: s.finish(1)) << data(eof=True, close=True)


def test_aborting_after_finishing_is_a_close() -> None:
    """I-7, 3.4: the client keeps the response."""
    talking().on(lambda s: s.finish(1)).forget().on(lambda s: s.abort(1)) << CLOSE


def test_R_28_the_client_aborts(mode: str) -> None:
    play = talking(mode) >> abort(detail="enough") << failed(1, Canceled, message="enough") << abort(partial=True)
    play.on(lambda s: s.write(1, b"x")).do(lambda engine: engine.release(1)).quiet()
    play >> opening() << SessionOpened(2)


def test_R_28_before_a_handler_knows(mode: str) -> None:
    play = server(mode, sessions=False) >> (opening(b"q"), abort()) << abort()
    assert not handlers(play)
    talking() >> abort() << failed(1, Canceled, message="the client has aborted the session") << Abort


def test_R_29_crossing_aborts(mode: str) -> None:
    play = talking(mode).on(lambda s: s.abort(1)) << abort(partial=True)
    play >> (data(b"late"), abort())
    play >> opening() << SessionOpened(2)


def test_SI_23_opened_again_too_early(mode: str) -> None:
    """SI-23: before the client's own eof or Abort."""
    play = talking(mode).on(lambda s: s.abort(1)) << abort(partial=True)
    play >> opening() << closed(RemoteProtocolError, rule="R-19") << ErrorMessage


def test_SI_19_what_crosses_a_close(mode: str) -> None:
    """SI-19, D-8: late messages cost nothing but what is empty."""
    play = talking(mode).on(lambda s: s.finish(1, ack=True, drop=True))
    play << data(eof=True, close=True, ack=True)
    play >> (data(b"late"), more(5), data(), ACK) << Acknowledged(1, True)
    play >> data(b"late", eof=True)


def test_SI_22_a_close_is_not_answered() -> None:
    play = talking(ping_interval=0).on(lambda s: s.finish(1, drop=True)) << data(eof=True, close=True)
    play.at(0).at(29).quiet().at(30) << closed(RemoteProtocolError, message="abort-unanswered") << ErrorMessage


def test_SI_22_one_that_is() -> None:
    play = talking(ping_interval=0).on(lambda s: s.finish(1, drop=True)) << data(eof=True, close=True)
    play.at(0) >> data(eof=True)
    play.at(100).quiet()


# -- acknowledgements -----------------------------------------------------------------------------------------


def acking(mode: str = "whole", **options: object) -> Playbook:
    """The response was finished, and an Acknowledgment asked for."""
    play = asked(mode, **options).do(lambda engine: engine.send(1, [b"a"]))
    return play.forget().on(lambda s: s.finish(1, ack=True)) << data(eof=True, close=True, ack=True)


def test_R_44_acknowledged(mode: str) -> None:
    acking(mode) >> ACK << Acknowledged(1, True)


@pytest.mark.parametrize("how", ["abort", "open", "end", "time"])
def test_R_45_never_acknowledged(how: str, mode: str) -> None:
    """R-45, JA-09."""
    play = acking(mode, ping_interval=0)
    if how == "abort":
        play >> abort() << Acknowledged(1, False)
    elif how == "open":
        play >> opening(eof=True) << Acknowledged(1, False) << ev.Opened
    elif how == "end":
        play.eof() << Acknowledged(1, False) << ev.Closed(None)
    else:
        play.at(0).at(59).quiet().at(60) << Acknowledged(1, False)
        play >> ACK  # it has come too late, and is legal


def test_JA_09_the_connection_is_lost() -> None:
    acking() >> b"\xff\0\0\0" << Acknowledged(1, False) << ev.Closed << ErrorMessage


@pytest.mark.parametrize("how", ["twice", "unasked", "early"])
def test_R_42_an_acknowledgement_that_must_not_be(how: str, mode: str) -> None:
    """R-42, JA-09."""
    if how == "twice":
        play = (acking(mode) >> ACK) << Acknowledged(1, True)
    elif how == "unasked":
        play = asked(mode).on(lambda s: s.finish(1)) << data(eof=True, close=True)
    else:
        play = asked(mode)
    play >> ACK
    play.events = type(play.events)(event for event in play.events if isinstance(event, ev.Closed))
    play << closed(RemoteProtocolError, rule="R-42") << ErrorMessage


def test_an_early_acknowledgement_of_an_open_request() -> None:
    """OUT_FIN: the response is there before the request has ended."""
    play = talking().on(lambda s: s.finish(1, ack=True)) << data(eof=True, ack=True)
    play >> ACK << Acknowledged(1, True)


def test_shutting_down_waits_for_the_acknowledgement() -> None:
    play = acking().do(lambda engine: engine.close(0.0, drain=True)).quiet()
    play >> ACK << Acknowledged(1, True) << ev.Closed(None)
    play.forget()


# -- what a client must not say -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "rule"),
    [
        (data(b"x", id=9), "R-20"),
        (more(1, id=9), "R-39"),
        (abort(id=9), "3.4"),
        (ACK.__class__(session=9), "R-42"),
        (opening(), "R-19"),
        (CLOSE, "R-17"),
        (data(close=True, eof=True), "R-17"),
        (data(ack=True, eof=True), "R-17"),
        (abort(partial=True), "D-12"),
    ],
)
def test_violations_of_a_client(said: Abort, rule: str, mode: str) -> None:
    """SI-18."""
    talking(mode) >> said << ev.Failed << closed(RemoteProtocolError, rule=rule) << ErrorMessage


def test_lenient_partial() -> None:
    """I-11: the Java original."""
    talking(dialect=Dialect(lenient_partial=True)) >> abort(partial=True) << ev.Failed << abort(partial=True)


# -- time -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sessions", [True, False])
def test_FL_08_a_session_without_data(sessions: bool) -> None:
    """FL-08: JABT(false) if the handler was never entered."""
    play = server(sessions=sessions, ping_interval=0) >> opening()
    play.forget()
    assert play.engine.deadline == 300
    play.now = 100.0
    play >> data(b"x")
    play.forget().at(300).quiet()
    assert play.engine.deadline == 400
    play.at(400)
    if sessions:
        play << failed(1, SessionAborted, message="session-idle")
    play << abort(partial=sessions, detail="session-idle")


def test_sessions_that_may_be_idle() -> None:
    play = server(limits=Limits.trusted(), ping_interval=0) >> opening()
    assert play.engine.deadline is None


def test_FC_17_a_session_without_increments() -> None:
    """FC-17: JABT(true) after 60 s."""
    play = asked(ration=1, ping_interval=0).do(lambda engine: engine.send(1, [b"x" * 257], complete=True))
    play << data(b"x" * 256)
    play.at(0).at(59).quiet().at(60) << failed(1, SessionAborted, message="session-stall")
    play << abort(partial=True, detail="session-stall")
    play.at(90).quiet()
    assert play.engine.deadline == 60 + 300  # ABORTED(f) needs no answer: the connection is idle


def test_closing_with_one_that_is_over() -> None:
    play = asked().on(lambda s: s.finish(1)) << data(eof=True, close=True)
    play >> opening(b"r", id=1, eof=True) << ev.Opened
    play.do(lambda engine: engine.close(0.0)) << failed(2, SessionAborted) << ev.Closed << abort(1, True, "closed")


def test_beginning_and_releasing_send_nothing() -> None:
    """Only the response's end lets go of the rest of a request; at a client there are no handlers."""
    play = server() >> opening(b"q") << SessionOpened(1) << Readable(1, 1)
    for stream in (1, 99):
        play.do(lambda engine, stream=stream: engine.begin(stream)).quiet()  # type: ignore[misc]
        play.do(lambda engine, stream=stream: engine.release(stream)).quiet()  # type: ignore[misc]
    play = client()
    play.do(lambda engine: engine.begin(1)).quiet().do(lambda engine: engine.release(1)).quiet()
