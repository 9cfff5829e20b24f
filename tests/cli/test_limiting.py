"""``--limit`` and ``--connect-timeout``: what they set, what they refuse; and a crowd that a server has no room for."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from afflux import sync
from afflux.cli.limiting import limits_of
from afflux.core.limits import Limits
from tests.cli.running import COMMAND, Server, afflux, here

SMALL = ("--demo", "--limit", "payload_bytes=1KiB", "--limit", "connections=20")
OPEN = ("--limit", "connections_per_address=off")


@pytest.fixture(scope="module")
def small() -> Iterator[Server]:
    with Server(*SMALL, *OPEN) as server:
        yield server


def test_values_are_written_in_the_unit_of_the_limit() -> None:
    given = [
        "payload-bytes=2MiB",
        "handshake_s=500ms",
        "lease_margin_ms=1s",
        "idle_s=off",
        "cancel_bucket=10_000, 50",
        "connections_per_address=0.5",
        "resume_rate=5,0.5",
    ]
    assert limits_of(given, Limits.trusted()) == Limits.trusted(
        payload_bytes=2 << 20,
        handshake_s=0.5,
        lease_margin_ms=1000.0,
        idle_s=None,
        cancel_bucket=(10_000, 50),
        connections_per_address=0.5,
        resume_rate=(5, 0.5),
    )
    assert limits_of(None) is limits_of([]) is Limits.server()


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["payload_byte=1MiB"], "unknown limit 'payload_byte'; did you mean 'payload_bytes'?"),
        (["payload_bytes"], "invalid --limit 'payload_bytes': expected NAME=VALUE"),
        (["payload_bytes=big"], "payload_bytes=big: expected a size such as 16MiB (bytes"),
        (["handshake_s=-1"], "handshake_s=-1: expected a time such as 30s (seconds"),
        (["idle_s=never"], "idle_s=never: expected a time such as 30s, or off (seconds"),
        (["streams=many"], "streams=many: expected a number (handlers"),
        (["streams=1.5"], "streams must be a whole number"),
        (["streams=off"], "streams=off: expected a number"),
        (["cancel_bucket=5"], "expected 2 values with a comma (burst, per second)"),
        (["sessions=200"], "at most 128, not 200"),
        (["streams=1", "streams=2"], "--limit streams is given twice"),
        (["payload_bytes=16MiB"], "exceeds connection_bytes=8388608; set --limit connection_bytes=… as well"),
    ],
)
@pytest.mark.parametrize("command", [("serve", "--demo"), ("request",), ("bench", "-n", "1")])
def test_a_mistake_is_named(command: tuple[str, ...], given: list[str], told: str) -> None:
    if command[0] == "bench" and "payload_bytes=16MiB" in given:
        given, told = ["payload_bytes=256MiB"], "exceeds connection_bytes=134217728; set"
    ran = here(command[0], "tcp://127.0.0.1:0", *command[1:], *(f"--limit={text}" for text in given))
    assert (ran.code, ran.errors.count("\n"), told in ran.errors) == (2, 1, True), ran.errors


@pytest.mark.parametrize(
    ("given", "unit"),
    [
        ("sessions=200", "Jmux ids per connection"),
        ("payload_bytes=64GiB", "bytes, all queues of a connection"),
        ("keepalive_s=1000", "seconds, proposed in SETUP"),
        ("streams=1.5", "handlers"),
    ],
)
def test_a_mistake_names_the_unit(given: str, unit: str) -> None:
    ran = here("serve", "tcp://127.0.0.1:0", "--demo", "--limit", given)
    assert (ran.code, f"({unit}" in ran.errors, ran.errors.count("(")) == (2, True, 1), ran.errors


def test_a_refused_size_names_the_size_the_limit_and_the_option(small: Server) -> None:
    """On both sides: the server refuses a request, the client an answer."""
    sent = here("request", small.uri, "-d", "x" * 2000)
    assert (sent.code, sent.out) == (65, "")
    assert "payload-too-large: 2000 bytes exceed payload_bytes=1024 (0x202); raise it where the server" in sent.errors
    assert "afflux serve --limit payload_bytes=…" in sent.errors
    framed = here("request", small.uri, "-d", "x" * 70_000)
    assert "frame-too-large: 70006 bytes exceed frame_bytes=66560" in framed.errors
    assert "afflux serve --limit payload_bytes=…" in framed.errors
    got = here("request", small.uri, "-d", "x" * 1000, "--limit", "payload_bytes=999")
    assert got.errors.endswith("1000 bytes exceed payload_bytes=999; raise it with --limit payload_bytes=…\n")
    assert here("request", small.uri, "-d", "x" * 1000, "--limit", "payload_bytes=1000").code == 0


def test_workers_have_the_limits_too() -> None:
    with Server(*SMALL, "--workers", "2") as server:
        assert "exceed payload_bytes=1024" in here("request", server.uri, "-d", "x" * 2000).errors


def test_a_crowd_without_room_is_counted_and_named() -> None:
    """50 connections at a server of 20, both on the loop that they find; neither side has a traceback."""
    with Server(*SMALL, *OPEN) as server:
        ran = afflux(["bench", server.uri, "-c", "50", "-n", "200"])
        code, _, errors = server.stop(signal.SIGINT)
    found = json.loads(ran.stdout)
    assert (found["connections"], found["connections_open"], found["connections_refused"]) == (50, 20, 30)
    assert (found["succeeded"], found["failed"]) == (200, 0)
    (refusal,) = found["refusals"]
    assert (refusal["kind"], refusal["count"]) == ("SetupRefused", 30)
    assert refusal["example"] == "too-many-connections: connections=20"
    assert "30 of 50 connections were refused: 30 times too-many-connections: connections=20" in ran.stderr
    assert (ran.returncode, code, "Traceback" in ran.stderr + errors) == (1, 130, False)


def test_without_any_room_the_command_ends_with_the_cause() -> None:
    words = ["--limit", "connections=1", "--limit", "connections_per_address=1"]
    with Server("--demo", *words) as server, sync.connect(server.uri) as peer:
        peer.request(b"")
        ran = here("bench", server.uri, "-q", "-c", "5")
    assert (ran.code, ran.out) == (70, "")
    assert ran.errors == "afflux: too-many-connections: connections=1 (0x003)\n"


def test_open_files_are_allowed_as_far_as_needed() -> None:
    """With a soft limit below the number of connections, at a server and at a client."""
    pytest.importorskip("resource")
    lower = "ulimit -Sn 100"
    with Server("--demo", *OPEN, "--limit", "connections=300", before=lower) as server:
        words = f"{lower}; exec {' '.join(COMMAND)} bench {server.uri} -c 200 -n 400"
        ran = subprocess.run(["sh", "-c", words], capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, json.loads(ran.stdout)["connections_open"]) == (0, 200), ran.stderr


def test_a_server_without_open_files_serves_those_that_it_has() -> None:
    """The others wait in the system's queue, until the client gives them up; the first requests need no files."""
    pytest.importorskip("resource")
    with Server("--demo", before="ulimit -n 40") as server:
        ran = afflux(["bench", server.uri, "-c", "100", "-n", "200", "--connect-timeout", "5s"])
    found = json.loads(ran.stdout)
    assert (ran.returncode, found["succeeded"], found["failed"]) == (1, 200, 0)
    assert 0 < found["connections_open"] < 40
    assert found["connections_open"] + found["connections_refused"] == 100
    assert [refusal["example"] for refusal in found["refusals"]] == ["no answer within 5 s"]


def test_progress_shows_while_no_server_answers() -> None:
    """A socket listens, and no program reads from it."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        uri = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        words = ["bench", uri, "-n", "1", "--timeout", "100ms", "--connect-timeout", "1500ms"]
        ran = afflux(words)
        quiet = here(*words, "-q")
    assert re.match(r"afflux: connecting  [12] s  0%  0 open  0 refused\n", ran.stderr)
    assert "connecting" not in quiet.errors


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets connections wait for a place in a full queue")
def test_a_connection_that_is_not_made_in_time_is_given_up() -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        uri = f"tcp://127.0.0.1:{full.getsockname()[1]}"
        waiting = [socket.socket() for _ in range(4)]
        for sock in waiting:
            sock.setblocking(False)
            sock.connect_ex(full.getsockname())
        ran = here("request", uri, "--connect-timeout", "200ms")
        loaded = here("bench", uri, "-q", "-c", "3", "--connect-timeout", "200ms")
        for sock in waiting:
            sock.close()
    assert (ran.code, ran.errors) == (1, f"afflux: {uri} did not answer within 0.2 s\n")
    assert (loaded.code, "did not answer within 0.2 s" in loaded.errors) == (1, True), loaded.errors
    refused = here("request", "tcp://127.0.0.1:1", "--connect-timeout", "0")
    assert (refused.code, refused.errors) == (2, "afflux: --connect-timeout must be longer than 0\n")
