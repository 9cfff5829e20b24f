"""Give memory back to the system at the end of a task.

Spark reuses a Python worker for many tasks. What a task has freed stays with the allocators of the process, in pieces
that the next task may not fit into, so the worker would grow with the number of its tasks.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress

__all__ = ["give_back"]


def give_back() -> None:
    """Return the free memory of Arrow and of the C library to the system. Of the C libraries only glibc keeps much, and
    can be asked for it. The garbage collector does not run: it takes a tenth of a second, and decoders leave it
    nothing."""
    import pyarrow as pa

    pa.default_memory_pool().release_unused()
    with suppress(OSError, AttributeError, TypeError):  # another C library, or Windows
        ctypes.CDLL(None).malloc_trim(0)
