"""Worlds of engines in simulated time: latency, slices, cuts, silence, slow readers; the same seed, the same run."""

from __future__ import annotations

import pytest

from afflux.core.errors import LocalProtocolError
from afflux.core.events import Closed, Completed, Event, Failed, Items, Opened, Resumed, Suspended
from afflux.core.limits import Limits
from afflux.protocols.family.sessions import Sessions
from afflux.protocols.rsocket.engine import Engine
from afflux.protocols.rsocket.frames import Setup
from afflux.testing.world import End, Link, World


def echo(end: End, event: Event) -> None:
    """Answer a stream of N with N items, as fast as credit allows."""
    if isinstance(event, Opened):
        end.engine.send(event.stream, [b"%d" % i for i in range(int(event.payload.data))], complete=True)
        end.engine.release(event.stream)


def joined(world: World, **how: object) -> Link:
    limits = Limits.server()
    return world.join(
        Engine("client", limits=limits),
        Engine("server", limits=limits),
        on_server=echo,
        **how,  # type: ignore[arg-type] # passed on
    )


def items_of(end: End) -> list[bytes]:
    return [payload.data for event in end.events if isinstance(event, Items) for payload in event.payloads]


@pytest.mark.parametrize("slice", [None, 0, 1, 2, 3, 7, 100])
@pytest.mark.parametrize("jitter", [0.0, 0.5])
def test_pieces_change_nothing(slice: int | None, jitter: float) -> None:
    world = World(seed=1)
    link = joined(world, latency=0.1, jitter=jitter, slice=slice)
    link.client.engine.open("stream", b"50", credit=50)
    world.run()
    assert items_of(link.client) == [b"%d" % i for i in range(50)]
    ends = [event for event in link.client.events if isinstance(event, Completed) or getattr(event, "complete", False)]
    assert len(ends) == 1


def test_time_passes_as_the_latency_states() -> None:
    world = World()
    link = joined(world, latency=0.25)
    link.client.engine.open("stream", b"1", credit=1)
    world.run()
    assert world.now == 0.5


def test_the_same_seed_is_the_same_run() -> None:
    def run(seed: int) -> tuple[list[object], float, bytes]:
        world = World(seed)
        link = joined(world, latency=0.01, jitter=0.1, slice=0)
        link.client.engine.open("stream", b"20", credit=20)
        world.run()
        return [type(event).__name__ for event in link.client.events], world.now, bytes(link.server.sent)

    assert run(3) == run(3)
    assert run(3)[1] != run(4)[1]


def test_a_cut_is_reported_at_both_ends() -> None:
    world = World()
    link = joined(world, latency=1.0)
    link.client.engine.open("stream", b"5", credit=5)
    world.at(1.5, link.cut)
    world.run()
    assert items_of(link.client) == []
    assert [type(event) for event in link.client.events[-2:]] == [Failed, Closed]
    assert isinstance(link.server.events[-1], Closed)


def test_a_cut_in_the_middle_of_an_item() -> None:
    world = World()
    link = joined(world)
    link.client.engine.open("stream", b"1000", credit=1000)
    link.cut_after(95)
    world.run()
    assert 0 < len(items_of(link.client)) < 10
    assert isinstance(link.client.events[-1], Closed)


def test_a_black_hole_is_found_by_keepalive() -> None:
    """SL-05: both sides end by the lifetime."""
    world = World()
    link = joined(world)
    world.run(until=1)
    link.dark = True
    world.run(until=200)
    for end in (link.client, link.server):
        assert [type(event) for event in end.events].count(Closed) == 1
        assert "keepalive" in str(end.events[-1])
    assert world.now == 200


def test_keepalives_keep_a_quiet_connection() -> None:
    world = World()
    link = joined(world, latency=0.1)
    world.run(until=3600)
    assert not link.client.engine.closed
    assert len(link.client.sent) > 100 * 10


def test_a_reader_that_has_stopped() -> None:
    world = World()
    link = joined(world)
    link.client.engine.open("stream", b"100", credit=100)
    link.client.reading = False
    world.run()
    assert items_of(link.client) == []
    assert link.client.unread > 100
    link.client.reading = True
    world.run()
    assert len(items_of(link.client)) == 100


def test_a_close_reaches_the_other_end() -> None:
    world = World()
    link = joined(world, latency=0.1)
    world.run()
    link.client.dispatch(link.client.engine.close(world.now))
    world.run()
    assert isinstance(link.server.events[-1], Closed)
    assert link.client.over and link.server.over


def test_a_world_that_finds_no_rest() -> None:
    world = World()

    def again() -> None:
        world.at(world.now, again)

    again()
    with pytest.raises(RuntimeError, match="not at rest after 100 steps"):
        world.run(steps=100)


# -- links that break, and sessions that do not ---------------------------------------------------------------

LIMITS = Limits.server(resume_rate=(10**6, 0.0))


def resumable(world: World, sessions: Sessions, limits: Limits = LIMITS, **how: object) -> Link:
    setup = Setup(metadata_mime="m/m", data_mime="d/d", token=bytes(16))
    return world.join(
        Engine("client", setup=setup, limits=LIMITS),
        Engine("server", limits=limits, sessions=sessions),
        on_server=echo,
        **how,  # type: ignore[arg-type] # passed on
    )


def newcomer(world: World, sessions: Sessions) -> Engine:
    return Engine("server", limits=LIMITS, sessions=sessions, now=world.now)


@pytest.mark.parametrize("to", ["client", "server"])
@pytest.mark.parametrize("slice", [None, 1, 0])
def test_a_cut_at_a_byte_of_either_direction(to: str, slice: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """So many bytes have arrived, and not one more."""
    world = World()
    link = joined(world, slice=slice)
    link.client.engine.open("stream", b"20", credit=20)
    end = link.client if to == "client" else link.server
    taken: list[bytes] = []
    receive = Engine.receive

    def watched(engine: Engine, data: bytes, now: float) -> list[Event]:
        if engine is end.engine:
            taken.append(data)
        return receive(engine, data, now)

    monkeypatch.setattr(Engine, "receive", watched)
    link.cut_after(77, end)
    world.run()
    assert len(b"".join(taken)) == 77
    assert isinstance(link.client.events[-1], Closed)
    assert isinstance(link.server.events[-1], Closed)


def test_a_cut_before_the_first_byte() -> None:
    world = World()
    link = joined(world)
    link.cut_after(0, link.server)
    world.run()
    assert [type(event) for event in link.server.events] == [Closed]


def test_a_direction_that_loses_what_it_carries() -> None:
    """Nobody is told; the other direction goes on. None: no longer."""
    world = World()
    link = joined(world)
    link.client.engine.open("stream", b"100", credit=100)
    link.client.lose_after(50)
    world.run()
    assert 0 < len(items_of(link.client)) < 10
    assert not link.client.engine.closed
    assert len(link.server.sent) > 500
    assert any(isinstance(event, Opened) for event in link.server.events)
    link.client.lose_after(None)
    link.server.dispatch(link.server.engine.close(world.now))
    world.run()
    assert isinstance(link.client.events[-1], Closed)


def test_a_session_goes_on_over_a_new_link() -> None:
    """The ends keep their events, their bytes and their applications; the newcomer is nobody any more."""
    world, sessions = World(), Sessions(LIMITS)
    link = old = resumable(world, sessions, latency=0.1, slice=3)
    session = link.server.engine
    link.client.engine.open("stream", b"50", credit=50)
    link.cut_after(100)
    world.run()
    assert [type(end.events[-1]) for end in (link.client, link.server)] == [Suspended, Suspended]
    stranger = newcomer(world, sessions)
    link = world.rejoin(link, stranger)
    assert (link.latency, link.slice) == (0.1, 3)
    before = world.now
    world.run()
    assert link.server.engine is session
    assert stranger.closed
    assert old.ends == ()
    assert items_of(link.client) == [b"%d" % i for i in range(50)]
    assert sum(isinstance(event, Resumed) for event in link.client.events) == 1
    assert sum(isinstance(event, Resumed) for event in link.server.events) == 1
    assert world.now == pytest.approx(before + 0.2)
    link.client.engine.open("stream", b"3", credit=3)
    world.run()
    assert items_of(link.client)[50:] == [b"0", b"1", b"2"]


def test_a_session_that_still_has_its_old_link() -> None:
    """Only the client has noticed: the newer link wins, and what the older one still brings is lost."""
    world, sessions = World(), Sessions(LIMITS)
    link = old = resumable(world, sessions, latency=1.0)
    link.client.engine.open("stream", b"5", credit=5)
    world.run(until=1.5)
    link.client.end()
    link = world.rejoin(link, newcomer(world, sessions))
    world.run()
    assert [type(event) for event in link.server.events[-2:]] == [Suspended, Resumed]
    assert items_of(link.client) == [b"0", b"1", b"2", b"3", b"4"]
    assert old.server.over and old.client.over


def test_a_session_that_is_refused() -> None:
    """Its server has forgotten it, or its positions do not fit: the client hears of it."""
    world, sessions = World(), Sessions(LIMITS)
    link = resumable(world, sessions)
    world.run()
    link.server.engine.push(b"hello")  # a client that has heard nothing would begin anew
    world.run()
    link.cut()
    link = world.rejoin(link, newcomer(world, Sessions(LIMITS)))
    world.run()
    assert isinstance(link.client.events[-1], Closed)
    assert "no such session" in str(link.client.events[-1])
    link = resumable(world, sessions := Sessions(LIMITS), LIMITS.replace(resume_rate=(0, 0.0)))
    session = link.server.engine
    world.run()
    link.cut()
    link = world.rejoin(link, newcomer(world, sessions))
    world.run()
    assert "too often" in str(link.client.events[-1])
    assert session.resumption.suspended  # type: ignore[attr-defined] # an engine of RSocket


def test_only_a_suspended_client_can_rejoin() -> None:
    world, sessions = World(), Sessions(LIMITS)
    link = resumable(world, sessions)
    world.run()
    with pytest.raises(LocalProtocolError, match="suspended"):
        world.rejoin(link, newcomer(world, sessions))
    assert link.client.engine.open("stream", b"2", credit=2) == 1
    world.run()
    assert items_of(link.client) == [b"0", b"1"]


def test_words_that_come_with_the_request_to_go_on() -> None:
    """What a client says too early is handed over with its link: here RESUME again, which ends it (RE-03)."""
    world, sessions = World(), Sessions(LIMITS)
    link = resumable(world, sessions)
    world.run()
    link.cut()
    link = world.rejoin(link, newcomer(world, sessions))
    said = link.client.engine.outgoing()
    link.server.arrive(said + said)
    assert [type(event) for event in link.server.events[-2:]] == [Resumed, Closed]
    world.run()
    assert isinstance(link.client.events[-1], Closed)


def test_a_silent_link_is_left_by_a_session() -> None:
    """The lifetime finds a black hole: both ends leave the link and wait; then it is over for both."""
    world, sessions = World(), Sessions(LIMITS)
    link = resumable(world, sessions)
    world.run(until=1)
    link.dark = True
    world.run(until=150)
    for end in link.ends:
        assert isinstance(end.events[-1], Suspended)
        assert end.over
    world.run(until=400)
    for end in link.ends:
        assert isinstance(end.events[-1], Closed)
        assert "not resumed within 120 s" in str(end.events[-1])
    assert len(sessions) == 0
