"""Conversations about streams: interactions, credit, cancel, errors, fragments (sections 3.4 to 3.6)."""

from __future__ import annotations

import pytest

from afflux.core import events as ev
from afflux.core.errors import (
    ApplicationError,
    Canceled,
    ConnectionClosed,
    Invalid,
    LimitExceeded,
    LocalProtocolError,
    Rejected,
    RemoteProtocolError,
)
from afflux.core.limits import Limits
from afflux.core.payload import Payload
from afflux.protocols.rsocket import frames

from .playbook import Mode, Playbook, closed, error, failed, ignored, requester, responder

P = frames.PayloadFrame


def item(stream: int, data: bytes, metadata: bytes | None = None, complete: bool = False) -> frames.PayloadFrame:
    return P(stream=stream, next=True, complete=complete, metadata=metadata, data=data)


def last(stream: int) -> frames.PayloadFrame:
    return P(stream=stream, complete=True, data=b"")


def stream_responder(mode: Mode = "whole", n: int = 3, limits: Limits | None = None) -> Playbook:
    play = responder(mode, limits) >> frames.RequestStream(stream=1, initial_n=n, data=b"go")
    return play << ev.Opened(1, "stream", Payload(b"go"), n, False)


def channel_responder(mode: Mode = "whole", n: int = 3, limits: Limits | None = None) -> Playbook:
    play = responder(mode, limits) >> frames.RequestChannel(stream=1, initial_n=n, data=b"go")
    return play << ev.Opened(1, "channel", Payload(b"go"), n, False)


def stream_requester(mode: Mode = "whole", credit: int = 3, limits: Limits | None = None, **options: bool) -> Playbook:
    play = requester(mode, limits).do(lambda engine: engine.open("stream", b"go", credit=credit, **options))
    return play << frames.RequestStream(stream=1, initial_n=credit, data=b"go")


def channel_requester(mode: Mode = "whole", credit: int = 3, complete: bool = False) -> Playbook:
    play = requester(mode).do(lambda engine: engine.open("channel", b"go", credit=credit, complete=complete))
    return play << frames.RequestChannel(stream=1, initial_n=credit, complete=complete, data=b"go")


# -- request/response ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("metadata", [None, b"", b"m"])
def test_request_is_answered(mode: Mode, metadata: bytes | None) -> None:
    play = responder(mode) >> frames.RequestResponse(stream=1, metadata=metadata, data=b"ping")
    play << ev.Opened(1, "request", Payload(b"ping", metadata), 1, False)
    play.do(lambda engine: engine.send(1, [Payload(b"pong", metadata)]))
    play << item(1, b"pong", metadata, complete=True)
    play.quiet()


@pytest.mark.parametrize("metadata", [None, b"", b"m"])
@pytest.mark.parametrize("complete", [True, False], ids=["complete", "R-23"])
def test_answer_is_received(mode: Mode, metadata: bytes | None, complete: bool) -> None:
    play = requester(mode).do(lambda engine: engine.open("request", Payload(b"ping", metadata)))
    play << frames.RequestResponse(stream=1, metadata=metadata, data=b"ping")
    play >> item(1, b"pong", metadata, complete) << ev.Items(1, [Payload(b"pong", metadata)], True)
    play >> item(1, b"pong") << ignored(1)
    play.quiet()


def test_answer_without_an_item() -> None:
    play = requester().do(lambda engine: engine.open("request", b"ping")) << frames.RequestResponse
    play >> last(1) << ev.Completed(1)
    play = responder() >> frames.RequestResponse(stream=1, data=b"") << ev.Opened
    play.do(lambda engine: engine.complete(1)) << last(1)
    play.do(lambda engine: engine.complete(1)).quiet()


def test_answer_is_one_item() -> None:
    play = responder() >> frames.RequestResponse(stream=1, data=b"") << ev.Opened
    with pytest.raises(LocalProtocolError, match="credit for 1"):
        play.engine.send(1, [b"a", b"b"])
    play.do(lambda engine: engine.send(1, [b"a"])) << item(1, b"a", complete=True)
    play.do(lambda engine: engine.send(1, [b"b"])).quiet()


def test_request_n_for_a_request_is_charged() -> None:
    play = responder() >> frames.RequestResponse(stream=1, data=b"") << ev.Opened
    play >> frames.RequestN(stream=1, n=1) << ignored(1)
    play = requester().do(lambda engine: engine.open("request", b"ping")) << frames.RequestResponse
    with pytest.raises(LocalProtocolError):
        play.engine.request(1, 1)


def test_request_is_canceled() -> None:
    play = requester().do(lambda engine: engine.open("request", b"ping")) << frames.RequestResponse
    play.do(lambda engine: engine.cancel(1)) << frames.Cancel(stream=1)
    play >> item(1, b"late") << ignored(0)
    play = responder() >> frames.RequestResponse(stream=1, data=b"") << ev.Opened
    play >> frames.Cancel(stream=1) << ev.Canceled(1, True)
    play.do(lambda engine: engine.send(1, [b"late"])).quiet()


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (0x201, ApplicationError),
        (0x202, Rejected),
        (0x203, Canceled),
        (0x204, Invalid),
        (0x301, ApplicationError),
        (0xFFFFFFFE, ApplicationError),
    ],
)
def test_errors_reach_the_caller(mode: Mode, code: int, kind: type) -> None:
    play = requester(mode).do(lambda engine: engine.open("request", b"ping")) << frames.RequestResponse
    play >> frames.ErrorFrame(stream=1, code=code, data=b"why") << failed(1, kind, code=code, message="why")
    play.quiet()


@pytest.mark.parametrize(
    ("raised", "code", "text"),
    [
        (ApplicationError(0x1234, "mine"), 0x1234, b"mine"),
        (ApplicationError(message="mine"), 0x201, b"mine"),
        (Rejected("full"), 0x202, b"full"),
        (Canceled("gone"), 0x203, b"gone"),
        (Invalid("what?"), 0x204, b"what?"),
        (ValueError("a secret"), 0x201, b"application error"),
    ],
)
def test_errors_are_sent(raised: Exception, code: int, text: bytes) -> None:
    play = responder() >> frames.RequestResponse(stream=1, data=b"") << ev.Opened
    play.do(lambda engine: engine.fail(1, raised)) << error(1, code, text)
    play.do(lambda engine: engine.fail(1, raised)).quiet()


# -- fire-and-forget ----------------------------------------------------------------------------------------


def test_fire(mode: Mode) -> None:
    requester(mode).do(lambda engine: engine.open("fire", b"x")) << frames.RequestFnf(stream=1, data=b"x")
    play = responder(mode) >> frames.RequestFnf(stream=1, data=b"x") << ev.Opened(1, "fire", Payload(b"x"), 0, False)
    play >> frames.Cancel(stream=1) << ignored(1)
    play.do(lambda engine: engine.send(1, [b"no"])).quiet()


# -- streams ------------------------------------------------------------------------------------------------


def test_stream_is_served(mode: Mode) -> None:
    play = stream_responder(mode, n=2)
    assert play.engine.credit(1) == 2
    play.do(lambda engine: engine.send(1, [b"a", "b"])) << item(1, b"a") << item(1, b"b")
    with pytest.raises(LocalProtocolError):
        play.engine.send(1, [b"c"])
    play >> frames.RequestN(stream=1, n=5) << ev.Granted(1, 5)
    play.do(lambda engine: engine.send(1, [b"c", Payload(b"d", b"m")], complete=True))
    play << item(1, b"c") << item(1, b"d", b"m", complete=True)
    assert play.engine.credit(1) == 0
    play.quiet()


def test_stream_is_received(mode: Mode) -> None:
    play = stream_requester(mode)
    play >> item(1, b"a") << ev.Items(1, [Payload(b"a")])
    play >> item(1, b"b", b"") << ev.Items(1, [Payload(b"b", b"")])
    play.do(lambda engine: engine.request(1, 1)) << frames.RequestN(stream=1, n=1)
    play >> item(1, b"c") << ev.Items(1, [Payload(b"c")])
    play >> item(1, b"d", complete=True) << ev.Items(1, [Payload(b"d")], True)
    play.do(lambda engine: engine.request(1, 1)).do(lambda engine: engine.cancel(1)).quiet()


def test_items_of_one_read_are_one_event() -> None:
    play = stream_requester(credit=100) >> tuple(item(1, b"%d" % n) for n in range(10, 60))
    play << ev.Items(1, [Payload(b"%d" % n) for n in range(10, 60)])
    play >> (item(1, b"a"), item(1, b"b"), last(1)) << ev.Items(1, [Payload(b"a"), Payload(b"b")]) << ev.Completed(1)
    play.quiet()


def test_columns() -> None:
    data = [b"x" * (n % 3) for n in range(40)] + [b"same"] * 3000 + [b""] * 5
    play = stream_requester(credit=len(data), columnar=True) >> tuple(item(1, each) for each in data)
    (block,) = play.events
    play.events.clear()
    assert isinstance(block, ev.Block)
    assert [block.buffer[a:b] for a, b in zip(block.starts, block.ends, strict=True)] == data
    play >> item(1, b"one more") << ignored(50) << failed(1, RemoteProtocolError, rule="R-27") << frames.Cancel


def test_items_beyond_credit(mode: Mode) -> None:
    """FC-04: the surplus is dropped, the stream is canceled, the connection lives."""
    play = stream_requester(mode, credit=1) >> item(1, b"a") << ev.Items
    play >> item(1, b"b") << ignored(50) << failed(1, RemoteProtocolError, rule="R-27") << frames.Cancel(stream=1)
    play >> item(1, b"c") << ignored(0)
    play = stream_requester(mode, credit=1) >> item(1, b"a") << ev.Items
    play >> P(stream=1, follows=True, next=True, data=b"b") << ignored(50) << failed(1, RemoteProtocolError)
    play << frames.Cancel


def test_credit_is_exact_at_the_largest_n() -> None:
    play = stream_responder(n=0x7FFFFFFF)
    for _ in range(3):
        play >> frames.RequestN(stream=1, n=0x7FFFFFFF) << ev.Granted(1, 0x7FFFFFFF)
    assert play.engine.credit(1) == 4 * 0x7FFFFFFF
    play.do(lambda engine: engine.send(1, [b"a"])) << item(1, b"a")
    assert play.engine.credit(1) == 4 * 0x7FFFFFFF - 1
    for n in (0, -1, 0x80000000):
        with pytest.raises(LocalProtocolError):
            stream_requester().engine.request(1, n)
        with pytest.raises(LocalProtocolError):
            requester().engine.open("stream", b"", credit=n)


def test_credit_of_zero() -> None:
    """FC-01, FC-02."""
    zero = bytes.fromhex("00000a 00000001 1800 00000000")
    responder() >> zero << error(1, 0x204)
    responder() >> bytes.fromhex("00000a 00000001 1c00 00000000") << error(1, 0x204)
    more = bytes.fromhex("00000a 00000001 2000 00000000")
    stream_responder() >> more << failed(1, RemoteProtocolError, rule="FC-02") << error(1, 0x204)
    channel_requester() >> more << failed(1, RemoteProtocolError, rule="FC-02") << error(1, 0x204)


def test_credit_frames_are_budgeted() -> None:
    """FC-08."""
    play = stream_responder()
    for _ in range(7):
        play >> frames.RequestN(stream=1, n=1) << ev.Granted
    play >> frames.RequestN(stream=1, n=1) << ignored(1, "credit_frames") << ev.Granted
    play.do(lambda engine: engine.send(1, [b"a"])) << item(1, b"a")
    play >> frames.RequestN(stream=1, n=1) << ev.Granted
    play.quiet()


def test_stream_fails(mode: Mode) -> None:
    play = stream_requester(mode) >> frames.ErrorFrame(stream=1, code=0x201, data=b"\xff\0bad")
    play << failed(1, ApplicationError)
    play >> frames.ErrorFrame(stream=1, code=0x201, data=b"again") << ignored(10, "SI-10")
    play.quiet()


def test_stream_is_canceled(mode: Mode) -> None:
    play = stream_requester(mode).do(lambda engine: engine.cancel(1)) << frames.Cancel(stream=1)
    for _ in range(256):
        play >> item(1, b"late") << ignored(0)
    play >> item(1, b"late") << ignored(1)
    play = stream_responder(mode) >> frames.Cancel(stream=1) << ev.Canceled(1, True)
    play >> frames.RequestN(stream=1, n=1) << ignored(0)
    play.quiet()


def test_late_credit_for_a_completed_stream_is_free() -> None:
    play = stream_responder().do(lambda engine: engine.complete(1)) << last(1)
    for _ in range(5):
        play >> frames.RequestN(stream=1, n=1) << ignored(0)


def test_credit_frames_that_come_too_late() -> None:
    play = stream_responder().do(lambda engine: engine.complete(1)) << last(1)
    play >> frames.Cancel(stream=1) << ignored(0)


def test_a_payload_with_neither_flag() -> None:
    stream_requester() >> P(stream=1, data=b"x") << ignored(10)


def test_two_streams_keep_their_items_apart() -> None:
    play = requester().do(lambda engine: engine.open("stream", b"", credit=9)) << frames.RequestStream
    play.do(lambda engine: engine.open("stream", b"", credit=9)) << (frames.RequestStream, {"stream": 3})
    play >> (item(1, b"a"), item(3, b"b"), item(1, b"c"))
    play << ev.Items(1, [Payload(b"a")]) << ev.Items(3, [Payload(b"b")]) << ev.Items(1, [Payload(b"c")])


def test_a_server_may_ask_too() -> None:
    play = responder().do(lambda engine: engine.open("request", b"x")) << frames.RequestResponse(stream=2, data=b"x")
    play >> item(2, b"y", complete=True) << ev.Items(2, [Payload(b"y")], True)


# -- channels -----------------------------------------------------------------------------------------------


def test_channel_both_ways(mode: Mode) -> None:
    play = channel_requester(mode)
    assert play.engine.credit(1) == 0
    with pytest.raises(LocalProtocolError):
        play.engine.send(1, [b"early"])
    play >> frames.RequestN(stream=1, n=2) << ev.Granted(1, 2)
    play.do(lambda engine: engine.send(1, [b"a"])) << item(1, b"a")
    play >> item(1, b"A") << ev.Items(1, [Payload(b"A")])
    play >> last(1) << ev.Completed(1)
    play.do(lambda engine: engine.send(1, [b"b"])) << item(1, b"b")
    play.do(lambda engine: engine.complete(1)) << last(1)
    play >> frames.Cancel(stream=1) << ignored(0)
    play.quiet()


def test_channel_responder_counts_the_first_item(mode: Mode) -> None:
    """D-8: the first REQUEST_N carries demand - 1, and waits while that is 0."""
    play = channel_responder(mode)
    play.do(lambda engine: engine.request(1, 1)).quiet()
    play.do(lambda engine: engine.request(1, 1)) << frames.RequestN(stream=1, n=1)
    play >> item(1, b"a") << ev.Items(1, [Payload(b"a")])
    play >> item(1, b"b") << ignored(50) << failed(1, RemoteProtocolError, rule="R-27") << error(1, 0x203)
    play = channel_responder(mode).do(lambda engine: engine.request(1, 8)) << frames.RequestN(stream=1, n=7)
    (status,) = play.engine.streams()
    assert (status.granted, status.outstanding, status.received) == (8, 7, 1)
    play.do(lambda engine: engine.request(1, 8)) << frames.RequestN(stream=1, n=8)


def test_channel_responder(mode: Mode) -> None:
    play = channel_responder(mode).do(lambda engine: engine.request(1, 8)) << frames.RequestN
    play.do(lambda engine: engine.send(1, [b"A"])) << item(1, b"A")
    play >> last(1) << ev.Completed(1)
    play >> item(1, b"late") << ignored(10)
    play.do(lambda engine: engine.send(1, [b"B"])) << item(1, b"B")
    play.do(lambda engine: engine.complete(1)) << last(1)
    play.do(lambda engine: engine.request(1, 1)).do(lambda engine: engine.send(1, [b"C"])).quiet()


def test_channel_responder_completes_first(mode: Mode) -> None:
    play = channel_responder(mode).do(lambda engine: engine.request(1, 8)) << frames.RequestN
    play.do(lambda engine: engine.send(1, [], complete=True)) << last(1)
    play.do(lambda engine: engine.send(1, [b"x"])).do(lambda engine: engine.complete(1)).quiet()
    play >> frames.RequestN(stream=1, n=1) << ignored(0)
    play >> item(1, b"a", complete=True) << ev.Items(1, [Payload(b"a")], True)
    play >> item(1, b"b") << ignored(10, "SI-10")


def test_channel_opens_complete(mode: Mode) -> None:
    play = channel_requester(mode, complete=True) >> item(1, b"A", complete=True) << ev.Items(1, [Payload(b"A")], True)
    play = responder(mode) >> frames.RequestChannel(stream=1, initial_n=1, complete=True, data=b"go")
    play << ev.Opened(1, "channel", Payload(b"go"), 1, True)
    play.do(lambda engine: engine.cancel(1)).quiet()
    play.do(lambda engine: engine.send(1, [b"x"], complete=True)) << item(1, b"x", complete=True)


def test_channel_responder_cancels_inbound() -> None:
    """D-6: the requester's half ends, the responder's goes on."""
    play = channel_responder().do(lambda engine: engine.cancel(1)) << frames.Cancel(stream=1)
    play.do(lambda engine: engine.send(1, [b"x"], complete=True)) << item(1, b"x", complete=True)
    play = channel_responder().do(lambda engine: engine.complete(1)) << last(1)
    play.do(lambda engine: engine.cancel(1)) << frames.Cancel(stream=1)
    play >> item(1, b"late") << ignored(0)


def test_channel_requester_is_stopped() -> None:
    play = channel_requester() >> frames.RequestN(stream=1, n=5) << ev.Granted
    play >> frames.Cancel(stream=1) << ev.Canceled(1, False)
    play >> frames.Cancel(stream=1) << ignored(0)
    play.do(lambda engine: engine.send(1, [b"x"])).quiet()
    play >> last(1) << ev.Completed(1)
    play = channel_requester() >> last(1) << ev.Completed(1)
    play >> frames.Cancel(stream=1) << ev.Canceled(1, True)


def test_more_cancels_than_can_race() -> None:
    """They are free as often as a cancel may be under way; then each costs."""
    play = channel_requester().do(lambda engine: engine.complete(1)) << last(1)
    for _ in range(play.engine.limits.cancel_race_frames):
        play >> frames.Cancel(stream=1) << ignored(0, "R-31")
    play >> frames.Cancel(stream=1) << ignored(1, "cancel_race_frames")


def test_nothing_sent_is_nothing() -> None:
    stream_responder().do(lambda engine: engine.send(1, [])).quiet()


def test_channel_requester_ends() -> None:
    play = channel_requester().do(lambda engine: engine.fail(1, Rejected("no"))) << error(1, 0x202, b"no")
    play = channel_requester().do(lambda engine: engine.cancel(1)) << frames.Cancel(stream=1)
    play = stream_requester().do(lambda engine: engine.fail(1, Rejected("no"))) << frames.Cancel(stream=1)
    play.quiet()


def test_channel_is_ended_by_the_peer() -> None:
    channel_responder() >> frames.ErrorFrame(stream=1, code=0x201, data=b"") << failed(1, ApplicationError)
    channel_responder() >> frames.Cancel(stream=1) << ev.Canceled(1, True)
    channel_requester() >> frames.ErrorFrame(stream=1, code=0x202, data=b"") << failed(1, Rejected)


def test_an_id_that_is_used_again_has_no_past() -> None:
    """R-9: what was under way for the stream before is no excuse any more."""
    for verb, opens in (("stream", frames.RequestStream), ("request", frames.RequestResponse)):
        play = stream_requester(credit=1).do(lambda engine: engine.cancel(1)) << frames.Cancel(stream=1)
        play.engine.stream_table.ids.restore([0x7FFFFFFF, 0])
        play.do(lambda engine: engine.open("fire", b"")) << (frames.RequestFnf, {"stream": 0x7FFFFFFF})
        if verb == "stream":
            play.do(lambda engine: engine.open("stream", b"", credit=1)) << (opens, {"stream": 1})
            play >> last(1) << ev.Completed(1)
            play >> item(1, b"late") << ignored(10, "SI-10")
        else:
            play.do(lambda engine: engine.ask([Payload(b"")]) and None) << (opens, {"stream": 1})
            play >> last(1) << ev.Completed(1)
            play >> item(1, b"late") << ignored(1, "R-31")


# -- ids and limits -----------------------------------------------------------------------------------------


def test_requests_that_make_no_sense() -> None:
    play = stream_responder()
    play >> frames.RequestStream(stream=1, initial_n=1, data=b"") << ignored(10, "R-31")
    play >> frames.RequestResponse(stream=2, data=b"") << ignored(10, "D-12")
    play >> bytes.fromhex("000006 00000000 1000") << ignored(10, "D-12")
    play >> frames.RequestResponse(stream=9, data=b"") << ev.Opened
    play >> frames.RequestResponse(stream=7, data=b"") << ev.Opened  # SI-04
    for name in (P(stream=99, next=True, data=b""), frames.RequestN(stream=99, n=1), frames.Cancel(stream=99)):
        play >> name << ignored(1, "R-31")
    play >> frames.ErrorFrame(stream=99, code=0x201, data=b"") << ignored(1)
    play.quiet()


def test_ids_keep_order_and_parity() -> None:
    engine = requester().engine
    assert [engine.open("fire", b"") for _ in range(3)] == [1, 3, 5]
    engine = responder().engine
    assert [engine.open("fire", b"") for _ in range(3)] == [2, 4, 6]


def test_streams_are_limited_by_their_handlers() -> None:
    """A stream counts until its handler has returned."""
    limits = Limits.tiny(pending_streams=0)
    play = responder(limits=limits)
    ids = [1 + 2 * n for n in range(limits.streams)]
    for id in ids:
        play >> frames.RequestResponse(stream=id, data=b"") << ev.Opened
    play >> frames.RequestResponse(stream=101, data=b"") << ignored(1) << error(101, 0x202, b"too-many-streams")
    play >> frames.RequestFnf(stream=103, data=b"") << ev.Opened  # which waits
    play.do(lambda engine: engine.send(1, [b"x"])) << P
    play >> frames.RequestResponse(stream=105, data=b"") << ignored(0) << error(105, 0x202)
    play.do(lambda engine: engine.release(1))
    play >> frames.RequestResponse(stream=107, data=b"") << ev.Opened
    play.quiet()


def test_reading_pauses_while_too_many_requests_wait_for_a_handler() -> None:
    """DR-2: five eighths of ``pending_streams`` may wait; the rest is for the requests of one read."""
    play = responder(limits=Limits.tiny(streams=2, pending_streams=8))
    for stream in range(1, 17, 2):
        assert play.engine.wants_read
        play >> frames.RequestResponse(stream=stream, data=b"") << ev.Opened
    assert not play.engine.wants_read
    play.do(lambda engine: engine.release(1))
    assert play.engine.wants_read


@pytest.mark.repetitive
def test_cancel_flood() -> None:
    limits = Limits.server()
    play = responder(limits=limits)
    for n in range(limits.most_cancels):
        play >> frames.RequestStream(stream=1 + 2 * n, initial_n=1, data=b"") << ev.Opened
        play >> frames.Cancel(stream=1 + 2 * n) << ev.Canceled
        play.engine.release(1 + 2 * n)
        play.engine.consumed(0, 1)
    play >> frames.RequestStream(stream=9001, initial_n=1, data=b"") << ev.Opened
    play >> frames.Cancel(stream=9001) << failed(9001, RemoteProtocolError)
    play << closed(RemoteProtocolError, rule="cancel_bucket") << error(0, 0x101, b"cancel-flood")


# -- fragments ----------------------------------------------------------------------------------------------


@pytest.mark.repetitive
@pytest.mark.parametrize("verb", ["request", "fire", "stream", "channel"])
@pytest.mark.parametrize("metadata", [None, b"", b"m" * 10, b"m" * 300])
@pytest.mark.parametrize("size", [0, 1, 55, 56, 64, 65, 1000])
def test_fragments_there_and_back(mode: Mode, verb: ev.Verb, metadata: bytes | None, size: int) -> None:
    client, server = requester(mtu=64), responder(mode)
    payload = Payload(bytes(range(256)) * 4, metadata) if size == 1000 else Payload(b"d" * size, metadata)
    credit = 3 if verb in ("stream", "channel") else 0
    client.do(lambda engine: engine.open(verb, payload, credit=credit, complete=verb == "channel"))
    for frame in client.sent:
        assert len(frame.encode()) <= 61
        server >> frame
    expected = credit or (1 if verb == "request" else 0)
    server << ev.Opened(1, verb, payload, expected, verb == "channel")
    server.quiet()


@pytest.mark.parametrize("metadata", [None, b"", b"m" * 300])
def test_fragmented_items(mode: Mode, metadata: bytes | None) -> None:
    server = responder(mtu=64) >> frames.RequestStream(stream=1, initial_n=9, data=b"") << ev.Opened
    big = Payload(b"d" * 500, metadata)
    server.engine.send(1, [b"a", big, b"b", big], complete=True)
    server.collect([])
    client = stream_requester(mode, credit=9)
    parts = [frame for frame in server.sent if isinstance(frame, P)]
    assert [frame.complete for frame in parts].count(True) == 1
    assert parts[-1].complete
    client >> tuple(parts)
    got = [payload for event in client.events if isinstance(event, ev.Items) for payload in event.payloads]
    assert got == [Payload(b"a"), big, Payload(b"b"), big]
    assert isinstance(client.events[-1], ev.Items)
    assert client.events[-1].complete


def test_fragments_of_different_streams_take_turns() -> None:
    play = responder(mtu=0x4000)
    for id in (1, 3):
        play >> frames.RequestStream(stream=id, initial_n=9, data=b"") << ev.Opened
    for id in (1, 3):
        play.engine.send(id, [bytes(60_000), b"after"])
    assert play.engine.queued > 120_000
    play.collect([])
    order = [frame.stream for frame in play.sent]
    assert order == [1, 3, 1, 3, 1, 3, 1, 1, 3, 3]  # the last of each and what is behind it are one turn
    assert play.engine.queued == 0


@pytest.mark.parametrize("mtu", [1000, 0x20000])
def test_small_frames_pass_a_large_payload(mtu: int) -> None:
    """They wait for one turn of it: a share of 16 KiB, or a fragment."""
    play = responder(mtu=mtu)
    for id in (1, 3):
        play >> frames.RequestStream(stream=id, initial_n=9, data=b"") << ev.Opened
    play.engine.send(1, [bytes(1_000_000)])
    play.engine.send(3, [b"small"])
    first = b""
    while b"small" not in first:
        first += play.engine.outgoing(1)
    assert len(first) <= max(0x4000, mtu) + mtu


def test_a_fragmented_item_is_one_credit(mode: Mode) -> None:
    play = stream_requester(mode, credit=1)
    play >> P(stream=1, follows=True, next=True, data=b"a" * 60) >> P(stream=1, follows=True, next=True, data=b"b" * 60)
    play >> item(1, b"c") << ev.Items(1, [Payload(b"a" * 60 + b"b" * 60 + b"c")])
    play >> item(1, b"d") << ignored(50) << failed(1, RemoteProtocolError) << frames.Cancel


def test_next_may_miss_and_complete_ends_fragments(mode: Mode) -> None:
    """FG-12, R-37, D-4."""
    play = stream_requester(mode)
    play >> P(stream=1, follows=True, next=True, data=b"a" * 60) >> P(stream=1, follows=True, data=b"b" * 60)
    (
        play
        >> P(stream=1, follows=True, complete=True, data=b"c")
        << ev.Items(1, [Payload(b"a" * 60 + b"b" * 60 + b"c")], True)
    )
    play = responder(mode)
    play >> frames.RequestChannel(stream=1, initial_n=1, follows=True, complete=True, data=b"a" * 60)
    play >> item(1, b"b") << ev.Opened(1, "channel", Payload(b"a" * 60 + b"b"), 1, True)


def test_answers_in_fragments(mode: Mode) -> None:
    play = requester(mode).do(lambda engine: engine.open("request", b"ping")) << frames.RequestResponse
    play >> P(stream=1, follows=True, next=True, data=b"a" * 60)
    play >> item(1, b"b", complete=True) << ev.Items(1, [Payload(b"a" * 60 + b"b")], True)


def test_fragments_are_dropped_by_cancel_and_error(mode: Mode) -> None:
    """FG-06: the handler is never called."""
    for end in (frames.Cancel(stream=1), frames.ErrorFrame(stream=1, code=0x201, data=b"")):
        play = responder(mode) >> frames.RequestResponse(stream=1, follows=True, data=b"a" * 60) >> end
        play >> item(1, b"b") << ignored(1)
    play = stream_requester(mode) >> P(stream=1, follows=True, next=True, data=b"a" * 60)
    play >> frames.ErrorFrame(stream=1, code=0x201, data=b"") << failed(1, ApplicationError)
    play = stream_requester(mode) >> P(stream=1, follows=True, next=True, data=b"a" * 60)
    play.do(lambda engine: engine.cancel(1)) << frames.Cancel
    play >> item(1, b"b") << ignored(0)


def test_what_is_collected_of_a_half_is_dropped_with_it(mode: Mode) -> None:
    """The rest of it comes late; the next item would not be mixed up with it."""
    play = channel_responder(mode).do(lambda engine: engine.request(1, 5)) << frames.RequestN
    play >> P(stream=1, follows=True, next=True, data=b"a" * 60)
    play.do(lambda engine: engine.cancel(1)) << frames.Cancel(stream=1)
    assert play.engine.stream_table.reassembly.size == 0
    play >> P(stream=1, follows=True, next=True, data=b"b" * 60) << ignored(0, "SI-07")
    play >> item(1, b"c") << ignored(0, "SI-07")


def test_a_fragmented_request_that_comes_when_all_handlers_run(mode: Mode) -> None:
    """SI-16: it was begun when there was room."""
    play = responder(mode, Limits.tiny(streams=1, pending_streams=0))
    play >> frames.RequestStream(stream=1, initial_n=1, follows=True, data=bytes(99))
    play >> frames.RequestResponse(stream=3, data=b"") << ev.Opened
    play >> item(1, b"rest") << ignored(1, "REJECTED") << error(1, 0x202, b"too-many-streams")
    play >> frames.RequestFnf(stream=5, follows=True, data=bytes(99))
    play >> item(5, b"rest") << ev.Opened(5, "fire", Payload(bytes(99) + b"rest"), 0, False)


def test_metadata_after_data(mode: Mode) -> None:
    """R-34, FG-08."""
    late = P(stream=1, next=True, metadata=b"m", data=b"")
    play = responder(mode) >> frames.RequestResponse(stream=1, follows=True, data=b"a" * 60) >> late << error(1, 0x204)
    play = stream_requester(mode) >> P(stream=1, follows=True, next=True, data=b"a" * 60)
    play >> late << failed(1, RemoteProtocolError, rule="R-34") << frames.Cancel
    play = channel_responder(mode).do(lambda engine: engine.request(1, 5)) << frames.RequestN
    play >> P(stream=1, follows=True, next=True, data=b"a" * 60)
    play >> late << failed(1, RemoteProtocolError, rule="R-34") << error(1, 0x204)


def test_payloads_at_and_above_the_limit() -> None:
    """FG-01."""
    limits = Limits.tiny()
    half = limits.payload_bytes // 2
    play = responder(limits=limits) >> frames.RequestResponse(stream=1, follows=True, data=bytes(half - 20))
    for _ in range(1):
        play >> P(stream=1, follows=True, next=True, data=bytes(half - 20))
    play >> item(1, bytes(40)) << ev.Opened
    play = responder(limits=limits) >> frames.RequestResponse(stream=1, follows=True, data=bytes(half - 20))
    play >> P(stream=1, follows=True, next=True, data=bytes(half - 20))
    play >> item(1, bytes(41)) << error(1, 0x202, b"payload-too-large")
    play >> item(1, b"rest") << ignored(0)
    play = stream_requester(limits=limits) >> P(stream=1, follows=True, next=True, data=bytes(half - 20))
    play >> P(stream=1, follows=True, next=True, data=bytes(half - 20))
    play >> item(1, bytes(41)) << failed(1, LimitExceeded, rule="payload-too-large") << frames.Cancel


def test_too_many_fragments() -> None:
    limits = Limits.tiny().replace(fragments=3)
    play = responder(limits=limits) >> frames.RequestResponse(stream=1, follows=True, data=bytes(60))
    play >> P(stream=1, follows=True, next=True, data=bytes(60)) >> item(1, b"x") << ev.Opened
    play >> frames.RequestResponse(stream=3, follows=True, data=bytes(60))
    play >> P(stream=3, follows=True, next=True, data=bytes(60)) >> P(stream=3, follows=True, next=True, data=bytes(60))
    play >> item(3, b"x") << error(3, 0x202, b"too-many-fragments")


def test_too_many_partials() -> None:
    limits = Limits.tiny()
    play = responder(limits=limits)
    for n in range(limits.partial_payloads):
        play >> frames.RequestResponse(stream=1 + 2 * n, follows=True, data=bytes(60))
    play >> frames.RequestResponse(stream=101, follows=True, data=bytes(60)) << error(101, 0x202, b"too-many-partials")
    play >> frames.RequestResponse(stream=1, data=b"") << ignored(10)


def test_fragments_without_progress() -> None:
    """FG-02."""
    play = responder() >> frames.RequestResponse(stream=1, follows=True, data=b"")
    play >> P(stream=1, follows=True, next=True, data=b"") << ignored(20)
    play >> P(stream=1, follows=True, next=True, data=bytes(55))
    play >> P(stream=1, follows=True, next=True, data=bytes(54)) << ignored(20)


def test_a_reassembly_that_never_ends() -> None:
    """FG-04."""
    play = responder() >> frames.RequestResponse(stream=1, follows=True, data=bytes(60))
    assert play.engine.deadline == 30.0
    play.at(29.9).quiet()
    play.at(30.0) << error(1, 0x203, b"reassembly-timeout")
    play = stream_requester() >> P(stream=1, follows=True, next=True, data=bytes(60))
    play.now = 10.0
    play >> frames.Keepalive(stream=0, respond=False, position=0, data=b"")
    play.at(30.0) << failed(1, LimitExceeded) << frames.Keepalive << frames.Cancel


def test_reassembly_shares_the_budget() -> None:
    """FG-03: the newest offender is refused."""
    limits = Limits.tiny()
    play = responder(limits=limits)
    refused = 0
    for n in range(limits.partial_payloads):
        play >> frames.RequestResponse(stream=1 + 2 * n, follows=True, data=bytes(limits.frame_bytes - 6))
        if play.sent:
            play << error(1 + 2 * n, 0x202, b"buffer-full")
            refused += 1
    assert refused == limits.partial_payloads - limits.connection_bytes // (
        limits.frame_bytes - 6 + limits.object_overhead_bytes
    )


def test_items_after_the_end_in_fragments() -> None:
    play = channel_requester() >> last(1) << ev.Completed(1)
    play >> P(stream=1, follows=True, next=True, data=bytes(60)) << ignored(10)


def test_half_sent_payloads_are_given_up() -> None:
    """R-38."""
    play = responder(mtu=1000) >> frames.RequestStream(stream=1, initial_n=9, data=b"") << ev.Opened
    play.engine.send(1, [bytes(4000)])
    play.engine.outgoing(1)
    play.engine.fail(1, Rejected("no"))
    play.collect([])
    play << error(1, 0x202)
    play.quiet()
    assert play.engine.queued == 0


# -- room and budget ----------------------------------------------------------------------------------------


def test_room() -> None:
    play = stream_responder(n=0x7FFFFFFF)
    limits = play.engine.limits
    assert play.engine.room(0) == limits.outbound_high_bytes
    assert play.engine.room(1000) == limits.outbound_high_bytes - 1000
    play.engine.send(1, [bytes(1000)])
    assert play.engine.room(0) == limits.outbound_high_bytes - 1009
    play.engine.send(1, [b"x"] * limits.outbound_high_frames)
    assert play.engine.room(0) == play.engine.scheduler.room_beside(0) == 0
    while play.engine.outgoing():
        pass
    assert play.engine.room(limits.outbound_high_bytes * 2) == 0
    play.engine.send(1, [bytes(limits.outbound_high_bytes + limits.payload_bytes - 1000)])
    assert play.engine.wants_read
    play.engine.send(1, [bytes(1000)])
    assert not play.engine.wants_read


def test_unconsumed_items_stop_the_reading() -> None:
    limits = Limits.tiny()
    play = stream_requester(credit=1000, limits=limits)
    size = 0
    while play.engine.wants_read:
        play >> item(1, bytes(60_000)) << ev.Items
        size += 60_000
    assert limits.connection_bytes < size <= limits.connection_bytes + 60_000
    play.engine.consumed(size)
    assert play.engine.wants_read


def test_long_runs_are_cut_into_chunks() -> None:
    play = stream_responder(n=100_000)
    items = [bytes([n % 251]) * (n % 5 * 100) for n in range(2000)]
    play.engine.send(1, items)
    play.collect([])
    assert [frame.data for frame in play.sent if isinstance(frame, P)] == items


def test_large_frames_are_never_torn() -> None:
    """A large item is queued as header and data: nothing may come between them, whatever the caller's limit."""
    for limit in (1, 0x1000, 0x10000):
        play = responder()
        for id in (1, 3):
            play >> frames.RequestStream(stream=id, initial_n=99, data=b"") << ev.Opened
        engine = play.engine
        data = bytearray()
        for _ in range(8):
            engine.send(1, [bytes(0xFFF0)])
            engine.send(3, [bytes(0x30000)])
            engine.send(1, [b"s" * 7, Payload(bytes(5000), b"m"), bytes(9)])
            engine.push(b"control")
            data += engine.outgoing(limit)
            engine.push(b"control")
        while chunk := engine.outgoing(limit):
            data += chunk
        assert engine.queued == 0
        assert engine.room(0) == engine.limits.outbound_high_bytes
        client = requester()
        for _ in range(2):
            client.engine.open("stream", b"", credit=99)
        got = client.engine.receive(bytes(data), 0.0)
        sizes = {1: [], 3: []}
        for event in got:
            if isinstance(event, ev.Items):
                sizes[event.stream] += [len(payload.data) for payload in event.payloads]
        assert sizes == {1: [0xFFF0, 7, 5000, 9] * 8, 3: [0x30000] * 8}
        assert [event for event in got if isinstance(event, ev.Pushed)] == [ev.Pushed(b"control")] * 16


def test_columns_are_interrupted() -> None:
    """Anything that is not a plain item of the stream ends the run of columns and comes in its own turn."""
    play = stream_requester(credit=10, columnar=True)
    play >> (item(1, b"a"), item(1, b"b"), item(1, b"c", b"m"), item(1, b"d"), last(1))
    first, second, third, end = play.events
    play.events.clear()
    assert [first.buffer[a:b] for a, b in zip(first.starts, first.ends, strict=True)] == [b"a", b"b"]
    assert second == ev.Items(1, [Payload(b"c", b"m")])
    assert [third.buffer[a:b] for a, b in zip(third.starts, third.ends, strict=True)] == [b"d"]
    assert end == ev.Completed(1)


@pytest.mark.parametrize("size", [1, 300_000, 3_000_000])
@pytest.mark.parametrize("limit", [1, 0x10000, 1 << 24])
def test_a_farewell_overtakes_no_request(size: int, limit: int) -> None:
    """What was sent before the close is served: CONNECTION_CLOSE is the last frame."""
    client, server = requester(), responder()
    client.engine.open("fire", bytes(size))
    client.engine.open("fire", b"small")
    events = client.engine.close(0.0, drain=True)
    assert isinstance(events[-1], ev.Closed)
    heard: list[ev.Event] = []
    while data := client.engine.outgoing(limit):
        heard += server.engine.receive(data, 0.0)
    sizes = sorted(len(event.payload.data) for event in heard if isinstance(event, ev.Opened))
    assert sizes == sorted((5, size))
    assert [type(event) for event in heard if not isinstance(event, ev.Opened)] == [ev.Draining, ev.Closed]


@pytest.mark.parametrize("columnar", [False, True])
def test_empty_items_are_not_free(columnar: bool) -> None:
    """Each object that waits is charged its overhead: a million empty items are not free."""
    limits = Limits.tiny()
    play = stream_requester(credit=100_000, limits=limits, columnar=columnar)
    count = 0
    while play.engine.wants_read:
        play >> item(1, b"")
        play.events.clear()
        count += 1
    assert count == limits.connection_bytes // limits.object_overhead_bytes + 1
    play.engine.consumed(0, count)
    assert play.engine.wants_read


def test_what_limits_a_stream() -> None:
    play = stream_responder(n=2)
    engine = play.engine
    [status] = engine.streams()
    assert (status.stream, status.verb, status.requester, status.credit) == (1, "stream", False, 2)
    assert status.reason == "producer"
    assert engine.streams(room=0)[0].reason == "transport"
    engine.send(1, [b"x", b"x" * 100_000])
    assert engine.streams()[0].reason is None
    assert engine.streams()[0].queued > 100_000
    while engine.outgoing():
        pass
    [status] = engine.streams()
    assert (status.credit, status.sent, status.queued, status.reason) == (0, 2, 0, "credit")
    engine.complete(1)
    assert engine.streams() == []
    play.engine.open("stream", b"", credit=5)
    [status] = engine.streams()
    assert (status.requester, status.outstanding, status.reason) == (True, 5, None)  # its request waits to be written
    engine.outgoing()
    assert engine.streams()[0].reason == "producer"


def test_a_draining_peer_is_named_by_its_code() -> None:
    play = requester() >> frames.ErrorFrame(stream=0, code=0x102, data=b"bye") << ev.Draining << ev.Closed
    play = requester().do(lambda engine: engine.open("stream", b"", credit=1)) << frames.RequestStream
    play >> frames.ErrorFrame(stream=0, code=0x102, data=b"bye") << ev.Draining
    with pytest.raises(ConnectionClosed) as caught:
        play.engine.open("request", b"")
    assert caught.value.code == 0x102


@pytest.mark.repetitive
@pytest.mark.parametrize("limit", [1, 1000, 0x10000])
@pytest.mark.parametrize(("size", "count"), [(5, 40_000), (900, 3), (5000, 40)])
def test_a_payload_in_fragments_does_not_overtake_its_stream(size: int, count: int, limit: int) -> None:
    """However much of the stream waits before it, and however little leaves at once; what comes behind stays there."""
    play = responder(mtu=6000) >> frames.RequestStream(stream=1, initial_n=10**6, data=b"") << ev.Opened
    engine = play.engine
    for _ in range(count):
        engine.send(1, [b"s" * size])
    engine.send(1, [b"L" * 10_000])
    engine.send(1, [b"t"])
    data = bytearray()
    while chunk := engine.outgoing(limit):
        data += chunk
    at, said = 0, ""
    while at < len(data):
        said += chr(data[at + 9])
        at += 3 + int.from_bytes(data[at : at + 3], "big")
    assert said == "s" * count + "LL" + "t"
    assert (engine.queued, engine.outbound.scheduler.frames, engine.outbound.scheduler.queues) == (0, 0, {})
