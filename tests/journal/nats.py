"""Runs real NATS servers with JetStream on loopback. Contains no tests. Where there is no nats-server, tests skip."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

__all__ = ["Cutter", "NatsServer", "api", "block_headers", "cluster", "needs_nats", "nats_server", "publish"]

nats = pytest.importorskip("nats", reason='journals on JetStream need the extra "nats"')

BINARY = shutil.which("nats-server") or shutil.which("nats-server", path="/usr/sbin")
needs_nats = pytest.mark.skipif(
    BINARY is None, reason="nats-server is not installed (Debian, Ubuntu: apt-get install nats-server)"
)
_READY_S = 30.0
_PORTS = range(12_000, 32_000)


class NatsServer:
    """One server. Its files and its ports stay the same when it is started again."""

    def __init__(self, directory: Path, name: str = "n1", *, more: str = "") -> None:
        self.directory = directory / name
        self.directory.mkdir(parents=True, exist_ok=True)
        self.port, self.monitor, self.route = (_free_port() for _ in range(3))
        self.name = name
        self.more = more
        self.jetstream = True
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError("it does not run")
        return self._process.pid

    def uri(self, stream: str, options: str = "", credentials: str = "") -> str:
        return f"nats://{credentials}127.0.0.1:{self.port}/{stream}{options}"

    def start(self, *, wait: bool = True) -> None:
        """Start it, and wait until JetStream is ready."""
        store = f'jetstream {{ store_dir: "{self.directory}" }}' if self.jetstream else ""
        config = self.directory / "server.conf"
        config.write_text(
            f'server_name: {self.name}\nlisten: "127.0.0.1:{self.port}"\nhttp: "127.0.0.1:{self.monitor}"\n'
            f"{store}\n{self.more}\n"
        )
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen([BINARY or "nats-server", "-c", str(config)], stdout=log, stderr=log)
        if wait:
            self.wait()

    def wait(self) -> None:
        until = time.monotonic() + _READY_S
        while True:
            with suppress(OSError), urlopen(f"http://127.0.0.1:{self.monitor}/healthz", timeout=2) as answer:
                if json.load(answer).get("status") == "ok":
                    return
            if self._process is None or self._process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"nats-server is not ready: {(self.directory / 'log').read_text()[-2000:]}")
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(0.02)  # it has no event for being ready, only one for its end

    def wait_for_input(self, size: int) -> None:
        """Wait until a connection has so many bytes that the server has not read."""
        until = time.monotonic() + _READY_S
        while time.monotonic() < until:
            for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
                _, local, _, _, queues, *_ = line.split()
                if int(local.partition(":")[2], 16) == self.port and int(queues.partition(":")[2], 16) >= size:
                    return
        raise RuntimeError("nothing has arrived")

    def pause(self) -> None:
        """Stop it with SIGSTOP, and wait until all its threads have stopped. ``send_signal(SIGCONT)`` continues."""
        self.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED)

    def send_signal(self, number: int) -> None:
        if self._process is not None:
            self._process.send_signal(number)

    def stop(self, number: int = signal.SIGTERM) -> None:
        """End it, and wait for its end."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(signal.SIGCONT)
            process.send_signal(number)
            process.wait()

    def kill(self) -> None:
        self.stop(signal.SIGKILL)


@contextmanager
def nats_server(directory: Path, **options: str) -> Iterator[NatsServer]:
    """Run one server with JetStream."""
    server = NatsServer(directory, **options)
    try:
        server.start()
        yield server
    finally:
        server.kill()


@contextmanager
def cluster(directory: Path, size: int = 3) -> Iterator[list[NatsServer]]:
    """Run a cluster."""
    servers = [NatsServer(directory, f"n{number}") for number in range(1, size + 1)]
    routes = ", ".join(f'"nats://127.0.0.1:{server.route}"' for server in servers)
    for server in servers:
        server.more = f'cluster {{ name: c, listen: "127.0.0.1:{server.route}", routes: [{routes}] }}'
    try:
        for server in servers:
            server.start(wait=False)
        for server in servers:
            server.wait()
        yield servers
    finally:
        for server in servers:
            server.kill()


def _free_port() -> int:
    """Return a port below those that systems give to clients, which could take it while the server is down."""
    while True:
        port = secrets.choice(_PORTS)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def api(server: NatsServer, operation: str, body: object = None) -> dict[str, Any]:
    """Send one request to JetStream, as another program does; return its answer."""
    return json.loads(publish(server, f"$JS.API.{operation}", b"" if body is None else json.dumps(body).encode()))


def publish(server: NatsServer, subject: str, data: bytes, headers: dict[str, str] | None = None) -> bytes:
    """Publish a message as another program does; return the answer."""

    async def request() -> bytes:
        client = await nats.connect(f"nats://127.0.0.1:{server.port}", allow_reconnect=False)
        try:
            return (await client.request(subject, data, timeout=10, headers=headers)).data
        finally:
            await client.close()

    return asyncio.run(request())


def block_headers(server: NatsServer, stream: str, count: int) -> list[str]:
    """Return the header of afflux of the first ``count`` messages of a stream."""

    async def request() -> list[str]:
        client = await nats.connect(f"nats://127.0.0.1:{server.port}", allow_reconnect=False)
        found = []
        try:
            for sequence in range(1, count + 1):
                body = json.dumps({"seq": sequence}).encode()
                answer = await client.request(f"$JS.API.DIRECT.GET.{stream}", body, timeout=10)
                found.append(answer.headers["Afflux-Block"])
        finally:
            await client.close()
        return found

    return asyncio.run(request())


class Cutter:
    """A proxy to a server that can drop its answers, and then cut the connection."""

    def __init__(self, server: NatsServer) -> None:
        self.mute = threading.Event()
        "Set: answers are dropped, and the first one cuts its connection."
        self.cuts = 0
        self._target = server.port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def uri(self, stream: str, options: str = "") -> str:
        return f"nats://127.0.0.1:{self.port}/{stream}{options}"

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                return
            for source, target, answers in ((near, far, False), (far, near, True)):
                threading.Thread(target=self._copy, args=(source, target, answers), daemon=True).start()

    def _copy(self, source: socket.socket, target: socket.socket, answers: bool) -> None:
        with suppress(OSError):
            while data := source.recv(0x10000):
                if answers and self.mute.is_set() and data.startswith((b"MSG ", b"HMSG ")):
                    self.mute.clear()
                    self.cuts += 1
                    break
                target.sendall(data)
        for each in (source, target):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
