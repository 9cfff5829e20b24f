"""afflux from a compiled wheel: the server and the client of afflux_aio, in a process that imports nothing from src."""

from __future__ import annotations

import sys

from benchmarks.peers.compiled import site

if "afflux" in sys.modules:
    raise ImportError("afflux was imported before its compiled build was chosen")
sys.path.insert(0, str(site()))

from afflux.core import credit
from benchmarks.peers.afflux_aio import Client, serve

__all__ = ["Client", "serve"]

if str(credit.__file__).endswith(".py"):
    raise ImportError(f"{credit.__file__} is not compiled")
