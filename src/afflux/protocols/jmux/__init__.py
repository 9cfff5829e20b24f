"""Jmux, the multiplexing protocol of Jini ERI: messages, tables and a sans-IO engine. Sockets belong to the drivers."""

from typing import TYPE_CHECKING

from afflux.core.exports import exports_of

if TYPE_CHECKING:
    from afflux.protocols.jmux.engine import Engine

__all__ = ["Engine"]

__getattr__, __dir__ = exports_of(__name__, {"Engine": "afflux.protocols.jmux.engine"})
