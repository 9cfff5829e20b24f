"""Write a file that appears complete or not at all."""

from __future__ import annotations

from pathlib import Path

__all__ = ["replace_file"]


def replace_file(place: Path, data: bytes) -> None:
    """Write a file, or leave an old one as it is. Raises OSError, with the name of the file."""
    made = place.with_name(f".{place.name}.part")
    try:
        made.write_bytes(data)
        made.replace(place)
    except OSError as error:
        error.filename, error.filename2 = str(place), None
        raise
    finally:
        made.unlink(missing_ok=True)
