"""``afflux serve --workers``: real processes that share an address, their ends, and what can not be shared."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

import afflux
from tests.cli.running import Server
from tests.cli.running import afflux as run
from tests.transports.certificates import Certificates

pytestmark = pytest.mark.skipif(not hasattr(socket, "SO_REUSEPORT"), reason="this system has no SO_REUSEPORT")

HANDLER = """
import asyncio, os

class Who:
    async def request(self, payload):
        return str(os.getpid())

    async def stream(self, payload):
        for number in range(int(payload.data)):
            yield str(number)
            await asyncio.sleep(0.01)
"""
CONNECTIONS = 32
"The chance that one of two workers gets them all is one in two thousand million."


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(autouse=True)
def in_a_folder_with_handlers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "who.py").write_text(HANDLER)
    (tmp_path / "dies.py").write_text("import os\nos._exit(7)\n")
    monkeypatch.chdir(tmp_path)


def workers(*options: str, uri: str = "tcp://127.0.0.1:0", count: int = 2) -> Server:
    return Server("--handler", "who:Who", "--workers", str(count), *options, uri=uri)


async def pid_of(uri: str) -> int:
    """Who serves a new connection."""
    async with afflux.connect(uri) as peer:
        return int((await peer.request()).text)


async def pids_of(server: Server) -> set[int]:
    """Who serves."""
    return {await pid_of(server.uri) for _ in range(CONNECTIONS)}


async def numbers(stream: afflux.ItemStream) -> list[int]:
    return [int(item.text) async for item in stream]


def gone(server: Server) -> tuple[int, str, str]:
    """Wait until the parent has ended, and every worker: they have its stdout. What it returned and said."""
    out, errors = server.process.communicate(timeout=60)
    return server.process.returncode, out, errors


def heard(server: Server) -> str:
    """The next line on stderr."""
    assert server.process.stderr is not None
    return server.process.stderr.readline()


# -- sharing --------------------------------------------------------------------------------------------------


async def test_connections_are_spread_over_processes() -> None:
    with workers() as server:
        pids = await pids_of(server)
        assert len(pids) == 2
        assert server.process.pid not in pids
        assert server.stop() == (0, "", "")  # "ready" came once


async def test_one_worker_is_the_process_itself() -> None:
    with workers(count=1) as server:
        assert await pids_of(server) == {server.process.pid}


async def test_websockets_are_shared_too() -> None:
    with workers(uri="ws://127.0.0.1:0/here") as server:
        assert server.uri.endswith("/here")
        assert len(await pids_of(server)) == 2


async def test_tls_is_shared_and_the_address_omits_the_certificate(certificates: Certificates) -> None:
    with workers(uri=f"tls://127.0.0.1:0?cert={certificates.server}") as server:
        assert "?" not in server.uri
        pids = {await pid_of(f"{server.uri}?ca={certificates.ca}") for _ in range(CONNECTIONS)}
        assert len(pids) == 2


async def test_all_addresses_of_a_host_are_shared() -> None:
    with workers(uri="tcp://localhost:0") as server:
        port = server.uri.rpartition(":")[2]
        for host in {str(found[4][0]) for found in socket.getaddrinfo("localhost", int(port), type=socket.SOCK_STREAM)}:
            assert await pid_of(f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}")


# -- ends -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
async def test_a_signal_lets_every_stream_end(number: signal.Signals, code: int) -> None:
    with workers() as server:
        peers = [await afflux.connect(server.uri) for _ in range(8)]
        streams = [peer.stream(b"20", credit=2) for peer in peers]
        assert [(await anext(stream)).text for stream in streams] == ["0"] * 8
        server.process.send_signal(number)
        rest = await asyncio.gather(*map(numbers, streams))
        assert rest == [list(range(1, 20))] * 8
        for peer in peers:
            await peer.close()
        assert gone(server) == (code, "", "")


async def test_a_second_signal_ends_it_at_once() -> None:
    with workers() as server:
        async with afflux.connect(server.uri) as peer:
            stream = peer.stream(b"1000000000", credit=1)
            await anext(stream)
            server.process.send_signal(signal.SIGTERM)
            while not peer._driver.draining:
                await anext(stream)
            server.process.send_signal(signal.SIGTERM)
            with pytest.raises(afflux.ConnectionClosed, match="the peer closed the connection"):  # without a word
                async for _ in stream:
                    pass
        assert gone(server) == (-signal.SIGTERM, "", "")


async def test_workers_do_not_outlive_their_parent() -> None:
    with workers() as server:
        async with afflux.connect(server.uri) as peer:
            items = peer.stream(b"20", credit=2)
            assert (await anext(items)).text == "0"
            server.process.kill()
            assert await numbers(items) == list(range(1, 20))  # they close in order, all the same
        assert gone(server) == (-signal.SIGKILL, "", "")


@pytest.mark.parametrize(
    ("number", "how"), [(signal.SIGKILL, "was ended by SIGKILL"), (signal.SIGTERM, "ended with exit code 0")]
)
async def test_a_worker_that_ends_is_replaced(number: signal.Signals, how: str) -> None:
    with workers() as server:
        before = await pids_of(server)
        victim = min(before)
        os.kill(victim, number)
        assert heard(server) == f"afflux: worker {victim} {how}; restarting in 0.1 s\n"
        while not (after := await pids_of(server)) - before:
            pass  # the new one does not listen yet
        assert len(after) == 2
        assert victim not in after
        assert server.stop() == (0, "", "")


@pytest.mark.slow
def test_workers_that_never_listen_are_given_up() -> None:
    ran = run("serve tcp://127.0.0.1:0 --handler dies:Anything --workers 3")  # returns when nobody has its stdout
    assert (ran.returncode, ran.stdout) == (1, "")
    lines = ran.stderr.splitlines()
    waits = [line.partition("; ")[2] for line in lines]
    assert waits == [
        *(f"restarting in {wait} s" for wait in (0.1, 0.2, 0.4, 0.8)),
        "5 in a row ended before they listened; stopping",
    ]
    assert all("ended with exit code 7" in line for line in lines)


async def test_a_place_that_is_given_up_takes_the_others_with_it(tmp_path: Path) -> None:
    """A later worker finds its handler broken: those that serve still end in order."""
    with workers() as server:
        (tmp_path / "who.py").write_text("import os\nos._exit(7)\n")
        pid = await pid_of(server.uri)
        os.kill(pid, signal.SIGKILL)
        code, out, errors = gone(server)
        assert (code, out) == (1, "")
        assert errors.count("\n") == 6
        assert "5 in a row ended before they listened; stopping" in errors


# -- what is refused --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (
            "tcp://127.0.0.1:0 --demo --workers 2 --resume",
            "--workers and --resume exclude each other: a session belongs",
        ),
        ("tcp://127.0.0.1:0 --demo --workers 2 --journal x", "--workers and --journal exclude each other: a journal"),
        ("tcp://127.0.0.1:0 --demo --workers 2 --resume --store x", "--workers and --resume exclude each other"),
        ("tcp://127.0.0.1:0 --demo --workers 2 --store x", "--store requires --resume"),
        (
            "unix:///no/x --demo --workers 2",
            "--workers requires a port, which unix:// does not have: use tcp, tls, ws or wss",
        ),
        ("mem://x --demo --workers 2", "mem://x connects ends within one program"),
        ("tcp://127.0.0.1:0 --workers 2", "one of --demo, --handler"),
        ("tcp://127.0.0.1:0 --demo --workers 2 --lease ten", "expected N/TIME"),
        ("tcp://127.0.0.1:0 --file /no/such/file --workers 2", "file '/no/such/file' not found"),
        ("tcp:/127.0.0.1 --demo --workers 2", "an address looks like"),
        ("carrier+tcp://127.0.0.1:0 --demo --workers 2", 'unknown protocol "carrier"'),
        ("tcp://127.0.0.1:0 --handler no_such_module_here:x --workers 2", "no_such_module_here"),
    ],
)
def test_an_impossible_option_is_reported_in_a_line(command: str, told: str) -> None:
    ran = run(f"serve {command}")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert told in ran.stderr
    assert ran.stderr.count("\n") == 1


@pytest.mark.parametrize("count", ["0", "-1", "1025", "many"])
def test_a_number_of_workers_that_can_not_be(count: str) -> None:
    ran = run(["serve", "tcp://127.0.0.1:0", "--demo", f"--workers={count}"])
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "--workers" in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize("count", [1, 2])
def test_a_port_in_use_is_a_failure_even_if_its_user_would_share_it(count: int) -> None:
    with workers(count=count) as server:
        ran = run(f"serve {server.uri} --demo --workers 2")
        assert (ran.returncode, ran.stdout) == (1, "")
        assert ran.stderr == f"afflux: cannot listen on {server.uri}: the port is in use\n"


def test_where_ports_cannot_be_shared_it_is_reported() -> None:
    program = (
        "import sys, socket; del socket.SO_REUSEPORT; from afflux.cli import main;"
        "sys.exit(main('serve tcp://127.0.0.1:0 --demo --workers 2'.split()))"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == "afflux: this system has no SO_REUSEPORT: only one process can listen at a port\n"


async def test_three_hundred_connections_from_one_address() -> None:
    """However the system spreads them, each worker takes all that it gets."""
    with workers() as server:
        async with AsyncExitStack() as stack:
            peers = [await stack.enter_async_context(afflux.connect(server.uri)) for _ in range(300)]
            answers = await asyncio.gather(*(peer.request() for peer in peers))
    assert len({answer.text for answer in answers}) == 2
