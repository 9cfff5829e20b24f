"""``afflux bench``: what it asks, what it prints, and how it ends. What it measures is tried in tests/bench.

Where signals, terminals, pipes or a crossed threshold matter, the command is a process of its own. Elsewhere it runs in
this one (``here``), because a process costs a third of a second before it does anything.
"""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import signal
import socket
import subprocess
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from afflux import sync
from afflux.cli.app import run as command_line
from tests.cli.forking import Process
from tests.cli.running import Server, afflux, on_a_terminal


class Ran(NamedTuple):
    """What came of a command line."""

    returncode: int
    stdout: str
    stderr: str


def here(*words: str) -> Ran:
    """Run ``afflux bench`` in this process, as if its output went into pipes."""
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as errors:
        code = command_line(["bench", *words])
    return Ran(code, out.getvalue(), errors.getvalue())


def bench(uri: str, *words: str) -> list[dict[str, Any]]:
    """The runs that it tells, as a pipe gets them."""
    ran = here(uri, *words)
    assert ran.returncode == 0, ran.stderr
    return [json.loads(line) for line in ran.stdout.splitlines()]


def counted(uri: str) -> dict[str, int]:
    """What the server has counted."""
    with sync.connect(uri) as peer:
        told: dict[str, int] = json.loads(peer.request(b"", route="stats").data)
    return told


def wait_until_it_works(process: Process, uri: str) -> None:
    """Wait until a command has made 20 requests, other than our asking for the count."""
    before = counted(uri)["request"]
    while counted(uri)["request"] < before + 21:
        before += 1
        assert process.poll() is None


# -- what it asks -------------------------------------------------------------------------------------------


def test_so_many_requests_of_so_many_bytes(uri: str) -> None:
    before = counted(uri)["request"]
    (found,) = bench(uri, "-n", "300", "-c", "2", "-m", "5", "--size", "1KiB")
    assert (found["requests"], found["succeeded"], found["received_bytes"]) == (300, 300, 307_200)
    assert (found["connections"], found["concurrency"], found["load"], found["verb"]) == (2, 5, "closed", "request")
    assert counted(uri)["request"] - before == 301


def test_for_a_time(uri: str) -> None:
    (found,) = bench(uri, "-D", "200ms")
    assert (found["duration_s"], found["failed"], found["received_bytes"]) == (0.2, 0, 64 * found["succeeded"])


def test_a_rate(uri: str) -> None:
    (found,) = bench(uri, "--rate", "200", "-n", "40")
    assert (found["load"], found["requests"], found["rate_asked_per_s"], found["concurrency"]) == ("open", 40, 200, 256)
    assert found["service_p50_ms"] <= found["latency_p999_ms"]


def test_data_comes_from_the_command_line_stdin_or_a_file(uri: str, tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(b"four")
    for words, size in (("six by", 6), (f"@{path}", 4)):
        (found,) = bench(uri, "-n", "10", "-d", words)
        assert found["received_bytes"] == 10 * size
    assert json.loads(afflux(["bench", uri, "-n", "10", "-d", "-"], stdin="123").stdout)["received_bytes"] == 30
    (found,) = bench(uri, "-n", "10", "-d", "ab", "--metadata", "cde")
    assert found["received_bytes"] == 50


def test_streams_of_items(uri: str) -> None:
    runs = bench(uri, "--stream", "--items", "50", "--size", "10", "-n", "4", "--credit", "1, 8,auto,unbounded")
    assert [each["credit"] for each in runs] == [1, 8, "auto", "unbounded"]
    assert {(each["succeeded"], each["items"], each["received_bytes"]) for each in runs} == {(4, 200, 2000)}
    for each in runs:
        shares = [each[f"stall_{cause}"] for cause in ("credit", "peer", "application")]
        assert sum(shares) == pytest.approx(1, abs=1e-4)
    assert runs[0]["stall_credit"] > 0


def test_streams_of_any_server(uri: str) -> None:
    words = ["--stream", "-d", '{"count": 1000000000, "size": 3}']
    (found,) = bench(uri, *words, "-n", "3", "--take", "20")
    assert (found["succeeded"], found["cut"], found["items"]) == (3, 0, 60)
    (found,) = bench(uri, *words, "-D", "100ms")
    assert (found["succeeded"], found["cut"]) == (0, 1)
    assert found["items"] > 0


def test_streams_of_a_route_without_data(uri: str) -> None:
    (found,) = bench(uri, "--stream", "-r", "flights", "-n", "1", "--take", "5")
    assert found["items"] == 5


def test_channels_and_fires(uri: str) -> None:
    (found,) = bench(uri, "--channel", "--items", "20", "--size", "5", "-n", "3", "--credit", "4")
    assert (found["succeeded"], found["items"], found["received_bytes"]) == (3, 60, 300)
    before = counted(uri)["fire"]
    (found,) = bench(uri, "--fnf", "-n", "20", "--rate", "1000")
    assert (found["succeeded"], found["items"]) == (20, 0)
    assert counted(uri)["fire"] - before == 20


def test_several_processes(uri: str) -> None:
    (found,) = bench(uri, "-n", "100", "-c", "2", "--workers", "2", "--warmup", "50ms")
    assert (found["succeeded"], found["workers"]) == (100, 2)


def test_credentials_are_shown(tmp_path: Path) -> None:
    right, wrong = tmp_path / "right", tmp_path / "wrong"
    for path, text in ((right, "bearer secret\n"), (wrong, "bearer other\n")):
        path.write_text(text)
        path.chmod(0o600)
    with Server("--demo", "--auth-file", str(right)) as server:
        (found,) = bench(server.uri, "-n", "5", "--auth-file", str(right))
        assert found["succeeded"] == 5
        ran = here(server.uri, "-n", "5", "--auth-file", str(wrong))
    assert (ran.returncode, ran.stdout) == (70, "")
    assert "not authenticated" in ran.stderr
    assert "other" not in ran.stderr


# -- what it prints -----------------------------------------------------------------------------------------


def test_outputs_agree(uri: str, tmp_path: Path) -> None:
    log = tmp_path / "run.hlog"
    ran = afflux(["bench", uri, "-n", "20", "-o", "json", "--hdr", str(log)])
    document = json.loads(ran.stdout)
    (found,) = document["runs"]
    assert (document["schema"], found["succeeded"]) == ("afflux.bench/1", 20)
    assert found["latency_hdr"] in log.read_text()
    (row,) = csv.DictReader(here(uri, "-n", "20", "-o", "csv").stdout.splitlines())
    assert row["succeeded"] == "20"
    assert [name for name in found if name not in ("failures", "refusals", "thresholds", "latency_hdr")] == list(row)


def test_a_table_on_a_terminal(uri: str) -> None:
    shown = on_a_terminal(f"bench {uri} -q -n 50")
    assert shown.startswith(("\x1b[1m" + uri, uri))
    for words in ("per second", "p99.9", "latency up to", "█"):
        assert words in shown


def test_progress_goes_to_the_terminal_and_not_into_the_data(uri: str) -> None:
    """It begins after a second: whoever waits shorter sees nothing of it. One that tells and a quiet one at once."""
    started = []
    for words in ([], ["-q"]):
        terminal, far_end = pty.openpty()
        command = ["bench", uri, "-n", "23", "--rate", "10", *words]
        started.append((terminal, Process(command, stdout=subprocess.PIPE, stderr=far_end, text=True)))
        os.close(far_end)
    for (terminal, process), there in zip(started, (True, False), strict=True):
        with process:
            out = process.communicate(timeout=60)[0]
        said = _all_of(terminal)
        assert json.loads(out)["succeeded"] == 23
        assert (b"measuring" in said) is there
        assert b"measuring" not in said.rpartition(b"\r\x1b[K")[2]  # it was wiped out


def _all_of(terminal: int) -> bytes:
    said = b""
    try:
        while data := os.read(terminal, 0x1000):
            said += data
    except OSError:  # EIO: the other end is closed
        pass
    os.close(terminal)
    return said


# -- how it ends --------------------------------------------------------------------------------------------


def test_a_threshold_that_is_crossed_fails_it(uri: str) -> None:
    words = ["-n", "20", "--fail-if", "p50>1ns", "--fail-if", "errors>0", "--fail-if", "max>1h"]
    ran = afflux(["bench", uri, *words[:-1], "max>60m"])
    assert ran.returncode == 99
    (line,) = [line for line in ran.stderr.splitlines() if "p50>1ns" in line]
    assert line.startswith("afflux: p50>1ns: measured ")
    found = json.loads(ran.stdout)
    assert [each["crossed"] for each in found["thresholds"]] == [True, False, False]
    assert bench(uri, "-n", "20", "--fail-if", "errors>0")[0]["thresholds"][0]["crossed"] is False


def test_a_threshold_names_the_run_of_a_sweep(uri: str) -> None:
    ran = here(uri, "--stream", "--items", "5", "-n", "1", "--credit", "1,2", "--fail-if", "items/s>0")
    assert ran.returncode == 99
    assert [line.split(":")[1] for line in ran.stderr.splitlines() if "items/s" in line] == [" credit 1", " credit 2"]


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["-r", "fail", "-d", "it broke"], 64, "3 times ApplicationError: it broke"),
        (["-r", "nosuch"], 65, "unknown route 'nosuch'"),
        (["--stream", "-d", "not json"], 67, "Invalid"),
        (["-r", "slow", "-d", '{"ms": 60000}', "--timeout", "100ms"], 3, "3 times Timeout: no answer within 0.1 s"),
    ],
)
def test_where_nothing_succeeds_the_error_is_the_exit_code(uri: str, words: list[str], code: int, told: str) -> None:
    ran = here(uri, "-n", "3", *words)
    assert ran.returncode == code
    assert "nothing succeeded" in ran.stderr
    assert told in ran.stderr
    assert json.loads(ran.stdout)["failed"] == 3
    assert here(uri, "-n", "3", *words, "--fail-if", "errors>0").returncode == 99


def test_some_failures_are_reported_and_fail_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "moody.py").write_text(
        "import afflux\n"
        "class Moody:\n"
        "    asked = 0\n"
        "    async def request(self, payload):\n"
        "        self.asked += 1\n"
        "        if self.asked % 4 == 0:\n"
        "            raise afflux.Rejected('not now')\n"
        "        return payload\n"
    )
    monkeypatch.chdir(tmp_path)
    with Server("--handler", "moody:Moody") as server:
        (found,) = bench(server.uri, "-n", "40")
        ran = here(server.uri, "-n", "40", "-o", "table")
    assert found["failures"] == [{"kind": "Rejected", "code": "0x202", "count": 10, "example": "not now"}]
    assert (found["succeeded"], found["error_rate"]) == (30, 0.25)
    assert ran.returncode == 0
    assert "Rejected" in ran.stdout


@pytest.mark.parametrize("words", [[], ["--workers", "2", "-c", "2"]])
def test_a_missing_server_is_a_failure(words: list[str]) -> None:
    ran = here("tcp://127.0.0.1:1", "-q", *words)
    assert (ran.returncode, ran.stdout, ran.stderr.count("\n")) == (1, "", 1)


def test_a_server_that_goes_away_ends_it() -> None:
    with Server("--demo") as server:
        command = ["bench", server.uri, "-D", "1h", "--timeout", "500ms"]
        with Process(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            wait_until_it_works(process, server.uri)
            server.process.kill()
            out, errors = process.communicate(timeout=60)
    assert (process.returncode, "the server was lost" in errors) == (1, True), errors
    assert json.loads(out)["succeeded"] > 0


CUTTING = """
import asyncio
import afflux

class Cutting:
    async def stream(self, payload):
        yield b"one"
        await asyncio.sleep(0.05)
        afflux.current_peer().cut()
        await asyncio.sleep(3600)

    async def fire(self, payload):
        afflux.current_peer().cut()
"""
"Gives an item, or takes a fire, and cuts the connection, each time."


def test_a_server_that_cuts_connections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Items of streams that all failed are no success; and what is lost under fires is told, and fails the command."""
    (tmp_path / "cutting.py").write_text(CUTTING)
    monkeypatch.chdir(tmp_path)
    with Server("--handler", "cutting:Cutting") as server:
        streams = here(server.uri, "--stream", "-n", "3")
        fires = here(server.uri, "--fnf", "-D", "300ms", "--rate", "100")
    assert streams.returncode == 1
    assert "nothing succeeded; 3 items received, but no stream completed; 3 times ConnectionClosed" in streams.stderr
    assert fires.returncode == 1
    assert json.loads(fires.stdout)["connections_lost"] > 0
    assert "THE CONNECTION WAS LOST" in fires.stderr
    assert "it is unknown whether they arrived" in fires.stderr


@pytest.mark.parametrize("words", [[], ["--workers", "2", "-c", "2"], ["--rate", "100"]])
def test_an_interrupt_ends_it_and_shows_what_was_measured(uri: str, words: list[str]) -> None:
    command = ["bench", uri, "-D", "1h", *words]
    with Process(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        wait_until_it_works(process, uri)
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=60)
    assert (process.returncode, "Traceback" in errors) == (130, False)
    found = json.loads(out)
    assert (found["interrupted"], found["failed"]) == (True, 0)
    assert found["requests"] == found["succeeded"] + found["unfinished"]


def test_an_interrupt_before_it_has_begun_shows_nothing(uri: str) -> None:
    command = ["bench", uri, "-q", "--warmup", "1h"]
    with Process(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        wait_until_it_works(process, uri)
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=60) == ("", "")
    assert process.returncode == 130


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--stream", "--fnf"], "--request, --stream, --channel and --fnf exclude each other"),
        (["-d", "a", "--size", "3"], "-d and --size exclude each other: both give the data to send"),
        (["--items", "3"], "--items requires --stream or --channel: --request has one item"),
        (["--fnf", "--items", "3"], "--fnf has one"),
        (["--stream", "--items", "3", "-d", "x"], "omit -d, or use --take"),
        (["--take", "3"], "--take requires --stream or --channel"),
        (["--credit", "3"], "--credit requires --stream or --channel"),
        (["--stream", "--credit", "1,much"], "invalid --credit 'much': expected a number of items"),
        (["--stream", "--credit", "0"], "invalid --credit '0'"),
        (["--stream", "--credit", ",".join(["1"] * 65)], "--credit accepts at most 64 values, not 65"),
        (["--rate", "0"], "invalid --rate 0.0: expected 0.001 to 10,000,000 per second"),
        (["-D", "soon"], "invalid --duration 'soon'"),
        (["-D", "0"], "--duration must be longer than 0"),
        (["-n", "0"], "-n"),
        (["--workers", "2"], "--workers 2 requires -c 2 or more: a worker has connections of its own"),
        (["--fail-if", "p99>20"], "--fail-if: invalid limit '20': p99 is a time with its unit, such as p99>20ms"),
        (
            ["--fail-if", "latency>5ms"],
            "--fail-if: unknown metric 'latency'; did you mean p99? figures of latency: min,",
        ),
        (["--fail-if", "Gap>5ms"], "--fail-if: unknown metric 'Gap'; did you mean gap_p99? figures of gap: gap_min,"),
        (["--fail-if", "stall>1%"], "only measured with --stream and --channel"),
        (["--fail-if", "late>1"], "only measured with --rate"),
        (["-o", "hex"], "invalid -o/--output: hex is not one of table, json, ndjson, csv (see afflux bench --help)"),
        (["-o", "xml"], "invalid -o/--output: xml is not one of table, json, ndjson, csv (see afflux bench --help)"),
        (["--size", "20000000"], "invalid --size 20,000,000: expected 0 to 16,777,216 bytes"),
        (["--size", "17MiB"], "invalid --size 17,825,792: expected 0 to 16,777,216 bytes"),
        (["--size", "-1"], "invalid --size '-1': write 50GB, 512MiB or a number of bytes"),
        (["--stream", "--credit", "8,,9"], "--credit contains an empty value"),
        (["--hdr", "/"], "--hdr: '/' is a directory, not a file"),
        (["--rate", "fast"], "--rate"),
        (["--fail-if", "p99.9.9>1ms"], "--fail-if: unknown metric 'p99.9.9'"),
        (["--hdr", "/no/such/folder/x"], "--hdr: directory '/no/such/folder' not found"),
        (["--mmt", "text/plain", "-r", "echo"], "require composite metadata"),
        (["-d", "@/no/such/file"], "file '/no/such/file' not found"),
        (["-r", "x" * 300], "a routing tag of 300 bytes"),
    ],
)
def test_a_mistake_is_reported_before_anything_is_sent(words: list[str], told: str) -> None:
    ran = here("tcp://127.0.0.1:1", "-q", *words)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert told in ran.stderr


def test_an_address_that_can_not_be() -> None:
    ran = here("rsoket+tcp://127.0.0.1:1")
    assert ran.returncode == 2
    assert 'did you mean "rsocket"' in ran.stderr


def test_a_silent_peer_ends_the_run_with_a_hint() -> None:
    """Not one request after the other waits for a peer that has never said anything."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        ran = here(f"tcp://127.0.0.1:{server.getsockname()[1]}", "--stream", "-n", "50", "--timeout", "100ms")
    assert ran.returncode == 3
    failures = json.loads(ran.stdout)["failures"]
    assert [failure["count"] for failure in failures] == [1]
    assert ran.stderr.count(", and nothing before; does it speak rsocket?\n") == 1


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize(
    ("protocol", "told"),
    [
        ("limit", "Timeout: no item within 0.2 s, and nothing before; does it speak limit?"),
        ("rsio", "no answer within 0.2 s; does it speak rsio?"),
    ],
)
def test_a_silent_peer_of_a_protocol_without_keepalives_ends_the_run(protocol: str, told: str, workers: str) -> None:
    verb = {"limit": "--channel", "rsio": "--stream"}[protocol]
    with socket.create_server(("127.0.0.1", 0)) as server:
        uri = f"{protocol}+tcp://127.0.0.1:{server.getsockname()[1]}"
        words = ["-D", "60s", "--timeout", "200ms", "--connect-timeout", "200ms", "--workers", workers, "-c", "2"]
        ran = here(uri, verb, "-d", "x", *words)
    assert ran.returncode == 3
    assert ran.stderr.rstrip().endswith(told)
