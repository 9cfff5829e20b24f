"""What a new user meets: a file that is in the way, a terminal without Unicode, a server that is away, a long error."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from afflux.cli import COMMANDS
from afflux.core.errors import ApplicationError
from afflux.sync import connect
from tests.cli.forking import Process
from tests.cli.running import COMMAND, PATIENCE, PIPE, Server, afflux, here
from tests.cli.terminal import Terminal

ASCII = {"PYTHONIOENCODING": "ascii", "LANG": "C", "LC_ALL": "C"}


def test_a_capture_that_cannot_listen_leaves_its_file(tmp_path: Path) -> None:
    path = tmp_path / "kept.pcapng"
    path.write_bytes(b"an earlier capture")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        uri = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        ran = afflux(["capture", "--listen", uri, "--to", "tcp://127.0.0.1:1", "-w", str(path)])
    assert (ran.returncode, ran.stderr) == (1, f"afflux: cannot listen on {uri}: the port is in use\n")
    assert path.read_bytes() == b"an earlier capture"


def test_a_capture_leaves_the_socket_of_a_live_server(tmp_path: Path) -> None:
    with Server("--demo", uri=f"unix://{tmp_path}/s") as server:
        ran = afflux(["capture", "--listen", server.uri, "--to", "tcp://127.0.0.1:1", "-w", f"{tmp_path}/x"])
        assert ran.stderr == f"afflux: cannot listen on {server.uri}: a server listens there already\n"
        with connect(server.uri) as peer:
            assert peer.request(b"still there").data == b"still there"
    assert ran.returncode == 1


def test_a_capture_replaces_the_socket_of_a_dead_server(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    words = ("--to", "tcp://127.0.0.1:1", "-w", f"{tmp_path}/x")
    with Server(*words, uri=f"unix://{path}", command=("capture", "--listen")) as proxy:
        assert path.stat().st_mode & 0o777 == 0o600
        assert proxy.stop()[0] == 0
    assert not path.exists()


def test_a_capture_that_cannot_listen_makes_no_file(tmp_path: Path) -> None:
    ran = afflux(["capture", "--listen", f"unix://{tmp_path}/no/s", "--to", "tcp://127.0.0.1:1", "-w", f"{tmp_path}/x"])
    assert ran.returncode == 1
    assert not list(tmp_path.iterdir())


def in_ascii(*words: str, encoding: str = "ascii") -> subprocess.CompletedProcess[str]:
    """Run a command in a fresh process, whose streams have ASCII only."""
    return subprocess.run(
        [*COMMAND, *words],
        env=os.environ | ASCII,
        encoding=encoding,
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_no_type_of_an_argument(command: str) -> None:
    ran = here(command, "--help")
    assert ran.code == 0
    assert "<str>" not in ran.out and "<list" not in ran.out and "range>" not in ran.out


@pytest.mark.parametrize("command", ["relay", "decode"])
def test_help_in_ascii(command: str) -> None:
    ran = in_ascii(command, "--help")
    assert (ran.returncode, ran.stderr) == (0, "")


def test_what_ascii_does_not_have_is_escaped() -> None:
    ran = in_ascii("request", "tcp://127.0.0.1:1", "--dmt", "\u00fc")
    assert ran.returncode == 2
    assert ran.stderr.startswith("afflux: --dmt: '\\xfc' is not a MIME type")


@pytest.mark.parametrize("form", ["table", "json", "csv"])
def test_items_in_ascii(form: str) -> None:
    """Data are bytes: UTF-8, whatever the terminal has. Tables are text."""
    with Server("--demo") as server:
        data = '{"name": "\\u00e9\\u2026"}'
        ran = in_ascii("request", server.uri, "-d", data, "-o", form, encoding="utf-8")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "name" in ran.stdout


def test_a_graph_in_ascii() -> None:
    with Server("--demo") as server:
        ran = in_ascii("request", server.uri, "--stream", "-d", '{"count":50,"size":1}', "--graph", "-o", "raw")
    assert ran.returncode == 0
    assert "\\u" not in ran.stderr
    assert "credit granted" in ran.stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
@pytest.mark.parametrize(
    "words",
    [
        ["serve", "tcp://127.0.0.1:0", "--demo"],
        ["relay", "--from", "tcp://127.0.0.1:1", "--listen", "tcp://127.0.0.1:0"],
    ],
)
def test_a_signal_while_the_servers_of_a_journal_are_away(words: list[str], number: signal.Signals, code: int) -> None:
    pytest.importorskip("nats")
    with Process([*words, "--journal", "nats://127.0.0.1:1/x"], stdout=PIPE, stderr=PIPE, text=True) as process:
        assert process.stderr is not None
        assert "trying again for up to 30 s" in process.stderr.readline()
        process.send_signal(number)
        out, errors = process.communicate(timeout=15)  # half of what it would wait
    assert (process.returncode, out, errors) == (code, "", "")


def test_a_file_that_is_gone_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_text("a\n")
    with Server("--file", str(path)) as server:
        path.unlink()
        with connect(server.uri) as peer, pytest.raises(ApplicationError, match="the server cannot read its file"):
            list(peer.stream(b""))
        code, _, errors = server.stop()
    assert (code, errors) == (0, f"afflux: --file: cannot read {str(path)!r}: No such file or directory\n")


def test_prose_is_wrapped_on_a_terminal() -> None:
    with Server("--demo") as server:
        words = ["request", server.uri, "-r", "echo", "-d", '{"first": 1, "second": 2}']
        with Terminal([*words, "-o", "table", "--columns", "nope,none,nil"], columns=60) as terminal:
            _, shown = terminal.end()
    begin, *others = shown[shown.index("afflux: --columns: no item has ") :].splitlines()
    assert others and all(line.startswith("    ") for line in others)
    assert max(map(len, [begin, *others])) <= 60


def test_a_command_in_an_error_is_not_broken(tmp_path: Path) -> None:
    name = str(tmp_path / "credentials of a user")
    Path(name).write_text("bearer token")
    Path(name).chmod(0o644)
    with Terminal(["request", "tcp://127.0.0.1:1", "--auth-file", name], columns=60) as terminal:
        code, shown = terminal.end()
    assert code == 2
    assert f"run: chmod 600 '{name}'" in shown


def test_a_long_error_is_cut() -> None:
    long = "x" * 50_000
    with Terminal(["request", "tcp://127.0.0.1:1", "-o", long], columns=60) as terminal:
        code, shown = terminal.end()
    assert code == 2
    assert "characters omitted" in shown and len(shown) < 3_000
