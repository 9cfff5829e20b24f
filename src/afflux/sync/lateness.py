"""Describe an answer that did not arrive in time. Does not import asyncio: most programs of ``afflux.sync`` do not."""

from __future__ import annotations

import sys

__all__ = ["late"]


def late(text: str) -> TimeoutError:
    """Return the error. It reports an event loop of this thread: that waits meanwhile, with every server in it."""
    asyncio = sys.modules.get("asyncio")
    if asyncio is not None and asyncio._get_running_loop() is not None:
        text += "; the event loop of this thread waits meanwhile: a server in it cannot answer (use afflux.connect)"
    return TimeoutError(text)
