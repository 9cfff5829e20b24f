"""The frames of the draft: the published vectors both ways, every truncation, garbage, records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tools.frame_pages import frame_page

from afflux.core.errors import Violation
from afflux.core.frame import Malformed, UnknownFrame
from afflux.protocols.rsocket import frames as v1
from afflux.protocols.rsocket_draft import frames, payloads
from afflux.protocols.rsocket_draft.dissector import dissector
from afflux.protocols.rsocket_draft.entries import BROKER, KEEPALIVE, LEASE, RESUME, Entry, NotUnderstood
from afflux.protocols.rsocket_draft.frames import FRAMES, ExtChain, PayloadFrame, Setup, SetupOk, decode, record
from tests.strategies.draft import draft_frames, draft_frames_of
from tests.strategies.frames import frames_of

from .wire import described

VECTORS: list[dict[str, Any]] = json.loads((Path(__file__).parents[2] / "vectors" / "rsocket-draft.json").read_text())


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["id"])
def test_a_vector_both_ways(vector: dict[str, Any]) -> None:
    """R-2, R-5 to R-7, R-12, R-13, D-5: the published bytes."""
    data = bytes.fromhex(vector["hex"])
    frame = decode(data)
    assert described(frame) == vector["decoded"]
    assert frame.encode() == data
    assert frame.encoded_size == len(data)
    for size in range(len(data)):
        try:
            assert decode(data[:size]).encode()
        except Malformed as violation:
            assert violation.rule


@given(draft_frames())
def test_any_frame_survives_the_wire(frame: Any) -> None:
    wire = frame.encode()
    again = decode(b"??" + wire + b"!!", 2, 2 + len(wire))
    assert again == frame
    assert hash(again) == hash(frame)
    assert again.encode() == wire
    assert frame.encoded_size == len(wire)
    assert frame.encode(prefixed=True) == len(wire).to_bytes(3, "big") + wire
    assert int.from_bytes(wire[4:6], "big") == frame.TYPE << 10 | frame.flags()


@given(draft_frames(), st.data())
def test_every_truncation_is_malformed_or_another_frame(frame: Any, data: st.DataObject) -> None:
    wire = frame.encode()
    try:
        decode(wire[: data.draw(st.integers(0, len(wire) - 1))])
    except Malformed as violation:
        assert violation.rule in ("RSocket R-7", "R-7", "R-14", "R-18")
        assert violation.code is not None


@given(st.binary(max_size=80))
def test_garbage_is_a_frame_or_malformed(data: bytes) -> None:
    try:
        decode(data)
    except Malformed as violation:
        assert violation.rule


@given(st.integers(0, 0x3F), st.integers(0, 0x3FF), st.binary(max_size=60))
def test_any_flags_and_any_body(code: int, flags: int, body: bytes) -> None:
    try:
        decode((1).to_bytes(4, "big") + (code << 10 | flags).to_bytes(2, "big") + body)
    except Malformed as violation:
        assert violation.stream == 1


@given(draft_frames_of(PayloadFrame))
def test_R_7_without_chain_and_override_a_payload_is_that_of_1_0(frame: PayloadFrame) -> None:
    frame.extensions, frame.data_mime, frame.metadata_mime = (), None, None
    wire = frame.encode()
    again = v1.decode(wire)
    assert again.encode() == wire
    assert (again.NAME, again.flags()) == (frame.NAME, frame.flags())


@pytest.mark.parametrize("kind", [v1.Lease, v1.Keepalive, v1.MetadataPush, v1.Resume, v1.ResumeOk])
@given(data=st.data())
def test_D_10_frames_that_the_draft_does_not_change(kind: Any, data: st.DataObject) -> None:
    """As is R-10: EXT without X."""
    wire = data.draw(frames_of(kind)).encode()
    assert decode(wire).encode() == wire
    assert record(wire)["protocol"] == "rsocket-draft"


def test_R_4_on_error_and_unknown_flags_there_is_no_chain() -> None:
    """D-4: ERROR stays plain, so its 0x200 is an unassigned flag."""
    plain = frames.ErrorFrame(stream=1, code=0x201, data=b"no").encode()
    odd = plain[:4] + bytes((plain[4] | 0x02,)) + plain[5:]
    assert decode(odd) == decode(plain)


def test_R_6_D_3_overrides_stand_data_first() -> None:
    frame = PayloadFrame(stream=1, next=True, data_mime="application/json", metadata_mime="x", data=b"d")
    assert frame.encode()[6:] == b"\x85\x00xd"
    assert PayloadFrame(stream=1, metadata_mime="text/plain", data=b"d").encode()[4:] == b"\x28\x08\xa1d"


@pytest.mark.parametrize("name", ["", "x" * 129, "ü"])
def test_R_11_a_name_has_1_to_128_ascii_characters(name: str) -> None:
    with pytest.raises(Violation) as caught:
        Setup(data_mime=name)
    assert caught.value.rule == "R-11"
    with pytest.raises(Violation):
        PayloadFrame(stream=1, extensions=(Entry(name, ignorable=True),))
    assert decode(Setup(data_mime="x" * 128).encode()).data_mime == "x" * 128  # type: ignore[union-attr]


def test_a_name_that_is_not_ascii_is_malformed() -> None:
    data = bytearray(Setup(data_mime="xyz").encode())
    data[8] = 0xFF
    with pytest.raises(Malformed, match="not ASCII"):
        decode(bytes(data))


def test_well_known_names_as_text_mean_the_same() -> None:
    data = b"\0\0\0\0\x04\0" + b"\x0fapplication/json\x85\0\x02\0\0"
    frame = decode(data)
    assert isinstance(frame, Setup)
    assert (frame.data_mime, frame.metadata_mime) == ("application/json", "application/json")
    assert frame.encode()[6:8] == b"\x85\x85"
    unnamed = decode(b"\0\0\0\0\x04\0\xab\xac\0\x02\0\0")
    assert (unnamed.data_mime, unnamed.metadata_mime) == ("0x2B", "0x2C")  # type: ignore[union-attr]
    assert unnamed.encode()[6:8] == b"\xab\xac"


def test_R_9_a_chain_on_ext_is_all_there_is() -> None:
    """D-8: X of EXT is 0x080."""
    chain = ExtChain(extensions=(payloads.ping_entry(b"p", respond=True),)).encode()
    with pytest.raises(Malformed, match="1 bytes after its chain") as caught:
        decode(chain + b"x")
    assert (caught.value.rule, caught.value.code) == ("R-9", 0x101)
    with pytest.raises(Malformed, match="no metadata") as caught:
        decode(chain[:4] + bytes((chain[4] | 0x01,)) + chain[5:])
    assert (caught.value.rule, caught.value.ignorable) == ("R-9", False)


def test_R_10_without_a_chain_ext_is_that_of_1_0() -> None:
    frame = decode(bytes.fromhex("00000005fc0000000007abcd"))
    assert frame == frames.Ext(stream=5, extended_type=7, body=b"\xab\xcd")


@pytest.mark.parametrize(
    ("frame", "code", "ignorable"),
    [
        ("00000000040200", 0x101, False),
        ("0000", 0x101, False),
        ("000000012900ffff", 0x101, False),
        ("000000000a01ff", 0x101, True),
    ],
)
def test_what_cannot_be_read(frame: str, code: int, ignorable: bool) -> None:
    with pytest.raises(Malformed) as caught:
        decode(bytes.fromhex(frame))
    assert (caught.value.code, caught.value.ignorable) == (code, ignorable)


@pytest.mark.parametrize(("flags", "ignorable"), [(0, False), (2, True)])
def test_an_unknown_type_may_be_skipped_with_I(flags: int, ignorable: bool) -> None:
    with pytest.raises(UnknownFrame) as caught:
        decode(bytes((0, 0, 0, 1, 0x11 << 2 | flags, 0)))
    assert (caught.value.ignorable, caught.value.stream) == (ignorable, 1)


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        ("0000000006008686000200008b00", 0x002),
        ("000000003e008b00", 0x101),
        ("00000000fc808b00", 0x101),
        ("00000001120081000004" + "00", None),
        ("0000000112008b00", 0x204),
        ("0000000112008000", 0x204),
    ],
)
def test_R_18_D_7_an_unknown_extension_that_must_be_understood(frame: str, code: int | None) -> None:
    """The last one is keepalive on a stream frame, where it is not used."""
    data = bytes.fromhex(frame)
    if code is None:
        assert decode(data).extensions == (Entry(RESUME),)  # type: ignore[union-attr]
        return
    with pytest.raises(NotUnderstood) as caught:
        decode(data)
    assert (caught.value.code, caught.value.rule) == (code, "R-18")


def test_records() -> None:
    made = record(
        Setup(
            extensions=(
                payloads.keepalive_entry(payloads.Times(500, 2500)),
                payloads.resume_entry(payloads.Session(b"secret", (payloads.Position(1, 2),))),
                payloads.lease_entry([payloads.REQUESTS, "Own"]),
                payloads.address_entry(b"\0\0\0\1\x04\0" + bytes(17)),
                Entry("own", b"x", ignorable=True),
                Entry(LEASE, b"\x05x", ignorable=True),
            )
        )
    )
    assert (made["protocol"], made["type"], made["flags"]) == ("rsocket-draft", "SETUP", ["X"])
    assert made["fields"]["extensions"] == [
        {"id": "keepalive", "flags": ["I"], "dependent": 0, "size": 8, "interval_ms": 500, "lifetime_ms": 2500},
        {"id": "resume", "flags": ["I", "A"], "dependent": 8, "size": 23, "token": "(6 bytes)", "positions": ((1, 2),)},
        {"id": "lease", "flags": ["I"], "dependent": 0, "size": 5, "strategies": (0, "Own")},
        {"id": "broker", "flags": ["I"], "dependent": 0, "size": 23, "broker": "ROUTE_SETUP"},
        {"id": "own", "flags": ["I"], "dependent": 0, "size": 1},
        {
            "id": "lease",
            "flags": ["I"],
            "dependent": 0,
            "size": 2,
            "malformed": "an extension entry: a lease strategy of 6 bytes where 1 are left",
        },
    ]
    assert json.dumps(made)
    chain = (
        payloads.ping_entry(b"p", respond=True),
        payloads.list_entry([payloads.Position(3, 4)]),
        payloads.grant_entry(payloads.Permits(1000, 5)),
    )
    made = record(ExtChain(extensions=chain).encode(), payload="hex")
    assert [row["payload"] for row in made["fields"]["extensions"]] == [
        "70",
        "000001" + "00000003" + "0" * 15 + "4",
        "000003e800000005",
    ]
    assert made["fields"]["extensions"][0]["respond"] is True
    assert made["fields"]["extensions"][2]["permits"] == 5
    made = record(SetupOk(extensions=(Entry(RESUME), payloads.lease_entry([1], ignorable=False), Entry(KEEPALIVE))))
    assert [row.get("strategy") for row in made["fields"]["extensions"]] == [None, 1, None]
    made = record(SetupOk(extensions=(payloads.list_entry([], marked=True),)))
    assert made["fields"]["extensions"][0]["positions"] == ()
    made = record(PayloadFrame(stream=1, extensions=(Entry(RESUME, flags=8), Entry(BROKER, b"", True))))
    assert [row.get("resume") for row in made["fields"]["extensions"]] == [True, None]
    assert record(b"\0\0")["type"] is None
    assert record(bytes((0, 0, 0, 1, 0x11 << 2, 0)))["type"] == "0x11"
    assert record(bytes.fromhex("000000000402"))["error"]["rule"] == "RSocket R-7"


def test_the_dissector_finds_the_frames() -> None:
    data = b"".join(bytes((0, 0, len(v["hex"]) // 2)) + bytes.fromhex(v["hex"]) for v in VECTORS)
    found = dissector(True)
    rows = [row for at in range(0, len(data), 7) for row in found.feed(data[at : at + 7])]
    assert [row["type"] for row in rows] == [vector["decoded"]["frame"] for vector in VECTORS]
    assert found.end() == []


def test_the_reference_page_shows_chains_and_compact_types() -> None:
    page = frame_page(Setup)
    assert "| `data_mime` | compact MIME type | `'application/octet-stream'` |" in page
    assert "| `extensions` | entries, if X | `()` | The extensions that the client offers. |" in page
    assert "extensions: entries, if X" in page
    assert "| `data_mime` | compact MIME type, if D | `None` |" in frame_page(PayloadFrame)


def test_what_arrow_calls_the_fields() -> None:
    assert {field.name: field.kind.arrow for field in Setup.FIELDS}["data_mime"] == "string"


def test_every_type_has_its_frame() -> None:
    assert {code: kind.TYPE for code, kind in FRAMES.items()} == {code: code for code in FRAMES}
    assert set(FRAMES) == {*v1.FRAMES, 0x0F}
