"""Connect and listen over WebSocket: ``ws`` over TCP and ``wss`` over TLS. See ws_link.py for the asyncio side,
ws_dial.py for the blocking side, and ws_wire.py, ws_client.py and ws_server.py for the bytes.

A server serves only the path of its address, ``/`` if it has none. Pages of other hosts get 403 (ws_origins.py). A
query after the path is ignored.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING

from afflux.core.limits import Limits
from afflux.transports.address import Address
from afflux.transports.base import Admission, Factory, Link, Listener, Transport
from afflux.transports.ws_client import ClientWire
from afflux.transports.ws_server import ServerWire

if TYPE_CHECKING:
    import asyncio

    from afflux.transports.reading import Receiver
    from afflux.transports.security import Tls

__all__ = ["TRANSPORT", "WebSocket"]


class WebSocket:
    """See transports.base.Transport."""

    async def open(self, address: Address, factory: Callable[[], Receiver], tls: Tls | None = None) -> None:
        """Connect and open the WebSocket. Raises ConnectFailed with the server's answer if it refuses."""
        import asyncio

        from afflux.transports.ws_link import WebSocketLink

        upper = factory()
        limits = upper.limits
        opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        wire = ClientWire(address, limits, secure=address.carrier.secure)
        link = WebSocketLink(wire, upper, limits, opened)
        try:
            await _below(address).open(address, lambda: link, tls)
        except BaseException:
            opened.cancel()
            raise
        try:
            await opened
        except BaseException:
            opened.cancel()
            link.abort()
            raise

    async def listen(
        self, address: Address, admission: Admission, factory: Factory, tls: Tls | None = None
    ) -> Listener:
        """Accept WebSockets at the address's path."""
        from afflux.transports.ws_link import WebSocketLink

        def welcome(host: str) -> Receiver:
            upper = factory(host)
            limits = upper.limits
            return WebSocketLink(ServerWire(address, limits, admission.refuse_page), upper, limits)

        return await _below(address).listen(address, admission, welcome, tls)

    def refusal(self, address: Address, reason: str) -> bytes:
        """Return HTTP 503 with the reason; with TLS nothing, because a refused connection gets no handshake."""
        if address.carrier.secure:
            return b""
        body = f"{reason}\n".encode()
        head = f"Content-Type: text/plain; charset=utf-8\r\nContent-Length: {len(body)}\r\nConnection: close"
        return f"HTTP/1.1 503 Service Unavailable\r\n{head}\r\n\r\n".encode() + body

    def dial(self, address: Address, timeout: float, tls: Tls | None = None, limits: Limits | None = None) -> Link:
        """Connect and open the WebSocket, in ``timeout`` seconds."""
        from afflux.transports.ws_dial import handshake

        until = monotonic() + timeout
        below = _below(address).dial(address, timeout, tls)
        return handshake(below, address, limits or Limits.server(), timeout, until)


def _below(address: Address) -> Transport:
    """Return the transport below the WebSocket."""
    if address.carrier.secure:
        from afflux.transports import tls

        return tls.TRANSPORT
    from afflux.transports import tcp

    return tcp.TRANSPORT


TRANSPORT = WebSocket()
"The transports ``ws`` and ``wss``."
