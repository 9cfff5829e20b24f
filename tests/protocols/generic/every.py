"""The declarations of every protocol that is built."""

from __future__ import annotations

from importlib import import_module

from afflux.registry import PROTOCOLS

from .wires import Wire

WIRES: tuple[Wire, ...] = tuple(
    import_module(f"tests.protocols.{entry.name}.wire").WIRE for entry in PROTOCOLS.values() if entry.make is not None
)
"In the order of the registry."
