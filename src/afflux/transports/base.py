"""Define what a transport offers to the drivers.

A transport module has one object ``TRANSPORT``. It opens links for the asyncio driver (``open``, ``listen``) and
for the blocking one (``dial``). The asyncio side hands out ordinary ``asyncio.Transport`` objects, so a
driver needs nothing else. A transport of messages (WebSocket) reads ``address.entry.framing`` to
remove the length of each frame and to put it back: engines and drivers always see a stream of bytes.

A transport on top of another (TLS, WebSocket) calls ``connection_made`` at a server as soon as the socket is accepted,
with a transport object that waits for its handshake: writes are sent after it, ``close`` and ``write_eof`` before its
end are ``abort``. So an unfinished handshake is counted, timed and closed like any connection without a SETUP. At a
client ``connection_made`` comes after the handshake, because ``open`` raises the reason of a failure. A link that
breaks for a known reason passes an afflux error to ``connection_lost``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from afflux.core.limits import Limits
    from afflux.transports.address import Address
    from afflux.transports.reading import Receiver
    from afflux.transports.security import Tls

__all__ = ["RECOGNIZED", "Admission", "Factory", "Link", "Listener", "Transport", "foreign"]

RECOGNIZED = "afflux.protocol"
"""The name of ``get_extra_info`` for the protocol that a transport of messages has recognized, because its framing
depends on the protocol."""


class Admission(Protocol):
    """Decides which connections a listener accepts, before a byte is read."""

    def exhausted(self, error: OSError) -> float:
        """Report that the system has nothing left for another connection, such as a descriptor; return the seconds to
        wait."""

    @property
    def flush(self) -> float:
        """Seconds that the last bytes to a peer may take, such as the reason of a failed handshake."""

    @property
    def reuse_port(self) -> bool:
        """Whether other processes may listen at the same address and port, and share the connections."""

    def admit(self, host: str) -> str | None:
        """Admit one more connection from ``host`` and return None, or return the reason of the refusal."""

    def refuse_page(self, origins: list[str], hosts: list[str]) -> str | None:
        """Return None if a request with these Origin and Host headers may open a WebSocket; otherwise count and log the
        refusal, and return its sentence."""

    def last_words(self, reason: str) -> bytes:
        """The bytes that give a refused connection the reason; ``b""`` where the protocol has none."""

    def delay(self) -> float:
        """Seconds to wait before the next accept; 0 to accept now."""


Factory = Callable[[str], "Receiver"]
"Creates the protocol object of an accepted connection, given the client's host."


class Listener(Protocol):
    """Accepts connections until it is closed."""

    @property
    def address(self) -> Address:
        """The address that clients connect to: the bound port, without the server's own options (certificates)."""

    def close(self) -> None:
        """Stop accepting. Open connections continue."""


class Link(Protocol):
    """One connection for the blocking driver. No method waits: the driver polls ``fileno`` and calls again."""

    @property
    def certificate(self) -> dict[str, Any] | None:
        """The peer's certificate as ``ssl.SSLSocket.getpeercert`` returns it; None without one."""

    def fileno(self) -> int:
        """The descriptor to poll."""

    def send(self, data: memoryview) -> int:
        """Write from the beginning of ``data`` and return how many bytes were taken.

        Raises:
            BlockingIOError: no room now. Pass the same bytes again: the link may have buffered a part of them.
            OSError: the link is broken. ``recv`` may still return earlier input, such as the peer's reason.
        """

    def recv(self, size: int) -> bytes:
        """Return received bytes: about ``size`` at most, ``b""`` at the end.

        Raises:
            BlockingIOError: nothing has arrived.
            Error: the link ended for a known reason.
            OSError: the link is broken.
        """

    def pending(self) -> bool:
        """Whether ``recv`` has something to return that poll does not report."""

    def flush(self) -> None:
        """Write the link's own bytes (a handshake, a pong) as far as the socket has room. ``send`` and ``recv`` do so
        as well; call this when the socket has room and there is nothing to send.

        Raises:
            OSError: the link is broken.
        """

    def events(self, reading: bool, writing: bool) -> int:
        """Return the events to poll for (``select.POLLIN``, ``select.POLLOUT``), by the wanted directions."""

    def end_writing(self) -> None:
        """End this half; the peer sees the end. Input after it is discarded.

        Raises:
            OSError: it is too late.
        """

    def close(self) -> None:
        """Close the socket. Calling it again is a no-op."""


class Transport(Protocol):
    """One way to carry bytes. ``tls`` is the argument of afflux.connect and afflux.serve; options of ``address`` take
    precedence over it (security.settled). A transport without TLS gets None."""

    async def open(self, address: Address, factory: Callable[[], Receiver], tls: Tls | None = None) -> None:
        """Open a link and connect a protocol object to it.

        Raises:
            AddressError: a certificate or a key cannot be used.
            ConnectFailed: there is no listener, or the handshake failed.
        """

    async def listen(
        self, address: Address, admission: Admission, factory: Factory, tls: Tls | None = None
    ) -> Listener:
        """Accept links.

        Raises:
            AddressError: a certificate or a key cannot be used.
            BindFailed: the address is not available.
        """

    def refusal(self, address: Address, reason: str) -> bytes:
        """The bytes that give a refused connection the reason before anything was read from it; ``b""`` where the
        transport has none."""

    def dial(self, address: Address, timeout: float, tls: Tls | None = None, limits: Limits | None = None) -> Link:
        """Open a link for the blocking driver. ``limits`` bound a link that buffers; under asyncio the
        limits of the driver's engine do.

        Raises:
            AddressError: a certificate or a key cannot be used.
            ConnectFailed: there is no listener, no answer within ``timeout`` seconds, or the handshake failed.
            Unsupported: this transport has no blocking side.
        """


def foreign(data: bytes) -> str | None:
    """Return the name of the protocol that a peer's first bytes belong to; None for an unknown one."""
    if data.startswith((b"HTTP/", b"GET ", b"POST ", b"PRI * HTTP/2")):
        return "HTTP"
    if data.startswith(b"SSH-"):
        return "SSH"
    if data.startswith((b"\x15\x03", b"\x16\x03")) and data[2:3] <= b"\x04":
        return "TLS"
    return None
