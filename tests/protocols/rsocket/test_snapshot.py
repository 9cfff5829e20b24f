"""Snapshots: an engine that was written down and read again goes on exactly like the one that was not."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import rule

from afflux.core import events as ev
from afflux.core.errors import Violation
from afflux.core.ids import StreamIds, Tombstones
from afflux.core.limits import Limits
from afflux.core.payload import Payload
from afflux.protocols.family.fragments import Fragments
from afflux.protocols.family.late import LateFrames
from afflux.protocols.family.sessions import Sessions
from afflux.protocols.rsocket import Engine, frames
from afflux.protocols.rsocket.member import LAYOUT
from afflux.protocols.rsocket.resume import Retained
from afflux.protocols.rsocket.snapshot import lasting, restore, retained, snapshot
from afflux.testing.world import Link

from .playbook import TOKEN, requester, responder, resumable_client, resumable_server, resume, resume_ok, setup
from .test_resume_cuts import CONVERSATIONS, Cut, Session, everything, whole

LIMITS = Limits.server().replace(resume_rate=(10**6, 0.0))

LATER = (frames.NEXT, b"")
"How the second fragment of a payload begins, and every other behind it."


def written(state: Any) -> Any:
    """As after a file: JSON knows no bytes and no tuples."""
    text = json.dumps(state, default=lambda value: {"base64": b64encode(value).decode()})
    return json.loads(text, object_hook=lambda value: b64decode(value["base64"]) if "base64" in value else value)


def again(engine: Any, now: float = 0.0, **terms: Any) -> Engine:
    """The engine of another process, which has the same state."""
    state = snapshot(engine)
    blocks = [(retained(engine).first, b"".join(retained(engine).blocks()))]
    if engine.resuming.sessions is not None:
        engine.resuming.sessions.remove(engine)
        terms["sessions"] = engine.resuming.sessions
    made = restore(written(state), blocks, limits=engine.limits, now=now, **terms)
    assert snapshot(made) == state
    assert made.resumption.suspended
    assert made.resumption.away == now
    assert lasting(made)
    assert retained(made).size == retained(engine).size
    assert b"".join(retained(made).blocks()) == b"".join(retained(engine).blocks())
    assert made.stream_table.reassembly.size == engine.stream_table.reassembly.size
    assert [one.received for one in made.streams(room=0, now=now)] == [
        one.received for one in engine.streams(room=0, now=now)
    ]
    streams = {
        stream.id: (stream.hot, stream.answering, stream.role.table) for stream in engine.stream_table.live.values()
    }
    assert {
        stream.id: (stream.hot, stream.answering, stream.role.table) for stream in made.stream_table.live.values()
    } == streams
    return made


# -- what is kept at all --------------------------------------------------------------------------------------


def test_only_what_can_be_resumed_lasts() -> None:
    assert not lasting(requester().engine)
    assert not lasting(responder().engine)
    assert lasting(resumable_client().engine)
    server = resumable_server(sessions=Sessions(LIMITS)).engine
    assert lasting(server)
    server.receive_eof(1.0)
    assert server.resumption.suspended and lasting(server)
    server.close(2.0)
    assert not lasting(server)
    assert not lasting(Engine("server", sessions=Sessions(LIMITS)))


def test_what_was_agreed_is_agreed_still() -> None:
    sessions = Sessions(LIMITS)
    server = resumable_server(sessions=sessions).engine
    made = again(server, 7.0)
    assert made.setup == server.setup
    assert made.setup.token == server.setup.token
    assert sessions.find(TOKEN) is made
    assert made.liveness.lifetime == server.liveness.lifetime
    assert made.deadline == 7.0 + made.limits.resume_s


def test_time_away_counts() -> None:
    client = resumable_client().engine
    state = snapshot(client)
    made = restore(state, [], limits=LIMITS, now=1000.0, away=100.0)
    assert made.resumption.away == 900.0
    assert made.deadline == 900.0 + LIMITS.resume_s
    (closed,) = made.tick(made.deadline)
    assert isinstance(closed, ev.Closed)


def test_what_was_taken_meanwhile_is_no_burden() -> None:
    client = resumable_client().engine
    client.stream_table.delivered, client.stream_table.objects = 500, 5
    made = restore(snapshot(client), [], limits=LIMITS, now=0.0)
    assert (made.stream_table.delivered, made.stream_table.objects) == (500, 5)
    made = restore(snapshot(client), [], limits=LIMITS, now=0.0, unconsumed=(30, 1))
    assert (made.stream_table.delivered, made.stream_table.objects) == (30, 1)


@pytest.mark.parametrize("drains", ["we", "they", "nobody"])
def test_the_last_words_are_kept(drains: str) -> None:
    play = resumable_client()
    client = play.engine
    client.open("stream", b"x", credit=1)
    if drains == "we":
        client.close(0.0, drain=True, reason="enough")
    elif drains == "they":
        client.receive(frames.ErrorFrame(stream=0, code=0x102, data=b"closing").encode(prefixed=True), 0.0)
    made = again(client)
    made.resumption.reconnect(0.0)
    assert made.outgoing()
    made.receive(resume_ok(0).encode(prefixed=True), 0.0)
    said = b""
    while chunk := made.outgoing():
        said += chunk
    assert (b"enough" in said) == (drains == "we")
    assert b"x" in said


def test_the_limits_are_those_of_now() -> None:
    """Fewer late frames are remembered, and fewer answers."""
    play = resumable_server(sessions=Sessions(LIMITS))
    server = play.engine
    for id in range(1, 41, 2):
        server.receive(frames.RequestResponse(stream=id).encode(prefixed=True), 0.0)
        if id < 21:
            server.fail(id, ValueError())
        else:
            server.send(id, [b""])
        server.release(id)
    state = snapshot(server)
    made = restore(state, [], limits=LIMITS.replace(tombstones=4), now=0.0)
    given_up, ended, answers, *_ = snapshot(made)["streams"]["late"]
    assert [id for id, _ in given_up] == [13, 15, 17, 19]
    assert ended == []
    assert answers == 4


def test_answers_are_counted_up_to_the_limit_of_now() -> None:
    late = LateFrames(LIMITS.replace(tombstones=2))
    for _ in range(3):
        late.answered()
    assert late.state() == [[], [], 2, 0, []]
    assert [late.price(id, "CANCEL") for id in (1, 3, 5)] == [0, 0, 1]
    late.restore([[], [], 9, 0])
    assert late.state()[2] == 2


# -- the pieces -----------------------------------------------------------------------------------------------


def test_ids_go_on() -> None:
    ids = StreamIds(1, 5)
    assert [ids.allocate(()) for _ in range(2)] == [1, 3]
    other = StreamIds(1, 5)
    other.restore(ids.state())
    assert [other.allocate(()) for _ in range(2)] == [5, 1]
    assert other.wrapped
    third = StreamIds(1, 5)
    third.restore(other.state())
    assert third.wrapped


def test_tombstones_go_on() -> None:
    stones = Tombstones(3)
    for id in range(1, 9, 2):
        stones.add(id, id)
    other = Tombstones(3)
    other.add(99)
    other.restore(stones.state())
    assert other.state() == [[3, 3], [5, 5], [7, 7]]
    assert 99 not in other


@pytest.mark.parametrize("done", range(7))
def test_a_payload_that_is_cut_half_way(done: int) -> None:
    """Every fragment of it may be the last that was cut."""

    def fragments() -> Fragments:
        first, payload = (frames.RequestChannel.TYPE << 10, b"\0\0\0\1"), (b"m" * 150, b"d" * 200)
        return Fragments(LAYOUT, 5, first, LATER, payload, complete=True, mtu=64, asks=True)

    def rest(cut: Fragments) -> list[bytes]:
        pieces = []
        while cut.size:
            pieces.append(b"".join(cut.next()))
        return pieces

    whole = rest(fragments())
    assert len(whole) == 7
    cut = fragments()
    for _ in range(done):
        cut.next()
    made = Fragments.of_state(LAYOUT, LATER, written(cut.state()))
    assert made.size == cut.size
    assert rest(made) == whole[done:]


def block(*sizes: int) -> bytes:
    return b"".join(size.to_bytes(3, "big") + bytes(size) for size in sizes)


def test_the_frames_behind_a_position() -> None:
    store = Retained(LIMITS)
    for sizes in ((6, 7), (5000,), (8, 9), (10,)):
        store.add(block(*sizes))
    everything = block(6, 7, 5000, 8, 9, 10)
    borders = {0: 0, 6: 9, 13: 19, 5013: 5022, 5021: 5033, 5030: 5045, 5040: 5058}
    for position, at in borders.items():
        assert store.after(position) == everything[at:]
    for trimmed in (6, 5021):
        store.trim(trimmed)
        for position, at in borders.items():
            if position >= trimmed:
                assert store.after(position) == everything[at:]


def test_retained_frames_are_the_right_ones_or_refused() -> None:
    made = Retained(LIMITS)
    made.restore([9, 23, 5, 4, 3], [(0, block(9, 7)), (16, block(7))])
    assert (made.first, made.sent, made.received, made.reported) == (9, 23, 5, 4)
    assert made.state() == [9, 23, 5, 4, 3]
    assert b"".join(made.blocks()) == block(7, 7)
    for state, blocks, text in (
        ([0, 23, 0, 0, 0], [(0, block(9)), (16, block(7))], "from position 9 are missing"),
        ([0, 23, 0, 0, 0], [(0, block(9, 7))], "0 to 16 are not those from 0 to 23"),
        ([0, 23, 0, 0, 0], [(9, block(7, 7))], "9 to 23 are not those from 0 to 23"),
        ([3, 23, 0, 0, 0], [(0, block(9, 7, 7))], "0 to 23 are not those from 3 to 23"),
        ([5, 23, 0, 0, 0], [], "5 to 5 are not those from 5 to 23"),
    ):
        with pytest.raises(ValueError, match=text):
            Retained(LIMITS).restore(state, blocks)


def test_what_is_known_of_a_stream() -> None:
    client = resumable_client().engine
    channel = client.open("channel", b"c", credit=7)
    stream = client.open("stream", b"s", credit=3)
    client.receive(frames.RequestN(stream=channel, n=5).encode(prefixed=True), 0.0)
    client.send(channel, [b"1", b"2"])
    assert client.resumption.opened == [channel, stream]
    assert list(client.resumption.handlers) == []
    assert client.resumption.stream_counters(channel) == (3, 3, 7)
    assert client.resumption.stream_counters(stream) == (0, 0, 3)
    assert client.resumption.stream_counters(99) is None
    client.complete(channel)
    assert client.resumption.stream_counters(channel) == (0, 3, 7)
    client.receive(frames.RequestStream(stream=2, initial_n=4).encode(prefixed=True), 0.0)
    client.send(2, [b"1"])
    assert client.resumption.stream_counters(2) == (1, 3, 0)
    assert client.resumption.opened == [channel, stream]
    assert list(client.resumption.handlers) == [2]


def test_a_channel_remembers_who_pays_for_its_first_item() -> None:
    """D-8."""
    sessions = Sessions(LIMITS)
    server = resumable_server(sessions=sessions).engine
    server.receive(frames.RequestChannel(stream=1, initial_n=1).encode(prefixed=True), 0.0)
    made = again(server)
    made.request(1, 1)
    assert made.queued == 0
    made.request(1, 1)
    assert made.queued


# -- whole conversations --------------------------------------------------------------------------------------


class Reborn(Session):
    """Both ends die at each cut; others go on for them."""

    who = ("client", "server")

    def rejoin(self) -> Link:
        now = self.world.now
        if "client" in self.who:
            self.asked = self.link.client.engine = again(self.asked, now)
        if "server" in self.who and self.answers.resuming.retained is not None:
            self.answers = self.link.server.engine = again(self.answers, now)
        return super().rejoin()


@pytest.mark.repetitive
@pytest.mark.slow
@pytest.mark.parametrize("name", CONVERSATIONS)
@pytest.mark.parametrize("to", ["client", "server"])
def test_a_side_restored_at_a_cut_sees_the_same(name: str, to: str) -> None:
    heard, (to_server, to_client) = whole(name)
    begun = len(setup(token=TOKEN).encode(prefixed=True))
    for n in range(0, to_client, 31) if to == "client" else range(begun, to_server, 29):
        session = Reborn(CONVERSATIONS[name])
        session.who = (("client",), ("server",), ("client", "server"))[n % 3]
        link = session.link
        link.cut_after(n, link.client if to == "client" else link.server)
        session.run()
        session.settle()
        assert session.heard() == heard, f"cut after {n} bytes to the {to}, {session.who}"


@pytest.mark.slow
def test_who_is_reborn_again_and_again() -> None:
    calm = Session(everything)
    calm.settle()
    session = Reborn(everything)
    size = len(setup(token=TOKEN).encode(prefixed=True)) + 30
    session.link.cut_after(size, session.link.server)
    session.run()
    for number in range(40):
        if not session.asked.resumption.suspended:
            break
        link = session.rejoin()
        link.cut_after(100 + 7 * number, link.client if number % 2 else link.server)
        session.run()
    session.settle()
    assert session.heard() == calm.heard()
    assert session.client.suspended > 10


class Mortal(Cut):
    """The chance conversations of test_resume_cuts.py, in which engines die at any point."""

    @rule(who=st.integers(0, 1), knows=st.booleans())
    def dies(self, who: int, knows: bool) -> None:
        """What was under way is lost; a server may not notice that its client died (RE-14)."""
        side = self.sides[who]
        other = self.other(side)
        side.out.clear()
        other.out.clear()
        side.engine = again(side.engine, self.now)
        if not other.engine.resumption.suspended and (knows or other is self.client):
            other.hear(other.engine.receive_eof(self.now))


TestMortal = pytest.mark.repetitive(Mortal.TestCase)
TestMortal.settings = settings(
    max_examples=40, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


def test_a_request_whose_last_fragment_is_still_to_come() -> None:
    sessions = Sessions(LIMITS)
    server = resumable_server(sessions=sessions).engine
    first = frames.RequestResponse(stream=1, follows=True, metadata=b"m" * 60, data=b"")
    more = frames.PayloadFrame(stream=1, follows=True, next=True, metadata=b"n" * 60, data=b"d" * 10)
    server.receive(first.encode(prefixed=True) + more.encode(prefixed=True), 3.0)
    server.receive(frames.RequestChannel(stream=3, initial_n=1).encode(prefixed=True), 3.0)
    server.request(3, 3)
    item = frames.PayloadFrame(stream=3, follows=True, next=True, data=b"i" * 60)
    server.receive(item.encode(prefixed=True), 3.0)
    made = again(server, 5.0)
    made.resumption.resume(resume(server=0, client=0), 6.0)
    last = frames.PayloadFrame(stream=1, next=True, data=b"end")
    rest = frames.PayloadFrame(stream=3, next=True, data=b"end")
    events = made.receive(last.encode(prefixed=True) + rest.encode(prefixed=True), 7.0)
    assert events == [
        ev.Opened(1, "request", Payload(b"d" * 10 + b"end", b"m" * 60 + b"n" * 60), 1, False),
        ev.Items(3, [Payload(b"i" * 60 + b"end")]),
    ]


def test_a_snapshot_of_frames_that_are_not_there_is_refused() -> None:
    client = resumable_client().engine
    client.open("request", b"x")
    client.outgoing()
    with pytest.raises(ValueError, match="are not those"):
        restore(snapshot(client), [], limits=LIMITS, now=0.0)
    with pytest.raises(Violation):
        restore(snapshot(client) | {"setup": [True, b"\0" * 6, 64]}, [], limits=LIMITS, now=0.0)
