"""Print lines on stderr, cut if they are very long. Terminals wrap them, and a command in them can be copied."""

from __future__ import annotations

import sys
from typing import Final

__all__ = ["tell"]

_LONGEST: Final = 2_000
"Characters of a line at most: more than a screen of 80 × 24."


def tell(text: str) -> None:
    """Print a text on stderr."""
    lines = [_cut(line) for line in text.split("\n")]
    sys.stderr.write("\n".join(lines) + "\n")  # typer.echo would write UTF-8 to a terminal that has ASCII only
    sys.stderr.flush()


def _cut(line: str) -> str:
    """Return a line without its middle if it is too long: the end says what to do."""
    if len(line) <= _LONGEST:
        return line
    half = _LONGEST // 2
    return f"{line[:half]} … {len(line) - 2 * half:,} characters omitted … {line[-half:]}"
