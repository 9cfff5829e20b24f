"""Implement Limit-Stream 0.1.0: frames, message numbers, tables and a sans-IO engine. Sockets and clocks belong to the
drivers, and the language of session types to ``afflux.sessions``."""

from afflux.protocols.limit.engine import Engine
from afflux.protocols.limit.messages import Choice, Opening, Value
from afflux.protocols.limit.steps import Plain, Runs, Steps, Turn, Unchecked
from afflux.protocols.limit.typed import Typed

__all__ = ["Choice", "Engine", "Opening", "Plain", "Runs", "Steps", "Turn", "Typed", "Unchecked", "Value"]
