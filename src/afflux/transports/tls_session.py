"""Encrypt and decrypt one TLS connection: bytes in, bytes out, without a socket. The links of both drivers use it.

asyncio's own TLS is not used: it cannot end one half, so the last bytes get lost, it cannot send a peer the reason of a
failed handshake, and it allocates 256 KiB for each connection.
"""

from __future__ import annotations

import ssl
from typing import Any

from afflux.core.errors import AddressError, ConnectFailed
from afflux.transports.address import Address, without_tls
from afflux.transports.security import refusal

__all__ = ["Session"]

_RECORD = 0x4000
"Bytes of plaintext in one record at most."
_NOT_TLS = b"\x15\x03\x01\x00\x02\x02\x0a"
"The alert unexpected_message, for a peer that does not speak TLS."


class Session:
    """The TLS of one connection.

    Feed received bytes; call ``handshake`` until it is ``ready``, then ``read``. After every call ``outgoing`` returns
    the bytes to write.
    """

    def __init__(self, context: ssl.SSLContext, address: Address, *, server: bool, name: str = "") -> None:
        self._in = ssl.MemoryBIO()
        self._out = ssl.MemoryBIO()
        self._address = address
        self._name = name
        self._server = server
        self._backlog: list[bytes] = []
        self._early = b""
        self._spoke = False
        try:
            self.tls = context.wrap_bio(self._in, self._out, server_side=server, server_hostname=name or None)
        except (ssl.SSLError, TypeError, ValueError) as error:
            raise AddressError(f'TLS cannot send the name "{name[:64]}": {error}') from error
        self.ready = False
        "The handshake has succeeded."
        self.ended = False
        "The peer has sent a close_notify."
        self.failure: ConnectFailed | None = None
        "The reason of a failure: the handshake, an alert of the peer, or bytes that are not TLS."

    @property
    def certificate(self) -> dict[str, Any] | None:
        """The peer's certificate, once it is verified; None without one."""
        return self.tls.getpeercert() or None if self.ready else None

    @property
    def unsent(self) -> int:
        """Bytes that wait for the end of the handshake."""
        return sum(map(len, self._backlog))

    def feed(self, data: bytes | memoryview) -> None:
        """Receive encrypted bytes."""
        self._in.write(data)

    def feed_eof(self) -> None:
        """Receive the end of input."""
        self._in.write_eof()

    def handshake(self) -> bool:
        """Continue the handshake; return whether it has ended, with ``ready`` or ``failure``."""
        try:
            self.tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError as error:
            self._fail(error)
        else:
            self.ready = True
            waiting, self._backlog = self._backlog, []
            for data in waiting:
                self.write(data)
        return True

    def read(self) -> bytes:
        """Return the plaintext of all whole records. ``b""`` means none yet, ``ended`` or ``failure``: earlier records
        are returned first."""
        parts = self.parts()
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def parts(self) -> list[bytes]:
        """As ``read``, record by record."""
        parts = [self._early] if self._early else []
        self._early = b""
        try:
            while part := self.tls.read(_RECORD):
                parts.append(part)
                if not self._in.pending and not self.tls.pending():
                    break
            else:
                self.ended = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:  # the peer's end, after this side has sent its own
            self.ended = True
        except ssl.SSLError as error:
            self._fail(error)
        return parts

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Encrypt; before the end of the handshake the data waits."""
        if not self.ready:
            self._backlog.append(bytes(data))
            return
        try:
            self.tls.write(data)
        except ssl.SSLError as error:  # also a renegotiation, which is disabled
            self._fail(error)

    def end(self) -> None:
        """Send a close_notify; reading continues. OpenSSL requires that its input was read before."""
        if not self.ready:
            return
        self._early = self.read()
        if self.failure is None:
            try:
                self.tls.unwrap()
            except ssl.SSLError:
                pass  # the peer has not ended its half yet

    def outgoing(self) -> bytes:
        """Return the bytes to write."""
        data = self._out.read()
        self._spoke = self._spoke or bool(data)
        return data

    def _fail(self, error: ssl.SSLError) -> None:
        if self.failure is not None:
            return
        plain = None if self._server else without_tls(self._address)
        self.failure = refusal(error, self._address, self._name, self._shown(), plain)
        if self._server and not self.ready and not self._spoke and not self._out.pending:
            self._out.write(_NOT_TLS)

    def _shown(self) -> dict[str, Any] | None:
        """Return the refused certificate, for the text of the error. The ssl module has no public access to it yet."""
        try:
            inner: Any = self.tls
            certificate: dict[str, Any] = inner._sslobj.get_unverified_chain()[0].get_info()
            return certificate
        except (AttributeError, IndexError, TypeError, ValueError, OSError):
            return None
