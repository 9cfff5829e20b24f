"""Let the garbage collector wait while a batch is decoded: its many objects live until its end, and the collector would
look at them, and at all modules, again and again."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["uncollected"]


@contextmanager
def uncollected() -> Iterator[None]:
    """Collect no cycles in the block, in any thread. Blocks may be nested, and run in several threads."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
