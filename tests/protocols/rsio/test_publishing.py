"""The publisher's side of an id: demand, elements, packs, parts, ends, and what subscribers may not do."""

from __future__ import annotations

from typing import Any

import pytest

from afflux.core import events as ev
from afflux.core.errors import (
    ApplicationError,
    Canceled,
    Invalid,
    LimitExceeded,
    LocalProtocolError,
    Rejected,
    RemoteProtocolError,
    Unsupported,
)
from afflux.core.limits import Limits
from afflux.core.payload import Payload
from afflux.protocols.rsio import Engine, frames
from afflux.protocols.rsio.codes import GENERIC_TEXT, UNBOUNDED, cut
from afflux.protocols.rsio.outbound import SHARE, Outbound

from .playbook import (
    BOTH,
    Mode,
    Playbook,
    Reader,
    answer,
    ask,
    bye,
    cancel,
    complete,
    error,
    failed,
    ignored,
    item,
    packed,
    part,
    publishing,
    request,
    server,
)

TINY = Limits.tiny()
RULE_3_9 = "a demand is 1 to 2^63-1 (Reactive Streams 3.9)"


# -- subscribe -------------------------------------------------------------------------------------------------------


def test_R_19_the_application_gets_the_name_as_it_is(mode: Mode) -> None:
    """R-19, SI-31: nothing here looks into it, or looks it up."""
    for name in ("", "../../etc/passwd", "nul\0 and ü", "x" * 4096):
        play = server(mode) >> ask(demand=7, name=name)
        play << ev.Opened(2, "stream", Payload(name.encode()), 7, False) << answer()


@pytest.mark.parametrize("size", [256, 257, 5000])
def test_SI_31_names_have_a_limit(mode: Mode, size: int) -> None:
    """R-20: refused as if it did not exist; the id is free again."""
    play = server(mode, TINY) >> (ask(name="x" * size), ask(2))
    if size > TINY.publisher_bytes:
        play << ignored(1, "R-20") << ev.Opened << answer() << error("unknown-publisher") << answer(2)
        play >> ask() << ev.Opened << answer()
    else:
        play << ev.Opened << ev.Opened << answer() << answer(2)


def test_R_6_a_name_that_is_no_text(mode: Mode) -> None:
    play = server(mode) >> b"\x03\x02\xff\xfe\x01\x05" << ignored(1) << answer()
    play << error("unknown-publisher: its name is not UTF-8")


def test_R_5_a_first_demand_above_all_numbers(mode: Mode) -> None:
    """R-5, FC-21: SUBERR that cites rule 3.9."""
    play = server(mode) >> b"\x03\x01p\x01" + b"\x80" * 9 + b"\x01" << ignored(1) << answer() << error(RULE_3_9)
    play >> ask(demand=UNBOUNDED) << ev.Opened << answer()
    assert play.engine.credit(2) == UNBOUNDED


def test_R_20_a_publisher_that_the_application_refuses(mode: Mode) -> None:
    """R-20, R-21: subscribed, then onError."""
    play = server(mode) >> ask() << ev.Opened << answer()
    play.do(lambda engine: engine.fail(2, Rejected("unknown-publisher"))) << error("unknown-publisher")
    play >> ask() << ev.Opened << answer()


def test_streams_are_counted_until_their_handlers_return(mode: Mode) -> None:
    """limits.md ``streams``: SUBERR "too-many-streams", one token."""
    limits = TINY.replace(streams=2, pending_streams=0)
    play = server(mode, limits) >> (ask(1), ask(2)) << ev.Opened << ev.Opened << answer(1) << answer(2)
    play >> (cancel(1), ask(3)) << ev.Canceled(2, True) << ignored(1) << answer(3) << error("too-many-streams", 3)
    play.do(lambda engine: engine.release(2)) >> ask(3) << ev.Opened << answer(3)


def test_SI_29_an_id_that_is_in_use(mode: Mode) -> None:
    publishing(5, mode=mode) >> ask() << ev.Canceled(2, True) << bye("subscribe with id 1, which is in use")


def test_sizes_are_the_publishers(mode: Mode) -> None:
    """subscribed(size): asked for by the name, or the subscription is refused."""

    def size(name: str) -> int:
        if name == "none":
            raise Invalid("no such thing")
        return {"four": 4, "many": 1 << 40, "less": -1}[name]

    play = server(mode, sizes=size) >> ask(name="four", demand=1) << ev.Opened << answer(1, 4)
    for name, text in (("none", "no such thing"), ("many", GENERIC_TEXT), ("less", GENERIC_TEXT), ("?", GENERIC_TEXT)):
        play >> ask(2, name=name) << ignored(1) << answer(2) << error(text, 2)


# -- demand ----------------------------------------------------------------------------------------------------------


def test_R_24_demand_adds_up_and_saturates(mode: Mode) -> None:
    """R-24, RS 3.8, 3.17: 2^63-1 counts as without bound."""
    play = publishing(3, mode=mode) >> request(4) << ev.Granted(2, 4)
    assert play.engine.credit(2) == 7
    play >> request(UNBOUNDED) << ev.Granted(2, UNBOUNDED)
    assert play.engine.credit(2) == UNBOUNDED
    play.do(lambda engine: engine.send(2, [b"x"] * 3)).forget()
    assert play.engine.credit(2) == UNBOUNDED == play.engine.most_credit
    assert play.engine.credit(1) == 0


def test_R_23_no_more_than_was_demanded(mode: Mode) -> None:
    """RS 1.1; nothing of what is too much is sent."""
    play = publishing(2, mode=mode)
    with pytest.raises(LocalProtocolError, match="3 elements with a demand for 2"):
        play.engine.send(2, [b"a", b"b", b"c"])
    play.do(lambda engine: engine.send(2, [b"a", b"b"])) << item(b"a") << item(b"b")
    with pytest.raises(LocalProtocolError):
        play.engine.send(2, [b"c"])
    play >> request(1) << ev.Granted
    play.do(lambda engine: engine.send(2, [b"c"], complete=True)) << item(b"c") << complete()


@pytest.mark.parametrize("n", [0, 2**63, 2**64 - 1])
def test_FC_21_a_demand_out_of_range(n: int) -> None:
    """R-26, R-5, RS 3.9: onError, and the id is free again. What is queued is not wanted."""
    play = publishing(5)
    play.engine.send(2, [b"queued"])
    play >> request(n) << failed(2, RemoteProtocolError, rule="R-26") << error(RULE_3_9)
    play.do(lambda engine: engine.send(2, [b"x"])) >> request(1) << ignored(0, "R-30")
    play >> ask() << ev.Opened << answer()


def test_R_30_late_requests_and_cancels_are_ignored(mode: Mode) -> None:
    """RS 3.6, 3.7; a cancel that can cross no end of ours costs a token."""
    play = publishing(5, mode=mode).do(lambda engine: engine.complete(2)) << complete()
    play >> (request(1), request(0), cancel(), cancel())
    play << ignored(0, "R-30") << ignored(0, "R-30") << ignored(0, "R-30") << ignored(1, "R-30")


def test_R_29_a_cancel_is_the_end() -> None:
    """RS 1.8: what is queued goes no more, the end included."""
    play = publishing(5)
    play.engine.send(2, [b"a", b"b"])
    play >> cancel() << ev.Canceled(2, True)
    play.do(lambda engine: engine.send(2, [b"c"], complete=True)).do(lambda engine: engine.fail(2, ValueError()))
    play.do(lambda engine: engine.complete(2)).quiet()
    play >> ask(demand=5) << ev.Opened << answer()
    play.engine.send(4, [b"a"], complete=True)
    play >> cancel() << ignored(0)
    play.quiet()


# -- ends ------------------------------------------------------------------------------------------------------------


def test_R_28_nothing_follows_an_end_of_ours(mode: Mode) -> None:
    for end, message in (
        (lambda engine: engine.complete(2), complete()),
        (lambda engine: engine.fail(2, ApplicationError(message="why")), error("why")),
    ):
        play = publishing(5, mode=mode)
        play.engine.send(2, [b"last"])
        play.do(end) << item(b"last") << message
        for verb in (lambda engine: engine.send(2, [b"x"]), lambda engine: engine.complete(2), end):
            play.do(verb).quiet()


@pytest.mark.parametrize(
    ("raised", "text"),
    [
        (ApplicationError(0x301, "told"), "told"),
        (Rejected("no"), "no"),
        (Canceled("gave up"), "gave up"),
        (Invalid("what?"), "what?"),
        (ValueError("secret"), GENERIC_TEXT),
        (LimitExceeded("secret"), GENERIC_TEXT),
        (ApplicationError(message="ü" * 1000), "ü" * 512),
        (ApplicationError(message="a\ud800b"), "a?b"),
    ],
)
def test_what_a_subscriber_learns_of_an_error(raised: Exception, text: str) -> None:
    publishing().do(lambda engine: engine.fail(2, raised)) << error(text)


def test_texts_are_cut_at_a_character() -> None:
    assert cut("abc", 2) == "ab"
    assert cut("aüb", 2) == "a"


def test_R_31_order_is_kept(mode: Mode) -> None:
    """RS 1.3: elements of any size, and the end behind them."""
    play = publishing(UNBOUNDED, mode=mode)
    wanted = [b"%d" % i * (1 + i * 997 % 9000) for i in range(200)]
    play.engine.send(2, wanted[:150])
    play.engine.send(2, wanted[150:], complete=True)
    play.collect([])
    sent = list(play.sent)
    play.sent.clear()
    assert [message.element for message in sent[:-1]] == wanted  # type: ignore[attr-defined]
    assert sent[-1] == complete()


# -- sizes and packs ---------------------------------------------------------------------------------------------------


def test_R_38_R_41_elements_that_wait_together_leave_together(mode: Mode) -> None:
    """R-41: a lone element never waits for another."""
    play = publishing(50, 2, mode=mode)
    play.do(lambda engine: engine.send(2, [b"aa"])) << item(b"aa", size=2)
    play.do(lambda engine: engine.send(2, [b"bb", b"cc"])) << packed(b"bb", b"cc")
    play.engine.send(2, [b"dd"])
    play.engine.send(2, [b"ee"])
    play.do(lambda engine: engine.send(2, [b"ff"], complete=True)) << packed(b"dd", b"ee", b"ff") << complete()


def test_elements_that_differ_in_size_are_sent_as_they_are() -> None:
    elements = [bytes(size * size % 4_000) for size in range(300)]
    play = publishing(300)
    play.engine.send(2, elements)
    play.collect([])
    assert [message.element for message in play.sent] == elements  # type: ignore[attr-defined]


def test_R_39_elements_without_a_size_are_not_packed() -> None:
    publishing(9).do(lambda engine: engine.send(2, [b"aa", b"bb"])) << item(b"aa") << item(b"bb")


def test_packs_have_a_limit() -> None:
    """A pack stays well under what a peer takes."""
    size = 1000
    play = publishing(UNBOUNDED, size, limits=TINY)
    play.do(lambda engine: engine.send(2, [b"x" * size] * 200))
    counts = [getattr(message, "count", 1) for message in play.sent]
    play.sent.clear()
    assert sum(counts) == 200 and max(counts) * size <= TINY.payload_bytes


def test_an_element_of_a_wrong_size(mode: Mode) -> None:
    """3.3: those before it are sent, then onError; the one whose bug it is hears of it."""
    play = publishing(9, 2, mode=mode)
    with pytest.raises(LocalProtocolError, match="an element of 3 bytes where each has 2"):
        play.engine.send(2, [b"aa", b"bb", b"ccc", b"dd"])
    play.collect([])
    play << packed(b"aa", b"bb") << error(GENERIC_TEXT)
    play >> ask(demand=9) << ev.Opened << answer(1, 2)
    with pytest.raises(LocalProtocolError):
        play.engine.send(4, [b""])
    play.collect([])
    play << error(GENERIC_TEXT)


def test_elements_are_data_of_some_size() -> None:
    play = publishing(9, limits=TINY)
    for payload, kind in ((Payload(b"x", b"m"), Unsupported), (b"x" * (TINY.payload_bytes + 1), LimitExceeded)):
        with pytest.raises(kind):
            play.engine.send(2, [b"never", payload])
    play.collect([])
    most = b"x" * TINY.payload_bytes
    play.do(lambda engine: engine.send(2, [Payload(b"d"), "text", bytearray(b"b"), most]))
    play << item(b"d") << item(b"text") << item(b"b") << item(most)


# -- parts ---------------------------------------------------------------------------------------------------------


def splitting(demand: int = 99, size: int = 0) -> Playbook:
    return publishing(demand, size, extensions=BOTH, mtu=64)


def test_large_elements_go_in_parts() -> None:
    """I-3, split_messages: only what is larger than a part, and a small one may go between those of another id."""
    play = splitting().do(lambda engine: engine.send(2, [b"s", b"x" * 150, b"y" * 64, b"z" * 65]))
    play << item(b"s") << part(0, b"x" * 64) << part(0, b"x" * 64) << part(0, b"x" * 22, last=True)
    play << item(b"y" * 64) << part(1, b"z" * 64) << part(1, b"z", last=True)
    assert play.engine.queued == 0


def test_elements_of_a_fixed_size_are_not_split() -> None:
    splitting(size=100).do(lambda engine: engine.send(2, [b"x" * 100])) << item(b"x" * 100, size=100)


def test_a_cancel_in_the_middle_of_an_element() -> None:
    play = splitting(5)
    play.engine.send(2, [b"x" * 1000, b"y"])
    play.reader.read(play.engine.outgoing(100))
    play >> cancel() << ev.Canceled(2, True)
    assert play.engine.queued == 0
    play >> ask(demand=5) << ev.Opened << answer()
    play.do(lambda engine: engine.send(4, [b"x" * 65])) << part(0, b"x" * 64) << part(0, b"x", last=True)


# -- turns -------------------------------------------------------------------------------------------------------------


def test_ids_take_turns() -> None:
    """A publisher with much to say does not keep others waiting for all of it."""
    play = publishing(UNBOUNDED) >> ask(2, 9) << ev.Opened << answer(2)
    play.engine.send(2, [b"x" * 5000] * 100)
    play.engine.send(4, [b"small"], complete=True)
    play.collect([])
    ids = [message.subscriber for message in play.sent]  # type: ignore[attr-defined]
    play.sent.clear()
    assert 2 in ids[: SHARE // 5000 + 2]


def test_who_took_more_than_a_turn_owes_it() -> None:
    out = Outbound(1 << 20)
    for _ in range(3):
        out.put(1, b"a" * (3 * SHARE))
        out.put(2, b"b" * SHARE)
        out.put(2, b"b" * SHARE)
    taken = b""
    order = []
    while chunk := out.take(1):
        taken += chunk
        order.append(chunk[:1])
    assert (len(taken), out.size, out.frames) == (15 * SHARE, 0, 0)
    assert order.index(b"a", 1) >= 3  # several of the other one first
    assert out.take(100) == b""


def test_a_debt_ends_with_what_is_queued() -> None:
    out = Outbound(1 << 20)
    out.put(1, b"a" * (3 * SHARE))
    out.put(1, b"a")
    out.put(2, b"b")
    assert out.take(1) == b"a" * (3 * SHARE)
    out.drop(1)
    out.drop(1)
    assert (out.size, out.frames) == (1, 1)
    out.clear()
    assert (out.size, out.frames) == (0, 0)


def test_what_concerns_subscriptions_goes_first() -> None:
    """R-34: so an id that is used again is never misunderstood."""
    play = publishing(9)
    play.engine.send(2, [b"x" * 100])
    play.engine.subscribe("q", 1)
    play.collect([])
    assert [type(message) for message in play.sent] == [frames.Subscribe, frames.OnNext]


# -- the contract ------------------------------------------------------------------------------------------------------


def test_room_and_what_limits_a_stream() -> None:
    play = publishing(5, limits=TINY)
    engine, high = play.engine, TINY.outbound_high_bytes
    assert engine.room(0) == high and engine.room(high) == 0 and engine.room(high + 9) == 0
    assert [(status.stream, status.credit, status.reason) for status in engine.streams()] == [(2, 5, "producer")]
    assert engine.streams(room=0)[0].reason == "transport"
    engine.send(2, [b"x" * (high - 100)])
    [status] = engine.streams()
    assert (status.credit, status.sent, status.reason) == (4, 1, None)
    assert status.queued > high - 100
    engine.subscribe("other", 0)
    assert [(status.stream, status.state, status.reason) for status in engine.streams()] == [
        (1, "PENDING", "application"),
        (2, "ACTIVE", None),
    ]
    assert 0 < engine.room(0) < 100 and engine.queued > high - 100
    play = publishing(UNBOUNDED, limits=TINY)
    for _ in range(TINY.outbound_high_frames):
        assert play.engine.room(0)
        play.engine.send(2, [b"x"])
    assert play.engine.room(0) == 0


def test_consuming_more_than_came_is_harmless() -> None:
    play = publishing()
    play.engine.consumed(1 << 40, 1 << 40)
    assert play.engine.wants_read


def test_a_message_that_is_queued_is_read_as_it_is_cut() -> None:
    """``outgoing`` gives whole messages, about as many as it is asked for."""
    play = publishing(UNBOUNDED, extensions=BOTH, mtu=1000)
    play.engine.send(2, [b"x" * 500] * 20 + [b"y" * 5000])
    reader: Any = Reader()
    count = 0
    while chunk := play.engine.outgoing(600):
        assert len(chunk) <= 11_000
        count += len(reader.read(chunk))
    assert count == 25


def test_both_sides_publish() -> None:
    """A client has publishers as a server has."""
    play = Playbook(Engine("client")).forget() >> frames.ServerHello() << ev.Established
    play >> ask(demand=1) << ev.Opened << answer()
    play.do(lambda engine: engine.send(2, [b"x"], complete=True)) << item(b"x") << complete()
