"""What the generic suites know of a protocol: one small declaration each, ``tests/protocols/<package>/wire.py``.

A protocol that is in the registry and has no declaration is a failure of every suite here: whoever adds one writes its
declaration and has the suites.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from afflux.core import events as ev
from afflux.core.limits import Limits
from afflux.core.machine import Table
from afflux.core.payload import Payload

Role = Literal["client", "server"]
ROLES: tuple[Role, ...] = ("client", "server")
VECTORS = Path(__file__).resolve().parents[2] / "vectors"


@dataclass(frozen=True, kw_only=True)
class Vectors:
    """The published bytes of a protocol, and how to read and write them."""

    file: str
    pieces: Callable[[dict[str, Any]], Iterable[tuple[bytes, dict[str, Any]]]]
    "The frames of one vector: bytes, and what they mean."
    decode: Callable[[bytes, dict[str, Any]], Any]
    "One frame; a parser may need to know what the vector says about its context."
    described: Callable[[Any], dict[str, Any]]
    "A frame as the vectors write it."
    encode: Callable[[Any], bytes] = lambda frame: frame.encode()
    one_way: frozenset[str] = frozenset()
    "Vectors that show what is only read, and never written so."

    def every(self) -> list[tuple[str, bytes, dict[str, Any]]]:
        """(id, bytes, meaning) of every frame of every vector."""
        found = []
        for vector in json.loads((VECTORS / self.file).read_text(encoding="utf-8")):
            for number, (data, meaning) in enumerate(self.pieces(vector)):
                found.append((f"{vector['id']}{f'-{number}' if number else ''}", data, meaning))
        return found


@dataclass(frozen=True, kw_only=True)
class Talk:
    """A conversation: what a peer says to an engine, and what its application hears."""

    name: str
    role: Role
    said: tuple[bytes, ...]
    heard: tuple[str, ...]
    "The events in order, by type; the items of one stream count as one."
    first: Callable[[Any], Any] = lambda engine: None
    "What the application does before it hears anything."
    greeted: bool = False
    "Whether the first line has come, and what this side had to say to it has left, before the rest comes."

    @property
    def data(self) -> bytes:
        """What may be cut anywhere."""
        return b"".join(self.said[self.greeted :])

    def begin(self, wire: Wire, limits: Limits | None = None) -> tuple[Any, list[Any]]:
        """An engine that is ready for ``data``, and what its application has heard so far."""
        engine = wire.make(self.role, limits=limits or Limits.server())
        self.first(engine)
        heard = engine.receive(self.said[0], 0.0) if self.greeted else []
        if self.greeted:
            said(engine)
        return engine, heard


@dataclass(frozen=True, kw_only=True)
class Flood:
    """Something a peer does without end, and what it comes to: it is cut off, or this side stops reading, or it costs
    nothing that could add up."""

    row: str
    "The case of the catalogue, or what it is."
    unit: Callable[[int], bytes]
    "The bytes of the n-th time, from 0."
    ends: Literal["closed", "paused", "goes on"]
    rule: str = ""
    "The rule or limit that the last event names."
    role: Role = "server"
    reads: bool = False
    "Whether the peer reads what it is told."
    begins: bool = False
    "Whether a handler begins for each request."
    first: Callable[[Any], Any] = lambda engine: None
    limits: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, repr=False)
class Wire:
    """A protocol."""

    name: str
    make: Callable[..., Any]
    """``make(role, limits=…, mtu=…)``: an engine as an application has it that wants no options."""
    tables: tuple[tuple[Table[Any, Any, Any], str, dict[str, str]], ...]
    """Every transition table, with its grid: a line for each input, a letter for each state that it leads to; "." where
    it stays, "!" where it ends the connection. The letters are those of the states."""
    fatal: tuple[Any, ...] = ()
    "The actions by which a table says that the connection ends."
    vectors: Vectors
    talks: tuple[Talk, ...]
    "At least one for each role."
    floods: tuple[Flood, ...]
    verbs: dict[Role, tuple[ev.Verb, ...]]
    "What each side may open."
    grants: bool = True
    "Whether applications grant credit in items."
    waits: bool = False
    "Whether credit is never sent, so that items beyond it wait at their receiver, and a side waits for its turn."
    opening: Callable[[int, Payload], Payload] = lambda key, payload: Payload(
        b"%06d" % key + payload.data, payload.metadata
    )
    "The payload that opens a stream: its data begins with the number."
    item: Callable[[Payload, Payload], Payload] = lambda asked, payload: payload
    "An item, as this stream takes one: some protocols have no metadata, or elements of one size."
    idle: frozenset[int] = frozenset()
    "Octets of which any number means something, if little."
    same_answers: bool = True
    "Whether the bytes that are said do not depend on how those that are heard are cut."
    mtus: tuple[int, ...] = (64, 100, 5000)

    def __repr__(self) -> str:
        return f"<Wire {self.name}>"

    def hello(self, role: Role) -> bytes:
        """What a peer of the other role says first, so that an engine of this role is established."""
        return next(talk.said[0] for talk in self.talks if talk.role == role)

    def established(self, role: Role, limits: Limits | None = None, **options: Any) -> Any:
        """An engine whose peer has greeted it, and that has nothing left to say."""
        engine = self.make(role, limits=limits or Limits.server(), **options)
        engine.receive(self.hello(role), 0.0)
        said(engine)
        return engine


def said(engine: Any) -> bytes:
    """Everything that an engine has to say now."""
    data = bytearray()
    while chunk := engine.outgoing():
        data += chunk
    return bytes(data)


def flat(events: Iterable[Any]) -> list[Any]:
    """The events without regard to which came together: each item by itself, errors by their words."""
    found: list[Any] = []
    for event in ev.singly(events):
        if isinstance(event, ev.Items):
            found += [(event.stream, payload) for payload in event.payloads]
            if event.complete:
                found.append(ev.Completed(event.stream))
        elif isinstance(event, ev.Failed | ev.Closed):
            found.append((type(event), getattr(event, "stream", 0), repr(event.error)))
        else:
            found.append(event)
    return found


def names(events: Iterable[Any]) -> tuple[str, ...]:
    """The types of events, those of items that follow each other on one stream as one."""
    found: list[tuple[str, int]] = []
    for event in ev.singly(events):
        entry = (type(event).__name__, getattr(event, "stream", 0))
        if not (found and entry == found[-1] and entry[0] == "Items"):
            found.append(entry)
    return tuple(name for name, _ in found)


def told(wire: Wire, talk: Talk, cuts: Iterable[int]) -> tuple[list[Any], bytes]:
    """What an engine tells of a conversation whose bytes come in such pieces, and what it says."""
    engine, events = talk.begin(wire)
    data = talk.data
    for start, stop in pairwise(sorted({0, *cuts, len(data)})):
        events += engine.receive(data[start:stop], 0.0)
    return flat(events), said(engine) if wire.same_answers else b""


def package_of(name: str) -> str:
    """The package of a protocol."""
    return name.replace("-", "_")


def id_of(value: Any) -> str:
    """How pytest names a parameter."""
    return str(getattr(value, "name", None) or getattr(value, "row", None) or value)
