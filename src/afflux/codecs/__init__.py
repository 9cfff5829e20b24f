"""Encode and decode values by MIME type. The router selects the type of a request.

::

    data = codecs.encode({"symbol": "EUR", "bid": 1.08}, "application/json")
    price = codecs.decode(reply.data, "application/json", Price)        # a dataclass

The formats:

| MIME type | values | notes |
|---|---|---|
| ``application/octet-stream`` | bytes and text | text is UTF-8 |
| ``text/plain`` | text, and types with a text form: int, UUID, … | UTF-8 |
| ``application/json``, ``text/json`` | lists, maps, dataclasses, … | bytes as base64, NaN and Infinity as null |
| ``application/cbor`` | as JSON | tags are refused, except those of times and large integers |
| ``application/msgpack``, ``application/x-msgpack`` | as JSON | extensions are refused, except that of times |

All but the first two need the extra ``codecs``: ``msgspec`` encodes, decodes and checks, ``cbor2`` parses CBOR. The
documentation of msgspec lists the supported types: dataclasses, TypedDict, NamedTuple, Enum, Literal, UUID, datetime,
Decimal, lists, maps, unions of distinguishable types. Values are not coerced: ``"1"`` is not an int. Unknown keys are
ignored, missing ones need a default. ``application/cloudevents+json`` is read as JSON; ``+cbor`` and ``+msgpack`` work
alike. Parameters such as ``; charset=utf-8`` are ignored.

Decoding never creates objects by name or allocates a declared length, and refuses data that is nested too deep. Of two
equal keys the last one counts.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import lru_cache
from importlib.util import find_spec
from typing import Any, Final, NoReturn

from afflux.codecs.kinds import Mismatch, name_of
from afflux.codecs.text import text_of, text_reader
from afflux.core.errors import Invalid, MissingExtra, Unsupported

__all__ = ["Codec", "available", "decode", "encode", "find", "register"]


class Codec:
    """A format. For a new one, subclass this, set ``mime``, implement both methods, and ``register`` an instance."""

    mime: str = ""
    "The MIME type."
    aliases: tuple[str, ...] = ()
    "Other names of the type."
    needs: str = ""
    "The required module of the extra ``codecs``; empty for none."

    def encode(self, value: Any) -> bytes:
        """Encode a value.

        Raises:
            TypeError, ValueError: the format cannot represent the value.
        """
        raise NotImplementedError

    def decode(self, data: bytes, kind: Any = Any) -> Any:
        """Decode bytes to a ``kind``.

        Raises:
            Invalid: the bytes are not of this format, or not a ``kind``; the text contains the place.
        """
        raise NotImplementedError

    def check(self, kind: Any) -> None:
        """Raise TypeError if data cannot be decoded to a ``kind``. A router calls it when a function is registered."""

    def holds(self, kind: Any) -> bool:
        """Whether values of a type can be encoded; a router selects only such codecs."""
        return True

    def called(self, mime: str) -> bool:
        """Whether a MIME type is a name of this format."""
        return _base(mime) in (self.mime, *self.aliases)

    @property
    def available(self) -> bool:
        """Whether the required modules are installed."""
        return not self.needs or _installed(self.needs)

    def __repr__(self) -> str:
        return f"<Codec {self.mime}>"


@lru_cache(maxsize=64)
def _installed(module: str) -> bool:
    return find_spec(module) is not None


class _Octets(Codec):
    mime = "application/octet-stream"

    def holds(self, kind: Any) -> bool:
        return kind in (bytes, bytearray, memoryview, str)

    def encode(self, value: Any) -> bytes:
        if isinstance(value, str):
            return value.encode()
        if isinstance(value, bytes | bytearray | memoryview):
            return bytes(value)
        raise TypeError(f"{self.mime} represents bytes and text, not {type(value).__name__}")

    def decode(self, data: bytes, kind: Any = Any) -> Any:
        if kind in (bytes, Any, object):
            return data
        if kind is str:
            return _text(data, self.mime)
        raise _unrepresentable(self.mime, kind)


class _Text(Codec):
    mime = "text/plain"

    def holds(self, kind: Any) -> bool:
        try:
            text_reader(kind)
        except TypeError:
            return False
        return True

    def encode(self, value: Any) -> bytes:
        return text_of(value).encode()

    def decode(self, data: bytes, kind: Any = Any) -> Any:
        text = _text(data, self.mime)
        try:
            read = text_reader(str if kind in (Any, object) else kind)
        except TypeError:
            raise _unrepresentable(self.mime, kind) from None
        try:
            return read(text)
        except Mismatch as mismatch:
            raise Invalid(mismatch.text("data")) from None


def _unrepresentable(mime: str, kind: Any) -> Invalid:
    return Invalid(f"the data is {mime}, which cannot represent {name_of(kind)}; available: {', '.join(available())}")


class _Structured(Codec):
    """A format of lists and maps, encoded, decoded and checked by ``msgspec``."""

    needs = "msgspec"

    def encode(self, value: Any) -> bytes:
        try:
            return self.dump(value)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            kind = TypeError if isinstance(error, TypeError) else ValueError
            text = _DEEP if isinstance(error, RecursionError) else error
            raise kind(f"{self.mime} cannot represent this: {text}") from None

    def decode(self, data: bytes, kind: Any = Any) -> Any:
        msgspec = _module("msgspec", self)
        try:
            return self.load(data, kind)
        except msgspec.ValidationError as error:
            raise Invalid(f"the data does not fit: {error}") from None
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            text = _DEEP if isinstance(error, RecursionError) else error
            raise Invalid(f"the data is not {self.mime}: {text}") from None

    def check(self, kind: Any) -> None:
        _checked(_module("msgspec", self), kind)

    def dump(self, value: Any) -> bytes:
        """Encode a value."""
        raise NotImplementedError

    def load(self, data: bytes, kind: Any) -> Any:
        """Decode bytes."""
        raise NotImplementedError


_DEEP: Final = "it is nested too deep"


@lru_cache(maxsize=1024)
def _checked(msgspec: Any, kind: Any) -> None:
    """Raise TypeError for a type that data cannot be decoded to, at any depth."""
    msgspec.json.Decoder(kind)
    waiting, seen = [msgspec.inspect.type_info(kind)], set()
    while waiting:
        info = waiting.pop()
        if isinstance(info, msgspec.inspect.CustomType):
            raise TypeError(f"data cannot be decoded to {name_of(info.cls)}")
        parts = [value for name in info.__struct_fields__ for value in _each(getattr(info, name))]
        parts = [part.type if isinstance(part, msgspec.inspect.Field) else part for part in parts]
        waiting += [part for part in parts if isinstance(part, msgspec.inspect.Type) and id(part) not in seen]
        seen |= set(map(id, parts))


def _each(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


class _Json(_Structured):
    mime = "application/json"
    aliases = ("text/json",)

    def dump(self, value: Any) -> bytes:
        data: bytes = _module("msgspec", self).json.encode(value)
        return data

    def load(self, data: bytes, kind: Any) -> Any:
        return _module("msgspec", self).json.decode(data, type=kind)


class _MessagePack(_Structured):
    mime = "application/msgpack"
    aliases = ("application/x-msgpack",)

    def dump(self, value: Any) -> bytes:
        data: bytes = _module("msgspec", self).msgpack.encode(value)
        return data

    def load(self, data: bytes, kind: Any) -> Any:
        return _module("msgspec", self).msgpack.decode(data, type=kind, ext_hook=_no_extension)


def _no_extension(code: int, data: memoryview) -> NoReturn:
    raise ValueError(f"extension type {code} is not supported")


class _Cbor(_Structured):
    """CBOR, parsed by cbor2 and converted by msgspec."""

    mime = "application/cbor"

    @property
    def available(self) -> bool:
        return super().available and _installed("cbor2")

    def dump(self, value: Any) -> bytes:
        plain = _module("msgspec", self).to_builtins(value, builtin_types=(bytes, datetime))
        data: bytes = _module("cbor2", self).dumps(plain)
        return data

    def load(self, data: bytes, kind: Any) -> Any:
        from io import BytesIO

        cbor2 = _module("cbor2", self)
        file = BytesIO(data)
        decoder = cbor2.CBORDecoder(
            file, semantic_decoders=_NO_TAGS, max_depth=_DEPTH, strict_hashable_types=True, read_size=max(1, len(data))
        )
        try:
            value = decoder.decode()
        except cbor2.CBORDecodeError as error:
            raise ValueError(str(error.__cause__ or error)) from None
        if (rest := len(data) - file.tell()) > 0:
            raise ValueError(f"{rest} bytes follow the value")
        return value if kind is Any else _module("msgspec", self).convert(value, kind, builtin_types=(bytes, datetime))


_DEPTH: Final = 400
"The maximum depth of CBOR, about that of the other formats."


class _NoTags(dict[int, Callable[..., Any]]):
    """The table in which cbor2 looks up tags. Tags that it decodes itself are missing, all others are refused."""

    def __missing__(self, tag: int) -> NoReturn:
        if tag in (0, 1, 2, 3):  # times as text and as a number; large integers
            raise KeyError(tag)
        raise ValueError(f"tag {tag} is not supported")


_NO_TAGS: Final = _NoTags()


def _module(name: str, codec: Codec) -> Any:
    from importlib import import_module

    try:
        return import_module(name)
    except ImportError:
        raise MissingExtra(codec.mime, "codecs") from None


def _utf8(data: bytes) -> str:
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start} is not UTF-8") from None


def _text(data: bytes, mime: str) -> str:
    try:
        return _utf8(data)
    except ValueError as error:
        raise Invalid(f"the data is not text ({mime}): {error}") from None


# The registry.

_codecs: dict[str, Codec] = {}


def register(codec: Codec, *, replace: bool = False) -> Codec:
    """Add a codec under its MIME type and its aliases, for the whole process.

    Raises:
        ValueError: one of its names already has a codec, and ``replace`` is False.
        TypeError: the argument is not an instance of a subclass of Codec, or has no MIME type.
    """
    if not isinstance(codec, Codec) or not codec.mime:
        raise TypeError(f"a codec must be an instance of a subclass of Codec with a mime, not {codec!r}")
    names = [_base(name) for name in (codec.mime, *codec.aliases)]
    taken = [name for name in names if name in _codecs]
    if taken and not replace:
        raise ValueError(f"{taken[0]} already has a codec")
    _codecs.update(dict.fromkeys(names, codec))
    return codec


def available() -> tuple[str, ...]:
    """Return the MIME types whose required modules are installed."""
    return tuple(dict.fromkeys(codec.mime for codec in _codecs.values() if codec.available))


def find(mime: str) -> Codec:
    """Return the codec for a MIME type.

    Raises:
        Unsupported: the type has no codec; the text lists the available types.
        MissingExtra: a required module is not installed.
    """
    base = _base(mime)
    codec = _codecs.get(base)
    if codec is None and "+" in base:
        codec = _codecs.get(f"application/{base.rpartition('+')[2]}")
    if codec is None:
        raise Unsupported(f"no codec for {mime[:130]!r}; available: {', '.join(available())}")
    if not codec.available:
        raise MissingExtra(codec.mime, "codecs")
    return codec


def encode(value: Any, mime: str) -> bytes:
    """Encode a value by MIME type. Raises as ``find`` and ``Codec.encode`` do."""
    return find(mime).encode(value)


def decode(data: bytes, mime: str, kind: Any = Any) -> Any:
    """Decode bytes by MIME type to a ``kind``. Raises as ``find`` and ``Codec.decode`` do."""
    return find(mime).decode(data, kind)


def _base(mime: str) -> str:
    return mime.partition(";")[0].strip().lower()


for _codec in (_Octets(), _Text(), _Json(), _Cbor(), _MessagePack()):
    register(_codec)
