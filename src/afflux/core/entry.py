"""Declare a protocol: its name, verbs, options, features and engine.

Each package in ``protocols/`` has one :class:`ProtocolEntry` in its ``entry.py``. ``protocols/registry.py`` finds them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from afflux.core.errors import AddressError, Unsupported
from afflux.core.framing import LengthPrefix

if TYPE_CHECKING:
    from afflux.core.dissector import MakeDissector
    from afflux.core.engine import Engine
    from afflux.core.meanings import Meanings
    from afflux.core.recognition import Recognize

__all__ = ["FIVE_VERBS", "SHARED_OPTIONS", "NO_STORE", "EngineFactory", "ProtocolEntry", "nearest", "seconds", "size"]

NO_STORE: Final = "resume=True without store= resumes while this process runs, and rsocket has store="
"What works where sessions cannot be stored in a file."
_FEATURE_VERBS: Final = ("session", "subscribe", "open")
"Features that are called like verbs."

_N = TypeVar("_N", int, float)

EngineFactory = Callable[..., "Engine"]
"``make(role, terms, *, limits, decide, now) -> Engine``."


def seconds(text: str, *, zero: bool = False) -> float:
    """Parse an option that is a time in seconds: above 0 (with ``zero``, or 0), at most a day.

    Raises:
        ValueError: it is out of range or not a number.
    """
    value = _number(float, text)
    if value is None or not 0 <= value <= 86_400 or (value == 0 and not zero):
        raise ValueError(f"expected a number of seconds, {'from 0' if zero else 'above 0'} and at most 86400 (a day)")
    return value


def size(text: str, most: int = 0xFFFFFF) -> int:
    """Parse an option that is a size of frames in bytes, 64 to ``most``.

    Raises:
        ValueError: it is out of range or not a number.
    """
    value = _number(int, text)
    if value is None or not 64 <= value <= most:
        raise ValueError(f"expected a number of bytes, 64 to {most}")
    return value


def _number(kind: Callable[[str], _N], text: str) -> _N | None:
    try:
        return kind(text)
    except ValueError:
        return None


SHARED_OPTIONS: Final = (("keepalive", seconds), ("lifetime", seconds), ("mtu", size))
"Options of an address that are fields of ``Terms``, each with its parser."
FIVE_VERBS: Final = ("request", "fire", "stream", "channel", "push")
"The verbs of RSocket and its relatives."


@dataclass(frozen=True, slots=True)
class ProtocolEntry:
    """The declaration of a protocol by its package."""

    name: str
    "The name in addresses."
    make: EngineFactory
    "Makes an engine."
    verbs: tuple[str, ...] = ()
    "The supported verbs."
    options: tuple[tuple[str, Callable[[str], Any]], ...] = ()
    "Options of an address, each with its parser: fields of Terms, or the protocol's own (``Terms.own``)."
    features: tuple[str, ...] = ()
    "Features beyond the verbs: lease, resume, store (sessions in a file), extensions, session, subscribe, open."
    framing: LengthPrefix | None = None
    "The length prefix of its frames, for message transports; None for a protocol without frames."
    subprotocol: str | None = None
    "The name in a WebSocket's handshake; None for no name."
    refusal: Callable[[str], bytes] | None = None
    "Returns the bytes that refuse a connection for a reason; None closes it without an answer."
    aliases: tuple[str, ...] = ()
    "Other names in use; the error for an unknown protocol of such a name suggests this one."
    exit_codes: Mapping[int, int] = field(default_factory=dict)
    "The exit code of the command line for each error code on the wire."
    dissector: MakeDissector | None = None
    "Makes a dissector, which turns bytes into frame records; None if the protocol has none."
    recognize: Recognize | None = None
    "Recognizes the protocol from first bytes (core.recognition); None if only its name selects it."
    meanings: Meanings | None = None
    "What its frames mean to an observer; None if captures of it are only decoded."
    unguessed: str = ""
    "The reason why recognition names the protocol as a candidate and never selects it; empty if it may."

    def check(self, verb: str) -> None:
        """Check that the protocol has a verb.

        Raises:
            Unsupported: the verb is missing; the text lists the supported ones.
        """
        if verb not in self.verbs:
            raise Unsupported(f'{self.name} has no "{verb}"; it offers: {", ".join(self.offers)}')

    @property
    def offers(self) -> tuple[str, ...]:
        """The verbs, and the features that are called like verbs."""
        beyond = (name for name in self.features if name in _FEATURE_VERBS and name not in self.verbs)
        return (*self.verbs, *beyond)

    @property
    def keepalives(self) -> bool:
        """Whether the protocol has keepalive frames, which show that a connection works."""
        return any(name == "keepalive" for name, _ in self.options)

    @property
    def subscribes(self) -> Literal["stream", "subscribe"]:
        """The verb that opens a subscription: ``subscribe`` if the protocol has it, else ``stream``."""
        return "subscribe" if "subscribe" in self.verbs else "stream"

    def require(self, feature: str, instead: str = "") -> None:
        """Check that the protocol has a feature; the error ends with ``instead``, what works in other ways.

        Raises:
            Unsupported: the feature is missing.
        """
        if feature not in self.features:
            there = ", ".join(self.features) or "nothing beyond its verbs"
            raise Unsupported(f'{self.name} has no "{feature}"; it has: {there}{instead and "; " + instead}')


def nearest(kind: str, name: str, known: Iterable[str], *, meant: str | None = None) -> AddressError:
    """Return the error for an unknown name, with the known names and a suggestion: ``meant``, or the nearest name."""
    from difflib import get_close_matches

    known = list(known)
    close = [meant] if meant is not None else get_close_matches(name.lower(), known, n=1)
    there = ", ".join(known) if known else "none"
    if close:
        return AddressError(f'unknown {kind} "{name[:64]}"; did you mean "{close[0]}"? Known: {there}')
    return AddressError(f'unknown {kind} "{name[:64]}"; known: {there}')
