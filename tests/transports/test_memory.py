"""Worlds of engines in simulated time: latency, slices, cuts, silence, slow readers; the same seed, the same run."""

from __future__ import annotations

import pytest

from afflux.core.events import Closed, Completed, Event, Failed, Items, Opened
from afflux.core.limits import Limits
from afflux.protocols.rsocket.engine import Engine
from afflux.transports.memory import End, Link, World


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


def test_time_passes_as_the_latency_says() -> None:
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


def test_a_cut_is_heard_at_both_ends() -> None:
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
    link.client.tell(link.client.engine.close(world.now))
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
