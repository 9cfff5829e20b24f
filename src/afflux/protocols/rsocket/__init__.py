"""Implement RSocket 1.0: frames, codes, tables and a sans-IO engine. Drivers provide sockets and clocks."""

from typing import TYPE_CHECKING

from afflux.core.exports import exports_of

if TYPE_CHECKING:
    from afflux.protocols.rsocket.engine import Engine

__all__ = ["Engine"]

__getattr__, __dir__ = exports_of(__name__, {"Engine": "afflux.protocols.rsocket.engine"})
