"""Define the field kinds of the draft: chains of extension entries, and compact MIME types."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from afflux.core.fields import Flag, Varying
from afflux.protocols.rsocket_draft.compact import mime_bytes, mime_of, mime_size
from afflux.protocols.rsocket_draft.entries import chain_bytes, chain_size, read_chain

__all__ = ["Chain", "Mime"]

_Functions = Mapping[str, Callable[..., Any]]
_CHAIN: Final[_Functions] = {"read_chain": read_chain, "chain_bytes": chain_bytes, "chain_size": chain_size}
_MIME: Final[_Functions] = {"mime_of": mime_of, "mime_bytes": mime_bytes, "mime_size": mime_size}


@dataclass(frozen=True, slots=True)
class Chain(Varying):
    """A chain of extension entries, present only if a flag is set; the value is a tuple, empty without the flag."""

    flag: Flag
    "The flag X."

    @property
    def python(self) -> str:
        return "tuple[Any, ...]"

    @property
    def functions(self) -> _Functions:
        return _CHAIN

    @property
    def described(self) -> str:
        return f"entries, if {self.flag.letter}"

    def check(self, name: str) -> list[str]:
        return [f"if {name}:", f"    chain_bytes({name})"]

    def decode(self, name: str) -> list[str]:
        return [
            f"if word & 0x{self.flag.bit:X}:",
            f"    self.{name}, at = read_chain(cls, buffer, at, start, end)",
            "else:",
            f"    self.{name} = ()",
        ]

    def encode(self, name: str) -> list[str]:
        return [
            f'{name} = b""',
            f"if self.{name}:",
            f"    word |= 0x{self.flag.bit:X}",
            f"    {name} = chain_bytes(self.{name})",
        ]

    def parts(self, name: str) -> list[str]:
        return [name]

    def length(self, name: str) -> str:
        return f"(chain_size(self.{name}) if self.{name} else 0)"


@dataclass(frozen=True, slots=True)
class Mime(Varying):
    """A MIME type as a compact type, optionally present only if a flag is set; without it the value is None."""

    flag: Flag | None = None
    "The flag of an optional field; None for a field that is always present."

    @property
    def arrow(self) -> str:
        return "string"

    @property
    def python(self) -> str:
        return "str"

    @property
    def optional(self) -> bool:
        return self.flag is not None

    @property
    def functions(self) -> _Functions:
        return _MIME

    @property
    def described(self) -> str:
        return "compact MIME type" + (f", if {self.flag.letter}" if self.flag else "")

    def check(self, name: str) -> list[str]:
        return [f"if {name} is not None:", f"    mime_bytes({name})"]

    def decode(self, name: str) -> list[str]:
        read = f"self.{name}, at = mime_of(cls, {name!r}, buffer, at, start, end)"
        if self.flag is None:
            return [read]
        return [f"if word & 0x{self.flag.bit:X}:", f"    {read}", "else:", f"    self.{name} = None"]

    def encode(self, name: str) -> list[str]:
        if self.flag is None:
            return [f"{name} = mime_bytes(self.{name})"]
        return [
            f'{name} = b""',
            f"if self.{name} is not None:",
            f"    word |= 0x{self.flag.bit:X}",
            f"    {name} = mime_bytes(self.{name})",
        ]

    def parts(self, name: str) -> list[str]:
        return [name]

    def length(self, name: str) -> str:
        if self.flag is None:
            return f"mime_size(self.{name})"
        return f"(0 if self.{name} is None else mime_size(self.{name}))"
