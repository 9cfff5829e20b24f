"""Write the bytes of connections as a pcapng file, in packets that look as if they had been captured.

The packets are synthetic: Ethernet, IP and TCP with right lengths, sequence numbers and checksums, so that Wireshark
and ``afflux decode`` follow them. The bytes, their order and their times are real. Does not open sockets or read
clocks.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

import numpy as np

__all__ = ["LARGEST", "Line", "Recording"]

LARGEST: Final = 65_000
"Bytes of data in a packet at most; IP allows little more."
_FIN, _SYN, _RST, _PSH, _ACK = 1, 2, 4, 8, 16
_OPTIONS: Final = bytes.fromhex("0204ffd7 03030e00")
"Of a SYN: the largest segment, and windows in units of 16 KiB, so that none looks full."
_OPEN: Final = 0xFFFF
"The window of a side that takes bytes, in those units."
_MACS: Final = (bytes.fromhex("020000000001"), bytes.fromhex("020000000002"))
_COMMENT, _NAME, _RESOLUTION, _APPLICATION = 1, 2, 9, 4
_NANOSECONDS: Final = b"\x09"

Host = tuple[str, int]
"An IP address and a port."


class Recording:
    """A pcapng file with one section and one interface.

    Args:
        write: takes the bytes of the file, in order. Its exceptions are passed on.
        application: the program that writes the file.
    """

    def __init__(self, write: Callable[[bytes], object], application: str) -> None:
        self._write = write
        self._names: set[tuple[str, str]] = set()
        section = struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1) + _option(_APPLICATION, application.encode())
        interface = struct.pack("<HHI", 1, 0, 0) + _option(_NAME, b"recording proxy")
        interface += _option(_RESOLUTION, _NANOSECONDS)
        write(_block(0x0A0D0D0A, section + bytes(4)) + _block(1, interface + bytes(4)))

    def connect(self, client: Host, server: Host, now: int, *, name: str = "", comment: str = "") -> Line:
        """Record that a client has connected to a server, and return the connection.

        Args:
            client: the client's end.
            server: the server's end.
            now: the time, in nanoseconds since 1970.
            name: the server's name, if it is not its address.
            comment: a comment on the first packet.
        """
        if name and (server[0], name) not in self._names and len(self._names) < 1_024:
            self._names.add((server[0], name))
            self._write(_resolved(server[0], name))
        line = Line(self, client, server)
        line.open(now, comment)
        return line

    def packet(self, data: bytes, now: int, comment: str = "") -> None:
        """Record one packet."""
        size = len(data)
        head = struct.pack("<IIIII", 0, now >> 32, now & 0xFFFF_FFFF, size, size)
        options = _option(_COMMENT, comment.encode()) + bytes(4) if comment else b""
        self._write(_block(6, head + data + bytes(-size % 4) + options))


class Line:
    """One connection of a recording."""

    def __init__(self, recording: Recording, client: Host, server: Host) -> None:
        self._recording = recording
        self._ends = {True: client, False: server}
        self._next = {True: 0, False: 0}
        self._windows = {True: _OPEN, False: _OPEN}
        hosts = [ip_address(host.partition("%")[0]) for host, _ in (client, server)]
        self._six = any(isinstance(host, IPv6Address) for host in hosts)
        packed = [_mapped(host) if self._six else host.packed for host in hosts]
        self._hosts = dict(zip((True, False), packed, strict=True))

    def open(self, now: int, comment: str) -> None:
        """Record the handshake."""
        self._send(True, now, flags=_SYN, comment=comment)
        self._send(False, now, flags=_SYN | _ACK)
        self._send(True, now)

    def data(self, client: bool, data: bytes, now: int) -> None:
        """Record bytes that one side has sent."""
        for at in range(0, len(data), LARGEST):
            self._send(client, now, data[at : at + LARGEST], _PSH | _ACK)

    def window(self, client: bool, open: bool, now: int) -> None:
        """Record that one side takes no more bytes for now, or that it takes them again."""
        self._windows[client] = _OPEN if open else 0
        self._send(client, now)

    def end(self, client: bool, now: int) -> None:
        """Record that one side sends no more."""
        self._send(client, now, flags=_FIN | _ACK)

    def reset(self, client: bool, now: int, comment: str = "") -> None:
        """Record that one side has broken the connection."""
        self._send(client, now, flags=_RST | _ACK, comment=comment)

    def _send(self, client: bool, now: int, data: bytes = b"", flags: int = _ACK, comment: str = "") -> None:
        source, target = self._hosts[client], self._hosts[not client]
        options = _OPTIONS if flags & _SYN else b""
        ack = self._next[not client] if flags & _ACK else 0
        ports = (self._ends[client][1], self._ends[not client][1])
        offset = (5 + len(options) // 4) << 12 | flags
        head = struct.pack(">HHIIHHHH", *ports, self._next[client], ack, offset, self._windows[client], 0, 0) + options
        size = len(head) + len(data)
        known = _checksum(source + target + struct.pack(">II", size, 6) + head + data)
        segment = head[:16] + struct.pack(">H", known) + head[18:] + data
        self._next[client] = (self._next[client] + len(data) + bool(flags & (_SYN | _FIN))) & 0xFFFF_FFFF
        macs = _MACS if client else _MACS[::-1]
        self._recording.packet(b"".join((macs[1], macs[0], self._network(source, target, size), segment)), now, comment)

    def _network(self, source: bytes, target: bytes, size: int) -> bytes:
        """Return the EtherType and the IP header."""
        if self._six:
            return b"\x86\xdd" + struct.pack(">IHBB", 6 << 28, size, 6, 64) + source + target
        head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + size, 0, 0x4000, 64, 6, 0) + source + target
        return b"\x08\x00" + head[:10] + struct.pack(">H", _checksum(head)) + head[12:]


def _mapped(host: IPv4Address | IPv6Address) -> bytes:
    return host.packed if isinstance(host, IPv6Address) else bytes(10) + b"\xff\xff" + host.packed


def _checksum(data: bytes) -> int:
    """Return the checksum of the Internet protocols (RFC 1071)."""
    total = int(np.frombuffer(data + bytes(len(data) & 1), ">u2").sum(dtype=np.uint64))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF


def _block(kind: int, body: bytes) -> bytes:
    size = len(body) + 12
    return b"".join((struct.pack("<II", kind, size), body, struct.pack("<I", size)))


def _option(code: int, value: bytes) -> bytes:
    value = value[:0xFFFF]
    return struct.pack("<HH", code, len(value)) + value + bytes(-len(value) % 4)


def _resolved(host: str, name: str) -> bytes:
    """Return a block that gives an address a name."""
    address = ip_address(host.partition("%")[0])
    value = address.packed + name.encode() + b"\0"
    return _block(4, _option(1 if isinstance(address, IPv4Address) else 2, value) + bytes(4))
