"""Open a WebSocket handshake and read its answer: the client's end."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, Final
from urllib.parse import quote

from websockets.client import ClientProtocol
from websockets.exceptions import InvalidHandshake
from websockets.protocol import OPEN
from websockets.uri import WebSocketURI

from afflux.core.errors import ConnectFailed, RemoteProtocolError
from afflux.core.limits import Limits
from afflux.core.recognition import mismatch, recognize, refused_by
from afflux.core.texts import one_of
from afflux.protocols.registry import recognizable
from afflux.transports.address import Address, did_you_mean
from afflux.transports.base import foreign
from afflux.transports.ws_rules import printable
from afflux.transports.ws_wire import Wire

__all__ = ["ClientWire"]

_HTTP: Final = b"HTTP/1."
_BEGIN: Final = 128
"Bytes of an answer that are quoted in errors."
_STATUS: Final = re.compile(rb"HTTP/1\.[01] ([1-5][0-9][0-9])[ \r\n]")
_ANSWER_ENDS: Final = re.compile(rb"\r?\n\r?\n")
"Some servers end the lines of a refusal with LF alone."
_LINE: Final = 8192
"The longest line of an answer that is quoted in errors."


class ClientWire(Wire):
    """The end that connects. Its request is queued when it is created."""

    def __init__(self, address: Address, limits: Limits, *, secure: bool) -> None:
        name = address.entry.subprotocol
        uri = WebSocketURI(secure, _ascii(address.host), address.port or 0, quote(address.path), "")
        offers: Any = None if name is None else [name]
        self._client = ClientProtocol(uri, subprotocols=offers, max_size=limits.frame_bytes)
        super().__init__(self._client, address, limits)
        self._address = address
        self._protocol = address.protocol
        self._mismatch = ""
        "The protocols of both sides, if the server is found to speak another one."
        self._begin = b""
        self._head_size = 0
        self._answer = bytearray()
        self._searched = 0
        self._client.send_request(self._client.connect())

    def read(self, data: bytes | memoryview, found: list[bytes | bytearray]) -> None:
        """See Wire. A server may select no subprotocol, because other implementations do not.

        The library gets only an answer with status 101. It would read the body of any other to its end, which may be
        the end of the connection.
        """
        if self.opened or self.over:
            super().read(data, found)
            return
        self._begin = (self._begin + data[:_BEGIN])[:_BEGIN]
        answer = self._answer
        answer += data
        if not (self._begin.startswith(_HTTP) or _HTTP.startswith(self._begin)):
            self._failed(self._unread())
        while not self.over and (end := _ANSWER_ENDS.search(answer, self._searched)) is not None:
            self._head_size += end.end()
            head, self._searched = bytes(answer[: end.end()]), 0
            del answer[: len(head)]
            status = _status_of(head)
            if status == 101:
                self._open(head, found)
                return
            if status is None or not 100 <= status < 200:
                self._failed(self._refused(status, head))
            elif self._head_size > self.limits.first_frame_bytes:
                self._failed(self._too_long())
        if not self.over:
            self._wait_for_more()

    @property
    def so_far(self) -> str:
        """The text about an unfinished answer; empty before it begins."""
        return f"; its answer does not end{self._quoted()}" if self._begin else ""

    def receive_eof(self) -> None:
        """See Wire."""
        super().receive_eof()
        if not self.opened and self.error is None:
            self._failed(self._unread())

    def _closed(self) -> None:
        """See Wire. A server of another protocol names it in its close."""
        super()._closed()
        if self.error is not None and (other := refused_by(self.error.message.encode(), self._protocol)):
            self.error = RemoteProtocolError.of_handshake(mismatch(other, self._protocol))

    def _wait_for_more(self) -> None:
        """Check the part of an unfinished head."""
        answer, begin = self._answer, self._begin
        self._searched = max(0, len(answer) + 1 - 4)
        if self._head_size + len(answer) > self.limits.first_frame_bytes:
            self._failed(self._too_long())
        elif (b"\n" in begin or len(begin) == _BEGIN) and _status_of(begin) is None:
            self._failed(self._unread())

    def _open(self, head: bytes, found: list[bytes | bytearray]) -> None:
        """Let the library check an answer with status 101; read what follows it."""
        client, rest = self._client, bytes(self._answer)
        self._answer.clear()
        client.receive_data(head)
        if client.state is OPEN:
            client.events_received()
            self.opened = True
            super().read(rest, found)
            return
        error = client.handshake_exc
        if isinstance(error, InvalidHandshake) and error.__cause__ is None:
            self._failed(f"the server's answer does not open a WebSocket: {printable(str(error), 128)}")
        elif head.startswith(b"HTTP/1.0 "):
            self._failed("the server answered with HTTP/1.0, which does not support WebSocket")
        else:
            self._failed(self._unread())

    def _failed(self, words: str) -> None:
        self.over = True
        self.error = ConnectFailed.of_handshake(f"cannot connect to {self._address}: {words}")
        if self._mismatch:
            self.error.__cause__ = RemoteProtocolError.of_handshake(self._mismatch)
        self._answer.clear()

    def _too_long(self) -> str:
        return f"the server's answer is longer than {self.limits.first_frame_bytes} bytes{self._quoted()}"

    def _unread(self) -> str:
        if not self._begin:
            return "the server closed the connection without an answer"
        other = foreign(self._begin)
        if other == "HTTP":
            return f"the server's answer cannot be read{self._quoted()}"
        if other:
            self._mismatch = mismatch(other, "WebSocket")
            hint = "" if self._address.carrier.secure else did_you_mean(other, self._address)
            return f"{self._mismatch}{hint or self._quoted()}"
        names = [entry.name for entry in recognize(recognizable(), self._begin, client=False).candidates]
        if not names:
            self._mismatch = "the peer does not speak WebSocket"
            return f"{self._mismatch}{self._quoted()}"
        self._mismatch = mismatch(one_of(names), "WebSocket")
        protocol = self._address.protocol if self._address.protocol in names else names[0]
        if len(names) > 1 and protocol != self._address.protocol:
            return f"{self._mismatch}{self._quoted()}"
        transport = "tls" if self._address.carrier.secure else "tcp"
        plain = replace(self._address, protocol=protocol, transport=transport, path="", options={})
        return f"{self._mismatch}; did you mean {plain}?"

    def _refused(self, status: int | None, head: bytes) -> str:
        """Return the text for an answer that is not 101, with the part of its body that has arrived."""
        if status is None:
            return self._unread()
        line, *fields = head.decode("iso-8859-1").split("\n")
        reason = printable("".join(line.strip().split(" ", 2)[2:]), 64)
        words = f"the server answered HTTP {status} {reason}".rstrip()
        headers = {name.strip().lower(): value.strip() for name, _, value in (field.partition(":") for field in fields)}
        if 300 <= status < 400:
            return f"{words}, to {printable(headers.get('location', ''), 128) or 'nowhere'}; redirects are not followed"
        body = bytes(self._answer[:_LINE])
        if headers.get("transfer-encoding", "").lower().endswith("chunked"):
            body = body.partition(b"\n")[2]
        text = body.partition(b"\n")[0].decode("utf-8", "replace").strip()
        if other := refused_by(text.encode(), self._protocol):
            self._mismatch = mismatch(other, self._protocol)
            return self._mismatch
        return f"{words}: {printable(text, 128)}" if text else words

    def _quoted(self) -> str:
        line = self._begin.partition(b"\n")[0].strip()
        if not line:
            return ""
        text = line[:64].decode("latin-1")
        return f", and begins with {repr(text) if text.isascii() and text.isprintable() else line[:8].hex(' ')}"


def _status_of(head: bytes) -> int | None:
    """Return the status of an answer; None if its first line has none."""
    found = _STATUS.match(head)
    return None if found is None else int(found[1])


def _ascii(host: str) -> str:
    """Return a host as HTTP writes it. A host that cannot be written becomes "unknown", because "not found" is the
    better error."""
    try:
        return host if host.isascii() else host.encode("idna").decode()
    except UnicodeError:
        return "unknown"
