"""Conversations with an engine of Limit-Stream, and the lines that they are made of."""

from __future__ import annotations

from typing import Any

from afflux.core import events as ev
from afflux.core.errors import LocalProtocolError, Violation
from afflux.core.limits import Limits
from afflux.protocols.limit import Engine, Opening, Turn
from afflux.protocols.limit.frames import Choose, ErrorFrame, LimitFrame, PayloadFrame, Setup, decode
from afflux.protocols.limit.integers import packed, unpacked
from afflux.testing.playbook import Mode, closed, failed, ignored
from afflux.testing.playbook import Playbook as Conversation

__all__ = [
    "DONE",
    "SKIPPED",
    "Mode",
    "Playbook",
    "Sum",
    "choose",
    "client",
    "closed",
    "error",
    "failed",
    "ignored",
    "item",
    "number",
    "server",
    "setup",
    "summing",
    "types",
]

DONE = b"\x90"
"The empty struct of the example."
SKIPPED = bytes.fromhex("00000000fe0000000001")
"An extension that may be skipped."


class Playbook(Conversation[Engine]):
    """A conversation with an engine of Limit-Stream."""

    frame = LimitFrame

    def encode(self, frame: Any) -> bytes:
        """The bytes of a frame of the peer, after their length."""
        data: bytes = frame.encode(prefixed=True)
        return data

    def decode(self, data: bytes) -> list[Any]:
        """The frames in bytes that the engine has written."""
        return [decode(bytes(frame)) for frame in LimitFrame.PREFIX.split(data)]


class Sum:
    """The channel ``sum = recv int -> offer | sum | recv Done -> send int -> end``, by hand."""

    opaque = False
    runs = None
    completing = None

    def __init__(self, client: bool) -> None:
        self.client = client
        self.at = "number"
        "What is next: a number, a number or the choice, Done, the answer, the end."

    @property
    def turn(self) -> Turn:
        if self.at == "end":
            return Turn.END
        return Turn.SEND if self.client is (self.at != "answer") else Turn.RECEIVE

    @property
    def expects(self) -> str:
        return self.at

    def _value(self, value: Any, wrong: Any) -> None:
        done = value == DONE
        if self.at == "end" or done is not (self.at == "Done"):
            raise wrong(f"expected {self.at}", rule="R-32")
        self.at = "end" if self.at == "answer" else "answer" if done else "choice"

    def _branch(self, branch: int, wrong: Any) -> None:
        if self.at != "choice" or branch > 1:
            raise wrong(f"expected {self.at}", rule="SI-25")
        self.at = "Done" if branch else "number"

    def write(self, value: Any) -> bytes:
        data = DONE if value is None else packed(value)
        self.check(data)
        return data

    def check(self, data: bytes) -> None:
        if self.turn is not Turn.SEND or self.at == "choice":
            raise LocalProtocolError(f"expected {self.at}", rule="SI-25")
        self._value(data, LocalProtocolError)

    def choose(self, branch: int) -> bool:
        if self.turn is not Turn.SEND:
            raise LocalProtocolError(f"expected {self.at}", rule="SI-25")
        self._branch(branch, LocalProtocolError)
        return bool(branch)

    def read(self, data: bytes) -> Any:
        if self.at == "choice":
            self.at = "number"  # the first branch is implied
        value = None if data == DONE else unpacked(data)
        self._value(data, Violation)
        return value

    def chosen(self, branch: int) -> None:
        self._branch(branch, Violation)


def types(client: bool) -> Any:
    """The channels of these conversations: one side's view."""
    return lambda name: Sum(client) if name == "sum" else None


def server(mode: Mode = "whole", limits: Limits | None = None, **options: Any) -> Playbook:
    """A server that nobody has spoken to."""
    return Playbook(Engine("server", limits=limits, **options), mode)


def client(mode: Mode = "whole", limits: Limits | None = None, **options: Any) -> Playbook:
    """A client without a session."""
    play = Playbook(Engine("client", limits=limits, **options), mode)
    return play.at(0.0) << ev.Established(None)


def summing(role: str, mode: Mode = "whole", credit: int = 99, **options: Any) -> Playbook:
    """An end of a session of the channel ``sum``."""
    if role == "client":
        play = client(mode, channels=types(True), **options)
        play.do(lambda engine: engine.open("channel", Opening("sum"), credit=credit))
        return play << setup()
    play = server(mode, channels=types(False), **options) >> setup() << ev.Established << ev.Opened
    return play.do(lambda engine: engine.request(1, credit))


def setup(name: bytes | None = b"sum", data: bytes = b"") -> Setup:
    return Setup(metadata=name, data=data)


def item(id: int, data: bytes, metadata: bytes | None = None) -> PayloadFrame:
    return PayloadFrame(stream=id, data=data, metadata=metadata)


def number(id: int, value: int) -> PayloadFrame:
    return PayloadFrame(stream=id, data=packed(value))


def choose(id: int, branch: int, metadata: bytes | None = None) -> Choose:
    return Choose(stream=id, data=packed(branch), metadata=metadata)


class _Begins(bytes):
    """A text that equals each text that begins with it."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, bytes) and other.startswith(bytes(self))

    def __hash__(self) -> int:
        return bytes.__hash__(self)


def error(id: int, code: int, text: bytes = b"") -> ErrorFrame:
    return ErrorFrame(stream=id, code=code, data=_Begins(text))
