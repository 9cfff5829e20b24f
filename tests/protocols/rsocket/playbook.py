"""Conversations with an engine, told line by line.

    Playbook(responder()) >> frame      # the peer says
                          << event      # the application hears, or
                          << frame      # this side says

Whatever an engine does must be expected: a line of the peer fails while something of the line before was not told.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Literal

from afflux.core import events as ev
from afflux.core.errors import Error
from afflux.core.frame import Frame
from afflux.core.limits import Limits
from afflux.protocols.rsocket import Engine, frames
from afflux.protocols.rsocket.resume import Sessions

Mode = Literal["whole", "bytewise", "glued"]
TOKEN = bytes(range(16))
"What the sessions of the resumable conversations are called."


class Playbook:
    """One engine and what it has said so far. ``mode`` is how the peer's bytes are cut."""

    begins = True
    "Handlers begin at once, as those of a driver that has enough of them."

    def __init__(self, engine: Engine, mode: Mode = "whole") -> None:
        self.engine = engine
        self.mode = mode
        self.now = 0.0
        self.events: deque[ev.Event] = deque()
        self.sent: deque[Frame] = deque()
        self._collect([])

    def __rshift__(self, said: Frame | bytes | tuple[Frame | bytes, ...]) -> Playbook:
        """The peer says it."""
        self.quiet()
        lines = said if isinstance(said, tuple) else (said,)
        data = b"".join(line if isinstance(line, bytes) else line.encode(prefixed=True) for line in lines)
        step = 1 if self.mode == "bytewise" else max(1, len(data))
        for start in range(0, len(data), step):
            self._collect(self.engine.receive(data[start : start + step], self.now))
        return self

    def __lshift__(self, expected: ev.Event | Frame | type | tuple[type, dict[str, Any]]) -> Playbook:
        """The next thing this side does: an event or frame, or a type of one (with some of its attributes)."""
        kind = (
            expected if isinstance(expected, type) else expected[0] if isinstance(expected, tuple) else type(expected)
        )
        queue: deque[Any] = self.sent if issubclass(kind, Frame) else self.events
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
        self._collect(result if isinstance(result, list) else [])
        return self

    def at(self, now: float) -> Playbook:
        """Time passes."""
        self.quiet()
        self.now = now
        self._collect(self.engine.tick(now))
        return self

    def eof(self) -> Playbook:
        """The transport ends."""
        self.quiet()
        self._collect(self.engine.receive_eof(self.now))
        return self

    def cut(self) -> Playbook:
        """The transport breaks, and the session outlives it."""
        return self.eof() << ev.Suspended

    def adopt(self, newcomer: Playbook) -> Playbook:
        """A newcomer has asked for this session: give it the newcomer's transport, as a driver does.

        Raises:
            Rejected: the session can not go on from there.
        """
        self.quiet()
        event = newcomer.events.popleft()
        if not (isinstance(event, ev.Resuming) and event.session is self.engine):
            raise AssertionError(f"{event!r} does not ask for this session")
        newcomer.quiet()
        self.now = newcomer.now
        self._collect(self.engine.resume(event.request, self.now))
        self._collect(self.engine.receive(newcomer.engine.hand_over(), self.now))
        return self

    def quiet(self) -> Playbook:
        """Nothing is left untold."""
        if self.events or self.sent:
            raise AssertionError(f"not told: {self.state()}")
        return self

    def state(self) -> str:
        """What is left."""
        return f"events {list(self.events)!r}, frames {list(self.sent)!r}"

    def _collect(self, events: list[ev.Event]) -> None:
        told = list(ev.singly(events))
        self.events.extend(told)
        for event in told if self.begins else ():
            if isinstance(event, ev.Opened | ev.SessionOpened):
                self.engine.begin(event.stream)
        data = b""
        while chunk := self.engine.outgoing():
            data += chunk
        position = 0
        while position < len(data):
            end = position + 3 + int.from_bytes(data[position : position + 3], "big")
            self.sent.append(frames.decode(data, position + 3, end))
            position = end


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


class Begins(bytes):
    """A text that begins so: behind a reason word stand the name and the value of its limit."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, bytes) and (bytes(other) == bytes(self) or other.startswith(bytes(self) + b": "))

    def __hash__(self) -> int:
        return bytes.__hash__(self)


def error(stream: int, code: int, text: bytes | None = None) -> tuple[type, dict[str, Any]]:
    """Expect an ERROR frame."""
    wanted: dict[str, Any] = {"stream": stream, "code": code}
    return frames.ErrorFrame, wanted if text is None else wanted | {"data": Begins(text)}


def ignored(price: int, rule: str | None = None) -> tuple[type, dict[str, Any]]:
    """Expect a frame to be dropped and charged."""
    return ev.Ignored, {"price": price} if rule is None else {"price": price, "rule": rule}


def setup(**changes: Any) -> frames.Setup:
    """A SETUP that a server accepts."""
    values: dict[str, Any] = {
        "stream": 0,
        "keepalive_ms": 20_000,
        "lifetime_ms": 90_000,
        "metadata_mime": "message/x.rsocket.composite-metadata.v0",
        "data_mime": "application/octet-stream",
    }
    return frames.Setup(**values | changes)


def responder(mode: Mode = "whole", limits: Limits | None = None, **options: Any) -> Playbook:
    """A server whose SETUP is accepted already."""
    play = Playbook(Engine("server", limits=limits, **options), mode)
    return play >> setup() << ev.Established


def requester(mode: Mode = "whole", limits: Limits | None = None, **options: Any) -> Playbook:
    """A client that has heard from its server already."""
    play = Playbook(Engine("client", limits=limits, **options), mode) << frames.Setup
    keepalive = frames.Keepalive(stream=0, respond=False, position=0, data=b"")
    return play >> keepalive << ev.Established


def resumable_server(
    mode: Mode = "whole", limits: Limits | None = None, sessions: Sessions | None = None, **options: Any
) -> Playbook:
    """A server whose session, named TOKEN, can be resumed."""
    limits = limits or Limits.server()
    sessions = Sessions(limits) if sessions is None else sessions
    play = Playbook(Engine("server", limits=limits, sessions=sessions, **options), mode)
    return play >> setup(token=TOKEN, lease="lease" in options) << ev.Established


def resumable_client(mode: Mode = "whole", limits: Limits | None = None, **options: Any) -> Playbook:
    """A client that has heard from its server already, and whose session can be resumed."""
    asked = setup(token=TOKEN, lease="lease" in options)
    play = Playbook(Engine("client", setup=asked, limits=limits, **options), mode) << asked
    return play >> position(0) << ev.Established


def newcomer(play: Playbook, *, server: int, client: int, mode: Mode = "whole", **options: Any) -> Playbook:
    """A stranger at the server of ``play`` that has asked for its session, and was understood."""
    engine = Engine("server", limits=play.engine.limits, sessions=play.engine._sessions, now=play.now, **options)
    stranger = Playbook(engine, mode)
    stranger.now = play.now
    stranger >> resume(server=server, client=client)
    assert isinstance(stranger.events[0], ev.Resuming), stranger.state()
    return stranger


def resume(*, server: int, client: int, **changes: Any) -> frames.Resume:
    """RESUME: the client has ``server`` bytes of the server's, and keeps its own from ``client`` on."""
    values: dict[str, Any] = {"stream": 0, "token": TOKEN}
    values |= {"last_received_server_position": server, "first_available_client_position": client}
    return frames.Resume(**values | changes)


def resume_ok(client: int) -> frames.ResumeOk:
    """RESUME_OK: the server has ``client`` bytes of the client's."""
    return frames.ResumeOk(stream=0, last_received_client_position=client)


def position(at: int, *, respond: bool = False) -> frames.Keepalive:
    """KEEPALIVE that says how far its sender has received."""
    return frames.Keepalive(stream=0, respond=respond, position=at, data=b"")
