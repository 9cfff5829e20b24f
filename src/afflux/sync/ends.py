"""Name the two ends of a blocking connection, for the log."""

from __future__ import annotations

import os
import socket
from typing import Any

from afflux.transports.base import Link

__all__ = ["ends_of"]


def ends_of(link: Link) -> tuple[Any, Any]:
    """Return the names of the link's socket and of its peer's; None for both if it is closed already."""
    try:
        with socket.socket(fileno=os.dup(link.fileno())) as end:
            return end.getsockname(), end.getpeername()
    except OSError:
        return None, None
