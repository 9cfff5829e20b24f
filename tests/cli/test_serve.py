"""``afflux serve``: one line when it listens, the handlers it takes, how it ends."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from tests.cli.running import Server, afflux


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_closes_it_in_order(number: signal.Signals, code: int) -> None:
    with Server("--demo") as server:
        assert server.stop(number) == (code, "", "")


def test_it_says_where_it_listens() -> None:
    with Server("--demo") as server:
        host, _, port = server.uri.removeprefix("tcp://").partition(":")
        assert host == "127.0.0.1"
        assert int(port) > 0


def test_a_handler_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shout.py").write_text(
        "class Shout:\n    async def request(self, payload):\n        return payload.data.upper()\nready = Shout()\n"
    )
    monkeypatch.chdir(tmp_path)
    for name in ("shout:Shout", "shout:ready"):
        with Server("--handler", name) as server:
            assert afflux(f"request {server.uri} -d hello -o raw").stdout == "HELLO"


def test_a_file_is_a_stream_of_its_lines(tmp_path: Path) -> None:
    path = tmp_path / "lines.txt"
    path.write_bytes(b"one\r\ntwo\n\nlast without end")
    with Server("--file", str(path)) as server:
        ran = afflux(f"request {server.uri} --stream -o ndjson")
    assert [json.loads(line)["data"] for line in ran.stdout.splitlines()] == ["one", "two", "", "last without end"]


def test_with_a_journal_it_answers_the_same(tmp_path: Path) -> None:
    with Server("--demo", "--journal", str(tmp_path / "journal")) as server:
        ran = afflux([*f"request {server.uri} --stream -o raw -d".split(), '{"count": 3, "size": 2}'])
    assert ran.stdout == "0.1.2."


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("", "one of --demo, --handler"),
        ("--demo --file x", "one of --demo, --handler"),
        ("--handler nocolon", "MODULE:OBJECT"),
        ("--handler no_such_module_here:x", "no_such_module_here"),
        ("--handler json:nothing", "has no nothing"),
        ("--handler json:dumps", "has none of request, fire, stream"),
        ("--file /no/such/file", "there is no file"),
    ],
)
def test_a_mistake_is_told_in_a_line(options: str, told: str) -> None:
    ran = afflux(f"serve tcp://127.0.0.1:0 {options}")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert told in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize("uri", ["tcp:/127.0.0.1", "smtp://127.0.0.1:0", "jmux+tcp://127.0.0.1:0", "tcp://127.0.0.1"])
def test_an_address_it_can_not_serve_is_a_usage_error(uri: str) -> None:
    ran = afflux(["serve", uri, "--demo"])
    assert ran.returncode == 2
    assert ran.stderr.startswith("afflux: ")
    assert ran.stderr.count("\n") == 1


def test_a_port_in_use_is_a_failure() -> None:
    with Server("--demo") as server:
        ran = afflux(["serve", server.uri, "--demo"])
    assert ran.returncode == 1
    assert ran.stderr.count("\n") == 1


def test_a_journal_that_can_not_be_kept_is_told_before_ready(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("not a directory")
    ran = afflux(["serve", "tcp://127.0.0.1:0", "--demo", "--journal", str(path)])
    assert (ran.returncode, ran.stdout) == (1, "")
    assert "file" in ran.stderr


def test_only_who_shows_the_credentials_comes_in(tmp_path: Path) -> None:
    right, wrong = tmp_path / "right", tmp_path / "wrong"
    for path, text in ((right, "simple ann a password with spaces\n"), (wrong, "simple ann another\n")):
        path.write_text(text)
        path.chmod(0o600)
    with Server("--demo", "--auth-file", str(right)) as server:
        assert afflux(f"request {server.uri} -d hi --auth-file {right} -o raw").stdout == "hi"
        for refused in (f"--auth-file {wrong}", ""):
            ran = afflux(f"request {server.uri} -d hi {refused}")
            assert (ran.returncode, ran.stdout) == (70, "")
            assert "not authenticated" in ran.stderr
            assert "another" not in ran.stderr


def test_leases_are_granted_and_waited_for() -> None:
    with Server("--demo", "--lease", "2/100ms") as server:
        ran = afflux(f"request {server.uri} --lease -D - -o raw", stdin="1\n2\n3\n4\n5\n")
        assert (ran.returncode, ran.stdout) == (0, "12345")
        assert afflux(f"request {server.uri} -d no-lease-wanted -o raw").stdout == "no-lease-wanted"
    with Server("--demo") as server:
        ran = afflux(f"request {server.uri} --lease -d x")
        assert ran.returncode == 69
        assert "leases are not supported" in ran.stderr


def test_a_session_that_can_be_resumed() -> None:
    with Server("--demo", "--resume") as server:
        assert afflux(f"request {server.uri} --resume -d hi -o raw").stdout == "hi"
    with Server("--demo") as server:
        ran = afflux(f"request {server.uri} --resume -d hi")
        assert ran.returncode == 70
        assert "resumption is not supported" in ran.stderr


@pytest.mark.parametrize("lease", ["ten", "10", "10/soon", "-1/1s", "10/0s", "99999999999/1s"])
def test_a_lease_that_can_not_be(lease: str) -> None:
    ran = afflux(["serve", "tcp://127.0.0.1:0", "--demo", f"--lease={lease}"])
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "Traceback" not in ran.stderr
