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
from afflux.protocols.rsio import Engine, frames
from afflux.protocols.rsio.codes import Extension
from afflux.protocols.rsio.frames import (
    FRAMES,
    Cancel,
    ClientHello,
    Goodbye,
    Message,
    OnComplete,
    OnError,
    OnNext,
    OnNextPacked,
    Request,
    ServerHello,
    Subscribe,
    Subscribed,
)
from afflux.protocols.rsio.inbound import Inbound

Mode = Literal["whole", "bytewise"]
BOTH = tuple(Extension)


class Reader:
    """The messages in what one side says, read with the sizes that it has announced."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.messages: list[Any] = []
        self.sizes: dict[int, int] = {}
        self._in = Inbound(limits or Limits.trusted(), self.sizes.get, lambda cursor: 0, self._take)
        self._in.known = frozenset(FRAMES)
        self._in.first = False

    def _take(self, message: Message) -> None:
        if isinstance(message, Subscribed):
            self.sizes[message.subscriber] = message.element_size
        self.messages.append(message)

    def read(self, data: bytes) -> list[Any]:
        """The messages that are whole by now."""
        self._in.receive(data, 0.0)
        messages, self.messages = self.messages, []
        return messages


class Playbook:
    """One engine and what it has said so far. ``mode`` is how the peer's bytes are cut."""

    begins = True
    "Handlers begin at once, as those of a driver that has enough of them."

    def __init__(self, engine: Engine, mode: Mode = "whole") -> None:
        self.engine = engine
        self.mode = mode
        self.now = 0.0
        self.events: deque[Any] = deque()
        self.sent: deque[Message] = deque()
        self.reader = Reader()
        self.collect([])

    def __rshift__(self, said: Message | bytes | tuple[Message | bytes, ...]) -> Playbook:
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
        queue: deque[Any] = self.sent if issubclass(kind, Message) else self.events
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

    def at(self, now: float) -> Playbook:
        """Time passes."""
        self.quiet()
        self.now = now
        self.collect(self.engine.tick(now))
        return self

    def eof(self) -> Playbook:
        """The transport ends."""
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


def ignored(price: int, rule: str | None = None) -> tuple[type, dict[str, Any]]:
    """Expect a message to be dropped and charged."""
    return ev.Ignored, {"price": price} if rule is None else {"price": price, "rule": rule}


def server(mode: Mode = "whole", limits: Limits | None = None, **options: Any) -> Playbook:
    """A server that has greeted its client."""
    play = Playbook(Engine("server", limits=limits, **options), mode).forget()
    return play >> ClientHello(extensions=BOTH) << ev.Established


def client(mode: Mode = "whole", limits: Limits | None = None, **options: Any) -> Playbook:
    """A client that has been greeted."""
    play = Playbook(Engine("client", limits=limits, **options), mode).forget()
    return play >> ServerHello(extensions=BOTH) << ev.Established(None)


def subscribed(
    demand: int = 0, size: int = 0, mode: Mode = "whole", limits: Limits | None = None, **options: Any
) -> Playbook:
    """A client whose subscription 1, id 1, is active."""
    play = client(mode, limits, **options).do(lambda engine: engine.subscribe("p", demand))
    play << Subscribe(publisher="p", subscriber=1, initial_demand=demand)
    return play >> Subscribed(subscriber=1, element_size=size)


def publishing(
    demand: int = 0, size: int = 0, mode: Mode = "whole", limits: Limits | None = None, **options: Any
) -> Playbook:
    """A server whose publication 2, id 1, is active."""
    play = server(mode, limits, sizes=lambda name: size, **options)
    play >> Subscribe(publisher="p", subscriber=1, initial_demand=demand) << ev.Opened
    return play << Subscribed(subscriber=1, element_size=size)


def item(data: bytes, id: int = 1, size: int = 0) -> OnNext:
    return OnNext(subscriber=id, element=data, element_size=size)


def packed(*elements: bytes, id: int = 1) -> OnNextPacked:
    size = len(elements[0]) if elements else 0
    return OnNextPacked(subscriber=id, count=len(elements), elements=b"".join(elements), element_size=size)


def part(number: int, data: bytes, last: bool = False, id: int = 1) -> Message:
    kind = frames.OnNextLastPart if last else frames.OnNextPart
    return kind(subscriber=id, element=number, data=data)


def ask(id: int = 1, demand: int = 0, name: str = "p") -> Subscribe:
    return Subscribe(publisher=name, subscriber=id, initial_demand=demand)


def answer(id: int = 1, size: int = 0) -> Subscribed:
    return Subscribed(subscriber=id, element_size=size)


def cancel(id: int = 1) -> Cancel:
    return Cancel(subscriber=id)


def request(n: int, id: int = 1) -> Request:
    return Request.received({"subscriber": id, "demand": n})  # type: ignore[return-value] # a peer may say anything


def complete(id: int = 1) -> OnComplete:
    return OnComplete(subscriber=id)


def error(text: str, id: int = 1) -> OnError:
    return OnError(subscriber=id, error=text)


class _Begins(str):
    """A text that begins so: behind a reason word stand the name and the value of its limit."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and (str(other) == str(self) or other.startswith(f"{self!s}: "))

    def __hash__(self) -> int:
        return str.__hash__(self)


def bye(reason: str = "") -> Goodbye:
    return Goodbye(reason=_Begins(reason))
