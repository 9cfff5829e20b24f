"""Many large messages at once: whoever can not be paid for now waits, and nobody is ended for it (FC-18)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from afflux.core import events as ev
from afflux.core.limits import Limits
from afflux.protocols.jmux import Engine
from afflux.protocols.jmux.dialect import Dialect
from afflux.protocols.jmux.errors import SessionAborted
from afflux.testing.world import End, World
from tests.examples import share

from .playbook import client, data, opening, owed, server

SERVER = Limits.server()
CASES = [(40, 100_000), (4, 1_500_000), (128, 200_000), (3, 4 << 20)]


class Calls:
    """A client that asks, a server that answers, and what became of each call. Sizes are what a call sends, and what
    it hears. Payloads are consumed when ``slow`` is over, or at once."""

    def __init__(
        self, limits: Limits = SERVER, last: int = 127, slow: Callable[[], float] | None = None, **link: object
    ):
        self.world = World(7)
        self.slow = slow
        self.done: list[int] = []
        self.failures: list[ev.Failed] = []
        self.sizes: dict[int, tuple[int, int]] = {}
        dialect = Dialect(max_session_id=last)  # type: ignore[arg-type] # 127 or 255
        self.near = Engine("client", limits=limits, max_wait_for_id=1e6, dialect=dialect, ping_interval=0)
        self.far = Engine("server", limits=limits, dialect=dialect, ping_interval=0)
        self.link = self.world.join(self.near, self.far, on_client=self.heard, on_server=self.asked, **link)  # type: ignore[arg-type] # options of a link
        self.open: dict[int, int] = {}

    def ask(self, sends: int, hears: int) -> None:
        stream = self.near.open("request", b"%08d" % hears + bytes(sends))
        self.sizes[stream] = sends, hears

    def asked(self, end: End, event: ev.Event) -> None:
        self.bounded()
        if isinstance(event, ev.Opened):
            self.later(end, len(event.payload))
            self.far.send(event.stream, [bytes(int(event.payload.data[:8]))], complete=True)
            self.far.release(event.stream)

    def bounded(self) -> None:
        """What has arrived and was not consumed is within the budget, at both ends."""
        for engine in (self.near, self.far):
            held = engine.sessions.inboxes.unread + engine.sessions.rations.delivered
            assert held <= engine.limits.connection_bytes

    def heard(self, end: End, event: ev.Event) -> None:
        self.bounded()
        if isinstance(event, ev.Failed):
            self.failures.append(event)
        elif isinstance(event, ev.Items):
            assert len(event.payloads[0]) == self.sizes[event.stream][1]
            self.done.append(event.stream)
            self.later(end, len(event.payloads[0]))

    def later(self, end: End, size: int) -> None:
        delay = 0.0 if self.slow is None else self.slow()
        self.world.at(self.world.now + delay, lambda: end.engine.consumed(size))

    def run(self, seconds: float = 30) -> None:
        self.world.run(until=self.world.now + seconds)

    def all_went_well(self) -> None:
        assert not self.failures
        assert Counter(self.done) == dict.fromkeys(self.sizes, 1)


@pytest.mark.repetitive
@pytest.mark.parametrize(("calls", "size"), CASES)
def test_large_answers_at_once(calls: int, size: int) -> None:
    """D-16: as many as there are sessions, and together far more than ``connection_bytes``: all arrive."""
    pair = Calls(latency=0.001)
    for _ in range(calls):
        pair.ask(10, size)
    pair.run()
    pair.all_went_well()


@pytest.mark.repetitive
@pytest.mark.parametrize(("calls", "size"), CASES)
def test_large_requests_at_once(calls: int, size: int) -> None:
    pair = Calls(latency=0.001)
    for _ in range(calls):
        pair.ask(min(size, (4 << 20) - 8), 10)
    pair.run()
    pair.all_went_well()


@pytest.mark.repetitive
@pytest.mark.parametrize("sizes", [(10, 200_000), (200_000, 10), (10, 4 << 20), (100, 100)])
def test_150_calls_with_ids_up_to_255(sizes: tuple[int, int]) -> None:
    """With twice as many ids the rations are smaller, so that there is memory beside them."""
    pair = Calls(last=255, latency=0.001)
    for _ in range(150 if max(sizes) < 1 << 20 else 3):
        pair.ask(*sizes)
    pair.run()
    pair.all_went_well()


@pytest.mark.repetitive
@settings(max_examples=share(0.6), deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 131_000), st.integers(0, 131_072)), min_size=1, max_size=24),
    st.integers(1, 1 << 30),
    st.sampled_from([127, 255]),
    st.sampled_from([None, 0.02, 0.4]),
)
def test_no_sizes_and_no_order_stop_each_other(
    sizes: list[tuple[int, int]], seed: int, last: int, slow: float | None
) -> None:
    """Whatever is asked and answered, whenever, and however slowly payloads are taken: every call is answered, and what
    has arrived stays within ``connection_bytes``."""
    dice = Random(seed)
    pair = Calls(Limits.tiny(streams=64), last, None if slow is None else lambda: dice.random() * slow, latency=0.005)
    for sends, hears in sizes:
        pair.world.at(dice.random() * 0.1, partial(pair.ask, sends, hears))
    pair.run(600)
    pair.all_went_well()
    assert len(pair.done) == len(sizes)


class Answers:
    """A client that asks, and a server that sends of each answer what the test wants, when it wants it."""

    def __init__(self, limits: Limits = SERVER) -> None:
        self.world = World()
        self.near = Engine("client", limits=limits, ping_interval=0)
        self.far = Engine("server", limits=limits, sessions=True, ping_interval=0)
        self.ended: list[ev.Items | ev.Failed] = []
        self.world.join(self.near, self.far, latency=0.001, on_client=self.heard)

    def heard(self, end: End, event: ev.Event) -> None:
        if isinstance(event, ev.Items | ev.Failed):
            self.ended.append(event)
            if isinstance(event, ev.Items):
                self.near.consumed(len(event.payloads[0]))

    def ask(self, answer: int, *, complete: bool) -> int:
        stream = self.near.open("request", b"q")
        self.run(0.1)
        self.far.send(stream, [bytes(answer)], complete=complete)
        return stream

    def run(self, seconds: float) -> None:
        self.world.run(until=self.world.now + seconds)


@pytest.mark.repetitive
@pytest.mark.parametrize("size", [10, 20_000, 32_768, 33_000, 40_000])
@pytest.mark.parametrize("answer", [100_000, 1_000_000])
def test_127_answers_stand_still_and_one_does_not(size: int, answer: int) -> None:
    """What they hold stays theirs; the others share the rest, and do not wait for them."""
    pair = Answers()
    for _ in range(127):
        pair.ask(size, complete=False)
    pair.run(5)
    stream = pair.ask(answer, complete=True)
    pair.run(5)
    assert [(type(event), event.stream) for event in pair.ended] == [(ev.Items, stream)]
    for stood in range(1, 128):
        pair.far.byte_sessions.finish(stood)
    pair.run(1)
    assert len(pair.ended) == 128


@settings(max_examples=share(0.4), deadline=None)
@given(st.lists(st.integers(0, 131_072), min_size=1, max_size=16), st.integers(1, 1 << 30))
@example([8807, 114_695, 36_572, 0, 0, 56_883, 0, 0, 4100, 0], 1)  # two are given up at the times of one tick
def test_answers_with_pauses_end(sizes: list[int], seed: int) -> None:
    """Senders that stop for seconds in the middle, any number of times: every answer arrives, or is ended when nothing
    has moved for ``session_stall_s``, and what has arrived stays within the budget."""
    dice = Random(seed)
    pair = Answers(Limits.tiny())
    left = {pair.near.open("request", b"q"): size for size in sizes}
    pair.run(0.1)

    def send(stream: int) -> None:
        assert pair.near.sessions.inboxes.unread <= pair.near.limits.connection_bytes
        size = min(left[stream], dice.randrange(1, 60_000))
        left[stream] -= size
        pair.far.send(stream, [bytes(size)], complete=not left[stream])
        if left[stream]:
            pair.world.at(pair.world.now + dice.choice((0, 0.1, 2, 4)), partial(send, stream))

    for stream in left:
        send(stream)
    pair.run(300)
    assert sorted(event.stream for event in pair.ended) == sorted(left)
    for event in pair.ended:
        assert isinstance(event, ev.Items) or event.error.rule == "connection_bytes"


def test_127_requests_stand_still_and_one_does_not() -> None:
    """The same at a server."""
    world = World()
    far = Engine("server", ping_interval=0)
    near = Engine("client", ping_interval=0)
    heard: list[ev.Event] = []
    world.join(near, far, latency=0.001, on_server=lambda end, event: heard.append(event))
    world.run()
    for _ in range(127):
        near.send(near.byte_sessions.open_session(), [bytes(40_000)])
    world.run(until=5)
    near.open("request", bytes(1_000_000))
    world.run(until=15)
    assert [event.stream for event in heard if isinstance(event, ev.Opened)] == [128]
    assert not [event for event in heard if isinstance(event, ev.Closed)]


def test_who_stood_still_goes_on() -> None:
    """One that was passed over counts again as soon as it sends something."""
    pair = Calls(latency=0.001)
    world, near = pair.world, pair.near
    world.run()
    slow = near.byte_sessions.open_session()
    near.send(slow, [b"%08d" % 5 + bytes(2_000_000)])
    world.run(until=1)
    for _ in range(8):
        pair.ask(1_900_000, 3)
    world.run(until=10)
    pair.all_went_well()
    pair.sizes[slow] = 2_000_000, 5
    near.send(slow, [bytes(2_000_000)], complete=True)
    assert near.credit(slow) == 0
    world.run(until=20)
    assert not pair.failures and len(near.byte_sessions.read(slow)) == 5


def test_who_holds_the_memory_and_stands_still_is_ended_at_last() -> None:
    """A large message that stops in its middle keeps another from its memory: after ``session_stall_s`` in which
    nothing has moved it is ended."""
    pair = Calls()
    world, near = pair.world, pair.near
    world.run()
    stalled = near.byte_sessions.open_session()
    near.send(stalled, [bytes(4_000_000)])
    world.run(until=1)
    pair.ask(3_000_000, 10)
    world.run(until=50)
    assert not pair.done and not pair.failures
    world.run(until=80)
    assert [(event.stream, event.error.message) for event in pair.failures] == [(stalled, "session-stall")]
    assert not pair.failures[0].error.may_have_been_processed
    pair.failures.clear()
    pair.all_went_well()


def test_of_those_who_wait_for_each_other_the_newest_is_ended() -> None:
    """Two that stood still have gone on, and there is not enough for either: the one point at which waiting has no
    end by itself."""
    pair = Calls()
    world, near = pair.world, pair.near
    world.run()
    first, second = near.byte_sessions.open_session(), near.byte_sessions.open_session()
    near.send(first, [b"%08d" % 5 + bytes(2_200_000)])
    world.run(until=1)
    near.send(second, [bytes(1_000_000)])
    world.run(until=5)
    for stream in (first, second):
        near.send(stream, [bytes(1_900_000)], complete=True)
    world.run(until=60)
    assert not pair.failures
    world.run(until=140)
    assert [(event.stream, event.error.message) for event in pair.failures] == [(second, "buffer-full")]
    assert not pair.failures[0].error.may_have_been_processed


def test_a_response_that_holds_the_memory_and_stands_still_is_ended_at_last() -> None:
    """The same at a client: nobody knows what the server has done."""
    pair = Answers()
    stalled = pair.ask(4_000_000, complete=False)
    pair.run(5)
    other = pair.ask(3_000_000, complete=True)
    pair.run(40)
    assert not pair.ended
    pair.run(40)
    assert [event.stream for event in pair.ended] == [stalled, other]
    error = pair.ended[0].error  # type: ignore[union-attr] # it has failed
    assert isinstance(error, SessionAborted)
    assert (error.message, error.rule, error.may_have_been_processed) == ("session-stall", "connection_bytes", True)
    assert isinstance(pair.ended[1], ev.Items)


def test_an_abort_of_a_late_tick_is_answered_in_time() -> None:
    """A response is ended because nothing moves, and a request because the server does not read it: the time for the
    answers to both aborts begins at this tick."""
    pair = Answers()
    stalled = pair.ask(4_000_000, complete=False)
    pair.run(5)
    pair.ask(3_000_000, complete=True)
    pair.run(40)
    unread = pair.near.byte_sessions.open_session(bytes(40_000))
    pair.run(1)
    late = pair.world.now + 100
    failures = [event for event in pair.near.tick(late) if isinstance(event, ev.Failed)]
    assert [(event.stream, event.error.rule) for event in failures] == [
        (stalled, "connection_bytes"),
        (unread, "session_stall_s"),
    ]
    assert pair.near.tick(late + SERVER.abort_answer_s - 0.1) == []
    assert "abort-unanswered" in str(pair.near.tick(late + SERVER.abort_answer_s)[-1])


def test_sessions_of_bytes_give_back_what_others_need() -> None:
    """A reader that keeps up has a large ration; as soon as a payload waits for memory it is as at first."""
    limits = Limits.tiny(sessions=2, ration_bytes=4096, ration_max_bytes=1 << 17, connection_bytes=256 << 10)
    play = client(limits=limits).on(lambda s: s.open_session()) << opening()
    while owed(play.engine)[0] < 1 << 17:
        play.forget() >> data(bytes(min(owed(play.engine)[0], 60_000)))
        play.forget()
        if not owed(play.engine)[0]:
            play.engine.byte_sessions.read(1)
    play.do(lambda engine: engine.open("request", b"q")).forget()
    for _ in range(100):
        if ration := owed(play.engine)[1]:
            play >> data(bytes(min(ration, 4096)), id=1)
            play.forget()
        play >> data(bytes(min(owed(play.engine)[0], 4096)))
        play.engine.byte_sessions.read(1)
        play.forget()
        if play.engine.streams()[1].received >= 120_000:
            break
    assert play.engine.streams()[1].received >= 120_000
    while owed(play.engine)[0] > 4096:  # it is not filled again until less than that is left
        play >> data(bytes(4096))
        play.engine.byte_sessions.read(1)
        play.forget()
    assert 2048 < owed(play.engine)[0] <= 4096
    play >> data(b"", id=1, eof=True, close=True) << (ev.Items, {"stream": 2})


def test_small_ones_do_not_wait_for_large_ones() -> None:
    """What fits the ration never waits, whatever is full."""
    play = server(sessions=False)
    play >> opening(bytes(32_768))
    play.forget()
    owed = play.engine.streams()[0].outstanding
    assert owed
    for id in range(1, 127):
        play >> opening(bytes(32_768), id=id)
        play.forget()
    play >> opening(bytes(32_768), id=127, eof=True) << ev.Opened
