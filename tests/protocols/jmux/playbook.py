"""Conversations with an engine, told line by line.

    Playbook(server()) >> message     # the peer says
                       << event       # the application hears, or
                       << message     # this side says

Whatever an engine does must be expected: a line of the peer fails while something of the line before was not told.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Literal

from afflux.core import events as ev
from afflux.core.errors import Error
from afflux.core.limits import Limits
from afflux.protocols.jmux import Engine, frames
from afflux.protocols.jmux.byte_sessions import ByteSessions
from afflux.protocols.jmux.frames import (
    HEADER_BYTES,
    Abort,
    Acknowledgment,
    ClientConnectionHeader,
    Close,
    Data,
    ErrorMessage,
    IncrementRation,
    JmuxFrame,
    Ping,
    PingAck,
    ServerConnectionHeader,
    Shutdown,
)
from tests.protocols.rsocket.playbook import Begins

Mode = Literal["whole", "bytewise"]
RATION = 32768
HELLO = ClientConnectionHeader(initial_ration=128)
WELCOME = ServerConnectionHeader(initial_ration=128)
ACK = Acknowledgment(session=0)
CLOSE = Close(session=0)


class Reader:
    """The messages in what one side says."""

    def __init__(self, client: bool) -> None:
        self._client = client
        self._begun = False
        self._rest = b""

    def read(self, data: bytes) -> list[JmuxFrame]:
        """The messages that are whole by now."""
        data = self._rest + data
        said: list[JmuxFrame] = []
        if not self._begun and len(data) >= HEADER_BYTES:
            self._begun = True
            said.append(frames.decode_header(data[:HEADER_BYTES], client=self._client))
            data = data[HEADER_BYTES:]
        while self._begun and (size := frames.size_at(data)) is not None and size <= len(data):
            said.append(frames.decode(data[:size]))
            data = data[size:]
        self._rest = data
        return said


class Playbook:
    """One engine and what it has said so far. ``mode`` is how the peer's bytes are cut."""

    begins = True
    "Handlers begin at once, as those of a driver that has enough of them."

    def __init__(self, engine: Engine, mode: str = "whole") -> None:
        self.engine = engine
        self.mode = mode
        self.now = 0.0
        self.events: deque[Any] = deque()
        self.sent: deque[JmuxFrame] = deque()
        self.reader = Reader(engine.queued > 0)  # only a client has something to say at once
        self.collect([])

    def __rshift__(self, said: JmuxFrame | bytes | tuple[JmuxFrame | bytes, ...]) -> Playbook:
        """The peer says it."""
        self.quiet()
        lines = said if isinstance(said, tuple) else (said,)
        data = b"".join(line if isinstance(line, bytes) else line.encode() for line in lines)
        step = 1 if self.mode == "bytewise" else max(1, len(data))
        for start in range(0, len(data), step):
            self.collect(self.engine.receive(data[start : start + step], self.now))
        return self

    def __lshift__(self, expected: Any) -> Playbook:
        """The next thing this side does: an event or message, or a type of one (with some of its attributes)."""
        kind = (
            expected if isinstance(expected, type) else expected[0] if isinstance(expected, tuple) else type(expected)
        )
        queue: deque[Any] = self.sent if issubclass(kind, JmuxFrame) else self.events
        if not queue:
            raise AssertionError(f"expected {expected!r}, but nothing came; {self.state()}")
        actual = queue.popleft()
        if isinstance(expected, type):
            same = isinstance(actual, expected)
        elif isinstance(expected, tuple):
            same = isinstance(actual, expected[0]) and all(look(actual, k) == v for k, v in expected[1].items())
        else:
            same = actual == expected
        if not same:
            raise AssertionError(f"expected {expected!r}\n     got {actual!r}; {self.state()}")
        return self

    def do(self, verb: Callable[[Engine], Any]) -> Playbook:
        """The application does something."""
        self.quiet()
        result = verb(self.engine)
        self.collect(result if isinstance(result, list) else [])
        return self

    def on(self, verb: Callable[[ByteSessions], Any]) -> Playbook:
        """The application does something with its sessions of bytes."""
        return self.do(lambda engine: verb(engine.byte_sessions))

    def at(self, now: float) -> Playbook:
        """Time passes."""
        self.quiet()
        self.now = now
        self.collect(self.engine.tick(now))
        return self

    def eof(self) -> Playbook:
        """The peer ends its half, or the transport is gone."""
        self.quiet()
        self.collect(self.engine.receive_eof(self.now))
        return self

    def quiet(self) -> Playbook:
        """Nothing is left untold."""
        if self.events or self.sent:
            raise AssertionError(f"not told: {self.state()}")
        return self

    def forget(self) -> Playbook:
        """Nobody asks what was said."""
        self.collect([])
        self.events.clear()
        self.sent.clear()
        return self

    def state(self) -> str:
        """What is left."""
        return f"events {list(self.events)!r}, messages {list(self.sent)!r}"

    def collect(self, events: list[ev.Event]) -> None:
        told = list(events)
        self.events.extend(told)
        for event in told if self.begins else ():
            if isinstance(event, ev.Opened | ev.SessionOpened):
                self.engine.begin(event.stream)
        while chunk := self.engine.outgoing():
            self.sent.extend(self.reader.read(chunk))


def look(value: Any, path: str) -> Any:
    """The attribute of ``value`` at ``path``, dots included."""
    for name in path.split("."):
        value = type(value) if name == "type" else getattr(value, name)
    return value


def failed(stream: int, kind: type[Error], **attributes: Any) -> tuple[type, dict[str, Any]]:
    """Expect a Failed event with an error of a type."""
    expected = {"stream": stream, "error.type": kind}
    return ev.Failed, expected | {f"error.{name}": value for name, value in attributes.items()}


def closed(kind: type[Error], **attributes: Any) -> tuple[type, dict[str, Any]]:
    """Expect Closed with an error of a type."""
    return ev.Closed, {"error.type": kind} | {f"error.{name}": value for name, value in attributes.items()}


def ignored(price: int, rule: str) -> tuple[type, dict[str, Any]]:
    """Expect something to be dropped and charged."""
    return ev.Ignored, {"price": price, "rule": rule}


def server(
    mode: str = "whole", limits: Limits | None = None, ration: int = 128, sessions: bool = True, **options: Any
) -> Playbook:
    """A server whose client has said its header; this side may send ``ration`` × 256 bytes on each session."""
    play = Playbook(Engine("server", limits=limits, sessions=sessions, **options), mode)
    play >> ClientConnectionHeader(initial_ration=ration) << ServerConnectionHeader << ev.Established
    return play.quiet()


def client(mode: str = "whole", limits: Limits | None = None, ration: int = 128, **options: Any) -> Playbook:
    """A client whose server has said its header."""
    play = Playbook(Engine("client", limits=limits, **options), mode) << ClientConnectionHeader
    play >> ServerConnectionHeader(initial_ration=ration) << ev.Established
    return play.quiet()


def data(
    body: bytes = b"", *, id: int = 0, open: bool = False, close: bool = False, eof: bool = False, ack: bool = False
) -> Data:
    return Data(session=id, open=open, close=close, eof=eof, ack_required=ack, data=body)


def opening(body: bytes = b"", *, id: int = 0, eof: bool = False) -> Data:
    """The first Data of a session."""
    return data(body, id=id, open=True, eof=eof)


def abort(id: int = 0, partial: bool = False, detail: str = "") -> Abort:
    return Abort(session=id, partial=partial, detail=detail.encode())


def more(size: int, id: int = 0, shift: int = 0) -> IncrementRation:
    return IncrementRation.of(id, size, shift)


def bye(detail: str = "") -> Shutdown:
    return Shutdown(detail=detail.encode())


def error(detail: str = "") -> ErrorMessage:
    return ErrorMessage(detail=Begins(detail.encode()))


def ping(cookie: int) -> Ping:
    return Ping(cookie=cookie)


def pong(cookie: int) -> PingAck:
    return PingAck(cookie=cookie)


def free_id(play: Playbook) -> int:
    """The lowest free id of a client: that of a request that is opened now."""
    play.do(lambda engine: engine.open("request", b""))
    said = play.sent.popleft()
    assert isinstance(said, Data) and said.open
    return said.session


def owed(engine: Engine) -> dict[int | None, int]:
    """What the peer may still send, by the ids of the sessions whose request or response is not whole."""
    return {
        engine.byte_sessions.session_id(status.stream): status.outstanding
        for status in engine.streams()
        if status.state in ("OPEN", "OUT_FIN")
    }
