"""Headers, Ping, NoOperation, Shutdown, Error and time: what is about the connection and no session."""

from __future__ import annotations

import pytest

from afflux.core import events as ev
from afflux.core.errors import ConnectionClosed, LimitExceeded, LocalProtocolError, RemoteProtocolError, Unsupported
from afflux.core.events import Readable
from afflux.core.limits import Limits
from afflux.core.payload import Payload
from afflux.protocols.jmux import Engine
from afflux.protocols.jmux.budget import MOST_OFFERED
from afflux.protocols.jmux.dialect import Dialect
from afflux.protocols.jmux.entry import refusal
from afflux.protocols.jmux.errors import SessionAborted, SessionLost, SessionRejected
from afflux.protocols.jmux.frames import (
    ClientConnectionHeader,
    Data,
    ErrorMessage,
    NoOperation,
    Ping,
    Shutdown,
)

from .playbook import (
    HELLO,
    WELCOME,
    Playbook,
    abort,
    bye,
    client,
    closed,
    data,
    error,
    failed,
    ignored,
    opening,
    ping,
    pong,
    server,
)

# -- headers --------------------------------------------------------------------------------------------------


def test_R_1_the_client_speaks_first_and_waits(mode: str) -> None:
    """R-1, R-5: its header offers 32,768 bytes, and nothing else leaves before the server's header is there."""
    play = Playbook(Engine("client"), mode) << HELLO
    play.do(lambda engine: engine.open("request", b"hi")).quiet()
    play >> WELCOME << ev.Established(WELCOME) << opening(b"hi", eof=True)


def test_R_2_the_server_waits_for_the_client(mode: str) -> None:
    play = Playbook(Engine("server"), mode).quiet()
    play >> HELLO << WELCOME << ev.Established(HELLO)
    assert play.engine.byte_sessions.first_ration == 32768


def test_R_4_initial_rations() -> None:
    """R-4, HS-22: 0 is without end."""
    assert client(ration=1).engine.byte_sessions.first_ration == 256
    assert client(ration=0).engine.byte_sessions.first_ration is None
    assert Engine("client").byte_sessions.first_ration is None


@pytest.mark.parametrize(("bytes", "field"), [(256, 1), (0xFFFF00, 0xFFFF), (0x1000000, 0xFFFF)])
def test_R_5_what_is_offered(bytes: int, field: int) -> None:
    """R-5, D-2: a multiple of 256 of at most 0xFFFF00, never 0."""
    limits = Limits.trusted(ration_bytes=bytes, ration_max_bytes=bytes, connection_bytes=1 << 32)
    play = Playbook(Engine("client", limits=limits)) << ClientConnectionHeader(initial_ration=field)
    assert play.engine.sessions.rations.initial == min(bytes, MOST_OFFERED)


BAD = ["00", "4b", "4a6d7579", "4a6d757800", "4a6d7578010080 02", "4a6d7578010080 80", "4a6d757802008000"]


@pytest.mark.parametrize("bad", BAD)
def test_R_3_a_bad_client_header(bad: str, mode: str) -> None:
    """R-3, D-1, I-1, HS-19: header, Error, close; at the first wrong byte."""
    play = Playbook(Engine("server"), mode) >> bytes.fromhex(bad)
    play << closed(RemoteProtocolError, rule="R-3") << WELCOME << ErrorMessage


@pytest.mark.parametrize("bad", [*BAD, "4a6d757802008001", "4a6d757801008001"])
def test_HS_20_a_bad_server_header(bad: str, mode: str) -> None:
    """HS-20: pending calls are retry-safe."""
    play = Playbook(Engine("client"), mode) << HELLO
    play.do(lambda engine: engine.open("request", b"hi"))
    play >> bytes.fromhex(bad) << failed(1, SessionRejected) << closed(RemoteProtocolError, rule="R-3") << ErrorMessage


@pytest.mark.parametrize("good", ["4a6d757801008001", "4a6d757802008001", "4a6d7578ff000001"])
def test_D_1_negotiation_is_tolerated(good: str, mode: str) -> None:
    """I-4."""
    play = Playbook(Engine("server"), mode) >> bytes.fromhex(good) << WELCOME << ev.Established
    assert not play.engine.closed


@pytest.mark.parametrize("role", ["client", "server"])
@pytest.mark.parametrize("part", [b"", b"Jmu"])
def test_R_8_no_header_in_time(role: str, part: bytes) -> None:
    """R-8, HS-21."""
    play = Playbook(Engine(role, limits=Limits.tiny())).forget() >> part  # type: ignore[arg-type] # one of two
    assert play.engine.deadline == 5
    play.at(4.9).quiet().at(5) << closed(ConnectionClosed, message="handshake-timeout")
    assert play.engine.deadline is None


def test_the_end_before_a_header() -> None:
    play = Playbook(Engine("client")).forget().eof() << closed(ConnectionClosed)
    assert play.engine.tick(100.0) == []
    play = Playbook(Engine("client")).forget().do(lambda engine: engine.close(0.0)) << closed(ConnectionClosed)
    play = Playbook(Engine("server")).do(lambda engine: engine.close(0.0, drain=True)) << closed(ConnectionClosed)


def test_R_6_the_server_may_go_on_at_once(mode: str) -> None:
    play = Playbook(Engine("client"), mode) << HELLO
    play >> (WELCOME, ping(7), NoOperation(data=b"xx")) << ev.Established << pong(7)


# -- Ping and NoOperation -------------------------------------------------------------------------------------


@pytest.mark.repetitive
def test_R_12_nothing_is_skipped(mode: str) -> None:
    server(mode) >> (NoOperation(), NoOperation(data=b"x" * 65_535)) << ignored(16, "R-12")


def test_NoOperation_is_bounded() -> None:
    play = server(limits=Limits.tiny())
    for _ in range(200):
        play >> NoOperation(data=b"x" * 4092) << ignored(1, "R-12")
    play >> NoOperation(data=b"x" * 4092) << ignored(1, "R-12")
    play << closed(RemoteProtocolError, message="protocol-abuse") << error("protocol-abuse")


def test_own_NoOperation() -> None:
    """I-10: with data only where it was asked for."""
    play = client().on(lambda s: s.no_operation()) << NoOperation()
    with pytest.raises(LocalProtocolError, match="noop_data"):
        play.engine.byte_sessions.no_operation(b"x")
    client(dialect=Dialect(noop_data=True)).on(lambda s: s.no_operation(b"x")) << NoOperation(data=b"x")
    with pytest.raises(ConnectionClosed):
        Engine("server").byte_sessions.no_operation()


def test_R_13_every_ping_is_answered(mode: str) -> None:
    """R-13, KA-08: in order."""
    play = client(mode) >> tuple(ping(cookie) for cookie in (0, 65_535, 7, 7))
    for cookie in (0, 65_535, 7, 7):
        play << pong(cookie)


def test_KA_08_a_flood_of_pings() -> None:
    play = server(limits=Limits.tiny()) >> (ping(1),) * 20
    play.forget() >> ping(1) << closed(RemoteProtocolError, message="keepalive-flood") << error("keepalive-flood")


def test_unread_answers_stop_the_reading() -> None:
    """KA-08: and the peer's time stands still meanwhile."""
    engine = server(limits=Limits.trusted(control_replies=3)).engine
    engine.receive(ping(1).encode() * 3, 0.0)
    assert not bool(engine.wants_read)
    engine.tick(20.0)
    engine.receive(b"\x80", 50.0)
    assert engine.tick(60.0) == []
    assert engine.deadline == 60.0 + 20
    engine.outgoing()
    assert bool(engine.wants_read)
    assert engine.tick(61.0) == []
    assert engine.deadline == 61.0 + 20


def test_a_ping_waits_while_this_side_does_not_read() -> None:
    engine = server(limits=Limits.trusted(control_replies=3), ping_interval=5).engine
    engine.tick(5.0)
    assert engine.deadline == 5.0 + engine.limits.ping_s
    engine.receive(ping(1).encode() * 3, 6.0)
    engine.tick(50.0)
    assert engine.deadline == 50.0 + engine.limits.ping_s


def test_R_14_an_answer_without_a_question(mode: str) -> None:
    server(mode) >> pong(1) << closed(RemoteProtocolError, rule="R-14") << ErrorMessage
    play = client(mode).at(20) << Ping(cookie=1)
    play >> pong(2) << closed(RemoteProtocolError, rule="R-14") << ErrorMessage
    play = client(mode).at(20) << Ping(cookie=1)
    play >> (pong(1), pong(1)) << closed(RemoteProtocolError, rule="R-14") << ErrorMessage


def test_silence_is_asked_after() -> None:
    """3.1, I-5: Ping on idleness, and the answer shows life."""
    play = client()
    assert play.engine.deadline == 20
    play.at(19).quiet().at(20) << Ping(cookie=1)
    play.now = 25.0
    play >> pong(1)
    assert play.engine.deadline == 45
    play.at(45) << Ping(cookie=2)


@pytest.mark.parametrize("role", ["client", "server"])
def test_KA_10_no_answer_to_a_ping(role: str) -> None:
    """KA-10, JA-03: the connection is given up after 30 s; sessions may have been processed."""
    play = client() if role == "client" else server()
    if role == "client":
        play.do(lambda engine: engine.open("request", b"x")) << Data
    play.at(20) << Ping(cookie=1)
    assert play.engine.deadline == 50
    play.at(50)
    if role == "client":
        play << failed(1, SessionLost, may_have_been_processed=True)
    play << closed(ConnectionClosed, message="ping-timeout")


def test_TM_03_this_side_slept() -> None:
    """A look that comes late gives the peer another second."""
    play = client().at(20) << Ping
    play.at(60).quiet()
    assert play.engine.deadline == 61
    play.at(61) << closed(ConnectionClosed, message="ping-timeout")


def test_TM_03_a_side_that_is_always_late_gives_up_as_well() -> None:
    """The other second comes once for each silence, however late the next look is."""
    play = client().at(20) << Ping
    play.at(60).quiet().at(120) << closed(ConnectionClosed, message="ping-timeout")


def test_no_pings() -> None:
    assert client(ping_interval=0).engine.deadline is None


def test_D_3_an_idle_connection() -> None:
    """D-3: a server shuts down a connection without sessions."""
    play = server(ping_interval=0)
    assert play.engine.deadline == 300
    play.at(299).quiet().at(300) << closed(ConnectionClosed, message="idle") << Shutdown(detail=b"idle")
    assert server(limits=Limits.trusted(), ping_interval=0).engine.deadline is None


def test_the_idle_time_begins_with_the_last_session() -> None:
    play = server(ping_interval=0)
    play.now = 100.0
    play >> opening(eof=True)
    play.forget().on(lambda s: s.finish(1)).forget()
    play.at(200).quiet()
    assert (play.engine.deadline or 0) >= 400


def test_FR_05_half_a_message() -> None:
    """FR-05, R-8: a message that takes too long is a violation, each new one has its own time."""
    play = server(limits=Limits.tiny(), ping_interval=0) >> data(b"xx", open=True).encode()[:3]
    play.now = 5.0
    play >> b"\x02"
    assert play.engine.deadline == 10
    play.at(10) << closed(RemoteProtocolError, message="frame-timeout") << error("frame-timeout")


# -- endings --------------------------------------------------------------------------------------------------


def asking(mode: str = "whole", **options: object) -> Playbook:
    """A client with a request under way."""
    return client(mode, **options).do(lambda engine: engine.open("request", b"q")) << opening(b"q", eof=True)  # type: ignore[arg-type] # options of an engine


def test_JA_01_the_server_shuts_down(mode: str) -> None:
    """JA-01, R-7, 3.5: retry-safe; nothing more is read."""
    play = asking(mode) >> (bye("gone"), data(b"late"))
    play << ev.Draining("gone") << failed(1, SessionRejected, may_have_been_processed=False, message="gone")
    play << closed(ConnectionClosed, message="gone")


def test_JA_01_without_words() -> None:
    asking() >> bye() << ev.Draining("the server has shut down") << ev.Failed << ev.Closed


def test_JA_02_the_server_finds_an_error(mode: str) -> None:
    """JA-02, 3.5: not retry-safe."""
    play = asking(mode) >> error("bad") << failed(1, SessionLost, may_have_been_processed=True, message="bad")
    play << closed(ConnectionClosed, rule="R-7")
    asking() >> error() << ev.Failed << closed(ConnectionClosed, message="the peer has found a protocol violation")


def test_JA_03_the_connection_is_lost() -> None:
    """JA-03, 3.5, I-3: a bare close is not more than that."""
    asking().eof() << failed(1, SessionLost, may_have_been_processed=True) << closed(ConnectionClosed, rule="3.5")


def test_3_5_what_is_complete_is_kept() -> None:
    play = client().on(lambda s: s.open_session(b"q")) << opening(b"q")
    play >> data(b"answer", eof=True) << Readable(1, 6, True)
    play.eof() << closed(ConnectionClosed)
    assert play.engine.byte_sessions.read(1) == b"answer"
    assert play.engine.byte_sessions.read(1) == b""


def test_3_5_what_was_never_written_is_safe() -> None:
    play = client(limits=Limits.tiny(sessions=1), max_wait_for_id=60)
    assert play.engine.ask([Payload(b"1"), Payload(b"2")]) == [1, 2]
    play.do(lambda engine: None) << Data
    play.eof() << failed(1, SessionLost) << failed(2, SessionRejected, may_have_been_processed=False) << ev.Closed


def test_closing_a_client() -> None:
    """3.1: as the stream's end."""
    play = asking().do(lambda engine: engine.close(0.0, reason="enough"))
    play << failed(1, SessionLost, message="enough") << closed(ConnectionClosed, message="enough")
    assert play.engine.close(1.0) == []
    with pytest.raises(ConnectionClosed, match="closed"):
        play.engine.open("request", b"")


def test_JA_07_closing_a_server_that_works() -> None:
    """JA-07, R-30: no Shutdown while something may have been processed; each session is aborted with the truth."""
    play = server(sessions=False) >> (opening(b"q", eof=True), opening(b"q", id=1)) << ev.Opened
    play.do(lambda engine: engine.close(0.0, reason="enough"))
    play << failed(1, SessionAborted) << closed(ConnectionClosed, message="enough")
    play << abort(0, True, "enough") << abort(1, False, "enough")


def test_R_30_closing_a_server_that_has_done_nothing() -> None:
    play = server(sessions=False) >> opening(b"q")
    play.do(lambda engine: engine.close(0.0, reason="enough")) << closed(ConnectionClosed) << bye("enough")


def test_draining() -> None:
    """APP_DRAIN: no new sessions, Shutdown after the last."""
    play = server(sessions=False) >> opening(b"q", eof=True) << ev.Opened
    play.do(lambda engine: engine.close(0.0, drain=True, reason="later")).quiet()
    play >> opening(b"r", id=1, eof=True) << ignored(1, "REJECTED") << abort(1, False, "the server is closing")
    play.do(lambda engine: engine.close(0.0, drain=True, reason="later")).quiet()
    play.do(lambda engine: engine.send(1, [b"a"], complete=True)) << data(b"a", eof=True, close=True)
    assert play.engine.deadline == 0.0
    play.at(1) << ev.Closed(None) << bye("later")


def test_a_client_drains_before_the_header() -> None:
    """What was asked already is asked and answered; without anything it closes at once."""
    play = Playbook(Engine("client")) << ClientConnectionHeader
    play.do(lambda engine: engine.open("request", b"q")).do(lambda engine: engine.close(0.0, drain=True)).quiet()
    with pytest.raises(ConnectionClosed, match="draining") as caught:
        play.engine.open("request", b"")
    assert not caught.value.may_have_been_processed
    play >> WELCOME << ev.Established << opening(b"q", eof=True)
    play >> data(b"a", eof=True, close=True) << ev.Items(1, [Payload(b"a")], True) << ev.Closed(None)
    play = Playbook(Engine("client")) << ClientConnectionHeader
    play.do(lambda engine: engine.close(0.0, drain=True)) << closed(ConnectionClosed)


def test_a_client_drains() -> None:
    play = asking().do(lambda engine: engine.close(0.0, drain=True)).quiet()
    with pytest.raises(ConnectionClosed, match="draining"):
        play.engine.open("request", b"")
    play >> data(b"a", eof=True, close=True) << ev.Items << ev.Closed(None)
    client().do(lambda engine: engine.close(0.0, drain=True)) << ev.Closed(None)


def test_SL_03_the_client_ends_its_half() -> None:
    """SL-03, 3.2, I-2: the responses are finished, incomplete requests are over."""
    play = server() >> (opening(b"q", eof=True), opening(b"q", id=1), opening(b"q", id=2, eof=True))
    play.forget().on(lambda s: s.finish(3)).forget()
    play.eof() << failed(2, SessionAborted) << abort(1, True, "the client has ended its half")
    assert play.engine.receive(b"xxxx", 0.0) == []
    play.on(lambda s: s.write(1, b"answer")) << data(b"answer")
    play.on(lambda s: s.finish(1)) << data(eof=True, close=True)
    play.at(0.0) << ev.Closed(None)


def test_SL_03_no_stream_can_continue() -> None:
    """What waits for a ration that can not come has its time."""
    play = server(ration=1, ping_interval=0) >> opening(b"q", eof=True)
    play.forget().on(lambda s: s.write(1, b"x" * 256)) << Data
    play.eof().quiet()
    play.at(0.0).quiet()
    assert play.engine.deadline == 60
    (
        play.at(60)
        << failed(1, SessionAborted, message="session-stall")
        << ev.Closed(None)
        << abort(0, True, "session-stall")
    )


def test_the_transport_is_gone_twice() -> None:
    play = server() >> opening(b"q", eof=True)
    play.forget().eof().quiet()
    play.eof() << failed(1, ConnectionClosed) << closed(ConnectionClosed)
    assert play.engine.receive_eof(0.0) == []


def test_R_31_a_client_sends_shutdown(mode: str) -> None:
    play = server(mode) >> bye() << closed(RemoteProtocolError, rule="R-31")
    play << error("Shutdown from a client")


def test_the_server_gets_an_error() -> None:
    """3.2: sessions fail, and no handler works on."""
    play = server() >> opening(b"q")
    play.forget() >> error("no") << failed(1, ConnectionClosed, message="no") << closed(ConnectionClosed, message="no")


def test_good_messages_before_a_bad_one_are_reported() -> None:
    play = server(sessions=False) >> (opening(b"q", eof=True), b"\xff\0\0\0")
    play << ev.Opened(1, "request", Payload(b"q"), 1, True) << failed(1, RemoteProtocolError)
    play << closed(RemoteProtocolError, rule="R-9") << error("no message begins with 0xFF")


@pytest.mark.parametrize(
    ("bad", "rule"),
    [
        ("00010000", "R-10"),
        ("04010000", "R-10"),
        ("9080", "R-11"),
        ("10ff0000", "R-11"),
        ("40000001", "R-10"),
        ("11000000", "R-9"),
        ("9a000000", "R-17"),
        ("22000000", "D-12"),
    ],
)
def test_bad_messages(bad: str, rule: str, mode: str) -> None:
    """FR-22, FR-23: decided by four bytes."""
    play = server(mode) >> bytes.fromhex(bad.ljust(8, "0")) << closed(RemoteProtocolError, rule=rule) << ErrorMessage
    assert play.engine.queued == 0


def test_ids_up_to_255() -> None:
    """I-14: JGDMS."""
    play = server(dialect=Dialect(max_session_id=255)) >> opening(id=255)
    assert not play.engine.closed
    assert play.engine.byte_sessions.session_id(1) == 255


def test_words_are_bounded() -> None:
    limits = Limits.tiny()
    play = server(limits=limits, sessions=False).do(lambda engine: engine.close(0.0, reason="x" * 10_000)) << ev.Closed
    play << Shutdown(detail=b"x" * limits.error_text_bytes[0])


# -- what jmux does not have ----------------------------------------------------------------------------------


def test_verbs_that_are_not_there() -> None:
    play = client()
    engine = play.engine
    for verb in ("fire", "stream", "channel"):
        with pytest.raises(Unsupported, match=f"no {verb}"):
            engine.open(verb, b"")
    with pytest.raises(Unsupported, match="metadata"):
        engine.open("request", Payload(b"", b"route"))
    with pytest.raises(Unsupported, match="support push"):
        engine.push(b"")
    with pytest.raises(Unsupported, match="counts bytes"):
        engine.request(1, 1)
    with pytest.raises(Unsupported, match="only the client"):
        server().engine.open("request", b"")
    with pytest.raises(LocalProtocolError, match="no decision"):
        engine.accept(0.0)
    with pytest.raises(LocalProtocolError, match="no decision"):
        engine.refuse("no", 0.0)
    with pytest.raises(LocalProtocolError, match="1 to 65535"):
        Engine("client", fragment=0)
    play.quiet()


def test_asking_for_several_at_once() -> None:
    play = client(limits=Limits.tiny(sessions=2))
    assert play.engine.ask([Payload(b"1"), Payload(b"2"), Payload(b"3")]) == [1, 2]
    with pytest.raises(LimitExceeded, match="open another connection"):
        play.engine.ask([Payload(b"4")])
    play.do(lambda engine: None) << opening(b"1", eof=True) << opening(b"2", id=1, eof=True)


def test_answering_several_at_once() -> None:
    play = server(sessions=False) >> (opening(b"1", eof=True), opening(b"2", id=1, eof=True)) << ev.Opened << ev.Opened
    play.do(lambda engine: engine.answer([1, 2, 9], [Payload(b"a"), Payload(b"b"), Payload(b"c")]))
    play << data(b"a", eof=True, close=True) << data(b"b", id=1, eof=True, close=True)


def test_the_answer_to_a_refused_connection() -> None:
    """A listener that takes no more says that nothing was processed: calls are safe to repeat."""
    play = Playbook(Engine("client", max_wait_for_id=30)).forget()
    play.engine.open("request", b"q")
    play >> refusal("connections=1") << ev.Established << ev.Draining("connections=1")
    play << (ev.Failed, {"error.may_have_been_processed": False}) << ev.Closed
