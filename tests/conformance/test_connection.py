"""Establishment, liveness and closing, except leases and resumption. Rule numbers are RSocket's. R-11 to R-22."""

from __future__ import annotations

import pytest

from afflux.core import events as ev
from afflux.core.errors import ConnectionClosed, LocalProtocolError, RemoteProtocolError, SetupRefused
from afflux.core.limits import Limits
from afflux.protocols.rsocket import Engine, frames
from tests.hostile.peers import P, item, raw, serving, streaming
from tests.protocols.rsocket.playbook import Playbook, closed, error, failed, ignored, requester, responder, setup

RESUME = frames.Resume(token=b"t" * 16, last_received_server_position=0, first_available_client_position=0)


def test_R_11_the_client_starts_with_setup() -> None:
    client = Engine("client")
    client.open("request", b"at once")
    client.push(b"at once")
    first = frames.decode(client.outgoing(), 3)
    assert isinstance(first, frames.Setup)
    assert first.stream == 0
    server = Engine("server")
    assert server.outgoing() == b""


@pytest.mark.parametrize("frame", [setup(), RESUME], ids=lambda frame: frame.NAME)
def test_R_11_the_first_frame_is_on_stream_0(frame: frames.ConnectionFrame) -> None:
    wire = bytearray(frame.encode(prefixed=True))
    wire[6] = 5
    play = Playbook(Engine("server")) >> bytes(wire) << closed(RemoteProtocolError, code=0x001) << error(0, 0x001)
    play.quiet()


def test_R_11_nothing_is_served_behind_a_wrong_first_frame() -> None:
    wrong = (frames.RequestResponse(stream=1), setup(), frames.RequestResponse(stream=3))
    play = Playbook(Engine("server")) >> wrong << closed(RemoteProtocolError, rule="R-11") << error(0, 0x001)
    assert play.engine.closed
    play.quiet()


def test_R_12_a_client_asks_as_soon_as_setup_is_sent() -> None:
    """Nothing has come from the server yet, and nothing needs to."""
    client, server = Engine("client"), Engine("server")
    assert client.open("request", b"first") == 1
    events = server.receive(client.outgoing(), 0.0)
    assert [type(event) for event in events] == [ev.Established, ev.Opened]


def test_R_12_a_server_asks_as_soon_as_setup_is_accepted() -> None:
    play = Playbook(Engine("server", decide=True))
    with pytest.raises(ConnectionClosed, match="wait_first"):
        play.engine.open("request", b"")
    play >> setup() << ev.Established
    with pytest.raises(ConnectionClosed, match="deciding"):
        play.engine.open("request", b"")
    play.do(lambda engine: engine.accept(0.0))
    play.do(lambda engine: engine.open("request", b"x")) << frames.RequestResponse(stream=2, data=b"x")
    play.quiet()


@pytest.mark.parametrize("code", [0x001, 0x002, 0x003])
def test_R_14_a_refused_setup_serves_nothing(code: int) -> None:
    """The code is said, the connection closes, and requests that came along are never seen."""
    play = Playbook(Engine("server", decide=True)) >> (setup(), frames.RequestResponse(stream=1)) << ev.Established
    play.do(lambda engine: engine.refuse("no", 0.0, code)) << closed(ConnectionClosed, code=code)
    play << error(0, code, b"no")
    assert play.engine.closed
    assert play.engine.receive(frames.RequestResponse(stream=3).encode(prefixed=True), 0.0) == []
    play.quiet()


@pytest.mark.parametrize("code", [0x001, 0x002, 0x003])
def test_R_14_a_refused_client_fails_all_waiting_requests(code: int) -> None:
    """I-1: any of the three codes is a refusal, whatever was refused."""
    play = Playbook(Engine("client")) << frames.Setup
    play.do(lambda engine: engine.open("request", b"")) << frames.RequestResponse
    play.do(lambda engine: engine.open("stream", b"", credit=1)) << frames.RequestStream
    play >> frames.ErrorFrame(stream=0, code=code, data=b"no")
    play << failed(1, SetupRefused, code=code) << failed(3, SetupRefused, code=code) << closed(SetupRefused, code=code)
    play.quiet()


@pytest.mark.parametrize("version", [(0, 0), (0, 1), (0, 2), (1, 1), (1, 0xFFFF), (2, 0), (0x100, 0), (0xFFFF, 0)])
def test_R_16_any_other_version_is_an_invalid_setup(version: tuple[int, int]) -> None:
    """D-2: the code that is meant for it is named for a client that is too recent."""
    major, minor = version
    play = Playbook(Engine("server")) >> setup(major=major, minor=minor)
    play << closed(RemoteProtocolError, rule="R-16") << error(0, 0x001)
    play.quiet()


@pytest.mark.parametrize("field", ["keepalive_ms", "lifetime_ms"])
def test_R_17_times_are_above_zero(field: str) -> None:
    zero = setup()
    setattr(zero, field, 0)
    play = Playbook(Engine("server")) >> zero.encode(prefixed=True) << closed(RemoteProtocolError, rule="R-17")
    play << error(0, 0x001)
    play.quiet()
    with pytest.raises(LocalProtocolError, match="above 0") as caught:
        Engine("client", setup=zero)
    assert caught.value.rule == "R-17"
    least = setup(**{field: 10 if field == "keepalive_ms" else 1})  # more often is above ``keepalive_rate``
    Playbook(Engine("server")) >> least << ev.Established(least)


@pytest.mark.parametrize("interval", [0.01, 7.0, 20.0])
def test_R_18_a_client_sends_keepalive_every_interval(interval: float) -> None:
    """Busy or idle, with its R flag; and a server sends none."""
    play = Playbook(Engine("client", setup=setup(keepalive_ms=int(interval * 1000), lifetime_ms=0x7FFFFFFF)))
    play << frames.Setup
    for number in range(1, 20):
        due = play.engine.deadline
        assert due is not None
        assert due == pytest.approx(number * interval)
        play.at(due) << frames.Keepalive(respond=True)
        play.do(lambda engine: engine.open("fire", b"busy")) << frames.RequestFnf
        play >> frames.Keepalive()
        play.events.clear()
    server = responder().do(lambda engine: engine.open("stream", b"", credit=9)) << frames.RequestStream
    for now in range(1, 90):
        server.at(float(now)).quiet()


@pytest.mark.parametrize("data", [b"", b"\x00", bytes(range(256)), b"x" * 1000])
@pytest.mark.parametrize("side", [requester, responder], ids=["client", "server"])
def test_R_19_keepalive_is_answered_with_its_own_data(side: type[Playbook], data: bytes) -> None:
    play = side() >> frames.Keepalive(respond=True, data=data) << frames.Keepalive(respond=False, data=data)
    play >> frames.Keepalive(respond=False, data=data)
    play.quiet()


def test_R_19_while_draining() -> None:
    play = serving().do(lambda engine: engine.close(0.0, drain=True)) << error(0, 0x102)
    play >> frames.Keepalive(respond=True, data=b"d") << frames.Keepalive(respond=False, data=b"d")
    play.quiet()


@pytest.mark.parametrize("by", ["us", "them"])
def test_R_20_live_streams_end_before_the_connection_does(by: str) -> None:
    """Those of both sides; whoever began to close, the last end of a stream ends it all."""
    play = serving().do(lambda engine: engine.open("stream", b"", credit=2)) << frames.RequestStream(
        stream=2, initial_n=2
    )
    if by == "us":
        play.do(lambda engine: engine.close(0.0, drain=True)) << error(0, 0x102)
    else:
        play >> frames.ErrorFrame(stream=0, code=0x102) << ev.Draining
    with pytest.raises(ConnectionClosed, match="draining") as caught:
        play.engine.open("fire", b"")
    assert caught.value.rule == "R-20"
    play >> item(2) << ev.Items
    play.do(lambda engine: engine.send(1, [b"on"])) << item(1, b"on")
    play >> frames.RequestN(stream=1, n=3) << ev.Granted(1, 3)
    play.do(lambda engine: engine.send(1, [b"last"], complete=True)) << item(1, b"last", complete=True)
    assert not play.engine.closed
    play >> item(2, complete=True) << ev.Items << ev.Closed(None)
    play.quiet()


def test_R_21_stream_0_speaks_first() -> None:
    """Before what was queued earlier: frames, runs of frames, and payloads half of which have gone."""
    play = serving(n=0x7FFFFFFF)
    engine = play.engine
    engine.send(1, [bytes(1000)] * 100)
    engine.send(1, [bytes(1_000_000)])
    engine.receive(frames.RequestStream(stream=3, initial_n=9).encode(prefixed=True), 0.0)
    engine.send(3, [b"small"])
    for number in range(5):
        engine.push(b"%d" % number)
        engine.receive(frames.Keepalive(respond=True, data=b"ping").encode(prefixed=True), 0.0)
        said = engine.outgoing(1000)
        first = frames.decode(said, 3, 3 + int.from_bytes(said[:3], "big"))
        assert first == frames.MetadataPush(metadata=b"%d" % number)
        assert said.startswith(frames.Keepalive(data=b"ping").encode(prefixed=True), len(first.encode()) + 3)
        assert engine.queued


@pytest.mark.parametrize(
    "sign",
    [
        frames.Keepalive(),
        frames.MetadataPush(metadata=b""),
        frames.Cancel(stream=77),
        P(stream=1, next=True, data=b"x"),
        raw("00000000 fe00 00000007"),
        b"\x00\x00\x07",
    ],
    ids=["keepalive", "push", "unknown", "item", "skipped", "a part"],
)
@pytest.mark.parametrize("side", [requester, responder], ids=["client", "server"])
def test_R_22_whatever_comes_is_a_sign_of_life(side: type[Playbook], sign: frames.Frame | bytes) -> None:
    limits = Limits.server(frame_s=1000)
    play = side(limits=limits)  # type: ignore[call-arg]  # a function that makes one
    play.now = 89.0
    play >> sign
    play.events.clear()
    play.at(178.9)
    assert not play.engine.closed
    play.events.clear()
    play.sent.clear()
    play.at(179.0) << closed(ConnectionClosed, rule="R-22") << error(0, 0x101)


def test_R_22_a_dead_peer_fails_what_waits_for_it() -> None:
    play = streaming(5)
    play.at(90.0) << failed(1, ConnectionClosed, rule="R-22") << closed(ConnectionClosed, rule="R-22")
    play << error(0, 0x101, b"keepalive-timeout")
    play.quiet()


def test_R_22_the_times_are_those_of_the_setup() -> None:
    play = Playbook(Engine("client", setup=setup(keepalive_ms=60_000, lifetime_ms=5000))) << frames.Setup
    play.at(4.9).quiet()
    play.at(5.0) << closed(ConnectionClosed, rule="R-22") << error(0, 0x101)
    play = Playbook(Engine("server")) >> setup(keepalive_ms=1000, lifetime_ms=5000) << ev.Established
    play.at(4.9).quiet()
    play.at(5.0) << closed(ConnectionClosed, rule="R-22") << error(0, 0x101)
    play.quiet()


def test_a_frame_that_makes_no_sense_before_the_answer() -> None:
    """R-32: the client ignores SETUP and RESUME, and goes on waiting."""
    play = Playbook(Engine("client")) << frames.Setup
    for frame in (setup(), RESUME, frames.ResumeOk(last_received_client_position=0)):
        play >> frame << ignored(10, "R-32")
    play >> frames.Keepalive() << ev.Established
    play.quiet()
