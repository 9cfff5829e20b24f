"""Servers of journals that go away while ``serve`` or ``relay`` runs: SIGINT ends the command, a second one at once."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from tests.cli.forking import Process
from tests.cli.running import COMMAND, PIPE, Server, afflux
from tests.journal.nats import nats_server, needs_nats

SLOW = '{"count": 1000000, "size": 10, "delay_ms": 20}'


def told(process: subprocess.Popen[str], text: str) -> None:
    """Wait for a line on stderr that ends with a text."""
    assert process.stderr is not None
    while line := process.stderr.readline():
        if line.endswith(f"{text}\n"):
            return
    pytest.fail(f"it did not tell {text!r}")


@needs_nats
@pytest.mark.parametrize(
    ("command", "begun"), [("serve", False), ("serve", True), ("relay", True)], ids=["new", "open", "relay"]
)
def test_sigint(command: str, begun: bool, tmp_path: Path) -> None:
    """A new journal holds up nothing. What an open one has not stored waits for the servers."""
    with nats_server(tmp_path) as nats, Server("--demo") as remote:
        served = command == "serve"
        words = ["--demo"] if served else ["--from", remote.uri, "-d", SLOW, "--listen"]
        place = ["tcp://127.0.0.1:0", "--journal", nats.uri("x")]
        words = [command, *place, *words] if served else [command, *words, *place]
        with subprocess.Popen([*COMMAND, *words], stdout=PIPE, stderr=PIPE, text=True) as process:
            assert process.stdout is not None
            read = ["request", process.stdout.readline().split()[1], "--cursor", "0", "-o", "raw", "--timeout", "0"]
            read += ["-d", SLOW] if served else []
            if begun:
                assert afflux([*read, "--take", "5"]).returncode == 0
            nats.kill()
            with Process(read, stdout=PIPE, stderr=PIPE) as reader:
                told(process, "cannot be reached (Connection refused); trying again for up to 30 s")
                process.send_signal(signal.SIGINT)
                if begun:
                    told(process, "afflux: still ending; another SIGINT ends it at once")
                    process.send_signal(signal.SIGINT)
                out, errors = process.communicate(timeout=15)  # half of what the journal would wait
                reader.kill()
    assert (process.returncode, out) == (130, "")
    assert "Traceback" not in errors
