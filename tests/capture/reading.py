"""Read captures in the tests: the packets as rows, the bytes of each connection. Contains no tests."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import NamedTuple

from afflux.capture import Capture, Connection, Flows, Network, Problem, segments
from afflux.capture.reassembly import Overlap
from afflux.core.limits import Limits

COMPRESSED = (b"\x1f\x8b\x08\0", b"\x28\xb5\x2f\xfd", b"\xfd7zX", b"BZh9")


class Row(NamedTuple):
    """One packet of a capture."""

    time: int
    interface: int
    linktype: int
    original: int
    data: bytes


def rows(file: bytes, limits: Limits | None = None, chunk: int = 0x8_0000) -> tuple[list[Row], Problem | None]:
    """All packets of a file, and why reading ended early."""
    capture = Capture(io.BytesIO(file), limits=limits, chunk=chunk)
    found = []
    for batch in capture:
        columns = (batch.time, batch.interface, batch.linktype, batch.original, batch.start, batch.captured)
        for *row, start, size in zip(*(column.tolist() for column in columns), strict=True):
            data = batch.block[start : start + size]
            at = batch.offset + start
            assert file[at : at + size] == data or file[:4] in COMPRESSED
            found.append(Row(*row, data))
    assert len(found) == capture.packets
    return found, capture.problem


class Collected:
    """The bytes of a connection: gaps are numbers."""

    def __init__(self, connection: Connection, settled: bool) -> None:
        self.connection = connection
        self.settled = settled
        self.idle = False
        self.found: dict[bool, list[bytes | int]] = {False: [], True: []}
        self.ended: set[bool] = set()

    def data(self, rising: bool, data: bytes, ends: Sequence[int], packets: Sequence[int]) -> None:
        assert ends[-1] == len(data) and len(ends) == len(packets) and list(packets) == sorted(packets)
        self.found[rising].append(data)

    def gap(self, rising: bool, size: int, packet: int) -> None:
        self.found[rising].append(size)

    def end(self, rising: bool, packet: int) -> None:
        self.ended.add(rising)

    def joined(self, client: bool = True) -> list[bytes | int]:
        """What one side sent: bytes without gaps in one piece."""
        opener = self.connection.opener
        rising = (True if opener is None else opener) is client
        pieces: list[bytes | int] = []
        for piece in self.found[rising]:
            if isinstance(piece, bytes) and pieces and isinstance(pieces[-1], bytes):
                pieces[-1] += piece
            else:
                pieces.append(piece)
        return pieces


class Followed(NamedTuple):
    """What the flows of a capture brought."""

    connections: list[Collected]
    flows: Flows
    network: Network
    capture: Capture


def followed(
    file: bytes,
    *,
    settled: bool = True,
    limits: Limits | None = None,
    chunk: int = 0x8_0000,
    checksums: bool = False,
    overlap: Overlap = "first",
) -> Followed:
    """Follow all connections. ``settled``: deliver in bulk where that is possible."""
    made: list[Collected] = []

    def consumer(connection: Connection) -> Collected:
        made.append(Collected(connection, settled))
        return made[-1]

    capture = Capture(io.BytesIO(file), limits=limits, chunk=chunk)
    network, flows = Network(capture.limits), Flows(capture.limits, consumer, overlap=overlap)
    for packets in capture:
        flows.take(packets, segments(packets, network, checksums=checksums))
    network.end()
    flows.end()
    return Followed(made, flows, network, capture)
