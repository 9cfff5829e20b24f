"""The examples of every --help: they are there, and they work, against a real server."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from afflux import sync
from afflux.cli import COMMANDS
from afflux.cli.examples import EXAMPLES
from afflux.journal import Journal, Reader
from afflux.protocols.rsocket.cursor import Head, state_of
from afflux.protocols.rsocket.frames import Setup
from tests.capture.writing import Talk, pcapng
from tests.cli.running import Server, afflux

SETUP = len(Setup().encode()).to_bytes(3, "big") + Setup().encode()
WRITTEN = "tcp://127.0.0.1:7000"
LINES = [line for command in (*COMMANDS, "afflux") for line in EXAMPLES[command]]
UNENDING = ("serve", "relay", "capture", "demo", "spark", "shell")
FINITE = sorted({line for line in LINES if line.split()[1] not in UNENDING})
"Those of ``spark`` are tried by tests/spark, test_tail.py and test_captures.py, in a session."
SERVERS = sorted({line for line in LINES if line.split()[1] == "serve"})
PROXIES = sorted({line for line in LINES if line.split()[1] == "capture"})
SHELLS = sorted({line for line in LINES if line.split()[1] == "shell"})
RELAYS = sorted({line for line in LINES if line.split()[1] == "relay"})


@pytest.fixture(autouse=True)
def in_a_directory_with_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "README.md").write_text("# A file\n")
    (tmp_path / "capture.pcapng").write_bytes(pcapng(Talk().whole(SETUP, b"")))
    (tmp_path / "sum.lstr").write_text("channel sum = recv int -> offer | sum | send int -> end\n")
    (tmp_path / "client.bin").write_bytes(bytes.fromhex("00000b 00000001 1c00 00000008 01"))
    (tmp_path / "server.bin").write_bytes(bytes.fromhex("00000a 00000001 2000 00000003"))
    with Journal(tmp_path / "build" / "journal" / "ticks.journal") as journal:
        journal.acknowledge(Reader("billing", 1))
    monkeypatch.chdir(tmp_path)


def test_every_command_has_three() -> None:
    assert set(EXAMPLES) == {*COMMANDS, "afflux", "spark decode"}
    assert all(len(set(lines)) == 3 for lines in EXAMPLES.values())


@pytest.mark.parametrize("command", [*COMMANDS, "spark decode", ""])
def test_the_help_ends_with_them(command: str) -> None:
    lines = EXAMPLES[command or "afflux"]
    told = afflux([*command.split(), "--help"]).stdout.rstrip()
    assert max(map(len, told.splitlines())) <= 80
    assert re.sub(r" \\\n +", " ", told).splitlines()[-4:] == ["  Examples:", *(f"    {line}" for line in lines)]


@pytest.mark.parametrize("line", FINITE)
def test_an_example_works(line: str, uri: str) -> None:
    if " check " in line:
        pytest.importorskip("lark", reason='the language of session types needs the extra "sessions"')
    name, *words = shlex.split(line.replace(WRITTEN, uri))
    ran = afflux(words)
    assert name == "afflux"
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout


@pytest.mark.parametrize("line", SHELLS)
def test_an_example_of_a_shell_sends_a_line(line: str, uri: str) -> None:
    _, *words = shlex.split(line.replace(WRITTEN, uri))
    ran = afflux(words, stdin="request -d 42\n")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "42" in ran.stdout


@pytest.mark.parametrize("line", SERVERS)
def test_an_example_of_a_server_listens(line: str) -> None:
    name, command, uri, *options = shlex.split(line)
    assert (name, command) == ("afflux", "serve")
    free = uri.rpartition(":")[0] + ":0"
    with Server(*options, uri=free) as server:
        assert server.uri.startswith("tcp://127.0.0.1:")


@pytest.mark.parametrize("line", RELAYS)
def test_an_example_of_a_relay_stores_items(line: str) -> None:
    name, command, option, remote, *words = shlex.split(line)
    assert (name, command, option) == ("afflux", "relay", "--from")
    free = words.index("--listen") + 1
    words[free] = words[free].rpartition(":")[0] + ":0"
    shards = range(4 if "--shards" in words else 1)
    with (
        Server("--demo", uri=remote.rpartition(":")[0] + ":0") as server,
        Server(*words, uri=server.uri, command=("relay", "--from")) as relay,
        sync.connect(relay.uri) as peer,
    ):
        for shard in shards:
            (answer,) = peer.stream(cursor=Head(shard=shard, after=1, wait_ms=30_000))
            assert state_of(answer.metadata).head > 1


@pytest.mark.parametrize("line", PROXIES)
def test_an_example_of_a_proxy_records(line: str, uri: str, tmp_path: Path) -> None:
    name, command, option, listen, to, remote, write, file = shlex.split(line)
    assert (name, command, option, to, remote) == ("afflux", "capture", "--listen", "--to", WRITTEN)
    free = f"unix://{tmp_path}/proxy.sock" if listen.startswith("unix") else listen.rpartition(":")[0] + ":0"
    with Server("--to", uri, write, file, uri=free, command=("capture", "--listen")) as proxy:
        with sync.connect(proxy.uri.removeprefix("auto+")) as peer:
            assert peer.request(b"ping").data == b"ping"
        proxy.stop()
    assert Path(file).stat().st_size > 1_000
