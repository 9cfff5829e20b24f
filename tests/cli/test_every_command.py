"""Every command: SIGINT at many moments, a stdout that nobody reads or that is full, a stderr that is closed. No
command prints a traceback or hangs. All in fresh processes; what is special to one command is in its own tests."""

from __future__ import annotations

import os
import selectors
import shlex
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="captures and Spark need their extras")
pytest.importorskip("pyspark", reason="the commands of Spark need the extra spark")

from afflux.cli import COMMANDS
from tests.capture.tabling import SETUP, asks, complete, item, packets
from tests.capture.writing import pcap
from tests.cli.running import COMMAND, PATIENCE, PIPE
from tests.examples import short

FRAMES = [(0, True, SETUP + asks(1, 9)), (0.5, False, item(1) * 9 + complete(1))]
SUM = "channel sum = recv int -> end\n"

PRINTING = {
    "request": '{uri} --stream -d \'{{"count": 5, "size": 100}}\'',
    "request --routes": "{uri}",
    "bench": "{uri} -n 5 -q",
    "decode": "c.pcap",
    "inspect": "c.pcap",
    "inspect -o json": "c.pcap",
    "wireshark": "",
    "check": "sum.lstr",
    "journal": ". -o json",
    "doctor": "-o json",
    "shell": "{uri}",
    "spark decode": "c.pcap --master none --out tables",
    "--help": "",
}
"What ends by itself, and prints to stdout."

RUNNING = {
    "serve": "tcp://127.0.0.1:0 --demo",
    "request": "{silent} --stream --timeout 0",
    "relay": "--from {silent} --journal journal --listen tcp://127.0.0.1:0",
    "bench": "{silent} -D 60s",
    "decode": "-",
    "inspect": "-",
    "capture": "--listen tcp://127.0.0.1:0 --to {silent} -w x.pcapng",
    "wireshark": "",
    "check": "sum.lstr",
    "demo": "--rows 1000",
    "journal": ".",
    "spark tail": "{silent} --out table --master local[1]",
    "spark decode": "c.pcap --master none --out tables",
    "shell": "{silent}",
    "doctor": "-o table",
}
"What runs until it is stopped, where the command can do so."

QUICK_PRINTING = ("request", "decode", "inspect", "shell", "spark decode", "--help")
QUICK_RUNNING = ("serve", "request", "inspect", "capture", "spark tail", "spark decode", "shell")
"""The commands of ``make test``: one for each way of reading and writing. ``make long`` runs the others."""

MODULES = (300, 800) if os.environ.get("AFFLUX_EXHAUSTIVE") else (800,)
"The numbers of imported modules after which SIGINT arrives: those of every command (make random), and its own."
QUIET_S = 2.0
"Seconds without a further import after which a command has begun to wait."


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a server that says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"tcp://127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "c.pcap").write_bytes(pcap(packets(FRAMES)))
    (tmp_path / "sum.lstr").write_text(SUM)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_no_command_is_forgotten() -> None:
    assert {name.partition(" ")[0] for name in RUNNING} == set(COMMANDS)


def in_a_shell(command: str, redirected: str, uri: str) -> subprocess.CompletedProcess[str]:
    """Run a command that prints, in a shell that redirects its streams. stdin has a line for ``afflux shell``."""
    words = f"{shlex.join(COMMAND)} {command} {PRINTING[command].format(uri=uri)} {redirected}"
    return subprocess.run(
        ["bash", "-c", words], input="request -d x\n", capture_output=True, text=True, timeout=PATIENCE, check=False
    )


@pytest.mark.parametrize("command", short(PRINTING, smoke=QUICK_PRINTING))
def test_nobody_reads(uri: str, command: str) -> None:
    ran = in_a_shell(command, "| exec 0<&-; exit ${PIPESTATUS[0]}", uri)
    assert ran.returncode in (0, 141)  # 0: it has written all before its reader was gone
    assert "Traceback" not in ran.stderr and "Errno" not in ran.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="/dev/full is a device of Linux")
@pytest.mark.parametrize("command", short(PRINTING, smoke=QUICK_PRINTING))
def test_stdout_is_full(uri: str, command: str) -> None:
    ran = in_a_shell(command, ">/dev/full", uri)
    assert ran.returncode == 1
    assert ran.stderr.splitlines()[-1] == "afflux: cannot write the output: No space left on device"
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize("command", short(PRINTING, smoke=QUICK_PRINTING))
def test_stderr_is_closed(uri: str, command: str) -> None:
    ran = in_a_shell(command, "2>&-", uri)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout


def interrupted_after(process: subprocess.Popen[bytes], modules: int) -> list[str]:
    """Wait until a process has imported so many modules, or waits, or has ended; send SIGINT twice. Return what else it
    writes to stderr."""
    assert process.stderr is not None
    written = b""
    with selectors.DefaultSelector() as waiting:
        waiting.register(process.stderr, selectors.EVENT_READ)
        while written.count(b"\nimport time:") < modules and waiting.select(QUIET_S):
            if not (data := os.read(process.stderr.fileno(), 0x1000)):
                break
            written += data
    for _ in range(2):
        process.send_signal(signal.SIGINT)
    written += process.communicate(timeout=PATIENCE)[1]
    return [line for line in written.decode().splitlines() if not line.startswith("import time:")]


@pytest.mark.parametrize("modules", MODULES)
@pytest.mark.parametrize("command", short(RUNNING, smoke=QUICK_RUNNING))
def test_sigint(silent: str, command: str, modules: int) -> None:
    words = shlex.split(f"{command} {RUNNING[command].format(silent=silent)}")
    env = os.environ | {"PYTHONPROFILEIMPORTTIME": "1"}
    with subprocess.Popen([*COMMAND, *words], stdin=PIPE, stdout=PIPE, stderr=PIPE, env=env) as process:
        try:
            lines = interrupted_after(process, modules)
        finally:
            process.kill()
    ended = command in ("wireshark", "check", "journal", "doctor", "spark decode")
    assert process.returncode in ((130, 0) if ended else (130,)), lines
    assert not any("Traceback" in line or "Exception" in line for line in lines), lines
