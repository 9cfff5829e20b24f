"""Generate the codec of a frame from its declaration, as plain Python source.

A frame is declared field by field, in the order and the words of its specification::

    @frame(0x08)
    class RequestN(StreamFrame):
        "Grant the peer more items on one stream."

        n: U31
        "Number of items granted."

The decorator generates a *codec*, a class with the fields and with ``__init__``, ``encode``, ``decode``,
``encoded_size``, ``__eq__`` and ``__hash__``, as source (``RequestN.__source__``), compiles it once as
``dataclasses`` does, and makes it a base class of the frame. A compiled build generates the codecs in advance
(``codecs_module``) as ``_codecs.py`` in the package of the declarations; a codec whose fingerprint matches the source
is used as it is. ``core/fields.py`` defines the fields, ``core/dissect.py`` shows frames.

Blame: ``__init__`` runs on this side and enforces every bound; ``decode`` reads the peer's bytes and refuses only
what cannot be read, so that the engine can answer a zero or a wrong version with the code that the rules require.
"""

from __future__ import annotations

import linecache
import re
from collections.abc import Callable, Iterable
from copy import copy
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib import import_module
from importlib.util import find_spec
from struct import Struct
from types import ModuleType
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Self,
    TypeVar,
    cast,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

from afflux.core.errors import Consequence, Violation
from afflux.core.fields import Fixed, Flag, Kind, Rest, TypeWord, UInt, Varying
from afflux.core.framing import LengthPrefix

__all__ = ["MISSING", "Field", "Frame", "Malformed", "UnknownFrame", "codecs_module", "frame", "shown", "trailing"]


class _Missing:
    __slots__ = ()

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Any = _Missing()
"Stands for a missing default."


class Malformed(Violation):
    """A frame that cannot be read."""

    def __init__(
        self, reason: str, *, rule: str, code: int | None = None, stream: int = 0, ignorable: bool = False
    ) -> None:
        consequence = Consequence.IGNORE if ignorable else Consequence.END_CONNECTION
        super().__init__(reason, rule=rule, code=code, stream=stream, consequence=consequence)

    @property
    def ignorable(self) -> bool:
        """True if the frame is skipped instead of ending the connection."""
        return self.consequence is Consequence.IGNORE


class UnknownFrame(Malformed):
    """A frame of an unknown type."""


@dataclass(frozen=True, slots=True)
class Field:
    """A declared field."""

    name: str
    "The attribute."
    kind: Kind
    "The encoding on the wire."
    default: Any
    "The default value, or MISSING."


@dataclass_transform(kw_only_default=True, eq_default=True)
class Frame:
    """Base class of all frames. A protocol derives one class from it, with its header fields, and frames from that.

    Frames are values and never change. They are not frozen because a frozen ``__init__`` costs four times as much.
    """

    __slots__ = ()

    PROTOCOL: ClassVar[str] = ""
    "The protocol's name, as addresses spell it."
    LARGEST: ClassVar[int] = 0xFFFFFF
    "The most bytes that a frame may have, without a length prefix."
    PREFIX: ClassVar[LengthPrefix] = LengthPrefix(3)
    "The length prefix."
    SIZE_RULE: ClassVar[str] = "frame-too-large"
    "The rule that defines LARGEST."
    TYPE: ClassVar[int]
    "The frame type."
    NAME: ClassVar[str]
    "The specification's name, such as REQUEST_N."
    LAYOUT: ClassVar[tuple[Field, ...]] = ()
    "All declared fields in wire order, with flags and the type word."
    FIELDS: ClassVar[tuple[Field, ...]] = ()
    "The declared fields in wire order, without flags and the type word."
    FLAGS: ClassVar[tuple[tuple[Flag, Field], ...]] = ()
    "The flags of this frame, highest bit first, each with the field that it belongs to."
    WORD: ClassVar[TypeWord]
    "The word that type and flags share."
    OPEN_ENDED: ClassVar[bool]
    "True if the last field runs to the end of the frame."
    __source__: ClassVar[str]
    "The generated source."

    def encode(self, prefixed: bool = False) -> bytes:
        """Return the frame's bytes, after its length if ``prefixed``. Raises Violation if the frame is too large."""
        raise NotImplementedError

    @classmethod
    def decode(cls, buffer: bytes, start: int, end: int) -> Self:
        """Read the frame at ``buffer[start:end]``, whose type the caller has checked. Raises Malformed.

        ``end`` must not exceed the buffer. Bytes after the last declared field are accepted: see ``trailing``.
        """
        raise NotImplementedError

    @property
    def encoded_size(self) -> int:
        """The size of ``encode()`` in bytes, without a prefix."""
        raise NotImplementedError

    @classmethod
    def malformed(cls, reason: str, buffer: bytes, start: int, end: int) -> Malformed:
        """Return the violation for a frame that cannot be read; a protocol adds its rule, code and stream."""
        return Malformed(reason, rule="malformed")

    def flags(self) -> int:
        """Return the flag bits that ``encode`` sends."""
        return sum(flag.bit for flag, field in self.FLAGS if _raised(field, getattr(self, field.name)))

    def __repr__(self) -> str:
        values = [f"{field.name}={self._shown(field)}" for field in self.FIELDS]
        values += [f"{field.name}=True" for _, field in self.FLAGS if getattr(self, field.name) is True]
        return f"{type(self).__name__}({', '.join(values)})"

    def _shown(self, field: Field) -> str:
        value = getattr(self, field.name)
        if field.name == "metadata" and value:
            return f"({len(value)} bytes)"  # it may contain credentials (AU-05)
        return shown(value, field.kind)


def _raised(field: Field, value: Any) -> bool:
    if isinstance(field.kind, Rest):
        return field.kind.always or bool(value)
    return bool(value) if isinstance(field.kind, Flag) else value is not None and value != ()


def shown(value: Any, kind: Kind) -> str:
    """Format a value: secrets as their length only, long bytes cut."""
    if value is None:
        return "None"
    if kind.secret:
        return f"({len(value)} bytes)"
    if isinstance(value, bytes) and len(value) > 32:
        return f"{value[:32]!r}... ({len(value)} bytes)"
    return repr(value)


def changed(frame: F, **values: Any) -> F:
    """A copy of a frame with other values in some fields."""
    made = copy(frame)
    for name, value in values.items():
        setattr(made, name, value)
    return made


def trailing(frame: Frame, start: int, end: int) -> int:
    """Return how many bytes of ``start:end`` the decoded frame did not use (RSocket R-7: ignored, and charged)."""
    return 0 if frame.OPEN_ENDED else end - start - frame.encoded_size


if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr as _native
else:

    def _native(**traits):
        """Stand in for ``mypyc_attr``: a frame, which is not compiled, inherits from the codec."""
        return lambda codec: codec


F = TypeVar("F", bound=Frame)


def frame(code: int, name: str | None = None) -> Callable[[type[F]], type[F]]:
    """Turn a declaration into a frame class of type ``code``.

    ``name`` is the specification's name; None derives REQUEST_N from RequestN.
    """

    def build(declared: type[F]) -> type[F]:
        declared.TYPE = code
        declared.NAME = name or re.sub(r"(?<=[a-z])(?=[A-Z])", "_", declared.__name__).upper()
        declared.LAYOUT = layout = _layout(declared)
        declared.FIELDS = tuple(field for field in layout if not isinstance(field.kind, Flag | TypeWord))
        declared.FLAGS = _flags(layout)
        declared.WORD = next(field.kind for field in layout if isinstance(field.kind, TypeWord))
        declared.OPEN_ENDED = bool(declared.FIELDS) and isinstance(declared.FIELDS[-1].kind, Rest)
        declared.__source__ = _source(declared)
        dropped = {"__dict__", "__weakref__", *(field.name for field in layout)}
        kept = {key: value for key, value in vars(declared).items() if key not in dropped}
        codec = _written(declared) or _compiled(declared)
        built = type(declared.__name__, (codec, *declared.__bases__), kept | {"__slots__": ()})
        built.__qualname__ = declared.__qualname__
        return cast("type[F]", built)

    return build


def _layout(declared: type[Frame]) -> tuple[Field, ...]:
    """Return the declared fields in wire order, with flags and the type word."""
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
        raise TypeError(f"{declared.__name__}: a field that runs to the end must be the last")
    return tuple(layout)


def _flags(layout: tuple[Field, ...]) -> tuple[tuple[Flag, Field], ...]:
    kinds = [(field.kind, field) for field in layout if isinstance(field.kind, Flag | Varying)]
    found = [(kind if isinstance(kind, Flag) else kind.flag, field) for kind, field in kinds]
    return tuple(sorted(((flag, field) for flag, field in found if flag is not None), key=lambda pair: -pair[0].bit))


# The codec: its source and its class.


def _source(cls: type[Frame]) -> str:
    """Return the codec of a frame as plain, typed source, with the names of the frame."""
    runs = _runs(cls)
    name = cls.__name__
    above: list[str] = []
    for number, run in enumerate(runs):
        if isinstance(run, list):
            letters = "".join(kind.code for _, kind in run)
            above += [
                f'_pack_{name}_{number} = Struct(">{letters}").pack',
                f'_unpack_{name}_{number} = Struct(">{letters}").unpack_from',
            ]
    values = [field for field in cls.LAYOUT if field.kind.in_value]
    slots = tuple(field.name for field in values)
    methods = [_init(values), _encode(cls, runs), _decode(cls, runs), _size(runs), *_values(values)]
    inside = [f"__slots__ = {slots!r}", *(f"{field.name}: {_type(field)}" for field in values)]
    for method in methods:
        inside += ["", *method]
    lines = [*above, "", "", "@_native(allow_interpreted_subclasses=True)", f"class {name}:", *_indent(inside)]
    lines += ["", "", f"_new_{name}: Any = {name}.__new__"]
    return "".join(line.rstrip() + "\n" for line in lines)


def _compiled(cls: type[Frame]) -> type:
    """Compile the codec."""
    filename = f"<afflux frame {cls.__module__}.{cls.__qualname__}>"
    source = cls.__source__
    namespace: dict[str, Any] = {"__name__": cls.__module__, "Any": Any, "Struct": Struct, **_called(cls)}
    exec(compile(source, filename, "exec"), namespace)
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    codec: type = namespace[cls.__name__]
    return codec


def _called(cls: type[Frame]) -> dict[str, Callable[..., Any]]:
    """Return the functions that the source calls; a kind that a protocol defines has its own."""
    return _HELPERS | {name: called for field in cls.LAYOUT for name, called in field.kind.functions.items()}


def _written(cls: type[Frame]) -> type | None:
    """Return the codec that was generated in advance from the same source, or None."""
    module = _codecs_beside(cls.__module__)
    fingerprints: dict[str, str] = getattr(module, "FINGERPRINTS", {})
    same = fingerprints.get(cls.__qualname__) == _fingerprint(cls)
    return getattr(module, cls.__name__) if same else None


@cache
def _codecs_beside(module: str) -> ModuleType | None:
    package = module.rpartition(".")[0]
    name = f"{package}._codecs"
    return import_module(name) if package and find_spec(name) else None


def _fingerprint(cls: type[Frame]) -> str:
    return sha256(cls.__source__.encode()).hexdigest()[:16]


_HEAD = '''"""The codecs of {module}, generated by the build. Do not edit; a stale codec is not used."""

from __future__ import annotations

from struct import Struct
from typing import Any

{imports}

FINGERPRINTS = {fingerprints!r}

'''


def codecs_module(frames: Iterable[type[Frame]]) -> str:
    """Return the source of ``_codecs.py`` for the package in which these frames are declared."""
    frames = list(frames)
    called = {name: function for cls in frames for name, function in _called(cls).items()}
    head = _HEAD.format(
        module=frames[0].__module__,
        imports="\n".join(f"from {function.__module__} import {name}" for name, function in called.items()),
        fingerprints={cls.__qualname__: _fingerprint(cls) for cls in frames},
    )
    return "\n".join([head, *(cls.__source__ for cls in frames)])


# The source, method by method.

_Run = list[tuple[str, Fixed]] | tuple[str, Varying]
"Adjacent fields of fixed size, packed together, or one field of varying size."


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


def _type(field: Field) -> str:
    return f"{field.kind.python} | None" if field.kind.optional else field.kind.python


def _init(values: list[Field]) -> list[str]:
    given = [
        f"{field.name}: {_type(field)}" + ("" if field.default is MISSING else f" = {field.default!r}")
        for field in values
    ]
    checks = [line for field in values for line in field.kind.check(field.name)]
    stores = [f"self.{field.name} = {field.name}" for field in values]
    signature = ", ".join(["self", "*", *given] if given else ["self"])
    return [f"def __init__({signature}) -> None:", *_indent([*checks, *stores] or ["pass"])]


def _encode(cls: type[Frame], runs: list[_Run]) -> list[str]:
    lines = [f"word = 0x{cls.TYPE << cls.WORD.shift:X}"]
    width, own = cls.PREFIX.width, cls.PREFIX.width if cls.PREFIX.inclusive else 0
    for flag, field in cls.FLAGS:
        if isinstance(field.kind, Flag):
            lines += [f"if self.{field.name}:", f"    word |= 0x{flag.bit:X}"]
    parts: list[str] = []
    sizes: list[str] = []
    fixed = 0
    for number, run in enumerate(runs):
        if isinstance(run, list):
            values = [value for name, kind in run for value in kind.write(name)]
            parts.append(f"_pack_{cls.__name__}_{number}({', '.join(values)})")
            fixed += sum(kind.size for _, kind in run)
        else:
            name, varying = run
            lines += varying.encode(name)
            parts += varying.parts(name)
            sizes += [f"len({part})" for part in varying.parts(name)]
    if not sizes:
        prefix = repr((fixed + own).to_bytes(width, "big"))
        lines += [f"encoded = {parts[0]}", f"return {prefix} + encoded if prefixed else encoded"]
    else:
        lines += [
            f"size = {' + '.join([str(fixed), *sizes])}",
            f"if size > 0x{cls.LARGEST:X}:",
            "    raise _too_large(self, size)",
            f'prefix = {f"(size + {own})" if own else "size"}.to_bytes({width}, "big") if prefixed else b""',
            f'return b"".join((prefix, {", ".join(parts)}))',
        ]
    return ["def encode(self, prefixed: bool = False) -> bytes:", *_indent(lines)]


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
                f"{', '.join(raw)}{',' if len(raw) == 1 else ''} = _unpack_{cls.__name__}_{number}(buffer, {at})",
            ]
            if not number:
                lines.append(f"self: {cls.__name__} = _new_{cls.__name__}(cls)")
            lines += [f"self.{name} = {kind.read(name)}" for name, kind in run if isinstance(kind, UInt)]
            if number + 1 < len(runs):
                lines.append(f"at = {at} + {size}")
        else:
            lines += run[1].decode(run[0])
    for flag, field in cls.FLAGS:
        if isinstance(field.kind, Flag):
            lines.append(f"self.{field.name} = word & 0x{flag.bit:X} != 0")
    head = f"def decode(cls, buffer: bytes, start: int, end: int) -> {cls.__name__}:"
    return ["@classmethod", head, *_indent([*lines, "return self"])]


def _size(runs: list[_Run]) -> list[str]:
    fixed = sum(kind.size for run in runs if isinstance(run, list) for _, kind in run)
    lengths = [run[1].length(run[0]) for run in runs if not isinstance(run, list)]
    return ["@property", "def encoded_size(self) -> int:", f"    return {' + '.join([str(fixed), *lengths])}"]


def _values(values: list[Field]) -> list[list[str]]:
    equal = " and ".join(f"self.{field.name} == other.{field.name}" for field in values) or "True"
    parts = ", ".join(["self.__class__", *(f"self.{field.name}" for field in values)])
    return [
        [
            "def __eq__(self, other: Any) -> bool:",
            "    if other.__class__ is not self.__class__:",
            "        return NotImplemented",
            f"    return {equal}",
        ],
        ["def __hash__(self) -> int:", f"    return hash(({parts}))"],
    ]


# Errors raised by the generated source, out of line because they are rare. ``frame`` is a frame or its class.


def _out_of_range(frame: Any, what: str, value: int, least: int, most: int, rule: str) -> Violation:
    return Violation(f"{frame.NAME}: {what} is {value}, not within {least} to {most}", rule=rule)


def _not_ascii(frame: Any, name: str) -> Violation:
    return Violation(f"{frame.NAME}: {name} is not ASCII", rule="not-ascii")


def _too_large(frame: Any, size: int) -> Violation:
    return Violation(f"{frame.NAME} of {size} bytes: at most {frame.LARGEST} fit", rule=frame.SIZE_RULE)


def _truncated(frame: Any, name: str, buffer: bytes, start: int, end: int) -> Malformed:
    reason = f"{frame.NAME} ends after {end - start} bytes, within or before {name}"
    return cast("Malformed", frame.malformed(reason, buffer, start, end))


def _overrun(frame: Any, name: str, size: int, left: int, buffer: bytes, start: int, end: int) -> Malformed:
    reason = f"{frame.NAME}: {name} of {size} bytes where {left} are left"
    return cast("Malformed", frame.malformed(reason, buffer, start, end))


def _ascii(frame: Any, name: str, octets: bytes, buffer: bytes, start: int, end: int) -> str:
    try:
        return str(octets, "ascii")
    except UnicodeDecodeError:
        raise frame.malformed(f"{frame.NAME}: {name} is not ASCII", buffer, start, end) from None


_HELPERS = {
    function.__name__: function
    for function in (_ascii, _native, _not_ascii, _out_of_range, _overrun, _too_large, _truncated)
}
