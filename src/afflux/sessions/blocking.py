"""Run a typed session in a blocking program: the endpoints of chan.py without ``await``. The types are the same."""

from __future__ import annotations

from typing import Any, Generic, Literal, Protocol, TypeVar, TypeVarTuple, overload

from afflux.sessions.chan import Choose, End, Endpoint, Offer, Recv, Send
from afflux.sessions.machine import Kind

__all__ = ["BlockingSteps", "Chan"]

TypeOut = TypeVar("TypeOut", covariant=True)
Value = TypeVar("Value")
Next = TypeVar("Next")
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


class BlockingSteps(Protocol):
    """What a driver does for an endpoint. The steps have been checked, the values have not."""

    def send(self, value: Any) -> None:
        """Send a value. Raises SessionTypeError if it is not of the type. If it raises, nothing was sent."""

    def choose(self, branch: int) -> None:
        """Choose a branch, from 1. If it raises, nothing was sent."""

    def recv(self) -> Any:
        """Return the next value of the peer. When it is interrupted, the value is kept for the next call."""

    def offer(self) -> int:
        """Return the branch that the peer has chosen, from 1. When it is interrupted, the choice is kept."""

    def end(self) -> None:
        """End the session."""


class Chan(Endpoint, Generic[TypeOut]):  # long: an overload for each number of branches
    """One endpoint of a session, for one step.

    Each step uses the endpoint up and returns the next one. A step that is not of the type, and a second step, raise
    SessionTypeError before anything is sent. An endpoint remains usable after a value of the wrong type.
    """

    __slots__ = ()

    def send(self: Chan[Send[Value, Next]], value: Value) -> Chan[Next]:
        """Send a value and return the next endpoint.

        Raises:
            SessionTypeError: the type expects another step, the value is not of the type, or the endpoint is used.
        """
        self._take(Kind.SEND)
        try:
            self._steps.send(value)
        except BaseException:
            self._used = False
            raise
        after: Chan[Next] = self._after(Kind.SEND)
        return after

    def recv(self: Chan[Recv[Value, Next]]) -> tuple[Value, Chan[Next]]:
        """Return the next value and the next endpoint.

        Raises:
            SessionTypeError: the type expects another step, or the endpoint is used.
            SessionViolation: the peer has broken the type.
        """
        self._take(Kind.RECV)
        try:
            value = self._steps.recv()
        except BaseException:
            self._used = False
            raise
        return value, self._after(Kind.RECV)

    def end(self: Chan[End]) -> None:
        """End the session.

        Raises:
            SessionTypeError: the type expects another step, or the endpoint is used.
        """
        self._take(Kind.END)
        self._steps.end()

    @overload
    def choose(self: Chan[Choose[A, *Rest]], branch: Literal[1]) -> Chan[A]: ...

    @overload
    def choose(self: Chan[Choose[Any, A, *Rest]], branch: Literal[2]) -> Chan[A]: ...

    @overload
    def choose(self: Chan[Choose[Any, Any, A, *Rest]], branch: Literal[3]) -> Chan[A]: ...

    @overload
    def choose(self: Chan[Choose[Any, Any, Any, A, *Rest]], branch: Literal[4]) -> Chan[A]: ...

    @overload
    def choose(self: Chan[Choose[Any, Any, Any, Any, A, *Rest]], branch: Literal[5]) -> Chan[A]: ...

    @overload
    def choose(self: Chan[Choose[Any, Any, Any, Any, Any, A, *Rest]], branch: Literal[6]) -> Chan[A]: ...

    @overload
    def choose(self: Chan[Choose[Any, Any, Any, Any, Any, Any, A, *Rest]], branch: Literal[7]) -> Chan[A]: ...

    @overload
    def choose(self: Chan[Choose[Any, Any, Any, Any, Any, Any, Any, A, *Rest]], branch: Literal[8]) -> Chan[A]: ...

    @overload
    def choose(self: Chan[Choose[Any, Any, Any, Any, Any, Any, Any, Any, A, *Rest]], branch: Literal[9]) -> Chan[A]: ...

    @overload
    def choose(
        self: Chan[Choose[Any, Any, Any, Any, Any, Any, Any, Any, Any, A, *Rest]], branch: Literal[10]
    ) -> Chan[A]: ...

    def choose(self: Any, branch: int) -> Any:
        """Choose a branch, from 1, and return its endpoint.

        Raises:
            SessionTypeError: the type expects another step, has no such branch, or the endpoint is used.
        """
        self._take(Kind.CHOOSE, branch)
        try:
            self._steps.choose(branch)
        except BaseException:
            self._used = False
            raise
        return self._after(Kind.CHOOSE, branch)

    @overload
    def offer(
        self: Chan[Offer[A, B]],
    ) -> tuple[Literal[1], Chan[A]] | tuple[Literal[2], Chan[B]]: ...

    @overload
    def offer(
        self: Chan[Offer[A, B, C]],
    ) -> tuple[Literal[1], Chan[A]] | tuple[Literal[2], Chan[B]] | tuple[Literal[3], Chan[C]]: ...

    @overload
    def offer(
        self: Chan[Offer[A, B, C, D]],
    ) -> (
        tuple[Literal[1], Chan[A]]
        | tuple[Literal[2], Chan[B]]
        | tuple[Literal[3], Chan[C]]
        | tuple[Literal[4], Chan[D]]
    ): ...

    @overload
    def offer(
        self: Chan[Offer[A, B, C, D, E]],
    ) -> (
        tuple[Literal[1], Chan[A]]
        | tuple[Literal[2], Chan[B]]
        | tuple[Literal[3], Chan[C]]
        | tuple[Literal[4], Chan[D]]
        | tuple[Literal[5], Chan[E]]
    ): ...

    @overload
    def offer(
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
    def offer(
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
    def offer(
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
    def offer(
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
    def offer(
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

    def offer(self: Any) -> Any:
        """Return the branch that the peer has chosen, from 1, and its endpoint.

        Raises:
            SessionTypeError: the type expects another step, or the endpoint is used.
            SessionViolation: the peer has broken the type.
        """
        self._take(Kind.OFFER, 1)
        try:
            branch = self._steps.offer()
        except BaseException:
            self._used = False
            raise
        return branch, self._after(Kind.OFFER, branch)
