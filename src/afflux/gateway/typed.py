"""Read the items of a session of a session type: the values that it receives in a loop.

1. A type can be relayed if it receives values in a loop in which this side neither sends nor chooses. Before and after
   the loop it may, with the steps of ``Origin.data``. Values that are received outside of the loop are not items.
2. An item is the value as JSON: structs are objects, and a variant of an enum is an object with its name.
3. While no item is requested, no value is taken from the session. Limit-Stream has no credit of its own: the values
   then remain on the connection, up to its receive buffer.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from afflux.core.errors import Unsupported
from afflux.core.payload import Payload
from afflux.sessions.machine import Kind, Machine
from afflux.sessions.script import Step, step_of, take
from afflux.sessions.types import Name, Struct, ValueType

__all__ = ["SessionItems", "opened", "received_in_loop", "steps_of"]

_OWN = (Kind.SEND, Kind.CHOOSE)
_log = logging.getLogger("afflux.relay")


def received_in_loop(client: Machine) -> frozenset[int]:
    """Return the states of the client's machine in which items are received (rule 1).

    Raises:
        Unsupported: there are none, or each turn of the loop needs a step of this side.
    """
    after = [_reachable(client, state) for state in range(len(client.states))]
    begun = after[0] | {0}
    found: set[int] = set()
    for state in sorted(begun):
        if client.states[state].kind is not Kind.RECV or state not in after[state]:
            continue
        loop = {other for other in after[state] if state in after[other]}
        own = [other for other in sorted(loop) if client.states[other].kind in _OWN]
        if own:
            step = client.expected(own[0])
            raise Unsupported(f"a session of {client.name} cannot be relayed: its loop of items has a {step}")
        found.add(state)
    if not found:
        raise Unsupported(f"a session of {client.name} cannot be relayed: it receives no items in a loop")
    return frozenset(found)


def _reachable(machine: Machine, state: int) -> set[int]:
    """Return the states that can follow a state."""
    found: set[int] = set()
    waiting = list(machine.states[state].next)
    while waiting:
        if (each := waiting.pop()) not in found:
            found.add(each)
            waiting += machine.states[each].next
    return found


def steps_of(data: bytes | str) -> list[Step]:
    """Return the steps of this side: one a line.

    Raises:
        ValueError: a line is neither JSON nor a choice.
    """
    text = data if isinstance(data, str) else data.decode()
    return [step_of(line) for line in text.splitlines() if line.strip()]


@asynccontextmanager
async def opened(peer: Any, client: Machine, route: str | None, steps: list[Step]) -> AsyncIterator[SessionItems]:
    """Open a session, without credit.

    Args:
        peer: the connection.
        client: this side's machine; its structs are tuples.
        route: the channel; None for the type's name.
        steps: what this side sends and chooses.
    """
    async with peer.open(client.dual(), route=route) as chan:
        items = SessionItems(chan, client, steps)
        try:
            yield items
        finally:
            await items.close()


class SessionItems:
    """The items of one session."""

    def __init__(self, chan: Any, client: Machine, steps: list[Step]) -> None:
        self._machine = client
        self._loop = received_in_loop(client)
        self._steps = iter(steps)
        self._credit = 0
        self._granted = asyncio.Event()
        self._news = asyncio.Event()
        self._items: list[Payload] = []
        self._plain = _plain(client)
        self._task = asyncio.create_task(self._run(chan))
        self._task.add_done_callback(lambda _: self._news.set())

    def request(self, n: int) -> None:
        """Request ``n`` more items."""
        self._credit += n
        self._granted.set()

    async def next_chunk(self) -> list[Payload] | None:
        """Return the items that have arrived, at least one; None at the end of the session.

        Raises:
            Unsupported: the type expects a step of this side that ``steps`` do not have.
            SessionTypeError: a step is not of the type.
            SessionViolation: the peer has broken the type.
        """
        while not self._items:
            if self._task.done():
                self._task.result()
                return None
            self._news.clear()
            await self._news.wait()
        items, self._items = self._items, []
        return items

    async def close(self) -> None:
        """Stop to read."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self, chan: Any) -> None:
        """Take all steps of the session."""
        state, pending = 0, None
        while chan.kind is not Kind.END:
            kind, branch = chan.kind, 0
            await self._granted.wait()
            if kind is Kind.RECV:
                value, chan = await chan.recv()
                if state in self._loop:
                    self._put(value, state)
            elif kind is Kind.OFFER:
                if self._machine.returns(state, Kind.RECV):
                    await self._read_loop(chan, state)
                branch, chan = await chan.offer()
            else:
                step = pending or self._next(chan.expected)
                branch = step.branch or 1
                try:
                    chan, used = await take(chan, step)
                except ValueError as error:
                    raise Unsupported(str(error)) from None
                pending = None if used else step
            state = self._machine.step(state, kind, branch)
        await chan.end()
        if pending is not None or next(self._steps, None) is not None:
            _log.warning("the session of %s is over; not all of its steps were sent", self._machine.name)

    async def _read_loop(self, chan: Any, state: int) -> None:
        """Read the values of an offer that returns to itself, up to another branch."""
        inside = self._machine.entered(state, Kind.RECV)
        values = chan.loop().recv_each()
        while True:
            await self._granted.wait()
            try:
                value = await anext(values)
            except StopAsyncIteration:
                return
            self._put(value, inside)

    def _put(self, value: Any, state: int | None) -> None:
        plain = self._plain(None if state is None else self._machine.states[state].type)
        self._items.append(Payload(json.dumps(plain(value), ensure_ascii=False, separators=(",", ":")).encode()))
        self._news.set()
        self._credit -= 1
        if self._credit <= 0:
            self._granted.clear()

    def _next(self, expected: str) -> Step:
        step = next(self._steps, None)
        if step is None:
            raise Unsupported(
                f"the session type {self._machine.name} expects {expected}, and the data has no more steps: give one a "
                "line, such as 7 or choose 2"
            )
        return step


_Plain = Callable[[Any], Any]


def _plain(machine: Machine) -> Callable[[ValueType | None], _Plain]:
    """Return what returns, for a type of values, their conversion to what JSON has."""
    known: dict[str, _Plain] = {}

    def of(kind: ValueType | None) -> _Plain:
        if not isinstance(kind, Name):
            return _same
        if kind.name not in known:
            known[kind.name] = lambda value: known[kind.name](value)  # a type may contain itself
            known[kind.name] = _convert(machine.types, kind.name, of)
        return known[kind.name]

    return of


def _convert(types: Mapping[str, Any], name: str, of: Callable[[ValueType | None], _Plain]) -> _Plain:
    definition = types[name]
    if isinstance(definition, Struct):
        fields = [(field.name, of(field.type)) for field in definition.fields]
        return lambda value: {field: plain(each) for (field, plain), each in zip(fields, value, strict=True)}
    variants = {variant.name: of(variant.type) for variant in definition.variants}
    return lambda value: {value[0]: variants[value[0]](value[1])}


def _same(value: Any) -> Any:
    return value
