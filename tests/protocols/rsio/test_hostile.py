"""Hostile peers: cases of docs/hostile.md that are this protocol's own. Where each of them is told, and what it
may cost, is in tests/hostile."""

from __future__ import annotations

import tracemalloc

import pytest

from afflux.core import events as ev
from afflux.core.errors import RemoteProtocolError
from afflux.core.limits import Limits
from afflux.protocols.rsio import Engine, frames
from afflux.protocols.rsio.codes import UNBOUNDED

from .playbook import (
    BOTH,
    Playbook,
    answer,
    ask,
    bye,
    cancel,
    closed,
    complete,
    error,
    item,
    packed,
    publishing,
    request,
    server,
    subscribed,
)

TINY = Limits.tiny()


def flooded(play: Playbook, data: bytes, words: str) -> int:
    """How many of a message it takes until it is goodbye; memory does not grow meanwhile."""
    play.forget()
    for count in range(1, 20_000):
        play.engine.receive(data, 0.0)
        if play.engine.shared.state.name == "CLOSING":
            play.collect([])
            assert play.sent.pop() == bye(words)
            return count
        while play.engine.outgoing():
            pass
    raise AssertionError("it goes on for ever")


@pytest.mark.repetitive
@pytest.mark.parametrize(
    ("data", "price"),
    [
        (item(b"", 77), 1),
        (complete(77), 1),
        (error("", 77), 1),
        (answer(77), 1),
        (cancel(77), 1),
        (ask(77, name="x" * 257), 1),
    ],
    ids=lambda value: getattr(value, "NAME", ""),
)
def test_messages_that_mean_nothing(data: frames.Message, price: int) -> None:
    """Rule 1: each costs a token, refilled with time, and then it is enough."""
    burst = TINY.glitch_bucket[0]
    assert flooded(server(limits=TINY), data.encode(), "protocol-abuse") == burst // price + 1
    play = server(limits=TINY)
    for second in range(1, 500):
        play.now = float(second)
        play.engine.receive(data.encode() * TINY.glitch_bucket[1], play.now)
    assert not play.engine.closed and play.engine.shared.state.name == "OPEN"


def test_packs_of_nothing_for_ever() -> None:
    """FC-23: IGN(1)."""
    nothing = frames.OnNextPacked(subscriber=1, count=0, elements=b"", element_size=1)
    assert flooded(subscribed(9, 1, limits=TINY), nothing.encode(), "protocol-abuse") == TINY.glitch_bucket[0] + 1


def test_subscriptions_that_are_canceled_at_once() -> None:
    """Rapid reset: cancels of what has begun have a bucket; handlers count until they return."""
    play = server(limits=TINY.replace(streams=10_000, connections=1))
    for _ in range(TINY.most_cancels):
        play >> ask() << ev.Opened << answer() >> cancel() << ev.Canceled
    play >> ask() << ev.Opened << answer() >> cancel()
    assert play.sent.pop() == bye("cancel-flood")
    play = server(limits=TINY)
    turn = ask().encode() + cancel().encode()
    most = TINY.streams + TINY.pending_streams + 100 * TINY.glitch_bucket[0]
    assert flooded(play, turn, "protocol-abuse") <= most


def test_demands_that_end_in_an_error_count_as_cancels() -> None:
    play = server(limits=TINY.replace(streams=10_000, connections=1))
    turn = ask().encode() + request(0).encode()
    assert flooded(play, turn, "cancel-flood") == TINY.most_cancels + 1


def test_more_requests_than_elements_need() -> None:
    """A request for each element is fine; requests for nothing are charged."""
    play = publishing(limits=TINY)
    for _ in range(2000):
        play >> request(1) << ev.Granted
        play.do(lambda engine: engine.send(2, [b"x"])) << item(b"x")
    count = flooded(publishing(limits=TINY), request(1).encode(), "protocol-abuse")
    assert TINY.glitch_bucket[0] < count <= TINY.glitch_bucket[0] + 10


def test_a_request_for_each_late_id_is_charged() -> None:
    assert flooded(server(limits=TINY), request(1).encode(), "protocol-abuse") <= TINY.glitch_bucket[0] + 10


def test_elements_for_ever_behind_a_cancel() -> None:
    """R-29: what can be under way is free, by number or by bytes; beyond that each costs."""
    play = subscribed(9, limits=TINY).do(lambda engine: engine.cancel(1)).forget()
    chunk = item(b"x" * 1000).encode()
    free = max(TINY.cancel_race_frames, TINY.connection_bytes // 1004)
    assert flooded(play, chunk, "protocol-abuse") == free + TINY.glitch_bucket[0] + 1


def test_more_than_was_demanded_again_and_again() -> None:
    """50 tokens each: a publisher that does not count is soon no publisher."""
    play = server(limits=TINY)
    for turn in range(1, 6):
        play.do(lambda engine: engine.subscribe("p", 1)).forget()
        play >> (answer(turn), item(b"x", turn), item(b"y", turn), complete(turn))
        if turn < 5:
            play.forget()
    play.collect([])
    assert play.sent.pop() == bye("protocol-abuse")


def test_answers_that_are_not_read() -> None:
    """Reading stops: what is refused is answered, and answers that nobody reads wait in a queue that is bounded."""
    play = server(limits=TINY.replace(glitch_bucket=(1 << 30, 0)))
    engine = play.engine
    while engine.wants_read:
        engine.receive(ask(1, name="x" * 300).encode(), 0.0)
    most = TINY.outbound_high_frames + TINY.control_replies
    assert engine.out.frames <= most + 2
    while engine.outgoing():
        pass
    assert engine.wants_read


def test_who_asks_for_all_and_reads_nothing() -> None:
    """FC-09: the publisher is asked only for what fits."""
    play = publishing(UNBOUNDED, limits=TINY)
    made = 0
    while play.engine.room(0) > 0:
        play.engine.send(2, [b"x" * 1000])
        made += 1
    assert made * 1000 <= TINY.outbound_high_bytes + 1000
    assert play.engine.credit(2) == UNBOUNDED


def test_an_application_that_takes_nothing() -> None:
    """Reading stops within the budget of the connection, the cost of objects included."""
    play = subscribed(UNBOUNDED, limits=TINY)
    while play.engine.wants_read:
        play.engine.receive(item(b"x").encode() * 10, 0.0)
    shared = play.engine.shared
    assert shared.delivered + shared.objects * TINY.object_overhead_bytes <= TINY.connection_bytes + 6000
    play.engine.consumed(shared.delivered, shared.objects)
    assert play.engine.wants_read


@pytest.mark.parametrize("head", [b"\x03", b"\x07\x01", b"\x09\x01", b"\x0b", b"\x0c\x01\x01"])
def test_long_lengths(head: bytes) -> None:
    """FR-26: goodbye before anything is allocated."""
    play = server(limits=TINY, extensions=BOTH)
    tracemalloc.start()
    try:
        play >> head + b"\xff" * 8 + b"\x7f"
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()
    play << bye("payload-too-large")
    play.at(1.0) << closed(RemoteProtocolError, rule="R-7")


def test_a_name_of_a_mebibyte() -> None:
    """SI-31: 4 KiB of it are kept while the rest is passed over."""
    play = server()
    data = ask(name="x" * (1 << 20)).encode()
    tracemalloc.start()
    try:
        for start in range(0, len(data), 1000):
            play.collect(play.engine.receive(data[start : start + 1000], 0.0))
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()
    play << ev.Ignored << answer() << error("unknown-publisher")


def test_a_hello_with_too_many_extensions() -> None:
    """limits.md ``extension_ids``."""
    play = Playbook(Engine("server")).forget() >> frames.ClientHello(extensions=tuple(range(65)))
    play << bye("too-many-extensions")
    play.at(1.0) << closed(RemoteProtocolError)


def test_bytes_one_by_one() -> None:
    """FR-05: each costs the same, however long the message is."""
    play = subscribed(1, limits=TINY)
    data = item(b"x" * 50_000).encode()
    events = []
    for place in range(len(data)):
        events += play.engine.receive(data[place : place + 1], 0.0)
    assert [type(event) for event in events] == [ev.Items]


def test_time_that_goes_backwards() -> None:
    """TM-01: time is monotonic; one that is not does no harm."""
    play = server()
    play.now = 100.0
    play >> cancel() << ev.Ignored
    play.at(50.0).at(0.0).quiet()
    play >> cancel() << ev.Ignored


def test_a_process_that_was_stopped() -> None:
    """TM-03: what can be read is read before anybody is given up."""
    play = subscribed(9) >> b"\x07\x01\x05ab"
    play.now = 120.0
    play >> b"cde" << ev.Items
    play.at(120.0).quiet()


def test_a_pack_is_read_as_it_is() -> None:
    """AU-06: elements are bytes, and stay bytes."""
    subscribed(9, 4) >> packed(b"\x80\x04\x95\x00", b"\xac\xed\x00\x05") << ev.Items
