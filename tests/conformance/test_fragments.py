"""Fragments. Rule numbers are RSocket's. R-33 to R-39."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from afflux.core import events as ev
from afflux.core.errors import LimitExceeded, LocalProtocolError, RemoteProtocolError
from afflux.core.limits import Limits
from afflux.core.payload import Payload
from afflux.protocols.rsocket import Engine, frames
from tests.hostile.peers import N, P, item, part, serving, streaming
from tests.protocols.rsocket.playbook import error, failed, ignored, requester, responder

VERBS: dict[str, type[frames.StreamFrame]] = {
    "request": frames.RequestResponse,
    "fire": frames.RequestFnf,
    "stream": frames.RequestStream,
    "channel": frames.RequestChannel,
}


def said(engine: Engine) -> list[frames.RSocketFrame]:
    """All that an engine says, in frames."""
    found = []
    while data := engine.outgoing(1):
        at = 0
        while at < len(data):
            end = at + 3 + int.from_bytes(data[at : at + 3], "big")
            found.append(frames.decode(data, at + 3, end))
            at = end
    return found


def opened(verb: str, payload: Payload, mtu: int, complete: bool = False) -> list[frames.RSocketFrame]:
    engine = requester(mtu=mtu).engine
    engine.open(verb, payload, credit=7 if verb in ("stream", "channel") else 0, complete=complete)  # type: ignore[arg-type]
    return said(engine)


@pytest.mark.parametrize("verb", VERBS)
def test_R_33_a_request_begins_as_itself_and_goes_on_as_payloads(verb: str) -> None:
    """F on all but the last; the credit of the request goes with the first."""
    first, *rest = opened(verb, Payload(bytes(300)), 100)
    assert type(first) is VERBS[verb]
    assert getattr(first, "initial_n", 7) == 7
    assert [type(frame) for frame in rest] == [P] * len(rest)
    follows = [frame.follows for frame in (first, *rest)]  # type: ignore[attr-defined]  # both have it
    assert follows == [True] * len(rest) + [False]
    assert len(rest) == 3
    assert {frame.stream for frame in (first, *rest)} == {1}


def test_R_33_an_item_goes_on_as_payloads() -> None:
    play = responder(mtu=100) >> frames.RequestStream(stream=1, initial_n=1) << ev.Opened
    play.engine.send(1, [bytes(range(200))])
    parts = said(play.engine)
    assert [type(frame) for frame in parts] == [P, P, P]
    assert [frame.follows for frame in parts] == [True, True, False]  # type: ignore[attr-defined]
    assert b"".join(frame.data for frame in parts) == bytes(range(200))  # type: ignore[attr-defined]


@pytest.mark.parametrize("size", [86, 87, 91, 92])
def test_R_33_what_fits_is_not_cut(size: int) -> None:
    """An MTU of 100 bytes holds the length, the header and 91 bytes; or 87 behind a first credit."""
    for verb, room in (("request", 91), ("stream", 87)):
        frames_of = opened(verb, Payload(bytes(size)), 100)
        assert len(frames_of) == (1 if size <= room else 2)
        assert frames_of[0].follows is (size > room)  # type: ignore[attr-defined]


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("metadata", [b"", b"m", b"m" * 80, b"m" * 81, b"m" * 300])
def test_R_34_metadata_goes_before_data(verb: str, metadata: bytes) -> None:
    """M is on each fragment that has some, and on no other; a fragment may end the one and begin the other."""
    parts = opened(verb, Payload(b"d" * 150, metadata), 100)
    found = [(frame.metadata, frame.data) for frame in parts]  # type: ignore[attr-defined]
    assert b"".join(meta or b"" for meta, _ in found) == metadata
    assert b"".join(data for _, data in found) == b"d" * 150
    with_metadata = [meta is not None for meta, _ in found]
    assert with_metadata == sorted(with_metadata, reverse=True)
    assert with_metadata[0]
    assert [meta for meta, _ in found[1:] if meta == b""] == []
    begun = [bool(data) for _, data in found]
    assert begun == sorted(begun)


@pytest.mark.parametrize("verb", VERBS)
def test_R_34_metadata_after_data_is_refused(verb: str) -> None:
    """At both ends; an empty piece of metadata is metadata too."""
    first = VERBS[verb](
        stream=1, follows=True, data=bytes(60), **({"initial_n": 1} if verb in ("stream", "channel") else {})
    )
    play = responder() >> first >> P(stream=1, next=True, metadata=b"", data=b"x")
    if verb != "fire":
        play << error(1, 0x204)
    play.quiet()
    play = streaming(5) >> part(1) >> P(stream=1, next=True, follows=True, metadata=b"m", data=b"")
    play << failed(1, RemoteProtocolError, rule="R-34") << frames.Cancel(stream=1)
    play.quiet()


def test_R_35_a_fragmented_item_is_one_item_of_credit_at_both_ends() -> None:
    play = responder(mtu=64) >> frames.RequestStream(stream=1, initial_n=2) << ev.Opened
    play.engine.send(1, [bytes(1000), bytes(1000)])
    assert play.engine.credit(1) == 0
    parts = said(play.engine)
    assert len(parts) > 30
    client = streaming(2) >> tuple(parts)
    assert [len(event.payloads) for event in client.events] == [1, 1]  # type: ignore[union-attr]  # Items
    client.events.clear()
    client >> item(1) << ignored(50, "R-27") << failed(1, RemoteProtocolError) << frames.Cancel


@pytest.mark.parametrize("metadata", [None, b"m" * 200])
@pytest.mark.parametrize("complete", [False, True])
def test_R_36_every_follow_up_has_n_and_only_the_last_has_c(complete: bool, metadata: bytes | None) -> None:
    """I-2: so does rsocket-java."""
    play = responder(mtu=64) >> frames.RequestStream(stream=1, initial_n=9) << ev.Opened
    play.engine.send(1, [Payload(bytes(300), metadata)], complete=complete)
    parts = said(play.engine)
    assert [frame.next for frame in parts] == [True] * len(parts)  # type: ignore[attr-defined]
    assert [frame.complete for frame in parts] == [False] * (len(parts) - 1) + [complete]  # type: ignore[attr-defined]
    _, *rest = opened("channel", Payload(bytes(300), metadata), 64, complete)
    assert [frame.next for frame in rest] == [True] * len(rest)  # type: ignore[attr-defined]
    assert [frame.complete for frame in rest] == [False] * (len(rest) - 1) + [complete]  # type: ignore[attr-defined]


def test_I_2_fragments_are_filled() -> None:
    """All but the last are as large as the MTU allows, and it is 64 bytes or more."""
    with pytest.raises(LocalProtocolError, match="64 bytes or more"):
        Engine("client", mtu=63)
    for mtu in (64, 100, 1000):
        parts = opened("stream", Payload(bytes(5000), bytes(300)), mtu)
        assert {3 + frame.encoded_size for frame in parts[:-1]} == {mtu}


@pytest.mark.parametrize("inside", [False, True])
def test_R_37_f_means_nothing_beside_c(inside: bool) -> None:
    """As a whole item, and as the end of a sequence."""
    play = streaming(5)
    if inside:
        play >> part(1)
    end = P(stream=1, next=True, follows=True, complete=True, data=b"end")
    play >> end << ev.Items(1, [Payload((bytes(60) if inside else b"") + b"end")], True)
    assert not play.engine.stream_table.reassembly.partials
    play.quiet()


def test_R_37_f_beside_c_without_an_item() -> None:
    play = streaming(5) >> P(stream=1, follows=True, complete=True, data=b"") << ev.Completed(1)
    play.quiet()


GIVE_UP: dict[str, Callable[[Engine], object]] = {
    "cancel": lambda engine: engine.cancel(1),
    "fail": lambda engine: engine.fail(1, ValueError("no")),
}


@pytest.mark.parametrize("how", GIVE_UP)
def test_R_38_a_half_sent_request_is_given_up(how: str) -> None:
    """What has not left does not leave; the peer, which has a part, drops it and calls nobody."""
    engine = requester(mtu=1000).engine
    engine.open("request", bytes(10_000))
    begun = engine.outgoing(1)
    GIVE_UP[how](engine)
    rest = engine.outgoing(100_000)
    assert rest == frames.Cancel(stream=1).encode(prefixed=True)
    assert not engine.queued
    play = responder() >> begun >> rest
    play.quiet()
    assert not play.engine.stream_table.reassembly.partials


def test_R_38_a_half_sent_item_of_a_channel_is_given_up() -> None:
    play = requester(mtu=1000).do(lambda engine: engine.open("channel", b"", credit=1)) << frames.RequestChannel
    play >> N(stream=1, n=5) << ev.Granted
    play.engine.send(1, [bytes(10_000)])
    assert play.engine.outgoing(1)
    play.engine.cancel(1)
    assert play.engine.outgoing(100_000) == frames.Cancel(stream=1).encode(prefixed=True)


@pytest.mark.parametrize("limit", ["payload_bytes", "fragments", "reassembly_s"])
@pytest.mark.parametrize("end", ["requester", "responder"])
def test_R_39_a_sequence_that_never_ends_is_ended(end: str, limit: str) -> None:
    """By its bytes, by its pieces, by its time: each has a limit, and all memory is given back."""
    limits = Limits.tiny().replace(fragments=20)
    play = streaming(5, limits) if end == "requester" else serving("channel", limits)
    if end == "responder":
        play.do(lambda engine: engine.request(1, 2)) << N
    size = {"payload_bytes": limits.payload_bytes // 10, "fragments": 60, "reassembly_s": 60}[limit]
    reassembly = play.engine.stream_table.reassembly
    pieces = 0
    while not play.events:
        assert reassembly.size <= limits.connection_bytes
        assert pieces <= 21
        if limit == "reassembly_s" and pieces == 3:
            play.at(limits.reassembly_s)
        else:
            play >> part(1, size)
            pieces += 1
    assert pieces == {"payload_bytes": 11, "fragments": 21, "reassembly_s": 3}[limit]
    play << failed(1, LimitExceeded)
    assert not reassembly.partials
    assert not reassembly.size
    (told,) = [frame for frame in play.sent if frame.stream == 1]  # type: ignore[attr-defined]
    assert isinstance(told, frames.Cancel if end == "requester" else frames.ErrorFrame)
