"""Define the behaviour of every responder, and how values are reported.

``common.js`` defines the same for the JavaScript peers: change both together. A request whose data starts with ``!`` is
a command; any other is echoed.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

__all__ = ["Answer", "Plan", "Value", "answer", "digest", "fill", "plan", "read", "shown", "words"]

SHOWN = 256
"Larger values are reported by length and digest."

Value = str | None
'A reported value: None, "h:<hex>", "f:<size>:<seed>" (see fill) or "s:<size>:<digest>", which can only be compared.'


def fill(size: int, seed: int) -> bytes:
    """Return bytes that show their position: blocks of 256, each starting with its number."""
    tail = bytes((i * 31 + seed) & 0xFF for i in range(4, 256))
    return b"".join(struct.pack(">I", block) + tail for block in range(-(-size // 256)))[:size]


def digest(data: bytes) -> str:
    """Return sixteen digits to compare large values by."""
    return hashlib.sha256(data).hexdigest()[:16]


def shown(data: bytes | bytearray | None) -> Value:
    """Return bytes as a value."""
    if data is None:
        return None
    return f"h:{bytes(data).hex()}" if len(data) <= SHOWN else f"s:{len(data)}:{digest(bytes(data))}"


def read(value: Value) -> bytes | None:
    """Return the bytes of a value."""
    if value is None:
        return None
    kind, first, *rest = value.split(":")
    return bytes.fromhex(first) if kind == "h" else fill(int(first), int(rest[0]))


def words(data: bytes | bytearray | None) -> list[str]:
    """Parse a command and its arguments."""
    text = bytes((data or b"")[:200]).decode("latin-1")
    return text[1:].split(" ") if text.startswith("!") else ["echo"]


@dataclass(slots=True)
class Answer:
    """The answer of a request; an error, silence or a delay takes precedence over data."""

    data: bytes = b""
    metadata: bytes | None = None
    error: tuple[int, str] | None = None
    never: str | None = None
    "Never answer; report a cancel with this tag."
    slow: float = 0
    "Seconds before the answer."


def answer(data: bytes, metadata: bytes | None, route: Callable[[bytes], str]) -> Answer:
    """Return the answer of a request. ``route`` reads composite metadata with the implementation under test."""
    word, *rest = words(data)
    match word:
        case "digest":
            about = "-" if metadata is None else f"{len(metadata)} {digest(metadata)}"
            return Answer(f"{len(data)} {digest(data)} {about}".encode())
        case "size":
            return Answer(fill(int(rest[0]), 1), fill(int(rest[1]), 2) if int(rest[1]) else None)
        case "fail":
            return Answer(error=(0x201, " ".join(rest)))
        case "code":
            return Answer(error=(int(rest[0], 16), " ".join(rest[1:])))
        case "never":
            return Answer(never=rest[0])
        case "slow":
            return Answer(b"slow", slow=int(rest[0]) / 1000)
        case "route":
            return Answer(route(metadata or b"").encode())
        case _:
            return Answer(data, metadata)


Item = tuple[bytes, bytes | None]


@dataclass(slots=True)
class Plan:
    """The content of a stream."""

    items: Iterator[Item]
    error: tuple[int, str] | None = None
    "The error at its end, if any."
    tag: str | None = None
    "Report a cancel with this tag."
    silent: bool = False
    "Send neither items nor an end; also report the start with the tag."


def plan(data: bytes, metadata: bytes | None) -> Plan:
    """Return the plan for a stream's request."""
    word, *rest = words(data)
    match word:
        case "count":
            return Plan((str(i).ljust(int(rest[1]), ".").encode(), None) for i in range(int(rest[0])))
        case "meta":
            return Plan((b"%d" % i, b"m%d" % i) for i in range(int(rest[0])))
        case "size":
            size, meta, count = map(int, rest)
            return Plan((fill(size, i), fill(meta, i + 1) if meta else None) for i in range(count))
        case "never":
            return Plan(iter(()), tag=rest[0], silent=True)
        case "endless":
            return Plan(_numbers(), tag=rest[0])
        case "fail":
            return Plan(_numbers(int(rest[0])), error=(0x201, " ".join(rest[1:])))
        case "code":
            return Plan(_numbers(int(rest[0])), error=(int(rest[1], 16), " ".join(rest[2:])))
        case "empty":
            return Plan(iter(()))
        case _:
            return Plan(iter([(data, metadata)]))


def _numbers(count: int | None = None) -> Iterator[Item]:
    i = 0
    while count is None or i < count:
        yield b"%d" % i, None
        i += 1
