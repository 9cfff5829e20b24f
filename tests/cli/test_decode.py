"""``afflux decode``: frames from hexadecimal and from dumps, whole, bare, cut off and malformed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from afflux.protocols.rsocket import frames as wire
from tests.cli.running import afflux

CANCEL = wire.Cancel(stream=5).encode()
GRANT = wire.RequestN(stream=5, n=3).encode()
FIRE = wire.RequestFnf(stream=1, data=b"ping").encode()


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


def test_other_outputs() -> None:
    words = ("decode", "--framing", "none", "--hex", CANCEL.hex())
    assert "CANCEL" in afflux([*words, "-o", "table"]).stdout
    assert afflux([*words, "-o", "csv"]).stdout.splitlines()[0].startswith("ts,")
    assert afflux([*words, "-o", "raw"]).returncode == 2


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--hex", "0g"], "not hexadecimal"),
        (["/no/such/file"], "there is no file"),
        (["a", "b"], "one file"),
        (["--protocol", "rsockt", "--hex", "00"], "rsocket"),
        (["--protocol", "jmux", "--hex", "00"], "not built yet"),
        (["--where", "n < 4", "--hex", "00"], "--where comes with a later version"),
        ([], "FILE | HEX"),
    ],
)
def test_a_mistake_is_told(words: list[str], told: str) -> None:
    ran = afflux(["decode", *words])
    assert (ran.returncode, ran.stdout) == (2, "")
    assert told in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize("magic", ["a1b2c3d4", "d4c3b2a1", "0a0d0d0a"])
def test_a_capture_is_not_taken_for_a_dump(tmp_path: Path, magic: str) -> None:
    path = tmp_path / "capture"
    path.write_bytes(bytes.fromhex(magic) + bytes(100))
    ran = afflux(["decode", str(path)])
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "captures" in ran.stderr
