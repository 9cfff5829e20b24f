"""Replace the generated section of a page: it is between two marks, which name the file and the command."""

from __future__ import annotations

__all__ = ["between"]


def between(page: str, source: str, command: str, section: str) -> str:
    """Return the page with ``section`` between its marks.

    Raises:
        ValueError: the marks are missing.
    """
    first, last = f"<!-- made of {source} by {command}: begin -->\n", "<!-- end -->\n"
    before, begin, rest = page.partition(first)
    _, end, after = rest.partition(last)
    if not begin or not end:
        raise ValueError(f"the page has no lines {first.strip()!r} and {last.strip()!r}")
    return before + begin + "\n" + section + "\n" + end + after
