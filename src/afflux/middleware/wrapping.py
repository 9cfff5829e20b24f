"""``afflux.wrap``: middleware around a peer, a handler or a router."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, Final, Self, overload

from afflux.aio.current import route_of
from afflux.aio.peer import Peer, current_peer
from afflux.aio.verbs import verbs_of
from afflux.core.errors import Invalid
from afflux.core.payload import Payload, PayloadLike, payload_of
from afflux.middleware.base import Call, Middleware, Routed, checked, layers_of
from afflux.middleware.chain import Flow, around, items_of

__all__ = ["WrappedPeer", "answering", "wrap"]

_ANSWERS: Final = ("request", "fire", "push")
_ITEMS: Final = ("stream", "channel")


@overload
def wrap(target: Peer, *middleware: Middleware) -> Peer: ...
@overload
def wrap(target: object, *middleware: Middleware) -> object: ...
def wrap(target: Any, *middleware: Middleware) -> Any:
    """``target`` with middleware around it, the first one outermost.

    Args:
        target: a peer, around what this side asks for: the result has its verbs with their arguments, and all else
            that it has. Or a handler or a :class:`~afflux.Router`, around what this side answers.
        middleware: objects of subclasses of :class:`~afflux.Middleware`.

    Raises:
        TypeError: the target is none of these, or a middleware is none.
    """
    parts = checked(middleware)
    if type(target).__module__.startswith("afflux.sync"):
        raise TypeError("middleware is for asyncio; around a blocking peer, a loop and a try do the same")
    if callable(getattr(target, "wait_closed", None)) and callable(getattr(target, "request", None)):
        return WrappedPeer(target, parts)
    return _WrappedHandler(target, parts)


class WrappedPeer:
    """A peer with middleware around its verbs; everything else is the peer's own."""

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
        return Call(verb=verb, payload=payload, items=items, route=route, options=options, peer=self._peer)

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
            return _given(Flow(layers, source, self._call("stream", payload_of(data), options)))

        return stream

    def _channel(self, layers: Any) -> Any:
        peer = self._peer

        def source(call: Call) -> Any:
            return peer.channel(call.items, route=call.route, **call.options)

        def channel(items: Any, **options: Any) -> Any:
            return _given(Flow(layers, source, self._call("channel", Payload(), options, items)))

        return channel


def _given(flow: Flow) -> Any:
    """What the caller of a peer's verb gets: the peer's own stream, when no layer has put itself in front of it."""
    native = flow.native
    return flow if native is None else native


class _WrappedHandler(Routed):
    """A handler with middleware around the verbs that it has."""

    def __init__(self, target: Any, middleware: Sequence[Middleware]) -> None:
        self._target = target
        for verb, method in verbs_of(target).items():
            if verb != "session" and (layers := layers_of(middleware, verb)):
                answer = answering(verb, method, layers, partial(self._called, verb))
                answer.__dict__.update(getattr(method, "__dict__", {}))  # such as replays, for a journal
                setattr(self, verb, answer)
            else:
                setattr(self, verb, method)

    def __getattr__(self, name: str) -> Any:
        if name in (*_ANSWERS, *_ITEMS, "as_handler"):
            raise AttributeError(f"the wrapped handler has no {name!r}")
        return getattr(self._target, name)

    def pattern(self, verb: str, route: str | None) -> str | None:
        """The registered route that the wrapped handler knows; None when it knows no routes."""
        return self._target.pattern(verb, route) if isinstance(self._target, Routed) else None

    def _called(self, verb: str, payload: Payload) -> dict[str, Any]:
        """What is known of a call. Metadata that can not be read has no route; the handler may refuse it."""
        if verb == "push":
            return {"pattern": ""}
        route = None
        with suppress(Invalid):
            route = route_of(payload)
        return {"route": route, "pattern": self.pattern(verb, route)}


def answering(
    verb: str,
    method: Callable[..., Any],
    layers: Sequence[Callable[..., Any]],
    about: Callable[[Payload], dict[str, Any]],
) -> Callable[..., Any]:
    """A handler's verb with layers around it.

    Args:
        verb: its name.
        method: ``(payload, **places)`` or, for a channel, ``(items, **places)``.
        layers: of ``layers_of``.
        about: route, pattern and the like of a call, by its payload.
    """
    if verb == "push":
        pushed = around(layers, lambda call: method(call.payload.metadata))

        async def push(metadata: bytes) -> None:
            await pushed(_came(verb, Payload(b"", metadata), about))

        return push
    if verb in ("request", "fire"):
        step = around(layers, lambda call: method(call.payload, **call.places))

        async def answer(payload: Payload, /, **places: Any) -> Payload | None:
            return await step(_came(verb, payload, about, places=places))

        return answer
    if verb == "stream":
        return lambda payload, /, **places: Flow(
            layers,
            lambda call: items_of(partial(method, call.payload, **call.places)),
            _came(verb, payload, about, places=places),
        )
    return lambda items, /, **places: Flow(
        layers,
        lambda call: items_of(partial(method, _with_first(call), **call.places)),
        _came(verb, items.first, about, items=items, places=places),
    )


def _came(verb: str, payload: Payload, about: Callable[[Payload], dict[str, Any]], **more: Any) -> Call:
    try:
        peer = current_peer()
    except LookupError:
        peer = None
    return Call(verb=verb, payload=payload, peer=peer, **about(payload), **more)


def _with_first(call: Call) -> Any:
    """A channel's items; those that a middleware made of them still show the first one, which has the route."""
    return call.items if hasattr(call.items, "first") else _Items(call.items, call.payload)


class _Items(AsyncIterator[Payload]):
    """Items of a channel that went through a middleware."""

    def __init__(self, items: Any, first: Payload) -> None:
        self._items = aiter(items)
        self.first = first
        "The item that the channel was opened with."

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Payload:
        return payload_of(await self._items.__anext__())

    async def batches(self) -> AsyncIterator[list[Payload]]:
        """The items in lists, as a channel has them: here each of one item."""
        async for item in self:
            yield [item]

    async def aclose(self) -> None:
        """Close what the items come from."""
        if hasattr(self._items, "aclose"):
            await self._items.aclose()
