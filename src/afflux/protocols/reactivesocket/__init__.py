"""Implement ReactiveSocket of 2015: frames, codes, tables and a sans-IO engine. Drivers provide sockets and clocks."""

from typing import TYPE_CHECKING

from afflux.core.exports import exports_of

if TYPE_CHECKING:
    from afflux.protocols.reactivesocket.dialect import Dialect
    from afflux.protocols.reactivesocket.engine import Engine

__all__ = ["Dialect", "Engine"]

__getattr__, __dir__ = exports_of(
    __name__, {"Dialect": "afflux.protocols.reactivesocket.dialect", "Engine": "afflux.protocols.reactivesocket.engine"}
)
