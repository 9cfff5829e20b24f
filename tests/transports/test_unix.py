"""Unix sockets: the file comes and goes with its server, and nothing else is ever removed."""

# ruff: noqa: SIM117 -- a server, a client, then what happens: the nesting is the story

from __future__ import annotations

import asyncio
import os
import socket
import stat
from pathlib import Path

import pytest

import afflux
import afflux.sync
from afflux import BindFailed, ConnectFailed, Limits
from tests.aio.handlers import Demo
from tests.transports.check import turns_until


def uri_of(path: Path) -> str:
    return f"unix://{path}"


def left_over(path: Path) -> None:
    """The file of a server that died."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(path))


def mode_of(path: Path) -> int:
    return stat.S_IMODE(os.lstat(path).st_mode)


async def test_the_file_comes_and_goes_with_the_server(tmp_path: Path) -> None:
    path = tmp_path / "a b.sock"
    async with afflux.serve(f"unix://{tmp_path}/a%20b.sock", Demo()) as server:
        assert mode_of(path) == 0o600
        async with afflux.connect(server.uri) as peer:
            assert (await peer.request(b"x")).data == b"x"
        assert [guest.host for guest in server.connections] in ([], [""])
    assert not path.exists()
    await server.close()


async def test_permissions_are_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "x.sock"
    async with afflux.serve(f"{uri_of(path)}?mode=660", Demo()) as server:
        assert mode_of(path) == 0o660
        async with afflux.connect(server.uri) as peer:  # a client does not mind the option
            assert (await peer.request(b"x")).data == b"x"


async def test_the_file_of_a_dead_server_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "x.sock"
    left_over(path)
    with pytest.raises(ConnectFailed, match="refused: nothing listens there"):
        await afflux.connect(uri_of(path))
    async with afflux.serve(uri_of(path), Demo()) as server, afflux.connect(server.uri) as peer:
        assert (await peer.request(b"x")).data == b"x"


async def test_the_file_of_a_live_server_is_not(tmp_path: Path) -> None:
    path = tmp_path / "x.sock"
    async with afflux.serve(uri_of(path), Demo()) as server, afflux.connect(server.uri) as peer:
        with pytest.raises(BindFailed, match="a server listens there already"):
            await afflux.serve(uri_of(path), Demo())
        assert (await peer.request(b"x")).data == b"x"
    with socket.socket(socket.AF_UNIX) as busy:  # one that does not get round to accepting
        busy.bind(str(path))
        busy.listen(0)
        with socket.socket(socket.AF_UNIX) as waiting:
            waiting.connect(str(path))
            with pytest.raises(BindFailed, match="a server listens there already"):
                await afflux.serve(uri_of(path), Demo())
    assert path.exists()


async def test_what_is_no_socket_is_never_touched(tmp_path: Path) -> None:
    path = tmp_path / "letters"
    path.write_text("dear me")
    for what, kind in ((path, "a file"), (tmp_path, "a directory")):
        with pytest.raises(BindFailed, match=f"it is {kind}, not a socket"):
            await afflux.serve(uri_of(what), Demo())
    assert path.read_text() == "dear me"
    link = tmp_path / "link"
    link.symlink_to(path)
    with pytest.raises(BindFailed, match="it is a file, not a socket"):
        await afflux.serve(uri_of(link), Demo())
    assert link.is_symlink()


async def test_only_the_servers_own_file_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "x.sock"
    async with afflux.serve(uri_of(path), Demo()):
        path.unlink()
        path.write_text("of someone else")
    assert path.read_text() == "of someone else"
    async with afflux.serve(uri_of(tmp_path / "y.sock"), Demo()):
        (tmp_path / "y.sock").unlink()


@pytest.mark.parametrize("side", ["aio", "sync"])
async def test_addresses_that_can_not_be(tmp_path: Path, side: str) -> None:
    async def connect(path: Path) -> object:
        return await afflux.connect(uri_of(path)) if side == "aio" else afflux.sync.connect(uri_of(path))

    long = tmp_path / ("x" * 108)
    (tmp_path / "file").write_text("")
    for path, words in (
        (tmp_path / "nobody", "there is no such file"),
        (tmp_path / "no" / "x", f"there is no folder {tmp_path}/no"),
        (tmp_path / "file", "it is a file, not a socket"),
        (tmp_path, "it is a directory, not a socket"),
        (long, "the path is longer than 107 bytes"),
    ):
        with pytest.raises(ConnectFailed, match=f"cannot connect to unix://{path}: {words}"):
            await connect(path)
    for path, words in ((tmp_path / "no" / "x", "there is no folder"), (long, "the path is longer than 107 bytes")):
        with pytest.raises(BindFailed, match=f"cannot listen on unix://{path}: {words}"):
            await afflux.serve(uri_of(path), Demo())


@pytest.mark.skipif(os.geteuid() == 0, reason="root may do everything: run as another user")
async def test_permission_denied(tmp_path: Path) -> None:
    path = tmp_path / "x.sock"
    async with afflux.serve(uri_of(path), Demo()):
        path.chmod(0)
        with pytest.raises(ConnectFailed, match="permission denied"):
            await afflux.connect(uri_of(path))
    tmp_path.chmod(0o500)
    with pytest.raises(BindFailed, match="permission denied"):
        await afflux.serve(uri_of(path), Demo())
    tmp_path.chmod(0o700)


async def test_clients_of_one_machine_are_not_counted_by_address(tmp_path: Path) -> None:
    limits = Limits.server(connections_per_address=1)
    async with afflux.serve(uri_of(tmp_path / "x.sock"), Demo(), limits=limits) as server:
        async with afflux.connect(server.uri) as one, afflux.connect(server.uri) as other:
            await one.request(b"")
            await other.request(b"")
            assert len(server.connections) == 2


async def test_a_full_queue_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "x.sock"
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(path))
    listening.listen(0)
    with listening, socket.socket(socket.AF_UNIX) as first:
        first.connect(str(path))
        with pytest.raises(ConnectFailed, match=r"did not answer within 0.05 s"):
            await afflux.connect(uri_of(path), timeout=0.05)
        with pytest.raises(ConnectFailed, match=r"did not answer within 0.05 s"):
            afflux.sync.connect(uri_of(path), timeout=0.05)
        connecting = asyncio.ensure_future(afflux.connect(uri_of(path))._open())
        dialing = asyncio.create_task(asyncio.to_thread(afflux.sync.connect, uri_of(path)))
        accepted = [(await asyncio.to_thread(listening.accept))[0] for _ in range(3)]
        peers = (await connecting, await dialing)
        for sock in accepted:
            sock.close()
        await peers[0].close()
        peers[1].close()


async def test_a_socket_of_another_kind(tmp_path: Path) -> None:
    path = tmp_path / "datagrams.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.bind(str(path))
        with pytest.raises(BindFailed, match="cannot listen on"):
            await afflux.serve(uri_of(path), Demo())
        with pytest.raises(ConnectFailed, match="cannot connect to"):
            await afflux.connect(uri_of(path))
    assert path.exists()


async def test_closing_ends_everyone(tmp_path: Path) -> None:
    async with afflux.serve(uri_of(tmp_path / "x.sock"), Demo()) as server:
        peer = await afflux.connect(server.uri)
        await peer.request(b"")
    await peer.wait_closed()
    await turns_until(lambda: peer.closed)
    await peer.close()
