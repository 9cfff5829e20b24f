"""Implement reactive-streams-io of 2015: messages, tables and a sans-IO engine. Sockets and clocks belong to the
drivers."""

from typing import TYPE_CHECKING

from afflux.core.exports import exports_of

if TYPE_CHECKING:
    from afflux.protocols.rsio.engine import Engine

__all__ = ["Engine"]

__getattr__, __dir__ = exports_of(__name__, {"Engine": "afflux.protocols.rsio.engine"})
