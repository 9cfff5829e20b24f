"""What anything can be tried against: the demo responder, real flights, and the main job of ``afflux demo``."""

from __future__ import annotations

__all__: list[str] = []
