"""Implement Limit-Stream 0.1.0: frames, message numbers, tables and a sans-IO engine. Sockets and clocks belong to the
drivers, and the language of session types to ``afflux.sessions``."""

from typing import TYPE_CHECKING

from afflux.core.exports import exports_of

if TYPE_CHECKING:
    from afflux.protocols.limit.engine import Engine
    from afflux.protocols.limit.messages import Choice, Opening, Value
    from afflux.protocols.limit.steps import Plain, Runs, Steps, Turn, Unchecked
    from afflux.protocols.limit.typed import Typed

__all__ = ["Choice", "Engine", "Opening", "Plain", "Runs", "Steps", "Turn", "Typed", "Unchecked", "Value"]

__getattr__, __dir__ = exports_of(
    __name__,
    {
        "Engine": "afflux.protocols.limit.engine",
        "Choice": "afflux.protocols.limit.messages",
        "Opening": "afflux.protocols.limit.messages",
        "Value": "afflux.protocols.limit.messages",
        "Plain": "afflux.protocols.limit.steps",
        "Runs": "afflux.protocols.limit.steps",
        "Steps": "afflux.protocols.limit.steps",
        "Turn": "afflux.protocols.limit.steps",
        "Unchecked": "afflux.protocols.limit.steps",
        "Typed": "afflux.protocols.limit.typed",
    },
)
