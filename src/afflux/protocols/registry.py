"""Find the protocols: every package in this directory that has an ``entry.py``. Each is imported at its first use.

An entry imports the engine at its first connection: decoding needs none, and to import all takes most of a second. What
selects a protocol for connections, ``named`` and ``any_protocol``, imports the engine, so that no connection waits.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any, Final

from afflux import protocols
from afflux.core.entry import ProtocolEntry, nearest
from afflux.core.errors import Unsupported

if TYPE_CHECKING:
    from afflux.core.engine import Engine
    from afflux.core.frame import Frame

__all__ = ["AUTO", "PROTOCOLS", "Protocols", "all_names", "any_protocol", "frames_of", "named", "recognizable"]

AUTO: Final = "auto"
"In the address of a server: each client's protocol is recognized from its first bytes."


class Protocols(MutableMapping[str, ProtocolEntry]):
    """The protocols by name. A protocol's package has the protocol's name, with "_" for "-"; assign an entry to add
    another protocol."""

    def __init__(self) -> None:
        self._packaged: Final = frozenset(
            package.name.replace("_", "-")
            for path in protocols.__path__
            for package in iter_modules([path])
            if package.ispkg and any(module.name == "entry" for module in iter_modules([f"{path}/{package.name}"]))
        )
        self._entries: dict[str, ProtocolEntry | None] = dict.fromkeys(sorted(self._packaged))

    def __getitem__(self, name: str) -> ProtocolEntry:
        entry = self._entries[name]
        if entry is None:
            entry = self._entries[name] = _module(name, "entry").ENTRY
        return entry

    def prepare(self, name: str) -> None:
        """Import the engine of a protocol; no-op for one that was assigned."""
        if name in self._packaged:
            _module(name, "engine")

    def __setitem__(self, name: str, entry: ProtocolEntry) -> None:
        self._entries[name] = entry

    def __delitem__(self, name: str) -> None:
        del self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


PROTOCOLS: Final = Protocols()
"Every protocol that an address may name, by name."


def _module(protocol: str, name: str) -> Any:
    """Return a module of the package of a protocol."""
    return import_module(f"afflux.protocols.{protocol.replace('-', '_')}.{name}")


def named(protocol: str) -> ProtocolEntry:
    """Return the protocol called ``protocol``, whose engine is imported.

    Raises:
        AddressError: the name is unknown; the text lists the known ones.
    """
    if protocol not in PROTOCOLS:
        names = all_names()
        close = get_close_matches(protocol.lower(), names, n=1)
        raise nearest("protocol", protocol, PROTOCOLS, meant=names[close[0]] if close else None)
    PROTOCOLS.prepare(protocol)
    return PROTOCOLS[protocol]


def all_names() -> dict[str, str]:
    """Return the protocol of every name, and of every other name under which people look for it."""
    return {AUTO: AUTO} | {name: entry.name for entry in PROTOCOLS.values() for name in (entry.name, *entry.aliases)}


def recognizable() -> tuple[ProtocolEntry, ...]:
    """Return the protocols that can be recognized from first bytes, by name. Their engines are not imported."""
    entries = (PROTOCOLS[name] for name in sorted(PROTOCOLS))
    return tuple(entry for entry in entries if entry.recognize is not None)


@cache
def frames_of(protocol: str) -> tuple[type[Frame], ...]:
    """Return the declared frames of a protocol, in the order of its module ``frames``, connection headers included.
    Empty for a protocol without such a module."""
    from afflux.core.frame import Frame

    try:
        module = import_module(f"afflux.protocols.{protocol.replace('-', '_')}.frames")
    except ModuleNotFoundError:
        return ()
    kinds = (kind for kind in vars(module).values() if isinstance(kind, type) and issubclass(kind, Frame))
    return tuple(dict.fromkeys(kind for kind in kinds if kind.LAYOUT and protocol == kind.PROTOCOL))


def any_protocol() -> ProtocolEntry:
    """Return the entry of ``AUTO``: all that the recognized protocols offer, except ``store``, because a file stores
    the sessions of one protocol."""
    entries = [entry for entry in recognizable() if not entry.unguessed]
    for entry in entries:
        PROTOCOLS.prepare(entry.name)
    verbs = dict.fromkeys(verb for entry in entries for verb in entry.verbs)
    features = dict.fromkeys(feature for entry in entries for feature in entry.features if feature != "store")
    return ProtocolEntry(AUTO, _not_made, verbs=tuple(verbs), features=tuple(features))


def _not_made(*_: object, **__: object) -> Engine:
    raise Unsupported(f"{AUTO} is not a protocol: an engine is made when the protocol is recognized")
