"""Connections decoded: protocol and role from the bytes, WebSocket, TLS, gaps, starts in mid-stream, limits."""

from __future__ import annotations

import io
import random
import ssl
import zlib
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from afflux.capture import Capture, Decoder
from afflux.capture.batches import FrameBatches
from afflux.capture.websocket import unmasked
from afflux.core.limits import Limits
from afflux.protocols.registry import named, recognizable
from afflux.protocols.rsio import frames as rsio
from afflux.protocols.rsocket import frames as wire
from tests.capture.writing import Packet, Talk, pcap
from tests.cli.test_decode import BOTH


def prefixed(*frames: bytes) -> bytes:
    return b"".join(len(frame).to_bytes(3, "big") + frame for frame in frames)


SETUP = wire.Setup().encode()
REQUESTS = [wire.RequestFnf(stream=2 * n + 1, data=b"x" * n).encode() for n in range(40)]
ITEMS = [wire.PayloadFrame(stream=1, next=True, data=b"y" * n).encode() for n in range(40)]
CLIENT, SERVER = prefixed(SETUP, *REQUESTS), prefixed(*ITEMS)


class Decoded(list[dict[str, Any]]):
    """The records of a capture, from its decoder, and the same from its columns."""

    def __init__(
        self, packets: list[Packet], *, limits: Limits | None = None, names: tuple[str, ...] = (), **options: Any
    ) -> None:
        file, chunk = pcap(packets), options.pop("chunk", 0x8_0000)
        capture = Capture(io.BytesIO(file), limits=limits, chunk=chunk)
        entries = [named(name) for name in names] or recognizable()
        self.decoder = Decoder(capture, entries, **options)
        super().__init__(self.decoder)
        options.pop("payload", None)
        columns = FrameBatches(entries, capture.limits, **options)
        frames = [
            made
            for batch in columns.of(Capture(io.BytesIO(file), limits=limits, chunk=chunk))
            for made in batch.records()
        ]
        assert frames == without(self, "metadata", "data")
        assert columns.tally == self.tally

    @property
    def types(self) -> list[str]:
        return [made["type"] for made in self]

    @property
    def tally(self) -> dict[str, int]:
        return self.decoder.tally

    def side(self, client: bool) -> list[dict[str, Any]]:
        return [made for made in self if made["dir"] == (">" if client else "<")]


def without(made: list[dict[str, Any]], *keys: str) -> list[dict[str, Any]]:
    return [{key: value for key, value in one.items() if key not in keys} for one in made]


@pytest.mark.parametrize("protocol", sorted(BOTH))
@pytest.mark.parametrize("size", [1, 7, 1_448])
def test_every_protocol_as_its_dissector_reads_it(protocol: str, size: int) -> None:
    """Given by the port; recognized where the bytes suffice. However the bytes are split into segments."""
    ours, theirs = (b"".join(side) for side in BOTH[protocol][:2])
    make = named(protocol).dissector
    assert make is not None
    expected = {}
    for client, data in ((True, ours), (False, theirs)):
        side = make(client, "text")
        expected[client] = [*side.feed(data), *side.end()]
    found = Decoded(Talk().whole(ours, theirs, size), ports={7_000: named(protocol)}, payload="text")
    for client in (True, False):
        assert without(found.side(client), "ts", "conn") == without(expected[client], "ts", "conn")
    assert found.tally == {protocol: 1}


@pytest.mark.parametrize("count", [1_023, 1_024, 1_025])
def test_the_connections_that_wait_to_be_named_are_bounded(count: int) -> None:
    found = Decoded(
        [one for port in range(count) for one in Talk(("10.0.0.1", 1_000 + port)).send(True, prefixed(SETUP))]
    )
    ports = [found.decoder.capture.names.text(one.connection.low) for one in found.decoder.opened()]
    assert found.tally == {"rsocket": count}
    assert ports == [f"10.0.0.1:{1_000 + port}" for port in range(min(count, 1_024))]
    assert found.decoder.opened() == []


@pytest.mark.parametrize("chunk", [300, 0x8_0000])
def test_frames_are_in_the_order_in_which_their_last_byte_was_captured(chunk: int) -> None:
    talk = Talk()
    packets = talk.open() + talk.send(True, CLIENT[:500], 90)
    packets += (
        talk.send(False, SERVER[:300], 90) + talk.send(True, CLIENT[500:], 90) + talk.send(False, SERVER[300:], 90)
    )
    found = Decoded(packets, chunk=chunk)
    times = [made["ts"] for made in found]
    assert times == sorted(times) and len(set(times)) > 10
    assert [made["type"] for made in found.side(True)] == ["SETUP"] + ["REQUEST_FNF"] * 40
    assert [made["data_len"] for made in found.side(False)] == list(range(40))
    ends = [(made["offset"] + made["length"], made["ts"]) for made in found.side(True)]
    for end, ts in ends:
        carrier = next(
            p for p in packets if p.data[26:30] == b"\x0a\0\0\x01" and len(p.data) > 54 and sent_to(p, talk) >= end
        )
        assert ts.endswith(f".{carrier.time // 1000 % 1_000_000:06}Z")


def sent_to(packet: Packet, talk: Talk) -> int:
    """The position behind a packet of the client."""
    return int.from_bytes(packet.data[38:42], "big") - talk.initial[0] - 1 + len(packet.data) - 54


def test_many_connections_have_their_own_ids() -> None:
    packets = [packet for n in range(30) for packet in Talk(("10.0.0.1", 1_000 + n)).whole(CLIENT, SERVER)]
    found = Decoded(packets)
    assert len({made["conn"] for made in found}) == 30 and len(found) == 30 * 81
    assert found.tally == {"rsocket": 30}
    assert len(found.decoder.opened()) == 30


def test_the_id_of_a_connection_is_the_same_each_time() -> None:
    packets = Talk().whole(CLIENT, SERVER)
    assert (
        {made["conn"] for made in Decoded(packets)}
        == {made["conn"] for made in Decoded(packets[:5])}
        == {"Cq8RsiSzSOo3"}
    )


# -- starts and gaps -------------------------------------------------------------------------------------------------


def test_one_direction_only() -> None:
    """PC-12."""
    for client, host in ((True, b"\x0a\0\0\x01"), (False, b"\x0a\0\0\x02")):
        packets = [packet for packet in Talk().whole(CLIENT, SERVER) if packet.data[26:30] == host]
        found = Decoded(packets, ports={7_000: named("rsocket")})
        assert len(found) == (41 if client else 40) and {made["dir"] for made in found} == {">" if client else "<"}


def test_a_start_in_mid_stream_is_decoded_only_with_its_handshake() -> None:
    """PC-11."""
    packets = Talk().whole(CLIENT, SERVER, 100)
    assert Decoded(packets[3:]).types[0] == "SETUP"  # the SYNs are missing
    for options, known in (
        ({}, "protocol unknown"),
        ({"ports": {7_000: named("rsocket")}}, "its first frame is missing"),
    ):
        late = Decoded(packets[6:], **options)
        assert (late.types, late.tally) == ([], {f"mid-stream, not decoded ({known})": 1})


@pytest.mark.parametrize(
    ("missing", "client", "server", "known"),
    [
        (
            True,
            b"POST / HTTP/1.1\r\nHost: a\r\n\r\n" + b'{"a": 1},' * 400,
            b"HTTP/1.1 200 OK\r\n\r\n",
            "looks like HTTP",
        ),
        (False, b"GET / HTTP/1.1\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n" + b"<p>text</p>" * 400, "protocol unknown"),
        (True, b"\x17\x03\x03\x05\xa0" + bytes(4_000), b"\x17\x03\x03\x02\0" + bytes(600), "protocol unknown"),
        (None, b"\x17\x03\x03\x05\xa0" + bytes(1_440), b"\x17\x03\x03\x02\0" + bytes(512), "looks like TLS"),
        (None, b"POST / HTTP/1.1\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n", "not ours (HTTP)"),
        (None, b"DATA 1", b"HTTP/1.1 101 Switching Protocols\r\n\r\n", "HTTP that switches to another protocol"),
        (None, b"DATA 1", b"DATA 2", "protocol unknown"),
    ],
)
@pytest.mark.parametrize("chunk", [100, 0x10_0000])
def test_what_is_known_of_other_traffic_that_began_before(
    missing: bool | None, client: bytes, server: bytes, known: str, chunk: int
) -> None:
    """PC-11. The capture begins in the middle of a body, or of a connection that is kept alive: it may be anything, and
    what the first bytes of both sides look like is told. ``missing`` is the side of which the first packets are not
    there."""
    packets = Talk().whole(client, server)
    begin = 3 if missing is None else 5
    late = [one for one in packets[begin:] if missing is not False or one.data[26:30] == b"\x0a\0\0\x02"]
    if missing is False:
        late = late[2:]
    (text,) = Decoded(late, chunk=chunk).tally
    assert text == (known if known.startswith("not ours") else f"mid-stream, not decoded ({known})")


def test_a_long_body_is_not_kept() -> None:
    """Of a download that began before the capture, only the first bytes are kept while nothing comes from the other
    side, and after 64 KiB it is settled."""
    talk = Talk()
    packets = [*talk.open(), *talk.send(False, bytes(range(256)) * 800)]
    flows = Decoded([one for one in packets if one.data[26:30] == b"\x0a\0\0\x02"][3:])
    assert flows.tally == {"mid-stream, not decoded (protocol unknown)": 1}


def test_missing_bytes_within_a_frame_lose_that_frame_only() -> None:
    """PC-06."""
    large = prefixed(SETUP, wire.RequestFnf(stream=1, data=b"a" * 5_000).encode(), *REQUESTS[1:])
    packets = Talk().whole(large, b"", 500)
    del packets[6:8]
    found = Decoded(packets)
    wrong = [made for made in found if made["error"]]
    assert len(wrong) == 1 and "1000 bytes are missing" in wrong[0]["error"]["reason"]
    assert found.types == ["SETUP", "REQUEST_FNF", *["REQUEST_FNF"] * 39]
    assert [made["offset"] for made in found[2:]] == [made["offset"] for made in Decoded(Talk().whole(large, b""))[2:]]


def test_missing_bytes_across_a_boundary_stop_the_direction_and_not_the_other() -> None:
    """PC-06."""
    packets = Talk().whole(CLIENT, SERVER, 100)
    del packets[6]
    found = Decoded(packets)
    last = found.side(True)[-1]
    assert last["error"]["rule"] == "lost" and "100 bytes are missing" in last["error"]["reason"]
    assert len(found.side(False)) == 40


def test_packets_cut_by_the_snap_length() -> None:
    """Headers only: where payloads are cut, frames whose boundary is known are counted as lost, and what follows is
    decoded (PC-06)."""
    frames = prefixed(SETUP, *(wire.RequestFnf(stream=2 * n + 1, data=b"z" * 900).encode() for n in range(9)))
    talk = Talk()
    packets = talk.open()
    at = 0
    for size in [len(SETUP) + 3] + [909] * 9:
        packets += talk.send(True, frames[at : at + size])[:1]
        at += size
    found = Decoded([packet.cut(54 + 120) for packet in packets])
    assert found.types == ["SETUP"] + ["REQUEST_FNF"] * 9
    assert [made["stream"] for made in found[1:]] == [2 * n + 1 for n in range(9)]
    reasons = [made["error"]["reason"] for made in found[1:]]
    assert all("789 bytes are missing" in reason for reason in reasons)
    assert all(reason.endswith("; a snap length cuts packets after 120 bytes of data") for reason in reasons)


# -- other content ---------------------------------------------------------------------------------------------------


@cache
def hello() -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context()
    context.set_alpn_protocols(["h2", "http/1.1"])
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname="broker.example").do_handshake()
    return outgoing.read()


@pytest.mark.parametrize("size", [1, 100, 1_448])
def test_tls_is_encrypted_and_shows_its_names(size: int) -> None:
    """PC-19."""
    found = Decoded(Talk().whole(hello(), b"\x16\x03\x03\0\x05abcde", size))
    assert found.tally == {"encrypted (TLS; server name broker.example; ALPN h2, http/1.1)": 1}
    assert found == []


@given(st.integers(0, 600), st.binary(max_size=40))
def test_a_damaged_hello_is_tls_all_the_same(at: int, noise: bytes) -> None:
    whole = hello()
    data = whole[: min(at, len(whole))] + noise
    found = Decoded(Talk().whole(b"\x16\x03\x01" + data[3:], b""))
    assert found == [] and sum(found.tally.values()) == 1


def test_the_client_decides_where_its_first_bytes_are_there() -> None:
    """A server's answer alone is recognized only if the capture lacks the client's side."""
    talk = Talk()
    packets = [*talk.open(), *talk.send(False, SERVER), *talk.send(True, b"SSH-2.0-client\r\n" * 9), *talk.close()]
    assert Decoded(packets).tally == {"not ours": 1}
    answers = [packet for packet in packets if packet.data[26:30] == b"\x0a\0\0\x02"]
    assert len(Decoded(answers)) == 40
    late = Talk()
    both = [*late.open(), *late.send(False, SERVER), *late.send(True, CLIENT), *late.close()]
    assert len(Decoded(both)) == 81
    batches = Decoded(both, chunk=300)
    assert len(batches) == 81 and [made["ts"] for made in batches] == sorted(made["ts"] for made in batches)


@pytest.mark.parametrize(
    ("client", "server", "kind"),
    [
        (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n", "not ours (HTTP)"),
        (b"POST / HTTP/1.1\r\nHost: a\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n", "not ours (HTTP)"),
        (b"\x1d\x12\x01\0\0\1\0\0\0\0\0\0\3www\7example", b"", "not ours"),
        (b"", b"SSH-2.0-OpenSSH_9.6\r\n", "not ours"),
        (b"", b"", "no data"),
        (b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 20_000, b"", "not ours (HTTP)"),
    ],
)
def test_other_traffic_is_not_ours(client: bytes, server: bytes, kind: str) -> None:
    found = Decoded(Talk().whole(client, server))
    assert (found, found.tally) == ([], {kind: 1})


def test_a_protocol_that_is_never_guessed_is_named() -> None:
    """The SETUP of RSocket's draft is that of RSocket 1.0."""
    packets = Talk().whole(CLIENT, b"")
    assert Decoded(packets, names=("rsocket-draft", "jmux")).tally == {"ambiguous (rsocket-draft)": 1}
    for options in ({"names": ("rsocket-draft",)}, {"ports": {7_000: named("rsocket-draft")}}):
        found = Decoded(packets, **options)  # type: ignore[arg-type]  # options of several types
        assert found.types[0] == "SETUP" and found.tally == {"rsocket-draft": 1}


# -- WebSocket -------------------------------------------------------------------------------------------------------

ASK = b"GET /rs HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: x\r\n%b\r\n"
ANSWER = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: WebSocket\r\nConnection: Upgrade\r\n%b\r\n"
DEFLATE = b"Sec-WebSocket-Extensions: permessage-deflate"


def message(data: bytes, *, masked: bool = False, first: int = 0x82) -> bytes:
    size = len(data)
    length = (
        bytes([size])
        if size < 126
        else b"\x7e" + size.to_bytes(2, "big")
        if size < 65_536
        else b"\x7f" + size.to_bytes(8, "big")
    )
    key = b"\x12\x34\x56\x78"
    head = bytes([first, length[0] | 0x80 * masked]) + length[1:]
    return head + (key + unmasked(data, key) if masked else data)


def upgraded(
    client: list[bytes], server: list[bytes], extra: bytes = b"", size: int = 1_448, **options: Any
) -> Decoded:
    talk = Talk()
    packets = talk.open() + talk.send(True, ASK % extra, size) + talk.send(False, ANSWER % extra, size)
    packets += talk.send(True, b"".join(client), size) + talk.send(False, b"".join(server), size)
    return Decoded([*packets, *talk.close()], **options)


@pytest.mark.parametrize("size", [1, 60, 1_448])
def test_frames_in_a_websocket(size: int) -> None:
    """Masked and in fragments, with control frames in between."""
    client = [message(SETUP, masked=True), message(b"", masked=True, first=0x89)]
    client += [message(REQUESTS[0], masked=True), message(REQUESTS[39][:9], masked=True, first=0x02)]
    client += [message(b"ping", masked=True, first=0x89), message(REQUESTS[39][9:], masked=True, first=0x80)]
    server = [message(ITEMS[n]) for n in range(40)] + [message(b"\x03\xe8", first=0x88), message(ITEMS[0])]
    found = upgraded(client, server, size=size)
    assert [made["type"] for made in found.side(True)] == ["SETUP", "REQUEST_FNF", "REQUEST_FNF"]
    assert [made["data_len"] for made in found.side(False)] == list(range(40))
    assert found.tally == {"rsocket in WebSocket": 1}
    assert found.side(True)[0]["offset"] == len(ASK % b"") + 6
    assert [made["error"] for made in found] == [None] * 43


def test_jmux_in_a_websocket_is_a_stream_of_bytes() -> None:
    ours, theirs = (b"".join(side) for side in BOTH["jmux"][:2])
    found = upgraded([message(ours, masked=True)], [message(theirs[:5]), message(theirs[5:])])
    assert found.types == BOTH["jmux"][2]


@pytest.mark.parametrize("anew", [False, True])
def test_compressed_messages(anew: bool) -> None:
    packer: Any = None
    sent = []
    for frame in ITEMS:
        if packer is None or anew:
            packer = zlib.compressobj(wbits=-15)
        data = packer.compress(frame) + packer.flush(zlib.Z_SYNC_FLUSH)
        sent.append(message(data[:-4], first=0xC2))
    extra = DEFLATE + (b"; server_no_context_takeover" if anew else b"") + b"\r\n"
    found = upgraded([message(SETUP, masked=True)], sent, extra)
    assert [made["data_len"] for made in found.side(False)] == list(range(40))


def test_a_compressed_message_is_bounded() -> None:
    """PC-18."""
    limits = Limits.server(payload_bytes=4_096, frame_bytes=70_000, first_frame_bytes=65_536)
    packer = zlib.compressobj(wbits=-15)
    for size, right in ((70_000, True), (70_001, False), (50_000_000, False)):
        packer = zlib.compressobj(wbits=-15)
        frame = wire.PayloadFrame(stream=1, next=True, data=bytes(min(size, 10**7) - 6)).encode()
        data = packer.compress(frame + bytes(size - len(frame))) + packer.flush(zlib.Z_SYNC_FLUSH)
        found = upgraded(
            [message(SETUP, masked=True)], [message(data[:-4], first=0xC2)], DEFLATE + b"\r\n", limits=limits
        )
        (made,) = found.side(False)
        assert (made["error"] is None) is right
        if not right:
            assert "frame_bytes=70000" in made["error"]["reason"]


@pytest.mark.parametrize(("size", "kept"), [(30_000, 3), (34_000, 2), (60_000, 1)])
def test_the_payloads_of_compressed_messages_are_bounded_together(size: int, kept: int) -> None:
    """PC-18. A few hundred bytes may bring any number of bytes: capture_bytes of them are kept in a batch."""
    limits = Limits.tiny(capture_bytes=100_000)
    packer = zlib.compressobj(wbits=-15)
    packed = []
    for _ in range(3):
        frame = wire.PayloadFrame(stream=1, next=True, data=bytes(size)).encode()
        packed.append(message((packer.compress(frame) + packer.flush(zlib.Z_SYNC_FLUSH))[:-4], first=0xC2))
    found = upgraded([message(SETUP, masked=True)], packed, DEFLATE + b"\r\n", limits=limits, payload="bytes")
    items = found.side(False)
    assert [made["data_len"] for made in items] == [size] * 3
    assert [made["data"] for made in items] == [bytes(size)] * kept + [None] * (3 - kept)


@pytest.mark.parametrize(
    "wrong",
    [
        message(b"x", first=0x80),
        message(b"x", first=0xC2),
        message(b"x", first=0xA2),
        message(b"x", first=0x83),
        b"\x82\x7f" + b"\xff" * 8,
    ],
    ids=["no start", "not negotiated", "reserved bit", "unknown type", "too large"],
)
def test_a_wrong_websocket_frame_ends_its_side(wrong: bytes) -> None:
    found = upgraded([message(SETUP, masked=True)], [message(ITEMS[0]), wrong, message(ITEMS[1])])
    first, bad = found.side(False)
    assert first["error"] is None and bad["error"]["rule"] == "limit"


@pytest.mark.parametrize(("fragments", "right"), [(127, True), (128, True), (129, False)])
def test_ws_fragments(fragments: int, right: bool) -> None:
    pieces = [message(b"", first=0x02)] + [message(b"", first=0x00)] * (fragments - 2) + [message(ITEMS[3], first=0x80)]
    found = upgraded([message(SETUP, masked=True)], pieces, limits=Limits.tiny())
    (made,) = found.side(False)
    assert (made["error"] is None) is right


def test_a_websocket_of_others_is_not_ours() -> None:
    assert upgraded([message(b'{"a": 1}', masked=True, first=0x81)], []).tally == {"not ours (WebSocket)": 1}


def test_bytes_missing_in_a_websocket_stop_its_side() -> None:
    talk = Talk()
    packets = talk.open() + talk.send(True, ASK % b"") + talk.send(False, ANSWER % b"")
    packets += talk.send(True, message(SETUP, masked=True))
    packets += talk.send(False, b"".join(message(item) for item in ITEMS), 100)
    del packets[-4]
    found = Decoded(packets)
    assert "100 bytes are missing" in found.side(False)[-1]["error"]["reason"]


def test_the_text_of_an_error_is_not_what_is_wrong_with_its_frame() -> None:
    """onError of reactive-streams-io has a field of that name."""
    ours, theirs = (b"".join(side) for side in BOTH["rsio"][:2])
    found = Decoded(Talk().whole(ours, theirs + rsio.OnError(subscriber=1, error="full").encode()))
    assert (found[-1]["type"], found[-1]["error"], found[-1]["fields"]) == ("onError", None, {"error": "full"})


# -- bounds and garbage ----------------------------------------------------------------------------------------------


def test_a_frame_above_frame_bytes_is_skipped_not_buffered() -> None:
    limits = Limits.tiny()
    data = prefixed(SETUP, wire.RequestFnf(stream=1, data=bytes(70_000)).encode(), REQUESTS[1])
    found = Decoded(Talk().whole(data, b""), limits=limits)
    assert [made["error"] is None for made in found] == [True, False, True]
    assert "more than 65536 are not shown" in found[1]["error"]["reason"]
    assert found[1]["error"]["rule"] == "limit"  # the frame may be legal


def test_incomplete_frames_of_all_connections_are_bounded() -> None:
    """The connection that goes beyond the limit ends, the others go on."""
    limits = Limits.tiny(capture_bytes=100_000)
    talks = [Talk(("10.0.0.1", 1_000 + n)) for n in range(3)]
    frame = prefixed(wire.RequestFnf(stream=1, data=bytes(50_000)).encode())
    packets = [packet for talk in talks for packet in (*talk.open(), *talk.send(True, prefixed(SETUP) + frame[:-1]))]
    packets += [packet for talk in talks for packet in talk.send(True, frame[-1:])]
    found = Decoded(packets, limits=limits, chunk=9_000)
    wrong = [made for made in found if made["error"]]
    assert [made["error"]["reason"] for made in wrong] == ["too-much-pending: capture_bytes=100000"]
    assert found.types.count("REQUEST_FNF") == 2


@given(st.sampled_from(sorted(BOTH)), st.integers(0, 2**32), st.integers(1, 300))
@settings(deadline=None)
def test_garbage_in_sound_tcp_is_a_row_never_an_exception(protocol: str, seed: int, size: int) -> None:
    """PC-22."""
    noise = random.Random(seed)
    client, server = (bytearray(b"".join(side) + noise.randbytes(200)) for side in BOTH[protocol][:2])
    for data in (client, server):
        for _ in range(3):
            data[noise.randrange(len(data))] = noise.randrange(256)
    packets = Talk().whole(bytes(client), bytes(server), size)
    del packets[noise.randrange(3, len(packets))]
    for options in ({}, {"ports": {7_000: named(protocol)}}):
        found = Decoded(packets, **options)
        assert sum(found.tally.values()) == found.decoder.flows.connections
        assert all(made["conn"] and made["ts"] for made in found)
