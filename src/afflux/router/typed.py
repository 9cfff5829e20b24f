"""Call functions with typed parameters: convert places, decode data, encode results."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Final, Self

from afflux import codecs
from afflux.aio.current import mime_types
from afflux.aio.peer import current_peer
from afflux.calls import entries, reply
from afflux.calls.arguments import awaits
from afflux.codecs import Codec
from afflux.codecs.kinds import Mismatch
from afflux.core.errors import Invalid, Unsupported
from afflux.core.payload import Payload, not_a_payload
from afflux.middleware.chain import opened

if TYPE_CHECKING:
    from afflux.router.binding import Plan

__all__ = ["Typed"]

_OCTETS: Final = "application/octet-stream"
_COMPOSITE: Final = "message/x.rsocket.composite-metadata.v0"
_MOST_ACCEPTED: Final = 64
"The most accepted types of a request that are considered."

_Read = Callable[[Payload], Any]


class Typed:
    """A function with typed parameters.

    Args:
        function: the registered function.
        plan: its parameters and results.
        label: the name of the route in errors.
        codec: the codec of the route; None to select it by the request.
    """

    def __init__(self, function: Callable[..., Any], plan: Plan, label: str, codec: Codec | None) -> None:
        self._function = function
        self._plan = plan
        self._label = label
        self._codec = codec

    def verb(self, verb: str) -> Callable[..., Any]:
        """Return the function that the router calls with the payload or the items, and the places as text."""
        plan = self._plan
        if plan.codes:
            return {"request": self._request_coded, "stream": self._stream_coded, "channel": self._channel_coded}[verb]
        if verb == "channel":
            return self._items
        asks = plan.decodes or plan.entries or plan.peers
        return self._call_inside if asks and verb != "stream" else self._call

    def _call(self, payload: Payload, /, **places: Any) -> Any:
        given = self._given(payload, places)
        return self._function(self._read(payload)(payload), **given)

    async def _call_inside(self, payload: Payload, /, **places: Any) -> Any:
        """Call the function inside the handler's context, which has the peer."""
        answer = self._call(payload, **places)
        return await answer if awaits(answer) else answer

    def _items(self, items: Any, /, **places: Any) -> Any:
        given = self._given(items.first, places)
        return self._function(_read_by(items, self._read(items.first)), **given)

    async def _request_coded(self, payload: Payload, /, **places: Any) -> Any:
        given = self._given(payload, places)
        writer = self._writer(payload)
        answer = self._function(self._read(payload)(payload), **given)
        if awaits(answer):
            answer = await answer
        return None if answer is None else writer.encode(answer)

    def _stream_coded(self, payload: Payload, /, **places: Any) -> AsyncIterator[Any]:
        given = self._given(payload, places)
        writer = self._writer(payload)
        return _encoded(partial(self._function, self._read(payload)(payload), **given), writer)

    def _channel_coded(self, items: Any, /, **places: Any) -> AsyncIterator[Any]:
        given = self._given(items.first, places)
        writer = self._writer(items.first)
        return _encoded(partial(self._function, _read_by(items, self._read(items.first)), **given), writer)

    def _given(self, payload: Payload, places: dict[str, Any]) -> dict[str, Any]:
        """Return the keyword arguments of the function."""
        plan = self._plan
        for name, read in plan.places.items():
            try:
                places[name] = read(places[name])
            except Mismatch as mismatch:
                raise Invalid(f"{self._label}: {mismatch.text(f'place {name}')}") from None
        if plan.entries:
            found = entries(payload, mime_types()[0])
            places.update(dict.fromkeys(plan.entries, found))
        if plan.peers:
            places.update(dict.fromkeys(plan.peers, current_peer()))
        return places

    def _read(self, payload: Payload) -> _Read:
        """Return the function that converts payloads to arguments, determined by the first payload."""
        kind, codec = self._plan.data, self._codec
        if kind is Payload:
            return _unchanged
        if kind is bytes:
            return _data_of
        asked, _ = _types(payload)
        if codec is None:
            codec = _found(asked or mime_types()[1])
        elif asked is not None and _found(asked) is not codec:
            raise Invalid(f"the data is {asked[:130]}; {self._label} reads {codec.mime}")
        return partial(_decoded, codec, kind, self._plan.optional)

    def _writer(self, payload: Payload) -> _Writer:
        """Return the writer that encodes the results of the function."""
        asked, accept = _types(payload)
        expected = asked or mime_types()[1]
        if (codec := self._codec) is not None:
            mime = codec.mime
        else:
            codec, mime = _chosen(accept, expected, self._plan.results)
        taken = not accept or mime.lower() in (name.lower() for name in accept)
        named = mime_types()[0] in (None, _COMPOSITE) and (mime.lower() != expected.lower() or not taken)
        return _Writer(codec, mime, named=named)


class _Writer:
    """Encode the results of one call. The first payload names its MIME type in composite metadata, unless the request
    determines it (RSocket R-57)."""

    __slots__ = ("_codec", "_mime", "_named")

    def __init__(self, codec: Codec, mime: str, *, named: bool) -> None:
        self._codec = codec
        self._mime = mime
        self._named = named

    def encode(self, value: Any) -> Any:
        """Convert a value to a payload; payloads and bytes are returned unchanged."""
        if isinstance(value, Payload | bytes):
            return value
        try:
            data = self._codec.encode(value)
        except TypeError as error:
            if hasattr(value, "__await__"):
                raise not_a_payload(value) from None
            if self._codec.holds(type(value)):
                raise
            raise _wrong_type(self._mime, (type(value),)) from error
        if not self._named:
            return Payload(data)
        self._named = False
        return reply(data, self._mime)


async def _encoded(make: Callable[[], Any], writer: _Writer) -> AsyncIterator[Any]:
    """Yield the encoded values of a stream's or a channel's function."""
    async with opened(make) as source:
        if isinstance(source, AsyncIterable):
            async for value in source:
                yield writer.encode(value)
        else:
            for value in source:
                yield writer.encode(value)


def _unchanged(payload: Payload) -> Payload:
    return payload


def _data_of(payload: Payload) -> bytes:
    return payload.data


def _decoded(codec: Codec, kind: Any, optional: bool, payload: Payload) -> Any:
    if optional and not payload.data:
        return None
    return codec.decode(payload.data, kind)


def _read_by(items: Any, read: _Read) -> Any:
    return items if read is _unchanged else _Decoded(items, read)


class _Decoded(AsyncIterator[Any]):
    """The converted items of a channel."""

    def __init__(self, items: Any, read: _Read) -> None:
        self._items = items
        self._read = read

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        return self._read(await self._items.__anext__())

    def complete(self) -> None:
        """Complete the answers, and go on reading, as ``ItemStream.complete`` does."""
        self._items.complete()

    async def aclose(self) -> None:
        """Close the items."""
        await self._items.aclose()


# Selection of the codec.


def _types(payload: Payload) -> tuple[str | None, tuple[str, ...]]:
    """Return the MIME type of a request's data, and the types that it accepts.

    Raises:
        Invalid: the metadata cannot be read.
    """
    metadata = payload.metadata
    if not metadata:
        return None, ()
    mime = mime_types()[0]
    return _known_types(metadata, mime) if len(metadata) <= 256 else _read_types(metadata, mime)


@lru_cache(maxsize=1024)
def _known_types(metadata: bytes, metadata_mime: str | None) -> tuple[str | None, tuple[str, ...]]:
    return _read_types(metadata, metadata_mime)


def _read_types(metadata: bytes, metadata_mime: str | None) -> tuple[str | None, tuple[str, ...]]:
    found = entries(metadata, metadata_mime)
    return found.mime_type, found.accept[:_MOST_ACCEPTED]


def _found(mime: str) -> Codec:
    try:
        return codecs.find(mime)
    except Unsupported:
        known = ", ".join(codecs.available())
        raise Invalid(f"the data is {mime[:130]}, for which there is no codec; available: {known}") from None


def _chosen(accept: tuple[str, ...], expected: str, results: tuple[Any, ...]) -> tuple[Codec, str]:
    """Return the codec and the type of the answer: the first accepted type that can represent it, else ``expected``."""
    for mime in accept:
        try:
            codec = codecs.find(mime)
        except Unsupported:
            continue
        if codec.called(mime) and all(map(codec.holds, results)):
            return codec, mime
    codec = _found(expected)
    if not all(map(codec.holds, results)):
        raise _wrong_type(expected, results)
    return codec, expected


def _wrong_type(mime: str, results: tuple[Any, ...]) -> Invalid:
    others = [name for name in codecs.available() if all(map(codecs.find(name).holds, results))]
    return Invalid(f"the answer cannot be {mime[:130]}; accept one of: {', '.join(others)}")
