"""Commands that recognize the protocol: ``afflux serve auto+…`` and ``afflux decode`` without ``--protocol``."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from afflux.protocols.registry import PROTOCOLS
from afflux.transports.address import parse
from tests.cli.running import Server, afflux, here
from tests.cli.test_decode import prefixed
from tests.protocols.generic.every import WIRES
from tests.protocols.generic.wires import Wire, id_of

SETUP = "00 00 1e 00000000 0400 0001 0000 00004e20 00015f90 04 612f622f63 04 612f622f64 6869"
NEVER_GUESSED = "; the same bytes may begin another protocol: --protocol rsocket-draft"


def read(*words: str, code: int = 0) -> tuple[list[dict[str, Any]], str]:
    """The records, and the line on stderr."""
    ran = here("decode", *words)
    assert ran.code == code, ran.errors
    line, end, rest = ran.errors.partition("\n")
    assert (end, rest) == ("\n", "")
    return [json.loads(record) for record in ran.out.splitlines()], line.removeprefix("afflux: ")


def expected(wire: Wire) -> tuple[str, str]:
    """The protocol that the bytes of a client select, and the sentence about it."""
    name = "rsocket" if PROTOCOLS[wire.name].unguessed else wire.name
    return name, f"recognized {name}" + (NEVER_GUESSED if name == "rsocket" else "")


# -- decode -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wire", WIRES, ids=id_of)
def test_the_first_bytes_of_a_client_select_the_protocol(wire: Wire, tmp_path: Path) -> None:
    """In hexadecimal, in pieces, in dumps of both sides in either order, and as bare frames."""
    ours, theirs = wire.hello("server"), wire.hello("client")
    name, sentence = expected(wire)
    files = [tmp_path / "ours", tmp_path / "theirs"]
    for path, data in zip(files, (ours, theirs), strict=True):
        path.write_bytes(data)
    forms: list[tuple[str, ...]] = [
        ("--hex", ours.hex(), "<" + theirs.hex()),
        ("--hex", "<" + theirs.hex(), ">", *(f"{octet:02x}" for octet in ours)),
        tuple(map(str, files)),
        ("--role", "server", *map(str, reversed(files))),
        ("--protocol", "auto", *map(str, files)),
    ]
    for words in forms:
        records, said = read(*words)
        assert ({record["protocol"] for record in records}, said) == ({name}, sentence), words
    framing = PROTOCOLS[wire.name].framing
    bare = ours if framing is None else ours[framing.width :]
    (record, *_), said = read("--framing", "none", "--hex", bare.hex())
    assert (record["protocol"], said) == (name, sentence)


@pytest.mark.parametrize(
    ("words", "protocol", "sentence"),
    [
        (("--hex", "4a6d757801008000"), "jmux", "recognized jmux"),
        (("--role", "server", "--hex", "02 00 00"), "rsio", "recognized rsio"),
        (("--role", "server", "--hex", "0000000c000b000000000002"), "reactivesocket", "recognized reactivesocket"),
        (
            ("--hex", "00 00 08 00000005 2000 0003"),
            "rsocket",
            "unknown first bytes 00 00 08 00 00 00 05 20 …",
        ),
        (("--hex", "00"), "rsocket", "unknown first bytes 00"),
    ],
)
def test_what_is_said_about_the_bytes(words: tuple[str, ...], protocol: str, sentence: str) -> None:
    """Bytes that are not recognized are RSocket's, as ever."""
    records, said = read(*words)
    assert {record["protocol"] for record in records} == {protocol}
    how = "" if said.startswith("recognized") else " of a client; decoded as rsocket, choose with --protocol NAME"
    assert said == sentence + how


def test_candidates_are_named(tmp_path: Path) -> None:
    """An ERROR on stream 0 says nothing about who sent it."""
    records, said = read("--role", "server", "--hex", "00 00 0a 00000000 2c00 00000101")
    assert records[0]["protocol"] == "rsocket"
    assert "rsocket" in said
    assert "--protocol rsocket-draft" in said


def test_nothing_to_recognize(tmp_path: Path) -> None:
    path = tmp_path / "empty"
    path.write_bytes(b"")
    ran = here("decode", str(path))
    assert (ran.code, ran.out, ran.errors) == (1, "", f"afflux: {path}: the file is empty\n")


def test_a_protocol_that_is_named_is_not_recognized() -> None:
    ran = here("decode", "--protocol", "rsio", "--hex", "4a6d757801008000")
    assert ran.errors == ""
    assert json.loads(ran.out)["protocol"] == "rsio"


def test_nothing_of_a_large_dump_is_lost(tmp_path: Path) -> None:
    """More than one piece is read before the bytes decide, and all of them are decoded."""
    path, count = tmp_path / "dump", 20_000
    path.write_bytes(prefixed(*[bytes.fromhex("00000005 2000 00000003")] * count))
    records, _ = read(str(path))
    assert len(records) == count
    assert records[-1]["offset"] == 13 * count - 10
    ran = afflux(["decode", "--strict", "-"], stdin="Jmux")
    assert (ran.returncode, ran.stderr.splitlines()[0]) == (5, "afflux: recognized jmux")


# -- serve --------------------------------------------------------------------------------------------------------


def test_one_address_for_every_wire() -> None:
    """What is served, what is not, and which client speaks what."""
    with Server("--demo", uri="auto+tcp://127.0.0.1:0") as server:
        assert server.uri.startswith("auto+tcp://127.0.0.1:")
        place = server.uri.removeprefix("auto+")
        for name in ("rsocket", "reactivesocket", "jmux"):
            ran = here("request", f"{name}+{place}", "-d", "hello", "-o", "raw")
            assert (ran.code, ran.out) == (0, "hello"), ran.errors
        ran = here("request", f"rsio+{place}", "--stream", "-d", "count:2:1", "-o", "raw")
        assert (ran.code, ran.out) == (0, "01")
        assert here("request", f"rsocket-draft+{place}", "-d", "x").code == 69
        assert here("request", f"jmux+{place}", "-d", "gen 3", "-o", "raw").out == "..."
        code, _, errors = server.stop()
    assert code == 0
    names = ", ".join(sorted(name for name, entry in PROTOCOLS.items() if not entry.unguessed))
    assert f"afflux: auto recognizes {names}\n" in errors
    assert "afflux: rsocket-draft is not recognized: its SETUP cannot be told from that of RSocket 1.0" in errors


def test_workers_share_it() -> None:
    with Server("--demo", "--workers", "2", uri="auto+tcp://127.0.0.1:0") as server:
        place = server.uri.removeprefix("auto+")
        for name in ("rsocket", "jmux", "reactivesocket", "jmux"):
            assert here("request", f"{name}+{place}", "-d", "hi", "-o", "raw").out == "hi"
        assert server.stop()[0] == 0


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="this system has no SIGUSR1")
def test_the_report_names_the_protocol() -> None:
    import afflux.sync

    with Server("--demo", uri="auto+tcp://127.0.0.1:0") as server:
        with afflux.sync.connect(server.uri.replace("auto", "jmux")) as peer:
            assert peer.request(b"x").data == b"x"
            server.process.send_signal(signal.SIGUSR1)
            errors = server.process.stderr
            assert errors is not None
            lines = [errors.readline() for _ in range(4)]
        assert parse(server.uri, serving=True).protocol == "auto"
    assert lines[-1] == "127.0.0.1 (jmux): 0 live streams\n"


def test_credentials_exclude_protocols_without_a_setup(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("bearer good\n")
    path.chmod(0o600)
    with Server("--demo", "--auth-file", str(path), uri="auto+tcp://127.0.0.1:0") as server:
        place = server.uri.removeprefix("auto+")
        assert here("request", place, "--auth-file", str(path), "-d", "x", "-o", "raw").out == "x"
        assert here("request", place, "-d", "x").code == 70
        assert here("request", f"jmux+{place}", "-d", "x").code != 0
        _, _, errors = server.stop()
    assert "does not serve jmux: a jmux connection has no setup" in errors


def test_a_client_names_its_protocol() -> None:
    ran = here("request", "auto+tcp://127.0.0.1:1", "-d", "x")
    assert (ran.code, ran.out) == (2, "")
    assert "auto is for servers; a client names the protocol that it speaks, one of " in ran.errors
