"""Run the command ``afflux`` as ``python -m afflux``."""

from __future__ import annotations

import sys

from afflux.cli import main

if __name__ == "__main__":
    sys.exit(main())
