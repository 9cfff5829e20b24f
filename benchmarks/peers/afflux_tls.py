"""afflux over TLS, with a certificate that is made for the run: the server and the client of afflux_aio."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import trustme

import afflux
from benchmarks.peers import afflux_aio
from benchmarks.peers.base import HOST

__all__ = ["Client", "serve"]


@asynccontextmanager
async def serve(port: int, loop: asyncio.AbstractEventLoop, large: bool) -> AsyncIterator[int]:
    """See base.Peer."""
    issued = trustme.CA().issue_cert(HOST)
    with TemporaryDirectory(prefix="afflux-bench-") as folder:
        cert = str(Path(folder, "server.pem"))
        issued.private_key_and_cert_chain_pem.write_to_path(cert)
        async with afflux_aio.serving(f"tls://{HOST}:{port}", large, tls=afflux.Tls(cert=cert)) as listening:
            yield listening


def _unverified() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


class Client(afflux_aio.Client):
    """See base.Client. It does not verify the certificate, which changes only the handshake."""

    scheme = "tls"
    tls = afflux.Tls(context=_unverified())
