"""Run a session type: permit the legal steps of both sides and refuse the others. Rule numbers are Limit-Stream's.

A :class:`Monitor` is one side of one session. It has no input or output: a driver or an engine reports each step to it,
before it sends and after it receives. Own mistakes raise SessionTypeError before anything is sent; mistakes of the peer
raise SessionViolation, and the session is over.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, NoReturn

from afflux.sessions.errors import SessionTypeError, SessionViolation
from afflux.sessions.machine import IllegalStep, Kind, Machine
from afflux.sessions.many import Messages
from afflux.sessions.values import ValueMismatch

__all__ = ["CHOICE", "Monitor", "Received"]

CHOICE: Final = b"\xd4\x00"
"""A choice as an item of a channel of another protocol: a MessagePack extension of type 0, then the branch from 0. No
value of a session type is encoded as an extension."""


class Received(NamedTuple):
    """What a message of the peer means."""

    branch: int | None
    "The branch that the peer has chosen, from 1; None if the message chooses none."
    value: Any = None
    "The value, if ``has_value``."
    has_value: bool = False
    "Whether the message contains a value."


class Monitor:
    """One side of a session.

    Attributes:
        machine: the session type, as this side sees it.
        state: the number of the state.
        sent_last: whether this side has sent the last message; that side sends END (R-29).
        messages: the messages so far, of both sides.
        over: True after the end or a mistake of the peer.
    """

    __slots__ = ("machine", "messages", "over", "sent_last", "state")

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.state = 0
        self.sent_last = False
        self.messages = 0
        self.over = False

    @property
    def kind(self) -> Kind:
        """The step that the type expects."""
        return self.machine.states[self.state].kind

    @property
    def expected(self) -> str:
        """What the type expects, in words."""
        return "nothing, because the session is over" if self.over else self.machine.expected(self.state)

    # Own steps

    def send(self, value: Any) -> bytes:
        """Take the step of sending a value, and return it as MessagePack. In a choice whose first branch begins with a
        send, this chooses the first branch (R-27).

        Raises:
            SessionTypeError: the type expects another step, or the value is not of the type. Nothing changes.
        """
        here = self._sending()
        try:
            data = self.machine.codec(here).pack(value)
        except ValueMismatch as wrong:
            self._refuse(wrong.seen, f"send {wrong.expected}{wrong.where}", wrong.rule)
        self._took(here, sent=True)
        return data

    def sent(self, data: bytes) -> None:
        """Take the step of sending a value that is encoded already. Raises as ``send`` does."""
        here = self._sending()
        try:
            self.machine.codec(here).unpack(data)
        except ValueMismatch as wrong:
            self._refuse(wrong.seen, f"send {wrong.expected}{wrong.where}", wrong.rule)
        self._took(here, sent=True)

    def packed(self, values: Sequence[Any]) -> list[bytes]:
        """Encode the first values that a loop of the type permits; none outside of a loop. ``took_sent`` then takes
        the steps of those that are sent."""
        here = None if self.over else self.machine.loop(self.state, Kind.SEND)
        return [] if here is None else self.machine.codec(here).pack_many(values)

    def took_sent(self, count: int) -> None:
        """Take the steps of the first values of ``packed``."""
        self._took_loop(Kind.SEND, count)

    def _sending(self) -> int:
        """Return the state in which the next value is sent."""
        here = self.machine.entered(self.state, Kind.SEND)
        if here is None or self.over:
            self._refuse("send")
        return here

    def choose(self, branch: int, *, explicit: bool = False) -> int | None:
        """Take the step of choosing a branch, from 1.

        Args:
            explicit: send the choice even if the first message of the branch implies it.

        Returns:
            The branch from 0, to be sent; None if the next message implies the choice (R-27).

        Raises:
            SessionTypeError: the type expects another step or has no such branch. Nothing changes.
        """
        if self.over or self.kind is not Kind.CHOOSE:
            self._refuse("choose")
        implied = branch == 1 and not explicit and self.machine.implies(self.state)
        try:
            self.state = self.machine.step(self.state, Kind.CHOOSE, branch)
        except IllegalStep as illegal:
            self._refuse(illegal.seen)
        if implied:
            return None
        self._count(sent=True)
        return branch - 1

    def end(self) -> None:
        """Take the last step: the session has ended.

        Raises:
            SessionTypeError: the type expects another step.
        """
        if self.over or self.kind is not Kind.END:
            self._refuse("end")
        self.over = True

    # Steps of the peer

    def received(self, data: bytes) -> Received:
        """Take the peer's step of sending a value.

        Raises:
            SessionViolation: the type expects another step, or the bytes are not one value of the type.
        """
        here = self.machine.entered(self.state, Kind.RECV)
        if here is None or self.over:
            self._violated("a value")
        branch = None if here == self.state else 1
        try:
            value = self.machine.codec(here).unpack(data)
        except ValueMismatch as wrong:
            self._violated(wrong.seen, f"recv {wrong.expected}{wrong.where}", wrong.rule)
        self._took(here, sent=False)
        return Received(branch, value, True)

    def unpacked(self, messages: Messages | list[bytes]) -> list[Any]:
        """Decode the first values that a loop of the type permits; none outside of a loop. ``took_received`` then
        takes their steps."""
        here = None if self.over else self.machine.loop(self.state, Kind.RECV)
        return [] if here is None else self.machine.codec(here).unpack_many(messages)

    def took_received(self, count: int) -> None:
        """Take the steps of the first values of ``unpacked``."""
        self._took_loop(Kind.RECV, count)

    def chosen(self, index: int) -> Received:
        """Take the peer's step of choosing a branch, from 0.

        Raises:
            SessionViolation: the type expects another step or has no such branch.
        """
        if self.over or self.kind is not Kind.OFFER:
            self._violated(f"the choice of branch {index + 1}")
        try:
            self.state = self.machine.step(self.state, Kind.OFFER, index + 1)
        except IllegalStep as illegal:
            self._violated(illegal.seen)
        self._count(sent=False)
        return Received(index + 1)

    def ended(self) -> None:
        """Take the peer's last step: the session has ended.

        Raises:
            SessionViolation: the type expects another step.
        """
        if self.over or self.kind is not Kind.END:
            self._violated("the end")
        self.over = True

    # Items of a channel of another protocol

    def item(self, data: bytes) -> Received:
        """Take the peer's step of sending an item: a choice or a value.

        Raises:
            SessionViolation: the type expects another step, or the bytes are not one value of the type.
        """
        if data[:2] == CHOICE and len(data) == 3:
            return self.chosen(data[2])
        return self.received(data)

    def choice_item(self, branch: int) -> bytes | None:
        """Choose a branch and return the item that carries the choice; None if there is none. Raises as ``choose``."""
        index = self.choose(branch)
        return None if index is None else CHOICE + bytes((index,))

    def _took(self, here: int, *, sent: bool) -> None:
        """Continue after the value of a state."""
        self.state = self.machine.states[here].next[0]
        self._count(sent=sent)

    def _took_loop(self, kind: Kind, count: int) -> None:
        here = self.machine.loop(self.state, kind)
        if here is not None:
            self._took(here, sent=kind is Kind.SEND)
            self.messages += count - 1

    def _count(self, *, sent: bool) -> None:
        self.sent_last = sent
        self.messages += 1

    def _refuse(self, seen: str, expected: str | None = None, rule: str = "SI-25") -> NoReturn:
        raise SessionTypeError(self.state, expected or self.expected, seen, rule=rule)

    def _violated(self, seen: str, expected: str | None = None, rule: str = "SI-25") -> NoReturn:
        expected = expected or self.expected
        self.over = True
        raise SessionViolation(self.state, expected, seen, rule=rule)
