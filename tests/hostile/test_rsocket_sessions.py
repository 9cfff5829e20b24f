"""Hostile RSocket peers over a bare engine: leases and resumption. One case, or
more, for each row; the tables at the end say which conversations tell it elsewhere, and which rows no engine can keep.
"""

from __future__ import annotations

import ast
from functools import cache
from hashlib import sha256
from pathlib import Path
from sys import getrefcount

import pytest

from afflux.core import events as ev
from afflux.core.errors import ConnectionClosed, LeaseExpired, Rejected, RemoteProtocolError, SetupRefused
from afflux.core.limits import Limits
from afflux.protocols.family.sessions import Sessions
from afflux.protocols.rsocket import Engine, frames
from afflux.protocols.rsocket.lease import FixedLease, Lease, LeaseGranter
from tests.hostile.peers import SERVER, TINY, asked, item
from tests.hostile.test_rsocket import ROWS as OTHER_ROWS
from tests.protocols.rsocket.playbook import (
    TOKEN,
    Playbook,
    closed,
    error,
    failed,
    ignored,
    newcomer,
    position,
    responder,
    resumable_client,
    resumable_server,
    resume,
    resume_ok,
    session_bytes,
    setup,
)

OFTEN = SERVER.replace(resume_rate=(10**6, 0.0))


def leased(requests: int = 1, limits: Limits | None = None, ttl: float = 1.0) -> Playbook:
    """A server that has granted so many requests."""
    play = Playbook(Engine("server", lease=FixedLease(requests, ttl), limits=limits)) >> setup(lease=True)
    return play << ev.Established << frames.Lease


def owner(limits: Limits = OFTEN) -> Playbook:
    """The server's end of a session with a stream: 10 bytes received, 14 sent."""
    play = resumable_server(limits=limits) >> asked("stream", n=10**6) << ev.Opened
    return play.do(lambda engine: engine.send(1, [b"a", b"b"])) << item(1, b"a") << item(1, b"b")


def untouched(play: Playbook) -> None:
    """The owner has heard nothing, has said nothing, and can go on."""
    play.quiet()
    assert play.engine.inbound.retained is not None
    assert (play.engine.inbound.retained.sent, play.engine.inbound.retained.received) == (14, 10)
    if not play.engine.resumption.suspended:
        play.do(lambda engine: engine.send(1, [b"c"])) << item(1, b"c")
        play >> frames.RequestN(stream=1, n=1) << ev.Granted
        return
    play.adopt(newcomer(play, server=14, client=0)) << ev.Resumed << resume_ok(10)
    play.quiet()


# -- 3.6 leases -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["request", "stream", "channel"])
def test_LE_01_requests_before_the_first_lease(verb: str) -> None:
    """The policy grants nothing at first: each request is refused, and no handler runs."""

    class Later:
        def start(self) -> LeaseGranter:
            return self

        def grant(self, now: float, used: int) -> Lease:
            return Lease(5 if now else 0, 1.0)

    play = Playbook(Engine("server", lease=Later())) >> setup(lease=True) << ev.Established << frames.Lease
    for id in (1, 3):
        play >> asked(verb, id) << ignored(1, "REJECTED") << error(id, 0x202)
    assert not play.engine.stream_table.handlers
    play.at(1.0) << frames.Lease
    play >> asked(verb, 5) << ev.Opened
    play.quiet()


@pytest.mark.parametrize(("now", "taken"), [(0.0, True), (0.999, True), (1.0, False), (3600.0, False)])
def test_LE_02_the_time_of_a_lease(now: float, taken: bool) -> None:
    """The receiver allows nothing; whoever comes late is refused even before tick has noticed."""
    play = leased()
    play.now = now
    play >> asked("request")
    play << ((ev.Opened, {"stream": 1}) if taken else ignored(1, "REJECTED"))
    if not taken:
        play << error(1, 0x202)
    play.quiet()


def test_LE_02_our_sender_stops_50_ms_early() -> None:
    play = Playbook(Engine("client", setup=setup(lease=True))) << frames.Setup
    play >> frames.Lease(stream=0, ttl_ms=1000, requests=9) << ev.Established << ev.Leased << frames.Lease
    play.engine.open("fire", b"", now=0.949)
    with pytest.raises(LeaseExpired):
        play.engine.open("fire", b"", now=0.951)


def test_LE_03_requests_over_the_lease_from_who_reads_no_answer() -> None:
    """A token each; what is said about them stays within what may be queued."""
    engine = leased(0).engine
    count = 0
    while not engine.closed:
        engine.receive(asked("request", 1 + 2 * count).encode(prefixed=True), 0.0)
        count += 1
        assert engine.queued <= SERVER.outbound_high_bytes
    assert count == SERVER.glitch_bucket[0] + 1
    assert len(engine.stream_table.late.state()[0]) <= SERVER.tombstones


def test_LE_06_a_flood_of_leases() -> None:
    """The last that counts replaces the one before; beyond 10 a second they are charged, and end it at last."""
    play = Playbook(Engine("client", setup=setup(lease=True))) << frames.Setup
    play >> position(0) << ev.Established << frames.Lease
    for number in range(10):
        play >> frames.Lease(stream=0, ttl_ms=1000, requests=number) << ev.Leased(number, 1.0)
    for _ in range(SERVER.glitch_bucket[0]):
        play >> frames.Lease(stream=0, ttl_ms=1000, requests=99) << ignored(1, "lease_frames_per_s")
    assert play.engine.leases.lease(0.0)[0] == 9
    play >> frames.Lease(stream=0, ttl_ms=1000, requests=99) << ignored(1)
    play << closed(RemoteProtocolError, rule="glitch_bucket") << error(0, 0x101)


def test_LE_06_a_lease_as_large_as_a_frame_may_be() -> None:
    """Its metadata is nobody's: it is not kept."""
    play = Playbook(Engine("client", setup=setup(lease=True))) << frames.Setup
    lease = frames.Lease(stream=0, ttl_ms=1000, requests=1, metadata=bytes(SERVER.frame_bytes - 14))
    play >> lease << ev.Established << ev.Leased(1, 1.0) << frames.Lease
    assert play.engine.stream_table.delivered == 0


def test_LE_08_without_a_lease_nothing_is_queued() -> None:
    engine = Engine("client", setup=setup(lease=True))
    engine.outgoing()
    for _ in range(10_000):
        with pytest.raises(LeaseExpired):
            engine.open("request", bytes(1000), now=0.0)
    assert engine.queued == 0
    assert engine.streams() == []


# -- keepalive positions --------------------------------------------------------------------------------------


@pytest.mark.parametrize("respond", [False, True])
def test_KA_07_a_position_that_goes_backwards(respond: bool) -> None:
    """It is dropped and charged; 0 is what a peer says that does not count (D-5), and the same again is no fault."""
    play = owner() >> position(14)
    for at in (13, 7, 1):
        play >> position(at, respond=respond) << ignored(10, "KA-07")
        play.quiet()
    for at in (14, 0, 14, 0):
        play >> position(at, respond=True) << position(10)
    for _ in range(97):
        play >> position(1, respond=respond) << ignored(10)
    play >> position(1, respond=respond) << ignored(10) << failed(1, RemoteProtocolError)
    play << closed(RemoteProtocolError, rule="glitch_bucket") << error(0, 0x101, b"protocol-abuse")


def test_KA_07_below_the_position_in_RESUME() -> None:
    play = owner().cut()
    play.adopt(newcomer(play, server=14, client=0)) << ev.Resumed << resume_ok(10)
    play >> position(7) << ignored(10, "KA-07")


def test_KA_07_a_position_beyond_what_was_sent() -> None:
    play = owner() >> position(15)
    play << failed(1, RemoteProtocolError) << closed(RemoteProtocolError, rule="R-51") << error(0, 0x101)


def test_KA_07_without_resumption_positions_are_ignored() -> None:
    play = responder() >> position(2**63 - 1) >> position(5) >> position(0)
    play.quiet()


# -- 3.7 resumption -------------------------------------------------------------------------------------------


def test_RE_02_unknown_and_expired_tokens_get_the_same_answer() -> None:
    """To the byte, and by the same way."""
    play = owner()
    expired = play.cut()
    expired.at(120.0) << failed(1, ConnectionClosed) << ev.Closed
    sessions = play.engine.resuming.sessions
    said = set()
    for token in (TOKEN, b"u" * 16, b"", TOKEN[:-1]):
        stranger = Engine("server", sessions=sessions)
        data = resume(server=0, client=0, token=token or b"t").encode(prefixed=True)
        (event,) = stranger.receive(data, 0.0)
        assert isinstance(event, ev.Closed)
        said.add(stranger.outgoing())
    (only,) = said
    assert frames.decode(only, 3) == frames.ErrorFrame(stream=0, code=0x004, data=b"there is no such session")


def test_RE_03_RESUME_in_an_open_connection() -> None:
    """Whoever says it, with whatever token, ends its own connection and no other."""
    play = owner()
    stranger = (
        Playbook(Engine("server", sessions=play.engine.resuming.sessions)) >> setup(token=b"s" * 16) << ev.Established
    )
    stranger >> resume(server=14, client=0) << closed(RemoteProtocolError, rule="R-48") << error(0, 0x101)
    untouched(play)


def test_RE_04_a_server_that_talks_before_its_answer() -> None:
    """However often: the session survives, for as long as it may be away."""
    play = resumable_client()
    play.do(lambda engine: engine.open("request", b"q")) << frames.RequestResponse
    play.cut()
    for second in range(0, 119, 7):
        play.now = float(second)
        play.do(lambda engine: engine.resumption.reconnect(play.now)) << resume(server=0, client=0)
        play >> (item(1, b"early", True), resume_ok(7)) << ev.Suspended << error(0, 0x101)
    play.at(120.0) << failed(1, ConnectionClosed) << closed(ConnectionClosed)


def test_RE_04_a_server_that_can_not_be_understood_runs_out_of_glitches() -> None:
    """Even that does not end the session."""
    play = resumable_client(limits=TINY)
    play.cut()
    play.do(lambda engine: engine.resumption.reconnect(0.0)) << frames.Resume
    for _ in range(TINY.glitch_bucket[0]):
        play >> bytes.fromhex("000006 00000000 be00") << ignored(1)
    play >> bytes.fromhex("000006 00000000 be00") << ignored(1) << ev.Suspended
    play << error(0, 0x101, b"protocol-abuse")
    play.do(lambda engine: engine.resumption.reconnect(0.0)) << frames.Resume
    play >> resume_ok(0) << ev.Resumed


@pytest.mark.parametrize("away", [True, False], ids=["away", "connected"])
@pytest.mark.parametrize(
    ("server", "client"), [(15, 0), (2**63 - 1, 0), (13, 0), (6, 0), (14, 11), (14, 2**63 - 1), (2**63 - 1, 2**63 - 1)]
)
def test_RE_05_RE_07_positions_that_do_not_fit_leave_the_owner_alone(server: int, client: int, away: bool) -> None:
    """A hundred times, and the owner is at its place at once, under the limits of a server."""
    play = owner(SERVER)
    if away:
        play.cut()
    for _ in range(100):
        with pytest.raises(Rejected):
            play.adopt(newcomer(play, server=server, client=client))
    untouched(play)


def test_RE_11_SETUP_with_a_token_in_use() -> None:
    play = owner()
    for connected in (True, False):
        for lease in (False, True):
            stranger = Playbook(Engine("server", sessions=play.engine.resuming.sessions, lease=FixedLease(1)))
            stranger >> setup(token=TOKEN, lease=lease, data=b"mine now") << closed(RemoteProtocolError, rule="R-49")
            stranger << error(0, 0x003)
            stranger.quiet()
            assert play.engine.resuming.sessions is not None
            assert play.engine.resuming.sessions.find(TOKEN) is play.engine
        if connected:
            play.cut()
    untouched(play)


def test_RE_13_guesses() -> None:
    """Nothing is kept of them, and nothing that is kept tells a token: the books hold digests."""
    play = owner().cut()
    sessions = play.engine.resuming.sessions
    assert sessions is not None
    kept = [name for name in dir(sessions) if not name.startswith("__")]
    books = str([getattr(sessions, name) for name in kept])
    for number in range(2000):
        stranger = Engine("server", sessions=sessions)
        guess = sha256(b"%d" % number).digest()[:16]
        events = stranger.receive(resume(server=0, client=0, token=guess).encode(prefixed=True), 0.0)
        assert [type(event) for event in events] == [ev.Closed]
    assert str([getattr(sessions, name) for name in kept]) == books
    assert TOKEN.hex() not in books
    assert repr(TOKEN)[2:-1] not in books
    untouched(play)


def test_RE_14_two_newcomers_at_once() -> None:
    """Both have been understood: the first goes on, the second takes it over, and each frame is treated once."""
    play = owner().cut()
    first, second = newcomer(play, server=7, client=0), newcomer(play, server=7, client=0)
    play.adopt(first) << ev.Resumed << resume_ok(10) << item(1, b"b")
    play >> frames.RequestFnf(stream=3, data=b"once") << ev.Opened
    play.adopt(second) << ev.Suspended << ev.Resumed << resume_ok(20) << item(1, b"b")
    third = newcomer(play, server=14, client=21)
    with pytest.raises(Rejected):
        play.adopt(third)
    play >> frames.RequestFnf(stream=5, data=b"") << ev.Opened
    assert first.engine.closed and second.engine.closed


def test_RE_14_what_the_old_transport_still_had() -> None:
    """Half a frame, and half a payload: the one is sent again, the other goes on."""
    play = owner() >> frames.RequestResponse(stream=3, follows=True, data=bytes(60))
    rest = item(3, b"rest").encode(prefixed=True)
    play >> rest[:11]
    play.adopt(newcomer(play, server=14, client=0)) << ev.Suspended << ev.Resumed << resume_ok(76)
    play >> rest << (ev.Opened, {"stream": 3})
    play.quiet()


@pytest.mark.parametrize("limits", [TINY, SERVER])
def test_RE_16_producers_stop_while_it_is_away(limits: Limits) -> None:
    """What is kept is what may be queued, and what was retained before; nothing is freed before its time."""
    play = owner(limits).cut()
    engine = play.engine
    sent = 0
    while room := engine.room(0):
        engine.send(1, [bytes(min(room, 1000))])
        sent += 1
        assert sent < 10_000
    assert engine.outgoing() == b""
    assert session_bytes(engine) < limits.outbound_high_bytes + 2000
    assert engine.resumption.suspended
    assert engine.deadline == limits.resume_s
    play.adopt(newcomer(play, server=14, client=0)) << ev.Resumed << resume_ok(10)
    assert engine.resuming.retained is not None
    assert engine.queued or len(play.sent) == sent


@pytest.mark.parametrize("limits", [TINY, SERVER])
def test_RE_17_a_client_that_never_reports(limits: Limits) -> None:
    """Pulling stops at K, and what may be queued; after its time resumability goes, the connection stays."""
    play = owner(limits)
    engine = play.engine
    for _ in range(100_000):
        if not engine.room(0):
            break
        engine.send(1, [bytes(2000)])
        while engine.outgoing():
            pass
    assert engine.resuming.retained is not None
    assert limits.resume_bytes <= engine.resuming.retained.size <= limits.resume_bytes + 0x11000
    assert session_bytes(engine) <= limits.resume_bytes + limits.outbound_high_bytes + 0x11000 + 2000
    assert play.engine.deadline == 0.0
    play.at(0.0).quiet()
    play.at(limits.write_stall_s - 0.1).quiet()
    sessions = engine.resuming.sessions
    assert sessions is not None
    assert len(sessions) == 1
    play.at(limits.write_stall_s)
    assert len(sessions) == 0
    assert not engine.closed
    assert session_bytes(engine) == 0
    assert engine.room(0) == limits.outbound_high_bytes
    stranger = Playbook(Engine("server", sessions=sessions)) >> resume(server=14, client=0)
    stranger << closed(RemoteProtocolError, code=0x004, rule="RE-02") << error(0, 0x004)


def crowd(sessions: Sessions, limits: Limits, count: int, held: int = 0) -> list[Engine]:
    """Set up so many sessions and drop them; return those that were crowded out."""
    gone: list[Engine] = []
    for number in range(count):
        engine = Engine("server", limits=limits, sessions=sessions)
        engine.receive(setup(token=b"%016d" % number).encode(prefixed=True), 0.0)
        if held:
            engine.receive(asked("stream").encode(prefixed=True), 0.0)
            engine.send(1, [bytes(held - 6)])
            engine.outgoing()
        engine.receive_eof(0.0)
        sessions.away(engine)
        for session in sessions.crowd_out():
            assert session.close(0.0)
            gone.append(session)  # type: ignore[arg-type] # the sessions of engines are engines
        assert len(sessions) <= limits.resume_sessions
    return gone


def test_RE_18_sets_up_and_drops_sessions() -> None:
    """The oldest goes; the newest of them, as many as may be, are there."""
    limits = SERVER.replace(resume_sessions=500)
    sessions = Sessions(limits)
    gone = crowd(sessions, limits, 2000)
    assert len(gone) == 1500
    assert all(engine.closed for engine in gone)
    assert len(sessions) == 500
    assert [number for number in range(2000) if sessions.find(b"%016d" % number)] == list(range(1500, 2000))


def test_RE_18_sessions_that_hold_much() -> None:
    """By bytes: 20 of 1,000 fit into 20,000."""
    limits = SERVER.replace(resume_process_bytes=20_000)
    sessions = Sessions(limits)
    gone = crowd(sessions, limits, 100, held=1000)
    assert len(gone) == 80
    assert sessions.size == 20_000
    assert [number for number in range(100) if sessions.find(b"%016d" % number)] == list(range(80, 100))


def test_RE_18_what_grows_while_it_is_away_is_weighed() -> None:
    """Its producers queue more, and it asks for more itself."""
    limits = SERVER.replace(resume_process_bytes=20_000)
    sessions = Sessions(limits)
    crowd(sessions, limits, 20, held=1000)
    last = sessions.find(b"%016d" % 19)
    assert isinstance(last, Engine)
    last.send(1, [bytes(991)])
    assert sessions.size == 21_000
    assert len(sessions.crowd_out()) == 1
    last.open("fire", bytes(1991))
    assert sessions.size == 22_000
    assert len(sessions.crowd_out()) == 2
    assert sessions.size == 20_000
    assert sessions.find(b"%016d" % 19) is last


def test_RE_18_what_is_received_is_weighed_at_once() -> None:
    """Before anything is written."""
    play = owner()
    sessions = play.engine.resuming.sessions
    assert sessions is not None
    play.engine.receive(frames.RequestResponse(stream=3, follows=True, data=bytes(60)).encode(prefixed=True), 0.0)
    assert sessions.size == 14 + 60 + SERVER.object_overhead_bytes
    play.engine.receive(position(14).encode(prefixed=True), 0.0)
    assert sessions.size == 60 + SERVER.object_overhead_bytes


def test_RE_18_the_books_are_right() -> None:
    """Whatever happened to the sessions, their weight is what they hold, and nothing is left of those that are over."""
    limits = OFTEN
    sessions = Sessions(limits)
    plays = []
    for number in range(10):
        play = Playbook(Engine("server", limits=limits, sessions=sessions)) >> setup(token=b"%016d" % number)
        play << ev.Established >> asked("stream", n=100) << ev.Opened
        plays.append(play.do(lambda engine: engine.send(1, [bytes(94)])) << frames.PayloadFrame)
    weighs(sessions, plays)
    for play in plays[:5]:
        play.cut()
        sessions.away(play.engine)
        play.do(lambda engine: engine.send(1, [bytes(47)])).quiet()
    plays[5] >> position(100)
    plays[6] >> frames.RequestResponse(stream=3, follows=True, data=bytes(60))
    weighs(sessions, plays)
    stranger = Playbook(Engine("server", limits=limits, sessions=sessions))
    plays[0].adopt(stranger >> resume(server=100, client=0, token=b"%016d" % 0)) << ev.Resumed << resume_ok(10)
    plays[0].sent.clear()
    for play in (plays[1], plays[7]):
        play.do(lambda engine: engine.close(0.0))
        play.events.clear()
        play.sent.clear()
    weighs(sessions, plays)
    plays[8].do(lambda engine: engine.complete(1)) << frames.PayloadFrame
    plays[8].do(lambda engine: engine.close(0.0, drain=True)) << ev.Closed << error(0, 0x102)
    weighs(sessions, plays)
    assert len(sessions) == 7
    for play in plays:
        play.do(lambda engine: engine.close(0.0))
    assert (len(sessions), sessions.size) == (0, 0)
    assert (
        len({getrefcount(play.engine) for play in plays}) == 1
    )  # the table refers to none, whether it was away or not


def weighs(sessions: Sessions, plays: list[Playbook]) -> None:
    there = [play.engine for play in plays if play.engine.resuming.weight is not None]
    assert len(sessions) == len(there)
    assert sessions.size == sum(session_bytes(engine) for engine in there)


def test_RE_18_sessions_away_do_not_keep_others_from_coming() -> None:
    """Even if nobody calls crowd_out in time."""
    limits = TINY
    sessions = Sessions(limits)
    for number in range(3 * limits.resume_sessions):
        play = Playbook(Engine("server", limits=limits, sessions=sessions)) >> setup(token=b"%016d" % number)
        play << ev.Established
        play.cut()
        sessions.away(play.engine)
    assert len(sessions.crowd_out()) == 2 * limits.resume_sessions
    assert len(sessions) == limits.resume_sessions


def test_RE_19_the_cache_is_pulled_again_and_again() -> None:
    """10 a minute: what can be pulled in an hour is 10 + 60 x 10 stores."""
    play = owner(SERVER)
    play.do(lambda engine: engine.send(1, [bytes(90_000)])) << item(1, bytes(90_000))
    pulled = 0
    for second in range(3600):
        play.now = float(second)
        if not second % 60:
            play >> position(0)  # it stays alive
        try:
            play.adopt(newcomer(play, server=14, client=0))
        except Rejected:
            continue
        pulled += sum(len(frame.data) for frame in play.sent if isinstance(frame, frames.PayloadFrame))
        play.events.clear()
        play.sent.clear()
    assert 600 * 90_000 <= pulled <= 610 * 90_000


def test_RE_19_seconds_apart() -> None:
    play = owner(SERVER)
    for moment, fits in ((0.0, True), (0.5, False), (0.99, False), (1.0, True), (1.99, False), (2.0, True)):
        play.now = moment
        if fits:
            play.adopt(newcomer(play, server=14, client=0)) << ev.Suspended << ev.Resumed << resume_ok(10)
        else:
            with pytest.raises(Rejected, match="too often"):
                play.adopt(newcomer(play, server=14, client=0))
        play.quiet()


def test_RE_21_payloads_that_are_never_finished_are_held_and_bounded() -> None:
    """Reassembly counts for the session while it is away, and ends with it."""
    play = owner(TINY)
    for id in range(3, 3 + 2 * TINY.partial_payloads, 2):
        play >> frames.RequestResponse(stream=id, follows=True, data=bytes(1000))
    held = session_bytes(play.engine)
    assert held == 14 + TINY.partial_payloads * (1000 + TINY.object_overhead_bytes)
    play.cut()
    assert session_bytes(play.engine) == held
    sessions = play.engine.resuming.sessions
    assert sessions is not None
    sessions.away(play.engine)
    assert sessions.size == held
    play.at(TINY.resume_s) << failed(1, ConnectionClosed) << ev.Closed
    assert session_bytes(play.engine) == 14
    assert sessions.size == 0


def test_RE_23_a_server_that_reports_more_than_was_sent() -> None:
    play = resumable_client()
    play.do(lambda engine: engine.open("request", b"q")) << frames.RequestResponse
    play.cut()
    play.do(lambda engine: engine.resumption.reconnect(0.0)) << frames.Resume
    play >> resume_ok(8) << failed(1, RemoteProtocolError) << closed(RemoteProtocolError, rule="RE-23")
    play << error(0, 0x101)
    assert play.engine.deadline is None
    assert not play.engine.resumption.suspended


def test_RE_25_a_server_that_has_lost_its_state() -> None:
    """REJECTED_RESUME, and every stream of the client fails once."""
    play = resumable_client()
    for verb in ("request", "stream", "channel"):
        play.do(lambda engine, verb=verb: engine.open(verb, b"", credit=0 if verb == "request" else 1))
        play << frames.StreamFrame
    play.cut()
    play.do(lambda engine: engine.resumption.reconnect(0.0))
    restarted = Playbook(Engine("server", sessions=Sessions(SERVER)))
    restarted >> play.sent.popleft() << closed(RemoteProtocolError, rule="RE-02")
    play >> restarted.sent.popleft()
    for id in (1, 3, 5):
        play << failed(id, SetupRefused, code=0x004)
    play << closed(SetupRefused, code=0x004)
    play.quiet()


@pytest.mark.parametrize(
    "data", [bytes(100), b"\xff" * 100, b"\0\0\x06" + bytes(6), resume(server=1, client=1).encode()]
)
def test_RE_04_garbage_instead_of_an_answer(data: bytes) -> None:
    """Whatever it is, it is one of two things: an answer that ends it, or a reason to try again."""
    for cut in range(1, len(data)):
        play = resumable_client().cut()
        engine = play.engine
        engine.resumption.reconnect(0.0)
        engine.outgoing()
        events = engine.receive(data[:cut], 0.0) + engine.receive_eof(0.0)
        assert [type(event) for event in events if not isinstance(event, ev.Ignored)] == [ev.Suspended]
        assert engine.resumption.suspended


# -- the tables -----------------------------------------------------------------------------------------------

ELSEWHERE: dict[str, tuple[str, ...]] = {
    "LE-03": ("test_lease::test_a_flood_beyond_the_lease",),
    "LE-04": ("test_lease::test_a_lease_that_means_stop", "test_lease::test_a_newer_lease_replaces_the_older"),
    "LE-05": (
        "test_lease::test_without_leases_everything_may_be_sent",
        "test_establishment::test_lease_without_negotiation_is_ignored",
    ),
    "RE-01": ("test_resume::test_no_resumption_here", "test_establishment::test_resume_is_rejected"),
    "RE-02": ("test_resume::test_strangers_are_refused",),
    "RE-03": (
        "test_resume::test_a_newcomer_that_sends_more_than_it_may",
        "test_establishment::test_resume_after_setup_ends_it",
    ),
    "RE-04": ("test_resume::test_anything_else_before_RESUME_OK",),
    "RE-05": ("test_resume::test_a_position_that_is_not_retained_is_refused",),
    "RE-07": ("test_resume::test_the_first_available_position",),
    "RE-11": ("test_resume::test_a_token_in_use",),
    "RE-14": ("test_resume::test_the_newer_transport_wins",),
    "RE-17": ("test_resume::test_a_store_that_stays_full_is_given_up", "test_resume::test_how_full_a_store_can_be"),
    "RE-18": ("test_resume::test_those_away_for_longest_go_first", "test_resume::test_as_many_sessions_as_may_be"),
    "RE-19": ("test_resume::test_how_often_a_session_may_be_resumed",),
    "RE-20": (
        "test_resume_cuts::test_cut_at_every_byte",
        "test_resume_cuts::test_the_resumption_is_cut_at_every_byte",
        "test_resume_cuts::test_cut_again_and_again",
        "test_resume::test_every_position_of_a_conversation",
    ),
    "RE-21": ("test_resume::test_fragments_half_sent", "test_resume::test_fragments_half_received"),
    "RE-23": ("test_resume::test_RESUME_OK_with_a_position_it_can_not_have",),
    "RE-24": ("test_resume::test_a_refusal_to_resume_ends_it_once", "test_resume_cuts::never_heard_of"),
}
"Row to the conversations in tests/protocols/rsocket that tell it."

NOT_HERE: dict[str, str] = {
    "RE-10": "who is behind a transport is the listener's to know",
}
"Rows that no engine can keep, and who does."

ROWS = (
    *(f"LE-{n:02}" for n in (1, 2, 3, 4, 5, 6, 8)),
    *(f"RE-{n:02}" for n in (1, 2, 3, 4, 5, 7, 10, 11, 13, 14, 16, 17, 18, 19, 20, 21, 23, 24, 25)),
)
"Every row about leases and resumption that is tagged RS1 or ours."


@cache
def told(path: Path) -> set[str]:
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}


def test_every_cited_conversation_exists() -> None:
    home = Path(__file__).parent.parent / "protocols" / "rsocket"
    for row, cases in ELSEWHERE.items():
        for case in cases:
            module, name = case.split("::")
            assert name in told(home / f"{module}.py"), f"{row}: {case}"


def test_every_row_is_tested_or_has_a_reason() -> None:
    names = told(Path(__file__))
    here = {row for row in ROWS if any(row.replace("-", "_") in name for name in names)}
    assert not set(ROWS) - here - set(ELSEWHERE) - set(NOT_HERE)
    assert set(ELSEWHERE) | set(NOT_HERE) <= set(ROWS)
    assert not set(NOT_HERE) & (here | set(ELSEWHERE))


def test_the_rows_are_those_of_no_other_table() -> None:
    assert not set(ROWS) & set(OTHER_ROWS)
