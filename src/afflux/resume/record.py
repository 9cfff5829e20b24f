"""What one session has in its file, kept up to date: the engine, what was asked and not taken, what is being served.

Write first, then let it be seen. Whoever drives the engine calls ``save`` before bytes are written to a transport,
before a handler begins with a request, and when the application asks for the item after the one that it has: then
whatever a peer or a handler has seen is in the file, and an item that was not taken is there again.

In between nothing has to be written. A process that dies goes on from what it wrote last, and its peer still has
everything since.

``resume_bytes`` bounds, each for itself: the frames that are retained, the requests that are kept of what this side
has asked, and of what it serves. Items that were not taken are within ``connection_bytes``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from time import time
from typing import Any

from afflux.calls import metadata_mime_of
from afflux.core import errors
from afflux.core.errors import Error, Violation
from afflux.core.events import Block, Completed, Event, Failed, Items, Opened, Verb, singly
from afflux.core.limits import Limits
from afflux.core.payload import Payload
from afflux.core.terms import Terms
from afflux.protocols.rsocket.engine import Engine
from afflux.protocols.rsocket.snapshot import lasting, restore, retained, snapshot
from afflux.resume.errors import StoreDamaged
from afflux.resume.store import Change, Item, Kind, Saved, Store
from afflux.transports import clock

__all__ = ["Asked", "Record", "Served"]

_NOTHING = object()
_SEEN_S = 1.0
"How exactly it is noted since when there may be no transport."


@dataclass(slots=True)
class Asked:
    """A stream that this side has opened, until the application has heard its end."""

    verb: Verb
    payload: Payload
    "The request; empty when there was no room to keep it."
    taken: int = 0
    "Items that the application has taken."
    arrived: int = 0
    "Items that have come."
    ended: bool = False
    "Nothing more will come."
    error: Error | None = None
    "Why, if not in order."
    waiting: list[Payload] = field(default_factory=list)
    "At the start: items that have come and were not taken."


@dataclass(slots=True)
class Served:
    """A stream that the peer has opened and whose handler could begin again."""

    verb: Verb
    payload: Payload
    "The request."


class Record:
    """One session and its place in a file.

    ``asks`` is whether the application goes on with what it has asked for; otherwise that is not kept.
    ``replays(verb, payload, metadata_mime)`` says which handlers can begin again.
    """

    def __init__(
        self,
        store: Store,
        engine: Engine,
        *,
        kind: Kind,
        address: str = "",
        asks: bool,
        replays: Callable[[Verb, Payload, str | None], bool],
    ) -> None:
        self.store = store
        self.engine = engine
        engine.begins_anew = False  # positions in the file only grow
        self.asks = asks
        self.replays = replays
        self.about: Any = None
        "What the owner wants to know of it: plain values."
        self.dirty = False
        "The application has done something that should be written soon."
        self.asked: dict[int, Asked] = {}
        self.served: dict[int, Served] = {}
        self._kind: Kind = kind
        self._address = address
        self._key: int | None = None
        self._over = False
        self._parts: dict[str, Any] = {}
        "What the file has."
        self._items: list[Item] = []
        "What has come since."
        self._taken: dict[int, int] = {}
        self._dropped: list[int] = []
        self._first = self._sent = 0
        self._seen = 0.0

    # -- what happens ---------------------------------------------------------------------------------------

    def opened(self, stream: int, verb: Verb, payload: Payload) -> None:
        """This side has asked for something."""
        if self.asks and verb != "fire":
            self.asked[stream] = Asked(verb, payload if self._fits(self.asked, payload) else Payload())
        self.dirty = True

    def _fits(self, kept: Mapping[int, Asked | Served], payload: Payload) -> bool:
        """Whether there is room for one more request."""
        return sum(len(one.payload) for one in kept.values()) + len(payload) <= self.engine.limits.resume_bytes

    def told(self, events: Iterable[Event]) -> bool:
        """These events are about to be told. True when the file has to know of them first: a handler will begin."""
        begins = False
        for event in singly(events) if lasting(self.engine) else ():
            if isinstance(event, Opened):
                begins = True
                again = self.replays(event.verb, event.payload, metadata_mime_of(self.engine))
                if again and self._fits(self.served, event.payload):
                    self.served[event.stream] = Served(event.verb, event.payload)
            elif isinstance(event, Items | Block | Completed | Failed):
                asked = self.asked.get(event.stream)
                if asked is not None:
                    self._heard(asked, event)
        return begins

    def _heard(self, asked: Asked, event: Items | Block | Completed | Failed) -> None:
        if isinstance(event, Failed):
            asked.ended, asked.error = True, event.error
            return
        if isinstance(event, Items):
            for payload in event.payloads:
                self._items.append((event.stream, asked.arrived, payload.data, payload.metadata))
                asked.arrived += 1
        elif isinstance(event, Block):
            for start, end in zip(event.starts, event.ends, strict=True):
                self._items.append((event.stream, asked.arrived, event.buffer[start:end], None))
                asked.arrived += 1
        if isinstance(event, Completed) or event.complete or asked.verb == "request":
            asked.ended = True

    def settled(self, stream: int, items: int) -> bool:
        """The application is done with this many items of a stream; True when that is to be written."""
        asked = self.asked.get(stream)
        if asked is None:
            return False
        asked.taken += items
        self._taken[stream] = asked.taken
        return True

    def drop(self, stream: int) -> None:
        """The application has heard the end of a stream, or does not want it any more."""
        if self.asked.pop(stream, None) is not None:
            self._taken.pop(stream, None)
            self._dropped.append(stream)
            self.dirty = True

    @property
    def kept(self) -> bool:
        """Whether the session is in the file."""
        return self._key is not None

    # -- the file -------------------------------------------------------------------------------------------

    def save(self) -> None:
        """Write what has changed. A session that can not be resumed (any more) is not in the file.

        Raises:
            StoreError: nothing was written: nothing may be seen.
        """
        self.dirty = False
        if self._over or not lasting(self.engine):
            self._items.clear()
            self.remove()
            return
        parts = snapshot(self.engine) | self._own_parts()
        changed = {name: value for name, value in parts.items() if self._parts.get(name, _NOTHING) != value}
        seen = self._last_seen()
        change = Change(seen=seen, parts=changed, gone=[name for name in self._parts if name not in parts])
        self._fill(change)
        if changed or change.gone or change.items or change.taken or seen - self._seen >= _SEEN_S:
            self._key = self.store.save(self._key, self._kind, self._address, change)
            self._seen = seen
        self._parts = parts
        self._first, self._sent = parts["positions"][:2]
        self._items.clear()
        self._taken.clear()
        self._dropped.clear()

    def remove(self) -> None:
        """The session is over.

        Raises:
            StoreError: it is still in the file.
        """
        key, self._key = self._key, None
        if key is not None:
            self._over = True
            self.store.remove(key)

    def _own_parts(self) -> dict[str, Any]:
        """What the file has beside the engine."""
        handlers = self.engine.handlers
        for stream in [stream for stream in self.served if stream not in handlers]:
            del self.served[stream]
        parts: dict[str, Any] = {
            "about": self.about,
            "progress": [
                [id, asked.taken, asked.arrived, asked.ended, _values_of(asked.error)]
                for id, asked in self.asked.items()
            ],
        }
        for role, table in (("asked", self.asked), ("served", self.served)):
            for id, one in table.items():
                parts[f"{role}.{id}"] = [one.verb, one.payload.data, one.payload.metadata]
        return parts

    def _fill(self, change: Change) -> None:
        """What is kept in rows of its own: retained frames, items."""
        frames = retained(self.engine)
        start = max(self._sent, frames.first)
        if frames.sent > start:
            change.blocks.append((start, frames.sent, frames.after(start)))
        if frames.first > self._first:
            change.first = frames.first
        change.taken += self._taken.items()
        change.dropped += self._dropped
        for item in self._items:
            asked = self.asked.get(item[0])
            if asked is not None and item[1] >= asked.taken:
                change.items.append(item)

    def _last_seen(self) -> float:
        """By the wall clock: another process has another clock of its own."""
        since = self.engine.away
        return time() if since is None else time() - (clock.now() - since)

    # -- another process ------------------------------------------------------------------------------------

    @classmethod
    def load(
        cls,
        store: Store,
        saved: Saved,
        *,
        limits: Limits,
        terms: Terms,
        asks: bool,
        replays: Callable[[Verb, Payload, str | None], bool],
    ) -> Record:
        """The record of a session that another process has left, with its engine, suspended.

        Raises:
            StoreDamaged: it does not fit together.
        """
        kind: Kind = "client" if saved.kind == "client" else "server"
        waiting: dict[int, list[Payload]] = {}
        for stream, _, data, metadata in saved.items:
            waiting.setdefault(stream, []).append(Payload(data, metadata))
        held = [payload for payloads in waiting.values() for payload in payloads]
        try:
            engine = restore(
                saved.parts,
                saved.blocks,
                limits=limits,
                now=clock.now(),
                away=max(0.0, time() - saved.seen),
                unconsumed=(sum(map(len, held)), len(held)),
                lease=terms.lease,
                sessions=terms.sessions,
                extensions=terms.extensions,
            )
            record = cls(store, engine, kind=kind, address=saved.address, asks=asks, replays=replays)
            record._take_over(saved, waiting)
        except (LookupError, TypeError, ValueError, AttributeError, Violation) as error:
            raise StoreDamaged(store.path, f"a session in it does not fit together ({error!r}); remove it") from error
        return record

    def _take_over(self, saved: Saved, waiting: dict[int, list[Payload]]) -> None:
        parts = saved.parts
        self._key, self._parts, self._seen = saved.key, parts, saved.seen
        self._first, self._sent = parts["positions"][:2]
        self.about = parts["about"]
        progress = {id: rest for id, *rest in parts["progress"]}
        for name, value in parts.items():
            role, _, id = name.partition(".")
            if role in ("asked", "served"):
                verb, data, metadata = value
                payload = Payload(data, metadata)
                if role == "served":
                    self.served[int(id)] = Served(verb, payload)
                else:
                    taken, arrived, ended, error = progress[int(id)]
                    items = waiting.get(int(id), [])
                    if len(items) != arrived - taken:
                        raise ValueError(f"stream {id} has {len(items)} items of {arrived - taken}")
                    self.asked[int(id)] = Asked(verb, payload, taken, arrived, ended, _error_of(error), items)
        self.asked = dict(sorted(self.asked.items()))


def _values_of(error: Error | None) -> list[Any] | None:
    if error is None:
        return None
    return [type(error).__name__, error.message, error.code, error.stream, error.rule]


def _error_of(values: list[Any] | None) -> Error | None:
    """The same error, as far as it can be told: the text and the numbers are the same."""
    if values is None:
        return None
    name, message, code, stream, rule = values
    kind = getattr(errors, name, Error)
    if kind is errors.ApplicationError:
        return errors.ApplicationError(code, message, stream=stream, rule=rule)
    try:
        made = kind(message, code=code, stream=stream, rule=rule)
    except TypeError:
        made = Error(message, code=code, stream=stream, rule=rule)
    return made if isinstance(made, Error) else Error(message, code=code, stream=stream, rule=rule)
