"""Make captures of RSocket with known content, many megabytes a second: a round of packets is a row of bytes, and numpy
writes what differs between rounds: times, ports, sequence numbers and stream ids.

- ``stream``: 8 connections on loopback; the server sends items of 128 bytes without end, in segments of 64 KiB.
- ``mtu``: the same in segments of 1,448 bytes, as on an Ethernet with an MTU of 1,500.
- ``requests``: 1,000 connections, on each of which one request of 128 bytes after the other has an answer.
- ``short``: connections with a single request each.
- ``calls``: connections with three requests each, to routes.

All packets are Ethernet and IPv4, every connection begins with SYN and ends with FIN, nothing is lost.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from afflux.protocols.rsocket import frames as wire
from afflux.protocols.rsocket.metadata import compose

__all__ = ["KINDS", "Truth", "make"]

_START: Final = 1_790_000_000
"When the first packet is captured, in seconds."
_SERVER: Final = 0x0A000001
_CLIENT: Final = 0x0A010000
_PORTS: Final = 10_000
"Connections from one address of a client."
_DATA: Final = bytes(range(128))
_HEAD: Final = 16 + 14 + 20 + 20
"The headers of a packet: of the record, Ethernet, IP and TCP."
_TICK_US: Final = 10
"Microseconds between packets."
_CHUNK: Final = 0x200_0000
_STREAMS: Final = 8
_CONNECTIONS: Final = 1_000
SYN, FIN, ACK, PUSH = 2, 1, 16, 8

Octets = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Truth:
    """What a capture has."""

    bytes: int
    packets: int
    connections: int
    frames: int
    streams: int


@dataclass(frozen=True, slots=True)
class _Packet:
    """A packet of a round: who sends it, its flags, and its bytes or those of each round."""

    client: bool
    flags: int
    data: bytes = b""


class _Rounds:
    """Rows of packets that are equal but for what ``rows`` is told."""

    def __init__(self, packets: Sequence[_Packet]) -> None:
        self.packets = packets
        self.at = np.cumsum([0, *(_HEAD + len(one.data) for one in packets)])[:-1].tolist()
        self.template = np.frombuffer(b"".join(_headed(one) for one in packets), np.uint8)
        self.size = len(self.template)

    def rows(self, first: int, connection: Numbers, client_seq: Numbers, server_seq: Numbers) -> Octets:
        """Return a row for each connection; ``first`` is the number of the first packet, the others are where each
        side's bytes are."""
        made = np.tile(self.template, (len(connection), 1))
        seq = {True: client_seq.copy(), False: server_seq.copy()}
        number = first + np.arange(len(connection), dtype=np.int64) * len(self.packets)
        address, port = _CLIENT + connection // _PORTS, 10_000 + connection % _PORTS
        for place, packet in zip(self.at, self.packets, strict=True):
            micros = number * _TICK_US
            _put(made, place, "<u4", _START + micros // 1_000_000)
            _put(made, place + 4, "<u4", micros % 1_000_000)
            _put(made, place + (42 if packet.client else 46), ">u4", address)
            _put(made, place + (50 if packet.client else 52), ">u2", port)
            _put(made, place + 54, ">u4", seq[packet.client])
            if packet.flags & ACK:
                _put(made, place + 58, ">u4", seq[not packet.client])
            seq[packet.client] += len(packet.data) + bool(packet.flags & (SYN | FIN))
            number += 1
        return made


def _put(rows: Octets, at: int, kind: str, values: Numbers) -> None:
    octets = (values & 0xFFFF_FFFF).astype(kind)
    rows[:, at : at + octets.itemsize] = octets.view(np.uint8).reshape(len(values), -1)


def _headed(packet: _Packet) -> bytes:
    size = len(packet.data)
    ends = (_CLIENT, _SERVER) if packet.client else (_SERVER, _CLIENT)
    ports = (10_000, 7_000) if packet.client else (7_000, 10_000)
    record = struct.pack("<IIII", 0, 0, size + _HEAD - 16, size + _HEAD - 16)
    ethernet = bytes(12) + b"\x08\0"
    network = struct.pack(">BBHHHBBHII", 0x45, 0, size + 40, 0, 0, 64, 6, 0, *ends)
    transport = struct.pack(">HHIIHHHH", *ports, 0, 0, 0x5000 | packet.flags, 0xFFFF, 0, 0)
    return record + ethernet + network + transport + packet.data


_OPEN: Final = (_Packet(True, SYN), _Packet(False, SYN | ACK), _Packet(True, ACK))
_CLOSE: Final = (_Packet(True, FIN | ACK), _Packet(False, FIN | ACK), _Packet(True, ACK))
_ROUTES: Final = ("orders.find", "orders.place", "prices.latest")
_SETUP: Final = wire.Setup().encode(prefixed=True)
_STREAM: Final = wire.RequestStream(stream=1, initial_n=0x7FFF_FFFF, data=_DATA).encode(prefixed=True)
_ITEM: Final = wire.PayloadFrame(stream=1, next=True, data=_DATA).encode(prefixed=True)
_ASK: Final = wire.RequestResponse(stream=1, data=_DATA).encode(prefixed=True)
_ANSWER: Final = wire.PayloadFrame(stream=1, next=True, complete=True, data=_DATA).encode(prefixed=True)


def _zeros(count: int) -> Numbers:
    return np.zeros(count, np.int64)


def _around(connections: int, hello: bytes) -> tuple[_Rounds, _Rounds]:
    """Return the packets that open connections and say ``hello``, and those that close them."""
    return _Rounds([*_OPEN, _Packet(True, ACK | PUSH, hello), _Packet(False, ACK)]), _Rounds(_CLOSE)


def _streaming(path: Path, size: int, segment: int, each: int) -> Truth:
    """Write a capture of endless streams: rounds of ``each`` segments and an acknowledgement. All connections send the
    same number of whole items."""
    hello = _SETUP + _STREAM
    begin, end = _around(_STREAMS, hello)
    round_ = _Rounds([*(_Packet(False, ACK | PUSH, bytes(segment)) for _ in range(each)), _Packet(True, ACK)])
    count = max(1, size // (round_.size * _STREAMS))
    items = count * each * segment // len(_ITEM)
    text = np.frombuffer(_ITEM * (segment // len(_ITEM) + 3), np.uint8)
    windows = np.lib.stride_tricks.sliding_window_view(text, segment)[: len(_ITEM)]
    all_, one = np.arange(_STREAMS, dtype=np.int64), len(hello) + 1
    per = max(1, _CHUNK // (round_.size * _STREAMS))
    packets = 0
    with path.open("wb") as file:
        file.write(_file_header())
        file.write(begin.rows(0, all_, _zeros(_STREAMS), _zeros(_STREAMS)).tobytes())
        packets += _STREAMS * len(begin.packets)
        for first in range(0, count, per):
            rounds = np.repeat(np.arange(first, min(first + per, count), dtype=np.int64), _STREAMS)
            conns = np.tile(all_, len(rounds) // _STREAMS)
            made = round_.rows(packets, conns, _zeros(len(rounds)) + one, rounds * each * segment + 1)
            for number, place in enumerate(round_.at[:-1]):
                made[:, place + _HEAD : place + _HEAD + segment] = windows[
                    (rounds * each + number) * segment % len(_ITEM)
                ]
            file.write(made.data)
            packets += len(rounds) * len(round_.packets)
        rest = _ITEM[count * each * segment % len(_ITEM) :] if count * each * segment % len(_ITEM) else b""
        last = _Rounds([_Packet(False, ACK | PUSH, rest), *_CLOSE]) if rest else end
        sent = _zeros(_STREAMS) + count * each * segment + 1
        file.write(last.rows(packets, all_, _zeros(_STREAMS) + one, sent).tobytes())
        packets += _STREAMS * len(last.packets)
        total = items + bool(rest)
        return Truth(file.tell(), packets, _STREAMS, _STREAMS * (total + 2), _STREAMS)


def _requests(path: Path, size: int) -> Truth:
    """Write a capture of requests with answers."""
    begin, end = _around(_CONNECTIONS, _SETUP)
    round_ = _Rounds([_Packet(True, ACK | PUSH, _ASK), _Packet(False, ACK | PUSH, _ANSWER), _Packet(True, ACK)])
    count = max(1, size // (round_.size * _CONNECTIONS))
    all_ = np.arange(_CONNECTIONS, dtype=np.int64)
    ask, answer = len(_SETUP) + 1, 1
    packets = 0
    with path.open("wb") as file:
        file.write(_file_header())
        file.write(begin.rows(0, all_, _zeros(len(all_)), _zeros(len(all_))).tobytes())
        packets += len(all_) * len(begin.packets)
        for number in range(count):
            seqs = _zeros(len(all_)) + ask + number * len(_ASK), _zeros(len(all_)) + answer + number * len(_ANSWER)
            made = round_.rows(packets, all_, *seqs)
            for place in round_.at[:2]:
                _put(made, place + _HEAD + 3, ">u4", _zeros(len(all_)) + 2 * number + 1)
            file.write(made.data)
            packets += len(all_) * len(round_.packets)
        ends = _zeros(len(all_)) + ask + count * len(_ASK), _zeros(len(all_)) + answer + count * len(_ANSWER)
        file.write(end.rows(packets, all_, *ends).tobytes())
        packets += len(all_) * len(end.packets)
        return Truth(file.tell(), packets, _CONNECTIONS, _CONNECTIONS * (1 + 2 * count), _CONNECTIONS * count)


def _short(path: Path, size: int) -> Truth:
    """Write a capture of connections with one request."""
    said = (_Packet(True, ACK | PUSH, _SETUP + _ASK), _Packet(False, ACK | PUSH, _ANSWER))
    return _following(path, size, said, 1)


def _calls(path: Path, size: int) -> Truth:
    """Write a capture of connections with requests to routes."""
    said = [_Packet(True, ACK | PUSH, _SETUP)]
    for number, route in enumerate(_ROUTES):
        stream, metadata = 2 * number + 1, compose(route=route)
        ask = wire.RequestResponse(stream=stream, metadata=metadata, data=_DATA).encode(prefixed=True)
        answer = wire.PayloadFrame(stream=stream, next=True, complete=True, data=_DATA).encode(prefixed=True)
        said += [_Packet(True, ACK | PUSH, ask), _Packet(False, ACK | PUSH, answer)]
    return _following(path, size, said, len(_ROUTES))


def _following(path: Path, size: int, said: Sequence[_Packet], requests: int) -> Truth:
    """Write a capture of connections that follow each other."""
    whole = _Rounds([*_OPEN, *said, *_CLOSE])
    count = max(1, size // whole.size)
    per = max(1, _CHUNK // whole.size)
    with path.open("wb") as file:
        file.write(_file_header())
        for first in range(0, count, per):
            conns = np.arange(first, min(first + per, count), dtype=np.int64)
            file.write(whole.rows(first * len(whole.packets), conns, _zeros(len(conns)), _zeros(len(conns))).data)
        frames = count * (1 + 2 * requests)
        return Truth(file.tell(), count * len(whole.packets), count, frames, requests * count)


def _file_header() -> bytes:
    return struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 262_144, 1)


KINDS: Final = {
    "stream": "streams of 128 B items, segments of 64 KiB",
    "mtu": "streams of 128 B items, segments of 1,448 B (MTU 1,500)",
    "requests": "requests of 128 B with answers, 1,000 connections",
    "short": "10,000 connections with one request each",
    "calls": "connections with three routed requests each",
}
"The captures."
SHORT_BYTES: Final = 10_000 * 1_100


def make(kind: str, path: Path, size: int) -> Truth:
    """Write a capture of about ``size`` bytes; return what it has. Raises OSError."""
    if kind == "stream":
        return _streaming(path, size, 65_483, 1)
    if kind == "mtu":
        return _streaming(path, size, 1_448, 2)
    return {"requests": _requests, "short": _short, "calls": _calls}[kind](path, size)
