"""TLS 1.3 between the programs of OpenSSL, through the recording proxy: every suite, key updates."""

from __future__ import annotations

import asyncio
import io
import re
import shutil
from pathlib import Path

import pytest

from afflux.capture import Capture, Decoder, Secrets
from afflux.capture.proxy import RecordingProxy
from afflux.capture.recording import Recording
from afflux.core.limits import Limits
from afflux.protocols.registry import recognizable
from afflux.protocols.rsocket import frames as wire
from tests.transports.certificates import Certificates

pytest.importorskip("cryptography", reason="decrypting needs the extra tls")
OPENSSL = shutil.which("openssl")
pytestmark = pytest.mark.skipif(OPENSSL is None, reason="the program openssl is not installed")
UPDATE = b"K\n"
"Makes s_client update its keys, and ask the server for the same."


class Program:
    """A program of OpenSSL, and what it has printed."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.output = b""

    async def until(self, text: bytes, times: int = 1) -> None:
        """Wait until it has printed a text so many times."""
        assert self._process.stdout is not None
        while self.output.count(text) < times:
            more = await self._process.stdout.read(1 << 16)
            assert more, self.output
            self.output += more

    def write(self, text: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(text)

    async def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        if self._process.returncode is None:
            self._process.terminate()
        await self._process.communicate()


async def program(*words: str) -> Program:
    pipe, out = asyncio.subprocess.PIPE, asyncio.subprocess.STDOUT
    return Program(await asyncio.create_subprocess_exec(OPENSSL or "", *words, stdin=pipe, stdout=pipe, stderr=out))


async def recorded(
    folder: Path, *server: str, sent: list[bytes], client: tuple[str, ...] = ()
) -> tuple[bytes, Secrets]:
    """The recording of a connection in which the client sends pieces; each is awaited at the server."""
    files, keys, written = Certificates(folder), folder / "keys.log", io.BytesIO()
    serving = await program("s_server", "-accept", "127.0.0.1:0", "-cert", str(files.server), "-tls1_3", *server)
    try:
        await serving.until(b"ACCEPT")
        port = re.search(rb"ACCEPT 127\.0\.0\.1:(\d+)", serving.output)
        assert port is not None
        async with RecordingProxy(
            "tcp://127.0.0.1:0", f"tcp://127.0.0.1:{int(port[1])}", Recording(written.write, "test")
        ) as proxy:
            words = ("-connect", proxy.uri.partition("://")[2], "-keylogfile", str(keys), "-tls1_3", *client)
            connecting = await program("s_client", *words)
            await connecting.until(b"Verify return code")
            updates = 0
            for data in sent:
                connecting.write(data)
                if data == UPDATE:
                    updates += 1
                    await connecting.until(b"KEYUPDATE", updates)
                else:
                    await serving.until(data[-6:])
            await connecting.end()
    finally:
        await serving.end()
    secrets = Secrets(Limits.server())
    secrets.read(io.BytesIO(keys.read_bytes()))
    return written.getvalue(), secrets


@pytest.mark.parametrize(
    ("suite", "shown"),
    [
        ("TLS_AES_128_GCM_SHA256", "AES-128-GCM"),
        ("TLS_AES_256_GCM_SHA384", "AES-256-GCM"),
        ("TLS_CHACHA20_POLY1305_SHA256", "ChaCha20-Poly1305"),
        ("TLS_AES_128_CCM_SHA256", "AES-128-CCM"),
        ("TLS_AES_128_CCM_8_SHA256", "AES-128-CCM-8"),
    ],
)
async def test_suites_and_key_updates_of_tls_1_3(tmp_path: Path, suite: str, shown: str) -> None:
    """Both sides update their keys between the frames, and both go on."""
    setup = wire.Setup().encode()
    frames = [wire.RequestFnf(stream=2 * n + 1, data=b"data %d" % n).encode() for n in range(4)]
    first, *others = (len(one).to_bytes(3, "big") + one for one in frames)
    sent = [len(setup).to_bytes(3, "big") + setup + first]
    for one in others:
        sent += [UPDATE, one]
    file, secrets = await recorded(tmp_path, "-ciphersuites", suite, sent=sent, client=("-ciphersuites", suite))
    decoder = Decoder(Capture(io.BytesIO(file), secrets=secrets), recognizable(), payload="text")
    found = list(decoder)
    (one,) = decoder.opened()
    assert str(one.security) == f"TLS 1.3; {shown}"
    assert [made.get("data") for made in found[1:]] == [f"data {n}" for n in range(4)]
    assert one.security is not None and [one.security.problem(rising) for rising in (True, False)] == ["", ""]
