"""The subscriber's side of an id: demand, elements, ends, and ids that are used again."""

from __future__ import annotations

import pytest

from afflux.core import events as ev
from afflux.core.errors import (
    ApplicationError,
    LimitExceeded,
    LocalProtocolError,
    Rejected,
    RemoteProtocolError,
    Unsupported,
)
from afflux.core.limits import Limits
from afflux.core.payload import Payload
from afflux.protocols.rsio import frames
from afflux.protocols.rsio.codes import UNBOUNDED

from .playbook import (
    Mode,
    Playbook,
    answer,
    ask,
    bye,
    cancel,
    client,
    complete,
    error,
    failed,
    ignored,
    item,
    packed,
    part,
    request,
    server,
    subscribed,
)

TINY = Limits.tiny()


def got(play: Playbook, stream: int = 1) -> list[bytes]:
    """The elements that were told, of one stream, and nothing else was."""
    elements = []
    while play.events:
        event = play.events.popleft()
        assert isinstance(event, ev.Items) and event.stream == stream, event
        elements += [payload.data for payload in event.payloads]
    return elements


def forgotten(play: Playbook) -> None:
    """Nothing is kept of id 1: an element for it is one of an unknown id."""
    assert play.engine.streams() == []
    play >> item(b"x") << ignored(1, "SI-29")


# -- subscribing ---------------------------------------------------------------------------------------------------


def test_R_18_each_side_chooses_its_ids(mode: Mode) -> None:
    """R-18, D-7: the same id in both directions is two subscriptions."""
    play = subscribed(2, mode=mode) >> ask(1, 2) << ev.Opened << answer(1)
    play >> item(b"theirs") << ev.Items(1, [Payload(b"theirs")])
    play.do(lambda engine: engine.send(2, [b"ours"])) << item(b"ours")
    play >> cancel(1) << ev.Canceled(2, True)
    play >> item(b"goes on") << ev.Items(1, [Payload(b"goes on")])


def test_R_19_the_name_is_not_looked_into() -> None:
    play = client().do(lambda engine: engine.open("stream", "../ü\0 x", credit=7))
    play << ask(demand=7, name="../ü\0 x")
    play.do(lambda engine: engine.open("stream", b"\xff", credit=0)) << ask(2, 0, "\udcff")
    with pytest.raises(Unsupported, match="no metadata"):
        play.engine.open("stream", Payload(b"p", b"route"))


def test_R_25_the_first_demand_may_be_nothing() -> None:
    """R-25, R-24: more than 2^63-1 is without bound."""
    play = client().do(lambda engine: engine.subscribe("p")) << ask(demand=0)
    play.do(lambda engine: engine.subscribe("p", 2**63 + 5)) << ask(2, UNBOUNDED)
    with pytest.raises(LocalProtocolError, match="not -1"):
        play.engine.subscribe("p", -1)
    most = play.engine.limits.publisher_bytes
    play.do(lambda engine: engine.subscribe("p" * most)) << frames.Subscribe
    with pytest.raises(LimitExceeded, match=f"{most + 1} bytes"):
        play.engine.subscribe("p" * (most + 1))


def test_R_21_nothing_goes_before_subscribed(mode: Mode) -> None:
    for early in (item(b"x"), complete()):
        play = client(mode).do(lambda engine: engine.subscribe("p", 5)) << frames.Subscribe
        play >> early << failed(1, RemoteProtocolError, rule="R-21")
        assert play.sent.popleft().reason == "a message for id 1 that is not legal in PENDING"  # type: ignore[attr-defined]


def test_R_21_subscribed_comes_once(mode: Mode) -> None:
    play = subscribed(5, mode=mode) >> (item(b"x"), answer()) << ev.Items << failed(1, RemoteProtocolError, rule="R-21")
    play << bye("a message for id 1 that is not legal in ACTIVE")


def test_R_22_a_refusal_without_subscribed(mode: Mode) -> None:
    """R-22, D-8: it is understood all the same. There are no codes on the wire, so the error has none."""
    play = client(mode).do(lambda engine: engine.subscribe("p", 5)) << frames.Subscribe
    play >> error("too-many-streams") << failed(1, Rejected, rule="too-many-streams")
    play.do(lambda engine: engine.subscribe("p", 5)) << ask(2, 5)
    play >> (answer(2), error("unknown-publisher", 2)) << failed(3, Rejected)
    play.do(lambda engine: engine.subscribe("p", 5)) << ask(3, 5)
    play >> (answer(3), error("own words", 3)) << failed(5, ApplicationError, message="own words", code=None)


# -- demand --------------------------------------------------------------------------------------------------------


def test_R_24_demand_adds_up(mode: Mode) -> None:
    play = subscribed(1, mode=mode).do(lambda engine: engine.request(1, 2)) << request(2)
    play >> (item(b"a"), item(b"b"), item(b"c"))
    assert got(play) == [b"a", b"b", b"c"]


def test_R_24_demand_without_bound_is_never_used_up(mode: Mode) -> None:
    play = subscribed(UNBOUNDED - 1, mode=mode).do(lambda engine: engine.request(1, 1 << 70)) << request(UNBOUNDED)
    play >> tuple(item(b"%d" % i) for i in range(20))
    assert len(got(play)) == 20
    assert play.engine.streams()[0].outstanding == UNBOUNDED


@pytest.mark.parametrize("n", [0, -1, -(1 << 70)])
def test_D_12_a_demand_of_nothing_never_reaches_the_wire(mode: Mode, n: int) -> None:
    """RS 3.9: it is canceled there, and an error here; ``tick`` tells it."""
    play = subscribed(5, mode=mode).do(lambda engine: engine.request(1, n))
    assert play.engine.deadline == 0.0
    play << cancel()
    play.at(0.0) << failed(1, LocalProtocolError, rule="D-12")
    play >> (item(b"late"), complete()) << ignored(0, "R-29")


def test_R_27_more_than_was_demanded(mode: Mode) -> None:
    """R-27, FC-20: cancel and an error here; the surplus is dropped, and only the first one is charged."""
    play = subscribed(2, mode=mode) >> (item(b"a"), item(b"b"), item(b"c"), item(b"d"))
    assert next(event for event in play.events if isinstance(event, ev.Ignored)).price == 50
    assert [event.price for event in play.events if isinstance(event, ev.Ignored)] == [50, 0]
    failures = [event for event in play.events if isinstance(event, ev.Failed)]
    assert [(event.stream, event.error.rule) for event in failures] == [(1, "R-27")]
    assert sum(len(event.payloads) for event in play.events if isinstance(event, ev.Items)) == 2
    play.events.clear()
    play << cancel()
    play >> complete()
    play.quiet()


def test_R_27_a_pack_that_is_too_large_for_the_demand(mode: Mode) -> None:
    """FC-20: none of it is told."""
    play = subscribed(2, 1, mode=mode) >> packed(b"a", b"b", b"c") << ignored(50) << failed(1, RemoteProtocolError)
    play << cancel()


def test_R_40_a_pack_lowers_the_demand_by_its_count(mode: Mode) -> None:
    play = subscribed(5, 2, mode=mode) >> (packed(b"aa", b"bb", b"cc"), item(b"dd", size=2), packed(b"ee"))
    assert got(play) == [b"aa", b"bb", b"cc", b"dd", b"ee"]
    assert play.engine.streams()[0].outstanding == 0
    play >> frames.OnNextPacked(subscriber=1, count=0, elements=b"", element_size=2) << ignored(1, "R-40")
    play >> item(b"ff", size=2) << ignored(50, "R-27") << ev.Failed << cancel()


# -- ends ----------------------------------------------------------------------------------------------------------


def test_R_32_an_end_needs_no_demand(mode: Mode) -> None:
    """RS 2.9, 2.10."""
    play = subscribed(0, mode=mode) >> complete() << ev.Completed(1)
    (
        play.do(lambda engine: engine.subscribe("q")).forget()
        >> (answer(2), error("why", 2))
        << failed(3, ApplicationError)
    )


def test_R_28_nothing_follows_an_end(mode: Mode) -> None:
    """R-28, D-13, SI-29: what comes for a free id costs a token each, and goes nowhere."""
    play = subscribed(5, mode=mode) >> complete() << ev.Completed(1)
    for late in (item(b"x"), complete(), error("no"), answer()):
        play >> late << ignored(1, "SI-29")
    play.do(lambda engine: engine.request(1, 5)).do(lambda engine: engine.cancel(1)).quiet()


def test_R_17_a_pack_for_a_free_id_is_fatal(mode: Mode) -> None:
    """3.4: nobody knows where it ends."""
    play = subscribed(5, 2, mode=mode) >> (complete(), packed(b"aa")) << ev.Completed(1)
    play << bye("onNextPacked for 1, which has no element size")


def test_R_39_a_pack_where_elements_have_no_size_is_fatal(mode: Mode) -> None:
    play = subscribed(5, mode=mode) >> packed(b"aa") << ev.Failed
    play << bye("onNextPacked for 1, which has no element size")


def test_R_29_what_is_late_is_dropped(mode: Mode) -> None:
    """R-29, R-37, D-10: it can be read, for its size is kept."""
    play = subscribed(9, 3, mode=mode).do(lambda engine: engine.cancel(1)) << cancel()
    play >> (item(b"\x08\x01\x00", size=3), packed(b"abc", b"def")) << ignored(0) << ignored(0)
    play >> complete()
    play.quiet()
    play >> item(b"x") << ignored(1, "SI-29")


def test_R_29_canceled_before_the_answer(mode: Mode) -> None:
    play = client(mode).do(lambda engine: engine.subscribe("p", 5)).forget()
    play.do(lambda engine: engine.cancel(1)) << cancel()
    play >> (answer(1, 2), item(b"ab", size=2), error("late")) << ignored(0)
    play.quiet()
    forgotten(play)


def test_a_refusal_that_crosses_a_cancel(mode: Mode) -> None:
    """R-22, R-37: it is the end of the id."""
    play = client(mode).do(lambda engine: engine.subscribe("p", 5)).forget()
    play.do(lambda engine: engine.cancel(1)) << cancel()
    play >> error("no")
    play.quiet()
    forgotten(play)


def test_failing_a_subscription_is_a_cancel() -> None:
    """D-9: the wire has no error towards the publisher."""
    subscribed(5).do(lambda engine: engine.fail(1, ValueError("mine"))) << cancel()


# -- sizes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [TINY.payload_bytes + 1, 1 << 40, 1 << 63])
def test_FC_23_elements_that_are_too_large_from_the_start(mode: Mode, size: int) -> None:
    """subscribed with a size above the limit: cancel, and an error here. What is under way is passed over."""
    play = client(mode, TINY).do(lambda engine: engine.subscribe("p", 5)) << frames.Subscribe
    play >> answer(1, size) << failed(1, LimitExceeded, rule="payload-too-large") << cancel()
    play >> (b"\x07\x01", b"x" * 500) << ignored(0, "R-29")
    play.quiet()
    assert play.engine.held_bytes < 20


@pytest.mark.repetitive
def test_a_size_at_the_limit(mode: Mode) -> None:
    most = TINY.payload_bytes
    subscribed(2, most, mode=mode, limits=TINY) >> item(b"x" * most, size=most) << (ev.Items, {"stream": 1})


def test_elements_that_are_too_large(mode: Mode) -> None:
    """FC-23: count times size is compared before it is used; the bytes are passed over."""
    size = TINY.payload_bytes // 4
    play = subscribed(9, size, mode="whole", limits=TINY)
    play >> (packed(*[b"x" * size] * 4), packed(*[b"x" * size] * 5), complete())
    play << ev.Items << failed(1, LimitExceeded, rule="payload-too-large") << cancel()
    play.quiet()
    forgotten(play)
    assert play.engine.consumed(4 * size, 4) is None and play.engine.held_bytes == 0


def test_the_demand_is_looked_at_before_the_size() -> None:
    size = TINY.payload_bytes // 4
    play = (
        subscribed(4, size, limits=TINY) >> packed(*[b"x" * size] * 5) << ignored(50) << failed(1, RemoteProtocolError)
    )
    play << cancel()


def test_an_element_of_a_size_that_was_too_large_for_a_canceled_id() -> None:
    play = client(limits=TINY).do(lambda engine: engine.subscribe("p", 1 << 40)).forget()
    play >> answer(1, 1 << 20) << failed(1, LimitExceeded) << cancel()
    play >> (b"\x07\x01", b"x" * (1 << 20), complete()) << ignored(0)
    play.quiet()


# -- parts ---------------------------------------------------------------------------------------------------------


def split(demand: int = 5, size: int = 0, mode: Mode = "whole", limits: Limits | None = None) -> Playbook:
    return subscribed(demand, size, mode, limits, extensions=(12,))


def test_elements_in_parts(mode: Mode) -> None:
    """I-3: reading is mandatory when split messages are on. Elements in parts may be mixed; each costs one."""
    play = split(3, mode=mode)
    play >> (part(0, b"a" * 100), part(1, b"b" * 100), item(b"c"), part(1, b"B", last=True), part(0, b"A", last=True))
    assert got(play) == [b"c", b"b" * 100 + b"B", b"a" * 100 + b"A"]
    play >> part(2, b"one more") << ignored(50, "R-27") << ev.Failed << cancel()
    play >> part(2, b"x", last=True) << ignored(0, "R-29")
    play >> part(0, b"x", id=9) << ignored(1, "SI-29")


def test_a_lone_last_part_is_an_element(mode: Mode) -> None:
    play = split(mode=mode) >> part(7, b"whole", last=True)
    assert got(play) == [b"whole"]


def test_parts_of_a_fixed_size(mode: Mode) -> None:
    play = split(size=4, mode=mode) >> (part(0, b"ab"), part(0, b"cd", last=True))
    assert got(play) == [b"abcd"]
    play >> (part(1, b"ab"), part(1, b"cde", last=True)) << failed(1, RemoteProtocolError, rule="R-38") << cancel()


def test_parts_are_bounded() -> None:
    """R-7: bytes, parts, unfinished elements, and what all of them cost."""
    chunk = b"x" * 0x8000
    play = split(limits=TINY)
    for _ in range(TINY.payload_bytes // 0x8000):
        play >> part(0, chunk)
    play.quiet() >> part(0, b"y") << failed(1, LimitExceeded, rule="payload-too-large") << cancel()
    assert play.engine.held_bytes == 0

    play = split(99, limits=TINY)
    for number in range(TINY.partial_payloads):
        play >> part(number, chunk[:64])
    play.quiet() >> part(99, chunk[:64]) << failed(1, LimitExceeded, rule="too-many-partials") << cancel()

    limits = TINY.replace(fragments=4)
    play = split(limits=limits)
    for _ in range(4):
        play >> part(0, chunk[:64])
    play.quiet() >> part(0, chunk[:64]) << failed(1, LimitExceeded, rule="too-many-fragments") << cancel()


def test_parts_share_the_budget_of_the_connection() -> None:
    chunk = b"x" * 0x8000
    play = split(99, limits=TINY)
    for number in range(7):
        play >> part(number, chunk)
    play.quiet() >> part(7, chunk) << failed(1, LimitExceeded, rule="buffer-full") << cancel()
    assert play.engine.held_bytes == 0


def test_parts_without_progress_are_charged() -> None:
    """The first small one of an element is free."""
    play = split() >> part(0, b"") >> part(0, b"") << ignored(20, "fragment_min_bytes")
    play >> part(0, b"x" * 64) >> part(1, b"") >> part(0, b"", last=True)
    assert got(play) == [b"x" * 64]


def test_an_element_that_never_ends() -> None:
    play = split() >> part(3, b"x" * 64)
    assert play.engine.deadline == 30.0
    play.at(10.0) >> part(3, b"x" * 64)
    play.at(29.0).at(30.0) << failed(1, LimitExceeded, rule="reassembly-timeout") << cancel()
    play.at(30.0)
    assert play.engine.deadline is None


def test_an_element_may_wait_while_this_side_does_not_read() -> None:
    play = split(1000, limits=TINY) >> part(0, b"x" * 64)
    play >> item(b"x" * 1000).encode() * 250 << ev.Items
    assert not play.engine.wants_read
    play.at(9.0).at(20.0).quiet()
    assert play.engine.deadline == 30.0


def test_unfinished_elements_end_with_their_subscription() -> None:
    for last in (complete(), error("no")):
        play = split() >> (part(0, b"x" * 64), last)
        play.forget().at(0.0).quiet()
        assert (play.engine.held_bytes, play.engine.deadline) == (0, None)
    play = split() >> part(0, b"x" * 64)
    play.eof() << ev.Failed << ev.Closed
    assert play.engine.held_bytes == 0


# -- ids that are used again -----------------------------------------------------------------------------------------


def test_R_35_which_ids_are_used() -> None:
    """R-35, R-33: fresh ones first; then those that ended longest ago."""
    play = client(limits=TINY.replace(tombstones=3))
    engine = play.engine
    ids = []
    for _ in range(8):
        stream = engine.subscribe("p")
        ids.append(play.do(lambda engine: None).sent.popleft().subscriber)
        play.forget() >> (answer(ids[-1]), complete(ids[-1])) << ev.Completed(stream)
    assert ids == [1, 2, 3, 1, 2, 3, 1, 2]
    for _ in range(5):
        engine.subscribe("p")
    assert [said.subscriber for said in play.do(lambda engine: None).sent] == [3, 1, 2, 4, 5]


def again(mode: Mode, cancels: int = 2, size: int = 2) -> Playbook:
    """A client that has used id 1 again behind each of its cancels; nothing was answered yet."""
    play = client(mode, TINY.replace(tombstones=1))
    for turn in range(cancels + 1):
        play.do(lambda engine: engine.subscribe("p", 5)) << ask(1, 5)
        if turn < cancels:
            play.do(lambda engine, turn=turn: engine.cancel(1 + 2 * turn)) << cancel()
    return play


def test_R_36_used_again_behind_a_cancel(mode: Mode) -> None:
    """R-36, R-34: everything is dropped until the answer to the last one comes, each with its own size (R-37)."""
    play = again(mode) >> (answer(1, 2), item(b"aa", size=2), answer(1, 3), packed(b"bbb", b"ccc"), complete())
    play << ignored(0, "R-29") << ignored(0, "R-29") << ignored(0, "R-29")
    play >> (answer(1, 1), item(b"d", size=1), complete()) << ev.Items(5, [Payload(b"d")]) << ev.Completed(5)
    forgotten(play)


def test_R_36_old_ends_without_an_answer_of_their_own(mode: Mode) -> None:
    """R-22: refusals of the older ones count as answers."""
    play = again(mode) >> (error("no"), error("no")) << ignored(0) << ignored(0)
    play >> (answer(), item(b"x")) << ev.Items(5, [Payload(b"x")])
    play = again(mode) >> (error("no"), error("no")) << ignored(0) << ignored(0)
    play >> error("this one") << failed(5, ApplicationError, message="this one")
    play = again(mode) >> (answer(), error("no"), answer(), error("no")) << ignored(0) << ignored(0)
    play >> (answer(), error("this one")) << failed(5, ApplicationError, message="this one")


def test_R_36_an_end_that_nothing_has_begun(mode: Mode) -> None:
    """It is of nobody: dropped behind a cancel, fatal where a fresh answer is awaited."""
    play = again(mode) >> complete() << ignored(0)
    play >> answer() >> answer() >> (answer(), item(b"x")) << ev.Items(5, [Payload(b"x")])


def test_an_id_is_canceled_once_more_while_it_is_used_again(mode: Mode) -> None:
    play = again(mode, cancels=1).do(lambda engine: engine.cancel(3)) << cancel()
    play >> (answer(), item(b"a"), answer(), item(b"b"), complete()) << ignored(0) << ignored(0)
    play.quiet()
    forgotten(play)


def test_a_used_again_id_may_have_elements_that_are_too_large(mode: Mode) -> None:
    again(mode, cancels=1) >> (answer(), answer(1, 1 << 40)) << failed(3, LimitExceeded) << cancel()


def test_a_demand_of_nothing_while_it_is_used_again(mode: Mode) -> None:
    play = again(mode, cancels=1).do(lambda engine: engine.request(3, 4)) << request(4)
    play.do(lambda engine: engine.request(3, 0)) << cancel()
    play.at(0.0) << failed(3, LocalProtocolError)


def test_ids_of_ten_bytes() -> None:
    """R-18: an id is any number; those that a peer chooses are answered as they are."""
    big = 2**64 - 1
    play = server() >> ask(big, 2) << ev.Opened << answer(big)
    play.do(lambda engine: engine.send(2, [b"x"], complete=True)) << item(b"x", big) << complete(big)


# -- elements as they lie ----------------------------------------------------------------------------------------------


def test_runs_are_one_event() -> None:
    """Elements of one size that follow each other have no object each."""
    play = subscribed(1000)
    play >> b"".join(item(b"%03d" % i).encode() for i in range(500))
    assert len(play.events) == 1
    assert got(play) == [b"%03d" % i for i in range(500)]
    lengths = [1] * 3 + [2] * 20 + [1] + [0] * 12 + [5]
    play >> b"".join(item(b"x" * length).encode() for length in lengths)
    assert [len(data) for data in got(play)] == lengths


def test_runs_stop_where_the_demand_does() -> None:
    play = subscribed(20) >> b"".join(item(b"x").encode() for _ in range(21))
    assert [type(event) for event in play.events] == [ev.Items, ev.Ignored, ev.Failed]
    assert len(play.events[0].payloads) == 20


def test_ids_of_two_bytes_take_the_short_path_too() -> None:
    play = client()
    for _ in range(300):
        play.engine.subscribe("p", 50)
    play.forget() >> (answer(300), b"".join(item(b"%02d" % i, 300).encode() for i in range(50)))
    assert len(play.events) == 1
    assert got(play, 599) == [b"%02d" % i for i in range(50)]


def test_ids_of_three_bytes_take_the_long_one() -> None:
    play = client()
    for _ in range(1 << 14):
        play.engine.subscribe("p", 2)
    play.engine.outgoing(1 << 20)
    play >> (answer(1 << 14), item(b"x", 1 << 14), item(b"y", 1 << 14))
    assert got(play, 2 * (1 << 14) - 1) == [b"x", b"y"]


@pytest.mark.parametrize("size", [0, 3])
def test_blocks_for_who_asks_for_them(size: int) -> None:
    """Columnar streams get spans of one buffer."""
    play = client().do(lambda engine: engine.open("stream", b"p", credit=99, columnar=True)).forget()
    play >> answer(1, size)
    data = b"".join(item(b"%03d" % i, size=size).encode() for i in range(20))
    tail = packed(b"abc", b"def") if size else item(b"")
    play >> (data, tail)
    blocks = list(play.events)
    play.events.clear()
    assert all(isinstance(block, ev.Block) for block in blocks)
    spans = [bytes(b.buffer[s:e]) for b in blocks for s, e in zip(b.starts, b.ends, strict=True)]
    assert spans == [b"%03d" % i for i in range(20)] + ([b"abc", b"def"] if size else [b""])


def test_empty_elements_in_a_row() -> None:
    play = subscribed(100) >> item(b"").encode() * 40
    assert got(play) == [b""] * 40
    play = client().do(lambda engine: engine.open("stream", b"p", credit=99, columnar=True)).forget()
    play >> (answer(), item(b"").encode() * 40)
    assert [len(block.starts) for block in play.events] == [40]


def test_what_waits_keeps_no_large_buffer_alive() -> None:
    """Elements in the middle of a large read are copied out of it."""
    play = subscribed(1000)
    play.engine.subscribe("q", 1000)
    play.forget() >> (answer(2), b"".join(item(b"%d" % (i % 10)).encode() for i in range(30)), item(b"y" * 5000, 2))
    assert [len(event.payloads) for event in play.events] == [30, 1]
    assert len(play.events[0].payloads._block) < 200


def test_an_element_above_the_limit_is_fatal_before_it_is_stored() -> None:
    """FR-26."""
    play = subscribed(5, limits=TINY) >> b"\x07\x01" + b"\x80\x80\x80\x80\x08" << failed(1, RemoteProtocolError)
    play << bye("payload-too-large")


def test_parts_and_elements_of_many_subscriptions(mode: Mode) -> None:
    play = client(mode)
    for id in range(1, 5):
        play.do(lambda engine: engine.subscribe("p", 9)).forget() >> answer(id, id - 1)
    for turn in range(3):
        for id in range(1, 5):
            play >> item(bytes([turn]) * (id - 1), id, size=id - 1)
            assert got(play, 2 * id - 1) == [bytes([turn]) * (id - 1)]
