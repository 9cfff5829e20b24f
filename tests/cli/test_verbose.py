"""``-v`` and ``-vv`` of ``request`` and ``serve``: what real processes write to stderr."""

from __future__ import annotations

import logging
import re
from pathlib import Path

from tests.cli.running import Server, afflux, here

TIME = re.compile(r"\d\d:\d\d:\d\d\.\d\d\d (?:\[\d+\] )?")
SECRET = "bearer-of-news"


def texts(errors: str) -> list[str]:
    """The lines without their times; each has one. Numbers of ports and seconds are N."""
    lines = errors.splitlines()
    assert all(TIME.match(line) for line in lines), errors
    return [re.sub(r"after [\d.]+ s", "after N s", re.sub(r":\d{4,5}\b", ":N", TIME.sub("", line))) for line in lines]


def test_request_v_tells_the_life_of_its_connection() -> None:
    with Server("--demo") as server:
        ran = afflux(f"request {server.uri} -d hello -v")
    assert (ran.returncode, ran.stdout) == (0, '{"data":"hello"}\n')
    assert texts(ran.stderr) == [
        "c1 connecting to tcp://127.0.0.1:N",
        "c1 connected from 127.0.0.1:N to 127.0.0.1:N, rsocket",
        "c1 set up",
        "c1 closed after N s; 119 B sent, 14 B received: this side closed the connection",
    ]


def test_both_sides_log_frames_and_no_secrets(tmp_path: Path) -> None:
    auth = tmp_path / "auth"
    auth.write_text(f"bearer {SECRET}")
    auth.chmod(0o600)
    with Server("--demo", "-vv", "--resume", "--auth-file", str(auth)) as server:
        ran = afflux(f"request {server.uri} -r echo -d hello -vv --resume --auth-file {auth}")
        _, out, errors = server.stop()
    assert ran.returncode == 0 and out == ""
    for lines in (texts(ran.stderr), texts(errors)):
        frames = [line.split(" ", 2)[2].split(" metadata_len")[0] for line in lines if line[3] in "<>"]
        assert frames[:3] == [
            "rsocket stream=0 SETUP [MR]",
            "rsocket stream=1 REQUEST_RESPONSE [M]",
            "rsocket stream=1 PAYLOAD [MCN]",
        ]
        assert any('metadata="route echo" data=hello' in line for line in lines)
    for text in (ran.stderr, errors):
        assert SECRET not in text and SECRET.encode().hex() not in text
        assert 'token="(32 bytes)"' in text


def test_workers_log_with_their_number() -> None:
    with Server("--demo", "-v", "--workers", "2") as server:
        ran = afflux(f"request {server.uri} -d hello")
        _, _, errors = server.stop()
    assert (ran.returncode, ran.stderr) == (0, "")
    assert re.search(r"^\d\d:\d\d:\d\d\.\d\d\d \[\d+\] c1 accepted 127", errors, re.MULTILINE)


def test_without_v_stderr_is_empty_and_after_it_logging_is_as_before() -> None:
    logger = logging.getLogger("afflux")
    before = (logger.level, logger.propagate, list(logger.handlers))
    with Server("--demo") as server:
        assert here("request", server.uri, "-d", "x").errors == ""
        assert "connecting to" in here("request", server.uri, "-d", "x", "-v").errors
        assert here("request", server.uri, "-d", "x").errors == ""
    assert (logger.level, logger.propagate, list(logger.handlers)) == before


def test_a_handlers_error_is_on_stderr_with_its_request() -> None:
    with Server("--handler", "tests.cli.failing:Failing") as server:
        ran = afflux(f"request {server.uri} -r a.b -d x")
        _, _, errors = server.stop()
    assert ran.returncode == 64
    assert re.match(
        r'afflux: a handler raised: request of route "a\.b", stream 1, peer 127\.0\.0\.1:\d+\nTraceback', errors
    )
