"""``afflux request``: the five verbs against a real server, what goes in, what comes out, how it ends."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cli.forking import Process
from tests.cli.running import afflux, here


def ask(uri: str, *words: str, stdin: str = "") -> str:
    ran = afflux(["request", uri, *words], stdin=stdin)
    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout


def test_a_request_is_echoed(uri: str) -> None:
    assert ask(uri, "-d", "hello", "-o", "raw") == "hello"
    assert ask(uri, "-d", "hello", "-m", "beside") == '{"data":"hello","metadata":"beside"}\n'


def test_data_comes_from_text_stdin_or_a_file(uri: str, tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(b"from a file\n")
    assert ask(uri, "-o", "raw", "-d", f"@{path}") == "from a file\n"
    assert ask(uri, "-o", "raw", "-d", "-", stdin="from stdin") == "from stdin"
    assert ask(uri, "-o", "raw", stdin="not asked for") == ""


def test_lines_are_requests_one_after_the_other(uri: str) -> None:
    assert ask(uri, "-D", "-", "-o", "hex", stdin="a\nb\n") == "61\n62\n"


def test_a_stream(uri: str) -> None:
    assert ask(uri, "--stream", "-d", '{"count": 3, "size": 4}', "-o", "raw") == "0...1...2..."


def test_take_ends_a_stream_that_would_go_on(uri: str) -> None:
    told = ask(uri, "--stream", "-d", '{"count": 1000000000, "size": 2}', "--take", "5", "-o", "raw", "--credit", "2")
    assert told == "0.1.2.3.4."


def test_a_channel_echoes_what_is_sent(uri: str) -> None:
    assert ask(uri, "--channel", "-d", "a", "-d", "b", "-d", "c", "-o", "hex") == "61\n62\n63\n"
    lines = "".join(f"line {number}\n" for number in range(1000))
    assert ask(uri, "--channel", "-D", "-", "-o", "csv", "--credit", "7", stdin=lines) == "data\n" + lines


def test_fire_and_push_are_counted(uri: str) -> None:
    before = json.loads(ask(uri, "-r", "stats", "-o", "raw"))
    assert ask(uri, "--fnf", "-d", "x") == ""
    assert ask(uri, "--push", "-m", "y") == ""
    after = json.loads(ask(uri, "-r", "stats", "-o", "raw"))
    assert after["fire"] - before["fire"] == 1
    assert after["push"] - before["push"] == 1


def test_real_flights(uri: str) -> None:
    rows = [json.loads(line) for line in ask(uri, "--stream", "-r", "flights", "--take", "3").splitlines()]
    assert [row["carrier"] for row in rows] == ["UA", "UA", "AA"]


def test_output_as_one_document(uri: str) -> None:
    assert json.loads(ask(uri, "-d", "x", "-o", "json")) == {"data": "x"}
    assert json.loads(ask(uri, "--stream", "-d", '{"count": 2}', "-o", "json")) == [{"data": "0"}, {"data": "1"}]
    assert json.loads(ask(uri, "--stream", "-d", '{"count": 0}', "-o", "json")) == []


def test_objects_become_columns(uri: str) -> None:
    told = ask(uri, "--channel", "-d", '{"a": 1, "b": "x"}', "-d", '{"b": "y,z", "a": null}', "-o", "csv")
    assert told == 'a,b\n1,x\n,"y,z"\n'
    table = ask(uri, "--channel", "-d", '{"a": 1, "b": "[bold]"}', "-o", "table")
    assert "[bold]" in table


def test_the_graph_goes_to_stderr(uri: str) -> None:
    words = ["request", uri, "--stream", "-d", '{"count": 100, "size": 1}', "--credit", "10", "--graph", "-o", "raw"]
    ran = afflux(words)
    assert ran.returncode == 0
    assert len(ran.stdout) == 100
    assert "used 100" in ran.stderr
    assert "up to 10" in ran.stderr


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["-r", "fail", "-d", "it broke"], 64, "it broke"),
        (["--stream", "-r", "fail", "-d", "it broke"], 64, "it broke"),
        (["--stream", "-d", "not json"], 67, "JSON object"),
        (["-r", "slow", "-d", '{"ms": 60000}', "--max-time", "50ms"], 3, "timed out after 0.05 s"),
        (["-r", "fail", "-d", "\x1b[31mred"], 64, "[31mred"),
    ],
)
def test_a_failure_has_its_exit_code(uri: str, words: list[str], code: int, told: str) -> None:
    ran = afflux(["request", uri, *words])
    assert ran.returncode == code
    assert told in ran.stderr
    assert "\x1b" not in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--stream", "--channel"], "exclude each other"),
        (["-d", "a", "-d", "b"], "several -d require --channel"),
        (["-d", "a", "-D", "-"], "exclude each other"),
        (["--stream", "-D", "-"], "use -d"),
        (["-d", "@/no/such/file"], "file '/no/such/file' not found"),
        (["--stream", "--delay", "soon"], "invalid --delay 'soon'"),
        (["--credit", "0"], "--credit"),
        (["--mmt", "text/plain", "-r", "echo"], "require composite metadata"),
        (["--mmt", "text/plain", "--auth-file", "x"], "require composite metadata"),
    ],
)
def test_a_mistake_is_reported_before_anything_is_sent(words: list[str], told: str) -> None:
    ran = afflux(["request", "tcp://127.0.0.1:1", *words])
    assert (ran.returncode, ran.stdout) == (2, "")
    assert told in ran.stderr
    assert "Traceback" not in ran.stderr


def test_stdin_that_never_ends_is_within_max_time() -> None:
    command = ["request", "tcp://127.0.0.1:1", "-d", "-", "--max-time", "50ms"]
    with Process(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.wait(60) == 3
        assert process.stderr is not None
        assert "timed out after 0.05 s" in process.stderr.read()


def test_credentials_that_can_not_be_read(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("bearer secret")
    path.chmod(0o644)
    ran = afflux(["request", "tcp://127.0.0.1:1", "--auth-file", str(path)])
    assert ran.returncode == 2
    assert "chmod 600" in ran.stderr
    assert "bearer" not in ran.stderr
    missing = afflux(["request", "tcp://127.0.0.1:1", "--auth-file", "/no/such"])
    assert missing.stderr == "afflux: --auth-file: file '/no/such' not found\n"


def test_a_missing_server_is_a_failure() -> None:
    ran = afflux("request tcp://127.0.0.1:1 -d x")
    assert ran.returncode == 1
    assert ran.stderr.count("\n") == 1


def test_an_unknown_protocol_is_reported_with_the_known_ones() -> None:
    ran = afflux("request rsoket+tcp://127.0.0.1:1 -d x")
    assert ran.returncode == 2
    assert "rsocket" in ran.stderr


def test_an_interrupt_ends_it(uri: str) -> None:
    words = ["request", uri, "--stream", "-d", '{"count": 1000000, "delay_ms": 1}', "-o", "hex"]
    with Process(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "30\n"
        process.send_signal(signal.SIGINT)
        errors = process.communicate(timeout=60)[1]
    assert (process.returncode, errors) == (130, "")


def test_it_ends_silently_when_its_reader_stops(uri: str) -> None:
    words = ["request", uri, "--stream", "-d", '{"count": 1000000000}', "-o", "hex"]
    with Process(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "30\n"
        process.stdout.close()
        errors = process.stderr.read()
        assert (process.wait(timeout=60), errors) == (141, "")


def test_a_silent_stdin_does_not_hold_up_the_end(uri: str) -> None:
    words = ["request", uri, "--channel", "-D", "-", "--take", "1", "-o", "hex"]
    with Process(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        process.stdin.write("a\n")
        process.stdin.flush()
        assert process.wait(timeout=60) == 0


@pytest.mark.parametrize("verb", ["--request", "--stream"])
def test_an_unknown_route_is_rejected(uri: str, verb: str) -> None:
    ran = afflux(["request", uri, verb, "-r", "nosuch", "-d", '{"count":1}'])
    assert (ran.returncode, ran.stdout) == (65, "")
    assert "unknown route 'nosuch'" in ran.stderr


@pytest.mark.parametrize("words", [["--mmt", "é"], ["--dmt", "x" * 300]])
def test_a_mime_type_that_can_not_be_written(uri: str, words: list[str]) -> None:
    ran = afflux(["request", uri, *words, "-d", "a"])
    assert (ran.returncode, ran.stdout, ran.stderr.count("\n")) == (2, "", 1)


def test_bytes_of_the_command_line_go_as_they_are(uri: str) -> None:
    words = ["request", uri, "-o", "raw", "-d", b"\xff"]
    with Process(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.communicate(timeout=60) == (b"\xff", b"")
    assert process.returncode == 0


def test_the_delay_is_between_answers(uri: str) -> None:
    """One answer has nothing to wait for: this ends at once, not after an hour."""
    assert ask(uri, "-o", "raw", "-D", "-", "--delay", "60m", stdin="a\n") == "a"


@pytest.mark.parametrize("name", ["@/dev/zero", "-"])
def test_data_that_does_not_end_is_refused(uri: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("afflux.cli.inputs.DATA_LIMIT", 1 << 20)
    with open("/dev/zero") as zero:
        monkeypatch.setattr("sys.stdin", zero)
        ran = here("request", uri, "-d", name)
    shown = name.removeprefix("@").replace("-", "stdin")
    told = f"afflux: -d: {shown!r} is longer than 1,048,576 bytes; -D sends one item a line\n"
    assert ran == (2, "", told)
