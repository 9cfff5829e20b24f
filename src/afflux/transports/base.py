"""What a transport offers to the drivers. No protocol and no particular transport lives here.

A transport module has one object ``TRANSPORT``. It opens links for the asyncio driver (``open``, ``listen``) and
for the blocking one (``dial``). The asyncio side hands out ordinary ``asyncio.Transport`` objects, so that a
driver needs to know nothing more. A transport of messages (WebSocket) looks up in ``address.entry.framing`` how to
take the length off each frame and put it back: engines and drivers see a stream of bytes all the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import asyncio
    import socket

    from afflux.address import Address

__all__ = ["Admission", "Factory", "Listener", "Transport", "foreign"]


class Admission(Protocol):
    """Who may come in: a listener asks before it reads a byte."""

    @property
    def backoff(self) -> float:
        """Seconds to wait when descriptors have run out."""

    def admit(self, host: str) -> bool:
        """Whether one more connection from ``host`` may be served; False closes it unread."""

    def delay(self) -> float:
        """Seconds to wait before the next accept: 0 while the rate allows one."""


Factory = Callable[[str], "asyncio.Protocol"]
"Makes the protocol object of an accepted connection, given the host it came from."


class Listener(Protocol):
    """Something that accepts connections until it is closed."""

    @property
    def address(self) -> Address:
        """Where it really listens."""

    def close(self) -> None:
        """Accept no more. Connections that exist go on."""


class Transport(Protocol):
    """One way to carry bytes."""

    async def open(self, address: Address, factory: Callable[[], asyncio.Protocol]) -> None:
        """Open a link and connect a protocol object to it.

        Raises:
            ConnectFailed: nobody is there.
        """

    async def listen(self, address: Address, admission: Admission, factory: Factory) -> Listener:
        """Accept links.

        Raises:
            BindFailed: the address can not be had.
        """

    def dial(self, address: Address, timeout: float) -> socket.socket:
        """Open a link for the blocking driver: a connected socket.

        Raises:
            ConnectFailed: nobody is there, or not within ``timeout`` seconds.
            Unsupported: this transport has no blocking side.
        """


def foreign(data: bytes) -> str | None:
    """What a peer speaks that answers with these first bytes, when it is well known."""
    if data.startswith(b"HTTP/"):
        return "HTTP"
    if data.startswith(b"SSH-"):
        return "SSH"
    if data.startswith((b"\x15\x03", b"\x16\x03")):
        return "TLS"
    return None
