"""Encode values as MessagePack and decode them by their type. Rule numbers are Limit-Stream's.

A :class:`Codec` converts the values of one type: bool, int, float, str; a struct is a tuple of its fields, or an object
of the class that was given for it; an enum is a pair of the variant's name and its value. Codecs never coerce, allocate
nothing for a declared length, and bound the depth and the number of values of a message.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import repeat
from operator import attrgetter
from typing import Any, Final

from afflux.core.limits import REASONS, Limits
from afflux.sessions.formatting import format_constant, format_type
from afflux.sessions.many import TOGETHER, Messages, texts
from afflux.sessions.types import Basic, Constant, Enum, Struct, ValueType

__all__ = ["Codec", "ValueMismatch", "codecs", "form_of"]

Pack = Callable[[Any, int], bytes]
"Encode a value at a depth."
Read = Callable[["_Reader"], Any]
"Decode the next value."
_FLOAT_END: Final = float((1 << 128) - (1 << 103))  # the least number that is rounded beyond 32 bits


class ValueMismatch(Exception):  # noqa: N818 -- not an error until blame is known
    """A value is not of the expected type. ``expected`` and ``seen`` are texts, ``rule`` is the broken one."""

    def __init__(self, expected: str, seen: str, rule: str = "R-32") -> None:
        super().__init__(expected, seen)
        self.expected, self.seen, self.rule = expected, seen, rule
        self.path = ""

    def within(self, name: str) -> ValueMismatch:
        """Add the name of a field or a variant to the path of the value."""
        self.path = f"{name}.{self.path}" if self.path else name
        return self

    @property
    def where(self) -> str:
        """`` in a.b`` for a value inside another one."""
        return f" in {self.path}" if self.path else ""


class Codec:
    """Convert the values of one type."""

    __slots__ = ("_depth", "_each", "_pack", "_read", "_together", "_values", "words")

    def __init__(self, words: str, pack: Pack, read: Read, limits: Limits, basic: Any = None) -> None:
        self.words = words
        "The type, as text."
        self._together = TOGETHER.get(basic)
        self._each = texts if basic is Basic.STRING else None
        self._pack = pack
        self._read = read
        self._depth = limits.value_depth
        self._values = limits.message_values

    def pack(self, value: Any) -> bytes:
        """Encode a value in its shortest form (R-31).

        Raises:
            ValueMismatch: the value is not of the type or outside its range.
        """
        return self._pack(value, self._depth)

    def unpack(self, data: bytes) -> Any:
        """Decode the only value of a message (R-32).

        Raises:
            ValueMismatch: the bytes are not exactly one value of the type, or a limit is reached.
        """
        reader = _Reader(data, self._depth, self._values)
        value = self._read(reader)
        if reader.at != len(data):
            raise ValueMismatch(self.words, f"a value with further bytes ({len(data) - reader.at})")
        return value

    def pack_many(self, values: Sequence[Any]) -> list[bytes]:
        """Encode the first values that are of the type; ``pack`` reports what is wrong with the next one."""
        packed: list[bytes] = []
        try:
            packed += map(self._pack, values, repeat(self._depth))
        except ValueMismatch:
            pass
        return packed

    def unpack_many(self, messages: Messages | list[bytes]) -> list[Any]:
        """Decode the first messages that are values of the type; ``unpack`` reports what is wrong with the next one."""
        found: list[Any] | None = None
        each: Iterable[bytes]
        if isinstance(messages, Messages):
            found = self._together(messages) if self._together is not None else None
            each = messages.unpack(f"{messages.size}s")
        else:
            found = self._each(messages) if self._each is not None else None
            each = messages
        if found is not None:
            return found
        values: list[Any] = []
        try:
            values += map(self.unpack, each)
        except ValueMismatch:
            pass
        return values


class _Reader:
    """A position in a message, and what may still be read."""

    __slots__ = ("at", "data", "depth", "values")

    def __init__(self, data: bytes, depth: int, values: int) -> None:
        self.data = data
        self.at = 0
        self.depth = depth
        self.values = values

    def head(self, words: str) -> int:
        """Take the first byte of a value."""
        try:
            head = self.data[self.at]
        except IndexError:
            raise ValueMismatch(words, "the end of the data") from None
        self.at += 1
        return head

    def take(self, size: int, words: str) -> bytes:
        """Take ``size`` bytes."""
        end = self.at + size
        if end > len(self.data):
            raise ValueMismatch(words, f"data that ends {end - len(self.data)} bytes early")
        taken = self.data[self.at : end]
        self.at = end
        return taken

    def number(self, size: int, words: str) -> int:
        """Take an unsigned number of ``size`` bytes."""
        return int.from_bytes(self.take(size, words), "big")

    def array(self, length: int, words: str) -> None:
        """Take the head of an array of ``length`` values, and count them."""
        head = self.head(words)
        if head & 0xF0 == 0x90:
            found = head & 0x0F
        elif head in (0xDC, 0xDD):
            found = self.number(2 if head == 0xDC else 4, words)
        else:
            raise ValueMismatch(words, form_of(head))
        if found != length:
            raise ValueMismatch(words, f"an array of {found}")
        self.values -= length
        if self.values < 0:
            raise ValueMismatch(words, "more values than a message may contain", REASONS["message_values"])

    def string(self, words: str) -> bytes:
        """Take a string, as UTF-8."""
        head = self.head(words)
        if head & 0xE0 == 0xA0:
            return self.take(head & 0x1F, words)
        if 0xD9 <= head <= 0xDB:
            return self.take(self.number(1 << (head - 0xD9), words), words)
        raise ValueMismatch(words, form_of(head))


_FORMS: Final = (
    (0x80, "an integer"),
    (0x90, "a map"),
    (0xA0, "an array"),
    (0xC0, "a string"),
    (0xC1, "nil"),
    (0xC2, "an unused byte"),
    (0xC4, "a bool"),
    (0xC7, "binary data"),
    (0xCA, "an extension"),
    (0xCC, "a float"),
    (0xD4, "an integer"),
    (0xD9, "an extension"),
    (0xDC, "a string"),
    (0xDE, "an array"),
    (0xE0, "a map"),
    (0x100, "an integer"),
)
"What a first byte below a bound stands for, in order."


def form_of(head: int) -> str:
    """Return in words what the first byte of a MessagePack value stands for."""
    return next(words for bound, words in _FORMS if head < bound)


def _seen(value: Any) -> str:
    """Return a Python value in words, shortened."""
    shown = repr(value) if isinstance(value, bool | int | float | str) else ""
    shown = shown if len(shown) <= 40 else f"{shown[:40]}…"
    return f"{type(value).__name__} {shown}".rstrip()


# Basic types

_SMALL: Final = tuple(bytes((number,)) for number in range(0x80))
_UNSIGNED: Final = ((1 << 8, ">BB", 0xCC), (1 << 16, ">BH", 0xCD), (1 << 32, ">BI", 0xCE), (1 << 64, ">BQ", 0xCF))
_SIGNED: Final = ((1 << 7, ">Bb", 0xD0), (1 << 15, ">Bh", 0xD1), (1 << 31, ">Bi", 0xD2), (1 << 63, ">Bq", 0xD3))


def _packed_integer(value: int) -> bytes:
    """Encode an integer in range in its shortest form; 0 and above in the unsigned formats."""
    if 0 <= value < 0x80:
        return _SMALL[value]
    if -0x20 <= value < 0:
        return bytes((value & 0xFF,))
    forms = _UNSIGNED if value > 0 else _SIGNED
    form, head = next((form, head) for bound, form, head in forms if -bound <= value < bound)
    return struct.pack(form, head, value)


def _integers(basic: Basic) -> tuple[Pack, Read]:
    """Every integer format is read, with and without a sign (I-1)."""
    words = basic.value
    least, most = (-(1 << 63), (1 << 63) - 1) if basic is Basic.INT else (0, (1 << 64) - 1)

    def pack(value: Any, depth: int) -> bytes:
        if type(value) is not int and (isinstance(value, bool) or not isinstance(value, int)):
            raise ValueMismatch(words, _seen(value), "R-31")
        if not least <= value <= most:
            raise ValueMismatch(words, f"{_seen(value)}, which is out of range", "R-31")
        return _packed_integer(value)

    def read(reader: _Reader) -> int:
        head = reader.head(words)
        if head < 0x80:
            return head
        if head >= 0xE0:
            value = head - 0x100
        elif 0xCC <= head <= 0xCF:
            value = reader.number(1 << (head - 0xCC), words)
        elif 0xD0 <= head <= 0xD3:
            value = int.from_bytes(reader.take(1 << (head - 0xD0), words), "big", signed=True)
        else:
            raise ValueMismatch(words, form_of(head))
        if not least <= value <= most:
            raise ValueMismatch(words, f"{value}, which is out of range")
        return value

    return pack, read


def _floats(basic: Basic) -> tuple[Pack, Read]:
    """Both float formats are read (I-2); a ``float`` refuses what it could not write."""
    words = basic.value
    form, mark = (">Bf", 0xCA) if basic is Basic.FLOAT else (">Bd", 0xCB)

    def pack(value: Any, depth: int) -> bytes:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueMismatch(words, _seen(value), "R-31")
        try:
            return struct.pack(form, mark, value)
        except (OverflowError, struct.error):
            raise ValueMismatch(words, f"{_seen(value)}, which is out of range", "R-31") from None

    def read(reader: _Reader) -> float:
        head = reader.head(words)
        if head not in (0xCA, 0xCB):
            raise ValueMismatch(words, form_of(head))
        size, code = (4, ">f") if head == 0xCA else (8, ">d")
        value = float(struct.unpack(code, reader.take(size, words))[0])
        if head > mark and _FLOAT_END <= abs(value) < float("inf"):
            raise ValueMismatch(words, f"{value}, which is out of range")
        return value

    return pack, read


def _pack_bool(value: Any, depth: int) -> bytes:
    if value is True:
        return b"\xc3"
    if value is False:
        return b"\xc2"
    raise ValueMismatch("bool", _seen(value), "R-31")


def _read_bool(reader: _Reader) -> bool:
    head = reader.head("bool")
    if head in (0xC2, 0xC3):
        return head == 0xC3
    raise ValueMismatch("bool", form_of(head))


_STRING_HEADS: Final = tuple(bytes((0xA0 | size,) if size < 0x20 else (0xD9, size)) for size in range(0x100))


def _packed_string(data: bytes) -> bytes:
    size = len(data)
    if size < 0x100:
        return _STRING_HEADS[size] + data
    return struct.pack(">BH" if size < 0x1_0000 else ">BI", 0xDA if size < 0x1_0000 else 0xDB, size) + data


def _pack_string(value: Any, depth: int) -> bytes:
    if not isinstance(value, str):
        raise ValueMismatch("string", _seen(value), "R-31")
    try:
        data = value.encode()
        return _STRING_HEADS[len(data)] + data if len(data) < 0x100 else _packed_string(data)
    except UnicodeEncodeError:
        raise ValueMismatch("string", "text with a lone surrogate, which UTF-8 cannot represent", "R-31") from None


def _read_string(reader: _Reader) -> str:
    try:
        return reader.string("string").decode()
    except UnicodeDecodeError:
        raise ValueMismatch("string", "a string that is not UTF-8") from None


_BASIC: Final[Mapping[Basic, tuple[Pack, Read]]] = {
    Basic.BOOL: (_pack_bool, _read_bool),
    Basic.INT: _integers(Basic.INT),
    Basic.UINT: _integers(Basic.UINT),
    Basic.FLOAT: _floats(Basic.FLOAT),
    Basic.DOUBLE: _floats(Basic.DOUBLE),
    Basic.STRING: (_pack_string, _read_string),
}


def _constants(constant: Constant) -> tuple[Pack, Read]:
    words, value, kind = format_constant(constant), constant.value, type(constant.value)
    pack_any, read_any = _BASIC[constant.basic]
    encoded = pack_any(value, 0)
    on_wire = struct.unpack(">f", encoded[1:])[0] if constant.basic is Basic.FLOAT else value

    def pack(given: Any, depth: int) -> bytes:
        if type(given) is not kind or given != value:
            raise ValueMismatch(words, _seen(given), "R-31")
        return encoded

    def read(reader: _Reader) -> Any:
        try:
            found = read_any(reader)
        except ValueMismatch as wrong:
            raise ValueMismatch(words, wrong.seen) from None
        if found not in (value, on_wire):
            raise ValueMismatch(words, _seen(found))
        return value

    return pack, read


# Structs and enums


def codecs(types: Mapping[str, Struct | Enum], classes: Mapping[str, type], limits: Limits) -> Callable[..., Codec]:
    """Return a function from types to codecs. Codecs of one function share those of the structs and enums.

    Args:
        types: the definitions that names in types refer to.
        classes: the classes of structs: dataclasses, or others whose ``__match_args__`` are the fields in order.
        limits: ``value_depth`` and ``message_values`` bound a message.
    """
    named: dict[str, tuple[Pack, Read]] = {}

    def both(kind: ValueType) -> tuple[Pack, Read]:
        if isinstance(kind, Basic):
            return _BASIC[kind]
        if isinstance(kind, Constant):
            return _constants(kind)
        return _later(kind.name, named) if kind.name not in named else named[kind.name]

    for name, definition in types.items():
        if isinstance(definition, Struct):
            named[name] = _structs(definition, classes.get(name), both)
        else:
            named[name] = _enums(definition, both)

    def codec(kind: ValueType) -> Codec:
        return Codec(format_type(kind), *both(kind), limits, kind)

    return codec


def _later(name: str, named: Mapping[str, tuple[Pack, Read]]) -> tuple[Pack, Read]:
    """Refer to a definition that follows, or that contains this one."""
    return (lambda value, depth: named[name][0](value, depth)), (lambda reader: named[name][1](reader))


Both = Callable[[ValueType], tuple[Pack, Read]]


def _structs(definition: Struct, made_of: type | None, both: Both) -> tuple[Pack, Read]:
    words, names = definition.name, [field.name for field in definition.fields]
    packs, reads = zip(*(both(field.type) for field in definition.fields), strict=True) if names else ((), ())
    parts_of = _parts_of(definition, made_of)
    make: Callable[..., Any] = (lambda *values: values) if made_of is None else made_of
    only = make() if not names else None
    head = _array_head(len(names))

    def pack(value: Any, depth: int) -> bytes:
        if depth == 0 and names:
            raise ValueMismatch(words, "a value that is nested too deep", REASONS["value_depth"])
        parts = [head]
        given = parts_of(value)
        try:
            for each, part in zip(packs, given, strict=True):
                parts.append(each(part, depth - 1))
        except ValueMismatch as wrong:
            raise wrong.within(f"{words}.{names[len(parts) - 1]}") from None
        return b"".join(parts)

    def read(reader: _Reader) -> Any:
        reader.array(len(names), words)
        if not names:
            return only
        _enter(reader, words)
        values: list[Any] = []
        try:
            for each in reads:
                values.append(each(reader))
        except ValueMismatch as wrong:
            raise wrong.within(f"{words}.{names[len(values)]}") from None
        reader.depth += 1
        return make(*values)

    return pack, read


def _enter(reader: _Reader, words: str) -> None:
    reader.depth -= 1
    if reader.depth < 0:
        raise ValueMismatch(words, "a value that is nested too deep", REASONS["value_depth"])


def _parts_of(definition: Struct, made_of: type | None) -> Callable[[Any], Any]:
    """Return the function that takes a struct's value apart."""
    names = [field.name for field in definition.fields]
    attributes = getattr(made_of, "__match_args__", ())
    if made_of is not None and len(attributes) != len(names):
        raise TypeError(f"{made_of.__name__} has {len(attributes)} fields, struct {definition.name} has {len(names)}")
    from_object: Callable[[Any], Any] = lambda value: [getattr(value, name) for name in attributes]  # noqa: E731
    if len(attributes) > 1:
        from_object = attrgetter(*attributes)  # faster, and returns a tuple

    def parts_of(value: Any) -> Any:
        if made_of is not None and isinstance(value, made_of):
            return from_object(value)
        if isinstance(value, tuple | list) and len(value) == len(names):
            return value
        if isinstance(value, Mapping) and len(value) == len(names) and all(name in value for name in names):
            return [value[name] for name in names]
        raise ValueMismatch(definition.name, _seen(value), "R-31")

    return parts_of


def _array_head(length: int) -> bytes:
    if length < 0x10:
        return bytes((0x90 | length,))
    return struct.pack(">BH", 0xDC, length) if length < 0x1_0000 else struct.pack(">BI", 0xDD, length)


def _enums(definition: Enum, both: Both) -> tuple[Pack, Read]:
    """A value is the variant's own name and its value (I-6)."""
    words = definition.name
    variants = {v.name: (b"\x92" + _packed_string(v.name.encode()), *both(v.type)) for v in definition.variants}
    by_bytes = {name.encode(): (name, read) for name, (_, _, read) in variants.items()}

    def pack(value: Any, depth: int) -> bytes:
        if not (isinstance(value, tuple | list) and len(value) == 2):
            raise ValueMismatch(f"{words}, a pair of a variant's name and its value", _seen(value), "R-31")
        name, inner = value
        if not isinstance(name, str) or name not in variants:
            raise ValueMismatch(words, f"the variant {_seen(name)}", "R-31")
        if depth == 0:
            raise ValueMismatch(words, "a value that is nested too deep", REASONS["value_depth"])
        head, each, _ = variants[name]
        try:
            return head + each(inner, depth - 1)
        except ValueMismatch as wrong:
            raise wrong.within(f"{words}.{name}") from None

    def read(reader: _Reader) -> Any:
        reader.array(2, words)
        given = reader.string(words)
        found = by_bytes.get(given)
        if found is None:
            raise ValueMismatch(words, f"the variant {given[:40].decode(errors='replace')!r}")
        name, each = found
        _enter(reader, words)
        try:
            inner = each(reader)
        except ValueMismatch as wrong:
            raise wrong.within(f"{words}.{name}") from None
        reader.depth += 1
        return name, inner

    return pack, read
