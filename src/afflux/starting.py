"""Let SIGINT end the command ``afflux`` without a traceback while its modules are imported. Does nothing in programs.

Importing this module does it, and so it precedes all other imports of the package. ``afflux.cli.process`` takes over.
"""

from __future__ import annotations

import os
import sys

__all__: list[str] = []

if sys.orig_argv[1:3] == ["-m", "afflux"] or os.path.abspath("".join(sys.orig_argv[1:2])) == f"{sys.prefix}/bin/afflux":
    from _signal import SIGINT, signal  # type: ignore[import-not-found]  # ``signal`` imports enum first

    signal(SIGINT, lambda *_: os._exit(130))
