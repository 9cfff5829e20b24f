"""SIGINT at many points, and a stdout that is closed or full: no command prints a traceback. All in fresh processes."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

import pytest

from tests.cli.running import COMMAND, PATIENCE, PIPE
from tests.examples import short

ENDLESS = json.dumps({"count": 100_000_000, "size": 10})


@contextlib.contextmanager
def started(words: Sequence[str], **more: object) -> Iterator[subprocess.Popen[bytes]]:
    streams = {"stdin": PIPE, "stdout": PIPE, "stderr": PIPE} | more
    with subprocess.Popen([*COMMAND, *words], **streams) as process:  # type: ignore[call-overload]
        try:
            yield process
        finally:
            process.kill()


def pipe(stream: IO[bytes] | None) -> IO[bytes]:
    """The stream, which is a pipe."""
    if stream is None:
        raise RuntimeError("no pipe")
    return stream


def interrupted(process: subprocess.Popen[bytes]) -> str:
    """Send SIGINT; what the process prints to stderr. Its exit code has to be 130."""
    process.send_signal(signal.SIGINT)
    errors = process.communicate(timeout=PATIENCE)[1].decode()
    assert process.returncode == 130
    return errors


SCRIPT = Path(sys.prefix, "bin", "afflux")
"The command, as it is installed."

POINTS = (
    *("afflux.core.errors", "afflux.core.payload", "afflux", "afflux.cli.process", "typer.core", "asyncio"),
    *("afflux.cli.app", "afflux.cli.limiting", "afflux.aio.driver", "afflux.demo.responder"),
)


@pytest.mark.parametrize("module", POINTS)
def test_during_imports(module: str) -> None:
    """The interpreter reports each module when it is imported."""
    env = os.environ | {"PYTHONPROFILEIMPORTTIME": "1"}
    with started(["serve", "tcp://127.0.0.1:0", "--demo"], env=env) as process:
        while line := pipe(process.stderr).readline():
            if line.rsplit(b"|")[-1].strip() == module.encode():
                break
        else:
            pytest.fail(f"{module} was not imported")
        lines = interrupted(process).splitlines()
    assert [line for line in lines if not line.startswith("import time:")] == []


@pytest.mark.skipif(not SCRIPT.exists(), reason="needs the installed command: make setup")
def test_during_imports_of_a_command_with_a_relative_path() -> None:
    env = os.environ | {"PYTHONPROFILEIMPORTTIME": "1"}
    words = [sys.executable, os.path.relpath(SCRIPT), "serve", "tcp://127.0.0.1:0", "--demo"]
    with subprocess.Popen(words, stdout=PIPE, stderr=PIPE, env=env) as process:
        while line := pipe(process.stderr).readline():
            if line.rsplit(b"|")[-1].strip() == b"afflux.core.errors":
                break
        lines = interrupted(process).splitlines()
    assert [line for line in lines if not line.startswith("import time:")] == []


WAITING = {
    "request": "{uri} --timeout 0",
    "request --stream": "{uri} --timeout 0",
    "request --channel -D -": "{uri}",
    "request --resume": "{uri} --timeout 0",
    "bench": "{uri} -D 60s",
    "bench -c 5": "{uri} -n 5",
    "request -d x": "tls://127.0.0.1:{port} --timeout 0",
    "request -d": "x ws://127.0.0.1:{port} --timeout 0",
}


@pytest.mark.parametrize(
    "command", short(WAITING, smoke=["request", "request --channel -D -", "bench", "request -d x"])
)
def test_while_a_server_is_silent(command: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        words = f"{command} {WAITING[command].format(uri=f'tcp://127.0.0.1:{port}', port=port)}".split()
        with started(words) as process, server.accept()[0]:
            assert interrupted(process) == ""


WITHIN_A_CALLBACK = """
import os, signal, socket, sys

class Interrupted(socket.socket):
    def getsockopt(self, *names):
        if names == (socket.SOL_SOCKET, socket.SO_ERROR):  # asyncio has seen that the connection is wanted
            os.kill(os.getpid(), signal.SIGINT)
        return super().getsockopt(*names)

socket.socket = Interrupted
from afflux.cli import main
sys.argv[0] = "afflux"
sys.exit(main())
"""


AT_THE_END = """
import os, signal, sys
from afflux.cli import main

class Last:
    def __del__(self, kill=os.kill, pid=os.getpid(), number=signal.SIGINT):
        kill(pid, number)

sys.argv[0] = "afflux"
sys.modules["__main__"].last = Last()
sys.exit(main())
"""


@pytest.mark.parametrize(("words", "code"), [("--version", 0), ("request tcp:host", 2)])
def test_while_modules_are_cleared(words: str, code: int) -> None:
    """The command has ended, so its exit code counts."""
    ended = subprocess.run([sys.executable, "-c", AT_THE_END, *words.split()], capture_output=True, timeout=PATIENCE)
    assert ended.returncode == code
    assert b"Traceback" not in ended.stderr


@pytest.mark.parametrize("command", ["request", "shell"])
def test_within_a_callback_of_the_loop(command: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        uri = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        words = [sys.executable, "-c", WITHIN_A_CALLBACK, command, uri]
        ended = subprocess.run(words, input=b"request -d x", capture_output=True, timeout=PATIENCE)
    assert (ended.returncode, ended.stderr) == (130, b"")


WITHIN_A_FINALIZER = """
import os, signal, sys

class Interrupted:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(10):
            pass

def look(event, words):
    if event == "open" and words[0] == path:
        Interrupted()

path = sys.argv[-1]
sys.addaudithook(look)
from afflux.cli import main
sys.argv[0] = "afflux"
sys.exit(main())
"""


def test_within_a_finalizer(tmp_path: Path) -> None:
    """Python ignores what a finalizer raises, and objects of py4j have them: the command ends all the same."""
    pytest.importorskip("numpy")
    os.mkfifo(path := tmp_path / "never.pcap")
    writer = os.open(path, os.O_RDWR)
    try:
        words = [sys.executable, "-c", WITHIN_A_FINALIZER, "decode", str(path)]
        ended = subprocess.run(words, capture_output=True, timeout=PATIENCE)
    finally:
        os.close(writer)
    assert (ended.returncode, ended.stderr) == (130, b"")


@pytest.mark.parametrize(
    "options",
    short(
        ["-o ndjson", "-o csv", "-o raw", "-o json", "-o table", "--graph", "--credit auto"],
        smoke=["-o ndjson", "-o raw", "-o table", "--graph"],
    ),
)
def test_in_the_middle_of_a_stream(uri: str, options: str) -> None:
    with started(["request", uri, "--stream", "-d", ENDLESS, *options.split()]) as process:
        assert pipe(process.stdout).read(100)
        errors = interrupted(process)
    assert "Traceback" not in errors
    assert bool(errors) == (options == "--graph")


LISTENING = {
    "serve": ["serve", "tcp://127.0.0.1:0", "--demo"],
    "serve --workers": ["serve", "tcp://127.0.0.1:0", "--demo", "--workers", "2"],
    "serve --journal": ["serve", "tcp://127.0.0.1:0", "--demo", "--journal", "{folder}/journal"],
    "relay": [
        "relay",
        "--from",
        "{uri}",
        "--journal",
        "{folder}/relay",
        "--listen",
        "tcp://127.0.0.1:0",
        "-d",
        ENDLESS,
    ],
    "capture": ["capture", "--listen", "tcp://127.0.0.1:0", "--to", "{uri}", "-w", "{folder}/x.pcapng"],
}


@pytest.mark.parametrize("command", LISTENING)
def test_what_listens(uri: str, command: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = str(tmp_path_factory.mktemp("listens"))
    words = [word.replace("{uri}", uri).replace("{folder}", folder) for word in LISTENING[command]]
    with started(words) as process:
        assert pipe(process.stdout).readline().startswith(b"ready ")
        errors = interrupted(process)
    assert all(line.startswith("afflux: ") for line in errors.splitlines())


def test_the_prompt_begins_a_new_line() -> None:
    terminal, far_end = pty.openpty()
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            uri = f"tcp://127.0.0.1:{server.getsockname()[1]}"
            with started(["request", uri, "--timeout", "0"], stderr=far_end) as process, server.accept()[0]:
                os.close(far_end)
                process.send_signal(signal.SIGINT)
                assert process.wait(PATIENCE) == 130
        assert os.read(terminal, 100) == b"\r\n"
    finally:
        os.close(terminal)


SHOWN = ("ndjson", "json", "csv", "hex", "table")


@pytest.mark.parametrize("format", SHOWN)
def test_a_reader_that_stops(uri: str, format: str) -> None:
    with started(["request", uri, "--stream", "-d", ENDLESS, "-o", format]) as process:
        assert pipe(process.stdout).read(1)
        pipe(process.stdout).close()
        errors = pipe(process.stderr).read()
        assert (process.wait(PATIENCE), errors) == (141, b"")


@pytest.mark.parametrize("words", ["--help", "request --help", "doctor", "request --nope"])
def test_nobody_reads(words: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with started(words.split(), stdout=writer, stderr=writer) as process:
        os.close(writer)
        assert process.wait(PATIENCE) == 141


@pytest.mark.parametrize("words", ["--version", "--help", "doctor", "request {uri} -d x"])
def test_a_closed_stdout(uri: str, words: str) -> None:
    """It is as if it were /dev/null, and no socket becomes standard output."""
    shell = f"exec {' '.join(COMMAND)} {words.format(uri=uri)} >&-"
    ran = subprocess.run(["sh", "-c", shell], capture_output=True, timeout=PATIENCE, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"", b"")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="/dev/full is a device of Linux")
@pytest.mark.parametrize("words", ["--version", "--help", "doctor", "request {uri} -d x", "wireshark"])
def test_a_full_disk(uri: str, words: str) -> None:
    for start in (COMMAND, [os.path.join(os.path.dirname(COMMAND[0]), "afflux")]):
        with open("/dev/full", "wb") as full:
            command = [*start, *words.format(uri=uri).split()]
            ran = subprocess.run(command, stdout=full, stderr=PIPE, timeout=PATIENCE, check=False)
        assert (ran.returncode, ran.stderr) == (1, b"afflux: cannot write the output: No space left on device\n")


@pytest.mark.parametrize("option", ["-d", "-m", "-D"])
def test_while_a_pipe_says_nothing(option: str, uri: str, tmp_path: Path) -> None:
    os.mkfifo(path := tmp_path / "pipe")
    with started(["request", uri, option, f"@{path}"]) as process, path.open("wb"):
        assert interrupted(process) == ""


def test_while_nobody_opens_a_pipe(uri: str, tmp_path: Path) -> None:
    os.mkfifo(path := tmp_path / "pipe")
    with started(["request", uri, "-d", f"@{path}"]) as process:
        tasks = Path(f"/proc/{process.pid}/task")
        if not tasks.exists():
            pytest.skip("no /proc")
        while len([*tasks.iterdir()]) < 2:  # the thread that opens it
            assert process.poll() is None
        assert interrupted(process) == ""
