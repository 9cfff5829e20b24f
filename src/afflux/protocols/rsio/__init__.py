"""Implement reactive-streams-io of 2015: messages, tables and a sans-IO engine. Sockets and clocks belong to the
drivers."""

from afflux.protocols.rsio.engine import Engine

__all__ = ["Engine"]
