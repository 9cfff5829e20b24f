"""Framing and header. Rule numbers are RSocket's. R-1 to R-7."""

from __future__ import annotations

import struct

import pytest

from afflux.core import events as ev
from afflux.core.errors import LocalProtocolError, RemoteProtocolError, Violation
from afflux.core.framing import LengthPrefix
from afflux.core.limits import Limits
from afflux.core.payload import Payload
from afflux.protocols.registry import PROTOCOLS
from afflux.protocols.rsocket import Engine, frames
from tests.hostile.peers import P, carried, cut, item, raw, serving, streaming
from tests.protocols.rsocket.playbook import closed, error, failed, ignored, requester, responder, setup

NUMBERS = [
    (
        frames.Setup(
            major=1, minor=2, keepalive_ms=0x01020304, lifetime_ms=0x05060708, metadata_mime="a", data_mime="b"
        ),
        "00000000 0400 0001 0002 01020304 05060708 01 61 01 62",
    ),
    (frames.Lease(ttl_ms=0x01020304, requests=0x05060708), "00000000 0800 01020304 05060708"),
    (frames.Keepalive(position=0x0102030405060708), "00000000 0c00 0102030405060708"),
    (frames.RequestStream(stream=0x01020304, initial_n=0x05060708), "01020304 1800 05060708"),
    (frames.RequestChannel(stream=3, initial_n=0x7FFFFFFF), "00000003 1c00 7fffffff"),
    (frames.RequestN(stream=0x7FFFFFFE, n=0x01000000), "7ffffffe 2000 01000000"),
    (frames.ErrorFrame(stream=1, code=0x01020304), "00000001 2c00 01020304"),
    (P(stream=1, next=True, metadata=b"m" * 0x102, data=b"d"), f"00000001 2920 000102 {'6d' * 0x102} 64"),
    (
        frames.Resume(
            token=b"t" * 0x102,
            last_received_server_position=0x0102030405060708,
            first_available_client_position=0x1112131415161718,
        ),
        f"00000000 3400 0001 0000 0102 {'74' * 0x102} 0102030405060708 1112131415161718",
    ),
    (frames.ResumeOk(last_received_client_position=0x0102030405060708), "00000000 3800 0102030405060708"),
    (frames.Ext(stream=0, extended_type=0x01020304), "00000000 fc00 01020304"),
]
"Frames, and their bytes as the drawings of the specification have them."


@pytest.mark.parametrize(("frame", "wire"), NUMBERS, ids=lambda value: getattr(value, "NAME", ""))
def test_R_1_numbers_are_big_endian(frame: frames.RSocketFrame, wire: str) -> None:
    data = bytes.fromhex(wire)
    assert frame.encode() == data
    assert frames.decode(data) == frame


def test_R_1_the_short_ways_are_big_endian_too() -> None:
    """What goes round the codec: items, runs of items, the end of a stream, an answer, and what they begin with."""
    play = serving(n=9)
    play.engine.send(1, [bytes(0x102), b"a", b"b"])
    play.engine.send(1, [Payload(b"", bytes(0x102))])
    play.engine.complete(1)
    head = "00000001 2820"
    assert play.engine.outgoing() == b"".join(
        bytes.fromhex(text)
        for text in (
            f"000108 {head} {'00' * 0x102}",
            f"000007 {head} 61",
            f"000007 {head} 62",
            f"00010b 00000001 2920 000102 {'00' * 0x102}",
            "000006 00000001 2840",
        )
    )
    play = streaming(0x102)
    item = b"\x00\x01\x08" + bytes.fromhex(head) + bytes(0x102)
    play >> item << ev.Items(1, [Payload(bytes(0x102))])
    data = bytes(0x12000)  # read the other way round, the length of the metadata would still fit
    play = responder() >> bytes.fromhex("01200a 00000105 1100 000001 6d") + data
    play << ev.Opened(0x105, "request", Payload(data, b"m"), 1, False)
    play.quiet()


def test_R_2_a_frame_follows_its_length_which_does_not_count_itself() -> None:
    client = Engine("client", setup=setup())
    client.open("request", b"hello")
    said = client.outgoing()
    first = setup().encode()
    assert said[: 3 + len(first)] == len(first).to_bytes(3, "big") + first
    assert said[3 + len(first) :] == bytes.fromhex("00000b 00000001 1000") + b"hello"


def test_R_2_a_frame_ends_where_its_length_states() -> None:
    """One byte less or more in the prefix, and the next frame begins elsewhere."""
    two = raw("00000001 2820 61") + raw("00000001 2820 62")
    streaming(5) >> two << ev.Items(1, [Payload(b"a"), Payload(b"b")])
    longer = b"\x00\x00\x08" + two[3:]
    play = streaming(5) >> longer << ev.Items(1, [Payload(b"a\x00")])
    play.quiet()


def test_R_2_a_transport_of_messages_has_frames_without_it() -> None:
    prefix = PROTOCOLS["rsocket"].framing
    assert prefix == LengthPrefix(3)
    client = Engine("client", setup=setup())
    client.open("fire", b"x")
    messages = [bytes(message) for message in prefix.split(client.outgoing())]
    assert messages == [setup().encode(), frames.RequestFnf(stream=1, data=b"x").encode()]
    server = Engine("server")
    events = [event for message in messages for event in server.receive(prefix.join(message), 0.0)]
    assert [type(event) for event in events] == [ev.Established, ev.Opened]


def test_R_3_no_frame_is_above_the_largest_length() -> None:
    """Not a payload, which is cut, and not a SETUP, which can not be."""
    limits = Limits.trusted()
    server = responder(limits=limits)
    client = requester(limits=limits, mtu=0x2000000)
    client.engine.open("fire", bytes(0x1000010))
    (event,) = carried(client.engine, server.engine)
    assert isinstance(event, ev.Opened)
    assert len(event.payload) == 0x1000010
    with pytest.raises(LocalProtocolError, match="16777215 fit"):
        Engine("client", setup=setup(data=bytes(0xFFFFFF)))
    with pytest.raises(ValueError, match="frame_bytes"):
        Limits.trusted(frame_bytes=0x1000000)
    with pytest.raises(Violation, match="METADATA_PUSH of 16777216 bytes"):
        frames.MetadataPush(metadata=bytes(0x1000000 - 6)).encode()


@pytest.mark.parametrize("size", [0, 1, 200, 3000])
def test_R_4_unassigned_flags_are_sent_as_0(size: int) -> None:
    """Every frame of both sides of a long talk, flags that another frame type has included."""
    client, server = Engine("client", mtu=1000), Engine("server", mtu=1000)
    said = bytearray(client.outgoing())
    server.receive(bytes(said), 0.0)
    for number, verb in enumerate(("request", "fire", "stream", "channel")):
        client.open(verb, Payload(bytes(size), bytes(size)), credit=5 if number > 1 else 0)  # type: ignore[arg-type]
    client.request(5, 1)
    client.push(b"m")
    said += (data := client.outgoing(100_000))
    server.receive(data, 0.0)
    for stream in (1, 5, 7):
        server.send(stream, [Payload(bytes(size), b"m")])
    server.request(7, 5)
    server.fail(5, ValueError("x"))
    server.receive(frames.Keepalive(respond=True, data=b"d").encode(prefixed=True), 0.0)
    server.close(0.0, drain=True)
    said += (data := server.outgoing(100_000))
    client.receive(data, 0.0)
    client.send(7, [b"x"])
    client.cancel(7)
    client.tick(20.0)
    said += client.outgoing(100_000)
    for frame in cut(bytes(said)):
        flags = int.from_bytes(frame[7:9], "big") & 0x3FF
        assert flags & ~sum(flag.bit for flag, _ in frames.decode(frame[3:]).FLAGS) == 0
    types = {frame[7] >> 2 for frame in cut(bytes(said))}
    assert types >= {0x01, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0A, 0x0B, 0x0C}


@pytest.mark.parametrize(("kind", "body"), [(0x15, ""), (0x3E, "ffff"), (0x3F, "00000007"), (0x00, "")])
@pytest.mark.parametrize("stream", [0, 1, 77])
def test_R_5_a_frame_that_is_not_understood(stream: int, kind: int, body: str) -> None:
    """With I it is skipped, and the streams go on; without, the connection ends."""
    header = stream.to_bytes(4, "big")
    skipped = raw((header + (kind << 10 | 0x200).to_bytes(2, "big")).hex() + body)
    play = serving() >> skipped << ignored(1, "R-5")
    play.do(lambda engine: engine.send(1, [b"on"])) << item(1, b"on")
    play.quiet()
    refused = raw((header + (kind << 10).to_bytes(2, "big")).hex() + body)
    play = serving() >> refused << failed(1, RemoteProtocolError) << closed(RemoteProtocolError, rule="R-5")
    play << error(0, 0x101)
    play.quiet()


def test_R_6_where_metadata_has_a_length_and_where_not() -> None:
    metadata = b"meta"
    sized = {
        frames.Setup(metadata_mime="", data_mime="", metadata=metadata): 4 + 4 + 4 + 1 + 1,
        frames.RequestResponse(stream=1, metadata=metadata): 0,
        frames.RequestFnf(stream=1, metadata=metadata): 0,
        frames.RequestStream(stream=1, initial_n=1, metadata=metadata): 4,
        frames.RequestChannel(stream=1, initial_n=1, metadata=metadata): 4,
        P(stream=1, metadata=metadata): 0,
    }
    for frame, before in sized.items():
        wire = frame.encode()
        assert wire[6 + before :] == b"\x00\x00\x04meta"
        assert wire[4] & 0x01
    assert frames.Lease(ttl_ms=1, requests=1, metadata=metadata).encode()[6 + 8 :] == metadata
    assert frames.MetadataPush(metadata=metadata).encode()[6:] == metadata


def test_R_6_metadata_on_the_short_ways() -> None:
    play = serving(n=2)
    play.engine.send(1, [Payload(b"data", b"meta"), Payload(b"data", b"")])
    assert [frame[9:] for frame in cut(play.engine.outgoing())] == [b"\x00\x00\x04metadata", b"\x00\x00\x00data"]
    client = requester()
    client.engine.open("request", Payload(b"data", b"meta"))
    assert client.engine.outgoing() == bytes.fromhex("000011 00000001 1100 000004") + b"metadata"


@pytest.mark.parametrize(
    "hex",
    [
        "00000001 2920 000004 6d6d6d",
        "00000003 1100 ffffff",
        "00000003 1500 000001",
        "00000003 1900 00000001 0000",
        "00000003 1d00 00000001 000002 6d",
        "00000001 2000 0000",
        "00000001 2c00 0000",
        "00000000 0c80 00",
        "00000000 3800 00000000000000",
        "00000000 0800 00000001 000000",
    ],
)
def test_R_7_a_frame_that_ends_too_early(hex: str) -> None:
    """Not understood, so by R-5; and the frame behind it stands where the length said."""
    play = serving() >> raw(hex) << failed(1, RemoteProtocolError)
    play << closed(RemoteProtocolError, rule="R-7", code=0x101) << error(0, 0x101)
    ignorable = bytearray(raw(hex))
    ignorable[7] |= 0x02
    play = serving() >> bytes(ignorable) + raw("00000001 2400") << ignored(1, "R-7") << ev.Canceled(1, True)
    play.quiet()


@pytest.mark.parametrize(
    "frame", [frames.RequestN(stream=1, n=7), frames.Cancel(stream=1)], ids=lambda frame: frame.NAME
)
def test_R_7_bytes_after_a_fixed_body_are_ignored(frame: frames.RSocketFrame) -> None:
    wire = frame.encode() + b"more"
    play = serving() >> len(wire).to_bytes(3, "big") + wire << ignored(1)
    play << (ev.Granted(1, 7) if isinstance(frame, frames.RequestN) else ev.Canceled(1, True))
    play.quiet()


def test_R_7_the_header_is_looked_at_before_the_body() -> None:
    """Five bytes are no header: nothing in them can say that they may be skipped."""
    for size in range(6):
        wire = struct.pack(">BH", 0, size) + b"\x00\x00\x00\x01\xff"[:size]
        responder() >> wire << closed(RemoteProtocolError, rule="R-7") << error(0, 0x101)
