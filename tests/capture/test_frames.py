"""Frames as columns: their records are those of the decoder, for every protocol, whatever the capture contains."""

from __future__ import annotations

import io
import json
import random
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from afflux.capture import Capture, Decoder
from afflux.capture.arrow import batch
from afflux.capture.batches import FrameBatches
from afflux.capture.frames import Frames
from afflux.capture.kernels import Boundaries, boundaries, compiled
from afflux.capture.schemas import schema
from afflux.core.dissector import Record
from afflux.core.entry import ProtocolEntry
from afflux.core.errors import Violation
from afflux.core.fields import Flag, Flagged, Kind, Rest, Sized, UInt
from afflux.core.limits import Limits
from afflux.protocols.limit.frames import FRAMES as LIMIT
from afflux.protocols.reactivesocket.frames import FRAMES as REACTIVESOCKET
from afflux.protocols.registry import named, recognizable
from afflux.protocols.rsocket.frames import FRAMES as RSOCKET
from afflux.protocols.rsocket.frames import PayloadFrame, Setup
from afflux.protocols.rsocket_draft.entries import Entry
from afflux.protocols.rsocket_draft.fields import Chain, Mime
from afflux.protocols.rsocket_draft.frames import FRAMES as DRAFT
from afflux.protocols.rsocket_draft.frames import ExtChain
from tests.capture.writing import Packet, Talk, pcap
from tests.cli.test_decode import BOTH
from tests.examples import share

VECTORS = Path(__file__).resolve().parent.parent / "vectors"
FILES = {
    "limit": "limit-stream",
    "reactivesocket": "reactivesocket",
    "rsocket": "rsocket",
    "rsocket-draft": "rsocket-draft",
}
"The vectors of each protocol with length-prefixed frames."


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


def framed(protocol: str, *frames: bytes) -> bytes:
    framing = named(protocol).framing
    assert framing is not None
    return b"".join(framing.join(frame) for frame in frames)


# -- the same as the decoder -----------------------------------------------------------------------------------------

DECLARED: dict[str, list[Any]] = {
    "limit": list(LIMIT.values()),
    "reactivesocket": list(REACTIVESOCKET.values()),
    "rsocket": list(RSOCKET.values()),
    "rsocket-draft": [*DRAFT.values(), ExtChain],
}
FLAGS = {"limit": 4, "reactivesocket": 2, "rsocket": 4, "rsocket-draft": 4}
"Where the flags are: 16 bits, of which only the lowest 10 if the type is in the same word."


def value(kind: Kind, noise: random.Random) -> Any:
    """A value of a field."""
    match kind:
        case Flag():
            return noise.random() < 0.5
        case UInt():
            return noise.choice([kind.at_least, kind.largest, noise.randint(kind.at_least, kind.largest)])
        case Flagged():
            return noise.choice([None, 0, 0x7FFFFFFF])
        case Sized(text=True):
            return noise.choice(["a", "text/plain"])
        case Chain():
            return noise.choice([(), (Entry(5, b"x", True), Entry("name", b"", True))])
        case Mime():
            return noise.choice([None, "text/plain"] if kind.optional else ["text/plain", "a/b"])
        case _:
            some = noise.randbytes(noise.choice([1, 2, 40, 300]))
            return noise.choice([None, some] if kind.optional else [b"" if isinstance(kind, Rest) else some, some])


def encoded(protocol: str, noise: random.Random) -> bytes:
    """A frame without its length, of any type: whole, cut, too long, with any flags; or bytes that are none."""
    declared = noise.choice(DECLARED[protocol])
    given = {field.name: value(field.kind, noise) for field in declared.LAYOUT if field.kind.in_value}
    try:
        frame: bytes = declared(**given).encode()
    except Violation:  # a chain that is empty where it may not be
        frame = b""
    match noise.randrange(8):
        case 0:
            return frame[: noise.randrange(len(frame) + 1)]
        case 1:
            return frame + noise.randbytes(noise.randrange(1, 9))
        case 2:
            return noise.randbytes(noise.randrange(30))
        case 3 | 4:
            at = FLAGS[protocol]
            word = int.from_bytes(frame[at : at + 2], "big") ^ noise.randrange(0x400 if at else 0x10000)
            return frame[:at] + word.to_bytes(2, "big") + frame[at + 2 :]
        case _:
            return frame


def capture_of(protocol: str, noise: random.Random) -> list[Packet]:
    """Some connections at once, in segments of any size, of which some are lost, cut or out of order."""
    packets: list[list[Packet]] = []
    for number in range(noise.randint(1, 3)):
        talk = Talk(("10.0.0.1", 1_000 + number))
        ours, theirs = (framed(protocol, *(encoded(protocol, noise) for _ in range(noise.randrange(9)))) for _ in "ab")
        theirs += noise.choice([b"", noise.randbytes(9)])
        size = noise.choice([1, 7, 100, 1_448]) if len(ours + theirs) < 400 else noise.choice([60, 400, 1_448])
        mine = talk.open()
        for part in range(3):
            for client, data in ((True, ours), (False, theirs)):
                third = len(data) // 3 + 1
                mine += talk.send(client, data[part * third : (part + 1) * third], size)
        packets.append([*mine, *talk.close()] if noise.random() < 0.5 else mine)
    whole: list[Packet] = []
    while some := [one for one in packets if one]:
        chosen, count = noise.choice(some), noise.randint(1, 9)
        whole += chosen[:count]
        del chosen[:count]
    if noise.random() < 0.5:
        damage(whole, noise)
    return whole


def damage(packets: list[Packet], noise: random.Random) -> None:
    """Lose, cut and swap some packets."""
    for _ in range(3):
        at = noise.randrange(len(packets))
        match noise.randrange(3):
            case 0 if len(packets) > 9:
                del packets[at]
            case 1:
                packets[at] = packets[at].cut(noise.randrange(54, 200))
            case _:
                other = min(len(packets) - 1, at + noise.randrange(4))
                packets[at], packets[other] = packets[other], packets[at]


@pytest.mark.parametrize("protocol", sorted(DECLARED))
@given(st.integers(0, 1 << 60), st.booleans(), st.sampled_from([500, 3_000, 0x8_0000]), st.booleans())
@settings(deadline=None, max_examples=share(0.6))
def test_any_capture_has_the_records_of_the_decoder(
    protocol: str, seed: int, payload: bool, chunk: int, small: bool
) -> None:
    """All types with all flags, malformed frames, gaps, several connections; with small limits as well."""
    packets = capture_of(protocol, random.Random(seed))
    limits = Limits.tiny(capture_bytes=1_500) if small else None
    expected, batches = both(packets, ports={7_000: named(protocol)}, payload=payload, chunk=chunk, limits=limits)
    assert records(batches) == expected


@pytest.mark.parametrize("protocol", sorted(FILES))
def test_every_vector_has_the_record_of_the_decoder(protocol: str) -> None:
    vectors = json.loads((VECTORS / f"{FILES[protocol]}.json").read_text())
    frames = [bytes.fromhex(vector["hex"]) for vector in vectors if "hex" in vector]
    data = framed(protocol, *frames)
    for size in (1_448, 61):
        expected, batches = both(Talk().whole(data, data, size), ports={7_000: named(protocol)}, payload=True)
        assert records(batches) == expected and len(expected) == 2 * len(frames)


def test_every_split_of_the_bytes() -> None:
    """Into two segments, in one batch and in two."""
    data = framed("rsocket", Setup().encode(), *(PayloadFrame(stream=1, data=bytes(n)).encode() for n in range(4)))
    for size in range(1, len(data)):
        for chunk in (300, 0x8_0000):
            expected, batches = both(Talk().whole(data, data, size), chunk=chunk)
            assert records(batches) == expected and len(expected) == 10


# -- the kernel ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["rsocket", "reactivesocket"])
@given(st.data(), st.integers(0, 40))
@settings(deadline=None)
def test_the_kernel_finds_the_same_frames_compiled_or_not(protocol: str, data: st.DataObject, largest: int) -> None:
    framing = named(protocol).framing
    assert framing is not None
    frames = data.draw(st.lists(st.binary(max_size=30), max_size=20))
    whole = b"".join(framing.join(frame) for frame in frames) + data.draw(st.binary(max_size=9))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=4)))
    regions = np.array([0, *cuts]), np.array([*cuts, len(whole)])
    options = {"width": framing.width, "own": framing.own, "mask": (1 << 8 * framing.width) - 1 & ~framing.reserved}
    plain = Boundaries(patience=1 << 60).find(whole + bytes(8), *regions, largest=largest, **options)
    fast = Boundaries(patience=0).find(whole + bytes(8), *regions, largest=largest, **options)
    for one, other in zip(plain, fast, strict=True):
        assert one.tolist() == other.tolist()


def test_the_kernel_is_plain_without_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "numba", None)
    assert compiled(boundaries) is boundaries
    at, sizes, tails = Boundaries(patience=0).find(
        b"\0\0\1a\0\0\2bc\0\0", np.array([0]), np.array([11]), width=3, own=0, mask=0xFFFFFF, largest=9
    )
    assert (at.tolist(), sizes.tolist(), tails.tolist()) == ([3, 7], [1, 2], [9])


# -- Arrow -----------------------------------------------------------------------------------------------------------


def row_of(made: Record, payload: bool) -> dict[str, Any]:
    """The row of the table ``frames`` that a frame record becomes."""
    numbers = ("stream", "n", "metadata_len", "data_len", "code", "offset", "length")
    row = made | {name: None if made[name] is None else min(made[name], (1 << 63) - 1) for name in numbers}
    row["ts"] = None if made["ts"] is None else datetime.fromisoformat(made["ts"])
    row["fields"] = json.dumps(made["fields"], ensure_ascii=False, separators=(",", ":"))
    return row if payload else {key: value for key, value in row.items() if key not in ("metadata", "data")}


@pytest.mark.parametrize("patience", [0, 1 << 60])
@given(st.sampled_from(sorted(DECLARED)), st.integers(0, 1 << 60), st.booleans())
@settings(deadline=None, max_examples=share(0.4))
def test_the_rows_of_arrow_are_the_records(patience: int, protocol: str, seed: int, payload: bool) -> None:
    copying = Boundaries(patience)
    copying.find(b"", np.array([0]), np.array([0]), width=3, own=0, mask=0xFFFFFF, largest=0)
    packets = capture_of(protocol, random.Random(seed))
    expected, batches = both(packets, ports={7_000: named(protocol)}, payload=True)
    found = []
    for frames in batches:
        numbers = np.where(frames.packet < 0, 0, frames.packet + 1)
        made = batch(frames, file="a.pcap", numbers=numbers, payload=payload, boundaries=copying)
        assert made.schema == schema("frames", payload=payload)
        assert made["packet"].to_pylist() == [number or None for number in numbers.tolist()]
        made.validate(full=True)
        found += made.drop_columns(["packet", "file_offset"]).to_pylist()
    assert found == [{**row_of(made, payload), "file": "a.pcap"} for made in expected]


def test_rows_with_payloads_need_payloads() -> None:
    _, batches = both(Talk().whole(b"", b""))
    with pytest.raises(ValueError, match="were not kept"):
        batches[0].arrow(payload=True)
    assert batches[0].arrow().num_rows == 0
