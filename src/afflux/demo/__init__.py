"""The demo responder, its flight data, and the job of ``afflux demo``."""

from __future__ import annotations

__all__: list[str] = []
