"""``afflux decode``: frames from hexadecimal and from dumps, whole, bare, cut off and malformed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from afflux.protocols.jmux import frames as jmux
from afflux.protocols.limit import frames as limit
from afflux.protocols.reactivesocket import frames as old
from afflux.protocols.registry import PROTOCOLS
from afflux.protocols.rsio import frames as rsio
from afflux.protocols.rsocket import frames as wire
from tests.cli.running import afflux, here

CANCEL = wire.Cancel(stream=5).encode()
GRANT = wire.RequestN(stream=5, n=3).encode()
FIRE = wire.RequestFnf(stream=1, data=b"ping").encode()


HINT = "afflux: without the length prefix that frames have on TCP, these bytes are frames: add --framing none"


def prefixed(*frames: bytes) -> bytes:
    return b"".join(len(frame).to_bytes(3, "big") + frame for frame in frames)


def records(*words: str, code: int = 0, stdin: str = "") -> list[dict[str, Any]]:
    ran = afflux(["decode", *words], stdin=stdin)
    assert (ran.returncode, "Traceback" in ran.stderr) == (code, False), ran.stderr
    return [json.loads(line) for line in ran.stdout.splitlines()]


def test_a_byte_stream_in_any_number_of_arguments() -> None:
    text = prefixed(GRANT, FIRE).hex(" ")
    for words in ([text], text.split(), [text.replace(" ", "")]):
        assert [(made["type"], made["stream"]) for made in records("--hex", *words)] == [
            ("REQUEST_N", 5),
            ("REQUEST_FNF", 1),
        ]


def test_bare_frames_one_an_argument() -> None:
    grant, cancel = records("--framing", "none", "--hex", GRANT.hex(), CANCEL.hex(":"))
    assert (grant["type"], grant["n"], grant["offset"], grant["length"]) == ("REQUEST_N", 3, 0, len(GRANT))
    assert (cancel["type"], cancel["offset"]) == ("CANCEL", len(GRANT))


@pytest.mark.parametrize("words", [[GRANT.hex()], GRANT.hex(" ").split(), [GRANT.hex(), CANCEL.hex()]])
@pytest.mark.parametrize("protocol", [["--protocol", "rsocket"], []])
def test_bare_frames_without_framing_none_give_a_hint(words: list[str], protocol: list[str]) -> None:
    ran = here("decode", *protocol, "--hex", *words)
    assert ran.code == 0
    assert ran.errors.splitlines()[-1] == HINT


@pytest.mark.parametrize("data", ["0000ff", prefixed(GRANT, FIRE)[:-1].hex(), prefixed(GRANT).hex()])
def test_bytes_that_are_no_bare_frame_give_none(data: str) -> None:
    assert here("decode", "--protocol", "rsocket", "--hex", data).errors == ""


def test_a_dump_and_where_its_frames_are(tmp_path: Path) -> None:
    path = tmp_path / "dump"
    path.write_bytes(prefixed(GRANT, FIRE))
    grant, fire = records(str(path))
    assert (grant["offset"], grant["length"]) == (3, len(GRANT))
    assert (fire["offset"], fire["length"]) == (6 + len(GRANT), len(FIRE))


def test_bare_frames_one_a_line(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_text(f"{GRANT.hex()}\n\n{CANCEL.hex()}\n")
    assert [made["type"] for made in records("--framing", "none", str(path))] == ["REQUEST_N", "CANCEL"]
    assert records("--framing", "none", "-", stdin=path.read_text()) == records("--framing", "none", str(path))


def test_payload_is_shown_when_asked_for() -> None:
    words = ("--framing", "none", "--hex", FIRE.hex())
    assert "data" not in records(*words)[0]
    assert records("--payload", "text", *words)[0]["data"] == "ping"
    assert records("--payload", "hex", *words)[0]["data"] == b"ping".hex()


def test_the_side_that_sent_it() -> None:
    words = ("--framing", "none", "--hex", CANCEL.hex())
    assert records(*words)[0]["dir"] == ">"
    assert records("--role", "server", *words)[0]["dir"] == "<"


@pytest.mark.parametrize(
    "data",
    [
        prefixed(GRANT, FIRE[:5]),
        prefixed(GRANT, FIRE)[:-1],
        prefixed(GRANT) + b"\x00\x00",
        prefixed(GRANT, bytes.fromhex("00000001 fc00")),
    ],
    ids=["too short", "cut in a frame", "cut in a length", "unknown type"],
)
def test_a_malformed_frame_is_a_record_and_strict_makes_it_an_error(data: bytes) -> None:
    good, bad = records("--hex", data.hex())
    assert good["error"] is None
    assert bad["error"]
    assert len(records("--strict", "--hex", data.hex(), code=5)) == 2
    assert len(records("--strict", "--hex", prefixed(GRANT).hex())) == 1


# -- every protocol, and both sides -------------------------------------------------------------------------------

BOTH: dict[str, tuple[list[bytes], list[bytes], list[str]]] = {
    "rsocket": ([prefixed(FIRE)], [prefixed(GRANT)], ["REQUEST_FNF", "REQUEST_N"]),
    "reactivesocket": (
        [old.RequestStream(stream=2, initial_n=3, data=b"x").encode(prefixed=True)],
        [old.Response(stream=2, data=b"y").encode(prefixed=True)],
        ["REQUEST_STREAM", "RESPONSE"],
    ),
    "jmux": (
        [bytes.fromhex("4a6d757801008000"), jmux.Data(session=0, open=True, eof=True, data=b"x").encode()],
        [bytes.fromhex("4a6d757801008000"), jmux.Data(session=0, eof=True, close=True, data=b"y").encode()],
        ["ClientConnectionHeader", "Data", "ServerConnectionHeader", "Data"],
    ),
    "limit": (
        [
            limit.Setup(metadata=b"sum").encode(prefixed=True),
            limit.PayloadFrame(stream=1, data=b"x").encode(prefixed=True),
        ],
        [limit.Choose(stream=4, data=b"\x01").encode(prefixed=True), limit.End().encode(prefixed=True)],
        ["SETUP", "PAYLOAD", "CHOOSE", "END"],
    ),
    "rsio": (
        [rsio.ClientHello().encode(), rsio.Subscribe(publisher="p", subscriber=1, initial_demand=5).encode()],
        [
            rsio.ServerHello().encode(),
            rsio.Subscribed(subscriber=1, element_size=2).encode(),
            rsio.OnNextPacked(subscriber=1, count=2, elements=b"abcd", element_size=2).encode(),
        ],
        ["clientHello", "subscribe", "serverHello", "subscribed", "onNextPacked"],
    ),
}


def read(*words: str, code: int = 0) -> list[dict[str, Any]]:
    ran = here("decode", *words)
    assert ran.code == code, ran.errors
    return [json.loads(line) for line in ran.out.splitlines()]


@pytest.mark.parametrize("protocol", BOTH)
def test_both_sides_of_every_protocol(protocol: str, tmp_path: Path) -> None:
    """From a dump of each side, from hexadecimal that says which side it is, and from lines of it."""
    ours, theirs, names = BOTH[protocol]
    files = [tmp_path / "ours", tmp_path / "theirs"]
    for path, data in zip(files, (ours, theirs), strict=True):
        path.write_bytes(b"".join(data))
    found = read("--protocol", protocol, *map(str, files))
    assert [made["type"] for made in found] == names
    assert [made["dir"] for made in found] == [">"] * len(ours) + ["<"] * len(theirs)
    assert {(made["protocol"], made["error"]) for made in found} == {(protocol, None)}
    assert [made["dir"] for made in read("--protocol", protocol, "--role", "server", str(files[1]))] == ["<"] * len(
        theirs
    )
    words = [">" + b"".join(ours).hex(), "<", *(data.hex() for data in theirs)]
    assert read("--protocol", protocol, "--hex", *words) == found
    lines = tmp_path / "lines"
    framing = PROTOCOLS[protocol].framing
    width = 0 if framing is None else framing.width
    marked = [f"> {data[width:].hex(' ')}" for data in ours] + [f"< {data[width:].hex()}" for data in theirs]
    lines.write_text("\n\n".join(marked))
    bare = read("--protocol", protocol, "--framing", "none", str(lines))
    assert [(made["dir"], made["type"], made["fields"]) for made in bare] == [
        (made["dir"], made["type"], made["fields"]) for made in found
    ]


@pytest.mark.parametrize(
    ("protocol", "text", "shown", "rule"),
    [
        # Rule numbers are ReactiveSocket's.
        ("reactivesocket", "00000002 0000000c 000a0000 00000002", 0, "R-2"),
        ("reactivesocket", "0000000c 00630000 00000002 0000000c 000a0000 00000002", 1, "R-9"),
        # Rule numbers are Jmux's.
        ("jmux", "4a6d757801008000 30010000 05000000 30010000", 2, "R-9"),
        ("jmux", "4a6d757801008000 30010001 30010000", 2, "R-10"),
        # Rule numbers are rsio's.
        ("rsio", "010000 0501 0f", 2, "R-17"),
        ("rsio", "010000 0501 0a0102 61626364", 2, "R-39"),
        ("rsio", "010000 0401", 1, "truncated"),
    ],
)
def test_a_wrong_byte_of_every_protocol(protocol: str, text: str, shown: int, rule: str) -> None:
    found = read("--protocol", protocol, "--hex", text)
    wrong = [made for made in found if made["error"]]
    assert [made["error"]["rule"] for made in wrong] == [rule]
    assert len(found) - len(wrong) == shown
    assert read("--strict", "--protocol", protocol, "--hex", text, code=5) == found


def test_other_outputs() -> None:
    words = ("decode", "--framing", "none", "--hex", CANCEL.hex())
    assert "CANCEL" in afflux([*words, "-o", "table"]).stdout
    assert afflux([*words, "-o", "csv"]).stdout.splitlines()[0].startswith("ts,")
    assert afflux([*words, "-o", "raw"]).returncode == 2


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--hex", "0g"], "not hexadecimal: '0g'\n"),
        (["--hex", "00000"], "not hexadecimal: '00000': 5 digits, and a byte has two\n"),
        (["/no/such/file"], "file '/no/such/file' not found"),
        (["a", "b", "c"], "one file, or one per side"),
        (["a", "b"], "file 'a' not found"),
        (["--protocol", "rsockt", "--hex", "00"], "rsocket"),
        (["--protocol", "carrier", "--hex", "00"], 'unknown protocol "carrier"'),
        (["--where", "n < x", "--hex", "00"], '--where:1:5: n is a number, not "x"\n  n < x\n      ^'),
        (["--where", "packet == 1", "--hex", "00"], "packet is a column of the table of frames"),
        ([], "FILE | HEX"),
    ],
)
def test_a_mistake_is_reported(words: list[str], told: str) -> None:
    ran = afflux(["decode", *words])
    assert (ran.returncode, ran.stdout) == (2, "")
    assert told in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_dump_of_bytes_is_no_file_of_bare_frames(tmp_path: Path) -> None:
    (tmp_path / "dump").write_bytes(b"\0\0\x0b\0")
    ran = afflux(["decode", str(tmp_path / "dump"), "--framing", "none"])
    told = "; a file has one frame per line of hexadecimal with --framing none, and bytes without it\n"
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith("afflux: not hexadecimal: ")
    assert ran.stderr.endswith(told)


@pytest.mark.parametrize("start", ["a1b2c3d4", "d4c3b2a1", "0a0d0d0a", "1f8b0800", "28b52ffd"])
def test_a_damaged_capture_is_not_taken_for_a_dump(tmp_path: Path, start: str) -> None:
    path = tmp_path / "capture"
    path.write_bytes(bytes.fromhex(start) + bytes(100))
    ran = here("decode", str(path))
    assert (ran.code, ran.out) == (1, "")
    assert "Traceback" not in ran.errors and ran.errors.startswith("afflux: ")


def test_a_capture_is_decoded_alone(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).write_bytes(bytes.fromhex("a1b2c3d4") + bytes(100))
    ran = here("decode", str(tmp_path / "a"), str(tmp_path / "b"))
    assert (ran.code, ran.out) == (2, "")
    assert "has both sides" in ran.errors


def test_a_capture_in_a_pipe_is_read_as_standard_input(tmp_path: Path) -> None:
    shell = f'{sys.executable} -m afflux decode <(printf "\\xa1\\xb2\\xc3\\xd4and more of a capture")'
    ran = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=False, timeout=60)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "is a pipe: read a capture from a pipe as standard input, named -" in ran.stderr


def test_no_capture_of_that_name_or_no_bytes_at_all(tmp_path: Path) -> None:
    (tmp_path / "page.pcap").write_text("<!doctype html>")
    ran = here("decode", str(tmp_path / "page.pcap"))
    assert (ran.code, ran.out) == (1, "")
    assert "page.pcap: not a pcap or pcapng file: its first bytes are 3c 21 64 6f" in ran.errors
    empty = subprocess.run(
        [sys.executable, "-m", "afflux", "decode", "-"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        stdin=subprocess.DEVNULL,
    )
    assert (empty.returncode, empty.stdout, empty.stderr) == (1, "", "afflux: standard input: the file is empty\n")
