"""Link layers, IP and TCP headers: what is found, and the reason for every packet that is skipped."""

from __future__ import annotations

import random
import struct
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afflux.capture import end_text
from tests.capture.reading import followed
from tests.capture.writing import (
    ACK,
    CLIENT,
    CLIENT6,
    SERVER,
    SERVER6,
    START,
    SYN,
    Packet,
    Talk,
    ethernet,
    fragments,
    ipv4,
    ipv6,
    linked,
    pcap,
    pcapng,
    tcp,
)

TYPES = [0, 1, 12, 14, 101, 108, 113, 228, 276]


def data_of(packets: list[bytes], linktype: int = 1) -> tuple[list[bytes | int], dict[str, int]]:
    """What the client sent in these packets, and what was skipped."""
    found = followed(pcap([Packet(data, START + n, linktype=linktype) for n, data in enumerate(packets)]))
    skipped = {reason: count for reason, count in found.network.skipped.items() if count}
    return ([piece for one in found.connections for piece in one.joined()], skipped)


@pytest.mark.parametrize("linktype", TYPES)
@pytest.mark.parametrize("six", [False, True])
def test_every_link_layer(linktype: int, six: bool) -> None:
    """PC-13."""
    talk = Talk(CLIENT6, SERVER6, linktype=linktype) if six else Talk(linktype=linktype)
    found = followed(pcap(talk.whole(b"question" * 300, b"answer" * 500)))
    (one,) = found.connections
    assert (one.joined(), one.joined(False)) == ([b"question" * 300], [b"answer" * 500])
    assert {end_text(one.connection.low), end_text(one.connection.high)} == (
        {"[2001:db8::1]:40000", "[2001:db8::2]:7000"} if six else {"10.0.0.1:40000", "10.0.0.2:7000"}
    )
    assert +found.network.skipped == Counter()


def test_loopback_in_the_other_byte_order() -> None:
    packet = tcp(CLIENT, SERVER, 1, b"data")
    assert data_of([struct.pack(">I", 2) + packet], 0) == ([b"data"], {})


def test_link_types_may_be_mixed_in_a_file() -> None:
    """PC-13."""
    talks = [Talk(("10.0.0.1", 4_000 + kind), linktype=kind) for kind in TYPES]
    sets = [talk.whole(b"%d" % talk.linktype, b"ok") for talk in talks]
    mixed = [packet for row in zip(*sets, strict=True) for packet in row]
    mixed.insert(3, Packet(b"?" * 60, linktype=147))
    found = followed(pcapng(mixed))
    assert sorted(one.joined()[0] for one in found.connections) == sorted(b"%d" % kind for kind in TYPES)  # type: ignore[type-var]  # all are bytes
    assert +found.network.skipped == {"unsupported link type 147": 1}


@pytest.mark.parametrize(("tags", "read"), [(0, True), (1, True), (2, True), (4, True), (5, False), (100, False)])
def test_capture_depth(tags: int, read: bool) -> None:
    """PC-16."""
    kinds = [(0x88A8, 1), (0x8100, 2), (0x9100, 3)]
    frame = ethernet(tcp(CLIENT, SERVER, 1, b"data"), [kinds[n % 3] for n in range(tags)])
    assert data_of([frame]) == (([b"data"], {}) if read else ([], {"too many tags": 1}))


def test_mpls_and_pppoe() -> None:
    packet, macs = tcp(CLIENT, SERVER, 1, b"data"), bytes(12)
    labels = macs + b"\x88\x47" + b"\x00\x01\x00\xff" + b"\x00\x02\x01\xff" + packet
    point = macs + b"\x88\x64" + struct.pack(">BBHHH", 0x11, 0, 1, len(packet) + 2, 0x21) + packet
    six = tcp(CLIENT6, SERVER6, 1, b"six")
    point6 = macs + b"\x88\x64" + struct.pack(">BBHHH", 0x11, 0, 1, len(six) + 2, 0x57) + six
    assert data_of([labels]) == data_of([point]) == ([b"data"], {})
    assert data_of([point6]) == ([b"six"], {})


def test_options_of_ip_and_tcp() -> None:
    segment = tcp(CLIENT, SERVER, 1, b"data", options=b"\x01" * 37)
    assert data_of([ethernet(ipv4(CLIENT[0], SERVER[0], segment[20:], options=b"\x01" * 40))]) == ([b"data"], {})


def test_ethernet_padding_is_not_data() -> None:
    assert data_of([ethernet(tcp(CLIENT, SERVER, 1, b"d")) + bytes(6)]) == ([b"d"], {})


def test_an_ip_length_of_0_is_segmentation_offload() -> None:
    packet = tcp(CLIENT, SERVER, 1, b"data")
    assert data_of([ethernet(packet[:2] + b"\0\0" + packet[4:])]) == ([b"data"], {})


@pytest.mark.parametrize(("count", "read"), [(0, True), (1, True), (8, True), (9, False)])
def test_capture_ipv6_headers(count: int, read: bool) -> None:
    """Hop-by-hop, routing, destination options and authentication (PC-16)."""
    kinds = [(0, b"\0" + bytes(6)), (43, b"\1" + bytes(14)), (60, b"\0" + bytes(6)), (51, b"\4" + bytes(22))]
    segment = tcp(CLIENT6, SERVER6, 1, b"data")[40:]
    packet = ipv6(CLIENT6[0], SERVER6[0], segment, extensions=[kinds[n % 4] for n in range(count)])
    assert data_of([ethernet(packet)]) == (([b"data"], {}) if read else ([], {"not TCP": 1}))


@pytest.mark.parametrize("ends", [(CLIENT, SERVER), (CLIENT6, SERVER6)])
@pytest.mark.parametrize("size", [8, 24, 1_400])
def test_fragments_in_any_order(ends: tuple[tuple[str, int], tuple[str, int]], size: int) -> None:
    data = bytes(range(256)) * 12
    pieces = fragments(tcp(*ends, 1, data), size)
    random.Random(size).shuffle(pieces)
    pieces.insert(1, pieces[0])  # a copy
    assert data_of([ethernet(piece) for piece in pieces]) == ([data], {})
    assert data_of([ethernet(piece) for piece in pieces[2:]])[1] == {"incomplete fragments": 1}


def test_an_atomic_fragment_is_whole() -> None:
    """RFC 6946: a fragment header on a whole datagram."""
    (packet,) = fragments(tcp(CLIENT6, SERVER6, 1, b"data"), 1_400)
    assert data_of([ethernet(packet)]) == ([b"data"], {})


def test_overlapping_fragments_are_dropped() -> None:
    one, two, *_ = fragments(tcp(CLIENT, SERVER, 1, bytes(100)), 40)
    shifted = ipv4(CLIENT[0], SERVER[0], b"x" * 40, identification=77, fragment=4 | 0x2000)
    assert data_of([ethernet(one), ethernet(shifted), ethernet(two)])[1] == {
        "contradicting fragments": 1,
        "incomplete fragments": 1,
    }


def test_fragments_are_bounded() -> None:
    firsts = [fragments(tcp(CLIENT, SERVER, 1, bytes(100)), 40, number)[0] for number in range(1_500)]
    assert data_of([ethernet(first) for first in firsts]) == ([], {"incomplete fragments": 1_500})


GOOD = tcp(CLIENT, SERVER, 1, b"data")


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (b"", "cut off before IP"),
        (bytes(13), "cut off before IP"),
        (bytes(60), "not IP"),
        (ethernet(GOOD)[:20], "cut off in IP"),
        (ethernet(b"\x44" + GOOD[1:]), "wrong IP header"),
        (ethernet(GOOD[:2] + b"\xff\xff" + GOOD[4:]), "wrong IP header"),
        (ethernet(GOOD[:2] + b"\0\x10" + GOOD[4:]), "wrong IP header"),
        (ethernet(GOOD[:9] + b"\x11" + GOOD[10:]), "not TCP"),
        (ethernet(ipv4(CLIENT[0], SERVER[0], GOOD[20:39])), "cut off in TCP"),
        (ethernet(GOOD[:32] + b"\x40" + GOOD[33:]), "wrong TCP header"),
        (ethernet(GOOD[:32] + b"\xf0" + GOOD[33:]), "wrong TCP header"),
        (ethernet(b"\x60" + bytes(30)), "cut off in IP"),
        (ethernet(b"\x60\0\0\0\xff\0" + bytes(40)), "wrong IP header"),
        (ethernet(b"\x60\0\0\0\0\x04\x06\0" + bytes(36)), "cut off in TCP"),
        (ethernet(b"\x60\0\0\0\0\x04\0\0" + bytes(36)), "not TCP"),
    ],
)
def test_a_skipped_packet_has_a_reason(frame: bytes, reason: str) -> None:
    """PC-15."""
    assert data_of([frame, ethernet(GOOD)]) == ([b"data"], {reason: 1})


def test_checksums_are_counted_on_request_and_nothing_is_dropped() -> None:
    """PC-15."""
    talk = Talk()
    packets = [*talk.open(), talk.packet(True, 0, b"odd", right=False), talk.packet(True, 3, b"even")]
    packets.append(talk.packet(True, 7, b"cut off").cut(60))
    for linked_packets, wrong in ((packets, 1), (Talk(CLIENT6, SERVER6).whole(b"abc", b"defg"), 0)):
        found = followed(pcap(linked_packets), checksums=True)
        assert found.network.wrong_checksums == wrong
    assert followed(pcap(packets)).connections[0].joined() == [b"oddevencut of", 1]
    assert followed(pcap(packets)).network.wrong_checksums == 0


@given(st.sampled_from([0, 1, 101, 113, 276]), st.lists(st.binary(max_size=120), max_size=8), st.data())
def test_garbage_never_raises(linktype: int, noise: list[bytes], data: st.DataObject) -> None:
    packet = linked(tcp(CLIENT, SERVER, 5, b"payload", SYN | ACK), linktype)
    at = data.draw(st.integers(0, len(packet)))
    packets = [Packet(packet[:at] + tail, linktype=linktype) for tail in noise]
    packets += [Packet(packet, linktype=linktype).cut(at)]
    found = followed(pcap(packets))
    assert found.capture.packets == len(packets)
    carried = sum(found.network.skipped.values())
    assert 0 <= carried <= len(packets)
