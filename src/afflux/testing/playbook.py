"""Check conversations with an engine, line by line: the input of the peer, and the effects that must follow.

::

    Playbook(engine) >> frame      # sent by the peer
                     << event      # received by the application, or
                     << frame      # sent by this side

Every effect of an engine has to be expected: the next line of the peer fails while an effect is left over. A subclass
for a protocol defines the frames, their encoding, and their decoding.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Generic, Literal, Self, TypeVar

from afflux.core import events as ev
from afflux.core.engine import Engine
from afflux.core.errors import Error

__all__ = ["Begins", "Mode", "Playbook", "closed", "failed", "ignored"]

Mode = Literal["whole", "bytewise", "glued"]
"How the bytes of the peer are cut: not at all, byte by byte, or with several frames together."

Expected = tuple[type, dict[str, Any]]
"A type, and some attributes of its object; a name may contain dots."

E = TypeVar("E", bound=Engine)


class Playbook(Generic[E]):
    """One engine, and its effects so far."""

    frame: ClassVar[type]
    "The base class of all frames; all other types are events."
    begins = True
    "Handlers begin immediately, as with a driver that has free slots."

    def __init__(self, engine: E, mode: Mode = "whole") -> None:
        self.engine = engine
        self.mode = mode
        self.now = 0.0
        "The time that is passed to the engine."
        self.events: deque[Any] = deque()
        "Events that no line has expected yet."
        self.sent: deque[Any] = deque()
        "Frames that no line has expected yet."
        self.collect([])

    def encode(self, frame: Any) -> bytes:
        """Return the bytes of a frame of the peer."""
        data: bytes = frame.encode()
        return data

    def decode(self, data: bytes) -> Iterable[Any]:
        """Return the frames in bytes that the engine has written."""
        raise NotImplementedError

    def heard(self, events: list[ev.Event]) -> Iterable[ev.Event]:
        """Return the events in the form that lines expect: one for each request and each answer."""
        return ev.singly(events)

    def __rshift__(self, input: Any) -> Self:
        """Let the peer send a frame, bytes, or a tuple of them."""
        self.quiet()
        lines = input if isinstance(input, tuple) else (input,)
        data = b"".join(line if isinstance(line, bytes) else self.encode(line) for line in lines)
        step = 1 if self.mode == "bytewise" else max(1, len(data))
        for start in range(0, len(data), step):
            self.collect(self.engine.receive(data[start : start + step], self.now))
        return self

    def __lshift__(self, expected: Any) -> Self:
        """Expect the next event or frame: an object, a type, or a type with some of its attributes."""
        exact = not isinstance(expected, type | tuple)
        kind, attributes = expected if isinstance(expected, tuple) else (expected, {})
        kind = type(expected) if exact else kind
        queue = self.sent if issubclass(kind, self.frame) else self.events
        if not queue:
            raise AssertionError(f"expected {expected!r}, but nothing came; {self.state()}")
        actual = queue.popleft()
        if exact:
            same = bool(actual == expected)
        else:
            same = isinstance(actual, kind) and all(_look(actual, name) == value for name, value in attributes.items())
        if not same:
            raise AssertionError(f"expected {expected!r}\n     got {actual!r}; {self.state()}")
        return self

    def do(self, verb: Callable[[E], Any]) -> Self:
        """Call a method of the engine, as the application would."""
        self.quiet()
        result = verb(self.engine)
        self.collect(result if isinstance(result, list) else [])
        return self

    def at(self, now: float) -> Self:
        """Let time pass until ``now``."""
        self.quiet()
        self.now = now
        self.collect(self.engine.tick(now))
        return self

    def eof(self) -> Self:
        """End the peer's half, or the transport."""
        self.quiet()
        self.collect(self.engine.receive_eof(self.now))
        return self

    def quiet(self) -> Self:
        """Check that every effect was expected."""
        if self.events or self.sent:
            raise AssertionError(f"not expected: {self.state()}")
        return self

    def forget(self) -> Self:
        """Drop the effects that were not expected."""
        self.collect([])
        self.events.clear()
        self.sent.clear()
        return self

    def state(self) -> str:
        """Describe the effects that are left over, for the text of a failure."""
        return f"events {list(self.events)!r}, frames {list(self.sent)!r}"

    def collect(self, events: list[ev.Event]) -> None:
        """Add events of the engine, and the frames that it has queued."""
        found = list(self.heard(events))
        self.events.extend(found)
        for event in found if self.begins else ():
            if isinstance(event, ev.Opened | ev.SessionOpened):
                self.engine.begin(event.stream)
        data = b""
        while chunk := self.engine.outgoing():
            data += chunk
        self.sent.extend(self.decode(data))


def failed(stream: int, kind: type[Error], **attributes: Any) -> Expected:
    """Expect a Failed event with an error of a type."""
    expected = {"stream": stream, "error.type": kind}
    return ev.Failed, expected | {f"error.{name}": value for name, value in attributes.items()}


def closed(kind: type[Error], **attributes: Any) -> Expected:
    """Expect Closed with an error of a type."""
    return ev.Closed, {"error.type": kind} | {f"error.{name}": value for name, value in attributes.items()}


def ignored(price: int, rule: str | None = None) -> Expected:
    """Expect a frame to be dropped and charged."""
    return ev.Ignored, {"price": price} if rule is None else {"price": price, "rule": rule}


class Begins(bytes):
    """A text that equals any text that begins with it: the name and value of a limit may follow a reason."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, bytes) and (bytes(other) == bytes(self) or other.startswith(bytes(self) + b": "))

    def __hash__(self) -> int:
        return bytes.__hash__(self)


def _look(value: Any, path: str) -> Any:
    """Return the attribute of ``value`` at ``path``, dots included; ``type`` is its type."""
    for name in path.split("."):
        value = type(value) if name == "type" else getattr(value, name)
    return value
