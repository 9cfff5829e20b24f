"""Find the compiled build that ``make bench`` makes: afflux as a release installs it on Linux."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

__all__ = ["BUILT", "command", "why_not"]

_ROOT = Path(__file__).resolve().parent.parent.parent
BUILT = _ROOT / "build" / "release" / "site"
"The folder that ``tools/compiled.sh PYTHON release`` installs to."


@cache
def why_not(site: Path = BUILT, source: Path = _ROOT / "src") -> str | None:
    """Return why the build in ``site`` cannot be measured, and the remedy; None if it is that of ``source``."""
    remedy = "(make bench builds it; it needs a C compiler)"
    if next(site.glob("afflux/core/*.so"), None) is None:
        return f"there is no compiled build here {remedy}"
    ours, its = _texts(source), _texts(site)
    if ours != its:
        return f"the compiled build is of another version of the source {remedy}"
    return None


def command(words: Sequence[str]) -> list[str]:
    """Return a command of Python that imports afflux from the build."""
    return ["env", f"PYTHONPATH={BUILT}", sys.executable, *words]


def _texts(folder: Path) -> dict[str, bytes]:
    """Return the modules by path, but for the codecs that a compiled build has generated."""
    paths = (path for path in folder.glob("afflux/**/*.py") if path.name != "_codecs.py")
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}
