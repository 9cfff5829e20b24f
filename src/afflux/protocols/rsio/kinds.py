"""Define the kinds of fields of a message: numbers of varying length, texts, bytes. A kind reads and writes.

Messages carry no length: a message ends with its last field. So a field is read from a :class:`Cursor`, which raises
:class:`NotYet` when the bytes end too early; earlier fields stay parsed (R-8).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from afflux.core.errors import Violation
from afflux.core.fields import Kind
from afflux.core.limits import REASONS, Limits, oversize

_LARGEST = (1 << 64) - 1


class NotYet(Exception):  # noqa: N818 -- not an error: the rest has not arrived
    """Report an incomplete field, with the block size that is needed to continue."""

    def __init__(self, need: int) -> None:
        super().__init__(need)
        self.need = need


class Cursor:
    """Position of the reader in a block of received bytes.

    ``sizes`` returns the length of the elements of a subscription: 0 when each has its length, None for an unknown id.
    """

    __slots__ = ("at", "block", "end", "limits", "sizes", "skip")

    def __init__(self, limits: Limits, sizes: Callable[[int], int | None]) -> None:
        self.limits = limits
        self.sizes = sizes
        self.block = b""
        self.at = 0
        self.end = 0
        self.skip = 0
        "Bytes to skip before the next field."

    def varint(self) -> int:
        """Read a number; encodings longer than the shortest are equivalent (R-3, D-3).

        Raises:
            NotYet: it is incomplete.
            Violation: it has more than 64 bits, or more bytes than they need (R-4).
        """
        value, shift, start = 0, 0, self.at
        most = min(self.end, start + self.limits.varint_bytes)
        for at in range(start, most):
            octet = self.block[at]
            value |= (octet & 0x7F) << shift
            if octet < 0x80:
                if value > _LARGEST:
                    break
                self.at = at + 1
                return value
            shift += 7
        else:
            if most < start + self.limits.varint_bytes:
                raise NotYet(most + 1)
        raise Violation(REASONS["varint_bytes"], rule="R-4")

    def length(self) -> int:
        """Read the length of a text or of bytes, within the limits (R-7, D-4)."""
        size = self.varint()
        if size > self.limits.payload_bytes:
            raise Violation(oversize(self.limits, "payload_bytes", size), rule="R-7", too_large=True)
        return size

    def take(self, size: int) -> bytes:
        """Read ``size`` bytes."""
        stop = self.at + size
        if stop > self.end:
            raise NotYet(stop)
        data = self.block[self.at : stop]
        self.at = stop
        return data


def varint(value: int) -> bytes:
    """Return the shortest encoding of a number of at most 64 bits (R-3)."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


class WireKind(Kind):
    """Base of the kinds of this protocol."""

    __slots__ = ()

    def read(self, cursor: Cursor, before: dict[str, Any]) -> Any:
        """Read the value at the cursor and advance past it; ``before`` has the preceding fields."""
        raise NotImplementedError

    def write(self, value: Any, message: Any) -> bytes:
        """Return the bytes of a value of ``message``."""
        raise NotImplementedError

    def judge(self, value: Any) -> str:
        """Return what is wrong with a value to be sent; "" if it is correct."""
        return ""


@dataclass(frozen=True, slots=True)
class Varint(WireKind):
    """A number."""

    at_least: int = 0
    "The smallest value that may be constructed; a smaller one can still be read, and the engine judges it."
    at_most: int = _LARGEST
    "The largest value that may be constructed."

    @property
    def arrow(self) -> str:
        return "uint64"

    @property
    def python(self) -> str:
        return "int"

    def read(self, cursor: Cursor, before: dict[str, Any]) -> int:
        return cursor.varint()

    def write(self, value: int, message: Any) -> bytes:
        return varint(value)

    def judge(self, value: int) -> str:
        within = self.at_least <= value <= self.at_most
        return "" if within else f"is {value}, not within {self.at_least} to {self.at_most}"


@dataclass(frozen=True, slots=True)
class Ids(WireKind):
    """A list of ids, after their count."""

    @property
    def python(self) -> str:
        return "tuple[int, ...]"

    def read(self, cursor: Cursor, before: dict[str, Any]) -> tuple[int, ...]:
        count = cursor.varint()
        if count > cursor.limits.extension_ids:
            raise Violation(REASONS["extension_ids"], rule="R-7")
        return tuple(cursor.varint() for _ in range(count))

    def write(self, value: tuple[int, ...], message: Any) -> bytes:
        return varint(len(value)) + b"".join(map(varint, value))

    def judge(self, value: tuple[int, ...]) -> str:
        return "" if all(0 <= id <= _LARGEST for id in value) else f"is {value}: ids are numbers of 64 bits"


@dataclass(frozen=True, slots=True)
class Text(WireKind):
    """UTF-8 after its length. Bytes above the bound are not stored (SI-31)."""

    bound: str = "error_text_bytes"
    "Limit on the number of stored bytes."
    exact: bool = False
    "Bytes that are not UTF-8 become lone surrogates, which the engine detects; otherwise U+FFFD (R-6)."

    @property
    def arrow(self) -> str:
        return "string"

    @property
    def python(self) -> str:
        return "str"

    def read(self, cursor: Cursor, before: dict[str, Any]) -> str:
        """Read a text. One that is too long and exact retains one byte too many, so that its reader detects it."""
        size = cursor.length()
        bound = getattr(cursor.limits, self.bound)
        most = bound + 1 if self.exact else bound[1]
        data = cursor.take(min(size, most))
        cursor.skip = max(0, size - most)
        if self.exact:
            return data.decode("utf-8", "surrogateescape")
        text = data.decode("utf-8", "replace")
        return text[:-1] if cursor.skip and text.endswith("\ufffd") else text

    def write(self, value: str, message: Any) -> bytes:
        data = value.encode("utf-8", "surrogateescape")
        return varint(len(data)) + data


@dataclass(frozen=True, slots=True)
class Octets(WireKind):
    """Bytes after their length."""

    def read(self, cursor: Cursor, before: dict[str, Any]) -> bytes:
        return cursor.take(cursor.length())

    def write(self, value: bytes, message: Any) -> bytes:
        return varint(len(value)) + value


@dataclass(frozen=True, slots=True)
class Element(WireKind):
    """The bytes of one element; without a length where the subscription has a fixed size (R-38)."""

    def read(self, cursor: Cursor, before: dict[str, Any]) -> bytes | None:
        """Read an element; None if it is too large and was skipped. That of an unknown id has its length (D-13)."""
        size = before["element_size"] = cursor.sizes(before["subscriber"]) or 0
        return _fixed(cursor, size) if size else cursor.take(cursor.length())

    def write(self, value: bytes, message: Any) -> bytes:
        return value if message.element_size else varint(len(value)) + value


@dataclass(frozen=True, slots=True)
class Elements(WireKind):
    """The bytes of several elements of a fixed size."""

    def read(self, cursor: Cursor, before: dict[str, Any]) -> bytes | None:
        """Read elements; None if they are too large and were skipped.

        Raises:
            Violation: the size is unknown, so their end cannot be found.
        """
        size = before["element_size"] = cursor.sizes(before["subscriber"]) or 0
        if not size:
            raise Violation(f"onNextPacked for {before['subscriber']}, which has no element size", rule="R-39")
        return _fixed(cursor, before["count"] * size)

    def write(self, value: bytes, message: Any) -> bytes:
        return value


def _fixed(cursor: Cursor, size: int) -> bytes | None:
    """Read ``size`` bytes. The product is compared with the limit before it is used (FC-23)."""
    if size > cursor.limits.payload_bytes:
        cursor.skip = size
        return None
    return cursor.take(size)


Id = Annotated[int, Varint(column="stream")]
Demand = Annotated[int, Varint(at_most=(1 << 63) - 1, column="n")]
Count = Annotated[int, Varint()]
