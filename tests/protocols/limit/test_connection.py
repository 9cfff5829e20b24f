"""Connections of Limit-Stream: SETUP, decisions, what is skipped, violations, endings, timeouts."""

from __future__ import annotations

from typing import Any

import pytest

from afflux.core import events as ev
from afflux.core.errors import (
    ApplicationError,
    ConnectionClosed,
    LimitExceeded,
    LocalProtocolError,
    Rejected,
    RemoteProtocolError,
    SetupRefused,
    Unsupported,
)
from afflux.core.limits import Limits
from afflux.core.payload import Payload
from afflux.core.terms import Terms
from afflux.protocols.limit import Engine, Opening, Unchecked, Value
from afflux.protocols.limit.entry import ENTRY, make
from afflux.protocols.limit.frames import End, Ext, LimitFrame, Setup
from afflux.transports.address import parse

from .playbook import (
    SKIPPED,
    Mode,
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
    types,
)

TINY = Limits.tiny()


def skipped(engine_says: bytes = SKIPPED) -> bytes:
    return LimitFrame.PREFIX.join(engine_says)


# -- SETUP --------------------------------------------------------------------------------------------------------


def test_R_25_a_session_begins_with_SETUP(mode: Mode) -> None:
    """R-26: messages may follow directly."""
    play = client(mode)
    play.do(lambda engine: engine.open("channel", Payload(b"data", b"name"), credit=1)) << setup(b"name", b"data")
    play.do(lambda engine: engine.send(1, [b"x"])) << item(1, b"x")
    play = server(mode) >> (setup(b"name", b"data"), item(1, b"x")) << ev.Established(setup(b"name", b"data"))
    play << (ev.Opened, {"stream": 1, "verb": "channel", "payload": Payload(b"data", b"name"), "complete": False})
    play.quiet()


def test_R_25_one_session_at_a_time(mode: Mode) -> None:
    play = summing("client", mode)
    with pytest.raises(LimitExceeded, match="one session at a time") as caught:
        play.engine.open("channel", Opening("sum"), credit=1)
    assert caught.value.rule == "R-25"
    play.quiet()
    play = summing("server", mode) >> setup() << failed(1, RemoteProtocolError, rule="R-25")
    play << closed(RemoteProtocolError, rule="R-25") << error(0, 0x101, b"SETUP is not legal here")


@pytest.mark.parametrize("frame", [setup(None), setup(b""), setup(b"\xff"), Setup(stream=3, metadata=b"sum")])
@pytest.mark.parametrize("earlier", [False, True])
def test_HS_03_a_SETUP_that_names_no_channel(mode: Mode, frame: Setup, earlier: bool) -> None:
    """D-7."""
    play = server(mode)
    if earlier:
        play >> (setup(), error(2, 0x201)) << ev.Established << ev.Opened << ev.Failed
    play >> frame << closed(RemoteProtocolError, rule="HS-02") << error(0, 0x001, b"SETUP needs the name of a channel")


@pytest.mark.parametrize(
    "frame", [number(1, 1), choose(1, 0), End(), error(0, 0x101), error(2, 0x201)], ids=lambda frame: frame.NAME
)
def test_HS_02_another_frame_before_SETUP(mode: Mode, frame: LimitFrame) -> None:
    play = server(mode) >> frame << closed(RemoteProtocolError, rule="HS-02")
    play << error(0, 0x001, f"{frame.NAME} before SETUP".encode())


@pytest.mark.parametrize("earlier", [False, True])
def test_an_unknown_channel_is_rejected(mode: Mode, earlier: bool) -> None:
    play = server(mode, channels=types(False))
    if earlier:
        play >> (setup(), error(2, 0x201)) << ev.Established << ev.Opened << ev.Failed
    play >> setup(b"other") << closed(ConnectionClosed, rule="3.1") << error(0, 0x003, b"unknown channel")
    play = client(mode, channels=types(True))
    with pytest.raises(LocalProtocolError, match='unknown channel "other"'):
        play.engine.open("channel", Opening("other"), credit=1)
    play.quiet()


@pytest.mark.parametrize(
    ("problem", "text"), [(Rejected("not you"), b"not you"), (KeyError("secret"), b"application error")]
)
def test_types_may_refuse_a_channel(mode: Mode, problem: Exception, text: bytes) -> None:
    def channels(name: str) -> Any:
        raise problem

    play = server(mode, channels=channels) >> setup() << closed(ConnectionClosed) << error(0, 0x003, text)
    play.quiet()


@pytest.mark.parametrize("name", [b"", b"\xff", b"x" * (TINY.connection_metadata_bytes + 1)])
def test_a_session_needs_the_name_of_a_channel(name: bytes) -> None:
    play = client(limits=TINY)
    with pytest.raises(LocalProtocolError, match="channel's name"):
        play.engine.open("channel", Payload(b"", name), credit=1)


def test_a_name_that_is_too_long(mode: Mode) -> None:
    most = b"x" * TINY.connection_metadata_bytes
    server(mode, TINY) >> setup(most) << ev.Established << ev.Opened
    play = server(mode, TINY) >> setup(most + b"x") << closed(ConnectionClosed)
    play << error(0, 0x003, b"metadata-too-large: connection_metadata_bytes=4096")


def test_a_client_waits_for_nothing() -> None:
    """Its application may open a session immediately."""
    play = client()
    play.do(lambda engine: engine.open("channel", b"x", credit=1)) << setup(b"plain", b"x")


@pytest.mark.parametrize(
    ("role", "verb"), [("client", "request"), ("client", "stream"), ("client", "fire"), ("server", "channel")]
)
def test_there_is_no_other_verb(role: Any, verb: Any) -> None:
    with pytest.raises(Unsupported, match=f"limit has no {verb}"):
        Engine(role).open(verb, b"", credit=1)


# -- decisions ----------------------------------------------------------------------------------------------------


def test_the_application_decides(mode: Mode) -> None:
    play = server(mode, decide=True) >> (setup(), item(1, b"x")) << ev.Established
    play.quiet()
    play.do(lambda engine: engine.accept(0.0)) << ev.Opened
    play.do(lambda engine: engine.request(1, 9)).at(0.0) << ev.Items
    with pytest.raises(LocalProtocolError, match="nothing to decide"):
        play.engine.accept(0.0)
    play >> (error(2, 0x201), setup()) << ev.Failed << ev.Opened


def test_the_application_refuses(mode: Mode) -> None:
    play = server(mode, decide=True) >> (setup(), item(1, b"x")) << ev.Established
    play.do(lambda engine: engine.refuse("not you", 0.0)) << closed(ConnectionClosed) << error(0, 0x003, b"not you")
    play.do(lambda engine: engine.accept(0.0)).quiet()
    play.do(lambda engine: engine.refuse("again", 0.0)).quiet()


@pytest.mark.parametrize("drain", [False, True])
def test_closing_refuses(mode: Mode, drain: bool) -> None:
    play = server(mode, decide=True) >> setup() << ev.Established
    play.do(lambda engine: engine.close(0.0, drain=drain, reason="bye")) << closed(ConnectionClosed)
    play << error(0, 0x003, b"bye")


def test_HS_16_what_waits_for_the_decision_is_bounded() -> None:
    engine = Engine("server", limits=TINY, decide=True)
    engine.receive(setup().encode(prefixed=True), 0.0)
    while engine.wants_read:
        engine.receive(bytes(1000), 0.0)
    assert engine.held_bytes <= TINY.first_frame_bytes + 1000
    assert isinstance(engine.accept(0.0)[-1], ev.Closed)


def test_a_decision_that_never_comes(mode: Mode) -> None:
    play = server(mode, decide=True) >> setup() << ev.Established
    assert play.engine.deadline == 10
    play.at(9.9).quiet()
    play.at(10.0) << closed(ConnectionClosed, rule="handshake_s")
    play << error(0, 0x003, b"handshake-timeout")


def test_the_end_before_the_decision(mode: Mode) -> None:
    play = server(mode, decide=True) >> setup() << ev.Established
    play.eof() << ev.Closed(None)
    play.do(lambda engine: engine.accept(0.0)).quiet()


def test_what_waited_for_the_decision_may_be_wrong(mode: Mode) -> None:
    play = server(mode, decide=True) >> (setup(), item(7, b"x")) << ev.Established
    play.do(lambda engine: engine.request(1, 1))
    play.do(lambda engine: engine.accept(0.0)) << ev.Opened
    play.do(lambda engine: engine.request(1, 2)).at(0.0) << failed(1, RemoteProtocolError, rule="R-21")
    play << closed(RemoteProtocolError, rule="R-21") << error(0, 0x101)


# -- what is not understood ---------------------------------------------------------------------------------------

UNKNOWN = bytes.fromhex("000000001400")
"A frame of type 0x05."


@pytest.mark.parametrize("role", ["client", "server"])
def test_R_8_FR_13_what_is_not_understood(mode: Mode, role: str) -> None:
    """D-11: both sides react."""
    for frame in (UNKNOWN, Ext(stream=5, extended_type=7).encode()):
        play = summing(role, mode)
        play >> LimitFrame.PREFIX.join(frame) << failed(1, RemoteProtocolError, rule="R-8")
        play << closed(RemoteProtocolError, rule="R-8", code=0x101) << error(0, 0x101)


@pytest.mark.parametrize("role", ["client", "server"])
def test_R_8_what_may_be_ignored_is_skipped(mode: Mode, role: str) -> None:
    """R-10: and so is a length of metadata that is wrong."""
    play = summing(role, mode)
    play >> skipped() << ignored(1, "R-8")
    play >> skipped(bytes.fromhex("000000001600")) << ignored(1, "R-8")
    play >> skipped(bytes.fromhex("00000001 2b00 000009 01")) << ignored(1, "R-10")
    play.quiet()


def test_R_8_before_the_first_session(mode: Mode) -> None:
    play = server(mode) >> skipped() << ignored(1, "R-8")
    play >> LimitFrame.PREFIX.join(UNKNOWN) << closed(RemoteProtocolError, rule="R-8", code=0x001) << error(0, 0x001)


def test_R_10_FG_14_a_length_that_lies(mode: Mode) -> None:
    play = summing("server", mode)
    play >> LimitFrame.PREFIX.join(bytes.fromhex("00000001 2900 ffffff 01"))
    play << failed(1, RemoteProtocolError, rule="R-10") << closed(RemoteProtocolError, rule="R-10") << error(0, 0x101)


def test_FG_19_bytes_behind_the_end_of_a_frame(mode: Mode) -> None:
    play = summing("server", mode) >> LimitFrame.PREFIX.join(End().encode() + b"x")
    play << ev.Failed << closed(RemoteProtocolError, rule="R-10") << error(0, 0x101, b"END is followed by 1 bytes")


@pytest.mark.parametrize("frame", [setup(), setup(None)])
@pytest.mark.parametrize("opened", [False, True])
def test_a_server_opens_no_session(mode: Mode, frame: Setup, opened: bool) -> None:
    play = summing("client", mode) if opened else client(mode)
    play >> frame
    if opened:
        play << ev.Failed
    play << closed(RemoteProtocolError, rule="R-25") << error(0, 0x101, b"SETUP is not legal here")


@pytest.mark.parametrize("frame", [number(2, 1), End(), error(1, 0x201)], ids=lambda frame: frame.NAME)
def test_a_server_sends_nothing_before_SETUP(mode: Mode, frame: LimitFrame) -> None:
    play = client(mode) >> frame << closed(RemoteProtocolError) << error(0, 0x101, f"{frame.NAME} is not".encode())
    play.quiet()


# -- the end ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ["client", "server"])
def test_an_error_of_the_connection(mode: Mode, role: str) -> None:
    play = summing(role, mode) >> error(0, 0x101, b"enough")
    play << failed(1, ConnectionClosed, code=0x101, message="enough") << closed(ConnectionClosed, code=0x101)


def test_a_refusal_reaches_the_client(mode: Mode) -> None:
    play = summing("client", mode) >> error(0, 0x003, b"unknown channel")
    play << failed(1, SetupRefused, may_have_been_processed=False) << closed(SetupRefused, message="unknown channel")
    play = client(mode) >> error(0, 0x003, b"too-many-connections") << closed(SetupRefused)


@pytest.mark.parametrize("role", ["client", "server"])
def test_closing_fails_the_session(mode: Mode, role: str) -> None:
    play = summing(role, mode)
    play.do(lambda engine: engine.close(0.0)) << failed(1, ConnectionClosed) << ev.Closed(None)


@pytest.mark.parametrize("role", ["client", "server"])
def test_the_transport_is_lost(mode: Mode, role: str) -> None:
    play = summing(role, mode)
    play.eof() << failed(1, ConnectionClosed) << closed(ConnectionClosed)


def test_the_transport_ends_between_sessions(mode: Mode) -> None:
    play = server(mode) >> (setup(), error(2, 0x201)) << ev.Established << ev.Opened << ev.Failed
    play.eof() << ev.Closed(None)
    client(mode).eof() << ev.Closed(None)


def test_draining_waits_for_the_session(mode: Mode) -> None:
    play = summing("server", mode).do(lambda engine: engine.close(0.0, drain=True)).quiet()
    play >> (number(1, 1), choose(3, 1), item(5, b"\x90")) << ev.Items
    play.forget()
    play.do(lambda engine: engine.send(1, [Value(3)])) << number(8, 3) << End()
    assert play.engine.deadline == 0.0
    play.at(0.0) << ev.Completed << ev.Canceled << ev.Closed(None)


def test_draining_ends_with_a_failed_session(mode: Mode) -> None:
    play = summing("server", mode).do(lambda engine: engine.close(0.0, drain=True)).quiet()
    play >> error(2, 0x201) << failed(1, ApplicationError) << ev.Closed(None)


def test_draining_opens_no_session(mode: Mode) -> None:
    play = summing("client", mode).do(lambda engine: engine.close(0.0, drain=True))
    with pytest.raises(ConnectionClosed, match="DRAINING") as caught:
        play.engine.open("channel", b"x", credit=1)
    assert not caught.value.may_have_been_processed
    play.do(lambda engine: engine.fail(1, ValueError())) << error(1, 0x201)
    with pytest.raises(ConnectionClosed, match="DRAINING"):
        play.engine.open("channel", b"x", credit=1)
    play.at(0.0) << ev.Closed(None)


@pytest.mark.parametrize("role", ["client", "server"])
def test_draining_without_a_session(role: Any) -> None:
    engine = Engine(role)
    assert isinstance(engine.close(0.0, drain=True)[-1], ev.Closed)


# -- time ---------------------------------------------------------------------------------------------------------


def test_HS_01_a_silent_client() -> None:
    play = server()
    assert play.engine.deadline == 10
    play.at(9.9).quiet()
    play.at(10.0) << closed(ConnectionClosed, rule="handshake_s")


@pytest.mark.parametrize("role", ["client", "server"])
def test_FR_05_a_frame_that_does_not_end(role: str) -> None:
    play = summing(role)
    data = number(1 if role == "server" else 2, 1).encode(prefixed=True)
    for second, octet in enumerate(data[:-1]):
        play.now = float(second)
        play >> bytes([octet])
    assert play.engine.deadline == 30
    play.at(29.9).quiet()
    play.at(30.0) << ev.Failed << closed(RemoteProtocolError, rule="frame_s") << error(0, 0x101, b"frame-timeout")


def test_an_idle_client_is_disconnected() -> None:
    play = server() >> setup() << ev.Established << ev.Opened
    assert play.engine.deadline is None
    play.now = 50.0
    play >> error(2, 0x201) << ev.Failed
    assert play.engine.deadline == 350
    play.at(349.9).quiet()
    play.at(350.0) << closed(RemoteProtocolError, rule="idle_s") << error(0, 0x101, b"idle: idle_s=300")


def test_a_client_has_no_idle_timeout() -> None:
    play = client()
    assert play.engine.deadline is None
    server(limits=Limits.trusted()) >> (setup(), error(2, 0x201)) << ev.Established << ev.Opened << ev.Failed


def test_time_without_reading_does_not_count() -> None:
    """A side that is full does not blame its peer."""
    engine = Engine("server", limits=TINY, channels=lambda name: Unchecked())
    engine.receive(setup().encode(prefixed=True), 0.0)
    engine.request(1, 1 << 20)
    for id in range(1, 2000, 2):
        engine.receive(item(id, bytes(1000)).encode(prefixed=True), 0.0)
        if not engine.wants_read:
            break
    engine.receive(item(id + 2, b"x").encode(prefixed=True)[:-1], 1.0)
    for now in (11.0, 21.0, 31.0):
        assert engine.tick(now) == []
    engine.consumed(1 << 20, 10_000)
    assert engine.wants_read
    assert engine.tick(40.0) == []
    assert engine.deadline == 50.0
    engine.consumed(0, 0)
    engine.receive(b"", 45.0)
    assert isinstance(engine.tick(50.0)[-1], ev.Closed)


# -- the row of the protocol ----------------------------------------------------------------------------------------


def test_R_2_a_message_of_a_transport_is_a_frame() -> None:
    """R-1, D-13: the version is not said anywhere."""
    assert ENTRY.framing is not None
    assert (ENTRY.framing.width, ENTRY.framing.inclusive) == (3, False)
    assert ENTRY.subprotocol == "limit-stream"


@pytest.mark.parametrize("option", ["explicit_first_choice", "reuse_ids"])
def test_R_18_options_of_an_address(option: str) -> None:
    """D-5: both are off."""
    assert parse("limit+tcp://h:1").terms == {}
    terms = Terms(**parse(f"limit+tcp://h:1?{option}=true").terms)
    assert dict(terms.own) == {option: True}
    make("client", terms, limits=Limits.server(), decide=False, now=0.0)
    assert Terms(**parse(f"limit+tcp://h:1?{option}=false").terms).own[option] is False
    with pytest.raises(ValueError, match="true or false"):
        parse(f"limit+tcp://h:1?{option}=yes")


@pytest.mark.parametrize("setup", [{"payload": Payload(b"x")}, {"metadata_mime": "x/y"}, {"data_mime": "x/y"}])
def test_there_is_no_setup_of_the_connection(setup: Any) -> None:
    with pytest.raises(Unsupported, match="no setup"):
        make("client", Terms(**setup), limits=Limits.server(), decide=False, now=0.0)
