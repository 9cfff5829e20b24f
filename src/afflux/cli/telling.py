"""Print lines on stderr, cut if they are very long."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from textwrap import wrap
from typing import Final

__all__ = ["placed", "tell"]

_LONGEST: Final = 2_000
"Characters of a line at most: more than a screen of 80 × 24."
_NAME: Final = "afflux: "
_places: Final[list[str]] = []
"The places that texts name, the innermost last; not a context variable, because threads print texts too."


@contextmanager
def placed(place: str) -> Iterator[None]:
    """Name the place of the input, such as ``line 2``, in the texts that are printed in the block."""
    _places.append(place)
    try:
        yield
    finally:
        _places.pop()


def tell(text: str, *, wrapped: bool = False) -> None:
    """Print a text on stderr. On a terminal, prose may be wrapped between words; a command in it could not be copied
    then."""
    if _places and text.startswith(_NAME):
        text = f"{_NAME}{_places[-1]}: {text.removeprefix(_NAME)}"
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
