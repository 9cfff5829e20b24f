"""``afflux decode CAPTURE``: the frames on stdout, everything else on stderr, the exit code."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from afflux.core.dissect import line
from afflux.protocols.rsocket import frames as wire
from tests.capture.test_decoding import ANSWER, ASK, message
from tests.capture.tlspeers import TlsTalk
from tests.capture.writing import Packet, Talk, block, option, pcap, pcapng, section
from tests.cli.running import afflux, here
from tests.transports.certificates import Certificates


def prefixed(*frames: bytes) -> bytes:
    return b"".join(len(frame).to_bytes(3, "big") + frame for frame in frames)


CLIENT = prefixed(wire.Setup().encode(), wire.RequestStream(stream=1, initial_n=3, data=b"ticks").encode())
SERVER = prefixed(*(wire.PayloadFrame(stream=1, next=True, data=b"tick %d" % n).encode() for n in range(3)))
TYPES = ["SETUP", "REQUEST_STREAM", "PAYLOAD", "PAYLOAD", "PAYLOAD"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "capture.pcap"
    made.write_bytes(pcap(Talk().whole(CLIENT, SERVER)))
    return made


def read(*words: str, code: int = 0) -> tuple[list[dict[str, Any]], str]:
    ran = here("decode", *words)
    assert (ran.code, "Traceback" in ran.errors) == (code, False), ran.errors
    return [json.loads(line) for line in ran.out.splitlines()], ran.errors


def test_frames_of_a_capture(path: Path) -> None:
    found, errors = read(str(path))
    assert [made["type"] for made in found] == TYPES
    assert [made["dir"] for made in found] == [">", ">", "<", "<", "<"]
    assert [made["offset"] for made in found] == [3, len(wire.Setup().encode()) + 6, 3, 3 + 15, 3 + 30]
    assert [made["ts"] for made in found] == ["2026-09-21T14:13:20.127456Z"] * 2 + ["2026-09-21T14:13:20.129456Z"] * 3
    (conn,) = {made["conn"] for made in found}
    assert errors.splitlines() == [
        f"afflux: {conn} 10.0.0.1:40000 > 10.0.0.2:7000 rsocket",
        "afflux: packets: 9; connections: 1 rsocket",
    ]


@pytest.mark.parametrize(("words", "shown"), [((), "tick 9"), (("--overlap", "last"), "TICK 9")])
def test_the_copy_that_counts(path: Path, words: tuple[str, ...], shown: str) -> None:
    """PC-07."""
    talk = Talk()
    item = prefixed(wire.PayloadFrame(stream=1, next=True, data=b"tick 9").encode())
    packets = [*talk.open(), *talk.send(True, CLIENT), *talk.send(False, SERVER)]
    at = len(SERVER)
    packets += [
        talk.packet(False, at + 1, item[1:]),
        talk.packet(False, at + 9, b"TICK"),
        talk.packet(False, at, item[:1]),
    ]
    path.write_bytes(pcap(packets))
    found, errors = read("--payload", "text", *words, str(path))
    assert found[-1]["data"] == shown
    conn = found[0]["conn"]
    text = f"{conn} 10.0.0.2:7000 > 10.0.0.1:40000 repeated with another content: 4 bytes from byte {at + 9}"
    assert f"afflux: {text}" in errors and "afflux: segments that contradict earlier ones: 1" in errors


def test_a_websocket_is_named(path: Path) -> None:
    talk = Talk()
    packets = talk.open() + talk.send(True, ASK % b"") + talk.send(False, ANSWER % b"")
    packets += talk.send(True, message(wire.Setup().encode(), masked=True))
    path.write_bytes(pcap([*packets, *talk.close()]))
    (made,), errors = read(str(path))
    assert errors.startswith(f"afflux: {made['conn']} 10.0.0.1:40000 > 10.0.0.2:7000 rsocket in WebSocket\n")


def test_tls_needs_its_key_log(path: Path, tmp_path: Path) -> None:
    """The names that the handshake shows, and the file's own names of addresses, are printed."""
    pytest.importorskip("cryptography", reason="decrypting needs the extra tls")
    talk = TlsTalk(Certificates(tmp_path), tmp_path / "keys.log", protocols=("rsocket",))
    talk.send(True, CLIENT)
    talk.send(False, SERVER)
    file = pcapng(talk.close())
    names = block(4, option(1, bytes((10, 0, 0, 2)) + b"server.example\0") + option(0, b""))
    at = len(section())
    path.write_bytes(file[:at] + names + file[at:])
    found, errors = read(str(path), "--keylog", str(tmp_path / "keys.log"))
    assert [made["type"] for made in found] == TYPES
    (conn,) = {made["conn"] for made in found}
    assert errors.splitlines() == [
        f"afflux: {conn} 10.0.0.1:40000 > 10.0.0.2:7000 (server.example) rsocket in TLS 1.3; AES-256-GCM; server name "
        "localhost; ALPN rsocket",
        f"afflux: packets: {len(talk.packets)}; connections: 1 rsocket in TLS",
    ]
    found, errors = read(str(path))
    assert found == [] and "1 encrypted (TLS; server name localhost; ALPN rsocket)" in errors
    hint = "afflux: --keylog FILE decrypts TLS, with the file that SSLKEYLOGFILE names\n"
    assert errors.endswith(hint)
    (tmp_path / "empty.log").touch()
    errors = read(str(path), "--keylog", str(tmp_path / "empty.log"))[1]
    told = f"afflux: {tmp_path / 'empty.log'}: the key log has no secrets, so nothing is decrypted with it\n"
    assert errors.startswith(told) and errors.endswith(hint)


def test_key_logs_that_are_wrong(path: Path, tmp_path: Path) -> None:
    pytest.importorskip("cryptography", reason="decrypting needs the extra tls")
    keys = tmp_path / "keys.log"
    assert "No such file" in read(str(path), "--keylog", str(keys), code=2)[1]
    assert "Is a directory" in read(str(path), "--keylog", str(tmp_path), code=2)[1]
    keys.write_bytes(path.read_bytes())
    assert "is not a key log" in read(str(path), "--keylog", str(keys), code=2)[1]
    keys.write_bytes(b"CLIENT_RANDOM " + b"00" * 32 + b" " + b"11" * 48 + b"\nnonsense\n")
    found, errors = read(str(path), "--keylog", str(keys))
    assert len(found) == 5 and f"afflux: {keys}: lines ignored: 1" in errors
    assert "apply to captures" in read("--hex", "00", "--keylog", str(keys), code=2)[1]


@pytest.mark.parametrize("make", [pcapng, lambda packets: gzip.compress(pcap(packets))])
def test_every_format_and_stdin(path: Path, make: Any) -> None:
    found, _ = read(str(path))
    path.write_bytes(make(Talk().whole(CLIENT, SERVER)))
    assert read(str(path))[0] == found
    assert read("--protocol", "rsocket", str(path))[0] == found


def test_stdin(path: Path) -> None:
    import subprocess
    import sys

    command = [sys.executable, "-m", "afflux", "decode", "-"]
    with path.open("rb") as file:
        ran = subprocess.run(command, stdin=file, capture_output=True, text=True, check=True)
    assert [json.loads(line)["type"] for line in ran.stdout.splitlines()] == TYPES


def test_the_first_frames(path: Path) -> None:
    """``--limit`` counts what ``--where`` selects, and reads no further: not to the damage at the end."""
    path.write_bytes(path.read_bytes()[:-75])
    found, errors = read("--limit", "2", str(path))
    assert [made["type"] for made in found] == TYPES[:2]
    assert errors.endswith("afflux: stopped after 2 frames (--limit); what follows was not read\n")
    found, errors = read("--limit", "1", "--where", "type == PAYLOAD", "-o", "ndjson", str(path))
    assert [made["type"] for made in found] == ["PAYLOAD"] and "stopped after 1 frame (" in errors
    found, errors = read("--limit", "9", str(path), code=1)
    assert len(found) == 5 and "stopped" not in errors and "truncated" in errors
    assert len(read("--limit", "1", "--hex", CLIENT.hex())[0]) == 1
    assert "--limit" in read("--limit", "0", str(path), code=2)[1]


def test_a_first_frame_of_the_draft_names_the_option(path: Path) -> None:
    """RSocket's draft begins as RSocket 1.0 does, and its SETUP is no frame of that."""
    from afflux.protocols.rsocket_draft import frames as draft

    setup = draft.Setup(data_mime="text/plain", metadata_mime="text/plain").encode(prefixed=True)
    path.write_bytes(pcap(Talk().whole(setup, SERVER)))
    found, errors = read(str(path))
    assert found[0]["protocol"] == "rsocket" and found[0]["error"] is not None
    hint = "the first frame of a connection cannot be read: if the protocol is rsocket-draft, add -d 7000=rsocket-draft"
    assert errors.count(hint) == 1
    rows = map(json.loads, here("inspect", "--table", "violations", str(path)).out.splitlines())
    (row,) = [row for row in rows if row["kind"] == "malformed"]
    assert row["expected"].endswith("; if the protocol is rsocket-draft, read the capture with -d 7000=rsocket-draft")
    found, errors = read("-d", "7000=rsocket-draft", str(path))
    assert found[0]["error"] is None and "cannot be read" not in errors
    path.write_bytes(pcap(Talk().whole(CLIENT + prefixed(b"\0\0\0\1\xfc\0"), SERVER)))
    found, errors = read(str(path))  # a later frame that cannot be read is no reason to doubt the protocol
    assert found[2]["error"] is not None and "cannot be read" not in errors


def test_payload_and_outputs(path: Path) -> None:
    found, _ = read("--payload", "text", str(path))
    assert [made["data"] for made in found[2:]] == ["tick 0", "tick 1", "tick 2"]
    assert here("decode", "-o", "csv", str(path)).out.startswith("ts,conn,dir,")


def test_a_terminal_shows_time_and_connection(path: Path) -> None:
    ran = afflux(["decode", str(path)])
    conn = json.loads(ran.stdout.splitlines()[0])["conn"]
    assert ran.returncode == 0
    assert line(json.loads(ran.stdout.splitlines()[0])).startswith(f"2026-09-21T14:13:20.127456Z {conn} > rsocket")


def test_a_truncated_file_is_decoded_and_the_exit_status_says_so(path: Path) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole[:-75])
    found, errors = read(str(path), code=1)
    assert [made["type"] for made in found] == TYPES
    assert "capture.pcap: truncated at byte " in errors
    path.write_bytes(whole + bytes(8) + b"\xff" * 8)
    assert "bad-record at byte " in read(str(path), code=1)[1]


def test_strict_exits_with_5(path: Path) -> None:
    path.write_bytes(pcap(Talk().whole(CLIENT + prefixed(b"\0\0\0\1\xfc\0"), SERVER)))
    found, errors = read("--strict", str(path), code=5)
    assert [made["error"] is None for made in found] == [True, True, False, True, True, True]
    assert "malformed frames: 1" in errors
    assert read(str(path))[0] == found


def test_other_traffic_is_not_ours_and_no_error(path: Path) -> None:
    web = Talk(("10.0.0.3", 5_000), ("10.0.0.2", 80))
    mail = Talk(("10.0.0.3", 5_001), ("10.0.0.2", 25))
    packets = web.whole(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n")
    packets += [*mail.open(), *mail.send(False, b"220 mail ready\r\n" * 9)]
    packets += [Packet(b"\xff" * 6 + bytes(6) + b"\x08\x06" + bytes(28))]
    path.write_bytes(pcap(packets))
    found, errors = read("--strict", str(path))
    assert found == []
    assert "1 not ours (HTTP)" in errors and "1 not ours" in errors
    assert "packets skipped: 1 not IP" in errors


def test_a_protocol_is_given_for_a_port_or_for_all(path: Path) -> None:
    """The SETUP of RSocket's draft is that of RSocket 1.0, so its bytes never select it."""
    for words in (("-d", "7000=rsocket-draft"), ("--decode-as", "7000=rsocket-draft", "-d", "1=jmux")):
        assert {made["protocol"] for made in read(*words, str(path))[0]} == {"rsocket-draft"}
    assert {made["protocol"] for made in read("--protocol", "rsocket-draft", str(path))[0]} == {"rsocket-draft"}
    assert {made["protocol"] for made in read("-d", "7001=rsocket-draft", str(path))[0]} == {"rsocket"}
    assert read("--protocol", "jmux", str(path))[0] == []


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("-d", "7000"), "-d expects PORT=NAME"),
        (("-d", "70000=rsocket"), "-d expects PORT=NAME"),
        (("-d", "7000=rsockt"), 'did you mean "rsocket"'),
        (("--protocol", "rsockt"), 'did you mean "rsocket"'),
    ],
)
def test_a_mistake_is_reported(path: Path, words: tuple[str, ...], told: str) -> None:
    assert told in read(*words, str(path), code=2)[1]


def test_options_of_captures_are_refused_elsewhere() -> None:
    assert "apply to captures" in read("--checksums", "--hex", "00", code=2)[1]


def test_checksums_are_counted(path: Path) -> None:
    talk = Talk()
    path.write_bytes(pcap([*talk.open(), talk.packet(True, 0, CLIENT, right=False)]))
    found, errors = read("--checksums", str(path))
    assert len(found) == 2 and "wrong checksums: 1" in errors
    assert "wrong checksums" not in read(str(path))[1]


def test_control_characters_are_escaped(path: Path) -> None:
    """In JSON, on a terminal, and in what stderr says about TLS (PC-24)."""
    evil = "\x1b[2J\u202e=cmd|'<script>\n"
    setup = prefixed(wire.Setup(metadata_mime="a/\x1b[31m").encode())
    frames = setup + prefixed(wire.RequestFnf(stream=1, data=evil.encode()).encode())
    path.write_bytes(pcap(Talk().whole(frames, b"")))
    ran = here("decode", "--payload", "text", str(path))
    assert "\x1b" not in ran.out and "\\u001b" in ran.out
    assert len(ran.out.splitlines()) == 2
    for made in map(json.loads, ran.out.splitlines()):
        assert line(made).isprintable()
    name = b"\0\0\0\x0d\0\x0b\0\0\x08\x1b[2J.com"
    body = b"\x03\x03" + bytes(32) + b"\0\0\x02\x13\x01\x01\0" + len(name).to_bytes(2, "big") + name
    handshake = b"\x01" + len(body).to_bytes(3, "big") + body
    path.write_bytes(pcap(Talk().whole(b"\x16\x03\x01" + len(handshake).to_bytes(2, "big") + handshake, b"")))
    ran = here("decode", str(path))
    assert "server name ?[2J.com" in ran.errors and "\x1b" not in ran.errors
