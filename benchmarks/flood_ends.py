"""Run a client of a flood as a process: ``python -m benchmarks.flood_ends honest WIRE PORT`` echoes until its input
ends, and ``… attack FLOOD PORT SECONDS ATTACKERS`` runs one flood from several threads. Both answer with one JSON line.

The bytes are handcrafted and the sockets are plain. See floods.py for the measurements.
"""

from __future__ import annotations

import json
import os
import select
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

__all__ = ["FLOODS", "Attacker", "Flood", "main"]

_MI = 1 << 20
_PAUSE = 0.002
"Seconds between two echoes of the honest client."


# -- bytes --------------------------------------------------------------------------------------------------------


def _rsocket(stream: int, kind: int, body: bytes = b"", flags: int = 0) -> bytes:
    return (len(body) + 6).to_bytes(3, "big") + struct.pack("!IH", stream, kind << 10 | flags) + body


def _old(stream: int, kind: int, body: bytes = b"", flags: int = 0) -> bytes:
    return struct.pack("!IHHI", len(body) + 12, kind, flags, stream) + body


def _jmux(first: int, second: int = 0, number: int = 0, body: bytes = b"") -> bytes:
    return struct.pack("!BBH", first, second, number) + body


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


_COMPOSITE = b"message/x.rsocket.composite-metadata.v0"
_MIMES = bytes((len(_COMPOSITE),)) + _COMPOSITE + b"\x12application/binary"
SETUP = _rsocket(0, 1, struct.pack("!HHII", 1, 0, 20_000, 90_000) + _MIMES)
_OLD_SETUP = _old(0, 1, struct.pack("!III", 0, 500, 30_000) + b"\x01a\x01a")
_GREEDY = b"Jmux\x01\x00\x00\x00"
"A Jmux client header that allows the server unbounded sending."
_PATIENT = b"Jmux\x01\x00\x80\x00"
_HELLO = b"\x01\x00\x00"
_SLOW = b"\xfe\x00\x00\x05\x04slow"
"Composite metadata with the route ``slow``."


def _ask(id: int, data: bytes, metadata: bytes = b"") -> bytes:
    if metadata:
        return _rsocket(id, 4, len(metadata).to_bytes(3, "big") + metadata + data, 0x100)
    return _rsocket(id, 4, data)


def _subscribe(id: int, publisher: bytes, demand: int) -> bytes:
    return b"\x03" + _varint(len(publisher)) + publisher + _varint(id) + _varint(demand)


# -- floods -------------------------------------------------------------------------------------------------------

Lines = Callable[[], Iterator[bytes]]


@dataclass(frozen=True)
class Flood:
    """What an attacker writes repeatedly."""

    wire: str
    what: str
    says: Lines
    reads: bool = False
    "Whether the attacker reads the server's answers."
    sockets: int = 1
    "Concurrent connections of one attacker."
    lives: int = 0
    "Messages after which a connection is reset and reopened; 0: as long as the server allows."


def _endless(first: bytes, each: Callable[[int], bytes]) -> Lines:
    def says() -> Iterator[bytes]:
        yield first
        for number in count():
            yield each(number)

    return says


def _once(*lines: bytes) -> Lines:
    return lambda: iter(lines)


def _ids(data: bytes, many: int, metadata: bytes = b"") -> bytes:
    return b"".join(_ask(id, data, metadata) for id in range(1, 2 * many, 2))


def _rapid_reset(number: int) -> bytes:
    ids = range(128 * number + 1, 128 * number + 129, 2)
    return b"".join(_ask(id, b'{"ms": 60000}', _SLOW) + _rsocket(id, 9) for id in ids)


def _large_fragments(number: int) -> bytes:
    id = 2 * (number % 64) + 1
    if number < 64:
        return _rsocket(id, 4, bytes(60_000), 0x80)
    return _rsocket(id, 10, bytes(60_000), 0x80 | 0x20)


def _aborted(number: int) -> bytes:
    return b"".join(_jmux(0x94, id, 7, b"gen 9e6"[:4] + b"999") + _jmux(0x20, id) for id in range(128))


_GEN = b"gen 16777216"
_TOKEN = struct.pack("!HHH", 1, 0, 16)

FLOODS: dict[str, Flood] = {
    "pings": Flood(
        "rsocket",
        "KEEPALIVEs of 60 KB, answers unread",
        _endless(SETUP, lambda _: _rsocket(0, 3, bytes(60_000), 0x80)),
    ),
    "keepalives": Flood(
        "rsocket", "KEEPALIVEs that ask for nothing", _endless(SETUP, lambda _: _rsocket(0, 3, bytes(8)) * 1_000)
    ),
    "cancels": Flood("rsocket", "requests and their CANCELs", _endless(SETUP, _rapid_reset), reads=True),
    "requests": Flood(
        "rsocket",
        "10,000 requests of 1 KB at once, answers unread",
        _endless(SETUP, lambda n: b"".join(_ask(2 * (n * 10_000 + i) + 1, bytes(1_000)) for i in range(10_000))),
    ),
    "answers-later": Flood(
        "rsocket", "256 requests for 4 MiB, handlers that await, unread", _once(SETUP + _ids(b"later", 256))
    ),
    "answers": Flood(
        "rsocket", "256 requests for 4 MiB, handlers that do not, unread", _once(SETUP + _ids(b"at once", 256))
    ),
    "http": Flood(
        "rsocket", "GET / HTTP/1.1 and blobs of 1 MiB", _endless(b"GET / HTTP/1.1\r\n\r\n", lambda _: bytes(_MI))
    ),
    "handshakes": Flood("rsocket", "half a SETUP on 100 connections", _once(SETUP[:20]), sockets=100),
    "fragments": Flood("rsocket", "64 payloads that never end", _endless(SETUP, _large_fragments), reads=True),
    "first-frames": Flood(
        "rsocket", "a first frame of 16 MiB", _endless(b"\xff\xff\xff\0\0\0\0\x04\0", lambda _: bytes(_MI))
    ),
    "pushes": Flood(
        "rsocket", "METADATA_PUSHes of 60 KB", _endless(SETUP, lambda _: _rsocket(0, 12, bytes(60_000), 0x100))
    ),
    "resume": Flood(
        "rsocket",
        "RESUME with guessed tokens",
        lambda: iter([_rsocket(0, 13, _TOKEN + os.urandom(16) + bytes(16))]),
        reads=True,
    ),
    "old-echoes": Flood(
        "reactivesocket",
        "echoes of 500 KB, unread",
        _endless(_OLD_SETUP, lambda n: _old(2 * n + 2, 4, bytes(500_000))),
    ),
    "jmux-answers": Flood(
        "jmux",
        "128 requests for 16 MiB, unread",
        _once(_GREEDY + b"".join(_jmux(0x94, id, len(_GEN), _GEN) for id in range(128))),
    ),
    "jmux-pings": Flood(
        "jmux", "Pings, answers unread", _endless(_GREEDY, lambda _: b"".join(_jmux(4, 0, n) for n in range(10_000)))
    ),
    "jmux-resets": Flood(
        "jmux",
        "128 requests for 1 MB, then a reset, again and again",
        _endless(_GREEDY + b"".join(_jmux(0x94, id, 11, b"gen 1000000") for id in range(128)), lambda _: b""),
        lives=20,
    ),
    "jmux-aborts": Flood("jmux", "requests and their Aborts", _endless(_PATIENT, _aborted), reads=True),
    "rsio": Flood(
        "rsio",
        "unbounded subscriptions of 1 MiB elements, unread",
        _endless(
            _HELLO, lambda n: b"".join(_subscribe(n * 100 + i, b"count:999999:1048576", 1 << 62) for i in range(100))
        ),
    ),
}
"Floods by name."


# -- the attackers ------------------------------------------------------------------------------------------------


class Attacker(threading.Thread):
    """One thread with one or more connections; reopens connections that the server closes, until it ends. ``until``
    of 0 stops it."""

    def __init__(self, flood: Flood, port: int, until: float) -> None:
        super().__init__(daemon=True)
        self.flood, self.port, self.until = flood, port, until
        self.written = 0
        self.connections = 0

    def run(self) -> None:
        links: list[_Link] = []
        while time.monotonic() < self.until:
            while len(links) < self.flood.sockets and time.monotonic() < self.until:
                try:
                    links.append(_Link(self.flood, self.port))
                    self.connections += 1
                except OSError:
                    time.sleep(0.05)
            ready = [link for link in links if not link.step(self)]
            for link in ready:
                link.close()
                links.remove(link)
            if not any(link.moved for link in links):
                time.sleep(0.02)
        for link in links:
            link.close()


class _Link:
    """One connection of an attacker."""

    def __init__(self, flood: Flood, port: int) -> None:
        self.flood = flood
        self.lines = flood.says()
        self.left = memoryview(b"")
        self.said = 0
        self.moved = False
        self.sock = socket.socket()
        if not flood.reads:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        self.sock.settimeout(1.0)
        try:
            self.sock.connect(("127.0.0.1", port))
        except OSError:
            self.sock.close()
            raise
        self.sock.setblocking(False)

    def step(self, attacker: Attacker) -> bool:
        """Write as much as possible; return False if the connection has ended."""
        self.moved = False
        try:
            if not self.left:
                self.left = memoryview(next(self.lines, b""))
                self.said += 1
            if self.left:
                sent = self.sock.send(self.left)
                self.left, self.moved = self.left[sent:], True
                attacker.written += sent
            elif self.flood.lives:
                time.sleep(0.01)
        except BlockingIOError:
            pass
        except OSError:
            return False
        return self._heard() and not (self.flood.lives and self.said > self.flood.lives)

    def _heard(self) -> bool:
        """Read, or check for the server's close without reading more than necessary."""
        try:
            data = self.sock.recv(65_536) if self.flood.reads else self.sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return bool(data)

    def close(self) -> None:
        """Reset the connection."""
        try:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        except OSError:
            pass
        self.sock.close()


def _attack(name: str, port: int, seconds: float, attackers: int) -> dict[str, Any]:
    until = time.monotonic() + seconds
    threads = [Attacker(FLOODS[name], port, until) for _ in range(attackers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(seconds + 10)
    return {
        "written": sum(thread.written for thread in threads),
        "connections": sum(thread.connections for thread in threads),
    }


# -- the honest client --------------------------------------------------------------------------------------------


class _Honest:
    """One connection that echoes 100 bytes at a time. A wrong or missing answer ends the process."""

    def __init__(self, wire: str, port: int) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock.settimeout(60)
        self.file = self.sock.makefile("rb")
        self.echo: Callable[[int, bytes], bytes] = getattr(self, f"_{wire}")
        self.sock.sendall({"rsocket": SETUP, "reactivesocket": _OLD_SETUP, "jmux": _PATIENT, "rsio": _HELLO}[wire])
        if wire == "jmux":
            self.exactly(8)
        self.sizes: dict[int, int] = {}

    def exactly(self, size: int) -> bytes:
        """Read exactly this number of bytes."""
        data = self.file.read(size)
        if len(data) < size:
            raise EOFError("the server has ended the honest connection")
        return data

    def _rsocket(self, number: int, data: bytes) -> bytes:
        self.sock.sendall(_ask(2 * number + 1, data))
        while True:
            frame = self.exactly(int.from_bytes(self.exactly(3), "big"))
            if int.from_bytes(frame[:4], "big") == 2 * number + 1 or frame[4] >> 2 == 11:
                return frame[6:]

    def _reactivesocket(self, number: int, data: bytes) -> bytes:
        self.sock.sendall(_old(2 * number + 2, 4, data))
        while True:
            frame = self.exactly(int.from_bytes(self.exactly(4), "big") - 4)
            if int.from_bytes(frame[4:8], "big") == 2 * number + 2 or frame[1] == 12:
                return frame[8:]

    def _jmux(self, number: int, data: bytes) -> bytes:
        self.sock.sendall(_jmux(0x94, 0, len(data), data))
        answer = b""
        while True:
            first, _, number = struct.unpack("!BBH", self.exactly(4))
            if first == 4:
                self.sock.sendall(_jmux(6, 0, number))
            elif first & 0x80:
                answer += self.exactly(number)
                if first & 8:
                    return answer
            elif first in (0, 2, 8) or first & 0xFD == 0x20:
                raise EOFError(f"message {first:#x}: {self.exactly(number)!r}")

    def _rsio(self, number: int, data: bytes) -> bytes:
        """Subscribe to one element of 100 bytes."""
        self.sock.sendall(_subscribe(number, b"count:1:100", 1))
        element = b""
        while True:
            match self._number():
                case 2:
                    self._number(), self.exactly(self._number())
                case 6:
                    id = self._number()
                    self.sizes[id] = self._number()
                case 7:
                    element = self.exactly(self.sizes[self._number()] or self._number())
                case 10:
                    size = self.sizes[self._number()]
                    element = self.exactly(size * self._number())
                case 8:
                    del self.sizes[self._number()]
                    return data if element == b"0".ljust(100, b".") else element
                case kind:
                    raise EOFError(f"message {kind}")

    def _number(self) -> int:
        value = shift = 0
        while (byte := self.exactly(1)[0]) & 0x80:
            value |= (byte & 0x7F) << shift
            shift += 7
        return value | byte << shift


def _honest(wire: str, port: int) -> None:
    """Echo, and report the times between two input lines."""
    client, times = _Honest(wire, port), list[float]()
    for number in count():
        data = b"%d" % number
        data = data.ljust(100, b".")
        start = time.perf_counter()
        if (answer := client.echo(number, data)) != data:
            raise ValueError(f"a wrong answer: {answer[:80]!r}")
        times.append(time.perf_counter() - start)
        time.sleep(_PAUSE)
        if select.select([sys.stdin], [], [], 0)[0]:
            if not sys.stdin.readline():
                return
            _say(_summary(times))
            times.clear()


def _summary(times: list[float]) -> dict[str, float]:
    ordered = sorted(times)
    return {
        "n": len(ordered),
        "p50_ms": ordered[len(ordered) // 2] * 1e3,
        "p99_ms": ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)] * 1e3,
        "worst_ms": ordered[-1] * 1e3,
    }


def _say(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


def main(arguments: list[str]) -> int:
    """Run one of the two clients."""
    match arguments:
        case ["honest", wire, port]:
            _honest(wire, int(port))
        case ["attack", name, port, seconds, attackers]:
            _say(_attack(name, int(port), float(seconds), int(attackers)))
        case _:
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
