"""Hostile RSocket peers: credit, fragments, time and floods."""

from __future__ import annotations

import tracemalloc
from hashlib import sha256
from itertools import islice
from typing import Any

import pytest

from afflux.core import events as ev
from afflux.core.errors import ConnectionClosed, LimitExceeded, LocalProtocolError, Rejected, RemoteProtocolError
from afflux.core.limits import Limits
from afflux.core.payload import Payload
from afflux.protocols.rsocket import Engine, frames
from tests.hostile.peers import SERVER, TINY, N, P, asked, carried, cut, item, part, raw, serving, streaming
from tests.protocols.rsocket.playbook import closed, error, failed, ignored, requester, responder, setup

# -- 3.4 credit -----------------------------------------------------------------------------------------------


def test_FC_03_credit_saturates() -> None:
    play = serving(n=0x7FFFFFFF)
    stream = play.engine.stream_table.live[1]
    for start, left in ((2**31 - 2, 2**31 - 1), (2**63 - 3, 2**63 - 2), (2**63 - 2, 2**63 - 1), (2**63 - 1, 2**63 - 1)):
        stream.to_send.available = start
        play >> N(stream=1, n=1) << ev.Granted(1, 1)
        assert play.engine.credit(1) == left
    play.do(lambda engine: engine.send(1, [b"x"])) << item(1)
    assert play.engine.credit(1) == 2**63 - 2
    wanted = streaming(0x7FFFFFFF)
    wanted.engine.stream_table.live[1].to_receive.available = 2**63 - 2
    wanted.do(lambda engine: engine.request(1, 7)) << N(stream=1, n=7)
    assert wanted.engine.streams()[0].outstanding == 2**63 - 1


@pytest.mark.parametrize("extra", ["plain", "metadata", "last", "fragment"])
@pytest.mark.parametrize("columnar", [False, True])
def test_FC_04_items_at_and_above_the_credit(extra: str, columnar: bool) -> None:
    play = requester().do(lambda engine: engine.open("stream", b"", credit=3, columnar=columnar)) << frames.StreamFrame
    kind = ev.Block if columnar else ev.Items
    play >> (item(1), item(1)) << kind >> item(1) << kind
    play.quiet()
    surplus = {
        "plain": item(1),
        "metadata": P(stream=1, next=True, metadata=b"m", data=b""),
        "last": item(1, complete=True),
        "fragment": part(1),
    }[extra]
    play >> surplus << ignored(50, "R-27") << failed(1, RemoteProtocolError, rule="R-27") << frames.Cancel(stream=1)
    play.quiet()


def test_FC_04_one_end_when_the_bucket_is_empty_too() -> None:
    limits = SERVER.replace(glitch_bucket=(49, 0))
    play = streaming(1, limits) >> item(1) << ev.Items >> item(1) << ignored(50)
    play << failed(1, RemoteProtocolError, rule="glitch_bucket") << closed(RemoteProtocolError, rule="glitch_bucket")
    play << error(0, 0x101, b"protocol-abuse")
    play.quiet()


def test_FC_05_items_at_and_above_what_a_responder_granted() -> None:
    play = (
        serving("channel") >> item(1) << ignored(50) << failed(1, RemoteProtocolError, rule="R-27") << error(1, 0x203)
    )
    play = serving("channel").do(lambda engine: engine.request(1, 3)) << N(stream=1, n=2)
    play >> (item(1), item(1)) << (ev.Items, {"stream": 1})
    play >> item(1, complete=True) << ignored(50) << failed(1, RemoteProtocolError) << error(1, 0x203)
    assert play.engine.streams() == []
    play = serving("channel").do(lambda engine: engine.request(1, 3)) << N(stream=1, n=2)
    play >> (item(1), item(1)) << ev.Items >> P(stream=1, complete=True, data=b"") << ev.Completed(1)  # C needs none


def test_FC_09_a_peer_that_asks_for_all_and_reads_nothing() -> None:
    engine = serving(n=0x7FFFFFFF, limits=TINY).engine
    sent = 0
    while engine.room(0) > 0:
        engine.send(1, [bytes(1000)])
        sent += 1000
    assert sent <= TINY.outbound_high_bytes + 1000
    assert engine.wants_read  # its CANCEL must get through


@pytest.mark.parametrize("size", [1 << 20, 4 << 20])
def test_FC_09_two_ends_that_are_full_read_on(size: int) -> None:
    """Each end writes large payloads before either reads: reads never wait for writes (design rule 6)."""
    client = requester().engine
    server = responder().engine
    pipes = {client: bytearray(), server: bytearray()}
    got = dict.fromkeys(pipes, 0)
    left = dict.fromkeys(pipes, 4)
    for _ in range(10_000):
        for end, peer in ((client, server), (server, client)):
            while left[end] and end.room(0) > 0:
                end.open("fire", bytes(size))
                left[end] -= 1
            if len(pipes[peer]) < 0x20000:
                pipes[peer] += end.outgoing()
            if end.wants_read and pipes[end]:
                for event in end.receive(bytes(pipes[end]), 0.0):
                    assert isinstance(event, ev.Opened)
                    got[end] += len(event.payload)
                    end.consumed(len(event.payload))
                    end.release(event.stream)
                pipes[end].clear()
        if set(got.values()) == {4 * size}:
            return
    raise AssertionError(f"stuck: {got}")


def test_FC_10_a_stream_without_credit_stays() -> None:
    play = serving(n=1).do(lambda engine: engine.send(1, [b"x"])) << item(1)
    for now in range(80, 800, 80):
        play.now = float(now)
        play >> frames.Keepalive(stream=0)
        play.at(float(now)).quiet()
    with pytest.raises(LocalProtocolError):
        play.engine.send(1, [b"x"])
    play >> N(stream=1, n=1) << ev.Granted(1, 1)
    play.do(lambda engine: engine.send(1, [b"x"])) << item(1)


def test_FC_24_mistakes_of_the_application() -> None:
    play = streaming(3)
    for n in (0, -1, 0x80000000):
        with pytest.raises(LocalProtocolError):
            play.engine.request(1, n)
    play.do(lambda engine: engine.cancel(1)) << frames.Cancel
    play.do(lambda engine: engine.request(1, 1)).do(lambda engine: engine.cancel(1)).quiet()
    play = serving(n=2)
    with pytest.raises(TypeError):
        play.engine.send(1, [3])  # type: ignore[list-item]  # the mistake under test
    assert play.engine.credit(1) == 2
    play.do(lambda engine: engine.send(1, [])).quiet()
    play.do(lambda engine: engine.send(1, [b"a", b"b"], complete=True)) << item(1, b"a") << item(1, b"b", complete=True)
    play = serving("request").do(lambda engine: engine.send(1, [])).quiet()
    play.do(lambda engine: engine.send(1, [], complete=True)) << P(stream=1, complete=True, data=b"")


# -- 3.5 fragments --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["request", "fire", "stream", "channel"])
def test_FG_01_a_payload_too_large_is_refused_once(verb: str) -> None:
    """The rest is swallowed: it was under way, and may be long."""
    play = responder(limits=TINY) >> asked(verb, follows=True)
    size = 0
    while size + 1000 <= TINY.payload_bytes:
        play >> part(1, 1000)
        play.quiet()
        size += 1000
    play >> part(1, 1000)
    if verb != "fire":  # nothing is ever said to a fire
        play << error(1, 0x202, b"payload-too-large")
    assert not play.engine.stream_table.reassembly.size
    for _ in range(1000):
        play >> part(1, 1000) << ignored(0)
    play >> item(1) << ignored(0)
    play.quiet()


def test_FG_01_at_a_requester() -> None:
    play = streaming(5, TINY)
    for _ in range(TINY.payload_bytes // 1024):
        play >> part(1, 1024)
    play >> part(1, 1) << failed(1, LimitExceeded, rule="payload-too-large") << frames.Cancel(stream=1)
    for _ in range(1000):
        play >> part(1, 1024) << ignored(0)
    play.quiet()


@pytest.mark.parametrize("verb", ["request", "fire", "stream", "channel"])
def test_FG_01_a_large_request_that_is_refused_at_its_head(verb: str) -> None:
    limits = TINY.replace(streams=0)
    play = responder(limits=limits) >> asked(verb, follows=True) << ignored(1, "REJECTED")
    if verb != "fire":
        play << error(1, 0x202)
    for _ in range(1000):
        play >> part(1) << ignored(0)
    play.quiet()


def test_FG_02_empty_pieces_cost_no_time() -> None:
    """Metadata in as many fragments as there may be: each is looked at once."""
    limits = SERVER.replace(connection_bytes=64 << 20)
    play = responder(limits=limits) >> asked("request", follows=True)
    play >> tuple(P(stream=1, next=True, follows=True, metadata=bytes(60), data=b"") for _ in range(2000))
    (partial,) = play.engine.stream_table.reassembly.partials.values()
    assert partial.data == []
    play >> item(1, b"d") << ev.Opened(1, "request", Payload(b"d", bytes(120_000)), 1, False)


@pytest.mark.parametrize("size", [63, 64])
def test_FG_02_fragments_at_the_smallest_size(size: int) -> None:
    """64 bytes with the length field, of every kind of frame, are progress."""
    for verb, header in (("request", 9), ("fire", 9), ("stream", 13), ("channel", 13)):
        play = responder()
        first = asked(verb, follows=True)
        first.data = bytes(size - header)
        play >> first
        play >> part(1, 55) >> part(1, 54)
        if size == 63:
            play << ignored(20)
        play.quiet()


def test_FG_02_small_items_and_small_requests_have_one_each() -> None:
    play = streaming(9)
    for _ in range(3):
        play >> part(1, 1) >> item(1, b"") << ev.Items
    play.quiet()


@pytest.mark.parametrize("excess", [0, 1])
def test_FG_03_partial_payloads(excess: int) -> None:
    limits = TINY
    play = responder(limits=limits)
    for n in range(limits.partial_payloads + excess):
        play >> asked("request", 1 + 2 * n, follows=True)
    if excess:
        play << error(1 + 2 * limits.partial_payloads, 0x202, b"too-many-partials")
    play >> item(1) << ev.Opened
    play.quiet()


def test_FG_03_memory() -> None:
    """As many unfinished payloads as there may be, each of the greatest size: C bounds them all."""
    limits = SERVER
    engine = responder().engine
    block = part(1, 0x40000 - 100).encode(prefixed=True)
    for n in range(limits.partial_payloads):
        engine.receive(asked("request", 1 + 2 * n, follows=True).encode(prefixed=True), 0.0)
    tracemalloc.start()
    for n in range(limits.partial_payloads):
        for _ in range(3):
            engine.receive(block[:6] + bytes((1 + 2 * n,)) + block[7:], 0.0)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert engine.stream_table.reassembly.size <= limits.connection_bytes
    assert peak <= limits.connection_bytes * 1.1
    assert not engine.closed


def test_FG_04_a_half_that_we_canceled_is_not_waited_for() -> None:
    """The peer stopped sending because it was told to: the other half lives."""
    play = serving("channel").do(lambda engine: engine.request(1, 5)) << N
    play >> part(1)
    play.do(lambda engine: engine.cancel(1)) << frames.Cancel(stream=1)
    assert not play.engine.stream_table.reassembly.partials
    play.at(31.0).quiet()
    play.do(lambda engine: engine.send(1, [b"on"])) << item(1, b"on")


@pytest.mark.parametrize(("verb", "told"), [("request", True), ("fire", False)])
def test_FG_04_at_and_after_the_time(verb: str, told: bool) -> None:
    play = responder(limits=TINY) >> asked(verb, follows=True)
    play.at(TINY.reassembly_s - 0.1).quiet()
    play.at(TINY.reassembly_s)
    if told:
        play << error(1, 0x203, b"reassembly-timeout")
    play >> part(1) << ignored(0)
    play.quiet()


def test_FG_04_a_cancel_of_an_unfinished_request_counts() -> None:
    play = responder(limits=TINY)
    for n in range(TINY.most_cancels):
        play >> (asked("request", 1 + 2 * n, follows=True), frames.Cancel(stream=1 + 2 * n))
    play.quiet()
    play >> (asked("request", 999, follows=True), frames.Cancel(stream=999))
    play << closed(RemoteProtocolError, rule="cancel_bucket") << error(0, 0x101, b"cancel-flood")


def test_FG_07_interleaved() -> None:
    play = responder(mtu=64)
    data = {1 + 2 * n: bytes((n,)) * (100 + 50 * n) for n in range(64)}
    sender = Engine("client", mtu=64)
    for each in data.values():
        sender.open("request", each)
    said = bytearray()
    while chunk := sender.outgoing(64):
        said += chunk
    events = play.engine.receive(bytes(said[len(setup().encode(prefixed=True)) :]), 0.0)
    got = {event.stream: event.payload.data for event in events if isinstance(event, ev.Opened)}
    assert got == data
    order = [event.stream for event in events if isinstance(event, ev.Opened)]
    assert order == sorted(order)  # the short ones are not held up by the long ones


def test_FG_10_metadata_longer_than_one_field_can_state() -> None:
    limits = Limits.trusted()
    metadata = bytes(0x1000000 + 10)
    client, server = requester(limits=limits).engine, responder(limits=limits).engine
    client.open("fire", Payload(b"data", metadata))
    (event,) = carried(client, server)
    assert isinstance(event, ev.Opened)
    assert event.payload.metadata == metadata
    assert event.payload.data == b"data"


@pytest.mark.repetitive
def test_FG_10_twenty_mebibytes_there_and_back() -> None:
    """At most three times the payload is held: the sender's, the fragments, and what they become."""
    size = 20 << 20
    limits = Limits.trusted(payload_bytes=size)  # address space for the largest payload counts as memory here
    client, server = requester(limits=limits).engine, responder(limits=limits).engine
    pieces: list[bytes] = [b"%020d" % n for n in range(size // 20)]
    data = b"".join(pieces)
    del pieces
    digest = sha256(data).digest()
    tracemalloc.start()
    held, _ = tracemalloc.get_traced_memory()
    data = bytes(memoryview(data))
    stream = client.open("request", data)
    del data
    (request,) = carried(client, server)
    assert isinstance(request, ev.Opened)
    assert sha256(request.payload.data).digest() == digest
    server.send(stream, [request.payload])
    server.consumed(len(request.payload))
    del request
    (answer,) = carried(server, client)
    assert isinstance(answer, ev.Items)
    assert answer.complete
    assert sha256(answer.payloads[0].data).digest() == digest
    client.consumed(size)
    del answer
    left, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak - held <= 3.1 * size
    assert left - held <= 0x40000  # and nothing is kept afterwards
    assert server.queued == client.queued == 0
    assert server.stream_table.delivered == client.stream_table.delivered == 0


def test_FG_22_an_abandoned_payload_is_not_written_further() -> None:
    """R-38: the stream is over here, its last payload is not; a CANCEL ends that too."""
    play = responder(mtu=1000) >> asked("request") << ev.Opened
    play.engine.send(1, [bytes(100_000)])
    assert play.engine.outgoing(1)
    play.engine.receive(frames.Cancel(stream=1).encode(prefixed=True), 0.0)
    assert play.engine.queued == 0
    assert play.engine.outgoing() == b""


def test_FG_22_the_frames_of_a_small_limit_still_fit() -> None:
    limits = TINY.replace(first_frame_bytes=64, frame_bytes=64)
    engine = Engine("client", limits=limits, mtu=0x20000)
    engine.outgoing()
    engine.open("channel", Payload(bytes(100), bytes(100)), credit=1)
    data = engine.outgoing(1000)
    assert max(len(frame) for frame in cut(data)) <= 64


# -- 3.6 keepalive and time -----------------------------------------------------------------------------------

PING = frames.Keepalive(respond=True)
PONG = frames.Keepalive()


def test_KA_02_echoes_and_the_rate() -> None:
    burst, rate = TINY.keepalive_rate[1], TINY.keepalive_rate[0]
    play = responder(limits=TINY)
    for _ in range(burst):
        play >> PING << PONG
    play.now = 1.0
    for _ in range(rate):
        play >> PING << PONG
    play >> PING << closed(RemoteProtocolError, rule="keepalive_rate") << error(0, 0x101, b"keepalive-flood")


def test_KA_02_echoes_that_have_left_are_not_counted() -> None:
    """A link that is never idle: the queue is never empty, the echoes are."""
    play = serving(n=0x7FFFFFFF)
    engine = play.engine
    engine.send(1, [bytes(1000)] * 900)
    for count in range(100):
        engine.receive(PING.encode(prefixed=True), float(count))
        assert PONG.encode(prefixed=True) in engine.outgoing(1)
        assert engine.queued
        assert engine.wants_read


def test_KA_02_echoes_at_the_limit_stop_the_reading() -> None:
    engine = responder(limits=TINY).engine
    for count in range(TINY.keepalive_echoes):
        assert engine.wants_read, count
        engine.receive(PING.encode(prefixed=True), 0.0)
    assert not engine.wants_read
    engine.outgoing(1)
    assert engine.wants_read


@pytest.mark.parametrize("position", [0, 1, 2**63 - 1])
def test_KA_01_the_position_is_not_looked_at(position: int) -> None:
    responder() >> frames.Keepalive(respond=True, position=position, data=b"d") << frames.Keepalive(data=b"d")


def test_KA_04_and_KA_05_the_lifetime_is_counted_from_the_last_frame() -> None:
    for play in (responder(), requester()):
        for now in (20.0, 40.0, 60.0):
            play.at(now)
            play.sent.clear()
        play >> PONG
        for now in (80.0, 100.0, 120.0, 140.0, 149.9):
            play.at(now)
            play.sent.clear()
        play.at(150.0) << closed(ConnectionClosed, rule="R-22") << error(0, 0x101)


def test_KA_05_time_in_which_we_do_not_read_is_not_the_peers() -> None:
    """The application is slow, or the link to the peer is full: its keepalives wait unread. Nothing runs out."""
    play = streaming(1000, TINY).do(lambda engine: engine.open("request", b"")) << frames.RequestResponse
    play >> part(3)
    size = 0
    while play.engine.wants_read:
        play >> item(1, bytes(60_000)) << ev.Items
        size += 60_000
    play >> item(3).encode(prefixed=True)[:5]
    for now in range(9, 400, 9):
        play.at(float(now))
        play.sent.clear()
        assert play.engine.deadline is not None
        assert play.engine.deadline > now
    play.engine.consumed(size)
    assert play.engine.wants_read
    play.at(405.0).sent.clear()
    play >> item(3).encode(prefixed=True)[5:] << ev.Items(3, [Payload(bytes(60) + b"x")], True)
    assert not play.engine.closed


def test_KA_05_the_time_begins_when_reading_begins_again() -> None:
    play = streaming(1000, TINY)
    size = 0
    while play.engine.wants_read:
        play >> item(1, bytes(60_000)) << ev.Items
        size += 60_000
    play >> item(1).encode(prefixed=True)[:5]
    play.now = 9.0
    play.engine.consumed(size)
    play >> item(1).encode(prefixed=True)[5:6]  # the frame was cut while nobody read: its ten seconds begin here
    play.at(18.9).sent.clear()
    play.quiet()
    play.at(19.0) << failed(1, RemoteProtocolError, rule="frame_s") << closed(RemoteProtocolError, rule="frame_s")
    play << error(0, 0x101, b"frame-timeout")


# -- 3.8 floods -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["cancel", "error"])
@pytest.mark.parametrize("verb", ["request", "stream", "channel"])
def test_FL_01_ask_and_take_back(verb: str, end: str) -> None:
    """At the bucket, and one above; it refills."""
    play = responder(limits=TINY)
    burst, rate = TINY.most_cancels, TINY.cancel_bucket[1]
    frame = {"cancel": frames.Cancel, "error": lambda stream: frames.ErrorFrame(stream=stream, code=0x201)}[end]
    ids = iter(range(1, 1000, 2))
    for now, count in ((0.0, burst), (1.0, rate)):
        play.now = now
        for id in islice(ids, count):
            play >> asked(verb, id) << ev.Opened >> frame(stream=id)
            assert isinstance(play.events.popleft(), ev.Canceled | ev.Failed)
            play.engine.release(id)
    id = next(ids)
    play >> asked(verb, id) << ev.Opened >> frame(stream=id) << failed(id, RemoteProtocolError, rule="cancel_bucket")
    play << closed(RemoteProtocolError, rule="cancel_bucket") << error(0, 0x101, b"cancel-flood")
    play.quiet()


def test_FL_01_a_handler_that_ignores_the_cancel_keeps_its_slot() -> None:
    play = responder(limits=TINY.replace(pending_streams=0))
    for n in range(TINY.streams):
        play >> asked("stream", 1 + 2 * n) << ev.Opened >> frames.Cancel(stream=1 + 2 * n) << ev.Canceled
    play >> asked("stream", 999) << ignored(1) << error(999, 0x202)
    play.do(lambda engine: engine.release(1)) >> asked("stream", 1001) << ev.Opened


def test_FL_01_cancels_of_our_own_channels_are_not_counted() -> None:
    """D-6: a responder that takes a little of each channel does no harm; we opened them."""
    play = requester()
    for n in range(SERVER.most_cancels + 50):
        play.do(lambda engine: engine.open("channel", b"", credit=1)) << frames.RequestChannel
        play >> frames.Cancel(stream=1 + 2 * n) << ev.Canceled(1 + 2 * n, False)
        play >> P(stream=1 + 2 * n, complete=True, data=b"") << ev.Completed
    play.quiet()


@pytest.mark.parametrize("how", ["zero", "excess", "order"])
def test_FL_02_errors_that_the_peer_makes_us_send_are_counted(how: str) -> None:
    limits = TINY.replace(glitch_bucket=(100_000, 0))
    play = responder(limits=limits)
    bad: dict[str, tuple[Any, ...]] = {
        "zero": (raw("00000001 2000 00000000"),),
        "excess": (item(1),),
        "order": (P(stream=1, next=True, follows=True, data=bytes(60)), P(stream=1, next=True, metadata=b"", data=b"")),
    }
    for _ in range(TINY.most_cancels):
        play >> asked("channel") << ev.Opened
        if how == "order":
            play.engine.request(1, 2)
            play.collect([])
            play.sent.clear()
        play >> bad[how]
        assert any(isinstance(event, ev.Failed) for event in play.events)
        play.events.clear()
        play.sent.clear()
        play.engine.release(1)
    play >> asked("channel") << ev.Opened
    play.engine.request(1, 2 if how == "order" else 1)
    play.collect([])
    play.sent.clear()
    play >> bad[how]
    ends = [event for event in play.events if isinstance(event, ev.Failed)]
    assert len(ends) == 1
    assert isinstance(play.events[-1], ev.Closed)
    play.events.clear()
    play << error(0, 0x101, b"cancel-flood")


def test_FL_03_fire_flood() -> None:
    """What has not begun fills the memory of the connection; then reading stops. It goes on when handlers begin; that
    no more of them run than may is the driver's: tests/aio/test_fires.py."""
    engine = responder().engine
    taken = 0
    while engine.wants_read:
        for event in engine.receive(asked("fire", 1 + 2 * taken).encode(prefixed=True), 0.0):
            assert isinstance(event, ev.Opened)
            taken += 1
    assert taken == engine.limits.connection_bytes // engine.limits.object_overhead_bytes + 1
    engine.consumed(0, 1)
    assert engine.wants_read
    assert not engine.closed


@pytest.mark.parametrize(("size", "taken"), [(-1, True), (0, True), (1, False)])
def test_FL_04_metadata_push(size: int, taken: bool) -> None:
    size += SERVER.connection_metadata_bytes
    play = responder() >> frames.MetadataPush(metadata=bytes(size))
    play << (ev.Pushed(bytes(size)) if taken else ignored(10, "connection_metadata_bytes"))
    play.quiet()


def test_FL_06_a_flood_of_requests_that_reads_no_answer() -> None:
    """Reading stops; memory is what may be queued, and one read."""
    engine = responder().engine
    limits = engine.limits
    id, taken = 1, 0
    while engine.wants_read:
        for event in engine.receive(frames.RequestResponse(stream=id, data=b"").encode(prefixed=True), 0.0):
            assert isinstance(event, ev.Opened)
            engine.send(id, [bytes(100_000)])
            engine.release(id)
        id += 2
        taken += 1
        assert taken < 1000
    assert engine.queued <= limits.outbound_high_bytes + limits.payload_bytes + 110_000
    while engine.outgoing():
        pass
    assert engine.wants_read


def test_FL_06_the_same_with_answers_of_nothing() -> None:
    engine = responder().engine
    limits = engine.limits
    id = 1
    while engine.wants_read:
        engine.receive(frames.RequestResponse(stream=id, data=b"").encode(prefixed=True), 0.0)
        engine.fail(id, Rejected("no"))
        engine.release(id)
        id += 2
    assert id // 2 == limits.outbound_high_frames + limits.control_replies


def test_FL_10_a_million_requests_are_refused_at_a_token_for_a_hundred() -> None:
    limits = SERVER.replace(streams=0, glitch_bucket=(10, 10))
    play = responder(limits=limits)
    for n in range(1000):
        play >> asked("request", 1 + 2 * n) << ignored(int(n % 100 == 0)) << error(1 + 2 * n, 0x202)
    play.now = 1.0
    for n in range(1000, 2000):
        play >> asked("request", 1 + 2 * n) << ignored(int(n % 100 == 0)) << error(1 + 2 * n, 0x202)
    play >> asked("request", 9999) << ignored(1) << closed(RemoteProtocolError, rule="glitch_bucket") << error(0, 0x101)
    assert len(play.engine.stream_table.late.state()[0]) <= SERVER.tombstones
