"""Let the garbage collector wait while a batch is decoded: its many objects live until its end, and the collector would
look at them, and at all modules, again and again."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Final

__all__ = ["uncollected"]


_lock: Final = Lock()
_blocks = 0
"The blocks that are being executed."
_enabled = False
"Whether the collector worked before the first of them."


@contextmanager
def uncollected() -> Iterator[None]:
    """Collect no cycles in the block, in any thread. Blocks may be nested, and overlap in several threads."""
    global _blocks, _enabled
    with _lock:
        if _blocks == 0:
            _enabled = gc.isenabled()
            gc.disable()
        _blocks += 1
    try:
        yield
    finally:
        with _lock:
            _blocks -= 1
            if _blocks == 0 and _enabled:
                gc.enable()
