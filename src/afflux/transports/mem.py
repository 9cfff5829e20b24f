"""Connect two ends in one process and one event loop without a socket: ``mem://name``.

Bytes that one end writes reach the other's ``data_received`` in a later turn of the loop, in pieces of at most 64 KiB.
While an end has paused reading, the other's buffer grows until ``pause_writing``.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, cast
from weakref import WeakKeyDictionary

from afflux.core.errors import BindFailed, ConnectFailed, Unsupported
from afflux.transports.address import Address
from afflux.transports.base import Admission, Factory, Link, Listener
from afflux.transports.reading import GONE, Receiver
from afflux.transports.stream import BufferedTransport

if TYPE_CHECKING:
    from afflux.core.limits import Limits
    from afflux.transports.security import Tls

__all__ = ["TRANSPORT", "Mem", "MemTransport", "Network", "networks", "pair"]

_PIECE = 0x10000
_listening: dict[str, _MemListener] = {}
_tasks: set[asyncio.Task[None]] = set()


class Network(Protocol):
    """Joins the ends of a loop's links in place of ``pair``, such as the one of ``afflux.testing``."""

    async def reach(self, address: Address) -> Callable[[Receiver, Receiver], object]:
        """Return a function that joins the client's protocol object with the server's.

        Raises:
            ConnectFailed: the server cannot be reached.
        """


networks: WeakKeyDictionary[asyncio.AbstractEventLoop, Network] = WeakKeyDictionary()
"The networks in use, by loop."


class Mem:
    """See transports.base.Transport."""

    async def open(self, address: Address, factory: Callable[[], Receiver], tls: Tls | None = None) -> None:
        """Connect to a listener of this loop."""
        network = networks.get(asyncio.get_running_loop())
        join = pair if network is None else await network.reach(address)
        listener = _listening.get(address.host)
        if listener is None or listener.loop is not asyncio.get_running_loop():
            raise ConnectFailed(f"cannot connect to {address}: no listener of that name in this event loop")
        if (reason := await listener.admitted()) is not None:
            raise ConnectFailed(f"cannot connect to {address}: {reason}")
        join(factory(), listener.factory(""))

    async def listen(
        self, address: Address, admission: Admission, factory: Factory, tls: Tls | None = None
    ) -> Listener:
        """Listen under the name."""
        known = _listening.get(address.host)
        if known is not None and not known.loop.is_closed():
            raise BindFailed(f"cannot listen on {address}: the name is in use")
        return _MemListener(address, admission, factory)

    def refusal(self, address: Address, reason: str) -> bytes:
        """Return ``b""``: ``open`` raises the reason."""
        return b""

    def dial(self, address: Address, timeout: float, tls: Tls | None = None, limits: Limits | None = None) -> Link:
        """Raise Unsupported: the other end would never run."""
        raise Unsupported("mem has no blocking side: use tcp")


class _MemListener:
    def __init__(self, address: Address, admission: Admission, factory: Factory) -> None:
        self.address = address
        self.factory = factory
        self.loop = asyncio.get_running_loop()
        self._admission = admission
        _listening[address.host] = self

    async def admitted(self) -> str | None:
        """Wait until the server admits the connection; return None, or the reason of its refusal."""
        while (seconds := self._admission.delay()) > 0:
            await asyncio.sleep(seconds)
        return self._admission.admit("")

    def close(self) -> None:
        """Release the name."""
        if _listening.get(self.address.host) is self:
            del _listening[self.address.host]


def pair(one: Receiver, other: Receiver) -> tuple[MemTransport, MemTransport]:
    """Join two protocol objects and call ``connection_made`` on both."""
    loop = asyncio.get_running_loop()
    left, right = MemTransport(loop, one), MemTransport(loop, other)
    left.other, right.other = right, left
    one.connection_made(left)
    other.connection_made(right)
    return left, right


class MemTransport(BufferedTransport):
    """One end of a connection."""

    def __init__(self, loop: asyncio.AbstractEventLoop, protocol: Receiver) -> None:
        super().__init__(protocol, high=_PIECE, extra={"peername": ("mem", 0)})
        self._loop = loop
        self.other: MemTransport
        self._sent: deque[bytes] = deque()
        self._ended = False
        self.lost = False
        "The protocol object has been notified, or is about to be, that the link is gone."
        self._delivering = False

    # Called by a protocol.

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Queue bytes for the other end."""
        if self.closing or self._ended or not data:
            return
        self._sent.append(bytes(data))
        self.unsent += len(data)
        if self.unsent > self.high:
            self.check_full()
        self.deliver_soon()

    def write_eof(self) -> None:
        """End this half."""
        self._ended = True
        self.deliver_soon()

    def resume_reading(self) -> None:
        """Deliver again."""
        self.reading = True
        self.other.deliver_soon()

    def close(self) -> None:
        """Close when everything is delivered."""
        if not self.closing:
            self.closing = self._ended = True
            self.deliver_soon()

    def abort(self) -> None:
        """Close now; undelivered bytes are lost."""
        self._drop()
        self.follow()

    # Called by the other end.

    def deliver_soon(self) -> None:
        """Deliver in a later turn of the loop."""
        if not self._delivering:
            self._delivering = True
            self._loop.call_soon(self._deliver)

    def follow(self) -> None:
        """Follow the other end, which has closed."""
        self.closing = self._ended = True
        self._lose()

    # Inside.

    def _deliver(self) -> None:
        """Deliver one read to the other end."""
        self._delivering = False
        if self.lost:
            return
        other = self.other
        if other.closing or other.lost:
            self._drop()
        elif self._sent and other.reading:
            other.protocol.data_received(self._take())
        if self.full:
            self.check_full()
        if self._sent:
            if other.reading or other.closing:
                self.deliver_soon()
        elif self._ended and (other.reading or other.closing or other.lost):
            self._end()  # an end that does not read does not see the end, as with a socket

    def _take(self) -> bytes:
        piece = bytearray()
        while self._sent and len(piece) < _PIECE:
            head = self._sent.popleft()
            keep = _PIECE - len(piece)
            piece += head[:keep]
            if len(head) > keep:
                self._sent.appendleft(head[keep:])
        self.unsent -= len(piece)
        return bytes(piece)

    def _drop(self) -> None:
        self._sent.clear()
        self.unsent = 0

    def _end(self) -> None:
        """End the half after its last byte."""
        other = self.other
        if not other.lost and not other.closing and not other.protocol.eof_received():
            other.close()
        if self.closing:
            self._lose()

    def _lose(self) -> None:
        if not self.lost:
            self.lost = True
            self._loop.call_soon(self._report_loss)
            if not self.other.closing:
                self._loop.call_soon(self.other.follow)

    def _report_loss(self) -> None:
        """Call ``connection_lost`` and drop the protocol object; the second of the two ends breaks the reference
        cycle."""
        protocol, self.protocol = self.protocol, GONE
        self._sent.clear()
        other = self.other
        if other.protocol is GONE:
            self.other = other.other = _NOWHERE
        protocol.connection_lost(None)


class _Nowhere(MemTransport):
    """Replaces the other end when both are over."""

    def deliver_soon(self) -> None:
        """No-op."""


_NOWHERE = _Nowhere(cast("Any", None), GONE)
_NOWHERE.lost = _NOWHERE.closing = True

TRANSPORT: Any = Mem()
"The transport ``mem``."
