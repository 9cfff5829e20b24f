"""Connect and listen with TLS over TCP. See tls_aio.py for the asyncio side and tls_session.py for the bytes.

The blocking side needs no event loop. ``wss`` uses this transport as ``ws`` uses TCP.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any

from afflux.core.errors import ConnectFailed, ConnectionClosed
from afflux.transports.address import Address
from afflux.transports.base import Admission, Factory, Link, Listener
from afflux.transports.durations import in_words
from afflux.transports.security import client_context, public, server_context, server_name
from afflux.transports.tcp import TRANSPORT as TCP
from afflux.transports.tcp import connected, dialed, joined
from afflux.transports.tls_session import Session

if TYPE_CHECKING:
    from afflux.core.limits import Limits
    from afflux.transports.reading import Receiver
    from afflux.transports.security import Tls

__all__ = ["TRANSPORT", "SecureLink", "SecureTcp"]

_PIECE = 0x4000
"Bytes that one ``send`` encrypts: one record."


class SecureTcp:
    """See transports.base.Transport."""

    async def open(self, address: Address, factory: Callable[[], Receiver], tls: Tls | None = None) -> None:
        """Connect, and finish the handshake."""
        import asyncio

        from afflux.transports.tls_aio import SecureLink

        session = _session(address, tls)
        sock = await connected(address)
        loop = asyncio.get_running_loop()
        ready = loop.create_future()
        transport = SecureLink(session, factory(), flush=0.0, ready=ready)
        try:
            await joined(loop.create_connection(lambda: transport, sock=sock))
            await ready
        except BaseException:
            ready.cancel()
            transport.abort()
            raise

    async def listen(
        self, address: Address, admission: Admission, factory: Factory, tls: Tls | None = None
    ) -> Listener:
        """Listen as TCP does."""
        from afflux.transports.tls_aio import SecureLink

        context = server_context(tls, address)
        where = public(address)

        def welcome(host: str) -> Receiver:
            return SecureLink(Session(context, where, server=True), factory(host), flush=admission.flush)

        listener = await TCP.listen(where, admission, welcome)
        where = listener.address  # no connection is accepted before the loop's next turn
        return listener

    def refusal(self, address: Address, reason: str) -> bytes:
        """Return ``b""``: a refused connection gets no handshake."""
        return b""

    def dial(self, address: Address, timeout: float, tls: Tls | None = None, limits: Limits | None = None) -> Link:
        """Connect a socket, and finish the handshake."""
        until = monotonic() + timeout
        session = _session(address, tls)
        sock = dialed(address, timeout)
        try:
            _shake(session, sock, until)
        except TimeoutError as error:
            sock.close()
            raise ConnectFailed(f"{address} did not end the TLS handshake within {in_words(timeout)}") from error
        except BaseException:
            sock.close()
            raise
        return SecureLink(session, sock)


def _session(address: Address, tls: Tls | None) -> Session:
    return Session(client_context(tls, address), address, server=False, name=server_name(tls, address))


def _shake(session: Session, sock: socket.socket, until: float) -> None:
    """Finish a client's handshake on a blocking socket."""
    while True:
        done = session.handshake()
        sock.settimeout(max(0.001, until - monotonic()))
        try:
            sock.sendall(session.outgoing())
            if not done and (data := sock.recv(_PIECE)):
                session.feed(data)
            elif not done:
                session.feed_eof()
        except ConnectionError:
            session.feed_eof()
        if session.failure is not None:
            raise session.failure
        if done:
            return
        if monotonic() >= until:
            raise TimeoutError


class SecureLink:
    """A TLS connection as a link. See transports.base.Link."""

    def __init__(self, session: Session, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._session = session
        self._socket = sock
        self._held = memoryview(b"")
        "Encrypted bytes that are not written yet."
        self._taken = 0
        "Bytes of the argument of ``send`` that are encrypted already."

    @property
    def certificate(self) -> dict[str, Any] | None:
        """The server's certificate."""
        return self._session.certificate

    def fileno(self) -> int:
        """The socket's descriptor."""
        return self._socket.fileno()

    def send(self, data: memoryview) -> int:
        """Send at most one record."""
        if not self._taken:
            piece = data[:_PIECE]
            self._taken = len(piece)
            self._session.write(piece)
        self.flush()
        if self._held:
            raise BlockingIOError
        taken, self._taken = self._taken, 0
        return taken

    def recv(self, size: int) -> bytes:
        """Return what can be decrypted."""
        session = self._session
        data = session.read()
        while not data and not session.ended and session.failure is None:
            arrived = self._socket.recv(size)
            if not arrived:
                raise ConnectionClosed("the peer cut the connection without ending TLS first", rule="TR-05")
            session.feed(arrived)
            data = session.read()
            with suppress(OSError):  # send raises it as well
                self.flush()
        if not data and session.failure is not None:
            raise session.failure.again()
        return data

    def pending(self) -> bool:
        """Whether a failure waits to be raised; ``recv`` returns all decrypted bytes itself."""
        return self._session.failure is not None

    def flush(self) -> None:
        """Write encrypted bytes."""
        while True:
            if not self._held:
                self._held = memoryview(self._session.outgoing())
                if not self._held:
                    return
            try:
                self._held = self._held[self._socket.send(self._held) :]
            except (BlockingIOError, InterruptedError):
                return

    def events(self, reading: bool, writing: bool) -> int:
        """The events that the driver wants, and POLLOUT while encrypted bytes wait."""
        return (select.POLLIN if reading else 0) | (select.POLLOUT if writing or self._held else 0)

    def end_writing(self) -> None:
        """Send a close_notify and end the socket's half."""
        self._session.end()
        self.flush()
        self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


TRANSPORT = SecureTcp()
"The transport ``tls``."
