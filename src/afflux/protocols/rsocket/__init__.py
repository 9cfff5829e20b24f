"""RSocket 1.0: frames, codes, tables and a sans-IO engine. Sockets and clocks belong to the drivers."""

from afflux.protocols.rsocket.engine import Engine

__all__ = ["Engine"]
