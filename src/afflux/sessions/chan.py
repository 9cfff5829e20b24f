"""Type a session in Python's own type system, and run it on endpoints that are used once.

``Chan[Recv[int, Send[str, End]]]`` is the endpoint of a session that receives an int, sends a str and ends. Each step
returns the endpoint of the next step, so mypy and pyright reject a program whose steps do not follow the type. A
recursive type is a class that inherits from its first step::

    class Sum(Recv[int, "Offer[Sum, Send[int, End]]"]): ...

``afflux check FILE --emit python`` generates these classes. The endpoints do no input or output: a driver implements
:class:`Steps`.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Mapping
from typing import Any, Generic, Literal, Protocol, TypeVar, TypeVarTuple, overload

from afflux.sessions.errors import SessionTypeError
from afflux.sessions.machine import IllegalStep, Kind, Machine, loaded

__all__ = [
    "Chan",
    "Choose",
    "End",
    "Endpoint",
    "Offer",
    "Recv",
    "RecvLoop",
    "Send",
    "SendLoop",
    "SessionType",
    "Steps",
    "session_type",
    "type_of",
]

ValueOut = TypeVar("ValueOut", covariant=True)
ValueIn = TypeVar("ValueIn", contravariant=True)
NextOut = TypeVar("NextOut", covariant=True)
TypeOut = TypeVar("TypeOut", covariant=True)
ServerOut = TypeVar("ServerOut", covariant=True)
ClientOut = TypeVar("ClientOut", covariant=True)
Value = TypeVar("Value")
Next = TypeVar("Next")
Branches = TypeVarTuple("Branches")
Rest = TypeVarTuple("Rest")

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
E = TypeVar("E")
F = TypeVar("F")
G = TypeVar("G")
H = TypeVar("H")
J = TypeVar("J")
K = TypeVar("K")


class Recv(Generic[ValueOut, NextOut]):
    """Receive a value, then continue. This class and the next four are types only: they have no objects."""


class Send(Generic[ValueIn, NextOut]):
    """Send a value, then continue."""


class Offer(Generic[*Branches]):
    """Continue with the branch that the peer chooses."""


class Choose(Generic[*Branches]):
    """Choose the branch to continue with."""


class End:
    """End the session."""


class Steps(Protocol):
    """What a driver does for an endpoint. The steps have been checked, the values have not."""

    @property
    def run(self) -> Iterator[Any]:
        """The values of a loop that have arrived; ``recv_in_loop`` returns those that follow."""

    async def send(self, value: Any) -> None:
        """Send a value. Raises SessionTypeError if it is not of the type. If it raises, nothing was sent."""

    async def choose(self, branch: int) -> None:
        """Choose a branch, from 1. If it raises, nothing was sent."""

    async def send_each(self, values: Iterable[Any] | AsyncIterable[Any]) -> None:
        """Send the values of a loop. Raises as ``send`` does; those before are sent."""

    async def recv_in_loop(self) -> Any:
        """Return the next value of a loop. Raises StopAsyncIteration when the peer has chosen another branch, which
        ``offer`` then returns."""

    async def recv(self) -> Any:
        """Return the next value of the peer. When it is cancelled, the value is kept for the next call."""

    async def offer(self) -> int:
        """Return the branch that the peer has chosen, from 1. When it is cancelled, the choice is kept."""

    async def end(self) -> None:
        """End the session."""


class Endpoint:
    """One side of a session before one of its steps: checks that the step is of the type and that it is taken once."""

    __slots__ = ("_machine", "_state", "_steps", "_used")

    def __init__(self, machine: Machine, steps: Any, state: int = 0) -> None:
        self._machine = machine
        self._steps = steps
        self._state = state
        self._used = False

    @property
    def expected(self) -> str:
        """What the type expects next, such as ``send int``."""
        return self._machine.expected(self._state)

    @property
    def kind(self) -> Kind:
        """The kind of step that the type expects next."""
        return self._machine.states[self._state].kind

    def _take(self, kind: Kind, branch: int = 0) -> None:
        """Use the endpoint up for a step."""
        if self._used:
            seen = f"{kind.value}: this endpoint was used, continue with the one that its step returned"
            raise SessionTypeError(self._state, self.expected, seen, rule="SI-27")
        if self._machine.states[self._state].kind is not kind:
            raise SessionTypeError(self._state, self.expected, kind.value)
        try:
            self._machine.step(self._state, kind, branch)
        except IllegalStep as illegal:
            raise SessionTypeError(self._state, self.expected, illegal.seen) from None
        self._used = True

    def _after(self, kind: Kind, branch: int = 0) -> Any:
        """Return the endpoint of the next step."""
        return type(self)(self._machine, self._steps, self._machine.step(self._state, kind, branch))


class Chan(Endpoint, Generic[TypeOut]):  # long: an overload for each number of branches
    """One endpoint of a session, for one step.

    Each step uses the endpoint up and returns the next one. A step that is not of the type, and a second step, raise
    SessionTypeError before anything is sent. An endpoint remains usable if the step has not been taken: after a value
    of the wrong type, and after a cancelled step.
    """

    __slots__ = ()

    async def send(self: Chan[Send[Value, Next]], value: Value) -> Chan[Next]:
        """Send a value and return the next endpoint.

        Raises:
            SessionTypeError: the type expects another step, the value is not of the type, or the endpoint is used.
        """
        self._take(Kind.SEND)
        try:
            await self._steps.send(value)
        except BaseException:
            self._used = False
            raise
        after: Chan[Next] = self._after(Kind.SEND)
        return after

    async def recv(self: Chan[Recv[Value, Next]]) -> tuple[Value, Chan[Next]]:
        """Return the next value and the next endpoint.

        Raises:
            SessionTypeError: the type expects another step, or the endpoint is used.
            SessionViolation: the peer has broken the type.
        """
        self._take(Kind.RECV)
        try:
            value = await self._steps.recv()
        except BaseException:
            self._used = False
            raise
        return value, self._after(Kind.RECV)

    @overload
    def loop(self: Chan[Choose[A, *Rest]]) -> SendLoop[A]: ...

    @overload
    def loop(self: Chan[Offer[A, *Rest]]) -> RecvLoop[A]: ...

    def loop(self: Any) -> Any:
        """Return the loop at a choice or an offer: its first branch sends or receives a value and returns here, as in
        ``items = send int -> choose | items | end``. ``send_each`` or ``recv_each`` of the loop take its steps
        together; this endpoint remains the current one.

        Raises:
            SessionTypeError: the type has no loop here, or the endpoint is used.
        """
        sends = self.kind is Kind.CHOOSE
        kind = Kind.SEND if sends else Kind.RECV
        if self._used:
            self._take(kind)  # raises
        if not self._machine.returns(self._state, kind):
            raise SessionTypeError(self._state, self.expected, "a loop")
        return SendLoop(self) if sends else RecvLoop(self)

    async def end(self: Chan[End]) -> None:
        """End the session.

        Raises:
            SessionTypeError: the type expects another step, or the endpoint is used.
        """
        self._take(Kind.END)
        await self._steps.end()

    @overload
    async def choose(self: Chan[Choose[A, *Rest]], branch: Literal[1]) -> Chan[A]: ...

    @overload
    async def choose(self: Chan[Choose[Any, A, *Rest]], branch: Literal[2]) -> Chan[A]: ...

    @overload
    async def choose(self: Chan[Choose[Any, Any, A, *Rest]], branch: Literal[3]) -> Chan[A]: ...

    @overload
    async def choose(self: Chan[Choose[Any, Any, Any, A, *Rest]], branch: Literal[4]) -> Chan[A]: ...

    @overload
    async def choose(self: Chan[Choose[Any, Any, Any, Any, A, *Rest]], branch: Literal[5]) -> Chan[A]: ...

    @overload
    async def choose(self: Chan[Choose[Any, Any, Any, Any, Any, A, *Rest]], branch: Literal[6]) -> Chan[A]: ...

    @overload
    async def choose(self: Chan[Choose[Any, Any, Any, Any, Any, Any, A, *Rest]], branch: Literal[7]) -> Chan[A]: ...

    @overload
    async def choose(
        self: Chan[Choose[Any, Any, Any, Any, Any, Any, Any, A, *Rest]], branch: Literal[8]
    ) -> Chan[A]: ...

    @overload
    async def choose(
        self: Chan[Choose[Any, Any, Any, Any, Any, Any, Any, Any, A, *Rest]], branch: Literal[9]
    ) -> Chan[A]: ...

    @overload
    async def choose(
        self: Chan[Choose[Any, Any, Any, Any, Any, Any, Any, Any, Any, A, *Rest]], branch: Literal[10]
    ) -> Chan[A]: ...

    async def choose(self: Any, branch: int) -> Any:
        """Choose a branch, from 1, and return its endpoint.

        Raises:
            SessionTypeError: the type expects another step, has no such branch, or the endpoint is used.
        """
        self._take(Kind.CHOOSE, branch)
        try:
            await self._steps.choose(branch)
        except BaseException:
            self._used = False
            raise
        return self._after(Kind.CHOOSE, branch)

    @overload
    async def offer(
        self: Chan[Offer[A, B]],
    ) -> tuple[Literal[1], Chan[A]] | tuple[Literal[2], Chan[B]]: ...

    @overload
    async def offer(
        self: Chan[Offer[A, B, C]],
    ) -> tuple[Literal[1], Chan[A]] | tuple[Literal[2], Chan[B]] | tuple[Literal[3], Chan[C]]: ...

    @overload
    async def offer(
        self: Chan[Offer[A, B, C, D]],
    ) -> (
        tuple[Literal[1], Chan[A]]
        | tuple[Literal[2], Chan[B]]
        | tuple[Literal[3], Chan[C]]
        | tuple[Literal[4], Chan[D]]
    ): ...

    @overload
    async def offer(
        self: Chan[Offer[A, B, C, D, E]],
    ) -> (
        tuple[Literal[1], Chan[A]]
        | tuple[Literal[2], Chan[B]]
        | tuple[Literal[3], Chan[C]]
        | tuple[Literal[4], Chan[D]]
        | tuple[Literal[5], Chan[E]]
    ): ...

    @overload
    async def offer(
        self: Chan[Offer[A, B, C, D, E, F]],
    ) -> (
        tuple[Literal[1], Chan[A]]
        | tuple[Literal[2], Chan[B]]
        | tuple[Literal[3], Chan[C]]
        | tuple[Literal[4], Chan[D]]
        | tuple[Literal[5], Chan[E]]
        | tuple[Literal[6], Chan[F]]
    ): ...

    @overload
    async def offer(
        self: Chan[Offer[A, B, C, D, E, F, G]],
    ) -> (
        tuple[Literal[1], Chan[A]]
        | tuple[Literal[2], Chan[B]]
        | tuple[Literal[3], Chan[C]]
        | tuple[Literal[4], Chan[D]]
        | tuple[Literal[5], Chan[E]]
        | tuple[Literal[6], Chan[F]]
        | tuple[Literal[7], Chan[G]]
    ): ...

    @overload
    async def offer(
        self: Chan[Offer[A, B, C, D, E, F, G, H]],
    ) -> (
        tuple[Literal[1], Chan[A]]
        | tuple[Literal[2], Chan[B]]
        | tuple[Literal[3], Chan[C]]
        | tuple[Literal[4], Chan[D]]
        | tuple[Literal[5], Chan[E]]
        | tuple[Literal[6], Chan[F]]
        | tuple[Literal[7], Chan[G]]
        | tuple[Literal[8], Chan[H]]
    ): ...

    @overload
    async def offer(
        self: Chan[Offer[A, B, C, D, E, F, G, H, J]],
    ) -> (
        tuple[Literal[1], Chan[A]]
        | tuple[Literal[2], Chan[B]]
        | tuple[Literal[3], Chan[C]]
        | tuple[Literal[4], Chan[D]]
        | tuple[Literal[5], Chan[E]]
        | tuple[Literal[6], Chan[F]]
        | tuple[Literal[7], Chan[G]]
        | tuple[Literal[8], Chan[H]]
        | tuple[Literal[9], Chan[J]]
    ): ...

    @overload
    async def offer(
        self: Chan[Offer[A, B, C, D, E, F, G, H, J, K]],
    ) -> (
        tuple[Literal[1], Chan[A]]
        | tuple[Literal[2], Chan[B]]
        | tuple[Literal[3], Chan[C]]
        | tuple[Literal[4], Chan[D]]
        | tuple[Literal[5], Chan[E]]
        | tuple[Literal[6], Chan[F]]
        | tuple[Literal[7], Chan[G]]
        | tuple[Literal[8], Chan[H]]
        | tuple[Literal[9], Chan[J]]
        | tuple[Literal[10], Chan[K]]
    ): ...

    async def offer(self: Any) -> Any:
        """Return the branch that the peer has chosen, from 1, and its endpoint.

        Raises:
            SessionTypeError: the type expects another step, or the endpoint is used.
            SessionViolation: the peer has broken the type.
        """
        self._take(Kind.OFFER, 1)
        try:
            branch = await self._steps.offer()
        except BaseException:
            self._used = False
            raise
        return branch, self._after(Kind.OFFER, branch)


class SendLoop(Generic[TypeOut]):
    """The loop of an endpoint that chooses."""

    __slots__ = ("_chan",)

    def __init__(self, chan: Chan[Any]) -> None:
        self._chan = chan

    async def send_each(self: SendLoop[Send[Value, Any]], values: Iterable[Value] | AsyncIterable[Value]) -> None:
        """Send values, each as the first branch; faster than a step each.

        Raises:
            SessionTypeError: a value is not of the type, or the endpoint is used. The values before it are sent.
        """
        chan = self._chan
        if chan._used:
            chan._take(Kind.CHOOSE)  # raises
        chan._used = True
        try:
            await chan._steps.send_each(values)
        finally:
            chan._used = False


class RecvLoop(Generic[TypeOut]):
    """The loop of an endpoint that offers."""

    __slots__ = ("_chan",)

    def __init__(self, chan: Chan[Any]) -> None:
        self._chan = chan

    def recv_each(self: RecvLoop[Recv[Value, Any]]) -> AsyncIterator[Value]:
        """Iterate over the values up to another branch, which ``offer`` of the endpoint then returns; faster than a
        step each. If you leave the iteration early, ``offer`` returns the first branch, for the next value.

        Raises:
            SessionTypeError: the endpoint is used.
            SessionViolation: the peer has broken the type.
        """
        return _Values(self._chan)


class _Values(AsyncIterator[ValueOut]):
    """The values of a loop. The endpoint is used only while this waits."""

    __slots__ = ("_chan",)

    def __init__(self, chan: Chan[Any]) -> None:
        self._chan = chan

    async def __anext__(self) -> ValueOut:
        chan = self._chan
        if chan._used:
            chan._take(Kind.OFFER)  # raises
        value: ValueOut
        for value in chan._steps.run:
            return value
        chan._used = True
        try:
            value = await chan._steps.recv_in_loop()
        finally:
            chan._used = False
        return value


class SessionType(Generic[ServerOut, ClientOut]):
    """A session type of both sides, with the static types of their endpoints."""

    def __init__(self, server: Machine) -> None:
        self.name = server.name
        "The channel's name."
        self.server = server
        "The server's machine."
        self.client = server.dual()
        "The client's machine."

    def at_server(self, steps: Steps) -> Chan[ServerOut]:
        """Return the first endpoint of the server."""
        return Chan(self.server, steps)

    def at_client(self, steps: Steps) -> Chan[ClientOut]:
        """Return the first endpoint of the client."""
        return Chan(self.client, steps)

    def __repr__(self) -> str:
        return f"<SessionType {self.name}: {len(self.server.states)} states>"


def session_type(data: Mapping[str, Any], classes: Mapping[str, type] | None = None) -> SessionType[Any, Any]:
    """Return the session type of plain data, as generated modules contain it.

    Args:
        data: what ``machine.plain`` returns.
        classes: the class of each struct whose values are objects; the others are tuples.

    Raises:
        ValueError: the data is not a session type.
    """
    return SessionType(loaded(data).with_classes(classes or {}))


def type_of(given: SessionType[Any, Any] | Machine) -> SessionType[Any, Any]:
    """Return the session type of an argument: one, or a server's machine, as ``afflux.sessions.load`` returns them.

    Raises:
        TypeError: it is neither.
    """
    if isinstance(given, Machine):
        return SessionType(given)
    if not isinstance(given, SessionType):
        raise TypeError(f"expected a SessionType, or a machine of afflux.sessions.load, not {given!r}")
    return given
