"""Answer a WebSocket handshake: the server's end.

At an address ``auto+ws://`` a known subprotocol selects the protocol. Otherwise the first message does, before anything
is delivered, because the framing depends on the protocol.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, cast
from urllib.parse import unquote

from websockets.exceptions import NegotiationError
from websockets.http11 import Request, Response
from websockets.server import ServerProtocol

from afflux.core.entry import ProtocolEntry
from afflux.core.errors import RemoteProtocolError
from afflux.core.limits import REASONS, Limits
from afflux.core.recognition import UNRECOGNIZED, Unrecognized, recognize, unknown
from afflux.protocols.registry import AUTO, recognizable
from afflux.transports.address import Address
from afflux.transports.strangers import refused_message
from afflux.transports.ws_origins import refusal_of
from afflux.transports.ws_rules import POLICY, Refusal, chosen
from afflux.transports.ws_wire import Wire

__all__ = ["ServerWire"]

_HEAD_ENDS: Final = b"\r\n\r\n"
_NO_HTTP: Final = "this is a WebSocket, which begins with a request of HTTP/1.1"

RefusePage = Callable[[list[str], list[str]], str | None]
"See ``refuse_page`` of transports.base.Admission."

_SAME_HOST: Final[RefusePage] = partial(refusal_of, None)

_METHOD = re.compile(rb"[A-Z]{1,16}(?: |\Z)")
"The beginning of a request: its method, or the part of it that has arrived."


class ServerWire(Wire):
    """The end that accepts. It serves one path, one subprotocol (``ws_rules.chosen``), and the pages that
    ``refuse_page`` does not refuse (see transports.base.Admission)."""

    def __init__(self, address: Address, limits: Limits, refuse_page: RefusePage = _SAME_HOST) -> None:
        self._server = _Server(max_size=limits.frame_bytes)
        self._server.wanted = address.entry.subprotocol
        super().__init__(self._server, address, limits)
        self._start = b""
        if address.protocol == AUTO:
            self._known = recognizable()
            self._server.known = {entry.subprotocol: entry for entry in self._known if entry.subprotocol}
            self._join = self._recognize
        self._protocol = address.protocol
        self._path = address.path or "/"
        self._refuse_page = refuse_page
        self._tail = b""
        self._head_size = 0
        self._last_words = b""

    def read(self, data: bytes | memoryview, found: list[bytes | bytearray]) -> None:
        """See Wire. The request is answered before any input after it is read."""
        if self.opened or self.over:
            super().read(data, found)
            return
        if not self._head_size and not _METHOD.match(data[:17]):
            self._respond(400, _NO_HTTP)  # immediately: the line may never end
            return
        server = self._server
        head, rest = self._head(bytes(data))
        server.receive_data(head)
        for event in server.events_received():
            self._answer(cast("Request", event))
        if server.handshake_exc is not None and not self.over:
            self._last_words = server.reject(400, f"{_NO_HTTP}\n").serialize()
            self._end("no WebSocket was opened: the request cannot be read")
        elif not self.opened and not self.over and self._head_size > self.limits.first_frame_bytes:
            self._respond(431, f"the request is too long ({REASONS['first_frame_bytes']})")
        if rest:
            super().read(rest, found)

    def outgoing(self) -> bytes:
        """See Wire. If the library has ended without an answer, returns the answer made here."""
        words, self._last_words = self._last_words, b""
        return super().outgoing() or words

    def _answer(self, request: Request) -> None:
        path = unquote(request.path.partition("?")[0]) or "/"
        if path != self._path:
            self._respond(404, "nothing is served at this path")
            return
        refused = self._refuse_page(request.headers.get_all("Origin"), request.headers.get_all("Host"))
        if refused is not None:
            self._respond(403, refused)
            return
        response = self._server.accept(request)
        if response.status_code == 101:
            self._server.send_response(response)
            self.opened = self.first = True
        elif response.status_code == 426:
            self._respond(426, "this is a WebSocket: connect to it with a WebSocket client", Upgrade="websocket")
        else:
            self._send(response)

    def _recognize(self, message: bytes) -> bytes:
        """Return the bytes of the first message, or b"" while the protocol is not recognized."""
        if self.recognized is None:
            self._start += message
            found = recognize(self._known, self._start, message=True)
            if found.more:
                return b""
            entry = self._server.known.get(self._server.subprotocol) or found.protocol
            if entry is None:
                text = f"{unknown(self._start)} of a WebSocket"
                self.fail(POLICY, Unrecognized(text, rule=UNRECOGNIZED))
                return b""
            message, self.recognized = self._start, entry.name
            self._frame_as(entry)
        return self._join(message)  # also for later messages of the read that begins with the first

    def _begins(self, message: bytes, found: list[bytes | bytearray]) -> None:
        """See Wire. A client of another protocol is refused with a close, which names both."""
        super()._begins(message, found)
        if self._protocol != AUTO and (refused := refused_message(message, self._protocol)) is not None:
            found.clear()
            self.over = True
            reason, self.error = refused
            self._server.fail(POLICY, reason)

    def _respond(self, status: int, sentence: str, **headers: str) -> None:
        response = self._server.reject(status, f"{sentence}\n")
        response.headers.update(headers)
        self._send(response)

    def _send(self, response: Response) -> None:
        self._server.send_response(response)
        self._end(f"no WebSocket was opened: HTTP {response.status_code}")

    def _end(self, text: str) -> None:
        self.over = True
        self.error = RemoteProtocolError.of_handshake(text)

    def _head(self, data: bytes) -> tuple[bytes, bytes]:
        """Split ``data`` into the part that belongs to the HTTP head, and the rest."""
        seen = self._tail + data
        at = seen.find(_HEAD_ENDS)
        if at < 0:
            self._tail = seen[1 - len(_HEAD_ENDS) :]
            self._head_size += len(data)
            return data, b""
        end = at + len(_HEAD_ENDS) - len(self._tail)
        self._head_size += end
        return data[:end], data[end:]


class _Server(ServerProtocol):
    """The library's server, with afflux's choice of a subprotocol."""

    wanted: str | None = None
    known: Mapping[str | None, ProtocolEntry] = {}

    def select_subprotocol(self, subprotocols: Any) -> Any:
        if self.known:
            return next((name for name in subprotocols or () if name in self.known), None)
        try:
            return chosen(self.wanted, subprotocols)
        except Refusal as refusal:
            raise NegotiationError(str(refusal)) from None
