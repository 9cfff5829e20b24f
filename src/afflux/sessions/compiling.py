"""Compile a checked tree of session types to machines, and load files of session types.

A channel's machine has one state for each step of the channels that it reaches. Nothing here recurses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from afflux.core.limits import Limits
from afflux.sessions.checking import check
from afflux.sessions.errors import Problem, SessionSyntaxError, unknown_channel
from afflux.sessions.machine import Kind, Machine, State
from afflux.sessions.parsing import parse, too_long
from afflux.sessions.types import (
    Branch,
    Channel,
    Choose,
    End,
    Enum,
    Field,
    File,
    Name,
    Offer,
    Recv,
    Send,
    Step,
    Struct,
    ValueType,
    Variant,
)

__all__ = ["SessionTypes", "compile_file", "load", "loads"]

KINDS = {Recv: Kind.RECV, Send: Kind.SEND, Offer: Kind.OFFER, Choose: Kind.CHOOSE, End: Kind.END}


class SessionTypes(Mapping[str, Machine]):
    """The channels of a file, by name: the server's machines, each compiled on first use.

    ``types["sum"].dual()`` is the client's machine of the channel ``sum``.
    """

    def __init__(self, file: File, limits: Limits | None = None) -> None:
        self.file = file
        "The tree."
        self._limits = limits or Limits()
        self._channels = {each.name: each for each in file.channels}
        self._types = {each.name: each for each in file.definitions if not isinstance(each, Channel)}
        self._machines: dict[str, Machine] = {}

    def __getitem__(self, name: str) -> Machine:
        if name not in self._machines:
            if name not in self._channels:
                raise _UnknownChannel(unknown_channel(name, self._channels))
            states = _states(self._channels, self._channels[name])
            types = _used(self._types, (state.type for state in states))
            self._machines[name] = Machine(name, states, types, limits=self._limits)
        return self._machines[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._channels)

    def __len__(self) -> int:
        return len(self._channels)


class _UnknownChannel(KeyError):
    """A KeyError that shows its text as it is."""

    def __str__(self) -> str:
        return str(self.args[0])


def load(path: str | Path, *, limits: Limits | None = None) -> SessionTypes:
    """Read, parse and check a file of session types.

    Raises:
        SessionSyntaxError: the text does not parse or breaks rules; the message shows each place.
        MissingExtra: lark is not installed.
        OSError: the file cannot be read.
    """
    limits = limits or Limits()
    with Path(path).open("rb") as file:
        data = file.read(limits.session_type_bytes + 1)
    if len(data) > limits.session_type_bytes:
        raise SessionSyntaxError((too_long(limits),), name=str(path))
    return loads(_decoded(data, str(path)), name=str(path), limits=limits)


def _decoded(data: bytes, name: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        problem = Problem(f"the text is not UTF-8: byte {error.start} is 0x{data[error.start]:02X}", "syntax")
        raise SessionSyntaxError((problem,), name=name) from None


def loads(text: str, *, name: str = "", limits: Limits | None = None) -> SessionTypes:
    """Parse and check the text of session types. Raises as ``load`` does, except OSError."""
    file = parse(text, name=name, limits=limits)
    if problems := check(file, limits=limits):
        raise SessionSyntaxError(problems, source=text, name=name)
    return SessionTypes(file, limits)


def compile_file(file: File, *, limits: Limits | None = None) -> SessionTypes:
    """Check a tree and return its channels.

    Raises:
        SessionSyntaxError: the tree breaks rules.
    """
    if problems := check(file, limits=limits):
        raise SessionSyntaxError(problems)
    return SessionTypes(file, limits)


def _states(channels: Mapping[str, Channel], first: Channel) -> tuple[State, ...]:
    """Number the steps of a channel and of the channels that its branches name, then connect them."""
    numbers: dict[int, int] = {}
    starts: dict[str, int] = {}
    steps: list[tuple[Step, int]] = []
    "Each step, and the number of the step after it."
    waiting: list[Branch] = [Name(first.name)]
    while waiting:
        branch = waiting.pop()
        if isinstance(branch, Name):
            if branch.name in starts:
                continue
            starts[branch.name] = len(steps)
            branch = channels[branch.name].chain
        elif id(branch) in numbers:
            continue
        numbers[id(branch)] = len(steps)
        for step in branch.steps:
            steps.append((step, len(steps) + 1))
        last = branch.steps[-1]
        if isinstance(last, Offer | Choose):
            waiting += reversed(last.branches)

    def state(step: Step, after: int) -> State:
        kind = KINDS[type(step)]
        if isinstance(step, Recv | Send):
            return State(kind, (after,), step.type)
        if isinstance(step, Offer | Choose):
            return State(kind, tuple(number(branch) for branch in step.branches))
        return State(kind)

    def number(branch: Branch) -> int:
        return starts[branch.name] if isinstance(branch, Name) else numbers[id(branch)]

    return tuple(state(step, after) for step, after in steps)


def _used(types: Mapping[str, Struct | Enum], kinds: Iterator[ValueType | None]) -> dict[str, Struct | Enum]:
    """Return the definitions that types refer to, in the order of the file."""
    waiting = [kind.name for kind in kinds if isinstance(kind, Name)]
    found: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            definition = types[name]
            members = definition.fields if isinstance(definition, Struct) else definition.variants
            waiting += [member.type.name for member in members if isinstance(member.type, Name)]
    return {name: _bare(types[name]) for name in types if name in found}


def _bare(definition: Struct | Enum) -> Struct | Enum:
    """Return a definition without what does not affect its values: numbers and notes."""
    if isinstance(definition, Struct):
        return Struct(definition.name, tuple(Field(each.name, each.type) for each in definition.fields))
    return Enum(definition.name, tuple(Variant(each.name, each.type) for each in definition.variants))
