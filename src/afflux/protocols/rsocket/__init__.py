"""Implement RSocket 1.0: frames, codes, tables and a sans-IO engine. Drivers provide sockets and clocks."""

from afflux.protocols.rsocket.engine import Engine

__all__ = ["Engine"]
