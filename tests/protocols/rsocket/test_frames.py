"""RSocket 1.0 frames: the published vectors both ways, every truncation, garbage, records and log lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afflux.core.dissect import RECORD_KEYS, line
from afflux.core.errors import Violation
from afflux.core.frame import Malformed, UnknownFrame, trailing
from afflux.protocols.rsocket import frames
from afflux.protocols.rsocket.frames import (
    FRAMES,
    Cancel,
    ErrorFrame,
    Ext,
    Keepalive,
    Lease,
    MetadataPush,
    PayloadFrame,
    RequestChannel,
    RequestFnf,
    RequestN,
    RequestResponse,
    RequestStream,
    Resume,
    ResumeOk,
    RSocketFrame,
    Setup,
    decode,
    record,
)
from tests.strategies.frames import rsocket_frames

from .wire import NOT_FRAMES, ODD_FLAGS, WIRE

VECTORS: list[dict[str, Any]] = json.loads((Path(__file__).parents[2] / "vectors" / "rsocket.json").read_text())
IDS = [vector["id"] for vector in VECTORS]


def test_every_vector_is_used_somewhere() -> None:
    """Those that are frames in tests/protocols/generic, the content of metadata in test_metadata*.py."""
    used = {id.rpartition("-")[0] if id[-1].isdecimal() and id not in IDS else id for id, _, _ in WIRE.vectors.every()}
    elsewhere = {v["id"] for v in VECTORS if any(key in v["decoded"] for key in NOT_FRAMES)}
    assert set(IDS) == used | elsewhere


@pytest.mark.parametrize(("id", "data", "meaning"), WIRE.vectors.every(), ids=lambda value: str(value)[:40])
def test_the_flags_of_a_vector(id: str, data: bytes, meaning: dict[str, Any]) -> None:
    """They are read as far as the frame has them; written again, odd ones differ in their flags and in nothing else."""
    frame = decode(data)
    known = sum(flag.bit for flag, _ in frame.FLAGS)
    flags = int.from_bytes(data[4:6], "big") & 0x3FF
    assert trailing(frame, 0, len(data)) == 0
    assert (frame.flags() == flags & known) is (id not in ODD_FLAGS or id == "v1-resume")
    written = frame.encode()
    assert frame.encode(prefixed=True) == len(written).to_bytes(3, "big") + written
    assert (written[:4], written[4] & 0xFC, written[6:]) == (data[:4], data[4] & 0xFC, data[6:])


@given(rsocket_frames())
def test_any_frame_survives_the_wire(frame: RSocketFrame) -> None:
    wire = frame.encode()
    again = decode(b"??" + wire + b"!!", 2, 2 + len(wire))
    assert again == frame
    assert hash(again) == hash(frame)
    assert wire == again.encode()
    assert frame.encoded_size == len(wire)
    assert int.from_bytes(wire[4:6], "big") == frame.TYPE << 10 | frame.flags()


@given(rsocket_frames())
def test_every_truncation_is_read_or_malformed(frame: RSocketFrame) -> None:
    wire = frame.encode()
    body = wire if not frame.OPEN_ENDED else wire[: len(wire) - len(getattr(frame, frame.FIELDS[-1].name))]
    for end in range(len(wire)):
        if end < len(body):
            with pytest.raises(Malformed) as caught:
                decode(wire, 0, end)
            assert (caught.value.rule, caught.value.code) == ("R-7", 0x101)
            assert caught.value.stream == (frame.stream if end >= 6 else 0)
            assert caught.value.ignorable is (frame.ignore and end >= 6)
        else:
            assert type(decode(wire, 0, end)) is type(frame)


@given(st.binary(max_size=80), st.integers(0, 0x3F), st.integers(0, 0x3FF))
def test_garbage_is_read_or_malformed(body: bytes, type: int, flags: int) -> None:
    data = b"\xff\x00\x00\x01" + (type << 10 | flags).to_bytes(2, "big") + body
    for buffer in (data, body):
        try:
            frame = decode(buffer)
        except Malformed as violation:
            assert isinstance(violation, UnknownFrame) is (violation.rule == "R-5")
            assert record(buffer)["error"] == {"rule": violation.rule, "reason": violation.reason}
        else:
            assert trailing(frame, 0, len(buffer)) >= 0
            assert record(buffer)["error"] is None
            assert decode(frame.encode()) == frame


@pytest.mark.parametrize("bits", [0x01F, 0x3FF])
@pytest.mark.parametrize(
    "frame", [Cancel(stream=1), RequestN(stream=1, n=2), ResumeOk(last_received_client_position=3)]
)
def test_unassigned_flags_are_ignored(frame: RSocketFrame, bits: int) -> None:
    """R-4: send unassigned flags as 0 and ignore them on receipt."""
    wire = bytearray(frame.encode())
    wire[4] |= bits >> 8
    wire[5] |= bits & 0xFF
    again = decode(bytes(wire))
    assert again.ignore is (bits & 0x200 != 0)
    assert again.encode()[5] == 0


@pytest.mark.parametrize("flags", [0x000, 0x100])
def test_the_rest_of_lease_and_metadata_push_is_metadata_whatever_m_is(flags: int) -> None:
    """R-6: never write a metadata length there. I-4: old encoders leave M clear."""
    word = (0x02 << 10 | flags).to_bytes(2, "big")
    lease = decode(bytes(4) + word + bytes(8) + b"md")
    assert lease == Lease(ttl_ms=0, requests=0, metadata=b"md")
    word = (0x0C << 10 | flags).to_bytes(2, "big")
    assert decode(bytes(4) + word + b"md") == MetadataPush(metadata=b"md")


@pytest.mark.parametrize(
    ("wire", "field"),
    [
        ("00000001 2000 00000000", "n"),
        ("00000001 1800 00000000", "initial_n"),
        ("00000001 1c00 00000000", "initial_n"),
        ("00000001 2c00 00000000", "code"),
        ("00000001 fc00 00000000", "extended_type"),
        ("00000000 0400 00010000 00000000 00000000 00 00", "keepalive_ms"),
    ],
)
def test_a_forbidden_zero_is_read_for_the_engine_to_judge(wire: str, field: str) -> None:
    """D-5, D-13, R-17: which answer a zero gets depends on the state."""
    frame = decode(bytes.fromhex(wire))
    assert getattr(frame, field) == 0
    with pytest.raises(Violation, match=f"{field} is 0"):
        type(frame)(**{f.name: getattr(frame, f.name) for f in frame.LAYOUT if f.kind.in_value})


def test_an_empty_token_is_read_and_cannot_be_constructed() -> None:
    """R-53: refuse an empty one; which code it gets is the engine's."""
    wire = Setup(token=b"x").encode().replace(b"\x00\x01x", b"\x00\x00")
    assert decode(wire) == decode(wire)
    assert decode(wire).token == b""  # type: ignore[attr-defined]  # a Setup
    for construct in (
        lambda: Setup(token=b""),
        lambda: Resume(token=b"", last_received_server_position=0, first_available_client_position=0),
    ):
        with pytest.raises(Violation, match="the length of token is 0") as caught:
            construct()
        assert caught.value.rule == "R-53"


def test_an_unknown_type_states_whether_it_may_be_skipped() -> None:
    """R-5."""
    for flags, ignorable in ((0x000, False), (0x200, True)):
        wire = b"\x80\x00\x00\x05" + (0x15 << 10 | flags).to_bytes(2, "big")
        with pytest.raises(UnknownFrame, match="frame type 0x15 is unknown") as caught:
            decode(wire)
        assert (caught.value.ignorable, caught.value.stream, caught.value.rule) == (ignorable, 5, "R-5")
        assert caught.value.code == 0x101


def test_a_metadata_length_beyond_the_frame_is_malformed_even_when_the_buffer_goes_on() -> None:
    """R-7: treat a metadata length beyond the remaining bytes as a connection error."""
    wire = bytes.fromhex("00000001 2920 000004 6d6d6d") + b"the next frame"
    with pytest.raises(Malformed, match="PAYLOAD: metadata of 4 bytes where 3 are left"):
        decode(wire, 0, 12)
    assert decode(wire, 0, 13).metadata == b"mmmt"  # type: ignore[attr-defined]  # a PayloadFrame


def test_a_mime_type_that_is_not_ascii_is_malformed() -> None:
    wire = Setup(data_mime="a/b").encode().replace(b"a/b", b"a/\xff")
    with pytest.raises(Malformed, match="data_mime is not ASCII"):
        decode(wire)


def test_a_frame_above_the_24_bit_length_is_refused() -> None:
    """R-3: refuse to encode a frame above 16,777,215 bytes."""
    most = 0xFFFFFF
    fits = PayloadFrame(stream=1, next=True, data=bytes(most - 6))
    assert len(fits.encode(prefixed=True)) == most + 3
    with pytest.raises(Violation, match="PAYLOAD of 16777216 bytes") as caught:
        PayloadFrame(stream=1, data=bytes(most - 5)).encode()
    assert caught.value.rule == "R-3"
    with pytest.raises(Violation, match="the length of metadata"):
        PayloadFrame(stream=1, metadata=bytes(most + 1))


def test_words_are_the_header_words_of_payload() -> None:
    assert (frames.NEXT, frames.NEXT_COMPLETE, frames.COMPLETE) == (0x2820, 0x2860, 0x2840)


def test_frames_stand_in_the_order_of_the_specification() -> None:
    assert list(FRAMES) == [*range(0x01, 0x0F), 0x3F]
    assert [frame.NAME for frame in FRAMES.values()] == [
        "SETUP",
        "LEASE",
        "KEEPALIVE",
        "REQUEST_RESPONSE",
        "REQUEST_FNF",
        "REQUEST_STREAM",
        "REQUEST_CHANNEL",
        "REQUEST_N",
        "CANCEL",
        "PAYLOAD",
        "ERROR",
        "METADATA_PUSH",
        "RESUME",
        "RESUME_OK",
        "EXT",
    ]


def test_an_illegal_flag_has_no_name_on_a_frame() -> None:
    letters = {frame.NAME: "".join(flag.letter for flag, _ in frame.FLAGS) for frame in FRAMES.values()}
    assert letters == {
        "SETUP": "IMRL",
        "LEASE": "IM",
        "KEEPALIVE": "IR",
        "REQUEST_RESPONSE": "IMF",
        "REQUEST_FNF": "IMF",
        "REQUEST_STREAM": "IMF",
        "REQUEST_CHANNEL": "IMFC",
        "REQUEST_N": "I",
        "CANCEL": "I",
        "PAYLOAD": "IMFCN",
        "ERROR": "I",
        "METADATA_PUSH": "IM",
        "RESUME": "I",
        "RESUME_OK": "I",
        "EXT": "I",
    }


# The frame record.


def test_a_record_has_the_documented_keys() -> None:
    frame = RequestStream(stream=5, initial_n=32, metadata=bytes(12), data=bytes(41))
    row = record(frame.encode(), ts="2026-11-21T02:37:44.178901Z", conn="Cq3x", dir=">", offset=1184)
    assert tuple(row) == RECORD_KEYS
    assert row == {
        "ts": "2026-11-21T02:37:44.178901Z",
        "conn": "Cq3x",
        "dir": ">",
        "protocol": "rsocket",
        "stream": 5,
        "type": "REQUEST_STREAM",
        "flags": ["M"],
        "n": 32,
        "metadata_len": 12,
        "data_len": 41,
        "code": None,
        "offset": 1184,
        "length": 66,
        "error": None,
        "fields": {},
    }
    assert record(frame) == row | {"ts": None, "conn": None, "dir": None, "offset": None}
    assert record(frame, length=69)["length"] == 69


@given(rsocket_frames())
def test_the_record_of_any_frame_is_json_and_the_same_from_its_bytes(frame: RSocketFrame) -> None:
    for payload in ("none", "hex", "text"):
        row = record(frame, payload=payload)
        assert row == record(frame.encode(), payload=payload)
        assert json.loads(json.dumps(row)) == row
        assert line(row).isprintable()


def test_payload_is_shown_only_when_asked_for() -> None:
    frame = PayloadFrame(stream=1, next=True, metadata=b"\xff", data=b"hi")
    assert record(frame)["flags"] == ["M", "N"]
    assert "data" not in record(frame)
    shown = record(frame, payload="hex")
    assert (shown["metadata"], shown["data"]) == ("ff", "6869")
    shown = record(frame, payload="text")
    assert (shown["metadata"], shown["data"]) == ("\ufffd", "hi")
    shown = record(Cancel(stream=1), payload="text")
    assert (shown["metadata"], shown["data"], shown["data_len"]) == (None, None, None)
    assert record(RequestFnf(stream=1))["metadata_len"] is None
    assert record(RequestResponse(stream=1, metadata=b""))["metadata_len"] == 0


def test_other_fields_have_their_declared_names() -> None:
    row = record(Keepalive(respond=True, position=9))
    assert (row["fields"], row["flags"]) == ({"position": 9}, ["R"])
    row = record(Ext(stream=0, extended_type=7, body=b"abc", ignore=True), payload="text")
    assert (row["fields"], row["flags"], row["data_len"], row["data"]) == ({"extended_type": 7}, ["I"], 3, "abc")
    row = record(ErrorFrame(stream=3, code=0x201, data=b"no"))
    assert (row["code"], row["data_len"], row["fields"]) == (0x201, 2, {})
    assert record(RequestChannel(stream=1, initial_n=4, complete=True))["n"] == 4
    assert record(Setup(lease=True))["fields"]["token"] is None


def test_a_token_is_shown_by_its_length_only_unless_in_hexadecimal() -> None:
    frame = Setup(token=b"sixteen bytes it")
    assert record(frame)["fields"]["token"] == "(16 bytes)"
    assert record(frame, payload="text")["fields"]["token"] == "(16 bytes)"
    assert record(frame, payload="hex")["fields"]["token"] == frame.token.hex() if frame.token else False
    assert "sixteen" not in repr(frame) + line(record(frame, payload="text"))


def test_flags_in_a_record_are_those_that_were_on_the_wire() -> None:
    wire = bytes.fromhex("000000003740002a0018000d3c726573756d65546f6b656e3e0000000000000022000000000000002b")
    assert record(wire)["flags"] == ["I"]
    assert record(bytes(4) + b"\x30\x00md")["flags"] == []
    assert record(MetadataPush(metadata=b"md"))["flags"] == ["M"]


def test_bytes_that_are_no_frame_give_a_record_with_the_reason() -> None:
    row = record(b"\x00\x00\x00\x01\x21", dir="<", offset=3)
    assert (row["type"], row["stream"], row["length"], row["dir"], row["offset"]) == (None, 0, 5, "<", 3)
    assert row["error"] == {"rule": "R-7", "reason": "a frame of 5 bytes: the header has 6"}
    row = record(b"\x00\x00\x00\x07\x20\x00", payload="hex")
    assert (row["type"], row["stream"], row["data"]) == ("REQUEST_N", 7, None)
    assert row["error"]["rule"] == "R-7"
    row = record(b"\x00\x00\x00\x07\x54\x00")
    assert (row["type"], row["error"]["rule"]) == ("0x15", "R-5")


def test_a_log_line_agrees_with_its_record() -> None:
    frame = RequestStream(stream=5, initial_n=32, metadata=bytes(12), data=b"a b\x1b[2J\n")
    assert line(record(frame, dir=">")) == "> rsocket stream=5 REQUEST_STREAM [M] n=32 metadata_len=12 data_len=8"
    assert line(record(frame, payload="text")).endswith(r'data="a b\u001b[2J\n"')
    assert line(record(ErrorFrame(stream=3, code=0x201))) == "rsocket stream=3 ERROR code=0x201 data_len=0"
    broken = line(record(b"\x00\x00\x00\x07\x20\x00"))
    assert broken == "rsocket stream=7 REQUEST_N malformed: REQUEST_N ends after 6 bytes, within or before n (R-7)"
    assert line(record(b"")).startswith("rsocket stream=0 ? malformed")
