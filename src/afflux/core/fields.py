"""Define field kinds, each of which reads and writes one type of field.

A kind provides the lines of source that read and write a field, its bounds, its width in the bit diagram and its
Arrow type. ``core/frame.py`` combines kinds to frames.

A kind is used through ``Annotated``, so that a type checker sees the Python type::

    n: U31                                          # int
    token: Annotated[bytes | None, Sized(16, flag=Flag("R", 0x80))]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

__all__ = [
    "U8",
    "U16",
    "U24",
    "U31",
    "U32",
    "U63",
    "U64",
    "Bytes16",
    "Data",
    "Fixed",
    "Flag",
    "Flagged",
    "Kind",
    "Rest",
    "Sized",
    "Text8",
    "TypeWord",
    "UInt",
    "Varying",
]

_STRUCT = {8: "B", 16: "H", 24: "BH", 31: "I", 32: "I", 63: "Q", 64: "Q"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """Base class of all kinds. Use one of the subclasses."""

    column: str | None = None
    "The key of the frame record that shows this field; None puts it under ``fields``."
    secret: bool = False
    "True if only its length may be shown."
    rule: str = "out-of-range"
    "The rule that defines the bounds."

    @property
    def arrow(self) -> str:
        """The name of the Arrow type."""
        return "binary"

    @property
    def python(self) -> str:
        """The name of the Python type, None left out."""
        return "bytes"

    @property
    def optional(self) -> bool:
        """True if the field may be None."""
        return False

    @property
    def in_value(self) -> bool:
        """True if a frame has an attribute for it."""
        return True

    @property
    def functions(self) -> Mapping[str, Callable[..., Any]]:
        """The functions, by name, that the generated source calls: a kind that a protocol defines has its own."""
        return {}

    @property
    def described(self) -> str:
        """The type as the reference page shows it; empty for the kinds of this module."""
        return ""

    def check(self, name: str) -> list[str]:
        """Return the lines of ``__init__`` that check the bounds."""
        return []


@dataclass(frozen=True, slots=True)
class Flag(Kind):
    """A bit in the word of the frame type. A frame has only the flags that it declares."""

    letter: str
    "Its letter in diagrams, records and filters."
    bit: int
    "Its value in the flags."

    @property
    def arrow(self) -> str:
        return "bool"

    @property
    def python(self) -> str:
        return "bool"


class Fixed(Kind):
    """A kind of fixed size, which ``struct`` can pack together with its neighbours."""

    __slots__ = ()

    bits: int
    "Bits that carry the value."

    @property
    def python(self) -> str:
        return "int"

    @property
    def size(self) -> int:
        """Bytes on the wire."""
        return (self.bits + 7) // 8

    @property
    def code(self) -> str:
        """The letters for ``struct``; 24 bits are a byte and a half word."""
        return _STRUCT[self.bits]

    def raw(self, name: str) -> list[str]:
        """Return the local names that ``struct`` unpacks into."""
        raise NotImplementedError

    def write(self, name: str) -> list[str]:
        """Return the expressions to pack."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class TypeWord(Fixed):
    """The header word with the frame type, shifted, and the flags below it."""

    bits: int
    "16 or 32."
    shift: int
    "The number of bits for flags."

    @property
    def in_value(self) -> bool:
        return False

    def raw(self, name: str) -> list[str]:
        return ["word"]

    def write(self, name: str) -> list[str]:
        return ["word"]


@dataclass(frozen=True, slots=True)
class UInt(Fixed):
    """An unsigned big-endian integer (RSocket R-1). 31 and 63 bits follow a bit that is masked when read."""

    bits: int
    "8, 16, 24, 31, 32, 63 or 64."
    at_least: int = 0
    "The smallest value that may be constructed; a smaller one can still be decoded, and the engine judges it."
    at_most: int | None = None
    "The largest value that may be constructed; None: the largest that fits."

    @property
    def arrow(self) -> str:
        return f"uint{next(width for width in (8, 16, 32, 64) if self.bits <= width)}"

    @property
    def largest(self) -> int:
        """The largest value that may be constructed."""
        return (1 << self.bits) - 1 if self.at_most is None else self.at_most

    @property
    def reserved(self) -> bool:
        """True if a reserved bit precedes it."""
        return self.bits in (31, 63)

    def raw(self, name: str) -> list[str]:
        return [f"{name}_high", f"{name}_low"] if self.bits == 24 else [name]

    def read(self, name: str) -> str:
        """Return the expression that turns the raw names into the value."""
        if self.bits == 24:
            return f"{name}_high << 16 | {name}_low"
        return f"{name} & 0x{(1 << self.bits) - 1:X}" if self.reserved else name

    def write(self, name: str) -> list[str]:
        value = f"self.{name}"
        return [f"{value} >> 16", f"{value} & 0xFFFF"] if self.bits == 24 else [value]

    def check(self, name: str) -> list[str]:
        bounds = f"{self.at_least}, 0x{self.largest:X}"
        return [
            f"if not {self.at_least} <= {name} <= 0x{self.largest:X}:",
            f"    raise _out_of_range(self, {name!r}, {name}, {bounds}, {self.rule!r})",
        ]


class Varying(Kind):
    """A kind whose size depends on its value."""

    __slots__ = ()

    flag: Flag | None
    "The flag that belongs to it."

    def decode(self, name: str) -> list[str]:
        """Return the lines that read it at ``at`` and advance ``at``."""
        raise NotImplementedError

    def encode(self, name: str) -> list[str]:
        """Return the lines that prepare the locals of ``parts`` and set the flag in ``word``."""
        raise NotImplementedError

    def parts(self, name: str) -> list[str]:
        """Return the locals with its bytes, in order."""
        raise NotImplementedError

    def length(self, name: str) -> str:
        """Return the expression of its encoded length."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Sized(Varying):
    """Bytes or ASCII text after their length, optionally present only if a flag is set."""

    bits: int
    "Width of the length: 8, 16, 24 or 32. The first bit of 32 is reserved, written 0 and masked when read."
    text: bool = False
    "True for ASCII text, decoded to ``str``."
    flag: Flag | None = None
    "The flag of an optional field, whose value is None without it; None for a field that is always present."
    at_least: int = 0
    "The fewest bytes that may be constructed; fewer can still be decoded."
    inclusive: bool = False
    "True if the length includes its own bytes."

    @property
    def arrow(self) -> str:
        return "string" if self.text else "binary"

    @property
    def python(self) -> str:
        return "str" if self.text else "bytes"

    @property
    def optional(self) -> bool:
        return self.flag is not None

    @property
    def largest(self) -> int:
        """The most bytes."""
        return (1 << min(self.bits, 31)) - 1 - self._own

    @property
    def _own(self) -> int:
        """Bytes of its own field that the length includes."""
        return self.bits // 8 if self.inclusive else 0

    def check(self, name: str) -> list[str]:
        present = f"{name} is not None and " if self.optional else ""
        bounds = f"{self.at_least}, 0x{self.largest:X}"
        lines = [
            f"if {present}not {self.at_least} <= len({name}) <= 0x{self.largest:X}:",
            f"    raise _out_of_range(self, 'the length of {name}', len({name}), {bounds}, {self.rule!r})",
        ]
        if self.text:
            lines += [f"if {present}not {name}.isascii():", f"    raise _not_ascii(self, {name!r})"]
        return lines

    def decode(self, name: str) -> list[str]:
        width = self.bits // 8
        octets = [
            f"buffer[at - {back}]" + (f" << {8 * (back - 1)}" if back > 1 else "") for back in range(width, 0, -1)
        ]
        if self.bits == 32:
            octets[0] = "(buffer[at - 4] & 0x7F) << 24"
        lines = [
            f"at += {width}",
            "if at > end:",
            f"    raise _truncated(cls, {name!r}, buffer, start, end)",
            f"stop = at + ({' | '.join(octets)})",
            *([f"stop -= {self._own}", "if stop < at or stop > end:"] if self.inclusive else ["if stop > end:"]),
            f"    raise _overrun(cls, {name!r}, stop - at, end - at, buffer, start, end)",
        ]
        if self.text:
            lines.append(f"self.{name} = _ascii(cls, {name!r}, buffer[at:stop], buffer, start, end)")
        else:
            lines.append(f"self.{name} = buffer[at:stop]")
        lines.append("at = stop")
        if self.flag is None:
            return lines
        inside = ["    " + line for line in lines]
        return [f"if word & 0x{self.flag.bit:X}:", *inside, "else:", f"    self.{name} = None"]

    def encode(self, name: str) -> list[str]:
        octets = '.encode("ascii")' if self.text else ""
        length = f"(len({name}) + {self._own})" if self.inclusive else f"len({name})"
        head = f'{name}_head = {length}.to_bytes({self.bits // 8}, "big")'
        if self.flag is None:
            return [f"{name} = self.{name}{octets}", head]
        absent = f'{name}_head = {name} = b""'
        present = f"{name} = self.{name}{octets}"
        inside = ["    " + line for line in [present, f"word |= 0x{self.flag.bit:X}", head]]
        return [f"if self.{name} is None:", "    " + absent, "else:", *inside]

    def parts(self, name: str) -> list[str]:
        return [f"{name}_head", name]

    def length(self, name: str) -> str:
        width = self.bits // 8
        if self.optional:
            return f"(0 if self.{name} is None else {width} + len(self.{name}))"
        return f"{width} + len(self.{name})"


@dataclass(frozen=True, slots=True)
class Rest(Varying):
    """Bytes to the end of the frame, as its last field. The size of the frame bounds them."""

    flag: Flag | None = None
    "A flag that is sent with the bytes and ignored when received."
    always: bool = False
    "True to send the flag without bytes as well."

    def decode(self, name: str) -> list[str]:
        return [f"self.{name} = buffer[at:end]"]

    def encode(self, name: str) -> list[str]:
        lines = [f"{name} = self.{name}"]
        if self.flag is not None:
            lines += [
                f"word |= 0x{self.flag.bit:X}" if self.always else f"word |= 0x{self.flag.bit:X} if {name} else 0"
            ]
        return lines

    def parts(self, name: str) -> list[str]:
        return [name]

    def length(self, name: str) -> str:
        return f"len(self.{name})"


@dataclass(frozen=True, slots=True)
class Flagged(Varying):
    """A 31-bit number after a reserved bit, present only if a flag is set; without it the value is None."""

    flag: Flag
    "The flag of the field."
    at_least: int = 0
    "The smallest value that may be constructed; a smaller one can still be decoded, and the engine judges it."

    @property
    def arrow(self) -> str:
        return "uint32"

    @property
    def python(self) -> str:
        return "int"

    @property
    def optional(self) -> bool:
        return True

    def check(self, name: str) -> list[str]:
        return [
            f"if {name} is not None and not {self.at_least} <= {name} <= 0x7FFFFFFF:",
            f"    raise _out_of_range(self, {name!r}, {name}, {self.at_least}, 0x7FFFFFFF, {self.rule!r})",
        ]

    def decode(self, name: str) -> list[str]:
        return [
            f"if word & 0x{self.flag.bit:X}:",
            "    at += 4",
            "    if at > end:",
            f"        raise _truncated(cls, {name!r}, buffer, start, end)",
            f'    self.{name} = int.from_bytes(buffer[at - 4 : at], "big") & 0x7FFFFFFF',
            "else:",
            f"    self.{name} = None",
        ]

    def encode(self, name: str) -> list[str]:
        return [
            f"if self.{name} is None:",
            f'    {name} = b""',
            "else:",
            f"    word |= 0x{self.flag.bit:X}",
            f'    {name} = self.{name}.to_bytes(4, "big")',
        ]

    def parts(self, name: str) -> list[str]:
        return [name]

    def length(self, name: str) -> str:
        return f"(0 if self.{name} is None else 4)"


U8 = Annotated[int, UInt(8)]
U16 = Annotated[int, UInt(16)]
U24 = Annotated[int, UInt(24)]
U31 = Annotated[int, UInt(31)]
U32 = Annotated[int, UInt(32)]
U63 = Annotated[int, UInt(63)]
U64 = Annotated[int, UInt(64)]
Bytes16 = Annotated[bytes, Sized(16)]
Text8 = Annotated[str, Sized(8, text=True)]
Data = Annotated[bytes, Rest(column="data")]
