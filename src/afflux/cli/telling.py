"""Print lines on stderr, cut if they are very long."""

from __future__ import annotations

import shutil
import sys
from textwrap import wrap
from typing import Final

__all__ = ["tell"]

_LONGEST: Final = 2_000
"Characters of a line at most: more than a screen of 80 × 24."


def tell(text: str, *, wrapped: bool = False) -> None:
    """Print a text on stderr. On a terminal, prose may be wrapped between words; a command in it could not be copied
    then."""
    lines = [_cut(line) for line in text.split("\n")]
    if wrapped and sys.stderr.isatty():
        lines = [part for line in lines for part in _between_words(line)]
    sys.stderr.write("\n".join(lines) + "\n")  # typer.echo would write UTF-8 to a terminal that has ASCII only
    sys.stderr.flush()


def _between_words(line: str) -> list[str]:
    width = shutil.get_terminal_size().columns
    return wrap(line, width, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)


def _cut(line: str) -> str:
    """Return a line without its middle if it is too long: the end says what to do."""
    if len(line) <= _LONGEST:
        return line
    half = _LONGEST // 2
    return f"{line[:half]} … {len(line) - 2 * half:,} characters omitted … {line[-half:]}"
