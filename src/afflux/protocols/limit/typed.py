"""Run the session types of ``afflux.sessions`` as the steps of sessions (3.2). The language does not belong here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar

from afflux.core.payload import Payload, Payloads
from afflux.protocols.limit.messages import Choice, Opening, Value, Values, VariedValues
from afflux.protocols.limit.steps import Runs, Steps, Turn
from afflux.sessions.machine import Kind, Machine
from afflux.sessions.monitor import Monitor, Received

__all__ = ["Items", "Typed", "TypedSteps", "typed"]

_TURNS = {
    Kind.SEND: Turn.SEND,
    Kind.CHOOSE: Turn.SEND,
    Kind.RECV: Turn.RECEIVE,
    Kind.OFFER: Turn.RECEIVE,
    Kind.END: Turn.END,
}


class TypedSteps:
    """See core.engine.TypedSessions."""

    __slots__ = ()

    def opening(self, channel: str, machine: Machine) -> Payload:
        """Return the payload that opens a session of a channel."""
        return Opening(channel, steps=Typed(machine))

    def notation(self) -> Items:
        """Return how steps are written as items."""
        return Items()


class Items:
    """Write the steps of a session as items, and read them; the engine checks them. See afflux.sessions.Notation."""

    __slots__ = ()

    def value(self, value: Any) -> Payload:
        """Return the item of a value."""
        return Value(value)

    def items(self, values: Iterable[Any]) -> Iterator[Payload]:
        """Iterate over the items of values."""
        return map(Value, values)

    def choice(self, branch: int) -> Payload:
        """Return the item of a choice, from 1."""
        return Choice(branch - 1)

    def received(self, item: Payload) -> Received:
        """Return what an item of the peer means."""
        if isinstance(item, Choice):
            return Received(item.branch + 1)
        return Received(None, item.value if isinstance(item, Value) else item.data, True)

    def values(self, items: Payloads) -> list[Any] | None:
        """Return the values of a run."""
        return items.values if isinstance(items, Values | VariedValues) else None

    def first(self, item: Payload) -> bool:
        """Return False: the payload of SETUP is not a step."""
        return False

    def end(self) -> None:
        """No-op: the engine ends the session with its last message (R-29)."""

    def ended(self) -> None:
        """No-op: the engine has checked the end."""


class Typed:
    """The steps of a compiled session type, as one side sees them. Own mistakes raise SessionTypeError, those of the
    peer SessionViolation: both have the state, what was expected and what was seen."""

    __slots__ = ("_monitor", "check", "runs", "write")

    opaque: ClassVar[bool] = False
    completing: ClassVar[None] = None

    def __init__(self, machine: Machine) -> None:
        self._monitor = monitor = Monitor(machine)
        self.runs: Runs | None = monitor
        self.write: Callable[[Any], bytes] = monitor.send
        self.check: Callable[[bytes], None] = monitor.sent

    @property
    def turn(self) -> Turn:
        """The side that takes the next step."""
        return _TURNS[self._monitor.kind]

    @property
    def expects(self) -> str:
        """The legal next step as text."""
        return self._monitor.expected

    def choose(self, branch: int) -> bool:
        """Pick a branch. Return whether CHOOSE is sent (R-27)."""
        return self._monitor.choose(branch + 1) is not None

    def read(self, data: bytes) -> Any:
        """Decode a value of the peer (R-32)."""
        return self._monitor.received(data).value

    def chosen(self, branch: int) -> None:
        """The peer has picked a branch (R-28)."""
        self._monitor.chosen(branch)


def typed(types: Mapping[str, Machine], *, client: bool) -> Callable[[str], Steps | None]:
    """Return the types of a connection's channels, for ``Engine(channels=…)``: the server's machines by name, of which
    a client runs the duals (R-15)."""
    views = {name: machine.dual() if client else machine for name, machine in types.items()}

    def channel(name: str) -> Steps | None:
        return Typed(views[name]) if name in views else None

    return channel
