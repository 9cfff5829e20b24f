"""Check recorded frames against session types, and find the first frame that breaks one.

The frames of each side come in their order. The session type determines how the two sides interleave; if only one side
was recorded, all steps of the other side that the type permits are considered. Frames are records, as the dissectors of
the protocols make them; reading files does not belong here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from afflux.core.limits import Limits
from afflux.sessions.errors import unknown_channel
from afflux.sessions.formatting import format_type
from afflux.sessions.machine import Kind, Machine
from afflux.sessions.monitor import CHOICE
from afflux.sessions.types import Basic
from afflux.sessions.values import ValueMismatch, codecs

__all__ = ["PROTOCOLS", "Break", "Report", "check_records"]

Record = Mapping[str, Any]
"A frame record: core.dissect."

OPEN, VALUE, CHOICE_OF, END, COMPLETE, ERROR, BROKEN = range(7)
_INDEX: Final = codecs({}, {}, Limits())(Basic.UINT)
_SHOWN: Final = 3
"States that the text of a break names."


class Message(NamedTuple):
    """What a frame means for a session."""

    kind: int
    client: bool
    record: Record
    data: bytes = b""
    "The value or the branch, as MessagePack; the name of the channel that is opened."


@dataclass(frozen=True, slots=True)
class Break:
    """The first frame that breaks a session type."""

    record: Record
    "The frame."
    channel: str
    expected: str
    "The steps that the type permits, in words."
    seen: str
    "What the frame is, in words."
    state: int | None
    "The state of the server's machine; None if it is not known, because one side was not recorded."


@dataclass(frozen=True, slots=True)
class Report:
    """The result of a check."""

    frames: int
    "Frames of sessions that were checked."
    sessions: int
    "Sessions that were opened."
    broken: Break | None = None
    "The first frame that breaks a type; None if there is none."
    open: bool = False
    "Whether the recording ends inside a session."
    failed: bool = False
    "Whether a session has ended with an error; frames after it are not checked."


def check_records(
    types: Mapping[str, Machine], protocol: str, sides: Mapping[bool, Iterable[Record]], channel: str | None = None
) -> Report:
    """Check the frames of a connection.

    Args:
        types: the server's machines, by the name of the channel.
        protocol: one of ``PROTOCOLS``.
        sides: the frame records of the client (True), of the server (False) or of both, with payloads in hexadecimal.
        channel: the channel to check against; by default the one that the frames name, or the only one of ``types``.

    Raises:
        ValueError: ``channel`` is not one of ``types``, or is needed.
    """
    if channel is not None and channel not in types:
        raise ValueError(unknown_channel(channel, types))
    if channel is None and len(types) == 1:
        channel = next(iter(types))
    report = Report(0, 0)
    for messages in PROTOCOLS[protocol](sides):
        found = _Follower(types, messages, channel).report()
        report = Report(
            report.frames + found.frames,
            report.sessions + found.sessions,
            found.broken,
            report.open or found.open,
            report.failed or found.failed,
        )
        if found.broken is not None:
            break
    return report


Queues = dict[bool, deque[Message]]


def _limit(sides: Mapping[bool, Iterable[Record]]) -> Iterator[Queues]:
    """The sessions of a connection follow one another."""
    kinds = {"SETUP": OPEN, "PAYLOAD": VALUE, "CHOOSE": CHOICE_OF, "END": END, "ERROR": ERROR}
    queues: Queues = {}
    for client, records in sides.items():
        queue = queues[client] = deque()
        for record in records:
            name = str(record["type"])
            if _malformed(record):
                queue.append(Message(BROKEN, client, record))
            elif name in kinds:
                column = "metadata" if name == "SETUP" else "data"
                queue.append(Message(kinds[name], client, record, bytes.fromhex(record.get(column) or "")))
    yield queues


def _malformed(record: Record) -> bool:
    """Whether a frame is malformed. A whole frame of an unknown type is not."""
    error = record["error"]
    if error is None or not str(record["type"]).startswith("0x"):
        return error is not None
    return str(error["reason"]).startswith("cut off")


def _rsocket(sides: Mapping[bool, Iterable[Record]]) -> Iterator[Queues]:
    """Each channel is a session; the requester is its client. Items are values and choices. Malformed frames outside of
    channels come last."""
    records = {side: list(found) for side, found in sides.items()}
    by_stream: dict[tuple[bool, int], list[Record]] = {}
    requesters: dict[int, bool] = {}
    for side, found in records.items():
        for record in found:
            by_stream.setdefault((side, record["stream"]), []).append(record)
            if record["type"] == "REQUEST_CHANNEL":
                requesters.setdefault(record["stream"], side)
    for stream, requester in requesters.items():
        yield {
            side is requester: deque(_items(by_stream.get((side, stream), ()), side is requester)) for side in records
        }
    for side, found in records.items():
        yield {side: deque(Message(BROKEN, side, r) for r in found if r["stream"] not in requesters and _malformed(r))}


def _items(records: Iterable[Record], client: bool) -> Iterator[Message]:
    """Yield the messages of one direction of a channel. A request without data opens it and contains no item; the
    ``route`` of its record, if it has one, names the session type."""
    partial = b""
    for record in records:
        name, flags = record["type"], record["flags"]
        if record["error"] is not None:
            yield Message(BROKEN, client, record)
        elif name in ("ERROR", "CANCEL"):
            yield Message(ERROR, client, record)
        elif name in ("REQUEST_CHANNEL", "PAYLOAD"):
            if name == "REQUEST_CHANNEL":
                yield Message(OPEN, client, record, str(record.get("route") or "").encode())
            partial += bytes.fromhex(record["data"] or "")
            if "F" in flags:
                continue
            if partial[:2] == CHOICE and len(partial) == 3:
                yield Message(CHOICE_OF, client, record, partial[2:])
            elif partial or (name == "PAYLOAD" and "N" in flags):
                yield Message(VALUE, client, record, partial)
            partial = b""
            if "C" in flags:
                yield Message(COMPLETE, client, record)


PROTOCOLS: Final[Mapping[str, Callable[[Mapping[bool, Iterable[Record]]], Iterator[Queues]]]] = {
    "limit": _limit,
    "rsocket": _rsocket,
}
"The protocols whose frames can be checked."


class _Follower:
    """Follow the sessions of one connection or channel."""

    def __init__(self, types: Mapping[str, Machine], queues: Queues, channel: str | None) -> None:
        self._types = types
        self._queues = queues
        self._channel = channel
        self._walk: _Walk | None = None
        self._sessions = 0
        self._frames = 0

    def report(self) -> Report:
        """Take all messages, up to the first break or error."""
        broken: Break | None = None
        failed = False
        while broken is None and (message := self._next()) is not None:
            self._frames += 1
            if message.kind == ERROR:
                failed, self._walk = True, None
                break
            broken = self._take(message)
        unfinished = self._walk is not None and not self._walk.may_end
        return Report(self._frames, self._sessions, broken, unfinished and broken is None, failed)

    def _next(self) -> Message | None:
        """Return the next message: of the side that the type expects, else of the other one."""
        first = True
        if self._walk is not None:
            ending = (side for side, queue in self._queues.items() if queue and queue[0].kind in _ENDS)
            first = next(ending, True) if self._walk.turn is None else self._walk.turn
        queue = self._queues.get(first) or self._queues.get(not first)
        return queue.popleft() if queue else None

    def _take(self, message: Message) -> Break | None:
        if message.kind == OPEN:
            return self._open(message)
        if self._walk is None:
            if message.kind == BROKEN:
                return Break(message.record, "", "whole frames", _flaw(message), None)
            if message.kind in _ENDS and self._sessions:
                return None  # the other direction, or END of the session that has ended
            if self._sessions or True in self._queues:
                return Break(message.record, "", "the opening of a session", _SEEN[message.kind], None)
            self._walk = self._begin(self._channel)
        broken = self._walk.take(message)
        if message.kind in _ENDS and self._walk.may_end:
            self._walk = None
        return broken

    def _open(self, message: Message) -> Break | None:
        if self._walk is not None and not self._walk.may_end:
            return self._walk.broken(message, "the opening of another session")
        named = message.data.decode(errors="replace")
        name = self._channel or named
        if name not in self._types or named not in ("", name):
            expected = self._channel or f"one of {', '.join(self._types)}"
            return Break(message.record, name, f"the channel {expected}", f"the channel {named}", None)
        self._walk = self._begin(name)
        return None

    def _begin(self, name: str | None) -> _Walk:
        if name is None:
            raise ValueError(f"the frames do not name a channel: choose one of {', '.join(self._types)}")
        self._sessions += 1
        return _Walk(self._types[name], frozenset(self._queues))


_ENDS: Final = (END, COMPLETE)
_SEEN: Final = {
    VALUE: "a value",
    CHOICE_OF: "a choice",
    END: "the end",
    COMPLETE: "the end",
}


def _flaw(message: Message) -> str:
    """Return in words why a frame is malformed."""
    return f"a malformed frame ({message.record['error']['reason']})"


class _Walk:
    """The states in which a session may be: one if both sides were recorded."""

    def __init__(self, machine: Machine, recorded: frozenset[bool]) -> None:
        self._machine = machine
        self._recorded = recorded
        self._closures: dict[int, frozenset[int]] = {}
        self._states = self._closure(0)

    @property
    def turn(self) -> bool | None:
        """Whether the client takes the next step; None at the end, or if it is not known."""
        turns = {_by_client(self._machine.states[state].kind) for state in self._states}
        return next(iter(turns)) if len(turns) == 1 else None

    @property
    def may_end(self) -> bool:
        """Whether the session may have ended."""
        return any(self._machine.states[state].kind is Kind.END for state in self._states)

    def take(self, message: Message) -> Break | None:
        """Take a step; return the break if no state permits it."""
        if message.kind == BROKEN:
            return self.broken(message, _flaw(message))
        if message.kind in _ENDS:
            early = message.kind == COMPLETE and any(not self._waits_for(s, message.client) for s in self._states)
            return None if self.may_end or early else self.broken(message, _SEEN[message.kind])
        seen: list[str] = []
        after = {made for state in self._states if (made := self._after(state, message, seen)) is not None}
        if not after:
            return self.broken(message, seen[0] if seen else _SEEN[message.kind])
        self._states = frozenset().union(*(self._closure(state) for state in after))
        return None

    def broken(self, message: Message, seen: str) -> Break:
        """Return the break at a message."""
        states = sorted(self._states)
        relevant = [state for state in states if self._waits_for(state, message.client)] or states
        words = [self._expected(state) for state in relevant]
        some = list(dict.fromkeys(words))
        expected = " or ".join([*some[:_SHOWN], *(["…"] if len(some) > _SHOWN else [])])
        who = "the client" if message.client else "the server"
        state = states[0] if len(states) == 1 else None
        return Break(message.record, self._machine.name, expected, f"{seen} of {who}", state)

    def _waits_for(self, state: int, client: bool) -> bool:
        return _by_client(self._machine.states[state].kind) in (client, None)

    def _expected(self, state: int) -> str:
        here = self._machine.states[state]
        who = "the client" if _by_client(here.kind) else "the server"
        if here.type is not None:
            return f"{format_type(here.type)} of {who}"
        return "the end" if here.kind is Kind.END else f"a choice of branches 1 to {len(here.next)} of {who}"

    def _after(self, state: int, message: Message, seen: list[str]) -> int | None:
        machine = self._machine
        if message.kind == CHOICE_OF:
            here = machine.states[state]
            if here.kind is not (Kind.OFFER if message.client else Kind.CHOOSE):
                return None
            try:
                index = int(_INDEX.unpack(message.data))
            except ValueMismatch as wrong:
                seen.append(f"a choice with {wrong.seen}")
                return None
            if index >= len(here.next):
                seen.append(f"the choice of branch {index + 1}")
                return None
            return here.next[index]
        entered = machine.entered(state, Kind.RECV if message.client else Kind.SEND)
        if entered is None:
            return None
        try:
            machine.codec(entered).unpack(message.data)
        except ValueMismatch as wrong:
            seen.append(f"{wrong.seen}{wrong.where}")
            return None
        return machine.states[entered].next[0]

    def _closure(self, state: int) -> frozenset[int]:
        """Return the states that the side that was not recorded can reach by itself."""
        if len(self._recorded) == 2:
            return frozenset((state,))
        if state not in self._closures:
            found, waiting = {state}, [state]
            while waiting:
                here = self._machine.states[waiting.pop()]
                if _by_client(here.kind) not in (*self._recorded, None):
                    waiting += [number for number in here.next if number not in found]
                    found.update(here.next)
            self._closures[state] = frozenset(found)
        return self._closures[state]


def _by_client(kind: Kind) -> bool | None:
    """Whether the client takes a step of the server's machine; None for the end."""
    return {Kind.RECV: True, Kind.OFFER: True, Kind.SEND: False, Kind.CHOOSE: False, Kind.END: None}[kind]
