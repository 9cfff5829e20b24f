"""One end of a TLS connection as bytes in and bytes out: no socket, no loop, no waiting. Both drivers' links use it.

The standard library's own wrappers are not used: asyncio's can neither end one half, so that last words get lost,
nor tell a peer why its handshake failed, and it keeps 256 KiB for each connection.
"""

from __future__ import annotations

import ssl
from typing import Any

from afflux.core.errors import AddressError, ConnectFailed
from afflux.transports.address import Address
from afflux.transports.security import refusal

__all__ = ["Session"]

_RECORD = 0x4000
"The most plaintext in one record."
_NOT_TLS = b"\x15\x03\x01\x00\x02\x02\x0a"
"The alert unexpected_message, for a peer that does not speak TLS: some will know what it means."


class Session:
    """The TLS of one connection.

    Feed what arrives; then ``handshake`` until it is ``ready``, after that ``read``. After every call ``outgoing``
    has what is to be written.
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
            raise AddressError(f'TLS cannot ask for the name "{name[:64]}": {error}') from error
        self.ready = False
        "The handshake is done."
        self.ended = False
        "The peer has said, in order, that it sends no more."
        self.failure: ConnectFailed | None = None
        "Why it is over: the handshake failed, the peer raised an alert, or what came is no TLS."

    @property
    def certificate(self) -> dict[str, Any] | None:
        """The peer's certificate, once it is verified; None without one."""
        return self.tls.getpeercert() or None if self.ready else None

    @property
    def unsent(self) -> int:
        """Bytes that wait for the end of the handshake."""
        return sum(map(len, self._backlog))

    def feed(self, data: bytes | memoryview) -> None:
        """Bytes have arrived."""
        self._in.write(data)

    def feed_eof(self) -> None:
        """No more bytes will arrive."""
        self._in.write_eof()

    def handshake(self) -> bool:
        """Go on with the handshake; whether it is over, with ``ready`` or with ``failure``."""
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
        """Everything that has arrived whole. ``b""`` is nothing yet, ``ended`` or ``failure``: what came before the
        two is given first."""
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
        except ssl.SSLZeroReturnError:  # the same end, when this side has said its own before
            self.ended = True
        except ssl.SSLError as error:
            self._fail(error)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Encrypt. Before the end of the handshake the data waits."""
        if not self.ready:
            self._backlog.append(bytes(data))
            return
        try:
            self.tls.write(data)
        except ssl.SSLError as error:  # a renegotiation among them: there are none here
            self._fail(error)

    def end(self) -> None:
        """Say that this side sends no more; reading goes on. OpenSSL must not find data when it says so."""
        if not self.ready:
            return
        self._early = self.read()
        if self.failure is None:
            try:
                self.tls.unwrap()
            except ssl.SSLError:
                pass  # the peer has not ended its half yet

    def outgoing(self) -> bytes:
        """What is to be written."""
        data = self._out.read()
        self._spoke = self._spoke or bool(data)
        return data

    def _fail(self, error: ssl.SSLError) -> None:
        if self.failure is not None:
            return
        self.failure = refusal(error, self._address, self._name, self._shown())
        if self._server and not self.ready and not self._spoke and not self._out.pending:
            self._out.write(_NOT_TLS)

    def _shown(self) -> dict[str, Any] | None:
        """The certificate that was refused, for the words of the error: not in the public interface of ssl yet."""
        try:
            inner: Any = self.tls
            certificate: dict[str, Any] = inner._sslobj.get_unverified_chain()[0].get_info()
            return certificate
        except (AttributeError, IndexError, TypeError, ValueError, OSError):
            return None
