"""Codecs: which bytes stand for a value, by MIME type. Which type a request asks for is the router's to say.

::

    data = codecs.encode({"symbol": "EUR", "bid": 1.08}, "application/json")
    price = codecs.decode(reply.data, "application/json", Price)        # a dataclass

The formats and what is special about each:

| MIME type | holds | notes |
|---|---|---|
| ``application/octet-stream`` | bytes and text | text is UTF-8 |
| ``text/plain`` | text and what has one: int, UUID, … | UTF-8 |
| ``application/json``, ``text/json`` | plain values but bytes | UTF-8; NaN and Infinity are refused, both ways |
| ``application/cbor`` | plain values | extra ``codecs``; tags are refused, but for moments and large integers |
| ``application/msgpack``, ``application/x-msgpack`` | plain values | extra ``codecs``; no extensions but moments |

What a value may be, and what it becomes, is the table of :mod:`afflux.convert`. ``application/cloudevents+json`` is
read as JSON, and likewise for ``+cbor`` and ``+msgpack``. Parameters such as ``; charset=utf-8`` are not looked at.

Nothing that is read creates objects by name, nests deeper than ``convert.DEPTH``, has keys other than text or bytes, or
allocates by a length that the data declares. Of two equal keys the last one counts.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from importlib.util import find_spec
from typing import Any, Final, NoReturn

from afflux.convert import DEPTH, Mismatch, name_of, plain, reader, text_of, text_reader
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


class _Plain(Codec):
    """A format of plain values."""

    def encode(self, value: Any) -> bytes:
        try:
            return self.dump(plain(value))
        except (TypeError, ValueError, OverflowError) as error:
            kind = TypeError if isinstance(error, TypeError) else ValueError
            raise kind(f"{self.mime} can not hold this: {error}") from None

    def decode(self, data: bytes, kind: Any = Any) -> Any:
        try:
            value = self.load(data)
        except MissingExtra:
            raise
        except (ValueError, RecursionError) as error:
            text = f"values that nest deeper than {DEPTH}" if isinstance(error, RecursionError) else str(error)
            text = text.partition("; use sys.")[0]  # advice for whom it does not concern
            raise Invalid(f"the data is not {self.mime}: {text}") from None
        try:
            return value if kind is Any else reader(kind)(value)
        except Mismatch as mismatch:
            raise Invalid(mismatch.told("data")) from None

    def check(self, kind: Any) -> None:
        reader(kind)

    def dump(self, value: Any) -> bytes:
        """The bytes of a plain value. Raises TypeError, ValueError or OverflowError."""
        raise NotImplementedError

    def load(self, data: bytes) -> Any:
        """A plain value. Raises ValueError, or RecursionError when it is too deep."""
        raise NotImplementedError


class _Json(_Plain):
    mime = "application/json"
    aliases = ("text/json",)

    def dump(self, value: Any) -> bytes:
        return _JSON.encode(value).encode()

    def load(self, data: bytes) -> Any:
        value = json.loads(_utf8(data), parse_constant=_no_constant)
        if data.count(b"[") + data.count(b"{") > DEPTH:
            _check_depth(value)
        return value


def _no_bytes(value: Any) -> NoReturn:
    raise TypeError("JSON has no bytes; CBOR and MessagePack do")


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"JSON has no {name}")


_JSON: Final = json.JSONEncoder(
    default=_no_bytes, allow_nan=False, ensure_ascii=False, separators=(",", ":"), check_circular=False
)


class _Cbor(_Plain):
    mime = "application/cbor"
    needs = "cbor2"

    def dump(self, value: Any) -> bytes:
        data: bytes = _module(self).dumps(value)
        return data

    def load(self, data: bytes) -> Any:
        from io import BytesIO

        cbor2 = _module(self)
        file = BytesIO(data)
        decoder = cbor2.CBORDecoder(
            file, semantic_decoders=_NO_TAGS, max_depth=DEPTH, strict_hashable_types=True, read_size=max(1, len(data))
        )
        try:
            value = decoder.decode()
        except cbor2.CBORDecodeError as error:
            raise ValueError(str(error.__cause__ or error)) from None
        if (rest := len(data) - file.tell()) > 0:
            raise ValueError(f"{rest} bytes follow the value")
        return value


class _NoTags(dict[int, Callable[..., Any]]):
    """What cbor2 looks tags up in: those that it may read itself are not in it, any other is refused."""

    def __missing__(self, tag: int) -> NoReturn:
        if tag in (0, 1, 2, 3):  # moments, as text and as a number; large integers
            raise KeyError(tag)
        raise ValueError(f"tag {tag} is not supported")


_NO_TAGS: Final = _NoTags()


class _MessagePack(_Plain):
    mime = "application/msgpack"
    aliases = ("application/x-msgpack",)
    needs = "msgpack"

    def dump(self, value: Any) -> bytes:
        data: bytes = _module(self).packb(value)
        return data

    def load(self, data: bytes) -> Any:
        msgpack = _module(self)
        # Walking over it first costs little, and shows that all items that a list declares are really there.
        walker = msgpack.Unpacker(max_buffer_size=max(1, len(data)))
        walker.feed(data)
        try:
            walker.skip()
            value = msgpack.unpackb(data, timestamp=3, ext_hook=_no_extension)
        except msgpack.OutOfData:
            raise ValueError("it ends too early") from None
        except (msgpack.ExtraData, msgpack.FormatError, OverflowError) as error:
            raise ValueError(_MSGPACK_SAYS.get(type(error).__name__, str(error))) from None
        except msgpack.StackError:
            raise RecursionError from None
        _check_depth(value)
        return value


_MSGPACK_SAYS: Final = {"ExtraData": "bytes follow the value", "FormatError": "0xC1 begins no value"}


def _no_extension(code: int, data: bytes) -> NoReturn:
    raise ValueError(f"extension type {code} is not supported")


def _module(codec: Codec) -> Any:
    from importlib import import_module

    try:
        return import_module(codec.needs)
    except ImportError:
        raise MissingExtra(codec.mime, "codecs") from None


def _check_depth(value: Any) -> None:
    """Raise RecursionError when lists and maps nest deeper than DEPTH. One level after the other, without recursion."""
    level = [value]
    for _ in range(DEPTH):
        level = [
            inner
            for outer in level
            if type(outer) is list or type(outer) is dict
            for inner in (outer.values() if type(outer) is dict else outer)
            if type(inner) is list or type(inner) is dict
        ]
        if not level:
            return
    raise RecursionError


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
