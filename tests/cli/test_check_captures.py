"""``afflux check --against`` with captures: each connection is checked, and its first wrong frame is named.
Rule numbers are Limit-Stream's."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lark", reason='the language of session types needs the extra "sessions"')

from afflux import sessions, sync
from afflux.cli import checking
from afflux.protocols.limit import frames as limit
from afflux.protocols.rsocket import frames as rsocket
from afflux.protocols.rsocket.metadata import compose
from tests.capture.writing import START, Packet, Talk, pcap
from tests.cli.running import Server, here
from tests.cli.test_decode import prefixed

SUM = "struct Done {} channel sum = recv int -> offer | sum | recv Done -> send int -> end"
ROUTE = compose(route="sum")


def ask(*steps: bytes, stream: int = 1, route: bytes = ROUTE) -> bytes:
    request = rsocket.RequestChannel(stream=stream, initial_n=8, metadata=route, data=b"\x01")
    items = [rsocket.PayloadFrame(stream=stream, next=True, data=step) for step in steps]
    return prefixed(request.encode(), *(item.encode() for item in items))


SETUP = prefixed(rsocket.Setup().encode())
GOOD = SETUP + ask(b"\xd4\x00\x01", b"\x90")
BAD = SETUP + ask(b"\x02", b"\xd4\x00\x01", b"\xa4done")
ANSWER = prefixed(rsocket.PayloadFrame(stream=1, next=True, complete=True, data=b"\x03").encode())
OPENED = limit.Setup(metadata=b"sum").encode(prefixed=True) + limit.PayloadFrame(stream=1, data=b"\x01").encode(
    prefixed=True
)


@pytest.fixture
def types(tmp_path: Path) -> Path:
    path = tmp_path / "sum.lstr"
    path.write_text(SUM, encoding="utf-8")
    return path


def capture(tmp_path: Path, *sides: tuple[bytes, bytes]) -> Path:
    packets: list[Packet] = []
    for number, (ours, theirs) in enumerate(sides):
        packets += Talk(("10.0.0.1", 4_000 + number), time=START + number * 10**9).whole(ours, theirs)
    path = tmp_path / "capture.pcap"
    path.write_bytes(pcap(packets))
    return path


def checked(types: Path, path: Path, *more: str, code: int = 0) -> tuple[list[dict[str, Any]], str]:
    ran = here("check", str(types), "--against", str(path), *more)
    assert ran.code == code, ran.errors
    return [json.loads(line) for line in ran.out.splitlines()], ran.errors


def test_packets_that_go_back_in_time_decide_nothing(types: Path, tmp_path: Path) -> None:
    """The server's packets after all of the client's, as two captures that were appended."""
    sent = Talk().whole(GOOD, ANSWER)
    client = [one for one in sent if one.data[34:36] == (40_000).to_bytes(2, "big")]
    path = tmp_path / "appended.pcap"
    path.write_bytes(pcap([*client, *(one for one in sent if one not in client)]))
    (row,), errors = checked(types, path, code=6)
    assert row["undecided"] == "its packets are not in the order of time"
    assert "reordercap IN OUT" in errors
    path.write_bytes(pcap(sent))
    assert checked(types, path)[0]


def test_what_a_capture_lacks_decides_nothing(types: Path, tmp_path: Path) -> None:
    """A break in another connection decides all the same."""
    lossy = Talk().whole(GOOD, ANSWER)
    del lossy[3]
    path = tmp_path / "lossy.pcap"
    path.write_bytes(pcap(lossy))
    results, errors = checked(types, path, code=6)
    assert results == [] and "nothing was checked" in errors
    parts = Talk().whole(GOOD, ANSWER, 20)
    for number in range(4, len(parts) - 2):
        if len(parts[number].data) > 54:
            path.write_bytes(pcap([*parts[:number], *parts[number + 1 :]]))
            results, errors = checked(types, path, code=6)
            assert all("undecided" in one for one in results) and "breaks" not in errors
    broken = Talk(("10.0.0.1", 4_001), time=START + 10**9).whole(BAD, b"")
    path.write_bytes(pcap([*parts[:5], *parts[6:], *broken]))
    assert len([one for one in checked(types, path, code=1)[0] if one["error"]]) == 1


@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.1\r\n\r\n"])
def test_a_capture_without_sessions_is_undecided(said: bytes, types: Path, tmp_path: Path) -> None:
    results, errors = checked(types, capture(tmp_path, (said, b"")), code=6)
    assert results == [] and "nothing was checked" in errors


def test_every_connection_is_checked(types: Path, tmp_path: Path) -> None:
    path = capture(tmp_path, (GOOD, ANSWER), (BAD, b""), (OPENED, b""), (b"GET / HTTP/1.1\r\n\r\n", b""), (BAD, b""))
    results, errors = checked(types, path, code=1)
    good, bad, short, again = results
    assert (good["protocol"], good["error"], good["sessions"], good["open"]) == ("rsocket", None, 1, False)
    assert (short["protocol"], short["sessions"], short["open"]) == ("limit", 1, True)
    assert bad["error"]["reason"] == "expected Done of the client (state 2), not a string of the client"
    assert (bad["dir"], bad["type"], bad["stream"], bad["offset"]) == (">", "PAYLOAD", 1, len(BAD) - 11)
    assert len({good["conn"], bad["conn"], short["conn"], again["conn"]}) == 4 and bad["ts"] < again["ts"]
    named = [line for line in errors.splitlines() if "breaks sum" in line]
    assert named[0] == (
        f"afflux: frame PAYLOAD > at offset {len(BAD) - 11}, stream 1, connection {bad['conn']}, {bad['ts']} "
        "breaks sum: expected Done of the client (state 2), not a string of the client"
    )
    assert len(named) == 2
    text = here("check", str(types), "--against", str(path), "-o", "text")
    assert text.code == 1 and len(text.out.splitlines()) == 2
    assert text.out.startswith(f"{good['conn']}: {good['frames']} frames follow the types; sessions: 1, the last is ")


def test_a_terminal_shows_whole_words(types: Path, tmp_path: Path) -> None:
    path = capture(tmp_path, (BAD, b""))
    command = [sys.executable, "-m", "afflux", "check", str(types), "--against", str(path)]
    main, side = pty.openpty()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=side, env=os.environ | {"COLUMNS": "80"}) as process:
        os.close(side)
        shown = b""
        with suppress(OSError):  # the other side has closed it
            while data := os.read(main, 65_536):
                shown += data
        os.close(main)
        assert process.wait() == 1
    lines = shown.decode().splitlines()
    assert max(map(len, lines)) <= 80
    errors = checked(types, path, code=1)[1]
    assert " ".join(line.strip() for line in lines) == " ".join(errors.splitlines())


def test_the_route_of_a_request_names_the_channel(types: Path, tmp_path: Path) -> None:
    """Requests of other routes are no sessions, unless --channel says so."""
    other = ask(b"\xa4done", stream=3, route=compose(route="other"))
    path = capture(tmp_path, (GOOD + other, ANSWER))
    assert [one["error"] for one in checked(types, path)[0]] == [None]
    assert checked(types, path, "--channel", "sum", code=1)[0][0]["stream"] == 3


def test_a_session_that_was_recorded(types: Path, tmp_path: Path) -> None:
    """By our own proxy, on both protocols."""
    session = sessions.load(types)["sum"]
    for protocol in ("limit+tcp", "tcp"):
        path = tmp_path / "recorded.pcapng"
        with Server("--demo", uri=f"{protocol}://127.0.0.1:0") as server:
            options = ("--to", server.uri, "-w", str(path))
            with Server(*options, uri=f"{protocol}://127.0.0.1:0", command=("capture", "--listen")) as proxy:
                with sync.connect(proxy.uri) as peer, peer.open(session) as chan:
                    _, chan = (None, chan.send(4).choose(2).send(()))
                    total, chan = chan.recv()
                    chan.end()
                proxy.stop(signal.SIGTERM)
        results, _ = checked(types, path)
        assert total == 4 and [(one["sessions"], one["open"], one["error"]) for one in results] == [(1, False, None)]


def test_a_capture_without_sessions_and_other_mistakes(
    types: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = capture(tmp_path, (b"GET / HTTP/1.1\r\n\r\n", b""))
    assert "no frames of sessions" in checked(types, path, code=6)[1]
    assert "-d and --keylog apply to captures" in checked(types, types, "-d", "7000=limit", code=2)[1]
    assert "expects PORT=NAME" in checked(types, path, "-d", "limit", code=2)[1]
    path.write_bytes(capture(tmp_path, (GOOD, b"")).read_bytes()[:-10])
    assert "truncated" in checked(types, path, code=1)[1] or "cut off" in checked(types, path, code=1)[1]
    monkeypatch.setattr(checking, "MOST_FRAMES", 1)
    assert "more than 1 frames" in checked(types, path, code=1)[1]


def test_a_protocol_given_by_the_port(types: Path, tmp_path: Path) -> None:
    late = limit.PayloadFrame(stream=1, data=b"\x01").encode(prefixed=True)
    path = capture(tmp_path, (late, b""))
    assert checked(types, path, "-d", "7000=limit", code=1)[0][0]["error"]["expected"] == "the opening of a session"


def test_a_hostile_text_is_escaped(types: Path, tmp_path: Path) -> None:
    """PC-24."""
    path = capture(tmp_path, (limit.Setup(metadata=b"sum\x1b[31m\n").encode(prefixed=True), b""))
    results, errors = checked(types, path, code=1)
    assert "\x1b" not in errors and r"\x1b[31m\n" in errors and len(results) == 1
