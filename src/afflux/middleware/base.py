"""Define middleware and its calls. ``chain.py`` combines several."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from inspect import isfunction
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from afflux.core.payload import Payload, PayloadLike, payload_of

if TYPE_CHECKING:
    from afflux.aio.peer import Peer

__all__ = ["Call", "Middleware", "Next", "NextItems", "Routed", "checked", "layers_of"]


class Routed(ABC):
    """A handler with routes, such as a router."""

    @abstractmethod
    def pattern(self, verb: str, route: str | None) -> str | None:
        """Return the registered route that answers a request; "" for the fallback, None without a match."""


@dataclass(slots=True, kw_only=True)
class Call:
    """A call. Treat it as a value: pass ``call.replace(…)`` on instead of changing it."""

    verb: str
    "request, fire, stream, channel or push."
    payload: Payload = field(default_factory=Payload)
    """The request. Of an inbound channel its first item, of an outbound channel empty; of a push the metadata without
    data."""
    items: Any = None
    "Of an inbound channel its items, of an outbound channel its source."
    route: str | None = None
    "The requested route; for an inbound call the peer's text. Use ``pattern`` to count calls."
    pattern: str | None = None
    """The registered route that answers, such as ``prices.{symbol}``; "" for the fallback. None without a router, that
    is at a peer and at a plain handler, and if no route matches."""
    places: Mapping[str, str] = field(default_factory=dict)
    "The texts that the places of ``pattern`` matched."
    options: Mapping[str, Any] = field(default_factory=dict)
    "At a peer: the verb's other arguments by name, such as metadata, cursor and credit."
    peer: Peer | None = None
    "The peer that the call goes to or comes from; None if it is unknown."
    outbound: bool = False
    "Whether this side makes the call: True at a wrapped peer, False at a handler and at a router."
    notes: dict[str, Any] = field(default_factory=dict)
    "Data that middlewares share; copies of the call have the same object."

    def replace(self, **changes: Any) -> Call:
        """Return a copy with some fields changed; a payload may be given as data."""
        if "payload" in changes:
            changes["payload"] = payload_of(changes["payload"])
        return replace(self, **changes)


Next: TypeAlias = Callable[[Call], Awaitable[Payload | None]]
"Continues a call and returns its answer; None for an answer without an item, and for fire and push."
NextItems: TypeAlias = Callable[[Call], AsyncIterator[Payload]]
"Continues a stream or a channel and yields its items. It does not start before the first item is requested."


_VERBS: Final = ("request", "fire", "stream", "channel", "push")
_ARGUMENTS: Final = ("self", "call", "next")
"The parameters of a verb's method."
_NEAR: Final = 0.75
"How similar a name is to the verb that it misspells."


class Middleware:
    """Code around calls. Subclass it and override verbs.

    A method gets the call and ``next``, which continues the call: once, several times or not at all. An exception of
    the method is the error of the call. An object may serve many concurrent calls.

    Raises:
        TypeError: a subclass defines a method ``(self, call, next)`` whose name is nearly that of a verb, such as
            ``requests``: it would never be called. Begin the name of a helper with an underscore.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name, member in vars(cls).items():
            if isfunction(member) and (verb := _misspelled(name, member)) and verb not in vars(cls):
                raise TypeError(
                    f'{cls.__name__}.{name}: no verb of a middleware has this name; did you mean "{verb}"? A helper\'s '
                    "name begins with an underscore"
                )

    async def request(self, call: Call, next: Next) -> PayloadLike | None:
        """Wrap a request; return the answer, usually ``await next(call)``."""
        return await next(call)

    async def fire(self, call: Call, next: Next) -> None:
        """Wrap a fire. A server does not send errors of a fire."""
        await next(call)

    def stream(self, call: Call, next: NextItems) -> AsyncIterator[PayloadLike]:
        """Wrap a stream: an async generator, or a function that returns ``next(call)`` or another async iterator.

        An item is requested when the consumer requests one, so back-pressure is preserved. The iterator of ``next`` is
        closed with the stream, even without a ``finally``.
        """
        return next(call)

    def channel(self, call: Call, next: NextItems) -> AsyncIterator[PayloadLike]:
        """Wrap a channel, as ``stream``; ``call.items`` are the items in the other direction."""
        return next(call)

    async def push(self, call: Call, next: Next) -> None:
        """Wrap a push; its metadata is ``call.payload.metadata``."""
        await next(call)


def _misspelled(name: str, method: Callable[..., Any]) -> str | None:
    """Return the verb that a method seems to mean; None for verbs themselves and for other methods."""
    code = method.__code__
    arguments = code.co_varnames[: code.co_argcount]
    if name in _VERBS or name.startswith("_") or len(arguments) != len(_ARGUMENTS) or arguments[1:] != _ARGUMENTS[1:]:
        return None
    near = get_close_matches(name, _VERBS, n=1, cutoff=_NEAR)
    return near[0] if near else None


def checked(middleware: Sequence[Middleware]) -> tuple[Middleware, ...]:
    """Return the middlewares.

    Raises:
        TypeError: an element is not a middleware.
    """
    for part in middleware:
        if isinstance(part, type) and issubclass(part, Middleware):
            raise TypeError(f"a middleware must be an instance: write {part.__name__}(…)")
        if not isinstance(part, Middleware):
            raise TypeError(f"a middleware must be an instance of a subclass of afflux.Middleware, not {part!r}")
    return tuple(middleware)


def layers_of(middleware: Sequence[Middleware], verb: str) -> list[Callable[..., Any]]:
    """Return the methods that override a verb, the outermost first."""
    plain = getattr(Middleware, verb)
    return [getattr(part, verb) for part in middleware if getattr(type(part), verb) is not plain]
