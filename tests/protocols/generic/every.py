"""The declarations of every protocol that is built."""

from __future__ import annotations

from importlib import import_module

from afflux.protocols.registry import PROTOCOLS

from .wires import Wire

WIRES: tuple[Wire, ...] = tuple(
    import_module(f"tests.protocols.{entry.name}.wire").WIRE for entry in PROTOCOLS.values()
)
"In the order of the registry."
