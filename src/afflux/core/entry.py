"""Declare what a protocol has: its name, verbs, options and features, and where its engine is.

Each package in ``protocols/`` has one :class:`ProtocolEntry` in its ``entry.py``. ``protocols/registry.py`` finds them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from afflux.core.errors import AddressError, Unsupported
from afflux.core.framing import LengthPrefix

if TYPE_CHECKING:
    from afflux.core.dissector import MakeDissector
    from afflux.core.engine import Engine

__all__ = ["FIVE_VERBS", "SHARED_OPTIONS", "EngineFactory", "ProtocolEntry", "nearest", "seconds", "size"]

_VERBS_OF_ITS_OWN: Final = ("session", "subscribe")
"Features that are called as verbs are."

EngineFactory = Callable[..., "Engine"]
"``make(role, terms, *, limits, decide, now) -> Engine``."


def seconds(text: str) -> float:
    """An option that is a time: above 0, at most a day.

    Raises:
        ValueError: it is not.
    """
    value = float(text)
    if not 0 < value <= 86_400:
        raise ValueError("seconds, above 0 and at most a day")
    return value


def size(text: str) -> int:
    """An option that is a size of frames in bytes, 64 to 2^24−1.

    Raises:
        ValueError: it is not.
    """
    value = int(text)
    if not 64 <= value <= 0xFFFFFF:
        raise ValueError("bytes, 64 to 16777215")
    return value


SHARED_OPTIONS: Final = (("keepalive", seconds), ("lifetime", seconds), ("mtu", size))
"Options of an address that are fields of ``Terms``, and how to read each."
FIVE_VERBS: Final = ("request", "fire", "stream", "channel", "push")
"The verbs of RSocket and its relatives."


@dataclass(frozen=True, slots=True)
class ProtocolEntry:
    """One protocol, as its package declares it."""

    name: str
    "As in an address."
    make: EngineFactory
    "Makes an engine."
    verbs: tuple[str, ...] = ()
    "The verbs that it has."
    options: tuple[tuple[str, Callable[[str], Any]], ...] = ()
    "What an address may set, and how to read each: fields of Terms, the others are its own (``Terms.own``)."
    features: tuple[str, ...] = ()
    "What it has beyond the verbs: lease, resume, extensions, session, subscribe."
    framing: LengthPrefix | None = None
    "How its frames stand in a stream of bytes, for transports of messages; None for a protocol that is one stream."
    subprotocol: str | None = None
    "What it is called in a WebSocket's handshake; None for a protocol that says nothing there."
    refusal: Callable[[str], bytes] | None = None
    "The bytes that refuse a connection, given the reason; None closes it without an answer."
    aliases: tuple[str, ...] = ()
    "Other names that people use for it; an unknown protocol of such a name suggests this one."
    exit_codes: Mapping[int, int] = field(default_factory=dict)
    "The exit code of the command line for each error code on its wire."
    dissector: MakeDissector | None = None
    "Makes what turns its bytes into frame records; None where nothing does."

    def check(self, verb: str) -> None:
        """Raise unless the protocol has a verb.

        Raises:
            Unsupported: it does not; the text has what it offers instead.
        """
        if verb not in self.verbs:
            raise Unsupported(f'{self.name} has no "{verb}"; it offers: {", ".join(self.offers)}')

    @property
    def offers(self) -> tuple[str, ...]:
        """Its verbs, and what else is called as they are."""
        beyond = (name for name in self.features if name in _VERBS_OF_ITS_OWN and name not in self.verbs)
        return (*self.verbs, *beyond)

    @property
    def keepalives(self) -> bool:
        """Whether it has something that every peer answers at once, by which a connection is known to live."""
        return any(name == "keepalive" for name, _ in self.options)

    @property
    def subscribes(self) -> Literal["stream", "subscribe"]:
        """The verb by which a subscription is opened, in a protocol that has them: its own, or stream."""
        return "subscribe" if "subscribe" in self.verbs else "stream"

    def require(self, feature: str) -> None:
        """Raise unless the protocol has a feature.

        Raises:
            Unsupported: it does not.
        """
        if feature not in self.features:
            there = ", ".join(self.features) or "nothing beyond its verbs"
            raise Unsupported(f'{self.name} has no "{feature}"; it has: {there}')


def nearest(kind: str, name: str, known: Iterable[str], *, meant: str | None = None) -> AddressError:
    """The error for an unknown name, with the list of what exists and the nearest of it, or what is ``meant``."""
    from difflib import get_close_matches

    known = list(known)
    close = [meant] if meant is not None else get_close_matches(name, known, n=1)
    there = ", ".join(known) if known else "none"
    if close:
        return AddressError(f'unknown {kind} "{name[:64]}"; did you mean "{close[0]}"? There is: {there}')
    return AddressError(f'unknown {kind} "{name[:64]}"; there is: {there}')
