"""Wrap a peer, a handler or a router with middleware."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, Final, Self, overload

from afflux.aio.current import route_of
from afflux.aio.peer import Peer, current_peer
from afflux.aio.verbs import verbs_of
from afflux.calls.arguments import AsyncOnly
from afflux.core.errors import Invalid
from afflux.core.payload import Payload, PayloadLike, payload_of
from afflux.middleware.base import Call, Middleware, Routed, checked, layers_of
from afflux.middleware.chain import Flow, around, items_of

__all__ = ["WrappedPeer", "answering", "requested_route", "wrap"]

_ANSWERS: Final = ("request", "fire", "push")
_ITEMS: Final = ("stream", "channel")


@overload
def wrap(target: Peer, *middleware: Middleware) -> Peer: ...
@overload
def wrap(target: object, *middleware: Middleware) -> object: ...
def wrap(target: Any, *middleware: Middleware) -> Any:
    """Wrap ``target`` with middleware, the first one outermost.

    Args:
        target: a peer, to wrap requests of this side: the result has all its methods. Or a handler or a
            :class:`~afflux.Router`, to wrap answers of this side.
        middleware: instances of subclasses of :class:`~afflux.Middleware`.

    Raises:
        TypeError: the target or a middleware has the wrong type.
    """
    parts = checked(middleware)
    if type(target).__module__.startswith("afflux.sync"):
        raise TypeError("middleware requires asyncio; use a loop and try around a blocking peer")
    if callable(getattr(target, "wait_closed", None)) and callable(getattr(target, "request", None)):
        return WrappedPeer(target, parts)
    return _WrappedHandler(target, parts)


class WrappedPeer(AsyncOnly):
    """A peer with middleware around its verbs. All other attributes are the peer's."""

    def __init__(self, peer: Any, middleware: Sequence[Middleware]) -> None:
        self._peer = peer
        for verb in (*_ANSWERS, *_ITEMS):
            if layers := layers_of(middleware, verb):
                setattr(self, verb, getattr(self, f"_{verb}")(layers))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._peer, name)

    async def __aenter__(self) -> Self:
        await self._peer.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._peer.__aexit__(kind, error, trace)

    def __repr__(self) -> str:
        return f"<wrapped {self._peer!r}>"

    def _call(self, verb: str, payload: Payload, options: dict[str, Any], items: Any = None) -> Call:
        route = options.pop("route", None)
        return Call(
            verb=verb, payload=payload, items=items, route=route, options=options, peer=self._peer, outbound=True
        )

    def _request(self, layers: Any) -> Any:
        peer = self._peer
        step = around(layers, lambda call: peer.request(call.payload, route=call.route, **call.options))

        async def request(data: PayloadLike = b"", **options: Any) -> Payload:
            answer = await step(self._call("request", payload_of(data), options))
            return Payload() if answer is None else answer

        return request

    def _fire(self, layers: Any) -> Any:
        peer = self._peer
        step = around(layers, lambda call: peer.fire(call.payload, route=call.route, **call.options))

        async def fire(data: PayloadLike = b"", **options: Any) -> None:
            await step(self._call("fire", payload_of(data), options))

        return fire

    def _push(self, layers: Any) -> Any:
        peer = self._peer
        step = around(layers, lambda call: peer.push(call.payload.metadata, **call.options))

        async def push(metadata: Any, **options: Any) -> None:
            await step(self._call("push", Payload(b"", metadata), options))

        return push

    def _stream(self, layers: Any) -> Any:
        peer = self._peer

        def source(call: Call) -> Any:
            return peer.stream(call.payload, route=call.route, **call.options)

        def stream(data: PayloadLike = b"", **options: Any) -> Any:
            return _native_or(Flow(layers, source, self._call("stream", payload_of(data), options)))

        return stream

    def _channel(self, layers: Any) -> Any:
        peer = self._peer

        def source(call: Call) -> Any:
            return peer.channel(call.items, route=call.route, **call.options)

        def channel(items: Any, **options: Any) -> Any:
            return _native_or(Flow(layers, source, self._call("channel", Payload(), options, items)))

        return channel


def _native_or(flow: Flow) -> Any:
    """Return the peer's own stream if all layers pass it unchanged, else the flow."""
    native = flow.native
    return flow if native is None else native


class _WrappedHandler(Routed):
    """A handler with middleware around its verbs."""

    def __init__(self, target: Any, middleware: Sequence[Middleware]) -> None:
        self._target = target
        for verb, method in verbs_of(target).items():
            if verb != "session" and (layers := layers_of(middleware, verb)):
                answer = answering(verb, method, layers, partial(self._about, verb))
                answer.__dict__.update(getattr(method, "__dict__", {}))  # such as replays, for a journal
                setattr(self, verb, answer)
            else:
                setattr(self, verb, method)

    def __getattr__(self, name: str) -> Any:
        if name in (*_ANSWERS, *_ITEMS, "as_handler"):
            raise AttributeError(f"the wrapped handler has no {name!r}")
        return getattr(self._target, name)

    def pattern(self, verb: str, route: str | None) -> str | None:
        """Return the registered route of the wrapped handler; None if it has no routes."""
        return self._target.pattern(verb, route) if isinstance(self._target, Routed) else None

    def _about(self, verb: str, payload: Payload) -> dict[str, Any]:
        route = requested_route(verb, payload)
        return {"route": route, "pattern": "" if verb == "push" else self.pattern(verb, route)}


def requested_route(verb: str, payload: Payload) -> str | None:
    """Return the route of a call; None for a push, and if the metadata cannot be read, which the handler may refuse."""
    if verb != "push":
        with suppress(Invalid):
            return route_of(payload)
    return None


def answering(
    verb: str,
    method: Callable[..., Any],
    layers: Sequence[Callable[..., Any]],
    about: Callable[[Payload], dict[str, Any]],
) -> Callable[..., Any]:
    """Return a handler's verb with layers around it.

    Args:
        verb: the verb's name.
        method: ``(payload, **places)`` or, for a channel, ``(items, **places)``.
        layers: the result of ``layers_of``.
        about: returns further fields of a call from its payload, such as route and pattern.
    """
    if verb == "push":
        pushed = around(layers, lambda call: method(call.payload.metadata))

        async def push(metadata: bytes) -> None:
            await pushed(_inbound(verb, Payload(b"", metadata), about))

        return push
    if verb in ("request", "fire"):
        step = around(layers, lambda call: method(call.payload, **call.places))

        async def answer(payload: Payload, /, **places: Any) -> Payload | None:
            return await step(_inbound(verb, payload, about, places=places))

        return answer
    if verb == "stream":
        return lambda payload, /, **places: Flow(
            layers,
            lambda call: items_of(partial(method, call.payload, **call.places)),
            _inbound(verb, payload, about, places=places),
        )
    return lambda items, /, **places: Flow(
        layers,
        lambda call: items_of(partial(method, _with_first(call), **call.places)),
        _inbound(verb, items.first, about, items=items, places=places),
    )


def _inbound(verb: str, payload: Payload, about: Callable[[Payload], dict[str, Any]], **more: Any) -> Call:
    try:
        peer = current_peer()
    except LookupError:
        peer = None
    return Call(verb=verb, payload=payload, peer=peer, **about(payload), **more)


def _with_first(call: Call) -> Any:
    """Return a channel's items with the attribute ``first``, also if a middleware has replaced them."""
    return call.items if hasattr(call.items, "first") else _Items(call.items, call.payload)


class _Items(AsyncIterator[Payload]):
    """Items of a channel that a middleware has replaced."""

    def __init__(self, items: Any, first: Payload) -> None:
        self._items = aiter(items)
        self.first = first
        "The item that the channel was opened with."

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Payload:
        return payload_of(await self._items.__anext__())

    async def batches(self) -> AsyncIterator[list[Payload]]:
        """Yield the items in lists, as a channel does, with one item each."""
        async for item in self:
            yield [item]

    async def aclose(self) -> None:
        """Close the source of the items."""
        if hasattr(self._items, "aclose"):
            await self._items.aclose()
