"""Load what draws the plots in the browser: Vega, Vega-Lite and its embedder, as one script without other files."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

from afflux.core.errors import MissingExtra

__all__ = ["check", "libraries"]


def check() -> None:
    """Raise an error if a library of reports is missing.

    Raises:
        MissingExtra: altair, vl-convert-python or pyarrow is not installed.
    """
    try:
        import_module("altair")
        import_module("vl_convert")
        import_module("pyarrow")
    except ImportError:
        raise MissingExtra("the report of a capture", "report") from None


@cache
def libraries() -> str:
    """Return the script; it defines ``vegaEmbed``. The first call takes seconds."""
    converter: Any = import_module("vl_convert")
    script: str = converter.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    # the text of a script element ends at </script, whatever is around it
    return script.replace("</script", "<\\/script").replace("<!--", "<\\!--")
