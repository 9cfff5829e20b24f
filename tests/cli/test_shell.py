"""``afflux shell``: several requests over one connection, from a pipe and on a real terminal."""

from __future__ import annotations

import importlib
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from afflux.core.errors import MissingExtra
from tests.cli.forking import Process
from tests.cli.running import Server, afflux
from tests.cli.terminal import Terminal

ENTER, INTERRUPT, END, TAB, UP = "\r", "\x03", "\x04", "\t", "\x1b[A"
PROMPT = "\nafflux>"


def piped(uri: str, *lines: str, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    return afflux(["shell", uri, *options], stdin="".join(f"{line}\n" for line in lines))


# -- from a pipe ----------------------------------------------------------------------------------------------


def test_lines_of_a_pipe_are_requests_over_one_connection() -> None:
    with Server("--demo") as server:
        lines = ["push -m x", "fire -d x", "", "# it's a comment", "request -r stats", "channel -d a -d b -o csv"]
        ran = piped(server.uri, *lines, "stream -d '{\"count\": 2}' -o raw --end newline", "--request -d x")
    counts, *rest = ran.stdout.splitlines()
    assert (ran.returncode, ran.stderr) == (0, "")
    assert json.loads(counts) == {"request": 1, "stream": 0, "channel": 0, "fire": 1, "push": 1}
    assert rest == ["data", "a", "b", "0", "1", '{"data":"x"}']


def test_one_connection_has_all_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "who.py").write_text(
        "import afflux\n\nclass Who:\n    async def request(self, payload):\n"
        "        return str(id(afflux.current_peer()))\n"
    )
    monkeypatch.chdir(tmp_path)
    with Server("--handler", "who:Who") as server:
        assert len(set(piped(server.uri, "request", "request", "request").stdout.splitlines())) == 1


@pytest.mark.parametrize(
    ("line", "code", "told"),
    [
        ("request -d x --strem", 2, "unknown option --strem; did you mean --stream? (see help)"),
        ("request -r fail -d broken", 64, "broken (0x201)"),
        ("request --max-time 20ms -r slow -d '{\"ms\": 60000}'", 3, "timed out after 0.02 s (--max-time)"),
        ("routs", 2, "unknown command 'routs'; did you mean routes?"),
        ("REQUEST -d x", 2, "unknown command 'REQUEST'; did you mean request?"),
        ("afflux request -d x", 2, "omit afflux: a line of the shell begins with request, stream, channel, …"),
        ("request tcp://h:1 -d x", 2, "omit tcp://h:1: the shell is connected to {uri}"),
        ("xyzzy", 2, "unknown command 'xyzzy'; see help"),
        ("request -d 'a", 2, "cannot read the line: no closing quotation"),
        ("request --lease", 2, "--lease belongs to the connection: give it to afflux shell"),
        ("request -d -", 2, "stdin has the lines of the shell: write data in the line, or @FILE"),
        ("request -d @/no/such/file", 2, "-d: file '/no/such/file' not found"),
        ("stream --routes", 2, "--stream and --routes exclude each other"),
    ],
)
def test_a_failure_ends_the_lines_of_a_pipe(uri: str, line: str, code: int, told: str) -> None:
    ran = piped(uri, "request -d first", line, "request -d never")
    assert (ran.returncode, ran.stdout) == (code, '{"data":"first"}\n')
    assert ran.stderr.startswith(f"afflux: line 2: {told.replace('{uri}', uri)}")
    assert ran.stderr.count("\n") == 1


def test_an_error_counts_the_lines_that_are_not_requests(uri: str) -> None:
    ran = piped(uri, "# a comment", "", "request -d x -o raw", "xyzzy")
    assert (ran.returncode, ran.stdout) == (2, "x")
    assert ran.stderr == "afflux: line 4: unknown command 'xyzzy'; see help\n"


def test_exit_ends_the_lines_of_a_pipe(uri: str) -> None:
    for word in ("exit", "quit"):
        ran = piped(uri, "request -d first", word, "request -d never")
        assert (ran.returncode, ran.stdout, ran.stderr) == (0, '{"data":"first"}\n', "")


def test_options_of_the_shell_are_those_of_its_requests(uri: str) -> None:
    assert piped(uri, "request -d a", "request -d b", options=("-o", "hex")).stdout == "61\n62\n"
    assert piped(uri, "request -d a --end nul", "request -d b -o csv", options=("-o", "raw")).stdout == "a\0data\nb\n"
    limited = piped(uri, "request -d 0123456789", options=("--limit", "payload_bytes=4"))
    assert limited.returncode != 0
    assert "payload_bytes" in limited.stderr
    assert piped(uri, "request -d 42", options=("--dmt", "application/json")).stdout == "42\n"


def test_the_help_names_the_commands(uri: str) -> None:
    ran = piped(uri, "help")
    assert (ran.returncode, ran.stdout) == (0, "")
    assert all(f"\n{word} " in f"\n{ran.stderr}" for word in ("request", "stream", "channel", "fire", "push", "routes"))
    assert max(map(len, ran.stderr.splitlines())) <= 80


def test_a_connection_that_was_never_of_use_is_not_made_again(uri: str) -> None:
    with Terminal(["shell", f"jmux+{uri}"]) as shell:
        shell.until(PROMPT)
        for _ in range(2):
            shell.type(f"request -d x{ENTER}")
            assert "again" not in shell.until("the peer speaks rsocket, not jmux")
            shell.until(PROMPT)
        shell.type(END)
        assert shell.end()[0] == 0


def test_a_missing_server_ends_the_shell() -> None:
    ran = piped("tcp://127.0.0.1:1", "request")
    assert (ran.returncode, ran.stdout, ran.stderr.count("\n")) == (1, "", 1)


def test_an_interrupt_ends_the_lines_of_a_pipe(uri: str) -> None:
    with Process(["shell", uri], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b'stream -d \'{"count": 1000000, "delay_ms": 1}\' -o hex\n')
        assert process.stdout.readline() == b"30\n"
        process.send_signal(2)
        errors = process.communicate(timeout=60)[1]
    assert (process.returncode, errors) == (130, b"")


# -- on a terminal --------------------------------------------------------------------------------------------


class Session(Terminal):
    """A shell on a terminal."""

    def __init__(self, uri: str, history: Path, *options: str) -> None:
        super().__init__(["shell", uri, "--history", str(history), *options])
        self.until("help lists the commands, Ctrl-D ends")
        self.until(PROMPT)

    def enter(self, line: str) -> str:
        """Type a line; what is shown up to the next prompt."""
        self.type(line + ENTER)
        self.until(line.rsplit(" ", 1)[-1])
        return self.until(PROMPT)


def test_requests_on_a_terminal(uri: str, tmp_path: Path) -> None:
    with Session(uri, tmp_path / "history") as shell:
        assert "\nhello\n" in shell.enter("request -d hello")
        assert "│ stream  │ flights │" in shell.enter("routes")
        shell.type(END)
        assert shell.end()[0] == 0


def test_errors_do_not_end_a_terminal(uri: str, tmp_path: Path) -> None:
    with Session(uri, tmp_path / "history") as shell:
        assert "afflux: broken (0x201)" in shell.enter("request -r fail -d broken")
        assert "unknown command 'reqest'; did you mean request?" in shell.enter("reqest")
        assert "afflux: --take requires" in shell.enter("request --take 5")
        assert "\nstill\n" in shell.enter("request -d still")
        shell.type("exit" + ENTER)
        assert shell.end()[0] == 0


def test_ctrl_c_cancels_the_running_request(uri: str, tmp_path: Path) -> None:
    with Session(uri, tmp_path / "history") as shell:
        shell.type('stream -d \'{"count": 1000000, "delay_ms": 1}\'' + ENTER)
        shell.until("\n5\n")
        shell.type(INTERRUPT)
        shell.until("\nafflux: canceled")
        shell.until(PROMPT)
        assert "\nhello\n" in shell.enter("request -d hello")
        shell.type("request -d discarded")
        shell.until("discarded")
        shell.type(INTERRUPT)
        shell.until(PROMPT)
        assert "\nagain\n" in shell.enter("request -d again")
        shell.type(END)
        assert shell.end()[0] == 0


def test_the_tab_key_completes(uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "payload.json").write_text('{"count": 1}')
    with Session(uri, tmp_path / "history") as shell:
        for typed, completed in (
            ("strea", "m"),
            (" -r fli", "ghts"),
            (" --tak", "e"),
            (" 1 -o js", "on"),
            (" -d @payl", "oad.json"),
        ):
            shell.type(typed + TAB)
            shell.until(typed[-3:])
            shell.until(completed)
        shell.type(ENTER)
        assert '"carrier": "UA"' in shell.until(PROMPT)
        shell.type(END)
        assert shell.end()[0] == 0


def test_the_history_is_private_and_outlives_the_shell(uri: str, tmp_path: Path) -> None:
    history = tmp_path / "state" / "history"
    with Session(uri, history) as shell:
        shell.enter("request -d remembered")
        shell.enter(" request -d secret")
        shell.type(END)
        assert shell.end()[0] == 0
    assert history.read_text() == "request -d remembered\n"
    assert stat.S_IMODE(history.stat().st_mode) == 0o600
    with Session(uri, history) as shell:
        shell.type(UP)
        shell.until("request -d remembered")
        shell.type(ENTER)
        shell.until("\nremembered")
        shell.until(PROMPT)
        shell.type(END)
        assert shell.end()[0] == 0


def test_the_history_is_bounded(tmp_path: Path) -> None:
    from afflux.cli.shell_prompt import HISTORY_LINES, Lines

    path = tmp_path / "history"
    path.write_text("".join(f"{number}\n" for number in range(2 * HISTORY_LINES + 1)))
    assert len(list(Lines(path).load_history_strings())) == HISTORY_LINES
    assert path.read_text().count("\n") == HISTORY_LINES
    assert next(iter(Lines(path).load_history_strings())) == str(2 * HISTORY_LINES)


def test_a_history_that_cannot_be_stored_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from afflux.cli.shell_prompt import Lines

    lines = Lines(tmp_path)
    lines.append_string("request")
    assert list(lines.load_history_strings()) == []
    assert capsys.readouterr().err == f"afflux: no history: {tmp_path}: Is a directory\n"


def test_the_terminal_needs_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prompt_toolkit", None)
    monkeypatch.delitem(sys.modules, "afflux.cli.shell_prompt", raising=False)
    with pytest.raises(MissingExtra, match=r"afflux\[shell\]"):
        importlib.import_module("afflux.cli.shell_prompt")


def test_a_lost_connection_is_made_again(tmp_path: Path) -> None:
    uri = f"unix://{tmp_path}/shell.sock"
    with Server("--demo", uri=uri) as server, Session(uri, Path(os.devnull)) as shell:
        assert "\nfirst\n" in shell.enter("request -d first")
        server.stop()
        assert "afflux: cannot connect" in shell.enter("request -d lost")
        with Server("--demo", uri=uri):
            shown = shell.enter("request -d second")
            assert f"afflux: connected to {uri} again\n" in shown
            assert "\nsecond\n" in shown
            shell.type(END)
            assert shell.end()[0] == 0
