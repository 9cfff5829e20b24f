"""The dissector for Wireshark: tshark shows the fields of every frame as ``afflux decode`` does."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import afflux
from afflux import sync
from afflux.protocols.jmux import frames as jmux
from afflux.protocols.registry import PROTOCOLS, frames_of
from afflux.protocols.rsio import frames as rsio
from afflux.protocols.rsocket import frames as wire
from afflux.wireshark import script
from tests.capture.writing import Packet, Talk, pcap
from tests.cli.running import Server, here
from tests.cli.test_decode import BOTH, prefixed
from tests.protocols.test_dissectors import side

TSHARK = shutil.which("tshark")
pytestmark = pytest.mark.skipif(TSHARK is None, reason="tshark is not installed: apt-get install tshark")
HEURISTICS = ("-o", "tcp.try_heuristic_first:TRUE")
"Wireshark gives port 7000 to another protocol."


@pytest.fixture(scope="module")
def lua(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lua") / "afflux.lua"
    assert here("wireshark", "-o", str(path)).code == 0
    return path


def tshark(lua: Path, capture: Path, *options: str) -> str:
    command = [str(TSHARK), "-X", f"lua_script:{lua}", *options, "-r", str(capture)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    assert "Lua Error" not in ran.stdout + ran.stderr, ran.stdout + ran.stderr
    return ran.stdout


def shown(lua: Path, capture: Path, *options: str) -> list[dict[str, Any]]:
    """The frames as tshark shows them: protocol, and the values of each field."""
    found = []
    for proto in ET.fromstring(tshark(lua, capture, "-T", "pdml", *options)).iter("proto"):
        name = str(proto.get("name"))
        if name.startswith("afflux."):
            one: dict[str, Any] = {"protocol": name.removeprefix("afflux.")}
            for field in proto.iter("field"):
                key = str(field.get("name")).removeprefix(f"{name}.")
                one.setdefault(key, []).append(field.get("show"))
            found.append(one)
    return found


NUMBERS = ("stream", "n", "metadata_len", "data_len", "code", "length")


def expected(record: dict[str, Any]) -> dict[str, Any]:
    """What tshark shows of a record."""
    made = {key: [str(record[key])] for key in (*NUMBERS, "dir", "type", "metadata", "data") if record[key] is not None}
    if record["code"] is not None:
        made["code"] = [f"0x{record['code']:016x}"]
    for name, value in record["fields"].items():
        values = value if isinstance(value, list | tuple) else [] if value is None else [value]
        texts = [str(one["id"] if isinstance(one, dict) else one) for one in values]
        if texts:
            made[name] = texts
    for key in ("metadata", "data"):
        if key in made:
            made[key] = [":".join(record[key][at : at + 2] for at in range(0, len(record[key]), 2))]
            if made[key] == [""]:
                del made[key]
    if record["flags"]:
        made["flags"] = [",".join(record["flags"])]
    return made | {"protocol": record["protocol"]}


def compare(lua: Path, capture: Path, *options: str, decode: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Compare all frames of a capture; return the records."""
    ran = here("decode", "--payload", "hex", *decode, str(capture))
    assert ran.code == 0, ran.errors
    records = [json.loads(line) for line in ran.out.splitlines()]
    found = shown(lua, capture, *HEURISTICS, *options)
    assert [(one["protocol"], one["type"]) for one in found] == [
        (one["protocol"], [one["type"] or "?"]) for one in records
    ]
    for one, record in zip(found, records, strict=True):
        hidden = {"", "_ws.expert", "_ws.expert.message", "_ws.expert.severity", "_ws.expert.group", "malformed"}
        seen = {key: value for key, value in one.items() if key not in hidden}
        if record["error"] is None:
            if seen.get("flags") == [""]:
                del seen["flags"]
            assert seen == expected(_unhidden(record))
        else:
            assert seen["error.rule"] == [record["error"]["rule"]], (seen, record)
            assert "malformed" in one
    return records


def test_one_filter_finds_the_frames_of_all_protocols(lua: Path, tmp_path: Path) -> None:
    setup, items = prefixed(wire.Setup().encode()), prefixed(wire.PayloadFrame(stream=1, next=True).encode())
    packets = Talk(client=("10.0.0.9", 40_000)).whole(b"GET / HTTP/1.1\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n")
    packets += Talk(client=("10.0.0.1", 40_000)).whole(setup, items)
    packets += Talk(client=("10.0.0.2", 40_000)).whole(*(b"".join(one) for one in BOTH["jmux"][:2]))
    path = tmp_path / "several.pcap"
    path.write_bytes(pcap(packets))
    found = [
        tshark(lua, path, *HEURISTICS, "-Y", text, "-T", "fields", "-e", "frame.number").split()
        for text in ("afflux", "afflux.rsocket or afflux.jmux", "afflux.rsocket", "tcp.len > 0 and ip.addr != 10.0.0.9")
    ]
    assert found[0] == found[1] == found[3] and 0 < len(found[2]) < len(found[0])


def _unhidden(record: dict[str, Any]) -> dict[str, Any]:
    """Only the length of a secret is shown."""
    if record["fields"].get("token"):
        size = len(record["fields"]["token"]) // 2
        return record | {"fields": record["fields"] | {"token": f"({size} bytes)"}}
    return record


def write(path: Path, packets: list[Packet]) -> Path:
    path.write_bytes(pcap(packets))
    return path


@pytest.mark.parametrize("protocol", BOTH)
@pytest.mark.parametrize("size", [7, 1_448])
def test_both_sides_of_every_protocol(protocol: str, size: int, lua: Path, tmp_path: Path) -> None:
    """Given by the port, whatever the segments."""
    ours, theirs = (b"".join(side) for side in BOTH[protocol][:2])
    capture = write(tmp_path / "capture", Talk().whole(ours, theirs, size))
    given = ("-d", f"7000={protocol}")
    assert len(compare(lua, capture, "-d", f"tcp.port==7000,afflux.{protocol}", decode=given)) == len(BOTH[protocol][2])


@pytest.mark.parametrize("protocol", sorted(PROTOCOLS))
def test_the_golden_vectors(protocol: str, lua: Path, tmp_path: Path) -> None:
    (ours, names), (theirs, others) = side(protocol, True), side(protocol, False)
    capture = write(tmp_path / "capture", Talk().whole(ours, theirs, 100))
    given = ("-d", f"7000={protocol}")
    assert len(compare(lua, capture, "-d", f"tcp.port==7000,afflux.{protocol}", decode=given)) == len(names + others)


MALFORMED = [
    wire.RequestN(stream=5, n=1).encode()[:-1],
    wire.Setup(token=b"abc").encode()[:30],
    b"\x00\x00\x00\x01\xc0\x00",
    b"\x00\x00",
    wire.RequestResponse(stream=1, metadata=b"abc").encode()[:8],
    wire.Setup(data_mime="a\x7f").encode().replace(b"\x7f", b"\xff"),
]


def test_malformed_frames_are_reported(lua: Path, tmp_path: Path) -> None:
    """With the same reasons as in the records."""
    capture = write(tmp_path / "capture", Talk().whole(prefixed(wire.Setup().encode(), *MALFORMED), b""))
    records = compare(lua, capture)
    found = shown(lua, capture, *HEURISTICS)
    reasons = [one["error"] and [one["error"]["reason"]] for one in records]
    assert [one.get("error.reason") for one in found] == reasons and sum(reason is not None for reason in reasons) == 6
    assert all("Malformed frame" in str(one.get("malformed")) or one.get("malformed") for one in found[1:])


def test_a_length_that_cannot_be_ends_the_frames(lua: Path, tmp_path: Path) -> None:
    capture = write(tmp_path / "capture", Talk().whole(b"\0\0\0\x01" + b"x" * 50, b""))
    given = ("-d", "tcp.port==7000,afflux.reactivesocket")
    assert len(compare(lua, capture, *given, decode=("-d", "7000=reactivesocket"))) == 1


def test_unknown_messages_end_the_frames(lua: Path, tmp_path: Path) -> None:
    for data in (rsio.ClientHello().encode() + b"\x70more", bytes.fromhex("4a6d757801008000ff000000")):
        records = compare(lua, write(tmp_path / "capture", Talk().whole(data, b"")))
        assert len(records) == 2 and records[1]["error"]


def test_who_may_send_a_message(lua: Path, tmp_path: Path) -> None:
    header = bytes.fromhex("4a6d757801008000")
    theirs = jmux.Data(session=0, open=True, data=b"y").encode() + jmux.Data(session=0, eof=True, data=b"y").encode()
    records = compare(lua, write(tmp_path / "capture", Talk().whole(header, header + theirs)))
    assert [one["error"] is not None for one in records] == [False, False, True, False]


def test_frames_in_a_websocket(lua: Path, tmp_path: Path) -> None:
    capture = tmp_path / "capture.pcapng"
    with Server("--demo", uri="ws://127.0.0.1:0") as server:
        options = ("--to", server.uri, "-w", str(capture))
        with Server(*options, uri="ws://127.0.0.1:0", command=("capture", "--listen")) as proxy:
            with sync.connect(proxy.uri) as peer:
                assert peer.request(b"ping").data == b"ping"
            proxy.stop(signal.SIGTERM)
    assert [one["type"] for one in compare(lua, capture)][:3] == ["SETUP", "REQUEST_RESPONSE", "PAYLOAD"]


@pytest.mark.parametrize("protocol", ["rsocket", "reactivesocket", "jmux", "rsio", "limit"])
def test_a_recorded_connection_is_recognized(protocol: str, lua: Path, tmp_path: Path) -> None:
    capture = tmp_path / "capture.pcapng"
    with Server("--demo", uri=f"{protocol}+tcp://127.0.0.1:0") as server:
        options = ("--to", server.uri, "-w", str(capture))
        with Server(*options, uri=f"{protocol}+tcp://127.0.0.1:0", command=("capture", "--listen")) as proxy:
            with sync.connect(proxy.uri) as peer:
                if protocol == "rsio":
                    assert len(list(peer.stream(b"count:100:16"))) == 100
                elif protocol != "limit":
                    assert peer.request(b"x" * 70_000).data == b"x" * 70_000
                else:
                    with pytest.raises(afflux.Error):
                        list(peer.channel([b"\x01"], route="sum"))
            proxy.stop(signal.SIGTERM)
    assert {one["protocol"] for one in compare(lua, capture)} == {protocol}


def test_display_filters_and_the_column_info(lua: Path, tmp_path: Path) -> None:
    capture = write(tmp_path / "capture", Talk().whole(prefixed(wire.Setup().encode()), BOTH["rsocket"][1][0]))
    info = tshark(lua, capture, *HEURISTICS, "-Y", "afflux.rsocket.n == 3", "-T", "fields", "-e", "_ws.col.Info")
    assert info == "< stream=5 REQUEST_N n=3\n"
    close = prefixed(wire.ErrorFrame(stream=0, code=0x102).encode())
    failed = write(tmp_path / "failed", Talk().whole(prefixed(wire.Setup().encode()), close))
    info = tshark(lua, failed, *HEURISTICS, "-Y", "afflux.rsocket.code == 0x102", "-T", "fields", "-e", "_ws.col.Info")
    assert "ERROR code=0x102 CONNECTION_CLOSE" in info
    given = ("-d", "tcp.port==7000,afflux.rsocket-draft")
    draft = tshark(lua, capture, *given, "-Y", "afflux.rsocket-draft.type == CANCEL or afflux.rsocket-draft.n == 3",
                   "-T", "fields", "-e", "afflux.rsocket-draft.stream")  # fmt: skip
    assert draft == "5\n"


def test_a_hostile_text_is_escaped(lua: Path, tmp_path: Path) -> None:
    """PC-24."""
    setup = wire.Setup(data_mime="\x1b[31m\n\x00<b>").encode()
    capture = write(tmp_path / "capture", Talk().whole(prefixed(setup), b""))
    for form in (("-T", "fields", "-e", "_ws.col.Info"), ("-V",)):
        text = tshark(lua, capture, *HEURISTICS, *form)
        assert "\x1b" not in text and "[31m" in text


def test_every_declared_frame_and_field_is_in_the_script() -> None:
    text = script("0")
    for protocol in PROTOCOLS:
        for frame in frames_of(protocol):
            assert f'name = "{frame.NAME}"' in text
            assert all(f'"{field.kind.column or field.name}"' in text for field in frame.FIELDS)
    assert text.isascii()
