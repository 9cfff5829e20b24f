"""Implement the part of asyncio's transport contract that is the same for all transports of afflux.

``BufferedTransport`` buffers what it writes: ``mem``, a link of ``afflux.testing``, a WebSocket of an ASGI server.
``Layer`` translates the bytes of another transport, TLS or WebSocket, and ``LayerTransport`` is the end that its driver
uses. How bytes move is defined by the subclasses.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, cast

from afflux.transports.base import RECOGNIZED
from afflux.transports.reading import GONE, Receiver

__all__ = ["BufferedTransport", "Layer", "LayerTransport"]


class StreamTransport(asyncio.Transport):
    """A transport of which each half ends by itself."""

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        """Write several pieces."""
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        """Return True, unlike asyncio's own TLS."""
        return True


class BufferedTransport(StreamTransport):
    """A transport that buffers what it writes."""

    def __init__(self, protocol: Receiver = GONE, *, high: int, extra: dict[str, Any] | None = None) -> None:
        super().__init__(extra)
        self.protocol = protocol
        "The object that receives the input."
        self.unsent = 0
        "Bytes that were written and have not left."
        self.reading = True
        "Input is delivered."
        self.closing = False
        "The end is closed, or about to be."
        self.full = False
        "Writing is paused."
        self._default_high = high
        self.set_write_buffer_limits()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Deliver to another protocol object."""
        self.protocol = cast("Receiver", protocol)

    def buffered(self) -> int:
        """Return the number of bytes that have not left."""
        return self.unsent

    get_write_buffer_size = buffered
    "asyncio's name for it."

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the limits at which writing pauses and resumes."""
        self.high = self._default_high if high is None else high
        self.low = self.high // 4 if low is None else low

    def check_full(self) -> None:
        """Pause or resume the writing of the protocol object."""
        if self.unsent > self.high and not self.full:
            self.full = True
            self.protocol.pause_writing()
        elif self.full and self.unsent <= self.low:
            self.full = False
            self.protocol.resume_writing()

    def pause_reading(self) -> None:
        """Deliver nothing for now."""
        self.reading = False

    def is_reading(self) -> bool:
        """Whether input is delivered."""
        return self.reading and not self.closing

    def is_closing(self) -> bool:
        """Whether the end is closed, or about to be."""
        return self.closing


class Layer(Receiver, ABC):
    """The protocol object of a socket, and the link that a ``LayerTransport`` uses."""

    raw: asyncio.Transport
    "The transport below, from ``connection_made`` on."

    def __init__(self, upper: Receiver) -> None:
        self.upper = upper
        "The driver."
        self.reading = True
        "The driver accepts input."
        self.closing = False
        "The link is closed, or about to be; the driver needs no more input."
        self.made = False
        "The driver has its transport."
        self.recognized: str | None = None
        "The name of the protocol that a layer of messages has recognized."
        self.loop = asyncio.get_running_loop()
        self._pass_queued = False

    def make(self) -> None:
        """Give the driver its transport."""
        self.made = True
        self.upper.connection_made(LayerTransport(self))

    def pass_soon(self) -> None:
        """Call ``next_pass`` in a turn of its own, once."""
        if not self._pass_queued:
            self._pass_queued = True
            self.loop.call_soon(self._pass)

    def _pass(self) -> None:
        self._pass_queued = False
        self.next_pass()

    @abstractmethod
    def next_pass(self) -> None:
        """Process input that has been buffered here."""

    # Called by the LayerTransport.

    @abstractmethod
    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send; before the end of the handshake the data waits."""

    @abstractmethod
    def write_eof(self) -> None:
        """End this half; input of the peer is still read. Before the handshake it is ``abort``."""

    @abstractmethod
    def close(self) -> None:
        """Close when everything is written; before the handshake it is ``abort``."""

    @abstractmethod
    def abort(self) -> None:
        """Close now."""

    @abstractmethod
    def read(self, wanted: bool) -> None:
        """Start or stop delivering input."""

    @property
    def unsent(self) -> int:
        """Bytes that wait to be written, in the socket's buffer and here."""
        return self.raw.get_write_buffer_size()

    def set_limits(self, high: int | None, low: int | None) -> None:
        """Set the limits at which writing pauses and resumes."""
        self.raw.set_write_buffer_limits(high, low)

    def info(self, name: str, default: Any) -> Any:
        """Return information of the transport below."""
        return self.raw.get_extra_info(name, default)


class LayerTransport(StreamTransport):
    """The transport that the driver of a layer writes to and pauses."""

    def __init__(self, layer: Layer) -> None:
        super().__init__()
        self._layer = layer

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send; before the end of the handshake the data waits."""
        self._layer.write(data)

    def write_eof(self) -> None:
        """End this half; input of the peer is still read."""
        self._layer.write_eof()

    def close(self) -> None:
        """Close when everything is written."""
        self._layer.close()

    def abort(self) -> None:
        """Close now."""
        self._layer.abort()

    def is_closing(self) -> bool:
        """Whether the link is closed, or about to be."""
        return self._layer.closing

    def pause_reading(self) -> None:
        """Deliver nothing for now. A handshake continues."""
        self._layer.read(False)

    def resume_reading(self) -> None:
        """Deliver again; bytes that have arrived meanwhile are delivered in a later turn of the loop."""
        self._layer.read(True)

    def is_reading(self) -> bool:
        """Whether bytes that arrive are delivered."""
        return self._layer.reading and not self._layer.closing

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Deliver to another driver."""
        self._layer.upper = cast("Receiver", protocol)

    def buffered(self) -> int:
        """Return the number of bytes that wait to be written, here and in the socket's buffer."""
        return self._layer.unsent

    get_write_buffer_size = buffered
    "asyncio's name for it."

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the limits at which writing pauses and resumes."""
        self._layer.set_limits(high, low)

    def extra_info(self, name: str, default: Any = None) -> Any:
        """Return information of the layer, or of the transport below."""
        if name == RECOGNIZED:
            return self._layer.recognized
        return self._layer.info(name, default)

    get_extra_info = extra_info
    "asyncio's name for it."
