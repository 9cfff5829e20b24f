"""``afflux capture``: a recording proxy as a process, its file, its signals and its errors."""

from __future__ import annotations

import json
import re
import signal
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from afflux import sync
from tests.cli.running import Server, afflux, here
from tests.journal.disks import fill, small_disk


def recorded(path: Path, *options: str) -> list[dict[str, Any]]:
    ran = here("decode", "--strict", "--payload", "text", *options, str(path))
    assert ran.code == 0, ran.errors
    return [json.loads(line) for line in ran.out.splitlines()]


def test_a_connection_is_recorded_and_decoded(tmp_path: Path) -> None:
    path = tmp_path / "capture.pcapng"
    with Server("--demo") as server:
        options = ("--to", server.uri, "-w", str(path))
        with Server(*options, command=("capture", "--listen")) as proxy:
            with sync.connect(proxy.uri) as peer:
                assert peer.request(b"ping").data == b"ping"
                whole = recorded_so_far(path)
            code, out, errors = proxy.stop(signal.SIGTERM)
    assert (code, out, errors) == (0, "", "afflux: connections recorded: 1\n")
    assert "SETUP" in whole
    found = recorded(path)
    assert [(made["dir"], made["type"], made["data"]) for made in found if made["data"]] == [
        (">", "REQUEST_RESPONSE", "ping"),
        ("<", "PAYLOAD", "ping"),
        (">", "ERROR", "closed"),
    ]


def recorded_so_far(path: Path) -> list[str]:
    """The types of the frames in a file that is still being written."""
    return [made["type"] for made in recorded(path)]


def test_a_server_that_is_away_is_reported_once(tmp_path: Path) -> None:
    path = tmp_path / "capture.pcapng"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        away = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
    with Server("--to", away, "-w", str(path), command=("capture", "--listen")) as proxy:
        host, port = proxy.uri.removeprefix("tcp://").split(":")
        for _ in range(3):
            with suppress(ConnectionError), socket.create_connection((host, int(port))) as link:
                assert link.recv(1) == b""
        code, out, told = proxy.stop(signal.SIGTERM)
    assert (code, out) == (0, "")
    assert told.splitlines() == [
        f"afflux: cannot connect to {away}: refused: nothing listens there",
        "afflux: connections recorded: 3; without a connection to the server: 3",
    ]
    connections = [json.loads(line) for line in here("inspect", str(path)).out.splitlines()]
    assert [(row["content"], row["closing"]) for row in connections] == [("no data", "rst")] * 3


def test_a_full_disk_ends_the_recording_and_not_the_relay(tmp_path: Path) -> None:
    """The file has whole packets only."""
    path = tmp_path / "capture.pcapng"
    with Server("--demo") as server:
        options = ("--to", server.uri, "-w", str(path))
        with Server(*options, command=("capture", "--listen"), before="ulimit -f 8") as proxy:
            for size in (100, 3_000, 3_000, 100):
                with sync.connect(proxy.uri) as peer:
                    assert peer.request(bytes(size)).data == bytes(size)
            code, out, errors = proxy.stop(signal.SIGTERM)
    reason = f"afflux: {path}: File too large: recording has ended, and connections are still relayed"
    assert (code, out) == (1, "")
    assert errors.splitlines() == [reason, "afflux: connections relayed: 4"]
    ran = here("decode", str(path))
    # The SETUP of the second connection fits into the file if the proxy has read it without the request behind it.
    assert ran.code == 0 and re.search("connections: [12] rsocket", ran.errors)
    assert path.stat().st_size < 0x2000


def test_a_full_disk_keeps_whole_packets(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", 0x4_0000) as disk, Server("--demo") as server:
        path = disk / "capture.pcapng"
        options = ("--to", server.uri, "-w", str(path))
        with Server(*options, command=("capture", "--listen")) as proxy:
            with sync.connect(proxy.uri) as peer:
                assert peer.request(b"before").data == b"before"
                fill(disk)
                for _ in range(4):
                    assert peer.request(bytes(3_000)).data == bytes(3_000)
            code, _, errors = proxy.stop(signal.SIGTERM)
        assert code == 1 and f"afflux: {path}: No space left on device: recording has ended" in errors
        ran = here("decode", "--payload", "text", str(path))
    assert ran.code == 0 and "before" in ran.out


def test_an_interrupt() -> None:
    with Server("--demo") as server:
        process = Server("--to", server.uri, "-w", "/dev/null", command=("capture", "--listen"))
        with process as proxy:
            assert proxy.stop(signal.SIGINT)[0] == 130


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (
            ("--listen", "tcp://127.0.0.1:0", "--to", "tcp://h:1", "-w", "/no/such/file"),
            2,
            "--write: directory '/no/such'",
        ),
        (("--listen", "mem://a", "--to", "tcp://h:1", "-w", "/dev/null"), 2, "mem addresses"),
        (("--listen", "tls://127.0.0.1:0", "--to", "tcp://h:1", "-w", "/dev/null"), 2, "needs a certificate"),
        (("--listen", "tcp://127.0.0.1:0", "-w", "/dev/null"), 2, "--to"),
        (
            ("--listen", "tcp://127.0.0.1:0", "--to", "tcp://h:1", "-w", "/dev/full"),
            1,
            "/dev/full: No space left on device",
        ),
        (
            ("--listen", "tcp://127.0.0.1:0", "--to", "tls://h:1?ca=/no/ca", "-w", "/dev/null"),
            2,
            "there is no file /no/ca",
        ),
    ],
)
def test_a_mistake_is_reported(words: tuple[str, ...], code: int, told: str) -> None:
    ran = afflux(["capture", *words])
    assert (ran.returncode, ran.stdout, "Traceback" in ran.stderr) == (code, "", False)
    assert told in ran.stderr
