"""Define what the engine asks of a session type at run time (3.2), and the two types that need no language.

``afflux.sessions`` compiles a session type to a machine with the methods of :class:`Steps`; the engine moves it along
with the messages of both sides. :class:`Plain` is the type of a channel that has none: the client sends payloads, then
the server. :class:`Unchecked` permits everything; the programs of both sides have to agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any, ClassVar, Protocol

from afflux.core.errors import LocalProtocolError, Violation
from afflux.sessions.many import Messages

__all__ = ["Plain", "Runs", "Steps", "Turn", "Unchecked"]


class Turn(IntEnum):
    """The side that takes the next step."""

    SEND = 0
    "This side: the type is ``send`` or ``choose``."
    RECEIVE = 1
    "The peer: the type is ``recv`` or ``offer``."
    BOTH = 2
    "Either side, in a session without checks."
    END = 3
    "Neither side: the type is ``end``."


class Steps(Protocol):
    """The legal next steps of one session, as one side sees them: the server has the channel as written, the client its
    dual (R-15).

    Each method takes one step. If the step is not legal, the state stays as it was: a step of this side raises
    LocalProtocolError, a step of the peer Violation, or RemoteProtocolError with more detail.
    """

    @property
    def opaque(self) -> bool:
        """Whether values are any bytes, and none of them changes whose turn it is. Then ``read`` and ``check`` stand
        for several values, with b""."""

    @property
    def runs(self) -> Runs | None:
        """Checks consecutive values together; None if each has to be checked by itself, or ``opaque`` ones not."""

    @property
    def completing(self) -> int | None:
        """The branch by which a side completes its half without an application that names it; None in most types."""

    @property
    def turn(self) -> Turn:
        """The side that takes the next step."""

    @property
    def expects(self) -> str:
        """The legal next steps as text, for errors."""

    def write(self, value: Any) -> bytes:
        """Encode a value that this side sends (R-31). At a ``choose`` the branch was picked before."""

    def check(self, data: bytes) -> None:
        """As ``write``, for a value that is encoded already."""

    def choose(self, branch: int) -> bool:
        """Pick a branch, counted from 0. Return whether CHOOSE is sent: False where the next value implies it
        (R-27)."""

    def read(self, data: bytes) -> Any:
        """Decode a value that the peer sends (R-32). At an ``offer`` the peer has taken the first branch (R-27)."""

    def chosen(self, branch: int) -> None:
        """The peer has picked a branch (R-28)."""


class Runs(Protocol):
    """Consecutive values of one side, where the type permits any number of them, and none changes whose turn it is."""

    def packed(self, values: Sequence[Any]) -> list[bytes]:
        """Encode the first values, as many as are legal here. Takes no step."""

    def took_sent(self, count: int) -> None:
        """Take the steps of the first values of ``packed``."""

    def unpacked(self, messages: Messages | list[bytes]) -> list[Any]:
        """Decode the first values, as many as are legal here. Takes no step."""

    def took_received(self, count: int) -> None:
        """Take the steps of the first values of ``unpacked``."""


class Plain:
    """The type of a channel without a session type (D-15)::

        channel plain   = offer | recv any -> plain | answers
        channel answers = choose | send any -> answers | end

    The client sends payloads and completes its half, then the server. A value is a payload's bytes, unchecked.
    """

    __slots__ = ("_first", "_picked", "turn")

    opaque: ClassVar[bool] = True
    runs: ClassVar[None] = None
    completing: ClassVar[int] = 1
    "The second branch: the side has no more payloads."

    def __init__(self, client: bool) -> None:
        self.turn = Turn.SEND if client else Turn.RECEIVE
        self._first = self.turn
        self._picked = False

    @property
    def expects(self) -> str:
        """The legal next steps as text."""
        side = "this side" if self.turn is Turn.SEND else "the peer"
        return "the end" if self.turn is Turn.END else f"a payload of {side}, or the end of its half"

    def write(self, value: Any) -> bytes:
        """Return the bytes of a payload of this side."""
        self.check(b"")
        return bytes(value)

    def check(self, data: bytes) -> None:
        """Take the step of a payload of this side."""
        if self.turn is not Turn.SEND:
            raise LocalProtocolError(f"the channel expects {self.expects}", rule="D-15")
        self._picked = False

    def choose(self, branch: int) -> bool:
        """Go on, or complete this half."""
        if self.turn is not Turn.SEND or self._picked or branch not in (0, 1):
            raise LocalProtocolError(f"branch {branch}: the channel expects {self.expects}", rule="D-15")
        return self._pick(branch)

    def read(self, data: bytes) -> Any:
        """Return the bytes of a payload of the peer."""
        self._picked = False
        return data

    def chosen(self, branch: int) -> None:
        """The peer goes on (R-28), or completes its half."""
        if self._picked or branch > 1:
            raise Violation(f"branch {branch}: the channel expects {self.expects}", rule="SI-25")
        self._pick(branch)

    def _pick(self, branch: int) -> bool:
        if branch:
            self.turn = Turn(1 - self.turn) if self.turn is self._first else Turn.END
        else:
            self._picked = True
        return bool(branch)


class Unchecked:
    """The steps of a session whose programs agree by themselves (D-15): both may send at any time, and the server ends
    it when its application completes."""

    __slots__ = ()

    opaque: ClassVar[bool] = True
    runs: ClassVar[None] = None
    completing: ClassVar[None] = None
    turn: ClassVar[Turn] = Turn.BOTH
    expects: ClassVar[str] = "any step"

    def write(self, value: Any) -> bytes:
        """Return the bytes of a value, which is encoded already."""
        return bytes(value)

    def check(self, data: bytes) -> None:
        """No-op: nothing is checked."""

    def choose(self, branch: int) -> bool:
        """Return True: each choice is sent."""
        return True

    def read(self, data: bytes) -> Any:
        """Return the bytes of a value."""
        return data

    def chosen(self, branch: int) -> None:
        """No-op: nothing is checked."""
