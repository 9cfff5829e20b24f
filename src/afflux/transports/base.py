"""What a transport offers to the drivers. No protocol and no particular transport lives here.

A transport module has one object ``TRANSPORT``. It opens links for the asyncio driver (``open``, ``listen``) and
for the blocking one (``dial``). The asyncio side hands out ordinary ``asyncio.Transport`` objects, so that a
driver needs to know nothing more. A transport of messages (WebSocket) looks up in ``address.entry.framing`` how to
take the length off each frame and put it back: engines and drivers see a stream of bytes all the same.

A transport that lies on another (TLS, WebSocket) calls ``connection_made`` at a server as soon as the socket is
there, with a transport object that waits for its handshake: what is written is sent behind it, ``close`` and
``write_eof`` before its end are ``abort``. So half a handshake is counted, timed and given up like any connection
that has not said who it is. At a client ``connection_made`` comes after the handshake, because ``open`` has to say
why it failed. A link that breaks with a reason worth telling gives ``connection_lost`` an afflux error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from afflux.core.limits import Limits
    from afflux.transports.address import Address
    from afflux.transports.reading import Receiver
    from afflux.transports.security import Tls

__all__ = ["Admission", "Factory", "Link", "Listener", "Transport", "foreign"]


class Admission(Protocol):
    """Decides which connections a listener takes, before a byte is read."""

    @property
    def backoff(self) -> float:
        """Seconds to wait when descriptors have run out."""

    @property
    def flush(self) -> float:
        """Seconds that the last words to a peer may take, such as why its handshake failed."""

    @property
    def origins(self) -> frozenset[str] | None:
        """The origins whose pages may open a WebSocket; None for any."""

    @property
    def reuse_port(self) -> bool:
        """Whether other processes may listen at the same address and port, and share the connections."""

    def admit(self, host: str) -> str | None:
        """Admit one more connection from ``host``: None. Otherwise the reason why it is refused."""

    def last_words(self, reason: str) -> bytes:
        """The bytes that tell a refused connection why, ``b""`` where nothing can be said."""

    def delay(self) -> float:
        """Seconds to wait before the next accept; 0 to accept now."""


Factory = Callable[[str], "Receiver"]
"Makes the protocol object of an accepted connection, given the host it came from."


class Listener(Protocol):
    """Something that accepts connections until it is closed."""

    @property
    def address(self) -> Address:
        """Where it really listens: what a client connects to, without what is the server's own (certificates)."""

    def close(self) -> None:
        """Accept no more. Connections that exist go on."""


class Link(Protocol):
    """One connection for the blocking driver. Nothing here waits: the driver polls ``fileno`` and comes back."""

    @property
    def certificate(self) -> dict[str, Any] | None:
        """The peer's certificate as ``ssl.SSLSocket.getpeercert`` gives it; None without one."""

    def fileno(self) -> int:
        """What to poll."""

    def send(self, data: memoryview) -> int:
        """Write from the beginning of ``data`` and say how many bytes were taken.

        Raises:
            BlockingIOError: nothing more goes for now. Offer the same bytes again: the link may hold a part of them.
            OSError: the link is broken. ``recv`` may still have what the peer said before, such as why.
        """

    def recv(self, size: int) -> bytes:
        """What has come: about ``size`` bytes at most, ``b""`` at the end.

        Raises:
            BlockingIOError: nothing is there for now.
            Error: the link is over for a reason worth telling.
            OSError: the link is broken.
        """

    def pending(self) -> bool:
        """Whether ``recv`` has something to give that poll does not know of."""

    def flush(self) -> None:
        """Write what the link itself has to say (a handshake, a pong), as far as it goes. ``send`` and ``recv`` do
        so too; this is for when the socket has room and there is nothing to send.

        Raises:
            OSError: the link is broken.
        """

    def events(self, reading: bool, writing: bool) -> int:
        """What to poll for (``select.POLLIN``, ``select.POLLOUT``), given what the driver wants."""

    def end_writing(self) -> None:
        """Nothing more will be sent, and the peer is told. What is still read afterwards is of no use to anyone.

        Raises:
            OSError: it is too late.
        """

    def close(self) -> None:
        """Give up the socket. More than once is fine."""


class Transport(Protocol):
    """One way to carry bytes. ``tls`` is what afflux.connect and afflux.serve were given, and what ``address`` says
    wins over it (security.settled); a transport without TLS is only ever given None."""

    async def open(self, address: Address, factory: Callable[[], Receiver], tls: Tls | None = None) -> None:
        """Open a link and connect a protocol object to it.

        Raises:
            AddressError: a certificate or a key cannot be used.
            ConnectFailed: nobody is there, or the handshake failed.
        """

    async def listen(
        self, address: Address, admission: Admission, factory: Factory, tls: Tls | None = None
    ) -> Listener:
        """Accept links.

        Raises:
            AddressError: a certificate or a key cannot be used.
            BindFailed: the address cannot be had.
        """

    def refusal(self, address: Address, reason: str) -> bytes:
        """The bytes that tell a connection why it is not taken, before anything was read from it; ``b""`` where
        nothing can be said."""

    def dial(self, address: Address, timeout: float, tls: Tls | None = None, limits: Limits | None = None) -> Link:
        """Open a link for the blocking driver. ``limits`` are those of the connection, for a link that has something
        to bound; under asyncio they are those of the driver's engine.

        Raises:
            AddressError: a certificate or a key cannot be used.
            ConnectFailed: nobody is there, or not within ``timeout`` seconds, or the handshake failed.
            Unsupported: this transport has no blocking side.
        """


def foreign(data: bytes) -> str | None:
    """What a peer speaks that begins with these first bytes, when it is well known."""
    if data.startswith((b"HTTP/", b"GET ", b"POST ", b"PRI * HTTP/2")):
        return "HTTP"
    if data.startswith(b"SSH-"):
        return "SSH"
    if data.startswith((b"\x15\x03", b"\x16\x03")) and data[2:3] <= b"\x04":
        return "TLS"
    return None
