"""Read and write authentication metadata: credentials of a requester. ``afflux.auth`` checks them.

Secrets never appear in a repr or in the text of an error. Comparing these values with ``==`` takes
longer the more of a secret is right, so a check uses the helpers of ``afflux.auth``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Self, TypeVar

from afflux.core.errors import LocalProtocolError, Violation
from afflux.protocols.rsocket.metadata.mime import (
    AUTHENTICATION_MIME,
    CompactLen,
    decode_compact,
    encode_compact,
    invalid,
    names_of,
)

__all__ = ["Authentication", "Bearer", "Credentials", "Simple", "decode_credentials"]

_SIMPLE = 0x00
_BEARER = 0x01
_NAMES = names_of({_SIMPLE: "simple", _BEARER: "bearer"})
_IDS = {name: id for id, name in enumerate(_NAMES)}
_WHAT = "an authentication type"

_Kind = TypeVar("_Kind")


@dataclass(frozen=True, slots=True)
class Simple:
    """A user and a password.

    Raises:
        LocalProtocolError: the user's name has more than 65,535 bytes of UTF-8, or one of both is not Unicode text.
    """

    MIME: ClassVar[str] = AUTHENTICATION_MIME
    username: str
    "0 to 65,535 bytes of UTF-8."
    password: str = field(repr=False)
    "UTF-8, to the end of the entry."

    def __post_init__(self) -> None:
        size = len(_utf8(self.username, "a user's name"))
        _utf8(self.password, "a password")
        if size > 0xFFFF:
            raise LocalProtocolError(f"a user's name of {size} bytes: at most 65535 fit", rule="2.5")

    def encode(self) -> bytes:
        """The entry's bytes."""
        name = self.username.encode()
        return bytes((0x80 | _SIMPLE,)) + len(name).to_bytes(2, "big") + name + self.password.encode()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """The value of an entry. Raises Violation when it is malformed, or of another authentication type."""
        return _expect(cls, decode_credentials(data))


@dataclass(frozen=True, slots=True)
class Bearer:
    """A bearer token.

    Raises:
        LocalProtocolError: the token is not Unicode text.
    """

    MIME: ClassVar[str] = AUTHENTICATION_MIME
    token: str = field(repr=False)
    "UTF-8, to the end of the entry."

    def __post_init__(self) -> None:
        _utf8(self.token, "a token")

    def encode(self) -> bytes:
        """The entry's bytes."""
        return bytes((0x80 | _BEARER,)) + self.token.encode()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """The value of an entry. Raises Violation when it is malformed, or of another authentication type."""
        return _expect(cls, decode_credentials(data))


@dataclass(frozen=True, slots=True)
class Credentials:
    """Credentials of an authentication type that afflux does not implement, undecoded (R-59).

    Raises:
        LocalProtocolError: the type's name is not 1 to 128 ASCII characters.
    """

    MIME: ClassVar[str] = AUTHENTICATION_MIME
    COMPACT: ClassVar[bool] = True
    type: str
    "Its name; a well-known type without one is called by its number, such as ``0x05``."
    payload: bytes = field(repr=False)
    "The type's own bytes."

    def __post_init__(self) -> None:
        try:
            encode_compact(self.type, _IDS, _WHAT)
        except Violation as violation:
            raise LocalProtocolError(violation.reason, rule=violation.rule) from None

    def encode(self, compact_len: CompactLen = "minus-one") -> bytes:
        """The entry's bytes."""
        return encode_compact(self.type, _IDS, _WHAT, compact_len) + self.payload

    @classmethod
    def decode(cls, data: bytes, compact_len: CompactLen = "minus-one") -> Self:
        """The raw value of an entry, its type known or not. Raises Violation when it has no whole type."""
        _, name, at = decode_compact(data, 0, _NAMES, _WHAT, compact_len)
        return cls(name, data[at:])


Authentication = Simple | Bearer | Credentials
"The value of an authentication entry."


def decode_credentials(data: bytes, compact_len: CompactLen = "minus-one") -> Authentication:
    """The value of an authentication entry; an unknown type becomes :class:`Credentials` (R-59).

    Raises:
        Violation: the type is missing, or the value does not fit it; the code is INVALID.
    """
    raw = Credentials.decode(data, compact_len)
    id = _IDS.get(raw.type)
    if id == _SIMPLE:
        end = 2 + int.from_bytes(raw.payload[:2], "big")
        if len(raw.payload) < end or len(raw.payload) < 2:
            raise invalid(f"simple authentication is cut off: {len(raw.payload)} bytes", "2.5")
        return Simple(_text(raw.payload[2:end], "a user's name"), _text(raw.payload[end:], "a password"))
    if id == _BEARER:
        return Bearer(_text(raw.payload, "a token"))
    return raw


def _expect(kind: type[_Kind], value: object) -> _Kind:
    if not isinstance(value, kind):
        raise invalid(f"the credentials are {type(value).__name__}, not {kind.__name__}", "2.5")
    return value


def _text(data: bytes, what: str) -> str:
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError:
        raise invalid(f"{what} is not UTF-8", "2.5") from None


def _utf8(text: str, what: str) -> bytes:
    if not isinstance(text, str):
        raise TypeError(f"{what} is text, not {type(text).__name__}")
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise LocalProtocolError(f"{what} is not Unicode text", rule="2.5") from None
