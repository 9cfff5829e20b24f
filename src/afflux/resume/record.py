"""Record one session in its file: the engine, requests whose answers are not consumed, and requests being served.

A driver calls ``save`` before bytes are written to a transport, before a handler starts with a request, and when the
application asks for the next item. Everything that a peer or a handler has seen is therefore in the file, and an item
that was not consumed is delivered again.

Other changes need not be written. A process that dies continues from its last write, and its peer has retained
everything since.

``resume_bytes`` bounds each of these: the retained frames, the stored requests of this side, and the stored requests
being served. Items that were not consumed are within ``connection_bytes``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from time import time
from typing import Any, cast

from afflux.calls import metadata_mime_of
from afflux.core import errors
from afflux.core.engine import Resumption
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
"Resolution of the stored time of the last transport."


@dataclass(slots=True)
class Asked:
    """A stream that this side has opened, until the application has received its end."""

    verb: Verb
    payload: Payload
    "The request; empty if there was no room to store it."
    taken: int = 0
    "Items that the application has consumed."
    arrived: int = 0
    "Items that have arrived."
    ended: bool = False
    "True if the inbound half has ended."
    error: Error | None = None
    "The error that ended it, if any."
    waiting: list[Payload] = field(default_factory=list)
    "After loading: items that have arrived and were not consumed."


@dataclass(slots=True)
class Served:
    """A stream that the peer has opened and whose handler can be restarted."""

    verb: Verb
    payload: Payload
    "The request."


class Record:
    """A session and its record in a file.

    ``asks`` is True if the application resumes its requests; otherwise they are not stored.
    ``replays(verb, payload, metadata_mime)`` returns whether a handler can be restarted.
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
        self._session.begins_anew = False  # positions in the file only grow
        self.asks = asks
        self.replays = replays
        self.about: Any = None
        "Data of the owner: plain values."
        self.dirty = False
        "True if the application has done something that should be written soon."
        self.asked: dict[int, Asked] = {}
        self.served: dict[int, Served] = {}
        self._kind: Kind = kind
        self._address = address
        self._key: int | None = None
        self._over = False
        self._parts: dict[str, Any] = {}
        "The parts in the file."
        self._items: list[Item] = []
        "Items that have arrived since."
        self._taken: dict[int, int] = {}
        self._dropped: list[int] = []
        self._first = self._sent = 0
        self._seen = 0.0

    @property
    def _session(self) -> Resumption:
        """The session, which an engine that is recorded has."""
        return cast("Resumption", self.engine.resumption)

    # -- changes --------------------------------------------------------------------------------------------

    def opened(self, stream: int, verb: Verb, payload: Payload) -> None:
        """Record a request of this side."""
        if self.asks and verb != "fire":
            self.asked[stream] = Asked(verb, payload if self._fits(self.asked, payload) else Payload())
        self.dirty = True

    def _fits(self, stored: Mapping[int, Asked | Served], payload: Payload) -> bool:
        """Whether there is room for another request."""
        return sum(len(one.payload) for one in stored.values()) + len(payload) <= self.engine.limits.resume_bytes

    def observe(self, events: Iterable[Event]) -> bool:
        """Record events before they are dispatched. Return True if they must be saved first, because a handler will
        start."""
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
                    self._record_arrival(asked, event)
        return begins

    def _record_arrival(self, asked: Asked, event: Items | Block | Completed | Failed) -> None:
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

    def consumed(self, stream: int, items: int) -> bool:
        """Record that the application has consumed items of a stream; return True if that must be saved."""
        asked = self.asked.get(stream)
        if asked is None:
            return False
        asked.taken += items
        self._taken[stream] = asked.taken
        return True

    def drop(self, stream: int) -> None:
        """Delete a stream whose end the application has received, or that it has abandoned."""
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
        """Write the changes. A session that cannot be resumed, or no longer, is removed from the file.

        Raises:
            StoreError: nothing was written, so nothing may be sent or dispatched.
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
        self._add_rows(change)
        if changed or change.gone or change.items or change.taken or seen - self._seen >= _SEEN_S:
            self._key = self.store.save(self._key, self._kind, self._address, change)
            self._seen = seen
        self._parts = parts
        self._first, self._sent = parts["positions"][:2]
        self._items.clear()
        self._taken.clear()
        self._dropped.clear()

    def remove(self) -> None:
        """Remove the session from the file, because it is over.

        Raises:
            StoreError: the session is still in the file.
        """
        key, self._key = self._key, None
        if key is not None:
            self._over = True
            self.store.remove(key)

    def _own_parts(self) -> dict[str, Any]:
        """Return the parts of the file that are not the engine's."""
        handlers = self._session.handlers
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

    def _add_rows(self, change: Change) -> None:
        """Add retained frames and items, which have their own rows."""
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
        """Return the time of the last transport by the wall clock, because another process has another monotonic
        clock."""
        since = self._session.away
        return time() if since is None else time() - (clock.now() - since)

    # -- loading --------------------------------------------------------------------------------------------

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
        """Return the record of a stored session, with its engine, suspended.

        Raises:
            StoreDamaged: the session is inconsistent.
        """
        kind: Kind = "client" if saved.kind == "client" else "server"
        waiting: dict[int, list[Payload]] = {}
        for stream, _, data, metadata in saved.items:
            waiting.setdefault(stream, []).append(Payload(data, metadata))
        unconsumed = [payload for payloads in waiting.values() for payload in payloads]
        try:
            engine = restore(
                saved.parts,
                saved.blocks,
                limits=limits,
                now=clock.now(),
                away=max(0.0, time() - saved.seen),
                unconsumed=(sum(map(len, unconsumed)), len(unconsumed)),
                lease=terms.lease,
                sessions=terms.sessions,
                extensions=terms.extensions,
                place=terms.place,
            )
            record = cls(store, engine, kind=kind, address=saved.address, asks=asks, replays=replays)
            record._load_parts(saved, waiting)
        except (LookupError, TypeError, ValueError, AttributeError, Violation) as error:
            raise StoreDamaged(store.path, f"a session in it is inconsistent ({error!r}); remove the file") from error
        return record

    def _load_parts(self, saved: Saved, waiting: dict[int, list[Payload]]) -> None:
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
    """Return an error with the stored text and numbers, and the stored type if possible."""
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
