"""afflux relay as a process while its remote is away: killed, or silent behind an open link."""

from __future__ import annotations

import asyncio
import os
import pty
import re
import select
import signal
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

import afflux
from afflux.protocols.rsocket.gap import Gap
from tests.cli.forking import Process
from tests.cli.running import PATIENCE, PIPE, Server
from tests.cli.test_relay import Relay, state_of
from tests.gateway.remotes import number, read
from tests.spark.conftest import Link, asked, running
from tests.spark.serving import item

SIZE = 32
DATA = asked(count=2_000, size=SIZE, open=True, every_ms=1)
"An item each millisecond after the first 2,000, without end."
AGAIN = r"connecting again in (\d+\.\d) s"


class Watched(Relay):
    """A relay whose standard error is a terminal: it shows its log, and a line of figures every second."""

    def _start(self) -> Process:
        self._shown = ""
        self._near, far = pty.openpty()
        try:
            return Process(self._words, stdout=PIPE, stderr=far, text=True)
        finally:
            os.close(far)

    def __enter__(self) -> Watched:
        super().__enter__()
        return self

    def until(self, pattern: str, times: int = 1) -> list[str]:
        """Read until a pattern was shown several times since the last call; return what it has found."""
        while len(found := list(re.finditer(pattern, self._shown))) < times:
            assert select.select([self._near], [], [], PATIENCE)[0], self._shown
            self._shown += os.read(self._near, 0x1000).decode()
        self._shown = self._shown[found[times - 1].end() :]
        return [one[one.re.groups and 1] for one in found[:times]]

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        os.close(self._near)


def check_items(relay: Relay, before: int) -> None:
    """All items are there once and in their order, up to some after ``before``."""
    count = before + 1_000
    assert head(relay, count - 1) >= count
    assert asyncio.run(read_items(relay.uri, count)) == [item(None, n, SIZE) for n in range(count)]


async def read_items(uri: str, count: int) -> list[bytes | Gap]:
    async with afflux.connect(uri) as peer:
        return await read(peer, count)


def serving(uri: str) -> int:
    """The process that listens at an address (Linux)."""
    port = f":{int(uri.rpartition(':')[2]):04X}"
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    (socket,) = [f"socket:[{row[9]}]" for row in rows if row[1].endswith(port) and row[3] == "0A"]
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if any(os.readlink(path) == socket for path in (process / "fd").iterdir()):
                return int(process.name)
    raise AssertionError(f"nothing listens at {uri}")


def head(relay: Relay, after: int) -> int:
    return int(asyncio.run(state_of(relay.uri, after=after)).head)


def check_waits(waits: list[str]) -> None:
    """The first wait is 0.1 s, and each is twice the one before, less up to a half of it at random."""
    for attempt, wait in enumerate(map(float, waits)):
        most = min(10.0, 0.1 * 2**attempt)
        assert most / 2 - 0.05 <= wait <= most + 0.05, waits


def test_a_remote_that_was_killed_is_waited_for_and_continued(tmp_path: Path) -> None:
    with ExitStack() as stack:
        with running(tmp_path / "remote") as at:
            relay = stack.enter_context(Watched(at, tmp_path / "relay", "-d", DATA))
            head(relay, 1_000)
            relay.until(" 1/1 connected")  # the first line of figures comes after a second
        check_waits(relay.until(AGAIN, 5))
        relay.until(" 0 gaps, 0/1 connected")
        before = head(relay, 0)  # it serves meanwhile
        with running(tmp_path / "remote", at=at):
            check_items(relay, before)
            (offset,) = relay.until(r"connected; items arrive from epoch \d+, offset (\d+)")
    assert int(offset) == before


@pytest.mark.parametrize("silent", ["network", "process"])
def test_a_remote_that_falls_silent_is_noticed_and_continued(tmp_path: Path, silent: str) -> None:
    """Its connections stay open, further ones are accepted, and no byte arrives."""
    with ExitStack() as stack:
        at = stack.enter_context(running(tmp_path / "remote"))
        link = Link(at)
        stack.callback(link.close)
        terms = "?keepalive=0.1&lifetime=0.4"
        relay = stack.enter_context(Watched(link.uri + terms, tmp_path / "relay", "-d", DATA))
        head(relay, 1_000)
        if silent == "network":
            link.do(link.proxy.hold)
        else:
            pid = serving(at)
            os.kill(pid, signal.SIGSTOP)
            stack.callback(os.kill, pid, signal.SIGCONT)
        check_waits(relay.until(rf"keepalive-timeout: .*; {AGAIN}", 3))
        relay.until(" 0 gaps, 0/1 connected")
        before = head(relay, 0)
        if silent == "network":
            link.do(link.proxy.release)
        else:
            os.kill(pid, signal.SIGCONT)
        check_items(relay, before)
        (offset,) = relay.until(r"connected; items arrive from epoch \d+, offset (\d+)")
    assert int(offset) == before


def test_a_live_remote_that_was_away_leaves_one_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "live.py").write_text(
        "import asyncio, pathlib\nclass Live:\n    async def stream(self, payload):\n"
        "        first = int(pathlib.Path('first').read_text())\n"
        "        yield [b'%06d' % n for n in range(first, first + 500)]\n        await asyncio.Event().wait()\n"
    )
    (tmp_path / "first").write_text("0")
    with Server("--handler", "live:Live") as remote:
        uri = remote.uri
        with Watched(uri, tmp_path / "relay") as relay:
            assert head(relay, 499) == 500
            remote.process.kill()
            check_waits(relay.until(AGAIN, 5))
            assert head(relay, 0) == 500  # what is stored can be read meanwhile
            (tmp_path / "first").write_text("2000")
            with Server("--handler", "live:Live", uri=uri):
                assert head(relay, 1_000) == 1_001
                found = asyncio.run(read_items(relay.uri, 1_001))
    gap = found[500]
    assert isinstance(gap, Gap) and gap.cause.startswith("the connection was lost")
    assert found == [*map(number, range(500)), gap, *map(number, range(2_000, 2_500))]
