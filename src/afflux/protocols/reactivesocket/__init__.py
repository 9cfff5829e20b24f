"""Implement ReactiveSocket of 2015: frames, codes, tables and a sans-IO engine. Drivers provide sockets and clocks."""

from afflux.protocols.reactivesocket.dialect import Dialect
from afflux.protocols.reactivesocket.engine import Engine

__all__ = ["Dialect", "Engine"]
