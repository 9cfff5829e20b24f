"""The declarations of every protocol that is built."""

from __future__ import annotations

from importlib import import_module

from afflux.protocols.registry import PROTOCOLS

from .wires import Wire, package_of

WIRES: tuple[Wire, ...] = tuple(import_module(f"tests.protocols.{package_of(name)}.wire").WIRE for name in PROTOCOLS)
"In the order of the registry."
