"""Codecs: which bytes stand for a value, by MIME type. Which type a request asks for is the router's to say.

::

    data = codecs.encode({"symbol": "EUR", "bid": 1.08}, "application/json")
    price = codecs.decode(reply.data, "application/json", Price)        # a dataclass

The formats and what is special about each:

| MIME type | holds | notes |
|---|---|---|
| ``application/octet-stream`` | bytes and text | text is UTF-8 |
| ``text/plain`` | text and what has one: int, UUID, … | UTF-8 |
| ``application/json``, ``text/json`` | lists, maps, dataclasses, … | bytes go as base64, NaN and Infinity as null |
| ``application/cbor`` | the same | tags are refused, but for moments and large integers |
| ``application/msgpack``, ``application/x-msgpack`` | the same | no extensions but moments |

All but the first two need the extra ``codecs``: ``msgspec`` reads, writes and checks, ``cbor2`` knows CBOR. What a
value may be is written in the documentation of msgspec: dataclasses, TypedDict, NamedTuple, Enum, Literal, UUID,
datetime, Decimal, lists, maps, unions of what can be told apart. Nothing is guessed: ``"1"`` is no int. Unknown keys
are ignored, missing ones need a default. ``application/cloudevents+json`` is read as JSON, and likewise for ``+cbor``
and ``+msgpack``. Parameters such as ``; charset=utf-8`` are not looked at.

Nothing that is read creates objects by name, or allocates by a length that the data declares, and what nests too deep
is refused. Of two equal keys the last one counts.
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
    """One format. For one of your own: subclass it, name its type, write the two methods, and ``register`` it."""

    mime: str = ""
    "Its MIME type."
    aliases: tuple[str, ...] = ()
    "Other names of the type."
    needs: str = ""
    "The module of the extra ``codecs`` that it works with; empty for none."

    def encode(self, value: Any) -> bytes:
        """The bytes of a value.

        Raises:
            TypeError, ValueError: this format has no bytes for it.
        """
        raise NotImplementedError

    def decode(self, data: bytes, kind: Any = Any) -> Any:
        """The value of bytes, as a ``kind``.

        Raises:
            Invalid: the bytes are not of this format, or are no ``kind``; the text says where.
        """
        raise NotImplementedError

    def check(self, kind: Any) -> None:
        """Raise TypeError when data can never become a ``kind``; a router asks when a function is registered."""

    def holds(self, kind: Any) -> bool:
        """Whether values of a type can be written; a router does not choose a codec that can not."""
        return True

    def called(self, mime: str) -> bool:
        """Whether a MIME type is a name of this one."""
        return _base(mime) in (self.mime, *self.aliases)

    @property
    def available(self) -> bool:
        """Whether what it needs is installed."""
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
        raise TypeError(f"{self.mime} holds bytes and text, not a {type(value).__name__}")

    def decode(self, data: bytes, kind: Any = Any) -> Any:
        if kind in (bytes, Any, object):
            return data
        if kind is str:
            return _text(data, self.mime)
        raise Invalid(f"the data is {self.mime}, which holds no {name_of(kind)}; there is: {', '.join(available())}")


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
            there = ", ".join(available())
            raise Invalid(f"the data is {self.mime}, which holds no {name_of(kind)}; there is: {there}") from None
        try:
            return read(text)
        except Mismatch as mismatch:
            raise Invalid(mismatch.told("data")) from None


class _Structured(Codec):
    """A format of lists and maps: ``msgspec`` writes, reads and checks."""

    needs = "msgspec"

    def encode(self, value: Any) -> bytes:
        try:
            return self.dump(value)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            kind = TypeError if isinstance(error, TypeError) else ValueError
            text = _DEEP if isinstance(error, RecursionError) else error
            raise kind(f"{self.mime} can not hold this: {text}") from None

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
        """The bytes of a value."""
        raise NotImplementedError

    def load(self, data: bytes, kind: Any) -> Any:
        """The value of bytes."""
        raise NotImplementedError


_DEEP: Final = "it nests too deep"


@lru_cache(maxsize=1024)
def _checked(msgspec: Any, kind: Any) -> None:
    """Raise TypeError for a type that data can never become, at any depth."""
    msgspec.json.Decoder(kind)
    waiting, seen = [msgspec.inspect.type_info(kind)], set()
    while waiting:
        info = waiting.pop()
        if isinstance(info, msgspec.inspect.CustomType):
            raise TypeError(f"data can not become {name_of(info.cls)}")
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
    """cbor2 knows the format, msgspec the types."""

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
"How deep CBOR may nest; the others end at about the same depth."


class _NoTags(dict[int, Callable[..., Any]]):
    """What cbor2 looks tags up in: those that it may read itself are not in it, any other is refused."""

    def __missing__(self, tag: int) -> NoReturn:
        if tag in (0, 1, 2, 3):  # moments, as text and as a number; large integers
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
    """Add a codec under its MIME type and its aliases, for everybody in this process.

    Raises:
        ValueError: one of its names has a codec already, and ``replace`` is not said.
        TypeError: it is no object of a subclass of Codec, or has no MIME type.
    """
    if not isinstance(codec, Codec) or not codec.mime:
        raise TypeError(f"a codec is an object of a subclass of Codec with a mime, not {codec!r}")
    names = [_base(name) for name in (codec.mime, *codec.aliases)]
    taken = [name for name in names if name in _codecs]
    if taken and not replace:
        raise ValueError(f"{taken[0]} has a codec already")
    _codecs.update(dict.fromkeys(names, codec))
    return codec


def available() -> tuple[str, ...]:
    """The MIME types that can be read and written here, with what is installed."""
    return tuple(dict.fromkeys(codec.mime for codec in _codecs.values() if codec.available))


def find(mime: str) -> Codec:
    """The codec for a MIME type.

    Raises:
        Unsupported: there is none; the text has the list of what there is.
        MissingExtra: what it works with is not installed.
    """
    base = _base(mime)
    codec = _codecs.get(base)
    if codec is None and "+" in base:
        codec = _codecs.get(f"application/{base.rpartition('+')[2]}")
    if codec is None:
        raise Unsupported(f"there is no codec for {mime[:130]!r}; there is: {', '.join(available())}")
    if not codec.available:
        raise MissingExtra(codec.mime, "codecs")
    return codec


def encode(value: Any, mime: str) -> bytes:
    """A value as bytes of a MIME type. Raises as ``find`` and ``Codec.encode`` do."""
    return find(mime).encode(value)


def decode(data: bytes, mime: str, kind: Any = Any) -> Any:
    """The value of bytes of a MIME type, as a ``kind``. Raises as ``find`` and ``Codec.decode`` do."""
    return find(mime).decode(data, kind)


def _base(mime: str) -> str:
    return mime.partition(";")[0].strip().lower()


for _codec in (_Octets(), _Text(), _Json(), _Cbor(), _MessagePack()):
    register(_codec)
