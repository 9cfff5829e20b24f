"""The page docs/add-a-protocol.md keeps its word: its protocol needs nothing but its own file and one entry."""

from __future__ import annotations

import ast
import asyncio
import importlib.util
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import afflux
import afflux.sync
from afflux.core import events
from afflux.core.limits import Limits
from afflux.core.terms import Terms
from afflux.protocols.registry import PROTOCOLS
from tests.pages import blocks_of

ROOT = Path(__file__).resolve().parent.parent
CODE = {block.title: block.text for block in blocks_of((ROOT / "docs" / "add-a-protocol.md").read_text("utf-8"))}


@pytest.fixture
def lines(tmp_path: Path) -> Iterator[ModuleType]:
    """The page's module, registered until the test is over."""
    path = tmp_path / "lines.py"
    path.write_text(CODE["lines.py"], encoding="utf-8")
    spec = importlib.util.spec_from_file_location("lines", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    assert "lines" not in PROTOCOLS
    spec.loader.exec_module(module)
    try:
        yield module
    finally:
        del PROTOCOLS["lines"]


class Echo:
    def __init__(self) -> None:
        self.made: list[int] = []

    async def request(self, payload: afflux.Payload) -> str:
        if payload.text == "fail":
            raise afflux.ApplicationError(message="as you\nwish")
        return payload.text.upper()

    async def stream(self, payload: afflux.Payload) -> AsyncIterator[str]:
        for number in range(int(payload.text)):
            self.made.append(number)
            yield f"item {number}"


@pytest.mark.parametrize("transport", ["tcp", "unix", "mem", "ws"])
async def test_it_speaks_over_every_transport(lines: ModuleType, transport: str, tmp_path: Path) -> None:
    if transport == "ws":
        pytest.importorskip("websockets", reason="WebSockets need the extra ws")
    places = {"unix": f"{tmp_path}/socket", "mem": "lines"}
    uri = f"lines+{transport}://{places.get(transport, '127.0.0.1:0')}"
    async with afflux.serve(uri, Echo()) as server, afflux.connect(server.uri) as peer:
        assert (await peer.request("hello")).text == "HELLO"
        assert [item.text async for item in peer.stream("5", credit=2)] == [f"item {n}" for n in range(5)]


async def test_it_holds_its_credit(lines: ModuleType) -> None:
    echo = Echo()
    async with afflux.serve("lines+tcp://127.0.0.1:0", echo) as server, afflux.connect(server.uri) as peer:
        async with peer.stream("100", credit=0) as stream:
            stream.request(2)
            assert [(await anext(stream)).text for _ in range(2)] == ["item 0", "item 1"]
            assert (await peer.request("still here")).text == "STILL HERE"
            assert len(echo.made) <= 3  # a handler is asked for one more, so that its end needs no credit
        assert (await peer.request("after the stop")).text == "AFTER THE STOP"


async def test_many_at_once_and_failures(lines: ModuleType) -> None:
    async with afflux.serve("lines+tcp://127.0.0.1:0", Echo()) as server, afflux.connect(server.uri) as peer:
        answers = await asyncio.gather(*(peer.request(f"number {n}") for n in range(500)))
        assert [answer.text for answer in answers] == [f"NUMBER {n}" for n in range(500)]
        with pytest.raises(afflux.ApplicationError, match="as you wish"):
            await peer.request("fail")
        with pytest.raises(afflux.Unsupported, match="request, stream"):
            await peer.fire("nothing")
        with pytest.raises(afflux.Unsupported, match="one line"):
            await peer.request("two\nlines")


async def test_a_program_that_blocks_speaks_it(lines: ModuleType) -> None:
    async with afflux.serve("lines+tcp://127.0.0.1:0", Echo()) as server:

        def ask() -> list[str]:
            with afflux.sync.connect(server.uri) as peer:
                return [peer.request("hello").text, *(item.text for item in peer.stream("3", credit=1))]

        assert await asyncio.to_thread(ask) == ["HELLO", "item 0", "item 1", "item 2"]


async def test_the_command_line_speaks_it(lines: ModuleType) -> None:
    pytest.importorskip("typer", reason="the commands need the extra cli")
    program = f"{CODE['lines.py']}\nimport sys\nfrom afflux import cli\nsys.exit(cli.main(sys.argv[1:]))\n"
    async with afflux.serve("lines+tcp://127.0.0.1:0", Echo()) as server:
        command = [
            sys.executable,
            "-W",
            "error",
            "-c",
            program,
            "request",
            server.uri,
            "-o",
            "raw",
            "--stream",
            "-d",
            "2",
        ]
        ran = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60, check=False)
    assert (ran.stdout, ran.stderr, ran.returncode) == ("item 0item 1", "", 0)


@pytest.mark.parametrize(
    "said", [b"nonsense\n", b"open 2 stream 1 even\n", b"open 1 stream -1 x\n", b"open 1 fire 1 x\n", b"x" * 0x20000]
)
async def test_garbage_ends_one_connection(lines: ModuleType, said: bytes) -> None:
    limits = Limits.server(frame_bytes=0x10000)
    async with (
        afflux.serve("lines+tcp://127.0.0.1:0", Echo(), limits=limits) as server,
        afflux.connect(server.uri) as peer,
    ):
        host, port = server.uri.rpartition("//")[2].split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(said)
        assert await reader.read() == b""
        writer.close()
        assert (await peer.request("others go on")).text == "OTHERS GO ON"


async def test_a_server_that_sends_what_was_not_asked_for_is_left(lines: ModuleType) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        async with afflux.connect(f"lines+tcp://127.0.0.1:{listener.getsockname()[1]}") as peer:
            link, _ = listener.accept()
            with link:
                stream = peer.stream("5", credit=0)
                stream.request(1)
                link.sendall(b"")
                waiting = asyncio.ensure_future(anext(stream))
                assert b"open 1" in await asyncio.to_thread(link.recv, 100)
                link.sendall(b"item 1 one\nitem 1 two\n")
                assert (await waiting).text == "one"
                with pytest.raises(afflux.RemoteProtocolError, match="credit of 0"):
                    await anext(stream)


SAID = b"open 1 stream 2 a  b\nopen 3 request 1 hello\nmore 1 5\nstop 1\nmore 1 5\nopen 5 stream 0 \nitem 5 not yours\n"


@pytest.mark.parametrize("step", [1, 2, 3, 7, 30])
def test_how_bytes_are_split_changes_nothing(lines: ModuleType, step: int) -> None:
    def told(pieces: list[bytes]) -> list[Any]:
        engine = PROTOCOLS["lines"].make("server", Terms(), limits=Limits(), decide=False, now=0.0)
        return [event for piece in pieces for event in engine.receive(piece, 0.0)]

    whole = told([SAID])
    kinds = [type(event) for event in whole]
    opened, ends = [events.Opened] * 2, [events.Opened, events.Failed, events.Failed, events.Closed]
    assert kinds == [events.Established, *opened, events.Granted, events.Canceled, *ends]
    split = told([SAID[at : at + step] for at in range(0, len(SAID), step)])
    assert [repr(event) for event in split] == [repr(event) for event in whole]


def test_the_page_is_short(lines: ModuleType) -> None:
    """Short enough to be read at once."""
    assert len(CODE["lines.py"].splitlines()) <= 250


SHARED = sorted(
    path
    for part in ("core", "transports", "aio", "sync", "middleware")
    for path in (ROOT / "src/afflux" / part).rglob("*.py")
)


def test_what_is_shared_knows_no_engine() -> None:
    """Values of RSocket (a lease, an entry of metadata) are part of what applications say; its engine is not."""
    parts = ("engine", "connection", "frames", "states", "streams", "inbound", "outbound")
    known = []
    for path in SHARED:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            name = node.module if isinstance(node, ast.ImportFrom) else None
            if name is not None and name.startswith("afflux.protocols.") and name.rpartition(".")[2] in parts:
                known.append(f"{path.name} imports {name}")
    assert known == []
