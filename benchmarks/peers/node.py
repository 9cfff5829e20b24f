"""rsocket-js in js/: what it needs of this machine, and which versions it has. It is installed when first asked for."""

from __future__ import annotations

import json
import shutil
import subprocess
from functools import cache
from pathlib import Path

__all__ = ["HOME", "installed", "versions", "why_not"]

HOME = Path(__file__).resolve().parent / "js"

_PATIENCE_S = 90
"What npm may take."


def why_not() -> str | None:
    """Why it can not run here, and what would change that; None when it can."""
    return installed(HOME)


@cache
def installed(home: Path) -> str | None:
    """Install what the lock file in ``home`` names, unless it is there; why that could not be. Asked once for all."""
    for tool in ("node", "npm"):
        if shutil.which(tool) is None:
            return f"there is no {tool} here: install Node.js 18 or newer (Debian: apt-get install nodejs npm)"
    lock = home / "package-lock.json"
    mark = home / "node_modules" / "installed.json"
    if mark.exists() and mark.read_text() == lock.read_text():
        return None
    command = ("npm", "ci", "--no-audit", "--no-fund")
    try:
        done = subprocess.run(command, cwd=home, capture_output=True, text=True, timeout=_PATIENCE_S, check=False)
    except subprocess.TimeoutExpired:
        return f"npm ci in {home.name}/ was not done after {_PATIENCE_S} s: is the npm registry within reach?"
    if done.returncode:
        last = [line for line in done.stderr.splitlines() if line.startswith("npm error")]
        said = (last or ["it says nothing"])[0][:120]
        return f"npm ci in {home.name}/ failed ({said}): is the npm registry within reach?"
    mark.write_text(lock.read_text())
    return None


def versions() -> dict[str, str]:
    """Of rsocket-js, which is the one that is wanted, and of Node.js."""
    wanted = json.loads((HOME / "package.json").read_text())["dependencies"]["rsocket-core"]
    found = {"rsocket-js": str(wanted)}
    if shutil.which("node") is not None:
        told = subprocess.run(("node", "--version"), capture_output=True, text=True, check=False)
        found["Node.js"] = told.stdout.strip().removeprefix("v")
    return found
