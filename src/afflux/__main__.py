"""``python -m afflux`` is the command ``afflux``. Nothing else lives here."""

from __future__ import annotations

import sys

from afflux.cli import main

if __name__ == "__main__":
    sys.exit(main())
