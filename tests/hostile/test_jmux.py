"""Hostile Jmux peers: what no conversation of tests/protocols/jmux tells; where the other rows are told is in
test_catalogue.py."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from afflux.core import events as ev
from afflux.core.errors import RemoteProtocolError
from afflux.core.limits import Limits
from afflux.protocols.jmux import Engine
from afflux.protocols.jmux.frames import Data, ErrorMessage, IncrementRation
from afflux.testing.world import End, World
from tests.hostile.hoards import SERVER, TINY
from tests.protocols.jmux.playbook import WELCOME, abort, client, closed, data, opening, ping, server

CALLS = 10_000


@pytest.mark.parametrize("count", [-1, 0, 1])
def test_FC_13_at_the_ration(count: int) -> None:
    """One byte over it, also on the opening message, before any session state exists."""
    play = server()
    said = data(bytes(SERVER.ration_bytes + count), open=True)
    if count > 0:
        play >> said.encode()[:4] << closed(RemoteProtocolError, rule="R-33") << ErrorMessage
        assert not play.engine.streams()
    else:
        (play >> said).forget()
        assert len(play.engine.byte_sessions.read(1)) == SERVER.ration_bytes + count


def test_FC_18_when_memory_is_tight_no_client_is_admitted() -> None:
    """What an id may begin with is said once, in the header: so it is the number of sessions that shrinks."""
    play = server(limits=TINY.replace(ration_max_bytes=1 << 15, streams=100), sessions=False)
    for id in range(TINY.sessions):
        play >> opening(bytes(TINY.ration_bytes), id=id)
        while play.sent:
            more = play.sent.popleft()
            if isinstance(more, IncrementRation):
                play.collect(play.engine.receive(data(bytes(more.size), id=more.session).encode(), 0.0))
        assert not [event for event in play.events if not isinstance(event, ev.Ignored)]
        play.events.clear()
        rations = play.engine.sessions.rations
        assert rations.shared_used <= rations.shared_limit
    held = play.engine.sessions.inboxes.unread
    assert held <= TINY.connection_bytes


def test_SI_22_ids_that_leak_end_the_connection() -> None:
    """30 s for each, then Error; a call that would need an id meanwhile is told to go elsewhere."""
    play = client(limits=Limits.server(sessions=3), ping_interval=0)
    streams = [play.engine.byte_sessions.open_session(b"q", finish=True) for _ in range(3)]
    play.forget()
    play.now = 10.0
    play.collect(play.engine.tick(10.0))
    for stream in streams:
        play.engine.byte_sessions.abort(stream)
    play.forget()
    with pytest.raises(Exception, match="open another connection"):
        play.engine.byte_sessions.open_session(b"q")
    play.at(10.0)
    play.at(39.9).quiet()
    play.at(40.0) << closed(RemoteProtocolError, message="abort-unanswered") << ErrorMessage


def test_KA_08_no_ping_is_skipped() -> None:
    """One answer for each, in order, as many as a connection takes at once; one more is too many."""
    burst = SERVER.keepalive_rate[1]
    play = server()
    play >> tuple(ping(cookie) for cookie in range(burst))
    assert [said.cookie for said in play.sent] == list(range(burst))  # type: ignore[attr-defined] # each a PingAck
    play.sent.clear()
    play >> ping(0) << closed(RemoteProtocolError, rule="keepalive_rate") << ErrorMessage


@pytest.mark.repetitive
@pytest.mark.parametrize("excess", [0, 1])
def test_FL_07_at_the_bucket(excess: int) -> None:
    burst = SERVER.most_cancels
    play = server()
    for n in range(burst + excess):
        (play >> opening(b"q", id=n % 128)).forget()
        play >> abort(id=n % 128)
        if n == burst:
            assert isinstance(play.events[-1], ev.Closed)
            assert play.events[-1].error is not None
            assert play.events[-1].error.rule == "cancel_bucket"
        else:
            assert not play.engine.closed
        play.engine.release(n + 1)
        play.forget()
    assert len(play.engine.role.handlers) <= burst + excess  # type: ignore[union-attr] # it is a server


def test_FL_07_live_handlers_are_counted() -> None:
    play = server(limits=TINY)
    for n in range(TINY.streams):
        (play >> (opening(b"q", id=n), abort(id=n))).forget()
    play >> opening(b"q") << (ev.Ignored, {"rule": "REJECTED"}) << abort(detail="too-many-streams")
    play.engine.release(1)
    play >> abort() >> opening(b"q") << ev.SessionOpened
    play.forget()


def test_FC_19_both_sides_write_before_either_reads() -> None:
    """No deadlock, and no more than two rations between them."""
    near, far = client(), server()
    near.engine.byte_sessions.open_session(b"")
    far.engine.receive(near.engine.outgoing(), 0.0)
    for engine in (near.engine, far.engine):
        engine.byte_sessions.write(1, bytes(SERVER.ration_bytes))
        assert not engine.credit(1)
    while to_far := near.engine.outgoing():
        far.engine.receive(to_far, 0.0)
    while to_near := far.engine.outgoing():
        near.engine.receive(to_near, 0.0)
    for engine in (near.engine, far.engine):
        assert engine.wants_read
        assert len(engine.byte_sessions.read(1)) == SERVER.ration_bytes


class Calls:
    """A client that tries again what is safe, and a server that aborts at will and remembers what it has run."""

    def __init__(self, seed: int) -> None:
        self.dice = Random(seed)
        self.runs: Counter[int] = Counter()
        self.answered: set[int] = set()
        self.lost: set[int] = set()
        self.waiting = list(range(CALLS))

    def serve(self, end: End, event: ev.Event) -> None:
        """Refuse it unseen, fail, forget it, or answer."""
        if not isinstance(event, ev.Opened):
            return
        engine: Engine = end.engine  # type: ignore[assignment] # both are of Jmux
        how = self.dice.randrange(12)
        if how == 0:
            engine.byte_sessions.abort(event.stream, "not now", untouched=True)
        elif how > 1:
            self.runs[int(event.payload.data)] += 1
            if how == 2:
                engine.fail(event.stream, ValueError())
            else:
                engine.send(event.stream, [event.payload], complete=True)
        engine.release(event.stream)

    def connection(self) -> None:
        """One connection with sixty calls, which breaks at the end of some message, or near it."""
        batch, self.waiting = self.waiting[-60:], self.waiting[:-60]
        world = World(seed=len(self.waiting))
        link = world.join(Engine("client"), Engine("server"), on_server=self.serve)
        streams = {link.client.engine.open("request", b"%05d" % call): call for call in batch}
        whole = len(WELCOME.encode()) + self.dice.randrange(70) * len(data(bytes(5)).encode())
        link.cut_after(whole + self.dice.choice((0, 0, self.dice.randrange(9))), self.dice.choice(link.ends))
        if self.dice.random() < 0.2:
            link.server.dispatch(link.server.engine.close(world.now, reason="restart"))
        world.run()
        link.cut()
        ends: Counter[int] = Counter()
        for event in ev.singly(link.client.events):
            if isinstance(event, ev.Items):
                ends[event.stream] += 1
                self.answered.add(streams[event.stream])
            elif isinstance(event, ev.Failed):
                ends[event.stream] += 1
                self.failed(streams[event.stream], event)
        assert ends == dict.fromkeys(streams, 1)

    def failed(self, call: int, event: ev.Failed) -> None:
        """Try it again if that is safe."""
        if event.error.may_have_been_processed:
            self.lost.add(call)
        else:
            assert not self.runs[call], "it ran, and the client was told that it did not"
            self.waiting.append(call)


@pytest.mark.repetitive
def test_JA_12_each_call_runs_at_most_once() -> None:
    """Ten thousand calls, and a server that dies behind any message: what ran once is never sent again."""
    calls = Calls(12)
    while calls.waiting:
        calls.connection()
    assert max(calls.runs.values()) == 1
    assert calls.answered | calls.lost == set(range(CALLS))
    assert not calls.answered & calls.lost
    assert calls.lost and all(calls.runs[call] == 1 for call in calls.answered)


def test_JA_11_a_detail_of_the_greatest_length() -> None:
    """Decoded with replacement, and cut to what an error's text may have."""
    play = client().do(lambda engine: engine.open("request", b"q")) << Data
    said = abort(detail="").encode()[:2] + b"\xff\xff" + b"\xff" * 0xFFFF
    (play >> said) << abort()
    event = play.events.popleft()
    assert isinstance(event, ev.Failed)
    assert len(event.error.message) <= SERVER.error_text_bytes[1]
    assert set(event.error.message) == {"\ufffd"}
