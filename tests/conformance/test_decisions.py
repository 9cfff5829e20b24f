"""Decisions and interoperability. Rule numbers are RSocket's. D-1 to D-13, I-1 to I-11."""

from __future__ import annotations

import pytest

from afflux.core import events as ev
from afflux.core.errors import ApplicationError, Invalid, RemoteProtocolError, Violation
from afflux.core.limits import Limits
from afflux.core.payload import Payload
from afflux.protocols.rsocket import Engine, frames
from afflux.protocols.rsocket.metadata import COMPOSITE_MIME, compose, decode_mime, encode_mime
from afflux.protocols.rsocket.metadata import route_of as metadata_route_of
from afflux.router import route_of
from tests.hostile.peers import N, P, asked, item, part, raw, serving
from tests.protocols.rsocket.playbook import Playbook, closed, error, failed, ignored, requester, responder, setup


@pytest.mark.parametrize("size", [1, 2, 127, 128])
def test_D_1_a_compact_text_has_its_length_minus_one(size: int) -> None:
    """A MIME type of a SETUP has its length as it is."""
    name = "x" * size
    assert encode_mime(name) == bytes((size - 1,)) + name.encode()
    assert decode_mime(bytes((size - 1,)) + name.encode() + b"more") == (None, name, size + 1)
    wire = frames.Setup(metadata_mime=name, data_mime="").encode()
    assert wire[18 : 19 + size] == bytes((size,)) + name.encode()


@pytest.mark.parametrize("code", [0x301, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE])
def test_D_3_an_error_code_has_32_bits(code: int) -> None:
    play = requester().do(lambda engine: engine.open("request", b"")) << frames.RequestResponse
    play >> frames.ErrorFrame(stream=1, code=code, data=b"why") << failed(1, ApplicationError, code=code)
    play = serving("request").do(lambda engine: engine.fail(1, ApplicationError(code, "why")))
    play << error(1, code, b"why")
    play.quiet()


def test_D_4_a_channel_that_begins_complete_and_in_fragments() -> None:
    """F is honoured, C remembered: the application hears of both at once."""
    play = responder() >> frames.RequestChannel(stream=1, initial_n=3, follows=True, complete=True, data=bytes(60))
    play >> part(1) >> item(1, b"end") << ev.Opened(1, "channel", Payload(bytes(120) + b"end"), 3, True)
    play.do(lambda engine: engine.send(1, [b"x"], complete=True)) << item(1, complete=True)
    assert play.engine.streams() == []
    play.quiet()


def test_D_5_zero_is_no_credit() -> None:
    """Neither at the head of a stream nor later; a position of 0 is an answer like any other."""
    responder() >> raw("00000001 1800 00000000") << error(1, 0x204)
    responder() >> raw("00000001 1c00 00000000") << error(1, 0x204)
    serving() >> raw("00000001 2000 00000000") << failed(1, RemoteProtocolError) << error(1, 0x204)
    play = responder() >> frames.Keepalive(respond=True, position=0) << frames.Keepalive(position=0)
    play.quiet()


@pytest.mark.parametrize("lease", [frames.Lease(ttl_ms=0, requests=5), frames.Lease(ttl_ms=5, requests=0)])
def test_D_5_zero_in_a_lease_is_read_and_written(lease: frames.Lease) -> None:
    assert frames.decode(lease.encode()) == lease


def test_D_6_a_responder_that_cancels_ends_one_half() -> None:
    play = requester().do(lambda engine: engine.open("channel", b"", credit=5)) << frames.RequestChannel
    play >> N(stream=1, n=5) << ev.Granted
    play >> frames.Cancel(stream=1) << ev.Canceled(1, False)
    play.do(lambda engine: engine.send(1, [b"late"]))
    play >> item(1) << ev.Items(1, [Payload(b"x")])
    play.do(lambda engine: engine.request(1, 3)) << N(stream=1, n=3)
    play >> item(1, complete=True) << ev.Items(1, [Payload(b"x")], True)
    assert play.engine.streams() == []
    play.quiet()


@pytest.mark.parametrize("metadata", [b"\xfe", b"\xfe\x00\x00\x09short", b"\x03ab", b"\xfe\x00\x00\x02\x05a"])
def test_D_7_malformed_metadata_is_the_requests_own_fault(metadata: bytes) -> None:
    """The engine carries it, the router answers it with INVALID; the connection never hears of it."""
    play = responder() >> frames.RequestResponse(stream=1, metadata=metadata, data=b"")
    (event,) = play.events
    assert isinstance(event, ev.Opened)
    play.events.clear()
    with pytest.raises(Invalid) as caught:
        route_of(event.payload)
    refusal = caught.value
    with pytest.raises(Violation) as broken:
        metadata_route_of(metadata)
    assert broken.value.code == 0x204
    play.do(lambda engine: engine.fail(1, refusal)) << error(1, 0x204)
    assert not play.engine.closed
    play.quiet()


def test_D_8_the_first_item_of_a_channel_is_paid_by_the_first_demand() -> None:
    play = serving("channel")
    play.do(lambda engine: engine.request(1, 1)).quiet()
    play.do(lambda engine: engine.request(1, 2)) << N(stream=1, n=2)
    play = serving("channel").do(lambda engine: engine.request(1, 9)) << N(stream=1, n=8)
    play.do(lambda engine: engine.request(1, 9)) << N(stream=1, n=9)
    play.quiet()


@pytest.mark.parametrize("why", ["no handlers", "draining", "a rule"])
def test_D_11_a_refused_fire_is_dropped_without_a_word(why: str) -> None:
    if why == "no handlers":
        play = responder(limits=Limits.server(streams=0))
    else:
        play = serving(limits=Limits.server(streams=1))
    if why == "draining":
        play.do(lambda engine: engine.close(0.0, drain=True)) << error(0, 0x102)
    if why == "a rule":
        play.do(lambda engine: engine.release(1))
        play >> asked("fire", 3, follows=True) >> part(3) >> P(stream=3, next=True, metadata=b"m", data=b"")
    else:
        play >> asked("fire", 3) << ignored(1, "REJECTED")
    play.quiet()


@pytest.mark.parametrize(("side", "theirs", "ours"), [(responder, 1, 2), (requester, 2, 1)], ids=["server", "client"])
def test_D_12_parity_is_kept_and_order_is_not_asked_for(side: type[Playbook], theirs: int, ours: int) -> None:
    play = side() >> asked("request", ours + 10) << ignored(10, "D-12")
    play >> asked("stream", ours) << ignored(10, "D-12")
    play >> asked("request", theirs + 10) << (ev.Opened, {"stream": theirs + 10})
    play >> asked("request", theirs) << (ev.Opened, {"stream": theirs})
    play.quiet()


@pytest.mark.parametrize("length", [Limits.server().frame_bytes + 1, 0x7FFFFF, 0xFFFFFF])
def test_D_13_a_length_is_judged_before_anything_is_kept_for_it(length: int) -> None:
    play = serving()
    play.engine.receive(length.to_bytes(3, "big"), 0.0)
    assert play.engine.closed
    assert play.engine.inbound.pending == 0


def test_D_13_extended_type_0_is_malformed() -> None:
    for flags in ("fc00", "fe00"):
        play = responder() >> raw(f"00000000 {flags} 00000000") << closed(RemoteProtocolError) << error(0, 0x101)
        play.quiet()


def test_I_4_the_rest_of_a_lease_is_metadata_whatever_m_is() -> None:
    for flags in (0x000, 0x100):
        wire = bytes(4) + (0x02 << 10 | flags).to_bytes(2, "big") + bytes(8) + b"md"
        assert frames.decode(wire) == frames.Lease(ttl_ms=0, requests=0, metadata=b"md")


def test_I_5_composite_metadata_in_a_setup_is_taken() -> None:
    metadata = compose([("a/b", b"x")], route="r")
    wanted = setup(metadata_mime=COMPOSITE_MIME, metadata=metadata)
    play = Playbook(Engine("server")) >> wanted << ev.Established(wanted)
    assert play.engine.setup is not None
    assert play.engine.setup.metadata == metadata


def test_I_8_the_first_tag_is_the_route() -> None:
    tags = b"\x05first\x06second"
    metadata = b"\xfe" + len(tags).to_bytes(3, "big") + tags
    assert route_of(Payload(b"", metadata)) == "first"


def test_I_11_the_bytes_are_trusted_not_a_dissector() -> None:
    """Type 0x3F is an extension, and there is no length before the metadata of a LEASE."""
    extension = frames.decode(bytes.fromhex("00000000 fe00 00000007 626f6479"))
    assert extension == frames.Ext(stream=0, ignore=True, extended_type=7, body=b"body")
    lease = frames.Lease(ttl_ms=1, requests=2, metadata=b"md")
    assert lease.encode() == bytes.fromhex("00000000 0900 00000001 00000002 6d64")
