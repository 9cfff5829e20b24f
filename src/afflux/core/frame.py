"""``@frame``: one declaration, from which the codec is generated as plain Python source.

A frame is declared field by field, in the order and the words of its specification::

    @frame(0x08)
    class RequestN(StreamFrame):
        "Grant the peer more items on one stream."

        n: U31
        "How many more."

The decorator writes ``__init__``, ``encode``, ``decode``, ``encoded_size``, ``__eq__`` and ``__hash__`` as source
(``RequestN.__source__``), as ``dataclasses`` does, and compiles them once. What a field is belongs to
``core/fields.py``; what a frame looks like to people to ``core/dissect.py`` and ``core/reference.py``. No frame of
a protocol is declared here.

Blame: ``__init__`` is this side speaking and keeps every bound; ``decode`` is the peer speaking and refuses only
what cannot be read, so that the engine can answer a zero or a wrong version with the code that the rules ask for.
"""

from __future__ import annotations

import linecache
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Self, TypeVar, cast, dataclass_transform, get_args, get_origin, get_type_hints

from afflux.core.errors import Violation
from afflux.core.fields import Fixed, Flag, Kind, Rest, TypeWord, UInt, Varying

__all__ = ["MISSING", "Field", "Frame", "Malformed", "UnknownFrame", "frame", "shown", "trailing"]


class _Missing:
    __slots__ = ()

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Any = _Missing()
"The default of a field that has none."


class Malformed(Violation):
    """A frame that cannot be read."""

    ignorable: bool
    "True when the sender set I: skip the frame instead of ending the connection."

    def __init__(
        self, reason: str, *, rule: str, code: int | None = None, stream: int = 0, ignorable: bool = False
    ) -> None:
        super().__init__(reason, rule=rule, code=code, stream=stream)
        self.ignorable = ignorable


class UnknownFrame(Malformed):
    """A frame of a type that is not known."""


@dataclass(frozen=True, slots=True)
class Field:
    """One declared field."""

    name: str
    "Its attribute."
    kind: Kind
    "What it is on the wire."
    default: Any
    "What it is when not given, or MISSING."


@dataclass_transform(kw_only_default=True, eq_default=True)
class Frame:
    """What every frame has. A protocol derives one class from it, with its header fields, and frames from that.

    Frames are values: nothing changes one after it was made. They are not frozen because a frozen ``__init__``
    costs four times as much.
    """

    __slots__ = ()

    PROTOCOL: ClassVar[str] = ""
    "The protocol's name, as addresses spell it."
    LARGEST: ClassVar[int] = 0xFFFFFF
    "The most bytes that a frame may have, without a length prefix."
    SIZE_RULE: ClassVar[str] = "frame-too-large"
    "The rule behind LARGEST."
    TYPE: ClassVar[int]
    "The frame type."
    NAME: ClassVar[str]
    "The specification's name, such as REQUEST_N."
    LAYOUT: ClassVar[tuple[Field, ...]] = ()
    "Everything declared, in wire order, flags and the type word included."
    FIELDS: ClassVar[tuple[Field, ...]] = ()
    "The fields with a place of their own on the wire, in order."
    FLAGS: ClassVar[tuple[tuple[Flag, Field], ...]] = ()
    "The flags that this frame may carry, highest bit first, each with the field that it goes with."
    WORD: ClassVar[TypeWord]
    "How type and flags share a word."
    OPEN_ENDED: ClassVar[bool]
    "True when the last field runs to the end of the frame, so that nothing can be left over."
    __source__: ClassVar[str]
    "The generated source."

    def encode(self, prefixed: bool = False) -> bytes:
        """The frame's bytes, after a 24-bit length when ``prefixed``. Raises Violation when it is too large."""
        raise NotImplementedError

    @classmethod
    def decode(cls, buffer: bytes, start: int, end: int) -> Self:
        """Read the frame at ``buffer[start:end]``, whose type the caller has looked at. Raises Malformed.

        ``end`` must not be beyond the buffer. Bytes after the last declared field are accepted: see ``trailing``.
        """
        raise NotImplementedError

    @property
    def encoded_size(self) -> int:
        """How many bytes ``encode`` gives, without a prefix."""
        raise NotImplementedError

    @classmethod
    def malformed(cls, reason: str, buffer: bytes, start: int, end: int) -> Malformed:
        """The violation for a frame that cannot be read; a protocol adds its rule, code and stream."""
        return Malformed(reason, rule="malformed")

    def flags(self) -> int:
        """The flag bits that ``encode`` sends."""
        return sum(flag.bit for flag, field in self.FLAGS if _raised(field, getattr(self, field.name)))

    def __repr__(self) -> str:
        values = [f"{field.name}={self._shown(field)}" for field in self.FIELDS]
        values += [f"{field.name}=True" for _, field in self.FLAGS if getattr(self, field.name) is True]
        return f"{type(self).__name__}({', '.join(values)})"

    def _shown(self, field: Field) -> str:
        value = getattr(self, field.name)
        if field.name == "metadata" and value:
            return f"({len(value)} bytes)"  # credentials travel in it (AU-05)
        return shown(value, field.kind)


def _raised(field: Field, value: Any) -> bool:
    if isinstance(field.kind, Rest):
        return field.kind.always or bool(value)
    return bool(value) if isinstance(field.kind, Flag) else value is not None


def shown(value: Any, kind: Kind) -> str:
    """A value for people: secrets by their length only, long bytes cut."""
    if value is None:
        return "None"
    if kind.secret:
        return f"({len(value)} bytes)"
    if isinstance(value, bytes) and len(value) > 32:
        return f"{value[:32]!r}... ({len(value)} bytes)"
    return repr(value)


def trailing(frame: Frame, start: int, end: int) -> int:
    """How many bytes of ``start:end`` the decoded frame did not use (R-7: ignored, and charged)."""
    return 0 if frame.OPEN_ENDED else end - start - frame.encoded_size


F = TypeVar("F", bound=Frame)


def frame(code: int, name: str | None = None) -> Callable[[type[F]], type[F]]:
    """Turn a declaration into a frame class of type ``code``.

    ``name`` is the specification's name; None derives REQUEST_N from RequestN.
    """

    def build(declared: type[F]) -> type[F]:
        layout = _layout(declared)
        slots = tuple(field.name for field in layout if field.kind.in_value)
        dropped = {*slots, "__dict__", "__weakref__"}
        kept = {key: value for key, value in vars(declared).items() if key not in dropped}
        built = cast("type[F]", type(declared.__name__, declared.__bases__, kept | {"__slots__": slots}))
        built.__qualname__ = declared.__qualname__
        built.TYPE = code
        built.NAME = name or re.sub(r"(?<=[a-z])(?=[A-Z])", "_", declared.__name__).upper()
        built.LAYOUT = layout
        built.FIELDS = tuple(field for field in layout if not isinstance(field.kind, Flag | TypeWord))
        built.FLAGS = _flags(layout)
        built.WORD = next(field.kind for field in layout if isinstance(field.kind, TypeWord))
        built.OPEN_ENDED = bool(built.FIELDS) and isinstance(built.FIELDS[-1].kind, Rest)
        _compile(built)
        return built

    return build


def _layout(declared: type[Frame]) -> tuple[Field, ...]:
    """The declared fields in wire order, flags and the type word among them."""
    layout: list[Field] = []
    for name, hint in get_type_hints(declared, include_extras=True).items():
        in_class = get_origin(hint) is ClassVar
        metadata = getattr(get_args(hint)[0] if in_class and get_args(hint) else hint, "__metadata__", ())
        kind = next((part for part in metadata if isinstance(part, Kind)), None)
        if kind is not None:
            layout.append(Field(name, kind, getattr(declared, name, MISSING)))
        elif not in_class:
            raise TypeError(f"{declared.__name__}.{name} has no field kind")
    wire = [field.kind for field in layout if not isinstance(field.kind, Flag)]
    if sum(isinstance(kind, TypeWord) for kind in wire) != 1:
        raise TypeError(f"{declared.__name__} needs exactly one TypeWord")
    if any(isinstance(kind, Rest) for kind in wire[:-1]):
        raise TypeError(f"{declared.__name__}: nothing can follow a field that runs to the end")
    return tuple(layout)


def _flags(layout: tuple[Field, ...]) -> tuple[tuple[Flag, Field], ...]:
    found: list[tuple[Flag, Field]] = []
    for field in layout:
        flag = (
            field.kind if isinstance(field.kind, Flag) else field.kind.flag if isinstance(field.kind, Varying) else None
        )
        if flag is not None:
            found.append((flag, field))
    return tuple(sorted(found, key=lambda pair: -pair[0].bit))


# The generator. Each of these returns the lines of one method.


def _compile(cls: type[Frame]) -> None:
    runs = _runs(cls)
    namespace: dict[str, Any] = {"cls": cls, "_new": object.__new__, **_HELPERS}
    for number, run in enumerate(runs):
        if isinstance(run, list):
            packed = struct.Struct(">" + "".join(kind.code for _, kind in run))
            namespace[f"_pack_{number}"] = packed.pack
            namespace[f"_unpack_{number}"] = packed.unpack_from
    methods = [_init(cls), _encode(cls, runs), _decode(cls, runs), _size(runs), *_values(cls)]
    source = "\n\n".join("\n".join(lines) for lines in methods) + "\n"
    filename = f"<afflux frame {cls.__module__}.{cls.__qualname__}>"
    exec(compile(source, filename, "exec"), namespace)
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    for method, wrap in _METHODS:
        function = namespace[method]
        function.__qualname__ = f"{cls.__qualname__}.{method}"
        function.__doc__ = getattr(Frame, method).__doc__
        setattr(cls, method, wrap(function))
    cls.__source__ = source


def _plain(function: Any) -> Any:
    return function


_METHODS: tuple[tuple[str, Callable[[Any], Any]], ...] = (
    ("__init__", _plain),
    ("encode", _plain),
    ("decode", classmethod),
    ("encoded_size", property),
    ("__eq__", _plain),
    ("__hash__", _plain),
)

_Run = list[tuple[str, Fixed]] | tuple[str, Varying]
"Neighbours of fixed size, packed at once, or one field of varying size."


def _runs(cls: type[Frame]) -> list[_Run]:
    runs: list[_Run] = []
    for field in cls.LAYOUT:
        if isinstance(field.kind, Varying):
            runs.append((field.name, field.kind))
        elif isinstance(field.kind, Fixed):
            if not runs or not isinstance(runs[-1], list):
                runs.append([])
            runs[-1].append((field.name, field.kind))  # type: ignore[union-attr]  # the line above made it a list
    return runs


def _indent(lines: list[str]) -> list[str]:
    return ["    " + line for line in lines]


def _init(cls: type[Frame]) -> list[str]:
    given = [field for field in cls.LAYOUT if field.kind.in_value]
    parameters = [field.name if field.default is MISSING else f"{field.name}={field.default!r}" for field in given]
    checks = [line for field in given for line in field.kind.check(field.name)]
    stores = [f"self.{field.name} = {field.name}" for field in given]
    signature = ", ".join(["self", "*", *parameters] if parameters else ["self"])
    return [f"def __init__({signature}):", *_indent([*checks, *stores] or ["pass"])]


def _encode(cls: type[Frame], runs: list[_Run]) -> list[str]:
    lines = [f"word = 0x{cls.TYPE << cls.WORD.shift:X}"]
    for flag, field in cls.FLAGS:
        if isinstance(field.kind, Flag):
            lines += [f"if self.{field.name}:", f"    word |= 0x{flag.bit:X}"]
    parts: list[str] = []
    sizes: list[str] = []
    fixed = 0
    for number, run in enumerate(runs):
        if isinstance(run, list):
            values = [value for name, kind in run for value in kind.write(name)]
            parts.append(f"_pack_{number}({', '.join(values)})")
            fixed += sum(kind.size for _, kind in run)
        else:
            name, varying = run
            lines += varying.encode(name)
            parts += varying.parts(name)
            sizes += [f"len({part})" for part in varying.parts(name)]
    if not sizes:
        prefix = repr(fixed.to_bytes(3, "big"))
        lines += [f"encoded = {parts[0]}", f"return {prefix} + encoded if prefixed else encoded"]
    else:
        lines += [
            f"size = {' + '.join([str(fixed), *sizes])}",
            f"if size > 0x{cls.LARGEST:X}:",
            "    raise _too_large(cls, size)",
            'prefix = size.to_bytes(3, "big") if prefixed else b""',
            f'return b"".join((prefix, {", ".join(parts)}))',
        ]
    return ["def encode(self, prefixed=False):", *_indent(lines)]


def _decode(cls: type[Frame], runs: list[_Run]) -> list[str]:
    lines: list[str] = []
    for number, run in enumerate(runs):
        at = "at" if number else "start"
        if isinstance(run, list):
            size = sum(kind.size for _, kind in run)
            raw = [local for name, kind in run for local in kind.raw(name)]
            lines += [
                f"if end - {at} < {size}:",
                f"    raise _truncated(cls, {run[-1][0]!r}, buffer, start, end)",
                f"{', '.join(raw)}{',' if len(raw) == 1 else ''} = _unpack_{number}(buffer, {at})",
            ]
            if not number:
                lines.append("self = _new(cls)")
            lines += [f"self.{name} = {kind.read(name)}" for name, kind in run if isinstance(kind, UInt)]
            if number + 1 < len(runs):
                lines.append(f"at = {at} + {size}")
        else:
            lines += run[1].decode(run[0])
    for flag, field in cls.FLAGS:
        if isinstance(field.kind, Flag):
            lines.append(f"self.{field.name} = word & 0x{flag.bit:X} != 0")
    return ["def decode(cls, buffer, start, end):", *_indent([*lines, "return self"])]


def _size(runs: list[_Run]) -> list[str]:
    fixed = sum(kind.size for run in runs if isinstance(run, list) for _, kind in run)
    lengths = [run[1].length(run[0]) for run in runs if not isinstance(run, list)]
    return ["def encoded_size(self):", f"    return {' + '.join([str(fixed), *lengths])}"]


def _values(cls: type[Frame]) -> list[list[str]]:
    names = [field.name for field in cls.LAYOUT if field.kind.in_value]
    equal = " and ".join(f"self.{name} == other.{name}" for name in names) or "True"
    values = ", ".join(["cls", *(f"self.{name}" for name in names)])
    return [
        [
            "def __eq__(self, other):",
            "    if other.__class__ is not cls:",
            "        return NotImplemented",
            f"    return {equal}",
        ],
        ["def __hash__(self):", f"    return hash(({values}))"],
    ]


# What the generated source calls when something is wrong: the slow path, out of line.


def _out_of_range(cls: type[Frame], what: str, value: int, least: int, most: int, rule: str) -> Violation:
    return Violation(f"{cls.NAME}: {what} is {value}, not within {least} to {most}", rule=rule)


def _not_ascii(cls: type[Frame], name: str) -> Violation:
    return Violation(f"{cls.NAME}: {name} is not ASCII", rule="not-ascii")


def _too_large(cls: type[Frame], size: int) -> Violation:
    return Violation(f"{cls.NAME} of {size} bytes: at most {cls.LARGEST} fit", rule=cls.SIZE_RULE)


def _truncated(cls: type[Frame], name: str, buffer: bytes, start: int, end: int) -> Malformed:
    return cls.malformed(f"{cls.NAME} ends after {end - start} bytes, within or before {name}", buffer, start, end)


def _overrun(cls: type[Frame], name: str, size: int, left: int, buffer: bytes, start: int, end: int) -> Malformed:
    return cls.malformed(f"{cls.NAME}: {name} of {size} bytes where {left} are left", buffer, start, end)


def _ascii(cls: type[Frame], name: str, octets: bytes, buffer: bytes, start: int, end: int) -> str:
    try:
        return str(octets, "ascii")
    except UnicodeDecodeError:
        raise cls.malformed(f"{cls.NAME}: {name} is not ASCII", buffer, start, end) from None


_HELPERS = {
    function.__name__: function for function in (_out_of_range, _not_ascii, _too_large, _truncated, _overrun, _ascii)
}
