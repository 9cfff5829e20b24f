"""The recording proxy: what it writes is what both ends sent, and others read it."""

from __future__ import annotations

import asyncio
import io
import shutil
import socket
import struct
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pcapng as python_pcapng
import pytest

import afflux
from afflux.capture import Capture, Decoder
from afflux.capture.proxy import RecordingProxy
from afflux.capture.recording import LARGEST, Recording
from afflux.core.errors import AddressError, BindFailed
from afflux.core.limits import Limits
from afflux.protocols.registry import named, recognizable
from tests.capture.reading import followed, rows
from tests.capture.tabling import SETUP, asks, complete, grant, item, tables
from tests.capture.test_oracles import followed_by_tshark, needs_tshark, tshark
from tests.capture.writing import ACK, RST
from tests.transports.certificates import Certificates

NOW = 1_790_000_000_123_456_789
CLIENT, SERVER = ("10.0.0.1", 40_000), ("10.0.0.2", 7_000)


def decoded(file: bytes, protocol: str) -> list[dict[str, Any]]:
    entries = [named(protocol)] if protocol == "rsocket-draft" else recognizable()
    return list(Decoder(Capture(io.BytesIO(file)), entries, payload="text"))


@pytest.mark.parametrize("ends", [(CLIENT, SERVER), (("::1", 5), ("::1", 6)), (("fe80::1%eth0", 5), ("10.0.0.2", 6))])
def test_a_recording_is_read_as_it_was_written(ends: tuple[tuple[str, int], tuple[str, int]]) -> None:
    written = io.BytesIO()
    recording = Recording(written.write, "test")
    line = recording.connect(*ends, NOW, name="server.example", comment="a comment")
    sent = {True: bytes(range(256)) * 700, False: b"answer"}
    for client, data in sent.items():
        line.data(client, data, NOW + 5)
        line.end(client, NOW + 7)
    file = written.getvalue()
    found = followed(file, checksums=True)
    (one,) = found.connections
    assert (one.joined(), one.joined(False)) == ([sent[True]], [sent[False]])
    assert one.connection.closed and found.network.wrong_checksums == 0
    times = [row.time for row in rows(file)[0]]
    assert times[0] == NOW and times[-1] == NOW + 7
    assert max(row.original for row in rows(file)[0]) <= LARGEST + 74


def test_a_reset_is_recorded() -> None:
    written = io.BytesIO()
    line = Recording(written.write, "test").connect(CLIENT, SERVER, NOW)
    line.data(True, b"abc", NOW)
    line.reset(False, NOW, comment="gone")
    (one,) = followed(written.getvalue()).connections
    assert one.connection.closed and one.joined() == [b"abc"]


def waiting() -> bytes:
    """A recording of a stream whose client does not take the items for two seconds."""
    written = io.BytesIO()
    line = Recording(written.write, "test").connect(CLIENT, SERVER, NOW)
    line.data(True, SETUP + asks(1, 80), NOW)
    line.data(False, item(1, bytes(9_000)), NOW + 1_000_000)
    line.window(True, False, NOW + 2_000_000)
    line.data(True, grant(1, 8), NOW + 500_000_000)
    line.window(True, True, NOW + 2_002_000_000)
    line.data(False, item(1) + complete(1), NOW + 2_003_000_000)
    for client in (True, False):
        line.end(client, NOW + 2_004_000_000)
    return written.getvalue()


def test_a_side_that_takes_no_more_is_the_cause_of_a_stall() -> None:
    pytest.importorskip("pyarrow", reason="tables need the extra capture")
    (stall,) = tables(waiting())["stalls"]
    assert (stall["cause"], stall["dir"], stall["stream"]) == ("transport", "<", 1)
    assert 1.5 <= stall["seconds"] < 2.1


@needs_tshark
def test_wireshark_shows_a_closed_window(tmp_path: Path) -> None:
    path = tmp_path / "recording.pcapng"
    path.write_bytes(waiting())
    names = ("window_size", "analysis.zero_window", "analysis.window_update", "analysis.flags")
    shown = tshark(path, "-T", "fields", *(word for name in names for word in ("-e", f"tcp.{name}")))
    whole = str(0xFFFF << 14)
    closed, also, opened = ["0", "1", "", "1"], ["0", "1", "", "1"], [whole, "", "1", "1"]
    assert [line.split("\t") for line in shown.splitlines()][3:] == [
        *([whole, "", "", ""],) * 2, closed, also, opened, *([whole, "", "", ""],) * 3,
    ]  # fmt: skip


@pytest.mark.filterwarnings("ignore:Field type should not be:DeprecationWarning")
def test_python_pcapng_reads_names_and_comments() -> None:
    written = io.BytesIO()
    recording = Recording(written.write, "test")
    for _ in range(2):
        recording.connect(CLIENT, SERVER, NOW, name="server.example", comment="a comment")
    blocks = list(python_pcapng.FileScanner(io.BytesIO(written.getvalue())))
    assert [type(block).__name__ for block in blocks] == [
        "SectionHeader",
        "InterfaceDescription",
        "NameResolution",
        *["EnhancedPacket"] * 6,
    ]
    assert blocks[3].options["opt_comment"] == "a comment"


@needs_tshark
def test_wireshark_opens_it(tmp_path: Path) -> None:
    """Checksums, sequence numbers and lengths are right in its view, and the name and the comment are shown."""
    path = tmp_path / "recording.pcapng"
    with path.open("wb") as file:
        recording = Recording(file.write, "test")
        line = recording.connect(CLIENT, SERVER, NOW, name="server.example", comment="a comment")
        for n in range(50):
            line.data(n % 2 == 0, bytes([n]) * 9_000, NOW + n)
        line.end(True, NOW + 60)
        line.end(False, NOW + 60)
    words = (
        "-o",
        "tcp.check_checksum:TRUE",
        "-o",
        "ip.check_checksum:TRUE",
        "-T",
        "fields",
        "-e",
        "tcp.checksum.status",
    )
    shown = tshark(path, *words, "-e", "ip.checksum.status", "-e", "tcp.analysis.flags", "-e", "frame.comment")
    lines = [line.split("\t") for line in shown.splitlines()]
    assert {tuple(row[:3]) for row in lines} == {("1", "1", "")}
    assert lines[0][3] == "a comment"
    assert followed_by_tshark(path, 0)[2:] == tuple(
        b"".join(bytes([n]) * 9_000 for n in range(first, 50, 2)) for first in (0, 1)
    )
    named = subprocess.run(
        [shutil.which("tshark") or "", "-Nn", "-r", str(path), "-T", "fields", "-e", "ip.dst_host", "-c", "1"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert named.stdout.strip() == "server.example"


# -- the proxy -------------------------------------------------------------------------------------------------------


class Echo:
    async def request(self, payload: afflux.Payload) -> bytes:
        return b"echo " + payload.data

    async def stream(self, payload: afflux.Payload) -> Any:
        for number in range(int(payload.data)):
            yield b"item %d" % number


async def talked(to: str, listen: str, **options: Any) -> list[dict[str, Any]]:
    """The frames of a conversation through a recording proxy, after both ends have closed."""
    written = io.BytesIO()
    async with (
        afflux.serve(to, Echo()) as server,
        RecordingProxy(listen, server.uri + options.pop("far", ""), Recording(written.write, "test")) as proxy,
    ):
        async with afflux.connect(proxy.uri + options.pop("near", "")) as peer:
            assert (await peer.request(b"hello")).data == b"echo hello"
            items = [item.data async for item in peer.stream(b"300", credit=16)]
            assert len(items) == 300
        while proxy._tasks:
            await asyncio.wait(proxy._tasks)
    return decoded(written.getvalue(), server.uri.partition("+")[0])


def checked(found: list[dict[str, Any]], protocol: str) -> None:
    """The records are those of the conversation."""
    assert {made["protocol"] for made in found} == {protocol} and not any(made["error"] for made in found)
    data = [made.get("data") for made in found]
    assert data.count("hello") == 1 and data.count("echo hello") == 1
    assert [text for text in data if text and text.startswith("item")] == [f"item {n}" for n in range(300)]
    assert [made["ts"] for made in found] == sorted(made["ts"] for made in found)
    assert {made["dir"] for made in found if made["type"] == "REQUEST_N"} <= {">"}


@pytest.mark.parametrize("protocol", ["rsocket", "rsocket-draft", "reactivesocket"])
@pytest.mark.parametrize("transport", ["tcp", "ws"])
async def test_a_conversation_of_our_own_engines(protocol: str, transport: str) -> None:
    """Frame for frame what the application saw, on TCP and in a WebSocket."""
    if transport == "ws":
        pytest.importorskip("websockets", reason="WebSocket needs the extra ws")
    path = "/" if transport == "ws" else ""
    uri = f"{protocol}+{transport}://127.0.0.1:0{path}"
    found = await talked(uri, uri)
    checked(found, protocol)


async def test_tls_is_recorded_as_plaintext(tmp_path: Path) -> None:
    files = Certificates(tmp_path)
    uri, trust = f"tls://127.0.0.1:0?cert={files.server}", f"?ca={files.ca}"
    checked(await talked(uri, uri, far=trust, near=trust), "rsocket")


async def test_unix_sockets(tmp_path: Path) -> None:
    found = await talked(f"unix://{tmp_path}/server.sock", f"unix://{tmp_path}/proxy.sock")
    checked(found, "rsocket")
    assert not (tmp_path / "proxy.sock").exists()


async def test_a_server_that_is_away_is_recorded() -> None:
    written = io.BytesIO()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    async with RecordingProxy(
        "tcp://127.0.0.1:0", f"tcp://127.0.0.1:{port}", Recording(written.write, "test")
    ) as proxy:
        reader, writer = await asyncio.open_connection(*proxy.uri.removeprefix("tcp://").split(":"))
        with pytest.raises(OSError):
            assert await reader.read(1) == b""
            raise ConnectionResetError
        writer.close()
    found = followed(written.getvalue())
    assert (found.flows.connections, found.connections) == (1, [])
    assert rows(written.getvalue())[0][-1].data[47] == RST | ACK
    assert b"cannot connect to tcp://127.0.0.1" in written.getvalue()


async def test_a_recording_that_fails_ends_the_proxy() -> None:
    """What is not recorded is not relayed."""
    room = 700

    def write(data: bytes) -> None:
        nonlocal room
        room -= len(data)
        if room < 0:
            raise OSError(28, "No space left on device")

    got = bytearray()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(100):
            got.extend(data)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with (
        server,
        RecordingProxy("tcp://127.0.0.1:0", f"tcp://127.0.0.1:{port}", Recording(write, "test")) as proxy,
    ):
        _, writer = await asyncio.open_connection(*proxy.uri.removeprefix("tcp://").split(":"))
        writer.write(bytes(1_000))
        with pytest.raises(OSError, match="No space left"):
            await proxy.failed
        writer.close()
    assert got == b""


def loops() -> list[Any]:
    """The loops that a proxy may run on."""
    found = [pytest.param(asyncio.new_event_loop, id="asyncio")]
    with suppress(ImportError):
        import uvloop

        found.append(pytest.param(uvloop.new_event_loop, id="uvloop"))
    return found


@asynccontextmanager
async def relayed(
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]], write: Callable[[bytes], object]
) -> AsyncIterator[tuple[str, str]]:
    """A proxy in front of a server; yields its host and port."""
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with (
        server,
        RecordingProxy("tcp://127.0.0.1:0", f"tcp://127.0.0.1:{port}", Recording(write, "test")) as proxy,
    ):
        host, _, port = proxy.uri.removeprefix("tcp://").partition(":")
        yield host, port
        assert not proxy.failed.done()


@pytest.mark.parametrize("factory", loops())
@pytest.mark.parametrize("broken", ["by the client", "by the server"])
def test_a_connection_that_breaks_ends_alone(factory: Callable[[], asyncio.AbstractEventLoop], broken: str) -> None:
    """While data passes in both directions, with a reset. Another connection goes on."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if await reader.read(1) == b"e":
            while data := await reader.read(100):
                writer.write(data)
        else:
            with suppress(OSError, RuntimeError):
                for number in range(1_000_000):
                    writer.write(bytes(50_000))
                    await writer.drain()
                    if broken == "by the server" and number == 20:
                        reset(writer)
        writer.close()

    async def run() -> None:
        async with relayed(serve, lambda data: None) as place:
            reader, writer = await asyncio.open_connection(*place)
            writer.write(b"e")
            for number in range(40):
                near, out = await asyncio.open_connection(*place)
                out.write(b"flood")
                with suppress(OSError, asyncio.IncompleteReadError):
                    for _ in range(1_000):
                        await near.readexactly(50_000)
                        out.write(bytes(100))
                        if broken == "by the client" and _ == 4:
                            reset(out)
                writer.write(b"%d" % (number % 10))
                assert await reader.read(1) == b"%d" % (number % 10)
                out.close()
            writer.close()

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(run())


def reset(writer: asyncio.StreamWriter) -> None:
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


@pytest.mark.parametrize("factory", loops())
def test_a_client_that_does_not_read_has_a_closed_window(factory: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """While the proxy's write waits. The server's data goes on after the window has opened."""
    size = 30_000_000
    written = bytearray()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(bytes(size))
        await reader.read()
        writer.close()

    async def run() -> None:
        closed = asyncio.Event()

        def write(data: bytes) -> None:
            written.extend(data)
            if data[:4] == b"\6\0\0\0" and windows(data)[0][1] == 0:
                closed.set()

        async with relayed(serve, write) as place:
            reader, writer = await asyncio.open_connection(*place)
            await closed.wait()
            await reader.readexactly(size)
            writer.close()

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(run())
    assert followed(bytes(written)).connections[0].joined(False)[0] == bytes(size)
    room = 1
    for source, window, octets in windows(bytes(written)):
        if source == "client":
            room = window
        assert room or source == "client" or not octets


def windows(blocks: bytes) -> list[tuple[str, int, int]]:
    """The sender, the window and the bytes of data of each packet of IPv4 in blocks of pcapng."""
    found = []
    while blocks:
        kind, size = struct.unpack_from("<II", blocks)
        if kind == 6:
            segment = blocks[28 + 34 :]
            length, (window,) = int.from_bytes(blocks[28 + 16 : 28 + 18], "big"), struct.unpack_from(">H", segment, 14)
            sender = "client" if blocks[28 + 5] == 2 else "server"
            found.append((sender, window, length - 20 - (segment[12] >> 4) * 4))
        blocks = blocks[size:]
    return found


async def test_a_connection_above_the_limit_is_closed() -> None:
    limits = Limits.tiny(connections=2)
    async with (
        afflux.serve("tcp://127.0.0.1:0", Echo()) as server,
        RecordingProxy("tcp://127.0.0.1:0", server.uri, Recording(lambda data: None, ""), limits=limits) as proxy,
    ):
        host, port = proxy.uri.removeprefix("tcp://").split(":")
        links = [await asyncio.open_connection(host, port) for _ in range(3)]
        with pytest.raises(OSError):
            assert await links[2][0].read(1) == b""
            raise ConnectionResetError
        for _, writer in links:
            writer.close()
        assert proxy.connections == 2


async def test_addresses_that_cannot_be_relayed() -> None:
    with pytest.raises(AddressError, match="mem addresses"):
        RecordingProxy("mem://a", "tcp://127.0.0.1:1", Recording(lambda data: None, ""))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        proxy = RecordingProxy(
            f"tcp://127.0.0.1:{taken.getsockname()[1]}", "tcp://h:1", Recording(lambda data: None, "")
        )
        with pytest.raises(BindFailed):
            await proxy.__aenter__()
