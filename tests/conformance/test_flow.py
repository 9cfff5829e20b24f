"""Sequences and flow control. Rule numbers are RSocket's. R-23 to R-32."""

from __future__ import annotations

import pytest

from afflux.core import events as ev
from afflux.core.errors import ApplicationError, LocalProtocolError, Rejected, RemoteProtocolError
from afflux.core.payload import Payload
from afflux.protocols.rsocket import frames
from tests.hostile.peers import N, P, item, part, raw, serving, streaming
from tests.protocols.rsocket.playbook import Playbook, error, failed, ignored, requester, responder, setup

END = P(stream=1, complete=True, data=b"")


def asking() -> Playbook:
    return requester().do(lambda engine: engine.open("request", b"q")) << frames.RequestResponse(stream=1, data=b"q")


def channel(credit: int = 5, granted: int = 5) -> Playbook:
    """A channel that this side has opened; the peer has granted some."""
    play = requester().do(lambda engine: engine.open("channel", b"first", credit=credit))
    play << frames.RequestChannel(stream=1, initial_n=credit, data=b"first")
    return play >> N(stream=1, n=granted) << ev.Granted(1, granted)


def served_channel(credit: int = 5, granted: int = 5) -> Playbook:
    """A channel that the peer has opened; this side has granted some."""
    play = responder() >> frames.RequestChannel(stream=1, initial_n=credit, data=b"first")
    play << ev.Opened(1, "channel", Payload(b"first"), credit, False)
    return play.do(lambda engine: engine.request(1, granted + 1)) << N(stream=1, n=granted)


def over(play: Playbook) -> None:
    """Stream 1 is over on this side: nothing that comes for it does anything, and nothing more is said."""
    assert play.engine.streams() == []
    play.do(lambda engine: engine.send(1, [b"late"])).do(lambda engine: engine.complete(1))
    for frame in (item(1), N(stream=1, n=1), END):
        play >> frame << ev.Ignored
    play.quiet()


@pytest.mark.parametrize("metadata", [None, b"m"])
def test_R_23_an_answer_is_complete_without_c(metadata: bytes | None) -> None:
    play = asking() >> P(stream=1, next=True, metadata=metadata, data=b"a")
    play << ev.Items(1, [Payload(b"a", metadata)], True)
    over(play)


def test_R_23_an_answer_in_fragments_is_complete_without_c() -> None:
    play = asking() >> part(1) >> item(1, b"a") << ev.Items(1, [Payload(bytes(60) + b"a")], True)
    over(play)


def test_R_24_one_request_channel_then_payloads() -> None:
    play = channel()
    play.do(lambda engine: engine.send(1, [b"a", Payload(b"b", b"m")]))
    play << item(1, b"a") << P(stream=1, next=True, metadata=b"m", data=b"b")
    play.do(lambda engine: engine.send(1, [b"c"], complete=True)) << item(1, b"c", complete=True)
    play.quiet()


def test_R_24_a_second_request_channel_is_ignored() -> None:
    play = served_channel() >> frames.RequestChannel(stream=1, initial_n=9, data=b"again") << ignored(10, "R-31")
    play >> item(1) << ev.Items(1, [Payload(b"x")])
    play.quiet()


def test_R_25_a_requester_waits_for_credit() -> None:
    """The first item went with the request; it may end the channel without credit, but send nothing on it."""
    play = requester().do(lambda engine: engine.open("channel", b"first", credit=5)) << frames.RequestChannel
    assert play.engine.credit(1) == 0
    with pytest.raises(LocalProtocolError, match="credit for 0 items") as caught:
        play.engine.send(1, [b"early"])
    assert caught.value.rule == "R-27"
    play >> item(1) << ev.Items  # what comes from the peer is no credit
    assert play.engine.credit(1) == 0
    play.do(lambda engine: engine.complete(1)) << END
    play.quiet()


def test_R_26_credit_adds_up() -> None:
    play = serving(n=2)
    for n, sum in ((1, 3), (0x7FFFFFFF, 0x80000002), (5, 0x80000007)):
        play >> N(stream=1, n=n) << ev.Granted(1, n)
        assert play.engine.credit(1) == sum
    play.do(lambda engine: engine.send(1, [b"x"])) << item(1)
    assert play.engine.credit(1) == 0x80000006


def test_R_26_the_largest_number_means_itself() -> None:
    """I-1: some say 2^31-1 for "without bound"; it is used up like any other."""
    play = serving(n=0x7FFFFFFF)
    stream = play.engine.stream_table.live[1]
    stream.to_send.available -= 0x7FFFFFFF - 2
    play.do(lambda engine: engine.send(1, [b"a", b"b"])) << item(1, b"a") << item(1, b"b")
    with pytest.raises(LocalProtocolError, match="credit for 0"):
        play.engine.send(1, [b"c"])


def test_R_26_credit_ends_at_63_bits() -> None:
    play = serving()
    play.engine.stream_table.live[1].to_send.available = 2**63 - 2
    for _ in range(2):
        play >> N(stream=1, n=0x7FFFFFFF) << ev.Granted
        assert play.engine.credit(1) == 2**63 - 1


@pytest.mark.parametrize("opened", ["by us", "by them"])
def test_R_27_this_side_sends_no_more_than_was_granted(opened: str) -> None:
    """All or nothing: a list that is too long sends none of its items."""
    play = channel(granted=3) if opened == "by us" else served_channel(credit=3)
    with pytest.raises(LocalProtocolError, match="credit for 3 items, not for 4") as caught:
        play.engine.send(1, [b"a", b"b", b"c", b"d"])
    assert caught.value.rule == "R-27"
    play.quiet()
    play.do(lambda engine: engine.send(1, [b"a", b"b", b"c"]))
    play << item(1, b"a") << item(1, b"b") << item(1, b"c")
    with pytest.raises(LocalProtocolError):
        play.engine.send(1, [b"d"])
    play.quiet()


def test_R_27_a_peer_that_sends_more_loses_the_stream() -> None:
    """D-2: at a responder the code is CANCELED, since processing had begun."""
    play = streaming(2) >> (item(1), item(1)) << ev.Items
    play >> item(1) << ignored(50, "R-27") << failed(1, RemoteProtocolError, rule="R-27") << frames.Cancel(stream=1)
    play = streaming(2) >> (item(1), item(1), item(1)) << ev.Items(1, [Payload(b"x")] * 2) << ignored(50, "R-27")
    play << failed(1, RemoteProtocolError) << frames.Cancel(stream=1)
    play = served_channel(granted=2) >> (item(1), item(1)) << ev.Items
    play >> item(1) << ignored(50, "R-27") << failed(1, RemoteProtocolError, rule="R-27") << error(1, 0x203)
    play.quiet()


@pytest.mark.parametrize("first", ["us", "them"])
@pytest.mark.parametrize("opened", ["by us", "by them"])
def test_R_28_a_channel_ends_when_both_sides_have_completed(opened: str, first: str) -> None:
    play = channel() if opened == "by us" else served_channel()
    if first == "us":
        play.do(lambda engine: engine.complete(1)) << END
        play >> item(1) << ev.Items(1, [Payload(b"x")]) >> END << ev.Completed(1)
    else:
        play >> END << ev.Completed(1)
        play.do(lambda engine: engine.send(1, [b"x"])) << item(1)
        play.do(lambda engine: engine.complete(1)) << END
    over(play)


@pytest.mark.parametrize("half", ["none", "ours", "theirs"])
@pytest.mark.parametrize("opened", ["by us", "by them"])
def test_R_28_an_error_ends_both_halves(opened: str, half: str) -> None:
    """From either side, whichever half is over already."""
    for by in ("us", "them"):
        play = channel() if opened == "by us" else served_channel()
        if half == "ours":
            play.do(lambda engine: engine.complete(1)) << END
        elif half == "theirs":
            play >> END << ev.Completed(1)
        if by == "them":
            play >> frames.ErrorFrame(stream=1, code=0x201, data=b"no") << failed(1, ApplicationError)
        else:
            play.do(lambda engine: engine.fail(1, Rejected("no")))
            # A requester that has completed has no more to say than that it wants nothing.
            play << (frames.Cancel(stream=1) if opened == "by us" and half == "ours" else error(1, 0x202, b"no"))
        over(play)


@pytest.mark.parametrize("half", ["none", "ours", "theirs"])
def test_R_28_a_cancel_of_the_requester_ends_both_halves(half: str) -> None:
    for play, by in ((channel(), "us"), (served_channel(), "them")):
        if half == "ours":
            play.do(lambda engine: engine.complete(1)) << END
        elif half == "theirs":
            play >> END << ev.Completed(1)
        if by == "us":
            play.do(lambda engine: engine.cancel(1)) << frames.Cancel(stream=1)
        else:
            play >> frames.Cancel(stream=1) << ev.Canceled(1, True)
        over(play)


@pytest.mark.parametrize("opened", ["by us", "by them"])
def test_R_29_nothing_is_sent_after_c(opened: str) -> None:
    play = channel() if opened == "by us" else served_channel()
    play.do(lambda engine: engine.send(1, [b"last"], complete=True)) << item(1, b"last", complete=True)
    play.do(lambda engine: engine.send(1, [b"more"])).do(lambda engine: engine.send(1, [b"m", b"n"], complete=True))
    play.do(lambda engine: engine.complete(1))
    play.quiet()


def test_R_29_what_comes_after_c_is_ignored() -> None:
    play = channel() >> item(1, complete=True) << ev.Items(1, [Payload(b"x")], True)
    for late in (item(1), P(stream=1, next=True, metadata=b"m", data=b"x"), part(1), END):
        play >> late << ignored(10, "R-31")
    play.do(lambda engine: engine.send(1, [b"on"])) << item(1, b"on")
    play.quiet()


@pytest.mark.parametrize("payload", [(None, b""), (None, b"data"), (b"meta", b"data")])
def test_R_30_a_payload_with_neither_c_nor_n_is_ignored(payload: tuple[bytes | None, bytes]) -> None:
    """On a stream and for a request alike: nothing is delivered, no credit is used, the stream goes on."""
    metadata, data = payload
    empty = P(stream=1, metadata=metadata, data=data)
    play = streaming(1) >> empty << ignored(10, "R-31") >> item(1) << ev.Items(1, [Payload(b"x")])
    play = asking() >> empty << ignored(10, "R-31") >> item(1) << ev.Items(1, [Payload(b"x")], True)
    play.quiet()


def test_R_30_inside_a_sequence_of_fragments_it_is_a_fragment() -> None:
    """D-4."""
    play = streaming(1) >> part(1) >> P(stream=1, follows=True, data=b"b" * 60)
    play >> P(stream=1, data=b"c") << ev.Items(1, [Payload(bytes(60) + b"b" * 60 + b"c")])
    play.quiet()


@pytest.mark.parametrize("size", [0, 5, 1000])
def test_R_30_every_payload_that_is_sent_has_one(size: int) -> None:
    play = responder(mtu=64) >> frames.RequestStream(stream=1, initial_n=99) << ev.Opened
    play.engine.send(1, [bytes(size), Payload(b"", bytes(size))])
    play.engine.send(1, [bytes(size)] * 3, complete=True)
    play.collect([])
    assert play.sent
    assert [frame for frame in play.sent if not (frame.next or frame.complete)] == []  # type: ignore[attr-defined]


@pytest.mark.parametrize("verb", ["request", "fire", "stream", "channel"])
@pytest.mark.parametrize("live", ["stream", "channel", "a part of a request"])
def test_R_31_a_request_on_an_id_in_use_is_ignored(live: str, verb: str) -> None:
    """Whatever it asks: the stream that has the id goes on."""
    kinds = {"request": frames.RequestResponse, "fire": frames.RequestFnf}
    if verb in kinds:
        again: frames.StreamFrame = kinds[verb](stream=1, data=b"again")
    else:
        kind = frames.RequestStream if verb == "stream" else frames.RequestChannel
        again = kind(stream=1, initial_n=9, data=b"again")
    if live == "a part of a request":
        play = responder() >> frames.RequestResponse(stream=1, follows=True, data=bytes(60))
        play >> again << ignored(10, "R-31")
        play >> item(1, b"rest") << ev.Opened(1, "request", Payload(bytes(60) + b"rest"), 1, False)
    else:
        play = serving(live, n=3) >> again << ignored(10, "R-31")
        assert play.engine.credit(1) == 3
        play.do(lambda engine: engine.send(1, [b"on"])) << item(1, b"on")
        play.do(lambda engine: engine.release(1)) >> again << ignored(10, "R-31")  # its handler has returned
    play.quiet()


@pytest.mark.parametrize("id", [1, 2, 3, 0x7FFFFFFF])
@pytest.mark.parametrize(
    "kind",
    [
        lambda id: frames.Cancel(stream=id),
        lambda id: frames.ErrorFrame(stream=id, code=0x201),
        lambda id: P(stream=id, next=True),
        lambda id: P(stream=id, next=True, follows=True, data=bytes(60)),
        lambda id: N(stream=id, n=1),
    ],
    ids=["CANCEL", "ERROR", "PAYLOAD", "fragment", "REQUEST_N"],
)
def test_R_31_what_comes_for_an_unknown_id_is_ignored(kind: type[frames.StreamFrame], id: int) -> None:
    for play in (requester(), responder()):
        play >> kind(id) << ignored(1, "R-31")  # type: ignore[call-arg]  # a function that makes one
        play.quiet()
        assert not play.engine.stream_table.reassembly.partials


WRONG = {
    "METADATA_PUSH": "00000001 3100 6d",
    "KEEPALIVE": "00000001 0c80 0000000000000000",
    "LEASE": "00000001 0800 00000001 00000001",
    "RESUME_OK": "00000001 3800 0000000000000000",
    "SETUP": setup().encode().hex().replace("00000000", "00000001", 1),
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("live", [False, True])
def test_R_32_frames_of_the_connection_on_a_stream_are_ignored(name: str, live: bool) -> None:
    """Not delivered, not echoed, and harmless to a stream of that id."""
    for play in (serving() if live else responder(), streaming(5) if live else requester()):
        play >> raw(WRONG[name]) << ignored(10, "R-32")
        play.quiet()
        assert (1 in [status.stream for status in play.engine.streams()]) is live


@pytest.mark.parametrize("side", [requester, responder], ids=["client", "server"])
def test_R_32_a_setup_after_the_first_is_ignored(side: type[Playbook]) -> None:
    """A second one at a server, any at a client."""
    play = side()
    before = play.engine.setup
    play >> setup(keepalive_ms=1, lifetime_ms=1, data=b"second") << ignored(10, "R-32")
    assert play.engine.setup == before
    play.at(0.5).quiet()
    play >> frames.Keepalive(respond=True) << frames.Keepalive
    play.quiet()
