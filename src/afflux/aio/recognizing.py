"""Serve several protocols at one address: recognize each client's protocol from its first bytes.

1. ``Wires`` lists the protocols of a server. With an address of one protocol that is all it does.
2. With ``auto``, ``Recognizing`` is the first protocol object of a connection. When the first bytes decide, it passes
   the transport and the bytes to a connection of that protocol, which receives all later bytes itself.
3. A connection that is not recognized yet counts as an unfinished handshake. ``handshake_s`` bounds recognition and
   handshake together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from afflux.core.entry import ProtocolEntry
from afflux.core.errors import Error, Unsupported
from afflux.core.limits import Limits
from afflux.core.recognition import UNRECOGNIZED, Recognition, Unrecognized, recognize, unknown
from afflux.protocols.registry import AUTO, recognizable
from afflux.transports.address import Address
from afflux.transports.base import RECOGNIZED, foreign
from afflux.transports.reading import Receiver
from afflux.watching import SERVERS

if TYPE_CHECKING:
    from afflux.aio.clients import Clients, ServerConnection
    from afflux.core.engine import Engine
    from afflux.core.terms import Terms

__all__ = ["Recognizing", "Wires"]


class Wires:
    """The protocols of one server, and their engines. ``begin`` makes the connection of an admitted client, given its
    protocol, its host and the time of its admission."""

    def __init__(
        self,
        address: Address,
        clients: Clients,
        terms: Terms,
        limits: Limits,
        begin: Callable[[ProtocolEntry, str, float], ServerConnection],
    ) -> None:
        self.recognizes = address.protocol == AUTO
        "Whether the protocol of each client is recognized."
        self._entries = recognizable() if self.recognizes else (address.entry,)
        self._terms = terms
        self._decide = clients.on_setup is not None
        self.gate = clients.gate
        self.limits = limits
        self.begin = begin
        self.unserved: dict[str, str] = {}
        "Protocols that cannot be served as requested, each with the reason."
        self.waiting: set[Recognizing] = set()
        "Connections whose protocol is not recognized yet."
        self._uris: dict[str, str] = {}
        self.bind(address)

    @property
    def served(self) -> tuple[str, ...]:
        """The names of the protocols that are served."""
        names = (entry.name for entry in self._entries if not entry.unguessed or not self.recognizes)
        return tuple(name for name in names if name not in self.unserved)

    def make(self, entry: ProtocolEntry, now: float) -> Engine:
        """Make the engine of a connection."""
        return entry.make("server", self._terms, limits=self.limits, decide=self._decide, now=now)

    def check(self) -> None:
        """Make an engine of each protocol, which imports its modules and checks the server's terms.

        Raises:
            Unsupported: no protocol supports the terms.
        """
        self.unserved.clear()
        for entry in self._entries:
            try:
                self.make(entry, 0.0)
            except Unsupported as error:
                if not self.recognizes:
                    raise
                self.unserved[entry.name] = error.message
                SERVERS.warning("afflux: %s does not serve %s: %s", self.address, entry.name, error.message)
        if not self.served:
            raise Unsupported(f"no protocol can be served: {'; '.join(self.unserved.values())}")

    def bind(self, address: Address) -> None:
        """Note the address that the server listens on."""
        self.address = str(address)
        self._uris = {entry.name: str(replace(address, protocol=entry.name)) for entry in self._entries}

    def uri(self, protocol: str) -> str:
        """Return the address of one of the protocols. One string for all its clients."""
        return self._uris[protocol]

    def recognize(self, data: bytes) -> Recognition:
        """Recognize the protocol of a client."""
        return recognize(self._entries, data)

    def named(self, name: str) -> ProtocolEntry:
        """Return one of the protocols."""
        return next(entry for entry in self._entries if entry.name == name)

    def explain(self, data: bytes, found: Recognition) -> str:
        """Return the reason why the first bytes of a client do not select a protocol."""
        text = unknown(data, complete=not found.more)
        if other := foreign(data):
            text += f" ({other})"
        elif found.candidates:
            text += f" ({' or '.join(entry.name for entry in found.candidates)})"
        return f"{text}; served here: {', '.join(self.served)}"

    def close(self) -> None:
        """Abort the connections whose protocol is not recognized yet."""
        for one in tuple(self.waiting):
            one.abort()


class Recognizing(Receiver):
    """The protocol object of a connection whose protocol is not recognized yet."""

    __slots__ = ("_begun", "_data", "_timer", "_transport", "_view", "_wires", "counted", "host")

    def __init__(self, wires: Wires, host: str, now: float) -> None:
        self._view = None
        self._wires = wires
        self.host = host
        "The host that the client connected from."
        self.counted = True
        "The gate counts the connection."
        self._begun = now
        self._data = b""
        self._transport: asyncio.Transport | None = None
        self._timer = asyncio.get_running_loop().call_later(wires.limits.handshake_s, self._end)
        wires.waiting.add(self)

    @property
    def limits(self) -> Limits:
        """The bounds of the connection."""
        return self._wires.limits

    def crowd_out(self, error: Error) -> None:
        """End the connection, because another one takes its place."""
        self.abort()

    def abort(self) -> None:
        """End the connection without an answer."""
        self._leave()
        if self._transport is not None:
            self._transport.abort()

    # -- asyncio.BufferedProtocol -------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Attach the transport."""
        self._transport = cast("asyncio.Transport", transport)
        if not self.counted:  # aborted before it had its transport; in the next turn, because uvloop is not ready
            asyncio.get_running_loop().call_soon(self._transport.abort)

    def data_received(self, data: bytes) -> None:
        """Recognize the protocol, or wait for more bytes."""
        if not self.counted or self._transport is None:
            return
        self._data += data
        name: str | None = self._transport.get_extra_info(RECOGNIZED)
        if name is not None:
            self._found(self._wires.named(name), self._transport)
            return
        found = self._wires.recognize(self._data)
        if found.protocol is not None:
            self._found(found.protocol, self._transport)
        elif not found.more:
            self._refuse(self._wires.explain(self._data, found))

    def eof_received(self) -> bool:
        """The client has ended its half too early."""
        self._end()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The transport is gone. A WebSocket that was not recognized passes the reason."""
        if isinstance(exc, Unrecognized):
            self._refuse(exc.message)
        else:
            self._end()

    # -- inside -------------------------------------------------------------------------------------------------

    def _found(self, entry: ProtocolEntry, transport: asyncio.Transport) -> None:
        """Continue as a connection of a protocol."""
        wires = self._wires
        if (reason := wires.unserved.get(entry.name)) is not None:
            if entry.refusal is not None:
                transport.write(entry.refusal(reason))
            self._refuse(f"{entry.name} is not served: {reason}")
            return
        self._leave(counted=True)
        connection = wires.begin(entry, self.host, self._begun)
        wires.gate.handshakes[connection] = self._begun
        connection.driver.pump.adopt(transport, self._data)

    def _end(self) -> None:
        """End the connection: its first bytes did not come in time, or not all of them."""
        if self._data:
            self._refuse(self._wires.explain(self._data, Recognition(None, (), more=True)))
        else:
            self._refuse(None)

    def _refuse(self, reason: str | None) -> None:
        """Close the connection; count and log it, if there is a ``reason``."""
        if not self.counted:
            return
        if reason is not None:
            self._wires.gate.turn_away(UNRECOGNIZED, reason, self._wires.address)
        self._leave()
        if self._transport is not None:
            self._transport.close()

    def _leave(self, *, counted: bool = False) -> None:
        """No longer wait for bytes. ``counted``: the connection continues to count, under another object."""
        self._timer.cancel()
        self._wires.waiting.discard(self)
        self._wires.gate.handshakes.pop(self, None)
        if counted:
            self.counted = False
        else:
            self._wires.gate.uncount(self)
