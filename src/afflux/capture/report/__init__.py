"""Write a report about a capture: one HTML page that loads nothing, from the tables of ``afflux.capture.analyze``.

``ready`` refuses a report that cannot be written. ``write`` reads the tables in bounded memory (summary.py,
details.py), draws the plots (plots.py) and writes the page (page.py). Bounds are in bounds.py. Needs the extra
``report``. Does not decode captures.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from errno import ENOENT
from pathlib import Path
from typing import Final

from afflux.capture.output import OutputRefused
from afflux.capture.report.bounds import Bounds
from afflux.capture.report.bundle import check
from afflux.capture.report.source import Source
from afflux.replacing import replace_file

__all__ = ["Bounds", "Source", "ready", "title_of", "write"]

_START: Final = 256
"Bytes of an existing file that show whether it is a page."


def write(
    source: Source,
    out: str | Path,
    *,
    title: str = "Capture report",
    bounds: Bounds | None = None,
    absent: Collection[str] = (),
) -> int:
    """Write a report as one HTML file, which replaces ``out`` when it is complete. Returns its size in bytes.

    Args:
        source: the tables. A directory with a directory of Parquet files for each table, as ``afflux spark decode
            --out`` writes them. Or a function that is called twice, each time with names of tables, and returns an
            iterable of table names and record batches, as ``analyze`` does. Or such an iterable: it is read once, so
            ladders and plots of credit show only the frames that fit into ``bounds.kept_bytes``.
        out: the file.
        title: the heading of the page.
        bounds: how much the page shows.
        absent: tables that a function or an iterable does not have: the page names them, and shows no zeros.

    Raises:
        MissingExtra: altair, vl-convert-python or pyarrow is not installed.
        CaptureError: a directory has no tables, or they are damaged or of another version.
        OutputRefused: ``out`` exists and is not HTML, such as a capture.
        OSError: the file cannot be written.
    """
    target = ready(out)
    from afflux.capture.report.collected import collect
    from afflux.capture.report.page import page

    bounds = bounds or Bounds()
    made = page(collect(source, bounds, frozenset(absent)), title, bounds).encode("utf-8", "replace")
    replace_file(target, made)
    return len(made)


def title_of(names: Sequence[str]) -> str:
    """Return a title of the report about files or directories: the names of up to three."""
    first = ", ".join(Path(name).name or name for name in names[:3])
    return f"{first} and {len(names) - 3} more" if len(names) > 3 else first


def ready(out: str | Path) -> Path:
    """Return the path of a report that can be written.

    Raises:
        MissingExtra, OutputRefused: see ``write``.
        FileNotFoundError: the directory of ``out`` does not exist.
    """
    check()
    target = Path(out)
    if not target.parent.is_dir():
        raise FileNotFoundError(ENOENT, f"there is no directory {target.parent}", str(target))
    if not target.exists():
        return target
    if not target.is_file():
        raise OutputRefused(f"{target} is not a file: choose another name for the report", rule="output")
    with target.open("rb") as file:
        start = file.read(_START).lstrip().lower()
    if start and not start.startswith((b"<!doctype html", b"<html")):
        raise OutputRefused(f"{target} exists and is not HTML: choose another name for the report", rule="output")
    return target
