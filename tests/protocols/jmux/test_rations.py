"""Flow control: rations and increments, fair turns, and the reading that no session can stop (R-32 to R-41)."""

from __future__ import annotations

import pytest

from afflux.core import events as ev
from afflux.core.credit import Unit
from afflux.core.errors import LimitExceeded, RemoteProtocolError
from afflux.core.events import Readable, SessionOpened
from afflux.core.limits import Limits
from afflux.protocols.jmux import Engine
from afflux.protocols.jmux.errors import SessionAborted
from afflux.protocols.jmux.frames import Abort, Data, ErrorMessage, IncrementRation

from .playbook import HELLO, Playbook, Reader, abort, client, closed, data, failed, ignored, more, opening, owed, server

SMALL = Limits.tiny(ration_bytes=256, ration_max_bytes=256)


def talking(mode: str = "whole", **options: object) -> Playbook:
    """Session 0 of a server is open; the client may send 32,767 bytes more."""
    return server(mode, **options) >> opening(b"q") << SessionOpened(1) << Readable(1, 1)  # type: ignore[arg-type] # options of an engine


# -- what this side receives ----------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [256, 257])
def test_FC_13_the_first_byte_over_the_ration(size: int) -> None:
    """R-33, FC-13: also on the opening message, before any session state exists, by its header alone."""
    play = server(limits=SMALL)
    head = opening(b"x" * size).encode()[:4]
    play >> head
    if size == 256:
        play >> b"x" * 256 << SessionOpened(1) << Readable(1, 256)
        assert play.engine.byte_sessions.read(1, 1)
        play >> data(b"xxxx").encode()[:4]
    play << closed(RemoteProtocolError, rule="R-33") if size == 257 else play << ev.Failed << ev.Closed
    play << ErrorMessage
    assert size == 256 or not play.engine.streams()


def test_R_32_each_session_has_its_own(mode: str) -> None:
    play = server(mode, SMALL) >> (opening(b"x" * 256), opening(b"y" * 256, id=1))
    play.forget() >> data(b"", id=1, eof=True)
    assert not play.engine.closed


def test_R_37_a_reader_gets_more(mode: str) -> None:
    """R-37, R-38: refilled when half of it or less is there, up to the initial value."""
    play = server(mode, SMALL) >> opening(b"x" * 128)
    play.forget()
    assert len(play.engine.byte_sessions.read(1, 1)) == 1
    play.forget()
    play >> data(b"x" * (play.engine.streams()[0].outstanding))
    play.forget()
    assert len(play.engine.byte_sessions.read(1)) == 255
    play.do(lambda engine: None) << more(256)


def test_R_38_not_before_half_is_used() -> None:
    play = talking()
    assert play.engine.byte_sessions.read(1) == b"q"
    play.do(lambda engine: None).quiet()


def test_an_unread_session_gets_nothing() -> None:
    """R-40: what nobody reads stays within its ration."""
    play = talking() >> data(b"x" * 32_767) << Readable(1, 32_767)
    play.quiet()
    assert play.engine.streams()[0].outstanding == 0
    assert play.engine.byte_sessions.read(1, 100) and play.engine.byte_sessions.read(1, 20_000)
    play.do(lambda engine: None) << more(20_100)


def test_the_ration_grows_for_who_keeps_up() -> None:
    """ration_max_bytes: twice as much each time that it was used up and read."""
    play = client().on(lambda s: s.open_session()) << opening()
    owed = 32_768
    seen = []
    for _ in range(8):
        play.engine.receive(b"".join(data(b"x" * 16_384).encode() for _ in range(owed // 16_384)), 0.0)
        assert len(play.engine.byte_sessions.read(1)) == owed
        play.collect([])
        owed = sum(message.size for message in play.sent if isinstance(message, IncrementRation))
        seen.append(owed)
        play.forget()
    assert seen == [65_536, 131_072, 262_144, 262_144, 262_144, 262_144, 262_144, 262_144]
    assert play.engine.sessions.rations.shared_used == 262_144 - 32_768
    play >> data(eof=True)
    play.forget().on(lambda s: s.abort(1)).forget()
    assert play.engine.sessions.rations.shared_used == 0


def test_growth_stops_when_memory_is_tight() -> None:
    limits = Limits.tiny(sessions=1, ration_bytes=4096, ration_max_bytes=1 << 20)
    play = client(limits=limits).on(lambda s: s.open_session()) << opening()
    for _ in range(12):
        owed = play.engine.streams()[0].outstanding
        while owed:
            play.forget() >> data(b"x" * min(owed, 60_000))
            owed -= min(owed, 60_000)
        play.forget().engine.byte_sessions.read(1)
        play.forget()
    assert play.engine.sessions.rations.shared_used <= play.engine.sessions.rations.shared_limit
    assert 65_536 <= play.engine.streams()[0].outstanding <= limits.connection_bytes


def test_R_39_no_increment_after_the_end() -> None:
    """R-39: neither after the peer's eof nor after own termination."""
    play = talking() >> data(b"x" * 32_767, eof=True) << Readable(1, 32_767, True)
    assert len(play.engine.byte_sessions.read(1)) == 32_768
    play.do(lambda engine: None).quiet()


def test_FC_18_every_ration_is_full() -> None:
    """FC-18: 128 sessions, 4 MiB, inside C; reading goes on."""
    play = server()
    said = b"".join(opening(b"x" * 32_768, id=id).encode() for id in range(128))
    play.engine.receive(said, 0.0)
    held = play.engine.held_bytes
    assert held == 4 << 20 <= play.engine.limits.connection_bytes
    assert play.engine.wants_read


def test_payloads_that_wait_count() -> None:
    """FC-18: what was handed over and not consumed is paid for, and while too much is, no session is taken on."""
    limits = Limits.tiny(ration_bytes=16_384, ration_max_bytes=16_384, sessions=8)
    play = server(limits=limits, sessions=False)
    assert play.engine.sessions.rations.shared_limit == 2**18 - 8 * 16_384
    count = 0
    while not play.engine.sessions.rations.overdrawn:
        play.forget() >> opening(b"x" * 16_384, eof=True) << ev.Opened
        stream = play.engine.streams()[-1].stream
        play.on(lambda s, stream=stream: s.finish(stream)).forget()
        play.engine.release(stream)
        count += 1
    assert count == 9
    play >> opening(b"x", eof=True) << ignored(1, "REJECTED") << abort(0, False, "buffer-full")
    play.do(lambda engine: engine.consumed(1 << 30))
    assert play.engine.sessions.rations.shared_used == 0


def test_responses_that_were_not_read_count() -> None:
    limits = Limits.tiny(ration_bytes=16_384, ration_max_bytes=16_384, sessions=8)
    play = client(limits=limits)
    with pytest.raises(LimitExceeded, match="not read"):
        while True:
            play.on(lambda s: s.open_session(finish=True)).forget()
            play >> data(b"x" * 16_384, eof=True, close=True)
            play.forget()
    streams = [status.stream for status in play.engine.streams()]
    assert len(streams) == 9
    for stream in streams:
        assert len(play.engine.byte_sessions.read(stream, 384)) == 384
        assert len(play.engine.byte_sessions.read(stream)) == 16_000
    assert play.engine.sessions.rations.shared_used == 0


def test_payloads_for_which_there_is_no_memory_wait() -> None:
    """connection_bytes: sessions that are put together take turns; only who is too large is refused."""
    limits = Limits.tiny(ration_bytes=4096, ration_max_bytes=131_072, sessions=16, payload_bytes=131_072)
    play = server(limits=limits, sessions=False)
    for id in range(4):
        play >> opening(id=id)
    refused = set()
    for _ in range(400):
        for id in range(4):
            if ration := owed(play.engine).get(id):
                play >> data(b"x" * min(ration, 4096), id=id)
                refused |= {(said.session, said.detail) for said in play.sent if isinstance(said, Abort)}
                play.forget()
        rations = play.engine.sessions.rations
        assert rations.shared_used <= rations.shared_limit
    words = b"payload-too-large: 131328 bytes or more exceed payload_bytes=131072"
    assert refused == {(id, words) for id in range(4)}
    assert not play.engine.closed


def test_a_payload_for_which_there_will_never_be_memory() -> None:
    """connection_bytes: 128 sessions have their reserve, so a payload that is permitted does not fit beside it."""
    limits = Limits.tiny(ration_bytes=256, ration_max_bytes=262_144, sessions=128, payload_bytes=229_376)
    play = server(limits=limits, sessions=False) >> opening(id=0)
    details: list[bytes] = []
    for _ in range(2000):
        if details:
            break
        play.forget() >> data(b"x" * min(owed(play.engine).get(0, 0), 4096), id=0)
        details = [said.detail for said in play.sent if isinstance(said, Abort)]
    (words,) = details
    assert words.startswith(b"payload-too-large: more than ")
    assert words.endswith(b" bytes exceed a session's share of connection_bytes=262144")


# -- what this side sends -------------------------------------------------------------------------------------


def test_R_33_never_more_than_the_ration(mode: str) -> None:
    """R-33, R-34, R-41: fragments of 1,024 bytes, within the ration."""
    play = client(mode, ration=6).do(lambda engine: engine.open("request", b"x" * 2000))
    play << opening(b"x" * 1024) << data(b"x" * 512)
    play >> more(1) << data(b"x")
    play >> more(1, shift=2) << data(b"x" * 16)
    play >> more(0)
    play >> more(447) << data(b"x" * 447, eof=True)


def test_R_41_fragments_may_be_larger() -> None:
    play = client(ration=0, fragment=65_535).do(lambda engine: engine.open("request", b"x" * 65_536))
    play << opening(b"x" * 65_535) << data(b"x", eof=True)


def test_R_36_without_end(mode: str) -> None:
    """R-36, HS-22: increments are ignored, whatever they are."""
    play = client(mode, ration=0).on(lambda s: s.open_session(b"q")) << opening(b"q")
    before = play.engine.credit(1)
    play >> (more(0xFFFF, shift=7),) * 3
    assert play.engine.credit(1) == before > 1 << 60


def test_R_35_FC_14_too_much(mode: str) -> None:
    """R-35, FC-14: above 0x7FFFFFFF; ignored messages are not looked at (D-9)."""
    play = client(mode, ration=0xFFFF).on(lambda s: s.open_session(b"q")) << opening(b"q")
    left = 0x7FFFFFFF - (0xFFFF00 - 1)
    for size, shift in ((0xFFFF, 7), ((left >> 14) - 0xFFFF, 7), (left & 0x3FFF, 0)):
        play >> more(size, shift=shift) << ev.Granted
    assert play.engine.credit(1) == 0x7FFFFFFF
    play >> more(1) << ev.Failed << closed(RemoteProtocolError, rule="R-35") << ErrorMessage
    play = client(mode).on(lambda s: s.open_session(b"q", finish=True)) << opening(b"q", eof=True)
    play >> (more(0xFFFF, shift=7),) * 4


def test_R_16_empty_messages_cost_something() -> None:
    """R-16, D-6: allowed, and a flood of them is not."""
    play = talking(limits=Limits.tiny())
    play >> (data(),) * 1024 << ignored(1, "R-12")
    play >> (more(0),) * 1024 << ignored(1, "R-12")
    play.on(lambda s: s.finish(1, drop=True)) << data(eof=True, close=True)
    play >> (data(),) * 1024 << ignored(1, "R-12")
    play >> (more(7),) * 1024 << ignored(1, "R-12")


def test_granted_is_reported() -> None:
    play = talking(ration=1).on(lambda s: s.write(1, b"x" * 256)) << data(b"x" * 256)
    play >> more(5) << ev.Granted(1, 5)
    assert play.engine.credit(1) == 5


def test_sessions_take_turns() -> None:
    """R-41, D-11: 16 KiB each, so that a long one does not keep short ones waiting."""
    engine = client(ration=0).engine
    engine.open("request", b"x" * 100_000)
    engine.open("request", b"short")
    said = Reader(client=True).read(HELLO.encode() + engine.outgoing(1 << 20))
    ids = [message.session for message in said if isinstance(message, Data)]
    assert ids.index(1) == 16
    assert ids.count(0) == 98
    assert engine.queued == 0


def test_what_is_written_at_a_time() -> None:
    engine = client(ration=0).engine
    engine.open("request", b"x" * 100_000)
    assert 4096 <= len(engine.outgoing(4096)) < 4096 + 2 * 1028
    assert engine.queued > 90_000
    assert engine.room(0) == engine.limits.outbound_high_bytes - engine.queued
    assert engine.room(1 << 30) == 0


def test_chunks_of_any_size(mode: str) -> None:
    """A Data is filled from several writes, and one write goes to several Data."""
    play = client(mode, fragment=10, ration=1)
    stream = play.engine.byte_sessions.open_session()
    play.engine.send(stream, [b"abc", b"defg", b"", b"h" * 20])
    play.on(lambda s: s.finish(stream))
    play << opening(b"abcdefghhh") << data(b"h" * 10) << data(b"h" * 7, eof=True)


def test_what_limits_a_session() -> None:
    play = client(ration=1)
    stream = play.engine.byte_sessions.open_session(b"x" * 300)
    [status] = play.engine.streams()
    assert (status.stream, status.verb, status.requester, status.unit) == (stream, "session", True, Unit.BYTES)
    assert (status.credit, status.sent, status.queued, status.reason) == (256, 0, 300, None)
    assert play.engine.streams(room=0)[0].reason == "transport"
    play.on(lambda s: s.takes(stream)) << opening(b"x" * 256)
    [status] = play.engine.streams()
    assert (status.credit, status.sent, status.queued, status.reason) == (0, 256, 44, "credit")
    play >> more(256) << data(b"x" * 44)
    play.forget().on(lambda s: s.finish(stream)) << data(eof=True)
    [status] = play.engine.streams()
    assert (status.state, status.outstanding, status.reason) == ("OUT_FIN", status.granted, "producer")
    play >> data(b"unread")
    assert (play.engine.streams()[0].received, play.engine.streams()[0].reason) == (6, "application")
    play.engine.byte_sessions.read(stream)
    assert play.engine.streams()[0].reason == "producer"
    waiting = client(ration=1, limits=Limits.server(sessions=1), max_wait_for_id=9)
    for _ in range(2):
        waiting.engine.byte_sessions.open_session(b"x")
    assert [status.reason for status in waiting.engine.streams()] == [None, "credit"]


def test_room_for_unread_answers() -> None:
    """Each session has a share of ``connection_bytes`` for what waits for ration; all have half as much again."""
    play = server(ration=1, ping_interval=0)
    limits = play.engine.limits
    share = limits.connection_bytes // 128
    play.engine.receive(b"".join(opening(id=id, eof=True).encode() for id in range(128)), 0.0)
    for stream in range(1, 128):
        play.engine.send(stream, [bytes(256 + share)])
        play.forget()
        assert play.engine.room(0) == limits.outbound_high_bytes
    play.engine.send(128, [bytes(256 + share + limits.connection_bytes // 2 - 100)])
    play.forget()
    assert play.engine.room(0) == 100
    assert play.engine.room(200) == 0
    near = client(ration=1)
    near.engine.open("request", bytes(100_000_000))
    near.forget()
    assert near.engine.room(0) == limits.outbound_high_bytes


# -- the reading that nothing stops ---------------------------------------------------------------------------


def test_127_sessions_stall_and_one_flows() -> None:
    """R-40, FC-17, FC-19: each side has written all that it may on 127 sessions, and neither reads them. A megabyte
    flows both ways on the last one, and the connection is always read."""
    far, near = Engine("server", sessions=True), Engine("client")
    told: dict[Engine, list[object]] = {far: [], near: []}

    def exchange() -> None:
        while True:
            there, back = near.outgoing(), far.outgoing()
            if not (there or back):
                return
            assert far.wants_read and near.wants_read
            told[far] += far.receive(there, 1.0)
            told[near] += near.receive(back, 1.0)

    exchange()
    for _ in range(127):
        stream = near.byte_sessions.open_session()
        near.send(stream, [b"x" * 64_000])
    exchange()
    for stream in range(1, 128):
        far.send(stream, [b"y" * 64_000])
    exchange()
    assert near.out.pending == far.out.pending == 127 * (64_000 - 32_768)
    assert near.queued == far.queued == 0
    live = near.byte_sessions.open_session()
    exchange()
    sent = {near: 0, far: 0}
    got = {near: 0, far: 0}
    for _ in range(1000):
        for engine in (near, far):
            size = min(engine.credit(live), (1 << 20) - sent[engine])
            engine.byte_sessions.write(live, b"z" * size)
            sent[engine] += size
        exchange()
        for engine in (near, far):
            got[engine] += len(engine.byte_sessions.read(live))
    assert sent == got == {near: 1 << 20, far: 1 << 20}
    assert not near.closed and not far.closed
    assert near.out.pending == 127 * (64_000 - 32_768)
    near.byte_sessions.finish(live)
    far.byte_sessions.finish(live)
    exchange()
    assert any(isinstance(event, Readable) and event.stream == live and event.complete for event in told[near])


def test_FC_17_the_stalled_ones_are_given_up() -> None:
    play = server(ration=1, ping_interval=0)
    play.engine.receive(b"".join(opening(id=id, eof=True).encode() for id in range(3)), 0.0)
    for stream in (1, 2, 3):
        play.engine.send(stream, [b"x" * 300])
    play.forget().at(0).at(59).quiet()
    play >> more(100, id=2)
    play.forget().at(60)
    play << failed(1, SessionAborted, message="session-stall") << failed(2, SessionAborted)
    play << abort(0, True, "session-stall") << abort(1, True, "session-stall")
    play.on(lambda s: s.write(3, b"go on")) << data(b"go on", id=2)


def test_a_stall_is_counted_from_its_beginning() -> None:
    """More that waits does not begin it anew."""
    play = talking(ration=1, ping_interval=0).do(lambda engine: engine.send(1, [b"x" * 300])) << data(b"x" * 256)
    play.at(0).quiet()
    play.engine.send(1, [b"more"])
    play.at(60) << failed(1, SessionAborted) << abort(0, True, "session-stall")
