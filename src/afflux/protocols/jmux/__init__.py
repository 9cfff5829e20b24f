"""Jmux, the multiplexing protocol of Jini ERI: messages, tables and a sans-IO engine. Sockets belong to the drivers."""

from afflux.protocols.jmux.engine import Engine

__all__ = ["Engine"]
