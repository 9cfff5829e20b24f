"""Give memory back to the system at the end of a task: Spark reuses a Python worker for many.

Allocators keep what was freed, in pieces that the next task does not fit into, so a worker would grow with the number
of its tasks. Does not change how much memory one task needs.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

__all__ = ["given_back"]


@contextmanager
def given_back() -> Iterator[None]:
    """Give back what the block has freed: what only cycles hold, what Arrow keeps for its next arrays, and the free
    pages of the C library. Only glibc keeps such pages, and can be asked for them."""
    try:
        yield
    finally:
        gc.collect()
        if (arrow := sys.modules.get("pyarrow")) is not None:
            arrow.default_memory_pool().release_unused()
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)
