"""Conversations about sessions that outlive their transport: positions, RESUME, RESUME_OK, refusals, what waits
meanwhile (sections 3.1 and 3.2, R-44 to R-53). Every number is counted by hand: a frame's bytes without its prefix.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from afflux.core import events as ev
from afflux.core.errors import (
    ConnectionClosed,
    LeaseExpired,
    LocalProtocolError,
    Rejected,
    RemoteProtocolError,
    SetupRefused,
    Violation,
)
from afflux.core.limits import Limits
from afflux.core.payload import Payload
from afflux.protocols.family.sessions import Sessions
from afflux.protocols.rsocket import Engine, frames
from afflux.protocols.rsocket.resume import Retained, counted

from .playbook import (
    TOKEN,
    Mode,
    Playbook,
    closed,
    error,
    failed,
    ignored,
    newcomer,
    position,
    requester,
    responder,
    resumable_client,
    resumable_server,
    resume,
    resume_ok,
    session_bytes,
    setup,
)

P = frames.PayloadFrame
OFTEN = Limits.server().replace(resume_rate=(10**6, 0.0))
"Limits that let a session be resumed as often as it likes."


def item(stream: int, data: bytes = b"x", complete: bool = False) -> P:
    return P(stream=stream, next=True, complete=complete, data=data)


def reconnect(play: Playbook) -> Playbook:
    """The client has a new transport, and asks."""
    return play.do(lambda engine: engine.resumption.reconnect(play.now))


def told(play: Playbook) -> tuple[int, int]:
    """What this side has sent and received, by its own books."""
    retained = play.engine.inbound.retained
    assert retained is not None
    return retained.sent, retained.received


def drained(engine: Engine) -> bytes:
    """All that it has to write now."""
    data = b""
    while chunk := engine.outgoing():
        data += chunk
    return data


# -- what is retained -----------------------------------------------------------------------------------------


def retained(*sizes: int, limits: Limits | None = None) -> Retained:
    """Frames of these many bytes, prefixes not counted, each a block."""
    store = Retained(limits or Limits.server())
    for number, size in enumerate(sizes):
        store.add(size.to_bytes(3, "big") + bytes([number % 256]) * size)
    return store


def kept(store: Retained) -> bytes:
    return b"".join(store.blocks())


def test_prefixes_are_not_counted() -> None:
    store = retained(6, 10, 7)
    assert (store.first, store.sent, store.size) == (0, 23, 23)
    assert store.room == 1024 * 1024 - 23
    assert len(kept(store)) == 23 + 3 * 3
    store.add(b"")
    assert store.sent == 23


@pytest.mark.parametrize(
    ("position", "first"),
    [(0, 0), (1, 0), (5, 0), (6, 6), (7, 6), (15, 6), (16, 16), (22, 16), (23, 23)],
)
def test_whole_frames_are_forgotten(position: int, first: int) -> None:
    """At a frame's border it is gone, inside it stays."""
    store = retained(6, 10, 7)
    store.trim(position)
    assert (store.first, store.sent, store.size) == (first, 23, 23 - first)
    assert kept(store) == b"".join(
        bytes([0, 0, size]) + bytes([number]) * size
        for number, size, start in ((0, 6, 0), (1, 10, 6), (2, 7, 16))
        if start >= first
    )


@pytest.mark.parametrize("trimmed", [0, 6, 16, 23])
def test_a_position_is_held_where_a_frame_begins(trimmed: int) -> None:
    store = retained(6, 10, 7)
    store.trim(trimmed)
    borders = [border for border in (0, 6, 16, 23) if border >= trimmed]
    assert [position for position in range(-1, 30) if store.holds(position)] == borders


def test_nothing_is_held_but_the_beginning() -> None:
    store = retained()
    assert [position for position in range(3) if store.holds(position)] == [0]
    store.trim(0)
    assert list(store.blocks()) == []


@pytest.mark.parametrize("sizes", [(6,) * 5000, (4093, 6, 6), (4092, 6, 6), (4094, 10, 5000, 6, 6)])
def test_blocks_are_joined_and_cut_at_every_border(sizes: tuple[int, ...]) -> None:
    """Small blocks share an object, and every frame in it can be the first or be asked for."""
    store = retained(*sizes)
    assert len(list(store.blocks())) <= sum(sizes) // 2048 + 2
    borders = [sum(sizes[:index]) for index in range(len(sizes) + 1)]
    step = max(1, len(sizes) // 100)
    for border in borders[::step]:
        assert store.holds(border)
        assert not store.holds(border + 1)
    for index in range(0, len(sizes), step):
        store.trim(borders[index] + 1)
        assert store.first == borders[index]
        assert not index or not store.holds(borders[index - 1])
        assert store.holds(borders[index]) and store.holds(borders[-2])
        store.trim(borders[index])
        assert store.size == sum(sizes[index:])
        assert len(kept(store)) == store.size + 3 * (len(sizes) - index)
    store.trim(borders[-1])
    assert (store.size, kept(store)) == (0, b"")
    store.add(b"\0\0\6abcdef")
    assert (store.size, kept(store)) == (6, b"\0\0\6abcdef")


def test_what_is_trimmed_before_something_joins_it() -> None:
    store = retained(6, 10)
    store.trim(6)
    store.add(b"\0\0\x07abcdefg")
    assert (store.first, store.sent) == (6, 23)
    assert [position for position in range(24) if store.holds(position)] == [6, 16, 23]
    assert kept(store) == b"\0\0\x0a" + b"\1" * 10 + b"\0\0\x07abcdefg"


def test_a_position_frees_blocks_and_copies_none() -> None:
    """A peer that acknowledges frame by frame costs a step for each, not a copy of the rest."""
    store = Retained(Limits.server())
    block = b"\0\0\6abcdef" * 10_000
    store.add(block)
    for number in range(1, 10_000):
        assert store.acknowledge(6 * number)
        assert store._blocks[0] is block
        assert store.size == 60_000 - 6 * number
    assert kept(store) == b"\0\0\6abcdef"
    assert store.acknowledge(60_000)
    assert list(store.blocks()) == []


def test_the_peer_reports_its_position() -> None:
    """R-51: whole frames below go, a smaller value says nothing, one beyond is a broken rule."""
    store = retained(6, 10, 7)
    assert store.acknowledge(8)
    assert store.first == 6
    assert not store.acknowledge(7)
    assert store.acknowledge(0)  # D-5: a peer that does not count
    assert store.first == 6
    assert store.acknowledge(8)
    assert store.acknowledge(23)
    assert store.size == 0
    with pytest.raises(Violation, match="position 24 of 23"):
        store.acknowledge(24)


@pytest.mark.parametrize(
    ("limit", "received", "due"),
    [
        *((64, 7, False), (64, 8, True), (64, 0, False), (7, 0, False), (7, 1, True), (0, 0, False), (0, 1, True)),
        *((1 << 20, 0x1FFFF, False), (1 << 20, 0x20000, True), (1 << 24, 0x1FFFF, False), (1 << 24, 0x20000, True)),
    ],
)
def test_a_report_is_due_at_an_eighth(limit: int, received: int, due: bool) -> None:
    """Of a store up to that of a server; and never when there is nothing to report: two ends would answer each other
    for ever."""
    store = Retained(Limits.server().replace(resume_bytes=limit))
    store.received = 100 + received
    store.reported = 100
    assert store.report_due == due


COUNTED: list[tuple[frames.Frame, int]] = [
    (frames.RequestResponse(stream=1, data=b"abc"), 9),
    (frames.RequestResponse(stream=1, data=b"abc", metadata=b"m"), 13),
    (frames.RequestFnf(stream=1, data=b""), 6),
    (frames.RequestStream(stream=1, initial_n=1, data=b"a"), 11),
    (frames.RequestChannel(stream=1, initial_n=1, data=b"a", complete=True, follows=True), 11),
    (frames.RequestN(stream=1, n=1), 10),
    (frames.Cancel(stream=0x7FFFFFFF), 6),
    (P(stream=1, next=True, data=b"ab", metadata=b""), 11),
    (frames.ErrorFrame(stream=1, code=0x201, data=b"no"), 12),
    (frames.ErrorFrame(stream=0, code=0x101, data=b"no"), 0),
    (frames.Keepalive(stream=0, respond=True, position=3, data=b"k"), 0),
    (frames.Lease(stream=0, ttl_ms=1, requests=1), 0),
    (frames.MetadataPush(stream=0, metadata=b"m"), 0),
    (frames.Ext(stream=1, ignore=True, extended_type=1, body=b"e"), 0),
    (setup(token=TOKEN), 0),
    (resume(server=1, client=1), 0),
    (resume_ok(1), 0),
]


@pytest.mark.parametrize(("frame", "size"), COUNTED, ids=repr)
def test_what_has_a_position(frame: frames.Frame, size: int) -> None:
    """R-44."""
    data = frame.encode(prefixed=True)
    assert counted(data, 0, len(data)) == size
    assert counted(b"junk" + data + data, 4, 4 + 2 * len(data)) == 2 * size


def test_all_that_has_a_position() -> None:
    whole = b"".join(frame.encode(prefixed=True) for frame, _ in COUNTED)
    assert counted(whole, 0, len(whole)) == sum(size for _, size in COUNTED) == 89
    assert counted(whole, 0, 0) == 0
    unknown = bytes.fromhex("000006 00000001 be00")
    assert counted(unknown, 0, len(unknown)) == 0
    reserved = bytes.fromhex("000006 80000000 2400")  # the top bit is not the id's: stream 0
    assert counted(reserved, 0, len(reserved)) == 0


# -- the sessions of a server ---------------------------------------------------------------------------------


def session(sessions: Sessions, number: int, limits: Limits) -> Playbook:
    """A client with a token of its own has come."""
    play = Playbook(Engine("server", limits=limits, sessions=sessions))
    return play >> setup(token=b"%016d" % number) << ev.Established


def away(sessions: Sessions, number: int, limits: Limits, held: int = 0) -> Playbook:
    """And has gone, with ``held`` bytes kept for it."""
    play = session(sessions, number, limits)
    if held:
        play >> frames.RequestStream(stream=1, initial_n=1, data=b"") << ev.Opened
        play.do(lambda engine: engine.send(1, [bytes(held - 6)])) << P
    play.cut()
    sessions.away(play.engine)
    return play


def test_a_session_is_found_by_its_token() -> None:
    limits = Limits.server()
    sessions = Sessions(limits)
    one, two = session(sessions, 1, limits), session(sessions, 2, limits)
    assert len(sessions) == 2
    assert sessions.find(b"%016d" % 1) is one.engine
    assert sessions.find(b"%016d" % 2) is two.engine
    assert sessions.find(b"%016d" % 3) is None
    assert sessions.find(b"") is None
    one.do(lambda engine: engine.close(0.0)) << closed(ConnectionClosed) << error(0, 0x101)
    assert sessions.find(b"%016d" % 1) is None
    assert len(sessions) == 1
    sessions.remove(one.engine)  # twice does no harm
    sessions.away(one.engine)
    assert len(sessions) == 1
    assert sessions.crowd_out() == []


def test_a_session_that_is_over_does_not_take_its_successor_with_it() -> None:
    """Evicted, and its token taken by another: the end of the one is not the end of the other."""
    limits = Limits.server().replace(resume_sessions=0)
    sessions = Sessions(limits)
    one = Playbook(Engine("server", limits=Limits.server(), sessions=sessions)) >> setup() << ev.Established
    assert len(sessions) == 0
    sessions = Sessions(Limits.server().replace(resume_sessions=1, resume_process_bytes=0))
    one = away(sessions, 1, Limits.server(), held=10)
    assert sessions.crowd_out() == [one.engine]
    two = session(sessions, 1, Limits.server())
    one.do(lambda engine: engine.close(0.0)) << failed(1, ConnectionClosed) << ev.Closed << error(0, 0x101)
    assert sessions.find(b"%016d" % 1) is two.engine


@pytest.mark.parametrize(
    "asks", [lambda engine, payload: engine.open("fire", payload), lambda engine, payload: engine.ask([payload])]
)
def test_what_is_asked_while_a_session_is_away_is_held_for_it(asks: Callable[..., Any]) -> None:
    """RE-18: it counts, though nobody sends anything."""
    sessions = Sessions(Limits.server().replace(resume_process_bytes=1000))
    one = away(sessions, 1, Limits.server())
    assert sessions.crowd_out() == []
    asks(one.engine, Payload(bytes(990)))
    assert sessions.crowd_out() == []
    asks(one.engine, Payload(bytes(10)))
    assert sessions.crowd_out() == [one.engine]


def test_as_many_sessions_as_may_be() -> None:
    """RE-18: with all of them connected there is no place; with one of them away there is."""
    limits = Limits.tiny()
    sessions = Sessions(limits)
    there = [session(sessions, number, limits) for number in range(limits.resume_sessions - 1)]
    assert not sessions.full
    last = session(sessions, 99, limits)
    assert sessions.full
    stranger = Playbook(Engine("server", limits=limits, sessions=sessions))
    stranger >> setup(token=b"t" * 16) << closed(RemoteProtocolError, rule="resume_sessions")
    stranger << error(0, 0x003, b"too many sessions")
    without = Playbook(Engine("server", limits=limits, sessions=sessions))
    without >> setup() << ev.Established  # a client that does not want to resume takes no place
    there[3].cut()
    sessions.away(there[3].engine)
    assert not sessions.full
    session(sessions, 100, limits)
    assert sessions.crowd_out() == [there[3].engine]
    assert sessions.full
    assert sessions.find(b"%016d" % 99) is last.engine


def test_a_session_that_came_back_is_not_away() -> None:
    limits = Limits.tiny()
    sessions = Sessions(limits)
    there = [session(sessions, number, limits) for number in range(limits.resume_sessions)]
    for play in there[:2]:
        play.cut()
        sessions.away(play.engine)
    assert not sessions.full
    stranger = Playbook(Engine("server", limits=limits, sessions=sessions))
    stranger >> resume(server=0, client=0, token=b"%016d" % 0)
    there[0].adopt(stranger) << ev.Resumed << resume_ok(0)
    assert not sessions.full
    session(sessions, 100, limits)
    assert sessions.crowd_out() == [there[1].engine]
    assert sessions.full
    assert sessions.crowd_out() == []


@pytest.mark.parametrize(
    ("most", "gone"), [(64, []), (63, [2]), (48, [2]), (47, [2, 0]), (32, [2, 0]), (31, [2, 0, 1]), (0, [2, 0, 1])]
)
def test_those_away_for_longest_go_first(most: int, gone: list[int]) -> None:
    """By bytes: 16 each of four, one of them connected."""
    limits = Limits.tiny().replace(resume_process_bytes=most)
    sessions = Sessions(limits)
    plays = []
    for number in range(4):
        play = session(sessions, number, limits) >> frames.RequestStream(stream=1, initial_n=1, data=b"") << ev.Opened
        plays.append(play.do(lambda engine: engine.send(1, [bytes(10)])) << P)
    for number in (2, 0, 1):
        plays[number].cut()
        sessions.away(plays[number].engine)
    assert [session_bytes(play.engine) for play in plays] == [16] * 4
    assert sessions.crowd_out() == [plays[number].engine for number in gone]
    assert len(sessions) == 4 - len(gone)
    assert [number for number in range(4) if sessions.find(b"%016d" % number) is None] == sorted(gone)


def test_what_waits_and_what_is_half_received_is_held_too() -> None:
    limits = Limits.server()
    play = resumable_server(limits=limits)
    play >> frames.RequestStream(stream=1, initial_n=5, data=b"") << ev.Opened
    play >> frames.RequestResponse(stream=3, follows=True, data=bytes(100))
    assert session_bytes(play.engine) == 100 + 512
    play.do(lambda engine: engine.send(1, [b"ab"])) << P
    assert session_bytes(play.engine) == 612 + 8
    play.cut()
    play.do(lambda engine: engine.send(1, [b"abc"]))
    assert session_bytes(play.engine) == 620 + 12  # with its prefix: it has not left
    play.engine.consumed(0, 1)
    assert play.engine.held_bytes == session_bytes(play.engine)


# -- positions ------------------------------------------------------------------------------------------------


def test_every_position_of_a_conversation(mode: Mode) -> None:
    play = resumable_server(mode)
    assert told(play) == (0, 0)
    play >> frames.RequestStream(stream=1, initial_n=3, data=b"abc") << (ev.Opened, {"stream": 1})
    assert told(play) == (0, 13)
    play.do(lambda engine: engine.send(1, [b"x"])) << item(1)
    assert told(play) == (7, 13)
    play.do(lambda engine: engine.send(1, [b"xy", b"xyz"], complete=True)) << item(1, b"xy") << item(1, b"xyz", True)
    assert told(play) == (24, 13)
    play >> frames.RequestChannel(stream=3, initial_n=1, data=b"", metadata=b"mm") << (ev.Opened, {"stream": 3})
    assert told(play) == (24, 28)
    play.do(lambda engine: engine.request(3, 5)) << frames.RequestN(stream=3, n=4)
    assert told(play) == (34, 28)
    play >> item(3) << ev.Items >> frames.RequestN(stream=3, n=2) << ev.Granted
    assert told(play) == (34, 45)
    play >> frames.Cancel(stream=3) << ev.Canceled
    assert told(play) == (34, 51)
    play >> frames.RequestResponse(stream=5, data=b"") << ev.Opened
    play.do(lambda engine: engine.fail(5, Rejected("no"))) << error(5, 0x202, b"no")
    assert told(play) == (46, 57)
    play >> frames.RequestFnf(stream=7, data=b"f") << ev.Opened
    play.do(lambda engine: engine.open("request", b"q")) << frames.RequestResponse(stream=2, data=b"q")
    play >> item(2, b"a", True) << ev.Items
    play.do(lambda engine: engine.open("request", b"")) << frames.RequestResponse(stream=4, data=b"")
    play.do(lambda engine: engine.cancel(4)) << frames.Cancel(stream=4)
    assert told(play) == (65, 71)
    play >> position(65, respond=True) << position(71)
    assert play.engine.resuming.retained is not None
    assert play.engine.resuming.retained.size == 0
    play >> frames.MetadataPush(stream=0, metadata=b"m") << ev.Pushed
    play.do(lambda engine: engine.push(b"m")) << frames.MetadataPush
    assert told(play) == (65, 71)


def test_frames_that_are_dropped_are_received(mode: Mode) -> None:
    """What they mean is nothing; where they stand counts."""
    play = resumable_server(mode)
    play >> frames.Cancel(stream=9) << ignored(1)
    play >> frames.RequestN(stream=9, n=1) << ignored(1)
    play >> item(9) << ignored(1)
    play >> frames.ErrorFrame(stream=9, code=0x201, data=b"") << ignored(1)
    play >> frames.RequestResponse(stream=2, data=b"") << ignored(10)
    assert told(play) == (0, 6 + 10 + 7 + 10 + 6)
    play >> bytes.fromhex("00000a 00000001 1300 00000a 61") << ignored(1)  # I, and a metadata length that lies
    assert told(play) == (0, 49)
    play >> bytes.fromhex("000006 00000001 be00") << ignored(1)  # a type that neither side counts
    play >> bytes.fromhex("000008 00000009 2400 ffff") << ignored(1, "FR-21") << ignored(1)
    assert told(play) == (0, 57)


def test_half_a_frame_is_not_received(mode: Mode) -> None:
    play = resumable_server(mode)
    data = frames.RequestStream(stream=1, initial_n=3, data=b"abc").encode(prefixed=True)
    play >> data[:-1]
    assert told(play) == (0, 0)
    play >> data[-1:] << ev.Opened
    assert told(play) == (0, 13)


def test_a_keepalive_carries_the_position_before_it() -> None:
    """In one read with frames before and behind it."""
    play = resumable_server()
    request = frames.RequestFnf(stream=1, data=b"a")
    play >> (request, position(0, respond=True), frames.RequestFnf(stream=3, data=b"bc")) << ev.Opened << ev.Opened
    play << position(7)
    assert told(play) == (0, 15)
    play >> position(0, respond=True) << position(15)


@pytest.mark.parametrize("columnar", [False, True])
def test_runs_of_items_are_counted(mode: Mode, columnar: bool) -> None:
    play = resumable_client(mode)
    play.do(lambda engine: engine.open("stream", b"", credit=50, columnar=columnar)) << frames.RequestStream
    play >> tuple(item(1, b"abc") for _ in range(40))
    play.events.clear()
    assert told(play) == (10, 40 * 9)
    play >> item(1, b"abc", True) << ev.Items
    play.do(lambda engine: engine.open("request", b"")) << frames.RequestResponse
    play >> item(3, b"answer", True) << ev.Items
    assert told(play) == (16, 369 + 12)


def test_without_resumption_nothing_is_counted() -> None:
    """R-51: the position is 0, and what the peer says is not looked at (KA-07)."""
    play = responder() >> frames.RequestFnf(stream=1, data=b"") << ev.Opened
    play >> position(12345, respond=True) << position(0)
    play = requester()
    play.do(lambda engine: engine.open("fire", b"")) << frames.RequestFnf
    play.at(20.0) << position(0, respond=True)
    play >> position(12345)
    play.quiet()


def test_a_position_goes_unasked_when_an_eighth_has_come(mode: Mode) -> None:
    """R-51, before the peer has to stop: K is 800, an eighth is 100."""
    play = resumable_server(mode, Limits.server().replace(resume_bytes=800))
    play >> frames.RequestFnf(stream=1, data=bytes(93)) << ev.Opened
    assert told(play) == (0, 99)
    play.quiet()
    play >> frames.RequestFnf(stream=3, data=b"") << ev.Opened << position(105)
    play >> frames.RequestFnf(stream=5, data=bytes(93)) << ev.Opened
    play >> frames.MetadataPush(stream=0, metadata=bytes(200)) << ev.Pushed  # not counted
    play.quiet()
    play >> frames.RequestFnf(stream=7, data=bytes(94)) << ev.Opened << position(304)
    play >> position(0, respond=True) << position(304)
    play.quiet()


@pytest.mark.parametrize("role", ["client", "server"])
@pytest.mark.parametrize(("at", "wrong"), [(7, False), (8, True), (2**63 - 1, True)])
def test_a_position_that_was_not_sent_yet(role: str, at: int, wrong: bool, mode: Mode) -> None:
    """R-51, KA-07."""
    play = resumable_client(mode) if role == "client" else resumable_server(mode)
    play.do(lambda engine: engine.open("fire", b"x")) << frames.RequestFnf
    play >> position(at)
    if wrong:
        (
            play
            << closed(RemoteProtocolError, rule="R-51")
            << error(0, 0x101, b"position %d of 7: it was not sent yet" % at)
        )
    play.quiet()


def test_a_position_that_goes_backwards(mode: Mode) -> None:
    """KA-07: it is charged, and not answered; 0 and the same again are no fault."""
    play = resumable_client(mode)
    play.do(lambda engine: engine.open("fire", b"x")) << frames.RequestFnf
    play >> position(7)
    play >> position(6, respond=True) << ignored(10, "KA-07")
    play >> position(0, respond=True) << position(0)
    play >> position(7, respond=True) << position(0)
    play.quiet()


# -- a client comes back --------------------------------------------------------------------------------------


def test_a_client_comes_back_and_repeats_what_is_missing(mode: Mode) -> None:
    play = resumable_client(mode)
    play.do(lambda engine: engine.open("stream", b"abc", credit=5)) << frames.RequestStream
    play.do(lambda engine: engine.open("request", b"q")) << frames.RequestResponse
    play.do(lambda engine: engine.request(1, 2)) << frames.RequestN
    play >> (item(1), item(1, b"xy")) << ev.Items
    if mode == "bytewise":
        play << ev.Items
    assert told(play) == (30, 15)
    play.cut()
    assert play.engine.resumption.suspended
    reconnect(play) << resume(server=15, client=0)
    assert not play.engine.resumption.suspended
    play >> resume_ok(13) << ev.Resumed
    play << frames.RequestResponse(stream=3, data=b"q") << frames.RequestN(stream=1, n=2)
    play.quiet()
    assert told(play) == (30, 15)
    play >> item(3, b"answer", True) << ev.Items
    play >> tuple(item(1, b"y") for _ in range(5))
    play.events.clear()
    play >> item(1, b"beyond") << ev.Ignored << failed(1, RemoteProtocolError, rule="R-27") << frames.Cancel


@pytest.mark.parametrize(
    ("at", "repeated"),
    [
        (0, [frames.RequestFnf(stream=1, data=b"a"), frames.RequestFnf(stream=3, data=b"b")]),
        (7, [frames.RequestFnf(stream=3, data=b"b")]),
        (14, []),
    ],
)
def test_what_is_repeated(at: int, repeated: list[frames.Frame], mode: Mode) -> None:
    """R-50: in order, everything beyond the position, and nothing before it."""
    play = resumable_client(mode)
    for data in (b"a", b"b"):
        play.do(lambda engine, data=data: engine.open("fire", data)) << frames.RequestFnf
    reconnect(play.cut()) << resume(server=0, client=0)
    play >> resume_ok(at) << ev.Resumed
    for frame in repeated:
        play << frame
    play.quiet()
    assert play.engine.resuming.retained is not None
    assert play.engine.resuming.retained.first == at


@pytest.mark.parametrize("at", [1, 6, 8, 13, 15, 2**63 - 1])
def test_RESUME_OK_with_a_position_it_can_not_have(at: int, mode: Mode) -> None:
    """RE-23: inside a frame, or beyond what was sent; there is no further attempt."""
    play = resumable_client(mode)
    for data in (b"a", b"b"):
        play.do(lambda engine, data=data: engine.open("fire", data)) << frames.RequestFnf
    play.do(lambda engine: engine.open("request", b"")) << frames.RequestResponse
    play >> position(20)
    play.do(lambda engine: engine.open("fire", b"")) << frames.RequestFnf
    reconnect(play.cut()) << resume(server=0, client=20)
    play >> resume_ok(at) << failed(5, RemoteProtocolError, rule="RE-23") << closed(RemoteProtocolError, rule="RE-23")
    play << error(0, 0x101, b"position %d is not retained" % at)
    play.quiet()


def test_the_position_that_RESUME_OK_has_forgotten(mode: Mode) -> None:
    """The peer said 14 in a KEEPALIVE; it can not be back at 7."""
    play = resumable_client(mode)
    for data in (b"a", b"b"):
        play.do(lambda engine, data=data: engine.open("fire", data)) << frames.RequestFnf
    play >> position(14)
    reconnect(play.cut()) << resume(server=0, client=14)
    play >> resume_ok(7) << closed(RemoteProtocolError, rule="RE-23") << error(0, 0x101)


@pytest.mark.parametrize(
    ("at", "first"), [(0, 0), (6, 0), (7, 7), (13, 7), (14, 14)], ids=["none", "inside", "border", "inside2", "all"]
)
def test_keepalives_trim_what_a_client_offers(at: int, first: int) -> None:
    play = resumable_client()
    for data in (b"a", b"b"):
        play.do(lambda engine, data=data: engine.open("fire", data)) << frames.RequestFnf
    play >> position(at)
    reconnect(play.cut()) << resume(server=0, client=first)


def test_a_refusal_to_resume_ends_it_once(mode: Mode) -> None:
    """RE-24: every stream fails once, and nothing is tried again."""
    play = resumable_client(mode)
    play.do(lambda engine: engine.open("request", b"")) << frames.RequestResponse
    play.do(lambda engine: engine.open("channel", b"", credit=1)) << frames.RequestChannel
    reconnect(play.cut()) << resume(server=0, client=0)
    play >> frames.ErrorFrame(stream=0, code=0x004, data=b"gone")
    play << failed(1, SetupRefused, code=0x004) << failed(3, SetupRefused, code=0x004)
    play << closed(SetupRefused, code=0x004, message="gone")
    play.quiet()
    assert play.engine.closed
    assert play.engine.deadline is None
    with pytest.raises(LocalProtocolError, match="suspended"):
        play.engine.resumption.reconnect(1.0)


@pytest.mark.parametrize("code", [0x001, 0x002, 0x003, 0x101, 0x102, 0x301, 0xFFFFFFFE])
def test_another_error_is_a_reason_to_try_again(code: int, mode: Mode) -> None:
    """Section 3.1: other ERROR on 0 while RESUME waits for its answer."""
    play = resumable_client(mode)
    play.do(lambda engine: engine.open("fire", b"a")) << frames.RequestFnf
    reconnect(play.cut()) << resume(server=0, client=0)
    play >> frames.ErrorFrame(stream=0, code=code, data=b"later")
    play << (ev.Suspended, {"error.code": code, "error.message": "later"})
    play.quiet()
    reconnect(play) << resume(server=0, client=0)
    play >> resume_ok(0) << ev.Resumed << frames.RequestFnf(stream=1, data=b"a")


BROKEN: list[frames.Frame] = [
    setup(),
    resume(server=0, client=0),
    frames.Lease(stream=0, ttl_ms=1, requests=1),
    position(0),
    position(0, respond=True),
    frames.MetadataPush(stream=0, metadata=b"m"),
    frames.Ext(stream=0, ignore=True, extended_type=1, body=b""),
    frames.RequestResponse(stream=2, data=b"x"),
    frames.RequestFnf(stream=2, data=b"x"),
    item(1),
    item(1, complete=True),
    frames.RequestN(stream=1, n=1),
    frames.Cancel(stream=1),
    frames.ErrorFrame(stream=1, code=0x201, data=b""),
]


@pytest.mark.parametrize("frame", BROKEN, ids=repr)
def test_anything_else_before_RESUME_OK(frame: frames.Frame, mode: Mode) -> None:
    """RE-04: ERROR[CONNECTION_ERROR], and another try; the frame has not been received."""
    play = resumable_client(mode)
    play.do(lambda engine: engine.open("request", b"q")) << frames.RequestResponse
    reconnect(play.cut()) << resume(server=0, client=0)
    play >> frame << ev.Suspended << error(0, 0x101, b"only RESUME_OK may come now")
    play.quiet()
    assert play.engine.resumption.suspended
    assert told(play) == (7, 0)
    reconnect(play) << resume(server=0, client=0)
    play >> resume_ok(7) << ev.Resumed
    play.quiet()


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("000005 0000000000", b"a frame of 5 bytes is shorter than its header"),
        ("000006 00000000 bc00", b"frame type 0x2F is unknown"),
        ("000008 00000000 3800 0000", None),
        ("410001", b"frame-too-large"),
    ],
)
def test_what_can_not_be_read_before_RESUME_OK(data: str, text: bytes | None, mode: Mode) -> None:
    play = resumable_client(mode)
    play.do(lambda engine: engine.open("request", b"q")) << frames.RequestResponse
    reconnect(play.cut()) << resume(server=0, client=0)
    play >> bytes.fromhex(data) << ev.Suspended << error(0, 0x101, text)
    reconnect(play) << resume(server=0, client=0)
    play >> resume_ok(0) << ev.Resumed << frames.RequestResponse
    play.quiet()


def test_what_may_be_skipped_before_RESUME_OK_is_skipped() -> None:
    play = resumable_client()
    reconnect(play.cut()) << resume(server=0, client=0)
    play >> bytes.fromhex("000006 00000000 be00") << ignored(1)
    play >> bytes.fromhex("00000e 00000001 3800 0000000000000000") << ignored(10, "R-32")  # RESUME_OK on a stream
    play >> resume_ok(0) << ev.Resumed


def test_the_last_words_on_one_transport_are_not_the_first_on_the_next() -> None:
    """A driver drops the transport as soon as it hears of Suspended: the ERROR for it is not kept for the next."""
    engine = resumable_client().engine
    engine.receive_eof(0.0)
    engine.resumption.reconnect(0.0)
    assert drained(engine) == resume(server=0, client=0).encode(prefixed=True)
    engine.receive(position(0).encode(prefixed=True), 0.0)
    assert engine.resumption.suspended
    engine.resumption.reconnect(0.0)
    assert drained(engine) == resume(server=0, client=0).encode(prefixed=True)


def test_bytes_of_a_lost_transport_are_ignored(mode: Mode) -> None:
    """A read that was under way when the transport was given up."""
    for play in (resumable_client(mode), resumable_server(mode)):
        play.cut()
        play >> (frames.Cancel(stream=1), position(5), b"\0\0\0") >> b"\0\0\1"
        play.quiet()
        assert play.engine.resumption.suspended
        assert told(play) == (0, 0)
        assert play.engine.inbound.pending == 0


def test_the_rest_behind_RESUME_OK_is_taken(mode: Mode) -> None:
    play = resumable_client(mode)
    play.do(lambda engine: engine.open("stream", b"", credit=5)) << frames.RequestStream
    play >> item(1) << ev.Items
    reconnect(play.cut()) << resume(server=7, client=0)
    play >> (resume_ok(10), item(1, b"y"), position(10, respond=True)) << ev.Resumed << ev.Items << position(14)
    assert told(play) == (10, 14)
    play.quiet()


def test_a_client_that_was_cut_before_it_was_answered(mode: Mode) -> None:
    """Beyond section 3.1: the server may have accepted, and only RESUME can tell. It is established then."""
    asked = setup(token=TOKEN)
    play = Playbook(Engine("client", setup=asked), mode) << asked
    play.do(lambda engine: engine.open("request", b"q")) << frames.RequestResponse
    reconnect(play.cut()) << resume(server=0, client=0)
    play >> resume_ok(0) << ev.Established(None) << ev.Resumed << frames.RequestResponse(stream=1, data=b"q")
    play >> frames.RequestResponse(stream=2, data=b"") << (ev.Opened, {"stream": 2})
    play >> item(1, b"a", True) << ev.Items
    reconnect(play.cut()) << resume(server=13, client=0)
    play >> resume_ok(7) << ev.Resumed  # and it is said once
    play.quiet()


def test_a_client_with_an_unknown_token(mode: Mode) -> None:
    asked = setup(token=TOKEN)
    play = Playbook(Engine("client", setup=asked), mode) << asked
    play.do(lambda engine: engine.open("request", b"q")) << frames.RequestResponse
    reconnect(play.cut()) << resume(server=0, client=0)
    play >> frames.ErrorFrame(stream=0, code=0x004, data=b"")
    play << failed(1, ConnectionClosed, code=0x004, may_have_been_processed=True)
    play << (ev.Suspended, {"error.message": "REJECTED_RESUME"})


def test_only_what_is_suspended_reconnects() -> None:
    for play in (resumable_client(), resumable_server()):
        with pytest.raises(LocalProtocolError, match="suspended"):
            play.engine.resumption.reconnect(0.0)
        with pytest.raises(LocalProtocolError, match="no session waits"):
            play.engine.resumption.hand_over()
    play = resumable_server().cut()
    with pytest.raises(LocalProtocolError, match="client"):
        play.engine.resumption.reconnect(0.0)
    play = reconnect(resumable_client().cut()) << frames.Resume
    with pytest.raises(LocalProtocolError, match="suspended"):
        play.engine.resumption.reconnect(0.0)
    with pytest.raises(Rejected, match="no such session"):
        resumable_client().engine.resumption.resume(resume(server=0, client=0), 0.0)


# -- a server goes on -----------------------------------------------------------------------------------------


def serving(mode: Mode = "whole", limits: Limits | None = None) -> Playbook:
    """A server with a stream that has sent two items: 13 bytes received, 15 sent."""
    play = resumable_server(mode, limits or OFTEN)
    play >> frames.RequestStream(stream=1, initial_n=9, data=b"abc") << ev.Opened
    play.do(lambda engine: engine.send(1, [b"x", b"yz"])) << item(1) << item(1, b"yz")
    return play


@pytest.mark.parametrize(("at", "repeated"), [(0, [b"x", b"yz"]), (7, [b"yz"]), (15, [])])
def test_a_server_goes_on_and_repeats_what_is_missing(at: int, repeated: list[bytes], mode: Mode) -> None:
    play = serving(mode).cut()
    play.do(lambda engine: engine.send(1, [b"new"]))
    stranger = newcomer(play, server=at, client=0, mode=mode)
    play.adopt(stranger) << ev.Resumed << resume_ok(13)
    for data in repeated:
        play << item(1, data)
    play << item(1, b"new")
    assert stranger.engine.closed
    assert stranger.engine.deadline is None
    assert stranger.engine.receive(b"more", 0.0) == []
    play >> frames.RequestN(stream=1, n=1) << ev.Granted
    assert told(play) == (24, 23)


@pytest.mark.parametrize("at", [1, 6, 8, 14, 16, 2**63 - 1])
def test_a_position_that_is_not_retained_is_refused(at: int, mode: Mode) -> None:
    """RE-05, R-46: the session is kept, and its owner comes back right behind the refused one."""
    play = serving(mode, Limits.server()).cut()
    stranger = newcomer(play, server=at, client=0, mode=mode)
    with pytest.raises(Rejected, match=f"position {at} is not retained") as refused:
        play.adopt(stranger)
    assert refused.value.code == 0x004
    stranger.do(lambda engine: engine.refuse(refused.value.message, 0.0))
    stranger << closed(RemoteProtocolError, code=0x004, rule="R-46") << error(0, 0x004)
    stranger.quiet()
    assert play.engine.resumption.suspended
    play.quiet()
    play.adopt(newcomer(play, server=15, client=0)) << ev.Resumed << resume_ok(13)


def test_a_position_that_was_trimmed_is_refused() -> None:
    play = serving() >> position(7)
    play.cut()
    with pytest.raises(Rejected, match="position 0 is not retained"):
        play.adopt(newcomer(play, server=0, client=0))
    play.adopt(newcomer(play, server=7, client=0)) << ev.Resumed << resume_ok(13) << item(1, b"yz")


@pytest.mark.parametrize(("first", "fits"), [(0, True), (12, True), (13, True), (14, False), (2**63 - 1, False)])
def test_the_first_available_position(first: int, fits: bool) -> None:
    """RE-07: what the client has forgotten must have been received."""
    play = serving().cut()
    stranger = newcomer(play, server=15, client=first)
    if fits:
        play.adopt(stranger) << ev.Resumed << resume_ok(13)
    else:
        with pytest.raises(Rejected, match="only 13 bytes were received here"):
            play.adopt(stranger)
    play.quiet()


def test_the_newer_transport_wins(mode: Mode) -> None:
    """RE-14: the older one still looks open; nothing is processed twice."""
    play = serving(mode)
    half = frames.RequestFnf(stream=3, data=b"half").encode(prefixed=True)
    play >> half[:9]
    stranger = newcomer(play, server=7, client=0, mode=mode)
    play.adopt(stranger) << ev.Suspended << ev.Resumed << resume_ok(13) << item(1, b"yz")
    play >> half << (ev.Opened, {"stream": 3, "payload": Payload(b"half")})
    assert told(play) == (15, 23)
    play.quiet()


def test_a_newcomer_that_sends_more_than_it_may(mode: Mode) -> None:
    """RE-03: RESUME after RESUME ends what it resumed; R-45 lets a client say nothing before the answer."""
    play = serving(mode).cut()
    stranger = newcomer(play, server=15, client=0, mode=mode)
    event = stranger.events[0]
    stranger.events.clear()
    stranger >> resume(server=15, client=0)
    stranger.events.append(event)
    play.adopt(stranger) << ev.Resumed << failed(1, RemoteProtocolError, rule="R-48")
    play << closed(RemoteProtocolError, rule="R-48") << resume_ok(13) << error(0, 0x101)
    assert play.engine.resuming.sessions is not None
    assert len(play.engine.resuming.sessions) == 0


def test_what_came_behind_RESUME_is_handed_over(mode: Mode) -> None:
    play = serving(mode).cut()
    stranger = newcomer(play, server=15, client=0, mode=mode)
    event = stranger.events[0]
    stranger.events.clear()
    stranger >> frames.RequestFnf(stream=3, data=b"early").encode(prefixed=True)[:-2]
    stranger.events.append(event)
    play.adopt(stranger) << ev.Resumed << resume_ok(13)
    play >> b"ly" << (ev.Opened, {"payload": Payload(b"early")})
    assert told(play) == (15, 13 + 11)


def test_a_newcomer_is_bounded_while_it_waits() -> None:
    play = serving().cut()
    stranger = newcomer(play, server=15, client=0)
    stranger.events.clear()
    assert stranger.engine.wants_read
    stranger >> bytes(Limits.server().first_frame_bytes)
    assert not stranger.engine.wants_read


@pytest.mark.parametrize("drain", [False, True])
def test_a_newcomer_is_turned_away(drain: bool) -> None:
    """By the application, whatever it says: REJECTED_RESUME (R-47); the session is as it was."""
    play = serving().cut()
    stranger = newcomer(play, server=15, client=0) << ev.Resuming
    stranger.do(lambda engine: engine.close(0.0, drain=drain, reason="not now"))
    stranger << closed(RemoteProtocolError, code=0x004) << error(0, 0x004, b"not now")
    stranger = newcomer(play, server=15, client=0) << ev.Resuming
    with pytest.raises(LocalProtocolError, match="nothing to decide"):
        stranger.engine.accept(0.0)
    stranger.do(lambda engine: engine.refuse("no", 0.0, 0x002))
    stranger << closed(RemoteProtocolError, code=0x004) << error(0, 0x004, b"no")
    stranger = newcomer(play, server=15, client=0) << ev.Resuming
    stranger.eof() << closed(ConnectionClosed)
    stranger = newcomer(play, server=15, client=0) << ev.Resuming
    assert stranger.engine.deadline == 10.0
    stranger.at(10.0) << closed(ConnectionClosed)
    stranger.quiet()
    assert play.engine.resumption.suspended
    play.adopt(newcomer(play, server=15, client=0)) << ev.Resumed << resume_ok(13)


@pytest.mark.parametrize(
    ("changes", "code", "rule"),
    [
        ({"stream": 5}, 0x001, "HS-03"),
        ({"token": b"t" * 16}, 0x004, "RE-02"),
        ({"token": TOKEN[:15]}, 0x004, "RE-02"),
        ({"token": TOKEN + b"\0"}, 0x004, "RE-02"),
        ({"major": 2}, 0x004, "R-52"),
        ({"minor": 1}, 0x004, "R-52"),
    ],
)
def test_strangers_are_refused(changes: dict[str, Any], code: int, rule: str, mode: Mode) -> None:
    """And the owner hears nothing of it."""
    play = serving(mode).cut()
    stranger = Playbook(Engine("server", sessions=play.engine.resuming.sessions), mode)
    data = bytearray(resume(server=15, client=0, **{k: v for k, v in changes.items() if k != "stream"}).encode())
    data[3] = changes.get("stream", 0)
    stranger >> len(data).to_bytes(3, "big") + bytes(data)
    stranger << closed(RemoteProtocolError, code=code, rule=rule) << error(0, code)
    stranger.quiet()
    play.quiet()
    play.adopt(newcomer(play, server=15, client=0)) << ev.Resumed << resume_ok(13)


def test_no_resumption_here(mode: Mode) -> None:
    """RE-01, R-15."""
    stranger = Playbook(Engine("server"), mode) >> resume(server=0, client=0)
    stranger << closed(RemoteProtocolError, rule="RE-01") << error(0, 0x004, b"resumption is not supported")


def test_a_token_in_use(mode: Mode) -> None:
    """R-49, RE-11: whether its session is connected or away, the owner is untouched."""
    play = serving(mode)
    for _ in range(2):
        stranger = Playbook(Engine("server", sessions=play.engine.resuming.sessions), mode)
        stranger >> setup(token=TOKEN) << closed(RemoteProtocolError, rule="R-49")
        stranger << error(0, 0x003, b"the token is in use")
        stranger.quiet()
        play.quiet()
        if not play.engine.resumption.suspended:
            play.cut()
    play.adopt(newcomer(play, server=15, client=0)) << ev.Resumed << resume_ok(13)


def test_a_session_that_is_not_accepted_yet() -> None:
    """Its token is taken; it can not be resumed, and it ends with its transport."""
    sessions = Sessions(OFTEN)
    play = Playbook(Engine("server", limits=OFTEN, sessions=sessions, decide=True)) >> setup(token=TOKEN)
    play << ev.Established
    with pytest.raises(Rejected, match="no such session"):
        play.adopt(newcomer(play, server=0, client=0))
    play.eof() << closed(ConnectionClosed)
    assert len(sessions) == 0
    play = Playbook(Engine("server", limits=OFTEN, sessions=sessions, decide=True)) >> setup(token=TOKEN)
    play << ev.Established
    play.do(lambda engine: engine.refuse("no", 0.0)) << closed(ConnectionClosed) << error(0, 0x003)
    assert len(sessions) == 0


def test_a_session_that_is_over_while_a_newcomer_asks() -> None:
    """Evicted, or closed by its application: the newcomer is told what any stranger is."""
    play = serving().cut()
    stranger = newcomer(play, server=15, client=0)
    play.do(lambda engine: engine.close(0.0)) << failed(1, ConnectionClosed) << closed(ConnectionClosed)
    play << error(0, 0x101)
    with pytest.raises(Rejected, match="there is no such session"):
        play.adopt(stranger)
    late = Playbook(Engine("server", sessions=play.engine.resuming.sessions)) >> resume(server=15, client=0)
    late << closed(RemoteProtocolError, message="there is no such session") << error(0, 0x004)


def test_the_peer_breaks_a_rule_after_it_came_back() -> None:
    play = serving().cut()
    play.adopt(newcomer(play, server=15, client=0)) << ev.Resumed << resume_ok(13)
    play >> resume(server=15, client=0) << failed(1, RemoteProtocolError) << closed(RemoteProtocolError, rule="R-48")
    play << error(0, 0x101)
    assert play.engine.resuming.sessions is not None
    assert len(play.engine.resuming.sessions) == 0


# -- how often ------------------------------------------------------------------------------------------------


def test_how_often_a_session_may_be_resumed() -> None:
    """RE-19: 10 a minute. One a second uses them up: after the 11th, at 10 s, there are 10 - 11 + 10/6 left."""
    play = serving(limits=Limits.server())
    for second in range(13):
        play.now = float(second)
        if not play.engine.resumption.suspended:
            play.cut()
        stranger = newcomer(play, server=15, client=0)
        if second == 11:
            with pytest.raises(Rejected, match="resumed too often"):
                play.adopt(stranger)
        else:
            play.adopt(stranger) << ev.Resumed << resume_ok(13)
        play.quiet()


@pytest.mark.parametrize(("gap", "fits"), [(0.0, False), (0.999, False), (1.0, True)])
def test_how_soon_a_session_may_be_resumed_again(gap: float, fits: bool) -> None:
    """RE-19: a second after it was last. The session that is connected is not touched by one that comes too soon."""
    play = serving(limits=Limits.server()).cut()
    play.adopt(newcomer(play, server=15, client=0)) << ev.Resumed << resume_ok(13)
    play.now = gap
    if fits:
        play.adopt(newcomer(play, server=15, client=0)) << ev.Suspended << ev.Resumed << resume_ok(13)
    else:
        with pytest.raises(Rejected, match="resumed too often"):
            play.adopt(newcomer(play, server=15, client=0))
    play.quiet()
    assert not play.engine.resumption.suspended


def test_never_to_be_resumed() -> None:
    play = serving(limits=Limits.server().replace(resume_rate=(0, 0.0))).cut()
    with pytest.raises(Rejected, match="resumed too often"):
        play.adopt(newcomer(play, server=15, client=0))


# -- time -----------------------------------------------------------------------------------------------------


def test_no_client_comes_back_to_the_server() -> None:
    play = serving()
    play.now = 7.0
    play.cut()
    assert play.engine.deadline == 127.0
    play.at(126.9).quiet()
    text = "the session was not resumed within 120 s"
    play.at(127.0) << failed(1, ConnectionClosed) << closed(ConnectionClosed, message=text)
    play.quiet()
    assert play.engine.resuming.sessions is not None
    assert len(play.engine.resuming.sessions) == 0


def test_a_client_that_gets_no_answer_tries_again_and_gives_up_in_time() -> None:
    """10 s for each answer, 120 s from the moment that the first transport was lost."""
    play = resumable_client()
    play.do(lambda engine: engine.open("request", b"")) << frames.RequestResponse
    play.now = 5.0
    play.cut()
    assert play.engine.deadline == 125.0
    play.now = 6.0
    reconnect(play) << frames.Resume
    assert play.engine.deadline == 16.0
    play.at(15.9).quiet()
    play.at(16.0) << ev.Suspended
    assert play.engine.deadline == 125.0
    play.now = 120.0
    reconnect(play) << frames.Resume
    assert play.engine.deadline == 125.0
    play.at(125.0) << failed(1, ConnectionClosed) << closed(ConnectionClosed)
    play.quiet()
    assert play.engine.deadline is None


def test_a_client_gives_up_while_it_is_away() -> None:
    play = resumable_client().cut()
    play.at(119.9).quiet()
    play.at(120.0) << closed(ConnectionClosed, message="the session was not resumed within 120 s")


def test_time_that_was_away_is_not_held_against_the_peer() -> None:
    """Lifetime, the unfinished frame and the unfinished payload begin again; keepalives too."""
    play = resumable_client()
    play.do(lambda engine: engine.open("stream", b"", credit=5)) << frames.RequestStream
    play >> P(stream=1, next=True, follows=True, data=bytes(60))
    play >> item(1).encode(prefixed=True)[:4]
    play.now = 19.0
    play.cut()
    play.now = 100.0
    reconnect(play) << resume(server=66, client=0)
    play.at(109.0).quiet()
    play >> resume_ok(10) << ev.Resumed
    assert play.engine.deadline == 129.0
    play.at(129.0) << position(66, respond=True)
    assert play.engine.deadline == 139.0  # the payload: 30 s from 109
    play.now = 138.0
    play >> P(stream=1, next=True, data=b"end") << (ev.Items, {"payloads": [Payload(bytes(60) + b"end")]})
    assert play.engine.deadline == 149.0
    for now in (149.0, 169.0, 189.0, 209.0):
        play.at(now) << position(75, respond=True)
    assert play.engine.deadline == 228.0
    play.at(228.0) << ev.Suspended


def test_a_silent_peer_is_a_lost_transport() -> None:
    """R-22, "as transport lost"."""
    play = resumable_client()
    for now in (20.0, 40.0, 60.0, 80.0):
        play.at(now) << position(0, respond=True)
    play.at(90.0) << ev.Suspended
    play.quiet()
    assert play.engine.deadline == 210.0
    play = serving()
    play.at(90.0) << ev.Suspended
    play.quiet()
    play.adopt(newcomer(play, server=15, client=0)) << ev.Resumed << resume_ok(13)
    assert play.engine.deadline == 180.0


def test_a_link_that_falls_silent_inside_a_frame_is_a_lost_transport() -> None:
    """The rest of the frame may never come because the link is dead: frame_s ends the link, not the session."""
    play = serving()
    play >> item(1).encode(prefixed=True)[:4]
    play.at(29.9).quiet()
    play.at(30.0) << ev.Suspended
    play.quiet()
    play.adopt(newcomer(play, server=15, client=0)) << ev.Resumed << resume_ok(13)


def test_losing_it_twice_is_losing_it() -> None:
    play = serving().cut()
    play.now = 3.0
    play.eof().quiet()
    assert play.engine.deadline == 120.0


# -- what waits meanwhile -------------------------------------------------------------------------------------


def test_requests_opened_meanwhile(mode: Mode) -> None:
    """In SUSPENDED and in RESUME_SENT: they go behind what is repeated (R-45)."""
    play = resumable_client(mode)
    play.do(lambda engine: engine.open("fire", b"old")) << frames.RequestFnf(stream=1, data=b"old")
    play.cut()
    play.do(lambda engine: engine.open("request", b"new")).quiet()
    assert play.engine.queued == 3 + 9
    reconnect(play) << resume(server=0, client=0)
    play.do(lambda engine: engine.open("stream", b"newer", credit=3)).quiet()
    play >> resume_ok(0) << ev.Resumed
    play << frames.RequestFnf(stream=1, data=b"old") << frames.RequestResponse(stream=3, data=b"new")
    play << frames.RequestStream(stream=5, initial_n=3, data=b"newer")
    assert told(play) == (9 + 9 + 15, 0)
    assert play.engine.queued == 0


def test_credit_cancels_and_errors_meanwhile(mode: Mode) -> None:
    play = resumable_client(mode)
    play.do(lambda engine: engine.open("stream", b"", credit=1)) << frames.RequestStream
    play.do(lambda engine: engine.open("channel", b"", credit=1)) << frames.RequestChannel
    play.do(lambda engine: engine.open("request", b"")) << frames.RequestResponse
    play.do(lambda engine: engine.open("channel", b"", credit=1)) << frames.RequestChannel
    play >> frames.RequestN(stream=3, n=2) << ev.Granted
    play.cut()
    play.do(lambda engine: engine.request(1, 4))
    play.do(lambda engine: engine.send(3, [b"item"]))
    play.do(lambda engine: engine.complete(3))
    play.do(lambda engine: engine.cancel(5))
    play.do(lambda engine: engine.fail(7, Rejected("no")))
    play.quiet()
    reconnect(play) << resume(server=10, client=0)
    play >> resume_ok(36) << ev.Resumed
    play << frames.RequestN(stream=1, n=4) << item(3, b"item") << P(stream=3, complete=True, data=b"")
    play << frames.Cancel(stream=5)
    if play.sent:
        play << error(7, 0x202, b"no")
    play.quiet()


def test_a_request_that_is_canceled_before_it_left() -> None:
    play = resumable_client().cut()
    play.do(lambda engine: engine.open("request", b"q"))
    play.do(lambda engine: engine.cancel(1))
    reconnect(play) << resume(server=0, client=0)
    play >> resume_ok(0) << ev.Resumed << frames.RequestResponse(stream=1, data=b"q") << frames.Cancel(stream=1)
    assert play.engine.streams() == []


def test_queued_frames_of_stream_0_are_lost_with_the_transport(mode: Mode) -> None:
    """METADATA_PUSH, KEEPALIVE and EXT that were queued; what streams had to say stays."""
    play = resumable_server(mode, extensions=(7,))
    engine = play.engine
    engine.push(b"lost")
    engine.extensions.extend(7, b"lost")
    engine.open("fire", b"kept")
    engine.receive(position(0, respond=True).encode(prefixed=True), 0.0)
    play.cut()
    assert engine.queued == 3 + 10
    assert engine.outbound.scheduler.frames == 1
    play.adopt(newcomer(play, server=0, client=0)) << ev.Resumed << resume_ok(0)
    play << frames.RequestFnf(stream=2, data=b"kept")
    play.quiet()


@pytest.mark.parametrize("asking", [False, True])
def test_verbs_that_fail_meanwhile(asking: bool) -> None:
    state = "resume_sent" if asking else "suspended"
    play = resumable_client().cut()
    if asking:
        reconnect(play) << frames.Resume
    for verb in (lambda engine: engine.push(b"m"), lambda engine: engine.extensions.extend(7, b"e")):
        with pytest.raises(ConnectionClosed, match=f"the connection is {state}"):
            play.do(verb)
    with pytest.raises(LocalProtocolError, match="nothing to decide"):
        play.do(lambda engine: engine.accept(0.0))
    play.quiet()


def test_no_keepalive_without_a_transport() -> None:
    play = resumable_client().cut()
    play.at(20.0).quiet()
    reconnect(play) << frames.Resume
    play.at(29.0).quiet()
    play >> resume_ok(0) << ev.Resumed
    play.at(48.9).quiet()
    play.at(49.0) << position(0, respond=True)


@pytest.mark.parametrize("asking", [False, True])
def test_a_client_closes_while_it_is_away(asking: bool) -> None:
    play = resumable_client()
    play.do(lambda engine: engine.open("request", b"")) << frames.RequestResponse
    play.cut()
    if asking:
        reconnect(play) << frames.Resume
    play.do(lambda engine: engine.close(0.0)) << failed(1, ConnectionClosed) << closed(ConnectionClosed)
    play << error(0, 0x101, b"closed")
    play.quiet()
    assert play.engine.deadline is None
    assert play.engine.receive(resume_ok(0).encode(prefixed=True), 0.0) == []


def test_a_server_closes_a_session_that_is_away() -> None:
    play = serving().cut()
    play.do(lambda engine: engine.close(0.0)) << failed(1, ConnectionClosed) << closed(ConnectionClosed)
    play << error(0, 0x101)
    play.quiet()


def test_the_cut_is_cut_again(mode: Mode) -> None:
    """While RESUME is under way, and while what was missing is being repeated."""
    play = resumable_client(mode)
    engine = play.engine
    for data in (b"a", b"b", b"c"):
        play.do(lambda engine, data=data: engine.open("fire", data)) << frames.RequestFnf
    reconnect(play.cut()) << resume(server=0, client=0)
    play.cut()
    reconnect(play) << resume(server=0, client=0)
    engine.receive(resume_ok(7).encode(prefixed=True), 0.0)
    assert len(engine.outgoing()) > 0  # on its way, and lost
    play.cut()
    reconnect(play) << resume(server=0, client=7)
    play >> resume_ok(14) << ev.Resumed << frames.RequestFnf(stream=5, data=b"c")
    play.quiet()
    assert told(play) == (21, 0)


def test_answers_made_together_while_away_wait_for_the_next_transport() -> None:
    play = resumable_server(limits=OFTEN)
    play >> frames.RequestResponse(stream=1, data=b"") << ev.Opened
    play >> frames.RequestResponse(stream=3, data=b"") << ev.Opened
    engine = play.cut().engine
    engine.answer([1, 3], [Payload(b"a"), Payload(b"b")])
    sent = engine.queued
    assert sent > 0
    engine.resumption.resume(resume(server=0, client=0), 0.0)
    data = engine.outgoing()
    for stream, answer in ((1, b"a"), (3, b"b")):
        assert item(stream, answer, True).encode(prefixed=True) in data


def test_a_transport_lost_while_half_is_repeated() -> None:
    """What was not repeated the first time is repeated the second, once and in order; new things wait behind it."""
    play = resumable_server(limits=OFTEN)
    play >> frames.RequestStream(stream=1, initial_n=1000, data=b"") << ev.Opened
    engine = play.engine
    big = [bytes([number]) * 30_000 for number in range(6)]
    for data in big:
        engine.send(1, [data])
    while engine.outgoing():
        pass
    for taken in (1, 2, 1):
        engine.receive_eof(0.0)
        engine.send(1, [b"new"])
        engine.resumption.resume(resume(server=0, client=0), 0.0)
        for _ in range(taken):
            assert engine.outgoing()
    engine.receive_eof(0.0)
    engine.resumption.resume(resume(server=0, client=0), 0.0)
    data = drained(engine)
    at, said = 0, []
    while at < len(data):
        end = at + 3 + int.from_bytes(data[at : at + 3], "big")
        frame = frames.decode(data, at + 3, end)
        said.append(frame.data if isinstance(frame, P) else None)
        at = end
    assert said == [None, *big, b"new", b"new", b"new"]
    assert engine.queued == 0


# -- fragments ------------------------------------------------------------------------------------------------


def test_fragments_half_sent(mode: Mode) -> None:
    """RE-21: what was not cut yet is cut later, as if nothing had happened; others wait for their turn."""
    play = resumable_server(mode, mtu=64)
    play >> frames.RequestStream(stream=1, initial_n=5, data=b"") << ev.Opened
    play >> frames.RequestResponse(stream=3, data=b"") << ev.Opened
    engine = play.engine
    engine.send(1, [Payload(b"d" * 150, b"m" * 20)])  # 170 bytes: 52 + 55 + 55 + 8
    first = engine.outgoing(1)
    assert frames.decode(first, 3) == P(stream=1, next=True, follows=True, metadata=b"m" * 20, data=b"d" * 32)
    play.cut()
    play.do(lambda engine: engine.send(3, [b"small"]))
    play.adopt(newcomer(play, server=0, client=0)) << ev.Resumed << resume_ok(16)
    play << P(stream=1, next=True, follows=True, metadata=b"m" * 20, data=b"d" * 32)
    for size in (55, 55):
        play << P(stream=1, next=True, follows=True, data=b"d" * size)
    play << item(1, b"d" * 8)
    play << item(3, b"small", True)
    play.quiet()
    assert told(play)[0] == 61 + 11 + 61 + 61 + 14


def test_fragments_half_received(mode: Mode) -> None:
    """RE-21: reassembly goes on where it was, for requests and for items."""
    play = resumable_server(mode)
    play >> frames.RequestChannel(stream=1, initial_n=1, data=b"") << ev.Opened
    play.do(lambda engine: engine.request(1, 3)) << frames.RequestN
    play >> P(stream=1, next=True, follows=True, metadata=b"m" * 30, data=b"a" * 30)
    play >> frames.RequestResponse(stream=3, follows=True, data=b"b" * 60)
    play.cut()
    assert play.engine.deadline == 120.0  # no time is kept for payloads while there is nobody to finish them
    play.now = 100.0
    play.adopt(newcomer(play, server=10, client=0)) << ev.Resumed << resume_ok(10 + 69 + 66)
    assert play.engine.deadline == 130.0
    play.now = 129.0
    play >> P(stream=3, next=True, data=b"B") << (ev.Opened, {"stream": 3, "payload": Payload(b"b" * 60 + b"B")})
    play >> item(1, b"A", True) << (ev.Items, {"payloads": [Payload(b"a" * 30 + b"A", b"m" * 30)], "complete": True})
    assert play.engine.stream_table.reassembly.size == 0


@pytest.mark.parametrize("who", ["we", "they"])
def test_fragments_half_sent_of_a_stream_that_is_canceled_meanwhile(who: str) -> None:
    """R-38: the rest is not sent, and the books are right."""
    play = resumable_client(mtu=64)
    engine = play.engine
    engine.open("channel", b"", credit=1)
    play >> frames.RequestN(stream=1, n=5) << ev.Granted << frames.RequestChannel
    engine.send(1, [b"q" * 200])
    assert len(engine.outgoing(1)) == 64
    play.cut()
    if who == "we":
        play.do(lambda engine: engine.cancel(1))
    reconnect(play) << resume(server=10, client=0)
    play >> resume_ok(10) << ev.Resumed << P(stream=1, next=True, follows=True, data=b"q" * 55)
    if who == "we":
        play << frames.Cancel(stream=1)
    else:
        for size in (55, 55):
            play << P(stream=1, next=True, follows=True, data=b"q" * size)
        play << item(1, b"q" * 35)
        engine.send(1, [b"r" * 200])
        assert len(engine.outgoing(1)) == 64
        play.cut()
        reconnect(play) << resume(server=10, client=10)
        data = resume_ok(told(play)[0]).encode(prefixed=True)
        data += frames.ErrorFrame(stream=1, code=0x202, data=b"no").encode(prefixed=True)
        play >> data << ev.Resumed << failed(1, Rejected)
    play.quiet()
    assert (engine.queued, engine.outbound.scheduler.frames, engine.outbound.scheduler.queues) == (0, 0, {})


def test_what_is_canceled_before_its_turn_leaves_nothing_behind() -> None:
    """A payload in fragments waits for what was queued before it; its stream ends first."""
    play = resumable_server(limits=OFTEN, mtu=64)
    play >> frames.RequestStream(stream=1, initial_n=9, data=b"") << ev.Opened
    play >> frames.RequestStream(stream=3, initial_n=9, data=b"") << ev.Opened
    play.engine.send(1, [b"before"])
    play.engine.send(3, [bytes(200)])
    play >> frames.Cancel(stream=3) << ev.Canceled << item(1, b"before")
    play.quiet()
    assert (play.engine.outbound.scheduler.queues, play.engine.outbound.scheduler.frames) == ({}, 0)


def test_what_was_to_go_again_does_not_when_it_is_over() -> None:
    """The peer breaks a rule while it is being repeated to: only that is said."""
    play = serving()
    engine = play.engine
    for _ in range(3):
        engine.send(1, [bytes(5000)])
        drained(engine)
    play.cut()
    engine.resumption.resume(resume(server=0, client=0), 0.0)
    assert len(engine.outgoing()) > 5000
    assert engine.queued > 5000
    events = engine.receive(b"\0\0\0", 0.0)
    assert [type(event) for event in events] == [ev.Failed, ev.Closed]
    assert frames.decode(drained(engine), 3) == frames.ErrorFrame(
        stream=0, code=0x101, data=b"a frame of 0 bytes is shorter than its header"
    )
    assert engine.queued == 0


# -- closing in order -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ["client", "server"])
def test_a_farewell_is_sent_again(role: str, mode: Mode) -> None:
    """R-20: CONNECTION_CLOSE has no position; it is repeated behind everything else, and new requests wait no more."""
    if role == "client":
        play = resumable_client(mode)
        play.do(lambda engine: engine.open("request", b"")) << frames.RequestResponse
    else:
        play = resumable_server(mode) >> frames.RequestResponse(stream=1, data=b"") << ev.Opened
    play.do(lambda engine: engine.close(0.0, drain=True, reason="later")) << error(0, 0x102, b"later")
    play.cut()
    with pytest.raises(ConnectionClosed, match="draining") as refused:
        play.engine.open("request", b"")
    assert refused.value.code == 0x102
    if role == "client":
        reconnect(play) << frames.Resume
        play >> resume_ok(0) << ev.Resumed << frames.RequestResponse << error(0, 0x102, b"later")
        play >> item(1, b"a", True) << ev.Items
    else:
        play.adopt(newcomer(play, server=0, client=0)) << ev.Resumed << resume_ok(6) << error(0, 0x102, b"later")
        play >> frames.RequestResponse(stream=3, data=b"") << ignored(1) << error(3, 0x202)
        play.do(lambda engine: engine.send(1, [b"a"])) << item(1, b"a", True)
        play.at(0.0)
    play << ev.Closed(None)
    play.quiet()


def test_a_farewell_while_away(mode: Mode) -> None:
    play = serving(mode).cut()
    play.do(lambda engine: engine.close(0.0, drain=True, reason="later")).quiet()
    play.do(lambda engine: engine.close(0.0, drain=True)).quiet()
    assert play.engine.resumption.suspended
    with pytest.raises(ConnectionClosed, match="draining"):
        play.engine.open("request", b"")
    play.adopt(newcomer(play, server=15, client=0)) << ev.Resumed << resume_ok(13) << error(0, 0x102, b"later")
    play.do(lambda engine: engine.complete(1)) << P(stream=1, complete=True, data=b"")
    play.at(0.0) << ev.Closed(None)


@pytest.mark.parametrize("asking", [False, True])
def test_a_farewell_while_away_with_nothing_left_to_do(asking: bool) -> None:
    """The server is told when the session is back; then it is over at once."""
    play = resumable_client().cut()
    if asking:
        reconnect(play) << frames.Resume
    play.do(lambda engine: engine.close(0.0, drain=True)).quiet()
    if not asking:
        reconnect(play) << frames.Resume
    play >> resume_ok(0) << ev.Resumed << ev.Closed(None) << error(0, 0x102)
    play.quiet()


def test_the_last_stream_ends_while_away() -> None:
    play = serving()
    play.do(lambda engine: engine.close(0.0, drain=True)) << error(0, 0x102)
    play.cut()
    play.do(lambda engine: engine.complete(1)).quiet()
    assert play.engine.resumption.suspended  # the client has not heard of it
    play.adopt(newcomer(play, server=15, client=0)) << ev.Resumed << ev.Closed(None)
    play << resume_ok(13) << P(stream=1, complete=True, data=b"") << error(0, 0x102)
    play.quiet()


def test_a_farewell_that_had_not_left() -> None:
    """It waited behind a payload in fragments, and the transport broke: it waits behind it again."""
    play = resumable_server(mtu=64) >> frames.RequestStream(stream=1, initial_n=5, data=b"") << ev.Opened
    engine = play.engine
    engine.send(1, [bytes(100)])
    engine.close(0.0, drain=True, reason="later")
    assert len(engine.outgoing(1)) == 64
    play.cut()
    play.adopt(newcomer(play, server=0, client=0)) << ev.Resumed << resume_ok(10)
    play << P(stream=1, next=True, follows=True, data=bytes(55)) << item(1, bytes(45)) << error(0, 0x102, b"later")
    play.do(lambda engine: engine.complete(1)) << P(stream=1, complete=True, data=b"")
    play.at(0.0) << ev.Closed(None)
    play.quiet()


def test_the_peer_sent_a_farewell_before_the_cut(mode: Mode) -> None:
    """It is still draining when it is back, and says so once more."""
    play = resumable_client(mode)
    play.do(lambda engine: engine.open("stream", b"", credit=5)) << frames.RequestStream
    bye = frames.ErrorFrame(stream=0, code=0x102, data=b"bye")
    play >> bye << ev.Draining("bye")
    play.cut()
    with pytest.raises(ConnectionClosed, match="draining"):
        play.engine.open("request", b"")
    reconnect(play) << frames.Resume
    play >> resume_ok(10) << ev.Resumed
    with pytest.raises(ConnectionClosed, match="draining"):
        play.engine.open("request", b"")
    play >> bye
    play >> frames.RequestResponse(stream=2, data=b"") << ignored(1) << error(2, 0x202)
    play >> item(1, b"a", True) << ev.Items << ev.Closed(None)
    play.quiet()


def test_the_end_of_the_transport_after_the_last_stream_is_no_loss() -> None:
    play = resumable_client()
    bye = frames.ErrorFrame(stream=0, code=0x102, data=b"bye")
    play.do(lambda engine: engine.open("request", b"")) << frames.RequestResponse
    play >> bye << ev.Draining
    play.engine.cancel(1)
    play.eof() << ev.Closed(None)


def test_the_end_of_the_transport_before_the_last_stream_is() -> None:
    play = resumable_client()
    play.do(lambda engine: engine.open("request", b"")) << frames.RequestResponse
    play.do(lambda engine: engine.close(0.0, drain=True)) << error(0, 0x102)
    play.cut()
    assert play.engine.resumption.suspended


def test_text_of_what_is_refused_when_it_is_over() -> None:
    play = serving().cut()
    play.do(lambda engine: engine.close(0.0, drain=True))
    play.do(lambda engine: engine.close(0.0)) << ev.Failed << ev.Closed << error(0, 0x101)
    with pytest.raises(ConnectionClosed, match="the connection is closed") as refused:
        play.engine.open("request", b"")
    assert refused.value.code is None


# -- a store that is full -------------------------------------------------------------------------------------


def filled(limits: Limits, items: int = 0, **options: Any) -> Playbook:
    """A server's session with credit for a million items; so many of them, 70 bytes each, have been queued."""
    play = resumable_server(limits=limits, **options)
    play >> frames.RequestStream(stream=1, initial_n=10**6, data=b"") << ev.Opened
    for _ in range(items):
        play.engine.send(1, [bytes(64)])
    play.collect([])
    play.sent.clear()
    return play


TEN = Limits.server().replace(resume_bytes=700, resume_rate=(10**6, 0.0))
"A store for ten of these items."


def test_a_full_store_stops_the_streams_and_nothing_else(mode: Mode) -> None:
    """RE-17: the 10th item fits, the 11th waits until the peer says how far it got."""
    play = filled(TEN)
    play.mode = mode
    for _ in range(10):
        play.do(lambda engine: engine.send(1, [bytes(64)])) << item(1, bytes(64))
    play.do(lambda engine: engine.send(1, [bytes(64)])).quiet()
    assert told(play)[0] == 700
    assert play.engine.queued == 73
    play.do(lambda engine: engine.push(b"still")) << frames.MetadataPush
    play >> position(0, respond=True) << position(10)
    play >> position(69)
    play.quiet()
    play >> position(70) << item(1, bytes(64))
    play.quiet()


@pytest.mark.repetitive
@pytest.mark.parametrize("limits", [Limits.tiny(), Limits.server().replace(resume_bytes=200_000), TEN])
@pytest.mark.parametrize("mtu", [64, 1000, 0x20000])
@pytest.mark.parametrize("size", [1, 55, 4000, 4096, 20_000])
def test_how_full_a_store_can_be(limits: Limits, mtu: int, size: int) -> None:
    """K, and beyond it less than what leaves in one turn: a chunk of frames (64 KiB and an item), and a fragment."""
    mtu = min(mtu, limits.frame_bytes)
    play = filled(limits, mtu=mtu)
    engine = play.engine
    assert engine.resuming.retained is not None
    chunk = 0x10000 + 0x1000
    while engine.queued <= chunk:
        engine.send(1, [bytes(size)] * 100)
        while engine.outgoing():
            pass
        assert engine.resuming.retained.size < limits.resume_bytes + chunk + mtu
    assert engine.resuming.retained.size >= limits.resume_bytes
    engine.receive(position(engine.resuming.retained.sent).encode(prefixed=True), 0.0)
    assert engine.outgoing()


def test_one_frame_larger_than_the_store_goes_alone() -> None:
    play = filled(Limits.server().replace(resume_bytes=100))
    play.do(lambda engine: engine.send(1, [bytes(5000), b"x"])) << item(1, bytes(5000))
    play.quiet()
    play >> position(5006) << item(1)
    play.quiet()


def test_a_store_that_stays_full_is_given_up() -> None:
    """RE-17: after 30 s the session can not be resumed any more; the connection goes on."""
    play = filled(TEN, 11)
    assert play.engine.deadline == 0.0  # time is told by tick alone
    play.at(52.0).quiet()
    assert play.engine.deadline == 82.0
    play.at(81.9).quiet()
    assert play.engine.resuming.sessions is not None
    assert len(play.engine.resuming.sessions) == 1
    play.at(82.0) << item(1, bytes(64))
    assert len(play.engine.resuming.sessions) == 0
    assert session_bytes(play.engine) == 0
    assert not play.engine.resumption.resumable
    play >> frames.RequestN(stream=1, n=1) << ev.Granted
    play >> position(5, respond=True) << position(20)  # it still says how far it got: the peer need not stop
    play >> position(10**6)  # and does not look at what the peer says
    play.quiet()
    play.eof() << failed(1, ConnectionClosed) << closed(ConnectionClosed)


def test_a_client_gives_a_full_store_up_too() -> None:
    play = resumable_client(limits=TEN)
    play.do(lambda engine: engine.open("fire", bytes(694))) << frames.RequestFnf
    play.do(lambda engine: engine.open("fire", b"waits")).quiet()
    play.at(1.0).at(20.0) << position(0, respond=True)
    play.at(31.0) << frames.RequestFnf(stream=3, data=b"waits")
    play.eof() << closed(ConnectionClosed)


def test_a_store_that_has_room_again_is_kept() -> None:
    play = filled(TEN)
    for start in (0.0, 20.0, 40.0):
        for _ in range(10):
            play.do(lambda engine: engine.send(1, [bytes(64)])) << item(1, bytes(64))
        play.at(start).quiet()
        assert play.engine.deadline == start + 30.0
        play.now = start + 19.0
        play >> position(told(play)[0])
    assert play.engine.deadline == 59.0 + 90.0
    for _ in range(10):
        play.do(lambda engine: engine.send(1, [bytes(64)])) << item(1, bytes(64))
    play.at(60.0) >> position(told(play)[0])
    play.at(100.0).quiet()
    play.cut()


def test_a_store_that_was_full_when_the_transport_broke() -> None:
    """Being away is not being stalled: the time begins anew, if the store is still full at all."""
    play = filled(TEN, 11).at(0.0).cut()
    play.do(lambda engine: engine.send(1, [b"more"])).quiet()
    play.now = 100.0
    play.adopt(newcomer(play, server=700, client=0)) << ev.Resumed << resume_ok(10)
    play << item(1, bytes(64)) << item(1, b"more")
    play.at(131.0).cut()
    for _ in range(11):
        play.do(lambda engine: engine.send(1, [bytes(64)])).quiet()
    play.now = 140.0
    play.adopt(newcomer(play, server=780, client=0)) << ev.Resumed << resume_ok(10)
    play.sent.clear()
    assert play.engine.deadline == 140.0
    play.at(140.0).quiet()
    assert play.engine.deadline == 170.0
    play.at(170.0)
    assert not play.engine.resumption.resumable


def test_a_full_store_does_not_keep_the_last_words() -> None:
    """The connection is over: nothing will be resumed, so everything leaves."""
    play = filled(TEN, 20)
    assert play.engine.queued == 10 * 73
    play.do(lambda engine: engine.complete(1)).quiet()
    play.do(lambda engine: engine.close(0.0, drain=True)) << ev.Closed(None)
    for _ in range(10):
        play << item(1, bytes(64))
    play << P(stream=1, complete=True, data=b"") << error(0, 0x102)
    play.quiet()
    assert play.engine.queued == 0


def test_two_ends_with_tiny_stores_come_to_rest() -> None:
    """They report to each other, and not for ever."""
    limits = Limits.server().replace(resume_bytes=0)
    client = Engine("client", setup=setup(token=TOKEN), limits=limits)
    server = Engine("server", limits=limits, sessions=Sessions(limits))
    client.open("stream", b"", credit=100)
    server.receive(client.outgoing(), 0.0)
    server.send(1, [b"x"] * 100, complete=True)
    got = 0
    for _ in range(300):
        to_client, to_server = server.outgoing(), client.outgoing()
        if not to_client and not to_server:
            break
        for event in client.receive(to_client, 0.0):
            got += len(event.payloads) if isinstance(event, ev.Items) else 0
        server.receive(to_server, 0.0)
    else:
        raise AssertionError("they go on for ever")
    assert got == 100


def test_a_server_that_gave_up_stops_no_one() -> None:
    """It reports positions as before: the client's store does not fill for want of them."""
    play = filled(TEN, 10).at(0.0).at(30.0).quiet()
    assert not play.engine.resumption.resumable
    play >> frames.RequestFnf(stream=3, data=bytes(71)) << ev.Opened << position(87)
    play >> frames.RequestFnf(stream=5, data=bytes(80)) << ev.Opened
    play >> frames.RequestFnf(stream=7, data=b"") << ev.Opened << position(179)


# -- nothing is left ------------------------------------------------------------------------------------------


def test_a_thousand_cuts_leave_nothing_behind() -> None:
    play = serving()
    engine = play.engine
    for number in range(1000):
        play.cut()
        engine.send(1, [b"x"]) if number < 5 else None
        play.adopt(newcomer(play, server=15, client=0)) << ev.Resumed << resume_ok(13)
        play.sent.clear()
    assert engine.resuming.retained is not None
    assert engine.resuming.retained.size == 5 * 7
    assert engine.queued == 0
    play >> position(50)
    assert engine.resuming.retained.size == 0
    assert list(engine.resuming.retained.blocks()) == []


WORK: list[tuple[str, Callable[[Engine], object]]] = [
    ("push", lambda engine: engine.push(b"m")),
    ("farewell", lambda engine: engine.close(0.0, drain=True)),
    ("fragments", lambda engine: engine.send(1, [bytes(500)])),
    ("items", lambda engine: engine.send(1, [b"x", b"y"])),
    ("cancel", lambda engine: engine.fail(1, Rejected("no"))),
    ("request", lambda engine: engine.open("request", bytes(200))),
]


@pytest.mark.parametrize("first", WORK, ids=lambda work: work[0])
@pytest.mark.parametrize("second", WORK, ids=lambda work: work[0])
@pytest.mark.parametrize("taken", [0, 1, 2])
def test_the_books_of_the_queue(first: Any, second: Any, taken: int) -> None:
    """Whatever was queued, left or lost: in the end the queue is empty and says so."""
    play = resumable_server(limits=OFTEN, mtu=64)
    play >> frames.RequestStream(stream=1, initial_n=50, data=b"") << ev.Opened
    engine = play.engine
    try:
        first[1](engine)
        for _ in range(taken):
            engine.outgoing(64)
        second[1](engine)
    except ConnectionClosed:
        pass  # a request after the farewell
    if engine.closed:
        return
    events = engine.receive_eof(0.0)
    if isinstance(events[-1], ev.Closed):
        return
    assert engine.outbound.scheduler.size >= 0
    engine.resumption.resume(resume(server=0, client=0), 0.0)
    drained(engine)
    assert (engine.queued, engine.outbound.scheduler.size, engine.outbound.scheduler.frames) == (0, 0, 0)
    assert engine.outgoing() == b""


# -- a client that was cut before its SETUP arrived -------------------------------------------------------------

GONE = frames.ErrorFrame(stream=0, code=0x004, data=b"there is no such session")


def unheard(mode: Mode = "whole", limits: Limits | None = None, **changes: Any) -> Playbook:
    """A resumable client that has sent SETUP and lost its transport before it heard anything."""
    asked = setup(token=TOKEN, **changes)
    return Playbook(Engine("client", setup=asked, limits=limits), mode) << asked


def test_a_client_that_was_cut_before_its_setup_arrived_begins_anew(mode: Mode) -> None:
    """It asks for its session, hears that there is none, and sends SETUP with another token. What was not sent yet goes
    there; nothing that was sent goes twice."""
    play = unheard(mode)
    reconnect(play.cut()) << resume(server=0, client=0)
    play.do(lambda engine: engine.open("request", b"q")).quiet()  # nothing but RESUME goes now
    play >> GONE << (ev.Suspended, {"error.code": 0x004})
    play.quiet()
    assert play.engine.resumption.suspended
    play.now = 5.0
    reconnect(play)
    again: Any = play.sent.popleft()
    assert isinstance(again, frames.Setup)
    assert again.token != TOKEN and len(again.token or b"") == 32
    assert again == setup(token=again.token)
    play << frames.RequestResponse(stream=1, data=b"q")
    play >> item(1, b"a", complete=True) << ev.Established << ev.Resumed << ev.Items
    play.at(24.9).quiet()
    play.at(25.0) << (frames.Keepalive, {"position": 6 + 1, "respond": True})
    reconnect(play.cut()) << resume(server=7, client=0, token=again.token)
    play >> GONE << closed(SetupRefused, code=0x004)  # RE-24: a session that was there is not begun anew


def test_what_was_sent_before_may_have_been_processed() -> None:
    """Rule 11: that there is no session now does not mean that there was none. Such a stream fails, and is not sent
    again; what it still had to say is not said in the new session."""
    play = unheard(limits=Limits.server(resume_bytes=4 << 20))
    engine = play.engine
    play.do(lambda engine: engine.open("request", b"1")) << frames.RequestResponse
    play.do(lambda engine: engine.open("channel", b"3", credit=1)) << frames.RequestChannel
    play.do(lambda engine: engine.open("fire", b"5")) << frames.RequestFnf
    engine.open("request", bytes(1 << 20))
    assert engine.outgoing(1)  # its first fragment
    play.eof() << ev.Suspended
    engine.request(3, 9)
    engine.cancel(1)
    engine.open("request", bytes(1 << 20))
    engine.ask([Payload(b"11"), Payload(b"13")])
    engine.open("stream", b"15", credit=1)
    reconnect(play) << resume(server=0, client=0)
    play >> GONE << failed(3, ConnectionClosed, may_have_been_processed=True, code=0x004)
    play << failed(7, ConnectionClosed, may_have_been_processed=True, code=0x004) << ev.Suspended
    assert sorted(engine.resumption.opened) == [9, 11, 13, 15]
    reconnect(play) << frames.Setup
    heard = [frame.stream for frame in play.sent]
    assert set(heard) == {9, 11, 13, 15}
    play.sent.clear()
    assert engine.queued == 0
    play >> tuple(item(id, b"a", complete=True) for id in (9, 11, 13, 15)) << ev.Established << ev.Resumed
    assert sum(isinstance(event, ev.Items) for event in play.events) == 4
    play.events.clear()


def test_a_client_that_is_cut_again_and_again_begins_anew_each_time() -> None:
    """With another token each time, within resume_s of its birth; then it gives up."""
    play = unheard()
    tokens = {TOKEN}
    for now in (1.0, 50.0, 119.9):
        play.now = now
        play.cut()
        reconnect(play) << frames.Resume
        play >> GONE << ev.Suspended
        reconnect(play)
        again: Any = play.sent.popleft()
        tokens.add(again.token)
    assert len(tokens) == 4
    play.now = 120.0
    reconnect(play.cut()) << frames.Resume
    play >> GONE << closed(SetupRefused, code=0x004)


def test_a_client_whose_second_setup_arrived_goes_on() -> None:
    """Its answer was lost: RESUME with the new token finds the session."""
    play = unheard()
    reconnect(play.cut()) << resume(server=0, client=0)
    play >> GONE << ev.Suspended
    reconnect(play) << frames.Setup
    play.do(lambda engine: engine.open("request", b"q")) << frames.RequestResponse
    reconnect(play.cut()) << (frames.Resume, {"last_received_server_position": 0})
    play >> resume_ok(7) << ev.Established << ev.Resumed
    play >> item(1, b"a", complete=True) << ev.Items
    play.quiet()


@pytest.mark.parametrize("how", ["drains", "file"])
def test_who_does_not_begin_anew(how: str) -> None:
    """A client that closes, and a session that is kept in a file: it is over, as RE-24 has it."""
    play = unheard()
    if how == "drains":
        play.do(lambda engine: engine.open("request", b"")) << frames.RequestResponse
        play.do(lambda engine: engine.close(0.0, drain=True)) << frames.ErrorFrame
        reconnect(play.cut()) << resume(server=0, client=0)
        play >> GONE << failed(1, SetupRefused) << closed(SetupRefused, code=0x004)
    else:
        assert play.engine.resumption.begins_anew
        play.engine.resumption.begins_anew = False
        reconnect(play.cut()) << resume(server=0, client=0)
        play >> GONE << closed(SetupRefused, code=0x004)


def test_leases_begin_anew_with_the_session() -> None:
    """R-13: nothing goes before the first LEASE of the new session."""
    asked = setup(token=TOKEN, lease=True)
    play = Playbook(Engine("client", setup=asked)) << asked
    reconnect(play.cut()) << resume(server=0, client=0)
    play >> GONE << ev.Suspended
    reconnect(play) << frames.Setup
    with pytest.raises(LeaseExpired):
        play.engine.open("request", b"")
    play >> frames.Lease(stream=0, ttl_ms=1000, requests=1) << ev.Established << ev.Resumed << ev.Leased << frames.Lease
    play.do(lambda engine: engine.open("request", b"")) << frames.RequestResponse


def test_a_new_setup_that_is_refused_ends_it() -> None:
    play = unheard()
    reconnect(play.cut()) << resume(server=0, client=0)
    play >> GONE << ev.Suspended
    reconnect(play) << frames.Setup
    play >> frames.ErrorFrame(stream=0, code=0x003, data=b"no") << closed(SetupRefused, code=0x003, message="no")


def test_what_a_stream_has_queued_is_forgotten_whole() -> None:
    """Frames, payloads to be cut, and runs of many: the books are right afterwards."""
    play = unheard()
    engine = play.engine
    play.do(lambda engine: engine.open("channel", b"", credit=1)) << frames.RequestChannel
    play >> frames.RequestN(stream=1, n=1000) << ev.Established << ev.Granted
    engine.send(1, [b"a"])
    engine.send(1, [b"b"] * 50 + [bytes(1 << 20), b"c", bytes(9000)])
    out = engine.stream_table.outbound
    out.scheduler.discard(1)
    out.scheduler.discard(99)
    assert (engine.queued, out.scheduler.frames, out.scheduler.large) == (0, 0, 0)
    engine.open("request", b"q")
    assert engine.outgoing() == frames.RequestResponse(stream=3, data=b"q").encode(prefixed=True)
    assert engine.outgoing() == b""


def test_a_client_without_resumption_where_sessions_are_kept() -> None:
    """R-51 is about sessions that can be resumed: positions in other keepalives mean nothing."""
    limits = Limits.server()
    play = Playbook(Engine("server", limits=limits, sessions=Sessions(limits))) >> setup() << ev.Established
    play >> frames.Keepalive(stream=0, respond=True, position=5, data=b"x")
    play << frames.Keepalive(stream=0, respond=False, position=0, data=b"x")
    play.quiet()


def test_what_a_session_knows_before_anything_was_asked() -> None:
    client, server = resumable_client().engine.resumption, resumable_server().engine.resumption
    assert client is not None and server is not None
    assert (set(server.handlers), set(client.handlers)) == (set(), set())
    client.begins_anew = True
    assert client.begins_anew
