"""``afflux capture``: a recording proxy as a process, its file, its signals and its errors."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from afflux import sync
from tests.cli.running import Server, afflux, here


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


def test_an_interrupt() -> None:
    with Server("--demo") as server:
        process = Server("--to", server.uri, "-w", "/dev/null", command=("capture", "--listen"))
        with process as proxy:
            assert proxy.stop(signal.SIGINT)[0] == 130


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("--listen", "tcp://127.0.0.1:0", "--to", "tcp://h:1", "-w", "/no/such/file"), 1, "/no/such/file"),
        (("--listen", "mem://a", "--to", "tcp://h:1", "-w", "/dev/null"), 2, "mem addresses"),
        (("--listen", "tls://127.0.0.1:0", "--to", "tcp://h:1", "-w", "/dev/null"), 2, "needs a certificate"),
        (("--listen", "tcp://127.0.0.1:0", "-w", "/dev/null"), 2, "--to"),
        (("--listen", "tcp://127.0.0.1:0", "--to", "tcp://h:1", "-w", "/dev/full"), 1, "No space left on device"),
    ],
)
def test_a_mistake_is_reported(words: tuple[str, ...], code: int, told: str) -> None:
    ran = afflux(["capture", *words])
    assert (ran.returncode, ran.stdout, "Traceback" in ran.stderr) == (code, "", False)
    assert told in ran.stderr
