"""More mistakes on the command line: handlers, files without permission, peers, closed streams."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import shlex
import shutil
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import afflux
from afflux.cli import main
from tests.cli.running import COMMAND, PATIENCE, Server, here
from tests.cli.running import afflux as process_of
from tests.cli.terminal import Terminal

HANDLERS = """
import sys

class Echo:
    async def request(self, payload):
        return payload

class NoArgument:
    async def request(self):
        return b""

class ThreeArguments:
    async def stream(self, payload, first, second):
        yield payload

class Yields:
    async def request(self, payload):
        yield payload

class NotAMethod:
    request = [1, 2]

class Raises:
    @property
    def request(self):
        raise RuntimeError("no database")

class Leaves:
    def __init__(self):
        sys.exit(4)
    request = Echo.request
"""
SERVE = "serve tcp://127.0.0.1:0"
H = f"{SERVE} --handler hands"
LISTEN = "--listen tcp://127.0.0.1:0"
PORT = '"70000" is not a port: expected 0 to 65535'
CALLED = "is called with one argument: the payload, or the items of a channel"
JMUX = "jmux+tcp://127.0.0.1:1"

USAGE = {
    "decode --decode-as 7=jmux -d 7=rsocket x": "-d gives port 7 two protocols: a port has one",
    # which of several addresses is wrong
    f"relay --from tcp://h:70000 --journal j {LISTEN}": f"--from: {PORT}",
    "relay --from tcp://h:1 --journal j --listen tcp://h:70000": f"--listen: {PORT}",
    "capture --to tcp://h:1 -w x --listen tcp://h:70000": f"--listen: {PORT}",
    f"capture --to tcp://h:70000 -w x {LISTEN}": f"--to: {PORT}",
    # what a protocol does not carry
    "request {uri} -r " + "a" * 300: "a routing tag of 300 bytes: at most 255 fit; change -r",
    # values
    f"{SERVE} --demo --lease 5/": "invalid --lease '5/': expected N/TIME, such as 100/1s",
    f"{SERVE} --demo --journal nats://": '--journal: invalid NATS server "": expected host or host:port',
    f"{SERVE} --demo --journal nats://h": "--journal: the address of a journal names its stream: nats://h/STREAM",
    f"{SERVE} --demo --journal j --limit journal_bytes=5": "--limit journal_bytes=5 is too small: write at least "
    "1048576",
    "bench {uri} --workers 8 -c 2": "--workers 8 requires -c 8 or more: a worker has connections of its own",
    "bench {uri} -o text": "invalid -o/--output: text is not one of table, json, ndjson, csv (see afflux bench --help)",
    "inspect hands.py --html -": "--html writes a report to a file, not to stdout: choose a name, such as report.html",
    # handlers
    f"{H}:NoArgument": f"--handler: hands:NoArgument: NoArgument.request() {CALLED}",
    f"{H}:ThreeArguments": f"--handler: hands:ThreeArguments: ThreeArguments.stream(payload, first, second) {CALLED}",
    f"{H}:Yields": "--handler: hands:Yields: Yields.request yields, but request has one answer, so return it; several "
    "items are a stream or a channel",
    f"{H}:NotAMethod": "--handler: hands:NotAMethod has request, which is not a method, but of type list",
    f"{H}:Raises": "--handler: cannot use hands:Raises: RuntimeError: no database (hands.py, line 26)",
    f"{H}:Leaves": "--handler: cannot make hands:Leaves: it ends the program, by sys.exit(4)",
    f"{H}.Echo": "invalid --handler 'hands.Echo': expected MODULE:OBJECT, such as hands:Echo",
    f"{SERVE} --handler zero:x": "--handler: cannot import zero: source code string cannot contain null bytes",
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "hands.py").write_text(HANDLERS)
    (tmp_path / "zero.py").write_bytes(b"x = 1\0")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("command", USAGE)
def test_a_mistake(uri: str, command: str) -> None:
    ran = here(*shlex.split(command.replace("{uri}", uri)))
    assert ran == (2, "", f"afflux: {USAGE[command]}\n")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("REQUEST {uri}", "unknown command 'REQUEST'; did you mean request?"),
        (
            "help request",
            "unknown command 'help'; afflux --help lists the commands, and afflux COMMAND --help explains one",
        ),
        (
            "tcp://h:1 -d x",
            "unknown command 'tcp://h:1'; a command comes first: afflux request tcp://h:1, or serve, bench, shell, …",
        ),
    ],
)
def test_a_word_that_is_not_a_command(words: str, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words.split()) == 2
    assert capsys.readouterr() == ("", f"afflux: {told}\n")


def test_metadata_for_a_protocol_without_it() -> None:
    with Server("--demo", uri="jmux+tcp://127.0.0.1:0") as server:
        told = "afflux: jmux carries no metadata; omit -r"
        assert here("request", server.uri, "-r", "a") == (2, "", f"{told}\n")
        assert here("request", server.uri, "-r", "a", "-m", "b") == (2, "", f"{told} and -m\n")


def test_credentials_for_a_protocol_without_a_setup(folder: Path) -> None:
    file = folder / "token"
    file.touch(mode=0o600)
    file.write_text("bearer sesame\n")
    why = "a jmux connection has no setup: there is nothing to send with it, and nothing to decide by"
    words = f"--auth-file {file}".split()
    assert here("request", JMUX, *words) == (2, "", f"afflux: {why}; omit --auth-file\n")
    ran = here("serve", "jmux+tcp://127.0.0.1:0", "--demo", *words)
    assert ran == (2, "", f"afflux: --auth-file: {why}\n")


def test_lists_may_be_repeated_and_of_other_options_the_last_one_counts(uri: str) -> None:
    """So an alias of the shell may have options that a command line overrides."""
    ran = here("request", uri, "-o", "json", "--channel", "--channel", "-d", "a", "-d", "b", "-o", "text")
    assert ran == (0, "a\nb\n", "")


# -- files and streams that cannot be used -------------------------------------------------------------------------

DENIED = {
    f"{SERVE} --file secret": "--file: cannot read 'secret'",
    f"{SERVE} --demo --journal private/x": "--journal: cannot write 'private/x'",
    f"{SERVE} --sink private/x": "--sink: cannot write 'private/x'",
    "decode secret": "FILE: cannot read 'secret'",
    "inspect secret": "FILE: cannot read 'secret'",
    "inspect hands.py --html private/x": "--html: cannot write 'private/x'",
    "check secret": "FILE: cannot read 'secret'",
    "journal private": "DIR: cannot read 'private'",
    "doctor --journal private": "--journal: cannot read 'private'",
    f"capture {LISTEN} --to tcp://127.0.0.1:1 -w private/x": "--write: cannot write 'private/x'",
    "request tcp://127.0.0.1:1 --resume --store private/x": "--store: cannot read 'private/x'",
    "spark tail tcp://127.0.0.1:1 --out private/x": "cannot read 'private/x'",
}
WITHOUT_PRIVILEGES = ("setpriv", "--bounding-set=-dac_override,-dac_read_search")
"Runs a program for which the permissions of files count, also as root."


@pytest.mark.skipif(os.geteuid() == 0 and shutil.which("setpriv") is None, reason="needs setpriv to be root and tested")
@pytest.mark.parametrize("command", DENIED)
def test_a_file_that_may_not_be_used(folder: Path, command: str) -> None:
    (folder / "secret").touch(mode=0)
    (folder / "private").mkdir(mode=0)
    prefix = WITHOUT_PRIVILEGES if os.geteuid() == 0 else ()
    words = [*prefix, *COMMAND, *shlex.split(command)]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (2, "", f"afflux: {DENIED[command]}: Permission denied\n")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("request {uri} -d -", "-d: cannot read stdin: it is closed"),
        ("request {uri} --channel -D -", "-D: cannot read stdin: it is closed"),
        ("shell {uri}", "stdin has the lines of the shell, and it is closed"),
    ],
)
def test_a_closed_stdin(uri: str, words: str, told: str) -> None:
    command = f"exec {shlex.join(COMMAND)} {words.format(uri=uri)} <&-"
    ran = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (2, "", f"afflux: {told}\n")


def test_a_long_line_of_a_shell_is_refused_at_once(uri: str) -> None:
    """It would take minutes to split it into words."""
    ran = process_of(["shell", uri], stdin="a" * 3_000_000)
    told = "line 1: the line is longer than 131,072 characters: put the data into a file, -d @FILE"
    assert (ran.returncode, ran.stdout, ran.stderr) == (2, "", f"afflux: {told}\n")


# -- peers ----------------------------------------------------------------------------------------------------------


@contextmanager
def resetting() -> Iterator[str]:
    """A server that resets each connection while it is made: it cannot be reached, and something listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def work() -> None:
            while True:
                try:
                    accepted = server.accept()[0]
                except OSError:
                    return
                accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                accepted.close()

        thread = threading.Thread(target=work)
        thread.start()
        yield f"tcp://127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
    thread.join()


def test_a_peer_that_resets_connections() -> None:
    with resetting() as uri:
        ran = here("request", uri, "-d", "x")
    assert ran.code == 1
    assert "Connect call failed" not in ran.errors
    assert re.search(r"the peer (closed|reset) the connection|connection was lost", ran.errors)


@pytest.mark.parametrize("host", ["a..b", "a" * 64])
def test_what_cannot_be_a_host_name(host: str) -> None:
    why = "unknown host name (a part is empty or longer than 63 characters)"
    assert here("request", f"tcp://{host}:1") == (1, "", f"afflux: cannot connect to tcp://{host}:1: {why}\n")


def test_a_websocket_to_a_server_of_another_protocol() -> None:
    with Server("--demo", uri="jmux+tcp://127.0.0.1:0") as server:
        place = server.uri.removeprefix("jmux+tcp://")
        ran = here("request", f"ws://{place}", "-d", "x")
    why = "the peer speaks jmux, not WebSocket"
    told = f"cannot connect to ws://{place}: {why}; did you mean jmux+tcp://{place}?"
    assert ran == (69, "", f"afflux: {told}\n")


SMALL = ("--limit", "payload_bytes=1000", "--limit", "first_frame_bytes=600", "--limit", "frame_bytes=600")


def test_a_frame_that_is_too_large_names_the_limit_that_was_set() -> None:
    """A frame_bytes of its own does not follow payload_bytes."""
    with Server("--demo", *SMALL) as server:
        ran = here("request", server.uri, "-d", "x" * 2000)
        assert ran.code == 72
        assert "exceed frame_bytes=600 (0x101); raise it where the server runs" in ran.errors
        assert "afflux serve --limit frame_bytes=…" in ran.errors
        ran = here("bench", server.uri, "-n", "1", "--size", "2000", "-q")
        assert ran.code == 72
        assert "nothing succeeded; once " in ran.errors
        assert "afflux serve --limit frame_bytes=…" in ran.errors


def test_a_payload_that_is_too_large_names_payload_bytes(uri: str) -> None:
    small = ("--limit", "payload_bytes=100000")
    ran = here("request", uri, "-r", "echo", "-d", "x" * 200_000, "-o", "raw", *small)
    assert ran.code != 0
    assert "raise it with --limit payload_bytes=…" in ran.errors


async def test_a_silent_remote_of_a_relay_is_reported(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    logged = asyncio.Event()

    class Seen(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            logged.set()

    monkeypatch.setattr("afflux.gateway.follow.QUIET_S", 0.05)
    monkeypatch.setattr(logging.getLogger("afflux.relay"), "handlers", [Seen()])
    caplog.set_level(logging.INFO, "afflux.relay")
    with socket.create_server(("127.0.0.1", 0)) as server:
        uri = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        async with afflux.relay(uri, journal=folder / "j", listen="tcp://127.0.0.1:0"):
            await asyncio.wait_for(logged.wait(), PATIENCE)
    assert caplog.messages == [f"{uri}: no items within 0.05 s; waiting: does it speak rsocket?"]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_ctrl_c_reaches_no_worker_of_a_benchmark(uri: str) -> None:
    """The terminal signals its whole group; a worker that still imports modules would print a traceback."""
    with Terminal(["bench", uri, "-D", "60s", "-c", "2", "--workers", "2"]) as terminal:
        terminal.until("measuring")
        group = os.getpgid(terminal.pid)
        children = Path(f"/proc/{terminal.pid}/task/{terminal.pid}/children").read_text().split()
        assert len(children) >= 2
        assert all(os.getpgid(int(child)) != group for child in children)
        terminal.type("\x03")
        assert terminal.end()[0] == 130
