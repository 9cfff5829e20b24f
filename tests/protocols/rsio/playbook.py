"""Conversations with an engine of reactive-streams-io, and the lines that they are made of."""

from __future__ import annotations

from typing import Any

from afflux.core import events as ev
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
from afflux.protocols.rsio.inbound import Inbound, Reading
from afflux.testing.playbook import Mode, closed, failed, ignored
from afflux.testing.playbook import Playbook as Conversation

__all__ = [
    "BOTH",
    "Mode",
    "Playbook",
    "Reader",
    "answer",
    "ask",
    "bye",
    "cancel",
    "client",
    "closed",
    "complete",
    "error",
    "failed",
    "ignored",
    "item",
    "packed",
    "part",
    "publishing",
    "request",
    "server",
    "subscribed",
]


BOTH = tuple(Extension)


class Reader:
    """The messages in what one side says, read with the sizes that it has announced."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.messages: list[Any] = []
        self.sizes: dict[int, int] = {}
        self._in = Inbound(limits or Limits.trusted(), self.sizes.get, lambda cursor: 0, self._take)
        self._in.known = frozenset(FRAMES)
        self._in.reading = Reading.ALL

    def _take(self, message: Message) -> None:
        if isinstance(message, Subscribed):
            self.sizes[message.subscriber] = message.element_size
        self.messages.append(message)

    def read(self, data: bytes) -> list[Any]:
        """The messages that are whole by now."""
        self._in.receive(data, 0.0)
        messages, self.messages = self.messages, []
        return messages


class Playbook(Conversation[Engine]):
    """A conversation with an engine of reactive-streams-io."""

    frame = Message

    def __init__(self, engine: Engine, mode: Mode = "whole") -> None:
        self.reader = Reader()
        super().__init__(engine, mode)

    def decode(self, data: bytes) -> list[Any]:
        """The messages that are whole by now."""
        return self.reader.read(data)

    def heard(self, events: list[ev.Event]) -> list[ev.Event]:
        """The events as they are."""
        return events


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
