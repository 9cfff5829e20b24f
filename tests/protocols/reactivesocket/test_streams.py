"""Streams in both roles: every rule of sections 3.3 to 3.5, and the switches of section 6."""

from __future__ import annotations

from typing import Any

import pytest

from afflux.core import events as ev
from afflux.core.errors import (
    ApplicationError,
    Canceled,
    LimitExceeded,
    LocalProtocolError,
    Rejected,
    RemoteProtocolError,
)
from afflux.core.ids import StreamIds
from afflux.core.limits import Limits
from afflux.core.payload import Payload
from afflux.protocols.reactivesocket import Dialect, Engine, frames

from .playbook import Playbook, error, failed, half, ignored, raw, requester, responder

P = Payload
CHANNEL = frames.RequestChannel(stream=2, initial_n=3, data=b"1")
HALF = Dialect(channel_half_close=True)


def asked(verb: str, play: Any = None, **options: Any) -> Playbook:
    """A client that has asked for something on stream 2."""
    play = play or requester()
    credit = {} if verb in ("request", "fire") else {"credit": options.pop("credit", 3)}
    play.do(lambda engine: engine.open(verb, b"q", **credit, **options))
    play.sent.clear()
    return play


# -- ids ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("role", "parity", "first"),
    [("client", "even", 2), ("server", "even", 1), ("client", "odd", 1), ("server", "odd", 2)],
)
def test_parities(role: str, parity: Any, first: int) -> None:
    """R-11, D-2, I-4: client_parity."""
    play = (requester if role == "client" else responder)(dialect=Dialect(client_parity=parity))
    play.do(lambda engine: engine.open("request", b"q")) << frames.RequestResponse(stream=first, data=b"q")
    play.do(lambda engine: engine.open("request", b"q")) << frames.RequestResponse(stream=first + 2, data=b"q")
    play >> frames.RequestResponse(stream=first + 4) << ignored(10, "R-12")
    play >> frames.RequestResponse(stream=first + 5) << ev.Opened


def test_ids_of_the_peer_come_in_any_order(mode: Any) -> None:
    """R-12, R-13, D-2, SI-17: free, of its parity, not 0; also again, and above 2^31."""
    play = responder(mode)
    for id in (8, 2, 0xFFFFFFFE):
        play >> frames.RequestResponse(stream=id) << ev.Opened(id, "request", P(), 1, False)
    play >> frames.RequestResponse(stream=0) << ignored(10, "R-12")
    play >> frames.RequestResponse(stream=2) << ignored(10, "R-36")  # SI-01: in use
    play.do(lambda engine: engine.send(2, [b"a"])) << frames.Response(stream=2, complete=True, data=b"a")
    play.do(lambda engine: engine.release(2)) >> frames.RequestStream(stream=2, initial_n=1) << ev.Opened


# -- request/response -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("complete", [True, False])
@pytest.mark.parametrize("payload", [P(), P(b"a"), P(b"", b""), P(b"a", b"m")], ids=repr)
def test_a_response_completes_with_c_or_without(mode: Any, complete: bool, payload: Payload) -> None:
    """R-28, R-29, D-8, SI-11: an empty one is an empty item."""
    play = asked("request", requester(mode))
    play >> frames.Response(stream=2, complete=complete, metadata=payload.metadata, data=payload.data)
    play << ev.Items(2, [payload], True)
    play >> frames.Response(stream=2, data=b"late") << ignored(1, "R-36")


def test_many_requests_and_answers_at_once(mode: Any) -> None:
    """The short ways, and back to the long one in between."""
    play = requester(mode).do(lambda engine: engine.ask([P(b"1"), P(b"2", b"m"), P(bytes(5000)), P(b"4")]) and None)
    play << frames.RequestResponse(stream=2, data=b"1") << frames.RequestResponse(stream=4, metadata=b"m", data=b"2")
    play << frames.RequestResponse(stream=6, data=bytes(5000)) << frames.RequestResponse(stream=8, data=b"4")
    answers = [frames.Response(stream=id, complete=id != 4, data=b"a") for id in (2, 4, 6)]
    play >> (*answers, frames.Response(stream=8, metadata=b"m"))
    for id in (2, 4, 6):
        play << ev.Items(id, [P(b"a")], True)
    play << ev.Items(8, [P(b"", b"m")], True)
    play = responder(mode)
    asks = [frames.RequestResponse(stream=id, metadata=b"m" if id == 4 else None, data=b"q") for id in (2, 4, 6)]
    play >> (*asks, raw(4, 0x4000, 8, b"\0\0\0\x03"), frames.RequestResponse(stream=5)) << ev.Opened
    play << ev.Opened(4, "request", P(b"q", b"m"), 1, False) << ev.Opened << ignored(10, "R-6") << ignored(10, "R-12")
    play.do(lambda engine: engine.answer([2, 4, 6, 99], [P(b"1"), P(b"2", b"m"), P(bytes(5000)), P()]))
    play << frames.Response(stream=2, complete=True, data=b"1")
    play << frames.Response(stream=4, complete=True, metadata=b"m", data=b"2")
    play << frames.Response(stream=6, complete=True, data=bytes(5000))


def test_large_batches_leave_in_chunks() -> None:
    engine = requester().engine
    ids = engine.ask([P(bytes(4000))] * 40)
    assert ids == list(range(2, 82, 2))
    assert sum(1 for _ in frames.PREFIX.split(drained(engine))) == 40


def drained(engine: Engine) -> bytes:
    data = b""
    while chunk := engine.outgoing():
        data += chunk
    return data


def test_a_cancel_crosses_the_response() -> None:
    """R-40."""
    play = responder() >> frames.RequestResponse(stream=2) << ev.Opened
    play >> frames.Cancel(stream=2, metadata=b"why") << ev.Canceled(2, True)
    play.do(lambda engine: engine.send(2, [b"late"])).quiet()
    play = asked("request").do(lambda engine: engine.cancel(2)) << frames.Cancel(stream=2)
    play >> frames.Response(stream=2, data=b"late") << ignored(0)


def test_fire_and_forget_is_never_answered() -> None:
    play = asked("fire") >> frames.Response(stream=2) << ignored(1)
    play = responder() >> frames.RequestFnf(stream=2, data=b"f") << ev.Opened(2, "fire", P(b"f"), 0, False)
    play.do(lambda engine: engine.fail(2, ValueError())).quiet()


def test_fires_are_no_handlers_of_streams() -> None:
    """FL-03: they need not have begun, so what they hold bounds them; their ids are in use until they end."""
    limits = Limits.tiny(pending_streams=0)
    play = responder(limits=limits)
    for id in range(2, 2 * limits.streams + 2, 2):
        play >> frames.RequestResponse(stream=id) << ev.Opened
    play >> frames.RequestResponse(stream=98) << ignored(1, "REJECTED") << error(98, 0x22, b"too-many-streams")
    play >> frames.RequestFnf(stream=100, data=b"f") << ev.Opened(100, "fire", P(b"f"), 0, False)
    play >> frames.RequestFnf(stream=100) << ignored(10, "R-36")
    assert 100 in (play.engine.stream_table.handlers | play.engine.stream_table.work.fires)
    play.engine.consumed(1, 1)
    play.engine.release(100)
    assert 100 not in (play.engine.stream_table.handlers | play.engine.stream_table.work.fires)
    play >> frames.RequestFnf(stream=100) << ev.Opened


def test_fires_of_who_may_have_no_streams() -> None:
    play = (
        responder(limits=Limits.tiny(streams=0, pending_streams=0))
        >> frames.RequestFnf(stream=2)
        << ignored(1, "REJECTED")
    )
    play.quiet()


def test_unknown_streams_are_ignored() -> None:
    """R-36, SI-07: 0 included; a METADATA_PUSH is in test_connection."""
    for play in (requester(), responder()):
        for id in (0, 2, 3):
            play >> frames.Response(stream=id) << ignored(1, "R-36")
            play >> frames.Cancel(stream=id) << ignored(1, "R-36")
            play >> frames.RequestN(stream=id, n=1) << ignored(1, "R-36")
            play >> frames.RequestChannel(stream=id) << ignored(1, "R-36")
        play >> frames.ErrorFrame(stream=2, code=0x21) << ignored(1, "R-36")
        play.quiet()


# -- streams and subscriptions --------------------------------------------------------------------------------------


@pytest.mark.parametrize("columnar", [False, True])
def test_a_stream_within_credit(mode: Any, columnar: bool) -> None:
    """R-30, R-38, R-39, D-8: items, credit, the end with content and without."""
    play = asked("stream", requester(mode), credit=20, columnar=columnar)
    items = [frames.Response(stream=2, data=b"%02d" % n) for n in range(11)] + [frames.Response(stream=2, data=b"x")]
    play >> tuple(items)
    got: list[bytes] = []
    while play.events:
        event: Any = play.events.popleft()
        if isinstance(event, ev.Block):
            pairs = zip(event.starts, event.ends, strict=True)
            got += [event.buffer[start:end] for start, end in pairs]
        else:
            got += [payload.data for payload in event.payloads]
    assert got == [item.data for item in items]
    play >> frames.Response(stream=2) << ev.Items(2, [P()]) if not columnar else play
    play.do(lambda engine: engine.request(2, 5)) << frames.RequestN(stream=2, n=5)
    play >> frames.Response(stream=2, metadata=b"") << ev.Items(2, [P(b"", b"")])
    play >> frames.Response(stream=2, complete=True, data=b"end") << ev.Items(2, [P(b"end")], True)


@pytest.mark.parametrize("columnar", [False, True])
def test_a_run_of_items_ends_where_something_else_comes(columnar: bool) -> None:
    play = asked("stream", columnar=columnar) >> (frames.Response(stream=2, data=b"1"), frames.Keepalive(respond=True))
    play << (ev.Block if columnar else ev.Items) << frames.Keepalive()
    play = asked("request") >> (frames.Response(stream=2), frames.Response(stream=99)) << ev.Items << ignored(1)
    asked("request") >> (frames.Response(stream=2), frames.Keepalive(respond=True)) << ev.Items << frames.Keepalive()


def test_a_completion_alone_delivers_nothing() -> None:
    """R-30: it needs no credit."""
    play = asked("stream", credit=1) >> frames.Response(stream=2, data=b"1") << ev.Items
    play >> frames.Response(stream=2, complete=True) << ev.Completed(2)


@pytest.mark.parametrize("frame", [{"data": b"2"}, {"complete": True, "data": b"2"}, {"follows": True, "data": b"2"}])
def test_items_beyond_credit_end_the_stream(frame: Any) -> None:
    """R-39: CANCEL, and the application hears of it."""
    play = asked("stream", credit=1) >> frames.Response(stream=2, data=b"1") << ev.Items
    play >> frames.Response(stream=2, **frame) << ignored(50) << frames.Cancel(stream=2)
    play << failed(2, RemoteProtocolError, rule="R-39")


def test_errors_of_a_stream() -> None:
    """R-49, R-50: text from data, else metadata; codes that are not known are numbers."""
    play = asked("stream") >> frames.ErrorFrame(stream=2, code=0x21, data=b"no\0")
    play << failed(2, ApplicationError, code=0x21, message="no")
    play = (
        asked("stream") >> frames.ErrorFrame(stream=2, code=0x22, metadata=b"why") << failed(2, Rejected, message="why")
    )
    asked("stream") >> frames.ErrorFrame(stream=2, code=0x77) << failed(2, RemoteProtocolError, code=0x77)


@pytest.mark.parametrize("kind", [frames.RequestStream, frames.RequestSub])
def test_serving_a_stream(mode: Any, kind: Any) -> None:
    """R-37, R-38, R-41, I-7: credit is masked, adds up, saturates; 0 is ignored; no credit is no fault."""
    play = responder(mode) >> kind(stream=2, initial_n=1, data=b"q") << ev.Opened(2, "stream", P(b"q"), 1, False)
    with pytest.raises(LocalProtocolError) as caught:
        play.engine.send(2, [b"1", b"2"])
    assert caught.value.rule == "R-39"
    play >> raw(9, 0, 2, b"\x80\0\0\x02") << ev.Granted(2, 2)
    play >> raw(9, 0, 2, b"\x80\0\0\x00") << ignored(0, "R-36")
    play.do(lambda engine: engine.send(2, [b"1", P(b"2", b"m"), b"3"])) << frames.Response(stream=2, data=b"1")
    play << frames.Response(stream=2, metadata=b"m", data=b"2") << frames.Response(stream=2, data=b"3")
    play.at(1.0)
    play >> frames.RequestN(stream=2, n=0x7FFFFFFF) << ev.Granted(2, 0x7FFFFFFF)
    assert play.engine.credit(2) == 0x7FFFFFFF  # D-7: not unbounded
    play.do(lambda engine: engine.fail(2, Rejected("full"))) << error(2, 0x22, b"full")


@pytest.mark.parametrize("kind", [frames.RequestStream, frames.RequestSub, frames.RequestChannel])
def test_an_initial_n_of_zero(kind: Any) -> None:
    """3.4, FC-12: masked to 31 bits, then refused."""
    play = responder()
    play >> raw(kind.TYPE, 0x0800, 2, b"\x80\0\0\0") << error(2, 0x24, b"request-n-zero")
    play >> raw(kind.TYPE, 0x0800, 2, b"\x80\0\0\x01") << ev.Opened
    assert play.engine.credit(2) == 1


def test_completing() -> None:
    play = responder() >> frames.RequestStream(stream=2, initial_n=3) << ev.Opened
    play.do(lambda engine: engine.send(2, [b"1", b"2"], complete=True)) << frames.Response(stream=2, data=b"1")
    play << frames.Response(stream=2, complete=True, data=b"2")
    play = responder() >> frames.RequestStream(stream=2, initial_n=1) << ev.Opened
    play.do(lambda engine: engine.complete(2)) << frames.Response(stream=2, complete=True)
    play.do(lambda engine: engine.send(2, [], complete=True)).quiet()


def test_a_subscription_does_not_complete() -> None:
    """R-35, D-9, SI-17: an application that completes one sends an error; C received ends one."""
    for end in (lambda engine: engine.complete(2), lambda engine: engine.send(2, [], complete=True)):
        play = responder() >> frames.RequestSub(stream=2, initial_n=1) << ev.Opened
        play.do(end) << error(2, 0x21, b"a subscription does not complete")
    play = responder() >> frames.RequestSub(stream=2, initial_n=1) << ev.Opened
    (
        play.do(lambda engine: engine.send(2, [b"1"], complete=True))
        << frames.Response(stream=2, data=b"1")
        << error(2, 0x21)
    )
    play = requester().do(lambda engine: engine.open("subscribe", b"q", credit=2))
    play << frames.RequestSub(stream=2, initial_n=2, data=b"q")
    play >> frames.Response(stream=2, complete=True) << ev.Completed(2)


def test_a_subscription_may_complete_by_a_switch() -> None:
    """I-10: sub_complete."""
    play = responder(dialect=Dialect(sub_complete="pass")) >> frames.RequestSub(stream=2, initial_n=1) << ev.Opened
    play.do(lambda engine: engine.send(2, [b"1"], complete=True)) << frames.Response(stream=2, data=b"1")
    play << frames.Response(stream=2, complete=True)


# -- channels -------------------------------------------------------------------------------------------------------


def test_a_channel_at_its_requester(mode: Any) -> None:
    """R-31, R-33: N on the first frame only; nothing after C."""
    play = requester(mode).do(lambda engine: engine.open("channel", P(b"1"), credit=3)) << CHANNEL
    play >> frames.RequestN(stream=2, n=3) << ev.Granted(2, 3)
    play.do(lambda engine: engine.send(2, [b"2", P(b"3", b"m")])) << frames.RequestChannel(stream=2, data=b"2")
    play << frames.RequestChannel(stream=2, metadata=b"m", data=b"3")
    play >> frames.Response(stream=2, data=b"a") << ev.Items(2, [P(b"a")])
    play.do(lambda engine: engine.complete(2)) << frames.RequestChannel(stream=2, complete=True)
    play.do(lambda engine: engine.send(2, [b"4"])).quiet()
    play >> frames.RequestN(stream=2, n=1) << ignored(0)
    play >> frames.Response(stream=2, complete=True) << ev.Completed(2)


def test_a_channel_of_one_item() -> None:
    play = requester().do(lambda engine: engine.open("channel", b"1", credit=1, complete=True))
    play << frames.RequestChannel(stream=2, initial_n=1, complete=True, data=b"1")
    play = responder() >> frames.RequestChannel(stream=2, initial_n=1, complete=True, follows=True, data=b"1")
    play << ev.Opened(2, "channel", P(b"1"), 1, True)
    play >> frames.RequestChannel(stream=2, data=b"2") << ignored(10, "R-36")


@pytest.mark.parametrize("last", [{}, {"data": b"z"}])
def test_the_responder_ends_both_directions(last: Any) -> None:
    """R-34 at the requester: what it still wanted to send is dropped."""
    play = asked("channel", requester(mtu=64)) >> frames.RequestN(stream=2, n=3) << ev.Granted
    play.engine.send(2, [bytes(200)])
    play >> frames.Response(stream=2, complete=True, **last) << ev.Canceled(2, False)
    play << (ev.Items(2, [P(b"z")], True) if last else ev.Completed(2))
    play.do(lambda engine: engine.send(2, [b"2"])).quiet()


@pytest.mark.parametrize("payloads", [[], [b"z"]])
def test_a_responder_that_completes_gets_the_end_of_its_inbound_side(payloads: list[bytes]) -> None:
    """R-34: as cancelled; items that were under way cost the peer nothing."""
    play = responder() >> CHANNEL << ev.Opened(2, "channel", P(b"1"), 3, False)
    play.do(lambda engine: engine.send(2, payloads, complete=True))
    play << frames.Response(stream=2, complete=True, data=b"".join(payloads))
    assert play.engine.deadline == 0.0
    play.at(0.0) << failed(2, Canceled, rule="R-34")
    play >> frames.RequestChannel(stream=2, data=b"2") << ignored(0)


@pytest.mark.parametrize("leaves", [lambda engine: engine.cancel(2), lambda engine: engine.fail(2, ValueError())])
@pytest.mark.parametrize("payloads", [[], [b"z"], [b""]])
def test_no_end_is_reported_for_a_stream_the_application_left(payloads: list[bytes], leaves: Any) -> None:
    """R-34: the application leaves the stream before it is told that its inbound half is over."""
    play = responder() >> CHANNEL << ev.Opened
    play >> frames.RequestChannel(stream=4, initial_n=3, data=b"1") << ev.Opened
    play.engine.send(2, payloads, complete=True)
    play.engine.complete(4)
    play.do(leaves) << frames.Response
    play = play << frames.Response if payloads == [b""] else play
    play << frames.Response(stream=4, complete=True)
    assert play.engine.deadline == 0.0
    play.at(0.0) << failed(4, Canceled, rule="R-34")
    play.quiet()


def test_an_empty_item_and_the_end(mode: Any) -> None:
    """R-30, D-8: together they would be the end alone, so they leave one after the other; an answer is an item."""
    empty, with_metadata = frames.Response(stream=2), frames.Response(stream=2, complete=True, metadata=b"")
    end = frames.Response(stream=2, complete=True)
    for begin in (frames.RequestStream(stream=2, initial_n=3), CHANNEL):
        play = responder(mode) >> begin << ev.Opened
        play.do(lambda engine: engine.send(2, [b"a", P()], complete=True))
        play << frames.Response(stream=2, data=b"a") << empty << end
        play = responder(mode) >> begin << ev.Opened
        play.do(lambda engine: engine.send(2, [b"", P(b"", b"")], complete=True)) << empty << with_metadata
    play = responder(mode) >> frames.RequestResponse(stream=2) << ev.Opened
    play.do(lambda engine: engine.send(2, [b""], complete=True)) << end
    play = asked("channel", requester(mode)) >> frames.RequestN(stream=2, n=3) << ev.Granted
    play.do(lambda engine: engine.send(2, [b""], complete=True)) << frames.RequestChannel(stream=2)
    play << frames.RequestChannel(stream=2, complete=True)
    play = asked("stream", requester(mode)) >> (empty, end)
    play = play << ev.Items(2, [P()]) << ev.Completed(2)


@pytest.mark.parametrize("size", [0, 4])
def test_an_empty_item_and_the_end_for_java(size: int) -> None:
    """I-1: with N in every frame nothing of a last item is stray."""
    play = asked("channel", requester(dialect=Dialect(java_compat=True))) >> frames.RequestN(stream=2, n=3)
    play << ev.Granted
    play.engine.send(2, [bytes(size)], complete=True)
    data = drained(play.engine)
    play = responder(dialect=Dialect(java_compat=True)) >> CHANNEL << ev.Opened
    play.do(lambda engine: engine.request(2, 4)) << frames.RequestN
    play >> data
    events = list(play.events)
    play.events.clear()
    assert [payload for event in events for payload in getattr(event, "payloads", ())] == [P(bytes(size))]
    assert events[-1] == (ev.Completed(2) if not size else ev.Items(2, [P(bytes(size))], True))


def test_a_channel_at_its_responder(mode: Any) -> None:
    """R-32, D-7: the first REQUEST_N is one less, and never 0; C completes the inbound half."""
    play = responder(mode) >> CHANNEL << ev.Opened
    play.do(lambda engine: engine.request(2, 1)).quiet()
    play.do(lambda engine: engine.request(2, 12)) << frames.RequestN(stream=2, n=12)
    play >> tuple(frames.RequestChannel(stream=2, data=b"%d" % n) for n in range(2)) << ev.Items
    play = play << ev.Items if mode == "bytewise" else play
    play >> frames.RequestChannel(stream=2, complete=True, data=b"end") << ev.Items(2, [P(b"end")], True)
    play >> frames.RequestChannel(stream=2, data=b"5") << ignored(10, "R-36")
    play.do(lambda engine: engine.send(2, [b"a"], complete=True)) << frames.Response(stream=2, complete=True, data=b"a")
    assert play.engine.deadline is not None
    play.at(0.0).quiet()


def test_channel_items_beyond_credit() -> None:
    """3.4, D-7: ERROR[CANCELED], both directions."""
    play = responder() >> CHANNEL << ev.Opened
    (
        play
        >> frames.RequestChannel(stream=2, data=b"2")
        << ignored(50)
        << error(2, 0x23)
        << failed(2, RemoteProtocolError)
    )


def test_fragments_that_were_under_way() -> None:
    """SI-07: those of one payload are free, beside the items; those after the peer's own end are not."""
    limits = Limits.server().replace(fragments=3, cancel_race_frames=2)
    part = frames.RequestChannel(stream=2, follows=True, data=bytes(99))
    play = responder(limits=limits) >> CHANNEL << ev.Opened
    play.do(lambda engine: engine.cancel(2)).quiet()
    for _ in range(5):
        play >> part << ignored(0, "SI-07")
    play >> part << ignored(10, "R-36")
    play = asked("stream", requester(limits=limits), credit=1).do(lambda engine: engine.cancel(2))
    play << frames.Cancel(stream=2)
    part = frames.Response(stream=2, follows=True, data=bytes(99))
    for _ in range(5):
        play >> part << ignored(0, "SI-07")
    play >> part << ignored(1, "R-36")
    play = responder() >> frames.RequestChannel(stream=2, initial_n=1, complete=True, data=b"1") << ev.Opened
    play >> frames.RequestChannel(stream=2, follows=True, data=b"2") << ignored(10, "R-36")


def test_frames_of_the_wrong_side_are_ignored() -> None:
    """3.3, 3.4: RESPONSE from a requester, REQUEST_CHANNEL from a responder, CANCEL at a requester, ERROR at a
    responder, a second opening (R-36)."""
    play = responder() >> CHANNEL << ev.Opened
    play >> frames.Response(stream=2, data=b"?") << ignored(10, "R-36")
    play >> frames.ErrorFrame(stream=2, code=0x21) << ignored(10, "R-36")
    play >> CHANNEL << ignored(10, "R-36")
    play >> frames.RequestResponse(stream=4) << ev.Opened
    play >> frames.RequestN(stream=4, n=1) << ignored(1, "R-36")
    play = asked("channel") >> frames.RequestChannel(stream=2, data=b"?") << ignored(10, "R-36")
    play >> frames.Cancel(stream=2) << ignored(10, "R-36")
    play >> frames.RequestN(stream=2, n=0x7FFFFFFF) << ev.Granted
    play >> raw(9, 0, 2, bytes(4)) << ignored(0)


def test_a_requester_fails_by_cancel() -> None:
    """D-13."""
    play = asked("channel").do(lambda engine: engine.fail(2, ValueError())) << frames.Cancel(stream=2)
    play >> frames.Response(stream=2, data=b"late") << ignored(0)


def test_a_responder_stops_taking_without_a_word() -> None:
    """D-16: the text has no frame for it; what comes within credit is free."""
    play = responder() >> CHANNEL << ev.Opened
    play.do(lambda engine: engine.request(2, 3)) << frames.RequestN(stream=2, n=2)
    play.do(lambda engine: engine.cancel(2)).do(lambda engine: engine.cancel(2)).quiet()
    play >> frames.RequestChannel(stream=2, data=b"2") << ignored(0)
    play >> frames.RequestChannel(stream=2, follows=True, data=b"2") << ignored(0)
    play.do(lambda engine: engine.request(2, 3)).quiet()
    play.do(lambda engine: engine.send(2, [b"a"], complete=True)) << frames.Response(stream=2, complete=True, data=b"a")


def test_half_close() -> None:
    """D-16, I-11: RSocket's rows, with RESPONSE C and REQUEST_CHANNEL C."""
    play = asked("channel", half(requester, mtu=64)) >> frames.RequestN(stream=2, n=9) << ev.Granted
    play >> frames.Response(stream=2, complete=True) << ev.Completed(2)
    play.do(lambda engine: engine.send(2, [b"2"], complete=True))
    play << frames.RequestChannel(stream=2, complete=True, data=b"2")
    play = half(responder) >> CHANNEL << ev.Opened
    play.do(lambda engine: engine.request(2, 3)) << frames.RequestN(stream=2, n=2)
    play.do(lambda engine: engine.send(2, [b"a"], complete=True)) << frames.Response(stream=2, complete=True, data=b"a")
    play >> frames.RequestChannel(stream=2, data=b"2") << ev.Items(2, [P(b"2")])
    play.do(lambda engine: engine.cancel(2)) << frames.Cancel(stream=2)
    play = half(responder) >> CHANNEL << ev.Opened
    play >> frames.ErrorFrame(stream=2, code=0x21, data=b"x") << failed(2, ApplicationError)
    play = asked("channel", half(requester)).do(lambda engine: engine.fail(2, ValueError())) << error(2, 0x21)


def test_half_close_keeps_the_credit_behind_a_payload_that_is_dropped() -> None:
    play = asked("channel", half(requester, mtu=64)) >> frames.RequestN(stream=2, n=9) << ev.Granted
    engine = play.engine
    engine.send(2, [b"1"])
    engine.send(2, [bytes(500)])
    engine.request(2, 5)
    play >> frames.Cancel(stream=2) << ev.Canceled(2, False)
    play << frames.RequestChannel(stream=2, data=b"1") << frames.RequestN(stream=2, n=5)
    engine.request(2, 5)
    play >> frames.Cancel(stream=2) << frames.RequestN << ignored(0)


# -- fragments ------------------------------------------------------------------------------------------------------


def glued(parts: list[Any]) -> Payload:
    metadata = [part.metadata for part in parts if part.metadata is not None]
    return P(b"".join(part.data for part in parts), b"".join(metadata) if metadata else None)


@pytest.mark.parametrize(
    "payload", [P(bytes(range(200))), P(b"d" * 90, b"m" * 120), P(b"", b"m" * 48), P(b"d", b"m" * 49)]
)
@pytest.mark.parametrize("role", ["requester", "responder"])
def test_items_are_cut_and_put_together(payload: Payload, role: str) -> None:
    """R-42, R-43, R-44, FG-22: F on all but the last, metadata first, C on the last."""
    if role == "responder":
        play, peer = responder(mtu=64) >> frames.RequestStream(stream=2, initial_n=1) << ev.Opened, asked("stream")
    else:
        play, peer = asked("channel", requester(mtu=64)), responder() >> CHANNEL << ev.Opened
        play >> frames.RequestN(stream=2, n=1) << ev.Granted
        peer.do(lambda engine: engine.request(2, 2)) << frames.RequestN
    play.do(lambda engine: engine.send(2, [payload], complete=True))
    parts, play.sent = list(play.sent), type(play.sent)()
    assert [part.follows for part in parts] == [True] * (len(parts) - 1) + [False]  # type: ignore[attr-defined]
    assert [part.complete for part in parts] == [False] * (len(parts) - 1) + [True]  # type: ignore[attr-defined]
    assert all(part.encoded_size <= 60 for part in parts)
    assert glued(parts) == payload
    peer >> tuple(parts) << ev.Items(2, [payload], True)


def test_a_request_that_opens_a_channel_is_cut() -> None:
    """R-31, R-42, D-5: N on the first frame only."""
    play = requester(mtu=64).do(lambda engine: engine.open("channel", bytes(100), credit=3))
    parts, play.sent = list(play.sent), type(play.sent)()
    assert [part.initial_n for part in parts] == [3, None]  # type: ignore[attr-defined]
    peer = responder() >> tuple(parts) << ev.Opened(2, "channel", P(bytes(100)), 3, False)
    last = frames.RequestChannel(stream=4, complete=True)
    peer >> (frames.RequestChannel(stream=4, initial_n=1, follows=True, data=bytes(60)), last)
    peer << ev.Opened(4, "channel", P(bytes(60)), 1, True)


def test_a_request_that_is_cut_is_not_torn_by_a_cancel() -> None:
    play = requester(mtu=64)
    play.engine.open("channel", bytes(100), credit=3)
    play.do(lambda engine: engine.cancel(2)) << frames.RequestChannel << frames.Cancel(stream=2)


def test_other_requests_leave_whole_or_not_at_all() -> None:
    """R-42: above the MTU one frame, above what a peer takes none."""
    play = requester(mtu=64)
    for verb, credit in (("request", 0), ("fire", 0), ("stream", 1), ("subscribe", 1)):
        play.do(lambda engine, verb=verb, credit=credit: engine.open(verb, bytes(5000), credit=credit))
        assert play.sent.popleft().data == bytes(5000)  # type: ignore[attr-defined]
        with pytest.raises(LimitExceeded):
            play.engine.open(verb, bytes(Limits.server().frame_bytes), credit=credit)
    with pytest.raises(LimitExceeded):
        play.engine.ask([P(b"", bytes(Limits.server().frame_bytes))])


def test_fragments_of_the_other_kind() -> None:
    """R-7: F on a request is not assigned. A RESPONSE is no fragment of a channel's request (3.5)."""
    play = responder() >> raw(4, 0x2000, 2, b"q") << ev.Opened(2, "request", P(b"q"), 1, False)
    play >> frames.RequestChannel(stream=4, initial_n=1, follows=True, data=bytes(99))
    play >> frames.Response(stream=4, data=b"?") << ignored(1, "R-36")
    play >> frames.RequestChannel(stream=4, data=b"!") << ev.Opened(4, "channel", P(bytes(99) + b"!"), 1, False)


def test_cancel_and_error_drop_what_is_collected() -> None:
    """3.5, FG-06."""
    play = responder() >> frames.RequestChannel(stream=2, initial_n=1, follows=True, data=bytes(99))
    play >> frames.Cancel(stream=2)
    play >> frames.RequestChannel(stream=2, data=b"!") << ignored(1)
    play = asked("stream") >> frames.Response(stream=2, follows=True, data=bytes(99))
    play >> frames.ErrorFrame(stream=2, code=0x21) << failed(2, ApplicationError)


def test_a_payload_that_is_too_large() -> None:
    """R-45, FG-01: ERROR[REJECTED] at a responder, CANCEL at a requester; the rest is swallowed."""
    tiny = Limits.tiny()
    part = bytes(tiny.frame_bytes - 100)
    more = frames.Response(stream=2, follows=True, data=part)
    play = asked("stream", requester(limits=tiny)) >> (more, more, more) << frames.Cancel(stream=2)
    play << failed(2, LimitExceeded, rule="payload-too-large")
    play >> more << ignored(0)
    play = responder(limits=tiny) >> frames.RequestChannel(stream=2, initial_n=1, follows=True, data=part)
    item = frames.RequestChannel(stream=2, follows=True, data=part)
    play >> (item, item) << error(2, 0x22, b"payload-too-large")
    play >> item << ignored(0)


def test_metadata_after_data() -> None:
    """R-43, D-5, FG-08."""
    first = frames.RequestChannel(stream=2, initial_n=1, follows=True, data=bytes(99))
    play = responder() >> (first, frames.RequestChannel(stream=2, metadata=b"m")) << error(2, 0x24)
    play = asked("stream") >> frames.Response(stream=2, follows=True, data=bytes(99))
    (
        play
        >> frames.Response(stream=2, metadata=b"m")
        << frames.Cancel(stream=2)
        << failed(2, RemoteProtocolError, rule="R-43")
    )


def test_fragments_without_progress_and_without_end() -> None:
    """FG-02, FG-04."""
    play = asked("stream") >> (frames.Response(stream=2, follows=True),) * 3 << ignored(20) << ignored(20)
    play.at(30.0) << frames.Keepalive << frames.Cancel(stream=2) << failed(2, LimitExceeded, rule="reassembly-timeout")


def test_a_fragmented_request_that_comes_when_all_handlers_run() -> None:
    """SI-16."""
    limits = Limits.tiny(pending_streams=0)
    play = responder(limits=limits) >> frames.RequestChannel(stream=2, initial_n=1, follows=True, data=bytes(99))
    for id in range(4, 36, 2):
        play >> frames.RequestStream(stream=id, initial_n=1) << ev.Opened
    play >> frames.RequestStream(stream=36, initial_n=1) << ignored(1) << error(36, 0x22, b"too-many-streams")
    play >> frames.RequestChannel(stream=2) << ignored(0) << error(2, 0x22, b"too-many-streams")


def test_many_items_leave_in_chunks() -> None:
    play = asked("channel") >> frames.RequestN(stream=2, n=100) << ev.Granted
    items: list[Any] = [b"a", P(b"bb"), b"cc", bytes(4000), P(b"m", b"m"), *[bytes(4000)] * 40, bytes(5000), b"z"]
    play.do(lambda engine: engine.send(2, items, complete=True))
    datas = [frame.data for frame in play.sent]  # type: ignore[attr-defined]
    assert datas == [item if isinstance(item, bytes) else item.data for item in items]
    assert play.sent[-1].complete  # type: ignore[attr-defined]
    play = responder() >> frames.RequestStream(stream=2, initial_n=9) << ev.Opened
    play.do(lambda engine: engine.send(2, [bytes(4096)] * 3)) << frames.Response << frames.Response << frames.Response
    play = responder() >> frames.RequestStream(stream=2, initial_n=40) << ev.Opened
    play.do(lambda engine: engine.send(2, [bytes(4096)] * 17))
    assert len(play.sent) == 17


def test_ids_run_out_and_begin_again() -> None:
    """SI-06, R-13."""
    play = requester()
    play.engine.stream_table.ids.restore([0x7FFFFFFE, 0])
    assert play.engine.ask([P(), P()]) == [0x7FFFFFFE, 2]
    play.engine.stream_table.ids = StreamIds(2, 2)
    with pytest.raises(LimitExceeded):
        play.engine.ask([P()])
    with pytest.raises(LocalProtocolError) as caught:
        play.engine.open("nothing", b"")
    assert caught.value.rule == "2.3"
    for verb, credit in (("stream", 0), ("channel", 1 << 31)):
        with pytest.raises(LocalProtocolError) as caught:
            play.engine.open(verb, b"", credit=credit)
        assert caught.value.rule == "D-7"
    with pytest.raises(LocalProtocolError) as caught:
        play.engine.request(2, 1)
    assert caught.value.rule == "R-28"


def test_asking_stops_where_ids_do() -> None:
    play = requester()
    play.engine.stream_table.ids = StreamIds(2, 4)
    assert play.engine.ask([P(), P(), P()]) == [2, 4]


WHOLE = Limits.server(payload_bytes=100_000)
ASKS: dict[Any, dict[str, int]] = {
    frames.RequestResponse: {},
    frames.RequestFnf: {},
    frames.RequestStream: {"initial_n": 1},
    frames.RequestSub: {"initial_n": 1},
    frames.RequestChannel: {"initial_n": 1},
}


@pytest.mark.parametrize("kind", ASKS)
@pytest.mark.parametrize("metadata", [None, b"m" * 9])
def test_a_request_in_one_frame(kind: Any, metadata: bytes | None) -> None:
    """R-45: at the limit it is served; above it is refused as a payload, and the connection goes on."""
    play = responder(limits=WHOLE)
    data = bytes(WHOLE.payload_bytes - len(metadata or b""))
    play >> kind(stream=2, data=data, metadata=metadata, **ASKS[kind]) << (ev.Opened, {"payload": P(data, metadata)})
    play >> kind(stream=4, data=data + b"x", metadata=metadata, **ASKS[kind])
    if kind is not frames.RequestFnf:
        play << error(4, 0x22, b"payload-too-large")
    play >> kind(stream=6, data=b"next", **ASKS[kind]) << ev.Opened
    play.quiet()


@pytest.mark.parametrize("verb", ["request", "stream", "channel"])
@pytest.mark.parametrize("complete", [False, True])
def test_an_item_in_one_frame(verb: str, complete: bool) -> None:
    """R-45."""
    play = requester(limits=WHOLE)
    for large in (0, 1):
        stream: Any = play.engine.open(verb, b"", credit=0 if verb == "request" else 5)
        play.collect([])
        play.sent.clear()
        play >> frames.Response(stream=stream, complete=complete, data=bytes(WHOLE.payload_bytes + large))
        if large:
            play << frames.Cancel(stream=stream) << failed(stream, LimitExceeded, rule="payload-too-large")
        else:
            play.events = type(play.events)(e for e in play.events if not isinstance(e, ev.Canceled))
            play << (ev.Items, {"stream": stream})
    play.quiet()


def test_an_item_in_one_frame_at_a_responder() -> None:
    """R-45."""
    play = responder(limits=WHOLE) >> CHANNEL << ev.Opened
    play.do(lambda engine: engine.request(2, 9)) << frames.RequestN
    play >> frames.RequestChannel(stream=2, data=bytes(WHOLE.payload_bytes)) << ev.Items
    play >> frames.RequestChannel(stream=2, data=bytes(WHOLE.payload_bytes + 1))
    play << error(2, 0x22, b"payload-too-large") << failed(2, LimitExceeded, rule="payload-too-large")


# -- dialects -------------------------------------------------------------------------------------------------------


def test_java_writes_n_always() -> None:
    """I-1, java_compat: N in every REQUEST_CHANNEL both ways, and 4 stray bytes in a bare completion."""
    java = Dialect(java_compat=True)
    play = asked("channel", requester(dialect=java, mtu=64)) >> frames.RequestN(stream=2, n=9) << ev.Granted
    play.do(lambda engine: engine.send(2, [b"2", b"3"])) << frames.RequestChannel(stream=2, initial_n=0, data=b"2")
    play << frames.RequestChannel(stream=2, initial_n=0, data=b"3")
    play.do(lambda engine: engine.complete(2)) << frames.RequestChannel(stream=2, initial_n=0, complete=True)
    play.do(lambda engine: engine.open("channel", bytes(90), credit=1))
    assert [frame.initial_n for frame in play.sent] == [1, 0]  # type: ignore[attr-defined]
    peer = responder(dialect=java) >> tuple(play.sent) << ev.Opened(4, "channel", P(bytes(90)), 1, False)
    peer.do(lambda engine: engine.request(4, 5)) << frames.RequestN(stream=4, n=4)
    peer >> frames.RequestChannel(stream=4, initial_n=7, data=b"2") << ev.Items(4, [P(b"2")])
    peer >> raw(8, 0x1000, 4, bytes(4)) << ev.Completed(4)
    peer >> frames.RequestChannel(stream=6, initial_n=1, complete=True, data=b"1234") << ev.Opened
    play.sent.clear()


def test_late_frames_of_java_open_nothing(mode: Any) -> None:
    """I-1: an item that crosses the end of its channel has an N too; what asks for a channel has a new id."""
    java = Dialect(java_compat=True)
    play = responder(mode, Limits.server().replace(tombstones=1), dialect=java)
    play >> CHANNEL << ev.Opened
    play.do(lambda engine: engine.complete(2)) << frames.Response(stream=2, complete=True)
    play.do(lambda engine: engine.release(2)).at(0.0) << failed(2, Canceled)
    late = frames.RequestChannel(stream=2, initial_n=0, data=b"2")
    play >> late << ignored(0, "SI-07")
    play >> frames.RequestChannel(stream=2, initial_n=9, complete=True, data=b"2") << ignored(0, "SI-07")
    play >> frames.RequestChannel(stream=4, initial_n=1, data=b"1") << ev.Opened
    play.do(lambda engine: engine.fail(4, ValueError())) << error(4, 0x21)  # 2 is forgotten, not what it may be sent
    play >> late << ignored(0, "SI-07")
    play >> raw(8, 0x0800, 6, bytes(4)) << error(6, 0x24, b"request-n-zero")
    play = responder(mode, dialect=java) >> frames.RequestResponse(stream=4) << ev.Opened
    play >> late << ignored(1, "R-36")
    play >> frames.RequestChannel(stream=2, initial_n=1) << ev.Opened


def test_numbers_of_errors() -> None:
    """I-5: error_codes."""
    later = Dialect(error_codes="0.1")
    play = responder(dialect=later) >> frames.RequestResponse(stream=2) << ev.Opened
    play.do(lambda engine: engine.fail(2, Rejected("no"))) << error(2, 0x202)
    play.do(lambda engine: engine.close(0.0)) << error(0, 0x101) << ev.Closed
    play = (
        asked("request", requester(dialect=later))
        >> frames.ErrorFrame(stream=2, code=0x202)
        << failed(2, Rejected, code=0x22)
    )
    play >> frames.ErrorFrame(stream=0, code=0x101) << (ev.Closed, {"error.code": 0x11})


@pytest.mark.parametrize("verb", ["request", "fire", "stream", "subscribe", "channel"])
def test_requests_in_fragments(verb: str) -> None:
    """I-6, fragment_requests: frames of the same type."""
    later = Dialect(fragment_requests=True)
    play = requester(dialect=later, mtu=64)
    credit = 0 if verb in ("request", "fire") else 2
    play.do(lambda engine: engine.open(verb, P(bytes(100), b"m" * 50), credit=credit))
    parts, play.sent = list(play.sent), type(play.sent)()
    assert len(parts) > 2
    assert len({type(part) for part in parts}) == 1
    responder(dialect=later) >> tuple(parts) << (ev.Opened, {"payload": P(bytes(100), b"m" * 50)})
    play.do(lambda engine: engine.ask([P(bytes(100))]) and None)
    responder(dialect=later) >> tuple(play.sent) << (ev.Opened, {"payload": P(bytes(100)), "verb": "request"})
    play.sent.clear()


def test_a_fragmented_request_that_is_refused() -> None:
    later = Dialect(fragment_requests=True)
    play = responder(limits=Limits.tiny(pending_streams=0), dialect=later)
    part = frames.RequestFnf(stream=2, follows=True, data=bytes(60_000))
    play >> (part, part, part)  # silently: it is never answered
    play >> part << ignored(0)
    play >> frames.RequestFnf(stream=2) << ignored(0)  # the last of it
    play >> frames.RequestFnf(stream=2) << ev.Opened
    for id in range(4, 36, 2):
        play >> frames.RequestStream(stream=id, initial_n=1) << ev.Opened
    begin = frames.RequestStream(stream=36, initial_n=1, follows=True, data=bytes(99))
    play >> begin << ignored(1) << error(36, 0x22)
    play >> (begin, begin) << ignored(0) << ignored(0)


@pytest.mark.parametrize("verb", ["request", "fire", "stream", "subscribe", "channel"])
def test_the_tail_of_a_refused_request_opens_nothing(verb: str) -> None:
    """FG-01: it is dropped to its last fragment, also beyond the fragments that one payload may have."""
    limits = Limits.server().replace(fragments=4)
    play = responder(limits=limits, dialect=Dialect(fragment_requests=True))
    kinds: dict[str, Any] = {
        "request": frames.RequestResponse,
        "fire": frames.RequestFnf,
        "stream": frames.RequestStream,
        "subscribe": frames.RequestSub,
        "channel": frames.RequestChannel,
    }
    kind = kinds[verb]
    more = {"initial_n": 3} if verb in ("stream", "subscribe") else {}
    first = more if verb != "channel" else {"initial_n": 3}
    play >> kind(stream=2, follows=True, data=bytes(64), **first)
    part = kind(stream=2, follows=True, data=bytes(64), **more)
    play >> (part, part, part)
    play >> part
    if verb != "fire":
        play << error(2, 0x22, b"too-many-fragments")
    for _ in range(20):
        play >> part << ignored(0)
    play >> kind(stream=2, data=b"tail", **more) << ignored(0)  # the last one
    play >> kind(stream=2, data=b"new", **first) << ev.Opened  # and from here on the id is free


def test_the_tail_of_a_refused_request_ends_with_a_cancel() -> None:
    """FG-01, FG-02: until then fragments without progress have a price."""
    limits = Limits.tiny().replace(fragments=2)
    play = responder(limits=limits, dialect=Dialect(fragment_requests=True))
    part = frames.RequestResponse(stream=2, follows=True, data=bytes(64))
    small = frames.RequestResponse(stream=2, follows=True, data=b"s")
    play >> (part, part, part) << error(2, 0x22, b"too-many-fragments")
    play >> small << ignored(0) >> small << ignored(0) >> small << ignored(1)
    play >> frames.Cancel(stream=2) << ignored(1)
    play >> frames.RequestResponse(stream=2, data=b"new") << ev.Opened


def test_a_canceled_channel_of_java_sends_no_broken_fragment() -> None:
    """I-1, R-38: N in an item does not make it a request; nothing of a payload that waits leaves after a cancel."""
    dialect = Dialect(java_compat=True, channel_half_close=True)
    play = asked("channel", requester(dialect=dialect, mtu=64)) >> frames.RequestN(stream=2, n=9) << ev.Granted
    engine = play.engine
    engine.send(2, [bytes(500)])
    play >> frames.Cancel(stream=2) << ev.Canceled(2, False)  # the peer cancels: only this half is over
    play.quiet()
    play = asked("channel", requester(dialect=Dialect(java_compat=True), mtu=64))
    play >> frames.RequestN(stream=2, n=9) << ev.Granted
    play.engine.send(2, [bytes(500)])
    play.do(lambda engine: engine.cancel(2)) << frames.Cancel(stream=2)
    play.quiet()


def test_credit_of_a_java_channel_does_not_wait_behind_its_item() -> None:
    """Only credit overtakes a payload that is being cut, in the dialect of Java too."""
    play = asked("channel", requester(dialect=Dialect(java_compat=True), mtu=64))
    play >> frames.RequestN(stream=2, n=9) << ev.Granted
    play.engine.send(2, [bytes(500)])
    play.do(lambda engine: engine.request(2, 4)) << frames.RequestN(stream=2, n=4)
    assert {type(frame) for frame in play.sent} == {frames.RequestChannel}
    play.sent.clear()


def test_dialects_of_an_address() -> None:
    assert Dialect.of("java,half-close") == Dialect(java_compat=True, channel_half_close=True)
    assert Dialect.of("odd-client,codes-0.1,fragment-requests,sub-complete") == Dialect(
        client_parity="odd", error_codes="0.1", fragment_requests=True, sub_complete="pass"
    )
    assert str(Dialect.of("half-close,java")) == "java,half-close"
    with pytest.raises(ValueError, match="words of: java"):
        Dialect.of("cobol")
