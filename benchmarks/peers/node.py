"""Check and install rsocket-js in js/, on first use."""

from __future__ import annotations

import json
import shutil
import subprocess
from functools import cache
from pathlib import Path

__all__ = ["HOME", "command", "installed", "versions", "why_not"]

HOME = Path(__file__).resolve().parent / "js"

_PATIENCE_S = 90
"Seconds that npm may take."


def why_not() -> str | None:
    """Return why it cannot run here, and the remedy; None if it can."""
    return installed(HOME)


def command(role: str, *arguments: str) -> list[str]:
    """Return the command of one end."""
    return ["node", str(HOME / "child.js"), role, *arguments]


@cache
def installed(home: Path) -> str | None:
    """Install the packages of the lock file in ``home``, unless installed; return why that failed. Runs once."""
    for tool in ("node", "npm"):
        if shutil.which(tool) is None:
            return f"{tool} not found: install Node.js 18 or newer (Debian: apt-get install nodejs npm)"
    lock = home / "package-lock.json"
    mark = home / "node_modules" / "installed.json"
    if mark.exists() and mark.read_text() == lock.read_text():
        return None
    command = ("npm", "ci", "--no-audit", "--no-fund")
    try:
        done = subprocess.run(command, cwd=home, capture_output=True, text=True, timeout=_PATIENCE_S, check=False)
    except subprocess.TimeoutExpired:
        return f"npm ci in {home.name}/ did not finish within {_PATIENCE_S} s: is the npm registry reachable?"
    if done.returncode:
        last = [line for line in done.stderr.splitlines() if line.startswith("npm error")]
        said = (last or ["it says nothing"])[0][:120]
        return f"npm ci in {home.name}/ failed ({said}): is the npm registry reachable?"
    mark.write_text(lock.read_text())
    return None


def versions() -> dict[str, str]:
    """Return the required version of rsocket-js and that of Node.js."""
    wanted = json.loads((HOME / "package.json").read_text())["dependencies"]["rsocket-core"]
    found = {"rsocket-js": str(wanted)}
    if shutil.which("node") is not None:
        told = subprocess.run(("node", "--version"), capture_output=True, text=True, check=False)
        found["Node.js"] = told.stdout.strip().removeprefix("v")
    return found
