"""Captures with a known truth: packets, connections with faults, and files of every format. Contains no tests."""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

FIN, SYN, RST, PSH, ACK = 1, 2, 4, 8, 16
START = 1_790_000_000_123_456_000
"When the first packet is captured, in nanoseconds."
CLIENT, SERVER = ("10.0.0.1", 40_000), ("10.0.0.2", 7_000)
CLIENT6, SERVER6 = ("2001:db8::1", 40_000), ("2001:db8::2", 7_000)
End = tuple[str, int]


@dataclass(frozen=True)
class Packet:
    """A packet on the wire: its link layer is of ``linktype``."""

    data: bytes
    time: int = START
    original: int = 0
    linktype: int = 1

    @property
    def whole(self) -> int:
        return self.original or len(self.data)

    def cut(self, size: int) -> Packet:
        """The packet as a capture with this snap length has it."""
        return replace(self, data=self.data[:size], original=self.whole)


# -- layers ------------------------------------------------------------------------------------------------------


def checksum(data: bytes) -> int:
    data += bytes(len(data) & 1)
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF


def tcp(
    source: End,
    target: End,
    seq: int,
    data: bytes = b"",
    flags: int = ACK,
    ack: int = 0,
    options: bytes = b"",
    right: bool = True,
) -> bytes:
    """An IP packet with a TCP segment; the options are padded."""
    options += bytes(-len(options) % 4)
    offset = (5 + len(options) // 4) << 12
    start = struct.pack(">HHIIHHHH", source[1], target[1], seq % 2**32, ack % 2**32, offset | flags, 0xFFFF, 0, 0)
    ends = ipaddress.ip_address(source[0]).packed + ipaddress.ip_address(target[0]).packed
    segment = start + options + data
    known = checksum(ends + struct.pack(">II", len(segment), 6) + segment) if right else 0xDEAD
    segment = segment[:16] + struct.pack(">H", known) + segment[18:]
    return (ipv6 if ":" in source[0] else ipv4)(source[0], target[0], segment)


def ipv4(source: str, target: str, payload: bytes, *, options: bytes = b"", identification: int = 1, fragment: int = 0,
         protocol: int = 6) -> bytes:  # fmt: skip
    options += bytes(-len(options) % 4)
    size = 20 + len(options)
    head = struct.pack(">BBHHHBBH", 0x40 | size // 4, 0, size + len(payload), identification, fragment, 64, protocol, 0)
    head += ipaddress.ip_address(source).packed + ipaddress.ip_address(target).packed + options
    return head[:10] + struct.pack(">H", checksum(head)) + head[12:] + payload


def ipv6(
    source: str, target: str, payload: bytes, *, extensions: Sequence[tuple[int, bytes]] = (), protocol: int = 6
) -> bytes:
    """An IPv6 packet; an extension is its number and its bytes after the first one."""
    kinds = [*(kind for kind, _ in extensions), protocol]
    body = b"".join(bytes([kinds[n + 1]]) + data for n, (_, data) in enumerate(extensions)) + payload
    head = struct.pack(">IHBB", 6 << 28, len(body), kinds[0], 64)
    return head + ipaddress.ip_address(source).packed + ipaddress.ip_address(target).packed + body


def fragments(packet: bytes, size: int, identification: int = 77) -> list[bytes]:
    """The fragments of an IPv4 or IPv6 packet; ``size`` is a multiple of 8."""
    if packet[0] >> 4 == 4:
        source, target = (str(ipaddress.ip_address(packet[at : at + 4])) for at in (12, 16))
        payload = packet[(packet[0] & 15) * 4 :]
        return [
            ipv4(source, target, payload[at : at + size], identification=identification,
                 fragment=at // 8 | 0x2000 * (at + size < len(payload)))
            for at in range(0, len(payload), size)
        ]  # fmt: skip
    source, target = (str(ipaddress.ip_address(packet[at : at + 16])) for at in (8, 24))
    payload = packet[40:]
    return [
        ipv6(source, target, payload[at : at + size],
             extensions=[(44, struct.pack(">BHI", 0, at | (at + size < len(payload)), identification))])
        for at in range(0, len(payload), size)
    ]  # fmt: skip


def ethernet(packet: bytes, vlans: Sequence[tuple[int, int]] = ()) -> bytes:
    """An Ethernet frame; a VLAN is its EtherType and its number."""
    kind = struct.pack(">H", 0x86DD if packet[0] >> 4 == 6 else 0x0800)
    tags = b"".join(struct.pack(">HH", kind, number) for kind, number in vlans)
    return b"\x02\0\0\0\0\x02\x02\0\0\0\0\x01" + tags + kind + packet


def linked(packet: bytes, linktype: int) -> bytes:
    """A packet behind the header of a link type."""
    six = packet[0] >> 4 == 6
    kind = struct.pack(">H", 0x86DD if six else 0x0800)
    match linktype:
        case 0:
            return struct.pack("<I", 30 if six else 2) + packet
        case 1:
            return ethernet(packet)
        case 108:
            return struct.pack(">I", 24 if six else 2) + packet
        case 113:
            return struct.pack(">HHH8s", 0, 1, 6, bytes(8)) + kind + packet
        case 276:
            return kind + struct.pack(">HIHBB8s", 0, 1, 1, 0, 6, bytes(8)) + packet
        case _:
            return packet


# -- connections -------------------------------------------------------------------------------------------------


@dataclass
class Talk:
    """One connection. Each method returns packets, a millisecond apart; ``sent`` is what each side has sent."""

    client: End = CLIENT
    server: End = SERVER
    initial: tuple[int, int] = (1_000, 9_000)
    linktype: int = 1
    vlans: Sequence[tuple[int, int]] = ()
    time: int = START
    sent: dict[bool, bytearray] = field(default_factory=lambda: {True: bytearray(), False: bytearray()})

    def packet(self, client: bool, at: int, data: bytes = b"", flags: int = ACK, right: bool = True) -> Packet:
        """A segment with the bytes at a position of its direction; position -1 is the SYN."""
        source, target = (self.client, self.server) if client else (self.server, self.client)
        mine, theirs = self.initial if client else self.initial[::-1]
        ack = theirs + 1 + len(self.sent[not client]) if flags & ACK else 0
        segment = tcp(source, target, mine + 1 + at, data, flags, ack, right=right)
        self.time += 1_000_000
        frame = ethernet(segment, self.vlans) if self.linktype == 1 else linked(segment, self.linktype)
        return Packet(frame, self.time, linktype=self.linktype)

    def open(self) -> list[Packet]:
        """The handshake."""
        return [self.packet(True, -1, flags=SYN), self.packet(False, -1, flags=SYN | ACK), self.packet(True, 0)]

    def send(self, client: bool, data: bytes, size: int = 1_448) -> list[Packet]:
        """Data of one side in segments of ``size``, and an acknowledgement."""
        at = len(self.sent[client])
        self.sent[client] += data
        pieces = [data[n : n + size] for n in range(0, len(data), size)]
        packets = [self.packet(client, at + n * size, piece, ACK | PSH) for n, piece in enumerate(pieces)]
        return [*packets, self.packet(not client, len(self.sent[not client]))]

    def close(self) -> list[Packet]:
        """Both FINs."""
        sides = (True, False)
        return [self.packet(client, len(self.sent[client]), flags=FIN | ACK) for client in sides]

    def whole(self, client: bytes, server: bytes, size: int = 1_448) -> list[Packet]:
        """A connection in which the client sends, then the server."""
        return [*self.open(), *self.send(True, client, size), *self.send(False, server, size), *self.close()]


# -- files -------------------------------------------------------------------------------------------------------


def pcap(
    packets: Iterable[Packet], *, order: str = "<", nano: bool = False, snaplen: int = 262_144, link: int | None = None
) -> bytes:
    packets = list(packets)
    linktype = link if link is not None else packets[0].linktype if packets else 1
    unit = 1 if nano else 1_000
    found = [struct.pack(order + "IHHiIII", 0xA1B23C4D if nano else 0xA1B2C3D4, 2, 4, 0, 0, snaplen, linktype)]
    for one in packets:
        seconds, rest = divmod(one.time, 1_000_000_000)
        found.append(struct.pack(order + "IIII", seconds, rest // unit, len(one.data), one.whole) + one.data)
    return b"".join(found)


def block(kind: int, body: bytes, order: str = "<") -> bytes:
    body += bytes(-len(body) % 4)
    size = len(body) + 12
    return struct.pack(order + "II", kind, size) + body + struct.pack(order + "I", size)


def option(code: int, value: bytes, order: str = "<") -> bytes:
    return struct.pack(order + "HH", code, len(value)) + value + bytes(-len(value) % 4)


def section(order: str = "<") -> bytes:
    return block(0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1), order)


def interface(
    linktype: int = 1, *, order: str = "<", snaplen: int = 262_144, resolution: int | None = None, offset: int = 0
) -> bytes:
    options = b"" if resolution is None else option(9, bytes([resolution]), order)
    options += option(14, struct.pack(order + "q", offset), order) if offset else b""
    return block(
        1,
        struct.pack(order + "HHI", linktype, 0, snaplen) + options + (option(0, b"", order) if options else b""),
        order,
    )


def enhanced(packet: Packet, number: int = 0, *, order: str = "<", ticks: int | None = None) -> bytes:
    ticks = packet.time // 1_000 if ticks is None else ticks
    head = struct.pack(order + "IIIII", number, ticks >> 32, ticks & 0xFFFFFFFF, len(packet.data), packet.whole)
    return block(6, head + packet.data, order)


def obsolete(packet: Packet, number: int = 0, *, order: str = "<") -> bytes:
    ticks = packet.time // 1_000
    head = struct.pack(order + "HHIIII", number, 0, ticks >> 32, ticks & 0xFFFFFFFF, len(packet.data), packet.whole)
    return block(2, head + packet.data, order)


def simple(packet: Packet, *, order: str = "<") -> bytes:
    return block(3, struct.pack(order + "I", packet.whole) + packet.data, order)


def pcapng(packets: Iterable[Packet], *, order: str = "<") -> bytes:
    """A file with one interface for each link type."""
    packets = list(packets)
    types = list(dict.fromkeys(one.linktype for one in packets)) or [1]
    head = section(order) + b"".join(interface(linktype, order=order) for linktype in types)
    return head + b"".join(enhanced(one, types.index(one.linktype), order=order) for one in packets)
