"""Two ends of a real TLS connection in this process, and the packets between them. Contains no tests."""

from __future__ import annotations

import ssl
from pathlib import Path

from tests.capture.writing import Packet, Talk
from tests.transports.certificates import Certificates


class TlsTalk:
    """A connection whose bytes are those of OpenSSL at both ends. Each ``send`` adds packets.

    Args:
        files: the certificates.
        keys: the key log that the client writes.
        version: the only version of TLS.
        ciphers: the suites of TLS 1.2.
        protocols: offered and accepted by ALPN.
    """

    def __init__(
        self,
        files: Certificates,
        keys: Path,
        version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3,
        *,
        ciphers: str = "",
        protocols: tuple[str, ...] = (),
        session: ssl.SSLSession | None = None,
        contexts: tuple[ssl.SSLContext, ssl.SSLContext] | None = None,
        talk: Talk | None = None,
        size: int = 1_448,
    ) -> None:
        self.talk = talk or Talk()
        self.size = size
        self.packets: list[Packet] = self.talk.open()
        self.contexts = contexts or _contexts(files, keys, version, ciphers, protocols)
        self._wires = {True: ssl.MemoryBIO(), False: ssl.MemoryBIO()}
        self._in = {True: ssl.MemoryBIO(), False: ssl.MemoryBIO()}
        self.client = self.contexts[0].wrap_bio(
            self._in[True], self._wires[True], server_hostname="localhost", session=session
        )
        self.server = self.contexts[1].wrap_bio(self._in[False], self._wires[False], server_side=True)
        self._ends = {True: self.client, False: self.server}
        self.sent = {True: bytearray(), False: bytearray()}
        done: set[bool] = set()
        while len(done) < 2:
            for side, end in self._ends.items():
                try:
                    end.do_handshake()
                    done.add(side)
                except ssl.SSLWantReadError:
                    pass
                self._flush(side)

    def send(self, client: bool, data: bytes) -> None:
        """Data of one side; the other one reads it."""
        self.sent[client] += data
        end, other = self._ends[client], self._ends[not client]
        for at in range(0, len(data), 0x1_0000):
            end.write(data[at : at + 0x1_0000])
            self._flush(client)
            missing = len(data[at : at + 0x1_0000])
            while missing:
                missing -= len(other.read(missing))
            self._flush(not client)

    def close(self) -> list[Packet]:
        """Both close their TLS and their TCP; return all packets."""
        for side, end in self._ends.items():
            try:
                end.unwrap()
            except (ssl.SSLWantReadError, ssl.SSLError):
                pass
            self._flush(side)
        self.packets += self.talk.close()
        return self.packets

    def _flush(self, client: bool) -> None:
        data = self._wires[client].read()
        if data:
            self.packets += self.talk.send(client, data, self.size)
            self._in[not client].write(data)


def _contexts(
    files: Certificates, keys: Path, version: ssl.TLSVersion, ciphers: str, protocols: tuple[str, ...]
) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    client = ssl.create_default_context(cafile=str(files.ca))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(files.server)
    for context in (client, server):
        context.minimum_version = context.maximum_version = version
        if ciphers:
            context.set_ciphers(ciphers)
        if protocols:
            context.set_alpn_protocols(list(protocols))
    client.keylog_filename = str(keys)
    return client, server
