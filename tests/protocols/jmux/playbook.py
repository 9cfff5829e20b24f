"""Conversations with an engine of Jmux, and the lines that they are made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from afflux.core import events as ev
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
from afflux.testing.playbook import Begins, Mode, closed, failed, ignored
from afflux.testing.playbook import Playbook as Conversation

__all__ = [
    "ACK",
    "CLOSE",
    "HELLO",
    "RATION",
    "WELCOME",
    "Begins",
    "Mode",
    "Playbook",
    "Reader",
    "abort",
    "bye",
    "client",
    "closed",
    "data",
    "error",
    "failed",
    "free_id",
    "ignored",
    "more",
    "opening",
    "owed",
    "ping",
    "pong",
    "server",
]


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


class Playbook(Conversation[Engine]):
    """A conversation with an engine of Jmux."""

    frame = JmuxFrame

    def __init__(self, engine: Engine, mode: Mode = "whole") -> None:
        self.reader = Reader(engine.queued > 0)  # only a client sends first
        super().__init__(engine, mode)

    def decode(self, data: bytes) -> list[JmuxFrame]:
        """The messages that are whole by now."""
        return self.reader.read(data)

    def heard(self, events: list[ev.Event]) -> list[ev.Event]:
        """The events as they are."""
        return events

    def on(self, verb: Callable[[ByteSessions], Any]) -> Playbook:
        """The application does something with its sessions of bytes."""
        return self.do(lambda engine: verb(engine.byte_sessions))


def server(
    mode: Mode = "whole", limits: Limits | None = None, ration: int = 128, sessions: bool = True, **options: Any
) -> Playbook:
    """A server whose client has said its header; this side may send ``ration`` × 256 bytes on each session."""
    play = Playbook(Engine("server", limits=limits, sessions=sessions, **options), mode)
    play >> ClientConnectionHeader(initial_ration=ration) << ServerConnectionHeader << ev.Established
    return play.quiet()


def client(mode: Mode = "whole", limits: Limits | None = None, ration: int = 128, **options: Any) -> Playbook:
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
    one, two, four = (bool(shift & bit) for bit in (1, 2, 4))
    return IncrementRation(session=id, increment=size, shift_1=one, shift_2=two, shift_4=four)


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
