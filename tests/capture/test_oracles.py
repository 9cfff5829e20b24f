"""The same captures read by others: dpkt and python-pcapng packet by packet, tshark byte by byte, our own engines."""

from __future__ import annotations

import io
import random
import re
import shutil
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import dpkt
import pcapng as python_pcapng
import pytest

from afflux.capture import end_text
from tests.capture.reading import Collected, followed, rows
from tests.capture.writing import (
    CLIENT,
    SERVER,
    Packet,
    Talk,
    enhanced,
    ethernet,
    fragments,
    interface,
    obsolete,
    pcap,
    pcapng,
    section,
    tcp,
)

NOISE = random.Random(7)
TSHARK = shutil.which("tshark")
needs_tshark = pytest.mark.skipif(TSHARK is None, reason="tshark is not installed: apt-get install tshark")


def mixed(seed: int) -> list[Packet]:
    """Connections with faults, VLANs, IPv6 and fragments, their packets interleaved."""
    noise = random.Random(seed)
    lists: list[list[Packet]] = []
    for number in range(12):
        six = number % 3 == 2
        talk = Talk(
            ("2001:db8::5" if six else "10.1.0.5", 4_000 + number),
            ("2001:db8::6" if six else "10.1.0.6", 7_000),
            initial=(noise.choice([7, 2**32 - 2_000]), noise.getrandbits(32)),
            vlans=((0x8100, 9),) if number % 4 == 1 else (),
            time=noise.randrange(10**15, 10**15 * 2),
        )
        packets = talk.open()
        for turn in range(4):
            packets += talk.send(
                turn % 2 == 0, noise.randbytes(noise.randrange(1, 9_000)), noise.choice([100, 536, 1_448])
            )
        for _ in range(5):
            at = noise.randrange(3, len(packets) - 1)
            fault = noise.randrange(2)
            if fault:
                packets.insert(at, packets[noise.randrange(3, at + 1)])
            else:
                packets[at], packets[at + 1] = packets[at + 1], packets[at]
        lists.append([*packets, *talk.close()])
    merged: list[Packet] = []
    while lists:
        one = noise.choice(lists)
        merged.append(one.pop(0))
        lists = [rest for rest in lists if rest]
    return merged


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("nano", [False, True])
def test_dpkt_reads_the_same_packets(order: str, nano: bool) -> None:
    file = pcap(mixed(1), order=order, nano=nano)
    found, problem = rows(file)
    reader = dpkt.pcap.Reader(io.BytesIO(file))
    expected = [(round(time * 1_000_000), data) for time, data in reader]
    assert [(round(row.time / 1_000), row.data) for row in found] == expected
    assert problem is None and {row.linktype for row in found} == {reader.datalink()}


def test_dpkt_finds_the_same_segments() -> None:
    """Ends, sequence numbers, flags and data of every TCP segment."""
    from afflux.capture import Capture, Network, segments

    file = pcap(mixed(2))
    capture = Capture(io.BytesIO(file))
    network = Network(capture.limits)
    found = []
    for batch in capture:
        one = segments(batch, network)
        low, high = (
            [end_text(end) for end in zip(*(half.tolist() for half in ends), strict=True)]
            for ends in (one.low, one.high)
        )
        columns = (one.rising, one.seq, one.ack, one.flags, one.at, one.size)
        for a, b, rising, seq, ack, flags, at, size in zip(
            low, high, *(column.tolist() for column in columns), strict=True
        ):
            found.append((*((a, b) if rising else (b, a)), seq, ack, flags, one.block[at : at + size]))
    expected = []
    for _, data in dpkt.pcap.Reader(io.BytesIO(file)):
        ip = dpkt.ethernet.Ethernet(data).data
        family = socket.AF_INET if isinstance(ip, dpkt.ip.IP) else socket.AF_INET6
        hosts = [socket.inet_ntop(family, address) for address in (ip.src, ip.dst)]
        ends = [f"[{host}]" if ":" in host else host for host in hosts]
        part = ip.data
        expected.append(
            (f"{ends[0]}:{part.sport}", f"{ends[1]}:{part.dport}", part.seq, part.ack, part.flags, part.data)
        )
    assert found == expected


@pytest.mark.filterwarnings("ignore:Field type should not be:DeprecationWarning")
@pytest.mark.parametrize("order", "<>")
def test_python_pcapng_reads_the_same_packets(order: str) -> None:
    packets = mixed(3)
    file = pcapng(packets, order=order)
    file += section() + interface(101) + interface(1, resolution=9)
    file += b"".join(enhanced(packet, 1, ticks=packet.time) for packet in packets[:50])
    file += b"".join(obsolete(packet, 1) for packet in packets[50:60])
    found, problem = rows(file)
    expected = []
    for block in python_pcapng.FileScanner(io.BytesIO(file)):
        if isinstance(block, python_pcapng.blocks.EnhancedPacket | python_pcapng.blocks.ObsoletePacket):
            number = block.interface_id
            expected.append((number, block.interface.link_type, block.packet_len, bytes(block.packet_data)))
            if isinstance(block, python_pcapng.blocks.EnhancedPacket):
                assert abs(found[len(expected) - 1].time / 1e9 - block.timestamp) < 1e-6
    assert [(row.interface, row.linktype, row.original, row.data) for row in found] == expected
    assert problem is None


# -- tshark ----------------------------------------------------------------------------------------------------------


def tshark(path: Path, *words: str) -> str:
    command = [TSHARK or "", "-n", "-r", str(path), "-o", "tcp.reassemble_out_of_order:TRUE", *words]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def followed_by_tshark(path: Path, number: int, *words: str, layer: str = "tcp") -> tuple[str, str, bytes, bytes]:
    """The two ends of a TCP stream and what each has sent. Lines with a tab are of the second."""
    shown = tshark(path, *words, "-q", "-z", f"follow,{layer},raw,{number}")
    first, second = (re.search(rf"^Node {n}: (.*)$", shown, re.MULTILINE)[1] for n in (0, 1))  # type: ignore[index]  # both are there
    lines = re.findall(r"^\t?[0-9a-f]+$", shown.split("Node 1:", 1)[1], re.MULTILINE)
    sides = [b"".join(bytes.fromhex(line) for line in lines if line.startswith("\t") is back) for back in (False, True)]
    return first, second, *sides


@needs_tshark
@pytest.mark.parametrize("seed", [4, 5])
@pytest.mark.parametrize("make", [pcap, pcapng])
def test_tshark_follows_the_same_bytes(tmp_path: Path, seed: int, make: Callable[[list[Packet]], bytes]) -> None:
    """Order, copies and wrapped numbers."""
    path = tmp_path / "capture"
    path.write_bytes(make(mixed(seed)))
    found = followed(path.read_bytes()).connections
    assert len(found) == 12
    for number, one in enumerate(found):
        first, second, forth, back = followed_by_tshark(path, number)
        client = ends_of(one)[0]
        assert {first, second} == set(ends_of(one))
        if first != client:
            forth, back = back, forth
        assert (one.joined(), one.joined(False)) == ([forth], [back])


def ends_of(one: Collected) -> tuple[str, str]:
    low, high = end_text(one.connection.low), end_text(one.connection.high)
    return (low, high) if one.connection.opener else (high, low)


@needs_tshark
def test_tshark_reads_the_packets_of_the_writer_without_complaint(tmp_path: Path) -> None:
    """The oracle of the other tests is the writer: so Wireshark checks the writer."""
    pieces = fragments(tcp(CLIENT, SERVER, 1, bytes(3_000)), 1_400)
    packets = [*Talk().whole(b"a" * 5_000, b"b"), *(Packet(ethernet(piece)) for piece in pieces)]
    path = tmp_path / "capture"
    path.write_bytes(pcapng(packets))
    words = ("-o", "tcp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE", "-T", "fields")
    shown = tshark(path, *words, "-e", "tcp.checksum.status", "-e", "ip.checksum.status", "-e", "_ws.malformed")
    rows = [line.split("\t") for line in shown.splitlines()]
    assert len(rows) == len(packets)
    assert (
        {row[0] for row in rows} == {"1", ""} and {row[1] for row in rows} == {"1"} and {row[2] for row in rows} == {""}
    )
