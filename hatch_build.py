"""Hooks of the build.

1. With ``AFFLUX_MYPYC=1`` a wheel is compiled with mypyc, and tagged for its interpreter and platform. Without the
   variable the wheel is pure Python. Where it can not be compiled it is pure as well, and a line on stderr says why.
   What is compiled, and how, is in tools/compiled.py; docs/how-to/compiled.md tells users.
2. A package index shows the README without the files beside it. With ``AFFLUX_HOME=https://…``, the page of the public
   repository, links to these files become absolute, and the project's URLs are in the metadata. Without it such links
   are replaced by their text: the source contains no address.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

VARIABLE = "AFFLUX_MYPYC"
HOME = "AFFLUX_HOME"


class Compiled(BuildHookInterface):  # type: ignore[type-arg]
    """The hook of wheels."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """What compiling needs: nothing unless it is wanted."""
        return ["mypy>=1.18", "setuptools>=70"] if _wanted() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and add what comes of it to the wheel."""
        if not _wanted():
            return
        if version == "editable":
            _say("an editable installation stays pure Python, so that its source can be edited")
            return
        self._folder = tempfile.TemporaryDirectory(prefix="afflux-compiled-")
        tool = Path(self.root, "tools", "compiled.py")
        done = subprocess.run([sys.executable, tool, self._folder.name], capture_output=True, text=True, check=False)
        if done.returncode:
            *told, reason = done.stderr.splitlines(keepends=True) or [f"{tool.name} failed\n"]
            sys.stderr.writelines(told)
            _say(f"not compiled, the wheel is pure Python: {reason.strip()}")
            return
        for line in done.stderr.splitlines():
            _say(line)
        folder = Path(self._folder.name)
        made = [path for path in folder.rglob("*") if path.is_file()]
        build_data["force_include"] |= {str(path): str(path.relative_to(folder)) for path in made}
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """The wheel is written: forget what it was made of."""
        if hasattr(self, "_folder"):
            self._folder.cleanup()


class Described(MetadataHookInterface):
    """The hook of the metadata."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the README and the project's URLs."""
        home = home_of(os.environ.get(HOME, ""))
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        text = with_absolute_links(text, home) if home else without_relative_links(text)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
        metadata["urls"] = urls_of(home) if home else {}


def home_of(text: str) -> str:
    """Return the address of the repository's page without a slash at its end; "" if there is none.

    Raises:
        ValueError: it is no https address.
    """
    if text and not re.fullmatch(r"https://[^\s/]+(/[^\s/]+)+/?", text):
        raise ValueError(
            f"{HOME} is the page of the repository, such as https://forge.example/afflux/afflux, not {text!r}"
        )
    return text.rstrip("/")


def urls_of(home: str) -> dict[str, str]:
    """Return the project's URLs by their label."""
    files = f"{home}/blob/HEAD"
    return {
        "Documentation": f"{files}/docs/README.md",
        "Source": home,
        "Changelog": f"{files}/CHANGELOG.md",
        "Issues": f"{home}/issues",
    }


_TARGET = r"\((?P<path>(?!\w+:|#)[^)\s]+)\)"
_IMAGE = re.compile(r"!\[(?P<text>[^\]]*)\]" + _TARGET)
_LINK = re.compile(r"\[(?P<text>[^\[\]]*)\]" + _TARGET)


def with_absolute_links(text: str, home: str) -> str:
    """Return Markdown in which links to files, and images from files, lead to the repository."""
    text = _IMAGE.sub(rf"![\g<text>]({home}/raw/HEAD/\g<path>)", text)
    return re.sub(r"\]" + _TARGET, rf"]({home}/blob/HEAD/\g<path>)", text)


def without_relative_links(text: str) -> str:
    """Return Markdown in which links to files, and images from files, are replaced by their text."""
    return _LINK.sub(r"\g<text>", _IMAGE.sub(r"\g<text>", text))


def _wanted() -> bool:
    return os.environ.get(VARIABLE, "0") not in ("", "0")


def _say(text: str) -> None:
    sys.stderr.write(f"afflux: {text}\n")
