"""Find the compiled build of afflux, as ``make compiled`` leaves it in build/compiled/site.

``AFFLUX_COMPILED`` names another folder: one into which a compiled wheel was installed (``pip install --target``).
"""

from __future__ import annotations

import os
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

__all__ = ["VARIABLE", "site", "why_not"]

VARIABLE = "AFFLUX_COMPILED"
"The variable that names the folder."

_MADE = Path(__file__).resolve().parents[2] / "build" / "compiled" / "site"


def site() -> Path:
    """Return the folder from which the compiled build is imported."""
    return Path(os.environ.get(VARIABLE) or _MADE)


def why_not() -> str | None:
    """Return why there is no compiled build here, and the remedy; None if there is one."""
    if any((site() / "afflux" / "core" / f"credit{suffix}").is_file() for suffix in EXTENSION_SUFFIXES):
        return None
    where = os.environ.get(VARIABLE) or "build/compiled/site"
    remedy = f"MYPYC_OPT_LEVEL=3 make compiled makes one, or name one in {VARIABLE}"
    return f"no build compiled for this interpreter in {where}: {remedy}"
