"""What a middleware is, and what it sees. How several are put together is in ``chain.py``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from afflux.core.payload import Payload, PayloadLike, payload_of

if TYPE_CHECKING:
    from afflux.aio.peer import Peer

__all__ = ["Call", "Middleware", "Next", "NextItems", "Routed", "checked", "layers_of"]


class Routed:
    """A handler that knows routes, such as a router."""

    def pattern(self, verb: str, route: str | None) -> str | None:
        """The registered route that answers a request; "" for the function without one, None when there is none."""
        raise NotImplementedError


@dataclass(slots=True, kw_only=True)
class Call:
    """One call on its way. Treat it as a value: hand ``call.replace(…)`` on instead of changing it."""

    verb: str
    "request, fire, stream, channel or push."
    payload: Payload = field(default_factory=Payload)
    """The request; of a channel that comes in its first item, of one that goes out nothing; of a push the metadata, and
    no data."""
    items: Any = None
    "Of a channel: its inbound items where it is answered, its source where it is asked for."
    route: str | None = None
    "The route as it was asked for: text of the peer's where the call came in. ``pattern`` is the one to count by."
    pattern: str | None = None
    """The registered route that answers, such as ``prices.{symbol}``; "" is the function without a route. None where no
    router has said so: at a peer, at a plain handler, and when no route fits."""
    places: Mapping[str, str] = field(default_factory=dict)
    "What the places of ``pattern`` matched."
    options: Mapping[str, Any] = field(default_factory=dict)
    "At a peer: the verb's other arguments by name, such as metadata, cursor and credit."
    peer: Peer | None = None
    "Whom the call goes to or came from; None when nobody knows."
    notes: dict[str, Any] = field(default_factory=dict)
    "For middlewares to leave each other word; it stays the same when the call is replaced."

    def replace(self, **changes: Any) -> Call:
        """The call with some fields changed; a payload may be given as data alone."""
        if "payload" in changes:
            changes["payload"] = payload_of(changes["payload"])
        return replace(self, **changes)


Next: TypeAlias = Callable[[Call], Awaitable[Payload | None]]
"Goes on with a call. What it gives is the answer; None for an answer without an item, and for fire and push."
NextItems: TypeAlias = Callable[[Call], AsyncIterator[Payload]]
"Goes on with a stream or a channel: its items, one by one. Nothing happens before the first is asked for."


class Middleware:
    """Something done around calls. Subclass it and replace the verbs that it is about.

    Each gets the call and ``next``, which goes on with it: once, several times or not at all. What it raises is the
    call's error. One object may serve many calls at once.
    """

    async def request(self, call: Call, next: Next) -> PayloadLike | None:
        """Around a request: give back an answer, ``await next(call)`` as a rule."""
        return await next(call)

    async def fire(self, call: Call, next: Next) -> None:
        """Around a fire; at a server nobody is told of errors."""
        await next(call)

    def stream(self, call: Call, next: NextItems) -> AsyncIterator[PayloadLike]:
        """Around a stream: an async generator, or a function that returns ``next(call)`` or another async iterator.

        An item is asked for when the consumer asks for one, so back-pressure holds. What ``next`` gave is closed
        when the stream is, also when this has no ``finally``.
        """
        return next(call)

    def channel(self, call: Call, next: NextItems) -> AsyncIterator[PayloadLike]:
        """Around a channel: as ``stream``; ``call.items`` are those that go the other way."""
        return next(call)

    async def push(self, call: Call, next: Next) -> None:
        """Around a push; its metadata is ``call.payload.metadata``."""
        await next(call)


def checked(middleware: Sequence[Middleware]) -> tuple[Middleware, ...]:
    """The middlewares.

    Raises:
        TypeError: something else is among them.
    """
    for part in middleware:
        if isinstance(part, type) and issubclass(part, Middleware):
            raise TypeError(f"a middleware is an object: write {part.__name__}(…)")
        if not isinstance(part, Middleware):
            raise TypeError(f"a middleware is an object of a subclass of afflux.Middleware, not {part!r}")
    return tuple(middleware)


def layers_of(middleware: Sequence[Middleware], verb: str) -> list[Callable[..., Any]]:
    """The methods for a verb of those that have one of their own, the outermost first."""
    plain = getattr(Middleware, verb)
    return [getattr(part, verb) for part in middleware if getattr(type(part), verb) is not plain]
