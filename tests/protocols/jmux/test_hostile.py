"""Whatever comes, however it is cut: garbage, pairs of engines under random wishes, and what memory they may use."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from afflux.core import events as ev
from afflux.core.limits import Limits
from afflux.protocols.jmux import Engine
from afflux.protocols.jmux.frames import FRAMES
from afflux.protocols.jmux.states import SessionState
from tests.examples import share
from tests.strategies.frames import frames_of

from .playbook import HELLO, WELCOME

MESSAGES = st.one_of([frames_of(kind) for kind in FRAMES.values()])
TERMINAL = (ev.Failed, ev.Items)


@pytest.mark.repetitive
@given(st.sampled_from(["client", "server"]), st.lists(MESSAGES, max_size=20), st.data())
def test_every_split_means_the_same(role: Any, said: list[Any], draw: st.DataObject) -> None:
    """The same events, and the same answers, however the bytes are cut."""
    header = WELCOME if role == "client" else HELLO
    raw = header.encode() + b"".join(message.encode() for message in said)
    cuts = sorted(draw.draw(st.lists(st.integers(0, len(raw)), max_size=8)))
    told = []
    for edges in ([0, len(raw)], [0, *cuts, len(raw)], [*range(0, len(raw), 7), len(raw)]):
        engine = Engine(role, limits=Limits.tiny(), sessions=True)
        if role == "client":
            engine.open("request", b"q")
        events = []
        for start, stop in pairwise(edges):
            events += engine.receive(raw[start:stop], 0.0)
        out = b""
        while chunk := engine.outgoing():
            out += chunk
        told.append(([kind for kind in map(repr, events) if not kind.startswith("Readable")], out))
    assert told[0][0] == told[1][0] == told[2][0]
    if role == "server":
        assert told[0][1] == told[1][1] == told[2][1]


WISH = st.tuples(st.integers(0, 11), st.integers(0, 5), st.integers(0, 700))


class Pair:
    """A client and a server, the bytes between them, and what their applications have heard."""

    def __init__(self, draw: st.DataObject) -> None:
        limits = Limits.tiny(sessions=4, ration_bytes=256, ration_max_bytes=1024, streams=6)
        self.near = Engine("client", limits=limits, fragment=100, max_wait_for_id=30, auto_ack=draw.draw(st.booleans()))
        self.far = Engine("server", limits=limits, fragment=100, sessions=True)
        self.wire = {self.near: b"", self.far: b""}
        self.sent: dict[tuple[Engine, int], int] = {}
        self.got: dict[tuple[Engine, int], int] = {}
        self.ended: dict[tuple[Engine, int], int] = {}
        self.now = 0.0

    def other(self, engine: Engine) -> Engine:
        return self.far if engine is self.near else self.near

    def hear(self, engine: Engine, events: list[Any]) -> None:
        for event in events:
            assert not isinstance(event, ev.Closed), event
            if isinstance(event, ev.Failed):
                key = engine, event.stream
                self.ended[key] = self.ended.get(key, 0) + 1
                assert self.ended[key] == 1

    def move(self, engine: Engine, size: int) -> None:
        """Some bytes go from one to the other."""
        self.wire[engine] += engine.outgoing(512)
        some, self.wire[engine] = self.wire[engine][:size], self.wire[engine][size:]
        if some:
            self.hear(self.other(engine), self.other(engine).receive(some, self.now))

    def act(self, wish: int, which: int, size: int) -> None:
        engine = self.far if wish % 2 else self.near
        streams = [status.stream for status in engine.streams()]
        stream = streams[which % len(streams)] if streams else 0
        if wish < 2:
            self.move(engine, size)
        elif wish == 2 and len(streams) < 5:
            engine.byte_sessions.open_session(b"x" * size)
        elif wish == 4 and len(streams) < 5:
            engine.open("request", b"x" * size)
        elif wish in (3, 6) and engine.byte_sessions.takes(stream):
            engine.byte_sessions.write(stream, b"x" * min(size, engine.credit(stream)))
        elif wish in (5, 8) and streams:
            engine.byte_sessions.read(stream, size)
        elif wish == 7 and streams:
            engine.byte_sessions.finish(stream, ack=bool(which & 1), drop=bool(which & 2))
            engine.release(stream)
        elif wish == 10 and streams:
            engine.byte_sessions.finish(stream)
        elif wish in (9, 11) and streams and size > 500:
            engine.byte_sessions.abort(stream, "enough")
            engine.release(stream)
        elif streams:
            engine.byte_sessions.acknowledge(stream)


@settings(max_examples=share(1.5), deadline=None)
@given(st.lists(WISH, max_size=120), st.data())
def test_two_engines_never_break_a_rule(wishes: list[tuple[int, int, int]], draw: st.DataObject) -> None:
    """Whatever the applications do and however late the bytes come, neither side violates what the other knows; each
    session fails at most once; memory stays within its limit; and in the end every id is free again."""
    pair = Pair(draw)
    for wish in wishes:
        pair.act(*wish)
        for engine in (pair.near, pair.far):
            rations = engine.sessions.rations
            assert 0 <= rations.shared_used <= rations.shared_limit + 4 * 256
            assert engine.out.pending >= 0 <= engine.out.ready
    for _ in range(400):
        for engine in (pair.near, pair.far):
            pair.move(engine, 1 << 16)
            for stream in [status.stream for status in engine.streams()]:
                engine.byte_sessions.read(stream)
                engine.byte_sessions.finish(stream)
                engine.release(stream)
                engine.byte_sessions.acknowledge(stream)
            engine.consumed(1 << 30)
    for engine in (pair.near, pair.far):
        for stream in [status.stream for status in engine.streams()]:
            engine.byte_sessions.abort(stream)
            engine.release(stream)
    for _ in range(10):
        pair.move(pair.near, 1 << 16)
        pair.move(pair.far, 1 << 16)
    assert pair.near.sessions.rations.shared_used == 0
    assert all(
        session is None or session.state in (SessionState.CLOSED, SessionState.ABORTED_FIN)
        for session in pair.far.sessions.by_id
    )
    # every id is free at both ends: the client uses each once more, and the server accepts all of them
    opened = [pair.near.byte_sessions.open_session(b"q") for _ in range(4)]
    assert [pair.near.byte_sessions.session_id(stream) for stream in opened] == [0, 1, 2, 3]
    events = pair.far.receive(pair.near.outgoing(), pair.now)
    assert [type(event) for event in events if not isinstance(event, ev.Readable)] == [ev.SessionOpened] * 4
