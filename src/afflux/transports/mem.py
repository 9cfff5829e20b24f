"""Connect two ends in one process and one event loop without a socket: ``mem://name``.

Bytes that one end writes reach the other's ``data_received`` in a later turn of the loop, in pieces of at most 64 KiB.
While an end has paused reading, the other's buffer grows until ``pause_writing``.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol, cast
from weakref import WeakKeyDictionary

from afflux.core.errors import BindFailed, ConnectFailed, Unsupported
from afflux.transports.address import Address
from afflux.transports.base import Admission, Factory, Link, Listener
from afflux.transports.reading import GONE, Receiver

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


class MemTransport(asyncio.Transport):  # long: asyncio's contract for a transport, and what delivers
    """One end of a connection."""

    def __init__(self, loop: asyncio.AbstractEventLoop, protocol: Receiver) -> None:
        super().__init__({"peername": ("mem", 0)})
        self._loop = loop
        self._protocol = protocol
        self.other: MemTransport
        self._sent: deque[bytes] = deque()
        self._size = 0
        self._high, self._low = _PIECE, _PIECE // 4
        self._paused_upper = False
        self._ended = False
        self._closing = False
        self._lost = False
        self._reading = True
        self._delivering = False

    # Called by a protocol.

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Deliver to another protocol object."""
        self._protocol = cast("Receiver", protocol)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Queue bytes for the other end."""
        if self._closing or self._ended or not data:
            return
        self._sent.append(bytes(data))
        self._size += len(data)
        if self._size > self._high and not self._paused_upper:
            self._paused_upper = True
            self._protocol.pause_writing()
        self._deliver_soon()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        """Queue several pieces."""
        self.write(b"".join(list_of_data))

    def write_eof(self) -> None:
        """End this half."""
        self._ended = True
        self._deliver_soon()

    def can_write_eof(self) -> bool:
        """Return True."""
        return True

    def unsent(self) -> int:
        """Return the number of bytes that were not delivered."""
        return self._size

    get_write_buffer_size = unsent
    "asyncio's name for it."

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the limits at which writing pauses and resumes."""
        self._high = _PIECE if high is None else high
        self._low = self._high // 4 if low is None else low

    def pause_reading(self) -> None:
        """Deliver nothing for now."""
        self._reading = False

    def resume_reading(self) -> None:
        """Deliver again."""
        self._reading = True
        self.other._deliver_soon()

    def is_reading(self) -> bool:
        """Whether bytes that arrive are delivered."""
        return self._reading and not self._closing

    def is_closing(self) -> bool:
        """Whether the end is closed, or about to be."""
        return self._closing

    def close(self) -> None:
        """Close when everything is delivered."""
        if not self._closing:
            self._closing = self._ended = True
            self._deliver_soon()

    def abort(self) -> None:
        """Close now; undelivered bytes are lost."""
        self._closing = self._ended = True
        self._sent.clear()
        self._size = 0
        self._lose()

    # Inside.

    def _deliver_soon(self) -> None:
        if not self._delivering:
            self._delivering = True
            self._loop.call_soon(self._deliver)

    def _deliver(self) -> None:
        """Deliver one read to the other end."""
        self._delivering = False
        if self._lost:
            return
        other = self.other
        if other._closing or other._lost:
            self._sent.clear()
            self._size = 0
        elif self._sent and other._reading:
            other._protocol.data_received(self._take())
        if self._paused_upper and self._size <= self._low:
            self._paused_upper = False
            self._protocol.resume_writing()
        if self._sent:
            if other._reading or other._closing:
                self._deliver_soon()
        elif self._ended and (other._reading or other._closing or other._lost):
            self._end()  # an end that does not read does not see the end, as with a socket

    def _take(self) -> bytes:
        piece = bytearray()
        while self._sent and len(piece) < _PIECE:
            head = self._sent.popleft()
            keep = _PIECE - len(piece)
            piece += head[:keep]
            if len(head) > keep:
                self._sent.appendleft(head[keep:])
        self._size -= len(piece)
        return bytes(piece)

    def _end(self) -> None:
        """End the half after its last byte."""
        other = self.other
        if not other._lost and not other._closing and not other._protocol.eof_received():
            other.close()
        if self._closing:
            self._lose()

    def _lose(self) -> None:
        if not self._lost:
            self._lost = True
            self._loop.call_soon(self._report_loss)
            if not self.other._closing:
                self.other._loop.call_soon(self.other._lose_soon)

    def _report_loss(self) -> None:
        """Call ``connection_lost`` and drop the protocol object; the second of the two ends breaks the reference
        cycle."""
        protocol, self._protocol = self._protocol, GONE
        self._sent.clear()
        other = self.other
        if other._protocol is GONE:
            self.other = other.other = _NOWHERE
        protocol.connection_lost(None)

    def _lose_soon(self) -> None:
        """Follow the other end, which has closed."""
        self._closing = self._ended = True
        self._lose()


_NOWHERE = MemTransport(cast("Any", None), GONE)
_NOWHERE._lost = _NOWHERE._closing = _NOWHERE._delivering = True

TRANSPORT: Any = Mem()
"The transport ``mem``."
