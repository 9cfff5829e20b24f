"""Frames as columns: their records are those of the decoder, for every protocol, whatever the capture contains."""

from __future__ import annotations

import io
from typing import Any

import pytest

from afflux.capture import Capture, Decoder
from afflux.capture.batches import FrameBatches
from afflux.capture.frames import Frames
from afflux.core.dissector import Record
from afflux.core.entry import ProtocolEntry
from afflux.core.limits import Limits
from afflux.protocols.registry import named, recognizable
from tests.capture.writing import Packet, Talk, pcap
from tests.cli.test_decode import BOTH


def both(
    packets: list[Packet], *, payload: bool = False, chunk: int = 0x8_0000, limits: Limits | None = None, **options: Any
) -> tuple[list[Record], list[Frames]]:
    """The records of the decoder, and the frames as columns."""
    file, entries = pcap(packets), options.pop("entries", recognizable())
    capture = Capture(io.BytesIO(file), limits=limits, chunk=chunk)
    expected = list(Decoder(capture, entries, payload="bytes" if payload else "none", **options))
    capture = Capture(io.BytesIO(file), limits=limits, chunk=chunk)
    return expected, list(FrameBatches(entries, capture.limits, payload=payload, **options).of(capture))


def records(batches: list[Frames]) -> list[Record]:
    return [made for frames in batches for made in frames.records()]


@pytest.mark.parametrize("payload", [False, True])
@pytest.mark.parametrize("size", [1, 7, 1_448])
@pytest.mark.parametrize("protocol", sorted(BOTH))
def test_the_records_of_every_protocol_are_those_of_the_decoder(protocol: str, size: int, payload: bool) -> None:
    ours, theirs = (b"".join(side) for side in BOTH[protocol][:2])
    ports: dict[int, ProtocolEntry] = {7_000: named(protocol)}
    expected, batches = both(Talk().whole(ours, theirs, size), ports=ports, payload=payload)
    assert records(batches) == expected and len(expected) > 1
