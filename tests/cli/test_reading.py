"""``request --cursor`` reads what ``serve --journal`` stores; ``--retry`` continues; ``--quiet`` is quiet."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from afflux.cli.reading import Reading
from afflux.cli.retrying import is_lost, is_safe
from afflux.core.errors import (
    ApplicationError,
    Canceled,
    ConnectFailed,
    ConnectionClosed,
    Error,
    Invalid,
    LeaseExpired,
    Rejected,
    SetupRefused,
    Unsupported,
)
from afflux.core.payload import Payload
from afflux.protocols.rsocket.cursor import CURSOR_MIME, Position, Read, with_position
from tests.cli.forking import Process
from tests.cli.running import Server, here

PIPE = subprocess.PIPE
HOW = ": omit --cursor, or start the server with afflux serve --journal DIR"
TEN = ("-d", '{"count": 10, "size": 4}')


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with Server("--demo", "--journal", str(tmp_path_factory.mktemp("journals"))) as server:
        yield server.uri


def test_a_part_of_a_stored_stream(uri: str) -> None:
    ran = here("request", uri, *TEN, "--cursor", "3:4", "-o", "raw", "--end", "newline")
    assert (ran.code, ran.out) == (0, "3...\n4...\n5...\n6...\n")
    assert ran.errors == "afflux: read offsets 3 to 6; continue with --cursor 7\n"


def test_the_rest_of_a_stored_stream_without_notes(uri: str) -> None:
    assert here("request", uri, *TEN, "--cursor", "8", "-o", "ndjson", "--quiet") == (
        0,
        '{"data":"8..."}\n{"data":"9..."}\n',
        "",
    )


def test_take_ends_a_read(uri: str) -> None:
    ran = here("request", uri, *TEN, "--cursor", "0", "--take", "2", "-q", "-o", "raw")
    assert (ran.code, ran.out, ran.errors) == (0, "0...1...", "")


def test_the_end_of_a_stored_stream_is_reported(uri: str) -> None:
    here("request", uri, *TEN, "--cursor", "0", "--quiet")
    ran = here("request", uri, *TEN, "--cursor", "10")
    assert ran == (0, "", "afflux: no items from offset 10 on: the stream has ended\n")
    assert here("request", uri, *TEN, "--cursor", "10", "-q") == (0, "", "")


def test_an_offset_that_is_not_stored(uri: str) -> None:
    ran = here("request", uri, *TEN, "--cursor", "30")
    assert (ran.code, ran.out) == (79, "")
    assert ran.errors == "afflux: offset 30 is above the head 10 (0xA03)\n"


def test_a_server_that_stores_nothing() -> None:
    with Server("--demo") as server:
        ran = here("request", server.uri, *TEN, "--cursor", "0")
        without_data = here("request", server.uri, "--cursor", "0")
    none = "this server keeps no journal of the stream"
    assert ran == (67, "", f"afflux: the answer has no offsets: {none}{HOW}\n")
    assert (without_data.code, without_data.out) == (67, "")
    assert without_data.errors.startswith(f"afflux: {none}{HOW}; it answers ")


def test_an_error_of_a_handler_behind_a_journal(uri: str) -> None:
    ran = here("request", uri, "--cursor", "0")
    assert (ran.code, ran.out) == (67, "")
    assert "journal" not in ran.errors


@pytest.mark.parametrize("text", ["", "x", "-1", "1:", "1:0", ":5", "1:2:3", "1" * 19])
def test_an_invalid_cursor(text: str) -> None:
    ran = here("request", "tcp://127.0.0.1:1", f"--cursor={text}")
    assert (ran.code, ran.errors) == (
        2,
        f"afflux: invalid --cursor {text!r}: expected FROM or FROM:COUNT, such as 0 or 1000:50\n",
    )


def test_a_read_continues_where_it_was() -> None:
    reading = Reading.parse("5:3")
    assert reading.cursor() == Read(first=5, limit=3)
    first = reading.own(Payload(b"a", with_position(Position(epoch=7, offset=5, time_us=1), b"own")))
    assert first == Payload(b"a", b"own")
    assert reading.own(Payload(b"b")) == Payload(b"b")
    assert reading.cursor() == Read(epoch=7, first=7, limit=1)
    assert not reading.complete
    reading.own(Payload(b"c"))
    assert reading.complete
    assert reading.summary() == "read offsets 5 to 7; continue with --cursor 8"


def test_a_read_without_items() -> None:
    assert Reading.parse("500:3").summary() == "no items from offset 500 on: the stream has ended"


def test_a_position_that_cannot_be_read() -> None:
    name = CURSOR_MIME.encode()
    with pytest.raises(Invalid, match="position of an item cannot be read"):
        Reading.parse("0").own(Payload(b"a", bytes([len(name) - 1]) + name))


def test_a_server_that_starts_late(tmp_path: Path) -> None:
    uri = f"unix://{tmp_path}/late.sock"
    with Process(["request", uri, "-d", "x", "-o", "raw", "--retry", "1000:10ms"], stdout=PIPE, stderr=PIPE) as asking:
        assert asking.stderr is not None
        line = asking.stderr.readline()
        assert line.startswith(b"afflux: cannot connect to unix://")
        assert re.search(rb"; trying again in ([5-9](\.\d+)? ms|0\.01 s)$", line.rstrip()), line
        with Server("--demo", uri=uri):
            out, _ = asking.communicate(timeout=60)
    assert (asking.returncode, out) == (0, b"x")


def test_the_last_attempt_is_reported() -> None:
    ran = here("request", "tcp://127.0.0.1:1", "-d", "x", "--retry", "2:1ms", "--quiet")
    assert ran.code == 1
    assert ran.errors.endswith("; after 3 attempts\n")
    assert ran.errors.count("\n") == 1


def test_a_stream_that_has_begun_is_not_repeated(tmp_path: Path) -> None:
    uri = f"unix://{tmp_path}/lost.sock"
    with Server("--demo", uri=uri) as server:
        words = ["request", uri, "--stream", "-d", '{"count": 1000000, "delay_ms": 1}', "-o", "hex", "--retry", "5:1ms"]
        with Process(words, stdout=PIPE, stderr=PIPE) as asking:
            assert asking.stdout is not None
            assert asking.stdout.readline() == b"30\n"
            server.process.kill()
            _, errors = asking.communicate(timeout=60)
    assert asking.returncode == 1
    assert b"trying again" not in errors


def test_what_may_be_repeated() -> None:
    error: Error
    never_sent = ConnectionClosed("lost")
    never_sent.may_have_been_processed = False
    for error in (Rejected("busy"), LeaseExpired("none"), ConnectFailed("refused"), never_sent):
        assert (is_safe(error), is_lost(error)) == (True, True)
    for error in (ConnectionClosed("lost"), Canceled("stopped")):
        assert (is_safe(error), is_lost(error)) == (False, True)
    for error in (SetupRefused("who?"), ApplicationError(message="no"), Invalid("what?"), Unsupported("not here")):
        assert (is_safe(error), is_lost(error)) == (False, False)


def test_a_failure_of_the_application_is_not_repeated(uri: str) -> None:
    ran = here("request", uri, "-r", "fail", "-d", "no", "--retry", "5")
    assert (ran.code, ran.errors) == (64, "afflux: no (0x201)\n")


def test_a_read_continues_on_another_server(tmp_path: Path) -> None:
    uri = f"unix://{tmp_path}/journal.sock"
    serve = ("--demo", "--journal", str(tmp_path / "journals"))
    asked = ["-d", '{"count": 200, "delay_ms": 5}', "--cursor", "0:200", "--retry", "1000:10ms"]
    with Process(["request", uri, *asked, "-o", "raw", "--end", "newline"], stdout=PIPE, stderr=PIPE) as reading:
        assert reading.stdout is not None
        with Server(*serve, uri=uri) as server:
            first = [reading.stdout.readline() for _ in range(3)]
            server.process.kill()
            server.process.wait()
        with Server(*serve, uri=uri):
            rest, errors = reading.communicate(timeout=60)
    assert (reading.returncode, b"".join(first) + rest) == (0, b"".join(b"%d\n" % number for number in range(200)))
    assert b"trying again" in errors
    assert errors.endswith(b"afflux: read offsets 0 to 199; continue with --cursor 200\n")


@pytest.mark.parametrize("text", ["", "x", "0", "1:", "1001", "-1"])
def test_an_invalid_retry(text: str) -> None:
    ran = here("request", "tcp://127.0.0.1:1", f"--retry={text}")
    assert ran.code == 2
    assert ran.errors.startswith(f"afflux: invalid --retry {text!r}: expected N or N:TIME")
