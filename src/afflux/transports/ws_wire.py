"""One end of a WebSocket without its socket: bytes of the network on one side, an engine's bytes on the other. What
moves them, and the time, live with asyncio in ws_link.py and with blocking sockets in ws_dial.py.

1. An engine speaks frames behind lengths. Each of its frames is one binary message without the length; each message
   that arrives gets its length back. A protocol that is one stream (``framing`` None) uses messages as they come.
2. The boundaries of frames are found here. Whole binary messages are taken here too (ws_frames.py); the handshake,
   fragments, pings, closes and whatever breaks a rule are the library's, which gets one whole frame at a time.
3. No extension is offered, and none is accepted: nothing is ever inflated.
4. What the peer does never raises. It ends in ``over``, with an ``error`` unless it was an orderly end; what came
   before has been handed out.
5. Bounded before it is kept: the HTTP head and the first message by ``first_frame_bytes``, every message by
   ``frame_bytes`` and ``ws_fragments``, answers to pings by ``keepalive_echoes``.
"""

# long: both ends of the handshake, and what they share once the WebSocket is open.

from __future__ import annotations

import re
from typing import Any, cast
from urllib.parse import quote, unquote

from afflux.core.errors import ConnectFailed, Error, MissingExtra, RemoteProtocolError
from afflux.core.framing import LengthPrefix
from afflux.core.limits import REASONS, Limits
from afflux.transports.address import Address
from afflux.transports.base import foreign
from afflux.transports.ws_rules import (
    FOREIGN,
    MESSAGE_TOO_BIG,
    NORMAL,
    POLICY,
    UNSUPPORTED_DATA,
    Refusal,
    chosen,
    closed_with,
    comes_from,
    limited,
    printable,
    text_message,
)

try:
    from websockets.client import ClientProtocol
    from websockets.exceptions import InvalidHandshake, NegotiationError
    from websockets.frames import Frame, Opcode
    from websockets.http11 import Request, Response
    from websockets.protocol import CLOSED, OPEN
    from websockets.server import ServerProtocol
    from websockets.uri import WebSocketURI
except ImportError:
    raise MissingExtra("WebSocket", "ws") from None

from afflux.transports.ws_frames import BINARY, MASKED, apply_mask, binary, header

__all__ = ["ClientWire", "ServerWire", "Wire"]

_HEAD_ENDS = b"\r\n\r\n"
_HTTP = b"HTTP/1."
_BEGIN = 128
"Bytes of an answer that are kept for what is said about it."
_STATUS = re.compile(rb"HTTP/1\.[01] ([1-5][0-9][0-9])[ \r\n]")
_ANSWER_ENDS = re.compile(rb"\r?\n\r?\n")
"Some servers are sloppy when they refuse."
_LINE = 8192
"The longest line of an answer that is looked at."
_NO_HTTP = "this is a WebSocket, which begins with a request of HTTP/1.1"


class Wire:  # long: what both ends do, and what both links call
    """What both ends do once the WebSocket is open."""

    def __init__(self, library: ClientProtocol | ServerProtocol, address: Address, limits: Limits) -> None:
        self.opened = False
        "The handshake was a success."
        self.over = False
        "Nothing more will come for the engine."
        self.error: Error | None = None
        "Why it is over, if not in order."
        self.hung_up = False
        "Nothing more will be written: end this half of the link behind what was handed out."
        self.stopped = False
        "So many pings were answered that the answers have to leave first: then go on with ``receive(b)``."
        self._library: ClientProtocol | ServerProtocol = library
        self._framing = address.entry.framing
        self._limits = limits
        self._own = 0 if self._framing is None else self._framing.own
        self._most = _most(address, limits)
        self._masks = isinstance(library, ClientProtocol)
        self._ready: list[bytes | memoryview] = []
        self._part = b""
        self._tail = b""
        self._head_size = 0
        self._first = False
        "A stranger's first message has not come yet."
        self._held = bytearray()
        self._needed = 0
        self._message: bytearray | None = None
        self._fragments = 0
        self._echoes = 0

    # -- writing ------------------------------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        """Queue what the engine says. Before the handshake and after a close it is dropped."""
        if self._library.state is OPEN and data:
            messages = [memoryview(data)] if self._framing is None else self._messages(self._framing, data)
            self._ready += self._library.data_to_send()
            self._ready += binary(messages, masked=self._masks)

    def _messages(self, framing: LengthPrefix, data: bytes) -> list[memoryview]:
        """The frames in ``data``. Engines hand out whole ones; a part of one waits for its rest."""
        if self._part:
            data, self._part = self._part + data, b""
        messages, width = list(framing.split(data)), framing.width
        size = sum(map(len, messages)) + width * len(messages)
        begin = size - width - len(messages[-1])
        length = int.from_bytes(data[begin : begin + width], "big") - (width if framing.inclusive else 0)
        if size != len(data) or length != len(messages[-1]):
            messages.pop()
            self._part = data[begin:]
        return messages

    def close(self) -> None:
        """Queue an orderly close."""
        if self._library.state is OPEN:
            self._library.send_close(NORMAL)

    def outgoing(self) -> bytes:
        """What is to be written now."""
        pieces: list[Any] = self._library.data_to_send()
        if pieces and not pieces[-1]:
            self.hung_up = True
        if self._ready:
            pieces, self._ready = self._ready + pieces, []
        return b"".join(pieces)

    # -- reading ------------------------------------------------------------------------------------------------

    @property
    def midway(self) -> bool:
        """A message has begun and has not ended: call ``late`` when one takes longer than ``frame_s``."""
        return (self._message is not None or bool(self._held)) and not self.over and not self.stopped

    @property
    def pending(self) -> int:
        """Bytes of a message that is not whole."""
        return len(self._held) + (0 if self._message is None else len(self._message))

    def receive(self, data: bytes) -> bytes:
        """Take what the network brought; return what it means to the engine. ``outgoing`` may have answers."""
        self.stopped, self._echoes = False, 0
        if self.over:
            return b""
        if self._held:
            self._held += data
            if len(self._held) < self._needed:
                return b""
            data = bytes(self._held)
            self._held.clear()
        found: list[bytes] = []
        rest = self._cut(data, found)
        if rest < len(data) and not self.over:
            self._held += data[rest:]
        return b"".join(found)

    def receive_eof(self) -> None:
        """The network has ended."""
        if self._library.state is not CLOSED:
            self._library.receive_eof()
        self.over = True

    def forget(self) -> None:
        """The link is gone, and nothing will be received any more. The library, its parser (a generator) and what that
        has raised refer to each other: without this they would wait for the garbage collector."""
        library = self._library
        library.parser.close()
        for error in (library.parser_exc, library.handshake_exc):
            if error is not None:
                error.__traceback__ = None

    def late(self) -> None:
        """A message has taken longer than ``frame_s``."""
        self.fail(POLICY, limited("frame_s"))

    def fail(self, code: int, error: Error) -> None:
        """The peer broke a rule: say so and take no more."""
        if not self.over:
            self.over = True
            self.error = error
            self._library.fail(code, error.message)

    # -- inside -------------------------------------------------------------------------------------------------

    def _cut(self, data: bytes, found: list[bytes]) -> int:
        """Take the whole frames in ``data``; return where the rest begins. Lengths are judged by their headers."""
        join: Any = bytes if self._framing is None else self._framing.join
        masked = 0 if self._masks else MASKED
        at, end, room = 0, len(data), self._room()
        while end - at >= 2 and not self.over and not self.stopped:
            second = data[at + 1]
            start, size = at + (6 if second & MASKED else 2), second & 0x7F
            if size >= 126:
                start, size = header(data, at)
            stop = start + size
            if size > room:
                self._too_large()
            elif stop > end:
                self._needed = stop - at
                break
            elif data[at] == BINARY and second & MASKED == masked and self._message is None:
                payload = data[start:stop]
                found.append(join(apply_mask(payload, data[start - 4 : start]) if masked else payload))
                if self._first:
                    self._first = False
                    room = self._room()
            else:
                self._other(data[at:stop], found)
                room = self._room()
            at = stop
        else:
            self._needed = 2
        return at

    def _room(self) -> int:
        """The longest payload that may come now."""
        most = min(self._most, self._limits.first_frame_bytes - self._own) if self._first else self._most
        return most if self._message is None else most - len(self._message)

    def _too_large(self) -> None:
        self.fail(MESSAGE_TOO_BIG, limited("first_frame_bytes" if self._first else "frame_bytes", self._limits))

    def _other(self, frame: bytes, found: list[bytes]) -> None:
        """A frame that is not a whole binary message, or not a legal one."""
        library = self._library
        library.receive_data(frame)
        for event in library.events_received():
            self._take(cast("Frame", event), found)
        if library.parser_exc is not None and not self.over:
            self.over = True
            words = printable(str(library.parser_exc), 128)
            self.error = RemoteProtocolError(f"the peer broke a rule of WebSocket: {words}", rule="ws")

    def _take(self, frame: Frame, found: list[bytes]) -> None:
        opcode = frame.opcode
        if opcode is Opcode.BINARY or opcode is Opcode.CONT:
            self._fragment(frame, found)
        elif opcode is Opcode.TEXT:
            self.fail(UNSUPPORTED_DATA, text_message())
        elif opcode is Opcode.PING:
            self._echoes += 1
            self.stopped = self._echoes >= self._limits.keepalive_echoes
        elif opcode is Opcode.CLOSE:
            self._closed()

    def _fragment(self, frame: Frame, found: list[bytes]) -> None:
        if self._message is None:
            self._message, self._fragments = bytearray(), 0
        self._fragments += 1
        if self._fragments > self._limits.ws_fragments:
            self.fail(MESSAGE_TOO_BIG, limited("ws_fragments", self._limits))
            return
        self._message += frame.data
        if frame.fin:
            message, self._message = bytes(self._message), None
            found.append(message if self._framing is None else self._framing.join(message))
            self._first = False

    def _closed(self) -> None:
        """The peer closes, or answers our close."""
        self.over = True
        close = self._library.close_rcvd
        if close is not None and self._library.close_rcvd_then_sent:
            self.error = closed_with(close.code, close.reason)

    def _head(self, data: bytes) -> tuple[bytes, bytes]:
        """What belongs to the HTTP head, and what is behind it."""
        seen = self._tail + data
        at = seen.find(_HEAD_ENDS)
        if at < 0:
            self._tail = seen[1 - len(_HEAD_ENDS) :]
            self._head_size += len(data)
            return data, b""
        end = at + len(_HEAD_ENDS) - len(self._tail)
        self._head_size += end
        return data[:end], data[end:]

    @property
    def _head_too_long(self) -> bool:
        return self._head_size > self._limits.first_frame_bytes


class ServerWire(Wire):
    """The end that was connected to. It serves one path, one subprotocol (``ws_rules.chosen``), and the pages of
    ``origins`` (None: of any)."""

    def __init__(self, address: Address, limits: Limits, origins: frozenset[str] | None = None) -> None:
        self._server = _Server(max_size=limits.frame_bytes)
        self._server.wanted = address.entry.subprotocol
        super().__init__(self._server, address, limits)
        self._path = address.path or "/"
        self._origins = origins
        self._last_words = b""

    def receive(self, data: bytes) -> bytes:
        """See Wire. The request is answered before anything behind it is looked at."""
        if self.opened or self.over:
            return super().receive(data)
        if not self._head_size and not data[:1].isupper():
            self._respond(400, _NO_HTTP)  # at once: it may never end a line
            return b""
        server = self._server
        head, rest = self._head(data)
        server.receive_data(head)
        for event in server.events_received():
            self._answer(cast("Request", event))
        if server.handshake_exc is not None and not self.over:
            self._last_words = server.reject(400, f"{_NO_HTTP}\n").serialize()
            self._end("no WebSocket was opened: the request can not be read")
        elif not self.opened and not self.over and self._head_too_long:
            self._respond(431, f"the request is too long ({REASONS['first_frame_bytes']})")
        return super().receive(rest) if rest else b""

    def outgoing(self) -> bytes:
        """See Wire. The library may have given up without a word."""
        words, self._last_words = self._last_words, b""
        return super().outgoing() or words

    def _answer(self, request: Request) -> None:
        path = unquote(request.path.partition("?")[0]) or "/"
        if path != self._path:
            self._respond(404, "nothing is served at this path")
            return
        if not comes_from(self._origins, request.headers.get_all("Origin")):
            self._respond(403, FOREIGN)
            return
        response = self._server.accept(request)
        if response.status_code == 101:
            self._server.send_response(response)
            self.opened = self._first = True
        elif response.status_code == 426:
            self._respond(426, "this is a WebSocket: connect to it with a WebSocket client", Upgrade="websocket")
        else:
            self._send(response)

    def _respond(self, status: int, sentence: str, **headers: str) -> None:
        response = self._server.reject(status, f"{sentence}\n")
        response.headers.update(headers)
        self._send(response)

    def _send(self, response: Response) -> None:
        self._server.send_response(response)
        self._end(f"no WebSocket was opened: HTTP {response.status_code}")

    def _end(self, words: str) -> None:
        self.over = True
        self.error = RemoteProtocolError.of_handshake(words)


class ClientWire(Wire):
    """The end that connects. Its request is ready to be written."""

    def __init__(self, address: Address, limits: Limits, *, secure: bool) -> None:
        name = address.entry.subprotocol
        uri = WebSocketURI(secure, _ascii(address.host), address.port or 0, quote(address.path), "")
        offers: Any = None if name is None else [name]
        self._client = ClientProtocol(uri, subprotocols=offers, max_size=limits.frame_bytes)
        super().__init__(self._client, address, limits)
        self._address = address
        self._begin = b""
        self._answer = bytearray()
        self._searched = 0
        self._client.send_request(self._client.connect())

    def receive(self, data: bytes) -> bytes:
        """See Wire. A server that selects no subprotocol is taken as it is: those of other implementations do so.

        Only an answer with status 101 is for the library: it would read the body of any other to its end, which may
        be the end of the connection.
        """
        if self.opened or self.over:
            return super().receive(data)
        self._begin = (self._begin + data)[:_BEGIN]
        answer = self._answer
        answer += data
        if not (self._begin.startswith(_HTTP) or _HTTP.startswith(self._begin)):
            self._failed(self._unread())
        while not self.over and (found := _ANSWER_ENDS.search(answer, self._searched)) is not None:
            self._head_size += found.end()
            head, self._searched = bytes(answer[: found.end()]), 0
            del answer[: len(head)]
            status = _status_of(head)
            if status == 101:
                return self._open(head)
            if status is None or not 100 <= status < 200:
                self._failed(self._refused(status, head))
            elif self._head_too_long:
                self._failed(self._too_long())
        if not self.over:
            self._wait_for_more()
        return b""

    @property
    def so_far(self) -> str:
        """What is known of an answer that has not ended; empty if nothing."""
        return f"; its answer does not end{self._quoted()}" if self._begin else ""

    def receive_eof(self) -> None:
        """See Wire."""
        super().receive_eof()
        if not self.opened and self.error is None:
            self._failed(self._unread())

    def _wait_for_more(self) -> None:
        """The head goes on; its first line can be judged."""
        answer, begin = self._answer, self._begin
        self._searched = max(0, len(answer) + 1 - len(_HEAD_ENDS))
        if self._head_size + len(answer) > self._limits.first_frame_bytes:
            self._failed(self._too_long())
        elif (b"\n" in begin or len(begin) == _BEGIN) and _status_of(begin) is None:
            self._failed(self._unread())

    def _open(self, head: bytes) -> bytes:
        """The server has switched to WebSocket, or says so."""
        client, rest = self._client, bytes(self._answer)
        self._answer.clear()
        client.receive_data(head)
        if client.state is OPEN:
            client.events_received()
            self.opened = True
            return super().receive(rest) if rest else b""
        error = client.handshake_exc
        if isinstance(error, InvalidHandshake) and error.__cause__ is None:
            self._failed(f"the server's answer opens no WebSocket: {printable(str(error), 128)}")
        elif head.startswith(b"HTTP/1.0 "):
            self._failed("the server's answer opens no WebSocket: it is one of HTTP/1.0")
        else:
            self._failed(self._unread())
        return b""

    def _failed(self, words: str) -> None:
        self.over = True
        self.error = ConnectFailed.of_handshake(f"can not connect to {self._address}: {words}")
        self._answer.clear()

    def _too_long(self) -> str:
        return f"the server's answer is longer than {self._limits.first_frame_bytes} bytes{self._quoted()}"

    def _unread(self) -> str:
        if not self._begin:
            return "the server closed the connection without an answer"
        strange = foreign(self._begin)
        if strange == "HTTP":
            return f"the server's answer can not be read{self._quoted()}"
        return f"the server speaks {strange or 'no HTTP'}{self._quoted()}"

    def _refused(self, status: int | None, head: bytes) -> str:
        """An answer that is not 101, with as much of its body as has come."""
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
        return f"{words}: {printable(text, 128)}" if text else words

    def _quoted(self) -> str:
        line = self._begin.partition(b"\n")[0].strip()
        return f", and begins with {printable(line.decode('ascii', 'replace'), 64)!r}" if line else ""


def _status_of(head: bytes) -> int | None:
    """The status of an answer; None if its first line says none."""
    found = _STATUS.match(head)
    return None if found is None else int(found[1])


class _Server(ServerProtocol):
    """The library's server, with our choice of a subprotocol."""

    wanted: str | None = None

    def select_subprotocol(self, subprotocols: Any) -> Any:
        try:
            return chosen(self.wanted, subprotocols)
        except Refusal as refusal:
            raise NegotiationError(str(refusal)) from None


def _ascii(host: str) -> str:
    """A host as HTTP writes it. One that can not be written is not found either, and that is the better error."""
    try:
        return host if host.isascii() else host.encode("idna").decode()
    except UnicodeError:
        return "unknown"


def _most(address: Address, limits: Limits) -> int:
    framing = address.entry.framing
    return limits.frame_bytes if framing is None else min(limits.frame_bytes - framing.own, framing.most)
